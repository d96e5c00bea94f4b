//! First in, first out, with a limit in packets or bytes; what does not fit is dropped on arrival.
//!
//! Source: Linux net/sched/sch_fifo.c (pfifo and bfifo in one).

use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::params::Holding;
use crate::qdisc::{Backlog, Discipline, DropReason, DropSink, Qdisc};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Limit, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "fifo",
    summary: "first in, first out; drops arrivals when full",
    sources: &["Linux net/sched/sch_fifo.c"],
    params: &[&LIMIT],
};

/// The default is txqueuelen of an Ethernet device, which pfifo takes when no limit is given.
const LIMIT: Param<Holding> =
    Param::new("limit", "what the queue holds; the default is Linux' device queue length")
        .or(Holding(Limit::Packets(1000)));

/// First in, first out.
pub struct Fifo<P> {
    limit: CurrentLimit,
    packets: VecDeque<P>,
    backlog: Backlog,
}

impl<P: Packet> Fifo<P> {
    /// An empty queue.
    pub fn new(limit: Limit) -> Self {
        let (packets, backlog) = (VecDeque::new(), Backlog::default());
        Self { limit: CurrentLimit::new(limit), packets, backlog }
    }

    /// A packet of `len` fits.
    #[inline]
    pub fn has_room(&self, len: ByteCount) -> bool {
        !self.limit.is_exceeded(self.backlog.with(len))
    }

    /// Takes a packet that fits, as [`Qdisc::enqueue`] does.
    #[inline]
    pub fn push(&mut self, packet: P) {
        debug_assert!(self.has_room(packet.len()), "asked before");
        self.backlog.add(packet.len());
        self.packets.push_back(packet);
    }

    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self::new(LIMIT.of(spec)?.0))
    }
}

impl<P: Packet> Qdisc<P> for Fifo<P> {
    fn enqueue(&mut self, _now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        if !self.has_room(packet.len()) {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        self.push(packet);
    }

    fn dequeue(&mut self, _now: Timestamp, _drops: &mut dyn DropSink<P>) -> Option<P> {
        // Asked before it is taken out, so that it is copied whole.
        let len = self.packets.front()?.len();
        self.backlog.remove(len);
        self.packets.pop_front()
    }

    fn next_timer(&self) -> Option<Timestamp> {
        self.backlog.ready()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.limit.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::{Dropped, TestPacket};

    fn packet(len: u64) -> TestPacket {
        TestPacket { len: ByteCount::new(len), ..TestPacket::default() }
    }

    #[test]
    fn a_byte_limit_lets_small_packets_in_where_a_large_one_does_not_fit() {
        let mut fifo = Fifo::new(Limit::Bytes(ByteCount::new(3000)));
        let mut drops = Dropped::default();
        for len in [1514, 1514, 100] {
            fifo.enqueue(Timestamp::ZERO, packet(len), &mut drops);
        }
        assert_eq!(fifo.backlog(), Backlog { packets: 2, bytes: ByteCount::new(1614) });
        assert_eq!(drops.reasons(), [DropReason::Overlimit]);
    }

    #[test]
    fn a_packet_limit_ignores_sizes() {
        let mut fifo = Fifo::new(Limit::Packets(2));
        let mut drops = Dropped::default();
        for len in [60, 60, 60] {
            fifo.enqueue(Timestamp::ZERO, packet(len), &mut drops);
        }
        assert_eq!((fifo.backlog().packets, drops.packets.len()), (2, 1));
    }
}
