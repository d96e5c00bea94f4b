//! The cycle of probe_bw: volumes below, at and above the path's capacity (draft, section 5.3.3).

use super::loss::is_too_high;
use super::{Bbr3, Bbr3Phase, UNBOUNDED, times};
use crate::units::{ByteCount, Duration, Timestamp};

/// Rounds after which a flow probes at the latest: Reno needs n rounds to fill a path of n segments.
const RENO_ROUNDS: u64 = 63;
/// Shortest time between probes (BBR draft, section 5.3.3.8.2).
const WAIT: Duration = Duration::from_secs(2);
/// Random time from 0 to this value is added to [`WAIT`], so flows do not probe together (BBR
/// draft, section 5.3.3.8.2).
const WAIT_DRAWN: Duration = Duration::from_secs(1);
/// Rounds in which the growth of the bound doubles.
const UP_ROUNDS_MAX: u32 = 30;

/// State of the cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    began_at: Timestamp,
    wait: Duration,
    pub rounds_since: u64,
    /// Rounds over which the bound has grown in this probe.
    up_rounds: u32,
    /// Bytes acknowledged since the bound grew, and the bytes that make it grow by a segment.
    up_acked: ByteCount,
    acked_per_segment: ByteCount,
    /// Samples belong to a probe that has not lost too much (BBR.is_bw_probe_sample).
    pub is_sampling: bool,
    /// Probing has stopped, and the packets of the probe are not acknowledged yet (ACKS_PROBE_STOPPING).
    pub is_stopping: bool,
    /// The last probe lost too much (BBR.prev_probe_too_high).
    pub was_too_high: bool,
    /// The last probe ended before it could lose anything (BBR.prev_probe_precautionary).
    was_precautionary: bool,
}

impl Default for Probing {
    fn default() -> Self {
        Self {
            began_at: Timestamp::ZERO,
            wait: Duration::ZERO,
            rounds_since: 0,
            up_rounds: 0,
            up_acked: ByteCount::ZERO,
            acked_per_segment: UNBOUNDED,
            is_sampling: false,
            is_stopping: false,
            was_too_high: false,
            was_precautionary: false,
        }
    }
}

impl Bbr3 {
    pub(super) fn update_cycle(&mut self, now: Timestamp) {
        if !self.full_pipe.has_been {
            return;
        }
        if self.probing.is_stopping && self.is_round_start && self.end_feedback() {
            return;
        }
        self.raise_longterm();
        match self.phase {
            Bbr3Phase::Down if self.is_time_to_probe(now) => self.start_refill("time to probe"),
            Bbr3Phase::Down if self.is_time_to_cruise() => self.start_cruise(),
            Bbr3Phase::Cruise if self.is_time_to_probe(now) => self.start_refill("time to probe"),
            Bbr3Phase::Refill if self.is_round_start => self.start_up(),
            Bbr3Phase::Up => self.check_up_done(now),
            _ => {}
        }
    }

    /// All of the last probe has been answered. True if the next one begins.
    fn end_feedback(&mut self) -> bool {
        (self.probing.is_sampling, self.probing.is_stopping) = (false, false);
        if !self.phase.is_probe_bw() {
            return false;
        }
        self.cycle_count += u64::from(!self.sample.is_app_limited);
        let is_safe = self.probing.was_precautionary && !self.probing.was_too_high;
        if is_safe {
            self.start_refill("the last probe lost little");
        }
        is_safe
    }

    /// Raises the long-term bound to a volume that was in flight without too much loss.
    fn raise_longterm(&mut self) {
        let flight = self.sample.flight;
        if is_too_high(flight) || self.inflight_longterm == UNBOUNDED {
            return;
        }
        self.inflight_longterm = self.inflight_longterm.max(flight.in_flight);
        if self.phase == Bbr3Phase::Up {
            self.probe_longterm_upward();
        }
    }

    fn is_bound_by_longterm(&self) -> bool {
        self.is_cwnd_limited && self.cwnd >= self.inflight_longterm
    }

    fn probe_longterm_upward(&mut self) {
        if !self.is_bound_by_longterm() {
            return;
        }
        let per_segment = self.probing.acked_per_segment.as_u64().max(1);
        let acked = (self.probing.up_acked + self.sample.newly_acked).as_u64();
        self.inflight_longterm += times(self.mss, acked / per_segment);
        self.probing.up_acked = ByteCount::new(acked % per_segment);
        if self.is_round_start {
            self.double_growth();
        }
    }

    /// Doubles the segments by which the bound grows in each round.
    fn double_growth(&mut self) {
        let segments = 1 << self.probing.up_rounds;
        self.probing.up_rounds = (self.probing.up_rounds + 1).min(UP_ROUNDS_MAX);
        self.probing.acked_per_segment =
            ByteCount::new(self.cwnd.as_u64() / segments).max(self.mss);
    }

    fn is_time_to_probe(&self, now: Timestamp) -> bool {
        let reno_rounds = self.target_inflight().as_u64() / self.mss.as_u64().max(1);
        now > self.probing.began_at + self.probing.wait
            || self.probing.rounds_since >= reno_rounds.min(RENO_ROUNDS)
    }

    fn is_time_to_cruise(&self) -> bool {
        let drained = self.inflight(self.max_bw.value());
        self.in_flight <= self.inflight_with_headroom().min(drained)
    }

    fn check_up_done(&mut self, now: Timestamp) {
        let in_flight = self.in_flight_before() + self.mss;
        if self.probing.was_too_high && in_flight > self.inflight_longterm {
            self.probing.was_precautionary = true;
            self.probing.was_too_high = false;
            self.start_down(now, "in flight above the bound of the last loss");
        } else if self.is_bound_by_longterm() {
            // The rate cannot show that the pipe is full.
            self.full_pipe.restart(self.sample.rate);
        } else if self.full_pipe.is_now {
            self.probing.was_too_high = false;
            self.start_down(now, "rate no longer grows");
        }
    }

    pub(super) fn start_down(&mut self, now: Timestamp, reason: &'static str) {
        self.congestion.forget_signals();
        self.probing.acked_per_segment = UNBOUNDED;
        self.probing.rounds_since = self.draws.below_u32(2);
        let drawn = self.draws.below_u32(WAIT_DRAWN.as_nanos() as u32);
        self.probing.wait = WAIT + Duration::from_nanos(drawn);
        self.probing.began_at = now;
        self.probing.is_stopping = true;
        self.start_round();
        self.phase = Bbr3Phase::Down;
        self.reason = reason;
    }

    pub(super) fn start_cruise(&mut self) {
        self.phase = Bbr3Phase::Cruise;
        self.reason = "queue drained";
    }

    pub(super) fn start_refill(&mut self, reason: &'static str) {
        self.congestion.forget_short_term();
        self.probing.up_rounds = 0;
        self.probing.up_acked = ByteCount::ZERO;
        self.probing.was_precautionary = false;
        self.probing.is_stopping = false;
        self.start_round();
        self.phase = Bbr3Phase::Refill;
        self.reason = reason;
    }

    fn start_up(&mut self) {
        self.probing.is_sampling = true;
        self.start_round();
        self.full_pipe.restart(self.sample.rate);
        self.phase = Bbr3Phase::Up;
        self.reason = "the pipe is full";
        self.double_growth();
    }
}
