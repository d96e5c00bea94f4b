//! Reports to the algorithm on acknowledgements, losses and marks, and the window that follows.

use forebay_core::cc::{CongestionEvent, Measurement, RttSample};
use forebay_core::units::{ByteCount, Duration, Timestamp};

use super::{Limits, Sender};
use crate::tcp::delivery::Sample;
use crate::tcp::prr::{Prr, Told};
use crate::tcp::recovery::{Phase, Turn};
use crate::tcp::scoreboard::Progress;
use crate::tcp::stack::{PrrBound, Reduction};

impl Sender {
    /// Reports a loss or a mark, with the bytes now in flight.
    pub(super) fn tell_loss(&mut self, now: Timestamp, event: CongestionEvent) {
        // If arrivals are guessed, ns-3 counts the lost head as in flight.
        let head = u32::from(self.board.is_guessed() && event == CongestionEvent::Loss);
        let measurement = Measurement {
            in_flight: Some(self.in_flight_bytes() + self.bytes(head)),
            delivered: self.delivered_bytes(),
            ..Measurement::default()
        };
        self.algorithm.on_measurement(now, &measurement);
        self.algorithm.on_event(now, event);
        if event != CongestionEvent::EcnCe {
            self.state.ecn.on_reduction(self.board.next());
        }
    }

    /// Reports the handshake's round trip before the first transmission.
    pub(super) fn tell_handshake(&mut self, now: Timestamp) {
        let rtt = Some(self.state.rtt.srtt_ns()).filter(|srtt_ns| *srtt_ns > 0);
        let rtt = rtt.map(Duration::from_nanos).map(|rtt| RttSample { latest: rtt, min: rtt });
        let in_flight = Some(self.in_flight_bytes());
        self.algorithm.on_measurement(now, &Measurement { rtt, in_flight, ..<_>::default() });
    }

    /// Number of segments to report to the algorithm as acknowledged; SND.UNA was `before`.
    pub(super) fn acked(&mut self, progress: &Progress, before: u32, turn: Turn) -> u32 {
        let (una, phase) = (self.board.una(), self.state.recovery.phase());
        if self.tcp.acked_is_advance && phase != Phase::Recovery {
            let has_timed_out = std::mem::take(&mut self.state.has_timed_out);
            self.state.has_timed_out = has_timed_out && turn != Turn::End;
            let from = if has_timed_out && turn == Turn::End {
                self.state.recovery.point()
            } else {
                before
            };
            return una - from.min(una);
        }
        let acked = progress.delivered + self.state.untold;
        if una > before || phase == Phase::Recovery {
            self.state.untold = 0;
            return acked;
        }
        self.state.untold = acked;
        0
    }

    pub(super) fn measure(
        &mut self,
        now: Timestamp,
        progress: &Progress,
        sample: Sample,
        rtt_ns: Option<u64>,
        acked: u32,
    ) {
        let rtt = rtt_ns.map(Duration::from_nanos);
        let is_change = self.tcp.lost_is_change && self.state.recovery.phase() == Phase::Recovery;
        let lost = if is_change { progress.lost_change } else { progress.lost };
        let one_way_ms = self.state.one_way_ms.take();
        let (ce, ect1) = self.state.ecn.tell(self.state.is_ece, progress.delivered);
        let newest_age = || progress.newest.map(|newest| now.saturating_since(newest.at));
        let measurement = Measurement {
            interval: now.saturating_since(self.state.measured_at),
            acked: self.bytes(acked),
            lost: Some(self.bytes(lost)),
            ecn_ce: ce.map(|segments| self.bytes(segments)),
            ect1: ect1.map(|segments| self.bytes(segments)),
            rtt: rtt.map(|rtt| RttSample { latest: rtt, min: rtt }),
            feedback_delay: self.state.echo_age.or_else(newest_age),
            one_way: one_way_ms.map(|millis| Duration::from_millis(millis.into())),
            send_rate: sample.send_rate,
            delivery_rate: sample.delivery_rate,
            train_rate: None,
            in_flight: Some(self.in_flight_bytes()),
            delivered: self.delivered_bytes(),
            prior_delivered: self.bytes(sample.prior_delivered),
            lost_prior_delivered: progress.lost_delivered.map(|segments| self.bytes(segments)),
            app_limited: sample.is_app_limited,
            cwnd_limited: self.cwnd_limited(),
            idle: None,
            backlog: None,
        };
        self.state.measured_at = now;
        self.algorithm.on_measurement(now, &measurement);
    }

    /// Answers marks of classic ECN. An algorithm counts windows on its own: if it does not reduce, the next
    /// mark asks again.
    pub(super) fn answer_marks(&mut self, now: Timestamp) {
        let is_calm = matches!(self.state.recovery.phase(), Phase::Open | Phase::Disorder);
        if self.state.ecn.ends_round(self.board.una()) && is_calm {
            self.state.prr = None;
        }
        if !self.state.is_ece || !is_calm || !self.state.ecn.may_reduce() {
            return;
        }
        let before = self.algorithm.send_limits().cwnd;
        self.tell_loss(now, CongestionEvent::EcnCe);
        if self.algorithm.send_limits().cwnd < before {
            self.state.ecn.on_reduction(self.board.next());
            self.state.undo.disarm();
            self.state.prr = self.begin_reduction(self.state.cwnd);
        }
    }

    pub(super) fn take_limits(&mut self) {
        self.state.limits = Limits::of(&self.algorithm.send_limits());
        if self.state.prr.is_none() {
            self.state.cwnd = self.state.limits.cwnd;
        }
        if let Some(at) = self.algorithm.next_timer() {
            self.algorithm_timer.set(at);
        }
    }

    /// Begins a reduction from the window `cwnd` towards the algorithm's ssthresh; an algorithm without one
    /// keeps its own window.
    pub(super) fn begin_reduction(&self, cwnd: u64) -> Option<Prr> {
        let Reduction::Proportional(bound) = self.tcp.reduction else { return None };
        let ssthresh = self.algorithm.send_limits().ssthresh?.as_u64();
        let outstanding = u64::from(self.board.outstanding()) * self.mss;
        let flight = if bound == PrrBound::Linux { cwnd } else { outstanding };
        Some(Prr::enter(bound, ssthresh, flight))
    }

    /// The algorithm's window in a recovery with PRR, if the algorithm may lower it.
    pub(super) fn recovering_window(&self) -> Option<ByteCount> {
        let may_lower = self.tcp.obeys_in_recovery && self.state.prr.is_some();
        may_lower.then(|| self.algorithm.send_limits().cwnd)?
    }

    /// Takes over the algorithm's window if it has lowered it from `before` in a recovery.
    pub(super) fn obey_below(&mut self, before: Option<ByteCount>) {
        let cwnd = self.state.limits.cwnd;
        if before.is_some_and(|before| cwnd < before.as_u64()) {
            self.state.cwnd = self.state.cwnd.min(cwnd);
        }
    }

    /// Applies PRR to an acknowledgement. `is_duplicate`: a segment was SACKed, or counts as SACKed.
    pub(super) fn reduce_proportionally(
        &mut self,
        progress: &Progress,
        in_flight: ByteCount,
        is_duplicate: bool,
        has_advanced: bool,
    ) {
        let told = Told {
            delivered: u64::from(progress.delivered) * self.mss,
            has_sacked: is_duplicate,
            has_advanced,
            has_lost: progress.lost > 0,
            covers_repair: progress.covers_repair,
        };
        let window =
            self.state.prr.as_mut().and_then(|prr| prr.on_ack(told, in_flight.as_u64(), self.mss));
        self.state.cwnd = window.unwrap_or(self.state.cwnd);
    }
}
