//! One run: starts the programs in their order and merges their results.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::algorithms::Algorithms;
use super::attacker::Attacker;
use super::awake::Awake;
use super::boxes::Boxes;
use super::namespace::Namespace;
use super::pauses::PauseWatch;
use super::processors::Processors;
use super::program::Program;
use super::topology::{Site, Topology, beside_port, left_port, right_port};
use super::upsets::Upsets;
use super::{Phase, Progress, TICK, TestbedError};
use crate::emulator::{Beside, DevicePair, EmulatorSpec, LINKS_FILE};
use crate::generator::{HostPair, HostsOutput, HostsSpec, Sender, Side, Workload, ns, socket_cc};
use crate::orders::Order;
use crate::process::{self, MachineTime};
use crate::sites;
use forebay_core::record::{HostRecord, LinkRecord, RunRecord};
use forebay_core::units::Timestamp;
use forebay_host::clock;
use forebay_scenario::{Fault, FaultProgram, OwnLink, Scenario, Upset, UpsetKind};

/// Longest time until a program is ready; it covers retransmitted handshakes on a slow link.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Time from everything ready to the start of the run (ns). The order to start has arrived everywhere by
/// then, and the last handshake packets have left the link.
const LEAD_NS: u64 = 500_000_000;

/// Time that the hosts may take beyond the longest drain (ns). They read the clock every 100 ms, and pings
/// and paced datagrams are awaited for 1 s.
const DRAIN_SLACK_NS: u64 = 5_000_000_000;

/// Interval of the checks whether programs are ready: short enough to lose no time, long enough to save CPU
/// time.
const POLL: Duration = Duration::from_millis(5);

/// Inputs of a run, besides namespaces and devices.
pub(super) struct Parts<'a> {
    pub scenario: &'a Scenario,
    pub keeps_headers: bool,
    pub processors: Option<&'a Processors>,
}

/// A prepared run.
pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    /// By pair of sites.
    workloads: Vec<Vec<Workload>>,
    dir: &'a Path,
    emulator: Program,
    boxes: Boxes<'a>,
    algorithms: Algorithms<'a>,
    attacker: Option<Attacker>,
    left: Program,
    right: Program,
    /// Faults still to come, in order of time.
    faults: Vec<Fault>,
    /// Upsets still to come, in order of time.
    upsets_to_come: Vec<Upset>,
    upsets: Upsets<'a>,
    started_ns: u64,
    finished_ns: u64,
    before: Snapshot,
    pauses: Option<PauseWatch>,
    awake: Option<Awake>,
    host: HostRecord,
}

/// The machine and the programs at an instant.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    /// CPU time so far (ns) by program.
    cpu_ns: Vec<(String, u64)>,
    machine: Option<MachineTime>,
}

impl<'a> Run<'a> {
    /// Starts everything and waits until traffic may flow.
    pub fn prepare(
        parts: &Parts<'a>,
        topology: &'a Topology,
        binary: &'a Path,
        dir: &'a Path,
    ) -> Result<Self, TestbedError> {
        let Parts { scenario, processors, .. } = *parts;
        let workloads = Workload::all(scenario)
            .map_err(|(name, source)| TestbedError::Scenario { name, source })?;
        let start = Starter { binary, dir };
        let mut emulator =
            start.role("emulator", &topology.emulator, "emulator", &emulator_spec(parts, dir))?;
        emulator.await_line("ready", READY_TIMEOUT)?;
        // Before the boxes, so that it records their first handshake too.
        let attacker = scenario
            .attack
            .as_ref()
            .map(|attack| Attacker::start(attack, scenario, topology, &start))
            .transpose()?;
        let mut boxes = Boxes::start(scenario, topology, binary, dir)?;
        boxes.await_peers()?;
        let mut algorithms = Algorithms::start(scenario, &topology.emulator, start)?;
        topology.set_offloads()?;
        let mut host = describe_host(topology, processors)?;
        host.settings.extend(algorithms.settings());

        let hosts = |side, name| {
            let namespace = match side {
                Side::Left => &topology.pairs[0].left_hosts,
                Side::Right => &topology.pairs[0].right_hosts,
            };
            let named = |it: &Workload| Workload {
                socket_cc: algorithms.name_of(&it.socket_cc).to_string(),
                ..it.clone()
            };
            let spec = hosts_spec(side, scenario, topology, &workloads, named, dir);
            start.role("hosts", namespace, name, &spec)
        };
        let mut left = hosts(Side::Left, "left hosts")?;
        let mut right = hosts(Side::Right, "right hosts")?;
        await_both([&mut left, &mut right], "listening")?;
        for side in [&mut left, &mut right] {
            side.tell(&Order::Connect.to_string())?;
        }
        await_both([&mut left, &mut right], "ready")?;
        // If a program failed meanwhile, its error explains more than a later one.
        emulator.check()?;
        boxes.check()?;
        algorithms.check()?;
        let mut faults = scenario.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        Ok(Self {
            scenario,
            workloads,
            dir,
            emulator,
            boxes,
            algorithms,
            attacker,
            left,
            right,
            faults,
            upsets_to_come: upsets(scenario)?,
            upsets: Upsets::new(topology),
            started_ns: 0,
            finished_ns: 0,
            before: Snapshot::default(),
            pauses: None,
            awake: None,
            host,
        })
    }

    /// Lets the traffic flow until nothing is left to wait for.
    pub fn go(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), TestbedError> {
        self.started_ns = clock::now().as_nanos() + LEAD_NS;
        let order = Order::Start(self.started_ns).to_string();
        let attacker = self.attacker.as_mut().map(|attacker| &mut attacker.program);
        let programs = [&mut self.emulator, &mut self.left, &mut self.right];
        for program in programs.into_iter().chain(attacker) {
            program.tell(&order)?;
        }
        self.boxes.begin(self.started_ns)?;
        self.awake = Awake::start().map_err(TestbedError::Proc)?;
        let awake = if self.awake.is_some() { "yes" } else { "no, not a virtual machine" };
        self.host.settings.push(format!("processors kept from halting = {awake}"));
        sleep_until(self.started_ns);
        self.pauses = Some(PauseWatch::start().map_err(TestbedError::Proc)?);
        self.before = self.snapshot()?;
        self.host.load[0] = process::load_average().map_err(TestbedError::Proc)?;

        let mut drained = [false; 2];
        while drained != [true; 2] {
            self.wait_for_tick()?;
            self.emulator.check()?;
            self.boxes.check()?;
            self.algorithms.check()?;
            if let Some(attacker) = &mut self.attacker {
                attacker.watch(self.started_ns, &self.boxes)?;
            }
            for (drained, side) in drained.iter_mut().zip([&mut self.left, &mut self.right]) {
                *drained |= side.has_said("drained")?;
            }
            let elapsed_ns = clock::now().as_nanos().saturating_sub(self.started_ns);
            let total_ns = ns(self.scenario.stop);
            let phase = if elapsed_ns < total_ns { Phase::Running } else { Phase::Draining };
            progress(Progress { phase, elapsed_ns, total_ns });
            if elapsed_ns > ns(self.scenario.stop + self.scenario.drain) + DRAIN_SLACK_NS {
                let late = if drained[0] { &self.right } else { &self.left };
                return Err(late.silent("drained", Duration::from_nanos(elapsed_ns)));
            }
        }
        self.finished_ns = clock::now().as_nanos();
        self.host.processor_lateness_ns =
            self.pauses.take().map(PauseWatch::finish).unwrap_or_default();
        self.awake = None;
        Ok(())
    }

    /// Ends the programs and merges their results.
    pub fn finish(mut self) -> Result<RunRecord, TestbedError> {
        self.note_costs()?;
        for side in [&mut self.left, &mut self.right] {
            side.tell(&Order::Finish.to_string())?;
        }
        await_both([&mut self.left, &mut self.right], "finished")?;
        self.left.stop(None)?;
        self.right.stop(None)?;
        let attacker = self.attacker.take();
        let attack = attacker.map(|attacker| attacker.finish(&self.boxes)).transpose()?;
        self.boxes.stop()?;
        let agent = self.algorithms.stop()?;
        self.emulator.stop(None)?;
        let left: HostsOutput = read_json(&hosts_output(self.dir, Side::Left))?;
        let right: HostsOutput = read_json(&hosts_output(self.dir, Side::Right))?;
        let links: Vec<LinkRecord> = read_json(&self.dir.join(LINKS_FILE))?;
        let mut record = RunRecord {
            started_ns: self.started_ns,
            finished_ns: self.finished_ns,
            links,
            bundles: self.boxes.collect()?,
            attack,
            agent,
            host: self.host,
            ..RunRecord::default()
        };
        merge(&mut record, [left, right]);
        for cc in record.flows.iter_mut().filter_map(|flow| flow.cc.as_mut()) {
            *cc = self.algorithms.key_of(cc).to_string();
        }
        by_flow(&mut record, self.scenario, &self.workloads.concat())?;
        Ok(record)
    }

    /// Sleeps until the next tick; applies faults and upsets that fall due before it at their time.
    fn wait_for_tick(&mut self) -> Result<(), TestbedError> {
        let tick = clock::now().as_nanos() + TICK.as_nanos() as u64;
        let started = Timestamp::from_nanos(self.started_ns);
        let due = |at: Duration| (started + at).as_nanos();
        loop {
            let fault = self.faults.first().filter(|fault| due(fault.at) <= tick);
            let upset = self.upsets_to_come.first().filter(|upset| due(upset.at) <= tick);
            match (fault, upset) {
                (Some(fault), upset) if upset.is_none_or(|it| fault.at <= it.at) => {
                    sleep_until(due(fault.at));
                    match &fault.program {
                        FaultProgram::Box { bundle, end } => {
                            let target = sites::target(self.scenario, bundle, *end)?;
                            self.boxes.apply(target, fault.action)?;
                        }
                        FaultProgram::Agent => self.algorithms.apply(fault.action)?,
                    }
                    self.faults.remove(0);
                }
                (_, Some(upset)) => {
                    sleep_until(due(upset.at));
                    let pair =
                        sites::pair(self.scenario, &upset.pair).expect("checked at the start");
                    self.upsets.apply(pair, upset, self.boxes.doors(pair, upset))?;
                    self.upsets_to_come.remove(0);
                }
                (_, None) => break,
            }
        }
        sleep_until(tick);
        Ok(())
    }

    fn snapshot(&self) -> Result<Snapshot, TestbedError> {
        let attacker = self.attacker.as_ref().map(|attacker| &attacker.program);
        let own = [&self.emulator, &self.left, &self.right].into_iter().chain(attacker);
        let own = own.map(|program| (program.name.clone(), program.cpu_time_ns().unwrap_or(0)));
        let own = own.chain(self.algorithms.cpu_times_ns());
        let boxes = self.boxes.processes().into_iter().map(|(name, _, cpu_ns)| (name, cpu_ns));
        let machine = MachineTime::now().map_err(TestbedError::Proc)?;
        Ok(Snapshot { cpu_ns: own.chain(boxes).collect(), machine: Some(machine) })
    }

    /// Records the cost of the run while the programs are alive.
    fn note_costs(&mut self) -> Result<(), TestbedError> {
        let after = self.snapshot()?;
        let run_ns = (self.finished_ns - self.started_ns).max(1) as f64;
        let before = |name: &str| {
            let found = self.before.cpu_ns.iter().find(|(other, _)| other == name);
            found.map_or(0, |(_, cpu_ns)| *cpu_ns)
        };
        for (name, cpu_ns) in &after.cpu_ns {
            let used = cpu_ns.saturating_sub(before(name));
            self.host.cpu_cores.push((name.clone(), used as f64 / run_ns));
        }
        if let (Some(earlier), Some(later)) = (self.before.machine, after.machine) {
            self.host.steal = later.steal_since(earlier);
        }
        self.host.load[1] = process::load_average().map_err(TestbedError::Proc)?;
        let own = [&self.emulator, &self.left, &self.right];
        let own = own.map(|program| (program.name.clone(), Some(program.pid()), 0));
        for (name, pid, _) in own.into_iter().chain(self.boxes.processes()) {
            if pid.is_some_and(|pid| process::is_realtime(pid).unwrap_or(false)) {
                self.host.realtime.push(name);
            }
        }
        Ok(())
    }
}

/// The upsets of a run, in order of time; rejects upsets that no testbed supports.
fn upsets(scenario: &Scenario) -> Result<Vec<Upset>, TestbedError> {
    let mut upsets = scenario.upsets.clone();
    upsets.sort_by_key(|upset| upset.at);
    let is_lost = |upset: &&Upset| sites::pair(scenario, &upset.pair).is_none();
    if let Some(Upset { pair, .. }) = upsets.iter().find(is_lost) {
        return Err(TestbedError::UpsetPair { pair: pair.clone() });
    }
    let is_asleep = |kind| matches!(kind, UpsetKind::Suspend | UpsetKind::Resume);
    match upsets.iter().any(|upset| is_asleep(upset.kind)) {
        true => Err(TestbedError::Asleep),
        false => Ok(upsets),
    }
}

/// Common inputs of all programs.
#[derive(Clone, Copy)]
pub(crate) struct Starter<'a> {
    /// The `forebay` binary that runs the roles.
    pub binary: &'a Path,
    /// The folder of the run.
    pub dir: &'a Path,
}

impl Starter<'_> {
    /// Starts `forebay role ROLE` under `name`; writes its specification to the folder of the run.
    pub fn role(
        &self,
        role: &str,
        namespace: &Namespace,
        name: &str,
        spec: &impl Serialize,
    ) -> Result<Program, TestbedError> {
        self.program(name, namespace, &self.role_arguments(role, name, spec)?)
    }

    /// Writes the specification; returns the arguments of `forebay role ROLE`.
    pub fn role_arguments(
        &self,
        role: &str,
        name: &str,
        spec: &impl Serialize,
    ) -> Result<[OsString; 4], TestbedError> {
        let path = self.dir.join(format!("{}.json", name.replace(' ', "-")));
        let json = serde_json::to_vec(spec).expect("specifications are plain data");
        fs::write(&path, json)
            .map_err(|source| TestbedError::File { path: path.clone(), source })?;
        Ok(["role".into(), role.into(), "--spec".into(), path.into_os_string()])
    }

    /// Starts `forebay ARGUMENTS` under `name`.
    pub fn program(
        &self,
        name: &str,
        namespace: &Namespace,
        arguments: &[OsString],
    ) -> Result<Program, TestbedError> {
        Program::start(name, self.binary, arguments, namespace, self.dir)
    }
}

/// Waits until both programs have printed `line`; fails if either ends before.
fn await_both(mut programs: [&mut Program; 2], line: &str) -> Result<(), TestbedError> {
    let start = Instant::now();
    let mut said = [false; 2];
    while said != [true; 2] {
        for (said, program) in said.iter_mut().zip(programs.iter_mut()) {
            *said = *said || program.has_said(line)?;
            if !*said && start.elapsed() > READY_TIMEOUT {
                return Err(program.silent(line, READY_TIMEOUT));
            }
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn emulator_spec(parts: &Parts<'_>, dir: &Path) -> EmulatorSpec {
    let scenario = parts.scenario;
    let own = scenario.own_links.iter();
    let pair =
        |own: &OwnLink| sites::pair(scenario, &own.pair).expect("every link's pair is listed");
    let own = own.map(|own| (pair(own), own.clone()));
    let devices = |pair| {
        let ways = sites::unseen(scenario, pair);
        let beside =
            ways.map(|(share, changes)| Beside { device: beside_port(pair), share, changes });
        DevicePair { left: left_port(pair), right: right_port(pair), beside }
    };
    EmulatorSpec {
        seed: scenario.seed,
        pairs: (0..scenario.pairs.len()).map(devices).collect(),
        forward: scenario.forward.clone(),
        reverse: scenario.reverse.clone(),
        own: own.collect(),
        out: Some(dir.to_path_buf()),
        keeps_headers: parts.keeps_headers,
        cpu: parts.processors.map(|processors| processors.emulator),
        routed: true,
    }
}

fn hosts_spec(
    side: Side,
    scenario: &Scenario,
    topology: &Topology,
    workloads: &[Vec<Workload>],
    named: impl Fn(&Workload) -> Workload,
    dir: &Path,
) -> HostsSpec {
    let pairs = workloads.iter().zip(&topology.pairs).enumerate();
    let pairs = pairs.map(|(pair, (workloads, sites))| {
        let left = (&sites.left_hosts, Site::LeftHosts.address(pair));
        let right = (&sites.right_hosts, Site::RightHosts.address(pair));
        let (own, other) = if side == Side::Left { (left, right) } else { (right, left) };
        HostPair {
            namespace: own.0.path(),
            local: own.1,
            remote: other.1,
            workloads: workloads.iter().map(&named).collect(),
        }
    });
    HostsSpec {
        side,
        pairs: pairs.collect(),
        stop_ns: ns(scenario.stop),
        drain_ns: ns(scenario.drain),
        ecn: scenario.ecn,
        output: hosts_output(dir, side),
    }
}

fn hosts_output(dir: &Path, side: Side) -> PathBuf {
    dir.join(if side == Side::Left { "left-output.json" } else { "right-output.json" })
}

fn describe_host(
    topology: &Topology,
    processors: Option<&Processors>,
) -> Result<HostRecord, TestbedError> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(TestbedError::Proc)?;
    let mut settings = topology.settings()?;
    let cpu = processors.map_or("any".into(), |processors| processors.emulator.to_string());
    settings.push(format!("processor of the emulator = {cpu}"));
    Ok(HostRecord {
        kernel: kernel.trim().to_string(),
        offloads: topology.offloads()?,
        settings,
        ..HostRecord::default()
    })
}

/// Adds the observations of both sides, and the results that need both.
fn merge(record: &mut RunRecord, sides: [HostsOutput; 2]) {
    let mut lateness_ns = Vec::new();
    let [mut sent, mut received, mut failures] = [const { Vec::new() }; 3];
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for side in sides {
        record.requests.extend(side.requests);
        record.flows.extend(side.flows);
        lateness_ns.extend(side.lateness_ns);
        sent.extend(side.datagrams_sent);
        received.extend(side.datagrams_received);
        failures.extend(side.failures);
        senders.extend(side.senders);
        receivers.extend(side.receivers);
    }
    let sum = |rows: &[(usize, u64)], flow: usize| -> u64 {
        rows.iter().filter(|row| row.0 == flow).map(|(_, count)| count).sum()
    };
    for flow in &mut record.flows {
        flow.lost += sum(&sent, flow.flow).saturating_sub(sum(&received, flow.flow));
        flow.failed |= sum(&failures, flow.flow) > 0;
        let is_its = |it: &&(usize, u32, u16)| it.0 == flow.flow && it.1 == flow.index;
        let port = receivers.iter().find(is_its).map(|(.., port)| *port);
        let is_its = |it: &&mut Sender| Some(it.port) == port && it.flow == flow.flow;
        if let Some(sender) = senders.iter_mut().find(is_its) {
            flow.cc = Some(std::mem::take(&mut sender.cc));
            flow.samples = std::mem::take(&mut sender.samples);
        }
    }
    record.host.generator_lateness_ns = quantiles(lateness_ns);
}

/// Replaces places of `workloads` by the places of their flows. The error names a flow that ran under another
/// congestion control.
fn by_flow(
    record: &mut RunRecord,
    scenario: &Scenario,
    workloads: &[Workload],
) -> Result<(), TestbedError> {
    for request in &mut record.requests {
        request.flow = workloads[request.flow].place;
    }
    for seen in &mut record.flows {
        let Workload { place, first, .. } = &workloads[seen.flow];
        (seen.flow, seen.index) = (*place, first + seen.index);
        let flow = &scenario.flows[*place];
        let wanted = socket_cc(flow);
        if let Some(used) = seen.cc.clone().filter(|used| *used != wanted) {
            return Err(TestbedError::OtherAlgorithm { flow: flow.name.clone(), used, wanted });
        }
    }
    Ok(())
}

/// p50, p99, p99.9 and maximum; zeros if there are no values.
fn quantiles(mut values: Vec<u64>) -> [u64; 4] {
    values.sort_unstable();
    let Some(last) = values.len().checked_sub(1) else { return [0; 4] };
    [500, 990, 999, 1000].map(|per_mille| values[last * per_mille / 1000])
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, TestbedError> {
    let text =
        fs::read(path).map_err(|source| TestbedError::File { path: path.to_path_buf(), source })?;
    serde_json::from_slice(&text)
        .map_err(|source| TestbedError::Json { path: path.to_path_buf(), source })
}

fn sleep_until(at_ns: u64) {
    let now = clock::now().as_nanos();
    std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::record::{FlowRecord, TcpSample};

    #[test]
    fn quantiles_are_members_and_ordered() {
        assert_eq!(quantiles(Vec::new()), [0; 4]);
        assert_eq!(quantiles(vec![7]), [7; 4]);
        assert_eq!(quantiles((1..=1001).rev().collect()), [501, 991, 1000, 1001]);
    }

    #[test]
    fn both_sides_merge_into_one_flow() {
        let [bulk, cbr, other] = [0, 1, 2];
        let flow = |flow| FlowRecord { flow, ..FlowRecord::default() };
        let sender = |port, cc: &str| Sender {
            flow: bulk,
            port,
            cc: cc.into(),
            samples: vec![TcpSample { cwnd_segments: port.into(), ..TcpSample::default() }],
        };
        let left = HostsOutput {
            senders: vec![sender(7, "bbr"), sender(9, "reno")],
            datagrams_sent: vec![(cbr, 10)],
            failures: vec![(bulk, 1), (cbr, 0)],
            lateness_ns: vec![5],
            ..HostsOutput::default()
        };
        let right = HostsOutput {
            flows: vec![flow(cbr), flow(bulk)],
            datagrams_received: vec![(cbr, 7)],
            receivers: vec![(other, 0, 7), (bulk, 0, 9)],
            lateness_ns: vec![3],
            ..HostsOutput::default()
        };
        let mut record = RunRecord::default();
        merge(&mut record, [left, right]);
        assert_eq!((record.flows[0].lost, record.flows[0].failed), (3, false));
        assert_eq!((record.flows[1].lost, record.flows[1].failed), (0, true));
        assert_eq!(
            (record.flows[1].cc.as_deref(), record.flows[1].samples[0].cwnd_segments),
            (Some("reno"), 9.0)
        );
        assert!(record.flows[0].cc.is_none() && record.flows[0].samples.is_empty());
        assert_eq!(record.host.generator_lateness_ns, [3, 3, 3, 5]);
    }
}
