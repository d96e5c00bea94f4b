//! Plans: one experiment as a TOML file, its arms, its grid, and how they become an
//! [`Experiment`] with every number resolved.

mod copies;
mod error;
pub mod figures;
pub mod library;
mod overrides;
pub mod paths;
pub(crate) mod reader;
mod resolve;
pub mod schema;
pub mod setup;
pub(crate) mod tree;

pub use error::PlanError;
pub use figures::Figure;
pub use reader::parse_rate;

pub use crate::experiment::{self, Experiment, schedule};

use forebay_core::cc::Registry;
use forebay_core::spec::{self, Spec};
use library::Source;
use reader::Reader;
use tree::{Node, Table, Value};

use crate::algorithms;

/// Most arms, and most cells, of a plan: far above any use, far below what would fill a disk.
const MAX_ARMS: usize = 64;
const MAX_CELLS: usize = 256;
/// Most seeds of one invocation.
const MAX_SEEDS: u64 = 10_000;

/// A plan as read: its parts that hold for every run, and the tree that runs are resolved from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names the results.
    pub name: String,
    /// Heading in the report.
    pub title: String,
    /// What it shows.
    pub description: String,
    /// Seeds run when none are asked for.
    pub seeds: Seeds,
    /// The arms to run, in order.
    pub arms: Vec<Arm>,
    /// The cells of the grid; one without a name where the plan has no grid.
    pub cells: Vec<Cell>,
    algorithms: Registry,
    /// What the report draws; without published numbers where the user replaces something of the plan but for the
    /// algorithms under test.
    pub figures: Vec<Figure>,
    source: Source,
    tree: Table,
    /// The user's overrides, each with what the plan had there.
    replacements: Vec<(Override, Option<Node>)>,
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name of the arm.
    pub name: String,
    /// In plain words.
    pub summary: String,
    set: Vec<Override>,
    /// The algorithm under test, where the plan has one.
    aut: Option<Node>,
}

/// One combination of the grid.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Such as `rtt=20ms rate=24Mbit/s`; empty where the plan has no grid.
    pub name: String,
    set: Vec<Override>,
}

/// A dotted key and the value it gets.
#[derive(Clone, Debug)]
pub struct Override {
    key: String,
    node: Node,
}

impl Override {
    /// Reads `KEY=VALUE` as given to `--set`.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(PlanError::file("--set", format!("{text:?}: allowed is KEY=VALUE")));
        };
        Ok(Self { key: key.trim().into(), node: tree::parse_argument(value.trim())? })
    }

    /// What is replaced.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Has these algorithms tested, each called as flows call it: `aut=["cubic", "bbr"]`. Errors say that `asker` named
    /// them.
    pub(crate) fn algorithms<'a>(names: impl IntoIterator<Item = &'a str>, asker: &str) -> Self {
        let origin = tree::Origin { file: asker.into(), line: None };
        let node = |value| Node { value, origin: origin.clone() };
        let names = names.into_iter().map(|name| node(Value::Text(name.into())));
        Self { key: "aut".into(), node: node(Value::List(names.collect())) }
    }

    /// Whether both have the same key, or the key of one is a part of the other's value.
    fn overlaps(&self, other: &Self) -> bool {
        let within = |key: &str, whole: &str| {
            key.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        within(&self.key, &other.key) || within(&other.key, &self.key)
    }
}

/// A range of seeds, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct Seeds {
    /// First seed.
    pub first: u64,
    /// Last seed.
    pub last: u64,
}

impl Seeds {
    /// Every seed of the range.
    pub fn iter(self) -> impl Iterator<Item = u64> + Clone {
        self.first..=self.last
    }
}

impl std::fmt::Display for Seeds {
    /// As plans have it: `1..3`, or `7` alone.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}..{last}"),
        }
    }
}

impl std::str::FromStr for Seeds {
    type Err = String;

    /// Reads `3` or `1..3`, which is 1, 2 and 3.
    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = || {
            format!("{text:?} is no range of at most {MAX_SEEDS} seeds such as \"1..3\" or \"7\"")
        };
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse::<u64>().map_err(|_| allowed());
        // SQLite's integers are signed, so a seed has 63 bits.
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last - first >= MAX_SEEDS || last > i64::MAX as u64 {
            return Err(allowed());
        }
        Ok(Self { first, last })
    }
}

impl TryFrom<String> for Seeds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Plan {
    /// Loads the plan called `reference` (a path, or a name under `./plans` or built in) with the
    /// user's overrides. What an arm or a cell sets itself is part of what it is and stays. Resolves
    /// every run once, so a plan that loads can be run.
    pub fn load(reference: &str, sets: &[Override]) -> Result<Self, PlanError> {
        Self::from_source(Source::plan(reference)?, sets)
    }

    /// Loads a plan with what its `as_published` sets, and then the user's overrides; see [`Plan::load`].
    ///
    /// # Errors
    ///
    /// Those of [`Plan::load`], or the plan has no `as_published`.
    pub fn load_as_published(reference: &str, sets: &[Override]) -> Result<Self, PlanError> {
        Self::read(Source::plan(reference)?, sets, algorithms::known().clone(), true)
    }

    /// Reads a plan from its text; see [`Plan::load`].
    pub fn from_source(source: Source, sets: &[Override]) -> Result<Self, PlanError> {
        Self::with_algorithms(source, sets, algorithms::known().clone())
    }

    /// Reads a plan whose flows and bundles may name any of `algorithms`; see [`Plan::load`].
    pub fn with_algorithms(
        source: Source,
        sets: &[Override],
        algorithms: Registry,
    ) -> Result<Self, PlanError> {
        Self::read(source, sets, algorithms, false)
    }

    fn read(
        source: Source,
        sets: &[Override],
        algorithms: Registry,
        as_published: bool,
    ) -> Result<Self, PlanError> {
        let mut tree = tree::parse_document(&source.text, &source.file)?;
        extend(&mut tree, &source)?;
        // What others published is of the plan's own link and traffic, or of those that it says were theirs, and of its
        // algorithm, whichever are tested beside it.
        let is_published = sets.iter().all(|set| set.key == "aut")
            && tree.contains_key("as_published") == as_published;
        if as_published {
            let reader = Reader::document(&tree, &schema::PLAN, &source.file)?;
            let table = reader.require("as_published", reader.raw_table("as_published")?)?;
            let own = dotted(table);
            apply_all(&mut tree, &own)?;
        }
        let mut known = figures::Known::default();
        let of_plan = Reader::document(&tree, &schema::PLAN, &source.file)?;
        arms_of_aut(&of_plan, &algorithms)?.into_iter().for_each(|arm| known.add_arm(arm.name));
        let mut replacements = Vec::new();
        for set in sets {
            let old = overrides::apply(&mut tree, &set.key, set.node.clone())?;
            replacements.push((set.clone(), old));
        }
        let reader = Reader::document(&tree, &schema::PLAN, &source.file)?;
        let name = reader.require("name", reader.name("name")?)?;
        let mut plan = Self {
            title: reader.text("title")?.unwrap_or(&name).to_string(),
            description: reader.text("description")?.unwrap_or("").trim().to_string(),
            seeds: reader.parsed("seeds")?.unwrap_or(Seeds { first: 1, last: 3 }),
            arms: read_arms(&reader, &algorithms)?,
            cells: read_cells(&reader)?,
            figures: Vec::new(),
            name,
            algorithms,
            source,
            replacements,
            tree: tree.clone(),
        };
        plan.experiments().try_for_each(|run| run.map(|run| known.add(&run)))?;
        for arm in reader.tables("arm", &schema::ARM)? {
            known.add_arm(arm.require("name", arm.name("name")?)?);
        }
        plan.figures = figures::figures(&reader, &known, is_published)?;
        Ok(plan)
    }

    /// The experiments of every arm in every cell with the first seed.
    pub fn experiments(&self) -> impl Iterator<Item = Result<Experiment, PlanError>> {
        let all = self.arms.iter().flat_map(|arm| self.cells.iter().map(move |cell| (arm, cell)));
        all.map(|(arm, cell)| self.experiment(arm, cell, self.seeds.first))
    }

    /// The experiment of one arm in one cell with one seed.
    pub fn experiment(&self, arm: &Arm, cell: &Cell, seed: u64) -> Result<Experiment, PlanError> {
        Ok(self.unseeded(arm, cell)?.with_seed(seed))
    }

    /// The experiment of one arm in one cell that [`Experiment::with_seed`] makes one with a seed of, once.
    pub(crate) fn unseeded(&self, arm: &Arm, cell: &Cell) -> Result<Experiment, PlanError> {
        let mut tree = self.tree.clone();
        apply_all(&mut tree, &cell.set)?;
        apply_all(&mut tree, &arm.set)?;
        if let Some(aut) = &arm.aut {
            tree.insert("aut".into(), aut.clone());
        }
        let mut experiment = resolve::experiment(tree, &self.source, &self.algorithms)?;
        experiment.plan.clone_from(&self.name);
        experiment.arm.clone_from(&arm.name);
        experiment.cell.clone_from(&cell.name);
        Ok(experiment)
    }

    /// Adds an override to the arm called `arm`: it wins over those that the arm has.
    pub fn set_in_arm(&mut self, arm: &str, set: Override) {
        self.arms
            .iter_mut()
            .filter(|known| known.name == arm)
            .for_each(|arm| arm.set.push(set.clone()));
    }

    /// Keeps only the arms named; their order stays that of `names`.
    pub fn select_arms(&mut self, names: &[String]) -> Result<(), PlanError> {
        let known: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        let selected = names
            .iter()
            .map(|name| {
                self.arms.iter().find(|arm| arm.name == *name).cloned().ok_or_else(|| {
                    let reason = format!("no arm {name}: allowed is one of {}", known.join(", "));
                    PlanError::file(&self.source.file, reason)
                })
            })
            .collect::<Result<_, _>>()?;
        self.arms = selected;
        Ok(())
    }
}

fn apply_all(tree: &mut Table, sets: &[Override]) -> Result<(), PlanError> {
    sets.iter().try_for_each(|set| overrides::apply(tree, &set.key, set.node.clone()).map(drop))
}

/// Most plans that extend one another: more than anybody reads, and an end to those that do in a circle.
const EXTENDS_MAX: usize = 4;

/// Takes from the plan named by `extends`, and from that which this one extends, every top-level key that `tree` lacks.
fn extend(tree: &mut Table, source: &Source) -> Result<(), PlanError> {
    let refused = |node: &Node, allowed: &str| {
        PlanError::value(node.origin.clone(), "extends", &node.value.to_string(), allowed)
    };
    let mut source = source.clone();
    let mut next = tree.get("extends").cloned();
    for _ in 0..EXTENDS_MAX {
        let Some(node) = next else { return Ok(()) };
        let Value::Text(reference) = &node.value else {
            return Err(refused(&node, schema::PLAN.key("extends").map_or("", |key| key.allowed)));
        };
        source = source
            .sibling_plan(reference)
            .map_err(|error| refused(&node, &format!("a readable plan ({error})")))?;
        let mut base = tree::parse_document(&source.text, &source.file)?;
        next = base.remove("extends");
        for (key, node) in base {
            tree.entry(key).or_insert(node);
        }
    }
    let allowed = format!("at most {EXTENDS_MAX} plans that extend one another");
    next.map_or(Ok(()), |node| Err(refused(&node, &allowed)))
}

/// An arm for each algorithm under test, called like it; none where the plan has no `aut`.
fn arms_of_aut(plan: &Reader<'_>, algorithms: &Registry) -> Result<Vec<Arm>, PlanError> {
    let Some(node) = plan.node("aut") else { return Ok(Vec::new()) };
    if plan.has("arm") {
        return Err(
            plan.wrong_because("arm", "no arms beside `aut`, whose algorithms are the arms")
        );
    }
    let all = match &node.value {
        Value::List(all) if !all.is_empty() => all.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut arms: Vec<Arm> = Vec::new();
    for node in all {
        let spec = match reader::spec_value(node) {
            spec::Value::Text(text) => text.parse().unwrap_or_else(|_| Spec::named(&text)),
            spec::Value::Spec(spec) => spec,
            _ => return Err(plan.wrong("aut")),
        };
        let name = arm_name(&spec);
        if arms.iter().any(|arm| arm.name == name) {
            let (value, allowed) = (node.value.to_string(), "each algorithm once");
            return Err(PlanError::value(node.origin.clone(), "aut", &value, allowed));
        }
        let summary = algorithms.named(&spec.kind).map_or("", |algorithm| algorithm.summary);
        arms.push(Arm { name, summary: summary.into(), set: Vec::new(), aut: Some(node.clone()) });
    }
    Ok(arms)
}

/// `cubic-hystart-off` of `cubic(hystart=off)`: of the letters that a name may have.
fn arm_name(algorithm: &Spec) -> String {
    let text = algorithm.to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let name = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    name.chars().take(reader::MAX_NAME).collect()
}

fn read_arms(plan: &Reader<'_>, algorithms: &Registry) -> Result<Vec<Arm>, PlanError> {
    let mut arms = arms_of_aut(plan, algorithms)?;
    for reader in plan.tables("arm", &schema::ARM)? {
        let name = reader.require("name", reader.name("name")?)?;
        if arms.iter().any(|arm| arm.name == name) {
            return Err(reader.repeated("arm"));
        }
        let set = reader.raw_table("set")?.map(dotted).unwrap_or_default();
        let summary = reader.text("summary")?.unwrap_or("").to_string();
        arms.push(Arm { name, summary, set, aut: None });
    }
    if arms.is_empty() {
        let (name, summary) = ("default".into(), String::new());
        arms.push(Arm { name, summary, set: Vec::new(), aut: None });
    }
    let selection = plan.list("arms")?;
    if !selection.is_empty() {
        arms = selection
            .iter()
            .map(|node| {
                let known = arms.iter().find(|arm| Value::Text(arm.name.clone()) == node.value);
                known.cloned().ok_or_else(|| {
                    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
                    let allowed = format!("a list of {}", names.join(", "));
                    let value = node.value.to_string();
                    PlanError::value(node.origin.clone(), "arms", &value, &allowed)
                })
            })
            .collect::<Result<_, _>>()?;
    }
    if arms.len() > MAX_ARMS {
        return Err(plan.wrong_because("arm", &format!("at most {MAX_ARMS} arms")));
    }
    Ok(arms)
}

/// The overrides of a `set` table. Both `"bundle.a.cc" = "copa"` and nested tables are dotted keys;
/// a table that has a `kind` is a value.
fn dotted(table: &Table) -> Vec<Override> {
    fn visit(table: &Table, path: &str, sets: &mut Vec<Override>) {
        for (key, node) in table {
            let key = tree::join(path, key);
            match &node.value {
                Value::Table(inner) if !inner.contains_key("kind") => visit(inner, &key, sets),
                _ => sets.push(Override { key, node: node.clone() }),
            }
        }
    }
    let mut sets = Vec::new();
    visit(table, "", &mut sets);
    sets
}

/// The cells that have a name of their own; one without a name where there are none.
fn named_cells(plan: &Reader<'_>) -> Result<Vec<Cell>, PlanError> {
    let mut cells: Vec<Cell> = Vec::new();
    for reader in plan.tables("cell", &schema::CELL)? {
        let name = reader.require("name", reader.name("name")?)?;
        if cells.iter().any(|cell| cell.name == name) {
            return Err(reader.repeated("cell"));
        }
        cells.push(Cell { name, set: reader.raw_table("set")?.map(dotted).unwrap_or_default() });
    }
    if cells.is_empty() {
        cells.push(Cell { name: String::new(), set: Vec::new() });
    }
    Ok(cells)
}

/// The named cells, each with the cross product of the lists under `cells`.
fn read_cells(plan: &Reader<'_>) -> Result<Vec<Cell>, PlanError> {
    let mut cells = named_cells(plan)?;
    let Some(grid) = plan.raw_table("cells")? else { return Ok(cells) };
    for axis in dotted(grid) {
        let values = match &axis.node.value {
            Value::List(values) if !values.is_empty() => values,
            other => {
                let key = format!("cells.{}", axis.key);
                let value = other.to_string();
                let allowed = "a list of at least one value";
                return Err(PlanError::value(axis.node.origin.clone(), &key, &value, allowed));
            }
        };
        let short = axis.key.rsplit('.').next().unwrap_or(&axis.key);
        cells = cells
            .iter()
            .flat_map(|cell| values.iter().map(move |value| (cell, value)))
            .map(|(cell, value)| {
                let gap = if cell.name.is_empty() { "" } else { " " };
                let name = format!("{}{gap}{short}={}", cell.name, value.value.plain());
                let mut set = cell.set.clone();
                set.push(Override { key: axis.key.clone(), node: value.clone() });
                Cell { name, set }
            })
            .collect();
        if cells.len() > MAX_CELLS {
            return Err(plan.wrong_because("cells", &format!("at most {MAX_CELLS} combinations")));
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests;
