//! Properties of every run, whatever the algorithm.

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_sim::{Change, Dumbbell, Flow, Simulation, Stack};

fn fixed_window(segments: u64) -> Spec {
    Spec::named("const").with("cwnd", Value::Text(format!("{}B", segments * 1448)))
}

fn greedy(cc: Spec) -> Flow {
    Flow { cc, source: Source::Greedy { bytes: None }, start: Duration::ZERO, rtt: None }
}

fn datagrams(source: Source) -> Flow {
    Flow { cc: Spec::named("const"), source, start: Duration::ZERO, rtt: None }
}

fn fifo(limit: &str) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(limit.into()))
}

/// 16 Mbit/s, 15 ms, 20 packets of buffer; the bandwidth-delay product is also 20 packets.
fn dumbbell(flows: Vec<Flow>) -> Dumbbell {
    Dumbbell {
        stop: Duration::from_secs(10),
        seed: 1,
        stack: Stack::NS3,
        rate: Rate::from_mbit_per_sec(16),
        rtt: Duration::from_millis(15),
        loss: Ratio::ZERO,
        qdisc: fifo("20p"),
        changes: Vec::new(),
        flows,
    }
}

fn run(dumbbell: &Dumbbell) -> Simulation {
    let mut simulation = Simulation::new(dumbbell).unwrap();
    simulation.run();
    simulation
}

fn at(change_at: Duration) -> Change {
    Change { at: change_at, ..Change::default() }
}

#[test]
fn full_queue_yields_rate_times_payload_share() {
    for (stack, wire) in [(Stack::NS3, 1502.0), (Stack::LINUX, 1514.0)] {
        let plan =
            Dumbbell { stack, qdisc: fifo("60p"), ..dumbbell(vec![greedy(fixed_window(35))]) };
        let mut simulation = Simulation::new(&plan).unwrap();
        let mut received = |secs| {
            simulation.run_until(Timestamp::ZERO + Duration::from_secs(secs));
            simulation.flow_metrics(0).unwrap().received_bytes
        };
        let (first, last) = (received(1), received(10));
        let goodput = (last - first) as f64 * 8.0 / 9.0;
        let expected = 16e6 * 1448.0 / wire;
        // One packet more or less at either end is 0.008 %.
        assert!((goodput / expected - 1.0).abs() < 1e-4, "{goodput} {expected}");
        assert_eq!(simulation.link_metrics(0).total_qdisc_drops_l2, 0);
    }
}

#[test]
fn window_below_bdp_leaves_queue_empty() {
    let metrics = run(&dumbbell(vec![greedy(fixed_window(10))])).flow_metrics(0).unwrap();
    // 10 segments each 15 ms and one service time of 0.751 ms.
    let expected = 10.0 * 1448.0 * 8.0 / 15.751e-3 / 1e6;
    assert!((metrics.mean_throughput_l4 / expected - 1.0).abs() < 0.01, "{metrics:?}");
    assert!((15.0..16.0).contains(&metrics.mean_srtt_l4), "{metrics:?}");
    assert_eq!((metrics.mean_cwnd_l4, metrics.total_retransmissions_l4), (10.0, 0));
}

#[test]
fn rtt_is_at_least_the_propagation_delay() {
    for rtt_ms in [1, 15, 120] {
        let mut plan = dumbbell(vec![greedy(fixed_window(30)), greedy(fixed_window(4))]);
        plan.flows[1].rtt = Some(Duration::from_millis(3 * rtt_ms));
        plan.rtt = Duration::from_millis(rtt_ms);
        plan.stack = Stack::LINUX;
        let mut simulation = run(&plan);
        for (flow, least_ms) in [(0, rtt_ms as f64), (1, 3.0 * rtt_ms as f64)] {
            let bins = simulation.flow_bins(flow).iter().filter(|bin| bin.srtt_us > 0);
            assert!(bins.clone().count() > 100);
            assert!(bins.clone().all(|bin| f64::from(bin.srtt_us) >= least_ms * 1e3));
            assert!(simulation.flow_metrics(flow).unwrap().mean_srtt_l4 >= least_ms);
        }
    }
}

#[test]
fn overfull_queue_stays_at_its_limit() {
    let simulation = run(&dumbbell(vec![greedy(fixed_window(200))]));
    let link = simulation.link_metrics(0);
    assert!(link.total_qdisc_drops_l2 > 0 && link.max_qdisc_length_l2 == 20, "{link:?}");
    assert!(link.mean_sending_rate_l1 <= 16.0 && link.mean_qdisc_length_l2 <= 20.0, "{link:?}");
}

#[test]
fn flow_bytes_arrive_once_despite_loss_and_reordering() {
    let bytes = 3_000_000;
    for (seed, stack) in [(1, Stack::NS3), (2, Stack::LINUX), (3, Stack::LINUX)] {
        let mut plan = dumbbell(vec![greedy(fixed_window(20))]);
        plan.flows[0].source = Source::Greedy { bytes: Some(ByteCount::new(bytes)) };
        plan.loss = Ratio::new(0.02).unwrap();
        plan.stop = Duration::from_secs(300);
        (plan.seed, plan.stack) = (seed, stack);
        plan.changes = vec![
            Change { rtt: Some(Duration::from_millis(60)), ..at(Duration::from_millis(500)) },
            Change { rtt: Some(Duration::from_millis(10)), ..at(Duration::from_millis(900)) },
        ];
        let metrics = run(&plan).flow_metrics(0).unwrap();
        assert_eq!(metrics.received_bytes, bytes, "{metrics:?}");
        assert!(metrics.completed.is_some() && metrics.total_retransmissions_l4 > 20);
    }
}

#[test]
fn poisson_waiting_time_matches_pollaczek_khinchine() {
    // M/D/1: mean wait = load / (2 (1 − load)) service times, here of 1 ms.
    for (load, packets) in [(0.5, 10_000_000), (0.8, 10_000_000)] {
        let rate = Rate::from_bits_per_sec((12e6 * load) as u64);
        let source = Source::Poisson { rate, packet: ByteCount::new(1500) };
        let plan = Dumbbell {
            rate: Rate::from_mbit_per_sec(12),
            stop: Duration::from_secs_f64(f64::from(packets) / (1000.0 * load)),
            stack: Stack::LINUX,
            qdisc: fifo("100000p"),
            ..dumbbell(vec![datagrams(source)])
        };
        let link = run(&plan).link_metrics(0);
        let expected_ms = load / (2.0 * (1.0 - load));
        let wait_ms = link.mean_qdisc_delay_l2_per_packet;
        assert!((wait_ms / expected_ms - 1.0).abs() < 0.01, "load {load}: {wait_ms} ms");
    }
}

#[test]
fn a_fair_queue_gives_unequal_senders_equal_shares() {
    let flows = [10, 60, 150].map(|window| greedy(fixed_window(window))).to_vec();
    for kind in ["drr", "sfq", "fq_codel"] {
        let qdisc = Spec::named(kind).with("limit", Value::Text("1000p".into()));
        let mut plan = Dumbbell { qdisc, ..dumbbell(flows.clone()) };
        plan.stop = Duration::from_secs(60);
        plan.rtt = Duration::from_millis(2);
        let mut simulation = run(&plan);
        let mut rate = |flow| simulation.flow_metrics(flow).unwrap().mean_throughput_l4;
        let rates = [rate(0), rate(1), rate(2)];
        let mean = rates.iter().sum::<f64>() / 3.0;
        assert!(rates.iter().all(|rate| (rate / mean - 1.0).abs() < 0.01), "{kind}: {rates:?}");
    }
}

#[test]
fn changes_take_effect_when_they_are_due() {
    let mut plan = dumbbell(vec![greedy(fixed_window(200))]);
    plan.stack = Stack::LINUX;
    plan.qdisc = fifo("1000p");
    plan.changes = vec![
        Change { rate: Some(Rate::ZERO), ..at(Duration::from_secs(2)) },
        Change { rate: Some(Rate::from_mbit_per_sec(8)), ..at(Duration::from_secs(3)) },
    ];
    let simulation = run(&plan);
    let mbit = |from: usize, to: usize| {
        let bins = &simulation.flow_bins(0)[from..to];
        bins.iter().map(|bin| f64::from(bin.bytes) * 8e-6).sum::<f64>() * 20.0 / bins.len() as f64
    };
    let share = 1448.0 / 1514.0;
    // Up to a packet at either end of a second is 0.1 %.
    for (rate, from, to) in [(16.0, 20, 40), (0.0, 41, 60), (8.0, 80, 100)] {
        assert!((mbit(from, to) - rate * share).abs() < 0.02, "{rate}: {}", mbit(from, to));
    }
}

#[test]
fn paced_sender_builds_no_queue() {
    let cc = Spec::named("const").with("rate", Value::Text("8Mbit/s".into()));
    let mut plan = dumbbell(vec![greedy(cc)]);
    plan.stack.tcp.paces_first_window = true;
    let mut simulation = run(&plan);
    let metrics = simulation.flow_metrics(0).unwrap();
    // The rate of the payload, as algorithms measure rates.
    assert!((metrics.mean_throughput_l4 / 8.0 - 1.0).abs() < 0.005, "{metrics:?}");
    let link = simulation.link_metrics(0);
    assert!(link.max_qdisc_length_l2 <= 1 && link.mean_qdisc_length_l2 < 0.01, "{link:?}");
}

#[test]
fn events_depend_only_on_the_seed() {
    let plan = |seed| {
        let source =
            Source::Poisson { rate: Rate::from_mbit_per_sec(4), packet: ByteCount::new(800) };
        let mut plan = dumbbell(vec![greedy(fixed_window(40)), datagrams(source)]);
        plan.loss = Ratio::new(0.01).unwrap();
        Dumbbell { seed, stop: Duration::from_secs(5), ..plan }
    };
    let hash = |seed| run(&plan(seed)).event_hash();
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
    // The hash is the same in debug and release builds and on every machine.
    assert_eq!(hash(7), 3_698_240_667_650_563_474);
}

#[test]
fn a_data_packet_costs_three_events() {
    let simulation = run(&dumbbell(vec![greedy(fixed_window(30))]));
    let data = simulation.link_metrics(0).packets as f64;
    let events = simulation.events() as f64 / data;
    assert!(events < 3.01, "{events} events a data packet");
}
