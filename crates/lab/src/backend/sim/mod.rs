//! The packet simulator: the plan's links, traffic and bundles as a network, and what it did as rows.
//!
//! What the testbed's hosts do is done here too: connections of the stack `linux` are open before the
//! run, requests go over persistent connections, clients ask in open loop, and a run drains until the
//! last answer was read. With the stack `ns3` a connection opens when its flow starts.

mod rows;
mod setup;
#[cfg(test)]
mod tests;
mod watch;

use std::path::Path;
use std::time::Duration;

use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;
use forebay_sim::{INTERVAL_NS, Requests, Simulation};

use super::{Backend, BackendError, Progress};
use crate::plan::Experiment;
use crate::plan::experiment as plan;
use crate::rows::RunRows;
use rows::Rows;
use setup::Setup;
use watch::Watch;

/// The back end.
pub struct Sim;

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

    fn check(&self, experiment: &Experiment) -> Result<(), BackendError> {
        refuse(experiment)?;
        Setup::of(experiment).map(drop)
    }

    fn run(
        &self,
        experiment: &Experiment,
        _directory: &Path,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RunRows, BackendError> {
        refuse(experiment)?;
        let Setup { network, places, mut requests } = Setup::of(experiment)?;
        let failed = |error: SpecError| BackendError::Unsupported(error.to_string());
        let mut simulation = Simulation::new(network).map_err(failed)?;
        for (number, place) in places.iter().enumerate() {
            let traffic = &experiment.flows[place.flow].traffic;
            // The logs of thousands of connections would be larger than the connections.
            if matches!(traffic, plan::Traffic::Greedy { flows } if *flows <= WATCHED_MAX) {
                simulation.watch_writing(number);
            }
        }
        let mut watch = Watch::of(experiment, &places);
        run(experiment, &mut simulation, &mut requests, &mut watch, progress);
        Ok(Rows { experiment, simulation, places, requests, samples: watch.samples }.all())
    }
}

fn run(
    experiment: &Experiment,
    simulation: &mut Simulation,
    requests: &mut Requests,
    watch: &mut Watch,
    progress: &mut dyn FnMut(Progress),
) {
    let mut run_to = |until: Duration, done: f64, phase: &str| {
        watch.run_until(Timestamp::ZERO + until, simulation, requests);
        progress(Progress { phase: phase.into(), done });
        requests.unfinished()
    };
    let mut unfinished = 0;
    for step in 1..=STEPS {
        unfinished =
            run_to(experiment.stop * step / STEPS, f64::from(step) / f64::from(STEPS), "running");
    }
    let mut until = experiment.stop;
    if experiment.flows.iter().any(|flow| !flow.is_tcp()) {
        until += LINGER.min(experiment.drain);
        unfinished = run_to(until, 1.0, "draining");
    }
    let end = experiment.stop + experiment.drain;
    while unfinished > 0 && until < end {
        until = (until + Duration::from_nanos(INTERVAL_NS)).min(end);
        unfinished = run_to(until, 1.0, "draining");
    }
}

/// Refuses what no simulator has: programs that are hit by signals and messages.
fn refuse(experiment: &Experiment) -> Result<(), BackendError> {
    let refused = |what: &str| {
        let reason = "the back end sim has no programs to hit, allowed with emu";
        Err(BackendError::Unsupported(format!("{what}: {reason}")))
    };
    if !experiment.faults.is_empty() {
        return refused("[[fault]]");
    }
    if experiment.attack.is_some() {
        return refused("[attack]");
    }
    Ok(())
}
