//! CUBIC as in Linux (net/ipv4/tcp_cubic.c, bictcp_update and cubictcp_cong_avoid; net/ipv4/tcp_cong.c,
//! tcp_cong_avoid_ai): whole segments, one added for every `cnt` acknowledged.
//!
//! ```text
//! target  origin ± floor(C |t + min_rtt - K|^3), C = 410/1024; K = 0 where W_max <= cwnd
//! cnt     floor(cwnd / (target - cwnd)), 100 cwnd where the target is not above; at least 2
//!         before any loss at most 20: 5 % a window
//!         at most floor(cwnd / (W_est - cwnd)); W_est += 1 for floor(15 cwnd / 8) acknowledged
//! when    at an acknowledgement that finds another window, or 1/32 s after the last time
//! pauses  between the last segment of a flight and the first of the next do not count as time;
//!         the epoch outlives them, also where slow start has to come back to ssthresh first
//! loss    ssthresh = 717/1024 of whole segments; one that was spurious stays in the function
//! Rto     every one, also within an episode, forgets W_max and the least round trip
//! ```
//! The floors matter in small windows: the function adds nothing before it is a whole segment above the
//! window. Until then W_est moves the window.
//!
//! Departures: times are not rounded to ticks; K is exact where Linux has a table (0.2 %); a measurement
//! over an interval is taken in parts.

use alloc::vec::Vec;

use super::{Common, Decrease, TICKS_MAX, cube_root, ticks};
use crate::cc::Measurement;
use crate::cc::interim::Interim;
use crate::cc::window::{CWND_MAX, MinRtt, Window, WindowLaw};
use crate::units::{ByteCount, Duration, Timestamp, duration_nanos, mul_div};

/// C in 1/1024 segment / s^3 (`bic_scale` times 10).
const C: u64 = 410;
/// Largest window in segments whose products fit in 64 bits (Linux: one million).
const SEGMENTS_MAX: u64 = 1 << 20;
/// Fewest acknowledged segments for a segment of growth (Linux `tcp_cubic.c`).
const COUNT_MIN: u64 = 2;
/// Most acknowledged segments for a segment of growth before any loss: 5 % of the window each round
/// trip (Linux `tcp_cubic.c`).
const EARLY_COUNT: u64 = 20;
/// Parts of a round trip, and of a window, in which acknowledged bytes are taken.
const PARTS: u64 = 16;
/// For the same window the count is kept for this time (HZ / 32).
const KEPT: Duration = Duration::from_micros(31_250);

/// From the first growth after a loss to the next loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began_at: Timestamp,
    /// K in ticks.
    k: u64,
    /// Where the function is flat, segments.
    origin: u64,
    /// W_est in segments (`tcp_cwnd`), and acknowledgements towards the next (`ack_cnt`).
    estimate: u64,
    acked: u64,
}

/// CUBIC as Linux runs it.
#[derive(Clone, Debug, Default)]
pub struct Linux {
    common: Common,
    growth: Growth,
    /// Time over which the acknowledgements of the last measurement came, without a pause before them.
    acked_over: Duration,
}

impl Linux {
    /// Before the first window.
    pub(super) fn new(common: Common) -> Self {
        let growth = Growth { scale: Scale::of(common.decrease), ..Growth::default() };
        Self { common, growth, ..Self::default() }
    }

    /// cubictcp_state, bictcp_reset.
    fn forget(&mut self) {
        self.common.on_rto();
        self.growth = Growth { scale: self.growth.scale, ..Growth::default() };
        self.common.min_rtt = MinRtt::default();
    }
}

impl WindowLaw for Linux {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let interval = measurement.interval;
        self.acked_over = measurement.rtt.map_or(interval, |rtt| interval.min(rtt.latest));
        if !self.growth.discards_rtt(now) {
            self.common.observe(now, measurement, window);
        }
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        self.common.slow_start(acked, window)
    }

    /// Takes the acknowledgements of an interval in parts, as they came: Linux computes the count again
    /// where the window has grown. A part is never less than one acknowledgement covers.
    fn avoid(&mut self, now: Timestamp, acked: u64, window: &mut Window) {
        let (mss, min_rtt) = (window.mss(), self.common.min_rtt());
        let (over, least) = (duration_nanos(self.acked_over), duration_nanos(min_rtt));
        let by_time = if least > 0 { mul_div(over, PARTS, least) } else { 0 };
        let by_size = acked / (window.cwnd() / PARTS).max(2 * mss);
        let parts = by_time.min(by_size).max(1);
        let (mut left, mut later) = (acked, parts);
        while later > 0 {
            let bytes = left / later;
            left -= bytes;
            later -= 1;
            let windows = (window.segments(), self.common.w_max / mss);
            let at = now - Duration::from_nanos(over / parts * later);
            let segments = self.growth.grow(at, (bytes, mss), windows, min_rtt);
            window.set_cwnd(window.cwnd() + segments * mss);
        }
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        self.common.on_loss(window.cwnd());
        self.growth.end_epoch();
        window.whole_segments(window.segments() * parts(self.common.decrease) / 1024)
    }

    fn on_rto(&mut self, ssthresh: u64, _window: &Window) -> u64 {
        self.forget();
        ssthresh
    }

    fn on_rto_in_episode(&mut self) {
        self.forget();
    }

    /// The window is restored (tcp_reno_undo_cwnd) and nothing of struct bictcp.
    fn undo(&mut self, _saved: Self) {}

    fn on_resume(&mut self, now: Timestamp, idle: Duration) {
        self.growth.resume(now, idle);
    }

    fn on_slow_start_end(&mut self) {
        self.common.hystart.host_found();
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.common.shift_rtt(nanos);
    }

    fn interim(&self, window: &Window) -> Interim {
        let cwnd = window.cwnd();
        // Window from which it grows if it doubles until then.
        let from = if window.ssthresh() < CWND_MAX { cwnd.max(window.ssthresh()) } else { cwnd };
        let windows = (from / window.mss(), self.common.w_max / window.mss());
        Interim {
            growth: ByteCount::new(from / self.growth.count(windows, self.common.min_rtt())),
            slow_start: self.common.hystart.host_slow_start(),
            beta: Some(self.common.decrease.beta()),
            ..Interim::HOLD
        }
    }

    fn reason(&self) -> &'static str {
        self.common.reason()
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let (k, estimate) = self.growth.epoch.map_or((0, 0), |epoch| (epoch.k, epoch.estimate));
        self.common.numbers(k, estimate)
    }
}

/// Share of a window that remains after a loss, in 1/1024 (`beta`).
fn parts(decrease: Decrease) -> u64 {
    decrease.beta().parts().into()
}

/// Eighths of a window that are acknowledged for a segment of W_est (`beta_scale`).
#[derive(Clone, Copy, Debug)]
struct Scale(u64);

impl Scale {
    fn of(decrease: Decrease) -> Self {
        let beta = parts(decrease);
        Self(8 * (1024 + beta) / 3 / (1024 - beta))
    }
}

impl Default for Scale {
    fn default() -> Self {
        Self::of(Decrease::default())
    }
}

/// The state of struct bictcp except W_max and HyStart's part.
#[derive(Clone, Debug, Default)]
struct Growth {
    scale: Scale,
    epoch: Option<Epoch>,
    /// Segments acknowledged for one more.
    count: u64,
    /// Segments acknowledged since the last one added (`snd_cwnd_cnt`).
    counted: u64,
    /// The window that the count is for, and since when.
    counted_for: u64,
    counted_at: Timestamp,
    /// Bytes acknowledged that are not a segment yet.
    rest: u64,
}

impl Growth {
    /// A reduction ends the epoch and clears the count.
    fn end_epoch(&mut self) {
        (self.epoch, self.counted) = (None, 0);
    }

    /// The first segment after a pause of `idle` leaves.
    fn resume(&mut self, now: Timestamp, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.began_at = (epoch.began_at + idle).min(now);
        }
    }

    /// Round trips of the first second after a reduction are not looked at (cubictcp_acked).
    fn discards_rtt(&self, now: Timestamp) -> bool {
        let since = |epoch: Epoch| now.saturating_since(epoch.began_at);
        self.epoch.is_some_and(|epoch| since(epoch) < Duration::from_secs(1))
    }

    /// Segments acknowledged for one more of a window of `cwnd`, the last loss having been at `w_max`:
    /// the count in force or, where no epoch has begun, the count at its beginning.
    fn count(&self, (cwnd, w_max): (u64, u64), min_rtt: Duration) -> u64 {
        if self.epoch.is_some() {
            return self.count;
        }
        let (cwnd, w_max) = (cwnd.clamp(1, SEGMENTS_MAX), w_max.min(SEGMENTS_MAX));
        let mut epoch = Epoch::new(Timestamp::ZERO, 0, cwnd, w_max);
        epoch.count(ticks(min_rtt), (cwnd, w_max), self.scale)
    }

    /// Segments to add to a window of `cwnd` segments for `bytes` acknowledged in segments of `mss`, the
    /// last loss having been at `w_max` segments, 0 for none.
    fn grow(
        &mut self,
        now: Timestamp,
        (bytes, mss): (u64, u64),
        (cwnd, w_max): (u64, u64),
        min_rtt: Duration,
    ) -> u64 {
        self.rest += bytes;
        let acked = self.rest / mss;
        self.rest %= mss;
        let cwnd = cwnd.clamp(1, SEGMENTS_MAX);
        self.update(now, acked, (cwnd, w_max.min(SEGMENTS_MAX)), min_rtt);
        // Segments counted towards a greater count add one segment at most.
        let early = u64::from(self.counted >= self.count);
        self.counted = if early > 0 { 0 } else { self.counted } + acked;
        let count = self.count.max(COUNT_MIN);
        let more = self.counted / count;
        self.counted %= count;
        early + more
    }

    fn update(&mut self, now: Timestamp, acked: u64, (cwnd, w_max): (u64, u64), min_rtt: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.acked += acked;
        }
        let is_kept = now.saturating_since(self.counted_at) <= KEPT && self.count > 0;
        if self.counted_for == cwnd && is_kept {
            return;
        }
        (self.counted_for, self.counted_at) = (cwnd, now);
        let mut epoch = self.epoch.unwrap_or_else(|| Epoch::new(now, acked, cwnd, w_max));
        let at = ticks(now.saturating_since(epoch.began_at).saturating_add(min_rtt));
        self.count = epoch.count(at, (cwnd, w_max), self.scale);
        self.epoch = Some(epoch);
    }
}

impl Epoch {
    fn new(now: Timestamp, acked: u64, cwnd: u64, w_max: u64) -> Self {
        let missing = w_max.saturating_sub(cwnd);
        let k = cube_root((missing << 40) / C);
        Self { began_at: now, k, origin: w_max.max(cwnd), estimate: cwnd, acked }
    }

    /// Segments acknowledged for one more, by the target at `at`; at least 2.
    fn count(&mut self, at: u64, (cwnd, w_max): (u64, u64), scale: Scale) -> u64 {
        let mut count = match self.target(at).checked_sub(cwnd) {
            None | Some(0) => 100 * cwnd,
            Some(more) => cwnd / more,
        };
        if w_max == 0 {
            count = count.min(EARLY_COUNT);
        }
        if let Some(more) = self.estimate(cwnd, scale).checked_sub(cwnd).filter(|more| *more > 0) {
            count = count.min(cwnd / more);
        }
        count.max(COUNT_MIN)
    }

    /// W(`at`) in segments.
    fn target(&self, at: u64) -> u64 {
        let off = at.abs_diff(self.k).min(TICKS_MAX);
        let distance = (((off * off * off) >> 10) * C) >> 30;
        if at < self.k { self.origin.saturating_sub(distance) } else { self.origin + distance }
    }

    /// W_est after the acknowledged segments.
    fn estimate(&mut self, cwnd: u64, Scale(eighths): Scale) -> u64 {
        let each = (cwnd * eighths / 8).max(1);
        let more = self.acked.saturating_sub(1) / each;
        self.acked -= more * each;
        self.estimate += more;
        self.estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;
    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Acknowledges a window segment by segment for `rounds` round trips from `ms` on.
    fn rounds(linux: &mut Growth, ms: u64, rounds: u64, mut cwnd: u64, w_max: u64) -> u64 {
        for round in 0..rounds {
            let window = cwnd;
            for number in 0..window {
                let now = at(ms + 100 * round + 100 * number / window);
                cwnd += linux.grow(now, (MSS, MSS), (cwnd, w_max), RTT);
            }
        }
        cwnd
    }

    #[test]
    fn window_grows_five_percent_before_any_loss() {
        let mut linux = Growth::default();
        // 1 for 20 acknowledged, where RFC 9438 would add 1 a window: 100 to 105, 110, 115.
        let windows = [1, 1, 1].map(|_| rounds(&mut linux, 0, 1, 100, 0));
        assert_eq!(windows, [105; 3]);
        // Small windows grow by half a segment a window, by W_est.
        assert_eq!(rounds(&mut Growth::default(), 0, 2, 10, 0), 11);
    }

    #[test]
    fn window_recovers_from_70_to_100_after_k() {
        let mut linux = Growth::default();
        let cwnd = rounds(&mut linux, 0, 1, 70, 100);
        // K = cbrt(30 / 0.4004) = 4.216 s.
        assert_eq!(linux.epoch.unwrap().k * 1000 / 1024, 4214);
        assert!((70..=80).contains(&cwnd), "{cwnd}");
        let cwnd = rounds(&mut linux, 100, 39, cwnd, 100);
        assert!((98..=100).contains(&cwnd), "{cwnd}");
        let cwnd = rounds(&mut linux, 4_000, 40, cwnd, 100);
        assert!((120..=130).contains(&cwnd), "100 + 0.4 x 3.9^3 = 123: {cwnd}");
    }

    #[test]
    fn pause_neither_counts_nor_ends_the_epoch() {
        let (mut paused, mut steady) = (Growth::default(), Growth::default());
        for linux in [&mut paused, &mut steady] {
            rounds(linux, 0, 10, 70, 100);
        }
        paused.resume(at(8_000), Duration::from_secs(7));
        let cwnds =
            [rounds(&mut paused, 8_000, 5, 80, 100), rounds(&mut steady, 1_000, 5, 80, 100)];
        assert_eq!(cwnds[0], cwnds[1]);
        // If the function did not know about the pause, it would be far ahead: half a window more each
        // time.
        steady.counted = 0;
        assert_eq!(rounds(&mut steady, 20_000, 1, 80, 100) / 10, 12);
        // Never into the future.
        paused.resume(at(9_000), Duration::from_secs(100));
        assert_eq!(paused.epoch.unwrap().began_at, at(9_000));
    }

    #[test]
    fn round_trips_count_again_a_second_after_reduction() {
        let mut linux = Growth::default();
        assert!(!linux.discards_rtt(at(0)));
        rounds(&mut linux, 0, 1, 70, 100);
        assert!(linux.discards_rtt(at(999)) && !linux.discards_rtt(at(1_000)));
        linux.end_epoch();
        assert!(!linux.discards_rtt(at(10)));
    }

    #[test]
    fn the_largest_windows_and_times_do_not_overflow() {
        let mut linux = Growth::default();
        linux.grow(at(0), (u64::MAX >> 24, 1), (1 << 32, u64::MAX), RTT);
        linux.counted_for = 0;
        let later = Timestamp::from_nanos(u64::MAX);
        assert!(linux.grow(later, (1 << 36, 1), (1 << 32, 1 << 32), Duration::MAX) > 0);
    }
}
