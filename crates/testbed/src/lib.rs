//! One emulated experiment on real kernel TCP: namespaces, cables, programs, and what they saw.
//!
//! Everything a run makes belongs to the process that runs it: namespaces have no name and vanish
//! with their last user, and programs are killed when their parent dies. So nothing is left
//! behind, also after `kill -9`.

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
pub mod generator;
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
pub mod scenario;
mod starver;
pub mod topology;
mod upsets;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::scenario::{FaultTarget, Scenario};
use forebay_core::record::RunRecord;
use forebay_host::agent::recording::RecordingError;
use forebay_host::daemon::config::DatapathKind;
use forebay_host::daemon::trace::TraceError;
use forebay_host::offload::OffloadError;
use processors::Processors;
use run::Run;
use topology::{Site, Topology};

/// How often the programs are checked and progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is going on.
    pub phase: Phase,
    /// Time since the start of the run (ns).
    pub elapsed_ns: u64,
    /// Time until the end of arrivals (ns).
    pub total_ns: u64,
}

/// What is going on in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Another emulation has the machine.
    Waiting {
        /// Who has the machine.
        holder: String,
    },
    /// Namespaces, programs and connections are made.
    Preparing,
    /// Traffic flows.
    Running,
    /// The last answers are awaited.
    Draining,
    /// Results are read.
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
    #[error("{place}: {tool}: {source}; `make packages` installs what is missing")]
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
    #[error("{name} did not say {line:?} within {seconds} s: {tail}")]
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
    #[error("upset at pair {pair} of {pairs}: no such pair")]
    UpsetPair { pair: usize, pairs: usize },
    /// An upset that only a simulator has.
    #[error("upset: no machine of the testbed falls asleep")]
    Asleep,
    /// A fault or an attack for a box that does not exist.
    #[error("fault or attack: {target:?}: the pair has no such bundle")]
    FaultTarget { target: FaultTarget },
    /// A fault of an agent that the run has not.
    #[error("fault: the run has no agent")]
    NoAgent,
    /// What an agent recorded cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A restart of a running program.
    #[error("fault: restart of {name}, which is not dead: a kill must come before")]
    NotDead { name: String },
    /// A file of the run.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A file of the run is not what it should be.
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
    /// Whether a box ended by itself, or did not end when it was told to: the fault of the box, and not of
    /// the testbed.
    pub fn is_of_a_box(&self) -> bool {
        match self {
            Self::Died { name, .. } | Self::Hung { name, .. } => boxes::is_box(name),
            _ => false,
        }
    }
}

/// Runs `scenario` with this program's own binary; everything it writes goes below `dir`.
///
/// The calling thread must not end before this returns: the programs die with it.
pub fn run(
    scenario: &Scenario,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunRecord, TestbedError> {
    let binary = std::env::current_exe()
        .map_err(|source| TestbedError::Start { name: "forebay".into(), source })?;
    run_with(&binary, scenario, dir, progress)
}

/// [`run`] with the `forebay` at `binary`, for programs that are not `forebay` themselves.
pub fn run_with(
    binary: &Path,
    scenario: &Scenario,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<RunRecord, TestbedError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(TestbedError::NotRoot);
    }
    let total_ns = scenario.stop_ns;
    let _lock = lock::take(&mut |holder| {
        progress(Progress { phase: Phase::Waiting { holder }, elapsed_ns: 0, total_ns });
    })?;
    progress(Progress { phase: Phase::Preparing, elapsed_ns: 0, total_ns });
    let dir = dir
        .canonicalize()
        .map_err(|source| TestbedError::File { path: dir.to_path_buf(), source })?;
    let processors = Processors::split().map_err(TestbedError::Proc)?;
    let mut topology = Topology::build(scenario.pairs.len(), processors.as_ref())?;
    if scenario.routed {
        topology.route(processors.as_ref())?;
    }
    for pair in (0..scenario.pairs.len()).filter(|pair| scenario.unseen(*pair).is_some()) {
        topology.add_way_beside(pair)?;
    }
    if scenario.ecn {
        topology.use_ecn()?;
    }
    let (left, right) = (Site::LeftHosts, Site::RightHosts);
    for (pair, spec) in scenario.pairs.iter().enumerate() {
        for (ends, segments) in [[left, right], [right, left]].into_iter().zip(spec.initial_windows)
        {
            if let Some(segments) = segments {
                topology.set_initial_window(pair, ends, segments)?;
            }
        }
        for (bundle, hosts) in [(&spec.forward_bundle, left), (&spec.reverse_bundle, right)] {
            if bundle.as_ref().is_some_and(|it| it.datapath == DatapathKind::Kernel) {
                topology.hand_over_super_packets(pair, hosts)?;
            }
        }
    }
    let mut run = Run::prepare(scenario, &topology, processors.as_ref(), binary, &dir)?;
    run.go(progress)?;
    progress(Progress { phase: Phase::Collecting, elapsed_ns: total_ns, total_ns });
    run.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    /// True, with a note, where the tests of namespaces cannot run.
    pub(crate) fn skip_without_root() -> bool {
        forebay_skips::skip_without(forebay_skips::Need::Root)
    }
}
