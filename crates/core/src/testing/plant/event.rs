//! What happens in the plant, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::qdisc::TestPacket;
use crate::bundle::{EpochSize, Report};
use crate::units::Timestamp;

/// A packet between the boxes.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub bundle: usize,
    pub packet: TestPacket,
    pub hash: u64,
}

/// Events carry the bundle and, where there is one, the flow.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Start(usize, usize),
    Cbr(usize, usize),
    Rto(usize, usize, u64),
    Ack(usize, usize, u64),
    Wake(usize, Timestamp),
    Tick(usize),
    AtBottleneck(InFlight),
    Served,
    AtReceivebox(InFlight),
    AtSendbox(usize, Report),
    NoticeAtBottleneck(usize, EpochSize),
    Notice(usize, EpochSize),
    Change(usize),
    Down,
    Silent,
    Up,
    Bin,
}

/// An event in the order of (time, insertion).
struct Scheduled(Timestamp, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Events to come; those of one time come in the order in which they were added.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Scheduled>>,
    added: u64,
}

impl Events {
    pub fn add(&mut self, at: Timestamp, event: Event) {
        self.added += 1;
        self.heap.push(Reverse(Scheduled(at, self.added, event)));
    }

    pub fn pop(&mut self) -> Option<(Timestamp, Event)> {
        self.heap.pop().map(|Reverse(Scheduled(at, _, event))| (at, event))
    }
}
