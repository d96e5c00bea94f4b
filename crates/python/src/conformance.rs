//! Checks the rules of every algorithm on a class.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use forebay_core::testing::cc::RULES;
use forebay_core::text;
use forebay_policy::algorithms;
use pyo3::prelude::*;

use crate::error;
use crate::watch::take_raised;

/// Names of the rules.
#[pyfunction]
pub fn rules() -> Vec<&'static str> {
    RULES.iter().map(|(name, _)| *name).collect()
}

/// Checks a rule on an algorithm. Returns how the rule is broken. If the class raises an exception, it is
/// passed on with a note on the calls before it.
#[pyfunction]
pub fn conform(py: Python<'_>, algorithm: &str, rule: &str) -> PyResult<Option<String>> {
    let unknown = |key: &str, value: &str, names: Vec<&str>| {
        let allowed = names.join(", ");
        error::input(py, &format!("{key} = {value:?}: allowed is one of {allowed}"))
    };
    // The class's own answers, before the host clamps them.
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

/// Text of a panic in `work`, which is not printed: the search for the shortest example breaks the rule many
/// times. Panics of other threads are printed as before.
fn quietly(work: impl FnOnce()) -> Result<(), String> {
    /// All threads share the hook. It stays, so that no thread changes it while another one needs
    /// it.
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
