//! Plans, back ends, metrics, store and reports; [`run()`] takes a plan through all of them.

pub mod algorithms;
pub mod backend;
pub mod bench;
pub mod capture;
pub mod chaos;
pub mod compare;
pub mod demo;
pub mod experiment;
pub mod export;
mod json_lines;
pub mod judge;
pub mod metrics;
pub mod output;
mod parallel;
pub mod plan;
#[cfg(feature = "host")]
pub mod platforms;
pub mod progress;
pub mod recorded;
pub mod regret;
pub mod report;
pub mod reproduce;
pub mod rl;
pub mod rows;
mod run;
mod runner;
pub mod search;
pub mod store;
pub mod summary;
pub mod sweep;

pub use run::{Results, Step, check, run, run_each};
pub use runner::{Ending, Event, Options, Progress, RunError, is_left_to_try};
