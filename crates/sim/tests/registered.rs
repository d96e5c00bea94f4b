//! A congestion control from outside core, used by a flow and by a bundle.

use forebay_core::cc::{
    Algorithm, CongestionControl, CongestionEvent, Measurement, Registry, SendLimits, State,
};
use forebay_core::spec::Spec;
use forebay_core::traffic::{Receiving, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Timestamp};
use forebay_scenario::{Bundle, Link};
use forebay_sim::network::{Flow, Hop, Network, Opener, RoutedBundle, Traffic};
use forebay_sim::{Requests, Simulation, Stack};

/// A millisecond.
const MS: Duration = Duration::from_millis(1);
/// A flow that always has data.
const GREEDY: Traffic = Traffic::Source(Source::Greedy { bytes: None });

/// Always sends at a quarter of the link's rate.
struct Quarter;

impl CongestionControl for Quarter {
    fn init(&mut self, _now: Timestamp, _mss: ByteCount, _initial_cwnd: ByteCount) {}
    fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {}
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        SendLimits { pacing_rate: Some(Rate::from_mbit_per_sec(4)), ..SendLimits::default() }
    }
    fn state(&self) -> State {
        State { phase: "quarter", ..State::default() }
    }
}

fn algorithms() -> Registry {
    let mut algorithms = Registry::default();
    algorithms
        .register(Algorithm {
            name: "quarter",
            summary: "a quarter of 16 Mbit/s",
            sources: &[],
            params: &[],
            needs: &[],
            min_window_mss: 1.0,
            batch_tolerance: 0.0,
            build: &|_| Ok(Box::new(Quarter)),
        })
        .unwrap();
    algorithms
}

/// 10 s over 16 Mbit/s and 20 ms with one flow of `cc`, in a bundle with `law` if given.
fn network(cc: &str, traffic: Traffic, law: Option<&str>) -> Network {
    let out = Link::at_rate("out", Rate::from_mbit_per_sec(16), 10 * MS, Spec::named("fifo"));
    let links = vec![out, Link::delay("back", 10 * MS)];
    let (path, back) = (vec![Hop::Link(0)], vec![Hop::Link(1)]);
    let bundle = |law| {
        let of = Bundle::new("b", Spec::named(law), Spec::named("sfq"));
        let of = Bundle { supervised: false, ..of };
        RoutedBundle::new(of, path.clone(), back.clone())
    };
    let bundles: Vec<RoutedBundle> = law.map(bundle).into_iter().collect();
    let data = if bundles.is_empty() { path.clone() } else { vec![Hop::Bundle(0)] };
    let (cc, start) = (Spec::named(cc), Duration::ZERO);
    let flow = Flow {
        cc,
        traffic,
        start,
        opened: None,
        stop: None,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data,
        back: back.clone(),
    };
    let network = Network::of_links(Duration::from_secs(10), 1, Stack::LINUX, links);
    Network { bundles, flows: vec![flow], ..network }
}

/// Rate on the link (Mbit/s).
fn rate(network: Network) -> f64 {
    let mut simulation = Simulation::with_algorithms(network, algorithms()).unwrap();
    simulation.run();
    simulation.link_metrics(0).mean_sending_rate_l1
}

#[test]
fn a_registered_law_limits_a_flow() {
    let rate = rate(network("quarter", GREEDY, None));
    assert!((3.8..4.4).contains(&rate), "{rate}");
}

#[test]
fn a_registered_law_limits_a_bundle() {
    let rate = rate(network("cubic", GREEDY, Some("quarter")));
    assert!((3.5..4.4).contains(&rate), "{rate}");
}

#[test]
fn short_connections_have_own_registered_algorithm() {
    let network = network("quarter", Traffic::Messages(Opener::Sender), None);
    let stop = Timestamp::ZERO + network.stop;
    let mut simulation = Simulation::with_algorithms(network, algorithms()).unwrap();
    assert_eq!([0, 1].map(|_| simulation.open(0, 100_000)), [Some(0), Some(1)]);
    Requests::default().run_until(&mut simulation, stop);
    assert_eq!(simulation.slots(0).map(|slots| (slots.opened, slots.live)), Some((2, 0)));
}

#[test]
fn a_law_that_is_not_registered_is_refused() {
    let error = Simulation::new(network("quarter", GREEDY, None)).err().unwrap();
    assert_eq!((error.key.as_str(), error.value.as_str()), ("kind", "quarter"));
}
