//! The sending side of a connection: what to send when, and the reports to the algorithm.
//!
//! ```text
//! SYN ── one round trip ──► window min(cwnd or PRR, buffers), paced if the algorithm wants it
//! send    while pipe + 1 segment ≤ cwnd: lost segments first, then new ones, then rule 3   (RFC 6675, 5 C)
//! ACK     scoreboard → round-trip time → recovery → algorithm → window
//! RTO     all lost, window as the algorithm says (one segment), back off                   (RFC 6298, 5)
//! ```
//! In addition to a measurement for every acknowledgement, the algorithm receives:
//! - Before `Loss` and `Rto`, a measurement with the bytes in flight alone. RFC 5681 (equation 4) halves the
//!   FlightSize at the time of the loss.
//! - For a mark (classic ECN), the same. With accurate ECN and in L4S there is no event, but the marked
//!   bytes.
//! - The bytes of duplicate acknowledgements with the next one that moves SND.UNA: the window does not grow
//!   on duplicates (RFC 3042 section 2).
//!
//! In a recovery PRR controls the window of an algorithm with an ssthresh. An algorithm without one (a fixed
//! window, a rate) keeps its own window. If an algorithm sets no window, as much may be outstanding as the
//! buffers hold.

mod alarms;
mod doubts;
mod persist;
#[cfg(test)]
mod script;
mod sending;
mod state;
mod telling;
#[cfg(test)]
mod tests;
mod unused;
#[cfg(test)]
mod window_tests;

use std::sync::Arc;

use forebay_core::cc::{CongestionControl, CongestionEvent, Field, SendLimits};
use forebay_core::units::{ByteCount, Duration, Rate, Timestamp};

use self::alarms::Alarm;
use self::persist::PeerWindow;
pub use self::state::{Rtt, TcpState};
use super::delivery::{Delivery, Sample};
use super::dsack;
use super::ecn::Answers;
use super::frto::Frto;
use super::prr::Prr;
use super::recovery::{Phase, Recovery, Turn};
use super::rto::RttEstimator;
use super::scoreboard::{Progress, Scoreboard};
use super::stack::{RttSource, Tcp};
use super::stream::Stream;
use super::tlp::Probe;
use super::undo::Undo;
use super::validation::Validation;
use crate::event::{Timer, after, nanos_between};
use crate::packet::{Kind, MarkCounts, Marks, Range};

/// Fields of a measurement that the simulator's sender can fill.
pub const SUPPLIED: &[Field] = &[
    Field::Lost,
    Field::EcnCe,
    Field::Ect1,
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
    /// [`Kind::Syn`], [`Kind::Data`] or [`Kind::WindowProbe`].
    pub kind: Kind,
    /// Number of the segment.
    pub number: u32,
    /// Bytes on the wire.
    pub len: u16,
    /// Marks of the segment.
    pub marks: Marks,
}

/// Limits of the algorithm that a sender needs between two decisions. They are no `Option`s, because one
/// would be copied whole right after its two halves were written.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes; [`UNBOUNDED`] for none.
    cwnd: u64,
    /// Bytes; [`u64::MAX`] for none.
    ssthresh: u64,
    paces: bool,
    /// Pacing rate; zero without pacing.
    pacing_rate: Rate,
}

impl Limits {
    /// No limit.
    const NONE: Self =
        Self { cwnd: UNBOUNDED, ssthresh: u64::MAX, paces: false, pacing_rate: Rate::ZERO };

    #[inline]
    fn of(limits: &SendLimits) -> Self {
        Self {
            cwnd: limits.cwnd.map_or(UNBOUNDED, ByteCount::as_u64),
            ssthresh: limits.ssthresh.map_or(u64::MAX, ByteCount::as_u64),
            paces: limits.pacing_rate.is_some(),
            pacing_rate: limits.pacing_rate.unwrap_or(Rate::ZERO),
        }
    }
}

/// Source of the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Again(u32),
    New,
    /// The last segment again.
    Probe,
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Segments sent, including retransmissions.
    pub sent: u64,
    /// Retransmitted segments.
    pub resent: u64,
    /// Timeouts of data.
    pub timeouts: u64,
    /// Reductions of the window that were undone.
    pub undone: u64,
}

/// One connection's sender.
pub(crate) struct Sender {
    board: Scoreboard,
    delivery: Delivery,
    algorithm: Box<dyn CongestionControl>,
    mss: u64,
    /// Segments that may be outstanding: the room in both buffers, or the receiver's window.
    buffered_segments: u32,
    /// The window of a receiver that announces a changing one with each acknowledgement.
    window: Option<Box<PeerWindow>>,
    stream: Stream,
    tcp: Arc<Tcp>,
    state: State,
    /// The timer of retransmissions, and of probes and RACK.
    pub rto_timer: Timer,
    /// When pacing lets the next segment go.
    pub pacing_timer: Timer,
    /// When the algorithm wants to be called.
    pub algorithm_timer: Timer,
    /// Counters of the connection.
    pub counters: Counters,
}

/// State that every connection begins anew with. It owns no heap memory, so it is written in place.
#[derive(Clone, Copy)]
struct State {
    recovery: Recovery,
    prr: Option<Prr>,
    rtt: RttEstimator,
    limits: Limits,
    /// The window in force, in bytes.
    cwnd: u64,
    handshake: Handshake,
    /// A request must be sent.
    is_request_due: bool,
    /// One segment must be sent, whatever the window says.
    is_forced: bool,
    /// A tail loss probe must be sent.
    probing: Option<Next>,
    /// The unanswered probe.
    probe: Option<Probe>,
    alarm: Alarm,
    ecn: Answers,
    /// The current acknowledgement carries ECE.
    is_ece: bool,
    validation: Validation,
    undo: Undo,
    frto: Frto,
    /// New segments precede repairs until the next acknowledgement.
    prefers_new: bool,
    /// Bytes written when the application closed; those not sent then are dropped.
    closed_bytes: Option<u64>,
    /// Segments delivered by duplicate acknowledgements, not yet reported to the algorithm.
    untold: u32,
    one_way_ms: Option<u32>,
    /// Age of the echo in the current acknowledgement, to report with the one-way delay.
    echo_age: Option<Duration>,
    /// Set from a timeout to the end of its repair.
    has_timed_out: bool,
    measured_at: Timestamp,
    paced_until: Timestamp,
}

impl State {
    #[inline]
    fn new(tcp: &Tcp) -> Self {
        Self {
            recovery: Recovery::new(tcp.entry_looks_above_head),
            prr: None,
            rtt: RttEstimator::new(tcp),
            limits: Limits::NONE,
            cwnd: 0,
            handshake: Handshake::Closed,
            is_request_due: false,
            is_forced: false,
            probing: None,
            probe: None,
            alarm: Alarm::Timeout,
            ecn: Answers::new(tcp.ecn),
            is_ece: false,
            validation: Validation::new(Timestamp::ZERO),
            undo: Undo::default(),
            frto: Frto::default(),
            prefers_new: false,
            closed_bytes: None,
            untold: 0,
            one_way_ms: None,
            echo_age: None,
            has_timed_out: false,
            measured_at: Timestamp::ZERO,
            paced_until: Timestamp::ZERO,
        }
    }
}

impl Sender {
    /// A sender of `bytes` of payload; `None`: without end.
    pub fn new(
        tcp: impl Into<Arc<Tcp>>,
        algorithm: Box<dyn CongestionControl>,
        bytes: Option<u64>,
    ) -> Self {
        let tcp = tcp.into();
        let keeps_repairs = tcp.sacked_repairs_in_flight;
        let board = match &*tcp {
            Tcp { rack: true, .. } => Scoreboard::with_rack(),
            Tcp { sack: false, .. } => Scoreboard::with_guesses(),
            _ => Scoreboard::new(keeps_repairs),
        };
        Self {
            board,
            delivery: Delivery::new(tcp.samples_rates, tcp.keeps_rate_samples),
            algorithm,
            mss: u64::from(tcp.mss),
            buffered_segments: tcp.sent_segments().min(tcp.received_segments()),
            window: None,
            stream: Stream::new(tcp.mss, bytes),
            state: State::new(&tcp),
            rto_timer: Timer::STOPPED,
            pacing_timer: Timer::STOPPED,
            algorithm_timer: Timer::STOPPED,
            counters: Counters::default(),
            tcp,
        }
    }

    /// Starts over, after a release, as the sender of another connection with `bytes` of payload. Keeps
    /// memory and the planned events of its timers.
    pub fn renew(&mut self, algorithm: Box<dyn CongestionControl>, bytes: u64) {
        self.state = State::new(&self.tcp);
        self.delivery = Delivery::new(self.tcp.samples_rates, self.tcp.keeps_rate_samples);
        self.algorithm = algorithm;
        self.stream.renew(bytes);
        self.counters = Counters::default();
        for timer in [&mut self.rto_timer, &mut self.pacing_timer, &mut self.algorithm_timer] {
            timer.stop();
        }
    }

    /// Opens the connection.
    pub fn start(&mut self) {
        self.state.handshake = Handshake::Requested { is_ambiguous: false };
        self.state.is_request_due = true;
    }

    /// The connection was opened before the run; its handshake took `rtt_ns`.
    pub fn establish(&mut self, now: Timestamp, rtt_ns: u64) {
        self.state.rtt.on_sample(rtt_ns);
        self.accept(now);
    }

    /// The other end has opened the connection.
    pub fn accept(&mut self, now: Timestamp) {
        self.state.handshake = Handshake::Established;
        self.begin(now);
    }

    /// The connection is open.
    pub fn is_open(&self) -> bool {
        self.state.handshake == Handshake::Established
    }

    /// The other end has measured the round trip of its handshake, sent at `echo`.
    pub fn learn_rtt(&mut self, now: Timestamp, echo: Timestamp) {
        self.state.rtt.on_sample(match self.tcp.rtt_source {
            RttSource::Timestamps { tick_ns } => ticked(now, echo, tick_ns),
            RttSource::Segments => nanos_between(echo, now),
        });
    }

    /// The first segment not acknowledged.
    pub fn una(&self) -> u32 {
        self.board.una()
    }

    /// The retransmission timeout in force, in nanoseconds.
    pub fn rto_ns(&self) -> u64 {
        self.state.rtt.rto_ns()
    }

    /// Ends the connection: no timer fires any more, and a large window frees its memory.
    pub fn release(&mut self) {
        for timer in [&mut self.rto_timer, &mut self.pacing_timer, &mut self.algorithm_timer] {
            timer.stop();
        }
        self.board.empty();
    }

    /// The application writes `bytes` more. Returns the number after the segment with the last byte.
    pub fn write(&mut self, bytes: u64) -> u32 {
        self.stream.write(bytes, self.board.next())
    }

    /// The application of a flow without end stops writing: no unsent segment follows.
    pub fn close(&mut self) {
        self.state.closed_bytes = Some(self.written_bytes());
        self.stream.close(self.board.next());
    }

    /// The request is answered; `echo` is its send time.
    pub fn on_syn_ack(&mut self, now: Timestamp, echo: Timestamp) {
        let Handshake::Requested { is_ambiguous } = self.state.handshake else { return };
        self.state.handshake = Handshake::Established;
        self.rto_timer.stop();
        match self.tcp.rtt_source {
            RttSource::Timestamps { tick_ns } => {
                self.state.rtt.on_sample(ticked(now, echo, tick_ns));
            }
            RttSource::Segments if !is_ambiguous => {
                self.state.rtt.on_sample(nanos_between(echo, now))
            }
            RttSource::Segments => {}
        }
        self.begin(now);
    }

    fn begin(&mut self, now: Timestamp) {
        self.state.measured_at = now;
        self.state.validation = Validation::new(now);
        let mss = ByteCount::new(self.mss);
        self.algorithm.init(now, mss, mss * u64::from(self.tcp.initial_window));
        if self.tcp.tells_handshake {
            self.tell_handshake(now);
        }
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
        // An overtaken acknowledgement is ignored, and so is one for segments that were never sent (RFC 9293
        // section 3.10.7.4).
        let is_acceptable = number.wrapping_sub(before) <= self.board.outstanding();
        if !is_acceptable || self.state.handshake != Handshake::Established {
            return;
        }
        let duplicate = dsack::duplicate(number, blocks);
        let into_tick = Duration::from_nanos(echo.as_nanos() % TIMESTAMP_TICK_NS);
        let echo_age = || now.saturating_since(echo) + into_tick;
        self.state.echo_age = self.tcp.tells_one_way.then(echo_age);
        self.board.begin_ack(now, self.state.rtt.min_ns());
        let lost_before = self.board.lost();
        let mut progress = self.board.acknowledge(number, blocks);
        let has_advanced = self.board.una() > before;
        let sample = self.take_sample(now, &progress);
        let rtt_ns = self.take_rtt(now, echo, has_advanced, &progress);
        if has_advanced {
            self.state.rtt.reset_backoff();
            self.stream.forget(number);
        }
        (self.state.prefers_new, self.state.is_ece) = (false, is_ece);
        self.judge_probe(now, &progress, duplicate, has_advanced);
        self.doubt(now, echo, &progress, duplicate, has_advanced);
        let look_again = self.judge(now, &mut progress, duplicate);
        let before_guess = self.board.in_flight();
        let is_duplicate =
            if self.board.is_guessed() { self.guess(has_advanced) } else { progress.sacked > 0 };
        let turn = self.state.recovery.on_ack(now, &self.board, is_duplicate, has_advanced);
        if !self.doubt_recovery(now, echo, turn) {
            self.turn(now, turn, &mut progress);
        }
        progress.lost_change = self.board.lost().abs_diff(lost_before);
        let acked = self.acked(&progress, before, turn);
        let recovering = self.recovering_window();
        self.measure(now, &progress, sample, rtt_ns, acked);
        self.answer_marks(now);
        self.take_limits();
        // ns-3's PRR uses the bytes in flight before the guess (m_bytesInFlight in DoRecovery).
        let is_guess = self.board.is_guessed() && is_duplicate && turn == Turn::None;
        let in_flight = if is_guess { before_guess } else { self.board.in_flight() };
        self.reduce_proportionally(&progress, self.bytes(in_flight), is_duplicate, has_advanced);
        self.obey_below(recovering);
        if look_again.is_some() || (has_advanced && self.restarts_timer(turn)) {
            self.set_alarm(now, look_again);
        }
    }

    /// Without SACK: true for a duplicate, which counts as the arrival of a segment.
    fn guess(&mut self, has_advanced: bool) -> bool {
        let is_duplicate =
            !has_advanced && self.board.outstanding() > 0 && !self.is_window_update();
        if has_advanced {
            self.board.correct_head();
        } else if is_duplicate && self.state.recovery.phase() != Phase::Loss {
            self.board.guess_arrival();
        }
        is_duplicate
    }

    /// One-way delay of the segment that the next acknowledgement echoes.
    pub fn learn_one_way(&mut self, millis: Option<u32>) {
        self.state.one_way_ms = millis;
    }

    /// The receiver's counts in the next acknowledgement.
    pub fn learn_counts(&mut self, counts: MarkCounts) {
        self.state.ecn.learn(counts);
    }

    fn take_sample(&mut self, now: Timestamp, progress: &Progress) -> Sample {
        let Some(newest) = progress.newest else { return Sample::default() };
        let mss = ByteCount::new(self.mss);
        let min_rtt_ns = match self.tcp.rtt_source {
            // TcpSocketState::m_minRtt.
            RttSource::Timestamps { .. } => self.state.rtt.min_smoothed_ns(),
            RttSource::Segments => self.state.rtt.min_ns(),
        };
        self.delivery.on_ack(now, progress.delivered, newest, mss, min_rtt_ns)
    }

    fn take_rtt(
        &mut self,
        now: Timestamp,
        echo: Timestamp,
        has_advanced: bool,
        progress: &Progress,
    ) -> Option<u64> {
        let rtt_ns = match self.tcp.rtt_source {
            RttSource::Timestamps { tick_ns } => {
                if progress.is_head_original {
                    self.state.rtt.on_sample(ticked(now, echo, tick_ns));
                }
                return Some(self.state.rtt.srtt_ns()).filter(|srtt_ns| *srtt_ns > 0);
            }
            RttSource::Segments => match progress.unambiguous {
                Some(at) => nanos_between(at, now),
                None if has_advanced => ticked(now, echo, TIMESTAMP_TICK_NS),
                None => return None,
            },
        };
        self.state.rtt.on_sample(rtt_ns);
        Some(rtt_ns)
    }

    fn turn(&mut self, now: Timestamp, turn: Turn, progress: &mut Progress) {
        match turn {
            Turn::None => {}
            Turn::Enter => {
                if self.board.is_guessed() {
                    // The head is sent now, whether it was sent again before or not (ns-3,
                    // TcpSocketBase::EnterRecovery).
                    self.board.lose_head(progress);
                } else if !self.board.has_rack() {
                    self.board.mark_head_lost(progress);
                }
                let cwnd = self.state.cwnd;
                if self.tcp.undo {
                    self.state.undo.arm(self.board.una());
                }
                self.tell_loss(now, CongestionEvent::Loss);
                self.state.prr = self.begin_reduction(cwnd);
                self.state.is_forced = true;
                self.state.probe = None;
            }
            Turn::Partial { .. } => {
                if self.board.is_guessed() {
                    self.board.lose_head(&mut Progress::default());
                }
                let is_due = self.tcp.newreno_partial_acks && !self.board.is_head_resent();
                self.state.is_forced |= is_due;
            }
            Turn::End => {
                self.state.prr = None;
                self.state.is_forced = false;
                self.board.on_recovery_end();
                self.algorithm.on_event(now, CongestionEvent::RecoveryEnd);
            }
        }
    }

    fn restarts_timer(&self, turn: Turn) -> bool {
        !self.tcp.newreno_partial_acks || turn != Turn::Partial { is_first: false }
    }

    fn restart_rto(&mut self, now: Timestamp) {
        self.state.alarm = Alarm::Timeout;
        if self.board.outstanding() == 0 {
            self.rto_timer.stop();
            return;
        }
        let rto_at = after(now, self.state.rtt.rto_ns());
        if !self.plan_probe(now, rto_at) {
            self.rto_timer.set(rto_at);
        }
    }

    /// The retransmission timer has expired.
    pub fn on_timeout(&mut self, now: Timestamp) {
        if self.serve_alarm(now) {
            return;
        }
        self.state.rtt.back_off();
        if self.state.handshake != Handshake::Established {
            self.state.handshake = Handshake::Requested { is_ambiguous: true };
            self.state.is_request_due = true;
            return;
        }
        if self.board.outstanding() == 0 {
            return;
        }
        self.counters.timeouts += 1;
        self.tell_loss(now, CongestionEvent::Rto);
        self.arm_undo();
        self.state.frto.on_timeout(if self.tcp.frto {
            self.state.recovery.phase()
        } else {
            Phase::Recovery
        });
        // The head is sent again even if young segments, which RACK does not mark as lost, fill the window.
        self.state.is_forced = self.board.has_rack();
        if self.board.has_rack() {
            self.board.lose_timed_out(now);
        } else {
            if self.board.is_guessed() {
                self.board.forget_guesses();
            }
            self.board.mark_all_lost();
        }
        self.state.recovery.on_timeout(now, &self.board);
        self.state.prr = None;
        self.state.probe = None;
        self.state.untold = 0;
        self.state.has_timed_out = true;
        self.state.paced_until = now;
        self.take_limits();
    }

    /// How often the algorithm exceeded the bounds of its limits and was clamped.
    pub fn clamped(&self) -> u64 {
        self.algorithm.clamped()
    }

    /// The algorithm's own timer has expired.
    pub fn on_algorithm_timer(&mut self, now: Timestamp) {
        self.algorithm.on_timer(now);
        self.take_limits();
    }

    fn bytes(&self, segments: u32) -> ByteCount {
        ByteCount::new(u64::from(segments) * self.mss)
    }

    /// Bytes that have arrived according to acknowledgements.
    pub fn delivered_bytes(&self) -> ByteCount {
        self.bytes(self.delivery.delivered())
    }

    /// Bytes thought to be in the network.
    pub fn in_flight_bytes(&self) -> ByteCount {
        self.bytes(self.board.in_flight())
    }

    /// The window in force in bytes; 0 before the connection is open.
    pub fn cwnd(&self) -> u64 {
        self.state.cwnd
    }

    /// Smoothed round-trip time in nanoseconds, 0 before the first sample.
    pub fn srtt_ns(&self) -> u64 {
        self.state.rtt.srtt_ns()
    }

    /// Bytes written by an application that always has more: the acknowledged bytes and the send buffer.
    pub fn written_bytes(&self) -> u64 {
        if self.state.handshake != Handshake::Established {
            return 0;
        }
        if let Some(bytes) = self.state.closed_bytes {
            return bytes;
        }
        let all = u64::from(self.stream.end()).saturating_mul(self.mss);
        (u64::from(self.board.una()) * self.mss + self.tcp.send_buffer).min(all)
    }

    /// Rate of payload for a source that adapts: the algorithm's, or a window in a smoothed round trip, but at
    /// most the pace.
    pub fn source_rate(&self) -> Option<Rate> {
        let limits = self.algorithm.send_limits();
        let srtt = Duration::from_nanos(self.srtt_ns());
        let of_window = || {
            let of_cwnd = limits.cwnd.and_then(|cwnd| cwnd.per(srtt));
            [of_cwnd, limits.pacing_rate].into_iter().flatten().min()
        };
        self.algorithm.source_rate().or_else(of_window)
    }

    /// The first segment that has never been sent.
    pub fn next(&self) -> u32 {
        self.board.next()
    }

    /// Number of loss recoveries that have ended, and their total length (ns).
    pub fn recoveries(&self) -> (u64, u64) {
        (self.state.recovery.episodes, self.state.recovery.episodes_ns)
    }
}

/// The time between two timestamps in ticks of `tick_ns`, at least a microsecond.
fn ticked(now: Timestamp, echo: Timestamp, tick_ns: u64) -> u64 {
    let ticks = (now.as_nanos() / tick_ns).saturating_sub(echo.as_nanos() / tick_ns);
    (ticks * tick_ns).max(1_000)
}
