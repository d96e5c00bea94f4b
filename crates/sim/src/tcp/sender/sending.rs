//! The next segment to send, and its time: the window, the pacing, and repairs before new segments.

use forebay_core::units::{ByteCount, Duration, Timestamp};

use super::{Handshake, Next, Outgoing, Sender};
use crate::event::after;
use crate::packet::{Kind, Marks};
use crate::tcp::recovery::Phase;

impl Sender {
    /// The next packet to send at `now`; `None` if the window, the pacing or the data allow no more.
    pub fn transmit(&mut self, now: Timestamp) -> Option<Outgoing> {
        if self.state.handshake != Handshake::Established {
            return self.request(now);
        }
        if let Some(next) = self.state.probing.take() {
            return Some(self.send(now, next));
        }
        if std::mem::take(&mut self.state.is_forced) {
            let next = self.next_segment().unwrap_or(Next::Again(self.board.una()));
            let paced_until = self.state.paced_until;
            let repair = self.send(now, next);
            if !self.tcp.paces_forced_repairs {
                self.state.paced_until = paced_until;
            }
            return Some(repair);
        }
        if u64::from(self.board.in_flight() + 1) * self.mss > self.state.cwnd {
            self.validate_window(now, true);
            return None;
        }
        if self.state.paced_until > now && self.is_paced() {
            self.pacing_timer.set(self.state.paced_until);
            return None;
        }
        let next = self.next_segment();
        let Some(next) = next else {
            let is_dry = self.tcp.validates_window || self.board.next() == self.stream.end();
            if is_dry && !self.waits_for_window() {
                self.delivery.run_dry(now, self.board.in_flight());
            }
            self.validate_window(now, false);
            return self.wait_for_window(now);
        };
        if self.tcp.validates_window && next == Next::New && self.board.outstanding() == 0 {
            self.restart_after_idle(now);
        }
        Some(self.send(now, next))
    }

    fn request(&mut self, now: Timestamp) -> Option<Outgoing> {
        if !std::mem::take(&mut self.state.is_request_due) {
            return None;
        }
        self.rto_timer.set(after(now, self.state.rtt.rto_ns()));
        let (len, marks) = (self.tcp.syn_bytes, Marks::NONE);
        Some(Outgoing { kind: Kind::Syn, number: 0, len, marks })
    }

    /// Whether segments leave at a pace, now that those up to `board.next()` have left.
    fn is_paced(&self) -> bool {
        let is_behind = self.tcp.paces_first_window || self.board.next() >= self.tcp.initial_window;
        self.state.limits.paces && is_behind
    }

    pub(super) fn has_new_segment(&self) -> bool {
        let has_room = self.board.outstanding() < self.buffered_segments;
        self.board.next() < self.stream.end() && has_room
    }

    fn next_segment(&mut self) -> Option<Next> {
        if self.state.prefers_new && self.has_new_segment() {
            return Some(Next::New);
        }
        if let Some(number) = self.board.next_lost() {
            return Some(Next::Again(number));
        }
        if self.has_new_segment() {
            return Some(Next::New);
        }
        if self.state.recovery.phase() != Phase::Recovery {
            return None;
        }
        self.board.next_unsacked().map(Next::Again)
    }

    fn send(&mut self, now: Timestamp, next: Next) -> Outgoing {
        let is_first = self.board.in_flight() == 0;
        if is_first {
            self.tell_pause(now);
        }
        let sent = self.delivery.on_send(now, is_first);
        let number = match next {
            Next::New => self.board.send_new(sent),
            Next::Again(number) => {
                self.board.send_again(number, sent);
                number
            }
            Next::Probe => self.board.send_probe(sent),
        };
        self.counters.sent += 1;
        self.state.validation.on_send(now, next == Next::New);
        if next != Next::New {
            self.counters.resent += 1;
            self.state.undo.on_resend(now);
        }
        if let Some(prr) = &mut self.state.prr {
            prr.on_send(self.mss);
        }
        if !self.rto_timer.is_running() {
            self.rto_timer.set(after(now, self.state.rtt.rto_ns()));
        }
        if self.tcp.tlp && next == Next::New && self.state.probe.is_none() {
            self.replan_probe(now);
        }
        let payload = self.stream.payload(number);
        let len = payload + self.tcp.overhead;
        if self.is_paced() {
            let rate = self.state.limits.pacing_rate;
            // Algorithms count payload in rates, and Linux and ns-3 pace by payload, too.
            let time = ByteCount::new(u64::from(payload)).time_at(rate).unwrap_or(Duration::MAX);
            self.state.paced_until = self.state.paced_until.max(now) + time;
        }
        let marks = self.state.ecn.marks(next == Next::New);
        Outgoing { kind: Kind::Data, number, len, marks }
    }
}
