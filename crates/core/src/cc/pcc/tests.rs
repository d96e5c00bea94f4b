//! Rate control on one bottleneck.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::*;
use crate::cc::algorithms::{proteus_p, proteus_s, vivace};
use crate::cc::flow::Flow;
use crate::spec::Spec;
use crate::units::Duration;

const ALL: [&super::super::Algorithm; 3] =
    [&vivace::ALGORITHM, &proteus_p::ALGORITHM, &proteus_s::ALGORITHM];

fn flow(algorithm: &super::super::Algorithm) -> Flow {
    let cc = algorithm.build(&Spec::named(algorithm.name));
    Flow::new(cc, Rate::from_mbit_per_sec(24), Duration::from_millis(40))
}

#[test]
fn fills_path_without_standing_queue() {
    for algorithm in ALL {
        let mut flow = flow(algorithm);
        flow.run(20, |_| {});
        let before = flow.delivered.0;
        let (mut sum, mut count) = (0.0, 0.0);
        flow.run(60, |flow| {
            sum += flow.in_flight().as_f64();
            count += 1.0;
        });
        let share = (flow.delivered.0 - before).as_f64() * 8.0 / 40.0 / 24e6;
        let filled = sum / count / (24e6 / 8.0 * 0.04);
        assert!(share > 0.9, "{}: {share}", algorithm.name);
        assert!(filled < 1.2, "{}: {filled} of the capacity of the path", algorithm.name);
    }
}

#[test]
fn starts_by_doubling_and_then_probes() {
    for algorithm in ALL {
        let mut flow = flow(algorithm);
        flow.run(5, |_| {});
        let names = flow.names();
        assert_eq!(names[..3], ["starting", "probing", "moving"], "{}", algorithm.name);
        let (_, probing) = flow.phases[1];
        assert!(probing < Timestamp::ZERO + Duration::from_secs(1), "{}", algorithm.name);
    }
}

#[test]
fn timeout_halves_rate_and_starts_again() {
    let mut flow = flow(&vivace::ALGORITHM);
    flow.run(10, |_| {});
    let rate = |cc: &dyn CongestionControl| cc.state().numbers[0].1;
    let before = rate(&*flow.cc);
    flow.cc.on_event(flow.now, CongestionEvent::Rto);
    assert_eq!(flow.cc.state().phase, "starting");
    assert!((rate(&*flow.cc) - before / 2.0).abs() < 1e-6);
}

/// Utility of any rate is the same, so that no pair of a probe rises.
struct Flat;

impl Goal for Flat {
    const PAIRS: usize = 2;
    const RISING: usize = 2;
    const FALLING: usize = 2;
    fn utility(&mut self, _outcome: &Outcome) -> f64 {
        0.0
    }
}

#[test]
fn least_rate_is_two_segments_a_round_trip() {
    let cc: Box<dyn CongestionControl> = RateControl::boxed(Flat);
    let mut flow = Flow::new(Ok(cc), Rate::from_mbit_per_sec(24), Duration::from_millis(40));
    let mut rates = Vec::new();
    flow.run(60, |flow| rates.push(flow.cc.send_limits().pacing_rate.unwrap_or(Rate::MAX)));
    let least = rates.iter().min().unwrap().as_bits_per_sec() as f64;
    let wanted = 2.0 * 1500.0 * 8.0 / 0.04;
    assert!((0.9 * wanted..1.0 * wanted + 1.0).contains(&least), "{least}");
}
