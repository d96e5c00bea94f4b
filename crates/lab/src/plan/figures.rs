//! The figures that a report draws of a plan.

use std::collections::BTreeSet;

use forebay_core::spec::nearest_words;
use forebay_core::units::{parse_duration, parse_link_rate};
use forebay_reader::{Document, Reader};
use serde::{Deserialize, Serialize};

use super::schema;
use crate::experiment::Experiment;
use crate::metrics::{Address, Entry, OF_REQUESTS, SERIES, catalogue, describe};

/// Figures of a plan that declares none, written as in a plan.
const DEFAULT: &str = include_str!("figures.toml");

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// How it is drawn.
    pub kind: FigureKind,
    /// Title: the point of the figure.
    pub title: String,
    /// The metrics to draw. A plane has two: upwards and to the right. A table of transitions has none. Other
    /// kinds have one metric, or several quantities over time with one unit.
    pub of: Vec<Address>,
    /// Subject of each panel; `None`: a single panel.
    pub facet: Option<Facet>,
    /// The arm by whose values the other arms are divided. In a ribbon, the arm drawn in every panel.
    pub baseline: Option<String>,
    /// Published values.
    pub published: Vec<PublishedFigure>,
}

impl Figure {
    /// Whether it shows all cells of a grid at once.
    pub fn spans_cells(&self) -> bool {
        matches!(self.kind, FigureKind::Bars | FigureKind::Curve) || self.facet == Some(Facet::Cell)
    }
}

/// How a [`Figure`] is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureKind {
    /// The distribution of a figure of single requests, or of a quantity over time, all seeds together.
    Cdf,
    /// A metric of all seeds, a bar an arm and cell.
    Bars,
    /// A metric against the number that distinguishes the cells: median and interval over the seeds, one
    /// curve an arm.
    Curve,
    /// One metric against another, a point a run, with the optimum: where each arm operates.
    Plane,
    /// Quantities over time, of the first seed.
    Timeline,
    /// Quantities over time: least, median and greatest of the seeds.
    Ribbon,
    /// Table of the changes of state of bundles whose limits are off or on trial before or after the change.
    Transitions,
}

impl FigureKind {
    /// The keys that a figure of this kind may have.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Cdf => &["kind", "title", "metric", "series", "facet"],
            Self::Bars => &["kind", "title", "metric", "baseline", "published"],
            Self::Curve => &["kind", "title", "metric", "baseline"],
            Self::Plane => &["kind", "title", "metric", "against", "facet"],
            Self::Timeline => &["kind", "title", "series", "facet"],
            Self::Ribbon => &["kind", "title", "series", "facet", "baseline"],
            Self::Transitions => &["kind", "title"],
        }
    }

    fn facets(self) -> &'static [(&'static str, Facet)] {
        match self {
            Self::Cdf => &[("size", Facet::Size), ("flow", Facet::Flow), ("cell", Facet::Cell)],
            Self::Plane => &[("cell", Facet::Cell)],
            _ => &[("part", Facet::Part), ("arm", Facet::Arm), ("cell", Facet::Cell)],
        }
    }
}

/// Subject of each panel of a [`Figure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// A class of sizes of requests.
    Size,
    /// A flow.
    Flow,
    /// A link, a flow or a bundle.
    Part,
    /// An arm; the curves are the quantities.
    Arm,
    /// A cell of the grid.
    Cell,
}

/// A published value of an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// Name of its bar.
    pub label: String,
    /// The arm of the value.
    pub arm: String,
    /// The cell of the value, or the first word of several; empty: all cells.
    pub cell: String,
    /// The number, in the unit of the figure.
    pub value: f64,
    /// Where it is reported.
    pub source: String,
}

impl PublishedFigure {
    /// Whether the value applies to the cell called `name`.
    pub fn is_of(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.cell);
        self.cell.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// Position of a cell on the axis of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Abscissa {
    /// Title of the axis, with its unit.
    pub axis: String,
    /// The number.
    pub value: f64,
    /// The rest of the cell's name, which selects the curve.
    pub rest: String,
}

impl Abscissa {
    /// Position of the cell called `name`, by the first number in it, such as 20 of `rtt=20ms cc=bbr`.
    /// Durations are in milliseconds, rates in Mbit/s; other units stay in the title.
    pub fn of(name: &str) -> Option<Self> {
        let words: Vec<&str> = name.split(' ').collect();
        let number = |word: &&str| {
            let (key, text) = word.split_once('=')?;
            let (value, unit) = number_of(text)?;
            let axis = key.replace('_', " ");
            Some((if unit.is_empty() { axis } else { format!("{axis} ({unit})") }, value))
        };
        let (place, (axis, value)) =
            words.iter().enumerate().find_map(|(place, word)| Some((place, number(word)?)))?;
        let rest = words.iter().enumerate().filter(|(other, _)| *other != place);
        let rest = rest.map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
        Some(Self { axis, value, rest })
    }
}

/// A quantity as a number and the unit that it is in.
fn number_of(text: &str) -> Option<(f64, String)> {
    if let Ok(number) = text.parse() {
        return Some((number, String::new()));
    }
    if let Ok(duration) = parse_duration(text) {
        return Some((duration.as_secs_f64() * 1e3, "ms".into()));
    }
    if let Ok(rate) = parse_link_rate(text) {
        return Some((rate.as_mbit_per_sec_f64(), "Mbit/s".into()));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.into()))
}

/// Names that the figures of a plan may use.
#[derive(Default)]
pub(super) struct Known {
    arms: BTreeSet<String>,
    cells: BTreeSet<String>,
    flows: BTreeSet<String>,
    links: BTreeSet<String>,
    bundles: BTreeSet<String>,
    windows: BTreeSet<String>,
}

impl Known {
    /// Adds an arm; the plan need not run it.
    pub fn add_arm(&mut self, name: String) {
        self.arms.insert(name);
    }

    /// Adds the names in a run.
    pub fn add(&mut self, run: &Experiment) {
        self.arms.insert(run.arm.clone());
        self.cells.insert(run.cell.clone());
        self.flows.extend(run.flows.iter().map(|flow| flow.name.clone()));
        self.links.extend(run.links().map(|link| link.name.clone()));
        self.bundles.extend(run.bundles.iter().map(|bundle| bundle.name.clone()));
        self.windows.extend(run.windows.iter().map(|window| window.name.clone()));
    }

    /// The names of the parts of this kind; `None` for the run itself.
    fn parts(&self, part: &str) -> Option<&BTreeSet<String>> {
        match part {
            "flow" => Some(&self.flows),
            "link" => Some(&self.links),
            "bundle" => Some(&self.bundles),
            _ => None,
        }
    }
}

/// Reads the figures of a plan. Keeps published values only if `is_published`: they apply to the plan as set.
pub(super) fn figures(plan: &Reader<'_>, known: &Known, is_published: bool) -> Vec<Figure> {
    let mut figures = Vec::new();
    for table in plan.tables("figure") {
        match table.choice("kind", &KINDS) {
            None => {}
            Some(None) => {
                check_keys(&table, &["kind"]);
                figures.extend(defaults());
            }
            Some(Some(kind)) => {
                let figure = figure(&table, kind, Some(known));
                let published = if is_published { published(&table, known) } else { Vec::new() };
                figures.extend(figure.map(|figure| Figure { published, ..figure }));
            }
        }
    }
    if plan.has("figure") { figures } else { defaults() }
}

/// The figures of a plan that declares none.
pub fn defaults() -> Vec<Figure> {
    let tree = schema::FORMAT.parse("figures.toml", DEFAULT).expect("a test reads them");
    let document = Document::new("figures.toml", tree, &schema::FORMAT);
    let tables = document.root().tables("figure");
    let read = |table: &Reader<'_>| figure(table, table.choice("kind", &KINDS).flatten()?, None);
    let figures = tables.iter().map(read).collect::<Option<Vec<Figure>>>();
    document.finish(figures).expect("a test reads the default figures")
}

/// Names of kinds in plans; `default` stands for several figures.
const KINDS: [(&str, Option<FigureKind>); 8] = [
    ("cdf", Some(FigureKind::Cdf)),
    ("bars", Some(FigureKind::Bars)),
    ("curve", Some(FigureKind::Curve)),
    ("plane", Some(FigureKind::Plane)),
    ("timeline", Some(FigureKind::Timeline)),
    ("ribbon", Some(FigureKind::Ribbon)),
    ("transitions", Some(FigureKind::Transitions)),
    ("default", None),
];

fn check_keys(table: &Reader<'_>, allowed: &[&str]) {
    let refused = |name: &&str| table.has(name) && !allowed.contains(name);
    for name in schema::FIGURE.keys.iter().map(|key| key.name).filter(refused) {
        let allowed = format!("no {name} with this kind; its keys are {}", allowed.join(", "));
        table.wrong_because(name, allowed);
    }
}

/// Reads one figure; without `known` any name is accepted.
fn figure(table: &Reader<'_>, kind: FigureKind, known: Option<&Known>) -> Option<Figure> {
    check_keys(table, kind.keys());
    let of = match kind {
        FigureKind::Cdf if table.has("series") => {
            check_keys(table, &["kind", "title", "series", "facet"]);
            one_series(table, known)
        }
        FigureKind::Cdf => {
            metric(table, "metric", known, |it| one_of(OF_REQUESTS, it)).map(|it| vec![it])
        }
        FigureKind::Bars | FigureKind::Curve => {
            metric(table, "metric", known, metric_entry).map(|it| vec![it])
        }
        FigureKind::Plane => {
            let both = ["metric", "against"].map(|key| metric(table, key, known, metric_entry));
            both.into_iter().collect()
        }
        FigureKind::Timeline | FigureKind::Ribbon => series(table, known),
        FigureKind::Transitions => Some(Vec::new()),
    };
    let facet = table.text("facet").and_then(|text| {
        let facets = kind.facets();
        let facet = facets.iter().find(|(name, _)| *name == text).map(|(_, facet)| *facet);
        let names = || facets.iter().map(|(name, _)| *name);
        facet.or_else(|| table.refuse("facet", format!("with this kind {}", listed(names()))))
    });
    let is_over_time = matches!(kind, FigureKind::Timeline | FigureKind::Ribbon);
    if let Some(known) = known.filter(|_| kind == FigureKind::Curve) {
        let axis = |cell: &String| Abscissa::of(cell).map(|at| at.axis);
        let axes: BTreeSet<Option<String>> = known.cells.iter().map(axis).collect();
        if axes.len() != 1 || axes.contains(&None) {
            let allowed = "a curve where one number per cell differs, such as with \
                           `bottleneck.loss = [\"1%\", \"2%\"]`";
            table.wrong_because("kind", allowed);
        }
    }
    let baseline = table.name("baseline");
    let is_alone = matches!(of.as_deref(), Some([of]) if of.name != "*");
    if kind == FigureKind::Ribbon && baseline.is_some() && (facet != Some(Facet::Arm) || !is_alone)
    {
        let allowed = "a baseline in a ribbon of one series of one part with facet = \"arm\"";
        table.wrong_because("baseline", allowed);
    }
    check_name(table, "baseline", baseline.as_deref(), known.map(|known| &known.arms));
    Some(Figure {
        kind,
        title: table.text("title").unwrap_or("").trim().to_string(),
        of: of?,
        facet: facet.or(is_over_time.then_some(Facet::Part)),
        baseline,
        published: Vec::new(),
    })
}

/// Refuses `name` where `known` lacks it.
fn check_name(table: &Reader<'_>, key: &str, name: Option<&str>, known: Option<&BTreeSet<String>>) {
    let (Some(name), Some(known)) = (name, known) else { return };
    if !known.contains(name) {
        let names = listed(known.iter().map(String::as_str));
        table.wrong_because(key, format!("one of {names}"));
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The entry for the quantity and the part of `address`.
fn one_of(entries: &'static [Entry], address: &Address) -> Option<&'static Entry> {
    entries.iter().find(|entry| entry.name == address.quantity && entry.is_of(&address.part))
}

fn metric_entry(address: &Address) -> Option<&'static Entry> {
    let of_arm = || address.part == "run";
    describe(&address.quantity)
        .filter(|entry| entry.is_of(&address.part) || of_arm() && entry.is_of("arm"))
}

fn metric(
    table: &Reader<'_>,
    key: &str,
    known: Option<&Known>,
    entry: impl Fn(&Address) -> Option<&'static Entry>,
) -> Option<Address> {
    let address: Address = match table.has(key) {
        true => table.parsed(key)?,
        false => table.refused(key)?,
    };
    if entry(&address).is_none() {
        let fits = |name: &&str| {
            entry(&Address { quantity: name.to_string(), ..address.clone() }).is_some()
        };
        let names: Vec<&str> = catalogue().map(|entry| entry.name).filter(fits).collect();
        let near = nearest_words(&address.quantity, &names);
        let allowed = schema::FIGURE.key(key).map_or_else(String::new, |key| key.allowed());
        return table.refuse(key, allowed + &near);
    }
    check_part(table, key, &address, known);
    let window = address.quantity.rsplit_once('.').map(|(window, _)| window);
    if let (Some(window), Some(Known { windows, .. })) = (window, known)
        && window != "attack"
        && !windows.contains(window)
    {
        let allowed = match listed(windows.iter().map(String::as_str)) {
            none if none.is_empty() => "no metric of a window: the plan has none".into(),
            names => format!("a metric of a window, one of {names}"),
        };
        table.wrong_because(key, allowed);
    }
    Some(address)
}

fn check_part(table: &Reader<'_>, key: &str, address: &Address, known: Option<&Known>) {
    let names = known.and_then(|known| known.parts(&address.part));
    let Some(names) = names.filter(|names| address.name != "*" && !names.contains(&address.name))
    else {
        return;
    };
    let names = listed(names.iter().map(String::as_str).chain(["*"]));
    table.wrong_because(key, format!("{}s/NAME/.. with the name one of {names}", address.part));
}

/// The series of a distribution over time.
fn one_series(table: &Reader<'_>, known: Option<&Known>) -> Option<Vec<Address>> {
    let of = series(table, known)?;
    if of.len() > 1 || table.text("facet").is_some_and(|facet| facet != "cell") {
        table.wrong_because("series", "one series, with the facet cell or without a facet");
    }
    Some(of)
}

fn series(table: &Reader<'_>, known: Option<&Known>) -> Option<Vec<Address>> {
    let mut of = Vec::new();
    let mut units = BTreeSet::new();
    for node in table.elements("series") {
        let address = node.value.as_text().and_then(|text| text.parse::<Address>().ok());
        let address = address.or_else(|| table.refused("series"))?;
        let Some(entry) = one_of(SERIES, &address) else {
            let known = SERIES.iter().filter(|entry| entry.is_of(&address.part));
            let known = listed(known.map(|entry| entry.name));
            return match address.part.as_str() {
                "run" => table.refused("series"),
                part => table.refuse("series", format!("{part}s/NAME/ with one of {known}")),
            };
        };
        check_part(table, "series", &address, known);
        units.insert(entry.unit);
        of.push(address);
    }
    if of.is_empty() || units.len() > 1 {
        return table.refuse("series", "at least one series, all with the same unit");
    }
    Some(of)
}

fn published(table: &Reader<'_>, known: &Known) -> Vec<PublishedFigure> {
    let read = |one: &Reader<'_>| {
        let (arm, value, source) = (one.name("arm"), one.number("value"), one.text("source"));
        check_name(one, "arm", arm.as_deref(), Some(&known.arms));
        let published = PublishedFigure {
            label: one.text("label").unwrap_or("published").into(),
            arm: arm?,
            cell: one.text("cell").unwrap_or_default().into(),
            value: value?,
            source: source?.into(),
        };
        if !known.cells.iter().any(|it| published.is_of(it)) {
            let allowed = match listed(known.cells.iter().map(String::as_str)) {
                unnamed if unnamed.is_empty() => "no cell: the plan has no named cells".into(),
                names => format!("one of {names}"),
            };
            one.wrong_because("cell", allowed);
        }
        Some(published)
    };
    table.tables("published").iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAN, load};
    use super::*;

    #[test]
    fn default_figures_apply_only_without_own() {
        let figures = |text: &str| load(&format!("{PLAN}{text}"), &[]).unwrap().figures;
        let kinds = |text: &str| figures(text).iter().map(|it| it.kind).collect::<Vec<_>>();
        assert_eq!(figures(""), defaults());
        assert_eq!(defaults().len(), DEFAULT.matches("[[figure]]").count());
        let bars = "[[figure]]\nkind = \"bars\"\nmetric = \"flows/bulk/goodput_mbps\"\n";
        assert_eq!(kinds(bars), [FigureKind::Bars]);
        let both = kinds(&format!("{bars}[[figure]]\nkind = \"default\"\n"));
        assert_eq!(
            (both[0], both[1], both.len()),
            (FigureKind::Bars, FigureKind::Cdf, 1 + defaults().len())
        );
    }

    #[test]
    fn what_is_wrong_with_a_figure_is_named() {
        for (figure, expected) in [
            (
                "kind = \"pie\"",
                "kind = \"pie\": allowed is \"cdf\" (distribution of single requests, or",
            ),
            ("title = \"t\"", "kind is missing: allowed is \"cdf\""),
            ("kind = \"bars\"", "metric is missing: allowed is a metric"),
            ("kind = \"bars\"\nmetric = \"slow\"", "metric = \"slow\": allowed is a metric"),
            ("kind = \"bars\"\nmetric = \"jain\"", "metric = \"jain\": allowed is a metric"),
            ("kind = \"cdf\"\nmetric = \"slowdown_p50\"", "metric = \"slowdown_p50\": allowed is"),
            (
                "kind = \"bars\"\nmetric = \"flows/web/goodput_mbps\"",
                "metric = \"flows/web/goodput_mbps\": allowed is flows/NAME/.. with the name one of \
                 bulk, *",
            ),
            (
                "kind = \"bars\"\nmetric = \"links/forward/late.utilisation\"",
                "metric = \"links/forward/late.utilisation\": allowed is no metric of a window: the",
            ),
            (
                "kind = \"bars\"\nmetric = \"goodput_mbps\"\nbaseline = \"other\"",
                "baseline = \"other\": allowed is one of with, without",
            ),
            (
                "kind = \"bars\"\nmetric = \"goodput_mbps\"\nfacet = \"arm\"",
                "facet = \"arm\": allowed is no facet with this kind; its keys are kind, title",
            ),
            (
                "kind = \"timeline\"\nseries = [\"bundles/a/queue\"]",
                "series = [\"bundles/a/queue\"]: allowed is bundles/NAME/ with one of queue_packets,",
            ),
            (
                "kind = \"ribbon\"\nseries = [\"bundles/a/rtt_ms\", \"bundles/a/rate_mbps\"]",
                "series = [\"bundles/a/rtt_ms\", \"bundles/a/rate_mbps\"]: allowed is at least one series, \
                 all with the same unit",
            ),
            (
                "kind = \"ribbon\"\nseries = [\"bundles/a/rtt_ms\"]\nfacet = \"size\"",
                "facet = \"size\": allowed is with this kind part, arm, cell",
            ),
            (
                "kind = \"plane\"\nmetric = \"goodput_mbps\"",
                "against is missing: allowed is a metric",
            ),
            (
                "kind = \"curve\"\nmetric = \"goodput_mbps\"\nagainst = \"goodput_mbps\"",
                "against = \"goodput_mbps\": allowed is no against with this kind",
            ),
            (
                "kind = \"cdf\"\nseries = [\"flows/bulk/srtt_ms\"]\nfacet = \"size\"",
                "series = [\"flows/bulk/srtt_ms\"]: allowed is one series, with the facet cell",
            ),
            ("kind = \"default\"\ntitle = \"t\"", "title = \"t\": allowed is no title with this"),
        ] {
            let error = load(&format!("{PLAN}[[figure]]\n{figure}\n"), &[]).unwrap_err();
            let expected = format!("figure.0.{expected}");
            assert!(error.to_string().contains(&expected), "{error}\nlacks\n{expected}");
        }
    }

    #[test]
    fn a_cell_stands_where_its_first_number_is() {
        for (name, axis, value, rest) in [
            ("rtt=20ms", "rtt (ms)", 20.0, ""),
            ("cc=bbr rate=1Gbit/s", "rate (Mbit/s)", 1000.0, "cc=bbr"),
            ("loss=0.02 rtt=1s", "loss", 0.02, "rtt=1s"),
            ("limit=2.5bdp", "limit (bdp)", 2.5, ""),
            ("start_jitter=3%", "start jitter (%)", 3.0, ""),
        ] {
            let found = Abscissa::of(name).unwrap();
            assert!((found.value - value).abs() < 1e-9, "{found:?}");
            assert_eq!((found.axis.as_str(), found.rest.as_str()), (axis, rest));
        }
        assert_eq!(Abscissa::of("1_to_1"), None);
        assert_eq!(Abscissa::of(""), None);
        let curve = "[[figure]]\nkind = \"curve\"\nmetric = \"goodput_mbps\"\n";
        let error = load(&format!("{PLAN}{curve}"), &[]).unwrap_err().to_string();
        assert!(
            error.contains("kind = \"curve\": allowed is a curve where one number per cell"),
            "{error}"
        );
        let cells = "[cells]\nbottleneck.rtt = [\"20ms\", \"50ms\"]\n";
        assert_eq!(
            load(&format!("{PLAN}{cells}{curve}"), &[]).unwrap().figures[0].kind,
            FigureKind::Curve
        );
    }

    #[test]
    fn published_number_names_arm_and_cells() {
        let with_sets = |published: &str, sets: &[&str]| {
            let figure = "[[figure]]\nkind = \"bars\"\nmetric = \"goodput_mbps\"\n";
            let cells = "[cells]\nbottleneck.rtt = [\"20ms\", \"50ms\"]\n";
            load(&format!("{PLAN}{cells}{figure}published = [{published}]\n"), sets)
        };
        let with = |published: &str| with_sets(published, &[]);
        let good = "{ arm = \"with\", cell = \"rtt=20ms\", value = 0.5, source = \"s\" }";
        let figures = with(good).unwrap().figures;
        let published = &figures[0].published[0];
        assert_eq!((published.label.as_str(), published.value), ("published", 0.5));
        assert!(published.is_of("rtt=20ms") && published.is_of("rtt=20ms count=1"));
        assert!(!published.is_of("rtt=200ms"));
        assert!(
            with_sets(good, &["bottleneck.rate=48Mbit/s"]).unwrap().figures[0].published.is_empty()
        );
        for (from, to, expected) in [
            ("\"with\"", "\"witch\"", "arm = \"witch\": allowed is one of with, without"),
            ("rtt=20ms", "rtt=30ms", "cell = \"rtt=30ms\": allowed is one of rtt=20ms, rtt=50ms"),
            ("0.5", "\"0.5\"", "value = \"0.5\": allowed is a number"),
            (", source = \"s\"", "", "source is missing"),
        ] {
            let error = with(&good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(&format!("figure.0.published.0.{expected}")), "{error}");
        }
    }
}
