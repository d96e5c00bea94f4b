//! The report of a benchmark: the scorecard, the results of duels, and the figures of every plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use forebay_core::units::parse_duration;

use super::BenchedPlan;
use super::scorecard::Scorecard;
use crate::reproduce::claims;
use forebay_lab::judge::table::counts;
use forebay_lab::metrics::Address;
use forebay_lab::metrics::statistics::mean;
use forebay_lab::report::figure::{Axis, Point, heat, parallel, plane};
use forebay_lab::report::page::{Block, Chart, Page, PageSection};
use forebay_lab::report::{self, spanning_figures};
use forebay_lab::store::{self, Run};

/// The plan in which algorithms meet rivals, a cell a rival.
const DUEL: &str = "ccperf/competition_duel";

/// Writes the report into `root`; gives its path.
pub fn write(
    experiments: &[BenchedPlan],
    scorecard: &Scorecard,
    root: &Path,
) -> anyhow::Result<PathBuf> {
    report::put(root, &report::fitting(|points| page(experiments, scorecard, root, points))?)
}

fn page(
    experiments: &[BenchedPlan],
    scorecard: &Scorecard,
    root: &Path,
    points: usize,
) -> anyhow::Result<Page> {
    let runs: usize = experiments.iter().map(|experiment| experiment.runs).sum();
    let published = experiments.iter().flat_map(|experiment| &experiment.published);
    let published = match published.clone().next() {
        Some(_) => format!(" Published claims about these algorithms: {}.", counts(published)),
        None => String::new(),
    };
    let lead = format!(
        "{} through {} experiments, {runs} runs. All algorithms get the same links, the same traffic and the same \
         seeds.{published}",
        scorecard.algorithms.join(", "),
        experiments.len()
    );
    let mut sections = vec![at_a_glance(scorecard)];
    sections.extend(operating_plane(experiments, scorecard));
    sections.extend(duels(experiments, &scorecard.algorithms));
    for experiment in experiments {
        sections.push(of_experiment(experiment, &scorecard.algorithms, root, points)?);
    }
    Ok(Page { title: "Benchmark of congestion control".into(), lead, sections })
}

/// The section of one plan for the algorithms of these names, with at most `points` points for each
/// series in a figure.
pub fn of_experiment(
    experiment: &BenchedPlan,
    names: &[String],
    root: &Path,
    points: usize,
) -> anyhow::Result<PageSection> {
    let mut blocks = vec![Block::Text(experiment.description.clone())];
    let failed = experiment.failed.as_ref();
    blocks.extend(failed.map(|reason| Block::Text(format!("The plan failed: {reason}."))));
    if !experiment.published.is_empty() {
        blocks.push(claims(&experiment.published));
    }
    if experiment.folder.join(store::FILE).is_file() {
        blocks.extend(spanning_figures(&experiment.folder, points, names)?);
        blocks.push(report::link_to(&experiment.folder, root));
    }
    Ok(PageSection { heading: experiment.title.clone(), blocks })
}

/// Summary that fits on one printed page in the pages' style.
fn at_a_glance(scorecard: &Scorecard) -> PageSection {
    let mut blocks = vec![Block::Table(scorecard.table())];
    let of_score = |score: &super::scorecard::Score| {
        let answers = score.answers.iter();
        let on_axis = answers.map(|(name, answer)| {
            (name.clone(), score.name.clone(), score.scaled(answer.value.median))
        });
        on_axis.collect::<Vec<_>>()
    };
    let lines: Vec<_> = scorecard.scores.iter().flat_map(of_score).collect();
    if !lines.is_empty() {
        let y = "position on the scale of the score";
        let spec = parallel(&lines, &scorecard.algorithms, ["score", y]);
        let caption = "All scores side by side: higher is better. The values that count as 0 and as 1 do not depend on the \
                       tested algorithms.";
        blocks.push(Block::Figure(Chart { caption: caption.into(), spec }));
    }
    PageSection { heading: "Scorecard".into(), blocks }
}

/// Where each algorithm operates in each experiment: the mean of its runs.
fn operating_plane(experiments: &[BenchedPlan], scorecard: &Scorecard) -> Option<PageSection> {
    let of_link = |quantity: &str| format!("links/forward/{quantity}").parse::<Address>();
    let (used, waited) = (of_link("utilisation").ok()?, of_link("sojourn_mean_ms").ok()?);
    let mut points = Vec::new();
    for experiment in experiments {
        for name in &scorecard.algorithms {
            let of_run = |run: &Run| {
                let rtt = parse_duration(run.parameters.get("bottleneck.rtt")?).ok()?;
                Some((run.get(&waited)? / (rtt.as_secs_f64() * 1e3), run.get(&used)?))
            };
            let runs = experiment.valid.iter().filter(|run| run.key.arm == *name);
            let (x, y): (Vec<f64>, Vec<f64>) = runs.filter_map(of_run).unzip();
            if let (Some(x), Some(y)) = (mean(x.into_iter()), mean(y.into_iter())) {
                points.push(Point { name: name.clone(), panel: String::new(), at: (x, y) });
            }
        }
    }
    let best = Point { name: "optimum".into(), panel: String::new(), at: (0.0, 1.0) };
    let (x, y) = ("time in the queue over the round trip", "utilisation");
    let order = &scorecard.algorithms;
    let spec = plane(&points, &[best], order, Axis::linear(x), Axis::linear(y));
    let caption = "Operating point of each algorithm in each experiment: the mean of its runs. The cross is the optimum: \
                   the full rate and no queue.";
    let blocks = vec![Block::Figure(Chart { caption: caption.into(), spec })];
    (!points.is_empty()).then(|| PageSection { heading: "Operating points".into(), blocks })
}

/// Share of `algorithms` in the goodput that they and a rival have together: one figure for each buffer.
fn duels(experiments: &[BenchedPlan], algorithms: &[String]) -> Option<PageSection> {
    let duel = experiments.iter().find(|experiment| experiment.plan == DUEL)?;
    let share = |run: &Run| {
        let of = |flow: &str| run.get(&format!("flows/{flow}/goodput_mbps").parse().ok()?);
        let (own, rival) = (of("aut")?, of("rival")?);
        Some(own / (own + rival)).filter(|share| share.is_finite())
    };
    let mut shares: BTreeMap<(&str, &str, &str), Vec<f64>> = BTreeMap::new();
    let mut rivals = Vec::new();
    for run in &duel.valid {
        let (rival, buffer) = run.key.cell.split_once(' ').unwrap_or((&run.key.cell, ""));
        if !rivals.contains(&rival) {
            rivals.push(rival);
        }
        shares.entry((buffer, &run.key.arm, rival)).or_default().extend(share(run));
    }
    let buffers: BTreeSet<&str> = shares.keys().map(|(buffer, ..)| *buffer).collect();
    let drawn = |buffer: &str| {
        let its = shares.iter().filter(|((of, ..), _)| *of == buffer);
        let mut cells: Vec<(String, String, f64)> = its
            .filter_map(|((_, arm, rival), shares)| {
                Some((arm.to_string(), rival.to_string(), mean(shares.iter().copied())?))
            })
            .collect();
        cells.sort_by_key(|(arm, rival, _)| {
            let row = algorithms.iter().position(|it| it == arm);
            (row, rivals.iter().position(|it| it == rival))
        });
        let spec = heat(&cells, ["under test", "rival"], ("share", 1.0));
        let with = if buffer.is_empty() { String::new() } else { format!(", with {buffer}") };
        let caption = format!(
            "An algorithm's share of the goodput of its flow and one flow of a rival{with}: 0.5 is an equal share, mean of \
             the seeds."
        );
        Block::Figure(Chart { caption, spec })
    };
    let blocks: Vec<Block> = buffers.into_iter().map(drawn).collect();
    (!blocks.is_empty()).then(|| PageSection { heading: "Against each other".into(), blocks })
}
