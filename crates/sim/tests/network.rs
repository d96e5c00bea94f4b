//! Links, routes and the traffic that meets there.

use std::sync::Arc;

use forebay_core::link::{AtEnd, PathTrace, Replay, Service, Trace};
use forebay_core::record::{Fate, PacketRecord};
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::{Link, Property, Walk};
use forebay_sim::network::{Flow, Hop, Network, Traffic};
use forebay_sim::{Owner, Seen, Sent, Simulation, Stack};

/// A millisecond.
const MS: Duration = Duration::from_millis(1);
/// A flow that always has data.
const GREEDY: Traffic = Traffic::Source(Source::Greedy { bytes: None });

fn fifo(limit: &str) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(limit.into()))
}

fn window(segments: u64) -> Spec {
    Spec::named("const").with("cwnd", Value::Text(format!("{}B", segments * 1448)))
}

fn link(name: &str, mbit: u64, delay: Duration, limit: &str) -> Link {
    Link::at_rate(name, Rate::from_mbit_per_sec(mbit), delay, fifo(limit))
}

fn flow(cc: Spec, traffic: Traffic, data: &[Hop], back: &[Hop]) -> Flow {
    let (data, back) = (data.to_vec(), back.to_vec());
    Flow {
        cc,
        traffic,
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data,
        back,
    }
}

fn network(links: Vec<Link>, flows: Vec<Flow>) -> Network {
    let (stop, seed, stack) = (Duration::from_secs(10), 1, Stack::LINUX);
    Network { flows, ..Network::of_links(stop, seed, stack, links) }
}

fn run(network: &Network) -> Simulation {
    let mut simulation = Simulation::new(network).unwrap();
    simulation.run();
    simulation
}

fn seconds(secs: f64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs_f64(secs)
}

#[test]
fn delays_are_one_line_however_they_are_written() {
    let bottleneck = || link("bottleneck", 16, 5 * MS, "40p");
    let hash = |links: Vec<Link>, data: &[Hop], back: &[Hop]| {
        let simulation = run(&network(links, vec![flow(window(30), GREEDY, data, back)]));
        (simulation.event_hash(), simulation.link_metrics(0).packets)
    };
    let bare = |delay| {
        let mut bottleneck = bottleneck();
        bottleneck.delay = delay;
        vec![bottleneck, Link::delay("out", 3 * MS), Link::delay("back", 8 * MS)]
    };
    let (one, packets) =
        hash(vec![bottleneck()], &[Hop::Link(0), Hop::Delay(3 * MS)], &[Hop::Delay(8 * MS)]);
    assert!(packets > 10_000);
    assert_eq!(hash(bare(5 * MS), &[Hop::Link(0), Hop::Link(1)], &[Hop::Link(2)]).0, one);
    let parts = [Hop::Link(0), Hop::Delay(6 * MS), Hop::Delay(2 * MS)];
    assert_eq!(
        hash(bare(Duration::ZERO), &parts, &[Hop::Delay(2 * MS), Hop::Delay(6 * MS)]).0,
        one
    );
}

#[test]
fn acks_queue_on_the_return_path() {
    // The way back carries 66 bytes per acknowledgement of two segments each. 0.2 Mbit/s carry 379
    // acknowledgements a second, and so 8.78 Mbit/s of payload, less than the way out.
    let links = vec![link("out", 16, 10 * MS, "200p"), link("back", 0, 10 * MS, "100p")];
    let mut plan = network(links, vec![flow(window(60), GREEDY, &[Hop::Link(0)], &[Hop::Link(1)])]);
    plan.links[1].service = Service::Rate(Rate::from_bits_per_sec(200_000));
    plan.stop = Duration::from_secs(30);
    let mut simulation = run(&plan);
    let goodput = simulation.flow_metrics(0).unwrap().mean_throughput_l4;
    let expected = 2.0 * 1448.0 * 8.0 * 200_000.0 / (66.0 * 8.0) / 1e6;
    assert!((goodput / expected - 1.0).abs() < 0.02, "{goodput} {expected}");
    let [out, back] = [0, 1].map(|index| simulation.link_metrics(index));
    assert!(back.mean_qdisc_length_l2 > 15.0 && out.mean_qdisc_length_l2 < 5.0, "{out:?} {back:?}");
}

#[test]
fn flow_means_end_at_stop_but_counts_continue() {
    let links = vec![link("out", 16, 10 * MS, "300p"), link("back", 16, 10 * MS, "300p")];
    let mut bulk = flow(window(60), GREEDY, &[Hop::Link(0)], &[Hop::Link(1)]);
    (bulk.start, bulk.stop) = (Duration::from_secs(1), Some(Duration::from_secs(4)));
    let metrics = run(&network(links, vec![bulk])).flow_metrics(0).unwrap();
    let rate = 16.0 * 1448.0 / 1514.0;
    assert!((metrics.mean_throughput_l4 / rate - 1.0).abs() < 0.02, "{metrics:?}");
    assert!((metrics.mean_in_flight_l4 - 60.0).abs() < 1.0, "{metrics:?}");
    // Segments in flight at 4 s arrived later.
    let late =
        metrics.received_bytes as f64 / 1448.0 - metrics.mean_throughput_l4 * 3e6 / 8.0 / 1448.0;
    assert!((40.0..=60.0).contains(&late), "{late}");
}

#[test]
fn flows_both_ways_meet_each_other_s_acknowledgements() {
    let links = vec![link("out", 16, 10 * MS, "300p"), link("back", 8, 10 * MS, "300p")];
    let (out, back) = ([Hop::Link(0)], [Hop::Link(1)]);
    let flows = vec![flow(window(162), GREEDY, &out, &back), flow(window(80), GREEDY, &back, &out)];
    let mut simulation = run(&network(links, flows));
    let [out, back] = [0, 1].map(|index| simulation.link_metrics(index));
    // Both have the same round trip, and windows in the ratio of the rates.
    assert!(out.mean_sending_rate_l1 > 15.0 && back.mean_sending_rate_l1 > 7.2, "{out:?} {back:?}");
    let received: f64 =
        (0..2).map(|flow| simulation.flow_metrics(flow).unwrap().mean_throughput_l4).sum();
    // Of 24 Mbit/s, at most 1448/1514 are payload, minus the acknowledgements of the other flow.
    assert!((20.0..22.96).contains(&received), "{received}");
}

#[test]
fn bytes_arrive_once_over_lossy_reordering_links() {
    let bytes = 3_000_000;
    let traffic = Traffic::Source(Source::Greedy { bytes: Some(ByteCount::new(bytes)) });
    for (seed, stack) in [(1, Stack::NS3), (2, Stack::LINUX)] {
        let mut links = vec![link("out", 16, 10 * MS, "50p"), link("back", 16, 10 * MS, "50p")];
        for link in &mut links {
            link.loss = Ratio::new(0.02).unwrap();
            link.reorder = Ratio::new(0.03).unwrap();
            link.reorder_packets = 2;
        }
        let mut plan =
            network(links, vec![flow(window(20), traffic, &[Hop::Link(0)], &[Hop::Link(1)])]);
        (plan.seed, plan.stack, plan.stop) = (seed, stack, Duration::from_secs(300));
        let mut simulation = run(&plan);
        let metrics = simulation.flow_metrics(0).unwrap();
        assert_eq!(metrics.received_bytes, bytes, "{metrics:?}");
        assert!(metrics.completed.is_some() && metrics.total_retransmissions_l4 > 20);
        let link = simulation.link_metrics(0);
        let lost = link.total_loss_drops as f64 / (link.total_loss_drops + link.packets) as f64;
        assert!((0.012..0.03).contains(&lost), "{link:?}");
    }
}

#[test]
fn link_log_agrees_with_metrics() {
    let mut bottleneck = link("bottleneck", 16, 10 * MS, "20p");
    bottleneck.loss = Ratio::new(0.01).unwrap();
    let route = [Hop::Link(0), Hop::Delay(5 * MS)];
    let datagrams = Traffic::Source(Source::Poisson {
        rate: Rate::from_mbit_per_sec(3),
        packet: ByteCount::new(500),
    });
    let flows = vec![
        flow(window(60), GREEDY, &route, &[Hop::Delay(15 * MS)]),
        flow(Spec::named("const"), datagrams, &route, &[]),
    ];
    let mut plan = network(vec![bottleneck], flows);
    plan.logged.insert(0);
    let mut simulation = run(&plan);
    let (owners, records): (Vec<Owner>, Vec<PacketRecord>) = simulation.packet_log(0).unzip();
    let link = simulation.link_metrics(0);
    let count = |fate| records.iter().filter(|it| it.fate == fate).count() as u64;
    assert_eq!(count(Fate::QueueDrop), link.total_qdisc_drops_l2);
    assert_eq!(count(Fate::Lost), link.total_loss_drops);
    assert!(count(Fate::Delivered) + count(Fate::Inside) <= link.packets + 22);
    let inside: Vec<_> = records.iter().filter(|it| it.fate == Fate::Inside).collect();
    assert!(!inside.is_empty() && inside.iter().all(|it| it.released_ns == 0));
    assert_eq!(records.iter().map(|it| it.queue_packets).max(), Some(20));
    for record in records.iter().filter(|it| it.fate == Fate::Delivered) {
        assert_eq!(record.released_ns - record.departed_ns, 10_000_000);
        assert!(record.arrived_ns < record.departed_ns);
    }
    let mut identities: Vec<u64> = records.iter().map(|it| it.identity).collect();
    identities.sort_unstable();
    assert!(identities.windows(2).all(|pair| pair[0] != pair[1]), "two packets, one identity");
    let of_datagrams = records.iter().zip(&owners).filter(|it| *it.1 == Owner::Flow(1));
    assert!(of_datagrams.clone().count() > 7000);
    assert!(of_datagrams.clone().all(|it| it.0.bytes == 500));
    let sent = simulation.flow_metrics(1).unwrap().data_packets_sent;
    assert_eq!(of_datagrams.count() as u64, sent);
    // Taken out during the run, the log is the same and never exceeds the packets on the link.
    let mut parts = Simulation::new(&plan).unwrap();
    let mut taken = Vec::new();
    while parts.now() < simulation.now() {
        parts.run_until(parts.now() + 10 * MS);
        parts.take_packets(0, |_, record| taken.push(record));
        assert!(parts.packet_log(0).count() < 100, "queue, server and line, of {}", records.len());
    }
    taken.extend(parts.packet_log(0).map(|(_, record)| record));
    assert!(taken == records);
    // A log does not change the run.
    let hash = simulation.event_hash();
    plan.logged.clear();
    assert_eq!(run(&plan).event_hash(), hash);
}

#[test]
fn a_trace_is_the_rate_of_its_link() {
    // Opportunities of 1514 bytes, one a millisecond on average: three in every third millisecond.
    let trace = Trace::parse("t", "3\n3\n3\n").unwrap();
    let mut bottleneck = link("bottleneck", 0, 10 * MS, "100p");
    bottleneck.service = Service::Trace(Arc::new(trace));
    let route = [Hop::Link(0)];
    let plan =
        network(vec![bottleneck], vec![flow(window(60), GREEDY, &route, &[Hop::Delay(10 * MS)])]);
    let mut simulation = Simulation::new(&plan).unwrap();
    let mut received = |secs| {
        simulation.run_until(seconds(secs));
        simulation.flow_metrics(0).unwrap().received_bytes
    };
    let (first, last) = (received(1.0), received(10.0));
    assert_eq!((last - first) / 1448, 9000);
}

/// The packets of 100 datagrams a second over a link with this trace, by the times of departure (ms).
fn replayed(text: &str, at_end: AtEnd, overtakes: Option<bool>) -> Vec<(u64, PacketRecord)> {
    let mut way = link("way", 100, 10 * MS, "100p");
    way.traces.push(Replay { trace: PathTrace::parse("t", text).unwrap().into(), at_end });
    way.overtakes = overtakes;
    let (rate, packet) = (Rate::from_bits_per_sec(1_200_000), ByteCount::new(1500));
    let traffic = Traffic::Source(Source::Cbr { rate, packet });
    let mut plan = network(vec![way], vec![flow(window(1), traffic, &[Hop::Link(0)], &[])]);
    plan.logged.insert(0);
    let simulation = run(&plan);
    let records = simulation.packet_log(0).map(|(_, record)| record);
    let mut all: Vec<_> = records.map(|it| (it.departed_ns / 1_000_000, it)).collect();
    all.retain(|(_, record)| record.fate != Fate::Inside);
    all
}

#[test]
fn delay_follows_the_trace_in_order() {
    let text = "time_s,delay_ms\n0,80\n1,5\n2,\n";
    let delay_ms = |record: &PacketRecord| (record.released_ns - record.departed_ns) / 1_000_000;
    for (at_end, later_ms) in [(AtEnd::Repeat, 80), (AtEnd::Hold, 5)] {
        let all = replayed(text, at_end, Some(false));
        assert!(all.iter().map(|(_, record)| record.released_ns).is_sorted());
        for (at_ms, record) in &all {
            let expected = match at_ms {
                0..1000 => 80,
                // Packets from before the change arrive until 1080 ms.
                1000..1080 => continue,
                1080..2000 => 5,
                2000..3000 => later_ms,
                _ => continue,
            };
            assert_eq!(delay_ms(record), expected, "{at_ms} ms");
        }
    }
    let all = replayed(text, AtEnd::Repeat, Some(true));
    let fallen = all.iter().filter(|(at_ms, _)| (1000..2000).contains(at_ms));
    assert!(fallen.clone().count() > 90 && fallen.clone().all(|(_, it)| delay_ms(it) == 5));
    assert!(!all.iter().map(|(_, record)| record.released_ns).is_sorted());
}

#[test]
fn loss_follows_the_trace() {
    let text = "time_s,loss\n0,0\n1,1\n2,0.5\n4,0\n5,\n";
    let lost = |all: &[(u64, PacketRecord)], from: u64, to: u64| {
        let among = all.iter().filter(|(_, it)| (from..to).contains(&(it.arrived_ns / 1_000_000)));
        among.filter(|(_, record)| record.fate == Fate::Lost).count()
    };
    let all = replayed(text, AtEnd::Repeat, None);
    assert_eq!([(0, 1000), (1000, 2000)].map(|(from, to)| lost(&all, from, to)), [0, 100]);
    assert_eq!([(4000, 6000), (6000, 7000)].map(|(from, to)| lost(&all, from, to)), [0, 100]);
    // Five standard errors of 200 draws.
    assert!((65..135).contains(&lost(&all, 2000, 4000)), "{}", lost(&all, 2000, 4000));
    let again = replayed(text, AtEnd::Repeat, None);
    assert!(all.iter().map(|(_, it)| it.fate).eq(again.iter().map(|(_, it)| it.fate)));
    assert_eq!(lost(&replayed(text, AtEnd::Hold, None), 5000, 9000), 0);
}

#[test]
fn written_connection_reports_reads_and_times() {
    let links = vec![link("out", 8, 10 * MS, "100p")];
    let route = [Hop::Link(0)];
    let plan =
        network(links, vec![flow(window(10), Traffic::Written, &route, &[Hop::Delay(10 * MS)])]);
    let mut simulation = Simulation::new(&plan).unwrap();
    assert_eq!(simulation.run_until_read(seconds(1.0)), None);
    assert_eq!(simulation.now(), seconds(1.0));
    assert_eq!(simulation.write(0, 2000), Some(2));
    assert_eq!(simulation.write(0, 100), Some(3));
    let mut reads = Vec::new();
    while let Some(read) = simulation.run_until_read(seconds(2.0)) {
        reads.push((read.number, simulation.now()));
    }
    // 1514, 618 and 166 bytes at 8 Mbit/s, plus 10 ms.
    let expected = [(1, 1.011514), (2, 1.012132), (3, 1.012298)];
    assert_eq!(reads, expected.map(|(segments, secs)| (segments, seconds(secs))));
    let end = simulation.write(0, 5_000_000);
    let mut last = 3;
    while let Some(read) = simulation.run_until_read(seconds(10.0)) {
        assert!(read.flow == 0 && read.number > last);
        last = read.number;
    }
    assert_eq!(Some(last), end);
    assert_eq!(simulation.flow_metrics(0).unwrap().received_bytes, 5_002_100);
    assert_eq!(simulation.write(7, 1000), None);
}

#[test]
fn a_flow_ends_when_it_is_told_to() {
    let cbr = Traffic::Source(Source::Cbr {
        rate: Rate::from_mbit_per_sec(4),
        packet: ByteCount::new(1000),
    });
    let route = [Hop::Link(0)];
    let mut flows = vec![
        flow(Spec::named("const"), cbr, &route, &[]),
        flow(window(10), GREEDY, &route, &[Hop::Delay(10 * MS)]),
    ];
    flows[0].stop = Some(Duration::from_secs(2));
    flows[1].stop = Some(Duration::from_secs(3));
    let plan = network(vec![link("out", 40, 10 * MS, "100p")], flows);
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.run_until(seconds(3.1));
    let events = simulation.events();
    assert_eq!(simulation.flow_metrics(0).unwrap().data_packets_sent, 1000);
    assert!(simulation.flow_metrics(1).unwrap().received_bytes > 1_000_000);
    simulation.run();
    assert!(simulation.events() - events < 3, "something went on");
}

#[test]
fn round_robin_packets_use_both_paths() {
    let links = vec![link("upper", 8, 10 * MS, "100p"), link("lower", 8, 10 * MS, "100p")];
    let both = [Hop::Spread(vec![vec![Hop::Link(0)], vec![Hop::Link(1)]])];
    let plan = network(links, vec![flow(window(60), GREEDY, &both, &[Hop::Delay(10 * MS)])]);
    let mut simulation = run(&plan);
    let [upper, lower] = [0, 1].map(|index| simulation.link_metrics(index).packets);
    assert!(upper.abs_diff(lower) <= 60, "{upper} {lower}");
    // The paths are alike, so packets arrive in order and both paths are full.
    assert!(simulation.flow_metrics(0).unwrap().mean_throughput_l4 > 15.0);
}

#[test]
fn branching_link_forwards_each_flow_correctly() {
    let links = vec![link("shared", 16, 5 * MS, "50p"), link("far", 100, 30 * MS, "50p")];
    let flows = vec![
        flow(window(5), GREEDY, &[Hop::Link(0)], &[Hop::Delay(5 * MS)]),
        flow(window(5), GREEDY, &[Hop::Link(0), Hop::Link(1)], &[Hop::Delay(5 * MS)]),
        flow(window(5), GREEDY, &[Hop::Link(0), Hop::Delay(50 * MS)], &[Hop::Delay(5 * MS)]),
    ];
    let mut simulation = run(&network(links, flows));
    let mut srtt = |flow| simulation.flow_metrics(flow).unwrap().mean_srtt_l4;
    for (flow, least_ms) in [(0, 10.0), (1, 40.0), (2, 60.0)] {
        // Up to 15 packets of 0.757 ms before each in the shared queue.
        assert!((least_ms..least_ms + 12.0).contains(&srtt(flow)), "{flow}: {}", srtt(flow));
    }
    let far = simulation.link_metrics(1).packets;
    let sent = simulation.flow_metrics(1).unwrap().data_packets_sent;
    assert!(sent.abs_diff(far) <= 5, "{sent} {far}");
}

#[test]
fn flow_follows_a_random_walk_rate() {
    let mut bottleneck = link("bottleneck", 16, 5 * MS, "100p");
    bottleneck.walks.push(Walk {
        interval: 100 * MS,
        correlation: 0.5,
        deviation: 1e6,
        min: 4e6,
        max: 16e6,
        ..Walk::default()
    });
    let plan = network(
        vec![bottleneck],
        vec![flow(window(80), GREEDY, &[Hop::Link(0)], &[Hop::Delay(5 * MS)])],
    );
    let simulation = run(&plan);
    let bins = simulation.flow_bins(0);
    let rates: Vec<f64> = bins.iter().map(|bin| f64::from(bin.bytes) * 8.0 * 20.0 / 1e6).collect();
    let least = rates.iter().skip(10).fold(f64::MAX, |least, rate| least.min(*rate));
    let most = rates.iter().fold(0.0, |most: f64, rate| most.max(*rate));
    assert!(least > 3.4 && least < 9.0 && most > 10.0 && most < 15.6, "{least} {most}");
    assert_eq!(run(&plan).event_hash(), simulation.event_hash());
}

#[test]
fn what_cannot_be_is_refused() {
    let good = || {
        let route = [Hop::Link(0)];
        network(vec![link("l", 16, 5 * MS, "10p")], vec![flow(window(5), GREEDY, &route, &[])])
    };
    assert!(Simulation::new(good()).is_ok());
    let refused = |change: &dyn Fn(&mut Network)| {
        let mut plan = good();
        change(&mut plan);
        Simulation::new(&plan).err().map(|error| error.key)
    };
    assert_eq!(refused(&|it| it.flows[0].data = vec![Hop::Link(1)]), Some("route".into()));
    assert_eq!(refused(&|it| it.flows[0].data.push(Hop::Link(0))), Some("route".into()));
    assert_eq!(refused(&|it| it.flows[0].back = vec![Hop::Spread(vec![])]), Some("spread".into()));
    assert_eq!(refused(&|it| it.links.push(it.links[0].clone())), Some("name".into()));
    let walk = Walk {
        property: Property::Loss,
        interval: MS,
        deviation: 0.1,
        max: 1.5,
        ..Walk::default()
    };
    assert_eq!(refused(&|it| it.links[0].walks.push(walk)), Some("l.max".into()));
}

#[test]
fn tap_sees_all_packets_and_changes_nothing() {
    let bottleneck = link("bottleneck", 16, 10 * MS, "20p");
    let route = [Hop::Link(0)];
    let datagrams = Traffic::Source(Source::Cbr {
        rate: Rate::from_mbit_per_sec(1),
        packet: ByteCount::new(500),
    });
    let flows = vec![
        flow(Spec::named("newreno"), GREEDY, &route, &[Hop::Delay(15 * MS)]),
        flow(Spec::named("const"), datagrams, &route, &[]),
    ];
    let plan = network(vec![bottleneck], flows);
    let mut watched = Simulation::new(&plan).unwrap();
    watched.watch_endpoints();
    watched.run();
    assert_eq!(watched.event_hash(), run(&plan).event_hash());
    let seen = watched.take_seen();
    assert!(watched.take_seen().is_empty());
    let count = |is: fn(&Seen) -> bool| seen.iter().filter(|it| is(it)).count() as u64;
    assert_eq!(count(|it| matches!(it, Seen::Received(_))), watched.packets());
    let metrics = watched.flow_metrics(0).unwrap();
    let mut numbers: Vec<u32> = Vec::new();
    for one in &seen {
        if let Seen::Sent(Sent { segment: Some(segment), is_back: false, .. }) = one {
            numbers.extend(segment.data);
        }
    }
    let sent = numbers.len();
    assert_eq!(sent as u64, metrics.data_packets_sent);
    numbers.sort_unstable();
    numbers.dedup();
    let again = (sent - numbers.len()) as u64;
    assert_eq!(again, metrics.total_retransmissions_l4);
    let lost = count(|it| matches!(it, Seen::Lost { .. }));
    assert!(lost > 20 && lost.abs_diff(again) < again / 2, "{lost} lost, {again} sent again");
    let recovering = |it: &Seen| matches!(it, Seen::State { state, .. } if state.is_recovering);
    assert!(count(recovering) > 100);
    let is_sacking = |it: &Seen| {
        matches!(it, Seen::Sent(Sent { segment: Some(segment), is_back: true, .. })
            if !segment.blocks.is_empty() && segment.echo.is_some())
    };
    assert!(count(is_sacking) > 100);
    // Until the first loss no threshold is known.
    let first = seen.iter().find_map(|it| match it {
        Seen::State { state, .. } => Some(*state),
        _ => None,
    });
    let first = first.unwrap();
    assert_eq!((first.ssthresh, first.in_flight), (None, ByteCount::new(10 * 1448)));
    assert!(first.rtt.is_some_and(|rtt| rtt.min >= 25 * MS && rtt.latest >= rtt.min));
}
