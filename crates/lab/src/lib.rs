//! Plans, back ends, metrics, store and reports.
