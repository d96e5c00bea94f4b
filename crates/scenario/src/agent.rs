//! The agent: how a process that decides for the hosts' kernel TCP hears of its connections.

use std::fmt;

use forebay_core::units::Duration;
use serde::{Deserialize, Serialize};

/// How an agent hears of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// How often the kernel reports.
    pub report: Report,
    /// Time between two looks at the reports, 1 to 10 ms; zero: each report wakes the agent.
    pub period: Duration,
}

/// How often the kernel reports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Each round trip.
    Round,
    /// Each acknowledgement.
    Ack,
    /// At this interval, 100 us to 50 ms.
    Every(Duration),
}

impl Default for Agent {
    /// A report each round trip, at which the agent looks every 10 ms.
    fn default() -> Self {
        Self { report: Report::Round, period: Duration::from_millis(10) }
    }
}

impl fmt::Display for Report {
    /// As `forebay agent` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Round => f.write_str("round"),
            Self::Ack => f.write_str("ack"),
            Self::Every(time) => write!(f, "{}us", time.as_micros()),
        }
    }
}
