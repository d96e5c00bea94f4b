//! The sending side of a connection: what is sent when, and what the algorithm is told.
//!
//! ```text
//! SYN ── one round trip ──► window min(cwnd or PRR, buffers), paced if the algorithm wants it
//! send    while pipe + 1 segment ≤ cwnd: lost segments first, then new ones, then rule 3   (RFC 6675, 5 C)
//! ACK     scoreboard → round-trip time → recovery → algorithm → window
//! RTO     all lost, window as the algorithm says (one segment), back off                   (RFC 6298, 5)
//! ```
//! What an algorithm is told, besides a measurement for every acknowledgement:
//! - Before `Loss` and `Rto` a measurement of the bytes in flight alone: FlightSize at the time of the
//!   loss is what RFC 5681 (equation 4) halves.
//! - A mark (classic ECN) likewise; with accurate ECN no event, but the marked bytes.
//! - Bytes of a duplicate acknowledgement wait for the one that moves SND.UNA: the window does not grow
//!   on duplicates (RFC 3042 section 2).
//!
//! An algorithm that gives an ssthresh is governed by PRR in a recovery; one that gives none (a fixed
//! window, a rate) keeps its own window. Without a window what the buffers hold may be outstanding.

mod alarms;
mod doubts;
#[cfg(test)]
mod script;
#[cfg(test)]
mod window_tests;

use forebay_core::cc::{
    CongestionControl, CongestionEvent, Field, Measurement, RttSample, SendLimits,
};
use forebay_core::units::{ByteCount, Duration, Timestamp};

use self::alarms::Alarm;
use super::delivery::{Delivery, Sample};
use super::dsack;
use super::ecn::Answers;
use super::frto::Frto;
use super::prr::{Prr, Told};
use super::recovery::{Phase, Recovery, Turn};
use super::rto::RttEstimator;
use super::scoreboard::{Progress, Scoreboard};
use super::stack::{PrrBound, Reduction, RttSource, Stack};
use super::stream::Stream;
use super::tlp::Probe;
use super::undo::Undo;
use super::validation::Validation;
use crate::event::{Timer, after, nanos_between};
use crate::packet::{Kind, Marks, Range};

/// What the simulator's sender can tell an algorithm.
pub const SUPPLIED: &[Field] = &[
    Field::Lost,
    Field::EcnCe,
    Field::Rtt,
    Field::FeedbackDelay,
    Field::SendRate,
    Field::DeliveryRate,
    Field::InFlight,
];

/// Window of an algorithm that sets none: the buffers bound it.
const UNBOUNDED: u64 = u64::MAX / 4;

/// A tick of Linux's timestamps.
const TIMESTAMP_TICK_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Closed,
    Requested { is_ambiguous: bool },
    Established,
}

/// A packet that leaves the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// [`Kind::Syn`] or [`Kind::Data`].
    pub kind: Kind,
    /// Number of the segment.
    pub number: u32,
    /// Bytes on the wire.
    pub len: u16,
    /// Its marks.
    pub marks: Marks,
}

/// Where the next segment comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Again(u32),
    New,
    /// The last one again.
    Probe,
}

/// What a sender counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Segments sent, those sent again among them.
    pub sent: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Timeouts of data.
    pub timeouts: u64,
    /// Reductions of the window that were taken back.
    pub undone: u64,
}

/// One connection's sender.
pub(crate) struct Sender {
    board: Scoreboard,
    recovery: Recovery,
    prr: Option<Prr>,
    rtt: RttEstimator,
    delivery: Delivery,
    algorithm: Box<dyn CongestionControl>,
    limits: SendLimits,
    /// The window in force, in bytes.
    cwnd: u64,
    mss: u64,
    buffered_segments: u32,
    stream: Stream,
    stack: Stack,
    handshake: Handshake,
    /// A request is to be sent.
    is_request_due: bool,
    /// One segment is to be sent whatever the window says.
    is_forced: bool,
    /// A tail loss probe is to be sent.
    probing: Option<Next>,
    /// The probe that is not answered yet.
    probe: Option<Probe>,
    alarm: Alarm,
    ecn: Answers,
    /// The acknowledgement that is being taken carries ECE.
    is_ece: bool,
    validation: Validation,
    undo: Undo,
    frto: Frto,
    /// New segments go before repairs, until the next acknowledgement.
    prefers_new: bool,
    /// There was room in the window and nothing to send.
    has_run_dry: bool,
    /// Segments delivered by duplicate acknowledgements, not yet told.
    untold: u32,
    /// From a timeout to the end of its repair.
    has_timed_out: bool,
    measured_at: Timestamp,
    paced_until: Timestamp,
    /// The timer of retransmissions, and of probes and RACK.
    pub rto_timer: Timer,
    /// When pacing lets the next segment go.
    pub pacing_timer: Timer,
    /// When the algorithm wants to be called.
    pub algorithm_timer: Timer,
    /// What was counted.
    pub counters: Counters,
}

impl Sender {
    /// A sender of `bytes` of payload, without end for `None`.
    pub fn new(stack: Stack, algorithm: Box<dyn CongestionControl>, bytes: Option<u64>) -> Self {
        let keeps_repairs = stack.sacked_repairs_in_flight;
        let board =
            if stack.rack { Scoreboard::with_rack() } else { Scoreboard::new(keeps_repairs) };
        Self {
            board,
            recovery: Recovery::new(stack.entry_looks_above_head),
            prr: None,
            rtt: RttEstimator::new(&stack),
            delivery: Delivery::new(),
            algorithm,
            limits: SendLimits::default(),
            cwnd: 0,
            mss: u64::from(stack.mss),
            buffered_segments: stack.buffered_segments(),
            stream: Stream::new(stack.mss, bytes),
            stack,
            handshake: Handshake::Closed,
            is_request_due: false,
            is_forced: false,
            probing: None,
            probe: None,
            alarm: Alarm::Timeout,
            ecn: Answers::new(stack.ecn),
            is_ece: false,
            validation: Validation::NEW,
            undo: Undo::default(),
            frto: Frto::default(),
            prefers_new: false,
            has_run_dry: false,
            untold: 0,
            has_timed_out: false,
            measured_at: Timestamp::ZERO,
            paced_until: Timestamp::ZERO,
            rto_timer: Timer::STOPPED,
            pacing_timer: Timer::STOPPED,
            algorithm_timer: Timer::STOPPED,
            counters: Counters::default(),
        }
    }

    /// Opens the connection.
    pub fn start(&mut self) {
        self.handshake = Handshake::Requested { is_ambiguous: false };
        self.is_request_due = true;
    }

    /// The connection has been open since before the run: its handshake took `rtt_ns`.
    pub fn establish(&mut self, now: Timestamp, rtt_ns: u64) {
        self.handshake = Handshake::Established;
        self.rtt.on_sample(rtt_ns);
        self.begin(now);
    }

    /// The application writes `bytes` more. Gives the number behind the segment with the last of them.
    pub fn write(&mut self, bytes: u64) -> u32 {
        self.stream.write(bytes, self.board.next())
    }

    /// The application of a flow without end writes no more: what has been sent is all.
    pub fn close(&mut self) {
        self.stream.close(self.board.next());
    }

    /// The request is answered; `echo` is when it was sent.
    pub fn on_syn_ack(&mut self, now: Timestamp, echo: Timestamp) {
        let Handshake::Requested { is_ambiguous } = self.handshake else { return };
        self.handshake = Handshake::Established;
        self.rto_timer.stop();
        match self.stack.rtt_source {
            RttSource::Timestamps { tick_ns } => {
                self.rtt.on_sample(ticked(now, echo, tick_ns));
            }
            RttSource::Segments if !is_ambiguous => self.rtt.on_sample(nanos_between(echo, now)),
            RttSource::Segments => {}
        }
        self.begin(now);
    }

    fn begin(&mut self, now: Timestamp) {
        self.measured_at = now;
        let mss = ByteCount::new(self.mss);
        self.algorithm.init(now, mss, mss * u64::from(self.stack.initial_window));
        self.take_limits();
    }

    /// Takes an acknowledgement.
    pub fn on_ack(
        &mut self,
        now: Timestamp,
        number: u32,
        echo: Timestamp,
        blocks: &[Range],
        is_ece: bool,
    ) {
        let before = self.board.una();
        if number < before || self.handshake != Handshake::Established {
            return;
        }
        let duplicate = dsack::duplicate(number, blocks);
        self.board.begin_ack(now, self.rtt.min_ns());
        let mut progress = self.board.acknowledge(number, blocks);
        let has_advanced = self.board.una() > before;
        let sample = self.take_sample(now, &progress);
        let rtt_ns = self.take_rtt(now, echo, has_advanced, &progress);
        if has_advanced {
            self.rtt.reset_backoff();
            self.stream.forget(number);
        }
        self.prefers_new = false;
        self.judge_probe(now, &progress, duplicate, has_advanced);
        self.doubt(now, echo, &progress, duplicate, has_advanced);
        let look_again = self.judge(now, &mut progress, duplicate);
        let is_duplicate = progress.sacked > 0;
        let turn = self.recovery.on_ack(now, &self.board, is_duplicate, has_advanced);
        if !self.doubt_recovery(now, echo, turn) {
            self.turn(now, turn, &mut progress);
        }
        self.is_ece = is_ece;
        let acked = self.acked(&progress, before, turn);
        self.measure(now, &progress, sample, rtt_ns, acked);
        self.answer_marks(now);
        self.take_limits();
        self.reduce_proportionally(&progress, has_advanced);
        if look_again.is_some() || (has_advanced && self.restarts_timer(turn)) {
            self.set_alarm(now, look_again);
        }
    }

    fn take_sample(&mut self, now: Timestamp, progress: &Progress) -> Sample {
        let Some(newest) = progress.newest else { return Sample::default() };
        let mss = ByteCount::new(self.mss);
        self.delivery.on_ack(now, progress.delivered, newest, mss, self.rtt.min_ns())
    }

    fn take_rtt(
        &mut self,
        now: Timestamp,
        echo: Timestamp,
        has_advanced: bool,
        progress: &Progress,
    ) -> Option<u64> {
        let rtt_ns = match self.stack.rtt_source {
            RttSource::Timestamps { tick_ns } => {
                if progress.is_head_original {
                    self.rtt.on_sample(ticked(now, echo, tick_ns));
                }
                return Some(self.rtt.srtt_ns()).filter(|srtt_ns| *srtt_ns > 0);
            }
            RttSource::Segments => match progress.unambiguous {
                Some(at) => nanos_between(at, now),
                None if has_advanced => ticked(now, echo, TIMESTAMP_TICK_NS),
                None => return None,
            },
        };
        self.rtt.on_sample(rtt_ns);
        Some(rtt_ns)
    }

    fn turn(&mut self, now: Timestamp, turn: Turn, progress: &mut Progress) {
        match turn {
            Turn::None => {}
            Turn::Enter => {
                if !self.board.has_rack() {
                    progress.lost += u32::from(self.board.mark_head_lost());
                }
                let cwnd = self.cwnd;
                if self.stack.undo {
                    self.undo.arm(self.board.una());
                }
                self.tell_loss(now, CongestionEvent::Loss);
                self.prr = self.begin_reduction(cwnd);
                self.is_forced = true;
                self.probe = None;
            }
            Turn::Partial { .. } => {
                let is_due = self.stack.newreno_partial_acks && !self.board.is_head_resent();
                self.is_forced |= is_due;
            }
            Turn::End => {
                self.prr = None;
                self.is_forced = false;
                self.board.on_recovery_end();
                self.algorithm.on_event(now, CongestionEvent::RecoveryEnd);
            }
        }
    }

    /// Tells of a loss, with the bytes in flight at this moment.
    fn tell_loss(&mut self, now: Timestamp, event: CongestionEvent) {
        let measurement = Measurement {
            in_flight: Some(self.in_flight_bytes()),
            delivered: self.delivered_bytes(),
            prior_delivered: self.delivered_bytes(),
            ..Measurement::default()
        };
        self.algorithm.on_measurement(now, &measurement);
        self.algorithm.on_event(now, event);
    }

    /// Segments that the algorithm is told of, SND.UNA having been `before`.
    fn acked(&mut self, progress: &Progress, before: u32, turn: Turn) -> u32 {
        let (una, phase) = (self.board.una(), self.recovery.phase());
        if self.stack.acked_is_advance && phase != Phase::Recovery {
            let has_timed_out = std::mem::take(&mut self.has_timed_out);
            self.has_timed_out = has_timed_out && turn != Turn::End;
            let from =
                if has_timed_out && turn == Turn::End { self.recovery.point() } else { before };
            return una - from.min(una);
        }
        let acked = progress.delivered + self.untold;
        if una > before || phase == Phase::Recovery {
            self.untold = 0;
            return acked;
        }
        self.untold = acked;
        0
    }

    fn measure(
        &mut self,
        now: Timestamp,
        progress: &Progress,
        sample: Sample,
        rtt_ns: Option<u64>,
        acked: u32,
    ) {
        let rtt = rtt_ns.map(Duration::from_nanos);
        let measurement = Measurement {
            interval: now.saturating_since(self.measured_at),
            acked: self.bytes(acked),
            lost: Some(self.bytes(progress.lost)),
            ecn_ce: self.ecn.counts().then(|| {
                let marked = if self.is_ece { progress.delivered } else { 0 };
                self.bytes(marked)
            }),
            rtt: rtt.map(|rtt| RttSample { latest: rtt, min: rtt }),
            feedback_delay: progress.newest.map(|newest| now.saturating_since(newest.at)),
            send_rate: sample.send_rate,
            delivery_rate: sample.delivery_rate,
            train_rate: None,
            in_flight: Some(self.in_flight_bytes()),
            delivered: self.delivered_bytes(),
            prior_delivered: self.bytes(sample.prior_delivered),
            app_limited: std::mem::take(&mut self.has_run_dry),
            idle: None,
        };
        self.measured_at = now;
        self.algorithm.on_measurement(now, &measurement);
    }

    /// Classic ECN. An algorithm counts windows on its own: where it does not reduce, the next mark asks
    /// again.
    fn answer_marks(&mut self, now: Timestamp) {
        let is_calm = matches!(self.recovery.phase(), Phase::Open | Phase::Disorder);
        if self.ecn.ends_round(self.board.una()) && is_calm {
            self.prr = None;
        }
        if !self.is_ece || !is_calm || !self.ecn.may_reduce() {
            return;
        }
        let before = self.algorithm.send_limits().cwnd;
        self.tell_loss(now, CongestionEvent::EcnCe);
        if self.algorithm.send_limits().cwnd < before {
            self.ecn.on_reduction(self.board.next());
            self.undo.disarm();
            self.prr = self.begin_reduction(self.cwnd);
        }
    }

    fn take_limits(&mut self) {
        self.limits = self.algorithm.send_limits();
        if self.prr.is_none() {
            self.cwnd = self.limits.cwnd.map_or(UNBOUNDED, ByteCount::as_u64);
        }
        if let Some(at) = self.algorithm.next_timer() {
            self.algorithm_timer.set(at);
        }
    }

    /// Towards the algorithm's ssthresh, the window having been `cwnd`; an algorithm that gives none
    /// keeps its own window.
    fn begin_reduction(&self, cwnd: u64) -> Option<Prr> {
        let Reduction::Proportional(bound) = self.stack.reduction else { return None };
        let ssthresh = self.algorithm.send_limits().ssthresh?.as_u64();
        let outstanding = u64::from(self.board.outstanding()) * self.mss;
        let flight = if bound == PrrBound::Linux { cwnd } else { outstanding };
        Some(Prr::enter(bound, ssthresh, flight))
    }

    fn reduce_proportionally(&mut self, progress: &Progress, has_advanced: bool) {
        let in_flight = self.in_flight_bytes().as_u64();
        let told = Told {
            delivered: u64::from(progress.delivered) * self.mss,
            has_sacked: progress.sacked > 0,
            has_advanced,
            has_lost: progress.lost > 0,
            covers_repair: progress.covers_repair,
        };
        let window = self.prr.as_mut().and_then(|prr| prr.on_ack(told, in_flight, self.mss));
        self.cwnd = window.unwrap_or(self.cwnd);
    }

    fn restarts_timer(&self, turn: Turn) -> bool {
        !self.stack.newreno_partial_acks || turn != Turn::Partial { is_first: false }
    }

    fn restart_rto(&mut self, now: Timestamp) {
        self.alarm = Alarm::Timeout;
        if self.board.outstanding() == 0 {
            self.rto_timer.stop();
            return;
        }
        let rto_at = after(now, self.rtt.rto_ns());
        if !self.plan_probe(now, rto_at) {
            self.rto_timer.set(rto_at);
        }
    }

    /// The retransmission timer has expired.
    pub fn on_timeout(&mut self, now: Timestamp) {
        if self.serve_alarm(now) {
            return;
        }
        self.rtt.back_off();
        if self.handshake != Handshake::Established {
            self.handshake = Handshake::Requested { is_ambiguous: true };
            self.is_request_due = true;
            return;
        }
        if self.board.outstanding() == 0 {
            return;
        }
        self.counters.timeouts += 1;
        self.tell_loss(now, CongestionEvent::Rto);
        self.arm_undo();
        self.frto.on_timeout(if self.stack.frto { self.recovery.phase() } else { Phase::Recovery });
        // The head goes out again even where young segments, which RACK spares, fill the window.
        self.is_forced = self.board.has_rack();
        if self.board.has_rack() {
            self.board.lose_timed_out(now);
        } else {
            self.board.mark_all_lost();
        }
        self.recovery.on_timeout(now, &self.board);
        self.prr = None;
        self.probe = None;
        self.untold = 0;
        self.has_timed_out = true;
        self.paced_until = now;
        self.take_limits();
    }

    /// The algorithm's own timer has expired.
    pub fn on_algorithm_timer(&mut self, now: Timestamp) {
        self.algorithm.on_timer(now);
        self.take_limits();
    }

    /// The next packet to send at `now`; `None` when the window, the pace or the flow has no more.
    pub fn transmit(&mut self, now: Timestamp) -> Option<Outgoing> {
        if self.handshake != Handshake::Established {
            return self.request(now);
        }
        if let Some(next) = self.probing.take() {
            return Some(self.send(now, next));
        }
        if std::mem::take(&mut self.is_forced) {
            let next = self.next_segment().unwrap_or(Next::Again(self.board.una()));
            return Some(self.send(now, next));
        }
        if u64::from(self.board.in_flight() + 1) * self.mss > self.cwnd {
            self.validation.on_full(now);
            return None;
        }
        if self.paced_until > now && self.limits.pacing_rate.is_some() {
            self.pacing_timer.set(self.paced_until);
            return None;
        }
        let next = self.next_segment();
        let Some(next) = next else {
            self.has_run_dry |=
                self.stack.validates_window || self.board.next() == self.stream.end();
            self.validate_window(now);
            return None;
        };
        if self.stack.validates_window && next == Next::New && self.board.outstanding() == 0 {
            self.restart_after_idle(now);
        }
        Some(self.send(now, next))
    }

    fn validate_window(&mut self, now: Timestamp) {
        if !self.stack.validates_window || self.recovery.phase() != Phase::Open {
            return;
        }
        let (Some(cwnd), ssthresh) = (self.limits.cwnd, self.limits.ssthresh) else { return };
        let is_slow_start = ssthresh.is_none_or(|ssthresh| cwnd < ssthresh);
        let window = (cwnd.as_u64() / self.mss, is_slow_start);
        let (outstanding, rto_ns) = (self.board.outstanding(), self.rtt.rto_ns());
        if let Some(used) = self.validation.on_slack(now, outstanding, window, rto_ns) {
            let used = self.bytes(used);
            self.algorithm.on_event(now, CongestionEvent::Underused(used));
            self.take_limits();
        }
    }

    fn restart_after_idle(&mut self, now: Timestamp) {
        let timeouts = self.validation.idle_timeouts(now, self.rtt.rto_ns());
        if timeouts > 0 {
            self.algorithm.on_event(now, CongestionEvent::IdleRestart(timeouts));
            self.take_limits();
        }
    }

    fn request(&mut self, now: Timestamp) -> Option<Outgoing> {
        if !std::mem::take(&mut self.is_request_due) {
            return None;
        }
        self.rto_timer.set(after(now, self.rtt.rto_ns()));
        let (len, marks) = (self.stack.overhead, Marks::NONE);
        Some(Outgoing { kind: Kind::Syn, number: 0, len, marks })
    }

    fn has_new_segment(&self) -> bool {
        let has_room = self.board.outstanding() < self.buffered_segments;
        self.board.next() < self.stream.end() && has_room
    }

    fn next_segment(&mut self) -> Option<Next> {
        if self.prefers_new && self.has_new_segment() {
            return Some(Next::New);
        }
        if let Some(number) = self.board.next_lost() {
            return Some(Next::Again(number));
        }
        if self.has_new_segment() {
            return Some(Next::New);
        }
        if self.recovery.phase() != Phase::Recovery {
            return None;
        }
        self.board.next_unsacked().map(Next::Again)
    }

    fn send(&mut self, now: Timestamp, next: Next) -> Outgoing {
        let sent = self.delivery.on_send(now, self.board.in_flight() == 0);
        let number = match next {
            Next::New => self.board.send_new(sent),
            Next::Again(number) => {
                self.board.send_again(number, sent);
                number
            }
            Next::Probe => self.board.send_probe(sent),
        };
        self.counters.sent += 1;
        self.validation.on_send(now);
        if next != Next::New {
            self.counters.resent += 1;
            self.undo.on_resend(now);
        }
        if let Some(prr) = &mut self.prr {
            prr.on_send(self.mss);
        }
        if !self.rto_timer.is_running() {
            self.rto_timer.set(after(now, self.rtt.rto_ns()));
        }
        if self.stack.tlp && next == Next::New && self.probe.is_none() {
            self.replan_probe(now);
        }
        let len = self.stream.payload(number) + self.stack.overhead;
        if let Some(rate) = self.limits.pacing_rate {
            let time = ByteCount::new(u64::from(len)).time_at(rate).unwrap_or(Duration::MAX);
            self.paced_until = self.paced_until.max(now) + time;
        }
        let marks = self.ecn.marks(next == Next::New);
        Outgoing { kind: Kind::Data, number, len, marks }
    }

    fn bytes(&self, segments: u32) -> ByteCount {
        ByteCount::new(u64::from(segments) * self.mss)
    }

    fn delivered_bytes(&self) -> ByteCount {
        self.bytes(self.delivery.delivered())
    }

    /// Bytes thought to be in the network.
    pub fn in_flight_bytes(&self) -> ByteCount {
        self.bytes(self.board.in_flight())
    }

    /// The window in force in bytes; 0 before the connection is open.
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// Smoothed round-trip time in nanoseconds, 0 before the first sample.
    pub fn srtt_ns(&self) -> u64 {
        self.rtt.srtt_ns()
    }

    /// Bytes that the application has written, where it always has more: what is acknowledged and
    /// what the send buffer holds.
    pub fn written_bytes(&self) -> u64 {
        if self.handshake != Handshake::Established {
            return 0;
        }
        let all = u64::from(self.stream.end()).saturating_mul(self.mss);
        (u64::from(self.board.una()) * self.mss + self.stack.send_buffer).min(all)
    }

    /// Loss recoveries that have ended, and their length in all.
    pub fn recoveries(&self) -> (u64, u64) {
        (self.recovery.episodes, self.recovery.episodes_ns)
    }
}

/// The time between two timestamps of `tick_ns` each, at least a microsecond.
fn ticked(now: Timestamp, echo: Timestamp, tick_ns: u64) -> u64 {
    let ticks = (now.as_nanos() / tick_ns).saturating_sub(echo.as_nanos() / tick_ns);
    (ticks * tick_ns).max(1_000)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use forebay_core::cc::State;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    /// A window with ssthresh 5 after a loss, and a log of what it was told.
    struct Fixed(Arc<Mutex<Vec<String>>>, u64, u64);

    impl CongestionControl for Fixed {
        fn init(&mut self, _now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
            (self.1, self.2) = (initial_cwnd.as_u64(), mss.as_u64());
        }
        fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {
            let segments = |bytes: ByteCount| bytes.as_u64() / self.2;
            let in_flight = segments(measurement.in_flight.unwrap());
            let acked = segments(measurement.acked);
            self.0.lock().unwrap().push(format!("acked {acked} in flight {in_flight}"));
        }
        fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
            self.0.lock().unwrap().push(format!("{event:?}"));
            if event == CongestionEvent::Rto {
                self.1 = self.2;
            }
        }
        fn send_limits(&self) -> SendLimits {
            let ssthresh = Some(ByteCount::new(5 * self.2));
            SendLimits { cwnd: Some(ByteCount::new(self.1)), ssthresh, ..SendLimits::default() }
        }
        fn state(&self) -> State {
            State::default()
        }
    }

    struct Bench {
        sender: Sender,
        told: Arc<Mutex<Vec<String>>>,
    }

    impl Bench {
        /// A connection that is open since 10 ms and has sent its first window.
        fn new(stack: Stack, bytes: Option<u64>) -> (Self, Vec<u32>) {
            let told = Arc::default();
            let algorithm = Fixed(Arc::clone(&told), 0, 0);
            let mut sender = Sender::new(stack, Box::new(algorithm), bytes);
            sender.start();
            assert_eq!(sender.transmit(at(0)).unwrap().kind, Kind::Syn);
            assert_eq!(sender.transmit(at(0)), None);
            sender.on_syn_ack(at(10), at(0));
            let mut bench = Self { sender, told };
            let sent = bench.sent(10);
            (bench, sent)
        }

        fn sent(&mut self, ms: u64) -> Vec<u32> {
            std::iter::from_fn(|| self.sender.transmit(at(ms))).map(|out| out.number).collect()
        }

        fn ack(&mut self, ms: u64, number: u32, blocks: &[(u32, u32)]) -> Vec<u32> {
            let blocks: Vec<Range> =
                blocks.iter().map(|(start, end)| Range { start: *start, end: *end }).collect();
            self.sender.on_ack(at(ms), number, at(10), &blocks, false);
            self.sent(ms)
        }

        fn told(&self) -> Vec<String> {
            std::mem::take(&mut self.told.lock().unwrap())
        }
    }

    #[test]
    fn the_initial_window_leaves_after_one_round_trip() {
        let (bench, sent) = Bench::new(Stack::NS3, None);
        assert_eq!(sent, (0..10).collect::<Vec<_>>());
        assert_eq!(bench.sender.srtt_ns(), 10 * MS);
    }

    #[test]
    fn a_recovery_repairs_tells_and_reduces() {
        let (mut bench, _) = Bench::new(Stack::NS3, None);
        // Segment 0 is lost. Two duplicates: limited transmit lets 10 and 11 out, nothing is told.
        assert_eq!([bench.ack(20, 0, &[(1, 2)]), bench.ack(20, 0, &[(1, 3)])], [[10], [11]]);
        assert_eq!(bench.told(), ["acked 0 in flight 9"; 2]);
        // The third: 12 outstanding, 3 SACKed, 1 lost.
        assert_eq!(bench.ack(20, 0, &[(1, 4)]), [0]);
        let told = ["acked 0 in flight 8", "Loss", "acked 1 in flight 8"];
        assert_eq!(bench.told(), told);
        // PRR towards 5: every second or third duplicate lets one out.
        let sent: Vec<usize> = (5..=10).map(|end| bench.ack(21, 0, &[(1, end)]).len()).collect();
        assert_eq!(sent.iter().sum::<usize>(), 2, "{sent:?}");
        // The window is the algorithm's again: 10, of which 2 are in flight.
        assert_eq!(bench.ack(30, 12, &[]).len(), 8);
        assert!(bench.told().contains(&"RecoveryEnd".to_string()));
    }

    #[test]
    fn a_partial_acknowledgement_sends_the_next_hole_in_ns3_whatever_the_window_says() {
        let by_prr = Stack { newreno_partial_acks: false, ..Stack::NS3 };
        for (stack, repaired) in [(Stack::NS3, vec![1]), (by_prr, vec![])] {
            let (mut bench, _) = Bench::new(stack, None);
            // Segments 0 and 1 are lost; the first goes out again with the third duplicate.
            let sent = [3, 4, 5].map(|end| bench.ack(20, 0, &[(2, end)]));
            assert_eq!(sent[2], [0]);
            assert_eq!(bench.ack(30, 1, &[(2, 5)]), repaired);
        }
    }

    #[test]
    fn a_timeout_begins_anew_with_one_segment_and_doubles() {
        let (mut bench, _) = Bench::new(Stack::NS3, None);
        bench.sender.on_timeout(at(1010));
        assert_eq!(bench.told(), ["acked 0 in flight 10", "Rto"]);
        assert_eq!(bench.sent(1010), [0]);
        assert_eq!(bench.sender.counters.timeouts, 1);
        assert_eq!(bench.sender.rtt.rto_ns(), 2000 * MS);
        assert_eq!(bench.ack(1020, 1, &[]), [1]);
        assert!(bench.sender.rtt.rto_ns() < 2000 * MS, "something new ends the backing off");
    }

    #[test]
    fn a_flow_ends_with_the_bytes_it_has() {
        let (mut bench, sent) = Bench::new(Stack::NS3, Some(1448 * 2 + 100));
        assert_eq!(sent, [0, 1, 2]);
        assert_eq!(bench.sender.stream.payload(2), 100);
        assert_eq!(bench.ack(20, 3, &[]), [0; 0]);
        assert!(!bench.sender.rto_timer.is_running());
    }

    #[test]
    fn messages_are_sent_as_they_are_written() {
        let mut sender = Sender::new(Stack::LINUX, Box::new(Fixed(Arc::default(), 0, 0)), Some(0));
        sender.establish(at(0), 50 * MS);
        assert_eq!((sender.transmit(at(0)), sender.srtt_ns()), (None, 50 * MS));
        assert_eq!(sender.write(1448 + 16), 2);
        let lens = |sender: &mut Sender, ms| -> Vec<u16> {
            std::iter::from_fn(|| sender.transmit(at(ms))).map(|out| out.len).collect()
        };
        assert_eq!(lens(&mut sender, 5), [1514, 82]);
        assert_eq!(sender.write(100), 3);
        assert_eq!(lens(&mut sender, 6), [166]);
        sender.on_ack(at(60), 3, at(5), &[], false);
        assert!(sender.transmit(at(60)).is_none() && !sender.rto_timer.is_running());
    }

    #[test]
    fn a_closed_flow_repairs_what_it_sent_and_no_more() {
        let (mut bench, _) = Bench::new(Stack::NS3, None);
        bench.sender.close();
        let sent = [2, 3, 4].map(|end| bench.ack(20, 0, &[(1, end)]));
        assert_eq!(sent, [vec![], vec![], vec![0]]);
        assert_eq!(bench.ack(30, 10, &[]), [0; 0]);
    }

    #[test]
    fn a_lost_request_is_sent_again_after_the_stack_s_first_timeout() {
        let algorithm = Fixed(Arc::default(), 0, 0);
        let mut sender = Sender::new(Stack::LINUX, Box::new(algorithm), None);
        sender.start();
        sender.transmit(at(0)).unwrap();
        sender.on_timeout(at(1000));
        assert_eq!(sender.transmit(at(1000)).unwrap().kind, Kind::Syn);
        sender.on_syn_ack(at(1020), at(1000));
        assert_eq!(sender.srtt_ns(), 0, "Karn: which of the two was answered?");
        assert!(sender.transmit(at(1020)).is_some());
    }

    #[test]
    fn timestamps_count_whole_ticks() {
        let nanos = Timestamp::from_nanos;
        assert_eq!(ticked(nanos(15_900_000), nanos(999_999), MS), 15 * MS);
        assert_eq!(ticked(nanos(16_000_000), nanos(999_999), MS), 16 * MS);
        assert_eq!(ticked(nanos(999_999), nanos(1), MS), 1_000);
    }
}
