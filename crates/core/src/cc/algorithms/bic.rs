//! BIC (Xu, Harfoush and Rhee, INFOCOM 2004): a binary search for the window of the last loss, with
//! bounded steps. Beyond that window it grows slowly at first.
//!
//! ```text
//! growth a window, in segments, with w the window and m the window of the last loss:
//!   w < 14                1                             (as Reno)
//!   w < m                 (m - w) / 4, at most 16; 4 / 20 once that is 1 or less
//!   m <= w < m + 4        4 / 20
//!   w < m + 48            (w - m) / 3
//!   above                 16
//!   no m yet              at least w / 20
//! loss   m = w, or 0.9 w where w < m (fast convergence); ssthresh = 0.8 w, w / 2 where w <= 14
//! Rto    no m
//! ```
//! States as in [`super::window`].
//!
//! Departures, with reasons:
//! - The constants are Linux's (`tcp_bic.c`), since BIC was used there. Steps go to a quarter of the
//!   distance instead of half, and take at most 16 segments instead of 32. The factor is 0.8, not 0.875.
//!
//! All in integers, ranges as in [`super::window`].

use alloc::vec::Vec;

use super::Algorithm;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bic",
    summary: "binary search for the window of the last loss",
    sources: &["Xu, Harfoush, Rhee: Binary Increase Congestion Control, INFOCOM 2004"],
    params: &[],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Bic::default())),
};

/// Largest growth in segments a window (Linux, `max_increment`).
pub(super) const GROWTH_MAX: u64 = 16;
/// Window in segments below which BIC is Reno (`low_window`).
pub(super) const LOW_WINDOW: u64 = 14;
/// Part of the distance that one window covers (`BICTCP_B`).
pub(super) const SEARCH_PARTS: u64 = 4;
/// Windows for [`SEARCH_PARTS`] segments near the last loss (`smooth_part`).
const SMOOTH_PART: u64 = 20;
/// Before the first loss, a window's growth is at least this part of it (5 %).
pub(super) const EARLY_PARTS: u64 = 20;

#[derive(Clone, Default)]
pub(crate) struct Bic {
    /// Window of the last loss in bytes, 0 if there is none.
    pub(super) last_max: u64,
}

/// Bytes that a window of `cwnd` grows by until it is acknowledged.
fn growth(cwnd: u64, last_max: u64, mss: u64) -> u64 {
    let near = SEARCH_PARTS * mss / SMOOTH_PART;
    let growth = if cwnd < LOW_WINDOW * mss {
        mss
    } else if cwnd < last_max {
        // In whole segments, as Linux: the search ends 8 segments short of the last loss.
        match (last_max - cwnd) / mss / SEARCH_PARTS {
            0 | 1 => near,
            steps => steps.min(GROWTH_MAX) * mss,
        }
    } else if cwnd < last_max + SEARCH_PARTS * mss {
        near
    } else {
        ((cwnd - last_max) / (SEARCH_PARTS - 1)).min(GROWTH_MAX * mss)
    };
    if last_max == 0 { growth.max(cwnd / EARLY_PARTS) } else { growth }
}

impl WindowLaw for Bic {
    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |cwnd| growth(cwnd, self.last_max, mss));
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        let cwnd = window.cwnd();
        self.last_max = if cwnd < self.last_max { cwnd / 10 * 9 } else { cwnd };
        if window.segments() <= LOW_WINDOW { window.at_loss() / 2 } else { cwnd / 10 * 8 }
    }

    fn on_rto(&mut self, ssthresh: u64, _window: &Window) -> u64 {
        self.last_max = 0;
        ssthresh
    }

    fn reason(&self) -> &'static str {
        if self.last_max == 0 { "no loss yet" } else { "binary search for the last loss" }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("last_max_bytes", self.last_max as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::window::tests::{Fed, MSS};

    #[test]
    fn growth_slows_near_last_loss_and_is_bounded() {
        let segments = |cwnd: u64| growth(cwnd * 1000, 200_000, 1000) as f64 / 1000.0;
        assert_eq!(segments(13), 1.0);
        assert_eq!(segments(100), 16.0);
        assert_eq!(segments(160), 10.0);
        assert_eq!(segments(180), 5.0);
        assert_eq!(segments(193), 0.2);
        assert_eq!(segments(203), 0.2);
        assert_eq!(segments(230), 10.0);
        assert_eq!(segments(400), 16.0);
        assert_eq!(growth(400_000, 0, 1000), 20_000);
    }

    #[test]
    fn loss_takes_a_fifth_and_may_aim_lower() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.ack(90);
        fed.lose();
        assert_eq!(fed.cwnd(), 80 * MSS);
        assert_eq!(fed.number("last_max_bytes"), 100_000.0);
        fed.lose();
        assert_eq!(fed.cwnd(), 64 * MSS);
        assert_eq!(fed.number("last_max_bytes"), 72_000.0);
    }

    #[test]
    fn small_windows_halve() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.lose();
        assert_eq!(fed.cwnd(), 5 * MSS);
    }

    #[test]
    fn ns3_waits_for_one_extra_acknowledgement() {
        let mut fed = Fed::as_ns3("bic", &[]);
        fed.ack(90);
        fed.lose(); // 80 segments, 20 below the last loss: 80 / 5 = 16
        fed.ack(16);
        assert_eq!(fed.cwnd(), 80 * MSS);
        fed.ack(1);
        assert_eq!(fed.cwnd(), 81 * MSS);
    }
}
