//! Queues of one buffer that take turns by bytes, where a packet may overdraw its queue's turn.
//!
//! ```text
//! queue's turn : allot > 0 -> send one packet; allot -= its bytes
//!                otherwise -> allot += quantum, next queue
//! queue empty  : out of the round, allot forgotten
//! ```
//! Source: Linux net/sched/sch_sfq.c. The size of a packet is not needed before it leaves, unlike in
//! `deficit`.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::DropSink;
use crate::qdisc::buffer::Buffer;
use crate::qdisc::round::{Links, Round};
use crate::units::{ByteCount, Timestamp};

/// The queues of a buffer in one or more rounds, each with the bytes that it may still send.
pub(super) struct Turns<P> {
    pub buffer: Buffer<P>,
    /// Membership of the queues in rounds.
    pub links: Links,
    /// Bytes that each queue may still send in its turn; negative where a packet overdrew it.
    allots: Vec<i64>,
}

impl<P: Packet> Turns<P> {
    /// Over the `queues` queues of an empty `buffer`.
    pub fn new(buffer: Buffer<P>, queues: u32) -> Self {
        Self { buffer, links: Links::new(queues), allots: alloc::vec![0; queues as usize] }
    }

    /// Puts `queue`, which is in no round, at the end of `round`.
    pub fn list(&mut self, round: &mut Round, queue: u32, quantum: ByteCount) {
        round.push_back(&mut self.links, queue);
        self.allots[queue as usize] = quantum.as_u64() as i64;
    }

    /// The next packet of the first queue of `round`, which leaves the round with its last one. `None` where
    /// drops have emptied that queue, or where it has used up its turn, which is then over; `quantum` gives
    /// the bytes of the next turn.
    pub fn serve(
        &mut self,
        now: Timestamp,
        round: &mut Round,
        quantum: impl FnOnce(u32) -> ByteCount,
        drops: &mut dyn DropSink<P>,
    ) -> Option<P> {
        let queue = round.front()?;
        if self.buffer.flow_backlog(queue).packets == 0 {
            round.pop_front(&mut self.links);
            return None;
        }
        let allot = &mut self.allots[queue as usize];
        if *allot <= 0 {
            *allot += quantum(queue).as_u64() as i64;
            round.rotate(&mut self.links);
            return None;
        }
        let packet = self.buffer.pop(now, queue, drops)?;
        *allot -= packet.len().as_u64() as i64;
        if self.buffer.flow_backlog(queue).packets == 0 {
            round.pop_front(&mut self.links);
        }
        Some(packet)
    }
}
