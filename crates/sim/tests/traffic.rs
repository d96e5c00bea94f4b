//! Requests, pings and connections opened before the run, over a network.

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Request, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::Link;
use forebay_sim::network::{Flow, Hop, Network, Traffic};
use forebay_sim::{Halves, PING_FRAME_BYTES, Requests, Simulation, Stack};

/// Round-trip time without queue.
const RTT: Duration = Duration::from_millis(50);
/// Rate of the bottleneck.
const RATE: Rate = Rate::from_mbit_per_sec(24);

fn network(flows: Vec<Flow>, qdisc: &str, loss: f64) -> Network {
    let loss = Ratio::new(loss).unwrap();
    let qdisc = Spec::named(qdisc).with("limit", Value::Text("100p".into()));
    let there = Link { loss, ..Link::at_rate("there", RATE, RTT / 2, qdisc) };
    let links = vec![there, Link::delay("back", RTT / 2)];
    Network { flows, ..Network::of_links(Duration::from_secs(60), 1, Stack::LINUX, links) }
}

fn flow(traffic: Traffic, reversed: bool) -> Flow {
    let (there, back) = (vec![Hop::Link(0)], vec![Hop::Link(1)]);
    // Acknowledgements of requests travel with the answers: they add no load.
    let (data, back) = if reversed { (back, vec![Hop::Delay(RTT / 2)]) } else { (there, back) };
    let (start, stop, opened) = (Duration::ZERO, None, Some(RTT));
    Flow {
        cc: Spec::named("cubic"),
        traffic,
        start,
        opened,
        stop,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data,
        back,
    }
}

/// Requests of 100 bytes to 140 kB on `connections`, 3 ms apart on average.
fn schedule(count: u64, connections: u64) -> Vec<Request> {
    let mut stream = forebay_core::random::Streams::new(3).stream("schedule");
    let request = |number: u64| {
        let octave = stream.below(18);
        Request {
            at: Duration::from_micros(3000 * number + stream.below(3000)),
            size: ByteCount::new(100 + stream.below(1 << octave)),
            connection: stream.below(connections) as u32,
        }
    };
    (0..count).map(request).collect()
}

fn run(schedule: &[Request], connections: usize, loss: f64) -> (Simulation, Requests) {
    let pair = [flow(Traffic::Written, false), flow(Traffic::Written, true)];
    let flows = (0..connections).flat_map(|_| pair.clone()).collect();
    let mut simulation = Simulation::new(network(flows, "fifo", loss)).unwrap();
    let halves: Vec<Halves> =
        (0..connections).map(|n| Halves { answers: 2 * n, asks: 2 * n + 1 }).collect();
    let mut requests = Requests::default();
    requests.add(Duration::from_millis(10), schedule.to_vec(), &halves);
    requests.run_until(&mut simulation, Timestamp::MAX);
    (simulation, requests)
}

#[test]
fn answers_arrive_complete_and_ordered_despite_loss() {
    let schedule = schedule(3000, 20);
    let asked: u64 = schedule.iter().map(|request| request.size.as_u64()).sum();
    for loss in [0.0, 0.02] {
        let (mut simulation, requests) = run(&schedule, 20, loss);
        assert_eq!((requests.unfinished(), requests.intervals(0).iter().sum()), (0, asked));
        let read = |flow| simulation.flow_metrics(flow).unwrap().received_bytes;
        let (answers, asks) = (0..20).map(|n| (2 * n, 2 * n + 1)).unzip::<_, _, Vec<_>, Vec<_>>();
        assert_eq!(answers.into_iter().map(read).sum::<u64>(), asked);
        let read = |flow| simulation.flow_metrics(flow).unwrap().received_bytes;
        assert_eq!(asks.into_iter().map(read).sum::<u64>(), 16 * 3000);
        let mut last = [Timestamp::ZERO; 20];
        for (request, outcome) in schedule.iter().zip(requests.outcomes(0)) {
            let at = Timestamp::ZERO + Duration::from_millis(10) + request.at;
            assert_eq!(outcome.sent, Some(at));
            let finished = outcome.finished.unwrap();
            let ideal = RTT + request.size.time_at(RATE).unwrap();
            assert!(finished.saturating_since(at) >= ideal, "{request:?} {outcome:?}");
            let last = &mut last[request.connection as usize];
            assert!(*last <= finished && outcome.queued_behind == (*last > at));
            *last = finished;
        }
    }
}

#[test]
fn idle_path_request_takes_rtt_plus_serialization() {
    let request = |ms, size| Request {
        at: Duration::from_millis(ms),
        size: ByteCount::new(size),
        connection: 0,
    };
    let (_, requests) = run(&[request(0, 1448), request(1000, 2000)], 1, 0.0);
    let took = |number: usize, ms: u64| {
        let finished = requests.outcomes(0)[number].finished.unwrap();
        finished.as_nanos() - (10 + ms) * 1_000_000
    };
    // 66 bytes of headers per packet, at 24 Mbit/s; the way out has no rate limit.
    assert_eq!(took(0, 0), 50_000_000 + 1514 * 8 * 1000 / 24);
    assert_eq!(took(1, 1000), 50_000_000 + (1514 + 618) * 8 * 1000 / 24);
}

#[test]
fn equal_runs_have_equal_events() {
    let schedule = schedule(500, 5);
    let hashes = [(); 2].map(|()| run(&schedule, 5, 0.01).0.event_hash());
    assert_eq!(hashes[0], hashes[1]);
}

#[test]
fn a_loop_of_pings_measures_the_round_trip() {
    let ping = Flow { stop: Some(Duration::from_secs(1)), ..flow(Traffic::Ping, false) };
    let mut simulation = Simulation::new(network(vec![ping.clone()], "fifo", 0.0)).unwrap();
    simulation.run();
    let pings = simulation.pings(0).unwrap();
    let rtt_ns = 50_000_000 + PING_FRAME_BYTES * 8 * 1000 / 24;
    assert!(pings.rtts_ns.iter().all(|rtt| rtt_ns.abs_diff(*rtt) <= 1), "{:?}", pings.rtts_ns);
    assert_eq!((pings.rtts_ns.len(), pings.lost), (20, 0));
    let mut simulation = Simulation::new(network(vec![ping], "fifo", 1.0)).unwrap();
    simulation.run();
    assert_eq!(
        (simulation.pings(0).unwrap().lost, simulation.now().as_nanos()),
        (1, 60_000_000_000)
    );
}

#[test]
fn pings_over_a_full_queue_see_it() {
    let greedy = flow(Traffic::Source(Source::Greedy { bytes: None }), false);
    let flows = vec![flow(Traffic::Ping, false), greedy];
    let mut simulation = Simulation::new(network(flows, "fifo", 0.0)).unwrap();
    simulation.run();
    let most = simulation.pings(0).unwrap().rtts_ns.iter().max().unwrap();
    // 100 packets wait and one is being sent.
    let full_ns = 50_000_000 + 101 * 1514 * 8 * 1000 / 24;
    assert!((full_ns * 9 / 10..=full_ns + 100_000).contains(most), "{most}");
}

#[test]
fn an_open_connection_starts_with_data() {
    let greedy = flow(Traffic::Source(Source::Greedy { bytes: None }), false);
    let first_read_ms = |opened| {
        let flows = vec![Flow { opened, ..greedy.clone() }];
        let mut simulation = Simulation::new(network(flows, "fifo", 0.0)).unwrap();
        let ms = (1..).find(|ms| {
            simulation.run_until(Timestamp::from_nanos(ms * 1_000_000));
            simulation.flow_metrics(0).unwrap().received_bytes > 0
        });
        ms.unwrap()
    };
    // The first packet arrives 25.5 ms after it was sent.
    assert_eq!([first_read_ms(Some(RTT)), first_read_ms(None)], [26, 76]);
}

#[test]
fn bundle_controller_runs_single_flow_without_flooding() {
    for law in ["copa", "setpoint", "basic_delay"] {
        let greedy = flow(Traffic::Source(Source::Greedy { bytes: None }), false);
        let mut network = network(vec![Flow { cc: Spec::named(law), ..greedy }], "fifo", 0.0);
        network.stop = Duration::from_secs(10);
        let mut simulation = Simulation::new(network).unwrap();
        simulation.run_until(Timestamp::ZERO + Duration::from_secs(10));
        let metrics = simulation.flow_metrics(0).unwrap();
        // At most, slow start doubles beyond the 100 packets of the path and the 100 of the queue.
        assert!(metrics.total_retransmissions_l4 <= 200, "{law}: {metrics:?}");
        assert!(
            metrics.total_rtos_l4 == 0 && metrics.mean_throughput_l4 > 19.0,
            "{law}: {metrics:?}"
        );
    }
}
