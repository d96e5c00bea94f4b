//! Results in SQLite. A run is written in one transaction, so a reader never sees half a run.

mod adopt;
mod connections;
mod read;
mod samples;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

pub use adopt::{OF_RUNS, OVER_TIME, Row, Tables};
pub use connections::{Bin, OverTime};
pub use read::{Attempt, RequestKey, Run};
pub use samples::{NoSamples, unpack};
pub use tables::{Cell, Column, ColumnKind, TABLES};
pub use write::{Build, NewRun, RunKey};

/// Number of the schema. A store with another number is refused, not converted.
const SCHEMA: i64 = 3;
/// Tables of a store, in SQL.
const SCHEMA_SQL: &str = include_str!("schema.sql");
/// Name of the database in a folder of results.
pub const FILE: &str = "results.sqlite";
/// Longest wait for another process to write a run: a few megabytes on a slow disk.
const BUSY: Duration = Duration::from_secs(30);

/// A store that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder, or the file in it, cannot be created or written.
    #[error("{}: {reason}: allowed is a folder that can be created and written", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why the file cannot be used.
        reason: String,
    },
    /// No results in the folder.
    #[error(
        "{}: contains no {FILE}: allowed is a folder that `forebay run`, `bench` or `reproduce` \
         wrote", 
        .0.display()
    )]
    Absent(PathBuf),
    /// Another version wrote it.
    #[error(
        "{}: written by another version of forebay (schema {found}, not {SCHEMA}): move it away", 
        path.display()
    )]
    Schema {
        /// The database.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
    },
    /// An error of SQLite.
    #[error("{FILE}: {0}")]
    Sql(#[from] rusqlite::Error),
    /// A column has invalid content.
    #[error("{FILE}: {0}")]
    Content(#[from] serde_json::Error),
    /// Samples cannot be packed or unpacked.
    #[error("{FILE}: samples of a series: {0}")]
    Samples(#[from] samples::NoSamples),
    /// Rows do not fit this schema.
    #[error("rows of runs: {0}")]
    Rows(String),
}

impl StoreError {
    /// Whether the named folder is at fault: exit code 2.
    pub const fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Sql(_) | Self::Content(_) | Self::Samples(_))
    }
}

/// An open store.
pub struct Store {
    connection: Connection,
    folder: PathBuf,
}

impl Store {
    /// Opens the store in `folder`, which is created if absent.
    pub fn create(folder: &Path) -> Result<Self, StoreError> {
        let refused = |reason: String| StoreError::Folder { path: folder.into(), reason };
        std::fs::create_dir_all(folder).map_err(|error| refused(error.to_string()))?;
        Self::open_file(folder).map_err(|error| match error {
            StoreError::Sql(sql) if is_of_place(&sql) => refused(format!("{FILE}: {sql}")),
            error => error,
        })
    }

    /// Opens an existing store in `folder`.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        if !folder.join(FILE).is_file() {
            return Err(StoreError::Absent(folder.into()));
        }
        Self::open_file(folder)
    }

    /// The store in `folder`. If it has none, the stores in the folders directly below, in the order of their
    /// names: a benchmark and a study have one folder for each experiment.
    ///
    /// # Errors
    /// No store exists, or one has another version.
    pub fn all_in(folder: &Path) -> Result<Vec<Self>, StoreError> {
        let absent = || StoreError::Absent(folder.into());
        if folder.join(FILE).is_file() {
            return Ok(vec![Self::open_file(folder)?]);
        }
        let entries = std::fs::read_dir(folder).map_err(|_| absent())?;
        let folders = entries.flatten().map(|entry| entry.path());
        let mut folders: Vec<PathBuf> = folders.filter(|it| it.join(FILE).is_file()).collect();
        folders.sort();
        let stores = folders.iter().map(|folder| Self::open_file(folder));
        if folders.is_empty() { Err(absent()) } else { stores.collect() }
    }

    /// A store without a folder, dropped with this value.
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::set_up(Connection::open_in_memory()?, Path::new(""))
    }

    fn open_file(folder: &Path) -> Result<Self, StoreError> {
        Self::set_up(Connection::open(folder.join(FILE))?, folder)
    }

    fn set_up(mut connection: Connection, folder: &Path) -> Result<Self, StoreError> {
        connection.busy_timeout(BUSY)?;
        connection.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;")?;
        let transaction =
            connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let version = |db: &Connection| db.query_row("PRAGMA user_version", [], |row| row.get(0));
        match version(&transaction)? {
            0 => {
                transaction.execute_batch(SCHEMA_SQL)?;
                transaction.execute_batch(&format!("PRAGMA user_version = {SCHEMA}"))?;
            }
            SCHEMA => {}
            found => return Err(StoreError::Schema { path: folder.join(FILE), found }),
        }
        transaction.commit()?;
        Ok(Self { connection, folder: folder.into() })
    }

    /// The folder that the store is in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Whether the location of the file, or its format, keeps SQLite from working with it.
fn is_of_place(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::NotADatabase))
}

#[cfg(test)]
mod tests;
