//! The rate that a sendbox enforces, the reason, and the decisions that are logged as rows.

use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Longest time between two rows.
const ROW_SPACING: Duration = Duration::from_millis(100);
/// Relative change of the rate that is logged as a row.
const ROW_CHANGE: f64 = 0.01;

/// The rate that the sendbox enforces, and the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// Rate of the shaper; `None`: unshaped.
    pub rate: Option<Rate>,
    /// Window of the algorithm.
    pub cwnd: Option<ByteCount>,
    /// Bytes outstanding.
    pub in_flight: Option<ByteCount>,
    /// Least round-trip time in force.
    pub min_rtt: Option<Duration>,
    /// Standing queueing delay.
    pub queue_delay: Option<Duration>,
    /// Estimated rate of the bottleneck.
    pub bottleneck_rate: Option<Rate>,
    /// `no_peer`: no authentic message of the receivebox arrives. `no_reports`: the receivebox is alive, but no
    /// report shows when packets arrive. `unsteady`: the visible share changes by itself. `imbalanced`, or a
    /// phase of the supervisor or of the algorithm: `passing`, `trying`, `measuring`, `shaping`, `app_limited`,
    /// `draining`, ...
    pub state: &'static str,
    /// Reason for the state, in words.
    pub reason: &'static str,
}

impl Decision {
    /// Whether another decision differs in kind, or in rate by more than `share` of this one's.
    pub fn differs(&self, other: &Self, share: f64) -> bool {
        self.state != other.state
            || self.reason != other.reason
            || self.has_other_rate(other, share)
    }

    /// Whether another decision's rate differs by more than `share` of this one's.
    pub fn has_other_rate(&self, other: &Self, share: f64) -> bool {
        match [self, other].map(|decision| decision.rate.map(Rate::as_mbit_per_sec_f64)) {
            [Some(one), Some(other)] => (one - other).abs() > share * one,
            [one, other] => one != other,
        }
    }
}

/// Chooses the decisions to log as rows: each change of state, reason or rate (by more than 1 %) since the last
/// row, and one row every 100 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecisionRows {
    last: Option<(Timestamp, Decision)>,
}

impl DecisionRows {
    /// Whether to log `decision`, in force at `now`. If so, it becomes the last row.
    pub fn takes(&mut self, now: Timestamp, decision: &Decision) -> bool {
        let is_taken = self.last.as_ref().is_none_or(|(at, last)| {
            now.saturating_since(*at) >= ROW_SPACING || last.differs(decision, ROW_CHANGE)
        });
        if is_taken {
            self.last = Some((now, *decision));
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(mbit: u64, state: &'static str) -> Decision {
        Decision {
            rate: Some(Rate::from_mbit_per_sec(mbit)),
            state,
            reason: "test",
            ..Decision::default()
        }
    }

    #[test]
    fn every_change_and_100_ms_gives_a_row() {
        let mut rows = DecisionRows::default();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        assert!(rows.takes(at(0), &decision(1000, "shaping")));
        assert!(!rows.takes(at(5), &decision(1005, "shaping")));
        assert!(rows.takes(at(10), &decision(1011, "shaping")));
        assert!(rows.takes(at(15), &decision(1011, "draining")));
        assert!(!rows.takes(at(114), &decision(1011, "draining")));
        assert!(rows.takes(at(115), &decision(1011, "draining")));
    }
}
