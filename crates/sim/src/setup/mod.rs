//! Builds a network from a scenario, and the applications that drive it from outside.
//!
//! Setup also does the work of the testbed's hosts. Connections of the stack `linux` are open before the run,
//! requests go over persistent connections, and clients ask in open loop. With the stack `ns3` a connection
//! opens when its flow starts.

mod sites;

use std::fmt;
use std::time::Duration;

use forebay_core::cc::Registry;
use forebay_core::random::Streams;
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::media::Media;
use forebay_core::traffic::video::Video;
use forebay_core::traffic::{Connections, Source};
use forebay_core::units::ByteCount;
use forebay_scenario::{self as scenario, Link, Platform, Scenario};

use crate::media::Streaming;
use crate::network::{
    BundleChange, Flow, Hop, Network, Opener, RoutedBundle, Signal, Traffic, Upset,
};
use crate::{EcnMode, Halves, Parts, Requests, SUPPLIED, Stack};

/// Time after the end of arrivals during which late datagrams still count: 1 s, as in the testbed.
pub const LINGER: Duration = Duration::from_secs(1);

/// Error for a scenario that the simulator cannot run: the unsupported key, its place, and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Origin of a flow of the network: the scenario's flow, and the number within it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Index of the flow in the scenario.
    pub flow: usize,
    /// Number among the flows with the same `flow`.
    pub index: u32,
}

/// A network and the applications that drive it from outside.
#[derive(Debug)]
pub struct Setup {
    /// The simulated network.
    pub network: Network,
    /// Origin of each flow of the network.
    pub places: Vec<Place>,
    /// For each flow of the network, whether its data go from B to A.
    pub reversed: Vec<bool>,
    /// The clients that send requests.
    pub requests: Requests,
    /// The parts of the network; `None`: it is not cut.
    pub parts: Option<Parts>,
}

/// Index of `forward` among the links of the network. If the scenario has parallel paths, this link has no
/// queue: the paths come together there. The links after it are `reverse`, then the parallel paths of
/// `forward` or the hops in series after it. The last are the links of site pairs that use none of these, or
/// of a topology.
pub const FORWARD: usize = 0;
/// Index of `reverse` among the links of the network.
const REVERSE: usize = 1;
/// Index of the first link after `forward` and `reverse`.
pub const OTHERS: usize = 2;

/// The links of the network, in the order of their names. Walks have become steps among their changes.
fn links(scenario: &Scenario) -> Vec<Link> {
    let link = |link: &Link| Link { walks: Vec::new(), ..link.clone() };
    let mut links: Vec<Link> = scenario.links().map(link).collect();
    if !scenario.paths.is_empty() {
        links[FORWARD] = joined(&scenario.forward);
    }
    let own = links.len() - 2 * scenario.own_links.len();
    // A bundle of a pair of sites may have the same name.
    links[own..].iter_mut().for_each(|link| link.name = format!("link.{}", link.name));
    links
}

/// The link behind all paths: the propagation of `forward` and its changes.
fn joined(forward: &Link) -> Link {
    let changes = forward.changes.iter().filter(|change| change.delay.is_some());
    let changes = changes.map(|it| scenario::Change { rate: None, loss: None, ..*it });
    Link {
        jitter: forward.jitter,
        batch: forward.batch,
        changes: changes.collect(),
        ..Link::delay(&forward.name, forward.delay)
    }
}

/// The route of packets from A to B.
fn forward(scenario: &Scenario) -> Vec<Hop> {
    if scenario.paths.is_empty() {
        let hops = (0..scenario.hops.len()).map(|hop| Hop::Link(OTHERS + hop));
        return std::iter::once(Hop::Link(FORWARD)).chain(hops).collect();
    }
    let path = |path| vec![Hop::Link(OTHERS + path)];
    let paths = (0..scenario.paths.len()).map(path).collect();
    let parted = match scenario.balance {
        scenario::Balance::Flow => Hop::Hashed(paths),
        scenario::Balance::Packet => Hop::Spread(paths),
    };
    vec![parted, Hop::Link(FORWARD)]
}

/// The route of packets from A to B that cross only one of the links in series, with the propagation of
/// `forward`.
fn over_one(scenario: &Scenario, hop: usize) -> Vec<Hop> {
    match hop.checked_sub(1) {
        None => vec![Hop::Link(FORWARD)],
        Some(hop) => vec![Hop::Link(OTHERS + hop), Hop::Delay(scenario.forward.delay)],
    }
}

impl Setup {
    /// Builds the setup for `scenario`; its flows and bundles name algorithms of `algorithms`.
    ///
    /// # Errors
    /// [`Unsupported`] if no simulator can run the scenario, or no sender the algorithm.
    pub fn of(scenario: &Scenario, algorithms: &Registry) -> Result<Self, Unsupported> {
        refuse(scenario)?;
        let links = links(scenario);
        let network = Network {
            stop: scenario.stop + scenario.drain.max(LINGER),
            seed: scenario.seed,
            stack: stack(scenario),
            logged: (0..links.len()).collect(),
            links,
            bundles: match &scenario.topology {
                Some(topology) => sites::bundles(topology),
                None => scenario.bundles.iter().map(|it| bundle_of(scenario, it)).collect(),
            },
            uplinks: scenario.uplink.iter().cloned().collect(),
            flows: Vec::new(),
        };
        let (places, reversed, requests) = (Vec::new(), Vec::new(), Requests::default());
        let made = Self { network, places, reversed, requests, parts: None };
        let mut builder = Builder { scenario, algorithms, made };
        for (place, flow) in scenario.flows.iter().enumerate() {
            builder.add(place, flow)?;
        }
        let mut made = builder.made;
        made.parts = sites::parts(scenario, &made);
        Ok(made)
    }
}

/// A setup to which flows are added.
struct Builder<'a> {
    scenario: &'a Scenario,
    algorithms: &'a Registry,
    made: Setup,
}

impl Builder<'_> {
    fn add(&mut self, place: usize, flow: &scenario::Flow) -> Result<(), Unsupported> {
        match &flow.traffic {
            scenario::Traffic::Requests(load) => {
                return self.add_requests(place, flow, load.connections);
            }
            scenario::Traffic::Video { flows, video } => {
                return self.add_videos(place, flow, *flows, video);
            }
            scenario::Traffic::Media { flows, media } => {
                return self.add_media(place, flow, *flows, media);
            }
            _ => {}
        }
        let (traffic, count) = match &flow.traffic {
            scenario::Traffic::Greedy { flows } => {
                (Traffic::Source(Source::Greedy { bytes: None }), *flows)
            }
            scenario::Traffic::Datagrams { flows, rate, packet_bytes, timing } => {
                let packet = ByteCount::new((*packet_bytes).into());
                (Traffic::Source(timing.source(*rate, packet)), *flows)
            }
            scenario::Traffic::Ping { loops } => (Traffic::Ping, *loops),
            scenario::Traffic::Requests(_)
            | scenario::Traffic::Video { .. }
            | scenario::Traffic::Media { .. } => return Ok(()),
        };
        for index in 0..count {
            let place = Place { flow: place, index };
            self.add_flow(flow, traffic, [flow.reversed, false], place)?;
        }
        Ok(())
    }

    fn add_requests(
        &mut self,
        place: usize,
        flow: &scenario::Flow,
        connections: Connections,
    ) -> Result<(), Unsupported> {
        let drawn = self.scenario.schedule(flow);
        let drawn = drawn
            .map_err(|error| Unsupported(format!("{}: {error}", flow.name)))?
            .unwrap_or_default();
        let schedule = drawn.requests().to_vec();
        let Connections::Persistent(connections) = connections else {
            let traffic = Traffic::Messages(Opener::Receiver);
            let place = Place { flow: place, index: 0 };
            let messages = self.add_flow(flow, traffic, [flow.reversed, false], place)?;
            self.made.requests.add_messages(flow.start, schedule, messages);
            return Ok(());
        };
        let mut halves = Vec::new();
        for index in 0..connections {
            halves.push(self.add_connection(flow, Place { flow: place, index })?);
        }
        self.made.requests.add(flow.start, schedule, &halves);
        Ok(())
    }

    fn add_videos(
        &mut self,
        place: usize,
        flow: &scenario::Flow,
        count: u32,
        video: &Video,
    ) -> Result<(), Unsupported> {
        for index in 0..count {
            let halves = self.add_connection(flow, Place { flow: place, index })?;
            self.made.requests.add_video([flow.start_of(index), flow.stop], video.clone(), halves);
        }
        Ok(())
    }

    /// Each packet is acknowledged: the draft wants feedback at the end of each frame at the latest.
    fn add_media(
        &mut self,
        place: usize,
        flow: &scenario::Flow,
        count: u32,
        media: &Media,
    ) -> Result<(), Unsupported> {
        let mut flow = flow.clone();
        flow.receiving.ack_every.get_or_insert(1);
        let streams = Streams::new(self.scenario.seed).part("media");
        for index in 0..count {
            let place = Place { flow: place, index };
            let number = self.add_flow(&flow, Traffic::Written, [flow.reversed, false], place)?;
            let draws = streams.stream(&format!("{}#{index}", flow.name));
            let times = [flow.start_of(index), flow.stop];
            let media = Streaming::new(media.clone(), times, number, draws);
            self.made.requests.add_media(media);
        }
        Ok(())
    }

    /// A persistent connection between a client and a server.
    fn add_connection(
        &mut self,
        flow: &scenario::Flow,
        place: Place,
    ) -> Result<Halves, Unsupported> {
        let written = Traffic::Written;
        let answers = self.add_flow(flow, written, [flow.reversed, false], place)?;
        // A server answers at once, and its kernel acknowledges the request with the answer.
        let asks = self.add_flow(flow, written, [!flow.reversed, true], place)?;
        Ok(Halves { asks, answers })
    }

    /// With `rides`, acknowledgements ride on the data of the connection's other half.
    fn add_flow(
        &mut self,
        flow: &scenario::Flow,
        traffic: Traffic,
        [reversed, rides]: [bool; 2],
        place: Place,
    ) -> Result<usize, Unsupported> {
        let Self { scenario, algorithms, .. } = *self;
        let (rtt, [data, back]) = match scenario.site_pair(place.flow, place.index) {
            Some(pair) => (pair.rtt, sites::ways(scenario, flow, pair, reversed)),
            None => (scenario.rtt_of(flow), ways(scenario, flow, reversed)),
        };
        let back = if rides { vec![Hop::Delay(rtt / 2)] } else { back };
        // Clients ask until the end of the plan, and servers still write the answers after it.
        let is_answered = matches!(traffic, Traffic::Written | Traffic::Messages(_))
            && !matches!(flow.traffic, scenario::Traffic::Media { .. });
        let stop = (!is_answered).then_some(flow.stop);
        let opens_before = scenario.stack == scenario::Stack::Linux && flow.is_tcp();
        let name = match &flow.traffic {
            scenario::Traffic::Greedy { flows: 1 } => flow.name.clone(),
            _ => format!("{}-{}", flow.name, place.index + 1),
        };
        self.made.network.flows.push(Flow {
            name,
            cc: if flow.is_tcp() {
                algorithm(scenario, algorithms, flow)?
            } else {
                Spec::named("newreno")
            },
            traffic,
            start: if is_answered { Duration::ZERO } else { flow.start_of(place.index) },
            stop,
            dscp: flow.dscp,
            initial_window: Some(flow.initial_window),
            receiving: flow.receiving,
            data,
            back,
            opened: opens_before.then_some(rtt),
        });
        self.made.places.push(place);
        self.made.reversed.push(reversed);
        Ok(self.made.network.flows.len() - 1)
    }
}

/// The routes of `flow`: for its data, and for the packets back.
fn ways(scenario: &Scenario, flow: &scenario::Flow, reversed: bool) -> [Vec<Hop>; 2] {
    // Extra round-trip time of a flow lies between its hosts and the path.
    let access = (scenario.rtt_of(flow) - scenario.rtt_between(&flow.pair)) / 2;
    let with_access = |hops: Vec<Hop>| {
        let access = (!access.is_zero()).then_some(Hop::Delay(access));
        access.into_iter().chain(hops).collect()
    };
    let data = match (flow.ttl, flow.hop) {
        (Some(ttl), _) => mortal_way(scenario, &flow.pair, ttl),
        (None, Some(hop)) if !reversed => with_access(over_one(scenario, hop)),
        _ => with_access(way(scenario, &flow.pair, reversed)),
    };
    [data, with_access(way(scenario, &flow.pair, !reversed))]
}

/// The route of packets between a pair of sites in one direction: a bundle if there is one, else the links.
fn way(scenario: &Scenario, pair: &str, reversed: bool) -> Vec<Hop> {
    let is_its = |it: &scenario::Bundle| it.pair == pair && it.reversed == reversed;
    match scenario.bundles.iter().position(is_its) {
        Some(bundle) => vec![Hop::Bundle(bundle)],
        None => over_links(scenario, pair, reversed),
    }
}

/// The links between a pair of sites in a direction.
fn over_links(scenario: &Scenario, pair: &str, reversed: bool) -> Vec<Hop> {
    let own = scenario.own_links.iter().position(|own| own.pair == pair);
    match (own, reversed) {
        (None, false) => forward(scenario),
        (None, true) => vec![Hop::Link(REVERSE)],
        (Some(own), _) => {
            let first = OTHERS + scenario.paths.len() + scenario.hops.len();
            vec![Hop::Link(first + 2 * own + usize::from(reversed))]
        }
    }
}

/// The route of packets from A that expire before the receivebox. It includes their bundle's sendbox if there
/// is one, and with a TTL above 1 the links.
fn mortal_way(scenario: &Scenario, pair: &str, ttl: u8) -> Vec<Hop> {
    let is_its = |it: &scenario::Bundle| it.pair == pair && !it.reversed;
    let sendbox = scenario.bundles.iter().position(is_its).map(Hop::Sendbox);
    let link = if ttl > 1 { forward(scenario) } else { Vec::new() };
    // The receiver behind this delay counts the packets in place of the router where they expire.
    sendbox.into_iter().chain(link).chain([Hop::Delay(Duration::from_nanos(1))]).collect()
}

/// A bundle over the links of its direction; its messages return over the opposite direction.
fn bundle_of(scenario: &Scenario, of: &scenario::Bundle) -> RoutedBundle {
    let [path, back] = [of.reversed, !of.reversed].map(|it| over_links(scenario, &of.pair, it));
    let changes = bundle_changes(scenario, &of.name);
    RoutedBundle { log: true, changes, ..RoutedBundle::new(of.clone(), path, back) }
}

/// The changes to the boxes of a bundle, in order of time.
fn bundle_changes(scenario: &Scenario, name: &str) -> Vec<BundleChange> {
    let of_fault = |fault: &scenario::Fault| {
        let scenario::FaultProgram::Box { bundle, end } = &fault.program else { return None };
        let signal = match fault.action {
            scenario::FaultAction::Kill => Signal::Kill,
            scenario::FaultAction::Stop | scenario::FaultAction::Starve => Signal::Stop,
            scenario::FaultAction::Continue => Signal::Continue,
            scenario::FaultAction::RestartOtherKey => Signal::RestartOtherKey,
            scenario::FaultAction::Restart
            | scenario::FaultAction::RestartFullLog
            | scenario::FaultAction::RestartBlockedLog => Signal::Restart,
        };
        let what = match end {
            scenario::BoxEnd::Sendbox => Upset::Sendbox(signal),
            scenario::BoxEnd::Receivebox => Upset::Receivebox(signal),
        };
        (bundle == name).then_some(BundleChange { at: fault.at, what })
    };
    let upsets = scenario.upsets.iter().filter(|it| it.bundle == name);
    let upsets = upsets.filter_map(|it| Some(BundleChange { at: it.at, what: upset(it.kind)? }));
    let mut changes: Vec<BundleChange> =
        scenario.faults.iter().filter_map(of_fault).chain(upsets).collect();
    changes.sort_by_key(|change| change.at);
    changes
}

/// The simulator's form of an upset; `None` if it affects a device.
fn upset(kind: scenario::UpsetKind) -> Option<Upset> {
    match kind {
        scenario::UpsetKind::Unseen(share) => Some(Upset::Unseen(share)),
        scenario::UpsetKind::Forged(rate) => Some(Upset::Foreign(rate)),
        scenario::UpsetKind::Suspend => Some(Upset::Suspended(true)),
        scenario::UpsetKind::Resume => Some(Upset::Suspended(false)),
        _ => None,
    }
}

/// Refuses features that no simulator has: agents, logs, processors, devices, and sockets that an attacker
/// writes to.
fn refuse(scenario: &Scenario) -> Result<(), Unsupported> {
    let refused = |what: String| {
        let reason = "the back end sim does not support this, allowed with emu";
        Err(Unsupported(format!("{what}: {reason}")))
    };
    let is_possible = |fault: &scenario::Fault| {
        use scenario::FaultAction::{RestartBlockedLog, RestartFullLog, Starve};
        let is_of_processes = [RestartFullLog, RestartBlockedLog, Starve].contains(&fault.action);
        fault.program != scenario::FaultProgram::Agent && !is_of_processes
    };
    if let Some(fault) = scenario.faults.iter().find(|fault| !is_possible(fault)) {
        let known = scenario::FaultAction::ALL.iter().find(|(_, action)| *action == fault.action);
        let action = known.map_or("", |(name, _)| name);
        let whose =
            if fault.program == scenario::FaultProgram::Agent { " of an agent" } else { "" };
        return refused(format!("[[fault]] {action}{whose}"));
    }
    if scenario.upsets.iter().any(|upset| self::upset(upset.kind).is_none()) {
        return refused("[[upset]] of a device or of clients".into());
    }
    if scenario.attack.is_some() {
        return refused("[attack]".into());
    }
    if scenario.routed {
        return refused("bundle.forward = \"route\"".into());
    }
    if let Some(bundle) = scenario.bundles.iter().find(|bundle| bundle.in_kernel) {
        return refused(format!("bundle.{}.datapath = \"kernel\"", bundle.name));
    }
    Ok(())
}

fn stack(scenario: &Scenario) -> Stack {
    let mut stack = match scenario.stack {
        scenario::Stack::Linux => Stack::LINUX,
        scenario::Stack::Ns3 => Stack::NS3,
    };
    if scenario.ecn {
        stack.tcp.ecn = EcnMode::Classic;
    }
    stack
}

/// The algorithm of a flow; an error if no sender of the simulator can run it. Algorithms that stand for the
/// kernel's use the defaults of the network's stack, all other algorithms the defaults of the registry.
fn algorithm(
    scenario: &Scenario,
    algorithms: &Registry,
    flow: &scenario::Flow,
) -> Result<Spec, Unsupported> {
    let is_of_kernel = matches!(flow.platform, Some(Platform::Agent | Platform::Bpf));
    if is_of_kernel && scenario.stack == scenario::Stack::Ns3 {
        let (at, name, cc) = (&flow.cc_at, &flow.name, flow.cc_name());
        let allowed = "a name without agent: or bpf:, because stack = \"ns3\" supports neither";
        let error = format!("{at}: flow.{name}.cc = {cc}: allowed is {allowed}");
        return Err(Unsupported(error));
    }
    let mut spec = flow.cc.clone();
    if spec.kind == "reno" {
        spec.kind = "newreno".into();
    }
    let spec = match flow.platform {
        // The kernel's algorithms have no form for aggregates.
        None | Some(Platform::Kernel) => algorithms.of_single_flow(spec),
        Some(Platform::Agent) => algorithms.with_defaults(algorithms.of_single_flow(spec)),
        Some(Platform::Bpf) if spec.kind == "cubic" => {
            let spec = spec.with("hystart", Value::Text("classic".into()));
            algorithms.with_defaults(spec.with("linux_growth", Value::Bool(true)))
        }
        Some(Platform::Bpf) => algorithms.with_defaults(spec),
    };
    match algorithms.build(&spec, SUPPLIED) {
        Ok(_) => Ok(spec),
        Err(error) => {
            let error = error.within(&format!("flow.{}.cc", flow.name));
            Err(Unsupported(format!("{}: {error}", flow.cc_at)))
        }
    }
}
