//! One call runs a plan: what its folder lacks is run, all of it is summarised, and a report is written.
//!
//! ```text
//! Plan, Options ──► runner ──► Store ──► Results ──► tables, --json
//!                     └─ Progress           └─ report.html
//! ```

use std::path::PathBuf;

use serde::Serialize;

use crate::backend::BackendError;
use crate::plan::Plan;
use crate::report;
use crate::runner::{self, Options, Progress, RunError};
use crate::store::{Run, Store};
use crate::summary::{ArmSummary, Requests, summarise};

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
/// failed at every attempt; called again, the plan goes on behind that run.
///
/// # Example
#[doc = concat!("```\n", include_str!("../tests/run_a_plan.rs"), "```")]
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

/// Refuses what [`run`] cannot run here with these options, before anything is done or written. Of the seeds it looks
/// at the first.
pub fn check(plan: &Plan, options: &Options) -> Result<(), RunError> {
    runner::jobs(plan, &*options.open()?, options).map(drop)
}

/// What running several plans tells of itself.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A plan begins: its number from 1, and of how many.
    Begins(&'a Plan, usize, usize),
    /// How far the plan is.
    UnderWay(Progress<'a>),
    /// The plan could not be run to its end; the next one follows.
    Failed(&'a str),
}

/// Runs what the folders of results lack of several plans, each with its own options, and then hands each plan's place
/// to `done`, with why it was not run to its end where it was not. One that fails is told and keeps no other from its
/// turn.
///
/// # Errors
/// Before anything is written, what [`check`] refuses of any plan; else what `done` returns, or that somebody asked for
/// the end.
pub fn run_each(
    plans: &[(Plan, Options)],
    progress: &mut dyn FnMut(Step<'_>),
    done: &mut dyn FnMut(usize, Option<String>) -> Result<(), RunError>,
) -> Result<(), RunError> {
    for (plan, options) in plans {
        check(plan, options)?;
    }
    for (place, (plan, options)) in plans.iter().enumerate() {
        progress(Step::Begins(plan, place + 1, plans.len()));
        let made = run(plan, options, &mut |event| progress(Step::UnderWay(event)));
        let failed = match made {
            Err(error @ RunError::Backend(BackendError::Stopped)) => return Err(error),
            made => made.err().map(|error| error.to_string()),
        };
        failed.iter().for_each(|reason| progress(Step::Failed(reason)));
        done(place, failed)?;
    }
    Ok(())
}
