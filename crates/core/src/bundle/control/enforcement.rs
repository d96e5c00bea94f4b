//! Derives the shaper's rate from the algorithm's limits, within the bounds of the operator and of the uplink.
//! Covers missing reports and doubts about the receivebox's clock.

use super::rate::{LoopState, window_to_rate};
use super::{Control, Peer};
use crate::bundle::path::{TICK, View};
use crate::units::{ByteCount, Rate, Timestamp};

impl Control {
    /// Derives the shaper's rate from the limits of the algorithm.
    pub(super) fn enforce(&mut self, now: Timestamp) {
        let view = self.path.view(now);
        self.wanted_rate = if self.is_given_up(now) {
            None
        } else if view.is_report_missing {
            // The delivery rate of an app-limited bundle only shows how much its hosts sent.
            let carried = view.bottleneck_rate.unwrap_or(Rate::ZERO).max(view.delivery_rate);
            self.path.bound(self.wanted_rate.map(|rate| rate.min(carried)))
        } else {
            let rate = self.limited_rate(&view);
            let (backlog, in_flight_bytes) = (view.backlog, view.in_flight_bytes);
            let tuning = &self.config.tuning;
            let supervised = self
                .supervisor
                .as_mut()
                .map(|it| it.bound(tuning, now, rate, backlog, in_flight_bytes));
            self.path.bound(supervised.unwrap_or(rate))
        };
        self.hold_for_the_clock(now);
        self.bound(now);
    }

    /// Applies the operator's bounds and the ceiling to the rate. If the other bundles make the ceiling low,
    /// the algorithm sees the bundle as app-limited.
    pub(super) fn bound(&mut self, now: Timestamp) {
        let ceiling = self.ceiling.map(|ceiling| ceiling.rate);
        let rates = self.wanted_rate().into_iter().chain(self.config.max_rate).chain(ceiling);
        self.rate = rates.min();
        let is_short = self.ceiling.is_some_and(|ceiling| ceiling.is_short);
        let is_held = is_short && self.rate == ceiling && !self.config.dry_run;
        self.path.set_held(now, is_held);
    }

    /// Whether the measurements are too unreliable to set a rate.
    pub(super) fn is_given_up(&self, now: Timestamp) -> bool {
        self.peer == Peer::Silent
            || self.blind.is_some()
            || self.path.is_unsteady(now)
            || self.path.is_imbalanced()
    }

    /// Lowers the rate while the receivebox's clock may step, slew or drift. Rates and delays are then
    /// distorted, and a queue that grows with them would hide the clock's error. The sendbox sends less than
    /// usual until the queue is empty, at most for a third of the time between doubts.
    fn hold_for_the_clock(&mut self, now: Timestamp) {
        let is_over = |at: Timestamp| {
            now.saturating_since(at) > self.config.tuning.pause() || !self.path.is_queued()
        };
        self.doubted_at = self.doubted_at.filter(|at| !is_over(*at));
        if self.is_clock_doubted() && self.usual_bytes_per_s > 0.0 {
            let held = Rate::from_bytes_per_sec_f64(
                (1.0 - self.config.tuning.rates_near) * self.usual_bytes_per_s,
            );
            self.wanted_rate = self.wanted_rate.map(|rate| rate.min(held));
        }
    }

    fn is_clock_doubted(&self) -> bool {
        self.path.is_clock_suspect() || self.doubted_at.is_some()
    }

    pub(super) fn update_usual_rate(&mut self) {
        let Some(rate) = self.wanted_rate.filter(|_| !self.is_clock_doubted()) else { return };
        let time = self.config.tuning.epoch_traffic_time;
        let gain = TICK.as_secs_f64() / time.as_secs_f64();
        let gain = if self.usual_bytes_per_s > 0.0 { gain } else { 1.0 };
        self.usual_bytes_per_s += gain * (rate.as_bytes_per_sec_f64() - self.usual_bytes_per_s);
    }

    /// Bytes outstanding, for the rate that adjusts them to `cwnd`. A dry run enforces no rate: bytes beyond
    /// the window would have waited in the sendbox and would drive the rate to its floor.
    fn in_flight(&self, view: &View, cwnd: ByteCount) -> ByteCount {
        let bytes = ByteCount::new(view.in_flight_bytes as u64);
        if self.config.dry_run { bytes.min(cwnd) } else { bytes }
    }

    fn limited_rate(&self, view: &View) -> Option<Rate> {
        let limits = self.cc.send_limits();
        let from_window = limits.cwnd.and_then(|cwnd| {
            let state = LoopState {
                delivery_rate: view.delivery_rate,
                bottleneck_rate: view.bottleneck_rate?,
                loop_time: view.loop_time,
                in_flight: self.in_flight(view, cwnd),
                app_limited: limits.app_limited.unwrap_or(view.app_limited),
            };
            Some(window_to_rate(&self.config.tuning, cwnd, &state))
        });
        let paced = limits.pacing_rate.map(|rate| {
            // While the algorithm calls the bundle app-limited, no rate may bind below the known bottleneck
            // rate. In a dry run the queue is still there that a lower rate would have drained.
            let has_floor = limits.app_limited == Some(true) || self.config.dry_run;
            let floor = view.bottleneck_rate.filter(|_| has_floor);
            rate.max(floor.unwrap_or(Rate::ZERO))
        });
        match (from_window, paced) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}
