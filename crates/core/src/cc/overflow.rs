//! Buffers that overflow before an algorithm can see their queue, distinguished from random loss.
//!
//! ```text
//! loss, x*  <= x <= 4 x*, path full     evidence + 2; above 0: an overflow
//! loss, x   <  x*                       evidence - 1
//! x > 4 x*                              the buffer is deep: all forgotten
//! ```
//! Random loss does not depend on the queue, which in most samples is shorter than the one aimed for.
//! An example is a buffer of 10 packets at 96 Mbit/s on real traffic: 72 % of the losses came with x >
//! x*, and 3 % of all samples had x > x*.

use super::estimators::Path;

/// A path counts as full at this share of its bottleneck rate.
const FULL_SHARE: f64 = 0.9;
/// Overflows after which a buffer counts as too shallow to show a queue: the first one in slow start
/// and another one.
const OVERFLOWS: u32 = 2;
/// Shortest time between two overflows: the losses of one filled buffer count once.
const OVERFLOWS_APART_S: f64 = 1.0;
/// A buffer that holds more targets than this shows its queue before it overflows.
const SHALLOW_TARGETS: f64 = 4.0;
/// Losses without a queue, less twice those with one, that are remembered.
const EVIDENCE_MAX: i32 = 4;
/// A buffer that has overflowed counts as shallow for this time: the target queue there needs as long
/// to grow again (see [`super::estimators`]), and Cubic takes less to fill it.
const OVERFLOW_HOLDS_S: f64 = 30.0;

/// Watches for a buffer that overflows before its queue can be seen.
#[derive(Clone, Debug, Default)]
pub struct OverflowWatch {
    last_queue_s: f64,
    /// Above zero while losses come with a queue.
    evidence: i32,
    count: u32,
    counted_s: f64,
    last_s: f64,
}

impl OverflowWatch {
    /// Takes a measurement of the queueing delay `queue_s`; true if the buffer has overflowed again.
    /// Random loss comes with any queue. Loss from a full buffer comes mostly with more queue than an
    /// algorithm aims for.
    pub fn on_measurement(
        &mut self,
        now_s: f64,
        path: &Path,
        queue_s: f64,
        has_lost: bool,
    ) -> bool {
        let longest_s = queue_s.max(self.last_queue_s);
        self.last_queue_s = queue_s;
        if longest_s > SHALLOW_TARGETS * path.deep_target_s {
            *self = Self { last_queue_s: queue_s, ..Self::default() };
            return false;
        }
        if !has_lost {
            return false;
        }
        let step = if longest_s >= path.deep_target_s { 2 } else { -1 };
        self.evidence = (self.evidence + step).clamp(-EVIDENCE_MAX, EVIDENCE_MAX);
        let is_full = path.recent_bytes_per_s >= FULL_SHARE * path.bottleneck_bytes_per_s;
        if step < 0 || self.evidence <= 0 || !is_full {
            return false;
        }
        if !self.is_recent(now_s) {
            self.count = 0;
        }
        self.last_s = now_s;
        let apart_s = OVERFLOWS_APART_S.max(10.0 * path.loop_s);
        let is_new = self.count == 0 || now_s - self.counted_s >= apart_s;
        if is_new {
            self.count += 1;
            self.counted_s = now_s;
        }
        is_new
    }

    /// An overflow was seen within `OVERFLOW_HOLDS_S`.
    pub fn is_recent(&self, now_s: f64) -> bool {
        self.count > 0 && now_s - self.last_s < OVERFLOW_HOLDS_S
    }

    /// Whether the buffer has overflowed at two fillings at least.
    pub fn is_repeated(&self) -> bool {
        self.count >= OVERFLOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full path with a loop time of 50 ms and x* of 0.75 ms.
    fn path() -> Path {
        Path {
            loop_s: 0.05,
            deep_target_s: 0.75e-3,
            recent_bytes_per_s: 12e6,
            bottleneck_bytes_per_s: 12e6,
            ..Path::default()
        }
    }

    /// Takes a loss every 100 ms with the next of `queues_ms`; the number of overflows.
    fn overflows(watch: &mut OverflowWatch, path: &Path, queues_ms: &[f64], losses: u32) -> u32 {
        let queues = queues_ms.iter().cycle().take(losses as usize);
        let new = queues.zip(0u32..).filter(|(queue_ms, loss)| {
            let now_s = f64::from(*loss) * 0.1;
            // The sample before it, without loss.
            watch.on_measurement(now_s, path, 0.0, false);
            watch.on_measurement(now_s + 0.01, path, *queue_ms * 1e-3, true)
        });
        new.count() as u32
    }

    #[test]
    fn losses_with_queue_are_one_overflow_per_second() {
        let mut watch = OverflowWatch::default();
        assert_eq!(overflows(&mut watch, &path(), &[1.2, 0.3, 0.9], 30), 3);
        assert!(watch.is_repeated() && watch.is_recent(32.0));
        assert!(!watch.is_recent(33.1), "half a minute later it is tried again");
    }

    #[test]
    fn losses_with_any_queue_are_random() {
        let mut watch = OverflowWatch::default();
        let queues_ms = [0.1, 0.2, 0.3, 0.9, 0.2];
        assert_eq!(overflows(&mut watch, &path(), &queues_ms, 1000), 0);
    }

    #[test]
    fn unfilled_path_does_not_overflow() {
        let path = Path { recent_bytes_per_s: 10e6, ..path() };
        assert_eq!(overflows(&mut OverflowWatch::default(), &path, &[1.2], 30), 0);
    }

    #[test]
    fn long_queue_shows_a_deep_buffer() {
        let mut watch = OverflowWatch::default();
        overflows(&mut watch, &path(), &[1.2], 30);
        assert!(!watch.on_measurement(3.0, &path(), 3.1e-3, true));
        assert!(!watch.is_repeated() && !watch.is_recent(3.0));
    }
}
