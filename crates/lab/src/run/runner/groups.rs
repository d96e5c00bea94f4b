//! Runs that a back end makes together: the arms of a cell and seed are one group.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Attempted, Job, Ledger, Report, Scratch, Wanted, guarded, host_json, may_try, name};
use crate::backend::{Backend, BackendError, RunProgress};
use crate::experiment::Experiment;
use crate::metrics::{Evaluation, evaluate};
use crate::run::{Options, RunError};

/// The jobs of a cell and seed.
struct Group<'a> {
    jobs: &'a [Job],
    /// Place of the first among all jobs.
    first: usize,
    wanted: &'a [Wanted],
}

/// Makes each group that lacks a run. All of its arms run again then, since compared trials must be of the same time.
pub fn run(
    jobs: &[Job],
    wanted: &[Wanted],
    backend: &dyn Backend,
    options: &Options,
    ledger: &mut Ledger<'_>,
) -> Result<(), RunError> {
    let is_together =
        |one: &Job, other: &Job| (&one.key.cell, one.key.seed) == (&other.key.cell, other.key.seed);
    let mut first = 0;
    for jobs in jobs.chunk_by(is_together) {
        let group = Group { jobs, first, wanted: &wanted[first..first + jobs.len()] };
        if group.wanted.iter().all(|wanted| wanted.is_over) {
            (first..first + jobs.len()).for_each(|place| ledger.reuse(place));
        } else {
            group.run_attempts(backend, options, ledger)?;
        }
        first += jobs.len();
    }
    Ok(())
}

impl Group<'_> {
    /// Runs the group until every job has a valid run or enough were tried.
    fn run_attempts(
        &self,
        backend: &dyn Backend,
        options: &Options,
        ledger: &mut Ledger<'_>,
    ) -> Result<(), RunError> {
        let experiments = self.jobs.iter().map(Job::experiment);
        let experiments = experiments.collect::<Result<Vec<Experiment>, _>>()?;
        let mut spent = self.wanted.iter().map(|wanted| wanted.spent).max().unwrap_or(0);
        let mut number = self.wanted.iter().map(|wanted| wanted.ids.len()).max().unwrap_or(0);
        let mut valid = vec![false; self.jobs.len()];
        if !options.force {
            valid = self.wanted.iter().map(|wanted| wanted.valid).collect();
        }
        let mut failure = None;
        while may_try(spent, backend, options) {
            (spent, number) = (spent + 1, number + 1);
            (0..self.jobs.len())
                .try_for_each(|place| ledger.take(self.first + place, Report::Begins(number)))?;
            let ended = match self.attempt(&experiments, backend, options, ledger) {
                Err(RunError::Backend(
                    BackendError::Failed(reason) | BackendError::Panicked(reason),
                )) => {
                    let ended = (Evaluation::of_failure(&reason), json!({ "failed": reason }));
                    failure = Some(reason);
                    vec![ended; self.jobs.len()]
                }
                ended => ended?,
            };
            for (place, (evaluation, host)) in ended.into_iter().enumerate() {
                valid[place] |= evaluation.invalid.is_empty();
                let experiment = Arc::new(experiments[place].clone());
                let ended = Attempted { number, experiment, evaluation, host };
                ledger.take(self.first + place, Report::Ended(Box::new(ended)))?;
            }
            if valid.iter().all(|valid| *valid) {
                return Ok(());
            }
        }
        match failure {
            Some(reason) => {
                let name = name(&self.jobs[0].key);
                Err(RunError::Failed { name, attempts: number, reason })
            }
            None => Ok(()),
        }
    }

    fn attempt(
        &self,
        experiments: &[Experiment],
        backend: &dyn Backend,
        options: &Options,
        ledger: &mut Ledger<'_>,
    ) -> Result<Vec<(Evaluation, Value)>, RunError> {
        let first = &self.jobs[0];
        let scratch = backend.writes_files().then(|| Scratch::new(first, options)).transpose()?;
        let folder = scratch.as_ref().map_or(Path::new(""), |scratch| scratch.folder());
        let mut earlier = Value::Null;
        for job in self.jobs {
            if earlier.is_null() {
                earlier = ledger.store.last_host(&job.key)?;
            }
        }
        let started = Instant::now();
        let started_unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let mut progress =
            |step: RunProgress| drop(ledger.take(self.first, Report::UnderWay(step)));
        let rows = guarded(|| backend.run_group(experiments, &earlier, folder, &mut progress))?;
        let wall_s = started.elapsed().as_secs_f64() / self.jobs.len() as f64;
        let mut ended = Vec::with_capacity(rows.len());
        for (experiment, rows) in experiments.iter().zip(&rows) {
            let mut host = host_json(&rows.run);
            host["started_unix_s"] = json!(started_unix_s);
            // Its share of the group's time.
            host["wall_s"] = json!(wall_s);
            ended.push((evaluate(experiment, rows)?, host));
        }
        Ok(ended)
    }
}
