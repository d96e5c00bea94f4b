//! The report: tables and figures from the store, as one offline HTML file.

mod back_ends;
pub(crate) mod content;
pub mod figure;
pub(crate) mod figures;
pub mod page;
mod result;
pub mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::plan::figures::{Figure, defaults};
use crate::store::{Run, Store, StoreError};
use crate::summary::Requests;
use crate::versions::Versions;
use content::PlanResults;
use figure::POINTS_MAX;
use figures::Drawing;
use page::{Block, Page};
pub use result::DEFAULT_BOXES;

/// Name of the report in a folder of results.
pub const FILE: &str = "report.html";
/// Largest report: what mail and browsers take without complaint.
const BYTES_MAX: usize = 10_000_000;
/// Fewest points of a series, reached only by reports of very many runs.
const POINTS_MIN: usize = 60;

/// Writes `report.html` next to the store of `requests`; returns its path.
pub fn write(requests: &Requests<'_>) -> anyhow::Result<PathBuf> {
    put(requests.store().folder(), &render(requests)?)
}

/// Puts a report into `folder`; returns its path.
pub fn put(folder: &Path, html: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(FILE);
    // A reader never sees half a report.
    let partial = folder.join(format!("{FILE}.partial"));
    std::fs::write(&partial, html).with_context(|| partial.display().to_string())?;
    std::fs::rename(&partial, &path).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// The report as HTML, with as many points per series as fit.
fn render(requests: &Requests<'_>) -> anyhow::Result<String> {
    let runs = newest_runs(requests.store())?;
    let plans = PlanResults::all(requests, &runs)?;
    fitting(|points| Ok(content::page(requests, &runs, &plans, points)?))
}

/// The page from `page` as HTML, with as many points per series as fit into the size limit.
pub fn fitting(mut page: impl FnMut(usize) -> anyhow::Result<Page>) -> anyhow::Result<String> {
    let mut points = POINTS_MAX;
    loop {
        let html = page(points)?.render();
        if html.len() <= BYTES_MAX || points <= POINTS_MIN {
            return Ok(html);
        }
        points /= 2;
    }
}

/// The figures over all cells from the plans in `folder`. `names` get the first colours, so that these are
/// the same in all folders.
pub fn spanning_figures(
    folder: &Path,
    points: usize,
    names: &[String],
) -> anyhow::Result<Vec<Block>> {
    let store = Store::open(folder)?;
    let requests = Requests::new(&store);
    let runs = newest_runs(&store)?;
    let general = defaults();
    let mut blocks = Vec::new();
    for plan in PlanResults::all(&requests, &runs)? {
        let plan = plan.coloured_as(names);
        let cells = plan.cells();
        let is_shown = |figure: &&Figure| {
            !general.contains(*figure) && (cells.len() < 2 || figure.spans_cells())
        };
        let drawing = Drawing { plan: &plan, requests: &requests, cells: &cells, points };
        for figure in plan.figures.iter().filter(is_shown) {
            blocks.extend(drawing.blocks(figure)?);
        }
    }
    Ok(blocks)
}

/// The figures of the report over the store of `requests`, as Vega-Lite documents, each after the heading of
/// its section.
///
/// # Errors
/// The store cannot be read.
pub fn drawn(requests: &Requests<'_>) -> Result<Vec<(String, page::Chart)>, StoreError> {
    let runs = newest_runs(requests.store())?;
    let plans = PlanResults::all(requests, &runs)?;
    let page = content::page(requests, &runs, &plans, POINTS_MAX)?;
    let figures = page.sections.into_iter().flat_map(|section| {
        let of_section = section.blocks.into_iter().filter_map(|block| match block {
            Block::Figure(figure) => Some(figure),
            _ => None,
        });
        of_section.map(move |figure| (section.heading.clone(), figure))
    });
    Ok(figures.collect())
}

/// A link from a page in `root` to the report in `folder`.
pub fn link_to(folder: &Path, root: &Path) -> Block {
    let path = folder.strip_prefix(root).unwrap_or(folder);
    let to = path.join(FILE).display().to_string();
    let text = "All figures, numbers, parameters and runs of this experiment".into();
    Block::Link { text, to }
}

/// Every run, oldest first, without runs of an algorithm's version that no longer counts.
pub fn current_runs(store: &Store) -> Result<Vec<Run>, StoreError> {
    let all = store.run_ids()?.into_iter().map(|id| store.run(id));
    let mut runs = all.collect::<Result<Vec<_>, _>>()?;
    let versions = Versions::among(runs.iter().map(|run| &run.parameters));
    runs.retain(|run| versions.count(&run.parameters));
    Ok(runs)
}

/// For every plan, arm, cell, seed and back end: the newest valid one of [`current_runs`], else the newest
/// attempt. In the order of the store.
pub fn newest_runs(store: &Store) -> Result<Vec<Run>, StoreError> {
    let mut newest: BTreeMap<(String, String, String, u64, String), Run> = BTreeMap::new();
    for run in current_runs(store)? {
        let key = run.key.clone();
        let key = (key.plan, key.cell, key.arm, key.seed, key.backend);
        match newest.get(&key) {
            Some(older) if older.is_valid() && !run.is_valid() => {}
            _ => drop(newest.insert(key, run)),
        }
    }
    let mut runs: Vec<Run> = newest.into_values().collect();
    runs.sort_by_key(|run| run.id);
    Ok(runs)
}

#[cfg(test)]
mod tests;
