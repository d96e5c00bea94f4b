//! Boxes that are killed, stopped and restarted, and traffic that they do not see for a while.

use forebay_core::units::{Duration, Rate, Ratio, Timestamp};
use forebay_sim::network::{Network, Signal, Upset};
use forebay_sim::{BIN_NS, Simulation};

use crate::site::*;

/// Four Cubic flows through a bundle on 20 Mbit/s for 30 s.
fn network(changes: &[(u64, Upset)]) -> Network {
    let mut bundle = bundle("a", "copa", queue("sfq", "208p"));
    bundle.changes = changes.iter().map(|(ms, what)| upset(*ms as f64 * 1e-3, *what)).collect();
    let (bundles, flows) = (vec![bundle], vec![cubic(); 4]);
    Network { stop: seconds(30.0), bundles, flows, ..path(mbit(20), 40 * MS, "208p") }
}

fn ran_with(changes: &[(u64, Upset)]) -> Simulation {
    ran(&network(changes))
}

/// Goodput of all flows from one second to another (Mbit/s).
fn goodput(simulation: &Simulation, from_s: usize, to_s: usize) -> f64 {
    let bins_per_s = (1_000_000_000 / BIN_NS) as usize;
    let bytes = |flow| -> u64 {
        let bins = &simulation.flow_bins(flow)[from_s * bins_per_s..to_s * bins_per_s];
        bins.iter().map(|bin| u64::from(bin.bytes)).sum()
    };
    (0..4).map(bytes).sum::<u64>() as f64 * 8e-6 / (to_s - from_s) as f64
}

/// Whether the sendbox shaped at `second`, and its reason; `None` if its last decision is older than a
/// second.
fn shaped(simulation: &mut Simulation, second: u64) -> Option<(bool, &'static str)> {
    let at = Timestamp::from_nanos(second * 1_000_000_000);
    let decisions = simulation.bundle_log(0).unwrap().decisions();
    let (said, decision) = decisions.iter().rev().find(|(said, _)| *said <= at)?;
    let is_new = at.saturating_since(*said) < Duration::from_secs(1);
    is_new.then_some((decision.rate.is_some(), decision.reason))
}

#[test]
fn traffic_survives_box_failure_and_is_reshaped() {
    for end in [Upset::Sendbox, Upset::Receivebox] {
        for signals in [[Signal::Kill, Signal::Restart], [Signal::Stop, Signal::Continue]] {
            let what = format!("{:?}", end(signals[0]));
            let mut run = ran_with(&[(8_000, end(signals[0])), (12_000, end(signals[1]))]);
            assert!(shaped(&mut run, 8).unwrap().0, "{what}");
            assert!(shaped(&mut run, 11).is_none_or(|(shaped, _)| !shaped), "{what}");
            assert!(shaped(&mut run, 22).unwrap().0, "{what}: {:?}", shaped(&mut run, 22));
            for (from, to) in [(5, 8), (9, 12), (15, 29)] {
                let mbit = goodput(&run, from, to);
                assert!(mbit > 17.5, "{what}, {from} to {to} s: {mbit} Mbit/s");
            }
        }
    }
}

#[test]
fn wrong_key_leaves_traffic_unshaped() {
    for end in [Upset::Sendbox, Upset::Receivebox] {
        let changes = [
            (8_000, end(Signal::Kill)),
            (8_300, end(Signal::RestartOtherKey)),
            (14_000, end(Signal::Kill)),
            (14_300, end(Signal::Restart)),
        ];
        let mut run = ran_with(&changes);
        let (is_shaped, why) = shaped(&mut run, 13).unwrap();
        assert!(!is_shaped && why.contains("verify"), "{why}");
        assert!(shaped(&mut run, 24).unwrap().0);
        for (from, to) in [(9, 14), (17, 29)] {
            let mbit = goodput(&run, from, to);
            assert!(mbit > 17.5, "{:?}, {from} to {to} s: {mbit} Mbit/s", changes[0].1);
        }
    }
}

#[test]
fn stopped_sendbox_holds_packets_until_kernel_forwards() {
    let sent = |continued_ms| {
        let changes = [
            (8_000, Upset::Sendbox(Signal::Stop)),
            (continued_ms, Upset::Sendbox(Signal::Continue)),
        ];
        let mut run = Simulation::new(network(&changes)).unwrap();
        let mut packets_at = |ms: u64| {
            run.run_until(Timestamp::from_nanos(ms * 1_000_000));
            (run.bundle_metrics(0).counters.packets_sent, run.link_metrics(0).packets)
        };
        let (stopped, gone_on) = (packets_at(8_001), packets_at(continued_ms - 1));
        (gone_on.0 - stopped.0, gone_on.1 - stopped.1, packets_at(continued_ms + 500).0 - gone_on.0)
    };
    let (by_box, by_link, later) = sent(8_400);
    // Packets on the link at the stop still arrived, and then no more.
    assert!(by_box == 0 && by_link < 150 && later > 500, "{by_box} {by_link} {later}");
    let (by_box, by_link, _) = sent(10_000);
    assert!(by_box == 0 && by_link > 1_000, "{by_box} {by_link}: the kernel forwards");
}

#[test]
fn unseen_or_forged_packets_cost_no_goodput() {
    let share = Ratio::new(0.5).unwrap();
    let forged = Rate::from_mbit_per_sec(10);
    for (begins, ends) in [
        (Upset::Unseen(share), Upset::Unseen(Ratio::ZERO)),
        (Upset::Foreign(forged), Upset::Foreign(Rate::ZERO)),
    ] {
        let mut run = ran_with(&[(8_000, begins), (14_000, ends)]);
        for (from, to) in [(11, 14), (17, 29)] {
            let mbit = goodput(&run, from, to);
            assert!(mbit > 17.0, "{begins:?}, {from} to {to} s: {mbit} Mbit/s");
        }
        assert!(shaped(&mut run, 29).unwrap().0, "{begins:?}: {:?}", shaped(&mut run, 29));
    }
}

#[test]
fn changes_out_of_order_are_refused() {
    let stop = Upset::Sendbox(Signal::Stop);
    let refused = Simulation::new(network(&[(2_000, stop), (1_000, stop)])).err().unwrap();
    assert_eq!(refused.key, "at");
}
