//! Which round trips of a monitor interval are noise: the tolerance of PCC Proteus (section 5 of its paper).
//!
//! ```text
//! interval   |slope| <= error of the regression       slope and deviation count as none, but for:
//! history    slope of the mean round trips of 6 intervals beyond mean +- 2 deviations: not noise
//!            deviation of an interval beyond mean + 4 deviations, and 1 ms:        no noise either
//! ```
//! Mean and deviation are moving averages of what counted as noise, by 1/10 an interval, as in PCC-Uspace.

use alloc::collections::VecDeque;

use super::interval::Outcome;

/// Intervals of the history (PCC-Uspace, kRttHistoryLen). Twice as many find slower rises, twice as late.
const HISTORY: usize = 6;
/// Weight of the newest interval in the averages (kAlpha).
const WEIGHT: f64 = 0.1;
/// Deviations from the average trend that are noise (kInflationToleranceGainHigh). Half as many take more noise for
/// congestion.
const TREND_GAIN: f64 = 2.0;
/// Deviations from the average deviation that are noise.
const DEVIATION_GAIN: f64 = 4.0;
/// Deviation of the round trip that is noise in any case, in seconds.
const DEVIATION_MIN_S: f64 = 1e-3;
/// The averages start again at a trend so many times less than any before (kBeta).
const TREND_SCALE: f64 = 100.0;
/// Trend that counts as none, in seconds an interval.
const TREND_MIN_S: f64 = 1e-12;
/// The average deviation starts again once so great a share of the newest intervals was beyond it
/// (kTrendingResetIntervalRatio).
const RESET_SHARE: f64 = 0.95;

/// Which results of an interval are noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tolerated {
    pub slope: bool,
    pub deviation: bool,
}

/// A moving average and the mean distance to it.
#[derive(Clone, Copy, Debug)]
struct Average {
    mean: f64,
    distance: f64,
}

impl Average {
    fn update(&mut self, value: f64, distance: f64) {
        self.distance += WEIGHT * (libm::fabs(distance) - self.distance);
        self.mean += WEIGHT * (value - self.mean);
    }
}

/// Noise as seen in earlier intervals.
#[derive(Clone, Debug)]
pub struct Noise {
    /// Mean round trips in seconds, the newest last.
    rtts_s: VecDeque<f64>,
    trend: Option<Average>,
    least_trend_s: f64,
    last_trend_s: f64,
    deviation: Option<Average>,
    /// Share of the newest intervals whose deviation was no noise.
    fluctuating: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            rtts_s: VecDeque::with_capacity(HISTORY),
            trend: None,
            least_trend_s: 0.0,
            last_trend_s: 0.0,
            deviation: None,
            fluctuating: 0.0,
        }
    }
}

impl Noise {
    /// `outcome` with slope and deviation at 0 where they are noise.
    pub fn filtered(&mut self, outcome: Outcome) -> Outcome {
        let tolerated = self.judge(&outcome);
        Outcome {
            slope: if tolerated.slope { 0.0 } else { outcome.slope },
            deviation_s: if tolerated.deviation { 0.0 } else { outcome.deviation_s },
            ..outcome
        }
    }

    pub(super) fn judge(&mut self, outcome: &Outcome) -> Tolerated {
        let is_noise = libm::fabs(outcome.slope) <= outcome.slope_error;
        let mut tolerated = Tolerated { slope: is_noise, deviation: is_noise };
        if self.rtts_s.len() == HISTORY {
            self.rtts_s.pop_front();
        }
        self.rtts_s.push_back(outcome.rtt_s);
        if self.rtts_s.len() == HISTORY {
            self.judge_trend(&mut tolerated);
            self.judge_deviation(outcome.deviation_s, &mut tolerated);
        }
        tolerated
    }

    /// Slope of the mean round trips over the numbers of their intervals, in seconds an interval.
    fn trend_s(&self) -> f64 {
        let count = self.rtts_s.len() as f64;
        let middle = (count - 1.0) / 2.0;
        let numbered = || self.rtts_s.iter().enumerate().map(|(at, rtt_s)| (at as f64, rtt_s));
        let both: f64 = numbered().map(|(at, rtt_s)| (at - middle) * rtt_s).sum();
        let square: f64 = numbered().map(|(at, _)| (at - middle) * (at - middle)).sum();
        both / square
    }

    fn judge_trend(&mut self, tolerated: &mut Tolerated) {
        let trend_s = self.trend_s();
        let size_s = libm::fabs(trend_s);
        let least_s = self.least_trend_s;
        match &mut self.trend {
            Some(average) if least_s > TREND_MIN_S && size_s >= least_s / TREND_SCALE => {
                if libm::fabs(trend_s - average.mean) > TREND_GAIN * average.distance {
                    tolerated.slope &= trend_s <= 0.0;
                    tolerated.deviation = false;
                } else {
                    average.update(trend_s, trend_s - self.last_trend_s);
                    self.last_trend_s = trend_s;
                }
                self.least_trend_s = least_s.min(size_s);
            }
            trend => {
                *trend = Some(Average { mean: 0.0, distance: size_s });
                self.least_trend_s = size_s;
                self.last_trend_s = trend_s;
            }
        }
    }

    fn judge_deviation(&mut self, deviation_s: f64, tolerated: &mut Tolerated) {
        self.fluctuating *= 1.0 - WEIGHT;
        let Some(average) = &mut self.deviation else {
            self.deviation = Some(Average { mean: deviation_s, distance: deviation_s / 2.0 });
            return;
        };
        let most_s = average.mean + DEVIATION_GAIN * average.distance;
        if deviation_s > most_s && deviation_s > DEVIATION_MIN_S {
            tolerated.deviation = false;
            self.fluctuating += WEIGHT;
        } else {
            average.update(deviation_s, deviation_s - average.mean);
        }
        if self.fluctuating > RESET_SHARE {
            self.deviation = None;
            self.fluctuating = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn outcome(rtt_ms: f64, deviation_ms: f64, slope: f64, slope_error: f64) -> Outcome {
        let (rtt_s, deviation_s) = (rtt_ms * 1e-3, deviation_ms * 1e-3);
        Outcome { rtt_s, deviation_s, slope, slope_error, ..Outcome::default() }
    }

    /// After 40 intervals with a round trip of 30 ms and up to 0.18 ms more by turns.
    fn noisy() -> Noise {
        let mut noise = Noise::default();
        for number in 0..40 {
            // No period of the history: the trend would be 0 at times, and begin again.
            let rtt_ms = 30.0 + f64::from(number * 3 % 7) * 0.03;
            noise.judge(&outcome(rtt_ms, 0.5, 0.002, 0.01));
        }
        noise
    }

    #[test]
    fn slope_within_its_error_is_noise() {
        let kept = |slope, error| noisy().filtered(outcome(30.1, 0.5, slope, error)).slope;
        assert_eq!([kept(0.005, 0.01), kept(-0.005, 0.01)], [0.0; 2]);
        assert_eq!([kept(0.02, 0.01), kept(-0.02, 0.01)], [0.02, -0.02]);
    }

    #[test]
    fn trend_over_intervals_reveals_small_slopes() {
        let mut noise = noisy();
        let slopes: Vec<f64> = (1..=6)
            .map(|number| 30.0 + f64::from(number))
            .map(|rtt_ms| noise.filtered(outcome(rtt_ms, 0.5, 0.005, 0.01)).slope)
            .collect();
        assert!(slopes[2..].iter().all(|slope| *slope == 0.005), "{slopes:?}");
    }

    #[test]
    fn unusual_deviation_is_no_noise() {
        let deviation = |ms| noisy().filtered(outcome(30.1, ms, 0.001, 0.01)).deviation_s;
        assert_eq!([deviation(0.6), deviation(4.0)], [0.0, 0.004]);
    }
}
