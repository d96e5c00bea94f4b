//! Runs that an external scheduler distributes to processes and machines. Their digest identifies them
//! everywhere. Workers make them into stores without a folder; a store with a folder then adopts the rows.
//!
//! ```text
//! wanted ─► scheduler ─► simulate ─► rows of a store ─► collector ─► Store::adopt
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::slice;

use forebay_core::text;
use serde_json::json;

use crate::backend::Backend;
use crate::metrics::Evaluation;
use crate::plan::Plan;
use crate::run::runner::{self, Job};
use crate::run::{Options, RunError};
use crate::store::{NewRun, RunKey, Store};

/// A run to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Digest of the key of the run, see [`RunKey::digest`].
    pub digest: String,
    /// Name of the arm.
    pub arm: String,
    /// Name of the cell.
    pub cell: String,
    /// Seed of the run.
    pub seed: u64,
}

/// The runs of `plan`, in the order in which [`run`](crate::run()) makes them.
///
/// # Errors
/// The errors of [`check`](crate::check).
pub fn wanted(plan: &Plan, options: &Options) -> Result<Vec<Wanted>, RunError> {
    let backend = options.open()?;
    let jobs = runner::jobs(plan, &*backend, options)?.into_iter();
    let wanted = |Job { key, .. }: Job| {
        let digest = key.digest();
        Wanted { digest, arm: key.arm, cell: key.cell, seed: key.seed }
    };
    Ok(jobs.map(wanted).collect())
}

/// Makes the runs in `asked` of `plan` one after the other into a store in memory, and calls `told` many
/// times on the way. A failed run is stored with its reason, also after a panic with a text, and the next one
/// follows.
///
/// # Errors
/// `plan` has no such run here (see [`Wanted::digest`]), the back end cannot run it, or the caller asked for
/// the end.
pub fn simulate(
    plan: &Plan,
    options: &Options,
    asked: &[Wanted],
    told: &mut dyn FnMut(),
) -> Result<Store, RunError> {
    let backend = options.open()?;
    let mut store = Store::in_memory()?;
    for job in jobs(plan, options, &*backend, asked)? {
        let run = || {
            let jobs = slice::from_ref(&job);
            runner::run(jobs, &*backend, &mut store, options, &mut |_| told())
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(_) | Err(RunError::Failed { .. })) => {}
            Ok(Err(error)) => return Err(error),
            Err(panic) => {
                let reason = format!("a bug in forebay: {}", text_of(panic));
                put_failure(&mut store, &job, options, &reason)?;
            }
        }
    }
    Ok(store)
}

/// A store in memory with the run `asked` marked as failed for `reason`, whichever worker tried it.
///
/// # Errors
/// `plan` has no such run here.
pub fn failed(
    plan: &Plan,
    options: &Options,
    asked: &Wanted,
    reason: &str,
) -> Result<Store, RunError> {
    let mut store = Store::in_memory()?;
    for job in jobs(plan, options, &*options.open()?, slice::from_ref(asked))? {
        put_failure(&mut store, &job, options, reason)?;
    }
    Ok(store)
}

fn put_failure(
    store: &mut Store,
    job: &Job,
    options: &Options,
    reason: &str,
) -> Result<(), RunError> {
    let (experiment, evaluation) = (&job.experiment()?, &Evaluation::of_failure(reason));
    let (key, commit, host) = (&job.key, options.build.commit, &json!({ "failed": reason }));
    store.put_run(&NewRun { key, experiment, commit, attempt: 1, evaluation, host })?;
    Ok(())
}

/// The text of a panic; a panic with another payload continues.
fn text_of(panic: Box<dyn Any + Send>) -> String {
    match text::of_panic(&*panic) {
        Some(text) => text.into(),
        None => resume_unwind(panic),
    }
}

/// The jobs of the runs in `asked`.
fn jobs(
    plan: &Plan,
    options: &Options,
    backend: &dyn Backend,
    asked: &[Wanted],
) -> Result<Vec<Job>, RunError> {
    let sources = options.sources(backend);
    let mut jobs = Vec::new();
    for Wanted { digest, arm, cell, seed } in asked {
        let other = || {
            let [plan, arm, cell] = [&plan.name, arm, cell].map(String::clone);
            let key = RunKey { plan, arm, cell, seed: *seed, ..RunKey::default() };
            let allowed = "allowed is the same build, and the same files that the plan names";
            let run = runner::name(&key);
            RunError::Options(format!(
                "{run}: this run differs between the two machines: {allowed}"
            ))
        };
        let named = plan.arms.iter().find(|it| it.name == *arm);
        let of_cell = plan.cells.iter().find(|it| it.name == *cell);
        let (named, of_cell) = named.zip(of_cell).ok_or_else(other)?;
        let job = Job::new(named.run(of_cell), *seed, backend, &sources);
        if job.key.digest() != *digest {
            return Err(other());
        }
        jobs.push(job);
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::library::Source;

    fn plan(rate: &str) -> Plan {
        let text = format!(
            r#"
            name = "p"
            stop = "1s"
            seeds = "1..2"
            bottleneck = {{ rate = "{rate}", rtt = "20ms", qdisc = "fifo" }}
            flow = [{{ name = "bulk", traffic = {{ kind = "greedy" }} }}]
            arm = [{{ name = "x" }}, {{ name = "y", set = {{ flow.bulk.cc = "newreno" }} }}]
        "#
        );
        let source = Source { file: "p".into(), folder: None, text };
        Plan::from_source(source, &[]).unwrap()
    }

    fn options() -> Options {
        Options { backend: "sim".into(), ..Options::default() }
    }

    #[test]
    fn runs_in_batches_are_those_of_one_call() {
        let (plan, options) = (plan("8Mbit/s"), options());
        let wanted = wanted(&plan, &options).unwrap();
        assert_eq!(wanted.len(), 4);
        let folder = tempfile::tempdir().unwrap();
        let out = Some(folder.path().join("results"));
        let whole = crate::run(&plan, &Options { out, ..options.clone() }, &mut |_| ()).unwrap();
        let mut runs = whole.runs.iter();
        for batch in wanted.chunks(3) {
            let mut told = 0;
            let store = simulate(&plan, &options, batch, &mut || told += 1).unwrap();
            assert!(told > batch.len());
            for (id, asked) in store.run_ids().unwrap().into_iter().zip(batch) {
                let (run, expected) = (store.run(id).unwrap(), runs.next().unwrap());
                assert_eq!(run.key.digest(), asked.digest);
                assert_eq!((&run.key, &run.metrics), (&expected.key, &expected.metrics));
                assert_eq!((&run.flows, &run.links), (&expected.flows, &expected.links));
            }
        }
        assert!(runs.next().is_none());
    }

    #[test]
    fn different_run_is_refused() {
        let (plan, other, options) = (plan("8Mbit/s"), plan("9Mbit/s"), options());
        let wanted = wanted(&plan, &options).unwrap();
        let refused = simulate(&other, &options, &wanted[..1], &mut || ());
        let error = refused.map(drop).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("p x seed 1"), "{error}");
        let nobody = Wanted { arm: "nobody".into(), ..wanted[0].clone() };
        assert!(simulate(&plan, &options, &[nobody], &mut || ()).is_err());
    }

    #[test]
    fn run_that_ended_its_program_failed() {
        let (plan, options) = (plan("8Mbit/s"), options());
        let wanted = wanted(&plan, &options).unwrap();
        let store = failed(&plan, &options, &wanted[1], "killed").unwrap();
        let run = store.run(1).unwrap();
        assert_eq!((run.key.digest(), &*run.key.arm), (wanted[1].digest.clone(), "y"));
        assert_eq!(run.invalid, ["failed: killed"]);
    }

    #[test]
    fn text_panic_is_failure_others_propagate() {
        let panic = catch_unwind(|| panic!("of {}", 3)).unwrap_err();
        assert_eq!(text_of(panic), "of 3");
        let panic = catch_unwind(|| panic!("plain")).unwrap_err();
        assert_eq!(text_of(panic), "plain");
        assert!(catch_unwind(|| text_of(Box::new(7_u8))).is_err());
    }
}
