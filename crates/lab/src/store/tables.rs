//! The tables in the form of an export: rows of cells under named columns.

use std::borrow::Cow;

use rusqlite::types::ValueRef;

use super::{Store, StoreError, samples};

/// Name in exports of the samples of series; the database has no table for them.
const SAMPLES: &str = "samples";

/// The tables, in the order of an export.
pub const TABLES: [&str; 11] = [
    "plans",
    "figures",
    "runs",
    "flows",
    "links",
    "bundles",
    "metrics",
    "transitions",
    "requests",
    "series",
    SAMPLES,
];

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name; it ends in the unit if there is one.
    pub name: String,
    /// Type of its cells.
    pub kind: ColumnKind,
    /// Some of its cells may be empty.
    pub is_optional: bool,
}

impl Column {
    /// A column without empty cells.
    pub fn new(name: &str, kind: ColumnKind) -> Self {
        Self { name: name.into(), kind, is_optional: false }
    }
}

/// Type of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Whole numbers of 64 bits.
    Integer,
    /// Floating-point numbers of 64 bits.
    Real,
    /// Text in UTF-8.
    Text,
}

/// A value of a row; its type is the column's.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Nothing,
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(Cow<'a, str>),
}

impl Store {
    /// The columns of `table`, one of [`TABLES`].
    pub fn columns(&self, table: &str) -> Result<Vec<Column>, StoreError> {
        if table == SAMPLES {
            let whole = ["series", "number"].map(|name| Column::new(name, ColumnKind::Integer));
            let real = ["at_s", "value"].map(|name| Column::new(name, ColumnKind::Real));
            return Ok(whole.into_iter().chain(real).collect());
        }
        // A primary key is never null, even if its column is declared nullable.
        let mut query = self.connection.prepare(
            "SELECT name, type, \"notnull\" OR pk FROM pragma_table_info(?1) \
             WHERE type <> 'BLOB' ORDER BY cid",
        )?;
        let rows = query.query_map([table], |row| {
            let kind = match row.get::<_, String>(1)?.as_str() {
                "INTEGER" => ColumnKind::Integer,
                "REAL" => ColumnKind::Real,
                _ => ColumnKind::Text,
            };
            Ok(Column { name: row.get(0)?, kind, is_optional: !row.get::<_, bool>(2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Calls `visit` with every row of `table`, one of [`TABLES`]: a cell for each of its columns. An error
    /// of `visit` ends the iteration.
    pub fn rows<E: From<StoreError>>(
        &self,
        table: &str,
        mut visit: impl FnMut(&[Cell<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        if table == SAMPLES {
            return self.samples(visit);
        }
        let columns = self.columns(table)?;
        let names: Vec<String> = columns.iter().map(|it| format!("\"{}\"", it.name)).collect();
        let select = format!("SELECT {} FROM {table}", names.join(", "));
        let mut query = self.connection.prepare(&select).map_err(StoreError::from)?;
        let mut rows = query.query([]).map_err(StoreError::from)?;
        while let Some(row) = rows.next().map_err(StoreError::from)? {
            let cells = (0..columns.len()).map(|index| row.get_ref(index).map(cell));
            visit(&cells.collect::<Result<Vec<_>, _>>().map_err(StoreError::from)?)?;
        }
        Ok(())
    }

    /// A row for each sample of all series.
    fn samples<E: From<StoreError>>(
        &self,
        mut visit: impl FnMut(&[Cell<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let select = "SELECT id, samples FROM series ORDER BY id";
        let mut query = self.connection.prepare(select).map_err(StoreError::from)?;
        let mut rows = query.query([]).map_err(StoreError::from)?;
        while let Some(row) = rows.next().map_err(StoreError::from)? {
            let series: i64 = row.get(0).map_err(StoreError::from)?;
            let packed: Vec<u8> = row.get(1).map_err(StoreError::from)?;
            let samples = samples::unpack(&packed).map_err(StoreError::from)?;
            for (number, (at_s, value)) in (0..).zip(samples) {
                let place = [series, number].map(Cell::Integer);
                visit(&[&place[..], &[at_s, value].map(Cell::Real)].concat())?;
            }
        }
        Ok(())
    }
}

fn cell(value: ValueRef<'_>) -> Cell<'_> {
    match value {
        ValueRef::Null | ValueRef::Blob(_) => Cell::Nothing,
        ValueRef::Integer(number) => Cell::Integer(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text)),
    }
}
