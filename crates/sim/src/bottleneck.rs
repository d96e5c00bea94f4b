//! The bottleneck: a qdisc, the device below it, a server, and losses on the wire behind it.
//!
//! ```text
//!  offer ──► qdisc ──► device (n packets) ──► server (1 packet) ──► loss ──► depart
//! ```
//! As in ns-3, whose figures count the qdisc alone: a packet leaves the qdisc as soon as the device has
//! room, is sent at the rate in force when its transmission begins, and may be lost behind the
//! device. `core::link` is no part of this: it has neither device nor overtaking, and works departures
//! out when it is polled, where a simulator has an event at each of them anyway.
//!
//! Service times are whole nanoseconds with the remainder carried, so a busy server keeps its rate.

use std::collections::VecDeque;

use forebay_core::qdisc::{self, Backlog, DropReason, DropSink, Fifo, Qdisc};
use forebay_core::random::{Stream, Streams};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::{ByteCount, Rate, Ratio, Timestamp};

use crate::event::{Event, Events, Timer, after, nanos_between};
use crate::metrics::{Integral, LinkMetrics, mbit_per_s, ratio};
use crate::packet::Packet;

/// First in, first out is what most runs have: it costs no call through a table.
enum Queue {
    Fifo(Fifo<Packet>),
    Other(Box<dyn Qdisc<Packet> + Send>),
}

/// Counts drops. What is dropped carries nothing that would have to be freed.
struct Drops<'a>(&'a mut u64);

impl DropSink<Packet> for Drops<'_> {
    fn dropped(&mut self, _packet: Packet, _reason: DropReason) {
        *self.0 += 1;
    }
}

impl Queue {
    fn enqueue(&mut self, now: Timestamp, packet: Packet, drops: &mut u64) {
        match self {
            Self::Fifo(fifo) => fifo.enqueue(now, packet, &mut Drops(drops)),
            Self::Other(other) => other.enqueue(now, packet, &mut Drops(drops)),
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut u64) -> Option<Packet> {
        match self {
            Self::Fifo(fifo) => fifo.dequeue(now, &mut Drops(drops)),
            Self::Other(other) => other.dequeue(now, &mut Drops(drops)),
        }
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::Fifo(fifo) => fifo.backlog(),
            Self::Other(other) => other.backlog(),
        }
    }
}

/// The transmitter.
#[derive(Debug)]
struct Server {
    rate: Rate,
    /// Part of a nanosecond still owed, in bit nanoseconds per second, below the rate.
    carry: u64,
    /// Last departure.
    free_at: Timestamp,
    /// Service time and remainder of packets of `len`: most have the same length.
    len: u16,
    service_ns: u64,
    remainder: u64,
}

impl Server {
    fn set_rate(&mut self, rate: Rate) {
        (self.rate, self.carry, self.len) = (rate, 0, 0);
    }

    /// When a packet of `len` bytes taken at `now` has left. The rate is not zero.
    fn send(&mut self, now: Timestamp, len: u16) -> Timestamp {
        if now > self.free_at {
            self.carry = 0;
        }
        if len != self.len {
            let bytes = ByteCount::new(u64::from(len));
            (self.len, self.remainder) = (len, 0);
            let time = bytes.time_at_carrying(self.rate, &mut self.remainder);
            self.service_ns = time.map_or(u64::MAX, |time| time.as_nanos() as u64);
        }
        self.carry += self.remainder;
        let is_due = self.carry >= self.rate.as_bits_per_sec();
        if is_due {
            self.carry -= self.rate.as_bits_per_sec();
        }
        self.free_at = after(now, self.service_ns + u64::from(is_due));
        self.free_at
    }
}

/// What happened at the bottleneck so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Packets that came.
    pub offered: u64,
    /// Packets that the qdisc dropped.
    pub dropped: u64,
    /// Packets that the server has sent.
    pub departed: u64,
    /// Of these, lost on the wire.
    pub lost: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets that left the qdisc, and their time in it.
    dequeued: u64,
    sojourns_ns: u64,
}

/// The bottleneck.
pub(crate) struct Bottleneck {
    queue: Queue,
    queue_timer: Timer,
    device: VecDeque<Packet>,
    device_packets: usize,
    server: Server,
    serving: Option<Packet>,
    loss: f64,
    loss_stream: Stream,
    length: Integral,
    max_length: u64,
    sojourn: Integral,
    counters: Counters,
}

impl Bottleneck {
    /// An idle bottleneck over the qdisc that `spec` names.
    pub fn new(
        spec: &Spec,
        rate: Rate,
        loss: Ratio,
        device_packets: usize,
        streams: &Streams,
    ) -> Result<Self, SpecError> {
        let spec = qdisc::seeded(spec, streams.stream("qdisc").bits() >> 1);
        let other = qdisc::build(&spec)?;
        let limit = spec.limit("limit")?;
        let queue = match limit {
            Some(limit) if spec.kind == "fifo" => Queue::Fifo(Fifo::new(limit)),
            _ => Queue::Other(other),
        };
        let server = Server {
            rate,
            carry: 0,
            free_at: Timestamp::ZERO,
            len: 0,
            service_ns: 0,
            remainder: 0,
        };
        let mut bottleneck = Self {
            queue,
            queue_timer: Timer::STOPPED,
            device: VecDeque::with_capacity(device_packets),
            device_packets,
            server,
            serving: None,
            loss: loss.as_f64(),
            loss_stream: streams.stream("loss"),
            length: Integral::NONE,
            max_length: 0,
            sojourn: Integral::NONE,
            counters: Counters::default(),
        };
        bottleneck.length.set(Timestamp::ZERO, 0);
        Ok(bottleneck)
    }

    /// Takes a packet.
    pub fn offer(&mut self, now: Timestamp, packet: Packet, events: &mut Events) {
        self.counters.offered += 1;
        let packet = Packet { arrived: now, ..packet };
        self.queue.enqueue(now, packet, &mut self.counters.dropped);
        self.max_length = self.max_length.max(self.queue.backlog().packets);
        self.fill(now, events);
    }

    /// The server has sent its packet; `None` if that was lost on the wire.
    pub fn depart(&mut self, now: Timestamp, events: &mut Events) -> Option<Packet> {
        let packet = self.serving.take()?;
        self.counters.departed += 1;
        self.counters.bytes += u64::from(packet.len);
        self.fill(now, events);
        // Drawn for every packet: the n-th meets the same fate whatever the losses were before.
        let is_lost = self.loss_stream.chance(self.loss);
        self.counters.lost += u64::from(is_lost);
        (!is_lost).then_some(packet)
    }

    /// The qdisc's own timer has fired.
    pub fn on_queue_timer(&mut self, now: Timestamp, events: &mut Events) {
        if self.queue_timer.fired(now, events, Event::Queue) {
            self.fill(now, events);
        }
    }

    /// The next packet, and each after it, is sent at `rate`; zero stops the server.
    pub fn set_rate(&mut self, now: Timestamp, rate: Rate, events: &mut Events) {
        self.server.set_rate(rate);
        self.fill(now, events);
    }

    /// Share of the packets lost on the wire from now on.
    pub fn set_loss(&mut self, loss: Ratio) {
        self.loss = loss.as_f64();
    }

    /// Moves packets down as far as there is room.
    fn fill(&mut self, now: Timestamp, events: &mut Events) {
        loop {
            let is_free = self.serving.is_none() && self.server.rate > Rate::ZERO;
            if is_free && let Some(packet) = self.device.pop_front() {
                self.serve(now, packet, events);
                continue;
            }
            if !is_free && self.device.len() >= self.device_packets {
                break;
            }
            let Some(packet) = self.dequeue(now) else {
                self.plan_queue(now, events);
                break;
            };
            if is_free { self.serve(now, packet, events) } else { self.device.push_back(packet) }
        }
        self.length.set(now, self.queue.backlog().packets);
    }

    fn dequeue(&mut self, now: Timestamp) -> Option<Packet> {
        let packet = self.queue.dequeue(now, &mut self.counters.dropped)?;
        let sojourn_ns = nanos_between(packet.arrived, now);
        self.sojourn.set(now, sojourn_ns);
        self.counters.dequeued += 1;
        self.counters.sojourns_ns += sojourn_ns;
        Some(packet)
    }

    fn serve(&mut self, now: Timestamp, packet: Packet, events: &mut Events) {
        let departs = self.server.send(now, packet.len);
        self.serving = Some(packet);
        events.add(departs, Event::Departure);
    }

    /// A qdisc that holds packets back is asked again when it says so.
    fn plan_queue(&mut self, now: Timestamp, events: &mut Events) {
        if let Queue::Other(other) = &self.queue
            && let Some(at) = other.next_timer().filter(|at| *at > now)
        {
            self.queue_timer.set(at);
            self.queue_timer.plan(events, Event::Queue);
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets inside.
    pub fn held_packets(&self) -> u64 {
        let sending = u64::from(self.serving.is_some());
        self.queue.backlog().packets + self.device.len() as u64 + sending
    }

    /// The metrics at `now`.
    pub fn metrics(&self, now: Timestamp) -> LinkMetrics {
        let counters = &self.counters;
        let time = now.saturating_since(Timestamp::ZERO);
        LinkMetrics {
            mean_qdisc_length_l2: self.length.mean(now),
            mean_qdisc_delay_l2: self.sojourn.mean(now) * 1e-6,
            mean_qdisc_delay_l2_per_packet: ratio(
                counters.sojourns_ns as f64 * 1e-6,
                counters.dequeued as f64,
            ),
            mean_sending_rate_l1: mbit_per_s(counters.bytes, time),
            total_qdisc_drops_l2: counters.dropped,
            total_loss_drops: counters.lost,
            packets: counters.departed,
            max_qdisc_length_l2: self.max_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Kind, SackHandle};
    use forebay_core::spec::Value;

    const RATE: Rate = Rate::from_mbit_per_sec(16);

    fn bottleneck(device_packets: usize) -> Bottleneck {
        let spec = Spec::named("fifo").with("limit", Value::Text("20p".into()));
        Bottleneck::new(&spec, RATE, Ratio::ZERO, device_packets, &Streams::new(1)).unwrap()
    }

    fn packet(len: u16) -> Packet {
        let (sent, arrived) = (Timestamp::ZERO, Timestamp::ZERO);
        Packet { sent, arrived, flow: 0, number: 0, sack: SackHandle::NONE, len, kind: Kind::Data }
    }

    #[test]
    fn qdisc_device_and_server_hold_22_packets() {
        let mut events = Events::default();
        for (device_packets, held) in [(1, 22), (0, 21)] {
            let mut bottleneck = bottleneck(device_packets);
            for _ in 0..100 {
                bottleneck.offer(Timestamp::ZERO, packet(1502), &mut events);
            }
            assert_eq!(
                (bottleneck.held_packets(), bottleneck.counters.dropped),
                (held, 100 - held)
            );
            assert_eq!(bottleneck.max_length, 20);
        }
    }

    #[test]
    fn a_busy_server_keeps_its_rate_to_the_nanosecond() {
        let (mut bottleneck, mut events) = (bottleneck(1), Events::default());
        bottleneck.set_rate(Timestamp::ZERO, Rate::from_bits_per_sec(7_000_003), &mut events);
        let mut now = Timestamp::ZERO;
        for index in 0..1000_u64 {
            bottleneck.offer(now, packet(if index % 3 == 0 { 1502 } else { 54 }), &mut events);
            bottleneck.offer(now, packet(1000), &mut events);
            for _ in 0..2 {
                now = events.pop(Timestamp::MAX).unwrap().0;
                bottleneck.depart(now, &mut events);
            }
        }
        // The server idles never: the next pair comes at the instant of the last departure.
        let exact = (bottleneck.counters.bytes * 8) as f64 / 7_000_003.0 * 1e9;
        assert!((now.as_nanos() as f64 - exact).abs() < 1.0, "{now:?} {exact}");
    }

    #[test]
    fn a_change_of_the_rate_spares_the_packet_that_is_being_sent() {
        let (mut bottleneck, mut events) = (bottleneck(1), Events::default());
        for _ in 0..2 {
            bottleneck.offer(Timestamp::ZERO, packet(1502), &mut events);
        }
        bottleneck.set_rate(Timestamp::from_nanos(1), Rate::from_mbit_per_sec(8), &mut events);
        let first = events.pop(Timestamp::MAX).unwrap().0;
        assert_eq!(first.as_nanos(), 751_000);
        bottleneck.depart(first, &mut events);
        assert_eq!(events.pop(Timestamp::MAX).unwrap().0.as_nanos(), 751_000 + 1_502_000);
    }

    #[test]
    fn a_stopped_server_goes_on_when_the_rate_comes_back() {
        let (mut bottleneck, mut events) = (bottleneck(0), Events::default());
        bottleneck.set_rate(Timestamp::ZERO, Rate::ZERO, &mut events);
        bottleneck.offer(Timestamp::ZERO, packet(1502), &mut events);
        assert_eq!((events.len(), bottleneck.held_packets()), (0, 1));
        bottleneck.set_rate(Timestamp::from_nanos(5), RATE, &mut events);
        assert_eq!(events.pop(Timestamp::MAX).unwrap().0.as_nanos(), 751_005);
    }
}
