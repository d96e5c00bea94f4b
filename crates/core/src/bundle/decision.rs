//! What a sendbox enforces and why, and which of its decisions are worth a row.

use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Longest time between two rows.
const ROW_SPACING: Duration = Duration::from_millis(100);
/// Change of the rate (share) that is worth a row.
const ROW_CHANGE: f64 = 0.01;

/// What the sendbox enforces, and why.
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
    /// `measuring`, `shaping`, `app_limited`, `draining`, `silent`, ...
    pub state: &'static str,
    /// Why the state is that one, in words.
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

/// Chooses the decisions that are worth a row: those with another state, reason or rate (by more
/// than 1 %) than the row before, and one every 100 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecisionRows {
    last: Option<(Timestamp, Decision)>,
}

impl DecisionRows {
    /// Whether `decision`, in force at `now`, is worth a row; then it is the row before.
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
    fn every_change_is_worth_a_row_and_each_100_ms_are() {
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
