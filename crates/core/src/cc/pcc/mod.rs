//! Rate control by utility, which PCC Vivace (NSDI 2018) and PCC Proteus (SIGCOMM 2020) share: a sender tries rates,
//! each for a monitor interval, and moves towards the greater utility.
//!
//! ```text
//! starting   r for an interval; utility rose: 2 r, else r / 2 and probing
//! probing    pairs of intervals at r (1 + e) and r (1 - e), in random order; once enough pairs agree:
//!            r = r (1 +- e) +- step, and moving
//! moving     r for an interval; utility still rises that way: r +- step, else the r before and probing
//! step       |gradient| m Mbit/s, at least 2.2 % of r, at most (5 % + 5 % k) of r
//!            m = ((n + 1) div 2)^1.2 at the nth step in one direction; k counts bounded steps, less the others
//! ```
//! The gradient compares two intervals: the difference of their utilities over that of their rates in Mbit/s.
//! An interval lasts for the least round trip, and until four of its round trips are known. The sender learns the utility
//! once all packets of the interval are acknowledged or lost; meanwhile it sends at r.
//!
//! The window is twice the rate times the round trip. It only binds where acknowledgements stop (PCC-Kernel,
//! `pcc_set_cwnd`).
//!
//! States: starting, probing, moving.
//!
//! Departures, with reasons:
//! - The authors' code gives the constants that the papers leave open: PCC-Uspace, or PCC-Kernel where so said.
//! - The least step is a share of the rate, as in PCC-Kernel, and not 500 kbit/s: that is a quarter of 2 Mbit/s.
//! - Hosts report no packet numbers. A packet belongs to the interval in which it left, and a measurement to the interval
//!   of its newest packet.
//! - Intervals in which the sender had too little to send decide nothing.
//! - A timeout, which the papers do not treat, halves the rate and begins at `starting`.
//! - While the host enforces no limits, the algorithm decides nothing. Afterwards it starts at the measured rate.
//!
//! Ranges: rates from two segments a round trip to 1 Tbit/s, windows from four segments; round trips 1 ns to 584 years.

mod interval;
mod noise;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;

use self::interval::Intervals;
pub use self::interval::Outcome;
pub use self::noise::Noise;
use super::{CongestionControl, CongestionEvent, Measurement, SendLimits, State};
use crate::random::{Stream, Streams};
use crate::units::{ByteCount, Rate, Timestamp, seconds};

/// Smallest window in segments (PCC-Kernel, `pcc_set_cwnd`): with fewer, losses show by timeouts alone.
pub const MIN_WINDOW_MSS: f64 = 4.0;
/// Exponent of the rate in the utility (both papers, t): below 1, so that the gain of more rate falls and flows share.
const EXPONENT: f64 = 0.9;
/// Weight of the slope of the round trip (both papers, b). Half of it stands at twice as steep a rise.
const SLOPE_WEIGHT: f64 = 900.0;
/// Weight of the share lost (both papers, c): at 100 Mbit/s, utility rises with the rate up to 5 % of loss.
const LOSS_WEIGHT: f64 = 11.35;
/// How far a probe is from the rate (e): a smaller difference is lost in noise, a larger one costs queue.
const PROBE: f64 = 0.05;
/// Most pairs of a probe.
const PAIRS_MAX: usize = 3;
/// Exponent of m.
const AMPLIFIER_EXPONENT: f64 = 1.2;
/// Least share of the rate by which a step is bounded, and how much that grows each time.
const BOUND_SHARE: f64 = 0.05;
/// Least step over the rate (PCC-Kernel, PCC_MIN_RATE_DIFF_RATIO_FOR_GRAD and a tenth more): the next gradient is one
/// between two rates so far apart.
const STEP_MIN_SHARE: f64 = 0.022;
/// Segments a round trip at the least rate (PCC-Kernel, PCC_RATE_MIN_PACKETS_PER_RTT).
const MIN_RATE_SEGMENTS: f64 = 2.0;
/// Largest rate in bytes a second: 1 Tbit/s.
const RATE_MAX: f64 = 1.25e11;
/// Window over the rate times the round trip (PCC-Kernel, `pcc_set_cwnd`).
const WINDOW_GAIN: f64 = 2.0;
/// Share of loss that does not end `starting` (PCC-Kernel, `pcc_calc_utility_vivace`): in a few packets a single loss is
/// a large share.
const STARTING_LOSS: f64 = 0.1;
/// Weight of a new sample in the smoothed round trip (RFC 6298).
const RTT_WEIGHT: f64 = 0.125;

/// Utility of an interval: `x^t - b x slope - c x loss` of `x` Mbit/s, with the slope that an algorithm does not ignore
/// as noise.
pub fn utility(outcome: &Outcome, slope: f64) -> f64 {
    let rate = outcome.sent_mbit_per_s;
    let penalty = SLOPE_WEIGHT * slope + LOSS_WEIGHT * outcome.loss;
    libm::pow(rate, EXPONENT) - penalty * rate
}

/// Utility function of one algorithm, and how many pairs of a probe must agree.
pub trait Goal: Send + 'static {
    /// Pairs of intervals in a probe, at most `PAIRS_MAX`.
    const PAIRS: usize;
    /// Pairs that must say so for the rate to rise.
    const RISING: usize;
    /// Pairs that must say so for the rate to fall. With too few for either, the rate is probed again.
    const FALLING: usize;
    /// Utility of an interval; intervals come in their order.
    fn utility(&mut self, outcome: &Outcome) -> f64;
}

/// A rate that was tried.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    mbit_per_s: f64,
    utility: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Starting,
    Probing,
    Moving,
}

/// A [`Goal`] as a [`CongestionControl`].
pub struct RateControl<G> {
    goal: G,
    mode: Mode,
    /// In bytes a second; 0 before the first round trip is known.
    rate: f64,
    /// The trial before.
    last: Option<Trial>,
    rises: bool,
    /// Steps in one direction, and how often the bound was widened (n and k).
    steps: u32,
    widened: u32,
    /// Which interval of each pair has the higher rate: the first.
    is_higher_first: [bool; PAIRS_MAX],
    intervals: Intervals,
    delivered: ByteCount,
    mss_bytes: f64,
    initial_bytes: f64,
    min_rtt_s: f64,
    smoothed_rtt_s: f64,
    is_enforced: bool,
    draws: Stream,
    reason: &'static str,
}

impl<G: Goal> RateControl<G> {
    /// Steers by `goal`, boxed for a registry entry.
    pub fn boxed(goal: G) -> Box<dyn CongestionControl> {
        Box::new(Self {
            goal,
            mode: Mode::Starting,
            rate: 0.0,
            last: None,
            rises: true,
            steps: 0,
            widened: 0,
            is_higher_first: [true; PAIRS_MAX],
            intervals: Intervals::new(1460.0),
            delivered: ByteCount::ZERO,
            mss_bytes: 1460.0,
            initial_bytes: 14_600.0,
            min_rtt_s: f64::INFINITY,
            smoothed_rtt_s: 0.0,
            is_enforced: true,
            draws: Streams::new(0).stream("pcc"),
            reason: "no measurement yet",
        })
    }

    fn set_rate(&mut self, bytes_per_s: f64) {
        let least = MIN_RATE_SEGMENTS * self.mss_bytes / self.smoothed_rtt_s.max(1e-9);
        self.rate = bytes_per_s.max(least).min(RATE_MAX);
    }

    /// Whether the rate is the least.
    fn is_least(&self) -> bool {
        let least = MIN_RATE_SEGMENTS * self.mss_bytes / self.smoothed_rtt_s.max(1e-9);
        self.rate <= least.min(RATE_MAX)
    }

    fn update_rtt(&mut self, measurement: &Measurement) {
        let Some(rtt) = measurement.rtt.filter(|rtt| !rtt.latest.is_zero()) else { return };
        let latest_s = rtt.latest.as_secs_f64();
        self.min_rtt_s = self.min_rtt_s.min(latest_s);
        if self.smoothed_rtt_s == 0.0 {
            self.smoothed_rtt_s = latest_s;
        }
        self.smoothed_rtt_s += RTT_WEIGHT * (latest_s - self.smoothed_rtt_s);
    }

    /// Intervals whose outcomes a decision needs.
    fn wanted(&self) -> usize {
        if self.mode == Mode::Probing { 2 * G::PAIRS } else { 1 }
    }

    /// Forgets all intervals, and begins the first one of the mode.
    fn restart(&mut self, now: Timestamp, mode: Mode) {
        self.mode = mode;
        self.intervals.clear();
        if mode == Mode::Probing {
            for is_first in &mut self.is_higher_first {
                *is_first = self.draws.bits() & 1 == 1;
            }
        }
        self.begin(now);
    }

    fn begin(&mut self, now: Timestamp) {
        let begun = self.intervals.useful().len();
        let is_useful = begun < self.wanted();
        let factor = match self.mode {
            Mode::Probing if is_useful => {
                let is_higher = self.is_higher_first[begun / 2] == (begun.is_multiple_of(2));
                if is_higher { 1.0 + PROBE } else { 1.0 - PROBE }
            }
            _ => 1.0,
        };
        self.intervals.begin(now, self.delivered, factor * self.rate, is_useful);
    }

    /// From `starting`, at `bytes_per_s`.
    fn start(&mut self, now: Timestamp, bytes_per_s: f64, reason: &'static str) {
        self.set_rate(bytes_per_s);
        self.last = None;
        self.reason = reason;
        self.restart(now, Mode::Starting);
    }

    fn probe(&mut self, now: Timestamp, reason: &'static str) {
        self.steps = 0;
        self.widened = 0;
        self.reason = reason;
        self.restart(now, Mode::Probing);
    }

    fn trial(&mut self, index: usize) -> Option<Trial> {
        let interval = *self.intervals.useful().nth(index)?;
        let mut outcome = interval.outcome();
        if self.mode == Mode::Starting && outcome.loss < STARTING_LOSS {
            outcome.loss = 0.0;
        }
        let mbit_per_s = interval.bytes_per_s * 8e-6;
        Some(Trial { mbit_per_s, utility: self.goal.utility(&outcome) })
    }

    fn decide(&mut self, now: Timestamp) {
        if self.intervals.useful().any(|interval| interval.is_void) {
            self.reason = "too little to send";
            return self.restart(now, self.mode);
        }
        match self.mode {
            Mode::Starting => self.decide_start(now),
            Mode::Probing => self.decide_probe(now),
            Mode::Moving => self.decide_move(now),
        }
    }

    fn decide_start(&mut self, now: Timestamp) {
        let Some(trial) = self.trial(0) else { return };
        if self.last.is_none_or(|last| trial.utility > last.utility) {
            self.last = Some(trial);
            self.set_rate(2.0 * self.rate);
            self.reason = "utility has risen with the rate";
            self.restart(now, Mode::Starting);
        } else {
            self.set_rate(self.rate / 2.0);
            self.probe(now, "utility has not risen with the rate");
        }
    }

    fn decide_probe(&mut self, now: Timestamp) {
        let mut pairs = [(Trial::default(), 0.0); PAIRS_MAX];
        for (at, pair) in pairs.iter_mut().enumerate().take(G::PAIRS) {
            let (Some(one), Some(other)) = (self.trial(2 * at), self.trial(2 * at + 1)) else {
                return;
            };
            let better = if one.utility > other.utility { one } else { other };
            let worse = if one.utility > other.utility { other } else { one };
            let gradient =
                (better.utility - worse.utility) / (better.mbit_per_s - worse.mbit_per_s);
            *pair = (better, gradient);
        }
        let pairs = &pairs[..G::PAIRS];
        let rising = pairs.iter().filter(|(_, gradient)| *gradient > 0.0).count();
        let falling = G::PAIRS - rising;
        self.rises = rising > falling;
        if rising.max(falling) < if self.rises { G::RISING } else { G::FALLING } {
            return self.probe(now, "pairs of a probe disagree");
        }
        let agreeing = || pairs.iter().filter(|(_, gradient)| (*gradient > 0.0) == self.rises);
        self.last = agreeing().next_back().map(|(better, _)| *better);
        let gradient = agreeing().map(|(_, gradient)| gradient).sum::<f64>() / G::PAIRS as f64;
        if !self.rises && self.is_least() {
            return self.start(now, self.rate, "at the lowest rate");
        }
        self.set_rate(self.rate * if self.rises { 1.0 + PROBE } else { 1.0 - PROBE });
        self.reason = if self.rises { "utility rises with the rate" } else { "utility falls" };
        self.step(gradient);
        self.restart(now, Mode::Moving);
    }

    fn decide_move(&mut self, now: Timestamp) {
        let (Some(trial), Some(last)) = (self.trial(0), self.last) else { return };
        let distance = trial.mbit_per_s - last.mbit_per_s;
        let gradient = (trial.utility - last.utility) / distance;
        if distance == 0.0 || (gradient > 0.0) != self.rises {
            self.set_rate(last.mbit_per_s * 1.25e5);
            return self.probe(now, "utility fell after the last step");
        }
        self.last = Some(trial);
        self.step(gradient);
        self.restart(now, Mode::Moving);
    }

    /// Moves the rate by the gradient in utility over Mbit/s.
    fn step(&mut self, gradient: f64) {
        self.steps = self.steps.saturating_add(1);
        let amplifier = libm::pow(f64::from(self.steps.div_ceil(2)), AMPLIFIER_EXPONENT);
        let wanted = libm::fabs(gradient) * amplifier * 1.25e5;
        let bound = BOUND_SHARE * (1.0 + f64::from(self.widened)) * self.rate;
        let size = if wanted > bound {
            self.widened = self.widened.saturating_add(1);
            bound
        } else {
            self.widened = self.widened.saturating_sub(1);
            wanted.max(STEP_MIN_SHARE * self.rate)
        };
        self.set_rate(if self.rises { self.rate + size } else { self.rate - size });
    }

    fn shift(&mut self, now: Timestamp, nanos: i64) {
        let shift_s = nanos as f64 * 1e-9;
        if self.smoothed_rtt_s > 0.0 {
            self.min_rtt_s = (self.min_rtt_s + shift_s).max(1e-9);
            self.smoothed_rtt_s = (self.smoothed_rtt_s + shift_s).max(1e-9);
            self.restart(now, self.mode);
        }
    }
}

impl<G: Goal> CongestionControl for RateControl<G> {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss_bytes = mss.as_f64().max(1.0);
        self.initial_bytes = initial_cwnd.as_f64().max(MIN_WINDOW_MSS * self.mss_bytes);
        self.intervals = Intervals::new(self.mss_bytes);
    }

    fn set_seed(&mut self, seed: u64) {
        self.draws = Streams::new(seed).stream("pcc");
    }

    fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        self.delivered = self.delivered.max(measurement.delivered);
        self.update_rtt(measurement);
        if self.smoothed_rtt_s == 0.0 {
            return;
        }
        if self.rate == 0.0 {
            let bytes_per_s = self.initial_bytes / self.smoothed_rtt_s;
            return self.start(now, bytes_per_s, "first round trip");
        }
        self.intervals.on_measurement(now, measurement);
        if !self.is_enforced {
            // Limits begin at the rate of the newest interval, so none lasts as long as the passing.
            if self.intervals.may_end(now, seconds(self.min_rtt_s)) {
                self.intervals.begin(now, self.delivered, self.rate, true);
            }
            return;
        }
        if self.intervals.are_settled() {
            self.decide(now);
        } else if self.intervals.may_end(now, seconds(self.min_rtt_s)) {
            self.begin(now);
        }
    }

    fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        if self.rate == 0.0 {
            return;
        }
        match event {
            CongestionEvent::Rto | CongestionEvent::FeedbackLost => {
                self.start(now, self.rate / 2.0, "timeout");
            }
            CongestionEvent::IdleRestart(_) => self.restart(now, self.mode),
            CongestionEvent::RttShift(nanos) => self.shift(now, nanos),
            CongestionEvent::Unenforced => {
                self.is_enforced = false;
                self.intervals.begin(now, self.delivered, self.rate, true);
            }
            CongestionEvent::Enforced => {
                self.is_enforced = true;
                self.set_rate(self.intervals.sent_bytes_per_s().unwrap_or(self.rate));
                self.probe(now, "limits are enforced");
            }
            CongestionEvent::Loss
            | CongestionEvent::RecoveryEnd
            | CongestionEvent::Spurious
            | CongestionEvent::EcnCe
            | CongestionEvent::Resume(_)
            | CongestionEvent::Underused(_)
            | CongestionEvent::SlowStartEnd(_)
            | CongestionEvent::DelayNoise(_) => {}
        }
    }

    fn send_limits(&self) -> SendLimits {
        let Some(newest) = self.intervals.newest() else {
            let cwnd = Some(ByteCount::new(self.initial_bytes as u64));
            return SendLimits { cwnd, ..SendLimits::default() };
        };
        let window = WINDOW_GAIN * newest.bytes_per_s * self.smoothed_rtt_s;
        let window = window.max(MIN_WINDOW_MSS * self.mss_bytes);
        SendLimits {
            cwnd: Some(ByteCount::new(window as u64)),
            pacing_rate: Some(Rate::from_bytes_per_sec_f64(newest.bytes_per_s)),
            ..SendLimits::default()
        }
    }

    fn state(&self) -> State {
        let is_known = self.min_rtt_s.is_finite();
        let last = self.last.unwrap_or_default();
        State {
            phase: match self.mode {
                Mode::Starting => "starting",
                Mode::Probing => "probing",
                Mode::Moving => "moving",
            },
            reason: self.reason,
            min_rtt: is_known.then(|| seconds(self.min_rtt_s)),
            numbers: vec![
                ("rate_mbit_per_s", self.rate * 8e-6),
                ("utility", last.utility),
                ("steps", f64::from(self.steps)),
            ],
            ..State::default()
        }
    }
}
