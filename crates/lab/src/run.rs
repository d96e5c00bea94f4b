//! One call runs a plan: what its folder lacks is run, all of it is summarised, and a report is written.
//!
//! ```text
//! Plan, Options ──► runner ──► Store ──► Results ──► tables, --json
//!                     └─ Progress           └─ report.html
//! ```

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use crate::backend::{self, Backend, BackendError};
use crate::plan::{Plan, PlanError, Seeds};
use crate::store::{Build, Run, RunKey, Store, StoreError};
use crate::summary::{ArmSummary, Requests, summarise};
use crate::{report, runner};

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What runs the plan, one of [`backend::NAMES`]. Default: [`backend::DEFAULT`].
    pub backend: String,
    /// Folder of the store and of the report, made if it does not exist. Default: the plan's name, below `out`.
    pub out: Option<PathBuf>,
    /// Seeds. Default: the plan's own.
    pub seeds: Option<Seeds>,
    /// Runs at a time, up to the back end's [`Backend::jobs_max`]. Default: 1, which 0 is, too.
    pub jobs: usize,
    /// Run again what the folder has: what is there stays, and a newer valid run counts in its stead. Default:
    /// what is there is not repeated, and what was interrupted goes on where it stopped.
    pub force: bool,
    /// When attempts at a run that was disturbed or failed end: none but the first begins later. Default: three
    /// attempts, however late.
    pub retry_until: Option<Instant>,
    /// Folder below which packet logs and traces of boxes stay. Default: they go with their run.
    pub keep_logs: Option<PathBuf>,
    /// What this program was built from, which tells its runs from those of others. Default: empty.
    pub build: Build,
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
        }
    }
}

impl Options {
    /// The back end; an error if it has not the options that are asked of it.
    fn open(&self) -> Result<Box<dyn Backend>, RunError> {
        let backend = backend::open(&self.backend)?;
        let (name, jobs) = (backend.name(), self.jobs);
        if backend.jobs_max().is_some_and(|most| jobs > most) {
            let reason = "an emulation needs the machine for itself";
            let refusal = format!("--jobs {jobs}: allowed is 1 with --backend {name}: {reason}");
            return Err(RunError::Options(refusal));
        }
        if self.keep_logs.is_some() && !backend.writes_files() {
            let refusal =
                format!("--keep-logs: the back end {name} writes no files, allowed with emu");
            return Err(RunError::Options(refusal));
        }
        Ok(backend)
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

/// What goes on, told as it happens; where several runs go at a time, theirs take turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The run that it is of: plan, arm, cell and seed.
    pub key: &'a RunKey,
    /// Place of the run in the order in which they begin, 1 to `total`.
    pub number: usize,
    /// Runs that are wanted of the plan.
    pub total: usize,
    /// What happened.
    pub event: Event<'a>,
}

impl Progress<'_> {
    /// `main copa_sfq seed 2`, for people.
    pub fn name(&self) -> String {
        runner::name(self.key)
    }
}

/// What happens to a run: it is reused, or has attempts, each from `Begins` to `Ended`. Of a run whose attempts
/// were all rejected by an earlier call nothing is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The store has it already.
    Reused,
    /// An attempt begins; its number, from 1.
    Begins(usize),
    /// How far the attempt is.
    UnderWay(&'a backend::Progress),
    /// The attempt has ended.
    Ended(Ending<'a>),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending<'a> {
    /// With a run that may be used.
    Valid,
    /// With a box, and why: the run counts, against the box.
    Died(&'a str),
    /// With a run that the harness's own figures forbid to use.
    Rejected(&'a [String]),
}

impl std::fmt::Display for Ending<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Valid => write!(f, "valid"),
            Self::Died(reason) => write!(f, "valid, and counts against the boxes: {reason}"),
            Self::Rejected(reasons) => write!(f, "rejected: {}", reasons.join("; ")),
        }
    }
}

/// What a plan gave. As JSON it is what `forebay run --json` prints: `{"runs": [..], "summary": [..]}`.
#[derive(Serialize)]
pub struct Results {
    /// Every attempt at each wanted run, in the order in which the runs begin, older attempts first.
    pub runs: Vec<Run>,
    /// The arms in each cell, their runs pooled.
    #[serde(rename = "summary")]
    pub summaries: Vec<ArmSummary>,
    /// Whether every wanted run has a valid attempt, and none ended with a box.
    #[serde(skip)]
    pub valid: bool,
    /// Path of the report over all that is in the store.
    #[serde(skip)]
    pub report: PathBuf,
    /// Requests, samples over time and changes of state of each run, by the run's `id`.
    #[serde(skip)]
    pub store: Store,
}

/// Runs what the folder of results lacks of `plan`, and tells `progress` of it.
///
/// Which arms: [`Plan::select_arms`]. The arms take turns, cell by cell and seed by seed. The same plan, seed and
/// program give the same figures, whatever else `options` says.
///
/// # Errors
/// Before anything is written, what [`check`] refuses. Then the first run that cannot be made at all, or that
/// failed at every attempt; called again, the plan goes on behind the runs that were made.
///
/// # Example
/// ```
/// use forebay_lab::plan::{Override, Plan};
/// use forebay_lab::{Event, Options, run};
///
/// let sets = ["stop=2s", "warmup=500ms"].map(|set| Override::parse(set).unwrap());
/// let mut plan = Plan::load("bundler/queue_shift", &sets)?;
/// plan.select_arms(&["status_quo".into(), "copa_default".into()])?;
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("results");
/// let options = Options {
///     backend: "sim".into(),
///     out: Some(out),
///     seeds: Some("1..2".parse()?),
///     ..Options::default()
/// };
/// let mut ended = 0;
/// let results = run(&plan, &options, &mut |progress| {
///     ended += usize::from(matches!(progress.event, Event::Ended(_)));
/// })?;
/// assert!(results.valid && ended == 4);
///
/// let arm = |name: &str| results.summaries.iter().find(|it| it.arm == name).unwrap();
/// let queue = |name: &str| arm(name).link("forward", "queue_mean_packets").unwrap();
/// assert!(queue("copa_default") < queue("status_quo"));
///
/// let json = serde_json::to_value(&results)?;
/// assert_eq!(json["runs"].as_array().map(Vec::len), Some(4));
/// assert_eq!(json["summary"][1]["arm"], "copa_default");
/// let over_time = results.store.series(results.runs[0].id, "link", "forward", "queue_packets")?;
/// assert!(over_time.iter().all(|(at_s, _)| *at_s <= 2.1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(
    plan: &Plan,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Results, RunError> {
    let backend = options.open()?;
    let jobs = runner::jobs(plan, &*backend, options)?;
    let folder = options.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&plan.name));
    let mut store = Store::create(&folder)?;
    store.put_plan(plan)?;
    let done = runner::run(&jobs, &*backend, &mut store, options, progress)?;
    let ids = done.iter().flat_map(|done| &done.ids);
    let runs = ids.map(|id| store.run(*id)).collect::<Result<Vec<_>, _>>()?;
    let is_whole = runs.iter().all(|run| run.died().is_none());
    let requests = Requests::new(&store);
    let summaries = summarise(&requests, &runs)?;
    let report = report::write(&requests).map_err(RunError::Report)?;
    let valid = done.iter().all(|done| done.valid) && is_whole;
    Ok(Results { runs, summaries, valid, report, store })
}

/// Refuses what [`run`] cannot run here with these options, before anything is done or written.
pub fn check(plan: &Plan, options: &Options) -> Result<(), RunError> {
    runner::jobs(plan, &*options.open()?, options).map(drop)
}
