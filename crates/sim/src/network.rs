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

use forebay_core::bundle::uplink::{self, UplinkConfig};
use forebay_core::clock::Clock;
use forebay_core::link;
use forebay_core::spec::{Spec, SpecError};
use forebay_core::traffic::{Conduct, Receiving, Source};
use forebay_core::units::{Duration, Rate, Ratio, format_duration};

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
    /// The bundles.
    pub bundles: Vec<Bundle>,
    /// The sendboxes that share a line among several bundles.
    pub uplinks: Vec<Uplink>,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// A sendbox of several bundles, which share the line of their site.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// The shares, a bundle for each of `bundles`.
    pub shares: UplinkConfig,
    /// Indices of the bundles, each in one uplink at the most.
    pub bundles: Vec<usize>,
}

/// A bundle: a sendbox, a receivebox and the path between. Flows whose routes have it as a [`Hop`]
/// belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bundle {
    /// Name of the bundle, unique in a network: its random numbers follow from it and the seed alone.
    pub name: String,
    /// Algorithm of the sendbox.
    pub cc: Spec,
    /// Queue of the sendbox.
    pub qdisc: Spec,
    /// The shaper is never slower; `None`: that follows from what the path carries.
    pub min_rate: Option<Rate>,
    /// The shaper is never faster, in whatever state.
    pub max_rate: Option<Rate>,
    /// From the sendbox to the receivebox; no bundles.
    pub path: Vec<Hop>,
    /// From the receivebox to the sendbox, for messages; no bundles.
    pub back: Vec<Hop>,
    /// Share of the packets that the receivebox does not see, though they arrive: a second uplink,
    /// other prefixes.
    pub unseen: Ratio,
    /// What the receivebox counts in the bundle's name though no sendbox has sent it.
    pub foreign: Rate,
    /// The clock of the receivebox's machine, ahead of the run's by what it reads.
    pub clock: Clock,
    /// Messages of the receivebox leave late by 0 to this, each by a draw of its own.
    pub report_jitter: Duration,
    /// Packets of the bundle are stamped late by 0 to this.
    pub timestamp_jitter: Duration,
    /// The sendbox wakes up late for each departure by an exponential time of this mean.
    pub wake_delay: Duration,
    /// The sendbox only says which rate it would set.
    pub dry_run: bool,
    /// The sendbox enforces limits only while it measures that they pay.
    pub supervised: bool,
    /// What happens to the boxes during the run, in order of time.
    pub changes: Vec<BundleChange>,
    /// Keeps epochs, decisions and samples of the queue.
    pub log: bool,
}

impl Bundle {
    /// A bundle over `path` with the daemons' defaults.
    pub fn new(name: &str, cc: Spec, qdisc: Spec, path: Vec<Hop>, back: Vec<Hop>) -> Self {
        Self {
            name: name.into(),
            cc,
            qdisc,
            min_rate: None,
            max_rate: None,
            path,
            back,
            unseen: Ratio::ZERO,
            foreign: Rate::ZERO,
            clock: Clock::default(),
            report_jitter: Duration::ZERO,
            timestamp_jitter: Duration::ZERO,
            wake_delay: Duration::ZERO,
            dry_run: false,
            supervised: true,
            changes: Vec::new(),
            log: false,
        }
    }
}

/// Something that happens to the boxes of a bundle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BundleChange {
    /// When, since the start of the run.
    pub at: Duration,
    /// What happens.
    pub what: Upset,
}

/// What happens to the boxes of a bundle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Upset {
    /// From now on this share of the packets is [`Bundle::unseen`].
    Unseen(Ratio),
    /// From now on so much is [`Bundle::foreign`].
    Foreign(Rate),
    /// The receivebox reports no boundary from now on, or again; it counts, and lives to the sendbox.
    Unreported(bool),
    /// The receivebox's machine sleeps from now on, or no longer: meanwhile its clock stands still, and
    /// packets and messages pass it unseen.
    Suspended(bool),
    /// To the process of the sendbox.
    Sendbox(Signal),
    /// To the process of the receivebox.
    Receivebox(Signal),
}

/// What happens to the process of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The process ends without a farewell, and what it holds is lost. From then on the kernel forwards.
    Kill,
    /// The process stands still. What comes waits in its rings until the heartbeat is too old.
    Stop,
    /// After a stop it goes on with what it finds.
    Continue,
    /// After a kill it starts anew.
    Restart,
    /// The process starts anew with a key that the peer has not.
    RestartOtherKey,
}

/// A one-way link.
///
/// One without a rate, losses, reordering or a log is a mere delay: it costs no event of its own, and
/// its metrics stay 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of the link, unique in a network: its random numbers follow from it and the seed alone.
    pub name: String,
    /// Rate or trace, one-way propagation delay behind the server, loss, reordering, changes.
    pub config: link::Config,
    /// Share of the boxes' messages that is lost, beside the loss of all packets.
    pub message_loss: Ratio,
    /// Queue of the link; has no effect on a link without a rate.
    pub qdisc: Spec,
    /// An acknowledgement that waits here goes when a later one of the same connection comes that tells all
    /// that it does; with a first in, first out queue without marks alone.
    pub ack_filter: bool,
    /// Packets come to the queue as not ECN-capable: through a tunnel in compatibility mode (RFC 6040
    /// section 4.1), or over a path that clears the field. None is marked, and no mark from before is kept.
    pub clears_ecn: bool,
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
    /// Delay in seconds.
    Delay,
    /// Share of the packets, 0 to 1.
    Loss,
}

/// Most segments of a connection: the numbers of those in flight must not wrap either.
const MOST_SEGMENTS: u128 = (u32::MAX - (1 << 24)) as u128;

/// A part of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// The link of this index.
    Link(usize),
    /// Propagation over something that never delays by a queue.
    Delay(Duration),
    /// The bundle of this index: its sendbox, its path and its receivebox.
    Bundle(usize),
    /// The sendbox of the bundle of this index alone: what follows is the way of packets that its
    /// receivebox never sees, because they die before it.
    Sendbox(usize),
    /// The packets of all flows with this route take these in turn.
    Spread(Vec<Vec<Hop>>),
    /// Each flow keeps to one of these, which the seed and its number choose (ECMP), also on the path of
    /// a bundle, whose messages are a flow each way.
    Hashed(Vec<Vec<Hop>>),
}

/// What a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A greedy source is a TCP connection, any other sends datagrams as long on the wire as it says.
    Source(Source),
    /// A TCP connection that sends what [`crate::Simulation::write`] writes to it.
    Written,
    /// A TCP connection for each message that [`crate::Simulation::open`] sends: handshake, data, end.
    /// Its memory serves the next one.
    Messages(Opener),
    /// Datagrams of [`crate::PING_FRAME_BYTES`], each answered by one of the same size; the next is sent
    /// when the answer is there, or after a second.
    Ping,
}

/// Which end of a connection asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opener {
    /// The one that sends.
    Sender,
    /// The one that receives: it asks for the data once the connection is open.
    Receiver,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// For messages; without one the place among the flows is told.
    pub name: String,
    /// Congestion control of a TCP connection; datagrams have none.
    pub cc: Spec,
    /// What it sends.
    pub traffic: Traffic,
    /// When it starts: a TCP connection with its handshake.
    pub start: Duration,
    /// The connection has been open since before the run, with a handshake that took this long: it
    /// starts with data.
    pub opened: Option<Duration>,
    /// When it ends: no datagram and no new segment is sent from then on. Messages are sent whole.
    pub stop: Option<Duration>,
    /// DSCP of all its packets, both ways, 0 to 63: for queues with rules about it.
    pub dscp: u8,
    /// Segments that a TCP connection sends before the first acknowledgement; `None`: as the stack does.
    pub initial_window: Option<u32>,
    /// How the receivers of TCP connections read and acknowledge. Only those of greedy sources are other than
    /// honest or read at a rate.
    pub receiving: Receiving,
    /// From the sender to the receiver.
    pub data: Vec<Hop>,
    /// From the receiver to the sender; unused by datagrams, but the way of the answers to pings.
    pub back: Vec<Hop>,
}

impl Flow {
    /// Refuses receivers that are not honest, or read at a rate, of what somebody waits for: it might never be
    /// whole.
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
        Err(SpecError::new(key, &value, "none but with a greedy source without end"))
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

impl Link {
    /// A link with the queue `qdisc` and nothing else.
    pub fn new(name: &str, config: link::Config, qdisc: Spec) -> Self {
        Self {
            name: name.into(),
            config,
            message_loss: Ratio::ZERO,
            qdisc,
            ack_filter: false,
            clears_ecn: false,
            walks: Vec::new(),
            log: false,
        }
    }

    /// A link without a rate, loss or queue.
    pub fn delay(name: &str, delay: Duration) -> Self {
        let config = link::Config {
            service: link::Service::Unlimited,
            ..link::Config::at_rate(Rate::ZERO, delay)
        };
        Self::new(name, config, Spec::named("fifo"))
    }

    /// Whether the link does nothing but delay.
    pub(crate) fn is_delay(&self) -> bool {
        let config = &self.config;
        let is_lossless = config.loss == Ratio::ZERO && self.message_loss == Ratio::ZERO;
        let sets_more = |change: &link::Change| change.rate.is_some() || change.loss.is_some();
        config.service == link::Service::Unlimited
            && is_lossless
            && config.reorder == Ratio::ZERO
            && config.jitter.is_zero()
            && config.batch.is_zero()
            && !self.log
            && !self.clears_ecn
            && !config.changes.iter().any(sets_more)
            && self.walks.iter().all(|walk| walk.property == Property::Delay)
    }

    /// Whether the link's delay never changes.
    pub(crate) fn is_constant(&self) -> bool {
        self.walks.iter().all(|walk| walk.property != Property::Delay)
            && self.config.changes.iter().all(|change| change.delay.is_none())
    }

    /// Bits per second at its fastest, changes and walks included; a trace by its mean.
    fn fastest(&self) -> Option<u128> {
        let first = match &self.config.service {
            link::Service::Unlimited => return None,
            link::Service::Rate(rate) => *rate,
            link::Service::Trace(trace) => trace.mean_rate(),
        };
        let changed = self.config.changes.iter().filter_map(|change| change.rate);
        let walked = self.walks.iter().filter(|walk| walk.property == Property::Rate);
        let rates = changed.chain([first]).map(|rate| u128::from(rate.as_bits_per_sec()));
        rates.chain(walked.map(|walk| walk.max as u128)).max()
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
    /// Refuses links or bundles of equal names, changes out of order, routes over links that do not exist or over
    /// one twice, shares that do not fit, and sources that cannot send.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let mut names = BTreeSet::new();
        for link in &self.links {
            link.check().map_err(|error| error.within(&link.name))?;
            if !names.insert(&link.name) {
                return Err(SpecError::new("name", &link.name, "each name once among the links"));
            }
        }
        for bundle in &self.bundles {
            if !names.insert(&bundle.name) {
                let allowed = "each name once among links and bundles";
                return Err(SpecError::new("name", &bundle.name, allowed));
            }
            if let Some(late) = bundle.changes.windows(2).find(|pair| pair[1].at < pair[0].at) {
                let at = format_duration(late[1].at);
                return Err(SpecError::new("at", &at, "not before the change above it"));
            }
            if bundle.path.iter().chain(&bundle.back).any(Hop::has_bundle) {
                let allowed = "no bundle on the path of a bundle";
                return Err(SpecError::new("path", &bundle.name, allowed));
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
                let allowed = "a share for each bundle, each bundle in one uplink at the most";
                return Err(SpecError::new("uplink", &format!("{bundles:?}"), allowed));
            }
            uplink::Uplink::new(shares).map_err(|refused| {
                let of = match refused.place {
                    uplink::Place::Uplink => "uplink".into(),
                    uplink::Place::Group(group) => format!("group {group}"),
                    uplink::Place::Bundle(place) => self.bundles[bundles[place]].name.clone(),
                };
                refused.error.within(&of)
            })?;
        }
        Ok(())
    }

    /// Segments have numbers of 32 bits that never wrap: refuses a run in which a connection could use
    /// them up.
    fn check_numbers(&self, source: &Source, route: &[Hop]) -> Result<(), SpecError> {
        let Source::Greedy { bytes } = source else { return Ok(()) };
        let mss = u128::from(self.stack.tcp.mss);
        let segments = match (bytes, self.fastest(route)) {
            (Some(bytes), _) => u128::from(bytes.as_u64()) / mss,
            (None, Some(bits_per_s)) => bits_per_s * self.stop.as_nanos() / (8_000_000_000 * mss),
            // Windows bound it, as well as anything can be told before the run.
            (None, None) => return Ok(()),
        };
        if segments <= MOST_SEGMENTS {
            return Ok(());
        }
        let allowed = format!("a connection of at most {MOST_SEGMENTS} segments by rate x stop");
        Err(SpecError::new("segments", &segments.to_string(), &allowed))
    }

    /// Bits per second that a route lets pass at most at any time; `None` where nothing bounds it.
    fn fastest(&self, route: &[Hop]) -> Option<u128> {
        let of = |hop: &Hop| match hop {
            Hop::Link(link) => self.links.get(*link)?.fastest(),
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

    fn check_route(&self, route: &[Hop], links: &mut BTreeSet<usize>) -> Result<(), SpecError> {
        for hop in route {
            match hop {
                Hop::Link(link) if *link >= self.links.len() || !links.insert(*link) => {
                    let allowed = "the index of a link, each at most once on a route";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_segment_numbers_would_wrap_is_refused() {
        let check = |gbit_per_s: u64, seconds: u64| {
            let rate = Rate::from_mbit_per_sec(gbit_per_s * 1000);
            let link = Link::new(
                "a",
                link::Config::at_rate(rate, Duration::from_millis(1)),
                Spec::named("fifo"),
            );
            let stop = Duration::from_secs(seconds);
            let cc = Spec::named("newreno");
            Network::parking_lot(stop, 1, Stack::LINUX, vec![link], &cc).check()
        };
        // 400 Gbit/s of 1448 bytes use up 2^32 in 124 s.
        assert!(check(400, 120).is_ok());
        let error = check(400, 130).unwrap_err().to_string();
        assert!(error.contains("segments = 4488950276"), "{error}");
        assert!(check(1, 24 * 3600).is_err() && check(1, 10 * 3600).is_ok());
    }
}
