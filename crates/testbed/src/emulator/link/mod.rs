//! A one-way link: loss, then a queue served at a rate or by a trace, then a delay line that may
//! reorder.
//!
//! ```text
//!  offer ──► loss ──► qdisc ──► server ──► delay line ──► poll
//!   arrived            │          departed      │          due
//!                      └► drops                 └► held back on purpose
//! ```
//! The server runs in **virtual time**. A packet's departure follows from the arrivals, the rate and the
//! queue alone. The link computes it later, at the host's next call, but it asks the queue at the virtual
//! instant and in order: all departures up to an arrival happen before that arrival. So a host that polls
//! late delivers late. It neither slows the link down nor shows CoDel another sojourn time.

mod line;
mod upcoming;

use forebay_core::link::{Jitter, Server};
use forebay_core::packet::{Ecn, Packet};
use forebay_core::qdisc::{Backlog, ByReason, DropReason, DropSink, Qdisc};
use forebay_core::random::{Stream, Streams};
use forebay_core::spec::SpecError;
use forebay_core::units::{ByteCount, Ratio, Timestamp};
use forebay_scenario as scenario;

use self::line::DelayLine;
use self::upcoming::Upcoming;

/// A packet inside the link, as its queue sees it.
#[derive(Clone, Debug)]
pub struct Carried<P> {
    packet: P,
    number: u64,
    arrived: Timestamp,
    hold: bool,
}

impl<P: Packet> Packet for Carried<P> {
    fn len(&self) -> ByteCount {
        self.packet.len()
    }
    fn flow_hash(&self, key: u64) -> u64 {
        self.packet.flow_hash(key)
    }
    fn class(&self) -> u8 {
        self.packet.class()
    }
    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }
    fn set_ce(&mut self) {
        self.packet.set_ce();
    }
}

/// Result of an offered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number of the packet on this link, counting every packet offered from 0.
    pub number: u64,
    /// The queue after the offer, without the packet being sent.
    pub queue: Backlog,
}

/// A packet that has passed the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The packet.
    pub packet: P,
    /// Number of the packet, as in [`Arrival`].
    pub number: u64,
    /// Time of its offer.
    pub arrived: Timestamp,
    /// Virtual time at which its last byte left the server.
    pub departed: Timestamp,
    /// Time at which it reaches the far end.
    pub due: Timestamp,
    /// The packet was already waiting when the previous one departed: the link was busy in between.
    pub backlogged: bool,
}

/// A packet that will not pass the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard<P> {
    /// The packet.
    pub packet: P,
    /// Number of the packet, as in [`Arrival`].
    pub number: u64,
    /// Virtual time of the discard.
    pub at: Timestamp,
    /// Why the packet was discarded.
    pub cause: Cause,
}

/// Why a link gave up a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Lost on purpose.
    Lost,
    /// Dropped by the queue.
    Queue(DropReason),
}

/// Counts of events on a link so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets_in: u64,
    /// Packets that departed.
    pub packets_out: u64,
    /// Bytes that departed.
    pub bytes_out: ByteCount,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets dropped by the queue, for any reason.
    pub dropped: u64,
    /// Packets dropped, by reason.
    pub drops: ByReason,
    /// Packets that the queue marked instead of dropping.
    pub marks: ByReason,
}

/// A one-way link for packets `P` with the queue `Q`.
///
/// The delay line holds the packets that the rate carries within the delay. If a link has no rate, the
/// host's own buffers limit the delay line.
pub struct Link<P, Q> {
    qdisc: Q,
    server: Server,
    line: DelayLine<P>,
    /// The packet being sent and its departure.
    sending: Option<(Timestamp, Carried<P>)>,
    /// Packets were waiting when the last one departed.
    backlogged: bool,
    /// When the idle server next asks the queue.
    ask_at: Option<Timestamp>,
    /// Virtual time.
    now: Timestamp,
    start: Timestamp,
    changes: Upcoming,
    loss: Ratio,
    reorder: Ratio,
    loss_stream: Stream,
    reorder_stream: Stream,
    counters: Counters,
}

impl<P: Packet, Q: Qdisc<Carried<P>>> Link<P, Q> {
    /// The link `of` over `qdisc`; its changes and traces count from `start`. Packets pass before `start`
    /// as well. Randomness comes from the streams `loss`, `reorder` and `jitter` of `streams`.
    pub fn new(
        of: &scenario::Link,
        mut qdisc: Q,
        start: Timestamp,
        streams: &Streams,
    ) -> Result<Self, SpecError> {
        of.check()?;
        qdisc.set_service_rate(of.rate());
        let jitter = Jitter::new(of.jitter, of.batch, streams);
        Ok(Self {
            qdisc,
            server: Server::new(of.service.clone(), start),
            line: DelayLine::new(
                of.delay,
                jitter,
                u64::from(of.reorder_packets),
                of.overtakes.unwrap_or(false),
            ),
            sending: None,
            backlogged: false,
            ask_at: None,
            now: Timestamp::ZERO,
            start,
            changes: Upcoming::of(of),
            loss: of.loss,
            reorder: of.reorder,
            loss_stream: streams.stream("loss"),
            reorder_stream: streams.stream("reorder"),
            counters: Counters::default(),
        })
    }

    /// Moves the start, from which changes and traces count; changes that were made stay.
    pub fn set_start(&mut self, start: Timestamp) {
        self.start = start;
        self.server.set_start(start);
        if self.sending.is_none() {
            self.schedule(self.now);
        }
    }

    /// Takes a packet that arrives at `now`. If `now` is before the time of an earlier call, the earlier
    /// call's time counts. All discarded packets go to `discard`.
    pub fn offer(
        &mut self,
        now: Timestamp,
        packet: P,
        discard: &mut impl FnMut(Discard<P>),
    ) -> Arrival {
        self.take(now, packet, false, discard)
    }

    /// Takes a packet that arrives at `now` and that the host loses before the queue, in addition to the
    /// link's own losses; otherwise like [`Link::offer`].
    pub fn lose(
        &mut self,
        now: Timestamp,
        packet: P,
        discard: &mut impl FnMut(Discard<P>),
    ) -> Arrival {
        self.take(now, packet, true, discard)
    }

    fn take(
        &mut self,
        now: Timestamp,
        packet: P,
        chosen: bool,
        discard: &mut impl FnMut(Discard<P>),
    ) -> Arrival {
        self.advance(now, discard);
        let now = self.now;
        let number = self.counters.packets_in;
        self.counters.packets_in += 1;
        // Both are drawn for every packet, so that earlier shares do not change the fate of the n-th packet.
        let lost = self.loss_stream.chance(self.loss.as_f64()) || chosen;
        let hold = self.reorder_stream.chance(self.reorder.as_f64());
        if lost {
            self.counters.lost += 1;
            discard(Discard { packet, number, at: now, cause: Cause::Lost });
            return Arrival { number, queue: self.qdisc.backlog() };
        }
        let carried = Carried { packet, number, arrived: now, hold };
        let mut drops = Drops { at: now, counters: &mut self.counters, discard };
        self.qdisc.enqueue(now, carried, &mut drops);
        if self.sending.is_none() {
            self.schedule(now);
            self.advance(now, discard);
        }
        Arrival { number, queue: self.qdisc.backlog() }
    }

    /// The next packet that has reached the far end by `now`; `None` when there is no more.
    /// Packets that the queue dropped meanwhile go to `discard`.
    pub fn poll(
        &mut self,
        now: Timestamp,
        discard: &mut impl FnMut(Discard<P>),
    ) -> Option<Delivery<P>> {
        self.advance(now, discard);
        self.line.pop(self.now)
    }

    /// The queue at `now`, without the packet that is being sent.
    pub fn queue_at(&mut self, now: Timestamp, discard: &mut impl FnMut(Discard<P>)) -> Backlog {
        self.advance(now, discard);
        self.qdisc.backlog()
    }

    /// Virtual time of the link: nothing can arrive before it.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Time of the next poll. No packet reaches the far end before; with jitter perhaps none does then.
    /// `None`: not before an offer.
    pub fn next_timer(&self) -> Option<Timestamp> {
        let departure = self.next_departure().map(|at| self.line.due(at));
        // A change before the next departure may make that packet due earlier, and one may end a rate of 0.
        let is_waiting = departure.is_some() || self.qdisc.backlog().packets > 0;
        let change = self.next_change().filter(|at| is_waiting && *at < Timestamp::MAX);
        self.line.next_due().into_iter().chain(departure).chain(change).min()
    }

    /// Counts of events so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets inside the link: queued, being sent or on the delay line.
    pub fn held_packets(&self) -> u64 {
        let sending = u64::from(self.sending.is_some());
        self.qdisc.backlog().packets + sending + self.line.len() as u64
    }

    /// Handles all events up to `now`, in order.
    fn advance(&mut self, now: Timestamp, discard: &mut impl FnMut(Discard<P>)) {
        let now = now.max(self.now);
        loop {
            let change = self.next_change().filter(|at| *at <= now);
            let departure = self.next_departure().filter(|at| *at <= now);
            match (change, departure) {
                (Some(change), departure) if departure.is_none_or(|at| change <= at) => {
                    self.now = self.now.max(change);
                    self.apply_change();
                }
                (_, Some(departure)) => {
                    self.now = departure;
                    self.step(discard);
                }
                _ => break,
            }
        }
        self.now = now;
    }

    fn next_change(&self) -> Option<Timestamp> {
        self.changes.at().map(|at| self.start + at)
    }

    /// The next time at which the server finishes a packet or asks the queue for one.
    fn next_departure(&self) -> Option<Timestamp> {
        self.sending.as_ref().map_or(self.ask_at, |(departs, _)| Some(*departs))
    }

    fn apply_change(&mut self) {
        let Some(change) = self.changes.pop() else { return };
        if let Some(rate) = change.rate {
            self.server.set_rate(rate);
            self.qdisc.set_service_rate(Some(rate));
            if self.sending.is_none() {
                self.schedule(self.now);
            }
        }
        if let Some(delay) = change.delay {
            self.line.set_delay(delay);
        }
        if let Some(loss) = change.loss {
            self.loss = loss;
        }
    }

    /// Lets the server act at `self.now`: it finishes the packet being sent, or asks the queue for one.
    fn step(&mut self, discard: &mut impl FnMut(Discard<P>)) {
        if let Some((departed, carried)) = self.sending.take() {
            let Carried { packet, number, arrived, hold } = carried;
            self.counters.packets_out += 1;
            self.counters.bytes_out += packet.len();
            let (due, backlogged) = (departed, self.backlogged);
            let delivery = Delivery { packet, number, arrived, departed, due, backlogged };
            self.line.push(delivery, hold);
            self.backlogged = self.qdisc.backlog().packets > 0;
            self.schedule(departed);
            return;
        }
        let before = self.qdisc.backlog();
        let mut drops = Drops { at: self.now, counters: &mut self.counters, discard };
        match self.qdisc.dequeue(self.now, &mut drops) {
            Some(carried) => {
                self.ask_at = None;
                let departs = self.server.send(self.now, carried.packet.len());
                self.sending = Some((departs, carried));
            }
            None => {
                self.schedule(self.now);
                // If a queue promises a packet and gives nothing, the link asks again only after the next
                // arrival. Otherwise it would ask for ever at the same instant.
                if self.ask_at == Some(self.now) && self.qdisc.backlog() == before {
                    self.ask_at = None;
                }
            }
        }
    }

    /// Plans when the idle server next asks the queue, not before `from`.
    fn schedule(&mut self, from: Timestamp) {
        if self.qdisc.backlog().packets == 0 {
            self.server.idle();
        }
        let wanted = self.qdisc.next_timer().map(|at| at.max(from));
        self.ask_at = wanted.and_then(|at| self.server.ready_at(at));
    }
}

/// Counts the packets that the queue gives up, and passes its drops on.
struct Drops<'a, F> {
    at: Timestamp,
    counters: &'a mut Counters,
    discard: &'a mut F,
}

impl<P, F: FnMut(Discard<P>)> DropSink<Carried<P>> for Drops<'_, F> {
    fn dropped(&mut self, carried: Carried<P>, reason: DropReason) {
        self.counters.dropped += 1;
        self.counters.drops.add(reason);
        let Carried { packet, number, .. } = carried;
        let cause = Cause::Queue(reason);
        (self.discard)(Discard { packet, number, at: self.at, cause });
    }

    fn marked(&mut self, reason: DropReason) {
        self.counters.marks.add(reason);
    }
}

#[cfg(test)]
mod tests;
