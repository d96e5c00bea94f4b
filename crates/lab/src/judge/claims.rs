//! Claims about plans, and the studies that they make up: `docs/claims.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_core::text::{of_parser, position};
use serde::{Deserialize, Serialize};

use super::Bound;
use crate::backend;
use crate::plan::Seeds;

/// The back end whose figures claims may compare with [`BESIDE`]: `within` and `same_order` are claims about it.
const HERE: &str = "emu";
/// The back end that the claims `within` and `same_order` compare with.
pub const BESIDE: &str = "sim";

/// Chance widens a bound if it is more than this share of the margin. At the whole margin, one of two arms that do the
/// same would miss the bound; at a quarter, most bounds of requests would be wider.
const CHANCE_SHARE: f64 = 0.5;

/// The built-in claims.
const BUILTIN: &str = include_str!("../../../../docs/claims.toml");

/// All claims, by plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The studies, each with a folder of plans.
    #[serde(default)]
    pub study: Vec<StudyClaims>,
    /// The plans in the order in which they run.
    pub plan: Vec<PlanClaims>,
}

/// A question whose experiments are the plans in a folder, such as published work that they repeat.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyClaims {
    /// Name for `forebay reproduce`.
    pub name: String,
    /// Folder of the plans; absent: the name.
    folder: Option<String>,
    /// Heading of the report.
    pub title: String,
    /// The published work and its source, or the question.
    pub description: String,
}

/// The claims about one plan, and how it is run for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanClaims {
    /// Name as `forebay run` takes it.
    pub name: String,
    /// Publication with the experiment; absent: unpublished.
    pub paper: Option<String>,
    /// Run the plan with the settings of its `as_published`; the arms are algorithms under test.
    #[serde(default)]
    pub as_published: bool,
    /// Back ends on which the plan runs, each with the most seeds to run.
    pub seeds: BTreeMap<String, Seeds>,
    /// Seeds for back ends on which chance widened a bound: `forebay reproduce` then runs these.
    #[serde(default)]
    pub more_seeds: BTreeMap<String, Seeds>,
    /// A condition on the measurement itself; if it is not met, the claims are not shown.
    steady: Option<Steady>,
    /// The claims.
    pub claim: Vec<Claim>,
    /// Further settings to run the plan with; the same claims apply.
    #[serde(default)]
    variant: Vec<Variant>,
    /// The variant that these claims are about; `None`: the plan itself.
    #[serde(skip)]
    settings: Option<Variant>,
}

/// An arm that should differ from the baseline by chance alone, and the allowed figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Steady {
    /// Name of the arm.
    pub arm: String,
    /// Metrics of the arm, each judged by itself.
    pub value: Vec<String>,
    /// Upper bound of each metric.
    pub at_most: f64,
}

/// An arm whose figure shows how much chance adds to another arm's figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Noise {
    /// Name of the arm.
    pub arm: String,
    /// The upper bound is at least this multiple of the arm's figure.
    pub times: f64,
}

/// A plan with other settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    /// Appended to the back end in the name of the part: `bundler/main@emu+kernel`.
    name: String,
    /// Settings as `forebay run --set` takes them.
    set: Vec<String>,
    /// Back ends of the plan that run this variant, each with the most seeds to run.
    seeds: BTreeMap<String, Seeds>,
    /// The arms that run so; absent: all.
    arms: Option<BTreeSet<String>>,
}

/// A bound on a metric.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// The back end on which alone it is claimed; absent: on all of the plan's.
    pub backend: Option<String>,
    /// Arms that must meet the bound.
    pub arms: Vec<String>,
    /// Cells that must meet the bound; absent: all.
    #[serde(default)]
    pub cells: Vec<String>,
    /// Metrics to add up: `metric`, or `links/forward/metric` (the same for `flows` and `bundles`), or
    /// `host/cpu_cores/program`.
    pub value: Vec<String>,
    /// Divide by the same value of this arm in the run of the same seed.
    pub over: Option<String>,
    /// Divide by the sum of these metrics of `over` instead.
    #[serde(default)]
    pub over_value: Vec<String>,
    /// Judge the share of the distance between two other arms that is closed, instead.
    pub gap: Option<Gap>,
    /// Every run must meet it by itself, not only the median of the seeds.
    #[serde(default)]
    pub each_run: bool,
    /// Judge the figure of all runs together, such as a percentile over the requests of all seeds. The median
    /// of the seeds is then not used.
    #[serde(default)]
    pub pooled: bool,
    /// An arm that differs from `over` by chance alone. If the two differ by more than half of the margin
    /// between a bound and 1, the bound moves away from 1 by their difference.
    pub chance: Option<String>,
    /// Fewest values by which it is judged; absent: one of every seed.
    pub(super) least: Option<usize>,
    /// The whole interval must meet the bound, and not only the median.
    #[serde(default)]
    pub(super) whole: bool,
    /// If it is not met, no other claim about the same cell is shown.
    #[serde(default)]
    pub(super) control: bool,
    /// The `baseline` of the plan, where metrics of `value` compare arms with it.
    pub baseline: Option<String>,
    /// An arm that differs from `baseline` by chance alone. Its figure may raise the upper bound.
    pub(super) noise: Option<Noise>,
    /// As the plan has it.
    #[serde(skip)]
    pub(super) steady: Option<Steady>,
    /// Only a figure, without a bound.
    #[serde(default)]
    pub report_only: bool,
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
    /// Allowed distance from the one value in `published`, instead of a bound.
    pub near: Option<Within>,
    /// Allowed distance on the testbed from the simulator's figure of the same seed.
    pub within: Option<Within>,
    /// On the testbed, the arms must be in the same order as in the simulator.
    pub same_order: Option<SameOrder>,
    /// Published values of the figure.
    #[serde(default)]
    pub published: Vec<Published>,
}

impl StudyClaims {
    /// Folder of the plans.
    pub fn folder(&self) -> &str {
        self.folder.as_ref().unwrap_or(&self.name)
    }
}

/// A figure from other work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Arm of the figure; absent: all arms of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Cell of the figure; absent: all cells of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The figure, in the claim's unit.
    pub value: f64,
    /// Where the figure is published, and how it was obtained.
    pub source: String,
}

/// The distance from one arm to another, for a figure where less is better. A value at `from` closes 0 of the
/// distance, one at `to` closes 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Arm at which 0 is closed.
    pub from: String,
    /// Arm at which all is closed.
    pub to: String,
    /// Floor of the distance, as a share of the figure of `from`.
    pub least: f64,
}

/// An allowed distance: the larger of these two.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// Share of the other back end's figure, or of the published one.
    #[serde(default)]
    pub share: f64,
    /// Distance in the unit of the figure.
    #[serde(default)]
    pub least: f64,
}

/// An order of arms. Two arms that are apart on both back ends must have the same order on both. Arms nearer
/// to each other than that on either back end are tied; the verdict names them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameOrder {
    /// Arms whose figures differ by more are apart; as a share of the lesser figure.
    pub apart: f64,
}

impl Claims {
    /// Reads and checks a file of claims.
    pub fn load(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| file.clone())?;
        Self::read(&text, &file)
    }

    /// The claims of the repository that the program was built from.
    pub fn builtin() -> Self {
        Self::read(BUILTIN, "docs/claims.toml").expect("a test reads them")
    }

    /// Checks the text of a file of claims, which errors name.
    pub fn read(text: &str, file: &str) -> Result<Self> {
        // The error's own text would show the line.
        let mut claims: Self = toml::from_str(text).map_err(|error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            anyhow::anyhow!("{file}:{line}:{column}: {}", of_parser(error.message()))
        })?;
        for plan in &mut claims.plan {
            plan.check().with_context(|| format!("{file}: {}", plan.name))?;
            for claim in &mut plan.claim {
                claim.settle_near();
                claim.steady.clone_from(&plan.steady);
            }
        }
        Ok(claims)
    }
}

impl PlanClaims {
    fn check(&self) -> Result<()> {
        for name in self.seeds.keys() {
            let allowed = backend::NAMES;
            ensure!(allowed.contains(&&**name), "seeds.{name}: allowed is {}", allowed.join(", "));
        }
        for name in self.more_seeds.keys() {
            ensure!(
                self.seeds.contains_key(name),
                "more_seeds.{name}: the plan does not have these seeds"
            );
        }
        let has_both = self.seeds.contains_key(HERE) && self.seeds.contains_key(BESIDE);
        for claim in &self.claim {
            let of_plan = |backend: &String| self.seeds.contains_key(backend);
            let allowed = || self.seeds.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            ensure!(
                claim.backend.as_ref().is_none_or(of_plan),
                "claim {:?}: backend = {:?}: allowed is {}",
                claim.text,
                claim.backend.as_deref().unwrap_or_default(),
                allowed()
            );
            claim.check(has_both).with_context(|| format!("claim {:?}", claim.text))?;
        }
        let arms: BTreeSet<&String> = self.claim.iter().flat_map(|claim| &claim.arms).collect();
        for Variant { name, seeds, arms: ours, .. } in &self.variant {
            for backend in seeds.keys() {
                ensure!(
                    self.seeds.contains_key(backend),
                    "variant {name:?}: seeds.{backend}: the plan does not have these seeds"
                );
            }
            for arm in ours.iter().flatten() {
                ensure!(arms.contains(arm), "variant {name:?}: arms: no claim is about {arm:?}");
            }
        }
        Ok(())
    }

    /// The name of the plan on a back end, `bundler/main@sim`, or without one.
    pub fn part(&self, backend: &str) -> String {
        match &self.settings {
            Some(Variant { name, .. }) => format!("{}@{backend}+{name}", self.name),
            None if backend.is_empty() => self.name.clone(),
            None => format!("{}@{backend}", self.name),
        }
    }

    /// The claims about the plan as it is run again.
    pub fn variants(&self) -> impl Iterator<Item = Self> {
        self.variant.iter().map(|variant| {
            let claims = match &variant.arms {
                Some(arms) => self.clone().of_arms(&arms.iter().map(String::as_str).collect()),
                None => self.clone(),
            };
            let is_of = |claim: &Claim| {
                let backend = claim.backend.as_ref();
                !claim.is_beside() && backend.is_none_or(|it| variant.seeds.contains_key(it))
            };
            Self {
                seeds: variant.seeds.clone(),
                claim: claims.claim.iter().filter(|claim| is_of(claim)).cloned().collect(),
                variant: Vec::new(),
                settings: Some(variant.clone()),
                ..claims
            }
        })
    }

    /// Settings of the variant as `forebay run --set` takes them; empty for the plan itself.
    pub fn settings(&self) -> &[String] {
        self.settings.as_ref().map_or(&[], |variant| &variant.set)
    }

    /// The claims to judge on `backend`. Without a `backend` of its own, a claim between two back ends is
    /// judged on `HERE`, any other on each.
    pub(super) fn of(&self, backend: &str) -> impl Iterator<Item = &Claim> {
        self.claim.iter().filter(move |claim| match &claim.backend {
            Some(only) => only == backend,
            None => !claim.is_beside() || backend == HERE,
        })
    }
}

impl Claim {
    fn check(&self, has_both: bool) -> Result<()> {
        let has_bound = self.at_least.is_some() || self.at_most.is_some();
        let is_beside = self.within.is_some() || self.same_order.is_some();
        let kinds = [
            has_bound,
            self.near.is_some(),
            self.within.is_some(),
            self.same_order.is_some(),
            self.report_only,
        ];
        ensure!(
            kinds.iter().filter(|is_kind| **is_kind).count() == 1,
            "the claim needs one of at_least, at_most, near, within, same_order and report_only"
        );
        ensure!(
            self.near.is_none() || self.published.len() == 1,
            "near needs exactly one published number"
        );
        ensure!(has_both || !is_beside, "within and same_order need seeds for both emu and sim");
        let is_distance = |it: Within| it.share > 0.0 || it.least > 0.0;
        ensure!(
            [self.near, self.within].into_iter().flatten().all(is_distance),
            "near and within need share or least"
        );
        ensure!(
            self.same_order.is_none() || self.arms.len() > 1,
            "same_order needs more than one arm"
        );
        ensure!(self.over.is_some() || self.over_value.is_empty(), "over_value needs over");
        ensure!(!(self.pooled && self.each_run), "pooled and each_run exclude each other");
        ensure!(!(self.pooled && is_beside), "pooled cannot be used with within or same_order");
        let has_plain_ratio = self.over.is_some() && self.over_value.is_empty() && has_bound;
        ensure!(
            self.chance.is_none() || has_plain_ratio,
            "chance needs over and at_least or at_most"
        );
        ensure!(self.least != Some(0), "least needs at least 1");
        let has_noise = self.baseline.is_some() && self.at_most.is_some();
        ensure!(self.noise.is_none() || has_noise, "noise needs baseline and at_most");
        ensure!(self.gap.is_none() || self.over.is_none(), "gap and over exclude each other");
        ensure!(self.gap.as_ref().is_none_or(|gap| gap.least > 0.0), "gap needs least above 0");
        for Published { arm, cell, .. } in &self.published {
            let is_judged = arm.as_ref().is_none_or(|arm| self.arms.contains(arm));
            ensure!(is_judged, "published.arm = {arm:?}: allowed is an arm of the claim");
            let is_judged =
                cell.as_ref().is_none_or(|it| self.cells.is_empty() || self.cells.contains(it));
            ensure!(is_judged, "published.cell = {cell:?}: allowed is a cell of the claim");
        }
        Ok(())
    }

    /// Turns `near` into bounds around the published value.
    fn settle_near(&mut self) {
        if let (Some(near), [published]) = (self.near, &self.published[..]) {
            let distance = near.allowed(published.value);
            self.at_least = Some(published.value - distance);
            self.at_most = Some(published.value + distance);
        }
    }

    /// The published value for `arms` in `cell`.
    pub(super) fn published(&self, arms: &[&str], cell: &str) -> Option<Published> {
        let is_its = |it: &&Published| {
            it.arm.as_deref().is_none_or(|arm| arms == [arm])
                && it.cell.as_deref().is_none_or(|of| of == cell)
        };
        self.published.iter().find(is_its).cloned()
    }

    /// Whether the claim compares two back ends.
    pub(super) fn is_beside(&self) -> bool {
        self.within.is_some() || self.same_order.is_some()
    }

    /// Bound on the figure. Between two back ends the figure is [`Within::distance`], at most 1, or the
    /// number of pairs of arms in another order ([`SameOrder`]), at most 0.
    pub(super) fn bound(&self) -> Bound {
        match (self.within, self.same_order) {
            (Some(_), _) => Bound::within(1.0),
            (_, Some(_)) => Bound::at_most(0.0),
            _ => Bound { at_least: self.at_least, at_most: self.at_most },
        }
    }

    /// The bound of a ratio where two arms that do the same differ by the ratio `chance`, or have the figure `noise`.
    pub(super) fn widened(&self, chance: Option<f64>, noise: Option<f64>) -> Bound {
        let mut bound = self.bound();
        if let Some((Noise { times, .. }, found)) = self.noise.as_ref().zip(noise) {
            bound.at_most = bound.at_most.map(|most| most.max(times * found));
        }
        let Some(difference) = chance.map(|ratio| (ratio - 1.0).abs()) else { return bound };
        let widened = |end: f64| match difference > (end - 1.0).abs() * CHANCE_SHARE {
            true => end + if end < 1.0 { -difference } else { difference },
            false => end,
        };
        Bound { at_least: bound.at_least.map(widened), at_most: bound.at_most.map(widened) }
    }

    /// Text of `bound`, the one to judge by; it also names the claim's own bound if that differs.
    pub(super) fn bound_words(&self, bound: Bound) -> String {
        if bound != self.bound() {
            return format!("{bound} (chance; else {})", self.bound());
        }
        let Some(Within { share, least }) = self.within else { return self.bound().to_string() };
        let allowed = match (share > 0.0, least > 0.0) {
            (true, true) => format!("{} % or {least}", 100.0 * share),
            (true, false) => format!("{} %", 100.0 * share),
            _ => format!("{least}"),
        };
        format!("{} times {allowed}", self.bound())
    }
}

impl Gap {
    /// Share of the distance that `value` closes. The floor `least` keeps the share small if `from` and `to`
    /// hardly differ.
    pub(super) fn closed(&self, from: f64, to: f64, value: f64) -> f64 {
        let distance = (from - to).max(self.least * from.abs());
        1.0 - (value - to) / distance
    }
}

impl Within {
    /// Allowed distance from `there`, in its unit.
    fn allowed(self, there: f64) -> f64 {
        (self.share * there.abs()).max(self.least)
    }

    /// Distance of `here` from `there`, as a share of the allowed distance.
    pub(super) fn distance(self, here: f64, there: f64) -> f64 {
        let distance = here - there;
        if distance == 0.0 { 0.0 } else { distance / self.allowed(there) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::{Address, describe};
    use crate::plan::Plan;
    use crate::plan::references::References;

    #[test]
    fn parse_error_does_not_show_a_key() {
        let key = "0123456789abcdef".repeat(4);
        for text in [format!("{key}\n"), format!("plan = \"{key}\"\n"), format!("[{key}]\n")] {
            let error = format!("{:#}", Claims::read(&text, "c.toml").unwrap_err());
            assert!(error.starts_with("c.toml:1:"), "{error}");
            assert!(!error.contains(&key[..16]), "{error}");
        }
    }

    #[test]
    fn claim_has_one_kind_that_plan_can_judge() {
        let check = |kind: Value, arms: &[&str], has_both: bool| {
            let mut json = json!({ "text": "t", "arms": arms, "value": ["goodput_mbps"] });
            json.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
            serde_json::from_value::<Claim>(json).unwrap().check(has_both).is_ok()
        };
        let order = json!({ "same_order": { "apart": 0.05 } });
        let within = json!({ "within": { "least": 0.08 } });
        for kind in [&order, &within] {
            assert!(check(kind.clone(), &["copa_sfq", "copa_fifo"], true));
            assert!(!check(kind.clone(), &["copa_sfq", "copa_fifo"], false));
        }
        assert!(!check(order, &["copa_sfq"], true));
        let near =
            json!({ "near": { "share": 0.1 }, "published": [{ "value": 2.0, "source": "s" }] });
        assert!(check(near, &["copa_sfq"], false));
        assert!(check(json!({ "at_most": 1.0, "at_least": 0.0 }), &["copa_sfq"], false));
        for kind in [
            json!({}),
            json!({ "at_most": 1.0, "report_only": true }),
            json!({ "at_most": 1.0, "within": { "share": 0.1 } }),
            json!({ "same_order": { "apart": 0.05 }, "within": { "share": 0.1 } }),
            json!({ "near": { "share": 0.1 } }),
            json!({ "within": {} }),
            json!({ "report_only": true, "over_value": ["goodput_mbps"] }),
        ] {
            assert!(!check(kind.clone(), &["copa_sfq", "copa_fifo"], true), "{kind}");
        }
    }

    #[test]
    fn unknown_back_ends_are_refused() {
        let check = |seeds: Value, backend: Value| {
            let claim = json!({ "text": "t", "arms": ["copa_sfq"], "value": ["goodput_mbps"],
                                "backend": backend, "report_only": true });
            let plan = json!({ "name": "p", "seeds": seeds, "claim": [claim] });
            let checked = serde_json::from_value::<PlanClaims>(plan).map(|plan| plan.check());
            checked.map_or_else(|error| error.to_string(), |checked| format!("{checked:?}"))
        };
        let both = json!({ "emu": "1", "sim": "1..10" });
        assert_eq!(check(both.clone(), json!(null)), "Ok(())");
        assert_eq!(check(both.clone(), json!("emu")), "Ok(())");
        let refused = [
            (check(json!({ "ns3": "1" }), json!(null)), "seeds.ns3: allowed is sim, emu"),
            (check(json!({ "sim": "1" }), json!("emu")), "backend = \"emu\": allowed is sim"),
            (check(json!({ "sim": "3..1" }), json!(null)), "is no range"),
        ];
        for (error, reason) in refused {
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn variant_has_its_settings_and_its_arms_claims() {
        let claim = |arms: &[&str], bound: Value| {
            let mut claim = json!({ "text": "t", "arms": arms, "value": ["goodput_mbps"] });
            claim.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
            claim
        };
        let read = |variant: Value| {
            let plan = json!({
                "name": "bundler/queue_shift",
                "seeds": { "emu": "1..3", "sim": "1" },
                "claim": [
                    claim(&["copa_sfq"], json!({ "at_least": 48.0, "over": "status_quo" })),
                    claim(&["copa_sfq", "setpoint_sfq"], json!({ "at_least": 48.0 })),
                    claim(&["copa_sfq"], json!({ "within": { "share": 0.1 } })),
                    claim(&["copa_sfq"], json!({ "backend": "sim", "report_only": true })),
                ],
                "variant": [variant],
            });
            let plan: PlanClaims = serde_json::from_value(plan).unwrap();
            plan.check().map(|()| plan.variants().next().unwrap())
        };
        let set = json!(["bundle.a.datapath=kernel"]);
        let all = read(json!({ "name": "kernel", "set": set, "seeds": { "emu": "1" } })).unwrap();
        assert_eq!(all.part("emu"), "bundler/queue_shift@emu+kernel");
        assert_eq!((all.claim.len(), all.seeds.len(), all.seeds["emu"].last), (2, 1, 1));
        let plan = all.plan("emu").unwrap();
        assert!(plan.arms.iter().map(|arm| &*arm.name).eq([
            "status_quo",
            "copa_sfq",
            "setpoint_sfq"
        ]));
        let own = PlanClaims { settings: None, ..all.clone() }.plan("emu").unwrap();
        let experiment = |plan: &crate::plan::Plan| {
            format!("{:?}", plan.experiment(&plan.arms[1], &plan.cells[0], 1).unwrap())
        };
        assert_ne!(experiment(&plan), experiment(&own));
        let some = json!({ "name": "kernel", "set": set, "seeds": { "emu": "1" }, "arms": ["setpoint_sfq"] });
        let some = read(some).unwrap();
        assert!(some.claim.len() == 1 && some.claim[0].arms == ["setpoint_sfq"], "{some:?}");
        for (variant, reason) in [
            (json!({ "name": "k", "set": [], "seeds": { "ns3": "1" } }), "seeds.ns3"),
            (json!({ "name": "k", "set": [], "seeds": {}, "arms": ["bbr"] }), "about \"bbr\""),
        ] {
            let error = read(variant).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn distance_is_share_of_tolerance() {
        let within = |share, least| Within { share, least };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        near(within(0.15, 0.0).distance(9.0, 10.0), -1.0 / 1.5);
        near(within(0.15, 2.0).distance(9.0, 11.0), -1.0);
        near(within(0.0, 0.08).distance(0.775, 0.7), 0.9375);
        near(within(0.1, 0.0).distance(0.0, 0.0), 0.0);
        assert_eq!(within(0.1, 0.0).distance(1.0, 0.0), f64::INFINITY);
    }

    #[test]
    fn near_claim_is_bound_around_published_number() {
        let bound = |value: f64, near: Value| {
            let json = json!({ "text": "t", "arms": ["newreno"], "value": ["goodput_mbps"],
                               "near": near, "published": [{ "value": value, "source": "s" }] });
            let mut claim: Claim = serde_json::from_value(json).unwrap();
            claim.settle_near();
            claim.bound().to_string()
        };
        assert_eq!(bound(27.72, json!({ "share": 0.02 })), "≥ 27.1656, ≤ 28.2744");
        assert_eq!(bound(-0.05, json!({ "least": 0.003 })), "≥ -0.053, ≤ -0.047");
    }

    #[test]
    fn repository_claims_name_existing_parts() {
        let claims = Claims::builtin();
        assert!(claims.plan.len() > 5);
        for study in &claims.study {
            let folder = format!("{}/", study.folder());
            assert!(claims.plan.iter().any(|plan| plan.name.starts_with(&folder)), "{folder}");
        }
        for claims in &claims.plan {
            let plan = match claims.as_published {
                true => claims.plan(BESIDE).unwrap(),
                false => Plan::load(&claims.name, &[]).unwrap(),
            };
            let names_baseline = plan.references != References::default();
            let has_arm = |name: &String| plan.arms.iter().any(|arm| arm.name == *name);
            let has_cell = |name: &String| plan.cells.iter().any(|cell| cell.name == *name);
            for claim in &claims.claim {
                let gap = claim.gap.iter().flat_map(|gap| [&gap.from, &gap.to]);
                let noise = claim.noise.iter().map(|it| &it.arm);
                let noise = noise.chain(claim.steady.iter().map(|it| &it.arm));
                let arms = claim.arms.iter().chain(&claim.over).chain(&claim.chance).chain(gap);
                assert!(arms.chain(noise).all(has_arm), "{}: {}", claims.name, claim.text);
                // `baselines` knows the baselines of plans that name none.
                let baseline = claim.baseline.as_deref();
                let expected = names_baseline.then(|| plan.references.baseline());
                assert_eq!(baseline, expected, "{}: {}", claims.name, claim.text);
                let published = claim.published.iter().filter_map(|it| it.cell.as_ref());
                let mut cells = claim.cells.iter().chain(published);
                assert!(cells.all(has_cell), "{}: {}", claims.name, claim.text);
                for value in claim.value.iter().chain(&claim.over_value) {
                    let is_of_host = value.starts_with("host/");
                    let address = value.parse::<Address>();
                    let is_known = address.is_ok_and(|it| describe(&it.quantity).is_some());
                    assert!(is_of_host || is_known, "{}: {value}", claims.name);
                }
            }
        }
    }
}
