//! TCP Veno: Reno that tells random loss from congestion by Vegas' measure of the queue.
//!
//! ```text
//! N = cwnd (r - base) / r                       of the newest round trips
//! avoidance     N < 3 mss: 1 mss a window       else half of it
//! loss          N < 3 mss: ssthresh = 4/5 cwnd (random)      else 1/2 cwnd (congestion)
//! ```
//! States: those of [`super::window`].
//!
//! Departures from the paper: none that is meant. r is the least round trip of the newest
//! measurement, and so is that of an acknowledgement where each is measured.
//!
//! Ranges: round trips 1 ns to 584 years, windows as in [`super::window`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::ns3;
use super::rounds::{RoundTrips, least, queued};
use super::window::{MIN_WINDOW_MSS, Window, WindowLaw};
use super::{Algorithm, CongestionControl, Field, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "veno",
    summary: "TCP Veno: Reno that takes a loss without a queue for random",
    sources: &["Fu, Liew: TCP Veno, IEEE JSAC 21(2), 2003"],
    params: &[&BETA, &ns3::GROWTH, &ns3::FLIGHT, &ns3::WHOLE_SEGMENTS, &ns3::RENO_GROWTH],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &build,
};

const BETA: Param<u64> =
    Param::new("beta", "segments in the queue from which a loss is congestion")
        .or(3)
        .within(1..=1000);

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let law = Veno {
        beta: BETA.of(spec)?,
        compared: |bytes, _| bytes,
        trips: RoundTrips::default(),
        rtt: None,
    };
    ns3::veno(law, spec)
}

#[derive(Clone, Debug)]
pub(super) struct Veno {
    /// In segments.
    beta: u64,
    /// What of the bytes in the queue is compared, in segments of so many bytes.
    pub(super) compared: fn(u64, u64) -> u64,
    trips: RoundTrips,
    /// Newest, in nanoseconds.
    rtt: Option<u64>,
}

impl Veno {
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
        "a loss counts by the queue"
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
    use crate::spec::Value;

    /// In avoidance, with 8 segments and a base of 40 ms.
    fn in_avoidance(spec: &Spec) -> RoundSender {
        let mut sender = RoundSender::new(build(spec));
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        assert_eq!(sender.cwnd(), 16 * MSS, "four fifths of 20 segments");
        sender
    }

    #[test]
    fn it_grows_a_segment_a_window_without_a_queue_and_half_of_it_with_one() {
        let mut sender = in_avoidance(&Spec::named("veno"));
        let grown = sender.round(40_000) - 16 * MSS;
        assert!((MSS * 9 / 10..=MSS).contains(&grown), "{grown}");
        let before = sender.cwnd();
        let grown = sender.round(60_000) - before;
        assert!((MSS * 9 / 20..=MSS / 2).contains(&grown), "{grown}");
    }

    #[test]
    fn a_loss_takes_a_fifth_without_a_queue_and_half_with_one() {
        let mut random = in_avoidance(&Spec::named("veno"));
        let before = random.round(40_000);
        assert_eq!(random.event(CongestionEvent::Loss), before * 4 / 5);
        let mut congested = in_avoidance(&Spec::named("veno"));
        let before = congested.round(60_000);
        assert_eq!(congested.event(CongestionEvent::Loss), before / 2);
    }

    #[test]
    fn ns3_reno_growth_does_not_slow_down() {
        let spec = Spec::named("veno").with("ns3_reno_growth", Value::Bool(true));
        let mut sender = in_avoidance(&spec);
        let grown = sender.round(60_000) - 16 * MSS;
        assert!(grown > MSS * 9 / 10, "{grown}");
    }
}
