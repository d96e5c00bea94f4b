//! Packets that the receiving end of a short connection sends by itself: requests for a connection and for
//! data, and its end. Each is repeated until it is answered.
//!
//! ```text
//! opened by the sender      SYN ──►   ◄── SYN ACK   ACK ──►  data ──►
//! opened by the receiver    ◄── SYN   SYN ACK ──►   ◄── ACK  ◄── request   data ──►
//! ended                     last data with FIN ──►   ◄── ACK  ◄── FIN   ACK ──►
//! ```
//! Source: RFC 9293 sections 3.5 and 3.6. The sending application closes as soon as it has written, so its
//! FIN is on the last segment. The receiving application closes when it has read that segment.
//!
//! Departure: there is no TIME-WAIT. Instead, the sending end answers a repeated FIN for as long as the
//! receiving end repeats it. Timestamps identify segments of an old connection (RFC 7323 section 5, RFC 6191).

use forebay_core::units::Timestamp;

use crate::event::{Timer, after};

/// Longest timeout after doubling (RFC 6298 section 2.5).
const MAX_RTO_NS: u64 = 60_000_000_000;

/// Kind of request that has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A connection.
    Connection,
    /// Data of the connection.
    Data,
    /// The end of the connection.
    End,
}

/// The receiving end of a short connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    unanswered: Option<Wish>,
    rto_ns: u64,
    /// When the request is repeated.
    pub timer: Timer,
}

impl Peer {
    /// Nothing sent.
    pub const SILENT: Self = Self { unanswered: None, rto_ns: 0, timer: Timer::STOPPED };

    /// Starts over; keeps the planned event of the timer.
    pub fn renew(&mut self) {
        *self = Self { timer: self.timer.stopped(), ..Self::SILENT };
    }

    /// Sends `wish` at `now`, and again after `rto_ns`.
    pub fn send(&mut self, now: Timestamp, wish: Wish, rto_ns: u64) {
        (self.unanswered, self.rto_ns) = (Some(wish), rto_ns);
        self.timer.set(after(now, rto_ns));
    }

    /// An answer to `wish` arrives; true if it was expected.
    #[inline]
    pub fn on_answer(&mut self, wish: Wish) -> bool {
        if self.unanswered != Some(wish) {
            return false;
        }
        self.unanswered = None;
        self.timer.stop();
        true
    }

    /// The timer has expired: returns the request to repeat, and doubles the time to the next repetition.
    pub fn on_timeout(&mut self, now: Timestamp) -> Option<Wish> {
        let wish = self.unanswered?;
        self.send(now, wish, (2 * self.rto_ns).min(MAX_RTO_NS));
        Some(wish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Events};

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn wish_is_repeated_with_exponential_backoff() {
        let (mut events, mut peer) = (Events::default(), Peer::SILENT);
        peer.send(at(0), Wish::Connection, 1_000_000_000);
        let mut sent = Vec::new();
        peer.timer.plan(&mut events, Event::Peer(0));
        while let Some((now, event)) = events.pop(at(8000)) {
            if peer.timer.fired(now, &mut events, event) {
                sent.extend(peer.on_timeout(now).map(|wish| (now, wish)));
                peer.timer.plan(&mut events, event);
            }
        }
        let expected = [1000, 3000, 7000].map(|ms| (at(ms), Wish::Connection));
        assert_eq!(sent, expected);
        assert!(!peer.on_answer(Wish::Data) && peer.on_answer(Wish::Connection));
        assert!(!peer.timer.is_running() && !peer.on_answer(Wish::Connection));
    }
}
