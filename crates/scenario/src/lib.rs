//! A run, described once: plans resolve to it, and every back end takes it.
//!
//! All numbers are resolved and carry their unit as a type. A scenario survives JSON, with two exceptions:
//! the tuning of a bundle's simulated control, and requests, which a reader draws again from the seed.
#![forbid(unsafe_code)]

mod agent;
mod bundle;
mod cost;
mod fault;
mod flow;
mod link;
mod requests;
mod topology;
mod walk;

use std::collections::BTreeMap;

use forebay_core::bundle::uplink::UplinkConfig;
use forebay_core::random::Streams;
use forebay_core::traffic::Schedule;
use forebay_core::units::Duration;
use serde::{Deserialize, Serialize};

pub use self::agent::{Agent, Report};
pub use self::bundle::Bundle;
pub use self::cost::{Cost, CostAlgorithm, CostPlatform, CostRate, Counter};
pub use self::fault::{Attack, BoxEnd, Fault, FaultAction, FaultProgram, Upset, UpsetKind};
pub use self::flow::{Flow, INITIAL_WINDOW, Platform, Traffic, Transport};
pub use self::link::{Change, FULL_FRAME, Link, PROPERTIES};
pub use self::requests::{RequestLoad, fixed_size};
pub use self::topology::{DEPLOYERS, OTHERS, SitePair, Topology, Transit};
pub use self::walk::{Property, Walk};

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Seed of every random choice.
    pub seed: u64,
    /// End of arrivals, warm-up included.
    pub stop: Duration,
    /// End of the warm-up.
    pub warmup: Duration,
    /// TCP of the hosts.
    pub stack: Stack,
    /// Queues can mark all TCP packets (RFC 3168), not just packets of algorithms that need it.
    pub ecn: bool,
    /// Flows start later by up to this time.
    pub start_jitter: Duration,
    /// Longest wait after `stop`.
    pub drain: Duration,
    /// Two-way propagation delay before any change: the nominal one of slowdowns.
    pub rtt: Duration,
    /// A to B.
    pub forward: Link,
    /// The parallel links that `forward` is made of; none where it is one link.
    pub paths: Vec<Link>,
    /// How packets are shared among them.
    pub balance: Balance,
    /// The links in a row behind `forward`; none where `forward` is the only one.
    pub hops: Vec<Link>,
    /// B to A.
    pub reverse: Link,
    /// The links of pairs of sites that do not take the links above.
    pub own_links: Vec<OwnLink>,
    /// Many sites and the links between them, instead of all these links.
    pub topology: Option<Topology>,
    /// Names of the pairs of sites.
    pub pairs: Vec<String>,
    /// One gateway with one NIC routes the packets that site A sends, in arms without boxes, too.
    pub routed: bool,
    /// The bundles that exist in this arm.
    pub bundles: Vec<Bundle>,
    /// Capacity shared by the bundles from A to B, given by their places among the bundles.
    pub uplink: Option<Uplink>,
    /// The traffic.
    pub flows: Vec<Flow>,
    /// Further measuring intervals.
    pub windows: Vec<Window>,
    /// Signals to boxes.
    pub faults: Vec<Fault>,
    /// Changes of the sites' devices, and of the packets that the receiveboxes see, in every arm.
    pub upsets: Vec<Upset>,
    /// Hostile messages to a box.
    pub attack: Option<Attack>,
    /// How the agent hears of the flows for which it decides.
    pub agent: Agent,
    /// A trial of costs, which has neither links nor traffic; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Schedules of the flows that are made of requests, by name, once [`Scenario::with_seed`] has drawn them.
    #[serde(skip)]
    pub schedules: BTreeMap<String, Schedule>,
}

impl Scenario {
    /// A run up to `stop` over these links, without sites yet: all of it counts, and answers are awaited for a second.
    pub fn new(forward: Link, reverse: Link, stop: Duration) -> Self {
        Self {
            seed: 1,
            stop,
            warmup: Duration::ZERO,
            stack: Stack::Linux,
            ecn: false,
            start_jitter: Duration::ZERO,
            drain: Duration::from_secs(1),
            rtt: forward.delay + reverse.delay,
            forward,
            paths: Vec::new(),
            balance: Balance::default(),
            hops: Vec::new(),
            reverse,
            own_links: Vec::new(),
            topology: None,
            pairs: Vec::new(),
            routed: false,
            bundles: Vec::new(),
            uplink: None,
            flows: Vec::new(),
            windows: Vec::new(),
            faults: Vec::new(),
            upsets: Vec::new(),
            attack: None,
            agent: Agent::default(),
            cost: None,
            schedules: BTreeMap::new(),
        }
    }

    /// The whole counted interval.
    pub fn counted(&self) -> Window {
        Window { name: String::new(), from: self.warmup, to: self.stop }
    }

    /// Takes `seed` and draws from it the sites of a topology, the walks of links, the starts of connections and the
    /// requests. What traces of links set becomes their changes.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        if let Some(topology) = &mut self.topology {
            let streams = Streams::new(seed).part("topology");
            self.flows = topology.draw(&streams, &self.forward, &self.flows);
        }
        let end = self.stop + self.drain;
        let own = self.own_links.iter_mut().flat_map(|own| [&mut own.there, &mut own.back]);
        let links = [&mut self.forward, &mut self.reverse].into_iter().chain(&mut self.hops);
        for link in links.chain(own) {
            link.changes = link.all_changes(end, &Streams::new(seed).part(&link.name));
            link.traces.clear();
        }
        let most = self.start_jitter;
        let mut first = Streams::new(seed).stream("start_jitter");
        for flow in &mut self.flows {
            let start = flow.start;
            flow.start += most.mul_f64(first.unit());
            if !most.is_zero() {
                // Drawn from a stream of its own, so that one more connection here moves no other flow.
                let mut others = Streams::new(seed).part(&flow.name).stream("start_jitter");
                let draw = |_| start + most.mul_f64(others.unit());
                flow.other_starts = (1..flow.connections()).map(draw).collect();
            }
        }
        self.schedules.clear();
        let drawn = |flow: &Flow| Some((flow.name.clone(), self.schedule(flow).ok()??));
        self.schedules = self.flows.iter().filter_map(drawn).collect();
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

    /// The links of `pair`, where it does not take the links that all pairs share.
    pub fn own_link(&self, pair: &str) -> Option<&OwnLink> {
        self.own_links.iter().find(|own| own.pair == pair)
    }

    /// The links of `pair`: from A to B, and from B to A.
    pub fn ways(&self, pair: &str) -> [&Link; 2] {
        self.own_link(pair).map_or([&self.forward, &self.reverse], |own| [&own.there, &own.back])
    }

    /// Every link: `forward`, `reverse`, the links that `forward` is made of, the links behind it, the links
    /// of pairs of sites that do not take it, and the links of a topology.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        let own = self.own_links.iter().flat_map(|own| [&own.there, &own.back]);
        let transit = self.topology.iter().flat_map(|topology| &topology.links);
        let ends = [&self.forward, &self.reverse].into_iter().chain(&self.paths).chain(&self.hops);
        ends.chain(own).chain(transit.map(|transit| &transit.link))
    }

    /// The link whose rows are called `name`.
    pub fn link(&self, name: &str) -> &Link {
        self.links().find(|link| link.name == name).unwrap_or(&self.forward)
    }

    /// The bundle called `name`.
    pub fn bundle(&self, name: &str) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| bundle.name == name)
    }
}

/// A sendbox of several bundles, which share the line of their site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uplink {
    /// The shares, a bundle for each of `bundles`.
    pub shares: UplinkConfig,
    /// Indices of the bundles, each in one uplink at the most.
    pub bundles: Vec<usize>,
}

/// The links of a pair of sites that takes no other links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnLink {
    /// Name of the pair.
    pub pair: String,
    /// A to B.
    pub there: Link,
    /// B to A, without a bottleneck.
    pub back: Link,
}

/// How packets are shared among several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Balance {
    /// Each flow keeps to one, which its hash chooses.
    #[default]
    Flow,
    /// Packets take turns.
    Packet,
}

/// TCP of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stack {
    /// The testbed's kernel.
    Linux,
    /// ns-3 as ccperf sets it up: in a simulator only, ours or ns-3 itself.
    Ns3,
}

/// A named interval over which metrics are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Prefix of its metrics; empty for the whole counted interval.
    pub name: String,
    /// Start, since the start of the run.
    pub from: Duration,
    /// End of the window.
    pub to: Duration,
}
