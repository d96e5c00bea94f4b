//! The benchmark: algorithms under test are put through every plan of the benchmark, and compared.
//!
//! ```text
//! plans/ccperf, aut = [ALGORITHM, ..] ──► run() of each plan ──► its own store and report
//!                                           └──► scorecard ──► Benchmark ──► report.html over all, table, --json
//! ```
//! Each plan has a folder of its own. An algorithm that is tested later stands in the same report beside those that were
//! tested before.

mod page;
pub mod scorecard;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::plan::library::benchmark;
use crate::plan::{Override, Plan};
use crate::report::newest_runs;
use crate::run::{Step, run_each};
use crate::runner::{Options, RunError};
use crate::store::{self, Run, Store};
use scorecard::Scorecard;

/// What is tested, and how.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The algorithms, as flows name them.
    pub algorithms: Vec<String>,
    /// Only these plans, with or without their folder; all if it is empty.
    pub only: Vec<String>,
    /// With the settings of whoever published the experiments, where any did.
    pub as_published: bool,
    /// Overrides of every plan that has the key.
    pub sets: Vec<Override>,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Benchmark {
    /// The plans that were run.
    pub experiments: Vec<Experiment>,
    /// What the plans say of each algorithm.
    pub scorecard: Scorecard,
    /// Path of the report.
    #[serde(skip)]
    pub report: PathBuf,
}

/// A plan of the benchmark, and what came of it.
#[derive(Debug, Serialize)]
pub struct Experiment {
    /// Name of the plan as `forebay run` takes it.
    pub plan: String,
    /// Heading of the plan.
    pub title: String,
    /// What the plan shows.
    pub description: String,
    /// Valid runs of all algorithms that the folder has.
    pub runs: usize,
    /// Why it was not run to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Folder of its results.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The runs that count.
    #[serde(skip)]
    pub(crate) valid: Vec<Run>,
}

impl Request {
    /// The plans, in the order in which they run, each with the algorithms as its arms.
    ///
    /// # Errors
    /// No plan is called so, none of them was published, or a plan refuses an algorithm or an override.
    pub fn plans(&self) -> Result<Vec<Plan>, RunError> {
        let names = self.names()?;
        let quoted: Vec<String> = self.algorithms.iter().map(|name| format!("{name:?}")).collect();
        let aut = Override::parse(&format!("aut=[{}]", quoted.join(", ")))?;
        let sets: Vec<Override> = std::iter::once(aut).chain(self.sets.iter().cloned()).collect();
        let load = |name: &&str| match self.as_published {
            true => Plan::load_as_published(name, &sets),
            false => Plan::load(name, &sets),
        };
        Ok(names.iter().map(load).collect::<Result<_, _>>()?)
    }

    fn names(&self) -> Result<Vec<&'static str>, RunError> {
        let short = |name: &'static str| name.rsplit('/').next().unwrap_or(name);
        let is_called = |name: &'static str, wanted: &str| wanted == name || wanted == short(name);
        for wanted in &self.only {
            if !benchmark().any(|name| is_called(name, wanted)) {
                let known = benchmark().map(short).collect::<Vec<_>>().join(", ");
                let refusal = format!("--only {wanted}: allowed is {known}");
                return Err(RunError::Options(refusal));
            }
        }
        let is_wanted = |name: &&'static str| {
            self.only.is_empty() || self.only.iter().any(|wanted| is_called(name, wanted))
        };
        Ok(benchmark().filter(is_wanted).collect())
    }
}

/// Runs what the folder of results lacks of the benchmark, scores every algorithm that has runs there, and writes a
/// report over it. A plan that fails is told and keeps no other from its turn.
///
/// `options.out` is the folder of the benchmark, by default `out/bench`; seeds are those of each plan where `options`
/// has none.
///
/// # Errors
/// Before anything is written, what no run could do without: a plan, an algorithm, the back end and its options.
pub fn bench(
    request: &Request,
    options: &Options,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Benchmark, RunError> {
    let root = options.out.clone().unwrap_or_else(|| Path::new("out").join("bench"));
    let of_plan = |plan: &Plan| {
        let folder = plan.name.rsplit('/').next().unwrap_or(&plan.name);
        Options { out: Some(root.join(folder)), ..options.clone() }
    };
    let plans = request.plans()?.into_iter().map(|plan| {
        let options = of_plan(&plan);
        (plan, options)
    });
    let plans: Vec<(Plan, Options)> = plans.collect();
    let mut experiments = Vec::new();
    run_each(&plans, progress, &mut |place, failed| {
        let (plan, options) = &plans[place];
        let folder = options.out.clone().unwrap_or_default();
        let valid = valid_runs(&folder, options).map_err(RunError::Report)?;
        experiments.push(Experiment {
            plan: plan.name.clone(),
            title: plan.title.clone(),
            description: plan.description.clone(),
            runs: valid.len(),
            failed,
            folder,
            valid,
        });
        Ok(())
    })?;
    let scorecard = Scorecard::of(&experiments);
    let report = page::write(&experiments, &scorecard, &root).map_err(RunError::Report)?;
    Ok(Benchmark { experiments, scorecard, report })
}

/// The runs that count of one back end in `folder`.
fn valid_runs(folder: &Path, options: &Options) -> anyhow::Result<Vec<Run>> {
    if !folder.join(store::FILE).is_file() {
        return Ok(Vec::new());
    }
    let store = Store::open(folder).with_context(|| folder.display().to_string())?;
    let mut runs = newest_runs(&store)?;
    runs.retain(|run| run.is_valid() && run.key.backend == options.backend);
    Ok(runs)
}

impl Benchmark {
    /// Whether every plan came to its end.
    pub fn is_fine(&self) -> bool {
        self.experiments.iter().all(|experiment| experiment.failed.is_none())
    }
}

#[cfg(test)]
mod tests;
