//! Trials as runs with metrics, so that claims are judged as in any plan.
//!
//! ```text
//! trial ──► Run: arm = platform, cell = setting, seed = block ──► ClaimResults ──► docs/claims.toml
//! ```
//! An arm has the name of its [`Platform`] and a cell the name of its [`Setting`] in JSON.

use std::collections::BTreeSet;

use forebay_testbed::cost::Outcome;
use serde::Serialize;
use serde_json::json;

use super::What;
use super::figures::{FLOWS, control_ns};
use super::platform::{Algorithm, Platform, Setting};
use super::rows::{PlatformRows, Purpose, TrialRow};
use super::scores::{Objection, disturbance, objection};
use crate::judge::{ClaimResults, Claims, Judged, PlanClaims};
use crate::metrics::Metrics;
use crate::store::{Run, RunKey, Store, StoreError};
use crate::summary::{ArmSummary, Requests, summarise};

/// The name of a platform or setting in results.
pub fn name(of: impl Serialize) -> String {
    json!(of).as_str().unwrap_or_default().to_string()
}

/// Judges the claims about the parts `what`, with scores in these settings. Claims about platforms that the
/// algorithm does not have are left out.
///
/// # Errors
/// The results cannot be pooled.
pub fn judged(
    rows: &PlatformRows,
    algorithm: &Algorithm,
    what: &[What],
    settings: &[Setting],
) -> Result<Vec<Judged>, StoreError> {
    let mut judged = Vec::new();
    for what in what {
        let results = match what {
            What::Cpu => cpu(rows, algorithm, settings, None)?,
            What::Latency => {
                let arms = Platform::REPORTING.map(name).to_vec();
                ClaimResults::of_runs(arms, vec![String::new()], latencies(rows))?
            }
            What::Scale => {
                let (arms, cells) = (Platform::SCALED.map(name), FLOWS.map(connections));
                ClaimResults::of_runs(arms.to_vec(), cells.to_vec(), scaling(rows))?
            }
        };
        judged.extend(claims(*what, rows, algorithm).judge("", &results, None));
    }
    Ok(judged)
}

/// The platforms with an open claim about their scores in the first `blocks` blocks, along with their
/// baselines; empty once everything is settled.
///
/// # Errors
/// The results cannot be pooled.
pub fn unresolved(
    rows: &PlatformRows,
    algorithm: &Algorithm,
    setting: Setting,
    blocks: u32,
) -> Result<Vec<Platform>, StoreError> {
    let results = cpu(rows, algorithm, &[setting], Some(blocks))?;
    let open = claims(What::Cpu, rows, algorithm).open_arms(&results, &name(setting));
    let is_open = |it: &Platform| open.contains(&name(it));
    let scored = algorithm.on(&Platform::SCORED);
    let mut wanted: Vec<Platform> = scored.iter().copied().filter(is_open).collect();
    let baselines: Vec<Platform> = wanted.iter().map(|it| it.baseline()).collect();
    if !wanted.is_empty() {
        wanted.extend(baselines);
        wanted.extend([Platform::Kernel, Platform::KernelAgain]);
        wanted.sort_unstable();
        wanted.dedup();
    }
    Ok(wanted)
}

/// The claims about a part. If the user named the rate, the claims about the traffic's CPU share are left out.
fn claims(what: What, rows: &PlatformRows, algorithm: &Algorithm) -> PlanClaims {
    let plans = Claims::builtin().plan.into_iter();
    let mut claims = { plans }.find(|it| it.name == what.part()).expect("a test reads them");
    if rows.start.rate_bps.is_some() {
        claims.claim.retain(|claim| claim.value != ["processor_share"]);
    }
    let all = [&Platform::SCORED[..], &Platform::TIMED, &Platform::SCALED].concat();
    let arms: BTreeSet<String> = algorithm.on(&all).into_iter().map(name).collect();
    claims.of_arms(&arms.iter().map(String::as_str).collect())
}

/// The scored trials in `settings` and the trials with timed programs, from the first blocks.
fn cpu(
    rows: &PlatformRows,
    algorithm: &Algorithm,
    settings: &[Setting],
    blocks: Option<u32>,
) -> Result<ClaimResults, StoreError> {
    let mut runs = Vec::new();
    for row in last_attempts(rows, Purpose::Score) {
        let is_meant = settings.contains(&row.key.setting);
        if is_meant && blocks.is_none_or(|blocks| row.key.block < blocks) {
            runs.push(scored(rows, row));
        }
    }
    let mut cells: Vec<String> = settings.iter().map(name).collect();
    for row in last_attempts(rows, Purpose::ProgramTimes) {
        let cell = format!("programs_{}", name(row.key.setting));
        if !cells.contains(&cell) {
            cells.push(cell.clone());
        }
        runs.push(timed(rows, row, cell));
    }
    let arms = algorithm.on(&Platform::SCORED).into_iter().chain(algorithm.on(&Platform::TIMED));
    ClaimResults::of_runs(arms.map(name).collect(), cells, runs)
}

fn scored(rows: &PlatformRows, row: &TrialRow) -> Run {
    let (key, one) = (row.key, &row.outcome);
    let mut run = run_of(rows, row, name(key.setting), What::Cpu);
    if key.platform == Platform::Kernel {
        run.invalid.extend(disturbance(one).map(String::from));
        let idle_per_s = rows.calibration(key.setting).map(|it| it.idle_per_s);
        run.metrics.put("processor_share", idle_per_s.map(|idle| 1.0 - one.counted_per_s / idle));
        return run;
    }
    let base = outcome(rows, row, key.platform.baseline());
    match base.map(|base| (objection(key.platform, key.setting, one, base), base)) {
        Some((Some(Objection::Rejected(reason)), _)) => run.invalid.push(reason),
        Some((Some(Objection::Neglected(_)), _)) => run.metrics.put("cpu_score", Some(0.0)),
        Some((None, base)) => {
            run.metrics.put("cpu_score", Some(one.counted_per_s / base.counted_per_s));
        }
        None => {}
    }
    run
}

fn timed(rows: &PlatformRows, row: &TrialRow, cell: String) -> Run {
    let mut run = run_of(rows, row, cell, What::Cpu);
    let empty = outcome(rows, row, Platform::Empty).and_then(control_ns);
    let over = control_ns(&row.outcome).zip(empty).map(|(own, empty)| own - empty);
    run.metrics.put("ack_over_empty_ns", over);
    run
}

/// The trials of a part without scores, pooled by platform and cell.
///
/// # Errors
/// The trials cannot be pooled.
pub fn summaries(rows: &PlatformRows, what: What) -> Result<Vec<ArmSummary>, StoreError> {
    let mut runs = match what {
        What::Cpu => Vec::new(),
        What::Latency => latencies(rows),
        What::Scale => scaling(rows),
    };
    let place = |run: &Run| Platform::ALL.iter().position(|it| name(it) == run.key.arm);
    runs.sort_by_key(place);
    summarise(&Requests::new(&Store::in_memory()?), &runs)
}

fn latencies(rows: &PlatformRows) -> Vec<Run> {
    let run = |row: &TrialRow| {
        let mut run = run_of(rows, row, String::new(), What::Latency);
        let agent = row.outcome.agent.as_ref();
        run.metrics.put("reports_per_s", agent.map(|it| it.reports_per_s));
        for (place, metric) in
            ["decision_p50_us", "decision_p90_us", "decision_p99_us", "decision_max_us"]
                .iter()
                .enumerate()
        {
            run.metrics.put(metric, agent.map(|it| it.latency_ns[place] as f64 / 1e3));
        }
        run
    };
    last_attempts(rows, Purpose::Latency).map(run).collect()
}

fn scaling(rows: &PlatformRows) -> Vec<Run> {
    let run = |row: &TrialRow| {
        let mut run = run_of(rows, row, connections(row.key.flows), What::Scale);
        let (outcome, agent) = (&row.outcome, row.outcome.agent.as_ref());
        let percent = 100.0 * outcome.share(outcome.agent_cpu_ns);
        for (metric, value) in [
            ("acked_mbps", Some(outcome.bytes_per_s * 8.0 / 1e6)),
            ("cpu_s_per_gb", outcome.cpu_s_per_gb()),
            ("reports_per_s", agent.map(|agent| agent.reports_per_s)),
            ("reports_lost", agent.map(|agent| agent.reports_lost as f64)),
            ("agent_core_percent", agent.map(|_| percent)),
            ("fallbacks", agent.map(|agent| agent.fallbacks as f64)),
        ] {
            run.metrics.put(metric, value);
        }
        run
    };
    last_attempts(rows, Purpose::Scale).map(run).collect()
}

/// The cell of trials with this number of connections.
fn connections(flows: u32) -> String {
    format!("connections={flows}")
}

/// The trials for `purpose`; of each block only the last attempt.
fn last_attempts(rows: &PlatformRows, purpose: Purpose) -> impl Iterator<Item = &TrialRow> {
    let of_purpose = rows.trials.iter().filter(move |row| row.key.purpose == purpose);
    of_purpose.filter(move |row| {
        let key = row.key;
        let mut block = rows.block(purpose, key.setting, key.flows, key.block);
        block.any(|other| std::ptr::eq(other, *row))
    })
}

/// The outcome of another platform in the block of `row`.
fn outcome<'a>(rows: &'a PlatformRows, row: &TrialRow, wanted: Platform) -> Option<&'a Outcome> {
    let key = row.key;
    let mut block = rows.block(key.purpose, key.setting, key.flows, key.block);
    block.find(|other| other.key.platform == wanted).map(|other| &other.outcome)
}

/// The trial `row` as a run without metrics.
fn run_of(rows: &PlatformRows, row: &TrialRow, cell: String, what: What) -> Run {
    let key = RunKey {
        plan: what.part().into(),
        arm: name(row.key.platform),
        cell,
        seed: u64::from(row.key.block) + 1,
        sources: rows.start.sources.clone(),
        ..RunKey::default()
    };
    let metrics = Metrics::default();
    Run { key, commit: rows.start.commit.clone(), metrics, host: json!({}), ..Run::default() }
}

#[cfg(test)]
mod tests {
    use forebay_testbed::cost::{AgentOutcome, ProgramCost};

    use super::super::rows::tests::key;
    use super::super::rows::{Calibration, TrialKey};
    use super::super::scores::tests::{blocks, cubic, outcome, rows};
    use super::*;
    use crate::judge::{Verdict, Why};

    const VOID: Verdict = Verdict::NotShown(Why::Void);

    /// Rows in which the kernel's own algorithm takes its share of `idle_per_s`; it counts 1200 per second
    /// in the middle.
    fn calibrated(
        trials: Vec<(u32, Platform, Outcome)>,
        idle_per_s: f64,
    ) -> (tempfile::TempDir, PlatformRows) {
        let (folder, mut rows) = rows(trials);
        let (setting, rate_bps, share) = (Setting::Gso2, 1_000_000_000, 0.6);
        rows.put_calibration(Calibration { setting, rate_bps, idle_per_s, share }).unwrap();
        (folder, rows)
    }

    fn cpu_claims(rows: &PlatformRows) -> Vec<Judged> {
        judged(rows, &cubic(), &[What::Cpu], &[Setting::Gso2]).unwrap()
    }

    /// The claim about the score of an arm.
    fn score<'a>(claims: &'a [Judged], arm: &str) -> &'a Judged {
        let is_its = |it: &&Judged| it.claim.starts_with("CPU score") && it.place.starts_with(arm);
        claims.iter().find(is_its).unwrap()
    }

    fn open(rows: &PlatformRows) -> Vec<Platform> {
        unresolved(rows, &cubic(), Setting::Gso2, 100).unwrap()
    }

    #[test]
    fn pairs_of_a_block_cancel_machine_drift() {
        let (_folder, rows) = calibrated(blocks(20, 0.99, 0.8), 3000.0);
        let claims = cpu_claims(&rows);
        let native = score(&claims, "native");
        assert_eq!((native.verdict, native.behind.values), (Verdict::Met, 20));
        assert_eq!(native.of, "platforms/cpu");
        assert_eq!(score(&claims, "agent_round").verdict, Verdict::Failed);
        assert_eq!(score(&claims, "agent_ack").verdict, Verdict::NotShown(Why::NotRun));
        assert_eq!(score(&claims, "agent_slowed").verdict, Verdict::Met);
        let expected =
            [Platform::Kernel, Platform::KernelAgain, Platform::Agent10Ms, Platform::AgentAck];
        assert_eq!(open(&rows), expected);
    }

    #[test]
    fn an_unseen_slow_agent_voids_every_score() {
        let (_folder, rows) = calibrated(blocks(20, 0.99, 1.01), 3000.0);
        let claims = cpu_claims(&rows);
        assert_eq!(score(&claims, "agent_slowed").verdict, Verdict::Failed);
        assert_eq!(score(&claims, "native").verdict, VOID);
    }

    #[test]
    fn the_kernel_share_decides_whether_scores_count() {
        for (idle_per_s, rate_bps, verdict) in [
            (3000.0, None, Verdict::Met),
            (2000.0, None, VOID),
            (6000.0, None, VOID),
            (6000.0, Some(1_000_000_000), Verdict::Met),
        ] {
            let (_folder, mut rows) = calibrated(blocks(20, 0.99, 0.8), idle_per_s);
            rows.start.rate_bps = rate_bps;
            assert_eq!(score(&cpu_claims(&rows), "native").verdict, verdict, "{idle_per_s}");
        }
    }

    #[test]
    fn a_met_score_stays_open_while_its_interval_straddles() {
        // One more than half of the pairs are at 0.99.
        let mut trials = blocks(20, 0.99, 0.8);
        for (block, platform, trial) in &mut trials {
            let is_low = *platform == Platform::Native && *block >= 11;
            trial.counted_per_s *= if is_low { 0.9 } else { 1.0 };
        }
        let (_folder, rows) = calibrated(trials, 3000.0);
        assert_eq!(score(&cpu_claims(&rows), "native").verdict, Verdict::Met);
        assert!(open(&rows).contains(&Platform::Native));
    }

    #[test]
    fn scores_need_twenty_pairs_that_count() {
        let (_folder, few) = calibrated(blocks(19, 0.99, 0.8), 3000.0);
        let claims = cpu_claims(&few);
        let native = score(&claims, "native");
        assert_eq!(native.behind.to_string(), "19/20, made native 19");
        assert!(matches!(native.verdict, Verdict::NotShown(_)));
        assert!(open(&few).contains(&Platform::AgentSlowed), "with what it is compared with");
        assert!(open(&few).contains(&Platform::AgentRound));
        let mut trials = blocks(21, 0.99, 0.8);
        trials[1].2.bytes_per_s *= 0.9;
        let (_folder, rejected) = calibrated(trials, 3000.0);
        let claims = cpu_claims(&rejected);
        let native = score(&claims, "native");
        assert_eq!(native.behind.to_string(), "20/20, made native 21 (1 rejected)");
        assert_eq!(native.verdict, Verdict::Met);
    }

    #[test]
    fn an_ack_is_claimed_over_its_own_block() {
        let timed = |platform, block: u32, name: &str, call_ns| {
            let key = TrialKey { purpose: Purpose::ProgramTimes, ..key(platform, block) };
            let program = ProgramCost { name: name.into(), calls: 500, call_ns, instructions: 77 };
            TrialRow { key, outcome: Outcome { programs: vec![program], ..Outcome::default() } }
        };
        // From block to block the machine slows down by far more than the bound.
        let verdicts = |over: f64| {
            let (_folder, mut rows) = rows([]);
            for block in 0..8 {
                let empty = 80.0 + 50.0 * f64::from(block);
                for trial in [
                    timed(Platform::Empty, block, "empty_control", empty),
                    timed(Platform::Fold, block, "cong_control_4", empty + over),
                    timed(Platform::AgentAck, block, "cong_control_2", empty + 2.0 * over),
                ] {
                    rows.put_trial(trial).unwrap();
                }
            }
            let claims = judged(&rows, &cubic(), &[What::Cpu], &[]).unwrap();
            let of =
                |arm: &str| claims.iter().find(|it| it.place.starts_with(arm)).unwrap().verdict;
            ["fold", "agent_round", "agent_ack"].map(of)
        };
        let none = Verdict::NotShown(Why::NotRun);
        assert_eq!(verdicts(50.0), [Verdict::Met, none, Verdict::Met]);
        assert_eq!(verdicts(61.0), [Verdict::Failed, none, Verdict::Failed]);
    }

    /// A trial of an agent with these figures.
    fn of_agent(purpose: Purpose, platform: Platform, flows: u32, agent: AgentOutcome) -> TrialRow {
        let key = TrialKey { purpose, flows, ..key(platform, 0) };
        TrialRow { key, outcome: Outcome { agent: Some(agent), ..outcome(1.0) } }
    }

    fn complaints(trials: Vec<TrialRow>, what: What) -> Vec<String> {
        let (_folder, mut rows) = rows([]);
        trials.into_iter().for_each(|trial| rows.put_trial(trial).unwrap());
        let claims = judged(&rows, &cubic(), &[what], &[]).unwrap();
        let shown = claims.iter().filter(|it| !matches!(it.verdict, Verdict::NotShown(_)));
        shown.filter_map(Judged::complaint).collect()
    }

    #[test]
    fn lost_reports_and_a_busy_agent_fail() {
        let scaled = |platform, flows, reports_lost, busy_ns| {
            let agent = AgentOutcome { reports_lost, ..AgentOutcome::default() };
            let mut trial = of_agent(Purpose::Scale, platform, flows, agent);
            trial.outcome.agent_cpu_ns = busy_ns;
            trial
        };
        let found = complaints(
            vec![
                scaled(Platform::AgentRound, 1000, 3, 900_000_000),
                scaled(Platform::Agent10Ms, 100, 0, 900_000_000),
                scaled(Platform::Agent10Ms, 1000, 0, 110_000_000),
            ],
            What::Scale,
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].contains("agent_round connections=1000: reports lost ≤ 0: 3"),
            "{found:?}"
        );
        assert!(found[1].contains("≤ 10: 11"), "{found:?}");
    }

    #[test]
    fn trials_are_pooled_by_platform_and_connections() {
        let (_folder, mut rows) = rows([]);
        for (platform, flows, mega) in
            [(Platform::Native, 10, 1.0), (Platform::Kernel, 10, 2.0), (Platform::Kernel, 1, 4.0)]
        {
            let key = TrialKey { purpose: Purpose::Scale, flows, ..key(platform, 0) };
            let outcome = Outcome { bytes_per_s: mega * 1e6 / 8.0, ..outcome(1.0) };
            rows.put_trial(TrialRow { key, outcome }).unwrap();
        }
        let found = summaries(&rows, What::Scale).unwrap();
        let rows = found
            .iter()
            .map(|it| (it.arm.as_str(), it.cell.as_str(), it.metrics.get("acked_mbps")));
        let expected = [
            ("kernel", "connections=10", Some(2.0)),
            ("kernel", "connections=1", Some(4.0)),
            ("native", "connections=10", Some(1.0)),
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_late_agent_fails_where_that_is_claimed() {
        let late = |platform, p99_us: u64| {
            let latency_ns = [0, 0, 1000 * p99_us, 0];
            let agent = AgentOutcome { latency_ns, ..AgentOutcome::default() };
            of_agent(Purpose::Latency, platform, 1, agent)
        };
        let found = |us: u64| {
            let trials = vec![late(Platform::Agent10Ms, 10_000), late(Platform::AgentAck, us)];
            complaints(trials, What::Latency)
        };
        assert!(found(990).is_empty());
        assert!(found(1010)[0].starts_with("FAILED: platforms/latency, agent_ack"));
    }

    #[test]
    fn claims_name_arms_and_cells_of_trials() {
        let (_folder, rows) = rows([]);
        let all = [&Platform::SCORED[..], &Platform::TIMED, &Platform::SCALED].concat();
        let arms: Vec<String> = all.into_iter().map(name).collect();
        let cells: Vec<String> = Setting::ALL.into_iter().map(name).collect();
        for what in What::ALL {
            let claims = claims(what, &rows, &cubic());
            assert!(!claims.claim.is_empty(), "{what:?}");
            for claim in &claims.claim {
                assert!(claim.arms.iter().all(|arm| arms.contains(arm)), "{}", claim.text);
                let is_known = |cell: &String| {
                    let cell = cell.strip_prefix("programs_").unwrap_or(cell);
                    cells.contains(&cell.into()) || cell == "connections=1000"
                };
                assert!(claim.cells.iter().all(is_known), "{}", claim.text);
                let describes = |metric: &String| crate::metrics::describe(metric).is_some();
                assert!(claim.value.iter().all(describes), "{}", claim.text);
            }
        }
    }
}
