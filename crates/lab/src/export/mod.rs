//! The tables of stores, and what [`summary`](crate::summary) makes of their runs, as files for other programs.

mod csv;
mod parquet;
mod summaries;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub(crate) use self::csv::Csv;
use self::parquet::Parquet;
use self::summaries::{SUMMARY, summary_columns, summary_rows};
use forebay_core::spec::one_of;

use crate::store::{Cell, Column, Run, Store, StoreError, TABLES};

/// Selects the plans, arms and metrics to export; an empty list selects all.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Names of plans.
    pub plans: Vec<String>,
    /// Names of arms.
    pub arms: Vec<String>,
    /// Names of metrics and of quantities over time.
    pub metrics: Vec<String>,
}

/// Format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text (RFC 4180) with a head of column names.
    Csv,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// The ending of its files.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }
}

/// Why a store was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No plan, arm or metric has this name.
    #[error("--{flag} {name}: allowed is {allowed}")]
    Unknown {
        /// Kind of name: `plan`, `arm` or `metric`.
        flag: &'static str,
        /// The name.
        name: String,
        /// The known names.
        allowed: String,
    },
    /// The folder for the files cannot be made.
    #[error("--out {}: {source}: allowed is a folder that can be created and \
             written", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system, or of the format.
        source: io::Error,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ExportError {
    /// Whether the request is at fault: exit code 2.
    pub const fn is_bad_input(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Folder { .. } => true,
            Self::File { .. } => false,
            Self::Store(error) => error.is_bad_input(),
        }
    }
}

/// Writes each table of all `stores` into a file of its own in `out`, and creates `out` if absent. Returns
/// the paths. Ids of runs and series continue from one store to the next.
pub fn export(
    stores: &[Store],
    choice: &Choice,
    format: Format,
    out: &Path,
) -> Result<Vec<PathBuf>, ExportError> {
    let chosen = Chosen::all(stores, choice)?;
    let Some(first) = chosen.first() else { return Ok(Vec::new()) };
    let refused = |source| ExportError::Folder { path: out.into(), source };
    std::fs::create_dir_all(out).map_err(refused)?;
    let mut paths = Vec::new();
    for table in TABLES.into_iter().chain([SUMMARY]) {
        let path = out.join(format!("{table}.{}", format.extension()));
        let failed = |source| ExportError::File { path: path.clone(), source };
        let columns = first.columns(table)?;
        let mut sink = open(format, &path, table, &columns).map_err(failed)?;
        for one in &chosen {
            one.rows(table, &columns, &mut |cells| sink.row(cells).map_err(failed))?;
        }
        sink.finish().map_err(failed)?;
        paths.push(path);
    }
    Ok(paths)
}

/// Every row of `table`, one of [`TABLES`], as CSV.
pub fn csv(store: &Store, table: &str, out: &mut dyn Write) -> Result<(), ExportError> {
    let failed = |source| ExportError::File { path: table.into(), source };
    let mut sink = Csv::new(out, &store.columns(table)?).map_err(failed)?;
    store.rows(table, |cells| sink.row(cells).map_err(failed))
}

/// Receives the rows of a table.
pub(crate) trait Sink {
    /// Writes a row: a cell for each column.
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()>;
    /// Writes buffered rows.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

fn open(format: Format, path: &Path, table: &str, columns: &[Column]) -> io::Result<Box<dyn Sink>> {
    let file = File::create(path)?;
    Ok(match format {
        Format::Csv => Box::new(Csv::new(BufWriter::new(file), columns)?),
        Format::Parquet => Box::new(Parquet::new(file, table, columns)?),
    })
}

/// The selected part of one store; all names in `choice` are known.
struct Chosen<'a> {
    store: &'a Store,
    choice: &'a Choice,
    runs: Vec<Run>,
    /// The ids of the runs, and of the series.
    run_ids: BTreeSet<i64>,
    series_ids: BTreeSet<i64>,
    /// Greatest id of any run of the stores before, and of any series there.
    before: Last,
}

/// The greatest ids.
#[derive(Clone, Copy, Default)]
struct Last {
    run: i64,
    series: i64,
}

impl<'a> Chosen<'a> {
    fn all(stores: &'a [Store], choice: &'a Choice) -> Result<Vec<Self>, ExportError> {
        let all = stores.iter().map(|store| Self::whole(store, choice));
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        let of_runs = |all: &[Self], name: fn(&Run) -> &String| -> BTreeSet<String> {
            all.iter().flat_map(|one| one.runs.iter().map(name).cloned()).collect()
        };
        check("plan", &choice.plans, &of_runs(&all, |run| &run.key.plan))?;
        for one in &mut all {
            one.runs.retain(|run| has(&choice.plans, &run.key.plan));
        }
        check("arm", &choice.arms, &of_runs(&all, |run| &run.key.arm))?;
        let (mut quantities, mut last) = (BTreeSet::new(), Last::default());
        for one in &mut all {
            one.runs.retain(|run| has(&choice.arms, &run.key.arm));
            one.run_ids = one.runs.iter().map(|run| run.id).collect();
            one.before = last;
            last.run += one.store.run_ids()?.into_iter().max().unwrap_or(0);
            last.series += one.choose_series(&mut quantities)?;
        }
        let runs = || all.iter().flat_map(|one| &one.runs);
        let of_parts = runs().flat_map(|run| {
            run.flows.iter().chain(&run.links).chain(&run.bundles).map(|part| &part.metrics)
        });
        let metrics = runs().map(|run| &run.metrics).chain(of_parts);
        quantities.extend(metrics.flat_map(|metrics| metrics.0.keys().cloned()));
        check("metric", &choice.metrics, &quantities)?;
        Ok(all)
    }

    /// All runs of `store`.
    fn whole(store: &'a Store, choice: &'a Choice) -> Result<Self, StoreError> {
        let ids = store.run_ids()?.into_iter();
        let runs = ids.map(|id| store.run(id)).collect::<Result<Vec<_>, _>>()?;
        let (run_ids, series_ids) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { store, choice, runs, run_ids, series_ids, before: Last::default() })
    }

    /// Finds the selected series and adds their quantities to `quantities`. Returns the greatest id of any
    /// series.
    fn choose_series(&mut self, quantities: &mut BTreeSet<String>) -> Result<i64, ExportError> {
        let mut last = 0;
        self.store.rows("series", |cells| {
            if let [Cell::Integer(id), Cell::Integer(run), .., Cell::Text(quantity)] = cells {
                last = last.max(*id);
                if self.run_ids.contains(run) {
                    quantities.insert(quantity.to_string());
                    if has(&self.choice.metrics, quantity) {
                        self.series_ids.insert(*id);
                    }
                }
            }
            Ok::<(), ExportError>(())
        })?;
        Ok(last)
    }

    fn columns(&self, table: &str) -> Result<Vec<Column>, StoreError> {
        if table == SUMMARY { Ok(summary_columns()) } else { self.store.columns(table) }
    }

    fn rows(
        &self,
        table: &str,
        columns: &[Column],
        visit: &mut dyn FnMut(&[Cell<'_>]) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let shifts: Vec<i64> = columns.iter().map(|it| self.shift(table, &it.name)).collect();
        let is_as_stored = shifts.iter().all(|shift| *shift == 0);
        let mut visit = |cells: &[Cell<'_>]| {
            let mut named = columns.iter().zip(cells);
            if !named.all(|(column, cell)| self.keeps(table, &column.name, cell)) {
                return Ok(());
            }
            if is_as_stored {
                return visit(cells);
            }
            let shifted = cells.iter().zip(&shifts).map(|(cell, shift)| match cell {
                Cell::Integer(number) => Cell::Integer(number + shift),
                other => other.clone(),
            });
            visit(&shifted.collect::<Vec<_>>())
        };
        if table == SUMMARY {
            return summary_rows(self.store, &self.runs, &mut visit);
        }
        self.store.rows(table, visit)
    }

    /// Offset to add to the ids under `column`.
    fn shift(&self, table: &str, column: &str) -> i64 {
        match (table, column) {
            ("runs", "id") | (_, "run") => self.before.run,
            ("series", "id") | ("samples", "series") => self.before.series,
            _ => 0,
        }
    }

    /// Whether `cell` under `column` keeps its row in the selection.
    fn keeps(&self, table: &str, column: &str, cell: &Cell<'_>) -> bool {
        let Choice { plans, arms, metrics } = self.choice;
        match (table, column, cell) {
            ("plans", "name", Cell::Text(plan)) | (_, "plan", Cell::Text(plan)) => has(plans, plan),
            ("runs", "arm", Cell::Text(arm)) => has(arms, arm),
            ("metrics" | SUMMARY, "metric", Cell::Text(metric)) => has(metrics, metric),
            ("series", "id", Cell::Integer(id)) => self.series_ids.contains(id),
            ("samples", "series", Cell::Integer(id)) => self.series_ids.contains(id),
            (_, "run", Cell::Integer(run)) => self.run_ids.contains(run),
            _ => true,
        }
    }
}

fn has(chosen: &[String], name: &str) -> bool {
    chosen.is_empty() || chosen.iter().any(|it| it == name)
}

fn check(
    flag: &'static str,
    chosen: &[String],
    known: &BTreeSet<String>,
) -> Result<(), ExportError> {
    let Some(name) = chosen.iter().find(|name| !known.contains(*name)) else { return Ok(()) };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let allowed = match known.as_slice() {
        [] => "none, because the store has no runs".into(),
        known => one_of(name, known),
    };
    Err(ExportError::Unknown { flag, name: name.clone(), allowed })
}

#[cfg(test)]
mod tests;
