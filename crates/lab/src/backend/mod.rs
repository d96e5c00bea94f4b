//! What runs an experiment.

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
pub(crate) use sim::{Driven, NetworkFlow, Sight, driven, observe};

use crate::plan::Experiment;
use crate::rows::RunRows;

/// How far a run is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is going on.
    pub phase: String,
    /// Share of the time until the end of arrivals, 0 to 1.
    pub done: f64,
}

/// Ends what runs, from whichever thread asks; clones ask and are asked alike.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end, which nothing takes back.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether anybody has asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether it is a clone of `other`, or that of this one.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Does `work`, which this one ends, on this thread.
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

    /// What ends the run that this thread makes: for algorithms that may take long to decide.
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// Why a run gave no rows.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// This machine, this build or this user cannot run it at all: nothing was started.
    #[error("{0}")]
    Unavailable(String),
    /// The back end does not offer what the plan asks for.
    #[error("{0}")]
    Unsupported(String),
    /// The run was started and failed.
    #[error("{0}")]
    Failed(String),
    /// So it did by a panic, such as that of an algorithm of somebody's own; the next run may do better.
    #[error("{0}")]
    Panicked(String),
    /// So it did because a box or the agent ended by itself, or did not end when it was told to.
    #[error("{0}")]
    BoxDied(String),
    /// Somebody asked for the end of it; see [`Backend::heed`].
    #[error("stopped before its end")]
    Stopped,
}

/// Runs experiments, several at once where [`Backend::jobs_max`] allows.
pub trait Backend: Sync {
    /// Name in results: `emu`, `ns3` or `sim`.
    fn name(&self) -> &'static str;

    /// Name and version of what runs experiments if that is somebody else's program, and so a part of what
    /// makes two runs the same.
    fn version(&self) -> Option<String> {
        None
    }

    /// Most runs at a time; `None`: any number.
    fn jobs_max(&self) -> Option<usize>;

    /// Runs of one experiment end alike, so that trying again what failed is in vain.
    fn is_deterministic(&self) -> bool;

    /// Runs of this back end leave files that are worth keeping.
    fn writes_files(&self) -> bool;

    /// Ends every run with [`BackendError::Stopped`], and begins none, once `stop` is asked. Simulations look every
    /// 10 ms of their time; a back end that runs other programs may not look at all.
    fn heed(&mut self, stop: &Stop) {
        let _ = stop;
    }

    /// Refuses what this back end cannot run, before anything is started.
    fn check(&self, experiment: &Experiment) -> Result<(), BackendError>;

    /// Runs `experiment`; large files go into `directory`, which exists and is empty, or is no folder
    /// where [`Backend::writes_files`] says that there are none.
    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RunRows, BackendError>;
}

/// The names of our own, which claims are made of.
pub const NAMES: [&str; 2] = ["sim", "emu"];

/// The name of the one that ours are compared with.
pub const ORACLE: &str = "ns3";

/// The one that runs plans when none is named: real kernels where this build has them.
pub const DEFAULT: &str = if cfg!(feature = "host") { "emu" } else { "sim" };

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
        _ => Err(BackendError::Unavailable(format!(
            "--backend {name}: allowed is one of {}, {ORACLE}",
            NAMES.join(", ")
        ))),
    }
}
