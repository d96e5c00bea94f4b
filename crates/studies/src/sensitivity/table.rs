//! Evaluation of the rows for each number.

use std::collections::BTreeMap;

use forebay_core::bundle::tuning::Tuning;
use serde::Serialize;

use super::cases::CaseCell;
use super::run::{Measured, Row, Variant};
use forebay_lab::metrics::Address;
use forebay_lab::metrics::statistics::mean;
use forebay_lab::output::number;

/// A change counts as more than chance if it exceeds this multiple of the noise.
pub const BEYOND: f64 = 3.0;
/// Least noise of a figure, as a share of its mean: otherwise seeds that happen to agree would make a change
/// infinite. At twice this value, more numbers seem to have no effect.
pub const NOISE_SHARE: f64 = 0.005;
/// Least noise of a figure whose mean is near 0, in its unit: the last digit in `sensitivity.csv`.
pub const NOISE_STEP: f64 = 1e-4;

/// The change made to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Half the default.
    Half,
    /// Twice the default.
    Double,
}

impl Change {
    /// The factor applied to the default.
    pub const fn factor(self) -> f64 {
        match self {
            Self::Half => 0.5,
            Self::Double => 2.0,
        }
    }

    /// The name `half` or `double`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Half => "half",
            Self::Double => "double",
        }
    }
}

/// A figure with all defaults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DefaultFigure {
    /// The cell and the metric.
    pub name: String,
    /// Mean over the seeds; `None` if not measured.
    pub mean: Option<f64>,
    /// Standard deviation over the seeds, at least [`NOISE_SHARE`] of the mean and [`NOISE_STEP`].
    pub noise: Option<f64>,
}

/// A figure that runs have only with the default of a number, or only with another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// Only runs with the default have it.
    Gone,
    /// Only runs with the other value have it.
    New,
}

impl Presence {
    /// The name `gone` or `new`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::New => "new",
        }
    }
}

/// The effect of a number at another value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The number.
    pub number: &'static str,
    /// The group of the number in the table.
    pub group: &'static str,
    /// Default of the number, in the notation of plans.
    pub default: String,
    /// The change made to the number.
    pub change: Change,
    /// The value, in the notation of plans.
    pub value: String,
    /// Whether `value` is the end of the number's range.
    pub clamped: bool,
    /// Number of finished runs.
    pub runs: usize,
    /// Number of requested runs.
    pub wanted: usize,
    /// Runs with the same value of every metric as with the default.
    pub same: usize,
    /// Runs that failed.
    pub failed: usize,
    /// Reason why it cannot be measured; `None` if it can.
    pub refused: Option<String>,
    /// Change of each measured figure in units of its noise, by figure name.
    pub changes: BTreeMap<String, f64>,
    /// Figures that a run has with only one of the two values, by figure name. Each is a change, whatever the
    /// noise.
    pub presences: BTreeMap<String, Presence>,
}

impl Sensitivity {
    /// The figure that changes most, and its change in units of noise.
    pub fn largest(&self) -> Option<(&str, f64)> {
        let changes = self.changes.iter().map(|(name, change)| (name.as_str(), *change));
        changes.max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()))
    }

    /// Whether some figure changes by more than [`BEYOND`] times its noise, is gone or new, or a run failed.
    pub fn is_beyond_noise(&self) -> bool {
        let is_large = self.largest().is_some_and(|(_, change)| change.abs() > BEYOND);
        self.failed > 0 || !self.presences.is_empty() || is_large
    }
}

/// The effects of all numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SensitivityTable {
    /// Commit of the program that made the runs.
    pub commit: &'static str,
    /// Number of seeds for the changed numbers.
    pub seeds: usize,
    /// Every figure with all defaults.
    pub defaults: Vec<DefaultFigure>,
    /// Every number, halved and doubled.
    pub numbers: Vec<Sensitivity>,
}

impl SensitivityTable {
    /// The table of the measurements.
    pub(super) fn of(measured: &Measured) -> Self {
        let figures =
            measured.cells.iter().map(|cell| figures_of(measured, cell)).collect::<Vec<_>>();
        let numbers = measured.variants.iter().map(|it| sensitivity(measured, &figures, it));
        Self {
            commit: measured.commit,
            seeds: measured.seeds.len(),
            numbers: numbers.collect(),
            defaults: figures.concat(),
        }
    }

    /// The table as comma-separated values: first the defaults and their noise, then a row for each number
    /// and change.
    pub fn csv(&self) -> String {
        let mut text =
            "number,group,default,change,value,clamped,runs,wanted,same,failed,refused".to_owned();
        let columns = |text: &mut String, value: &dyn Fn(&DefaultFigure) -> String| {
            self.defaults.iter().for_each(|figure| *text += &format!(",{}", value(figure)));
            text.push('\n');
        };
        columns(&mut text, &|figure| figure.name.clone());
        let optional = |value: Option<f64>| value.map_or(String::new(), |it| format!("{it:.4}"));
        text += ",,,mean of defaults,,,,,,,";
        columns(&mut text, &|figure| optional(figure.mean));
        text += ",,,noise of defaults,,,,,,,";
        columns(&mut text, &|figure| optional(figure.noise));
        for it in &self.numbers {
            let Sensitivity { number, group, default, change, value, runs, wanted, same, .. } = it;
            let (clamped, failed) = (if it.clamped { "yes" } else { "no" }, it.failed);
            let change = change.name();
            let refused = if it.refused.is_some() { "yes" } else { "no" };
            text += &format!(
                "{number},\"{group}\",{default},{change},{value},{clamped},{runs},{wanted},{same},{failed},{refused}"
            );
            columns(&mut text, &|DefaultFigure { name, .. }| {
                let change = || it.changes.get(name).map_or(String::new(), |it| number_of(*it));
                it.presences.get(name).map_or_else(change, |it| it.name().into())
            });
        }
        text
    }
}

/// A change in units of noise, with a sign.
pub(super) fn number_of(change: f64) -> String {
    let text = number(change);
    if change > 0.0 { format!("+{text}") } else { text }
}

/// The figures of a cell with all defaults.
fn figures_of(measured: &Measured, cell: &CaseCell) -> Vec<DefaultFigure> {
    let seeds = measured.default_seeds();
    let figure = |address: &Address| {
        let rows = seeds.iter().filter_map(|seed| measured.row(cell, None, *seed));
        let values: Vec<f64> =
            rows.filter_map(|row| *row.figures.get(&address.to_string())?).collect();
        let mean = mean(values.iter().copied());
        let least = mean.map_or(0.0, |mean| NOISE_SHARE * mean.abs()).max(NOISE_STEP);
        let noise = deviation(&values).map(|noise| noise.max(least));
        DefaultFigure { name: format!("{} {address}", cell.name), mean, noise }
    };
    cell.figures.iter().map(figure).collect()
}

/// Standard deviation of a sample; `None` for fewer than two values.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values.iter().copied())?;
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (sum / (values.len() - 1) as f64).sqrt())
}

/// The effect of `variant`. Each figure is compared with the default's figure for the same seed.
fn sensitivity(
    measured: &Measured,
    figures: &[Vec<DefaultFigure>],
    variant: &Variant,
) -> Sensitivity {
    let name = variant.scaled.name;
    let group = Tuning::GROUPS.iter().find(|(.., names)| names.contains(&name));
    let mut found = Sensitivity {
        number: name,
        group: group.map_or("", |(group, ..)| group),
        default: variant.scaled.default.clone(),
        change: variant.change,
        value: variant.scaled.value.clone(),
        clamped: variant.scaled.is_clamped,
        runs: 0,
        wanted: measured.cells.len() * measured.seeds.len(),
        same: 0,
        failed: 0,
        refused: measured.refused.get(&variant.label()).cloned(),
        changes: BTreeMap::new(),
        presences: BTreeMap::new(),
    };
    if found.refused.is_some() {
        found.wanted = 0;
        return found;
    }
    for (cell, figures) in measured.cells.iter().zip(figures) {
        let pair = |seed: &u64| {
            Some((measured.row(cell, None, *seed)?, measured.row(cell, Some(variant), *seed)?))
        };
        let pairs: Vec<_> = measured.seeds.iter().filter_map(pair).collect();
        found.runs += pairs.len();
        found.same +=
            pairs.iter().filter(|(one, other)| one.metrics_sha256 == other.metrics_sha256).count();
        found.failed += pairs.iter().filter(|(_, other)| other.failed.is_some()).count();
        for (address, DefaultFigure { name, noise, .. }) in cell.figures.iter().zip(figures) {
            let value = |row: &Row| *row.figures.get(&address.to_string())?;
            let change = pairs.iter().filter_map(|(one, other)| Some(value(other)? - value(one)?));
            if let (Some(change), Some(noise)) = (mean(change), *noise) {
                found.changes.insert(name.clone(), change / noise);
            }
            let presence = pairs.iter().filter(|(_, other)| other.failed.is_none()).find_map(
                |(one, other)| match [value(one), value(other)] {
                    [Some(_), None] => Some(Presence::Gone),
                    [None, Some(_)] => Some(Presence::New),
                    _ => None,
                },
            );
            found.presences.extend(presence.map(|it| (name.clone(), it)));
        }
    }
    found
}
