//! The order in which flows are served: first-in-first-out lists of flows, linked by index. A flow
//! is in at most one list of a [`Links`] at a time.

use alloc::vec::Vec;

/// End of a list.
const NIL: u32 = u32::MAX;
/// The flow is in no list.
const UNLISTED: u32 = u32::MAX - 1;

/// Which flow follows which, for all lists over the same flows.
pub(super) struct Links {
    next: Vec<u32>,
}

/// One list over a [`Links`].
#[derive(Clone, Copy)]
pub(super) struct Round {
    head: u32,
    tail: u32,
    len: u32,
}

impl Links {
    pub fn new(flows: u32) -> Self {
        Self { next: alloc::vec![UNLISTED; flows as usize] }
    }

    /// Whether `flow` is in a list.
    pub fn is_listed(&self, flow: u32) -> bool {
        self.next[flow as usize] != UNLISTED
    }
}

impl Round {
    /// A list without flows.
    pub const EMPTY: Self = Self { head: NIL, tail: NIL, len: 0 };

    /// How many flows are in the list.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The flow that has the turn.
    pub fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    /// Appends `flow`, which must be in no list.
    pub fn push_back(&mut self, links: &mut Links, flow: u32) {
        debug_assert!(!links.is_listed(flow));
        links.next[flow as usize] = NIL;
        match self.tail {
            NIL => self.head = flow,
            tail => links.next[tail as usize] = flow,
        }
        self.tail = flow;
        self.len += 1;
    }

    /// Takes the first flow out.
    pub fn pop_front(&mut self, links: &mut Links) -> Option<u32> {
        let flow = self.front()?;
        self.head = core::mem::replace(&mut links.next[flow as usize], UNLISTED);
        if self.head == NIL {
            self.tail = NIL;
        }
        self.len -= 1;
        Some(flow)
    }

    /// Ends the turn of the first flow.
    pub fn rotate(&mut self, links: &mut Links) {
        if let Some(flow) = self.pop_front(links) {
            self.push_back(links, flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_and_move_between_lists() {
        let mut links = Links::new(4);
        let (mut new, mut old) = (Round::EMPTY, Round::EMPTY);
        for flow in [2, 0, 3] {
            new.push_back(&mut links, flow);
        }
        new.rotate(&mut links);
        assert_eq!(new.front(), Some(0));
        let first = new.pop_front(&mut links).unwrap();
        assert!(!links.is_listed(first));
        old.push_back(&mut links, first);
        assert_eq!((old.front(), new.front()), (Some(0), Some(3)));
        assert_eq!((old.len(), new.len()), (1, 2));
        assert_eq!(new.pop_front(&mut links), Some(3));
        assert_eq!(new.pop_front(&mut links), Some(2));
        assert_eq!(new.pop_front(&mut links), None);
        assert!(links.is_listed(0) && !links.is_listed(1));
    }
}
