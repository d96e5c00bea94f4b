//! How a plan is run, and why it was not.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::backend::{self, Backend, BackendError, Stop};
use crate::plan::{PlanError, Seeds};
use crate::store::{Build, StoreError};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Back end of the plan, one of [`backend::NAMES`] or [`backend::ORACLE`]. Default: [`backend::DEFAULT`].
    pub backend: String,
    /// Folder of the store and of the report, created if absent. Default: the plan's name, below `out`.
    pub out: Option<PathBuf>,
    /// Seeds. Default: the plan's own.
    pub seeds: Option<Seeds>,
    /// Parallel runs, up to the back end's [`Backend::jobs_max`]. Simulated topologies use the cores of missing
    /// runs. Default: 1; 0 means 1.
    pub jobs: usize,
    /// Repeat runs that the folder already has: old runs stay, but the newest valid run counts. Default:
    /// completed runs are kept, interrupted plans continue, and runs rejected because of the harness are
    /// tried again.
    pub force: bool,
    /// Time after which a disturbed or failed run is not tried again; the first attempt always begins.
    /// Default: three attempts, however late.
    pub retry_until: Option<Instant>,
    /// Folder for packet logs and traces of boxes. Default: they are deleted after their run.
    pub keep_logs: Option<PathBuf>,
    /// Sources of this program, which distinguish its runs from another version's. Default: empty.
    pub build: Build,
    /// Ends the call early if the back end supports it; the runs under way leave no results. Default: never.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: backend::DEFAULT.into(),
            out: None,
            seeds: None,
            jobs: 1,
            force: false,
            retry_until: None,
            keep_logs: None,
            build: Build::default(),
            stop: Stop::default(),
        }
    }
}

impl Options {
    /// The back end.
    ///
    /// # Errors
    ///
    /// The back end lacks a requested option.
    pub fn open(&self) -> Result<Box<dyn Backend>, RunError> {
        let mut backend = backend::open(&self.backend)?;
        backend.heed(&self.stop, self.jobs);
        let (name, jobs) = (backend.name(), self.jobs);
        if backend.jobs_max().is_some_and(|most| jobs > most) {
            let reason = "an emulation needs the machine for itself";
            let refusal = format!("--jobs {jobs}: allowed is 1 with --backend {name}: {reason}");
            return Err(RunError::Options(refusal));
        }
        if self.keep_logs.is_some() && !backend.writes_files() {
            let refusal = format!(
                "--keep-logs: the back end {name} writes no files; allowed with emu and ns3"
            );
            return Err(RunError::Options(refusal));
        }
        Ok(backend)
    }

    /// Distinguishes runs of `backend` by another program version or another external program:
    /// [`RunKey::sources`](crate::store::RunKey::sources).
    pub fn sources(&self, backend: &dyn Backend) -> String {
        let digest = self.build.sources(backend.name()).to_string();
        backend.version().into_iter().fold(digest, |sources, version| sources + " " + &version)
    }
}

/// Why a plan was not run to its end. Completed runs are in the store.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan cannot be resolved.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The back end has no such option.
    #[error("{0}")]
    Options(String),
    /// The back end cannot run the plan.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A folder for the files of a run cannot be made or read.
    #[error("files of a run: {0}")]
    Files(#[from] std::io::Error),
    /// A run failed at every attempt.
    #[error("{name}: failed at attempt {attempts}, the last: {reason}")]
    Failed {
        /// The run.
        name: String,
        /// Number of attempts.
        attempts: usize,
        /// The last failure.
        reason: String,
    },
    /// The report cannot be written.
    #[error("{0:#}")]
    Report(anyhow::Error),
}

impl RunError {
    /// The folder of results cannot be made, read or written.
    pub fn unusable(folder: &Path, error: &std::io::Error) -> Self {
        StoreError::Folder { path: folder.into(), reason: error.to_string() }.into()
    }

    /// Whether the plan, the options or the machine is at fault, and no run went wrong.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Plan(_) | Self::Options(_) => true,
            Self::Backend(error) => {
                matches!(error, BackendError::Unavailable(_) | BackendError::Unsupported(_))
            }
            Self::Store(error) => !matches!(error, StoreError::Sql(_) | StoreError::Content(_)),
            Self::Files(_) | Self::Failed { .. } | Self::Report(_) => false,
        }
    }
}
