//! The arms that the other arms of a plan are compared with.

use forebay_reader::Reader;
use forebay_reader::tree::Value;
use serde::{Deserialize, Serialize};

use super::curves::Curves;
use super::{Arm, Override};

/// The baseline of a plan that names none.
pub const STATUS_QUO: &str = "status_quo";
/// Repeats [`STATUS_QUO`] with other packet times: the difference between the two is chance.
pub const AGAIN: &str = "status_quo_again";
/// The arm that shows the best possible result, if a plan names none.
pub const IN_NETWORK: &str = "in_network_fq";
/// The arm where each competing flow of the other arms runs alone, if a plan names none.
pub const SOLO: &str = "solo";

/// The reference arms that a plan names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct References {
    /// The arm without the mechanism under study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    baseline: Option<String>,
    /// The arm that shows the best possible result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ideal: Option<String>,
    /// The arm where each competing flow of the other arms runs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alone: Option<String>,
    /// What is compared over time with the arm without what is studied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    curves: Option<Curves>,
}

impl References {
    /// How arms are compared with the baseline over time; `None`: not at all.
    pub fn curves(&self) -> Option<Curves> {
        self.curves
    }

    /// Name of the arm without what is studied: [`STATUS_QUO`] where the plan names none.
    pub fn baseline(&self) -> &str {
        self.baseline.as_deref().unwrap_or(STATUS_QUO)
    }

    /// Name of the arm that shows the best possible result; [`IN_NETWORK`] if the plan names none.
    pub fn ideal(&self) -> &str {
        self.ideal.as_deref().unwrap_or(IN_NETWORK)
    }

    /// Name of the arm where flows run alone; [`SOLO`] if the plan names none.
    pub fn alone(&self) -> &str {
        self.alone.as_deref().unwrap_or(SOLO)
    }

    /// The references of a plan with these arms.
    pub(super) fn read(plan: &Reader<'_>, arms: &[Arm]) -> Self {
        let read = |key| {
            let name = plan.name(key)?;
            if !arms.iter().any(|arm| arm.name == name) {
                let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
                let names = names.join(", ");
                plan.wrong_because(key, format!("one of the plan's arms: {names}"));
            }
            Some(name)
        };
        let curves = Curves::read(plan);
        Self { baseline: read("baseline"), ideal: read("ideal"), alone: read("alone"), curves }
    }

    /// Keys that the plan lacks although one of `arms` is such a reference, each with the name of that arm.
    pub(super) fn missing<'a>(&self, arms: &'a [Arm]) -> Vec<(&'static str, &'a str)> {
        let keys =
            [("baseline", self.baseline()), ("ideal", self.ideal()), ("alone", self.alone())];
        let is_there = |name: &str| arms.iter().any(|arm| arm.name == name);
        // In a plan without a baseline, flows that end early do not serve to compute harm.
        let is_meant = |key: &str| arms.len() > 1 && (key != "alone" || !is_there(self.baseline()));
        let missing = keys.into_iter().filter(|(key, name)| is_meant(key) && !is_there(name));
        let unnamed = missing.filter_map(|(key, _)| {
            let arm = arms.iter().find(|arm| looks_like(arm) == Some(key))?;
            Some((key, arm.name.as_str()))
        });
        unnamed.collect()
    }
}

/// The kind of reference that an arm appears to be, judged by the keys that it sets.
fn looks_like(arm: &Arm) -> Option<&'static str> {
    let is = |set: &Override, table: &str, keys: &[&str]| {
        set.key.starts_with(table) && keys.iter().any(|key| set.key.ends_with(key))
    };
    let disables =
        |set: &Override| is(set, "bundle.", &[".enabled"]) && set.node.value == Value::Bool(false);
    let schedules = |set: &Override| {
        ["bottleneck.qdisc", "reverse.qdisc"].iter().any(|key| set.key.starts_with(key))
    };
    let ends = |set: &Override| is(set, "flow.", &[".start", ".stop"]);
    match &arm.set[..] {
        [] => None,
        sets if sets.iter().all(disables) => Some("baseline"),
        sets if sets.iter().all(|set| disables(set) || schedules(set)) => {
            sets.iter().any(disables).then_some("ideal")
        }
        sets => sets.iter().all(ends).then_some("alone"),
    }
}
