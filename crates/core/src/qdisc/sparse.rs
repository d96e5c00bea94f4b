//! How long the packets of sparse flows wait in a queue, whatever the discipline.
//!
//! A packet counts if its flow had nothing in the queue when it came: a request's first packet, a ping, a
//! packet of a voice call. Queues are ordered for such packets, and in a FIFO they wait for all packets
//! ahead.

use alloc::boxed::Box;

use super::{DropReason, DropSink};
use crate::packet::Packet;
use crate::units::{Duration, Timestamp};

/// Values of the hash that distinguish flows: two flows that share one may hide a packet that would count.
const SLOTS: u64 = 1024;

/// The packets of the flows with one value of the hash.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    packets: u32,
    /// When the packet came that found nothing of its flow, while it waits.
    since: Option<Timestamp>,
}

/// Watches the packets of sparse flows in a queue.
#[derive(Clone, Debug)]
pub struct SparseWait {
    slots: Box<[Slot; SLOTS as usize]>,
    waited: Option<Duration>,
}

impl Default for SparseWait {
    fn default() -> Self {
        Self { slots: Box::new([Slot::default(); SLOTS as usize]), waited: None }
    }
}

impl SparseWait {
    fn slot_of<P: Packet>(&mut self, packet: &P) -> &mut Slot {
        &mut self.slots[(packet.flow_hash(0) % SLOTS) as usize]
    }

    /// `packet` comes into the queue. The call comes before the queue itself takes the packet, which may
    /// drop it.
    pub(super) fn on_enqueue<P: Packet>(&mut self, now: Timestamp, packet: &P) {
        let slot = self.slot_of(packet);
        if slot.packets == 0 {
            slot.since = Some(now);
        }
        slot.packets += 1;
    }

    fn on_drop<P: Packet>(&mut self, packet: &P) {
        let slot = self.slot_of(packet);
        slot.packets = slot.packets.saturating_sub(1);
        slot.since = None;
    }

    /// `packet` leaves the queue.
    pub(super) fn on_departure<P: Packet>(&mut self, now: Timestamp, packet: &P) {
        let slot = self.slot_of(packet);
        slot.packets = slot.packets.saturating_sub(1);
        let since = slot.since.take();
        self.waited = since.map(|since| now.saturating_since(since));
    }

    /// How long the packet waited that left last, if its flow was sparse.
    pub(super) fn take(&mut self) -> Option<Duration> {
        self.waited.take()
    }
}

/// Drops on their way to their sink; the watch sees them first.
pub(super) struct Watched<'a, P> {
    pub(super) sparse: &'a mut SparseWait,
    pub(super) drops: &'a mut dyn DropSink<P>,
}

impl<P: Packet> DropSink<P> for Watched<'_, P> {
    fn dropped(&mut self, packet: P, reason: DropReason) {
        self.sparse.on_drop(&packet);
        self.drops.dropped(packet, reason);
    }

    fn marked(&mut self, reason: DropReason) {
        self.drops.marked(reason);
    }
}
