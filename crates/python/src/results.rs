//! Contents of folders of results: runs and summaries as JSON, tables as columns, figures as Vega-Lite
//! documents.

use std::path::PathBuf;

use forebay_lab::RunError;
use forebay_lab::compare::{self as lab, CompareOptions, ComparedSide};
use forebay_lab::report::page::Chart;
use forebay_lab::report::{drawn, newest_runs};
use forebay_lab::store::{Cell, ColumnKind, Store, StoreError, TABLES};
use forebay_lab::summary::{Requests, summarise};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::error;

/// The newest runs in `folder` and their summary, as `forebay run --json` prints them.
#[pyfunction]
pub fn read(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let read = || {
        let store = Store::open(&folder)?;
        let runs = newest_runs(&store)?;
        let summary = summarise(&Requests::new(&store), &runs)?;
        Ok::<_, StoreError>(json!({ "runs": runs, "summary": summary }).to_string())
    };
    py.detach(read).map_err(|error| error::of_run(py, error))
}

/// A column: its name; its numpy type (`<i8` or `<f8`), `None` for text; and the values as bytes of that
/// type, or as a list of texts and `None`.
pub type Column<'py> = (String, Option<&'static str>, Bound<'py, PyAny>);

/// The columns of a table of the store in `folder`.
#[pyfunction]
pub fn table<'py>(py: Python<'py>, folder: PathBuf, name: &str) -> PyResult<Vec<Column<'py>>> {
    if !TABLES.contains(&name) {
        let allowed = TABLES.join(", ");
        return Err(error::input(py, &format!("table {name:?}: allowed is one of {allowed}")));
    }
    let columns = py.detach(|| columns(&Store::open(&folder)?, name));
    let columns = columns.map_err(|error| error::of_run(py, error))?;
    columns.into_iter().map(|(name, values)| values.column(py, name)).collect()
}

/// The columns of a table of `store`.
pub fn columns(store: &Store, table: &str) -> Result<Vec<(String, Values)>, StoreError> {
    let columns = store.columns(table)?.into_iter();
    let mut columns: Vec<(String, Values)> =
        columns.map(|column| (column.name, Values::of(column.kind))).collect();
    store.rows(table, |cells| {
        columns.iter_mut().zip(cells).for_each(|((_, values), cell)| values.push(cell));
        Ok::<(), StoreError>(())
    })?;
    Ok(columns)
}

/// The values of a column.
pub enum Values {
    Integer(Vec<i64>),
    /// Floating-point numbers, or whole numbers if some are missing.
    Real(Vec<f64>),
    Text(Vec<Option<String>>),
}

impl Values {
    const fn of(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Integer => Self::Integer(Vec::new()),
            ColumnKind::Real => Self::Real(Vec::new()),
            ColumnKind::Text => Self::Text(Vec::new()),
        }
    }

    fn push(&mut self, cell: &Cell<'_>) {
        if let (Self::Integer(whole), false) = (&*self, matches!(cell, Cell::Integer(_))) {
            *self = Self::Real(whole.iter().map(|number| *number as f64).collect());
        }
        match (self, cell) {
            (Self::Integer(all), Cell::Integer(number)) => all.push(*number),
            (Self::Real(all), Cell::Integer(number)) => all.push(*number as f64),
            (Self::Real(all), Cell::Real(number)) => all.push(*number),
            (Self::Integer(_), _) => {}
            (Self::Real(all), _) => all.push(f64::NAN),
            (Self::Text(all), Cell::Nothing) => all.push(None),
            (Self::Text(all), Cell::Text(text)) => all.push(Some(text.to_string())),
            (Self::Text(all), Cell::Integer(number)) => all.push(Some(number.to_string())),
            (Self::Text(all), Cell::Real(number)) => all.push(Some(number.to_string())),
        }
    }

    pub fn column<'py>(self, py: Python<'py>, name: String) -> PyResult<Column<'py>> {
        Ok(match self {
            Self::Integer(all) => {
                let bytes: Vec<u8> = all.into_iter().flat_map(i64::to_le_bytes).collect();
                (name, Some("<i8"), PyBytes::new(py, &bytes).into_any())
            }
            Self::Real(all) => (name, Some("<f8"), reals(py, all)),
            Self::Text(all) => (name, None, all.into_pyobject(py)?.into_any()),
        })
    }
}

/// Numbers as bytes that numpy reads as `<f8`.
fn reals(py: Python<'_>, all: impl IntoIterator<Item = f64>) -> Bound<'_, PyAny> {
    let bytes: Vec<u8> = all.into_iter().flat_map(f64::to_le_bytes).collect();
    PyBytes::new(py, &bytes).into_any()
}

/// Times in seconds and values of one quantity of the run `id` in `folder`, each as bytes of `<f8`. Both are
/// empty if the run has no such quantity.
#[pyfunction]
pub fn series<'py>(
    py: Python<'py>,
    folder: PathBuf,
    id: i64,
    part: &str,
    name: &str,
    quantity: &str,
) -> PyResult<[Bound<'py, PyAny>; 2]> {
    let read = || Store::open(&folder)?.series(id, part, name, quantity);
    let series = py.detach(read).map_err(|error| error::of_run(py, error))?;
    let (times, values): (Vec<f64>, Vec<f64>) = series.into_iter().unzip();
    Ok([reals(py, times), reals(py, values)])
}

/// The figures of the report on `folder` as a list in JSON: heading of the section, caption and Vega-Lite document.
#[pyfunction]
pub fn figures(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let read = || {
        let store = Store::open(&folder)?;
        let drawn = drawn(&Requests::new(&store))?;
        let figure = |(section, it): (String, Chart)| json!({ "section": section, "caption": it.caption, "spec": it.spec });
        let figures: Vec<_> = drawn.into_iter().map(figure).collect();
        Ok::<_, StoreError>(json!(figures).to_string())
    };
    py.detach(read).map_err(|error| error::of_run(py, error))
}

/// Compares two folders of results. Returns the output of `forebay compare --json`, whether nothing differs,
/// and a sentence.
#[pyfunction]
pub fn compare(
    py: Python<'_>,
    old: PathBuf,
    new: PathBuf,
    metric: String,
    above: f64,
    level: f64,
) -> PyResult<(String, bool, String)> {
    for (key, value, least, most) in [("above", above, 0.0, 1.0), ("level", level, 0.001, 0.5)] {
        if !(least..=most).contains(&value) {
            let allowed = format!("allowed is a number from {least} to {most}");
            return Err(error::input(py, &format!("{key} = {value}: {allowed}")));
        }
    }
    let options = CompareOptions { level, above, metric };
    let compared = py.detach(|| {
        let (old, new) = (ComparedSide::read(&old)?, ComparedSide::read(&new)?);
        Ok::<_, RunError>(lab::compare(old, new, &options))
    });
    let found = compared.map_err(|error| error::of_run(py, error))?;
    if found.figures == 0 && !options.metric.is_empty() {
        let allowed = "allowed is part of the name of a metric in both folders";
        return Err(error::input(py, &format!("metric = {:?}: {allowed}", options.metric)));
    }
    Ok((json!(found).to_string(), found.is_equal(), found.in_a_sentence()))
}
