//! All findings in the order of a reader's questions: scores, time of each BPF program, latency, scaling.

use std::collections::BTreeMap;

use forebay_testbed::cost::Outcome;
use serde::Serialize;

use super::What;
use super::platform::{Algorithm, Platform, Setting};
use super::rows::{PlatformRows, Purpose, Start, TrialRow};
use super::runs::{judged, summaries};
use super::scores::Scores;
use crate::judge::Judged;
use crate::metrics::statistics::Sorted;
use crate::store::StoreError;
use crate::summary::ArmSummary;

/// Numbers of connections.
pub const FLOWS: [u32; 4] = [1, 10, 100, 1000];

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// The properties that all trials share.
    pub start: Start,
    /// Scores by setting.
    pub scores: Vec<Scores>,
    /// Time of each program.
    pub programs: Vec<ProgramRow>,
    /// Latency of decisions, by platform.
    pub latencies: Vec<ArmSummary>,
    /// Results with many connections, by platform and number.
    pub scaling: Vec<ArmSummary>,
    /// Claims about all parts that have trials.
    pub claims: Vec<Judged>,
}

/// A BPF program of a platform: medians over its trials.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramRow {
    /// Segmentation of the traffic.
    pub setting: Setting,
    /// Platform of the program.
    pub platform: Platform,
    /// Name of the program.
    pub program: String,
    /// Calls per acknowledgement.
    pub calls_per_ack: f64,
    /// Mean time of a call (ns), including the cost of timing it.
    pub call_ns: f64,
    /// Mean time of a call (ns) minus the empty program's at the same setting.
    pub over_empty_ns: Option<f64>,
    /// Instructions that the verifier examined.
    pub instructions: u32,
}

impl Findings {
    /// The findings in `rows`.
    ///
    /// # Errors
    /// The trials cannot be pooled.
    pub fn of(rows: &PlatformRows, algorithm: &Algorithm) -> Result<Self, StoreError> {
        let blocks = |setting| {
            let scored = rows
                .trials
                .iter()
                .filter(|row| row.key.purpose == Purpose::Score && row.key.setting == setting);
            scored.map(|row| row.key.block + 1).max()
        };
        let settings: Vec<(Setting, u32)> =
            Setting::ALL.into_iter().filter_map(|it| Some((it, blocks(it)?))).collect();
        let has = |what: &What| {
            let purposes = what.purposes();
            rows.trials.iter().any(|row| purposes.contains(&row.key.purpose))
        };
        let parts: Vec<What> = What::ALL.into_iter().filter(has).collect();
        let scored: Vec<Setting> = settings.iter().map(|(setting, _)| *setting).collect();
        let scores = settings.iter().map(|(it, blocks)| Scores::of(rows, algorithm, *it, *blocks));
        Ok(Self {
            start: rows.start.clone(),
            scores: scores.collect(),
            programs: programs(rows),
            latencies: summaries(rows, What::Latency)?,
            scaling: summaries(rows, What::Scale)?,
            claims: judged(rows, algorithm, &parts, &scored)?,
        })
    }

    /// The claims of one part.
    pub fn claims_of(&self, what: What) -> impl Iterator<Item = &Judged> {
        self.claims.iter().filter(move |claim| claim.of == what.part())
    }
}

/// Trials of a purpose in groups, in the order of the groups.
fn groups<K: Ord>(
    rows: &PlatformRows,
    purpose: Purpose,
    key: impl Fn(&TrialRow) -> K,
) -> BTreeMap<K, Vec<&TrialRow>> {
    let mut groups: BTreeMap<K, Vec<&TrialRow>> = BTreeMap::new();
    for row in rows.trials.iter().filter(|row| row.key.purpose == purpose) {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

fn median(trials: &[&TrialRow], value: impl Fn(&TrialRow) -> Option<f64>) -> f64 {
    let values = Sorted::new(trials.iter().filter_map(|row| value(row)));
    values.quantile(0.5).unwrap_or(0.0)
}

fn programs(rows: &PlatformRows) -> Vec<ProgramRow> {
    let groups = groups(rows, Purpose::ProgramTimes, |row| (row.key.setting, row.key.platform));
    let mut found = Vec::new();
    for ((setting, platform), trials) in &groups {
        let programs = trials.iter().flat_map(|row| &row.outcome.programs);
        let mut names: Vec<&str> = programs.map(|program| program.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let of = |row: &TrialRow| {
                row.outcome.programs.iter().find(|program| program.name == name).cloned()
            };
            let calls = median(trials, |row| {
                let acks = row.outcome.acks_per_s * row.outcome.sending_ns as f64 / 1e9;
                of(row).filter(|_| acks > 0.0).map(|program| program.calls as f64 / acks)
            });
            found.push(ProgramRow {
                setting: *setting,
                platform: *platform,
                program: name.into(),
                calls_per_ack: calls,
                call_ns: median(trials, |row| {
                    of(row).filter(|program| program.calls > 0).map(|program| program.call_ns)
                }),
                over_empty_ns: None,
                instructions: trials.iter().find_map(|row| of(row)).map_or(0, |it| it.instructions),
            });
        }
    }
    let empty: BTreeMap<Setting, f64> = found
        .iter()
        .filter(|row| row.platform == Platform::Empty && row.program == "empty_control")
        .map(|row| (row.setting, row.call_ns))
        .collect();
    for row in &mut found {
        let empty = empty.get(&row.setting).filter(|_| row.call_ns > 0.0);
        row.over_empty_ns = empty.map(|empty| row.call_ns - empty);
    }
    // Hooks that were never called have no time.
    found.retain(|row| row.call_ns > 0.0 || row.instructions > 0);
    found
}

/// Mean time of a call of the program that each acknowledgement runs (ns); `None`: it was not called.
pub(super) fn control_ns(trial: &Outcome) -> Option<f64> {
    let is_control = |name: &str| name == "empty_control" || name.starts_with("cong_control_");
    let program = trial.programs.iter().find(|it| is_control(&it.name) && it.calls > 0)?;
    Some(program.call_ns)
}

#[cfg(test)]
mod tests {
    use forebay_testbed::cost::ProgramCost;

    use super::super::rows::TrialKey;
    use super::super::rows::tests::key;
    use super::*;

    fn found(trials: Vec<(TrialKey, Outcome)>) -> Findings {
        let folder = tempfile::tempdir().unwrap();
        let start = Start::default().with_schema();
        let mut rows = PlatformRows::open(folder.path(), start).unwrap();
        for (key, outcome) in trials {
            rows.put_trial(TrialRow { key, outcome }).unwrap();
        }
        Findings::of(&rows, &Algorithm::find("cubic", "cubic").unwrap()).unwrap()
    }

    #[test]
    fn a_program_costs_what_it_takes_more_than_the_empty_one() {
        let timed = |platform, block, name: &str, call_ns| {
            let key = TrialKey { purpose: Purpose::ProgramTimes, ..key(platform, block) };
            let program = ProgramCost { name: name.into(), calls: 500, call_ns, instructions: 77 };
            let programs = vec![program];
            let sending_ns = 1_000_000_000;
            (key, Outcome { acks_per_s: 1000.0, sending_ns, programs, ..Outcome::default() })
        };
        let found = found(vec![
            timed(Platform::Empty, 0, "empty_control", 80.0),
            timed(Platform::AgentRound, 0, "cong_control_4", 190.0),
            timed(Platform::AgentRound, 1, "cong_control_4", 150.0),
            timed(Platform::AgentRound, 2, "cong_control_4", 900.0),
        ]);
        let row = found.programs.iter().find(|it| it.platform == Platform::AgentRound).unwrap();
        assert_eq!((row.call_ns, row.over_empty_ns, row.instructions), (190.0, Some(110.0), 77));
        assert!((row.calls_per_ack - 0.5).abs() < 1e-9);
    }
}
