use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use super::space::tests::{SMALL, read};
use super::*;
use forebay_lab::backend::{Backend, BackendError, RunProgress};
use forebay_lab::metrics::RunRows;
use forebay_lab::plan::{Experiment, Plan};
use forebay_lab::{Options, run};

/// Budget of three generations; the last one is bred.
const BUDGET: Budget = Budget::Runs(288);

fn request(folder: &Path, metric: &str, jobs: usize) -> SearchRequest {
    SearchRequest {
        algorithm: "newreno".into(),
        objective: Objective::named(metric).unwrap(),
        space: read(SMALL).unwrap(),
        backend: "sim".into(),
        budget: BUDGET,
        seed: 1,
        jobs,
        folder: folder.into(),
        build: Build::default(),
        stop: Stop::default(),
    }
}

/// Result of a search for the worst utilization, with the written plan and log.
struct Shared {
    found: Found,
    plan: String,
    log: String,
}

/// One search that several tests check, because it takes seconds.
static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let found = search(&request(folder.path(), "utilization", 2), &mut |_| ()).unwrap();
    let (plan, log) = (text(&found.plan), text(&folder.path().join("cases.jsonl")));
    Shared { found, plan, log }
});

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn result_is_independent_of_parallelism() {
    let Shared { found, plan, log } = &*SHARED;
    let folder = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let again = search(&request(folder.path(), "utilization", 1), &mut |progress| {
        told.push((progress.phase, progress.worst.unwrap()));
    });
    let again = again.unwrap();
    assert_eq!((&again.worst, &again.simple), (&found.worst, &found.simple));
    assert_eq!((again.run, again.reused), (found.run, found.reused));
    assert_eq!(&text(&again.plan), plan);
    assert_eq!(&text(&folder.path().join("cases.jsonl")), log);
    // The plain cells, two generations from anywhere, one of the worst, and then one case at a time.
    let phases: Vec<Phase> = told.iter().map(|(phase, _)| *phase).take(5).collect();
    assert_eq!(phases, [Phase::Plain, Phase::Drawn, Phase::Drawn, Phase::Bred, Phase::Simplified]);
    assert!(told.is_sorted_by(|one, other| one.1 >= other.1), "{told:?}");
}

#[test]
fn found_case_is_worse_and_simplified_case_close() {
    let Shared { found, .. } = &*SHARED;
    let objective = Objective::named("utilization").unwrap();
    assert_eq!(found.plain.len(), 4);
    assert!(found.plain.iter().all(|it| it.value >= found.worst_plain.value));
    let times = |it: &JudgedCase| objective.times_worse(found.worst.value, it.value).unwrap();
    assert!(times(&found.worst_plain) > 1.2 && times(&found.simple) <= KEPT, "{found:?}");
    let size = |it: &JudgedCase| it.case.service.len() + it.case.cross.len();
    assert!(found.simple.case != found.worst.case && size(&found.simple) <= size(&found.worst));
}

#[test]
fn written_plan_reproduces_figures() {
    let Shared { found, plan: heading, .. } = &*SHARED;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("worst.toml");
    std::fs::write(&file, heading).unwrap();
    let plan = Plan::load(file.to_str().unwrap(), &[]).unwrap();
    assert_eq!((plan.name.as_str(), plan.seeds), ("newreno-utilization", SEEDS));
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.path().join("again")),
        ..Options::default()
    };
    let results = run(&plan, &options, &mut |_| ()).unwrap();
    let objective = Objective::named("utilization").unwrap();
    let space = read(SMALL).unwrap();
    let counted = space.stop - space.warmup;
    let runs = results.runs.iter();
    let figures = runs.map(|run| objective.of(counted, &run.flows, &run.links).unwrap());
    assert_eq!(figures.collect::<Vec<_>>(), found.simple.by_seed);
    let command = "# Found by: forebay search newreno --metric utilization --space s.toml --seed 1 --runs 288\n";
    assert!(heading.contains(command), "{heading}");
    assert!(
        heading.contains(&format!("# utilization: {}, the median", found.simple.value)),
        "{heading}"
    );
}

#[test]
fn plan_gives_factor_unless_plain_cells_are_zero() {
    let request = request(Path::new(""), "stall", 1);
    let judged =
        |value| JudgedCase { case: request.space.plain[0].clone(), by_seed: vec![value; 3], value };
    let heading = |plain| request.heading(&judged(plain), &judged(0.6), "");
    assert!(heading(0.2).contains(" has 0.2; this case is 3.0 times worse.\n"), "{}", heading(0.2));
    assert!(heading(0.0).contains(" has 0.\n"), "{}", heading(0.0));
}

#[test]
fn link_pause_keeps_utilization_and_delays_packets() {
    let folder = tempfile::tempdir().unwrap();
    let request = request(folder.path(), "utilization", 2);
    let plain = request.space.plain[0].clone();
    let pause = case::CaseEvent { at: 10, slots: 3, percent: 0 };
    let cases = [plain.clone(), Case { service: vec![pause], ..plain }];
    let values = |metric| {
        let request =
            SearchRequest { objective: Objective::named(metric).unwrap(), ..request.clone() };
        let simulator = trials::ready(&request, "sim", 2).unwrap();
        let judged = Trials::open(&request, simulator, 2).unwrap().judge(&cases, SEEDS).unwrap();
        [0, 1].map(|place| judged[place].as_ref().unwrap().value)
    };
    // Packets that are under way when the link stops leave beyond the rate.
    assert!(values("utilization").iter().all(|value| (0.9..1.02).contains(value)));
    let [without, with] = values("queueing");
    assert!(with > 1.2 * without, "{without}, {with}");
    let [without, with] = values("stall");
    assert!(without == 0.0 && (0.2..=0.4).contains(&with), "{without}, {with}");
}

#[test]
fn known_runs_serve_other_metrics() {
    let Shared { found, log, .. } = &*SHARED;
    let folder = tempfile::tempdir().unwrap();
    let lines = log.lines().count();
    assert_eq!(lines, found.run);
    // Simulates a process that was killed while it wrote the tenth line from the end.
    let known: Vec<&str> = log.lines().take(lines - 10).collect();
    let cut = known.join("\n") + "\n{\"plan_sha256\":\"0";
    std::fs::write(folder.path().join("cases.jsonl"), cut).unwrap();
    let again = search(&request(folder.path(), "utilization", 2), &mut |_| ()).unwrap();
    assert_eq!((again.run, &again.simple), (10, &found.simple));
    let mut queueing = request(folder.path(), "queueing", 2);
    queueing.budget = Budget::Runs(1);
    let found = search(&queueing, &mut |_| ()).unwrap();
    assert!(found.reused > found.plain.len(), "{found:?}");
    assert!(found.plan.ends_with("newreno-queueing.toml"));
}

#[test]
fn a_search_without_time_ends_after_one_generation() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(folder.path(), "stall", 2);
    request.budget = Budget::Time(Duration::from_millis(1));
    request.space = read(&SMALL.replace("\"2s\"", "\"1s\"")).unwrap();
    let found = search(&request, &mut |_| ()).unwrap();
    assert_eq!(found.run + found.reused, found.plain.len() + GENERATION);
    assert!(found.plan.is_file());
}

#[test]
fn a_folder_that_cannot_be_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = search(&request(&file.join("deeper"), "share", 1), &mut |_| ()).unwrap_err();
    assert!(error.is_bad_input(), "{error}");
}

#[test]
fn algorithms_are_known_by_their_names_with_parameters() {
    for name in ["reno", "cubic(hystart=off)", "copa", "bbr"] {
        assert_eq!(check_algorithm(name), Ok(()), "{name}");
    }
    for name in ["cubik", "cubic(hystart=of)", "cubic(", ""] {
        assert!(check_algorithm(name).unwrap_err().contains("allowed is "), "{name}");
    }
}

/// Real kernels in the eyes of a search: the simulator, whose runs may be disturbed.
struct Made {
    simulator: Box<dyn Backend>,
    /// Attempts of each run that are disturbed, by experiment and seed.
    disturbed: usize,
    attempts: Mutex<BTreeMap<(String, u64), usize>>,
}

impl Made {
    fn trials(request: &SearchRequest, disturbed: usize) -> Trials<'_> {
        let simulator = trials::ready(request, SIMULATOR, 1).unwrap();
        let made = Self { simulator, disturbed, attempts: Mutex::default() };
        Trials::open(request, Box::new(made), 1).unwrap()
    }
}

impl Backend for Made {
    fn name(&self) -> &'static str {
        "made"
    }
    fn jobs_max(&self) -> Option<usize> {
        Some(1)
    }
    fn is_deterministic(&self) -> bool {
        false
    }
    fn writes_files(&self) -> bool {
        true
    }
    fn check(&self, _: &Experiment) -> Result<(), BackendError> {
        Ok(())
    }
    fn run(
        &self,
        experiment: &Experiment,
        folder: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<RunRows, BackendError> {
        assert!(folder.is_dir());
        let mut attempts = self.attempts.lock().unwrap();
        let attempt = attempts.entry((experiment.sha256.clone(), experiment.seed)).or_default();
        *attempt += 1;
        let mut rows = self.simulator.run(experiment, folder, progress)?;
        match *attempt > self.disturbed {
            true => Ok(rows),
            false if attempt.is_multiple_of(2) => Err(BackendError::Failed("no link".into())),
            false => {
                rows.run.host.steal = 0.2;
                Ok(rows)
            }
        }
    }
}

/// A request for a few real runs.
fn real(folder: &Path) -> SearchRequest {
    let backend = "emu".into();
    SearchRequest { backend, budget: Budget::Runs(9), ..request(folder, "utilization", 1) }
}

fn found(request: &SearchRequest, disturbed: usize) -> Result<Found, RunError> {
    let simulator = trials::ready(request, SIMULATOR, 2)?;
    let screen = Trials::open(request, simulator, 2)?;
    find(request, Made::trials(request, disturbed), Some(screen), &mut |_| ())
}

#[test]
fn real_search_ends_with_comparison_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let request = real(folder.path());
    let first = found(&request, 0).unwrap();
    let comparison = first.comparison.as_ref().unwrap();
    assert_eq!((comparison.plain.len(), comparison.case.runs.len()), (4, 5));
    assert!(comparison.is_finding && first.rejected.is_empty(), "{first:?}");
    let mut cut = comparison.clone();
    cut.plain[1].runs.pop();
    assert_eq!((comparison.missing(), cut.missing()), (0, 1));
    // The back end is the simulator.
    let mut all = comparison.plain.iter().chain([&comparison.case]);
    assert!(all.all(|it| it.runs == it.simulated), "{comparison:?}");
    let plan = Plan::load(first.plan.to_str().unwrap(), &[]).unwrap();
    assert_eq!(plan.seeds, COMPARED_SEEDS);
    let heading = text(&first.plan);
    let command = "# Found by: forebay search newreno --backend emu --metric utilization ";
    assert!(heading.contains(command) && heading.contains("\n# Each of these runs"), "{heading}");
    // Rows of the simulator do not count for the other back end.
    let log = folder.path().join("cases.jsonl");
    let rows = text(&log);
    let is_made = |row: &&str| row.contains("\"backend\":\"made\"");
    assert_eq!(rows.lines().filter(is_made).count(), first.run);
    assert!(rows.lines().count() > 9 * SCREENED);
    let cut = rows.lines().filter(is_made).count() - 7;
    let simulated = rows.lines().filter(|row| !is_made(row));
    let kept: Vec<&str> = rows.lines().filter(is_made).take(cut).chain(simulated).collect();
    std::fs::write(&log, kept.join("\n") + "\n").unwrap();
    let again = found(&request, 0).unwrap();
    // All cases are known, but the 5 runs of each of the 5 compared ones are new.
    assert_eq!((again.run, &again.comparison), (25, &first.comparison));
}

#[test]
fn disturbed_runs_are_repeated_and_never_count() {
    let folder = tempfile::tempdir().unwrap();
    let request = real(folder.path());
    let plain = &request.space.plain;
    let seeds = Seeds { first: 1, last: 1 };
    let judged = |disturbed| {
        let folder = tempfile::tempdir().unwrap();
        let request = real(folder.path());
        let mut trials = Made::trials(&request, disturbed);
        let judged = trials.judge(plain, seeds).unwrap();
        (judged, trials.rejected)
    };
    let (fine, rejected) = judged(0);
    assert!(fine.iter().all(Option::is_some) && rejected.is_empty());
    let (repeated, rejected) = judged(2);
    assert_eq!((&repeated, rejected.len()), (&fine, 2 * plain.len()));
    let (dropped, rejected) = judged(3);
    assert!(dropped.iter().all(Option::is_none) && rejected.len() == 3 * plain.len());
    let error = found(&request, 3).unwrap_err().to_string();
    assert!(error.contains("no plain cell") && error.contains("was stolen, allowed is"), "{error}");
}

#[test]
fn comparisons_with_itself_use_new_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let request = request(folder.path(), "utilization", 1);
    let compared = compare_with_itself(&request, 3, &mut |_| ()).unwrap();
    let rows = text(&folder.path().join("cases.jsonl"));
    let seeds = (7..37).filter(|seed| rows.contains(&format!("\"seeds\":\"{seed}\"")));
    assert_eq!((rows.lines().count(), seeds.count()), (30, 30));
    assert!(compared.iter().all(|it| it.case.runs.len() == 5 && it.plain[0].runs.len() == 5));
    assert!(compared.iter().filter(|it| it.is_finding).count() <= 1, "{compared:?}");
}

#[test]
fn generations_of_real_runs_follow_budget() {
    let mut request = real(Path::new(""));
    assert_eq!((request.generation(), request.time()), (3, None));
    // 25 runs of 4 s are for the comparison; 56 runs remain.
    request.space.plain.truncate(4);
    request.budget = Budget::Time(Duration::from_secs(324));
    assert_eq!((request.generation(), request.time()), (8, Some(Duration::from_secs(224))));
    request.budget = Budget::Time(Duration::from_secs(60));
    assert_eq!((request.generation(), request.time()), (2, Some(Duration::ZERO)));
}
