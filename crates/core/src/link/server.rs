//! Times at which a link takes the next packet from its queue, and at which that packet has left.

use alloc::sync::Arc;

use super::trace::Trace;
use crate::units::{ByteCount, Rate, Timestamp};

/// Service of a link: the rate or the times at which it sends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Service {
    /// Every packet leaves at once.
    Unlimited,
    /// A constant rate of layer-2 frames without FCS; zero stops the link.
    Rate(Rate),
    /// The opportunities of a trace.
    Trace(#[cfg_attr(feature = "serde", serde(with = "super::trace::as_text"))] Arc<Trace>),
}

impl Service {
    /// The constant rate of the link, until it is changed; `None` if it has none.
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Self::Rate(rate) => Some(*rate),
            Self::Unlimited | Self::Trace(_) => None,
        }
    }
}

/// The transmitter of a link: one packet at a time, in virtual time.
#[derive(Clone, Debug)]
pub struct Server {
    service: Service,
    start: Timestamp,
    /// Carried part of a nanosecond from the packet before, see [`ByteCount::time_at_carrying`].
    carry: u64,
    /// Last departure.
    free_at: Timestamp,
    /// Bytes left of the opportunities at `free_at`.
    credit: ByteCount,
}

impl Server {
    /// An idle server whose trace counts from `start`.
    pub fn new(service: Service, start: Timestamp) -> Self {
        let free_at = Timestamp::ZERO;
        Self { service, start, carry: 0, free_at, credit: ByteCount::ZERO }
    }

    /// Sets the time from which the trace counts.
    pub fn set_start(&mut self, start: Timestamp) {
        self.start = start;
    }

    /// Sets the rate for the next packet and all later ones; the packet in transmission is not affected.
    pub fn set_rate(&mut self, rate: Rate) {
        self.service = Service::Rate(rate);
        self.carry = 0;
    }

    /// The earliest time from `from` on at which a packet may be taken; `None` while the link is stopped.
    pub fn ready_at(&self, from: Timestamp) -> Option<Timestamp> {
        match &self.service {
            Service::Unlimited => Some(from),
            Service::Rate(Rate::ZERO) => None,
            Service::Rate(_) => Some(from.max(self.free_at)),
            Service::Trace(_) if self.credit > ByteCount::ZERO && from <= self.free_at => {
                Some(self.free_at)
            }
            Service::Trace(trace) => Some(trace.next_after(self.start, from.max(self.free_at)).0),
        }
    }

    /// Sends a packet of `len` taken at `at`, a time that [`Server::ready_at`] returned. Returns the time at
    /// which its last byte has left.
    pub fn send(&mut self, at: Timestamp, len: ByteCount) -> Timestamp {
        let departed = match &self.service {
            Service::Unlimited => at,
            Service::Rate(rate) => {
                if at > self.free_at {
                    self.carry = 0;
                }
                let time = len.time_at_carrying(*rate, &mut self.carry);
                time.map_or(Timestamp::MAX, |time| at + time)
            }
            Service::Trace(trace) => {
                let mut slot = at;
                if at > self.free_at {
                    let before = Timestamp::from_nanos(at.as_nanos() - 1);
                    (slot, self.credit) = trace.next_after(self.start, before);
                }
                let mut owed = len;
                while owed > self.credit {
                    owed -= self.credit;
                    (slot, self.credit) = trace.next_after(self.start, slot);
                }
                self.credit -= owed;
                slot
            }
        };
        self.free_at = departed;
        departed
    }

    /// The queue ran empty: the rest of the current opportunity is lost.
    pub fn idle(&mut self) {
        self.credit = ByteCount::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn traced(text: &str) -> Server {
        let trace = Trace::parse("t", text).unwrap();
        Server::new(Service::Trace(Arc::new(trace)), Timestamp::ZERO)
    }

    /// Departure times in milliseconds for packets of these lengths that wait since `from_us`.
    fn departures(server: &mut Server, from_us: u64, lens: &[u64]) -> Vec<u64> {
        let from = Timestamp::from_nanos(from_us * 1_000);
        let mut send = |len: &u64| {
            let at = server.ready_at(from).unwrap();
            server.send(at, ByteCount::new(*len)).as_nanos() / 1_000_000
        };
        lens.iter().map(&mut send).collect()
    }

    #[test]
    fn backlogged_trace_carries_one_full_packet_per_opportunity() {
        let mut server = traced("1\n1\n4\n");
        assert_eq!(departures(&mut server, 500, &[1514; 6]), [1, 1, 4, 5, 5, 8]);
    }

    #[test]
    fn opportunity_carries_small_packets_or_part_of_one() {
        let mut server = traced("2");
        let lens = [500, 500, 1514, 1514, 4000];
        assert_eq!(departures(&mut server, 0, &lens), [2, 2, 4, 6, 12]);
        // The rest of the opportunity at 12 ms is lost with an empty queue.
        server.idle();
        assert_eq!(departures(&mut server, 12_000, &[100]), [14]);
    }
}
