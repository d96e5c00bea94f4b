//! Where a search looks: ranges of numbers, competitors, and limits on events during a run.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use forebay_core::spec::Spec;
use forebay_core::units::Rate;
use forebay_reader::schema::{Key, Kind as Values, Section, key};
use forebay_reader::tree::Node;
use forebay_reader::{Document, Format, Reader};
use forebay_sim::SUPPLIED;

use super::case::{Case, CaseEvent};
use super::objective::rounded;
use forebay_lab::plan::PlanError;
use forebay_lab::plan::library::Source;
use forebay_policy::algorithms;

/// Name and text of every space that the program knows by name.
pub static SPACES: [(&str, &str); 3] = [
    ("default", include_str!("spaces/default.toml")),
    ("alone", include_str!("spaces/alone.toml")),
    ("short", include_str!("spaces/short.toml")),
];

forebay_core::named! {
    /// A number of a case.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Number {
        /// Rate of the bottleneck (Mbit/s).
        Rate => "rate",
        /// Round trip without queues (ms).
        Rtt => "rtt",
        /// Buffer of the bottleneck (bandwidth-delay products).
        Buffer => "buffer",
        /// Random loss (percent).
        Loss => "loss",
        /// Start of the flow (ms).
        Start => "start",
    }
}

impl Number {
    /// Values that a space may have. Beyond them, a run takes minutes, or the result says nothing
    /// about the algorithm.
    const fn values(self) -> &'static Values {
        match self {
            Self::Rate => &RATE,
            Self::Rtt => &RTT,
            Self::Buffer => &BUFFER,
            Self::Loss => &LOSS,
            Self::Start => &START,
        }
    }

    /// Reads the number in a space; `None`: of another kind, or out of bounds.
    fn parse(self, node: &Node) -> Option<f64> {
        let (values, value) = (self.values(), &node.value);
        let number = match self {
            Self::Rate => values.rate(value)?.as_mbit_per_sec_f64(),
            Self::Rtt | Self::Start => values.duration(value)?.as_secs_f64() * 1e3,
            Self::Buffer => values.number(value)?,
            Self::Loss => values.share(value)? * 100.0,
        };
        Some(rounded(number, DIGITS))
    }
}

/// Allowed rates of the bottleneck.
const RATE: Values = Values::Rate(Rate::from_bits_per_sec(100_000), Rate::from_mbit_per_sec(1000));
/// Allowed round trips without queues.
const RTT: Values = Values::Duration(Duration::from_millis(1), Duration::from_secs(1));
/// Allowed buffers (bandwidth-delay products).
const BUFFER: Values = Values::Number(0.1, 20.0);
/// Allowed shares of random losses; with more, losses decide every result.
const LOSS: Values = Values::Share(0.0, 0.1);
/// Allowed start times of the flow; each must also lie before the end of the warm-up.
const START: Values = Values::Duration(Duration::ZERO, Duration::from_secs(60));

/// Significant digits of a range's ends: digits beyond these come from unit conversion and are
/// dropped.
const DIGITS: usize = 9;
/// Significant digits of a number that is drawn.
const DRAWN_DIGITS: usize = 3;

/// The values that a number may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    min: f64,
    max: f64,
    is_log: bool,
}

impl Range {
    /// The least value.
    pub const fn min(&self) -> f64 {
        self.min
    }

    /// Whether `value` is in the range.
    pub fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// The value at `place`, 0 to 1, to three significant digits.
    pub fn at(&self, place: f64) -> f64 {
        let place = place.clamp(0.0, 1.0);
        let value = if self.is_log {
            self.min * (self.max / self.min).powf(place)
        } else {
            self.min + (self.max - self.min) * place
        };
        rounded(value, DRAWN_DIGITS).clamp(self.min, self.max)
    }

    /// Position of `value` in the range, 0 to 1.
    pub fn place_of(&self, value: f64) -> f64 {
        let place = if self.is_log {
            (value / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        // A range of one value has no places.
        if place.is_finite() { place } else { 0.0 }
    }
}

/// Limits on the events of a run: changes of the link itself, or cross traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patterns {
    /// Most events.
    pub events: usize,
    /// Longest event (slots).
    pub longest: u32,
    /// Least and greatest percentage of the link's rate in an event.
    pub percent: [u32; 2],
    /// Most of the run's link capacity that all events together may take (share, 0 to 0.5).
    share: f64,
    /// Whether the event's percentage of the rate remains. Otherwise the event takes that
    /// percentage.
    is_left: bool,
}

impl Patterns {
    /// Nothing happens.
    const NONE: Self = Self { events: 0, longest: 1, percent: [0; 2], share: 0.0, is_left: false };

    /// Whether a run of `slots` slots may have all of `events`.
    pub fn allow(&self, events: &[CaseEvent], slots: u32) -> bool {
        let taken = |event: &CaseEvent| {
            let percent = if self.is_left { 100 - event.percent } else { event.percent };
            percent * event.slots
        };
        let taken: u32 = events.iter().map(taken).sum();
        let fits = |event: &CaseEvent| {
            (1..=self.longest).contains(&event.slots)
                && event.at + event.slots <= slots
                && (self.percent[0]..=self.percent[1]).contains(&event.percent)
        };
        events.len() <= self.events
            && events.iter().all(fits)
            && f64::from(taken) <= self.share * 100.0 * f64::from(slots)
    }
}

/// A space of cases.
#[derive(Clone, Debug)]
pub struct Space {
    /// Name of the space, or the path of its file.
    pub name: String,
    /// End of a run.
    pub stop: Duration,
    /// Figures count from here on.
    pub warmup: Duration,
    /// Events begin and end at multiples of this.
    pub slot: Duration,
    /// Algorithms of the competing flow; `None`: there is none.
    pub competitors: Vec<Option<String>>,
    /// When the link is slower.
    pub service: Patterns,
    /// When cross traffic sends datagrams.
    pub cross: Patterns,
    /// The usual links that the worst case is measured against.
    pub plain: Vec<Case>,
    ranges: [Range; Number::ALL.len()],
}

impl Space {
    /// The space called `reference`: a built-in one with this name, else a file.
    ///
    /// # Errors No such file exists, or it is wrong: file, line, key, value and allowed values.
    pub fn load(reference: &str) -> Result<Self, PlanError> {
        if let Some((name, text)) = SPACES.iter().find(|(name, _)| *name == reference) {
            return Self::read(&Source {
                file: name.to_string(),
                folder: None,
                text: text.to_string(),
            });
        }
        if !Path::new(reference).is_file() {
            let names: Vec<&str> = SPACES.iter().map(|(name, _)| *name).collect();
            let known = names.join(", ");
            let reason = format!("no such file, and no space with that name: known are {known}");
            return Err(PlanError::of(reference, reason));
        }
        Self::read(&Source::read(Path::new(reference))?)
    }

    fn read(source: &Source) -> Result<Self, PlanError> {
        let tree = FORMAT.parse(&source.file, &source.text)?;
        let document = Document::new(&source.file, tree, &FORMAT);
        document.visit();
        let space = Self::of(&document.root(), &source.file);
        document.finish(space)
    }

    fn of(reader: &Reader<'_>, name: &str) -> Option<Self> {
        let (stop, warmup) = (reader.duration("stop"), reader.duration("warmup"));
        if stop.zip(warmup).is_some_and(|(stop, warmup)| warmup >= stop) {
            reader.wrong("warmup");
        }
        let slot = reader.duration("slot").unwrap_or(SLOT);
        let ranges = Number::ALL.map(|number| range(reader, number));
        let late = |warmup: Duration, start: Range| start.max >= warmup.as_secs_f64() * 1e3;
        if let (Some(warmup), Some(start)) = (warmup, ranges[Number::Start as usize])
            && late(warmup, start)
        {
            let allowed =
                "a time before the warm-up ends, so that the flow runs during the measurement";
            reader.wrong_because("start", allowed);
        }
        let service = patterns(reader, "service", &SERVICE, slot);
        let cross = patterns(reader, "cross", &CROSS, slot);
        let [rate, rtt, buffer, loss, start] = ranges;
        let mut space = Self {
            name: name.into(),
            stop: stop?,
            warmup: warmup?,
            slot,
            competitors: competitors(reader)?,
            service: service?,
            cross: cross?,
            plain: Vec::new(),
            ranges: [rate?, rtt?, buffer?, loss?, start?],
        };
        space.plain = plain(reader, &space)?;
        Some(space)
    }

    /// The values of a number.
    pub const fn range(&self, number: Number) -> &Range {
        &self.ranges[number as usize]
    }

    /// Whole slots of a run.
    pub fn slots(&self) -> u32 {
        (self.stop.as_nanos() / self.slot.as_nanos()) as u32
    }

    /// Whether `case` is in the space.
    pub fn contains(&self, case: &Case) -> bool {
        Number::ALL.iter().all(|number| self.range(*number).contains(case.number(*number)))
            && self.competitors.contains(&case.competitor)
            && self.service.allow(&case.service, self.slots())
            && self.cross.allow(&case.cross, self.slots())
    }
}

/// Checks that `text` names an algorithm that a simulated flow can have.
///
/// # Errors The allowed values.
pub fn check_algorithm(text: &str) -> Result<(), String> {
    let mut spec: Spec = text.parse().map_err(|error| format!("{error}"))?;
    if spec.kind == "reno" {
        spec.kind = "newreno".into();
    }
    let registry = algorithms::known();
    let built = registry.build(&registry.of_single_flow(spec), SUPPLIED);
    built.map(drop).map_err(|error| error.to_string())
}

/// Allowed lengths of a run: shorter runs are mostly start-up, and longer ones take too long for a
/// search.
const STOPS: Values = Values::Duration(Duration::from_millis(500), Duration::from_secs(120));
/// Shortest slot, and lower bound of `longest`.
const SLOT_MIN: Duration = Duration::from_millis(10);
/// Allowed lengths of a slot.
const SLOTS: Values = Values::Duration(SLOT_MIN, Duration::from_secs(1));
/// Default length of a slot; a shorter one gives more distinct cases to search.
const SLOT: Duration = Duration::from_millis(100);
/// Longest event: a longer interruption breaks the link, and every algorithm with it.
const EVENT_MAX: Duration = Duration::from_secs(2);
/// Largest share of a run that events may take: beyond it they dominate the run.
const SHARE_MAX: f64 = 0.5;
/// Most plain cells.
const PLAIN_MAX: usize = 256;

/// Spaces, as they are read.
static FORMAT: Format = Format { root: &SPACE, names_elements: true };

/// The top level of a space.
static SPACE: Section = Section {
    summary: "Ranges that a search draws cases from.",
    keys: &[
        key("stop", STOPS, "", "length of a run"),
        key(
            "warmup",
            Values::Duration(Duration::ZERO, Duration::from_secs(120)),
            "",
            "begin of measurement",
        )
        .also(", below stop"),
        key("slot", SLOTS, "\"100ms\"", "events begin and end at multiples of this time"),
        key("rate", Values::Or(&RATE, &RATE_RANGE), "", "rate of the bottleneck"),
        key("rtt", Values::Or(&RTT, &RTT_RANGE), "", "round trip without queues"),
        key(
            "buffer",
            Values::Or(&BUFFER, &BUFFER_RANGE),
            "",
            "buffer of the bottleneck in bandwidth-delay products",
        ),
        key("loss", Values::Or(&LOSS, &LOSS_RANGE), "\"0%\"", "random loss"),
        key("start", Values::Or(&START, &START_RANGE), "\"0s\"", "start of the flow"),
        key("competitor", COMPETITORS, "[\"none\"]", "algorithm of a second flow"),
        key("service", Values::Table(&PATTERNS), "nothing happens", "times with a slower link"),
        key(
            "cross",
            Values::Table(&PATTERNS),
            "nothing happens",
            "times with datagrams of cross traffic",
        ),
        key("plain", Values::Table(&PLAIN), "", "usual links to compare with"),
    ],
};

const fn ends(values: Values) -> [Key; 3] {
    [
        key("min", values, "", "least value"),
        key("max", values, "", "greatest value"),
        key(
            "scale",
            Values::OneOf(&[("linear", ""), ("log", "")]),
            "\"linear\"",
            "spacing of values",
        ),
    ]
}

const fn range_of(keys: &'static [Key]) -> Section {
    Section { summary: "A range of values.", keys }
}

/// `rate` as a table.
static RATE_RANGE: Section = range_of(&ends(RATE));
/// `rtt` as a table.
static RTT_RANGE: Section = range_of(&ends(RTT));
/// `buffer` as a table.
static BUFFER_RANGE: Section = range_of(&ends(BUFFER));
/// `loss` as a table.
static LOSS_RANGE: Section = range_of(&ends(LOSS));
/// `start` as a table.
static START_RANGE: Section = range_of(&ends(START));

/// Allowed values of `competitor`.
const COMPETITORS: Values =
    Values::Texts("\"none\" and algorithms of flows (see `forebay list algorithms`)");

/// `[service]` and `[cross]`.
static PATTERNS: Section = Section {
    summary: "Events during a run.",
    keys: &[
        key("events", Values::Whole(0, 32), "", "maximum number of events in a run"),
        key("longest", Values::Duration(SLOT_MIN, EVENT_MAX), "", "longest event")
            .also(", whole slots"),
        key("rate", Values::Table(&PERCENT), "", "rates of events, as shares of the link's rate"),
        key(
            "share",
            Values::Share(0.0, SHARE_MAX),
            "",
            "maximum share of the run's capacity that all events take together",
        ),
    ],
};

/// `rate` of events.
static PERCENT: Section = Section {
    summary: "The rates of events.",
    keys: &[key("min", PERCENTAGE, "", "least rate"), key("max", PERCENTAGE, "", "greatest rate")],
};

/// Shares of the link's rate; [`Kind`] narrows them to whole percentages.
const PERCENTAGE: Values = Values::Share(0.0, 1.0);

/// Allowed values of the keys of `[plain]`.
const LIST: Values = Values::Any("a list of values, each in the range of a space");

/// `[plain]`.
static PLAIN: Section = Section {
    summary: "Usual links: every combination.",
    keys: &[
        key("rate", LIST, "", "rates"),
        key("rtt", LIST, "", "round trips"),
        key("buffer", LIST, "", "buffers in bandwidth-delay products"),
    ],
};

/// One value, or a table of the least and the greatest.
fn range(space: &Reader<'_>, number: Number) -> Option<Range> {
    let key = number.name();
    let one = |value| Range { min: value, max: value, is_log: false };
    let Some(node) = space.node(key) else {
        let has_default = matches!(number, Number::Loss | Number::Start);
        return has_default.then(|| one(0.0));
    };
    if node.value.as_table().is_none() {
        return number.parse(node).map(one);
    }
    let table = space.table(key)?;
    let [min, max] = ["min", "max"].map(|key| table.node(key).and_then(|node| number.parse(node)));
    let is_log = table.choice("scale", &[("linear", false), ("log", true)]).unwrap_or(false);
    let (min, max) = (min?, max?);
    if max < min {
        table.wrong_because("max", "at least min");
    }
    if is_log && min <= 0.0 {
        table.wrong_because("min", "more than 0 with scale = \"log\"");
    }
    Some(Range { min, max, is_log })
}

fn competitors(space: &Reader<'_>) -> Option<Vec<Option<String>>> {
    if !space.has("competitor") {
        return Some(vec![None]);
    }
    let competitor = |name: &str| match name {
        "none" => Ok(None),
        name => check_algorithm(name)
            .map(|()| Some(name.into()))
            .map_err(|error| format!("{}; {error}", COMPETITORS.allowed())),
    };
    let names = space.list("competitor", competitor);
    if names.is_empty() { space.refused("competitor") } else { names.into_iter().collect() }
}

/// Which of the two tables of patterns is read.
struct Kind {
    /// Least and greatest percentage of the rate in such an event.
    bounds: RangeInclusive<u32>,
    is_left: bool,
}

/// `[service]`: 0 to 99 % of the link's rate are left.
const SERVICE: Kind = Kind { bounds: 0..=99, is_left: true };
/// `[cross]`: datagrams take 1 to 100 % of the link's rate.
const CROSS: Kind = Kind { bounds: 1..=100, is_left: false };

fn patterns(space: &Reader<'_>, name: &str, kind: &Kind, slot: Duration) -> Option<Patterns> {
    if !space.has(name) {
        return Some(Patterns::NONE);
    }
    let table = space.table(name)?;
    let (events, longest, share) =
        (table.whole("events"), table.duration("longest"), table.share("share"));
    if longest.is_some_and(|it| it < slot || it.as_nanos() % slot.as_nanos() != 0) {
        table.wrong("longest");
    }
    let rate = table.table("rate")?;
    let percent = |key: &str| {
        let percent = rate.share(key)? * 100.0;
        let is_whole = (percent - percent.round()).abs() < 1e-9;
        let (percent, bounds) = (percent.round() as u32, &kind.bounds);
        if !is_whole || !bounds.contains(&percent) {
            let (least, most) = (bounds.start(), bounds.end());
            rate.wrong_because(key, format!("a whole percentage from {least}% to {most}%"));
        }
        Some(percent)
    };
    let [min, max] = ["min", "max"].map(percent);
    let percent = [min?, max?];
    if percent[1] < percent[0] {
        rate.wrong_because("max", "at least min");
    }
    let longest = (longest?.as_nanos() / slot.as_nanos()) as u32;
    Some(Patterns {
        events: events? as usize,
        longest,
        percent,
        share: share?,
        is_left: kind.is_left,
    })
}

/// Every combination of usual values, with each competitor.
fn plain(reader: &Reader<'_>, space: &Space) -> Option<Vec<Case>> {
    let table = reader.table("plain")?;
    let values = |number: Number| {
        let key = number.name();
        let nodes = table.node(key)?.value.as_list();
        let values = nodes.and_then(|nodes| nodes.iter().map(|it| number.parse(it)).collect());
        let allowed = || format!("a list; each is {}", number.values().allowed());
        let values = values.filter(|values: &Vec<f64>| !values.is_empty());
        values.or_else(|| table.refuse(key, allowed()))
    };
    let [rates, rtts, buffers] = [Number::Rate, Number::Rtt, Number::Buffer].map(values);
    let (rates, rtts, buffers) = (rates?, rtts?, buffers?);
    let start = space.range(Number::Start).min;
    let mut plain = Vec::new();
    for competitor in &space.competitors {
        for (rate, rtt) in rates.iter().flat_map(|rate| rtts.iter().map(move |rtt| (*rate, *rtt))) {
            plain.extend(buffers.iter().map(|buffer| Case {
                numbers: [rate, rtt, *buffer, 0.0, start],
                competitor: competitor.clone(),
                service: Vec::new(),
                cross: Vec::new(),
            }));
        }
    }
    if plain.len() > PLAIN_MAX {
        let allowed = format!("at most {PLAIN_MAX} combinations, competitors included");
        reader.wrong_because("plain", allowed);
    }
    Some(plain)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A space whose runs take milliseconds.
    pub const SMALL: &str = r#"
stop   = "2s"
warmup = "500ms"
rate   = { min = "1Mbit/s", max = "4Mbit/s", scale = "log" }
rtt    = { min = "10ms", max = "40ms" }
buffer = { min = 0.5, max = 2 }
loss   = { min = "0%", max = "1%" }
start  = { min = "0s", max = "300ms" }
competitor = ["none", "reno"]
[service]
events  = 3
longest = "300ms"
rate    = { min = "0%", max = "80%" }
share   = "20%"
[cross]
events  = 3
longest = "200ms"
rate    = { min = "50%", max = "100%" }
share   = "20%"
[plain]
rate   = ["2Mbit/s"]
rtt    = ["20ms", "40ms"]
buffer = [1]
"#;

    pub fn read(text: &str) -> Result<Space, PlanError> {
        Space::read(&Source { file: "s.toml".into(), folder: None, text: text.into() })
    }

    #[test]
    fn the_spaces_of_the_program_can_be_read() {
        for (name, _) in SPACES {
            let space = Space::load(name).unwrap();
            assert!(space.plain.len() >= 4 && space.service.events > 0, "{name}");
            assert!(space.range(Number::Loss).max <= 1.0, "{name}");
        }
        let alone = Space::load("alone").unwrap();
        assert!(alone.competitors == [None] && alone.cross.events == 0);
        let error = Space::load("nowhere").unwrap_err().to_string();
        assert!(error.contains("known are default, alone, short"), "{error}");
    }

    #[test]
    fn space_in_documentation_can_be_read() {
        let page = include_str!("../../../../docs/research/find-a-worst-case.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let space = read(rest.split_once("```").unwrap().0).unwrap();
        assert!(space.competitors == [None] && space.cross == Patterns::NONE);
        assert_eq!(space.service.longest, 3);
    }

    #[test]
    fn ranges_are_spread_evenly_or_by_ratio() {
        let linear = Range { min: 10.0, max: 40.0, is_log: false };
        let log = Range { min: 1.0, max: 4.0, is_log: true };
        assert_eq!([0.0, 0.5, 1.0, 1.5].map(|place| linear.at(place)), [10.0, 25.0, 40.0, 40.0]);
        assert_eq!([0.0, 0.5, 1.0, -1.0].map(|place| log.at(place)), [1.0, 2.0, 4.0, 1.0]);
        assert_eq!((linear.place_of(25.0), log.place_of(2.0)), (0.5, 0.5));
        let one = Range { min: 7.0, max: 7.0, is_log: false };
        assert_eq!((one.at(0.3), one.place_of(7.0)), (7.0, 0.0));
    }

    #[test]
    fn refuses_wrong_space_with_place_and_allowed_values() {
        read(SMALL).unwrap();
        for (from, to, expected) in [
            (
                "stop   =",
                "stopp  =",
                "s.toml:2: stopp = \"2s\": no such key: allowed is one of stop, warmup, ",
            ),
            ("\"2s\"", "\"2h\"", "s.toml:2: stop = \"2h\": allowed is "),
            (
                "\"2s\"",
                "\"200s\"",
                "s.toml:2: stop = \"200s\": allowed is a duration such as \"120s\", 500ms",
            ),
            ("\"500ms\"", "\"2s\"", "s.toml:3: warmup = \"2s\": allowed is a duration"),
            (
                "\"1Mbit/s\"",
                "1",
                "s.toml:4: rate.min = 1: allowed is a rate such as \"96Mbit/s\", 100kbit/s to ",
            ),
            (
                "\"1Mbit/s\"",
                "\"5Mbit/s\"",
                "s.toml:4: rate.max = \"4Mbit/s\": allowed is at least min",
            ),
            ("\"log\"", "\"cubic\"", "s.toml:4: rate.scale = \"cubic\": allowed is \"linear\" or "),
            (
                "max = \"40ms\"",
                "most = 1",
                "s.toml:5: rtt.most = 1: no such key: allowed is one of min, max, scale",
            ),
            (
                "min = 0.5, max",
                "max",
                "s.toml:6: buffer.min is missing: allowed is a number, 0.1 to 20",
            ),
            (
                "loss   = { min = \"0%\", max = \"1%\" }",
                "loss   = { min = \"0%\", max = \"1%\", scale = \"log\" }",
                "s.toml:7: loss.min = \"0%\": allowed is more than 0 with scale = \"log\"",
            ),
            (
                "\"1%\" }",
                "\"11%\" }",
                "s.toml:7: loss.max = \"11%\": allowed is a share from 0 to 0.1",
            ),
            (
                "\"300ms\" }",
                "\"500ms\" }",
                "s.toml:8: start = { min = \"0s\", max = \"500ms\" }: allowed is a time",
            ),
            (
                "\"reno\"",
                "\"rono\"",
                "s.toml:9: competitor = \"rono\": allowed is a list: \"none\" and",
            ),
            ("events  = 3", "events  = 33", "s.toml:11: service.events = 33: allowed is a whole "),
            (
                "\"300ms\"\nrate",
                "\"350ms\"\nrate",
                "s.toml:12: service.longest = \"350ms\": allowed is a ",
            ),
            (
                "max = \"80%\"",
                "max = \"100%\"",
                "s.toml:13: service.rate.max = \"100%\": allowed is a whole ",
            ),
            (
                "share   = \"20%\"",
                "share   = \"60%\"",
                "s.toml:14: service.share = \"60%\": allowed is a share",
            ),
            (
                "min = \"50%\"",
                "min = \"0%\"",
                "s.toml:18: cross.rate.min = \"0%\": allowed is a whole percentage",
            ),
            (
                "[\"2Mbit/s\"]",
                "[]",
                "s.toml:21: plain.rate = []: allowed is a list; each is a rate",
            ),
            ("buffer = [1]", "", "s.toml:20: plain.buffer is missing: allowed is a list of values"),
        ] {
            assert!(SMALL.contains(from), "{from}");
            let error = read(&SMALL.replacen(from, to, 1)).expect_err(to).to_string();
            let lines: Vec<&str> = error.lines().collect();
            let is_told = lines.iter().any(|line| line.starts_with(expected));
            assert!(is_told, "{error}\nis not\n{expected}");
        }
    }
}
