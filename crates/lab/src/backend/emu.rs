//! Real kernel TCP between network namespaces over an emulated link.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use forebay_core::bundle::tuning::Tuning;
use forebay_core::record::{LinkRecord, PacketRecord, RunRecord};
use forebay_core::spec::{Spec, SpecError, nearest};
use forebay_core::traffic::Receiving;
use forebay_host::agent;
use forebay_host::agent::rules::Choice;
use forebay_scenario::{self as plan, Platform};
use forebay_testbed::emulator::{HEADER_BYTES, headers_file, packets_file, read_packets};
use forebay_testbed::{Phase, TestbedError, kernel_name};

use nix::errno::Errno;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket};
use serde_json::Value;

use super::{Backend, BackendError, RunProgress, cost};
use crate::metrics::{PacketLog, RunRows};
use crate::plan::Experiment;
use forebay_policy::algorithms::known;

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
        if let Some(cost) = &experiment.cost {
            return cost::check(experiment, cost);
        }
        if let Some(flow) = experiment.flows.iter().find(|flow| flow.rtt.is_some()) {
            let reason = format!(
                "flow.{}.rtt: the back end emu has one path for all flows, allowed with sim",
                flow.name
            );
            return Err(BackendError::Unsupported(reason));
        }
        if experiment.stack != plan::Stack::Linux {
            let reason = "stack = ns3: the back end emu runs the kernel's own TCP, allowed is \
                          \"linux\"; the back end sim runs both";
            return Err(BackendError::Unsupported(reason.into()));
        }
        check_quic(experiment)?;
        check_links(experiment)?;
        check_receivers(experiment)?;
        check_boxes(experiment)?;
        // Checked before a folder for results is created.
        if !nix::unistd::geteuid().is_root() {
            return Err(BackendError::Unavailable(TestbedError::NotRoot.to_string()));
        }
        experiment.flows.iter().try_for_each(check_cc)?;
        check_windows(experiment)?;
        experiment.flows.iter().try_for_each(|flow| check_schedule(experiment, flow))
    }

    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<RunRows, BackendError> {
        if experiment.cost.is_some() {
            let rows =
                cost::run(std::slice::from_ref(experiment), &Value::Null, directory, progress);
            return Ok(rows?.pop().expect("rows of each arm"));
        }
        let run = emulate(experiment, false, directory, progress)?;
        let started_ns = run.started_ns;
        let files = run.links.iter().map(|link| packets_file(directory, &link.name));
        let packets = files.map(|path| PacketLog::File { path, started_ns }).collect();
        Ok(RunRows { run: run.since_start(), packets })
    }

    fn makes_groups(&self, experiment: &Experiment) -> bool {
        experiment.cost.is_some()
    }

    fn run_group(
        &self,
        arms: &[Experiment],
        earlier: &Value,
        directory: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<Vec<RunRows>, BackendError> {
        cost::run(arms, earlier, directory, progress)
    }
}

fn emulate(
    experiment: &Experiment,
    keeps_headers: bool,
    directory: &Path,
    progress: &mut dyn FnMut(RunProgress),
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
        progress(RunProgress { phase, done: done.min(1.0) });
    };
    let run = forebay_testbed::run(experiment, keeps_headers, directory, &mut report);
    run.map_err(|error| match error {
        TestbedError::NotRoot => BackendError::Unavailable(error.to_string()),
        _ if error.is_of_a_box() => BackendError::BoxDied(error.to_string()),
        _ => BackendError::Failed(error.to_string()),
    })
}

/// Runs `experiment` as [`Emu`] does. Afterwards passes every packet to `visit` in order of arrival: number
/// of the link, the packet's record, and the first bytes of its frame on arrival.
pub(crate) fn capture(
    experiment: &Experiment,
    directory: &Path,
    progress: &mut dyn FnMut(RunProgress),
    mut visit: impl FnMut(usize, &PacketRecord, &[u8]),
) -> Result<(), BackendError> {
    let record = emulate(experiment, true, directory, progress)?;
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

/// The unread packets of a link, in order of arrival.
struct Frames<'a> {
    link: &'a str,
    packets: std::iter::Peekable<std::vec::IntoIter<PacketRecord>>,
    headers: BufReader<File>,
}

impl<'a> Frames<'a> {
    fn open(directory: &Path, link: &'a LinkRecord) -> Result<Self, BackendError> {
        let LinkRecord { name, records_lost, .. } = link;
        if *records_lost > 0 {
            let reason = format!("{records_lost} records were lost: the disk is too slow");
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

/// Refuses kinds of links that the emulator lacks.
fn check_links(experiment: &Experiment) -> Result<(), BackendError> {
    let walking = experiment.links().find(|link| !link.walks.is_empty());
    let own = || experiment.own_links.iter().flat_map(|own| [&own.there, &own.back]);
    let (key, has) = match walking.map(|link| link.name.as_str()) {
        _ if !experiment.paths.is_empty() => ("bottleneck.paths", "one path"),
        _ if !experiment.hops.is_empty() => ("bottleneck.hops", "one link each way"),
        _ if !experiment.own_links.is_empty() && !experiment.routed => {
            ("link", "one bottleneck for all pairs behind bridges")
        }
        _ if experiment.topology.is_some() => ("topology", "one bottleneck for all pairs"),
        _ if experiment.reverse.ack_filter => ("reverse.ack_filter", "no filter of ACKs"),
        _ if experiment.forward.clears_ecn => {
            ("bottleneck.clears_ecn", "links that keep the ECN field")
        }
        _ if own().any(|link| link.ack_filter) => ("link.ack_filter", "no filter of ACKs"),
        _ if own().any(|link| link.clears_ecn) => {
            ("link.clears_ecn", "links that keep the ECN field")
        }
        Some("reverse") => ("reverse.walk", "no random walks"),
        Some(_) => ("bottleneck.walk", "no random walks"),
        None => return Ok(()),
    };
    let reason = format!("{key}: the back end emu has {has}, allowed with sim");
    Err(BackendError::Unsupported(reason))
}

/// Refuses QUIC in runs with ECN.
fn check_quic(experiment: &Experiment) -> Result<(), BackendError> {
    let quic = experiment.flows.iter().find_map(|flow| match &flow.transport {
        plan::Transport::Quic { at } if experiment.ecn => Some((at, &flow.name)),
        _ => None,
    });
    let Some((at, name)) = quic else { return Ok(()) };
    Err(BackendError::Unsupported(format!(
        "{at}: flow.{name}.transport = quic: allowed is \"tcp\" with ecn = true, since QUIC of the back end emu \
         has no ECN"
    )))
}

/// Refuses live encoders, and receivers that acknowledge otherwise than the hosts' kernel; how they read is up to the
/// hosts.
fn check_receivers(experiment: &Experiment) -> Result<(), BackendError> {
    for plan::Flow { name, receiving, traffic, .. } in &experiment.flows {
        if matches!(traffic, plan::Traffic::Media { .. }) {
            let reason = "the back end emu has no live encoders, allowed with sim";
            return Err(BackendError::Unsupported(format!(
                "flow.{name}.traffic.kind = media: {reason}"
            )));
        }
        let acknowledging = Receiving { read_rate: None, buffer: None, ..*receiving };
        if let Some(key) = acknowledging.first_given() {
            let reason = "the receivers of the back end emu are the kernel's own, allowed with sim";
            return Err(BackendError::Unsupported(format!("flow.{name}.{key}: {reason}")));
        }
    }
    Ok(())
}

/// Refuses settings that real boxes lack.
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
            "[attack] and [[upset]]: the back end emu has neither with bundle.forward = \"route\", \
             allowed is \"bridge\""
                .into(),
        );
    }
    for bundle in &experiment.bundles {
        if bundle.tuning != Tuning::DEFAULT {
            let name = &bundle.name;
            return refused(format!(
                "bundle.{name}.tuning: the boxes of the back end emu run with the defaults, allowed with sim"
            ));
        }
        for (key, jitter) in
            [("report_jitter", bundle.report_jitter), ("timestamp_jitter", bundle.timestamp_jitter)]
        {
            if !jitter.is_zero() {
                let name = &bundle.name;
                return refused(format!(
                    "bundle.{name}.{key}: the boxes of the back end emu get no added jitter, allowed with sim"
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
                let what = "unseen: the back end emu has a second path only into site B";
                return refused(format!("[[upset]] {what}, allowed with sim"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses parameters, because a kernel's algorithm takes none, and algorithms that the kernel neither has
/// nor can load. Of the algorithms that the run registers,
/// refuses any that the kernel cannot hold.
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
    if let plan::Transport::Quic { .. } = flow.transport {
        return Ok(());
    }
    match flow.platform {
        None | Some(Platform::Kernel) => {}
        Some(Platform::Agent) => drop(Choice::new(known(), flow.cc.clone()).map_err(within)?),
        Some(Platform::Bpf) => {
            let kind = agent::native::KernelAlgorithm::named(&flow.cc.kind);
            kind.map_err(|allowed| {
                let (name, cc) = (&flow.name, flow.cc_name());
                let reason = format!("flow.{name}.cc = {cc}: allowed in BPF is {allowed}");
                BackendError::Unsupported(reason)
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
        setsockopt(&socket, TcpCongestion, &OsString::from(kernel_name(&flow.cc.kind)))
    });
    if answer == Err(Errno::ENOENT) {
        let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = std::fs::read_to_string(available).unwrap_or_default();
        return refused(&of_kernel(&flow.cc, &available));
    }
    Ok(())
}

/// The allowed names instead of `cc`, which is neither in the kernel nor a module; `available`: names as the
/// kernel lists them.
fn of_kernel(cc: &Spec, available: &str) -> String {
    let names: Vec<&str> = available.split_whitespace().collect();
    let mut allowed =
        format!("an algorithm of this kernel or of an installed module: {}", names.join(", "));
    if let Some(name) = nearest(kernel_name(&cc.kind), &names) {
        allowed += &format!("; nearest is {name}");
    }
    if known().named(&cc.kind).is_some() {
        allowed += &format!("; with agent:{cc} an agent controls the kernel's TCP");
    }
    allowed
}

/// Refuses different initial windows on one route: the window is a property of the route.
fn check_windows(experiment: &Experiment) -> Result<(), BackendError> {
    for flow in experiment.flows.iter().filter(|flow| flow.is_tcp()) {
        let shares = |it: &&plan::Flow| it.pair == flow.pair && it.reversed == flow.reversed;
        let first = experiment.flows.iter().filter(|it| it.is_tcp()).find(shares);
        let Some(plan::Flow { name: one, initial_window: window, .. }) = first else { continue };
        let plan::Flow { name, initial_window, .. } = flow;
        if initial_window != window {
            return Err(BackendError::Unsupported(format!(
                "flow.{name}.initial_window = {initial_window}: the back end emu has one initial window for each \
                 direction between a pair of sites, allowed is {window} as for flow.{one}, or another pair"
            )));
        }
    }
    Ok(())
}

/// Refuses requests that cannot be drawn.
fn check_schedule(experiment: &Experiment, flow: &plan::Flow) -> Result<(), BackendError> {
    let drawn = experiment.schedule(flow).map(drop);
    drawn.map_err(|error| BackendError::Unsupported(format!("{}: {error}", flow.name)))
}

#[cfg(test)]
mod tests;
