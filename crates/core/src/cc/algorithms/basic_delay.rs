//! `basic_delay`: the delay controller of Nimbus with the bottleneck rate estimated.
//!
//! ```text
//! r = 0.2 S + 0.8 m - 0.5 m (x - x*) / (base + x) + b m
//! m   bottleneck rate: mean delivery rate while a queue stands (x >= x*/4), its maximum otherwise;
//!     below x* divided by the share that is not lost
//! b   probe: 0 while x >= x*/2; after 2 Tl below 0.5 x*/Tl, doubling every Tl, at most 0.125
//! ```
//! S is the rate at which the acknowledged bytes were sent.
//!
//! States as in [`super::delay`]. While steering, the algorithm holds the delay, explores (b > 0) or,
//! above 4 x*, limits the window to the delivered bytes.
//!
//! Departures from the source, with reasons:
//! - The source sets the bottleneck rate to the exact rate of the emulated link. Here a maximum alone
//!   would bias x by 2 (mu/C - 1) round trips: 3 ms at 200 ms for an error of 1 %. While a queue
//!   stands, however, the mean delivery rate equals the bottleneck's rate.
//! - Cross traffic z is taken as 0: z = mu S/R - S makes S an integrator, which oscillates at
//!   100 ms and above.
//! - The target is the absolute x* and not a quarter of the base, which is 12 to 135 packets.
//! - x > 4 x*: a window of the delivered bytes applies as well. In a drain and at the start it applies
//!   alone, since a rate does not empty a long queue in a few round trips.
//!
//! Ranges: windows of 1 segment and more; b 0 to 0.125. `flow` is the only parameter.

use alloc::boxed::Box;

use super::delay::{DelayControl, DelayLaw, DelayWindow, FLOW, Steering};
use super::estimators::Path;
use super::{Algorithm, CongestionControl, Field};
use crate::spec::{Spec, SpecError};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "basic_delay",
    summary: "Nimbus' BasicDelay with the bottleneck rate estimated",
    sources: &[
        "Goyal et al.: Elasticity detection, SIGCOMM 2022, section 4",
        "github.com/ccp-project/nimbus, branch queue-control",
    ],
    params: &[&FLOW],
    needs: &[Field::Rtt, Field::DeliveryRate],
    min_window_mss: 1.0,
    batch_tolerance: 0.05,
    build: &build,
};

/// Share of the way from the send rate to the bottleneck rate in each decision (Nimbus source).
const TOWARDS_BOTTLENECK: f64 = 0.8;
/// Gain on the excess delay, in bottleneck rates (Nimbus source). A larger one drains a queue
/// faster.
const DELAY_GAIN: f64 = 0.5;
/// Largest probe, as for the growth of a window.
const PROBE_MAX: f64 = 0.125;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(Box::new(DelayControl::new(BasicDelay::default(), 1.0).with_host(spec)?))
}

/// State of the algorithm.
#[derive(Clone, Debug, Default)]
struct BasicDelay {
    empty_s: f64,
    hold_s: f64,
    probe: f64,
    reason: &'static str,
}

impl BasicDelay {
    fn update_probe(&mut self, path: &Path) {
        self.hold_s = (self.hold_s - path.dt_s).max(0.0);
        let is_queued = path.standing_s >= path.target_s / 2.0 || path.fresh_s > path.target_s;
        if is_queued || path.app_limited || self.hold_s > 0.0 {
            self.empty_s = 0.0;
            self.probe = 0.0;
            return;
        }
        self.empty_s += path.dt_s;
        if self.empty_s > 2.0 * path.loop_s {
            let first = 0.5 * path.target_s / path.loop_s;
            let grown = self.probe * libm::exp2(path.dt_s / path.loop_s);
            self.probe = grown.max(first).min(PROBE_MAX);
        }
    }
}

impl DelayLaw for BasicDelay {
    fn steer(&mut self, path: &Path, window: &DelayWindow) -> Steering {
        self.update_probe(path);
        let is_queued = path.standing_s >= path.target_s / 4.0;
        let bottleneck =
            if is_queued { path.mean_bytes_per_s } else { path.bottleneck_bytes_per_s };
        let excess = (path.standing_s - path.target_s) / (path.base_s + path.standing_s);
        // The bottleneck's rate counts arrivals. Lost packets have to be sent as well, or else each
        // round trip is slower than the one before. The exception is loss from a full buffer.
        let loss = if path.standing_s < path.target_s { window.loss } else { 0.0 };
        let bottleneck = bottleneck / (1.0 - loss);
        let rate = (1.0 - TOWARDS_BOTTLENECK) * path.send_bytes_per_s
            + bottleneck * (TOWARDS_BOTTLENECK - DELAY_GAIN * excess + self.probe);
        let window_binds = path.standing_s > 4.0 * path.target_s;
        self.reason = if window_binds {
            "queue above four targets: window limited to delivered bytes"
        } else if self.probe > 0.0 {
            "queue empty: exploring"
        } else {
            "holding the delay"
        };
        Steering {
            window_bytes: window.content_bytes + path.target_bytes,
            rate_bytes_per_s: (!window.is_fresh).then_some(rate),
            window_binds,
        }
    }

    fn restart(&mut self, path: &Path) {
        *self = Self { hold_s: 2.0 * path.loop_s, ..Self::default() };
    }

    fn reason(&self) -> &'static str {
        self.reason
    }
}
