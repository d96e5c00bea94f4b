//! Building blocks of sweeps. `forebay.sweeps` distributes runs to threads, processes and machines, and keeps
//! their rows.

use std::collections::HashMap;
use std::path::PathBuf;

use forebay_lab::store::{Cell, ColumnKind, OF_RUNS, OVER_TIME, Row, Store, StoreError};
use forebay_lab::sweep::{self as lab, Wanted};
use forebay_lab::{Options, RunError, backend, store};
use pyo3::prelude::*;

use crate::error;
use crate::plan::Plan;
use crate::results::{Column, Values, columns};
use crate::run::options;
use crate::watch::watched;

/// Ends simulations from any thread.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct Stop(backend::Stop);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self(backend::Stop::default())
    }

    fn ask(&self) {
        self.0.ask();
    }
}

/// A run to make: its digest, arm, cell and seed.
type Job = (String, String, String, u64);

fn wanted((digest, arm, cell, seed): Job) -> Wanted {
    Wanted { digest, arm, cell, seed }
}

/// The runs of `plan`; without `seeds`, with the plan's own.
#[pyfunction]
pub fn jobs(py: Python<'_>, plan: &Bound<'_, Plan>, seeds: Option<String>) -> PyResult<Vec<Job>> {
    let options = options(py, seeds.as_deref())?;
    let plan = plan.get().current().map_err(|error| error::of_plan(py, &error))?;
    let jobs = py.detach(|| lab::wanted(&plan, &options));
    let jobs = jobs.map_err(|error| error::of_run(py, error))?.into_iter();
    Ok(jobs.map(|Wanted { digest, arm, cell, seed }| (digest, arm, cell, seed)).collect())
}

/// The rows of the tables of runs, as columns.
type Tables<'py> = Vec<(&'static str, Vec<Column<'py>>)>;

/// Makes these runs until `stop` is set, and returns their rows; with `over_time`, also their samples over
/// time.
#[pyfunction]
pub fn simulate<'py>(
    py: Python<'py>,
    plan: &Bound<'_, Plan>,
    jobs: Vec<Job>,
    over_time: bool,
    stop: &Bound<'_, Stop>,
) -> PyResult<Tables<'py>> {
    let options = options(py, None)?;
    let plan = plan.get().current().map_err(|error| error::of_plan(py, &error))?.into_owned();
    let jobs: Vec<Wanted> = jobs.into_iter().map(wanted).collect();
    let work = move |stop: &backend::Stop, _: &mut dyn FnMut(())| {
        let options = Options { stop: stop.clone(), ..options };
        let store = lab::simulate(&plan, &options, &jobs, &mut || ())?;
        Ok::<_, RunError>(rows(&store, over_time)?)
    };
    let ended = watched(py, Some(&stop.get().0), work, |()| Ok(()))?;
    in_python(py, ended.map_err(|error| error::of_run(py, error))?)
}

/// The rows of this run marked as failed for `reason`.
#[pyfunction]
pub fn failed<'py>(
    py: Python<'py>,
    plan: &Bound<'_, Plan>,
    job: Job,
    reason: &str,
) -> PyResult<Tables<'py>> {
    let options = options(py, None)?;
    let plan = plan.get().current().map_err(|error| error::of_plan(py, &error))?;
    let store = lab::failed(&plan, &options, &wanted(job), reason);
    let rows = store.and_then(|store| Ok(rows(&store, false)?));
    in_python(py, rows.map_err(|error| error::of_run(py, error))?)
}

/// The columns of several tables.
type Rows = Vec<(&'static str, Vec<(String, Values)>)>;

fn rows(store: &Store, over_time: bool) -> Result<Rows, StoreError> {
    let mut tables = OF_RUNS.to_vec();
    if over_time {
        tables.extend(OVER_TIME);
    }
    tables.into_iter().map(|table| Ok((table, columns(store, table)?))).collect()
}

fn in_python(py: Python<'_>, tables: Rows) -> PyResult<Tables<'_>> {
    let in_python = |(table, columns): (&'static str, Vec<(String, Values)>)| {
        let columns = columns.into_iter().map(|(name, values)| values.column(py, name));
        Ok((table, columns.collect::<PyResult<_>>()?))
    };
    tables.into_iter().map(in_python).collect()
}

/// Name and kind of each column of a table.
type Kinds = Vec<(String, &'static str)>;

/// The tables of runs, tables of samples last, with the name and kind (`integer`, `real` or `text`) of each
/// column.
#[pyfunction]
pub fn schema(py: Python<'_>) -> PyResult<Vec<(&'static str, Kinds)>> {
    let kind = |kind| match kind {
        ColumnKind::Integer => "integer",
        ColumnKind::Real => "real",
        ColumnKind::Text => "text",
    };
    let read = || {
        let store = Store::in_memory()?;
        let table = |table| {
            let columns = store.columns(table)?.into_iter();
            Ok::<_, StoreError>((table, columns.map(|it| (it.name, kind(it.kind))).collect()))
        };
        OF_RUNS.into_iter().chain(OVER_TIME).map(table).collect::<Result<_, StoreError>>()
    };
    read().map_err(|error| error::of_run(py, error))
}

/// A value of a row.
#[derive(FromPyObject)]
pub enum Value {
    Integer(i64),
    Real(f64),
    Text(String),
}

/// Adds rows to the store of `folder`, with the title, description and arms of `plan`. `tables` has the
/// columns of each table as in [`schema`], all of one length. Returns the number of new runs.
#[pyfunction]
pub fn adopt(
    py: Python<'_>,
    folder: PathBuf,
    plan: &Bound<'_, Plan>,
    tables: HashMap<String, Vec<Vec<Option<Value>>>>,
) -> PyResult<usize> {
    let plan = plan.get().current().map_err(|error| error::of_plan(py, &error))?;
    let tables: store::Tables<'_> =
        tables.iter().map(|(table, columns)| (table.as_str(), transposed(columns))).collect();
    let take = || {
        let mut kept = Store::create(&folder)?;
        kept.put_plan(&plan)?;
        kept.adopt(&tables)
    };
    py.detach(take).map_err(|error| error::of_run(py, error))
}

fn transposed(columns: &[Vec<Option<Value>>]) -> Vec<Row> {
    let cell = |value: &Option<Value>| match value {
        None => Cell::Nothing,
        Some(Value::Integer(number)) => Cell::Integer(*number),
        Some(Value::Real(number)) => Cell::Real(*number),
        Some(Value::Text(text)) => Cell::Text(text.clone().into()),
    };
    let rows = columns.iter().map(Vec::len).min().unwrap_or(0);
    let row = |place: usize| columns.iter().map(|column| cell(&column[place])).collect();
    (0..rows).map(row).collect()
}
