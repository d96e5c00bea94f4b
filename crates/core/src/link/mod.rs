//! Parts of a one-way link: its server at a rate or by a trace, and the jitter added to its delay.
//!
//! The simulator has its own link in events, and the testbed has one in virtual time; this module holds the
//! parts common to both. `forebay-scenario` describes a whole link.

mod generate;
mod jitter;
mod models;
mod path_trace;
mod server;
mod trace;

pub use self::generate::{OPPORTUNITIES_MAX, PoissonTrace};
pub use self::jitter::Jitter;
pub use self::models::{DrawnPath, PathModel};
pub use self::path_trace::{AtEnd, Change, Changes, PathTrace, Replay};
pub use self::server::{Server, Service};
pub use self::trace::{OPPORTUNITY, Trace};
use crate::units::Duration;

/// Longest time for which a link holds a packet back when too few packets come to overtake it. It is half of
/// Linux's minimum retransmission timeout (TCP_RTO_MIN, 200 ms). A reordered packet is then late, but that
/// timer does not take it for lost.
pub const MAX_HOLD: Duration = Duration::from_millis(100);
