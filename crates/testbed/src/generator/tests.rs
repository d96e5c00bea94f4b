//! Both sides of a workload in one event loop, over the loopback device.

use std::net::TcpListener;
use std::time::Duration;

use forebay_core::traffic::video::Video;
use forebay_core::units::Rate;
use forebay_skips::{Need, skip_without};

use super::workload::Request;
use super::*;
use forebay_core::spec::Spec;
use forebay_core::units::ByteCount;
use forebay_scenario::{Flow, RequestLoad, fixed_size};

/// Nanoseconds per millisecond.
const MS: u64 = 1_000_000;

/// A workload of this traffic that lasts 800 ms, without requests.
pub(super) fn workload(traffic: Traffic) -> Workload {
    let of = Flow::new("w", Spec::named("reno"), Duration::from_millis(800), traffic);
    let (place, first, requests, seed) = (0, 0, Vec::new(), 1);
    Workload { of, place, first, socket_cc: "reno".into(), requests, seed }
}

/// Requests over these connections.
pub(super) fn requests(connections: Connections) -> Traffic {
    let sizes = fixed_size(ByteCount::new(1)).unwrap();
    Traffic::Requests(RequestLoad { sizes, load: Rate::ZERO, connections, iid: false })
}

/// Results of both sides for a workload of this traffic.
fn run(traffic: Traffic) -> HostsOutput {
    run_workload(&workload(traffic))
}

/// Results of both sides for `workload`.
fn run_workload(workload: &Workload) -> HostsOutput {
    let local = Ipv4Addr::LOCALHOST;
    let port = TcpListener::bind((local, 0)).unwrap().local_addr().unwrap().port();
    let (start_ns, stop_ns) = (0, 800 * MS);
    let window = Window { start_ns, stop_ns, end_ns: stop_ns, drain_ns: 10_000 * MS };
    let namespace = File::open("/proc/self/ns/net").unwrap();
    let reactor = Reactor::new().unwrap();
    let open = |(key, sends)| {
        let site = SiteEnd { flow: 3, local, remote: local, port, sends, ecn: false, window };
        open_endpoint(&reactor, key, workload, &site, &namespace).unwrap()
    };
    let endpoints = [(0, true), (1, false)].map(open).into();
    let (control, stage) = (Control::new().unwrap(), Stage::Listening);
    let mut hosts = Hosts { reactor, endpoints, control, stage, over: false };
    hosts.endpoints.iter_mut().for_each(|endpoint| endpoint.connect());
    while !hosts.endpoints.iter_mut().all(|endpoint| endpoint.is_connected()) {
        hosts.turn(Path::new("")).unwrap();
    }
    let now = clock::now().as_nanos();
    hosts.endpoints.iter_mut().for_each(|endpoint| endpoint.begin(now));
    hosts.stage = Stage::Running;
    while hosts.stage == Stage::Running {
        hosts.turn(Path::new("")).unwrap();
    }
    let mut output = HostsOutput::default();
    hosts.endpoints.iter_mut().for_each(|endpoint| endpoint.finish(&mut output));
    output
}

/// 25 requests on `connections` connections, from one byte to more than a socket holds.
fn schedule(connections: u32) -> Vec<Request> {
    let request = |number: u32| Request {
        at_ns: 10 * MS * u64::from(number),
        size_bytes: 1 + u64::from(number) * 50_000,
        connection: number % connections,
    };
    (0..25).map(request).collect()
}

fn assert_answered(connections: Connections, schedule: Vec<Request>) {
    let bytes: u64 = schedule.iter().map(|request| request.size_bytes).sum();
    let output = run_workload(&Workload { requests: schedule, ..workload(requests(connections)) });
    assert_eq!(output.requests.len(), 25);
    assert!(output.requests.iter().all(|request| request.finished_ns > request.sent_ns));
    let flow = &output.flows[0];
    assert_eq!((flow.flow, flow.bytes, flow.failed), (3, bytes, false));
    assert_eq!(output.failures, [(3, 0)]);
}

#[test]
fn requests_complete_over_persistent_connections() {
    assert_answered(Connections::Persistent(3), schedule(3));
}

#[test]
fn requests_complete_over_one_connection_each() {
    // Each connection changes the namespace.
    if !skip_without(Need::Root) {
        assert_answered(Connections::Each, schedule(1));
    }
}

#[test]
fn clients_of_a_video_fetch_whole_segments() {
    let second = Duration::from_secs(1);
    let rates = vec![Rate::from_mbit_per_sec(1)];
    let video = Video { segment: second, rates, buffer: 2 * second, startup: second };
    let output = run(Traffic::Video { flows: 2, video });
    let seen = output.flows.iter().map(|it| (it.index, it.bytes, it.failed, it.video.is_some()));
    // Two fill the buffer.
    assert_eq!(seen.collect::<Vec<_>>(), [(0, 250_000, false, true), (1, 250_000, false, true)]);
}

#[test]
fn greedy_flows_are_told_apart() {
    let output = run(Traffic::Greedy { flows: 2 });
    let indices: Vec<u32> = output.flows.iter().map(|flow| flow.index).collect();
    assert_eq!((indices, output.receivers.len()), (vec![0, 1], 2));
    assert!(output.flows.iter().all(|flow| flow.bytes > 0 && !flow.failed));
    assert_eq!(output.failures, [(3, 0)]);
}

/// `workload` over QUIC.
fn over_quic(mut workload: Workload, cc: &str) -> HostsOutput {
    workload.of.transport = Transport::Quic { at: String::new() };
    workload.socket_cc = cc.into();
    run_workload(&workload)
}

#[test]
fn requests_complete_over_quic() {
    if skip_without(Need::Root) {
        return;
    }
    for (connections, count) in [(Connections::Persistent(3), 3), (Connections::Each, 1)] {
        let requests = Workload { requests: schedule(count), ..workload(requests(connections)) };
        let bytes: u64 = requests.requests.iter().map(|request| request.size_bytes).sum();
        let output = over_quic(requests, "cubic");
        assert!(output.requests.iter().all(|request| request.finished_ns > request.sent_ns));
        let flow = &output.flows[0];
        assert_eq!((output.requests.len(), flow.bytes, flow.failed), (25, bytes, false));
        assert_eq!(output.failures, [(3, 0)]);
    }
}

#[test]
fn greedy_flows_over_quic_report_their_algorithm() {
    if skip_without(Need::Root) {
        return;
    }
    for cc in ["cubic", "bbr"] {
        let output = over_quic(workload(Traffic::Greedy { flows: 2 }), cc);
        assert!(output.flows.iter().all(|flow| flow.bytes > 0 && !flow.failed), "{output:?}");
        let ports = output.receivers.iter().map(|(.., port)| *port);
        let senders: Vec<_> = output.senders.iter().map(|it| (it.port, it.cc.as_str())).collect();
        assert_eq!(senders, ports.map(|port| (port, cc)).collect::<Vec<_>>());
        let mut samples = output.senders.iter().flat_map(|it| &it.samples);
        assert!(samples.all(|it| it.cwnd_segments > 0.0 && it.in_flight_segments.is_none()));
        assert_eq!(output.failures, [(3, 0)]);
    }
}

#[test]
fn video_segments_are_streams_over_quic() {
    if skip_without(Need::Root) {
        return;
    }
    let second = Duration::from_secs(1);
    let rates = vec![Rate::from_mbit_per_sec(1)];
    let video = Video { segment: second, rates, buffer: 2 * second, startup: second };
    let output = over_quic(workload(Traffic::Video { flows: 2, video }), "cubic");
    let seen = output.flows.iter().map(|it| (it.index, it.bytes, it.failed, it.video.is_some()));
    assert_eq!(seen.collect::<Vec<_>>(), [(0, 250_000, false, true), (1, 250_000, false, true)]);
}

#[test]
fn greedy_flow_is_limited_by_its_reader() {
    let mut workload = workload(Traffic::Greedy { flows: 2 });
    workload.of.receiving.read_rate = Some(Rate::from_mbit_per_sec(8));
    let output = run_workload(&workload);
    for flow in &output.flows {
        // 800 kB; without the pace, a thousand times as many would arrive.
        assert!((100_000..2_400_000).contains(&flow.bytes) && !flow.failed, "{}", flow.bytes);
    }
}
