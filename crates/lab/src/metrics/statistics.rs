//! Quantiles and means.
//!
//! Quantiles of samples interpolate linearly between the closest ranks (type 7 of Hyndman and Fan 1996, the
//! default of R and NumPy). A quantile over time is the smallest value that the number does not exceed for at
//! least the given share of the time.

/// Samples in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// Sorts `samples`; leaves out NaN.
    pub fn new(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().filter(|sample| !sample.is_nan()).collect();
        samples.sort_unstable_by(f64::total_cmp);
        Self(samples)
    }

    /// The samples.
    pub fn samples(&self) -> &[f64] {
        &self.0
    }

    /// The `share` quantile, 0 to 1; `None` without samples.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        let rank = share.clamp(0.0, 1.0) * last as f64;
        let below = self.0[rank.floor() as usize];
        let above = self.0[rank.ceil() as usize];
        // There is no value between two samples if one is infinite.
        let is_at_rank = rank.fract() == 0.0 || below == above || below.is_infinite();
        Some(if is_at_rank { below } else { below + (above - below) * rank.fract() })
    }

    /// The arithmetic mean; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        mean(self.0.iter().copied())
    }

    /// The geometric mean of positive samples; `None` without samples or with one not above zero.
    pub fn geometric_mean(&self) -> Option<f64> {
        match self.0.first() {
            Some(least) if *least > 0.0 => {
                Some(mean(self.0.iter().map(|sample| sample.ln()))?.exp())
            }
            _ => None,
        }
    }
}

/// The arithmetic mean; `None` without samples.
pub fn mean(samples: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = samples.fold((0.0, 0_u64), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// `part / whole`; `None` if there is no whole.
pub fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Standard deviation over mean; `None` without samples or with a mean of 0.
pub fn cov(samples: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let middle = mean(samples.clone())?;
    let variance = mean(samples.map(|sample| (sample - middle).powi(2)))?;
    share(variance.sqrt(), middle)
}

/// Jain's index of `shares`, 1 / n to 1; `None` if all shares are 0.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|it| it.powi(2)).sum();
    share(sum * sum, squares * shares.len() as f64)
}

/// Change from each sample to the next, for samples at equal distances: the median of the slopes between any
/// two (Theil 1950, Sen 1968). `None` with fewer than two. The cost grows with the square of their number.
pub fn slope(samples: &[f64]) -> Option<f64> {
    let slopes = samples.iter().enumerate().flat_map(|(later, to)| {
        samples[..later]
            .iter()
            .enumerate()
            .map(move |(first, from)| (to - from) / (later - first) as f64)
    });
    Sorted::new(slopes).quantile(0.5)
}

/// A number that holds from each step to the next.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Time (ns) and the value from then on, in order of time; 0 before the first.
    steps: Vec<(u64, u32)>,
}

impl Timeline {
    /// A timeline from steps in order of time.
    pub fn new(steps: Vec<(u64, u32)>) -> Self {
        debug_assert!(steps.is_sorted_by_key(|(at, _)| *at));
        Self { steps }
    }

    /// Time (ns) spent at each value in `from..to`, ascending by value.
    fn times(&self, from: u64, to: u64) -> Vec<(u32, u64)> {
        let mut spent: std::collections::BTreeMap<u32, u64> = Default::default();
        let mut at = from;
        let first = self.steps.partition_point(|(at, _)| *at <= from);
        let mut value = first.checked_sub(1).map_or(0, |last| self.steps[last].1);
        for (next, next_value) in &self.steps[first..] {
            if *next >= to {
                break;
            }
            *spent.entry(value).or_default() += next - at;
            (at, value) = (*next, *next_value);
        }
        *spent.entry(value).or_default() += to.saturating_sub(at);
        spent.into_iter().collect()
    }

    /// Mean over the time `from..to`.
    pub fn mean(&self, from: u64, to: u64) -> Option<f64> {
        let times = self.times(from, to);
        let area: f64 = times.iter().map(|(value, time)| f64::from(*value) * *time as f64).sum();
        share(area, to.saturating_sub(from) as f64)
    }

    /// The `share` quantile over the time `from..to`.
    pub fn quantile(&self, from: u64, to: u64, share: f64) -> Option<f64> {
        let needed = share * to.checked_sub(from).filter(|time| *time > 0)? as f64;
        let mut passed = 0.0;
        let times = self.times(from, to);
        let found = times.iter().find(|(_, time)| {
            passed += *time as f64;
            passed >= needed
        });
        found.or(times.last()).map(|(value, _)| f64::from(*value))
    }

    /// The largest value in `from..to`.
    pub fn max(&self, from: u64, to: u64) -> Option<f64> {
        self.times(from, to).last().map(|(value, _)| f64::from(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_between_the_closest_ranks() {
        let sorted = Sorted::new([4.0, 1.0, 3.0, 2.0, f64::NAN]);
        assert_eq!(sorted.quantile(0.5), Some(2.5));
        assert_eq!(sorted.quantile(0.0), Some(1.0));
        assert_eq!(sorted.quantile(1.0), Some(4.0));
        // Rank 0.9 x 3 = 2.7: 3 + 0.7 x (4 - 3).
        assert!((sorted.quantile(0.9).unwrap() - 3.7).abs() < 1e-12);
        assert_eq!(Sorted::new([]).quantile(0.5), None);
        let endless = Sorted::new([1.0, f64::INFINITY, f64::INFINITY]);
        let quantiles = [0.0, 0.25, 0.5, 0.75].map(|share| endless.quantile(share).unwrap());
        assert_eq!(quantiles, [1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]);
    }

    #[test]
    fn geometric_mean_of_2_and_8_is_4() {
        assert!((Sorted::new([2.0, 8.0]).geometric_mean().unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(Sorted::new([0.0, 8.0]).geometric_mean(), None);
    }

    #[test]
    fn jain_index_lies_between_one_nth_and_one() {
        assert_eq!(jain(&[2.0; 4]), Some(1.0));
        assert_eq!(jain(&[3.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn cov_of_2_and_4_is_one_third() {
        assert_eq!(cov([2.0, 4.0].into_iter()), Some(1.0 / 3.0));
        assert_eq!(cov([0.0; 3].into_iter()), None);
    }

    #[test]
    fn one_outlier_does_not_turn_a_slope() {
        assert_eq!(slope(&[1.0, 3.0, 5.0, 700.0, 9.0, 11.0, 13.0]), Some(2.0));
        assert_eq!(slope(&[1.0]), None);
    }

    #[test]
    fn a_timeline_weighs_by_time() {
        // 0 until 10, 4 until 30, 1 from then on.
        let line = Timeline::new(vec![(10, 4), (30, 1)]);
        assert_eq!(line.mean(0, 40), Some((20.0 * 4.0 + 10.0) / 40.0));
        assert_eq!(line.mean(20, 30), Some(4.0));
        assert_eq!(line.mean(35, 45), Some(1.0));
        assert_eq!(line.quantile(0, 40, 0.5), Some(1.0));
        assert_eq!(line.quantile(0, 40, 0.51), Some(4.0));
        assert_eq!(line.max(0, 40), Some(4.0));
        assert_eq!(line.max(0, 10), Some(0.0));
        assert_eq!(line.mean(5, 5), None);
    }
}
