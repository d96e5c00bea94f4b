//! The boundaries of bundles on a link, and the wait of a packet that entered the link back at that moment.

use std::collections::VecDeque;

/// A boundary packet that passed a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Identity of the packet.
    pub identity: u64,
    /// Pair of sites of the packet.
    pub pair: u16,
    /// The packet's last byte left.
    pub departed_ns: u64,
    /// Released to the far end.
    pub released_ns: u64,
    /// Time in queue and server.
    pub sojourn_ns: u64,
    /// Bytes of the pair that had left, this packet included.
    pub bytes: u64,
    /// Time in queue and server of the first packet that arrived at the link back at or after the release; 0
    /// if there was none, because the link back was idle to the end.
    pub waited_ns: u64,
}

/// Waits of packets on a link by their arrival, as far back as boundaries still need them.
#[derive(Debug, Default)]
pub struct Waits {
    /// Arrival, and the least time in queue and server among packets that arrived at that instant.
    waits: VecDeque<(u64, u64)>,
}

impl Waits {
    /// Adds a packet that passed; calls are in order of arrival.
    pub fn push(&mut self, arrived_ns: u64, sojourn_ns: u64) {
        match self.waits.back_mut() {
            Some((last, least)) if *last == arrived_ns => *least = (*least).min(sojourn_ns),
            Some((last, _)) if *last > arrived_ns => {
                let place = self.waits.partition_point(|(at, _)| *at <= arrived_ns);
                self.waits.insert(place, (arrived_ns, sojourn_ns));
            }
            _ => self.waits.push_back((arrived_ns, sojourn_ns)),
        }
    }

    /// Wait of the first packet that arrived at or after `at`; `None` if none has arrived yet.
    pub fn after(&self, at: u64) -> Option<u64> {
        let next = self.waits.partition_point(|(arrived, _)| *arrived < at);
        self.waits.get(next).map(|(_, sojourn)| *sojourn)
    }

    /// Whether later packets cannot change the result of [`Waits::after`] for `at`.
    pub fn is_known(&self, at: u64) -> bool {
        let next = self.waits.partition_point(|(arrived, _)| *arrived < at);
        self.waits.len() > next + 1
    }

    /// Drops waits before `at`, which no caller needs any more.
    pub fn forget_before(&mut self, at: u64) {
        while self.waits.pop_front_if(|(arrived, _)| *arrived < at).is_some() {}
    }

    /// Number of waits in memory.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.waits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_arrival_answers_with_least_of_ties() {
        let mut waits = Waits::default();
        assert_eq!((waits.after(0), waits.is_known(0)), (None, false));
        for (arrived, sojourn) in [(10, 5), (20, 9), (20, 7), (20, 8)] {
            waits.push(arrived, sojourn);
        }
        assert_eq!(
            [0, 10, 11, 20, 21].map(|at| waits.after(at)),
            [Some(5), Some(5), Some(7), Some(7), None]
        );
        // Another may still arrive at 20.
        assert_eq!([10, 11].map(|at| waits.is_known(at)), [true, false]);
        waits.push(30, 1);
        assert!(waits.is_known(20) && !waits.is_known(30));
        waits.forget_before(20);
        assert_eq!((waits.len(), waits.after(15)), (2, Some(7)));
    }
}
