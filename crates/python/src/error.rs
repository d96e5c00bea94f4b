//! Errors as exceptions of `forebay.errors`.

use forebay_lab::RunError;
use forebay_lab::plan::PlanError;
use forebay_lab::store::StoreError;
use forebay_studies::rl::RlError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::calls::Place;
use crate::plan::DICT;

/// `InputError`: an argument is wrong; the message names the allowed values.
pub fn input(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "InputError", (message,).into_pyobject(py))
}

/// `RunError`: the input is right, but the run failed.
pub fn failed(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "RunError", (message,).into_pyobject(py))
}

/// `CallbackTimeout`: a callback takes longer than its algorithm allows.
pub fn too_long(py: Python<'_>, place: &Place) -> PyErr {
    let limit_s = place.about.limit.unwrap_or_default().as_secs_f64();
    let allowed = "to allow more time, raise `limit_s` of forebay.algorithm";
    let message = format!("{place}: no answer within {limit_s} s: {allowed}");
    raised(py, "CallbackTimeout", (message,).into_pyobject(py))
}

/// `PlanError`: its message has all problems of the plan. Its attributes describe the first problem, as far
/// as known: file, line, key, value and allowed values.
pub fn of_plan(py: Python<'_>, error: &PlanError) -> PyErr {
    let mut error = error.clone();
    // The lines of a dict belong to a generated text that the user has not seen.
    for problem in error.problems.iter_mut().filter(|problem| problem.file == DICT) {
        problem.line = None;
    }
    let message = error.to_string();
    let first = error.problems.first();
    let [key, value, allowed] = first.map_or([None; 3], |problem| problem.parts());
    let (file, line) = (first.map(|it| it.file.as_str()), first.and_then(|it| it.line));
    let arguments = (message.as_str(), file, line, key, value, allowed);
    raised(py, "PlanError", arguments.into_pyobject(py))
}

/// The exception for a failed run.
pub fn of_run(py: Python<'_>, error: impl Into<RunError>) -> PyErr {
    match error.into() {
        RunError::Plan(error) => of_plan(py, &error),
        RunError::Store(error @ StoreError::Folder { .. }) => input(py, &format!("out: {error}")),
        error if error.is_bad_input() => input(py, &error.to_string()),
        error => failed(py, &error.to_string()),
    }
}

/// The exception for an episode that cannot begin or go on.
pub fn of_rl(py: Python<'_>, error: RlError) -> PyErr {
    match error {
        RlError::Plan(error) => of_plan(py, &error),
        RlError::Backend(error) => of_run(py, error),
        RlError::Wrong(message) => input(py, &message),
    }
}

/// An exception of the class `class`; if it cannot be made, the reason.
fn raised<'py>(py: Python<'py>, class: &str, arguments: PyResult<Bound<'py, PyTuple>>) -> PyErr {
    let made = || py.import("forebay.errors")?.getattr(class)?.call1(arguments?);
    made().map_or_else(|error| error, PyErr::from_value)
}
