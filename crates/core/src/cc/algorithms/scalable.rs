//! Scalable TCP (Kelly, ACM CCR 33(2), 2003): a fixed share of the window per round trip, so that
//! the time to recover from a loss does not grow with the rate.
//!
//! ```text
//! avoidance     cwnd += acked / min(w, 100)              w = cwnd in segments: 1 % a round trip
//! loss          ssthresh = 7/8 cwnd                      w > 16, below it cwnd / 2
//! ```
//! States as in [`super::window`].
//!
//! Departures, with reasons:
//! - The paper changes from Reno's growth to its own at 16 segments, where its own is a sixth of
//!   Reno's. Here the larger of the two holds, which is Reno's up to 100 segments.
//!
//! All in integers, ranges as in [`super::window`].

use super::Algorithm;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "scalable",
    summary: "1 % of the window a round trip, an eighth off at a loss",
    sources: &["Kelly: Scalable TCP, ACM CCR 33(2), 2003"],
    params: &[],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Scalable)),
};

/// Segments acknowledged for one more (paper, a = 0.01).
const ACKED_PER_SEGMENT: u64 = 100;
/// Largest window in segments that a loss halves (paper, lwnd).
const LEGACY_SEGMENTS: u64 = 16;

#[derive(Clone)]
pub(super) struct Scalable;

impl WindowLaw for Scalable {
    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |cwnd| mss.max(cwnd / ACKED_PER_SEGMENT));
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        if window.segments() <= LEGACY_SEGMENTS { window.cwnd() / 2 } else { window.cwnd() / 8 * 7 }
    }

    fn reason(&self) -> &'static str {
        "a fixed share of the window per round trip"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::window::tests::{Fed, MSS};

    #[test]
    fn large_windows_grow_a_hundredth_lose_an_eighth() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.ack(790);
        fed.lose();
        assert_eq!(fed.cwnd(), 700 * MSS);
        fed.ack_windows(1);
        assert!(fed.cwnd().abs_diff(707 * MSS) < MSS / 10, "{}", fed.cwnd());
    }

    #[test]
    fn small_windows_are_reno() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.ack(6);
        fed.lose();
        assert_eq!(fed.cwnd(), 8 * MSS);
        fed.ack_windows(1);
        assert!(fed.cwnd().abs_diff(9 * MSS) < MSS / 10, "{}", fed.cwnd());
    }

    #[test]
    fn ns3_adds_a_segment_for_fifty_acknowledgements() {
        let mut fed = Fed::as_ns3("scalable", &[]);
        fed.ack(86);
        fed.lose(); // 96 segments
        assert_eq!(fed.cwnd(), 84 * MSS);
        fed.ack(49);
        assert_eq!(fed.cwnd(), 84 * MSS);
        fed.ack(1);
        assert_eq!(fed.cwnd(), 85 * MSS);
    }
}
