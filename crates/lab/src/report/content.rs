//! The sections of a report on each plan, in the order in which a reader asks.

use std::collections::BTreeSet;

use forebay_core::units::parse_link_rate;

use super::figures::Drawing;
use super::page::{Block, Page, PageSection};
use super::{back_ends, result, tables};
use crate::output::side;
use crate::plan::references::References;
use crate::plan::setup::setup;
use crate::plan::{Figure, Seeds};
use crate::store::{Run, StoreError};
use crate::summary::{ArmSummary, Requests, summarise};

/// Starts of the keys of parameters that change the bottleneck's rate.
const CHANGES: [&str; 3] = ["bottleneck.change.", "bottleneck.pulse.", "bottleneck.walk."];
/// Bits of a full Ethernet frame of 1,514 bytes.
const PACKET_BITS: f64 = 8.0 * 1514.0;

/// The page over all `plans`, whose newest runs are `runs`, with at most `points` points a series.
pub fn page(
    requests: &Requests<'_>,
    runs: &[Run],
    plans: &[PlanResults<'_>],
    points: usize,
) -> Result<Page, StoreError> {
    let mut page = Page { title: "forebay: results".into(), ..Page::default() };
    let alone = plans.len() == 1;
    let (mut leads, mut first) = (Vec::new(), PageSection::default());
    for plan in plans {
        let backends = plan.backends();
        for ((sentence, tiles), backend) in result::of(plan).into_iter().zip(&backends) {
            leads.push(if alone {
                sentence
            } else {
                format!("{} \u{2013} {sentence}", plan.title)
            });
            let names =
                [(!alone).then_some(&*plan.title), (backends.len() > 1).then_some(*backend)];
            let names = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
            first.blocks.extend((!names.is_empty()).then_some(Block::Text(names)));
            first.blocks.push(Block::Tiles(tiles));
        }
        if alone {
            page.title.clone_from(&plan.title);
        }
        page.sections.extend(plan.sections(requests, points, alone)?);
    }
    let died = runs.iter().filter(|run| run.died().is_some()).count();
    let note = format!("In {died} of {} runs a box ended early.", runs.len());
    leads.extend((died > 0).then_some(note));
    page.lead = leads.join(" ");
    let commands: Vec<String> = plans.iter().filter_map(PlanResults::commands).collect();
    let (title, text) = ("Repeat these runs".into(), commands.join(" && "));
    first.blocks.extend((!commands.is_empty()).then_some(Block::Details { title, text }));
    if !first.blocks.is_empty() {
        page.sections.insert(0, first);
    }
    let mut blocks = vec![Block::Text(validity(runs))];
    blocks.extend(tables::about_runs(requests.store(), runs)?);
    page.sections.push(PageSection { heading: "Runs, attempts and the machine".into(), blocks });
    Ok(page)
}

/// How many runs count, their program, and their conditions.
fn validity(runs: &[Run]) -> String {
    let mut commits: Vec<&str> = runs.iter().map(|run| run.commit.as_str()).collect();
    commits.sort_unstable();
    commits.dedup();
    let valid = runs.iter().filter(|run| run.is_valid()).count();
    format!(
        "{valid} valid runs of {}. Built from {}. Every arm of a plan has the same link, the same \
         traffic at the same times and the same validity limits. Runs of the arms alternate.",
        runs.len(),
        commits.join(", ")
    )
}

/// An arm on a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Name of the arm.
    pub arm: String,
    /// Back end.
    pub backend: String,
    /// The arm, with the back end where there are several.
    pub label: String,
}

impl Side {
    /// The arms of `runs` on their back ends, in the order of `arms`.
    fn all(arms: &[(String, String)], runs: &[&Run]) -> Vec<Self> {
        let mut backends: Vec<&str> = runs.iter().map(|run| run.key.backend.as_str()).collect();
        backends.sort_unstable();
        backends.dedup();
        let several = backends.len() > 1;
        let mut sides = Vec::new();
        for (arm, _) in arms {
            for backend in &backends {
                let has = |run: &&&Run| run.key.arm == *arm && run.key.backend == *backend;
                if runs.iter().any(|run| has(&run)) {
                    let label = side(arm, backend, several);
                    sides.push(Self { arm: arm.clone(), backend: backend.to_string(), label });
                }
            }
        }
        sides
    }
}

/// The results of one plan.
#[derive(Default)]
pub struct PlanResults<'a> {
    /// Heading of the plan.
    pub title: String,
    /// Description of the plan.
    pub description: String,
    /// Arms with their summaries, in the plan's order.
    pub arms: Vec<(String, String)>,
    /// The compared sides: each arm on each back end that ran it.
    pub sides: Vec<Side>,
    /// The newest runs.
    pub runs: Vec<&'a Run>,
    /// Arms over their seeds, in the order of `arms` within each cell.
    pub summaries: Vec<ArmSummary>,
    /// The figures to draw.
    pub figures: Vec<Figure>,
    /// The arms that the other arms are compared with.
    pub references: References,
    /// The command that ran the plan, without back end and seeds.
    command: Option<String>,
    /// The labels of the sides, each at the place of its colour.
    names: Vec<String>,
}

impl<'a> PlanResults<'a> {
    /// The results of each plan, with `runs` as its newest runs, in the order of its first run.
    pub fn all(requests: &Requests<'_>, runs: &'a [Run]) -> Result<Vec<Self>, StoreError> {
        let names = requests.store().plan_names()?;
        names.iter().map(|name| Self::read(requests, name, runs)).collect()
    }

    fn read(requests: &Requests<'_>, name: &str, runs: &'a [Run]) -> Result<Self, StoreError> {
        let store = requests.store();
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
        let mut summaries = summarise(requests, &owned)?;
        let sides = Side::all(&arms, &runs);
        let place = |summary: &ArmSummary| {
            let has = |side: &Side| side.arm == summary.arm && side.backend == summary.backend;
            sides.iter().position(has)
        };
        let cells = cells_of(&runs);
        let column = |summary: &ArmSummary| cells.iter().position(|cell| *cell == summary.cell);
        summaries.sort_by_key(|summary| (column(summary), place(summary)));
        let title = if title.is_empty() { name.to_string() } else { title };
        let figures = store.figures(name)?;
        let names = sides.iter().map(|side| side.label.clone()).collect();
        let references = store.references(name)?;
        let command = store.command(name)?;
        let named = Self { title, description, arms, sides, runs, ..Self::default() };
        Ok(Self { summaries, figures, references, command, names, ..named })
    }

    /// The back ends that ran it.
    pub fn backends(&self) -> BTreeSet<&str> {
        self.sides.iter().map(|side| side.backend.as_str()).collect()
    }

    /// The commands that repeat the runs; `None` if the store does not know them.
    fn commands(&self) -> Option<String> {
        let command = self.command.as_ref()?;
        let seeds: BTreeSet<u64> = self.runs.iter().map(|run| run.key.seed).collect();
        let seeds = Seeds { first: *seeds.first()?, last: *seeds.last()? };
        let all = self.backends().into_iter();
        let all = all.map(|backend| format!("{command} --backend {backend} --seeds {seeds}"));
        Some(all.collect::<Vec<_>>().join(" && "))
    }

    /// The summary of a side in a cell; `None` without valid runs.
    pub fn summary(&self, cell: &str, side: &Side) -> Option<&ArmSummary> {
        let has = |it: &&ArmSummary| {
            (it.cell.as_str(), &it.arm, &it.backend) == (cell, &side.arm, &side.backend)
        };
        self.summaries.iter().find(has)
    }

    /// Time to send a full packet at the bottleneck's rate (ms); `None` if that rate changes, or differs
    /// between the runs of the cell.
    pub fn packet_ms(&self, cell: &str) -> Option<f64> {
        let mut runs = self.runs.iter().filter(|run| run.key.cell == cell).map(|it| &it.parameters);
        let rate = runs.clone().next()?.get("bottleneck.rate")?;
        let changes = |key: &String| CHANGES.iter().any(|it| key.starts_with(it));
        let is_steady =
            runs.all(|run| run.get("bottleneck.rate") == Some(rate) && !run.keys().any(changes));
        let rate = parse_link_rate(rate).ok().filter(|_| is_steady)?;
        Some(PACKET_BITS / rate.as_mbit_per_sec_f64() / 1e3)
    }

    /// Gives the first colours to `names`, whether the plan has them or not, so that figures of one page
    /// agree.
    pub fn coloured_as(mut self, names: &[String]) -> Self {
        let others = self.names.into_iter().filter(|name| !names.contains(name));
        self.names = names.iter().cloned().chain(others).collect();
        self
    }

    /// The labels of the sides, which keep their colour in every figure.
    pub fn order(&self) -> Vec<String> {
        self.names.clone()
    }

    /// The label of the side with `arm` on `backend`.
    pub fn label(&self, arm: &str, backend: &str) -> String {
        let has = |side: &&Side| side.arm == arm && side.backend == backend;
        self.sides.iter().find(has).map_or_else(|| arm.to_string(), |side| side.label.clone())
    }

    /// Name of a side, with its cell where there are several.
    pub fn name(&self, summary: &ArmSummary) -> String {
        let label = self.label(&summary.arm, &summary.backend);
        format!("{label} {}", summary.cell).trim_end().to_string()
    }

    /// The cells, in the order of their first run.
    pub fn cells(&self) -> Vec<&'a str> {
        cells_of(&self.runs)
    }

    /// The valid runs of a side in a cell.
    pub fn valid_in(&self, cell: &str, side: &Side) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().copied().filter(move |run| {
            let key = &run.key;
            key.cell == cell && key.arm == side.arm && key.backend == side.backend && run.is_valid()
        })
    }

    /// `alone`: the page has no other plan and bears the title of this one.
    fn sections(
        &self,
        requests: &Requests<'_>,
        points: usize,
        alone: bool,
    ) -> Result<Vec<PageSection>, StoreError> {
        let titled = |what: &str| match alone {
            true => what.to_string(),
            false => format!("{} \u{2013} {}", self.title, what.to_lowercase()),
        };
        let parameters: Vec<_> = self.runs.iter().map(|run| &run.parameters).collect();
        let setup = format!("Set-up: {}.", setup(&parameters));
        let mut blocks = vec![Block::Text(self.description.clone()), Block::Text(setup)];
        let all = Drawing { plan: self, requests, cells: &self.cells(), points };
        blocks.extend(tables::overview(self));
        blocks.extend(all.rate_over_delay().map(Block::Added));
        blocks.push(tables::arms(self));
        blocks.extend(back_ends::beside(self));
        let mut sections = vec![PageSection { heading: titled("At a glance"), blocks }];
        let cells = self.cells();
        let within: Vec<&[&str]> = cells.chunks(1).collect();
        let across = (cells.len() > 1).then_some(&cells[..]);
        for cells in across.into_iter().chain(within) {
            let is_here =
                |figure: &&Figure| across.is_none() || figure.spans_cells() == (cells.len() > 1);
            let drawing = Drawing { plan: self, requests, cells, points };
            let mut blocks = Vec::new();
            for figure in self.figures.iter().filter(is_here) {
                blocks.extend(drawing.blocks(figure)?);
            }
            let heading = match cells {
                [cell] if !cell.is_empty() => format!("{}, {cell}", titled("Figures")),
                _ => titled("Figures"),
            };
            if !blocks.is_empty() {
                sections.push(PageSection { heading, blocks });
            }
        }
        sections.push(PageSection { heading: titled("In numbers"), blocks: tables::numbers(self) });
        sections
            .push(PageSection { heading: titled("Parameters"), blocks: tables::parameters(self) });
        Ok(sections)
    }
}

/// The cells of `runs` in the order of their first run; this is the plan's order.
fn cells_of<'a>(runs: &[&'a Run]) -> Vec<&'a str> {
    let mut cells: Vec<&str> = Vec::new();
    for run in runs {
        if !cells.contains(&run.key.cell.as_str()) {
            cells.push(&run.key.cell);
        }
    }
    cells
}
