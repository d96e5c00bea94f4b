//! Controlled delay: drops or marks at the head of the queue once packets have waited longer than
//! `target` for a whole `interval`. Drops then come more and more often until packets wait less than
//! `target`.
//!
//! ```text
//! sojourn < target, or at most one packet left : good; leave the dropping state
//! sojourn >= target for >= interval            : enter it: drop one, the next after one spacing
//! spacing                                      : interval / sqrt(count), count = drops since entry
//! re-entry within 16 intervals                 : count begins with the drops that the last state added
//! ```
//! Sources: RFC 8289, sections 5.1 to 5.6 with the pseudocode of section 5; Linux
//! include/net/codel_impl.h for marking: a marked packet is delivered and counts as a drop.
//!
//! As in Linux, two disciplines share the control law ([`Codel`]): [`CodelQueue`] has one queue, and
//! [`super::FqCodel`] has one control law per flow.
//!
//! Departure: the interval is divided by an exact integer square root instead of Linux' Newton
//! step, so drop times follow the formula rounded down to a nanosecond.
//!
//! ns-3 (CoDelQueueDisc, [`CodelParams::as_ns3`]) has Linux' arithmetic: times in units of 1024 ns, and one Newton
//! step towards 1 / sqrt(count) in 16 bits for each drop. A step from another count misses, so that a state that
//! resumes at a smaller count drops too often at first. One full packet left behind does not protect the head.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::packet::Packet;
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::params::{ECN, Holding, MTU};
use crate::qdisc::pool::Queued;
use crate::qdisc::{Backlog, Built, Discipline, DropReason, DropSink, Qdisc, mark};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Timestamp};

/// RFC 8289 section 5.1: resume the drop rate of the last dropping state if it ended less than
/// this many intervals ago.
const RESUME_INTERVALS: u32 = 16;

/// Nanoseconds in a unit of time of ns-3 (CODEL_SHIFT).
const NS3_UNIT_NS: u64 = 1024;
/// Bytes left behind below which ns-3 spares the head: a full packet (MinBytes), with the header of PPP.
const NS3_MIN_BYTES: ByteCount = ByteCount::new(1502);

/// RFC 8289 section 4.3: 5 to 10 % of the interval.
pub(super) const TARGET: Param<Duration> =
    Param::new("target", "acceptable standing sojourn time (RFC 8289 section 4.3)")
        .or(Duration::from_millis(5))
        .within(Duration::from_micros(10)..=Duration::from_secs(1));
/// RFC 8289 section 4.2: a worst-case round-trip time; 100 ms suits the Internet.
pub(super) const INTERVAL: Param<Duration> = Param::new(
    "interval",
    "time for which the delay may exceed the target, about the longest RTT (RFC 8289 section 4.2)",
)
.or(Duration::from_millis(100))
.within(Duration::from_micros(100)..=Duration::from_secs(10))
.also(", at least the target");

/// Registry entry.
pub(super) const DISCIPLINE: Discipline = Discipline {
    name: "codel",
    summary: "one queue that drops or marks when packets wait too long",
    sources: &["RFC 8289", "Linux include/net/codel_impl.h"],
    params: &[&LIMIT, &TARGET, &INTERVAL, &ECN],
};

pub(super) fn build<P: Packet + Send + 'static>(spec: &Spec, _levels: usize) -> Built<P> {
    let limit = LIMIT.of(spec)?.0;
    Ok(Box::new(CodelQueue::new(limit, CodelParams::from_spec(spec, &ECN)?)))
}

/// The queue of `spec` as ns-3 has it.
pub(super) fn as_ns3<P: Packet + Send + 'static>(spec: &Spec) -> Built<P> {
    let params = CodelParams { as_ns3: true, ..CodelParams::from_spec(spec, &ECN)? };
    Ok(Box::new(CodelQueue::new(LIMIT.of(spec)?.0, params)))
}

/// Packets, bytes or time in the queue; arrivals beyond it are dropped. CoDel itself keeps the
/// queue far shorter.
const LIMIT: Param<Holding> = Param::new("limit", "capacity of the queue (Linux: 1000 packets)")
    .or(Holding(Limit::Packets(1000)));

/// The parameters of the control law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParams {
    /// Acceptable standing sojourn time.
    pub target: Duration,
    /// Time for which the target may be exceeded.
    pub interval: Duration,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// Units of time, drop times and short queues as in ns-3.
    pub as_ns3: bool,
}

impl CodelParams {
    pub(super) fn from_spec(spec: &Spec, ecn: &Param<bool>) -> Result<Self, SpecError> {
        let (target, interval) = (TARGET.of(spec)?, INTERVAL.of(spec)?);
        if interval < target {
            return Err(INTERVAL.refused(spec));
        }
        Ok(Self { target, interval, ecn: ecn.of(spec)?, as_ns3: false })
    }

    /// Whole units of time; for ns-3 alone these are longer than a nanosecond.
    fn whole(&self, nanos: u64) -> u64 {
        if self.as_ns3 { nanos - nanos % NS3_UNIT_NS } else { nanos }
    }
}

/// The state of the control law for one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Codel {
    is_dropping: bool,
    /// Drops since the dropping state began. A resumed state continues the earlier count.
    count: u32,
    /// `count` when the dropping state began.
    entry_count: u32,
    /// One interval after the sojourn time rose above target.
    first_above: Option<Timestamp>,
    /// When the next drop is due.
    drop_next: Timestamp,
    /// 2^16 / sqrt(count) as ns-3 approximates it, less 1 to fit; 0 before the first drop.
    inverse: u16,
}

/// A packet taken from the head of a queue.
pub(super) struct Head<P> {
    pub queued: Queued<P>,
    /// Bytes left in the queue.
    pub left: ByteCount,
}

impl Codel {
    /// The next packet to deliver; `pop` takes the head of the queue. `None` once it is empty.
    pub fn dequeue<P: Packet>(
        &mut self,
        now: Timestamp,
        params: &CodelParams,
        mut pop: impl FnMut() -> Option<Head<P>>,
        drops: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let now = Timestamp::from_nanos(params.whole(now.as_nanos()));
        let (mut packet, mut may_drop) = self.judge(now, params, pop())?;
        if !self.is_dropping {
            if !may_drop {
                return Some(packet);
            }
            let is_marked = params.ecn && mark(&mut packet, DropReason::Codel, drops);
            self.enter(now, params);
            if is_marked {
                return Some(packet);
            }
            drops.dropped(packet, DropReason::Codel);
            return self.judge(now, params, pop()).map(|(packet, _)| packet);
        }
        while may_drop && now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            let spacing = self.spacing(params);
            self.drop_next += spacing;
            if params.ecn && mark(&mut packet, DropReason::Codel, drops) {
                return Some(packet);
            }
            drops.dropped(packet, DropReason::Codel);
            (packet, may_drop) = self.judge(now, params, pop())?;
        }
        self.is_dropping = may_drop;
        Some(packet)
    }

    /// Counts packets that the owner dropped at its limit. The control law then drops more often, too.
    pub fn count_drops(&mut self, packets: u32) {
        self.count = self.count.saturating_add(packets);
    }

    /// `dodequeue` of the RFC: the packet, and whether sojourn times have been above target for a
    /// whole interval.
    fn judge<P>(
        &mut self,
        now: Timestamp,
        params: &CodelParams,
        head: Option<Head<P>>,
    ) -> Option<(P, bool)> {
        let Some(Head { queued, left }) = head else {
            self.first_above = None;
            self.is_dropping = false;
            return None;
        };
        let sojourn = nanos(now.saturating_since(queued.enqueued));
        let is_short =
            if params.as_ns3 { left < NS3_MIN_BYTES } else { left <= ByteCount::new(MTU) };
        if params.whole(sojourn) < params.whole(nanos(params.target)) || is_short {
            self.first_above = None;
            return Some((queued.packet, false));
        }
        let interval = Duration::from_nanos(params.whole(nanos(params.interval)));
        let first_above = *self.first_above.get_or_insert(now + interval);
        let is_long = if params.as_ns3 { now > first_above } else { now >= first_above };
        Some((queued.packet, is_long))
    }

    /// Enters the dropping state with its first drop at `now`.
    fn enter(&mut self, now: Timestamp, params: &CodelParams) {
        self.is_dropping = true;
        let raised = self.count.saturating_sub(self.entry_count);
        let is_recent = now.saturating_since(self.drop_next) < params.interval * RESUME_INTERVALS;
        self.count = if raised > 1 && is_recent { raised } else { 1 };
        if self.count == 1 {
            self.inverse = u16::MAX;
        }
        self.entry_count = self.count;
        self.drop_next = now + self.spacing(params);
    }

    /// Time of the next drop by the control law. ns-3 refines the root by one Newton step, but not at the first drop.
    fn spacing(&mut self, params: &CodelParams) -> Duration {
        if !params.as_ns3 {
            return spacing(params.interval, self.count);
        }
        if self.count > 1 {
            // y (3 - count y^2) / 2 for y = inverse / 2^16, with 32 bits after the point.
            let y = u64::from(self.inverse) << 16;
            let left =
                (3_u64 << 32).wrapping_sub(u64::from(self.count).wrapping_mul((y * y) >> 32));
            self.inverse = ((left >> 2).wrapping_mul(y) >> 47) as u16;
        }
        let units = nanos(params.interval) / NS3_UNIT_NS;
        Duration::from_nanos(((units * u64::from(self.inverse)) >> 16) * NS3_UNIT_NS)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The control law: `interval / sqrt(count)`, exact for intervals up to 584 years.
fn spacing(interval: Duration, count: u32) -> Duration {
    let nanos = interval.as_nanos().min(u128::from(u64::MAX));
    let spacing = (nanos * nanos / u128::from(count.max(1))).isqrt();
    Duration::from_nanos(spacing as u64)
}

/// One queue under CoDel.
pub struct CodelQueue<P> {
    limit: CurrentLimit,
    params: CodelParams,
    law: Codel,
    packets: VecDeque<Queued<P>>,
    backlog: Backlog,
}

impl<P: Packet> CodelQueue<P> {
    /// An empty queue.
    pub fn new(limit: Limit, params: CodelParams) -> Self {
        Self {
            limit: CurrentLimit::new(limit),
            params,
            law: Codel::default(),
            packets: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }
}

impl<P: Packet> Qdisc<P> for CodelQueue<P> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        if self.limit.is_exceeded(self.backlog.with(packet.len())) {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        self.backlog.add(packet.len());
        self.packets.push_back(Queued { packet, enqueued: now });
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        let pop = || {
            let queued = self.packets.pop_front()?;
            self.backlog.remove(queued.packet.len());
            Some(Head { queued, left: self.backlog.bytes })
        };
        self.law.dequeue(now, &self.params, pop, drops)
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
    use crate::packet::Ecn;
    use crate::testing::qdisc::{Dropped, TestPacket};
    use alloc::vec::Vec;

    const PARAMS: CodelParams = CodelParams {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        ecn: false,
        as_ns3: false,
    };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn packet(sequence: u64, ecn: Ecn) -> TestPacket {
        TestPacket { sequence, ecn, ..TestPacket::default() }
    }

    /// A queue with `packets` waiting since time 0.
    fn filled(params: CodelParams, packets: u64, ecn: Ecn) -> CodelQueue<TestPacket> {
        let mut queue = CodelQueue::new(Limit::Packets(packets), params);
        for sequence in 0..packets {
            queue.enqueue(Timestamp::ZERO, packet(sequence, ecn), &mut Dropped::default());
        }
        queue
    }

    /// Dequeues one packet each millisecond of `millis`; returns the times of the drops.
    fn drop_times(queue: &mut CodelQueue<TestPacket>, millis: core::ops::Range<u64>) -> Vec<u64> {
        let mut times = Vec::new();
        for now in millis {
            let mut drops = Dropped::default();
            queue.dequeue(at(now), &mut drops);
            times.extend(drops.packets.iter().map(|_| now));
        }
        times
    }

    #[test]
    fn spacing_is_interval_over_root_of_count() {
        let interval = Duration::from_millis(100);
        for (count, nanos) in
            [(1, 100_000_000), (2, 70_710_678), (3, 57_735_026), (4, 50_000_000), (100, 10_000_000)]
        {
            assert_eq!(spacing(interval, count), Duration::from_nanos(nanos));
        }
        assert_eq!(spacing(interval, u32::MAX), Duration::from_nanos(1525));
        assert_eq!(spacing(interval, 0), interval);
    }

    #[test]
    fn standing_queue_loses_packets_on_the_schedule() {
        let mut queue = filled(PARAMS, 1000, Ecn::NotEct);
        // First above target at 5 ms, so the first drop at 105 ms; then 100/sqrt(n) ms apart:
        // 205, 275.7, 333.4, 383.4, 428.2, 469.0 ms.
        assert_eq!(drop_times(&mut queue, 0..480), [105, 205, 276, 334, 384, 429, 469]);
    }

    #[test]
    fn burst_that_drains_within_an_interval_is_kept() {
        let mut queue = filled(PARAMS, 90, Ecn::NotEct);
        assert!(drop_times(&mut queue, 0..100).is_empty());
        assert_eq!(queue.backlog(), Backlog::default());
    }

    #[test]
    fn the_last_full_packet_is_never_dropped() {
        let mut queue = CodelQueue::new(Limit::Packets(10), PARAMS);
        let mut drops = Dropped::default();
        // Two packets always wait, each for 50 ms: behind the head, one is left.
        for step in 0..100 {
            queue.enqueue(at(step * 50), packet(step, Ecn::NotEct), &mut drops);
            if step > 0 {
                queue.dequeue(at(step * 50), &mut drops).unwrap();
            }
        }
        assert_eq!(drops.packets, []);
    }

    #[test]
    fn ecn_packets_are_marked_on_the_same_schedule() {
        let mut queue = filled(CodelParams { ecn: true, ..PARAMS }, 1000, Ecn::Ect0);
        let mut drops = Dropped::default();
        let marked: Vec<u64> = (0..480)
            .filter(|now| queue.dequeue(at(*now), &mut drops).unwrap().ecn == Ecn::Ce)
            .collect();
        assert_eq!(marked, [105, 205, 276, 334, 384, 429, 469]);
        assert_eq!(drops.packets, []);
        assert_eq!(drops.marks, [DropReason::Codel; 7]);
        let mut queue = filled(CodelParams { ecn: true, ..PARAMS }, 1000, Ecn::NotEct);
        assert_eq!(drop_times(&mut queue, 0..210), [105, 205]);
    }

    #[test]
    fn dropping_state_resumes_its_rate_within_16_intervals() {
        // Drops at 105, 205, 276, 334 and 384 ms, then the queue runs empty.
        for (pause_ms, resumed) in [(1000, true), (2000, false)] {
            let mut queue = filled(PARAMS, 1000, Ecn::NotEct);
            assert_eq!(drop_times(&mut queue, 0..400).len(), 5);
            while queue.dequeue(at(400), &mut Dropped::default()).is_some() {}
            let start = 400 + pause_ms;
            for sequence in 0..1000 {
                queue.enqueue(at(start), packet(sequence, Ecn::NotEct), &mut Dropped::default());
            }
            let times = drop_times(&mut queue, start..start + 260);
            // count was 5 when the state ended and 1 when it began: 4 resumes as 100/sqrt(4) ms.
            let expected: &[u64] = if resumed { &[105, 155, 200, 241] } else { &[105, 205] };
            let since_start: Vec<u64> = times.iter().map(|time| time - start).collect();
            assert_eq!(since_start, expected, "after {pause_ms} ms");
        }
    }
}
