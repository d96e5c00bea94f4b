//! One emulated experiment with every number resolved: what the testbed builds and runs.
//!
//! ```text
//!  left hosts 0 ── sendbox 0 ──┐                                ┌── receivebox 0 ── right hosts 0
//!  left hosts 1 ── sendbox 1 ──┤ forward link (the bottleneck)  ├── receivebox 1 ── right hosts 1
//!  left hosts 2 ───────────────┤ reverse link                   ├─────────────────  right hosts 2
//! ```
//! Each pair of sites is its own layer-2 segment; all pairs share the two links. A pair without a
//! bundle is cross traffic or the status quo. Data flows from left to right unless a workload says
//! otherwise, so a left host is the server and a right host the client.

use std::path::PathBuf;

use forebay_core::clock::Clock;
pub use forebay_core::fault::{BoxEnd, FaultAction, UpsetKind};
use forebay_core::spec::Spec;
use forebay_core::traffic::video::Video;
pub use forebay_core::traffic::{Connections, Timing};
use forebay_host::daemon::config::DatapathKind;
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// The run's seed; every random choice is drawn from it by stream name.
    pub seed: u64,
    /// Time from the start to the end of arrivals, warm-up included (ns).
    pub stop_ns: u64,
    /// Longest wait for unfinished requests after `stop_ns` (ns).
    pub drain_ns: u64,
    /// All TCP connections are ECN-capable (RFC 3168), not only those of algorithms that need it.
    #[serde(default)]
    pub ecn: bool,
    /// Left to right: the bottleneck.
    pub forward: LinkSpec,
    /// Right to left.
    pub reverse: LinkSpec,
    /// The links of pairs that do not share these two.
    #[serde(default)]
    pub own_links: Vec<OwnLinks>,
    /// One gateway with one NIC routes what all sites on the left send, and its one sendbox has all their bundles.
    #[serde(default)]
    pub routed: bool,
    /// The pairs of sites.
    pub pairs: Vec<PairSpec>,
    /// Congestion controls that the run brings along; workloads select them by their key.
    #[serde(default)]
    pub algorithms: Vec<Algorithm>,
    /// The agent of those that run in one.
    #[serde(default)]
    pub agent: AgentSpec,
    /// Signals sent to the boxes and the agent during the run.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Changes of devices, and of what the receiveboxes see.
    #[serde(default)]
    pub upsets: Vec<Upset>,
    /// An attack on the messages of a bundle.
    #[serde(default)]
    pub attack: Option<Attack>,
    /// The first bytes of each frame are kept, see
    /// [`EmulatorSpec::keeps_headers`](crate::emulator::EmulatorSpec::keeps_headers).
    #[serde(default)]
    pub keeps_headers: bool,
}

impl Scenario {
    /// The share of the packets to the right that pass the box of `pair` by, and what it becomes: when (ns
    /// since the start), and the new share. `None`: they have no way to.
    pub fn unseen(&self, pair: usize) -> Option<(f64, Vec<(u64, f64)>)> {
        let bundle = self.pairs[pair].forward_bundle.as_ref();
        let share = bundle.map_or(0.0, |bundle| bundle.unseen);
        let change = |upset: &Upset| match upset.kind {
            UpsetKind::Unseen(share) if upset.pair == pair => Some((upset.at_ns, share)),
            _ => None,
        };
        let mut changes: Vec<_> = self.upsets.iter().filter_map(change).collect();
        changes.sort_by_key(|(at_ns, _)| *at_ns);
        (share > 0.0 || !changes.is_empty()).then_some((share, changes))
    }
}

/// A congestion control that is registered for the run, under a name that only the run knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Algorithm {
    /// What [`Workload::cc`] calls it; with a colon, so that it is no kernel's name.
    pub key: String,
    /// Where it runs.
    pub platform: Platform,
}

/// Where a congestion control of this program runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// In `forebay agent`, the datapath in the kernel.
    Agent(Spec),
    /// In the kernel alone, in BPF: `reno` or `cubic`.
    Bpf(String),
}

/// How an agent hears of its connections, as `forebay agent` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpec {
    /// How often the kernel reports: `round`, `ack` or a time.
    pub report: String,
    /// Time between two looks at the reports (ns); 0: each wakes the agent.
    pub period_ns: u64,
    /// Files in Python that define algorithms of the run.
    #[serde(default)]
    pub python: Vec<PathBuf>,
}

impl Default for AgentSpec {
    fn default() -> Self {
        Self { report: "round".into(), period_ns: 10_000_000, python: Vec::new() }
    }
}

/// Forged, replayed, truncated and oversized messages to a box in the name of its peer, sent over
/// a real socket as fast as one process can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attack {
    /// When it begins, since the start of the run (ns).
    pub at_ns: u64,
    /// The box that gets the messages.
    pub target: FaultTarget,
    /// How many messages.
    pub messages: u64,
}

/// A signal to a box or to the agent at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When, since the start of the run (ns).
    pub at_ns: u64,
    /// To which program.
    pub program: FaultProgram,
    /// What happens to it.
    pub action: FaultAction,
}

/// The program that a [`Fault`] hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultProgram {
    /// A box.
    Box(FaultTarget),
    /// The agent of the run's algorithms.
    Agent,
}

/// The box that a [`Fault`] or an [`Attack`] hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultTarget {
    /// Place of the pair of sites in [`Scenario::pairs`].
    pub pair: usize,
    /// The bundle from right to left instead of the one from left to right.
    pub reverse: bool,
    /// Which end of the bundle.
    pub end: BoxEnd,
}

impl FaultTarget {
    /// The other end of the same bundle.
    pub fn peer(self) -> Self {
        let end = match self.end {
            BoxEnd::Sendbox => BoxEnd::Receivebox,
            BoxEnd::Receivebox => BoxEnd::Sendbox,
        };
        Self { end, ..self }
    }
}

/// A change of a device of a pair of sites, or of what comes to its receivebox, at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upset {
    /// When, since the start of the run (ns).
    pub at_ns: u64,
    /// Place of the pair of sites in [`Scenario::pairs`].
    pub pair: usize,
    /// At the right site instead of the left one.
    pub right: bool,
    /// What changes.
    pub kind: UpsetKind,
}

/// A one-way link: rate or trace, then delay, with loss and reordering.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkSpec {
    /// Rate of layer-2 frames without FCS (bits per second); `None` with `trace` absent too: unlimited.
    pub rate_bps: Option<u64>,
    /// A mahimahi trace file; excludes `rate_bps`.
    pub trace: Option<PathBuf>,
    /// One-way propagation delay (ns).
    pub delay_ns: u64,
    /// Each packet takes up to so much longer, in order (ns).
    #[serde(default)]
    pub jitter_ns: u64,
    /// Packets begin the delay together, at whole multiples of this (ns); 0: each when it has been sent.
    #[serde(default)]
    pub batch_ns: u64,
    /// Probability that a packet is lost before the queue.
    pub loss: f64,
    /// Probability that a message from one box to the other is lost before the queue, beside
    /// `loss`.
    #[serde(default)]
    pub message_loss: f64,
    /// Probability that a packet is held back.
    pub reorder: f64,
    /// How many later packets overtake a held packet.
    pub reorder_packets: u32,
    /// The queue.
    pub qdisc: Spec,
    /// Changes, in order of time.
    pub changes: Vec<LinkChange>,
}

/// The links of a pair of sites alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OwnLinks {
    /// Place of the pair in [`Scenario::pairs`].
    pub pair: usize,
    /// What the rows of both links are called.
    pub names: [String; 2],
    /// Left to right.
    pub forward: LinkSpec,
    /// Right to left.
    pub reverse: LinkSpec,
}

/// A change of a link during the run; `None` leaves the value as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkChange {
    /// When, since the start of the run (ns).
    pub at_ns: u64,
    /// New rate (bits per second).
    pub rate_bps: Option<u64>,
    /// New one-way delay (ns).
    pub delay_ns: Option<u64>,
    /// New loss probability.
    pub loss: Option<f64>,
}

/// A pair of sites: hosts on the left, hosts on the right, bundles between them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairSpec {
    /// Name in rows and figures.
    pub name: String,
    /// Bundle of the traffic from left to right.
    pub forward_bundle: Option<BundleSpec>,
    /// Bundle of the traffic from right to left.
    pub reverse_bundle: Option<BundleSpec>,
    /// Segments that the TCP senders on the left, and those on the right, have in flight before the first
    /// acknowledgement; `None`: as many as the kernel has by default.
    #[serde(default)]
    pub initial_windows: [Option<u32>; 2],
    /// Traffic of the pair.
    pub workloads: Vec<Workload>,
}

/// One bundle, as its two boxes are configured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BundleSpec {
    /// Name in rows and figures.
    pub name: String,
    /// Sendbox algorithm.
    pub cc: Spec,
    /// Sendbox qdisc; not that of packets that stay in the kernel.
    pub qdisc: Spec,
    /// What carries the packets at the sendbox.
    #[serde(default)]
    pub datapath: DatapathKind,
    /// The sendbox enforces limits only while it measures that they pay.
    pub supervised: bool,
    /// Lower bound of the shaper's rate (bits per second).
    pub min_rate_bps: Option<u64>,
    /// Upper bound of the shaper's rate (bits per second).
    pub max_rate_bps: Option<u64>,
    /// Share of the packets that take a second way into the site, past the receivebox (0 to 1); of
    /// bundles from left to right only.
    #[serde(default)]
    pub unseen: f64,
    /// What its receivebox reads the time on, ahead of the machine's clock by so much in the run.
    #[serde(default)]
    pub clock: Clock,
}

/// Traffic of one kind between the hosts of a pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Name in rows and figures, unique in the run.
    pub name: String,
    /// Congestion control of the TCP sockets: a name that the kernel knows (`"cubic"`), or the key of
    /// one of [`Scenario::algorithms`].
    pub cc: String,
    /// Data flows from right to left instead.
    pub reversed: bool,
    /// First byte (ns since the start).
    pub start_ns: u64,
    /// Last byte (ns since the start); greedy and paced traffic ends here.
    pub stop_ns: u64,
    /// DSCP of its packets, both ways (0 to 63).
    #[serde(default)]
    pub dscp: u8,
    /// Time to live of its datagrams; `None`: the kernel's. The routers beside the links end 1 before
    /// the queue and 2 behind the link.
    #[serde(default)]
    pub ttl: Option<u8>,
    /// How its receivers read.
    #[serde(default)]
    pub reading: Reading,
    /// The kind of traffic.
    pub kind: WorkloadKind,
}

/// How the receivers of a workload of TCP read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Payload that each greedy flow's receiver reads at most (bits per second); `None`: what comes.
    pub rate_bps: Option<u64>,
    /// Bytes that each receiver announces as its window, about; `None`: as many as the kernel finds fit.
    pub buffer_bytes: Option<u64>,
}

/// Kinds of traffic.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkloadKind {
    /// Flows that always have data.
    Greedy {
        /// Number of TCP connections.
        flows: u32,
    },
    /// Requests at scheduled times over TCP connections: the receiving side asks, the sending side
    /// answers with `size` bytes. Open loop.
    Requests {
        /// What they are made over.
        connections: Connections,
        /// The schedule, in order of time.
        schedule: Vec<Request>,
    },
    /// Clients on the receiving side that play a video from the sending side, each over a persistent TCP
    /// connection.
    Video {
        /// Number of clients.
        clients: u32,
        /// What each plays.
        video: Video,
    },
    /// UDP datagrams.
    Datagrams {
        /// Rate of layer-2 frames (bits per second); with on and off times that of the on times.
        rate_bps: u64,
        /// Bytes of a frame.
        packet_bytes: u32,
        /// When they are sent.
        timing: Timing,
        /// Seed of random times.
        seed: u64,
    },
    /// Closed-loop UDP request and response of 40 bytes each.
    Ping {
        /// Loops in parallel.
        loops: u32,
    },
}

/// One scheduled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Scheduled arrival (ns since the start).
    pub at_ns: u64,
    /// Bytes of the answer.
    pub size_bytes: u64,
    /// The persistent connection that it is sent on; 0 where each has its own.
    pub connection: u32,
}
