//! What goes wrong, as exceptions of `forebay.errors`.

use forebay_lab::RunError;
use forebay_lab::plan::PlanError;
use forebay_lab::rl::RlError;
use forebay_lab::store::StoreError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::calls::Place;
use crate::plan::DICT;

/// `InputError`: an argument is wrong, and what is allowed.
pub fn input(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "InputError", (message,).into_pyobject(py))
}

/// `RunError`: the input is right, and something went wrong all the same.
pub fn failed(py: Python<'_>, message: &str) -> PyErr {
    raised(py, "RunError", (message,).into_pyobject(py))
}

/// `CallbackTimeout`: a callback takes longer than its algorithm allows.
pub fn too_long(py: Python<'_>, place: &Place) -> PyErr {
    let limit_s = place.about.limit.unwrap_or_default().as_secs_f64();
    let allowed = "allowed is more with `limit_s` of forebay.algorithm";
    let message = format!("{place}: no answer within {limit_s} s: {allowed}");
    raised(py, "CallbackTimeout", (message,).into_pyobject(py))
}

/// `PlanError`, with the place in the plan: file, line, key, value and what is allowed, each where it is known.
pub fn of_plan(py: Python<'_>, error: &PlanError) -> PyErr {
    let mut message = error.to_string();
    let (file, mut line, key, value, allowed) = match error {
        PlanError::Syntax { at, .. } => (Some(&*at.file), at.line, None, None, None),
        PlanError::Value { at, key, value, allowed } => {
            (Some(&*at.file), at.line, Some(key), Some(value), Some(allowed))
        }
        PlanError::Missing { at, key, allowed } => {
            (Some(&*at.file), at.line, Some(key), None, Some(allowed))
        }
        PlanError::Data(it) => {
            (Some(it.file.as_str()), Some(it.line), None, Some(&it.value), Some(&it.allowed))
        }
        PlanError::File { file, .. } => (Some(file.as_str()), None, None, None, None),
    };
    // Lines of a dict are those of a text that nobody has seen.
    if let (Some(DICT), Some(number)) = (file, line) {
        message = message.replacen(&format!("{DICT}:{number}"), DICT, 1);
        line = None;
    }
    let [key, value, allowed] = [key, value, allowed].map(|it| it.map(String::as_str));
    let arguments = (message.as_str(), file, line, key, value, allowed);
    raised(py, "PlanError", arguments.into_pyobject(py))
}

/// The exception for what stopped a run.
pub fn of_run(py: Python<'_>, error: impl Into<RunError>) -> PyErr {
    match error.into() {
        RunError::Plan(error) => of_plan(py, &error),
        RunError::Store(error @ StoreError::Folder { .. }) => input(py, &format!("out: {error}")),
        error if error.is_bad_input() => input(py, &error.to_string()),
        error => failed(py, &error.to_string()),
    }
}

/// The exception for why there is no episode.
pub fn of_rl(py: Python<'_>, error: RlError) -> PyErr {
    match error {
        RlError::Plan(error) => of_plan(py, &error),
        RlError::Backend(error) => of_run(py, error),
        RlError::Wrong(message) => input(py, &message),
    }
}

/// An exception of the class called `class`; where it cannot be made, why.
fn raised<'py>(py: Python<'py>, class: &str, arguments: PyResult<Bound<'py, PyTuple>>) -> PyErr {
    let made = || py.import("forebay.errors")?.getattr(class)?.call1(arguments?);
    made().map_or_else(|error| error, PyErr::from_value)
}
