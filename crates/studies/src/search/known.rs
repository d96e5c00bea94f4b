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
    /// Name of the back end that ran it.
    #[serde(default)]
    pub backend: String,
    /// Seeds of the figures, as plans write them.
    #[serde(default)]
    pub seeds: String,
    /// The case in words, for people.
    pub setting: String,
    /// The measured figures.
    pub figures: Figures,
}

/// The cases of a folder that one program has run on one back end.
pub struct KnownCases {
    path: PathBuf,
    /// By digest of the experiment and seeds.
    figures: HashMap<(String, String), Figures>,
}

impl KnownCases {
    /// Opens the results that a program of these `sources` has left in `folder` from this back end.
    /// Creates the folder if it does not exist.
    pub fn open(folder: &Path, sources: &str, backend: &str) -> io::Result<Self> {
        let path = folder.join(FILE);
        let rows: Vec<CaseRow> = json_lines::read(&path)?;
        let own = rows.into_iter().filter(|row| row.sources == sources && row.backend == backend);
        let figures = own.map(|row| ((row.plan_sha256, row.seeds), row.figures)).collect();
        Ok(Self { path, figures })
    }

    /// The figures of an experiment by its digest and seeds.
    pub fn get(&self, key: &(String, String)) -> Option<&Figures> {
        self.figures.get(key)
    }

    /// Leaves all results out of account; the file keeps them.
    pub fn forget(&mut self) {
        self.figures.clear();
    }

    /// Adds rows, all in one write.
    pub fn add(&mut self, rows: Vec<CaseRow>) -> io::Result<()> {
        json_lines::append(&self.path, &rows)?;
        let keyed = rows.into_iter().map(|row| ((row.plan_sha256, row.seeds), row.figures));
        self.figures.extend(keyed);
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
        let row = |key: &str, sources: &str, backend: &str| CaseRow {
            plan_sha256: key.into(),
            sources: sources.into(),
            backend: backend.into(),
            seeds: "1".into(),
            setting: "a path".into(),
            figures: Figures::from([("utilization".into(), vec![0.1, 0.25])]),
        };
        let open = || KnownCases::open(folder.path(), "one", "emu").unwrap();
        open().add(vec![row("a", "one", "emu"), row("b", "other", "emu")]).unwrap();
        let path = folder.path().join(FILE);
        let cut = fs::read_to_string(&path).unwrap() + "{\"plan_sha256\":\"c\",";
        fs::write(&path, cut).unwrap();
        open().add(vec![row("d", "one", "emu"), row("e", "one", "sim")]).unwrap();
        let known = open();
        let get = |key: &str, seeds: &str| known.get(&(key.into(), seeds.into()));
        assert_eq!(get("a", "1").unwrap()["utilization"], [0.1, 0.25]);
        let are_known = ["b", "c", "d", "e"].map(|key| get(key, "1").is_some());
        assert_eq!((are_known, get("a", "2").is_some()), ([false, false, true, false], false));
    }
}
