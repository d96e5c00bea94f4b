//! The largest delivery rate of the last rounds (draft, section 4.1.1.2), exactly or as ns-3 estimates it.

use alloc::boxed::Box;

use super::BANDWIDTH_ROUNDS;
use crate::cc::rounds::RoundMax;
use crate::units::Rate;

/// The bottleneck rate.
#[derive(Clone, Debug)]
pub(super) enum MaxRate {
    /// The maximum of [`BANDWIDTH_ROUNDS`].
    Exact(Box<RoundMax<Rate>>),
    /// As ns-3 does.
    Estimated(Estimates),
}

impl MaxRate {
    /// Before the first sample.
    pub fn new(is_ns3: bool) -> Self {
        if is_ns3 {
            Self::Estimated(Estimates::default())
        } else {
            Self::Exact(Box::new(RoundMax::new(BANDWIDTH_ROUNDS)))
        }
    }

    /// Adds a sample of `round`; rounds must not decrease.
    pub fn push(&mut self, round: u64, rate: Rate) {
        match self {
            Self::Exact(max) => max.push(round, rate),
            Self::Estimated(estimates) => estimates.push(round, rate),
        }
    }

    /// The largest rate, zero before the first.
    pub fn value(&self) -> Rate {
        match self {
            Self::Exact(max) => max.value(),
            Self::Estimated(Estimates([(_, best), ..])) => *best,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::new(matches!(self, Self::Estimated(_)));
    }
}

/// Kathleen Nichols' estimates of a windowed maximum (ns-3, WindowedFilter; Linux, lib/win_minmax.c): the
/// best rate and its round, then the best rate since, and the best one since then. The best rate is kept for
/// a round more than the window has.
#[derive(Clone, Debug, Default)]
pub(super) struct Estimates([(u64, Rate); 3]);

impl Estimates {
    fn push(&mut self, round: u64, rate: Rate) {
        let new = (round, rate);
        let is_old = |estimate: (u64, Rate), rounds| round - estimate.0 > rounds;
        let [best, second, third] = &mut self.0;
        if rate >= best.1 || is_old(*third, BANDWIDTH_ROUNDS) {
            self.0 = [new; 3];
            return;
        }
        if rate >= second.1 {
            (*second, *third) = (new, new);
        } else if rate >= third.1 {
            *third = new;
        }
        if is_old(*best, BANDWIDTH_ROUNDS) {
            self.0 = [*second, *third, new];
            if is_old(self.0[0], BANDWIDTH_ROUNDS) {
                self.0 = [self.0[1], self.0[2], self.0[2]];
            }
        } else if second.1 == best.1 && is_old(*second, BANDWIDTH_ROUNDS / 4) {
            // Nothing better came in a quarter of the window: the second best is of the second quarter.
            (*second, *third) = (new, new);
        } else if third.1 == second.1 && is_old(*third, BANDWIDTH_ROUNDS / 2) {
            *third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mbit(number: u64) -> Rate {
        Rate::from_mbit_per_sec(number)
    }

    #[test]
    fn ns3_keeps_best_rate_for_eleven_rounds() {
        let mut exact = MaxRate::new(false);
        let mut estimated = MaxRate::new(true);
        let mut push = |round, rate| {
            exact.push(round, rate);
            estimated.push(round, rate);
            [exact.value(), estimated.value()]
        };
        assert_eq!(push(1, mbit(50)), [mbit(50); 2]);
        for round in 2..=10 {
            // Values of the first quarter expire when the second quarter begins.
            assert_eq!(push(round, mbit(40 - round)), [mbit(50); 2], "round {round}");
        }
        assert_eq!(push(11, mbit(10)), [mbit(38), mbit(50)]);
        assert_eq!(push(12, mbit(10)), [mbit(37), mbit(36)]);
    }

    #[test]
    fn only_larger_rates_or_silence_replace_the_maximum() {
        for mut max in [MaxRate::new(false), MaxRate::new(true)] {
            max.push(1, mbit(5));
            max.push(2, mbit(9));
            assert_eq!(max.value(), mbit(9));
            max.push(30, mbit(1));
            assert_eq!(max.value(), mbit(1));
            max.clear();
            assert_eq!(max.value(), Rate::ZERO);
        }
    }
}
