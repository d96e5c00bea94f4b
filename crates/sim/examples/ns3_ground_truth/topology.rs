//! Where the delay lies, the access links and the way back, as the parameters of ns-3's programs say.

use forebay_core::link;
use forebay_core::spec::{Spec, Value};
use forebay_core::units::{Duration, Rate};
use forebay_sim::Dumbbell;
use forebay_sim::network::{Hop, Link, Network};

use crate::truth::Truth;

/// Access links from here on delay nothing but the order of events: no mean differs between them.
const FAST_MBPS: f64 = 2000.0;
/// Queue of a link that is no bottleneck: ns-3's default qdisc holds 1000 packets.
const UNNOTICED: &str = "1000p";

/// `dumbbell` with the rest of what the parameters say.
pub fn network(truth: &Truth, dumbbell: &Dumbbell) -> Result<Network, String> {
    let mut network = Network::from(dumbbell);
    let mut before_reverse = Duration::ZERO;
    match truth.text("delay_place").as_str() {
        // Behind the bottleneck no segment queues: for those the two are the same.
        "dst" => before_reverse = dumbbell.rtt - dumbbell.rtt / 2,
        "bottleneck" => {}
        "src" => network.flows.iter_mut().for_each(|flow| flow.data.rotate_right(1)),
        other => return Err(format!("delay_place = {other}")),
    }
    add_reverse(truth, before_reverse, &mut network)?;
    let access = access_mbps(truth)?;
    if access < FAST_MBPS {
        add_access(&mut network, mbit_per_s(access));
    }
    Ok(network)
}

/// [`forebay_sim::Device::ack_access_ps`]; slow access links are links.
pub fn access_ps(truth: &Truth) -> Result<u32, String> {
    let access = access_mbps(truth)?;
    Ok(if access < FAST_MBPS { 0 } else { (8e6 / access) as u32 })
}

fn access_mbps(truth: &Truth) -> Result<f64, String> {
    let access = truth.number("access_mbps")?;
    if access > 0.0 { Ok(access) } else { Err(format!("access_mbps = {access}")) }
}

/// The bottleneck's way back; its rate `same` follows the forward one.
///
/// An acknowledgement of a greedy flow waits for nothing there but its own service, 27 us at 16 Mbit/s (54
/// bytes). But 15 ms lack 20 us of 20 services of a segment: without the 27 us a segment comes just before a
/// departure, with them just after it, and a window that fills the queue keeps half a packet more there.
/// ns-3 does the same: 7.36 packets (NewReno, 1 % loss, ten seeds), with a fast way back 6.85.
///
/// It comes before the delay wherever that lies: of two events of one instant the one that was planned
/// earlier comes first, and a packet that comes with a departure is to be before it (`forebay_sim`'s link).
/// Where ns-3 has a delay before it, `skipped`, the rate therefore changes earlier by that.
fn add_reverse(truth: &Truth, skipped: Duration, network: &mut Network) -> Result<(), String> {
    let text = truth.text("reverse_rate");
    let forward = &network.links[0].config;
    let config = match text.parse::<f64>() {
        _ if text == "same" => link::Config {
            service: forward.service.clone(),
            changes: forward.changes.iter().map(|change| rate_alone(change, skipped)).collect(),
            ..link::Config::at_rate(Rate::ZERO, Duration::ZERO)
        },
        Ok(mbps) if mbps > 0.0 => link::Config::at_rate(mbit_per_s(mbps), Duration::ZERO),
        _ => return Err(format!("reverse_rate = {text}")),
    };
    let back = add(network, "reverse".into(), config);
    network.flows.iter_mut().for_each(|flow| flow.back.insert(0, back.clone()));
    Ok(())
}

fn rate_alone(change: &link::Change, earlier: Duration) -> link::Change {
    let at = change.at.saturating_sub(earlier);
    link::Change { at, rate: change.rate, ..link::Change::default() }
}

/// Each sender and each receiver has a link of its own, at the same rate in both directions.
fn add_access(network: &mut Network, rate: Rate) {
    for number in 0..network.flows.len() {
        let config = link::Config::at_rate(rate, Duration::ZERO);
        let link = |network: &mut Network, end: &str| {
            add(network, format!("{end}{number}"), config.clone())
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

fn add(network: &mut Network, name: String, config: link::Config) -> Hop {
    let qdisc = Spec::named("fifo").with("limit", Value::Text(UNNOTICED.into()));
    network.links.push(Link::new(&name, config, qdisc));
    Hop::Link(network.links.len() - 1)
}

fn mbit_per_s(number: f64) -> Rate {
    Rate::from_bits_per_sec((number * 1e6).round() as u64)
}
