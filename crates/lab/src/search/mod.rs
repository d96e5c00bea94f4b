//! Finds the case in a space of paths and events in which a figure of an algorithm is worst (the idea of CC-Fuzz, Ray
//! and Seshan, HotNets 2022), and makes it simple.
//!
//! ```text
//! space ──► plain cells ────────────────────────────┐
//!   └─────► drawn cases ──► bred cases ──► the worst ┴──► fewer events, rounder numbers ──► a plan
//!             └── trials: three seeds each, known ones are not run again (JSON lines) ──┘
//! ```
//! What is drawn depends on the seed and on what was found before, and on neither the threads nor the time: the same
//! budget of runs gives the same plan.

mod breed;
mod case;
mod known;
mod objective;
mod progress;
mod space;
mod trials;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_core::random::{Stream, Streams};
use forebay_core::units::format_duration;
use serde_json::{Value, json};

pub use case::{Case, SEEDS};
pub use objective::{OBJECTIVES, Objective};
pub use progress::{Phase, Progress, on_stderr};
pub use space::{SPACES, Space, check_algorithm};
pub use trials::Judged;
use trials::Trials;

use crate::algorithms;
use crate::backend::Stop;
use crate::runner::RunError;
use crate::store::Build;

/// Cases that are judged before anything is decided on them.
const GENERATION: usize = 32;
/// Generations that are drawn from the whole space.
const DRAWN_GENERATIONS: usize = 2;
/// Cases that others are bred from.
const POPULATION: usize = 32;
/// Cases of which the worst becomes a parent.
const TOURNAMENT: usize = 3;
/// How likely a case is drawn from the whole space among those that are bred.
const FRESH: f64 = 0.125;
/// A simpler case is kept if it is at most so many times better than the worst.
const KEPT: f64 = 1.05;
/// What is bred ends after this share of a budget of time: the rest is for making the worst case simple.
const BRED_UNTIL: f64 = 0.85;

/// When a search ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// After so many simulated runs, without those of the plain cells and those that make the worst case simple.
    Runs(u64),
    /// After this time.
    Time(Duration),
}

impl fmt::Display for Budget {
    /// As options of `forebay search`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs(runs) => write!(f, "--runs {runs}"),
            Self::Time(time) => write!(f, "--budget {}", format_duration(*time)),
        }
    }
}

/// What is searched for, and where.
#[derive(Clone, Debug)]
pub struct Request {
    /// Algorithm of the tested flow, as plans have it; see [`check_algorithm`].
    pub algorithm: String,
    /// What is to be worst.
    pub objective: &'static Objective,
    /// Where to look.
    pub space: Space,
    /// When to end.
    pub budget: Budget,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Runs at a time; 0 is 1, too.
    pub jobs: usize,
    /// Folder of what is known and of the plan, made if it does not exist.
    pub folder: PathBuf,
    /// What this program was built from, which tells its runs from those of others.
    pub build: Build,
    /// Ends the search before its time: what its generations gave by then is known to the next search.
    pub stop: Stop,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The plain cells in the order of the space, without those in which the figure is not measured.
    pub plain: Vec<Judged>,
    /// The worst of the plain cells.
    pub worst_plain: Judged,
    /// The worst case.
    pub worst: Judged,
    /// What is left of the worst case without all that it is as bad without, within 5 %.
    pub simple: Judged,
    /// The plan of what is left.
    pub plan: PathBuf,
    /// Cases that were simulated.
    pub simulated: usize,
    /// Cases that were known already.
    pub reused: usize,
}

/// Searches, and tells `progress` of it.
///
/// # Errors
/// Before anything is simulated, a folder that cannot be used. The figure is measured in no plain cell. Then the first
/// case that cannot be run.
pub fn search(
    request: &Request,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Found, RunError> {
    let trials = Trials::open(request)?;
    let mut hunt =
        Hunt { request, trials, progress, began: Instant::now(), judged: 0, worst: None };
    let plain = hunt.plain()?;
    let worst_plain = plain[0].clone();
    let worst_plain = plain.iter().fold(worst_plain, |worst, it| hunt.worse(worst, it));
    let worst = hunt.breed(&plain)?;
    let simple = hunt.simplify(&worst)?;
    let name = request.name();
    let plan = request.folder.join(format!("{name}.toml"));
    let text = request.heading(&worst_plain, &simple)
        + &simple.case.plan(&request.space, &request.algorithm, &name);
    std::fs::write(&plan, text).map_err(|error| RunError::unusable(&plan, &error))?;
    let Trials { simulated, reused, .. } = hunt.trials;
    Ok(Found { plain, worst_plain, worst, simple, plan, simulated, reused })
}

impl Found {
    /// What `forebay search --json` prints of what `request` found.
    pub fn document(&self, request: &Request) -> Value {
        let judged = |it: &Judged| {
            json!({
                "case": it.case.words(),
                "value": it.value,
                "by_seed": it.by_seed,
                "times_worse": request.objective.times_worse(it.value, self.worst_plain.value),
            })
        };
        json!({
            "algorithm": request.algorithm,
            "metric": request.objective.name,
            "unit": request.objective.unit,
            "space": request.space.name,
            "seed": request.seed,
            "plain": self.plain.iter().map(judged).collect::<Vec<_>>(),
            "worst": judged(&self.worst),
            "simple": judged(&self.simple),
            "plan": self.plan,
            "cases_simulated": self.simulated,
            "cases_known": self.reused,
        })
    }
}

impl Request {
    /// Name of the plan: algorithm and metric in letters that a plan's name may have.
    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let algorithm: String = self.algorithm.chars().map(plain).take(32).collect();
        format!("{}-{}", algorithm.trim_end_matches('-'), self.objective.name)
    }

    /// Says in comments how the plan came about, and what to compare a repetition with.
    fn heading(&self, plain: &Judged, found: &Judged) -> String {
        let Self { algorithm, objective, space, budget, seed, .. } = self;
        let (name, metric) = (self.name(), objective.name);
        let (kind, parameters) = algorithm.split_at(algorithm.find('(').unwrap_or(algorithm.len()));
        // A class in Python is no crate, and has its name alone.
        let is_crate = |own: &&algorithms::Own| Path::new(own.folder).is_dir();
        let own = algorithms::own().iter().find(|own| own.algorithm.name == kind).filter(is_crate);
        let with = own.map_or_else(String::new, |own| format!(" --with {}", quoted(own.folder)));
        let algorithm = quoted(&format!("{}{parameters}", own.map_or(kind, |own| own.folder)));
        let times = objective.times_worse(found.value, plain.value);
        let times = times.map_or_else(String::new, |it| format!(": this is {it:.1} times worse"));
        format!(
            "# A bad case of {metric} for {algorithm}: {}.\n\
             # Found by: forebay search {algorithm} --metric {metric} --space {} --seed {seed} {budget}\n\
             # {}: {}, the median of seeds {SEEDS}, which have {:?}.\n\
             # The worst plain cell, {}, has {}{times}.\n\
             # Again: forebay run {name}.toml --backend sim{with}\n\n",
            found.case.words(),
            quoted(&space.name),
            objective.heading(),
            found.value,
            found.by_seed,
            plain.case.words(),
            plain.value,
        )
    }
}

/// `text` as a shell takes it for one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A search under way.
struct Hunt<'a> {
    request: &'a Request,
    trials: Trials<'a>,
    progress: &'a mut dyn FnMut(&Progress<'_>),
    began: Instant,
    /// Cases that were judged, plain cells included.
    judged: usize,
    worst: Option<Judged>,
}

impl Hunt<'_> {
    /// Judges cases and tells of them.
    fn judge(&mut self, phase: Phase, cases: &[Case]) -> Result<Vec<Option<Judged>>, RunError> {
        let found = self.trials.judge(cases)?;
        self.judged += cases.len();
        for found in found.iter().flatten() {
            let worst = self.worst.take();
            self.worst =
                Some(worst.map_or_else(|| found.clone(), |worst| self.worse(worst, found)));
        }
        let elapsed = self.began.elapsed();
        let done = match self.request.budget {
            Budget::Time(time) => elapsed.as_secs_f64() / time.as_secs_f64(),
            Budget::Runs(_) => {
                self.judged as f64 / (self.request.space.plain.len() + self.cases()) as f64
            }
        };
        (self.progress)(&Progress {
            phase,
            done: done.min(1.0),
            elapsed,
            judged: self.judged,
            objective: self.request.objective,
            worst: self.worst.as_ref().map(|worst| worst.value),
        });
        Ok(found)
    }

    /// The worse of two; the first if neither is.
    fn worse(&self, one: Judged, other: &Judged) -> Judged {
        let is_worse = self.request.objective.compare(other.value, one.value).is_gt();
        if is_worse { other.clone() } else { one }
    }

    fn plain(&mut self) -> Result<Vec<Judged>, RunError> {
        let Request { space, objective, .. } = self.request;
        let mut plain = Vec::new();
        for cells in space.plain.chunks(GENERATION) {
            plain.extend(self.judge(Phase::Plain, cells)?.into_iter().flatten());
        }
        if plain.is_empty() {
            let (metric, space) = (objective.name, &space.name);
            let error =
                format!("--metric {metric}: measured in no plain cell of the space {space}");
            return Err(RunError::Options(error));
        }
        Ok(plain)
    }

    /// Cases that a budget of runs pays for.
    fn cases(&self) -> usize {
        match self.request.budget {
            Budget::Runs(runs) => runs.div_ceil(SEEDS.iter().count() as u64) as usize,
            Budget::Time(_) => usize::MAX,
        }
    }

    /// Whether the time is up, or so much of it.
    fn is_over(&self, share: f64) -> bool {
        match self.request.budget {
            Budget::Runs(_) => false,
            Budget::Time(time) => self.began.elapsed() >= time.mul_f64(share),
        }
    }

    /// Draws cases, and breeds others from the worst; gives the worst of all.
    fn breed(&mut self, plain: &[Judged]) -> Result<Judged, RunError> {
        let Request { space, seed, .. } = self.request;
        let streams = Streams::new(*seed).part("search");
        let mut population: Vec<Judged> =
            plain.iter().filter(|it| space.contains(&it.case)).cloned().collect();
        self.select(&mut population);
        let mut left = self.cases();
        for generation in 0.. {
            // One generation there is however short the time.
            if left == 0 || generation > 0 && self.is_over(BRED_UNTIL) {
                break;
            }
            let mut random = streams.stream(&format!("generation {generation}"));
            let is_drawn = generation < DRAWN_GENERATIONS;
            let cases: Vec<Case> = (0..GENERATION.min(left))
                .map(|_| self.next(is_drawn, &population, &mut random))
                .collect();
            left -= cases.len();
            let phase = if is_drawn { Phase::Drawn } else { Phase::Bred };
            population.extend(self.judge(phase, &cases)?.into_iter().flatten());
            self.select(&mut population);
        }
        let worst = population.into_iter().next();
        worst.ok_or_else(|| {
            let metric = self.request.objective.name;
            RunError::Options(format!(
                "--metric {metric}: measured in no case of the space {}",
                space.name
            ))
        })
    }

    fn next(&self, is_drawn: bool, population: &[Judged], random: &mut Stream) -> Case {
        let space = &self.request.space;
        if is_drawn || population.is_empty() || random.chance(FRESH) {
            return breed::draw(space, random);
        }
        let mut parent = || {
            let places = (0..TOURNAMENT).map(|_| random.below(population.len() as u64));
            &population[places.min().unwrap_or(0) as usize].case
        };
        let parents = [parent(), parent()];
        breed::child(space, parents, random)
    }

    /// Keeps the worst, each once, worst first.
    fn select(&self, population: &mut Vec<Judged>) {
        let objective = self.request.objective;
        population.sort_by(|one, other| objective.compare(other.value, one.value));
        let mut kept: Vec<Judged> = Vec::with_capacity(POPULATION);
        for judged in population.drain(..) {
            if kept.len() < POPULATION && kept.iter().all(|other| other.case != judged.case) {
                kept.push(judged);
            }
        }
        *population = kept;
    }

    /// Takes from the worst case whatever it is as bad without.
    fn simplify(&mut self, worst: &Judged) -> Result<Judged, RunError> {
        let Request { space, objective, .. } = self.request;
        let is_kept = |it: &Judged| {
            objective.compare(it.value, worst.value).is_ge()
                || objective.times_worse(worst.value, it.value).is_some_and(|it| it <= KEPT)
        };
        let mut simple = worst.clone();
        let (mut place, mut is_changed) = (0, false);
        while !self.is_over(1.0) {
            let Some(case) = simple.case.simpler(space).into_iter().nth(place) else {
                if !is_changed {
                    break;
                }
                // What could not go before may be able to by now.
                (place, is_changed) = (0, false);
                continue;
            };
            match self.judge(Phase::Simplified, &[case])?.pop().flatten().filter(is_kept) {
                Some(kept) => (simple, is_changed) = (kept, true),
                None => place += 1,
            }
        }
        Ok(simple)
    }
}

#[cfg(test)]
mod tests;
