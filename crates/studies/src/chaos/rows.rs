//! Known results of sequences: one JSON object a line, appended as they end.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::json_lines;

/// One attempt at a sequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChaosRow {
    /// Seed of the sequence.
    pub seed: u64,
    /// Name of the back end that ran it.
    pub backend: String,
    /// Commit that the program was built from.
    pub commit: String,
    /// SHA-256 of the plan, in hex: another version may draw another sequence.
    pub plan_sha256: String,
    /// The setting in words.
    pub setting: String,
    /// The events, in words.
    pub events: Vec<String>,
    /// Reasons in the harness's own figures not to judge it; empty: it is judged.
    pub rejected: Vec<String>,
    /// The rules that were broken, by kind, and how.
    pub violations: Vec<(String, String)>,
    /// The twin's mean over quiet windows (Mbit/s).
    pub twin_mbit: f64,
    /// Windows that were judged.
    pub windows: usize,
    /// The least window as a share of `twin_mbit`, or of the twin's window, and where it begins
    /// (s).
    pub least: Option<(f64, f64)>,
    /// When the bundle was shaped again after the end of the last event (s).
    pub shaped_after_s: Option<f64>,
    /// How long it took (s).
    pub wall_s: f64,
}

impl ChaosRow {
    /// Whether the sequence was judged, and no rule was broken.
    pub fn passed(&self) -> bool {
        self.rejected.is_empty() && self.violations.is_empty()
    }

    /// Whether both are attempts at the same sequence with the same program.
    fn is_like(&self, other: &Self) -> bool {
        let key = |row: &Self| {
            (row.seed, row.backend.clone(), row.commit.clone(), row.plan_sha256.clone())
        };
        key(self) == key(other)
    }
}

/// The rows of a folder.
pub struct ChaosRows {
    path: PathBuf,
    rows: Vec<ChaosRow>,
}

impl ChaosRows {
    /// Opens the results in `folder`. Creates the folder if it does not exist.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("chaos.jsonl");
        let rows = json_lines::read(&path)?;
        Ok(Self { path, rows })
    }

    /// The attempts at the sequence of `row`, oldest first.
    pub fn attempts(&self, row: &ChaosRow) -> Vec<&ChaosRow> {
        self.rows.iter().filter(|known| known.is_like(row)).collect()
    }

    /// Adds a row.
    pub fn add(&mut self, row: ChaosRow) -> io::Result<()> {
        json_lines::append(&self.path, std::slice::from_ref(&row))?;
        self.rows.push(row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reads_rows_after_truncated_line() {
        let folder = tempfile::tempdir().unwrap();
        let row = |seed| ChaosRow { seed, least: Some((0.7, 20.1)), ..ChaosRow::default() };
        ChaosRows::open(folder.path()).unwrap().add(row(1)).unwrap();
        let path = folder.path().join("chaos.jsonl");
        let cut = fs::read_to_string(&path).unwrap() + "{\"seed\":2,";
        fs::write(&path, cut).unwrap();
        ChaosRows::open(folder.path()).unwrap().add(row(3)).unwrap();
        let results = ChaosRows::open(folder.path()).unwrap();
        let known = |seed| results.attempts(&row(seed)).len();
        assert_eq!([known(1), known(2), known(3)], [1, 0, 1]);
        assert_eq!(results.attempts(&ChaosRow { commit: "other".into(), ..row(1) }).len(), 0);
    }
}
