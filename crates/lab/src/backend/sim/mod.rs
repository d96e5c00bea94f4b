//! The packet simulator: the plan's links, traffic and bundles as a network, and what it did as rows.
//!
//! What the testbed's hosts do is done here too: connections of the stack `linux` are open before the
//! run, requests go over persistent connections, clients ask in open loop, and a run drains until the
//! last answer was read. With the stack `ns3` a connection opens when its flow starts.

mod packets;
mod rows;
mod setup;
mod sites;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::time::Duration;

use forebay_core::record::PacketRecord;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;
use forebay_sim::network::Network;
use forebay_sim::{INTERVAL_NS, Requests, Seen, Simulation};

use super::{Backend, BackendError, Progress, Stop};
use crate::plan::Experiment;
use crate::plan::experiment as plan;
use crate::rows::RunRows;
use packets::Packets;
use rows::Rows;
#[cfg(feature = "ns3")]
pub(super) use rows::{of_connection, of_link, payload, scheduled};
use setup::{Place, Setup, link_names};
use watch::Watch;

/// The back end.
#[derive(Default)]
pub struct Sim {
    stop: Stop,
}

/// Steps of the progress that is told.
const STEPS: u32 = 100;
/// Most connections of a flow whose writes are watched.
const WATCHED_MAX: u32 = 100;
/// How long datagrams are awaited after the end of arrivals: as long as the testbed does.
const LINGER: Duration = Duration::from_secs(1);

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

    fn heed(&mut self, stop: &Stop) {
        self.stop = stop.clone();
    }

    fn check(&self, experiment: &Experiment) -> Result<(), BackendError> {
        refuse(experiment)?;
        build(experiment, Setup::of(experiment)?.network).map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        _directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RunRows, BackendError> {
        self.stop.around(|| run(experiment, false, &self.stop, progress, |_| ()))
    }
}

/// What those see who watch a simulation.
pub(crate) enum Sight<'a> {
    /// Before all else, by flow of the network.
    Flows(Vec<NetworkFlow>),
    /// A packet on the link of this number, in order of arrival there and once nothing can happen to it any more.
    OnLink(usize, &'a PacketRecord),
    /// What endpoints do, in order of time and before what it leads to on links.
    AtEnd(Seen),
}

/// What a flow of the network stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkFlow {
    /// Place of its flow in the experiment.
    pub flow: usize,
    /// Number among those of the same place.
    pub index: u32,
    /// Whether its data go from B to A.
    pub reversed: bool,
}

/// Runs `experiment` as [`Sim`] does; `visit` is told of all packets.
pub(crate) fn observe(
    experiment: &Experiment,
    progress: &mut dyn FnMut(Progress),
    visit: impl FnMut(Sight<'_>),
) -> Result<RunRows, BackendError> {
    run(experiment, true, &Stop::default(), progress, visit)
}

/// Runs `experiment` until `stop` is asked; `visit` is told of packets on links and, where `has_ends`, at endpoints.
fn run(
    experiment: &Experiment,
    has_ends: bool,
    stop: &Stop,
    progress: &mut dyn FnMut(Progress),
    mut visit: impl FnMut(Sight<'_>),
) -> Result<RunRows, BackendError> {
    refuse(experiment)?;
    let Setup { network, places, reversed, requests } = Setup::of(experiment)?;
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
    let watch = Watch::of(experiment, &places);
    let packets = Packets::new(experiment, &places, visit);
    let mut run = Run { experiment, stop, simulation, requests, watch, packets };
    run.complete(progress)?;
    Ok(run.rows(places))
}

/// A simulation that somebody else drives, and the clients that ask in it.
pub(crate) struct Driven {
    pub simulation: Simulation,
    pub requests: Requests,
}

/// Sets up `experiment` for who drives it; what nobody reads is not logged.
pub(crate) fn driven(experiment: &Experiment) -> Result<Driven, BackendError> {
    refuse(experiment)?;
    let Setup { mut network, requests, .. } = Setup::of(experiment)?;
    network.links.iter_mut().for_each(|link| link.log = false);
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

/// A run that is under way.
struct Run<'a, V> {
    experiment: &'a Experiment,
    stop: &'a Stop,
    simulation: Simulation,
    requests: Requests,
    watch: Watch,
    packets: Packets<V>,
}

impl<V: FnMut(Sight<'_>)> Run<'_, V> {
    fn complete(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<(), BackendError> {
        let Experiment { stop, drain, .. } = *self.experiment;
        let mut run_to = |it: &mut Self, until: Duration, done: f64, phase: &str| {
            it.run_to(Timestamp::ZERO + until)?;
            progress(Progress { phase: phase.into(), done });
            Ok::<_, BackendError>(it.requests.unfinished())
        };
        let mut unfinished = 0;
        for step in 1..=STEPS {
            let done = f64::from(step) / f64::from(STEPS);
            unfinished = run_to(self, stop * step / STEPS, done, "running")?;
        }
        let mut until = stop;
        if self.experiment.flows.iter().any(|flow| !flow.is_tcp()) {
            until += LINGER.min(drain);
            unfinished = run_to(self, until, 1.0, "draining")?;
        }
        let end = stop + drain;
        while unfinished > 0 && until < end {
            until = (until + Duration::from_nanos(INTERVAL_NS)).min(end);
            unfinished = run_to(self, until, 1.0, "draining")?;
        }
        Ok(())
    }

    /// Runs to `until` and looks at packets, and whether to go on, on the way.
    fn run_to(&mut self, until: Timestamp) -> Result<(), BackendError> {
        let Self { stop, simulation, requests, watch, packets, .. } = self;
        while simulation.now() < until {
            if stop.is_asked() {
                return Err(BackendError::Stopped);
            }
            let next = (simulation.now() + packets::INTERVAL).min(until);
            watch.run_until(next, simulation, requests);
            packets.take(simulation);
        }
        Ok(())
    }

    fn rows(mut self, places: Vec<Place>) -> RunRows {
        let truths = self.packets.finish(&mut self.simulation);
        let Self { experiment, simulation, requests, watch, .. } = self;
        Rows { experiment, simulation, places, requests, samples: watch.samples, truths }.all()
    }
}

/// The simulation of `network`; what that refuses is told by the plan's name for it.
fn build(experiment: &Experiment, network: Network) -> Result<Simulation, BackendError> {
    let built = Simulation::with_algorithms(network, experiment.algorithms.clone());
    built.map_err(|error: SpecError| {
        let error = error.to_string();
        // Of the links the reverse one and those of their own have the names that their tables have.
        let names = link_names(experiment).into_iter().filter(|name| name != "reverse");
        let inside =
            names.filter_map(|name| error.strip_prefix(&name)).find(|it| it.starts_with('.'));
        let key = inside.map_or_else(|| error.clone(), |inside| format!("bottleneck{inside}"));
        BackendError::Unsupported(format!("{}: {key}", experiment.plan))
    })
}

/// Refuses what no simulator has: agents, logs, processors, devices, and sockets that an attacker writes to.
fn refuse(experiment: &Experiment) -> Result<(), BackendError> {
    let refused = |what: String| {
        let reason = "the back end sim has no such thing, allowed with emu";
        Err(BackendError::Unsupported(format!("{what}: {reason}")))
    };
    let is_possible = |fault: &plan::Fault| {
        use plan::FaultAction::{RestartBlockedLog, RestartFullLog, Starve};
        let is_of_processes = [RestartFullLog, RestartBlockedLog, Starve].contains(&fault.action);
        fault.program != plan::FaultProgram::Agent && !is_of_processes
    };
    if let Some(fault) = experiment.faults.iter().find(|fault| !is_possible(fault)) {
        let known = plan::FaultAction::ALL.iter().find(|(_, action)| *action == fault.action);
        let action = known.map_or("", |(name, _)| name);
        let whose = if fault.program == plan::FaultProgram::Agent { " of an agent" } else { "" };
        return refused(format!("[[fault]] {action}{whose}"));
    }
    if experiment.upsets.iter().any(|upset| setup::upset(upset.kind).is_none()) {
        return refused("[[upset]] of a device or of clients".into());
    }
    if experiment.attack.is_some() {
        return refused("[attack]".into());
    }
    if experiment.routed {
        return refused("bundle.forward = \"route\"".into());
    }
    if let Some(bundle) = experiment.bundles.iter().find(|bundle| bundle.in_kernel) {
        return refused(format!("bundle.{}.datapath = \"kernel\"", bundle.name));
    }
    Ok(())
}
