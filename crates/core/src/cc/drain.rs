//! Active drains: a window small enough to empty the queue shows whether the base still holds.
//!
//! ```text
//! least round trip of packets sent with the window enforced   verdict
//! at the base, or below it                                    confirmed
//! above it, but the queue has become shorter                  queueing: cross traffic, or not yet drained
//! as long as before, the same twice, and the delivery         longer: there is no queue, the path
//! rate fell as well                                           itself has this round trip
//! ```
//! A capacity that was halved and a path that has become longer look the same in window, rate and round trip.
//! Only their reaction to a smaller window distinguishes the two.

use super::estimators::Path;

/// A drain keeps the path short of this many packets, to go below a base that is too high.
const UNDERSHOOT_PACKETS: f64 = 6.0;
/// The missing packets cost at most 0.2 % of the throughput, with a drain of 3 loop times every 10 s ...
const COST_S: f64 = 0.002 * 10.0 / 3.0;
/// ... and are at least this share of the content, which exceeds noise ...
const UNDERSHOOT_MIN: f64 = 0.03;
/// ... and at most this share, which does not starve the hosts.
const UNDERSHOOT_MAX: f64 = 0.5;
/// Undershoot of a drain that must distinguish a longer path from a queue (share of the content).
pub const DEEP: f64 = 0.15;
/// Undershoot of the second drain that a longer path has to withstand. Cross traffic can make up for one
/// drain by chance, when it grows just then, but not for both drains by the same amount.
pub const DEEPER: f64 = 0.3;
/// Least undershoot that confirms the base.
pub const SHALLOW: f64 = 0.0;
/// Samples that a drain takes the least of.
const SAMPLES: u32 = 8;
/// The delivery rate has followed the window of a deep drain if it fell below this share.
const RATE_FELL: f64 = 0.93;
/// A drain gives up after this many loop times, but not before [`TIME_MAX_S`].
const LOOPS_MAX: f64 = 20.0;
/// Shortest time after which a drain gives up (seconds).
const TIME_MAX_S: f64 = 2.0;
/// A drain also gives up after this many loop times without a measurement, but not before
/// [`QUIET_S`]: nothing leaves then.
const QUIET_LOOPS: f64 = 5.0;
/// Shortest time without a measurement after which a drain gives up (seconds).
const QUIET_S: f64 = 0.5;
/// Excess of the rate of a release over the rate before the drain, one loop time later. It is nothing at
/// first and then doubles every loop time, so that a release binds only for a moment.
const RELEASE_EXCESS: f64 = 0.05;
/// A release ends at this multiple of the rate before it: the hosts then feed the rest of the queue.
const RELEASE_MAX: f64 = 8.0;

/// Result of a drain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DrainVerdict {
    /// The base holds; it has come down by this much meanwhile (seconds).
    Confirmed(f64),
    /// The path's own round trip is this (seconds).
    Longer(f64),
    /// There is still a queue.
    Queueing,
    /// Too little was sent for a verdict.
    Unknown,
}

/// One drain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drain {
    /// How far the window goes below the path's own content (share of it).
    pub undershoot: f64,
    /// Drains in a row that found a queue.
    pub attempt: u32,
    /// Window while it lasts (bytes).
    pub window_bytes: f64,
    /// Delivery rate one loop time before (bytes per second).
    pub rate_before: f64,
    /// Bytes outstanding at most: packets that leave from then on meet no queue of ours (bytes).
    reached_bytes: f64,
    /// Ends then, with or without a verdict (seconds).
    deadline_s: f64,
    /// Last measurement, and how long the next may take (seconds).
    measured_s: f64,
    quiet_s: f64,
    reached_s: Option<f64>,
    first_sample_s: f64,
    samples: u32,
    base_before_s: f64,
    standing_before_s: f64,
    least_rtt_s: f64,
    least_rate: f64,
    /// Least round trip of a first look at a path that seems longer.
    longer_s: Option<f64>,
}

/// Least round trips closer than this may be the same (seconds).
pub fn noise_s(path: &Path) -> f64 {
    path.noise_s + 0.25e-3
}

/// Round trips closer than this are the same to an algorithm (seconds).
pub fn tolerance_s(path: &Path) -> f64 {
    (path.target_s / 2.0).max(noise_s(path))
}

impl Drain {
    /// Begins at `now_s` with packets of `mss_bytes`; goes below the path's own content by at least
    /// the share `undershoot` of it.
    pub fn new(now_s: f64, path: &Path, undershoot: f64, mss_bytes: f64) -> Self {
        let content = path.recent_bytes_per_s * path.base_s;
        let wanted = UNDERSHOOT_PACKETS * mss_bytes / content.max(1.0);
        let affordable = (COST_S / path.loop_s).max(UNDERSHOOT_MIN);
        let undershoot =
            wanted.clamp(UNDERSHOOT_MIN, affordable).max(undershoot).min(UNDERSHOOT_MAX);
        Self {
            undershoot,
            attempt: 1,
            window_bytes: (1.0 - undershoot) * content,
            rate_before: path.recent_bytes_per_s,
            reached_bytes: ((1.0 - undershoot / 2.0) * content).max(mss_bytes),
            deadline_s: now_s + TIME_MAX_S.max(LOOPS_MAX * path.loop_s),
            measured_s: now_s,
            quiet_s: QUIET_S.max(QUIET_LOOPS * path.loop_s),
            reached_s: None,
            first_sample_s: 0.0,
            samples: 0,
            base_before_s: path.base_s,
            standing_before_s: path.standing_s,
            least_rtt_s: f64::INFINITY,
            least_rate: f64::INFINITY,
            longer_s: None,
        }
    }

    /// Whether the drain is deep enough to distinguish a longer path from a queue.
    pub fn is_deep(&self) -> bool {
        self.undershoot >= DEEP
    }

    /// When it ends if nothing is measured any more (seconds).
    pub fn ends_s(&self) -> f64 {
        self.deadline_s.min(self.measured_s + self.quiet_s)
    }

    /// Takes a round trip; returns the verdict once it is known.
    pub fn on_measurement(&mut self, now_s: f64, path: &Path, rtt_s: f64) -> Option<DrainVerdict> {
        self.measured_s = now_s;
        if path.in_flight_bytes <= self.reached_bytes {
            self.reached_s.get_or_insert(now_s);
        }
        if self.reached_s.is_some_and(|reached_s| path.sent_at_s >= reached_s) {
            if self.samples == 0 {
                self.first_sample_s = now_s;
            }
            self.least_rtt_s = self.least_rtt_s.min(rtt_s);
            self.least_rate = self.least_rate.min(path.delivery_bytes_per_s);
            self.samples += 1;
        }
        let is_complete = self.samples >= SAMPLES && now_s >= self.first_sample_s + path.loop_s;
        if is_complete {
            match (self.verdict(path), self.longer_s) {
                (DrainVerdict::Longer(rtt_s), None) => self.look_again(rtt_s),
                (DrainVerdict::Longer(rtt_s), Some(before_s))
                    if libm::fabs(rtt_s - before_s) > noise_s(path) =>
                {
                    return Some(DrainVerdict::Queueing);
                }
                (verdict, _) => return Some(verdict),
            }
        }
        (now_s >= self.deadline_s).then_some(DrainVerdict::Unknown)
    }

    /// A path has one round trip. A queue of cross traffic may look as unmoved by this drain, yet it varies.
    fn look_again(&mut self, rtt_s: f64) {
        self.longer_s = Some(rtt_s);
        self.samples = 0;
        self.least_rtt_s = f64::INFINITY;
    }

    fn verdict(&self, path: &Path) -> DrainVerdict {
        let tolerance_s = tolerance_s(path);
        if self.least_rtt_s <= path.base_s + tolerance_s {
            return DrainVerdict::Confirmed(self.base_before_s - path.base_s);
        }
        let before_s = self.base_before_s + self.standing_before_s;
        let did_rtt_fall = self.least_rtt_s < before_s - tolerance_s;
        let did_rate_fall = self.least_rate < RATE_FELL * self.rate_before;
        if self.is_deep() && !did_rtt_fall && did_rate_fall {
            return DrainVerdict::Longer(self.least_rtt_s);
        }
        DrainVerdict::Queueing
    }

    /// Round trips count as longer by `by_s`, and `by_bytes` more are outstanding.
    pub fn shift(&mut self, by_s: f64, by_bytes: f64) {
        self.window_bytes = (self.window_bytes + by_bytes).max(0.0);
        self.reached_bytes = (self.reached_bytes + by_bytes).max(0.0);
        self.base_before_s += by_s;
        self.least_rtt_s += by_s;
        self.longer_s = self.longer_s.map(|rtt_s| rtt_s + by_s);
    }
}

/// The time after a drain that no limits follow: the packets held back leave without a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Release {
    since_s: f64,
    rate_before: f64,
    /// Rate now (bytes per second).
    pub bytes_per_s: f64,
}

impl Release {
    /// Begins at `now_s`; the delivery rate was `rate_before` bytes per second before the drain.
    pub fn new(now_s: f64, rate_before: f64) -> Self {
        Self { since_s: now_s, rate_before, bytes_per_s: rate_before }
    }

    /// Takes a measurement; true once nothing is held back any more.
    pub fn on_measurement(&mut self, now_s: f64, path: &Path) -> bool {
        let doublings = (now_s - self.since_s) / path.loop_s;
        let excess = RELEASE_EXCESS * (libm::exp2(doublings) - 1.0);
        self.bytes_per_s = (1.0 + excess) * self.rate_before;
        let is_empty = path.idle > 0.0 && path.sent_at_s >= self.since_s;
        is_empty || self.bytes_per_s > RELEASE_MAX * self.rate_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1514.0;

    /// 96 Mbit/s x 50 ms with a queue of `queue_s` on a path that is `longer_s` above the base.
    fn path(queue_s: f64) -> Path {
        Path {
            dt_s: 0.005,
            base_s: 0.05,
            loop_s: 0.05,
            standing_s: queue_s,
            target_s: 0.75e-3,
            target_bytes: 9_000.0,
            delivery_bytes_per_s: 12e6,
            recent_bytes_per_s: 12e6,
            bottleneck_bytes_per_s: 12e6,
            noise_s: 0.1e-3,
            ..Path::default()
        }
    }

    /// Runs a drain on a path of `rtt_s` without a queue. If more than the content is outstanding, `extra_s`
    /// of it is queue.
    fn run(drain: &mut Drain, mut path: Path, rtt_s: f64) -> DrainVerdict {
        path.in_flight_bytes = drain.window_bytes;
        path.delivery_bytes_per_s = drain.window_bytes / rtt_s;
        let mut now_s = 0.0;
        loop {
            now_s += 0.005;
            path.sent_at_s = now_s - rtt_s;
            path.base_s = path.base_s.min(rtt_s);
            if let Some(verdict) = drain.on_measurement(now_s, &path, rtt_s) {
                return verdict;
            }
        }
    }

    #[test]
    fn an_emptied_queue_confirms_the_base() {
        let path = path(1e-3);
        let mut drain = Drain::new(0.0, &path, SHALLOW, MSS);
        assert_eq!(drain.window_bytes, 0.97 * 600_000.0);
        assert_eq!(run(&mut drain, path, 0.05), DrainVerdict::Confirmed(0.0));
    }

    #[test]
    fn a_base_learnt_behind_a_queue_comes_down() {
        let path = path(0.0);
        let mut drain = Drain::new(0.0, &path, DEEP, MSS);
        let DrainVerdict::Confirmed(fell_s) = run(&mut drain, path, 0.0425) else { panic!() };
        assert!((fell_s - 0.0075).abs() < 1e-9);
    }

    #[test]
    fn only_deep_ineffective_drain_lengthens_the_path() {
        let path = path(0.03);
        let mut shallow = Drain::new(0.0, &path, SHALLOW, MSS);
        assert_eq!(run(&mut shallow, path, 0.08), DrainVerdict::Queueing);
        let mut deep = Drain::new(0.0, &path, DEEP, MSS);
        assert_eq!(run(&mut deep, path, 0.08), DrainVerdict::Longer(0.08));
        let mut others = Drain::new(0.0, &path, DEEP, MSS);
        assert_eq!(run(&mut others, path, 0.06), DrainVerdict::Queueing, "it fell by 20 ms");
    }

    #[test]
    fn varying_round_trip_is_a_foreign_queue() {
        let mut path = path(0.03);
        let mut drain = Drain::new(0.0, &path, DEEP, MSS);
        path.in_flight_bytes = drain.window_bytes;
        path.delivery_bytes_per_s = 6e6;
        let verdict = (1..).find_map(|report| {
            let now_s = f64::from(report) * 0.005;
            path.sent_at_s = now_s - 0.05;
            drain.on_measurement(now_s, &path, 0.08 + 0.1 * now_s)
        });
        assert_eq!(verdict, Some(DrainVerdict::Queueing));
    }

    #[test]
    fn without_traffic_nothing_is_concluded() {
        let mut path = path(0.0);
        let mut drain = Drain::new(0.0, &path, SHALLOW, MSS);
        path.in_flight_bytes = 1e9;
        assert_eq!(drain.on_measurement(1.9, &path, 0.05), None);
        assert_eq!(drain.on_measurement(2.1, &path, 0.05), Some(DrainVerdict::Unknown));
    }

    #[test]
    fn a_drain_does_not_outlast_the_traffic() {
        let path = path(0.0);
        let mut drain = Drain::new(10.0, &path, SHALLOW, MSS);
        assert_eq!(drain.ends_s(), 10.5, "nothing was measured at all");
        assert_eq!(drain.on_measurement(10.3, &path, 0.05), None);
        assert_eq!(drain.ends_s(), 10.8);
        assert_eq!(drain.on_measurement(11.9, &Path { in_flight_bytes: 1e9, ..path }, 0.05), None);
        assert_eq!(drain.ends_s(), 12.0);
    }

    #[test]
    fn a_release_ends_although_the_queue_never_does() {
        let path = path(0.0);
        let mut release = Release::new(10.0, 10e6);
        assert!(!release.on_measurement(10.3, &path));
        assert!(release.on_measurement(10.5, &path));
    }

    #[test]
    fn release_starts_at_old_rate_until_queue_ends() {
        let mut path = path(0.0);
        let mut release = Release::new(10.0, 10e6);
        assert_eq!(release.bytes_per_s, 10e6);
        path.sent_at_s = 10.0;
        assert!(!release.on_measurement(10.05, &path));
        assert!((release.bytes_per_s - 10.5e6).abs() < 1.0);
        assert!(!release.on_measurement(10.30, &path));
        assert!(release.bytes_per_s > 40e6, "it does not bind for long");
        (path.idle, path.sent_at_s) = (0.1, 9.99);
        assert!(!release.on_measurement(10.31, &path), "that was idle before");
        path.sent_at_s = 10.26;
        assert!(release.on_measurement(10.31, &path));
    }
}
