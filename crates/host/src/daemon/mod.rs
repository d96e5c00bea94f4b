//! The two daemons: the sendbox, which paces and schedules the traffic of bundles, and the
//! receivebox, which watches it arrive and reports.
//!
//! Both are built the same way: [`config`] says what to do, a worker thread does it and never
//! touches a disk, and the main thread serves the [`control`] socket and waits for signals.

pub mod config;
pub mod control;
pub mod keys;
pub mod lateness;
pub mod privileges;
mod schedule;
pub mod status;
pub mod supervisor;
pub mod trace;

pub use config::{BundleConfig, Config, ConfigError, Role};
