//! How late packets leave: a histogram of fixed size with a bounded relative error.
//!
//! Values below 16 ns have a bucket each; above, every power of two is divided into 16 buckets, so
//! that a percentile is at most 1/16 too high.

use std::time::Duration;

/// Bits of a value below its highest bit that choose the bucket. Each further bit halves the error
/// and doubles the memory.
const SUB_BITS: u32 = 4;
/// Buckets per power of two.
const SUB: usize = 1 << SUB_BITS;
/// Largest value with its own bucket: 2^40 ns, 18 minutes.
const MAX_BITS: u32 = 40;
/// Number of buckets.
const BUCKETS: usize = SUB * (MAX_BITS - SUB_BITS + 1) as usize;

/// The histogram.
#[derive(Clone)]
pub struct Lateness {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    max_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0, max_ns: 0 }
    }
}

impl Lateness {
    /// Counts one packet.
    pub fn record(&mut self, late: Duration) {
        let ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// p50, p99, p99.9 and the maximum (ns); zeros when nothing was counted.
    pub fn percentiles(&self) -> [u64; 4] {
        if self.total == 0 {
            return [0; 4];
        }
        [self.percentile(0.5), self.percentile(0.99), self.percentile(0.999), self.max_ns]
    }

    /// Quantile (ns): at least this share, 0 to 1, of all values is at most this large.
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return upper_bound(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << MAX_BITS) - 1);
    if ns < SUB as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - SUB_BITS;
    (shift as usize + 1) * SUB + (ns >> shift) as usize - SUB
}

/// The largest value of a bucket.
fn upper_bound(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let shift = index / SUB - 1;
    (((index % SUB + SUB + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_at_most_a_sixteenth_wide() {
        let mut last = None;
        for bits in 0..MAX_BITS {
            for ns in [1 << bits, (1 << bits) + (1 << bits) / 3, (2 << bits) - 1] {
                let bound = upper_bound(bucket(ns));
                assert!(bound >= ns && bound - ns <= ns / 16, "{ns}: {bound}");
                assert!(Some(bucket(ns)) >= last, "buckets grow with the value");
                last = Some(bucket(ns));
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.percentiles(), [0; 4]);
        for us in 1..=1000 {
            lateness.record(Duration::from_micros(us));
        }
        let [p50, p99, p999, max] = lateness.percentiles();
        assert!((500_000..=532_000).contains(&p50), "{p50}");
        assert!((990_000..=1_000_000).contains(&p99), "{p99}");
        assert!((999_000..=1_000_000).contains(&p999), "{p999}");
        assert_eq!(max, 1_000_000);
    }
}
