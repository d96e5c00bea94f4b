//! Runs of plans, benchmarks and searches.

use std::path::PathBuf;
use std::time::Duration;

use forebay_lab::backend::Stop;
use forebay_lab::plan::Seeds;
use forebay_lab::{Event, Options, Progress, RunError, Step};
use forebay_studies::bench::{BenchRequest, Suite};
use forebay_studies::search::{self as lab, Budget, Objective, Space, check_algorithm};
use pyo3::prelude::*;

use crate::plan::{Plan, overrides};
use crate::watch::watched;
use crate::{BUILD, error};

/// The back end: the module is built without real kernels.
const BACKEND: &str = "sim";

/// Options of a run, from the values of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct How {
    /// Folder of the results.
    out: Option<PathBuf>,
    /// Seeds, written as in plans.
    seeds: Option<String>,
    /// Parallel runs.
    jobs: usize,
    /// Repeat runs that the folder has.
    force: bool,
    /// Called with the fields of [`Told`] as arguments.
    progress: Option<Py<PyAny>>,
}

/// Progress of a call: the current step, its number and the number of steps, its share done, 0 to 1, and how
/// it ended, if it has.
type Told = (String, usize, usize, f64, Option<String>);

impl How {
    fn options(&self, py: Python<'_>) -> PyResult<Options> {
        let options = options(py, self.seeds.as_deref())?;
        Ok(Options { out: self.out.clone(), jobs: self.jobs, force: self.force, ..options })
    }

    /// Passes progress to the callback.
    fn tell(&self, py: Python<'_>, told: Told) -> PyResult<()> {
        self.progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, told).map(drop))
    }
}

/// The options of simulations with these seeds, written as in plans.
pub fn options(py: Python<'_>, seeds: Option<&str>) -> PyResult<Options> {
    let seeds = seeds.map(str::parse::<Seeds>).transpose();
    Ok(Options {
        backend: BACKEND.into(),
        seeds: seeds.map_err(|reason| error::input(py, &format!("seeds: {reason}")))?,
        build: BUILD,
        ..Options::default()
    })
}

fn told(progress: &Progress<'_>) -> Told {
    let (share, ending) = match progress.event {
        Event::Reused => (1.0, Some("in the store".into())),
        Event::Begins(_) => (0.0, None),
        Event::UnderWay(step) => (step.done, None),
        Event::Ended(ending) => (1.0, Some(ending.to_string())),
    };
    (progress.name(), progress.number, progress.total, share, ending)
}

/// Runs `plan`. Returns the results as JSON, whether every run is valid, and the path of the report.
#[pyfunction]
pub fn run(py: Python<'_>, plan: &Bound<'_, Plan>, how: How) -> PyResult<(String, bool, PathBuf)> {
    let options = how.options(py)?;
    let plan = plan.get().current().map_err(|error| error::of_plan(py, &error))?.into_owned();
    let work = move |stop: &Stop, tell: &mut dyn FnMut(Told)| {
        let options = Options { stop: stop.clone(), ..options };
        let results = forebay_lab::run(&plan, &options, &mut |progress| tell(told(&progress)))?;
        let json = serde_json::to_string(&results);
        let json = json.map_err(|error| RunError::Report(error.into()))?;
        Ok::<_, RunError>((json, results.valid, results.report))
    };
    watched(py, None, work, |told| how.tell(py, told))?.map_err(|error| error::of_run(py, error))
}

/// Input of a benchmark, from the values of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Bench {
    /// Names of the algorithms.
    algorithms: Vec<String>,
    /// Name of the suite.
    suite: String,
    /// Names of plans; empty: all of the suite.
    only: Vec<String>,
    /// Use the settings of the published experiments.
    as_published: bool,
    /// Dotted keys and values in JSON.
    sets: Vec<(String, String)>,
    /// Add seeds until the intervals are no wider than this.
    until: Option<f64>,
}

/// Result of [`bench`]: JSON, whether all runs are fine, the report, and the folder of each plan's results.
type Found = (String, bool, PathBuf, Vec<(String, PathBuf)>);

/// Runs algorithms through a benchmark.
#[pyfunction]
pub fn bench(py: Python<'_>, bench: Bench, how: How) -> PyResult<Found> {
    let options = how.options(py)?;
    let suite = bench.suite.parse::<Suite>();
    let request = BenchRequest {
        suite: suite.map_err(|allowed| {
            error::input(py, &format!("suite = {:?}: {allowed}", bench.suite))
        })?,
        algorithms: bench.algorithms,
        only: bench.only,
        as_published: bench.as_published,
        sets: overrides(py, &bench.sets)?,
        until: bench.until,
    };
    let work = move |stop: &Stop, tell: &mut dyn FnMut(Told)| {
        let options = Options { stop: stop.clone(), ..options };
        let mut plan = String::new();
        let found = forebay_studies::bench::bench(&request, &options, &mut |step| match step {
            Step::Begins(begins, ..) => plan.clone_from(&begins.name),
            Step::UnderWay(progress) => tell(told(&progress)),
            Step::Failed(reason) => tell((plan.clone(), 1, 1, 1.0, Some(reason.to_string()))),
        })?;
        let json = serde_json::to_string(&found);
        let json = json.map_err(|error| RunError::Report(error.into()))?;
        let is_fine = found.is_fine();
        let folders = found.experiments.into_iter().map(|it| (it.plan, it.folder)).collect();
        Ok::<_, RunError>((json, is_fine, found.report, folders))
    };
    watched(py, None, work, |told| how.tell(py, told))?.map_err(|error| error::of_run(py, error))
}

/// Input of a search, from the values of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Search {
    /// Name of the algorithm.
    algorithm: String,
    /// Name of the figure to make as bad as possible.
    metric: String,
    /// Name or file of the space.
    space: String,
    /// Simulated runs.
    runs: u64,
    /// Time limit in seconds, instead of a number of runs.
    budget_s: Option<f64>,
    /// Seed of all random draws.
    seed: u64,
}

/// Searches for the case in which an algorithm performs worst; returns the output of `forebay search --json`.
#[pyfunction]
pub fn search(py: Python<'_>, search: Search, how: How) -> PyResult<String> {
    let wrong = |key: &str, reason: String| error::input(py, &format!("{key}: {reason}"));
    check_algorithm(&search.algorithm).map_err(|error| wrong("algorithm", error))?;
    let budget = search.budget_s.map(|seconds| {
        let time = Duration::try_from_secs_f64(seconds).map(Budget::Time);
        time.map_err(|error| wrong("budget_s", error.to_string()))
    });
    let request = lab::SearchRequest {
        objective: Objective::named(&search.metric).map_err(|error| wrong("metric", error))?,
        space: Space::load(&search.space).map_err(|error| error::of_plan(py, &error))?,
        algorithm: search.algorithm,
        backend: "sim".into(),
        budget: budget.transpose()?.unwrap_or(Budget::Runs(search.runs)),
        seed: search.seed,
        jobs: how.jobs,
        folder: how.out.clone().unwrap_or_else(|| PathBuf::from("out/search")),
        build: BUILD,
        stop: Stop::default(),
    };
    let work = move |stop: &Stop, tell: &mut dyn FnMut(Told)| {
        let request = lab::SearchRequest { stop: stop.clone(), ..request };
        let found = lab::search(&request, &mut |progress| {
            tell((progress.to_string(), 1, 1, progress.done, None));
        })?;
        Ok::<_, RunError>(found.document(&request).to_string())
    };
    watched(py, None, work, |told| how.tell(py, told))?.map_err(|error| error::of_run(py, error))
}
