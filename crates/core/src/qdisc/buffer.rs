//! One buffer for the queues of many flows: a shared limit, and a way to find the longest flow.
//!
//! Source of the policy: P. McKenney, "Stochastic Fairness Queueing", INFOCOM 1990, section 5
//! ("buffer stealing"): when the buffer is full, the longest queue gives up a packet.

use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::limit::CurrentLimit;
use crate::qdisc::longest::Longest;
use crate::qdisc::marking::Marking;
use crate::qdisc::pool::{Pool, Queue};
use crate::qdisc::{Backlog, DropReason, DropSink};
use crate::units::{Limit, Rate, Timestamp};

/// Which end of the longest queue gives up a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropFrom {
    Head,
    Tail,
}

pub(super) struct Buffer<P> {
    pool: Pool<P>,
    queues: Vec<Queue>,
    /// Lengths in the unit of `limit`: the scarce unit decides which queue is the longest.
    longest: Longest,
    limit: CurrentLimit,
    drop_from: DropFrom,
    marking: Marking,
    backlog: Backlog,
    /// Packets between [`Buffer::detach`] and [`Buffer::reattach`], in no flow.
    detached: Queue,
}

impl<P: Packet> Buffer<P> {
    pub fn new(flows: u32, limit: Limit, drop_from: DropFrom, marking: Marking) -> Self {
        Self {
            pool: Pool::new(),
            queues: alloc::vec![Queue::EMPTY; flows as usize],
            longest: Longest::new(flows),
            limit: CurrentLimit::new(limit),
            drop_from,
            marking,
            backlog: Backlog::default(),
            detached: Queue::EMPTY,
        }
    }

    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.limit.set_rate(rate);
    }

    pub fn flow_backlog(&self, flow: u32) -> Backlog {
        self.queues[flow as usize].backlog()
    }

    pub fn front(&self, flow: u32) -> Option<&P> {
        self.pool.front(&self.queues[flow as usize])
    }

    /// Takes `packet` and drops from the longest flow, which may be `flow`, until the limit holds.
    pub fn push(&mut self, now: Timestamp, flow: u32, packet: P, drops: &mut dyn DropSink<P>) {
        // Every other packet could go and this one would still not fit.
        if self.limit.is_exceeded(Backlog::default().with(packet.len())) {
            return drops.dropped(packet, DropReason::Overlimit);
        }
        self.insert(now, flow, packet);
        while self.limit.is_exceeded(self.backlog) {
            let longest = self.longest.get(flow);
            if !self.drop_one(longest, drops) {
                debug_assert!(false, "the longest flow of a full buffer is empty");
                return;
            }
        }
    }

    /// Drops one packet of `flow`; `false` if it has none.
    pub fn drop_one(&mut self, flow: u32, drops: &mut dyn DropSink<P>) -> bool {
        let queue = &mut self.queues[flow as usize];
        let queued = match self.drop_from {
            DropFrom::Head => self.pool.pop_front(queue),
            DropFrom::Tail => self.pool.pop_back(queue),
        };
        let Some(queued) = queued else { return false };
        self.backlog.remove(queued.packet.len());
        self.update_length(flow);
        drops.dropped(queued.packet, DropReason::Overlimit);
        true
    }

    /// Takes the oldest packet of `flow`, marked if that is due.
    pub fn pop(&mut self, now: Timestamp, flow: u32, drops: &mut dyn DropSink<P>) -> Option<P> {
        let mut queued = self.pool.pop_front(&mut self.queues[flow as usize])?;
        if self.marking.is_on() {
            let is_longest = self.longest.get(flow) == flow;
            self.marking.judge(now, &mut queued, self.backlog, is_longest, drops);
        }
        self.backlog.remove(queued.packet.len());
        self.update_length(flow);
        Some(queued.packet)
    }

    /// Takes all packets of `flow` out, to be given new flows by [`Buffer::reattach`].
    pub fn detach(&mut self, flow: u32) {
        let queue = &mut self.queues[flow as usize];
        self.backlog.packets -= queue.backlog().packets;
        self.backlog.bytes -= queue.backlog().bytes;
        self.pool.append(&mut self.detached, queue);
        self.update_length(flow);
    }

    /// Gives the first detached packet the flow that `flow_of` names and returns that flow. In each
    /// new flow the packets keep the order in which they were detached.
    pub fn reattach(&mut self, flow_of: impl FnOnce(&P) -> u32) -> Option<u32> {
        let queued = self.pool.pop_front(&mut self.detached)?;
        let flow = flow_of(&queued.packet);
        self.insert(queued.enqueued, flow, queued.packet);
        Some(flow)
    }

    fn insert(&mut self, enqueued: Timestamp, flow: u32, packet: P) {
        self.backlog.add(packet.len());
        self.pool.push_back(&mut self.queues[flow as usize], packet, enqueued);
        self.update_length(flow);
    }

    fn update_length(&mut self, flow: u32) {
        let length = self.limit.length(self.queues[flow as usize].backlog());
        self.longest.set(flow, length);
    }
}
