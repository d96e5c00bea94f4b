//! The schema, and the values of absent keys.

use std::time::Duration;

use forebay_core::bundle::tuning::Tuning;
use forebay_core::bundle::uplink::{Member, Share};
use forebay_core::traffic::{Conduct, Receiving};
use forebay_core::units::{ByteCount, Rate, Ratio};
use forebay_scenario::{Balance, BoxEnd, Traffic, UpsetKind};

use super::*;
use forebay_core::traffic::Timing;

#[test]
fn every_key_of_the_schema_can_be_read() {
    // In debug builds the reader checks that it asks for no key outside the schema. This plan has every key
    // of the schema.
    let text = r#"
name = "all"
title = "All"
description = "d"
seeds = "1..2"
stop = "20s"
stack = "ns3"
ecn = "classic"
start_jitter = "1rtt"
warmup = "1s"
drain = "5s"
arms = ["one"]
baseline = "one"
ideal = "one"
alone = "one"
cells = { bottleneck.rate = ["10Mbit/s"] }
cell = [{ name = "here", set = { drain = "6s" } }]
agent = { report = "5ms", period = "2ms" }
curves = { from = "1s", to = "4s", bin = "200ms", slow_start = "2s" }
[bottleneck]
rate = "96Mbit/s"
rtt = "50ms"
loss = "1%"
message_loss = "50%"
reorder = 0.01
reorder_packets = 4
jitter = "5ms"
batch = "10ms"
qdisc = { kind = "fifo", limit = "100p" }
paths = 3
balance = "packet"
path_spread = "8ms"
hops = 1
change = [{ at = "2s", rate = "5Mbit/s" }, { at = "3s", rtt = "80ms" }, { at = "3s", loss = 0 }]
pulse = [{ of = "loss", every = "10s", to = 0 }]
clears_ecn = true
[reverse]
rate = "1Mbit/s"
ack_filter = true
loss = 0.1
message_loss = 0.1
reorder = 0.1
reorder_packets = 2
jitter = "1s"
qdisc = { kind = "fifo", limit = "50p" }
change = [{ at = "4s", rate = "2Mbit/s" }]
walk = [{ of = "loss", every = "1s", correlation = 0.5, deviation = 0.01, min = 0, max = 0.2 }]
[[flow]]
name = "bulk"
cc = "reno"
initial_window = 100
receiver = "optimistic(lead=3)"
read_rate = "7Mbit/s"
receive_buffer = "64KB"
ack_every = 8
ack_delay = "100ms"
count = 2
start = "1s"
stop = "19s"
bundle = "a"
reversed = true
traffic = { kind = "greedy" }
[[flow]]
pair = "other"
transport = "tcp"
traffic = { kind = "requests", sizes = "10KB", load = "20%", connections = 3, sampling = "iid" }
[[flow]]
traffic = { kind = "video", segment = "2s", rates = ["1Mbit/s", "3Mbit/s"], buffer = "20s", startup = "6s" }
[[flow]]
traffic = { kind = "media", fps = 25, min_rate = "1Mbit/s", max_rate = "9Mbit/s", start_rate = "2Mbit/s", variation = 0.5, late = "100ms" }
[[flow]]
count = 2
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "100B" }
[[flow]]
dscp = 46
ttl = 1
traffic = { kind = "poisson", rate = "1Mbit/s", packet = "100B" }
[[flow]]
traffic = { kind = "on_off", rate = "1Mbit/s", on = "1s", off = "2s", packet = "100B" }
[[flow]]
hop = 1
traffic = { kind = "ping" }
[[bundle]]
name = "a"
pair = "sites"
reversed = true
enabled = true
cc = "copa"
qdisc = "sfq"
datapath = "kernel"
forward = "bridge"
supervised = false
tuning = { supervisor_keep = 0.9, rest = "2s" }
min_rate = "1Mbit/s"
max_rate = "1Gbit/s"
unseen = 0
clock = "0s +1000ppm, 5s -30s"
report_jitter = "2ms"
timestamp_jitter = "200us"
[[bundle]]
name = "b"
pair = "sites"
cc = "copa"
weight = 3
guarantee = "1Mbit/s"
group = "gold"
[uplink]
rate = "90Mbit/s"
[[group]]
name = "gold"
parent = "all"
weight = 2
guarantee = "2Mbit/s"
max_rate = "80Mbit/s"
[[group]]
name = "all"
[[arm]]
name = "one"
summary = "s"
set = { stop = "19s" }
[[figure]]
kind = "plane"
metric = "goodput_mbps"
against = "links/forward/queue_mean_packets"
[[window]]
name = "late"
from = "5s"
to = "6s"
[[figure]]
kind = "bars"
metric = "links/forward/late.utilisation"
baseline = "one"
title = "t"
published = [{ label = "l", arm = "one", cell = "here", value = 1, source = "s" }]
[[figure]]
kind = "ribbon"
series = ["bundles/*/rate_mbps"]
facet = "arm"
[[fault]]
at = "7s"
bundle = "a"
end = "receivebox"
action = "kill"
[[upset]]
at = "7s"
bundle = "a"
site = "b"
what = "mtu"
mtu = 1400
[[upset]]
at = "8s"
bundle = "a"
what = "unseen"
share = "50%"
[[upset]]
at = "8s"
bundle = "a"
what = "forged"
rate = "0kbit/s"
[[upset]]
at = "8s"
bundle = "a"
what = "foreign_tc"
rate = "100kbit/s"
[[upset]]
at = "8s"
bundle = "a"
what = "status_clients"
clients = 64
[[upset]]
at = "8s"
bundle = "a"
what = "suspend"
[[upset]]
at = "9s"
bundle = "a"
what = "resume"
[attack]
at = "8s"
bundle = "a"
target = "receivebox"
messages = 5000
enabled = true
"#;
    let plan = load(text, &[]).unwrap();
    let all = experiment(&plan, 0);
    assert_eq!(all.pairs, ["sites", "other", "cross"]);
    assert_eq!(all.flows.len(), 8);
    let timings = all.flows.iter().filter_map(|flow| match flow.traffic {
        Traffic::Datagrams { timing, .. } => Some(timing),
        _ => None,
    });
    let (on, off) = (Duration::from_secs(1), Duration::from_secs(2));
    assert_eq!(
        timings.collect::<Vec<_>>(),
        [Timing::Even, Timing::Poisson, Timing::OnOff { on, off }]
    );
    let receiving = Receiving {
        conduct: Conduct::Optimistic(3),
        read_rate: Some(Rate::from_mbit_per_sec(7)),
        buffer: Some(ByteCount::new(64_000)),
        ack_every: Some(8),
        ack_delay: Some(Duration::from_millis(100)),
    };
    assert_eq!([all.flows[0].receiving, all.flows[1].receiving], [receiving, Receiving::default()]);
    assert_eq!(all.balance, Balance::Packet);
    let delays: Vec<u128> = all.paths.iter().map(|path| path.delay.as_millis()).collect();
    assert_eq!(delays, [0, 4, 8]);
    let last = all.link("path-3");
    assert_eq!(last.rate(), Some(Rate::from_bits_per_sec(10_000_000 / 3)));
    assert_eq!(last.qdisc.to_string(), "fifo(limit=34p)");
    assert_eq!(last.changes[0].rate, Some(Rate::from_bits_per_sec(5_000_000 / 3)));
    let delays: Vec<_> = all.reverse.changes.iter().filter_map(|change| change.delay).collect();
    assert_eq!(delays, [Duration::from_millis(40)]);
    // One change of the rate, one of the delay, and a step of the walk each second until the drain ends.
    assert_eq!(all.reverse.changes.len(), 2 + 25);
    assert_eq!(plan.figures.len(), 3);
    assert_eq!(plan.references.curves().map(|curves| curves.store_bins()), Some(2));
    assert_eq!(all.faults.len(), 1);
    let upsets: Vec<_> = all.upsets.iter().map(|it| (it.at_b, it.pair.as_str(), it.kind)).collect();
    let [mtu, unseen, forged] = [
        UpsetKind::Mtu(1400),
        UpsetKind::Unseen(Ratio::new(0.5).unwrap()),
        UpsetKind::Forged(Rate::ZERO),
    ];
    let foreign = UpsetKind::ForeignTc(Rate::from_bits_per_sec(100_000));
    let clients = UpsetKind::StatusClients(64);
    let rest = [unseen, forged, foreign, clients, UpsetKind::Suspend, UpsetKind::Resume];
    let rest = rest.map(|kind| (false, "sites", kind));
    assert_eq!(upsets, [&[(true, "sites", mtu)][..], &rest].concat());
    let uplink = all.uplink.as_ref().unwrap();
    assert_eq!(uplink.bundles, [1]);
    let gold = Share {
        weight: 2,
        guarantee: Some(Rate::from_mbit_per_sec(2)),
        max_rate: Some(Rate::from_mbit_per_sec(80)),
    };
    assert_eq!(uplink.shares.groups[0], Member { group: Some(1), share: gold });
    assert_eq!(
        (uplink.shares.bundles[0].group, uplink.shares.bundles[0].share.weight),
        (Some(0), 3)
    );
    let bundle = &all.bundles[0];
    assert!(bundle.in_kernel && !all.bundles[1].in_kernel);
    assert!(!bundle.supervised && all.bundles[1].supervised);
    let rest = Duration::from_secs(2);
    let tuning = Tuning { supervisor_keep: 0.9, rest, ..Tuning::DEFAULT };
    assert_eq!((bundle.tuning, all.bundles[1].tuning), (tuning, Tuning::DEFAULT));
    assert_eq!(Ok(&bundle.clock), "0s +1000ppm, 5s -30s".parse().as_ref());
    let (ms, us) = (Duration::from_millis(2), Duration::from_micros(200));
    assert_eq!((bundle.report_jitter, bundle.timestamp_jitter), (ms, us));
    assert_eq!([all.forward.message_loss, all.reverse.message_loss].map(Ratio::as_f64), [0.5, 0.1]);
    assert!(all.forward.clears_ecn && !all.reverse.clears_ecn && all.reverse.ack_filter);
    assert_eq!(
        all.scenario.attack.map(|attack| (attack.end, attack.messages)),
        Some((BoxEnd::Receivebox, 5000))
    );
    let given = |key: &str| {
        [text, super::cost::TRIALS].iter().any(|text| text.contains(&format!("{key} = ")))
    };
    // A topology replaces many of these tables.
    for heading in schema::headings().iter().filter(|it| it.path != "topology") {
        for key in heading.section.keys {
            let elsewhere = [
                "extends",
                "as_published",
                "aut",
                "trace",
                "trace_end",
                "path",
                "bottleneck",
                "reverse",
                "link",
                "flow",
                "bundle",
                "arm",
                "window",
                "figure",
                "fault",
                "upset",
                "attack",
                "uplink",
                "topology",
                "cost",
            ];
            assert!(given(key.name) || elsewhere.contains(&key.name), "{}", key.name);
            assert!(schema::listing().contains(&key.allowed()));
        }
    }
}

#[test]
fn bundle_qdisc_default_matches_schema() {
    let unnamed =
        PLAN.replace("qdisc = \"sfq\"\n", "").replace("bundle.a.qdisc.limit", "bundle.a.min_rate");
    let unnamed = unnamed.replace("600p", "2Mbit/s");
    let written = PLAN
        .replace("\"sfq\"", schema::BUNDLE.key("qdisc").unwrap().default)
        .replace("600p", "150ms");
    let [unnamed, written] = [unnamed, written]
        .map(|text| experiment(&load(&text, &[]).unwrap(), 1).bundles[0].qdisc.clone());
    assert_eq!(unnamed, written);
    assert_eq!(unnamed.kind, "fq_codel");
}
