//! Two sites and the path between them, and figures of a run.

use std::fmt::Debug;

use forebay_core::bundle::decision::Decision;
use forebay_core::clock::Clock;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::{self as scenario, Bundle, Link};
use forebay_sim::network::{BundleChange, Flow, Hop, Network, RoutedBundle, Traffic, Upset};
use forebay_sim::{Simulation, Stack};

/// The controllers that each case runs with.
pub const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];
/// A millisecond.
pub const MS: Duration = Duration::from_millis(1);
/// A flow that always has data.
pub const GREEDY: Traffic = Traffic::Source(Source::Greedy { bytes: None });
/// Bytes of a full segment on the wire.
pub const PACKET: ByteCount = ByteCount::new(1514);

pub fn seconds(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

pub fn at(secs: f64) -> Timestamp {
    Timestamp::ZERO + seconds(secs)
}

pub fn mbit(mbit: u64) -> Rate {
    Rate::from_mbit_per_sec(mbit)
}

pub fn queue(kind: &str, limit: &str) -> Spec {
    Spec::named(kind).with("limit", Value::Text(limit.into()))
}

/// A stream of full packets that does not respond to congestion.
pub fn cbr(rate: Rate) -> Traffic {
    Traffic::Source(Source::Cbr { rate, packet: PACKET })
}

/// A path for 40 s without bundles or flows. Link 0 goes forward and has a FIFO of `buffer`; link 1 goes back
/// and only delays.
pub fn path(rate: Rate, rtt: Duration, buffer: &str) -> Network {
    let links = vec![
        Link::at_rate("forward", rate, rtt / 2, queue("fifo", buffer)),
        Link::delay("back", rtt / 2),
    ];
    Network::of_links(Duration::from_secs(40), 1, Stack::LINUX, links)
}

/// A bundle over the [`path`] whose limits always hold. `supervised.rs` and `outside.rs` have bundles whose
/// limits must pay.
pub fn bundle(name: &str, law: &str, qdisc: Spec) -> RoutedBundle {
    let of = Bundle { supervised: false, ..Bundle::new(name, Spec::named(law), qdisc) };
    let bundle = RoutedBundle::new(of, vec![Hop::Link(0)], vec![Hop::Link(1)]);
    RoutedBundle { log: true, ..bundle }
}

/// A flow from the start of the run, through the bundle or link that is its hop.
pub fn flow(cc: &str, traffic: Traffic, hop: Hop) -> Flow {
    Flow {
        cc: Spec::named(cc),
        traffic,
        start: Duration::ZERO,
        opened: None,
        stop: None,
        dscp: 0,
        name: String::new(),
        initial_window: None,
        receiving: Receiving::default(),
        data: vec![hop],
        back: vec![Hop::Link(1)],
    }
}

/// A Cubic flow in the first bundle for the whole run.
pub fn cubic() -> Flow {
    flow("cubic", GREEDY, Hop::Bundle(0))
}

/// A bundle without flows, over a buffer of three bandwidth-delay products. Boxes behave as in user space:
/// reports leave the receivebox up to 2 ms late, its stamps are up to 0.2 ms late, and its clock is fast.
pub fn bundled(law: &str, mbit_per_s: u64, rtt_ms: u32) -> Network {
    let (rate, rtt) = (mbit(mbit_per_s), MS * rtt_ms);
    let buffer = (3 * rate.bytes_in(rtt).as_u64() / PACKET.as_u64()).max(60);
    let sfq = queue("sfq", &format!("{}p", buffer.max(1200)));
    let mut bundle = bundle("a", law, sfq);
    (bundle.of.report_jitter, bundle.of.timestamp_jitter) = (2 * MS, MS / 5);
    bundle.of.clock = Clock::fast_by(50.0);
    Network { bundles: vec![bundle], ..path(rate, rtt, &format!("{buffer}p")) }
}

/// Flows that always offer a bundle twice the rate of its path, once its boxes know each other.
pub fn backlog(mbit_per_s: u64, bundle: usize) -> Vec<Flow> {
    let traffic = cbr(Rate::from_bits_per_sec(mbit_per_s * 500_000));
    vec![Flow { start: seconds(1.0), ..flow("const", traffic, Hop::Bundle(bundle)) }; 4]
}

/// A bundle with a backlog.
pub fn backlogged(law: &str, mbit_per_s: u64, rtt_ms: u32) -> Network {
    Network { flows: backlog(mbit_per_s, 0), ..bundled(law, mbit_per_s, rtt_ms) }
}

/// A bundle with Cubic flows.
pub fn loaded(law: &str, mbit_per_s: u64, rtt_ms: u32, flows: usize) -> Network {
    Network { flows: vec![cubic(); flows], ..bundled(law, mbit_per_s, rtt_ms) }
}

/// `network` with `count` bundles like its first.
pub fn in_bundles(mut network: Network, count: usize) -> Network {
    let named = |index| {
        let mut bundle = network.bundles[0].clone();
        bundle.of.name = format!("bundle {index}");
        bundle
    };
    network.bundles = (0..count).map(named).collect();
    network
}

/// `network` with a buffer of `packets` packets.
pub fn with_buffer(mut network: Network, packets: usize) -> Network {
    network.links[0].qdisc = queue("fifo", &format!("{packets}p"));
    network
}

/// Loses this share of the packets before the bottleneck, from `from_s` on.
pub fn lose(network: &mut Network, from_s: f64, share: f64) {
    let mut lossy = Link::delay("lossy", Duration::ZERO);
    let loss = Ratio::new(share);
    lossy.changes =
        vec![scenario::Change { at: seconds(from_s), loss, ..scenario::Change::default() }];
    network.links.push(lossy);
    network.bundles[0].path.insert(0, Hop::Link(network.links.len() - 1));
}

/// Five seconds of load and 35 without, then a request of 10 packets, then four flows from 45 s to 55 s.
pub fn with_idle_time(law: &str) -> Network {
    let greedy = |packets: u64| {
        Traffic::Source(Source::Greedy { bytes: Some(ByteCount::new(packets * 1448)) })
    };
    let load = Flow { traffic: greedy(35_000), ..cubic() };
    let opened = Some(50 * MS);
    let request = Flow { traffic: greedy(10), start: seconds(40.0), opened, ..cubic() };
    let mut flows = vec![load, request];
    flows.extend(vec![Flow { start: seconds(45.0), ..cubic() }; 4]);
    Network { flows, stop: seconds(55.0), ..bundled(law, 96, 50) }
}

/// Time of the request of [`with_idle_time`] until its last acknowledgement, divided by the least possible
/// time.
pub fn slowdown_after_idle_time(trace: &mut Trace) -> f64 {
    let read = trace.simulation.flow_metrics(1).unwrap().completed.expect("it is answered");
    let took_s = read.saturating_since(at(40.0)).as_secs_f64() + 0.025;
    took_s / (0.05 + 10.0 * 1514.0 * 8.0 / 96e6)
}

pub fn upset(secs: f64, what: Upset) -> BundleChange {
    BundleChange { at: seconds(secs), what }
}

pub fn ran(network: &Network) -> Simulation {
    let mut simulation = Simulation::new(network).unwrap();
    simulation.run();
    simulation
}

/// Bytes that the first `flows` flows have received by `secs`; runs the simulation up to there.
pub fn received(simulation: &mut Simulation, flows: usize, secs: f64) -> u64 {
    simulation.run_until(at(secs));
    (0..flows).map(|flow| simulation.flow_metrics(flow).unwrap().received_bytes).sum()
}

/// Goodput of the first `flows` flows between `from_s` and `to_s` (Mbit/s).
pub fn goodput(simulation: &mut Simulation, flows: usize, from_s: f64, to_s: f64) -> f64 {
    let [before, after] = [from_s, to_s].map(|secs| received(simulation, flows, secs));
    (after - before) as f64 * 8e-6 / (to_s - from_s)
}

/// Interval of the samples in a [`Trace`] (seconds).
const STEP_S: f64 = 0.01;

/// Totals up to an instant; queues in packets times seconds.
#[derive(Clone, Debug)]
struct Sums {
    /// Mbit that the bottleneck sent, and that it could have sent.
    sent: f64,
    could: f64,
    queue: f64,
    drops: u64,
    /// Queue of each bundle's sendbox, and Mbit sent by it.
    bundles: Vec<(f64, f64)>,
}

/// A complete run.
pub struct Trace {
    pub simulation: Simulation,
    pub network: Network,
    /// Time and decision, by bundle.
    decisions: Vec<Vec<(Timestamp, Decision)>>,
    /// One entry each [`STEP_S`].
    sums: Vec<Sums>,
}

/// Figures of a part of a run.
#[derive(Clone, Debug)]
pub struct Part {
    /// Share of the bottleneck's capacity in use, 0 to 1.
    pub used: f64,
    /// Mean number of packets in the bottleneck's queue, without the packet being sent.
    pub queue: f64,
    /// Packets that the bottleneck's queue dropped.
    pub drops: u64,
    /// Mean number of packets in the queue of each bundle's sendbox.
    pub sendbox_queues: Vec<f64>,
    /// Mbit/s out of each bundle's sendbox.
    pub sent: Vec<f64>,
}

/// Rate of a link at an instant (Mbit/s).
fn rate_at(link: &Link, secs: f64) -> f64 {
    let first = link.rate().expect("the bottleneck has a rate");
    let changes = link.changes.iter().take_while(|change| change.at <= seconds(secs));
    changes.filter_map(|change| change.rate).last().unwrap_or(first).as_mbit_per_sec_f64()
}

impl Trace {
    pub fn of(network: &Network) -> Self {
        let mut simulation = Simulation::new(network).unwrap();
        let mut sums: Vec<Sums> = Vec::new();
        for step in 0..=(network.stop.as_secs_f64() / STEP_S).round() as usize {
            let secs = step as f64 * STEP_S;
            simulation.run_until(at(secs));
            let (link, last) = (simulation.link_metrics(0), sums.last());
            let rate = rate_at(&network.links[0], (secs - STEP_S).max(0.0));
            let bundles = (0..network.bundles.len()).map(|index| {
                let metrics = simulation.bundle_metrics(index);
                (metrics.mean_queue_packets * secs, metrics.counters.bytes_sent as f64 * 8e-6)
            });
            sums.push(Sums {
                sent: link.mean_sending_rate_l1 * secs,
                could: last.map_or(0.0, |last| last.could + rate * STEP_S),
                queue: link.mean_qdisc_length_l2 * secs,
                drops: link.total_qdisc_drops_l2,
                bundles: bundles.collect(),
            });
        }
        let decisions = (0..network.bundles.len())
            .map(|index| simulation.bundle_log(index).unwrap().decisions().to_vec())
            .collect();
        Self { simulation, network: network.clone(), decisions, sums }
    }

    /// Figures from one second to another.
    pub fn part(&self, from_s: f64, to_s: f64) -> Part {
        let [before, after] =
            [from_s, to_s].map(|secs| &self.sums[(secs / STEP_S).round() as usize]);
        let per_s = |sum: fn(&Sums) -> f64| (sum(after) - sum(before)) / (to_s - from_s);
        let bundles = |pick: fn(&(f64, f64)) -> f64| {
            let pairs = after.bundles.iter().zip(&before.bundles);
            pairs.map(|(after, before)| (pick(after) - pick(before)) / (to_s - from_s)).collect()
        };
        Part {
            used: (after.sent - before.sent) / (after.could - before.could),
            queue: per_s(|sums| sums.queue),
            drops: after.drops - before.drops,
            sendbox_queues: bundles(|it| it.0),
            sent: bundles(|it| it.1),
        }
    }

    /// The parts of `width_s` that end every 10 ms between `from_s` and `to_s`, with their ends.
    pub fn parts(&self, from_s: f64, to_s: f64, width_s: f64) -> impl Iterator<Item = (f64, Part)> {
        let count = ((to_s - from_s - width_s) / STEP_S).round() as usize + 1;
        (0..count).map(move |step| {
            let end_s = from_s + width_s + step as f64 * STEP_S;
            (end_s, self.part(end_s - width_s, end_s))
        })
    }

    /// Decisions of the first bundle in force every 10 ms, from one second to another.
    pub fn decisions(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = &Decision> {
        let steps = [from_s, to_s].map(|secs| (secs / STEP_S).round() as usize);
        (steps[0]..steps[1]).filter_map(|step| {
            let now = at(step as f64 * STEP_S);
            let count = self.decisions[0].partition_point(|(at, _)| *at <= now);
            count.checked_sub(1).map(|last| &self.decisions[0][last].1)
        })
    }
}

/// Fails with the observed value unless `holds`.
pub fn must(holds: bool, seen: impl Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{seen:.3?}")) }
}

/// Runs each network; panics with the names of networks that `check` rejects.
pub fn assert_each(
    cases: impl IntoIterator<Item = (String, Network)>,
    mut check: impl FnMut(&mut Trace) -> Result<(), String>,
) {
    let failed = |(name, network): (String, Network)| {
        let wrong = check(&mut Trace::of(&network)).err()?;
        Some(format!("{name}: {wrong}"))
    };
    let failed: Vec<String> = cases.into_iter().filter_map(failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Checks that the first bundle fills the path and keeps the queue at the bottleneck short.
pub fn full_and_short(trace: &Trace, from_s: f64, to_s: f64) -> Result<(), String> {
    let part = trace.part(from_s, to_s);
    must(part.used >= 0.95 && part.queue <= 15.0, (from_s, part))
}

/// Changes rate and round trip from `at_s` on.
pub fn step(network: &mut Network, at_s: f64, mbit_per_s: u64, rtt_ms: u32) {
    let (at, delay) = (seconds(at_s), Some(MS * rtt_ms / 2));
    for (index, rate) in [Some(mbit(mbit_per_s)), None].into_iter().enumerate() {
        let change = scenario::Change { at, rate, delay, ..scenario::Change::default() };
        network.links[index].changes.push(change);
    }
}

/// Sends reports of the first bundle over another way back, whose queue rises to `most` and falls again
/// every 10 s.
pub fn with_sine(network: &mut Network, most: Duration) {
    let mut way = Link::delay("reports", network.links[1].delay);
    way.changes = (1..network.stop.as_millis() as u32 / 50)
        .map(|number| {
            let at = 50 * MS * number;
            let phase = at.as_secs_f64() / 10.0 * std::f64::consts::TAU;
            let delay = Some(way.delay + most.mul_f64(0.5 - 0.5 * phase.cos()));
            scenario::Change { at, delay, ..scenario::Change::default() }
        })
        .collect();
    network.links.push(way);
    network.bundles[0].back = vec![Hop::Link(network.links.len() - 1)];
}
