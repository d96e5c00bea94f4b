//! TCP Westwood+: Reno with an ssthresh after a loss of the bytes that the path has delivered in a base round
//! trip.
//!
//! ```text
//! b      bytes acknowledged / time, once a round
//! B      0.9 B + 0.1 b                      the first b alone
//! loss   ssthresh = B x base                cwnd = ssthresh; Rto: cwnd = 1 mss
//! ```
//! States as in [`super::window`]; growth is Reno's, a segment a window.
//!
//! Departures from the paper, with reasons:
//! - The first sample is taken whole: a B that grows from 0 by a tenth a round is far
//!   too small at the loss that ends slow start.
//! - A loss before the first round trip halves the window (RFC 5681): there is nothing to go by.
//! - ssthresh is at most the window: B also counts bytes that retransmissions of other packets have delayed.
//!
//! Ranges: B 8 bit/s to 18 Ebit/s, windows as in [`super::window`].

pub(super) mod ns3;

use alloc::vec::Vec;

use super::rounds::{RoundTrips, Rounds};
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "westwood",
    summary: "TCP Westwood+: Reno that falls to the delivered rate times the base round trip",
    sources: &[
        "Grieco, Mascolo: Performance evaluation of Westwood+ TCP, ACM CCR 34(2), 2004",
        "linux/net/ipv4/tcp_westwood.c",
    ],
    params: &[],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Westwood::default())),
};

/// Westwood+ as a [`WindowLaw`].
#[derive(Clone, Debug, Default)]
pub struct Westwood {
    /// In ns-3: the interval over which b is counted, instead of rounds; B begins at zero and takes the mean
    /// of two samples.
    interval: Option<ns3::Interval>,
    trips: RoundTrips,
    rounds: Rounds,
    /// When the round began; `None` before the first acknowledgement.
    began: Option<Timestamp>,
    /// Acknowledged since.
    acked: ByteCount,
    /// b of the last round, and B.
    sample: Rate,
    rate: Rate,
}

/// `(9 a + b) / 10`.
fn filtered(a: Rate, b: Rate) -> Rate {
    let (a, b) = (a.as_bits_per_sec(), b.as_bits_per_sec());
    // Whole tenths first: nine times a rate need not fit.
    let rest = 9 * (a % 10) + b % 10;
    Rate::from_bits_per_sec(9 * (a / 10) + b / 10 + rest / 10)
}

impl Westwood {
    fn on_round(&mut self, sample: Rate) {
        let before = core::mem::replace(&mut self.sample, sample);
        self.rate = if self.interval.is_some() {
            filtered(self.rate, ns3::mean(before, sample))
        } else if self.rate == Rate::ZERO {
            sample
        } else {
            filtered(self.rate, sample)
        };
    }

    /// Bytes that the path delivers in a base round trip, if rate and base are known.
    fn carried(&self) -> Option<u64> {
        let base = Duration::from_nanos(self.trips.base()?);
        Some(self.rate.bytes_in(base).as_u64()).filter(|_| self.rate > Rate::ZERO)
    }
}

impl WindowLaw for Westwood {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        self.trips.on_measurement(measurement);
        if let Some(interval) = &mut self.interval {
            if let Some(sample) = interval.on_measurement(now, measurement, window.mss()) {
                self.on_round(sample);
            }
            return;
        }
        let is_over = self.rounds.on_measurement(measurement);
        let Some(began) = self.began else {
            // Earlier bytes took an unknown time.
            self.began = (measurement.acked > ByteCount::ZERO).then_some(now);
            return;
        };
        self.acked += measurement.acked;
        if is_over && let Some(sample) = self.acked.per(now.saturating_since(began)) {
            self.on_round(sample);
            self.began = Some(now);
            self.acked = ByteCount::ZERO;
        }
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        window.grow(acked, |_| mss);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        if let Some(interval) = &mut self.interval {
            interval.restart();
        }
        self.carried().map_or(window.cwnd() / 2, |bytes| bytes.min(window.cwnd()))
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.trips.shift(nanos);
    }

    fn reason(&self) -> &'static str {
        "after a loss: delivered rate times base round trip"
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("rate_bits_per_s", self.rate.as_bits_per_sec() as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};
    use crate::spec::Spec;

    #[test]
    fn loss_leaves_delivered_rate_times_base() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("westwood")));
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        let cwnd = sender.cwnd();
        assert_eq!(cwnd, 10 * MSS, "half of 20: no rate is known yet");
        // A queue that makes the round trip 80 ms: half of the window is in the path.
        sender.extra.app_limited = true;
        for _ in 0..100 {
            sender.round(80_000);
        }
        let before = sender.cwnd();
        let after = sender.event(CongestionEvent::Loss);
        assert!((before * 49 / 100..=before * 51 / 100).contains(&after), "{before} {after}");
    }

    #[test]
    fn a_random_loss_without_a_queue_costs_little() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("westwood")));
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        for _ in 0..60 {
            sender.round(40_000);
        }
        let before = sender.cwnd();
        // The filter lags by nine rounds, and the window has grown a segment in each.
        let after = sender.event(CongestionEvent::Loss);
        assert!(after > before - 12 * MSS && after <= before, "{before} {after}");
    }

    #[test]
    fn the_filter_of_ns3_begins_at_zero() {
        let mut sender = RoundSender::as_ns3("westwood");
        // The first begins an interval, which ends before the second.
        sender.round(40_000);
        sender.round(40_000);
        // A tenth of half of the one sample, which is 10 segments: less than the least of 2.
        assert_eq!(sender.event(CongestionEvent::Loss), 2 * MSS);
    }
}
