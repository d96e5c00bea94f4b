//! The report of a study. For each experiment, it shows claims with a bound next to published results, the figures, and
//! values reported without a bound.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Study, StudyExperiment};
use forebay_lab::backend;
use forebay_lab::judge::{INTERVAL_WORDS, Judged, table};
use forebay_lab::output::number;
use forebay_lab::report::page::{Block, Page, PageSection, PageTable};
use forebay_lab::report::{self, spanning_figures, tables};
use forebay_lab::store;

/// Writes the report into `root`; gives its path.
pub fn write(
    study: &Study,
    experiments: &[StudyExperiment],
    root: &Path,
) -> anyhow::Result<PathBuf> {
    report::put(root, &report::fitting(|points| page(study, experiments, root, points))?)
}

/// The page, with at most `points` points a series.
fn page(
    study: &Study,
    experiments: &[StudyExperiment],
    root: &Path,
    points: usize,
) -> anyhow::Result<Page> {
    let all = experiments.iter().flat_map(|experiment| &experiment.claims);
    let lead = format!("{} Claims: {}.", study.about.description, table::counts(all));
    let mut sections = vec![at_a_glance(experiments)];
    for experiment in experiments {
        let (reported, judged): (Vec<Judged>, Vec<Judged>) =
            experiment.claims.iter().cloned().partition(|claim| claim.bound.is_empty());
        let mut blocks = head(experiment);
        blocks.extend(Some(judged).filter(|it| !it.is_empty()).map(|it| claims(&it)));
        if experiment.folder.join(store::FILE).is_file() {
            blocks.extend(spanning_figures(&experiment.folder, points, &[])?);
            blocks.push(report::link_to(&experiment.folder, root));
        }
        blocks.extend(Some(reported).filter(|it| !it.is_empty()).map(|it| claims(&it)));
        sections.push(PageSection { heading: experiment.title.clone(), blocks });
    }
    Ok(Page { title: study.about.title.clone(), lead, sections })
}

/// A row for each experiment: how many claims have each verdict.
fn at_a_glance(experiments: &[StudyExperiment]) -> PageSection {
    let row = |experiment: &StudyExperiment| {
        let of = |name: &&str| {
            let claims = experiment.claims.iter().filter(|claim| backend_of(claim) == *name);
            tally(claims)
        };
        let paper = experiment.paper.clone().unwrap_or_else(|| "not published".into());
        let head = [experiment.plan.clone(), paper];
        head.into_iter().chain(backend::NAMES.iter().map(of)).collect()
    };
    let columns = ["experiment", "published in", "simulator", "testbed"];
    let caption = "Verdicts on the claims of each experiment. Met: the median of the seeds is within its bound. Failed: \
                   the whole interval is outside. Open: otherwise.";
    let blocks = vec![tables::block(&columns, experiments.iter().map(row).collect(), caption)];
    PageSection { heading: "At a glance".into(), blocks }
}

/// Number of claims with each verdict that occurs: `10 met, 1 open`.
fn tally<'a>(claims: impl Iterator<Item = &'a Judged>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    claims.for_each(|claim| *counts.entry(claim.verdict.words()).or_default() += 1);
    let counts: Vec<String> =
        counts.iter().map(|(words, count)| format!("{count} {words}")).collect();
    if counts.is_empty() { "-".into() } else { counts.join(", ") }
}

/// The introduction of an experiment's section.
fn head(experiment: &StudyExperiment) -> Vec<Block> {
    let paper = experiment.paper.as_ref().map(|paper| format!("Published: {paper}."));
    let failed = experiment.failed.as_ref().map(|reason| format!("The plan failed: {reason}."));
    let about = Some(experiment.description.clone()).filter(|text| !text.is_empty());
    about.into_iter().chain(paper).chain(failed).map(Block::Text).collect()
}

/// A claim at one place on each back end.
type Row<'a> = [Option<&'a Judged>; backend::NAMES.len()];

/// Each claim with its figure on each back end, next to the published results.
pub fn claims(judged: &[Judged]) -> Block {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for claim in judged {
        let Some(column) = backend::NAMES.iter().position(|name| backend_of(claim) == *name) else {
            continue;
        };
        let is_its = |row: &&mut Row<'_>| {
            let other = row.iter().flatten().next();
            other.is_some_and(|it| (&it.claim, &it.place) == (&claim.claim, &claim.place))
                && row[column].is_none()
        };
        match rows.iter_mut().find(is_its) {
            Some(row) => row[column] = Some(claim),
            None => {
                let mut row = [None; backend::NAMES.len()];
                row[column] = Some(claim);
                rows.push(row);
            }
        }
    }
    let shown: Vec<usize> = (0..backend::NAMES.len())
        .filter(|column| rows.iter().any(|row| row[*column].is_some()))
        .collect();
    let titles = ["claim", "where", "bound", "published"].map(String::from).into_iter();
    let of_backend = |column: &usize| ["simulator", "testbed"][*column];
    let sides = shown.iter().flat_map(|column| [of_backend(column).into(), "verdict".into()]);
    let columns = titles.chain(sides).collect();
    let cells = |row: &Row<'_>| -> Vec<String> {
        let Some(any) = row.iter().flatten().next() else { return Vec::new() };
        let published = any.published.as_ref().map_or("-".into(), |it| number(it.value));
        let head = [any.claim.clone(), any.place.clone(), any.bound.clone(), published];
        let sides = shown.iter().flat_map(|column| match row[*column] {
            Some(claim) => [table::figure(claim), claim.verdict.words().into()],
            None => ["-".into(), String::new()],
        });
        head.into_iter().chain(sides).collect()
    };
    let mut sources: Vec<String> = Vec::new();
    for published in judged.iter().filter_map(|claim| claim.published.as_ref()) {
        let source = format!("{}: {}", number(published.value), published.source);
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    let caption = match sources.is_empty() {
        true => format!("Median of the seeds with its {INTERVAL_WORDS}."),
        false => format!(
            "Median of the seeds with its {INTERVAL_WORDS}. Published: {}.",
            sources.join("; ")
        ),
    };
    Block::Table(PageTable { columns, rows: rows.iter().map(cells).collect(), caption })
}

/// The back end that a claim about a plan was judged on: `sim` of `bundler/main@sim`.
fn backend_of(claim: &Judged) -> &str {
    claim.of.rsplit_once('@').map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_lab::judge::{Bound, Published};

    #[test]
    fn claim_on_two_back_ends_is_one_row() {
        let published = Published { arm: None, cell: None, value: 1.26, source: "figure 7".into() };
        let claim = |of: &str, place: &str, figure| {
            let published = Some(published.clone());
            let (of, place, claim) = (of.into(), place.into(), "median".into());
            let judged = Judged { of, place, claim, published, ..Judged::default() };
            judged.by_one(Bound::at_most(1.15), Some(figure))
        };
        let judged =
            [claim("p@sim", "copa", 1.1), claim("p@sim", "bbr", 1.2), claim("p@emu", "copa", 1.12)];
        let Block::Table(found) = claims(&judged) else { panic!("a table") };
        let columns =
            ["claim", "where", "bound", "published", "simulator", "verdict", "testbed", "verdict"];
        assert_eq!(found.columns, columns);
        assert_eq!(
            found.rows,
            [
                ["median", "copa", "≤ 1.15", "1.26", "1.100", "met", "1.120", "met"],
                ["median", "bbr", "≤ 1.15", "1.26", "1.200", "failed", "-", ""],
            ]
        );
        assert!(found.caption.ends_with("Published: 1.26: figure 7."), "{}", found.caption);
        let Block::Table(found) = claims(&judged[..1]) else { panic!("a table") };
        assert_eq!(found.columns.len(), 6, "no column of a back end without runs");
    }
}
