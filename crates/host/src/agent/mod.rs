//! The agent: algorithms of `forebay-core` decide for the connections of this machine's kernel.
//!
//! ```text
//! kernel   every ACK ──► fold ──► report, once a round trip ──► records ─┐
//!             ▲                                                          ▼
//!             └── slot ◄── decision ◄── algorithm ◄── measurement, events         agent
//! ```
//! The kernel's side ([`forebay_ebpf::tcp`]) measures and enforces. Within a round trip it acts by the
//! [`Interim`](forebay_core::cc::Interim) of the last decision. [`flow`] (one connection) and
//! [`connections`] (all of them) make all decisions, without clock and I/O; `worker` is the loop around
//! them. [`recording`] and [`replay`] turn an observation in the field into a test.
//!
//! If an agent dies, hangs or is stopped, a fallback in the kernel controls its connections.

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

/// Shortest and longest time between two looks at the reports, unless each report wakes the agent.
pub const PERIOD_MIN: Duration = Duration::from_micros(500);
/// See [`PERIOD_MIN`].
pub const PERIOD_MAX: Duration = Duration::from_millis(10);

/// Allowed values of [`AgentConfig::slots`].
pub const SLOTS: RangeInclusive<u32> = 1..=65_535;
/// Default of [`AgentConfig::slots`].
pub const SLOTS_DEFAULT: u32 = 16_384;

/// Least time between reports with the cadence `round`: at most one report per millisecond.
const ROUND_MIN: Duration = Duration::from_millis(1);
/// Shortest configurable time between reports.
const EVERY_MIN: Duration = Duration::from_micros(100);
/// Longest configurable time between reports.
const EVERY_MAX: Duration = Duration::from_millis(50);

/// Reads how often the kernel reports: `round`, `ack` or a time of 100 us to 50 ms. Returns `None` for
/// any other text.
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

/// Whether `period` is allowed as [`AgentConfig::period`].
pub fn is_period(period: Duration) -> bool {
    period.is_zero() || (PERIOD_MIN..=PERIOD_MAX).contains(&period)
}

/// Checks that congestion controls of this program can be registered here. The error names the first
/// missing feature.
pub fn check() -> Result<(), AgentError> {
    privileges::check_agent().map_err(AgentError::Privilege)?;
    Ok(features::check()?)
}

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The algorithms, and the rules that assign them to connections.
    pub rules: Rules,
    /// How often the kernel reports on a connection.
    pub cadence: Cadence,
    /// Time between two looks at the reports while reports come: [`PERIOD_MIN`] to [`PERIOD_MAX`]. Zero:
    /// each report wakes the agent. The time is at most the longest of three: a quarter of the shortest
    /// round trip, 3 ms, and the time between two reports of a connection. A sleep may last up to a
    /// fifth of the period, or 0.6 ms, longer if that saves an interrupt.
    pub period: Duration,
    /// CPU time wasted for every reported acknowledgement: a known cost, to check that a measurement
    /// shows it. Zero in normal use.
    pub burden: Duration,
    /// Algorithms that only set a window are paced, too.
    pub pace: bool,
    /// Folder in bpffs that holds the names. If it is given, the names stay registered when the agent
    /// ends, and its successor takes them over.
    pub pins: Option<PathBuf>,
    /// Recording file, which must not exist yet, and its largest size.
    pub recording: Option<(PathBuf, ByteCount)>,
    /// Connections per name that the agent can control at a time, within [`SLOTS`].
    pub slots: u32,
    /// Seed of all random choices; `None`: a random one.
    pub seed: Option<u64>,
    /// Control socket; `None`: in /run/forebay, named after the first algorithm.
    pub control: Option<PathBuf>,
}

impl AgentConfig {
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
    /// A failure at the start that no other variant covers.
    #[error("{0}")]
    SetUp(io::Error),
    /// A failure after the start that no other variant covers.
    #[error("{0}")]
    Failed(io::Error),
}

impl AgentError {
    /// Whether an option is wrong (exit code 2), such as the file of a recording that exists already.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::SetUp(error)
                if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::InvalidInput)
        )
    }
}
