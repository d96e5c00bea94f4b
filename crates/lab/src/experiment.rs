//! One experiment with every number resolved: a plan's arm in one cell with one seed.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use forebay_core::cc::Registry;
use forebay_core::traffic::{Request, Schedule};
use forebay_reader::FileError;
use forebay_scenario::Scenario;

use crate::traces::Understood;

/// Input of a back end, with its origin in the plan.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Name of the plan.
    pub plan: String,
    /// Name of the arm.
    pub arm: String,
    /// Name of the cell, empty if the plan has no grid.
    pub cell: String,
    /// Input of the back end, and the reference for metrics.
    pub scenario: Scenario,
    /// Algorithms that flows and bundles may name.
    pub algorithms: Registry,
    /// Every parameter by its dotted key, as the plan writes it.
    pub parameters: BTreeMap<String, String>,
    /// How the traces of its links were understood.
    pub traces: Vec<Understood>,
    /// SHA-256 over the parameters and the contents of all named files, in hex.
    pub sha256: String,
}

impl Experiment {
    /// The experiment after all random parts of its scenario were drawn from `seed`. Call this once.
    ///
    /// # Errors
    ///
    /// The requests of a flow cannot be drawn.
    pub fn with_seed(mut self, seed: u64) -> Result<Self, FileError> {
        self.scenario = self.scenario.with_seed(seed);
        for flow in self.flows.iter().filter(|flow| !self.schedules.contains_key(&flow.name)) {
            self.schedule(flow).map_err(|error| FileError::of(&flow.name, error))?;
        }
        Ok(self)
    }

    /// The schedule of the flow at `place`; `None` for a flow without requests.
    pub fn schedule_at(&self, place: usize) -> Option<&Schedule> {
        self.schedules.get(&self.flows.get(place)?.name)
    }

    /// The requests of the flow at `place` in order of time. Times count from the start of the flow.
    pub fn requests(&self, place: usize) -> &[Request] {
        self.schedule_at(place).map_or(&[][..], Schedule::requests)
    }
}

/// Most functions need only the scenario of an experiment.
impl Deref for Experiment {
    type Target = Scenario;
    fn deref(&self) -> &Scenario {
        &self.scenario
    }
}

impl DerefMut for Experiment {
    fn deref_mut(&mut self) -> &mut Scenario {
        &mut self.scenario
    }
}
