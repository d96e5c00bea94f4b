//! TCP Westwood+: Reno whose ssthresh after a loss is what the path has delivered in a base round trip.
//!
//! ```text
//! b      bytes acknowledged / time, once a round
//! B      0.9 B + 0.1 b                      the first b alone
//! loss   ssthresh = B x base                cwnd = ssthresh; Rto: cwnd = 1 mss
//! ```
//! States: those of [`super::window`]; growth is Reno's, a segment a window.
//!
//! Departures from the paper, with reasons:
//! - The first sample is taken whole, as in Linux: a B that grows from 0 by a tenth a round is far
//!   too small at the loss that ends slow start.
//! - A loss before the first round trip halves the window (RFC 5681): there is nothing to go by.
//! - ssthresh is at most the window: B counts what others' retransmissions have delayed, too.
//!
//! ns-3 differs by `ns3_filter`: B begins at 0, each b is the mean of the last two (Tustin), and
//! ssthresh may exceed the window; and by `ns3_interval`: b is counted by acknowledgements, over one
//! smoothed round trip from the first of them on, and what comes before the next first one does not
//! count. A duplicate is a segment; what SND.UNA passes at the end of a repair counts once more.
//!
//! Ranges: B 8 bit/s to 18 Ebit/s, windows as in [`super::window`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::rounds::{RoundTrips, Rounds};
use super::window::{MIN_WINDOW_MSS, Ns3, Window, WindowControl, WindowLaw};
use super::{Algorithm, CongestionControl, Field, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "westwood",
    summary: "TCP Westwood+: Reno that falls to the delivered rate times the base round trip",
    sources: &[
        "Grieco, Mascolo: Performance evaluation of Westwood+ TCP, ACM CCR 34(2), 2004",
        "linux/net/ipv4/tcp_westwood.c",
    ],
    params: &[&Ns3::GROWTH, &NS3_FILTER, &NS3_INTERVAL],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &build,
};

const NS3_FILTER: Param<bool> = Param::switch(
    "ns3_filter",
    "begin the rate at zero and average two samples (Tustin), as in ns-3",
);
const NS3_INTERVAL: Param<bool> = Param::switch(
    "ns3_interval",
    "count acknowledgements over a smoothed round trip, duplicates too, as in ns-3",
);

fn build(spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    let law = Westwood {
        ns3_filter: NS3_FILTER.of(spec)?,
        interval: NS3_INTERVAL.of(spec)?.then(Interval::default),
        trips: RoundTrips::default(),
        rounds: Rounds::default(),
        began: None,
        acked: ByteCount::ZERO,
        sample: Rate::ZERO,
        rate: Rate::ZERO,
    };
    Ok(WindowControl::boxed(law, Ns3::read(spec)?))
}

#[derive(Clone, Debug)]
struct Westwood {
    ns3_filter: bool,
    /// Instead of rounds, in ns-3.
    interval: Option<Interval>,
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

/// ns-3's time over which acknowledgements are counted (TcpWestwoodPlus::PktsAcked, EstimateBW).
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    /// Its end and its length; `None` until an acknowledgement begins the next.
    running: Option<(Timestamp, Duration)>,
    segments: u64,
    /// Duplicates since SND.UNA moved or a repair began: counted already.
    duplicates: u64,
    delivered: ByteCount,
}

impl Interval {
    /// Takes an acknowledgement of segments of `mss`; the rate of the interval that has ended before it.
    fn on_measurement(
        &mut self,
        now: Timestamp,
        measurement: &Measurement,
        mss: u64,
    ) -> Option<Rate> {
        let over = self.running.filter(|(end, _)| *end <= now);
        let rate = over
            .and_then(|(_, length)| ByteCount::new(self.segments.saturating_mul(mss)).per(length));
        if over.is_some() {
            (self.running, self.segments) = (None, 0);
        }
        // Without a round trip it is no acknowledgement.
        let Some(rtt) = measurement.rtt.map(|rtt| rtt.latest) else { return rate };
        let is_new = measurement.delivered > self.delivered;
        self.delivered = measurement.delivered;
        let acked = measurement.acked.as_u64() / mss;
        if acked > 0 {
            let uncounted = acked.saturating_sub(core::mem::take(&mut self.duplicates));
            self.segments = self.segments.saturating_add(uncounted);
        } else if is_new {
            self.segments = self.segments.saturating_add(1);
            self.duplicates += 1;
        } else {
            return rate;
        }
        self.running = self.running.or(Some((now + rtt, rtt)));
        rate
    }
}

/// `(9 a + b) / 10`.
fn filtered(a: Rate, b: Rate) -> Rate {
    let sum = 9 * u128::from(a.as_bits_per_sec()) + u128::from(b.as_bits_per_sec());
    Rate::from_bits_per_sec((sum / 10) as u64)
}

impl Westwood {
    fn on_round(&mut self, sample: Rate) {
        let before = core::mem::replace(&mut self.sample, sample);
        self.rate = if self.ns3_filter {
            let (a, b) = (before.as_bits_per_sec(), sample.as_bits_per_sec());
            filtered(self.rate, Rate::from_bits_per_sec(a / 2 + b / 2))
        } else if self.rate == Rate::ZERO {
            sample
        } else {
            filtered(self.rate, sample)
        };
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
            // What came before it took an unknown time.
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
        let base = self.trips.base().map(Duration::from_nanos);
        let carried = base.map(|base| self.rate.bytes_in(base).as_u64());
        if let Some(interval) = &mut self.interval {
            interval.duplicates = 0;
        }
        match carried.filter(|_| self.rate > Rate::ZERO) {
            Some(bytes) if self.ns3_filter => bytes,
            Some(bytes) => bytes.min(window.cwnd()),
            None => window.cwnd() / 2,
        }
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.trips.shift(nanos);
    }

    fn reason(&self) -> &'static str {
        "a loss leaves what the path delivers"
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
    use crate::spec::Value;

    #[test]
    fn a_loss_leaves_the_delivered_rate_times_the_base() {
        let mut sender = RoundSender::new(build(&Spec::named("westwood")));
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
        let mut sender = RoundSender::new(build(&Spec::named("westwood")));
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        for _ in 0..60 {
            sender.round(40_000);
        }
        let before = sender.cwnd();
        // The filter lags by nine rounds, in each of which the window has grown a segment.
        let after = sender.event(CongestionEvent::Loss);
        assert!(after > before - 12 * MSS && after <= before, "{before} {after}");
    }

    #[test]
    fn an_interval_of_ns3_counts_duplicates_once_and_begins_with_an_acknowledgement() {
        let mut interval = Interval::default();
        let mut delivered = 0;
        let mut take = |ms: u64, acked: u64, newly: u64| {
            delivered += newly;
            let rtt = Duration::from_millis(40);
            let measurement = Measurement {
                acked: ByteCount::new(acked * MSS),
                delivered: ByteCount::new(delivered * MSS),
                rtt: Some(crate::cc::RttSample { latest: rtt, min: rtt }),
                ..Measurement::default()
            };
            let now = Timestamp::from_nanos(ms * 1_000_000);
            interval.on_measurement(now, &measurement, MSS).map(|rate| rate.as_bits_per_sec())
        };
        assert_eq!([take(0, 1, 1), take(10, 1, 1), take(20, 0, 1)], [None; 3]);
        // The duplicate's segment is one of these two; nothing new is no duplicate.
        assert_eq!([take(30, 2, 1), take(39, 0, 0)], [None; 2]);
        // 4 segments in 40 ms. The pause before the next acknowledgement is in no interval.
        assert_eq!(take(60, 1, 1), Some(4 * MSS * 8 * 25));
        assert_eq!(take(99, 1, 1), None);
        assert_eq!(take(100, 1, 1), Some(2 * MSS * 8 * 25));
    }

    #[test]
    fn the_filter_of_ns3_begins_at_zero() {
        let spec = Spec::named("westwood").with("ns3_filter", Value::Bool(true));
        let mut sender = RoundSender::new(build(&spec));
        sender.round(40_000);
        sender.round(40_000);
        // A tenth of half of the one sample: a twentieth of 20 segments, hence the least of 2.
        assert_eq!(sender.event(CongestionEvent::Loss), 2 * MSS);
    }
}
