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
//!   differ only by lost segments.
//!
//! All in integers, ranges as in [`super::window`].

use super::Algorithm;
use super::interim::{Beta, Interim, SlowStart};
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use crate::units::{ByteCount, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "newreno",
    summary: "one segment a round trip, half the window at a loss",
    sources: &["RFC 5681", "RFC 6582", "RFC 3465"],
    params: &[],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(NewReno)),
};

/// NewReno as a [`WindowLaw`].
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

    fn interim(&self, window: &Window) -> Interim {
        Interim {
            growth: ByteCount::new(window.mss()),
            slow_start: SlowStart::Standard,
            beta: Some(Beta::of(1, 2)),
            ..Interim::HOLD
        }
    }

    fn reason(&self) -> &'static str {
        "one segment per round trip"
    }
}
