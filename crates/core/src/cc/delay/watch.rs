//! Signs that a delay-based algorithm watches apart from the queue: a rate that stays the same, and
//! loss.

use crate::cc::estimators::{Path, SlidingMax, SlidingMin};

/// Shortest time without change after which a rate counts as steady.
pub(super) const STEADY_S: f64 = 1.0;
/// Share of its maximum that a steady rate keeps: small packets and stamps are late.
pub(super) const STEADY_SHARE: f64 = 0.9;
/// Lost share of the window above which loss counts as congestion.
const LOSS_SHARE: f64 = 0.05;

/// Watches for a delivery rate that stays the same, as at a saturated bottleneck.
#[derive(Clone, Debug, Default)]
pub(super) struct Steady {
    least: SlidingMin,
    largest: SlidingMax,
    /// Rates have come without a long pause since, and the last one.
    since_s: f64,
    last_s: f64,
}

impl Steady {
    /// Takes the rate at `now_s`; true once it has stayed within 10 % for a second and 10 loops.
    pub(super) fn on_rate(&mut self, now_s: f64, path: &Path) -> bool {
        let window_s = STEADY_S.max(10.0 * path.loop_s);
        if now_s - self.last_s > window_s / 4.0 {
            self.since_s = now_s;
        }
        self.last_s = now_s;
        self.least.push(now_s, path.delivery_bytes_per_s, window_s, 1);
        self.largest.push(now_s, path.delivery_bytes_per_s, window_s);
        let least = self.least.value().unwrap_or(0.0);
        now_s - self.since_s >= window_s && least >= STEADY_SHARE * self.largest.value()
    }
}

/// Watches for loss that is more than random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossWatch {
    lost_bytes: f64,
    sent_bytes: f64,
    excess_since_s: Option<f64>,
    /// Until when the window does not grow.
    pub(super) no_growth_until_s: f64,
}

impl LossWatch {
    /// Share of the sent bytes that was lost recently, 0 where it is more than random.
    pub(super) fn random_share(&self) -> f64 {
        let is_random = self.lost_bytes > 0.0 && self.lost_bytes <= LOSS_SHARE * self.sent_bytes;
        if is_random { self.lost_bytes / self.sent_bytes } else { 0.0 }
    }

    /// Takes a measurement; true once loss has exceeded the threshold for 1.5 round trips.
    pub(super) fn on_measurement(&mut self, now_s: f64, path: &Path, lost_bytes: f64) -> bool {
        // Both sums forget with a time constant of a loop time: their ratio is the loss share.
        let keep = libm::exp(-path.dt_s / path.loop_s);
        self.lost_bytes = keep * self.lost_bytes + lost_bytes;
        self.sent_bytes = keep * self.sent_bytes + path.acked_bytes + lost_bytes;
        if self.lost_bytes <= LOSS_SHARE * self.sent_bytes {
            self.excess_since_s = None;
            return false;
        }
        let since_s = *self.excess_since_s.get_or_insert(now_s);
        let round_trip_s = path.base_s + path.standing_s;
        if now_s - since_s < 1.5 * round_trip_s {
            return false;
        }
        self.no_growth_until_s = now_s + 4.0 * round_trip_s;
        true
    }
}
