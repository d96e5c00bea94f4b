//! Packets that come no further, and what they leave behind.

use forebay_core::qdisc::{DropReason, DropSink};

use crate::packet::{Kind, Packet, SackHandle};
use crate::packet_log::{Fate, PacketLog};

/// What remains of packets that ended at a queue or on a wire.
#[derive(Default)]
pub(crate) struct Ended {
    /// Dropped by the qdisc.
    pub dropped: u64,
    /// Packets that the qdisc marked instead; they go on.
    pub marked: u64,
    /// The log that they stand in, if there is one.
    pub log: Option<PacketLog>,
    /// Those that carried more than themselves: it is to be freed.
    pub orphans: Vec<Packet>,
}

impl Ended {
    /// `packet` comes no further.
    #[inline]
    pub fn add(&mut self, packet: &Packet, fate: Fate) {
        if packet.sack != SackHandle::NONE || packet.kind == Kind::Message {
            self.orphans.push(*packet);
        }
        if let Some(log) = &mut self.log {
            log.on_end(packet.queued, fate);
        }
    }
}

impl DropSink<Packet> for Ended {
    #[inline]
    fn dropped(&mut self, packet: Packet, _reason: DropReason) {
        self.dropped += 1;
        self.add(&packet, Fate::QueueDrop);
    }

    fn marked(&mut self, _reason: DropReason) {
        self.marked += 1;
    }
}
