//! Plans, back ends, metrics, store and reports.

pub mod backend;
pub mod chaos;
pub mod demo;
pub mod judge;
pub mod metrics;
pub mod output;
pub mod plan;
#[cfg(feature = "host")]
pub mod platforms;
pub mod progress;
pub mod report;
pub mod rows;
pub mod runner;
pub mod store;
pub mod summary;
