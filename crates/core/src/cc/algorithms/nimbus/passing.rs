//! Letting traffic pass: the hosts' own loops compete, and the sendbox keeps no more queue than a pulse
//! needs.
//!
//! ```text
//! dr/dt = alpha (q - q*) + beta dq/dt         alpha = 10 / s^2, beta = 10 / s, q* = 10 ms of mu
//! ```
//! r in bytes per second, q in bytes. The high lobe of a pulse takes 8 ms of mu at 5 Hz.

/// Gain alpha on the distance of the queue from its target (1/s^2).
const ALPHA_PER_S2: f64 = 10.0;
/// Gain beta on the growth of the queue (1/s). A larger one damps more.
const BETA_PER_S: f64 = 10.0;
/// Queue to keep in the sendbox over mu (seconds).
const TARGET_S: f64 = 0.01;
/// Highest rate over mu.
const CEILING: f64 = 1.25;

/// The controller of the sendbox's own queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Passing {
    bytes_per_s: f64,
    queue_bytes: f64,
}

impl Passing {
    /// From this rate and queue on.
    pub(super) const fn new(bytes_per_s: f64, queue_bytes: f64) -> Self {
        Self { bytes_per_s, queue_bytes }
    }

    /// Change of the rate `dt_s` after the last step, for a queue of `queue_bytes` and a target of
    /// `target_bytes` (bytes per second).
    fn change(&self, queue_bytes: f64, target_bytes: f64, dt_s: f64) -> f64 {
        let growth = queue_bytes - self.queue_bytes;
        ALPHA_PER_S2 * (queue_bytes - target_bytes) * dt_s + BETA_PER_S * growth
    }

    /// The rate in bytes per second, at least `floor`.
    pub(super) fn step(&mut self, queue_bytes: f64, mu: f64, floor: f64, dt_s: f64) -> f64 {
        let change = self.change(queue_bytes, TARGET_S * mu, dt_s);
        self.bytes_per_s = (self.bytes_per_s + change).clamp(floor, CEILING * mu);
        self.queue_bytes = queue_bytes;
        self.bytes_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_that_of_the_published_gains() {
        let packets = |count: f64| 1500.0 * count;
        let passing = Passing::new(6e6, packets(90.0));
        let change = passing.change(packets(100.0), packets(80.0), 0.01);
        assert!((change - 153_000.0).abs() < 1e-6, "{change}");
    }

    #[test]
    fn the_queue_comes_to_its_target() {
        let (mu, arrival, dt_s) = (12e6, 5e6, 0.01);
        let mut queue = 900_000.0;
        let mut passing = Passing::new(2e6, queue);
        for _ in 0..3000 {
            let rate = passing.step(queue, mu, 0.05 * mu, dt_s);
            queue = (queue + (arrival - rate) * dt_s).max(0.0);
        }
        assert!((queue / (0.01 * mu) - 1.0).abs() < 0.05, "{queue}");
    }

    #[test]
    fn it_neither_winds_up_nor_stops() {
        let mut passing = Passing::new(6e6, 0.0);
        for _ in 0..1000 {
            assert!(passing.step(1e9, 12e6, 6e5, 0.01) <= 15e6);
        }
        for _ in 0..1000 {
            assert!(passing.step(0.0, 12e6, 6e5, 0.01) >= 6e5);
        }
    }
}
