//! Simulated observations of a probe, and whether its verdict matches the queue at the bottleneck.

use std::collections::BTreeMap;

use forebay_core::link::Service;
use forebay_core::probe::{
    Answer, Findings, FlowLook, Load, LoadPhase, Observed, Ping, Reason, judge,
};
use forebay_core::spec::Spec;
use forebay_core::traffic::Source;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::Link;
use forebay_sim::network::{Hop, Network};
use forebay_sim::{Change, Dumbbell, Flow, Owner, Seen, Simulation, Stack};

/// Number of source ports for pings.
const PORTS: usize = 8;
/// Time between two pings of a port.
const PING_INTERVAL: Duration = Duration::from_millis(40);
/// Bytes of a ping on the wire.
const PING_BYTES: u64 = 82;

/// Connections of the first phase with load.
const FEW: u16 = 2;
/// Connections of the second phase with load.
const MANY: u16 = 8;
/// Time between two looks at the counters.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Idle, a few connections, all connections: like a probe of 8 s.
const LOAD: Load = Load {
    few: LoadPhase { flows: FEW, from: at(2_500), to: at(5_200) },
    many: LoadPhase { flows: MANY, from: at(5_200), to: at(10_500) },
};
/// End of the run, a second after the load.
const STOP: Duration = Duration::from_millis(11_500);

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn since_start(time: Timestamp) -> Duration {
    time.saturating_since(Timestamp::ZERO)
}

/// A path of `mbit_per_sec` Mbit/s whose pings start one after the other; some ports have another round trip.
fn path(mbit_per_sec: u64, rtt: Duration, qdisc: &str) -> Dumbbell {
    let ping = |port: usize| Flow {
        cc: Spec::named("cubic"),
        source: Source::Cbr {
            rate: ByteCount::new(PING_BYTES).per(PING_INTERVAL).unwrap(),
            packet: ByteCount::new(PING_BYTES),
        },
        start: PING_INTERVAL * port as u32 / PORTS as u32,
        rtt: None,
    };
    let greedy = |flow: u16| {
        let phase = if flow < FEW { LOAD.few } else { LOAD.many };
        let source = Source::Greedy { bytes: None };
        Flow { cc: Spec::named("cubic"), source, start: since_start(phase.from), rtt: None }
    };
    Dumbbell {
        stop: STOP,
        seed: 1,
        stack: Stack::LINUX,
        rate: Rate::from_mbit_per_sec(mbit_per_sec),
        rtt,
        loss: Ratio::ZERO,
        qdisc: qdisc.parse().unwrap(),
        changes: Vec::new(),
        flows: (0..PORTS).map(ping).chain((0..MANY).map(greedy)).collect(),
    }
}

/// Observations of a probe of that path if the peer reports no times and routers are silent.
fn observed(path: &Dumbbell) -> Observed {
    observed_over(path, Network::from(path))
}

/// Like [`observed`], with `network` made from `path` and then changed.
fn observed_over(path: &Dumbbell, network: Network) -> Observed {
    let mut simulation = Simulation::new(network).unwrap();
    simulation.watch_endpoints();
    let (mut looks, mut seen) = (Vec::new(), Vec::new());
    for step in 1.. {
        let now = Timestamp::ZERO + LOOK_INTERVAL * step;
        if since_start(now) > path.stop {
            break;
        }
        simulation.run_until(now);
        seen.extend(simulation.take_seen());
        let flows = if now > LOAD.many.to { 0 } else { MANY };
        for flow in 0..flows {
            let index = PORTS + usize::from(flow);
            let Some(state) = simulation.sender_state(index) else { continue };
            let Some(srtt_ms) = state.srtt_ms else { continue };
            let sent = simulation.flow_metrics(index).unwrap().data_packets_sent;
            looks.push(FlowLook {
                at: now,
                flow,
                srtt: Duration::from_secs_f64(srtt_ms / 1e3),
                acked: ByteCount::new(state.delivered_bytes.unwrap_or(0)),
                sent,
                resent: state.retransmissions,
                busy: since_start(now),
                window_limited: Duration::ZERO,
            });
        }
    }
    Observed {
        pings: pings(path, &seen),
        looks,
        load: Some(LOAD),
        max_rate: Rate::from_mbit_per_sec(1_000),
        site_hops: 1,
        ..Observed::default()
    }
}

/// Pings whose answers return immediately over an idle way back.
fn pings(path: &Dumbbell, seen: &[Seen]) -> Vec<Ping> {
    let received = seen.iter().filter_map(|seen| match seen {
        Seen::Received(received) => Some((received.identity, received.at)),
        _ => None,
    });
    let received: BTreeMap<u64, Timestamp> = received.collect();
    let ping = |seen: &Seen| {
        let Seen::Sent(sent) = seen else { return None };
        let Owner::Flow(port) = sent.conversation.owner else { return None };
        if port >= PORTS || sent.is_back || sent.at >= LOAD.many.to {
            return None;
        }
        let back = path.flows[port].rtt.unwrap_or(path.rtt) / 2;
        let rtt = received.get(&sent.identity).map(|at| at.saturating_since(sent.at) + back);
        Some(Ping { at: sent.at, port: port as u16, rtt, forward_ns: None })
    };
    seen.iter().filter_map(ping).collect()
}

/// Asserts that a probe of `path` ends with `reason`.
fn expect(path: &Dumbbell, reason: Reason) -> Findings {
    let found = Findings::of(&observed(path));
    let verdict = judge(&found, None);
    assert_eq!(verdict.reason, reason, "{} {:?} {}: {found:?}", path.rate, path.rtt, path.qdisc);
    found
}

/// `path` with `count` Cubic flows of other senders, from before the load on.
fn shared(path: Dumbbell, count: usize) -> Dumbbell {
    let source = Source::Greedy { bytes: None };
    let flow = Flow { cc: Spec::named("cubic"), source, start: Duration::ZERO, rtt: None };
    let flows = path.flows.into_iter().chain(vec![flow; count]).collect();
    Dumbbell { flows, ..path }
}

/// `path` whose packets take up to `jitter` longer on the way out, in order.
fn jittery(path: &Dumbbell, jitter: Duration) -> Network {
    let mut network = Network::from(path);
    network.links[1].jitter = jitter;
    network
}

/// Rates of the paths in Mbit/s.
const RATES: [u64; 3] = [5, 20, 50];
/// Round-trip times of the paths without queue.
const RTTS: [Duration; 3] = [ms(20), ms(40), ms(100)];

fn paths() -> impl Iterator<Item = (u64, Duration)> {
    RATES.into_iter().flat_map(|rate| RTTS.map(|rtt| (rate, rtt)))
}

#[test]
fn probe_measures_queue_in_plain_buffer() {
    for (rate, rtt) in paths() {
        for times in [1, 2, 4] {
            let buffer = Rate::from_mbit_per_sec(rate).bytes_in(rtt * times).as_u64() / 1514;
            let longest =
                ByteCount::new(buffer * 1514).time_at(Rate::from_mbit_per_sec(rate)).unwrap();
            // Another test covers shorter ones.
            if longest < ms(30) {
                continue;
            }
            let path = path(rate, rtt, &format!("fifo(limit={buffer}p)"));
            let found = expect(&path, Reason::QueueInTheMiddle);
            let verdict = judge(&found, None);
            assert_eq!(verdict.answer, Answer::Yes);
            assert!(
                found.queue <= longest && 3 * found.queue >= longest,
                "{found:?} of {longest:?}"
            );
            assert!(verdict.gain < found.queue);
            let reached = found.rate.as_bits_per_sec() as f64 / path.rate.as_bits_per_sec() as f64;
            assert!((0.8..=1.0).contains(&reached), "{reached} of {} {rtt:?}", path.rate);
        }
    }
}

#[test]
fn a_queue_that_is_managed_is_left_alone() {
    for rtt in RTTS {
        for qdisc in ["codel", "fq_codel", "pie", "sfq(limit=400p)"] {
            expect(&path(20, rtt, qdisc), Reason::QueueManaged);
            // The queue is so short that the path may look policed or not full: no bundle would help.
            let found = Findings::of(&observed(&path(50, rtt, qdisc)));
            assert_ne!(judge(&found, None).answer, Answer::Yes, "{qdisc} {rtt:?}: {found:?}");
        }
    }
}

#[test]
fn a_policer_is_told_from_loss_by_chance() {
    for rate in [10, 20] {
        for rtt in [ms(20), ms(40), ms(80)] {
            let qdisc = format!("policer(rate={rate}Mbit/s)");
            expect(&path(100, rtt, &qdisc), Reason::Policer);
        }
    }
    for share in [0.01, 0.03] {
        for rtt in [ms(30), ms(60)] {
            let loss = Ratio::new(share).unwrap();
            let path = Dumbbell { loss, ..path(100, rtt, "fifo(limit=800p)") };
            expect(&path, Reason::LossByChance);
        }
    }
}

#[test]
fn ways_of_different_lengths_are_noticed() {
    for (rate, rtt) in paths() {
        let mut path = path(rate, rtt, "fifo(limit=200p)");
        // Every third port and every third connection takes the long way.
        for flow in path.flows.iter_mut().step_by(3) {
            flow.rtt = Some(rtt + ms(15));
        }
        let found = expect(&path, Reason::UnbalancedWays);
        assert!(found.detour.abs_diff(ms(15)) < ms(2), "{found:?}");
    }
}

#[test]
fn fair_queues_are_no_several_ways() {
    // Busy flows of other senders raise the wait of pings before the load; some ports share a queue with such
    // a flow.
    for qdisc in ["sfq(limit=400p)", "drr", "fq_codel"] {
        for (rate, cross) in [(5, 4), (10, 20), (20, 20), (50, 60)] {
            let path = shared(path(rate, ms(10), qdisc), cross);
            let found = Findings::of(&observed(&path));
            assert_eq!(
                judge(&found, None).reason,
                Reason::QueueManaged,
                "{qdisc} {rate}: {found:?}"
            );
        }
    }
    // There connections wait separately, and pings of all ports wait equally long.
    let shared = shared(path(50, ms(100), "sfq(limit=100p)"), 1);
    expect(&shared, Reason::QueueManaged);
}

#[test]
fn ways_of_unlike_queues_are_noticed() {
    let path = path(20, ms(40), "fifo(limit=100p)");
    let mut network = Network::from(&path);
    // Two links of half the rate; one has the longer buffer.
    let half = Rate::from_mbit_per_sec(10);
    network.links[0].service = Service::Rate(half);
    let qdisc = "fifo(limit=20p)".parse().unwrap();
    network.links.push(Link::at_rate("other", half, Duration::ZERO, qdisc));
    let other = network.links.len() - 1;
    for flow in &mut network.flows {
        flow.data[0] = Hop::Hashed(vec![vec![Hop::Link(0)], vec![Hop::Link(other)]]);
    }
    let found = Findings::of(&observed_over(&path, network));
    assert_eq!(judge(&found, None).reason, Reason::UnbalancedWays, "{found:?}");
    assert!(found.uneven > ms(10) && found.detour.is_zero(), "{found:?}");
}

#[test]
fn jitter_is_no_queue() {
    for jitter in [ms(5), ms(20), ms(40)] {
        // A rate that no flow fills, or a buffer of 7 ms; below, a buffer of 48 ms.
        for (rate, qdisc) in [(2_000, "fifo(limit=1000p)"), (50, "fifo(limit=30p)")] {
            let path = path(rate, ms(40), qdisc);
            let found = Findings::of(&observed_over(&path, jittery(&path, jitter)));
            assert_eq!(judge(&found, None).answer, Answer::No, "{jitter:?} {qdisc}: {found:?}");
        }
        let path = path(50, ms(40), "fifo(limit=200p)");
        let found = Findings::of(&observed_over(&path, jittery(&path, jitter)));
        assert_eq!(judge(&found, None).answer, Answer::Yes, "{jitter:?}: {found:?}");
    }
}

#[test]
fn only_queues_count_without_a_load() {
    let gentle = |path: &Dumbbell, network: Network| {
        let observed = observed_over(path, network);
        let found = Findings::of(&Observed { load: None, ..observed });
        (judge(&found, None).reason, found)
    };
    let unloaded = |mut path: Dumbbell| {
        path.flows.truncate(PORTS);
        path
    };
    for cross in [1, 4, 20] {
        for (rate, limit) in [(10, 100), (50, 200)] {
            let path = path(rate, ms(40), &format!("fifo(limit={limit}p)"));
            let path = shared(unloaded(path), cross);
            let (reason, found) = gentle(&path, Network::from(&path));
            assert_eq!(reason, Reason::QueueInTheMiddle, "{cross} {rate}: {found:?}");
        }
    }
    let path = unloaded(path(50, ms(40), "fifo(limit=200p)"));
    for jitter in [ms(5), ms(20), ms(40)] {
        let (reason, found) = gentle(&path, jittery(&path, jitter));
        assert_eq!(reason, Reason::NotLoaded, "{jitter:?}: {found:?}");
    }
    // The path becomes longer and stays so.
    let change = Change { at: ms(1_500), rtt: Some(ms(70)), ..Change::default() };
    let path = Dumbbell { changes: vec![change], ..path };
    let (reason, found) = gentle(&path, Network::from(&path));
    assert_eq!(reason, Reason::NotLoaded, "{found:?}");
    assert!(found.median_queue > ms(10));
}

#[test]
fn rate_that_changes_leaves_the_answer_unclear() {
    let changed = |mbit_per_sec| {
        // In the middle of the evaluated time.
        let rate = Some(Rate::from_mbit_per_sec(mbit_per_sec));
        let change = Change { at: ms(8_500), rate, ..Change::default() };
        Dumbbell { changes: vec![change], ..path(20, ms(40), "fifo(limit=132p)") }
    };
    for mbit_per_sec in [10, 17, 24] {
        let found = expect(&changed(mbit_per_sec), Reason::UnsteadyRate);
        let [one, other] = found.half_rates.map(Rate::as_mbit_per_sec_f64);
        assert!((one - 20.0).abs() < 2.0, "{one}");
        assert!((other - mbit_per_sec as f64).abs() < 2.0, "{other}");
    }
    expect(&changed(19), Reason::QueueInTheMiddle);
}
