//! A receiver's changing window: how far the sender may go, and the probes while it is closed.
//!
//! ```text
//! open     new segments up to the edge that was announced last, which never falls
//! closed   nothing is outstanding and the window is zero: a probe asks for it after a
//!          timeout, and again after twice as long each time      (RFC 9293, 3.8.6.1; Linux, tcp_probe_timer)
//! limited  the segments that the receiver blocks fill the send buffer: the congestion window
//!          neither grows nor falls                       (Linux, tcp_cwnd_application_limited: NOSPACE);
//!          no rate sample is app-limited, because the application has written
//!                                                                (Linux, tcp_rate_check_app_limited)
//! ```
//! A probe carries no data, and the receiver acknowledges it at once (Linux, tcp_xmit_probe_skb).

use forebay_core::units::Timestamp;

use super::alarms::Alarm;
use super::{Outgoing, Sender};
use crate::event::{after, nanos_between};
use crate::packet::{Kind, Marks};

/// State of a changing window. Numbers count segments.
#[derive(Debug)]
pub(super) struct PeerWindow {
    /// Segments that fit into the send buffer.
    sent_segments: u32,
    /// The number after the last segment that the receiver has room for.
    edge: u32,
    /// The current acknowledgement announces more room than was known.
    is_update: bool,
    is_probe_due: bool,
    /// The window was closed before the next transmission.
    has_opened: bool,
    /// Since when only the window has blocked the sender.
    limited_since: Option<Timestamp>,
    limited_ns: u64,
    probes: u64,
}

impl Sender {
    /// The receiver begins with its whole buffer, and announces its window with each acknowledgement.
    pub fn follow_window(&mut self) {
        self.window = Some(Box::new(PeerWindow {
            sent_segments: self.tcp.sent_segments(),
            edge: self.tcp.received_segments(),
            is_update: false,
            is_probe_due: false,
            has_opened: false,
            limited_since: None,
            limited_ns: 0,
            probes: 0,
        }));
    }

    /// The next acknowledgement announces room up to segment `edge`. One that announces more room than was
    /// known is no duplicate (RFC 5681 section 2).
    pub fn expect_window(&mut self, edge: u32) {
        if let Some(window) = self.window.as_deref_mut() {
            window.is_update = edge > window.edge;
        }
    }

    /// Whether the current acknowledgement announces more room than was known.
    pub(super) fn is_window_update(&self) -> bool {
        self.window.as_deref().is_some_and(|window| window.is_update)
    }

    /// After an acknowledgement was taken: it announced room up to segment `edge`.
    pub fn learn_window(&mut self, now: Timestamp, edge: u32) {
        let Some(window) = self.window.as_deref_mut() else { return };
        if edge > window.edge {
            window.edge = edge;
            let limited_ns = window.limited_since.take().map(|since| nanos_between(since, now));
            window.limited_ns += limited_ns.unwrap_or(0);
        }
        let room = window.edge.saturating_sub(self.board.una());
        self.buffered_segments = room.min(window.sent_segments);
        if self.buffered_segments > 0 && self.state.alarm == Alarm::Window {
            // The timeouts were for probes, not for data.
            window.has_opened = true;
            self.state.rtt.reset_backoff();
            self.state.alarm = Alarm::Timeout;
            self.rto_timer.stop();
        }
    }

    /// Whether a segment is ready but the receiver has no room for it.
    pub(super) fn waits_for_window(&self) -> bool {
        let is_at_edge = |window: &PeerWindow| window.edge == self.board.next();
        self.window.as_deref().is_some_and(is_at_edge) && self.board.next() < self.stream.end()
    }

    /// Nothing more may be sent: returns a probe if one is due, else sets the timer for the next.
    pub(super) fn wait_for_window(&mut self, now: Timestamp) -> Option<Outgoing> {
        if !self.waits_for_window() {
            return None;
        }
        let window = self.window.as_deref_mut()?;
        window.limited_since.get_or_insert(now);
        if std::mem::take(&mut window.is_probe_due) {
            window.probes += 1;
            let (len, marks) = (self.tcp.overhead, Marks::NONE);
            return Some(Outgoing { kind: Kind::WindowProbe, number: 0, len, marks });
        }
        if self.board.outstanding() == 0 && self.state.alarm != Alarm::Window {
            self.state.alarm = Alarm::Window;
            self.rto_timer.set(after(now, self.state.rtt.rto_ns()));
        }
        None
    }

    /// Whether the window was closed until now. A sender with nothing in flight was then not idle, because
    /// the application had written data (Linux, tcp_slow_start_after_idle_check, which only a write calls).
    pub(super) fn has_waited_for_window(&mut self) -> bool {
        self.window.as_deref_mut().is_some_and(|window| std::mem::take(&mut window.has_opened))
    }

    /// The window has been closed for a timeout.
    pub(super) fn plan_window_probe(&mut self) {
        if let Some(window) = self.window.as_deref_mut() {
            window.is_probe_due = true;
            self.state.rtt.back_off();
        }
    }

    /// Number of probes of a closed window, and for how long by `now` the window alone blocked the sender
    /// (ns). `None` if the receiver's window never changes.
    pub fn window_limits(&self, now: Timestamp) -> Option<(u64, u64)> {
        let window = self.window.as_deref()?;
        let ongoing = window.limited_since.map_or(0, |since| nanos_between(since, now));
        Some((window.probes, window.limited_ns + ongoing))
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{Script, at};
    use crate::tcp::stack::Tcp;

    /// Nanoseconds per second.
    const SECOND: u64 = 1_000_000_000;

    /// Ten segments of a receiver's twelve are out.
    fn script() -> Script {
        let receive_buffer = 12 * u64::from(Tcp::LINUX.mss);
        let mut it = Script::new(Tcp { receive_buffer, ..Tcp::LINUX }, None);
        it.sender.follow_window();
        it
    }

    #[test]
    fn new_segments_stop_at_last_announced_edge() {
        let mut it = script();
        assert_eq!(it.ack_with_window(100.0, 10, 12), [10, 11]);
        assert_eq!(it.ack_with_window(101.0, 10, 14), [12, 13]);
        // An overtaken acknowledgement takes no room away.
        assert_eq!(it.ack_with_window(102.0, 10, 12), [0; 0]);
        assert_eq!(it.ack_with_window(103.0, 10, 15), [14]);
        assert_eq!(it.window().0, 20, "the congestion window never was the limit");
    }

    #[test]
    fn closed_window_is_probed_with_backoff() {
        let mut it = script();
        it.ack_with_window(100.0, 10, 12);
        // All is acknowledged but not read. RTO = 50 + 200 ms.
        assert_eq!(it.ack_with_window(150.0, 12, 12), [0; 0]);
        let probes: Vec<f64> = it.wait(2500.0).into_iter().map(|(ms, _)| ms).collect();
        assert_eq!(probes, [400.0, 900.0, 1900.0]);
        assert_eq!(it.sender.window_limits(at(2500.0)).unwrap(), (3, 2_400_000_000));
        // The answer to a probe opens the window; the timeout is for data again.
        assert_eq!(it.ack_with_window(2500.0, 12, 14), [12, 13]);
        assert_eq!(it.sender.rto_ns(), SECOND / 4);
        assert_eq!((it.sender.counters.timeouts, it.sender.counters.resent), (0, 0));
        assert_eq!(it.ack_with_window(2550.0, 14, 40).len(), 20);
        assert_eq!(it.sender.window_limits(at(9999.0)).unwrap().1, 2_450_000_000);
    }

    #[test]
    fn full_receive_window_freezes_congestion_window() {
        let mut it = script();
        let mut windows = Vec::new();
        for round in 1..20 {
            let number = 12 * round - 2;
            it.ack_with_window(50.0 + 50.0 * f64::from(round), number, number + 12);
            windows.push(it.window().0);
        }
        // In slow start a window may grow if half of it is out: 20 by 12.
        assert_eq!((windows[0], windows[18]), (20, 32), "{windows:?}");
    }
}
