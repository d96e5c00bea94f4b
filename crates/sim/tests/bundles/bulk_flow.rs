//! One bulk flow alone in a bundle, as through any VPN: its wait and goodput compared with a run without
//! boxes.

use forebay_core::qdisc::bundle_default;
use forebay_core::spec::Spec;
use forebay_core::units::{Duration, Timestamp};
use forebay_sim::Simulation;
use forebay_sim::network::{Flow, Hop, Network};

use crate::site::*;

/// Start of the measurement (seconds); slow start is over then.
const WARM_UP: u64 = 6;
/// End of the run (seconds).
const STOP: u64 = 30;

/// A Cubic flow over a bottleneck with this buffer in time. The flow is in a bundle with this algorithm
/// and discipline, or in none.
fn network(mbit_per_s: u64, buffer: &str, bundled: Option<(&str, Spec)>) -> Network {
    let hop = if bundled.is_some() { Hop::Bundle(0) } else { Hop::Link(0) };
    let bundles = bundled.map(|(law, qdisc)| bundle("b", law, qdisc)).into_iter().collect();
    let start = Duration::from_millis(500);
    let flows = vec![Flow { start, ..flow("cubic", GREEDY, hop) }];
    let stop = Duration::from_secs(STOP);
    Network { stop, bundles, flows, ..path(mbit(mbit_per_s), 50 * MS, buffer) }
}

/// Mean time in the queues of sendbox and bottleneck in ms (Little's law), and Mbit/s received.
fn wait_and_goodput(network: &Network) -> (f64, f64) {
    let mut simulation = Simulation::new(network).unwrap();
    let mut sums = |secs: u64| {
        simulation.run_until(Timestamp::ZERO + Duration::from_secs(secs));
        let boxes = (0..network.bundles.len()).map(|index| simulation.bundle_metrics(index));
        let sendbox: f64 = boxes.map(|metrics| metrics.mean_queue_packets).sum();
        let link = simulation.link_metrics(0);
        let received = simulation.flow_metrics(0).unwrap().received_bytes;
        ((sendbox + link.mean_qdisc_length_l2) * secs as f64, link.packets as f64, received as f64)
    };
    let (before, after) = (sums(WARM_UP), sums(STOP));
    let wait_ms = (after.0 - before.0) / (after.1 - before.1) * 1e3;
    (wait_ms, (after.2 - before.2) * 8e-6 / (STOP - WARM_UP) as f64)
}

#[test]
fn lone_bulk_flow_waits_no_longer_with_boxes() {
    for mbit_per_sec in [2, 5, 20, 100, 500] {
        // The buffer of the plans, three bandwidth-delay products, and a single one. At 2 Mbit/s a single
        // one is 8 packets, and the algorithm alone keeps half as many at the bottleneck.
        let buffers = if mbit_per_sec > 2 { &["150ms", "50ms"][..] } else { &["150ms"] };
        for buffer in buffers {
            let (without_ms, most) = wait_and_goodput(&network(mbit_per_sec, buffer, None));
            for law in LAWS {
                let bundled = network(mbit_per_sec, buffer, Some((law, bundle_default())));
                let (wait_ms, goodput) = wait_and_goodput(&bundled);
                let seen = format!(
                    "{law} at {mbit_per_sec} Mbit/s and {buffer}: {wait_ms:.1} ms instead of \
                     {without_ms:.1}, {goodput:.2} Mbit/s instead of {most:.2}"
                );
                assert!(wait_ms <= without_ms && goodput >= 0.97 * most, "{seen}");
            }
        }
    }
}
