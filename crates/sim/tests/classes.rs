//! Queues with classes: packets that the rules put first leave first.

use std::collections::BTreeMap;

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Request, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Timestamp};
use forebay_scenario::{Bundle, Link};
use forebay_sim::network::{Flow, Hop, Network, Opener, RoutedBundle, Traffic};
use forebay_sim::{Requests, Simulation, Stack};

/// Length of a run.
const STOP: Duration = Duration::from_secs(10);

fn mbit(mbit: u64) -> Rate {
    Rate::from_mbit_per_sec(mbit)
}

/// A strict priority queue with two bands. Each rule is a condition and the class of matching packets.
fn prio(rules: &[(&str, Value, i64)]) -> Spec {
    let fifo = || Value::Spec(Spec::named("fifo").with("limit", Value::Text("50p".into())));
    let rule = |(condition, value, class): &(&str, Value, i64)| {
        let table =
            [(condition.to_string(), value.clone()), ("class".into(), Value::Integer(*class))];
        Value::Table(BTreeMap::from(table))
    };
    Spec::named("prio")
        .with("bands", Value::List(vec![fifo(), fifo()]))
        .with("classes", Value::List(rules.iter().map(rule).collect()))
}

fn expedited_first() -> Spec {
    prio(&[("dscp", Value::Integer(46), 0)])
}

fn link(name: &str, rate: Rate, qdisc: Spec) -> Link {
    Link::at_rate(name, rate, Duration::from_millis(10), qdisc)
}

fn flow(traffic: Traffic, dscp: u8, data: &[Hop]) -> Flow {
    Flow {
        cc: Spec::named("newreno"),
        traffic,
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data: data.to_vec(),
        back: vec![Hop::Delay(Duration::from_millis(10))],
    }
}

/// Full frames at 8 Mbit/s.
fn cbr() -> Traffic {
    Traffic::Source(Source::Cbr { rate: mbit(8), packet: ByteCount::new(1514) })
}

fn network(links: Vec<Link>, flows: Vec<Flow>) -> Network {
    Network { flows, ..Network::of_links(STOP, 1, Stack::LINUX, links) }
}

/// Rate that each flow received (Mbit/s).
fn received(network: &Network) -> Vec<f64> {
    let mut simulation = Simulation::new(network).unwrap();
    simulation.run();
    let bytes = |flow| simulation.flow_metrics(flow).unwrap().received_bytes;
    let bytes: Vec<u64> = (0..network.flows.len()).map(bytes).collect();
    bytes.iter().map(|bytes| *bytes as f64 * 8e-6 / STOP.as_secs_f64()).collect()
}

fn assert_close(received: &[f64], expected: &[f64]) {
    let are_close = received.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.2);
    assert!(are_close, "{received:?} Mbit/s, not {expected:?}");
}

#[test]
fn first_class_gets_its_whole_demand() {
    let on_link = |qdisc| {
        let flows = [0, 46].map(|dscp| flow(cbr(), dscp, &[Hop::Link(0)]));
        received(&network(vec![link("a", mbit(10), qdisc)], flows.into()))
    };
    assert_close(&on_link(expedited_first()), &[2.0, 8.0]);
    // Both flows are in the default band, where the first of two packets at the same instant finds
    // room.
    assert_close(&on_link(prio(&[("dscp", Value::Integer(10), 0)])), &[8.0, 2.0]);

    let fifo = Spec::named("fifo").with("limit", Value::Text("50p".into()));
    let flows = [0, 46].map(|dscp| flow(cbr(), dscp, &[Hop::Bundle(0)]));
    let mut site = network(vec![link("a", mbit(100), fifo)], flows.into());
    let cc = Spec::named("const").with("rate", Value::Text("10Mbit/s".into()));
    let (path, back) = (vec![Hop::Link(0)], vec![Hop::Delay(Duration::from_millis(10))]);
    site.bundles = vec![RoutedBundle::new(Bundle::new("b", cc, expedited_first()), path, back)];
    assert_close(&received(&site), &[2.0, 8.0]);
}

#[test]
fn packets_without_rules_use_the_last_class() {
    let first = Spec::named("shaper").with("rate", Value::Text("1Mbit/s".into()));
    let bands = vec![Value::Spec(first), Value::Text("fifo".into())];
    let qdisc = Spec::named("prio").with("bands", Value::List(bands));
    let flows = vec![flow(cbr(), 46, &[Hop::Link(0)])];
    assert_close(&received(&network(vec![link("a", mbit(10), qdisc)], flows)), &[8.0]);
}

#[test]
fn queues_along_the_path_have_own_rules() {
    let route = [Hop::Link(0), Hop::Link(1)];
    let flows = [0, 46].map(|dscp| flow(cbr(), dscp, &route));
    let last_first =
        prio(&[("dscp", Value::Integer(46), 1), ("protocol", Value::Text("udp".into()), 0)]);
    let links = vec![link("a", mbit(14), expedited_first()), link("b", mbit(10), last_first)];
    // 8 and 6 Mbit/s reach the second queue, which serves the 6 first.
    assert_close(&received(&network(links, flows.into())), &[6.0, 4.0]);
}

#[test]
fn short_connections_use_class_of_their_flow() {
    let slowest = |dscp| {
        let greedy = Traffic::Source(Source::Greedy { bytes: None });
        let flows = [
            flow(Traffic::Messages(Opener::Receiver), dscp, &[Hop::Link(0)]),
            flow(greedy, 0, &[Hop::Link(0)]),
        ];
        let network = network(vec![link("a", mbit(10), expedited_first())], flows.into());
        let mut simulation = Simulation::new(&network).unwrap();
        let request = |number: u64| Request {
            at: Duration::from_secs(2) + Duration::from_millis(50 * number),
            size: ByteCount::new(10_000),
            connection: 0,
        };
        let mut requests = Requests::default();
        requests.add_messages(Duration::ZERO, (0..100).map(request).collect(), 0);
        requests.run_until(&mut simulation, Timestamp::MAX);
        assert_eq!(requests.unfinished(), 0);
        let took = requests.outcomes(0).iter();
        let took = took.map(|it| it.finished.unwrap().saturating_since(it.sent.unwrap()));
        took.max().unwrap()
    };
    // Two round trips of 20 ms, 8 ms of data, and at most a frame of the other flow before each packet.
    let (first, last) = (slowest(46), slowest(0));
    assert!(first < Duration::from_millis(60), "{first:?}");
    assert!(last > Duration::from_millis(100), "{last:?}");
}

#[test]
fn rule_on_missing_packet_field_is_refused() {
    let rules = prio(&[("port", Value::Integer(443), 0)]);
    let network = network(vec![link("a", mbit(10), rules)], Vec::new());
    let error = Simulation::new(&network).err().unwrap().to_string();
    assert_eq!(
        error,
        "a.qdisc.classes[0].port = 443: allowed is dscp and protocol: packets here have neither \
         addresses nor ports"
    );
}
