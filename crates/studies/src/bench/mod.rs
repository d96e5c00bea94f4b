//! The benchmark: runs every plan of a suite with the algorithms under test, and compares them.
//!
//! ```text
//! plans/ccperf, aut = [ALGORITHM, ..] ──► run() of each plan ──► its own store and report
//!                                           └──► scorecard ──► Benchmark ──► report.html over all, table, --json
//! plans/rfc9743, the same             ──► ..  └──► criteria ──┘
//! ```
//! Each plan has a folder of its own. An algorithm that is tested later appears in the same report as those tested
//! before.

pub mod criteria;
mod page;
pub mod scorecard;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use forebay_core::spec::nearest_words;
use serde::Serialize;

use criteria::{Criteria, Criterion};
use forebay_lab::judge::{ClaimResults, Claims, Judged, PlanClaims, VALUES_MIN};
use forebay_lab::plan::{Override, Plan, PlanError, Seeds};
use forebay_lab::report::current_runs;
use forebay_lab::store::{self, Run, Store};
use forebay_lab::versions::is_version;
use forebay_lab::{Options, RunError};
use forebay_lab::{Step, run_each};
use forebay_reader::{Problem, Wrong};
use scorecard::Scorecard;
pub use suite::Suite;

/// Request for a benchmark: suite, algorithms and settings.
#[derive(Clone, Debug, Default)]
pub struct BenchRequest {
    /// The plans, and the form of the result.
    pub suite: Suite,
    /// The algorithms, as flows name them.
    pub algorithms: Vec<String>,
    /// Only these plans, with or without their folder; all if it is empty.
    pub only: Vec<String>,
    /// Use the settings of the experiments' authors where some were published.
    pub as_published: bool,
    /// Overrides of every plan.
    pub sets: Vec<Override>,
    /// Seeds are added until the interval of each score is at most this share of its scale, 0 to 1, or there are no
    /// more; `None`: all seeds are run. With [`Suite::Ccperf`] alone, which has scores.
    pub until: Option<f64>,
}

/// Result of a benchmark.
#[derive(Debug, Serialize)]
pub struct Benchmark {
    /// The plans that were run.
    pub experiments: Vec<BenchedPlan>,
    /// Scores of each algorithm in the plans of [`Suite::Ccperf`].
    #[serde(skip_serializing_if = "Scorecard::is_empty")]
    pub scorecard: Scorecard,
    /// Verdicts on each algorithm in the plans of [`Suite::Rfc9743`].
    #[serde(skip_serializing_if = "Criteria::is_empty")]
    pub criteria: Criteria,
    /// The requested arms; the folder may have more, which were tested earlier.
    #[serde(skip)]
    pub asked: Vec<String>,
    /// Path of the report.
    #[serde(skip)]
    pub report: PathBuf,
}

/// A plan of the benchmark, and its results.
#[derive(Debug, Serialize)]
pub struct BenchedPlan {
    /// Name of the plan as `forebay run` takes it.
    pub plan: String,
    /// Heading of the plan.
    pub title: String,
    /// Purpose of the plan.
    pub description: String,
    /// Valid runs of all algorithms that the folder has.
    pub runs: usize,
    /// Published results of the plan, judged by the runs here; only for runs with published settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Judged>,
    /// Whether all published results of the requested arms were found.
    #[serde(skip)]
    pub is_found: bool,
    /// Why it did not finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Folder of its results.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The runs that count.
    #[serde(skip)]
    pub(crate) valid: Vec<Run>,
}

impl BenchRequest {
    /// The plans, in the order in which they run, each with the algorithms as its arms.
    ///
    /// # Errors No plan has this name, none was published, or a plan refuses an algorithm or an override.
    pub fn plans(&self) -> Result<Vec<Plan>, RunError> {
        let names = self.names()?;
        let aut = Override::algorithms(self.algorithms.iter().map(String::as_str), ARGUMENT);
        let sets: Vec<Override> = std::iter::once(aut).chain(self.sets.iter().cloned()).collect();
        let load = |name: &&str| match self.as_published {
            true => Plan::load_as_published(name, &sets),
            false => Plan::load(name, &sets),
        };
        names.iter().map(load).collect::<Result<_, _>>().map_err(of_argument)
    }

    /// Published results of the plans. They hold for published settings only, so there are none if a value is replaced.
    fn published(&self) -> Vec<PlanClaims> {
        if !self.as_published || !self.sets.is_empty() {
            return Vec::new();
        }
        Claims::builtin().plan.into_iter().filter(|plan| plan.as_published).collect()
    }

    fn names(&self) -> Result<Vec<&'static str>, RunError> {
        let short = |name: &'static str| name.rsplit('/').next().unwrap_or(name);
        let is_called = |name: &'static str, wanted: &str| wanted == name || wanted == short(name);
        for wanted in &self.only {
            if !self.suite.plans().any(|name| is_called(name, wanted)) {
                let known: Vec<&str> = self.suite.plans().map(short).collect();
                let near = nearest_words(wanted, &known);
                let known = known.join(", ");
                let refusal = format!("--only {wanted}: allowed is {known}{near}");
                return Err(RunError::Options(refusal));
            }
        }
        let is_wanted = |name: &&'static str| {
            self.only.is_empty() || self.only.iter().any(|wanted| is_called(name, wanted))
        };
        Ok(self.suite.plans().filter(is_wanted).collect())
    }

    /// The criteria that the plans are judged by in addition to scores.
    fn criteria(&self) -> Result<Vec<Criterion>, RunError> {
        match self.suite {
            Suite::Ccperf => Ok(Vec::new()),
            Suite::Rfc9743 if self.until.is_some() => {
                let refusal = "--until: allowed with --suite ccperf, whose scores have a scale";
                Err(RunError::Options(refusal.into()))
            }
            Suite::Rfc9743 => {
                Criterion::builtin().map_err(|error| RunError::Options(format!("{error:#}")))
            }
        }
    }
}

/// Name of the argument that gives the algorithms of a [`BenchRequest`].
const ARGUMENT: &str = "ALGORITHM";

/// `error` without the key of plans, if it is about an algorithm of the request.
fn of_argument(error: PlanError) -> RunError {
    match error.problems.as_slice() {
        [Problem { file, what: Wrong::Value { key, value, allowed }, .. }] if file == ARGUMENT => {
            let written = match key.strip_prefix("aut.") {
                None => format!(" {value}"),
                Some(parameter) => format!(": {parameter} = {value}"),
            };
            RunError::Options(format!("{ARGUMENT}{written}: allowed is {allowed}"))
        }
        _ => error.into(),
    }
}

/// Makes the runs that the results folder lacks, scores every algorithm that has runs there, and writes a report. A
/// plan that fails is reported; the next plans still run.
///
/// `options.out` is the folder of the benchmark, by default [`Suite::default_out`]. If `options` has no seeds, each
/// plan uses its own seeds, or the seeds of its published results.
///
/// # Errors Before anything is written, a defect that concerns all runs: a plan, an algorithm, the back end or its
/// options.
pub fn bench(
    request: &BenchRequest,
    options: &Options,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Benchmark, RunError> {
    let root = options.out.clone().unwrap_or_else(|| request.suite.default_out());
    let criteria = request.criteria()?;
    let mut plans = request.plans()?;
    let names = request.names()?;
    let published = request.published();
    for (name, plan) in names.iter().zip(&mut plans) {
        let claims = published.iter().find(|claims| claims.name == *name);
        let of_claims = claims.and_then(|claims| claims.seeds.get(&options.backend).copied());
        plan.seeds = options.seeds.or(of_claims).unwrap_or(plan.seeds);
    }
    let mut experiments: Vec<BenchedPlan> =
        names.iter().zip(&plans).map(|(name, plan)| BenchedPlan::new(name, plan, &root)).collect();
    let mut runs = runs_of(&plans, &experiments, options, request.until, 0);
    for round in 1.. {
        let places: Vec<usize> = runs.iter().map(|(place, ..)| *place).collect();
        let of_round: Vec<(Plan, Options)> =
            runs.into_iter().map(|(_, plan, options)| (plan, options)).collect();
        run_each(&of_round, progress, &mut |place, failed| {
            let experiment = &mut experiments[places[place]];
            experiment.failed = failed;
            experiment.read(&of_round[place].0, options).map_err(RunError::Report)?;
            experiment.judge(&published, &of_round[place].0, options).map_err(RunError::Report)
        })?;
        runs = runs_of(&plans, &experiments, options, request.until, round);
        if runs.is_empty() {
            break;
        }
    }
    let arms = plans.iter().take(1).flat_map(|plan| &plan.arms);
    let named: Vec<String> = arms.map(|arm| arm.name.clone()).collect();
    let scorecard = Scorecard::of(&experiments, &named);
    let criteria = Criteria::of(criteria, &plans, &experiments, &request.sets);
    let report = match request.suite {
        Suite::Ccperf => page::write(&experiments, &scorecard, &root),
        Suite::Rfc9743 => criteria::page::write(&experiments, &criteria, &root),
    };
    let report = report.map_err(RunError::Report)?;
    Ok(Benchmark { experiments, scorecard, criteria, asked: named, report })
}

/// The runs of a round: the place of a plan, the plan and its options. The first round has all plans. If seeds are
/// added until scores are known, later rounds have the plans whose scores are not known yet.
fn runs_of(
    plans: &[Plan],
    experiments: &[BenchedPlan],
    options: &Options,
    until: Option<f64>,
    round: usize,
) -> Vec<(usize, Plan, Options)> {
    let mut runs = Vec::new();
    for (place, (plan, experiment)) in plans.iter().zip(experiments).enumerate() {
        let seeds = options.seeds.unwrap_or(plan.seeds);
        let Some(block) = block(seeds, until.is_some(), round) else { continue };
        let enough = (seeds.last - seeds.first + 1).min(VALUES_MIN as u64) as usize;
        let is_known =
            || until.is_none_or(|share| scorecard::is_known(experiment, &plan.arms, enough, share));
        if round == 0 || experiment.failed.is_none() && !is_known() {
            let out = Some(experiment.folder.clone());
            let options = Options { out, seeds: Some(block), ..options.clone() };
            runs.push((place, plan.clone(), options));
        }
    }
    runs
}

/// The seeds that a round adds: all of the seeds, or six first, and then half as many as there are.
fn block(seeds: Seeds, grows: bool, round: usize) -> Option<Seeds> {
    let all = seeds.last - seeds.first + 1;
    let grown = |round: usize| (0..round).fold(VALUES_MIN as u64, |seeds, _| seeds + seeds / 2);
    let size = |round: usize| if grows { grown(round).min(all) } else { all };
    let before = if round == 0 { 0 } else { size(round - 1) };
    let (first, last) = (seeds.first + before, seeds.first + size(round) - 1);
    (last >= first).then_some(Seeds { first, last })
}

impl BenchedPlan {
    /// The plan `name` without results, with its folder in `root`.
    fn new(name: &str, plan: &Plan, root: &Path) -> Self {
        Self {
            plan: name.into(),
            title: plan.title.clone(),
            description: plan.description.clone(),
            runs: 0,
            published: Vec::new(),
            is_found: true,
            failed: None,
            folder: root.join(&plan.name),
            valid: Vec::new(),
        }
    }

    /// Reads the runs that count, for any algorithm: made by this program on this back end, with the settings that
    /// `plan` has now.
    fn read(&mut self, plan: &Plan, options: &Options) -> anyhow::Result<()> {
        if !self.folder.join(store::FILE).is_file() {
            return Ok(());
        }
        let mut settings: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for cell in &plan.cells {
            let run = plan.experiment(&plan.arms[0], cell, plan.seeds.first)?;
            settings.insert(&cell.name, without_aut(&run.parameters));
        }
        let sources = options.sources(&*options.open()?);
        let store = Store::open(&self.folder);
        let store = store.with_context(|| self.folder.display().to_string())?;
        let mut valid: BTreeMap<(String, String, u64), Run> = BTreeMap::new();
        for run in current_runs(&store)? {
            let key = &run.key;
            let is_of_program = key.backend == options.backend && key.sources == sources;
            let has_settings =
                settings.get(key.cell.as_str()) == Some(&without_aut(&run.parameters));
            if run.is_valid() && is_of_program && has_settings {
                valid.insert((key.arm.clone(), key.cell.clone(), key.seed), run);
            }
        }
        self.valid = valid.into_values().collect();
        self.valid.sort_by_key(|run| run.id);
        self.runs = self.valid.len();
        Ok(())
    }

    /// Judges the published results of the plan by the runs that count, for all algorithms that have runs, with the
    /// seeds of the claims. `is_found` depends only on the requested arms, those in `plan`.
    fn judge(
        &mut self,
        published: &[PlanClaims],
        plan: &Plan,
        options: &Options,
    ) -> anyhow::Result<()> {
        let backend = options.backend.as_str();
        let is_its = |it: &&PlanClaims| it.name == self.plan && it.seeds.contains_key(backend);
        let Some(claims) = published.iter().find(is_its) else { return Ok(()) };
        let arms: BTreeSet<&str> = self.valid.iter().map(|run| run.key.arm.as_str()).collect();
        let claims = claims.clone().of_arms(&arms);
        if claims.claim.is_empty() {
            return Ok(());
        }
        let (sources, seeds) = (options.build.sources(backend), claims.seeds[backend]);
        let store = Store::open(&self.folder)?;
        let results = ClaimResults::read(&store, &claims.plan(backend)?, backend, sources, seeds)?;
        self.published = claims.judge(backend, &results, None);
        let asked: BTreeSet<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        let of_asked = claims.of_arms(&asked).judge(backend, &results, None);
        self.is_found = of_asked.iter().all(|judged| judged.verdict.is_fine());
        Ok(())
    }
}

/// The parameters of a run without the algorithm under test and versions; [`current_runs`] has checked the versions.
fn without_aut(parameters: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_another = |(key, _): &(&String, &String)| {
        *key != "aut" && !key.starts_with("aut.") && !is_version(key)
    };
    parameters.iter().filter(is_another).map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Benchmark {
    /// Published results of all experiments, each judged by the runs here.
    pub fn published(&self) -> impl Iterator<Item = &Judged> + Clone {
        self.experiments.iter().flat_map(|experiment| &experiment.published)
    }

    /// Whether every plan finished, and all published results of the requested algorithms were found.
    pub fn is_fine(&self) -> bool {
        let is_asked = |name: &String| self.asked.contains(name);
        let mut known = self.criteria.known.iter().filter(|it| is_asked(&it.known.algorithm));
        self.experiments.iter().all(|it| it.failed.is_none() && it.is_found)
            && known.all(|it| it.is_found())
    }
}

#[cfg(test)]
mod tests;
