//! CPU scores: the counting process's share on a platform, compared with the baseline.
//!
//! A score is the ratio of two trials of one block. A pair counts only if both trials moved the same bytes
//! with the same acknowledgements, where their rate is fixed, and were undisturbed. These limits do not
//! look at the count. An agent that stopped deciding for a time, which is cheaper, has a score of 0.

use std::collections::BTreeMap;

use forebay_testbed::cost::Outcome;
use serde::Serialize;

use super::platform::{Algorithm, Platform, Setting};
use super::rows::{Calibration, PlatformRows, Purpose};
use crate::judge::Interval;
use crate::metrics::statistics::Sorted;

/// Largest difference of a pair in bytes and acknowledgements per second, as a share.
const UNEQUAL_MAX: f64 = 0.01;
/// Largest share of a trial's time that the hypervisor may steal.
const STEAL_MAX: f64 = 0.01;
/// Largest share of a trial's time that other processes may use of its processor.
const FOREIGN_MAX: f64 = 0.02;
/// Fewest reports per acknowledgement for an agent that should hear of every one.
const REPORTS_PER_ACK_MIN: f64 = 0.99;

/// The compared quantity of two trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Count of the counting process, platform over baseline: more is better.
    #[default]
    Score,
    /// CPU seconds per gigabyte, platform over baseline: less is better.
    CpuPerGb,
}

impl Metric {
    /// Title with the ratio's denominator.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Score => "CPU score (count over the kernel's)",
            Self::CpuPerGb => "CPU seconds a gigabyte over the kernel's",
        }
    }
}

/// A platform compared with its baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlatformScore {
    /// Platform that is scored.
    pub platform: Platform,
    /// Platform that it is compared with.
    pub baseline: Platform,
    /// The ratio of counts in each valid pair.
    pub scores: Vec<f64>,
    /// Median of `scores`.
    pub score: Option<Interval>,
    /// The ratios of CPU seconds per gigabyte.
    pub cpu_ratios: Vec<f64>,
    /// Median of `cpu_ratios`.
    pub cpu_ratio: Option<Interval>,
    /// Number of invalid pairs, by reason.
    pub rejected: BTreeMap<String, usize>,
    /// Number of pairs that count as 0, by reason.
    pub neglected: BTreeMap<&'static str, usize>,
    /// Means over the platform's own trials.
    pub means: Means,
}

/// Means over the trials of a platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Means {
    /// Number of valid trials.
    pub trials: usize,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Acknowledgements per second.
    pub acks_per_s: f64,
    /// CPU seconds per gigabyte.
    pub cpu_s_per_gb: f64,
    /// Share of the processor that the agent used.
    pub agent_share: f64,
    /// Retransmitted segments per trial.
    pub retransmissions: f64,
    /// Reports that the agent took, per second.
    pub reports_per_s: f64,
    /// 99th percentile of the time from a report to its decision (us), median over trials; `None` without reports.
    pub latency_p99_us: Option<f64>,
}

/// All scores of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scores {
    /// Setting of the trials.
    pub setting: Setting,
    /// Rate of the trials.
    pub calibration: Option<Calibration>,
    /// Share of the processor that the kernel's own algorithm took in its scored trials (median).
    pub kernel_share: Option<f64>,
    /// Scores of each platform except the kernel's own.
    pub platforms: Vec<PlatformScore>,
}

impl Scores {
    /// The scores of the first `blocks` blocks.
    pub fn of(rows: &PlatformRows, algorithm: &Algorithm, setting: Setting, blocks: u32) -> Self {
        let platforms: Vec<PlatformScore> = algorithm
            .on(&Platform::SCORED)
            .into_iter()
            .filter(|platform| *platform != Platform::Kernel)
            .map(|platform| PlatformScore::of(rows, setting, platform, blocks))
            .collect();
        let kernel_share = kernel_share(rows, setting, blocks);
        let calibration = rows.calibration(setting).cloned();
        Self { setting, calibration, kernel_share, platforms }
    }
}

impl PlatformScore {
    fn of(rows: &PlatformRows, setting: Setting, platform: Platform, blocks: u32) -> Self {
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

    /// The ratios of `metric`.
    pub fn ratios(&self, metric: Metric) -> &[f64] {
        match metric {
            Metric::Score => &self.scores,
            Metric::CpuPerGb => &self.cpu_ratios,
        }
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

/// The share of the processor that the kernel's own algorithm took from the counting process: the median
/// over its undisturbed trials. `None` without such trials.
fn kernel_share(rows: &PlatformRows, setting: Setting, blocks: u32) -> Option<f64> {
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

/// Reason why a trial is invalid.
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

/// Reason why a trial's agent did not do its platform's work; skipping work is cheaper.
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

/// Reason why a pair's trials are not comparable.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Objection {
    /// The trial does not count.
    Rejected(String),
    /// The trial counts against the platform.
    Neglected(&'static str),
}

/// The objection to a pair, if any.
pub(super) fn objection(
    platform: Platform,
    setting: Setting,
    one: &Outcome,
    base: &Outcome,
) -> Option<Objection> {
    let disturbed = [one, base].into_iter().find_map(disturbance);
    // The slowed agent and its baseline must both have done their work; this control has no score of 0.
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
pub(super) mod tests {
    use forebay_testbed::cost::AgentOutcome;

    use super::super::rows::tests::key;
    use super::super::rows::{Start, TrialRow};
    use super::*;

    pub fn outcome(count: f64) -> Outcome {
        Outcome {
            counted_per_s: count,
            window_ns: 1_000_000_000,
            bytes_per_s: 1e8,
            acks_per_s: 3e4,
            sender_cpu_ns: 600_000_000,
            ..Outcome::default()
        }
    }

    pub fn rows(
        trials: impl IntoIterator<Item = (u32, Platform, Outcome)>,
    ) -> (tempfile::TempDir, PlatformRows) {
        let folder = tempfile::tempdir().unwrap();
        let mut rows = PlatformRows::open(folder.path(), Start::default().with_schema()).unwrap();
        for (block, platform, outcome) in trials {
            rows.put_trial(TrialRow { key: key(platform, block), outcome }).unwrap();
        }
        (folder, rows)
    }

    /// Blocks between which the machine's speed changes by far more than the platforms differ.
    pub fn blocks(blocks: u32, native: f64, slowed: f64) -> Vec<(u32, Platform, Outcome)> {
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

    pub fn cubic() -> Algorithm {
        Algorithm::find("cubic", "cubic").unwrap()
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
        // There are 30,000 acknowledgements per second.
        let deaf = AgentOutcome { reports_per_s: 29_600.0, ..whole.clone() };
        assert_eq!(why(Platform::AgentRound, deaf.clone()), None);
        assert!(neglected(Platform::AgentAck, deaf).contains("fewer reports"));
        let late = AgentOutcome { stale: 1, ..whole.clone() };
        assert!(neglected(Platform::AgentRound, late).contains("too late"));
        // A control that the test detects for such a reason would prove nothing.
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
        let is_round = |it: &&PlatformScore| it.platform == Platform::AgentRound;
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
    fn blocks_beyond_the_wanted_do_not_count() {
        let (_folder, rows) = rows(blocks(20, 0.99, 0.8));
        let scores = Scores::of(&rows, &cubic(), Setting::Gso2, 7);
        assert!(scores.platforms.iter().all(|it| it.scores.len() <= 7));
        assert_eq!(scores.platforms[1].scores.len(), 7);
    }
}
