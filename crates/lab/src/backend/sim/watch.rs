//! The states of connections at equal intervals, sampled as on the testbed.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::record::{SAMPLED_MAX, TcpSample};
use forebay_core::units::Timestamp;
use forebay_scenario::Traffic;
use forebay_sim::{Place, Requests, Simulation};

use crate::plan::Experiment;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(10);

/// Looks at greedy connections while a simulation runs.
#[derive(Debug)]
pub(super) struct Watch {
    /// By flow of the network.
    pub samples: BTreeMap<usize, Vec<TcpSample>>,
    next: Timestamp,
    end: Timestamp,
}

impl Watch {
    /// Watches the greedy flows with at most [`SAMPLED_MAX`] connections, until the end of arrivals.
    pub fn of(experiment: &Experiment, places: &[Place]) -> Self {
        let is_watched = |place: &Place| {
            let traffic = &experiment.flows[place.flow].traffic;
            matches!(traffic, Traffic::Greedy { flows } if *flows <= SAMPLED_MAX)
        };
        let watched = places.iter().enumerate().filter(|(_, place)| is_watched(place));
        Self {
            samples: watched.map(|(number, _)| (number, Vec::new())).collect(),
            next: Timestamp::ZERO,
            end: Timestamp::ZERO + experiment.stop,
        }
    }

    /// Runs `simulation` to `until`, and samples on the way.
    pub fn run_until(
        &mut self,
        until: Timestamp,
        simulation: &mut Simulation,
        requests: &mut Requests,
    ) {
        while !self.samples.is_empty() && self.next <= until && self.next < self.end {
            requests.run_until(simulation, self.next);
            for (number, samples) in &mut self.samples {
                samples.extend(simulation.sender_state(*number));
            }
            self.next += INTERVAL;
        }
        requests.run_until(simulation, until);
    }
}
