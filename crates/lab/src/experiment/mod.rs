//! One experiment with every number resolved: a plan's arm in one cell with one seed.

pub mod schedule;
pub mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::cc::Registry;
use forebay_core::clock::Clock;
pub use forebay_core::fault::{BoxEnd, FaultAction, UpsetKind};
pub use forebay_core::link::Change;
use forebay_core::link::Trace;
use forebay_core::qdisc::FLOOR_PACKETS;
use forebay_core::random::Streams;
use forebay_core::spec::Spec;
use forebay_core::traffic::Receiving;
pub use forebay_core::traffic::Timing;
use forebay_core::traffic::video::Video;
use forebay_core::units::{ByteCount, Limit, Rate};
use forebay_sim::network::{Property, Uplink, Walk};

use self::schedule::RequestLoad;
use self::topology::Topology;

/// What a back end runs and what metrics are taken against.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the plan.
    pub plan: String,
    /// Name of the arm.
    pub arm: String,
    /// Name of the cell, empty if the plan has no grid.
    pub cell: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// End of arrivals, warm-up included.
    pub stop: Duration,
    /// End of the warm-up.
    pub warmup: Duration,
    /// TCP of the hosts.
    pub stack: Stack,
    /// Queues can mark all TCP packets (RFC 3168), not just those of algorithms that need it.
    pub ecn: bool,
    /// Flows start later by up to so much.
    pub start_jitter: Duration,
    /// Longest wait after `stop`.
    pub drain: Duration,
    /// Two-way propagation delay before any change: the nominal one of slowdowns.
    pub rtt: Duration,
    /// A to B.
    pub forward: Link,
    /// The links side by side that `forward` is made of; none where it is one link.
    pub paths: Vec<Link>,
    /// How packets are shared among them.
    pub balance: Balance,
    /// The links in a row behind `forward`; none where it is the only one.
    pub hops: Vec<Link>,
    /// B to A.
    pub reverse: Link,
    /// The links of pairs of sites that do not take these.
    pub own_links: Vec<OwnLink>,
    /// Many sites and the links between them, instead of all of these.
    pub topology: Option<Topology>,
    /// Names of the pairs of sites.
    pub pairs: Vec<String>,
    /// One gateway with one NIC routes what site A sends, in arms without boxes, too.
    pub routed: bool,
    /// The bundles that exist in this arm.
    pub bundles: Vec<Bundle>,
    /// What those from A to B share, by their places among the bundles.
    pub uplink: Option<Uplink>,
    /// The traffic.
    pub flows: Vec<Flow>,
    /// Further measuring intervals.
    pub windows: Vec<Window>,
    /// Signals to boxes.
    pub faults: Vec<Fault>,
    /// Changes of the sites' devices, and of what the receiveboxes see, in every arm.
    pub upsets: Vec<Upset>,
    /// Hostile messages to a box.
    pub attack: Option<Attack>,
    /// How the agent of flows that have one hears of them.
    pub agent: Agent,
    /// What flows and bundles may name as an algorithm.
    pub algorithms: Registry,
    /// Every parameter by its dotted key, as written.
    pub parameters: BTreeMap<String, String>,
    /// SHA-256 over the parameters and the contents of all named files, in hex.
    pub sha256: String,
}

impl Experiment {
    /// The whole counted interval.
    pub fn counted(&self) -> Window {
        Window { name: String::new(), from: self.warmup, to: self.stop }
    }

    /// Takes `seed` and draws from it the sites of a topology, the walks of links and what the starts of connections
    /// need.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        if let Some(topology) = &mut self.topology {
            let streams = Streams::new(seed).part("topology");
            self.flows = topology.draw(&streams, &self.forward, &self.flows);
        }
        let end = self.stop + self.drain;
        let ends = [("forward".into(), &mut self.forward), ("reverse".into(), &mut self.reverse)];
        let hops = self.hops.iter_mut().enumerate().map(|(hop, link)| (hop_name(hop), link));
        for (name, link) in ends.into_iter().chain(hops) {
            link.walk(end, &Streams::new(seed).part(&name));
        }
        let most = self.start_jitter;
        let mut first = Streams::new(seed).stream("start_jitter");
        for flow in &mut self.flows {
            let start = flow.start;
            flow.start += most.mul_f64(first.unit());
            if !most.is_zero() {
                // Of its own stream: one more connection here moves no other flow.
                let mut others = Streams::new(seed).part(&flow.name).stream("start_jitter");
                let draw = |_| start + most.mul_f64(others.unit());
                flow.other_starts = (1..flow.connections()).map(draw).collect();
            }
        }
        self
    }

    /// The two-way propagation delay of `flow`.
    pub fn rtt_of(&self, flow: &Flow) -> Duration {
        flow.rtt.unwrap_or_else(|| self.rtt_between(&flow.pair))
    }

    /// The two-way propagation delay between the sites of `pair`.
    pub fn rtt_between(&self, pair: &str) -> Duration {
        self.own_link(pair).map_or(self.rtt, |own| own.there.delay + own.back.delay)
    }

    /// The links of `pair`, where it does not take those of all.
    pub fn own_link(&self, pair: &str) -> Option<&OwnLink> {
        self.own_links.iter().find(|own| own.pair == pair)
    }

    /// What the rows of the links of `pair` are called: from A to B, and from B to A.
    pub fn way_names(&self, pair: &str) -> [String; 2] {
        match self.own_link(pair) {
            Some(own) => [own.pair.clone(), back_name(&own.pair)],
            None => ["forward", "reverse"].map(String::from),
        }
    }

    /// Every link with what its rows are called: `forward`, `reverse`, those that `forward` is made of, those
    /// behind it, those of pairs of sites that do not take it, and those of a topology.
    pub fn links(&self) -> impl Iterator<Item = (String, &Link)> {
        let ends = [("forward".to_string(), &self.forward), ("reverse".to_string(), &self.reverse)];
        let paths = self.paths.iter().enumerate().map(|(path, link)| (path_name(path), link));
        let hops = self.hops.iter().enumerate().map(|(hop, link)| (hop_name(hop), link));
        let own = self
            .own_links
            .iter()
            .flat_map(|own| [(own.pair.clone(), &own.there), (back_name(&own.pair), &own.back)]);
        let transit = self.topology.iter().flat_map(|topology| &topology.links);
        let transit = transit.map(|transit| (transit.name.clone(), &transit.link));
        ends.into_iter().chain(paths).chain(hops).chain(own).chain(transit)
    }

    /// The link whose rows are called `name`.
    pub fn link(&self, name: &str) -> &Link {
        let found = self.links().find(|(known, _)| known == name);
        found.map_or(&self.forward, |(_, link)| link)
    }

    /// The bundle called `name`.
    pub fn bundle(&self, name: &str) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| bundle.name == name)
    }
}

/// What the rows of a path are called, the first being 0: `path-1`.
pub fn path_name(path: usize) -> String {
    format!("path-{}", path + 1)
}

/// What the rows of a link behind the first are called, that being 0: `hop-2`.
pub fn hop_name(hop: usize) -> String {
    format!("hop-{}", hop + 2)
}

/// What the rows of the way back of a pair of sites with a link of its own are called: `tokyo-back`.
pub fn back_name(pair: &str) -> String {
    format!("{pair}-back")
}

/// The links of a pair of sites that takes no others.
#[derive(Clone, Debug)]
pub struct OwnLink {
    /// Name of the pair.
    pub pair: String,
    /// A to B.
    pub there: Link,
    /// B to A, without a bottleneck.
    pub back: Link,
}

/// How packets are shared among several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each flow keeps to one, which its hash chooses.
    #[default]
    Flow,
    /// Packets take turns.
    Packet,
}

/// TCP of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The testbed's kernel.
    Linux,
    /// ns-3 as ccperf sets it up: in a simulator only, ours or ns-3 itself.
    Ns3,
}

/// Segments that a TCP sender has in flight before the first acknowledgement where nothing else is said (RFC 6928).
pub const INITIAL_WINDOW: u32 = 10;

/// An Ethernet frame of 1500 bytes of IP, without FCS.
pub(crate) const FULL_FRAME: ByteCount = ByteCount::new(1514);

/// A one-way link.
#[derive(Clone, Debug)]
pub struct Link {
    /// Rate of layer-2 frames; `None` without a trace: unlimited.
    pub rate: Option<Rate>,
    /// The rate, or the mean of the trace: the nominal one of slowdowns.
    pub nominal_rate: Option<Rate>,
    /// A mahimahi trace.
    pub trace: Option<Arc<Trace>>,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Each packet takes up to so much longer, in order.
    pub jitter: Duration,
    /// Packets begin the delay together, at whole multiples of this; zero: each when it has been sent.
    pub batch: Duration,
    /// Probability of random loss.
    pub loss: f64,
    /// Probability of random loss of the boxes' messages, beside it.
    pub message_loss: f64,
    /// Acknowledgements that wait go when later ones make them needless.
    pub ack_filter: bool,
    /// Packets come to the queue as not ECN-capable.
    pub clears_ecn: bool,
    /// Probability that a packet is held back.
    pub reorder: f64,
    /// How many packets overtake a held one.
    pub reorder_packets: u32,
    /// The queue.
    pub qdisc: Spec,
    /// Random walks, whose steps are `changes` once there is a seed.
    pub walks: Vec<Walk>,
    /// Changes in order of time.
    pub changes: Vec<Change>,
}

impl Link {
    /// Adds the steps of its walks up to `end`, as a simulation with these `streams` takes them.
    fn walk(&mut self, end: Duration, streams: &Streams) {
        for (index, walk) in self.walks.iter().enumerate() {
            let from = match walk.property {
                Property::Rate => self.rate.map_or(walk.max, |it| it.as_bits_per_sec() as f64),
                Property::Delay => self.delay.as_secs_f64(),
                Property::Loss => self.loss,
            };
            let steps = walk.steps(from, end, streams.stream(&format!("walk {index}")));
            self.changes.extend(steps);
        }
        self.changes.sort_by_key(|change| change.at);
    }

    /// The delay in force at `at`.
    pub fn delay_at(&self, at: Duration) -> Duration {
        let past = self.changes.iter().take_while(|change| change.at <= at);
        past.filter_map(|change| change.delay).last().unwrap_or(self.delay)
    }

    /// How long the link takes to send a full queue of full frames; `None` without a rate or limit.
    pub fn buffer_time(&self) -> Option<Duration> {
        let time_of = |bytes: ByteCount| bytes.time_at(self.nominal_rate?);
        match self.qdisc.value::<Limit>("limit").ok()?? {
            Limit::Packets(packets) => time_of(FULL_FRAME * packets),
            Limit::Bytes(bytes) => time_of(bytes),
            Limit::Time(time) => Some(time.max(time_of(FULL_FRAME * FLOOR_PACKETS)?)),
        }
    }

    /// Bits that the link can carry in `from..to`; `None` without a configured rate.
    pub fn capacity_bits(&self, from: Duration, to: Duration) -> Option<f64> {
        let mut rate = self.rate?;
        let mut since = from;
        let mut bits = 0.0;
        for change in self.changes.iter().take_while(|change| change.at < to) {
            if change.at > since {
                bits += rate.as_bits_per_sec() as f64 * (change.at - since).as_secs_f64();
                since = change.at;
            }
            rate = change.rate.unwrap_or(rate);
        }
        let rest = to.saturating_sub(since).as_secs_f64();
        Some(bits + rate.as_bits_per_sec() as f64 * rest)
    }
}

/// A bundle.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Name of the bundle.
    pub name: String,
    /// Pair of sites of the bundle.
    pub pair: String,
    /// From B to A.
    pub reversed: bool,
    /// Sendbox algorithm.
    pub cc: Spec,
    /// Sendbox qdisc.
    pub qdisc: Spec,
    /// Packets stay in the kernel at the sendbox, whose qdisc is another then.
    pub in_kernel: bool,
    /// The sendbox enforces limits only while it measures that they pay.
    pub supervised: bool,
    /// Lower bound of the shaper.
    pub min_rate: Option<Rate>,
    /// Upper bound of the shaper.
    pub max_rate: Option<Rate>,
    /// Share of its packets that goes past the receivebox (0 to 0.99).
    pub unseen: f64,
    /// What the receivebox reads the time on.
    pub clock: Clock,
    /// Messages of the receivebox leave late by up to this.
    pub report_jitter: Duration,
    /// Packets of the bundle are stamped late by up to this.
    pub timestamp_jitter: Duration,
}

/// Traffic of one kind.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Name of the flow.
    pub name: String,
    /// Pair of sites of the flow.
    pub pair: String,
    /// From B to A.
    pub reversed: bool,
    /// Congestion control of its TCP connections.
    pub cc: Spec,
    /// Where that was written, such as `plan.toml:12`, for who refuses it later.
    pub cc_at: String,
    /// Where that runs; `None`: not said, so it is the kernel's, or the simulator's own.
    pub platform: Option<Platform>,
    /// First byte or arrival, of several connections that of the first.
    pub start: Duration,
    /// First bytes of the second connection and those after it, where they have a jitter.
    pub other_starts: Vec<Duration>,
    /// Last byte or arrival.
    pub stop: Duration,
    /// Two-way propagation delay, where it is not the path's.
    pub rtt: Option<Duration>,
    /// The one link of several in a row that its data take, the first being 0.
    pub hop: Option<usize>,
    /// DSCP of its packets, both ways (0 to 63).
    pub dscp: u8,
    /// Segments that its TCP senders have in flight before the first acknowledgement.
    pub initial_window: u32,
    /// How the receivers of its TCP connections read and acknowledge.
    pub receiving: Receiving,
    /// Where its datagrams end on the way: 1 before the queue, 2 behind the link.
    pub ttl: Option<u8>,
    /// What is sent.
    pub traffic: Traffic,
}

impl Flow {
    /// Congestion control of the flow with its platform, as plans and rows have it: `agent:copa`.
    pub fn cc_name(&self) -> String {
        match self.platform {
            None => self.cc.to_string(),
            Some(platform) => format!("{}:{}", platform.name(), self.cc),
        }
    }

    /// How many connections (sources, loops) start by themselves; requests are one schedule.
    pub fn connections(&self) -> u32 {
        match self.traffic {
            Traffic::Greedy { flows }
            | Traffic::Video { flows, .. }
            | Traffic::Datagrams { flows, .. } => flows,
            Traffic::Ping { loops } => loops,
            Traffic::Requests(_) => 1,
        }
    }

    /// When the connection of this number starts, the first being 0.
    pub fn start_of(&self, connection: u32) -> Duration {
        let other = connection.checked_sub(1).and_then(|it| self.other_starts.get(it as usize));
        other.copied().unwrap_or(self.start)
    }

    /// When the first byte of all is sent.
    pub fn first_start(&self) -> Duration {
        self.other_starts.iter().copied().fold(self.start, Duration::min)
    }

    /// Whether its packets are those of TCP connections.
    pub fn is_tcp(&self) -> bool {
        self.traffic.is_tcp()
    }
}

/// Where the congestion control of a flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// In the hosts' kernel, which has it.
    Kernel,
    /// In the hosts' kernel alone, as BPF of this program.
    Bpf,
    /// In an agent, which decides for connections of the hosts' kernel.
    Agent,
}

impl Platform {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Bpf, Self::Agent];

    /// As written before a colon.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Bpf => "bpf",
            Self::Agent => "agent",
        }
    }
}

/// How an agent hears of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent {
    /// How often the kernel reports.
    pub report: Report,
    /// Time between two looks at the reports, 1 to 10 ms; zero: each wakes the agent.
    pub period: Duration,
}

/// How often the kernel reports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Each round trip.
    Round,
    /// Each acknowledgement.
    Ack,
    /// Each so often, 100 us to 50 ms.
    Every(Duration),
}

impl std::fmt::Display for Report {
    /// As `forebay agent` takes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Round => f.write_str("round"),
            Self::Ack => f.write_str("ack"),
            Self::Every(time) => write!(f, "{}us", time.as_micros()),
        }
    }
}

/// Kinds of traffic.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// TCP connections that always have data.
    Greedy {
        /// How many.
        flows: u32,
    },
    /// Open-loop requests over TCP connections.
    Requests(RequestLoad),
    /// Clients that play a video, each over a TCP connection.
    Video {
        /// How many.
        flows: u32,
        /// What each plays.
        video: Video,
    },
    /// UDP in open loop.
    Datagrams {
        /// How many.
        flows: u32,
        /// Rate of frames of each; with on and off times that of the on times.
        rate: Rate,
        /// Bytes of a frame.
        packet_bytes: u32,
        /// When they are sent.
        timing: Timing,
    },
    /// Closed-loop UDP request and response.
    Ping {
        /// Loops in parallel.
        loops: u32,
    },
}

impl Traffic {
    /// Whether its packets are those of TCP connections.
    pub fn is_tcp(&self) -> bool {
        match self {
            Self::Greedy { .. } | Self::Requests(_) | Self::Video { .. } => true,
            Self::Datagrams { .. } | Self::Ping { .. } => false,
        }
    }
}

/// A named interval over which metrics are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Prefix of its metrics; empty for the whole counted interval.
    pub name: String,
    /// Start, since the start of the run.
    pub from: Duration,
    /// End of the window.
    pub to: Duration,
}

/// A signal to a box or to the agent of the flows.
#[derive(Clone, Debug)]
pub struct Fault {
    /// When it happens.
    pub at: Duration,
    /// To which program.
    pub program: FaultProgram,
    /// What happens.
    pub action: FaultAction,
}

/// The program that a [`Fault`] hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultProgram {
    /// A box.
    Box {
        /// Of this bundle.
        bundle: String,
        /// Which end.
        end: BoxEnd,
    },
    /// The agent.
    Agent,
}

/// Forged, replayed, truncated and oversized messages to a box in the name of its peer.
#[derive(Clone, Debug)]
pub struct Attack {
    /// When it begins.
    pub at: Duration,
    /// The bundle whose box is attacked.
    pub bundle: String,
    /// Which end.
    pub end: BoxEnd,
    /// How many messages.
    pub messages: u64,
}

/// A change of a device of a bundle's sites, or of what comes to its receivebox. It takes place where there
/// are no boxes, too: it is no box that it hits.
#[derive(Clone, Debug, PartialEq)]
pub struct Upset {
    /// When it happens.
    pub at: Duration,
    /// The bundle, which the arm need not have.
    pub bundle: String,
    /// Pair of sites that it happens at.
    pub pair: String,
    /// At site B instead of site A.
    pub at_b: bool,
    /// What changes.
    pub kind: UpsetKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_and_delay_follow_the_changes() {
        let seconds = Duration::from_secs;
        let change = |at, rate, delay| Change { at: seconds(at), rate, delay, loss: None };
        let link = Link {
            rate: Some(Rate::from_mbit_per_sec(96)),
            nominal_rate: Some(Rate::from_mbit_per_sec(96)),
            trace: None,
            delay: Duration::from_millis(25),
            jitter: Duration::ZERO,
            batch: Duration::ZERO,
            loss: 0.0,
            message_loss: 0.0,
            ack_filter: false,
            clears_ecn: false,
            reorder: 0.0,
            reorder_packets: 3,
            qdisc: Spec::named("fifo"),
            walks: Vec::new(),
            changes: vec![
                change(10, Some(Rate::from_mbit_per_sec(48)), None),
                change(20, None, Some(Duration::from_millis(40))),
            ],
        };
        assert_eq!(link.capacity_bits(seconds(0), seconds(10)), Some(960e6));
        assert_eq!(link.capacity_bits(seconds(5), seconds(30)), Some(5.0 * 96e6 + 20.0 * 48e6));
        assert_eq!(link.capacity_bits(seconds(12), seconds(13)), Some(48e6));
        assert_eq!(link.delay_at(seconds(19)), Duration::from_millis(25));
        assert_eq!(link.delay_at(seconds(20)), Duration::from_millis(40));
    }
}
