//! How a single flow competes: as Reno would, with its window over the round trip as the rate.
//!
//! ```text
//! W += mss acked / W        a loss: W = W / 2, at least 2 segments        r = W / rtt
//! ```
//! Source: RFC 5681, section 3.1. The published sender of a single flow competes as Cubic.

/// Least window in segments.
const LEAST_MSS: f64 = 2.0;

/// A window of additive increase and multiplicative decrease, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reno {
    window_bytes: f64,
    mss_bytes: f64,
}

impl Reno {
    /// From this window on.
    pub(super) fn new(window_bytes: f64, mss_bytes: f64) -> Self {
        Self { window_bytes: window_bytes.max(LEAST_MSS * mss_bytes), mss_bytes }
    }

    /// `acked_bytes` more have arrived.
    pub(super) fn on_acked(&mut self, acked_bytes: f64) {
        // More than a window in one report is still a segment.
        let share = (acked_bytes / self.window_bytes).min(1.0);
        self.window_bytes += self.mss_bytes * share;
    }

    /// An episode of losses begins.
    pub(super) fn on_loss(&mut self) {
        self.window_bytes = (self.window_bytes / 2.0).max(LEAST_MSS * self.mss_bytes);
    }

    /// The rate in bytes per second.
    pub(super) fn rate(&self, rtt_s: f64) -> f64 {
        self.window_bytes / rtt_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_per_round_and_halves_on_loss() {
        let mut reno = Reno::new(15_000.0, 1500.0);
        for _ in 0..10 {
            reno.on_acked(1500.0);
        }
        assert!((reno.rate(1.0) - 16_440.0).abs() < 50.0, "{}", reno.rate(1.0));
        reno.on_acked(1e9);
        let window = reno.rate(1.0);
        reno.on_loss();
        assert_eq!(reno.rate(0.5), window);
        (0..20).for_each(|_| reno.on_loss());
        assert_eq!(reno.rate(1.0), 3000.0);
    }
}
