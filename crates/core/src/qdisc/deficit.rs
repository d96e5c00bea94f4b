//! Queues of one buffer that take turns by deficit round robin.
//!
//! ```text
//! queue's turn : head <= deficit -> send it; deficit -= its bytes
//!                otherwise       -> deficit += quantum, next queue
//! queue empty  : out of the round, deficit forgotten
//! ```
//! Source: M. Shreedhar and G. Varghese, "Efficient Fair Queuing using Deficit Round Robin", IEEE/ACM
//! Transactions on Networking 4(3), 1996, section III. If the quantum is at least the largest packet, work is
//! O(1) a packet.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::buffer::Buffer;
use crate::qdisc::round::{Links, Round};
use crate::qdisc::{Backlog, DropSink};
use crate::units::{ByteCount, Rate, Timestamp};

/// The queues of a buffer with their deficits.
pub(super) struct DeficitRound<P> {
    buffer: Buffer<P>,
    links: Links,
    round: Round,
    deficits: Vec<ByteCount>,
}

impl<P: Packet> DeficitRound<P> {
    /// Takes turns over the `queues` queues of an empty `buffer`.
    pub fn new(buffer: Buffer<P>, queues: u32) -> Self {
        let (links, deficits) = (Links::new(queues), alloc::vec![ByteCount::ZERO; queues as usize]);
        Self { buffer, links, round: Round::EMPTY, deficits }
    }

    pub fn backlog(&self) -> Backlog {
        self.buffer.backlog()
    }

    /// Queues that take turns.
    pub fn flows(&self) -> u32 {
        self.round.len()
    }

    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.buffer.set_rate(rate);
    }

    /// Whether `queue` is in the round.
    pub fn is_listed(&self, queue: u32) -> bool {
        self.links.is_listed(queue)
    }

    /// Takes `packet` into `queue`, which begins with its `quantum` if it was empty. Packets above the limit
    /// are dropped from the longest queue.
    pub fn push(
        &mut self,
        now: Timestamp,
        queue: u32,
        quantum: impl FnOnce(u32) -> ByteCount,
        packet: P,
        drops: &mut dyn DropSink<P>,
    ) {
        self.buffer.push(now, queue, packet, drops);
        if self.buffer.flow_backlog(queue).packets > 0 && !self.links.is_listed(queue) {
            self.round.push_back(&mut self.links, queue);
            self.deficits[queue as usize] = quantum(queue);
        }
    }

    /// The next packet; `quantum` gives the bytes that a queue may send a round.
    pub fn pop(
        &mut self,
        now: Timestamp,
        quantum: impl Fn(u32) -> ByteCount,
        drops: &mut dyn DropSink<P>,
    ) -> Option<P> {
        loop {
            let queue = self.round.front()?;
            let deficit = &mut self.deficits[queue as usize];
            let Some(len) = self.buffer.front(queue).map(Packet::len) else {
                self.round.pop_front(&mut self.links);
                continue;
            };
            if len <= *deficit {
                *deficit -= len;
                let packet = self.buffer.pop(now, queue, drops);
                if self.buffer.flow_backlog(queue).packets == 0 {
                    self.round.pop_front(&mut self.links);
                }
                return packet;
            }
            *deficit += quantum(queue);
            self.round.rotate(&mut self.links);
        }
    }
}
