//! A simulation as part of a network that is cut: packets that leave for other parts, and that arrive from there.

use std::mem;
use std::sync::Arc;

use forebay_core::cc::Registry;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;

use super::tap::is_back;
use super::{Simulation, mix};
use crate::network::Network;
use crate::packet::{Kind, Packet, SackBlocks, SackHandle};
use crate::parts::Parts;

/// Place of a simulation in a network that is cut.
pub(super) struct Cut {
    parts: Arc<Parts>,
    here: usize,
    /// The part at the end of each delay line; `None`: the part of the packet's receiver.
    ends: Vec<Option<usize>>,
    /// Packets that left for each part in this window.
    leaving: Vec<Crossing>,
    /// Packets that left for other parts and have arrived from there.
    #[cfg(debug_assertions)]
    crossed: [u64; 2],
}

/// Packets on their way from one part to another, in order.
#[derive(Default)]
pub(crate) struct Crossing {
    /// Each packet with its delay line.
    packets: Vec<(u32, Packet)>,
    /// Options of the acknowledgements among the packets.
    blocks: Vec<SackBlocks>,
    /// The messages among the packets.
    messages: Vec<Vec<u8>>,
}

impl Cut {
    pub fn new(parts: &Arc<Parts>, here: usize) -> Self {
        Self {
            parts: parts.clone(),
            here,
            ends: Vec::new(),
            leaving: (0..parts.count).map(|_| Crossing::default()).collect(),
            #[cfg(debug_assertions)]
            crossed: [0; 2],
        }
    }

    pub fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// Whether the part that `of` returns is this one.
    pub fn is_here(&self, of: impl FnOnce(&Parts) -> usize) -> bool {
        of(&self.parts) == self.here
    }
}

impl Simulation {
    /// Sets up part `here` of `network`.
    pub(crate) fn of_part(
        network: &Network,
        algorithms: Registry,
        parts: &Arc<Parts>,
        here: usize,
    ) -> Result<Self, SpecError> {
        let mut simulation = Self::build(network, algorithms, Some(Cut::new(parts, here)))?;
        if let Some(cut) = &mut simulation.cut {
            let links = simulation.routes.links_of_lines().into_iter();
            cut.ends = links.map(|link| Some(parts.links[link? as usize][1])).collect();
        }
        Ok(simulation)
    }

    /// Whether the part that `of` returns is simulated here.
    pub(super) fn is_here(&self, of: impl FnOnce(&Parts) -> usize) -> bool {
        self.cut.as_ref().is_none_or(|cut| cut.is_here(of))
    }

    /// Puts a packet on a delay line that may end in another part; it takes `late_ns` longer than the delay.
    /// Returns its arrival time at the end of the link.
    pub(super) fn cross(&mut self, line: u32, late_ns: u64, packet: Packet) -> Timestamp {
        let delayed = &mut self.routes.lines[line as usize];
        let packet = delayed.timed(self.now, late_ns, packet);
        let end = delayed.end_of(&packet);
        let Some(cut) = &mut self.cut else { return end };
        let to = cut.ends[line as usize].unwrap_or_else(|| {
            let ends = match packet.kind() {
                Kind::Message => &cut.parts.bundles[packet.flow() as usize / 2],
                _ => &cut.parts.flows[self.connections[packet.flow() as usize].flow as usize],
            };
            ends[usize::from(!is_back(&packet))]
        });
        if to == cut.here {
            delayed.arrive(packet, &mut self.events);
            return end;
        }
        let leaving = &mut cut.leaving[to];
        leaving.packets.push((line, packet));
        if packet.kind() == Kind::Message {
            leaving.messages.push(self.messages.take(packet.number()));
            self.messages.reclaim(packet.number());
        } else if packet.sack() != SackHandle::NONE {
            leaving.blocks.push(*self.sacks.get(packet.sack()));
            self.sacks.free(packet.sack());
        }
        #[cfg(debug_assertions)]
        {
            cut.crossed[0] += 1;
        }
        end
    }

    /// Exchanges the packets that left for part `to` with `crossing`, which is empty.
    pub(crate) fn swap_leaving(&mut self, to: usize, crossing: &mut Crossing) {
        self.cut.iter_mut().for_each(|cut| mem::swap(&mut cut.leaving[to], crossing));
    }

    /// Takes the packets of `crossing` onto their delay lines.
    pub(crate) fn arrive(&mut self, crossing: &mut Crossing) {
        let (mut blocks, mut messages) = (crossing.blocks.drain(..), crossing.messages.drain(..));
        for (line, mut packet) in crossing.packets.drain(..) {
            if packet.kind() == Kind::Message {
                let message = messages.next().unwrap_or_default();
                packet = packet.with_number(self.messages.put(&message));
            } else if packet.sack() != SackHandle::NONE {
                let (sack, place) = self.sacks.add();
                *place = blocks.next().unwrap_or(SackBlocks::NONE);
                packet = packet.with_sack(sack);
            }
            self.routes.lines[line as usize].arrive(packet, &mut self.events);
            #[cfg(debug_assertions)]
            self.cut.iter_mut().for_each(|cut| cut.crossed[1] += 1);
        }
    }

    /// Packets that left for other parts and have arrived from there.
    #[cfg(debug_assertions)]
    pub(super) fn crossed(&self) -> [u64; 2] {
        self.cut.as_ref().map_or([0; 2], |cut| cut.crossed)
    }

    /// The results of all parts, in order, in the first.
    pub(crate) fn join(mut all: Vec<Self>) -> Self {
        let Some(cut) = all[0].cut.take() else { return all.swap_remove(0) };
        let Parts { links, flows, bundles, .. } = &*cut.parts;
        for (link, [owner, _]) in links.iter().enumerate() {
            if let Ok([first, owner]) = all.get_disjoint_mut([0, *owner]) {
                mem::swap(&mut first.links[link], &mut owner.links[link]);
            }
        }
        for (bundle, [sender, receiver]) in bundles.iter().enumerate() {
            if let Ok([first, owner]) = all.get_disjoint_mut([0, *sender]) {
                mem::swap(&mut first.sendboxes[bundle], &mut owner.sendboxes[bundle]);
            }
            if let Ok([first, owner]) = all.get_disjoint_mut([0, *receiver]) {
                mem::swap(&mut first.receiveboxes[bundle], &mut owner.receiveboxes[bundle]);
            }
        }
        for index in 0..all[0].connections.len() {
            let connection = &all[0].connections[index];
            let (meter, [sender, receiver]) =
                (connection.meter as usize, flows[connection.flow as usize]);
            if let Ok([first, owner]) = all.get_disjoint_mut([0, sender]) {
                mem::swap(&mut first.connections[index], &mut owner.connections[index]);
                mem::swap(&mut first.meters[meter], &mut owner.meters[meter]);
            }
            // The first part's own state is now where the sender's was.
            let place = if receiver == 0 { sender } else { receiver };
            if sender != receiver
                && let Ok([first, owner]) = all.get_disjoint_mut([0, place])
            {
                let [ours, theirs] =
                    [&mut *first, &mut *owner].map(|it| &mut it.connections[index].receiver);
                mem::swap(ours, theirs);
                let now = first.now;
                first.meters[meter].take_receiver(now, &mut owner.meters[meter]);
            }
        }
        let mut all = all.into_iter();
        let mut first = all.next().expect("there is a first part");
        for other in all {
            first.hash = mix(first.hash ^ other.hash);
            first.handled += other.handled;
            first.sent += other.sent;
            first.delivered += other.delivered;
        }
        first
    }
}
