//! Claims about plans, and whether results bear them out.

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
        self.claim.iter().flat_map(|claim| claim.judge(&self.name, &results, &beside)).collect()
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
        let arms = compared.chain(self.over.as_deref()).chain([arm]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const QUEUE: &str = "links/forward/queue_mean_packets";

    fn claim(json: Value) -> Claim {
        serde_json::from_value(json).unwrap()
    }

    fn wanted(seeds: &[u64], cells: &[&str]) -> Wanted {
        Wanted { seeds: seeds.to_vec(), cells: cells.iter().map(|cell| cell.to_string()).collect() }
    }

    fn row(arm: &str, cell: &str, queue: f64) -> Value {
        json!({ "arm": arm, "cell": cell, "metrics": { "goodput_mbps": 90.0 },
                "links": [{ "name": "forward", "metrics": { "queue_mean_packets": queue } }] })
    }

    fn run(arm: &str, cell: &str, seed: u64, valid: bool) -> Value {
        let mut run = row(arm, cell, 9.0);
        run["seed"] = json!(seed);
        run["valid"] = json!(valid);
        run["commit"] = json!("abc");
        run
    }

    fn document() -> Value {
        let runs = ["status_quo", "copa_sfq"].map(|arm| run(arm, "", 1, true));
        json!({ "runs": runs, "summary": [row("status_quo", "", 900.0), row("copa_sfq", "", 9.0)] })
    }

    fn judge(claim: &Claim, document: &Value, wanted: &Wanted) -> Vec<Verdict> {
        let none = Results { document: &Value::Null, wanted };
        claim.judge("p", &Results { document, wanted }, &none)
    }

    #[test]
    fn a_bound_is_judged_on_values_and_on_ratios() {
        let below =
            claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
        let verdict = &judge(&below, &document(), &wanted(&[1], &[""]))[0];
        assert_eq!((verdict.outcome, verdict.runs), (Outcome::Holds, (1, 1)));
        assert_eq!((verdict.commit.as_str(), verdict.place.as_str()), ("abc", "copa_sfq"));
        let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                                  "over": "status_quo", "at_least": 0.02 }));
        let verdict = &judge(&ratio, &document(), &wanted(&[1], &[""]))[0];
        assert_eq!((verdict.value, verdict.outcome), (Some(0.01), Outcome::Fails));
    }

    #[test]
    fn a_figure_may_be_judged_beside_the_same_of_another_backend() {
        let beside = |queue: f64, seeds: &[u64]| {
            let runs = seeds.iter().map(|seed| run("copa_sfq", "", *seed, true));
            json!({ "runs": runs.collect::<Vec<_>>(), "summary": [row("copa_sfq", "", queue)] })
        };
        let plan = |share: f64, least: f64| -> PlanClaims {
            let within = json!({ "share": share, "least": least });
            let claim =
                json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "within": within });
            serde_json::from_value(json!({ "name": "p", "beside": "sim", "claim": [claim] }))
                .unwrap()
        };
        let judge = |plan: &PlanClaims, beside: &Value| {
            plan.judge(&document(), beside, &wanted(&[1], &[""])).remove(0)
        };
        // 9 packets here.
        for (other, share, least, expected) in [
            (10.0, 0.15, 0.0, Outcome::Holds),
            (11.0, 0.15, 0.0, Outcome::Fails),
            (11.0, 0.15, 2.0, Outcome::Holds),
            (6.9, 0.15, 2.0, Outcome::Fails),
        ] {
            let verdict = judge(&plan(share, least), &beside(other, &[1]));
            assert_eq!((verdict.outcome, verdict.value), (expected, Some(9.0)), "{other}");
        }
        assert_eq!(judge(&plan(0.5, 2.0), &beside(10.0, &[1])).bound, "≥ 5, ≤ 15");
        let missing = judge(&plan(0.15, 2.0), &beside(9.0, &[]));
        assert_eq!((missing.outcome, missing.runs), (Outcome::NotRun, (0, 1)));
        assert_eq!(judge(&plan(0.15, 2.0), &Value::Null).outcome, Outcome::NotRun);
        let mut bare = beside(9.0, &[1]);
        bare["summary"][0]["links"] = json!([]);
        assert_eq!(judge(&plan(0.15, 2.0), &bare).outcome, Outcome::NotRun);
    }

    #[test]
    fn a_share_may_be_judged_by_an_absolute_distance_alone() {
        let within: Within = serde_json::from_value(json!({ "least": 0.08 })).unwrap();
        let bounds = within.of(0.7);
        assert!(bounds.hold(0.775) && !bounds.hold(0.785) && !bounds.hold(0.615), "{bounds:?}");
    }

    /// Three arms with these queues, each with a valid run of these seeds.
    fn queues(queues: [f64; 3], seeds: &[u64]) -> Value {
        let arms = ["status_quo", "copa_sfq", "copa_fifo"];
        let runs = arms.iter().flat_map(|arm| seeds.iter().map(|seed| run(arm, "", *seed, true)));
        let rows = arms.iter().zip(queues).map(|(arm, queue)| row(arm, "", queue));
        json!({ "runs": runs.collect::<Vec<_>>(), "summary": rows.collect::<Vec<_>>() })
    }

    fn order_of(arms: &[&str], value: &str) -> PlanClaims {
        let claim = json!({ "text": "t", "arms": arms, "value": [value],
                            "same_order": { "apart": 0.05 } });
        serde_json::from_value(json!({ "name": "p", "beside": "sim", "claim": [claim] })).unwrap()
    }

    #[test]
    fn arms_that_are_apart_on_both_backends_must_stand_in_the_same_order() {
        let plan = order_of(&["status_quo", "copa_sfq", "copa_fifo"], QUEUE);
        let arms = "status_quo, copa_sfq, copa_fifo";
        let here = queues([100.0, 50.0, 80.0], &[1]);
        for (there, turned, expected, words) in [
            ([90.0, 40.0, 60.0], 0.0, Outcome::Holds, ""),
            // Apart by 25 % here, by 4 % there, whichever of them is ahead.
            ([96.0, 40.0, 100.0], 0.0, Outcome::Holds, "; tied: status_quo and copa_fifo"),
            ([94.0, 40.0, 100.0], 1.0, Outcome::Fails, "; turned round: status_quo and copa_fifo"),
            (
                [40.0, 90.0, 91.0],
                2.0,
                Outcome::Fails,
                "; turned round: status_quo and copa_sfq, status_quo and copa_fifo; \
                 tied: copa_sfq and copa_fifo",
            ),
        ] {
            let [this, other] = [&here, &queues(there, &[1])];
            for (this, other) in [(this, other), (other, this)] {
                let verdicts = plan.judge(this, other, &wanted(&[1], &[""]));
                let [verdict] = verdicts.as_slice() else { panic!("{verdicts:?}") };
                assert_eq!((verdict.outcome, verdict.value), (expected, Some(turned)), "{there:?}");
                assert_eq!(verdict.place, format!("{arms}{words}"));
                assert_eq!((verdict.bound.as_str(), verdict.commit.as_str()), ("≤ 0", "abc"));
            }
        }
    }

    #[test]
    fn an_order_with_an_arm_a_figure_or_a_seed_missing_is_not_judged() {
        let arms = ["status_quo", "copa_sfq", "copa_fifo"];
        let all = queues([100.0, 50.0, 80.0], &[1, 2]);
        let not_run = |plan: &PlanClaims, here: &Value, there: &Value| {
            let verdict = plan.judge(here, there, &wanted(&[1, 2], &[""])).remove(0);
            assert_eq!(verdict.outcome, Outcome::NotRun, "{verdict:?}");
            (verdict.value, verdict.runs)
        };
        let plan = order_of(&arms, QUEUE);
        assert_eq!(plan.judge(&all, &all, &wanted(&[1, 2], &[""]))[0].outcome, Outcome::Holds);
        for (here, there) in [(&all, &Value::Null), (&Value::Null, &all)] {
            assert_eq!(not_run(&plan, here, there), (None, (0, 2)));
        }
        let one_seed = queues([100.0, 50.0, 80.0], &[1]);
        for (here, there) in [(&all, &one_seed), (&one_seed, &all)] {
            assert_eq!(not_run(&plan, here, there), (Some(0.0), (1, 2)));
        }
        let more = order_of(&["status_quo", "no_such_arm"], QUEUE);
        assert_eq!(not_run(&more, &all, &all), (None, (0, 2)));
        not_run(&order_of(&arms, "no_such_metric"), &all, &all);
    }

    #[test]
    fn a_claim_is_of_one_kind_that_its_plan_can_judge() {
        let check = |kind: Value, arms: &[&str], has_beside: bool| {
            let mut json = json!({ "text": "t", "arms": arms, "value": [QUEUE] });
            json.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
            claim(json).check(has_beside).is_ok()
        };
        let order = json!({ "same_order": { "apart": 0.05 } });
        let within = json!({ "within": { "least": 0.08 } });
        for kind in [&order, &within] {
            assert!(check(kind.clone(), &["copa_sfq", "copa_fifo"], true));
            assert!(!check(kind.clone(), &["copa_sfq", "copa_fifo"], false));
        }
        assert!(!check(order, &["copa_sfq"], true));
        assert!(check(json!({ "at_most": 1.0, "at_least": 0.0 }), &["copa_sfq"], false));
        for kind in [
            json!({}),
            json!({ "at_most": 1.0, "report_only": true }),
            json!({ "at_most": 1.0, "within": { "share": 0.1 } }),
            json!({ "same_order": { "apart": 0.05 }, "within": { "share": 0.1 } }),
            json!({ "within": {} }),
            json!({ "report_only": true, "over_value": [QUEUE] }),
        ] {
            assert!(!check(kind.clone(), &["copa_sfq", "copa_fifo"], true), "{kind}");
        }
    }

    #[test]
    fn a_run_without_the_figure_is_not_behind_the_pooled_one() {
        let below =
            claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
        let mut document = document();
        let mut bare = run("copa_sfq", "", 2, true);
        bare["links"] = json!([]);
        let baseline = run("status_quo", "", 2, true);
        document["runs"].as_array_mut().unwrap().extend([bare, baseline]);
        let verdict = &judge(&below, &document, &wanted(&[1, 2], &[""]))[0];
        assert_eq!((verdict.outcome, verdict.runs), (Outcome::NotRun, (1, 2)));
    }

    #[test]
    fn a_ratio_may_have_another_denominator_and_a_figure_no_bound() {
        let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "over": "status_quo",
                                  "value": [QUEUE, QUEUE], "over_value": [QUEUE],
                                  "report_only": true }));
        let verdict = &judge(&ratio, &document(), &wanted(&[1], &[""]))[0];
        assert_eq!((verdict.value, verdict.outcome), (Some(0.02), Outcome::Reported));
    }

    #[test]
    fn a_figure_that_is_not_there_holds_no_claim() {
        for (arm, value) in [("copa_sfq", "no_such_metric"), ("no_such_arm", "goodput_mbps")] {
            let claim = claim(json!({ "text": "t", "arms": [arm], "value": [value],
                                      "at_least": 0.0 }));
            for document in [document(), Value::Null] {
                let verdicts = judge(&claim, &document, &wanted(&[1], &[""]));
                assert_eq!(verdicts.len(), 1);
                assert_eq!(verdicts[0].outcome, Outcome::NotRun);
            }
        }
    }

    #[test]
    fn a_seed_without_a_valid_run_leaves_the_claim_open() {
        let mut document = document();
        let runs = document["runs"].as_array_mut().unwrap();
        runs.push(run("copa_sfq", "", 2, false));
        runs.push(run("status_quo", "", 2, true));
        let mut bound = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                                      "at_most": 15.0 }));
        let verdict = &judge(&bound, &document, &wanted(&[1, 2], &[""]))[0];
        assert_eq!((verdict.outcome, verdict.runs), (Outcome::NotRun, (1, 2)));
        bound.each_run = true;
        let verdicts = judge(&bound, &document, &wanted(&[1, 2], &[""]));
        let outcomes: Vec<Outcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
        assert_eq!(outcomes, [Outcome::Holds, Outcome::NotRun]);
    }

    #[test]
    fn a_baseline_with_a_seed_missing_leaves_the_claim_open() {
        let mut document = document();
        document["runs"].as_array_mut().unwrap().push(run("copa_sfq", "", 2, true));
        let bound =
            claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
        assert_eq!(judge(&bound, &document, &wanted(&[1, 2], &[""]))[0].runs, (1, 2));
    }

    #[test]
    fn a_cell_that_is_missing_is_seen() {
        let bound =
            claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
        let document = json!({ "runs": [run("copa_sfq", "rate=1", 1, true)],
                               "summary": [row("copa_sfq", "rate=1", 9.0)] });
        let verdicts = judge(&bound, &document, &wanted(&[1], &["rate=1", "rate=2"]));
        let outcomes: Vec<Outcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
        assert_eq!(outcomes, [Outcome::Holds, Outcome::NotRun]);
    }

    #[test]
    fn the_claims_of_the_repository_name_cells_that_their_plans_have() {
        let root = crate::repository();
        let claims = Claims::load(&root.join(super::super::CLAIMS)).unwrap();
        assert!(claims.plan.len() > 5);
        for plan in &claims.plan {
            let wanted = Wanted::of(&root, &plan.name).unwrap();
            for cell in plan.claim.iter().flat_map(|claim| &claim.cells) {
                assert!(wanted.cells.contains(cell), "{}: {cell}", plan.name);
            }
        }
    }
}
