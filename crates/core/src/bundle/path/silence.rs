//! When reports are missing, and when missing reports end control.
//!
//! While reports are missing, the rate never exceeds the highest rate that the path has carried. A peer
//! may be alive and report none of enough boundaries for long enough, or only packets that look alike.
//! Then the sendbox treats it as absent: the bundle is unshaped, in the state `no_reports`.

use super::Path;
use super::boundary::Mismatch;
use crate::units::{Duration, Timestamp};

/// Reason for giving up control: no reports arrive although packets leave.
const UNREPORTED: &str = "packets leave, but no reports arrive";
/// Reason for giving up control: reports arrive, but match several departures.
const ALIKE: &str = "packets are too similar to match reports to them";
/// Reason for giving up control: reports arrive, but match no departure, as behind NAT.
const CHANGED: &str = "reports match no packet that left: is there NAT between the boxes?";

/// A box that has not ticked for this long stood still. An idle box ticks once a second.
const STOOD_STILL: Duration = Duration::from_millis(1500);

/// The boundaries that left since the last match and should have been reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    since: Timestamp,
    boundaries: u64,
    /// Reports since then of a hash that several packets had.
    ambiguous: u64,
    /// Reports since then of packets that have not left.
    unknown: u64,
    /// When they became enough to prove something.
    many_since: Option<Timestamp>,
}

impl Path {
    /// Finds out whether the box has stood still until `now`, stopped by a signal or with its machine. It
    /// reads the reports of that time late, which lengthens their round trips. Packets that passed
    /// unshaped were counted by the receivebox alone. The controller's least round trip stays: a new one
    /// could be learnt only behind the queue that has built up by now.
    pub(super) fn notice_standstill(&mut self, now: Timestamp) {
        if now.saturating_since(self.ticked_at) > STOOD_STILL && self.resumed_at < now {
            self.resumed_at = now;
            self.unanswered = None;
            self.forget_receivebox();
        }
    }

    /// A boundary has left and will be reported.
    pub(super) fn await_report(&mut self, now: Timestamp) {
        if now < self.resumed_at {
            return;
        }
        let first =
            Unanswered { since: now, boundaries: 0, ambiguous: 0, unknown: 0, many_since: None };
        let unanswered = self.unanswered.get_or_insert(first);
        unanswered.boundaries += 1;
        if unanswered.boundaries == u64::from(self.tuning.waited_count) {
            unanswered.many_since = Some(now);
        }
    }

    /// Counts a report that answers no departure. If such a report counted as an answer, it would hide
    /// for ever that control runs on old information.
    pub(super) fn count_mismatch(&mut self, mismatch: Mismatch) {
        match mismatch {
            Mismatch::Unknown => {
                self.counters.reports_unmatched += 1;
                if let Some(unanswered) = &mut self.unanswered {
                    unanswered.unknown += 1;
                }
            }
            Mismatch::Duplicate => self.counters.reports_duplicate += 1,
            Mismatch::Ambiguous => {
                self.counters.reports_ambiguous += 1;
                if let Some(unanswered) = &mut self.unanswered {
                    unanswered.ambiguous += 1;
                }
            }
        }
    }

    /// Age after which a boundary is not reported any more.
    pub(super) fn report_age_max(&self) -> Duration {
        if self.feedback.least_rtt().is_none() {
            return self.tuning.waited_max;
        }
        self.tuning.reports_age.max(self.loop_time() * self.tuning.waited_count)
    }

    /// Boundaries have left, but no report of one has arrived for longer than the loop takes.
    pub(super) fn is_report_missing(&self, now: Timestamp) -> bool {
        self.unanswered.is_some_and(|it| now.saturating_since(it.since) > self.report_patience())
    }

    /// Time after which a report counts as missing.
    fn report_patience(&self) -> Duration {
        self.tuning.reports_time.max(self.loop_time() * 2)
    }

    /// Reason why no departure is reported any more; `None`: reports arrive, or none is due.
    pub(super) fn judge_reports(&self, now: Timestamp) -> Option<&'static str> {
        let patience = self.tuning.waited_max.max(self.loop_time() * self.tuning.waited_count);
        let Unanswered { ambiguous, unknown, .. } = self.unanswered.filter(|it| {
            let many = it.many_since.map(|at| now.saturating_since(at));
            many.is_some_and(|age| age > self.report_patience())
                && now.saturating_since(it.since) > patience
        })?;
        Some(if ambiguous >= u64::from(self.tuning.waited_count) {
            ALIKE
        } else if unknown >= u64::from(self.tuning.waited_count) {
            CHANGED
        } else {
            UNREPORTED
        })
    }
}
