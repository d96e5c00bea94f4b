//! Bytes sent and seen between two boundaries.

use crate::units::{ByteCount, Timestamp};

/// Totals at a matched boundary.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Departure of the boundary.
    pub sent_at: Timestamp,
    /// Bytes sent since the start.
    pub sent: ByteCount,
    /// Bytes that the receivebox had counted.
    pub received: ByteCount,
}

/// The totals at a match, and the sum of round trips until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) totals: Totals,
    /// Sum of the round trips of all matches.
    pub(super) rtts_s: f64,
    pub(super) matches: u64,
}

/// A stretch of the traffic between two boundaries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    pub(super) seconds: f64,
    pub(super) sent: f64,
    pub(super) received: f64,
    /// Sum and number of its boundaries' round trips.
    pub(super) rtts_s: f64,
    pub(super) matches: f64,
}

impl Stretch {
    pub(super) fn between(start: &Mark, end: &Mark) -> Self {
        let (from, to) = (&start.totals, &end.totals);
        Self {
            seconds: to.sent_at.saturating_since(from.sent_at).as_secs_f64(),
            sent: to.sent.saturating_sub(from.sent).as_f64(),
            received: to.received.saturating_sub(from.received).as_f64(),
            rtts_s: end.rtts_s - start.rtts_s,
            matches: (end.matches - start.matches) as f64,
        }
    }

    /// Sum of the rounds.
    pub(super) fn sum(rounds: &[Self]) -> Self {
        rounds.iter().fold(Self::default(), |sum, round| Self {
            seconds: sum.seconds + round.seconds,
            sent: sum.sent + round.sent,
            received: sum.received + round.received,
            rtts_s: sum.rtts_s + round.rtts_s,
            matches: sum.matches + round.matches,
        })
    }

    pub(super) fn seen(&self) -> f64 {
        if self.sent > 0.0 { self.received / self.sent } else { 1.0 }
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.sent / self.seconds } else { 0.0 }
    }

    pub(super) fn mean_rtt_s(&self) -> f64 {
        if self.matches > 0.0 { self.rtts_s / self.matches } else { 0.0 }
    }
}
