//! Everything that was found, in the order in which a reader asks: scores, time of each BPF program,
//! latency, scaling.

use std::collections::BTreeMap;

use serde::Serialize;

use super::What;
use super::platform::{Algorithm, Platform, Setting};
use super::rows::{Purpose, Rows, Start, TrialRow};
use super::scores::Scores;
use super::statistics::Verdict;
use crate::metrics::statistics::Sorted;

/// Connections whose number is multiplied.
pub const FLOWS: [u32; 4] = [1, 10, 100, 1000];
/// Most of a processor that an agent at 10 ms may use with the most connections.
const AGENT_SHARE_MAX: f64 = 0.10;

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// What all trials have in common.
    pub start: Start,
    /// By setting.
    pub scores: Vec<Scores>,
    /// Time of each program.
    pub programs: Vec<ProgramRow>,
    /// Latency of decisions.
    pub latencies: Vec<LatencyRow>,
    /// Many connections.
    pub scaling: Vec<ScaleRow>,
}

/// A BPF program of a platform: medians over its trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramRow {
    /// How the traffic was cut.
    pub setting: Setting,
    /// Platform.
    pub platform: Platform,
    /// Program.
    pub program: String,
    /// Calls for each acknowledgement.
    pub calls_per_ack: f64,
    /// Mean time of a call (ns), what timing it costs included.
    pub call_ns: f64,
    /// The same less that of the empty program at the same setting.
    pub over_empty_ns: Option<f64>,
    /// Instructions that the verifier looked at.
    pub instructions: u32,
}

/// From report to decision, medians over the trials (us).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// Platform.
    pub platform: Platform,
    /// Trials.
    pub trials: usize,
    /// Reports a second.
    pub reports_per_s: f64,
    /// Half are decided within this.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// A number of connections that send as fast as they can, medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScaleRow {
    /// Platform.
    pub platform: Platform,
    /// Connections.
    pub flows: u32,
    /// Trials.
    pub trials: usize,
    /// Goodput (Gbit/s).
    pub gbit_per_s: f64,
    /// CPU seconds a gigabyte.
    pub cpu_s_per_gb: f64,
    /// Reports a second.
    pub reports_per_s: f64,
    /// Reports that the ring did not take, in all trials.
    pub reports_lost: u64,
    /// Share of a processor that the agent used, the largest of the trials.
    pub agent_share: f64,
    /// Times that a connection fell back to the kernel's law, in all trials.
    pub fallbacks: u64,
}

impl Findings {
    /// What is in `rows`.
    pub fn of(rows: &Rows, algorithm: &Algorithm) -> Self {
        let blocks = |setting| {
            let scored = rows
                .trials
                .iter()
                .filter(|row| row.key.purpose == Purpose::Score && row.key.setting == setting);
            scored.map(|row| row.key.block + 1).max()
        };
        let scores = Setting::ALL
            .into_iter()
            .filter_map(|setting| Some(Scores::of(rows, algorithm, setting, blocks(setting)?)));
        Self {
            start: rows.start.clone(),
            scores: scores.collect(),
            programs: programs(rows),
            latencies: latencies(rows),
            scaling: scaling(rows),
        }
    }

    /// What of `wanted` failed, in sentences.
    pub fn failures(&self, wanted: &[What]) -> Vec<String> {
        let mut failures = Vec::new();
        if wanted.contains(&What::Cpu) {
            for scores in &self.scores {
                let setting = scores.setting.title();
                let failed = scores.claims.iter().filter(|it| it.verdict == Verdict::Fail);
                failures.extend(failed.map(|claim| {
                    format!("{setting}: {} is below {}", claim.platform.title(), claim.bound)
                }));
                if scores.slowed_is_seen == Some(false) {
                    failures.push(format!("{setting}: the slowed agent was not told apart"));
                }
            }
        }
        if wanted.contains(&What::Scale) {
            failures.extend(self.scaling.iter().filter_map(ScaleRow::failure));
        }
        failures
    }
}

impl ScaleRow {
    fn failure(&self) -> Option<String> {
        let place = format!("{} with {} connections", self.platform.title(), self.flows);
        if self.reports_lost > 0 {
            return Some(format!("{place}: {} reports were lost", self.reports_lost));
        }
        let is_claimed = self.platform == Platform::Agent10Ms && Some(&self.flows) == FLOWS.last();
        (is_claimed && self.agent_share >= AGENT_SHARE_MAX).then(|| {
            format!("{place}: the agent used {:.1} % of a processor", 100.0 * self.agent_share)
        })
    }
}

/// Trials of a purpose in groups, in the order of the groups.
fn groups<K: Ord>(
    rows: &Rows,
    purpose: Purpose,
    key: impl Fn(&TrialRow) -> K,
) -> BTreeMap<K, Vec<&TrialRow>> {
    let mut groups: BTreeMap<K, Vec<&TrialRow>> = BTreeMap::new();
    for row in rows.trials.iter().filter(|row| row.key.purpose == purpose) {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

fn median(trials: &[&TrialRow], value: impl Fn(&TrialRow) -> Option<f64>) -> f64 {
    let values = Sorted::new(trials.iter().filter_map(|row| value(row)));
    values.quantile(0.5).unwrap_or(0.0)
}

fn programs(rows: &Rows) -> Vec<ProgramRow> {
    let groups = groups(rows, Purpose::ProgramTimes, |row| (row.key.setting, row.key.platform));
    let mut found = Vec::new();
    for ((setting, platform), trials) in &groups {
        let programs = trials.iter().flat_map(|row| &row.outcome.programs);
        let mut names: Vec<&str> = programs.map(|program| program.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let of = |row: &TrialRow| {
                row.outcome.programs.iter().find(|program| program.name == name).cloned()
            };
            let seconds = (rows.start.duration_ns + rows.start.warm_up_ns) as f64 / 1e9;
            let calls = median(trials, |row| {
                let acks = row.outcome.acks_per_s * seconds;
                of(row).filter(|_| acks > 0.0).map(|program| program.calls as f64 / acks)
            });
            found.push(ProgramRow {
                setting: *setting,
                platform: *platform,
                program: name.into(),
                calls_per_ack: calls,
                call_ns: median(trials, |row| {
                    of(row).filter(|program| program.calls > 0).map(|program| program.call_ns)
                }),
                over_empty_ns: None,
                instructions: trials.iter().find_map(|row| of(row)).map_or(0, |it| it.instructions),
            });
        }
    }
    let empty: BTreeMap<Setting, f64> = found
        .iter()
        .filter(|row| row.platform == Platform::Empty && row.program == "empty_control")
        .map(|row| (row.setting, row.call_ns))
        .collect();
    for row in &mut found {
        let empty = empty.get(&row.setting).filter(|_| row.call_ns > 0.0);
        row.over_empty_ns = empty.map(|empty| row.call_ns - empty);
    }
    // Hooks that were not called at all say nothing.
    found.retain(|row| row.call_ns > 0.0 || row.instructions > 0);
    found
}

fn latencies(rows: &Rows) -> Vec<LatencyRow> {
    let groups = groups(rows, Purpose::Latency, |row| row.key.platform);
    let row = |(platform, trials): (&Platform, &Vec<&TrialRow>)| {
        let agent = |row: &TrialRow| row.outcome.agent.clone();
        let at =
            |place: usize| median(trials, |row| Some(agent(row)?.latency_ns[place] as f64 / 1e3));
        LatencyRow {
            platform: *platform,
            trials: trials.len(),
            reports_per_s: median(trials, |row| Some(agent(row)?.reports_per_s)),
            p50_us: at(0),
            p90_us: at(1),
            p99_us: at(2),
            max_us: at(3),
        }
    };
    groups.iter().map(row).collect()
}

fn scaling(rows: &Rows) -> Vec<ScaleRow> {
    let groups = groups(rows, Purpose::Scale, |row| (row.key.platform, row.key.flows));
    let row = |((platform, flows), trials): (&(Platform, u32), &Vec<&TrialRow>)| {
        let agents = || trials.iter().filter_map(|row| row.outcome.agent.as_ref());
        let shares = trials.iter().map(|row| row.outcome.share(row.outcome.agent_cpu_ns));
        ScaleRow {
            platform: *platform,
            flows: *flows,
            trials: trials.len(),
            gbit_per_s: median(trials, |row| Some(row.outcome.bytes_per_s * 8.0 / 1e9)),
            cpu_s_per_gb: median(trials, |row| row.outcome.cpu_s_per_gb()),
            reports_per_s: median(trials, |row| Some(row.outcome.agent.as_ref()?.reports_per_s)),
            reports_lost: agents().map(|agent| agent.reports_lost).sum(),
            agent_share: shares.fold(0.0, f64::max),
            fallbacks: agents().map(|agent| agent.fallbacks).sum(),
        }
    };
    groups.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use forebay_host::cost::{AgentOutcome, Outcome, ProgramCost};

    use super::super::rows::TrialKey;
    use super::super::rows::tests::key;
    use super::*;

    fn found(trials: Vec<(TrialKey, Outcome)>) -> Findings {
        let folder = tempfile::tempdir().unwrap();
        let start = Start { duration_ns: 1_000_000_000, ..Start::default() }.with_schema();
        let mut rows = Rows::open(folder.path(), start).unwrap();
        for (key, outcome) in trials {
            rows.put_trial(TrialRow { key, outcome }).unwrap();
        }
        Findings::of(&rows, &Algorithm::find("cubic", "cubic").unwrap())
    }

    #[test]
    fn a_program_costs_what_it_takes_more_than_the_empty_one() {
        let timed = |platform, block, name: &str, call_ns| {
            let key = TrialKey { purpose: Purpose::ProgramTimes, ..key(platform, block) };
            let program = ProgramCost { name: name.into(), calls: 500, call_ns, instructions: 77 };
            let programs = vec![program];
            (key, Outcome { acks_per_s: 1000.0, programs, ..Outcome::default() })
        };
        let found = found(vec![
            timed(Platform::Empty, 0, "empty_control", 80.0),
            timed(Platform::AgentRound, 0, "cong_control_4", 190.0),
            timed(Platform::AgentRound, 1, "cong_control_4", 150.0),
            timed(Platform::AgentRound, 2, "cong_control_4", 900.0),
        ]);
        let row = found.programs.iter().find(|it| it.platform == Platform::AgentRound).unwrap();
        assert_eq!((row.call_ns, row.over_empty_ns, row.instructions), (190.0, Some(110.0), 77));
        assert!((row.calls_per_ack - 0.5).abs() < 1e-9);
    }

    #[test]
    fn lost_reports_and_a_busy_agent_are_failures() {
        let trial = |platform, flows, reports_lost, agent_cpu_ns| {
            let key = TrialKey { purpose: Purpose::Scale, flows, ..key(platform, 0) };
            let agent = Some(AgentOutcome { reports_lost, ..AgentOutcome::default() });
            (key, Outcome { agent, agent_cpu_ns, window_ns: 1000, ..Outcome::default() })
        };
        let found = found(vec![
            trial(Platform::Agent10Ms, 1000, 0, 100),
            trial(Platform::Agent10Ms, 100, 0, 100),
            trial(Platform::AgentRound, 1000, 3, 900),
        ]);
        let failures = found.failures(&What::ALL);
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].contains("agent per round") && failures[0].contains("3 reports"));
        assert!(failures[1].contains("10.0 % of a processor"), "{failures:?}");
        assert!(found.failures(&[What::Cpu]).is_empty());
    }
}
