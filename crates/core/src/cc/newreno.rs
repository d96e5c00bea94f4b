//! NewReno: one segment a window, half of it at a loss (RFC 5681, RFC 6582), counted in bytes
//! (RFC 3465).
//!
//! ```text
//! avoidance     cwnd += mss for each cwnd bytes acknowledged        (RFC 3465, 2.1)
//! loss          ssthresh = max(cwnd / 2, 2 mss)                     (RFC 5681, equation 4)
//! ```
//! States, slow start and all else as in [`super::window`]; recovery after partial acknowledgements
//! (RFC 6582) is the host's.
//!
//! Departures, with reasons:
//! - Half of cwnd and not of the flight size: a window that is not filled does not grow either, so both
//!   are the same but for what a lost segment leaves.
//!
//! All in integers, ranges as in [`super::window`].

use super::Algorithm;
use super::law::{Beta, Law, SlowStart};
use super::ns3;
use super::window::{MIN_WINDOW_MSS, Window, WindowLaw};
use crate::units::{ByteCount, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "newreno",
    summary: "one segment a round trip, half the window at a loss",
    sources: &["RFC 5681", "RFC 6582", "RFC 3465"],
    params: &[&ns3::GROWTH, &ns3::FLIGHT],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|spec| ns3::counting(NewReno, spec),
};

/// NewReno as the law of a window.
#[derive(Clone, Debug)]
pub struct NewReno;

impl WindowLaw for NewReno {
    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |_| mss);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        window.at_loss() / 2
    }

    fn host_law(&self, window: &Window) -> Law {
        Law {
            growth: ByteCount::new(window.mss()),
            slow_start: SlowStart::Standard,
            beta: Some(Beta::of(1, 2)),
            ..Law::HOLD
        }
    }

    fn reason(&self) -> &'static str {
        "one segment a round trip"
    }
}
