//! Many environments at a time. Threads are started once: starting one for each step takes longer than the
//! step.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use forebay_core::cc::policy::observation::Outcome;
use forebay_core::random::{Stream, Streams};

use super::{Environment, RlError, Scenario};

/// Input and output of a step of several environments, environment by environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Actions, -1 to 1.
    pub actions: Vec<f32>,
    /// Observations, each of [`Scenario::observation_len`] numbers.
    pub observations: Vec<f32>,
    /// Outcomes since the previous actions.
    pub outcomes: Vec<Outcome>,
    /// Rewards for these outcomes.
    pub rewards: Vec<f64>,
    /// Whether the episode ended with this step: time was up (a truncation). The next step of that
    /// environment takes no action and begins an episode, with reward 0 (`AutoresetMode.NEXT_STEP` of
    /// Gymnasium).
    pub truncated: Vec<bool>,
}

impl Batch {
    fn new(environments: usize, observation_len: usize) -> Self {
        Self {
            actions: vec![0.0; environments],
            observations: vec![0.0; environments * observation_len],
            outcomes: vec![Outcome::default(); environments],
            rewards: vec![0.0; environments],
            truncated: vec![false; environments],
        }
    }
}

enum Order {
    /// With a seed for each environment.
    Reset(Vec<u64>, Batch),
    Step(Batch),
}

/// A thread with environments of its own.
struct Worker {
    orders: Option<Sender<Order>>,
    answers: Receiver<Result<Batch, RlError>>,
    /// The batch that is passed back and forth; `None`: it was lost with an error.
    batch: Option<Batch>,
    count: usize,
    thread: Option<JoinHandle<()>>,
}

/// Environments of one scenario with one agent each.
pub struct Vector {
    workers: Vec<Worker>,
    observation_len: usize,
    all: Batch,
    /// All have an episode, or begin one with the next step.
    is_begun: bool,
}

impl Vector {
    /// Makes this number of environments, on at most this number of threads.
    ///
    /// # Errors
    ///
    /// No environment or thread, or the scenario has several agents.
    pub fn new(
        scenario: &Arc<Scenario>,
        environments: usize,
        threads: usize,
    ) -> Result<Self, RlError> {
        if environments == 0 || threads == 0 {
            return Err(RlError::Wrong("0 environments or threads: allowed is 1 or more".into()));
        }
        if scenario.agents().len() != 1 {
            let agents = scenario.agents().join(", ");
            return Err(RlError::Wrong(format!("agents {agents}: allowed is one agent")));
        }
        let (threads, observation_len) = (threads.min(environments), scenario.observation_len());
        let mut workers = Vec::new();
        for thread in 0..threads {
            let count = environments / threads + usize::from(thread < environments % threads);
            workers.push(Worker::start(scenario, count)?);
        }
        let all = Batch::new(environments, observation_len);
        Ok(Self { workers, observation_len, all, is_begun: false })
    }

    /// Begins an episode in every environment. Environments with one seed have the same episodes, one after
    /// the other, so that policies can be compared on the same paths.
    ///
    /// # Errors
    ///
    /// The number of seeds differs from the number of environments, or any error of [`Environment::reset`].
    ///
    /// # Panics
    ///
    /// As [`Vector::step`].
    pub fn reset(&mut self, seeds: &[u64]) -> Result<&Batch, RlError> {
        self.check("seeds", seeds.len())?;
        let mut left = seeds;
        for worker in &mut self.workers {
            let (own, rest) = left.split_at(worker.count);
            left = rest;
            worker.order(|batch| Order::Reset(own.to_vec(), batch));
        }
        self.collect()
    }

    /// Takes one decision in every environment, in their order.
    ///
    /// # Errors
    ///
    /// There was no [`Vector::reset`], the number of actions differs from the number of environments, or an
    /// episode begins with an error of [`Environment::reset`]. After that error all environments need
    /// [`Vector::reset`].
    ///
    /// # Panics
    ///
    /// A simulation panicked, for example in a user's own algorithm; this passes on the panic of its
    /// thread.
    pub fn step(&mut self, actions: &[f32]) -> Result<&Batch, RlError> {
        self.check("actions", actions.len())?;
        if !self.is_begun {
            return Err(RlError::Wrong("step: allowed after a successful reset".into()));
        }
        let mut left = actions;
        for worker in &mut self.workers {
            let (own, rest) = left.split_at(worker.count);
            left = rest;
            worker.order(|mut batch| {
                batch.actions.copy_from_slice(own);
                Order::Step(batch)
            });
        }
        self.collect()
    }

    /// Results of the last step or reset.
    pub fn last(&self) -> &Batch {
        &self.all
    }

    /// Checks that `count` equals the number of environments.
    fn check(&self, what: &str, count: usize) -> Result<(), RlError> {
        let allowed = self.all.actions.len();
        if count == allowed {
            return Ok(());
        }
        Err(RlError::Wrong(format!("{count} {what}: allowed is {allowed}")))
    }

    /// Collects the answers of all threads; returns the first error, once all have answered.
    fn collect(&mut self) -> Result<&Batch, RlError> {
        // Stays false if a panic passes on from here.
        self.is_begun = false;
        let (mut place, mut failed) = (0, None);
        for worker in &mut self.workers {
            let (from, to) = (place, place + worker.count);
            place = to;
            match worker.answer() {
                Ok(batch) => {
                    let len = self.observation_len;
                    self.all.actions[from..to].copy_from_slice(&batch.actions);
                    self.all.observations[from * len..to * len]
                        .copy_from_slice(&batch.observations);
                    self.all.outcomes[from..to].copy_from_slice(&batch.outcomes);
                    self.all.rewards[from..to].copy_from_slice(&batch.rewards);
                    self.all.truncated[from..to].copy_from_slice(&batch.truncated);
                    worker.batch = Some(batch);
                }
                Err(error) => {
                    worker.batch = Some(Batch::new(worker.count, self.observation_len));
                    failed = failed.or(Some(error));
                }
            }
        }
        self.is_begun = failed.is_none();
        failed.map_or(Ok(&self.all), Err)
    }
}

impl Worker {
    fn start(scenario: &Arc<Scenario>, count: usize) -> Result<Self, RlError> {
        let (orders, ordered) = channel();
        let (answered, answers) = channel();
        let mut crew = Crew {
            slots: (0..count).map(|_| Slot::new(scenario)).collect(),
            observation_len: scenario.observation_len(),
        };
        let work = move || {
            while let Ok(order) = ordered.recv() {
                if answered.send(crew.obey(order)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("environments".into()).spawn(work);
        let thread = thread.map_err(|error| {
            RlError::Wrong(format!(
                "cannot start a thread for environments: {error}: use fewer threads"
            ))
        })?;
        let batch = Some(Batch::new(count, scenario.observation_len()));
        Ok(Self { orders: Some(orders), answers, batch, count, thread: Some(thread) })
    }

    /// If the thread is gone, [`Worker::answer`] reports it.
    fn order(&mut self, order: impl FnOnce(Batch) -> Order) {
        if let (Some(orders), Some(batch)) = (&self.orders, self.batch.take()) {
            let _ = orders.send(order(batch));
        }
    }

    /// Waits for the answer. If the thread panicked, its first missing answer passes the panic on.
    fn answer(&mut self) -> Result<Batch, RlError> {
        if let Ok(answer) = self.answers.recv() {
            return answer;
        }
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
        Err(RlError::Wrong("a thread of environments has ended: make new environments".into()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The environments of a thread.
struct Crew {
    slots: Vec<Slot>,
    observation_len: usize,
}

struct Slot {
    environment: Environment,
    /// Seeds of its episodes.
    seeds: Stream,
    has_ended: bool,
}

impl Slot {
    fn new(scenario: &Arc<Scenario>) -> Self {
        let seeds = Streams::new(0).stream("episodes");
        Self { environment: Environment::new(scenario.clone()), seeds, has_ended: true }
    }

    fn begin(&mut self) -> Result<(), RlError> {
        self.has_ended = false;
        let begun = self.environment.reset(self.seeds.bits());
        self.has_ended = begun.is_err();
        begun
    }
}

impl Crew {
    fn obey(&mut self, order: Order) -> Result<Batch, RlError> {
        let mut batch = match order {
            Order::Reset(seeds, mut batch) => {
                for (slot, seed) in self.slots.iter_mut().zip(seeds) {
                    slot.seeds = Streams::new(seed).stream("episodes");
                    slot.begin()?;
                }
                batch.rewards.fill(0.0);
                batch.truncated.fill(false);
                batch
            }
            Order::Step(mut batch) => {
                for (place, slot) in self.slots.iter_mut().enumerate() {
                    if slot.has_ended {
                        slot.begin()?;
                        (batch.rewards[place], batch.truncated[place]) = (0.0, false);
                        continue;
                    }
                    slot.environment.act(0, batch.actions[place]);
                    slot.has_ended = !slot.environment.advance();
                    batch.rewards[place] = slot.environment.reward(0);
                    batch.truncated[place] = slot.has_ended;
                }
                batch
            }
        };
        let rows = batch.observations.chunks_exact_mut(self.observation_len);
        for ((slot, row), outcome) in self.slots.iter().zip(rows).zip(&mut batch.outcomes) {
            slot.environment.observe(0, row);
            *outcome = slot.environment.outcome(0);
        }
        Ok(batch)
    }
}
