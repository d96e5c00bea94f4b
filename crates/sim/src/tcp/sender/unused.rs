//! Pauses and unused windows: reports the results of [`Validation`](crate::tcp::validation::Validation) to
//! the algorithm.

use forebay_core::cc::CongestionEvent;
use forebay_core::units::{Duration, Timestamp};

use super::{Sender, UNBOUNDED};
use crate::tcp::recovery::Phase;
use crate::tcp::validation::{Now, Out};

impl Sender {
    fn window_now(&self) -> Option<Now> {
        if !self.tcp.validates_window || self.state.limits.cwnd == UNBOUNDED {
            return None;
        }
        let is_slow_start = self.state.limits.cwnd < self.state.limits.ssthresh;
        Some(Now { cwnd: self.state.cwnd / self.mss, is_slow_start })
    }

    /// Whether the window is used, for stacks that ask.
    pub(super) fn cwnd_limited(&self) -> Option<bool> {
        Some(self.state.validation.is_limited(self.window_now()?))
    }

    /// No more can be sent, because the window `is_full` or there is no data.
    pub(super) fn validate_window(&mut self, now: Timestamp, is_full: bool) {
        let Some(window) = self.window_now() else { return };
        let (una, next) = (self.board.una(), self.board.next());
        let has_more = self.has_new_segment();
        let is_open = self.state.recovery.phase() == Phase::Open && !self.waits_for_window();
        let out = Out { una, next, is_full, has_more, is_open };
        if let Some(used) =
            self.state.validation.on_pause(now, out, window, self.state.rtt.rto_ns())
        {
            let used = self.bytes(used);
            self.algorithm.on_event(now, CongestionEvent::Underused(used));
            self.take_limits();
        }
    }

    /// A new segment leaves while nothing is outstanding.
    pub(super) fn restart_after_idle(&mut self, now: Timestamp) {
        if self.has_waited_for_window() {
            return;
        }
        let timeouts = self.state.validation.restart(now, self.state.rtt.rto_ns());
        if timeouts > 0 {
            self.algorithm.on_event(now, CongestionEvent::IdleRestart(timeouts));
            self.take_limits();
        }
    }

    /// A segment leaves while nothing is in flight.
    pub(super) fn tell_pause(&mut self, now: Timestamp) {
        let idle_ns = self.state.validation.idle_ns(now);
        if idle_ns > 0 {
            let idle = Duration::from_nanos(idle_ns);
            self.algorithm.on_event(now, CongestionEvent::Resume(idle));
            self.take_limits();
        }
    }
}
