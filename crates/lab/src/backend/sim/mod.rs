//! The packet simulator. Runs until the last answer is read, as the testbed's hosts do, and returns rows.

mod packets;
mod rows;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::time::Duration;

use forebay_core::record::PacketRecord;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;
use forebay_scenario as plan;
use forebay_sim::network::Network;
use forebay_sim::{INTERVAL_NS, LINGER, Place, Requests, Seen, Setup, Simulation};

use super::{Backend, BackendError, RunProgress, Stop};
use crate::metrics::RunRows;
use crate::plan::Experiment;
use packets::Packets;
use rows::Rows;
#[cfg(feature = "ns3")]
pub(super) use rows::{of_connection, of_link, payload, scheduled};
use watch::Watch;

/// The back end.
#[derive(Default)]
pub struct Sim {
    stop: Stop,
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

    fn heed(&mut self, stop: &Stop) {
        self.stop = stop.clone();
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
        self.stop.around(|| run(experiment, false, &self.stop, progress, |_| ()))
    }
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
    run(experiment, true, &Stop::default(), progress, visit)
}

/// Runs `experiment` until `stop` is set. `visit` receives packets on links and, with `has_ends`, events at
/// endpoints.
fn run(
    experiment: &Experiment,
    has_ends: bool,
    stop: &Stop,
    progress: &mut dyn FnMut(RunProgress),
    mut visit: impl FnMut(Sight<'_>),
) -> Result<RunRows, BackendError> {
    let Setup { network, places, reversed, requests } = set_up(experiment)?;
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
    fn complete(&mut self, progress: &mut dyn FnMut(RunProgress)) -> Result<(), BackendError> {
        let plan::Scenario { stop, drain, .. } = self.experiment.scenario;
        let mut run_to = |it: &mut Self, until: Duration, done: f64, phase: &str| {
            it.run_to(Timestamp::ZERO + until)?;
            progress(RunProgress { phase: phase.into(), done });
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

    /// Runs to `until`; on the way it passes packets to the observer and looks whether to stop.
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

fn set_up(experiment: &Experiment) -> Result<Setup, BackendError> {
    super::refuse_quic(experiment, "sim")?;
    let made = Setup::of(experiment, &experiment.algorithms);
    made.map_err(|error| BackendError::Unsupported(error.to_string()))
}

/// The simulation of `network`; errors use the plan's names.
fn build(experiment: &Experiment, network: Network) -> Result<Simulation, BackendError> {
    let built = Simulation::with_algorithms(network, experiment.algorithms.clone());
    built.map_err(|error: SpecError| {
        let error = error.to_string();
        // The simulator names the reverse link and links of `path` tables as their tables do; any other key
        // is the bottleneck's.
        let names = experiment.links().map(|link| &link.name).filter(|name| *name != "reverse");
        let inside =
            names.filter_map(|name| error.strip_prefix(name)).find(|it| it.starts_with('.'));
        let key = inside.map_or_else(|| error.clone(), |inside| format!("bottleneck{inside}"));
        BackendError::Unsupported(format!("{}: {key}", experiment.plan))
    })
}
