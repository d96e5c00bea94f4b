//! A bundle next to cross traffic: its limits end if they cost throughput, and only then.

use forebay_core::random::Streams;
use forebay_core::traffic::{RequestPlan, Sampling, Schedule, SizeCdf};
use forebay_core::units::Duration;
use forebay_scenario::{self as scenario, Link};
use forebay_sim::network::{Flow, Hop, Network, Opener, Traffic};
use forebay_sim::{Requests, Simulation};

use crate::site::*;

/// Flows of each bundle.
const INSIDE: usize = 20;
/// Time from which limits must be in force (seconds).
const LIMITED_S: f64 = 10.0;
/// Longest time without limits that cost no throughput (seconds): until the next drain, 10 to 30 s later.
const UNLIMITED_S: f64 = 35.0;

/// A flow over the bottleneck that bypasses the bundle.
fn outside(cc: &str, traffic: Traffic, start: f64, stop: f64) -> Flow {
    let (start, stop) = (seconds(start), Some(seconds(stop)));
    Flow { start, stop, ..flow(cc, traffic, Hop::Link(0)) }
}

/// A path of 96 Mbit/s and 50 ms with a buffer of 1200 packets. For each algorithm in `laws` it has a bundle of
/// twenty Cubic flows, and `others` bypass the bundles. If `laws` is empty, twenty flows have no bundle.
fn network(laws: &[&str], others: Vec<Flow>, stop: f64) -> Network {
    let bundles = laws.iter().enumerate().map(|(index, law)| {
        let mut bundle = bundle(&format!("bundle {index}"), law, queue("sfq", "1200p"));
        // The published Nimbus needs no supervisor: it switches modes by itself.
        bundle.of.supervised = *law != "nimbus";
        bundle
    });
    let inside = (0..INSIDE * laws.len().max(1)).map(|index| {
        let hop = if laws.is_empty() { Hop::Link(0) } else { Hop::Bundle(index / INSIDE) };
        Flow { start: seconds(0.5 + 0.01 * index as f64), ..flow("cubic", GREEDY, hop) }
    });
    Network {
        stop: seconds(stop),
        bundles: bundles.collect(),
        flows: inside.chain(others).collect(),
        ..path(mbit(96), 50 * MS, "1200p")
    }
}

/// Times after [`LIMITED_S`] when a bundle has no limits, tries them, or competes: start and end of each (seconds).
fn unlimited(simulation: &mut Simulation, bundle: usize) -> Vec<(f64, f64)> {
    let now_s = simulation.now().as_secs_f64();
    let mut spans: Vec<(f64, f64)> = Vec::new();
    let mut was = false;
    for (at, decision) in simulation.bundle_log(bundle).unwrap().decisions() {
        let is = ["passing", "trying", "competing"].contains(&decision.state);
        match spans.last_mut() {
            Some(last) if was && !is => last.1 = at.as_secs_f64(),
            _ if is && !was => spans.push((at.as_secs_f64(), now_s)),
            _ => {}
        }
        was = is;
    }
    let late = spans.into_iter().filter(|span| span.1 > LIMITED_S);
    late.map(|(from_s, to_s)| (from_s.max(LIMITED_S), to_s)).collect()
}

fn sum_s(spans: &[(f64, f64)]) -> f64 {
    spans.iter().map(|(from_s, to_s)| to_s - from_s).sum()
}

/// The path with a second bottleneck inside the site, at half of the path's rate and without delay.
fn with_bottleneck_in_a_site(laws: &[&str], is_before_the_sendbox: bool) -> Network {
    let mut plan = network(laws, Vec::new(), 40.0);
    plan.links.push(Link::at_rate("site", mbit(48), Duration::ZERO, queue("fifo", "600p")));
    for flow in &mut plan.flows {
        let at = if is_before_the_sendbox { 0 } else { flow.data.len() };
        flow.data.insert(at, Hop::Link(2));
    }
    plan
}

#[test]
fn a_bottleneck_inside_a_site_is_left_alone() {
    for is_before_the_sendbox in [true, false] {
        let without = with_bottleneck_in_a_site(&[], is_before_the_sendbox);
        let usual = goodput(&mut Simulation::new(without).unwrap(), INSIDE, 10.0, 40.0);
        for law in LAWS {
            let plan = with_bottleneck_in_a_site(&[law], is_before_the_sendbox);
            let mut simulation = Simulation::new(plan).unwrap();
            let with = goodput(&mut simulation, INSIDE, 10.0, 40.0);
            let what = format!("{law}, before the sendbox: {is_before_the_sendbox}");
            assert!(with > 0.98 * usual, "{what}: {with:.1} of {usual:.1} Mbit/s");
            let queue = simulation.bundle_metrics(0).mean_queue_packets;
            assert!(queue < 10.0, "{what}: {queue:.1} packets wait in the sendbox");
        }
    }
}

#[test]
fn twenty_flows_keep_their_share_beside_others() {
    for (cc, count, least) in [("cubic", 10, 0.8), ("cubic", 1, 0.8), ("newreno", 1, 0.7)] {
        let others = |_| outside(cc, GREEDY, 15.0, 55.0);
        let others: Vec<Flow> = (0..count).map(others).collect();
        let mut without = Simulation::new(network(&[], others.clone(), 55.0)).unwrap();
        let usual = goodput(&mut without, INSIDE, 30.0, 55.0);
        for law in LAWS {
            let mut with = Simulation::new(network(&[law], others.clone(), 55.0)).unwrap();
            let share = goodput(&mut with, INSIDE, 30.0, 55.0) / usual;
            let spans = unlimited(&mut with, 0);
            let seen = format!("{count} {cc}, {law}: {share:.2} of {usual:.1} Mbit/s, {spans:.1?}");
            assert!(share >= least, "{seen}");
        }
    }
}

#[test]
fn limits_that_always_hold_deliver_less() {
    let others: Vec<Flow> = (0..10).map(|_| outside("cubic", GREEDY, 15.0, 50.0)).collect();
    let run = |supervised: bool| {
        let mut plan = network(&["copa"], others.clone(), 50.0);
        plan.bundles[0].of.supervised = supervised;
        let mut simulation = Simulation::new(plan).unwrap();
        let goodput = goodput(&mut simulation, INSIDE, 25.0, 50.0);
        (unlimited(&mut simulation, 0), goodput)
    };
    let (spans, most) = run(true);
    assert!(!spans.is_empty());
    let (spans, least) = run(false);
    assert!(spans.is_empty() && least < 0.7 * most, "{least:.1} of {most:.1} Mbit/s, {spans:.1?}");
}

#[test]
fn twenty_flows_keep_their_share_of_shallow_buffers() {
    for (cc, count, least) in [("newreno", 1, 0.6), ("newreno", 3, 0.6), ("cubic", 3, 0.75)] {
        let others = |_| outside(cc, GREEDY, 15.0, 75.0);
        let others: Vec<Flow> = (0..count).map(others).collect();
        let [usual, with] = [&[][..], &["copa"]].map(|laws| {
            let mut plan = network(laws, others.clone(), 75.0);
            plan.links[0].qdisc = queue("fifo", "100p");
            goodput(&mut Simulation::new(plan).unwrap(), INSIDE, 35.0, 75.0)
        });
        assert!(with > least * usual, "{count} {cc}: {with:.1} of {usual:.1} Mbit/s");
    }
}

/// The published Nimbus as a baseline. In the first 15 s it always limits the delay.
#[test]
fn nimbus_competes_with_what_answers() {
    let others: Vec<Flow> = (0..10).map(|_| outside("cubic", GREEDY, 5.0, 60.0)).collect();
    let mut without = Simulation::new(network(&[], others.clone(), 60.0)).unwrap();
    let usual =
        [(10.0, 15.0), (30.0, 60.0)].map(|(from, to)| goodput(&mut without, INSIDE, from, to));
    let mut with = Simulation::new(network(&["nimbus"], others, 60.0)).unwrap();
    let holding = goodput(&mut with, INSIDE, 10.0, 15.0) / usual[0];
    let competes = goodput(&mut with, INSIDE, 30.0, 60.0) / usual[1];
    let spans = unlimited(&mut with, 0);
    let seen = format!("{holding:.2}, then {competes:.2} of {usual:.1?} Mbit/s, {spans:.1?}");
    let entered_s = spans.first().map_or(f64::INFINITY, |span| span.0);
    assert!((15.0..20.0).contains(&entered_s), "{seen}");
    assert!(competes > 0.7 && competes > 3.0 * holding, "{seen}");

    let cbr = cbr(mbit(32));
    let cases =
        [("alone", Vec::new(), 80.0), ("32 Mbit/s", vec![outside("cubic", cbr, 5.0, 60.0)], 50.0)];
    for (name, others, least) in cases {
        let mut simulation = Simulation::new(network(&["nimbus"], others, 60.0)).unwrap();
        let goodput = goodput(&mut simulation, INSIDE, 10.0, 60.0);
        let spans = unlimited(&mut simulation, 0);
        assert!(spans.is_empty() && goodput > least, "{name}: {goodput:.1} Mbit/s, {spans:.1?}");
    }
}

#[test]
fn limits_come_back_on_a_changed_path() {
    let stop = 90.0;
    let [mut halved, mut longer] = [(); 2].map(|()| network(&["copa"], Vec::new(), stop));
    let change = |secs: f64| scenario::Change { at: seconds(secs), ..scenario::Change::default() };
    halved.links[0].changes = vec![
        scenario::Change { rate: Some(mbit(48)), ..change(20.0) },
        scenario::Change { rate: Some(mbit(96)), ..change(50.0) },
    ];
    longer.links[0].changes = vec![
        scenario::Change { delay: Some(55 * MS), ..change(20.0) },
        scenario::Change { delay: Some(25 * MS), ..change(50.0) },
    ];
    let cases = [("half of the rate", halved), ("a longer path", longer)];
    for (name, network) in cases {
        let mut simulation = Simulation::new(&network).unwrap();
        simulation.run_until(at(stop));
        let spans = unlimited(&mut simulation, 0);
        assert!(sum_s(&spans) <= UNLIMITED_S, "{name}: {spans:.1?}");
        assert!(spans.last().is_none_or(|span| span.1 < stop - 5.0), "{name}: {spans:.1?}");
    }
}

#[test]
fn limits_come_back_next_to_requests() {
    let stop = 60.0;
    let plan = RequestPlan {
        sizes: SizeCdf::builtin("caida").unwrap(),
        load: mbit(60),
        connections: 1,
        warm_up: Duration::ZERO,
        duration: seconds(stop),
        sampling: Sampling::Stratified,
    };
    // Leave out answers of more than a megabyte, half of all bytes: they last for seconds and respond to congestion.
    let schedule = Schedule::draw(&plan, &Streams::new(1)).unwrap();
    let requests = schedule.requests().iter().filter(|it| it.size.as_u64() <= 1_000_000);
    let requests: Vec<_> = requests.copied().collect();
    let web = outside("cubic", Traffic::Messages(Opener::Receiver), 0.0, stop);
    let network = network(&["copa"], vec![Flow { stop: None, ..web }], stop);
    let mut simulation = Simulation::new(&network).unwrap();
    let mut driver = Requests::default();
    driver.add_messages(Duration::ZERO, requests, INSIDE);
    driver.run_until(&mut simulation, at(stop));
    let spans = unlimited(&mut simulation, 0);
    assert!(sum_s(&spans) <= UNLIMITED_S / 2.0, "{spans:.1?}");
    assert!(spans.last().is_none_or(|span| span.1 < stop - 5.0), "{spans:.1?}");
}
