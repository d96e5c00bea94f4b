//! Plans, back ends, metrics, store and reports; [`run()`] takes a plan through all stages.

pub mod backend;
pub mod capture;
pub mod compare;
pub mod demo;
pub mod experiment;
pub mod export;
pub mod judge;
pub mod metrics;
pub mod output;
pub mod plan;
#[cfg(feature = "host")]
pub mod platforms;
pub mod progress;
pub mod recorded;
pub mod report;
mod run;
pub mod store;
pub mod summary;
pub mod sweep;
pub mod traces;
pub mod versions;

pub use run::{
    Ending, Event, Options, Progress, Results, RunError, Step, check, guarded, is_left_to_try, run,
    run_each,
};
