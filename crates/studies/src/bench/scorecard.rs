//! The scorecard: one number for each algorithm and question, so that a benchmark fits on a page.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::BenchedPlan;
use forebay_lab::judge::permutation::{Units, adjusted};
use forebay_lab::judge::{INTERVAL_WORDS, Interval};
use forebay_lab::metrics::{Address, unit, with_unit};
use forebay_lab::output::number;
use forebay_lab::plan::Arm;
use forebay_lab::report::page::PageTable;

/// The questions: how scores are computed from plans.
const SCORES: &str = include_str!("scores.toml");
/// Largest chance that any two algorithms without a difference are declared different.
pub const LEVEL: f64 = 0.05;
/// Seed of the intervals.
const SEED: u64 = 1;
/// Marks an algorithm that no other is known to beat.
const BEST: &str = "●";

/// A question in `scores.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    name: String,
    plan: String,
    metric: String,
    #[serde(default)]
    cells: Vec<String>,
    scale: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Questions {
    score: Vec<Question>,
}

impl Question {
    fn all() -> Vec<Self> {
        toml::from_str::<Questions>(SCORES).expect("the scores are read by a test").score
    }

    fn is_of(&self, cell: &str) -> bool {
        let is_named = |name: &String| {
            let rest = cell.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.cells.is_empty() || self.cells.iter().any(is_named)
    }

    /// The value of each algorithm with each seed that has all cells.
    fn values(&self, experiment: &BenchedPlan) -> BTreeMap<String, BTreeMap<u64, f64>> {
        let Ok(address) = self.metric.parse::<Address>() else { return BTreeMap::new() };
        let runs = || experiment.valid.iter().filter(|run| self.is_of(&run.key.cell));
        let cells: BTreeSet<&str> = runs().map(|run| run.key.cell.as_str()).collect();
        let mut by_run: BTreeMap<(&str, u64), Vec<f64>> = BTreeMap::new();
        for run in runs() {
            if let Some(value) = run.get(&address) {
                by_run.entry((&run.key.arm, run.key.seed)).or_default().push(value);
            }
        }
        let mut values: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
        for ((arm, seed), found) in by_run {
            if found.len() == cells.len() {
                let mean = found.iter().sum::<f64>() / found.len() as f64;
                values.entry(arm.to_string()).or_default().insert(seed, mean);
            }
        }
        values
    }
}

/// Scores of all algorithms in the plans.
#[derive(Clone, Debug, Serialize)]
pub struct Scorecard {
    /// The requested algorithms, then those tested before. The position of an algorithm determines its colour in all
    /// figures.
    pub algorithms: Vec<String>,
    /// The questions that have answers.
    pub scores: Vec<Score>,
    /// Whether there are enough seeds to distinguish algorithms.
    pub is_told_apart: bool,
}

/// The answers to one question.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// The question.
    pub name: String,
    /// Name of the plan.
    pub plan: String,
    /// The metric; the answer is its mean over cells.
    pub metric: String,
    /// Unit; empty: a pure number.
    pub unit: &'static str,
    /// The values that scale to 0 and to 1.
    pub scale: [f64; 2],
    /// By algorithm.
    pub answers: BTreeMap<String, ScoredAnswer>,
}

/// The score of one algorithm.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScoredAnswer {
    /// Median of the seeds with its 95 % interval.
    #[serde(flatten)]
    pub value: Interval,
    /// Whether no algorithm is known to be better.
    pub best: bool,
}

impl Score {
    /// The value on the scale: 0 to 1.
    pub fn scaled(&self, value: f64) -> f64 {
        let [from, to] = self.scale;
        ((value - from) / (to - from)).clamp(0.0, 1.0)
    }
}

impl Scorecard {
    /// Scores the results of the experiments; the algorithms called `named` come first.
    pub fn of(experiments: &[BenchedPlan], named: &[String]) -> Self {
        let mut scores = Vec::new();
        let mut values = Vec::new();
        for question in Question::all() {
            let its = experiments.iter().find(|it| it.plan == question.plan);
            let found = its.map(|it| question.values(it)).unwrap_or_default();
            if !found.is_empty() {
                scores.push(Score {
                    answers: answers(&found),
                    unit: unit(&question.metric),
                    name: question.name,
                    plan: question.plan,
                    metric: question.metric,
                    scale: question.scale,
                });
                values.push(found);
            }
        }
        let scored: BTreeSet<&String> = values.iter().flat_map(BTreeMap::keys).collect();
        let tested = experiments.iter().flat_map(|it| it.valid.iter().map(|run| &run.key.arm));
        let mut algorithms: Vec<String> = Vec::new();
        for name in named.iter().chain(tested).filter(|name| scored.contains(name)) {
            if !algorithms.contains(name) {
                algorithms.push(name.clone());
            }
        }
        let is_told_apart = tell_apart(&mut scores, &values);
        Self { algorithms, scores, is_told_apart }
    }

    /// Whether there is no answer to any question.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// The scorecard as a table: a row a question, a column an algorithm.
    pub fn table(&self) -> PageTable {
        let columns = std::iter::once("score".to_string()).chain(self.algorithms.iter().cloned());
        let row = |score: &Score| {
            let cell = |algorithm: &String| match score.answers.get(algorithm) {
                None => "-".to_string(),
                Some(ScoredAnswer { value, best }) => {
                    let mark = if *best && self.is_compared() {
                        format!("{BEST} ")
                    } else {
                        String::new()
                    };
                    let [median, low, high] = [value.median, value.low, value.high].map(number);
                    format!("{mark}{median} [{low}, {high}]")
                }
            };
            let cells = self.algorithms.iter().map(cell);
            std::iter::once(with_unit(&score.name, score.unit)).chain(cells).collect()
        };
        let marked = match (self.algorithms.len(), self.is_told_apart) {
            (0 | 1, _) => String::new(),
            (_, true) => format!(
                " {BEST}: no other is significantly better (chance of any false call in the table: {} %).",
                number(LEVEL * 100.0)
            ),
            (_, false) => " Too few seeds to distinguish algorithms.".into(),
        };
        let caption = format!("Median of the seeds with its {INTERVAL_WORDS}.{marked}");
        PageTable {
            columns: columns.collect(),
            rows: self.scores.iter().map(row).collect(),
            caption,
        }
    }

    fn is_compared(&self) -> bool {
        self.is_told_apart && self.algorithms.len() > 1
    }
}

/// Whether each score of an experiment is known for these algorithms: from at least `seeds` seeds, with an interval of
/// at most `share` of the score's scale.
pub fn is_known(experiment: &BenchedPlan, arms: &[Arm], seeds: usize, share: f64) -> bool {
    let questions = Question::all();
    let mut its = questions.iter().filter(|question| question.plan == experiment.plan);
    its.all(|question| {
        let most = share * (question.scale[1] - question.scale[0]).abs();
        let values = question.values(experiment);
        arms.iter().all(|arm| {
            let values: Vec<f64> =
                values.get(&arm.name).into_iter().flatten().map(|(_, value)| *value).collect();
            let interval = Interval::of(&values, SEED).filter(|_| values.len() >= seeds);
            interval.is_some_and(|interval| interval.high - interval.low <= most)
        })
    })
}

fn answers(values: &BTreeMap<String, BTreeMap<u64, f64>>) -> BTreeMap<String, ScoredAnswer> {
    let answer = |(name, seeds): (&String, &BTreeMap<u64, f64>)| {
        let values: Vec<f64> = seeds.values().copied().collect();
        let value = Interval::of(&values, SEED)?;
        Some((name.clone(), ScoredAnswer { value, best: false }))
    };
    values.iter().filter_map(answer).collect()
}

/// Marks the best of each score, and returns whether the seeds suffice. Compares every pair of algorithms seed by
/// seed, all scores of a pair at one level. All pairs together have [`LEVEL`] (Bonferroni), because
/// exchanging two algorithms gives no information on a third.
fn tell_apart(scores: &mut [Score], values: &[BTreeMap<String, BTreeMap<u64, f64>>]) -> bool {
    let names: BTreeSet<&String> = values.iter().flat_map(BTreeMap::keys).collect();
    let names: Vec<&String> = names.into_iter().collect();
    let pairs = (names.len() * names.len().saturating_sub(1) / 2).max(1) as f64;
    let mut told: BTreeSet<(usize, &str, &str)> = BTreeSet::new();
    let mut is_possible = false;
    for (place, one) in names.iter().enumerate() {
        for other in &names[place + 1..] {
            let (figures, units) = differences(values, one, other);
            is_possible |= units.p_min() * pairs <= LEVEL;
            for (score, p) in adjusted(&figures, units).into_iter().enumerate() {
                if p * pairs <= LEVEL {
                    let (one, other) = (one.as_str(), other.as_str());
                    told.extend([(score, one, other), (score, other, one)]);
                }
            }
        }
    }
    for (place, score) in scores.iter_mut().enumerate() {
        // A score of a plan with fewer seeds cannot distinguish algorithms.
        let seeds = values[place].values().map(BTreeMap::len).min().unwrap_or(0);
        if Units::Pairs(seeds).p_min() * pairs > LEVEL {
            continue;
        }
        let scaled = |answer: &ScoredAnswer, score: &Score| score.scaled(answer.value.median);
        let all = score.answers.iter().map(|(name, answer)| (name.clone(), scaled(answer, score)));
        let scaled: BTreeMap<String, f64> = all.collect();
        let Some((leader, most)) = scaled.iter().max_by(|a, b| a.1.total_cmp(b.1)) else {
            continue;
        };
        for (name, answer) in &mut score.answers {
            let is_worse = scaled[name] < *most;
            answer.best = !(is_worse && told.contains(&(place, leader.as_str(), name.as_str())));
        }
    }
    is_possible
}

/// For each score, the value of `other` minus the value of `one`, over the seeds that both have in any score.
fn differences(
    values: &[BTreeMap<String, BTreeMap<u64, f64>>],
    one: &str,
    other: &str,
) -> (Vec<Vec<Option<f64>>>, Units) {
    let of_score = |score: &BTreeMap<String, BTreeMap<u64, f64>>| -> BTreeMap<u64, f64> {
        let (Some(one), Some(other)) = (score.get(one), score.get(other)) else {
            return BTreeMap::new();
        };
        let pair = |(seed, value): (&u64, &f64)| Some((*seed, other.get(seed)? - value));
        one.iter().filter_map(pair).collect()
    };
    let scores: Vec<BTreeMap<u64, f64>> = values.iter().map(of_score).collect();
    let seeds: BTreeSet<u64> = scores.iter().flat_map(BTreeMap::keys).copied().collect();
    let in_units = |score: &BTreeMap<u64, f64>| {
        seeds.iter().map(|seed| score.get(seed).copied()).collect::<Vec<_>>()
    };
    (scores.iter().map(in_units).collect(), Units::Pairs(seeds.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::metrics::{Metrics, Part, describe};
    use forebay_lab::plan::Plan;
    use forebay_lab::plan::library::benchmark;
    use forebay_lab::store::Run;

    #[test]
    fn scores_name_existing_plans_cells_and_metrics() {
        for question in Question::all() {
            assert!(benchmark().any(|name| name == question.plan), "{question:?}");
            let plan = Plan::load(&question.plan, &[]).unwrap();
            let address: Address = question.metric.parse().unwrap();
            let entry = describe(&address.quantity).unwrap();
            assert!(entry.is_of(&address.part), "{question:?}");
            let cells: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
            let is_one = |name: &String| {
                let only = Question { cells: vec![name.clone()], ..question.clone() };
                cells.iter().any(|cell| only.is_of(cell))
            };
            assert!(question.cells.iter().all(is_one), "{question:?} of {cells:?}");
            assert!(question.scale[0] != question.scale[1]);
        }
    }

    /// Ten seeds of the shallow buffers' plan. Each algorithm has the given utilisation of the link.
    fn experiment(algorithms: &[(&str, f64)]) -> BenchedPlan {
        let mut valid = Vec::new();
        for (name, level) in algorithms {
            for seed in 1..=10 {
                let mut run = Run::default();
                run.key.arm = name.to_string();
                run.key.seed = seed;
                let noise = 0.01 * ((seed * 7 % 10) as f64 - 4.5);
                let utilisation = [("utilisation".to_string(), level + noise)];
                let metrics = Metrics(utilisation.into_iter().collect());
                run.links = vec![Part { name: "forward".into(), metrics }];
                valid.push(run);
            }
        }
        BenchedPlan {
            plan: "ccperf/shallow_buffers".into(),
            title: String::new(),
            description: String::new(),
            runs: valid.len(),
            published: Vec::new(),
            is_found: true,
            failed: None,
            folder: Default::default(),
            valid,
        }
    }

    #[test]
    fn marks_best_and_insignificantly_different_scores() {
        let found = Scorecard::of(
            &[experiment(&[("bbr", 0.95), ("cubic", 0.95), ("vegas", 0.8)])],
            &["vegas".to_string(), "never_run".to_string()],
        );
        assert_eq!(found.algorithms, ["vegas", "bbr", "cubic"], "the requested algorithm is first");
        let answers = &found.scores[0].answers;
        assert!(found.is_told_apart && answers["bbr"].best && answers["cubic"].best);
        assert!(!answers["vegas"].best && (answers["vegas"].value.median - 0.8).abs() < 0.01);
        let table = found.table();
        assert_eq!(table.columns, ["score", "vegas", "bbr", "cubic"]);
        assert!(table.rows[0][1].starts_with("0.8") && table.rows[0][2].starts_with("● 0.9"));
        let alone = Scorecard::of(&[experiment(&[("bbr", 0.95)])], &[]).table();
        assert!(!alone.rows[0][1].contains(BEST) && !alone.caption.contains(BEST));
    }

    #[test]
    fn a_scale_may_have_its_better_end_below() {
        let score = Score {
            name: String::new(),
            plan: String::new(),
            metric: String::new(),
            unit: "ms",
            scale: [50.0, 0.0],
            answers: BTreeMap::new(),
        };
        assert_eq!([60.0, 50.0, 10.0, 0.0].map(|value| score.scaled(value)), [0.0, 0.0, 0.8, 1.0]);
    }
}
