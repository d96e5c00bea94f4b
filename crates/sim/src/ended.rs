//! Packets that go no further, and the storage to free for them.

use forebay_core::qdisc::{ByReason, DropReason, DropSink};
use forebay_core::record::Fate;

use crate::packet::{Kind, Packet, SackHandle};
use crate::packet_log::PacketLog;

/// Counts and remains of packets that ended at a queue or on a wire.
#[derive(Default)]
pub(crate) struct Ended {
    /// Packets that the qdisc dropped.
    pub dropped: ByReason,
    /// Packets that the qdisc marked; they continue.
    pub marked: ByReason,
    /// The log with their rows, if there is one.
    pub log: Option<PacketLog>,
    /// Packets whose side storage is still to be freed.
    pub orphans: Vec<Packet>,
}

impl Ended {
    /// `packet` goes no further.
    #[inline]
    pub fn add(&mut self, packet: &Packet, fate: Fate) {
        if packet.sack() != SackHandle::NONE || packet.kind() == Kind::Message {
            self.orphans.push(*packet);
        }
        if let Some(log) = &mut self.log {
            log.on_end(packet.queued, fate);
        }
    }
}

impl DropSink<Packet> for Ended {
    #[inline]
    fn dropped(&mut self, packet: Packet, reason: DropReason) {
        self.dropped.add(reason);
        self.add(&packet, Fate::QueueDrop);
    }

    fn marked(&mut self, reason: DropReason) {
        self.marked.add(reason);
    }
}
