//! The window of every algorithm, and a harness that feeds one by hand.

use alloc::boxed::Box;

use super::*;
use crate::cc::{Algorithm, CongestionControl, CongestionEvent, RttSample};
use crate::spec::Spec;

pub(crate) const MSS: u64 = 1000;

/// An algorithm with segments of [`MSS`] and a first window of ten, fed by hand.
pub(crate) struct Fed {
    pub(crate) cc: Box<dyn CongestionControl>,
    pub(crate) now: Timestamp,
    /// Time from one acknowledgement to the next.
    pub(crate) gap: Duration,
    pub(crate) rtt: Option<RttSample>,
}

impl Fed {
    /// With parameters as written in a plan: `cubic(beta=70%)`.
    pub(crate) fn new(algorithm: &'static Algorithm, params: &[(&str, &str)]) -> Self {
        let mut spec = Spec::named(algorithm.name);
        for (name, value) in params {
            spec = spec.with(name, crate::spec::Value::Text((*value).into()));
        }
        Self::with(algorithm.build(&spec).expect("valid parameters"))
    }

    /// The algorithm `name` as ns-3 has it, otherwise as above.
    pub(crate) fn as_ns3(name: &str, params: &[(&str, &str)]) -> Self {
        Self::with(crate::cc::algorithms::ns3::built(name, params))
    }

    fn with(mut cc: Box<dyn CongestionControl>) -> Self {
        let now = Timestamp::from_nanos(1_000_000_000);
        cc.init(now, ByteCount::new(MSS), ByteCount::new(10 * MSS));
        Self { cc, now, gap: Duration::ZERO, rtt: None }
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.cc.send_limits().cwnd.expect("a window").as_u64()
    }

    pub(crate) fn ssthresh(&self) -> Option<u64> {
        self.cc.send_limits().ssthresh.map(ByteCount::as_u64)
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        let numbers = self.cc.state().numbers;
        numbers.iter().find(|(found, _)| *found == name).expect("such a number").1
    }

    /// One measurement of `acked` bytes.
    pub(crate) fn measure(&mut self, acked: u64) {
        self.now += self.gap;
        let measurement = Measurement {
            interval: self.gap,
            acked: ByteCount::new(acked),
            rtt: self.rtt,
            ..Measurement::default()
        };
        self.cc.on_measurement(self.now, &measurement);
    }

    /// Acknowledges `segments` segments, each with a measurement of its own.
    pub(crate) fn ack(&mut self, segments: u64) {
        (0..segments).for_each(|_| self.measure(MSS));
    }

    /// Acknowledges `windows` windows, segment by segment.
    pub(crate) fn ack_windows(&mut self, windows: u64) {
        for _ in 0..windows {
            self.ack(self.cwnd() / MSS);
        }
    }

    pub(crate) fn event(&mut self, event: CongestionEvent) {
        self.cc.on_event(self.now, event);
    }

    /// A loss that is repaired at once.
    pub(crate) fn lose(&mut self) {
        self.event(CongestionEvent::Loss);
        self.event(CongestionEvent::RecoveryEnd);
    }
}

fn newreno(params: &[(&str, &str)]) -> Fed {
    Fed::new(&crate::cc::algorithms::newreno::ALGORITHM, params)
}

#[test]
fn slow_start_doubles_and_avoidance_adds_one_segment() {
    let mut fed = newreno(&[]);
    fed.ack_windows(2);
    assert_eq!(fed.cwnd(), 40 * MSS);
    fed.lose();
    assert_eq!((fed.cwnd(), fed.ssthresh()), (20 * MSS, Some(20 * MSS)));
    fed.ack_windows(10);
    // A window acknowledged segment by segment adds w ln(1 + 1/w) and not quite 1.
    assert!((29 * MSS..30 * MSS).contains(&fed.cwnd()), "{}", fed.cwnd());
}

#[test]
fn batch_grows_the_window_like_its_acknowledgements() {
    let (mut one, mut batch) = (newreno(&[]), newreno(&[]));
    for fed in [&mut one, &mut batch] {
        fed.ack(70);
        fed.lose();
    }
    one.ack(400);
    (0..10).for_each(|_| batch.measure(40 * MSS));
    assert!(one.cwnd().abs_diff(batch.cwnd()) < MSS / 20, "{} {}", one.cwnd(), batch.cwnd());
    // The bytes beyond ssthresh count for avoidance.
    let mut fed = newreno(&[]);
    fed.lose();
    fed.event(CongestionEvent::Rto);
    let ssthresh = fed.ssthresh().unwrap();
    fed.measure(ssthresh - MSS + ssthresh);
    assert!(fed.cwnd().abs_diff(ssthresh + MSS) < MSS / 5, "{}", fed.cwnd());
}

#[test]
fn recovery_neither_grows_nor_reduces_again() {
    let mut fed = newreno(&[]);
    fed.ack(30);
    fed.event(CongestionEvent::Loss);
    let limits = (fed.cwnd(), fed.ssthresh());
    fed.event(CongestionEvent::EcnCe);
    fed.ack(100);
    assert_eq!((fed.cwnd(), fed.ssthresh()), limits);
    fed.event(CongestionEvent::RecoveryEnd);
    fed.ack(1);
    assert!(fed.cwnd() > limits.0);
}

#[test]
fn marks_and_losses_reduce_once_per_window() {
    let mut fed = newreno(&[]);
    fed.ack(30);
    fed.event(CongestionEvent::EcnCe);
    assert_eq!(fed.cwnd(), 20 * MSS);
    fed.event(CongestionEvent::EcnCe);
    fed.ack(39);
    fed.event(CongestionEvent::EcnCe);
    assert_eq!(fed.cwnd(), 20 * MSS);
    fed.ack(1);
    let lost = Some(ByteCount::new(1));
    fed.cc.on_measurement(fed.now, &Measurement { lost, ..Measurement::default() });
    assert_eq!(fed.cwnd(), 10 * MSS);
}

#[test]
fn timeout_restarts_at_one_segment_and_keeps_ssthresh() {
    let mut fed = newreno(&[]);
    fed.ack(30);
    fed.event(CongestionEvent::Rto);
    fed.event(CongestionEvent::Rto);
    assert_eq!((fed.cwnd(), fed.ssthresh()), (MSS, Some(20 * MSS)));
    fed.ack(19);
    assert_eq!(fed.cwnd(), 20 * MSS);
    // One that follows a loss of the same episode does not halve twice.
    fed.event(CongestionEvent::RecoveryEnd);
    fed.event(CongestionEvent::Loss);
    fed.event(CongestionEvent::Rto);
    assert_eq!((fed.cwnd(), fed.ssthresh()), (MSS, Some(10 * MSS)));
}

#[test]
fn spurious_loss_or_timeout_restores_window_and_threshold() {
    for event in [CongestionEvent::Loss, CongestionEvent::Rto] {
        let mut fed = newreno(&[]);
        fed.ack(30);
        fed.event(event);
        fed.event(CongestionEvent::Spurious);
        assert_eq!((fed.cwnd(), fed.ssthresh()), (40 * MSS, None));
        fed.event(CongestionEvent::Spurious);
        assert_eq!(fed.cwnd(), 40 * MSS);
    }
}

#[test]
fn pause_halves_the_window_down_to_the_initial() {
    let mut fed = newreno(&[]);
    fed.ack(90);
    fed.lose();
    fed.event(CongestionEvent::IdleRestart(u32::MAX));
    assert_eq!((fed.cwnd(), fed.ssthresh()), (10 * MSS, Some(50 * MSS)));
    fed.ack(40);
    fed.ack_windows(30);
    let before = fed.cwnd();
    fed.event(CongestionEvent::IdleRestart(2));
    assert_eq!((fed.cwnd(), fed.ssthresh()), (before / 4, Some(before / 4 * 3)));
    fed.event(CongestionEvent::FeedbackLost);
    assert_eq!(fed.cwnd(), 10 * MSS);
}

#[test]
fn unused_window_falls_halfway_down_to_the_initial() {
    let mut fed = newreno(&[]);
    fed.ack(90);
    fed.event(CongestionEvent::Underused(ByteCount::new(20 * MSS)));
    assert_eq!((fed.cwnd(), fed.ssthresh()), (60 * MSS, None));
    fed.lose();
    fed.event(CongestionEvent::Underused(ByteCount::new(MSS)));
    assert_eq!((fed.cwnd(), fed.ssthresh()), (20 * MSS, Some(30 * MSS)));
    fed.event(CongestionEvent::Underused(ByteCount::new(40 * MSS)));
    assert_eq!(fed.cwnd(), 20 * MSS);
}

#[test]
fn sender_with_unfilled_window_does_not_grow() {
    let mut fed = newreno(&[]);
    let mut measurement = Measurement {
        acked: ByteCount::new(MSS),
        app_limited: true,
        in_flight: Some(ByteCount::new(2 * MSS)),
        ..Measurement::default()
    };
    fed.cc.on_measurement(fed.now, &measurement);
    assert_eq!(fed.cwnd(), 10 * MSS);
    measurement.in_flight = Some(ByteCount::new(5 * MSS));
    fed.cc.on_measurement(fed.now, &measurement);
    assert_eq!(fed.cwnd(), 11 * MSS);
}

#[test]
fn ns3_counts_acknowledgements_and_takes_ssthresh_from_inflight() {
    let mut fed = Fed::as_ns3("newreno", &[]);
    fed.measure(5 * MSS);
    assert_eq!(fed.cwnd(), 11 * MSS); // one acknowledgement, one segment
    let in_flight = Some(ByteCount::new(30 * MSS));
    fed.cc.on_measurement(fed.now, &Measurement { in_flight, ..Measurement::default() });
    fed.lose();
    assert_eq!(fed.cwnd(), 15 * MSS);
    fed.measure(2 * MSS);
    assert_eq!(fed.cwnd(), 15 * MSS + MSS / 15); // mss^2 / cwnd, rounded down
}
