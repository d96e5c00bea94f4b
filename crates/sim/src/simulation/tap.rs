//! Record of packets sent and received by endpoints, and of connection states; captures are made from it.
//! Recording does not change a run. Without it, each packet costs one look at an empty option.

use std::collections::BTreeMap;

use forebay_core::packet::{Ecn, Packet as _};
use forebay_core::units::Timestamp;

use super::Simulation;
use super::endpoints::Connection;
use crate::packet::{Kind, Packet};
use crate::packet_log::Owner;
use crate::tcp::sender::TcpState;

/// Something that happened at an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// A packet was sent.
    Sent(Sent),
    /// A packet came to the end of its route.
    Received(Received),
    /// A sender took a segment for lost; not recorded for connections that carry one message.
    Lost {
        /// Time of the decision.
        at: Timestamp,
        /// The connection.
        conversation: Conversation,
        /// Number of the segment.
        number: u32,
    },
    /// State of a sender after it sent all it may; not recorded for connections that carry one message.
    State {
        /// The instant.
        at: Timestamp,
        /// The connection.
        conversation: Conversation,
        /// State of the sender.
        state: TcpState,
    },
}

/// The two endpoints that exchange packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// The flow of the network, or the bundle.
    pub owner: Owner,
    /// Distinguishes simultaneous connections of one flow.
    pub slot: u32,
    /// Start of the connection; distinguishes the connections of one slot.
    pub since: Timestamp,
}

/// A packet that leaves its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// When it was sent.
    pub at: Timestamp,
    /// Identity as in [`forebay_core::record::PacketRecord::identity`]. An acknowledgement without SACK
    /// blocks that repeats another has the same identity.
    pub identity: u64,
    /// The endpoints.
    pub conversation: Conversation,
    /// True if the sender is the end that receives data or answers pings, or the receivebox.
    pub is_back: bool,
    /// Bytes on the wire.
    pub bytes: u16,
    /// The ECN field.
    pub ecn: Ecn,
    /// TCP header fields; `None` for a datagram.
    pub segment: Option<Segment>,
}

/// A packet that has come to the end of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Time of arrival.
    pub at: Timestamp,
    /// Identity as in [`Sent::identity`].
    pub identity: u64,
}

/// Header fields of a TCP segment, in the simulator's numbers: these count data segments from 0 instead of
/// bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The bits of [`flags`].
    pub flags: u16,
    /// Number of a segment of data.
    pub data: Option<u32>,
    /// Bytes of payload in a data segment or a request.
    pub payload: u16,
    /// Next data segment that the receiver expects.
    pub acked: Option<u32>,
    /// SACK blocks, each from its first number to the number after its last.
    pub blocks: Vec<[u32; 2]>,
    /// Segments that the receiver has room for from `acked` on; `None` for a receiver whose window never
    /// changes.
    pub window: Option<u32>,
    /// Send time of the packet that this segment answers, echoed in its timestamp; `None` for a segment
    /// without an echo.
    pub echo: Option<Timestamp>,
}

/// Flags in the TCP header (RFC 9293 section 3.1, RFC 3168 section 6.1).
pub mod flags {
    /// FIN: no more data follow.
    pub const FIN: u16 = 1;
    /// SYN: the start of a connection.
    pub const SYN: u16 = 2;
    /// PSH: the receiver should hand the data to the application.
    pub const PSH: u16 = 8;
    /// ACK: the acknowledgement number is valid.
    pub const ACK: u16 = 16;
    /// ECE: the receiver saw a congestion mark.
    pub const ECE: u16 = 64;
    /// CWR: the sender reduced its window.
    pub const CWR: u16 = 128;
}

/// Recorded items that the caller has not taken yet.
#[derive(Default)]
pub(super) struct Tap {
    seen: Vec<Seen>,
    /// For each connection, the lost segments not yet sent again at the last look.
    unrepaired: BTreeMap<u32, Vec<u32>>,
}

impl Simulation {
    /// Starts recording for [`Simulation::take_seen`]; call before the run.
    pub fn watch_endpoints(&mut self) {
        self.tap = Some(Box::default());
    }

    /// Items recorded since the last call, in order; empty without [`Simulation::watch_endpoints`].
    pub fn take_seen(&mut self) -> Vec<Seen> {
        self.tap.as_mut().map_or_else(Vec::new, |tap| std::mem::take(&mut tap.seen))
    }

    /// The packet is passed by value: a borrowed one would have to be in memory even without a tap.
    #[cold]
    pub(super) fn tap_sent(&mut self, packet: Packet) {
        let (kind, flow) = (packet.kind(), packet.flow());
        let connection = is_segment(kind).then(|| &self.connections[flow as usize]);
        let sent = Sent {
            at: self.now,
            identity: packet.identity(),
            conversation: Conversation {
                owner: self.owner(kind, flow),
                // Both ends of a bundle have a flow number here, but share one conversation.
                slot: if kind == Kind::Message { 0 } else { flow },
                since: connection.map_or(Timestamp::ZERO, |connection| connection.lives_from),
            },
            is_back: is_back(&packet),
            bytes: packet.bytes(),
            ecn: packet.ecn(),
            segment: connection.map(|connection| self.segment(connection, &packet)),
        };
        self.see(Seen::Sent(sent));
    }

    #[cold]
    pub(super) fn tap_received(&mut self, packet: Packet) {
        self.see(Seen::Received(Received { at: self.now, identity: packet.identity() }));
    }

    /// Records segments newly taken for lost, before the sender sends.
    #[cold]
    pub(super) fn tap_losses(&mut self, flow: u32) {
        let connection = &self.connections[flow as usize];
        if connection.short.is_some() {
            return;
        }
        let (at, conversation) = (self.now, self.conversation(flow));
        let Some(tap) = &mut self.tap else { return };
        let known = tap.unrepaired.get(&flow).map_or(&[][..], Vec::as_slice);
        let news = connection.sender.unrepaired().filter(|it| known.binary_search(it).is_err());
        tap.seen.extend(news.map(|number| Seen::Lost { at, conversation, number }));
    }

    /// Records the state of a sender after it has sent.
    #[cold]
    pub(super) fn tap_state(&mut self, flow: u32) {
        let sender = &self.connections[flow as usize].sender;
        let (at, conversation) = (self.now, self.conversation(flow));
        let Some(tap) = &mut self.tap else { return };
        let unrepaired = tap.unrepaired.entry(flow).or_default();
        unrepaired.clear();
        unrepaired.extend(sender.unrepaired());
        tap.seen.extend(sender.state().map(|state| Seen::State { at, conversation, state }));
    }

    fn see(&mut self, seen: Seen) {
        if let Some(tap) = &mut self.tap {
            tap.seen.push(seen);
        }
    }

    fn conversation(&self, flow: u32) -> Conversation {
        let connection = &self.connections[flow as usize];
        let owner = Owner::Flow(connection.flow as usize);
        Conversation { owner, slot: flow, since: connection.lives_from }
    }

    fn segment(&self, connection: &Connection, packet: &Packet) -> Segment {
        let (kind, number, marks) = (packet.kind(), packet.number(), packet.marks());
        let is_data = kind == Kind::Data;
        // The sender of a one-message connection closes with the last segment.
        let ends = is_data && connection.short.is_some() && connection.segments == Some(number + 1);
        let flags = match kind {
            Kind::Syn | Kind::PeerSyn => flags::SYN,
            Kind::SynAck | Kind::PeerSynAck => flags::SYN | flags::ACK,
            Kind::Ask => flags::ACK | flags::PSH,
            Kind::Fin => flags::ACK | flags::FIN,
            Kind::Data if ends => flags::ACK | flags::PSH | flags::FIN,
            _ => flags::ACK,
        };
        let ece = if marks.is_ece() { flags::ECE } else { 0 };
        let cwr = if marks.is_cwr() { flags::CWR } else { 0 };
        let has_payload = is_data || kind == Kind::Ask;
        let echoes = matches!(kind, Kind::SynAck | Kind::PeerSynAck | Kind::Ack | Kind::Fin);
        let told = self.sacks.get(packet.sack());
        Segment {
            flags: flags | ece | cwr,
            data: is_data.then_some(number),
            payload: if has_payload { packet.bytes() - self.stack.tcp.overhead } else { 0 },
            acked: matches!(kind, Kind::Ack | Kind::Fin).then_some(number),
            blocks: told.as_slice().iter().map(|block| [block.start, block.end]).collect(),
            window: told.window(),
            echo: echoes.then_some(packet.sent),
        }
    }
}

fn is_segment(kind: Kind) -> bool {
    !matches!(kind, Kind::Datagram | Kind::Message | Kind::Ping | Kind::Pong)
}

/// Whether the sender of `packet` is the end that receives data or answers pings, or the receivebox.
pub(super) fn is_back(packet: &Packet) -> bool {
    match packet.kind() {
        Kind::SynAck | Kind::Ack | Kind::Fin => true,
        Kind::PeerSyn | Kind::PeerConfirm | Kind::Ask | Kind::Pong => true,
        // The boxes' flow numbers alternate: see `message_way`.
        Kind::Message => packet.flow() % 2 == 1,
        _ => false,
    }
}
