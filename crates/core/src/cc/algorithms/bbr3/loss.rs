//! How losses change the model of the path, and how spurious losses are undone (draft, sections 5.3.1.3,
//! 5.5.10, 5.5.11).

use super::flights::Flight;
use super::{Bbr3, Bbr3Phase, UNBOUNDED, percent};
use crate::cc::Measurement;
use crate::cc::rounds::Rounds;
use crate::units::{ByteCount, Rate, Timestamp};

/// Share of the bytes in flight that may be lost while a flow probes, in percent (BBR.LossThresh).
const LOSS_THRESHOLD_PERCENT: u64 = 2;
/// Least share that remains after a round with losses, in percent: CUBIC's decrease (BBR.Beta).
const BETA_PERCENT: u64 = 70;
/// Losses apart from each other in a round that end startup (BBRStartupFullLossCnt).
const STARTUP_LOSSES: u32 = 6;

/// The short-term model and its inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    /// From a loss or timeout to its repair.
    is_recovering: bool,
    rounds: Rounds,
    is_round_start: bool,
    is_loss_in_round: bool,
    /// Measurements of the round that reported losses.
    losses: u32,
    /// Largest delivery rate and volume of the round.
    bw_latest: Rate,
    inflight_latest: ByteCount,
    /// Rate and volume that losses left in this cycle; the greatest value where nothing was lost.
    pub bw_shortterm: Rate,
    pub inflight_shortterm: ByteCount,
    undo: Undo,
}

/// The model at the beginning of an episode of losses.
#[derive(Clone, Copy, Debug, Default)]
struct Undo {
    /// The phase that its losses ended.
    phase: Option<Bbr3Phase>,
    bw_shortterm: Rate,
    inflight_shortterm: ByteCount,
    inflight_longterm: ByteCount,
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            is_recovering: false,
            rounds: Rounds::default(),
            is_round_start: false,
            is_loss_in_round: false,
            losses: 0,
            bw_latest: Rate::ZERO,
            inflight_latest: ByteCount::ZERO,
            bw_shortterm: Rate::MAX,
            inflight_shortterm: UNBOUNDED,
            undo: Undo::default(),
        }
    }
}

impl Congestion {
    /// Forgets the bounds that losses set in this cycle.
    pub fn forget_short_term(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (Rate::MAX, UNBOUNDED);
    }

    /// Forgets the signals of the last round, as another phase begins.
    pub fn forget_signals(&mut self) {
        self.is_loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (Rate::ZERO, ByteCount::ZERO);
    }
}

/// Whether a larger share of the flight was lost than a flow that probes may lose.
pub(super) fn is_too_high(flight: Flight) -> bool {
    flight.lost.as_u64() > percent(flight.in_flight.as_u64(), LOSS_THRESHOLD_PERCENT)
}

impl Bbr3 {
    /// Takes the losses of a measurement, before everything else in it.
    pub(super) fn take_losses(&mut self, now: Timestamp, measurement: &Measurement) {
        if self.sample.newly_lost == ByteCount::ZERO {
            return;
        }
        self.note_loss();
        self.congestion.losses += 1;
        if !self.probing.is_sampling {
            return;
        }
        // Without a sample nothing is known about the newest packet, which is used instead of the lost
        // one.
        let newest = (self.sample.rate > Rate::ZERO).then_some(measurement.prior_delivered);
        let Some(left) = measurement.lost_prior_delivered.or(newest) else { return };
        let flight = self.flights.of_packet_sent_at(left);
        if is_too_high(flight) {
            self.on_inflight_too_high(now, flight.in_flight);
        }
    }

    fn note_loss(&mut self) {
        if !self.congestion.is_loss_in_round {
            self.congestion.rounds.restart_at(self.delivered);
            self.save_state();
        }
        self.congestion.is_loss_in_round = true;
    }

    /// A probe has put more into the path than the path holds.
    fn on_inflight_too_high(&mut self, now: Timestamp, in_flight: ByteCount) {
        self.probing.was_too_high = true;
        self.probing.is_sampling = false;
        if !self.sample.is_app_limited {
            let least = percent(self.target_inflight().as_u64(), BETA_PERCENT);
            self.inflight_longterm = in_flight.max(ByteCount::new(least));
        }
        if self.phase == Bbr3Phase::Up {
            self.congestion.undo.phase = Some(Bbr3Phase::Up);
            self.start_down(now, "too many losses or marks");
        }
    }

    /// Updates the delivery of the round so far, near the beginning of a measurement.
    pub(super) fn update_latest_delivery(&mut self, measurement: &Measurement) {
        let (sample, congestion) = (self.sample, &mut self.congestion);
        congestion.bw_latest = congestion.bw_latest.max(sample.rate);
        congestion.inflight_latest = congestion.inflight_latest.max(sample.delivered);
        congestion.is_round_start = congestion.rounds.on_measurement(measurement);
    }

    /// Starts the next round with this measurement's delivery, near the end of a measurement.
    pub(super) fn forget_latest_delivery(&mut self) {
        let (sample, congestion) = (self.sample, &mut self.congestion);
        if congestion.is_round_start {
            (congestion.bw_latest, congestion.inflight_latest) = (sample.rate, sample.delivered);
            congestion.losses = 0;
        }
    }

    /// At the end of a round with losses that are not a probe's.
    pub(super) fn answer_losses(&mut self) {
        if !self.congestion.is_round_start {
            return;
        }
        if self.congestion.is_loss_in_round && !self.phase.is_probing() {
            self.lower_short_term();
        }
        self.congestion.is_loss_in_round = false;
    }

    /// Lowers rate and volume to the delivery of the last round, but not far below their former values.
    fn lower_short_term(&mut self) {
        let (max_bw, cwnd, congestion) = (self.max_bw.value(), self.cwnd, &mut self.congestion);
        if congestion.bw_shortterm == Rate::MAX {
            congestion.bw_shortterm = max_bw;
        }
        if congestion.inflight_shortterm == UNBOUNDED {
            congestion.inflight_shortterm = cwnd;
        }
        let least = percent(congestion.bw_shortterm.as_bits_per_sec(), BETA_PERCENT);
        congestion.bw_shortterm = congestion.bw_latest.max(Rate::from_bits_per_sec(least));
        let least = percent(congestion.inflight_shortterm.as_u64(), BETA_PERCENT);
        congestion.inflight_shortterm = congestion.inflight_latest.max(ByteCount::new(least));
    }

    /// Ends startup where a round of a recovery has lost too much in several separate losses.
    pub(super) fn check_startup_loss(&mut self) {
        let congestion = &self.congestion;
        if congestion.is_round_start
            && congestion.is_recovering
            && congestion.losses >= STARTUP_LOSSES
            && is_too_high(self.sample.flight)
        {
            self.end_startup("too many losses");
        }
    }

    fn end_startup(&mut self, reason: &'static str) {
        self.congestion.undo.phase = Some(Bbr3Phase::Startup);
        self.full_pipe.fill();
        self.inflight_longterm = self.bdp().max(self.congestion.inflight_latest);
        self.enter_drain(reason);
    }

    /// Something was marked in the last round trip.
    pub(super) fn on_mark(&mut self, now: Timestamp) {
        if self.phase == Bbr3Phase::Startup {
            self.end_startup("marked");
        } else if self.probing.is_sampling || self.phase.is_probing() {
            self.on_inflight_too_high(now, self.in_flight);
        } else {
            self.lower_short_term();
        }
        // A phase that a mark ended does not begin again if losses turn out to be spurious.
        self.congestion.undo.phase = None;
        self.bound_cwnd();
    }

    pub(super) fn enter_recovery(&mut self) {
        self.save_state();
        self.congestion.is_recovering = true;
    }

    pub(super) fn on_timeout(&mut self) {
        self.note_loss();
        self.save_state();
        if !self.phase.is_probing() && self.congestion.inflight_shortterm == UNBOUNDED {
            self.congestion.inflight_shortterm = self.prior_cwnd;
        }
        self.congestion.is_recovering = true;
        self.cwnd = self.mss;
    }

    pub(super) fn end_recovery(&mut self) {
        self.congestion.is_recovering = false;
        self.restore_cwnd();
        self.bound_cwnd();
    }

    fn save_state(&mut self) {
        self.save_cwnd();
        self.congestion.undo = Undo {
            phase: None,
            bw_shortterm: self.congestion.bw_shortterm,
            inflight_shortterm: self.congestion.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// Undoes spurious losses: restores the model from before them, and the phase that they ended begins
    /// again.
    pub(super) fn take_losses_back(&mut self) {
        let congestion = &mut self.congestion;
        let undo = congestion.undo;
        congestion.undo.phase = None;
        congestion.is_recovering = false;
        congestion.is_loss_in_round = false;
        congestion.bw_shortterm = congestion.bw_shortterm.max(undo.bw_shortterm);
        congestion.inflight_shortterm = congestion.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        self.full_pipe.restart(Rate::ZERO);
        self.restore_cwnd();
        match undo.phase {
            Some(Bbr3Phase::Startup) if self.phase != Bbr3Phase::Startup => {
                self.full_pipe.has_been = false;
                if self.phase != Bbr3Phase::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(Bbr3Phase::Up) if !matches!(self.phase, Bbr3Phase::Up | Bbr3Phase::ProbeRtt) => {
                self.start_refill("the loss was spurious");
            }
            _ => {}
        }
        self.bound_cwnd();
    }

    /// Saves a window that worked, to restore it later.
    pub(super) fn save_cwnd(&mut self) {
        let is_whole = !self.congestion.is_recovering && self.phase != Bbr3Phase::ProbeRtt;
        self.prior_cwnd = if is_whole { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }
}
