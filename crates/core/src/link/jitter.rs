//! How much longer than the delay a packet takes.

use crate::random::{Stream, Streams};
use crate::units::Duration;

/// How much longer than the delay each packet takes: uniform from zero to a most.
#[derive(Clone, Debug)]
pub struct Jitter {
    most: Duration,
    stream: Stream,
}

impl Jitter {
    /// Up to `most`, from the stream `jitter` of `streams`; of zero nothing is drawn.
    pub fn new(most: Duration, streams: &Streams) -> Self {
        Self { most, stream: streams.stream("jitter") }
    }

    /// Jitter of the next packet.
    pub fn draw(&mut self) -> Duration {
        if self.most.is_zero() {
            return Duration::ZERO;
        }
        let most = u64::try_from(self.most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.stream.below(most.saturating_add(1)))
    }
}
