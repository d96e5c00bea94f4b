//! One call repeats a study: every experiment of published work, with published results next to those found here, or
//! the experiments on a question of this project.
//!
//! ```text
//! docs/claims.toml ──► Study ──► run() of each plan ──► its own store and report
//!                        └──────► judge ──► Reproduction ──► report.html over all, tables, --json
//! ```
//! Each experiment has a folder of its own, so that it can be looked at, repeated or removed by itself.

mod page;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use forebay_core::spec::{nearest_words, one_of};
use forebay_lab::backend;
use forebay_lab::judge::{BESIDE, ClaimResults, Claims, Judged, PlanClaims, StudyClaims};
use forebay_lab::plan::{Plan, Seeds};
use forebay_lab::store::{self, Build, Store};
use forebay_lab::{Options, RunError};
use forebay_lab::{Step, run_each};
pub(crate) use page::claims;

/// Published work with plans that repeat its experiments, or a question that plans answer.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name, subject and source of the study.
    pub about: StudyClaims,
    /// The experiments in the order in which they run: first those that were published.
    pub experiments: Vec<PlanClaims>,
}

/// Result of a study.
#[derive(Debug, Serialize)]
pub struct Reproduction {
    /// The requested experiments.
    pub experiments: Vec<StudyExperiment>,
    /// Path of the report.
    #[serde(skip)]
    pub report: PathBuf,
}

/// One experiment of a study, and its results.
#[derive(Debug, Serialize)]
pub struct StudyExperiment {
    /// Name of the plan as `forebay run` takes it.
    pub plan: String,
    /// Heading of the plan.
    pub title: String,
    /// Purpose of the plan.
    pub description: String,
    /// Where it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// Every claim at each place on each back end that has runs, and on the requested one.
    pub claims: Vec<Judged>,
    /// Why it did not finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Folder of its results.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl Study {
    /// The study called `name`.
    ///
    /// # Errors No study has this name; the error lists the known names.
    pub fn load(name: &str) -> Result<Self, String> {
        let Claims { study, plan } = Claims::builtin();
        let names: Vec<&str> = study.iter().map(|it| it.name.as_str()).collect();
        let refused = || format!("no study {name:?}: allowed is {}", one_of(name, &names));
        let about = study.iter().find(|it| it.name == name).ok_or_else(refused)?.clone();
        let folder = format!("{}/", about.folder());
        let mut experiments: Vec<PlanClaims> =
            plan.into_iter().filter(|plan| plan.name.starts_with(&folder)).collect();
        experiments.sort_by_key(|plan| plan.paper.is_none());
        Ok(Self { about, experiments })
    }

    /// Name of `plan` within the study, without the folder.
    pub fn short_name<'a>(&self, plan: &'a PlanClaims) -> &'a str {
        plan.name.strip_prefix(self.about.folder()).map_or(&*plan.name, |name| &name[1..])
    }

    /// Keeps the experiments of these names, as [`Study::short_name`] or with the folder.
    ///
    /// # Errors No experiment has one of these names; the error lists the known ones.
    pub fn only(&mut self, names: &[String]) -> Result<(), String> {
        let is_called =
            |plan: &PlanClaims, name: &String| *name == plan.name || name == self.short_name(plan);
        for name in names {
            if !self.experiments.iter().any(|plan| is_called(plan, name)) {
                let known: Vec<&str> =
                    self.experiments.iter().map(|plan| self.short_name(plan)).collect();
                let near = nearest_words(name, &known);
                let known = known.join(", ");
                return Err(format!("no experiment {name:?}: allowed is {known}{near}"));
            }
        }
        let is_meant = |plan: &PlanClaims| names.iter().any(|name| is_called(plan, name));
        let experiments = self.experiments.iter().filter(|plan| is_meant(plan)).cloned().collect();
        self.experiments = experiments;
        Ok(())
    }

    /// Keeps the experiments that are claimed to run on `backend`.
    pub fn on(&mut self, backend: &str) {
        self.experiments.retain(|plan| plan.seeds.contains_key(backend));
    }
}

/// Makes the runs of `study` that the results folder lacks on one back end. Then judges the results of all back ends
/// there, and writes a report. An experiment that fails is reported; the next ones still run.
///
/// `options.out` is the folder of the study, by default `out/reproduce/NAME`. If `options` has no seeds, the claims'
/// own are used. If chance widened a bound of an experiment and its claims name more seeds, it then runs with these,
/// too.
///
/// # Errors Before anything is written, a defect that concerns all runs of all experiments: the back end or its
/// options.
pub fn reproduce(
    study: &Study,
    options: &Options,
    progress: &mut dyn FnMut(Step<'_>),
) -> Result<Reproduction, RunError> {
    let root = options.out.clone();
    let root = root.unwrap_or_else(|| Path::new("out/reproduce").join(&study.about.name));
    let plans = study.experiments.iter().map(|claims| claims.plan(&options.backend));
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    let of_plan = |claims: &PlanClaims| Options {
        out: Some(root.join(study.short_name(claims).replace('/', "-"))),
        seeds: options.seeds.or_else(|| claims.seeds.get(&options.backend).copied()),
        ..options.clone()
    };
    let runs: Vec<(Plan, Options)> =
        plans.into_iter().zip(study.experiments.iter().map(of_plan)).collect();
    let mut experiments = Vec::new();
    run_each(&runs, progress, &mut |place, failed| {
        experiments.push(found(&study.experiments[place], &runs[place], failed)?);
        Ok(())
    })?;
    let is_noisy =
        |found: &StudyExperiment| found.claims.iter().any(|claim| claim.chance.is_some());
    let mut places = Vec::new();
    let mut again = Vec::new();
    for (place, (plan, of_plan)) in runs.iter().enumerate() {
        let more = study.experiments[place].more_seeds.get(&options.backend).copied();
        if options.seeds.is_none() && more.is_some() && is_noisy(&experiments[place]) {
            places.push(place);
            again.push((plan.clone(), Options { seeds: more, ..of_plan.clone() }));
        }
    }
    run_each(&again, progress, &mut |nth, failed| {
        let place = places[nth];
        experiments[place] = found(&study.experiments[place], &again[nth], failed)?;
        Ok(())
    })?;
    let report = page::write(study, &experiments, &root).map_err(RunError::Report)?;
    Ok(Reproduction { experiments, report })
}

/// Results of one experiment that ran with these options; `failed` is why it did not finish.
fn found(
    claims: &PlanClaims,
    (plan, options): &(Plan, Options),
    failed: Option<String>,
) -> Result<StudyExperiment, RunError> {
    let folder = options.out.clone().unwrap_or_default();
    Ok(StudyExperiment {
        plan: claims.name.clone(),
        title: plan.title.clone(),
        description: plan.description.clone(),
        paper: claims.paper.clone(),
        claims: judged(claims, &folder, options).map_err(RunError::Report)?,
        failed,
        folder,
    })
}

/// Judges the claims by the runs in `folder` from the program in `options`: from the requested back end, and
/// from all other back ends with runs.
fn judged(claims: &PlanClaims, folder: &Path, options: &Options) -> anyhow::Result<Vec<Judged>> {
    let seeds = |name: &str| match options.seeds {
        Some(seeds) if name == options.backend => Some(seeds),
        _ => claims.seeds.get(name).copied(),
    };
    let found = |name: &str| match seeds(name) {
        Some(seeds) => results(claims, folder, name, &options.build, seeds).map(Some),
        None => Ok(None),
    };
    let beside = found(BESIDE)?;
    let mut judged = Vec::new();
    for name in backend::NAMES {
        let Some(here) = found(name)? else { continue };
        if !here.is_empty() || name == options.backend {
            judged.extend(claims.judge(name, &here, beside.as_ref()));
        }
    }
    Ok(judged)
}

fn results(
    claims: &PlanClaims,
    folder: &Path,
    backend: &str,
    build: &Build,
    seeds: Seeds,
) -> anyhow::Result<ClaimResults> {
    let plan = claims.plan(backend)?;
    if !folder.join(store::FILE).is_file() {
        return Ok(ClaimResults::none(&plan, seeds));
    }
    let store = Store::open(folder).with_context(|| folder.display().to_string())?;
    ClaimResults::read(&store, &plan, backend, build.sources(backend), seeds)
}

impl Reproduction {
    /// All claims, in the order of the experiments.
    pub fn claims(&self) -> impl Iterator<Item = &Judged> + Clone {
        self.experiments.iter().flat_map(|experiment| &experiment.claims)
    }

    /// Whether every claim is met, and every experiment finished.
    pub fn is_fine(&self) -> bool {
        self.claims().all(|claim| claim.verdict.is_fine())
            && self.experiments.iter().all(|experiment| experiment.failed.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::report;

    #[test]
    fn refuses_unknown_experiment_and_lists_known() {
        let mut study = Study::load("bundler").unwrap();
        assert!(Study::load("nonesuch").unwrap_err().contains("allowed is one of bundler"));
        assert!(Study::load("worl").unwrap_err().ends_with("; nearest is world"));
        let error = study.only(&["nonesuch".into()]).unwrap_err();
        assert!(error.contains("\"nonesuch\"") && error.contains("main"), "{error}");
        let error = study.only(&["mian".into()]).unwrap_err();
        assert!(error.ends_with("; nearest is main"), "{error}");
        study.only(&["dynamics/start".into(), "bundler/main".into()]).unwrap();
        let names: Vec<&str> = study.experiments.iter().map(|it| study.short_name(it)).collect();
        assert_eq!(names, ["main", "dynamics/start"], "those that were published are first");
        study.on("nonesuch");
        assert!(study.experiments.is_empty());
        // The folder of a study may have another name.
        let study = Study::load("deployment").unwrap();
        assert_eq!(study.short_name(&study.experiments[0]), "deployment");
        assert_eq!(study.experiments[0].name, "scale/deployment");
    }

    #[test]
    fn study_resumes_and_is_judged_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut study = Study::load("bundler").unwrap();
        study.only(&["dynamics/start".into()]).unwrap();
        let options = Options {
            backend: "sim".into(),
            out: Some(folder.path().into()),
            seeds: Some("1..2".parse().unwrap()),
            ..Options::default()
        };
        let mut reused = 0;
        let mut again = || {
            reused = 0;
            let found = reproduce(&study, &options, &mut |step| {
                let is_reused =
                    |it: forebay_lab::Progress<'_>| it.event == forebay_lab::Event::Reused;
                reused += usize::from(matches!(step, Step::UnderWay(it) if is_reused(it)));
            });
            (found.unwrap(), reused)
        };
        let (first, made) = again();
        assert_eq!(made, 0);
        let found = &first.experiments[0];
        assert!(found.claims.iter().all(|claim| claim.figure.is_some()), "{found:?}");
        assert!(found.folder.join(report::FILE).is_file());
        let page = std::fs::read_to_string(&first.report).unwrap();
        assert!(page.contains(&found.title) && page.contains("dynamics-start/report.html"));
        let (second, reused) = again();
        assert!(reused > 0);
        assert_eq!(second.experiments[0].claims, found.claims);
    }
}
