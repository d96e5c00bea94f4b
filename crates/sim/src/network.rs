//! The simulated network: links, and flows with routes over them.
//!
//! ```text
//!  sender ──► hop ──► hop ──► receiver        data route of a flow, its packets
//!     ▲                          │
//!     └──────── hop ◄────────────┘            route back, its acknowledgements
//! ```
//! Access links much faster than the rest are not hops. Their propagation is a [`Hop::Delay`]. Their
//! serialization is left out: at 100 times the bottleneck's rate it is a hundredth of a packet.

use std::collections::BTreeSet;

use forebay_core::bundle::uplink;
use forebay_core::link::Service;
use forebay_core::spec::{Spec, SpecError};
use forebay_core::traffic::{Conduct, Receiving, Source};
use forebay_core::units::{Duration, Rate, Ratio, format_duration};
use forebay_scenario::{Bundle, Change, Link, Property, Uplink};

use crate::tcp::stack::Stack;

/// A network and the traffic and changes in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// End of the run.
    pub stop: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// TCP preset of all connections, and the model of all links.
    pub stack: Stack,
    /// The links. A link without a rate, losses, reordering or a log is a mere delay. It costs no event of
    /// its own, and its metrics stay 0.
    pub links: Vec<Link>,
    /// Indices of the links that keep a record of every packet.
    pub logged: BTreeSet<usize>,
    /// The bundles.
    pub bundles: Vec<RoutedBundle>,
    /// The sendboxes that share a line among several bundles.
    pub uplinks: Vec<Uplink>,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// A bundle and its routes. A flow whose route contains it as a [`Hop`] belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedBundle {
    /// The scenario's settings of its boxes.
    pub of: Bundle,
    /// Route from the sendbox to the receivebox, without bundles.
    pub path: Vec<Hop>,
    /// Route of messages from the receivebox to the sendbox, without bundles.
    pub back: Vec<Hop>,
    /// Rate of traffic that the receivebox counts for the bundle although no sendbox sent it.
    pub foreign: Rate,
    /// Mean of the exponential time by which the sendbox wakes up late for each departure.
    pub wake_delay: Duration,
    /// The sendbox only reports the rate that it would set.
    pub dry_run: bool,
    /// Changes to the boxes during the run, in order of time.
    pub changes: Vec<BundleChange>,
    /// Whether the sendbox keeps epochs, decisions and samples of the queue.
    pub log: bool,
}

impl RoutedBundle {
    /// The bundle `of` over `path`, without changes.
    pub fn new(of: Bundle, path: Vec<Hop>, back: Vec<Hop>) -> Self {
        Self {
            of,
            path,
            back,
            foreign: Rate::ZERO,
            wake_delay: Duration::ZERO,
            dry_run: false,
            changes: Vec::new(),
            log: false,
        }
    }
}

/// A change to the boxes of a bundle at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BundleChange {
    /// Time since the start of the run.
    pub at: Duration,
    /// The change.
    pub what: Upset,
}

/// A change to the boxes of a bundle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Upset {
    /// From now on this share of the packets is [`Bundle::unseen`].
    Unseen(Ratio),
    /// From now on this rate is [`RoutedBundle::foreign`].
    Foreign(Rate),
    /// The receivebox reports no boundary from now on, or reports again. It still counts, and the sendbox
    /// sees it alive.
    Unreported(bool),
    /// The receivebox's machine sleeps from now on, or wakes. During sleep its clock stands still, and
    /// packets and messages pass it unseen.
    Suspended(bool),
    /// A signal to the sendbox's process.
    Sendbox(Signal),
    /// A signal to the receivebox's process.
    Receivebox(Signal),
}

/// A signal to the process of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The process ends without a farewell and loses its contents. From then on the kernel forwards.
    Kill,
    /// The process stands still. Arrivals wait in its rings until its heartbeat is too old.
    Stop,
    /// After a stop, the process continues with the items in its rings.
    Continue,
    /// After a kill, the process starts again.
    Restart,
    /// The process starts again with a key unknown to the peer.
    RestartOtherKey,
}

/// Most segments of a connection. The margin of 2^24 keeps the numbers of segments in flight from wrapping.
const MOST_SEGMENTS: u128 = (u32::MAX - (1 << 24)) as u128;

/// A part of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// The link of this index.
    Link(usize),
    /// Propagation over a path without a queue.
    Delay(Duration),
    /// The bundle of this index: its sendbox, its path and its receivebox.
    Bundle(usize),
    /// Only the sendbox of the bundle of this index. The route of packets that expire before the receivebox
    /// follows.
    Sendbox(usize),
    /// The packets of all flows with this route take these routes in turn.
    Spread(Vec<Vec<Hop>>),
    /// Each flow keeps to one of these routes, chosen by the seed and the flow's number (ECMP). On the path
    /// of a bundle, the messages of each direction are one flow.
    Hashed(Vec<Vec<Hop>>),
}

/// The traffic of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A greedy source is a TCP connection. Any other source sends datagrams; it gives their length on the
    /// wire.
    Source(Source),
    /// A TCP connection that sends the bytes which [`crate::Simulation::write`] writes to it.
    Written,
    /// A TCP connection for each message that [`crate::Simulation::open`] sends: handshake, data, end. The
    /// next connection reuses its memory.
    Messages(Opener),
    /// Datagrams of [`crate::PING_FRAME_BYTES`], each answered by one of the same size. The client sends the
    /// next when the answer arrives, or after a second.
    Ping,
}

/// The end that opens a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    /// The end that sends data.
    Sender,
    /// The end that receives data: it asks for the data once the connection is open.
    Receiver,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Name in messages to the user; if empty, they give the flow's index.
    pub name: String,
    /// Congestion control of a TCP connection; datagrams have none.
    pub cc: Spec,
    /// The traffic that it sends.
    pub traffic: Traffic,
    /// Start of the flow; a TCP connection starts with its handshake.
    pub start: Duration,
    /// Round-trip time of a handshake before the run; the connection then starts with data.
    pub opened: Option<Duration>,
    /// End of the flow: it sends no datagram and no new segment from then on. Messages are sent whole.
    pub stop: Option<Duration>,
    /// DSCP of all its packets in both directions, 0 to 63, for queues with rules about it.
    pub dscp: u8,
    /// Segments that a TCP connection sends before the first acknowledgement; `None`: the stack's default.
    pub initial_window: Option<u32>,
    /// Reading and acknowledging by the receivers of TCP connections. Only an endless greedy source may have
    /// a dishonest receiver, or one that reads at a rate.
    pub receiving: Receiving,
    /// Route from the sender to the receiver.
    pub data: Vec<Hop>,
    /// Route from the receiver to the sender. Datagrams do not use it; answers to pings do.
    pub back: Vec<Hop>,
}

impl Flow {
    /// Refuses a dishonest receiver, or one that reads at a rate, except for an endless greedy source:
    /// another transfer might never complete.
    fn check_receiving(&self) -> Result<(), SpecError> {
        let Receiving { conduct, read_rate, .. } = self.receiving;
        let is_endless = self.traffic == Traffic::Source(Source::Greedy { bytes: None });
        if is_endless || (conduct == Conduct::Honest && read_rate.is_none()) {
            return Ok(());
        }
        let (key, value) = match read_rate {
            Some(rate) => ("read_rate", rate.to_string()),
            None => ("receiver", format!("{conduct:?}")),
        };
        Err(SpecError::new(key, &value, "none, except with an endless greedy source"))
    }
}

impl Hop {
    fn has_bundle(&self) -> bool {
        match self {
            Self::Bundle(_) | Self::Sendbox(_) => true,
            Self::Spread(routes) | Self::Hashed(routes) => {
                routes.iter().flatten().any(Self::has_bundle)
            }
            Self::Link(_) | Self::Delay(_) => false,
        }
    }
}

impl Network {
    /// A network of `links` without flows.
    pub fn of_links(stop: Duration, seed: u64, stack: Stack, links: Vec<Link>) -> Self {
        let (logged, bundles, uplinks, flows) = Default::default();
        Self { stop, seed, stack, links, logged, bundles, uplinks, flows }
    }

    /// Refuses links or bundles of equal names and changes out of order. Refuses routes over unknown links or
    /// twice over one link, shares that do not fit, and sources that cannot send.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let mut names = BTreeSet::new();
        for link in &self.links {
            link.check().map_err(|error| error.within(&link.name))?;
            if !names.insert(&link.name) {
                return Err(SpecError::new("name", &link.name, "a unique name among the links"));
            }
        }
        for bundle in &self.bundles {
            if !names.insert(&bundle.of.name) {
                let allowed = "a unique name among links and bundles";
                return Err(SpecError::new("name", &bundle.of.name, allowed));
            }
            if let Some(late) = bundle.changes.windows(2).find(|pair| pair[1].at < pair[0].at) {
                let at = format_duration(late[1].at);
                return Err(SpecError::new("at", &at, "not before the change above it"));
            }
            if bundle.path.iter().chain(&bundle.back).any(Hop::has_bundle) {
                let allowed = "no bundle on the path of a bundle";
                return Err(SpecError::new("path", &bundle.of.name, allowed));
            }
            self.check_route(&bundle.path, &mut BTreeSet::new())?;
            self.check_route(&bundle.back, &mut BTreeSet::new())?;
        }
        self.check_uplinks()?;
        for flow in &self.flows {
            self.check_route(&flow.data, &mut BTreeSet::new())?;
            self.check_route(&flow.back, &mut BTreeSet::new())?;
            if let Traffic::Source(source) = flow.traffic {
                source.check()?;
                self.check_numbers(&source, &flow.data)?;
            }
            flow.check_receiving()?;
        }
        Ok(())
    }

    fn check_uplinks(&self) -> Result<(), SpecError> {
        let mut shared = BTreeSet::new();
        for Uplink { shares, bundles } in &self.uplinks {
            let is_known = |bundle: &usize| *bundle < self.bundles.len() && shared.insert(*bundle);
            if bundles.len() != shares.bundles.len() || !bundles.iter().all(is_known) {
                let allowed = "one share per bundle, each bundle in at most one uplink";
                return Err(SpecError::new("uplink", &format!("{bundles:?}"), allowed));
            }
            uplink::Uplink::new(shares).map_err(|refused| {
                let of = match refused.place {
                    uplink::UplinkPart::Uplink => "uplink".into(),
                    uplink::UplinkPart::Group(group) => format!("group {group}"),
                    uplink::UplinkPart::Bundle(place) => {
                        self.bundles[bundles[place]].of.name.clone()
                    }
                };
                refused.error.within(&of)
            })?;
        }
        Ok(())
    }

    /// Segment numbers have 32 bits and never wrap: refuses a run in which a connection could use all of
    /// them.
    fn check_numbers(&self, source: &Source, route: &[Hop]) -> Result<(), SpecError> {
        let Source::Greedy { bytes } = source else { return Ok(()) };
        let mss = u128::from(self.stack.tcp.mss);
        let segments = match (bytes, self.fastest(route)) {
            (Some(bytes), _) => u128::from(bytes.as_u64()) / mss,
            (None, Some(bits_per_s)) => bits_per_s * self.stop.as_nanos() / (8_000_000_000 * mss),
            // Windows limit such a connection; nothing more is known before the run.
            (None, None) => return Ok(()),
        };
        if segments <= MOST_SEGMENTS {
            return Ok(());
        }
        let allowed = format!("at most {MOST_SEGMENTS} segments per connection (rate x stop)");
        Err(SpecError::new("segments", &segments.to_string(), &allowed))
    }

    /// Highest rate of a route at any time, in bits per second; `None` if nothing limits it.
    fn fastest(&self, route: &[Hop]) -> Option<u128> {
        let of = |hop: &Hop| match hop {
            Hop::Link(link) => fastest(self.links.get(*link)?),
            Hop::Delay(_) | Hop::Sendbox(_) => None,
            Hop::Bundle(bundle) => self.fastest(&self.bundles.get(*bundle)?.path),
            Hop::Spread(routes) => routes.iter().map(|route| self.fastest(route)).sum(),
            Hop::Hashed(routes) => {
                let rates: Option<Vec<u128>> = routes.iter().map(|it| self.fastest(it)).collect();
                rates?.into_iter().max()
            }
        };
        route.iter().filter_map(of).min()
    }

    /// Whether link `index` does nothing but delay.
    pub(crate) fn is_delay(&self, index: usize) -> bool {
        let link = &self.links[index];
        let is_lossless = link.loss == Ratio::ZERO && link.message_loss == Ratio::ZERO;
        let sets_more = |change: &Change| change.rate.is_some() || change.loss.is_some();
        link.service == Service::Unlimited
            && is_lossless
            && link.reorder == Ratio::ZERO
            && link.jitter.is_zero()
            && link.batch.is_zero()
            && !self.logged.contains(&index)
            && !link.clears_ecn
            && !link.changes.iter().any(sets_more)
            && link.walks.iter().all(|walk| walk.property == Property::Delay)
            && ![Property::Rate, Property::Loss].into_iter().any(|it| link.replays(it))
    }

    fn check_route(&self, route: &[Hop], links: &mut BTreeSet<usize>) -> Result<(), SpecError> {
        for hop in route {
            match hop {
                Hop::Link(link) if *link >= self.links.len() || !links.insert(*link) => {
                    let allowed = "the index of a link, at most once per route";
                    return Err(SpecError::new("route", &link.to_string(), allowed));
                }
                Hop::Link(_) | Hop::Delay(_) => {}
                Hop::Bundle(index) => {
                    let Some(bundle) = self.bundles.get(*index) else {
                        let allowed = "the index of a bundle";
                        return Err(SpecError::new("route", &index.to_string(), allowed));
                    };
                    self.check_route(&bundle.path, links)?;
                }
                Hop::Sendbox(index) if *index >= self.bundles.len() => {
                    let allowed = "the index of a bundle";
                    return Err(SpecError::new("route", &index.to_string(), allowed));
                }
                Hop::Sendbox(_) => {}
                Hop::Spread(routes) | Hop::Hashed(routes) if routes.is_empty() => {
                    return Err(SpecError::new("spread", "0 routes", "at least one route"));
                }
                Hop::Spread(routes) | Hop::Hashed(routes) => {
                    routes.iter().try_for_each(|route| self.check_route(route, links))?;
                }
            }
        }
        Ok(())
    }
}

/// Highest rate of a link in bits per second, including changes, walks and traces. A trace of opportunities
/// counts with its mean.
fn fastest(link: &Link) -> Option<u128> {
    let changed = link.changes.iter().filter_map(|change| change.rate);
    let walked = link.walks.iter().filter(|walk| walk.property == Property::Rate);
    let replayed = link.traces.iter().filter_map(|replay| replay.trace.highest_rate());
    let rates = changed.chain(replayed).chain([link.nominal_rate()?]);
    let rates = rates.map(|it| it.as_bits_per_sec().into());
    rates.chain(walked.map(|walk| walk.max as u128)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_would_wrap_segment_numbers_is_refused() {
        let check = |gbit_per_s: u64, seconds: u64| {
            let rate = Rate::from_mbit_per_sec(gbit_per_s * 1000);
            let link = Link::at_rate("a", rate, Duration::from_millis(1), Spec::named("fifo"));
            let stop = Duration::from_secs(seconds);
            let mut network = Network::of_links(stop, 1, Stack::LINUX, vec![link]);
            network.flows.push(Flow {
                name: String::new(),
                cc: Spec::named("newreno"),
                traffic: Traffic::Source(Source::Greedy { bytes: None }),
                start: Duration::ZERO,
                opened: None,
                stop: None,
                dscp: 0,
                initial_window: None,
                receiving: Receiving::default(),
                data: vec![Hop::Link(0)],
                back: vec![Hop::Delay(Duration::from_millis(1))],
            });
            network.check()
        };
        // 400 Gbit/s of 1448 bytes use up 2^32 in 124 s.
        assert!(check(400, 120).is_ok());
        let error = check(400, 130).unwrap_err().to_string();
        assert!(error.contains("segments = 4488950276"), "{error}");
        assert!(check(1, 24 * 3600).is_err() && check(1, 10 * 3600).is_ok());
    }
}
