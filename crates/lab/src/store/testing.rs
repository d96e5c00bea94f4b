//! Runs that tests put into stores.

use serde_json::json;

use super::{NewRun, RunKey, Store};
use crate::metrics::Evaluation;
use crate::plan::Experiment;

/// Puts a first attempt at `experiment` on `backend`; returns its id.
pub fn put(
    store: &mut Store,
    experiment: &Experiment,
    backend: &str,
    evaluation: &Evaluation,
) -> i64 {
    let (key, host) = (&RunKey::of(experiment, backend, "abc"), &json!({}));
    let run = NewRun { key, experiment, commit: "c", attempt: 1, evaluation, host };
    store.put_run(&run).expect("a store that can be written")
}
