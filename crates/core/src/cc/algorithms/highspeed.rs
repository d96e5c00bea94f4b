//! HighSpeed TCP (RFC 3649): Reno up to 38 segments. Above that, growth rises and reduction falls
//! with the window, so that 10 Gbit/s over 100 ms is reached at a loss rate of 10^-7.
//!
//! ```text
//! avoidance     cwnd += a(w) mss for each window acknowledged      w = cwnd in segments
//! loss          ssthresh = (1 - b(w)) cwnd
//! b(w) = 0.5 - 0.4 (log w - log 38) / (log 83000 - log 38)         (section 5)
//! a(w) = 2 w^2 p(w) b(w) / (2 - b(w)),   p(w) = 0.078 / w^1.2
//! ```
//! a(w) and b(w) come from the table of RFC 3649, appendix B. Row n gives the window at which a(w) is n.
//! Between two rows the higher a(w) and the lower b(w) hold. Above the last row (94717 segments) both stay.
//!
//! States as in [`super::window`].
//!
//! Departures, with reasons:
//! - The table instead of the formulas: without logarithms.
//!
//! All in integers, ranges as in [`super::window`]; a(w) 1 to 73 segments, b(w) 0.09 to 0.5.

use alloc::vec::Vec;

use super::Algorithm;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "highspeed",
    summary: "Reno up to 38 segments, steeper and with smaller reductions above",
    sources: &["RFC 3649"],
    params: &[],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(HighSpeed::default())),
};

/// RFC 3649, appendix B: window in segments at which a(w) is the number of the row (from 1), and
/// 100 b(w).
#[rustfmt::skip]
const TABLE: [(u64, u64); 73] = [
    (38, 50), (118, 44), (221, 41), (347, 38), (495, 37), (663, 35), (851, 34), (1058, 33),
    (1284, 32), (1529, 31), (1793, 30), (2076, 29), (2378, 28), (2699, 28), (3039, 27), (3399, 27),
    (3778, 26), (4177, 26), (4596, 25), (5036, 25), (5497, 24), (5979, 24), (6483, 23), (7009, 23),
    (7558, 22), (8130, 22), (8726, 22), (9346, 21), (9991, 21), (10661, 21), (11358, 20),
    (12082, 20), (12834, 20), (13614, 19), (14424, 19), (15265, 19), (16137, 19), (17042, 18),
    (17981, 18), (18955, 18), (19965, 17), (21013, 17), (22101, 17), (23230, 17), (24402, 16),
    (25618, 16), (26881, 16), (28193, 16), (29557, 15), (30975, 15), (32450, 15), (33986, 15),
    (35586, 14), (37253, 14), (38992, 14), (40808, 14), (42707, 13), (44694, 13), (46776, 13),
    (48961, 13), (51258, 13), (53677, 12), (56230, 12), (58932, 12), (61799, 12), (64851, 11),
    (68113, 11), (71617, 11), (75401, 10), (79517, 10), (84035, 10), (89053, 10), (94717, 9),
];

/// a(w) in segments and 100 b(w) for a window of `segments`.
pub(super) fn response(segments: u64) -> (u64, u64) {
    let row = TABLE.partition_point(|(window, _)| *window < segments).min(TABLE.len() - 1);
    (row as u64 + 1, TABLE[row].1)
}

#[derive(Clone, Default)]
pub(super) struct HighSpeed {
    /// a(w) in force, in segments.
    pub(super) growth: u64,
}

impl WindowLaw for HighSpeed {
    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        self.growth = response(window.segments()).0;
        window.grow(acked, |cwnd| response(cwnd / mss).0 * mss);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        let (_, decrease) = response(window.at_loss() / window.mss());
        window.at_loss() * (100 - decrease) / 100
    }

    fn reason(&self) -> &'static str {
        "growth depends on the window"
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("growth_segments", self.growth as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::window::tests::{Fed, MSS};

    /// a(w) and b(w) of RFC 3649, section 5.
    fn formula(w: f64) -> (f64, f64) {
        let b = 0.5 - 0.4 * libm::log(w / 38.0) / libm::log(83_000.0 / 38.0);
        let p = 0.078 / libm::pow(w, 1.2);
        (w * w * 2.0 * p * b / (2.0 - b), b)
    }

    #[test]
    fn the_table_follows_the_formula_of_rfc_3649() {
        // The first row is Reno's, by definition.
        for (row, (window, decrease)) in TABLE.iter().enumerate().skip(1) {
            let (a, b) = formula(*window as f64);
            let n = row as f64 + 1.0;
            assert!((a / n - 1.0).abs() < 0.01, "a({window}) = {a}, row {n}");
            assert!((b * 100.0 - *decrease as f64).abs() < 0.55, "b({window}) = {b}");
        }
    }

    #[test]
    fn window_of_500_adds_6_loses_35_percent() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.ack(490);
        fed.lose();
        assert_eq!(fed.cwnd(), 325 * MSS);
        fed.ack_windows(1);
        let grown = (fed.cwnd() - 325 * MSS) as f64 / MSS as f64;
        assert!((3.9..=4.0).contains(&grown), "{grown}");
        let mut fed = Fed::as_ns3("highspeed", &[]);
        fed.ack(490);
        fed.lose();
        fed.ack(81);
        assert_eq!(fed.cwnd(), 325 * MSS);
        fed.ack(1);
        assert_eq!(fed.cwnd(), 326 * MSS);
    }

    #[test]
    fn small_windows_are_reno_large_lose_a_tenth() {
        assert_eq!(response(1), (1, 50));
        assert_eq!(response(38), (1, 50));
        assert_eq!(response(39), (2, 44));
        assert_eq!(response(83_000), (71, 10));
        assert_eq!(response(u64::MAX), (73, 9));
    }
}
