//! Bundles: packets through the boxes, and messages between them.

use forebay_core::bundle::wire::MESSAGE_HEADERS;
use forebay_core::random::Streams;
use forebay_core::spec::SpecError;

use super::Simulation;
use super::endpoints::Way;
use crate::bundle;
use crate::network::Network;
use crate::packet::{Kind, Packet};

/// The end of a bundle that sends a message: with it messages of one bundle are two flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Sendbox = 0,
    Receivebox = 1,
}

impl Simulation {
    pub(super) fn add_bundle(
        &mut self,
        network: &Network,
        index: usize,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let bundle = &network.bundles[index];
        let built = bundle::boxes(index as u32, bundle, &streams.part(&bundle.name));
        let (mut sendbox, mut receivebox) = built.map_err(|error| error.within(&bundle.name))?;
        sendbox.plan(self.now, &mut self.events);
        receivebox.plan(self.now, &mut self.events);
        self.sendboxes.push(sendbox);
        self.receiveboxes.push(receivebox);
        let ways = [&bundle.path, &bundle.back].map(|hops| self.way(network, hops));
        self.message_ways.push(ways);
        Ok(())
    }

    /// The way of the messages of a flow of them.
    pub(super) fn message_way(&self, flow: u32) -> Way {
        self.message_ways[flow as usize / 2][flow as usize % 2]
    }

    /// A packet comes to the sendbox.
    pub(super) fn enter_bundle(&mut self, bundle: u32, packet: Packet) {
        self.sendboxes[bundle as usize].enqueue(self.now, packet);
        self.serve_sendbox(bundle);
    }

    /// Sends what the shaper lets go.
    fn serve_sendbox(&mut self, bundle: u32) {
        let element = self.routes.elements.sendbox(bundle);
        while let Some(packet) = self.sendboxes[bundle as usize].dequeue(self.now) {
            let step = self.step_after(element, &packet);
            self.pass(step, packet);
        }
        self.sendboxes[bundle as usize].plan(self.now, &mut self.events);
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
        self.sent += 1;
        self.pass(first, Packet::new(Kind::Message, flow, number, bytes, self.now));
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
}
