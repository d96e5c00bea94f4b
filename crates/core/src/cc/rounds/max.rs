//! The largest value of the last rounds, exactly.

/// Rounds that a maximum may cover: a power of two, so that BPF sees that an index is in bounds.
const ROUNDS_MAX: usize = 16;

/// The largest value of the last `length` rounds, without memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct RoundMax<T> {
    length: u64,
    /// The largest value of each round, at its number modulo [`ROUNDS_MAX`].
    rounds: [(u64, T); ROUNDS_MAX],
    last: u64,
    largest: T,
}

impl<T: Copy + Default + Ord> RoundMax<T> {
    /// Over `length` rounds, 1 to `ROUNDS_MAX`.
    pub fn new(length: u64) -> Self {
        let length = length.clamp(1, ROUNDS_MAX as u64);
        let (rounds, largest) = ([(0, T::default()); ROUNDS_MAX], T::default());
        Self { length, rounds, last: 0, largest }
    }

    /// Adds the value of a sample in `round`; rounds must not decrease.
    pub fn push(&mut self, round: u64, value: T) {
        let slot = &mut self.rounds[round as usize % ROUNDS_MAX];
        let before = if slot.0 == round { slot.1 } else { T::default() };
        *slot = (round, before.max(value));
        if value >= self.largest {
            self.largest = value;
        } else if round != self.last {
            let is_recent = |at: u64| round.wrapping_sub(at) < self.length;
            let recent = self.rounds.iter().filter(|(at, _)| is_recent(*at));
            self.largest = recent.fold(T::default(), |largest, (_, value)| largest.max(*value));
        }
        self.last = round;
    }

    /// The largest value, zero before the first.
    pub fn value(&self) -> T {
        self.largest
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(self.length);
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
        }
    }
}
