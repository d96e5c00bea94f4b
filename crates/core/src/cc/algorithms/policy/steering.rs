//! The step from a decision to the limits of a sender. The decision comes from the graph of a policy here, or
//! from a learner outside of a simulation. Both get the same input and are applied the same way.
//!
//! ```text
//! decision   each mean round trip, at least every 10 ms and at most once in a second
//! W          2^a W, a from -1 to 1, 2 mss to 4 GiB; no growth where nothing was acknowledged, or less than half
//!            of W was in flight
//! limits     steers = cwnd: W                  steers = rate: W over the least round trip, and a window of 2 W
//! ```
//! A flow begins at its initial window. A bundle has no limits until a decision sees a delivery rate, since
//! hosts behind a bundle have windows of their own. W then holds the bytes delivered in a mean round trip.
//!
//! A timeout leaves 2 mss. Lost feedback starts everything over. Loss, marks and recoveries move nothing by
//! themselves: they are input of the policy.

use super::observation::{HISTORY_MAX, Observer, Outcome};
use crate::cc::delay::FLOW;
use crate::cc::window::CWND_MAX;
use crate::cc::{CongestionEvent, Measurement, SendLimits};
use crate::spec::{Param, Quantity, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Least window in segments.
pub const MIN_WINDOW_MSS: f64 = 2.0;
/// Shortest time from one decision to the next. It bounds the cost of a policy.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Longest time from one decision to the next.
const INTERVAL_MAX: Duration = Duration::from_millis(1000);
/// The time to the first decision, when no round trip is known.
const INTERVAL_FIRST: Duration = Duration::from_millis(100);
/// A window that is filled less than this says nothing about the path's capacity.
const FILLED_SHARE: f64 = 0.5;
/// Windows that a rate leaves outstanding at most.
const WINDOWS_OF_RATE: f64 = 2.0;

/// The limit that a decision multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Steers {
    /// The window; the host derives the rate.
    Cwnd,
    /// The pacing rate, and a window that seldom binds.
    Rate,
}

impl Quantity for Steers {
    /// The values of `steers`.
    const WHAT: &'static str = "cwnd or rate";
    fn read(text: &str) -> Option<Self> {
        match text {
            "cwnd" => Some(Self::Cwnd),
            "rate" => Some(Self::Rate),
            _ => None,
        }
    }
    fn written(&self) -> alloc::string::String {
        match self {
            Self::Cwnd => "cwnd".into(),
            Self::Rate => "rate".into(),
        }
    }
}

/// The parameter for the limit that decisions multiply.
pub const STEERS: Param<Steers> =
    Param::new("steers", "quantity that a decision multiplies: the window or the pacing rate")
        .or(Steers::Cwnd);
/// The parameter for the number of rows that a decision sees.
pub const HISTORY: Param<u64> =
    Param::new("history", "rows of an observation: number of past decisions").or(10).within(1..=64);

/// The range of the parameter `history` ends at [`HISTORY_MAX`].
const _: () = assert!(HISTORY_MAX == 64, "as the parameter says");

/// A sender with limits that wait for decisions.
#[derive(Clone, Debug)]
pub struct SteeredSender {
    observer: Observer,
    steers: Steers,
    is_flow: bool,
    mss_bytes: f64,
    initial_bytes: f64,
    /// W; `None`: no limits yet.
    window_bytes: Option<f64>,
    last: Outcome,
    due: Timestamp,
}

impl SteeredSender {
    /// A sender with [`STEERS`] and [`FLOW`] from `spec`, and `history` rows in its observations.
    ///
    /// # Errors
    ///
    /// A parameter that is out of range.
    pub fn new(spec: &Spec, history: usize) -> Result<Self, SpecError> {
        Ok(Self {
            observer: Observer::new(history.clamp(1, HISTORY_MAX)),
            steers: STEERS.of(spec)?,
            is_flow: FLOW.of(spec)?,
            mss_bytes: 1.0,
            initial_bytes: MIN_WINDOW_MSS,
            window_bytes: None,
            last: Outcome::default(),
            due: Timestamp::MAX,
        })
    }

    /// Starts at `now`; see [`crate::cc::CongestionControl::init`].
    pub fn start(&mut self, now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        self.mss_bytes = mss.as_f64().max(1.0);
        self.initial_bytes = self.bounded(initial_cwnd.as_f64());
        self.window_bytes = self.is_flow.then_some(self.initial_bytes);
        self.observer.start(now, ByteCount::new(mss.as_u64().max(1)));
        self.last = Outcome::default();
        self.due = now + INTERVAL_FIRST;
    }

    fn bounded(&self, bytes: f64) -> f64 {
        let least = MIN_WINDOW_MSS * self.mss_bytes;
        bytes.clamp(least, least.max(CWND_MAX as f64))
    }

    /// Takes a measurement of the path.
    pub fn on_measurement(&mut self, measurement: &Measurement) {
        self.observer.on_measurement(measurement);
    }

    /// Takes an event that could not wait for a measurement.
    pub fn on_event(&mut self, now: Timestamp, event: CongestionEvent) {
        match event {
            CongestionEvent::Rto if self.window_bytes.is_some() => {
                self.window_bytes = Some(self.bounded(0.0));
            }
            CongestionEvent::RttShift(nanos) => self.observer.shift_rtt(nanos),
            CongestionEvent::FeedbackLost => {
                let mss = ByteCount::new(self.mss_bytes as u64);
                self.start(now, mss, ByteCount::new(self.initial_bytes as u64));
            }
            _ => {}
        }
    }

    /// When the next decision is due; [`Timestamp::MAX`] before the start.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Ends the interval that the decision at `now` is about. Returns its outcome and adds a row to the
    /// observation.
    pub fn close(&mut self, now: Timestamp) -> Outcome {
        let outcome = self.observer.close(now, self.window_bytes.unwrap_or(0.0));
        let interval = outcome.rtt.or(self.last.rtt).unwrap_or(INTERVAL_FIRST);
        self.due = now + interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let delivered = outcome.rtt.map(|rtt| outcome.bytes_per_s() * rtt.as_secs_f64());
        if self.window_bytes.is_none() && outcome.acked > ByteCount::ZERO {
            self.window_bytes = delivered.map(|bytes| self.bounded(bytes.max(self.initial_bytes)));
        }
        self.last = Outcome { rtt: outcome.rtt.or(self.last.rtt), ..outcome };
        outcome
    }

    /// The observation: rows of [`super::observation::WIDTH`] numbers, the newest last.
    pub fn observation(&self) -> &[f32] {
        self.observer.rows()
    }

    /// Applies the decision about the interval closed last. `action` is clamped to -1 to 1; NaN counts as 0.
    pub fn act(&mut self, action: f32) {
        let action = if action.is_nan() { 0.0 } else { action.clamp(-1.0, 1.0) };
        let Some(window) = self.window_bytes else { return };
        let in_flight = self.last.in_flight.map(ByteCount::as_f64);
        let is_filled = in_flight.is_none_or(|bytes| bytes >= FILLED_SHARE * window);
        let may_grow = is_filled && self.last.acked > ByteCount::ZERO;
        if action < 0.0 || may_grow {
            self.window_bytes = Some(self.bounded(window * libm::exp2(f64::from(action))));
        }
    }

    /// W is this from now on, set by another algorithm.
    pub fn set_window(&mut self, window: ByteCount) {
        self.window_bytes = Some(self.bounded(window.as_f64()));
    }

    /// W; `None`: no limits yet.
    pub fn window(&self) -> Option<ByteCount> {
        self.window_bytes.map(|bytes| ByteCount::new(bytes as u64))
    }

    /// Least round trip since the start.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.observer.min_rtt()
    }

    /// The limits in force.
    pub fn send_limits(&self) -> SendLimits {
        let Some(window) = self.window_bytes else { return SendLimits::default() };
        let rtt_s = self.min_rtt().map(|rtt| rtt.as_secs_f64()).filter(|rtt_s| *rtt_s > 0.0);
        let (cwnd, rate) = match (self.steers, rtt_s) {
            (Steers::Rate, Some(rtt_s)) => (
                self.bounded(WINDOWS_OF_RATE * window),
                Some(Rate::from_bytes_per_sec_f64(window / rtt_s)),
            ),
            _ => (window, None),
        };
        let cwnd = Some(ByteCount::new(cwnd as u64));
        SendLimits { cwnd, pacing_rate: rate, ..SendLimits::default() }
    }
}
