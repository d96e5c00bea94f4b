//! Makes the runs of a plan: arms interleaved, results into the store, nothing run twice, interrupted work
//! taken up where it stopped.

mod event;
mod groups;
mod options;
mod parallel;
mod scratch;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use forebay_core::record::RunRecord;
use forebay_core::text;
use serde_json::{Value, json};

use crate::backend::{self, Backend, BackendError};
use crate::metrics::{Evaluation, evaluate};
use crate::plan::{Experiment, Plan, PlanError};
use crate::store::{Attempt, NewRun, RunKey, Store, StoreError};
pub use event::{Ending, Event, Progress};
pub use options::{Options, RunError};
use scratch::Scratch;

/// Most attempts at a run in one invocation; a run is repeated if the harness was disturbed.
const MAX_ATTEMPTS: usize = 3;

/// One run to make.
#[derive(Clone, Debug)]
pub struct Job {
    unseeded: Arc<Experiment>,
    /// Key of the run.
    pub key: RunKey,
}

impl Job {
    /// The run of `unseeded`, which has no seed yet, with `seed`; for `sources` see [`RunKey::sources`].
    pub fn new(
        unseeded: &Arc<Experiment>,
        seed: u64,
        backend: &dyn Backend,
        sources: &str,
    ) -> Self {
        let key = RunKey { seed, ..RunKey::of(unseeded, backend.name(), sources) };
        Self { unseeded: unseeded.clone(), key }
    }

    /// The experiment to run. Each call builds it, because ten thousand of these would fill the memory.
    pub fn experiment(&self) -> Result<Experiment, PlanError> {
        Experiment::clone(&self.unseeded).with_seed(self.key.seed)
    }
}

/// `main copa_sfq seed 2`, for people.
pub fn name(key: &RunKey) -> String {
    let RunKey { plan, arm, cell, seed, .. } = key;
    let gap = if cell.is_empty() { "" } else { " " };
    format!("{plan} {arm}{gap}{cell} seed {seed}")
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Every attempt at this job in the store, oldest first; the last valid one counts.
    pub ids: Vec<i64>,
    /// At least one attempt is valid.
    pub valid: bool,
}

/// The jobs of `plan` in order: cell by cell, then seed by seed, with all arms for each seed. Each seed
/// begins with the next arm, so that slow drifts of the machine affect all arms equally.
pub fn jobs(plan: &Plan, backend: &dyn Backend, options: &Options) -> Result<Vec<Job>, RunError> {
    let mut jobs = Vec::new();
    let sources = options.sources(backend);
    let seeds = options.seeds.unwrap_or(plan.seeds);
    for (place, cell) in plan.cells.iter().enumerate() {
        let arms: Vec<_> = plan.arms.iter().map(|arm| arm.run(cell)).collect();
        // The check builds a simulation, so it covers the first seed alone; the others are checked when they
        // run.
        arms.iter().try_for_each(|arm| backend.check_with(arm, seeds.first))?;
        for (turn, seed) in seeds.iter().enumerate() {
            let first = (place + turn) % arms.len();
            let in_turn = arms[first..].iter().chain(&arms[..first]);
            jobs.extend(in_turn.map(|arm| Job::new(arm, seed, backend, &sources)));
        }
    }
    Ok(jobs)
}

/// Runs every job that the store lacks. Stops at the first job that cannot be run at all.
pub fn run(
    jobs: &[Job],
    backend: &dyn Backend,
    store: &mut Store,
    options: &Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Done>, RunError> {
    let wanted = |job: &Job| Wanted::of(job, store, backend, options);
    let wanted: Vec<Wanted> = jobs.iter().map(wanted).collect::<Result<_, _>>()?;
    let done = wanted.iter().map(|wanted| Done { ids: wanted.ids.clone(), valid: wanted.valid });
    let mut ledger =
        Ledger { jobs, commit: options.build.commit, store, progress, done: done.collect() };
    if jobs.first().is_some_and(|job| backend.makes_groups(&job.unseeded)) {
        groups::run(jobs, &wanted, backend, options, &mut ledger)?;
        return Ok(ledger.done);
    }
    if options.jobs > 1 {
        parallel::run(jobs, &wanted, backend, options, &mut ledger)?;
        return Ok(ledger.done);
    }
    for (index, (job, wanted)) in jobs.iter().zip(&wanted).enumerate() {
        if wanted.is_over {
            ledger.reuse(index);
            continue;
        }
        let mut report = |report| ledger.take(index, report);
        run_attempts(job, wanted, backend, options, &mut report)?;
    }
    Ok(ledger.done)
}

/// Attempts at a job in the store.
struct Wanted {
    /// All attempts, oldest first.
    ids: Vec<i64>,
    /// Attempts that count towards [`most_attempts`].
    spent: usize,
    /// At least one attempt is valid.
    valid: bool,
    /// The job needs no further attempt.
    is_over: bool,
}

impl Wanted {
    fn of(
        job: &Job,
        store: &Store,
        backend: &dyn Backend,
        options: &Options,
    ) -> Result<Self, StoreError> {
        let attempts = store.attempts(&job.key)?;
        let ids = attempts.iter().map(|attempt| attempt.id).collect();
        let valid = attempts.iter().any(|attempt| attempt.valid);
        let is_deterministic = backend.is_deterministic();
        let spent = if options.force { 0 } else { spent(&attempts, is_deterministic) };
        let is_over = !options.force && !is_left_to_try(&attempts, is_deterministic);
        Ok(Self { ids, spent, valid, is_over })
    }
}

/// Whether another attempt is allowed after these `attempts` by earlier calls, and none is valid yet. For
/// `is_deterministic` see [`Backend::is_deterministic`].
pub fn is_left_to_try(attempts: &[Attempt], is_deterministic: bool) -> bool {
    let is_valid = attempts.iter().any(|attempt| attempt.valid);
    !is_valid && spent(attempts, is_deterministic) < most_attempts(is_deterministic)
}

/// Attempts by earlier calls that count in this call, too. A rejected attempt does not count: the machine may
/// be quiet by now. A failed one does, so that the plan continues after a run that cannot be made.
fn spent(attempts: &[Attempt], is_deterministic: bool) -> usize {
    attempts.iter().filter(|attempt| is_deterministic || attempt.failed).count()
}

const fn most_attempts(is_deterministic: bool) -> usize {
    if is_deterministic { 1 } else { MAX_ATTEMPTS }
}

/// Another attempt may begin after `spent` that failed or were disturbed.
fn may_try(spent: usize, backend: &dyn Backend, options: &Options) -> bool {
    let in_time = || options.retry_until.is_none_or(|until| Instant::now() < until);
    spent == 0 || (spent < most_attempts(backend.is_deterministic()) && in_time())
}

/// Reports about a job under way.
enum Report {
    /// An attempt begins, the first is 1.
    Begins(usize),
    UnderWay(backend::RunProgress),
    /// The attempt has ended.
    Ended(Box<Attempted>),
}

/// An attempt that has ended.
struct Attempted {
    /// Number of the attempt, the first is 1.
    number: usize,
    experiment: Arc<Experiment>,
    evaluation: Evaluation,
    /// The machine and every wall-clock figure.
    host: Value,
}

/// Receives reports; if it returns an error, the job ends.
type Reporting<'a> = dyn FnMut(Report) -> Result<(), RunError> + 'a;

/// Receives all reports: writes to the store, and passes progress to the caller.
struct Ledger<'a> {
    jobs: &'a [Job],
    commit: &'a str,
    store: &'a mut Store,
    progress: &'a mut dyn FnMut(Progress<'_>),
    done: Vec<Done>,
}

impl Ledger<'_> {
    fn take(&mut self, index: usize, report: Report) -> Result<(), RunError> {
        match report {
            Report::Begins(attempt) => self.tell(index, Event::Begins(attempt)),
            Report::UnderWay(progress) => self.tell(index, Event::UnderWay(&progress)),
            Report::Ended(attempted) => {
                let Attempted { number, experiment, evaluation, host } = *attempted;
                let run = NewRun {
                    key: &self.jobs[index].key,
                    experiment: &experiment,
                    commit: self.commit,
                    attempt: number as u32,
                    evaluation: &evaluation,
                    host: &host,
                };
                self.done[index].ids.push(self.store.put_run(&run)?);
                self.done[index].valid |= evaluation.invalid.is_empty();
                let ending = match (&evaluation.invalid[..], host["died"].as_str()) {
                    ([], None) => match clamped(&evaluation) {
                        0 => Ending::Valid,
                        times => Ending::Clamped(times),
                    },
                    ([], Some(reason)) => Ending::Died(reason),
                    (reasons, _) => Ending::Rejected(reasons),
                };
                self.tell(index, Event::Ended(ending));
            }
        }
        Ok(())
    }

    fn reuse(&mut self, index: usize) {
        if self.done[index].valid {
            self.tell(index, Event::Reused);
        }
    }

    fn tell(&mut self, index: usize, event: Event<'_>) {
        let (key, total) = (&self.jobs[index].key, self.jobs.len());
        (self.progress)(Progress { key, number: index + 1, total, event });
    }
}

/// Runs `job` until a run is valid or enough were tried.
fn run_attempts(
    job: &Job,
    wanted: &Wanted,
    backend: &dyn Backend,
    options: &Options,
    report: &mut Reporting<'_>,
) -> Result<(), RunError> {
    let experiment = Arc::new(job.experiment()?);
    let mut failure = None;
    let mut spent = wanted.spent;
    let mut attempt = wanted.ids.len();
    while may_try(spent, backend, options) {
        (spent, attempt) = (spent + 1, attempt + 1);
        report(Report::Begins(attempt))?;
        let (evaluation, host) = match attempt_job(job, &experiment, backend, options, report) {
            Ok(result) => result,
            Err(RunError::Backend(BackendError::BoxDied(reason))) => {
                (Evaluation::of_death(), json!({ "died": reason }))
            }
            // A panic must not end the other runs of the plan.
            Err(RunError::Backend(BackendError::Panicked(reason))) => {
                (Evaluation::of_failure(&reason), json!({ "failed": &reason }))
            }
            Err(RunError::Backend(BackendError::Failed(reason))) => {
                let ended = (Evaluation::of_failure(&reason), json!({ "failed": &reason }));
                failure = Some(reason);
                ended
            }
            Err(error) => return Err(error),
        };
        let is_valid = evaluation.invalid.is_empty();
        let (number, experiment) = (attempt, experiment.clone());
        report(Report::Ended(Box::new(Attempted { number, experiment, evaluation, host })))?;
        if is_valid {
            return Ok(());
        }
    }
    match failure {
        Some(reason) => Err(RunError::Failed { name: name(&job.key), attempts: attempt, reason }),
        None => Ok(()),
    }
}

fn attempt_job(
    job: &Job,
    experiment: &Experiment,
    backend: &dyn Backend,
    options: &Options,
    report: &mut Reporting<'_>,
) -> Result<(Evaluation, Value), RunError> {
    let scratch = backend.writes_files().then(|| Scratch::new(job, options)).transpose()?;
    let folder = scratch.as_ref().map_or(Path::new(""), |scratch| scratch.folder());
    let started = Instant::now();
    let started_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    // A failure to report progress does not affect the run.
    let mut progress = |step| drop(report(Report::UnderWay(step)));
    let rows = guarded(|| backend.run(experiment, folder, &mut progress))?;
    let evaluation = evaluate(experiment, &rows)?;
    let mut host = host_json(&rows.run);
    host["started_unix_s"] = json!(started_unix_s);
    host["wall_s"] = json!(started.elapsed().as_secs_f64());
    Ok((evaluation, host))
}

/// How often algorithms exceeded the bounds of their limits and were clamped.
fn clamped(evaluation: &Evaluation) -> u64 {
    evaluation.flows.iter().filter_map(|flow| flow.metrics.get("limits_clamped")).sum::<f64>()
        as u64
}

/// Result of `work`. A panic with a text becomes an error, because user algorithms may panic. A panic with
/// another payload continues.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, BackendError>) -> Result<T, BackendError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        match text::of_panic(&*panic).map(String::from) {
            Some(text) => Err(BackendError::Panicked(format!("panicked: {text}"))),
            None => resume_unwind(panic),
        }
    })
}

/// Everything that depends on the machine and its clock.
fn host_json(rows: &RunRecord) -> Value {
    let lateness = |ns: &[u64; 4]| {
        let [p50, p99, p999, max] = ns.map(|ns| ns as f64 / 1e6);
        json!({ "p50_ms": p50, "p99_ms": p99, "p999_ms": p999, "max_ms": max })
    };
    let host = &rows.host;
    let cpu: serde_json::Map<String, Value> =
        host.cpu_cores.iter().map(|(name, cores)| (name.clone(), json!(cores))).collect();
    let links = rows.links.iter().map(|link| {
        let name = link.name.clone();
        let figures = json!({
            "lateness": lateness(&link.lateness_ns),
            "rate_achieved": link.rate_achieved,
            "drops_ring_packets": link.drops_ring,
            "records_lost_packets": link.records_lost,
        });
        (name, figures)
    });
    let boxes = rows.bundles.iter().map(|bundle| {
        let figures = json!({
            "lateness": lateness(&bundle.counters.lateness_ns),
            "drops_ring_packets": bundle.drops_ring,
            "hand_backs": bundle.hand_backs,
            "boundaries_lost": bundle.boundaries_lost,
            "trace_rows_lost": bundle.rows_lost,
        });
        (bundle.name.clone(), figures)
    });
    let attack = rows.attack.as_ref().map(
        |attack| json!({ "box_cores": attack.box_cores, "took_s": attack.took_ns as f64 / 1e9 }),
    );
    let cost = rows.cost.as_ref().map(|cost| {
        json!({
            "rate_bps": cost.rate_bps,
            "idle_per_s": cost.idle_per_s,
            "cpu": cost.cpu,
            "processor": cost.processor,
            "lateness_ms": cost.trial.lateness_ns.map(|ns| ns as f64 / 1e6),
        })
    });
    json!({
        "attack": attack,
        "cost": cost,
        "kernel": host.kernel,
        "load": host.load,
        "steal": host.steal,
        "processor_lateness": lateness(&host.processor_lateness_ns),
        "cpu_cores": cpu,
        "realtime": host.realtime,
        "generator_lateness": lateness(&host.generator_lateness_ns),
        "links": links.collect::<serde_json::Map<_, _>>(),
        "sendboxes": boxes.collect::<serde_json::Map<_, _>>(),
        "offloads": host.offloads,
        "settings": host.settings,
    })
}

#[cfg(test)]
mod tests;
