//! Finds the case in a space of paths and events in which a figure of an algorithm is worst, and makes it simple. The
//! idea is from CC-Fuzz (Ray and Seshan, HotNets 2022).
//!
//! ```text
//! space ──► plain cells ────────────────────────────┐
//!   └─────► drawn cases ──► bred cases ──► the worst ┴──► fewer events, rounder numbers ──► a plan
//!             └── trials: three seeds each, known ones are not run again (JSON lines) ──┘
//! ```
//! Drawn cases depend only on the seed and on earlier results, not on threads or time: the same budget of runs gives
//! the same plan.

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
use forebay_core::text::shell_word;
use forebay_core::units::format_duration;
use serde_json::{Value, json};

pub use case::{Case, SEEDS};
pub use objective::{OBJECTIVES, Objective};
pub use progress::{Phase, SearchProgress, on_stderr};
pub use space::{SPACES, Space, check_algorithm};
pub use trials::JudgedCase;
use trials::Trials;

use forebay_lab::RunError;
use forebay_lab::backend::Stop;
use forebay_lab::store::Build;
use forebay_policy::algorithms;

/// Number of cases that are judged before the next decision.
const GENERATION: usize = 32;
/// Generations that are drawn from the whole space.
const DRAWN_GENERATIONS: usize = 2;
/// Number of cases that parents are chosen from.
const POPULATION: usize = 32;
/// Number of cases drawn for a parent; the worst drawn case is the parent.
const TOURNAMENT: usize = 3;
/// Probability that a bred generation draws a case from the whole space.
const FRESH: f64 = 0.125;
/// A simpler case is kept if its figure is at most this many times better than the worst.
const KEPT: f64 = 1.05;
/// Share of a time budget at which breeding ends: the rest is for simplifying the worst case.
const BRED_UNTIL: f64 = 0.85;

/// When a search ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// After this many simulated runs, not counting the plain cells and those that simplify the worst case.
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

/// Objective, place and limits of a search.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// Algorithm of the tested flow, as in plans; see [`check_algorithm`].
    pub algorithm: String,
    /// The figure to make worst.
    pub objective: &'static Objective,
    /// Where to look.
    pub space: Space,
    /// When to end.
    pub budget: Budget,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Runs at a time; 0 is 1, too.
    pub jobs: usize,
    /// Folder of known results and of the plan; it is created if it does not exist.
    pub folder: PathBuf,
    /// Commit and source digests of this program, which distinguish its runs from other programs' runs.
    pub build: Build,
    /// Ends the search early. The next search reuses the results of the generations that finished.
    pub stop: Stop,
}

/// Result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// The plain cells in the order of the space, without those in which the figure is not measured.
    pub plain: Vec<JudgedCase>,
    /// The worst of the plain cells.
    pub worst_plain: JudgedCase,
    /// The worst case.
    pub worst: JudgedCase,
    /// The simplified worst case: all parts are removed without which its figure stays within 5 %.
    pub simple: JudgedCase,
    /// The plan of the simplified case.
    pub plan: PathBuf,
    /// Cases that were simulated.
    pub simulated: usize,
    /// Cases that were known already.
    pub reused: usize,
}

/// Searches, and reports to `progress`.
///
/// # Errors A folder that cannot be used (before anything is simulated). A figure that no plain cell measures. Then
/// the first case that cannot be run.
pub fn search(
    request: &SearchRequest,
    progress: &mut dyn FnMut(&SearchProgress<'_>),
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
    /// The document that `forebay search --json` prints for `request`.
    pub fn document(&self, request: &SearchRequest) -> Value {
        let judged = |it: &JudgedCase| {
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

impl SearchRequest {
    /// Name of the plan: algorithm and metric in letters that a plan's name may have.
    fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
        let algorithm: String = self.algorithm.chars().map(plain).take(32).collect();
        format!("{}-{}", algorithm.trim_end_matches('-'), self.objective.name)
    }

    /// Explains in comments how the search found the plan, and gives the values to compare a repetition with.
    fn heading(&self, plain: &JudgedCase, found: &JudgedCase) -> String {
        let Self { algorithm, objective, space, budget, seed, .. } = self;
        let (name, metric) = (self.name(), objective.name);
        let (kind, parameters) = algorithm.split_at(algorithm.find('(').unwrap_or(algorithm.len()));
        // A Python class is no crate, so its name alone is given.
        let is_crate = |own: &&algorithms::Own| Path::new(own.folder).is_dir();
        let own = algorithms::own().iter().find(|own| own.algorithm.name == kind).filter(is_crate);
        let with =
            own.map_or_else(String::new, |own| format!(" --with {}", shell_word(own.folder)));
        let algorithm = shell_word(&format!("{}{parameters}", own.map_or(kind, |own| own.folder)));
        let times = objective.times_worse(found.value, plain.value);
        let times =
            times.map_or_else(String::new, |it| format!("; this case is {it:.1} times worse"));
        format!(
            "# A bad case of {metric} for {algorithm}: {}.\n\
             # Found by: forebay search {algorithm} --metric {metric} --space {} --seed {seed} {budget}\n\
             # {}: {}, the median of seeds {SEEDS}, which have {:?}.\n\
             # The worst plain cell, {}, has {}{times}.\n\
             # Again: forebay run {name}.toml --backend sim{with}\n\n",
            found.case.words(),
            shell_word(&space.name),
            objective.heading(),
            found.value,
            found.by_seed,
            plain.case.words(),
            plain.value,
        )
    }
}

/// A search under way.
struct Hunt<'a> {
    request: &'a SearchRequest,
    trials: Trials<'a>,
    progress: &'a mut dyn FnMut(&SearchProgress<'_>),
    began: Instant,
    /// Cases that were judged, plain cells included.
    judged: usize,
    worst: Option<JudgedCase>,
}

impl Hunt<'_> {
    /// Judges cases and reports them to `progress`.
    fn judge(&mut self, phase: Phase, cases: &[Case]) -> Result<Vec<Option<JudgedCase>>, RunError> {
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
        (self.progress)(&SearchProgress {
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
    fn worse(&self, one: JudgedCase, other: &JudgedCase) -> JudgedCase {
        let is_worse = self.request.objective.compare(other.value, one.value).is_gt();
        if is_worse { other.clone() } else { one }
    }

    fn plain(&mut self) -> Result<Vec<JudgedCase>, RunError> {
        let SearchRequest { space, objective, .. } = self.request;
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

    /// Whether this share of the time budget is used up.
    fn is_over(&self, share: f64) -> bool {
        match self.request.budget {
            Budget::Runs(_) => false,
            Budget::Time(time) => self.began.elapsed() >= time.mul_f64(share),
        }
    }

    /// Draws cases, and breeds more from the worst; returns the worst of all.
    fn breed(&mut self, plain: &[JudgedCase]) -> Result<JudgedCase, RunError> {
        let SearchRequest { space, seed, .. } = self.request;
        let streams = Streams::new(*seed).part("search");
        let mut population: Vec<JudgedCase> =
            plain.iter().filter(|it| space.contains(&it.case)).cloned().collect();
        self.select(&mut population);
        let mut left = self.cases();
        for generation in 0.. {
            // At least one generation runs, however short the time.
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

    fn next(&self, is_drawn: bool, population: &[JudgedCase], random: &mut Stream) -> Case {
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
    fn select(&self, population: &mut Vec<JudgedCase>) {
        let objective = self.request.objective;
        population.sort_by(|one, other| objective.compare(other.value, one.value));
        let mut kept: Vec<JudgedCase> = Vec::with_capacity(POPULATION);
        for judged in population.drain(..) {
            if kept.len() < POPULATION && kept.iter().all(|other| other.case != judged.case) {
                kept.push(judged);
            }
        }
        *population = kept;
    }

    /// Removes each part of the worst case without which it stays as bad.
    fn simplify(&mut self, worst: &JudgedCase) -> Result<JudgedCase, RunError> {
        let SearchRequest { space, objective, .. } = self.request;
        let is_kept = |it: &JudgedCase| {
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
                // Parts that could not be removed before may be removable now.
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
