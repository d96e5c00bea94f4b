//! `setpoint`: an integral controller that holds the queue at a set point. Our own.
//!
//! ```text
//! e = Q - x R                                  queue missing at the bottleneck, in bytes
//! x > 3 x*                W = min(W, Rmax base + Q/2)
//! x < x*/2 for > 2 Tl     W += (dt / Tl) x boost,  boost = Q/2, doubling every Tl, at most W/8
//! otherwise               W += (dt / Tl) x e / 4
//! ```
//! Stability: W integrates at 0.25 / Tl and acts after tau + RTT + half the standing window, 2 Tl
//! together. That leaves a phase margin of 61 degrees, or 4 Tl of additional delay. The boost finds
//! new capacity: with an empty queue e alone would add a quarter of Q per loop time however large
//! the path. The clamp drains a queue in one round trip after a fall of the capacity.

use alloc::boxed::Box;

use super::delay::{DelayControl, DelayLaw, DelayWindow, FLOW, Steering};
use super::estimators::Path;
use super::{Algorithm, CongestionControl, Field};
use crate::spec::{Spec, SpecError};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "setpoint",
    summary: "holds a queue of 6 packets or 0.75 ms by an integral controller",
    sources: &["this project: cc/setpoint.rs"],
    params: &[&FLOW],
    needs: &[Field::Rtt, Field::DeliveryRate],
    min_window_mss: 1.0,
    batch_tolerance: 0.05,
    build: &build,
};

/// Integral gain per loop time; half of it would be slow, twice it halves the delay margin.
const GAIN: f64 = 0.25;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(Box::new(DelayControl::new(Setpoint::default(), 1.0).with_host(spec)?))
}

/// State of the algorithm.
#[derive(Clone, Debug, Default)]
struct Setpoint {
    /// Time for which the queue has been found empty.
    empty_s: f64,
    /// The boost waits until the queue of a drain can have come back.
    hold_s: f64,
    boost_bytes: f64,
    reason: &'static str,
}

impl Setpoint {
    fn boost(&mut self, path: &Path, window: &DelayWindow) -> f64 {
        let first = path.target_bytes / 2.0;
        let grown = self.boost_bytes * libm::exp2(path.dt_s / path.loop_s);
        self.boost_bytes = grown.clamp(first, (window.bytes / 8.0).max(first));
        self.boost_bytes
    }

    fn step(&mut self, path: &Path, window: &DelayWindow) -> f64 {
        let share = path.dt_s / path.loop_s;
        let error = path.target_bytes - path.standing_s * path.delivery_bytes_per_s;
        if path.app_limited {
            self.empty_s = 0.0;
            self.boost_bytes = 0.0;
            let is_full = path.in_flight_bytes > 0.9 * window.bytes && path.idle < 0.3;
            let may_step = path.standing_s > 2.0 * path.target_s || (error > 0.0 && is_full);
            self.reason = "app-limited";
            return if may_step { share * GAIN * error } else { 0.0 };
        }
        self.hold_s = (self.hold_s - path.dt_s).max(0.0);
        if path.standing_s >= path.target_s / 2.0 {
            self.empty_s = 0.0;
            self.boost_bytes = 0.0;
        } else if self.hold_s == 0.0 {
            self.empty_s += path.dt_s;
        }
        if self.empty_s > 2.0 * path.loop_s {
            self.reason = "queue empty: exploring";
            // The bytes outstanding lag behind the window, and the standing delay behind the queue.
            let is_used = path.in_flight_bytes > 0.85 * window.bytes;
            let is_arriving = path.fresh_s > path.target_s;
            return if is_used && !is_arriving { share * self.boost(path, window) } else { 0.0 };
        }
        self.reason = "holding the queue";
        share * GAIN * error
    }
}

impl DelayLaw for Setpoint {
    fn steer(&mut self, path: &Path, window: &DelayWindow) -> Steering {
        let window_bytes = if path.standing_s > 3.0 * path.target_s {
            self.reason = "queue above three set points: window limited to delivered bytes";
            self.empty_s = 0.0;
            window.bytes.min(window.content_bytes + path.target_bytes / 2.0)
        } else {
            let step = self.step(path, window);
            let limit = window.growth_limit_bytes.max(window.bytes);
            (window.bytes + step).min(limit)
        };
        Steering { window_bytes, rate_bytes_per_s: None, window_binds: true }
    }

    fn restart(&mut self, path: &Path) {
        *self = Self { hold_s: 2.0 * path.loop_s, ..Self::default() };
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}
