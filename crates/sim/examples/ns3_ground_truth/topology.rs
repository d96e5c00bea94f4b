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
    match truth.text("delay_place").as_str() {
        // Behind the bottleneck nothing queues: the two are the same.
        "dst" | "bottleneck" => {}
        "src" => network.flows.iter_mut().for_each(|flow| flow.data.rotate_right(1)),
        other => return Err(format!("delay_place = {other}")),
    }
    if let Some(rate) = reverse_rate(truth)? {
        let back = add(&mut network, "reverse".into(), rate);
        network.flows.iter_mut().for_each(|flow| flow.back.insert(0, back.clone()));
    }
    let access = access_mbps(truth)?;
    if access < FAST_MBPS {
        add_access(&mut network, mbit_per_s(access));
    }
    Ok(network)
}

/// [`forebay_sim::Stack::ack_access_ps`]; slow access links are links.
pub fn access_ps(truth: &Truth) -> Result<u32, String> {
    let access = access_mbps(truth)?;
    Ok(if access < FAST_MBPS { 0 } else { (8e6 / access) as u32 })
}

fn access_mbps(truth: &Truth) -> Result<f64, String> {
    let access = truth.number("access_mbps")?;
    if access > 0.0 { Ok(access) } else { Err(format!("access_mbps = {access}")) }
}

/// Of the bottleneck's way back. `same` follows the forward rate, where acknowledgements of greedy flows
/// wait for nothing but their own service: 54 bytes. The ensembles have both that and a fast one.
fn reverse_rate(truth: &Truth) -> Result<Option<Rate>, String> {
    let text = truth.text("reverse_rate");
    match text.parse::<f64>() {
        _ if text == "same" => Ok(None),
        Ok(mbps) if mbps > 0.0 => Ok(Some(mbit_per_s(mbps))),
        _ => Err(format!("reverse_rate = {text}")),
    }
}

/// Each sender and each receiver has a link of its own, at the same rate in both directions.
fn add_access(network: &mut Network, rate: Rate) {
    for number in 0..network.flows.len() {
        let link = |network: &mut Network, end: &str| add(network, format!("{end}{number}"), rate);
        let ends = ["from_sender", "to_receiver", "from_receiver", "to_sender"];
        let [from_sender, to_receiver, from_receiver, to_sender] = ends.map(|it| link(network, it));
        let flow = &mut network.flows[number];
        flow.data.insert(0, from_sender);
        flow.data.push(to_receiver);
        flow.back.insert(0, from_receiver);
        flow.back.push(to_sender);
    }
}

fn add(network: &mut Network, name: String, rate: Rate) -> Hop {
    let config = link::Config::at_rate(rate, Duration::ZERO);
    let qdisc = Spec::named("fifo").with("limit", Value::Text(UNNOTICED.into()));
    network.links.push(Link::new(&name, config, qdisc));
    Hop::Link(network.links.len() - 1)
}

fn mbit_per_s(number: f64) -> Rate {
    Rate::from_bits_per_sec((number * 1e6).round() as u64)
}
