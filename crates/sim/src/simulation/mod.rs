//! The run: takes events in order and hands each to the part concerned.
//!
//! A data packet and its acknowledgement cost three events. The packet leaves the bottleneck, it reaches the
//! receiver, and its acknowledgement reaches the sender. A consequence at the same instant, such as an
//! arrival at a link, is a call and no event.

mod boxes;
mod cut;
mod endpoints;
mod pings;
mod receiving;
mod results;
mod short;
mod tap;
mod uplinks;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use forebay_core::cc::Registry;
use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;
use forebay_scenario::Change;

use self::boxes::Upsets;
pub(crate) use self::cut::Crossing;
use self::cut::Cut;
pub use self::endpoints::Read;
use self::endpoints::{Connection, DatagramSource, Place, Way};
use self::pings::PingLoop;
pub use self::pings::{PING_FRAME_BYTES, Pings};
use self::short::Pool;
pub use self::short::{REQUEST_BYTES, Slots};
use self::tap::Tap;
pub use self::tap::{Conversation, Received, Seen, Segment, Sent, flags};
use self::uplinks::Uplinks;
use crate::bundle::{Receivebox, Sendbox};
use crate::ended::Ended;
use crate::event::{Event, Events};
use crate::link::LinkState;
use crate::metrics::{FlowMeter, FlowMetrics};
use crate::network::Network;
use crate::packet::{Kind, MessageTable, Packet, SackTable, mix};
use crate::route::{After, Routes, Step, nanos};
use crate::tcp::stack::{Stack, Tcp};

/// A number unique to the flow of `packet`: datagrams, messages, pings and connections have separate number
/// ranges.
fn flow_of(packet: &Packet) -> u64 {
    let sort = match packet.kind() {
        Kind::Message => 1,
        Kind::Datagram => 2,
        Kind::Ping | Kind::Pong => 3,
        _ => 0,
    };
    sort << 32 | u64::from(packet.flow())
}

/// The changes of a link, and the index of the next one.
struct Schedule {
    changes: Vec<Change>,
    next: usize,
}

/// A simulation of a [`Network`].
pub struct Simulation {
    now: Timestamp,
    stop: Timestamp,
    stack: Stack,
    algorithms: Registry,
    events: Events,
    hash: u64,
    handled: u64,
    links: Vec<LinkState>,
    after: Vec<After>,
    routes: Routes,
    schedules: Vec<Schedule>,
    sendboxes: Vec<Sendbox>,
    receiveboxes: Vec<Receivebox>,
    upsets: Vec<Upsets>,
    uplinks: Uplinks,
    /// Routes of the messages of each bundle: to the receivebox and to the sendbox.
    message_ways: Vec<[Way; 2]>,
    sacks: SackTable,
    messages: MessageTable,
    /// Buffer for the datagram under construction.
    scratch: Vec<u8>,
    connections: Vec<Connection>,
    /// Meters of connections; the connections of a pool share one.
    meters: Vec<FlowMeter>,
    /// Results of stopped connections at their stop, by connection index.
    lives: BTreeMap<u32, FlowMetrics>,
    pools: Vec<Pool>,
    /// The TCP parameters of connections: the network's preset, with variants of ECN, window and receiver.
    tcps: Vec<Arc<Tcp>>,
    sources: Vec<DatagramSource>,
    pings: Vec<PingLoop>,
    /// Kind and index of each flow of the network.
    places: Vec<Place>,
    /// Reads that [`Simulation::run_until_read`] has not returned yet.
    reads: VecDeque<Read>,
    /// Record of the packets and states of the endpoints; `None` unless the caller watches.
    tap: Option<Box<Tap>>,
    /// Packets that endpoints have sent.
    sent: u64,
    /// Packets that have reached an endpoint.
    delivered: u64,
    /// Place in a network that is cut into parts.
    cut: Option<Box<Cut>>,
}

impl Simulation {
    /// Sets up `network`, a [`Network`] or a [`crate::Dumbbell`], with the algorithms of
    /// [`Registry::BUILTIN`]. Refuses unknown algorithms and qdiscs, parameters out of range and routes over
    /// links that do not exist.
    pub fn new(network: impl Into<Network>) -> Result<Self, SpecError> {
        Self::with_algorithms(network, Registry::BUILTIN)
    }

    /// Sets up `network` as [`Simulation::new`] does, with `algorithms` for its flows and bundles.
    pub fn with_algorithms(
        network: impl Into<Network>,
        algorithms: Registry,
    ) -> Result<Self, SpecError> {
        Self::build(&network.into(), algorithms, None)
    }

    fn build(network: &Network, algorithms: Registry, cut: Option<Cut>) -> Result<Self, SpecError> {
        network.check()?;
        let streams = Streams::new(network.seed);
        let mut simulation = Self {
            now: Timestamp::ZERO,
            stop: Timestamp::ZERO + network.stop,
            stack: network.stack,
            algorithms,
            events: Events::default(),
            hash: 0,
            handled: 0,
            links: Vec::with_capacity(network.links.len()),
            after: Vec::new(),
            routes: Routes::new(network, cut.as_ref().map(Cut::parts))?,
            schedules: Vec::with_capacity(network.links.len()),
            sendboxes: Vec::new(),
            receiveboxes: Vec::new(),
            upsets: Vec::new(),
            uplinks: Uplinks::default(),
            message_ways: Vec::new(),
            sacks: SackTable::default(),
            messages: MessageTable::default(),
            scratch: Vec::new(),
            connections: Vec::new(),
            meters: Vec::new(),
            lives: BTreeMap::new(),
            pools: Vec::new(),
            tcps: Vec::new(),
            sources: Vec::new(),
            pings: Vec::new(),
            places: Vec::new(),
            reads: VecDeque::new(),
            tap: None,
            sent: 0,
            delivered: 0,
            cut: cut.map(Box::new),
        };
        for index in 0..network.links.len() {
            simulation.add_link(network, index, &streams)?;
        }
        for index in 0..network.bundles.len() {
            simulation.add_bundle(network, index, &streams)?;
        }
        simulation.add_uplinks(network);
        for (index, flow) in network.flows.iter().enumerate() {
            simulation.add_flow(network, flow, &streams.part(&format!("flow {index}")))?;
        }
        simulation.after = simulation.routes.after_elements();
        for (after, link) in simulation.after.iter_mut().zip(&simulation.links) {
            if link.is_watched() {
                *after = After::Watched;
            }
        }
        Ok(simulation)
    }

    fn add_link(
        &mut self,
        network: &Network,
        index: usize,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let (link, streams) = (&network.links[index], streams.part(&network.links[index].name));
        let changes = link.all_changes(network.stop, &streams);
        let is_logged = network.logged.contains(&index);
        let (number, stack, run) = (index as u32, &network.stack, network.seed);
        let built = LinkState::new(number, link, is_logged, stack, &changes, &streams, run);
        self.links.push(built.map_err(|error| error.within(&link.name))?);
        self.schedules.push(Schedule { changes, next: 0 });
        if self.is_here(|parts| parts.links[index][0]) {
            self.plan_change(index);
        }
        Ok(())
    }

    /// Runs to the end.
    pub fn run(&mut self) {
        self.run_until(self.stop);
    }

    /// Runs to `until`, at most to the end.
    pub fn run_until(&mut self, until: Timestamp) {
        let until = until.min(self.stop);
        while self.step(until) {}
    }

    /// Runs until a receiver of [`crate::network::Traffic::Written`] has read more, and returns that read.
    /// Time then stands at the read. Returns `None` at `until`, or at the end of the run if that is earlier.
    pub fn run_until_read(&mut self, until: Timestamp) -> Option<Read> {
        let until = until.min(self.stop);
        while self.reads.is_empty() && self.step(until) {}
        self.reads.pop_front()
    }

    /// Handles the next event up to `until`; false if there is none.
    #[inline]
    fn step(&mut self, until: Timestamp) -> bool {
        let Some((at, event)) = self.events.pop(until) else {
            self.now = self.now.max(until);
            return false;
        };
        debug_assert!(at >= self.now, "time runs backwards");
        self.now = at;
        self.hash = mix(self.hash ^ at.as_nanos()).wrapping_add(event.code());
        self.handled += 1;
        self.handle(event);
        #[cfg(debug_assertions)]
        self.check_conservation();
        true
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Departure(link) => self.depart(link),
            Event::Line(line) => {
                let line = &mut self.routes.lines[line as usize];
                if let Some(packet) = line.pop(self.now, &mut self.events) {
                    let next = line.next;
                    self.pass(next, packet);
                }
            }
            Event::Queue(link) => {
                self.links[link as usize].on_queue_timer(self.now, &mut self.events);
            }
            Event::Held(link) => {
                let reorder = self.links[link as usize].reorder();
                if reorder.is_some_and(|it| it.on_timer(self.now, &mut self.events)) {
                    self.release_held(link);
                }
            }
            Event::Change(link) => self.change(link as usize),
            Event::Sendbox(bundle) => self.wake_sendbox(bundle),
            Event::Receivebox(bundle) => self.wake_receivebox(bundle),
            Event::Upset(bundle) => self.upset(bundle),
            Event::Uplink(uplink) => self.divide_uplink(uplink),
            Event::Datagram(source) => self.send_datagram(source as usize),
            Event::Ping(index) => self.on_ping_timer(event, index),
            Event::Peer(slot) => self.on_peer_timer(event, slot),
            Event::Reading(flow) => self.on_reading_timer(event, flow),
            Event::Start(_)
            | Event::Stop(_)
            | Event::Rto(_)
            | Event::Pacing(_)
            | Event::Algorithm(_)
            | Event::DelayedAck(_) => self.handle_connection(event),
        }
    }

    /// Takes a packet to its next step.
    #[inline]
    fn pass(&mut self, step: Step, packet: Packet) {
        let (now, events) = (self.now, &mut self.events);
        match step {
            Step::Deliver => self.deliver(packet),
            Step::Line(line) => {
                self.routes.lines[line as usize].push(now, packet, events);
            }
            Step::Cut(line) => drop(self.cross(line, 0, packet)),
            Step::Link(link) => {
                if let Some(packet) = self.links[link as usize].offer(now, packet, events) {
                    self.leave(link, packet);
                }
            }
            Step::Spread(spread) => self.spread(spread, packet),
            Step::Classify(number) => self.classify(number, packet),
            Step::Sendbox(bundle) => self.enter_bundle(bundle, packet),
            Step::Receivebox(bundle) => self.leave_bundle(bundle, packet),
        }
    }

    #[cold]
    fn spread(&mut self, spread: u32, packet: Packet) {
        let step = self.routes.spreads[spread as usize].take(flow_of(&packet));
        self.pass(step, packet);
    }

    /// Handles a packet for a queue with classes, or for a link that clears the ECN field.
    #[cold]
    fn classify(&mut self, number: u32, packet: Packet) {
        let (queue, classes) = &self.routes.classes[number as usize];
        let packet = classes.prepare(self.owner(packet.kind(), packet.flow()), packet);
        let queue = *queue;
        self.pass(queue, packet);
    }

    /// A link has sent a packet.
    #[inline]
    fn depart(&mut self, link: u32) {
        let departed = self.links[link as usize].depart(self.now, &mut self.events);
        if let Some(packet) = departed {
            self.leave(link, packet);
        }
    }

    /// A packet comes out of a link's server.
    #[inline]
    fn leave(&mut self, link: u32, packet: Packet) {
        match self.after[link as usize] {
            After::Always(step) => self.pass(step, packet),
            After::ByRoute => {
                let step = self.routes.after(self.route_of(&packet), link);
                self.pass(step, packet);
            }
            After::Watched => self.leave_watched(link, packet),
        }
    }

    /// The link may hold the packet back to reorder it.
    fn leave_watched(&mut self, link: u32, packet: Packet) {
        let passed = match self.links[link as usize].reorder() {
            Some(reorder) => reorder.hold(self.now, packet, &mut self.events),
            None => Some(packet),
        };
        if let Some(packet) = passed {
            self.go_on_watched(link, packet);
            self.release_held(link);
        }
    }

    fn release_held(&mut self, link: u32) {
        let now = self.now;
        let next = |it: &mut Self| it.links[link as usize].reorder()?.release(now);
        while let Some(packet) = next(self) {
            self.go_on_watched(link, packet);
        }
    }

    /// The next step after an element on the route of a packet.
    #[inline]
    fn step_after(&self, element: u32, packet: &Packet) -> Step {
        match self.after[element as usize] {
            After::Always(step) => step,
            After::ByRoute | After::Watched => self.routes.after(self.route_of(packet), element),
        }
    }

    /// Sends a packet on after a link; the link's log notes when the packet reaches the far end.
    fn go_on_watched(&mut self, link: u32, packet: Packet) {
        let step = self.routes.after(self.route_of(&packet), link);
        let here = &mut self.links[link as usize];
        match step {
            Step::Line(line) if self.routes.lines_of[link as usize].contains(&line) => {
                let line = &mut self.routes.lines[line as usize];
                let late_ns = here.jitter_ns(self.now);
                let end = line.push_late(self.now, late_ns, packet, &mut self.events);
                here.on_release(&packet, end);
            }
            // Only a line behind a link may end in another part, or one without any link.
            Step::Cut(line) => {
                let late_ns = here.jitter_ns(self.now);
                let end = self.cross(line, late_ns, packet);
                self.links[link as usize].on_release(&packet, end);
            }
            _ => {
                here.on_release(&packet, self.now);
                self.pass(step, packet);
            }
        }
    }

    fn route_of(&self, packet: &Packet) -> u32 {
        match packet.kind() {
            Kind::Data | Kind::Syn | Kind::PeerSynAck | Kind::Confirm | Kind::WindowProbe => {
                self.connections[packet.flow() as usize].data.route
            }
            Kind::Message => self.message_way(packet.flow()).route,
            Kind::Datagram => self.sources[packet.flow() as usize].data.route,
            Kind::Ping => self.pings[packet.flow() as usize].data.route,
            Kind::Pong => self.pings[packet.flow() as usize].back.route,
            _ => self.connections[packet.flow() as usize].back.route,
        }
    }

    /// Frees the side storage of packets that were lost or dropped.
    fn reclaim(&mut self) {
        let links = self.links.iter_mut().map(LinkState::ended);
        for ended in links.chain(self.sendboxes.iter_mut().map(Sendbox::ended)) {
            let Ended { orphans, .. } = ended;
            for packet in orphans.drain(..) {
                match packet.kind() {
                    Kind::Message => self.messages.reclaim(packet.number()),
                    _ => self.sacks.reclaim(packet.sack()),
                }
            }
        }
    }

    fn plan_change(&mut self, link: usize) {
        let schedule = &self.schedules[link];
        if let Some(change) = schedule.changes.get(schedule.next) {
            self.events.add(Timestamp::ZERO + change.at, Event::Change(link as u32));
        }
    }

    fn change(&mut self, index: usize) {
        let schedule = &mut self.schedules[index];
        let change = schedule.changes[schedule.next];
        schedule.next += 1;
        let link = &mut self.links[index];
        if let Some(rate) = change.rate {
            link.set_rate(self.now, rate, &mut self.events);
        }
        if let Some(loss) = change.loss {
            link.set_loss(loss);
        }
        if let Some(delay) = change.delay {
            for line in &self.routes.lines_of[index] {
                self.routes.lines[*line as usize].set_delay(nanos(delay));
            }
        }
        self.plan_change(index);
    }
}
