//! One emulated experiment on real kernel TCP: namespaces, cables, programs and their results.
//!
//! All objects of a run belong to the process that runs it. Namespaces have no name and vanish with their
//! last user, and the kernel kills the programs when their parent dies. So nothing stays behind, even after
//! `kill -9`.

mod agent;
mod algorithms;
mod attacker;
mod awake;
mod boxes;
pub mod cost;
mod crowd;
pub mod emulator;
mod fabric;
pub mod forwarding;
mod generator;
mod lock;
mod losses;
pub mod namespace;
mod native;
mod orders;
mod pauses;
mod process;
pub mod processors;
mod program;
pub mod receivebox;
pub mod roles;

pub mod routing;
mod run;
mod sites;
mod starver;
pub mod topology;
mod upsets;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use forebay_core::record::RunRecord;
use forebay_core::spec::SpecError;
use forebay_host::agent::recording::RecordingError;
use forebay_host::daemon::trace::TraceError;
use forebay_host::offload::OffloadError;
use forebay_scenario::Scenario;
use processors::Processors;
use run::{Parts, Run};
use topology::{Site, Topology};

pub use generator::kernel_name;

/// How often the programs are checked and progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Time since the start of the run (ns).
    pub elapsed_ns: u64,
    /// Time until the end of arrivals (ns).
    pub total_ns: u64,
}

/// A phase of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another emulation uses the machine.
    Waiting {
        /// Process and command line of that emulation.
        holder: String,
    },
    /// The testbed makes namespaces, programs and connections.
    Preparing,
    /// Traffic flows.
    Running,
    /// The testbed waits for the last answers.
    Draining,
    /// The testbed reads the results.
    Collecting,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TestbedError {
    /// Namespaces need root.
    #[error("network namespaces need root: run it with sudo")]
    NotRoot,
    /// Another emulation did not end.
    #[error("another emulation has been running for {seconds} s: {holder}")]
    Busy { seconds: u64, holder: String },
    /// The lock file cannot be used.
    #[error("lock of the testbed: {0}")]
    Lock(io::Error),
    /// Too many or no pairs.
    #[error("{pairs} pairs of sites: allowed are 1 to {}", topology::PAIRS_MAX)]
    Pairs { pairs: usize },
    /// A step of the set-up failed.
    #[error("{place}: {action}: {source}")]
    Setup { action: &'static str, place: &'static str, source: io::Error },
    /// A tool could not be started.
    #[error("{place}: {tool}: {source}; `make packages` installs missing tools")]
    Tool { tool: String, place: &'static str, source: io::Error },
    /// A tool failed.
    #[error("{place}: {tool}: {message}")]
    Refused { tool: String, place: &'static str, message: String },
    /// An offload cannot be switched off.
    #[error("{place}: {source}")]
    Offload { place: &'static str, source: OffloadError },
    /// A program could not be started.
    #[error("{name}: {source}")]
    Start { name: String, source: io::Error },
    /// A program ended during the run.
    #[error("{name} ended ({status}): {tail}")]
    Died { name: String, status: String, tail: String },
    /// A program did not get ready.
    #[error("{name} did not print {line:?} within {seconds} s: {tail}")]
    Silent { name: String, line: String, seconds: u64, tail: String },
    /// The boxes of a bundle do not hear each other.
    #[error("{name} has not heard its peer within {seconds} s: {tail}")]
    NoPeer { name: String, seconds: u64, tail: String },
    /// A program did not end.
    #[error("{name} did not end within {seconds} s and was killed: {tail}")]
    Hung { name: String, seconds: u64, tail: String },
    /// A program cannot be signalled.
    #[error("{name}: {signal}: {source}")]
    Signal { name: String, signal: Signal, source: io::Error },
    /// An upset at a pair of sites that does not exist.
    #[error("upset at {pair}: no such pair")]
    UpsetPair { pair: String },
    /// An upset that only a simulator supports.
    #[error("upset: the testbed cannot suspend a machine")]
    Asleep,
    /// A fault or an attack for a box that does not exist.
    #[error("fault or attack: {bundle}: no such bundle")]
    FaultTarget { bundle: String },
    /// A flow or bundle that the testbed cannot run.
    #[error("{name}: {source}")]
    Scenario { name: String, source: SpecError },
    /// A socket whose congestion control differs from the flow's would show the behaviour of another.
    #[error("flow {flow}: a socket ended with algorithm {used} instead of {wanted}")]
    OtherAlgorithm { flow: String, used: String, wanted: String },
    /// A fault of an agent in a run without one.
    #[error("fault: the run has no agent")]
    NoAgent,
    /// An agent's recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A restart of a running program.
    #[error("fault: restart of {name}, which still runs: kill it first")]
    NotDead { name: String },
    /// A file of the run.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A file of the run has other contents than expected.
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A sendbox's trace.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// `/proc` cannot be read.
    #[error("/proc: {0}")]
    Proc(io::Error),
}

impl TestbedError {
    /// Whether a box ended by itself or did not end on request: an error of the box and not of the testbed.
    pub fn is_of_a_box(&self) -> bool {
        match self {
            Self::Died { name, .. } | Self::Hung { name, .. } => boxes::is_box(name),
            _ => false,
        }
    }
}

/// Runs `scenario` with this program's own binary; all files go below `dir`. With `keeps_headers`, the
/// emulator keeps the first bytes of each frame
/// ([`EmulatorSpec::keeps_headers`](emulator::EmulatorSpec::keeps_headers)). The record refers to flows by
/// their places in the scenario.
///
/// The calling thread must not end before this returns: the programs die with it.
pub fn run(
    scenario: &Scenario,
    keeps_headers: bool,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunRecord, TestbedError> {
    let binary = std::env::current_exe()
        .map_err(|source| TestbedError::Start { name: "forebay".into(), source })?;
    run_as(&binary, scenario, keeps_headers, dir, progress)
}

/// [`run`] with the `forebay` at `binary`, for programs that are not `forebay` themselves.
pub fn run_with(
    binary: &Path,
    scenario: &Scenario,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunRecord, TestbedError> {
    run_as(binary, scenario, false, dir, progress)
}

fn run_as(
    binary: &Path,
    scenario: &Scenario,
    keeps_headers: bool,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunRecord, TestbedError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(TestbedError::NotRoot);
    }
    let scenario = &sites::with_files(scenario)?;
    let total_ns = generator::ns(scenario.stop);
    let _lock = lock::take(&mut |holder| {
        progress(Progress { phase: Phase::Waiting { holder }, elapsed_ns: 0, total_ns });
    })?;
    progress(Progress { phase: Phase::Preparing, elapsed_ns: 0, total_ns });
    let dir = dir
        .canonicalize()
        .map_err(|source| TestbedError::File { path: dir.to_path_buf(), source })?;
    let processors = Processors::split().map_err(TestbedError::Proc)?;
    let topology = build(scenario, processors.as_ref())?;
    let parts = Parts { scenario, keeps_headers, processors: processors.as_ref() };
    let mut run = Run::prepare(&parts, &topology, binary, &dir)?;
    run.go(progress)?;
    progress(Progress { phase: Phase::Collecting, elapsed_ns: total_ns, total_ns });
    run.finish()
}

/// The namespaces and devices for `scenario`.
fn build(scenario: &Scenario, processors: Option<&Processors>) -> Result<Topology, TestbedError> {
    let mut topology = Topology::build(scenario.pairs.len(), processors)?;
    if scenario.routed {
        topology.route(processors)?;
    }
    for pair in (0..scenario.pairs.len()).filter(|it| sites::unseen(scenario, *it).is_some()) {
        topology.add_way_beside(pair)?;
    }
    if scenario.ecn {
        topology.use_ecn()?;
    }
    for pair in 0..scenario.pairs.len() {
        let (left, right) = (Site::LeftHosts, Site::RightHosts);
        for (reversed, ends) in [(false, [left, right]), (true, [right, left])] {
            if let Some(segments) = sites::initial_window(scenario, pair, reversed) {
                topology.set_initial_window(pair, ends, segments)?;
            }
        }
        for bundle in sites::bundles(scenario, pair).filter(|bundle| bundle.in_kernel) {
            let hosts = if bundle.reversed { right } else { left };
            topology.hand_over_super_packets(pair, hosts)?;
        }
    }
    Ok(topology)
}

#[cfg(test)]
pub(crate) mod tests {
    /// Returns true, and prints a note, if the tests of namespaces cannot run here.
    pub(crate) fn skip_without_root() -> bool {
        forebay_skips::skip_without(forebay_skips::Need::Root)
    }
}
