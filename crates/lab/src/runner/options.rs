//! How a plan is run, and why it was not.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::backend::{self, Backend, BackendError, Stop};
use crate::plan::{PlanError, Seeds};
use crate::store::{Build, StoreError};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What runs the plan, one of [`backend::NAMES`] or [`backend::ORACLE`]. Default: [`backend::DEFAULT`].
    pub backend: String,
    /// Folder of the store and of the report, made if it does not exist. Default: the plan's name, below `out`.
    pub out: Option<PathBuf>,
    /// Seeds. Default: the plan's own.
    pub seeds: Option<Seeds>,
    /// Runs at a time, up to the back end's [`Backend::jobs_max`]. Default: 1, which 0 is, too.
    pub jobs: usize,
    /// Run again what the folder has: what is there stays, and a newer valid run counts in its stead. Default:
    /// what is there is not repeated, what was interrupted goes on where it stopped, and what was rejected for
    /// the harness is tried again.
    pub force: bool,
    /// When attempts at a run that was disturbed or failed end: none but the first begins later. Default: three
    /// attempts, however late.
    pub retry_until: Option<Instant>,
    /// Folder below which packet logs and traces of boxes stay. Default: they go with their run.
    pub keep_logs: Option<PathBuf>,
    /// What this program was built from, which tells its runs from those of others. Default: empty.
    pub build: Build,
    /// Ends the call before its time, where the back end heeds it: the runs under way leave nothing. Default: nobody
    /// asks.
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
    /// The back end; an error if it has not the options that are asked of it.
    pub(crate) fn open(&self) -> Result<Box<dyn Backend>, RunError> {
        let mut backend = backend::open(&self.backend)?;
        backend.heed(&self.stop);
        let (name, jobs) = (backend.name(), self.jobs);
        if backend.jobs_max().is_some_and(|most| jobs > most) {
            let reason = "an emulation needs the machine for itself";
            let refusal = format!("--jobs {jobs}: allowed is 1 with --backend {name}: {reason}");
            return Err(RunError::Options(refusal));
        }
        if self.keep_logs.is_some() && !backend.writes_files() {
            let refusal = format!(
                "--keep-logs: the back end {name} writes no files, allowed with emu and ns3"
            );
            return Err(RunError::Options(refusal));
        }
        Ok(backend)
    }

    /// What tells the runs of `backend` from those of another program, or of another version of what runs them:
    /// [`RunKey::sources`](crate::store::RunKey::sources).
    pub(crate) fn sources(&self, backend: &dyn Backend) -> String {
        let digest = self.build.sources(backend.name()).to_string();
        backend.version().into_iter().fold(digest, |sources, version| sources + " " + &version)
    }
}

/// Why a plan was not run to its end. What had been run by then is in the store.
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
    /// A run failed as often as is tried.
    #[error("{name}: failed at attempt {attempts}, the last: {reason}")]
    Failed {
        /// The run.
        name: String,
        /// How often it was tried.
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
    pub(crate) fn unusable(folder: &Path, error: &std::io::Error) -> Self {
        StoreError::Folder { path: folder.into(), reason: error.to_string() }.into()
    }

    /// Whether plan, options or machine have to change, and nothing went wrong while it ran.
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
