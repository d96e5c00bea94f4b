//! Place of the delay, access links and reverse link, by the parameters of ns-3's programs.

use forebay_core::link::Service;
use forebay_core::spec::{Spec, Value};
use forebay_core::units::{Duration, Rate};
use forebay_scenario::{self as scenario, Link};
use forebay_sim::Dumbbell;
use forebay_sim::network::{Hop, Network};

use super::truth::Truth;

/// Queue of a link that is not a bottleneck: ns-3's default qdisc holds 1000 packets.
const UNNOTICED: &str = "1000p";

/// `dumbbell` with the other parameters of the run.
pub fn network(truth: &Truth, dumbbell: &Dumbbell) -> Result<Network, String> {
    let mut network = Network::from(dumbbell);
    let mut before_reverse = Duration::ZERO;
    match truth.text("delay_place").as_str() {
        // After the bottleneck no segment queues, so for segments the two places are equivalent.
        "dst" => before_reverse = dumbbell.rtt - dumbbell.rtt / 2,
        "bottleneck" => {}
        "src" => network.flows.iter_mut().for_each(|flow| flow.data.rotate_right(1)),
        other => return Err(format!("delay_place = {other}")),
    }
    add_reverse(truth, before_reverse, &mut network)?;
    add_access(&mut network, mbit_per_s(access_mbps(truth)?));
    Ok(network)
}

fn access_mbps(truth: &Truth) -> Result<f64, String> {
    let access = truth.number("access_mbps")?;
    if access > 0.0 { Ok(access) } else { Err(format!("access_mbps = {access}")) }
}

/// The bottleneck's reverse link; the rate `same` follows the forward one.
///
/// An acknowledgement of a greedy flow waits there only for its own transmission, 27 us at 16 Mbit/s (54
/// bytes). This matters: 15 ms are 20 us short of 20 transmissions of a segment. Without the 27 us a segment
/// arrives just before a departure, with them just after it. A window that fills the queue then keeps half a
/// packet more there. ns-3 does the same: 7.36 packets (NewReno, 1 % loss, ten seeds), with a fast reverse
/// link 6.85.
///
/// The link is before the delay, wherever the delay is. Of two events at the same instant, the one planned
/// earlier is handled first. A packet that arrives together with a departure must be handled before it
/// (`forebay_sim`'s link). If ns-3 has a delay before the link, `skipped`, the rate therefore changes earlier
/// by that delay.
fn add_reverse(truth: &Truth, skipped: Duration, network: &mut Network) -> Result<(), String> {
    let text = truth.text("reverse_rate");
    let forward = &network.links[0];
    let mut reverse = unnoticed("reverse", Rate::ZERO);
    match text.parse::<f64>() {
        _ if text == "same" => {
            reverse.service = forward.service.clone();
            let changes = forward.changes.iter();
            reverse.changes = changes.map(|change| rate_alone(change, skipped)).collect();
        }
        Ok(mbps) if mbps > 0.0 => reverse.service = Service::Rate(mbit_per_s(mbps)),
        _ => return Err(format!("reverse_rate = {text}")),
    }
    let back = add(network, reverse);
    network.flows.iter_mut().for_each(|flow| flow.back.insert(0, back.clone()));
    Ok(())
}

fn rate_alone(change: &scenario::Change, earlier: Duration) -> scenario::Change {
    let at = change.at.saturating_sub(earlier);
    scenario::Change { at, rate: change.rate, ..scenario::Change::default() }
}

/// Gives each sender and each receiver an access link of its own, at the same rate in both directions.
fn add_access(network: &mut Network, rate: Rate) {
    for number in 0..network.flows.len() {
        let link = |network: &mut Network, end: &str| {
            add(network, unnoticed(&format!("{end}{number}"), rate))
        };
        let ends = ["from_sender", "to_receiver", "from_receiver", "to_sender"];
        let [from_sender, to_receiver, from_receiver, to_sender] = ends.map(|it| link(network, it));
        let flow = &mut network.flows[number];
        flow.data.insert(0, from_sender);
        flow.data.push(to_receiver);
        flow.back.insert(0, from_receiver);
        flow.back.push(to_sender);
    }
}

/// A link without propagation delay that is not a bottleneck.
fn unnoticed(name: &str, rate: Rate) -> Link {
    let qdisc = Spec::named("fifo").with("limit", Value::Text(UNNOTICED.into()));
    Link::at_rate(name, rate, Duration::ZERO, qdisc)
}

fn add(network: &mut Network, link: Link) -> Hop {
    network.links.push(link);
    Hop::Link(network.links.len() - 1)
}

fn mbit_per_s(number: f64) -> Rate {
    Rate::from_bits_per_sec((number * 1e6).round() as u64)
}
