//! One algorithm on every platform: what each costs beside the kernel's own.
//!
//! ```text
//! measure ──► store ──► scores, costs, latencies, scaling ──► judge ──► text, JSON, report.html
//! ```
//! Trials of a block take turns of a tenth of a second in a random order, and a ratio is always of two
//! trials of one block ([`scores`]). A trial joins the store as it ends ([`rows`]), so a measurement that
//! was broken off goes on where it was.

pub mod behaviour;
pub mod behaviour_report;
pub mod fidelity;
pub mod figures;
pub mod measure;
pub mod platform;
pub mod progress;
pub mod report;
pub mod rows;
pub mod scores;
pub mod tables;

use std::path::PathBuf;

use forebay_testbed::cost::CostError;

pub use measure::{Options, measure};
pub use platform::{Algorithm, Platform};
pub use scores::Metric;

use crate::store::StoreError;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// CPU scores, CPU time a gigabyte, time of each BPF program.
    Cpu,
    /// From report to decision.
    Latency,
    /// From one to a thousand connections.
    Scale,
}

impl What {
    /// All of it, in the order in which it is measured.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Latency, Self::Scale];
}

/// Why nothing was measured, or why it ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlatformsError {
    #[error(transparent)]
    Cost(#[from] CostError),
    #[error("algorithm {name}: allowed is one of {allowed}")]
    Algorithm { name: String, allowed: String },
    #[error("algorithm {name}: the kernel has no congestion control {wanted}, it has {available}")]
    KernelLacks { name: String, wanted: String, available: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a trial: {0}")]
    Row(#[from] serde_json::Error),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "no rate between {least} and {most} makes the kernel's {name} use half to seven tenths of the processor: tried {tried}"
    )]
    NoRate { name: String, least: String, most: String, tried: String },
    #[error("no rate can be searched while others use this machine: {reason} in {trials} trials")]
    Disturbed { reason: &'static str, trials: u32 },
}

impl PlatformsError {
    /// Whether the input or the machine is to blame: exit code 2.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Cost(error) => error.is_bad_input(),
            Self::Store(error) => error.is_bad_input(),
            Self::Algorithm { .. } | Self::KernelLacks { .. } => true,
            _ => false,
        }
    }
}
