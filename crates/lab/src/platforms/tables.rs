//! The findings as tables with titles and cells, for a terminal and for the report.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::figures::Findings;
use super::scores::{Metric, PlatformScore, Scores};
use crate::judge::table::{self, PlainTable, interval, table, titled};
use crate::metrics::{Pooling, describe, heading};
use crate::output::{cell, number};
use crate::summary::ArmSummary;

fn p99(latency_us: Option<f64>) -> String {
    latency_us.map_or_else(|| "-".into(), number)
}

/// Every platform compared with its baseline.
pub fn scores(scores: &Scores) -> PlainTable {
    let row = |score: &PlatformScore| {
        let rejected: usize = score.rejected.values().sum();
        let means = score.means;
        [
            score.platform.title().into(),
            score.baseline.title().into(),
            score.scores.len().to_string(),
            rejected.to_string(),
            interval(score.score),
            interval(score.cpu_ratio),
            number(means.cpu_s_per_gb),
            number(means.bytes_per_s * 8.0 / 1e6),
            number(means.acks_per_s),
            number(100.0 * means.agent_share),
            number(means.reports_per_s),
            p99(means.latency_p99_us),
            number(means.retransmissions),
        ]
    };
    let titles = [
        "platform",
        "beside",
        "pairs",
        "rejected",
        "CPU score",
        "CPU s/GB ratio",
        "CPU s/GB",
        "Mbit/s",
        "ACK/s",
        "agent (% of a core)",
        "reports/s",
        "p99 (us)",
        "retransmissions",
    ];
    table(titles, scores.platforms.iter().map(row).collect())
}

/// Description of the setting.
pub fn setting(scores: &Scores) -> String {
    let mut text = String::new();
    if let Some(calibration) = &scores.calibration {
        let (rate, share) = (calibration.rate_bps as f64 / 1e6, 100.0 * calibration.share);
        let _ = write!(
            text,
            "{} Mbit/s, at which the kernel's own takes {share:.0} % of the processor",
            number(rate)
        );
        if let Some(share) = scores.kernel_share {
            let _ = write!(text, ", and {:.0} % in the scored trials", 100.0 * share);
        }
        text += ". ";
    } else if !scores.setting.has_rate() {
        text += "As fast as it goes: bytes and acknowledgements are those that each platform gets done. ";
    }
    text.trim_end().to_string()
}

/// Reasons why pairs are invalid or count as 0.
pub fn rejected(scores: &Scores) -> PlainTable {
    let rows = scores.platforms.iter().flat_map(|score| {
        let row = |as_what: &str, why: &str, pairs: &usize| {
            [score.platform.title().into(), pairs.to_string(), as_what.into(), why.into()]
        };
        let rejected = score.rejected.iter().map(move |(why, pairs)| row("nothing", why, pairs));
        rejected.chain(score.neglected.iter().map(move |(why, pairs)| row("0", why, pairs)))
    });
    table(["platform", "pairs", "count as", "reason"], rows.collect())
}

/// Calls per acknowledgement above which a program affects the cost of an acknowledgement.
const CALLS_MIN: f64 = 0.01;

/// Time of each BPF program that acknowledgements run.
pub fn programs(findings: &Findings) -> PlainTable {
    let met = findings.programs.iter().filter(|row| row.calls_per_ack >= CALLS_MIN);
    let rows = met.map(|row| {
        [
            row.setting.title().into(),
            row.platform.title().into(),
            row.program.clone(),
            number(row.calls_per_ack),
            number(row.call_ns),
            row.over_empty_ns.map_or_else(|| "-".into(), number),
        ]
    });
    let titles = ["setting", "platform", "program", "calls/ACK", "ns/call", "over empty (ns)"];
    table(titles, rows.collect())
}

/// Instructions that the verifier examined, and the time of rarely called programs.
pub fn instructions(findings: &Findings) -> PlainTable {
    let mut seen = BTreeSet::new();
    let first = findings.programs.iter().filter(|row| seen.insert(&row.program));
    let rows = first.map(|row| {
        let time = Some(row.call_ns).filter(|ns| *ns > 0.0);
        let time = time.map_or_else(|| "-".into(), number);
        [row.program.clone(), row.instructions.to_string(), time]
    });
    table(["program", "verified instructions", "ns/call"], rows.collect())
}

/// Metrics shown for trials with timed decisions.
const OF_LATENCY: [&str; 5] =
    ["reports_per_s", "decision_p50_us", "decision_p90_us", "decision_p99_us", "decision_max_us"];

/// Metrics shown for trials with many connections.
const OF_SCALE: [&str; 6] = [
    "acked_mbps",
    "cpu_s_per_gb",
    "reports_per_s",
    "reports_lost",
    "agent_core_percent",
    "fallbacks",
];

/// A metric over trials: the median, or another pooling that the catalogue names.
pub fn shown(arm: &ArmSummary, metric: &str) -> Option<f64> {
    match describe(metric)?.pooling {
        Pooling::Mean => arm.spread(metric).map(|spread| spread.median),
        _ => arm.metrics.get(metric),
    }
}

/// Latencies from report to decision.
pub fn latencies(findings: &Findings) -> PlainTable {
    of_runs(&findings.latencies, &OF_LATENCY)
}

/// Results with many connections.
pub fn scaling(findings: &Findings) -> PlainTable {
    of_runs(&findings.scaling, &OF_SCALE)
}

fn of_runs(arms: &[ArmSummary], metrics: &[&str]) -> PlainTable {
    let row = |arm: &ArmSummary| {
        let name = format!("{} {}", arm.arm, arm.cell).trim_end().to_string();
        let values = metrics.iter().map(|metric| cell(shown(arm, metric)));
        [name, arm.runs.to_string()].into_iter().chain(values).collect()
    };
    let titles = ["platform", "trials"].map(String::from).into_iter();
    (titles.chain(metrics.iter().map(|it| heading(it))).collect(), arms.iter().map(row).collect())
}

/// All tables for a terminal.
pub fn text(findings: &Findings, metric: Metric) -> String {
    let mut text = String::new();
    for one in &findings.scores {
        text += &titled(&format!("CPU, {}\n{}", one.setting.title(), setting(one)), &scores(one));
        text += &titled("pairs that are no scores", &rejected(one));
    }
    for (title, table) in [
        ("BPF programs that acknowledgements meet", programs(findings)),
        ("all BPF programs", instructions(findings)),
        ("from report to decision", latencies(findings)),
        ("as fast as it goes, GSO unlimited", scaling(findings)),
    ] {
        text += &titled(title, &table);
    }
    // The bounds apply to the score.
    if metric == Metric::Score {
        text += &titled("claims", &table::of_claims(&findings.claims));
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::figures::ProgramRow;
    use super::super::platform::{Platform, Setting};
    use super::super::rows::{Calibration, Start};
    use super::*;
    use crate::judge::{Bound, Interval, Judged, SEED, Verdict};

    fn program(name: &str, calls_per_ack: f64) -> ProgramRow {
        ProgramRow {
            setting: Setting::Gso2,
            platform: Platform::Native,
            program: name.into(),
            calls_per_ack,
            call_ns: 78.5,
            over_empty_ns: Some(20.25),
            instructions: 4572,
        }
    }

    pub fn findings() -> Findings {
        let score = Some(Interval { median: 0.987, low: 0.981, high: 0.9934 });
        let calibration = Calibration {
            setting: Setting::Gso2,
            rate_bps: 812_000_000,
            idle_per_s: 3e8,
            share: 0.584,
        };
        let platform = PlatformScore {
            platform: Platform::Native,
            baseline: Platform::Kernel,
            scores: vec![0.98, 0.99],
            score,
            cpu_ratios: vec![1.01, 1.02],
            cpu_ratio: None,
            rejected: [("bytes differ by more than 1 %".to_string(), 3)].into(),
            neglected: [("reports were lost", 1)].into(),
            means: Default::default(),
        };
        let judged = |claim: &str, place: &str| Judged {
            of: "platforms/cpu".into(),
            claim: claim.into(),
            place: place.into(),
            ..Judged::default()
        };
        let native = judged("CPU score", "native eBPF, GSO of 2 segments");
        let native = native.by_values(Bound::at_least(0.98), &[0.987; 20], 20, SEED);
        let claim = Judged { verdict: Verdict::Met, interval: score, ..native };
        let fold = judged("an ACK over the empty program (ns)", "datapath without slot");
        let fold = fold.by_values(Bound::at_most(60.0), &[31.3; 8], 6, SEED);
        let mut scale = ArmSummary { arm: "agent_10ms".into(), runs: 3, ..ArmSummary::default() };
        scale.cell = "connections=1000".into();
        scale.by_seed.insert("acked_mbps".into(), vec![14_000.0; 3]);
        Findings {
            start: Start { commit: "abc123".into(), algorithm: "cubic".into(), ..Start::default() },
            scores: vec![Scores {
                setting: Setting::Gso2,
                calibration: Some(calibration),
                platforms: vec![platform],
                kernel_share: Some(0.612),
            }],
            programs: vec![program("native_cong_avo", 1.02), program("native_init", 0.0001)],
            latencies: Vec::new(),
            scaling: vec![scale],
            claims: vec![claim, fold],
        }
    }

    #[test]
    fn a_terminal_shows_verdicts_with_their_intervals() {
        let text = text(&findings(), Metric::Score);
        for part in [
            "CPU, GSO of 2 segments, SCHED_IDLE\n812 Mbit/s, at which the kernel's own takes 58 %",
            ", and 61 % in the scored trials.",
            "31.3 [31.3, 31.3]",
            "reports were lost",
            "bytes differ by more than 1 %",
            "agent_10ms connections=1000",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains("from report to decision"), "{text}");
        assert_eq!(text.matches("native_init").count(), 1, "no acknowledgement meets it:\n{text}");
        assert_eq!(text.matches("native_cong_avo").count(), 2);
        let other = super::text(&findings(), Metric::CpuPerGb);
        assert!(!other.contains("claims"), "bounds are of the score only:\n{other}");
    }
}
