//! Bundles: packets through the boxes, and messages between the boxes.

use forebay_core::bundle::wire::MESSAGE_HEADERS;
use forebay_core::random::Streams;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;

use super::Simulation;
use super::endpoints::Way;
use crate::bundle;
use crate::event::Event;
use crate::machine::Machine;
use crate::network::{self, Network, Signal, Upset};
use crate::packet::{Kind, Packet};

/// The box that sends a message. The messages of one bundle form two flows, one for each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sendbox = 0,
    Receivebox = 1,
}

/// The changes to the boxes of a bundle, and the index of the next one.
pub(super) struct Upsets {
    bundle: network::RoutedBundle,
    streams: Streams,
    next: usize,
}

impl Simulation {
    pub(super) fn add_bundle(
        &mut self,
        network: &Network,
        index: usize,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let bundle = &network.bundles[index];
        let streams = streams.part(&bundle.of.name);
        let machine = Machine::of(&bundle.of, &streams);
        let (algorithms, now) = (&self.algorithms, self.now);
        let built = bundle::boxes(index as u32, bundle, &streams, None, machine, algorithms, now);
        let (mut sendbox, mut receivebox) = built.map_err(|error| error.within(&bundle.of.name))?;
        if self.is_here(|parts| parts.bundles[index][0]) {
            sendbox.plan(self.now, &mut self.events);
        }
        if self.is_here(|parts| parts.bundles[index][1]) {
            receivebox.plan(self.now, &mut self.events);
        }
        self.sendboxes.push(sendbox);
        self.receiveboxes.push(receivebox);
        let ways = [&bundle.path, &bundle.back].map(|hops| self.way(network, hops));
        self.message_ways.push(ways);
        self.upsets.push(Upsets { bundle: bundle.clone(), streams, next: 0 });
        self.plan_upset(index);
        Ok(())
    }

    /// The route of the messages of message flow `flow`.
    pub(super) fn message_way(&self, flow: u32) -> Way {
        self.message_ways[flow as usize / 2][flow as usize % 2]
    }

    /// A packet comes to the sendbox.
    pub(super) fn enter_bundle(&mut self, bundle: u32, packet: Packet) {
        match self.sendboxes[bundle as usize].take(self.now, packet) {
            None => self.serve_sendbox(bundle),
            Some(packet) => {
                let step = self.step_after(self.routes.elements.sendbox(bundle), &packet);
                self.pass(step, packet);
            }
        }
    }

    /// Sends the packets that the shaper releases.
    fn serve_sendbox(&mut self, bundle: u32) {
        let element = self.routes.elements.sendbox(bundle);
        while let Some(packet) = self.sendboxes[bundle as usize].dequeue(self.now) {
            let step = self.step_after(element, &packet);
            self.pass(step, packet);
        }
        self.sendboxes[bundle as usize].plan(self.now, &mut self.events);
        self.watch_uplink(bundle);
    }

    /// A packet comes to the receivebox, which lets it pass.
    pub(super) fn leave_bundle(&mut self, bundle: u32, packet: Packet) {
        let is_boundary = self.receiveboxes[bundle as usize].on_packet(self.now, &packet);
        let step = self.step_after(self.routes.elements.receivebox(bundle), &packet);
        self.pass(step, packet);
        if is_boundary {
            self.serve_receivebox(bundle);
        }
    }

    fn serve_receivebox(&mut self, bundle: u32) {
        self.send_messages(bundle, End::Receivebox);
        self.receiveboxes[bundle as usize].plan(self.now, &mut self.events);
    }

    pub(super) fn wake_sendbox(&mut self, bundle: u32) {
        if self.sendboxes[bundle as usize].on_timer(self.now, &mut self.events) {
            self.send_messages(bundle, End::Sendbox);
            self.serve_sendbox(bundle);
        }
    }

    pub(super) fn wake_receivebox(&mut self, bundle: u32) {
        if self.receiveboxes[bundle as usize].on_timer(self.now, &mut self.events) {
            self.serve_receivebox(bundle);
        }
    }

    /// Sends the messages that are due.
    fn send_messages(&mut self, bundle: u32, end: End) {
        let mut out = std::mem::take(&mut self.scratch);
        loop {
            let is_due = match end {
                End::Sendbox => self.sendboxes[bundle as usize].poll(self.now, &mut out),
                End::Receivebox => self.receiveboxes[bundle as usize].poll(self.now, &mut out),
            };
            if !is_due {
                break;
            }
            self.send_message(2 * bundle + end as u32, &out);
        }
        self.scratch = out;
    }

    fn send_message(&mut self, flow: u32, message: &[u8]) {
        if self.messages.is_full() {
            self.reclaim();
        }
        let number = self.messages.put(message);
        let bytes = (message.len() as u64 + MESSAGE_HEADERS.as_u64()) as u16;
        let first = self.message_way(flow).first;
        self.emit(first, Packet::new(Kind::Message, flow, number, bytes, self.now));
    }

    /// A message reaches the other box.
    pub(super) fn deliver_message(&mut self, packet: Packet) {
        let bundle = packet.flow() / 2;
        let message = self.messages.take(packet.number());
        if packet.flow() % 2 == End::Sendbox as u32 {
            self.receiveboxes[bundle as usize].on_datagram(self.now, &message);
            self.messages.give_back(packet.number(), message);
            self.serve_receivebox(bundle);
        } else {
            self.sendboxes[bundle as usize].on_datagram(self.now, &message);
            self.messages.give_back(packet.number(), message);
            self.send_messages(bundle, End::Sendbox);
            self.serve_sendbox(bundle);
        }
    }

    fn plan_upset(&mut self, index: usize) {
        let Upsets { bundle, next, .. } = &self.upsets[index];
        if let Some(change) = bundle.changes.get(*next) {
            self.events.add(Timestamp::ZERO + change.at, Event::Upset(index as u32));
        }
    }

    /// Applies the next change to the boxes of a bundle.
    pub(super) fn upset(&mut self, index: u32) {
        let upsets = &mut self.upsets[index as usize];
        let what = upsets.bundle.changes[upsets.next].what;
        upsets.next += 1;
        let receivebox = &mut self.receiveboxes[index as usize];
        match what {
            Upset::Unseen(share) => receivebox.set_unseen(share),
            Upset::Foreign(rate) => receivebox.set_foreign(self.now, rate),
            Upset::Unreported(is_unreported) => receivebox.set_unreported(is_unreported),
            Upset::Suspended(is_suspended) => {
                receivebox.set_suspended(self.now, is_suspended);
                self.serve_receivebox(index);
            }
            Upset::Sendbox(signal) => self.signal_sendbox(index, signal),
            Upset::Receivebox(signal) => self.signal_receivebox(index, signal),
        }
        self.plan_upset(index as usize);
    }

    fn signal_sendbox(&mut self, index: u32, signal: Signal) {
        let now = self.now;
        let fresh = self.started_anew(index, signal).map(|(sendbox, _)| sendbox);
        let sendbox = &mut self.sendboxes[index as usize];
        match signal {
            Signal::Kill => sendbox.kill(now),
            Signal::Stop => sendbox.stop(now),
            Signal::Continue => sendbox.go_on(now),
            Signal::Restart | Signal::RestartOtherKey => {
                fresh.into_iter().for_each(|it| sendbox.replace(it))
            }
        }
        self.send_messages(index, End::Sendbox);
        self.serve_sendbox(index);
    }

    fn signal_receivebox(&mut self, index: u32, signal: Signal) {
        let now = self.now;
        let fresh = self.started_anew(index, signal).map(|(_, receivebox)| receivebox);
        let receivebox = &mut self.receiveboxes[index as usize];
        match signal {
            Signal::Kill => receivebox.kill(),
            Signal::Stop => receivebox.stop(now),
            Signal::Continue => receivebox.go_on(now),
            Signal::Restart | Signal::RestartOtherKey => {
                fresh.into_iter().for_each(|it| receivebox.replace(now, it));
            }
        }
        self.serve_receivebox(index);
    }

    /// The boxes as a restart creates them; `None` for a signal that starts nothing.
    fn started_anew(
        &self,
        index: u32,
        signal: Signal,
    ) -> Option<(bundle::Sendbox, bundle::Receivebox)> {
        let Upsets { bundle, streams, next } = &self.upsets[index as usize];
        let key = match signal {
            Signal::Restart => Some(bundle::key(streams)),
            Signal::RestartOtherKey => None,
            Signal::Kill | Signal::Stop | Signal::Continue => return None,
        };
        let streams = streams.part(&format!("upset {next}"));
        // This build succeeded at the start of the run, so it succeeds here.
        let machine = self.receiveboxes[index as usize].machine();
        bundle::boxes(index, bundle, &streams, key, machine, &self.algorithms, self.now).ok()
    }
}
