//! The queue of one bundle: its qdisc and shaper, and the packets that leave through them.

use std::time::Duration;

use forebay_core::bundle::{
    BlockVersion, BoundaryMark, DepartureCounters, EpochSize, Overhead, SampleBlock, SamplingKey,
};
use forebay_core::packet::unpadded_len;
use forebay_core::qdisc::{
    self, Backlog, Classifier, DropReason, DropSink, Qdisc, Shaper, ShaperParams,
};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ByteCount, Timestamp};

use super::super::{BATCH, Listener, QueueCounters, Steering};
use super::frame::{Frame, Pool};
use crate::clock;
use crate::daemon::schedule::Next;
use crate::lateness::Lateness;
use crate::port::{Port, XdpPort};

/// The queue of one bundle.
pub struct Queue {
    /// The specification of the discipline.
    qdisc: Spec,
    classifier: Classifier,
    shaper: Shaper<Frame>,
    epoch_size: EpochSize,
    sampling_key: SamplingKey,
    version: BlockVersion,
    path_rtt: Option<Duration>,
    departed: DepartureCounters,
    given_up: GivenUp,
    lateness: Lateness,
}

impl Queue {
    /// An empty and unshaped queue of this discipline, which samples nothing before it is steered.
    pub fn new(qdisc: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            qdisc: qdisc.clone(),
            classifier: Classifier::from_spec(qdisc)?,
            shaper: Shaper::new(qdisc::build(qdisc)?, ShaperParams::default()).watching(),
            epoch_size: EpochSize::MAX,
            sampling_key: SamplingKey::IDENTITY,
            version: BlockVersion::V1,
            path_rtt: None,
            departed: DepartureCounters::default(),
            given_up: GivenUp::default(),
            lateness: Lateness::default(),
        })
    }

    /// A queue whose rates include this overhead per packet.
    pub fn with(mut self, overhead: Overhead) -> Self {
        self.shaper.set_overhead(overhead.on(1, ByteCount::ZERO));
        self
    }

    /// The specification of the discipline.
    pub const fn qdisc(&self) -> &Spec {
        &self.qdisc
    }

    /// Replaces a queue of another discipline and takes over its packets in the order in which they would
    /// have left. Packets beyond the limit of this queue are dropped.
    pub fn succeed(self, now: Timestamp, before: Self, pool: &mut Pool) -> Self {
        let Self { qdisc, classifier, mut shaper, .. } = self;
        let Self { shaper: mut earlier, mut given_up, .. } = before;
        if let Some(rtt) = before.path_rtt {
            shaper.set_path_rtt(rtt);
        }
        shaper.set_rate(now, earlier.rate());
        earlier.set_rate(now, None);
        let mut drops = Drops { pool, given_up: &mut given_up };
        while let Some(mut frame) = earlier.dequeue(now, &mut drops) {
            if let Some(headers) = frame.headers() {
                frame.set_class(classifier.classify(headers));
            }
            shaper.enqueue(now, frame, &mut drops);
        }
        Self { qdisc, classifier, shaper, given_up, ..before }
    }

    /// Sends all queued packets at once from now on. They belong to no bundle any more.
    pub fn release(&mut self, now: Timestamp) {
        self.shaper.set_rate(now, None);
    }

    /// Drops all queued packets; returns how many.
    pub fn expire(&mut self, now: Timestamp, pool: &mut Pool, listener: &mut impl Listener) -> u64 {
        let (rate, before) = (self.shaper.rate(), self.backlog().packets);
        if before == 0 {
            return 0;
        }
        self.shaper.set_rate(now, None);
        let mut drops = Drops { pool, given_up: &mut self.given_up };
        while let Some(frame) = self.shaper.dequeue(now, &mut drops) {
            drops.given_up.dropped += 1;
            drops.pool.give_back(frame);
        }
        self.shaper.set_rate(now, rate);
        listener.on_queue(now, self.backlog());
        before - self.backlog().packets
    }

    /// As for [`Datapath::steer`](super::super::Datapath::steer).
    pub fn steer(&mut self, now: Timestamp, steering: &Steering) {
        self.epoch_size = steering.epoch_size;
        self.sampling_key = steering.sampling_key;
        self.version = steering.version;
        if let Some(rtt) = steering.path_rtt
            && self.path_rtt.replace(rtt) != Some(rtt)
        {
            self.shaper.set_path_rtt(rtt);
        }
        if steering.rate != self.shaper.rate() {
            self.shaper.set_rate(now, steering.rate);
        }
    }

    /// Queues a packet of the bundle.
    pub fn enqueue(
        &mut self,
        now: Timestamp,
        mut frame: Frame,
        pool: &mut Pool,
        listener: &mut impl Listener,
    ) {
        if let Some(headers) = frame.headers() {
            frame.set_class(self.classifier.classify(headers));
        }
        let was_empty = self.shaper.backlog().packets == 0;
        self.shaper.enqueue(now, frame, &mut Drops { pool, given_up: &mut self.given_up });
        if was_empty {
            listener.on_queue(now, self.shaper.backlog());
        }
    }

    /// Next time at which to serve the queue; [`Timestamp::MAX`] while it is empty.
    pub fn next_departure(&self) -> Timestamp {
        self.shaper.next_timer().unwrap_or(Timestamp::MAX)
    }

    /// Packets and bytes in the queue.
    pub fn backlog(&self) -> Backlog {
        self.shaper.backlog()
    }

    /// Counters since the start.
    pub fn counters(&self) -> QueueCounters {
        let GivenUp { dropped, marked } = self.given_up;
        let (flows, lateness_ns) = (self.shaper.flows(), self.lateness.percentiles());
        QueueCounters { dropped, marked, flows, lateness_ns }
    }

    /// Sends the packets that may leave now. If the WAN has no room, packets stay in the queue, where the
    /// discipline still sees them.
    pub fn serve(
        &mut self,
        started: Timestamp,
        wan: &mut XdpPort,
        pool: &mut Pool,
        listener: &mut impl Listener,
    ) -> Next {
        // The clock is not read for each packet: no packet of a batch leaves before all are handed over.
        let mut now = clock::now();
        for sent in 0..BATCH {
            if !wan.has_room() {
                return match self.next_departure() {
                    at if at > now => Next::At(at),
                    _ if sent == 0 => Next::InTurn,
                    _ => Next::At(started),
                };
            }
            let mut drops = Drops { pool, given_up: &mut self.given_up };
            let Some(frame) = self.shaper.dequeue(now, &mut drops) else {
                let next = self.next_departure();
                now = clock::now();
                // At high rates the next packet is due by the time that these are sent.
                if next <= now {
                    continue;
                }
                return Next::At(next);
            };
            self.send(now, &frame, wan, listener);
            pool.give_back(frame);
            let backlog = self.shaper.backlog();
            if backlog.packets == 0 {
                listener.on_queue(now, backlog);
                return Next::At(self.next_departure());
            }
        }
        Next::At(started)
    }

    fn send(
        &mut self,
        now: Timestamp,
        frame: &Frame,
        wan: &mut XdpPort,
        listener: &mut impl Listener,
    ) {
        if self.shaper.rate().is_some() {
            self.lateness.record(self.shaper.lateness());
        }
        if let Some(wait) = self.shaper.sparse_wait() {
            listener.on_wait(wait);
        }
        let is_sent = wan.send(frame.bytes());
        debug_assert!(is_sent, "a packet leaves its queue only when the WAN has room");
        let (headers, bytes) = (frame.headers(), frame.bytes());
        let mark = headers.and_then(|headers| {
            let hash = SampleBlock::new(self.version, headers, bytes).hash(&self.sampling_key);
            // Only boundaries need their identity.
            let identity = || SampleBlock::new(BlockVersion::V2, headers, bytes).identity();
            let is_boundary = self.epoch_size.is_boundary(hash);
            is_boundary.then(|| BoundaryMark { hash, identity: identity() })
        });
        listener.on_departures(&self.departed.count(now, unpadded_len(headers, bytes), mark));
    }
}

/// Counts of packets that the queue dropped or marked.
#[derive(Clone, Copy, Debug, Default)]
struct GivenUp {
    dropped: u64,
    marked: u64,
}

/// Takes the buffers of dropped packets back.
struct Drops<'a> {
    pool: &'a mut Pool,
    given_up: &'a mut GivenUp,
}

impl DropSink<Frame> for Drops<'_> {
    fn dropped(&mut self, frame: Frame, _reason: DropReason) {
        self.given_up.dropped += 1;
        self.pool.give_back(frame);
    }

    fn marked(&mut self, _reason: DropReason) {
        self.given_up.marked += 1;
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::spec::Value;
    use forebay_core::units::Rate;

    use super::super::Nobody;
    use super::*;

    #[test]
    fn new_discipline_takes_over_packets_in_order() {
        let (now, mut pool) = (Timestamp::from_nanos(1), Pool::new(1518, BATCH));
        let fifo = |limit: &str| {
            Queue::new(&Spec::named("fifo").with("limit", Value::Text(limit.into()))).unwrap()
        };
        let mut queue = fifo("40p");
        let steering = Steering {
            rate: Some(Rate::from_mbit_per_sec(1)),
            epoch_size: EpochSize::MAX,
            sampling_key: SamplingKey::IDENTITY,
            version: BlockVersion::V1,
            path_rtt: Some(Duration::from_millis(40)),
        };
        queue.steer(now, &steering);
        for number in 0..20 {
            let frame = pool.copy(&[number; 60]).unwrap();
            queue.enqueue(now, frame, &mut pool, &mut Nobody);
        }
        let same = fifo("50p").succeed(now, queue, &mut pool);
        assert_eq!((same.backlog().packets, same.counters().dropped), (20, 0));
        let mut next = fifo("5p").succeed(now, same, &mut pool);
        assert_eq!((next.backlog().packets, next.counters().dropped), (5, 15));
        assert_eq!(next.shaper.rate(), steering.rate);
        assert_eq!(next.path_rtt, steering.path_rtt);
        next.release(now);
        let mut drops = Drops { pool: &mut pool, given_up: &mut next.given_up };
        let left = std::iter::from_fn(|| next.shaper.dequeue(now, &mut drops));
        let left: Vec<u8> = left.map(|frame| frame.bytes()[0]).collect();
        assert_eq!(left, [0, 1, 2, 3, 4]);
    }
}
