//! CPU scores: what a platform leaves to the counting process beside what its baseline leaves.
//!
//! A score is the ratio of two trials of one block. A pair counts only if both moved the same bytes
//! with the same acknowledgements, where their rate is fixed, and the machine let both alone: its limits know
//! nothing of the count. An agent that did not decide all along, which is cheaper than doing so, has a score of 0.

use std::collections::BTreeMap;

use forebay_testbed::cost::Outcome;
use serde::Serialize;

use super::platform::{Algorithm, Platform, Setting};
use super::rows::{Calibration, Purpose, Rows};
use crate::judge::{Behind, Bound, Interval, Judged, Made, Verdict, Why};
use crate::metrics::statistics::Sorted;

/// Most that bytes and acknowledgements a second of a pair may differ.
const UNEQUAL_MAX: f64 = 0.01;
/// Largest share of a trial's time that the hypervisor may steal.
const STEAL_MAX: f64 = 0.01;
/// Largest share of a trial's time that others may use of its processor.
const FOREIGN_MAX: f64 = 0.02;
/// Fewest reports for each acknowledgement of an agent that is to hear of every one.
const REPORTS_PER_ACK_MIN: f64 = 0.99;
/// Fewest pairs of trials before anything is said of a score, as many as the study has.
pub const PAIRS_MIN: usize = 20;
/// Share of the processor that the kernel's own takes where scores are compared.
const KERNEL_SHARE: std::ops::RangeInclusive<f64> = 0.5..=0.7;

/// What of two trials is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// What the counting process counts, platform over baseline: more is better.
    #[default]
    Score,
    /// CPU seconds a gigabyte, platform over baseline: less is better.
    CpuPerGb,
}

impl Metric {
    /// Title with what it is a ratio of.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Score => "CPU score (count over the kernel's)",
            Self::CpuPerGb => "CPU seconds a gigabyte over the kernel's",
        }
    }
}

/// A platform beside its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Platform that is scored.
    pub platform: Platform,
    /// What it is compared with.
    pub baseline: Platform,
    /// The ratio of counts of each pair that counts.
    pub scores: Vec<f64>,
    /// Their median.
    pub score: Option<Interval>,
    /// The ratios of CPU seconds a gigabyte.
    pub cpu_ratios: Vec<f64>,
    /// Their median.
    pub cpu_ratio: Option<Interval>,
    /// Pairs that do not count, by the reason.
    pub rejected: BTreeMap<String, usize>,
    /// Pairs that count as 0, by the reason.
    pub neglected: BTreeMap<&'static str, usize>,
    /// Means over the platform's own trials.
    pub means: Means,
}

/// Means over the trials of a platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Means {
    /// Trials that count.
    pub trials: usize,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Acknowledgements a second.
    pub acks_per_s: f64,
    /// CPU seconds a gigabyte.
    pub cpu_s_per_gb: f64,
    /// Share of the processor that the agent used.
    pub agent_share: f64,
    /// Segments sent again, a trial.
    pub retransmissions: f64,
    /// Reports that the agent took, a second.
    pub reports_per_s: f64,
    /// From a report to its decision, 99 of 100 (us), the median over trials; `None` without reports.
    pub latency_p99_us: Option<f64>,
}

/// All scores of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Setting of the trials.
    pub setting: Setting,
    /// Rate of the trials.
    pub calibration: Option<Calibration>,
    /// Share of the processor that the kernel's own took in its scored trials, the median.
    pub kernel_share: Option<f64>,
    /// Of each platform but the kernel's own.
    pub platforms: Vec<Score>,
    /// The claims.
    pub claims: Vec<Judged>,
    /// Whether the agent that was slowed was seen to be: `None` while that is open. Otherwise no
    /// verdict counts.
    pub slowed_is_seen: Option<bool>,
    /// Why no verdict counts: then every claim is [`Why::Void`].
    pub void: Option<String>,
    /// Platforms about which more trials may tell something.
    #[serde(skip)]
    pub(super) open: Vec<Platform>,
}

impl Scores {
    /// Of the first `blocks` blocks.
    pub fn of(rows: &Rows, algorithm: &Algorithm, setting: Setting, blocks: u32) -> Self {
        let platforms: Vec<Score> = algorithm
            .on(&Platform::SCORED)
            .into_iter()
            .filter(|platform| *platform != Platform::Kernel)
            .map(|platform| Score::of(rows, setting, platform, blocks))
            .collect();
        let claimed = |score: &'_ Score| Some(score.claim(setting, rows, score.platform.bound()?));
        let mut claims: Vec<Judged> = platforms.iter().filter_map(claimed).collect();
        let slowed = platforms.iter().find(|it| it.platform == Platform::AgentSlowed);
        let slowed_is_seen = slowed.and_then(Score::is_below_its_baseline);
        let is_open = |score: &&Score| score.platform.bound().is_some_and(|it| score.is_open(it));
        let mut open: Vec<Platform> =
            platforms.iter().filter(is_open).map(|score| score.platform).collect();
        if slowed_is_seen.is_none() {
            open.push(Platform::AgentSlowed);
        }
        let kernel_share = kernel_share(rows, setting, blocks);
        let is_searched = rows.start.rate_bps.is_none();
        let void = why_void(slowed_is_seen, kernel_share.filter(|_| is_searched));
        if void.is_some() {
            claims.iter_mut().for_each(|claim| claim.verdict = Verdict::NotShown(Why::Void));
        }
        claims.push(sight(setting, rows, slowed, slowed_is_seen));
        let calibration = rows.calibration(setting).cloned();
        Self { setting, calibration, kernel_share, platforms, claims, slowed_is_seen, void, open }
    }

    /// Platforms about which something is still open, with what they are compared with; none once
    /// everything is resolved.
    pub fn unresolved(&self) -> Vec<Platform> {
        let mut open = self.open.clone();
        if open.is_empty() {
            return open;
        }
        let baselines: Vec<Platform> = open.iter().map(|platform| platform.baseline()).collect();
        open.extend(baselines);
        open.extend([Platform::Kernel, Platform::KernelAgain]);
        open.sort_unstable();
        open.dedup();
        open
    }
}

impl Score {
    fn of(rows: &Rows, setting: Setting, platform: Platform, blocks: u32) -> Self {
        let baseline = platform.baseline();
        let (mut scores, mut cpu_ratios, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rejected, mut neglected) = (BTreeMap::new(), BTreeMap::new());
        for block in 0..blocks {
            let outcome = |wanted: Platform| {
                let mut block = rows.block(Purpose::Score, setting, 1, block);
                block.find(|row| row.key.platform == wanted).map(|row| &row.outcome)
            };
            let Some(one) = outcome(platform) else { continue };
            own.push(one);
            let Some(base) = outcome(baseline) else { continue };
            match objection(platform, setting, one, base) {
                Some(Objection::Rejected(reason)) => *rejected.entry(reason).or_default() += 1,
                Some(Objection::Neglected(reason)) => {
                    *neglected.entry(reason).or_default() += 1;
                    scores.push(0.0);
                }
                None => {
                    scores.push(one.counted_per_s / base.counted_per_s);
                    let cpu = one.cpu_s_per_gb().zip(base.cpu_s_per_gb());
                    cpu_ratios.extend(cpu.map(|(one, base)| one / base));
                }
            }
        }
        let seed = rows.start.seed;
        Self {
            platform,
            baseline,
            score: Interval::of(&scores, seed),
            scores,
            cpu_ratio: Interval::of(&cpu_ratios, seed),
            cpu_ratios,
            rejected,
            neglected,
            means: Means::of(&own),
        }
    }

    /// Whether more pairs may tell on which side of `bound` the score lies.
    fn is_open(&self, bound: f64) -> bool {
        let is_settled = self.score.is_some_and(|score| Bound::at_least(bound).is_settled(score));
        self.scores.len() < PAIRS_MIN || !is_settled
    }

    fn claim(&self, setting: Setting, rows: &Rows, bound: f64) -> Judged {
        let claim = Judged {
            of: "platforms/cpu".into(),
            claim: "CPU score".into(),
            place: format!("{}, {}", self.platform.title(), setting.title()),
            behind: self.behind(),
            commit: rows.start.commit.clone(),
            ..Judged::default()
        };
        let bounds = Bound::at_least(bound);
        claim.by_values(bounds, &self.scores, PAIRS_MIN, rows.start.seed).beside_whole(bounds)
    }

    fn behind(&self) -> Behind {
        let values = self.scores.len();
        let rejected = self.rejected.values().sum();
        let made = Made { arm: "pairs".into(), runs: values + rejected, rejected };
        Behind { values, wanted: PAIRS_MIN, made: vec![made] }
    }

    /// The ratios of `metric`.
    pub fn ratios(&self, metric: Metric) -> &[f64] {
        match metric {
            Metric::Score => &self.scores,
            Metric::CpuPerGb => &self.cpu_ratios,
        }
    }

    /// Whether its scores are below 1 beyond chance; `None`: open.
    fn is_below_its_baseline(&self) -> Option<bool> {
        let is_below = |score| Bound::at_least(1.0).excludes(score);
        self.score.filter(|_| !self.is_open(1.0)).map(is_below)
    }
}

/// Whether the test can see what it is to see, as a claim.
fn sight(setting: Setting, rows: &Rows, slowed: Option<&Score>, is_seen: Option<bool>) -> Judged {
    Judged {
        of: "platforms/cpu".into(),
        claim: "CPU score, all of its interval, told apart from the agent per round".into(),
        place: format!("{}, {}", Platform::AgentSlowed.title(), setting.title()),
        bound: "< 1".into(),
        figure: slowed.and_then(|slowed| Some(slowed.score?.median)),
        interval: slowed.and_then(|slowed| slowed.score),
        behind: slowed.map(Score::behind).unwrap_or_default(),
        verdict: match is_seen {
            Some(true) => Verdict::Met,
            Some(false) => Verdict::Failed,
            None => Verdict::Open,
        },
        commit: rows.start.commit.clone(),
        ..Judged::default()
    }
}

impl Means {
    fn of(outcomes: &[&Outcome]) -> Self {
        let trials = outcomes.len();
        let mean = |value: &dyn Fn(&Outcome) -> f64| {
            outcomes.iter().map(|outcome| value(outcome)).sum::<f64>() / trials.max(1) as f64
        };
        Self {
            trials,
            bytes_per_s: mean(&|it| it.bytes_per_s),
            acks_per_s: mean(&|it| it.acks_per_s),
            cpu_s_per_gb: mean(&|it| it.cpu_s_per_gb().unwrap_or(0.0)),
            agent_share: mean(&|it| it.share(it.agent_cpu_ns)),
            retransmissions: mean(&|it| it.retransmissions as f64),
            reports_per_s: mean(&|it| it.agent.as_ref().map_or(0.0, |agent| agent.reports_per_s)),
            latency_p99_us: {
                let agents = outcomes.iter().filter_map(|outcome| outcome.agent.as_ref());
                let latencies = Sorted::new(agents.map(|agent| agent.latency_ns[2] as f64 / 1e3));
                latencies.quantile(0.5)
            },
        }
    }
}

/// The share of the processor that the kernel's own took of the counting process: the median over its
/// undisturbed trials; `None` without any.
fn kernel_share(rows: &Rows, setting: Setting, blocks: u32) -> Option<f64> {
    let idle_per_s = rows.calibration(setting)?.idle_per_s;
    let trials = (0..blocks).filter_map(|block| {
        let mut block = rows.block(Purpose::Score, setting, 1, block);
        block.find(|row| row.key.platform == Platform::Kernel).map(|row| &row.outcome)
    });
    let shares = trials
        .filter(|trial| disturbance(trial).is_none())
        .map(|trial| 1.0 - trial.counted_per_s / idle_per_s);
    Sorted::new(shares).quantile(0.5)
}

/// Why no verdict counts; `kernel_share` where the rate was searched for it.
fn why_void(slowed_is_seen: Option<bool>, kernel_share: Option<f64>) -> Option<String> {
    match (slowed_is_seen, kernel_share) {
        (None, _) => Some("whether the slowed agent is told apart is open".into()),
        (Some(false), _) => Some("the slowed agent is not told apart".into()),
        (Some(true), Some(share)) if !KERNEL_SHARE.contains(&share) => {
            let share = 100.0 * share;
            Some(format!("the kernel's own took {share:.0} % of the processor, not 50 to 70 %"))
        }
        (Some(true), _) => None,
    }
}

/// Why a trial says nothing of its platform.
pub(super) fn disturbance(trial: &Outcome) -> Option<&'static str> {
    if trial.counted_per_s.is_nan() || trial.counted_per_s <= 0.0 {
        return Some("nothing was counted");
    }
    if trial.share(trial.steal_ns) > STEAL_MAX {
        return Some("the hypervisor stole more than 1 %");
    }
    if trial.share(trial.foreign_ns) > FOREIGN_MAX {
        return Some("others used more than 2 % of the processor");
    }
    None
}

/// Why a trial's agent did not do its platform's work, which is cheaper than doing it.
fn neglect(platform: Platform, trial: &Outcome) -> Option<&'static str> {
    let agent = trial.agent.as_ref()?;
    if agent.fallbacks > 0 {
        return Some("the agent's connection fell back");
    }
    if agent.reports_lost > 0 {
        return Some("reports were lost");
    }
    if agent.stale > 0 {
        return Some("decisions came too late");
    }
    let is_told_all = agent.reports_per_s >= REPORTS_PER_ACK_MIN * trial.acks_per_s;
    (platform == Platform::AgentAck && !is_told_all)
        .then_some("fewer reports than acknowledgements")
}

/// Why a pair is none of two trials that compare.
#[derive(Clone, Debug, PartialEq)]
enum Objection {
    /// The trial does not count.
    Rejected(String),
    /// The trial counts against the platform.
    Neglected(&'static str),
}

/// What is to be said against a pair.
fn objection(
    platform: Platform,
    setting: Setting,
    one: &Outcome,
    base: &Outcome,
) -> Option<Objection> {
    let disturbed = [one, base].into_iter().find_map(disturbance);
    // The slowed agent and the one beside it must both have done their work: theirs is no score that could be bad.
    let is_control = platform == Platform::AgentSlowed;
    let trials = [(platform, one), (platform.baseline(), base)];
    let neglected = || trials.iter().find_map(|(platform, trial)| neglect(*platform, trial));
    if let Some(reason) = disturbed.or_else(|| neglected().filter(|_| is_control)) {
        return Some(Objection::Rejected(reason.into()));
    }
    if let Some(reason) = neglected() {
        return Some(Objection::Neglected(reason));
    }
    if !setting.has_rate() {
        return None;
    }
    for (name, one, base) in [
        ("bytes", one.bytes_per_s, base.bytes_per_s),
        ("acknowledgements", one.acks_per_s, base.acks_per_s),
    ] {
        let is_equal = (one - base).abs() <= UNEQUAL_MAX * base;
        if !is_equal {
            return Some(Objection::Rejected(format!("{name} differ by more than 1 %")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use forebay_testbed::cost::AgentOutcome;

    use super::super::rows::tests::key;
    use super::super::rows::{Start, TrialKey, TrialRow};
    use super::*;

    fn outcome(count: f64) -> Outcome {
        Outcome {
            counted_per_s: count,
            window_ns: 1_000_000_000,
            bytes_per_s: 1e8,
            acks_per_s: 3e4,
            sender_cpu_ns: 600_000_000,
            ..Outcome::default()
        }
    }

    fn rows(
        trials: impl IntoIterator<Item = (u32, Platform, Outcome)>,
    ) -> (tempfile::TempDir, Rows) {
        let folder = tempfile::tempdir().unwrap();
        let mut rows = Rows::open(folder.path(), Start::default().with_schema()).unwrap();
        for (block, platform, outcome) in trials {
            rows.put_trial(TrialRow { key: key(platform, block), outcome }).unwrap();
        }
        (folder, rows)
    }

    /// Blocks in which the machine is faster or slower by far more than the platforms differ.
    fn blocks(blocks: u32, native: f64, slowed: f64) -> Vec<(u32, Platform, Outcome)> {
        (0..blocks)
            .flat_map(|block| {
                let machine = 1000.0 * (1.0 + f64::from(block % 5) / 10.0);
                let chance = 1.0 + f64::from(block % 3) / 1000.0;
                [
                    (block, Platform::Kernel, outcome(machine)),
                    (block, Platform::Native, outcome(machine * native * chance)),
                    (block, Platform::AgentRound, outcome(machine * 0.95)),
                    (block, Platform::AgentSlowed, outcome(machine * 0.95 * slowed)),
                ]
            })
            .collect()
    }

    fn cubic() -> Algorithm {
        Algorithm::find("cubic", "cubic").unwrap()
    }

    const VOID: Verdict = Verdict::NotShown(Why::Void);

    fn claim(scores: &Scores, platform: Platform) -> &Judged {
        let of_platform = |claim: &&Judged| claim.place.starts_with(platform.title());
        scores.claims.iter().find(of_platform).unwrap()
    }

    #[test]
    fn pairs_of_one_block_are_compared_so_that_the_machine_does_not_count() {
        let (_folder, rows) = rows(blocks(20, 0.99, 0.8));
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 20);
        let native = claim(&scores, Platform::Native);
        assert_eq!((native.verdict, native.behind.values), (Verdict::Met, 20));
        assert_eq!(claim(&scores, Platform::AgentRound).verdict, Verdict::Failed);
        let none = Verdict::NotShown(Why::TooFew);
        assert_eq!(claim(&scores, Platform::AgentAck).verdict, none);
        assert_eq!(scores.slowed_is_seen, Some(true));
        assert_eq!(scores.claims.last().unwrap().verdict, Verdict::Met);
        let open = scores.unresolved();
        for (platform, is_open) in [
            (Platform::Kernel, true),
            (Platform::KernelAgain, true),
            (Platform::AgentAck, true),
            (Platform::Native, false),
            (Platform::AgentSlowed, false),
        ] {
            assert_eq!(open.contains(&platform), is_open, "{platform:?}");
        }
    }

    #[test]
    fn a_slowed_agent_that_is_not_seen_is_said_so_and_no_verdict_counts() {
        let (_folder, rows) = rows(blocks(20, 0.99, 1.0));
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 20);
        assert_eq!(scores.slowed_is_seen, Some(false));
        let (sight, claims) = scores.claims.split_last().unwrap();
        assert!(claims.iter().all(|claim| claim.verdict == VOID));
        assert_eq!(sight.verdict, Verdict::Failed);
        assert!(scores.void.unwrap().contains("not told apart"));
        let none = Scores::of(&rows, &cubic(), Setting::GsoUnlimited, 20);
        assert_eq!(none.slowed_is_seen, None);
        assert!(none.unresolved().contains(&Platform::AgentSlowed));
        let (sight, claims) = none.claims.split_last().unwrap();
        assert!(claims.iter().all(|claim| claim.verdict == VOID) && sight.verdict == Verdict::Open);
    }

    #[test]
    fn a_median_that_meets_the_bound_is_enough_and_what_was_asked_before_is_beside() {
        // Half of the pairs and one more are at 0.99, the others below the bound.
        let native = |block| if block < 11 { 0.99 } else { 0.9 };
        let trials = (0..20).flat_map(|block| {
            let native = (block, Platform::Native, outcome(1000.0 * native(block)));
            [(block, Platform::Kernel, outcome(1000.0)), native]
        });
        let (_folder, rows) = rows(
            trials.chain(
                blocks(20, 0.99, 0.8)
                    .into_iter()
                    .filter(|it| [Platform::AgentRound, Platform::AgentSlowed].contains(&it.1)),
            ),
        );
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 20);
        let native = claim(&scores, Platform::Native);
        assert_eq!((native.verdict, native.before.as_deref()), (Verdict::Met, Some("open")));
        assert!(scores.unresolved().contains(&Platform::Native));
    }

    #[test]
    fn nothing_is_said_of_fewer_than_twenty_pairs() {
        let (_folder, rows) = rows(blocks(19, 0.99, 0.8));
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 19);
        let pairs = claim(&scores, Platform::Native).behind.values;
        assert_eq!((pairs, scores.slowed_is_seen), (19, None));
        assert!(scores.unresolved().contains(&Platform::Native));
    }

    #[test]
    fn the_kernel_s_share_of_the_scored_trials_decides_whether_verdicts_count() {
        // Its trials count 1000 to 1400 a second, 1200 in the middle.
        for (idle_per_s, rate_bps, is_void) in [
            (3000.0, None, false),
            (2000.0, None, true),
            (6000.0, None, true),
            (6000.0, Some(1_000_000_000), false),
        ] {
            let (_folder, mut rows) = rows(blocks(20, 0.99, 0.8));
            rows.start.rate_bps = rate_bps;
            let (setting, rate_bps) = (Setting::Gso2, 1_000_000_000);
            let calibration = Calibration { setting, rate_bps, idle_per_s, share: 0.6 };
            rows.put_calibration(calibration).unwrap();
            let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 20);
            let share = scores.kernel_share.unwrap();
            assert!((share - (1.0 - 1200.0 / idle_per_s)).abs() < 1e-9, "{share}");
            assert_eq!(scores.void.is_some(), is_void, "{:?}", scores.void);
            let expected = if is_void { VOID } else { Verdict::Met };
            assert_eq!(claim(&scores, Platform::Native).verdict, expected);
        }
    }

    #[test]
    fn an_agent_that_did_not_decide_all_along_has_the_worst_score() {
        let base = outcome(1000.0);
        let agent = |agent| Outcome { agent: Some(agent), ..base.clone() };
        let whole = AgentOutcome { reports_per_s: 29_800.0, ..AgentOutcome::default() };
        let why = |platform, one| objection(platform, Setting::Gso2, &agent(one), &base);
        let neglected = |platform, one| match why(platform, one) {
            Some(Objection::Neglected(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(why(Platform::AgentAck, whole.clone()), None);
        let fallen = AgentOutcome { fallbacks: 1, ..whole.clone() };
        assert!(neglected(Platform::AgentRound, fallen.clone()).contains("fell back"));
        let lost = AgentOutcome { reports_lost: 1, ..whole.clone() };
        assert!(neglected(Platform::Agent10Ms, lost.clone()).contains("lost"));
        // Of 30,000 acknowledgements a second.
        let deaf = AgentOutcome { reports_per_s: 29_600.0, ..whole.clone() };
        assert_eq!(why(Platform::AgentRound, deaf.clone()), None);
        assert!(neglected(Platform::AgentAck, deaf).contains("fewer reports"));
        let late = AgentOutcome { stale: 1, ..whole.clone() };
        assert!(neglected(Platform::AgentRound, late).contains("too late"));
        // A control that the test sees for such a reason would show nothing.
        for (slowed, beside) in [(whole.clone(), lost.clone()), (lost, whole)] {
            let slowed =
                objection(Platform::AgentSlowed, Setting::Gso2, &agent(slowed), &agent(beside));
            assert!(matches!(slowed, Some(Objection::Rejected(why)) if why.contains("lost")));
        }
        let trials = (0..3).flat_map(|block| {
            let one = if block == 1 { agent(fallen.clone()) } else { base.clone() };
            [(block, Platform::Kernel, base.clone()), (block, Platform::AgentRound, one)]
        });
        let (_folder, rows) = rows(trials);
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 3);
        let is_round = |it: &&Score| it.platform == Platform::AgentRound;
        let round = scores.platforms.iter().find(is_round).unwrap();
        assert_eq!((&round.scores[..], round.rejected.len()), (&[1.0, 0.0, 1.0][..], 0));
        assert_eq!(round.neglected["the agent's connection fell back"], 1);
    }

    #[test]
    fn a_pair_that_did_not_do_the_same_or_was_disturbed_does_not_count() {
        let base = outcome(1000.0);
        assert_eq!(objection(Platform::Native, Setting::Gso2, &base, &base), None);
        let cases = [
            (Outcome { bytes_per_s: 0.989e8, ..base.clone() }, "bytes differ"),
            (Outcome { acks_per_s: 3.04e4, ..base.clone() }, "acknowledgements differ"),
            (Outcome { steal_ns: 11_000_000, ..base.clone() }, "stole"),
            (Outcome { foreign_ns: 21_000_000, ..base.clone() }, "others used"),
            (Outcome { counted_per_s: 0.0, ..base.clone() }, "nothing was counted"),
            (Outcome { bytes_per_s: f64::NAN, ..base.clone() }, "bytes differ"),
        ];
        for (case, part) in &cases {
            let Some(Objection::Rejected(reason)) =
                objection(Platform::Native, Setting::Gso2, case, &base)
            else {
                panic!("{part}")
            };
            assert!(reason.contains(part), "{reason}");
        }
        let trials = cases.into_iter().enumerate().flat_map(|(block, (case, _))| {
            let block = block as u32;
            [(block, Platform::Kernel, base.clone()), (block, Platform::Native, case)]
        });
        let (_folder, rows) = rows(trials);
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 6);
        let native = scores.platforms.iter().find(|it| it.platform == Platform::Native).unwrap();
        assert_eq!((native.scores.len(), native.rejected.values().sum::<usize>()), (0, 6));
        assert_eq!(native.rejected["bytes differ by more than 1 %"], 2);
        let claim = claim(&scores, Platform::Native);
        assert_eq!(claim.behind.to_string(), "0/20, made pairs 6 (6 rejected)");
    }

    #[test]
    fn as_fast_as_it_goes_a_pair_counts_whatever_it_moved() {
        let (base, setting) = (outcome(1000.0), Setting::RateUnlimitedNice19);
        let slower = Outcome { bytes_per_s: 0.5e8, acks_per_s: 1e4, ..base.clone() };
        assert_eq!(objection(Platform::Native, setting, &slower, &base), None);
        let disturbed = Outcome { steal_ns: 11_000_000, ..slower };
        assert!(objection(Platform::Native, setting, &disturbed, &base).is_some());
    }

    #[test]
    fn each_counting_process_is_judged_by_the_same_bounds() {
        let mut trials = blocks(20, 0.99, 0.8);
        let (folder, mut rows) = rows(trials.clone());
        for (block, platform, trial) in &mut trials {
            trial.counted_per_s *= if *platform == Platform::Native { 0.9 } else { 1.0 };
            let key = TrialKey { setting: Setting::Gso2Nice19, ..key(*platform, *block) };
            rows.put_trial(TrialRow { key, outcome: trial.clone() }).unwrap();
        }
        let verdicts = [Setting::Gso2, Setting::Gso2Nice19].map(|setting| {
            let scores = Scores::of(&rows, &cubic(), setting, 20);
            let native = claim(&scores, Platform::Native);
            (native.bound.clone(), native.verdict, native.place.clone())
        });
        let place = |counter| format!("native eBPF, GSO of 2 segments, {counter}");
        assert_eq!(verdicts[0], ("≥ 0.98".into(), Verdict::Met, place("SCHED_IDLE")));
        assert_eq!(verdicts[1], ("≥ 0.98".into(), Verdict::Failed, place("nice 19")));
        drop(folder);
    }

    #[test]
    fn blocks_beyond_the_wanted_do_not_count() {
        let (_folder, rows) = rows(blocks(20, 0.99, 0.8));
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 7);
        assert_eq!(claim(&scores, Platform::Native).behind.values, 7);
    }
}
