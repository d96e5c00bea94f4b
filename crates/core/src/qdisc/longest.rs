//! Which flow is the longest: a binary max-heap over all flows with their places known. A change of
//! one length costs O(log flows), and the longest flow is always at the top.
//!
//! Linux' sch_sfq keeps a list per depth instead, O(1) but only for lengths in packets; the heap
//! serves limits in bytes as well.

use alloc::vec::Vec;

pub(super) struct Longest {
    /// Length of each flow.
    lengths: Vec<u64>,
    /// Flows in heap order.
    heap: Vec<u32>,
    /// Place of each flow in `heap`.
    places: Vec<u32>,
}

impl Longest {
    /// `flows` flows of length zero.
    pub fn new(flows: u32) -> Self {
        Self {
            lengths: alloc::vec![0; flows as usize],
            heap: (0..flows).collect(),
            places: (0..flows).collect(),
        }
    }

    /// Sets the length of `flow`.
    pub fn set(&mut self, flow: u32, length: u64) {
        let old = core::mem::replace(&mut self.lengths[flow as usize], length);
        let place = self.places[flow as usize] as usize;
        if length > old {
            self.sift_up(place);
        } else if length < old {
            self.sift_down(place);
        }
    }

    /// The longest flow; among equally long ones `preferred`.
    pub fn get(&self, preferred: u32) -> u32 {
        let longest = self.heap[0];
        if self.lengths[preferred as usize] == self.lengths[longest as usize] {
            preferred
        } else {
            longest
        }
    }

    fn length_at(&self, place: usize) -> u64 {
        self.lengths[self.heap[place] as usize]
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a] as usize] = a as u32;
        self.places[self.heap[b] as usize] = b as u32;
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.length_at(parent) >= self.length_at(place) {
                return;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let left = 2 * place + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let right_is_longer =
                right < self.heap.len() && self.length_at(right) > self.length_at(left);
            let child = if right_is_longer { right } else { left };
            if self.length_at(place) >= self.length_at(child) {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn top_is_as_long_as_a_search_finds(
            changes in prop::collection::vec((0u32..13, 0u64..20), 1..200)
        ) {
            let mut longest = Longest::new(13);
            let mut lengths = [0u64; 13];
            for (flow, length) in changes {
                longest.set(flow, length);
                lengths[flow as usize] = length;
                let max = lengths.into_iter().max().unwrap_or(0);
                prop_assert_eq!(lengths[longest.get(flow) as usize], max);
                if length == max {
                    prop_assert_eq!(longest.get(flow), flow);
                }
            }
        }
    }
}
