//! Estimators that the delay-based algorithms share: least round-trip time, standing delay, bottleneck rate,
//! loop time and the queue to aim for.
//!
//! ```text
//! base  least round trip, all samples; raised only by a drain (see `delay`)
//! x     standing delay: least round trip of the last max(Tl, 4 samples), minus base
//! R     delivery rate, over about one round trip
//! mu    bottleneck rate: largest R of the last max(10 Tl, 1 s) of backlogged time
//! Tl    loop time: least feedback delay of the last 2 base, at least base
//! Q     queue to aim for: share x max(6 packets, 0.75 ms x mu); x* = Q / mu
//!       (where it is short on slow paths at most max(2 packets, 1.5 ms x mu))
//! ```
//! x is a minimum and not a mean: base and x then carry the same bias from noise, which cancels up to 2/(n+1)
//! of it. A mean would add all of it (8 packets at 96 Mbit/s for 1 ms). All time constants are in Tl and not
//! in base: the two differ where reports are late.

use alloc::collections::VecDeque;

use super::Measurement;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Queue to aim for (packets) where packets are large against the noise of time stamps: two bundles at one bottleneck
/// find their shares by it.
const TARGET_PACKETS: f64 = 6.0;
/// Longest queue to aim for with a short target on slow paths (seconds), or [`SHORT_TARGET_MIN`]
/// packets if those take longer. It is one and a half times the noise assumed. Six packets are 14
/// ms at 5 Mbit/s, and every round trip there would wait for them.
const SHORT_TARGET_S: f64 = 1.5e-3;
/// Packets of the shortest target. One packet shows a queue. The second makes up for a base that
/// was measured with a smaller packet.
const SHORT_TARGET_MIN: f64 = 2.0;
/// Queue to aim for where packets are small against that noise: three quarters of the 1 ms of noise assumed.
const TARGET_S: f64 = 0.75e-3;
/// Samples that the standing delay takes the least of, at least.
const STANDING_SAMPLES: u64 = 4;
/// Shortest window of the bottleneck rate.
const BOTTLENECK_WINDOW_S: f64 = 1.0;
/// Gain of the noise estimate: an average over 20 samples.
const NOISE_GAIN: f64 = 0.05;
/// Share of the target that remains after a loss, at most once a loop time (CUBIC's beta, RFC 9438).
const SHARE_CUT: f64 = 0.7;
/// Smallest share of the target.
const SHARE_MIN: f64 = 0.25;
/// Regrowth of the share per second: a shallow buffer is tried again every half minute.
const SHARE_GROWTH_PER_S: f64 = 0.02;
/// Share of idle time from which the sender counts as app-limited.
const IDLE_SHARE: f64 = 0.05;

/// Converts seconds; negative and NaN become zero.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// The least value of a sliding window, in constant memory.
///
/// Keeps the values that can still become the least, in order of time. Those closer together than
/// 1/64 of the window share an entry and are forgotten with its first.
#[derive(Clone, Debug, Default)]
pub struct SlidingMin {
    entries: VecDeque<Entry>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_s: f64,
    index: u64,
    value: f64,
}

impl SlidingMin {
    /// Adds `value` and forgets entries both older than `window_s` and not among the last `keep`.
    pub fn push(&mut self, now_s: f64, value: f64, window_s: f64, keep: u64) {
        self.count += 1;
        while self.entries.back().is_some_and(|entry| entry.value >= value) {
            self.entries.pop_back();
        }
        let resolution_s = window_s / 64.0;
        match self.entries.back_mut() {
            Some(last) if now_s - last.at_s < resolution_s => last.index = self.count,
            _ => self.entries.push_back(Entry { at_s: now_s, index: self.count, value }),
        }
        if self.entries.len() > 256 {
            self.entries.pop_front();
        }
        self.expire(now_s, window_s, keep);
    }

    /// Forgets entries both older than `window_s` and not among the last `keep`.
    pub fn expire(&mut self, now_s: f64, window_s: f64, keep: u64) {
        let (from_s, from_index) = (now_s - window_s, (self.count + 1).saturating_sub(keep));
        let is_old = |entry: &Entry| entry.at_s < from_s && entry.index < from_index;
        while self.entries.len() > 1 && self.entries.front().is_some_and(is_old) {
            self.entries.pop_front();
        }
    }

    /// The least value.
    pub fn value(&self) -> Option<f64> {
        self.entries.front().map(|entry| entry.value)
    }

    /// Adds `by` to all values.
    pub fn shift(&mut self, by: f64) {
        self.entries.iter_mut().for_each(|entry| entry.value += by);
    }

    /// Replaces the entries by these times and values, in order of time.
    pub fn replace(&mut self, values: impl Iterator<Item = (f64, f64)>) {
        self.entries.clear();
        for (at_s, value) in values {
            while self.entries.back().is_some_and(|entry| entry.value >= value) {
                self.entries.pop_back();
            }
            self.entries.push_back(Entry { at_s, index: self.count, value });
        }
    }

    /// Values seen.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.count = 0;
    }
}

/// The largest value of a sliding window.
#[derive(Clone, Debug, Default)]
pub struct SlidingMax(SlidingMin);

impl SlidingMax {
    /// Adds `value` and forgets entries older than `window_s`.
    pub fn push(&mut self, now_s: f64, value: f64, window_s: f64) {
        self.0.push(now_s, -value, window_s, 1);
    }

    /// The largest value, 0 where there is none.
    pub fn value(&self) -> f64 {
        -self.0.value().unwrap_or(0.0)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The recent maximum of the delivery rate, which expires only while the sender is backlogged: an
/// idle hour says nothing about the path.
#[derive(Clone, Debug, Default)]
pub struct BottleneckRate {
    rates: SlidingMax,
    backlogged_s: f64,
}

impl BottleneckRate {
    /// Adds a rate that was seen over the last `elapsed_s`.
    pub fn push(&mut self, bytes_per_s: f64, elapsed_s: f64, loop_s: f64, app_limited: bool) {
        if !app_limited {
            self.backlogged_s += elapsed_s;
        }
        let window_s = BOTTLENECK_WINDOW_S.max(10.0 * loop_s);
        self.rates.push(self.backlogged_s, bytes_per_s, window_s);
    }

    /// The estimate in bytes per second, 0 while unknown.
    pub fn bytes_per_s(&self) -> f64 {
        self.rates.value()
    }
}

/// Whether the sender had too little data for its measurement to show anything.
pub fn is_idle(measurement: &Measurement) -> bool {
    match measurement.idle {
        Some(idle) => idle.as_f64() > IDLE_SHARE,
        None => measurement.app_limited,
    }
}

/// Input of an algorithm's decision. Seconds, bytes and bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Time since the previous measurement, at most one loop time.
    pub dt_s: f64,
    /// Least round-trip time.
    pub base_s: f64,
    /// Standing queueing delay.
    pub standing_s: f64,
    /// Queueing delay of the last four samples: noisier than `standing_s`, but reacts sooner.
    pub fresh_s: f64,
    /// When the newest acknowledged packet was sent.
    pub sent_at_s: f64,
    /// Standing queueing delay to aim for.
    pub target_s: f64,
    /// Queue to aim for.
    pub target_bytes: f64,
    /// The delay of six packets or 0.75 ms, whichever is longer, in a buffer that is deep enough. It shows a
    /// queue of hosts in slow start and the end of a buffer.
    pub deep_target_s: f64,
    /// Delivery rate over about one round trip.
    pub delivery_bytes_per_s: f64,
    /// Largest delivery rate of the last three loop times.
    pub recent_bytes_per_s: f64,
    /// Mean delivery rate of about the last three loop times.
    pub mean_bytes_per_s: f64,
    /// Bottleneck rate.
    pub bottleneck_bytes_per_s: f64,
    /// Largest delivery rate over a small part of a round trip, of the last loop time.
    pub train_bytes_per_s: f64,
    /// Rate at which the acknowledged bytes were sent.
    pub send_bytes_per_s: f64,
    /// Loop time.
    pub loop_s: f64,
    /// Bytes outstanding.
    pub in_flight_bytes: f64,
    /// Bytes newly delivered.
    pub acked_bytes: f64,
    /// Share of the window in which the sender had nothing to send.
    pub idle: f64,
    /// The sender had too little to send, and no queueing is visible.
    pub app_limited: bool,
    /// Mean absolute difference of successive round-trip times.
    pub noise_s: f64,
}

/// Feeds the estimators from measurements.
#[derive(Clone, Debug)]
pub struct PathEstimator {
    mss_bytes: f64,
    is_short_on_slow_paths: bool,
    base_s: Option<f64>,
    /// Least round trip of the last 10 s, for a base that idle traffic may raise.
    recent_rtts: SlidingMin,
    round_trips: SlidingMin,
    fresh_round_trips: SlidingMin,
    loop_times: SlidingMin,
    bottleneck: BottleneckRate,
    recent: SlidingMax,
    trains: SlidingMax,
    mean_bytes_per_s: f64,
    noise_s: f64,
    /// Least queue to aim for (seconds).
    floor_s: f64,
    last_rtt_s: Option<f64>,
    share: f64,
    share_cut_at_s: f64,
    last_at: Option<Timestamp>,
    first_at_s: f64,
    path: Path,
}

impl PathEstimator {
    /// An estimator for packets of `mss` bytes. `is_short_on_slow_paths` aims for a shorter queue on slow paths. Do
    /// not set it for a single flow, since its acknowledgements come in bursts.
    pub fn new(mss: ByteCount, is_short_on_slow_paths: bool) -> Self {
        Self {
            mss_bytes: mss.as_f64().max(1.0),
            is_short_on_slow_paths,
            base_s: None,
            recent_rtts: SlidingMin::default(),
            round_trips: SlidingMin::default(),
            fresh_round_trips: SlidingMin::default(),
            loop_times: SlidingMin::default(),
            bottleneck: BottleneckRate::default(),
            recent: SlidingMax::default(),
            trains: SlidingMax::default(),
            mean_bytes_per_s: 0.0,
            noise_s: 0.0,
            floor_s: 0.0,
            last_rtt_s: None,
            share: 1.0,
            share_cut_at_s: 0.0,
            last_at: None,
            first_at_s: 0.0,
            path: Path::default(),
        }
    }

    /// Takes a measurement. `shaped_since_s` is the time from which this sender's own limits hold: earlier
    /// losses say nothing about them. `None` while too little is known about the path for a decision.
    pub fn on_measurement(
        &mut self,
        now: Timestamp,
        measurement: &Measurement,
        shaped_since_s: f64,
    ) -> Option<Path> {
        let rtt = measurement.rtt?;
        let now_s = now.as_secs_f64();
        let (least_s, latest_s) = (rtt.min.as_secs_f64(), rtt.latest.as_secs_f64());
        if least_s <= 0.0 || latest_s <= 0.0 {
            return None;
        }
        let elapsed_s = match self.last_at.replace(now) {
            Some(last) => now.saturating_since(last).as_secs_f64(),
            None => {
                self.first_at_s = now_s;
                0.0
            }
        };
        let base_s = self.base_s.map_or(least_s, |base_s| base_s.min(least_s));
        self.base_s = Some(base_s);
        let feedback_s = measurement.feedback_delay.map_or(latest_s, |delay| delay.as_secs_f64());
        self.loop_times.push(now_s, feedback_s, 2.0 * base_s, 1);
        let loop_s = self.loop_times.value()?.max(base_s);
        self.round_trips.push(now_s, least_s, loop_s, STANDING_SAMPLES);
        self.fresh_round_trips.push(now_s, least_s, 0.0, STANDING_SAMPLES);
        self.recent_rtts.push(now_s, least_s, 10.0, 1);
        if let Some(last_s) = self.last_rtt_s.replace(latest_s) {
            self.noise_s += NOISE_GAIN * (libm::fabs(latest_s - last_s) - self.noise_s);
        }
        self.path.sent_at_s = now_s - feedback_s;
        self.path.base_s = base_s;
        self.path.loop_s = loop_s;
        self.path.dt_s = elapsed_s.min(loop_s);
        self.path.noise_s = self.noise_s;
        self.path.acked_bytes = measurement.acked.as_f64();
        self.update_rates(now_s, elapsed_s, measurement);
        self.update_target(now_s, measurement, shaped_since_s);
        self.path.standing_s = self.round_trips.value()? - base_s;
        self.path.fresh_s = self.fresh_round_trips.value()? - base_s;
        let is_queueing = self.path.standing_s > 4.0 * self.path.target_s;
        self.path.app_limited = is_idle(measurement) && !is_queueing;
        (self.path.bottleneck_bytes_per_s > 0.0).then_some(self.path)
    }

    fn update_rates(&mut self, now_s: f64, elapsed_s: f64, measurement: &Measurement) {
        let loop_s = self.path.loop_s;
        if let Some(rate) = measurement.delivery_rate {
            let rate = rate.as_bytes_per_sec_f64();
            self.path.delivery_bytes_per_s = rate;
            self.recent.push(now_s, rate, 3.0 * loop_s);
            self.bottleneck.push(rate, elapsed_s, loop_s, is_idle(measurement));
            // An exponential mean with half the length of the window it stands for.
            let gain = 1.0 - libm::exp(-self.path.dt_s / (1.5 * loop_s));
            self.mean_bytes_per_s += gain * (rate - self.mean_bytes_per_s);
        }
        if let Some(rate) = measurement.train_rate {
            self.trains.push(now_s, rate.as_bytes_per_sec_f64(), loop_s);
        }
        self.path.recent_bytes_per_s = self.recent.value();
        self.path.bottleneck_bytes_per_s = self.bottleneck.bytes_per_s();
        self.path.train_bytes_per_s = self.trains.value();
        self.path.mean_bytes_per_s = self.mean_bytes_per_s;
        self.path.send_bytes_per_s = measurement
            .send_rate
            .map_or(self.path.delivery_bytes_per_s, Rate::as_bytes_per_sec_f64);
        self.path.in_flight_bytes = measurement
            .in_flight
            .map_or(self.path.delivery_bytes_per_s * self.path.base_s, ByteCount::as_f64);
        self.path.idle =
            measurement.idle.map_or(f64::from(u8::from(measurement.app_limited)), |r| r.as_f64());
    }

    /// Shrinks the target where the buffer is too shallow for it, which loss shows.
    fn update_target(&mut self, now_s: f64, measurement: &Measurement, shaped_since_s: f64) {
        let has_lost = measurement.lost.is_some_and(|lost| lost > ByteCount::ZERO);
        let is_ours = self.path.sent_at_s >= shaped_since_s + self.path.loop_s;
        if has_lost && is_ours && !is_idle(measurement) {
            if now_s - self.share_cut_at_s >= self.path.loop_s {
                self.share = (self.share * SHARE_CUT).max(SHARE_MIN);
                self.share_cut_at_s = now_s;
            }
        } else {
            self.share = (self.share + SHARE_GROWTH_PER_S * self.path.dt_s).min(1.0);
        }
        let bottleneck = self.path.bottleneck_bytes_per_s;
        let time_bytes = TARGET_S * bottleneck;
        let floor_bytes = self.floor_s * bottleneck;
        let deep_bytes = (TARGET_PACKETS * self.mss_bytes).max(time_bytes).max(floor_bytes);
        let most_bytes = if self.is_short_on_slow_paths {
            (SHORT_TARGET_MIN * self.mss_bytes).max(SHORT_TARGET_S * bottleneck)
        } else {
            f64::INFINITY
        };
        self.path.target_bytes = (self.share * deep_bytes).min(most_bytes).max(floor_bytes);
        let delay_s =
            |bytes: f64| if bottleneck > 0.0 { bytes / bottleneck } else { f64::INFINITY };
        self.path.deep_target_s = delay_s(deep_bytes);
        self.path.target_s = delay_s(self.path.target_bytes);
    }

    /// The standing delay has been measured for a full window.
    pub fn is_standing_known(&self, now: Timestamp) -> bool {
        self.round_trips.count() >= STANDING_SAMPLES
            && now.as_secs_f64() - self.first_at_s >= self.path.loop_s
    }

    /// The loss was no buffer's: it says nothing about the depth of one.
    pub fn take_back_losses(&mut self) {
        self.share = 1.0;
    }

    /// Replaces the least round-trip time by the result of a drain.
    pub fn set_base_s(&mut self, base_s: f64) {
        self.base_s = Some(base_s);
    }

    /// All round trips seen before count as longer by this.
    pub fn shift_s(&mut self, by_s: f64) {
        self.base_s = self.base_s.map(|base_s| (base_s + by_s).max(0.0));
        self.last_rtt_s = self.last_rtt_s.map(|rtt_s| rtt_s + by_s);
        for window in [&mut self.round_trips, &mut self.fresh_round_trips, &mut self.recent_rtts] {
            window.shift(by_s);
        }
    }

    /// The least round trip of the last 10 s, in seconds.
    pub fn recent_rtt_s(&self) -> Option<f64> {
        self.recent_rtts.value()
    }

    /// Round trips vary by `noise`, so a shorter queue cannot be distinguished from none.
    pub fn set_noise(&mut self, noise: Duration) {
        self.floor_s = noise.as_secs_f64();
    }

    /// The mss in bytes.
    pub fn mss_bytes(&self) -> f64 {
        self.mss_bytes
    }

    /// The latest estimates.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Least round-trip time, `None` before the first sample.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.base_s.map(duration)
    }

    /// Forgets the queue of a time that is over, keeps the properties of the path.
    pub fn restart(&mut self) {
        self.round_trips.clear();
        self.fresh_round_trips.clear();
        self.loop_times.clear();
        self.last_rtt_s = None;
        self.last_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sliding_minimum_expires_by_age_except_last_samples() {
        let mut least = SlidingMin::default();
        least.push(0.0, 1.0, 1.0, 2);
        least.push(0.5, 3.0, 1.0, 2);
        assert_eq!(least.value(), Some(1.0));
        least.push(5.0, 2.0, 1.0, 2);
        assert_eq!(least.value(), Some(2.0), "3.0 is dominated, 1.0 is too old");
        least.push(9.0, 4.0, 1.0, 2);
        assert_eq!(least.value(), Some(2.0), "old, yet among the last two");
        least.push(9.1, 5.0, 1.0, 2);
        assert_eq!(least.value(), Some(4.0));
    }

    #[test]
    fn a_rising_sequence_stays_in_bounded_memory() {
        let mut least = SlidingMin::default();
        for index in 0..100_000 {
            least.push(f64::from(index) * 1e-4, f64::from(index), 10.0, 1);
        }
        assert!(least.entries.len() <= 256);
        let oldest_s = 9.9999 - 10.0;
        assert!(least.value().unwrap() * 1e-4 - oldest_s < 10.0 / 32.0);
    }

    #[test]
    fn the_bottleneck_rate_does_not_expire_while_idle() {
        let mut rate = BottleneckRate::default();
        rate.push(12e6, 0.01, 0.05, false);
        for _ in 0..1000 {
            rate.push(1e6, 0.01, 0.05, true);
        }
        assert_eq!(rate.bytes_per_s(), 12e6);
        for _ in 0..200 {
            rate.push(1e6, 0.01, 0.05, false);
        }
        assert_eq!(rate.bytes_per_s(), 1e6);
    }

    #[test]
    fn undone_losses_leave_the_target_queue() {
        let mut estimator = PathEstimator::new(ByteCount::new(1514), false);
        let target = |estimator: &mut PathEstimator, at_ms: u64, lost: u64| {
            let rtt = Duration::from_millis(40);
            let measurement = Measurement {
                rtt: Some(crate::cc::RttSample { latest: rtt, min: rtt }),
                delivery_rate: Some(Rate::from_mbit_per_sec(20)),
                lost: Some(ByteCount::new(lost)),
                idle: Some(crate::units::Ratio::ZERO),
                ..Measurement::default()
            };
            let now = Timestamp::from_nanos(at_ms * 1_000_000);
            estimator.on_measurement(now, &measurement, 0.0).unwrap().target_bytes
        };
        let full = target(&mut estimator, 1_000, 0);
        for number in 1..=10 {
            target(&mut estimator, 1_000 + 50 * number, 1514);
        }
        let shrunk = target(&mut estimator, 1_550, 0);
        assert!(shrunk < 0.3 * full, "{shrunk} of {full}");
        estimator.take_back_losses();
        assert_eq!(target(&mut estimator, 1_555, 0), full);
    }
}
