//! The decisions of a bundle: which are remembered and logged.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use forebay_core::bundle::decision::Decision;
use forebay_core::record::DecisionRecord;
use forebay_core::units::Timestamp;

/// Decisions remembered for `forebay status`.
const DECISIONS: usize = 64;
/// Change of the rate (share) that is remembered.
const KEPT_CHANGE: f64 = 0.1;
/// Shortest time between two log lines about a bundle.
const LOG_SPACING: Duration = Duration::from_secs(1);
/// Change of the rate (share) that a dry run tells of.
const DRY_RUN_CHANGE: f64 = 0.01;

/// The last decisions, and which of them are worth a line.
#[derive(Default)]
pub struct DecisionLog {
    kept: VecDeque<(Timestamp, Decision)>,
    journal: Journal,
}

/// Which decisions the log for people tells of: each change of the state, and in a dry run each
/// change of the rate; at most one line a second, and the last word is never left out.
#[derive(Default)]
struct Journal {
    dry_run: bool,
    said: Option<(Timestamp, Decision)>,
    state: Option<&'static str>,
    /// Changes of the state since the last line.
    changes: u32,
}

/// A line of the log.
#[derive(Debug, PartialEq)]
struct Line {
    decision: Decision,
    /// Changes of the state that no line told of.
    untold: u32,
}

impl Journal {
    fn note(&mut self, now: Timestamp, decision: Decision) -> Option<Line> {
        if self.state.replace(decision.state) != Some(decision.state) {
            self.changes += 1;
        }
        let is_due = self.said.as_ref().is_none_or(|(at, said)| {
            let is_new_rate = self.dry_run && said.has_other_rate(&decision, DRY_RUN_CHANGE);
            let is_news = self.changes > 0 || is_new_rate;
            is_news && now.saturating_since(*at) >= LOG_SPACING
        });
        if !is_due {
            return None;
        }
        self.said = Some((now, decision));
        let untold = std::mem::take(&mut self.changes).saturating_sub(1);
        Some(Line { decision, untold })
    }
}

impl Line {
    fn rate(&self) -> String {
        self.decision.rate.map_or("unshaped".into(), |rate| rate.to_string())
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
    /// An empty log. In a dry run it also tells of rates, as nothing else shows them.
    pub fn new(dry_run: bool) -> Self {
        Self { journal: Journal { dry_run, ..Journal::default() }, ..Self::default() }
    }

    /// Takes the decision in force.
    pub fn note(&mut self, now: Timestamp, decision: Decision, bundle: &str) {
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
        let Decision { min_rtt, queue_delay, bottleneck_rate, .. } = line.decision;
        let min_rtt = min_rtt.map(tracing::field::debug);
        let queue_delay = queue_delay.map(tracing::field::debug);
        let bottleneck_rate = bottleneck_rate.map(tracing::field::display);
        let rate = line.rate();
        if self.journal.dry_run {
            let would_set = rate;
            tracing::info!(bundle, would_set, min_rtt, queue_delay, bottleneck_rate, "{line}");
        } else {
            tracing::info!(bundle, rate, min_rtt, queue_delay, bottleneck_rate, "{line}");
        }
    }

    /// What is remembered, oldest first.
    pub fn records(&self) -> Vec<DecisionRecord> {
        self.kept.iter().map(|(at, decision)| DecisionRecord::of(*at, decision)).collect()
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

    /// The lines about decisions at these milliseconds.
    fn lines(dry_run: bool, decisions: &[(u64, Decision)]) -> Vec<(u64, String)> {
        let mut journal = Journal { dry_run, ..Journal::default() };
        let said = decisions.iter().filter_map(|(ms, decision)| {
            let line = journal.note(Timestamp::from_nanos(ms * 1_000_000), *decision)?;
            Some((*ms, format!("{} {line}", line.rate())))
        });
        said.collect()
    }

    #[test]
    fn a_change_soon_after_another_is_told_when_the_spacing_is_over() {
        let decisions = [
            (0, decision(10, "measuring")),
            (5, decision(20, "shaping")),
            (400, decision(20, "draining")),
            (500, decision(21, "shaping")),
            (995, decision(22, "shaping")),
            (1000, decision(23, "shaping")),
            (1005, decision(23, "shaping")),
            (9000, decision(99, "shaping")),
            (9005, decision(99, "silent")),
        ];
        let expected = [
            (0, "10Mbit/s measuring: test".to_owned()),
            (1000, "23Mbit/s shaping: test (changes in between: 2)".to_owned()),
            (9005, "99Mbit/s silent: test".to_owned()),
        ];
        assert_eq!(lines(false, &decisions), expected);
    }

    #[test]
    fn a_dry_run_tells_of_rates_once_a_second_while_they_move() {
        let moving = (0..1000).map(|tick| (tick * 5, decision(1000 + tick, "shaping")));
        let still = (1000..2000).map(|tick| (tick * 5, decision(2000, "shaping")));
        let decisions: Vec<(u64, Decision)> = moving.chain(still).collect();
        let times: Vec<u64> = lines(true, &decisions).iter().map(|(ms, _)| *ms).collect();
        assert_eq!(times, [0, 1000, 2000, 3000, 4000, 5000]);
        assert_eq!(lines(false, &decisions).len(), 1);
        let unshaped = Decision { rate: None, ..decision(1, "shaping") };
        let lost = lines(true, &[(0, decision(1, "shaping")), (1000, unshaped)]);
        assert_eq!(lost[1], (1000, "unshaped shaping: test".to_owned()));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_keeps_what_changed() {
        let mut log = DecisionLog::default();
        for ms in 0..1000 {
            let state = if ms % 2 == 0 { "shaping" } else { "draining" };
            log.note(Timestamp::from_nanos(ms * 1_000_000), decision(100, state), "b");
        }
        assert_eq!(log.records().len(), DECISIONS);
        let last = log.records().pop().unwrap();
        assert_eq!((last.at_ns, last.state.as_str()), (999_000_000, "draining"));
    }
}
