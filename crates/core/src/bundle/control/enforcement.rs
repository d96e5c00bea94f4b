//! From the limits of the law to the rate of the shaper: while reports are missing, while the receivebox's clock is in
//! doubt, and within the bounds of the operator and of the uplink.

use super::{Control, Peer};
use crate::bundle::rate::{LoopState, window_to_rate};
use crate::cc::SendLimits;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Gain of the mean rate a tick: half a second. And what share of it leaves while the clock is in doubt.
const USUAL_GAIN: f64 = 0.01;
const HELD_SHARE: f64 = 0.9;
const HELD_MAX: Duration = Duration::from_millis(1000);

impl Control {
    /// Derives the shaper's rate from the limits of the algorithm.
    pub(super) fn enforce(&mut self, now: Timestamp) {
        self.outstanding.advance(now, self.counters.bytes_sent, self.delivery_rate);
        let limits = self.cc.send_limits();
        self.wanted_rate = if self.is_given_up(now) {
            None
        } else if self.is_report_missing(now) {
            // Of an app-limited bundle the delivery rate says only what its hosts sent.
            let carried = self.bottleneck_rate().unwrap_or(Rate::ZERO).max(self.delivery_rate);
            self.visibility.bound(self.wanted_rate.map(|rate| rate.min(carried)))
        } else {
            let rate = self.limited_rate(&limits);
            let (backlog, in_flight_bytes) = (self.backlog, self.outstanding.bytes);
            let supervised =
                self.supervisor.as_mut().map(|it| it.bound(now, rate, backlog, in_flight_bytes));
            self.visibility.bound(supervised.unwrap_or(rate))
        };
        self.hold_for_the_clock(now);
        self.bound(now);
    }

    /// Brings the rate within the bounds of the operator and below the ceiling. Behind one that others make so
    /// low the bundle has nothing more to send, as far as the law can tell.
    pub(super) fn bound(&mut self, now: Timestamp) {
        let ceiling = self.ceiling.map(|ceiling| ceiling.rate);
        let rates = self.wanted_rate().into_iter().chain(self.config.max_rate).chain(ceiling);
        self.rate = rates.min();
        let is_short = self.ceiling.is_some_and(|ceiling| ceiling.is_short);
        let is_held = is_short && self.rate == ceiling && !self.config.dry_run;
        if is_held != self.idle.is_held {
            self.idle.advance(now);
            self.idle.is_held = is_held;
        }
    }

    /// Nothing is known that a rate could rest on.
    pub(super) fn is_given_up(&self, now: Timestamp) -> bool {
        self.peer == Peer::Silent
            || self.blind.is_some()
            || self.visibility.is_unsteady(now)
            || self.order.is_imbalanced()
    }

    /// While the receivebox's clock may be put on, slewed or drifting, rates and delays seem other than they
    /// are, and a queue that grows with them would hide what the clock does: less than usual leaves, for a
    /// second or until there is no queue.
    fn hold_for_the_clock(&mut self, now: Timestamp) {
        let is_over =
            |at: Timestamp| now.saturating_since(at) > HELD_MAX || !self.feedback.is_queued();
        self.doubted_at = self.doubted_at.filter(|at| !is_over(*at));
        if self.is_clock_doubted() && self.usual_bytes_per_s > 0.0 {
            let held = Rate::from_bytes_per_sec_f64(HELD_SHARE * self.usual_bytes_per_s);
            self.wanted_rate = self.wanted_rate.map(|rate| rate.min(held));
        }
    }

    fn is_clock_doubted(&self) -> bool {
        self.feedback.is_suspect() || self.doubted_at.is_some()
    }

    pub(super) fn update_usual_rate(&mut self) {
        let Some(rate) = self.wanted_rate.filter(|_| !self.is_clock_doubted()) else { return };
        let gain = if self.usual_bytes_per_s > 0.0 { USUAL_GAIN } else { 1.0 };
        self.usual_bytes_per_s += gain * (rate.as_bytes_per_sec_f64() - self.usual_bytes_per_s);
    }

    /// Bytes outstanding, for a rate that is to bring them to `cwnd`. In a dry run no rate does: what
    /// is beyond the window would have waited here, and would take the rate to its floor.
    fn in_flight(&self, cwnd: ByteCount) -> ByteCount {
        let bytes = ByteCount::new(self.outstanding.bytes as u64);
        if self.config.dry_run { bytes.min(cwnd) } else { bytes }
    }

    fn limited_rate(&self, limits: &SendLimits) -> Option<Rate> {
        let from_window = limits.cwnd.and_then(|cwnd| {
            let state = LoopState {
                delivery_rate: self.delivery_rate,
                bottleneck_rate: self.bottleneck_rate()?,
                loop_time: self.loop_time(),
                in_flight: self.in_flight(cwnd),
                app_limited: limits.app_limited.unwrap_or(self.app_limited),
            };
            Some(window_to_rate(cwnd, &state))
        });
        let paced = limits.pacing_rate.map(|rate| {
            // While the law calls the bundle app-limited no rate may bind below what is known. In a dry run the queue
            // still stands that a lower rate would have drained.
            let has_floor = limits.app_limited == Some(true) || self.config.dry_run;
            let floor = self.bottleneck_rate().filter(|_| has_floor);
            rate.max(floor.unwrap_or(Rate::ZERO))
        });
        match (from_window, paced) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}
