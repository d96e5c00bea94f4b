//! A dumbbell: flows over one bottleneck, each with its own round-trip time.
//!
//! ```text
//!  senders ──► bottleneck ── rtt/2 ──► receivers
//!     └◄──────────── rtt/2, any rate ──────┘
//! ```
//! The access links are so fast that they add no delay. All propagation lies behind the bottleneck and on the
//! way back. Acknowledgements meet neither a queue nor a loss.

use forebay_core::spec::Spec;
use forebay_core::traffic::{Receiving, Source};
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_scenario::{self as scenario, Link};

use crate::network::{self, Hop, Network, Traffic};
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
    /// Qdisc of the bottleneck.
    pub qdisc: Spec,
    /// Changes of the bottleneck, in order of time.
    pub changes: Vec<Change>,
    /// The flows; a greedy source is a TCP connection, any other source sends datagrams.
    pub flows: Vec<Flow>,
}

/// A change of the bottleneck; `None` leaves the value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Time since the start of the run.
    pub at: Duration,
    /// New rate, from the next packet on.
    pub rate: Option<Rate>,
    /// New two-way propagation delay for flows without their own, for packets that leave from then on. After
    /// a decrease, they overtake earlier packets.
    pub rtt: Option<Duration>,
    /// New share of packets lost.
    pub loss: Option<Ratio>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Congestion control of a greedy source; other sources have none.
    pub cc: Spec,
    /// Traffic that it sends. Datagram sources give the packet length on the wire.
    pub source: Source,
    /// Start of the flow.
    pub start: Duration,
    /// Two-way propagation delay of the flow alone.
    pub rtt: Option<Duration>,
}

impl From<&Network> for Network {
    fn from(network: &Network) -> Self {
        network.clone()
    }
}

/// Link 0 is the bottleneck; the two other links are the propagation of flows without their own.
impl From<&Dumbbell> for Network {
    fn from(dumbbell: &Dumbbell) -> Self {
        let half = dumbbell.rtt / 2;
        let qdisc = dumbbell.qdisc.clone();
        let mut bottleneck = Link::at_rate("bottleneck", dumbbell.rate, Duration::ZERO, qdisc);
        bottleneck.loss = dumbbell.loss;
        let mut out = Link::delay("out", half);
        let mut back = Link::delay("back", dumbbell.rtt - half);
        for Change { at, rate, rtt, loss } in &dumbbell.changes {
            let change = scenario::Change { at: *at, ..scenario::Change::default() };
            if rate.is_some() || loss.is_some() {
                bottleneck.changes.push(scenario::Change { rate: *rate, loss: *loss, ..change });
            }
            if let Some(rtt) = *rtt {
                let delays = [rtt / 2, rtt - rtt / 2];
                for (link, delay) in [&mut out, &mut back].into_iter().zip(delays) {
                    link.changes.push(scenario::Change { delay: Some(delay), ..change });
                }
            }
        }
        let flows = dumbbell.flows.iter().map(|flow| {
            let (out, back) = match flow.rtt {
                None => (Hop::Link(1), Hop::Link(2)),
                Some(rtt) => (Hop::Delay(rtt / 2), Hop::Delay(rtt - rtt / 2)),
            };
            network::Flow {
                cc: flow.cc.clone(),
                traffic: Traffic::Source(flow.source),
                start: flow.start,
                opened: None,
                stop: None,
                dscp: 0,
                name: String::new(),
                initial_window: None,
                receiving: Receiving::default(),
                data: vec![Hop::Link(0), out],
                back: vec![back],
            }
        });
        let links = vec![bottleneck, out, back];
        let network = Self::of_links(dumbbell.stop, dumbbell.seed, dumbbell.stack, links);
        Self { flows: flows.collect(), ..network }
    }
}
