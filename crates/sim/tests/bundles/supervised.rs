//! Bundles whose limits must pay, as by default.

use forebay_core::bundle::decision::Decision;
use forebay_core::link::Service;
use forebay_core::qdisc::bundle_default;
use forebay_core::units::Duration;
use forebay_scenario as scenario;
use forebay_sim::Simulation;
use forebay_sim::network::{Flow, Hop, Network, Signal, Upset};

use crate::site::*;

/// Time by which limits hold (seconds): a queue stands for a second, and a trial takes two to four.
const LIMITED_S: f64 = 8.0;

/// `inside` Cubic flows over 96 Mbit/s, 50 ms and three bandwidth-delay products, in a bundle or in
/// none.
fn network(inside: usize, is_bundled: bool) -> Network {
    let mut network = loaded("copa", 96, 50, inside);
    network.bundles[0].of.supervised = true;
    network.bundles[0].of.qdisc = bundle_default();
    if !is_bundled {
        network.bundles.clear();
        network.flows.iter_mut().for_each(|flow| flow.data = vec![Hop::Link(0)]);
    }
    network
}

/// A flow that bypasses the bundle, from `start_s` to `stop_s`.
fn outside(start_s: f64, stop_s: f64) -> Flow {
    Flow {
        start: seconds(start_s),
        stop: Some(seconds(stop_s)),
        ..flow("cubic", GREEDY, Hop::Link(0))
    }
}

/// Seconds from `from_s` on in which the first bundle passes traffic without limits or tries them.
fn unlimited_s(network: &Network, from_s: f64) -> f64 {
    let trace = Trace::of(network);
    let states = trace.decisions(from_s, network.stop.as_secs_f64()).map(|it| it.state);
    let unlimited = ["passing", "trying", "no_peer", "no_reports", "unsteady"];
    states.filter(|state| unlimited.contains(state)).count() as f64 * 0.01
}

/// Goodput of the first `inside` flows with boxes, divided by their goodput without.
fn kept(change: impl Fn(&mut Network), inside: usize, from_s: f64, to_s: f64) -> f64 {
    let [with, without] = [true, false].map(|is_bundled| {
        let mut network = network(inside, is_bundled);
        change(&mut network);
        goodput(&mut Simulation::new(network).unwrap(), inside, from_s, to_s)
    });
    with / without
}

#[test]
fn lone_bundle_is_soon_limited_and_stays_so() {
    for flows in [1, 4, 20] {
        let network = network(flows, true);
        assert_eq!(unlimited_s(&network, LIMITED_S), 0.0, "{flows} flows");
        let trace = Trace::of(&network);
        full_and_short(&trace, 12.0, 40.0).unwrap_or_else(|seen| panic!("{flows} flows: {seen}"));
    }
}

#[test]
fn limits_come_back_next_to_a_constant_rate() {
    let mut network = network(20, true);
    network.flows.push(Flow { start: seconds(10.0), ..flow("const", cbr(mbit(32)), Hop::Link(0)) });
    network.stop = seconds(60.0);
    // The bundle's least rate fills the buffer before the sendbox knows the lower available rate, so
    // the limits end once.
    assert!(unlimited_s(&network, LIMITED_S) < 32.0);
    assert_eq!(unlimited_s(&network, 50.0), 0.0);
}

#[test]
fn cross_traffic_leaves_bundle_most_of_its_goodput() {
    // The fewer flows are inside, the longer they take to recover from limits that did not pay.
    for (inside, count, least) in [(4, 1, 0.6), (4, 4, 0.7), (20, 1, 0.85)] {
        let change = |network: &mut Network| {
            network.stop = seconds(60.0);
            network.flows.extend(vec![outside(5.0, 60.0); count]);
        };
        let kept = kept(change, inside, 25.0, 60.0);
        assert!(kept > least, "{inside} inside, {count} outside: {kept:.2}");
    }
}

#[test]
fn limits_come_back_after_the_flows_outside_left() {
    let mut network = network(20, true);
    network.stop = seconds(80.0);
    network.flows.extend(vec![outside(15.0, 40.0); 3]);
    let unlimited_s = unlimited_s(&network, 70.0);
    assert_eq!(unlimited_s, 0.0);
}

#[test]
fn a_link_that_sends_in_turns_costs_nothing() {
    for jitter_ms in [0, 6] {
        let change = |network: &mut Network| {
            let link = &mut network.links[0];
            (link.batch, link.jitter) =
                if jitter_ms == 0 { (10 * MS, link.jitter) } else { (link.batch, jitter_ms * MS) };
        };
        let kept = kept(change, 4, 10.0, 40.0);
        assert!(kept > 0.95, "jitter of {jitter_ms} ms: {kept:.2}");
    }
}

#[test]
fn a_slower_link_becomes_the_reference() {
    let mut network = network(4, true);
    network.stop = seconds(60.0);
    let change =
        scenario::Change { at: seconds(20.0), rate: Some(mbit(48)), ..scenario::Change::default() };
    network.links[0].changes = vec![change];
    let trace = Trace::of(&network);
    let part = trace.part(50.0, 60.0);
    assert!(part.used > 0.95 && part.queue < 60.0, "{part:?}");
}

#[test]
fn silence_ends_limits_for_some_seconds() {
    let mut network = network(4, true);
    network.stop = seconds(60.0);
    network.bundles[0].changes =
        vec![upset(15.0, Upset::Suspended(true)), upset(17.0, Upset::Suspended(false))];
    assert_eq!(unlimited_s(&network, 50.0), 0.0);
}

/// Four flows over 100 Mbit/s and a round trip of `rtt`, with a buffer of 33 ms.
fn near(rtt: Duration, stop_s: f64) -> Network {
    let mut network = with_buffer(network(4, true), 275);
    for (index, rate) in [(0, Some(mbit(100))), (1, None)] {
        let link = &mut network.links[index];
        link.delay = rtt / 2;
        link.service = rate.map_or(link.service.clone(), Service::Rate);
    }
    network.stop = seconds(stop_s);
    network
}

#[test]
fn a_restart_under_load_finds_the_base_soon() {
    let mut network = near(MS / 10, 25.0);
    let restart = |secs, signal| upset(secs, Upset::Sendbox(signal));
    network.bundles[0].changes = vec![restart(10.0, Signal::Kill), restart(12.0, Signal::Restart)];
    let trace = Trace::of(&network);
    assert!(trace.decisions(15.0, 25.0).all(|it| it.min_rtt.is_some_and(|rtt| rtt < MS)));
}

#[test]
fn a_short_round_trip_ends_no_limits() {
    for micros in [100, 400, 800] {
        let network = near(Duration::from_micros(micros), 180.0);
        assert_eq!(unlimited_s(&network, LIMITED_S), 0.0, "{micros} us");
    }
}

#[test]
fn longer_or_jittery_path_is_no_competitor() {
    // A fifth of the path's rate, constant, without other traffic: an apparent queue is an error.
    for (longer_ms, jitter_ms) in [(0, 20), (20, 0), (20, 5), (20, 20)] {
        let mut network = network(0, true);
        network.stop = seconds(100.0);
        network.flows = vec![flow("const", cbr(mbit(20)), Hop::Bundle(0))];
        let link = &mut network.links[0];
        link.jitter = jitter_ms * MS;
        let (at, delay) = (seconds(10.0), Some((25 + longer_ms) * MS));
        link.changes = vec![scenario::Change { at, delay, ..scenario::Change::default() }];
        let trace = Trace::of(&network);
        for decision in trace.decisions(0.0, 100.0) {
            let reason = decision.reason;
            assert!(!reason.contains("cross traffic"), "{longer_ms} ms, {jitter_ms} ms: {reason}");
        }
    }
}

/// Without `min_rate`, the least rate is a quarter of the path's rate.
#[test]
fn a_slow_uplink_is_filled_and_limited() {
    let mut network = loaded("copa", 1, 40, 3);
    network.bundles[0].of.supervised = true;
    network.bundles[0].of.qdisc = bundle_default();
    network.stop = seconds(90.0);
    let trace = Trace::of(&network);
    let part = trace.part(45.0, 90.0);
    assert!(part.used > 0.9, "{part:?}");
    let below = |it: &Decision| it.rate.is_some_and(|rate| rate < mbit(1).scale(1.2));
    assert!(trace.decisions(45.0, 90.0).any(below), "no rate below the former least of 1.2 Mbit/s");
}
