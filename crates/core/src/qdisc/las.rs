//! Least attained service: the flow that has sent least goes first. So short flows need not wait for long
//! ones, and the length of a flow need not be known.
//!
//! ```text
//! bytes of a queue  : bytes that it has sent since it last stood empty for `idle`
//! level of a queue  : how many of the thresholds first, first x factor, first x factor^2, ... those bytes reach
//! next packet       : of the first level that waits; within a level by turns of a quantum, as in `sfq`
//! passed over       : bytes that left while other levels waited behind them. From `starved` x quantum on those
//!                     levels are served in turn, a packet each; each byte of theirs repays `starved` bytes
//! buffer over limit : the longest queue gives up its newest packet
//! ```
//! Sources: I. A. Rai, G. Urvoy-Keller and E. W. Biersack, "Analysis of LAS Scheduling for Job Size
//! Distributions with High Variance", SIGMETRICS 2003; W. Bai et al., "Information-Agnostic Flow Scheduling for
//! Commodity Data Centers", NSDI 2015 (PIAS), for levels instead of an exact order.
//!
//! In an exact order a new long flow would have the link to itself until it had sent the bytes of the oldest
//! one. Flows of one length would finish all together at the end. In a level they share evenly. The last
//! level has no upper end, so long flows share there until they end.
//!
//! Starvation: where short flows alone fill the link, the levels behind the first busy one still get 1 byte
//! in `starved` + 1. Of n such levels each sends a packet at least every n x `starved` quanta (or longest
//! packets, where these are longer). The flows of a level take turns at that.
//!
//! Bytes are forgotten after `idle`, since one connection carries one request after another. 100 ms is longer
//! than most round trips: a flow that awaits acknowledgements with an empty queue is not yet a new one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::buffer::{Buffer, DropFrom};
use crate::qdisc::flows::{Flows, WAYS, queues_and_ways};
use crate::qdisc::marking::{L4S, MARK, Marking};
use crate::qdisc::params::{ECN, FLOWS_MAX, Holding, MTU, QUANTUM, SEED, TIMES};
use crate::qdisc::round::Round;
use crate::qdisc::turns::Turns;
use crate::qdisc::{Backlog, Built, Discipline, DropSink, Qdisc};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp};

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "las",
    summary: "least attained service: flows that have sent least go first, in levels",
    sources: &["Rai, Urvoy-Keller and Biersack, SIGMETRICS 2003", "Bai et al., NSDI 2015"],
    params: &[
        &LIMIT, &FLOWS, &WAYS, &QUANTUM, &LEVELS, &FIRST, &FACTOR, &IDLE, &STARVED, &ECN, &MARK,
        &L4S, &SEED,
    ],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    Ok(Box::new(Las::new(LasParams::from_spec(spec)?)))
}

/// Packets, bytes or time of all flows together; the default is sfq's.
const LIMIT: Param<Holding> =
    Param::new("limit", "capacity of all queues together; default as in sfq")
        .or(Holding(Limit::Packets(1200)));
/// Number of hash queues. Fewer queues make more flows share one.
const FLOWS: Param<u64> =
    Param::new("flows", "number of queues that flows are hashed to; default as in sfq")
        .or(1024)
        .within(1..=FLOWS_MAX);
/// With the defaults of `first` and `factor` the thresholds are 10 KB, 100 KB and 1 MB, between which lie the
/// sizes of requests, pages and files. PIAS has at most the 8 priorities of a switch.
const LEVELS: Param<u64> =
    Param::new("levels", "number of levels, the last without an upper end").or(4).within(2..=8);
/// End of the first level, in bytes of a flow. A larger one treats longer flows as short.
const FIRST: Param<ByteCount> = Param::new("first", "bytes that a flow sends in the first level")
    .or(ByteCount::new(10_000))
    .within(ByteCount::new(MTU)..=ByteCount::new(1_000_000_000));
/// Ratio of the ends of adjacent levels.
const FACTOR: Param<u64> =
    Param::new("factor", "ratio of each level's upper end to the previous level's")
        .or(10)
        .within(2..=1000);
/// Idle time after which a flow counts as new.
const IDLE: Param<Duration> =
    Param::new("idle", "time that a flow's queue is empty until its bytes are forgotten")
        .or(Duration::from_millis(100))
        .within(TIMES);
/// Short flows can do without a ninth of the link, and long flows go on with it.
const STARVED: Param<u64> =
    Param::new("starved", "quanta of earlier levels for each quantum of a later level")
        .or(8)
        .within(1..=1000);

/// Parameters of [`Las`].
#[derive(Clone, Debug, PartialEq)]
pub struct LasParams {
    /// Limit for all flows together.
    pub limit: Limit,
    /// Number of queues, 1 to 65536.
    pub flows: u32,
    /// Queues among which a flow finds a free one, a power of two up to 8 that divides `flows`.
    pub ways: u32,
    /// Bytes that a flow may send in its turn.
    pub quantum: ByteCount,
    /// Number of levels, at least 1.
    pub levels: u32,
    /// Bytes that a flow sends in the first level.
    pub first: ByteCount,
    /// Ratio of each level's upper end to the previous level's.
    pub factor: u64,
    /// How long a queue stands empty until its bytes are forgotten.
    pub idle: Duration,
    /// Quanta that levels behind let pass for each of their own.
    pub starved: u64,
    /// Which packets are marked.
    pub marking: Marking,
    /// Seed of the flow hash.
    pub seed: u64,
}

impl LasParams {
    pub(super) fn from_spec(spec: &Spec) -> Result<Self, SpecError> {
        let limit = LIMIT.of(spec)?.0;
        let (flows, ways) = queues_and_ways(spec, &FLOWS, 1)?;
        Ok(Self {
            limit,
            flows,
            ways,
            quantum: QUANTUM.of(spec)?,
            levels: LEVELS.of(spec)? as u32,
            first: FIRST.of(spec)?,
            factor: FACTOR.of(spec)?,
            idle: IDLE.of(spec)?,
            starved: STARVED.of(spec)?,
            marking: Marking::from_spec(spec, limit)?,
            seed: SEED.of(spec)?,
        })
    }
}

/// Least attained service.
pub struct Las<P> {
    params: LasParams,
    flows: Flows,
    turns: Turns<P>,
    levels: Vec<Level>,
    queues: Vec<Attained>,
    /// Bytes that passed waiting levels, less `starved` times the bytes that these levels sent for it.
    passed: i64,
    /// The last level served out of order.
    helped: usize,
}

/// Queues that have sent about the same number of bytes.
struct Level {
    round: Round,
    /// Bytes from which on a queue stands in the next level.
    end: ByteCount,
}

/// Bytes that one queue has sent.
#[derive(Clone, Copy, Default)]
struct Attained {
    bytes: ByteCount,
    /// Since when the queue has been empty, if it is.
    empty_since: Timestamp,
}

impl Attained {
    /// Whether the bytes of the queue, which is empty at `now`, are forgotten.
    fn is_forgotten(&self, now: Timestamp, idle: Duration) -> bool {
        self.bytes == ByteCount::ZERO || now.saturating_since(self.empty_since) >= idle
    }
}

impl<P: Packet> Las<P> {
    /// Empty queues.
    pub fn new(params: LasParams) -> Self {
        let end = |level: u32| match params.factor.checked_pow(level) {
            Some(power) if level + 1 < params.levels => params.first * power,
            _ => ByteCount::new(u64::MAX),
        };
        let level = |level| Level { round: Round::EMPTY, end: end(level) };
        let buffer = Buffer::new(params.flows, params.limit, DropFrom::Tail, params.marking);
        Self {
            flows: Flows::new(params.flows, params.ways, 1),
            turns: Turns::new(buffer, params.flows),
            levels: (0..params.levels.max(1)).map(level).collect(),
            queues: alloc::vec![Attained::default(); params.flows as usize],
            passed: 0,
            helped: 0,
            params,
        }
    }

    /// Puts a queue that is in no round at the end of its level's round.
    fn list(&mut self, queue: u32) {
        let bytes = self.queues[queue as usize].bytes;
        // The end of the last level is out of reach.
        if let Some(level) = self.levels.iter_mut().find(|level| bytes < level.end) {
            self.turns.list(&mut level.round, queue, self.params.quantum);
        }
    }

    fn waits(&self, level: usize) -> bool {
        self.levels[level].round.front().is_some()
    }

    /// The level behind `first` that has the next turn, if a queue waits there.
    fn behind(&self, first: usize) -> Option<usize> {
        let count = self.levels.len();
        let mut next = (self.helped.max(first) + 1..count).chain(first + 1..count);
        next.find(|level| self.waits(*level))
    }

    /// The next packet of the first queue of `level`. `None` where that queue is empty or has used up its turn,
    /// which is then over.
    fn serve(&mut self, now: Timestamp, level: usize, drops: &mut dyn DropSink<P>) -> Option<P> {
        let Level { round, end } = &mut self.levels[level];
        let queue = round.front()?;
        let packet = self.turns.serve(now, round, |_| self.params.quantum, drops);
        let attained = &mut self.queues[queue as usize];
        attained.bytes += packet.as_ref().map_or(ByteCount::ZERO, Packet::len);
        if !self.turns.links.is_listed(queue) {
            attained.empty_since = now;
        } else if attained.bytes >= *end {
            round.pop_front(&mut self.turns.links);
            self.list(queue);
        }
        packet
    }
}

impl<P: Packet> Qdisc<P> for Las<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let idle = self.params.idle;
        // A queue belongs to its flow until the bytes are forgotten.
        let is_free = |queue| {
            let is_listed = self.turns.links.is_listed(queue);
            !is_listed && self.queues[queue as usize].is_forgotten(now, idle)
        };
        let queue = self.flows.queue(&packet, self.params.seed, is_free);
        let Turns { buffer, links, .. } = &mut self.turns;
        buffer.push(now, queue, packet, drops);
        if buffer.flow_backlog(queue).packets > 0 && !links.is_listed(queue) {
            let attained = &mut self.queues[queue as usize];
            if attained.is_forgotten(now, idle) {
                attained.bytes = ByteCount::ZERO;
            }
            self.list(queue);
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        loop {
            let first = (0..self.levels.len()).find(|level| self.waits(*level))?;
            let behind = self.behind(first);
            let starved = self.params.quantum * self.params.starved;
            let is_starved = self.passed >= starved.as_u64() as i64;
            let helped = behind.filter(|_| is_starved);
            let Some(packet) = self.serve(now, helped.unwrap_or(first), drops) else { continue };
            let len = packet.len().as_u64() as i64;
            match (behind, helped) {
                (None, _) => self.passed = 0,
                (_, None) => self.passed += len,
                (_, Some(level)) => {
                    self.passed -= len * self.params.starved as i64;
                    self.helped = level;
                }
            }
            return Some(packet);
        }
    }

    fn backlog(&self) -> Backlog {
        self.turns.buffer.backlog()
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.turns.buffer.set_rate(rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::{Dropped, TestPacket};

    fn params() -> LasParams {
        let params = LasParams::from_spec(&Spec::named("las")).unwrap();
        LasParams { quantum: ByteCount::new(1000), ..params }
    }

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn arrive(las: &mut Las<TestPacket>, now: Timestamp, flow: u32, packets: u64) {
        let mut drops = Dropped::default();
        for sequence in 0..packets {
            let len = ByteCount::new(1000);
            let packet = TestPacket { flow, sequence, len, ..TestPacket::default() };
            las.enqueue(now, packet, &mut drops);
        }
        assert!(drops.packets.is_empty());
    }

    /// The flows of the next `packets` packets.
    fn serve(las: &mut Las<TestPacket>, now: Timestamp, packets: usize) -> Vec<u32> {
        let next = || las.dequeue(now, &mut Dropped::default());
        core::iter::from_fn(next).take(packets).map(|packet| packet.flow).collect()
    }

    fn share(flows: &[u32], flow: u32) -> usize {
        flows.iter().filter(|it| **it == flow).count()
    }

    #[test]
    fn new_flow_goes_first_until_it_catches_up() {
        let mut las = Las::new(params());
        arrive(&mut las, ms(0), 1, 200);
        assert_eq!(serve(&mut las, ms(0), 50), [1; 50]);
        arrive(&mut las, ms(1), 2, 200);
        // Flow 1 has one packet after 8 of flow 2, which stands behind it in the same level from 10 kB on.
        assert_eq!(serve(&mut las, ms(1), 11), [2, 2, 2, 2, 2, 2, 2, 2, 1, 2, 2]);
        let flows = serve(&mut las, ms(1), 40);
        assert_eq!((share(&flows, 1), share(&flows, 2)), (20, 20));
    }

    #[test]
    fn two_long_flows_share_evenly_whatever_their_age() {
        let mut las = Las::new(params());
        for round in 0..3 {
            arrive(&mut las, ms(round), 1, 1000);
            assert_eq!(serve(&mut las, ms(round), 1000), [1; 1000]);
        }
        arrive(&mut las, ms(3), 1, 500);
        arrive(&mut las, ms(3), 2, 500);
        // Flow 2 passes 1 MB in turn with the first one's ninth, and then they share.
        let mut of_second = 0;
        while of_second < 1000 {
            let flow = serve(&mut las, ms(3), 1)[0];
            arrive(&mut las, ms(3), flow, 1);
            of_second += u32::from(flow == 2);
        }
        let flows = serve(&mut las, ms(3), 100);
        assert_eq!((share(&flows, 1), share(&flows, 2)), (50, 50));
    }

    #[test]
    fn later_levels_get_their_part_under_short_flows() {
        // As good as never do two of the flows share a queue.
        let mut las = Las::new(LasParams { starved: 4, flows: 65_536, ..params() });
        // Flows 1 and 2 have sent 20 and 200 kB: they wait in two levels.
        for (flow, sent) in [(1, 20), (2, 200)] {
            arrive(&mut las, ms(0), flow, sent);
            serve(&mut las, ms(0), sent as usize);
        }
        arrive(&mut las, ms(1), 1, 100);
        arrive(&mut las, ms(1), 2, 100);
        let mut flows = Vec::new();
        for step in 0..500 {
            // New flows all the time, each of one packet.
            arrive(&mut las, ms(1), 1000 + step, 1);
            flows.extend(serve(&mut las, ms(1), 1));
        }
        assert_eq!((share(&flows, 1), share(&flows, 2)), (50, 50));
        let waits = flows.split(|flow| *flow == 2).map(<[u32]>::len).max();
        assert_eq!(waits, Some(9), "4 short, 1 of the other level, 4 short");
    }

    #[test]
    fn bytes_are_forgotten_exactly_after_the_idle_time() {
        for (pause, order) in [(99, [2, 2, 1, 1]), (100, [1, 2, 1, 2])] {
            let mut las = Las::new(params());
            arrive(&mut las, ms(0), 1, 20);
            assert_eq!(serve(&mut las, ms(5), 20), [1; 20]);
            arrive(&mut las, ms(5 + pause), 1, 2);
            arrive(&mut las, ms(5 + pause), 2, 2);
            assert_eq!(serve(&mut las, ms(5 + pause), 4), order, "after {pause} ms");
        }
    }

    #[test]
    fn queue_stays_with_its_flow_while_bytes_count() {
        let mut las = Las::new(LasParams { flows: 2, ways: 2, ..params() });
        arrive(&mut las, ms(0), 1, 20);
        serve(&mut las, ms(0), 20);
        // Flow 2 takes the other queue, though flow 1's stands empty, and is not charged for it.
        arrive(&mut las, ms(50), 2, 2);
        arrive(&mut las, ms(50), 1, 2);
        assert_eq!(serve(&mut las, ms(50), 4), [2, 2, 1, 1]);
        // Both are free again: flow 3 has a queue of its own and no past.
        arrive(&mut las, ms(150), 1, 1);
        arrive(&mut las, ms(150), 3, 2);
        assert_eq!(serve(&mut las, ms(150), 3), [1, 3, 3]);
    }
}
