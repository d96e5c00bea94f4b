use std::process::Command;

use forebay_sim::flags;
use forebay_skips::{Need, skip_without};

use super::*;
use crate::metrics::{Part, evaluate};
use crate::plan::library::Source;
use crate::plan::{Override, Plan};

/// Losses at a short queue and on the way, and datagrams both ways.
const PLAN: &str = r#"
name = "p"
stop = "10s"
drain = "2s"
bottleneck = { rate = "12Mbit/s", rtt = "40ms", loss = "0.2%", qdisc = { kind = "fifo", limit = "20p" } }
[[flow]]
name = "bulk"
count = 2
traffic = { kind = "greedy" }
[[flow]]
name = "late"
cc = "bbr"
start = "1s"
traffic = { kind = "greedy" }
[[flow]]
name = "up"
reversed = true
traffic = { kind = "cbr", rate = "500kbit/s", packet = "142B" }
[[flow]]
name = "probe"
traffic = { kind = "ping" }
"#;

/// Connections that begin and end, and segments that are not full.
const REQUESTS: &str = r#"
[[flow]]
name = "web"
bundle = "web"
traffic = { kind = "requests", sizes = "30KB", load = "10%", connections = "each" }
[[flow]]
name = "old_web"
bundle = "web"
traffic = { kind = "requests", sizes = "30KB", load = "10%", connections = 5 }
[[bundle]]
name = "web"
cc = "copa"
qdisc = "sfq"
"#;

fn experiment(sets: &[&str]) -> Experiment {
    experiment_of(PLAN, sets)
}

fn experiment_of(text: &str, sets: &[&str]) -> Experiment {
    let source = Source { file: "p".into(), folder: None, text: text.into() };
    let sets: Vec<_> = sets.iter().map(|it| Override::parse(it).unwrap()).collect();
    let plan = Plan::from_source(source, &sets).unwrap();
    plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap()
}

/// A capture at `points`, and its sizes.
fn captured(experiment: &Experiment, points: &[&str]) -> (tempfile::TempDir, Captured) {
    let folder = tempfile::tempdir().unwrap();
    let wanted = Capture {
        backend: "sim".into(),
        points: points.iter().map(|name| name.to_string()).collect(),
        limit: "100MB".parse().unwrap(),
        pcapng: Some(folder.path().join("packets.pcapng")),
        qlog: Some(folder.path().join("connections.qlog")),
    };
    let captured = capture(experiment, &wanted, &mut |_| ()).unwrap();
    (folder, captured)
}

fn flows(experiment: &Experiment) -> Vec<Part> {
    let backend = backend::open("sim").unwrap();
    let rows = backend.run(experiment, Path::new(""), &mut |_| ()).unwrap();
    evaluate(experiment, &rows).unwrap().flows
}

/// Fields that Wireshark prints for each packet.
const FIELDS: [&str; 10] = [
    "_ws.malformed",
    "ip.checksum.status",
    "tcp.flags",
    "tcp.options.sack_le",
    "frame.comment",
    "tcp.analysis.ack_lost_segment",
    "tcp.analysis.retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.out_of_order",
];

/// The first of the fields that mark a retransmission.
const AGAIN: usize = 6;

/// A packet as Wireshark reads it: a value for each of [`FIELDS`], empty if it has none.
struct Packet(Vec<String>);

impl Packet {
    fn get(&self, field: &str) -> &str {
        &self.0[FIELDS.iter().position(|known| *known == field).unwrap()]
    }

    fn flags(&self) -> u16 {
        self.get("tcp.flags")
            .strip_prefix("0x")
            .map_or(0, |it| u16::from_str_radix(it, 16).unwrap())
    }

    fn is_again(&self) -> bool {
        self.0[AGAIN..].iter().any(|answer| !answer.is_empty())
    }
}

/// The packets of a capture; panics if one is malformed or has a wrong checksum.
fn dissected(folder: &tempfile::TempDir) -> Vec<Packet> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder.path().join("packets.pcapng"));
    tshark.args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
    let output = tshark.args(FIELDS.iter().flat_map(|field| ["-e", field])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let packet = |line: &str| Packet(line.split('\t').map(String::from).collect());
    let packets: Vec<Packet> = text.lines().map(packet).collect();
    for packet in &packets {
        let answers = (packet.get("_ws.malformed"), packet.get("ip.checksum.status"));
        assert_eq!(answers, ("", "1"), "{:?}", packet.0);
    }
    packets
}

#[test]
fn wireshark_counts_the_same_retransmissions() {
    if skip_without(Need::Tshark) {
        return;
    }
    for stack in ["linux", "ns3"] {
        let experiment = experiment(&[&format!("stack={stack}")]);
        let (folder, captured) = captured(&experiment, &["sender"]);
        let (packets, written) = (dissected(&folder), captured.pcapng.unwrap());
        assert_eq!((packets.len() as u64, written.full_at_ns), (written.entries, None));
        let count = |is: &dyn Fn(&Packet) -> bool| packets.iter().filter(|it| is(it)).count();
        let total = "total_retransmissions_l4";
        let ours: f64 = flows(&experiment).iter().filter_map(|flow| flow.metrics.get(total)).sum();
        let theirs = count(&Packet::is_again) as f64;
        assert!(ours >= 50.0, "{stack}: {ours}");
        assert!((theirs - ours).abs() <= 0.02 * ours, "{stack}: {theirs}, and by our count {ours}");
        let with_sack = count(&|it| !it.get("tcp.options.sack_le").is_empty());
        assert!(with_sack > 50, "{stack}: {with_sack}");
        let says = |what: &str| count(&|it| it.get("frame.comment").contains(what));
        let ends = [says("dropped by the queue of forward"), says("lost on forward")];
        assert!(ends[0] > 50 && ends[1] > 5, "{stack}: {ends:?}");
    }
}

#[test]
fn wireshark_follows_whole_connections() {
    if skip_without(Need::Tshark) {
        return;
    }
    for stack in ["linux", "ns3"] {
        let text = format!("{PLAN}{REQUESTS}");
        let experiment = experiment_of(&text, &[&format!("stack={stack}"), "bottleneck.loss=0%"]);
        let (folder, captured) = captured(&experiment, &["receiver"]);
        let packets = dissected(&folder);
        assert_eq!(packets.len() as u64, captured.pcapng.unwrap().entries);
        let count = |is: &dyn Fn(&Packet) -> bool| packets.iter().filter(|it| is(it)).count();
        let requests = count(&|it| it.get("frame.comment").contains("flow web#0, cubic"));
        let begin = count(&|it| it.flags() == flags::SYN && !it.is_again());
        // Connections already open before a run of Linux begin during a run of ns-3.
        let others = if stack == "linux" { 0 } else { 3 + 2 * 5 };
        assert_eq!(begin, requests + others, "{stack}");
        let end = count(&|it| it.flags() & flags::FIN != 0);
        assert!(requests > 20 && end >= requests, "{stack}: {requests} requests, {end} ends");
        let unseen = count(&|it| !it.get("tcp.analysis.ack_lost_segment").is_empty());
        assert_eq!(unseen, 0, "{stack}: acknowledged though it did not come");
    }
}

#[test]
fn link_points_capture_passing_packets_and_marks() {
    let red = r#"bottleneck.qdisc={ kind = "codel", limit = "100p", ecn = true }"#;
    let experiment = experiment(&[red, "ecn=classic", "bottleneck.loss=0%"]);
    let (folder, captured) = captured(&experiment, &["all"]);
    assert_eq!(captured.pcapng.unwrap().full_at_ns, None);
    let bytes = std::fs::read(folder.path().join("packets.pcapng")).unwrap();
    let mut by_point = [0_u32; 6];
    let mut marked = [0_u32; 6];
    for (kind, body) in pcapng::blocks(&bytes) {
        if kind == 6 {
            let point = usize::from(body[0]);
            by_point[point] += 1;
            // Ethernet, then IPv4: its second byte.
            marked[point] += u32::from(body[20 + 15] & 3 == 3);
        }
    }
    let [sender, receiver, there, out, back, back_out] = by_point;
    assert!(there > 5000 && out <= there && receiver > 5000 && sender > 5000, "{by_point:?}");
    assert!(back > 1000 && back_out <= back, "{by_point:?}");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("marked by the queue of forward"));
    assert!(text.contains("flow bulk#1, cubic: opened before the run, with MSS 1448, SACK"));
    // The bottleneck sets marks, so they are visible after it alone.
    assert!(marked[0] == 0 && marked[2] == 0, "{marked:?}");
    assert!(marked[3] > 0 && marked[1] > 0 && marked[1] <= marked[3], "{marked:?}");
}

#[test]
fn the_crate_qlog_reads_what_connections_did() {
    use ::qlog::events::EventData;
    let experiment = experiment(&[]);
    let (folder, captured) = captured(&experiment, &["sender"]);
    let written = captured.qlog.unwrap();
    let text = std::fs::read_to_string(folder.path().join("connections.qlog")).unwrap();
    assert_eq!((text.len() as u64, written.full_at_ns), (written.bytes, None));
    let log: ::qlog::Qlog = serde_json::from_str(&text).unwrap();
    assert_eq!((log.qlog_version.as_str(), log.qlog_format.as_str()), ("0.3", "JSON"));
    let events: usize = log.traces.iter().map(|trace| trace.events.len()).sum();
    assert_eq!(events as u64, written.entries);
    let bulk: Vec<_> = log
        .traces
        .iter()
        .filter(|trace| trace.title.as_ref().is_some_and(|title| title.starts_with("bulk#")))
        .collect();
    assert_eq!(bulk.len(), 2);
    let flows = flows(&experiment);
    let flow = flows.iter().find(|flow| flow.name == "bulk").unwrap();
    let (mut sent, mut again, mut lost, mut received) = (0, 0_u32, 0_u32, 0);
    let (mut windows, mut recoveries) = (Vec::new(), 0);
    for trace in bulk {
        let mut known = std::collections::HashSet::new();
        let mut last_ms = 0.0;
        for event in &trace.events {
            assert!(event.time >= last_ms, "events are in order");
            last_ms = event.time;
            match &event.data {
                EventData::PacketSent(packet) => {
                    sent += 1;
                    again += u32::from(!known.insert(packet.header.packet_number));
                }
                EventData::PacketReceived(_) => received += 1,
                EventData::PacketLost(_) => lost += 1,
                EventData::MetricsUpdated(metrics) => windows.extend(metrics.congestion_window),
                EventData::CongestionStateUpdated(state) => {
                    recoveries += u32::from(state.new == "recovery");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let total = flow.metrics.get("total_retransmissions_l4").unwrap();
    assert_eq!(f64::from(again), total);
    assert!(sent > 1000 && received > 500 && recoveries > 3, "{sent} {received} {recoveries}");
    assert!(lost > 20 && lost.abs_diff(again) < again / 2, "{lost} lost, {again} sent again");
    assert!(windows.iter().any(|bytes| *bytes >= 20 * 1448), "{windows:?}");
}

#[test]
fn capture_ends_at_limit_and_refuses_impossible_options() {
    let experiment = experiment(&["stop=2s"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.pcapng");
    let wanted = Capture {
        backend: "sim".into(),
        points: vec!["sender".into()],
        limit: "20KB".parse().unwrap(),
        pcapng: Some(path.clone()),
        qlog: None,
    };
    let written = capture(&experiment, &wanted, &mut |_| ()).unwrap().pcapng.unwrap();
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!((15_000..=20_000).contains(&bytes) && bytes == written.bytes, "{written:?}");
    assert!(written.full_at_ns.is_some_and(|at_ns| at_ns < 2_000_000_000), "{written:?}");
    let refused = |wanted: Capture| {
        let error = capture(&experiment, &wanted, &mut |_| ()).unwrap_err();
        assert!(error.is_bad_input());
        error.to_string()
    };
    let points = vec!["bottleneck".to_string()];
    let error = refused(Capture { points, ..wanted.clone() });
    assert!(
        error.starts_with("--at bottleneck: allowed is sender, receiver, forward-in, "),
        "{error}"
    );
    let below = path.join("below");
    let error = refused(Capture { pcapng: Some(below.clone()), ..wanted });
    assert!(
        error.starts_with(&below.display().to_string()) && error.contains("allowed"),
        "{error}"
    );
}
