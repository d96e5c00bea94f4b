//! Vega-Lite documents from rows: the single place that makes figures.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Most points of a series: as many as a screen can show, and few enough for a small report.
pub const POINTS_MAX: usize = 2000;

/// Legend entry of the optimum of a plane.
const OPTIMUM: &str = "optimum";
/// Width of a bar (px).
const BAR_PX: usize = 26;
/// About the width of a letter below a bar (px). With a larger value more labels are slanted.
const LETTER_PX: usize = 7;
/// A ribbon with at most this many points marks each.
const SPARSE: usize = 30;
/// An axis without a number below this share of its largest one does not start at 0: most of it would be
/// empty.
const CUT: f64 = 0.6;
/// Numbers that differ by less than this share of the largest one are not drawn apart.
const FLAT: f64 = 0.02;
/// Curves whose mean distance is below this share of their panel's height overlap.
const OVERLAP: f64 = 0.05;
/// Okabe and Ito's palette, whose colours colour-blind readers can distinguish.
const COLOURS: [&str; 8] =
    ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"];

/// A named curve.
#[derive(Clone, Debug, Default)]
pub struct NamedCurve {
    /// Name in the legend.
    pub name: String,
    /// Facet of the curve; empty if the figure has one panel.
    pub panel: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
}

impl NamedCurve {
    /// A curve of a figure with one panel.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), panel: String::new(), points }
    }

    /// This curve in the panel `panel`.
    pub fn in_panel(self, panel: impl Into<String>) -> Self {
        Self { panel: panel.into(), ..self }
    }

    /// The distribution function of `values` as a curve: quantiles on a grid of 1/1000 and the
    /// thousand largest values one by one, so that the tail is not thinned away.
    pub fn distribution(name: impl Into<String>, mut values: Vec<f64>) -> Self {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let keep =
            |index: usize| n <= POINTS_MAX || index.is_multiple_of(n / 1000) || index + 1000 >= n;
        let points = values.iter().enumerate().filter(|(index, _)| keep(*index));
        Self::new(name, points.map(|(i, &value)| (value, (i + 1) as f64 / n as f64)).collect())
    }
}

/// A curve within a band.
#[derive(Clone, Debug, Default)]
pub struct Ribbon {
    /// Name in the legend.
    pub name: String,
    /// Panel it is drawn in.
    pub panel: String,
    /// x, and the lower edge, the curve and the upper edge there.
    pub points: Vec<(f64, [f64; 3])>,
}

/// How an axis is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Axis<'a> {
    /// Title with the unit.
    pub title: &'a str,
    /// The axis is logarithmic.
    pub log: bool,
    /// Numbers fall to the right, or upwards.
    pub reversed: bool,
    /// Milliseconds of each packet on an axis of packets, whose labels have both.
    pub packet_ms: Option<f64>,
}

impl<'a> Axis<'a> {
    /// A linear axis.
    pub const fn linear(title: &'a str) -> Self {
        Self { title, log: false, reversed: false, packet_ms: None }
    }

    /// A logarithmic axis.
    pub const fn log(title: &'a str) -> Self {
        Self { log: true, ..Self::linear(title) }
    }

    /// The encoding of `field` for these `values`. The axis begins at 0 or its title says that it does not.
    fn encoding(self, field: &str, values: impl Iterator<Item = f64>) -> Value {
        let (least, most) = values
            .filter(|value| value.is_finite())
            .fold((f64::MAX, f64::MIN), |(least, most), it| (least.min(it), most.max(it)));
        let is_cut = !self.log && least > CUT * most && most - least > FLAT * most;
        let mut notes = vec![self.title.to_string()];
        notes.extend(self.log.then(|| "logarithmic".into()));
        notes.extend(is_cut.then(|| "does not start at 0".into()));
        notes.extend(self.reversed.then(|| "reversed".into()));
        let title = notes.join(", ");
        let scale = if self.log {
            json!({ "type": "log", "nice": false })
        } else {
            json!({ "type": "linear", "zero": !is_cut, "nice": true, "reverse": self.reversed })
        };
        let mut encoding =
            json!({ "field": field, "type": "quantitative", "title": title, "scale": scale });
        if let Some(packet) = self.packet_ms {
            let both =
                format!("datum.label + ' (' + format(datum.value * {packet}, ',.3~r') + ' ms)'");
            encoding["axis"] = json!({ "labelExpr": both });
        }
        encoding
    }
}

/// At most `most` points. Keeps the smallest and the largest of each of several equally long runs of points,
/// in order, so that no spike is lost.
pub fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let run = points.len().div_ceil((most / 2).max(1));
    let mut kept = Vec::with_capacity(most);
    for chunk in points.chunks(run) {
        let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let low = chunk.iter().min_by(by_y).expect("chunks are not empty");
        let high = chunk.iter().max_by(by_y).expect("chunks are not empty");
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        kept.push(*first);
        if first != second {
            kept.push(*second);
        }
    }
    kept
}

/// Curves over a common x, one panel below the other if the series name panels. `order` lists all names of
/// the page, so a name has the same colour in every figure.
pub fn curves(
    series: &[NamedCurve],
    order: &[String],
    x: Axis<'_>,
    y: Axis<'_>,
    stepped: bool,
) -> Value {
    let mut rows = Vec::new();
    let mut panels: Vec<&str> = Vec::new();
    for one in series {
        if !panels.contains(&one.panel.as_str()) {
            panels.push(&one.panel);
        }
        for (x, y) in thinned(&one.points, POINTS_MAX) {
            rows.push(json!({ "s": one.name, "p": one.panel, "x": rounded(x), "y": rounded(y) }));
        }
    }
    let interpolate = if stepped { "step-after" } else { "linear" };
    let points = || series.iter().flat_map(|one| one.points.iter().copied());
    let unit = json!({
        "width": 760,
        "height": if panels.len() > 1 { 150 } else { 280 },
        "mark": { "type": "line", "interpolate": interpolate, "strokeWidth": 1.5, "clip": true },
        "encoding": {
            "x": x.encoding("x", points().map(|it| it.0)),
            "y": y.encoding("y", points().map(|it| it.1)),
            "color": colour(order),
            "strokeDash": dash(order),
            "tooltip": [
                { "field": "s", "title": "series" },
                { "field": "x", "title": x.title }, { "field": "y", "title": y.title },
            ],
        },
    });
    document(rows, unit, &panels)
}

/// Each curve minus its baseline, which `base` names, in panels where curves overlap their baseline.
pub fn differences(
    series: &[NamedCurve],
    base: impl Fn(&NamedCurve) -> Option<String>,
) -> Vec<NamedCurve> {
    let mut found: Vec<(NamedCurve, bool)> = Vec::new();
    for one in series {
        let name = base(one).filter(|name| *name != one.name);
        let is_base = |it: &&NamedCurve| Some(&it.name) == name.as_ref() && it.panel == one.panel;
        let Some(base) = series.iter().find(is_base) else { continue };
        let at = |x: f64| {
            let place = base.points.partition_point(|point| point.0 <= x);
            base.points.get(place.saturating_sub(1)).map_or(0.0, |point| point.1)
        };
        let points: Vec<_> = one.points.iter().map(|(x, y)| (*x, y - at(*x))).collect();
        let size = points.iter().map(|it| it.1.abs()).sum::<f64>() / points.len().max(1) as f64;
        let values = || base.points.iter().chain(&one.points).map(|it| it.1);
        let height = values().fold(f64::MIN, f64::max) - values().fold(f64::MAX, f64::min);
        let overlaps = size < OVERLAP * height;
        found.push((NamedCurve { points, ..one.clone() }, overlaps));
    }
    let has = |panel: &str| found.iter().any(|(it, overlaps)| *overlaps && it.panel == panel);
    found.iter().filter(|(it, _)| has(&it.panel)).map(|(it, _)| it.clone()).collect()
}

/// Ribbons over a common x, one panel below the other, all with the same y.
pub fn ribbons(ribbons: &[Ribbon], order: &[String], x: Axis<'_>, y: Axis<'_>) -> Value {
    let mut rows = Vec::new();
    let mut panels: Vec<&str> = Vec::new();
    for one in ribbons {
        if !panels.contains(&one.panel.as_str()) {
            panels.push(&one.panel);
        }
        for (x, edges) in &one.points {
            let [low, middle, high] = edges.map(rounded);
            rows.push(json!({
                "s": one.name, "p": one.panel, "x": rounded(*x), "y": middle, "l": low, "h": high,
            }));
        }
    }
    let is_sparse = ribbons.iter().all(|one| one.points.len() <= SPARSE);
    let points = || ribbons.iter().flat_map(|one| &one.points);
    let encoding = |field| {
        let x = x.encoding("x", points().map(|it| it.0));
        let y = y.encoding(field, points().flat_map(|it| it.1));
        json!({ "x": x, "y": y, "color": colour(order) })
    };
    let mut band = encoding("l");
    band["y2"] = json!({ "field": "h" });
    let mut line = encoding("y");
    line["strokeDash"] = dash(order);
    let unit = json!({
        "width": 760,
        "height": if panels.len() > 1 { 120 } else { 280 },
        "layer": [
            { "mark": { "type": "area", "opacity": 0.25 }, "encoding": band },
            { "mark": { "type": "line", "strokeWidth": 1.5, "point": is_sparse }, "encoding": line },
        ],
    });
    let mut document = document(rows, unit, &panels);
    if panels.len() > 1 {
        document["resolve"] = json!({ "scale": { "y": "shared" } });
    }
    document
}

/// Bars: one for each name and group.
pub fn bars(values: &[(String, String, f64)], order: &[String], y: Axis<'_>) -> Value {
    let rows: Vec<Value> = values
        .iter()
        .map(|(group, name, value)| json!({ "p": group, "s": name, "y": rounded(*value) }))
        .collect();
    let title = values.iter().any(|(group, ..)| !group.is_empty()).then_some("cell");
    let bars = values.iter().map(|(_, name, _)| name).collect::<BTreeSet<_>>().len();
    let letters = values.iter().map(|(group, ..)| group.chars().count()).max().unwrap_or(0);
    let leans = letters * LETTER_PX > bars * BAR_PX;
    let unit = json!({
        "width": { "step": BAR_PX },
        "height": 260,
        "mark": "bar",
        "encoding": {
            "x": { "field": "p", "type": "nominal", "sort": null, "title": title,
                   "axis": { "labelAngle": if leans { -40 } else { 0 } } },
            "xOffset": { "field": "s", "sort": order },
            "y": { "field": "y", "type": "quantitative", "title": y.title },
            "color": colour(order),
            "tooltip": [{ "field": "p" }, { "field": "s" }, { "field": "y", "title": y.title }],
        },
    });
    document(rows, unit, &[])
}

/// Boxes: one for each name, with whiskers of 1.5 times its height and the points outside; a line at
/// `reference`.
pub fn boxes(values: &[(String, f64)], order: &[String], y: Axis<'_>, reference: f64) -> Value {
    let rows: Vec<Value> =
        values.iter().map(|(name, value)| json!({ "s": name, "y": rounded(*value) })).collect();
    let unit = json!({
        "width": { "step": 90 },
        "height": 300,
        "layer": [
            { "mark": { "type": "rule", "strokeDash": [4, 4], "color": "#57606a" },
              "data": { "values": [{ "y": reference }] },
              "encoding": { "y": { "field": "y", "type": "quantitative" } } },
            { "mark": { "type": "boxplot", "extent": 1.5, "size": 36 },
              "encoding": {
                  "x": { "field": "s", "type": "nominal", "sort": order, "title": null,
                         "axis": { "labelAngle": 0, "labelLimit": 86 } },
                  "y": y.encoding("y", values.iter().map(|it| it.1).chain([reference])),
                  "color": { "field": "s", "type": "nominal", "legend": null,
                             "scale": { "domain": order, "range": palette(order.len()) } },
              } },
        ],
    });
    document(rows, unit, &[])
}

/// A point of a plane.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name in the legend.
    pub name: String,
    /// Panel it is drawn in.
    pub panel: String,
    /// Coordinates: to the right, and upwards.
    pub at: (f64, f64),
}

/// Points in a plane, one panel below the other, and a cross at each panel's optimum.
pub fn plane(
    points: &[Point],
    optima: &[Point],
    order: &[String],
    x: Axis<'_>,
    y: Axis<'_>,
) -> Value {
    let mut panels: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    let named = points.iter().map(|it| (it.name.as_str(), it));
    for (name, point) in named.chain(optima.iter().map(|it| (OPTIMUM, it))) {
        if !panels.contains(&point.panel.as_str()) {
            panels.push(&point.panel);
        }
        let [at_x, at_y] = [point.at.0, point.at.1].map(rounded);
        rows.push(json!({ "s": name, "p": point.panel, "x": at_x, "y": at_y }));
    }
    let mut names = order.to_vec();
    let (mut colours, mut marks) = (palette(order.len()), shapes(order.len()));
    if !optima.is_empty() {
        names.push(OPTIMUM.into());
        colours.push("#57606a");
        marks.push("cross");
    }
    let [mut colour, mut shape] = [&names, &names].map(|names| colour(names));
    colour["scale"]["range"] = json!(colours);
    shape["scale"]["range"] = json!(marks);
    let places = || points.iter().chain(optima).map(|it| it.at);
    let size = json!({ "condition": { "test": { "field": "s", "equal": OPTIMUM }, "value": 160 }, "value": 60 });
    let unit = json!({
        "width": 460,
        "height": if panels.len() > 1 { 200 } else { 320 },
        "mark": { "type": "point", "filled": true, "opacity": 0.7 },
        "encoding": {
            "x": x.encoding("x", places().map(|it| it.0)),
            "y": y.encoding("y", places().map(|it| it.1)),
            "color": colour, "shape": shape, "size": size,
            "tooltip": [
                { "field": "s", "title": "arm" },
                { "field": "x", "title": x.title }, { "field": "y", "title": y.title },
            ],
        },
    });
    apart(document(rows, unit, &panels))
}

/// The figure with a separate x axis in each panel.
pub fn apart(mut figure: Value) -> Value {
    if figure.get("facet").is_some() {
        figure["resolve"]["scale"]["x"] = json!("independent");
    }
    figure
}

/// Marks that can be distinguished without colours.
fn shapes(names: usize) -> Vec<&'static str> {
    /// Shapes of Vega-Lite; with more names they repeat.
    const SHAPES: [&str; 6] =
        ["circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-right"];
    (0..names).map(|index| SHAPES[index % SHAPES.len()]).collect()
}

/// Heat map: a cell for each row and column, with its number, a `what`. Colours diverge from the middle of 0
/// and `most`, where both sides are equal.
pub fn heat(
    cells: &[(String, String, f64)],
    [row, column]: [&str; 2],
    (what, most): (&str, f64),
) -> Value {
    let rows: Vec<Value> = cells
        .iter()
        .map(|(row, column, value)| json!({ "r": row, "c": column, "v": rounded(*value) }))
        .collect();
    let axis = |field: &str, title: &str| {
        json!({ "field": field, "type": "nominal", "sort": null, "title": title,
                "axis": { "labelAngle": 0 } })
    };
    let encoding = |last: (&str, Value)| {
        let mut encoding = json!({ "x": axis("c", column), "y": axis("r", row) });
        encoding[last.0] = last.1;
        encoding
    };
    let middle = most / 2.0;
    let scale =
        json!({ "scheme": "blueorange", "domain": [0, most], "domainMid": middle, "clamp": true });
    let ground = json!({ "field": "v", "type": "quantitative", "title": what, "scale": scale });
    let mut text =
        encoding(("text", json!({ "field": "v", "type": "quantitative", "format": ".2f" })));
    text["color"] = json!({
        "condition": {
            "test": format!("abs(datum.v - {middle}) > {}", 0.7 * middle), "value": "#fff",
        },
        "value": "#000",
    });
    let unit = json!({
        "width": { "step": 72 },
        "height": { "step": 36 },
        "layer": [
            { "mark": "rect", "encoding": encoding(("color", ground)) },
            { "mark": { "type": "text", "fontSize": 13 }, "encoding": text },
        ],
    });
    document(rows, unit, &[])
}

/// Parallel coordinates: one line for each name over axes side by side, each from 0 to 1.
pub fn parallel(values: &[(String, String, f64)], order: &[String], [axes, y]: [&str; 2]) -> Value {
    let rows: Vec<Value> = values
        .iter()
        .map(|(name, axis, value)| json!({ "s": name, "a": axis, "y": rounded(*value) }))
        .collect();
    let unit = json!({
        "width": { "step": 64 },
        "height": 320,
        "mark": { "type": "line", "point": { "size": 50 }, "strokeWidth": 2 },
        "encoding": {
            "x": { "field": "a", "type": "nominal", "sort": null, "title": axes,
                   "axis": { "labelAngle": -40, "grid": true, "labelLimit": 260 } },
            "y": { "field": "y", "type": "quantitative", "title": y, "scale": { "domain": [0, 1] } },
            "color": colour(order),
            "strokeDash": dash(order),
            "tooltip": [{ "field": "s", "title": "algorithm" }, { "field": "a", "title": axes },
                        { "field": "y", "title": y }],
        },
    });
    document(rows, unit, &[])
}

/// Strokes that can be distinguished without colours.
fn dash(order: &[String]) -> Value {
    let dashes = [json!([1, 0]), json!([8, 3]), json!([3, 3]), json!([8, 3, 2, 3]), json!([2, 5])];
    let mut dash = colour(order);
    dash["scale"]["range"] = dashes.iter().cycle().take(order.len()).cloned().collect();
    dash
}

/// Points with their intervals, one name below the other, and a line where x is 0.
pub fn intervals(values: &[(String, [f64; 3])], x: Axis<'_>) -> Value {
    let row = |(name, edges): &(String, [f64; 3])| {
        let [low, middle, high] = edges.map(rounded);
        json!({ "s": name, "x": middle, "l": low, "h": high })
    };
    let rows: Vec<Value> = values.iter().map(row).collect();
    let y = json!({ "field": "s", "type": "nominal", "sort": null, "title": null,
                    "axis": { "labelLimit": 420 } });
    let across = |field| x.encoding(field, values.iter().flat_map(|it| it.1).chain([0.0]));
    let tooltip = json!([
        { "field": "s", "title": "figure" }, { "field": "x", "title": x.title },
        { "field": "l", "title": "from" }, { "field": "h", "title": "to" },
    ]);
    let unit = json!({
        "width": 420,
        "height": { "step": 20 },
        "layer": [
            { "mark": { "type": "rule", "strokeDash": [4, 4], "color": "#57606a" },
              "data": { "values": [{ "x": 0 }] },
              "encoding": { "x": { "field": "x", "type": "quantitative" } } },
            { "mark": { "type": "rule", "color": COLOURS[1], "strokeWidth": 2 },
              "encoding": { "y": y, "x": across("l"), "x2": { "field": "h" } } },
            { "mark": { "type": "point", "filled": true, "color": COLOURS[1], "size": 50 },
              "encoding": { "y": y, "x": across("x"), "tooltip": tooltip } },
        ],
    });
    document(rows, unit, &[])
}

/// A colour for each name.
fn palette(names: usize) -> Vec<&'static str> {
    (0..names).map(|index| COLOURS[index % COLOURS.len()]).collect()
}

fn colour(order: &[String]) -> Value {
    json!({
        "field": "s", "type": "nominal", "title": null,
        "scale": { "domain": order, "range": palette(order.len()) },
        "legend": { "orient": "top", "symbolStrokeWidth": 4, "symbolOpacity": 1, "labelLimit": 320 },
    })
}

fn document(rows: Vec<Value>, unit: Value, panels: &[&str]) -> Value {
    let mut document = json!({
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": { "values": rows },
        "config": {
            "font": "system-ui, sans-serif",
            "axis": { "labelFontSize": 12, "titleFontSize": 12, "gridColor": "#dde3e9" },
            "legend": { "labelFontSize": 12, "columns": 5 },
            "header": { "labelFontSize": 13, "labelFontWeight": "bold" },
            "view": { "stroke": "#d8dee4" },
        },
    });
    if panels.len() > 1 {
        document["facet"] = json!({
            "row": { "field": "p", "type": "nominal", "title": null, "sort": panels,
                     "header": { "labelAngle": 0, "labelOrient": "top", "labelAnchor": "start" } },
        });
        document["spec"] = unit;
        document["resolve"] = json!({ "scale": { "y": "independent" } });
    } else {
        for (key, value) in unit.as_object().expect("a unit is an object") {
            document[key] = value.clone();
        }
    }
    document
}

/// Six significant digits: as many as a figure can show, at half the size.
fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    format!("{value:.5e}").parse::<f64>().map_or(Value::Null, |value| json!(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_every_spike() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|i| (f64::from(i), 1.0)).collect();
        points[70_001].1 = 900.0;
        points[30_003].1 = -5.0;
        let kept = thinned(&points, POINTS_MAX);
        assert!(kept.len() <= POINTS_MAX);
        assert!(kept.contains(&(70_001.0, 900.0)) && kept.contains(&(30_003.0, -5.0)));
        assert!(kept.windows(2).all(|pair| pair[0].0 < pair[1].0), "order of x is kept");
    }

    #[test]
    fn a_distribution_keeps_its_tail() {
        let values: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let series = NamedCurve::distribution("a", values);
        let (last, share) = *series.points.last().unwrap();
        assert_eq!((last, share), (100_000.0, 1.0));
        let median = series.points.iter().find(|(_, share)| *share >= 0.5).unwrap().0;
        assert!((median - 50_000.0).abs() <= 100.0, "{median}");
    }

    #[test]
    fn axes_start_at_zero_or_say_so() {
        let encoding = |axis: Axis<'_>, values: [f64; 2]| {
            let it = axis.encoding("y", values.into_iter());
            (it["title"].as_str().unwrap().to_string(), it["scale"]["zero"].as_bool())
        };
        let linear = Axis::linear("t (s)");
        assert_eq!(encoding(linear, [5.0, 90.0]), ("t (s)".into(), Some(true)));
        let cut = ("t (s), does not start at 0".into(), Some(false));
        assert_eq!(encoding(linear, [85.0, 90.0]), cut);
        assert_eq!(encoding(Axis::log("t (s)"), [1.0, 9.0]), ("t (s), logarithmic".into(), None));
        let reversed = Axis { reversed: true, ..linear };
        assert_eq!(encoding(reversed, [5.0, 90.0]), ("t (s), reversed".into(), Some(true)));
    }

    #[test]
    fn differences_are_drawn_where_curves_overlap() {
        let curve = |name: &str, panel: &str, far: f64| {
            let points = (0..10).map(|x| (f64::from(x), 10.0 * f64::from(x) + far)).collect();
            NamedCurve::new(name, points).in_panel(panel)
        };
        let series = ["near", "far"].map(|panel| {
            let far = if panel == "near" { 1.0 } else { 40.0 };
            [curve("base", panel, 0.0), curve("one", panel, far)]
        });
        let found = differences(&series.concat(), |_| Some("base".into()));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&*found[0].name, &*found[0].panel, found[0].points[3]),
            ("one", "near", (3.0, 1.0))
        );
    }

    #[test]
    fn heat_diverges_from_the_middle() {
        let spec = heat(&[("a".into(), "b".into(), 0.5)], ["row", "column"], ("share", 1.0));
        assert_eq!(spec["layer"][0]["encoding"]["color"]["scale"]["domainMid"], json!(0.5));
    }

    #[test]
    fn figures_name_no_value_that_is_not_finite() {
        let series = [NamedCurve::new("a", vec![(0.0, f64::NAN), (1.0, 1.0)])];
        let spec = curves(&series, &["a".into()], Axis::linear("x"), Axis::linear("y"), false);
        assert_eq!(spec["data"]["values"][0]["y"], Value::Null);
    }
}
