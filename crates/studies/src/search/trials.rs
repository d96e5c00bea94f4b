//! Simulates cases, several runs at a time, and stores the results.

use std::path::Path;

use super::SearchRequest;
use super::case::{Case, SEEDS};
use super::known::{CaseRow, Figures, KnownCases};
use super::objective::OBJECTIVES;
use crate::parallel::in_order;
use forebay_lab::backend::{self, Backend, BackendError};
use forebay_lab::metrics::evaluate;
use forebay_lab::metrics::statistics::Sorted;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::{Experiment, Plan, PlanError};
use forebay_lab::{RunError, guarded};

/// The back end: a search is thousands of runs.
const BACKEND: &str = "sim";

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

/// Judges cases of one search.
pub struct Trials<'a> {
    request: &'a SearchRequest,
    backend: Box<dyn Backend>,
    known: KnownCases,
    /// Cases that were simulated.
    pub simulated: usize,
    /// Cases that were known already.
    pub reused: usize,
}

impl<'a> Trials<'a> {
    /// Opens the search's folder; known results there count.
    pub fn open(request: &'a SearchRequest) -> Result<Self, RunError> {
        let known = KnownCases::open(&request.folder, request.build.sources(BACKEND));
        let known = known.map_err(|error| RunError::unusable(&request.folder, &error))?;
        let mut backend = backend::open(BACKEND)?;
        backend.heed(&request.stop, request.jobs);
        Ok(Self { request, backend, known, simulated: 0, reused: 0 })
    }

    /// Judges `cases`, in their order; `None`: the figure was not measured.
    pub fn judge(&mut self, cases: &[Case]) -> Result<Vec<Option<JudgedCase>>, RunError> {
        let mut keys = Vec::new();
        let mut wanted: Vec<(&Case, Vec<Experiment>)> = Vec::new();
        for case in cases {
            let experiments = self.experiments(case)?;
            let key = experiments[0].sha256.clone();
            let is_wanted = wanted.iter().any(|(_, other)| other[0].sha256 == key);
            if is_wanted || self.known.get(&key).is_some() {
                self.reused += 1;
            } else {
                wanted.push((case, experiments));
            }
            keys.push(key);
        }
        self.simulated += wanted.len();
        self.simulate(&wanted)?;
        let objective = self.request.objective;
        let judged = cases.iter().zip(keys).map(|(case, key)| {
            let by_seed = self.known.get(&key)?.get(objective.name)?.clone();
            let value = Sorted::new(by_seed.iter().copied()).quantile(0.5)?;
            Some(JudgedCase { case: case.clone(), by_seed, value })
        });
        Ok(judged.collect())
    }

    /// The runs of a case, one a seed.
    fn experiments(&self, case: &Case) -> Result<Vec<Experiment>, PlanError> {
        let SearchRequest { space, algorithm, .. } = self.request;
        let text = case.plan(space, algorithm, "case");
        let source = Source { file: "case".into(), folder: None, text };
        let plan = Plan::from_source(source, &[])?;
        let run = |seed| plan.experiment(&plan.arms[0], &plan.cells[0], seed);
        SEEDS.iter().map(run).collect()
    }

    /// Runs the wanted cases and stores the results. Rows are in the order of the cases, for any number of
    /// parallel runs.
    fn simulate(&mut self, wanted: &[(&Case, Vec<Experiment>)]) -> Result<(), RunError> {
        let runs: Vec<&Experiment> = wanted.iter().flat_map(|(_, runs)| runs).collect();
        let backend = &*self.backend;
        let mut found = in_order(&runs, self.request.jobs, |run| figures(backend, run)).into_iter();
        let mut rows = Vec::new();
        for (case, runs) in wanted {
            let of_case = found.by_ref().take(runs.len());
            rows.push(CaseRow {
                plan_sha256: runs[0].sha256.clone(),
                sources: self.request.build.sources(BACKEND).into(),
                setting: case.words(),
                figures: by_objective(&of_case.collect::<Result<Vec<_>, _>>()?),
            });
        }
        let added = self.known.add(rows);
        added.map_err(|error| RunError::unusable(&self.request.folder, &error))
    }
}

/// The figures of one run, in the order of [`OBJECTIVES`].
type OfRun = Vec<Option<f64>>;

fn figures(backend: &dyn Backend, experiment: &Experiment) -> Result<OfRun, RunError> {
    let run = || backend.run(experiment, Path::new(""), &mut |_| ());
    let rows = guarded(run).map_err(|error| match error {
        BackendError::Panicked(reason) => {
            let name = format!("{} seed {}", experiment.plan, experiment.seed);
            RunError::Failed { name, attempts: 1, reason }
        }
        error => error.into(),
    })?;
    let found = evaluate(experiment, &rows)?;
    let counted = experiment.stop - experiment.warmup;
    Ok(OBJECTIVES.iter().map(|it| it.of(counted, &found.flows, &found.links)).collect())
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
