//! Plans, back ends, metrics, store and reports.

pub mod plan;
pub mod report;
