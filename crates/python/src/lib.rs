//! The module `forebay._forebay` behind the Python package `forebay`. The user's interface and its
//! documentation are in `python/forebay`.
//!
//! ```text
//! python/forebay ──► plan, run, results, sweep ──► forebay_lab (errors: classes of forebay.errors)
//!   @algorithm ────► algorithm ──► forebay_policy::algorithms, which calls back on the thread of a run
//!   rl ────────────► rl, policy ─► forebay_studies::rl, forebay_policy
//!                    conformance: the rules of core for such a class
//! ```
//! The interface passes plain data: numbers, texts, JSON, columns as bytes that numpy reads, and numpy arrays
//! as buffers that are read and filled. The interpreter is released while anything runs.

mod algorithm;
mod calls;
mod conformance;
mod error;
mod plain;
mod plan;
mod policy;
mod results;
mod rl;
mod run;
mod sweep;
mod watch;

use forebay_core::cc::policy::observation::FEATURES;
use forebay_lab::store::Build;
use forebay_studies::rl::Reward;
use pyo3::prelude::*;

/// Sources of this module.
const BUILD: Build = Build {
    commit: env!("FOREBAY_COMMIT"),
    sim: env!("FOREBAY_SOURCES_SIM"),
    emu: env!("FOREBAY_SOURCES_EMU"),
    ns3: env!("FOREBAY_SOURCES_NS3"),
};

/// The native half of the package `forebay`.
#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("COMMIT", BUILD.commit)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("SOURCES", BUILD.sim)?;
    module.add("FEATURES", FEATURES.map(|it| (it.name, it.low, it.high)).to_vec())?;
    module.add("REWARDS", Reward::ALL.map(|(name, _)| name).to_vec())?;
    module.add_class::<plan::Plan>()?;
    module.add_class::<algorithm::Start>()?;
    module.add_class::<algorithm::Measurement>()?;
    module.add_class::<algorithm::Limits>()?;
    module.add_class::<rl::Scenario>()?;
    module.add_class::<rl::Environment>()?;
    module.add_class::<rl::Vector>()?;
    module.add_class::<rl::Outcome>()?;
    module.add_class::<policy::Policy>()?;
    module.add_function(wrap_pyfunction!(algorithm::register, module)?)?;
    module.add_function(wrap_pyfunction!(conformance::rules, module)?)?;
    module.add_function(wrap_pyfunction!(conformance::conform, module)?)?;
    module.add_function(wrap_pyfunction!(run::run, module)?)?;
    module.add_function(wrap_pyfunction!(run::bench, module)?)?;
    module.add_function(wrap_pyfunction!(run::search, module)?)?;
    module.add_function(wrap_pyfunction!(results::compare, module)?)?;
    module.add_function(wrap_pyfunction!(results::read, module)?)?;
    module.add_function(wrap_pyfunction!(results::table, module)?)?;
    module.add_function(wrap_pyfunction!(results::series, module)?)?;
    module.add_function(wrap_pyfunction!(results::figures, module)?)?;
    module.add_class::<sweep::Stop>()?;
    module.add_function(wrap_pyfunction!(sweep::jobs, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::failed, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::schema, module)?)?;
    module.add_function(wrap_pyfunction!(sweep::adopt, module)?)?;
    Ok(())
}
