//! Optional log of a sendbox's measurements and decisions.

use forebay_core::bundle::decision::{Decision, DecisionRows};
use forebay_core::bundle::sendbox::{Epoch, PathSpan};
use forebay_core::bundle::waits::WaitSecond;
use forebay_core::qdisc::Backlog;
use forebay_core::record::PathRecord;
use forebay_core::units::{Duration, Timestamp};

/// Interval between samples of the queue.
const QUEUE_SAMPLE: Duration = Duration::from_millis(10);

/// The log of a bundle.
#[derive(Debug, Default)]
pub struct BundleLog {
    boundaries: Vec<u64>,
    epochs: Vec<(Timestamp, Epoch)>,
    queue: Vec<(Timestamp, Backlog)>,
    decisions: Vec<(Timestamp, Decision)>,
    waits: Vec<WaitSecond>,
    path: Vec<PathRecord>,
    rows: DecisionRows,
    next_sample: Timestamp,
}

impl BundleLog {
    /// Identities of the boundaries that were sent, in order.
    pub fn boundaries(&self) -> &[u64] {
        &self.boundaries
    }

    /// Matched boundaries, and the arrival times of their reports.
    pub fn epochs(&self) -> &[(Timestamp, Epoch)] {
        &self.epochs
    }

    /// The sendbox's queue every 10 ms.
    pub fn queue(&self) -> &[(Timestamp, Backlog)] {
        &self.queue
    }

    /// Decisions that are worth a row.
    pub fn decisions(&self) -> &[(Timestamp, Decision)] {
        &self.decisions
    }

    /// Seconds in which packets of sparse flows waited.
    pub fn waits(&self) -> &[WaitSecond] {
        &self.waits
    }

    /// What the path carried, in spans of 100 ms.
    pub fn path(&self) -> &[PathRecord] {
        &self.path
    }

    /// These are the newest spans, oldest first.
    pub(crate) fn on_spans<'a>(&mut self, spans: impl IntoIterator<Item = &'a PathSpan>) {
        for record in spans.into_iter().map(PathRecord::of) {
            // After a shorter round trip a span may end before the one that was kept.
            if self.path.last().is_none_or(|before| record.at_ns > before.at_ns) {
                self.path.push(record);
            }
        }
    }

    pub(crate) fn on_boundary(&mut self, identity: u64) {
        self.boundaries.push(identity);
    }

    pub(crate) fn on_epoch(&mut self, now: Timestamp, epoch: Epoch) {
        self.epochs.push((now, epoch));
    }

    /// The queue was `backlog` up to `now`.
    pub(crate) fn close_samples(&mut self, now: Timestamp, backlog: Backlog) {
        while self.next_sample <= now {
            self.queue.push((self.next_sample, backlog));
            self.next_sample += QUEUE_SAMPLE;
        }
    }

    pub(crate) fn on_decision(&mut self, now: Timestamp, decision: &Decision) {
        if self.rows.takes(now, decision) {
            self.decisions.push((now, *decision));
        }
    }

    pub(crate) fn on_waits(&mut self, second: &WaitSecond) {
        if second.count > 0 {
            self.waits.push(second.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::units::ByteCount;

    #[test]
    fn queue_samples_reflect_each_instant() {
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
