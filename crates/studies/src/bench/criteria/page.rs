//! The report of a suite of criteria: an overview of verdicts, the evidence for each, and the figures of
//! every plan.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_core::cc::Algorithm;

use super::{Criteria, Criterion, Finding, Tested};
use crate::bench::BenchedPlan;
use crate::bench::page::of_experiment;
use forebay_lab::judge::INTERVAL_WORDS;
use forebay_lab::report::page::{Block, Page, PageSection, PageTable};
use forebay_lab::report::tables::block;
use forebay_lab::report::{self, FILE};
use forebay_policy::algorithms;

/// Writes the report into `root`; returns its path.
pub fn write(
    experiments: &[BenchedPlan],
    criteria: &Criteria,
    root: &Path,
) -> anyhow::Result<PathBuf> {
    report::put(root, &report::fitting(|points| page(experiments, criteria, root, points))?)
}

fn page(
    experiments: &[BenchedPlan],
    criteria: &Criteria,
    root: &Path,
    points: usize,
) -> anyhow::Result<Page> {
    let runs: usize = experiments.iter().map(|experiment| experiment.runs).sum();
    let lead = format!(
        "{} by the evaluation criteria of RFC 9743 (BCP 133), {runs} runs. The RFC sets no thresholds: the bounds here are \
         this project's. Tables show each bound next to the result.{}",
        criteria.algorithms.join(", "),
        criteria.replaced_words()
    );
    let mut sections = vec![at_a_glance(criteria)];
    let of_finding = |finding| section(finding, criteria, experiments);
    sections.extend(criteria.findings.iter().map(of_finding));
    for experiment in experiments {
        sections.push(of_experiment(experiment, &criteria.algorithms, root, points)?);
    }
    Ok(Page { title: "Congestion control by the criteria of RFC 9743".into(), lead, sections })
}

fn at_a_glance(criteria: &Criteria) -> PageSection {
    let mut blocks = vec![Block::Table(criteria.table())];
    if !criteria.known.is_empty() {
        let text = "Published results for these algorithms, next to the results here. A suite that did not reproduce known \
                    results would be no evidence.";
        blocks.push(Block::Text(text.into()));
        blocks.push(Block::Table(criteria.known_table()));
    }
    PageSection { heading: "Verdicts".into(), blocks }
}

/// The section of one criterion: the RFC's demand, the tests, their results, and links to the evidence.
fn section(finding: &Finding, criteria: &Criteria, experiments: &[BenchedPlan]) -> PageSection {
    let Criterion { section, title, level, asks, leaves_open, .. } = &finding.criterion;
    let mut blocks = vec![Block::Text(asks.trim().into())];
    let untested = [
        ("Answered by", &finding.criterion.documentation),
        ("Not applicable:", &finding.criterion.not_applicable),
    ];
    for (what, text) in untested {
        blocks.extend(text.iter().map(|text| Block::Text(format!("{what} {}.", text.trim()))));
    }
    if finding.criterion.documentation.is_some() {
        blocks.push(specifications(criteria));
    }
    if !finding.tests.is_empty() {
        blocks.push(Block::Table(tests(finding, criteria)));
        let lines: Vec<String> = finding.tests.iter().map(how).collect();
        let text = lines.join("\n");
        blocks.push(Block::Details { title: "How each is measured".into(), text });
        blocks.extend(leaves_open.iter().map(|text| Block::Text(text.trim().into())));
        blocks.extend(evidence(finding, experiments));
    }
    PageSection { heading: format!("{section} {title} ({})", level.word()), blocks }
}

/// Table of the specifications of each algorithm, as far as the registry knows them.
fn specifications(criteria: &Criteria) -> Block {
    let row = |name: &String| {
        // An arm's name consists of its platform, its algorithm and the algorithm's parameters.
        let is_named = |it: &&Algorithm| name.split('-').any(|word| word == it.name);
        let known = algorithms::known().algorithms().iter().find(is_named);
        vec![name.clone(), known.map_or("-".into(), |algorithm| algorithm.sources.join("; "))]
    };
    let rows = criteria.algorithms.iter().map(row).collect();
    block(&["algorithm", "specified in"], rows, "Sources of the tested implementation.")
}

/// Table with a row for each test and a column for each algorithm.
fn tests(finding: &Finding, criteria: &Criteria) -> PageTable {
    let columns = ["test", "bound"].map(String::from).into_iter();
    let row = |tested: &Tested| {
        let bound = Some(tested.test.bound_words()).filter(|bound| !bound.is_empty());
        let head = [tested.test.text.trim().into(), bound.unwrap_or_else(|| "-".into())];
        let answer =
            |name: &String| tested.answers.get(name).map_or("-".into(), ToString::to_string);
        head.into_iter().chain(criteria.algorithms.iter().map(answer)).collect()
    };
    let caption = format!(
        "Median of the seeds with its {INTERVAL_WORDS}, in the worst cell. Not shown if a requested seed has no figure."
    );
    PageTable {
        columns: columns.chain(criteria.algorithms.iter().cloned()).collect(),
        rows: finding.tests.iter().map(row).collect(),
        caption,
    }
}

/// One line on the cells of a test and the figure taken from them.
fn how(tested: &Tested) -> String {
    let test = &tested.test;
    let cells = if test.cells.is_empty() { "all".into() } else { test.cells.join("; ") };
    format!("{} of {}, cells: {cells}\n    {}", test.text.trim(), test.plan, test.figure_words())
}

/// Links to the reports of the plans that the tests use.
fn evidence(finding: &Finding, experiments: &[BenchedPlan]) -> impl Iterator<Item = Block> {
    let plans: BTreeSet<&str> = finding.tests.iter().map(|it| it.test.plan.as_str()).collect();
    let run = experiments.iter().filter(move |it| it.runs > 0 && plans.contains(it.plan.as_str()));
    run.filter_map(|experiment| {
        let folder = experiment.folder.file_name()?;
        let text = format!("Evidence: {} ({})", experiment.title, experiment.plan);
        Some(Block::Link { text, to: Path::new(folder).join(FILE).display().to_string() })
    })
}
