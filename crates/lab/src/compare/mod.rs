//! Compares two folders of results and lists the metrics that changed significantly.
//!
//! ```text
//! Store, Store ──► Side, Side ──► figures by run ──► permutation ──► Comparison ──► table, --json, page
//! ```
//! A figure is one metric of one arm in one cell. If both sides ran the same seeds, they are compared pair by
//! pair. Otherwise all runs of one side are compared with all of the other.

pub mod ns3;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::judge::Interval;
use crate::judge::permutation::{Units, adjusted};
use crate::metrics::{Address, Metrics, OF_A_SITE, unit};
use crate::output::number;
use crate::report::newest_runs;
use crate::store::{Run, Store, StoreError};
use crate::summary::Spread;
pub use page::{table, write};

/// Share of a figure by which only rounding tells two of them apart.
const ROUNDING: f64 = 1e-12;
/// Seed of the intervals.
const SEED: u64 = 1;

/// When a change counts as a difference.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Chance of any false alarm if nothing differs, 0 to 1.
    pub level: f64,
    /// Least change of a median over the greater of the two, 0 to 1.
    pub above: f64,
    /// Only metrics whose name contains this.
    pub metric: String,
}

/// One of the two sides.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedSide {
    /// Folder of its results.
    pub folder: PathBuf,
    /// Commits of the programs that made them.
    pub commits: BTreeSet<String>,
    #[serde(skip)]
    runs: Vec<Run>,
}

/// Where a figure is: an arm in a cell of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FigurePlace {
    /// Name of the plan.
    pub plan: String,
    /// Name of the cell; empty: the plan has one.
    pub cell: String,
    /// Name of the arm.
    pub arm: String,
    /// Back end; if the sides differ, both: `sim to ns3`.
    pub backend: String,
}

/// A figure that differs, or one that cannot be tested because there are too few seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The arm that it is a figure of.
    #[serde(flatten)]
    pub place: FigurePlace,
    /// Name of the metric, with the part of the run that it is of.
    pub metric: String,
    /// Unit; empty: a pure number.
    pub unit: &'static str,
    /// The seeds of the old side.
    pub old: Spread,
    /// The seeds of the new side.
    pub new: Spread,
    /// New less old: the median, and its 95 % interval, or the range of fewer than six seeds.
    pub difference: Interval,
    /// Chance of as great a difference in any figure where nothing differs; `None`: not tested.
    pub p: Option<f64>,
}

impl fmt::Display for FigurePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, cell, arm, backend } = self;
        let cell = if cell.is_empty() { String::new() } else { format!(" {cell}") };
        write!(f, "{plan}{cell} {arm} ({backend})")
    }
}

impl Change {
    /// The difference over the old median; `None` where that is 0.
    pub fn share(&self) -> Option<Interval> {
        let of = |value: f64| value / self.old.median.abs();
        let Interval { median, low, high } = self.difference;
        let share = Interval { median: of(median), low: of(low), high: of(high) };
        (self.old.median != 0.0).then_some(share)
    }

    fn is_above(&self, share: f64) -> bool {
        let size = self.old.median.abs().max(self.new.median.abs());
        let by = self.difference.median.abs();
        by > ROUNDING * size && by >= share * size
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The old results.
    pub old: ComparedSide,
    /// The new results.
    pub new: ComparedSide,
    /// Chance of any false alarm if nothing differs.
    pub level: f64,
    /// Whether seeds are compared pair by pair.
    pub paired: bool,
    /// Number of seeds on each side at the places that both have; if paired, the number of pairs.
    pub seeds: [usize; 2],
    /// Figures that were compared.
    pub figures: usize,
    /// Figures that one side alone has, at places that both have.
    pub lost: usize,
    /// Significant differences, in the order of plans, cells and arms.
    pub changed: Vec<Change>,
    /// If too few seeds allow no test: the figures whose medians differ, in the same order.
    pub untested: Vec<Change>,
    /// Figures that differ by less than the requested share.
    pub smaller: usize,
    /// Places that only the old side has.
    pub only_old: Vec<FigurePlace>,
    /// Places that only the new side has.
    pub only_new: Vec<FigurePlace>,
    /// Why the test could not find any difference, however great.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blind: Option<String>,
}

impl Comparison {
    /// One sentence: how much was compared, and how much differs.
    pub fn in_a_sentence(&self) -> String {
        let what = match (self.paired, self.seeds) {
            (true, [pairs, _]) => format!("{pairs} seeds compared in pairs"),
            (false, [old, new]) => format!("{old} runs against {new}"),
        };
        let told = match (&self.blind, self.changed.len()) {
            (Some(reason), _) => {
                format!("{reason}; {} medians differ but were not tested", self.untested.len())
            }
            (None, 0) => "no metric changed significantly".into(),
            (None, changed) => format!("{changed} changed significantly"),
        };
        let smaller = match self.smaller {
            0 => String::new(),
            more => format!("; {more} more changed by less than the requested minimum"),
        };
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(" {lost} metrics exist on one side only."),
        };
        format!(
            "{} metrics, {what}: {told}{smaller} (at most {} % chance of any false alarm).{lost}",
            self.figures,
            number(self.level * 100.0)
        )
    }

    /// The figures to show: the changed figures, or the untested figures if nothing could be tested.
    pub fn listed(&self) -> &[Change] {
        if self.blind.is_some() { &self.untested } else { &self.changed }
    }

    /// Whether everything was compared, and nothing differs.
    pub fn is_equal(&self) -> bool {
        self.changed.is_empty()
            && self.blind.is_none()
            && self.figures > 0
            && self.lost == 0
            && self.only_old.is_empty()
            && self.only_new.is_empty()
    }
}

/// The figures of the valid runs of one side: by place and seed.
type Figures = BTreeMap<FigurePlace, BTreeMap<u64, BTreeMap<String, f64>>>;

impl ComparedSide {
    /// The newest runs in `folder`: of one plan, or of all experiments of a benchmark or study.
    ///
    /// # Errors
    /// The folder has no store, or one of another version.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        let mut runs = Vec::new();
        for store in Store::all_in(folder)? {
            runs.extend(newest_runs(&store)?);
        }
        runs.retain(Run::is_valid);
        let commits = runs.iter().map(|run| run.commit.clone()).collect();
        Ok(Self { folder: folder.into(), commits, runs })
    }

    /// The back end of its runs, if all have the same.
    fn backend(&self) -> Option<&str> {
        let mut names = self.runs.iter().map(|run| run.key.backend.as_str());
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }

    /// Figures of the valid runs. Their place names `backend`, or the back end of each run.
    fn figures(&self, backend: Option<&str>) -> Figures {
        let mut figures = Figures::new();
        for run in &self.runs {
            let key = &run.key;
            let place = FigurePlace {
                plan: key.plan.clone(),
                cell: key.cell.clone(),
                arm: key.arm.clone(),
                backend: backend.unwrap_or(&key.backend).into(),
            };
            figures.entry(place).or_default().insert(key.seed, figures_of(run));
        }
        figures
    }

    /// Short names for two sides: the last part of the folder if that differs, else the whole path.
    pub fn names<'a>(&'a self, other: &'a Self) -> [String; 2] {
        let [one, two] = [self, other].map(|side| side.folder.display().to_string());
        let last = |side: &Self| side.folder.file_name().map(|name| name.display().to_string());
        match [last(self), last(other)] {
            [Some(one), Some(two)] if one != two => [one, two],
            _ if one != two => [one, two],
            _ => [format!("{one} (old)"), format!("{two} (new)")],
        }
    }
}

/// Metrics of a run and of its parts. Metrics of single sites are left out: no other seed has the same sites.
fn figures_of(run: &Run) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let mut add = |part: &str, name: &str, metrics: &Metrics| {
        let is_meant =
            |(name, value): &(&String, &f64)| value.is_finite() && !name.starts_with(OF_A_SITE);
        for (quantity, value) in metrics.0.iter().filter(is_meant) {
            let (part, name) = (part.into(), name.into());
            let address = Address { part, name, quantity: quantity.clone() };
            figures.insert(address.to_string(), *value);
        }
    };
    add("run", "", &run.metrics);
    for (part, all) in [("flow", &run.flows), ("link", &run.links), ("bundle", &run.bundles)] {
        all.iter().for_each(|one| add(part, &one.name, &one.metrics));
    }
    figures
}

/// One figure on both sides.
struct Compared<'a> {
    place: &'a FigurePlace,
    metric: &'a str,
    /// Values of the old side, by seed.
    old: BTreeMap<u64, f64>,
    /// Values of the new side, by seed.
    new: BTreeMap<u64, f64>,
}

impl Compared<'_> {
    /// The value in each unit, or the difference in each pair.
    fn in_units(&self, seeds: [&[u64]; 2], units: Units) -> Vec<Option<f64>> {
        if let Units::Pairs(_) = units {
            let pair = |seed: &u64| Some(settled(*self.old.get(seed)?, *self.new.get(seed)?));
            return seeds[0].iter().map(pair).collect();
        }
        let of = |side: &BTreeMap<u64, f64>, seed: &u64| side.get(seed).copied();
        let old = seeds[0].iter().map(|seed| of(&self.old, seed));
        old.chain(seeds[1].iter().map(|seed| of(&self.new, seed))).collect()
    }

    /// The change of the figure over all runs; if paired, over the seeds that both sides have.
    fn change(&self, is_paired: bool, p: Option<f64>) -> Option<Change> {
        let of = |side: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>| {
            let counting = side.iter().filter(|(seed, _)| !is_paired || other.contains_key(seed));
            counting.map(|(_, value)| *value).collect::<Vec<f64>>()
        };
        let (old, new) = (of(&self.old, &self.new), of(&self.new, &self.old));
        Some(Change {
            place: self.place.clone(),
            metric: self.metric.to_string(),
            unit: unit(self.metric),
            old: Spread::of(&old)?,
            new: Spread::of(&new)?,
            difference: match is_paired {
                true => {
                    let pairs = old.iter().zip(&new).map(|(old, new)| new - old);
                    Interval::of(&pairs.collect::<Vec<f64>>(), SEED)?
                }
                false => Interval::of_difference(&old, &new, SEED)?,
            },
            p,
        })
    }
}

/// `new` less `old`; 0 if they differ by rounding alone.
fn settled(old: f64, new: f64) -> f64 {
    let difference = new - old;
    if difference.abs() <= ROUNDING * old.abs().max(new.abs()) { 0.0 } else { difference }
}

/// Compares `new` with `old`.
pub fn compare(old: ComparedSide, new: ComparedSide, options: &CompareOptions) -> Comparison {
    // If each side has a back end of its own, compare the back ends.
    let both = old.backend().zip(new.backend()).filter(|(old, new)| old != new);
    let both = both.map(|(old, new)| format!("{old} to {new}"));
    let (before, after) = (old.figures(both.as_deref()), new.figures(both.as_deref()));
    let lone = |one: &Figures, other: &Figures| -> Vec<FigurePlace> {
        one.keys().filter(|place| !other.contains_key(place)).cloned().collect()
    };
    let (only_old, only_new) = (lone(&before, &after), lone(&after, &before));
    let (compared, lost) = compared(&before, &after, options);
    let (seeds, units) = units(&before, &after);
    let is_paired = matches!(units, Units::Pairs(_));
    let values: Vec<_> =
        compared.iter().map(|figure| figure.in_units([&seeds[0], &seeds[1]], units)).collect();
    let blind = blind(&values, units, options.level);
    let shown: Vec<Change> = if blind.is_some() {
        compared.iter().filter_map(|figure| figure.change(is_paired, None)).collect()
    } else {
        let called = compared.iter().zip(adjusted(&values, units));
        let called = called.filter(|(_, p)| *p <= options.level);
        called.filter_map(|(figure, p)| figure.change(is_paired, Some(p))).collect()
    };
    let all = shown.len();
    let shown: Vec<Change> =
        shown.into_iter().filter(|change| change.is_above(options.above)).collect();
    let smaller = if blind.is_some() { 0 } else { all - shown.len() };
    let (untested, changed) = if blind.is_some() { (shown, vec![]) } else { (vec![], shown) };
    Comparison {
        blind,
        level: options.level,
        paired: is_paired,
        seeds: [seeds[0].len(), seeds[1].len()],
        figures: compared.len(),
        lost,
        smaller,
        changed,
        untested,
        only_old,
        only_new,
        old,
        new,
    }
}

/// The figures that both sides have, and how many only one has.
fn compared<'a>(
    before: &'a Figures,
    after: &'a Figures,
    options: &CompareOptions,
) -> (Vec<Compared<'a>>, usize) {
    let mut compared = Vec::new();
    let mut lost = 0;
    for (place, old) in before {
        let Some(new) = after.get(place) else { continue };
        let of = |side: &'a BTreeMap<u64, BTreeMap<String, f64>>, metric: &str| {
            let value =
                |(seed, run): (&u64, &BTreeMap<String, f64>)| Some((*seed, *run.get(metric)?));
            side.iter().filter_map(value).collect::<BTreeMap<u64, f64>>()
        };
        let metrics = old.values().chain(new.values()).flat_map(BTreeMap::keys);
        let metrics: BTreeSet<&String> = metrics.collect();
        for metric in metrics.into_iter().filter(|metric| metric.contains(&options.metric)) {
            let (old, new) = (of(old, metric), of(new, metric));
            if old.is_empty() || new.is_empty() {
                lost += 1;
            } else {
                compared.push(Compared { place, metric, old, new });
            }
        }
    }
    (compared, lost)
}

/// The seeds of each side, and the units of exchange. Units are pairs if, at each place, one side's seeds are
/// a subset of the other side's.
fn units(before: &Figures, after: &Figures) -> ([Vec<u64>; 2], Units) {
    let seeds = |runs: &BTreeMap<u64, _>| runs.keys().copied().collect::<BTreeSet<u64>>();
    let mut all = [BTreeSet::new(), BTreeSet::new()];
    let mut common = BTreeSet::new();
    let mut is_paired = true;
    for (place, old) in before {
        let Some(new) = after.get(place) else { continue };
        let (old, new) = (seeds(old), seeds(new));
        is_paired &= old.is_subset(&new) || new.is_subset(&old);
        common.extend(old.intersection(&new));
        all[0].extend(old);
        all[1].extend(new);
    }
    let lists = |sets: [BTreeSet<u64>; 2]| sets.map(|set| set.into_iter().collect::<Vec<u64>>());
    if is_paired {
        let pairs = common.len();
        return (lists([common.clone(), common]), Units::Pairs(pairs));
    }
    let units = Units::Runs { first: all[0].len(), second: all[1].len() };
    (lists(all), units)
}

/// Why no figure can differ at this level: none has enough runs.
fn blind(figures: &[Vec<Option<f64>>], units: Units, level: f64) -> Option<String> {
    let of_figure = |values: &Vec<Option<f64>>| {
        let known = |values: &[Option<f64>]| values.iter().flatten().count();
        match units {
            Units::Pairs(_) => Units::Pairs(known(values)),
            Units::Runs { first, .. } => {
                let (old, new) = values.split_at(first);
                Units::Runs { first: known(old), second: known(new) }
            }
        }
    };
    let best = figures.iter().map(of_figure).min_by(|a, b| a.p_min().total_cmp(&b.p_min()))?;
    let enough = |make: &dyn Fn(usize) -> Units| (1..=64).find(|it| make(*it).p_min() <= level);
    let have = match best {
        _ if best.p_min() <= level => return None,
        Units::Pairs(pairs) => {
            let needed = enough(&Units::Pairs)?;
            format!("both sides share {pairs} seeds, {needed} are needed")
        }
        Units::Runs { first, second } => {
            let needed = enough(&|runs| Units::Runs { first: runs, second: runs })?;
            format!("the sides have {first} and {second} runs, {needed} each are needed")
        }
    };
    Some(format!("too few runs to test for a change at a level of {:.2} %: {have}", level * 100.0))
}

#[cfg(test)]
mod tests;
