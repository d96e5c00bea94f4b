//! Real kernel TCP between network namespaces over an emulated link.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_core::qdisc::written_out;
use forebay_core::random::Streams;
use forebay_core::record::{FlowRecord, LinkRecord, PacketRecord, RunRecord};
use forebay_core::spec::{Spec, SpecError, nearest};
use forebay_core::traffic::Receiving;
use forebay_core::units::Ratio;
use forebay_host::agent;
use forebay_host::agent::rules::Choice;
use forebay_host::daemon::config::DatapathKind;
use forebay_host::live::named;
use forebay_testbed::emulator::{HEADER_BYTES, headers_file, packets_file, read_packets};
use forebay_testbed::scenario::{
    self, AgentSpec, Algorithm, Attack, BundleSpec, Fault, FaultProgram, FaultTarget, LinkChange,
    LinkSpec, OwnLinks, PairSpec, Reading, Request, Scenario, Upset, Workload, WorkloadKind,
};
use forebay_testbed::{Phase, TestbedError};

use nix::errno::Errno;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket};

use super::{Backend, BackendError, Progress};
use crate::algorithms::{self, known};
use crate::plan::Experiment;
use crate::plan::experiment::{self as plan, Platform};
use crate::rows::{PacketLog, RunRows};

/// The back end.
pub struct Emu;

impl Backend for Emu {
    fn name(&self) -> &'static str {
        "emu"
    }

    fn jobs_max(&self) -> Option<usize> {
        Some(1)
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn writes_files(&self) -> bool {
        true
    }

    fn check(&self, experiment: &Experiment) -> Result<(), BackendError> {
        if let Some(flow) = experiment.flows.iter().find(|flow| flow.rtt.is_some()) {
            let reason = format!(
                "flow.{}.rtt: the back end emu has one path for all flows, allowed with sim",
                flow.name
            );
            return Err(BackendError::Unsupported(reason));
        }
        if experiment.stack != plan::Stack::Linux {
            let reason = "stack = ns3: the back end emu runs the kernel's own TCP, allowed is \
                          \"linux\"; the back end sim has both";
            return Err(BackendError::Unsupported(reason.into()));
        }
        check_links(experiment)?;
        check_receivers(experiment)?;
        check_boxes(experiment)?;
        // Said before a folder for results is made.
        if !nix::unistd::geteuid().is_root() {
            return Err(BackendError::Unavailable(TestbedError::NotRoot.to_string()));
        }
        experiment.flows.iter().try_for_each(check_cc)?;
        scenario(experiment).map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RunRows, BackendError> {
        let Plan { scenario, flows } = with_traces(experiment, directory)?;
        rows(experiment, emulate(&scenario, directory, progress)?, directory, &flows)
    }
}

/// What the testbed runs, the traces of its links written into `directory`.
fn with_traces(experiment: &Experiment, directory: &Path) -> Result<Plan, BackendError> {
    let mut plan = scenario(experiment)?;
    plan.scenario.forward.trace = write_trace(&experiment.forward, "forward", directory)?;
    plan.scenario.reverse.trace = write_trace(&experiment.reverse, "reverse", directory)?;
    for (own, links) in experiment.own_links.iter().zip(&mut plan.scenario.own_links) {
        links.forward.trace = write_trace(&own.there, &own.pair, directory)?;
    }
    Ok(plan)
}

fn emulate(
    scenario: &Scenario,
    directory: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunRecord, BackendError> {
    let mut report = |step: forebay_testbed::Progress| {
        let phase = match step.phase {
            Phase::Waiting { holder } => format!("waiting for {holder}"),
            Phase::Preparing => "preparing".into(),
            Phase::Running => "running".into(),
            Phase::Draining => "draining".into(),
            Phase::Collecting => "collecting".into(),
        };
        let done = step.elapsed_ns as f64 / step.total_ns.max(1) as f64;
        progress(Progress { phase, done: done.min(1.0) });
    };
    forebay_testbed::run(scenario, directory, &mut report).map_err(|error| match error {
        TestbedError::NotRoot => BackendError::Unavailable(error.to_string()),
        _ if error.is_of_a_box() => BackendError::BoxDied(error.to_string()),
        _ => BackendError::Failed(error.to_string()),
    })
}

/// Runs `experiment` as [`Emu`] does. Then `visit` is told of every packet, in order of arrival: number of the link,
/// what became of the packet, and the first bytes of its frame as it arrived.
pub(crate) fn capture(
    experiment: &Experiment,
    directory: &Path,
    progress: &mut dyn FnMut(Progress),
    mut visit: impl FnMut(usize, &PacketRecord, &[u8]),
) -> Result<(), BackendError> {
    let plan = with_traces(experiment, directory)?;
    let scenario = Scenario { keeps_headers: true, ..plan.scenario };
    let record = emulate(&scenario, directory, progress)?;
    let open = |link| Frames::open(directory, link);
    let mut links = record.links.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    loop {
        let next = links.iter_mut().enumerate();
        let next =
            next.filter_map(|(link, frames)| Some((frames.packets.peek()?.arrived_ns, link)));
        let Some((_, link)) = next.min() else { return Ok(()) };
        links[link].read(|packet, header| visit(link, packet, header))?;
    }
}

/// The packets of a link that were not read yet, in order of arrival.
struct Frames<'a> {
    link: &'a str,
    packets: std::iter::Peekable<std::vec::IntoIter<PacketRecord>>,
    headers: BufReader<File>,
}

impl<'a> Frames<'a> {
    fn open(directory: &Path, link: &'a LinkRecord) -> Result<Self, BackendError> {
        let LinkRecord { name, records_lost, .. } = link;
        if *records_lost > 0 {
            let reason = format!("{records_lost} were lost, the disk is too slow");
            return Err(failed(name, &reason));
        }
        let packets = read_packets(&packets_file(directory, name));
        let packets = packets.map_err(|error| failed(name, &error))?.into_iter().peekable();
        let headers = File::open(headers_file(directory, name));
        let headers = BufReader::new(headers.map_err(|error| failed(name, &error))?);
        Ok(Self { link: name, packets, headers })
    }

    /// Reads the next packet.
    fn read(&mut self, visit: impl FnOnce(&PacketRecord, &[u8])) -> Result<(), BackendError> {
        let mut header = [0; HEADER_BYTES];
        self.headers.read_exact(&mut header).map_err(|error| failed(self.link, &error))?;
        if let Some(packet) = self.packets.next() {
            visit(&packet, &header[..HEADER_BYTES.min(packet.bytes as usize)]);
        }
        Ok(())
    }
}

fn failed(link: &str, reason: &dyn std::fmt::Display) -> BackendError {
    BackendError::Failed(format!("packets of {link}: {reason}"))
}

/// Refuses links that the emulator is not made of.
fn check_links(experiment: &Experiment) -> Result<(), BackendError> {
    let walking = experiment.links().find(|(_, link)| !link.walks.is_empty());
    let own = || experiment.own_links.iter().flat_map(|own| [&own.there, &own.back]);
    let (key, has) = match walking.as_ref().map(|(name, _)| name.as_str()) {
        _ if !experiment.paths.is_empty() => ("bottleneck.paths", "one path"),
        _ if !experiment.hops.is_empty() => ("bottleneck.hops", "one link each way"),
        _ if !experiment.own_links.is_empty() && !experiment.routed => {
            ("link", "one bottleneck for all pairs behind bridges")
        }
        _ if experiment.topology.is_some() => ("topology", "one bottleneck for all pairs"),
        _ if experiment.reverse.ack_filter => ("reverse.ack_filter", "no such filter"),
        _ if experiment.forward.clears_ecn => {
            ("bottleneck.clears_ecn", "links that leave the ECN field alone")
        }
        _ if own().any(|link| link.ack_filter) => ("link.ack_filter", "no such filter"),
        _ if own().any(|link| link.clears_ecn) => {
            ("link.clears_ecn", "links that leave the ECN field alone")
        }
        Some("reverse") => ("reverse.walk", "no random walks"),
        Some(_) => ("bottleneck.walk", "no random walks"),
        None => return Ok(()),
    };
    let reason = format!("{key}: the back end emu has {has}, allowed with sim");
    Err(BackendError::Unsupported(reason))
}

/// Refuses receivers that acknowledge otherwise than the hosts' kernel; how they read is the hosts' own.
fn check_receivers(experiment: &Experiment) -> Result<(), BackendError> {
    for plan::Flow { name, receiving, .. } in &experiment.flows {
        let acknowledging = Receiving { read_rate: None, buffer: None, ..*receiving };
        if let Some(key) = acknowledging.first_given() {
            let reason = "the receivers of the back end emu are the kernel's own, allowed with sim";
            return Err(BackendError::Unsupported(format!("flow.{name}.{key}: {reason}")));
        }
    }
    Ok(())
}

/// Refuses what real boxes cannot be made to do.
fn check_boxes(experiment: &Experiment) -> Result<(), BackendError> {
    let refused = |reason: String| Err(BackendError::Unsupported(reason));
    if let Some(uplink) = &experiment.uplink {
        let rate = uplink.shares.rate;
        return refused(format!(
            "uplink.rate = {rate}: the back end emu has a sendbox for each pair of sites, allowed with sim"
        ));
    }
    if experiment.routed && (experiment.attack.is_some() || !experiment.upsets.is_empty()) {
        return refused(
            "[attack] and [[upset]]: with bundle.forward = \"route\" the back end emu has neither, allowed is \"bridge\""
                .into(),
        );
    }
    for bundle in &experiment.bundles {
        for (key, jitter) in
            [("report_jitter", bundle.report_jitter), ("timestamp_jitter", bundle.timestamp_jitter)]
        {
            if !jitter.is_zero() {
                let name = &bundle.name;
                return refused(format!(
                    "bundle.{name}.{key}: the boxes of the back end emu are as late as they are, allowed with sim"
                ));
            }
        }
    }
    for upset in &experiment.upsets {
        let is_reversed = experiment.bundle(&upset.bundle).is_some_and(|it| it.reversed);
        match upset.kind {
            plan::UpsetKind::Suspend | plan::UpsetKind::Resume => {
                let what = "suspend and resume: the boxes of the back end emu share one machine";
                return refused(format!("[[upset]] {what}, allowed with sim"));
            }
            plan::UpsetKind::Unseen(_) if is_reversed => {
                let what = "unseen: the back end emu has a second way into site B alone";
                return refused(format!("[[upset]] {what}, allowed with sim"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A scenario, and what each of its workloads stands for: the place of its flow in the experiment and
/// the number of its first connection there.
struct Plan {
    scenario: Scenario,
    flows: Vec<(usize, u32)>,
}

/// The kernel's name of a congestion control.
fn kernel_name(cc: &Spec) -> &str {
    if cc.kind == "newreno" { "reno" } else { &cc.kind }
}

/// What the sockets of a flow are to have: a name that the kernel knows, or the key of an algorithm that
/// the run brings along.
fn socket_cc(flow: &plan::Flow) -> String {
    match flow.platform {
        None | Some(Platform::Kernel) => kernel_name(&flow.cc).to_string(),
        Some(Platform::Agent | Platform::Bpf) => flow.cc_name(),
    }
}

/// The algorithms that the run brings along, each once.
fn algorithms(experiment: &Experiment) -> Vec<Algorithm> {
    let mut all: Vec<Algorithm> = Vec::new();
    for flow in experiment.flows.iter().filter(|flow| flow.is_tcp()) {
        let platform = match flow.platform {
            None | Some(Platform::Kernel) => continue,
            Some(Platform::Agent) => scenario::Platform::Agent(flow.cc.clone()),
            Some(Platform::Bpf) => scenario::Platform::Bpf(flow.cc.kind.clone()),
        };
        let key = flow.cc_name();
        if all.iter().all(|algorithm| algorithm.key != key) {
            all.push(Algorithm { key, platform });
        }
    }
    all
}

/// The files in Python of algorithms that an agent runs, each once.
fn files_in_python(experiment: &Experiment) -> Vec<PathBuf> {
    let in_agent = experiment.flows.iter().filter(|it| it.platform == Some(Platform::Agent));
    let files: BTreeSet<&Path> =
        in_agent.filter_map(|flow| algorithms::python(&flow.cc.kind)).collect();
    files.into_iter().map(Path::to_path_buf).collect()
}

/// Refuses parameters, which a kernel's algorithm does not take, and algorithms that the kernel neither
/// has nor can load. Of those that the run brings along: whether the kernel can hold them.
fn check_cc(flow: &plan::Flow) -> Result<(), BackendError> {
    let refused = |allowed: &str| {
        let (at, name, cc) = (&flow.cc_at, &flow.name, flow.cc_name());
        let reason = format!("{at}: flow.{name}.cc = {cc}: allowed is {allowed}");
        Err(BackendError::Unsupported(reason))
    };
    let within = |error: SpecError| {
        let error = error.within(&format!("flow.{}.cc", flow.name));
        BackendError::Unsupported(format!("{}: {error}", flow.cc_at))
    };
    match flow.platform {
        None | Some(Platform::Kernel) => {}
        Some(Platform::Agent) => drop(Choice::new(known(), flow.cc.clone()).map_err(within)?),
        Some(Platform::Bpf) => {
            let kind = agent::native::Kind::named(&flow.cc.kind);
            kind.map_err(|allowed| {
                let (name, cc) = (&flow.name, flow.cc_name());
                let reason = format!("flow.{name}.cc = {cc}: this program has in BPF {allowed}");
                BackendError::Unavailable(reason)
            })?;
        }
    }
    if !matches!(flow.platform, None | Some(Platform::Kernel)) {
        return agent::check().map_err(|error| {
            let (name, cc) = (&flow.name, flow.cc_name());
            BackendError::Unavailable(format!("flow.{name}.cc = {cc}: {error}"))
        });
    }
    if !flow.cc.params.is_empty() {
        return refused("a name alone: the kernel's algorithms take no parameters here");
    }
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    let answer = socket.and_then(|socket| {
        setsockopt(&socket, TcpCongestion, &OsString::from(kernel_name(&flow.cc)))
    });
    if answer == Err(Errno::ENOENT) {
        let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = std::fs::read_to_string(available).unwrap_or_default();
        return refused(&of_kernel(&flow.cc, &available));
    }
    Ok(())
}

/// What is allowed instead of `cc`, which is neither in the kernel nor a module of it; `available`: names as the
/// kernel lists them.
fn of_kernel(cc: &Spec, available: &str) -> String {
    let names: Vec<&str> = available.split_whitespace().collect();
    let mut allowed =
        format!("one that this kernel, or a module installed for it, has: {}", names.join(", "));
    if let Some(name) = nearest(kernel_name(cc), &names) {
        allowed += &format!("; nearest is {name}");
    }
    if known().named(&cc.kind).is_some() {
        allowed += &format!("; agent:{cc} has an agent decide for the kernel's TCP");
    }
    allowed
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn scenario(experiment: &Experiment) -> Result<Plan, BackendError> {
    let mut flows = Vec::new();
    let mut pairs: Vec<PairSpec> = Vec::new();
    for name in &experiment.pairs {
        let bundle = |reversed| {
            let mut bundles = experiment.bundles.iter();
            bundles.find(|bundle| bundle.pair == *name && bundle.reversed == reversed)
        };
        let mut workloads = Vec::new();
        for (place, flow) in experiment.flows.iter().enumerate() {
            if flow.pair == *name {
                for (number, workload) in (0..).zip(workloads_of(experiment, flow)?) {
                    flows.push((place, number));
                    workloads.push(workload);
                }
            }
        }
        pairs.push(PairSpec {
            name: name.clone(),
            forward_bundle: bundle(false).map(bundle_spec),
            reverse_bundle: bundle(true).map(bundle_spec),
            initial_windows: [
                initial_window(experiment, name, false)?,
                initial_window(experiment, name, true)?,
            ],
            workloads,
        });
    }
    let faults = experiment.faults.iter().map(|fault| fault_spec(experiment, fault)).collect();
    let attack = experiment.attack.as_ref().map(|attack| Attack {
        at_ns: ns(attack.at),
        target: target(experiment, &attack.bundle, attack.end),
        messages: attack.messages,
    });
    let scenario = Scenario {
        seed: experiment.seed,
        stop_ns: ns(experiment.stop),
        drain_ns: ns(experiment.drain),
        ecn: experiment.ecn,
        forward: link_spec(&experiment.forward),
        reverse: link_spec(&experiment.reverse),
        own_links: experiment.own_links.iter().map(|own| own_links(experiment, own)).collect(),
        routed: experiment.routed,
        pairs,
        algorithms: algorithms(experiment),
        agent: AgentSpec {
            report: experiment.agent.report.to_string(),
            period_ns: ns(experiment.agent.period),
            python: files_in_python(experiment),
        },
        faults,
        upsets: experiment.upsets.iter().map(|it| upset_spec(experiment, it)).collect(),
        attack,
        keeps_headers: false,
    };
    Ok(Plan { scenario, flows })
}

/// The initial window of all that TCP sends from A to B between the sites of `pair`, or back; `None` where the
/// kernel's own will do. A route says it, so flows that share one and ask for different ones are refused.
fn initial_window(
    experiment: &Experiment,
    pair: &str,
    reversed: bool,
) -> Result<Option<u32>, BackendError> {
    let share =
        |flow: &&plan::Flow| flow.pair == pair && flow.reversed == reversed && flow.is_tcp();
    let mut flows = experiment.flows.iter().filter(share);
    let Some(first) = flows.next() else { return Ok(None) };
    let (one, window) = (&first.name, first.initial_window);
    if let Some(plan::Flow { name, initial_window, .. }) =
        flows.find(|flow| flow.initial_window != window)
    {
        return Err(BackendError::Unsupported(format!(
            "flow.{name}.initial_window = {initial_window}: the back end emu has one for all flows that send \
             the same way between a pair of sites, allowed is that of flow.{one}, {window}, or another pair"
        )));
    }
    Ok((window != plan::INITIAL_WINDOW).then_some(window))
}

/// Writes the trace of a link where the emulator reads it.
fn write_trace(
    link: &plan::Link,
    name: &str,
    directory: &Path,
) -> Result<Option<PathBuf>, BackendError> {
    let Some(trace) = &link.trace else { return Ok(None) };
    let path = directory.join(format!("link-{name}.trace"));
    let written = std::fs::write(&path, trace.to_string());
    written.map_err(|error| BackendError::Failed(format!("{}: {error}", path.display())))?;
    Ok(Some(path))
}

fn link_spec(link: &plan::Link) -> LinkSpec {
    let change = |change: &plan::Change| LinkChange {
        at_ns: ns(change.at),
        rate_bps: change.rate.map(|rate| rate.as_bits_per_sec()),
        delay_ns: change.delay.map(ns),
        loss: change.loss.map(Ratio::as_f64),
    };
    LinkSpec {
        rate_bps: link.rate.map(|rate| rate.as_bits_per_sec()),
        // A file, which is written once there is a folder for it.
        trace: None,
        delay_ns: ns(link.delay),
        loss: link.loss,
        message_loss: link.message_loss,
        jitter_ns: ns(link.jitter),
        batch_ns: ns(link.batch),
        reorder: link.reorder,
        reorder_packets: link.reorder_packets,
        qdisc: link.qdisc.clone(),
        changes: link.changes.iter().map(change).collect(),
    }
}

fn own_links(experiment: &Experiment, own: &plan::OwnLink) -> OwnLinks {
    let pair = experiment.pairs.iter().position(|pair| *pair == own.pair);
    OwnLinks {
        pair: pair.expect("every link's pair is listed"),
        names: experiment.way_names(&own.pair),
        forward: link_spec(&own.there),
        reverse: link_spec(&own.back),
    }
}

/// `cc` as the configuration of a sendbox has it: a class in Python by its file.
fn of_sendbox(cc: &Spec) -> Spec {
    match algorithms::python(&cc.kind) {
        Some(file) => named::of(file, Some(cc.kind.as_str())),
        None => cc.clone(),
    }
}

fn bundle_spec(bundle: &plan::Bundle) -> BundleSpec {
    BundleSpec {
        name: bundle.name.clone(),
        cc: of_sendbox(&bundle.cc),
        // A box's file has other defaults.
        qdisc: written_out(&bundle.qdisc).expect("checked with the plan"),
        datapath: if bundle.in_kernel { DatapathKind::Kernel } else { DatapathKind::User },
        supervised: bundle.supervised,
        min_rate_bps: bundle.min_rate.map(|rate| rate.as_bits_per_sec()),
        max_rate_bps: bundle.max_rate.map(|rate| rate.as_bits_per_sec()),
        unseen: bundle.unseen,
        clock: bundle.clock.clone(),
    }
}

fn workloads_of(experiment: &Experiment, flow: &plan::Flow) -> Result<Vec<Workload>, BackendError> {
    let starting = |start: Duration, name: String, kind: WorkloadKind| Workload {
        name,
        cc: socket_cc(flow),
        reversed: flow.reversed,
        start_ns: ns(start),
        stop_ns: ns(flow.stop),
        dscp: flow.dscp,
        ttl: flow.ttl,
        reading: Reading {
            rate_bps: flow.receiving.read_rate.map(|rate| rate.as_bits_per_sec()),
            buffer_bytes: flow.receiving.buffer.map(|bytes| bytes.as_u64()),
        },
        kind,
    };
    let one = |kind| Ok(vec![starting(flow.start, flow.name.clone(), kind)]);
    // A name that no plan can contain, so it meets no other workload's.
    let numbered = |number: u32, kind| {
        starting(flow.start_of(number), format!("{}#{number}", flow.name), kind)
    };
    // A workload starts at once: connections that do not are workloads of their own.
    let apart = |kind: &dyn Fn() -> WorkloadKind| {
        Ok((0..flow.connections()).map(|number| numbered(number, kind())).collect())
    };
    match &flow.traffic {
        plan::Traffic::Greedy { .. } if !flow.other_starts.is_empty() => {
            apart(&|| WorkloadKind::Greedy { flows: 1 })
        }
        plan::Traffic::Ping { .. } if !flow.other_starts.is_empty() => {
            apart(&|| WorkloadKind::Ping { loops: 1 })
        }
        plan::Traffic::Video { video, .. } if !flow.other_starts.is_empty() => {
            apart(&|| WorkloadKind::Video { clients: 1, video: video.clone() })
        }
        plan::Traffic::Video { flows, video } => {
            one(WorkloadKind::Video { clients: *flows, video: video.clone() })
        }
        plan::Traffic::Greedy { flows } => one(WorkloadKind::Greedy { flows: *flows }),
        plan::Traffic::Ping { loops } => one(WorkloadKind::Ping { loops: *loops }),
        plan::Traffic::Datagrams { flows, rate, packet_bytes, timing } => {
            let streams = Streams::new(experiment.seed).part("datagrams");
            let one = |number| {
                let name = format!("{}#{number}", flow.name);
                let kind = WorkloadKind::Datagrams {
                    rate_bps: rate.as_bits_per_sec(),
                    packet_bytes: *packet_bytes,
                    timing: *timing,
                    seed: streams.stream(&name).bits(),
                };
                numbered(number, kind)
            };
            Ok((0..*flows).map(one).collect())
        }
        plan::Traffic::Requests(load) => {
            let schedule = experiment
                .schedule(flow)
                .map_err(|error| BackendError::Unsupported(format!("{}: {error}", flow.name)))?;
            let schedule = schedule.unwrap_or_default();
            let requests = schedule.requests().iter().map(|request| Request {
                at_ns: ns(flow.start + request.at),
                size_bytes: request.size.as_u64(),
                connection: request.connection,
            });
            let schedule = requests.collect();
            one(WorkloadKind::Requests { connections: load.connections, schedule })
        }
    }
}

fn fault_spec(experiment: &Experiment, fault: &plan::Fault) -> Fault {
    Fault {
        at_ns: ns(fault.at),
        program: match &fault.program {
            plan::FaultProgram::Box { bundle, end } => {
                FaultProgram::Box(target(experiment, bundle, *end))
            }
            plan::FaultProgram::Agent => FaultProgram::Agent,
        },
        action: fault.action,
    }
}

fn upset_spec(experiment: &Experiment, upset: &plan::Upset) -> Upset {
    let pair = experiment.pairs.iter().position(|pair| *pair == upset.pair);
    Upset {
        at_ns: ns(upset.at),
        pair: pair.expect("every bundle's pair is listed"),
        right: upset.at_b,
        kind: upset.kind,
    }
}

fn target(experiment: &Experiment, bundle: &str, end: plan::BoxEnd) -> FaultTarget {
    let bundle = experiment.bundle(bundle).expect("what hits a box names one of the experiment");
    let pair = experiment.pairs.iter().position(|pair| *pair == bundle.pair);
    FaultTarget {
        pair: pair.expect("every bundle's pair is listed"),
        reverse: bundle.reversed,
        end,
    }
}

/// What was found in `directory`, by the places of the plan.
fn rows(
    experiment: &Experiment,
    record: RunRecord,
    directory: &Path,
    flows: &[(usize, u32)],
) -> Result<RunRows, BackendError> {
    let started_ns = record.started_ns;
    let mut run = record.since_start();
    let place = |workload: usize| {
        flows.get(workload).copied().ok_or_else(|| {
            BackendError::Failed(format!("the run reports a workload {workload} of no plan"))
        })
    };
    for request in &mut run.requests {
        request.flow = place(request.flow)?.0;
    }
    for flow in &mut run.flows {
        let (place, first) = place(flow.flow)?;
        (flow.flow, flow.index) = (place, first + flow.index);
        check_used(&experiment.flows[place], flow)?;
    }
    let files = run.links.iter().map(|link| packets_file(directory, &link.name));
    let packets = files.map(|path| PacketLog::File { path, started_ns }).collect();
    Ok(RunRows { run, packets })
}

/// A socket whose name did not stay what the plan says would show another algorithm's behaviour.
fn check_used(flow: &plan::Flow, record: &FlowRecord) -> Result<(), BackendError> {
    let wanted = socket_cc(flow);
    match &record.cc {
        Some(used) if *used != wanted => Err(BackendError::Failed(format!(
            "flow {}: a socket ended under {used} and not under {wanted}",
            flow.name
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
