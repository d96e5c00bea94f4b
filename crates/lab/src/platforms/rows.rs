//! The trials of a measurement in the store. Each is added when it ends.

use std::path::Path;

use forebay_testbed::cost::Outcome;
use serde::{Deserialize, Serialize};

use super::PlatformsError;
use super::platform::{Platform, Setting};
use crate::store::Store;

/// Version of the rows, raised when the meaning of a row changes.
const SCHEMA: u32 = 4;

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Row {
    Calibration(Calibration),
    Trial(Box<TrialRow>),
}

/// The properties that all trials of a measurement share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the rows.
    pub schema: u32,
    /// Digest of the sources that the trials exercise.
    pub sources: String,
    /// Commit of the program, for people.
    pub commit: String,
    /// The kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of the processor on which the trials ran.
    pub cpu: usize,
    /// Algorithm of the trials.
    pub algorithm: String,
    /// The measured part of a trial (ns).
    pub duration_ns: u64,
    /// Traffic before it (ns).
    pub warm_up_ns: u64,
    /// Measured time per turn of a platform (ns).
    pub slice_ns: u64,
    /// Seed of the order of trials and of the intervals.
    pub seed: u64,
    /// Requested rate (bit/s); `None`: searched.
    pub rate_bps: Option<u64>,
}

impl Start {
    /// Fills in the version.
    pub fn with_schema(self) -> Self {
        Self { schema: SCHEMA, ..self }
    }

    /// Key of this measurement's trials in the store: every field except the commit.
    fn key(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&Self { commit: String::new(), ..self.clone() })
    }
}

/// The rate at which a setting is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Setting of the trials.
    pub setting: Setting,
    /// Rate (bit/s).
    pub rate_bps: u64,
    /// Count per second of CPU time without traffic.
    pub idle_per_s: f64,
    /// Share of the processor that the kernel's own algorithm takes from it at this rate.
    pub share: f64,
}

/// The purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A score.
    Score,
    /// Time of BPF programs, the only figure that is compared.
    ProgramTimes,
    /// Latency of decisions.
    Latency,
    /// Many connections.
    Scale,
}

/// Identifies a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrialKey {
    /// Purpose of the trial.
    pub purpose: Purpose,
    /// Segmentation of the traffic.
    pub setting: Setting,
    /// Connections of the trial.
    pub flows: u32,
    /// Number of the block of compared trials, from 0.
    pub block: u32,
    /// Attempt at the block, from 1: an interrupted block starts again.
    pub attempt: u32,
    /// Platform that decided.
    pub platform: Platform,
}

/// A trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRow {
    /// Key of the trial.
    pub key: TrialKey,
    /// Results of the trial.
    pub outcome: Outcome,
}

/// The rows of a measurement.
pub struct PlatformRows {
    store: Store,
    key: String,
    /// The properties that all trials share.
    pub start: Start,
    /// Rates that were calibrated.
    pub calibrations: Vec<Calibration>,
    /// Trials in the order in which they were made.
    pub trials: Vec<TrialRow>,
}

impl PlatformRows {
    /// Opens or creates the store in `folder`, with its rows of this measurement.
    pub fn open(folder: &Path, start: Start) -> Result<Self, PlatformsError> {
        let (store, key) = (Store::create(folder)?, start.key()?);
        let found = store.trials(&key)?;
        let mut rows = Self { store, key, start, calibrations: Vec::new(), trials: Vec::new() };
        for row in &found {
            rows.take(serde_json::from_str(row)?);
        }
        Ok(rows)
    }

    /// The folder of the store.
    pub fn folder(&self) -> &Path {
        self.store.folder()
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
        self.store.put_trial(&self.key, &serde_json::to_string(&row)?)?;
        self.take(row);
        Ok(())
    }

    fn take(&mut self, row: Row) {
        match row {
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
    fn rows_are_read_again_by_a_program_of_the_same_sources() {
        let folder = tempfile::tempdir().unwrap();
        let start = Start { sources: "abc".into(), seed: 1, ..Start::default() }.with_schema();
        let mut rows = PlatformRows::open(folder.path(), start.clone()).unwrap();
        let outcome = Outcome { counted_per_s: 0.1, load: 1.0 / 3.0, ..Outcome::default() };
        let trial = TrialRow { key: key(Platform::Agent10Ms, 3), outcome };
        rows.put_trial(trial.clone()).unwrap();
        let calibration =
            Calibration { setting: Setting::Gso2, rate_bps: 7, idle_per_s: 2.5, share: 0.6 };
        rows.put_calibration(calibration.clone()).unwrap();
        drop(rows);
        for commit in ["c", "d"] {
            let start = Start { commit: commit.into(), ..start.clone() };
            let rows = PlatformRows::open(folder.path(), start).unwrap();
            assert_eq!(rows.trials, std::slice::from_ref(&trial));
            assert_eq!(rows.calibration(Setting::Gso2), Some(&calibration));
        }
        for other in [
            Start { sources: "def".into(), ..start.clone() },
            Start { kernel: "6.1".into(), ..start.clone() },
            Start { duration_ns: 1, ..start },
        ] {
            let rows = PlatformRows::open(folder.path(), other).unwrap();
            assert!(rows.trials.is_empty() && rows.calibrations.is_empty());
        }
    }

    #[test]
    fn of_a_block_that_was_begun_again_the_last_attempt_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut rows = PlatformRows::open(folder.path(), Start::default().with_schema()).unwrap();
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
