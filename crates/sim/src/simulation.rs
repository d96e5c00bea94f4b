//! The run: events in order, each handed to the part that it concerns.
//!
//! A data packet costs three events, with an acknowledgement for each: it leaves the bottleneck,
//! reaches the receiver, and its acknowledgement reaches the sender. What follows at the same instant
//! (an arrival at the bottleneck, an acknowledgement leaving) is a call and no event.

use forebay_core::cc;
use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::traffic::{SendTimes, Source};
use forebay_core::units::{Duration, Timestamp};

use crate::bottleneck::Bottleneck;
use crate::event::{Event, Events, after};
use crate::metrics::{Bin, FlowMeter, FlowMetrics, LinkMetrics, Observed, mbit_per_s, ratio};
use crate::packet::{Kind, Packet, SackHandle, SackTable, mix};
use crate::pipe::Pipe;
use crate::tcp::receiver::{Ack, Receiver};
use crate::tcp::sender::{SUPPLIED, Sender};
use crate::tcp::stack::Stack;
use crate::topology::{Change, Dumbbell, Flow};

/// The flows of one propagation delay.
struct Path {
    /// Its delay is the dumbbell's and changes with it.
    is_common: bool,
    forward_ns: u64,
    reverse_ns: u64,
    forward: Pipe,
    reverse: Pipe,
}

impl Path {
    fn new(rtt: Duration, is_common: bool, index: u32) -> Self {
        let mut path = Self {
            is_common,
            forward_ns: 0,
            reverse_ns: 0,
            forward: Pipe::new(Event::Forward(index)),
            reverse: Pipe::new(Event::Reverse(index)),
        };
        path.set_rtt(rtt);
        path
    }

    fn set_rtt(&mut self, rtt: Duration) {
        let rtt_ns = nanos(rtt);
        self.forward_ns = rtt_ns / 2;
        self.reverse_ns = rtt_ns - self.forward_ns;
    }
}

/// A TCP connection, both ends of it.
struct Connection {
    sender: Sender,
    receiver: Receiver,
    path: u32,
    start: Timestamp,
    /// Segments that the receiver has read when the flow is complete.
    segments: Option<u32>,
    /// Payload bytes of the last segment.
    last_payload: u32,
    meter: FlowMeter,
}

/// A source of datagrams.
struct DatagramSource {
    times: SendTimes,
    start: Timestamp,
    len: u16,
    path: u32,
}

/// A simulation of a [`Dumbbell`].
pub struct Simulation {
    now: Timestamp,
    stop: Timestamp,
    stack: Stack,
    events: Events,
    hash: u64,
    handled: u64,
    bottleneck: Bottleneck,
    paths: Vec<Path>,
    sacks: SackTable,
    connections: Vec<Connection>,
    sources: Vec<DatagramSource>,
    /// The connection of each flow of the dumbbell; `None` for a source of datagrams.
    places: Vec<Option<usize>>,
    changes: Vec<Change>,
    /// Packets that reached a receiver.
    arrived: u64,
    /// Packets that receivers sent.
    answered: u64,
}

impl Simulation {
    /// Sets up what `dumbbell` says. Refuses unknown algorithms and qdiscs and parameters out of range.
    pub fn new(dumbbell: &Dumbbell) -> Result<Self, SpecError> {
        dumbbell.check()?;
        let streams = Streams::new(dumbbell.seed);
        let bottleneck = Bottleneck::new(
            &dumbbell.qdisc,
            dumbbell.rate,
            dumbbell.loss,
            dumbbell.stack.device_packets,
            &streams.part("bottleneck"),
        )?;
        let mut simulation = Self {
            now: Timestamp::ZERO,
            stop: Timestamp::ZERO + dumbbell.stop,
            stack: dumbbell.stack,
            events: Events::default(),
            hash: 0,
            handled: 0,
            bottleneck,
            paths: vec![Path::new(dumbbell.rtt, true, 0)],
            sacks: SackTable::default(),
            connections: Vec::new(),
            sources: Vec::new(),
            places: Vec::new(),
            changes: dumbbell.changes.clone(),
            arrived: 0,
            answered: 0,
        };
        for (index, change) in dumbbell.changes.iter().enumerate() {
            simulation.events.add(Timestamp::ZERO + change.at, Event::Change(index as u32));
        }
        for (index, flow) in dumbbell.flows.iter().enumerate() {
            simulation.add_flow(flow, &streams.part(&format!("flow {index}")))?;
        }
        Ok(simulation)
    }

    fn add_flow(&mut self, flow: &Flow, streams: &Streams) -> Result<(), SpecError> {
        let path = self.path_of(flow.rtt);
        let start = Timestamp::ZERO + flow.start;
        let place = match flow.source {
            Source::Greedy { bytes } => {
                let mut algorithm = cc::build(&flow.cc, SUPPLIED)?;
                algorithm.set_seed(streams.stream("algorithm").bits());
                let bytes = bytes.map(|bytes| bytes.as_u64());
                self.add_connection(Sender::new(self.stack, algorithm, bytes), bytes, path, start)
            }
            Source::Cbr { packet, .. }
            | Source::Poisson { packet, .. }
            | Source::OnOff { packet, .. } => {
                let refused =
                    || SpecError::new("packet", &packet.to_string(), "1B to 65535B on the wire");
                let len = u16::try_from(packet.as_u64()).map_err(|_| refused())?;
                let times = flow.source.send_times(streams).ok_or_else(refused)?;
                self.sources.push(DatagramSource { times, start, len, path });
                let index = self.sources.len() - 1;
                self.plan_datagram(index);
                None
            }
        };
        self.places.push(place);
        Ok(())
    }

    fn add_connection(
        &mut self,
        sender: Sender,
        bytes: Option<u64>,
        path: u32,
        start: Timestamp,
    ) -> Option<usize> {
        let mss = u64::from(self.stack.mss);
        let index = self.connections.len();
        self.connections.push(Connection {
            sender,
            receiver: Receiver::new(&self.stack),
            path,
            start,
            segments: bytes.and_then(|bytes| u32::try_from(bytes.div_ceil(mss)).ok()),
            last_payload: bytes.map_or(mss, |bytes| bytes.wrapping_sub(1) % mss + 1) as u32,
            meter: FlowMeter::new(start, self.stop),
        });
        self.events.add(start, Event::Start(index as u32));
        Some(index)
    }

    /// The path of a flow with this round-trip time of its own, or the common one.
    fn path_of(&mut self, rtt: Option<Duration>) -> u32 {
        let Some(rtt) = rtt else { return 0 };
        let fits = |path: &Path| !path.is_common && path.forward_ns + path.reverse_ns == nanos(rtt);
        let found = self.paths.iter().position(fits);
        found.unwrap_or_else(|| {
            self.paths.push(Path::new(rtt, false, self.paths.len() as u32));
            self.paths.len() - 1
        }) as u32
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        self.run_until(self.stop);
    }

    /// Runs to `until`, at most to the end.
    pub fn run_until(&mut self, until: Timestamp) {
        let until = until.min(self.stop);
        while let Some((at, event)) = self.events.pop(until) {
            debug_assert!(at >= self.now, "time runs backwards");
            self.now = at;
            self.hash = mix(self.hash ^ at.as_nanos()).wrapping_add(event.code());
            self.handled += 1;
            self.handle(event);
            #[cfg(debug_assertions)]
            self.check_conservation();
        }
        self.now = self.now.max(until);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Departure => self.depart(),
            Event::Forward(path) => self.forward(path as usize),
            Event::Reverse(path) => self.reverse(path as usize),
            Event::Rto(flow) => {
                let sender = &mut self.connections[flow as usize].sender;
                if sender.rto_timer.fired(self.now, &mut self.events, event) {
                    sender.on_timeout(self.now);
                    self.transmit(flow);
                }
            }
            Event::Pacing(flow) => {
                let sender = &mut self.connections[flow as usize].sender;
                if sender.pacing_timer.fired(self.now, &mut self.events, event) {
                    self.transmit(flow);
                }
            }
            Event::Algorithm(flow) => {
                let sender = &mut self.connections[flow as usize].sender;
                if sender.algorithm_timer.fired(self.now, &mut self.events, event) {
                    sender.on_algorithm_timer(self.now);
                    self.transmit(flow);
                }
            }
            Event::DelayedAck(flow) => {
                let receiver = &mut self.connections[flow as usize].receiver;
                if receiver.timer.fired(self.now, &mut self.events, event) {
                    let ack = receiver.acknowledge();
                    self.send_ack(flow, ack);
                }
            }
            Event::Datagram(source) => self.send_datagram(source as usize),
            Event::Queue => self.bottleneck.on_queue_timer(self.now, &mut self.events),
            Event::Start(flow) => {
                self.connections[flow as usize].sender.start();
                self.transmit(flow);
            }
            Event::Change(index) => self.change(self.changes[index as usize]),
        }
    }

    /// Sends what a connection may send now, and takes its state down.
    fn transmit(&mut self, flow: u32) {
        let (now, events) = (self.now, &mut self.events);
        let connection = &mut self.connections[flow as usize];
        let sender = &mut connection.sender;
        while let Some(out) = sender.transmit(now) {
            if out.kind == Kind::Data {
                connection.meter.on_send(now);
            }
            let (kind, number, len, sack) = (out.kind, out.number, out.len, SackHandle::NONE);
            let packet = Packet { sent: now, arrived: now, flow, number, sack, len, kind };
            self.bottleneck.offer(now, packet, events);
        }
        sender.rto_timer.plan(events, Event::Rto(flow));
        sender.pacing_timer.plan(events, Event::Pacing(flow));
        sender.algorithm_timer.plan(events, Event::Algorithm(flow));
        let in_flight = sender.in_flight_bytes().as_u64();
        let (cwnd, srtt_ns) = (sender.cwnd(), sender.srtt_ns());
        connection.meter.observe(now, Observed { cwnd, in_flight, srtt_ns });
    }

    /// The bottleneck has sent a packet.
    fn depart(&mut self) {
        let Some(packet) = self.bottleneck.depart(self.now, &mut self.events) else { return };
        let path = match packet.kind {
            Kind::Datagram => self.sources[packet.flow as usize].path,
            _ => self.connections[packet.flow as usize].path,
        };
        let path = &mut self.paths[path as usize];
        let due = after(self.now, path.forward_ns);
        path.forward.push(due, packet, &mut self.events);
    }

    /// A packet reaches its receiver.
    fn forward(&mut self, path: usize) {
        let Some(packet) = self.paths[path].forward.pop(self.now, &mut self.events) else { return };
        self.arrived += 1;
        match packet.kind {
            Kind::Data => self.receive(packet),
            Kind::Syn => {
                let answer = Packet { kind: Kind::SynAck, ..packet };
                self.send_back(answer);
            }
            Kind::Datagram => {}
            Kind::SynAck | Kind::Ack => debug_assert!(false, "an answer on the way forward"),
        }
    }

    fn receive(&mut self, packet: Packet) {
        let connection = &mut self.connections[packet.flow as usize];
        let (ack, is_new) = connection.receiver.on_data(self.now, packet.number, packet.sent);
        if is_new {
            let is_last = connection.segments == Some(packet.number + 1);
            let full = u32::from(self.stack.mss);
            let payload = if is_last { connection.last_payload } else { full };
            connection.meter.on_receive(self.now, payload);
            if connection.segments == Some(connection.receiver.next()) {
                connection.meter.on_complete(self.now);
            }
        }
        match ack {
            Some(ack) => self.send_ack(packet.flow, ack),
            None => {
                let event = Event::DelayedAck(packet.flow);
                connection.receiver.timer.plan(&mut self.events, event);
            }
        }
    }

    fn send_ack(&mut self, flow: u32, ack: Ack) {
        let blocks = ack.sack.as_slice().len() as u16;
        // Kind, length and padding to four bytes, then eight bytes a block (RFC 2018 section 3).
        let option = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        let sack = self.sacks.put(ack.sack);
        let len = self.stack.overhead + option;
        let (sent, arrived, kind) = (ack.echo, self.now, Kind::Ack);
        self.send_back(Packet { sent, arrived, flow, number: ack.number, sack, len, kind });
    }

    fn send_back(&mut self, packet: Packet) {
        let path = self.connections[packet.flow as usize].path;
        let path = &mut self.paths[path as usize];
        let due = after(self.now, path.reverse_ns);
        self.answered += 1;
        path.reverse.push(due, packet, &mut self.events);
    }

    /// An answer reaches its sender.
    fn reverse(&mut self, path: usize) {
        let Some(packet) = self.paths[path].reverse.pop(self.now, &mut self.events) else { return };
        let sender = &mut self.connections[packet.flow as usize].sender;
        if packet.kind == Kind::SynAck {
            sender.on_syn_ack(self.now, packet.sent);
        } else {
            let blocks = self.sacks.take(packet.sack);
            sender.on_ack(self.now, packet.number, packet.sent, blocks.as_slice());
        }
        self.transmit(packet.flow);
    }

    fn plan_datagram(&mut self, index: usize) {
        let source = &mut self.sources[index];
        if let Some(offset) = source.times.next() {
            self.events.add(source.start + offset, Event::Datagram(index as u32));
        }
    }

    fn send_datagram(&mut self, index: usize) {
        let (now, sack, len) = (self.now, SackHandle::NONE, self.sources[index].len);
        let (flow, kind) = (index as u32, Kind::Datagram);
        let packet = Packet { sent: now, arrived: now, flow, number: 0, sack, len, kind };
        self.bottleneck.offer(now, packet, &mut self.events);
        self.plan_datagram(index);
    }

    fn change(&mut self, change: Change) {
        if let Some(rate) = change.rate {
            self.bottleneck.set_rate(self.now, rate, &mut self.events);
        }
        if let Some(rtt) = change.rtt {
            self.paths.iter_mut().filter(|path| path.is_common).for_each(|path| path.set_rtt(rtt));
        }
        if let Some(loss) = change.loss {
            self.bottleneck.set_loss(loss);
        }
    }

    /// Every packet that was offered has been dropped, lost or received, or is on its way.
    #[cfg(debug_assertions)]
    fn check_conservation(&self) {
        let counters = self.bottleneck.counters();
        let held = self.bottleneck.held_packets();
        assert_eq!(counters.offered, counters.dropped + held + counters.departed);
        let on_the_way: u64 = self.paths.iter().map(|path| path.forward.len()).sum();
        assert_eq!(counters.departed, counters.lost + on_the_way + self.arrived);
    }

    /// Simulated time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.handled
    }

    /// Packets that the bottleneck and the receivers have sent.
    pub fn packets(&self) -> u64 {
        self.bottleneck.counters().departed + self.answered
    }

    /// A hash of every event so far, its time and its order: equal for equal runs.
    pub fn event_hash(&self) -> u64 {
        self.hash
    }

    /// What flow `index` of the dumbbell did; `None` for a source of datagrams.
    pub fn flow_metrics(&mut self, index: usize) -> Option<FlowMetrics> {
        let index = self.places[index]?;
        let (now, mss) = (self.now, u64::from(self.stack.mss));
        let connection = &mut self.connections[index];
        let life = now.saturating_since(connection.start);
        let sender = &connection.sender;
        let counters = sender.counters;
        let (episodes, episodes_ns) = sender.recoveries();
        Some(FlowMetrics {
            mean_sending_rate_l4: mbit_per_s(counters.sent * mss, life),
            mean_sending_rate_l7: mbit_per_s(sender.written_bytes(), life),
            mean_recovery_time_l4: ratio(episodes_ns as f64 * 1e-6, episodes as f64),
            recovery_episodes: episodes,
            total_retransmissions_l4: counters.resent,
            total_rtos_l4: counters.timeouts,
            data_packets_sent: counters.sent,
            ..connection.meter.metrics(now, mss)
        })
    }

    /// Throughput and round-trip time of flow `index` in bins of [`crate::BIN_NS`]; empty for datagrams.
    pub fn flow_bins(&self, index: usize) -> &[Bin] {
        match self.places[index] {
            Some(index) => self.connections[index].meter.bins(),
            None => &[],
        }
    }

    /// What the bottleneck did.
    pub fn link_metrics(&self) -> LinkMetrics {
        self.bottleneck.metrics(self.now)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
