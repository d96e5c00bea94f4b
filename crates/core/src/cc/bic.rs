//! BIC (Xu, Harfoush and Rhee, INFOCOM 2004): a binary search for the window of the last loss, with
//! bounded steps, and a slow departure from it when that is passed.
//!
//! ```text
//! growth a window, in segments, with w the window and m that of the last loss:
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
//! - The constants are those of Linux (`tcp_bic.c`), which is what BIC ran as: steps to a quarter
//!   of the distance and not to half of it, 16 segments at most and not 32, 0.8 and not 0.875.
//! - `ns3_growth`: whole segments by counting acknowledgements, 4 / 5 near the last loss;
//!   `ns3_flight`: below 14 segments half of the bytes in flight; `ns3_convergence`: m = 0.8 w by
//!   fast convergence, and a timeout keeps m.
//!
//! All in integers, ranges as in [`super::window`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::window::{MIN_WINDOW_MSS, Ns3, Window, WindowControl, WindowLaw};
use super::{Algorithm, CongestionControl};
use crate::spec::{Param, Spec, SpecError};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "bic",
    summary: "binary search for the window of the last loss",
    sources: &["Xu, Harfoush, Rhee: Binary Increase Congestion Control, INFOCOM 2004"],
    params: &[&Ns3::GROWTH, &Ns3::FLIGHT, &NS3_CONVERGENCE],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &build,
};

const NS3_CONVERGENCE: Param<bool> = Param::switch(
    "ns3_convergence",
    "fast convergence to 0.8 of the window, kept at timeouts, as in ns-3",
);

/// Largest growth in segments a window (Linux, `max_increment`).
const GROWTH_MAX: u64 = 16;
/// Window in segments below which BIC is Reno (`low_window`).
const LOW_WINDOW: u64 = 14;
/// Part of the distance that one window covers (`BICTCP_B`).
const SEARCH_PARTS: u64 = 4;
/// Windows for [`SEARCH_PARTS`] segments near the last loss (`smooth_part`).
const SMOOTH_PART: u64 = 20;
/// The same in ns-3 (`SmoothPart`).
const NS3_SMOOTH_PART: u64 = 5;
/// Before the first loss, a window's growth is at least this part of it (5 %).
const EARLY_PARTS: u64 = 20;

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let ns3_convergence = NS3_CONVERGENCE.of(spec)?;
    Ok(WindowControl::boxed(Bic { ns3_convergence, ..Bic::default() }, Ns3::read(spec)?))
}

#[derive(Clone, Default)]
struct Bic {
    /// Window of the last loss in bytes, 0 if there is none.
    last_max: u64,
    /// ns-3: segments acknowledged since the last one added.
    counted: u64,
    ns3_convergence: bool,
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

/// Segments to be acknowledged for one more, as ns-3 counts them.
fn ns3_count(segments: u64, last_max: u64) -> u64 {
    let near = segments * NS3_SMOOTH_PART / SEARCH_PARTS;
    let count = if segments < LOW_WINDOW {
        return segments;
    } else if segments < last_max {
        match (last_max - segments) / SEARCH_PARTS {
            0 | 1 => near,
            steps => segments / steps.min(GROWTH_MAX),
        }
    } else if segments < last_max + SEARCH_PARTS {
        near
    } else if segments < last_max + GROWTH_MAX * (SEARCH_PARTS - 1) {
        segments * (SEARCH_PARTS - 1) / (segments - last_max)
    } else {
        segments / GROWTH_MAX
    };
    let most = if last_max == 0 { EARLY_PARTS } else { u64::MAX };
    count.clamp(1, most)
}

impl WindowLaw for Bic {
    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        if window.ns3().growth {
            self.counted += acked / mss;
            if self.counted > ns3_count(window.segments(), self.last_max / mss) {
                window.add_segments(1);
                self.counted = 0;
            }
            return;
        }
        window.grow(acked, |cwnd| growth(cwnd, self.last_max, mss));
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        let cwnd = window.cwnd();
        self.last_max = match (cwnd < self.last_max, self.ns3_convergence) {
            (false, _) => cwnd,
            (true, false) => cwnd / 10 * 9,
            (true, true) => cwnd / 10 * 8,
        };
        if window.segments() <= LOW_WINDOW { window.at_loss() / 2 } else { cwnd / 10 * 8 }
    }

    fn on_rto(&mut self, now: Timestamp, window: &Window) -> u64 {
        let ssthresh = self.on_loss(now, window);
        if !self.ns3_convergence {
            self.last_max = 0;
        }
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
    fn growth_shrinks_towards_the_last_loss_and_is_bounded() {
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
    fn a_loss_takes_a_fifth_and_one_below_the_last_lowers_the_aim() {
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
    fn ns3_waits_for_one_acknowledgement_more_than_it_counts() {
        let mut fed = Fed::new(&ALGORITHM, &[("ns3_growth", "true"), ("ns3_flight", "true")]);
        fed.ack(90);
        fed.lose(); // 80 segments, 20 below the last loss: 80 / 5 = 16
        fed.ack(16);
        assert_eq!(fed.cwnd(), 80 * MSS);
        fed.ack(1);
        assert_eq!(fed.cwnd(), 81 * MSS);
    }
}
