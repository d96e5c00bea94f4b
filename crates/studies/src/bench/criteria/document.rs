//! The criteria of RFC 9743 for an algorithm, and the runs that answer each: `rfc9743.toml`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::bench::Suite;
use forebay_lab::judge::{Bound, Verdict};
use forebay_lab::metrics::{Address, describe, unit};
use forebay_lab::plan::Plan;

/// The criteria built into the program.
const BUILTIN: &str = include_str!("rfc9743.toml");

/// Requirement level of a section of the RFC: its strongest key word (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// The section says MUST.
    #[serde(rename = "MUST")]
    Must,
    /// The section says SHOULD.
    #[serde(rename = "SHOULD")]
    Should,
    /// The section has no key word of its own, but section 5 of the RFC holds: the community must consider it.
    #[serde(rename = "consider")]
    Consider,
}

impl Level {
    /// The key word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Consider => "consider",
        }
    }
}

/// One criterion.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// Section of the RFC.
    pub section: String,
    /// Heading of the section.
    pub title: String,
    /// How strongly it is worded.
    pub level: Level,
    /// The criterion in a sentence or two.
    pub asks: String,
    /// The text that answers it, if no run can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documentation: Option<String>,
    /// Why it does not concern these algorithms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_applicable: Option<String>,
    /// Parts of the criterion that the tests do not cover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves_open: Option<String>,
    /// Tests on runs.
    #[serde(default, rename = "test", skip_serializing)]
    pub tests: Vec<Test>,
}

/// A bound on a figure of the runs of a plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The behaviour that the test requires, in words.
    pub text: String,
    /// Name of the plan as `forebay run` takes it.
    pub plan: String,
    /// Cells that must meet the bound, each named whole or by its first words; empty: all of the plan.
    #[serde(default)]
    pub cells: Vec<String>,
    /// Metrics of a run, added up.
    pub value: Vec<String>,
    /// Metrics of the same run whose sum the value is divided by; empty: by nothing.
    #[serde(default)]
    pub over: Vec<String>,
    /// First word of the reference cell. The figure is divided by the reference cell's figure with the same
    /// algorithm and seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Lower bound; without either bound the figure is only reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Published verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
}

/// A published verdict on an algorithm.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The algorithm, as arms name it.
    pub algorithm: String,
    /// Whether it meets the bound.
    pub verdict: Verdict,
    /// Where that is published.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    criterion: Vec<Criterion>,
}

impl Criterion {
    /// The criteria of the repository that the program was built from, in the order of the RFC.
    ///
    /// # Errors A user's own plan replaces one of these by name and lacks a cell that a test needs.
    pub fn builtin() -> Result<Vec<Self>> {
        read(BUILTIN)
    }

    fn check(&self, plans: &BTreeMap<&str, Plan>) -> Result<()> {
        let texts = [&self.documentation, &self.not_applicable];
        let answers = texts.into_iter().flatten().count() + usize::from(!self.tests.is_empty());
        ensure!(answers == 1, "expected one of test, documentation and not_applicable");
        let is_tested = !self.tests.is_empty();
        ensure!(is_tested || self.leaves_open.is_none(), "leaves_open: allowed only with tests");
        let checked =
            |test: &Test| test.check(plans).with_context(|| format!("test {:?}", test.text));
        self.tests.iter().try_for_each(checked)
    }
}

impl Test {
    /// The bound, without either end where the figure is only reported.
    pub fn bound(&self) -> Bound {
        Bound { at_least: self.at_least, at_most: self.at_most }
    }

    /// The bound for people, with its unit: `≤ 40 ms`; empty without one.
    pub fn bound_words(&self) -> String {
        let is_ratio = !self.over.is_empty() || self.beside.is_some();
        let unit = self.value.first().filter(|_| !is_ratio).map_or("", |metric| unit(metric));
        format!("{} {unit}", self.bound()).trim().into()
    }

    /// How the figure is computed, for people: `flows/rival/goodput_mbps, over the same in cubic-cubic`.
    pub fn figure_words(&self) -> String {
        let mut words = self.value.join(" + ");
        if !self.over.is_empty() {
            words += &format!(" / ({})", self.over.join(" + "));
        }
        let beside = self.beside.iter().map(|beside| format!(", over the same in {beside}"));
        words + &beside.collect::<String>()
    }

    /// Whether `cell` must meet the bound.
    pub fn is_of(&self, cell: &str) -> bool {
        let is_named = |name: &String| {
            let rest = cell.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.cells.is_empty() || self.cells.iter().any(is_named)
    }

    /// The reference cell of `cell`: its first word is `self.beside`, and the rest, from the plan's grid, is the
    /// same.
    pub fn beside(&self, cell: &str) -> Option<String> {
        let beside = self.beside.as_ref()?;
        let rest = cell.split_once(' ').map(|(_, rest)| format!(" {rest}"));
        Some(beside.clone() + &rest.unwrap_or_default())
    }

    fn check(&self, plans: &BTreeMap<&str, Plan>) -> Result<()> {
        let names = || plans.keys().copied().collect::<Vec<_>>().join(", ");
        let plan = plans.get(self.plan.as_str());
        let plan =
            plan.with_context(|| format!("plan = {:?}: allowed is {}", self.plan, names()))?;
        let cells: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
        for name in &self.cells {
            let alone = Self { cells: vec![name.clone()], ..Self::default() };
            let is_known = cells.iter().any(|cell| alone.is_of(cell));
            ensure!(is_known, "cells: {name:?}: allowed is {}", cells.join(", "));
        }
        for beside in cells.iter().filter(|cell| self.is_of(cell)).filter_map(|it| self.beside(it))
        {
            let is_known = cells.contains(&beside.as_str());
            ensure!(is_known, "beside: {beside:?}: allowed is {}", cells.join(", "));
        }
        ensure!(!self.value.is_empty(), "value: allowed is at least one metric");
        for metric in self.value.iter().chain(&self.over) {
            let address = metric.parse::<Address>().ok();
            let is_known = address.is_some_and(|address| {
                describe(&address.quantity).is_some_and(|entry| entry.is_of(&address.part))
            });
            ensure!(is_known, "{metric}: allowed is a metric, see `forebay list metrics`");
        }
        Ok(())
    }
}

/// Reads criteria, and checks that the plans, cells and metrics of their tests exist.
pub(super) fn read(text: &str) -> Result<Vec<Criterion>> {
    let document: Document = toml::from_str(text).context("rfc9743.toml")?;
    let load = |name| anyhow::Ok((name, Plan::load(name, &[])?));
    let plans: BTreeMap<&str, Plan> = Suite::Rfc9743.plans().map(load).collect::<Result<_>>()?;
    for criterion in &document.criterion {
        let place = || format!("rfc9743.toml: section {}", criterion.section);
        criterion.check(&plans).with_context(place)?;
    }
    Ok(document.criterion)
}
