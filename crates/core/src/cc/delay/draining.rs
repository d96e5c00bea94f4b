//! Reasons to doubt the limits, and the conclusions of a drain.

use super::watch::STEADY_S;
use super::{DelayControl, DelayLaw, DelayPhase, FIRST_LOOPS};
use crate::cc::drain::{DEEP, DEEPER, Drain, DrainVerdict, Release, SHALLOW, tolerance_s};
use crate::cc::estimators::Path;
use crate::units::Timestamp;

/// Time between drains, as for BBR's min RTT filter (draft-ietf-ccwg-bbr-06, BBR.MinRTTFilterLen).
const DRAIN_PERIOD_S: f64 = 10.0;
/// Time by which the first and every [`BELOW_BASE_EVERY`]th periodic drain goes below the base
/// (seconds), though no deeper than [`DEEP`]. Bundles that have learnt the same base behind their
/// common queue make up for each other's shallow drains.
const BELOW_BASE_S: f64 = 7.5e-3;
/// Periodic drains from one that goes below the base to the next.
const BELOW_BASE_EVERY: u32 = 4;
/// Deep drains in a row before the verdict is left open until the next period.
const DRAIN_ATTEMPTS: u32 = 3;
/// Shortest standing delay that starts a drain by itself: twice the noise assumed.
const QUEUE_ALARM_S: f64 = 2e-3;

impl<L: DelayLaw> DelayControl<L> {
    /// A base may fall while limits hold, as on a path that has become shorter. It was too high then,
    /// and has fallen only as far as the queue has let it: a drain is due once the rates have
    /// followed.
    fn follow_base(&mut self, path: &Path) {
        if path.base_s < self.drained_base_s - 2.0 * tolerance_s(path) {
            self.drained_base_s = path.base_s;
            let due_s = self.now_s + STEADY_S.max(10.0 * path.loop_s);
            self.next_drain_s = self.next_drain_s.min(due_s);
        }
    }

    pub(super) fn wants_drain(&mut self, path: &Path) -> bool {
        if !self.is_enforced {
            return false;
        }
        self.follow_base(path);
        let alarm_s = QUEUE_ALARM_S.max(4.0 * path.target_s);
        // While more than the window is outstanding, the queue is still on its way out.
        let is_enforced = path.in_flight_bytes < 1.25 * self.window_bytes;
        // Behind a standing queue the delivery rate is the capacity. Where it is less, the capacity
        // has fallen or there is no queue at all.
        let is_contradiction = path.standing_s > 1.5 * path.target_s
            && path.recent_bytes_per_s < 0.9 * path.bottleneck_bytes_per_s
            && !path.app_limited;
        let is_alarming = path.standing_s > alarm_s || is_contradiction;
        if !is_alarming {
            self.queueing_s = 0.0;
        } else if is_enforced {
            self.queueing_s += path.dt_s;
        }
        let patience = if is_contradiction { 2.0 } else { 4.0 };
        // A flow that may compete finds out by itself who makes the queue.
        if self.queueing_s >= patience * path.loop_s && self.rival.is_none() {
            self.start_drain(path, DEEP, "standing queue");
            return true;
        }
        // If the base is too high, a bundle's queue stands at the bottleneck, its own queue is empty
        // and its rate is steady. A bundle that has little to send need not be disturbed.
        if self.now_s >= self.next_drain_s && (self.is_steady || !path.app_limited) {
            let goes_below = self.periodic_drains.is_multiple_of(BELOW_BASE_EVERY);
            let undershoot = if goes_below { BELOW_BASE_S / path.base_s } else { SHALLOW };
            self.periodic_drains += 1;
            self.start_drain(path, undershoot.min(DEEP), "periodic drain");
            return true;
        }
        false
    }

    pub(super) fn start_drain(&mut self, path: &Path, undershoot: f64, reason: &'static str) {
        self.phase =
            DelayPhase::Draining(Drain::new(self.now_s, path, undershoot, self.mss_bytes()));
        self.queueing_s = 0.0;
        self.reason = reason;
    }

    /// Another drain right after `before`, sized by the rate that the first one has left. Drains in a
    /// row go deeper together, below the rate for which the other senders at the bottleneck can make
    /// up.
    fn follow_up(&mut self, before: &Drain, path: &Path, undershoot: f64, reason: &'static str) {
        self.start_drain(path, undershoot, reason);
        if let DelayPhase::Draining(again) = &mut self.phase {
            again.attempt = before.attempt + 1;
        }
    }

    pub(super) fn drain(&mut self, mut drain: Drain, path: &Path, rtt_s: f64) {
        let verdict = drain.on_measurement(self.now_s, path, rtt_s);
        self.phase = DelayPhase::Draining(drain);
        if let Some(verdict) = verdict {
            self.finish_drain(&drain, verdict, path);
        }
    }

    pub(super) fn finish_drain(&mut self, drain: &Drain, verdict: DrainVerdict, path: &Path) {
        self.next_drain_s = self.now_s + self.jittered(DRAIN_PERIOD_S);
        if self.shaped_since_s.is_finite() {
            self.phase = DelayPhase::Steering;
            self.conclude(drain, verdict, path);
        } else {
            self.conclude_probe(drain, verdict, path);
        }
    }

    fn conclude(&mut self, drain: &Drain, verdict: DrainVerdict, path: &Path) {
        self.drained_base_s = path.base_s;
        // A long drain outlasts the memory of the rates before it.
        self.known_bytes_per_s = path.bottleneck_bytes_per_s.max(drain.rate_before);
        self.known_until_s = self.now_s + FIRST_LOOPS * path.loop_s;
        let window_before = self.window_bytes;
        self.set_window(self.content_bytes(path) + path.target_bytes / 2.0, path);
        let longer_s = self.longer_s.take();
        match verdict {
            DrainVerdict::Confirmed(fell_s) if fell_s > tolerance_s(path) => {
                self.drain_again(fell_s, path);
            }
            DrainVerdict::Confirmed(_) => {
                // The window of the algorithm is more accurate than a maximum of noisy rates.
                self.set_window(self.window_bytes.min(window_before), path);
                self.reason = "base round trip confirmed";
            }
            DrainVerdict::Longer(base_s)
                if longer_s.is_some_and(|it| (base_s - it).abs() <= tolerance_s(path)) =>
            {
                self.estimator.set_base_s(base_s);
                self.drained_base_s = base_s;
                self.set_window(drain.rate_before * base_s, path);
                self.next_drain_s = self.now_s + self.jittered(10.0 * path.loop_s);
                self.reason = "base round trip has grown";
            }
            DrainVerdict::Queueing if !drain.is_deep() => {
                self.follow_up(drain, path, DEEP, "base round trip in doubt");
            }
            DrainVerdict::Longer(base_s) if longer_s.is_none() => {
                self.follow_up(drain, path, DEEPER, "testing whether the path is longer");
                self.longer_s = Some(base_s);
            }
            DrainVerdict::Longer(_) | DrainVerdict::Queueing if drain.attempt < DRAIN_ATTEMPTS => {
                self.follow_up(drain, path, DEEP, "queue not drained");
            }
            DrainVerdict::Longer(_) | DrainVerdict::Queueing => {
                self.set_window(drain.rate_before * path.base_s + path.target_bytes / 2.0, path);
                self.reason = "cross traffic keeps a queue";
            }
            DrainVerdict::Unknown => self.reason = "too little traffic during the drain",
        }
    }

    /// A drain before any limit: was a queue standing all the time?
    fn conclude_probe(&mut self, drain: &Drain, verdict: DrainVerdict, path: &Path) {
        self.phase = DelayPhase::Releasing(Release::new(self.now_s, drain.rate_before));
        if let DrainVerdict::Confirmed(fell_s) = verdict
            && fell_s > 3.0 * path.deep_target_s
        {
            self.begin(path.recent_bytes_per_s, path);
            self.drain_again(fell_s, path);
        } else if let DrainVerdict::Confirmed(fell_s) = verdict
            && fell_s <= tolerance_s(path)
        {
            self.confirmed_bytes_per_s = self.confirmed_bytes_per_s.max(drain.rate_before);
        }
    }

    pub(super) fn release(&mut self, mut release: Release, now: Timestamp, path: &Path) {
        let is_over = release.on_measurement(self.now_s, path);
        self.phase = if is_over { DelayPhase::Measuring } else { DelayPhase::Releasing(release) };
        self.measure(now, path);
        if matches!(self.phase, DelayPhase::Releasing(_)) {
            self.reason = "sending the backlog of the probe";
        }
    }

    /// The base has come down, and it is not known how much further it must fall. So the next drain
    /// goes twice as far.
    fn drain_again(&mut self, fell_s: f64, path: &Path) {
        self.start_drain(path, 2.0 * fell_s / path.base_s, "base round trip fell");
    }
}
