//! A bundle over several paths. If their delays differ, it is not shaped; nothing else must look like several
//! paths.

use forebay_core::link::Service;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_scenario::{self as scenario, Link};
use forebay_sim::network::{Flow, Hop, Network, RoutedBundle};
use forebay_sim::{BundleMetrics, Simulation};

use crate::site::*;

/// Flows of the bundle: enough that hashing uses both paths.
const FLOWS: usize = 20;

/// Twenty Cubic flows in a bundle, or in none, over parallel links that share 48 Mbit/s and 600 packets. The
/// round trip is 50 ms, plus each link's entry of `spread` on the way out.
fn network(spread: &[Duration], part: fn(Vec<Vec<Hop>>) -> Hop, is_bundled: bool) -> Network {
    let count = spread.len();
    let mut links: Vec<Link> = (spread.iter().enumerate())
        .map(|(number, delay)| {
            let rate = Rate::from_bits_per_sec(48_000_000 / count as u64);
            let qdisc = queue("fifo", &format!("{}p", 600 / count));
            Link::at_rate(&format!("path {number}"), rate, 25 * MS + *delay, qdisc)
        })
        .collect();
    let forward = part((0..count).map(|number| vec![Hop::Link(number)]).collect());
    links.push(Link::delay("back", 25 * MS));
    let back = vec![Hop::Link(count)];
    let hop = if is_bundled { Hop::Bundle(0) } else { forward.clone() };
    let flows = (0..FLOWS as u32).map(|number| Flow {
        start: 10 * MS * number,
        back: back.clone(),
        ..flow("cubic", GREEDY, hop.clone())
    });
    let bundle = RoutedBundle {
        path: vec![forward],
        back: back.clone(),
        ..bundle("bundle", "copa", queue("sfq", "600p"))
    };
    Network {
        stop: seconds(60.0),
        links,
        flows: flows.collect(),
        bundles: if is_bundled { vec![bundle] } else { Vec::new() },
        ..path(mbit(48), 50 * MS, "600p")
    }
}

/// Whether a rate was in force at `secs`, and the state then.
fn state(simulation: &mut Simulation, secs: f64) -> (bool, &'static str) {
    simulation.run_until(at(secs));
    let decisions = simulation.bundle_log(0).unwrap().decisions();
    let (_, decision) = decisions.iter().rfind(|(when, _)| *when <= at(secs)).unwrap();
    (decision.rate.is_some(), decision.state)
}

fn late_share(metrics: &BundleMetrics) -> f64 {
    let all = metrics.counters.boundaries_in_order + metrics.counters.boundaries_late;
    metrics.counters.boundaries_late as f64 / all as f64
}

#[test]
fn unequal_paths_unshape_bundle_without_goodput_loss() {
    for part in [Hop::Hashed, Hop::Spread] {
        let spread = [Duration::ZERO, 30 * MS];
        let [mut bundled, mut plain] =
            [true, false].map(|is| Simulation::new(network(&spread, part, is)).unwrap());
        assert_eq!(state(&mut bundled, 5.0), (false, "imbalanced"));
        let [with, without] = [&mut bundled, &mut plain].map(|it| received(it, FLOWS, 20.0));
        assert!(with as f64 > 0.97 * without as f64, "{with} of {without}");
        let share = late_share(&bundled.bundle_metrics(0));
        assert!(share > 0.1, "{share}");
    }
}

#[test]
fn reordering_of_one_percent_is_one_path() {
    let mut network = network(&[Duration::ZERO], Hop::Hashed, true);
    // Three packets take 3 ms.
    network.links[0].service = Service::Rate(mbit(12));
    network.links[0].reorder = Ratio::new(0.01).unwrap();
    network.links[0].reorder_packets = 3;
    let mut simulation = Simulation::new(network).unwrap();
    for second in 3..20 {
        let (is_shaped, state) = state(&mut simulation, f64::from(second));
        assert!(is_shaped, "{state} at {second} s");
    }
    let share = late_share(&simulation.bundle_metrics(0));
    assert!(share > 0.0 && share < 0.01, "{share}");
}

#[test]
fn bundle_is_shaped_again_on_equal_paths() {
    let mut network = network(&[Duration::ZERO, 30 * MS], Hop::Spread, true);
    let change = scenario::Change {
        at: Duration::from_secs(10),
        delay: Some(25 * MS),
        ..scenario::Change::default()
    };
    network.links[1].changes.push(change);
    let mut simulation = Simulation::new(network).unwrap();
    assert_eq!(state(&mut simulation, 10.0), (false, "imbalanced"));
    for second in 25..40 {
        let (is_shaped, state) = state(&mut simulation, f64::from(second));
        assert!(is_shaped, "{state} at {second} s");
    }
}

#[test]
fn fair_queue_is_named_where_packets_overtake() {
    for qdisc in ["fq_codel", "sfq", "drr"] {
        let mut network = network(&[Duration::ZERO], Hop::Hashed, true);
        network.links[0].qdisc = queue(qdisc, "600p");
        network.bundles[0].of.supervised = true;
        let mut simulation = Simulation::new(network).unwrap();
        simulation.run_until(at(10.0));
        let (_, last) = simulation.bundle_log(0).unwrap().decisions().last().unwrap();
        assert_eq!(last.state, "imbalanced", "{qdisc}");
        assert!(last.reason.contains("or a fair queue"), "{qdisc}: {}", last.reason);
    }
}
