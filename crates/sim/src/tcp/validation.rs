//! Whether the window is still that of the path: it says nothing once it has not been used.
//!
//! ```text
//! idle      nothing sent for more than a timeout: the window is halved for each,
//!           down to the first window                                     (RFC 2861, 3; Linux, tcp_cwnd_restart)
//! unused    not filled for a timeout: to the middle between it and what was used
//!                                                                (RFC 2861, 3; Linux, tcp_cwnd_application_limited)
//! growth    none where it was not filled                                 (RFC 7661, 4; Linux, tcp_is_cwnd_limited)
//! ```
//! RFC 5681 section 4.1 restarts from the first window at once; RFC 7661 keeps the window for longer and
//! halves what was used. The algorithm does it: this says when.

use forebay_core::units::Timestamp;

use crate::event::nanos_between;

/// What was used of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validation {
    last_sent: Timestamp,
    /// Since when the window has not been filled.
    since: Timestamp,
    /// Most segments outstanding since then.
    used: u32,
}

impl Validation {
    /// Nothing sent yet.
    pub const NEW: Self = Self { last_sent: Timestamp::MAX, since: Timestamp::MAX, used: 0 };

    /// A segment leaves.
    pub fn on_send(&mut self, now: Timestamp) {
        self.last_sent = now;
    }

    /// Timeouts that have passed since the last segment left.
    pub fn idle_timeouts(&self, now: Timestamp, rto_ns: u64) -> u32 {
        let idle_ns = nanos_between(self.last_sent, now);
        u32::try_from(idle_ns.saturating_sub(1) / rto_ns).unwrap_or(u32::MAX)
    }

    /// The window is full.
    pub fn on_full(&mut self, now: Timestamp) {
        (self.since, self.used) = (now, 0);
    }

    /// There is room in a window of `cwnd` segments with `outstanding` of them out. Gives what was used
    /// of it where that went on for a timeout.
    pub fn on_slack(
        &mut self,
        now: Timestamp,
        outstanding: u32,
        (cwnd, is_slow_start): (u64, bool),
        rto_ns: u64,
    ) -> Option<u32> {
        self.used = self.used.max(outstanding);
        // What slow start has just doubled cannot be full yet.
        if is_slow_start && cwnd < 2 * u64::from(self.used) {
            self.on_full(now);
            return None;
        }
        self.since = self.since.min(now);
        if nanos_between(self.since, now) < rto_ns {
            return None;
        }
        let used = self.used;
        self.on_full(now);
        Some(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    #[test]
    fn each_timeout_begun_after_the_first_counts() {
        let mut validation = Validation::NEW;
        assert_eq!(validation.idle_timeouts(at(5000), 250 * MS), 0, "nothing was sent");
        validation.on_send(at(100));
        let idle = |ms| validation.idle_timeouts(at(ms), 250 * MS);
        assert_eq!([idle(350), idle(351), idle(600), idle(601)], [0, 1, 1, 2]);
    }

    #[test]
    fn a_window_that_is_not_filled_for_a_timeout_is_told_with_what_was_used() {
        let mut validation = Validation::NEW;
        validation.on_full(at(0));
        let mut slack = |ms, used| validation.on_slack(at(ms), used, (40, false), 250 * MS);
        assert_eq!([slack(100, 12), slack(200, 3), slack(250, 5)], [None, None, Some(12)]);
        assert_eq!([slack(300, 3), slack(500, 4)], [None, Some(4)]);
    }

    #[test]
    fn half_a_window_counts_as_filled_in_slow_start() {
        let mut validation = Validation::NEW;
        validation.on_full(at(0));
        assert_eq!(validation.on_slack(at(300), 21, (40, true), 250 * MS), None);
        assert_eq!(validation.on_slack(at(500), 1, (40, true), 250 * MS), None);
        assert_eq!(validation.on_slack(at(550), 1, (40, true), 250 * MS), Some(1));
    }
}
