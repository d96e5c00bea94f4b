//! The common part of all episodes: a plan, its agents, and the values drawn for each episode.

use forebay_core::cc::policy::observation::WIDTH;
use forebay_core::cc::policy::steering::HISTORY;
use forebay_core::random::{Stream, Streams};
use forebay_core::spec::Spec;
use forebay_scenario::Traffic;

use super::{ALGORITHM, Range, Reward, RlError};
use forebay_lab::plan::library::Source;
use forebay_lab::plan::{Arm, Experiment, Override, Plan};
use forebay_policy::algorithms;

/// Settings of a scenario in addition to its plan.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agents' algorithm, `learner` with its parameters. It replaces the plan's `aut`, unless `sets`
    /// makes a flow or a bundle a learner.
    pub learner: String,
    /// Arm of the plan; `None`: its first.
    pub arm: Option<String>,
    /// Overrides of the plan's values.
    pub sets: Vec<Override>,
    /// Values that are drawn for each episode.
    pub ranges: Vec<Range>,
    /// Reward for a decision.
    pub reward: Reward,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            learner: ALGORITHM.name.into(),
            arm: None,
            sets: Vec::new(),
            ranges: Vec::new(),
            reward: Reward::default(),
        }
    }
}

/// A plan whose episodes differ by drawn values: its cell, [`Settings::ranges`], and the seed of the run.
#[derive(Clone, Debug)]
pub struct Scenario {
    source: Source,
    arm: Option<String>,
    sets: Vec<Override>,
    ranges: Vec<Range>,
    /// The plan without drawn values.
    plan: Plan,
    reward: Reward,
    agents: Vec<String>,
    history: usize,
}

impl Scenario {
    /// The plan called `reference`, a path or a name, as a scenario.
    ///
    /// # Errors
    ///
    /// The plan or a setting is wrong, or the plan has no learner.
    pub fn new(reference: &str, settings: Settings) -> Result<Self, RlError> {
        Self::of(Source::plan(reference)?, settings)
    }

    /// The plan in `source` as a scenario; see [`Scenario::new`].
    ///
    /// # Errors
    ///
    /// [`Scenario::new`] fails.
    pub fn of(source: Source, settings: Settings) -> Result<Self, RlError> {
        let Settings { learner, arm, mut sets, ranges, reward } = settings;
        let mut plan = read(&source, &sets)?;
        let mut first = experiment(&plan, arm.as_deref(), &mut Streams::new(0).stream("cell"), 0)?;
        let is_of_aut = |key: &String| key == "aut" || key.starts_with("aut.");
        if agents(&first).is_empty() && first.parameters.keys().any(is_of_aut) {
            sets.push(Override::algorithms([learner.as_str()], "the learner"));
            plan = read(&source, &sets)?;
            let mut stream = Streams::new(0).stream("cell");
            first = experiment(&plan, arm.as_deref(), &mut stream, 0)?;
        }
        let agents = agents(&first);
        if agents.is_empty() {
            let (file, name) = (&source.file, ALGORITHM.name);
            return Err(RlError::Wrong(format!(
                "{file}: no agent: allowed is a plan with `aut`, or a cc that is {name:?}"
            )));
        }
        let history = history(&first)?;
        Ok(Self { source, arm, sets, ranges, plan, reward, agents, history })
    }

    /// Names of the agents, bundles first. An agent has the name of its flow or bundle, with a number
    /// appended if a flow has several agents.
    pub fn agents(&self) -> &[String] {
        &self.agents
    }

    /// Rows of an observation.
    pub fn history(&self) -> usize {
        self.history
    }

    /// Numbers of an observation: rows of [`WIDTH`].
    pub fn observation_len(&self) -> usize {
        self.history * WIDTH
    }

    /// Reward for a decision.
    pub fn reward(&self) -> Reward {
        self.reward
    }

    /// The experiment of the episode with `seed`.
    pub(super) fn episode(&self, seed: u64) -> Result<Experiment, RlError> {
        let streams = Streams::new(seed);
        // Rows of stores have seeds of 63 bits.
        let run = streams.stream("run").bits() >> 1;
        let mut cell = streams.stream("cell");
        if self.ranges.is_empty() {
            return experiment(&self.plan, self.arm.as_deref(), &mut cell, run);
        }
        let mut sets = self.sets.clone();
        for range in &self.ranges {
            sets.push(range.draw(&streams)?);
        }
        experiment(&read(&self.source, &sets)?, self.arm.as_deref(), &mut cell, run)
    }
}

fn read(source: &Source, sets: &[Override]) -> Result<Plan, RlError> {
    let mut registry = algorithms::known().clone();
    registry.register(ALGORITHM).map_err(|error| RlError::Wrong(error.to_string()))?;
    Ok(Plan::with_algorithms(source.clone(), sets, registry)?)
}

fn experiment(
    plan: &Plan,
    arm: Option<&str>,
    cell: &mut Stream,
    seed: u64,
) -> Result<Experiment, RlError> {
    let arm = match arm {
        None => &plan.arms[0],
        Some(name) => named(plan, name)?,
    };
    let cell = &plan.cells[cell.below(plan.cells.len() as u64) as usize];
    Ok(plan.experiment(arm, cell, seed)?)
}

fn named<'a>(plan: &'a Plan, name: &str) -> Result<&'a Arm, RlError> {
    plan.arms.iter().find(|arm| arm.name == name).ok_or_else(|| {
        let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        RlError::Wrong(format!("arm = {name}: allowed is one of {}", names.join(", ")))
    })
}

fn is_learner(cc: &Spec) -> bool {
    cc.kind == ALGORITHM.name
}

/// The agents of `experiment`, in the order in which a simulation builds them.
pub(super) fn agents(experiment: &Experiment) -> Vec<String> {
    let bundles = experiment.bundles.iter().filter(|bundle| is_learner(&bundle.cc));
    let bundles = bundles.map(|bundle| bundle.name.clone());
    let flows = experiment.flows.iter().filter(|flow| is_learner(&flow.cc) && flow.is_tcp());
    let flows = flows.flat_map(|flow| {
        let count = match flow.traffic {
            Traffic::Greedy { flows } => flows,
            _ => 0,
        };
        (1..=count).map(move |number| match count {
            1 => flow.name.clone(),
            _ => format!("{}-{number}", flow.name),
        })
    });
    bundles.chain(flows).collect()
}

/// Number of rows that all learners of `experiment` observe.
pub(super) fn history(experiment: &Experiment) -> Result<usize, RlError> {
    let bundles = experiment.bundles.iter().map(|bundle| &bundle.cc);
    let all = bundles.chain(experiment.flows.iter().map(|flow| &flow.cc));
    let mut rows = Vec::new();
    for cc in all.filter(|cc| is_learner(cc)) {
        rows.push(HISTORY.of(cc).map_err(|error| RlError::Wrong(error.to_string()))?);
    }
    let first = rows.first().copied().unwrap_or_default();
    if rows.iter().any(|other| *other != first) {
        let allowed = "the same for all learners";
        return Err(RlError::Wrong(format!("history = {rows:?}: allowed is {allowed}")));
    }
    Ok(first as usize)
}
