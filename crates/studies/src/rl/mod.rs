//! Plans as environments in which congestion control is learnt: the simulator stands still at each decision.
//!
//! ```text
//! plan, ranges ──► Scenario ──seed──► Environment: reset, act, advance      (agents decide when it is their turn)
//!                                          └─ Vector: many at a time, each on one of a few threads that stay
//! ```
//! Agents are the flows and bundles of the plan whose algorithm is `learner`. Observations and actions equal those
//! of `policy` ([`forebay_core::cc::policy`]), so a learnt policy runs there unchanged.
//!
//! An episode depends on its scenario and its seed alone: the same actions give the same bytes, on any number of
//! threads.

mod environment;
mod range;
mod reward;
mod scenario;
mod seat;
#[cfg(test)]
mod tests;
mod vector;

pub use environment::Environment;
pub use range::Range;
pub use reward::Reward;
pub use scenario::{Scenario, Settings};
pub use seat::ALGORITHM;
pub use vector::{Batch, Vector};

use forebay_lab::backend::BackendError;
use forebay_lab::plan::PlanError;

/// Why there is no episode.
#[derive(Debug, thiserror::Error)]
pub enum RlError {
    /// The plan, or a value that an episode sets in it, is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No simulator supports the plan.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A wrong argument of the scenario or the environment: value and allowed values.
    #[error("{0}")]
    Wrong(String),
}
