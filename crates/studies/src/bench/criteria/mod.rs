//! Verdicts on the evaluation criteria of RFC 9743 (BCP 133).
//!
//! ```text
//! rfc9743.toml ──► Criterion ──► Test ──► figure of each cell and seed ──► Verdict of the worst cell ──► Finding
//! ```
//! The RFC sets no thresholds, so the bounds are this project's. A test is judged as claims are
//! ([`forebay_lab::judge`]). It is met if the median of the seeds meets the bound, failed if the whole 95 % interval
//! lies outside, else open. It is not shown if a requested seed has no figure.

mod document;
pub mod page;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::BenchedPlan;
pub use document::{Criterion, Known, Level, Test};
use forebay_lab::judge::{Bound, Interval, SEED, Verdict, Why, table};
use forebay_lab::metrics::statistics::share;
use forebay_lab::plan::{Override, Plan};
use forebay_lab::report::page::PageTable;
use forebay_lab::store::Run;

/// Findings of a suite on all criteria.
#[derive(Debug, Default, Serialize)]
pub struct Criteria {
    /// The algorithms that have runs: the requested ones first, then those tested earlier.
    pub algorithms: Vec<String>,
    /// The criteria in the order of the RFC.
    pub findings: Vec<Finding>,
    /// Published verdicts on these algorithms in tests that were run. Empty where `replaced` has a value, since such
    /// runs have no published verdicts.
    pub known: Vec<PublishedComparison>,
    /// Keys of values of the plans that were replaced: bounds hold for the plans as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
}

/// A criterion, and its findings.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The criterion.
    #[serde(flatten)]
    pub criterion: Criterion,
    /// The worst verdict of all tests, by algorithm; empty where nothing is tested.
    pub verdicts: BTreeMap<String, Verdict>,
    /// Results of its tests.
    pub tests: Vec<Tested>,
}

/// A test, and its results.
#[derive(Debug, Serialize)]
pub struct Tested {
    /// The test.
    #[serde(flatten)]
    pub test: Test,
    /// By algorithm.
    pub answers: BTreeMap<String, Answer>,
}

/// The result of one algorithm in a test.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The cell that is worst.
    #[serde(flatten)]
    pub worst: AtCell,
    /// All cells in the order of the plan.
    pub cells: Vec<AtCell>,
}

/// The result in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct AtCell {
    /// Name of the cell.
    pub cell: String,
    /// Median of the seeds with its 95 % interval.
    pub figure: Option<Interval>,
    /// Seeds that have a figure.
    pub seeds: usize,
    /// Number of seeds that should have a figure: the requested ones, or those for which the algorithm has a run
    /// anywhere in the plan.
    pub wanted: usize,
    /// Verdict on the cell.
    pub verdict: Verdict,
}

/// A published verdict and the one that this benchmark found.
#[derive(Debug, Serialize)]
pub struct PublishedComparison {
    /// Section of the criterion.
    pub section: String,
    /// The behaviour that the test requires.
    pub text: String,
    /// The published verdict.
    #[serde(flatten)]
    pub known: Known,
    /// The verdict found here.
    pub found: Verdict,
}

impl Criteria {
    /// Judges `criteria` by the results in `experiments`. `plans` are the plans of the experiments, in the same order,
    /// with the requested seeds and with `sets` applied. Criteria that concern only other plans are left out.
    pub fn of(
        mut criteria: Vec<Criterion>,
        plans: &[Plan],
        experiments: &[BenchedPlan],
        sets: &[Override],
    ) -> Self {
        let is_run = |test: &Test| experiments.iter().any(|it| it.plan == test.plan);
        criteria.retain(|it| it.tests.is_empty() || it.tests.iter().any(is_run));
        let runs = experiments.iter().flat_map(|experiment| &experiment.valid);
        let tested: BTreeSet<&String> = runs.map(|run| &run.key.arm).collect();
        let named = plans.first().into_iter().flat_map(|plan| &plan.arms).map(|arm| &arm.name);
        let named: Vec<&String> = named.filter(|name| tested.contains(name)).collect();
        let earlier = tested.iter().copied().filter(|name| !named.contains(name));
        let algorithms: Vec<String> = named.iter().copied().chain(earlier).cloned().collect();
        let sources: Vec<Source<'_>> = plans.iter().zip(experiments).collect();
        let finding = |criterion| Finding::of(criterion, &algorithms, &sources);
        let findings: Vec<Finding> = criteria.into_iter().map(finding).collect();
        let replaced: Vec<String> = sets.iter().map(|set| set.key().to_string()).collect();
        let known = findings.iter().filter(|_| replaced.is_empty()).flat_map(Finding::known);
        let known = known.collect();
        Self { algorithms, findings, known, replaced }
    }

    /// Whether there are no criteria.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// A row a criterion, a column an algorithm.
    pub fn table(&self) -> PageTable {
        let columns = ["section", "criterion", "level"].map(String::from).into_iter();
        let row = |finding: &Finding| {
            let Criterion { section, title, level, .. } = &finding.criterion;
            let head = [section.clone(), title.clone(), level.word().into()].into_iter();
            head.chain(self.algorithms.iter().map(|it| finding.word(it).into())).collect()
        };
        let caption = "Met: the median of the seeds meets every bound of the criterion. Not met: the whole interval lies \
                       outside of a bound. Open: otherwise.";
        PageTable {
            columns: columns.chain(self.algorithms.iter().cloned()).collect(),
            rows: self.findings.iter().map(row).collect(),
            caption: format!("{caption}{}", self.replaced_words()),
        }
    }

    /// A sentence about the values that were replaced, with a space before it; empty without any.
    pub fn replaced_words(&self) -> String {
        if self.replaced.is_empty() {
            return String::new();
        }
        format!(
            " Replaced here: {}. The bounds are for the unchanged plans and may mean nothing for these runs.",
            self.replaced.join(", ")
        )
    }

    /// Each published verdict next to the one found here.
    pub fn known_table(&self) -> PageTable {
        let columns = ["section", "algorithm", "test", "published", "found", "source"];
        let row = |it: &PublishedComparison| {
            let [published, found] =
                [it.known.verdict, it.found].map(|verdict| words(verdict).into());
            let (algorithm, source) = (it.known.algorithm.clone(), it.known.source.clone());
            vec![it.section.clone(), algorithm, it.text.clone(), published, found, source]
        };
        let reproduced = self.known.iter().filter(|it| it.is_found()).count();
        PageTable {
            columns: columns.map(String::from).to_vec(),
            rows: self.known.iter().map(row).collect(),
            caption: format!(
                "{reproduced} of {} published verdicts are reproduced here.",
                self.known.len()
            ),
        }
    }

    /// Every published verdict that differs here, in a line each.
    pub fn contradictions(&self) -> impl Iterator<Item = String> {
        let others = self.known.iter().filter(|it| !it.is_found());
        others.map(|PublishedComparison { section, text, known, found }| {
            let [published, found] = [known.verdict, *found].map(words);
            let Known { algorithm, source, .. } = known;
            format!("{section}, {algorithm}: {text}: {found}, published: {published} ({source})")
        })
    }

    /// Every test that was run and is not met, in a line each.
    pub fn unmet(&self) -> impl Iterator<Item = String> {
        let tests = self.findings.iter().flat_map(|it| it.tests.iter().map(move |test| (it, test)));
        let answers = tests.flat_map(|(finding, tested)| {
            tested.answers.iter().map(move |(name, answer)| (finding, tested, name, answer))
        });
        let is_unmet = |answer: &Answer| answer.is_run() && !answer.worst.verdict.is_fine();
        let unmet = answers.filter(move |(.., answer)| is_unmet(answer));
        unmet.map(|(finding, Tested { test, .. }, name, answer)| {
            let section = &finding.criterion.section;
            format!("{section}, {name}: {} {}: {answer}", test.text, test.bound_words())
        })
    }
}

impl PublishedComparison {
    /// Whether the verdict found here equals the published one.
    pub fn is_found(&self) -> bool {
        self.known.verdict == self.found
    }
}

/// A plan and its results.
type Source<'a> = (&'a Plan, &'a BenchedPlan);

impl Finding {
    fn of(criterion: Criterion, algorithms: &[String], sources: &[Source<'_>]) -> Self {
        let tested = |test: &Test| Tested::of(test, algorithms, sources);
        let tests: Vec<Tested> = criterion.tests.iter().map(tested).collect();
        let worst = |name: &String| {
            let verdicts = tests.iter().filter_map(|it| Some(it.answers.get(name)?.worst.verdict));
            Some((name.clone(), verdicts.max_by_key(|verdict| rank(*verdict))?))
        };
        let verdicts = algorithms.iter().filter_map(worst).collect();
        Self { criterion, verdicts, tests }
    }

    /// The verdict on `algorithm` in a word or two. A criterion without tests gives the way it is answered instead.
    pub fn word(&self, algorithm: &str) -> &'static str {
        let Criterion { documentation, not_applicable, .. } = &self.criterion;
        match self.verdicts.get(algorithm) {
            Some(verdict) => words(*verdict),
            None if documentation.is_some() => "documentation",
            None if not_applicable.is_some() => "not applicable",
            None => words(Verdict::NotShown(Why::NotRun)),
        }
    }

    fn known(&self) -> impl Iterator<Item = PublishedComparison> {
        let all =
            self.tests.iter().flat_map(|it| it.test.known.iter().map(move |known| (it, known)));
        all.filter_map(move |(tested, known)| {
            let answer = tested.answers.get(&known.algorithm).filter(|it| it.is_run())?;
            Some(PublishedComparison {
                section: self.criterion.section.clone(),
                text: tested.test.text.clone(),
                found: answer.worst.verdict,
                known: known.clone(),
            })
        })
    }
}

impl Tested {
    fn of(test: &Test, algorithms: &[String], sources: &[Source<'_>]) -> Self {
        let source = sources.iter().find(|(_, experiment)| experiment.plan == test.plan);
        let answer = |name: &String| (name.clone(), Answer::of(test, name, source.copied()));
        Self { test: test.clone(), answers: algorithms.iter().map(answer).collect() }
    }
}

impl Answer {
    fn of(test: &Test, algorithm: &str, source: Option<Source<'_>>) -> Self {
        let cells = source.map_or(Vec::new(), |(plan, experiment)| {
            let its = || experiment.valid.iter().filter(|run| run.key.arm == algorithm);
            let is_asked = plan.arms.iter().any(|arm| arm.name == algorithm);
            let asked = plan.seeds.iter().filter(|_| is_asked);
            // For an algorithm that was tested earlier, the seeds of its runs count.
            let seeds: BTreeSet<u64> = its().map(|run| run.key.seed).chain(asked).collect();
            let runs: Vec<&Run> = its().collect();
            let cells = plan.cells.iter().map(|cell| &cell.name).filter(|name| test.is_of(name));
            cells.map(|cell| AtCell::of(test, cell, &runs, &seeds)).collect()
        });
        let badness = |at: &AtCell| {
            let outside = at.figure.map_or(0.0, |it| outside(test.bound(), it.median));
            (rank(at.verdict), outside)
        };
        let worse = |a: &&AtCell, b: &&AtCell| {
            let (a, b) = (badness(a), badness(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        };
        let worst = cells.iter().max_by(worse).cloned().unwrap_or_default();
        Self { worst, cells }
    }

    /// Whether a cell of the test is in a plan that was run.
    fn is_run(&self) -> bool {
        !self.cells.is_empty()
    }
}

impl AtCell {
    /// Judges a cell by the algorithm's `runs`. Each of `seeds` should have one.
    fn of(test: &Test, cell: &str, runs: &[&Run], seeds: &BTreeSet<u64>) -> Self {
        let of_seed = |cell: &str, seed: u64| {
            let mut runs = runs.iter().filter(|run| run.key.cell == cell && run.key.seed == seed);
            runs.find_map(|run| figure(test, run))
        };
        let beside = test.beside(cell);
        let value = |seed: &u64| {
            let figure = of_seed(cell, *seed)?;
            match &beside {
                Some(beside) => Some(ratio(test.bound(), figure, of_seed(beside, *seed)?)),
                None => Some(figure),
            }
        };
        let values: Vec<f64> = seeds.iter().filter_map(value).collect();
        let (interval, verdict) = test.bound().judge(&values, 0, SEED);
        let is_whole = values.len() == seeds.len();
        let verdict = if is_whole { verdict } else { Verdict::NotShown(Why::NotRun) };
        let (found, wanted) = (values.len(), seeds.len());
        Self { cell: cell.into(), figure: interval, seeds: found, wanted, verdict }
    }
}

/// `figure` divided by the reference cell's. Where the reference is 0, the ratio is 1 for a figure of 0, and infinite
/// for a larger one. If either figure is infinite, so that it missed the bound by itself, the ratio misses the bound,
/// too.
fn ratio(bound: Bound, figure: f64, beside: f64) -> f64 {
    if figure.is_infinite() || beside.is_infinite() {
        return bound.missed();
    }
    let of_nothing = if figure > 0.0 { f64::INFINITY } else { 1.0 };
    share(figure, beside).unwrap_or(of_nothing)
}

impl Default for AtCell {
    /// A cell that was not run.
    fn default() -> Self {
        let verdict = Verdict::NotShown(Why::NotRun);
        Self { cell: String::new(), figure: None, seeds: 0, wanted: 0, verdict }
    }
}

impl std::fmt::Display for Answer {
    /// `not met: 0.210 [0.180, 0.250], 10 seeds at cubic limit=4bdp`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let AtCell { cell, figure, seeds, wanted, verdict } = &self.worst;
        f.write_str(words(*verdict))?;
        if figure.is_some() {
            write!(f, ": {}, ", table::interval(*figure))?;
            match seeds < wanted {
                true => write!(f, "{seeds} of {wanted} seeds")?,
                false => write!(f, "{seeds} seeds")?,
            }
        }
        if self.cells.len() > 1 { write!(f, " at {cell}") } else { Ok(()) }
    }
}

/// The figure of a run; `None` without one of the metrics. If the divisor is 0, a positive value gives an infinite
/// figure. If both are 0, the figure misses the bound, because no flow got anything.
fn figure(test: &Test, run: &Run) -> Option<f64> {
    let sum = |metrics: &[String]| -> Option<f64> {
        metrics.iter().map(|metric| run.get(&metric.parse().ok()?)).sum()
    };
    let value = sum(&test.value)?;
    if test.over.is_empty() {
        return Some(value);
    }
    let of_nothing = if value > 0.0 { f64::INFINITY } else { test.bound().missed() };
    Some(share(value, sum(&test.over)?).unwrap_or(of_nothing))
}

/// How far `value` is outside of `bound`; below 0 within it.
fn outside(bound: Bound, value: f64) -> f64 {
    let below = bound.at_least.map(|least| least - value);
    let above = bound.at_most.map(|most| value - most);
    below.into_iter().chain(above).reduce(f64::max).unwrap_or(0.0)
}

/// Rank of a verdict: of two verdicts, the one with the higher rank represents both.
const fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Reported => 0,
        Verdict::Met => 1,
        Verdict::Open => 2,
        Verdict::NotShown(_) => 3,
        Verdict::Failed => 4,
    }
}

/// A verdict in the RFC's words.
const fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Failed => "not met",
        other => other.words(),
    }
}

#[cfg(test)]
mod tests;
