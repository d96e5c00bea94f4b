//! The trials of a measurement in the store, which each joins as it ends.

use std::path::Path;

use forebay_testbed::cost::Outcome;
use serde::{Deserialize, Serialize};

use super::PlatformsError;
use super::platform::{Platform, Setting};
use crate::store::Store;

/// Version of the rows, which grows when a row changes its meaning.
const SCHEMA: u32 = 4;

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Row {
    Calibration(Calibration),
    Trial(Box<TrialRow>),
}

/// What all trials of a measurement have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the rows.
    pub schema: u32,
    /// Digest of the sources that trials pass.
    pub sources: String,
    /// Commit of the program, for people.
    pub commit: String,
    /// The kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of the processor on which all happened.
    pub cpu: usize,
    /// Algorithm of the trials.
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

    /// What tells trials of this measurement from those of others: all but the commit.
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
    /// Connections of the trial.
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
    /// The trial that the row is of.
    pub key: TrialKey,
    /// What was seen.
    pub outcome: Outcome,
}

/// The rows of a measurement.
pub struct Rows {
    store: Store,
    key: String,
    /// What all have in common.
    pub start: Start,
    /// Rates that were calibrated.
    pub calibrations: Vec<Calibration>,
    /// Trials in the order in which they were made.
    pub trials: Vec<TrialRow>,
}

impl Rows {
    /// Opens the store in `folder`, made if it does not exist, with the rows that it has of this measurement.
    pub fn open(folder: &Path, start: Start) -> Result<Self, PlatformsError> {
        let (store, key) = (Store::create(folder)?, start.key()?);
        let found = store.trials(&key)?;
        let mut rows = Self { store, key, start, calibrations: Vec::new(), trials: Vec::new() };
        for row in &found {
            rows.take(serde_json::from_str(row)?);
        }
        Ok(rows)
    }

    /// The folder.
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
        let mut rows = Rows::open(folder.path(), start.clone()).unwrap();
        let outcome = Outcome { counted_per_s: 0.1, load: 1.0 / 3.0, ..Outcome::default() };
        let trial = TrialRow { key: key(Platform::Agent10Ms, 3), outcome };
        rows.put_trial(trial.clone()).unwrap();
        let calibration =
            Calibration { setting: Setting::Gso2, rate_bps: 7, idle_per_s: 2.5, share: 0.6 };
        rows.put_calibration(calibration.clone()).unwrap();
        drop(rows);
        for commit in ["c", "d"] {
            let start = Start { commit: commit.into(), ..start.clone() };
            let rows = Rows::open(folder.path(), start).unwrap();
            assert_eq!(rows.trials, std::slice::from_ref(&trial));
            assert_eq!(rows.calibration(Setting::Gso2), Some(&calibration));
        }
        for other in [
            Start { sources: "def".into(), ..start.clone() },
            Start { kernel: "6.1".into(), ..start.clone() },
            Start { duration_ns: 1, ..start },
        ] {
            let rows = Rows::open(folder.path(), other).unwrap();
            assert!(rows.trials.is_empty() && rows.calibrations.is_empty());
        }
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
