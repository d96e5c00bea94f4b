//! Medians with bootstrap intervals.

use forebay_core::random::{Stream, Streams};
use serde::{Deserialize, Serialize};

use crate::metrics::statistics::Sorted;

/// Samples for an interval: with this many, its ends move by less than a tenth of its width from seed to seed.
const RESAMPLES: usize = 10_000;
/// Share of the interval.
const CONFIDENCE: f64 = 0.95;
/// Fewest values with a meaningful interval. For any distribution, the range of six values covers the median
/// with a probability of 1 - 2 / 2^6 = 97 %. The range of five does so with less than 95 %. With fewer values
/// the interval is at most their range, so a bound that it fails excludes every value.
pub const VALUES_MIN: usize = 6;

/// Caption for the edges of an [`Interval`]: their confidence holds from [`VALUES_MIN`] values on.
pub const INTERVAL_WORDS: &str = "95 % interval (with fewer than six seeds: the range)";

/// A median with its 95 % interval, or with the range of fewer than [`VALUES_MIN`] values.
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
    /// The median of `values` and its percentile bootstrap interval (Efron and Tibshirani, An Introduction to
    /// the Bootstrap, 1993, section 13.3). It is the median because a trial that the machine disturbs is far
    /// off and carries no information. With fewer than [`VALUES_MIN`] values: the range. `None` without values.
    pub fn of(values: &[f64], seed: u64) -> Option<Self> {
        let sorted = Sorted::new(values.iter().copied());
        let median = sorted.quantile(0.5)?;
        let (low, high) = (sorted.quantile(0.0)?, sorted.quantile(1.0)?);
        if low == high || values.len() < VALUES_MIN {
            return Some(Self { median, low, high });
        }
        Self::about(median, seed, |random| median_of_resample(values, random))
    }

    /// The median of `new` minus the median of `old`, and its percentile bootstrap interval (same book,
    /// section 16.2, for two samples). With fewer than [`VALUES_MIN`] values on either side: the least and
    /// greatest difference of any two values. `None` if either side has no values.
    pub fn of_difference(old: &[f64], new: &[f64], seed: u64) -> Option<Self> {
        let [before, after] = [old, new].map(|values| Sorted::new(values.iter().copied()));
        let difference = after.quantile(0.5)? - before.quantile(0.5)?;
        if old.len().min(new.len()) < VALUES_MIN {
            let low = after.quantile(0.0)? - before.quantile(1.0)?;
            let high = after.quantile(1.0)? - before.quantile(0.0)?;
            return Some(Self { median: difference, low, high });
        }
        Self::about(difference, seed, |random| {
            median_of_resample(new, random) - median_of_resample(old, random)
        })
    }

    /// The interval of the results of `draw` without their tails.
    fn about(median: f64, seed: u64, mut draw: impl FnMut(&mut Stream) -> f64) -> Option<Self> {
        let mut random = Streams::new(seed).stream("bootstrap");
        let drawn = Sorted::new((0..RESAMPLES).map(|_| draw(&mut random)));
        let tail = (1.0 - CONFIDENCE) / 2.0;
        Some(Self { median, low: drawn.quantile(tail)?, high: drawn.quantile(1.0 - tail)? })
    }
}

/// The median of a resample of `values`: as many values, each drawn from all.
fn median_of_resample(values: &[f64], random: &mut Stream) -> f64 {
    let draw = |_| values[random.below(values.len() as u64) as usize];
    median_of(&mut (0..values.len()).map(draw).collect::<Vec<f64>>())
}

/// Same result as [`Sorted::quantile`] at one half, in place.
fn median_of(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_covers_median_in_95_percent() {
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
        let few = Interval::of_difference(&[1.0, 2.0, 4.0], &[5.0, 6.0, 9.0], 5).unwrap();
        assert_eq!((few.low, few.median, few.high), (1.0, 4.0, 8.0));
    }

    #[test]
    fn even_median_averages_the_middle_two() {
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
        let few = Interval::of(&[5.0, 1.0, 2.0, 3.0, 4.0], 3).unwrap();
        assert_eq!((few.low, few.median, few.high), (1.0, 3.0, 5.0));
        let one = Interval::of(&[0.9], 3).unwrap();
        assert_eq!((one.low, one.median, one.high), (0.9, 0.9, 0.9));
    }
}
