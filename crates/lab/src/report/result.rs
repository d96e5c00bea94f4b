//! The result of a plan in one sentence, with its cost, and as tiles of before and after.

use super::content::{PlanResults, Side};
use super::page::Tile;
use super::tables::definition;
use crate::judge::{Interval, SEED, VALUES_MIN};
use crate::metrics::statistics::Sorted;
use crate::metrics::{Address, higher_is_better, title, unit};
use crate::output::{self, number, percent, text_of_share};
use crate::plan::figures::FigureKind;
use crate::plan::setup::boxes;

/// The arm with the boxes as operators get these, in plans that have it.
pub const DEFAULT_BOXES: &str = "copa_default";
/// Most tiles of a plan: two rows on a wide page.
const TILES: usize = 8;

/// The payload: the cost of a gain.
const COST: &str = "goodput_mbps";
/// The metrics that readers ask for first, gains before costs, with their names for readers. The first one that
/// both arms have is the result.
const MAIN: [(&str, &str); 8] = [
    ("fct_p50_ms", "median request time"),
    ("rtt_p50_ms", "median ping"),
    ("fct_p99_ms", "99th percentile of request times"),
    ("video_rate_mbps", "rate of videos"),
    ("links/forward/sojourn_mean_ms", "mean wait at the bottleneck"),
    ("links/forward/queue_mean_packets", "mean queue at the bottleneck"),
    ("mean_srtt_l4", "mean smoothed round trip"),
    (COST, "payload"),
];

/// The result of a plan on one back end: a sentence, and the main metrics before and after.
pub type Found = (String, Vec<Tile>);

/// A metric of the compared arms.
struct Change {
    /// Medians without and with, over cells and seeds.
    values: [f64; 2],
    /// Relative change: over seeds, or over cells if there are several.
    share: Interval,
    /// Number of ratios, and the thing that each is of.
    count: (usize, &'static str),
}

impl Change {
    /// `5 seeds, range 38 to 44 %`, with signs if `is_signed`; no range of one value.
    fn spread(&self, is_signed: bool) -> String {
        let (Interval { low, high, .. }, (count, of)) = (self.share, self.count);
        let is_range = count < VALUES_MIN || of == "cell";
        let name = if is_range { "range" } else { "95 % interval" };
        let [from, to] = [low, high].map(text_of_share);
        let [least, most] = [low.abs().min(high.abs()), low.abs().max(high.abs())].map(percent);
        let range = match low.signum() == high.signum() {
            _ if from == to => String::new(),
            _ if is_signed => format!(", {name} {from} to {to}"),
            true if least == most => String::new(),
            true => format!(", {name} {least} to {most} %"),
            false => format!(", {name} {} % less to {} % more", percent(low), percent(high)),
        };
        format!("{count} {of}{}{range}", if count == 1 { "" } else { "s" })
    }
}

/// The results of `plan`, one for each back end.
pub fn of(plan: &PlanResults<'_>) -> Vec<Found> {
    let backends = plan.backends();
    let found = backends.iter().map(|backend| {
        let side = |arm: &str| plan.sides.iter().find(|it| it.arm == arm && it.backend == *backend);
        let sides = side(plan.references.baseline()).zip(side(subject(plan)));
        let compared = sides.and_then(|sides| compared(plan, sides));
        let (sentence, tiles) = compared.unwrap_or_else(|| (uncompared(plan, backend), Vec::new()));
        let on = if backends.len() > 1 { format!("{backend}: ") } else { String::new() };
        (format!("{on}{sentence}"), tiles)
    });
    found.collect()
}

/// The arm whose result is stated: the boxes as operators get these, else the plan's first arm that is no
/// reference.
fn subject<'a>(plan: &'a PlanResults<'_>) -> &'a str {
    let names = || plan.arms.iter().map(|(name, _)| name.as_str());
    let of = &plan.references;
    let again = format!("{}_again", of.baseline());
    let references = [of.baseline(), of.ideal(), of.alone(), &again];
    let is_studied = |name: &&str| !references.contains(name);
    let found = names().find(|name| *name == DEFAULT_BOXES && is_studied(name));
    found.or_else(|| names().find(is_studied)).unwrap_or_default()
}

fn compared(plan: &PlanResults<'_>, (before, after): (&Side, &Side)) -> Option<Found> {
    let of_plan = plan.figures.iter().filter(|figure| {
        matches!(figure.kind, FigureKind::Bars | FigureKind::Curve | FigureKind::Plane)
    });
    let of_plan = of_plan.flat_map(|figure| &figure.of);
    let of_plan = of_plan.map(|of| (of.to_string(), title(&of.quantity)));
    let main = MAIN.iter().map(|(at, name)| (at.to_string(), name.to_string()));
    let mut found: Vec<(String, String, Change)> = Vec::new();
    for (at, name) in main.chain(of_plan) {
        let change = change(plan, before, after, &at.parse().ok()?);
        let is_new = found.iter().all(|it| it.0 != at);
        found.extend(change.filter(|_| is_new).map(|change| (at, name, change)));
    }
    let change = |name: &str, it: &Change| format!("{name} {}", output::change(it.share.median));
    let (_, name, first) = found.first()?;
    let gain = format!("{} ({})", change(name, first), first.spread(false));
    let cost = found.iter().skip(1).find(|it| it.0 == COST);
    let cost = cost.map_or(String::new(), |(_, name, cost)| format!("; {}", change(name, cost)));
    let has_boxes = |side: &Side| {
        let runs = plan.runs.iter().filter(|run| run.key.arm == side.arm);
        !boxes(&runs.map(|run| &run.parameters).collect::<Vec<_>>()).is_empty()
    };
    let who = match [before, after].map(has_boxes) {
        [false, true] => format!("With boxes ({})", after.arm),
        _ => format!("With {} in place of {}", after.arm, before.arm),
    };
    let sentence = format!("{who}, the {gain}{cost}.");
    let tiles = found.iter().take(TILES).map(|(at, name, found)| tile(at, name, found)).collect();
    Some((sentence, tiles))
}

fn tile(at: &str, name: &str, found: &Change) -> Tile {
    let of: Address = at.parse().expect("it was found");
    let unit = unit(at);
    let value = |value| format!("{}\u{a0}{unit}", number(value)).trim_end().to_string();
    let Interval { median: share, low, high } = found.share;
    // A range over both sides of 0 shows no direction.
    let is_clear = percent(share) != "0" && low.signum() == high.signum();
    let higher = higher_is_better(&of.part, &of.quantity).filter(|_| is_clear);
    Tile {
        title: name.into(),
        name: definition(at),
        values: found.values.map(value),
        change: text_of_share(share),
        spread: format!("median of {}", found.spread(true)),
        better: higher.map(|higher| higher == (share > 0.0)),
    }
}

/// The change from `before` to `after`; `None` where no cell and seed has both values.
fn change(plan: &PlanResults<'_>, before: &Side, after: &Side, at: &Address) -> Option<Change> {
    let median = |values: &[f64]| Sorted::new(values.iter().copied()).quantile(0.5);
    let cells = plan.cells();
    let mut values = [Vec::new(), Vec::new()];
    let (mut of_cells, mut of_seeds) = (Vec::new(), Vec::new());
    for cell in &cells {
        of_seeds.clear();
        for run in plan.valid_in(cell, after) {
            let twin = plan.valid_in(cell, before).find(|it| it.key.seed == run.key.seed);
            let Some((old, new)) = twin.and_then(|twin| twin.get(at)).zip(run.get(at)) else {
                continue;
            };
            let share = (new - old) / old.abs();
            if share.is_finite() {
                of_seeds.push(share);
                values[0].push(old);
                values[1].push(new);
            }
        }
        of_cells.extend(median(&of_seeds));
    }
    let values = [median(&values[0])?, median(&values[1])?];
    let (shares, of) = if cells.len() > 1 { (of_cells, "cell") } else { (of_seeds, "seed") };
    let mut share = Interval::of(&shares, SEED)?;
    if of == "cell" {
        let sorted = Sorted::new(shares.iter().copied());
        (share.low, share.high) = (sorted.quantile(0.0)?, sorted.quantile(1.0)?);
    }
    Some(Change { values, share, count: (shares.len(), of) })
}

/// The result of a plan without a comparison: the payload of each arm in the first cell.
fn uncompared(plan: &PlanResults<'_>, backend: &str) -> String {
    let arms = plan.summaries.iter().filter(|arm| arm.backend == backend).take(plan.arms.len());
    let arms = arms.filter_map(|arm| {
        let payload = number(arm.metrics.get(COST)?);
        Some(format!("{payload} {} with {}", unit(COST), plan.name(arm)))
    });
    let arms = arms.collect::<Vec<_>>().join(", ");
    let is_valid = plan.runs.iter().any(|run| run.key.backend == backend && run.is_valid());
    match is_valid {
        false => "No valid run.".into(),
        true if arms.is_empty() => "The tables and figures have the results.".into(),
        true => format!("No comparison with a baseline. Payload: {arms}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: [f64; 2], [low, median, high]: [f64; 3], count: usize) -> Change {
        Change { values, share: Interval { median, low, high }, count: (count, "seed") }
    }

    #[test]
    fn spread_is_range_or_interval() {
        let spread = |edges, count| found([1.0; 2], edges, count).spread(false);
        assert_eq!(spread([-0.44, -0.41, -0.38], 5), "5 seeds, range 38 to 44 %");
        assert_eq!(spread([-0.01, 0.0, 0.02], 6), "6 seeds, 95 % interval 1 % less to 2 % more");
        assert_eq!(spread([0.1; 3], 1), "1 seed");
    }

    #[test]
    fn tiles_say_which_way_is_better() {
        let less = found([137.0, 80.8], [-0.44, -0.41, -0.38], 5);
        let tiles =
            ["fct_p50_ms", "goodput_mbps", "requests_total"].map(|at| tile(at, "name", &less));
        assert_eq!([0, 1, 2].map(|it| tiles[it].better), [Some(true), Some(false), None]);
        assert_eq!((&*tiles[0].change, &*tiles[0].values[0]), ("-41.0 %", "137\u{a0}ms"));
        let open = found([90.0, 91.0], [-0.01, 0.01, 0.03], 5);
        assert_eq!(tile("goodput_mbps", "name", &open).better, None);
        assert_eq!(tiles[0].spread, "median of 5 seeds, range -44.0 % to -38.0 %");
    }
}
