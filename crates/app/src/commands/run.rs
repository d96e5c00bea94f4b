//! `forebay run`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_lab::backend::{self, Backend, BackendError};
use forebay_lab::plan::{Override, Plan, PlanError, Seeds};
use forebay_lab::runner::{self, Options, RunnerError};
use forebay_lab::store::{Build, Run as StoredRun, Store, StoreError};
use forebay_lab::summary::{ArmSummary, summarise};
use forebay_lab::{output, progress, report};

use super::{BadInput, print};

/// What this program was built from.
pub const BUILD: Build = Build {
    commit: env!("FOREBAY_COMMIT"),
    sim: env!("FOREBAY_SOURCES_SIM"),
    emu: env!("FOREBAY_SOURCES_EMU"),
};

/// Arguments of `forebay run`.
#[derive(clap::Args)]
pub struct Run {
    /// A plan: the path of a file, or a name that `forebay list plans` shows.
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<String>,
    /// What runs it: sim, the packet simulator, or emu, real kernels over an emulated link.
    #[arg(long, default_value = backend::DEFAULT, value_name = "NAME")]
    backend: String,
    /// One seed instead of the plan's.
    #[arg(long, conflicts_with = "seeds", value_name = "N")]
    seed: Option<Seeds>,
    /// Seeds instead of the plan's, both ends included.
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// Only these arms, in this order.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    arms: Vec<String>,
    /// Override a value of the plan, such as bottleneck.rate=48Mbit/s or bundle.a.cc=setpoint; what an arm or a
    /// cell sets itself stays.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Runs at a time; more than 1 only with sim, an emulation needs the machine for itself.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024),
          value_name = "N")]
    jobs: u16,
    /// Where results go [default: out/PLAN].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document on stdout and nothing else there.
    #[arg(long)]
    json: bool,
    /// Run again what is in the store. What is there stays; the newest valid run counts.
    #[arg(long)]
    force: bool,
    /// Keep the emulator's packet logs and the boxes' traces below this folder.
    #[arg(long, value_name = "DIR")]
    keep_logs: Option<PathBuf>,
}

impl Run {
    /// Runs the plans; exit code 1 if a run was not valid, or ended with a box.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let sets = parse_sets(&self.sets)?;
        let mut plans = Vec::new();
        for reference in &self.plans {
            let mut plan = Plan::load(reference, &sets).map_err(bad_plan)?;
            if !self.arms.is_empty() {
                plan.select_arms(&self.arms).map_err(bad_plan)?;
            }
            note_replacements(&plan);
            plans.push(plan);
        }
        let options = Options {
            jobs: self.jobs.into(),
            build: BUILD,
            seeds: self.seeds.or(self.seed),
            force: self.force,
            retry_until: None,
            keep_logs: self.keep_logs.clone(),
        };
        let mut all = Results::default();
        for plan in &plans {
            let folder = self.out.clone().unwrap_or_else(|| PathBuf::from("out").join(&plan.name));
            let results = run_plans(std::slice::from_ref(plan), &self.backend, folder, &options)?;
            if !self.json {
                results.print()?;
            }
            all.add(results);
        }
        if self.json {
            print(&format!("{:#}\n", output::document(&all.runs, &all.summaries)))?;
        }
        Ok(if all.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What came of running some plans.
#[derive(Default)]
pub struct Results {
    /// Every attempt of every wanted run.
    pub runs: Vec<StoredRun>,
    /// The arms.
    pub summaries: Vec<ArmSummary>,
    /// Every wanted run has a valid attempt, and none ended with a box.
    pub valid: bool,
    /// The report.
    pub report: Option<PathBuf>,
}

impl Results {
    fn add(&mut self, other: Self) {
        self.valid = other.valid && (self.valid || self.runs.is_empty());
        self.runs.extend(other.runs);
        self.summaries.extend(other.summaries);
    }

    /// A table a plan and cell, and where the report is.
    fn print(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        let mut rest: Vec<&ArmSummary> = self.summaries.iter().collect();
        while let Some(first) = rest.first() {
            let title = (first.plan.clone(), first.cell.clone());
            let (group, others) =
                rest.into_iter().partition(|arm| (&arm.plan, &arm.cell) == (&title.0, &title.1));
            rest = others;
            let (titles, rows) = output::table(&group);
            let table = output::text_table(&titles, &rows);
            writeln!(text, "{} {}\n{table}", title.0, title.1)?;
            if let Some((titles, rows)) = output::figures(&group) {
                writeln!(text, "{}", output::text_table(&titles, &rows))?;
            }
        }
        if let Some(report) = &self.report {
            writeln!(text, "report: {}", report.display())?;
        }
        print(&text)?;
        Ok(())
    }
}

/// Runs what the store in `folder` lacks of `plans` and writes the report.
pub fn run_plans(
    plans: &[Plan],
    backend: &str,
    folder: PathBuf,
    options: &Options,
) -> anyhow::Result<Results> {
    let backend = backend::open(backend).map_err(bad_backend)?;
    refuse_options(&*backend, options)?;
    let jobs = runner::jobs(plans, &*backend, options).map_err(runner_error)?;
    let mut store = Store::create(&folder).map_err(out_error)?;
    for plan in plans {
        store.put_plan(plan).map_err(store_error)?;
    }
    let mut observer = progress::on_stderr();
    let done =
        runner::run(&jobs, &*backend, &mut store, options, &mut *observer).map_err(runner_error)?;
    let ids = done.iter().flat_map(|done| &done.ids);
    let runs = ids.map(|id| store.run(*id)).collect::<Result<Vec<_>, _>>().map_err(store_error)?;
    let is_whole = runs.iter().all(|run| run.died().is_none());
    let report = report::write(&store)?;
    Ok(Results {
        summaries: summarise(&store, &runs)?,
        runs,
        valid: done.iter().all(|done| done.valid) && is_whole,
        report: Some(report),
    })
}

/// Refuses plans that `backend` cannot run here, before anything is done.
#[cfg(feature = "host")]
pub fn refuse_plans(plans: &[Plan], backend: &str, options: &Options) -> anyhow::Result<()> {
    let backend = backend::open(backend).map_err(bad_backend)?;
    runner::jobs(plans, &*backend, options).map_err(runner_error)?;
    Ok(())
}

/// Refuses what this back end cannot do, before a folder for results is made.
fn refuse_options(backend: &dyn Backend, options: &Options) -> anyhow::Result<()> {
    let (name, jobs) = (backend.name(), options.jobs);
    if backend.jobs_max().is_some_and(|most| jobs > most) {
        let reason = "an emulation needs the machine for itself";
        let refusal = format!("--jobs {jobs}: allowed is 1 with --backend {name}: {reason}");
        return Err(BadInput(refusal).into());
    }
    if options.keep_logs.is_some() && !backend.writes_files() {
        let refusal = format!("--keep-logs: the back end {name} writes no files, allowed with emu");
        return Err(BadInput(refusal).into());
    }
    Ok(())
}

/// Reads the values of `--set`.
pub fn parse_sets(sets: &[String]) -> anyhow::Result<Vec<Override>> {
    sets.iter().map(|set| Override::parse(set).map_err(bad_plan)).collect()
}

/// Says on stderr what `--set` replaces, and where it does not.
pub fn note_replacements(plan: &Plan) {
    for clause in plan.replacements() {
        eprintln!("note: {}: {clause}", plan.name);
    }
}

/// A plan that cannot be used ends the program with exit code 2.
pub fn bad_plan(error: PlanError) -> anyhow::Error {
    BadInput(error.to_string()).into()
}

/// So does a back end that cannot run here, but not a run that failed.
pub fn bad_backend(error: BackendError) -> anyhow::Error {
    match error {
        BackendError::Failed(_) | BackendError::BoxDied(_) => error.into(),
        error => BadInput(error.to_string()).into(),
    }
}

/// So does a folder in which no results can be put.
fn out_error(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Folder { .. } => BadInput(format!("--out {error}")).into(),
        error => store_error(error),
    }
}

/// So does a folder without results.
pub fn store_error(error: StoreError) -> anyhow::Error {
    match error {
        StoreError::Absent(_) | StoreError::Schema { .. } => BadInput(error.to_string()).into(),
        error => error.into(),
    }
}

fn runner_error(error: RunnerError) -> anyhow::Error {
    match error {
        RunnerError::Plan(error) => bad_plan(error),
        RunnerError::Backend(error) => bad_backend(error),
        RunnerError::Store(error) => store_error(error),
        error => error.into(),
    }
}
