//! Copa (Arun and Balakrishnan, NSDI 2018) for paths whose queue is measured with noise.
//!
//! ```text
//! target rate   1 / (delta x)                        current rate   W / (base + x)
//! step          W +- v / (2 delta) packets a round trip   1/delta = max(6 packets, 0.75 ms x mu)
//! v             doubles after 3, 5, 7, .. round trips in one direction, back to 1 at a change of it
//!               (of a slow bundle less, see [`super::estimators`])
//! x             least queueing delay of the last 4 samples
//! ```
//! States as in [`super::delay`]. While steering, also v and the direction of the last loop time, up or
//! down.
//!
//! Departures from the paper, with reasons:
//! - delta follows the bottleneck rate: with 2 packets, or any fixed number, 1 ms of noise is a
//!   multiple of the target at hundreds of Mbit/s, and utilisation collapses.
//! - The window is enforced as bytes outstanding and not as 2 W / RTT of pacing (`bundle::rate`).
//! - The standing delay is the least of 4 samples and not of half a round trip: reports of a bundle
//!   are few.
//! - The velocity doubles every second round trip, since its effect is seen two round trips later.
//! - Steps are half of the paper's, and at most an eighth of the window a round trip.
//! - x > 4 x*: W falls at once to the delivered bytes, instead of by steps over seven round trips.
//! - TCP-competitive mode is for a single flow alone, and off by default (`mode_switching`, see
//!   `delay/rival.rs`). A bundle does not need it: its sendbox keeps the limits only while it
//!   measures that they pay.
//!
//! Ranges: W at least 4 segments; v at least 1, doubled to no more than a step of W/8 a round trip takes.
//! Parameters are `flow` and `mode_switching`.

use alloc::boxed::Box;

use super::delay::{DelayControl, DelayLaw, DelayWindow, FLOW, MODE_SWITCHING, Steering};
use super::estimators::Path;
use super::{Algorithm, CongestionControl, Field};
use crate::spec::{Spec, SpecError};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "copa",
    summary: "Copa with a target that follows the bottleneck rate",
    sources: &["Arun, Balakrishnan: Copa, NSDI 2018"],
    params: &[&FLOW, &MODE_SWITCHING],
    needs: &[Field::Rtt, Field::DeliveryRate],
    min_window_mss: MIN_WINDOW_MSS,
    // With one report a round trip, the least of four samples covers four round trips. The window then
    // oscillates more slowly and more widely, and its mean is 5 % higher on a path of 79 packets.
    batch_tolerance: 0.1,
    build: &build,
};

/// Smallest window in segments: below it, loss recovery by duplicate ACKs would stall.
const MIN_WINDOW_MSS: f64 = 4.0;
/// Step per round trip over 1/delta at velocity 1. Queue and window oscillate by the steps of two loop
/// times, the delay of the feedback. Half of the paper's step halves the oscillation.
const STEP: f64 = 0.5;
/// Largest step per round trip over the window: bytes added meanwhile become queue at once.
const GROWTH: f64 = 0.125;
/// Round trips in one direction after which the velocity doubles (paper, section 2.1).
const SAME_DIRECTION: u32 = 3;
/// Round trips from one doubling to the next: the queue that a step makes is seen two loop
/// times later. Doubling sooner overshoots by more than a shallow buffer holds.
const DOUBLING: u32 = 2;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let control = DelayControl::new(Copa::default(), MIN_WINDOW_MSS).with_host(spec)?;
    Ok(Box::new(control.with_mode_switching(spec)?))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Up,
    Down,
}

/// State of the algorithm.
#[derive(Clone, Debug)]
struct Copa {
    velocity: f64,
    /// Direction over the last loop time, and the number of loop times that it has lasted.
    direction: Option<Direction>,
    lasted: u32,
    /// Window at the last comparison, and time since.
    compared_bytes: Option<f64>,
    since_compared_s: f64,
    reason: &'static str,
}

impl Default for Copa {
    fn default() -> Self {
        Self {
            velocity: 1.0,
            direction: None,
            lasted: 0,
            compared_bytes: None,
            since_compared_s: 0.0,
            reason: "",
        }
    }
}

impl Copa {
    /// Once a loop time: has the window kept its direction?
    fn update_velocity(&mut self, path: &Path, window_bytes: f64) {
        self.since_compared_s += path.dt_s;
        let compared = *self.compared_bytes.get_or_insert(window_bytes);
        if self.since_compared_s < path.loop_s {
            return;
        }
        let direction = if window_bytes > compared { Direction::Up } else { Direction::Down };
        if self.direction == Some(direction) {
            self.lasted += 1;
            if self.doubles() {
                let largest = GROWTH * window_bytes / (STEP * path.target_bytes);
                self.velocity = (2.0 * self.velocity).min(largest.max(1.0));
            }
        } else {
            self.velocity = 1.0;
            self.lasted = 1;
        }
        self.direction = Some(direction);
        self.compared_bytes = Some(window_bytes);
        self.since_compared_s = 0.0;
    }

    fn doubles(&self) -> bool {
        self.lasted.checked_sub(SAME_DIRECTION).is_some_and(|more| more.is_multiple_of(DOUBLING))
    }

    fn step(&mut self, path: &Path, window: &DelayWindow) -> f64 {
        let round_trip_s = path.base_s + path.fresh_s;
        let current = window.bytes / round_trip_s;
        // 1 / delta packets per x of delay; with no queue at all any rate is below target.
        let is_below = path.fresh_s.max(0.0) * current <= path.target_bytes;
        let direction = if is_below { Direction::Up } else { Direction::Down };
        if self.direction.is_some_and(|seen| seen != direction) && self.velocity > 1.0 {
            self.velocity = 1.0;
            self.lasted = 0;
        }
        let acked_share = (path.acked_bytes / window.bytes).min(1.0);
        let step = STEP * self.velocity * path.target_bytes * acked_share;
        self.reason = if is_below { "below target rate" } else { "above target rate" };
        if !path.app_limited {
            return if is_below { step } else { -step };
        }
        self.reason = "app-limited";
        self.velocity = 1.0;
        if is_below && path.in_flight_bytes > 0.9 * window.bytes {
            step
        } else if path.standing_s > 2.0 * path.target_s {
            -step
        } else {
            0.0
        }
    }
}

impl DelayLaw for Copa {
    /// Copa finds its share next to another bundle even with a short target.
    const IS_SHORT_ON_SLOW_PATHS: bool = true;

    fn steer(&mut self, path: &Path, window: &DelayWindow) -> Steering {
        let step = self.step(path, window);
        let limit = window.growth_limit_bytes.max(window.bytes);
        let mut window_bytes = (window.bytes + step).min(limit);
        if path.standing_s > 4.0 * path.target_s {
            self.reason = "queue above four targets: window limited to delivered bytes";
            window_bytes = window_bytes.min(window.content_bytes + path.target_bytes);
        }
        window_bytes = window_bytes.max(MIN_WINDOW_MSS * window.mss_bytes);
        self.update_velocity(path, window_bytes);
        Steering { window_bytes, rate_bytes_per_s: None, window_binds: true }
    }

    fn restart(&mut self, _path: &Path) {
        *self = Self::default();
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}
