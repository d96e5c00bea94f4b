//! TCP-Illinois (Liu, Başar and Srikant, Performance Evaluation 65(6-7), 2008): loss says whether
//! to reduce, queueing delay how fast to grow and how much to reduce.
//!
//! ```text
//! da     mean round trip of the last one - least           dm   greatest - least
//! alpha  10                                                da <= dm / 100
//!        dm' / (dm' / 10 + da' (1 / 0.3 - 1 / 10))         else; ' less dm / 100: 10 down to 0.3
//! beta   1/8                                               da <= dm / 10
//!        1/2                                               da >= 8 dm / 10, linear between
//! growth alpha segments a window                loss   ssthresh = (1 - beta) cwnd
//! ```
//! alpha and beta are set in each round trip. Below 15 segments they are 1 and 1/2, and so after a
//! timeout until the next round trip. Once da was above dm / 100, alpha returns to 10 only after
//! five round trips below. States else as in [`super::window`].
//!
//! Departures, with reasons:
//! - Least alpha 0.3 and threshold 15 segments (paper: 0.1 and 10): with 0.1 a full queue is left
//!   standing for minutes.
//!
//! Ranges: delays in µs up to 71 minutes, alpha and beta in 1/1024. All in integers.

use alloc::vec::Vec;

use super::window::{MIN_WINDOW_MSS, MinRtt, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::units::{Duration, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "illinois",
    summary: "growth and reduction by queueing delay, direction by loss",
    sources: &["Liu, Başar, Srikant: TCP-Illinois, Performance Evaluation 65(6-7), 2008"],
    params: &[],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Illinois::new())),
};

/// One, of alpha and beta.
pub(super) const ONE: u64 = 1024;
/// Least alpha in 1/[`ONE`]: segments of growth each round trip at the largest delay (paper: 0.3).
const ALPHA_MIN: u64 = ONE * 3 / 10;
/// Largest alpha in 1/[`ONE`]: segments of growth each round trip without a queue (paper: 10).
const ALPHA_MAX: u64 = ONE * 10;
/// Least beta in 1/[`ONE`]: share of the window that a loss takes without a queue (paper: 1/8).
const BETA_MIN: u64 = ONE / 8;
/// Largest beta in 1/[`ONE`]: share of the window that a loss takes with a long queue (paper: 1/2).
const BETA_MAX: u64 = ONE / 2;
/// Window in segments below which alpha and beta are Reno's.
const ADAPTIVE_FROM: u64 = 15;
/// Round trips of low delay before alpha is at its most again (paper, theta).
pub(super) const LOW_DELAY_ROUNDS: u32 = 5;

#[derive(Clone)]
pub(super) struct Illinois {
    /// In which delays are counted, in µs, and the window in segments from which they are heeded.
    pub(super) unit_us: u64,
    pub(super) adaptive_from: u64,
    pub(super) min_rtt: MinRtt,
    max_rtt: Duration,
    /// Of the round trip under way.
    sum_us: u64,
    pub(super) samples: u64,
    round_ends_at: Timestamp,
    /// Instead of the time: where the round ends, in bytes delivered.
    pub(super) round_until: Option<u64>,
    /// Bytes delivered up to the newest measurement, and bytes in flight then.
    pub(super) newest: (u64, u64),
    pub(super) alpha: u64,
    pub(super) beta: u64,
    /// Both as ns-3 has them, and computes in floating point.
    pub(super) exact: (f64, f64),
    /// da has been above dm / 100; round trips below since.
    pub(super) was_above: bool,
    pub(super) low_rounds: u32,
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().min(u128::from(u32::MAX)) as u64
}

/// beta in 1/1024 at a mean and a greatest queueing delay.
fn beta(mean: u64, most: u64) -> u64 {
    let (low, high) = (most / 10, 8 * most / 10);
    if mean <= low {
        BETA_MIN
    } else if mean >= high {
        BETA_MAX
    } else {
        BETA_MIN + (BETA_MAX - BETA_MIN) * (mean - low) / (high - low)
    }
}

impl Illinois {
    pub(super) fn new() -> Self {
        Self {
            unit_us: 1,
            adaptive_from: ADAPTIVE_FROM,
            min_rtt: MinRtt::default(),
            max_rtt: Duration::ZERO,
            sum_us: 0,
            samples: 0,
            round_ends_at: Timestamp::ZERO,
            round_until: None,
            newest: (0, 0),
            alpha: ALPHA_MAX,
            beta: BETA_MAX,
            exact: (10.0, 0.5),
            was_above: false,
            low_rounds: 0,
        }
    }

    /// alpha in 1/1024 at a mean and a greatest queueing delay.
    fn next_alpha(&mut self, mean: u64, most: u64) -> u64 {
        let low = most / 100;
        if mean > low {
            self.was_above = true;
            let (mean, most) = (mean - low, (most - low).max(1));
            return (most * ALPHA_MAX / (most + mean * (ALPHA_MAX - ALPHA_MIN) / ALPHA_MIN))
                .max(ALPHA_MIN);
        }
        if !self.was_above {
            return ALPHA_MAX;
        }
        self.low_rounds += 1;
        if self.low_rounds < LOW_DELAY_ROUNDS {
            return self.alpha;
        }
        self.low_rounds = 0;
        self.was_above = false;
        ALPHA_MAX
    }

    /// alpha and beta at a mean and a greatest queueing delay, after [`Self::next_alpha`].
    fn exactly(&self, mean: f64, most: f64) -> (f64, f64) {
        let [low, d2, d3] = [most / 100.0, most / 10.0, most * 8.0 / 10.0];
        let alpha = if mean > low {
            let (mean, most) = (mean - low, most - low);
            most * 10.0 / (most + mean * (10.0 - 0.3) / 0.3)
        } else if self.alpha == ALPHA_MAX {
            10.0
        } else {
            self.exact.0
        };
        let beta = if mean <= d2 {
            0.125
        } else if mean >= d3 {
            0.5
        } else {
            0.125 + 0.375 * (mean - d2) / (d3 - d2)
        };
        (alpha, beta)
    }

    pub(super) fn end_round(&mut self, window: &Window) {
        if window.segments() < self.adaptive_from {
            (self.alpha, self.beta) = (ONE, BETA_MAX);
        } else if let Some(min_rtt) = self.min_rtt.get().filter(|_| self.samples > 0) {
            let (least, unit) = (micros(min_rtt), self.unit_us);
            let mean = (self.sum_us / self.samples).saturating_sub(least) / unit * unit;
            let most = micros(self.max_rtt).saturating_sub(least) / unit * unit;
            self.alpha = self.next_alpha(mean.min(most), most);
            self.exact = self.exactly(mean as f64, most as f64);
            self.beta = beta(mean.min(most), most);
        }
        (self.sum_us, self.samples) = (0, 0);
    }
}

impl WindowLaw for Illinois {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let Some(rtt) = measurement.rtt else { return };
        self.min_rtt.observe(measurement);
        self.max_rtt = self.max_rtt.max(rtt.latest);
        self.sum_us = self.sum_us.saturating_add(micros(rtt.latest));
        self.samples += 1;
        let in_flight = measurement.in_flight.unwrap_or_default();
        self.newest = (measurement.delivered.as_u64(), in_flight.as_u64());
        if now >= self.round_ends_at && self.round_until.is_none() {
            self.end_round(window);
            self.round_ends_at = now + rtt.latest;
        }
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |_| mss * self.alpha / ONE);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        window.at_loss() * (ONE - self.beta) / ONE
    }

    fn on_rto(&mut self, ssthresh: u64, _window: &Window) -> u64 {
        (self.alpha, self.beta, self.exact) = (ONE, BETA_MAX, (1.0, 0.5));
        (self.was_above, self.low_rounds) = (false, 0);
        (self.sum_us, self.samples) = (0, 0);
        ssthresh
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
        self.max_rtt = if nanos < 0 {
            self.max_rtt.saturating_sub(Duration::from_nanos(nanos.unsigned_abs()))
        } else {
            self.max_rtt.saturating_add(Duration::from_nanos(nanos.unsigned_abs()))
        };
    }

    fn reason(&self) -> &'static str {
        if self.was_above { "queueing delay" } else { "no queueing delay" }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let share = |value: u64| value as f64 / ONE as f64;
        alloc::vec![("alpha", share(self.alpha)), ("beta", share(self.beta))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;
    use crate::cc::window::tests::{Fed, MSS};

    #[test]
    fn alpha_falls_from_ten_with_mean_delay() {
        let mut law = Illinois::new();
        assert_eq!(law.next_alpha(0, 100_000), ALPHA_MAX);
        let at_most = law.next_alpha(100_000, 100_000);
        assert!(at_most.abs_diff(ALPHA_MIN) <= 3, "{at_most}");
        // k1 / (k2 + da) of the paper, with da half of dm.
        let (dm, d1, da) = (100_000.0, 1_000.0, 50_000.0);
        let k1 = (dm - d1) * 0.3 * 10.0 / 9.7;
        let k2 = (dm - d1) * 0.3 / 9.7 - d1;
        let alpha = law.next_alpha(50_000, 100_000) as f64 / ONE as f64;
        assert!((alpha / (k1 / (k2 + da)) - 1.0).abs() < 0.01, "{alpha}");
    }

    #[test]
    fn alpha_returns_after_five_low_delay_round_trips() {
        let mut law = Illinois::new();
        law.alpha = law.next_alpha(50_000, 100_000);
        for _ in 1..LOW_DELAY_ROUNDS {
            assert!(law.next_alpha(0, 100_000) < ONE);
        }
        assert_eq!(law.next_alpha(0, 100_000), ALPHA_MAX);
    }

    #[test]
    fn beta_rises_linearly_from_eighth_to_half() {
        assert_eq!(beta(10_000, 100_000), ONE / 8);
        assert_eq!(beta(45_000, 100_000), (ONE / 8 + ONE / 2) / 2);
        assert_eq!(beta(80_000, 100_000), ONE / 2);
        assert_eq!(beta(0, 0), ONE / 8);
    }

    #[test]
    fn without_queue_loss_takes_eighth_growth_is_ten() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        let rtt = Duration::from_millis(50);
        fed.rtt = Some(RttSample { latest: rtt, min: rtt });
        fed.gap = Duration::from_millis(1);
        fed.ack(30);
        fed.ack(60);
        fed.lose();
        assert_eq!(fed.cwnd(), 100 * MSS / 8 * 7);
        let before = fed.cwnd();
        fed.ack_windows(1);
        let grown = (fed.cwnd() - before) as f64 / MSS as f64;
        assert!((9.0..=10.0).contains(&grown), "{grown}");
    }
}
