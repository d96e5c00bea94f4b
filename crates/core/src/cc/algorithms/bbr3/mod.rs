//! BBR, version 3.
//!
//! ```text
//! B   largest delivery rate of this and the last cycle     T   least round trip of the last 10 s
//! b   rate that losses left in this cycle                  A   bytes acknowledged at once
//! l   volume in flight that losses left in this cycle
//! L   volume in flight at which more than 2 % were lost
//! pacing = 0.99 g min(B, b)        window = c min(B, b) T + A, at most l and V
//!
//! phase      g      c      V        ends when                                        next
//! startup    2.77   2               B grew by < 25 % in each of 3 rounds,            drain
//!                                   or > 2 % were lost in a round
//! drain      0.5    2               in flight <= B T, or after 3 rounds              down
//! down       0.9    2      L        in flight <= B T and 0.85 L                      cruise
//! cruise     1      2      0.85 L   2 to 3 s, or min(B T in segments, 63) rounds     refill
//!                                   after the last probe (so does down)
//! refill     1      2      L        after a round; b and l are forgotten             up
//! up         1.25   2.25   L, and   as startup does, but with losses at once; or     down
//!                          L grows  where the probe before it lost too much, as
//!                                   soon as L is in flight
//! probe_rtt  1      0.5    0.85 L   c B T in flight for a round and 200 ms           cruise, startup
//! ```
//! From each phase probe_rtt begins once no round trip as short was seen for 5 s; startup follows it
//! where the pipe has not been full. Down, cruise, refill and up are the cycle of probe_bw. A round
//! ends when a packet is acknowledged that was sent after the round began ([`super::rounds`]).
//!
//! **Loss.** If a probe (refill and up) loses more than 2 % of the bytes in flight, L falls. L becomes the
//! bytes in flight as the first lost packet left, at least 0.7 of the lesser of the window and B T. L grows
//! again with the bytes in flight without such loss, and in up by 1, 2, 4, ... segments a round. A probe that
//! ended for caution and lost little is followed by another at once. At other times a round with losses
//! changes b and l at its end. They become the rate and volume delivered in the round, at least 0.7 of their
//! former values. There is no `ssthresh`: a host whose own recovery lowers the window to it has to leave
//! BBR's window alone.
//!
//! **Marks.** The draft has no answer of its own to ECN: a mark has to count as congestion (section 3.7). The
//! event says that something was marked in a round trip and not how much, as does a loss without selective
//! acknowledgements (section 5.5.10.2). So a mark is answered as such a loss: startup and probes end, at
//! other times b and l fall. The bytes of accurate ECN are not used.
//!
//! Departures from draft-ietf-ccwg-bbr-06, with reasons:
//! - No host reports the bytes in flight, and lost, when a packet left. The measurements around that time
//!   give them (`flights.rs`), except for packets that left between two measurements. The lost packet is
//!   known by [`Measurement::lost_prior_delivered`]. Elsewhere the newest acknowledged packet is used
//!   instead, and without a rate sample none. Bursts are not divided: the threshold is crossed by a packet.
//! - Ranges lost in a round of startup are counted as measurements with losses, as in Linux.
//! - After a timeout the window is one segment, not one segment more than in flight: everything in flight counts as
//!   lost. l then starts from the window before the timeout, as in Linux.
//! - The check whether L is in flight adds the bytes of the newest acknowledgement and one more segment:
//!   whole segments do not quite fill a window.
//! - Whether a lost packet was sent app-limited is taken from the newest acknowledged packet
//!   (P.is_app_limited).
//! - In drain L bounds nothing, as in the draft's BBRBoundCwndForModel (section 5.6.4.7) and against its table
//!   (section 5.6.1).
//! - Packets sent in probe_rtt count as app-limited here and not in the host.
//! - A pause shorter than a timeout restarts nothing, since not every host reports it.
//!
//! A measurement of many acknowledgements looks aggregated to the algorithm. A is then larger, and the window
//! is up to a tenth larger where a measurement covers a round trip.
//!
//! Ranges: rates 8 bit/s to 18 Ebit/s; windows and products saturate at 2^64 - 1 bytes, which as a
//! bound means none. Gains and shares are in percent.

mod aggregation;
mod flights;
mod full_pipe;
mod loss;
pub mod paced;
mod probe_bw;
mod probe_rtt;
#[cfg(test)]
mod tests;
mod window;

use alloc::boxed::Box;
use alloc::vec;

use self::aggregation::{Acked, Aggregation};
use self::flights::{Flight, Flights};
use self::full_pipe::FullPipe;
use self::loss::Congestion;
use self::probe_bw::Probing;
use self::probe_rtt::Delay;
use super::rounds::{RoundMax, Rounds};
use super::{
    Algorithm, CongestionControl, CongestionEvent, Field, Interim, Measurement, SendLimits, State,
};
use crate::random::{Stream, Streams};
use crate::spec::{Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp, mul_div, product};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bbr3",
    summary: "BBR version 3: paced at the bottleneck rate and bounded by losses",
    sources: &["draft-ietf-ccwg-bbr-06", "github.com/google/bbr, branch v3"],
    params: &[],
    needs: &[Field::Lost, Field::Rtt, Field::DeliveryRate, Field::InFlight],
    min_window_mss: 1.0,
    batch_tolerance: 0.15,
    build: &build,
};

/// Cycles of probe_bw over which the bottleneck rate is a maximum (BBR.MaxBwFilterLen).
const MAX_BW_CYCLES: u64 = 2;
/// Rounds after which drain ends in any case, even with more in flight (draft, section 5.3.2).
const DRAIN_ROUNDS: u64 = 3;
/// Parts of a measurement ([`Bbr3::take_part`]).
pub const PARTS: u32 = 9;
/// A bound that bounds nothing ("Infinity" in the draft).
const UNBOUNDED: ByteCount = ByteCount::new(u64::MAX);

fn build(_spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    Ok(Box::new(Bbr3::new()))
}

/// Takes `percent` percent of `value`; saturates.
fn percent(value: u64, percent: u64) -> u64 {
    // 64-bit operations alone, which BPF has.
    let (high, whole) = product(value / 100, percent);
    let part = value % 100 * percent / 100;
    if high == 0 { whole.saturating_add(part) } else { u64::MAX }
}

/// `bytes` times `count`; saturates.
fn times(bytes: ByteCount, count: u64) -> ByteCount {
    ByteCount::new(mul_div(bytes.as_u64(), count, 1))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bbr3Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Bbr3Phase {
    /// Gains of pacing and of the window, in percent (draft, section 5.6.1).
    const fn gains(self) -> (u64, u64) {
        match self {
            Self::Startup => (277, 200),
            Self::Drain => (50, 200),
            Self::Down => (90, 200),
            Self::Cruise | Self::Refill => (100, 200),
            Self::Up => (125, 225),
            Self::ProbeRtt => (100, 50),
        }
    }

    /// The phase accelerates, so that losses are its own doing (IsProbingBW).
    const fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    /// One of the four of probe_bw (IsInAProbeBWState).
    const fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down => "probe_bw_down",
            Self::Cruise => "probe_bw_cruise",
            Self::Refill => "probe_bw_refill",
            Self::Up => "probe_bw_up",
            Self::ProbeRtt => "probe_rtt",
        }
    }
}

/// One measurement, above all its newest acknowledged packet (RS in the draft).
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Delivery rate; zero: none was measured, and nothing is known about the packet.
    rate: Rate,
    /// Delivered while the packet was on its way.
    delivered: ByteCount,
    /// In flight as the packet left, and lost since.
    flight: Flight,
    is_app_limited: bool,
    newly_acked: ByteCount,
    newly_lost: ByteCount,
}

/// The algorithm of a connection.
pub struct Bbr3 {
    mss: ByteCount,
    initial_cwnd: ByteCount,
    phase: Bbr3Phase,
    sample: Sample,
    in_flight: ByteCount,
    delivered: ByteCount,
    flights: Flights,
    rounds: Rounds,
    round_count: u64,
    is_round_start: bool,
    /// Largest delivery rates of cycles, counted by `cycle_count`.
    max_bw: RoundMax<Rate>,
    cycle_count: u64,
    full_pipe: FullPipe,
    aggregation: Aggregation,
    delay: Delay,
    congestion: Congestion,
    probing: Probing,
    /// Most that may be in flight without too much loss (BBR.inflight_longterm).
    inflight_longterm: ByteCount,
    drain_start_round: u64,
    is_idle_restart: bool,
    /// The sender's data filled the window, in this round or at the end of the last.
    is_cwnd_limited: bool,
    cwnd: ByteCount,
    prior_cwnd: ByteCount,
    pacing_rate: Rate,
    draws: Stream,
    reason: &'static str,
}

impl Default for Bbr3 {
    fn default() -> Self {
        Self::new()
    }
}

impl Bbr3 {
    /// Before the first call.
    pub fn new() -> Self {
        let initial_cwnd = ByteCount::new(14_600);
        Self {
            mss: ByteCount::new(1460),
            initial_cwnd,
            phase: Bbr3Phase::Startup,
            sample: Sample::default(),
            in_flight: ByteCount::ZERO,
            delivered: ByteCount::ZERO,
            flights: Flights::default(),
            rounds: Rounds::default(),
            round_count: 0,
            is_round_start: false,
            max_bw: RoundMax::new(MAX_BW_CYCLES),
            cycle_count: 0,
            full_pipe: FullPipe::default(),
            aggregation: Aggregation::new(Timestamp::ZERO),
            delay: Delay::new(Timestamp::ZERO),
            congestion: Congestion::default(),
            probing: Probing::default(),
            inflight_longterm: UNBOUNDED,
            drain_start_round: 0,
            is_idle_restart: false,
            is_cwnd_limited: false,
            cwnd: initial_cwnd,
            prior_cwnd: ByteCount::ZERO,
            pacing_rate: Rate::ZERO,
            draws: Streams::new(0).stream("bbr3"),
            reason: "no measurement yet",
        }
    }

    /// Draws from `draws` from now on.
    pub fn set_draws(&mut self, draws: Stream) {
        self.draws = draws;
    }

    /// Takes part `part` of a measurement, below [`PARTS`]. The verifier of BPF cannot follow the whole in
    /// one piece: it knows only the state that a part leaves in memory.
    #[inline]
    pub fn take_part(&mut self, part: u32, now: Timestamp, measurement: &Measurement) {
        match part {
            0 => {
                self.in_flight = measurement.in_flight.unwrap_or(self.in_flight);
                self.delivered = measurement.delivered;
                self.take_sample(measurement);
            }
            1 => self.take_losses(now, measurement),
            2 => {
                self.update_latest_delivery(measurement);
                self.update_round(measurement);
                self.update_max_bw();
                self.answer_losses();
            }
            3 => self.update_aggregation(now),
            4 => {
                self.check_full_pipe();
                self.check_startup_done();
                self.check_drain_done(now);
            }
            5 => self.update_cycle(now),
            6 => self.update_min_rtt(now, measurement),
            7 => self.check_probe_rtt(now),
            8 => {
                self.forget_latest_delivery();
                self.pace(self.phase.gains().0);
                self.set_cwnd();
            }
            _ => {}
        }
    }

    fn take_sample(&mut self, measurement: &Measurement) {
        let newly_lost = measurement.lost.unwrap_or_default();
        // The packet that leaves next is in flight too, where the window has room for it.
        let with_next = (self.in_flight + self.mss).min(self.cwnd.max(self.in_flight));
        self.flights.note(measurement.delivered, with_next, newly_lost);
        self.sample = Sample {
            is_app_limited: measurement.app_limited || self.is_held_back(measurement),
            newly_acked: measurement.acked,
            newly_lost,
            ..Sample::default()
        };
        if let Some(rate) = measurement.delivery_rate.filter(|rate| *rate > Rate::ZERO) {
            let left = measurement.prior_delivered;
            self.sample.rate = rate;
            self.sample.delivered = measurement.delivered.saturating_sub(left);
            self.sample.flight = self.flights.of_packet_sent_at(left);
        }
    }

    fn update_round(&mut self, measurement: &Measurement) {
        self.is_round_start = self.rounds.on_measurement(measurement);
        self.round_count += u64::from(self.is_round_start);
        self.probing.rounds_since += u64::from(self.is_round_start);
        // A host may count half a window as filled where there is no ssthresh (Linux, tcp_is_cwnd_limited).
        let is_filled = measurement.cwnd_limited != Some(false)
            && self.in_flight_before() + self.mss > self.cwnd;
        self.is_cwnd_limited = is_filled || (self.is_cwnd_limited && !self.is_round_start);
    }

    /// Begins a new round at once.
    fn start_round(&mut self) {
        self.rounds.restart_at(self.delivered);
        self.is_round_start = false;
    }

    fn update_max_bw(&mut self) {
        let rate = self.sample.rate;
        // A sender that had too little to send shows less than the path carries.
        let is_telling = rate >= self.max_bw.value() || !self.sample.is_app_limited;
        if rate > Rate::ZERO && is_telling {
            self.max_bw.push(self.cycle_count, rate);
        }
    }

    fn update_aggregation(&mut self, now: Timestamp) {
        let acked = Acked {
            bytes: self.sample.newly_acked,
            cwnd: self.cwnd,
            round: self.round_count,
            is_startup: !self.full_pipe.has_been,
        };
        self.aggregation.on_ack(now, self.bw(), acked);
    }

    fn check_full_pipe(&mut self) {
        if self.is_round_start && !self.sample.is_app_limited && self.sample.rate > Rate::ZERO {
            self.full_pipe.on_round(self.sample.rate);
        }
    }

    fn enter_startup(&mut self) {
        self.phase = Bbr3Phase::Startup;
        self.reason = "searching for the rate";
    }

    fn check_startup_done(&mut self) {
        if self.phase == Bbr3Phase::Startup {
            self.check_startup_loss();
        }
        if self.phase == Bbr3Phase::Startup && self.full_pipe.has_been {
            self.enter_drain("rate no longer grows");
        }
    }

    fn enter_drain(&mut self, reason: &'static str) {
        self.phase = Bbr3Phase::Drain;
        self.reason = reason;
        self.drain_start_round = self.round_count;
    }

    fn check_drain_done(&mut self, now: Timestamp) {
        let is_late = self.round_count > self.drain_start_round + DRAIN_ROUNDS;
        if self.phase == Bbr3Phase::Drain && (is_late || self.in_flight <= self.inflight(self.bw()))
        {
            self.start_down(now, "drained");
        }
    }

    /// Searches for the bottleneck rate again; the round trip stays.
    fn restart(&mut self) {
        self.enter_startup();
        self.max_bw.clear();
        self.full_pipe = FullPipe::default();
        self.congestion = Congestion::default();
        self.probing = Probing::default();
        self.inflight_longterm = UNBOUNDED;
        self.delay.held_back_until = None;
        self.cwnd = self.cwnd.max(self.initial_cwnd);
        self.reason = "waiting for reports";
    }

    fn on_idle_restart(&mut self, now: Timestamp) {
        self.is_idle_restart = true;
        self.aggregation.resume(now);
        if self.phase.is_probe_bw() {
            // The pipe is empty: anything above the bottleneck rate would only queue.
            self.pace(100);
        } else if self.phase == Bbr3Phase::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}

impl CongestionControl for Bbr3 {
    fn init(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss = mss.max(ByteCount::new(1));
        self.initial_cwnd = initial_cwnd.max(self.mss);
        self.cwnd = self.initial_cwnd;
        self.aggregation = Aggregation::new(now);
        self.delay = Delay::new(now);
        // Until a round trip is known, the draft's nominal one of 1 ms.
        self.init_pacing_rate(Duration::from_millis(1));
    }

    fn set_seed(&mut self, seed: u64) {
        self.draws = Streams::new(seed).stream("bbr3");
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        for part in 0..PARTS {
            self.take_part(part, now, measurement);
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::Loss => self.enter_recovery(),
            CongestionEvent::Rto => self.on_timeout(),
            CongestionEvent::RecoveryEnd => self.end_recovery(),
            CongestionEvent::Spurious => self.take_losses_back(),
            CongestionEvent::EcnCe => self.on_mark(now),
            CongestionEvent::IdleRestart(_) => self.on_idle_restart(now),
            CongestionEvent::RttShift(nanos) => self.delay.shift(nanos),
            CongestionEvent::FeedbackLost => self.restart(),
            CongestionEvent::Underused(_)
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
        let has_room = self.cwnd < self.max_inflight() || self.delivered < self.initial_cwnd;
        if self.phase == Bbr3Phase::Startup && has_room { Interim::DOUBLING } else { Interim::HOLD }
    }

    fn state(&self) -> State {
        let (pacing_gain, cwnd_gain) = self.phase.gains();
        let mut numbers = vec![
            ("pacing_gain", pacing_gain as f64 / 100.0),
            ("cwnd_gain", cwnd_gain as f64 / 100.0),
            ("rounds", self.round_count as f64),
            ("cycles", self.cycle_count as f64),
            ("extra_acked_bytes", self.aggregation.excess().as_f64()),
        ];
        let bounds = [
            ("inflight_longterm_bytes", self.inflight_longterm),
            ("inflight_shortterm_bytes", self.congestion.inflight_shortterm),
        ];
        let bounds = bounds.into_iter().filter(|(_, bytes)| *bytes != UNBOUNDED);
        numbers.extend(bounds.map(|(name, bytes)| (name, bytes.as_f64())));
        State {
            phase: self.phase.name(),
            reason: self.reason,
            min_rtt: self.delay.min_rtt,
            queue_delay: None,
            bottleneck_rate: Some(self.bw()).filter(|rate| *rate > Rate::ZERO),
            numbers,
        }
    }
}
