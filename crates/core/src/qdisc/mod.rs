//! Queueing disciplines: what the sendbox schedules with and the emulated bottleneck queues in.

use alloc::boxed::Box;

use crate::packet::Packet;
use crate::units::{ByteCount, Timestamp};

/// Why a queue gave up a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The queue was at its limit.
    Overlimit,
    /// CoDel's control law (RFC 8289 section 5).
    Codel,
    /// An active queue management other than CoDel.
    Early,
}

/// Takes the packets that a qdisc drops, so that every host counts them the same way.
pub trait DropSink<P> {
    /// `packet` left the queue unsent.
    fn dropped(&mut self, packet: P, reason: DropReason);
}

/// What stands in a queue, children included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: ByteCount,
}

/// A queueing discipline. It stores enqueue times itself and allocates nothing per packet once warm.
pub trait Qdisc<P: Packet> {
    /// Takes `packet`; what does not fit, this packet or another, goes to `drops`.
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>);
    /// The next packet to send. May drop and still return `None`.
    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P>;
    /// The earliest useful next `dequeue`; `None`: only after an `enqueue`.
    /// A work-conserving qdisc with a backlog answers a time that has passed.
    fn next_timer(&self) -> Option<Timestamp>;
    /// What stands in the queue, recursively.
    fn backlog(&self) -> Backlog;
}

impl<P: Packet> Qdisc<P> for Box<dyn Qdisc<P> + Send> {
    fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        (**self).enqueue(now, packet, drops);
    }
    fn dequeue(&mut self, now: Timestamp, drops: &mut dyn DropSink<P>) -> Option<P> {
        (**self).dequeue(now, drops)
    }
    fn next_timer(&self) -> Option<Timestamp> {
        (**self).next_timer()
    }
    fn backlog(&self) -> Backlog {
        (**self).backlog()
    }
}
