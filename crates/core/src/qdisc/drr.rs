//! Deficit round robin: hashed flows in turn, each within its quantum and its saved deficit; one
//! shared buffer.
//!
//! ```text
//! queue of a packet : the queue of its flow, among the queues of its class
//! a flow's quantum  : quantum x weight of its class
//! turns             : by deficit round robin
//! over limit        : the longest flow gives up its newest packet
//! ```
//! Source: M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin",
//! IEEE/ACM Transactions on Networking 4(3), 1996, section III (with buffer stealing).
//!
//! Unlike in [`super::Sfq`], a flow never overdraws its deficit and the hash key stays.

use alloc::boxed::Box;

use crate::packet::Packet;
use crate::qdisc::buffer::{Buffer, DropFrom};
use crate::qdisc::classify::CLASSES;
use crate::qdisc::deficit::DeficitRound;
use crate::qdisc::flows::{Flows, WAYS, queues_and_ways};
use crate::qdisc::marking::{L4S, MARK, Marking};
use crate::qdisc::params::{ECN, FLOWS_MAX, Holding, QUANTUM, SEED};
use crate::qdisc::weights::{WEIGHTS, Weights};
use crate::qdisc::{Backlog, Built, Discipline, DropSink, Qdisc};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Limit, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "drr",
    summary: "deficit round robin over hashed flows, drops from the longest",
    sources: &["Shreedhar and Varghese, IEEE/ACM ToN 1996"],
    params: &[&LIMIT, &FLOWS, &WAYS, &QUANTUM, &CLASSES, &WEIGHTS, &ECN, &MARK, &L4S, &SEED],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(Drr::new(DrrParams::from_spec(spec)?)))
}

/// Packets, bytes or time of all flows together; beyond it the longest flow loses packets.
const LIMIT: Param<Holding> =
    Param::new("limit", "capacity of all queues together; default as in sfq")
        .or(Holding(Limit::Packets(1200)));
/// Number of hash queues in each class. Fewer queues make more flows share one.
const FLOWS: Param<u64> =
    Param::new("flows", "number of queues that flows are hashed to, in each class; as in sfq")
        .or(1024)
        .within(1..=FLOWS_MAX)
        .also(" in all classes together");

/// Parameters of [`Drr`].
#[derive(Clone, Debug, PartialEq)]
pub struct DrrParams {
    /// Limit for all flows together.
    pub limit: Limit,
    /// Number of queues of each class, 1 to 65536 in all classes together.
    pub flows: u32,
    /// Queues among which a flow finds a free one, a power of two up to 8 that divides `flows`.
    pub ways: u32,
    /// Bytes added to a flow's deficit a round, for each unit of its weight.
    pub quantum: ByteCount,
    /// The weight of a flow by its class.
    pub weights: Weights,
    /// Which packets are marked.
    pub marking: Marking,
    /// Seed of the flow hash.
    pub seed: u64,
}

impl DrrParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let limit = LIMIT.of(spec)?.0;
        let weights = Weights::of_classes(spec)?;
        let (flows, ways) = queues_and_ways(spec, &FLOWS, weights.classes())?;
        Ok(Self {
            limit,
            flows,
            ways,
            quantum: QUANTUM.of(spec)?,
            weights,
            marking: Marking::from_spec(spec, limit)?,
            seed: SEED.of(spec)?,
        })
    }

    /// Bytes that a flow of `class` may send a round.
    fn quantum_of(&self, class: usize) -> ByteCount {
        self.quantum * self.weights.of(class)
    }
}

/// Deficit round robin.
pub struct Drr<P> {
    params: DrrParams,
    flows: Flows,
    round: DeficitRound<P>,
}

impl<P: Packet> Drr<P> {
    /// Empty queues.
    pub fn new(params: DrrParams) -> Self {
        let flows = Flows::new(params.flows, params.ways, params.weights.classes());
        let queues = flows.count();
        let buffer = Buffer::new(queues, params.limit, DropFrom::Tail, params.marking);
        Self { flows, round: DeficitRound::new(buffer, queues), params }
    }
}

impl<P: Packet> Qdisc<P> for Drr<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let is_free = |queue| !self.round.is_listed(queue);
        let queue = self.flows.queue(&packet, self.params.seed, is_free);
        let quantum = |queue| self.params.quantum_of(self.flows.class_of(queue));
        self.round.push(now, queue, quantum, packet, drops);
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        let quantum = |queue| self.params.quantum_of(self.flows.class_of(queue));
        self.round.pop(now, quantum, drops)
    }

    fn backlog(&self) -> Backlog {
        self.round.backlog()
    }

    fn flows(&self) -> Option<u32> {
        Some(self.round.flows())
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.round.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use alloc::vec::Vec;

    #[test]
    fn flow_waits_until_its_deficit_covers_the_packet() {
        let mut drr = Drr::new(DrrParams {
            limit: Limit::Packets(100),
            flows: 1024,
            ways: 1,
            quantum: ByteCount::new(500),
            weights: Weights::ONE,
            marking: Marking::default(),
            seed: 0,
        });
        let mut drops = Dropped::default();
        for (flow, len) in [(1, 1200), (1, 200), (1, 200), (2, 300), (2, 300), (2, 300), (2, 900)] {
            let packet = TestPacket { flow, len: ByteCount::new(len), ..TestPacket::default() };
            drr.enqueue(Timestamp::ZERO, packet, &mut drops);
        }
        let next = || drr.dequeue(Timestamp::ZERO, &mut drops);
        let order: Vec<(u32, u64)> =
            core::iter::from_fn(next).map(|packet| (packet.flow, packet.len.as_u64())).collect();
        // Deficits at the end of each turn. Flow 1: 500, 1000, 1500 - 1400 = 100, then 600 - 200.
        // Flow 2: 500 - 300 = 200, 700 - 600 = 100, 600, and 1100 after flow 1 has left.
        let expected = [(2, 300), (2, 300), (2, 300), (1, 1200), (1, 200), (1, 200), (2, 900)];
        assert_eq!(order, expected);
    }
    #[test]
    fn flow_has_its_class_quanta_in_shared_queue() {
        let mut drr = Drr::new(DrrParams {
            limit: Limit::Packets(100),
            flows: 1,
            ways: 1,
            quantum: ByteCount::new(1514),
            weights: Weights::new(&[3, 1]).unwrap(),
            marking: Marking::default(),
            seed: 0,
        });
        let mut drops = Dropped::default();
        for sequence in 0..6 {
            for class in [1, 0, 7] {
                let packet = TestPacket { class, sequence, ..TestPacket::default() };
                drr.enqueue(Timestamp::ZERO, packet, &mut drops);
            }
        }
        let next = || drr.dequeue(Timestamp::ZERO, &mut drops);
        let order: Vec<u8> = core::iter::from_fn(next).map(|packet| packet.class).collect();
        // The discipline has no class 7: its packets go to the last class.
        let expected = [1, 0, 0, 0, 7, 0, 0, 0, 1, 7, 1, 7, 1, 7, 1, 7, 1, 7];
        assert_eq!(order, expected);
    }
}
