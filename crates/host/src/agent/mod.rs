//! The agent: algorithms of `forebay-core` decide for the connections of this machine's kernel.
//!
//! ```text
//! kernel   every ACK ──► fold ──► report, once a round trip ──► records ─┐
//!             ▲                                                          ▼
//!             └── slot ◄── decision ◄── algorithm ◄── measurement, events         agent
//! ```
//! The kernel's side ([`forebay_ebpf::tcp`]) measures and enforces; it acts within a round trip by the
//! [`Law`](forebay_core::cc::Law) of the last decision. All that decides is in [`flow`] (one
//! connection) and [`connections`] (all of them), without clock and I/O; `worker` is the loop around
//! them. [`recording`] and [`replay`] make a test of what happened in the field.
//!
//! An agent that dies, hangs or is stopped leaves every connection to a law in the kernel.

pub mod connections;
pub mod features;
pub mod flow;
mod idle;
pub mod native;
pub mod recording;
pub mod replay;
pub mod rows;
pub mod rules;
mod silence;
pub mod status;
mod wakes;
mod worker;

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use forebay_core::units::{ByteCount, parse_duration};
pub use forebay_ebpf::tcp::Cadence;
pub use worker::run;

use self::rules::Rules;
use crate::service::privileges;

/// Shortest and longest time between two looks at the reports, unless each wakes the agent.
pub const PERIOD_MIN: Duration = Duration::from_micros(500);
/// See [`PERIOD_MIN`].
pub const PERIOD_MAX: Duration = Duration::from_millis(10);

/// [`Config::slots`] that are allowed.
pub const SLOTS: RangeInclusive<u32> = 1..=65_535;
/// As many as there are unless told.
pub const SLOTS_DEFAULT: u32 = 16_384;

/// A report a round, no more than one a millisecond.
const ROUND_MIN: Duration = Duration::from_millis(1);
/// Shortest and longest time between reports.
const EVERY_MIN: Duration = Duration::from_micros(100);
const EVERY_MAX: Duration = Duration::from_millis(50);

/// Reads how often the kernel reports: `round`, `ack` or a time of 100 us to 50 ms; `None` of anything
/// else.
pub fn cadence(text: &str) -> Option<Cadence> {
    match text {
        "round" => Some(Cadence::Round { at_least: ROUND_MIN }),
        "ack" => Some(Cadence::Every(Duration::ZERO)),
        text => {
            let time = parse_duration(text).ok();
            time.filter(|time| (EVERY_MIN..=EVERY_MAX).contains(time)).map(Cadence::Every)
        }
    }
}

/// Whether an agent can have this [`Config::period`].
pub fn is_period(period: Duration) -> bool {
    period.is_zero() || (PERIOD_MIN..=PERIOD_MAX).contains(&period)
}

/// Whether congestion controls of this program can be registered here: says what is missing.
pub fn check() -> Result<(), AgentError> {
    privileges::check_agent().map_err(AgentError::Privilege)?;
    Ok(features::check()?)
}

/// What an agent does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The algorithms, and who gets which.
    pub rules: Rules,
    /// How often the kernel reports of a connection.
    pub cadence: Cadence,
    /// Time between two looks at the reports while there are any, [`PERIOD_MIN`] to [`PERIOD_MAX`],
    /// and not longer than a quarter of the shortest round trip, 3 ms or the time between two reports of
    /// a connection, whichever is longest; up to a fifth of it, or 0.6 ms, more where that spares an
    /// interrupt; zero: each report wakes the agent.
    pub period: Duration,
    /// CPU time wasted for every acknowledgement that is reported: a cost that is known, to see
    /// whether a measurement shows it. Zero in earnest.
    pub burden: Duration,
    /// Algorithms that only set a window are paced, too.
    pub pace: bool,
    /// The names stay with the kernel when the agent ends, and its successor takes them over: the
    /// folder in bpffs that holds them.
    pub pins: Option<PathBuf>,
    /// Record to this file, which must not be there yet, at most so many bytes.
    pub recording: Option<(PathBuf, ByteCount)>,
    /// Connections of each name for which it decides at a time, one of [`SLOTS`].
    pub slots: u32,
    /// Seed of all random choices; `None`: one that nobody knows.
    pub seed: Option<u64>,
    /// Control socket; `None`: in /run/forebay, named after the first algorithm.
    pub control: Option<PathBuf>,
}

impl Config {
    /// Path of the control socket.
    pub fn control_path(&self) -> PathBuf {
        let name = self.rules.choices()[0].kernel_name();
        let default = || PathBuf::from(format!("/run/forebay/agent-{name}.sock"));
        self.control.clone().unwrap_or_else(default)
    }
}

/// Why an agent did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent lacks the privileges.
    #[error("{0}")]
    Privilege(io::Error),
    /// The kernel lacks something.
    #[error("{0}")]
    Unsupported(#[from] features::Missing),
    /// The kernel refused.
    #[error(transparent)]
    Ebpf(#[from] forebay_ebpf::Error),
    /// Something else at the start.
    #[error("{0}")]
    SetUp(io::Error),
    /// Something after the start.
    #[error("{0}")]
    Failed(io::Error),
}

impl AgentError {
    /// Whether an agent cannot run here, whatever the kernel would say, or not into this recording: exit
    /// code 2.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Privilege(_) | Self::Unsupported(_) => true,
            Self::Ebpf(error) => matches!(error, forebay_ebpf::Error::Privilege),
            Self::SetUp(error) => {
                matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::InvalidInput)
            }
            Self::Failed(_) => false,
        }
    }
}
