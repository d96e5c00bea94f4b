//! Parking lots and parallel paths.

use std::collections::BTreeSet;

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Source};
use forebay_core::units::{Duration, Rate};
use forebay_scenario::Link;
use forebay_sim::network::{Flow, Hop, Network, Traffic};
use forebay_sim::{Owner, Simulation, Stack};

/// A millisecond.
const MS: Duration = Duration::from_millis(1);
/// Length of a run.
const STOP: Duration = Duration::from_secs(30);

fn links(mbit: u64, delays_ms: &[u32], packets: u32) -> Vec<Link> {
    let qdisc = Spec::named("fifo").with("limit", Value::Text(format!("{packets}p")));
    let link = |(index, delay_ms): (usize, &u32)| {
        let rate = Rate::from_mbit_per_sec(mbit);
        Link::at_rate(&format!("link {index}"), rate, *delay_ms * MS, qdisc.clone())
    };
    delays_ms.iter().enumerate().map(link).collect()
}

fn greedy(cc: &Spec, data: Vec<Hop>, back: Duration) -> Flow {
    Flow {
        name: String::new(),
        cc: cc.clone(),
        traffic: Traffic::Source(Source::Greedy { bytes: None }),
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp: 0,
        initial_window: None,
        receiving: Receiving::default(),
        data,
        back: vec![Hop::Delay(back)],
    }
}

/// Flow 0 over all links in a row, flow n over the n-th link alone.
///
/// ```text
///  0 ──►[link 0]──►[link 1]──► ... ──►
///     1 ──┘    └─► 2 ──┘    └─►
/// ```
fn row(links: Vec<Link>, cc: &Spec) -> Network {
    let delays: Vec<Duration> = links.iter().map(|link| link.delay).collect();
    let all = greedy(cc, (0..links.len()).map(Hop::Link).collect(), delays.iter().sum());
    let each = |(link, delay): (usize, &Duration)| greedy(cc, vec![Hop::Link(link)], *delay);
    let flows = std::iter::once(all).chain(delays.iter().enumerate().map(each)).collect();
    Network { flows, ..Network::of_links(STOP, 1, Stack::NS3, links) }
}

/// `flows` flows over parallel links, distributed by `part`.
fn side_by_side(
    links: Vec<Link>,
    part: fn(Vec<Vec<Hop>>) -> Hop,
    cc: &Spec,
    flows: usize,
) -> Network {
    let paths = (0..links.len()).map(|link| vec![Hop::Link(link)]).collect();
    let back = links.iter().map(|link| link.delay).min().unwrap();
    let flows = vec![greedy(cc, vec![part(paths)], back); flows];
    Network { flows, ..Network::of_links(STOP, 1, Stack::NS3, links) }
}

fn run(network: &Network) -> Simulation {
    let mut simulation = Simulation::new(network).unwrap();
    simulation.run();
    simulation
}

#[test]
fn fair_queues_halve_parking_lot_links() {
    let mut links = links(16, &[5, 5, 5], 300);
    let limit = Value::Text("300p".into());
    links.iter_mut().for_each(|it| it.qdisc = Spec::named("drr").with("limit", limit.clone()));
    // Windows above half of every pipe and below the limit of the queues.
    let cc = Spec::named("const").with("cwnd", Value::Text(format!("{}B", 60 * 1448)));
    let plan = row(links, &cc);
    let mut simulation = run(&plan);
    for flow in 0..4 {
        let metrics = simulation.flow_metrics(flow).unwrap();
        let share = metrics.mean_throughput_l4 / (8.0 * 1448.0 / 1502.0);
        assert!((share - 1.0).abs() < 0.02, "flow {flow}: {metrics:?}");
        assert_eq!(metrics.total_retransmissions_l4, 0);
    }
}

/// Throughput (Mbit/s) and share of resent segments, of the long flow and then of each other flow.
fn parking_lot(qdisc: Option<Spec>) -> [(f64, f64); 4] {
    let mut links = links(16, &[5, 5, 5], 30);
    if let Some(qdisc) = qdisc {
        links.iter_mut().for_each(|link| link.qdisc = qdisc.clone());
    }
    let plan = row(links, &Spec::named("newreno"));
    let mut simulation = run(&plan);
    [0, 1, 2, 3].map(|flow| {
        let metrics = simulation.flow_metrics(flow).unwrap();
        let resent = metrics.total_retransmissions_l4 as f64 / metrics.data_packets_sent as f64;
        (metrics.mean_throughput_l4, resent)
    })
}

/// Acknowledgements clock a short flow: each packet arrives as another leaves, and at a full queue the flow
/// loses only the packet by which its window grows. Packets of the long flow arrive at any time and find no
/// room at each of three full queues. A seventh of the packets is lost, and timeouts of a second determine
/// its rate (phase effects: Floyd, Jacobson, Internetworking 3, 1992).
#[test]
fn fifo_parking_lot_starves_the_long_flow() {
    let [(long, lost), cross @ ..] = parking_lot(None);
    assert!((0.05..1.0).contains(&long), "{long}");
    for (cross, cross_lost) in cross {
        assert!(lost > 20.0 * cross_lost, "{lost} {cross_lost}");
        assert!((14.0..16.0 * 1448.0 / 1502.0).contains(&(long + cross)), "{long} {cross}");
    }
}

/// If queues drop at random, flows share the losses. Reno's rate is proportional to 1 / (RTT sqrt(p)). The
/// long flow has three times the losses and up to three times the round trip: 16 / (1 + 3 sqrt(3)) = 2.6
/// Mbit/s.
#[test]
fn random_drop_parking_lot_follows_reno_formula() {
    let [(long, lost), cross @ ..] = parking_lot(Some(Spec::named("red")));
    assert!((1.3..3.9).contains(&long), "{long}");
    assert!(cross.iter().all(|(_, cross_lost)| lost < 5.0 * cross_lost), "{lost} {cross:?}");
}

#[test]
fn flows_keep_their_randomly_chosen_path() {
    let links = links(16, &[5, 25], 60);
    let cc = Spec::named("newreno");
    let mut plan = side_by_side(links, Hop::Hashed, &cc, 12);
    plan.logged = [0, 1].into();
    let simulation = run(&plan);
    let [one, other] = [0, 1].map(|link| {
        let owners = simulation.packet_log(link).map(|(owner, _)| match owner {
            Owner::Flow(flow) => flow,
            Owner::Bundle(_) => usize::MAX,
        });
        owners.collect::<BTreeSet<_>>()
    });
    assert!(one.is_disjoint(&other) && one.len() + other.len() == 12);
    // The chance that one path gets fewer than three of twelve is 4 %; the seed is fixed.
    assert!(one.len() > 2 && other.len() > 2, "{one:?} {other:?}");
}

#[test]
fn round_robin_over_unequal_paths_looks_like_loss() {
    // The window is below both pipes: nothing is dropped, so resent segments were only late.
    let cc = Spec::named("const").with("cwnd", Value::Text(format!("{}B", 40 * 1448)));
    let retransmissions = |part| {
        let plan = side_by_side(links(100, &[5, 25], 100), part, &cc, 1);
        let mut simulation = run(&plan);
        let drops = (0..2).map(|link| simulation.link_metrics(link).total_qdisc_drops_l2);
        assert_eq!(drops.sum::<u64>(), 0);
        simulation.flow_metrics(0).unwrap().total_retransmissions_l4
    };
    assert_eq!(retransmissions(Hop::Hashed), 0);
    assert!(retransmissions(Hop::Spread) > 100);
}
