//! First in, first out, with a limit in packets or bytes; a packet that does not fit is dropped on arrival.
//!
//! Source: Linux net/sched/sch_fifo.c (pfifo and bfifo in one).
//!
//! With `ecn` the queue marks. With `l4s` packets of L4S (RFC 9331) have a queue of their own, and the two take
//! turns by deficit round robin, a quantum each:
//! ```text
//! ECT(1), CE        -> L4S queue, marked above the step ─┐
//!                                                        ├─ in turn; one limit, from the longer queue
//! ECT(0), Not-ECT   -> classic queue, `ecn` as above    ─┘
//! ```
//! That is not the coupled AQM of RFC 9332 (`dualpi2`). There the classic queue's controller drives the marks
//! of the L4S queue as well, so that flows of both kinds get the same each; this classic queue has no
//! controller, only a threshold. Here each of the two queues gets half of the link while both wait, however
//! many flows stand in it: neither starves the other. For shares by flow, with the step for L4S, use `sfq` or
//! `drr`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::qdisc::buffer::{Buffer, DropFrom};
use crate::qdisc::deficit::DeficitRound;
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::marking::{L4S, MARK, Marking, is_l4s};
use crate::qdisc::params::{ECN, Holding, MTU};
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Limit, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "fifo",
    summary: "first in, first out; drops arrivals when full",
    sources: &["Linux net/sched/sch_fifo.c"],
    params: &[&LIMIT, &ECN, &MARK, &L4S],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(match Fifo::from_spec(spec)? {
        Some(fifo) => Box::new(fifo),
        None => Box::new(MarkingFifo::from_spec(spec)?),
    })
}

/// The default is txqueuelen of an Ethernet device, which pfifo takes when no limit is given.
const LIMIT: Param<Holding> =
    Param::new("limit", "capacity of the queue; the default is Linux' device queue length")
        .or(Holding(Limit::Packets(1000)));

/// First in, first out, without marks.
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

    /// Removes and returns the newest packet with `is_needless`.
    pub fn take_out(&mut self, is_needless: impl Fn(&P) -> bool) -> Option<P> {
        let place = self.packets.iter().rposition(is_needless)?;
        let packet = self.packets.remove(place)?;
        self.backlog.remove(packet.len());
        Some(packet)
    }

    /// The queue that `spec` describes; `None` if `spec` is another kind, or marks packets.
    pub fn from_spec(spec: &Spec) -> Result<Option<Self>, SpecError> {
        if spec.kind != DISCIPLINE.name {
            return Ok(None);
        }
        let limit = LIMIT.of(spec)?.0;
        let is_marking = Marking::from_spec(spec, limit)?.is_on();
        Ok((!is_marking).then(|| Self::new(limit)))
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

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.limit.set_rate(rate);
    }
}

/// Bytes that the queue of L4S and the classic one may send a round.
const QUANTUM: ByteCount = ByteCount::new(MTU);
/// Index of the classic queue.
const CLASSIC_QUEUE: u32 = 0;
/// Index of the L4S queue.
const L4S_QUEUE: u32 = 1;

/// First in, first out, with marks.
pub(super) struct MarkingFifo<P> {
    has_l4s: bool,
    queues: DeficitRound<P>,
}

impl<P: Packet> MarkingFifo<P> {
    pub fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let limit = LIMIT.of(spec)?.0;
        let marking = Marking::from_spec(spec, limit)?;
        let has_l4s = marking.step.is_some();
        let queues = if has_l4s { 2 } else { 1 };
        let buffer = Buffer::new(queues, limit, DropFrom::Tail, marking);
        Ok(Self { has_l4s, queues: DeficitRound::new(buffer, queues) })
    }
}

impl<P: Packet> Qdisc<P> for MarkingFifo<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let queue = if self.has_l4s && is_l4s(&packet) { L4S_QUEUE } else { CLASSIC_QUEUE };
        self.queues.push(now, queue, |_| QUANTUM, packet, drops);
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.queues.pop(now, |_| QUANTUM, drops)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.queues.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ecn;
    use crate::spec::Value;
    use crate::testing::qdisc::{Dropped, TestPacket};

    fn packet(len: u64) -> TestPacket {
        TestPacket { len: ByteCount::new(len), ..TestPacket::default() }
    }

    #[test]
    fn byte_limit_admits_small_packets_that_still_fit() {
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

    #[test]
    fn removal_takes_newest_redundant_packet_and_frees_space() {
        let mut fifo = Fifo::new(Limit::Packets(3));
        let mut drops = Dropped::default();
        let numbered = |sequence| TestPacket { sequence, ..packet(60) };
        (0..3).for_each(|sequence| fifo.enqueue(Timestamp::ZERO, numbered(sequence), &mut drops));
        let taken = fifo.take_out(|packet| packet.sequence < 2).unwrap();
        assert_eq!(
            (taken.sequence, fifo.backlog().packets, fifo.backlog().bytes.as_u64()),
            (1, 2, 120)
        );
        assert!(fifo.take_out(|packet| packet.sequence == 1).is_none());
        assert!(fifo.has_room(ByteCount::new(60)));
        let rest = [0, 2].map(|_| fifo.dequeue(Timestamp::ZERO, &mut drops).unwrap().sequence);
        assert_eq!(rest, [0, 2]);
    }

    #[test]
    fn only_a_fifo_without_marks_needs_no_table() {
        let spec = |text: &str| text.parse::<Spec>().unwrap();
        for (text, is_plain) in [
            ("fifo", true),
            ("fifo(limit=20KB)", true),
            ("fifo(ecn=false)", true),
            ("fifo(ecn=true)", false),
            ("fifo(l4s=1ms)", false),
            ("sfq", false),
        ] {
            let fifo = Fifo::<TestPacket>::from_spec(&spec(text)).unwrap();
            assert_eq!(fifo.is_some(), is_plain, "{text}");
        }
    }

    #[test]
    fn l4s_and_classic_share_buffer_without_starvation() {
        let spec = Spec::named("fifo").with("limit", Value::Text("20p".into()));
        let spec = spec.with("l4s", Value::Text("1ms".into()));
        for (few, many) in [(Ecn::Ect1, Ecn::Ect0), (Ecn::NotEct, Ecn::Ect1)] {
            let mut queue = MarkingFifo::from_spec(&spec).unwrap();
            let mut drops = Dropped::default();
            let (mut of_few, mut sent) = (0, 0);
            for step in 0..1000 {
                // For each departure, ten packets of one kind arrive and one of the other.
                for arrival in 0..11 {
                    let ecn = if arrival == 5 { few } else { many };
                    let packet = TestPacket { ecn, sequence: step, ..TestPacket::default() };
                    queue.enqueue(Timestamp::ZERO, packet, &mut drops);
                }
                let packet = queue.dequeue(Timestamp::ZERO, &mut drops).unwrap();
                assert_ne!(packet.ecn, Ecn::Ce, "nothing has waited");
                of_few += u64::from(packet.ecn == few);
                sent += 1;
            }
            assert!((495..=505).contains(&of_few), "{of_few} of {sent} packets are {few:?}");
        }
    }

    #[test]
    fn one_queue_keeps_total_order_two_their_own() {
        let arrivals = [Ecn::Ect0, Ecn::Ect1, Ecn::NotEct, Ecn::Ect1, Ecn::Ce, Ecn::Ect0];
        for (params, expected) in
            [("ecn=true", [0, 1, 2, 3, 4, 5]), ("l4s=1ms, ecn=true", [0, 1, 2, 3, 5, 4])]
        {
            let spec: Spec = alloc::format!("fifo({params})").parse().unwrap();
            let mut queue = MarkingFifo::from_spec(&spec).unwrap();
            let mut drops = Dropped::default();
            for (sequence, ecn) in (0..).zip(arrivals) {
                let packet = TestPacket { ecn, sequence, ..TestPacket::default() };
                queue.enqueue(Timestamp::ZERO, packet, &mut drops);
            }
            let next = || queue.dequeue(Timestamp::ZERO, &mut drops);
            let order = core::iter::from_fn(next).map(|packet| packet.sequence);
            assert!(order.eq(expected), "{spec}");
        }
    }
}
