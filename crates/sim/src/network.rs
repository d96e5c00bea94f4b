//! What is simulated: links, and flows whose packets take routes over them.
//!
//! ```text
//!  sender ──► hop ──► hop ──► receiver        data route of a flow, its packets
//!     ▲                          │
//!     └──────── hop ◄────────────┘            route back, its acknowledgements
//! ```
//! Access links that are much faster than the rest are no hops: their propagation is a [`Hop::Delay`],
//! their serialization is left out (at 100 times the rate of the bottleneck a hundredth of a packet).

use std::collections::BTreeSet;

use forebay_core::link;
use forebay_core::spec::{Spec, SpecError};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};

use crate::tcp::stack::Stack;

/// A network and what happens in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// End of the run.
    pub stop: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// TCP preset of all connections, and the model of all links.
    pub stack: Stack,
    /// The links.
    pub links: Vec<Link>,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// A one-way link.
///
/// One without a rate, losses, reordering or a log is a mere delay: it costs no event of its own, and
/// its metrics stay 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name, unique in a network: its random numbers follow from it and the seed alone.
    pub name: String,
    /// Rate or trace, one-way propagation delay behind the server, loss, reordering, changes.
    pub config: link::Config,
    /// Share of the boxes' messages that is lost, beside the loss of all packets.
    pub message_loss: Ratio,
    /// Its queue; has no effect on a link without a rate.
    pub qdisc: Spec,
    /// Random walks of its properties.
    pub walks: Vec<Walk>,
    /// Keeps a record of every packet.
    pub log: bool,
}

/// A random walk of a property x of a link:
///
/// ```text
/// d ← correlation · d + N(0, deviation²),   x ← min(max(x + d, min), max)      every interval
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walk {
    /// What walks.
    pub property: Property,
    /// Time between steps, above zero.
    pub interval: Duration,
    /// Correlation of steps, -1 to 1.
    pub correlation: f64,
    /// Standard deviation of the noise, in the unit of the property.
    pub deviation: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
}

/// A property of a link and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Bits per second.
    Rate,
    /// Seconds.
    Delay,
    /// Share of the packets, 0 to 1.
    Loss,
}

/// A part of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// The link of this index.
    Link(usize),
    /// Propagation over something that never delays by a queue.
    Delay(Duration),
    /// The packets of all flows with this route take these in turn.
    Spread(Vec<Vec<Hop>>),
}

/// What a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A greedy source is a TCP connection, any other sends datagrams as long on the wire as it says.
    Source(Source),
    /// A TCP connection that sends what [`crate::Simulation::write`] writes to it.
    Written,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Congestion control of a TCP connection; datagrams have none.
    pub cc: Spec,
    /// What it sends.
    pub traffic: Traffic,
    /// When it starts: a TCP connection with its handshake.
    pub start: Duration,
    /// When it ends: no datagram and no new segment is sent from then on.
    pub stop: Option<Duration>,
    /// From the sender to the receiver.
    pub data: Vec<Hop>,
    /// From the receiver to the sender; unused by datagrams.
    pub back: Vec<Hop>,
}

impl Link {
    /// A link with the queue `qdisc` and nothing else.
    pub fn new(name: &str, config: link::Config, qdisc: Spec) -> Self {
        let (message_loss, walks) = (Ratio::ZERO, Vec::new());
        Self { name: name.into(), config, message_loss, qdisc, walks, log: false }
    }

    /// A link without a rate, loss or queue.
    pub fn delay(name: &str, delay: Duration) -> Self {
        let config = link::Config {
            service: link::Service::Unlimited,
            ..link::Config::at_rate(Rate::ZERO, delay)
        };
        Self::new(name, config, Spec::named("fifo"))
    }

    /// It does nothing but delay.
    pub(crate) fn is_delay(&self) -> bool {
        let config = &self.config;
        let is_lossless = config.loss == Ratio::ZERO && self.message_loss == Ratio::ZERO;
        let sets_more = |change: &link::Change| change.rate.is_some() || change.loss.is_some();
        config.service == link::Service::Unlimited
            && is_lossless
            && config.reorder == Ratio::ZERO
            && !self.log
            && !config.changes.iter().any(sets_more)
            && self.walks.iter().all(|walk| walk.property == Property::Delay)
    }

    /// Its delay never changes.
    pub(crate) fn is_constant(&self) -> bool {
        self.walks.iter().all(|walk| walk.property != Property::Delay)
            && self.config.changes.iter().all(|change| change.delay.is_none())
    }

    fn check(&self) -> Result<(), SpecError> {
        self.config.check()?;
        let is_trace = matches!(self.config.service, link::Service::Trace(_));
        for walk in &self.walks {
            let refused = |name: &str, value: f64, allowed: &str| {
                Err(SpecError::new(name, &value.to_string(), allowed))
            };
            if is_trace && walk.property == Property::Rate {
                return refused("walk", walk.max, "no walk of the rate on a link with a trace");
            }
            if walk.interval.is_zero() {
                return refused("interval", 0.0, "more than 0s");
            }
            if !(-1.0..=1.0).contains(&walk.correlation) {
                return refused("correlation", walk.correlation, "-1 to 1");
            }
            if !(walk.deviation >= 0.0 && walk.deviation.is_finite()) {
                return refused("deviation", walk.deviation, "a finite number from 0");
            }
            let top = if walk.property == Property::Loss { 1.0 } else { 1e15 };
            if !(walk.min >= 0.0 && walk.min <= walk.max && walk.max <= top) {
                return refused(
                    "max",
                    walk.max,
                    "at least min, which is at least 0; of a loss at most 1",
                );
            }
        }
        Ok(())
    }
}

impl Network {
    /// Refuses links of equal names, changes out of order, routes over links that do not exist or over
    /// one twice, and sources that cannot send.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let mut names = BTreeSet::new();
        for link in &self.links {
            link.check().map_err(|error| error.within(&link.name))?;
            if !names.insert(&link.name) {
                return Err(SpecError::new("name", &link.name, "each name once among the links"));
            }
        }
        for flow in &self.flows {
            self.check_route(&flow.data, &mut BTreeSet::new())?;
            self.check_route(&flow.back, &mut BTreeSet::new())?;
            if let Traffic::Source(source) = flow.traffic {
                source.check()?;
            }
        }
        Ok(())
    }

    fn check_route(&self, route: &[Hop], links: &mut BTreeSet<usize>) -> Result<(), SpecError> {
        for hop in route {
            match hop {
                Hop::Link(link) if *link >= self.links.len() || !links.insert(*link) => {
                    let allowed = "the index of a link, each at most once on a route";
                    return Err(SpecError::new("route", &link.to_string(), allowed));
                }
                Hop::Link(_) | Hop::Delay(_) => {}
                Hop::Spread(routes) if routes.is_empty() => {
                    return Err(SpecError::new("spread", "0 routes", "at least one route"));
                }
                Hop::Spread(routes) => {
                    routes.iter().try_for_each(|route| self.check_route(route, links))?;
                }
            }
        }
        Ok(())
    }
}
