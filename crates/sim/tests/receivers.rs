//! Receivers that misbehave, read slowly or acknowledge seldom, and the senders' responses.

use forebay_core::cc::{
    Algorithm, CongestionControl, CongestionEvent, Measurement, Registry, SendLimits, State,
};
use forebay_core::link::Service;
use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Conduct, Receiving, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::Link;
use forebay_sim::network::{Flow, Hop, Network, Traffic};
use forebay_sim::{EcnMode, FlowMetrics, Simulation, Stack, Tcp};

/// A millisecond.
const MS: Duration = Duration::from_millis(1);
/// A flow that always has data.
const GREEDY: Traffic = Traffic::Source(Source::Greedy { bytes: None });
/// Index of the link for data.
const OUT: usize = 0;
/// Index of the link for acknowledgements.
const BACK: usize = 1;

/// A receiver that acknowledges each segment at once; the default of this file.
const EACH: Receiving = Receiving {
    conduct: Conduct::Honest,
    read_rate: None,
    buffer: None,
    ack_every: Some(1),
    ack_delay: None,
};

fn fifo(limit: &str) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(limit.into()))
}

fn window(segments: u64) -> Spec {
    Spec::named("const").with("cwnd", Value::Text(format!("{}B", segments * 1448)))
}

/// 10 s over 16 Mbit/s and 40 ms with a queue of 100 packets, and a flow for each algorithm and receiver. The
/// way back is fast and counts its packets.
fn network(flows: &[(Spec, Receiving)]) -> Network {
    let link = |name, mbit, limit| {
        Link::at_rate(name, Rate::from_mbit_per_sec(mbit), 20 * MS, fifo(limit))
    };
    let flow = |(cc, receiving): &(Spec, Receiving)| Flow {
        cc: cc.clone(),
        traffic: GREEDY,
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: *receiving,
        data: vec![Hop::Link(OUT)],
        back: vec![Hop::Link(BACK)],
    };
    let mut network = Network::of_links(
        Duration::from_secs(10),
        1,
        Stack::LINUX,
        vec![link("out", 16, "100p"), link("back", 1000, "10000p")],
    );
    network.flows = flows.iter().map(flow).collect();
    network
}

fn run(network: Network) -> Simulation {
    let mut simulation = Simulation::with_algorithms(network, algorithms()).unwrap();
    simulation.run();
    simulation
}

fn metrics(network: Network) -> FlowMetrics {
    run(network).flow_metrics(0).unwrap()
}

/// One more segment for each acknowledgement, as before RFC 3465.
#[derive(Default)]
struct PerAck {
    mss: u64,
    cwnd: u64,
}

impl CongestionControl for PerAck {
    fn init(&mut self, _now: Timestamp, mss: ByteCount, initial_cwnd: ByteCount) {
        (self.mss, self.cwnd) = (mss.as_u64(), initial_cwnd.as_u64());
    }
    fn on_measurement(&mut self, _now: Timestamp, _measurement: &Measurement) {
        self.cwnd += self.mss;
    }
    fn on_event(&mut self, _now: Timestamp, _event: CongestionEvent) {}
    fn send_limits(&self) -> SendLimits {
        SendLimits { cwnd: Some(ByteCount::new(self.cwnd)), ..SendLimits::default() }
    }
    fn state(&self) -> State {
        State::default()
    }
}

fn algorithms() -> Registry {
    let mut algorithms = Registry::default();
    let per_ack = Algorithm {
        name: "per_ack",
        summary: "a segment more for each acknowledgement",
        sources: &[],
        params: &[],
        needs: &[],
        min_window_mss: 1.0,
        batch_tolerance: 0.0,
        build: &|_| Ok(Box::new(PerAck::default())),
    };
    algorithms.register(per_ack).unwrap();
    algorithms
}

#[test]
fn ack_division_deceives_only_ack_counting_senders() {
    // The answers to the first ten segments arrive after two round trips, including the handshake's.
    let cwnd = |cc: &str, conduct| {
        let network = network(&[(Spec::named(cc), Receiving { conduct, ..EACH })]);
        let mut simulation = Simulation::with_algorithms(network, algorithms()).unwrap();
        simulation.run_until(Timestamp::ZERO + 100 * MS);
        simulation.sender_state(0).unwrap().cwnd_segments
    };
    let dividing = Conduct::Dividing(10);
    assert_eq!(["per_ack", "newreno", "cubic"].map(|cc| cwnd(cc, Conduct::Honest)), [20.0; 3]);
    assert_eq!(["newreno", "cubic"].map(|cc| cwnd(cc, dividing)), [20.0; 2]);
    assert_eq!(cwnd("per_ack", dividing), 110.0);
}

#[test]
fn ack_division_only_adds_return_traffic() {
    for cc in ["newreno", "cubic", "vegas", "bbr"] {
        let run = |conduct| {
            let mut simulation = run(network(&[(Spec::named(cc), Receiving { conduct, ..EACH })]));
            let acks = simulation.link_metrics(BACK).packets as f64;
            (simulation.flow_metrics(0).unwrap(), acks)
        };
        let ((honest, once), (dividing, often)) =
            (run(Conduct::Honest), run(Conduct::Dividing(10)));
        let change = |of: fn(&FlowMetrics) -> f64| of(&dividing) / of(&honest) - 1.0;
        assert!(change(|it| it.mean_throughput_l4).abs() < 0.05, "{cc}: {honest:?} {dividing:?}");
        assert!(change(|it| it.mean_cwnd_l4) < 0.1, "{cc}: {honest:?} {dividing:?}");
        assert!(often > 8.0 * once, "{cc}: {once} {often}");
    }
}

#[test]
fn duplicate_acks_deceive_only_senders_without_sack() {
    let resent = |sack, conduct| {
        let mut network = network(&[(window(40), Receiving { conduct, ..EACH })]);
        network.stack = Stack { tcp: Tcp { sack, ..Tcp::NS3 }, ..Stack::NS3 };
        let metrics = metrics(network);
        (metrics.total_retransmissions_l4, metrics.total_spurious_retransmissions_l4)
    };
    let copies = Conduct::Duplicating(3);
    // The window fits into the path: nothing is lost, except surplus packets of a deceived sender.
    assert_eq!([resent(false, Conduct::Honest), resent(true, Conduct::Honest)], [(0, 0); 2]);
    assert_eq!(resent(true, copies), (0, 0));
    let (all, spurious) = resent(false, copies);
    assert!(spurious > 1000 && all > spurious, "{all} {spurious}");
}

#[test]
fn optimistic_acks_do_not_hide_losses_from_metrics() {
    let run = |conduct| {
        let buffer = Some(ByteCount::new(256_000));
        let receiving = Receiving { conduct, buffer, ..Receiving::default() };
        let mut network = network(&[(Spec::named("newreno"), receiving)]);
        network.links[OUT].loss = Ratio::new(0.02).unwrap();
        metrics(network)
    };
    let (honest, optimistic) = (run(Conduct::Honest), run(Conduct::Optimistic(5)));
    assert_eq!((honest.total_unreceived_l4, optimistic.total_retransmissions_l4), (None, 0));
    assert!(honest.total_retransmissions_l4 > 20, "{honest:?}");
    // 2.5 Mbit/s by the formula of Mathis et al., compared with the whole link.
    assert!(honest.mean_throughput_l4 < 5.0 && optimistic.mean_throughput_l4 > 12.0);
    let (lost, received) =
        (optimistic.total_unreceived_l4.unwrap(), optimistic.received_bytes / 1448);
    assert!(lost > optimistic.data_packets_sent / 50, "{optimistic:?}");
    // Each sent packet has arrived, is missing, or is still on the path.
    let rest = optimistic.data_packets_sent - lost - received;
    assert!(rest <= 300, "{rest}: {optimistic:?}");
}

#[test]
fn invalid_ack_is_ignored_and_receiver_trusted_again() {
    // The lead exceeds any window, so the sender ignores these acknowledgements. It resends a segment as a
    // probe of the tail, and the receiver acknowledges that correctly.
    let receiving = Receiving { conduct: Conduct::Optimistic(10_000), ..EACH };
    let metrics = metrics(network(&[(window(8), receiving)]));
    assert!(metrics.total_retransmissions_l4 > 3, "{metrics:?}");
    assert!(metrics.received_bytes > 4 * 8 * 1448, "{metrics:?}");
    assert_eq!(metrics.total_unreceived_l4, Some(0));
}

#[test]
fn concealing_marks_takes_share_from_honest_flows() {
    for (cc, ecn) in [("newreno", EcnMode::Classic), ("dctcp", EcnMode::Off)] {
        let rates = |conduct| {
            let concealing = Receiving { conduct, ..Receiving::default() };
            let law = Spec::named(cc);
            let mut network = network(&[(law.clone(), concealing), (law, Receiving::default())]);
            network.stack.tcp.ecn = ecn;
            let codel = Spec::named("codel").with("ecn", Value::Bool(true));
            network.links[OUT].qdisc = codel.with("limit", Value::Text("100p".into()));
            let mut simulation = run(network);
            assert!(simulation.link_metrics(OUT).total_qdisc_marks_l2 > 10, "{cc}");
            [0, 1].map(|flow| simulation.flow_metrics(flow).unwrap().mean_throughput_l4)
        };
        let (alike, apart) = (rates(Conduct::Honest), rates(Conduct::Concealing));
        assert!((0.5..2.0).contains(&(alike[0] / alike[1])), "{cc}: {alike:?}");
        assert!(apart[0] > 3.0 * apart[1], "{cc}: {apart:?}");
    }
}

#[test]
fn slow_reader_limits_sender_without_queue_or_loss() {
    for cc in ["cubic", "bbr"] {
        let read_rate = Some(Rate::from_mbit_per_sec(4));
        let buffer = Some(ByteCount::new(64_000));
        let receiving = Receiving { read_rate, buffer, ..Receiving::default() };
        let mut simulation = run(network(&[(Spec::named(cc), receiving)]));
        let metrics = simulation.flow_metrics(0).unwrap();
        // The buffer's contents arrive in addition to the bytes read.
        assert!((3.8..4.15).contains(&metrics.mean_throughput_l4), "{cc}: {metrics:?}");
        // BBR does not even fill the window.
        let limited = metrics.rwnd_limited_l4.unwrap();
        assert!(limited > 0.9 || cc == "bbr", "{cc}: {metrics:?}");
        assert_eq!((metrics.total_retransmissions_l4, metrics.total_rtos_l4), (0, 0));
        assert!(metrics.mean_in_flight_l4 < 44.0, "{cc}: {metrics:?}");
        assert!(simulation.link_metrics(OUT).mean_qdisc_length_l2 < 5.0);
    }
}

#[test]
fn window_updates_are_not_duplicates_without_sack() {
    let read_rate = Some(Rate::from_mbit_per_sec(1));
    let receiving = Receiving { read_rate, buffer: Some(ByteCount::new(32_000)), ..EACH };
    let mut network = network(&[(Spec::named("newreno"), receiving)]);
    network.stack = Stack { tcp: Tcp { sack: false, ..Tcp::NS3 }, ..Stack::NS3 };
    let metrics = metrics(network);
    assert_eq!((metrics.total_retransmissions_l4, metrics.total_rtos_l4), (0, 0), "{metrics:?}");
}

#[test]
fn window_probes_survive_lost_updates() {
    let read_rate = Some(Rate::from_bits_per_sec(200_000));
    let buffer = Some(ByteCount::new(16_000));
    let receiving = Receiving { read_rate, buffer, ..Receiving::default() };
    let mut network = network(&[(Spec::named("cubic"), receiving)]);
    network.links[BACK].loss = Ratio::new(0.5).unwrap();
    network.stop = Duration::from_secs(60);
    let metrics = metrics(network);
    assert!(metrics.total_window_probes_l4.unwrap() > 0, "{metrics:?}");
    assert!((0.1..0.21).contains(&metrics.mean_throughput_l4), "{metrics:?}");
}

#[test]
fn a_buffer_bounds_what_is_in_flight() {
    let buffer = Some(ByteCount::new(20 * 1448 + 1000));
    let receiving = Receiving { buffer, ..Receiving::default() };
    let metrics = metrics(network(&[(window(500), receiving)]));
    assert!((19.5..=20.0).contains(&metrics.mean_in_flight_l4), "{metrics:?}");
}

#[test]
fn acknowledgements_are_as_seldom_as_their_receiver_wants() {
    let acks = |ack_every, ack_delay| {
        let receiving = Receiving { ack_every, ack_delay, ..Receiving::default() };
        let simulation = run(network(&[(window(60), receiving)]));
        let [data, acks] = [OUT, BACK].map(|link| simulation.link_metrics(link).packets as f64);
        (data / acks, acks)
    };
    for (every, least) in [(Some(8), 7.8), (None, 1.95), (Some(1), 0.99)] {
        let (ratio, _) = acks(every, None);
        assert!(ratio > least && ratio < 1.05 * least, "{every:?}: {ratio}");
    }
    // The receiver acknowledges a window at once, and then nothing until the delay is over.
    let (_, acks) = acks(Some(1000), Some(100 * MS));
    assert!((10_000.0 / 145.0..10_000.0 / 139.0 + 20.0).contains(&acks), "{acks}");
}

#[test]
fn ack_filter_relieves_the_return_path() {
    // 66 bytes per acknowledgement of each segment: 100 kbit/s carry 189 acknowledgements a second, and so
    // 2.2 Mbit/s.
    let run = |ack_filter| {
        let mut network = network(&[(window(60), EACH)]);
        let back = &mut network.links[BACK];
        back.service = Service::Rate(Rate::from_bits_per_sec(100_000));
        (back.ack_filter, back.qdisc) = (ack_filter, fifo("100p"));
        let mut simulation = run(network);
        let drops = simulation.link_metrics(BACK).drops.superseded;
        (simulation.flow_metrics(0).unwrap().mean_throughput_l4, drops)
    };
    let ((without, kept), (with, dropped)) = (run(false), run(true));
    assert!(without < 2.3 && kept == 0, "{without} {kept}");
    assert!(with > 4.0 * without && dropped > 1000, "{with} {dropped}");
}

#[test]
fn a_filter_is_of_a_plain_fifo() {
    let mut network = network(&[(window(60), EACH)]);
    (network.links[BACK].ack_filter, network.links[BACK].qdisc) = (true, Spec::named("sfq"));
    let error = Simulation::new(network).err().unwrap();
    assert_eq!(error.key, "back.ack_filter");
}

#[test]
fn ecn_clearing_path_drops_instead_of_marks() {
    for (cc, ecn, qdisc) in
        [("newreno", EcnMode::Classic, "codel"), ("prague", EcnMode::Off, "dualpi2")]
    {
        let counts = |clears_ecn| {
            let mut network = network(&[(Spec::named(cc), Receiving::default())]);
            network.stack.tcp.ecn = ecn;
            let out = &mut network.links[OUT];
            let spec = Spec::named(qdisc);
            out.qdisc = if qdisc == "codel" { spec.with("ecn", Value::Bool(true)) } else { spec };
            out.clears_ecn = clears_ecn;
            let out = run(network).link_metrics(OUT);
            (out.total_qdisc_marks_l2, out.total_qdisc_drops_l2)
        };
        let (kept, cleared) = (counts(false), counts(true));
        assert!(kept.0 > 10 && kept.1 == 0, "{cc}: {kept:?}");
        assert!(cleared.0 == 0 && cleared.1 > 1, "{cc}: {cleared:?}");
    }
}

#[test]
fn all_segments_are_accounted_for_with_any_receiver() {
    let mut random = Streams::new(7).stream("receivers");
    for case in 0..40 {
        let conduct = match random.below(5) {
            0 => Conduct::Honest,
            1 => Conduct::Dividing(2 + random.below(20) as u32),
            2 => Conduct::Duplicating(1 + random.below(20) as u32),
            3 => Conduct::Optimistic(random.below(30) as u32),
            _ => Conduct::Concealing,
        };
        let mut maybe = |most: u64| random.chance(0.5).then(|| 1 + random.below(most));
        let receiving = Receiving {
            conduct,
            read_rate: maybe(20_000_000).map(|bits| Rate::from_bits_per_sec(100_000 + bits)),
            buffer: Some(ByteCount::new(4_000 + maybe(300_000).unwrap_or(0))),
            ack_every: maybe(20).map(|every| every as u32),
            ack_delay: maybe(500).map(Duration::from_millis),
        };
        let law = ["newreno", "cubic", "bbr", "dctcp", "prague"][random.below(5) as usize];
        let mut network = network(&[(Spec::named(law), receiving)]);
        (network.stop, network.seed) = (Duration::from_secs(4), case);
        network.flows[0].opened = Some(40 * MS);
        if random.chance(0.5) {
            let sack = random.chance(0.7);
            network.stack = Stack { tcp: Tcp { sack, ..Tcp::NS3 }, ..Stack::NS3 };
        }
        if random.chance(0.5) {
            network.stack.tcp.ecn = EcnMode::Classic;
            network.links[OUT].qdisc = Spec::named("codel").with("ecn", Value::Bool(true));
        }
        network.links[BACK].ack_filter = random.chance(0.3);
        for (link, most) in [(OUT, 0.03), (BACK, 0.2)] {
            let link = &mut network.links[link];
            link.loss = Ratio::new(random.unit() * most).unwrap();
            (link.reorder, link.reorder_packets) = (Ratio::new(0.02).unwrap(), 5);
        }
        let plan = format!("{case}: {law} {receiving:?} {:?}", network.stack.name);
        let metrics = metrics(network);
        let received = metrics.received_bytes / 1448;
        let accounted = received + metrics.total_unreceived_l4.unwrap_or(0);
        let segments = metrics.data_packets_sent - metrics.total_retransmissions_l4;
        // Segments on their way at the end, or lost and not yet resent.
        let rest = segments.saturating_sub(accounted);
        let is_whole = received > 0 && accounted <= metrics.data_packets_sent && rest <= 300;
        assert!(is_whole, "{plan}: {rest} are missing: {metrics:?}");
    }
}

#[test]
fn misbehaving_receivers_need_an_endless_greedy_source() {
    let mut network = network(&[(Spec::named("cubic"), EACH)]);
    network.flows[0].receiving.conduct = Conduct::Concealing;
    network.flows[0].traffic = Traffic::Written;
    let error = Simulation::new(network.clone()).err().unwrap();
    assert_eq!((error.key.as_str(), error.value.as_str()), ("receiver", "Concealing"));
    network.flows[0].receiving = Receiving { read_rate: Some(Rate::from_mbit_per_sec(1)), ..EACH };
    assert_eq!(Simulation::new(network).err().unwrap().key, "read_rate");
}
