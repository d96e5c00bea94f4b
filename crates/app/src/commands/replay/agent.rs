//! Repeats the recording of an agent.

use std::fmt::Write;
use std::process::ExitCode;

use forebay_core::units::Rate;
use forebay_host::agent::replay::{self, Difference, ReplayedDecision};
use forebay_host::agent::rows::DecisionRow;
use forebay_policy::algorithms;

use super::Replay;
use crate::commands::{BadInput, print};

impl Replay {
    /// Repeats the decisions of an agent, and prints the differences.
    pub(super) fn execute_of_agent(self) -> anyhow::Result<ExitCode> {
        let wants_all = self.decisions;
        let mut is_read = true;
        let mut see = |step: &ReplayedDecision<'_>| {
            if wants_all && is_read {
                is_read = print(&line(step)).unwrap_or(false);
            }
        };
        if wants_all {
            print(&format!("{HEADER}\n"))?;
        }
        let replay = replay::replay(&self.file, algorithms::known(), &mut see)
            .map_err(|error| BadInput(error.to_string()))?;
        let text = if self.json { json(&replay) } else { table(&replay) };
        print(&text)?;
        Ok(if replay.different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Column titles of `--decisions`, as wide as the values of `line`.
const HEADER: &str = "flow       time s        seq    acked B     RTT us    rate Mbit/s   cwnd   \
                      ssthresh  pace Mbit/s  phase";

fn line(step: &ReplayedDecision<'_>) -> String {
    let measured = step.flow.measured();
    let decision = step.decision;
    let mbit = |bits: Option<u64>| {
        bits.map_or("-".to_string(), |bits| format!("{:.3}", bits as f64 / 1e6))
    };
    let count = |number: Option<u32>| number.map_or("-".to_string(), |it| it.to_string());
    let rtt = measured.rtt.map_or("-".to_string(), |rtt| rtt.latest.as_micros().to_string());
    format!(
        "{:>4} {:>12.6} {:>10} {:>10} {:>10} {:>14} {:>6} {:>10} {:>12}  {}: {}\n",
        decision.flow,
        step.flow.head().at.as_secs_f64(),
        decision.seq,
        measured.acked.as_u64(),
        rtt,
        mbit(measured.delivery_rate.map(Rate::as_bits_per_sec)),
        count(decision.cwnd),
        count(decision.ssthresh),
        mbit(decision.pacing_bps),
        step.state.phase,
        step.state.reason
    )
}

fn table(replay: &replay::Replay) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(start) = &replay.start {
        let _ = writeln!(text, "recorded by forebay {} on Linux {}", start.version, start.kernel);
    }
    let (flows, reports, decisions) = (replay.flows, replay.reports, replay.decisions);
    let _ = writeln!(
        text,
        "{flows} connections, {reports} reports, {decisions} decisions: {} differ",
        replay.different
    );
    if let Some(reason) = &replay.end {
        let _ = writeln!(text, "the recording ends before its agent did: {reason}");
    }
    if replay.is_cut {
        let _ = writeln!(text, "the last line is cut off: its agent was killed");
    }
    for difference in &replay.differences {
        text += &explain(difference);
    }
    let kept = replay.differences.len() as u64;
    if replay.different > kept {
        let _ = writeln!(text, "and {} more", replay.different - kept);
    }
    text
}

/// Describes how a decision differs.
fn explain(difference: &Difference) -> String {
    let Difference { line, at, cc, recorded, replayed } = difference;
    let (flow, seq, at_s) = (recorded.flow, recorded.seq, at.as_secs_f64());
    let place = format!("line {line}: connection {flow} ({cc}), record {seq} at {at_s:.6} s");
    let Some(replayed) = replayed else {
        return format!("{place}: no decision now, the algorithm panics\n");
    };
    let parts: Vec<String> = fields(recorded)
        .into_iter()
        .zip(fields(replayed))
        .filter(|((_, before), (_, now))| before != now)
        .map(|((name, before), (_, now))| format!("{name} {before}, now {now}"))
        .collect();
    format!("{place}: {}\n", parts.join("; "))
}

fn fields(decision: &DecisionRow) -> Vec<(&'static str, String)> {
    fn shown<T: ToString>(value: Option<T>) -> String {
        value.map_or("none".into(), |value| value.to_string())
    }
    vec![
        ("answer to record", decision.seq.to_string()),
        ("cwnd", shown(decision.cwnd)),
        ("ssthresh", shown(decision.ssthresh)),
        ("pacing bit/s", shown(decision.pacing_bps)),
        ("growth", decision.growth.to_string()),
        ("cap", decision.cap.to_string()),
        ("slow start", decision.slow_start.to_string()),
        ("beta", decision.beta.to_string()),
        ("RTT tripwire us", decision.trip_rtt_us.to_string()),
        ("loss tripwire", decision.trip_lost.to_string()),
        ("CE tripwire", decision.trip_ce.to_string()),
    ]
}

fn json(replay: &replay::Replay) -> String {
    let differences: Vec<serde_json::Value> = replay
        .differences
        .iter()
        .map(|it| {
            serde_json::json!({
                "line": it.line,
                "at_ns": it.at.as_nanos(),
                "cc": it.cc,
                "recorded": it.recorded,
                "replayed": it.replayed,
            })
        })
        .collect();
    let document = serde_json::json!({
        "start": replay.start,
        "flows": replay.flows,
        "reports": replay.reports,
        "decisions": replay.decisions,
        "different": replay.different,
        "differences": differences,
        "end": replay.end,
        "is_cut": replay.is_cut,
    });
    format!("{document}\n")
}
