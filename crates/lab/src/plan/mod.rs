//! Plans: one experiment as a TOML file, its arms, its grid, and how they become an
//! [`Experiment`] with every number resolved.

mod command;
pub mod curves;
pub mod figures;
pub mod library;
mod overrides;
pub mod paths;
pub mod references;
mod resolve;
pub mod schema;
pub mod setup;

pub use figures::Figure;
/// All errors of a plan, or of a file that it names.
pub use forebay_reader::FileError as PlanError;

pub use crate::experiment::Experiment;

use std::sync::Arc;

use forebay_core::cc::Registry;
use forebay_core::spec::{self, Spec, one_of};
use forebay_reader::tree::{self, Node, Origin, Table, Value};
use forebay_reader::{Document, Problem, Reader, spec_value};
use library::Source;
use references::References;

use crate::traces::Understood;
use forebay_policy::algorithms;

/// Most arms of a plan: far above any use, far below a number that fills a disk.
const MAX_ARMS: usize = 64;
/// Most cells of a plan: far above any use, far below a number that fills a disk.
const MAX_CELLS: usize = 256;
/// Most seeds of one invocation.
const MAX_SEEDS: u64 = 10_000;

/// A plan as read: the parts common to every run, and the tree that runs are resolved from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names the results.
    pub name: String,
    /// Heading in the report.
    pub title: String,
    /// The question or the result, in a sentence or more.
    pub description: String,
    /// Seeds to run by default.
    pub seeds: Seeds,
    /// The arms to run, in order.
    pub arms: Vec<Arm>,
    /// The reference arms of comparisons.
    pub references: References,
    /// The cells of the grid; one without a name where the plan has no grid.
    pub cells: Vec<Cell>,
    algorithms: Registry,
    /// Figures of the report. Published values are dropped if the user overrides anything but the algorithms
    /// under test.
    pub figures: Vec<Figure>,
    source: Source,
    tree: Table,
    /// The user's overrides, each with the plan's own value.
    replacements: Vec<(Override, Option<Node>)>,
    /// The command that runs it, without back end and seeds; empty: the plan is in no file.
    pub(crate) command: String,
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
    /// The arm resolved in each cell, without a seed.
    runs: Vec<Arc<Experiment>>,
}

impl Arm {
    /// The run of the arm in `cell`, before [`Experiment::with_seed`] sets the seed, once.
    pub fn run(&self, cell: &Cell) -> &Arc<Experiment> {
        &self.runs[cell.place]
    }
}

/// One combination of the grid.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Such as `rtt=20ms rate=24Mbit/s`; empty where the plan has no grid.
    pub name: String,
    set: Vec<Override>,
    /// Number of the cell, from 0.
    place: usize,
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
            return Err(PlanError::of("--set", format!("{text:?}: allowed is KEY=VALUE")));
        };
        Ok(Self { key: key.trim().into(), node: tree::parse_argument("--set", value.trim())? })
    }

    /// The dotted key to replace.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Override of the algorithms under test, each named as in a flow: `aut=["cubic", "bbr"]`. Errors name
    /// `asker` as the origin.
    pub fn algorithms<'a>(names: impl IntoIterator<Item = &'a str>, asker: &str) -> Self {
        let node = |value: Value| {
            let origin = Origin::argument(asker, &value.to_string());
            Node { value, origin }
        };
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
    /// Loads the plan called `reference`: a path, or a name under `./plans` or built in. Applies the user's
    /// overrides; keys that an arm or a cell sets keep that value. Resolves every run once, so each run of a
    /// loaded plan is valid.
    pub fn load(reference: &str, sets: &[Override]) -> Result<Self, PlanError> {
        Self::from_source(Source::plan(reference)?, sets)
    }

    /// Loads a plan with the settings of its `as_published` and then the user's overrides; see
    /// [`Plan::load`].
    ///
    /// # Errors
    ///
    /// Errors of [`Plan::load`], or the plan has no `as_published`.
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
        let mut tree = schema::FORMAT.parse(&source.file, &source.text)?;
        extend(&mut tree, &source)?;
        // Published values apply to the link and the traffic of the plan, or to those in `as_published`. They
        // belong to the plan's own algorithm, so further algorithms under test do not affect them.
        let is_published = sets.iter().all(|set| set.key == "aut")
            && tree.contains_key("as_published") == as_published;
        if as_published {
            let own = published(&source, &tree)?;
            apply_all(&mut tree, &own)?;
        }
        let mut known = figures::Known::default();
        let as_written = Document::new(&source.file, tree.clone(), &schema::FORMAT);
        let arms = arms_of_aut(&as_written.root(), &algorithms);
        arms.into_iter().for_each(|arm| known.add_arm(arm.name));
        let mut replacements = Vec::new();
        for set in sets {
            match overrides::apply(&mut tree, &set.key, set.node.clone()) {
                Ok(old) => replacements.push((set.clone(), old)),
                Err(problem) => as_written.note(*problem),
            }
        }
        let document = Document::new(&source.file, tree.clone(), &schema::FORMAT);
        let reader = document.root();
        let name = reader.require("name", reader.name("name"));
        let arms = read_arms(&reader, &algorithms);
        let mut plan = Self {
            title: reader.text("title").or(name.as_deref()).unwrap_or_default().to_string(),
            description: reader.text("description").unwrap_or("").trim().to_string(),
            seeds: reader.parsed("seeds").unwrap_or(Seeds { first: 1, last: 3 }),
            references: References::read(&reader, &arms),
            arms,
            cells: read_cells(&reader),
            figures: Vec::new(),
            name: name.unwrap_or_default(),
            algorithms,
            command: command::command(&source.file, sets, as_published),
            source,
            replacements,
            tree,
        };
        as_written.finish(Some(())).unwrap_or_else(|error| document.note_all(error));
        plan.resolve(&document, &mut known);
        for arm in reader.tables("arm") {
            arm.name("name").into_iter().for_each(|name| known.add_arm(name));
        }
        // The names that figures may use are known only if all runs are valid.
        if !document.is_wrong() {
            plan.figures = figures::figures(&reader, &known, is_published);
        }
        document.finish(Some(plan))
    }

    /// Resolves every arm in every cell, once for all runs. Notes their errors, and adds their names to
    /// `known`.
    fn resolve(&mut self, document: &Document, known: &mut figures::Known) {
        for place in 0..self.arms.len() {
            let mut runs = Vec::new();
            for cell in &self.cells {
                match self.resolved(&self.arms[place], cell).and_then(|run| self.noted(run, known))
                {
                    Ok(run) => runs.push(run),
                    Err(error) => document.note_all(error),
                }
                if document.is_full() {
                    return;
                }
            }
            self.arms[place].runs = runs;
        }
    }

    /// Adds the names in `run` to `known`.
    fn noted(
        &self,
        run: Arc<Experiment>,
        known: &mut figures::Known,
    ) -> Result<Arc<Experiment>, PlanError> {
        match run.topology {
            None => known.add(&run),
            // Its flows belong to the sites that a seed draws.
            Some(_) => known.add(&Experiment::clone(&run).with_seed(self.seeds.first)?),
        }
        Ok(run)
    }

    /// The run of `arm` in `cell`, without a seed.
    fn resolved(&self, arm: &Arm, cell: &Cell) -> Result<Arc<Experiment>, PlanError> {
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
        Ok(Arc::new(experiment))
    }

    /// The experiments of every arm in every cell with the first seed.
    pub fn experiments(&self) -> impl Iterator<Item = Result<Experiment, PlanError>> {
        let all = self.arms.iter().flat_map(|arm| self.cells.iter().map(move |cell| (arm, cell)));
        all.map(|(arm, cell)| self.experiment(arm, cell, self.seeds.first))
    }

    /// Adds arguments to the command that repeats the runs; `arguments` begin with a space.
    pub fn repeat_with(&mut self, arguments: &str) {
        if !self.command.is_empty() {
            self.command += arguments;
        }
    }

    /// The experiment of one arm in one cell with one seed.
    pub fn experiment(&self, arm: &Arm, cell: &Cell, seed: u64) -> Result<Experiment, PlanError> {
        Experiment::clone(arm.run(cell)).with_seed(seed)
    }

    /// How the traces of links in all arms and cells were understood, each file once.
    pub fn traces(&self) -> Vec<&Understood> {
        let mut all: Vec<&Understood> = Vec::new();
        for read in self.arms.iter().flat_map(|arm| &arm.runs).flat_map(|run| &run.traces) {
            if !all.contains(&read) {
                all.push(read);
            }
        }
        all
    }

    /// Why metrics that compare arms will be missing: a text for each reference arm that exists but is not
    /// named. Warnings about traces follow.
    pub fn warnings(&self) -> Vec<String> {
        let text = |(key, arm)| {
            format!("{key} is missing: set {key} = {arm:?} to compare the other arms with that arm")
        };
        let missing = self.references.missing(&self.arms).into_iter().map(text);
        let odd = |read: &Understood| {
            let file = read.file.clone();
            read.warnings.clone().into_iter().map(move |warning| format!("{file}: {warning}"))
        };
        missing.chain(self.traces().into_iter().flat_map(odd)).collect()
    }

    /// Adds an override to the arm called `arm`; it wins over the arm's own settings.
    ///
    /// # Errors
    ///
    /// The arm is not valid with the override.
    pub fn set_in_arm(&mut self, arm: &str, set: Override) -> Result<(), PlanError> {
        if let Some(place) = self.arms.iter().position(|known| known.name == arm) {
            let mut changed = self.arms[place].clone();
            changed.set.push(set);
            for cell in &self.cells {
                changed.runs[cell.place] = self.resolved(&changed, cell)?;
            }
            self.arms[place] = changed;
        }
        Ok(())
    }

    /// Keeps only the arms in `names`, in that order.
    pub fn select_arms(&mut self, names: &[String]) -> Result<(), PlanError> {
        let known: Vec<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        let selected = names
            .iter()
            .map(|name| {
                self.arms.iter().find(|arm| arm.name == *name).cloned().ok_or_else(|| {
                    let reason = format!("no arm {name}: allowed is {}", one_of(name, &known));
                    PlanError::of(&self.source.file, reason)
                })
            })
            .collect::<Result<_, _>>()?;
        self.arms = selected;
        if let Some(command) = self.command.split(" --arms ").next().filter(|it| !it.is_empty()) {
            self.command = format!("{command} --arms {}", names.join(","));
        }
        Ok(())
    }
}

fn apply_all(tree: &mut Table, sets: &[Override]) -> Result<(), PlanError> {
    let mut apply = |set: &Override| overrides::apply(tree, &set.key, set.node.clone()).map(drop);
    sets.iter().try_for_each(&mut apply).map_err(|problem| PlanError::from(*problem))
}

/// The overrides in `as_published`.
fn published(source: &Source, tree: &Table) -> Result<Vec<Override>, PlanError> {
    let document = Document::new(&source.file, tree.clone(), &schema::FORMAT);
    let reader = document.root();
    let own = reader.require("as_published", reader.raw_table("as_published")).map(dotted);
    document.finish(own)
}

/// Longest chain of `extends`. Longer ones are hard to read, and a circle would never end.
const EXTENDS_MAX: usize = 4;

/// Copies every top-level key that `tree` lacks from the plan named by `extends`, and from the plans that
/// this one extends.
fn extend(tree: &mut Table, source: &Source) -> Result<(), PlanError> {
    let refused = |node: &Node, allowed: String| Problem::value(&node.origin, "extends", allowed);
    let mut source = source.clone();
    let mut next = tree.get("extends").cloned();
    for _ in 0..EXTENDS_MAX {
        let Some(node) = next else { return Ok(()) };
        let Some(reference) = node.value.as_text() else {
            let allowed = schema::PLAN.key("extends").map_or(String::new(), |key| key.allowed());
            return Err(refused(&node, allowed).into());
        };
        source = source
            .sibling_plan(reference)
            .map_err(|error| refused(&node, format!("a readable plan ({error})")))?;
        let mut base = schema::FORMAT.parse(&source.file, &source.text)?;
        next = base.remove("extends");
        for (key, node) in base {
            tree.entry(key).or_insert(node);
        }
    }
    let allowed = format!("a chain of at most {EXTENDS_MAX} plans that extend each other");
    next.map_or(Ok(()), |node| Err(refused(&node, allowed).into()))
}

/// An arm for each algorithm under test, named after it; empty if the plan has no `aut`.
fn arms_of_aut(plan: &Reader<'_>, algorithms: &Registry) -> Vec<Arm> {
    let Some(node) = plan.node("aut") else { return Vec::new() };
    if plan.has("arm") {
        plan.wrong_because("arm", "no arms together with `aut`: each of its algorithms is an arm");
    }
    let all = match &node.value {
        Value::List(all) if !all.is_empty() => all.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut arms: Vec<Arm> = Vec::new();
    for node in all {
        let spec = match spec_value(&node.value) {
            spec::Value::Text(text) => text.parse().unwrap_or_else(|_| Spec::named(&text)),
            spec::Value::Spec(spec) => spec,
            _ => {
                plan.wrong("aut");
                continue;
            }
        };
        let name = arm_name(&spec);
        if arms.iter().any(|arm| arm.name == name) {
            let problem = Problem::value(&node.origin, "aut", "each algorithm once");
            plan.document().note(problem);
        }
        let summary = algorithms.named(&spec.kind).map_or("", |algorithm| algorithm.summary);
        let aut = Some(node.clone());
        arms.push(Arm { name, summary: summary.into(), set: Vec::new(), aut, runs: Vec::new() });
    }
    arms
}

/// Name of an algorithm with only the letters allowed in a name: `cubic-hystart-off` for
/// `cubic(hystart=off)`.
fn arm_name(algorithm: &Spec) -> String {
    let text = algorithm.to_string();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let name = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    name.chars().take(schema::NAME_MAX).collect()
}

fn read_arms(plan: &Reader<'_>, algorithms: &Registry) -> Vec<Arm> {
    let mut arms = arms_of_aut(plan, algorithms);
    for reader in plan.tables("arm") {
        let Some(name) = reader.require("name", reader.name("name")) else { continue };
        if arms.iter().any(|arm| arm.name == name) {
            reader.repeated("arm");
        }
        let set = reader.raw_table("set").map(dotted).unwrap_or_default();
        let summary = reader.text("summary").unwrap_or("").to_string();
        arms.push(Arm { name, summary, set, aut: None, runs: Vec::new() });
    }
    if arms.is_empty() {
        let (name, summary) = ("default".into(), String::new());
        arms.push(Arm { name, summary, set: Vec::new(), aut: None, runs: Vec::new() });
    }
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let known = |name: &str| {
        let place = names.iter().position(|known| *known == name);
        place.ok_or_else(|| format!("a list of {}", names.join(", ")))
    };
    let selection = plan.list("arms", known);
    if !selection.is_empty() {
        arms = selection.into_iter().flatten().map(|place| arms[place].clone()).collect();
    }
    if arms.len() > MAX_ARMS {
        plan.wrong_because("arm", format!("at most {MAX_ARMS} arms"));
        arms.truncate(MAX_ARMS);
    }
    arms
}

/// The overrides of a `set` table. Both `"bundle.a.cc" = "copa"` and nested tables become dotted keys; a
/// table with a `kind` is a value.
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

/// The cells under `cell`; one without a name if there are none.
fn named_cells(plan: &Reader<'_>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for reader in plan.tables("cell") {
        let Some(name) = reader.require("name", reader.name("name")) else { continue };
        if cells.iter().any(|cell| cell.name == name) {
            reader.repeated("cell");
        }
        let set = reader.raw_table("set").map(dotted).unwrap_or_default();
        cells.push(Cell { name, set, place: 0 });
    }
    if cells.is_empty() {
        cells.push(Cell { name: String::new(), set: Vec::new(), place: 0 });
    }
    cells
}

/// The named cells, each with the cross product of the lists under `cells`.
fn read_cells(plan: &Reader<'_>) -> Vec<Cell> {
    let mut cells = named_cells(plan);
    for axis in plan.raw_table("cells").map(dotted).unwrap_or_default() {
        let values = match &axis.node.value {
            Value::List(values) if !values.is_empty() => values,
            _ => {
                let (key, allowed) =
                    (format!("cells.{}", axis.key), "a list of at least one value");
                plan.document().note(Problem::value(&axis.node.origin, &key, allowed));
                continue;
            }
        };
        if cells.len() * values.len() > MAX_CELLS {
            plan.wrong_because("cells", format!("at most {MAX_CELLS} combinations"));
            break;
        }
        let short = axis.key.rsplit('.').next().unwrap_or(&axis.key);
        let with = |cell: &Cell, value: &Node| {
            let gap = if cell.name.is_empty() { "" } else { " " };
            let name = format!("{}{gap}{short}={}", cell.name, value.value.plain());
            let mut set = cell.set.clone();
            set.push(Override { key: axis.key.clone(), node: value.clone() });
            Cell { name, set, place: 0 }
        };
        cells = cells
            .iter()
            .flat_map(|cell| values.iter().map(move |value| (cell, value)))
            .map(|(cell, value)| with(cell, value))
            .collect();
    }
    cells.iter_mut().enumerate().for_each(|(place, cell)| cell.place = place);
    cells
}

#[cfg(test)]
mod tests;
