//! The figures that a report draws of a plan.

use std::collections::BTreeSet;

use forebay_core::units::parse_duration;
use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::reader::{Reader, parse_rate};
use super::{schema, tree};
use crate::experiment::Experiment;
use crate::metrics::{Address, Entry, OF_REQUESTS, SERIES, describe};

/// The figures of a plan without any, as a plan would have them.
const DEFAULT: &str = include_str!("figures.toml");

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// How it is drawn.
    pub kind: Kind,
    /// What to see in it.
    pub title: String,
    /// What is drawn: one metric, or quantities over time of one unit; of a plane what is drawn upwards and what
    /// to the right; nothing of transitions.
    pub of: Vec<Address>,
    /// What each panel is of; `None`: there is one.
    pub facet: Option<Facet>,
    /// The arm that the others are divided by.
    pub baseline: Option<String>,
    /// What others report.
    pub published: Vec<Published>,
}

impl Figure {
    /// Whether it shows all cells of a grid at once.
    pub fn spans_cells(&self) -> bool {
        matches!(self.kind, Kind::Bars | Kind::Curve) || self.facet == Some(Facet::Cell)
    }
}

/// How a [`Figure`] is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The distribution of a figure of single requests, or of a quantity over time, all seeds together.
    Cdf,
    /// A metric of all seeds, a bar an arm and cell.
    Bars,
    /// A metric against the number that tells cells apart: median and its interval over the seeds, a curve an arm.
    Curve,
    /// One metric against another, a point a run: where each arm operates, beside the optimum.
    Plane,
    /// Quantities over time, of the first seed.
    Timeline,
    /// Quantities over time: least, median and greatest of the seeds.
    Ribbon,
    /// A table of the bundles' changes of state that are about others.
    Transitions,
}

impl Kind {
    /// The keys that a figure of this kind may have.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Cdf => &["kind", "title", "metric", "series", "facet"],
            Self::Bars => &["kind", "title", "metric", "baseline", "published"],
            Self::Curve => &["kind", "title", "metric", "baseline"],
            Self::Plane => &["kind", "title", "metric", "against", "facet"],
            Self::Timeline | Self::Ribbon => &["kind", "title", "series", "facet"],
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

/// What each panel of a [`Figure`] is of.
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

/// A number that somebody else reports of an arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Name of its bar.
    pub label: String,
    /// The arm that it is of.
    pub arm: String,
    /// The cell that it is of, or the first word of several; empty: of all.
    pub cell: String,
    /// The number, in the unit of the figure.
    pub value: f64,
    /// Where it is reported.
    pub source: String,
}

impl Published {
    /// Whether it is of the cell called `name`.
    pub fn is_of(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.cell);
        self.cell.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// Where a cell stands on the axis of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Abscissa {
    /// What the axis is called, with its unit.
    pub axis: String,
    /// The number.
    pub value: f64,
    /// What else tells the cell from others.
    pub rest: String,
}

impl Abscissa {
    /// Of the cell called `name`: the first number in it, such as 20 of `rtt=20ms cc=bbr`. Durations are in
    /// milliseconds, rates in Mbit/s, what has another unit stays in it.
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
    if let Ok(rate) = parse_rate(text) {
        return Some((rate.as_mbit_per_sec_f64(), "Mbit/s".into()));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.into()))
}

/// What the figures of a plan may name.
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
    /// Adds an arm, which the plan need not run.
    pub fn add_arm(&mut self, name: String) {
        self.arms.insert(name);
    }

    /// Adds what a run has.
    pub fn add(&mut self, run: &Experiment) {
        self.arms.insert(run.arm.clone());
        self.cells.insert(run.cell.clone());
        self.flows.extend(run.flows.iter().map(|flow| flow.name.clone()));
        self.links.extend(run.links().map(|(name, _)| name));
        self.bundles.extend(run.bundles.iter().map(|bundle| bundle.name.clone()));
        self.windows.extend(run.windows.iter().map(|window| window.name.clone()));
    }

    /// The names of the parts of this kind, none of the run.
    fn parts(&self, part: &str) -> Option<&BTreeSet<String>> {
        match part {
            "flow" => Some(&self.flows),
            "link" => Some(&self.links),
            "bundle" => Some(&self.bundles),
            _ => None,
        }
    }
}

/// Reads the figures of a plan, without what others report unless it `is_published` as it is.
pub(super) fn figures(
    plan: &Reader<'_>,
    known: &Known,
    is_published: bool,
) -> Result<Vec<Figure>, PlanError> {
    let mut figures = Vec::new();
    for table in plan.tables("figure", &schema::FIGURE)? {
        match table.require("kind", table.choice("kind", &KINDS)?)? {
            None => {
                check_keys(&table, &["kind"])?;
                figures.extend(defaults());
            }
            Some(kind) => {
                let figure = figure(&table, kind, Some(known))?;
                let published = if is_published { published(&table, known)? } else { Vec::new() };
                figures.push(Figure { published, ..figure });
            }
        }
    }
    Ok(if plan.has("figure") { figures } else { defaults() })
}

/// The figures of a plan without any.
pub fn defaults() -> Vec<Figure> {
    let read = || {
        let tree = tree::parse_document(DEFAULT, "figures.toml")?;
        let document = Reader::document(&tree, &schema::PLAN, "figures.toml")?;
        let tables = document.tables("figure", &schema::FIGURE)?;
        let read = |table: &Reader<'_>| {
            let kind = table.choice("kind", &KINDS)?.flatten();
            figure(table, table.require("kind", kind)?, None)
        };
        tables.iter().map(read).collect::<Result<Vec<Figure>, PlanError>>()
    };
    read().expect("the default figures are read by a test")
}

/// Kinds as plans name them; `default` stands for several figures.
const KINDS: [(&str, Option<Kind>); 8] = [
    ("cdf", Some(Kind::Cdf)),
    ("bars", Some(Kind::Bars)),
    ("curve", Some(Kind::Curve)),
    ("plane", Some(Kind::Plane)),
    ("timeline", Some(Kind::Timeline)),
    ("ribbon", Some(Kind::Ribbon)),
    ("transitions", Some(Kind::Transitions)),
    ("default", None),
];

fn check_keys(table: &Reader<'_>, allowed: &[&str]) -> Result<(), PlanError> {
    let given =
        schema::FIGURE.keys.iter().find(|key| table.has(key.name) && !allowed.contains(&key.name));
    given.map_or(Ok(()), |key| {
        let allowed = format!("no {} with this kind, but {}", key.name, allowed.join(", "));
        Err(table.wrong_because(key.name, &allowed))
    })
}

/// Reads one figure; without `known` any name will do.
fn figure(table: &Reader<'_>, kind: Kind, known: Option<&Known>) -> Result<Figure, PlanError> {
    check_keys(table, kind.keys())?;
    let of = match kind {
        Kind::Cdf if table.has("series") => {
            check_keys(table, &["kind", "title", "series", "facet"])?;
            one_series(table, known)?
        }
        Kind::Cdf => vec![metric(table, "metric", known, |it| one_of(OF_REQUESTS, it))?],
        Kind::Bars | Kind::Curve => vec![metric(table, "metric", known, metric_entry)?],
        Kind::Plane => vec![
            metric(table, "metric", known, metric_entry)?,
            metric(table, "against", known, metric_entry)?,
        ],
        Kind::Timeline | Kind::Ribbon => series(table, known)?,
        Kind::Transitions => Vec::new(),
    };
    let facets: Vec<&str> = kind.facets().iter().map(|(name, _)| *name).collect();
    let facet = table.choice("facet", kind.facets()).map_err(|_| {
        table.wrong_because("facet", &format!("with this kind {}", facets.join(", ")))
    })?;
    let is_over_time = matches!(kind, Kind::Timeline | Kind::Ribbon);
    if let Some(known) = known.filter(|_| kind == Kind::Curve) {
        let axis = |cell: &String| Abscissa::of(cell).map(|at| at.axis);
        let axes: BTreeSet<Option<String>> = known.cells.iter().map(axis).collect();
        if axes.len() != 1 || axes.contains(&None) {
            let allowed = "a curve where each cell has a number of one kind, such as those of \
                           `bottleneck.loss = [\"1%\", \"2%\"]`";
            return Err(table.wrong_because("kind", allowed));
        }
    }
    let baseline = table.name("baseline")?;
    check_name(table, "baseline", baseline.as_deref(), known.map(|known| &known.arms))?;
    Ok(Figure {
        kind,
        title: table.text("title")?.unwrap_or("").trim().to_string(),
        of,
        facet: facet.or(is_over_time.then_some(Facet::Part)),
        baseline,
        published: Vec::new(),
    })
}

/// Refuses `name` where `known` lacks it.
fn check_name(
    table: &Reader<'_>,
    key: &str,
    name: Option<&str>,
    known: Option<&BTreeSet<String>>,
) -> Result<(), PlanError> {
    let (Some(name), Some(known)) = (name, known) else { return Ok(()) };
    if known.contains(name) {
        return Ok(());
    }
    Err(table.wrong_because(key, &format!("one of {}", listed(known.iter().map(String::as_str)))))
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// The entry called like the quantity of `address`, of its part.
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
) -> Result<Address, PlanError> {
    let address: Address = table.require(key, table.parsed(key)?)?;
    if entry(&address).is_none() {
        return Err(table.wrong(key));
    }
    check_part(table, key, &address, known)?;
    let window = address.quantity.rsplit_once('.').map(|(window, _)| window);
    if let (Some(window), Some(Known { windows, .. })) = (window, known)
        && window != "attack"
        && !windows.contains(window)
    {
        let allowed = match listed(windows.iter().map(String::as_str)) {
            none if none.is_empty() => "no metric of a window: the plan has none".into(),
            names => format!("a metric of a window, one of {names}"),
        };
        return Err(table.wrong_because(key, &allowed));
    }
    Ok(address)
}

fn check_part(
    table: &Reader<'_>,
    key: &str,
    address: &Address,
    known: Option<&Known>,
) -> Result<(), PlanError> {
    let names = known.and_then(|known| known.parts(&address.part));
    let Some(names) = names.filter(|names| address.name != "*" && !names.contains(&address.name))
    else {
        return Ok(());
    };
    let names = listed(names.iter().map(String::as_str).chain(["*"]));
    let allowed = format!("{}s/NAME/.. with the name one of {names}", address.part);
    Err(table.wrong_because(key, &allowed))
}

/// The series of a distribution over time.
fn one_series(table: &Reader<'_>, known: Option<&Known>) -> Result<Vec<Address>, PlanError> {
    let of = series(table, known)?;
    if of.len() > 1 || table.text("facet")?.is_some_and(|facet| facet != "cell") {
        let allowed = "one series, with the facet cell or none";
        return Err(table.wrong_because("series", allowed));
    }
    Ok(of)
}

fn series(table: &Reader<'_>, known: Option<&Known>) -> Result<Vec<Address>, PlanError> {
    let mut of = Vec::new();
    let mut units = BTreeSet::new();
    for node in table.list("series")? {
        let tree::Value::Text(text) = &node.value else { return Err(table.wrong("series")) };
        let address: Address = text.parse().map_err(|()| table.wrong("series"))?;
        let Some(entry) = one_of(SERIES, &address) else {
            let known = SERIES.iter().filter(|entry| entry.is_of(&address.part));
            let known = listed(known.map(|entry| entry.name));
            let allowed = match address.part.as_str() {
                "run" => schema::FIGURE.key("series").map_or(String::new(), |it| it.allowed.into()),
                part => format!("{part}s/NAME/ with one of {known}"),
            };
            return Err(table.wrong_because("series", &allowed));
        };
        check_part(table, "series", &address, known)?;
        units.insert(entry.unit);
        of.push(address);
    }
    if of.is_empty() || units.len() > 1 {
        return Err(table.wrong_because("series", "at least one series, all of one unit"));
    }
    Ok(of)
}

fn published(table: &Reader<'_>, known: &Known) -> Result<Vec<Published>, PlanError> {
    let mut all = Vec::new();
    for one in table.tables("published", &schema::PUBLISHED)? {
        let text = |key| one.text(key).map(|text| text.map(str::to_string));
        let arm = one.require("arm", one.name("arm")?)?;
        check_name(&one, "arm", Some(&arm), Some(&known.arms))?;
        let published = Published {
            label: text("label")?.unwrap_or_else(|| "published".into()),
            arm,
            cell: text("cell")?.unwrap_or_default(),
            value: one.require("value", one.number("value")?)?,
            source: one.require("source", text("source")?)?,
        };
        if !known.cells.iter().any(|it| published.is_of(it)) {
            let allowed = match listed(known.cells.iter().map(String::as_str)) {
                unnamed if unnamed.is_empty() => "no cell: the plan has none with a name".into(),
                names => format!("one of {names}"),
            };
            return Err(one.wrong_because("cell", &allowed));
        }
        all.push(published);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAN, load};
    use super::*;

    #[test]
    fn a_plan_without_figures_has_the_default_ones_and_one_with_them_its_own() {
        let figures = |text: &str| load(&format!("{PLAN}{text}"), &[]).unwrap().figures;
        let kinds = |text: &str| figures(text).iter().map(|it| it.kind).collect::<Vec<_>>();
        assert_eq!(figures(""), defaults());
        assert_eq!(defaults().len(), DEFAULT.matches("[[figure]]").count());
        let bars = "[[figure]]\nkind = \"bars\"\nmetric = \"flows/bulk/goodput_mbps\"\n";
        assert_eq!(kinds(bars), [Kind::Bars]);
        let both = kinds(&format!("{bars}[[figure]]\nkind = \"default\"\n"));
        assert_eq!((both[0], both[1], both.len()), (Kind::Bars, Kind::Cdf, 1 + defaults().len()));
    }

    #[test]
    fn what_is_wrong_with_a_figure_is_named() {
        for (figure, expected) in [
            ("kind = \"pie\"", "kind = \"pie\": allowed is cdf (of single requests, or of"),
            ("title = \"t\"", "kind is missing: allowed is cdf"),
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
                "facet = \"arm\": allowed is no facet with this kind, but kind, title, metric",
            ),
            (
                "kind = \"timeline\"\nseries = [\"bundles/a/queue\"]",
                "series = [\"bundles/a/queue\"]: allowed is bundles/NAME/ with one of queue_packets,",
            ),
            (
                "kind = \"ribbon\"\nseries = [\"bundles/a/rtt_ms\", \"bundles/a/rate_mbps\"]",
                "series = [\"bundles/a/rtt_ms\", \"bundles/a/rate_mbps\"]: allowed is at least one series, \
                 all of one unit",
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
        assert!(error.contains("kind = \"curve\": allowed is a curve where each cell"), "{error}");
        let cells = "[cells]\nbottleneck.rtt = [\"20ms\", \"50ms\"]\n";
        assert_eq!(
            load(&format!("{PLAN}{cells}{curve}"), &[]).unwrap().figures[0].kind,
            Kind::Curve
        );
    }

    #[test]
    fn a_published_number_is_of_an_arm_and_of_cells() {
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
