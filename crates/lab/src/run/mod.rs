//! Runs a plan in one call: makes the runs that its folder lacks, summarises all, and writes a report.
//!
//! ```text
//! Plan, Options ──► runner ──► Store ──► Results ──► tables, --json
//!                     └─ Progress           └─ report.html
//! ```

pub(crate) mod runner;

use std::path::PathBuf;

use serde::Serialize;

use crate::backend::BackendError;
use crate::plan::Plan;
use crate::report;
use crate::store::{Run, Store};
use crate::summary::{ArmSummary, Requests, summarise};
pub use runner::{Ending, Event, Options, Progress, RunError, guarded, is_left_to_try};

/// Results of a plan. As JSON: the output of `forebay run --json`, `{"runs": [..], "summary": [..]}`.
#[derive(Serialize)]
pub struct Results {
    /// Every attempt at each requested run, in the order of the runs, older attempts first.
    pub runs: Vec<Run>,
    /// The arms in each cell, their runs pooled.
    #[serde(rename = "summary")]
    pub summaries: Vec<ArmSummary>,
    /// Whether every requested run has a valid attempt, and no box died in one.
    #[serde(skip)]
    pub valid: bool,
    /// Path of the report on everything in the store.
    #[serde(skip)]
    pub report: PathBuf,
    /// Requests, samples over time and changes of state of each run, by the run's `id`.
    #[serde(skip)]
    pub store: Store,
}

/// Makes the runs of `plan` that the folder of results lacks, and reports to `progress`.
///
/// For the arms see [`Plan::select_arms`]. The arms take turns, cell by cell and seed by seed. The same plan,
/// seed and program give the same figures with any other `options`.
///
/// # Errors
/// Before anything is written: the errors of [`check`]. Then the first run that cannot be made at all, or
/// that failed at every attempt. The next call continues after that run.
///
/// # Example
#[doc = concat!("```\n", include_str!("../../tests/run_a_plan.rs"), "```")]
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

/// Refuses a plan that [`run`] cannot run here with these options, before anything is done or written. Only
/// the first seed is checked.
pub fn check(plan: &Plan, options: &Options) -> Result<(), RunError> {
    runner::jobs(plan, &*options.open()?, options).map(drop)
}

/// Progress of several plans.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A plan begins: its number from 1, and the number of plans.
    Begins(&'a Plan, usize, usize),
    /// How far the plan is.
    UnderWay(Progress<'a>),
    /// The plan could not be run to its end; the next one follows.
    Failed(&'a str),
}

/// Runs several plans, each with its own options, as [`run`] does. After each plan it calls `done` with the
/// plan's place and, if the plan failed, the reason. A failed plan is reported to `progress`, and the next
/// one follows.
///
/// # Errors
/// Before anything is written: the errors of [`check`] for any plan. Then the error of `done`, or the caller
/// asked for the end.
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
