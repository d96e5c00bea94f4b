//! BBR, version 1.
//!
//! ```text
//! B   largest delivery rate of the last 10 rounds        T   least round trip of the last 10 s
//! pacing = 0.99 g B           window = c B T + 3 send quanta
//!
//!             B grew by < 25 % in          in flight <= B T
//!             each of 3 rounds
//! startup ──────────────────────► drain ──────────────────► probe_bw ◄───────┐
//! g = c = 2.885                   g = 1/2.885               g = 5/4, 3/4,    │
//!    ▲                            c = 2.885                 1 x 6; c = 2     │ once 4 segments have
//!    └───── (pipe not full) ─── probe_rtt ◄── from any, T not seen for 10 s  │ been in flight for a
//!                               window 4 segments ───────────────────────────┘ round and 200 ms
//! ```
//! A round ends when a packet is acknowledged that was sent after the round began ([`super::rounds`]). A gain
//! of probe_bw holds for T. The gain 5/4 also holds until the window is full or a packet is lost. The gain
//! 3/4 ends earlier once B T is in flight. The first gain is drawn, but is never 3/4.
//!
//! **Loss.** As in the draft: entering recovery, as many bytes may be sent as arrive, for a round. Lost bytes
//! leave the window. At the end of the recovery the window from before comes back. There is no `ssthresh`: a
//! host whose own recovery lowers the window to it has to leave BBR's window alone.
//!
//! Departures from draft-cardwell-iccrg-bbr-congestion-control-00, with reasons:
//! - `pacing_margin`: 1 % below the gain times B, as Linux has it (bbr_pacing_margin_percent). A sender that
//!   paces at exactly B never empties a queue. The value 0 paces as the draft and ns-3.37 do.
//! - In the phase of 5/4 the window is 2 segments larger (tcp_bbr.c), or else a path of few segments
//!   would not be probed.
//! - Packets sent in probe_rtt count as app-limited here and not in the host. Its 200 ms are more than ten
//!   rounds on a short path, and B would be forgotten.
//! - A bundle keeps half of B T outstanding in probe_rtt, as later versions of BBR do (draft-ietf-ccwg-bbr,
//!   BBR.ProbeRTTCwndGain), and not 4 segments. With 4 segments few reports came, so probe_rtt lasted 2.5 s in
//!   `bundler/sendbox_cc`, and B was forgotten meanwhile.
//! - A restart from idle needs the silence of a timeout, which hosts report (`IdleRestart`). The draft
//!   (section 4.3.4.4), Linux and ns-3 restart wherever a sender that is app-limited finds nothing in flight.
//!   After a shorter pause probe_bw here keeps its present gain, so that a burst may leave at 5/4 B. Then
//!   probe_rtt may begin although the pause has emptied the queue.
//! - In Linux (bbr_cwnd_event) and ns-3 (CwndEvent) a restart ends probe_rtt once its 200 ms are over. Here
//!   the window is four segments for a round trip more.
//! - Linux detects policers (lt_bw). If two intervals of at least four rounds each lose a fifth, at rates within an
//!   eighth of each other, it paces at that rate for 48 rounds. The draft and this do not, and go on to lose there.
//! - Linux adds aggregated ACKs to the window (extra_acked: the most within 5 to 10 rounds that came beyond B, at most
//!   100 ms of B). The draft and this do not, and have less throughput where ACKs come in bunches, as over Wi-Fi.
//! - Further differences of Linux: a delayed ACK does not replace an old T, and B is estimated and held for a
//!   round more (as in ns-3, `max_rate.rs`). The window is rounded up to an even number of segments. A
//!   timeout leaves one segment more than is in flight, instead of one.
//!
//! **ns-3.37** (`as_ns3`) differs:
//! - The send quantum is one segment whatever the rate.
//! - It means to measure ACK aggregation, but counts elapsed time in whole seconds and ends an epoch at 4096
//!   bytes. So it adds two segments to the window.
//! - In a recovery as many bytes are sent as arrive only to the end of the round under way. Bytes that cease
//!   to count as lost leave the window, as newly lost bytes do. The window grows by the delivered bytes. A
//!   recovery ends with B T of the end of startup in the window, as ns-3's TCP sets it to ssthresh. A
//!   recovery that ends before lets startup send without a window, and startup ends with four segments
//!   (`ns3.rs`). A timeout restores no window.
//! - Packets sent in probe_rtt count as samples of B. After probe_rtt, a larger window from before an earlier
//!   loss comes back. probe_bw does not begin with the gain behind 3/4, either.
//! - T begins with the round trip of the handshake, which the host reports. It is shorter than any round trip
//!   of a full segment, so it is 10 s old 10 s after the start. B is an estimate that holds for 11 rounds
//!   (`max_rate.rs`).
//!
//! Ranges: rates 8 bit/s to 18 Ebit/s, windows and products saturate at 2^64 - 1 bytes. Gains are in
//! 1/256, the margin in 1/1024.

mod max_rate;
mod ns3;
mod probe_rtt;
#[cfg(test)]
mod tests;
mod window;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;

use self::max_rate::MaxRate;
use super::rounds::Rounds;
use super::{
    Algorithm, CongestionControl, CongestionEvent, Field, Interim, Measurement, SendLimits, State,
};
use crate::random::{Stream, Streams};
use crate::spec::{Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bbr",
    summary: "BBR version 1: paced at the bottleneck rate, two bandwidth-delay products outstanding",
    sources: &[
        "draft-cardwell-iccrg-bbr-congestion-control-00",
        "Cardwell et al.: BBR: Congestion-based congestion control, ACM Queue 14(5), 2016",
        "linux/net/ipv4/tcp_bbr.c",
    ],
    params: &[&PACING_MARGIN],
    needs: &[Field::Rtt, Field::DeliveryRate, Field::InFlight],
    min_window_mss: 1.0,
    batch_tolerance: 0.05,
    build: &build,
};

/// Pacing margin (Linux `bbr_pacing_margin_percent`: 1 %). A larger one keeps queues shorter and
/// gives up that share of the rate.
const PACING_MARGIN: Param<Margin> = Param::new(
    "pacing_margin",
    "share by which pacing stays below the gain times the bottleneck rate",
)
.or(Margin(0.01))
.within(Margin(0.0)..=Margin(0.5));

/// Gains are multiples of 1/256.
const UNIT: u64 = 256;
/// 2 / ln 2: the least gain that doubles the delivery rate each round (draft, section 4.3.2.1).
const HIGH_GAIN: u64 = 739;
/// Inverse of the startup gain: drains startup's queue in about one round (draft, section 4.3.3).
const DRAIN_GAIN: u64 = 88;
/// The gains of probe_bw, one for about a round trip each (draft, section 4.3.4.1).
const CYCLE: [u64; 8] = [320, 192, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// Window gain of probe_bw: room for delayed and aggregated ACKs (draft, section 4.3.4.1).
const CWND_GAIN: u64 = 2 * UNIT;
/// Rounds over which the bottleneck rate is a maximum (draft, section 4.1.1.2).
const BANDWIDTH_ROUNDS: u64 = 10;
/// Rounds without a quarter more after which the pipe counts as full (draft, section 4.3.2.2).
const FULL_ROUNDS: u32 = 3;
/// Denominator of the pacing margin.
const MARGIN_UNIT: u64 = 1024;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(Box::new(Bbr::new(paced(spec)?, false)))
}

/// BBR as in ns-3.37 (TcpBbr).
pub(super) fn as_ns3(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(Box::new(Bbr::new(paced(spec)?, true)))
}

/// Pacing rate over gain times bottleneck rate, in 1/1024.
fn paced(spec: &Spec) -> Result<u64, SpecError> {
    let Margin(margin) = PACING_MARGIN.of(spec)?;
    Ok(MARGIN_UNIT - (margin * MARGIN_UNIT as f64) as u64)
}

/// A share written in percent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Margin(f64);

impl Quantity for Margin {
    /// A value of `pacing_margin`.
    const WHAT: &'static str = "a share";
    fn read(text: &str) -> Option<Self> {
        Ratio::read(text).map(|share| Self(share.as_f64()))
    }
    fn written(&self) -> String {
        if self.0 == 0.0 { "0".into() } else { alloc::format!("{}%", 100.0 * self.0) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BbrPhase {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    Open,
    /// A loss was announced; its measurement has not come.
    Entering,
    /// Only arriving bytes may be replaced by new ones, until a packet is acknowledged that was sent after
    /// this many bytes had been delivered.
    Conserving(ByteCount),
    Recovering,
}

struct Bbr {
    /// Pacing rate over gain times bottleneck rate, in 1/1024.
    paced: u64,
    is_ns3: bool,
    mss: ByteCount,
    initial_cwnd: ByteCount,
    phase: BbrPhase,
    recovery: Recovery,
    bandwidth: MaxRate,
    min_rtt: Option<Duration>,
    min_rtt_at: Timestamp,
    is_min_rtt_expired: bool,
    rounds: Rounds,
    round_count: u64,
    is_round_start: bool,
    /// Bottleneck rate that startup last saw grow, and rounds since.
    full_bandwidth: Rate,
    full_rounds: u32,
    is_pipe_full: bool,
    cycle_index: usize,
    cycle_at: Timestamp,
    /// In probe_rtt: when it may end, and whether a round has passed.
    probe_rtt_until: Option<Timestamp>,
    is_probe_rtt_round_done: bool,
    /// Packets sent before this many bytes were delivered were held back by probe_rtt.
    held_back_until: Option<ByteCount>,
    is_idle_restart: bool,
    /// The algorithm steers many flows: the host has a queue of its own.
    is_bundle: bool,
    in_flight: ByteCount,
    cwnd: ByteCount,
    prior_cwnd: ByteCount,
    /// B T at the end of startup: the window after a recovery in ns-3.
    ssthresh: Option<ByteCount>,
    /// Bytes delivered up to the previous measurement.
    delivered: ByteCount,
    pacing_rate: Rate,
    draws: Stream,
    reason: &'static str,
}

/// `value` times `by` parts of `unit`; saturates.
pub(super) fn scale(value: u64, by: u64, unit: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(unit)).unwrap_or(u64::MAX)
}

impl Bbr {
    fn new(paced: u64, is_ns3: bool) -> Self {
        Self {
            paced,
            is_ns3,
            mss: ByteCount::new(1460),
            initial_cwnd: ByteCount::new(14_600),
            phase: BbrPhase::Startup,
            recovery: Recovery::Open,
            bandwidth: MaxRate::new(is_ns3),
            min_rtt: None,
            min_rtt_at: Timestamp::ZERO,
            is_min_rtt_expired: false,
            rounds: Rounds::default(),
            round_count: 0,
            is_round_start: false,
            full_bandwidth: Rate::ZERO,
            full_rounds: 0,
            is_pipe_full: false,
            cycle_index: 0,
            cycle_at: Timestamp::ZERO,
            probe_rtt_until: None,
            is_probe_rtt_round_done: false,
            held_back_until: None,
            is_idle_restart: false,
            is_bundle: false,
            in_flight: ByteCount::ZERO,
            cwnd: ByteCount::new(14_600),
            prior_cwnd: ByteCount::ZERO,
            ssthresh: None,
            delivered: ByteCount::ZERO,
            pacing_rate: Rate::ZERO,
            draws: Streams::new(0).stream("bbr"),
            reason: "no measurement yet",
        }
    }

    fn pacing_gain(&self) -> u64 {
        match self.phase {
            BbrPhase::Startup => HIGH_GAIN,
            BbrPhase::Drain => DRAIN_GAIN,
            BbrPhase::ProbeBw => CYCLE[self.cycle_index],
            BbrPhase::ProbeRtt => UNIT,
        }
    }

    fn cwnd_gain(&self) -> u64 {
        match self.phase {
            BbrPhase::Startup | BbrPhase::Drain => HIGH_GAIN,
            BbrPhase::ProbeBw => CWND_GAIN,
            BbrPhase::ProbeRtt => UNIT,
        }
    }

    fn update_round(&mut self, measurement: &Measurement) {
        self.is_round_start = self.rounds.on_measurement(measurement);
        self.round_count += u64::from(self.is_round_start);
        if let Recovery::Conserving(from) = self.recovery
            && (measurement.prior_delivered >= from || self.is_ns3 && self.is_round_start)
        {
            self.recovery = Recovery::Recovering;
        }
    }

    fn is_app_limited(&self, measurement: &Measurement) -> bool {
        let is_held_back = |until| measurement.prior_delivered <= until && !self.is_ns3;
        measurement.app_limited || self.held_back_until.is_some_and(is_held_back)
    }

    fn update_bandwidth(&mut self, measurement: &Measurement) {
        let Some(rate) = measurement.delivery_rate.filter(|rate| *rate > Rate::ZERO) else {
            return;
        };
        // A sender that had too little to send shows less than the path carries.
        if rate >= self.bandwidth.value() || !self.is_app_limited(measurement) {
            self.bandwidth.push(self.round_count, rate);
        }
    }

    fn check_cycle(&mut self, now: Timestamp, measurement: &Measurement) {
        if self.phase != BbrPhase::ProbeBw {
            return;
        }
        let lost = measurement.lost.unwrap_or_default();
        let before = self.in_flight_before(measurement);
        let min_rtt = self.min_rtt.unwrap_or_default();
        let has_lasted = now.saturating_since(self.cycle_at) > min_rtt;
        let gain = self.pacing_gain();
        let is_over = if gain > UNIT {
            has_lasted && (lost > ByteCount::ZERO || before >= self.inflight_at(gain))
        } else if gain < UNIT {
            has_lasted || before <= self.inflight_at(UNIT)
        } else {
            has_lasted
        };
        if is_over {
            self.enter_cycle(now, self.cycle_index + 1);
        }
    }

    fn enter_cycle(&mut self, now: Timestamp, index: usize) {
        self.cycle_index = index % CYCLE.len();
        self.cycle_at = now;
    }

    fn check_full_pipe(&mut self, measurement: &Measurement) {
        if self.is_pipe_full || !self.is_round_start || self.is_app_limited(measurement) {
            return;
        }
        let bandwidth = self.bandwidth.value();
        let grown = scale(self.full_bandwidth.as_bits_per_sec(), 5, 4);
        if bandwidth.as_bits_per_sec() >= grown {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_pipe_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, now: Timestamp) {
        if self.phase == BbrPhase::Startup && self.is_pipe_full {
            self.phase = BbrPhase::Drain;
            self.reason = "rate no longer grows";
            self.ssthresh = Some(self.inflight_at(UNIT));
        }
        if self.phase == BbrPhase::Drain && self.in_flight <= self.inflight_at(UNIT) {
            self.enter_probe_bw(now);
        }
    }

    fn enter_probe_bw(&mut self, now: Timestamp) {
        self.phase = BbrPhase::ProbeBw;
        self.reason = "probing for bandwidth";
        // Any gain but 3/4: flows that probe together would only drain each other's queues. ns-3 also leaves
        // out the gain behind 3/4 (TcpBbr::EnterProbeBW).
        let left_out = if self.is_ns3 { 2 } else { 1 };
        let drawn = self.draws.below((CYCLE.len() - left_out) as u64) as usize;
        self.enter_cycle(now, if drawn == 0 { 0 } else { drawn + left_out });
    }

    fn paced(&self, rate: Rate) -> Rate {
        let bits = scale(rate.as_bits_per_sec(), self.pacing_gain(), UNIT);
        Rate::from_bits_per_sec(scale(bits, self.paced, MARGIN_UNIT))
    }

    fn set_pacing_rate(&mut self) {
        let rate = self.paced(self.bandwidth.value());
        if rate > Rate::ZERO && (self.is_pipe_full || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// Searches for the bottleneck rate again; the round trip stays.
    fn restart(&mut self) {
        self.phase = BbrPhase::Startup;
        self.recovery = Recovery::Open;
        self.bandwidth.clear();
        self.full_bandwidth = Rate::ZERO;
        self.full_rounds = 0;
        self.is_pipe_full = false;
        self.held_back_until = None;
        self.cwnd = self.cwnd.max(self.initial_cwnd);
        self.reason = "waiting for reports";
    }
}

impl CongestionControl for Bbr {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss = mss.max(ByteCount::new(1));
        self.initial_cwnd = initial_cwnd.max(self.mss);
        self.cwnd = self.initial_cwnd;
        self.min_rtt_at = now;
        // Until a round trip is known, the draft's nominal one of 1 ms.
        let nominal = self.cwnd.per(Duration::from_millis(1)).unwrap_or(Rate::MAX);
        self.pacing_rate = self.paced(nominal);
    }

    fn set_seed(&mut self, seed: u64) {
        self.draws = Streams::new(seed).stream("bbr");
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.in_flight = measurement.in_flight.unwrap_or(self.in_flight);
        self.is_bundle |= measurement.backlog.is_some();
        self.update_round(measurement);
        self.update_bandwidth(measurement);
        self.check_cycle(now, measurement);
        self.check_full_pipe(measurement);
        self.check_drain(now);
        self.update_min_rtt(now, measurement);
        self.check_probe_rtt(now, measurement);
        self.set_pacing_rate();
        self.set_cwnd(measurement);
    }

    fn on_event(&mut self, _now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::Loss => {
                self.save_cwnd();
                self.recovery = Recovery::Entering;
            }
            CongestionEvent::Rto if self.is_ns3 => {
                self.save_cwnd();
                self.recovery = Recovery::Open;
                self.cwnd = self.mss;
            }
            CongestionEvent::Rto => {
                self.save_cwnd();
                self.recovery = Recovery::Recovering;
                self.cwnd = self.mss;
                // The rate of a path that has just lost everything is no rate to compare with.
                self.full_bandwidth = Rate::ZERO;
            }
            CongestionEvent::RecoveryEnd => {
                let before = core::mem::replace(&mut self.recovery, Recovery::Open);
                match before {
                    Recovery::Open if self.is_ns3 => {}
                    _ if self.is_ns3 => self.end_as_ns3(),
                    _ => self.restore_cwnd(),
                }
            }
            CongestionEvent::Spurious => {
                self.recovery = Recovery::Open;
                self.restore_cwnd();
                self.full_bandwidth = Rate::ZERO;
                self.full_rounds = 0;
            }
            CongestionEvent::IdleRestart(_) => {
                self.is_idle_restart = true;
                if self.phase == BbrPhase::ProbeBw {
                    // The pipe is empty: anything above the bottleneck rate would only queue.
                    let bits = self.bandwidth.value().as_bits_per_sec();
                    let rate = scale(bits, self.paced, MARGIN_UNIT);
                    self.pacing_rate = Rate::from_bits_per_sec(rate.max(1));
                }
            }
            CongestionEvent::RttShift(nanos) => {
                self.min_rtt = self.min_rtt.map(|rtt| {
                    let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
                    Duration::from_nanos(rtt.saturating_add_signed(nanos).max(1))
                });
            }
            CongestionEvent::FeedbackLost => self.restart(),
            CongestionEvent::EcnCe
            | CongestionEvent::Underused(_)
            | CongestionEvent::Resume(_)
            | CongestionEvent::SlowStartEnd(_)
            | CongestionEvent::Unenforced
            | CongestionEvent::Enforced
            | CongestionEvent::DelayNoise(_) => {}
        }
    }

    fn send_limits(&self) -> SendLimits {
        SendLimits {
            cwnd: Some(self.cwnd),
            ssthresh: None,
            pacing_rate: Some(self.pacing_rate),
            app_limited: None,
        }
    }

    fn interim(&self) -> Interim {
        let grows = self.phase == BbrPhase::Startup
            && self.recovery == Recovery::Open
            && (self.cwnd < self.inflight_at(HIGH_GAIN) || self.delivered < self.initial_cwnd);
        if grows { Interim::DOUBLING } else { Interim::HOLD }
    }

    fn state(&self) -> State {
        State {
            phase: match self.phase {
                BbrPhase::Startup => "startup",
                BbrPhase::Drain => "drain",
                BbrPhase::ProbeBw => "probe_bw",
                BbrPhase::ProbeRtt => "probe_rtt",
            },
            reason: self.reason,
            min_rtt: self.min_rtt,
            queue_delay: None,
            bottleneck_rate: Some(self.bandwidth.value()).filter(|rate| *rate > Rate::ZERO),
            numbers: vec![
                ("pacing_gain", self.pacing_gain() as f64 / UNIT as f64),
                ("cwnd_gain", self.cwnd_gain() as f64 / UNIT as f64),
                ("rounds", self.round_count as f64),
                ("prior_cwnd_bytes", self.prior_cwnd.as_f64()),
            ],
        }
    }
}
