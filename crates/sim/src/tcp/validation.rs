//! Window validation: an unused window says nothing about the path.
//!
//! ```text
//! idle      nothing sent for more than a timeout: the window is halved for each,
//!           down to the first window                          (RFC 2861, 3; tcp_cwnd_restart)
//! limited   the segments sent last filled the window, or earlier ones did and not all of them
//!           are acknowledged; in slow start also if twice the most outstanding is more than
//!           the window                            (tcp_cwnd_validate, tcp_is_cwnd_limited)
//! growth    only while limited                                              (RFC 2861, 3)
//! unused    something is sent, but was not limited for a timeout: to the middle between
//!           the window and its used part      (RFC 2861, 3; tcp_cwnd_application_limited)
//! ```
//! As in Linux (net/ipv4/tcp_output.c, include/net/tcp.h), the check follows a transmission. It does not
//! follow an acknowledgement that finds nothing to send. So the end of an answer that once filled the window
//! still lets it grow, by all segments then in flight.
//!
//! RFC 5681 section 4.1 restarts from the first window at once. RFC 7661 keeps the window for longer and
//! halves its used part. The algorithm changes the window; this module says when.

use forebay_core::units::Timestamp;

use crate::event::nanos_between;

/// Use of the window. All numbers count segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validation {
    last_sent: Timestamp,
    /// New segments were sent since the last check.
    has_sent: bool,
    /// The segments before `point` filled the window.
    is_limited: bool,
    /// Most segments outstanding since then, if they did not.
    most: u32,
    point: u32,
    /// When the window was last limited, or last reported as unused.
    since: Timestamp,
    /// Most outstanding since then.
    used: u32,
}

/// The window in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub cwnd: u64,
    pub is_slow_start: bool,
}

/// Outstanding segments when no more can be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    /// SND.UNA and SND.NXT.
    pub una: u32,
    pub next: u32,
    /// The window is full.
    pub is_full: bool,
    /// There is more to send.
    pub has_more: bool,
    /// Nothing is missing, and the receiver's window blocks nothing. Only then the window may fall.
    pub is_open: bool,
}

impl Validation {
    /// State before the first segment, on a connection open since `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            last_sent: Timestamp::MAX,
            has_sent: false,
            is_limited: false,
            most: 0,
            point: 0,
            since: now,
            used: 0,
        }
    }

    /// A segment leaves.
    pub fn on_send(&mut self, now: Timestamp, is_new: bool) {
        self.last_sent = now;
        self.has_sent |= is_new;
    }

    /// Nanoseconds since the last segment left, 0 before the first.
    pub fn idle_ns(&self, now: Timestamp) -> u64 {
        nanos_between(self.last_sent, now)
    }

    /// Number of timeouts that have passed since the last segment left; if any, the use of the window starts
    /// over.
    pub fn restart(&mut self, now: Timestamp, rto_ns: u64) -> u32 {
        let timeouts = self.idle_ns(now).saturating_sub(1) / rto_ns;
        if timeouts > 0 {
            (self.since, self.used) = (now, 0);
        }
        u32::try_from(timeouts).unwrap_or(u32::MAX)
    }

    /// Whether the window may grow.
    pub fn is_limited(&self, window: Now) -> bool {
        self.is_limited || (window.is_slow_start && window.cwnd < 2 * u64::from(self.most))
    }

    /// As much was sent as possible. If the window has not been limited for a timeout, returns its used part.
    pub fn on_pause(&mut self, now: Timestamp, out: Out, window: Now, rto_ns: u64) -> Option<u32> {
        let has_sent = std::mem::take(&mut self.has_sent);
        if !(has_sent || out.is_full && out.has_more) {
            return None;
        }
        let outstanding = out.next - out.una;
        let is_more = !self.is_limited && outstanding > self.most;
        if out.una >= self.point || out.is_full || is_more {
            (self.is_limited, self.most, self.point) = (out.is_full, outstanding, out.next);
        }
        if self.is_limited(window) {
            (self.since, self.used) = (now, 0);
            return None;
        }
        self.used = self.used.max(outstanding);
        if nanos_between(self.since, now) < rto_ns {
            return None;
        }
        self.since = now;
        out.is_open.then(|| std::mem::take(&mut self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;
    /// A window of 40 segments in congestion avoidance.
    const AVOIDANCE: Now = Now { cwnd: 40, is_slow_start: false };
    /// A window of 40 segments in slow start.
    const SLOW_START: Now = Now { cwnd: 40, is_slow_start: true };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    fn out(una: u32, next: u32) -> Out {
        Out { una, next, is_full: next - una >= 40, has_more: false, is_open: true }
    }

    impl Validation {
        fn sent(&mut self, ms: u64, out: Out, window: Now) -> Option<u32> {
            self.on_send(at(ms), true);
            self.on_pause(at(ms), out, window, 250 * MS)
        }
    }

    #[test]
    fn each_timeout_begun_after_the_first_counts() {
        let mut validation = Validation::new(at(0));
        assert_eq!(validation.restart(at(5000), 250 * MS), 0, "nothing was sent");
        validation.on_send(at(100), true);
        let mut idle = |ms| validation.restart(at(ms), 250 * MS);
        assert_eq!([idle(350), idle(351), idle(600), idle(601)], [0, 1, 1, 2]);
    }

    #[test]
    fn filled_window_counts_until_acknowledged() {
        let mut validation = Validation::new(at(0));
        validation.sent(0, out(0, 40), AVOIDANCE);
        // The last ten: with 35 out the window is not full, but the segments that filled it are not all
        // acknowledged.
        validation.sent(50, out(15, 50), AVOIDANCE);
        assert!(validation.is_limited(AVOIDANCE));
        validation.on_pause(at(60), out(50, 50), AVOIDANCE, 250 * MS);
        assert!(validation.is_limited(AVOIDANCE), "nothing is asked while nothing is sent");
        validation.sent(70, out(50, 55), AVOIDANCE);
        assert!(!validation.is_limited(AVOIDANCE));
    }

    #[test]
    fn paused_full_window_counts_only_with_backlog() {
        for (has_more, is_limited) in [(true, true), (false, false)] {
            let mut validation = Validation::new(at(0));
            validation.on_pause(at(0), Out { has_more, ..out(0, 40) }, AVOIDANCE, 250 * MS);
            assert_eq!(validation.is_limited(AVOIDANCE), is_limited);
        }
    }

    #[test]
    fn half_filled_window_suffices_in_slow_start() {
        for (next, is_limited) in [(21, true), (20, false)] {
            let mut validation = Validation::new(at(0));
            validation.sent(0, out(0, next), SLOW_START);
            assert_eq!(validation.is_limited(SLOW_START), is_limited);
            assert!(!validation.is_limited(AVOIDANCE));
        }
    }

    #[test]
    fn unfilled_window_reports_its_usage() {
        let mut validation = Validation::new(at(0));
        let mut sent = |ms, una, used| validation.sent(ms, out(una, una + used), AVOIDANCE);
        assert_eq!([sent(100, 0, 12), sent(200, 12, 3), sent(250, 15, 5)], [None, None, Some(12)]);
        assert_eq!([sent(300, 20, 3), sent(500, 23, 4)], [None, Some(4)]);
    }

    #[test]
    fn a_restart_forgets_what_was_used_before() {
        let mut validation = Validation::new(at(0));
        validation.sent(100, out(0, 12), AVOIDANCE);
        assert_eq!(validation.restart(at(400), 250 * MS), 1);
        assert_eq!(validation.sent(400, out(12, 15), AVOIDANCE), None);
        assert_eq!(validation.sent(650, out(15, 16), AVOIDANCE), Some(3));
    }
}
