//! Runs sequences: both arms, the judge, the row.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use forebay_core::record::{FlowRecord, RunRecord};
use sha2::{Digest, Sha256};

use super::judge::{SeenArm, judge};
use super::rows::{ChaosRow, ChaosRows};
use super::sequence::{Sequence, Venue};
use forebay_lab::backend::{Backend, BackendError};
use forebay_lab::metrics::RunRows;
use forebay_lab::metrics::harness_reasons;
use forebay_lab::plan::library::Source;
use forebay_lab::plan::{Experiment, Plan, PlanError};

/// Largest number of attempts at a sequence whose harness was disturbed.
pub const ATTEMPTS: usize = 3;

/// Why no sequence can be run.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// A sequence is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The back end cannot run here.
    #[error(transparent)]
    Backend(BackendError),
    /// The folder of results.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why the folder cannot be used.
        source: io::Error,
    },
}

/// Runs sequences on a back end.
pub struct Chaos<'a> {
    backend: &'a dyn Backend,
    commit: &'a str,
    folder: &'a Path,
    results: ChaosRows,
    /// Keep the files of the runs.
    pub keep_logs: bool,
}

impl<'a> Chaos<'a> {
    /// Results go to `folder`; those already there count.
    pub fn new(
        backend: &'a dyn Backend,
        commit: &'a str,
        folder: &'a Path,
    ) -> Result<Self, ChaosError> {
        let results = ChaosRows::open(folder)
            .map_err(|source| ChaosError::Folder { path: folder.to_path_buf(), source })?;
        Ok(Self { backend, commit, folder, results, keep_logs: false })
    }

    /// The sequence of `seed` on this back end. On real devices, odd seeds have the user datapath and even ones the
    /// kernel's.
    pub fn sequence(&self, seed: u64) -> Sequence {
        let place = match self.backend.name() {
            "sim" => Venue::Simulator,
            _ => Venue::Testbed { in_kernel: seed.is_multiple_of(2) },
        };
        Sequence::draw(seed, place)
    }

    /// The known result of `seed`; `None` if it is still to be run.
    pub fn known(&self, seed: u64) -> Option<ChaosRow> {
        let attempts = self.results.attempts(&self.blank(&self.sequence(seed)));
        let judged = attempts.iter().rev().find(|row| row.rejected.is_empty());
        let given_up = attempts.last().filter(|_| attempts.len() >= ATTEMPTS);
        judged.or(given_up).map(|row| (*row).clone())
    }

    /// Runs the sequence of `seed` until it is judged, [`ATTEMPTS`] times at the most, and keeps every row. If a
    /// sequence breaks a rule, its plan is written into the same folder.
    pub fn run(&mut self, seed: u64) -> Result<ChaosRow, ChaosError> {
        let sequence = self.sequence(seed);
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| ChaosError::Folder { path, source }
        };
        for _ in 1..ATTEMPTS {
            let row = self.attempt(&sequence)?;
            self.results.add(row.clone()).map_err(failed(self.folder))?;
            if row.rejected.is_empty() {
                if !row.violations.is_empty() {
                    let path = self.folder.join(format!("{}-{seed}.toml", self.backend.name()));
                    std::fs::write(&path, sequence.plan()).map_err(failed(&path))?;
                }
                return Ok(row);
            }
        }
        let row = self.attempt(&sequence)?;
        self.results.add(row.clone()).map_err(failed(self.folder))?;
        Ok(row)
    }

    /// A row without results.
    fn blank(&self, sequence: &Sequence) -> ChaosRow {
        let digest = Sha256::digest(sequence.plan());
        ChaosRow {
            seed: sequence.seed,
            backend: self.backend.name().into(),
            commit: self.commit.into(),
            plan_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            setting: sequence.words(),
            events: sequence.events.iter().map(super::sequence::ChaosEvent::words).collect(),
            ..ChaosRow::default()
        }
    }

    fn attempt(&self, sequence: &Sequence) -> Result<ChaosRow, ChaosError> {
        let mut row = self.blank(sequence);
        let started = Instant::now();
        let source = Source { file: "chaos".into(), folder: None, text: sequence.plan() };
        let plan = Plan::from_source(source, &[])?;
        let mut seen = Vec::new();
        for arm in &plan.arms {
            let experiment = plan.experiment(arm, &plan.cells[0], sequence.seed)?;
            self.backend.check(&experiment).map_err(ChaosError::Backend)?;
            match self.run_arm(&experiment) {
                Ok(rows) => {
                    let reasons = harness_reasons(&experiment, &rows.run).into_iter();
                    row.rejected.extend(reasons.map(|reason| format!("{}: {reason}", arm.name)));
                    seen.push(seen_in(&experiment, &rows.run));
                }
                // Such a run has no other results, and needs none.
                Err(ChaosError::Backend(BackendError::BoxDied(reason))) => {
                    row.violations = vec![("died".into(), reason)];
                    break;
                }
                Err(ChaosError::Backend(BackendError::Failed(reason))) => {
                    row.rejected.push(format!("{}: failed: {reason}", arm.name));
                }
                Err(error) => return Err(error),
            }
            if !row.rejected.is_empty() {
                break;
            }
        }
        row.wall_s = started.elapsed().as_secs_f64();
        if let ([twins @ .., bundle], true, true) =
            (&seen[..], seen.len() == plan.arms.len(), row.rejected.is_empty())
        {
            let verdict = judge(sequence, bundle, twins);
            let broken = verdict.violations.iter();
            row.violations = broken.map(|it| (it.kind().into(), it.to_string())).collect();
            (row.twin_mbit, row.windows) = (verdict.twin_mbit, verdict.windows);
            (row.least, row.shaped_after_s) = (verdict.least, verdict.shaped_after_s);
        }
        Ok(row)
    }

    fn run_arm(&self, experiment: &Experiment) -> Result<RunRows, ChaosError> {
        let run = |folder: &Path| self.backend.run(experiment, folder, &mut |_| ());
        if !self.backend.writes_files() {
            return run(Path::new("")).map_err(ChaosError::Backend);
        }
        let failed = |source| ChaosError::Folder { path: self.folder.to_path_buf(), source };
        if self.keep_logs {
            let name = format!("{}-{}-{}", self.backend.name(), experiment.seed, experiment.arm);
            let folder = self.folder.join(name);
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).map_err(failed)?;
            return run(&folder).map_err(ChaosError::Backend);
        }
        let folder = tempfile::Builder::new().prefix("forebay-chaos-").tempdir().map_err(failed)?;
        run(folder.path()).map_err(ChaosError::Backend)
    }
}

/// Extracts the judge's input from a run.
fn seen_in(experiment: &Experiment, rows: &RunRecord) -> SeenArm {
    let mut seen = SeenArm::default();
    // Other traffic on the link is neither the site's gain nor its loss.
    let of_site = |flow: &&FlowRecord| {
        experiment.flows.get(flow.flow).is_some_and(|it| Sequence::is_of_site(&it.name))
    };
    for flow in rows.flows.iter().filter(of_site) {
        if seen.bytes_per_100ms.len() < flow.bytes_per_100ms.len() {
            seen.bytes_per_100ms.resize(flow.bytes_per_100ms.len(), 0);
        }
        for (sum, bytes) in seen.bytes_per_100ms.iter_mut().zip(&flow.bytes_per_100ms) {
            *sum += bytes;
        }
        if flow.failed {
            let name = experiment.flows.get(flow.flow).map_or("?", |it| &it.name);
            seen.resets.push(format!("{name} {}", flow.index));
        }
    }
    for bundle in &rows.bundles {
        let decisions = bundle.decisions.iter();
        seen.decisions.extend(decisions.map(|it| {
            // A box that shapes nothing because limits would not pay has recovered as well.
            let is_shaped =
                it.rate_bps.is_some() || ["passing", "trying"].contains(&it.state.as_str());
            (it.at_ns / 1_000_000, is_shaped, format!("{} ({})", it.state, it.reason))
        }));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::record::{BundleRecord, DecisionRecord, HostRecord};
    use forebay_lab::backend::RunProgress;

    /// A back end whose twin carries 8 Mbit/s, and whose bundle carries this share of it after 5 s.
    struct Made {
        share: f64,
        steal: f64,
        fails: Option<BackendError>,
    }

    impl Backend for Made {
        fn name(&self) -> &'static str {
            "made"
        }
        fn jobs_max(&self) -> Option<usize> {
            None
        }
        fn is_deterministic(&self) -> bool {
            true
        }
        fn writes_files(&self) -> bool {
            false
        }
        fn check(&self, _: &Experiment) -> Result<(), BackendError> {
            Ok(())
        }
        fn run(
            &self,
            experiment: &Experiment,
            _: &Path,
            _: &mut dyn FnMut(RunProgress),
        ) -> Result<RunRows, BackendError> {
            match &self.fails {
                Some(BackendError::Failed(why)) => return Err(BackendError::Failed(why.clone())),
                Some(_) if experiment.bundles.is_empty() => {}
                Some(error) => return Err(BackendError::BoxDied(error.to_string())),
                None => {}
            }
            let intervals = experiment.stop.as_millis() as u64 / 100;
            let share = if experiment.bundles.is_empty() { 1.0 } else { self.share };
            let bytes = |at| if at < 50 { 100_000 } else { (100_000.0 * share) as u64 };
            let decision = |at| DecisionRecord {
                at_ns: at * 100_000_000,
                rate_bps: Some(8_000_000),
                ..DecisionRecord::default()
            };
            let bundle = BundleRecord {
                decisions: (0..intervals).map(decision).collect(),
                ..BundleRecord::default()
            };
            let run = RunRecord {
                flows: vec![FlowRecord {
                    bytes_per_100ms: (0..intervals).map(bytes).collect(),
                    ..FlowRecord::default()
                }],
                bundles: experiment.bundles.iter().map(|_| bundle.clone()).collect(),
                host: HostRecord { steal: self.steal, ..HostRecord::default() },
                ..RunRecord::default()
            };
            Ok(RunRows { run, packets: Vec::new() })
        }
    }

    #[test]
    fn judges_sequence_once_and_keeps_violating_plan() {
        let folder = tempfile::tempdir().unwrap();
        let plan = folder.path().join("made-7.toml");
        let fine = Made { share: 0.6, steal: 0.0, fails: None };
        let mut chaos = Chaos::new(&fine, "1", folder.path()).unwrap();
        assert_eq!(chaos.known(7), None);
        let row = chaos.run(7).unwrap();
        assert!(row.passed() && row.windows > 50 && !plan.exists(), "{row:?}");
        let (share, _) = row.least.unwrap();
        assert!((share - 0.6).abs() < 1e-6 && (row.twin_mbit - 8.0).abs() < 1e-9, "{row:?}");
        // Another program starts from scratch; another run of the same program does not.
        assert_eq!(Chaos::new(&fine, "1", folder.path()).unwrap().known(7), Some(row));
        let worse = Made { share: 0.4, steal: 0.0, fails: None };
        let mut chaos = Chaos::new(&worse, "2", folder.path()).unwrap();
        assert_eq!(chaos.known(7), None);
        let row = chaos.run(7).unwrap();
        assert_eq!((row.violations.len(), row.violations[0].0.as_str()), (1, "starved"), "{row:?}");
        assert_eq!(std::fs::read_to_string(plan).unwrap(), chaos.sequence(7).plan());
        assert_eq!(chaos.known(7), Some(row));
    }

    #[test]
    fn disturbed_runs_are_repeated_and_unjudged() {
        let failed = BackendError::Failed("the link did not come up".into());
        for (steal, fails) in [(0.2, None), (0.0, Some(failed))] {
            let folder = tempfile::tempdir().unwrap();
            let disturbed = Made { share: 0.1, steal, fails };
            let mut chaos = Chaos::new(&disturbed, "1", folder.path()).unwrap();
            let row = chaos.run(3).unwrap();
            assert!(!row.passed() && row.violations.is_empty(), "{row:?}");
            assert_eq!(row.rejected.len(), 1, "{row:?}");
            let text = std::fs::read_to_string(folder.path().join("chaos.jsonl")).unwrap();
            assert_eq!(text.lines().count(), ATTEMPTS);
            assert_eq!(chaos.known(3), Some(row));
        }
    }

    #[test]
    fn dead_box_is_the_only_violation() {
        let folder = tempfile::tempdir().unwrap();
        let fails = Some(BackendError::BoxDied("sendbox-0-forward ended (101)".into()));
        let dies = Made { share: 1.0, steal: 0.0, fails };
        let row = Chaos::new(&dies, "1", folder.path()).unwrap().run(3).unwrap();
        assert_eq!(row.violations, [("died".into(), "sendbox-0-forward ended (101)".into())]);
        assert!(row.rejected.is_empty() && row.windows == 0, "{row:?}");
    }
}
