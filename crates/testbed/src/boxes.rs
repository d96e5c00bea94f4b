//! The two boxes of every bundle: the product's own daemons, started with configuration files.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_core::clock::Clock;
use forebay_core::spec::Spec;
use forebay_core::units::Rate;
use forebay_scenario::{BoxEnd, Bundle, FaultAction, Scenario, Upset, UpsetKind};
use nix::sys::signal::Signal;
use serde::Serialize;

use super::TestbedError;
use super::crowd::Door;
use super::fabric;
use super::losses::Losses;
use super::namespace::Namespace;
use super::program::{Log, Program};
use super::run::Starter;
use super::starver::Starver;
use super::topology::{PairSites, Site, Topology};
use crate::orders::Order;
use crate::receivebox::ReceiveboxSpec;
use crate::sites::{self, FaultTarget};
use forebay_core::record::BundleRecord;
use forebay_host::daemon::config::{DatapathKind, Role};
use forebay_host::daemon::keys;
use forebay_host::daemon::status::{MessageCounters, Status};
use forebay_host::daemon::trace;
use forebay_host::service::control::{self, Answer, Request};

/// Longest time until a box answers on its control socket and hears its peer. Loading the BPF programs takes
/// about 100 ms on an idle machine, and the handshake takes one round trip.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A box rotates its trace at this size, which holds some hours of one bundle.
const TRACE_LIMIT: &str = "2GB";

/// One box: of one bundle, or a gateway for all bundles.
struct BoxProcess<'a> {
    /// End and pair of sites in each of its bundles; at least one.
    targets: Vec<FaultTarget>,
    /// Names of its bundles.
    bundles: Vec<String>,
    /// The clock that the box reads.
    clock: Clock,
    binary: &'a Path,
    dir: &'a Path,
    namespace: &'a Namespace,
    files: BoxFiles,
    program: Program,
    condition: Condition,
    /// Starves the box while a fault lasts.
    starver: Option<Starver>,
    /// The running incarnation was frozen at some time.
    was_frozen: bool,
    /// Parts of the trace that earlier incarnations wrote.
    earlier_traces: Vec<PathBuf>,
    /// CPU time of earlier incarnations (ns).
    earlier_cpu_ns: u64,
    losses: Losses,
    /// Losses that the running incarnation had reported when the testbed last asked.
    told: Losses,
}

/// State of a box after the faults so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Running,
    /// Stopped by a signal, for good or in turns, and not continued.
    Frozen,
    /// Killed, and not restarted.
    Dead,
}

/// The files of one box in the folder of the run.
struct BoxFiles {
    config: PathBuf,
    control: PathBuf,
    trace: Option<PathBuf>,
}

/// The key that a box is started with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    /// The key of the box's bundle.
    Own,
    /// A key that the peer does not have.
    Other,
}

/// All boxes of a run.
pub(super) struct Boxes<'a> {
    boxes: Vec<BoxProcess<'a>>,
    /// When the run started (ns).
    started_ns: Option<u64>,
    /// Open so that control sockets have a short path, see [`control_path`].
    _dir: File,
}

/// A configuration file, as `daemon::config` reads it.
#[derive(Serialize)]
struct ConfigFile<'a> {
    r#box: BoxTable<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceTable<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<MetricsTable>,
    bundle: Vec<BundleTable<'a>>,
}

#[derive(Serialize)]
struct BoxTable<'a> {
    role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    lan: Option<&'a str>,
    wan: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datapath: Option<DatapathKind>,
    listen: String,
    control: &'a Path,
}

#[derive(Serialize)]
struct TraceTable<'a> {
    file: &'a Path,
    limit: &'a str,
}

#[derive(Serialize)]
struct MetricsTable {
    listen: String,
}

#[derive(Serialize)]
struct BundleTable<'a> {
    name: &'a str,
    id: u16,
    peer: String,
    to: [String; 1],
    from: [String; 1],
    key_file: PathBuf,
    #[serde(flatten)]
    shaping: Option<ShapingTable<'a>>,
}

#[derive(Serialize)]
struct ShapingTable<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_rate: Option<String>,
    supervised: bool,
    cc: &'a Spec,
    #[serde(skip_serializing_if = "Option::is_none")]
    qdisc: Option<&'a Spec>,
}

impl<'a> Boxes<'a> {
    /// Starts the boxes of all bundles and waits until each answers.
    pub fn start(
        scenario: &Scenario,
        topology: &'a Topology,
        binary: &'a Path,
        dir: &'a Path,
    ) -> Result<Self, TestbedError> {
        let open = File::open(dir)
            .map_err(|source| TestbedError::File { path: dir.to_path_buf(), source })?;
        let mut boxes = Vec::new();
        for ends in of_each_box(scenario) {
            let (target, bundle) = ends[0];
            let files = BoxFiles::write_all(&ends, scenario.routed, dir, &open, metrics(scenario))?;
            let namespace = namespace(&topology.pairs[target.pair], target);
            let clock = clock_of(target, bundle);
            let start = Starter { binary, dir };
            let program = launch(target, start, &files.config, &clock, namespace, Log::File)?;
            boxes.push(BoxProcess {
                targets: ends.iter().map(|(target, _)| *target).collect(),
                bundles: ends.iter().map(|(_, bundle)| bundle.name.clone()).collect(),
                clock,
                binary,
                dir,
                namespace,
                files,
                program,
                condition: Condition::Running,
                starver: None,
                was_frozen: false,
                earlier_traces: Vec::new(),
                earlier_cpu_ns: 0,
                losses: Losses::default(),
                told: Losses::default(),
            });
        }
        Ok(Self { boxes, started_ns: None, _dir: open })
    }

    /// Notes that the run starts at `at_ns`: from then on, foreign clocks differ from the machine's.
    pub fn begin(&mut self, at_ns: u64) -> Result<(), TestbedError> {
        self.started_ns = Some(at_ns);
        self.boxes.iter_mut().try_for_each(|one| one.begin(at_ns))
    }

    /// Waits until every box answers and has heard its peer.
    pub fn await_peers(&mut self) -> Result<(), TestbedError> {
        let deadline = Instant::now() + START_TIMEOUT;
        for one in &mut self.boxes {
            while !one.hears_peer() {
                one.program.check()?;
                if Instant::now() > deadline {
                    return Err(TestbedError::NoPeer {
                        name: one.program.name.clone(),
                        seconds: START_TIMEOUT.as_secs(),
                        tail: one.program.tail(),
                    });
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Fails if a box ended without a fault that explains it.
    pub fn check(&mut self) -> Result<(), TestbedError> {
        for one in self.boxes.iter_mut().filter(|one| !one.is_dead()) {
            one.program.check()?;
        }
        Ok(())
    }

    /// Applies `action` to the box at `target`.
    pub fn apply(&mut self, target: FaultTarget, action: FaultAction) -> Result<(), TestbedError> {
        let found = self.boxes.iter_mut().find(|one| one.targets.contains(&target));
        let one = found.expect("each bundle of the scenario has both boxes");
        let restart = |one: &mut BoxProcess<'_>, key, log| {
            one.restart(key, log)?;
            self.started_ns.map_or(Ok(()), |at_ns| one.begin(at_ns))
        };
        match action {
            FaultAction::Kill => {
                one.note_losses();
                one.earlier_cpu_ns += one.program.cpu_time_ns().unwrap_or(0);
                one.starver = None;
                one.program.kill();
                one.condition = Condition::Dead;
                Ok(())
            }
            FaultAction::Stop => one.freeze(),
            FaultAction::Starve => one.starve(),
            FaultAction::Continue => one.thaw(),
            FaultAction::Restart => restart(one, Key::Own, Log::File),
            FaultAction::RestartOtherKey => restart(one, Key::Other, Log::File),
            FaultAction::RestartFullLog => restart(one, Key::Own, Log::Full),
            FaultAction::RestartBlockedLog => restart(one, Key::Own, Log::Blocked),
        }
    }

    /// Sockets that the clients of an upset at `pair` connect to: one for each box of the site.
    pub fn doors(&self, pair: usize, upset: &Upset) -> Vec<Door> {
        let is_there = |one: &&BoxProcess<'_>| {
            let is_its =
                |target: &FaultTarget| target.pair == pair && is_left(*target) != upset.at_b;
            one.targets.iter().any(is_its)
        };
        let door = |one: &BoxProcess<'_>| match upset.kind {
            UpsetKind::StatusClients(_) => Some(Door::Socket(one.files.control.clone())),
            UpsetKind::MetricsClients(_) => Some(Door::Port(metrics_of(one.targets[0]).into())),
            _ => None,
        };
        self.boxes.iter().filter(is_there).filter_map(door).collect()
    }

    /// Message counters of the box at `target` since its start; `None` if it does not answer.
    pub fn messages(&self, target: FaultTarget) -> Option<MessageCounters> {
        let found = self.boxes.iter().find(|one| one.targets.contains(&target));
        found.and_then(BoxProcess::status).map(|status| status.messages)
    }

    /// CPU time (ns) of the box at `target` since its start; `None` if it is dead.
    pub fn cpu_time_ns(&self, target: FaultTarget) -> Option<u64> {
        let mut alive = self.boxes.iter().filter(|one| !one.is_dead());
        let found = alive.find(|one| one.targets.contains(&target));
        found.and_then(|one| one.program.cpu_time_ns())
    }

    /// Name, process and CPU time so far (ns) of each box; `None` as the process of a dead box.
    pub fn processes(&self) -> Vec<(String, Option<u32>, u64)> {
        let rows = self.boxes.iter().map(|one| {
            let pid = (!one.is_dead()).then(|| one.program.pid());
            let cpu_ns = one.earlier_cpu_ns + one.program.cpu_time_ns().unwrap_or(0);
            (one.program.name.clone(), pid, cpu_ns)
        });
        rows.collect()
    }

    /// Ends all boxes, sendboxes first: reports to a sendbox that has ended do no harm.
    pub fn stop(&mut self) -> Result<(), TestbedError> {
        for end in [BoxEnd::Sendbox, BoxEnd::Receivebox] {
            for one in self.boxes.iter_mut().filter(|one| one.end() == end && !one.is_dead()) {
                one.note_losses();
                one.program.stop(Some(Signal::SIGTERM))?;
            }
        }
        Ok(())
    }

    /// Records of the sendboxes, by bundle; call after [`Self::stop`].
    pub fn collect(&self) -> Result<Vec<BundleRecord>, TestbedError> {
        let of_end = |end| self.boxes.iter().filter(move |one| one.end() == end);
        let mut records = Vec::new();
        for sendbox in of_end(BoxEnd::Sendbox) {
            for (target, mut record) in sendbox.targets.iter().zip(sendbox.records()?) {
                let peer = target.peer();
                let receiveboxes =
                    of_end(BoxEnd::Receivebox).filter(|one| one.targets.contains(&peer));
                record.boundaries_lost = receiveboxes.map(|one| one.losses.boundaries).sum();
                records.push(record);
            }
        }
        Ok(records)
    }
}

impl BoxProcess<'_> {
    fn end(&self) -> BoxEnd {
        self.targets[0].end
    }

    /// Status of the box; `None` while it starts or is stopped.
    fn status(&self) -> Option<Box<Status>> {
        match control::ask(&self.files.control, Request::Status) {
            Ok(Answer::Status(status)) => Some(status),
            _ => None,
        }
    }

    fn hears_peer(&self) -> bool {
        let heard = |status: Box<Status>| {
            status.bundles.iter().all(|bundle| bundle.peer.heard_ns.is_some())
        };
        self.status().is_some_and(heard)
    }

    /// Sends the box the start of the run if its clock differs from the machine's.
    fn begin(&mut self, at_ns: u64) -> Result<(), TestbedError> {
        if self.clock == Clock::default() {
            return Ok(());
        }
        self.program.tell(&Order::Start(at_ns).to_string())
    }

    fn is_dead(&self) -> bool {
        self.condition == Condition::Dead
    }

    /// Adds the losses of the box since the last call.
    fn note_losses(&mut self) {
        if self.condition == Condition::Running
            && let Some(status) = self.status()
        {
            let said = Losses::said_by(&status);
            let said = if self.was_frozen { said.explained_by_a_freeze() } else { said };
            self.losses.add_since(self.told, said);
            self.told = said;
        }
    }

    fn freeze(&mut self) -> Result<(), TestbedError> {
        self.note_losses();
        self.condition = Condition::Frozen;
        self.was_frozen = true;
        self.program.signal(Signal::SIGSTOP)
    }

    fn starve(&mut self) -> Result<(), TestbedError> {
        self.note_losses();
        self.condition = Condition::Frozen;
        self.was_frozen = true;
        let starver = Starver::start(self.program.pid());
        self.starver = Some(starver.map_err(|source| TestbedError::Start {
            name: format!("what starves {}", self.program.name),
            source,
        })?);
        Ok(())
    }

    /// Lets the box continue. Losses in its rings meanwhile are due to the fault and do not count.
    fn thaw(&mut self) -> Result<(), TestbedError> {
        self.starver = None;
        self.program.signal(Signal::SIGCONT)?;
        self.condition = Condition::Running;
        if let Some(status) = self.status() {
            self.told = Losses::said_by(&status);
        }
        Ok(())
    }

    fn restart(&mut self, key: Key, log: Log) -> Result<(), TestbedError> {
        if !self.is_dead() {
            return Err(TestbedError::NotDead { name: self.program.name.clone() });
        }
        if let Some(trace) = &self.files.trace {
            // A box starts with an empty trace file.
            let earlier = trace.with_extension(format!("trace.{}", self.earlier_traces.len()));
            fs::rename(trace, &earlier)
                .map_err(|source| TestbedError::File { path: trace.clone(), source })?;
            self.earlier_traces.push(earlier);
        }
        let config = match key {
            Key::Own => self.files.config.clone(),
            Key::Other => self.files.with_other_key()?,
        };
        let target = self.targets[0];
        let Self { binary, namespace, dir, .. } = *self;
        let start = Starter { binary, dir };
        self.program = launch(target, start, &config, &self.clock, namespace, log)?;
        self.condition = Condition::Running;
        self.was_frozen = false;
        self.told = Losses::default();
        Ok(())
    }

    /// Joins all parts of the trace to one record for each bundle. Losses of the box count for each of its
    /// bundles.
    fn records(&self) -> Result<Vec<BundleRecord>, TestbedError> {
        let empty = |name: &String| BundleRecord {
            name: name.clone(),
            rows_lost: self.losses.rows,
            drops_ring: self.losses.packets,
            hand_backs: self.losses.hand_backs,
            ..BundleRecord::default()
        };
        let mut whole: Vec<BundleRecord> = self.bundles.iter().map(empty).collect();
        for path in self.earlier_traces.iter().chain(&self.files.trace) {
            for part in trace::read(path)? {
                if let Some(known) = whole.iter_mut().find(|known| known.name == part.name) {
                    append(known, part);
                }
            }
        }
        Ok(whole)
    }
}

/// Appends the record of a later incarnation of the sendbox.
fn append(whole: &mut BundleRecord, part: BundleRecord) {
    whole.epochs.extend(part.epochs);
    whole.queue.extend(part.queue);
    whole.decisions.extend(part.decisions);
    whole.waits.extend(part.waits);
    whole.counters += part.counters;
}

impl BoxFiles {
    /// Writes configuration and keys of one box, which sits at these ends of bundles.
    fn write_all(
        ends: &[(FaultTarget, &Bundle)],
        routed: bool,
        dir: &Path,
        open: &File,
        has_metrics: bool,
    ) -> Result<Self, TestbedError> {
        let target = ends[0].0;
        let name = file_name(target);
        for key in ends.iter().map(|(target, _)| key_file(dir, *target)) {
            if !key.exists() {
                keys::generate(&key).map_err(|error| TestbedError::File {
                    path: key.clone(),
                    source: io::Error::other(error),
                })?;
            }
        }
        let sendbox = target.end == BoxEnd::Sendbox;
        let files = Self {
            config: dir.join(format!("{name}.toml")),
            control: control_path(dir, open, &name),
            trace: sendbox.then(|| dir.join(format!("{name}.trace"))),
        };
        let metrics = has_metrics.then(|| metrics_of(target));
        let text = config(ends, routed, &files, dir, metrics);
        fs::write(&files.config, text)
            .map_err(|source| TestbedError::File { path: files.config.clone(), source })?;
        Ok(files)
    }

    /// Writes this configuration with a key that no other box has; returns the path of the file.
    fn with_other_key(&self) -> Result<PathBuf, TestbedError> {
        let failed = |path: &Path, source| TestbedError::File { path: path.to_path_buf(), source };
        let key = self.config.with_extension("other.key");
        if !key.exists() {
            keys::generate(&key).map_err(|error| failed(&key, io::Error::other(error)))?;
        }
        let text = fs::read_to_string(&self.config).map_err(|error| failed(&self.config, error))?;
        let mut config: toml::Table = text.parse().expect("written by this program");
        let bundles = config.get_mut("bundle").and_then(toml::Value::as_array_mut);
        for bundle in bundles.into_iter().flatten() {
            bundle["key_file"] = key.display().to_string().into();
        }
        let path = self.config.with_extension("other.toml");
        fs::write(&path, config.to_string()).map_err(|error| failed(&path, error))?;
        Ok(path)
    }
}

/// Longest path of a Unix socket (bytes): `sun_path` without the final zero (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// Path of a program's control socket in the folder of the run. If the path is too long for a socket, it
/// leads through our open file of that folder.
pub(super) fn control_path(dir: &Path, open: &File, name: &str) -> PathBuf {
    let name = format!("{name}.sock");
    let path = dir.join(&name);
    if path.as_os_str().len() <= SOCKET_PATH_MAX {
        return path;
    }
    format!("/proc/{}/fd/{}/{name}", std::process::id(), open.as_raw_fd()).into()
}

/// The text of one box's configuration file.
fn config(
    ends: &[(FaultTarget, &Bundle)],
    routed: bool,
    files: &BoxFiles,
    dir: &Path,
    metrics: Option<SocketAddrV4>,
) -> String {
    let (target, bundle) = ends[0];
    let sendbox = target.end == BoxEnd::Sendbox;
    let datapath = if bundle.in_kernel { DatapathKind::Kernel } else { DatapathKind::User };
    let is_gateway = routed && is_left(target);
    let file = ConfigFile {
        r#box: BoxTable {
            role: role(target.end),
            lan: (sendbox && !is_gateway).then_some("lan"),
            wan: if is_gateway { fabric::NIC } else { "wan" },
            forward: is_gateway.then_some("route"),
            datapath: sendbox.then_some(datapath),
            listen: messages_at(target, routed).to_string(),
            control: &files.control,
        },
        trace: files.trace.as_deref().map(|file| TraceTable { file, limit: TRACE_LIMIT }),
        metrics: metrics.map(|listen| MetricsTable { listen: listen.to_string() }),
        bundle: ends
            .iter()
            .map(|(target, bundle)| bundle_table(*target, bundle, routed, dir))
            .collect(),
    };
    toml::to_string(&file).expect("tables, texts and numbers are TOML")
}

fn bundle_table<'a>(
    target: FaultTarget,
    bundle: &'a Bundle,
    routed: bool,
    dir: &Path,
) -> BundleTable<'a> {
    let FaultTarget { pair, reverse, end } = target;
    let (from, to) =
        if reverse { (Site::RightBox, Site::LeftBox) } else { (Site::LeftBox, Site::RightBox) };
    let text = |rate: Option<Rate>| rate.map(|rate| rate.to_string());
    // A gateway has the bundles of all pairs in one file, so their ids must differ.
    let id = if routed { pair as u16 + 1 } else { u16::from(reverse) + 1 };
    BundleTable {
        name: &bundle.name,
        id,
        peer: messages_at(target.peer(), routed).to_string(),
        to: [to.host_prefix(pair)],
        from: [from.host_prefix(pair)],
        key_file: key_file(dir, target),
        shaping: (end == BoxEnd::Sendbox).then(|| ShapingTable {
            min_rate: text(bundle.min_rate),
            max_rate: text(bundle.max_rate),
            supervised: bundle.supervised,
            cc: &bundle.cc,
            qdisc: (!bundle.in_kernel).then_some(&bundle.qdisc),
        }),
    }
}

/// Key file of a bundle, shared by both ends.
fn key_file(dir: &Path, target: FaultTarget) -> PathBuf {
    dir.join(format!("bundle-{}-{}.key", target.pair, direction(target)))
}

/// The bundles of each box, with the box's place in each. Receiveboxes come before sendboxes, so that the
/// first messages of a sendbox find a running receivebox.
fn of_each_box(scenario: &Scenario) -> Vec<Vec<(FaultTarget, &Bundle)>> {
    let mut boxes = Vec::new();
    let mut gateway = Vec::new();
    for pair in 0..scenario.pairs.len() {
        for bundle in sites::bundles(scenario, pair) {
            for end in [BoxEnd::Receivebox, BoxEnd::Sendbox] {
                let target = FaultTarget { pair, reverse: bundle.reversed, end };
                if scenario.routed && is_left(target) {
                    gateway.push((target, bundle));
                } else {
                    boxes.push(vec![(target, bundle)]);
                }
            }
        }
    }
    boxes.extend((!gateway.is_empty()).then_some(gateway));
    boxes
}

/// Starts a box: as a daemon, or as a role if its clock differs. No option of a daemon changes its clock.
fn launch(
    target: FaultTarget,
    start: Starter<'_>,
    config: &Path,
    clock: &Clock,
    namespace: &Namespace,
    log: Log,
) -> Result<Program, TestbedError> {
    let name = file_name(target);
    let arguments = if *clock == Clock::default() {
        let command = match target.end {
            BoxEnd::Sendbox => "sendbox",
            BoxEnd::Receivebox => "receivebox",
        };
        vec![command.into(), "--config".into(), config.as_os_str().into()]
    } else {
        let spec = ReceiveboxSpec { config: config.to_path_buf(), clock: clock.clone() };
        start.role_arguments("receivebox", &name, &spec)?.into()
    };
    Program::start_with(&name, start.binary, &arguments, namespace, start.dir, log)
}

/// The clock of a box: a sendbox reads the machine's, a receivebox the bundle's.
fn clock_of(target: FaultTarget, bundle: &Bundle) -> Clock {
    match target.end {
        BoxEnd::Sendbox => Clock::default(),
        BoxEnd::Receivebox => bundle.clock.clone(),
    }
}

/// The namespace of a box.
pub(super) fn namespace(sites: &PairSites, target: FaultTarget) -> &Namespace {
    if is_left(target) { &sites.left_box } else { &sites.right_box }
}

/// Address and port of a box for messages. With `routed`, one gateway receives the messages of all pairs on
/// the left.
pub(super) fn messages_at(target: FaultTarget, routed: bool) -> SocketAddrV4 {
    let (site, pair) = match is_left(target) {
        true if routed => (Site::LeftBox, 0),
        true => (Site::LeftBox, target.pair),
        false => (Site::RightBox, target.pair),
    };
    SocketAddrV4::new(site.address(pair), role(target.end).default_port())
}

/// Address of a box's metrics: the loopback device of its namespace, at the role's own port.
fn metrics_of(target: FaultTarget) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, role(target.end).metrics_port())
}

/// Whether a run needs the metrics of its boxes.
fn metrics(scenario: &Scenario) -> bool {
    scenario.upsets.iter().any(|upset| matches!(upset.kind, UpsetKind::MetricsClients(_)))
}

fn role(end: BoxEnd) -> Role {
    match end {
        BoxEnd::Sendbox => Role::Sendbox,
        BoxEnd::Receivebox => Role::Receivebox,
    }
}

fn is_left(target: FaultTarget) -> bool {
    (target.end == BoxEnd::Sendbox) != target.reverse
}

/// Whether a program of this name is a box or the agent: under test, and not part of the testbed.
pub(super) fn is_box(name: &str) -> bool {
    name == "agent" || ["sendbox-", "receivebox-"].iter().any(|end| name.starts_with(end))
}

fn file_name(target: FaultTarget) -> String {
    let end = match target.end {
        BoxEnd::Sendbox => "sendbox",
        BoxEnd::Receivebox => "receivebox",
    };
    format!("{end}-{}-{}", target.pair, direction(target))
}

fn direction(target: FaultTarget) -> &'static str {
    if target.reverse { "reverse" } else { "forward" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::daemon::config::Config;

    fn bundle() -> Bundle {
        let qdisc =
            Spec::named("fifo").with("limit", forebay_core::spec::Value::Text("1200p".into()));
        let min_rate = Some(Rate::from_mbit_per_sec(2));
        Bundle { min_rate, ..Bundle::new("b", Spec::named("const"), qdisc) }
    }

    #[test]
    fn daemons_accept_files_for_both_directions() {
        let folder = tempfile::tempdir().unwrap();
        let open = File::open(folder.path()).unwrap();
        for reverse in [false, true] {
            let mut peers = Vec::new();
            for end in [BoxEnd::Sendbox, BoxEnd::Receivebox] {
                let target = FaultTarget { pair: 0, reverse, end };
                let bundle = bundle();
                let ends = [(target, &bundle)];
                let files = BoxFiles::write_all(&ends, false, folder.path(), &open, true).unwrap();
                let config = Config::load(&files.config).unwrap();
                assert!(keys::load(&config.bundles[0].key_file).is_ok());
                peers.push([config.listen[0].into(), config.bundles[0].peer.clone()]);
                let to = if reverse { "10.1.1.0/24" } else { "10.1.2.0/24" };
                assert_eq!(config.bundles[0].to[0].to_string(), to);
            }
            let [listen, peer] = peers.swap_remove(1);
            assert_eq!(peers[0], [peer, listen]);
        }
    }

    #[test]
    fn control_sockets_have_short_paths_in_deep_folders() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("x".repeat(200));
        fs::create_dir(&deep).unwrap();
        let open = File::open(&deep).unwrap();
        let path = control_path(&deep, &open, "receivebox-253-forward");
        assert!(path.as_os_str().len() <= SOCKET_PATH_MAX, "{path:?}");
        assert!(std::os::unix::net::UnixListener::bind(&path).is_ok());
        assert!(deep.join("receivebox-253-forward.sock").exists());
    }
}
