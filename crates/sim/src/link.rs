//! A link: losses, a qdisc, the device below it and a server; `line` holds the delay line behind it.
//!
//! ```text
//!  offer ──► loss (a) ──► qdisc ──► device (n packets) ──► server (1 packet) ──► loss (b) ──► depart
//! ```
//! `ns3` has one packet in the device and losses at (b), and its figures count the qdisc alone. `linux` is
//! the emulator's link, without a device and with losses at (a). A packet leaves the qdisc as soon as the
//! device has room. It is sent at the rate in force when its transmission begins. The emulator's code is not
//! used here: it has neither device nor overtaking. It computes departures when polled, but a simulator needs
//! an event for each departure anyway.
//!
//! A packet that arrives at the instant of a departure finds the qdisc as it was before. In ns-3 a separate
//! event, after the other events of the instant, asks the qdisc for its next packet (QueueDisc::Run). The second packet
//! of a burst arrives later by the first one's time on the access link, which is zero here. On a link with a
//! device it therefore finds the departure done. The acknowledgements of a full pipe are exactly one service
//! time apart, so this order often decides about losses.

use std::collections::VecDeque;

use forebay_core::link::Jitter;
use forebay_core::packet::Packet as _;
use forebay_core::qdisc::{self, Backlog, DropReason, DropSink as _, Fifo, Qdisc};
use forebay_core::random::{Ns3Stream, Stream, Streams};
use forebay_core::record::Fate;
use forebay_core::spec::SpecError;
use forebay_core::units::{Rate, Ratio, Timestamp};
use forebay_scenario as scenario;

use crate::ended::Ended;
use crate::event::{Event, Events, Timer, nanos_between};
use crate::metrics::{Integral, LinkMetrics, mbit_per_s, ratio};
use crate::packet::{Kind, Packet};
use crate::packet_log::PacketLog;
use crate::reorder::Reorder;
use crate::server::Server;
use crate::tcp::stack::Stack;

/// Stream of the losses on link 0 in ns-3, as the back end `ns3` and `cargo xtask ns3-runs` set it.
const LOSS_STREAM: u64 = 1000;

/// The queue of a link. Most runs use first in, first out, which therefore avoids a call through a table.
enum Queue {
    Fifo(Fifo<Packet>),
    /// An acknowledgement replaces an earlier acknowledgement that adds nothing to it.
    Filtering(Fifo<Packet>),
    Other(Box<dyn Qdisc<Packet> + Send>),
}

impl Queue {
    #[inline(never)]
    fn enqueue(&mut self, now: Timestamp, packet: Packet, drops: &mut Ended) {
        match self {
            Self::Fifo(fifo) => fifo.enqueue(now, packet, drops),
            Self::Filtering(fifo) => {
                if packet.kind() == Kind::Ack
                    && let Some(needless) = fifo.take_out(|earlier| packet.supersedes(earlier))
                {
                    drops.dropped(needless, DropReason::Superseded);
                }
                fifo.enqueue(now, packet, drops);
            }
            Self::Other(other) => other.enqueue(now, packet, drops),
        }
    }

    fn dequeue(&mut self, now: Timestamp, drops: &mut Ended) -> Option<Packet> {
        match self {
            Self::Fifo(fifo) | Self::Filtering(fifo) => fifo.dequeue(now, drops),
            Self::Other(other) => other.dequeue(now, drops),
        }
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::Fifo(fifo) | Self::Filtering(fifo) => fifo.backlog(),
            Self::Other(other) => other.backlog(),
        }
    }

    fn set_service_rate(&mut self, rate: Option<Rate>) {
        match self {
            Self::Fifo(fifo) | Self::Filtering(fifo) => {
                Qdisc::<Packet>::set_service_rate(fifo, rate)
            }
            Self::Other(other) => other.set_service_rate(rate),
        }
    }
}

/// Random losses of a link; draws nothing if the run has no losses.
struct Losses {
    is_possible: bool,
    share: f64,
    stream: Stream,
    /// ns-3's draws instead.
    ns3: Option<Ns3Stream>,
}

impl Losses {
    /// Draws for every packet, so that earlier shares do not change the fate of the n-th packet.
    #[inline]
    fn is_lost(&mut self) -> bool {
        let unit = match &mut self.ns3 {
            _ if !self.is_possible => return false,
            Some(ns3) => ns3.unit(),
            None => self.stream.unit(),
        };
        unit < self.share
    }
}

/// Jitter of a link: it delays packets, and later packets wait behind them.
struct InOrder {
    jitter: Jitter,
    /// Time at which the last packet begins the delay proper.
    latest: Timestamp,
}

impl InOrder {
    /// The jitter of `link`; `None` if it has none.
    fn new(link: &scenario::Link, streams: &Streams) -> Option<Self> {
        let jitter = Jitter::new(link.jitter, link.batch, streams);
        jitter.is_possible().then_some(Self { jitter, latest: Timestamp::ZERO })
    }

    fn draw_ns(&mut self, now: Timestamp) -> u64 {
        self.latest = self.latest.max(now + self.jitter.draw(now));
        nanos_between(now, self.latest)
    }
}

/// Counts of a link so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Packets that arrived.
    pub offered: u64,
    /// Packets that the server has sent.
    pub departed: u64,
    /// Packets lost before the queue.
    pub lost_before: u64,
    /// Packets lost behind the server.
    pub lost_behind: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets that left the qdisc, and their total time in it.
    dequeued: u64,
    sojourns_ns: u64,
}

/// A link.
pub(crate) struct LinkState {
    index: u32,
    queue: Queue,
    queue_timer: Timer,
    device: VecDeque<Packet>,
    device_packets: usize,
    server: Server,
    serving: Option<Packet>,
    departs_at: Timestamp,
    /// A sent packet whose departure event is still to come in this instant.
    finished: Option<Packet>,
    offered_at: Option<Timestamp>,
    /// The device has room, and the qdisc is asked behind the other events of the instant.
    is_run_due: bool,
    is_loss_before: bool,
    losses: Losses,
    message_losses: Losses,
    reorder: Option<Box<Reorder>>,
    jitter: Option<Box<InOrder>>,
    ended: Ended,
    length: Integral,
    max_length: u64,
    sojourn: Integral,
    counters: Counters,
}

impl LinkState {
    /// An idle link. `changes` holds all its changes, including walks. With `is_logged` it keeps a record of
    /// every packet. `run` is the seed of the run, by which ns-3 numbers its runs.
    pub fn new(
        index: u32,
        link: &scenario::Link,
        is_logged: bool,
        stack: &Stack,
        changes: &[scenario::Change],
        streams: &Streams,
        run: u64,
    ) -> Result<Self, SpecError> {
        let run = stack.is_ns3.then_some(run);
        let seed = streams.stream("qdisc").bits() >> 1;
        let seed = run.map_or(seed, |run| qdisc::ns3_seed(index, run));
        let spec = qdisc::seeded(&stack.with_defaults(&link.qdisc), seed);
        if link.service.rate().is_none() {
            qdisc::check_without_rate(&spec)?;
        }
        let other = stack.qdisc(&spec)?;
        let mut queue = match Fifo::from_spec(&spec)? {
            Some(fifo) if link.ack_filter => Queue::Filtering(fifo),
            Some(fifo) => Queue::Fifo(fifo),
            None if link.ack_filter => {
                let allowed = "false, or true with a fifo qdisc that does not mark";
                return Err(SpecError::new("ack_filter", "true", allowed));
            }
            None => Queue::Other(other),
        };
        queue.set_service_rate(link.service.rate());
        let losses = Losses {
            is_possible: link.loss > Ratio::ZERO || changes.iter().any(|it| it.loss.is_some()),
            share: link.loss.as_f64(),
            stream: streams.stream("loss"),
            ns3: run.map(|run| Ns3Stream::new(LOSS_STREAM + u64::from(index), run)),
        };
        let message_losses = Losses {
            is_possible: link.message_loss > Ratio::ZERO,
            share: link.message_loss.as_f64(),
            stream: streams.stream("message_loss"),
            ns3: None,
        };
        let mut link = Self {
            index,
            queue,
            queue_timer: Timer::STOPPED,
            device: VecDeque::with_capacity(stack.device.packets),
            device_packets: stack.device.packets,
            server: Server::new(&link.service, stack.is_ns3),
            serving: None,
            departs_at: Timestamp::ZERO,
            finished: None,
            offered_at: None,
            is_run_due: false,
            is_loss_before: stack.device.loses_before_queue,
            losses,
            message_losses,
            reorder: Reorder::new(link, Event::Held(index), streams).map(Box::new),
            jitter: InOrder::new(link, streams).map(Box::new),
            ended: Ended { log: is_logged.then(PacketLog::default), ..Ended::default() },
            length: Integral::NONE,
            max_length: 0,
            sojourn: Integral::NONE,
            counters: Counters::default(),
        };
        link.length.set(Timestamp::ZERO, 0);
        Ok(link)
    }

    /// Takes a packet; returns it if it leaves at once.
    #[inline]
    pub fn offer(&mut self, now: Timestamp, packet: Packet, events: &mut Events) -> Option<Packet> {
        self.counters.offered += 1;
        let queued = match &mut self.ended.log {
            Some(log) => log.on_arrival(now, packet),
            None => now.as_nanos(),
        };
        let is_message_lost = packet.kind() == Kind::Message && self.message_losses.is_lost();
        if is_message_lost || (self.is_loss_before && self.losses.is_lost()) {
            self.counters.lost_before += 1;
            self.ended.add(&packet.queued_at(queued), Fate::Lost);
            return None;
        }
        if matches!(self.server, Server::Unlimited) {
            return self.leave(now, packet.queued_at(queued));
        }
        self.finish_before_second(now, events);
        // If there is room, the packet goes from the registers into the queue. A packet passed to a function
        // would be written to memory and read back at once, see `Packet`.
        match &mut self.queue {
            Queue::Fifo(fifo) if fifo.has_room(packet.len()) => fifo.push(packet.queued_at(queued)),
            queue => queue.enqueue(now, packet.queued_at(queued), &mut self.ended),
        }
        self.max_length = self.max_length.max(self.queue.backlog().packets);
        self.fill(now, events);
        if let Some(log) = &mut self.ended.log {
            log.set_queue(self.queue.backlog().packets);
        }
        None
    }

    /// If a second packet arrives at the instant of a departure, completes the departure first.
    #[inline]
    fn finish_before_second(&mut self, now: Timestamp, events: &mut Events) {
        let is_second = self.offered_at.replace(now) == Some(now);
        if is_second && self.departs_at == now && self.device_packets > 0 {
            self.finished = self.finished.take().or_else(|| self.serving.take());
            self.fill(now, events);
        }
    }

    /// Completes the server's packet; returns `None` if it was lost on the wire.
    #[inline]
    pub fn depart(&mut self, now: Timestamp, events: &mut Events) -> Option<Packet> {
        // Not with `take`, which also copies the padding of `None`: see `Kind`.
        if let Some(packet) = self.finished {
            self.finished = None;
            return self.leave(now, packet);
        }
        if std::mem::take(&mut self.is_run_due) {
            self.fill(now, events);
            return None;
        }
        let packet = self.serving?;
        self.serving = None;
        if !self.device.is_empty()
            && events.is_followed(now)
            && self.is_ready(now)
            && let Some(next) = self.device.pop_front()
        {
            self.serve(now, next, events);
            self.is_run_due = true;
            events.add(now, Event::Departure(self.index));
        } else {
            self.fill(now, events);
        }
        self.leave(now, packet)
    }

    fn leave(&mut self, now: Timestamp, packet: Packet) -> Option<Packet> {
        self.counters.departed += 1;
        self.counters.bytes += u64::from(packet.bytes());
        if let Some(log) = &mut self.ended.log {
            log.on_departure(now, packet);
        }
        if !self.is_loss_before && self.losses.is_lost() {
            self.counters.lost_behind += 1;
            self.ended.add(&packet, Fate::Lost);
            return None;
        }
        Some(packet)
    }

    /// `packet`, which has departed, reaches the far end at `at`.
    pub fn on_release(&mut self, packet: &Packet, at: Timestamp) {
        if let Some(log) = &mut self.ended.log {
            log.on_release(packet.queued, at);
        }
    }

    /// Whether departed packets pass through [`LinkState::reorder`] and [`LinkState::on_release`].
    pub fn is_watched(&self) -> bool {
        self.reorder.is_some() || self.jitter.is_some() || self.ended.log.is_some()
    }

    /// Jitter in nanoseconds, added to the delay of a packet that begins its way at `now`.
    pub fn jitter_ns(&mut self, now: Timestamp) -> u64 {
        self.jitter.as_mut().map_or(0, |jitter| jitter.draw_ns(now))
    }

    /// The store that holds departed packets back, if the link reorders.
    pub fn reorder(&mut self) -> Option<&mut Reorder> {
        self.reorder.as_deref_mut()
    }

    /// The qdisc's own timer has fired, or a trace has an opportunity.
    pub fn on_queue_timer(&mut self, now: Timestamp, events: &mut Events) {
        if self.queue_timer.fired(now, events, Event::Queue(self.index)) {
            self.fill(now, events);
        }
    }

    /// Sets the rate for the next packet and all later ones; zero stops the server.
    pub fn set_rate(&mut self, now: Timestamp, rate: Rate, events: &mut Events) {
        self.server.set_rate(rate);
        self.queue.set_service_rate(Some(rate));
        self.fill(now, events);
    }

    /// Sets the share of packets lost from now on.
    pub fn set_loss(&mut self, loss: Ratio) {
        self.losses.share = loss.as_f64();
    }

    /// Moves packets towards the server as far as there is room.
    fn fill(&mut self, now: Timestamp, events: &mut Events) {
        loop {
            let is_free = self.serving.is_none() && self.is_ready(now);
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
        let packets = self.queue.backlog().packets;
        self.length.set(now, packets);
        if self.serving.is_none()
            && let Server::Trace(server) = &mut self.server
        {
            if packets == 0 && self.device.is_empty() {
                server.idle();
            } else if let Some(at) = server.ready_at(now).filter(|at| *at > now) {
                self.queue_timer.set(at);
                self.queue_timer.plan(events, Event::Queue(self.index));
            }
        }
    }

    /// Whether a waiting packet may be sent now. Queries a trace only if a packet waits.
    #[inline]
    fn is_ready(&mut self, now: Timestamp) -> bool {
        match &self.server {
            Server::Trace(_) if self.device.is_empty() && self.queue.backlog().packets == 0 => {
                false
            }
            _ => self.server.is_ready(now),
        }
    }

    fn dequeue(&mut self, now: Timestamp) -> Option<Packet> {
        let packet = self.queue.dequeue(now, &mut self.ended)?;
        let arrived = match &self.ended.log {
            Some(log) => log.arrived(packet.queued),
            None => Timestamp::from_nanos(packet.queued),
        };
        let sojourn_ns = nanos_between(arrived, now);
        self.sojourn.set(now, sojourn_ns);
        self.counters.dequeued += 1;
        self.counters.sojourns_ns += sojourn_ns;
        Some(packet)
    }

    fn serve(&mut self, now: Timestamp, packet: Packet, events: &mut Events) {
        self.departs_at = self.server.send(now, packet.bytes());
        self.serving = Some(packet);
        events.add(self.departs_at, Event::Departure(self.index));
    }

    /// Plans the time at which a qdisc that holds packets back is to be called again.
    fn plan_queue(&mut self, now: Timestamp, events: &mut Events) {
        if let Queue::Other(other) = &self.queue
            && let Some(at) = other.next_timer().filter(|at| *at > now)
        {
            self.queue_timer.set(at);
            self.queue_timer.plan(events, Event::Queue(self.index));
        }
    }

    /// Counts so far.
    #[cfg(debug_assertions)]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets that the qdisc dropped.
    #[cfg(any(test, debug_assertions))]
    pub fn dropped(&self) -> u64 {
        self.ended.dropped.total()
    }

    /// Remains of packets that were dropped or lost.
    pub fn ended(&mut self) -> &mut Ended {
        &mut self.ended
    }

    /// The log, if there is one.
    pub fn log(&self) -> Option<&PacketLog> {
        self.ended.log.as_ref()
    }

    /// Packets in queue, device and server.
    #[cfg(any(test, debug_assertions))]
    pub fn queued_packets(&self) -> u64 {
        let sending = u64::from(self.serving.is_some()) + u64::from(self.finished.is_some());
        self.queue.backlog().packets + self.device.len() as u64 + sending
    }

    /// Packets that the link holds back to reorder them.
    #[cfg(debug_assertions)]
    pub fn held_packets(&self) -> u64 {
        self.reorder.as_ref().map_or(0, |reorder| reorder.len())
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
            total_qdisc_drops_l2: self.ended.dropped.total(),
            total_qdisc_marks_l2: self.ended.marked.total(),
            drops: self.ended.dropped,
            marks: self.ended.marked,
            total_loss_drops: counters.lost_before + counters.lost_behind,
            packets: counters.departed,
            max_qdisc_length_l2: self.max_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::link::{Service, Trace};
    use forebay_core::spec::{Spec, Value};
    use forebay_core::units::Duration;
    use std::sync::Arc;

    use crate::tcp::stack::Device;

    /// Rate of the links under test: 2000 bytes per millisecond.
    const RATE: Rate = Rate::from_mbit_per_sec(16);

    fn link_of(device_packets: usize, change: impl Fn(&mut scenario::Link)) -> LinkState {
        let spec = Spec::named("fifo").with("limit", Value::Text("20p".into()));
        let mut link = scenario::Link::at_rate("l", RATE, Duration::ZERO, spec);
        change(&mut link);
        let device = Device { packets: device_packets, ..Device::NS3 };
        let stack = Stack { device, ..Stack::NS3 };
        LinkState::new(0, &link, false, &stack, &[], &Streams::new(1), 1).unwrap()
    }

    fn link(device_packets: usize) -> LinkState {
        link_of(device_packets, |_| {})
    }

    fn packet(len: u16) -> Packet {
        Packet::new(Kind::Data, 0, 0, len, Timestamp::ZERO)
    }

    #[test]
    fn qdisc_device_and_server_hold_22_packets() {
        let mut events = Events::default();
        for (device_packets, held) in [(1, 22), (0, 21)] {
            let mut link = link(device_packets);
            for _ in 0..100 {
                link.offer(Timestamp::ZERO, packet(1502), &mut events);
            }
            assert_eq!((link.queued_packets(), link.ended.dropped.total()), (held, 100 - held));
            assert_eq!(link.max_length, 20);
        }
    }

    #[test]
    fn busy_link_keeps_its_rate_exactly() {
        let spec = Spec::named("fifo").with("limit", Value::Text("20p".into()));
        let link = scenario::Link::at_rate("l", RATE, Duration::ZERO, spec);
        let stack = Stack { is_ns3: false, ..Stack::NS3 };
        let mut link = LinkState::new(0, &link, false, &stack, &[], &Streams::new(1), 1).unwrap();
        let mut events = Events::default();
        link.set_rate(Timestamp::ZERO, Rate::from_bits_per_sec(7_000_003), &mut events);
        let mut now = Timestamp::ZERO;
        for index in 0..1000_u64 {
            link.offer(now, packet(if index % 3 == 0 { 1502 } else { 54 }), &mut events);
            link.offer(now, packet(1000), &mut events);
            for _ in 0..2 {
                now = events.pop(Timestamp::MAX).unwrap().0;
                link.depart(now, &mut events);
            }
        }
        // The server never idles: the next pair arrives at the instant of the last departure.
        let exact = (link.counters.bytes * 8) as f64 / 7_000_003.0 * 1e9;
        assert!((now.as_nanos() as f64 - exact).abs() < 1.0, "{now:?} {exact}");
    }

    #[test]
    fn rate_change_spares_packet_in_service() {
        let (mut link, mut events) = (link(1), Events::default());
        for _ in 0..2 {
            link.offer(Timestamp::ZERO, packet(1502), &mut events);
        }
        link.set_rate(Timestamp::from_nanos(1), Rate::from_mbit_per_sec(8), &mut events);
        let first = events.pop(Timestamp::MAX).unwrap().0;
        assert_eq!(first.as_nanos(), 751_000);
        link.depart(first, &mut events);
        assert_eq!(events.pop(Timestamp::MAX).unwrap().0.as_nanos(), 751_000 + 1_502_000);
    }

    #[test]
    fn arrival_at_departure_instant_sees_full_queue_first() {
        let (mut link, mut events) = (link(1), Events::default());
        for _ in 0..22 {
            link.offer(Timestamp::ZERO, packet(1502), &mut events);
        }
        let now = Timestamp::from_nanos(751_000);
        link.offer(now, packet(1502), &mut events);
        assert_eq!((link.dropped(), link.queued_packets()), (1, 22));
        link.offer(now, packet(1502), &mut events);
        assert_eq!((link.dropped(), link.queued_packets()), (1, 23));
        // Each departs once, one service time apart.
        for (at_ns, left) in [(751_000, 22), (1_502_000, 21)] {
            let at = events.pop(Timestamp::MAX).unwrap().0;
            assert_eq!(at.as_nanos(), at_ns);
            assert!(link.depart(at, &mut events).is_some());
            assert_eq!(link.queued_packets(), left);
        }
    }

    #[test]
    fn stopped_link_resumes_with_its_rate() {
        let (mut link, mut events) = (link(0), Events::default());
        link.set_rate(Timestamp::ZERO, Rate::ZERO, &mut events);
        link.offer(Timestamp::ZERO, packet(1502), &mut events);
        assert_eq!((events.len(), link.queued_packets()), (0, 1));
        link.set_rate(Timestamp::from_nanos(5), RATE, &mut events);
        assert_eq!(events.pop(Timestamp::MAX).unwrap().0.as_nanos(), 751_005);
    }

    #[test]
    fn a_backlogged_trace_carries_a_packet_an_opportunity() {
        let trace = Trace::parse("t", "2\n2\n5\n10\n").unwrap();
        let service = Service::Trace(Arc::new(trace));
        let mut link = link_of(0, |link| link.service = service.clone());
        let mut events = Events::default();
        for _ in 0..7 {
            link.offer(Timestamp::ZERO, packet(1514), &mut events);
        }
        let mut left = Vec::new();
        while let Some((now, event)) = events.pop(Timestamp::MAX) {
            match event {
                Event::Queue(0) => link.on_queue_timer(now, &mut events),
                _ => left.extend(link.depart(now, &mut events).map(|_| now.as_nanos() / 1_000_000)),
            }
        }
        assert_eq!(left, [2, 2, 5, 10, 12, 12, 15]);
    }
}
