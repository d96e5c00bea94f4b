//! The ends of the routes: connections and sources of datagrams.

use std::sync::Arc;

use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::traffic::{SendTimes, Source};
use forebay_core::units::{ByteCount, Timestamp};

use super::Simulation;
use super::receiving::{Reader, with_receiving};
use super::short::Short;
use crate::event::Event;
use crate::metrics::{FlowMeter, Observed};
use crate::network::{Flow, Network, Traffic};
use crate::packet::{Kind, Marks, Packet};
use crate::route::{Step, nanos};
use crate::tcp::peer::{Peer, Wish};
use crate::tcp::reading::Reading;
use crate::tcp::receiver::{Ack, Receiver};
use crate::tcp::sender::{SUPPLIED, Sender};
use crate::tcp::stack::Tcp;
use crate::written::WriteLog;

/// A route as seen by an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Number of the route.
    pub route: u32,
    /// First step of the route.
    pub first: Step,
}

/// Location of a flow of the network.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// Among the connections.
    Connection(usize),
    /// Among the sources of datagrams.
    Source(usize),
    /// Among the loops of pings.
    Pings(usize),
    /// Among the pools of short connections.
    Pool(usize),
}

/// A TCP connection with both ends.
pub(super) struct Connection {
    pub sender: Sender,
    pub receiver: Receiver,
    pub data: Way,
    pub back: Way,
    /// Index among the flows of the network.
    pub flow: u32,
    pub start: Timestamp,
    /// Round-trip time of a handshake before the run; `None` if the connection opens during the run.
    pub opened_ns: Option<u64>,
    /// Segments that the receiver has read when the flow is complete.
    pub segments: Option<u32>,
    /// Reader of the received data.
    pub reader: Reader,
    /// State of an application that reads at a rate.
    pub reading: Option<Box<Reading>>,
    /// Index among the meters.
    pub meter: u32,
    /// Packets sent earlier are from an earlier connection in the same slot. [`Timestamp::MAX`] means that
    /// the slot has no connection now.
    pub lives_from: Timestamp,
    /// State of a connection that carries one message.
    pub short: Option<Short>,
    /// Requests and repeats that the receiving end sends.
    pub peer: Peer,
    /// Times at which the application wrote its data, if the caller watches them.
    pub written: Option<Box<WriteLog>>,
}

/// A source of datagrams.
pub(super) struct DatagramSource {
    times: SendTimes,
    pub start: Timestamp,
    stop: Timestamp,
    len: u16,
    pub data: Way,
    /// Index among the flows of the network.
    pub flow: u32,
    pub sent: u64,
    pub meter: FlowMeter,
}

/// The receiver of a flow has read more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Index of the flow in the network.
    pub flow: usize,
    /// For [`Traffic::Written`], the segments read since the start of the connection. A write is read whole
    /// once this reaches the number that [`Simulation::write`] returned for it. For [`Traffic::Messages`],
    /// the number of a message that is read whole.
    pub number: u32,
}

/// Name of flow `number` in messages to the user.
pub(super) fn owner(flow: &Flow, number: u32) -> String {
    if flow.name.is_empty() { format!("flow {number}") } else { format!("flow {}", flow.name) }
}

impl Simulation {
    pub(super) fn add_flow(
        &mut self,
        network: &Network,
        flow: &Flow,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        match flow.traffic {
            Traffic::Ping => {
                self.add_pings(network, flow);
                Ok(())
            }
            Traffic::Messages(opener) => self.add_pool(network, flow, opener, streams),
            Traffic::Written => self.add_connection(network, flow, Some(0), streams),
            Traffic::Source(Source::Greedy { bytes }) => {
                self.add_connection(network, flow, bytes.map(ByteCount::as_u64), streams)
            }
            Traffic::Source(
                source @ (Source::Cbr { packet, .. }
                | Source::Poisson { packet, .. }
                | Source::OnOff { packet, .. }),
            ) => self.add_source(network, flow, &source, packet, streams),
        }
    }

    fn add_connection(
        &mut self,
        network: &Network,
        flow: &Flow,
        bytes: Option<u64>,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let mut algorithm = self.stack.algorithm(&self.algorithms, &flow.cc, SUPPLIED)?;
        algorithm.set_seed(streams.stream("algorithm").bits());
        let tcp = self.tcp_of(flow);
        let (mss, start) = (u64::from(tcp.mss), Timestamp::ZERO + flow.start);
        let rate = flow.receiving.read_rate;
        let reader = match flow.traffic {
            Traffic::Written => Reader::Caller,
            _ if rate.is_some() => Reader::Application,
            _ => Reader::Nobody,
        };
        let finite = bytes.filter(|_| reader != Reader::Caller);
        let number = self.places.len() as u32;
        algorithm.set_owner(&owner(flow, number));
        let index = self.connections.len() as u32;
        self.places.push(Place::Connection(index as usize));
        let (data, back) = (self.way(network, &flow.data), self.way(network, &flow.back));
        let meter = self.meters.len() as u32;
        let [sends, receives] = [0, 1].map(|end| self.is_here(|it| it.flows[number as usize][end]));
        // A meter at neither end measures nothing, and needs no memory for it.
        let stop = if sends || receives { self.stop } else { start };
        self.meters.push(FlowMeter::new(start, stop));
        let receiver = Receiver::new(&tcp).with(&flow.receiving);
        let reading = rate.map(|rate| Box::new(Reading::new(&tcp, rate)));
        let mut sender = Sender::new(tcp, algorithm, bytes);
        if reading.is_some() {
            sender.follow_window();
        }
        self.connections.push(Connection {
            receiver,
            sender,
            data,
            back,
            flow: number,
            start,
            opened_ns: flow.opened.map(nanos),
            segments: finite.and_then(|bytes| u32::try_from(bytes.div_ceil(mss)).ok()),
            reader,
            reading,
            meter,
            lives_from: Timestamp::ZERO,
            short: None,
            peer: Peer::SILENT,
            written: None,
        });
        if sends {
            self.events.add(start, Event::Start(index));
            let stop = flow.stop.map(|stop| Timestamp::ZERO + stop);
            stop.into_iter().for_each(|at| self.events.add(at, Event::Stop(index)));
        }
        Ok(())
    }

    fn add_source(
        &mut self,
        network: &Network,
        flow: &Flow,
        source: &Source,
        packet: ByteCount,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let refused = || SpecError::new("packet", &packet.to_string(), "1B to 65535B on the wire");
        let len = u16::try_from(packet.as_u64()).map_err(|_| refused())?;
        let times = source.send_times(streams).ok_or_else(refused)?;
        let start = Timestamp::ZERO + flow.start;
        let stop = flow.stop.map_or(Timestamp::MAX, |stop| Timestamp::ZERO + stop);
        let (index, number) = (self.sources.len(), self.places.len() as u32);
        let data = self.way(network, &flow.data);
        let meter = FlowMeter::new(start, self.stop);
        self.places.push(Place::Source(index));
        self.sources.push(DatagramSource {
            times,
            start,
            stop,
            len,
            data,
            flow: number,
            sent: 0,
            meter,
        });
        self.plan_datagram(index);
        Ok(())
    }

    /// The TCP parameters for a flow's connections. Equal parameters share one copy, which stays in the
    /// cache.
    pub(super) fn tcp_of(&mut self, flow: &Flow) -> Arc<Tcp> {
        let tcp = self.stack.tcp_for(&self.algorithms, &flow.cc);
        let initial_window = flow.initial_window.unwrap_or(tcp.initial_window);
        let tcp = Tcp { initial_window, ..with_receiving(tcp, &flow.receiving) };
        if let Some(shared) = self.tcps.iter().find(|shared| ***shared == tcp) {
            return Arc::clone(shared);
        }
        let shared = Arc::new(tcp);
        self.tcps.push(Arc::clone(&shared));
        shared
    }

    pub(super) fn way(&mut self, network: &Network, hops: &[crate::network::Hop]) -> Way {
        let route = self.routes.add(network, hops);
        Way { route, first: self.routes.first(route) }
    }

    /// Writes `bytes` to the connection of flow `flow`, one of [`Traffic::Written`]. Returns the number of
    /// segments read once the last of these bytes is read, see [`Read`]; `None` for another flow. Bytes
    /// written before the connection is open wait for it.
    pub fn write(&mut self, flow: usize, bytes: u64) -> Option<u32> {
        let Some(Place::Connection(index)) = self.places.get(flow).copied() else { return None };
        let connection = &mut self.connections[index];
        if connection.reader != Reader::Caller {
            return None;
        }
        let segments = connection.sender.write(bytes);
        self.transmit(index as u32);
        Some(segments)
    }

    pub(super) fn handle_connection(&mut self, event: Event) {
        let (now, events) = (self.now, &mut self.events);
        match event {
            Event::Rto(flow) => {
                let sender = &mut self.connections[flow as usize].sender;
                if sender.rto_timer.fired(now, events, event) {
                    sender.on_timeout(now);
                    self.transmit(flow);
                }
            }
            Event::Pacing(flow) => {
                let sender = &mut self.connections[flow as usize].sender;
                if sender.pacing_timer.fired(now, events, event) {
                    self.transmit(flow);
                }
            }
            Event::Algorithm(flow) => {
                let sender = &mut self.connections[flow as usize].sender;
                if sender.algorithm_timer.fired(now, events, event) {
                    sender.on_algorithm_timer(now);
                    self.transmit(flow);
                }
            }
            Event::DelayedAck(flow) => {
                let receiver = &mut self.connections[flow as usize].receiver;
                if receiver.timer.fired(now, events, event) {
                    let ack = receiver.acknowledge();
                    self.send_ack(flow, ack);
                }
            }
            Event::Start(flow) => {
                let connection = &mut self.connections[flow as usize];
                match connection.opened_ns {
                    Some(rtt_ns) => connection.sender.establish(now, rtt_ns),
                    None => connection.sender.start(),
                }
                self.transmit(flow);
            }
            Event::Stop(flow) => {
                let life = self.connection_metrics(flow as usize);
                self.lives.insert(flow, life);
                let connection = &mut self.connections[flow as usize];
                // The flow still sends what its caller wrote.
                if connection.reader != Reader::Caller {
                    connection.sender.close();
                }
            }
            _ => debug_assert!(false, "no event of a connection: {event:?}"),
        }
    }

    /// Sends all segments that a connection may send now, plans its timers and records its state.
    pub(super) fn transmit(&mut self, flow: u32) {
        if self.tap.is_some() {
            self.tap_losses(flow);
        }
        let now = self.now;
        let first = self.connections[flow as usize].data.first;
        loop {
            let connection = &mut self.connections[flow as usize];
            let Some(out) = connection.sender.transmit(now) else { break };
            if out.kind == Kind::Data {
                self.meters[connection.meter as usize].on_send(now);
                if let Some(short) = &connection.short {
                    let payload = out.len - self.stack.tcp.overhead;
                    self.pools[short.pool as usize].sent_bytes += u64::from(payload);
                }
            }
            let packet = Packet::new(out.kind, flow, out.number, out.len, now);
            self.emit(first, packet.with_marks(out.marks));
        }
        let (connection, events) = (&mut self.connections[flow as usize], &mut self.events);
        let sender = &mut connection.sender;
        sender.rto_timer.plan(events, Event::Rto(flow));
        sender.pacing_timer.plan(events, Event::Pacing(flow));
        sender.algorithm_timer.plan(events, Event::Algorithm(flow));
        if connection.short.is_some() {
            return;
        }
        let in_flight = sender.in_flight_bytes().as_u64();
        let (cwnd, srtt_ns) = (sender.cwnd(), sender.srtt_ns());
        self.meters[connection.meter as usize].observe(now, Observed { cwnd, in_flight, srtt_ns });
        if self.tap.is_some() {
            self.tap_state(flow);
        }
    }

    /// An endpoint sends a packet on a route that begins with `first`.
    #[inline]
    pub(super) fn emit(&mut self, first: Step, packet: Packet) {
        self.sent += 1;
        if self.tap.is_some() {
            self.tap_sent(packet);
        }
        self.pass(first, packet);
    }

    /// A packet reaches the end of its route.
    #[inline]
    pub(super) fn deliver(&mut self, packet: Packet) {
        self.delivered += 1;
        if self.tap.is_some() {
            self.tap_received(packet);
        }
        match packet.kind() {
            Kind::Data => self.receive(packet),
            Kind::Ack | Kind::SynAck => self.receive_answer(packet),
            Kind::Syn => self.send_back(packet.turned(Kind::SynAck)),
            Kind::Message => self.deliver_message(packet),
            Kind::Datagram => {
                let source = &mut self.sources[packet.flow() as usize];
                source.meter.on_receive(self.now, packet.bytes().into());
            }
            Kind::Ping => self.answer_ping(packet),
            Kind::Pong => self.receive_pong(packet),
            _ => self.deliver_control(packet),
        }
    }

    #[inline(never)]
    fn receive(&mut self, packet: Packet) {
        if packet.sent < self.connections[packet.flow() as usize].lives_from {
            return;
        }
        if packet.marks() != Marks::NONE {
            let receiver = &mut self.connections[packet.flow() as usize].receiver;
            if let Some(ack) = receiver.on_marks(packet.marks()) {
                self.send_ack(packet.flow(), ack);
            }
        }
        let connection = &mut self.connections[packet.flow() as usize];
        let before = connection.receiver.next();
        let (ack, is_new) = connection.receiver.on_data(self.now, packet.number(), packet.sent);
        let mut is_whole = false;
        if is_new {
            let payload = packet.bytes() - self.stack.tcp.overhead;
            self.meters[connection.meter as usize].on_receive(self.now, payload.into());
            let next = connection.receiver.next();
            is_whole = connection.segments == Some(next);
            if let Some(log) = connection.written.as_deref_mut().filter(|_| next > before) {
                log.on_read(self.now, next);
            }
            match connection.reader {
                Reader::Caller if next > before => {
                    self.reads.push_back(Read { flow: connection.flow as usize, number: next });
                }
                Reader::Application => {
                    if let Some(reading) = connection.reading.as_deref_mut() {
                        reading.on_arrival(self.now, next);
                        reading.timer.plan(&mut self.events, Event::Reading(packet.flow()));
                    }
                }
                _ => {}
            }
        }
        connection.peer.on_answer(Wish::Data);
        match ack {
            Some(ack) => self.send_ack(packet.flow(), ack),
            None => {
                let event = Event::DelayedAck(packet.flow());
                connection.receiver.timer.plan(&mut self.events, event);
            }
        }
        if is_whole {
            self.complete(packet.flow());
        }
    }

    /// The receiver has read all data of a connection.
    fn complete(&mut self, index: u32) {
        let connection = &self.connections[index as usize];
        if connection.short.is_some() {
            return self.end_message(index);
        }
        self.meters[connection.meter as usize].on_complete(self.now);
    }

    pub(super) fn send_ack(&mut self, flow: u32, ack: Ack) {
        let blocks = self.connections[flow as usize].receiver.block_count(&ack);
        if blocks > 0 || !ack.is_plain {
            return self.send_answers(flow, ack, blocks);
        }
        let packet = Packet::new(Kind::Ack, flow, ack.number, self.stack.tcp.overhead, ack.echo);
        self.send_back(packet.with_marks(Marks::of_ack(ack.is_ece)));
    }

    pub(super) fn send_back(&mut self, packet: Packet) {
        let first = self.connections[packet.flow() as usize].back.first;
        self.emit(first, packet);
    }

    /// An answer reaches its sender. A separate function keeps the registers that it needs out of the packet
    /// path: saving them would cost each step.
    #[inline(never)]
    fn receive_answer(&mut self, packet: Packet) {
        let connection = &mut self.connections[packet.flow() as usize];
        if packet.sent < connection.lives_from {
            return self.sacks.free(packet.sack());
        }
        let sender = &mut connection.sender;
        if packet.kind() == Kind::SynAck {
            let is_first = !sender.is_open();
            sender.on_syn_ack(self.now, packet.sent);
            // Linux sends this acknowledgement with the first data.
            if is_first && (connection.short.is_some() || self.stack.is_ns3) {
                self.confirm_handshake(packet.flow());
            }
        } else {
            let is_ece = packet.marks().is_ece();
            let blocks = self.sacks.get(packet.sack());
            sender.learn_one_way(blocks.one_way_ms());
            sender.learn_counts(blocks.counts());
            let edge = blocks.window().map(|window| packet.number() + window);
            if let Some(edge) = edge {
                sender.expect_window(edge);
            }
            sender.on_ack(self.now, packet.number(), packet.sent, blocks.as_slice(), is_ece);
            if let Some(edge) = edge {
                sender.learn_window(self.now, edge);
            }
            self.sacks.free(packet.sack());
        }
        let connection = &mut self.connections[packet.flow() as usize];
        if let Some(log) = connection.written.as_deref_mut() {
            log.on_ack(self.now, connection.sender.una());
        }
        self.transmit(packet.flow());
    }

    fn plan_datagram(&mut self, index: usize) {
        let source = &mut self.sources[index];
        let next = source.times.next().map(|offset| source.start + offset);
        if let Some(at) = next.filter(|at| *at < source.stop) {
            self.events.add(at, Event::Datagram(index as u32));
        }
    }

    pub(super) fn send_datagram(&mut self, index: usize) {
        let source = &mut self.sources[index];
        source.sent += 1;
        let first = source.data.first;
        let packet = Packet::new(Kind::Datagram, index as u32, 0, source.len, self.now);
        self.emit(first, packet);
        self.plan_datagram(index);
    }
}
