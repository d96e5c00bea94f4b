//! Bundles over the simulator's links: real sessions, messages and epochs, real TCP above.

use forebay_core::record::BundleCounters;
use forebay_core::spec::Spec;
use forebay_core::traffic::Source;
use forebay_core::units::{ByteCount, Rate, Ratio, Timestamp};
use forebay_scenario::{self as scenario, Link};
use forebay_sim::network::{Flow, Hop, Network, Traffic};
use forebay_sim::{BundleMetrics, Owner, Simulation};

use crate::site::*;

/// 96 Mbit/s, 50 ms and a buffer of 1200 packets; each bundle has SFQ and one Cubic flow.
fn network(laws: &[&str]) -> Network {
    let bundles = laws
        .iter()
        .enumerate()
        .map(|(index, law)| bundle(&format!("bundle {index}"), law, queue("sfq", "1200p")));
    let flows = (0..laws.len())
        .map(|index| Flow { start: seconds(1.0), ..flow("cubic", GREEDY, Hop::Bundle(index)) });
    let (bundles, flows) = (bundles.collect(), flows.collect());
    Network { bundles, flows, ..path(mbit(96), 50 * MS, "1200p") }
}

#[test]
fn two_bundles_share_the_path() {
    assert_each(LAWS.map(|law| (law.into(), network(&[law, law]))), |trace| {
        let part = trace.part(10.0, 40.0);
        must(part.queue <= 25.0 && part.used >= 0.95, &part)?;
        must((0.6..1.67).contains(&(part.sent[0] / part.sent[1])), part)
    });
}

#[test]
fn message_loss_in_both_directions_is_tolerated() {
    let mut plan = network(&["copa"]);
    plan.links.iter_mut().for_each(|link| link.message_loss = Ratio::new(0.2).unwrap());
    let trace = Trace::of(&plan);
    let seen = trace.part(10.0, 40.0);
    assert!(seen.queue <= 20.0 && seen.used >= 0.9, "{seen:?}");
    let BundleMetrics { counters, reports, .. } = trace.simulation.bundle_metrics(0);
    let BundleCounters { boundaries_sent, boundaries_matched, .. } = counters;
    let share = boundaries_matched as f64 / boundaries_sent as f64;
    // Reports share datagrams, so their fates are not independent.
    assert!((0.7..0.9).contains(&share), "{share}");
    assert!(reports > boundaries_matched);
    assert!(
        trace.simulation.link_metrics(0).total_loss_drops > 50,
        "notices and keepalives are lost too"
    );
}

#[test]
fn a_bundle_without_messages_is_not_shaped() {
    let mut plan = network(&["copa"]);
    plan.links[1].message_loss = Ratio::ONE;
    let mut trace = Trace::of(&plan);
    let seen = trace.part(10.0, 40.0);
    assert!(seen.queue > 300.0 && seen.sendbox_queues[0] < 0.1, "{seen:?}");
    let simulation = &mut trace.simulation;
    let BundleCounters { boundaries_matched, boundaries_unexpected, .. } =
        simulation.bundle_metrics(0).counters;
    assert!(boundaries_matched == 0 && boundaries_unexpected > 100, "{boundaries_unexpected}");
    let decisions = simulation.bundle_log(0).unwrap().decisions();
    assert!(decisions.len() > 100);
    assert!(decisions.iter().all(|(_, it)| it.rate.is_none() && it.state == "no_peer"));
}

#[test]
fn silent_receivebox_unshapes_bundle_until_it_returns() {
    let mut plan = network(&["copa"]);
    // Losing everything on the way back would also stop TCP, so only the boxes share this link.
    plan.links.push(Link::delay("reports", 25 * MS));
    let change = |secs, loss| scenario::Change {
        at: seconds(secs),
        loss: Some(loss),
        ..scenario::Change::default()
    };
    plan.links[2].changes = vec![change(15.0, Ratio::ONE), change(20.0, Ratio::ZERO)];
    plan.bundles[0].back = vec![Hop::Link(2)];
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
    // The bundle is unshaped 500 ms after the last message.
    assert_eq!(is_shaped(15_600, 20_000), 0.0);
    assert!(is_shaped(25_000, 40_000) > 0.9, "{}", is_shaped(25_000, 40_000));
}

#[test]
fn epochs_match_the_link_log() {
    let mut plan = network(&["copa"]);
    plan.stop = seconds(10.0);
    plan.logged.insert(0);
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.run();
    let metrics = simulation.bundle_metrics(0);
    let log = simulation.bundle_log(0).unwrap();
    let (epochs, boundaries) = (log.epochs().to_vec(), log.boundaries().to_vec());
    let counters = metrics.counters;
    assert_eq!(epochs.len() as u64, counters.boundaries_matched);
    let all = counters.boundaries_sent + counters.boundaries_unexpected;
    assert_eq!(boundaries.len() as u64, all, "{metrics:?}");
    let shares = counters.boundaries_matched as f64 / counters.boundaries_sent as f64;
    assert!(epochs.len() > 300 && shares > 0.98, "{metrics:?}");
    let packets: Vec<_> = simulation.packet_log(0).collect();
    for (at, epoch) in &epochs {
        assert!(boundaries.contains(&epoch.identity));
        assert!(epoch.previous_identity.is_none_or(|it| boundaries.contains(&it)));
        let found: Vec<_> = packets.iter().filter(|it| it.1.identity == epoch.identity).collect();
        assert_eq!(found.len(), 1);
        let (owner, packet) = found[0];
        assert_eq!((*owner, packet.arrived_ns), (Owner::Flow(0), epoch.sent_at.as_nanos()));
        let reported = at.saturating_since(Timestamp::from_nanos(packet.released_ns));
        // 25 ms for the way back, and up to 20 ms for a report's wait for its budget.
        assert!((25 * MS..=45 * MS).contains(&reported), "{reported:?}");
        assert!(epoch.rtt >= 50 * MS);
    }
    let messages = packets.iter().filter(|it| it.0 == Owner::Bundle(0));
    let bytes: u64 = messages.clone().map(|it| u64::from(it.1.bytes)).sum();
    // A keepalive or a notice at least every 100 ms, and at most 1 % of the bundle's bytes.
    assert!(messages.count() >= 95 && bytes < metrics.counters.bytes_sent / 100);
    let log = simulation.bundle_log(0).unwrap();
    assert_eq!(log.queue().len(), 1001);
    let mean = log.queue().iter().map(|it| it.1.packets as f64).sum::<f64>() / 1001.0;
    assert!((mean / metrics.mean_queue_packets - 1.0).abs() < 0.05, "{mean} {metrics:?}");
}

#[test]
fn bundles_both_ways_carry_data_and_acknowledgements() {
    let mut plan = network(&["copa", "copa"]);
    plan.links[1] = Link::at_rate("back", mbit(96), 25 * MS, queue("fifo", "1200p"));
    (plan.bundles[1].path, plan.bundles[1].back) = (vec![Hop::Link(1)], vec![Hop::Link(0)]);
    let (out, back) = (vec![Hop::Bundle(0)], vec![Hop::Bundle(1)]);
    (plan.flows[0].data, plan.flows[0].back) = (out.clone(), back.clone());
    (plan.flows[1].data, plan.flows[1].back) = (back, out);
    let mut trace = Trace::of(&plan);
    let seen = trace.part(10.0, 40.0);
    assert!(seen.queue <= 20.0 && seen.used >= 0.9, "{seen:?}");
    assert!(trace.simulation.link_metrics(1).mean_qdisc_length_l2 <= 30.0);
    for flow in 0..2 {
        let mbit = trace.simulation.flow_metrics(flow).unwrap().mean_throughput_l4;
        assert!(mbit > 75.0, "flow {flow}: {mbit} Mbit/s");
    }
}

#[test]
fn runs_are_reproducible_with_and_without_log() {
    let hash = |seed, log| {
        let mut plan = network(&["copa"]);
        (plan.seed, plan.stop) = (seed, seconds(5.0));
        if log {
            plan.logged.insert(0);
        }
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
    plan.bundles[0].of.qdisc = Spec::named("nothing");
    assert!(Simulation::new(&plan).err().unwrap().key.starts_with("bundle 0."));
}

/// Eight Cubic flows through a bundle on 20 Mbit/s and 40 ms, with a buffer of 125 ms. Without a
/// `law`, the flows bypass the boxes.
fn eight_flows(law: Option<&str>) -> Network {
    let mut plan = network(&[law.unwrap_or("copa")]);
    plan.links = path(mbit(20), 40 * MS, "208p").links;
    plan.stop = seconds(30.0);
    if law.is_none() {
        plan.flows[0].data = vec![Hop::Link(0)];
    }
    plan.flows = vec![plan.flows[0].clone(); 8];
    plan
}

/// Goodput of the first eight flows from second 1 on (Mbit/s).
fn goodput_of(plan: &Network) -> f64 {
    goodput(&mut Simulation::new(plan).unwrap(), 8, 1.0, plan.stop.as_secs_f64())
}

#[test]
fn partially_blind_receivebox_costs_no_goodput() {
    let status_quo = goodput_of(&eight_flows(None));
    let mut worse = Vec::new();
    for law in LAWS {
        for unseen in [0.0, 0.05, 0.2, 0.5, 0.9] {
            let mut plan = eight_flows(Some(law));
            plan.bundles[0].of.unseen = Ratio::new(unseen).unwrap();
            let share = goodput_of(&plan) / status_quo;
            if share < 0.95 {
                worse.push(format!("{law}, {unseen} unseen: {share:.3}"));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

/// Adds 8 Mbit/s of datagrams in eight flows that are lost right behind the sendbox. `bursts` gives
/// the start and length of each burst in seconds.
fn with_dying_datagrams(plan: &mut Network, bursts: &[(f64, f64)]) {
    let (rate, packet) = (mbit(1), ByteCount::new(1292));
    for (start, length) in bursts {
        let traffic = Traffic::Source(Source::Cbr { rate, packet });
        plan.flows.extend((0..8).map(|index| Flow {
            start: seconds(*start) + MS * index,
            stop: Some(seconds(start + length)),
            data: vec![Hop::Sendbox(0), Hop::Delay(MS)],
            ..flow("newreno", traffic, Hop::Sendbox(0))
        }));
    }
}

#[test]
fn datagrams_dropped_before_receivebox_cost_no_goodput() {
    let status_quo = goodput_of(&eight_flows(None));
    let toggled: Vec<_> = (0..5).map(|turn| (5.0 + 5.0 * f64::from(turn), 2.5)).collect();
    let mut worse = Vec::new();
    for law in LAWS {
        for (what, bursts) in [("steadily", &[(5.0, 20.0)][..]), ("now and then", &toggled)] {
            let shares = [1, 2, 3].map(|seed| {
                let mut plan = eight_flows(Some(law));
                plan.seed = seed;
                with_dying_datagrams(&mut plan, bursts);
                // Without this, only the traffic of the boxes would depend on the seed.
                plan.flows.iter_mut().for_each(|flow| flow.start += 7 * MS * seed as u32);
                goodput_of(&plan) / status_quo
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
fn forged_packets_raise_neither_rate_nor_queue() {
    for law in LAWS {
        let mut plan = eight_flows(Some(law));
        let mut queues = [0.0, 10e6].map(|forged| {
            plan.bundles[0].foreign = Rate::from_bits_per_sec(forged as u64);
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
