//! The queue of one bundle: its qdisc and shaper, and what leaves through them.

use forebay_core::bundle::{BoundaryMark, DepartureCounters, EpochSize, SampleBlock, SamplingKey};
use forebay_core::packet::unpadded_len;
use forebay_core::qdisc::{
    self, Backlog, Classifier, DropReason, DropSink, Qdisc, Shaper, ShaperParams,
};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::Timestamp;

use super::super::{BATCH, Listener, QueueCounters, Steering};
use super::frame::{Frame, Pool};
use crate::clock;
use crate::daemon::schedule::Next;
use crate::lateness::Lateness;
use crate::port::{Port, XdpPort};

/// The queue of one bundle.
pub struct Queue {
    classifier: Classifier,
    shaper: Shaper<Frame>,
    epoch_size: EpochSize,
    sampling_key: SamplingKey,
    departed: DepartureCounters,
    given_up: GivenUp,
    lateness: Lateness,
}

impl Queue {
    /// An empty and unshaped queue of this discipline, which samples nothing before it is steered.
    pub fn new(qdisc: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            classifier: Classifier::from_spec(qdisc)?,
            shaper: Shaper::new(qdisc::build(qdisc)?, ShaperParams::default()),
            epoch_size: EpochSize::MAX,
            sampling_key: SamplingKey::IDENTITY,
            departed: DepartureCounters::default(),
            given_up: GivenUp::default(),
            lateness: Lateness::default(),
        })
    }

    /// As for [`Datapath::steer`](super::super::Datapath::steer).
    pub fn steer(&mut self, now: Timestamp, steering: &Steering) {
        self.epoch_size = steering.epoch_size;
        self.sampling_key = steering.sampling_key;
        if steering.rate != self.shaper.rate() {
            self.shaper.set_rate(now, steering.rate);
        }
    }

    /// Takes a packet of the bundle.
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

    /// When the queue wants to be served; [`Timestamp::MAX`] while it is empty.
    pub fn next_departure(&self) -> Timestamp {
        self.shaper.next_timer().unwrap_or(Timestamp::MAX)
    }

    /// What stands in it.
    pub fn backlog(&self) -> Backlog {
        self.shaper.backlog()
    }

    /// What it did since the start.
    pub fn counters(&self) -> QueueCounters {
        let GivenUp { dropped, marked } = self.given_up;
        QueueCounters { dropped, marked, lateness_ns: self.lateness.percentiles() }
    }

    /// Sends what may leave now. What the WAN has no room for stays in the queue, where the
    /// discipline still sees it.
    pub fn serve(
        &mut self,
        started: Timestamp,
        wan: &mut XdpPort,
        pool: &mut Pool,
        listener: &mut impl Listener,
    ) -> Next {
        for sent in 0..BATCH {
            let now = clock::now();
            if !wan.has_room() {
                return match self.next_departure() {
                    at if at > now => Next::At(at),
                    _ if sent == 0 => Next::InTurn,
                    _ => Next::At(started),
                };
            }
            let mut drops = Drops { pool, given_up: &mut self.given_up };
            let Some(frame) = self.shaper.dequeue(now, &mut drops) else {
                return Next::At(self.next_departure());
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
        let is_sent = wan.send(frame.bytes());
        debug_assert!(is_sent, "a packet leaves its queue only when the WAN has room");
        let (headers, bytes) = (frame.headers(), frame.bytes());
        let block = headers.map(|headers| SampleBlock::new(headers, bytes));
        let hash = block.map(|block| block.hash(&self.sampling_key));
        let is_boundary = hash.is_some_and(|hash| self.epoch_size.is_boundary(hash));
        // Only boundaries are asked for their identity.
        let mark = hash.zip(block).filter(|_| is_boundary);
        let mark = mark.map(|(hash, block)| BoundaryMark { hash, identity: block.identity() });
        listener.on_departures(&self.departed.count(now, unpadded_len(headers, bytes), mark));
    }
}

/// Packets that the queue gave up.
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
