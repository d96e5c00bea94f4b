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
//!
//! On real kernels a run takes its time. There, half of each generation is the worst of many simulated cases, the
//! other half is not chosen, and a case has one run. At the end, new runs compare the case with the plain cells.

mod breed;
mod case;
mod compare;
mod findings;
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
pub use compare::{COMPARED_RUNS, COMPARED_SEEDS, ComparedCase, Comparison};
pub use findings::publish;
pub use objective::{OBJECTIVES, Objective};
pub use progress::{Phase, SearchProgress, on_stderr};
pub use space::{SPACES, Space, check_algorithm};
pub use trials::JudgedCase;
use trials::Trials;

use forebay_lab::RunError;
use forebay_lab::backend::{SIMULATOR, Stop};
use forebay_lab::plan::Seeds;
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
/// Simulated cases for each case of a generation on a real kernel. A simulated second takes about 1 ms, so they take
/// a few percent of the case's time.
const SCREENED: usize = 32;
/// Time of a real run before its start and after its end: namespaces, programs and metrics (an estimate).
const REAL_OVERHEAD: Duration = Duration::from_secs(2);
/// Share of a time budget at which breeding ends: the rest is for simplifying the worst case.
const BRED_UNTIL: f64 = 0.85;

/// When a search ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// After this many runs, not counting the plain cells and those that simplify or compare the worst case.
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
    /// Name of the back end.
    pub backend: String,
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
    /// The simplified case next to all plain cells in further runs; `None` in the simulator.
    pub comparison: Option<Comparison>,
    /// The plan of the simplified case.
    pub plan: PathBuf,
    /// Cases that were run.
    pub run: usize,
    /// Cases that were known already.
    pub reused: usize,
    /// Why attempts at runs do not count: the harness was disturbed.
    pub rejected: Vec<String>,
}

/// Searches, and reports to `progress`.
///
/// # Errors A back end that cannot run the plain cells, or a folder that cannot be used (before anything is run). A
/// figure that no plain cell measures. Then the first case that cannot be run.
pub fn search(
    request: &SearchRequest,
    progress: &mut dyn FnMut(&SearchProgress<'_>),
) -> Result<Found, RunError> {
    let backend = trials::ready(request, &request.backend, request.jobs)?;
    let screen = match request.is_real() {
        true => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let simulator = trials::ready(request, SIMULATOR, threads)?;
            Some(Trials::open(request, simulator, threads)?)
        }
        false => None,
    };
    find(request, Trials::open(request, backend, request.jobs)?, screen, progress)
}

/// Searches with `trials`; on real kernels, `screen` simulates.
fn find(
    request: &SearchRequest,
    trials: Trials<'_>,
    screen: Option<Trials<'_>>,
    progress: &mut dyn FnMut(&SearchProgress<'_>),
) -> Result<Found, RunError> {
    let mut hunt = Hunt::new(request, trials, screen, progress);
    let plain = hunt.plain()?;
    let worst_plain = plain[0].clone();
    let worst_plain = plain.iter().fold(worst_plain, |worst, it| hunt.worse(worst, it));
    let worst = hunt.breed(&plain)?;
    let simple = hunt.simplify(&worst)?;
    let comparison = match request.is_real() {
        true => Some(hunt.compare(&simple.case, &request.space.plain, [COMPARED_SEEDS; 2])?),
        false => None,
    };
    let name = request.name();
    let plan = request.folder.join(format!("{name}.toml"));
    let text = match &comparison {
        None => request.heading(&worst_plain, &simple, ""),
        Some(comparison) => request.heading_of(comparison, &worst_plain, &simple),
    };
    let SearchRequest { space, algorithm, .. } = request;
    let text = text + &simple.case.plan(space, algorithm, &name, request.seeds_of_plan());
    std::fs::write(&plan, text).map_err(|error| RunError::unusable(&plan, &error))?;
    let Trials { run, reused, rejected, .. } = hunt.trials;
    Ok(Found { plain, worst_plain, worst, simple, comparison, plan, run, reused, rejected })
}

/// Compares a drawn case with itself `count` times, with other seeds each time. A finding is a false one.
///
/// # Errors As [`search`].
pub fn compare_with_itself(
    request: &SearchRequest,
    count: u64,
    progress: &mut dyn FnMut(&SearchProgress<'_>),
) -> Result<Vec<Comparison>, RunError> {
    let backend = trials::ready(request, &request.backend, request.jobs)?;
    let trials = Trials::open(request, backend, request.jobs)?;
    Hunt::new(request, trials, None, progress).compare_with_itself(count)
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
            "backend": request.backend,
            "metric": request.objective.name,
            "unit": request.objective.unit,
            "space": request.space.name,
            "seed": request.seed,
            "plain": self.plain.iter().map(judged).collect::<Vec<_>>(),
            "worst": judged(&self.worst),
            "simple": judged(&self.simple),
            "comparison": self.comparison.as_ref().map(Comparison::document),
            "plan": self.plan,
            "cases_run": self.run,
            "cases_known": self.reused,
            "rejected": self.rejected,
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

    /// Whether the back end runs in real time.
    pub fn is_real(&self) -> bool {
        self.backend != SIMULATOR
    }

    /// Seeds of each case of the search.
    fn seeds(&self) -> Seeds {
        if self.is_real() { Seeds { first: 1, last: 1 } } else { SEEDS }
    }

    /// Seeds in the plan of the found case: those that its figures are from.
    fn seeds_of_plan(&self) -> Seeds {
        if self.is_real() { COMPARED_SEEDS } else { SEEDS }
    }

    /// Time budget of the search itself. On a real kernel, the rest is for the comparison with the plain cells.
    fn time(&self) -> Option<Duration> {
        let Budget::Time(time) = self.budget else { return None };
        let compared = (self.space.plain.len() as u32 + 1) * COMPARED_RUNS as u32;
        let kept = if self.is_real() { self.real_run() * compared } else { Duration::ZERO };
        Some(time.saturating_sub(kept))
    }

    /// How long a real run takes.
    fn real_run(&self) -> Duration {
        self.space.stop + REAL_OVERHEAD
    }

    /// Number of cases that are judged before the next decision. Real runs are few: then the square root of their
    /// number, so that there are as many generations as cases in a generation.
    fn generation(&self) -> usize {
        if !self.is_real() {
            return GENERATION;
        }
        let runs = match (self.budget, self.time()) {
            (Budget::Runs(runs), _) => runs as f64,
            (_, time) => time.unwrap_or_default().div_duration_f64(self.real_run()),
        };
        (runs.sqrt().ceil() as usize).clamp(2, GENERATION)
    }

    /// Explains in comments how the search found the plan, and gives the values to compare a repetition with.
    fn heading(&self, plain: &JudgedCase, found: &JudgedCase, more: &str) -> String {
        let Self { algorithm, objective, space, budget, seed, backend, .. } = self;
        let (name, metric, seeds) = (self.name(), objective.name, self.seeds_of_plan());
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
        let on = if self.is_real() { format!(" --backend {backend}") } else { String::new() };
        format!(
            "# A bad case of {metric} for {algorithm}: {}.\n\
             # Found by: forebay search {algorithm}{on} --metric {metric} --space {} --seed {seed} {budget}\n\
             # {}: {}, the median of seeds {seeds}, which have {:?}.\n\
             # The worst plain cell, {}, has {}{times}.\n{more}\
             # Again: forebay run {name}.toml --backend {backend}{with}\n\n",
            found.case.words(),
            shell_word(&space.name),
            objective.heading(),
            found.value,
            found.by_seed,
            plain.case.words(),
            plain.value,
        )
    }

    /// The heading with the figures of the comparison; `plain` and `found` fill in for missing runs.
    fn heading_of(
        &self,
        comparison: &Comparison,
        plain: &JudgedCase,
        found: &JudgedCase,
    ) -> String {
        let judged = |it: &ComparedCase| JudgedCase::of(&it.case, it.runs.clone());
        let worse =
            |one: &JudgedCase, other: &JudgedCase| self.objective.compare(one.value, other.value);
        let worst = comparison.plain.iter().filter_map(judged).max_by(worse);
        let verdict = match (comparison.is_finding, comparison.missing()) {
            (true, _) => "Each",
            (false, 0) => "Not each",
            (false, _) => "Runs are missing, so it is open whether each",
        };
        let simulated = &comparison.case.simulated;
        let more = format!(
            "# {verdict} of these runs is worse than {COMPARED_RUNS} runs of every plain cell.\n\
             # In the simulator, the same seeds have {simulated:?}.\n"
        );
        let case = judged(&comparison.case);
        self.heading(&worst.unwrap_or(plain.clone()), &case.unwrap_or(found.clone()), &more)
    }
}

/// A search under way.
struct Hunt<'a> {
    request: &'a SearchRequest,
    trials: Trials<'a>,
    /// Simulates, so that few of many cases run on a real kernel.
    screen: Option<Trials<'a>>,
    progress: &'a mut dyn FnMut(&SearchProgress<'_>),
    began: Instant,
    /// Cases that were judged, plain cells included.
    judged: usize,
    worst: Option<JudgedCase>,
}

impl<'a> Hunt<'a> {
    fn new(
        request: &'a SearchRequest,
        trials: Trials<'a>,
        screen: Option<Trials<'a>>,
        progress: &'a mut dyn FnMut(&SearchProgress<'_>),
    ) -> Self {
        Self { request, trials, screen, progress, began: Instant::now(), judged: 0, worst: None }
    }

    /// Judges cases and reports them to `progress`. Real runs are reported one by one, and no bred case is begun when
    /// the time is over.
    fn judge(&mut self, phase: Phase, cases: &[Case]) -> Result<Vec<Option<JudgedCase>>, RunError> {
        let batch = if self.request.is_real() { 1 } else { cases.len().max(1) };
        let mut found = Vec::new();
        for cases in cases.chunks(batch) {
            if phase == Phase::Bred && self.request.is_real() && self.is_over(BRED_UNTIL) {
                break;
            }
            found.extend(self.trials.judge(cases, self.request.seeds())?);
            let worst = self.worst.take().into_iter().chain(found.iter().flatten().cloned());
            let worst = worst.reduce(|worst, found| self.worse(worst, &found));
            self.worst = worst;
            self.report(phase, cases.len());
        }
        Ok(found)
    }

    /// Reports that `cases` more were judged.
    fn report(&mut self, phase: Phase, cases: usize) {
        self.judged += cases;
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
    }

    /// Compares `case` with `plain` in runs of these seeds, first the case's. The cases take turns, so that slow
    /// changes of the machine affect all alike. For the same reason, earlier real runs do not count.
    fn compare(
        &mut self,
        case: &Case,
        plain: &[Case],
        seeds: [Seeds; 2],
    ) -> Result<Comparison, RunError> {
        self.trials.forget();
        let mut all: Vec<ComparedCase> = plain
            .iter()
            .chain([case])
            .map(|it| ComparedCase { case: it.clone(), runs: Vec::new(), simulated: Vec::new() })
            .collect();
        for (own, other) in seeds[0].iter().zip(seeds[1].iter()) {
            for (place, compared) in all.iter_mut().enumerate() {
                let seed = if place == plain.len() { own } else { other };
                let seeds = Seeds { first: seed, last: seed };
                // Without all runs nothing is judged, so a disturbed run is worth more attempts than in the search.
                for _ in 0..trials::ATTEMPTS {
                    let found = self.trials.judge(std::slice::from_ref(&compared.case), seeds)?;
                    compared.runs.extend(found.iter().flatten().map(|found| found.value));
                    if found.iter().any(Option::is_some) {
                        break;
                    }
                }
                self.report(Phase::Compared, 1);
            }
        }
        if let Some(screen) = &mut self.screen {
            let cases: Vec<Case> = all.iter().map(|it| it.case.clone()).collect();
            for (compared, found) in all.iter_mut().zip(screen.judge(&cases, seeds[0])?) {
                compared.simulated = found.map(|found| found.by_seed).unwrap_or_default();
            }
        }
        let case = all.pop().expect("the case is the last");
        let runs: Vec<Vec<f64>> = all.iter().map(|it| it.runs.clone()).collect();
        let is_finding = compare::is_worse(self.request.objective, &case.runs, &runs);
        Ok(Comparison { plain: all, case, is_finding })
    }

    fn compare_with_itself(&mut self, count: u64) -> Result<Vec<Comparison>, RunError> {
        let SearchRequest { space, seed, .. } = self.request;
        let case = breed::draw(space, &mut Streams::new(*seed).part("search").stream("itself"));
        let compare = |number| {
            let first = COMPARED_SEEDS.last + 1 + 2 * COMPARED_RUNS * number;
            let seeds = [first, first + COMPARED_RUNS]
                .map(|first| Seeds { first, last: first + COMPARED_RUNS - 1 });
            self.compare(&case, std::slice::from_ref(&case), seeds)
        };
        (0..count).map(compare).collect()
    }

    /// `count` of the `drawn` cases: half are the worst in the simulator, the rest are as drawn. Cases that are bad on
    /// a real kernel only are among the rest.
    fn screened(&mut self, drawn: Vec<Case>, count: usize) -> Result<Vec<Case>, RunError> {
        let SearchRequest { objective, .. } = self.request;
        let Some(screen) = &mut self.screen else { return Ok(drawn) };
        let judged = screen.judge(&drawn, self.request.seeds())?;
        let mut worst: Vec<(f64, usize)> =
            (0..).zip(judged).filter_map(|(place, it)| Some((it?.value, place))).collect();
        worst.sort_by(|(one, _), (other, _)| objective.compare(*other, *one));
        worst.truncate(count / 2);
        let mut places: Vec<usize> = worst.into_iter().map(|(_, place)| place).collect();
        let rest: Vec<usize> = (0..drawn.len()).filter(|place| !places.contains(place)).collect();
        places.extend(rest.into_iter().take(count - places.len()));
        Ok(places.into_iter().map(|place| drawn[place].clone()).collect())
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
            let mut error =
                format!("--metric {metric}: measured in no plain cell of the space {space}");
            if let Some(reason) = self.trials.rejected.last() {
                error += &format!("; the last attempt does not count: {reason}");
            }
            return Err(RunError::Options(error));
        }
        Ok(plain)
    }

    /// Cases that a budget of runs pays for.
    fn cases(&self) -> usize {
        match self.request.budget {
            Budget::Runs(runs) => {
                runs.div_ceil(self.request.seeds().iter().count() as u64) as usize
            }
            Budget::Time(_) => usize::MAX,
        }
    }

    /// Whether this share of the time budget is used up.
    fn is_over(&self, share: f64) -> bool {
        self.request.time().is_some_and(|time| self.began.elapsed() >= time.mul_f64(share))
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
            let count = self.request.generation().min(left);
            let drawn = if self.screen.is_some() { count * SCREENED } else { count };
            let drawn = (0..drawn).map(|_| self.next(is_drawn, &population, &mut random)).collect();
            let cases = self.screened(drawn, count)?;
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
