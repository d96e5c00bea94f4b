//! Randomness that a run can repeat: one seed, split into independent streams by name.

mod ns3;

use core::hash::Hasher;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use siphasher::sip::SipHasher24;

pub use self::ns3::Ns3Stream;

/// The seed of a run. Each consumer draws from a stream of its own name, so that a new consumer
/// changes no other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    seed: u64,
}

impl Streams {
    /// The streams of the run with this seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The stream `name`, from its beginning.
    pub fn stream(&self, name: &str) -> Stream {
        Stream(Xoshiro256PlusPlus::seed_from_u64(self.derived(name)))
    }

    /// The streams of a part of the run, such as one of several links.
    pub fn part(&self, name: &str) -> Self {
        // Unlike the key of `stream`, so that a part never shares a seed with a stream.
        Self { seed: self.derived(name).rotate_left(32) ^ 1 }
    }

    fn derived(&self, name: &str) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.seed, 0);
        hasher.write(name.as_bytes());
        hasher.finish()
    }
}

/// One stream of random numbers (xoshiro256++, Blackman and Vigna).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream of a seed that no other stream has.
    pub fn seeded(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`, 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// True with probability `probability`. Always draws exactly one number.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform in `0..bound`, 0 for a bound of 0. The bias, below `bound` / 2^64, is accepted.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// As [`Stream::below`], with 64-bit operations alone, which BPF has.
    pub fn below_u32(&mut self, bound: u32) -> u64 {
        let (bits, bound) = (self.bits(), u64::from(bound));
        let lower = ((bits & u64::from(u32::MAX)) * bound) >> 32;
        ((bits >> 32) * bound + lower) >> 32
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// Puts `items` into a uniformly random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last as u64 + 1) as usize;
            items.swap(last, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ_by_name_seed_part() {
        let streams = Streams::new(1);
        let first = |mut stream: Stream| stream.bits();
        assert_eq!(first(streams.stream("loss")), first(Streams::new(1).stream("loss")));
        let mut all = [
            first(streams.stream("loss")),
            first(streams.stream("reorder")),
            first(Streams::new(2).stream("loss")),
            first(streams.part("forward").stream("loss")),
            first(streams.part("reverse").stream("loss")),
            first(streams.part("loss").stream("loss")),
        ];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn small_bounds_draw_the_same_numbers() {
        let (mut one, mut other) = (Stream::seeded(5), Stream::seeded(5));
        for bound in (0..32).map(|shift| u32::MAX >> shift).chain([2, 1_000_000_000]) {
            for _ in 0..1_000 {
                assert_eq!(one.below(bound.into()), other.below_u32(bound));
            }
        }
    }

    #[test]
    fn distributions_have_their_means() {
        let mut stream = Streams::new(3).stream("means");
        let n = 100_000;
        let mean = |sum: f64| sum / f64::from(n);
        // Bounds of five standard errors.
        let unit = mean((0..n).map(|_| stream.unit()).sum());
        assert!((unit - 0.5).abs() < 5.0 * 0.289 / f64::from(n).sqrt(), "{unit}");
        let exponential = mean((0..n).map(|_| stream.exponential()).sum());
        assert!((exponential - 1.0).abs() < 5.0 / f64::from(n).sqrt(), "{exponential}");
        let below = mean((0..n).map(|_| stream.below(10) as f64).sum());
        assert!((below - 4.5).abs() < 5.0 * 2.88 / f64::from(n).sqrt(), "{below}");
        assert_eq!(stream.below(0), 0);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Streams::new(4).stream("shuffle").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
