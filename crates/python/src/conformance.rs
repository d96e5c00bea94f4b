//! The rules of every algorithm, asked of a class.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use forebay_core::testing::cc::RULES;
use forebay_core::text;
use forebay_lab::algorithms;
use pyo3::prelude::*;

use crate::error;
use crate::watch::take_raised;

/// Names of the rules.
#[pyfunction]
pub fn rules() -> Vec<&'static str> {
    RULES.iter().map(|(name, _)| *name).collect()
}

/// Asks a rule of an algorithm. Gives how the rule is broken; an exception of the class is raised, with a note of what
/// led to it.
#[pyfunction]
pub fn conform(py: Python<'_>, algorithm: &str, rule: &str) -> PyResult<Option<String>> {
    let unknown = |key: &str, value: &str, names: Vec<&str>| {
        let allowed = names.join(", ");
        error::input(py, &format!("{key} = {value:?}: allowed is one of {allowed}"))
    };
    // As the class answers, and not as its host sees it within bounds.
    let own = algorithms::own();
    let named = own.iter().map(|own| &own.algorithm).find(|it| it.name == algorithm);
    let named = named.ok_or_else(|| {
        unknown("algorithm", algorithm, own.iter().map(|own| own.algorithm.name).collect())
    })?;
    let (_, ask) = RULES
        .into_iter()
        .find(|(name, _)| *name == rule)
        .ok_or_else(|| unknown("rule", rule, rules()))?;
    take_raised();
    let outcome = py.detach(|| quietly(|| ask(named)));
    let Err(broken) = outcome else { return Ok(None) };
    match take_raised() {
        None => Ok(Some(broken)),
        Some(raised) => {
            raised.value(py).call_method1("add_note", (broken,))?;
            Err(raised)
        }
    }
}

thread_local! {
    /// Panics of this thread are not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What a panic of `work` says, which nobody prints: a rule is broken again and again while the shortest way to it is
/// looked for. Panics of other threads are printed as before.
fn quietly(work: impl FnOnce()) -> Result<(), String> {
    // A hook is all threads': this one stays, so that none of them changes it under another.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                print(panic);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_QUIET.set(was_quiet);
    outcome.map_err(|panic| text::of_panic(&*panic).unwrap_or_default().into())
}
