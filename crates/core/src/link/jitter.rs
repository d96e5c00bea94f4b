//! How much longer than the delay a packet takes.

use super::Config;
use crate::random::{Stream, Streams};
use crate::units::{Duration, Timestamp};

/// How much longer than the delay each packet takes: uniform from zero to a most, and then until the batch that the
/// packet is in leaves.
#[derive(Clone, Debug)]
pub struct Jitter {
    most: Duration,
    batch: Duration,
    stream: Stream,
}

impl Jitter {
    /// As `config` says, from the stream `jitter` of `streams`; of zero nothing is drawn.
    pub fn new(config: &Config, streams: &Streams) -> Self {
        Self { most: config.jitter, batch: config.batch, stream: streams.stream("jitter") }
    }

    /// Whether any packet takes longer.
    pub fn is_possible(&self) -> bool {
        !self.most.is_zero() || !self.batch.is_zero()
    }

    /// How much longer the next packet takes, which would begin the delay at `now`.
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
    use crate::units::Rate;

    #[test]
    fn batches_leave_at_whole_multiples() {
        let mut config = Config::at_rate(Rate::from_mbit_per_sec(12), Duration::ZERO);
        assert!(!Jitter::new(&config, &Streams::new(1)).is_possible());
        config.batch = Duration::from_millis(10);
        let mut jitter = Jitter::new(&config, &Streams::new(1));
        let mut leaves = |ms: u64| {
            let now = Timestamp::from_nanos(ms * 1_000_000);
            (now + jitter.draw(now)).as_nanos() / 1_000_000
        };
        assert_eq!([0, 1, 9, 10, 11].map(&mut leaves), [0, 10, 10, 10, 20]);
        config.jitter = Duration::from_millis(15);
        let mut jitter = Jitter::new(&config, &Streams::new(1));
        let now = Timestamp::from_nanos(1);
        let leaves = (0..100).map(|_| (now + jitter.draw(now)).as_nanos());
        assert!(leaves.into_iter().all(|at| [10_000_000, 20_000_000].contains(&at)));
    }
}
