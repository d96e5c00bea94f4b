//! When reports are missing, and when control is given up for want of them.
//!
//! Missing reports freeze the rate at no more than what the path has carried. A peer that lives but reports
//! nothing of enough boundaries for long enough, or only of packets that cannot be told apart, is as good as
//! silent: the bundle is unshaped.

use super::Control;
use crate::bundle::boundary::Mismatch;
use crate::units::{Duration, Timestamp};

/// Reports count as missing after this and two loop times.
const MISSING_MIN: Duration = Duration::from_millis(100);
/// Control is given up after so long without a report, and so many loop times: a frozen rate knows
/// nothing of a path that has changed since.
const BLIND_MIN: Duration = Duration::from_secs(3);
const BLIND_LOOPS: u32 = 10;
/// Boundaries without a report, for the same: at half of the reports lost one chance in a thousand.
const BLIND_BOUNDARIES: u64 = 10;
/// Why control was given up.
const UNREPORTED: &str = "packets leave, no report of them";
const ALIKE: &str = "packets leave that cannot be told apart";
const CHANGED: &str =
    "packets leave, and reports come of none that left: is there NAT between the boxes?";

/// A boundary is not reported any more after so long, and so many loop times: what has the same
/// hash then is another one. Far above what a queue adds while packets leave.
const REPORT_AGE_MIN: Duration = Duration::from_millis(500);
const REPORT_AGE_LOOPS: u32 = 4;
/// Age of a boundary before the first round trip is known, which may be that of a satellite.
const REPORT_AGE_UNKNOWN: Duration = Duration::from_secs(3);

/// A box that has not ticked for so long stood still. At rest it ticks once a second.
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

impl Control {
    /// Finds out whether the box has stood still until `now`, stopped by a signal or with its machine. Reports that came
    /// meanwhile are read late, and make a round trip of as long as that; what passed unshaped only the receivebox
    /// counted. The law's least round trip stays: another could be learnt only behind the queue that stands by now.
    pub(super) fn notice_standstill(&mut self, now: Timestamp) {
        if now.saturating_since(self.ticked_at) > STOOD_STILL && self.resumed_at < now {
            self.resumed_at = now;
            self.unanswered = None;
            self.forget_receivebox();
        }
    }

    /// A boundary has left of which a report is to come.
    pub(super) fn await_report(&mut self, now: Timestamp) {
        if now < self.resumed_at {
            return;
        }
        let first =
            Unanswered { since: now, boundaries: 0, ambiguous: 0, unknown: 0, many_since: None };
        let unanswered = self.unanswered.get_or_insert(first);
        unanswered.boundaries += 1;
        if unanswered.boundaries == BLIND_BOUNDARIES {
            unanswered.many_since = Some(now);
        }
    }

    /// No answer to what left: one that says nothing of a departure would hide for ever that
    /// control runs on what was known long ago.
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

    /// A report of what left longer ago does not come any more.
    pub(super) fn report_age_max(&self) -> Duration {
        if self.feedback.least_rtt().is_none() {
            return REPORT_AGE_UNKNOWN;
        }
        REPORT_AGE_MIN.max(self.loop_time() * REPORT_AGE_LOOPS)
    }

    /// Boundaries have left, yet nothing has been learnt of them for longer than the loop takes.
    pub(super) fn is_report_missing(&self, now: Timestamp) -> bool {
        self.unanswered.is_some_and(|it| now.saturating_since(it.since) > self.report_patience())
    }

    /// A report that has not come for so long is missing.
    fn report_patience(&self) -> Duration {
        MISSING_MIN.max(self.loop_time() * 2)
    }

    /// Gives control up if nothing has been learnt of many boundaries for long.
    pub(super) fn judge_reports(&mut self, now: Timestamp) {
        let patience = BLIND_MIN.max(self.loop_time() * BLIND_LOOPS);
        let blind = self.unanswered.filter(|it| {
            let many = it.many_since.map(|at| now.saturating_since(at));
            many.is_some_and(|age| age > self.report_patience())
                && now.saturating_since(it.since) > patience
        });
        let Some(Unanswered { ambiguous, unknown, .. }) = blind.filter(|_| self.blind.is_none())
        else {
            return;
        };
        self.blind = Some(if ambiguous >= BLIND_BOUNDARIES {
            ALIKE
        } else if unknown >= BLIND_BOUNDARIES {
            CHANGED
        } else {
            UNREPORTED
        });
        self.lose_feedback(now);
    }
}
