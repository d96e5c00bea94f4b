//! Stochastic fairness queueing: flows hashed to a fixed number of queues, served in turn by
//! bytes, one shared buffer.
//!
//! ```text
//! queue of a packet   = the queue of its flow, among the `divisor` queues of its class
//! a queue's turn      : quantum x weight of its class, which a packet may overdraw
//! buffer over limit   : the longest queue gives up its newest packet (`headdrop`: its oldest)
//! every `perturb`     : a new key, so that two flows in one queue do not share it for ever
//! ```
//! Sources: P. McKenney, "Stochastic Fairness Queueing", INFOCOM 1990; Linux net/sched/sch_sfq.c for the
//! rules for turns, for the longest queue and for new queues (at the end of the round). One long flow can
//! thus take the whole buffer while no other flow wants it.
//!
//! A new key must not reorder the packets of a flow. As in Linux, the queued packets are hashed again, queue
//! by queue from head to tail. All packets of a flow are in one queue, so they meet in the new one in their
//! old order. That costs one hash a queued packet every `perturb`, and nothing in between. The alternative
//! keeps old queues under the old key until they are empty. It would cost two look-ups a packet, and a busy
//! queue may never be empty.
//!
//! Departures from Linux:
//! - lengths are compared in the unit of the limit, Linux knows packets only;
//! - no bound on active queues below `divisor` and by default none on one queue (`depth`): Linux' 127
//!   packets of one flow would be a limit of its own in a buffer meant to be shared;
//! - a queue emptied by drops keeps its place in the round until its turn.

use alloc::boxed::Box;
use alloc::string::String;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use crate::packet::Packet;
use crate::qdisc::buffer::{Buffer, DropFrom};
use crate::qdisc::classify::CLASSES;
use crate::qdisc::flows::{Flows, WAYS, queues_and_ways};
use crate::qdisc::marking::{L4S, MARK, Marking};
use crate::qdisc::params::{ECN, FLOWS_MAX, Holding, QUANTUM, SEED};
use crate::qdisc::round::Round;
use crate::qdisc::turns::Turns;
use crate::qdisc::weights::{WEIGHTS, Weights};
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc};
use crate::spec::{Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "sfq",
    summary: "stochastic fairness queueing: hashed flows in turn, drops from the longest",
    sources: &["McKenney, INFOCOM 1990", "Linux net/sched/sch_sfq.c"],
    params: &[
        &LIMIT, &DIVISOR, &WAYS, &DEPTH, &QUANTUM, &CLASSES, &WEIGHTS, &PERTURB, &HEADDROP, &ECN,
        &MARK, &L4S, &SEED,
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(Sfq::new(SfqParams::from_spec(spec)?)))
}

/// Packets, bytes or time of all flows together; beyond it the longest flow loses packets.
const LIMIT: Param<Holding> = Param::new(
    "limit",
    "capacity of all queues together; the default is 3 BDP of 96 Mbit/s x 50 ms",
)
.or(Holding(Limit::Packets(1200)));
/// Number of hash queues in each class (Linux: 1024). Fewer queues make more flows share one.
const DIVISOR: Param<u64> =
    Param::new("divisor", "number of queues that flows are hashed to, in each class (Linux: 1024)")
        .or(1024)
        .within(1..=FLOWS_MAX)
        .also(" in all classes together");
/// Largest length of one queue, in packets.
const DEPTH: Param<u64> =
    Param::new("depth", "packets that one queue may hold; by default as many as the limit")
        .within(1..=1_000_000);
/// Time between hash keys. A shorter one separates colliding flows sooner.
const PERTURB: Param<Perturb> =
    Param::new("perturb", "time between new hash keys, \"0s\": never (tc-sfq(8) recommends 10 s)")
        .or(Perturb(Some(Duration::from_secs(10))));
/// Drop at the head of the longest queue: its sender learns of the loss sooner.
const HEADDROP: Param<bool> =
    Param::switch("headdrop", "the longest queue drops its oldest packet instead of its newest");

/// Time between new hash keys, if there are to be any.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Perturb(Option<Duration>);

impl Quantity for Perturb {
    // Shorter, and hashing the queue again becomes a load; an hour is as good as off.
    /// A value of `perturb`.
    const WHAT: &'static str = "a duration, 100ms to 3600s, or 0s";
    fn read(text: &str) -> Option<Self> {
        let sensible = Duration::from_millis(100)..=Duration::from_secs(3600);
        match Duration::read(text)? {
            Duration::ZERO => Some(Self(None)),
            time => sensible.contains(&time).then_some(Self(Some(time))),
        }
    }
    fn written(&self) -> String {
        self.0.unwrap_or_default().written()
    }
}

/// Parameters of [`Sfq`].
#[derive(Clone, Debug, PartialEq)]
pub struct SfqParams {
    /// Limit for all flows together.
    pub limit: Limit,
    /// Number of queues of each class, 1 to 65536 in all classes together.
    pub divisor: u32,
    /// Queues among which a flow finds a free one, a power of two up to 8 that divides `divisor`.
    pub ways: u32,
    /// Packets that one queue may hold.
    pub depth: Option<u64>,
    /// Bytes that a queue may send a round, for each unit of its weight.
    pub quantum: ByteCount,
    /// The weight of a queue by the class of its flows.
    pub weights: Weights,
    /// Time between new hash keys; `None`: the key never changes.
    pub perturb: Option<Duration>,
    /// Drop the oldest packet of the longest queue, not its newest.
    pub headdrop: bool,
    /// Which packets are marked.
    pub marking: Marking,
    /// Seed of the hash keys.
    pub seed: u64,
}

impl SfqParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let limit = LIMIT.of(spec)?.0;
        let weights = Weights::of_classes(spec)?;
        let (divisor, ways) = queues_and_ways(spec, &DIVISOR, weights.classes())?;
        Ok(Self {
            limit,
            divisor,
            ways,
            depth: DEPTH.given(spec)?,
            quantum: QUANTUM.of(spec)?,
            weights,
            perturb: PERTURB.of(spec)?.0,
            headdrop: HEADDROP.of(spec)?,
            marking: Marking::from_spec(spec, limit)?,
            seed: SEED.of(spec)?,
        })
    }

    /// Bytes that a queue of `class` may send a round.
    fn quantum_of(&self, class: usize) -> ByteCount {
        self.quantum * self.weights.of(class)
    }
}

/// Stochastic fairness queueing.
pub struct Sfq<P> {
    params: SfqParams,
    flows: Flows,
    turns: Turns<P>,
    round: Round,
    keys: SplitMix64,
    key: u64,
    /// When the key changes; `None` until the first packet brings the time.
    next_perturb: Option<Timestamp>,
}

impl<P: Packet> Sfq<P> {
    /// Empty queues.
    pub fn new(params: SfqParams) -> Self {
        let drop_from = if params.headdrop { DropFrom::Head } else { DropFrom::Tail };
        let flows = Flows::new(params.divisor, params.ways, params.weights.classes());
        let queues = flows.count();
        let buffer = Buffer::new(queues, params.limit, drop_from, params.marking);
        let mut keys = SplitMix64::seed_from_u64(params.seed);
        Self {
            flows,
            turns: Turns::new(buffer, queues),
            round: Round::EMPTY,
            key: keys.next_u64(),
            keys,
            next_perturb: None,
            params,
        }
    }

    /// Changes the key when its time has come.
    fn perturb(&mut self, now: Timestamp) {
        let Some(interval) = self.params.perturb else { return };
        let due = *self.next_perturb.get_or_insert(now + interval);
        if now < due {
            return;
        }
        // One change, however long the queue was not used: nothing was hashed in the meantime.
        self.next_perturb = Some(now + interval);
        self.key = self.keys.next_u64();
        self.rehash();
    }

    /// Hashes the queued packets with the new key, in the order of the round.
    fn rehash(&mut self) {
        while let Some(flow) = self.round.pop_front(&mut self.turns.links) {
            self.turns.buffer.detach(flow);
        }
        while let Some(flow) = self.turns.buffer.reattach(|packet| {
            self.flows.queue(packet, self.key, |queue| !self.turns.links.is_listed(queue))
        }) {
            self.list(flow);
        }
    }

    /// Puts a queue that is in no round at its end, so that new queues cannot starve old ones.
    fn list(&mut self, flow: u32) {
        if !self.turns.links.is_listed(flow) {
            let quantum = self.params.quantum_of(self.flows.class_of(flow));
            self.turns.list(&mut self.round, flow, quantum);
        }
    }
}

impl<P: Packet> Qdisc<P> for Sfq<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        self.perturb(now);
        let is_free = |queue| !self.turns.links.is_listed(queue);
        let flow = self.flows.queue(&packet, self.key, is_free);
        let buffer = &mut self.turns.buffer;
        let depth = self.params.depth.unwrap_or(u64::MAX);
        if buffer.flow_backlog(flow).packets >= depth {
            if !self.params.headdrop {
                return drops.dropped(packet, DropReason::Overlimit);
            }
            buffer.drop_one(flow, drops);
        }
        buffer.push(now, flow, packet, drops);
        if buffer.flow_backlog(flow).packets > 0 {
            self.list(flow);
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        self.perturb(now);
        while self.round.front().is_some() {
            let quantum = |flow| self.params.quantum_of(self.flows.class_of(flow));
            let packet = self.turns.serve(now, &mut self.round, quantum, drops);
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    fn backlog(&self) -> Backlog {
        self.turns.buffer.backlog()
    }

    fn flows(&self) -> Option<u32> {
        Some(self.round.len())
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.turns.buffer.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use alloc::vec::Vec;

    fn params(limit: u64) -> SfqParams {
        SfqParams {
            limit: Limit::Packets(limit),
            divisor: 1024,
            ways: 1,
            depth: None,
            quantum: ByteCount::new(1514),
            weights: Weights::ONE,
            perturb: None,
            headdrop: false,
            marking: Marking::default(),
            seed: 1,
        }
    }

    fn packet(flow: u32, sequence: u64) -> TestPacket {
        TestPacket { flow, sequence, ..TestPacket::default() }
    }

    /// Enqueues packets `(flow, sequence)` at time 0; returns the drops.
    fn fill(sfq: &mut Sfq<TestPacket>, packets: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let mut drops = Dropped::default();
        for (flow, sequence) in packets {
            sfq.enqueue(Timestamp::ZERO, packet(*flow, *sequence), &mut drops);
        }
        drops.packets.iter().map(|(packet, _)| (packet.flow, packet.sequence)).collect()
    }

    fn drain(sfq: &mut Sfq<TestPacket>, now: Timestamp) -> Vec<(u32, u64)> {
        let next = || sfq.dequeue(now, &mut Dropped::default());
        core::iter::from_fn(next).map(|packet| (packet.flow, packet.sequence)).collect()
    }

    #[test]
    fn longest_flow_loses_newest_or_oldest_packet() {
        let packets = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)];
        let mut sfq = Sfq::new(params(4));
        assert_eq!(fill(&mut sfq, &packets), [(1, 2)]);
        let mut sfq = Sfq::new(SfqParams { headdrop: true, ..params(4) });
        assert_eq!(fill(&mut sfq, &packets), [(1, 0)]);
    }

    #[test]
    fn arrival_to_a_longest_flow_is_dropped() {
        let mut sfq = Sfq::new(params(4));
        assert_eq!(fill(&mut sfq, &[(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]), [(2, 2)]);
    }

    #[test]
    fn one_flow_may_fill_buffer_unless_depth_forbids() {
        let packets: Vec<(u32, u64)> = (0..1300).map(|sequence| (1, sequence)).collect();
        let mut sfq = Sfq::new(params(1200));
        assert_eq!(fill(&mut sfq, &packets).len(), 100);
        let mut sfq = Sfq::new(SfqParams { depth: Some(127), ..params(1200) });
        assert_eq!(fill(&mut sfq, &packets).len(), 1300 - 127);
        assert_eq!(drain(&mut sfq, Timestamp::ZERO)[0], (1, 0));
        let mut sfq = Sfq::new(SfqParams { depth: Some(127), headdrop: true, ..params(1200) });
        assert_eq!(fill(&mut sfq, &packets).len(), 1300 - 127);
        assert_eq!(drain(&mut sfq, Timestamp::ZERO)[0], (1, 1300 - 127));
    }

    #[test]
    fn a_flood_costs_a_modest_flow_nothing() {
        let mut sfq = Sfq::new(params(50));
        let mut drops = Dropped::default();
        for step in 0..1000 {
            for _ in 0..10 {
                sfq.enqueue(Timestamp::ZERO, packet(1, step), &mut drops);
            }
            sfq.enqueue(Timestamp::ZERO, packet(2, step), &mut drops);
            let sent = [(); 2].map(|()| sfq.dequeue(Timestamp::ZERO, &mut drops).unwrap().flow);
            assert!(sent.contains(&2));
        }
        assert!(drops.packets.iter().all(|(packet, _)| packet.flow == 1));
    }

    #[test]
    fn byte_limit_takes_from_flow_with_most_bytes() {
        let limit = Limit::Bytes(ByteCount::new(4000));
        let mut sfq = Sfq::new(SfqParams { limit, ..params(0) });
        let mut drops = Dropped::default();
        for (flow, len) in [(1, 100), (1, 100), (1, 100), (2, 1500), (2, 1500), (3, 1000)] {
            let packet = TestPacket { flow, len: ByteCount::new(len), ..TestPacket::default() };
            sfq.enqueue(Timestamp::ZERO, packet, &mut drops);
        }
        assert_eq!(drops.packets.iter().map(|(packet, _)| packet.flow).collect::<Vec<_>>(), [2]);
        let huge = TestPacket { flow: 4, len: ByteCount::new(4001), ..TestPacket::default() };
        sfq.enqueue(Timestamp::ZERO, huge, &mut drops);
        assert_eq!(
            drops.packets[1].0.flow, 4,
            "no flow makes room for a packet that can never fit"
        );
    }

    #[test]
    fn new_flow_joins_at_the_end_of_round() {
        let mut sfq = Sfq::new(params(100));
        fill(&mut sfq, &[(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]);
        assert_eq!(drain(&mut sfq, Timestamp::ZERO), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)]);
    }

    #[test]
    fn new_key_separates_flows_without_reordering() {
        let interval = Duration::from_secs(10);
        let after = Timestamp::ZERO + interval;
        let mut parted = 0;
        for seed in 0..64 {
            let params = SfqParams { divisor: 2, perturb: Some(interval), seed, ..params(100) };
            let mut sfq = Sfq::new(params.clone());
            fill(&mut sfq, &[(1, 0), (1, 1), (2, 0), (2, 1)]);
            let mut same = Sfq::new(SfqParams { perturb: None, ..params });
            fill(&mut same, &[(1, 0), (1, 1), (2, 0), (2, 1)]);
            if drain(&mut same, after) != [(1, 0), (1, 1), (2, 0), (2, 1)] {
                continue;
            }
            let order = drain(&mut sfq, after);
            if order == [(1, 0), (2, 0), (1, 1), (2, 1)] {
                parted += 1;
            } else {
                assert_eq!(order, [(1, 0), (1, 1), (2, 0), (2, 1)], "seed {seed}");
            }
        }
        // Half of about 32 seeds that put both flows in one of two queues.
        assert!((8..=24).contains(&parted), "{parted} of 64 seeds");
    }

    #[test]
    fn key_changes_once_per_interval_unless_off() {
        let interval = Duration::from_secs(10);
        let mut sfq = Sfq::new(SfqParams { perturb: Some(interval), ..params(10) });
        let mut keys = Vec::new();
        for second in 0..35 {
            let now = Timestamp::ZERO + Duration::from_secs(second);
            sfq.dequeue(now, &mut Dropped::default());
            keys.push(sfq.key);
        }
        keys.dedup();
        assert_eq!(keys.len(), 4);
        let mut sfq = Sfq::new(params(10));
        let key = sfq.key;
        sfq.dequeue(Timestamp::MAX, &mut Dropped::default());
        assert_eq!(sfq.key, key);
    }
    #[test]
    fn queue_keeps_its_class_quanta_across_keys() {
        let interval = Duration::from_secs(10);
        let weights = Weights::new(&[4, 1]).unwrap();
        // One queue a class: a light flow in a queue with a heavy flow would have that flow's weight.
        let params = SfqParams { divisor: 1, weights, perturb: Some(interval), ..params(200) };
        let mut sfq = Sfq::new(params);
        let mut drops = Dropped::default();
        for sequence in 0..40 {
            for (flow, class) in [(1, 0), (2, 1), (3, 0), (4, 1), (5, 0)] {
                let packet = TestPacket { class, ..packet(flow, sequence) };
                sfq.enqueue(Timestamp::ZERO, packet, &mut drops);
            }
        }
        for second in [0, 10] {
            let now = Timestamp::ZERO + Duration::from_secs(second);
            let mut next = || sfq.dequeue(now, &mut drops).unwrap().class;
            let light: u8 = (0..50).map(|_| next()).sum();
            assert_eq!(light, 10, "of 50 packets at {second} s");
        }
    }

    #[test]
    fn ways_separate_colliding_flows_and_keep_order() {
        let interval = Duration::from_secs(10);
        for seed in 0..64 {
            let params =
                SfqParams { divisor: 2, ways: 2, perturb: Some(interval), seed, ..params(100) };
            let mut sfq = Sfq::new(params);
            let packets = [(1, 0), (1, 1), (2, 0), (2, 1), (1, 2), (2, 2)];
            fill(&mut sfq, &packets);
            assert_eq!(drain(&mut sfq, Timestamp::ZERO)[..2], [(1, 0), (2, 0)], "seed {seed}");
            fill(&mut sfq, &packets);
            let order = drain(&mut sfq, Timestamp::ZERO + interval);
            assert_eq!(order, [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)], "seed {seed}");
        }
    }
}
