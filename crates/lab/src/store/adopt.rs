//! Runs that another store gave as rows.

use std::collections::BTreeMap;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ToSql, Transaction, params, params_from_iter};

use super::{Cell, Column, RunKey, Store, StoreError, samples};

/// The tables of runs, without the tables of samples. All but the first have a column `run` with the id of
/// the run.
pub const OF_RUNS: [&str; 7] =
    ["runs", "flows", "links", "bundles", "metrics", "transitions", "requests"];

/// The tables of samples. The second has a column `series` with the id of a row of the first.
pub const OVER_TIME: [&str; 2] = ["series", "samples"];

/// A row of a table: a cell for each of its [`Store::columns`].
pub type Row = Vec<Cell<'static>>;

/// Rows by table.
pub type Tables<'a> = BTreeMap<&'a str, Vec<Row>>;

impl Store {
    /// Adopts runs from the rows of another store: the tables [`OF_RUNS`] and, if present, [`OVER_TIME`]. All
    /// are adopted or none. If this store has a valid attempt at a run, it only takes the samples that it
    /// lacks. A run without a valid attempt in either store stays as it is. Returns the number of new runs.
    ///
    /// # Errors
    /// A row does not fit its table.
    pub fn adopt(&mut self, tables: &Tables<'_>) -> Result<usize, StoreError> {
        let [runs, parts @ ..] = OF_RUNS;
        let heads = Columns(self.columns(runs)?);
        let [id, attempt] = heads.places(["id", "attempt"])?;
        let mut parts = parts.map(|table| (table, 0));
        for (table, run) in &mut parts {
            [*run] = Columns(self.columns(table)?).places(["run"])?;
        }
        let series = self.packed(tables)?;
        let Chosen { new, mut over_time } = self.choose(&heads, tables)?;
        let transaction = self.connection.transaction()?;
        let mut ids = BTreeMap::new();
        for (there, row, number) in &new {
            let mut row = Row::clone(row);
            row[id] = Cell::Nothing;
            row[attempt] = Cell::Integer(*number);
            ids.insert(*there, insert(&transaction, runs, &row)?);
        }
        for (table, run) in parts {
            for row in rows(tables, table) {
                if let Some(here) = ids.get(&integer(row, run)?) {
                    let mut row = row.clone();
                    row[run] = Cell::Integer(*here);
                    insert(&transaction, table, &row)?;
                }
            }
        }
        over_time.extend(&ids);
        for Series { run, name: [part, name, quantity], packed } in &series {
            if let Some(here) = over_time.get(run) {
                transaction.execute(
                    "INSERT INTO series (run, part, name, quantity, samples) \
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![here, part, name, quantity, packed],
                )?;
            }
        }
        transaction.commit()?;
        Ok(new.len())
    }

    /// Selects the runs and the samples in `tables` that this store lacks; `heads` are the columns of the
    /// runs.
    fn choose<'a>(
        &self,
        heads: &Columns,
        tables: &'a Tables<'_>,
    ) -> Result<Chosen<'a>, StoreError> {
        let mut chosen = Chosen { new: Vec::new(), over_time: BTreeMap::new() };
        let [id, valid] = heads.places(["id", "valid"])?;
        for row in rows(tables, OF_RUNS[0]) {
            let (there, is_valid) = (integer(row, id)?, integer(row, valid)? != 0);
            let attempts = self.attempts(&heads.key(row)?)?;
            match attempts.iter().find(|attempt| attempt.valid) {
                Some(here) if is_valid && !self.has_series(here.id)? => {
                    chosen.over_time.insert(there, here.id);
                }
                None if is_valid || attempts.is_empty() => {
                    chosen.new.push((there, row, attempts.len() as i64 + 1));
                }
                _ => {}
            }
        }
        Ok(chosen)
    }

    fn has_series(&self, run: i64) -> Result<bool, StoreError> {
        let any = "SELECT EXISTS (SELECT 1 FROM series WHERE run = ?1)";
        Ok(self.connection.query_row(any, [run], |row| row.get(0))?)
    }

    /// The series of `tables` with their samples.
    fn packed(&self, tables: &Tables<'_>) -> Result<Vec<Series>, StoreError> {
        let [heads, points] = OVER_TIME;
        let mut of_series = BTreeMap::<i64, Vec<(f64, f64)>>::new();
        let [series, at_s, value] =
            Columns(self.columns(points)?).places(["series", "at_s", "value"])?;
        for row in rows(tables, points) {
            let point = (real(row, at_s)?, real(row, value)?);
            of_series.entry(integer(row, series)?).or_default().push(point);
        }
        let columns = Columns(self.columns(heads)?);
        let [id, run] = columns.places(["id", "run"])?;
        let mut all = Vec::new();
        for row in rows(tables, heads) {
            let points = of_series.remove(&integer(row, id)?).unwrap_or_default();
            let text = |name| columns.text(row, name);
            let name = [text("part")?, text("name")?, text("quantity")?];
            all.push(Series { run: integer(row, run)?, name, packed: samples::pack(&points)? });
        }
        Ok(all)
    }
}

/// Runs and samples that this store lacks.
struct Chosen<'a> {
    /// New runs: the id in the other store, the row, and the number of the attempt in this store.
    new: Vec<(i64, &'a Row, i64)>,
    /// Runs without samples here: the id in this store by the id in the other.
    over_time: BTreeMap<i64, i64>,
}

/// A quantity over time.
struct Series {
    /// Id of its run in the other store.
    run: i64,
    /// Part, its name, and the quantity.
    name: [String; 3],
    /// The values as `samples` packs them.
    packed: Vec<u8>,
}

fn rows<'a>(tables: &'a Tables<'_>, table: &str) -> impl Iterator<Item = &'a Row> {
    tables.get(table).into_iter().flatten()
}

fn insert(db: &Transaction<'_>, table: &str, row: &Row) -> Result<i64, StoreError> {
    let values = vec!["?"; row.len()].join(", ");
    let mut insert = db.prepare_cached(&format!("INSERT INTO {table} VALUES ({values})"))?;
    Ok(insert.insert(params_from_iter(row))?)
}

/// The columns of a table.
struct Columns(Vec<Column>);

impl Columns {
    fn place(&self, name: &str) -> Result<usize, StoreError> {
        let place = self.0.iter().position(|column| column.name == name);
        place.ok_or_else(|| StoreError::Rows(format!("no column {name}")))
    }

    fn places<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], StoreError> {
        let mut places = [0; N];
        for (place, name) in places.iter_mut().zip(names) {
            *place = self.place(name)?;
        }
        Ok(places)
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
            seed: integer(row, self.place("seed")?)? as u64,
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

fn real(row: &Row, place: usize) -> Result<f64, StoreError> {
    match row.get(place) {
        Some(Cell::Real(number)) => Ok(*number),
        cell => Err(StoreError::Rows(format!("{cell:?}: allowed is a number with a point"))),
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
