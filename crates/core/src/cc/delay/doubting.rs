//! A queue that stands: ours, somebody else's, or the round trip of a longer path?
//!
//! A share of what was delivered is withheld, at a constant rate. A window would do the same for a queue that is
//! ours, but beside traffic that takes what is left to it a window gives way ever further. So:
//!
//! ```text
//! the queue goes                           it was ours, or of traffic that does not answer
//! it stays as it is, while more and more   perhaps the path is longer: a drain shows it
//! is withheld
//! it stays                                 somebody else's (see `others`)
//! ```

use super::{DelayControl, DelayLaw, FIRST_LOOPS, Phase};
use crate::cc::drain::{DEEP, noise_s};
use crate::cc::estimators::Path;

/// Rate over what was delivered before: at first, and from some time on (seconds). Where requests arrive whatever
/// the queue is, a share that stayed the same would leave bursts of them a queue for as long as a flow does.
const SHARE: f64 = 0.8;
const SHARE_LEAST: f64 = 0.4;
const FALL_S: f64 = 1.0;
/// Loop times after which a drain counts as tried.
const LOOPS: f64 = 3.0;
/// What is withheld, as time of the bottleneck, and for how many loop times round trips must have stayed the
/// same by then.
const WITHHELD_S: f64 = 5e-3;
const FLAT_LOOPS: f64 = 2.0;

/// A queue that is doubted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Doubt {
    since_s: f64,
    /// What was delivered before (bytes per second).
    before: f64,
    /// The doubt counts as a drain that was tried.
    is_counted: bool,
    /// Least and largest round trip since, and when they were last begun anew (seconds).
    least_s: f64,
    largest_s: f64,
    flat_since_s: f64,
}

impl Doubt {
    /// Rate while it lasts (bytes per second).
    pub(super) fn bytes_per_s(&self, now_s: f64) -> f64 {
        let over = ((now_s - self.since_s) / FALL_S).min(1.0);
        (SHARE - (SHARE - SHARE_LEAST) * over) * self.before
    }
}

impl<L: DelayLaw> DelayControl<L> {
    pub(super) fn start_doubt(&mut self, path: &Path) {
        self.phase = Phase::Doubting(Doubt {
            since_s: self.now_s,
            before: path.recent_bytes_per_s,
            is_counted: false,
            least_s: f64::INFINITY,
            largest_s: 0.0,
            flat_since_s: self.now_s,
        });
        self.queueing_s = 0.0;
        self.reason = "a queue stands: is it ours?";
    }

    pub(super) fn doubt(&mut self, mut doubt: Doubt, path: &Path) {
        let is_ours = path.sent_at_s >= doubt.since_s;
        if is_ours && path.fresh_s < path.target_s {
            self.phase = Phase::Steering;
            self.known_bytes_per_s = path.recent_bytes_per_s;
            self.known_until_s = self.now_s + FIRST_LOOPS * path.loop_s;
            self.set_window(path.recent_bytes_per_s * path.base_s + path.target_bytes / 2.0, path);
            self.reason = "the queue is gone";
            return;
        }
        if !doubt.is_counted && path.sent_at_s >= doubt.since_s + LOOPS * path.loop_s {
            doubt.is_counted = true;
            self.others.on_drain();
        }
        if is_ours {
            let rtt_s = path.base_s + path.fresh_s;
            doubt.least_s = doubt.least_s.min(rtt_s);
            doubt.largest_s = doubt.largest_s.max(rtt_s);
            if doubt.largest_s - doubt.least_s > noise_s(path) {
                (doubt.least_s, doubt.largest_s) = (rtt_s, rtt_s);
                doubt.flat_since_s = self.now_s;
            }
        }
        self.phase = Phase::Doubting(doubt);
        let flat_s = self.now_s - doubt.flat_since_s;
        if flat_s > FLAT_LOOPS * path.loop_s && (1.0 - SHARE) * flat_s > WITHHELD_S {
            self.start_drain(path, DEEP, "a queue that does not move: is the path longer?");
        }
    }
}
