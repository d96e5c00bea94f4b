//! Flow queueing with controlled delay: deficit round robin over hashed flows, new flows first,
//! CoDel on each flow.
//!
//! ```text
//! queue of a packet = the queue of its flow; with `ways` no other flow takes it while it is in a list
//! not in a list     -> end of `new`, deficit = quantum
//! turn: new before old; deficit <= 0 -> deficit += quantum, end of `old`
//!       queue empty -> from `new` to the end of `old` if `old` has flows, otherwise out
//!       otherwise send what CoDel leaves; deficit -= its bytes
//! over the limit    -> the flow with the most bytes loses half its packets, at most 64
//! ```
//! Sources: RFC 8290, section 4; Linux net/sched/sch_fq_codel.c for the batch of section 4.1.3.
//!
//! Departures from Linux: `memory` counts bytes of packets, not of kernel buffers; CoDel sees the bytes of
//! its own flow (RFC 8289 speaks of one queue), Linux the bytes of all flows; more than one batch is dropped
//! where one does not bring the queue below its limits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::codel::{self, Codel, CodelParams, Head};
use crate::qdisc::flows::{Flows, WAYS, queues_and_ways};
use crate::qdisc::limit::{BYTES_MAX, CurrentLimit};
use crate::qdisc::params::{self, FLOWS_MAX, Holding, MTU, QUANTUM, SEED};
use crate::qdisc::pool::{Pool, Queue};
use crate::qdisc::round::{Links, Round};
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp, stretched};

/// Linux' default `drop_batch`: the search for the fattest flow costs one step a flow, so it must not run for
/// every packet of a flood (RFC 8290 section 4.1.3).
const DROP_BATCH: u32 = 64;

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "fq_codel",
    summary: "CoDel on each hashed flow, new flows first",
    sources: &["RFC 8290", "Linux net/sched/sch_fq_codel.c"],
    params: &[
        &LIMIT,
        &MEMORY,
        &FLOWS,
        &WAYS,
        &QUANTUM,
        &codel::TARGET,
        &codel::INTERVAL,
        &ECN,
        &FOLLOW_RTT,
        &SEED,
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(FqCodel::new(FqCodelParams::from_spec(spec)?)))
}

/// Largest ratio of the interval to the least round trip at which `target`, `interval` and `limit` stay as given.
const ROUND_TRIPS: u32 = 4;
/// Longer times on long paths; off by default.
const FOLLOW_RTT: Param<bool> = Param::switch(
    "follow_rtt",
    "if the minimum round trip exceeds a quarter of the interval, a sendbox scales target, \
     interval and limit with it",
);

/// Packets, bytes or time of all flows together (RFC 8290, section 5.2.3); beyond it the fattest
/// flow loses packets.
const LIMIT: Param<Holding> =
    Param::new("limit", "capacity of all queues together (RFC 8290 section 5.2.3)")
        .or(Holding(Limit::Packets(10240)));
/// Linux marks by default here, and not in codel.
const ECN: Param<bool> = params::ECN.or(true);
/// Bytes of all flows together, in addition to [`LIMIT`] (Linux: 32 MiB).
const MEMORY: Param<ByteCount> =
    Param::new("memory", "bytes in all queues together (Linux: 32 MiB)")
        .or(ByteCount::new(32 << 20))
        .within(ByteCount::new(MTU)..=ByteCount::new(BYTES_MAX));
/// Number of hash queues (RFC 8290, section 5.2.4). Fewer queues make more flows share one.
const FLOWS: Param<u64> =
    Param::new("flows", "number of queues that flows are hashed to (section 5.2.4)")
        .or(1024)
        .within(1..=FLOWS_MAX);

/// Parameters of [`FqCodel`].
#[derive(Clone, Debug, PartialEq)]
pub struct FqCodelParams {
    /// Limit for all flows together.
    pub limit: Limit,
    /// Bytes that all flows may hold together.
    pub memory: ByteCount,
    /// Number of queues, 1 to 65536.
    pub flows: u32,
    /// Queues among which a flow finds a free one, a power of two up to 8 that divides `flows`.
    pub ways: u32,
    /// Bytes that a flow may send a round.
    pub quantum: ByteCount,
    /// The knobs of CoDel.
    pub codel: CodelParams,
    /// These knobs and the limit grow with the least round trip of the path.
    pub follow_rtt: bool,
    /// Seed of the flow hash.
    pub seed: u64,
}

impl FqCodelParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let (flows, ways) = queues_and_ways(spec, &FLOWS, 1)?;
        Ok(Self {
            limit: LIMIT.of(spec)?.0,
            memory: MEMORY.of(spec)?,
            flows,
            ways,
            quantum: QUANTUM.of(spec)?,
            codel: CodelParams::from_spec(spec, &ECN)?,
            follow_rtt: FOLLOW_RTT.of(spec)?,
            seed: SEED.of(spec)?,
        })
    }
}

/// Flow queueing with controlled delay.
pub struct FqCodel<P> {
    params: FqCodelParams,
    /// The knobs in force.
    codel: CodelParams,
    limit: CurrentLimit,
    pool: Pool<P>,
    table: Flows,
    /// Empty before the first packet: most of many queues may never see one.
    flows: Vec<Flow>,
    links: Links,
    new: Round,
    old: Round,
    backlog: Backlog,
}

#[derive(Clone)]
struct Flow {
    queue: Queue,
    /// Bytes that the flow may still send in its turn; negative where a packet overdrew it.
    deficit: i64,
    law: Codel,
}

impl<P: Packet> FqCodel<P> {
    /// Empty queues.
    pub fn new(params: FqCodelParams) -> Self {
        Self {
            codel: params.codel,
            limit: CurrentLimit::new(params.limit),
            pool: Pool::new(),
            table: Flows::new(params.flows, params.ways, 1),
            flows: Vec::new(),
            links: Links::new(params.flows),
            new: Round::EMPTY,
            old: Round::EMPTY,
            backlog: Backlog::default(),
            params,
        }
    }

    fn is_over(&self, backlog: Backlog) -> bool {
        self.limit.is_exceeded(backlog) || backlog.bytes > self.params.memory
    }

    fn quantum(&self) -> i64 {
        self.params.quantum.as_u64() as i64
    }

    /// Halves the fattest flow, in a batch of bounded size.
    fn drop_batch(&mut self, drops: &mut dyn DropSink<P>) {
        let Some(flow) = self.flows.iter_mut().max_by_key(|flow| flow.queue.backlog().bytes) else {
            return;
        };
        let half = flow.queue.backlog().bytes.as_u64() / 2;
        let (mut packets, mut bytes) = (0, 0);
        while packets < DROP_BATCH && bytes <= half {
            let Some(queued) = self.pool.pop_front(&mut flow.queue) else { break };
            packets += 1;
            bytes += queued.packet.len().as_u64();
            self.backlog.remove(queued.packet.len());
            drops.dropped(queued.packet, DropReason::Overlimit);
        }
        if !self.codel.as_ns3 {
            flow.law.count_drops(packets);
        }
    }

    /// The first packet of `flow` that CoDel does not drop.
    fn dequeue_flow(
        &mut self,
        now: Timestamp,
        flow: u32,
        drops: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let Flow { queue, law, deficit } = &mut self.flows[flow as usize];
        let pop = || {
            let queued = self.pool.pop_front(queue)?;
            self.backlog.remove(queued.packet.len());
            Some(Head { queued, left: queue.backlog().bytes })
        };
        let packet = law.dequeue(now, &self.codel, pop, drops)?;
        *deficit -= packet.len().as_u64() as i64;
        Some(packet)
    }
}

impl<P: Packet> Qdisc<P> for FqCodel<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        if self.is_over(Backlog::default().with(packet.len())) {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        // While the queue is listed, the flow's deficit and its CoDel state are in it.
        let is_free = |queue| !self.links.is_listed(queue);
        let index = self.table.queue(&packet, self.params.seed, is_free);
        let quantum = self.quantum();
        if self.flows.is_empty() {
            let flow = Flow { queue: Queue::EMPTY, deficit: 0, law: Codel::default() };
            self.flows.resize(self.params.flows as usize, flow);
        }
        let flow = &mut self.flows[index as usize];
        self.backlog.add(packet.len());
        self.pool.push_back(&mut flow.queue, packet, now);
        if !self.links.is_listed(index) {
            flow.deficit = quantum;
            self.new.push_back(&mut self.links, index);
        }
        while self.is_over(self.backlog) {
            self.drop_batch(drops);
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        loop {
            let is_new = self.new.front().is_some();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let flow = list.front()?;
            if self.flows[flow as usize].deficit <= 0 {
                list.pop_front(&mut self.links);
                self.old.push_back(&mut self.links, flow);
                self.flows[flow as usize].deficit += self.quantum();
            } else if let Some(packet) = self.dequeue_flow(now, flow, drops) {
                return Some(packet);
            } else {
                let list = if is_new { &mut self.new } else { &mut self.old };
                list.pop_front(&mut self.links);
                // Through `old` once, so that a flow of one packet a round stays no new flow for
                // ever and starves the old ones (RFC 8290 section 4.2).
                if is_new && self.old.front().is_some() {
                    self.old.push_back(&mut self.links, flow);
                }
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn flows(&self) -> Option<u32> {
        Some(self.new.len() + self.old.len())
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.limit.set_rate(rate);
    }

    fn set_path_rtt(&mut self, rtt: Duration) {
        let CodelParams { target, interval, .. } = self.params.codel;
        if !self.params.follow_rtt || interval.is_zero() {
            return;
        }
        let round_trips = rtt.saturating_mul(ROUND_TRIPS);
        let factor = (round_trips.as_secs_f64() / interval.as_secs_f64()).max(1.0);
        let longer = |time: Duration| stretched(time, factor);
        (self.codel.target, self.codel.interval) = (longer(target), longer(interval));
        self.limit.scale(self.params.limit, factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::{Dropped, TestPacket};

    fn params(limit: u64) -> FqCodelParams {
        FqCodelParams {
            limit: Limit::Packets(limit),
            memory: ByteCount::new(1_000_000_000),
            flows: 1024,
            ways: 1,
            quantum: ByteCount::new(1514),
            codel: CodelParams {
                target: Duration::from_millis(5),
                interval: Duration::from_millis(100),
                ecn: false,
                as_ns3: false,
            },
            follow_rtt: false,
            seed: 0,
        }
    }

    fn packet(flow: u32, sequence: u64) -> TestPacket {
        TestPacket { flow, sequence, ..TestPacket::default() }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn new_flow_goes_before_old_ones_only_once() {
        let mut queue = FqCodel::new(params(100));
        let mut drops = Dropped::default();
        for sequence in 0..4 {
            queue.enqueue(at(0), packet(1, sequence), &mut drops);
            queue.enqueue(at(0), packet(2, sequence), &mut drops);
        }
        let next = |queue: &mut FqCodel<TestPacket>| {
            queue.dequeue(at(0), &mut Dropped::default()).map(|packet| packet.flow)
        };
        // The first packets use up the quantum, which makes both flows old.
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [1, 2, 1].map(Some));
        queue.enqueue(at(0), packet(3, 0), &mut drops);
        assert_eq!(next(&mut queue), Some(3));
        // A sparse flow that comes back while other flows wait takes its turn among them.
        queue.enqueue(at(0), packet(3, 1), &mut drops);
        assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [2, 3, 1].map(Some));
    }

    #[test]
    fn returning_flows_do_not_starve_an_old_one() {
        let mut queue = FqCodel::new(params(1000));
        let mut drops = Dropped::default();
        for sequence in 0..200 {
            queue.enqueue(at(0), packet(1, sequence), &mut drops);
        }
        let mut next = |queue: &mut FqCodel<TestPacket>| {
            queue.dequeue(at(0), &mut drops).map_or(0, |packet| packet.flow)
        };
        let small = |flow| TestPacket { len: ByteCount::new(100), ..packet(flow, 0) };
        assert_eq!(next(&mut queue), 1);
        // One of the flows 2 and 3 is not served. Its next packet arrives just before the scheduler would
        // find its queue empty (RFC 8290 section 4.2, last paragraph).
        queue.enqueue(at(0), small(2), &mut Dropped::default());
        let served: Vec<u32> = (0..100)
            .map(|_| {
                let flow = next(&mut queue);
                queue.enqueue(at(0), small(if flow == 2 { 3 } else { 2 }), &mut Dropped::default());
                flow
            })
            .collect();
        assert!(served.iter().filter(|flow| **flow == 1).count() > 5, "{served:?}");
    }

    #[test]
    fn fattest_flow_loses_half_or_64_packets() {
        for (fat, expected) in [(20, 11), (1000, 64)] {
            let mut queue = FqCodel::new(params(fat + 1));
            let mut drops = Dropped::default();
            queue.enqueue(at(0), packet(2, 0), &mut drops);
            for sequence in 0..=fat {
                queue.enqueue(at(0), packet(1, sequence), &mut drops);
            }
            let dropped: Vec<(u32, u64)> =
                drops.packets.iter().map(|(packet, _)| (packet.flow, packet.sequence)).collect();
            let oldest: Vec<(u32, u64)> = (0..expected).map(|sequence| (1, sequence)).collect();
            assert_eq!(dropped, oldest);
            assert_eq!(queue.backlog().packets, fat + 2 - expected);
        }
    }

    #[test]
    fn memory_limit_holds_beyond_one_batch() {
        let memory = ByteCount::new(70_000);
        let mut queue = FqCodel::new(FqCodelParams { memory, ..params(10_000) });
        let mut drops = Dropped::default();
        for sequence in 0..1000 {
            let len = ByteCount::new(70);
            let small = TestPacket { len, ..packet(sequence as u32, sequence) };
            queue.enqueue(at(0), small, &mut drops);
        }
        assert!(drops.packets.is_empty());
        let large = TestPacket { len: ByteCount::new(60_000), ..packet(5000, 0) };
        queue.enqueue(at(0), large, &mut drops);
        assert!(queue.backlog().bytes <= memory);
    }

    #[test]
    fn only_the_flow_with_standing_delay_is_dropped() {
        let mut queue = FqCodel::new(params(10_000));
        let mut drops = Dropped::default();
        for sequence in 0..1000 {
            queue.enqueue(at(0), packet(1, sequence), &mut drops);
        }
        for now in 0..480 {
            queue.enqueue(at(now), packet(2, now), &mut drops);
            queue.dequeue(at(now), &mut drops).unwrap();
            queue.dequeue(at(now), &mut drops).unwrap();
        }
        assert!(drops.packets.iter().all(|(packet, _)| packet.flow == 1));
        // As a queue of its own under CoDel: 105, 205, 275.7, 333.4, 383.4, 428.2, 469 ms.
        assert_eq!(drops.packets.len(), 7);
    }
    #[test]
    fn listed_flow_keeps_queue_and_turn_with_ways() {
        // One set of two queues: without ways flows 1 and 2 would meet in it half of the time.
        let mut queue = FqCodel::new(FqCodelParams { flows: 2, ways: 2, ..params(100) });
        let mut drops = Dropped::default();
        for sequence in 0..3 {
            queue.enqueue(at(0), packet(1, sequence), &mut drops);
            queue.enqueue(at(0), packet(2, sequence), &mut drops);
        }
        let mut next = |queue: &mut FqCodel<TestPacket>| {
            queue.dequeue(at(0), &mut drops).map(|packet| (packet.flow, packet.sequence))
        };
        let order = [(1, 0), (2, 0), (1, 1), (2, 1)].map(Some);
        assert_eq!([(); 4].map(|()| next(&mut queue)), order);
        // Flow 3 finds no free queue and is a guest; no flow overtakes itself.
        for sequence in 0..3 {
            queue.enqueue(at(0), packet(3, sequence), &mut Dropped::default());
        }
        let rest: Vec<(u32, u64)> = core::iter::from_fn(|| next(&mut queue)).collect();
        assert_eq!(rest.len(), 5);
        let of_guest = rest.iter().filter(|(flow, _)| *flow == 3).map(|(_, sequence)| *sequence);
        assert!(of_guest.eq(0..3), "{rest:?}");
    }
}
