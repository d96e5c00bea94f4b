//! Runs cases, several at a time where the back end allows, and stores the results.

use std::path::Path;

use super::SearchRequest;
use super::case::Case;
use super::known::{CaseRow, Figures, KnownCases};
use super::objective::OBJECTIVES;
use crate::parallel::in_order;
use forebay_lab::backend::{Backend, BackendError, SIMULATOR};
use forebay_lab::metrics::evaluate;
use forebay_lab::metrics::statistics::Sorted;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::{Experiment, Plan, PlanError, Seeds};
use forebay_lab::{Options, RunError, guarded};

/// Most attempts at a run that the harness disturbs, as in `forebay chaos`.
pub const ATTEMPTS: usize = crate::chaos::ATTEMPTS;

/// A case and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedCase {
    /// The case.
    pub case: Case,
    /// The objective's figure for every seed.
    pub by_seed: Vec<f64>,
    /// Median of the seeds, by which cases are compared.
    pub value: f64,
}

impl JudgedCase {
    /// The case with these figures; `None`: there are none.
    pub fn of(case: &Case, by_seed: Vec<f64>) -> Option<Self> {
        let value = Sorted::new(by_seed.iter().copied()).quantile(0.5)?;
        Some(Self { case: case.clone(), by_seed, value })
    }
}

/// Judges cases of one search.
pub struct Trials<'a> {
    request: &'a SearchRequest,
    backend: Box<dyn Backend>,
    jobs: usize,
    /// Sources of the program, and the kernel of real runs.
    sources: String,
    known: KnownCases,
    /// Cases that were run.
    pub run: usize,
    /// Cases that were known already.
    pub reused: usize,
    /// Why attempts at runs do not count: the harness was disturbed.
    pub rejected: Vec<String>,
}

impl<'a> Trials<'a> {
    /// Opens the search's folder for `jobs` runs at a time on `backend`; its known results there count.
    ///
    /// # Errors The folder cannot be used.
    pub fn open(
        request: &'a SearchRequest,
        backend: Box<dyn Backend>,
        jobs: usize,
    ) -> Result<Self, RunError> {
        let SearchRequest { build, folder, .. } = request;
        let name = backend.name();
        // Another kernel may answer otherwise.
        let release = || std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = if name == SIMULATOR { String::new() } else { release() };
        let sources = format!("{} {kernel}", build.sources(name)).trim().to_string();
        let known = KnownCases::open(folder, &sources, name);
        let known = known.map_err(|error| RunError::unusable(folder, &error))?;
        Ok(Self { request, backend, jobs, sources, known, run: 0, reused: 0, rejected: Vec::new() })
    }

    /// Runs on real kernels from here on are new ones: on another day, the machine may have had other disturbances.
    pub fn forget(&mut self) {
        if !self.backend.is_deterministic() {
            self.known.forget();
        }
    }

    /// Judges `cases` with `seeds`, in their order; `None`: the figure was not measured, or a run was disturbed at
    /// every attempt.
    pub fn judge(
        &mut self,
        cases: &[Case],
        seeds: Seeds,
    ) -> Result<Vec<Option<JudgedCase>>, RunError> {
        let mut keys = Vec::new();
        let mut wanted: Vec<(&Case, Vec<Experiment>)> = Vec::new();
        for case in cases {
            let experiments = experiments(self.request, case, seeds)?;
            let key = (experiments[0].sha256.clone(), seeds.to_string());
            let is_wanted = wanted.iter().any(|(_, other)| other[0].sha256 == key.0);
            if is_wanted || self.known.get(&key).is_some() {
                self.reused += 1;
            } else {
                wanted.push((case, experiments));
            }
            keys.push(key);
        }
        self.run += wanted.len();
        // The result of a real run takes its time, so it is stored at once.
        let batch = if self.backend.is_deterministic() { wanted.len().max(1) } else { 1 };
        wanted.chunks(batch).try_for_each(|wanted| self.run(wanted, seeds))?;
        let objective = self.request.objective;
        let judged = cases.iter().zip(keys).map(|(case, key)| {
            JudgedCase::of(case, self.known.get(&key)?.get(objective.name)?.clone())
        });
        Ok(judged.collect())
    }

    /// Runs the wanted cases and stores the results. Rows are in the order of the cases, for any number of
    /// parallel runs.
    fn run(&mut self, wanted: &[(&Case, Vec<Experiment>)], seeds: Seeds) -> Result<(), RunError> {
        let runs: Vec<&Experiment> = wanted.iter().flat_map(|(_, runs)| runs).collect();
        let backend = &*self.backend;
        let mut found = in_order(&runs, self.jobs, |run| figures(backend, run)).into_iter();
        let mut rows = Vec::new();
        for (case, runs) in wanted {
            let mut of_case = Vec::new();
            for tried in found.by_ref().take(runs.len()) {
                let (figures, rejected) = tried?;
                of_case.extend(figures);
                self.rejected.extend(rejected);
            }
            if of_case.len() == runs.len() {
                rows.push(CaseRow {
                    plan_sha256: runs[0].sha256.clone(),
                    sources: self.sources.clone(),
                    backend: backend.name().into(),
                    seeds: seeds.to_string(),
                    setting: case.words(),
                    figures: by_objective(&of_case),
                });
            }
        }
        let added = self.known.add(rows);
        added.map_err(|error| RunError::unusable(&self.request.folder, &error))
    }
}

/// The back end called `name`, for `jobs` runs at a time.
///
/// # Errors It cannot run that many at a time, or one of the plain cells.
pub fn ready(
    request: &SearchRequest,
    name: &str,
    jobs: usize,
) -> Result<Box<dyn Backend>, RunError> {
    let stop = request.stop.clone();
    let backend = Options { backend: name.into(), jobs, stop, ..Options::default() }.open()?;
    for case in &request.space.plain {
        backend.check(&experiments(request, case, request.seeds())?[0])?;
    }
    Ok(backend)
}

/// The runs of a case, one a seed.
fn experiments(
    request: &SearchRequest,
    case: &Case,
    seeds: Seeds,
) -> Result<Vec<Experiment>, PlanError> {
    let text = case.plan(&request.space, &request.algorithm, "case", seeds);
    let source = Source { file: "case".into(), folder: None, text };
    let plan = Plan::from_source(source, &[])?;
    let run = |seed| plan.experiment(&plan.arms[0], &plan.cells[0], seed);
    seeds.iter().map(run).collect()
}

/// The figures of one run, in the order of [`OBJECTIVES`].
type OfRun = Vec<Option<f64>>;

/// The figures of one run, and why earlier attempts do not count; no figures: none counts.
fn figures(
    backend: &dyn Backend,
    experiment: &Experiment,
) -> Result<(Option<OfRun>, Vec<String>), RunError> {
    let is_sure = backend.is_deterministic();
    let name = || format!("{} seed {}", experiment.plan, experiment.seed);
    let mut rejected = Vec::new();
    while rejected.len() < ATTEMPTS {
        let folder = backend.writes_files().then(tempfile::tempdir).transpose()?;
        let path = folder.as_ref().map_or(Path::new(""), |folder| folder.path());
        let rows = match guarded(|| backend.run(experiment, path, &mut |_| ())) {
            Ok(rows) => rows,
            Err(BackendError::Panicked(reason)) => {
                return Err(RunError::Failed { name: name(), attempts: 1, reason });
            }
            Err(BackendError::Failed(reason)) if !is_sure => {
                rejected.push(reason);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let found = evaluate(experiment, &rows)?;
        if is_sure || found.invalid.is_empty() {
            let counted = experiment.stop - experiment.warmup;
            let of = OBJECTIVES.iter().map(|it| it.of(counted, &found.flows, &found.links));
            return Ok((Some(of.collect()), rejected));
        }
        rejected.push(found.invalid.join("; "));
    }
    Ok((None, rejected))
}

/// The figures that every run has.
fn by_objective(runs: &[OfRun]) -> Figures {
    let of_all = |place: usize| runs.iter().map(|run| run[place]).collect::<Option<Vec<f64>>>();
    let named = OBJECTIVES.iter().enumerate();
    named.filter_map(|(place, it)| Some((it.name.to_string(), of_all(place)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_missing_in_one_seed_is_unknown() {
        let mut runs = vec![vec![Some(1.0); OBJECTIVES.len()]; 3];
        runs[2][1] = None;
        let figures = by_objective(&runs);
        assert_eq!(figures.len(), OBJECTIVES.len() - 1);
        assert_eq!(figures[OBJECTIVES[0].name], [1.0; 3]);
        assert!(!figures.contains_key(OBJECTIVES[1].name));
    }
}
