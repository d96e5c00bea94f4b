//! From a plan to a network.

use std::time::Duration;

use forebay_core::link::{self, Service};
use forebay_core::spec::{Spec, SpecError, Value};
use forebay_core::traffic::Source;
use forebay_core::traffic::video::Video;
use forebay_core::units::{ByteCount, Ratio};
use forebay_sim::network::{
    Bundle, BundleChange, Flow, Hop, Link, Network, Opener, Signal, Traffic, Upset,
};
use forebay_sim::{EcnMode, Halves, Requests, SUPPLIED, Stack};

use super::{LINGER, sites};
use crate::backend::BackendError;
use crate::plan::Experiment;
use crate::plan::experiment::{self as plan, Platform};
use crate::plan::schedule::Connections;

/// What a flow of the network stands for: the place of its flow in the experiment, and its number
/// among those alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub flow: usize,
    pub index: u32,
}

/// A network and what is driven from outside of it.
pub(super) struct Setup {
    pub network: Network,
    /// By flow of the network.
    pub places: Vec<Place>,
    /// By flow of the network: whether its data go from B to A.
    pub reversed: Vec<bool>,
    pub requests: Requests,
}

/// The links of the network: these two, and behind them those of the paths that `forward` is made of, or those
/// that follow it in a row, and at last those of pairs of sites that take none of these, or of a topology. With paths
/// `forward` is no queue but where they come together.
pub(super) const FORWARD: usize = 0;
pub(super) const REVERSE: usize = 1;
pub(super) const OTHERS: usize = 2;

/// What the rows of the links are called.
pub(super) fn link_names(experiment: &Experiment) -> Vec<String> {
    experiment.links().map(|(name, _)| name).collect()
}

/// The links of the network, in the order of their names.
fn links(experiment: &Experiment) -> Result<Vec<Link>, BackendError> {
    let mut links: Vec<(String, plan::Link)> =
        experiment.links().map(|(name, link)| (name, link.clone())).collect();
    if !experiment.paths.is_empty() {
        links[FORWARD].1 = joined(&experiment.forward);
    }
    let own = links.len() - 2 * experiment.own_links.len();
    // A pair of sites may have a bundle of its name.
    links[own..].iter_mut().for_each(|(name, _)| *name = format!("link.{name}"));
    links.iter().map(|(name, of)| link(name, of)).collect()
}

/// What is behind all paths: the propagation of `forward`, and changes of that.
fn joined(forward: &plan::Link) -> plan::Link {
    let changes = forward.changes.iter().filter(|change| change.delay.is_some());
    let changes = changes.map(|it| plan::Change { rate: None, loss: None, ..*it });
    plan::Link {
        rate: None,
        loss: 0.0,
        message_loss: 0.0,
        ack_filter: false,
        clears_ecn: false,
        reorder: 0.0,
        qdisc: Spec::named("fifo"),
        changes: changes.collect(),
        ..forward.clone()
    }
}

/// What packets from A to B take.
fn forward(experiment: &Experiment) -> Vec<Hop> {
    if experiment.paths.is_empty() {
        let hops = (0..experiment.hops.len()).map(|hop| Hop::Link(OTHERS + hop));
        return std::iter::once(Hop::Link(FORWARD)).chain(hops).collect();
    }
    let path = |path| vec![Hop::Link(OTHERS + path)];
    let paths = (0..experiment.paths.len()).map(path).collect();
    let parted = match experiment.balance {
        plan::Balance::Flow => Hop::Hashed(paths),
        plan::Balance::Packet => Hop::Spread(paths),
    };
    vec![parted, Hop::Link(FORWARD)]
}

/// What packets from A to B take that run over one of the links in a row, and the propagation of all.
fn over_one(experiment: &Experiment, hop: usize) -> Vec<Hop> {
    match hop.checked_sub(1) {
        None => vec![Hop::Link(FORWARD)],
        Some(hop) => vec![Hop::Link(OTHERS + hop), Hop::Delay(experiment.forward.delay)],
    }
}

impl Setup {
    pub fn of(experiment: &Experiment) -> Result<Self, BackendError> {
        let network = Network {
            stop: experiment.stop + experiment.drain.max(LINGER),
            seed: experiment.seed,
            stack: stack(experiment),
            links: links(experiment)?,
            bundles: match &experiment.topology {
                Some(topology) => sites::bundles(topology),
                None => experiment.bundles.iter().map(|it| bundle_of(experiment, it)).collect(),
            },
            uplinks: experiment.uplink.iter().cloned().collect(),
            flows: Vec::new(),
        };
        let (places, reversed) = (Vec::new(), Vec::new());
        let mut setup = Self { network, places, reversed, requests: Requests::default() };
        for (place, flow) in experiment.flows.iter().enumerate() {
            setup.add(experiment, place, flow)?;
        }
        Ok(setup)
    }

    fn add(
        &mut self,
        experiment: &Experiment,
        place: usize,
        flow: &plan::Flow,
    ) -> Result<(), BackendError> {
        match &flow.traffic {
            plan::Traffic::Requests(load) => {
                return self.add_requests(experiment, place, flow, load.connections);
            }
            plan::Traffic::Video { flows, video } => {
                return self.add_videos(experiment, place, flow, *flows, video);
            }
            _ => {}
        }
        let (traffic, count) = match &flow.traffic {
            plan::Traffic::Greedy { flows } => {
                (Traffic::Source(Source::Greedy { bytes: None }), *flows)
            }
            plan::Traffic::Datagrams { flows, rate, packet_bytes, timing } => {
                let packet = ByteCount::new((*packet_bytes).into());
                (Traffic::Source(timing.source(*rate, packet)), *flows)
            }
            plan::Traffic::Ping { loops } => (Traffic::Ping, *loops),
            plan::Traffic::Requests(_) | plan::Traffic::Video { .. } => return Ok(()),
        };
        for index in 0..count {
            let place = Place { flow: place, index };
            self.add_flow(experiment, flow, traffic, [flow.reversed, false], place)?;
        }
        Ok(())
    }

    fn add_requests(
        &mut self,
        experiment: &Experiment,
        place: usize,
        flow: &plan::Flow,
        connections: Connections,
    ) -> Result<(), BackendError> {
        let drawn = experiment.schedule(flow);
        let drawn = drawn
            .map_err(|error| BackendError::Unsupported(format!("{}: {error}", flow.name)))?
            .unwrap_or_default();
        let schedule = drawn.requests().to_vec();
        let Connections::Persistent(connections) = connections else {
            let traffic = Traffic::Messages(Opener::Receiver);
            let place = Place { flow: place, index: 0 };
            let messages =
                self.add_flow(experiment, flow, traffic, [flow.reversed, false], place)?;
            self.requests.add_messages(flow.start, schedule, messages);
            return Ok(());
        };
        let mut halves = Vec::new();
        for index in 0..connections {
            halves.push(self.add_connection(experiment, flow, Place { flow: place, index })?);
        }
        self.requests.add(flow.start, schedule, &halves);
        Ok(())
    }

    fn add_videos(
        &mut self,
        experiment: &Experiment,
        place: usize,
        flow: &plan::Flow,
        count: u32,
        video: &Video,
    ) -> Result<(), BackendError> {
        for index in 0..count {
            let halves = self.add_connection(experiment, flow, Place { flow: place, index })?;
            self.requests.add_video([flow.start_of(index), flow.stop], video.clone(), halves);
        }
        Ok(())
    }

    /// A persistent connection between a client and a server.
    fn add_connection(
        &mut self,
        experiment: &Experiment,
        flow: &plan::Flow,
        place: Place,
    ) -> Result<Halves, BackendError> {
        let written = Traffic::Written;
        let answers = self.add_flow(experiment, flow, written, [flow.reversed, false], place)?;
        // A server answers at once, and its kernel acknowledges the request with the answer.
        let asks = self.add_flow(experiment, flow, written, [!flow.reversed, true], place)?;
        Ok(Halves { asks, answers })
    }

    /// `rides`: acknowledgements ride on what the other half of the connection sends.
    fn add_flow(
        &mut self,
        experiment: &Experiment,
        flow: &plan::Flow,
        traffic: Traffic,
        [reversed, rides]: [bool; 2],
        place: Place,
    ) -> Result<usize, BackendError> {
        let (rtt, [data, back]) = match experiment.site_pair(place.flow, place.index) {
            Some(pair) => (pair.rtt, sites::ways(experiment, flow, pair, reversed)),
            None => (experiment.rtt_of(flow), ways(experiment, flow, reversed)),
        };
        let back = if rides { vec![Hop::Delay(rtt / 2)] } else { back };
        // Clients ask until the plan's end, and the answers to that are still written.
        let is_answered = matches!(traffic, Traffic::Written | Traffic::Messages(_));
        let stop = (!is_answered).then_some(flow.stop);
        let opens_before = experiment.stack == plan::Stack::Linux && flow.is_tcp();
        let name = match &flow.traffic {
            plan::Traffic::Greedy { flows: 1 } => flow.name.clone(),
            _ => format!("{}-{}", flow.name, place.index + 1),
        };
        self.network.flows.push(Flow {
            name,
            cc: if flow.is_tcp() { algorithm(experiment, flow)? } else { Spec::named("newreno") },
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
        self.places.push(place);
        self.reversed.push(reversed);
        Ok(self.network.flows.len() - 1)
    }
}

/// What the data of `flow` take, and what comes back.
fn ways(experiment: &Experiment, flow: &plan::Flow, reversed: bool) -> [Vec<Hop>; 2] {
    // What its way is longer than the path lies between its hosts and the path.
    let access = (experiment.rtt_of(flow) - experiment.rtt_between(&flow.pair)) / 2;
    let with_access = |hops: Vec<Hop>| {
        let access = (!access.is_zero()).then_some(Hop::Delay(access));
        access.into_iter().chain(hops).collect()
    };
    let data = match (flow.ttl, flow.hop) {
        (Some(ttl), _) => mortal_way(experiment, &flow.pair, ttl),
        (None, Some(hop)) if !reversed => with_access(over_one(experiment, hop)),
        _ => with_access(way(experiment, &flow.pair, reversed)),
    };
    [data, with_access(way(experiment, &flow.pair, !reversed))]
}

/// What packets of a pair of sites take in a direction: a bundle, or else the link.
fn way(experiment: &Experiment, pair: &str, reversed: bool) -> Vec<Hop> {
    let is_its = |it: &plan::Bundle| it.pair == pair && it.reversed == reversed;
    match experiment.bundles.iter().position(is_its) {
        Some(bundle) => vec![Hop::Bundle(bundle)],
        None => over_links(experiment, pair, reversed),
    }
}

/// The links between a pair of sites in a direction.
fn over_links(experiment: &Experiment, pair: &str, reversed: bool) -> Vec<Hop> {
    let own = experiment.own_links.iter().position(|own| own.pair == pair);
    match (own, reversed) {
        (None, false) => forward(experiment),
        (None, true) => vec![Hop::Link(REVERSE)],
        (Some(own), _) => {
            let first = OTHERS + experiment.paths.len() + experiment.hops.len();
            vec![Hop::Link(first + 2 * own + usize::from(reversed))]
        }
    }
}

/// What packets from A take that die before the receivebox: their bundle's sendbox, if there is one, and
/// with a second hop to live the link.
fn mortal_way(experiment: &Experiment, pair: &str, ttl: u8) -> Vec<Hop> {
    let is_its = |it: &plan::Bundle| it.pair == pair && !it.reversed;
    let sendbox = experiment.bundles.iter().position(is_its).map(Hop::Sendbox);
    let link = if ttl > 1 { forward(experiment) } else { Vec::new() };
    // Whoever counts them at the end stands for where they die.
    sendbox.into_iter().chain(link).chain([Hop::Delay(Duration::from_nanos(1))]).collect()
}

/// A bundle over the links of its direction, its messages back over the others.
fn bundle_of(experiment: &Experiment, of: &plan::Bundle) -> Bundle {
    let ways = [of.reversed, !of.reversed].map(|it| over_links(experiment, &of.pair, it));
    let mut built = bundle(of, ways);
    built.log = true;
    built.changes = bundle_changes(experiment, &of.name);
    built
}

/// A bundle over `path`, its messages over `back`.
pub(super) fn bundle(bundle: &plan::Bundle, [path, back]: [Vec<Hop>; 2]) -> Bundle {
    let (cc, qdisc) = (bundle.cc.clone(), bundle.qdisc.clone());
    let mut built = Bundle::new(&bundle.name, cc, qdisc, path, back);
    built.min_rate = bundle.min_rate;
    built.max_rate = bundle.max_rate;
    built.supervised = bundle.supervised;
    built.unseen = Ratio::new(bundle.unseen).unwrap_or(Ratio::ZERO);
    built.clock = bundle.clock.clone();
    (built.report_jitter, built.timestamp_jitter) = (bundle.report_jitter, bundle.timestamp_jitter);
    built
}

/// What happens to the boxes of a bundle, in order of time.
fn bundle_changes(experiment: &Experiment, name: &str) -> Vec<BundleChange> {
    let of_fault = |fault: &plan::Fault| {
        let plan::FaultProgram::Box { bundle, end } = &fault.program else { return None };
        let signal = match fault.action {
            plan::FaultAction::Kill => Signal::Kill,
            plan::FaultAction::Stop | plan::FaultAction::Starve => Signal::Stop,
            plan::FaultAction::Continue => Signal::Continue,
            plan::FaultAction::RestartOtherKey => Signal::RestartOtherKey,
            plan::FaultAction::Restart
            | plan::FaultAction::RestartFullLog
            | plan::FaultAction::RestartBlockedLog => Signal::Restart,
        };
        let what = match end {
            plan::BoxEnd::Sendbox => Upset::Sendbox(signal),
            plan::BoxEnd::Receivebox => Upset::Receivebox(signal),
        };
        (bundle == name).then_some(BundleChange { at: fault.at, what })
    };
    let upsets = experiment.upsets.iter().filter(|it| it.bundle == name);
    let upsets = upsets.filter_map(|it| Some(BundleChange { at: it.at, what: upset(it.kind)? }));
    let mut changes: Vec<BundleChange> =
        experiment.faults.iter().filter_map(of_fault).chain(upsets).collect();
    changes.sort_by_key(|change| change.at);
    changes
}

/// What a simulator makes of an upset; nothing of one of a device.
pub(super) fn upset(kind: plan::UpsetKind) -> Option<Upset> {
    match kind {
        plan::UpsetKind::Unseen(share) => Ratio::new(share).map(Upset::Unseen),
        plan::UpsetKind::Forged(rate) => Some(Upset::Foreign(rate)),
        plan::UpsetKind::Suspend => Some(Upset::Suspended(true)),
        plan::UpsetKind::Resume => Some(Upset::Suspended(false)),
        _ => None,
    }
}

fn stack(experiment: &Experiment) -> Stack {
    let mut stack = match experiment.stack {
        plan::Stack::Linux => Stack::LINUX,
        plan::Stack::Ns3 => Stack::NS3,
    };
    if experiment.ecn {
        stack.tcp.ecn = EcnMode::Classic;
    }
    stack
}

/// The algorithm of a flow; refuses one that a sender of the simulator cannot serve. One that stands
/// for the kernel's has the defaults of the network's stack, the others those of the registry.
fn algorithm(experiment: &Experiment, flow: &plan::Flow) -> Result<Spec, BackendError> {
    let algorithms = &experiment.algorithms;
    let mut spec = flow.cc.clone();
    if spec.kind == "reno" {
        spec.kind = "newreno".into();
    }
    let spec = match flow.platform {
        // None of the kernel's has a form for aggregates.
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
            Err(BackendError::Unsupported(format!("{}: {error}", flow.cc_at)))
        }
    }
}

fn link(name: &str, link: &plan::Link) -> Result<Link, BackendError> {
    let refused = |error: SpecError| BackendError::Unsupported(format!("{name} link: {error}"));
    let config = link::Config {
        service: service(link),
        delay: link.delay,
        jitter: link.jitter,
        batch: link.batch,
        loss: share(link.loss).map_err(refused)?,
        reorder: share(link.reorder).map_err(refused)?,
        reorder_packets: link.reorder_packets,
        changes: link.changes.clone(),
    };
    let mut built = Link::new(name, config, link.qdisc.clone());
    built.message_loss = share(link.message_loss).map_err(refused)?;
    (built.ack_filter, built.clears_ecn) = (link.ack_filter, link.clears_ecn);
    built.log = true;
    Ok(built)
}

fn share(value: f64) -> Result<Ratio, SpecError> {
    Ratio::new(value).ok_or_else(|| SpecError::new("share", &value.to_string(), "0 to 1"))
}

fn service(link: &plan::Link) -> Service {
    match &link.trace {
        Some(trace) => Service::Trace(trace.clone()),
        None => link.rate.map_or(Service::Unlimited, Service::Rate),
    }
}
