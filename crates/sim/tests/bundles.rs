//! Bundles over the simulator's links: real sessions, messages and epochs, real TCP above.

use forebay_core::link;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_sim::network::{Bundle, Flow, Hop, Link, Network, Traffic};
use forebay_sim::{BundleMetrics, Owner, Simulation, Stack};

const MS: Duration = Duration::from_millis(1);
const LAWS: [&str; 3] = ["copa", "setpoint", "basic_delay"];

fn queue(kind: &str, limit: &str) -> Spec {
    Spec::named(kind).with("limit", Value::Text(limit.into()))
}

/// 96 Mbit/s, 50 ms and a buffer of 1200 packets; a Cubic flow in each bundle, which has SFQ.
fn network(laws: &[&str]) -> Network {
    let config = link::Config::at_rate(Rate::from_mbit_per_sec(96), 25 * MS);
    let forward = Link::new("forward", config, queue("fifo", "1200p"));
    let back = vec![Hop::Link(1)];
    let bundles = laws.iter().enumerate().map(|(index, law)| {
        let path = vec![Hop::Link(0)];
        let name = format!("bundle {index}");
        Bundle::new(&name, Spec::named(law), queue("sfq", "1200p"), path, back.clone())
    });
    let flows = (0..laws.len()).map(|index| Flow {
        cc: Spec::named("cubic"),
        traffic: Traffic::Source(Source::Greedy { bytes: None }),
        start: Duration::from_secs(1),
        opened: None,
        stop: None,
        data: vec![Hop::Bundle(index)],
        back: back.clone(),
    });
    Network {
        stop: Duration::from_secs(40),
        seed: 1,
        stack: Stack::LINUX,
        links: vec![forward, Link::delay("back", 25 * MS)],
        bundles: bundles.collect(),
        flows: flows.collect(),
    }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(secs)
}

/// What happened in an interval.
#[derive(Debug)]
struct Interval {
    /// Packets in the queue of the bottleneck.
    queue: f64,
    utilisation: f64,
    /// Packets in the queue of each sendbox.
    sendbox_queues: Vec<f64>,
    /// Bytes received of each flow.
    received: Vec<u64>,
}

/// Runs `network` and looks at the time between `from` and `to`.
fn interval(simulation: &mut Simulation, network: &Network, from: u64, to: u64) -> Interval {
    let mut sums = |secs: u64| {
        simulation.run_until(at(secs));
        let link = simulation.link_metrics(0);
        let queues = (0..network.bundles.len())
            .map(|index| simulation.bundle_metrics(index).mean_queue_packets * secs as f64);
        let queues: Vec<f64> = queues.collect();
        let received = (0..network.flows.len())
            .map(|index| simulation.flow_metrics(index).unwrap().received_bytes);
        let received: Vec<u64> = received.collect();
        let secs = secs as f64;
        (link.mean_qdisc_length_l2 * secs, link.mean_sending_rate_l1 * secs, queues, received)
    };
    let (one, other, secs) = (sums(from), sums(to), (to - from) as f64);
    Interval {
        queue: (other.0 - one.0) / secs,
        utilisation: (other.1 - one.1) / secs / 96.0,
        sendbox_queues: other.2.iter().zip(&one.2).map(|(b, a)| (b - a) / secs).collect(),
        received: other.3.iter().zip(&one.3).map(|(b, a)| b - a).collect(),
    }
}

#[test]
fn the_queue_stands_at_the_sendbox_and_the_path_is_full_under_each_law() {
    for law in LAWS {
        let plan = network(&[law]);
        let seen = interval(&mut Simulation::new(&plan).unwrap(), &plan, 10, 40);
        assert!(seen.queue <= 15.0 && seen.utilisation >= 0.95, "{law}: {seen:?}");
        assert!(seen.sendbox_queues[0] > 2.0 * seen.queue, "{law}: {seen:?}");
    }
    // Without a bundle the same flow fills the buffer.
    let mut plan = network(&["copa"]);
    plan.flows[0].data = vec![Hop::Link(0)];
    let seen = interval(&mut Simulation::new(&plan).unwrap(), &plan, 10, 40);
    assert!(seen.queue > 300.0, "{seen:?}");
}

#[test]
fn two_bundles_share_the_path() {
    for law in LAWS {
        let plan = network(&[law, law]);
        let seen = interval(&mut Simulation::new(&plan).unwrap(), &plan, 10, 40);
        assert!(seen.queue <= 25.0 && seen.utilisation >= 0.95, "{law}: {seen:?}");
        let [one, other] = [0, 1].map(|index| seen.received[index] as f64);
        assert!((0.6..1.67).contains(&(one / other)), "{law}: {seen:?}");
    }
}

#[test]
fn a_share_of_the_messages_may_be_lost_both_ways() {
    let mut plan = network(&["copa"]);
    plan.links.iter_mut().for_each(|link| link.message_loss = Ratio::new(0.2).unwrap());
    let mut simulation = Simulation::new(&plan).unwrap();
    let seen = interval(&mut simulation, &plan, 10, 40);
    assert!(seen.queue <= 20.0 && seen.utilisation >= 0.9, "{seen:?}");
    let BundleMetrics { boundaries_sent, boundaries_matched, reports, .. } =
        simulation.bundle_metrics(0);
    let share = boundaries_matched as f64 / boundaries_sent as f64;
    // Reports share datagrams, so their fates are not independent.
    assert!((0.7..0.9).contains(&share), "{share}");
    assert!(reports > boundaries_matched);
    assert!(
        simulation.link_metrics(0).total_loss_drops > 50,
        "notices and keepalives are lost too"
    );
}

#[test]
fn a_bundle_without_messages_is_not_shaped() {
    let mut plan = network(&["copa"]);
    plan.links[1].message_loss = Ratio::ONE;
    plan.bundles[0].log = true;
    let mut simulation = Simulation::new(&plan).unwrap();
    let seen = interval(&mut simulation, &plan, 10, 40);
    assert!(seen.queue > 300.0 && seen.sendbox_queues[0] < 0.1, "{seen:?}");
    assert_eq!(simulation.bundle_metrics(0).boundaries_matched, 0);
    let decisions = simulation.bundle_log(0).unwrap().decisions();
    assert!(decisions.len() > 100);
    assert!(decisions.iter().all(|(_, it)| it.rate.is_none() && it.state == "silent"));
}

#[test]
fn silence_in_the_middle_of_a_run_frees_the_bundle_and_its_end_binds_it_again() {
    let mut plan = network(&["copa"]);
    // Losing everything on the way back would stop TCP too: only the boxes share this link.
    plan.links.push(Link::delay("reports", 25 * MS));
    let change = |secs, loss| link::Change {
        at: Duration::from_secs(secs),
        loss: Some(loss),
        ..link::Change::default()
    };
    plan.links[2].config.changes = vec![change(15, Ratio::ONE), change(20, Ratio::ZERO)];
    plan.bundles[0].back = vec![Hop::Link(2)];
    plan.bundles[0].log = true;
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.run();
    let decisions = simulation.bundle_log(0).unwrap().decisions();
    let is_shaped = |from_ms: u64, to_ms: u64| {
        let within = decisions
            .iter()
            .filter(|(at, _)| (from_ms..to_ms).contains(&(at.as_nanos() / 1_000_000)));
        let shaped: Vec<bool> = within.map(|(_, it)| it.rate.is_some()).collect();
        assert!(shaped.len() > 10);
        shaped.iter().filter(|it| **it).count() as f64 / shaped.len() as f64
    };
    assert!(is_shaped(10_000, 15_000) > 0.9, "{}", is_shaped(10_000, 15_000));
    // Silent 500 ms after the last message.
    assert_eq!(is_shaped(15_600, 20_000), 0.0);
    assert!(is_shaped(25_000, 40_000) > 0.9, "{}", is_shaped(25_000, 40_000));
}

#[test]
fn epochs_are_what_the_log_of_the_link_says() {
    let mut plan = network(&["copa"]);
    plan.stop = Duration::from_secs(10);
    plan.links[0].log = true;
    plan.bundles[0].log = true;
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.run();
    let metrics = simulation.bundle_metrics(0);
    let log = simulation.bundle_log(0).unwrap();
    let (epochs, boundaries) = (log.epochs().to_vec(), log.boundaries().to_vec());
    assert_eq!(epochs.len() as u64, metrics.boundaries_matched);
    let shares = metrics.boundaries_matched as f64 / metrics.boundaries_sent as f64;
    assert!(epochs.len() > 300 && shares > 0.98, "{metrics:?}");
    let packets: Vec<_> = simulation.packet_log(0).collect();
    for (at, epoch) in &epochs {
        assert!(boundaries.contains(&epoch.identity));
        assert!(epoch.previous_identity.is_none_or(|it| boundaries.contains(&it)));
        let found: Vec<_> = packets.iter().filter(|it| it.identity == epoch.identity).collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].owner, found[0].arrived), (Owner::Flow(0), epoch.sent_at));
        let reported = at.saturating_since(found[0].released.unwrap());
        // 25 ms back, and reports wait at most 20 ms for their budget.
        assert!((25 * MS..=45 * MS).contains(&reported), "{reported:?}");
        assert!(epoch.rtt >= 50 * MS);
    }
    let messages = packets.iter().filter(|it| it.owner == Owner::Bundle(0));
    let bytes: u64 = messages.clone().map(|it| u64::from(it.bytes)).sum();
    // At least a keepalive or a notice each 100 ms, and no more than 1 % of the bundle.
    assert!(messages.count() >= 95 && bytes < metrics.bytes_sent / 100);
    let log = simulation.bundle_log(0).unwrap();
    assert_eq!(log.queue().len(), 1001);
    let mean = log.queue().iter().map(|it| it.1.packets as f64).sum::<f64>() / 1001.0;
    assert!((mean / metrics.mean_queue_packets - 1.0).abs() < 0.05, "{mean} {metrics:?}");
}

#[test]
fn bundles_both_ways_carry_data_and_acknowledgements() {
    let mut plan = network(&["copa", "copa"]);
    let config = link::Config::at_rate(Rate::from_mbit_per_sec(96), 25 * MS);
    plan.links[1] = Link::new("back", config, queue("fifo", "1200p"));
    (plan.bundles[1].path, plan.bundles[1].back) = (vec![Hop::Link(1)], vec![Hop::Link(0)]);
    let (out, back) = (vec![Hop::Bundle(0)], vec![Hop::Bundle(1)]);
    (plan.flows[0].data, plan.flows[0].back) = (out.clone(), back.clone());
    (plan.flows[1].data, plan.flows[1].back) = (back, out);
    let mut simulation = Simulation::new(&plan).unwrap();
    let seen = interval(&mut simulation, &plan, 10, 40);
    assert!(seen.queue <= 20.0 && seen.utilisation >= 0.9, "{seen:?}");
    assert!(simulation.link_metrics(1).mean_qdisc_length_l2 <= 30.0);
    for (flow, received) in seen.received.iter().enumerate() {
        let mbit = *received as f64 * 8e-6 / 30.0;
        assert!(mbit > 75.0, "flow {flow}: {mbit} Mbit/s");
    }
}

#[test]
fn equal_runs_are_equal_and_a_log_changes_nothing() {
    let hash = |seed, log| {
        let mut plan = network(&["copa"]);
        (plan.seed, plan.stop) = (seed, Duration::from_secs(5));
        plan.links[0].log = log;
        plan.bundles[0].log = log;
        let mut simulation = Simulation::new(&plan).unwrap();
        simulation.run();
        simulation.event_hash()
    };
    assert_eq!(hash(1, false), hash(1, false));
    assert_eq!(hash(1, false), hash(1, true));
    assert_ne!(hash(1, false), hash(2, false));
}

#[test]
fn a_bundle_in_a_bundle_is_refused() {
    let mut plan = network(&["copa", "copa"]);
    plan.bundles[1].path = vec![Hop::Bundle(1)];
    assert_eq!(Simulation::new(&plan).err().unwrap().key, "path");
    let mut plan = network(&["copa"]);
    plan.bundles[0].qdisc = Spec::named("nothing");
    assert!(Simulation::new(&plan).err().unwrap().key.starts_with("bundle 0."));
}

/// Eight Cubic flows through a bundle on 20 Mbit/s and 40 ms, with a buffer of 125 ms; without a `law`
/// past its boxes.
fn eight_flows(law: Option<&str>) -> Network {
    let mut plan = network(&[law.unwrap_or("copa")]);
    let config = link::Config::at_rate(Rate::from_mbit_per_sec(20), 20 * MS);
    plan.links =
        vec![Link::new("forward", config, queue("fifo", "208p")), Link::delay("back", 20 * MS)];
    plan.stop = Duration::from_secs(30);
    if law.is_none() {
        plan.flows[0].data = vec![Hop::Link(0)];
    }
    plan.flows = vec![plan.flows[0].clone(); 8];
    plan
}

/// Mbit/s that the first `flows` flows got together from the second second on.
fn goodput(plan: &Network, flows: usize) -> f64 {
    let mut simulation = Simulation::new(plan).unwrap();
    simulation.run();
    let bytes: u64 =
        (0..flows).map(|flow| simulation.flow_metrics(flow).unwrap().received_bytes).sum();
    bytes as f64 * 8e-6 / (plan.stop.as_secs_f64() - 1.0)
}

#[test]
fn a_receivebox_that_sees_a_part_of_the_traffic_costs_no_goodput() {
    let status_quo = goodput(&eight_flows(None), 8);
    let mut worse = Vec::new();
    for law in LAWS {
        for unseen in [0.0, 0.05, 0.2, 0.5, 0.9] {
            let mut plan = eight_flows(Some(law));
            plan.bundles[0].unseen = Ratio::new(unseen).unwrap();
            let share = goodput(&plan, 8) / status_quo;
            if share < 0.95 {
                worse.push(format!("{law}, {unseen} unseen: {share:.3}"));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

/// 8 Mbit/s of datagrams in eight flows that die right behind the sendbox, for so many seconds from
/// each of these on.
fn with_dying_datagrams(plan: &mut Network, bursts: &[(f64, f64)]) {
    let (rate, packet) = (Rate::from_mbit_per_sec(1), ByteCount::new(1292));
    for (start, seconds) in bursts {
        let [start, seconds] = [*start, *seconds].map(Duration::from_secs_f64);
        plan.flows.extend((0..8).map(|index| Flow {
            cc: Spec::named("newreno"),
            traffic: Traffic::Source(Source::Cbr { rate, packet }),
            start: start + MS * index,
            opened: None,
            stop: Some(start + seconds),
            data: vec![Hop::Sendbox(0), Hop::Delay(MS)],
            back: vec![Hop::Link(1)],
        }));
    }
}

#[test]
fn datagrams_that_die_before_the_receivebox_cost_the_other_flows_nothing() {
    let status_quo = goodput(&eight_flows(None), 8);
    let toggled: Vec<_> = (0..5).map(|turn| (5.0 + 5.0 * f64::from(turn), 2.5)).collect();
    let mut worse = Vec::new();
    for law in LAWS {
        for (what, bursts) in [("steadily", &[(5.0, 20.0)][..]), ("now and then", &toggled)] {
            let shares = [1, 2, 3].map(|seed| {
                let mut plan = eight_flows(Some(law));
                plan.seed = seed;
                with_dying_datagrams(&mut plan, bursts);
                // Otherwise only the traffic of the boxes depends on the seed.
                plan.flows.iter_mut().for_each(|flow| flow.start += 7 * MS * seed as u32);
                goodput(&plan, 8) / status_quo
            });
            let share = shares.iter().sum::<f64>() / 3.0;
            if share < 0.95 {
                worse.push(format!("{law}, {what}: {share:.3}, {shares:.3?}"));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn what_is_forged_in_the_bundles_name_neither_raises_the_rate_nor_the_queue() {
    for law in LAWS {
        let mut plan = eight_flows(Some(law));
        let mut queues = [0.0, 10e6].map(|forged| {
            plan.bundles[0].foreign = Rate::from_bits_per_sec(forged as u64);
            plan.bundles[0].log = true;
            let mut simulation = Simulation::new(&plan).unwrap();
            simulation.run();
            let log = simulation.bundle_log(0).unwrap();
            let (_, last) = log.decisions().last().unwrap();
            let bottleneck = last.bottleneck_rate.unwrap().as_mbit_per_sec_f64();
            assert!((18.0..23.0).contains(&bottleneck), "{law}: {bottleneck} Mbit/s");
            simulation.link_metrics(0).mean_qdisc_length_l2
        });
        queues.reverse();
        assert!(queues[0] < 1.5 * queues[1] + 2.0, "{law}: {queues:?} packets");
    }
}
