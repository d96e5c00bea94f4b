//! The run: events in order, each handed to the part that it concerns.
//!
//! A data packet costs three events, with an acknowledgement for each: it leaves the bottleneck,
//! reaches the receiver, and its acknowledgement reaches the sender. What follows at the same instant
//! (an arrival at a link, an acknowledgement leaving) is a call and no event.

mod endpoints;
mod results;

use std::collections::VecDeque;

use forebay_core::link::Change;
use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;

pub use self::endpoints::Read;
use self::endpoints::{Connection, DatagramSource, Place};
use crate::event::{Event, Events};
use crate::link::Link;
use crate::network::Network;
use crate::packet::{Kind, Packet, SackTable, mix};
use crate::route::{After, Routes, Step, nanos};
use crate::tcp::stack::Stack;
use crate::walk;

/// What will happen to a link, and how much of it has.
struct Schedule {
    changes: Vec<Change>,
    next: usize,
}

/// A simulation of a [`Network`].
pub struct Simulation {
    now: Timestamp,
    stop: Timestamp,
    stack: Stack,
    events: Events,
    hash: u64,
    handled: u64,
    links: Vec<Link>,
    after: Vec<After>,
    routes: Routes,
    schedules: Vec<Schedule>,
    sacks: SackTable,
    connections: Vec<Connection>,
    sources: Vec<DatagramSource>,
    /// Where each flow of the network is.
    places: Vec<Place>,
    /// What was read and nobody has been told of.
    reads: VecDeque<Read>,
    /// Packets that endpoints have sent.
    sent: u64,
    /// Packets that have reached an endpoint.
    delivered: u64,
}

impl Simulation {
    /// Sets up what `network` says, a [`Network`] or a [`crate::Dumbbell`]. Refuses unknown algorithms
    /// and qdiscs, parameters out of range and routes over links that do not exist.
    pub fn new(network: impl Into<Network>) -> Result<Self, SpecError> {
        let network = network.into();
        network.check()?;
        let streams = Streams::new(network.seed);
        let mut simulation = Self {
            now: Timestamp::ZERO,
            stop: Timestamp::ZERO + network.stop,
            stack: network.stack,
            events: Events::default(),
            hash: 0,
            handled: 0,
            links: Vec::with_capacity(network.links.len()),
            after: Vec::new(),
            routes: Routes::new(&network),
            schedules: Vec::with_capacity(network.links.len()),
            sacks: SackTable::default(),
            connections: Vec::new(),
            sources: Vec::new(),
            places: Vec::new(),
            reads: VecDeque::new(),
            sent: 0,
            delivered: 0,
        };
        for index in 0..network.links.len() {
            simulation.add_link(&network, index, &streams)?;
        }
        for (index, flow) in network.flows.iter().enumerate() {
            simulation.add_flow(&network, flow, &streams.part(&format!("flow {index}")))?;
        }
        simulation.after = simulation.routes.after_links();
        Ok(simulation)
    }

    fn add_link(
        &mut self,
        network: &Network,
        index: usize,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let (link, streams) = (&network.links[index], streams.part(&network.links[index].name));
        let changes = walk::changes(link, network.stop, &streams);
        let (number, stop) = (index as u32, network.stop);
        let built = Link::new(number, link, &network.stack, &changes, stop, &streams);
        self.links.push(built.map_err(|error| error.within(&link.name))?);
        self.schedules.push(Schedule { changes, next: 0 });
        self.plan_change(index);
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

    /// Runs until a receiver of [`crate::network::Traffic::Written`] has read more, or to `until`, at
    /// most to the end, and then there is nothing to tell. Time stands where the reading happened.
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
                if self.links[link as usize].on_held_timer(self.now, &mut self.events) {
                    self.release_held(link);
                }
            }
            Event::Change(link) => self.change(link as usize),
            Event::Datagram(source) => self.send_datagram(source as usize),
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
            Step::Link(link) => {
                if let Some(packet) = self.links[link as usize].offer(now, packet, events) {
                    self.leave(link, packet);
                }
            }
            Step::Spread(spread) => {
                let step = self.routes.spreads[spread as usize].take();
                self.pass(step, packet);
            }
        }
    }

    /// A link has sent a packet.
    fn depart(&mut self, link: u32) {
        let departed = self.links[link as usize].depart(self.now, &mut self.events);
        if let Some(packet) = departed {
            self.leave(link, packet);
        }
    }

    /// A packet comes out of a link's server, and may be held back there.
    #[inline]
    fn leave(&mut self, link: u32, packet: Packet) {
        let here = &mut self.links[link as usize];
        if !here.reorders() {
            self.go_on(link, packet);
        } else if let Some(packet) = here.hold(self.now, packet, &mut self.events) {
            self.go_on(link, packet);
            self.release_held(link);
        }
    }

    fn release_held(&mut self, link: u32) {
        while let Some(packet) = self.links[link as usize].release(self.now) {
            self.go_on(link, packet);
        }
    }

    /// A packet goes on to what follows a link on its route.
    #[inline]
    fn go_on(&mut self, link: u32, packet: Packet) {
        let step = match self.after[link as usize] {
            After::Always(step) => step,
            After::ByRoute => self.routes.after(self.route_of(&packet), link),
        };
        if self.links[link as usize].is_logged() {
            self.go_on_logged(link, step, packet);
        } else {
            self.pass(step, packet);
        }
    }

    fn go_on_logged(&mut self, link: u32, step: Step, packet: Packet) {
        let here = &mut self.links[link as usize];
        match step {
            Step::Line(line) if self.routes.lines_of[link as usize].contains(&line) => {
                let line = &mut self.routes.lines[line as usize];
                let end = line.push(self.now, packet, &mut self.events);
                here.on_release(&packet, end);
            }
            _ => {
                here.on_release(&packet, self.now);
                self.pass(step, packet);
            }
        }
    }

    fn route_of(&self, packet: &Packet) -> u32 {
        match packet.kind {
            Kind::Data | Kind::Syn => self.connections[packet.flow as usize].data.route,
            Kind::Ack | Kind::SynAck => self.connections[packet.flow as usize].back.route,
            Kind::Datagram => self.sources[packet.flow as usize].data.route,
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
