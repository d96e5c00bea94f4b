//! A bundle over several paths: where they take different times it is not shaped, and nothing else is taken
//! for that.

use forebay_core::link;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio, Timestamp};
use forebay_sim::network::{Bundle, Flow, Hop, Link, Network, Traffic};
use forebay_sim::{BundleMetrics, Simulation, Stack};

const FLOWS: usize = 20;
const MS: Duration = Duration::from_millis(1);

fn at(secs: f64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs_f64(secs)
}

fn queue(kind: &str, packets: usize) -> Spec {
    Spec::named(kind).with("limit", Value::Text(format!("{packets}p")))
}

/// Twenty Cubic flows in a bundle, or in none, over 48 Mbit/s, 50 ms and 600 packets that are shared by links
/// side by side, each longer one way than 25 ms by one of `spread`.
fn network(spread: &[Duration], part: fn(Vec<Vec<Hop>>) -> Hop, is_bundled: bool) -> Network {
    let count = spread.len();
    let mut links: Vec<Link> = (spread.iter().enumerate())
        .map(|(number, delay)| {
            let rate = Rate::from_bits_per_sec(48_000_000 / count as u64);
            let config = link::Config::at_rate(rate, 25 * MS + *delay);
            Link::new(&format!("path {number}"), config, queue("fifo", 600 / count))
        })
        .collect();
    let forward = part((0..count).map(|number| vec![Hop::Link(number)]).collect());
    links.push(Link::delay("back", 25 * MS));
    let back = vec![Hop::Link(count)];
    let flows = (0..FLOWS).map(|number| Flow {
        cc: Spec::named("cubic"),
        traffic: Traffic::Source(Source::Greedy { bytes: None }),
        start: 10 * MS * number as u32,
        opened: None,
        stop: None,
        data: vec![if is_bundled { Hop::Bundle(0) } else { forward.clone() }],
        back: back.clone(),
    });
    let flows = flows.collect();
    let path = vec![forward];
    let mut bundle =
        Bundle::new("bundle", Spec::named("copa"), queue("sfq", 600), path, back.clone());
    bundle.log = true;
    Network {
        stop: Duration::from_secs(60),
        seed: 1,
        stack: Stack::LINUX,
        links,
        flows,
        bundles: if is_bundled { vec![bundle] } else { Vec::new() },
    }
}

/// Bytes that the flows have received by `until`.
fn received(simulation: &mut Simulation, until: f64) -> u64 {
    simulation.run_until(at(until));
    (0..FLOWS).map(|flow| simulation.flow_metrics(flow).unwrap().received_bytes).sum()
}

/// Whether a rate was in force at `secs`, and the state.
fn state(simulation: &mut Simulation, secs: f64) -> (bool, &'static str) {
    simulation.run_until(at(secs));
    let decisions = simulation.bundle_log(0).unwrap().decisions();
    let (_, decision) = decisions.iter().rfind(|(when, _)| *when <= at(secs)).unwrap();
    (decision.rate.is_some(), decision.state)
}

fn late_share(metrics: &BundleMetrics) -> f64 {
    let all = metrics.boundaries_in_order + metrics.boundaries_late;
    metrics.boundaries_late as f64 / all as f64
}

#[test]
fn a_bundle_over_paths_of_different_times_is_unshaped_and_carries_what_it_carries_without_boxes() {
    for part in [Hop::Hashed, Hop::Spread] {
        let spread = [Duration::ZERO, 30 * MS];
        let [mut bundled, mut plain] =
            [true, false].map(|is| Simulation::new(network(&spread, part, is)).unwrap());
        assert_eq!(state(&mut bundled, 5.0), (false, "imbalanced"));
        let [with, without] = [&mut bundled, &mut plain].map(|it| received(it, 20.0));
        assert!(with as f64 > 0.97 * without as f64, "{with} of {without}");
        let share = late_share(&bundled.bundle_metrics(0));
        assert!(share > 0.1, "{share}");
    }
}

#[test]
fn a_path_that_reorders_one_packet_in_a_hundred_is_one_path() {
    let mut network = network(&[Duration::ZERO], Hop::Hashed, true);
    // Three packets take 3 ms.
    network.links[0].config.service = link::Service::Rate(Rate::from_mbit_per_sec(12));
    network.links[0].config.reorder = Ratio::new(0.01).unwrap();
    network.links[0].config.reorder_packets = 3;
    let mut simulation = Simulation::new(network).unwrap();
    for second in 3..20 {
        let (is_shaped, state) = state(&mut simulation, f64::from(second));
        assert!(is_shaped, "{state} at {second} s");
    }
    let share = late_share(&simulation.bundle_metrics(0));
    assert!(share > 0.0 && share < 0.01, "{share}");
}

#[test]
fn a_bundle_is_shaped_again_once_its_paths_take_the_same_time() {
    let mut network = network(&[Duration::ZERO, 30 * MS], Hop::Spread, true);
    let change = link::Change {
        at: Duration::from_secs(10),
        delay: Some(25 * MS),
        ..link::Change::default()
    };
    network.links[1].config.changes.push(change);
    let mut simulation = Simulation::new(network).unwrap();
    assert_eq!(state(&mut simulation, 10.0), (false, "imbalanced"));
    for second in 25..40 {
        let (is_shaped, state) = state(&mut simulation, f64::from(second));
        assert!(is_shaped, "{state} at {second} s");
    }
}
