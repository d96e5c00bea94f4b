//! TCP Veno: Reno that distinguishes random loss from congestion by Vegas' measure of the queue.
//!
//! ```text
//! N = cwnd (r - base) / r                       of the newest round trips
//! avoidance     N < 3 mss: 1 mss a window       else half of it
//! loss          N < 3 mss: ssthresh = 4/5 cwnd (random)      else 1/2 cwnd (congestion)
//! ```
//! States as in [`super::window`].
//!
//! Departures from the paper: no intended ones. r is the least round trip of the newest
//! measurement. If each acknowledgement is measured, it is the round trip of that acknowledgement.
//!
//! Ranges: round trips 1 ns to 584 years, windows as in [`super::window`].

use alloc::vec::Vec;

use super::rounds::{RoundTrips, least, queued};
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "veno",
    summary: "TCP Veno: Reno that treats losses without a queue as random",
    sources: &["Fu, Liew: TCP Veno, IEEE JSAC 21(2), 2003"],
    params: &[&BETA],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|spec| Ok(WindowControl::boxed(Veno::read(spec)?)),
};

/// Paper's beta (Linux: 3). A larger one takes more losses for random.
const BETA: Param<u64> =
    Param::new("beta", "queued segments from which on a loss is congestion").or(3).within(1..=1000);

#[derive(Clone, Debug)]
pub(super) struct Veno {
    /// In segments.
    beta: u64,
    /// Maps the bytes in the queue and the segment size to the bytes that are compared.
    pub(super) compared: fn(u64, u64) -> u64,
    trips: RoundTrips,
    /// Newest, in nanoseconds.
    rtt: Option<u64>,
}

impl Veno {
    pub(super) fn read(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            beta: BETA.of(spec)?,
            compared: |bytes, _| bytes,
            trips: RoundTrips::default(),
            rtt: None,
        })
    }

    /// Bytes in the queue, 0 before the first round trip.
    fn queued(&self, window: &Window) -> u64 {
        self.rtt.zip(self.trips.base()).map_or(0, |(rtt, base)| queued(window.cwnd(), base, rtt))
    }

    fn is_queueing(&self, window: &Window) -> bool {
        let mss = window.mss();
        (self.compared)(self.queued(window), mss) >= self.beta * mss
    }
}

impl WindowLaw for Veno {
    fn observe(&mut self, _now: Timestamp, measurement: &Measurement, _window: &mut Window) {
        self.trips.on_measurement(measurement);
        self.rtt = least(measurement).or(self.rtt);
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        let is_slower = self.is_queueing(window);
        window.grow(acked, |_| if is_slower { mss / 2 } else { mss });
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        let bytes = window.at_loss();
        if self.is_queueing(window) { bytes / 2 } else { bytes.saturating_mul(4) / 5 }
    }

    fn on_rto(&mut self, _ssthresh: u64, window: &Window) -> u64 {
        window.at_loss() / 2
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.trips.shift(nanos);
        self.rtt = self.rtt.map(|rtt| rtt.saturating_add_signed(nanos).max(1));
    }

    fn reason(&self) -> &'static str {
        "reduction by the queue at the loss"
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("rtt_ns", self.rtt.unwrap_or(0) as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};

    /// In avoidance, with 16 segments and a base of 40 ms.
    fn in_avoidance() -> RoundSender {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("veno")));
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        assert_eq!(sender.cwnd(), 16 * MSS, "four fifths of 20 segments");
        sender
    }

    #[test]
    fn growth_is_halved_while_a_queue_exists() {
        let mut sender = in_avoidance();
        let grown = sender.round(40_000) - 16 * MSS;
        assert!((MSS * 9 / 10..=MSS).contains(&grown), "{grown}");
        let before = sender.cwnd();
        let grown = sender.round(60_000) - before;
        assert!((MSS * 9 / 20..=MSS / 2).contains(&grown), "{grown}");
    }

    #[test]
    fn loss_takes_fifth_or_with_queue_half() {
        let mut random = in_avoidance();
        let before = random.round(40_000);
        assert_eq!(random.event(CongestionEvent::Loss), before * 4 / 5);
        let mut congested = in_avoidance();
        let before = congested.round(60_000);
        assert_eq!(congested.event(CongestionEvent::Loss), before / 2);
    }

    #[test]
    fn in_ns3_growth_does_not_slow_down() {
        let mut sender = RoundSender::as_ns3("veno");
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        let before = sender.cwnd();
        let grown = sender.round(60_000) - before;
        assert_eq!(grown, MSS * MSS / before, "of one acknowledgement");
    }
}
