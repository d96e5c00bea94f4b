//! Whether results support the claims: one rule for plans, platforms and the demo.
//!
//! ```text
//! runs ──► a figure of each seed, arms paired by it ──► median, 95 % interval ──► Verdict
//! ```
//! A bound on a figure that varies is met if the median meets it. It fails if the whole interval lies
//! outside; otherwise the claim is open. If a sendbox or receivebox died in a run, the run misses every
//! bound. A run that the harness disturbed gives no value. Missing runs, or too few runs, leave a claim not
//! shown.

pub mod claims;
mod figures;
mod interval;
pub mod permutation;
mod results;
pub mod table;

use serde::{Deserialize, Serialize};

pub use claims::BESIDE;
pub use claims::{Claims, PlanClaims, Published, StudyClaims};
pub use interval::{INTERVAL_WORDS, Interval, VALUES_MIN};
pub use results::ClaimResults;

/// Seed of the intervals if the caller names none.
pub const SEED: u64 = 1;

/// The allowed range of a figure; without either end nothing is claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Lower end.
    pub at_least: Option<f64>,
    /// Upper end.
    pub at_most: Option<f64>,
}

impl Bound {
    /// A lower end alone.
    pub const fn at_least(least: f64) -> Self {
        Self { at_least: Some(least), at_most: None }
    }

    /// An upper end alone.
    pub const fn at_most(most: f64) -> Self {
        Self { at_least: None, at_most: Some(most) }
    }

    /// Both ends, at equal distance from 0.
    pub const fn within(distance: f64) -> Self {
        Self { at_least: Some(-distance), at_most: Some(distance) }
    }

    /// Whether `value` lies within the bound; NaN does not.
    pub fn holds(self, value: f64) -> bool {
        !value.is_nan() && !self.is_too_small(value) && !self.is_too_large(value)
    }

    /// Whether all of `interval` lies on one side of the bound: more values would hardly change the verdict.
    pub fn is_settled(self, interval: Interval) -> bool {
        self.excludes(interval) || (self.holds(interval.low) && self.holds(interval.high))
    }

    /// Whether all of `interval` lies outside.
    pub fn excludes(self, interval: Interval) -> bool {
        self.is_too_small(interval.high) || self.is_too_large(interval.low)
    }

    /// The figure of a run in which a box died: infinitely far outside.
    pub fn missed(self) -> f64 {
        if self.at_most.is_some() { f64::INFINITY } else { f64::NEG_INFINITY }
    }

    /// Judges `values`; with fewer than `least` values the claim is not shown.
    pub fn judge(self, values: &[f64], least: usize, seed: u64) -> (Option<Interval>, Verdict) {
        let interval = Interval::of(values, seed);
        let verdict = match interval {
            _ if values.len() < least => Verdict::NotShown(Why::TooFew),
            None => Verdict::NotShown(Why::NotRun),
            Some(_) if self == Self::default() => Verdict::Reported,
            Some(interval) if self.holds(interval.median) => Verdict::Met,
            Some(interval) if self.excludes(interval) => Verdict::Failed,
            Some(_) => Verdict::Open,
        };
        (interval, verdict)
    }

    fn is_too_small(self, value: f64) -> bool {
        self.at_least.is_some_and(|least| value < least)
    }

    fn is_too_large(self, value: f64) -> bool {
        self.at_most.is_some_and(|most| value > most)
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = |end: f64| (end * 1e4).round() / 1e4;
        let ends = [(self.at_least, "≥"), (self.at_most, "≤")];
        let ends = ends.iter().filter_map(|(end, sign)| Some((sign, (*end)?)));
        for (place, (sign, end)) in ends.enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{sign} {}", rounded(end))?;
        }
        Ok(())
    }
}

/// Result of judging a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The median meets the bound.
    Met,
    /// The 95 % interval lies wholly outside.
    Failed,
    /// Neither is shown.
    Open,
    /// No figure to judge by.
    NotShown(Why),
    /// A figure without a claim about it.
    Reported,
}

/// Why a claim is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A run is missing, was rejected, or has no such figure.
    NotRun,
    /// There are fewer values than an interval needs.
    TooFew,
    /// The measurement cannot decide the claim.
    Void,
    /// The reference differs too much from itself.
    Unsteady,
}

impl Verdict {
    /// Whether the claim is met, or nothing is claimed.
    pub const fn is_fine(self) -> bool {
        matches!(self, Self::Met | Self::Reported)
    }

    /// In a word or two.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Failed => "failed",
            Self::Open => "open",
            Self::NotShown(Why::NotRun) => "not shown: not run",
            Self::NotShown(Why::TooFew) => "not shown: too few",
            Self::NotShown(Why::Void) => "not shown: void",
            Self::NotShown(Why::Unsteady) => "not shown: unsteady",
            Self::Reported => "reported",
        }
    }
}

/// A claim at one place, with the figure and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The plan or part of the claim.
    pub of: String,
    /// The claim in words, with its unit.
    pub claim: String,
    /// Where: arm, cell and seed, or platform and setting.
    pub place: String,
    /// The bound in words; empty: none.
    pub bound: String,
    /// The figure; the median if there are several values.
    pub figure: Option<f64>,
    /// Interval of the median, if there are several values.
    pub interval: Option<Interval>,
    /// Number of values and runs that the figure rests on.
    pub behind: Behind,
    /// Verdict by the current rule.
    pub verdict: Verdict,
    /// Verdict by the previous rule, if it differs.
    pub before: Option<String>,
    /// Commits of the runs.
    pub commit: String,
    /// The published value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The ratio of two arms that differ by chance alone, where it widened the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
}

impl Judged {
    /// Judges one figure: of the worst run, or of all together.
    pub fn by_one(self, bound: Bound, figure: Option<f64>) -> Self {
        let values: Vec<f64> = figure.into_iter().collect();
        let (_, verdict) = bound.judge(&values, 0, SEED);
        Self { bound: bound.to_string(), figure, verdict, ..self }
    }

    /// Judges several values; with fewer than `least` the claim is not shown.
    pub fn by_values(self, bound: Bound, values: &[f64], least: usize, seed: u64) -> Self {
        let (interval, verdict) = bound.judge(values, least, seed);
        let figure = interval.map(|interval| interval.median);
        Self { bound: bound.to_string(), figure, interval, verdict, ..self }
    }

    /// Adds the verdict on the figure of all values together, by the previous rule.
    pub fn beside_pooled(self, bound: Bound, pooled: Option<f64>) -> Self {
        let verdict = Judged::default().by_one(bound, pooled).verdict;
        let is_otherwise = !matches!(self.verdict, Verdict::NotShown(_)) && verdict != self.verdict;
        let figure = pooled.map_or_else(|| "missing".into(), table::cell);
        let words = format!("pooled {figure} {}", verdict.words());
        Self { before: is_otherwise.then_some(words), ..self }
    }

    /// Adds the verdict by the previous rule, where the whole interval had to meet the bound.
    pub fn beside_whole(self, bound: Bound) -> Self {
        let is_settled = self.interval.is_some_and(|interval| bound.is_settled(interval));
        let is_otherwise = self.verdict == Verdict::Met && !is_settled;
        Self { before: is_otherwise.then(|| Verdict::Open.words().into()), ..self }
    }

    /// One sentence on why the claim failed or is not known; `None` if it is fine.
    pub fn complaint(&self) -> Option<String> {
        let Self { of, claim, place, bound, behind, verdict, .. } = self;
        let word = match verdict {
            Verdict::Met | Verdict::Reported => return None,
            Verdict::Failed => "FAILED".to_string(),
            other => other.words().to_uppercase(),
        };
        let figure = table::figure(self);
        Some(format!("{word}: {of}, {place}: {claim} {bound}: {figure} (of {behind})"))
    }
}

impl Default for Judged {
    /// A claim that was not run.
    fn default() -> Self {
        Self {
            of: String::new(),
            claim: String::new(),
            place: String::new(),
            bound: String::new(),
            figure: None,
            interval: None,
            behind: Behind::default(),
            verdict: Verdict::NotShown(Why::NotRun),
            before: None,
            commit: String::new(),
            published: None,
            chance: None,
        }
    }
}

/// The values and runs that a figure rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// Values that count: runs, pairs or blocks.
    pub values: usize,
    /// Least number of values.
    pub wanted: usize,
    /// Attempts of each arm that the figure needs, rejected runs included.
    pub made: Vec<Made>,
}

/// How often an arm was run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Arm or platform.
    pub arm: String,
    /// Attempts at runs.
    pub runs: usize,
    /// Runs that the harness's own figures forbid to use.
    pub rejected: usize,
}

impl std::fmt::Display for Behind {
    /// `3/3, made copa_sfq 4 (1 rejected), status_quo 3`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.values, self.wanted)?;
        for (place, Made { arm, runs, rejected }) in self.made.iter().enumerate() {
            write!(f, "{}{arm} {runs}", if place == 0 { ", made " } else { ", " })?;
            if *rejected > 0 {
                write!(f, " ({rejected} rejected)")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(bound: Bound, values: &[f64]) -> Verdict {
        bound.judge(values, 1, SEED).1
    }

    #[test]
    fn median_meets_bound_whole_interval_fails_it() {
        let most = Bound::at_most(1.0);
        assert_eq!(judge(most, &[0.8, 1.0, 5.0]), Verdict::Met);
        assert_eq!(judge(most, &[0.9, 1.1, 1.2]), Verdict::Open);
        assert_eq!(judge(most, &[1.1, 1.2, 1.3]), Verdict::Failed);
        let least = Bound::at_least(1.0);
        assert_eq!(judge(least, &[0.8, 1.0, 5.0]), Verdict::Met);
        assert_eq!(judge(least, &[0.9, 0.8, 1.2]), Verdict::Open);
        assert_eq!(judge(least, &[0.7, 0.8, 0.9]), Verdict::Failed);
        let both = Bound { at_least: Some(0.9), at_most: Some(1.1) };
        assert_eq!(judge(both, &[0.8, 1.2, 1.2]), Verdict::Open);
        assert_eq!(judge(both, &[1.2, 1.2, 1.2]), Verdict::Failed);
        assert_eq!(judge(Bound::default(), &[3.0]), Verdict::Reported);
        assert_eq!(judge(most, &[]), Verdict::NotShown(Why::TooFew));
        assert_eq!(most.judge(&[0.5; 5], 6, SEED).1, Verdict::NotShown(Why::TooFew));
    }

    #[test]
    fn died_runs_are_outside_every_bound() {
        for bound in [Bound::at_most(1.0), Bound::at_least(1.0), Bound::within(1.0)] {
            let inside = if bound.holds(1.0) { 1.0 } else { 0.0 };
            let missed = bound.missed();
            assert_eq!(judge(bound, &[missed]), Verdict::Failed);
            assert_eq!(judge(bound, &[missed, inside, missed]), Verdict::Open);
            assert_eq!(judge(bound, &[missed, inside, inside]), Verdict::Met);
            assert_eq!(judge(bound, &[missed, inside, inside, missed]), Verdict::Open);
        }
    }

    #[test]
    fn one_sided_interval_settles_the_verdict() {
        let interval = |low, high| Interval { median: (low + high) / 2.0, low, high };
        let bound = Bound::at_least(0.98);
        assert!(bound.is_settled(interval(0.98, 1.01)));
        assert!(!bound.is_settled(interval(0.979, 1.01)));
        assert!(bound.is_settled(interval(0.9, 0.979)));
    }

    #[test]
    fn failed_claims_list_their_runs() {
        let made = |arm: &str, runs, rejected| Made { arm: arm.into(), runs, rejected };
        let behind = Behind {
            values: 3,
            wanted: 3,
            made: vec![made("copa_sfq", 4, 1), made("status_quo", 3, 0)],
        };
        assert_eq!(behind.to_string(), "3/3, made copa_sfq 4 (1 rejected), status_quo 3");
        let judged =
            Judged { of: "cpu".into(), claim: "score".into(), behind, ..Judged::default() };
        let failed = judged.clone().by_values(Bound::at_least(0.98), &[0.9; 3], 3, SEED);
        let said = failed.complaint().unwrap();
        assert!(
            said.starts_with("FAILED: cpu, : score ≥ 0.98: 0.900 [0.900, 0.900] (of 3/3"),
            "{said}"
        );
        assert!(judged.complaint().unwrap().starts_with("NOT SHOWN: NOT RUN"));
        assert_eq!(judged.by_one(Bound::at_most(1.0), Some(1.0)).complaint(), None);
    }
}
