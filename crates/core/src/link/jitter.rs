//! Jitter: time that packets take in addition to the delay.

use crate::random::{Stream, Streams};
use crate::units::{Duration, Timestamp};

/// Time that each packet takes in addition to the delay: uniform from zero to a maximum, then the wait until
/// the packet's batch leaves.
#[derive(Clone, Debug)]
pub struct Jitter {
    most: Duration,
    batch: Duration,
    stream: Stream,
}

impl Jitter {
    /// Jitter up to `most`, with batches `batch` apart. It draws from the stream `jitter` of `streams`, but
    /// nothing if `most` is zero.
    pub fn new(most: Duration, batch: Duration, streams: &Streams) -> Self {
        Self { most, batch, stream: streams.stream("jitter") }
    }

    /// Whether any packet takes longer than the delay.
    pub fn is_possible(&self) -> bool {
        !self.most.is_zero() || !self.batch.is_zero()
    }

    /// Time that the next packet takes in addition to the delay, given that it would begin the delay at
    /// `now`.
    pub fn draw(&mut self, now: Timestamp) -> Duration {
        let mut late_ns = 0;
        if !self.most.is_zero() {
            late_ns = self.stream.below(nanos(self.most).saturating_add(1));
        }
        if !self.batch.is_zero() {
            let at_ns = now.as_nanos().saturating_add(late_ns);
            let batch_ns = nanos(self.batch);
            late_ns = at_ns.div_ceil(batch_ns).saturating_mul(batch_ns) - now.as_nanos();
        }
        Duration::from_nanos(late_ns)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_leave_at_whole_multiples() {
        let [none, batch] = [0, 10].map(Duration::from_millis);
        assert!(!Jitter::new(none, none, &Streams::new(1)).is_possible());
        let mut jitter = Jitter::new(none, batch, &Streams::new(1));
        let mut leaves = |ms: u64| {
            let now = Timestamp::from_nanos(ms * 1_000_000);
            (now + jitter.draw(now)).as_nanos() / 1_000_000
        };
        assert_eq!([0, 1, 9, 10, 11].map(&mut leaves), [0, 10, 10, 10, 20]);
        let mut jitter = Jitter::new(Duration::from_millis(15), batch, &Streams::new(1));
        let now = Timestamp::from_nanos(1);
        let leaves = (0..100).map(|_| (now + jitter.draw(now)).as_nanos());
        assert!(leaves.into_iter().all(|at| [10_000_000, 20_000_000].contains(&at)));
    }
}
