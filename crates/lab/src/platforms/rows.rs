//! The file of trials: one JSON document a line, appended as trials end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use forebay_testbed::cost::Outcome;
use serde::{Deserialize, Serialize};

use super::PlatformsError;
use super::platform::{Platform, Setting};

/// Name of the file in a folder of results.
const FILE: &str = "trials.jsonl";
/// It grows when a row changes its meaning.
const SCHEMA: u32 = 3;

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Row {
    Start(Start),
    Calibration(Calibration),
    Trial(Box<TrialRow>),
}

/// What all trials of a file have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the rows.
    pub schema: u32,
    /// Commit of the program.
    pub commit: String,
    /// The kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of the processor on which all happened.
    pub cpu: usize,
    /// Algorithm.
    pub algorithm: String,
    /// The measured part of a trial (ns).
    pub duration_ns: u64,
    /// Traffic before it (ns).
    pub warm_up_ns: u64,
    /// What is measured of a platform before it is the next one's turn (ns).
    pub slice_ns: u64,
    /// Seed of the order of trials and of the intervals.
    pub seed: u64,
    /// Rate that was asked for (bit/s); `None`: searched.
    pub rate_bps: Option<u64>,
}

impl Start {
    /// Fills in the version.
    pub fn with_schema(self) -> Self {
        Self { schema: SCHEMA, ..self }
    }

    /// What of `wanted` differs: key, what is here, what was wanted.
    fn difference(&self, wanted: &Self) -> Option<(&'static str, String, String)> {
        let rate = |start: &Self| format!("{:?} bit/s", start.rate_bps);
        let pairs = [
            ("schema", self.schema.to_string(), wanted.schema.to_string()),
            ("commit", self.commit.clone(), wanted.commit.clone()),
            ("kernel", self.kernel.clone(), wanted.kernel.clone()),
            ("processor", self.processor.clone(), wanted.processor.clone()),
            ("cpu", self.cpu.to_string(), wanted.cpu.to_string()),
            ("--algorithm", self.algorithm.clone(), wanted.algorithm.clone()),
            ("--duration", self.duration_ns.to_string(), wanted.duration_ns.to_string()),
            ("warm-up", self.warm_up_ns.to_string(), wanted.warm_up_ns.to_string()),
            ("slice", self.slice_ns.to_string(), wanted.slice_ns.to_string()),
            ("--seed", self.seed.to_string(), wanted.seed.to_string()),
            ("--rate", rate(self), rate(wanted)),
        ];
        pairs.into_iter().find(|(_, found, wanted)| found != wanted)
    }
}

/// The rate at which a setting is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Setting.
    pub setting: Setting,
    /// Rate (bit/s).
    pub rate_bps: u64,
    /// What the counting process counts in a second of CPU time when no traffic is there.
    pub idle_per_s: f64,
    /// Share of the processor that the kernel's own algorithm takes from it at this rate.
    pub share: f64,
}

/// What a trial was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A score.
    Score,
    /// The time of BPF programs: nothing else of it is compared.
    ProgramTimes,
    /// Latency of decisions.
    Latency,
    /// Many connections.
    Scale,
}

/// Which trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrialKey {
    /// What for.
    pub purpose: Purpose,
    /// How the traffic was cut.
    pub setting: Setting,
    /// Connections.
    pub flows: u32,
    /// Block of trials that are compared, from 0.
    pub block: u32,
    /// A block that was broken off is begun again: counted from 1.
    pub attempt: u32,
    /// Who decided.
    pub platform: Platform,
}

/// A trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRow {
    /// Which.
    pub key: TrialKey,
    /// What was seen.
    pub outcome: Outcome,
}

/// The rows of a folder.
#[derive(Debug)]
pub struct Rows {
    folder: PathBuf,
    file: File,
    /// What all have in common.
    pub start: Start,
    /// Rates.
    pub calibrations: Vec<Calibration>,
    /// Trials in the order in which they were made.
    pub trials: Vec<TrialRow>,
}

impl Rows {
    /// Opens the folder's file, or makes both. Rows that are there must be of the same measurement. A
    /// last line without an end was being written when its program ended, and goes.
    pub fn open(folder: &Path, start: Start) -> Result<Self, PlatformsError> {
        let path = folder.join(FILE);
        let failed = |source| PlatformsError::File { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        file.set_len(text.len() as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        let mut rows = Self {
            folder: folder.to_path_buf(),
            file,
            start: Start::default(),
            calibrations: Vec::new(),
            trials: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let row = serde_json::from_str(line).map_err(|source| PlatformsError::Row {
                path: path.clone(),
                line: number + 1,
                source,
            })?;
            rows.take(row);
        }
        if text.is_empty() {
            rows.append(Row::Start(start))?;
        } else if let Some((key, found, wanted)) = rows.start.difference(&start) {
            return Err(PlatformsError::OtherMeasurement { path, key, found, wanted });
        }
        Ok(rows)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Adds a trial.
    pub fn put_trial(&mut self, trial: TrialRow) -> Result<(), PlatformsError> {
        self.append(Row::Trial(Box::new(trial)))
    }

    /// Adds a rate.
    pub fn put_calibration(&mut self, calibration: Calibration) -> Result<(), PlatformsError> {
        self.append(Row::Calibration(calibration))
    }

    /// The rate of a setting.
    pub fn calibration(&self, setting: Setting) -> Option<&Calibration> {
        self.calibrations.iter().find(|calibration| calibration.setting == setting)
    }

    /// The trials of the last attempt at a block.
    pub fn block(
        &self,
        purpose: Purpose,
        setting: Setting,
        flows: u32,
        block: u32,
    ) -> impl Iterator<Item = &TrialRow> {
        let is_meant = move |row: &&TrialRow| {
            let key = row.key;
            (key.purpose, key.setting, key.flows, key.block) == (purpose, setting, flows, block)
        };
        let trials = || self.trials.iter().filter(is_meant);
        let last = trials().map(|row| row.key.attempt).max();
        trials().filter(move |row| Some(row.key.attempt) == last)
    }

    fn append(&mut self, row: Row) -> Result<(), PlatformsError> {
        let failed = |source| PlatformsError::File { path: self.folder.join(FILE), source };
        let mut line = serde_json::to_vec(&row).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(failed)?;
        self.take(row);
        Ok(())
    }

    fn take(&mut self, row: Row) {
        match row {
            Row::Start(start) => self.start = start,
            Row::Calibration(calibration) => self.calibrations.push(calibration),
            Row::Trial(trial) => self.trials.push(*trial),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn key(platform: Platform, block: u32) -> TrialKey {
        let (purpose, setting) = (Purpose::Score, Setting::Gso2);
        TrialKey { purpose, setting, flows: 1, block, attempt: 1, platform }
    }

    #[test]
    fn rows_are_read_again_and_a_torn_line_goes() {
        let folder = tempfile::tempdir().unwrap();
        let start = Start { commit: "abc".into(), seed: 1, ..Start::default() }.with_schema();
        let mut rows = Rows::open(folder.path(), start.clone()).unwrap();
        let outcome = Outcome { counted_per_s: 0.1, load: 1.0 / 3.0, ..Outcome::default() };
        let trial = TrialRow { key: key(Platform::Agent10Ms, 3), outcome };
        rows.put_trial(trial.clone()).unwrap();
        let calibration =
            Calibration { setting: Setting::Gso2, rate_bps: 7, idle_per_s: 2.5, share: 0.6 };
        rows.put_calibration(calibration.clone()).unwrap();
        rows.file.write_all(b"{\"trial\":{\"key\"").unwrap();
        drop(rows);
        for _ in 0..2 {
            let rows = Rows::open(folder.path(), start.clone()).unwrap();
            assert_eq!(rows.trials, std::slice::from_ref(&trial));
            assert_eq!(rows.calibration(Setting::Gso2), Some(&calibration));
        }
        let other = Start { commit: "def".into(), ..start };
        let error = Rows::open(folder.path(), other).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("commit is abc"), "{error}");
    }

    #[test]
    fn of_a_block_that_was_begun_again_the_last_attempt_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut rows = Rows::open(folder.path(), Start::default().with_schema()).unwrap();
        for (attempt, platform) in
            [(1, Platform::Kernel), (1, Platform::Native), (2, Platform::Native)]
        {
            let key = TrialKey { attempt, ..key(platform, 0) };
            rows.put_trial(TrialRow { key, outcome: Outcome::default() }).unwrap();
        }
        let block: Vec<Platform> =
            rows.block(Purpose::Score, Setting::Gso2, 1, 0).map(|row| row.key.platform).collect();
        assert_eq!(block, [Platform::Native]);
        assert_eq!(rows.block(Purpose::Score, Setting::Gso2, 1, 1).count(), 0);
    }
}
