//! What a sendbox measured and decided, for those who ask for it.

use forebay_core::bundle::sendbox::{Decision, Epoch};
use forebay_core::qdisc::Backlog;
use forebay_core::units::{Duration, Rate, Timestamp};

/// Spacing of the samples of the queue.
const QUEUE_SAMPLE: Duration = Duration::from_millis(10);
/// Longest time between two decisions kept.
const DECISION_SPACING: Duration = Duration::from_millis(100);
/// Change of the rate (share) that makes a decision worth keeping.
const RATE_CHANGE: f64 = 0.01;

/// The log of a bundle.
#[derive(Debug, Default)]
pub struct BundleLog {
    boundaries: Vec<u64>,
    epochs: Vec<(Timestamp, Epoch)>,
    queue: Vec<(Timestamp, Backlog)>,
    decisions: Vec<(Timestamp, Decision)>,
    next_sample: Timestamp,
}

impl BundleLog {
    /// Identities of the boundaries that were sent, in order.
    pub fn boundaries(&self) -> &[u64] {
        &self.boundaries
    }

    /// Matched boundaries, and when their reports came.
    pub fn epochs(&self) -> &[(Timestamp, Epoch)] {
        &self.epochs
    }

    /// The sendbox's queue every 10 ms.
    pub fn queue(&self) -> &[(Timestamp, Backlog)] {
        &self.queue
    }

    /// Decisions: those with another state, reason or rate (by more than 1 %) than the one before, and
    /// one every 100 ms.
    pub fn decisions(&self) -> &[(Timestamp, Decision)] {
        &self.decisions
    }

    pub(crate) fn on_boundary(&mut self, identity: u64) {
        self.boundaries.push(identity);
    }

    pub(crate) fn on_epoch(&mut self, now: Timestamp, epoch: Epoch) {
        self.epochs.push((now, epoch));
    }

    /// The queue has been `backlog` up to `now`.
    pub(crate) fn close_samples(&mut self, now: Timestamp, backlog: Backlog) {
        while self.next_sample <= now {
            self.queue.push((self.next_sample, backlog));
            self.next_sample += QUEUE_SAMPLE;
        }
    }

    pub(crate) fn on_decision(&mut self, now: Timestamp, decision: &Decision) {
        let is_kept = self.decisions.last().is_none_or(|(at, last)| {
            now.saturating_since(*at) >= DECISION_SPACING || differs(last, decision)
        });
        if is_kept {
            self.decisions.push((now, *decision));
        }
    }
}

fn differs(one: &Decision, other: &Decision) -> bool {
    let is_other_rate = match [one, other].map(|it| it.rate.map(Rate::as_mbit_per_sec_f64)) {
        [Some(one), Some(other)] => (one - other).abs() > RATE_CHANGE * one,
        [one, other] => one != other,
    };
    one.state != other.state || one.reason != other.reason || is_other_rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::units::ByteCount;

    #[test]
    fn the_queue_is_sampled_as_it_was_at_each_instant() {
        let backlog = |packets| Backlog { packets, bytes: ByteCount::ZERO };
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let mut log = BundleLog::default();
        // Empty up to 5 ms, then one packet up to 30 ms, then two.
        for (until_ms, packets) in [(5, 0), (30, 1), (41, 2)] {
            log.close_samples(at(until_ms), backlog(packets));
        }
        let samples: Vec<_> = log.queue().iter().map(|it| (it.0, it.1.packets)).collect();
        assert_eq!(samples, [(at(0), 0), (at(10), 1), (at(20), 1), (at(30), 1), (at(40), 2)]);
    }
}
