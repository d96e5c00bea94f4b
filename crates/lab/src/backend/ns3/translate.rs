//! Translates an experiment into a network for ns-3, or says why ns-3 has no counterpart.

use std::time::Duration;

use forebay_core::link::Service;
use forebay_core::random::Streams;
use forebay_core::traffic::Timing;
use forebay_core::units::{ByteCount, Rate, Ratio};
use forebay_scenario as plan;
use forebay_sim::LINGER;

use super::network::{
    ALGORITHMS, DATAGRAM_HEADERS, Network, PlacedFlow, PlacedLink, Qdisc, tcp_attributes,
};
use super::qdisc;
use crate::backend::BackendError;
use crate::experiment::Experiment;
use forebay_core::traffic::Connections;

/// Place of the bottleneck in [`Experiment::links`].
const FORWARD: usize = 0;
/// Place of the link of the way back.
const REVERSE: usize = 1;
/// Place of the first of the remaining links: further hops, then links of single pairs.
const OTHERS: usize = 2;
/// Queue limit of a link without a rate; no packet waits there.
const UNNOTICED: &str = "1000000p";

/// Plan flow behind a flow of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Place of the flow in the experiment.
    pub flow: usize,
    /// Number among the connections of the same flow.
    pub index: u32,
}

/// A network, and the plan flow behind each of its flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// Input of the driver.
    pub network: Network,
    /// By flow of the network.
    pub places: Vec<Place>,
}

/// `experiment` in ns-3. The error names the key that has no counterpart there, and why.
pub fn translate(experiment: &Experiment) -> Result<Translation, BackendError> {
    refuse(experiment)?;
    let mut links = Vec::new();
    let mut nodes = 0;
    for (number, link) in experiment.links().enumerate() {
        // Links in a row share nodes; every other link has nodes of its own.
        let follows = (OTHERS..OTHERS + experiment.hops.len()).contains(&number);
        let from = match number {
            OTHERS if follows => links.first().map_or(0, |first: &PlacedLink| first.ends[1]),
            _ if follows => nodes - 1,
            _ => nodes,
        };
        let to = if follows { nodes } else { nodes + 1 };
        nodes = to + 1;
        links.push(self::link(experiment, link, [from, to])?);
    }
    let has_datagrams = experiment.flows.iter().any(|flow| !flow.is_tcp());
    let linger = if has_datagrams { LINGER.min(experiment.drain) } else { Duration::ZERO };
    let is_requests = |flow: &plan::Flow| matches!(flow.traffic, plan::Traffic::Requests(_));
    let has_requests = experiment.flows.iter().any(is_requests);
    let drain = if has_requests { experiment.drain } else { linger };
    let mut attributes = tcp_attributes(experiment.ecn);
    if has_requests {
        // Otherwise the port of every connection would stay in use for two minutes.
        attributes.push(("ns3::TcpSocketBase::MaxSegLifetime".into(), "0.25".into()));
    }
    let mut translation = Translation {
        network: Network {
            seed: 42,
            run: experiment.seed,
            stop: experiment.stop + linger,
            latest: experiment.stop + drain,
            attributes,
            links,
            flows: Vec::new(),
        },
        places: Vec::new(),
    };
    for (place, flow) in experiment.flows.iter().enumerate() {
        for index in 0..flow.connections() {
            // The same stream names as in the simulator, so both draw the same arrivals.
            let number = translation.places.len();
            let streams = Streams::new(experiment.seed).part(&format!("flow {number}"));
            translation.network.flows.push(self::flow(experiment, flow, index, &streams)?);
            translation.places.push(Place { flow: place, index });
        }
    }
    Ok(translation)
}

fn unsupported<T>(what: &str, why: &str) -> Result<T, BackendError> {
    Err(BackendError::Unsupported(format!("{what}: {why}")))
}

/// Refuses settings beyond a single link or flow.
fn refuse(experiment: &Experiment) -> Result<(), BackendError> {
    if experiment.stack != plan::Stack::Ns3 {
        let why = "the back end ns3 runs ns-3's own TCP, allowed is \"ns3\": add --set stack=ns3";
        return unsupported("stack = linux", why);
    }
    if let Some(bundle) = experiment.bundles.first() {
        let why = "the back end ns3 has no boxes, allowed with sim and emu";
        return unsupported(&format!("bundle.{}", bundle.name), why);
    }
    crate::backend::refuse_quic(experiment, "ns3")?;
    let tables = [
        ("bottleneck.paths", !experiment.paths.is_empty()),
        ("[topology]", experiment.topology.is_some()),
        ("uplink", experiment.uplink.is_some()),
        ("[[fault]]", !experiment.faults.is_empty()),
        ("[[upset]]", !experiment.upsets.is_empty()),
        ("[attack]", experiment.attack.is_some()),
    ];
    match tables.iter().find(|(_, is_there)| *is_there) {
        Some((table, _)) => {
            unsupported(table, "the back end ns3 does not support this, allowed with sim")
        }
        None => Ok(()),
    }
}

/// Plan table of the link with the row name `name`.
fn table(experiment: &Experiment, name: &str) -> String {
    match name {
        "forward" => "bottleneck".into(),
        "reverse" => "reverse".into(),
        _ if experiment.own_links.iter().any(|own| own.pair == name) => format!("link.{name}"),
        _ => name.into(),
    }
}

fn link(
    experiment: &Experiment,
    link: &plan::Link,
    ends: [u32; 2],
) -> Result<PlacedLink, BackendError> {
    let table = table(experiment, &link.name);
    let keys = [
        ("trace", matches!(link.service, Service::Trace(_))),
        ("jitter", !link.jitter.is_zero()),
        ("batch", !link.batch.is_zero()),
        ("ack_filter", link.ack_filter),
        ("clears_ecn", link.clears_ecn),
        ("reorder", link.reorder > Ratio::ZERO),
    ];
    if let Some((key, _)) = keys.iter().find(|(_, is_set)| *is_set) {
        let why = "links of the back end ns3 have rate, delay, loss and a qdisc, allowed with sim";
        return unsupported(&format!("{table}.{key}"), why);
    }
    if link.overtakes.is_some() {
        let why = "packets of the back end ns3 overtake when the delay falls, allowed with sim";
        return unsupported(&format!("{table}.trace with a delay"), why);
    }
    if let Some(change) = link.changes.iter().find(|it| it.rate == Some(Rate::ZERO)) {
        let at_s = change.at.as_secs_f64();
        let why = "the back end ns3 cannot stop a link, allowed with sim";
        return unsupported(&format!("{table}.rate = 0bit/s at {at_s} s"), why);
    }
    let qdisc = match link.rate() {
        None => Qdisc::fifo(UNNOTICED),
        Some(_) => qdisc::translate(&link.qdisc).map_err(|error| {
            let error = error.within(&format!("{table}.qdisc"));
            BackendError::Unsupported(format!("{}: {error}", experiment.plan))
        })?,
    };
    Ok(PlacedLink { ends, of: link.clone(), qdisc })
}

fn flow(
    experiment: &Experiment,
    flow: &plan::Flow,
    index: u32,
    streams: &Streams,
) -> Result<PlacedFlow, BackendError> {
    if flow.ttl.is_some() {
        let why = "the back end ns3 drops no packet by its TTL, allowed with sim and emu";
        return unsupported(&format!("flow.{}.ttl", flow.name), why);
    }
    if let Some(key) = flow.receiving.first_given() {
        let why = "receivers of the back end ns3 are ns-3's, allowed with sim";
        return unsupported(&format!("flow.{}.{key}", flow.name), why);
    }
    let (algorithm, schedule) = match &flow.traffic {
        plan::Traffic::Greedy { .. } => (algorithm(flow)?, Vec::new()),
        plan::Traffic::Datagrams { rate, packet_bytes, timing, .. } => {
            let payload = u64::from(packet_bytes - DATAGRAM_HEADERS);
            let sends = sends(flow, index, *rate, *packet_bytes, *timing, streams);
            ("", sends.map(|at| (at, payload)).collect())
        }
        plan::Traffic::Requests(load) if load.connections != Connections::Each => {
            let why =
                "each request has a connection of its own in the back end ns3, allowed is \"each\"";
            return unsupported(&format!("flow.{}.traffic.connections", flow.name), why);
        }
        plan::Traffic::Requests(_) => (algorithm(flow)?, asks(experiment, flow)?),
        plan::Traffic::Video { .. } => return refuse_traffic(flow, "video"),
        plan::Traffic::Media { .. } => return refuse_traffic(flow, "media"),
        plan::Traffic::Ping { .. } => return refuse_traffic(flow, "ping"),
    };
    // The excess of the flow's round trip over the path's lies between its hosts and the path.
    let access = (experiment.rtt_of(flow) - experiment.rtt_between(&flow.pair)) / 2;
    // For a flow that uses a single link in a row, all links before it become delay.
    let skipped = match flow.hop {
        Some(hop) if hop > 0 && !flow.reversed => experiment.forward.delay,
        _ => Duration::ZERO,
    };
    let pair = experiment.pairs.iter().position(|pair| *pair == flow.pair).unwrap_or(0);
    let data = match flow.hop {
        Some(hop) if !flow.reversed => {
            vec![hop.checked_sub(1).map_or(FORWARD, |behind| OTHERS + behind)]
        }
        _ => way(experiment, &flow.pair, flow.reversed),
    };
    Ok(PlacedFlow {
        of: plan::Flow { start: flow.start_of(index), ..flow.clone() },
        algorithm,
        pair: pair as u16,
        access: [access + skipped, access],
        ways: [data, way(experiment, &flow.pair, !flow.reversed)],
        schedule,
    })
}

fn refuse_traffic<T>(flow: &plan::Flow, kind: &str) -> Result<T, BackendError> {
    let why = "the back end ns3 has greedy, requests, cbr, poisson and on_off, allowed with sim";
    unsupported(&format!("flow.{}.traffic.kind = {kind}", flow.name), why)
}

/// The links between the sites of `pair` in a direction.
fn way(experiment: &Experiment, pair: &str, reversed: bool) -> Vec<usize> {
    let hops = experiment.hops.len();
    match experiment.own_links.iter().position(|own| own.pair == pair) {
        Some(own) => vec![OTHERS + hops + 2 * own + usize::from(reversed)],
        None if reversed => vec![REVERSE],
        None => std::iter::once(FORWARD).chain(OTHERS..OTHERS + hops).collect(),
    }
}

/// Type name of the algorithm of `flow` in ns-3; only default parameters are allowed.
fn algorithm(flow: &plan::Flow) -> Result<&'static str, BackendError> {
    let refused = |allowed: &str| {
        let (at, name, cc) = (&flow.cc_at, &flow.name, flow.cc_name());
        let reason = format!("{at}: flow.{name}.cc = {cc}: allowed is {allowed}");
        Err(BackendError::Unsupported(reason))
    };
    if flow.platform.is_some() {
        return refused("a name alone: algorithms of the back end ns3 are ns-3's");
    }
    if !flow.cc.params.is_empty() {
        return refused("a name alone: algorithms of the back end ns3 have no parameters here");
    }
    let kind = if flow.cc.kind == "reno" { "newreno" } else { &flow.cc.kind };
    match ALGORITHMS.iter().find(|(name, _)| *name == kind) {
        Some((_, type_name)) => Ok(type_name),
        None => {
            let names = ALGORITHMS.map(|(name, _)| name).join(", ");
            refused(&format!("an algorithm of ns-3: {names}"))
        }
    }
}

/// When answers are requested, since the start of the run, and their bytes.
fn asks(experiment: &Experiment, flow: &plan::Flow) -> Result<Vec<(Duration, u64)>, BackendError> {
    let drawn = experiment.schedule(flow);
    let drawn =
        drawn.map_err(|error| BackendError::Unsupported(format!("{}: {error}", flow.name)))?;
    let schedule = drawn.unwrap_or_default();
    let asks = schedule.requests().iter();
    Ok(asks.map(|request| (flow.start + request.at, request.size.as_u64())).collect())
}

fn sends(
    flow: &plan::Flow,
    index: u32,
    rate: Rate,
    packet_bytes: u32,
    timing: Timing,
    streams: &Streams,
) -> impl Iterator<Item = Duration> {
    let source = timing.source(rate, ByteCount::new(packet_bytes.into()));
    let (start, stop) = (flow.start_of(index), flow.stop);
    let times = source.send_times(streams).into_iter().flatten().map(move |at| start + at);
    times.take_while(move |at| *at < stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::library::Source;
    use crate::plan::{Override, Plan};

    const PLAN: &str = r#"
        name = "p"
        stop = "9s"
        stack = "ns3"
        bottleneck = { rate = "16Mbit/s", rtt = "20ms", qdisc = { kind = "fifo", limit = "20p" } }
        [[flow]]
        name = "bulk"
        cc = "cubic"
        count = 2
        traffic = { kind = "greedy" }
    "#;

    fn experiment(keys: &str, sets: &[&str]) -> Experiment {
        let source = Source { file: "p".into(), folder: None, text: format!("{PLAN}{keys}") };
        let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        let plan = Plan::from_source(source, &sets).unwrap();
        plan.experiment(&plan.arms[0], &plan.cells[0], 7).unwrap()
    }

    fn lines(experiment: &Experiment) -> Vec<String> {
        let text = translate(experiment).unwrap().network.to_string();
        let lines = text.lines().filter(|line| !line.starts_with("default "));
        lines.map(String::from).collect()
    }

    #[test]
    fn dumbbell_is_two_links_and_lines_of_connections() {
        let far = "[[flow]]\nname = \"far\"\nreversed = true\nstart = \"1s\"\nrtt = \"30ms\"\n\
                   traffic = { kind = \"greedy\" }";
        let experiment = experiment(far, &["reverse.rate=2Mbit/s", "flow.far.cc=reno"]);
        let expected = [
            "seed 42 7",
            "stop 9000000000 9000000000",
            "link 0 1 16000000 10000000 0",
            "qdisc ns3::FifoQueueDisc MaxSize 20p",
            "link 2 3 2000000 10000000 0",
        ];
        let found = lines(&experiment);
        assert_eq!(found[..expected.len()], expected);
        let bulk = "tcp 0 0 9000000000 0 0 0 1 10 0 ns3::TcpCubic";
        let far = "tcp 0 1000000000 9000000000 5000000 5000000 1 0 10 0 ns3::TcpNewReno";
        assert_eq!(found[expected.len() + 1..], [bulk, bulk, far]);
        let places = translate(&experiment).unwrap().places;
        let places: Vec<(usize, u32)> = places.iter().map(|it| (it.flow, it.index)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0)]);
    }

    #[test]
    fn datagrams_are_sent_when_the_simulator_sends_them() {
        let cross = "[[flow]]\nname = \"cross\"\nstart = \"8500ms\"\n\
                     traffic = { kind = \"cbr\", rate = \"24224bit/s\" }";
        let found = lines(&experiment(cross, &["drain=300ms"]));
        assert_eq!(found[1], "stop 9300000000 9300000000", "they are awaited");
        let at = found.iter().position(|line| line.starts_with("udp")).unwrap();
        assert_eq!(found[at..], ["udp 0 9000000000 0 0 0 1 1484 0", "send 8500000000"]);
    }

    #[test]
    fn requests_are_those_of_the_schedule() {
        let web = "[[flow]]\nname = \"web\"\ncc = \"vegas\"\ntraffic = { kind = \"requests\", sizes = \
                   \"30KB\", load = \"5%\", connections = \"each\" }";
        let experiment = experiment(web, &["drain=4s"]);
        let found = lines(&experiment);
        assert_eq!(found[1], "stop 9000000000 13000000000", "answers are awaited");
        let at = found.iter().position(|line| line.starts_with("requests")).unwrap();
        assert_eq!(found[at], "requests 0 9000000000 0 0 0 1 10 0 ns3::TcpVegas");
        let schedule = experiment.schedule(&experiment.flows[1]).unwrap().unwrap();
        assert_eq!(found[at + 1..].len(), schedule.requests().len());
        let first = schedule.requests()[0].at.as_nanos();
        assert_eq!(found[at + 1], format!("ask {first} 30000"));
    }

    #[test]
    fn links_in_a_row_share_nodes() {
        let keys = "[[flow]]\nname = \"short\"\nhop = 2\ntraffic = { kind = \"greedy\" }";
        let found = lines(&experiment(keys, &["bottleneck.hops=3"]));
        let links: Vec<&String> = found.iter().filter(|line| line.starts_with("link")).collect();
        let ends = ["link 0 1 ", "link 2 3 ", "link 1 4 ", "link 4 5 "];
        assert!(links.len() == 4 && links.iter().zip(ends).all(|(it, ends)| it.starts_with(ends)));
        let flows: Vec<&String> = found.iter().filter(|line| line.starts_with("tcp")).collect();
        assert!(flows[0].contains(" 0 0 0,2,3 1 "), "{}", flows[0]);
        assert!(flows[2].contains(" 10000000 0 2 1 "), "{}", flows[2]);
    }

    #[test]
    fn delay_traces_are_refused() {
        let mut experiment = experiment("", &[]);
        experiment.forward.overtakes = Some(false);
        let error = translate(&experiment).unwrap_err().to_string();
        assert!(error.starts_with("bottleneck.trace with a delay: packets of"), "{error}");
    }

    #[test]
    fn settings_that_ns3_lacks_are_refused_with_reason() {
        let bundle = "bundle = \"a\"\n[[bundle]]\nname = \"a\"\ncc = \"copa\"\n";
        let flow = |traffic: &str| format!("[[flow]]\nname = \"x\"\ntraffic = {traffic}\n");
        let ping = flow("{ kind = \"ping\" }");
        let web = "{ kind = \"requests\", sizes = \"30KB\", load = \"5%\", connections = 3 }";
        let web = flow(web);
        let cases: [(&str, &[&str], &str); 12] = [
            ("", &["stack=linux"], "stack = linux: the back end ns3 runs ns-3's own TCP"),
            (bundle, &[], "bundle.a: the back end ns3 has no boxes, allowed with sim and emu"),
            (
                "",
                &["bottleneck.paths=2"],
                "bottleneck.paths: the back end ns3 does not support this",
            ),
            (
                "",
                &["flow.bulk.transport=quic"],
                "--set: flow.bulk.transport = quic: allowed is \"tcp\" with the back end ns3",
            ),
            ("", &["bottleneck.jitter=1ms"], "bottleneck.jitter: links of the back end ns3 have"),
            ("", &["bottleneck.clears_ecn=true"], "bottleneck.clears_ecn: links of the back end"),
            ("", &["flow.bulk.ack_every=4"], "flow.bulk.ack_every: receivers of the back end ns3"),
            ("", &["bottleneck.qdisc=sfq"], "p: bottleneck.qdisc.kind = sfq: allowed is fifo"),
            (
                "",
                &["flow.bulk.cc=copa"],
                "flow.bulk.cc = copa: allowed is an algorithm of ns-3: bbr",
            ),
            (
                "",
                &["flow.bulk.cc={ kind = \"cubic\", fast_convergence = false }"],
                "flow.bulk.cc = cubic(fast_convergence=false): allowed is a name alone",
            ),
            (&web, &[], "flow.x.traffic.connections: each request has a connection of its own"),
            (&ping, &[], "flow.x.traffic.kind = ping: the back end ns3 has"),
        ];
        for (keys, sets, expected) in cases {
            let error = translate(&experiment(keys, sets)).unwrap_err();
            assert!(matches!(error, BackendError::Unsupported(_)));
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
