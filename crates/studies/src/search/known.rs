//! Known results of cases: one JSON object a line, appended as cases are judged.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::json_lines;

/// Name of the file in a folder of results.
const FILE: &str = "cases.jsonl";

/// The figures of a case by the name of their objective, one for each seed.
pub type Figures = BTreeMap<String, Vec<f64>>;

/// The result of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseRow {
    /// SHA-256 of the case's experiment, in hex.
    pub plan_sha256: String,
    /// Digest of the sources of the program that ran it.
    pub sources: String,
    /// The case in words, for people.
    pub setting: String,
    /// The measured figures.
    pub figures: Figures,
}

/// The cases of a folder that one program has run.
pub struct KnownCases {
    path: PathBuf,
    figures: HashMap<String, Figures>,
}

impl KnownCases {
    /// Opens the results that a program of these `sources` has left in `folder`. Creates the folder
    /// if it does not exist.
    pub fn open(folder: &Path, sources: &str) -> io::Result<Self> {
        let path = folder.join(FILE);
        let rows: Vec<CaseRow> = json_lines::read(&path)?;
        let own = rows.into_iter().filter(|row| row.sources == sources);
        let figures = own.map(|row| (row.plan_sha256, row.figures)).collect();
        Ok(Self { path, figures })
    }

    /// The figures of the experiment with this digest.
    pub fn get(&self, plan_sha256: &str) -> Option<&Figures> {
        self.figures.get(plan_sha256)
    }

    /// Adds rows, all in one write.
    pub fn add(&mut self, rows: Vec<CaseRow>) -> io::Result<()> {
        json_lines::append(&self.path, &rows)?;
        self.figures.extend(rows.into_iter().map(|row| (row.plan_sha256, row.figures)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reads_rows_of_same_program_after_truncated_line() {
        let folder = tempfile::tempdir().unwrap();
        let row = |key: &str, sources: &str| CaseRow {
            plan_sha256: key.into(),
            sources: sources.into(),
            setting: "a path".into(),
            figures: Figures::from([("utilization".into(), vec![0.1, 0.25])]),
        };
        let open = || KnownCases::open(folder.path(), "one").unwrap();
        open().add(vec![row("a", "one"), row("b", "other")]).unwrap();
        let path = folder.path().join(FILE);
        let cut = fs::read_to_string(&path).unwrap() + "{\"plan_sha256\":\"c\",";
        fs::write(&path, cut).unwrap();
        open().add(vec![row("d", "one")]).unwrap();
        let known = open();
        assert_eq!(known.get("a").unwrap()["utilization"], [0.1, 0.25]);
        assert_eq!(["b", "c", "d"].map(|key| known.get(key).is_some()), [false, false, true]);
    }
}
