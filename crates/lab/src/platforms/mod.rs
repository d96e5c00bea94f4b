//! One algorithm on every platform: the cost of each compared with the kernel's own.
//!
//! ```text
//! measure ──► store ──► scores, costs, latencies, scaling ──► text, JSON, report.html
//!               └─────► runs with metrics ──► judge: docs/claims.toml ──┘
//! ```
//! Trials of a block take turns of a tenth of a second in a random order. A ratio is always of two
//! trials of one block ([`scores`]). A trial is added to the store as it ends ([`rows`]), so an interrupted
//! measurement resumes there.

pub mod behaviour;
pub mod figures;
pub mod measure;
pub mod platform;
pub mod progress;
pub mod report;
pub mod rows;
pub mod runs;
pub mod scores;
pub mod tables;

use std::path::PathBuf;

use forebay_testbed::cost::CostError;

pub use measure::{MeasureOptions, measure};
pub use platform::{Algorithm, Platform};
use rows::Purpose;
pub use runs::judged;
pub use scores::Metric;

use crate::store::StoreError;

/// The parts that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// CPU scores, CPU time a gigabyte, time of each BPF program.
    Cpu,
    /// Time from report to decision.
    Latency,
    /// From one to a thousand connections.
    Scale,
}

impl What {
    /// All parts, in the order of measurement.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Latency, Self::Scale];

    /// Name of the part in claims.
    pub const fn part(self) -> &'static str {
        match self {
            Self::Cpu => "platforms/cpu",
            Self::Latency => "platforms/latency",
            Self::Scale => "platforms/scale",
        }
    }

    /// Purposes of its trials.
    const fn purposes(self) -> &'static [Purpose] {
        match self {
            Self::Cpu => &[Purpose::Score, Purpose::ProgramTimes],
            Self::Latency => &[Purpose::Latency],
            Self::Scale => &[Purpose::Scale],
        }
    }
}

/// Reason why nothing was measured, or why the measurement ended.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlatformsError {
    #[error(transparent)]
    Cost(#[from] CostError),
    #[error("algorithm {name}: allowed is {allowed}")]
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
    /// Whether the input is at fault: exit code 2.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Cost(error) => error.is_bad_input(),
            Self::Store(error) => error.is_bad_input(),
            Self::Algorithm { .. } | Self::KernelLacks { .. } => true,
            _ => false,
        }
    }
}
