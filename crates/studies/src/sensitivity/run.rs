//! Makes the runs, several at a time, and stores their results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::bundle::tuning::Tuning;
use forebay_core::spec::{Parameter, nearest};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::cases::{self, CaseCell};
use super::scaled::{Scaled, scaled};
use super::table::{Change, SensitivityTable};
use crate::json_lines;
use crate::parallel::in_order;
use forebay_lab::backend::{self, Backend, BackendError};
use forebay_lab::metrics::{Address, Evaluation, evaluate};
use forebay_lab::plan::{Experiment, Seeds};
use forebay_lab::store::{Build, RunKey};
use forebay_lab::{RunError, guarded};

/// Back end of all runs: the simulator, where equal seeds give equal runs.
const BACKEND: &str = "sim";
/// Name of the file in a folder of results.
const FILE: &str = "sensitivity.jsonl";
/// Seeds of runs with all defaults, whatever seeds the request names: their spread is the noise.
const NOISE_SEEDS: Seeds = Seeds { first: 1, last: 8 };
/// Runs that each thread makes between two checks of the time limit.
const RUNS_A_LOOK: usize = 8;

/// Scope and options of the measurement.
#[derive(Clone, Debug)]
pub struct SensitivityRequest {
    /// Only numbers with these names; all if empty.
    pub numbers: Vec<String>,
    /// Seeds of the runs with a number halved or doubled.
    pub seeds: Seeds,
    /// Runs at a time (1 or more).
    pub jobs: usize,
    /// Time limit; a later call makes the remaining runs.
    pub until: Option<Instant>,
    /// Folder that holds the rows.
    pub folder: PathBuf,
    /// The build of the program that makes the runs.
    pub build: Build,
}

/// Progress of the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SensitivityProgress {
    /// Number of finished runs.
    pub done: usize,
    /// Number of requested runs.
    pub total: usize,
    /// Time that the runs of this call have taken.
    pub took: Duration,
    /// Estimated time for the remaining runs at this pace.
    pub left: Duration,
}

/// A number at a value other than its default.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The number and its value.
    pub scaled: Scaled,
    /// Half or double.
    pub change: Change,
}

impl Variant {
    /// The number and its value, as in names of runs.
    pub fn label(&self) -> String {
        format!("{}={}", self.scaled.name, self.scaled.value)
    }
}

/// Results of a run. They depend on its key alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Digest of the key of the run.
    pub run: String,
    /// Digest of the sources of the program that made it.
    pub sources: String,
    /// The cell, the number with its value or `default`, and the seed; for human readers.
    pub name: String,
    /// The figures of the cell by name; `None` if the run has no such figure.
    pub figures: BTreeMap<String, Option<f64>>,
    /// Digest over all metrics.
    pub metrics_sha256: String,
    /// Reason why the run has no metrics, if it failed.
    pub failed: Option<String>,
    /// Duration of the run (s).
    pub wall_s: f64,
}

/// A requested run.
struct Wanted<'a> {
    figures: &'a [Address],
    name: String,
    unseeded: Arc<Experiment>,
    key: RunKey,
}

/// The measurements.
pub struct Measured {
    /// The cells.
    pub cells: Vec<CaseCell>,
    /// The numbers.
    pub variants: Vec<Variant>,
    /// Seeds of the variants.
    pub seeds: Vec<u64>,
    /// Commit of the program.
    pub commit: &'static str,
    /// Rows by run name.
    pub rows: HashMap<String, Row>,
    /// Reasons why variants cannot be measured, by label.
    pub refused: BTreeMap<String, String>,
}

impl Measured {
    /// The row of a cell and seed, with all defaults (`None`) or with a variant.
    pub fn row(&self, cell: &CaseCell, variant: Option<&Variant>, seed: u64) -> Option<&Row> {
        self.rows.get(&name(cell, variant, seed))
    }

    /// Seeds of the runs with all defaults.
    pub fn default_seeds(&self) -> Vec<u64> {
        default_seeds(self.seeds.iter().copied())
    }
}

/// The name of a run.
pub fn name(cell: &CaseCell, variant: Option<&Variant>, seed: u64) -> String {
    let what = variant.map_or("default".into(), Variant::label);
    format!("{} {what} seed {seed}", cell.name)
}

fn default_seeds(seeds: impl Iterator<Item = u64>) -> Vec<u64> {
    let all: BTreeSet<u64> = NOISE_SEEDS.iter().chain(seeds).collect();
    all.into_iter().collect()
}

/// Makes the runs of `request` that its folder lacks, and compares them. It runs each seed for all numbers
/// before the next seed. It calls `progress` after some runs. If a plan refuses a variant, the table gives
/// the reason, and the other variants still run.
///
/// # Errors
/// A number is unknown, the folder cannot be used, or a plan cannot be simulated.
pub fn sensitivity(
    request: &SensitivityRequest,
    progress: &mut dyn FnMut(SensitivityProgress),
) -> Result<SensitivityTable, RunError> {
    let path = request.folder.join(FILE);
    let unusable = |error| RunError::unusable(&request.folder, &error);
    let variants = variants(&request.numbers)?;
    let cells = cases::cells()?;
    let backend = backend::open(BACKEND)?;
    let sources = request.build.sources(BACKEND);
    let known: Vec<Row> = json_lines::read(&path).map_err(unusable)?;
    let known = known.into_iter().filter(|row| row.sources == sources);
    let mut known: HashMap<String, Row> = known.map(|row| (row.run.clone(), row)).collect();
    let (resolved, refused) = resolve(&cells, &variants);
    let wanted = wanted(&cells, &resolved, request.seeds, sources)?;
    let is_known = |it: &Wanted<'_>| {
        let has = |row: &Row| it.figures.iter().all(|it| row.figures.contains_key(&it.to_string()));
        known.get(&it.key.digest()).is_some_and(has)
    };
    let left: Vec<&Wanted<'_>> = wanted.iter().filter(|it| !is_known(it)).collect();
    let started = Instant::now();
    let mut made = 0;
    for some in left.chunks(RUNS_A_LOOK * request.jobs.max(1)) {
        if request.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        let rows = in_order(some, request.jobs, |wanted| measure(&*backend, wanted));
        let rows = rows.into_iter().collect::<Result<Vec<Row>, RunError>>()?;
        json_lines::append(&path, &rows).map_err(unusable)?;
        made += rows.len();
        known.extend(rows.into_iter().map(|row| (row.run.clone(), row)));
        let (took, left) = (started.elapsed(), left.len() - made);
        progress(SensitivityProgress {
            done: wanted.len() - left,
            total: wanted.len(),
            took,
            left: took.mul_f64(left as f64 / made as f64),
        });
    }
    let row = |it: &Wanted<'_>| Some((it.name.clone(), known.remove(&it.key.digest())?));
    let rows = wanted.iter().filter_map(row).collect();
    let (seeds, commit) = (request.seeds.iter().collect(), request.build.commit);
    let cells = cells.clone();
    Ok(SensitivityTable::of(&Measured { cells, variants, seeds, commit, rows, refused }))
}

/// A line for each number, with its default and its effect.
pub fn sensitivity_numbers() -> String {
    let line = |param: &&dyn Parameter| {
        let default = param.written_default().unwrap_or_default();
        format!("{} [{default}]: {}\n", param.name(), param.summary().trim())
    };
    Tuning::PARAMS.iter().map(line).collect()
}

/// The numbers named in `only`, or all, at half and double their defaults.
pub fn variants(only: &[String]) -> Result<Vec<Variant>, RunError> {
    let names: Vec<&str> = Tuning::PARAMS.iter().map(|param| param.name()).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        let nearest =
            nearest(unknown, &names).map_or(String::new(), |it| format!("; nearest is {it}"));
        return Err(RunError::Options(format!(
            "number {unknown}: allowed are the names in `forebay sensitivity --list`{nearest}"
        )));
    }
    let of = |change: Change| {
        let of = move |scaled| Variant { scaled, change };
        scaled(change.factor()).into_iter().map(of)
    };
    let is_wanted =
        |it: &Variant| only.is_empty() || only.iter().any(|name| name == it.scaled.name);
    let pairs = of(Change::Half).zip(of(Change::Double));
    Ok(pairs.flat_map(|(half, double)| [half, double]).filter(is_wanted).collect())
}

/// A cell with a number at another value.
type Resolved<'a> = (&'a CaseCell, &'a Variant, Arc<Experiment>);

/// Every variant in every cell, and by label the reasons why plans refuse variants.
pub fn resolve<'a>(
    cells: &'a [CaseCell],
    variants: &'a [Variant],
) -> (Vec<Resolved<'a>>, BTreeMap<String, String>) {
    let (mut all, mut refused) = (Vec::new(), BTreeMap::new());
    for cell in cells {
        for variant in variants {
            let set = (variant.scaled.name, variant.scaled.value.as_str());
            match cell.experiment(Some(set)) {
                Ok(experiment) => all.push((cell, variant, experiment)),
                Err(error) => drop(refused.insert(variant.label(), error.to_string())),
            }
        }
    }
    all.retain(|(_, variant, _)| !refused.contains_key(&variant.label()));
    (all, refused)
}

/// The runs in order: the defaults first, then for each seed and cell all variants.
fn wanted<'a>(
    cells: &'a [CaseCell],
    resolved: &[Resolved<'a>],
    seeds: Seeds,
    sources: &str,
) -> Result<Vec<Wanted<'a>>, RunError> {
    let run = |cell: &'a CaseCell, variant: Option<&Variant>, unseeded: &Arc<Experiment>, seed| {
        let key = RunKey { seed, ..RunKey::of(unseeded, BACKEND, sources) };
        let (name, unseeded) = (name(cell, variant, seed), unseeded.clone());
        Wanted { figures: &cell.figures, name, unseeded, key }
    };
    let mut all = Vec::new();
    for cell in cells {
        let default = cell.experiment(None)?;
        let seeds = default_seeds(seeds.iter()).into_iter();
        all.extend(seeds.map(|seed| run(cell, None, &default, seed)));
    }
    for seed in seeds.iter() {
        let resolved = resolved.iter();
        all.extend(resolved.map(|(cell, variant, it)| run(cell, Some(*variant), it, seed)));
    }
    Ok(all)
}

fn measure(backend: &dyn Backend, wanted: &Wanted<'_>) -> Result<Row, RunError> {
    let started = Instant::now();
    let experiment = Experiment::clone(&wanted.unseeded).with_seed(wanted.key.seed)?;
    let made = guarded(|| backend.run(&experiment, Path::new(""), &mut |_| ()));
    let found = match made {
        Ok(rows) => evaluate(&experiment, &rows)?,
        Err(BackendError::Panicked(reason) | BackendError::Failed(reason)) => {
            Evaluation::of_failure(&reason)
        }
        Err(error) => return Err(error.into()),
    };
    let parts = [&found.flows, &found.links, &found.bundles];
    let of_parts = parts.map(|parts| {
        parts.iter().map(|part| json!([part.name, part.metrics.0])).collect::<Vec<_>>()
    });
    let digest = Sha256::digest(json!([found.run.0, of_parts]).to_string());
    let figure = |address: &Address| {
        let value = address.find(&found.run, parts.map(Vec::as_slice));
        (address.to_string(), value.filter(|value| value.is_finite()))
    };
    Ok(Row {
        run: wanted.key.digest(),
        sources: wanted.key.sources.clone(),
        name: wanted.name.clone(),
        figures: wanted.figures.iter().map(figure).collect(),
        metrics_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        failed: found.invalid.first().cloned(),
        wall_s: started.elapsed().as_secs_f64(),
    })
}
