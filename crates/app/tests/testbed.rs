//! The testbed on real namespaces, sockets and programs. Function only: no figure is judged here.
#![cfg(feature = "host")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use forebay_core::clock::Clock;
use forebay_core::record::{PacketRecord, RunRecord, TcpSample};
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::video::Video;
use forebay_core::units::Rate;
use forebay_host::daemon::config::DatapathKind;
use forebay_skips::{Need, skip_without};
use forebay_testbed::emulator::{packets_file, read_packets};
use forebay_testbed::scenario::{
    AgentSpec, Algorithm, Attack, BoxEnd, BundleSpec, Connections, Fault, FaultAction,
    FaultProgram, FaultTarget, LinkSpec, PairSpec, Platform, Reading, Request, Scenario, Timing,
    Workload, WorkloadKind,
};

const SECOND: u64 = 1_000_000_000;

#[test]
fn every_kind_of_traffic_crosses_the_link_in_its_direction() {
    if skip_without(Need::Root) {
        return;
    }
    let mut reversed = workload("up", WorkloadKind::Greedy { flows: 1 });
    reversed.reversed = true;
    let record = run(&scenario(vec![
        workload("bulk", WorkloadKind::Greedy { flows: 2 }),
        reversed,
        workload("web", requests(5, 40, 20_000)),
        workload("cbr", datagrams(Timing::Even)),
        workload("poisson", datagrams(Timing::Poisson)),
        workload(
            "on_off",
            datagrams(Timing::OnOff {
                on: Duration::from_millis(100),
                off: Duration::from_millis(100),
            }),
        ),
        workload("ping", WorkloadKind::Ping { loops: 2 }),
        workload("video", video()),
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
fn requests_over_a_connection_each_cost_a_handshake_and_leave_no_port_behind() {
    if skip_without(Need::Root) {
        return;
    }
    let WorkloadKind::Requests { schedule, .. } = requests(1, 600, 5_000) else { unreachable!() };
    let each = WorkloadKind::Requests { connections: Connections::Each, schedule };
    let mut up = workload("up", each.clone());
    up.reversed = true;
    let record = run(&scenario(vec![workload("web", each), up]));
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
fn a_fixed_window_and_an_initial_one_are_in_flight_whatever_receivers_began_with() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let of = |cc: &str, algorithms: Vec<Algorithm>| {
        let bulk = workload("bulk", WorkloadKind::Greedy { flows: 1 });
        let mut scenario = scenario(vec![Workload { cc: cc.into(), ..bulk }]);
        scenario.forward.qdisc = fifo("1000p");
        scenario.pairs[0].initial_windows = [Some(450), None];
        scenario.algorithms = algorithms;
        run(&scenario)
    };
    let longest = |record: &RunRecord| record.links[0].queue.iter().map(|it| it.packets).max();
    // 40 of 450 segments fill the path.
    let reno = of("reno", Vec::new());
    assert_eq!(reno.flows[0].samples[0].cwnd_segments, 450.0);
    assert!(longest(&reno) > Some(350), "{:?}", longest(&reno));
    let key = "agent:const(cwnd=450p)";
    let platform = Platform::Agent("const(cwnd=450p)".parse().unwrap());
    let fixed = of(key, vec![Algorithm { key: key.into(), platform }]);
    let later = fixed.flows[0].samples.iter().filter(|it| it.at_ns > fixed.started_ns + SECOND);
    assert!(later.clone().count() > 100 && later.clone().all(|it| it.cwnd_segments == 450.0));
    assert!((350..=450).contains(&longest(&fixed).unwrap()), "{:?}", longest(&fixed));
}

#[test]
fn pairs_of_sites_share_the_bottleneck_and_are_told_apart() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![workload("bundled", WorkloadKind::Greedy { flows: 1 })]);
    scenario.pairs[0].forward_bundle = Some(bundle("b"));
    scenario.pairs.push(PairSpec {
        name: "cross".into(),
        forward_bundle: None,
        reverse_bundle: None,
        initial_windows: [None; 2],
        workloads: vec![workload("cross", WorkloadKind::Greedy { flows: 1 })],
    });
    let record = run(&scenario);
    for pair in 0..2 {
        // One workload each.
        let flow = record.flows.iter().find(|flow| flow.flow == pair).unwrap();
        assert!(flow.bytes > 0 && !flow.failed, "{flow:?}");
        let packets = record.packets(0);
        let own = packets.iter().filter(|packet| usize::from(packet.pair) == pair);
        let bytes: u64 = own.map(|packet| u64::from(packet.bytes)).sum();
        assert!(bytes >= flow.bytes, "{bytes} bytes of frames carried {} of payload", flow.bytes);
    }
}

#[test]
fn queues_mark_packets_of_ecn_capable_connections_and_of_no_others() {
    if skip_without(Need::Root) {
        return;
    }
    let bulk = |ecn: bool, qdisc: &str| {
        let mut scenario = scenario(vec![workload("bulk", WorkloadKind::Greedy { flows: 4 })]);
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
fn an_unknown_congestion_control_is_named_with_what_there_is() {
    if skip_without(Need::Root) {
        return;
    }
    let mut bulk = workload("bulk", WorkloadKind::Greedy { flows: 1 });
    bulk.cc = "cubick".into();
    let dir = tempfile::tempdir().unwrap();
    let error =
        forebay_testbed::run_with(&forebay(), &scenario(vec![bulk]), dir.path(), &mut |_| {});
    let text = error.unwrap_err().to_string();
    assert!(text.contains("cc = \"cubick\": this kernel has") && text.contains("cubic"), "{text}");
}

#[test]
fn flows_run_under_an_agent_and_under_bpf_and_their_sockets_say_so() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let flow = |name: &str, cc: &str| Workload {
        cc: cc.into(),
        ..workload(name, WorkloadKind::Greedy { flows: 2 })
    };
    let mut scenario = scenario(vec![
        flow("agent", "agent:cubic(hystart=off)"),
        flow("other", "agent:cubic"),
        flow("native", "bpf:reno"),
        flow("kernel", "reno"),
    ]);
    let agent = |spec: &str| Platform::Agent(spec.parse().unwrap());
    scenario.algorithms = vec![
        Algorithm { key: "agent:cubic(hystart=off)".into(), platform: agent("cubic(hystart=off)") },
        Algorithm { key: "agent:cubic".into(), platform: agent("cubic") },
        Algorithm { key: "bpf:reno".into(), platform: Platform::Bpf("reno".into()) },
    ];
    let dir = tempfile::tempdir().unwrap();
    let record = forebay_testbed::run_with(&forebay(), &scenario, dir.path(), &mut |_| {}).unwrap();
    assert_eq!(record.flows.len(), 8);
    for flow in &record.flows {
        let workload = &scenario.pairs[0].workloads[flow.flow];
        assert_eq!(flow.cc.as_ref(), Some(&workload.cc), "as the socket says");
        assert!(flow.bytes > 0 && !flow.failed, "{}: {} bytes", workload.name, flow.bytes);
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
fn one_cubic_flow_can_hold_800_packets_in_the_sendbox() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![workload("bulk", WorkloadKind::Greedy { flows: 1 })]);
    scenario.stop_ns = 20 * SECOND;
    scenario.pairs[0].workloads[0].stop_ns = scenario.stop_ns;
    // 400 packets fit into the path: neither the sender's queue limit (TSQ) nor socket buffers may
    // bind at three times that.
    let wide = LinkSpec { delay_ns: 25_000_000, qdisc: fifo("1200p"), ..link(96_000_000) };
    scenario.forward = wide.clone();
    scenario.reverse = wide;
    scenario.pairs[0].forward_bundle = Some(bundle("b"));
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
    let mut up = workload("up", WorkloadKind::Greedy { flows: 1 });
    up.reversed = true;
    let mut scenario = scenario(vec![workload("down", WorkloadKind::Greedy { flows: 1 }), up]);
    scenario.pairs[0].forward_bundle = Some(bundle("forward"));
    scenario.pairs[0].reverse_bundle = Some(bundle("reverse"));
    let record = run(&scenario);
    assert_eq!(record.bundles.len(), 2);
    for (bundle, flow) in record.bundles.iter().zip(&record.flows) {
        assert!(bundle.counters.boundaries_matched > 0, "{}", bundle.name);
        assert!(flow.bytes > 0 && !flow.failed, "{flow:?}");
    }
    assert_eq!(record.host.cpu_cores.len(), 3 + 4);
}

#[test]
fn a_flow_outlives_the_death_of_each_box_and_both_come_back() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![workload("bulk", WorkloadKind::Greedy { flows: 1 })]);
    scenario.stop_ns = 8 * SECOND;
    scenario.pairs[0].workloads[0].stop_ns = scenario.stop_ns;
    scenario.pairs[0].forward_bundle = Some(bundle("b"));
    let fault = |seconds, end, action| Fault {
        at_ns: seconds * SECOND,
        program: FaultProgram::Box(FaultTarget { pair: 0, reverse: false, end }),
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
fn flows_outlive_the_death_of_their_agent_and_are_taken_over_and_so_after_a_stop() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let mut workload = workload("bulk", WorkloadKind::Greedy { flows: 3 });
    workload.cc = "agent:scalable".into();
    let mut scenario = scenario(vec![workload]);
    scenario.algorithms = vec![Algorithm {
        key: "agent:scalable".into(),
        platform: Platform::Agent(Spec::named("scalable")),
    }];
    for [first, second] in
        [[FaultAction::Kill, FaultAction::Restart], [FaultAction::Stop, FaultAction::Continue]]
    {
        scenario.faults = vec![
            Fault { at_ns: SECOND, program: FaultProgram::Agent, action: first },
            Fault { at_ns: 2 * SECOND, program: FaultProgram::Agent, action: second },
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
fn hostile_messages_of_every_kind_are_counted_and_stop_no_flow() {
    if skip_without(Need::Root) {
        return;
    }
    let mut scenario = scenario(vec![workload("bulk", WorkloadKind::Greedy { flows: 1 })]);
    scenario.stop_ns = 6 * SECOND;
    scenario.pairs[0].workloads[0].stop_ns = scenario.stop_ns;
    scenario.pairs[0].forward_bundle = Some(bundle("b"));
    // A new session after the recorded one.
    for (at_ns, action) in [(SECOND, FaultAction::Kill), (3 * SECOND / 2, FaultAction::Restart)] {
        for end in [BoxEnd::Sendbox, BoxEnd::Receivebox] {
            let program = FaultProgram::Box(FaultTarget { pair: 0, reverse: false, end });
            scenario.faults.push(Fault { at_ns, program, action });
        }
    }
    for end in [BoxEnd::Sendbox, BoxEnd::Receivebox] {
        let target = FaultTarget { pair: 0, reverse: false, end };
        scenario.attack = Some(Attack { at_ns: 4 * SECOND, target, messages: 5_000 });
        let record = run(&scenario);
        assert!(!record.flows[0].failed && record.flows[0].bytes > 0);
        let attack = record.attack.as_ref().unwrap();
        let sent = [attack.forged, attack.replayed, attack.recorded];
        let sent: u64 = sent.iter().sum::<u64>() + attack.truncated + attack.oversized;
        assert_eq!((sent, attack.refused), (5_000, 0));
        assert!(attack.box_cores.is_some(), "{attack:?}");
        // The peer's address lets all of them in as far as their own faults allow.
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
fn a_sequence_on_the_testbed_is_never_worse_than_its_twin() {
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

/// Runs it and checks what holds for every run; the folder of its files lives with the result.
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
    /// What happened to the packets of a link.
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
    env!("CARGO_BIN_EXE_forebay").into()
}

fn scenario(workloads: Vec<Workload>) -> Scenario {
    Scenario {
        seed: 1,
        stop_ns: 3 * SECOND,
        drain_ns: 5 * SECOND,
        ecn: false,
        forward: link(24_000_000),
        reverse: link(24_000_000),
        own_links: Vec::new(),
        routed: false,
        pairs: vec![PairSpec {
            name: "site".into(),
            forward_bundle: None,
            reverse_bundle: None,
            initial_windows: [None; 2],
            workloads,
        }],
        algorithms: Vec::new(),
        agent: AgentSpec::default(),
        faults: Vec::new(),
        upsets: Vec::new(),
        attack: None,
        keeps_headers: false,
    }
}

fn bundle(name: &str) -> BundleSpec {
    BundleSpec {
        name: name.into(),
        cc: Spec::named("copa"),
        qdisc: Spec::named("sfq").with("limit", Value::Text("1200p".into())),
        datapath: DatapathKind::User,
        supervised: true,
        min_rate_bps: None,
        max_rate_bps: None,
        unseen: 0.0,
        clock: Clock::default(),
    }
}

fn fifo(limit: &str) -> Spec {
    Spec::named("fifo").with("limit", Value::Text(limit.into()))
}

fn link(rate_bps: u64) -> LinkSpec {
    LinkSpec {
        rate_bps: Some(rate_bps),
        trace: None,
        delay_ns: 10_000_000,
        jitter_ns: 0,
        batch_ns: 0,
        loss: 0.0,
        message_loss: 0.0,
        reorder: 0.0,
        reorder_packets: 0,
        qdisc: fifo("100p"),
        changes: Vec::new(),
    }
}

fn workload(name: &str, kind: WorkloadKind) -> Workload {
    Workload {
        name: name.into(),
        cc: "cubic".into(),
        reversed: false,
        start_ns: 0,
        stop_ns: 3 * SECOND,
        dscp: 0,
        ttl: None,
        reading: Reading::default(),
        kind,
    }
}

fn datagrams(timing: Timing) -> WorkloadKind {
    WorkloadKind::Datagrams { rate_bps: 1_000_000, packet_bytes: 1250, timing, seed: 1 }
}

/// A client of segments of half a second.
fn video() -> WorkloadKind {
    let rates = [1, 2].map(Rate::from_mbit_per_sec).to_vec();
    let (segment, buffer) = (Duration::from_millis(500), Duration::from_secs(2));
    WorkloadKind::Video { clients: 1, video: Video { segment, rates, buffer, startup: segment } }
}

/// `count` requests, evenly over the first 2 s.
fn requests(connections: u32, count: u32, size_bytes: u64) -> WorkloadKind {
    let request = |i: u32| Request {
        at_ns: u64::from(i) * 2 * SECOND / u64::from(count),
        size_bytes,
        connection: i % connections,
    };
    let schedule = (0..count).map(request).collect();
    WorkloadKind::Requests { connections: Connections::Persistent(connections), schedule }
}
