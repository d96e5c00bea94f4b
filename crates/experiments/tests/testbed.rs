//! The testbed on real namespaces, sockets and programs. Function only: no figure is judged here.
#![cfg(feature = "host")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use forebay_core::link::Service;
use forebay_core::record::{PacketRecord, RunRecord, TcpSample};
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::video::Video;
use forebay_core::traffic::{Connections, Timing};
use forebay_core::units::{ByteCount, Rate};
use forebay_scenario::{
    Attack, BoxEnd, Bundle, Fault, FaultAction, FaultProgram, Flow, Link, Platform, RequestLoad,
    Scenario, Traffic, Transport, fixed_size,
};
use forebay_skips::{Need, skip_without};
use forebay_testbed::emulator::{packets_file, read_packets};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// Name of the pair of sites.
const SITE: &str = "site";

#[test]
fn all_kinds_of_traffic_cross_the_link() {
    if skip_without(Need::Root) {
        return;
    }
    let mut reversed = flow("up", Traffic::Greedy { flows: 1 });
    reversed.reversed = true;
    let record = run(&scenario(vec![
        flow("bulk", Traffic::Greedy { flows: 2 }),
        reversed,
        flow("web", requests(Connections::Persistent(5), 40, 20_000)),
        flow("cbr", datagrams(Timing::Even)),
        flow("poisson", datagrams(Timing::Poisson)),
        flow(
            "on_off",
            datagrams(Timing::OnOff {
                on: Duration::from_millis(100),
                off: Duration::from_millis(100),
            }),
        ),
        flow("ping", Traffic::Ping { loops: 2 }),
        flow("video", video()),
    ]));
    assert_eq!(record.flows.len(), 2 + 1 + 1 + 3 + 2 + 1);
    for flow in &record.flows {
        assert!(flow.bytes > 0 && !flow.failed, "{flow:?}");
        assert_eq!(flow.bytes, flow.bytes_per_100ms.iter().sum::<u64>(), "{flow:?}");
    }
    assert_eq!(record.requests.len(), 40);
    for (index, request) in record.requests.iter().enumerate() {
        assert_eq!(request.index as usize, index);
        let (sent, finished) = (request.sent_ns.unwrap(), request.finished_ns.unwrap());
        assert!(request.scheduled_ns <= sent && sent < finished, "{request:?}");
    }
    let pings: Vec<_> = record.flows.iter().filter(|flow| flow.flow == 6).collect();
    assert!(pings.len() == 2 && pings.iter().all(|flow| !flow.rtts_ns.is_empty()));
    let video = record.flows.iter().find_map(|flow| flow.video).unwrap();
    assert!(video.segments > 0 && video.startup_ns < 3 * SECOND, "{video:?}");
    assert!(record.host.cpu_cores.iter().any(|(name, _)| name == "left hosts"));
    assert!(record.host.offloads.iter().all(|row| !row.contains("=on")));
}

#[test]
fn quic_fills_the_link_and_answers_requests() {
    if skip_without(Need::Root) {
        return;
    }
    let quic = |name: &str, traffic| Flow {
        transport: Transport::Quic { at: String::new() },
        ..flow(name, traffic)
    };
    let mut scenario = scenario(vec![quic("bulk", Traffic::Greedy { flows: 1 })]);
    scenario.forward = Link::at_rate(
        "forward",
        Rate::from_mbit_per_sec(20),
        Duration::from_millis(10),
        fifo("100p"),
    );
    (scenario.stop, scenario.flows[0].stop) = (Duration::from_secs(6), Duration::from_secs(6));
    scenario.bundles.push(bundle("b"));
    let run = self::run(&scenario);
    let bulk = &run.flows[0];
    // From 1 s on, when the first window is over.
    let bytes: u64 = bulk.bytes_per_100ms.iter().skip(10).sum();
    assert!(bytes >= 20_000_000 / 8 * 5 * 85 / 100 && !bulk.failed, "{bytes} bytes in 5 s");
    assert_eq!(bulk.cc.as_deref(), Some("cubic"));
    assert!(bulk.samples.len() > 100 && bulk.samples.iter().all(|it| it.srtt_ms > Some(10.0)));
    // Full datagrams of 1452 bytes, with headers.
    assert!(run.packets(0).iter().any(|packet| packet.bytes == 1452 + 42));

    scenario.stop = Duration::from_secs(3);
    let traffics = [Connections::Persistent(2), Connections::Each];
    scenario.flows = traffics.map(|it| quic("web", requests(it, 20, 20_000))).into();
    let run = self::run(&scenario);
    assert!(run.requests.len() == 40 && run.requests.iter().all(|it| it.finished_ns.is_some()));
    assert!(run.flows.iter().all(|flow| flow.bytes == 20 * 20_000 && !flow.failed));
}

#[test]
fn connection_per_request_costs_handshake_and_frees_port() {
    if skip_without(Need::Root) {
        return;
    }
    let each = requests(Connections::Each, 600, 5_000);
    let up = Flow { reversed: true, ..flow("up", each.clone()) };
    let record = run(&scenario(vec![flow("web", each), up]));
    assert_eq!(record.requests.len(), 1200);
    for request in &record.requests {
        let (sent, finished) = (request.sent_ns.unwrap(), request.finished_ns.unwrap());
        assert!(request.scheduled_ns <= sent && sent + 40_000_000 <= finished, "{request:?}");
    }
    for flow in &record.flows {
        assert_eq!((flow.bytes, flow.failed), (600 * 5_000, false), "{flow:?}");
    }
    assert!(record.host.settings.iter().any(|row| row == "net.ipv4.tcp_tw_reuse = 1"));
}

#[test]
fn fixed_and_initial_windows_ignore_receiver_start() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let of = |platform, cc: &str| {
        let (cc, greedy) = (cc.parse().unwrap(), Traffic::Greedy { flows: 1 });
        let bulk = Flow { platform, cc, initial_window: 450, ..flow("bulk", greedy) };
        let mut scenario = scenario(vec![bulk]);
        scenario.forward.qdisc = fifo("1000p");
        run(&scenario)
    };
    let longest = |record: &RunRecord| record.links[0].queue.iter().map(|it| it.packets).max();
    // 40 of 450 segments fill the path.
    let reno = of(None, "reno");
    assert_eq!(reno.flows[0].samples[0].cwnd_segments, 450.0);
    assert!(longest(&reno) > Some(350), "{:?}", longest(&reno));
    let fixed = of(Some(Platform::Agent), "const(cwnd=450p)");
    let later = fixed.flows[0].samples.iter().filter(|it| it.at_ns > fixed.started_ns + SECOND);
    assert!(later.clone().count() > 100 && later.clone().all(|it| it.cwnd_segments == 450.0));
    assert!((350..=450).contains(&longest(&fixed).unwrap()), "{:?}", longest(&fixed));
}

#[test]
fn site_pairs_share_bottleneck_and_have_own_figures() {
    if skip_without(Need::Root) {
        return;
    }
    let greedy = Traffic::Greedy { flows: 1 };
    let cross = Flow { pair: "cross".into(), ..flow("cross", greedy.clone()) };
    let mut scenario = scenario(vec![flow("bundled", greedy), cross]);
    scenario.bundles.push(bundle("b"));
    scenario.pairs.push("cross".into());
    let record = run(&scenario);
    for pair in 0..2 {
        // Each entry has one flow.
        let flow = record.flows.iter().find(|flow| flow.flow == pair).unwrap();
        assert!(flow.bytes > 0 && !flow.failed, "{flow:?}");
        let packets = record.packets(0);
        let own = packets.iter().filter(|packet| usize::from(packet.pair) == pair);
        let bytes: u64 = own.map(|packet| u64::from(packet.bytes)).sum();
        assert!(bytes >= flow.bytes, "{bytes} bytes of frames carried {} of payload", flow.bytes);
    }
}

#[test]
fn queues_mark_only_ecn_capable_packets() {
    if skip_without(Need::Root) {
        return;
    }
    let bulk = |ecn: bool, qdisc: &str| {
        let mut scenario = scenario(vec![flow("bulk", Traffic::Greedy { flows: 4 })]);
        (scenario.ecn, scenario.forward.qdisc) = (ecn, qdisc.parse().unwrap());
        let record = run(&scenario);
        let row = format!("net.ipv4.tcp_ecn = {}", u8::from(ecn));
        assert!(record.host.settings.contains(&row), "{:?}", record.host.settings);
        assert!(record.flows.len() == 4 && record.flows.iter().all(|flow| !flow.failed));
        record
    };
    for qdisc in [
        "codel(ecn=true)",
        "fq_codel(ecn=true)",
        "pie(ecn=true, ecn_threshold=1)",
        "red(ecn=true, min_th=20p, max_th=20p, weight=1)",
    ] {
        let record = bulk(true, qdisc);
        let forward = &record.links[0];
        assert!(forward.marks_queue > 0, "{qdisc}");
        assert_eq!(forward.marks_queue, forward.marks_by_reason.total(), "{qdisc}");
        let packets = record.packets(0);
        let marked = packets.iter().filter(|packet| packet.marked).count() as u64;
        // The last may still be inside.
        assert!((1..=forward.marks_queue).contains(&marked), "{qdisc}: {marked}");
        assert_eq!(record.links[1].marks_queue, 0, "acknowledgements are not ECN-capable");
        assert_eq!(forward.drops_queue, 0, "{qdisc}");
        // With a wrong checksum the receiver would throw every marked packet away.
        let last = record.flows.iter().filter_map(|flow| flow.samples.last());
        let resent: u64 = last.map(|sample| sample.retransmissions).sum();
        assert!(2 * resent < forward.marks_queue, "{qdisc}: {resent} sent again");
        let falls = |samples: &[TcpSample]| {
            samples.windows(2).any(|it| it[1].cwnd_segments < it[0].cwnd_segments)
        };
        assert!(
            record.flows.iter().all(|flow| falls(&flow.samples)),
            "{qdisc}: senders hear of it"
        );
    }
    let record = bulk(false, "codel(ecn=true)");
    let forward = &record.links[0];
    assert!(forward.marks_queue == 0 && forward.drops_queue > 0, "{forward:?}");
}

#[test]
fn unknown_congestion_control_is_refused_with_list() {
    if skip_without(Need::Root) {
        return;
    }
    let mut bulk = flow("bulk", Traffic::Greedy { flows: 1 });
    bulk.cc = Spec::named("cubick");
    let dir = tempfile::tempdir().unwrap();
    let error =
        forebay_testbed::run_with(&forebay(), &scenario(vec![bulk]), dir.path(), &mut |_| {});
    let text = error.unwrap_err().to_string();
    assert!(text.contains("cc = \"cubick\": this kernel has") && text.contains("cubic"), "{text}");
}

#[test]
fn flows_run_under_agent_and_bpf() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let greedy = |name: &str, platform, cc: &str| Flow {
        platform,
        cc: cc.parse().unwrap(),
        ..flow(name, Traffic::Greedy { flows: 2 })
    };
    let scenario = scenario(vec![
        greedy("agent", Some(Platform::Agent), "cubic(hystart=off)"),
        greedy("other", Some(Platform::Agent), "cubic"),
        greedy("native", Some(Platform::Bpf), "reno"),
        greedy("kernel", None, "reno"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let record = forebay_testbed::run_with(&forebay(), &scenario, dir.path(), &mut |_| {}).unwrap();
    assert_eq!(record.flows.len(), 8);
    for flow in &record.flows {
        let of = &scenario.flows[flow.flow];
        assert_eq!(flow.cc, Some(of.cc_name()), "as the socket says");
        assert!(flow.bytes > 0 && !flow.failed, "{}: {} bytes", of.name, flow.bytes);
        assert!(flow.samples.len() > 100, "{} samples", flow.samples.len());
        assert!(flow.samples.iter().any(|it| it.cwnd_segments > 10.0 && it.srtt_ms > Some(20.0)));
    }
    let agent = record.agent.unwrap();
    assert!(agent.reports > 100 && agent.decisions > 100, "{agent:?}");
    assert!(record.host.cpu_cores.iter().any(|(name, _)| name == "agent"));
    // Two of the agent and one of BPF, each registered under a name of the run's own.
    let settings = record.host.settings.iter().filter_map(|it| {
        it.strip_prefix("congestion control ")?.split_once(" = ").map(|(name, _)| name)
    });
    let names: Vec<&str> = settings.collect();
    assert!(names.len() == 3 && names.iter().all(|name| name.starts_with("fx")), "{names:?}");
    let registered =
        fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    assert!(!names.iter().any(|name| registered.contains(name)), "they end with the run");
}

#[test]
fn cubic_flow_can_queue_800_packets_in_sendbox() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![flow("bulk", Traffic::Greedy { flows: 1 })]);
    scenario.stop = Duration::from_secs(20);
    scenario.flows[0].stop = scenario.stop;
    // 400 packets fit into the path: neither the sender's queue limit (TSQ) nor socket buffers may
    // bind at three times that.
    for link in [&mut scenario.forward, &mut scenario.reverse] {
        link.service = Service::Rate(Rate::from_mbit_per_sec(96));
        (link.delay, link.qdisc) = (Duration::from_millis(25), fifo("1200p"));
    }
    scenario.bundles.push(bundle("b"));
    let record = run(&scenario);
    assert!(!record.flows[0].failed);
    let bundle = &record.bundles[0];
    let most = bundle.queue.iter().map(|sample| sample.packets).max();
    assert!(most >= Some(800), "at most {most:?} packets in the sendbox");
    assert!(bundle.counters.boundaries_matched > 0 && !bundle.decisions.is_empty());
}

#[test]
fn both_directions_can_be_bundled_at_once() {
    if skip_without(Need::Root) {
        return;
    }
    let mut up = flow("up", Traffic::Greedy { flows: 1 });
    up.reversed = true;
    let mut scenario = scenario(vec![flow("down", Traffic::Greedy { flows: 1 }), up]);
    scenario.bundles = vec![bundle("forward"), Bundle { reversed: true, ..bundle("reverse") }];
    let record = run(&scenario);
    assert_eq!(record.bundles.len(), 2);
    for (bundle, flow) in record.bundles.iter().zip(&record.flows) {
        assert!(bundle.counters.boundaries_matched > 0, "{}", bundle.name);
        assert!(flow.bytes > 0 && !flow.failed, "{flow:?}");
    }
    assert_eq!(record.host.cpu_cores.len(), 3 + 4);
}

#[test]
fn flow_outlives_death_of_each_box() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![flow("bulk", Traffic::Greedy { flows: 1 })]);
    scenario.stop = Duration::from_secs(8);
    scenario.flows[0].stop = scenario.stop;
    scenario.bundles.push(bundle("b"));
    let fault = |seconds, end, action| Fault {
        at: Duration::from_secs(seconds),
        program: FaultProgram::Box { bundle: "b".into(), end },
        action,
    };
    scenario.faults = vec![
        fault(1, BoxEnd::Sendbox, FaultAction::Kill),
        fault(2, BoxEnd::Sendbox, FaultAction::Restart),
        fault(3, BoxEnd::Receivebox, FaultAction::Kill),
        fault(4, BoxEnd::Receivebox, FaultAction::Restart),
        fault(5, BoxEnd::Sendbox, FaultAction::Stop),
        fault(6, BoxEnd::Sendbox, FaultAction::Continue),
    ];
    let record = run(&scenario);
    let flow = &record.flows[0];
    assert!(!flow.failed);
    let silent = flow.bytes_per_100ms.iter().filter(|bytes| **bytes == 0).count();
    assert!(silent <= 20, "{silent} of {} intervals without data", flow.bytes_per_100ms.len());
    // Both incarnations of the sendbox left a trace.
    let restarted_ns = record.started_ns + 2 * SECOND;
    let decisions = &record.bundles[0].decisions;
    assert!(decisions.iter().any(|decision| decision.at_ns < restarted_ns));
    assert!(decisions.iter().any(|decision| decision.at_ns > restarted_ns));
}

#[test]
fn flows_outlive_agent_and_successor_takes_over() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let mut bulk = flow("bulk", Traffic::Greedy { flows: 3 });
    (bulk.platform, bulk.cc) = (Some(Platform::Agent), Spec::named("scalable"));
    let mut scenario = scenario(vec![bulk]);
    for [first, second] in
        [[FaultAction::Kill, FaultAction::Restart], [FaultAction::Stop, FaultAction::Continue]]
    {
        scenario.faults = vec![
            Fault { at: Duration::from_secs(1), program: FaultProgram::Agent, action: first },
            Fault { at: Duration::from_secs(2), program: FaultProgram::Agent, action: second },
        ];
        let record = run(&scenario);
        assert!(record.flows.iter().all(|flow| !flow.failed && flow.bytes > 0));
        let agent = record.agent.unwrap();
        let fault = agent.fault.unwrap();
        assert_eq!((fault.fell_back, fault.resumed), (3, 3), "{first:?}: {agent:?}");
        assert!(fault.last_ns > SECOND / 10, "no sooner than after 100 ms: {fault:?}");
    }
}

#[test]
fn hostile_messages_are_counted_and_stop_no_flow() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![flow("bulk", Traffic::Greedy { flows: 1 })]);
    scenario.stop = Duration::from_secs(6);
    scenario.flows[0].stop = scenario.stop;
    scenario.bundles.push(bundle("b"));
    // A new session after the recorded one.
    for (at_ms, action) in [(1000, FaultAction::Kill), (1500, FaultAction::Restart)] {
        for end in [BoxEnd::Sendbox, BoxEnd::Receivebox] {
            let program = FaultProgram::Box { bundle: "b".into(), end };
            let at = Duration::from_millis(at_ms);
            scenario.faults.push(Fault { at, program, action });
        }
    }
    for end in [BoxEnd::Sendbox, BoxEnd::Receivebox] {
        let at = Duration::from_secs(4);
        scenario.attack = Some(Attack { at, bundle: "b".into(), end, messages: 5_000 });
        let record = run(&scenario);
        assert!(!record.flows[0].failed && record.flows[0].bytes > 0);
        let attack = record.attack.as_ref().unwrap();
        let sent = [attack.forged, attack.replayed, attack.recorded];
        let sent: u64 = sent.iter().sum::<u64>() + attack.truncated + attack.oversized;
        assert_eq!((sent, attack.refused), (5_000, 0));
        assert!(attack.box_cores.is_some(), "{attack:?}");
        // The source address alone does not reject these messages; their own faults do.
        for reason in ["forged", "replayed", "unknown_session", "truncated", "oversized"] {
            let counted = attack.rejected.iter().find(|(name, _)| name == reason);
            assert!(counted.is_some_and(|(_, count)| *count > 0), "{end:?} {reason}: {attack:?}");
        }
        let rejected: u64 = attack.rejected.iter().map(|(_, count)| count).sum();
        assert!(attack.received >= rejected, "{attack:?}");
    }
}

/// `forebay chaos` with real devices, processes and TCP: two runs of some 35 s.
#[test]
fn testbed_sequence_is_no_worse_than_twin() {
    if skip_without(Need::Root) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(forebay());
    command.args(["chaos", "--backend", "emu", "--seeds", "8", "--json"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let sequence = &document["sequences"][0];
    assert!(sequence["violations"].as_array().unwrap().is_empty(), "{sequence:#}");
    let rejected = sequence["rejected"].as_array().unwrap();
    if !rejected.is_empty() {
        eprintln!("not judged: {rejected:?}");
        return;
    }
    assert!(sequence["windows"].as_u64().unwrap() >= 20, "{sequence:#}");
}

/// Runs it and checks conditions that hold for every run. The folder of its files lives as long as
/// the result.
fn run(scenario: &Scenario) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let record = forebay_testbed::run_with(&forebay(), scenario, dir.path(), &mut |_| {}).unwrap();
    let run = Run { record, dir };
    for (number, link) in run.links.iter().enumerate() {
        let packets = run.packets(number);
        assert_eq!(packets.len() as u64, link.packets_in);
        assert!(packets.iter().all(|packet| packet.bytes <= 1514));
        assert_eq!(link.records_lost, 0);
    }
    run
}

struct Run {
    record: RunRecord,
    dir: tempfile::TempDir,
}

impl Run {
    /// The recorded packets of a link.
    fn packets(&self, link: usize) -> Vec<PacketRecord> {
        read_packets(&packets_file(self.dir.path(), &self.links[link].name)).unwrap()
    }
}

impl std::ops::Deref for Run {
    type Target = RunRecord;
    fn deref(&self) -> &RunRecord {
        &self.record
    }
}

fn forebay() -> PathBuf {
    env!("CARGO_BIN_EXE_forebay-experiments").into()
}

fn scenario(flows: Vec<Flow>) -> Scenario {
    Scenario {
        drain: Duration::from_secs(5),
        pairs: vec![SITE.into()],
        flows,
        ..Scenario::new(link("forward"), link("reverse"), Duration::from_secs(3))
    }
}

fn bundle(name: &str) -> Bundle {
    let qdisc = Spec::named("sfq").with("limit", Value::Text("1200p".into()));
    Bundle { pair: SITE.into(), ..Bundle::new(name, Spec::named("copa"), qdisc) }
}

fn fifo(limit: &str) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(limit.into()))
}

fn link(name: &str) -> Link {
    let (rate, delay) = (Rate::from_mbit_per_sec(24), Duration::from_millis(10));
    Link::at_rate(name, rate, delay, fifo("100p"))
}

fn flow(name: &str, traffic: Traffic) -> Flow {
    let flow = Flow::new(name, Spec::named("cubic"), Duration::from_secs(3), traffic);
    Flow { pair: SITE.into(), ..flow }
}

fn datagrams(timing: Timing) -> Traffic {
    Traffic::Datagrams { flows: 1, rate: Rate::from_mbit_per_sec(1), packet_bytes: 1250, timing }
}

/// A client of segments of half a second.
fn video() -> Traffic {
    let rates = [1, 2].map(Rate::from_mbit_per_sec).to_vec();
    let (segment, buffer) = (Duration::from_millis(500), Duration::from_secs(2));
    Traffic::Video { flows: 1, video: Video { segment, rates, buffer, startup: segment } }
}

/// `count` requests in 3 s.
fn requests(connections: Connections, count: u64, size_bytes: u64) -> Traffic {
    let sizes = fixed_size(ByteCount::new(size_bytes)).unwrap();
    let load = Rate::from_bits_per_sec(count * size_bytes * 8 / 3);
    Traffic::Requests(RequestLoad { sizes, load, connections, iid: false })
}
