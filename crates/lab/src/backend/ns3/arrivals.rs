//! Sequence numbers of ns-3's TCP, and the bytes that have arrived.

use std::collections::BTreeMap;

/// Sequence number of the first data byte; the SYN has 0.
pub const FIRST: u64 = 1;

/// The sequence number nearest to `last` whose low 32 bits are `number`.
pub fn unwrapped(last: u64, number: u64) -> u64 {
    let distance = (number as u32).wrapping_sub(last as u32).cast_signed();
    last.saturating_add_signed(distance.into())
}

/// Bytes that a receiver has.
#[derive(Debug)]
pub struct Arrivals {
    /// First byte that the receiver lacks.
    next: u64,
    /// Ranges beyond `next` that the receiver has: first byte, and the byte after the last.
    above: BTreeMap<u64, u64>,
}

impl Arrivals {
    /// No data yet.
    pub const NONE: Self = Self { next: FIRST, above: BTreeMap::new() };

    /// First byte that the receiver lacks.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Adds the bytes `from..to`; returns how many are new.
    pub fn take(&mut self, from: u64, to: u64) -> u64 {
        let mut new = 0;
        let mut at = from.max(self.next);
        while at < to {
            let covering = self.above.range(..=at).next_back().map(|(_, end)| *end);
            if let Some(end) = covering.filter(|end| *end > at) {
                at = end;
                continue;
            }
            let known = self.above.range(at..).next().map(|(start, _)| *start);
            let end = known.map_or(to, |start| start.min(to));
            self.above.insert(at, end);
            new += end - at;
            at = end;
        }
        while let Some(end) = self.above.remove(&self.next) {
            self.next = end;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_go_on_behind_their_32_bits() {
        assert_eq!(unwrapped(1, 1449), 1449);
        assert_eq!(unwrapped(u64::from(u32::MAX) - 10, 100), (1 << 32) + 100);
        assert_eq!(unwrapped((1 << 32) + 100, u64::from(u32::MAX)), u64::from(u32::MAX));
        assert_eq!(unwrapped(5, u64::from(u32::MAX)), 0);
    }

    #[test]
    fn duplicate_bytes_are_not_new() {
        let mut arrivals = Arrivals::NONE;
        assert_eq!(arrivals.take(11, 21), 10);
        assert_eq!(arrivals.take(16, 26), 5);
        assert_eq!(arrivals.take(11, 26), 0);
        assert_eq!(arrivals.take(1, 31), 10 + 5);
        assert_eq!((arrivals.next, arrivals.above.len()), (31, 0));
        assert_eq!(arrivals.take(5, 9), 0);
    }
}
