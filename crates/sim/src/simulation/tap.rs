//! What endpoints send and receive, and how connections stand, for those who watch: captures are made of it.
//! Watching changes nothing of a run, and a run that nobody watches pays a look at an empty place for each packet.

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
    /// A sender took a segment for lost; of connections with a message of their own never.
    Lost {
        /// When the sender did.
        at: Timestamp,
        /// The connection.
        conversation: Conversation,
        /// Number of the segment.
        number: u32,
    },
    /// A sender has sent what it may, and stands so; of connections with a message of their own never.
    State {
        /// The instant.
        at: Timestamp,
        /// The connection.
        conversation: Conversation,
        /// How the sender stands.
        state: TcpState,
    },
}

/// A pair of endpoints that packets go between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// The flow of the network, or the bundle.
    pub owner: Owner,
    /// Tells connections of one flow that live at once apart.
    pub slot: u32,
    /// Tells connections of one slot apart: when they began.
    pub since: Timestamp,
}

/// A packet that leaves its endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// When it was sent.
    pub at: Timestamp,
    /// As [`forebay_core::record::PacketRecord::identity`] has it. Acknowledgements without SACK blocks that repeat
    /// another have that one's.
    pub identity: u64,
    /// The endpoints.
    pub conversation: Conversation,
    /// The sender is the end that receives data, or answers pings, or the receivebox.
    pub is_back: bool,
    /// Bytes on the wire.
    pub bytes: u16,
    /// The ECN field.
    pub ecn: Ecn,
    /// What TCP says; `None` of a datagram.
    pub segment: Option<Segment>,
}

/// A packet that has come to the end of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// When it came.
    pub at: Timestamp,
    /// As [`Sent::identity`].
    pub identity: u64,
}

/// What the header of a segment would say, with the numbers of the simulator, which counts segments of data from 0
/// on and not bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The bits of [`flags`].
    pub flags: u16,
    /// Number of a segment of data.
    pub data: Option<u32>,
    /// Bytes of payload: of a segment of data, or of a request for it.
    pub payload: u16,
    /// The segment of data that the other end is to send next.
    pub acked: Option<u32>,
    /// SACK blocks, from the first number to the one behind the last.
    pub blocks: Vec<[u32; 2]>,
    /// Segments that the receiver has room for from `acked` on; `None` of one whose window never changes.
    pub window: Option<u32>,
    /// When the packet was sent that the segment answers, which its timestamp echoes; `None` of a segment that tells
    /// no such time.
    pub echo: Option<Timestamp>,
}

/// Flags of TCP as they stand in its header (RFC 9293 section 3.1, RFC 3168 section 6.1).
pub mod flags {
    /// The end of what is sent.
    pub const FIN: u16 = 1;
    /// The beginning of what is sent.
    pub const SYN: u16 = 2;
    /// What is sent is whole.
    pub const PSH: u16 = 8;
    /// The acknowledgement number means something.
    pub const ACK: u16 = 16;
    /// Congestion was experienced.
    pub const ECE: u16 = 64;
    /// The window was reduced.
    pub const CWR: u16 = 128;
}

/// What was seen and not yet taken.
#[derive(Default)]
pub(super) struct Tap {
    seen: Vec<Seen>,
    /// By connection: what was lost and not sent again when it was last looked at.
    unrepaired: BTreeMap<u32, Vec<u32>>,
}

impl Simulation {
    /// From now on what endpoints do is kept for [`Simulation::take_seen`]. To be called before the run.
    pub fn watch_endpoints(&mut self) {
        self.tap = Some(Box::default());
    }

    /// What was seen since the last call, in order; nothing without [`Simulation::watch_endpoints`].
    pub fn take_seen(&mut self) -> Vec<Seen> {
        self.tap.as_mut().map_or_else(Vec::new, |tap| std::mem::take(&mut tap.seen))
    }

    /// By value: a packet that is lent out stands in memory where nobody watches, too.
    #[cold]
    pub(super) fn tap_sent(&mut self, packet: Packet) {
        let (kind, flow) = (packet.kind(), packet.flow());
        let connection = is_segment(kind).then(|| &self.connections[flow as usize]);
        let sent = Sent {
            at: self.now,
            identity: packet.identity(),
            conversation: Conversation {
                owner: self.owner(kind, flow),
                // Both ends of a bundle have a number there.
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

    /// Before a sender sends: what it has come to take for lost.
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

    /// When it has sent.
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
        // The sender of a message of its own closes with the last segment.
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

fn is_back(packet: &Packet) -> bool {
    match packet.kind() {
        Kind::SynAck | Kind::Ack | Kind::Fin => true,
        Kind::PeerSyn | Kind::PeerConfirm | Kind::Ask | Kind::Pong => true,
        // The boxes' numbers take turns: see `message_way`.
        Kind::Message => packet.flow() % 2 == 1,
        _ => false,
    }
}
