use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::metrics::RunRows;
use crate::metrics::testing::invented_rows;
use crate::plan::Seeds;
use crate::plan::library::Source;
use crate::store::Build;

/// A back end whose runs end as scripted.
struct Told {
    outcomes: Mutex<Vec<Result<bool, BackendError>>>,
    version: Option<String>,
    makes_groups: bool,
}

impl Backend for Told {
    fn name(&self) -> &'static str {
        "told"
    }
    fn version(&self) -> Option<String> {
        self.version.clone()
    }
    fn jobs_max(&self) -> Option<usize> {
        None
    }
    fn is_deterministic(&self) -> bool {
        false
    }
    fn writes_files(&self) -> bool {
        true
    }
    fn makes_groups(&self, _experiment: &Experiment) -> bool {
        self.makes_groups
    }
    fn check(&self, _experiment: &Experiment) -> Result<(), BackendError> {
        Ok(())
    }
    fn run(
        &self,
        experiment: &Experiment,
        directory: &Path,
        progress: &mut dyn FnMut(backend::RunProgress),
    ) -> Result<RunRows, BackendError> {
        assert!(std::fs::read_dir(directory).unwrap().next().is_none());
        progress(backend::RunProgress { phase: "running".into(), done: 0.5 });
        let mut outcomes = self.outcomes.lock().unwrap();
        let outcome = if outcomes.is_empty() { Ok(true) } else { outcomes.remove(0) };
        drop(outcomes);
        let breaks = matches!(&outcome, Err(BackendError::Failed(reason)) if reason == "panic");
        assert!(!breaks, "the back end broke");
        // Later jobs are done first.
        std::thread::sleep(std::time::Duration::from_millis(8 / experiment.seed));
        let mut rows = invented_rows(experiment, 1.5);
        rows.run.links[0].drops_ring = u64::from(!outcome?);
        Ok(rows)
    }
}

fn plan() -> Plan {
    let text = r#"
        name = "p"
        stop = "2s"
        warmup = "500ms"
        seeds = "1..2"
        bottleneck = { rate = "96Mbit/s", rtt = "50ms", qdisc = "fifo" }
        flow = [{ name = "web", bundle = "a", traffic = {
            kind = "requests", sizes = "10KB", load = "10Mbit/s" } }]
        bundle = [{ name = "a", cc = "copa", qdisc = "sfq" }]
        arm = [{ name = "x", set = { bundle.a.enabled = false } }, { name = "y" }]
    "#;
    let source = Source { file: "p".into(), folder: None, text: text.into() };
    Plan::from_source(source, &[]).unwrap()
}

struct Bench {
    _folder: tempfile::TempDir,
    store: Store,
    options: Options,
    log: Vec<String>,
    version: Option<String>,
    makes_groups: bool,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let build = Build { commit: "abc", sim: "def", emu: "def", ns3: "def" };
        let options = Options { build, ..Options::default() };
        let (log, version, makes_groups) = (Vec::new(), None, false);
        Self { _folder: folder, store, options, log, version, makes_groups }
    }

    fn run(&mut self, outcomes: Vec<Result<bool, BackendError>>) -> Result<Vec<Done>, RunError> {
        let (outcomes, version) = (Mutex::new(outcomes), self.version.clone());
        let backend = Told { outcomes, version, makes_groups: self.makes_groups };
        let jobs = jobs(&plan(), &backend, &self.options).unwrap();
        self.log.clear();
        let mut note = |progress: Progress<'_>| {
            let (name, number, total) = (progress.name(), progress.number, progress.total);
            match progress.event {
                Event::Reused => self.log.push(format!("{name} reused")),
                Event::Begins(attempt) => {
                    self.log.push(format!("{number}/{total} {name} attempt {attempt}"));
                }
                Event::UnderWay(step) => {
                    assert_eq!((step.phase.as_str(), step.done), ("running", 0.5))
                }
                Event::Ended(ending) => self.log.push(ending.to_string()),
            }
        };
        run(&jobs, &backend, &mut self.store, &self.options, &mut note)
    }
}

#[test]
fn foreign_program_version_changes_run_keys() {
    let mut bench = Bench::new();
    for (version, runs) in [("ns-3.37", 4), ("ns-3.37", 4), ("ns-3.44", 8)] {
        bench.version = Some(version.into());
        bench.run(vec![]).unwrap();
        let ids = bench.store.run_ids().unwrap();
        assert_eq!(ids.len(), runs);
        let last = bench.store.run(ids[runs - 1]).unwrap();
        assert_eq!(last.key.sources, format!("def {version}"));
    }
}

#[test]
fn arms_take_turns_and_nothing_is_run_twice() {
    let mut bench = Bench::new();
    let done = bench.run(vec![]).unwrap();
    assert!(done.iter().all(|done| done.valid));
    let begun: Vec<String> =
        bench.log.iter().filter(|line| line.contains("attempt")).cloned().collect();
    assert_eq!(
        begun,
        [
            "1/4 p x seed 1 attempt 1",
            "2/4 p y seed 1 attempt 1",
            "3/4 p y seed 2 attempt 1",
            "4/4 p x seed 2 attempt 1"
        ]
    );
    bench.run(vec![]).unwrap();
    assert_eq!(
        bench.log,
        ["p x seed 1 reused", "p y seed 1 reused", "p y seed 2 reused", "p x seed 2 reused"]
    );
    bench.options.force = true;
    bench.run(vec![]).unwrap();
    assert_eq!(bench.store.run_ids().unwrap().len(), 8);
}

#[test]
fn runs_are_reused_only_for_same_sources() {
    let mut bench = Bench::new();
    bench.run(vec![]).unwrap();
    bench.options.build.commit = "def";
    bench.run(vec![]).unwrap();
    assert!(bench.log.iter().all(|line| line.ends_with("reused")), "{:?}", bench.log);
    assert_eq!(bench.store.run(1).unwrap().commit, "abc");
    bench.options.build.emu = "other";
    bench.run(vec![]).unwrap();
    assert_eq!(bench.store.run_ids().unwrap().len(), 8);
}

#[test]
fn disturbed_run_is_tried_three_times() {
    let mut bench = Bench::new();
    let done = bench.run(vec![Ok(false), Ok(true), Ok(false), Ok(false), Ok(false)]).unwrap();
    assert_eq!(done[0], Done { ids: vec![1, 2], valid: true });
    assert_eq!(done[1], Done { ids: vec![3, 4, 5], valid: false });
    assert_eq!(bench.store.run(1).unwrap().invalid.len(), 1);
    // A later call tries it again, as often as the first call did.
    let again = bench.run(vec![Ok(false), Ok(false), Ok(false)]).unwrap();
    assert_eq!(again[1], Done { ids: vec![3, 4, 5, 8, 9, 10], valid: false });
    bench.options.force = true;
    let forced = bench.run(vec![Ok(false), Ok(false), Ok(false), Ok(false), Ok(true)]).unwrap();
    // The newer attempts are added, and an older valid one still counts.
    assert_eq!(forced[0], Done { ids: vec![1, 2, 11, 12, 13], valid: true });
    assert_eq!(forced[1], Done { ids: vec![3, 4, 5, 8, 9, 10, 14, 15], valid: true });
    let attempts = [1, 2, 11, 12, 13].map(|id| bench.store.run(id).unwrap().attempt);
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    bench.options.force = false;
    assert_eq!(bench.run(vec![]).unwrap()[..2], forced[..2]);
}

#[test]
fn dead_box_gives_valid_run_without_metrics() {
    let mut bench = Bench::new();
    let dies = Err(BackendError::BoxDied("sendbox-0-forward ended (101)".into()));
    let done = bench.run(vec![Ok(true), dies]).unwrap();
    assert_eq!(done[1], Done { ids: vec![2], valid: true });
    let run = bench.store.run(2).unwrap();
    assert!(run.is_valid() && run.died() == Some("sendbox-0-forward ended (101)"));
    assert_eq!(run.metrics.0.into_iter().collect::<Vec<_>>(), [("boxes_died".into(), 1.0)]);
    assert!(bench.log[3].contains("receivebox or agent ended: sendbox-0"), "{:?}", bench.log);
    assert_eq!(bench.run(vec![]).unwrap(), done);
}

#[test]
fn an_interrupted_invocation_resumes() {
    let mut bench = Bench::new();
    let gone = || Err(BackendError::Unavailable("no root".into()));
    assert!(matches!(
        bench.run(vec![Ok(true), gone()]),
        Err(RunError::Backend(BackendError::Unavailable(_)))
    ));
    assert_eq!(bench.store.run_ids().unwrap().len(), 1);
    bench.run(vec![]).unwrap();
    assert_eq!(bench.log[0], "p x seed 1 reused");
    assert_eq!(bench.store.run_ids().unwrap().len(), 4);
}

#[test]
fn failing_run_stops_everything_with_reason() {
    let mut bench = Bench::new();
    let fails = || Err(BackendError::Failed("link died".into()));
    let error = bench.run(vec![fails(), fails(), fails()]).unwrap_err().to_string();
    assert!(error.contains("p x seed 1") && error.contains("link died"), "{error}");
    assert_eq!(bench.store.run_ids().unwrap().len(), 3);
    assert_eq!(bench.store.run(3).unwrap().invalid, ["failed: link died"]);
    // The next call continues after that run.
    let done = bench.run(vec![]).unwrap();
    assert_eq!(done[0], Done { ids: vec![1, 2, 3], valid: false });
    assert!(done[1..].iter().all(|done| done.valid));
}

#[test]
fn only_rejected_emulations_wait_for_later_call() {
    let attempt = |valid, failed| Attempt { id: 1, valid, failed };
    let (valid, rejected, failed) =
        (attempt(true, false), attempt(false, false), attempt(false, true));
    for (attempts, on_testbed, simulated) in [
        (vec![], true, true),
        (vec![rejected; 7], true, false),
        (vec![rejected, failed, failed, rejected], true, false),
        (vec![failed, rejected, failed, failed], false, false),
        (vec![rejected, valid, rejected], false, false),
    ] {
        let is_left = [false, true].map(|it| is_left_to_try(&attempts, it));
        assert_eq!(is_left, [on_testbed, simulated], "{attempts:?}");
    }
}

#[test]
fn logs_are_kept_when_asked() {
    let mut bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    bench.options.keep_logs = Some(folder.path().join("logs"));
    bench.run(vec![Ok(false)]).unwrap();
    let kept = std::fs::read_dir(folder.path().join("logs")).unwrap().count();
    assert_eq!(kept, 5);
}

#[test]
fn arms_of_a_seed_run_again_together() {
    let mut bench = Bench { makes_groups: true, ..Bench::new() };
    let done = bench.run(vec![Ok(false), Ok(true)]).unwrap();
    let ids: Vec<_> = done.iter().map(|done| done.ids.clone()).collect();
    assert_eq!(ids, [vec![1, 3], vec![2, 4], vec![5], vec![6]]);
    assert!(done.iter().all(|done| done.valid));
    assert_eq!(bench.run(vec![]).unwrap(), done);
    assert!(bench.log.iter().all(|line| line.ends_with("reused")), "{:?}", bench.log);
}

#[test]
fn interrupted_group_leaves_none_of_its_runs() {
    let mut bench = Bench { makes_groups: true, ..Bench::new() };
    let gone = Err(BackendError::Unavailable("no root".into()));
    assert!(bench.run(vec![Ok(true), Ok(true), Ok(true), gone]).is_err());
    assert_eq!(bench.store.run_ids().unwrap(), [1, 2]);
    let done = bench.run(vec![]).unwrap();
    assert!(done.iter().all(|done| done.valid && done.ids.len() == 1));
}

#[test]
fn failed_group_counts_for_each_arm() {
    let mut bench = Bench { makes_groups: true, ..Bench::new() };
    let fails = || Err(BackendError::Failed("link died".into()));
    let error = bench.run(vec![fails(), fails(), fails()]).unwrap_err().to_string();
    assert!(error.contains("failed at attempt 3, the last: link died"), "{error}");
    assert_eq!(bench.store.run_ids().unwrap().len(), 6);
    let done = bench.run(vec![]).unwrap();
    assert!(done[..2].iter().all(|done| !done.valid) && done[2..].iter().all(|done| done.valid));
}

/// All rows of a store but the machine's.
fn contents(store: &Store) -> String {
    let mut text = Vec::new();
    for table in crate::store::TABLES {
        crate::export::csv(store, table, &mut text).unwrap();
    }
    let text = String::from_utf8(text).unwrap();
    // Only the column of the host contains an object.
    let (before, after) = ("\"{\"\"attack\"\"", "}\"");
    let mut rest = text.as_str();
    let mut kept = String::new();
    while let Some(start) = rest.find(before) {
        kept += &rest[..start];
        let end = rest[start..].find(after).unwrap();
        rest = &rest[start + end + after.len()..];
    }
    kept + rest
}

#[test]
fn store_is_independent_of_parallelism() {
    let stores = [1, 3].map(|jobs| {
        let mut bench = Bench::new();
        bench.options.jobs = jobs;
        bench.options.seeds = Some(Seeds { first: 1, last: 6 });
        let done = bench.run(vec![]).unwrap();
        assert_eq!(
            done.iter().map(|done| done.ids[0]).collect::<Vec<_>>(),
            (1..=12).collect::<Vec<_>>()
        );
        let again = bench.run(vec![]).unwrap();
        assert_eq!(again, done);
        assert!(bench.log.iter().all(|line| line.ends_with("reused")), "{:?}", bench.log);
        contents(&bench.store)
    });
    assert!(stores[0].contains("p,x,,6,told"));
    assert_eq!(stores[0], stores[1]);
}

#[test]
fn impossible_job_stops_later_jobs_only() {
    let mut bench = Bench::new();
    bench.options.jobs = 2;
    let gone = || Err(BackendError::Unavailable("no root".into()));
    let outcomes = vec![Ok(true), Ok(true), gone(), gone()];
    assert!(matches!(bench.run(outcomes), Err(RunError::Backend(_))));
    assert_eq!(bench.store.run_ids().unwrap(), [1, 2]);
    assert!(bench.run(vec![]).unwrap().iter().all(|done| done.valid));
}

#[test]
fn panic_ends_its_run_alone() {
    for jobs in [1, 2] {
        let mut bench = Bench::new();
        bench.options.jobs = jobs;
        let panic = || Err(BackendError::Failed("panic".into()));
        let done = bench.run(vec![Ok(true), panic(), panic(), panic()]).unwrap();
        let valid = done.iter().filter(|done| done.valid).count();
        // On two threads the three failures may hit several runs, each of which is tried again.
        let expected = if jobs == 1 { 3..=3 } else { 2..=4 };
        assert!(expected.contains(&valid), "{done:?}");
        let told = bench.log.iter().filter(|it| it.contains("panicked")).count();
        let runs =
            bench.store.run_ids().unwrap().into_iter().map(|id| bench.store.run(id).unwrap());
        let broken: Vec<_> = runs.filter(|run| !run.is_valid()).collect();
        assert_eq!(told, broken.len());
        for run in broken {
            assert_eq!(run.invalid, ["failed: panicked: the back end broke"]);
            assert!(["x", "y"].contains(&&*run.key.arm) && run.key.seed > 0, "{:?}", run.key);
        }
    }
}
