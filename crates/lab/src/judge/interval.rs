//! Medians with bootstrap intervals.

use forebay_core::random::{Stream, Streams};
use serde::{Deserialize, Serialize};

use crate::metrics::statistics::Sorted;

/// Samples drawn for an interval: its ends move by less than a tenth of its width from seed to seed.
const RESAMPLES: usize = 10_000;
/// Share of the interval.
const CONFIDENCE: f64 = 0.95;
/// Fewest values whose interval means what it says. The range of six covers the median with
/// 1 - 2 / 2^6 = 97 %, that of five with less than 95 %, whatever their distribution. That of fewer is their
/// range at most: all of them lie outside a bound that it fails.
pub const VALUES_MIN: usize = 6;

/// A median and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The median of `values` and its percentile bootstrap interval (Efron and Tibshirani, An
    /// Introduction to the Bootstrap, 1993, section 13.3). The median, since a trial that the machine
    /// disturbs is far off and says nothing. `None` without values.
    pub fn of(values: &[f64], seed: u64) -> Option<Self> {
        let sorted = Sorted::new(values.iter().copied());
        let median = sorted.quantile(0.5)?;
        if sorted.quantile(0.0) == sorted.quantile(1.0) {
            return Some(Self { median, low: median, high: median });
        }
        Self::about(median, seed, |random| median_of_resample(values, random))
    }

    /// The median of `new` less that of `old`, and its percentile bootstrap interval (section 16.2 there, of two
    /// samples). `None` where either has no values.
    pub fn of_difference(old: &[f64], new: &[f64], seed: u64) -> Option<Self> {
        let median = |values: &[f64]| Sorted::new(values.iter().copied()).quantile(0.5);
        let difference = median(new)? - median(old)?;
        Self::about(difference, seed, |random| {
            median_of_resample(new, random) - median_of_resample(old, random)
        })
    }

    /// The interval that holds all but the tails of what `draw` draws.
    fn about(median: f64, seed: u64, mut draw: impl FnMut(&mut Stream) -> f64) -> Option<Self> {
        let mut random = Streams::new(seed).stream("bootstrap");
        let drawn = Sorted::new((0..RESAMPLES).map(|_| draw(&mut random)));
        let tail = (1.0 - CONFIDENCE) / 2.0;
        Some(Self { median, low: drawn.quantile(tail)?, high: drawn.quantile(1.0 - tail)? })
    }
}

/// The median of as many of `values` as there are, each drawn from all of them.
fn median_of_resample(values: &[f64], random: &mut Stream) -> f64 {
    let draw = |_| values[random.below(values.len() as u64) as usize];
    median_of(&mut (0..values.len()).map(draw).collect::<Vec<f64>>())
}

/// As [`Sorted::quantile`] of a half, in place.
fn median_of(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_covers_the_median_in_nineteen_of_twenty_cases() {
        let mut random = Streams::new(7).stream("samples");
        let mut covered = 0;
        let cases = 120;
        for case in 0..cases {
            // Symmetric about 1, with heavy tails: a twentieth is disturbed ten times as much.
            let mut value = || {
                let width = if random.chance(0.05) { 0.5 } else { 0.05 };
                1.0 + width * (random.unit() + random.unit() + random.unit() - 1.5)
            };
            let values: Vec<f64> = (0..20).map(|_| value()).collect();
            let interval = Interval::of(&values, case).unwrap();
            assert!(interval.low <= interval.median && interval.median <= interval.high);
            covered += u32::from(interval.low <= 1.0 && 1.0 <= interval.high);
        }
        // 114 expected, with a standard deviation of 2.4.
        assert!((104..120).contains(&covered), "{covered} of {cases}");
    }

    #[test]
    fn a_difference_lies_where_two_samples_say() {
        let old: Vec<f64> = (0..15).map(|step| 10.0 + 0.01 * f64::from(step)).collect();
        let new: Vec<f64> = old.iter().map(|value| value + 1.0).collect();
        let Interval { median, low, high } = Interval::of_difference(&old, &new, 5).unwrap();
        assert!((median - 1.0).abs() < 1e-9 && low < 1.0 && high > 1.0, "{low} to {high}");
        assert!(low > 0.85 && high < 1.15, "{low} to {high}");
        assert_eq!(Interval::of_difference(&old, &[], 5), None);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median_of(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median_of(&mut [9.0, 1.0, 3.0]), 3.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values = [0.97, 0.99, 1.01, 0.95, 1.02, 0.98];
        let interval = Interval::of(&values, 3).unwrap();
        assert_eq!(Interval::of(&values, 3), Some(interval));
        assert!((interval.median - 0.985).abs() < 1e-12);
        assert!(interval.low >= 0.95 && interval.high <= 1.02);
        assert_eq!(Interval::of(&[], 3), None);
        let one = Interval::of(&[0.9], 3).unwrap();
        assert_eq!((one.low, one.median, one.high), (0.9, 0.9, 0.9));
    }
}
