//! Input of a policy: a few steps of history, each a row of numbers without a scale.
//!
//! A row covers the time from one decision to the next. It has a value for each of [`FEATURES`]. Then it
//! has for each feature a 1 where the value is known, or a 0 where it is not. An unknown value is 0: no
//! number is ever NaN or infinite. The rows of decisions that have not been made are zeros.

use alloc::vec;
use alloc::vec::Vec;

use crate::cc::Measurement;
use crate::units::{ByteCount, Duration, Timestamp};

/// A value of a row, and its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Name of the value.
    pub name: &'static str,
    /// Least value.
    pub low: f32,
    /// Greatest value.
    pub high: f32,
    /// Meaning of the feature, one line.
    pub summary: &'static str,
}

const fn feature(name: &'static str, low: f32, high: f32, summary: &'static str) -> Feature {
    Feature { name, low, high, summary }
}

/// The values of a row, in their order.
pub const FEATURES: [Feature; 7] = [
    feature("delivery_share", 0.0, 2.0, "delivery rate over send rate"),
    feature("queueing", 0.0, 10.0, "mean round trip over the least one, less 1"),
    feature("rtt_slope", -1.0, 1.0, "growth of the mean round trip in the row, over its time"),
    feature("loss", 0.0, 1.0, "bytes lost over bytes acknowledged or lost"),
    feature("marked", 0.0, 1.0, "bytes marked CE over bytes acknowledged"),
    feature("in_flight", 0.0, 2.0, "bytes in flight over the window"),
    feature("log_rate", -1.0, 2.0, "log2 of the segments delivered in a least round trip, over 10"),
];

/// Numbers in a row: a value and whether it is known, for each feature.
pub const WIDTH: usize = 2 * FEATURES.len();

/// Most rows of a history.
pub const HISTORY_MAX: usize = 64;

/// Events from one decision to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Time since the previous decision.
    pub interval: Duration,
    /// Bytes of a segment.
    pub mss: ByteCount,
    /// Bytes acknowledged.
    pub acked: ByteCount,
    /// Bytes lost, where the host reports them.
    pub lost: Option<ByteCount>,
    /// Bytes marked congestion experienced, where the host reports them.
    pub marked: Option<ByteCount>,
    /// Mean of the round trips measured.
    pub rtt: Option<Duration>,
    /// Least round trip since the start.
    pub min_rtt: Option<Duration>,
    /// Delivery rate over send rate, as measured last.
    pub delivery_share: Option<f64>,
    /// Bytes in flight, as measured last.
    pub in_flight: Option<ByteCount>,
}

impl Outcome {
    /// Bytes acknowledged a second; 0 for an interval of no length.
    pub fn bytes_per_s(&self) -> f64 {
        share(self.acked.as_f64(), self.interval.as_secs_f64())
    }

    /// Lost share of the bytes acknowledged or lost; 0 where the host reports no losses.
    pub fn loss(&self) -> f64 {
        let lost = self.lost.unwrap_or(ByteCount::ZERO).as_f64();
        share(lost, self.acked.as_f64() + lost)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Sums measurements up, and keeps the rows.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    mss: ByteCount,
    since: Timestamp,
    open: Outcome,
    rtts_ns: u128,
    rtt_count: u32,
    min_rtt: Option<Duration>,
    /// Mean round trip of the row before.
    last_rtt: Option<Duration>,
    rows: Vec<f32>,
}

impl Observer {
    /// Keeps `history` rows.
    pub fn new(history: usize) -> Self {
        Self {
            mss: ByteCount::new(1),
            since: Timestamp::ZERO,
            open: Outcome::default(),
            rtts_ns: 0,
            rtt_count: 0,
            min_rtt: None,
            last_rtt: None,
            rows: vec![0.0; history * WIDTH],
        }
    }

    /// Starts over at `now`.
    pub fn start(&mut self, now: Timestamp, mss: ByteCount) {
        *self = Self { mss, since: now, ..Self::new(self.rows.len() / WIDTH) };
    }

    /// The parts of round trips have changed: they are `nanos` nanoseconds longer.
    pub fn shift_rtt(&mut self, nanos: i64) {
        let amount = Duration::from_nanos(nanos.unsigned_abs());
        let shifted = |rtt: Duration| {
            if nanos < 0 { rtt.saturating_sub(amount) } else { rtt.saturating_add(amount) }
        };
        self.min_rtt = self.min_rtt.map(shifted);
        self.last_rtt = self.last_rtt.map(shifted);
        // The round trips of the open row change, too.
        let all_ns = u128::from(nanos.unsigned_abs()) * u128::from(self.rtt_count);
        self.rtts_ns = if nanos < 0 {
            self.rtts_ns.saturating_sub(all_ns)
        } else {
            self.rtts_ns.saturating_add(all_ns)
        };
    }

    pub fn on_measurement(&mut self, measurement: &Measurement) {
        let add = |sum: &mut Option<ByteCount>, more: Option<ByteCount>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(ByteCount::ZERO) + more);
            }
        };
        self.open.acked += measurement.acked;
        add(&mut self.open.lost, measurement.lost);
        add(&mut self.open.marked, measurement.ecn_ce);
        self.open.in_flight = measurement.in_flight.or(self.open.in_flight);
        if let Some(rtt) = measurement.rtt {
            self.rtts_ns += rtt.latest.as_nanos();
            self.rtt_count += 1;
            let least = rtt.min.min(rtt.latest);
            self.min_rtt = Some(self.min_rtt.map_or(least, |known| known.min(least)));
        }
        if let Some((sent, delivered)) = measurement.send_rate.zip(measurement.delivery_rate) {
            let [sent, delivered] = [sent, delivered].map(|rate| rate.as_bytes_per_sec_f64());
            self.open.delivery_share = (sent > 0.0).then_some(delivered / sent);
        }
    }

    /// Ends the row at `now`, the window having been `window_bytes`.
    pub fn close(&mut self, now: Timestamp, window_bytes: f64) -> Outcome {
        let mean_ns = self.rtts_ns.checked_div(self.rtt_count.into());
        let outcome = Outcome {
            interval: now.saturating_since(self.since),
            mss: self.mss,
            rtt: mean_ns.map(|ns| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))),
            min_rtt: self.min_rtt,
            ..self.open
        };
        let row = self.row(&outcome, window_bytes);
        self.rows.copy_within(WIDTH.., 0);
        let last = self.rows.len() - WIDTH;
        for (place, (value, feature)) in row.into_iter().zip(FEATURES).enumerate() {
            let value = value.map(|value| value as f32).filter(|value| value.is_finite());
            let is_known = value.is_some();
            let value = value.map_or(0.0, |value| value.clamp(feature.low, feature.high));
            self.rows[last + place] = value;
            self.rows[last + FEATURES.len() + place] = f32::from(u8::from(is_known));
        }
        self.last_rtt = outcome.rtt.or(self.last_rtt);
        (self.since, self.open, self.rtts_ns, self.rtt_count) = (now, Outcome::default(), 0, 0);
        outcome
    }

    fn row(&self, outcome: &Outcome, window_bytes: f64) -> [Option<f64>; FEATURES.len()] {
        let interval_s = outcome.interval.as_secs_f64();
        let least_s = outcome.min_rtt.map(|rtt| rtt.as_secs_f64()).filter(|it| *it > 0.0);
        let mean_s = outcome.rtt.map(|rtt| rtt.as_secs_f64());
        let slope = mean_s.zip(self.last_rtt).filter(|_| interval_s > 0.0);
        let delivered = least_s.map(|least_s| outcome.bytes_per_s() * least_s / self.mss.as_f64());
        [
            outcome.delivery_share,
            mean_s.zip(least_s).map(|(mean_s, least_s)| mean_s / least_s - 1.0),
            slope.map(|(mean_s, last)| (mean_s - last.as_secs_f64()) / interval_s),
            outcome.lost.map(|_| outcome.loss()),
            outcome.marked.map(|marked| share(marked.as_f64(), outcome.acked.as_f64())),
            outcome.in_flight.map(|bytes| share(bytes.as_f64(), window_bytes)),
            delivered.filter(|it| *it > 0.0).map(|segments| libm::log2(segments) / 10.0),
        ]
    }

    /// The rows, the newest last.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    pub fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }
}
