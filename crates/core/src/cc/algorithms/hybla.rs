//! TCP Hybla (Caini and Firrincieli, Int. J. Satellite Communications 22(5), 2004): a long path
//! grows its window as fast in time as a reference path of 25 ms would.
//!
//! ```text
//! rho           max(1, min_rtt / rtt0)                     rtt0 = 25 ms
//! slow start    cwnd += (2^rho - 1) acked                  (equation 10)
//! avoidance     cwnd += rho^2 mss for each window acknowledged
//! loss          ssthresh = cwnd / 2
//! ```
//! States as in [`super::window`].
//!
//! Departures, with reasons:
//! - rho comes from the least round trip, not the latest: a queue of one's own is no reason to grow
//!   faster.
//! - Avoidance at most doubles the window in a round trip (rho^2 <= w): a single one would
//!   otherwise overflow any buffer.
//! - rho is at most 16 (400 ms): 2^rho of a longer path says nothing but "at once".
//!
//! Ranges: rho in 1/256, 1 to 16; 2^rho - 1 in 1/256, 1 to 65535. A float only where rho changes.

use alloc::vec::Vec;

use super::window::{MIN_WINDOW_MSS, MinRtt, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::units::{Duration, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "hybla",
    summary: "TCP Hybla: grows on a long path as fast as Reno on a 25 ms path",
    sources: &["Caini, Firrincieli: TCP Hybla, Int. J. Satellite Communications 22(5), 2004"],
    params: &[],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Hybla::new(RTT0))),
};

/// Reference round trip (paper, section 3).
const RTT0: Duration = Duration::from_millis(25);
/// One, of rho and of 2^rho - 1.
pub(super) const ONE: u64 = 256;
/// Largest rho, 16, in units of 1/[`ONE`]. It bounds the gain 2^rho - 1 on paths beyond 16
/// reference round trips.
const RHO_MAX: u64 = 16 * ONE;

#[derive(Clone)]
pub(super) struct Hybla {
    rtt0: Duration,
    is_ns3: bool,
    min_rtt: MinRtt,
    /// In 1/256.
    pub(super) rho: u64,
    /// 2^rho - 1 in 1/256.
    slow_start_gain: u64,
}

impl Hybla {
    /// With a reference round trip of `rtt0`.
    pub(super) fn new(rtt0: Duration) -> Self {
        let min_rtt = MinRtt::default();
        Self { rtt0, is_ns3: false, min_rtt, rho: ONE, slow_start_gain: ONE }
    }

    /// As in ns-3.37 (TcpHybla), where rho is 1 until a round trip equals the least one, with the handshake's,
    /// and counts whole milliseconds.
    pub(super) fn as_ns3(rtt0: Duration) -> Self {
        Self { is_ns3: true, ..Self::new(rtt0) }
    }

    fn update_rho(&mut self) {
        let Some(min_rtt) = self.min_rtt.get() else { return };
        let unit = if self.is_ns3 { 1_000_000 } else { 1 };
        let rho = min_rtt.as_nanos() / unit * unit * u128::from(ONE) / self.rtt0.as_nanos();
        let rho = u64::try_from(rho).unwrap_or(RHO_MAX).clamp(ONE, RHO_MAX);
        if rho != self.rho {
            self.rho = rho;
            let gain = libm::exp2(rho as f64 / ONE as f64) - 1.0;
            self.slow_start_gain = (gain * ONE as f64) as u64;
        }
    }
}

impl WindowLaw for Hybla {
    fn observe(&mut self, _now: Timestamp, measurement: &Measurement, _window: &mut Window) {
        let is_first = self.min_rtt.get().is_none();
        self.min_rtt.observe(measurement);
        let latest = measurement.rtt.map(|rtt| rtt.latest);
        if !self.is_ns3 || (!is_first && latest == self.min_rtt.get()) {
            self.update_rho();
        }
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        let grown = window.cwnd() + acked * self.slow_start_gain / ONE;
        window.set_cwnd(grown.min(window.ssthresh()));
        grown.saturating_sub(window.ssthresh()) * ONE / self.slow_start_gain
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        let rho_squared = self.rho * self.rho;
        window.grow(acked, |_| mss * rho_squared / (ONE * ONE));
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        window.at_loss() / 2
    }

    fn undo(&mut self, _saved: Self) {}

    fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
        self.update_rho();
    }

    fn reason(&self) -> &'static str {
        "grows as fast as on the reference path"
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("rho", self.rho as f64 / ONE as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;
    use crate::cc::window::tests::{Fed, MSS};

    fn at_rtt(ms: u64) -> Fed {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        let rtt = Duration::from_millis(ms);
        fed.rtt = Some(RttSample { latest: rtt, min: rtt });
        fed
    }

    #[test]
    fn reference_round_trip_is_reno() {
        let mut fed = at_rtt(25);
        fed.ack(10);
        assert_eq!(fed.cwnd(), 20 * MSS);
        fed.lose();
        let before = fed.cwnd();
        fed.ack_windows(1);
        assert!(fed.cwnd().abs_diff(before + MSS) < MSS / 10);
    }

    #[test]
    fn fourfold_round_trip_grows_sixteen_segments_per_window() {
        let mut fed = at_rtt(100);
        fed.ack(1);
        assert_eq!(fed.cwnd(), (10 + 15) * MSS); // 2^4 - 1 for one acknowledged
        fed.ack(10);
        fed.lose();
        let before = fed.cwnd();
        fed.ack_windows(1);
        let grown = (fed.cwnd() - before) as f64 / MSS as f64;
        // Less than 16, since the window grows meanwhile.
        assert!((14.0..=16.0).contains(&grown), "{grown}");
    }
}
