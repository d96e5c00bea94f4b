//! The packets of many queues in one slab: linked by index, so that moving a packet allocates
//! nothing once the slab has grown to the largest backlog seen.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::Backlog;
use crate::units::{ByteCount, Timestamp};

/// No node.
const NIL: u32 = u32::MAX;

struct Node<P> {
    /// `None` while the node is free.
    packet: Option<P>,
    enqueued: Timestamp,
    /// Towards the tail; in a free node the next free one.
    next: u32,
    /// Towards the head.
    previous: u32,
}

/// The slab. A node belongs to one queue or is free.
pub(super) struct Pool<P> {
    nodes: Vec<Node<P>>,
    free: u32,
}

/// One queue in a [`Pool`]. Only ever pass it to the pool that filled it.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    backlog: Backlog,
}

/// A packet on its way out, with the time it came in.
pub(super) struct Queued<P> {
    pub packet: P,
    pub enqueued: Timestamp,
}

impl Queue {
    /// A queue without packets.
    pub const EMPTY: Self =
        Self { head: NIL, tail: NIL, backlog: Backlog { packets: 0, bytes: ByteCount::ZERO } };

    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

impl<P: Packet> Pool<P> {
    pub fn new() -> Self {
        Self { nodes: Vec::new(), free: NIL }
    }

    pub fn push_back(&mut self, queue: &mut Queue, packet: P, enqueued: Timestamp) {
        queue.backlog.packets += 1;
        queue.backlog.bytes += packet.len();
        let node = Node { packet: Some(packet), enqueued, next: NIL, previous: queue.tail };
        let index = if self.free == NIL {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
            index
        };
        match queue.tail {
            NIL => queue.head = index,
            tail => self.nodes[tail as usize].next = index,
        }
        queue.tail = index;
    }

    pub fn pop_front(&mut self, queue: &mut Queue) -> Option<Queued<P>> {
        let index = queue.head;
        let node = self.nodes.get(index as usize)?;
        queue.head = node.next;
        match queue.head {
            NIL => queue.tail = NIL,
            head => self.nodes[head as usize].previous = NIL,
        }
        self.release(queue, index)
    }

    pub fn pop_back(&mut self, queue: &mut Queue) -> Option<Queued<P>> {
        let index = queue.tail;
        let node = self.nodes.get(index as usize)?;
        queue.tail = node.previous;
        match queue.tail {
            NIL => queue.head = NIL,
            tail => self.nodes[tail as usize].next = NIL,
        }
        self.release(queue, index)
    }

    /// The packet that [`Pool::pop_front`] would give.
    pub fn front(&self, queue: &Queue) -> Option<&P> {
        self.nodes.get(queue.head as usize)?.packet.as_ref()
    }

    /// Moves all of `other` behind the tail of `queue`, in constant time.
    pub fn append(&mut self, queue: &mut Queue, other: &mut Queue) {
        if other.is_empty() {
            return;
        }
        match queue.tail {
            NIL => queue.head = other.head,
            tail => {
                self.nodes[tail as usize].next = other.head;
                self.nodes[other.head as usize].previous = tail;
            }
        }
        queue.tail = other.tail;
        queue.backlog.packets += other.backlog.packets;
        queue.backlog.bytes += other.backlog.bytes;
        *other = Queue::EMPTY;
    }

    /// Frees the node `index`, already unlinked from `queue`.
    fn release(&mut self, queue: &mut Queue, index: u32) -> Option<Queued<P>> {
        let node = &mut self.nodes[index as usize];
        let packet = node.packet.take()?;
        node.next = self.free;
        self.free = index;
        queue.backlog.packets -= 1;
        queue.backlog.bytes -= packet.len();
        Some(Queued { packet, enqueued: node.enqueued })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::qdisc::TestPacket;

    fn packet(sequence: u64) -> TestPacket {
        TestPacket { sequence, ..TestPacket::default() }
    }

    fn drain(pool: &mut Pool<TestPacket>, queue: &mut Queue) -> Vec<u64> {
        core::iter::from_fn(|| pool.pop_front(queue)).map(|queued| queued.packet.sequence).collect()
    }

    #[test]
    fn both_ends_pop_in_order_and_reuse_nodes() {
        let mut pool = Pool::new();
        let mut queue = Queue::EMPTY;
        for round in 0..3 {
            for sequence in 0..5 {
                pool.push_back(&mut queue, packet(sequence), Timestamp::from_nanos(round));
            }
            assert_eq!(pool.pop_back(&mut queue).map(|queued| queued.packet.sequence), Some(4));
            assert_eq!(pool.front(&queue).map(|packet| packet.sequence), Some(0));
            assert_eq!(drain(&mut pool, &mut queue), [0, 1, 2, 3]);
            assert!(queue.is_empty() && queue.backlog() == Backlog::default());
        }
        assert_eq!(pool.nodes.len(), 5);
    }

    #[test]
    fn an_appended_queue_follows_the_first_one() {
        let mut pool = Pool::new();
        let (mut first, mut second) = (Queue::EMPTY, Queue::EMPTY);
        for sequence in 0..3 {
            pool.push_back(&mut second, packet(sequence), Timestamp::ZERO);
        }
        pool.append(&mut first, &mut second);
        assert!(second.is_empty());
        pool.push_back(&mut second, packet(3), Timestamp::ZERO);
        pool.append(&mut first, &mut second);
        pool.append(&mut first, &mut second);
        assert_eq!(first.backlog().packets, 4);
        assert_eq!(pool.pop_back(&mut first).map(|queued| queued.packet.sequence), Some(3));
        assert_eq!(drain(&mut pool, &mut first), [0, 1, 2]);
    }
}
