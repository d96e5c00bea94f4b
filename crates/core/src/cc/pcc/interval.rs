//! Monitor intervals: a sender keeps one rate in each of them, and learns how the packets fared that left in it.

use alloc::collections::VecDeque;

use crate::cc::Measurement;
use crate::cc::estimators::is_idle;
use crate::units::{ByteCount, Duration, Timestamp};

/// Samples of the round trip without which an interval says nothing (PCC-Uspace, kMinReliableRtt). With fewer, the slope
/// is random.
const SAMPLES_MIN: u32 = 4;
/// Later segments whose acknowledgement shows that the losses of an interval are known. Loss detection by duplicates
/// takes three (RFC 5681, section 3.2).
const SETTLED_SEGMENTS: f64 = 4.0;
/// Intervals that are open at most: three pairs of a probe and one that waits.
const OPEN_MAX: usize = 7;

/// Sums of a regression of round trips over the times of departure, in seconds since the start of an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    time: f64,
    rtt: f64,
    time_time: f64,
    time_rtt: f64,
    rtt_rtt: f64,
}

impl Sums {
    fn add(&mut self, time_s: f64, rtt_s: f64) {
        self.count += 1.0;
        self.time += time_s;
        self.rtt += rtt_s;
        self.time_time += time_s * time_s;
        self.time_rtt += time_s * rtt_s;
        self.rtt_rtt += rtt_s * rtt_s;
    }
}

/// Result of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Rate at which the sender sent, in Mbit/s.
    pub sent_mbit_per_s: f64,
    /// Lost bytes over bytes sent.
    pub loss: f64,
    /// Slope of the round trip over the time of departure, in seconds a second.
    pub slope: f64,
    /// Root mean square of the residuals of the regression, over the mean round trip.
    pub slope_error: f64,
    /// Mean round trip in seconds.
    pub rtt_s: f64,
    /// Standard deviation of the round trip in seconds.
    pub deviation_s: f64,
}

/// One interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// Rate asked of the host, in bytes a second.
    pub bytes_per_s: f64,
    /// The outcome counts. Otherwise the sender waits for the outcomes of earlier intervals.
    pub is_useful: bool,
    /// The sender had too little to send.
    pub is_void: bool,
    began: Timestamp,
    /// Bytes delivered as it began.
    delivered: ByteCount,
    /// Departures of the first and the newest acknowledged packet, and the bytes acknowledged after the first.
    first: Option<Timestamp>,
    last: Timestamp,
    later_bytes: f64,
    acked_bytes: f64,
    lost_bytes: f64,
    /// Round trips count as differences to the first of them.
    rtt_offset_s: Option<f64>,
    sums: Sums,
}

impl Interval {
    fn new(now: Timestamp, delivered: ByteCount, bytes_per_s: f64, is_useful: bool) -> Self {
        Self {
            bytes_per_s,
            is_useful,
            is_void: false,
            began: now,
            delivered,
            first: None,
            last: now,
            later_bytes: 0.0,
            acked_bytes: 0.0,
            lost_bytes: 0.0,
            rtt_offset_s: None,
            sums: Sums::default(),
        }
    }

    fn add(&mut self, sent: Timestamp, measurement: &Measurement) {
        let acked_bytes = measurement.acked.as_f64();
        if self.first.is_some() {
            self.later_bytes += acked_bytes;
        } else if acked_bytes > 0.0 {
            self.first = Some(sent);
        }
        self.last = sent;
        self.acked_bytes += acked_bytes;
        self.is_void |= is_idle(measurement);
        if let Some(rtt) = measurement.rtt.filter(|rtt| !rtt.latest.is_zero()) {
            let rtt_s = rtt.latest.as_secs_f64();
            let offset_s = *self.rtt_offset_s.get_or_insert(rtt_s);
            let time_s = sent.saturating_since(self.began).as_secs_f64();
            self.sums.add(time_s, rtt_s - offset_s);
        }
    }

    fn has_samples(&self) -> bool {
        self.sums.count >= f64::from(SAMPLES_MIN)
    }

    /// Rate at which the sender sent, in bytes a second; the one asked for where it is not known.
    fn sent_bytes_per_s(&self) -> f64 {
        let span = self.first.map_or(Duration::ZERO, |first| self.last.saturating_since(first));
        let sent = self.later_bytes + self.lost_bytes;
        if span.is_zero() { self.bytes_per_s } else { sent / span.as_secs_f64() }
    }

    pub fn outcome(&self) -> Outcome {
        let Sums { count, time, rtt, time_time, time_rtt, rtt_rtt } = self.sums;
        let sent_bytes = self.acked_bytes + self.lost_bytes;
        let loss = if sent_bytes > 0.0 { self.lost_bytes / sent_bytes } else { 0.0 };
        let sent_mbit_per_s = self.sent_bytes_per_s() * 8e-6;
        if count < 2.0 {
            return Outcome { sent_mbit_per_s, loss, ..Outcome::default() };
        }
        let mean_s = rtt / count;
        let spread_time = time_time - time * time / count;
        let spread_both = time_rtt - time * mean_s;
        let spread_rtt = (rtt_rtt - rtt * mean_s).max(0.0);
        let slope = if spread_time > 0.0 { spread_both / spread_time } else { 0.0 };
        let residual = (spread_rtt - slope * spread_both).max(0.0);
        let rtt_s = mean_s + self.rtt_offset_s.unwrap_or(0.0);
        let error = libm::sqrt(residual / count) / rtt_s.max(f64::MIN_POSITIVE);
        Outcome {
            sent_mbit_per_s,
            loss,
            slope,
            slope_error: error,
            rtt_s,
            deviation_s: libm::sqrt(spread_rtt / count),
        }
    }
}

/// The open intervals, the newest last.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    open: VecDeque<Interval>,
    /// Newest departure of an acknowledged packet.
    sent: Timestamp,
    mss_bytes: f64,
}

impl Intervals {
    pub fn new(mss_bytes: f64) -> Self {
        Self { open: VecDeque::with_capacity(OPEN_MAX), sent: Timestamp::ZERO, mss_bytes }
    }

    /// Forgets all intervals.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Begins an interval, which ends the newest one.
    pub fn begin(&mut self, now: Timestamp, delivered: ByteCount, rate: f64, is_useful: bool) {
        if self.open.len() == OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(Interval::new(now, delivered, rate, is_useful));
    }

    pub fn newest(&self) -> Option<&Interval> {
        self.open.back()
    }

    /// Intervals whose outcomes count: all but the one in which the sender waits for them.
    pub fn useful(&self) -> impl ExactSizeIterator<Item = &Interval> {
        let waits = self.open.back().is_some_and(|newest| !newest.is_useful);
        self.open.range(..self.open.len() - usize::from(waits))
    }

    /// Gives the bytes and the round trip of `measurement` to the interval in which its newest packet left.
    pub fn on_measurement(&mut self, now: Timestamp, measurement: &Measurement) {
        let age = measurement.feedback_delay.or(measurement.rtt.map(|rtt| rtt.latest));
        self.sent = age.map_or(self.sent, |age| self.sent.max(now - age));
        let sent = self.sent;
        let place = self.open.iter().rposition(|interval| interval.began <= sent);
        if let Some(place) = place {
            self.open[place].add(sent, measurement);
        }
        let lost_bytes = measurement.lost.map_or(0.0, ByteCount::as_f64);
        if lost_bytes > 0.0 {
            // A packet that left in an interval left with at least as much delivered as at its beginning.
            let of_loss = measurement
                .lost_prior_delivered
                .map(|prior| self.open.iter().rposition(|interval| interval.delivered <= prior));
            if let Some(place) = of_loss.unwrap_or(place) {
                self.open[place].lost_bytes += lost_bytes;
            }
        }
    }

    /// The newest interval is useful, and has lasted for `least` and long enough to say something.
    pub fn may_end(&self, now: Timestamp, least: Duration) -> bool {
        let newest = self.open.back().filter(|newest| newest.is_useful);
        newest.is_some_and(|it| it.has_samples() && now.saturating_since(it.began) >= least)
    }

    /// The sender waits, and all earlier packets are acknowledged or known to be lost.
    pub fn are_settled(&self) -> bool {
        let waiting = self.open.back().filter(|newest| !newest.is_useful);
        waiting.is_some_and(|waiting| {
            self.sent >= waiting.began && waiting.acked_bytes >= SETTLED_SEGMENTS * self.mss_bytes
        })
    }

    /// Rate at which the sender sent in the newest interval with samples, in bytes a second.
    pub fn sent_bytes_per_s(&self) -> Option<f64> {
        self.open.iter().rev().find(|it| it.has_samples()).map(Interval::sent_bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;

    const MSS: ByteCount = ByteCount::new(1000);

    /// An interval of 100 ms at 1 packet a millisecond whose round trip is `rtt_us` of a packet's number.
    fn fed(rtt_us: impl Fn(u64) -> u64, lost: u64) -> Intervals {
        let mut intervals = Intervals::new(MSS.as_f64());
        let at = |us: u64| Timestamp::ZERO + Duration::from_micros(us);
        intervals.begin(at(1_000_000), ByteCount::ZERO, 1e6, true);
        intervals.begin(at(1_100_500), MSS * 70, 1e6, false);
        for number in 0..=110 {
            let rtt = Duration::from_micros(rtt_us(number));
            let now = at(1_000_000 + 1000 * number) + rtt;
            let measurement = Measurement {
                acked: MSS,
                rtt: Some(RttSample { latest: rtt, min: rtt }),
                lost: Some(if number == 105 { MSS * lost } else { ByteCount::ZERO }),
                lost_prior_delivered: Some(MSS * 20),
                ..Measurement::default()
            };
            intervals.on_measurement(now, &measurement);
        }
        intervals
    }

    #[test]
    fn slope_and_deviation_are_of_regression() {
        let rising = fed(|number| 30_000 + 20 * number, 0);
        let outcome = rising.useful().next().unwrap().outcome();
        assert!((outcome.slope - 0.02).abs() < 1e-9, "{outcome:?}");
        assert!(outcome.slope_error < 1e-6 && (outcome.rtt_s - 0.031).abs() < 1e-6);
        let uneven = fed(|number| if number % 2 == 0 { 30_000 } else { 30_400 }, 0);
        let outcome = uneven.useful().next().unwrap().outcome();
        assert!(outcome.slope.abs() < 1e-3 && (outcome.deviation_s - 0.0002).abs() < 1e-6);
        assert!((outcome.slope_error - 0.0002 / 0.0302).abs() < 1e-4);
    }

    #[test]
    fn late_losses_count_where_packets_left() {
        let intervals = fed(|_| 30_000, 10);
        let outcome = intervals.useful().next().unwrap().outcome();
        assert!((outcome.loss - 10.0 / 111.0).abs() < 1e-9, "{outcome:?}");
        assert!((outcome.sent_mbit_per_s - 8.8).abs() < 1e-9, "110 packets in 100 ms");
        assert!(intervals.are_settled());
    }
}
