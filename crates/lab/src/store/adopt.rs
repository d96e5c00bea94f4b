//! Runs that another store gave as rows.

use std::collections::BTreeMap;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ToSql, Transaction, params_from_iter};

use super::{Cell, Column, RunKey, Store, StoreError};

/// The tables of runs but for what was measured over time; each but the first says in `run` which run a row is of.
pub const OF_RUNS: [&str; 7] =
    ["runs", "flows", "links", "bundles", "metrics", "transitions", "requests"];

/// A row of a table: a cell for each of its [`Store::columns`].
pub type Row = Vec<Cell<'static>>;

impl Store {
    /// Takes over runs from the rows of another store, by table of [`OF_RUNS`]: all or none. A run of which this store
    /// has a valid attempt stays as it is, and so does one that is not valid there either. Gives how many were taken.
    ///
    /// # Errors
    /// A row is none of its table.
    pub fn adopt(&mut self, tables: &BTreeMap<&str, Vec<Row>>) -> Result<usize, StoreError> {
        let [runs, parts @ ..] = OF_RUNS;
        let rows = |table: &str| tables.get(table).into_iter().flatten();
        let heads = Columns(self.columns(runs)?);
        let mut taken = Vec::new();
        for row in rows(runs) {
            let attempts = self.attempts(&heads.key(row)?)?;
            let has_valid = attempts.iter().any(|attempt| attempt.valid);
            let is_valid = heads.integer(row, "valid")? != 0;
            if attempts.is_empty() || (is_valid && !has_valid) {
                taken.push((row, attempts.len() as i64 + 1));
            }
        }
        let mut places = Vec::new();
        for table in parts {
            places.push((table, Columns(self.columns(table)?).place("run")?));
        }
        let (id, attempt) = (heads.place("id")?, heads.place("attempt")?);
        let transaction = self.connection.transaction()?;
        let mut ids = BTreeMap::new();
        for (row, number) in &taken {
            let mut new = (*row).clone();
            new[id] = Cell::Nothing;
            new[attempt] = Cell::Integer(*number);
            ids.insert(heads.integer(row, "id")?, insert(&transaction, runs, &new)?);
        }
        for (table, run) in places {
            for row in rows(table) {
                let there = integer(row, run)?;
                if let Some(here) = ids.get(&there) {
                    let mut new = row.clone();
                    new[run] = Cell::Integer(*here);
                    insert(&transaction, table, &new)?;
                }
            }
        }
        transaction.commit()?;
        Ok(taken.len())
    }
}

fn insert(db: &Transaction<'_>, table: &str, row: &Row) -> Result<i64, StoreError> {
    let values = vec!["?"; row.len()].join(", ");
    let mut insert = db.prepare_cached(&format!("INSERT INTO {table} VALUES ({values})"))?;
    Ok(insert.insert(params_from_iter(row))?)
}

/// The columns of the table of runs.
struct Columns(Vec<Column>);

impl Columns {
    fn place(&self, name: &str) -> Result<usize, StoreError> {
        let place = self.0.iter().position(|column| column.name == name);
        place.ok_or_else(|| StoreError::Rows(format!("no column {name}")))
    }

    fn integer(&self, row: &Row, name: &str) -> Result<i64, StoreError> {
        integer(row, self.place(name)?)
    }

    fn text(&self, row: &Row, name: &str) -> Result<String, StoreError> {
        match row.get(self.place(name)?) {
            Some(Cell::Text(text)) => Ok(text.to_string()),
            cell => Err(StoreError::Rows(format!("{name} is {cell:?}: allowed is a text"))),
        }
    }

    fn key(&self, row: &Row) -> Result<RunKey, StoreError> {
        let text = |name| self.text(row, name);
        Ok(RunKey {
            plan: text("plan")?,
            arm: text("arm")?,
            cell: text("cell")?,
            seed: self.integer(row, "seed")? as u64,
            backend: text("backend")?,
            sources: text("sources")?,
            experiment_sha256: text("experiment_sha256")?,
        })
    }
}

fn integer(row: &Row, place: usize) -> Result<i64, StoreError> {
    match row.get(place) {
        Some(Cell::Integer(number)) => Ok(*number),
        cell => Err(StoreError::Rows(format!("{cell:?}: allowed is a whole number"))),
    }
}

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Nothing => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}
