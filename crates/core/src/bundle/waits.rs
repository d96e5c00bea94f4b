//! Wait times of packets of sparse flows in a bundle's queue, per second.
//!
//! A packet counts if its flow had nothing else in the queue when it arrived
//! ([`SparseWait`](crate::qdisc::SparseWait)): the first packet of a request, a ping, a packet of a voice call.
//! The host reports each wait. Percentiles come from a histogram of fixed size.
//!
//! ```text
//! waits below 16 us : one bucket for each microsecond
//! longer waits      : 16 buckets for each power of two, up to 67 s
//! ```
//! The middle of a bucket stands for its waits. It is at most 3.2 % (or half a microsecond) away from any of these.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::units::{Duration, Timestamp};

/// Time span of one summary (the status says "last second").
const SPAN: Duration = Duration::from_secs(1);
/// Binary logarithm of [`SUB`]. One more halves the width of a bucket and doubles the memory.
const SUB_BITS: u32 = 4;
/// Buckets for each power of two: a bucket is at most 1/16 of the wait wide.
const SUB: usize = 1 << SUB_BITS;
/// Longer waits count as this one: 2^26 us.
const MAX_BITS: u32 = 26;
/// Number of buckets for waits from 0 to 2^26 us.
const BUCKETS: usize = SUB * (MAX_BITS - SUB_BITS + 1) as usize;

/// The waits of one second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSecond {
    /// When the second ended.
    pub at: Timestamp,
    /// Number of waits.
    pub count: u64,
    /// Median; `None` without waits.
    pub p50: Option<Duration>,
    /// 99th percentile; `None` without waits.
    pub p99: Option<Duration>,
    /// Waits that occurred, ascending, and how often each: middles of buckets.
    pub counts: Vec<(Duration, u32)>,
}

/// Sums up waits second by second.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// One counter for each bucket; `None` until a packet has waited, and again after a second without one.
    counts: Option<Box<[u32]>>,
    began: Option<Timestamp>,
    last: WaitSecond,
    is_new: bool,
}

impl Waits {
    /// A packet of a sparse flow has waited this long.
    pub fn record(&mut self, wait: Duration) {
        let counts = self.counts.get_or_insert_with(|| vec![0; BUCKETS].into());
        let counter = &mut counts[bucket(wait)];
        *counter = counter.saturating_add(1);
    }

    /// Ends the second if it is over at `now`. Call at least a few times a second: a late call lengthens the second.
    pub fn on_time(&mut self, now: Timestamp) {
        let began = *self.began.get_or_insert(now);
        if now.saturating_since(began) < SPAN {
            return;
        }
        self.began = Some(now);
        self.is_new = true;
        self.last = summary(now, self.counts.as_deref().unwrap_or_default());
        match &mut self.counts {
            Some(counts) if self.last.count > 0 => counts.fill(0),
            counts => *counts = None,
        }
    }

    /// The last whole second.
    pub const fn last(&self) -> &WaitSecond {
        &self.last
    }

    /// The last whole second, if it has ended since the last call.
    pub fn take(&mut self) -> Option<&WaitSecond> {
        core::mem::take(&mut self.is_new).then_some(&self.last)
    }
}

fn summary(at: Timestamp, counts: &[u32]) -> WaitSecond {
    let counts = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let counts: Vec<(Duration, u32)> = counts.map(|(at, count)| (middle(at), *count)).collect();
    let count = counts.iter().map(|(_, count)| u64::from(*count)).sum();
    let [p50, p99] = [50, 99].map(|percent| percentile(&counts, count, percent));
    WaitSecond { at, count, p50, p99, counts }
}

/// The smallest wait that at least `percent` of all `total` waits do not exceed.
fn percentile(counts: &[(Duration, u32)], total: u64, percent: u64) -> Option<Duration> {
    let rank = (total * percent).div_ceil(100);
    let mut seen = 0;
    let found = counts.iter().find(|(_, count)| {
        seen += u64::from(*count);
        seen >= rank
    });
    found.map(|(wait, _)| *wait)
}

fn bucket(wait: Duration) -> usize {
    let us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX).min((1 << MAX_BITS) - 1);
    if us < SUB as u64 {
        return us as usize;
    }
    let shift = us.ilog2() - SUB_BITS;
    (shift as usize + 1) * SUB + (us >> shift) as usize - SUB
}

/// The middle of a bucket.
fn middle(bucket: usize) -> Duration {
    let (least_us, width_us) = match (bucket / SUB).checked_sub(1) {
        None => (bucket as u64, 1),
        Some(shift) => (((bucket % SUB + SUB) as u64) << shift, 1 << shift),
    };
    Duration::from_nanos(least_us * 1000 + width_us * 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn middle_of_bucket_is_close_to_wait() {
        let mut last = 0;
        for bits in 0..MAX_BITS {
            for us in [1 << bits, (1 << bits) + (1 << bits) / 3, (2 << bits) - 1] {
                let wait = Duration::from_micros(us);
                let error = middle(bucket(wait)).as_secs_f64() - wait.as_secs_f64();
                assert!(error.abs() <= 0.5e-6 + 0.032 * wait.as_secs_f64(), "{us} us: {error}");
                assert!(bucket(wait) >= last, "buckets grow with the wait");
                last = bucket(wait);
            }
        }
        for (wait, expected) in [(Duration::ZERO, 0), (Duration::MAX, BUCKETS - 1)] {
            assert_eq!(bucket(wait), expected);
        }
    }

    #[test]
    fn percentiles_are_of_the_last_whole_second() {
        let mut waits = Waits::default();
        waits.on_time(at(500));
        for ms in 1..=100 {
            waits.record(Duration::from_millis(ms));
        }
        waits.on_time(at(1499));
        assert_eq!(waits.take(), None, "not over yet");
        assert_eq!(waits.last(), &WaitSecond::default());
        waits.on_time(at(1500));
        let last = waits.take().unwrap().clone();
        assert_eq!((last.at, last.count), (at(1500), 100));
        for (found, ms) in [(last.p50, 50.0), (last.p99, 99.0)] {
            let found = found.unwrap().as_secs_f64() * 1e3;
            assert!((found - ms).abs() <= 0.04 * ms, "{found} is not {ms}");
        }
        assert!(last.counts.is_sorted());
        assert_eq!(last.counts.iter().map(|(_, count)| *count).sum::<u32>(), 100);
        assert_eq!(waits.take(), None, "taken once");
        // The next second has its own.
        waits.record(Duration::from_millis(7));
        waits.on_time(at(2500));
        assert_eq!(waits.last().count, 1);
        waits.on_time(at(3500));
        assert_eq!((waits.last().count, waits.last().p50), (0, None));
        assert!(waits.counts.is_none(), "no memory without waits");
    }

    #[test]
    fn memory_is_bounded() {
        let mut waits = Waits::default();
        waits.on_time(at(0));
        (0..200_000).for_each(|us| waits.record(Duration::from_micros(us * 397)));
        waits.on_time(at(1000));
        assert_eq!(waits.last().count, 200_000);
        assert!(waits.last().counts.len() <= BUCKETS && BUCKETS < 400);
    }
}
