//! The largest value of the last rounds, exactly.

use alloc::collections::VecDeque;

/// The largest value of the last `length` rounds. It keeps at most one value per round, and only values
/// that can still become the largest. They are in order of time, so values fall from front to back.
#[derive(Clone, Debug)]
pub struct RoundMax<T> {
    length: u64,
    entries: VecDeque<(u64, T)>,
}

impl<T: Copy + Default + Ord> RoundMax<T> {
    /// Over `length` rounds, at least one.
    pub fn new(length: u64) -> Self {
        Self { length: length.max(1), entries: VecDeque::new() }
    }

    /// Adds the value of a sample in `round`; rounds must not decrease.
    pub fn push(&mut self, round: u64, value: T) {
        while self.entries.back().is_some_and(|(_, smaller)| *smaller <= value) {
            self.entries.pop_back();
        }
        // A later and smaller sample of a round that is already here can never become the largest.
        if self.entries.back().is_none_or(|(last, _)| *last != round) {
            self.entries.push_back((round, value));
        }
        while self.entries.front().is_some_and(|(first, _)| round - first >= self.length) {
            self.entries.pop_front();
        }
    }

    /// The largest value, zero before the first.
    pub fn value(&self) -> T {
        self.entries.front().map_or(T::default(), |(_, value)| *value)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn largest_rate_expires_after_its_rounds() {
        let mut filter = RoundMax::new(10);
        filter.push(0, Rate::from_mbit_per_sec(50));
        filter.push(4, Rate::from_mbit_per_sec(30));
        for round in 5..10 {
            filter.push(round, Rate::from_mbit_per_sec(10));
            assert_eq!(filter.value(), Rate::from_mbit_per_sec(50), "round {round}");
        }
        filter.push(10, Rate::from_mbit_per_sec(10));
        assert_eq!(filter.value(), Rate::from_mbit_per_sec(30));
        filter.push(14, Rate::from_mbit_per_sec(5));
        assert_eq!(filter.value(), Rate::from_mbit_per_sec(10));
    }

    #[test]
    fn agrees_with_plain_maximum_in_bounded_memory() {
        let mut filter = RoundMax::new(10);
        let mut all = alloc::vec::Vec::new();
        let mut bits = 1u64;
        for sample in 0..10_000u64 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (round, rate) = (sample / 7, Rate::from_bits_per_sec(bits >> 40));
            all.push((round, rate));
            filter.push(round, rate);
            let recent = all.iter().rev().take_while(|(seen, _)| round - seen < 10);
            assert_eq!(Some(filter.value()), recent.map(|(_, rate)| *rate).max());
            assert!(filter.entries.len() <= 10);
        }
    }
}
