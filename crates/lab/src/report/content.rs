//! What a report says of each plan, in the order in which a reader asks.

use forebay_core::units::ByteCount;

use super::page::{Block, Page, Section};
use super::{newest_runs, tables, timeline};
use crate::metrics::requests::{CLASSES, class};
use crate::report::figure::{Axis, Series, curves, thinned};
use crate::report::page::Figure;
use crate::store::{Run, Store, StoreError};
use crate::summary::{ArmSummary, summarise};

/// The page over everything in the store, with at most `points` points a series.
pub fn page(store: &Store, points: usize) -> Result<Page, StoreError> {
    let runs = newest_runs(store)?;
    let mut page = Page { title: "forebay: results".into(), ..Page::default() };
    let names = store.plan_names()?;
    for name in &names {
        let plan = PlanResults::read(store, name, &runs)?;
        if names.len() == 1 {
            page.title.clone_from(&plan.title);
        }
        page.sections.extend(plan.sections(store, points, names.len() == 1)?);
    }
    page.lead = lead(&runs);
    page.sections.push(Section {
        heading: "Runs, attempts and the machine".into(),
        blocks: tables::about_runs(store, &runs)?,
    });
    Ok(page)
}

fn lead(runs: &[Run]) -> String {
    let mut commits: Vec<&str> = runs.iter().map(|run| run.key.commit.as_str()).collect();
    commits.sort_unstable();
    commits.dedup();
    let valid = runs.iter().filter(|run| run.is_valid()).count();
    format!(
        "{valid} valid runs of {}. Built from {}. Every arm of a plan meets the same link, the \
         same traffic at the same times, and the same limits of the harness; the arms took turns.",
        runs.len(),
        commits.join(", ")
    )
}

/// The results of one plan.
pub struct PlanResults<'a> {
    /// Heading.
    pub title: String,
    /// What the plan shows.
    pub description: String,
    /// Arms with what they are, in the plan's order.
    pub arms: Vec<(String, String)>,
    /// The newest runs.
    pub runs: Vec<&'a Run>,
    /// Arms over their seeds, in the order of `arms` within each cell.
    pub summaries: Vec<ArmSummary>,
}

impl<'a> PlanResults<'a> {
    fn read(store: &Store, name: &str, runs: &'a [Run]) -> Result<Self, StoreError> {
        let runs: Vec<&Run> = runs.iter().filter(|run| run.key.plan == name).collect();
        let (title, description, mut arms) = store.plan(name)?.unwrap_or_default();
        for run in &runs {
            if !arms.iter().any(|(arm, _)| *arm == run.key.arm) {
                arms.push((run.key.arm.clone(), String::new()));
            }
        }
        // The table of plans also names arms that were not selected this time.
        arms.retain(|(arm, _)| runs.iter().any(|run| run.key.arm == *arm));
        let owned: Vec<Run> = runs.iter().map(|run| (*run).clone()).collect();
        let mut summaries = summarise(store, &owned)?;
        let place = |arm: &str| arms.iter().position(|(name, _)| name == arm);
        summaries.sort_by(|a, b| (&a.cell, place(&a.arm)).cmp(&(&b.cell, place(&b.arm))));
        let title = if title.is_empty() { name.to_string() } else { title };
        Ok(Self { title, description, arms, runs, summaries })
    }

    /// The names of the arms, which keep their colour in every figure.
    pub fn order(&self) -> Vec<String> {
        self.arms.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The cells, in the order of their first run.
    pub fn cells(&self) -> Vec<&'a str> {
        let mut cells: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !cells.contains(&run.key.cell.as_str()) {
                cells.push(&run.key.cell);
            }
        }
        cells
    }

    /// The valid runs of a cell.
    pub fn valid_in(&self, cell: &str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().copied().filter(move |run| run.key.cell == cell && run.is_valid())
    }

    /// `alone`: the page has no other plan and bears the title of this one.
    fn sections(
        &self,
        store: &Store,
        points: usize,
        alone: bool,
    ) -> Result<Vec<Section>, StoreError> {
        let titled = |what: &str| match alone {
            true => what.to_string(),
            false => format!("{} \u{2013} {}", self.title, what.to_lowercase()),
        };
        let mut blocks = vec![Block::Text(self.description.clone())];
        blocks.push(tables::arms(self));
        blocks.push(tables::overview(self));
        let mut sections = vec![Section { heading: titled("At a glance"), blocks }];
        for cell in self.cells() {
            let mut blocks = Vec::new();
            blocks.extend(self.slowdowns(store, cell, points)?);
            blocks.extend(timeline::figures(self, store, cell, points)?);
            if !blocks.is_empty() {
                let gap = if cell.is_empty() { "" } else { ", " };
                let heading = format!("{}{gap}{cell}", titled("Figures"));
                sections.push(Section { heading, blocks });
            }
        }
        sections.push(Section { heading: titled("In numbers"), blocks: tables::numbers(self) });
        sections.push(Section { heading: titled("Parameters"), blocks: tables::parameters(self) });
        Ok(sections)
    }

    /// The distribution of slowdowns of each size class, all arms.
    fn slowdowns(
        &self,
        store: &Store,
        cell: &str,
        points: usize,
    ) -> Result<Option<Block>, StoreError> {
        let mut series = Vec::new();
        for (size, largest) in CLASSES {
            let panel = match largest {
                u64::MAX => format!("{size} requests, above that"),
                bytes => format!("{size} requests, up to {}", ByteCount::new(bytes)),
            };
            for (arm, _) in &self.arms {
                let mut values = Vec::new();
                for run in self.valid_in(cell).filter(|run| run.key.arm == *arm) {
                    let outcomes = store.outcomes(run.id)?;
                    let of_class = outcomes.iter().filter(|(_, o)| class(o.size_bytes) == size);
                    values.extend(of_class.filter_map(|(_, outcome)| outcome.slowdown));
                }
                let curve = Series::distribution(arm, values).in_panel(&panel);
                if !curve.points.is_empty() {
                    series.push(Series { points: thinned(&curve.points, points), ..curve });
                }
            }
        }
        if series.is_empty() {
            return Ok(None);
        }
        let caption = "How much longer requests took than on an empty path: the share of requests \
                       (upwards) whose slowdown is at most the value below. 1 is ideal; the \
                       further left and the steeper a curve, the better. All seeds together.";
        let spec = curves(
            &series,
            &self.order(),
            Axis::log("slowdown (completion time / time on an empty path)"),
            Axis::linear("share of requests"),
            true,
        );
        Ok(Some(Block::Figure(Figure { caption: caption.into(), spec })))
    }
}
