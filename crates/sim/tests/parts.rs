//! A network that is cut into parts: the same packets at the same times as in one piece.

use std::sync::Arc;

use forebay_core::cc::Registry;
use forebay_core::spec::Spec;
use forebay_core::traffic::Connections;
use forebay_core::units::{Duration, Rate, Timestamp};
use forebay_scenario::{Bundle, Flow, Link, RequestLoad, Scenario, Topology, Traffic, fixed_size};
use forebay_sim::{Part, Parts, Setup, Simulation};

/// Sites at routers with links of `delay` and more, half of them with boxes.
fn sites(seed: u64, delay: Duration) -> Setup {
    let qdisc = Spec::named("fifo");
    let like = Link::at_rate("forward", Rate::from_mbit_per_sec(5), delay * 2, qdisc);
    let stop = Duration::from_secs(4);
    let traffic = Traffic::Requests(RequestLoad {
        sizes: fixed_size("30KB".parse().unwrap()).unwrap(),
        load: Rate::from_mbit_per_sec(20),
        connections: Connections::Persistent(40),
        iid: true,
    });
    let flow = Flow { pair: "a".into(), ..Flow::new("web", Spec::named("cubic"), stop, traffic) };
    let bundle = Bundle::new("site", Spec::named("copa"), Spec::named("sfq"));
    let topology = Topology {
        sites: 12,
        routers: 5,
        peers: 2,
        utilization: 0.8,
        deployment: 0.5,
        bundle: Some(Bundle { pair: "a".into(), ..bundle }),
        ..Topology::default()
    };
    let scenario = Scenario::new(like.clone(), Link { name: "reverse".into(), ..like }, stop);
    let drain = Duration::from_secs(10);
    let scenario = Scenario { topology: Some(topology), flows: vec![flow], drain, ..scenario };
    Setup::of(&scenario.with_seed(seed), &Registry::BUILTIN).unwrap()
}

/// Runs the parts in windows of `window`, in the order that `turn` gives them.
fn run(setup: &Setup, parts: Parts, window: Duration, turn: usize) -> Part {
    let parts = Arc::new(parts);
    let part =
        |here| Part::new(&setup.network, Registry::BUILTIN, &setup.requests, &parts, here).unwrap();
    let mut all: Vec<Part> = (0..parts.count).map(part).collect();
    let (mut now, end) = (Timestamp::ZERO, Timestamp::ZERO + setup.network.stop);
    while now < end {
        now = (now + window).min(end);
        (0..all.len()).for_each(|place| all[(place + turn) % parts.count].run_until(now));
        Part::exchange(&mut all.iter_mut().collect::<Vec<_>>());
    }
    Part::join(all)
}

/// All results of a run.
fn results(mut of: Part, setup: &Setup) -> String {
    let Part { simulation, requests, .. } = &mut of;
    let links: Vec<_> =
        (0..setup.network.links.len()).map(|link| simulation.link_metrics(link)).collect();
    let bundles = 0..setup.network.bundles.len();
    let bundles: Vec<_> = bundles.map(|it| simulation.bundle_metrics(it)).collect();
    let mut flows = Vec::new();
    for flow in 0..setup.network.flows.len() {
        flows.push((simulation.flow_metrics(flow), simulation.flow_bins(flow).to_vec()));
    }
    assert!(bundles.len() > 1 && requests.unfinished() == 0);
    let requests = [requests.outcomes(0), requests.outcomes(1)];
    format!("{links:?} {bundles:?} {flows:?} {requests:?} {}", simulation.packets())
}

#[test]
fn cut_changes_no_result() {
    for seed in 1..=4 {
        let mut setup = sites(seed, Duration::from_millis(5));
        let parts = setup.parts.take().unwrap();
        assert!(parts.count > 2 && parts.delay >= Duration::from_millis(5), "{parts:?}");
        let mut simulation = Simulation::new(&setup.network).unwrap();
        let mut requests = setup.requests;
        setup.requests = sites(seed, Duration::from_millis(5)).requests;
        requests.run_until(&mut simulation, Timestamp::MAX);
        let whole = results(Part::whole(simulation, requests), &setup);
        for (window, turn) in [(parts.delay, 0), (parts.delay, 1), (Duration::from_millis(1), 2)] {
            let cut = results(run(&setup, parts.clone(), window, turn), &setup);
            assert!(cut == whole, "seed {seed}, window {window:?}:\n{cut}\n{whole}");
        }
    }
}

#[test]
fn network_of_short_links_is_not_cut() {
    assert_eq!(sites(1, Duration::from_micros(300)).parts, None);
}
