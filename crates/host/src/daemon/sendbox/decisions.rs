//! The decisions of a bundle: which are remembered, traced and logged.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::bundle::sendbox::Decision;
use forebay_core::units::{ByteCount, Rate, Timestamp};

use crate::record::DecisionRecord;

/// Longest time between two decisions in the trace.
const DECISION_ROW: Duration = Duration::from_millis(100);
/// Decisions remembered for `forebay status`.
const DECISIONS: usize = 64;
/// Shortest time between two log lines about state changes of a bundle.
const LOG_SPACING: Duration = Duration::from_secs(1);
/// The last decisions, and which of them are worth a row or a line.
#[derive(Default)]
pub struct DecisionLog {
    kept: VecDeque<(Timestamp, Decision)>,
    traced: Option<(Timestamp, Decision)>,
    logged_at: Option<Timestamp>,
}

impl DecisionLog {
    /// Takes the decision in force; answers it if it belongs into the trace: when the state, the
    /// reason or the rate by more than 1 % has changed, or 100 ms have passed.
    pub fn note(&mut self, now: Timestamp, decision: Decision, bundle: &str) -> Option<Decision> {
        let is_kept = self.kept.back().is_none_or(|(_, last)| differs(last, &decision, 0.1));
        if is_kept {
            let is_new_state =
                self.kept.back().is_none_or(|(_, last)| last.state != decision.state);
            if is_new_state {
                self.say(now, &decision, bundle);
            }
            if self.kept.len() == DECISIONS {
                self.kept.pop_front();
            }
            self.kept.push_back((now, decision));
        }
        let is_traced = self.traced.as_ref().is_none_or(|(at, last)| {
            now.saturating_since(*at) >= DECISION_ROW || differs(last, &decision, 0.01)
        });
        if !is_traced {
            return None;
        }
        self.traced = Some((now, decision));
        Some(decision)
    }

    fn say(&mut self, now: Timestamp, decision: &Decision, bundle: &str) {
        if self.logged_at.is_some_and(|at| now.saturating_since(at) < LOG_SPACING) {
            return;
        }
        self.logged_at = Some(now);
        let rate = decision.rate.map_or("unshaped".into(), |rate| rate.to_string());
        tracing::info!(bundle, rate, "{}: {}", decision.state, decision.reason);
    }

    /// The base round trip of the latest decision.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.traced.as_ref().and_then(|(_, decision)| decision.min_rtt)
    }

    /// What is remembered, oldest first.
    pub fn records(&self) -> Vec<DecisionRecord> {
        self.kept.iter().map(|(at, decision)| decision_record(*at, decision)).collect()
    }
}

/// Whether two decisions differ in kind, or in rate by more than `share`.
fn differs(one: &Decision, other: &Decision, share: f64) -> bool {
    let rates = [one, other].map(|decision| decision.rate.map(Rate::as_mbit_per_sec_f64));
    let is_other_rate = match rates {
        [Some(one), Some(other)] => (one - other).abs() > share * one,
        [one, other] => one != other,
    };
    is_other_rate || one.state != other.state || one.reason != other.reason
}

/// Whole nanoseconds.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A decision as a row.
pub fn decision_record(at: Timestamp, decision: &Decision) -> DecisionRecord {
    DecisionRecord {
        at_ns: at.as_nanos(),
        rate_bps: decision.rate.map(Rate::as_bits_per_sec),
        cwnd_bytes: decision.cwnd.map(ByteCount::as_u64),
        in_flight_bytes: decision.in_flight.map(ByteCount::as_u64),
        min_rtt_ns: decision.min_rtt.map(nanos),
        queue_delay_ns: decision.queue_delay.map(nanos),
        bottleneck_bps: decision.bottleneck_rate.map(Rate::as_bits_per_sec),
        state: decision.state.into(),
        reason: decision.reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(mbit: u64, state: &'static str) -> Decision {
        Decision {
            rate: Some(Rate::from_mbit_per_sec(mbit)),
            cwnd: None,
            in_flight: None,
            min_rtt: None,
            queue_delay: None,
            bottleneck_rate: None,
            state,
            reason: "test",
        }
    }

    #[test]
    fn the_trace_gets_every_change_and_a_row_each_100_ms() {
        let mut log = DecisionLog::default();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        assert!(log.note(at(0), decision(1000, "shaping"), "b").is_some());
        assert!(log.note(at(5), decision(1005, "shaping"), "b").is_none());
        assert!(log.note(at(10), decision(1011, "shaping"), "b").is_some());
        assert!(log.note(at(15), decision(1011, "draining"), "b").is_some());
        assert!(log.note(at(114), decision(1011, "draining"), "b").is_none());
        assert!(log.note(at(115), decision(1011, "draining"), "b").is_some());
    }

    #[test]
    fn the_log_for_people_is_bounded_and_keeps_what_changed() {
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
