//! One part of a network that is cut: its simulation, with the clients and servers in it.

use std::sync::Arc;

use forebay_core::cc::Registry;
use forebay_core::spec::SpecError;
use forebay_core::units::Timestamp;

use crate::network::Network;
use crate::parts::Parts;
use crate::requests::{Note, Requests};
use crate::simulation::{Crossing, Simulation};

/// A part of a network, or a whole one that is not cut.
pub struct Part {
    /// The simulation. Of a network that is cut, it knows all, but only its own queues, boxes and ends act.
    pub simulation: Simulation,
    /// The clients and servers in this part.
    pub requests: Requests,
    /// Packets and notes from each part that the next window begins with.
    arrivals: Vec<(Crossing, Vec<Note>)>,
}

impl Part {
    /// A network that is not cut.
    pub fn whole(simulation: Simulation, requests: Requests) -> Self {
        Self { simulation, requests, arrivals: Vec::new() }
    }

    /// Part `here` of `network` with its share of `requests`.
    ///
    /// # Errors
    /// As [`Simulation::with_algorithms`].
    pub fn new(
        network: &Network,
        algorithms: Registry,
        requests: &Requests,
        parts: &Arc<Parts>,
        here: usize,
    ) -> Result<Self, SpecError> {
        let simulation = Simulation::of_part(network, algorithms, parts, here)?;
        let requests = requests.of_part(parts, here);
        Ok(Self {
            simulation,
            requests,
            arrivals: (0..parts.count).map(|_| Default::default()).collect(),
        })
    }

    /// Runs to `until`, at most to the end of the run. If the network is cut, that is at most [`Parts::delay`]
    /// later, and [`Part::exchange`] follows once all parts have come there.
    pub fn run_until(&mut self, until: Timestamp) {
        for (crossing, notes) in &mut self.arrivals {
            self.simulation.arrive(crossing);
            notes.drain(..).for_each(|note| self.requests.learn(note));
        }
        self.requests.run_until(&mut self.simulation, until);
    }

    /// Hands what left each of all `parts`, in order, to the part that it left for.
    pub fn exchange(parts: &mut [&mut Self]) {
        for from in 0..parts.len() {
            for to in 0..parts.len() {
                let Ok([from_part, to_part]) = parts.get_disjoint_mut([from, to]) else { continue };
                let (crossing, notes) = &mut to_part.arrivals[from];
                from_part.simulation.swap_leaving(to, crossing);
                from_part.requests.swap_notes(to, notes);
            }
        }
    }

    /// The results of all `parts`, in order, as if one simulation had made them. It cannot run on.
    pub fn join(parts: Vec<Self>) -> Self {
        let parts = parts.into_iter().map(|it| (it.simulation, it.requests));
        let (simulations, requests): (Vec<_>, Vec<_>) = parts.unzip();
        Self::whole(Simulation::join(simulations), Requests::join(requests))
    }
}
