//! Environments for learning congestion control. The interfaces of Gymnasium and PettingZoo in `forebay.rl`
//! are written in Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_core::cc::policy::observation;
use forebay_core::units::{ByteCount, Duration};
use forebay_studies::rl::{self, Batch, Range, Reward, Settings};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::error;
use crate::plain::plain;
use crate::plan::{Parts, Plan, named, of_json, overrides};
use crate::watch::detached;

/// A value that one thread uses at a time. PyO3 ensures this for methods with `&mut self`, so no thread ever
/// waits for the lock.
struct Alone<T>(Mutex<T>);

impl<T> Alone<T> {
    fn new(it: T) -> Self {
        Self(Mutex::new(it))
    }

    fn get(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The plan of a scenario.
#[derive(FromPyObject)]
pub enum Given<'py> {
    /// A plan that can also be run.
    Plan(Bound<'py, Plan>),
    /// An object in JSON, and the folder for its relative paths.
    Document(String, PathBuf),
    /// A path or a name.
    Named(String),
}

impl Given<'_> {
    fn parts(self, py: Python<'_>) -> PyResult<Parts> {
        match self {
            Self::Plan(plan) => {
                let parts = plan.get().parts().map_err(|error| error::of_plan(py, &error))?;
                let published =
                    "plan: a plan as published: allowed is a plan with its own settings";
                parts.ok_or_else(|| error::input(py, published))
            }
            Self::Document(document, folder) => {
                Ok((of_json(py, &document, folder)?, Vec::new(), None))
            }
            Self::Named(reference) => Ok((named(py, &reference)?, Vec::new(), None)),
        }
    }
}

/// Options of a scenario besides its plan, from the values of a dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Asked {
    /// Algorithm of the agents with its parameters.
    learner: String,
    /// Name of an arm.
    arm: Option<String>,
    /// Dotted keys and values in JSON.
    sets: Vec<(String, String)>,
    /// Texts such as `bottleneck.rtt=10ms..100ms`.
    ranges: Vec<String>,
    /// Name of a reward.
    reward: String,
}

/// A plan whose episodes differ by random draws.
#[pyclass(frozen, module = "forebay._forebay")]
pub struct Scenario {
    inner: Arc<rl::Scenario>,
}

#[pymethods]
impl Scenario {
    /// The scenario of a plan.
    #[staticmethod]
    fn of(py: Python<'_>, plan: Given<'_>, asked: Asked) -> PyResult<Self> {
        let (source, mut sets, arm) = plan.parts(py)?;
        sets.extend(overrides(py, &asked.sets)?);
        let ranges = asked.ranges.iter().map(|range| range.parse::<Range>());
        let reward = asked.reward.parse::<Reward>();
        let settings = Settings {
            learner: asked.learner,
            arm: asked.arm.or(arm),
            sets,
            ranges: ranges.collect::<Result<_, _>>().map_err(|error| error::of_rl(py, error))?,
            reward: reward.map_err(|reason| error::input(py, &reason))?,
        };
        let scenario = detached(py, || rl::Scenario::of(source, settings))?;
        let inner = scenario.map_err(|error| error::of_rl(py, error))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Names of the agents.
    #[getter]
    fn agents(&self) -> Vec<String> {
        self.inner.agents().to_vec()
    }

    /// Rows of an observation.
    #[getter]
    fn history(&self) -> usize {
        self.inner.history()
    }
}

plain! {
    /// Events between two decisions of an agent; `None` is not known.
    #[derive(PartialEq, Eq, Hash)]
    Outcome: [hash] {
        interval_ns: u64 = 0,
        mss_bytes: u64 = 0,
        acked_bytes: u64 = 0,
        lost_bytes: Option<u64> = None,
        ecn_ce_bytes: Option<u64> = None,
        rtt_mean_ns: Option<u64> = None,
        rtt_min_ns: Option<u64> = None,
    }
}

/// Whole nanoseconds.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl From<observation::Outcome> for Outcome {
    fn from(it: observation::Outcome) -> Self {
        Self {
            interval_ns: nanos(it.interval),
            mss_bytes: it.mss.as_u64(),
            acked_bytes: it.acked.as_u64(),
            lost_bytes: it.lost.map(ByteCount::as_u64),
            ecn_ce_bytes: it.marked.map(ByteCount::as_u64),
            rtt_mean_ns: it.rtt.map(nanos),
            rtt_min_ns: it.min_rtt.map(nanos),
        }
    }
}

/// An action that is a number.
fn finite(py: Python<'_>, action: f32) -> PyResult<f32> {
    if action.is_finite() {
        return Ok(action);
    }
    let allowed = "allowed is a finite number, clamped to -1 to 1";
    Err(error::input(py, &format!("action = {action}: {allowed}")))
}

/// Episodes of a scenario, one after the other. Agents are identified by their places among
/// [`Scenario::agents`].
#[pyclass(module = "forebay._forebay")]
pub struct Environment {
    inner: Alone<rl::Environment>,
}

#[pymethods]
impl Environment {
    /// An environment without an episode.
    #[staticmethod]
    fn of(scenario: &Bound<'_, Scenario>) -> Self {
        Self { inner: Alone::new(rl::Environment::new(scenario.get().inner.clone())) }
    }

    /// Begins the episode of `seed`, and advances to the first decision.
    fn reset(&mut self, py: Python<'_>, seed: u64) -> PyResult<()> {
        let environment = self.inner.get();
        let begun = detached(py, || environment.reset(seed))?;
        begun.map_err(|error| error::of_rl(py, error))
    }

    /// Takes the action of an agent that must decide.
    fn act(&mut self, py: Python<'_>, agent: usize, action: f32) -> PyResult<()> {
        self.inner.get().act(agent, finite(py, action)?);
        Ok(())
    }

    /// Advances to the next decision of any agent; false if the episode ends first.
    fn advance(&mut self, py: Python<'_>) -> PyResult<bool> {
        let environment = self.inner.get();
        detached(py, || environment.advance())
    }

    /// The agents that must decide now.
    fn waiting(&mut self) -> Vec<usize> {
        self.inner.get().waiting().to_vec()
    }

    /// Fills `into` with the observation of an agent.
    fn observe(&mut self, py: Python<'_>, agent: usize, into: PyBuffer<f32>) -> PyResult<()> {
        let environment = self.inner.get();
        let mut observation = vec![0.0; environment.scenario().observation_len()];
        environment.observe(agent, &mut observation);
        into.copy_from_slice(py, &observation)
    }

    /// The reward of an agent since its last decision.
    fn reward(&mut self, agent: usize) -> f64 {
        self.inner.get().reward(agent)
    }

    /// Events since the last decision of an agent.
    fn outcome(&mut self, agent: usize) -> Outcome {
        self.inner.get().outcome(agent).into()
    }

    /// Time in the episode.
    fn now_ns(&mut self) -> u64 {
        nanos(self.inner.get().now())
    }

    /// The parameters of the episode's experiment by dotted keys, with the drawn values; empty before the
    /// first episode.
    fn parameters(&mut self) -> Vec<(String, String)> {
        let experiment = self.inner.get().experiment();
        let parameters = experiment.into_iter().flat_map(|it| &it.parameters);
        parameters.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// Arrays that a step fills: observations, rewards, and 1 where an episode ended.
#[derive(FromPyObject)]
pub struct Arrays(PyBuffer<f32>, PyBuffer<f64>, PyBuffer<u8>);

impl Arrays {
    fn fill(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let Self(observations, rewards, truncated) = self;
        observations.copy_from_slice(py, &batch.observations)?;
        rewards.copy_from_slice(py, &batch.rewards)?;
        let flags: Vec<u8> = batch.truncated.iter().map(|it| u8::from(*it)).collect();
        truncated.copy_from_slice(py, &flags)
    }
}

/// Environments of one scenario with one agent each, on permanent threads.
#[pyclass(module = "forebay._forebay")]
pub struct Vector {
    /// Always there, until it is dropped.
    inner: Option<Alone<rl::Vector>>,
}

impl Drop for Vector {
    /// Waits for the threads with the interpreter released: a callback on one may still need it.
    fn drop(&mut self) {
        let inner = self.inner.take();
        Python::attach(|py| py.detach(move || drop(inner)));
    }
}

impl Vector {
    fn get(&mut self) -> &mut rl::Vector {
        self.inner.as_mut().expect("present until the drop").get()
    }
}

#[pymethods]
impl Vector {
    /// This many environments on at most `threads` threads.
    #[staticmethod]
    fn of(
        py: Python<'_>,
        scenario: &Bound<'_, Scenario>,
        environments: usize,
        threads: usize,
    ) -> PyResult<Self> {
        let vector = rl::Vector::new(&scenario.get().inner, environments, threads);
        let vector = vector.map_err(|error| error::of_rl(py, error))?;
        Ok(Self { inner: Some(Alone::new(vector)) })
    }

    /// Begins an episode in every environment, with a seed for each.
    fn reset(&mut self, py: Python<'_>, seeds: Vec<u64>, into: Arrays) -> PyResult<()> {
        let vector = self.get();
        let batch = detached(py, move || vector.reset(&seeds))?;
        into.fill(py, batch.map_err(|error| error::of_rl(py, error))?)
    }

    /// Events in every environment before the last decision.
    fn outcomes(&mut self) -> Vec<Outcome> {
        self.get().last().outcomes.iter().map(|it| Outcome::from(*it)).collect()
    }

    /// Takes an action in every environment.
    fn step(&mut self, py: Python<'_>, actions: PyBuffer<f32>, into: Arrays) -> PyResult<()> {
        let actions = actions.to_vec(py)?.into_iter().map(|action| finite(py, action));
        let actions = actions.collect::<PyResult<Vec<f32>>>()?;
        let vector = self.get();
        let batch = detached(py, move || vector.step(&actions))?;
        into.fill(py, batch.map_err(|error| error::of_rl(py, error))?)
    }
}
