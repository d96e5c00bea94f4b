//! Connections that carry one message each, in reusable slots.
//!
//! A slot is a place among the connections. It is free once both ends have ended, and the next connection of
//! the same flow reuses its memory. Memory grows only with the number of simultaneous connections. The cost
//! of a connection does not depend on the number of earlier ones.
//!
//! A packet of a connection that has ended may still be on its way. Its timestamp lies before the start of
//! the connection that has the slot now, so the receiver can drop it.

use std::sync::Arc;

use forebay_core::cc::CongestionControl;
use forebay_core::random::{Stream, Streams};
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::Timestamp;

use super::Simulation;
use super::endpoints::{Connection, Place, Read, Way, owner};
use super::receiving::Reader;
use crate::event::Event;
use crate::metrics::{FlowMeter, FlowMetrics, mbit_per_s, ratio};
use crate::network::{Flow, Network, Opener};
use crate::packet::{Kind, Packet};
use crate::tcp::peer::{Peer, Wish};
use crate::tcp::receiver::Receiver;
use crate::tcp::sender::{Counters, SUPPLIED, Sender};
use crate::tcp::stack::Tcp;

/// Payload of a request, as the testbed's clients write it.
pub const REQUEST_BYTES: u64 = 16;
/// Number of the acknowledgement of an end; the acknowledgement of a handshake has 0.
const OF_END: u32 = 1;

/// Totals of a flow's connections that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    counters: Counters,
    duplicates: u64,
    episodes: u64,
    episodes_ns: u64,
}

impl Past {
    fn add(&mut self, sender: &Sender, receiver: &Receiver) {
        let (episodes, episodes_ns) = sender.recoveries();
        self.episodes += episodes;
        self.episodes_ns += episodes_ns;
        self.counters.sent += sender.counters.sent;
        self.counters.resent += sender.counters.resent;
        self.counters.timeouts += sender.counters.timeouts;
        self.counters.undone += sender.counters.undone;
        self.duplicates += receiver.duplicates();
    }
}

/// The slots of a flow.
pub(super) struct Pool {
    data: Way,
    back: Way,
    /// Index among the flows of the network.
    flow: u32,
    /// Name of the flow in messages to the user.
    owner: String,
    start: Timestamp,
    opener: Opener,
    tcp: Arc<Tcp>,
    cc: Spec,
    /// The algorithm as built: parsing `cc` for each connection takes as long as a few of its packets.
    algorithm: Box<dyn CongestionControl>,
    seeds: Stream,
    pub meter: u32,
    /// Number of the next message.
    next: u32,
    /// Number of slots.
    slots: u32,
    /// Slots without a connection, the most recently freed last.
    free: Vec<u32>,
    past: Past,
    written_bytes: u64,
    /// Payload sent, repairs included.
    pub sent_bytes: u64,
}

/// The connections of a flow of [`crate::network::Traffic::Messages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Slots with a connection that is open, or being opened or ended.
    pub live: usize,
    /// All slots, equal to the largest number of simultaneous connections.
    pub all: usize,
    /// Connections opened so far.
    pub opened: u32,
}

/// State that only a short connection has.
pub(super) struct Short {
    /// Pool of the connection.
    pub pool: u32,
    /// Number of its message.
    message: u32,
    ended_at: Timestamp,
}

impl Simulation {
    pub(super) fn add_pool(
        &mut self,
        network: &Network,
        flow: &Flow,
        opener: Opener,
        streams: &Streams,
    ) -> Result<(), SpecError> {
        let algorithm = self.stack.algorithm(&self.algorithms, &flow.cc, SUPPLIED)?;
        let tcp = self.tcp_of(flow);
        let start = Timestamp::ZERO + flow.start;
        let meter = self.meters.len() as u32;
        self.meters.push(FlowMeter::new(start, self.stop));
        let number = self.places.len() as u32;
        self.places.push(Place::Pool(self.pools.len()));
        let (data, back) = (self.way(network, &flow.data), self.way(network, &flow.back));
        self.pools.push(Pool {
            data,
            back,
            flow: number,
            owner: owner(flow, number),
            start,
            opener,
            tcp,
            cc: flow.cc.clone(),
            algorithm,
            seeds: streams.stream("algorithm"),
            meter,
            next: 0,
            slots: 0,
            free: Vec::new(),
            past: Past::default(),
            written_bytes: 0,
            sent_bytes: 0,
        });
        Ok(())
    }

    /// Opens a connection of flow `flow`, one of [`crate::network::Traffic::Messages`], for a message of
    /// `bytes`, at least one. Returns the number of the message, counted from 0; `None` for another flow.
    /// [`Read`] reports this number once the message is read whole.
    pub fn open(&mut self, flow: usize, bytes: u64) -> Option<u32> {
        let Some(Place::Pool(place)) = self.places.get(flow).copied() else { return None };
        let (bytes, now) = (bytes.max(1), self.now);
        let slot = self.take_slot(place, bytes)?;
        let pool = &mut self.pools[place];
        let (message, opener) = (pool.next, pool.opener);
        pool.next += 1;
        pool.written_bytes += bytes;
        let connection = &mut self.connections[slot as usize];
        connection.receiver.renew(now, &pool.tcp);
        connection.peer.renew();
        connection.segments = u32::try_from(bytes.div_ceil(u64::from(pool.tcp.mss))).ok();
        connection.lives_from = now;
        connection.short = Some(Short { pool: place as u32, message, ended_at: Timestamp::MAX });
        match opener {
            Opener::Sender => {
                connection.sender.start();
                self.transmit(slot);
            }
            Opener::Receiver => self.wish(slot, Wish::Connection),
        }
        Some(message)
    }

    /// A free or new slot with a sender of `bytes`.
    fn take_slot(&mut self, place: usize, bytes: u64) -> Option<u32> {
        let pool = &mut self.pools[place];
        let copy = pool.algorithm.copied();
        let mut algorithm =
            copy.or_else(|| self.stack.algorithm(&self.algorithms, &pool.cc, SUPPLIED).ok())?;
        algorithm.set_seed(pool.seeds.bits());
        algorithm.set_owner(&pool.owner);
        // A connection freed at this instant may also have sent at it, so its slot must wait.
        let now = self.now;
        let is_old = |slot: &u32| {
            let short = &self.connections[*slot as usize].short;
            short.as_ref().is_some_and(|it| it.ended_at < now)
        };
        if let Some(slot) = pool.free.last().copied().filter(is_old) {
            pool.free.pop();
            self.connections[slot as usize].sender.renew(algorithm, bytes);
            return Some(slot);
        }
        pool.slots += 1;
        self.connections.push(Connection {
            sender: Sender::new(Arc::clone(&pool.tcp), algorithm, Some(bytes)),
            receiver: Receiver::new(&pool.tcp),
            peer: Peer::SILENT,
            written: None,
            data: pool.data,
            back: pool.back,
            flow: pool.flow,
            start: pool.start,
            opened_ns: None,
            segments: None,
            reader: Reader::Nobody,
            reading: None,
            meter: pool.meter,
            lives_from: Timestamp::MAX,
            short: None,
        });
        Some(self.connections.len() as u32 - 1)
    }

    /// Sends a request of the receiving end and repeats it until answered. Both ends use the same round-trip
    /// time.
    fn wish(&mut self, slot: u32, wish: Wish) {
        let connection = &mut self.connections[slot as usize];
        connection.peer.send(self.now, wish, connection.sender.rto_ns());
        self.send_wish(slot, wish);
    }

    fn send_wish(&mut self, slot: u32, wish: Wish) {
        let connection = &mut self.connections[slot as usize];
        connection.peer.timer.plan(&mut self.events, Event::Peer(slot));
        match wish {
            Wish::Connection => self.send_control(slot, Kind::PeerSyn, 0, 0),
            Wish::Data => self.send_control(slot, Kind::Ask, 0, REQUEST_BYTES as u16),
            Wish::End => {
                let ack = connection.receiver.acknowledge_now();
                let mut packet = self.control(slot, Kind::Fin, ack.number, 0);
                packet.sent = ack.echo;
                self.send_back(packet);
            }
        }
    }

    /// Repeats the receiving end's request if it has waited long enough.
    pub(super) fn on_peer_timer(&mut self, event: Event, slot: u32) {
        let peer = &mut self.connections[slot as usize].peer;
        if peer.timer.fired(self.now, &mut self.events, event)
            && let Some(wish) = peer.on_timeout(self.now)
        {
            self.send_wish(slot, wish);
        }
    }

    /// The sending end of a short connection has been answered, and confirms the handshake.
    pub(super) fn confirm_handshake(&mut self, slot: u32) {
        self.send_control(slot, Kind::Confirm, 0, 0);
    }

    /// The receiver has read a message whole.
    pub(super) fn end_message(&mut self, slot: u32) {
        let connection = &self.connections[slot as usize];
        if let Some(Short { message, .. }) = connection.short {
            self.reads.push_back(Read { flow: connection.flow as usize, number: message });
            self.wish(slot, Wish::End);
        }
    }

    /// Handles a packet of a short connection without data at the end of its route.
    pub(super) fn deliver_control(&mut self, packet: Packet) {
        let slot = packet.flow();
        let connection = &mut self.connections[slot as usize];
        if packet.sent < connection.lives_from {
            return;
        }
        match packet.kind() {
            Kind::PeerSyn => {
                let first = connection.data.first;
                self.emit(first, packet.turned(Kind::PeerSynAck));
            }
            Kind::PeerSynAck if connection.peer.on_answer(Wish::Connection) => {
                connection.sender.learn_rtt(self.now, packet.sent);
                self.send_control(slot, Kind::PeerConfirm, 0, 0);
                self.wish(slot, Wish::Data);
            }
            Kind::Ask if !connection.sender.is_open() => {
                connection.sender.accept(self.now);
                self.transmit(slot);
            }
            Kind::Fin => {
                if packet.number() > connection.sender.una() {
                    connection.sender.on_ack(self.now, packet.number(), packet.sent, &[], false);
                    self.transmit(slot);
                }
                self.send_control(slot, Kind::Confirm, OF_END, 0);
            }
            Kind::Confirm if packet.number() == OF_END && connection.peer.on_answer(Wish::End) => {
                self.free(slot);
            }
            Kind::WindowProbe => self.answer_window_probe(slot),
            // A repeated packet, or one already answered.
            _ => {}
        }
    }

    /// Frees the slot of a connection with both ends closed.
    fn free(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let Some(short) = &mut connection.short else { return };
        short.ended_at = self.now;
        connection.lives_from = Timestamp::MAX;
        let pool = &mut self.pools[short.pool as usize];
        pool.past.add(&connection.sender, &connection.receiver);
        pool.free.push(slot);
        connection.sender.release();
        connection.receiver.timer.stop();
    }

    fn control(&self, slot: u32, kind: Kind, number: u32, payload: u16) -> Packet {
        Packet::new(kind, slot, number, self.stack.tcp.overhead + payload, self.now)
    }

    fn send_control(&mut self, slot: u32, kind: Kind, number: u32, payload: u16) {
        let packet = self.control(slot, kind, number, payload);
        if kind != Kind::Confirm {
            return self.send_back(packet);
        }
        let first = self.connections[slot as usize].data.first;
        self.emit(first, packet);
    }

    /// The slots of flow `flow`; `None` for a flow without [`crate::network::Traffic::Messages`].
    pub fn slots(&self, flow: usize) -> Option<Slots> {
        let Some(Place::Pool(place)) = self.places.get(flow) else { return None };
        let pool = &self.pools[*place];
        let all = pool.slots as usize;
        Some(Slots { live: all - pool.free.len(), all, opened: pool.next })
    }

    /// Results of all connections of a pool together; windows and round-trip times stay 0.
    pub(super) fn pool_metrics(&mut self, place: usize) -> FlowMetrics {
        let (now, pool) = (self.now, &self.pools[place]);
        let mut all = pool.past;
        for connection in &self.connections {
            let is_live = connection.lives_from != Timestamp::MAX;
            if is_live && connection.short.as_ref().is_some_and(|it| it.pool == place as u32) {
                all.add(&connection.sender, &connection.receiver);
            }
        }
        let life = now.saturating_since(pool.start);
        FlowMetrics {
            mean_sending_rate_l4: mbit_per_s(pool.sent_bytes, life),
            mean_sending_rate_l7: mbit_per_s(pool.written_bytes, life),
            mean_recovery_time_l4: ratio(all.episodes_ns as f64 * 1e-6, all.episodes as f64),
            recovery_episodes: all.episodes,
            total_retransmissions_l4: all.counters.resent,
            total_spurious_retransmissions_l4: all.duplicates,
            total_rtos_l4: all.counters.timeouts,
            data_packets_sent: all.counters.sent,
            ..self.meters[pool.meter as usize].metrics(now, u64::from(self.stack.tcp.mss))
        }
    }
}
