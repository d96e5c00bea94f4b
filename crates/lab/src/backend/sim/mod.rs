//! The packet simulator. Runs until the last answer is read, as the testbed's hosts do, and returns rows.

mod cores;
mod packets;
mod rows;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::mem;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_core::record::PacketRecord;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;
use forebay_policy::algorithms;
use forebay_scenario as plan;
use forebay_sim::network::Network;
use forebay_sim::{INTERVAL_NS, LINGER, Part, Parts, Place, Requests, Seen, Setup, Simulation};

use super::{Backend, BackendError, RunProgress, Stop};
use crate::metrics::RunRows;
use crate::plan::Experiment;
use cores::{Cores, Share, lock};
use packets::Packets;
use rows::Rows;
#[cfg(feature = "ns3")]
pub(super) use rows::{of_connection, of_link, payload, scheduled};
use watch::Watch;

/// The back end.
pub struct Sim {
    stop: Stop,
    cores: Cores,
}

impl Default for Sim {
    fn default() -> Self {
        Self { stop: Stop::default(), cores: Cores::new(1) }
    }
}

/// Number of progress reports in a run.
const STEPS: u32 = 100;
/// Most connections of a flow whose writes are watched.
const WATCHED_MAX: u32 = 100;

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn jobs_max(&self) -> Option<usize> {
        None
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn writes_files(&self) -> bool {
        false
    }

    fn heed(&mut self, stop: &Stop, cores: usize) {
        (self.stop, self.cores) = (stop.clone(), Cores::new(cores));
    }

    fn check(&self, experiment: &Experiment) -> Result<(), BackendError> {
        super::refuse_costs(experiment, self.name())?;
        build(experiment, set_up(experiment)?.network).map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        _directory: &Path,
        progress: &mut dyn FnMut(RunProgress),
    ) -> Result<RunRows, BackendError> {
        let share = self.cores.begin();
        let one = Cores::new(1);
        let share = if has_own(experiment) { one.begin() } else { share };
        let with = With { stop: &self.stop, share };
        self.stop.around(|| run(experiment, false, &with, progress, |_| ()))
    }
}

/// Whether an algorithm of the user's own decides in `experiment`. Its instances may share a state, so their calls
/// must have one order: the parts of a cut network then run on one thread.
fn has_own(experiment: &Experiment) -> bool {
    let topology = experiment.topology.as_ref().and_then(|it| it.bundle.as_ref());
    let bundles = experiment.bundles.iter().chain(topology).map(|bundle| &bundle.cc);
    let mut all = experiment.flows.iter().map(|flow| &flow.cc).chain(bundles);
    all.any(|cc| algorithms::sources(&cc.kind).is_some())
}

/// Event that an observer of a simulation receives.
pub(crate) enum Sight<'a> {
    /// The flows of the network; sent before all other events.
    Flows(Vec<NetworkFlow>),
    /// A packet on the link of this number, in order of arrival there; sent once its fate is final.
    OnLink(usize, &'a PacketRecord),
    /// An event at an endpoint, in order of time; sent before its consequences on links.
    AtEnd(Seen),
}

/// Plan flow behind a flow of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkFlow {
    /// Place of the flow in the experiment.
    pub flow: usize,
    /// Number among the connections of the same flow.
    pub index: u32,
    /// Whether its data go from B to A.
    pub reversed: bool,
}

/// Runs `experiment` as [`Sim`] does, and passes all packets to `visit`.
pub(crate) fn observe(
    experiment: &Experiment,
    progress: &mut dyn FnMut(RunProgress),
    visit: impl FnMut(Sight<'_>),
) -> Result<RunRows, BackendError> {
    let (stop, cores) = (Stop::default(), Cores::new(1));
    run(experiment, true, &With { stop: &stop, share: cores.begin() }, progress, visit)
}

/// The stop and the processor cores that runs share.
struct With<'a> {
    stop: &'a Stop,
    share: Share<'a>,
}

/// Runs `experiment` until the stop is set. `visit` receives packets on links and, with `has_ends`, events at
/// endpoints; of a network that is cut it receives nothing.
fn run(
    experiment: &Experiment,
    has_ends: bool,
    with: &With<'_>,
    progress: &mut dyn FnMut(RunProgress),
    mut visit: impl FnMut(Sight<'_>),
) -> Result<RunRows, BackendError> {
    let Setup { network, places, reversed, requests, parts } = set_up(experiment)?;
    if let Some(parts) = parts {
        return run_cut(experiment, with, &network, &requests, &places, parts, progress);
    }
    let mut simulation = build(experiment, network)?;
    if has_ends {
        simulation.watch_endpoints();
        visit(Sight::Flows(network_flows(&places, reversed)));
    }
    for (number, place) in places.iter().enumerate() {
        let traffic = &experiment.flows[place.flow].traffic;
        // The logs of thousands of connections would be larger than the connections.
        if matches!(traffic, plan::Traffic::Greedy { flows } if *flows <= WATCHED_MAX) {
            simulation.watch_writing(number);
        }
    }
    let mut watch = Watch::of(experiment, &places);
    let mut packets = Packets::new(experiment, &places, None, 0);
    let mut part = Part::whole(simulation, requests);
    run_to_end(experiment, with.stop, packets::INTERVAL, progress, |until| {
        watch.run_until(until, &mut part.simulation, &mut part.requests);
        packets.take(&mut part.simulation, &mut visit);
        part.requests.unfinished()
    })?;
    let truths = packets.finish(&mut part.simulation, &mut visit);
    let Part { simulation, requests, .. } = part;
    Ok(Rows { experiment, simulation, places, requests, samples: watch.samples, truths }.all())
}

/// A part of a network, and the reader of its packets.
struct Station {
    part: Part,
    packets: Packets,
}

/// Runs `experiment`, whose network is cut into `parts`, on all cores that this run has.
fn run_cut(
    experiment: &Experiment,
    with: &With<'_>,
    network: &Network,
    requests: &Requests,
    places: &[Place],
    parts: Parts,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<RunRows, BackendError> {
    let parts = Arc::new(parts);
    let made: Vec<_> = (0..parts.count).map(|here| Mutex::new((here, None))).collect();
    let make = |(here, station): &mut (usize, Option<Result<Station, SpecError>>)| {
        let algorithms = experiment.algorithms.clone();
        let part = Part::new(network, algorithms, requests, &parts, *here);
        let packets = Packets::new(experiment, places, Some(&parts), *here);
        *station = Some(part.map(|part| Station { part, packets }));
    };
    with.share.in_rounds(&made, make, |round| round());
    let made = made.iter().filter_map(|it| lock(it).1.take());
    let made = made.map(|it| it.map(Mutex::new)).collect::<Result<Vec<_>, _>>();
    let stations = made.map_err(|error| refused(experiment, &error))?;

    let until_ns = AtomicU64::new(0);
    let advance = |Station { part, packets }: &mut Station| {
        let until = Timestamp::from_nanos(until_ns.load(Ordering::Relaxed));
        with.stop.around(|| part.run_until(until));
        packets.take(&mut part.simulation, &mut |_| ());
    };
    with.share.in_rounds(&stations, advance, |round| {
        let step = packets::INTERVAL.min(parts.delay);
        run_to_end(experiment, with.stop, step, progress, |until| {
            until_ns.store(until.as_nanos(), Ordering::Relaxed);
            round();
            let mut all: Vec<_> = stations.iter().map(lock).collect();
            let mut all: Vec<&mut Part> = all.iter_mut().map(|it| &mut it.part).collect();
            Part::exchange(&mut all);
            all.iter().map(|part| part.requests.unfinished()).sum()
        })
    })?;
    let (mut truths, mut ended) = (Vec::new(), Vec::new());
    for station in stations {
        let Station { mut part, packets } =
            station.into_inner().unwrap_or_else(PoisonError::into_inner);
        let links = packets.links.clone();
        let mut found = packets.finish(&mut part.simulation, &mut |_| ());
        match truths.is_empty() {
            true => truths = found,
            false => links.iter().for_each(|it| mem::swap(&mut truths[*it], &mut found[*it])),
        }
        ended.push(part);
    }
    let Part { simulation, requests, .. } = Part::join(ended);
    let (places, samples) = (places.to_vec(), BTreeMap::new());
    Ok(Rows { experiment, simulation, places, requests, samples, truths }.all())
}

/// Calls `advance`, which runs to a time and returns the number of unfinished requests, every `step`. Ends once
/// arrivals have ended and the requests are finished, at the latest after the drain.
fn run_to_end(
    experiment: &Experiment,
    asked: &Stop,
    step: Duration,
    progress: &mut dyn FnMut(RunProgress),
    mut advance: impl FnMut(Timestamp) -> usize,
) -> Result<(), BackendError> {
    let plan::Scenario { stop, drain, .. } = experiment.scenario;
    let (mut now, mut unfinished) = (Timestamp::ZERO, 0);
    let mut run_to = |until: Duration, done: f64, phase: &str| {
        let until = Timestamp::ZERO + until;
        while now < until {
            if asked.is_asked() {
                return Err(BackendError::Stopped);
            }
            now = (now + step).min(until);
            unfinished = advance(now);
        }
        progress(RunProgress { phase: phase.into(), done });
        Ok(unfinished)
    };
    let mut unfinished = 0;
    for step in 1..=STEPS {
        let done = f64::from(step) / f64::from(STEPS);
        unfinished = run_to(stop * step / STEPS, done, "running")?;
    }
    let mut until = stop;
    if experiment.flows.iter().any(|flow| !flow.is_tcp()) {
        until += LINGER.min(drain);
        unfinished = run_to(until, 1.0, "draining")?;
    }
    let end = stop + drain;
    while unfinished > 0 && until < end {
        until = (until + Duration::from_nanos(INTERVAL_NS)).min(end);
        unfinished = run_to(until, 1.0, "draining")?;
    }
    Ok(())
}

/// A simulation that the caller drives, with its request clients.
pub struct Driven {
    /// The simulation, before its first event.
    pub simulation: Simulation,
    /// The clients.
    pub requests: Requests,
}

/// Sets up `experiment` for a caller that drives it; logs that the caller does not read are off.
pub fn driven(experiment: &Experiment) -> Result<Driven, BackendError> {
    let Setup { mut network, requests, .. } = set_up(experiment)?;
    network.logged.clear();
    network.bundles.iter_mut().for_each(|bundle| bundle.log = false);
    Ok(Driven { simulation: build(experiment, network)?, requests })
}

fn network_flows(places: &[Place], reversed: Vec<bool>) -> Vec<NetworkFlow> {
    let flows = places.iter().zip(reversed);
    let flows = flows.map(|(Place { flow, index }, reversed)| NetworkFlow {
        flow: *flow,
        index: *index,
        reversed,
    });
    flows.collect()
}

fn set_up(experiment: &Experiment) -> Result<Setup, BackendError> {
    super::refuse_quic(experiment, "sim")?;
    let made = Setup::of(experiment, &experiment.algorithms);
    made.map_err(|error| BackendError::Unsupported(error.to_string()))
}

/// The simulation of `network`; errors use the plan's names.
fn build(experiment: &Experiment, network: Network) -> Result<Simulation, BackendError> {
    let built = Simulation::with_algorithms(network, experiment.algorithms.clone());
    built.map_err(|error| refused(experiment, &error))
}

/// The error of a simulation, with the plan's names.
fn refused(experiment: &Experiment, error: &SpecError) -> BackendError {
    let error = error.to_string();
    // The simulator names the reverse link and links of `path` tables as their tables do; any other key is the
    // bottleneck's.
    let names = experiment.links().map(|link| &link.name).filter(|name| *name != "reverse");
    let inside = names.filter_map(|name| error.strip_prefix(name)).find(|it| it.starts_with('.'));
    let key = inside.map_or_else(|| error.clone(), |inside| format!("bottleneck{inside}"));
    BackendError::Unsupported(format!("{}: {key}", experiment.plan))
}
