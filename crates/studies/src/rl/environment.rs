//! Episodes of a scenario, one after the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::cc::policy::observation::Outcome;
use forebay_core::units::Timestamp;

use super::reward::Judge;
use super::scenario::{agents, history};
use super::seat::{Seat, collect, locked};
use super::{RlError, Scenario};
use forebay_lab::backend::{Driven, driven};
use forebay_lab::plan::Experiment;

/// Time to simulate before the next look if no decision is due yet: no sender has started.
const LOOK: Duration = Duration::from_millis(10);
/// Time to simulate beyond a missed due time: a sendbox decides at its next tick.
const LATE: Duration = Duration::from_micros(100);

/// An environment: a scenario, and an episode of it once [`Environment::reset`] was called.
pub struct Environment {
    scenario: Arc<Scenario>,
    episode: Option<Episode>,
}

/// An episode that is under way, or has ended.
struct Episode {
    experiment: Experiment,
    driven: Driven,
    stop: Timestamp,
    agents: Vec<Agent>,
    waiting: Vec<usize>,
    has_ended: bool,
}

struct Agent {
    seat: Arc<Mutex<Seat>>,
    judge: Judge,
    outcome: Outcome,
    reward: f64,
}

impl Environment {
    /// An environment without an episode.
    pub fn new(scenario: Arc<Scenario>) -> Self {
        Self { scenario, episode: None }
    }

    /// The common part of all episodes.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Begins the episode of `seed` and simulates until an agent has to decide.
    ///
    /// # Errors
    ///
    /// The drawn plan is invalid, no simulator supports it, or the episode ends before any decision.
    pub fn reset(&mut self, seed: u64) -> Result<(), RlError> {
        // The old episode ends even if the next one does not begin, and frees its memory for it.
        self.episode = None;
        let experiment = self.scenario.episode(seed)?;
        let names = agents(&experiment);
        // Seats that remain now belong to another episode.
        collect();
        let driven = driven(&experiment)?;
        let seats = collect();
        if seats.len() != names.len() || names != self.scenario.agents() {
            let (plan, agents) = (&experiment.plan, self.scenario.agents().join(", "));
            return Err(RlError::Wrong(format!(
                "{plan}: {} learners: allowed are greedy flows and bundles: {agents}",
                seats.len()
            )));
        }
        let (rows, allowed) = (history(&experiment)?, self.scenario.history());
        if rows != allowed {
            let plan = &experiment.plan;
            return Err(RlError::Wrong(format!(
                "{plan}: history = {rows}: allowed is {allowed}, as in other cells"
            )));
        }
        let reward = self.scenario.reward();
        let agent = |seat| Agent {
            seat,
            judge: Judge::new(reward),
            outcome: Outcome::default(),
            reward: 0.0,
        };
        let mut episode = Episode {
            stop: Timestamp::ZERO + experiment.stop,
            experiment,
            driven,
            agents: seats.into_iter().map(agent).collect(),
            waiting: Vec::new(),
            has_ended: false,
        };
        episode.advance();
        if episode.has_ended {
            let stop = episode.experiment.stop;
            let plan = &episode.experiment.plan;
            return Err(RlError::Wrong(format!(
                "{plan}: stop = {stop:?}: allowed is a time after the first decision"
            )));
        }
        // No agent caused the events before the first decision.
        episode.agents.iter_mut().for_each(|agent| agent.reward = 0.0);
        self.episode = Some(episode);
        Ok(())
    }

    /// The agents that have to decide now, by their places among [`Scenario::agents`]; none once the
    /// episode has ended.
    pub fn waiting(&self) -> &[usize] {
        self.episode.as_ref().map_or(&[][..], |episode| &episode.waiting[..])
    }

    /// Sets the action of `agent`, -1 to 1: its window or rate is multiplied by 2 to the power of it. An
    /// action for an agent that does not wait is ignored. A waiting agent without an action keeps its
    /// window or rate.
    pub fn act(&mut self, agent: usize, action: f32) {
        if let Some(agent) = self.agent(agent) {
            locked(&agent.seat).act(action);
        }
    }

    /// Simulates until the next decision of any agent. Returns false if the episode ends instead. That is
    /// a truncation: time is up, and no goal was reached. Then all agents have observations and rewards.
    pub fn advance(&mut self) -> bool {
        let Some(episode) = &mut self.episode else { return false };
        if !episode.has_ended {
            episode.advance();
        }
        !episode.has_ended
    }

    /// Writes the observation of `agent` into `into`, which has room for [`Scenario::observation_len`]
    /// numbers.
    pub fn observe(&self, agent: usize, into: &mut [f32]) {
        match self.agent(agent) {
            Some(agent) => into.copy_from_slice(locked(&agent.seat).observation()),
            None => into.fill(0.0),
        }
    }

    /// The reward of `agent` since its last decision.
    pub fn reward(&self, agent: usize) -> f64 {
        self.agent(agent).map_or(0.0, |agent| agent.reward)
    }

    /// The outcome since the last decision of `agent`.
    pub fn outcome(&self, agent: usize) -> Outcome {
        self.agent(agent).map_or_else(Outcome::default, |agent| agent.outcome)
    }

    fn agent(&self, agent: usize) -> Option<&Agent> {
        self.episode.as_ref()?.agents.get(agent)
    }

    /// The time in the episode.
    pub fn now(&self) -> Duration {
        let now = self.episode.as_ref().map(|episode| episode.driven.simulation.now());
        now.map_or(Duration::ZERO, |now| now.saturating_since(Timestamp::ZERO))
    }

    /// The experiment of the episode, with its drawn values.
    pub fn experiment(&self) -> Option<&Experiment> {
        self.episode.as_ref().map(|episode| &episode.experiment)
    }
}

impl Episode {
    fn advance(&mut self) {
        for agent in self.waiting.drain(..) {
            // An agent that was given an action accepts no other.
            locked(&self.agents[agent].seat).act(0.0);
        }
        let Driven { simulation, requests, .. } = &mut self.driven;
        while simulation.now() < self.stop {
            let now = simulation.now();
            // A late agent must not make the simulation pass another agent's decision.
            let reached = |next: Timestamp| if next > now { next } else { now + LATE };
            let until = self.agents.iter().filter_map(Agent::next).map(reached).min();
            requests.run_until(simulation, until.unwrap_or(now + LOOK).min(self.stop));
            for (place, agent) in self.agents.iter_mut().enumerate() {
                if agent.take_turn() {
                    self.waiting.push(place);
                }
            }
            if !self.waiting.is_empty() {
                return;
            }
        }
        self.has_ended = true;
        let now = simulation.now();
        for agent in &mut self.agents {
            let outcome = locked(&agent.seat).end(now);
            agent.judge(outcome);
        }
    }
}

impl Agent {
    /// Time of the agent's next decision. `None` if the sender has not begun or no longer exists, as with
    /// a box that ended.
    fn next(&self) -> Option<Timestamp> {
        let is_gone = Arc::strong_count(&self.seat) == 1;
        let next = locked(&self.seat).next();
        Some(next).filter(|next| !is_gone && *next < Timestamp::MAX)
    }

    /// Whether the agent waits for a decision; if so, computes the reward for the outcome so far.
    fn take_turn(&mut self) -> bool {
        let waits = locked(&self.seat).waits();
        waits.map(|outcome| self.judge(outcome)).is_some()
    }

    fn judge(&mut self, outcome: Outcome) {
        self.reward = self.judge.reward(&outcome);
        self.outcome = outcome;
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::cc::algorithms::constant;
    use forebay_core::cc::policy::graph::{Builder, Evaluation, Graph, Operator};
    use forebay_core::cc::policy::observation::WIDTH;
    use forebay_core::cc::policy::{self, NEEDS};
    use forebay_core::cc::{Algorithm, Registry};

    use super::super::tests::{PLAN, scenario};
    use super::*;
    use crate::rl::{ALGORITHM, Settings};
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::library::Source;

    /// A policy that grows until the queue is a fifth of the least round trip: 0.15 minus 0.75 times the
    /// queueing.
    fn graph() -> Arc<Graph> {
        let (mut builder, input) = Builder::new(&[1, WIDTH]).unwrap();
        let mut weights = [0.0; WIDTH];
        // The queueing, and whether it is known.
        (weights[1], weights[8]) = (-0.75, 0.15);
        let weights = Some(builder.constant(&[WIDTH, 1], &weights).unwrap());
        let action = builder.apply(&Operator::MatMul, &[Some(input), weights]).unwrap();
        Arc::new(builder.finish(&action).unwrap())
    }

    /// The policy of [`graph`] as an algorithm, with the features of the learner.
    const LEARNT: Algorithm = Algorithm {
        name: "learnt",
        params: ALGORITHM.params,
        needs: NEEDS,
        build: &|spec| policy::build(&graph(), spec),
        ..constant::ALGORITHM
    };

    #[test]
    fn policy_acts_alike_inside_and_outside_simulation() {
        let text = |name: &str| PLAN.replace("\"aut\"", &format!("\"{name}(history=1)\""));
        let learner = scenario(&text(ALGORITHM.name), Settings::default()).unwrap();
        let mut environment = Environment::new(Arc::new(learner));
        environment.reset(1).unwrap();
        let mut evaluation = Evaluation::new(graph());
        loop {
            environment.observe(0, evaluation.input());
            let action = evaluation.run()[0];
            environment.act(0, action);
            if !environment.advance() {
                break;
            }
        }
        let episode = environment.episode.as_ref().unwrap();
        let outside = episode.driven.simulation.sender_state(0).unwrap();

        let mut registry = Registry::default();
        registry.register(LEARNT).unwrap();
        let source = Source { file: "p.toml".into(), folder: None, text: text(LEARNT.name) };
        let plan = Plan::with_algorithms(source, &[], registry).unwrap();
        let seed = episode.experiment.seed;
        let experiment = plan.experiment(&plan.arms[0], &plan.cells[0], seed).unwrap();
        let Driven { mut simulation, .. } = driven(&experiment).unwrap();
        simulation.run_until(episode.stop);
        let inside = simulation.sender_state(0).unwrap();
        // A decision from outside takes effect a nanosecond later.
        let [outside, inside] = [outside, inside].map(|it| it.delivered_bytes.unwrap());
        let ratio = outside as f64 / inside as f64;
        assert!((ratio - 1.0).abs() < 0.01, "{outside} and {inside}");
        // 20 Mbit/s in 3 s are 7.5 MB. Such a policy uses most of that.
        assert!(inside > 4_500_000, "{inside}");
    }
}
