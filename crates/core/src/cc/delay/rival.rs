//! How a single flow finds that cross traffic fills the buffer, and competes with it: Copa's mode switching.
//!
//! ```text
//! queue of 5 round trips never below max(a tenth of its largest, 3 targets)    competes
//! once below                                                                    holds its own queue again
//! competing:   1/delta += 1 segment a round trip, / 2 at a loss, never below the target
//!              W += or -= 1/delta a round trip, towards a rate of 1/(delta x)
//! ```
//! Source: Arun, Balakrishnan: Copa, NSDI 2018, section 2.2.
//!
//! Departures, with reasons: a flow that is alone empties its queue by its own drains and not by each of its
//! swings. So "nearly empty" is at least the queue that the flow would still hold alone. That is 3 targets
//! at the fastest delivery of the last 10 s before it competed. The rate that cross traffic leaves later is
//! no capacity. The base is not forgotten after 10 s: behind cross traffic that never lets the buffer empty,
//! that queue would become the base. A flow on a path that became longer therefore competes with itself, as
//! Reno would fill that path.

use super::{DelayControl, DelayLaw};
use crate::cc::estimators::{Path, SlidingMax};

/// Round trips in which the queue must be nearly empty once.
const ROUNDS: usize = 5;
/// Share of the largest queue of the last [`ROUNDS`] round trips that counts as nearly empty
/// (paper).
const NEARLY_EMPTY: f64 = 0.1;
/// A queue of up to this many targets always counts as nearly empty.
const TARGETS: f64 = 3.0;
/// Time over which the fastest delivery counts as the capacity (seconds).
const MEMORY_S: f64 = 10.0;

/// The queue of the last round trips, and 1/delta of a flow that competes.
#[derive(Clone, Debug, Default)]
pub(super) struct Rival {
    /// Least and largest queueing delay of each round trip (seconds); `last` is under way.
    rounds: [[f64; 2]; ROUNDS],
    last: usize,
    known: usize,
    ends_s: f64,
    capacity: SlidingMax,
    /// 1/delta in bytes while the flow competes.
    inverse_delta_bytes: Option<f64>,
}

impl Rival {
    pub(super) fn is_competing(&self) -> bool {
        self.inverse_delta_bytes.is_some()
    }

    /// Takes a queueing delay; returns whether the flow competes.
    fn observe(&mut self, now_s: f64, path: &Path, queue_s: f64, mss_bytes: f64) -> bool {
        if now_s >= self.ends_s {
            self.last = (self.last + 1) % ROUNDS;
            self.known = (self.known + 1).min(ROUNDS);
            self.rounds[self.last] = [queue_s; 2];
            self.ends_s = now_s + path.base_s + queue_s;
            self.inverse_delta_bytes = self.inverse_delta_bytes.map(|bytes| bytes + mss_bytes);
        }
        let [least, largest] = &mut self.rounds[self.last];
        (*least, *largest) = (least.min(queue_s), largest.max(queue_s));
        let least = self.rounds.iter().map(|round| round[0]).fold(f64::INFINITY, f64::min);
        let largest = self.rounds.iter().map(|round| round[1]).fold(0.0, f64::max);
        if !self.is_competing() {
            self.capacity.push(now_s, path.recent_bytes_per_s, MEMORY_S);
        }
        let held_s = TARGETS * path.target_bytes / self.capacity.value().max(1.0);
        let nearly_empty_s = held_s.max(NEARLY_EMPTY * largest);
        if self.known < ROUNDS || least <= nearly_empty_s {
            self.inverse_delta_bytes = None;
        } else {
            self.inverse_delta_bytes.get_or_insert(path.target_bytes);
        }
        self.is_competing()
    }

    /// An episode of losses begins.
    pub(super) fn on_loss(&mut self) {
        self.inverse_delta_bytes = self.inverse_delta_bytes.map(|bytes| bytes / 2.0);
    }

    /// The window after `path.acked_bytes` more have arrived.
    fn window(&self, path: &Path, window_bytes: f64) -> f64 {
        let inverse_delta = self.inverse_delta_bytes.unwrap_or(0.0).max(path.target_bytes);
        let queue_s = path.fresh_s.max(0.0);
        let current = window_bytes / (path.base_s + queue_s);
        let step = inverse_delta * (path.acked_bytes / window_bytes).min(1.0);
        window_bytes + if queue_s * current <= inverse_delta { step } else { -step }
    }
}

impl<L: DelayLaw> DelayControl<L> {
    /// Whether the flow competes. Where that begins or ends, its window becomes the bytes that it has on the
    /// path.
    pub(super) fn rivals(&mut self, path: &Path, rtt_s: f64) -> bool {
        let (now_s, mss_bytes) = (self.now_s, self.mss_bytes());
        let Some(rival) = &mut self.rival else { return false };
        let before = rival.is_competing();
        let competes = rival.observe(now_s, path, rtt_s - path.base_s, mss_bytes);
        if competes != before {
            let queue_s = if competes { path.standing_s } else { 0.0 };
            let bytes = path.recent_bytes_per_s * (path.base_s + queue_s);
            self.set_window(bytes + path.target_bytes, path);
        }
        competes
    }

    /// One step of a flow that competes.
    pub(super) fn compete_alone(&mut self, path: &Path) {
        let Some(rival) = &self.rival else { return };
        self.window_bytes = rival.window(path, self.window_bytes).max(self.min_window_bytes());
        self.reason = "cross traffic fills the buffer";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1500.0;

    fn path() -> Path {
        Path {
            base_s: 0.05,
            target_bytes: 9_000.0,
            recent_bytes_per_s: 12e6,
            acked_bytes: 150_000.0,
            ..Path::default()
        }
    }

    /// Takes queues 10 ms apart; whether it competed after each.
    fn observe(rival: &mut Rival, from_s: f64, queues_s: &[f64]) -> alloc::vec::Vec<bool> {
        let times = (0..).map(|step| from_s + 0.01 * f64::from(step));
        let observe = |(now_s, queue_s): (f64, &f64)| rival.observe(now_s, &path(), *queue_s, MSS);
        times.zip(queues_s).map(observe).collect()
    }

    #[test]
    fn lasting_queue_is_competed_with_until_nearly_empty() {
        let mut rival = Rival::default();
        let seen = observe(&mut rival, 1.0, &[0.03; 60]);
        // The fifth round trip of 80 ms begins after four.
        let first = seen.iter().position(|competes| *competes).unwrap();
        assert!((32..=36).contains(&first), "{first}");
        assert!(observe(&mut rival, 2.0, &[0.02; 30]).iter().all(|competes| *competes));
        assert_eq!(observe(&mut rival, 3.0, &[0.001]), [false]);
    }

    #[test]
    fn own_queue_is_no_reason_to_compete() {
        let mut rival = Rival::default();
        let swings = [0.6e-3, 1.5e-3, 2.2e-3].repeat(100);
        assert!(observe(&mut rival, 1.0, &swings).iter().all(|competes| !competes));
    }

    #[test]
    fn competing_flow_adds_segment_and_halves_on_loss() {
        let mut rival = Rival { inverse_delta_bytes: Some(30_000.0), ..Rival::default() };
        let path = Path { fresh_s: 0.0, ..path() };
        assert_eq!(rival.window(&path, 150_000.0), 180_000.0, "an empty queue");
        let queued = Path { fresh_s: 0.05, ..path };
        assert_eq!(rival.window(&queued, 150_000.0), 120_000.0, "75,000 bytes of queue");
        rival.on_loss();
        rival.on_loss();
        rival.on_loss();
        assert_eq!(rival.window(&path, 150_000.0), 159_000.0, "the target at least");
    }
}
