//! Cellular downlinks of three carriers, each fitted to one recording of mahimahi (`traces/` of
//! github.com/ravinet/mahimahi, commit of 2016): its longest downlink over LTE. Rates over 100 ms have the recording's
//! distribution and its correlation over time. A recording has no delays: they are Sprout's, as in `lte`.
//!
//! ```text
//! slow   Ornstein-Uhlenbeck process of variance SLOW_SHARE and time constant TAU_S
//! fast   independent every 100 ms, with the rest of the variance
//! rate   quantile of the recording at the share Phi(slow + fast)
//! ```

use alloc::vec::Vec;
use core::f64::consts::SQRT_2;

use super::lte::{delay_ms, normal};
use super::{row, times};
use crate::link::Change;
use crate::random::Streams;
use crate::units::Duration;

/// Distance of rows: the windows in which the recordings were measured.
const STEP: Duration = Duration::from_millis(100);

/// The fit to one recording.
pub(super) struct Carrier {
    /// Share of the windows with at most this rate (Mbit/s); the first is the share without a packet.
    quantiles: [(f64, f64); 9],
    /// Share of the variance that changes slowly: the correlation of windows that follow each other.
    slow_share: f64,
    /// Time constant (s), from the correlations over 1 s, 3 s and 10 s.
    tau_s: f64,
}

/// `ATT-LTE-driving.down`, 786 s.
pub(super) const ATT: Carrier = Carrier {
    quantiles: [
        (0.051, 0.0),
        (0.1, 1.08),
        (0.25, 2.64),
        (0.5, 5.28),
        (0.75, 7.44),
        (0.9, 9.12),
        (0.95, 10.08),
        (0.99, 12.24),
        (1.0, 32.76),
    ],
    slow_share: 0.86,
    tau_s: 17.0,
};
/// `TMobile-LTE-driving.down`, 475 s.
pub(super) const TMOBILE: Carrier = Carrier {
    quantiles: [
        (0.08, 0.0),
        (0.1, 0.36),
        (0.25, 4.92),
        (0.5, 10.08),
        (0.75, 18.12),
        (0.9, 27.0),
        (0.95, 33.0),
        (0.99, 53.88),
        (1.0, 89.16),
    ],
    slow_share: 0.75,
    tau_s: 10.5,
};
/// `Verizon-LTE-short.down`, 140 s.
pub(super) const VERIZON: Carrier = Carrier {
    quantiles: [
        (0.016, 0.0),
        (0.05, 0.72),
        (0.25, 2.4),
        (0.5, 4.32),
        (0.75, 6.84),
        (0.9, 10.32),
        (0.95, 12.24),
        (0.99, 15.84),
        (1.0, 20.64),
    ],
    slow_share: 0.86,
    tau_s: 4.0,
};

impl Carrier {
    pub(super) fn rows(&self, streams: &Streams, length: Duration) -> Vec<Change> {
        let [mut walk, mut blocks] = ["walk", "blocks"].map(|name| streams.stream(name));
        let kept = libm::exp(-STEP.as_secs_f64() / self.tau_s);
        let [slow, fast] = [self.slow_share, 1.0 - self.slow_share].map(libm::sqrt);
        let mut state = normal(&mut walk);
        let next = |at| {
            let sum = slow * state + fast * normal(&mut walk);
            state = kept * state + libm::sqrt(1.0 - kept * kept) * normal(&mut walk);
            let share = 0.5 * libm::erfc(-sum / SQRT_2);
            row(at, self.mbps(share), delay_ms(&mut blocks), 0.0)
        };
        times(STEP, length).map(next).collect()
    }

    /// The rate that this share of the windows does not exceed, between the given ones on a line.
    fn mbps(&self, share: f64) -> f64 {
        let below = self.quantiles.windows(2).find(|pair| share <= pair[1].0);
        let Some([(from, low), (to, high)]) = below.and_then(|pair| pair.first_chunk::<2>()) else {
            return self.most_mbps();
        };
        low + (high - low) * ((share - from) / (to - from)).max(0.0)
    }

    /// Highest rate (Mbit/s).
    pub(super) const fn most_mbps(&self) -> f64 {
        self.quantiles[8].1
    }
}
