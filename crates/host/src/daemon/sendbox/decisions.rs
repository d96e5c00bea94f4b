//! Decisions of a bundle: which ones the sendbox remembers and logs.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use forebay_core::bundle::decision::Decision;
use forebay_core::record::DecisionRecord;
use forebay_core::units::Timestamp;

use crate::daemon::status::{mbit, millis};
use crate::log::Allowance;

/// Decisions remembered for `forebay status`.
const DECISIONS: usize = 64;
/// Decisions in a status, for all bundles together: a status must not keep packets waiting.
const TOLD: usize = 4096;
/// Fewest decisions per bundle in a status, even if all bundles together then have more than
/// [`TOLD`].
const TOLD_MIN: usize = 5;
/// Relative change of the rate that is remembered.
const KEPT_CHANGE: f64 = 0.1;
/// Shortest time between two log lines about a bundle.
const LOG_SPACING: Duration = Duration::from_secs(1);
/// Shortest time between two log lines about rates, which move all the time.
const RATE_SPACING: Duration = Duration::from_secs(10);
/// Relative change of the rate that a dry run logs.
const DRY_RUN_CHANGE: f64 = 0.01;

/// The last decisions. Selects the decisions that deserve a log line.
#[derive(Default)]
pub struct DecisionLog {
    kept: VecDeque<(Timestamp, Decision)>,
    journal: Journal,
    /// The state before, for the developers' log.
    state: Option<&'static str>,
}

/// Choice of decisions for the operator's log: a bundle is shaped again or no longer. A dry run also logs
/// changes of the rate. The last decision of a series is always logged. States that follow each other while a
/// bundle is shaped are the controller at work: requests may change them many times a second.
#[derive(Default)]
struct Journal {
    dry_run: bool,
    said: Option<(Timestamp, Decision)>,
    standing: Option<&'static str>,
    /// Changes of the standing since the last line.
    changes: u32,
    allowance: Allowance,
}

/// A line of the log.
#[derive(Debug, PartialEq)]
struct Line {
    at: Timestamp,
    decision: Decision,
    /// Changes of the standing that no line has reported.
    untold: u32,
}

/// Meaning of a bundle's state for the operator: `shaped`, or the state that prevents shaping; `None`: the
/// sendbox runs a test, which decides between the two.
fn standing(state: &'static str) -> Option<&'static str> {
    match state {
        "no_peer" | "no_reports" | "unsteady" | "imbalanced" | "handed_back" | "competing"
        | "passing" | "measuring" => Some(state),
        "trying" => None,
        _ => Some("shaped"),
    }
}

impl Journal {
    fn note(&mut self, now: Timestamp, decision: Decision) -> Option<Line> {
        if let Some(standing) = standing(decision.state)
            && self.standing.replace(standing) != Some(standing)
        {
            self.changes += 1;
        }
        let since = self.said.as_ref().map(|(at, _)| now.saturating_since(*at));
        let is_spaced = since.is_none_or(|since| since >= LOG_SPACING);
        let is_news = self.said.is_none() || self.changes > 0;
        let is_new_rate = self.dry_run
            && since.is_some_and(|since| since >= RATE_SPACING)
            && self.said.is_some_and(|(_, said)| said.has_other_rate(&decision, DRY_RUN_CHANGE));
        let is_told = is_new_rate || is_spaced && is_news && self.allowance.takes(now);
        if !is_told {
            return None;
        }
        self.said = Some((now, decision));
        let untold = std::mem::take(&mut self.changes).saturating_sub(1);
        Some(Line { at: now, decision, untold })
    }
}

impl Line {
    fn rate(&self) -> String {
        self.decision.rate.map_or("unshaped".into(), |rate| mbit(rate.as_bits_per_sec()))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.decision.state, self.decision.reason)?;
        if self.untold > 0 {
            write!(f, " (changes in between: {})", self.untold)?;
        }
        Ok(())
    }
}

impl DecisionLog {
    /// An empty log. A dry run also logs rates, as nothing else shows them.
    pub fn new(dry_run: bool) -> Self {
        Self { journal: Journal { dry_run, ..Journal::default() }, ..Self::default() }
    }

    /// Records the decision in force.
    pub fn note(&mut self, now: Timestamp, decision: Decision, bundle: &str) {
        if self.state.replace(decision.state) != Some(decision.state) {
            let Decision { state, reason, .. } = decision;
            tracing::debug!(target: "bundle_state", bundle, "{state}: {reason}");
        }
        if let Some(line) = self.journal.note(now, decision) {
            self.say(&line, bundle);
        }
        if self.kept.back().is_none_or(|(_, last)| last.differs(&decision, KEPT_CHANGE)) {
            if self.kept.len() == DECISIONS {
                self.kept.pop_front();
            }
            self.kept.push_back((now, decision));
        }
    }

    fn say(&self, line: &Line, bundle: &str) {
        let record = DecisionRecord::of(line.at, &line.decision);
        let bottleneck = record.bottleneck_bps.map(mbit);
        let [min_rtt, queue_delay] =
            [record.min_rtt_ns, record.queue_delay_ns].map(|ns| ns.map(|ns| millis(Some(ns))));
        let rate = line.rate();
        if self.journal.dry_run {
            let would_set = rate;
            tracing::info!(
                target: "bundle_state", bundle, would_set, min_rtt, queue_delay, bottleneck, "{line}"
            );
        } else {
            tracing::info!(
                target: "bundle_state", bundle, rate, min_rtt, queue_delay, bottleneck, "{line}"
            );
        }
    }

    /// The newest remembered decisions, oldest first, for one of `bundles`.
    pub fn records(&self, bundles: usize) -> Vec<DecisionRecord> {
        let most = (TOLD / bundles.max(1)).max(TOLD_MIN);
        let kept = self.kept.iter().skip(self.kept.len().saturating_sub(most));
        kept.map(|(at, decision)| DecisionRecord::of(*at, decision)).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::units::Rate;

    use super::*;

    fn decision(mbit: u64, state: &'static str) -> Decision {
        Decision {
            rate: Some(Rate::from_mbit_per_sec(mbit)),
            state,
            reason: "test",
            ..Decision::default()
        }
    }

    /// The lines logged for decisions at these milliseconds.
    fn lines(dry_run: bool, decisions: &[(u64, Decision)]) -> Vec<(u64, String)> {
        let mut journal = Journal { dry_run, ..Journal::default() };
        let said = decisions.iter().filter_map(|(ms, decision)| {
            let line = journal.note(Timestamp::from_nanos(ms * 1_000_000), *decision)?;
            Some((*ms, format!("{} {line}", line.rate())))
        });
        said.collect()
    }

    #[test]
    fn early_change_is_logged_after_the_spacing() {
        let decisions = [
            (0, decision(10, "measuring")),
            (5, decision(20, "shaping")),
            (400, decision(20, "competing")),
            (500, decision(21, "shaping")),
            (995, decision(22, "shaping")),
            (1000, decision(23, "shaping")),
            (1005, decision(23, "shaping")),
            (9000, decision(99, "shaping")),
            (9005, decision(99, "no_peer")),
        ];
        let expected = [
            (0, "10.000 Mbit/s measuring: test".to_owned()),
            (1000, "23.000 Mbit/s shaping: test (changes in between: 2)".to_owned()),
            (9005, "99.000 Mbit/s no_peer: test".to_owned()),
        ];
        assert_eq!(lines(false, &decisions), expected);
    }

    #[test]
    fn oscillating_bundle_is_logged_once_per_minute() {
        let states = ["shaping", "app_limited", "draining", "trying", "shaping", "probe_rtt"];
        let at_work: Vec<(u64, Decision)> = (0..60_000)
            .step_by(100)
            .map(|ms| (ms, decision(10, states[ms as usize / 100 % 6])))
            .collect();
        assert_eq!(lines(false, &at_work).len(), 1, "{:?}", lines(false, &at_work));
        let changing: Vec<(u64, Decision)> = (0..3600)
            .map(|second| {
                (second * 1000, decision(10, ["shaping", "no_peer"][second as usize % 2]))
            })
            .collect();
        let told = lines(false, &changing).len();
        assert!((60..=66).contains(&told), "{told} lines in an hour");
    }

    #[test]
    fn dry_run_logs_changing_rates_every_ten_seconds() {
        let moving = (0..1000).map(|tick| (tick * 50, decision(1000 + tick, "shaping")));
        let still = (1000..2000).map(|tick| (tick * 50, decision(2000, "shaping")));
        let decisions: Vec<(u64, Decision)> = moving.chain(still).collect();
        let times: Vec<u64> = lines(true, &decisions).iter().map(|(ms, _)| *ms).collect();
        assert_eq!(times, [0, 10_000, 20_000, 30_000, 40_000, 50_000]);
        assert_eq!(lines(false, &decisions).len(), 1);
        let unshaped = Decision { rate: None, ..decision(1, "shaping") };
        let lost = lines(true, &[(0, decision(1, "shaping")), (10_000, unshaped)]);
        assert_eq!(lost[1], (10_000, "unshaped shaping: test".to_owned()));
    }

    #[test]
    fn memory_of_decisions_is_bounded_and_keeps_changes() {
        let mut log = DecisionLog::default();
        for ms in 0..1000 {
            let state = if ms % 2 == 0 { "shaping" } else { "draining" };
            log.note(Timestamp::from_nanos(ms * 1_000_000), decision(100, state), "b");
        }
        for (bundles, told) in [(1, DECISIONS), (64, DECISIONS), (100, 40), (1000, TOLD_MIN)] {
            assert_eq!(log.records(bundles).len(), told);
            let last = log.records(bundles).pop().unwrap();
            assert_eq!((last.at_ns, last.state.as_str()), (999_000_000, "draining"));
        }
    }
}
