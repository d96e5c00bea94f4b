//! Cost of a congestion control, of trials on one processor.
//!
//! A score is the ratio of two trials of one time. A pair counts only if both moved the same bytes with the same
//! acknowledgements, where their rate is fixed, and were undisturbed. These limits do not look at the count. An
//! agent that stopped deciding for a time, which is cheaper, has a score of 0.

use forebay_core::record::{CostRecord, TrialAgentRecord, TrialRecord};
use forebay_scenario::{Cost, CostPlatform, CostRate, Report};

use super::entry::Pooling::{Max, Mean, Sum};
use super::entry::{Entry, OWN, entry};
use super::{Evaluation, Metrics};
use crate::experiment::Experiment;

/// Largest difference of a pair in bytes and acknowledgements per second, as a share.
const UNEQUAL_MAX: f64 = 0.01;
/// Largest share of a trial's time that the hypervisor may steal.
const STEAL_MAX: f64 = 0.01;
/// Largest share of a trial's time that other processes may use of its processor.
const FOREIGN_MAX: f64 = 0.02;
/// Fewest reports per acknowledgement for an agent that should hear of every one.
const REPORTS_PER_ACK_MIN: f64 = 0.99;

/// The source of the score.
const STUDY: &str = "study of eBPFCCP (claby2/ebpfcca)";

/// Metrics of a trial; for those in brackets the name of a BPF program follows.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("cpu_score", "run", "", Mean,
        "CPU left for other work: count of a counting process divided by its count for the \
         baseline in the same block; 0 if an agent neglected its work",
        "n / n_base", STUDY),
    entry("cpu_ratio", "run", "", Mean,
        "CPU time per byte over that of the arm that it is compared with, in the same block", "c / c_base", OWN),
    entry("processor_share", "run", "", Mean,
        "share of the processor that the traffic takes from the counting process",
        "1 - n / n_idle", OWN),
    entry("ack_over_empty_ns", "run", "ns", Mean,
        "run time of the BPF program called for each acknowledgement, minus its run time in the \
         baseline arm of the same block",
        "t - t_base", OWN),
    entry("program_ns", "run", "ns", Mean,
        "mean run time of a BPF program, including the cost of timing it; program_ns[NAME]", "t / #{calls}", OWN),
    entry("program_calls_per_ack", "run", "", Mean,
        "calls of a BPF program per acknowledgement; program_calls_per_ack[NAME]",
        "#{calls} / #{acknowledgements}", OWN),
    entry("program_instructions", "run", "", Max,
        "instructions of a BPF program that the verifier examined; program_instructions[NAME]",
        "#{instructions}", OWN),
    entry("decision_p50_us", "run", "us", Mean,
        "median time from a report to the decision that answers it", "Q50(decision - report)", OWN),
    entry("decision_p90_us", "run", "us", Mean,
        "90th percentile of the time from a report to its decision",
        "Q90(decision - report)", OWN),
    entry("decision_p99_us", "run", "us", Mean,
        "99th percentile of the time from a report to its decision",
        "Q99(decision - report)", OWN),
    entry("decision_max_us", "run", "us", Mean, "longest time from a report to its decision",
        "max(decision - report)", OWN),
    entry("reports_per_s", "run", "1/s", Mean, "reports that the agent reads per second",
        "#{reports} / time", OWN),
    entry("reports_lost", "run", "", Sum,
        "reports dropped because the buffer to the agent was full",
        "#{reports}", OWN),
    entry("fallbacks", "run", "", Sum, "times a connection fell back to the kernel's own algorithm",
        "#{fallbacks}", OWN),
    entry("decisions_stale", "run", "", Sum, "decisions that an agent withheld because they came too late",
        "#{decisions}", OWN),
    entry("offered_mbps", "run", "Mbit/s", Mean, "rate of the traffic of a trial, given or searched", "rate", OWN),
    entry("acks_per_s", "run", "1/s", Mean, "acknowledgements that the sender receives in a second",
        "#{acknowledgements} / time", OWN),
    entry("resent_segments", "run", "", Sum, "segments sent again in trials", "#{segments}", OWN),
    entry("acked_mbps", "run", "Mbit/s", Mean, "payload acknowledged", "8 bytes / time", OWN),
    entry("cpu_s_per_gb", "run", "s/GB", Mean,
        "CPU time per 10^9 bytes, summed over both ends, the agent and the kernel's packet thread",
        "CPU time / bytes", OWN),
    entry("agent_core_percent", "run", "%", Max, "share of a processor that the agent uses",
        "100 CPU time / time", OWN),
];

/// The metrics of a trial, and why it or its pair does not count.
pub fn evaluate(experiment: &Experiment, record: &CostRecord) -> Evaluation {
    let mut evaluation = Evaluation { run: of_trial(record), ..Evaluation::default() };
    let Some(cost) = &experiment.cost else { return evaluation };
    let (trial, run) = (&record.trial, &mut evaluation.run);
    if cost.times_programs {
        of_programs(record, run);
        return evaluation;
    }
    if cost.over.is_none() {
        return evaluation;
    }
    let Some(compared) = &record.compared else {
        evaluation.invalid.extend(disturbance(trial).map(String::from));
        return evaluation;
    };
    match objection(cost, experiment.agent.report, trial, compared) {
        Some(Objection::Rejected(reason)) => evaluation.invalid.push(reason),
        Some(Objection::Neglected) => run.put("cpu_score", Some(0.0)),
        None => {
            run.put("cpu_score", Some(trial.counted_per_s / compared.counted_per_s));
            let cpu = trial.cpu_s_per_gb().zip(compared.cpu_s_per_gb());
            run.put("cpu_ratio", cpu.map(|(one, other)| one / other));
        }
    }
    evaluation
}

/// Metrics of the trial alone.
fn of_trial(record: &CostRecord) -> Metrics {
    let (trial, mut run) = (&record.trial, Metrics::default());
    for (metric, value) in [
        ("offered_mbps", record.rate_bps.map(|rate| rate as f64 / 1e6)),
        ("processor_share", record.idle_per_s.map(|idle| 1.0 - trial.counted_per_s / idle)),
        ("acked_mbps", Some(trial.bytes_per_s * 8.0 / 1e6)),
        ("acks_per_s", Some(trial.acks_per_s)),
        ("cpu_s_per_gb", trial.cpu_s_per_gb()),
        ("resent_segments", Some(trial.retransmissions as f64)),
    ] {
        run.put(metric, value);
    }
    let Some(agent) = &trial.agent else { return run };
    let [p50, p90, p99, max] = agent.latency_ns.map(|ns| ns as f64 / 1e3);
    for (metric, value) in [
        ("agent_core_percent", 100.0 * trial.share(trial.agent_cpu_ns)),
        ("reports_per_s", agent.reports_per_s),
        ("reports_lost", agent.reports_lost as f64),
        ("fallbacks", agent.fallbacks as f64),
        ("decisions_stale", agent.stale as f64),
        ("decision_p50_us", p50),
        ("decision_p90_us", p90),
        ("decision_p99_us", p99),
        ("decision_max_us", max),
    ] {
        run.put(metric, Some(value));
    }
    run
}

/// Metrics of the BPF programs of a trial that timed them.
fn of_programs(record: &CostRecord, run: &mut Metrics) {
    let trial = &record.trial;
    let acks = trial.acks_per_s * trial.sending_ns as f64 / 1e9;
    for program in &trial.programs {
        let calls = (acks > 0.0).then(|| program.calls as f64 / acks);
        let call_ns = (program.calls > 0).then_some(program.call_ns);
        let name = |metric| format!("{metric}[{}]", program.name);
        run.put(&name("program_ns"), call_ns);
        run.put(&name("program_calls_per_ack"), calls);
        run.put(&name("program_instructions"), Some(f64::from(program.instructions)));
    }
    let compared = record.compared.as_ref().and_then(control_ns);
    let over = control_ns(trial).zip(compared).map(|(own, other)| own - other);
    run.put("ack_over_empty_ns", over);
}

/// Mean time of a call of the program that each acknowledgement runs (ns); `None`: it was not called.
fn control_ns(trial: &TrialRecord) -> Option<f64> {
    let is_control = |name: &str| name == "empty_control" || name.starts_with("cong_control_");
    let program = trial.programs.iter().find(|it| is_control(&it.name) && it.calls > 0)?;
    Some(program.call_ns)
}

/// Reason why a trial is invalid.
pub fn disturbance(trial: &TrialRecord) -> Option<&'static str> {
    if trial.counted_per_s.is_nan() || trial.counted_per_s <= 0.0 {
        return Some("nothing was counted");
    }
    if trial.share(trial.steal_ns) > STEAL_MAX {
        return Some("the hypervisor stole more than 1 %");
    }
    if trial.share(trial.foreign_ns) > FOREIGN_MAX {
        return Some("other processes used more than 2 % of the processor");
    }
    None
}

/// Reason why a trial's agent did not do its platform's work; skipping work is cheaper.
fn neglect(trial: &TrialRecord, hears_of_every_ack: bool) -> Option<&'static str> {
    let agent = trial.agent.as_ref()?;
    let TrialAgentRecord { fallbacks, reports_lost, stale, reports_per_s, .. } = *agent;
    let is_deaf = reports_per_s < REPORTS_PER_ACK_MIN * trial.acks_per_s;
    let reasons = [
        (fallbacks > 0, "the agent's connection fell back"),
        (reports_lost > 0, "reports were lost"),
        (stale > 0, "decisions came too late"),
        (hears_of_every_ack && is_deaf, "fewer reports than acknowledgements"),
    ];
    reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason))
}

/// Reason why a pair's trials are not comparable.
#[derive(Debug, PartialEq)]
enum Objection {
    /// The trial does not count.
    Rejected(String),
    /// The trial counts against the platform.
    Neglected,
}

/// The objection to a pair, if any.
fn objection(
    cost: &Cost,
    report: Report,
    one: &TrialRecord,
    compared: &TrialRecord,
) -> Option<Objection> {
    let disturbed = disturbance(one).or_else(|| disturbance(compared));
    let of_every_ack = cost.platform == CostPlatform::Agent && report == Report::Ack;
    let neglected = neglect(one, of_every_ack).or_else(|| neglect(compared, false));
    // The slowed agent and its baseline must both have done their work; this control has no score of 0.
    let is_control = !cost.burden.is_zero();
    if let Some(reason) = disturbed.or_else(|| neglected.filter(|_| is_control)) {
        return Some(Objection::Rejected(reason.into()));
    }
    if neglected.is_some() {
        return Some(Objection::Neglected);
    }
    if cost.rate == CostRate::Unlimited {
        return None;
    }
    for (name, one, other) in [
        ("bytes", one.bytes_per_s, compared.bytes_per_s),
        ("acknowledgements", one.acks_per_s, compared.acks_per_s),
    ] {
        let is_equal = (one - other).abs() <= UNEQUAL_MAX * other;
        if !is_equal {
            return Some(Objection::Rejected(format!("{name} differ by more than 1 %")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_core::record::ProgramRecord;

    use super::*;
    use crate::plan::Plan;

    fn trial(count: f64) -> TrialRecord {
        TrialRecord {
            counted_per_s: count,
            window_ns: 1_000_000_000,
            bytes_per_s: 1e8,
            acks_per_s: 3e4,
            sending_ns: 1_000_000_000,
            sender_cpu_ns: 600_000_000,
            ..TrialRecord::default()
        }
    }

    fn of_agent(agent: TrialAgentRecord) -> TrialRecord {
        TrialRecord { agent: Some(agent), ..trial(900.0) }
    }

    /// The experiment of an arm of a plan in its first cell.
    fn experiment(plan: &str, arm: &str) -> Experiment {
        let plan = Plan::load(plan, &[]).unwrap();
        let arm = plan.arms.iter().find(|it| it.name == arm).unwrap();
        plan.experiment(arm, &plan.cells[0], 1).unwrap()
    }

    fn evaluated(arm: &str, trial: TrialRecord, compared: &TrialRecord) -> Evaluation {
        let compared = Some(compared.clone());
        let record = CostRecord { trial, compared, idle_per_s: Some(3000.0), ..Default::default() };
        evaluate(&experiment("platforms/cpu", arm), &record)
    }

    #[test]
    fn scores_are_ratios_of_a_pair() {
        let base = trial(1000.0);
        let other = TrialRecord { sender_cpu_ns: 660_000_000, ..trial(990.0) };
        let found = evaluated("native", other, &base);
        assert!(found.invalid.is_empty());
        for (metric, value) in [
            ("cpu_score", 0.99),
            ("cpu_ratio", 1.1),
            ("processor_share", 0.67),
            ("acked_mbps", 800.0),
        ] {
            assert!((found.run.get(metric).unwrap() - value).abs() < 1e-9, "{metric}: {found:?}");
        }
        let alone = CostRecord { trial: base, ..CostRecord::default() };
        let alone = evaluate(&experiment("platforms/cpu", "kernel"), &alone);
        assert!(alone.invalid.is_empty() && alone.run.get("cpu_score").is_none());
    }

    #[test]
    fn neglected_work_scores_zero() {
        let base = trial(1000.0);
        let whole = TrialAgentRecord { reports_per_s: 29_800.0, ..TrialAgentRecord::default() };
        let score = |arm, agent| evaluated(arm, of_agent(agent), &base).run.get("cpu_score");
        assert_eq!(score("agent_ack", whole.clone()), Some(0.9));
        // There are 30,000 acknowledgements per second.
        let deaf = TrialAgentRecord { reports_per_s: 29_600.0, ..whole.clone() };
        assert_eq!(score("agent_round", deaf.clone()), Some(0.9));
        for (arm, agent) in [
            ("agent_ack", deaf),
            ("agent_round", TrialAgentRecord { fallbacks: 1, ..whole.clone() }),
            ("agent_10ms", TrialAgentRecord { reports_lost: 1, ..whole.clone() }),
            ("agent_round", TrialAgentRecord { stale: 1, ..whole.clone() }),
        ] {
            assert_eq!(score(arm, agent), Some(0.0), "{arm}");
        }
        // A control that the test detects for such a reason would prove nothing.
        let lost = TrialAgentRecord { reports_lost: 1, ..whole.clone() };
        for (slowed, compared) in [(whole.clone(), lost.clone()), (lost, whole)] {
            let found = evaluated("agent_slowed", of_agent(slowed), &of_agent(compared));
            assert_eq!(found.invalid, ["reports were lost"]);
        }
    }

    #[test]
    fn unequal_or_disturbed_pairs_are_rejected() {
        let base = trial(1000.0);
        for (case, part) in [
            (TrialRecord { bytes_per_s: 0.989e8, ..base.clone() }, "bytes differ"),
            (TrialRecord { acks_per_s: 3.04e4, ..base.clone() }, "acknowledgements differ"),
            (TrialRecord { steal_ns: 11_000_000, ..base.clone() }, "stole"),
            (TrialRecord { foreign_ns: 21_000_000, ..base.clone() }, "other processes used"),
            (TrialRecord { counted_per_s: 0.0, ..base.clone() }, "nothing was counted"),
            (TrialRecord { bytes_per_s: f64::NAN, ..base.clone() }, "bytes differ"),
        ] {
            let found = evaluated("native", case, &base);
            assert!(found.invalid[0].contains(part), "{part}: {found:?}");
            assert!(found.run.get("cpu_score").is_none());
        }
        // As fast as possible, a pair counts whatever it moved.
        let slower = TrialRecord { bytes_per_s: 0.5e8, acks_per_s: 1e4, ..base.clone() };
        let native = experiment("platforms/cpu", "native");
        let cost = native.cost.clone().unwrap();
        let cost = Cost { rate: CostRate::Unlimited, burden: Duration::ZERO, ..cost };
        assert_eq!(objection(&cost, Report::Round, &slower, &base), None);
    }

    #[test]
    fn programs_cost_more_than_the_empty_one() {
        let timed = |name: &str, call_ns| {
            let program =
                ProgramRecord { name: name.into(), calls: 15_000, call_ns, instructions: 77 };
            TrialRecord { programs: vec![program], ..trial(1.0) }
        };
        let (trial, compared) = (timed("cong_control_4", 190.0), timed("empty_control", 80.0));
        let record = CostRecord { trial, compared: Some(compared), ..CostRecord::default() };
        let run = evaluate(&experiment("platforms/programs", "agent_round"), &record).run;
        for (metric, value) in [
            ("ack_over_empty_ns", 110.0),
            ("program_ns[cong_control_4]", 190.0),
            ("program_calls_per_ack[cong_control_4]", 0.5),
            ("program_instructions[cong_control_4]", 77.0),
        ] {
            assert_eq!(run.get(metric), Some(value), "{metric}");
            assert!(super::super::describe(metric).is_some(), "{metric}");
        }
    }
}
