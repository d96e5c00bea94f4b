//! Plans, back ends, metrics, store and reports.

pub mod backend;
pub mod metrics;
pub mod plan;
pub mod report;
pub mod rows;
pub mod store;
