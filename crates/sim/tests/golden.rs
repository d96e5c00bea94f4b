//! Hashes of the event stream of short runs, each along another path through the simulator. A change that
//! only makes it faster changes none of the hashes. They are equal in debug and release builds. The
//! bottleneck's plain figures next to each hash show the effect of an intended change.

use std::sync::Arc;

use forebay_core::cc::ALGORITHMS;
use forebay_core::link::{Service, Trace};
use forebay_core::qdisc::DISCIPLINES;
use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::{Receiving, Request, Source};
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};
use forebay_scenario::{self as scenario, Bundle, Link};
use forebay_sim::network::{Flow, Hop, Network, Opener, RoutedBundle, Traffic};
use forebay_sim::{Requests, SUPPLIED, Simulation, Stack};

/// One run per line: name, stack, packets sent, packets that left the link `out`, mean number of packets in
/// that link's queue, its drops, and the hash.
const KNOWN: &str = include_str!("golden.txt");
/// A millisecond.
const MS: Duration = Duration::from_millis(1);
/// A flow that always has data.
const GREEDY: Traffic = Traffic::Source(Source::Greedy { bytes: None });

fn queue(kind: &str, limit: &str) -> Spec {
    Spec::named(kind).with("limit", Value::Text(limit.into()))
}

fn flow(cc: &str, traffic: Traffic) -> Flow {
    let (data, back) = (vec![Hop::Link(0)], vec![Hop::Link(1)]);
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
        data,
        back,
    }
}

/// 2 s over 16 Mbit/s, 15 ms and 20 packets; 8 Mbit/s in the second half.
fn network(stack: Stack, flows: Vec<Flow>) -> Network {
    let rate = Rate::from_mbit_per_sec(16);
    let mut out = Link::at_rate("out", rate, 7 * MS, queue("fifo", "20p"));
    let rate = Some(Rate::from_mbit_per_sec(8));
    out.changes = vec![scenario::Change { at: 1000 * MS, rate, ..scenario::Change::default() }];
    let links = vec![out, Link::delay("back", 8 * MS)];
    Network { flows, ..Network::of_links(Duration::from_secs(2), 1, stack, links) }
}

/// A short flow, a flow that responds to marks, and a flow that was open before the run.
fn mixed() -> Vec<Flow> {
    let bytes = Some(ByteCount::new(200_000));
    let mut open = flow("newreno", GREEDY);
    (open.opened, open.stop) = (Some(15 * MS), Some(1700 * MS));
    vec![
        flow("cubic", Traffic::Source(Source::Greedy { bytes })),
        flow("dctcp", GREEDY),
        open,
        flow("cubic", Traffic::Ping),
    ]
}

/// One algorithm; `None` if it needs a field that the sender does not supply, or a parameter without a
/// default.
fn of_algorithm(stack: Stack, name: &str) -> Option<Network> {
    let mut flow = flow(name, GREEDY);
    if name == "const" {
        flow.cc = flow.cc.with("rate", Value::Text("12Mbit/s".into()));
    }
    forebay_core::cc::build(&flow.cc, SUPPLIED).ok()?;
    Some(network(stack, vec![flow]))
}

fn of_discipline(stack: Stack, name: &str) -> Network {
    let mut network = network(stack, mixed());
    network.links[0].qdisc = match name {
        "prio" | "ets" => {
            let bands = vec![Value::Text("sfq".into()), Value::Spec(queue("fifo", "50p"))];
            Spec::named(name).with("bands", Value::List(bands))
        }
        "policer" => Spec::named("policer")
            .with("rate", Value::Text("6Mbit/s".into()))
            .with("inner", Value::Spec(queue("drr", "50p"))),
        "shaper" => Spec::named("shaper")
            .with("rate", Value::Text("6Mbit/s".into()))
            .with("inner", Value::Spec(queue("drr", "50p"))),
        _ => queue(name, "50p"),
    };
    network
}

/// Effects of a link on a packet besides delay.
fn of_link(stack: Stack, name: &str) -> Network {
    let mut network = network(stack, mixed());
    let link = &mut network.links[0];
    match name {
        "loss" => link.loss = Ratio::new(0.02).unwrap(),
        "reorder" => {
            link.reorder = Ratio::new(0.03).unwrap();
            link.reorder_packets = 4;
        }
        "overtake" => {
            let delay = |at, delay| scenario::Change {
                at: at * MS,
                delay: Some(delay * MS),
                ..scenario::Change::default()
            };
            link.changes = vec![delay(300, 40), delay(500, 3), delay(900, 30), delay(1300, 10)];
        }
        "trace" => {
            let trace = Trace::parse("t", "1\n1\n2\n7\n8\n8\n8\n20\n").unwrap();
            (link.service, link.changes) = (Service::Trace(Arc::new(trace)), Vec::new());
        }
        "log" => drop(network.logged.insert(0)),
        "slow_back" => {
            let rate = Rate::from_bits_per_sec(200_000);
            network.links[1] = Link::at_rate("back", rate, 8 * MS, queue("fifo", "10p"));
        }
        // A window of a few hundred packets meets a queue of a few.
        "overshoot" => {
            link.service = Service::Rate(Rate::from_mbit_per_sec(200));
            link.changes.clear();
            network.flows = vec![flow("cubic", GREEDY)];
        }
        _ => unreachable!("{name}"),
    }
    network
}

/// Datagrams of each kind, over two paths in turn.
fn of_sources(stack: Stack) -> Network {
    let (rate, packet) = (Rate::from_mbit_per_sec(4), ByteCount::new(900));
    let on_off = Source::OnOff { rate, packet, on: 50 * MS, off: 30 * MS };
    let sources = [Source::Cbr { rate, packet }, Source::Poisson { rate, packet }, on_off];
    let mut flows: Vec<Flow> =
        sources.into_iter().map(|it| flow("cubic", Traffic::Source(it))).collect();
    flows.push(flow("cubic", GREEDY));
    let mut network = network(stack, flows);
    let rate = Rate::from_mbit_per_sec(5);
    network.links.push(Link::at_rate("other", rate, 12 * MS, queue("fifo", "30p")));
    for flow in &mut network.flows {
        flow.data = vec![Hop::Spread(vec![vec![Hop::Link(0)], vec![Hop::Link(2)]])];
    }
    network
}

fn of_messages(stack: Stack, name: &str) -> Network {
    let opener = if name == "by_sender" { Opener::Sender } else { Opener::Receiver };
    let mut network = network(stack, vec![flow("cubic", Traffic::Messages(opener))]);
    network.links[0].loss = Ratio::new(0.01).unwrap();
    network
}

/// Messages of up to 64 kB, 8 ms apart.
fn schedule() -> Vec<Request> {
    let mut stream = Streams::new(3).stream("schedule");
    let request = |number: u32| {
        let size = ByteCount::new(1 + (stream.below(1 << 16) >> stream.below(16)));
        Request { at: 8 * number * MS, size, connection: 0 }
    };
    (0..250).map(request).collect()
}

/// Flows of a bundle, and one outside. Its limits always hold: in so short a run a supervisor would hardly
/// enforce any.
fn of_bundle(stack: Stack, law: &str) -> Network {
    let mut network = network(stack, mixed());
    let (path, back) = (vec![Hop::Link(0)], vec![Hop::Link(1)]);
    let bundle = Bundle::new("b", Spec::named(law), queue("sfq", "200p"));
    network.bundles = vec![RoutedBundle::new(Bundle { supervised: false, ..bundle }, path, back)];
    network.links[0].qdisc = queue("fifo", "200p");
    for flow in &mut network.flows[1..] {
        flow.data = vec![Hop::Bundle(0)];
    }
    network
}

/// Columns of the table for a run, after its name and stack.
fn outcome(network: &Network) -> String {
    let mut simulation = Simulation::new(network).unwrap();
    if matches!(network.flows[0].traffic, Traffic::Messages(_)) {
        let mut requests = Requests::default();
        requests.add_messages(Duration::ZERO, schedule(), 0);
        requests.run_until(&mut simulation, Timestamp::ZERO + network.stop);
    } else {
        simulation.run();
    }
    let (packets, hash) = (simulation.packets(), simulation.event_hash());
    let out = simulation.link_metrics(0);
    let (rate, queue) = (out.mean_sending_rate_l1, out.mean_qdisc_length_l2);
    let drops = out.total_qdisc_drops_l2;
    format!("{packets} packets {rate:.2} Mbit/s {queue:.1} queued {drops} dropped {hash:016x}")
}

/// The table of this build, in the order of the registries.
fn table() -> String {
    /// Runs whose link has a feature besides its queue.
    const LINKS: [&str; 7] =
        ["loss", "reorder", "overtake", "trace", "log", "slow_back", "overshoot"];
    let mut text = String::new();
    for stack in Stack::ALL {
        let mut add = |name: &str, network: &Network| {
            text += &format!("{name} {} {}\n", stack.name, outcome(network));
        };
        for name in ALGORITHMS.iter().map(|it| it.name) {
            if let Some(network) = of_algorithm(stack, name) {
                add(&format!("cc/{name}"), &network);
            }
        }
        for name in DISCIPLINES.iter().map(|it| it.name) {
            add(&format!("qdisc/{name}"), &of_discipline(stack, name));
        }
        for name in LINKS {
            add(&format!("link/{name}"), &of_link(stack, name));
        }
        add("sources/spread", &of_sources(stack));
        for name in ["by_sender", "by_receiver"] {
            add(&format!("messages/{name}"), &of_messages(stack, name));
        }
        for law in ["copa", "setpoint", "basic_delay"] {
            add(&format!("bundle/{law}"), &of_bundle(stack, law));
        }
    }
    text
}

/// Compares only the lines in the table, so a new algorithm needs none. The failure prints each changed line,
/// old and new. For an intended change, it also prints the complete new table.
#[test]
fn runs_are_what_they_were() {
    let table = table();
    let is_run = |line: &str, other: &str| line.split(' ').take(2).eq(other.split(' ').take(2));
    let changed: String = KNOWN
        .lines()
        .filter(|known| !table.lines().any(|line| line == *known))
        .map(|known| {
            let now = table.lines().find(|line| is_run(line, known)).unwrap_or("no run");
            format!("was {known}\nis  {now}\n")
        })
        .collect();
    assert!(changed.is_empty() && KNOWN.lines().count() > 80, "{changed}of the table:\n{table}");
}
