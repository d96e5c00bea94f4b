//! Messages with a connection each, in reused slots.

use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Request, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::{self as scenario, Link};
use forebay_sim::network::{Flow, Hop, Network, Opener, Traffic};
use forebay_sim::{Requests, Simulation, Stack};

/// Round-trip time without queue.
const RTT: Duration = Duration::from_millis(40);
/// Rate of the bottleneck.
const RATE: Rate = Rate::from_mbit_per_sec(24);

/// Time of `bytes` at [`RATE`] (ns).
fn service_ns(bytes: u64) -> u64 {
    bytes * 8 * 1000 / 24
}

fn link(name: &str, loss: f64) -> Link {
    let qdisc = Spec::named("fifo").with("limit", Value::Text("100p".into()));
    let loss = Ratio::new(loss).unwrap();
    Link { loss, ..Link::at_rate(name, RATE, RTT / 2, qdisc) }
}

fn network(stack: Stack, opener: Opener, loss: f64) -> Network {
    let flow = Flow {
        cc: Spec::named("cubic"),
        traffic: Traffic::Messages(opener),
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data: vec![Hop::Link(0)],
        back: vec![Hop::Link(1)],
    };
    let links = vec![link("there", loss), link("back", loss)];
    let network = Network::of_links(Duration::from_secs(600), 1, stack, links);
    Network { flows: vec![flow], ..network }
}

/// Messages of 1 byte to 100 kB, 10 ms apart on average.
fn schedule(count: u64) -> Vec<Request> {
    let mut stream = Streams::new(3).stream("schedule");
    let request = |number: u64| {
        let octave = stream.below(17);
        Request {
            at: Duration::from_micros(10_000 * number + stream.below(10_000)),
            size: ByteCount::new(1 + stream.below(1 << octave)),
            connection: 0,
        }
    };
    (0..count).map(request).collect()
}

fn run(network: Network, schedule: &[Request]) -> (Simulation, Requests) {
    let mut simulation = Simulation::new(network).unwrap();
    let mut requests = Requests::default();
    requests.add_messages(Duration::ZERO, schedule.to_vec(), 0);
    requests.run_until(&mut simulation, Timestamp::MAX);
    (simulation, requests)
}

/// Each stack, with each end that may open connections.
const WAYS: [(Stack, Opener); 4] = [
    (Stack::NS3, Opener::Sender),
    (Stack::NS3, Opener::Receiver),
    (Stack::LINUX, Opener::Sender),
    (Stack::LINUX, Opener::Receiver),
];

/// In debug builds, every event checks that no packet is missing.
#[test]
fn messages_survive_loss_and_slots_return() {
    let schedule = schedule(2000);
    let bytes: u64 = schedule.iter().map(|request| request.size.as_u64()).sum();
    for (stack, opener) in WAYS {
        for loss in [0.0, 0.05] {
            let (mut simulation, requests) = run(network(stack, opener, loss), &schedule);
            let metrics = simulation.flow_metrics(0).unwrap();
            assert_eq!((requests.unfinished(), metrics.received_bytes), (0, bytes));
            let in_bins: u64 = simulation.flow_bins(0).iter().map(|bin| u64::from(bin.bytes)).sum();
            assert_eq!(in_bins, bytes);
            assert_eq!(metrics.total_retransmissions_l4 > 100, loss > 0.0, "{metrics:?}");
            let slots = simulation.slots(0).unwrap();
            assert_eq!((slots.live, slots.opened), (0, 2000), "{stack:?} {opener:?}");
            // Without losses a connection lives for less than a second, and 100 start per second.
            assert!(slots.all < if loss > 0.0 { 600 } else { 100 }, "{slots:?}");
            for (request, outcome) in schedule.iter().zip(requests.outcomes(0)) {
                assert_eq!(outcome.sent, Some(Timestamp::ZERO + request.at));
                assert!(outcome.finished.is_some());
            }
        }
    }
}

#[test]
fn connection_costs_handshake_data_and_close() {
    // 66 bytes of headers per packet; two segments, with 1448 and 552 bytes; a request of 16 bytes.
    let rtt_ns = RTT.as_nanos() as u64;
    let data_ns = service_ns(1514) + service_ns(618);
    let by_sender = rtt_ns + 2 * service_ns(66) + rtt_ns / 2 + service_ns(66) + data_ns;
    let by_receiver = 2 * (rtt_ns + service_ns(66)) + service_ns(66) + service_ns(82) + data_ns;
    let request = Request { at: Duration::ZERO, size: ByteCount::new(2000), connection: 0 };
    for (opener, read_ns, packets) in [
        // SYN, SYN ACK, ACK, two segments with an ACK each, FIN, ACK.
        (Opener::Sender, by_sender, 9),
        // As above, plus the request.
        (Opener::Receiver, by_receiver, 10),
    ] {
        let (simulation, requests) = run(network(Stack::LINUX, opener, 0.0), &[request]);
        let finished = requests.outcomes(0)[0].finished.unwrap().as_nanos();
        assert!(finished.abs_diff(read_ns) <= 10, "{opener:?}: {finished} {read_ns}");
        assert_eq!(simulation.packets(), packets, "{opener:?}");
    }
}

#[test]
fn connection_cost_is_independent_of_earlier_ones() {
    let every = |number: u32| Request {
        at: Duration::from_millis(7) * number,
        size: ByteCount::new(5000),
        connection: 0,
    };
    let schedule: Vec<Request> = (0..20_000).map(every).collect();
    let mut simulation = Simulation::new(network(Stack::NS3, Opener::Receiver, 0.0)).unwrap();
    let mut requests = Requests::default();
    requests.add_messages(Duration::ZERO, schedule, 0);
    let mut events = |until_s| {
        let before = simulation.events();
        requests.run_until(&mut simulation, Timestamp::ZERO + Duration::from_secs(until_s));
        (simulation.events() - before, simulation.slots(0).unwrap().all)
    };
    events(10);
    let (early, late) = (events(20), [events(120), events(130)][1]);
    assert!(early.0.abs_diff(late.0) * 1000 < early.0, "{early:?} {late:?}");
    assert_eq!(early.1, late.1);
}

#[test]
fn late_packets_never_reach_a_reused_slot() {
    // For 100 ms packets take 1.5 s. After a second they are repaired, and other connections have
    // their slots when they arrive. The packets that they overtook would be read twice.
    let mut network = network(Stack::NS3, Opener::Sender, 0.0);
    let change = |ms, delay_ms| scenario::Change {
        at: Duration::from_millis(ms),
        delay: Some(Duration::from_millis(delay_ms)),
        ..scenario::Change::default()
    };
    network.links[0].changes = vec![change(4000, 1500), change(4100, 20)];
    let schedule = schedule(1500);
    let bytes: u64 = schedule.iter().map(|request| request.size.as_u64()).sum();
    let (mut simulation, requests) = run(network, &schedule);
    assert_eq!(requests.unfinished(), 0);
    assert_eq!(simulation.flow_metrics(0).unwrap().received_bytes, bytes);
    let slots = simulation.slots(0).unwrap();
    assert!(slots.live == 0 && slots.all < 200, "{slots:?}");
}

#[test]
fn equal_runs_have_equal_events() {
    let schedule = schedule(500);
    let hash = |opener| run(network(Stack::NS3, opener, 0.02), &schedule).0.event_hash();
    assert_eq!(hash(Opener::Sender), hash(Opener::Sender));
    // The hashes are the same in debug and release builds and on every machine.
    let known = [391_101_465_723_005_427, 9_761_704_559_291_289_215];
    assert_eq!([hash(Opener::Sender), hash(Opener::Receiver)], known);
}

#[test]
fn long_flows_and_messages_share_a_link() {
    let mut network = network(Stack::NS3, Opener::Receiver, 0.0);
    network.flows.push(Flow {
        traffic: Traffic::Source(Source::Greedy { bytes: None }),
        ..network.flows[0].clone()
    });
    network.stop = Duration::from_secs(20);
    let (mut simulation, requests) = run(network, &schedule(1000));
    assert_eq!(requests.unfinished(), 0);
    let long = simulation.flow_metrics(1).unwrap();
    assert!(long.received_bytes > 20_000_000 && long.mean_cwnd_l4 > 10.0, "{long:?}");
    assert_eq!(
        (simulation.open(1, 5), simulation.open(9, 5), simulation.slots(1)),
        (None, None, None)
    );
}
