//! Back ends: the programs that run an experiment.

#[cfg(feature = "host")]
mod cost;
#[cfg(feature = "host")]
mod emu;
#[cfg(feature = "ns3")]
pub mod ns3;
mod sim;

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "host")]
pub(crate) use emu::capture as emulate;
pub use sim::{Driven, driven};
pub(crate) use sim::{NetworkFlow, Sight, observe};

use forebay_core::spec::one_of;
use forebay_scenario::Transport;
use serde_json::Value;

use crate::metrics::RunRows;
use crate::plan::Experiment;

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct RunProgress {
    /// The current step.
    pub phase: String,
    /// Share of the time until the end of arrivals, 0 to 1.
    pub done: f64,
}

/// Ends a run from any thread; clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end; this cannot be undone.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a clone has asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether the two are clones.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Does `work` on this thread; this value can end it.
    fn around<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Before(Option<Stop>);
        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _before = Before(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// The stop of the run on this thread, for algorithms that may take long to decide.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }
}

thread_local! {
    /// The stop of the run on this thread, for [`Stop::current`].
    static CURRENT: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Why a run gave no rows.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// This machine, this build or this user cannot run the experiment at all; nothing was started.
    #[error("{0}")]
    Unavailable(String),
    /// The back end does not support a setting of the plan.
    #[error("{0}")]
    Unsupported(String),
    /// The run was started and failed.
    #[error("{0}")]
    Failed(String),
    /// The run panicked, for example in a user algorithm; the next run may succeed.
    #[error("{0}")]
    Panicked(String),
    /// A box or the agent ended during the run, or did not end when asked to.
    #[error("{0}")]
    BoxDied(String),
    /// The caller asked the run to end; see [`Backend::heed`].
    #[error("stopped before its end")]
    Stopped,
}

/// Runs experiments, several at once where [`Backend::jobs_max`] allows.
pub trait Backend: Sync {
    /// Name in results: `emu`, `ns3` or `sim`.
    fn name(&self) -> &'static str;

    /// Name and version of the external program that runs experiments; part of the key of a run. `None`: no
    /// external program.
    fn version(&self) -> Option<String> {
        None
    }

    /// Most runs at a time; `None`: any number.
    fn jobs_max(&self) -> Option<usize>;

    /// Whether repeated runs of one experiment have the same result, so that a failed one is not tried again.
    fn is_deterministic(&self) -> bool;

    /// Whether runs of this back end leave files to keep.
    fn writes_files(&self) -> bool;

    /// Once `stop` is set, every run ends with [`BackendError::Stopped`] and none begins. Simulations look
    /// every 10 ms of simulated time; a back end that starts other programs may not look at all. The runs share
    /// `cores` processor cores: a large simulation may use those that no other run needs.
    fn heed(&mut self, stop: &Stop, cores: usize) {
        let _ = (stop, cores);
    }

    /// Refuses an experiment that this back end cannot run, before anything is started.
    fn check(&self, experiment: &Experiment) -> Result<(), BackendError>;

    /// Refuses `unseeded` if this back end cannot run it with `seed`.
    fn check_with(&self, unseeded: &Experiment, seed: u64) -> Result<(), BackendError> {
        let experiment = unseeded.clone().with_seed(seed);
        self.check(&experiment.map_err(|error| BackendError::Unsupported(error.to_string()))?)
    }

    /// Runs `experiment`; large files go into the empty folder `directory`. The folder does not exist if
    /// [`Backend::writes_files`] is false.
    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<RunRows, BackendError>;

    /// Whether the arms of a cell and seed are one group, for [`Backend::run_group`].
    fn makes_groups(&self, experiment: &Experiment) -> bool {
        let _ = experiment;
        false
    }

    /// Runs the arms of a cell and seed together, as [`Backend::run`] does one; returns their rows in the same
    /// order. `earlier` describes the machine in the last valid run of one of these arms in this cell; null: there
    /// is none.
    fn run_group(
        &self,
        arms: &[Experiment],
        earlier: &Value,
        directory: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<Vec<RunRows>, BackendError> {
        let _ = earlier;
        arms.iter().map(|arm| self.run(arm, directory, progress)).collect()
    }
}

/// Refuses trials of costs on the simulated back end `name`.
fn refuse_costs(experiment: &Experiment, name: &str) -> Result<(), BackendError> {
    if experiment.cost.is_none() {
        return Ok(());
    }
    let reason =
        format!("[cost]: the back end {name} has no processor to measure, allowed with emu");
    Err(BackendError::Unsupported(reason))
}

/// Refuses flows over QUIC on the back end `name`.
fn refuse_quic(experiment: &Experiment, name: &str) -> Result<(), BackendError> {
    for flow in &experiment.flows {
        if let Transport::Quic { at } = &flow.transport {
            return Err(BackendError::Unsupported(format!(
                "{at}: flow.{}.transport = quic: allowed is \"tcp\" with the back end {name}; emu has both",
                flow.name
            )));
        }
    }
    Ok(())
}

/// Names of our own back ends, which claims are about.
pub const NAMES: [&str; 2] = ["sim", "emu"];

/// Name of the back end that ours are compared with.
pub const ORACLE: &str = "ns3";

/// The default back end: real kernels if this build has them.
pub const DEFAULT: &str = if cfg!(feature = "host") { "emu" } else { "sim" };

/// The back end that runs everywhere and for every user.
pub const SIMULATOR: &str = NAMES[0];

/// Whether the back end called `name` needs root, and this process is another user's.
pub fn lacks_root(name: &str) -> bool {
    #[cfg(feature = "host")]
    let is_root = nix::unistd::geteuid().is_root();
    #[cfg(not(feature = "host"))]
    let is_root = true;
    name == NAMES[1] && !is_root
}

/// The back end called `name`.
pub fn open(name: &str) -> Result<Box<dyn Backend>, BackendError> {
    match name {
        "sim" => Ok(Box::new(sim::Sim::default())),
        #[cfg(feature = "host")]
        "emu" => Ok(Box::new(emu::Emu)),
        #[cfg(not(feature = "host"))]
        "emu" => Err(BackendError::Unavailable(
            "the backend emu is not in this build, which was made with --no-default-features: on \
             Linux, with clang and libelf-dev installed, run `cargo build --release`; `--backend sim` \
             runs everywhere"
                .into(),
        )),
        #[cfg(feature = "ns3")]
        ORACLE => Ok(Box::new(ns3::Ns3::find()?)),
        #[cfg(not(feature = "ns3"))]
        ORACLE => Err(BackendError::Unavailable(
            "the back end ns3 is not in this build, which has the feature ns3 of forebay-lab off; the \
             command `forebay run --backend ns3` has it"
                .into(),
        )),
        _ => {
            let allowed = one_of(name, &[NAMES[0], NAMES[1], ORACLE]);
            Err(BackendError::Unsupported(format!("--backend {name}: allowed is {allowed}")))
        }
    }
}
