//! Whether traffic that is not ours fills the bottleneck's buffer.
//!
//! A delay-based law empties the queue that it makes. One that stays although drains have been tried is
//! somebody else's:
//!
//! ```text
//! age      time since the queue was last below theta = max(2 ms, 1.5 x*)
//! standing age > 0.6 s + 8 base + 5000 packets / mu, and a drain has ended within it
//! starved  less than 0.12 mu is delivered for 2.5 s, although there is more to send; in the 30 s after others have
//!          left, less than 0.6 of what was delivered beside them
//! squeezed what is delivered has declined slowly to 0.8 of mu beside a queue that hardly empties
//! ```
//! mu is the largest delivery rate of the last 30 s of steering with something to send. Open-loop traffic
//! outside makes queues of up to a second at hundreds of Mbit/s, and longer ones where its requests take
//! longer: hence the packets.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cc::estimators::{Path, SlidingMax};

/// A shorter queue is none (seconds), and the same over the target.
const THETA_S: f64 = 2e-3;
const THETA_TARGETS: f64 = 1.5;
/// Age of a queue that is not ours: seconds, bases, and packets at the bottleneck's rate.
const AGE_S: f64 = 0.6;
const AGE_BASES: f64 = 8.0;
const AGE_PACKETS: f64 = 5000.0;
/// Memory of the bottleneck's rate (seconds).
const CAPACITY_MEMORY_S: f64 = 30.0;
/// What is delivered to one who starves, as a share of mu, and for how long (seconds).
const STARVED_SHARE: f64 = 0.12;
const STARVED_S: f64 = 2.5;
/// Share of what was delivered beside others that have only just left, and for how long that counts (seconds).
const STARVED_AGAIN_SHARE: f64 = 0.6;
const STARVED_AGAIN_S: f64 = 30.0;
/// Time that one mean of the delivery rate covers, and how many are kept.
const BIN_S: f64 = 0.5;
const BINS: usize = 40;
/// A squeeze: how far the rate has declined below the best mean of 2 s, as a share of mu.
const SQUEEZE_FALL: f64 = 0.2;
/// Share of the variance that a line explains.
const SQUEEZE_STRAIGHT: f64 = 0.75;
/// Largest step of a second, as a share of the decline.
const SQUEEZE_STEP: f64 = 0.5;
/// Queue in all but one of the last bins, in targets, and how many bins these are.
const SQUEEZE_TARGETS: f64 = 0.75;
const SQUEEZE_QUEUED: usize = 8;
/// A smaller fall that is also a squeeze, the share of the variance that its line explains, and within how many
/// means: what two bundles take from each other changes more slowly.
const LINE_FALL: f64 = 0.1;
const LINE_STRAIGHT: f64 = 0.95;
const LINE_BINS: usize = 12;
/// Fall in the second half of the line over that in the first: shares that become equal change ever more slowly.
const LINE_LASTS: f64 = 0.8;
/// Means that make a level.
const LEVEL_BINS: usize = 4;
/// Time between two findings of this kind (seconds), and after one that the first test has refuted: bundles that
/// find their shares again after it would take each other for others.
const SQUEEZE_EVERY_S: f64 = 8.0;
const SQUEEZE_REFUTED_S: f64 = 20.0;

/// Why somebody else is taken to be queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Standing,
    Starved,
    Squeezed,
}

impl Sign {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Standing => "others fill the buffer: a queue stays that is not ours",
            Self::Starved => "others fill the buffer: hardly anything is left to us",
            Self::Squeezed => "others fill the buffer: what is left to us declines",
        }
    }
}

/// Mean delivery rate of half a second.
#[derive(Clone, Copy, Debug)]
struct Bin {
    bytes_per_s: f64,
    is_queued: bool,
}

/// A queue that is shorter is none (seconds).
pub(super) fn theta_s(path: &Path) -> f64 {
    THETA_S.max(THETA_TARGETS * path.target_s)
}

/// Watches for others while limits hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// When the queue was last short, and drains that have ended since.
    short_s: Option<f64>,
    drains: u32,
    capacity: SlidingMax,
    starved_since_s: Option<f64>,
    /// What was delivered beside others who have left (bytes per second), and until when that counts (seconds).
    beside_others: Option<(f64, f64)>,
    bins: VecDeque<Bin>,
    bin_since_s: f64,
    bin_sum: f64,
    bin_least_queue_s: f64,
    bin_count: u32,
    /// No decline is a sign before (seconds).
    squeezes_from_s: f64,
}

impl Others {
    /// Takes a measurement under limits; a round trip of `rtt_s`.
    pub(super) fn on_measurement(&mut self, now_s: f64, path: &Path, rtt_s: f64) -> Option<Sign> {
        let queue_s = rtt_s - path.base_s;
        if queue_s < theta_s(path) || self.short_s.is_none() {
            self.short_s = Some(now_s);
            self.drains = 0;
        }
        if !path.app_limited && path.idle == 0.0 {
            self.capacity.push(now_s, path.delivery_bytes_per_s, CAPACITY_MEMORY_S);
        }
        self.add_to_bins(now_s, path, queue_s);
        let mu = self.capacity.value();
        if mu <= 0.0 {
            return None;
        }
        let beside = self.beside_others.filter(|(_, until_s)| now_s < *until_s);
        let least = beside.map_or(0.0, |(bytes_per_s, _)| STARVED_AGAIN_SHARE * bytes_per_s);
        let is_starved =
            path.idle == 0.0 && path.recent_bytes_per_s < least.max(STARVED_SHARE * mu);
        if !is_starved {
            self.starved_since_s = None;
        }
        let starved_s = now_s - *self.starved_since_s.get_or_insert(now_s);
        if is_starved && starved_s > STARVED_S {
            return Some(Sign::Starved);
        }
        if self.age_s(now_s) > self.age_limit_s(path) && self.drains > 0 {
            return Some(Sign::Standing);
        }
        if now_s > self.squeezes_from_s && self.is_squeezed(mu) {
            self.squeezes_from_s = now_s + SQUEEZE_EVERY_S;
            return Some(Sign::Squeezed);
        }
        None
    }

    /// A drain has ended.
    pub(super) fn on_drain(&mut self) {
        self.drains += 1;
    }

    /// Others seem to have left: what was before says nothing any more.
    pub(super) fn restart(&mut self) {
        self.short_s = None;
        self.drains = 0;
        self.starved_since_s = None;
        self.bins.clear();
        self.bin_count = 0;
    }

    /// Others who had answered tests seem to have left; beside them this was delivered (bytes per second).
    pub(super) fn have_left(&mut self, now_s: f64, bytes_per_s: f64) {
        self.beside_others = Some((bytes_per_s, now_s + STARVED_AGAIN_S));
    }

    /// Nobody has answered the first test.
    pub(super) fn doubt_declines(&mut self, now_s: f64) {
        self.squeezes_from_s = now_s + SQUEEZE_REFUTED_S;
    }

    /// What the bottleneck carries (bytes per second), at least `rate`.
    pub(super) fn capacity(&self, rate: f64) -> f64 {
        self.capacity.value().max(rate)
    }

    fn age_s(&self, now_s: f64) -> f64 {
        self.short_s.map_or(0.0, |short_s| now_s - short_s)
    }

    fn age_limit_s(&self, path: &Path) -> f64 {
        let packets_s = AGE_PACKETS * 1514.0 / self.capacity.value();
        AGE_S + AGE_BASES * path.base_s + packets_s
    }

    fn add_to_bins(&mut self, now_s: f64, path: &Path, queue_s: f64) {
        if path.idle > 0.0 || path.app_limited {
            self.bins.clear();
            self.bin_count = 0;
            return;
        }
        if self.bin_count == 0 {
            (self.bin_since_s, self.bin_sum, self.bin_least_queue_s) = (now_s, 0.0, f64::INFINITY);
        }
        self.bin_sum += path.delivery_bytes_per_s;
        self.bin_count += 1;
        self.bin_least_queue_s = self.bin_least_queue_s.min(queue_s);
        if now_s - self.bin_since_s < BIN_S {
            return;
        }
        let bytes_per_s = self.bin_sum / f64::from(self.bin_count);
        let is_queued = path.standing_s > SQUEEZE_TARGETS * path.target_s;
        self.bins.push_back(Bin { bytes_per_s, is_queued });
        if self.bins.len() > BINS {
            self.bins.pop_front();
        }
        self.bin_count = 0;
    }

    /// The delivery rate declines steadily, as where a flow outside takes ever more: by much beside a queue, or
    /// by less along a line.
    fn is_squeezed(&self, mu: f64) -> bool {
        let rates: Vec<f64> = self.bins.iter().map(|bin| bin.bytes_per_s).collect();
        let recent = &rates[rates.len().saturating_sub(LINE_BINS)..];
        let is_line =
            |it: Decline| it.is_steady(LINE_FALL * mu, LINE_STRAIGHT) && it.lasts > LINE_LASTS;
        if Decline::of(recent).is_some_and(is_line) {
            return true;
        }
        let last = self.bins.iter().rev().take(SQUEEZE_QUEUED);
        last.filter(|bin| bin.is_queued).count() + 1 >= SQUEEZE_QUEUED
            && Decline::of(&rates)
                .is_some_and(|it| it.is_steady(SQUEEZE_FALL * mu, SQUEEZE_STRAIGHT))
    }
}

/// How rates have come down from their best level to the last.
#[derive(Clone, Copy, Debug)]
struct Decline {
    fall: f64,
    /// Largest fall within a second.
    step: f64,
    /// Share of the variance that a line explains (0 to 1).
    straight: f64,
    /// Fall in the second half over that in the first.
    lasts: f64,
}

impl Decline {
    fn of(rates: &[f64]) -> Option<Self> {
        let level = |rates: &[f64]| rates.iter().sum::<f64>() / LEVEL_BINS as f64;
        let levels = rates.windows(LEVEL_BINS).map(level).enumerate();
        let (best, top) = levels.max_by(|one, other| one.1.total_cmp(&other.1))?;
        let since = &rates[best..];
        let halves =
            [since[0] - since[since.len() / 2], since[since.len() / 2] - since[since.len() - 1]];
        let steps = since.windows(3).map(|rates| rates[0] - rates[2]);
        Some(Self {
            fall: top - level(&rates[rates.len() - LEVEL_BINS..]),
            step: steps.fold(0.0, f64::max),
            straight: straightness(since),
            lasts: halves[1] / halves[0].max(1.0),
        })
    }

    fn is_steady(&self, fall: f64, straight: f64) -> bool {
        self.fall > fall && self.straight > straight && self.step < SQUEEZE_STEP * self.fall
    }
}

/// Share of the variance of evenly spaced values that a line explains (0 to 1).
fn straightness(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean_x = (count - 1.0) / 2.0;
    let mean_y = values.iter().sum::<f64>() / count;
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let (x, y) = (index as f64 - mean_x, value - mean_y);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    if xx > 0.0 && yy > 0.0 { xy * xy / (xx * yy) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MU: f64 = 12e6;
    const STEP_S: f64 = 0.01;

    /// Feeds what is delivered (over mu) and queued (seconds) at times from the start; the first sign, and when.
    fn sign(
        others: &mut Others,
        seconds: f64,
        share: impl Fn(f64) -> f64,
        queue_s: impl Fn(f64) -> f64,
    ) -> Option<(f64, Sign)> {
        // Before, there has been nobody else.
        for step in 0..500 {
            assert_eq!(feed(others, f64::from(step) * STEP_S, 1.0, 0.0), None);
        }
        (0..(seconds / STEP_S) as u32).find_map(|step| {
            let at_s = f64::from(step) * STEP_S;
            feed(others, 5.0 + at_s, share(at_s), queue_s(at_s)).map(|sign| (at_s, sign))
        })
    }

    fn feed(others: &mut Others, now_s: f64, share: f64, queue_s: f64) -> Option<Sign> {
        let path = Path {
            dt_s: STEP_S,
            base_s: 0.05,
            loop_s: 0.05,
            standing_s: queue_s,
            target_s: 0.75e-3,
            delivery_bytes_per_s: share * MU,
            recent_bytes_per_s: share * MU,
            ..Path::default()
        };
        others.on_measurement(now_s, &path, path.base_s + queue_s)
    }

    #[test]
    fn a_queue_that_stays_is_somebody_elses_once_a_drain_was_tried() {
        let mut others = Others::default();
        assert_eq!(sign(&mut others, 10.0, |_| 1.0, |_| 0.05), None);
        others.on_drain();
        assert_eq!(feed(&mut others, 15.0, 1.0, 0.05), Some(Sign::Standing));
        assert_eq!(feed(&mut others, 15.1, 1.0, 0.0), None);
        others.on_drain();
        assert_eq!(feed(&mut others, 16.0, 1.0, 0.05), None, "0.9 s are too short");
        // 0.6 s, 8 x 50 ms and 5000 packets at 96 Mbit/s.
        assert_eq!(feed(&mut others, 16.8, 1.0, 0.05), Some(Sign::Standing));
    }

    #[test]
    fn what_declines_along_a_line_is_taken_by_somebody_else() {
        let line = |at_s: f64| 1.0 - 0.04 * at_s;
        let (at_s, sign) = sign(&mut Others::default(), 10.0, line, |_| 1e-3).unwrap();
        assert_eq!(sign, Sign::Squeezed);
        assert!((2.5..6.0).contains(&at_s), "{at_s}");
    }

    #[test]
    fn a_step_a_wave_and_a_slow_change_are_nobody_elses() {
        let step = |at_s: f64| if at_s < 3.0 { 1.0 } else { 0.7 };
        assert_eq!(sign(&mut Others::default(), 20.0, step, |_| 1e-3), None);
        let wave = |at_s: f64| 0.85 + 0.15 * libm::cos(3.0 * at_s);
        assert_eq!(sign(&mut Others::default(), 20.0, wave, |_| 1e-3), None);
        let slow = |at_s: f64| 1.0 - 0.008 * at_s;
        assert_eq!(sign(&mut Others::default(), 20.0, slow, |_| 1e-3), None);
    }

    #[test]
    fn one_who_gets_hardly_anything_starves() {
        let (at_s, sign) = sign(&mut Others::default(), 10.0, |_| 0.1, |_| 1e-3).unwrap();
        assert_eq!(sign, Sign::Starved);
        assert!((2.5..2.6).contains(&at_s), "{at_s}");
    }

    #[test]
    fn one_who_gets_much_less_than_beside_others_who_seem_to_have_left_starves() {
        let mut others = Others::default();
        others.have_left(4.0, 0.5 * MU);
        let (at_s, found) = sign(&mut others, 10.0, |_| 0.25, |_| 1e-3).unwrap();
        assert_eq!(found, Sign::Starved);
        assert!((2.5..2.6).contains(&at_s), "{at_s}");
        let mut others = Others::default();
        others.have_left(4.0, 0.5 * MU);
        assert_eq!(sign(&mut others, 10.0, |_| 0.4, |_| 1e-3), None);
        assert_eq!(sign(&mut Others::default(), 10.0, |_| 0.25, |_| 1e-3), None);
    }
}
