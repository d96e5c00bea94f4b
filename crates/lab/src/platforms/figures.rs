//! Everything that was found, in the order in which a reader asks: scores, time of each BPF program,
//! latency, scaling.

use std::collections::BTreeMap;

use serde::Serialize;

use super::What;
use super::platform::{Algorithm, Platform, Setting};
use super::rows::{Purpose, Rows, Start, TrialRow};
use super::scores::Scores;
use crate::judge::{Behind, Bound, Judged, Made, VALUES_MIN};
use crate::metrics::statistics::Sorted;

/// Connections whose number is multiplied.
pub const FLOWS: [u32; 4] = [1, 10, 100, 1000];
/// Most of a processor that an agent at 10 ms may use with the most connections (%).
const AGENT_PERCENT_MAX: f64 = 10.0;

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// What all trials have in common.
    pub start: Start,
    /// By setting.
    pub scores: Vec<Scores>,
    /// Time of each program.
    pub programs: Vec<ProgramRow>,
    /// What is claimed of those that every acknowledgement meets: that folding it takes no longer than a bound
    /// over the empty program in the same block of trials, warm: many thousand acknowledgements a second on a
    /// processor with nothing else that needs its caches.
    pub program_claims: Vec<Judged>,
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
    /// Platform of the program.
    pub platform: Platform,
    /// Name of the program.
    pub program: String,
    /// Calls for each acknowledgement.
    pub calls_per_ack: f64,
    /// Mean time of a call (ns), what timing it costs included.
    pub call_ns: f64,
    /// Mean time of a call less that of the empty program at the same setting.
    pub over_empty_ns: Option<f64>,
    /// Instructions that the verifier looked at.
    pub instructions: u32,
}

/// From report to decision, medians over the trials (us).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// Platform of the trials.
    pub platform: Platform,
    /// Trials that count.
    pub trials: usize,
    /// Reports a second.
    pub reports_per_s: f64,
    /// Half are decided within this.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 99th percentile of each trial.
    #[serde(skip)]
    pub p99s_us: Vec<f64>,
    /// The longest.
    pub max_us: f64,
}

/// A number of connections that send as fast as they can, medians over the trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScaleRow {
    /// Platform of the trials.
    pub platform: Platform,
    /// Connections of a trial.
    pub flows: u32,
    /// Trials that count.
    pub trials: usize,
    /// Goodput (Gbit/s).
    pub gbit_per_s: f64,
    /// CPU seconds a gigabyte.
    pub cpu_s_per_gb: f64,
    /// Reports a second.
    pub reports_per_s: f64,
    /// Reports that found no room, in all trials.
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
            program_claims: program_claims(rows),
            latencies: latencies(rows),
            scaling: scaling(rows),
        }
    }

    /// The claims of what was `wanted`, of scores in these settings.
    pub fn claims(&self, wanted: &[What], settings: &[Setting]) -> Vec<Judged> {
        let mut all = Vec::new();
        if wanted.contains(&What::Cpu) {
            for setting in settings {
                match self.scores.iter().find(|scores| scores.setting == *setting) {
                    Some(scores) => all.extend(scores.claims.iter().cloned()),
                    None => {
                        all.push(claim(&self.start, "cpu", "CPU score", setting.title().into()))
                    }
                }
            }
            all.extend(self.program_claims.iter().cloned());
        }
        if wanted.contains(&What::Latency) {
            all.extend(self.latencies.iter().map(|row| self.of_latency(row)));
        }
        if wanted.contains(&What::Scale) {
            all.extend(self.scaling.iter().flat_map(|row| self.of_scaling(row)));
        }
        all
    }

    fn of_latency(&self, row: &LatencyRow) -> Judged {
        let bound = row.platform.latency_bound_us().map_or_else(Bound::default, Bound::at_most);
        let title = "from report to decision, 99 of 100 (us)";
        let claim = claim(&self.start, "latency", title, row.platform.title().into());
        let claim = Judged { behind: behind(row.p99s_us.len(), 1, row.trials), ..claim };
        let claim = claim.by_values(bound, &row.p99s_us, 1, self.start.seed);
        claim.beside_pooled(bound, Some(row.p99_us))
    }

    /// The worst trial counts.
    fn of_scaling(&self, row: &ScaleRow) -> Vec<Judged> {
        let place = format!("{}, {} connections", row.platform.title(), row.flows);
        let at_most = |title: &str, most: f64, figure: f64| {
            let claim = claim(&self.start, "scale", title, place.clone());
            let claim = Judged { behind: behind(row.trials, 1, row.trials), ..claim };
            claim.by_one(Bound::at_most(most), Some(figure))
        };
        let mut all = Vec::new();
        if Platform::REPORTING.contains(&row.platform) {
            all.push(at_most("reports lost", 0.0, row.reports_lost as f64));
        }
        if row.platform == Platform::Agent10Ms && Some(&row.flows) == FLOWS.last() {
            let percent = 100.0 * row.agent_share;
            all.push(at_most("agent (% of a core)", AGENT_PERCENT_MAX, percent));
        }
        all
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

/// A claim about `place` that is to be judged.
fn claim(start: &Start, part: &str, claim: &str, place: String) -> Judged {
    let (of, commit) = (format!("platforms/{part}"), start.commit.clone());
    Judged { of, claim: claim.into(), place, commit, ..Judged::default() }
}

/// As many trials as were made count but those that have no such figure.
fn behind(values: usize, wanted: usize, trials: usize) -> Behind {
    let made = Made { arm: "trials".into(), runs: trials, rejected: 0 };
    Behind { values, wanted, made: vec![made] }
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
            let calls = median(trials, |row| {
                let acks = row.outcome.acks_per_s * row.outcome.sending_ns as f64 / 1e9;
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

/// Mean time of a call of the program that each acknowledgement meets (ns); `None`: it was not called.
fn control_ns(row: &TrialRow) -> Option<f64> {
    let is_control = |name: &str| name == "empty_control" || name.starts_with("cong_control_");
    let program = row.outcome.programs.iter().find(|it| is_control(&it.name) && it.calls > 0)?;
    Some(program.call_ns)
}

fn program_claims(rows: &Rows) -> Vec<Judged> {
    // Two segments an acknowledgement: as many of them as there can be.
    let blocks = groups(rows, Purpose::ProgramTimes, |row| (row.key.setting, row.key.block));
    let blocks = || blocks.iter().filter(|((setting, _), _)| *setting == Setting::Gso2);
    let of = |platform: Platform| {
        let bound_ns = platform.fold_bound_ns()?;
        let over_empty = |trials: &Vec<&TrialRow>| {
            // Of a block that was begun again the last attempt.
            let time = |wanted| {
                let mut own = trials.iter().rev().filter(|row| row.key.platform == wanted);
                control_ns(own.next()?)
            };
            Some(time(platform)? - time(Platform::Empty)?)
        };
        let values: Vec<f64> = blocks().filter_map(|(_, trials)| over_empty(trials)).collect();
        let place = format!("{}, {}", platform.title(), Setting::Gso2.title());
        let claim = Judged {
            behind: behind(values.len(), VALUES_MIN, blocks().count()),
            ..claim(&rows.start, "cpu", "an ACK over the empty program (ns)", place)
        };
        let bound = Bound::at_most(bound_ns);
        Some(claim.by_values(bound, &values, VALUES_MIN, rows.start.seed).beside_whole(bound))
    };
    if blocks().next().is_none() {
        return Vec::new();
    }
    Platform::TIMED.into_iter().filter_map(of).collect()
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
            p99s_us: {
                let agents = trials.iter().filter_map(|row| agent(row));
                agents.map(|agent| agent.latency_ns[2] as f64 / 1e3).collect()
            },
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
    use forebay_testbed::cost::{Outcome, ProgramCost};

    use super::super::rows::TrialKey;
    use super::super::rows::tests::key;
    use super::super::tables::tests::findings;
    use super::*;
    use crate::judge::{Verdict, Why};

    fn found(trials: Vec<(TrialKey, Outcome)>) -> Findings {
        let folder = tempfile::tempdir().unwrap();
        let start = Start::default().with_schema();
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
            let sending_ns = 1_000_000_000;
            (key, Outcome { acks_per_s: 1000.0, sending_ns, programs, ..Outcome::default() })
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
    fn a_fold_is_claimed_over_the_empty_program_of_its_own_block() {
        let timed = |platform, block: u32, name: &str, call_ns| {
            let key = TrialKey { purpose: Purpose::ProgramTimes, ..key(platform, block) };
            let program = ProgramCost { name: name.into(), calls: 500, call_ns, instructions: 77 };
            (key, Outcome { programs: vec![program], ..Outcome::default() })
        };
        // The machine is slower by far more than the bound from block to block.
        let trials = |over: f64| {
            let block = move |block: u32| {
                let empty = 80.0 + 50.0 * f64::from(block);
                [
                    timed(Platform::Empty, block, "empty_control", empty),
                    timed(Platform::Fold, block, "cong_control_4", empty + over),
                    timed(Platform::AgentAck, block, "cong_control_2", empty + 2.0 * over),
                ]
            };
            found((0..8).flat_map(block).collect()).program_claims
        };
        let claims = trials(50.0);
        let fold = &claims[0];
        assert!(
            fold.place.starts_with("datapath without slot") && fold.bound == "≤ 60",
            "{fold:?}"
        );
        assert_eq!(fold.behind.to_string(), "8/6, made trials 8");
        assert!((fold.figure.unwrap() - 50.0).abs() < 1e-9 && fold.verdict == Verdict::Met);
        let few = Verdict::NotShown(Why::TooFew);
        assert!(claims[1].place.starts_with("agent per round") && claims[1].verdict == few);
        assert!(claims[2].bound == "≤ 120" && claims[2].verdict == Verdict::Met);
        let far = trials(61.0);
        assert_eq!([far[0].verdict, far[2].verdict], [Verdict::Failed, Verdict::Failed]);
    }

    fn scaled(platform: Platform, flows: u32, reports_lost: u64, agent_share: f64) -> ScaleRow {
        ScaleRow { platform, flows, reports_lost, agent_share, ..findings().scaling[0].clone() }
    }

    fn complaints(findings: &Findings, wanted: &[What]) -> Vec<String> {
        findings.claims(wanted, &Setting::ALL[..2]).iter().filter_map(Judged::complaint).collect()
    }

    #[test]
    fn lost_reports_and_a_busy_agent_fail() {
        let mut findings = findings();
        findings.scaling = vec![
            scaled(Platform::Kernel, 1000, 0, 0.0),
            scaled(Platform::AgentRound, 1000, 3, 0.9),
            scaled(Platform::Agent10Ms, 100, 0, 0.1),
            scaled(Platform::Agent10Ms, 1000, 0, 0.11),
        ];
        let found = complaints(&findings, &[What::Scale]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("agent per round, 1000") && found[0].contains("lost ≤ 0: 3"));
        assert!(found[1].starts_with("FAILED") && found[1].contains("≤ 10: 11"), "{found:?}");
        assert!(complaints(&findings, &[What::Latency]).is_empty());
    }

    #[test]
    fn an_agent_that_answers_too_late_fails_where_that_is_claimed() {
        let row = |platform, p99_us| LatencyRow {
            platform,
            trials: 3,
            reports_per_s: 1e4,
            p50_us: 1.0,
            p90_us: 2.0,
            p99_us,
            p99s_us: vec![p99_us; 3],
            max_us: 2e4,
        };
        let mut findings = findings();
        findings.latencies = vec![row(Platform::Agent10Ms, 1e4), row(Platform::AgentAck, 990.0)];
        assert!(complaints(&findings, &[What::Latency]).is_empty());
        findings.latencies[1] = row(Platform::AgentAck, 1010.0);
        let found = complaints(&findings, &[What::Latency]);
        assert!(
            found.len() == 1 && found[0].contains("FAILED: platforms/latency, agent per ACK"),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_void_or_was_not_run_is_not_shown() {
        let mut findings = findings();
        findings.scores[0].claims[0].verdict = Verdict::NotShown(Why::Void);
        let found = complaints(&findings, &[What::Cpu]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("NOT SHOWN: VOID: platforms/cpu, native eBPF"), "{found:?}");
        assert!(found[1].starts_with("NOT SHOWN: NOT RUN: platforms/cpu, GSO unl"), "{found:?}");
    }
}
