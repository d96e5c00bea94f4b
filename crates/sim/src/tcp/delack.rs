//! Delayed acknowledgements: how long a receiver may wait before it acknowledges data in order.
//!
//! ```text
//! count    every second full segment, or after the delay                     (RFC 1122, 4.2.3.2)
//! quick    the first 16 of a connection, after a pause or a duplicate: each   (Linux, tcp_incr_quickack)
//! ATO      delay, from 40 ms: half of it and the gap between two segments,    (Linux, tcp_event_data_recv)
//!          if the gap is shorter than the ATO; at least half of it and 20 ms;
//!          doubled when it expired                                       (Linux, tcp_delack_timer_handler)
//! ```
//! Departures from Linux:
//!
//! - There is no "pingpong" mode: only a receiver that sends data enters it.
//! - A pause is 250 ms, the retransmission timeout on a path of 50 ms. Linux takes the receiver's own timeout,
//!   which a simulated receiver does not have.

use forebay_core::units::Timestamp;

use super::stack::Tcp;
use crate::event::nanos_between;

/// Gap between segments after which the sender has probably restarted (ns). Quick acknowledgements then help it.
const PAUSE_NS: u64 = 250_000_000;
/// Longest delay of an acknowledgement (ns; TCP_DELACK_MAX).
const DELAY_MAX_NS: u64 = 200_000_000;

/// When the next acknowledgement is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedAck {
    every: u32,
    min_ns: u64,
    delay_ns: u64,
    quick_max: u32,
    quick: u32,
    adapts: bool,
    last: Option<Timestamp>,
}

impl DelayedAck {
    /// State at the beginning of a connection of the stack `tcp`.
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            every: tcp.ack_every,
            min_ns: tcp.ack_delay_ns,
            delay_ns: tcp.ack_delay_ns,
            quick_max: tcp.quick_acks,
            quick: tcp.quick_acks,
            adapts: tcp.adapts_ack_delay,
            last: None,
        }
    }

    /// A segment arrives.
    pub fn on_data(&mut self, now: Timestamp) {
        if !self.adapts {
            return;
        }
        let Some(last) = self.last.replace(now) else { return };
        let gap_ns = nanos_between(last, now);
        if gap_ns <= self.min_ns / 2 {
            self.delay_ns = self.delay_ns / 2 + self.min_ns / 2;
        } else if gap_ns < self.delay_ns {
            self.delay_ns = (self.delay_ns / 2 + gap_ns).min(DELAY_MAX_NS);
        } else if gap_ns > PAUSE_NS {
            self.quick = self.quick_max;
        }
    }

    /// A segment arrived for the second time.
    pub fn on_duplicate(&mut self) {
        if self.adapts {
            self.quick = self.quick_max;
        }
    }

    /// Whether `pending` segments in order must be acknowledged now.
    pub fn is_due(&mut self, pending: u32) -> bool {
        let is_quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        is_quick || pending >= self.every
    }

    /// Longest time that an acknowledgement may wait now (ns).
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// The delay expired before another segment arrived.
    pub fn on_expiry(&mut self) {
        if self.adapts {
            self.delay_ns = (2 * self.delay_ns).min(DELAY_MAX_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    /// The delay in milliseconds after segments at these times.
    fn delay(times_ms: &[u64]) -> u64 {
        let mut ack = DelayedAck::new(&Tcp::LINUX);
        times_ms.iter().for_each(|ms| ack.on_data(Timestamp::from_nanos(ms * MS)));
        ack.delay_ns() / MS
    }

    #[test]
    fn the_delay_follows_gaps_shorter_than_itself() {
        assert_eq!(delay(&[0]), 40);
        assert_eq!(delay(&[0, 5, 10, 15]), 40);
        assert_eq!(delay(&[0, 30]), 50);
        assert_eq!(delay(&[0, 30, 75]), 70);
        assert_eq!(delay(&[0, 30, 75, 76]), 55);
        assert_eq!(delay(&[0, 41]), 40, "a gap longer than the delay changes nothing");
    }

    #[test]
    fn missed_segment_doubles_delay_up_to_200_ms() {
        let mut ack = DelayedAck::new(&Tcp::LINUX);
        let delays: Vec<u64> = (0..4)
            .map(|_| {
                ack.on_expiry();
                ack.delay_ns() / MS
            })
            .collect();
        assert_eq!(delays, [80, 160, 200, 200]);
    }

    #[test]
    fn pause_and_duplicate_trigger_quick_acks() {
        let at = |ms: u64| Timestamp::from_nanos(ms * MS);
        let mut ack = DelayedAck::new(&Tcp::LINUX);
        ack.on_data(at(0));
        assert!((0..16).all(|_| ack.is_due(1)));
        assert!(!ack.is_due(1) && ack.is_due(2));
        ack.on_data(at(200));
        assert!(!ack.is_due(1));
        ack.on_data(at(460));
        assert!(ack.is_due(1));
        let mut ack = DelayedAck { quick: 0, ..ack };
        ack.on_duplicate();
        assert!(ack.is_due(1));
    }

    #[test]
    fn a_fixed_delay_stays() {
        let mut ack = DelayedAck::new(&Tcp::NS3);
        for ms in [0, 30, 75] {
            ack.on_data(Timestamp::from_nanos(ms * MS));
        }
        ack.on_expiry();
        assert_eq!(ack.delay_ns(), Tcp::NS3.ack_delay_ns);
    }
}
