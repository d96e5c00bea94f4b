//! Bundles of one sendbox share the site's line as the operator configured, in every second.

use forebay_core::bundle::uplink::{Member, Share, UplinkConfig};
use forebay_core::link::Service;
use forebay_scenario::Uplink;
use forebay_sim::Simulation;
use forebay_sim::network::{Flow, Hop, Network, Signal, Upset};

use crate::site::*;

/// Rate of the line (Mbit/s).
const LINE: f64 = 96.0;
/// Largest deviation from a share, relative to it.
const NEAR: f64 = 0.02;

fn share(weight: u32) -> Share {
    Share { weight, ..Share::default() }
}

fn member(share: Share) -> Member {
    Member { group: None, share }
}

/// A bundle for each member, with four Cubic flows over its own path, twice as fast as the line.
fn network(law: &str, groups: Vec<Member>, bundles: Vec<Member>) -> Network {
    let mut network = path(mbit(192), 50 * MS, "2400p");
    let named = |index| bundle(&format!("bundle {index}"), law, queue("sfq", "1200p"));
    network.bundles = (0..bundles.len()).map(named).collect();
    let flows = (0..bundles.len()).map(|index| flow("cubic", GREEDY, Hop::Bundle(index)));
    network.flows = flows.flat_map(|flow| vec![flow; 4]).collect();
    let places = (0..bundles.len()).collect();
    let shares = UplinkConfig { rate: mbit(LINE as u64), groups, bundles };
    network.uplinks = vec![Uplink { shares, bundles: places }];
    network.stop = seconds(30.0);
    network
}

/// Fails at a second in which a bundle's rate differs from its entry in `mbits`.
fn shares_are(trace: &Trace, from_s: f64, to_s: f64, mbits: &[f64]) -> Result<(), String> {
    for (end_s, part) in trace.parts(from_s, to_s, 1.0) {
        let is_near = |(sent, share): (&f64, &f64)| (sent / share - 1.0).abs() <= NEAR;
        must(part.sent.iter().zip(mbits).all(is_near), (end_s, &part.sent))?;
    }
    Ok(())
}

fn for_each_law(network: impl Fn(&str) -> Network) -> Vec<(String, Network)> {
    LAWS.iter().map(|law| (law.to_string(), network(law))).collect()
}

fn of_weights(law: &str, weights: &[u32]) -> Network {
    network(law, Vec::new(), weights.iter().map(|weight| member(share(*weight))).collect())
}

#[test]
fn backlogged_bundles_share_by_weight() {
    assert_each(for_each_law(|law| of_weights(law, &[3, 1])), |trace| {
        shares_are(trace, 2.0, 30.0, &[72.0, 24.0])
    });
}

#[test]
fn unused_share_is_lent_and_returned() {
    let cases = for_each_law(|law| {
        let mut network = of_weights(law, &[3, 1]);
        let again =
            network.flows[4..].iter().map(|flow| Flow { start: seconds(20.0), ..flow.clone() });
        let again: Vec<Flow> = again.collect();
        network.flows[4..].iter_mut().for_each(|flow| flow.stop = Some(seconds(10.0)));
        network.flows.extend(again);
        network
    });
    assert_each(cases, |trace| {
        shares_are(trace, 2.0, 10.0, &[72.0, 24.0])?;
        for (end_s, part) in trace.parts(12.0, 20.0, 1.0) {
            must(part.sent[0] >= 0.98 * LINE && part.sent[1] < 0.1, (end_s, &part.sent))?;
        }
        shares_are(trace, 22.0, 30.0, &[72.0, 24.0])
    });
}

#[test]
fn a_guarantee_is_kept_beside_greedy_siblings() {
    let cases = for_each_law(|law| {
        let guaranteed = Share { guarantee: Some(mbit(30)), ..share(1) };
        network(law, Vec::new(), vec![member(guaranteed), member(share(9)), member(share(9))])
    });
    assert_each(cases, |trace| {
        for (end_s, part) in trace.parts(2.0, 30.0, 1.0) {
            // Tolerance: a packet, and the burst that each bundle may send.
            let (lacks, sum) = (30.0 - part.sent[0], part.sent.iter().sum::<f64>());
            must(lacks <= 0.02 && sum <= LINE + 0.1, (end_s, &part.sent))?;
        }
        shares_are(trace, 2.0, 30.0, &[30.0, 33.0, 33.0])
    });
}

#[test]
fn bundles_lend_within_their_group_first() {
    let cases = for_each_law(|law| {
        let within = |group, weight| Member { group: Some(group), share: share(weight) };
        let groups = vec![member(share(2)), member(share(1))];
        let bundles = vec![within(0, 3), within(0, 1), within(1, 1), within(1, 1)];
        let mut network = network(law, groups, bundles);
        network.flows[4..8].iter_mut().for_each(|flow| flow.stop = Some(seconds(15.0)));
        network
    });
    assert_each(cases, |trace| {
        shares_are(trace, 2.0, 15.0, &[48.0, 16.0, 16.0, 16.0])?;
        let lent = |part: Part| vec![part.sent[0], part.sent[2], part.sent[3]];
        for (end_s, part) in trace.parts(18.0, 30.0, 1.0) {
            let sent = lent(part);
            let is_near = |(sent, share): (&f64, f64)| (sent / share - 1.0).abs() <= NEAR;
            must(sent.iter().zip([64.0, 16.0, 16.0]).all(is_near), (end_s, sent.clone()))?;
        }
        Ok(())
    });
}

#[test]
fn capacity_unused_by_slow_path_serves_fast_one() {
    let cases = for_each_law(|law| {
        let mut network = of_weights(law, &[1, 1]);
        let mut slow = network.links[0].clone();
        (slow.name, slow.qdisc) = ("slow".into(), queue("fifo", "240p"));
        slow.service = Service::Rate(mbit(19));
        network.links.push(slow);
        network.bundles[0].path = vec![Hop::Link(2)];
        network
    });
    assert_each(cases, |trace| {
        let part = trace.part(5.0, 30.0);
        must(part.sent[0] > 0.95 * 19.0 && part.sent[1] > 0.95 * (LINE - 19.0), &part.sent)
    });
}

/// Each path carries 60 Mbit/s. The first bundle fills its path for ten seconds, has a quarter of that while
/// two other bundles are active, and fills it again after that.
#[test]
fn share_of_uplink_is_not_mistaken_for_bottleneck() {
    let cases = for_each_law(|law| {
        let mut network = of_weights(law, &[1, 3, 3]);
        for (index, bundle) in network.bundles.iter_mut().enumerate() {
            let mut own = network.links[0].clone();
            (own.name, own.qdisc) = (format!("path {index}"), queue("fifo", "750p"));
            own.service = Service::Rate(mbit(60));
            network.links.push(own);
            bundle.path = vec![Hop::Link(2 + index)];
        }
        let others = network.flows[4..].iter_mut();
        others.for_each(|it| (it.start, it.stop) = (seconds(10.0), Some(seconds(30.0))));
        network.stop = seconds(45.0);
        network
    });
    assert_each(cases, |trace| {
        must(trace.part(5.0, 10.0).sent[0] > 0.95 * 60.0, trace.part(5.0, 10.0).sent)?;
        let (one, three) = (LINE / 7.0, 3.0 * LINE / 7.0);
        shares_are(trace, 12.0, 30.0, &[one, three, three])?;
        must(trace.part(34.0, 45.0).sent[0] > 0.95 * 60.0, trace.part(34.0, 45.0).sent)
    });
}

#[test]
fn bundle_with_silent_peer_keeps_its_share() {
    let cases = for_each_law(|law| {
        let mut network = of_weights(law, &[1, 1]);
        network.bundles[1].changes = vec![upset(5.0, Upset::Receivebox(Signal::Kill))];
        network
    });
    assert_each(cases, |trace| shares_are(trace, 8.0, 30.0, &[48.0, 48.0]));
}

#[test]
fn invalid_shares_are_refused_by_name() {
    let refused = |network: &Network| Simulation::new(network).err().unwrap().to_string();
    let mut network = of_weights("copa", &[3, 1]);
    network.uplinks[0].shares.bundles[1].share.guarantee = Some(mbit(97));
    assert!(refused(&network).starts_with("uplink.rate = 96Mbit/s: allowed is a rate of at least"));
    network.uplinks[0].shares.bundles[1].share = share(0);
    assert!(refused(&network).starts_with("bundle 1.weight = 0: allowed is"));
    let mut network = of_weights("copa", &[3, 1]);
    network.uplinks[0].bundles = vec![0, 0];
    assert!(refused(&network).starts_with("uplink = [0, 0]: allowed is"));
}

#[test]
fn uplink_wider_than_path_changes_little() {
    let cases = for_each_law(|law| {
        let mut network = in_bundles(loaded(law, 48, 50, 4), 1);
        let bundles = vec![member(share(1))];
        let shares = UplinkConfig { rate: mbit(96), groups: Vec::new(), bundles };
        network.uplinks = vec![Uplink { shares, bundles: vec![0] }];
        network
    });
    assert_each(cases, |trace| full_and_short(trace, 5.0, 40.0));
}
