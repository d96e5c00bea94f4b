//! What is simulated: flows over one bottleneck, each with its own round-trip time.
//!
//! ```text
//!  senders ──► bottleneck ── rtt/2 ──► receivers
//!     └◄──────────── rtt/2, any rate ──────┘
//! ```
//! The access links are so fast that they are no delay; all propagation lies behind the bottleneck and
//! on the way back. Acknowledgements meet neither a queue nor a loss.

use forebay_core::spec::{Spec, SpecError};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio, format_duration};

use crate::tcp::stack::Stack;

/// A dumbbell.
#[derive(Clone, Debug, PartialEq)]
pub struct Dumbbell {
    /// End of the run.
    pub stop: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// TCP preset of all connections.
    pub stack: Stack,
    /// Rate of the bottleneck, wire bytes; zero stops it.
    pub rate: Rate,
    /// Two-way propagation delay of flows without their own.
    pub rtt: Duration,
    /// Share of the packets lost on the wire behind the bottleneck.
    pub loss: Ratio,
    /// Its qdisc.
    pub qdisc: Spec,
    /// Changes of the bottleneck, in order of time.
    pub changes: Vec<Change>,
    /// The flows; a greedy source is a TCP connection, any other sends datagrams.
    pub flows: Vec<Flow>,
}

/// A change of the bottleneck; `None` leaves the value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// When, since the start of the run.
    pub at: Duration,
    /// New rate, from the next packet on.
    pub rate: Option<Rate>,
    /// New two-way propagation delay of flows without their own, of packets that leave from then on;
    /// after a decrease they overtake those before them.
    pub rtt: Option<Duration>,
    /// New share of packets lost.
    pub loss: Option<Ratio>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Congestion control of a greedy source; others have none.
    pub cc: Spec,
    /// What it sends. Packets of datagram sources are as long on the wire as they say.
    pub source: Source,
    /// When it starts.
    pub start: Duration,
    /// Its own two-way propagation delay.
    pub rtt: Option<Duration>,
}

impl Dumbbell {
    /// Refuses changes out of order and sources that cannot send.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        for pair in self.changes.windows(2) {
            if pair[1].at < pair[0].at {
                let allowed = "not before the change above it";
                return Err(SpecError::new("at", &format_duration(pair[1].at), allowed));
            }
        }
        self.flows.iter().try_for_each(|flow| flow.source.check())
    }
}
