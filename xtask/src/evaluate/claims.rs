//! Claims about plans, and whether results bear them out.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::wanted::Wanted;

/// Arms that the metrics of the other arms are compared with, see `forebay list metrics`.
const BASELINES: [&str; 2] = ["status_quo", "in_network_fq"];

/// All claims, by plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The plans in the order in which they run.
    pub plan: Vec<PlanClaims>,
}

/// What one plan must show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanClaims {
    /// Name as `forebay run` takes it.
    pub name: String,
    /// The backend on which it runs, where not that of `forebay run`.
    pub backend: Option<String>,
    /// A backend on which it runs, too, for figures beside those of its own.
    pub beside: Option<String>,
    /// The claims.
    pub claim: Vec<Claim>,
}

/// A bound on a metric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// Arms that must meet it.
    pub arms: Vec<String>,
    /// Cells that must meet it; absent: all.
    #[serde(default)]
    pub cells: Vec<String>,
    /// Metrics, added up: `metric`, or `links/forward/metric` and likewise for `flows` and
    /// `bundles`, or `host/cpu_cores/program`.
    pub value: Vec<String>,
    /// Divide by the same value of this arm.
    pub over: Option<String>,
    /// Divide by these metrics of that arm, added up, instead.
    #[serde(default)]
    pub over_value: Vec<String>,
    /// The share of the distance between two other arms that is closed, instead.
    pub gap: Option<Gap>,
    /// Every run must meet it, not only the pooled seeds.
    #[serde(default)]
    pub each_run: bool,
    /// Only a figure, without a bound.
    #[serde(default)]
    pub report_only: bool,
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
    /// How far it may be from the same figure of the backend beside.
    pub within: Option<Within>,
    /// The arms must stand in the order in which they stand on the backend beside.
    pub same_order: Option<SameOrder>,
}

/// The distance from one arm to another, for a figure of which less is better: 0 is closed at the one, 1 at
/// the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Where it begins.
    pub from: String,
    /// Where it is closed.
    pub to: String,
    /// A smaller distance, as a share of the figure where it begins, is none: it counts as so much.
    pub least: f64,
}

/// A distance: whichever of these is more.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// As a share of the figure beside.
    #[serde(default)]
    pub share: f64,
    /// In its unit.
    #[serde(default)]
    pub least: f64,
}

/// An order of arms: no two that are apart on both backends may stand the other way round on one
/// of them. Two that are nearer to each other on either are tied, and the verdict says which.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameOrder {
    /// Arms whose figures differ by more are apart; as a share of the lesser figure.
    pub apart: f64,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bounds {
    at_least: Option<f64>,
    at_most: Option<f64>,
}

impl Bounds {
    fn hold(self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }

    fn words(self) -> String {
        let bounds = [(self.at_least, "≥"), (self.at_most, "≤")];
        let rounded = |bound: f64| (bound * 1e4).round() / 1e4;
        let words = bounds
            .iter()
            .filter_map(|(bound, sign)| Some(format!("{sign} {}", rounded((*bound)?))));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// What became of a claim at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The figure is within its bounds.
    Holds,
    /// It is not.
    Fails,
    /// There is no figure, or one of fewer valid runs than the plan has seeds.
    NotRun,
    /// There is one that says neither.
    Open,
    /// There is a figure, and nothing is claimed of it.
    Reported,
}

/// A claim, the place where it was looked up, and what was found there.
#[derive(Debug)]
pub struct Verdict {
    /// Plan.
    pub plan: String,
    /// The claim in words.
    pub text: String,
    /// Arm, cell and seed; of an order also the arms that are tied or turned round.
    pub place: String,
    /// The figure; `None`: the results lack it.
    pub value: Option<f64>,
    /// The bounds in words.
    pub bound: String,
    /// Valid runs behind the figure, and how many there should be.
    pub runs: (usize, usize),
    /// The commit of these runs.
    pub commit: String,
    /// Whether it holds.
    pub outcome: Outcome,
}

impl Claims {
    /// Reads and checks a file of claims.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let claims: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for (plan, claim) in claims.plan.iter().flat_map(PlanClaims::claims) {
            let what = || format!("{}: claim {:?}", path.display(), claim.text);
            claim.check(plan.beside.is_some()).with_context(what)?;
        }
        Ok(claims)
    }
}

impl PlanClaims {
    /// Each with its plan.
    fn claims(&self) -> impl Iterator<Item = (&Self, &Claim)> {
        self.claim.iter().map(move |claim| (self, claim))
    }

    /// Judges the document that `forebay run --json` printed (`Null`: none) against the runs that
    /// the plan asks for. `beside` is that of the backend of this name.
    pub fn judge(&self, document: &Value, beside: &Value, wanted: &Wanted) -> Vec<Verdict> {
        let results = Results { document, wanted };
        let beside = Results { document: beside, wanted };
        // The same plan may have claims on each backend.
        let name = match &self.backend {
            Some(backend) => format!("{} ({backend})", self.name),
            None => self.name.clone(),
        };
        self.claim.iter().flat_map(|claim| claim.judge(&name, &results, &beside)).collect()
    }
}

/// What is there, and what should be.
struct Results<'a> {
    document: &'a Value,
    wanted: &'a Wanted,
}

impl<'a> Results<'a> {
    /// The pooled seeds of an arm, or one valid run of it.
    fn row(&self, arm: &str, cell: &str, seed: Option<u64>) -> Option<&'a Value> {
        let list = if seed.is_some() { "runs" } else { "summary" };
        self.document[list].as_array()?.iter().find(|row| {
            let is_seed = seed.is_none_or(|seed| row["seed"] == seed && row["valid"] == true);
            row["arm"] == *arm && row["cell"] == *cell && is_seed
        })
    }

    fn valid_runs(&self, arm: &str, cell: &str) -> impl Iterator<Item = &'a Value> {
        let runs = self.document["runs"].as_array().into_iter().flatten();
        runs.filter(move |row| row["arm"] == *arm && row["cell"] == *cell && row["valid"] == true)
    }

    /// How many of the wanted seeds have a valid run.
    fn seeds_judged(&self, arm: &str, cell: &str) -> usize {
        let has_run = |seed: &&u64| self.valid_runs(arm, cell).any(|row| row["seed"] == **seed);
        self.wanted.seeds.iter().filter(has_run).count()
    }

    fn commit(&self, arms: &[&str], cell: &str) -> String {
        let runs = arms.iter().flat_map(|arm| self.valid_runs(arm, cell));
        let mut commits: Vec<&str> = runs.filter_map(|row| row["commit"].as_str()).collect();
        commits.sort_unstable();
        commits.dedup();
        commits.join(", ")
    }
}

/// Arm, cell and seed; without a seed all of them pooled.
type Place<'a> = (&'a str, &'a str, Option<u64>);

impl Claim {
    fn check(&self, has_beside: bool) -> Result<()> {
        let has_bound = self.at_least.is_some() || self.at_most.is_some();
        let is_beside = self.within.is_some() || self.same_order.is_some();
        let kinds = [has_bound, self.within.is_some(), self.same_order.is_some(), self.report_only];
        ensure!(
            kinds.iter().filter(|is_kind| **is_kind).count() == 1,
            "one of at_least and at_most, within, same_order, or report_only is needed"
        );
        ensure!(has_beside || !is_beside, "within and same_order need the plan's beside");
        ensure!(
            self.within.is_none_or(|within| within.share > 0.0 || within.least > 0.0),
            "within needs a share or a least"
        );
        ensure!(
            self.same_order.is_none() || self.arms.len() > 1,
            "same_order needs more than one arm"
        );
        ensure!(self.over.is_some() || self.over_value.is_empty(), "over_value needs over");
        ensure!(self.gap.is_none() || self.over.is_none(), "gap and over are one or the other");
        ensure!(self.gap.as_ref().is_none_or(|gap| gap.least > 0.0), "gap needs a least above 0");
        Ok(())
    }

    fn judge(&self, plan: &str, results: &Results<'_>, beside: &Results<'_>) -> Vec<Verdict> {
        let seeds: Vec<Option<u64>> = match self.each_run {
            true => results.wanted.seeds.iter().copied().map(Some).collect(),
            false => vec![None],
        };
        let is_meant = |cell: &&String| self.cells.is_empty() || self.cells.contains(cell);
        let cells = || results.wanted.cells.iter().filter(is_meant);
        let mut verdicts = Vec::new();
        if let Some(order) = self.same_order {
            for cell in cells() {
                let at = |seed: &Option<u64>| {
                    self.order(order, plan, results, beside, (cell.as_str(), *seed))
                };
                verdicts.extend(seeds.iter().map(at));
            }
            return verdicts;
        }
        for arm in &self.arms {
            for cell in cells() {
                let at = |seed: &Option<u64>| {
                    self.at(plan, results, beside, (arm.as_str(), cell.as_str(), *seed))
                };
                verdicts.extend(seeds.iter().map(at));
            }
        }
        verdicts
    }

    /// Judges one arm in one cell: one run of it, or all seeds pooled.
    fn at(
        &self,
        plan: &str,
        results: &Results<'_>,
        beside: &Results<'_>,
        (arm, cell, seed): Place<'_>,
    ) -> Verdict {
        let place = (arm, cell, seed);
        let (value, mut bounds) = (self.figure(results, place), Bounds::from(self));
        let mut judged = self.judged(results, place);
        if let Some(within) = self.within {
            // Runs beside without the figure are none to judge by.
            let other = self.figure(beside, place);
            judged = judged.min(other.map_or(0, |_| self.judged(beside, place)));
            bounds = other.map_or(bounds, |other| within.of(other));
        }
        let found = (value, bounds, judged);
        self.verdict(plan, results, (&[arm], cell, seed), found)
    }

    /// Judges the order of the arms in one cell. The figure is the number of pairs that are turned
    /// round.
    fn order(
        &self,
        order: SameOrder,
        plan: &str,
        results: &Results<'_>,
        beside: &Results<'_>,
        (cell, seed): (&str, Option<u64>),
    ) -> Verdict {
        let arms: Vec<&str> = self.arms.iter().map(String::as_str).collect();
        let figures = |results: &Results<'_>| -> Option<Vec<f64>> {
            arms.iter().map(|arm| self.figure(results, (arm, cell, seed))).collect()
        };
        let judged = |results: &Results<'_>| {
            arms.iter().map(|arm| self.judged(results, (arm, cell, seed))).min().unwrap_or(0)
        };
        let both = figures(results).zip(figures(beside));
        let pairs = both.as_ref().map(|(here, there)| order.pairs(&arms, here, there));
        let bounds = Bounds { at_most: Some(0.0), ..Bounds::default() };
        let value = pairs.as_ref().map(|pairs| pairs.turned.len() as f64);
        let found = (value, bounds, judged(results).min(judged(beside)));
        let mut verdict = self.verdict(plan, results, (&arms, cell, seed), found);
        verdict.place += &pairs.map(|pairs| pairs.words()).unwrap_or_default();
        verdict
    }

    fn verdict(
        &self,
        plan: &str,
        results: &Results<'_>,
        (arms, cell, seed): (&[&str], &str, Option<u64>),
        (value, bounds, judged): (Option<f64>, Bounds, usize),
    ) -> Verdict {
        let seed_words = seed.map(|seed| format!("seed {seed}")).unwrap_or_default();
        let words = [&arms.join(", "), cell, &seed_words];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let wanted = if seed.is_some() { 1 } else { results.wanted.seeds.len() };
        let runs = (judged, wanted);
        Verdict {
            plan: plan.into(),
            text: self.text.clone(),
            place: words.join(" "),
            value,
            bound: bounds.words(),
            runs,
            commit: results.commit(arms, cell),
            outcome: self.outcome(value, bounds, runs),
        }
    }

    fn figure(&self, results: &Results<'_>, (arm, cell, seed): Place<'_>) -> Option<f64> {
        if let Some(gap) = &self.gap {
            let value = |arm: &str| sum(results.row(arm, cell, seed)?, &self.value);
            return Some(gap.closed(value(&gap.from)?, value(&gap.to)?, value(arm)?));
        }
        let base = self.over.as_ref().and_then(|over| results.row(over, cell, seed));
        results.row(arm, cell, seed).and_then(|row| self.value_of(row, base))
    }

    /// Valid runs behind a figure.
    fn judged(&self, results: &Results<'_>, (arm, cell, seed): Place<'_>) -> usize {
        match seed {
            Some(_) => usize::from(results.row(arm, cell, seed).is_some()),
            None => self.seeds_pooled(results, arm, cell),
        }
    }

    /// Seeds behind a pooled figure; one that compares arms has no more than its baseline.
    fn seeds_pooled(&self, results: &Results<'_>, arm: &str, cell: &str) -> usize {
        let compared =
            BASELINES.iter().copied().filter(|base| results.row(base, cell, None).is_some());
        let ends = self.gap.iter().flat_map(|gap| [gap.from.as_str(), gap.to.as_str()]);
        let arms = compared.chain(self.over.as_deref()).chain(ends).chain([arm]);
        let seeds = arms.map(|arm| results.seeds_judged(arm, cell)).min().unwrap_or(0);
        // A pooled figure passes over the runs that have none; those between arms no run has.
        match results.valid_runs(arm, cell).filter(|run| sum(run, &self.value).is_some()).count() {
            0 => seeds,
            with_figure => seeds.min(with_figure),
        }
    }

    fn value_of(&self, row: &Value, base: Option<&Value>) -> Option<f64> {
        let value = sum(row, &self.value)?;
        if self.over.is_none() {
            return Some(value);
        }
        let paths = if self.over_value.is_empty() { &self.value } else { &self.over_value };
        let base = sum(base?, paths)?;
        (base != 0.0).then(|| value / base)
    }

    fn outcome(
        &self,
        value: Option<f64>,
        bounds: Bounds,
        (judged, wanted): (usize, usize),
    ) -> Outcome {
        let Some(value) = value.filter(|_| judged == wanted) else { return Outcome::NotRun };
        match (self.report_only, bounds.hold(value)) {
            (true, _) => Outcome::Reported,
            (false, true) => Outcome::Holds,
            (false, false) => Outcome::Fails,
        }
    }
}

impl From<&Claim> for Bounds {
    fn from(claim: &Claim) -> Self {
        Self { at_least: claim.at_least, at_most: claim.at_most }
    }
}

impl Gap {
    /// The share that `value` closes. Where there is next to no distance, what is missing of the end is still no
    /// more than a share of the least one.
    fn closed(&self, from: f64, to: f64, value: f64) -> f64 {
        let distance = (from - to).max(self.least * from.abs());
        1.0 - (value - to) / distance
    }
}

impl Within {
    /// The bounds around the figure beside.
    fn of(self, other: f64) -> Bounds {
        let distance = (self.share * other.abs()).max(self.least);
        Bounds { at_least: Some(other - distance), at_most: Some(other + distance) }
    }
}

impl SameOrder {
    /// How one figure stands to another; tied ones are equal.
    fn compare(self, one: f64, other: f64) -> Ordering {
        match (one - other).abs() > self.apart * one.abs().min(other.abs()) {
            true => one.total_cmp(&other),
            false => Ordering::Equal,
        }
    }

    /// Every two of `arms` by their figures on both backends.
    fn pairs(self, arms: &[&str], here: &[f64], there: &[f64]) -> Pairs {
        let mut pairs = Pairs::default();
        for second in 1..arms.len() {
            for first in 0..second {
                let [here, there] =
                    [here, there].map(|figures| self.compare(figures[first], figures[second]));
                let words = format!("{} and {}", arms[first], arms[second]);
                match (here, there) {
                    (Ordering::Equal, _) | (_, Ordering::Equal) => pairs.tied.push(words),
                    _ if here != there => pairs.turned.push(words),
                    _ => {}
                }
            }
        }
        pairs
    }
}

/// Two arms each that do not stand in the same order on both backends.
#[derive(Debug, Default)]
struct Pairs {
    /// Too near to each other to have an order.
    tied: Vec<String>,
    /// Apart, and the other way round.
    turned: Vec<String>,
}

impl Pairs {
    fn words(&self) -> String {
        let lists = [("turned round", &self.turned), ("tied", &self.tied)];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        lists.map(|(name, list)| format!("; {name}: {}", list.join(", "))).collect()
    }
}

fn sum(row: &Value, paths: &[String]) -> Option<f64> {
    paths.iter().map(|path| look_up(row, path)).sum()
}

/// `metric`, `links/forward/metric` or `host/cpu_cores/program`.
fn look_up(row: &Value, path: &str) -> Option<f64> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [metric] => row["metrics"][metric].as_f64(),
        ["host", group, name] => row["host"][group][name].as_f64(),
        [list, name, metric] => {
            let list = row[list].as_array()?;
            list.iter().find(|part| part["name"] == **name)?["metrics"][metric].as_f64()
        }
        _ => None,
    }
}
