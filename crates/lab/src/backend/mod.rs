//! What runs an experiment.

#[cfg(feature = "host")]
mod emu;

use std::path::Path;

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

/// Why a run gave no rows.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// This machine, this build or this user cannot run it at all: nothing was started.
    #[error("{0}")]
    Unavailable(String),
    /// The back end does not offer what the plan asks for.
    #[error("{0}")]
    Unsupported(String),
    /// It was started and failed.
    #[error("{0}")]
    Failed(String),
}

/// Runs experiments.
pub trait Backend {
    /// Name in results: `emu` or `sim`.
    fn name(&self) -> &'static str;

    /// Refuses what this back end cannot run, before anything is started.
    fn check(&self, experiment: &Experiment) -> Result<(), BackendError>;

    /// Runs `experiment`; large files go into `directory`, which exists and is empty.
    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RunRows, BackendError>;
}

/// The names that [`open`] knows.
pub const NAMES: [&str; 1] = ["emu"];

/// The back end called `name`.
pub fn open(name: &str) -> Result<Box<dyn Backend>, BackendError> {
    match name {
        #[cfg(feature = "host")]
        "emu" => Ok(Box::new(emu::Emu)),
        #[cfg(not(feature = "host"))]
        "emu" => Err(BackendError::Unavailable(
            "the backend emu is not in this build, which was made with --no-default-features: on \
             Linux, with clang and libelf-dev installed, run `cargo build --release`"
                .into(),
        )),
        _ => Err(BackendError::Unavailable(format!(
            "--backend {name}: allowed is one of {}",
            NAMES.join(", ")
        ))),
    }
}
