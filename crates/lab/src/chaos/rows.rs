//! What is known of sequences: one JSON object a line, appended as they end.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::json_lines;

/// One attempt at a sequence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Seed of the sequence.
    pub seed: u64,
    /// What ran it.
    pub backend: String,
    /// Commit that the program was built from.
    pub commit: String,
    /// SHA-256 of the plan, in hex: another version may draw another sequence.
    pub plan_sha256: String,
    /// The setting in words.
    pub setting: String,
    /// What happened, in words.
    pub events: Vec<String>,
    /// Why the harness's own figures forbid to judge it; empty: it is judged.
    pub rejected: Vec<String>,
    /// The rules that were broken, by kind, and how.
    pub violations: Vec<(String, String)>,
    /// The twin's mean over quiet windows (Mbit/s).
    pub twin_mbit: f64,
    /// Windows that were judged.
    pub windows: usize,
    /// The least of them as a share of that, or of the twin's window, and where it begins (s).
    pub least: Option<(f64, f64)>,
    /// When the bundle was shaped again after the end of the last event (s).
    pub shaped_after_s: Option<f64>,
    /// How long it took (s).
    pub wall_s: f64,
}

impl Row {
    /// Whether the sequence was judged, and no rule was broken.
    pub fn passed(&self) -> bool {
        self.rejected.is_empty() && self.violations.is_empty()
    }

    /// Whether both are attempts at the same with the same program.
    fn is_like(&self, other: &Self) -> bool {
        let key = |row: &Self| {
            (row.seed, row.backend.clone(), row.commit.clone(), row.plan_sha256.clone())
        };
        key(self) == key(other)
    }
}

/// The rows of a folder.
pub struct Results {
    path: PathBuf,
    rows: Vec<Row>,
}

impl Results {
    /// The results in `folder`, which is made if it is not there.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("chaos.jsonl");
        let rows = json_lines::read(&path)?;
        Ok(Self { path, rows })
    }

    /// The attempts at what `row` is an attempt at, oldest first.
    pub fn attempts(&self, row: &Row) -> Vec<&Row> {
        self.rows.iter().filter(|known| known.is_like(row)).collect()
    }

    /// Adds a row.
    pub fn add(&mut self, row: Row) -> io::Result<()> {
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
    fn rows_are_found_again_after_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let row = |seed| Row { seed, least: Some((0.7, 20.1)), ..Row::default() };
        Results::open(folder.path()).unwrap().add(row(1)).unwrap();
        let path = folder.path().join("chaos.jsonl");
        let cut = fs::read_to_string(&path).unwrap() + "{\"seed\":2,";
        fs::write(&path, cut).unwrap();
        Results::open(folder.path()).unwrap().add(row(3)).unwrap();
        let results = Results::open(folder.path()).unwrap();
        let known = |seed| results.attempts(&row(seed)).len();
        assert_eq!([known(1), known(2), known(3)], [1, 0, 1]);
        assert_eq!(results.attempts(&Row { commit: "other".into(), ..row(1) }).len(), 0);
    }
}
