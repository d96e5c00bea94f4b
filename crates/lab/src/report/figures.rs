//! The figures of a plan, drawn from their descriptions.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::units::{ByteCount, parse_duration};

use super::content::{PlanResults, Side};
use super::figure::{
    Axis, NamedCurve, Point, Ribbon, apart, bars, curves, differences, plane, ribbons, thinned,
};
use super::page::{self, Block};
use super::tables;
use crate::judge::Interval;
use crate::metrics::requests::{CLASSES, class};
use crate::metrics::statistics::{Sorted, mean};
use crate::metrics::{
    Address, OF_REQUESTS, Outcome, SERIES, Transition, heading, title, unit as unit_of,
};
use crate::output::cell as text_of;
use crate::plan::figures::{Abscissa, Facet, Figure, FigureKind};
use crate::store::{Run, StoreError};
use crate::summary::{ArmSummary, Requests};

/// Most steps of a ribbon over a run.
const STEPS: f64 = 300.0;
/// Shortest step of a ribbon (s): the interval of the coarsest series.
const STEP_MIN_S: f64 = 0.1;
/// Most changes of state shown of a run; nobody reads a longer table.
const TRANSITIONS: usize = 50;
/// The horizontal axis of timelines and ribbons.
const TIME: Axis<'_> = Axis::linear("time (s)");
/// Seed of the intervals of curves.
const SEED: u64 = 1;
/// Most panels of the figure of payload over delay.
const PANELS: usize = 9;
/// Delays of hosts, the best-known first.
const DELAYS: [&str; 4] =
    ["rtt_p50_ms", "mean_srtt_l4", "fct_p50_ms", "links/forward/sojourn_mean_ms"];
/// A figure of a plan, and the difference to the baseline.
type Drawn = (Option<serde_json::Value>, Option<page::Chart>);
/// A curve whose largest number is this many times its smallest has a logarithmic axis.
const FAR: f64 = 50.0;

/// Data to draw: some cells of a plan.
pub struct Drawing<'a> {
    /// The plan.
    pub plan: &'a PlanResults<'a>,
    /// The requests of its runs.
    pub requests: &'a Requests<'a>,
    /// The cells.
    pub cells: &'a [&'a str],
    /// Most points of a curve.
    pub points: usize,
}

impl Drawing<'_> {
    /// The figure and the text below it; empty without data.
    pub fn blocks(&self, figure: &Figure) -> Result<Vec<Block>, StoreError> {
        let spec = match figure.kind {
            FigureKind::Cdf if figure.of.iter().any(is_series) => self.shares_of_time(figure)?,
            FigureKind::Cdf => self.distributions(figure)?,
            FigureKind::Curve => (self.against_cells(figure), None),
            FigureKind::Plane => (self.operating_points(figure, false), None),
            FigureKind::Bars => return Ok(self.bars(figure)),
            FigureKind::Timeline => self.first_seeds(figure)?,
            FigureKind::Ribbon => self.all_seeds(figure)?,
            FigureKind::Transitions => return self.transitions(figure),
        };
        let first = self.sides().find_map(|(cell, side)| self.plan.valid_in(cell, side).next());
        let seed = first.filter(|_| figure.kind == FigureKind::Timeline).map(|run| run.key.seed);
        let seed = seed.map_or(String::new(), |seed| format!(" Seed {seed}."));
        let caption = figure.title.clone() + &seed;
        let drawn = |spec| Block::Figure(page::Chart { caption, spec });
        let (spec, difference) = spec;
        Ok(spec.map(drawn).into_iter().chain(difference.map(Block::Added)).collect())
    }

    /// The difference to the baseline of each curve, where curves overlap the baseline's.
    fn difference(&self, series: &[NamedCurve], x: Axis<'_>, y: Axis<'_>) -> Option<page::Chart> {
        let baseline = self.plan.references.baseline();
        let base_of = |one: &NamedCurve| {
            let side = self.plan.sides.iter().find(|side| side.label == one.name)?;
            Some(self.plan.label(baseline, &side.backend))
        };
        let found = differences(series, base_of);
        let title = format!("{}, minus {baseline}", y.title);
        let caption = format!("Difference to {baseline} where curves of the figure above overlap.");
        let draw = || curves(&found, &self.plan.order(), x, Axis::linear(&title), true);
        (!found.is_empty()).then(|| page::Chart { caption, spec: draw() })
    }

    /// Payload over delay, a point for each run; `None` if the runs have no delay in common, or there are
    /// too many cells.
    pub fn rate_over_delay(&self) -> Option<page::Chart> {
        let runs = || self.sides().flat_map(|(cell, side)| self.plan.valid_in(cell, side));
        let find = |at: &&str| runs().all(|run| at.parse().is_ok_and(|at| run.get(&at).is_some()));
        let delay = DELAYS.iter().find(|at| self.cells.len() <= PANELS && find(at))?;
        let figure = Figure {
            kind: FigureKind::Plane,
            title: "Payload over delay, a point for each run. Up and to the right is better."
                .into(),
            of: ["goodput_mbps", delay].iter().flat_map(|at| at.parse()).collect(),
            facet: Some(Facet::Cell),
            baseline: None,
            published: Vec::new(),
        };
        let spec = self.operating_points(&figure, true)?;
        Some(page::Chart { caption: figure.title, spec })
    }

    /// The sides in each cell.
    fn sides(&self) -> impl Iterator<Item = (&str, &Side)> {
        self.cells.iter().flat_map(|cell| self.plan.sides.iter().map(move |side| (*cell, side)))
    }

    fn distributions(&self, figure: &Figure) -> Result<Drawn, StoreError> {
        let Some(of) = figure.of.first() else { return Ok((None, None)) };
        let panels = self.panels(figure);
        let mut series = Vec::new();
        for (cell, side) in self.sides() {
            let runs = self.plan.valid_in(cell, side).map(|run| self.requests.of(run.id));
            let runs = runs.collect::<Result<Vec<_>, _>>()?;
            for (place, panel) in panels.iter().enumerate() {
                let is_in = |flow: &str, outcome: &Outcome| {
                    ["", "*", flow].contains(&of.name.as_str())
                        && match figure.facet {
                            Some(Facet::Size) => class(outcome.size_bytes) == panel.name,
                            Some(Facet::Flow) => flow == panel.name,
                            Some(Facet::Cell) => cell == panel.name,
                            _ => true,
                        }
                };
                let all = runs.iter().flat_map(|run| run.iter());
                let shown = all.filter(|((flow, _), outcome)| is_in(flow, outcome));
                let values = shown.filter_map(|(_, outcome)| outcome.get(&of.quantity)).collect();
                let curve = NamedCurve::distribution(&side.label, values).in_panel(&panel.title);
                if !curve.points.is_empty() {
                    let points = thinned(&curve.points, self.points);
                    series.push((place, NamedCurve { points, ..curve }));
                }
            }
        }
        series.sort_by_key(|(place, _)| *place);
        let series: Vec<NamedCurve> = series.into_iter().map(|(_, series)| series).collect();
        let entry = OF_REQUESTS.iter().find(|entry| entry.name == of.quantity);
        let x = entry.map_or(String::new(), |it| format!("{} ({})", it.summary, it.unit));
        let y = Axis::linear("share of requests");
        let draw = || curves(&series, &self.plan.order(), Axis::log(&x), y, true);
        Ok(((!series.is_empty()).then(draw), self.difference(&series, Axis::log(&x), y)))
    }

    /// Distribution of a quantity over time: the share of its equally spaced samples up to each value.
    fn shares_of_time(&self, figure: &Figure) -> Result<Drawn, StoreError> {
        let mut series = Vec::new();
        self.over_time(figure, usize::MAX, |panel, name, runs| {
            let values = runs.into_iter().flatten().map(|(_, value)| value).collect();
            let curve = NamedCurve::distribution(name, values).in_panel(panel);
            series.push(NamedCurve { points: thinned(&curve.points, self.points), ..curve });
        })?;
        let x = unit(figure);
        let y = Axis::linear("share of the time");
        let draw = || apart(curves(&series, &self.plan.order(), Axis::linear(&x), y, true));
        Ok(((!series.is_empty()).then(draw), self.difference(&series, Axis::linear(&x), y)))
    }

    /// A metric over the number of each cell: median and interval of the seeds.
    fn against_cells(&self, figure: &Figure) -> Option<serde_json::Value> {
        let mut axis = String::new();
        let mut bands: Vec<Ribbon> = Vec::new();
        for (cell, side) in self.sides() {
            let at = Abscissa::of(cell)?;
            let runs = self.plan.valid_in(cell, side);
            let values: Vec<f64> = runs.filter_map(|run| self.of_run(figure, run)).collect();
            let Some(found) = Interval::of(&values, SEED) else { continue };
            let point = (at.value, [found.low, found.median, found.high]);
            axis = at.axis;
            let is_its = |band: &&mut Ribbon| (&band.name, &band.panel) == (&side.label, &at.rest);
            match bands.iter_mut().find(is_its) {
                Some(band) => band.points.push(point),
                None => {
                    let name = side.label.clone();
                    bands.push(Ribbon { name, panel: at.rest, points: vec![point] });
                }
            }
        }
        bands.iter_mut().for_each(|band| band.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let y = title_of(figure);
        let draw = || ribbons(&bands, &self.plan.order(), axis_of(&axis, &bands), Axis::linear(&y));
        (!bands.is_empty()).then(draw)
    }

    /// Value of a run in a curve: its figure, or the ratio to the baseline's figure with the same seed.
    fn of_run(&self, figure: &Figure, run: &Run) -> Option<f64> {
        let of = figure.of.first()?;
        let value = run.get(of)?;
        let Some(baseline) = &figure.baseline else { return Some(value) };
        let is_its = |other: &&&Run| {
            let (key, own) = (&other.key, &run.key);
            (&key.arm, &key.cell, &key.backend) == (baseline, &own.cell, &own.backend)
                && key.seed == own.seed
                && other.is_valid()
        };
        let other = self.plan.runs.iter().find(is_its).filter(|_| run.key.arm != *baseline)?;
        Some(value / other.get(of)?).filter(|ratio| ratio.is_finite())
    }

    /// One metric of each run over another, with the optimum: a full bottleneck without a queue.
    fn operating_points(&self, figure: &Figure, reversed: bool) -> Option<serde_json::Value> {
        let [up, right] = &figure.of[..] else { return None };
        let (mut points, mut optima) = (Vec::new(), Vec::new());
        for (cell, side) in self.sides() {
            let panel = if figure.facet == Some(Facet::Cell) { cell } else { "" };
            for run in self.plan.valid_in(cell, side) {
                let (Some(x), Some(y)) = (run.get(right), run.get(up)) else { continue };
                let point = |at| Point { name: side.label.clone(), panel: panel.into(), at };
                points.push(point((x, y)));
                if is_rate_over_round_trip(figure) {
                    optima.extend(optimum(run).map(point));
                }
            }
        }
        // If the cells of a panel differ, they share no optimum.
        let is_one = |it: &Point| {
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b;
            let others = optima.iter().filter(|other| other.panel == it.panel);
            others.into_iter().all(|other| near(other.at.0, it.at.0) && near(other.at.1, it.at.1))
        };
        let mut kept: Vec<Point> = optima.iter().filter(|it| is_one(it)).cloned().collect();
        kept.dedup_by(|a, b| a.panel == b.panel);
        let (x, y) = (title(&right.quantity), title(&up.quantity));
        let x = Axis { reversed, ..Axis::linear(&x) };
        let draw = || plane(&points, &kept, &self.plan.order(), x, Axis::linear(&y));
        (!points.is_empty()).then(draw)
    }

    /// The panels of distributions, in their order.
    fn panels(&self, figure: &Figure) -> Vec<Panel> {
        let called = |name: &str| Panel { name: name.into(), title: name.into() };
        match figure.facet {
            Some(Facet::Size) => CLASSES.iter().map(Panel::of_class).collect(),
            Some(Facet::Flow) => {
                let flows = self.plan.runs.first().into_iter().flat_map(|run| &run.flows);
                flows.map(|flow| called(&flow.name)).collect()
            }
            Some(Facet::Cell) => self.cells.iter().map(|cell| called(cell)).collect(),
            _ => vec![called("")],
        }
    }

    fn first_seeds(&self, figure: &Figure) -> Result<Drawn, StoreError> {
        let mut series = Vec::new();
        self.over_time(figure, 1, |panel, name, mut runs| {
            let points = runs.pop().map_or(Vec::new(), |points| thinned(&points, self.points));
            series.push(NamedCurve::new(name, points).in_panel(panel));
        })?;
        let unit = unit(figure);
        let names = self.names(figure, series.iter().map(|one| &one.name));
        let y = self.axis_over_time(figure, &unit);
        let draw = || curves(&series, &names, TIME, y, true);
        Ok(((!series.is_empty()).then(draw), self.difference(&series, TIME, y)))
    }

    fn all_seeds(&self, figure: &Figure) -> Result<Drawn, StoreError> {
        let mut bands = Vec::new();
        self.over_time(figure, usize::MAX, |panel, name, runs| {
            bands.push(Ribbon { name, panel, points: band(&runs) });
        })?;
        let unit = unit(figure);
        let names = match &figure.baseline {
            Some(baseline) => {
                bands = self.with_baseline(baseline, bands);
                self.plan.order()
            }
            None => self.names(figure, bands.iter().map(|one| &one.name)),
        };
        let middle = |band: &Ribbon| {
            let points = band.points.iter().map(|(x, edges)| (*x, edges[1])).collect();
            NamedCurve::new(&band.name, points).in_panel(&band.panel)
        };
        let y = self.axis_over_time(figure, &unit);
        let draw = || ribbons(&bands, &names, TIME, y);
        let middles: Vec<NamedCurve> = bands.iter().map(middle).collect();
        Ok(((!bands.is_empty()).then(draw), self.difference(&middles, TIME, y)))
    }

    /// The vertical axis of a figure over time. Packets in queues have their time in ms next to these.
    fn axis_over_time<'u>(&self, figure: &Figure, unit: &'u str) -> Axis<'u> {
        let is_queue =
            figure.of.iter().all(|of| of.quantity == "queue_packets" && of.name != "reverse");
        let mut times = self.cells.iter().map(|cell| self.plan.packet_ms(cell));
        let first = times.next().flatten().filter(|_| is_queue);
        let packet_ms = first.filter(|first| times.all(|it| it == Some(*first)));
        Axis { packet_ms, ..Axis::linear(unit) }
    }

    /// The bands, one per arm in a panel of its own, each called like its arm and behind that of the arm `baseline`.
    fn with_baseline(&self, baseline: &str, bands: Vec<Ribbon>) -> Vec<Ribbon> {
        let mut all = Vec::new();
        for band in &bands {
            let side = self.plan.sides.iter().find(|side| side.label == band.panel);
            let base = side.map(|side| self.plan.label(baseline, &side.backend));
            let behind = bands.iter().filter(|it| Some(&it.panel) == base.as_ref());
            for it in behind.filter(|it| it.panel != band.panel).chain([band]) {
                let (name, panel) = (it.panel.clone(), band.panel.clone());
                all.push(Ribbon { name, panel, points: it.points.clone() });
            }
        }
        all
    }

    /// Hands `draw` panel, name and, of the first `most` valid runs, what is to be drawn as one curve.
    fn over_time(
        &self,
        figure: &Figure,
        most: usize,
        mut draw: impl FnMut(String, String, Vec<Vec<(f64, f64)>>),
    ) -> Result<(), StoreError> {
        let is_one = figure.of.iter().all(|of| of.quantity == figure.of[0].quantity);
        for of in &figure.of {
            for (cell, side) in self.sides() {
                let runs: Vec<&Run> = self.plan.valid_in(cell, side).take(most).collect();
                for name in runs.first().map_or(Vec::new(), |run| names_of(run, of)) {
                    let store = self.requests.store();
                    let read = |run: &&Run| store.series(run.id, &of.part, &name, &of.quantity);
                    let mut all = runs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                    all.retain(|points| !points.is_empty());
                    if all.is_empty() {
                        continue;
                    }
                    let place = place(&of.part, &name);
                    let part = format!("{} {name}", of.part);
                    let (panel, curve) = match figure.facet {
                        // The curves of an arm are its quantities, or the parts that have the same one.
                        Some(Facet::Arm) if is_one => (side.label.clone(), part.trim_end().into()),
                        Some(Facet::Arm) if is_laid_over(figure) => (side.label.clone(), label(of)),
                        Some(Facet::Arm) => {
                            (format!("{}, {}", side.label, part.trim_end()), label(of))
                        }
                        Some(Facet::Cell) => (format!("{cell}, {place}"), side.label.clone()),
                        _ => (place, side.label.clone()),
                    };
                    draw(panel, curve, all);
                }
            }
        }
        Ok(())
    }

    /// Names of the curves of a figure over time, in order. With a panel per arm these are the names in
    /// `drawn`.
    fn names<'n>(&self, figure: &Figure, drawn: impl Iterator<Item = &'n String>) -> Vec<String> {
        if figure.facet != Some(Facet::Arm) {
            return self.plan.order();
        }
        let mut names: Vec<String> = Vec::new();
        for name in drawn {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    fn bars(&self, figure: &Figure) -> Vec<Block> {
        let ours =
            self.plan.summaries.iter().filter_map(|arm| Some((arm, self.value(figure, arm)?)));
        let ours: Vec<(&ArmSummary, f64)> = ours.collect();
        if ours.is_empty() {
            return Vec::new();
        }
        let bar = |(arm, value): &(&ArmSummary, f64)| {
            (arm.cell.clone(), self.plan.label(&arm.arm, &arm.backend), *value)
        };
        let mut values: Vec<_> = ours.iter().map(bar).collect();
        let mut order = self.plan.order();
        let mut rows = Vec::new();
        let has = |arm: &str| self.plan.sides.iter().any(|side| side.arm == arm);
        for published in figure.published.iter().filter(|it| has(&it.arm)) {
            if !order.contains(&published.label) {
                order.push(published.label.clone());
            }
            for cell in self.cells.iter().filter(|cell| published.is_of(cell)) {
                values.push((cell.to_string(), published.label.clone(), published.value));
                let is_it = |arm: &ArmSummary| arm.cell == **cell && arm.arm == published.arm;
                for (arm, value) in ours.iter().filter(|(arm, _)| is_it(arm)) {
                    let numbers = [Some(published.value), Some(*value)].map(text_of);
                    let source = published.source.clone();
                    rows.push(
                        [self.plan.name(arm)].into_iter().chain(numbers).chain([source]).collect(),
                    );
                }
            }
        }
        let y = title_of(figure);
        let spec = bars(&values, &order, Axis::linear(&y));
        let mut blocks = vec![Block::Figure(page::Chart { caption: figure.title.clone(), spec })];
        if !rows.is_empty() {
            let caption = format!("Published values and values measured here: {y}.");
            blocks.push(tables::block(&["arm", "published", "here", "source"], rows, &caption));
        }
        blocks
    }

    /// Height of the bar of an arm.
    fn value(&self, figure: &Figure, arm: &ArmSummary) -> Option<f64> {
        let of = figure.of.first()?;
        let value = arm.get(of)?;
        let Some(baseline) = &figure.baseline else { return Some(value) };
        let is_its = |other: &&ArmSummary| {
            other.arm == *baseline && (&other.cell, &other.backend) == (&arm.cell, &arm.backend)
        };
        let other = self.plan.summaries.iter().find(is_its).filter(|other| other.arm != arm.arm)?;
        Some(value / other.get(of)?).filter(|ratio| ratio.is_finite())
    }

    fn transitions(&self, figure: &Figure) -> Result<Vec<Block>, StoreError> {
        let mut rows = Vec::new();
        for (cell, side) in self.sides() {
            let Some(run) = self.plan.valid_in(cell, side).next() else { continue };
            let all = self.requests.store().transitions(run.id)?;
            let is_shown = |pair: &&[Transition]| {
                pair[0].bundle == pair[1].bundle && pair.iter().any(Transition::is_unlimited)
            };
            for it in all.windows(2).filter(is_shown).map(|pair| &pair[1]).take(TRANSITIONS) {
                let at = format!("{:.2}", it.at_s);
                let texts = [&side.label, &it.bundle, &at, &it.state, &it.reason];
                rows.push(texts.map(|text| text.to_string()).to_vec());
            }
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let caption = format!(
            "{} Only the first seed, and at most the first {TRANSITIONS} changes of a run.",
            figure.title
        );
        let columns = ["arm", "bundle", "at (s)", "state", "reason"];
        Ok(vec![tables::block(&columns, rows, &caption)])
    }
}

/// A panel: the name for its data, and its heading.
struct Panel {
    name: String,
    title: String,
}

impl Panel {
    fn of_class((size, largest): &(&str, u64)) -> Self {
        let title = match *largest {
            u64::MAX => format!("{size} requests, all above"),
            bytes => format!("{size} requests, up to {}", ByteCount::new(bytes)),
        };
        Self { name: size.to_string(), title }
    }
}

/// The parts of a run that `of` names.
fn names_of(run: &Run, of: &Address) -> Vec<String> {
    if of.name != "*" {
        return vec![of.name.clone()];
    }
    let parts = match of.part.as_str() {
        "flow" => &run.flows,
        "link" => &run.links,
        _ => &run.bundles,
    };
    parts.iter().map(|part| part.name.clone()).collect()
}

/// Title of a metric's axis. A ratio to another arm has no unit.
fn title_of(figure: &Figure) -> String {
    let quantity = figure.of.first().map_or("", |of| &of.quantity);
    match &figure.baseline {
        None => heading(quantity),
        Some(baseline) => format!("{} relative to {baseline}", quantity.replace('_', " ")),
    }
}

/// The axis of a curve: logarithmic where its numbers are far apart.
fn axis_of<'a>(title: &'a str, bands: &[Ribbon]) -> Axis<'a> {
    let all = || bands.iter().flat_map(|band| &band.points).map(|(at, _)| *at);
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    if least > 0.0 && most >= FAR * least { Axis::log(title) } else { Axis::linear(title) }
}

/// Whether a plane shows a rate over a round trip.
fn is_rate_over_round_trip(figure: &Figure) -> bool {
    let [up, right] = &figure.of[..] else { return false };
    unit_of(&up.quantity) == "Mbit/s" && right.quantity.contains("rtt")
}

/// The round trip without a queue (ms) and the capacity of the bottleneck (Mbit/s).
fn optimum(run: &Run) -> Option<(f64, f64)> {
    let rtt = parse_duration(run.parameters.get("bottleneck.rtt")?).ok()?;
    let of_link = |quantity: &str| {
        let (part, name) = ("link".into(), "forward".into());
        run.get(&Address { part, name, quantity: quantity.into() })
    };
    let capacity = of_link("throughput_mbps")? / of_link("utilisation")?;
    capacity.is_finite().then_some((rtt.as_secs_f64() * 1e3, capacity))
}

/// Whether it is a quantity over time.
fn is_series(of: &Address) -> bool {
    SERIES.iter().any(|entry| entry.name == of.quantity && entry.is_of(&of.part))
}

/// Whether each quantity belongs to one part, so that its name identifies its curve in a shared panel.
fn is_laid_over(figure: &Figure) -> bool {
    let quantities: BTreeSet<&String> = figure.of.iter().map(|of| &of.quantity).collect();
    quantities.len() == figure.of.len() && figure.of.iter().all(|of| of.name != "*")
}

/// Where a part is, in words.
pub fn place(part: &str, name: &str) -> String {
    match (part, name) {
        ("run", _) => "all flows together".into(),
        ("link", "forward") => "at the bottleneck".into(),
        ("bundle", name) => format!("at the sendbox of bundle {name}"),
        (part, name) => format!("{part} {name}"),
    }
}

/// Display name of a quantity over time.
fn label(of: &Address) -> String {
    let entry = SERIES.iter().find(|entry| entry.name == of.quantity);
    entry.map_or_else(|| of.quantity.clone(), |entry| entry.summary.to_string())
}

/// Unit of a figure over time; for a count, the things counted.
fn unit(figure: &Figure) -> String {
    let quantity = figure.of.first().map_or("", |of| &of.quantity);
    let entry = SERIES.iter().find(|entry| entry.name == quantity);
    entry.map_or(String::new(), |it| if it.unit.is_empty() { it.summary } else { it.unit }.into())
}

/// Least, median and greatest of the means of runs in equal steps of time.
fn band(runs: &[Vec<(f64, f64)>]) -> Vec<(f64, [f64; 3])> {
    let end = runs.iter().flatten().map(|(at, _)| *at).fold(0.0, f64::max);
    let width = (end / STEPS).max(STEP_MIN_S);
    let mut steps: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let mut own: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (at, value) in run {
            own.entry((at / width + 1e-9) as u64).or_default().push(*value);
        }
        for (step, values) in own {
            steps.entry(step).or_default().extend(mean(values.into_iter()));
        }
    }
    let edges = |(step, values): (u64, Vec<f64>)| {
        let sorted = Sorted::new(values);
        let [low, middle, high] = [0.0, 0.5, 1.0].map(|share| sorted.quantile(share));
        Some((step as f64 * width, [low?, middle?, high?]))
    };
    steps.into_iter().filter_map(edges).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::evaluate;
    use crate::metrics::testing::{invented_rows, invented_run};
    use crate::store::Store;
    use crate::store::testing::put;

    #[test]
    fn baseline_curve_uses_ratios_per_seed() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let (experiment, _) = invented_run();
        let mut runs = Vec::new();
        // Seeds differ more than arms.
        for (seed, scale) in [(1, 1.0), (2, 3.0), (3, 9.0)] {
            for (arm, slowdown) in [("status_quo", 2.0), ("copa_sfq", 3.0)] {
                let mut experiment = experiment.clone();
                (experiment.arm, experiment.seed) = (arm.into(), seed);
                experiment.cell = "deployment=10%".into();
                let rows = invented_rows(&experiment, scale * slowdown);
                let evaluation = evaluate(&experiment, &rows).unwrap();
                let id = put(&mut store, &experiment, "sim", &evaluation);
                runs.push(store.run(id).unwrap());
            }
        }
        let requests = Requests::new(&store);
        let plans = PlanResults::all(&requests, &runs).unwrap();
        let cells = plans[0].cells();
        let drawing = Drawing { plan: &plans[0], requests: &requests, cells: &cells, points: 100 };
        let mut figure = Figure {
            kind: FigureKind::Curve,
            title: String::new(),
            of: vec!["slowdown_p50".parse().unwrap()],
            facet: None,
            baseline: Some("status_quo".into()),
            published: Vec::new(),
        };
        let rows = |figure: &Figure| {
            let spec = drawing.against_cells(figure).unwrap();
            spec["data"]["values"].as_array().unwrap().clone()
        };
        let found = rows(&figure);
        assert_eq!(found.len(), 1, "the baseline has no curve: {found:?}");
        let place = (found[0]["s"].as_str(), found[0]["x"].as_f64());
        assert_eq!(place, (Some("copa_sfq"), Some(10.0)));
        for edge in ["l", "y", "h"] {
            assert!((found[0][edge].as_f64().unwrap() - 1.5).abs() < 1e-3, "{found:?}");
        }
        figure.baseline = None;
        assert_eq!(rows(&figure).len(), 2);
    }

    #[test]
    fn a_ribbon_has_its_baseline_in_every_panel() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::create(folder.path()).unwrap();
        let (experiment, _) = invented_run();
        let mut runs = Vec::new();
        for arm in ["kernel", "native"] {
            let mut experiment = experiment.clone();
            experiment.arm = arm.into();
            let evaluation = evaluate(&experiment, &invented_rows(&experiment, 2.0)).unwrap();
            let id = put(&mut store, &experiment, "emu", &evaluation);
            runs.push(store.run(id).unwrap());
        }
        let requests = Requests::new(&store);
        let plans = PlanResults::all(&requests, &runs).unwrap();
        let drawing = Drawing { plan: &plans[0], requests: &requests, cells: &[""], points: 100 };
        let band = |panel: &str| Ribbon { panel: panel.into(), ..Ribbon::default() };
        let found = drawing.with_baseline("kernel", vec![band("kernel"), band("native")]);
        let found: Vec<_> = found.iter().map(|it| (it.panel.as_str(), it.name.as_str())).collect();
        assert_eq!(found, [("kernel", "kernel"), ("native", "kernel"), ("native", "native")]);
    }

    #[test]
    fn band_covers_stepwise_means_of_runs() {
        let run = |level: f64| vec![(0.0, level), (0.05, level + 2.0), (0.1, level)];
        let points = band(&[run(1.0), run(3.0), run(8.0)]);
        assert_eq!(points, [(0.0, [2.0, 4.0, 9.0]), (0.1, [1.0, 3.0, 8.0])]);
        assert!(band(&[]).is_empty());
    }
}
