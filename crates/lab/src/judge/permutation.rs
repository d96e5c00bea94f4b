//! Which of many figures differ between two sides, with one bound on the chance of any false alarm.
//!
//! If the sides are equal, exchanging a seed's two runs, or any runs of the two sides, does not change the
//! probability of the data. The test therefore compares the data with all such exchanges. All figures of a
//! run are exchanged together. The adjusted p of a figure is the share of exchanges in which any figure
//! differs as much (Westfall and Young, Resampling-Based Multiple Testing, 1993, section 2.3: single-step
//! maxT). This holds for any distribution and for any dependence between figures.

use forebay_core::random::Streams;

/// Most exchanges to list; if more are possible, this many are drawn at random.
const EXCHANGES_MAX: usize = 8192;
/// Most units with an exact test: it lists all exchanges one by one.
const LISTED_UNITS: usize = 14;
/// Rounding error of sums: smaller differences count as equal.
const ROUNDING: f64 = 1e-9;

/// The units of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Seeds that both sides ran; a figure is the difference of the pair.
    Pairs(usize),
    /// Runs; the first side's come first.
    Runs {
        /// Runs of the first side.
        first: usize,
        /// Runs of the second side.
        second: usize,
    },
}

impl Units {
    fn count(self) -> usize {
        match self {
            Self::Pairs(pairs) => pairs,
            Self::Runs { first, second } => first + second,
        }
    }

    /// The side of each unit in the data, as +1 or -1.
    fn seen(self) -> Vec<f64> {
        let first = match self {
            Self::Pairs(pairs) => pairs,
            Self::Runs { first, .. } => first,
        };
        (0..self.count()).map(|unit| if unit < first { 1.0 } else { -1.0 }).collect()
    }

    /// The sides of all units in each exchange, the data first. The mirror image of an exchange gives the
    /// same figure and is left out.
    fn exchanges(self) -> Vec<Vec<f64>> {
        let seen = self.seen();
        let count = seen.len();
        if count > LISTED_UNITS {
            return drawn(self, seen);
        }
        let of = |mask: usize| -> Vec<f64> {
            let is_moved = |unit: usize| mask >> unit & 1 == 1;
            (0..count).map(|unit| if is_moved(unit) { -1.0 } else { 1.0 }).collect()
        };
        let moved = |sides: &[f64]| sides.iter().filter(|side| **side < 0.0).count();
        let is_first = |sides: &[f64]| sides.first() == Some(&1.0);
        let others = (0..1_usize << count).map(of).filter(|sides| {
            let is_one = match self {
                Self::Pairs(_) => is_first(sides),
                Self::Runs { first, second } => {
                    moved(sides) == second && (first != second || is_first(sides))
                }
            };
            is_one && *sides != seen
        });
        std::iter::once(seen.clone()).chain(others).collect()
    }

    /// The least possible adjusted p.
    pub fn p_min(self) -> f64 {
        let all = match self {
            Self::Pairs(pairs) => 2.0_f64.powi(pairs.saturating_sub(1).min(1000) as i32),
            Self::Runs { first, second } => {
                let steps = (1..=first.min(second)).map(|step| step as f64);
                let ways: f64 =
                    steps.map(|step| (self.count() as f64 + 1.0 - step) / step).product();
                if first == second { (ways / 2.0).max(1.0) } else { ways }
            }
        };
        let listed = self.count() <= LISTED_UNITS;
        1.0 / if listed { all.round() } else { all.round().min(EXCHANGES_MAX as f64) }
    }
}

fn drawn(units: Units, seen: Vec<f64>) -> Vec<Vec<f64>> {
    let mut random = Streams::new(1).stream("exchanges");
    let mut exchanges = vec![seen.clone()];
    for _ in 1..EXCHANGES_MAX {
        let mut sides = seen.clone();
        match units {
            Units::Pairs(_) => {
                let flipped = sides.iter_mut().filter(|_| random.chance(0.5));
                flipped.for_each(|side| *side = -*side);
            }
            Units::Runs { .. } => random.shuffle(&mut sides),
        }
        exchanges.push(sides);
    }
    exchanges
}

/// A figure prepared for the test: its value in each unit that has one.
struct Ready {
    values: Vec<(usize, f64)>,
    squares: f64,
    is_paired: bool,
}

impl Ready {
    fn new(values: &[Option<f64>], units: Units) -> Self {
        let is_paired = matches!(units, Units::Pairs(_));
        let known = values.iter().enumerate().filter_map(|(unit, value)| Some((unit, (*value)?)));
        let mut values: Vec<(usize, f64)> = known.collect();
        let greatest = values.iter().map(|(_, value)| value.abs()).fold(0.0, f64::max);
        if !is_paired {
            let mean = values.iter().map(|(_, value)| value).sum::<f64>() / values.len() as f64;
            values.iter_mut().for_each(|(_, value)| *value -= mean);
        }
        // For a constant figure the remaining differences are rounding errors.
        let is_constant = values.iter().all(|(_, value)| value.abs() <= 1e-12 * greatest);
        let squares = match is_constant && !is_paired {
            true => 0.0,
            false => values.iter().map(|(_, value)| value * value).sum(),
        };
        Self { values, squares, is_paired }
    }

    /// How closely the figure follows the sides: the absolute value of their correlation, 0 to 1. It orders
    /// exchanges as Student's t does, and stays finite if a figure hardly varies.
    fn size(&self, sides: &[f64]) -> f64 {
        let count = self.values.len() as f64;
        let product: f64 = self.values.iter().map(|(unit, value)| sides[*unit] * value).sum();
        let mean: f64 = match self.is_paired {
            true => 0.0,
            false => self.values.iter().map(|(unit, _)| sides[*unit]).sum::<f64>() / count,
        };
        let squares = self.squares * count * (1.0 - mean * mean);
        if squares > 0.0 { product.abs() / squares.sqrt() } else { 0.0 }
    }
}

/// The adjusted p of each figure. A figure has a value, or none, for each of the `units`.
pub fn adjusted(figures: &[Vec<Option<f64>>], units: Units) -> Vec<f64> {
    let ready: Vec<Ready> = figures.iter().map(|values| Ready::new(values, units)).collect();
    let exchanges = units.exchanges();
    let greatest =
        |sides: &Vec<f64>| ready.iter().map(|figure| figure.size(sides)).fold(0.0, f64::max);
    let greatest: Vec<f64> = exchanges.iter().map(greatest).collect();
    let p = |figure: &Ready| {
        let seen = figure.size(&exchanges[0]);
        let as_great = greatest.iter().filter(|size| **size >= seen - ROUNDING).count();
        as_great as f64 / exchanges.len() as f64
    };
    ready.iter().map(p).collect()
}

#[cfg(test)]
mod tests {
    use forebay_core::random::Stream;

    use super::*;

    #[test]
    fn permutations_are_complete_and_observed_is_first() {
        let pairs = Units::Pairs(4).exchanges();
        assert_eq!((pairs.len(), &pairs[0][..]), (8, &[1.0; 4][..]));
        let units = Units::Runs { first: 2, second: 3 };
        let runs = units.exchanges();
        assert_eq!((runs.len(), &runs[0][..]), (10, &[1.0, 1.0, -1.0, -1.0, -1.0][..]));
        assert_eq!(units.p_min(), 0.1);
        assert_eq!(Units::Pairs(8).p_min(), 1.0 / 128.0);
        assert_eq!(Units::Runs { first: 5, second: 5 }.p_min(), 1.0 / 126.0);
        assert!((Units::Runs { first: 1, second: 20 }.p_min() - 1.0 / 21.0).abs() < 1e-9);
        assert_eq!(Units::Runs { first: 10, second: 10 }.p_min(), 1.0 / EXCHANGES_MAX as f64);
        let many = Units::Runs { first: 10, second: 10 }.exchanges();
        assert_eq!(many.len(), EXCHANGES_MAX);
        assert!(many.iter().all(|sides| sides.iter().sum::<f64>() == 0.0));
    }

    #[test]
    fn consistent_change_is_significant_wavering_is_not() {
        let moved: Vec<Option<f64>> =
            (0..10).map(|unit| Some(1.0 + 0.01 * f64::from(unit))).collect();
        let wavers = (0..10).map(|unit| Some(if unit % 2 == 0 { 1.0 } else { -1.2 })).collect();
        let same = vec![Some(0.0); 10];
        let p = adjusted(&[moved, wavers, same], Units::Pairs(10));
        assert_eq!(p[0], 1.0 / 512.0);
        assert!(p[1] > 0.5 && p[2] == 1.0, "{p:?}");
    }

    #[test]
    fn unit_without_figure_counts_for_neither_side() {
        let units = Units::Runs { first: 5, second: 5 };
        let mut values: Vec<Option<f64>> =
            (0..10).map(|unit| Some(if unit < 5 { 3.0 } else { 4.0 })).collect();
        assert_eq!(adjusted(&[values.clone()], units), [1.0 / 126.0]);
        values[0] = None;
        assert_eq!(adjusted(&[values.clone()], units), [1.0 / 126.0]);
        // Move one value of the first side among the second side's.
        values[1] = Some(4.0);
        let p = adjusted(&[values], units)[0];
        assert!(p > 0.01 && p < 0.2, "{p}");
        assert_eq!(adjusted(&[vec![None; 10]], units), [1.0]);
        // A constant figure does not hide the differences of other figures.
        let uneven = Units::Runs { first: 3, second: 20 };
        let told = (0..23).map(|unit| Some(if unit < 3 { 1.0 } else { 2.0 })).collect();
        let p = adjusted(&[vec![Some(0.1); 23], told], uneven);
        assert!(p[0] == 1.0 && p[1] < 0.01, "{p:?}");
    }

    /// Figures of equal sides: heavy tails, counts that are mostly 0, and sums of other figures.
    fn equal(random: &mut Stream, units: usize) -> Vec<Vec<Option<f64>>> {
        let mut figures: Vec<Vec<Option<f64>>> = Vec::new();
        for figure in 0..60 {
            let value = |random: &mut Stream| match figure % 3 {
                0 => random.exponential() / (0.05 + random.unit()),
                1 => f64::from(u8::from(random.chance(0.2))),
                _ => random.unit(),
            };
            figures.push((0..units).map(|_| Some(value(random))).collect());
        }
        let sum = |unit: usize| figures.iter().filter_map(|values| values[unit]).sum();
        figures.push((0..units).map(|unit| Some(sum(unit))).collect());
        figures
    }

    #[test]
    fn false_alarm_rate_matches_the_level() {
        let mut random = Streams::new(11).stream("equal");
        let mut calls = 0;
        for _ in 0..100 {
            let figures = equal(&mut random, 14);
            let p = adjusted(&figures, Units::Runs { first: 7, second: 7 });
            calls += u32::from(p.iter().any(|p| *p <= 0.05));
        }
        // 5 are expected; more than 12 in one case of two thousand.
        assert!(calls <= 12, "{calls} of 100 at a level of 5 %");
    }
}
