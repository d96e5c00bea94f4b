//! Would a bundle help on a path? The observations of a prober, the figures derived from them, and the
//! verdict.
//!
//! ```text
//!  Observed: pings, looks at TCP connections, answers of routers, the own qdisc
//!     │ Findings::of       figures of delay, rate, loss and ways
//!     ▼
//!  Findings
//!     │ judge              who makes a queue, and where
//!     ▼
//!  Verdict: yes, no or unclear, why, and the queue that a bundle would take out of the network
//! ```
//! A probe is idle first, then loads the path with a few connections and at last with many. A queue is the
//! time that many connections add to the idle round trip. A rate that grows with the number of connections
//! has not met its limit.

mod findings;
mod path;
mod verdict;

use alloc::vec::Vec;

pub use self::findings::Findings;
pub use self::path::probed_rows;
pub use self::verdict::{Answer, Reason, Verdict, judge};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Everything that a probe has seen. Times count from the start of the probe.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Small packets to the peer, in the order in which they were sent.
    pub pings: Vec<Ping>,
    /// The connections of the load, each looked at many times, in order of time.
    pub looks: Vec<FlowLook>,
    /// Answers of routers on the way.
    pub hops: Vec<HopAnswer>,
    /// The qdisc of the device towards the peer, in order of time.
    pub backlog: Vec<BacklogLook>,
    /// When the path was loaded; `None`: never.
    pub load: Option<Load>,
    /// Upper limit of the load.
    pub max_rate: Rate,
    /// Number of routers of the way that belong to the site.
    pub site_hops: u8,
}

/// The two parts of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The first connections alone.
    pub few: LoadPhase,
    /// All connections; the first ones continue.
    pub many: LoadPhase,
}

/// A part of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadPhase {
    /// TCP connections that send.
    pub flows: u16,
    /// The first connection may send.
    pub from: Timestamp,
    /// The part ends.
    pub to: Timestamp,
}

impl LoadPhase {
    /// The part without its beginning, in which connections look for their window: it lasts a quarter of the
    /// part, at least a second and at most half.
    fn steady(self) -> (Timestamp, Timestamp) {
        let whole = self.to.saturating_since(self.from);
        let start = (whole / 4).max(Duration::from_secs(1)).min(whole / 2);
        (self.from + start, self.to)
    }
}

/// One small packet to the peer and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// When it was sent.
    pub at: Timestamp,
    /// Which source port it had, counted from 0: each may have a way of its own.
    pub port: u16,
    /// Round-trip time; `None`: nothing came back in time.
    pub rtt: Option<Duration>,
    /// Time of arrival at the peer less the time of sending (ns), on two clocks that are not set to each
    /// other: only differences count. `None`: the peer reports no times.
    pub forward_ns: Option<i64>,
}

/// A TCP connection of the load at one instant, as in the kernel's `struct tcp_info`. Counters run from the
/// start of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLook {
    /// When it was seen.
    pub at: Timestamp,
    /// Which connection, counted from 0.
    pub flow: u16,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Bytes acknowledged.
    pub acked: ByteCount,
    /// Segments with data sent, those sent again included.
    pub sent: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Time in which there was something to send.
    pub busy: Duration,
    /// Part of the busy time in which the peer's receive window allowed no more.
    pub window_limited: Duration,
}

/// The answer of a router, or of the peer, to a packet that had used up its hops there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopAnswer {
    /// When the packet was sent.
    pub at: Timestamp,
    /// Hops up to the router that answered, including it.
    pub hops: u8,
    /// Time until the answer.
    pub rtt: Duration,
}

/// The backlog of the own qdisc at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogLook {
    /// When it was seen.
    pub at: Timestamp,
    /// Bytes that waited.
    pub bytes: ByteCount,
}
