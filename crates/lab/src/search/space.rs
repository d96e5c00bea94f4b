//! Where a search looks: ranges of numbers, competitors, and how much may happen during a run.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use forebay_core::spec::Spec;
use forebay_core::units::{Rate, Ratio, parse_duration};
use forebay_sim::SUPPLIED;

use super::case::{Case, Event};
use super::objective::rounded;
use crate::algorithms;
use crate::plan::PlanError;
use crate::plan::library::Source;
use crate::plan::reader::Reader;
use crate::plan::schema::{Section, key};
use crate::plan::tree::{Node, Value, parse_document};

/// Name and text of every space that the program knows by name.
pub static SPACES: [(&str, &str); 2] = [
    ("default", include_str!("spaces/default.toml")),
    ("alone", include_str!("spaces/alone.toml")),
];

/// A number of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Rate of the bottleneck (Mbit/s).
    Rate,
    /// Round trip without queues (ms).
    Rtt,
    /// Buffer of the bottleneck (bandwidth-delay products).
    Buffer,
    /// Random loss (percent).
    Loss,
    /// Start of the flow (ms).
    Start,
}

impl Number {
    /// All numbers, in the order in which a case has them.
    pub const ALL: [Self; 5] = [Self::Rate, Self::Rtt, Self::Buffer, Self::Loss, Self::Start];

    /// How a space calls its range.
    const fn key(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Rtt => "rtt",
            Self::Buffer => "buffer",
            Self::Loss => "loss",
            Self::Start => "start",
        }
    }

    /// What a space may have: beyond, a run takes minutes, or nothing is learnt of the algorithm.
    fn bounds(self) -> RangeInclusive<f64> {
        match self {
            Self::Rate => 0.1..=1000.0,
            Self::Rtt => 1.0..=1000.0,
            Self::Buffer => 0.1..=20.0,
            Self::Loss => 0.0..=10.0,
            Self::Start => 0.0..=60_000.0,
        }
    }

    /// The bounds in the words of error messages.
    const fn allowed(self) -> &'static str {
        match self {
            Self::Rate => "a rate from 100kbit/s to 1Gbit/s such as \"20Mbit/s\"",
            Self::Rtt => "a duration from 1ms to 1s such as \"50ms\"",
            Self::Buffer => "a number of bandwidth-delay products from 0.1 to 20 such as 1.5",
            Self::Loss => "a share from 0 to 10% such as \"1%\"",
            Self::Start => "a duration from 0s to 60s such as \"2s\"",
        }
    }

    /// What is written in a space; `None`: of another kind, or out of bounds.
    fn parse(self, node: &Node) -> Option<f64> {
        let value = match (self, &node.value) {
            (Self::Rate, Value::Text(text)) => text.parse::<Rate>().ok()?.as_mbit_per_sec_f64(),
            (Self::Rtt | Self::Start, Value::Text(text)) => {
                parse_duration(text).ok()?.as_secs_f64() * 1e3
            }
            (Self::Buffer, Value::Float(number)) => *number,
            (Self::Buffer, Value::Integer(number)) => *number as f64,
            (Self::Loss, Value::Text(text)) => text.parse::<Ratio>().ok()?.as_f64() * 100.0,
            _ => return None,
        };
        let value = rounded(value, DIGITS);
        self.bounds().contains(&value).then_some(value)
    }
}

/// Significant digits of a range's ends: what unit conversion adds behind them goes.
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

    /// Where `value` stands, 0 to 1.
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

/// How much may happen during a run: of the link itself, or of the traffic of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patterns {
    /// Most events.
    pub events: usize,
    /// Longest event (slots).
    pub longest: u32,
    /// Least and greatest percentage of the link's rate that an event is about.
    pub percent: [u32; 2],
    /// Most of what the link could carry in the run that all events together take (0 to 0.5).
    share: f64,
    /// An event leaves its percentage of the rate, and takes the rest.
    is_left: bool,
}

impl Patterns {
    /// Nothing happens.
    const NONE: Self = Self { events: 0, longest: 1, percent: [0; 2], share: 0.0, is_left: false };

    /// Whether all of `events` may happen in a run of so many slots.
    pub fn allow(&self, events: &[Event], slots: u32) -> bool {
        let taken = |event: &Event| {
            let percent = if self.is_left { 100 - event.percent } else { event.percent };
            percent * event.slots
        };
        let taken: u32 = events.iter().map(taken).sum();
        let fits = |event: &Event| {
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
    /// What happens begins and ends at multiples of this.
    pub slot: Duration,
    /// Algorithms of the flow beside the tested one; `None`: there is none.
    pub competitors: Vec<Option<String>>,
    /// When the link is slower.
    pub service: Patterns,
    /// When others send datagrams.
    pub cross: Patterns,
    /// The usual links that the worst case is measured against.
    pub plain: Vec<Case>,
    ranges: [Range; Number::ALL.len()],
}

impl Space {
    /// The space called `reference`: one that the program knows by name, else a file.
    ///
    /// # Errors
    /// There is no such file, or it is wrong: file, line, key, value and what is allowed.
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
            let reason = format!("no such file, and no space of that name: known are {known}");
            return Err(PlanError::file(reference, reason));
        }
        Self::read(&Source::read(Path::new(reference))?)
    }

    fn read(source: &Source) -> Result<Self, PlanError> {
        let table = parse_document(&source.text, &source.file)?;
        let reader = Reader::document(&table, &SPACE, &source.file)?;
        let stop = within(&reader, "stop", &STOPS)?;
        let warmup = within(&reader, "warmup", &(Duration::ZERO..=stop))?;
        if warmup >= stop {
            return Err(reader.wrong("warmup"));
        }
        let slot = if reader.has("slot") { within(&reader, "slot", &SLOTS)? } else { SLOT };
        let mut ranges = [Range { min: 0.0, max: 0.0, is_log: false }; Number::ALL.len()];
        for number in Number::ALL {
            ranges[number as usize] = range(&reader, number)?;
        }
        if ranges[Number::Start as usize].max >= warmup.as_secs_f64() * 1e3 {
            let allowed =
                "a time before the warm-up ends, so that the flow runs while figures count";
            return Err(reader.wrong_because("start", allowed));
        }
        let mut space = Self {
            name: source.file.clone(),
            stop,
            warmup,
            slot,
            competitors: competitors(&reader)?,
            service: patterns(&reader, "service", &SERVICE, slot)?,
            cross: patterns(&reader, "cross", &CROSS, slot)?,
            plain: Vec::new(),
            ranges,
        };
        space.plain = plain(&reader, &space)?;
        Ok(space)
    }

    /// The values of a number.
    pub const fn range(&self, number: Number) -> &Range {
        &self.ranges[number as usize]
    }

    /// Whole slots of a run.
    pub fn slots(&self) -> u32 {
        (self.stop.as_nanos() / self.slot.as_nanos()) as u32
    }

    /// Whether `case` lies within the space.
    pub fn contains(&self, case: &Case) -> bool {
        Number::ALL.iter().all(|number| self.range(*number).contains(case.number(*number)))
            && self.competitors.contains(&case.competitor)
            && self.service.allow(&case.service, self.slots())
            && self.cross.allow(&case.cross, self.slots())
    }
}

/// Refuses a text that names no algorithm which a simulated flow can have.
///
/// # Errors
/// What is allowed instead.
pub fn check_algorithm(text: &str) -> Result<(), String> {
    let mut spec: Spec = text.parse().map_err(|error| format!("{error}"))?;
    if spec.kind == "reno" {
        spec.kind = "newreno".into();
    }
    let registry = algorithms::known();
    let built = registry.build(&registry.of_single_flow(spec), SUPPLIED);
    built.map(drop).map_err(|error| error.to_string())
}

/// Lengths of a run: shorter ones are all start, and longer ones no search has the time for.
const STOPS: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(120);
const SLOTS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(1);
const SLOT: Duration = Duration::from_millis(100);
/// Longest event: a link that is away for longer is broken, and every algorithm with it.
const EVENT_MAX: Duration = Duration::from_secs(2);
const EVENTS_MAX: u32 = 32;
/// Events that take more of a run than this are the run.
const SHARE_MAX: f64 = 0.5;
/// Most plain cells.
const PLAIN_MAX: usize = 256;

/// The top level of a space.
static SPACE: Section = Section {
    heading: "(top level)",
    summary: "Where a search looks.",
    keys: &[
        key("stop", "a duration from 500ms to 120s", "", "length of a run"),
        key("warmup", "a duration below stop", "", "figures count from here on"),
        key(
            "slot",
            "a duration from 10ms to 1s",
            "\"100ms\"",
            "events begin and end at its multiples",
        ),
        key("rate", "a rate, or a range of rates", "", "rate of the bottleneck"),
        key("rtt", "a duration, or a range of durations", "", "round trip without queues"),
        key("buffer", "bandwidth-delay products, or a range", "", "buffer of the bottleneck"),
        key("loss", "a share, or a range of shares", "\"0%\"", "random loss"),
        key("start", "a duration, or a range", "\"0s\"", "start of the flow"),
        key("competitor", COMPETITORS, "[\"none\"]", "algorithm of a second flow"),
        key("service", "a table", "nothing happens", "when the link is slower"),
        key("cross", "a table", "nothing happens", "when others send datagrams"),
        key("plain", "a table", "", "usual links to compare with"),
    ],
};

const COMPETITORS: &str =
    "a list of \"none\" and algorithms of flows (see `forebay list algorithms`)";

/// `rate = { min = .., max = .. }`.
static RANGE: Section = Section {
    heading: "rate = { .. }",
    summary: "A range of values.",
    keys: &[
        key("min", "a value", "", "least value"),
        key("max", "a value", "", "greatest value"),
        key("scale", "\"linear\" or \"log\"", "\"linear\"", "how values are spread"),
    ],
};

/// `[service]` and `[cross]`.
static PATTERNS: Section = Section {
    heading: "[service]",
    summary: "What happens during a run.",
    keys: &[
        key("events", "a whole number, 0 to 32", "", "most events of a run"),
        key("longest", "a duration of whole slots, up to 2s", "", "longest event"),
        key("rate", "a table of min and max", "", "rates of events, as shares of the link's"),
        key("share", "a share from 0 to 50% such as \"10%\"", "", "what all events take at most"),
    ],
};

/// `rate` of events.
static PERCENT: Section = Section {
    heading: "rate = { .. }",
    summary: "The rates of events.",
    keys: &[
        key("min", "a whole percentage such as \"20%\"", "", "least rate"),
        key("max", "a whole percentage such as \"90%\"", "", "greatest rate"),
    ],
};

/// `[plain]`.
static PLAIN: Section = Section {
    heading: "[plain]",
    summary: "Usual links: every combination.",
    keys: &[
        key("rate", "a list of rates", "", "rates"),
        key("rtt", "a list of durations", "", "round trips"),
        key("buffer", "a list of numbers", "", "buffers in bandwidth-delay products"),
    ],
};

/// The required duration `key`, which lies in `range`.
fn within(
    reader: &Reader<'_>,
    key: &str,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, PlanError> {
    let found = reader.require(key, reader.duration(key)?)?;
    if range.contains(&found) { Ok(found) } else { Err(reader.wrong(key)) }
}

/// One value, or a table of the least and the greatest.
fn range(space: &Reader<'_>, number: Number) -> Result<Range, PlanError> {
    let key = number.key();
    let one = |value| Range { min: value, max: value, is_log: false };
    let Some(node) = space.node(key) else {
        let has_default = matches!(number, Number::Loss | Number::Start);
        return if has_default { Ok(one(0.0)) } else { Err(space.wrong(key)) };
    };
    if !matches!(node.value, Value::Table(_)) {
        let value = number.parse(node);
        return value.map(one).ok_or_else(|| space.wrong_because(key, number.allowed()));
    }
    let table = space.table(key, &RANGE)?;
    let table = space.require(key, table)?;
    let end = |key: &str| {
        let value = table.node(key).and_then(|node| number.parse(node));
        value.ok_or_else(|| table.wrong_because(key, number.allowed()))
    };
    let (min, max) = (end("min")?, end("max")?);
    let is_log = table.choice("scale", &[("linear", false), ("log", true)])?.unwrap_or(false);
    if max < min {
        return Err(table.wrong_because("max", "at least min"));
    }
    if is_log && min <= 0.0 {
        return Err(table.wrong_because("min", "more than 0 with scale = \"log\""));
    }
    Ok(Range { min, max, is_log })
}

fn competitors(space: &Reader<'_>) -> Result<Vec<Option<String>>, PlanError> {
    let names = space.list("competitor")?;
    let competitor = |node: &Node| match &node.value {
        Value::Text(name) if name == "none" => Ok(None),
        Value::Text(name) => match check_algorithm(name) {
            Ok(()) => Ok(Some(name.clone())),
            Err(error) => {
                Err(space.wrong_because("competitor", &format!("{COMPETITORS}; {error}")))
            }
        },
        _ => Err(space.wrong("competitor")),
    };
    if names.is_empty() {
        return if space.has("competitor") {
            Err(space.wrong("competitor"))
        } else {
            Ok(vec![None])
        };
    }
    names.iter().map(competitor).collect()
}

/// Which of the two tables of patterns is read.
struct Kind {
    /// Least and greatest percentage of the rate that an event of it may have.
    bounds: RangeInclusive<u32>,
    is_left: bool,
}

const SERVICE: Kind = Kind { bounds: 0..=99, is_left: true };
const CROSS: Kind = Kind { bounds: 1..=100, is_left: false };

fn patterns(
    space: &Reader<'_>,
    name: &str,
    kind: &Kind,
    slot: Duration,
) -> Result<Patterns, PlanError> {
    let Some(table) = space.table(name, &PATTERNS)? else { return Ok(Patterns::NONE) };
    let events = table.require("events", table.count("events", 0..=EVENTS_MAX)?)? as usize;
    let longest = within(&table, "longest", &(slot..=EVENT_MAX))?;
    if longest.as_nanos() % slot.as_nanos() != 0 {
        return Err(table.wrong("longest"));
    }
    let rate = table.require("rate", table.table("rate", &PERCENT)?)?;
    let percent = |key: &str| {
        let share = rate.require(key, rate.share(key)?)?;
        let percent = (share * 100.0).round();
        let is_whole = (share * 100.0 - percent).abs() < 1e-9;
        let allowed =
            format!("a whole percentage from {}% to {}%", kind.bounds.start(), kind.bounds.end());
        let is_allowed = is_whole && kind.bounds.contains(&(percent as u32));
        if is_allowed { Ok(percent as u32) } else { Err(rate.wrong_because(key, &allowed)) }
    };
    let percent = [percent("min")?, percent("max")?];
    if percent[1] < percent[0] {
        return Err(rate.wrong_because("max", "at least min"));
    }
    let share = table.require("share", table.share("share")?)?;
    if share > SHARE_MAX {
        return Err(table.wrong("share"));
    }
    let longest = (longest.as_nanos() / slot.as_nanos()) as u32;
    Ok(Patterns { events, longest, percent, share, is_left: kind.is_left })
}

/// Every combination of usual values, with each competitor.
fn plain(reader: &Reader<'_>, space: &Space) -> Result<Vec<Case>, PlanError> {
    let table = reader.require("plain", reader.table("plain", &PLAIN)?)?;
    let values = |number: Number| {
        let key = number.key();
        let nodes = table.list(key)?;
        let value = |node| number.parse(node);
        let values: Option<Vec<f64>> = nodes.iter().map(value).collect();
        let allowed = format!("a list; each is {}", number.allowed());
        let values = values.filter(|values| !values.is_empty());
        values.ok_or_else(|| table.wrong_because(key, &allowed))
    };
    let (rates, rtts, buffers) =
        (values(Number::Rate)?, values(Number::Rtt)?, values(Number::Buffer)?);
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
        return Err(reader.wrong_because("plain", &allowed));
    }
    Ok(plain)
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
            assert!(space.plain.len() >= 12 && space.service.events > 0, "{name}");
            assert!(space.range(Number::Loss).max <= 1.0, "{name}");
        }
        let alone = Space::load("alone").unwrap();
        assert!(alone.competitors == [None] && alone.cross.events == 0);
        let error = Space::load("nowhere").unwrap_err().to_string();
        assert!(error.contains("known are default, alone"), "{error}");
    }

    #[test]
    fn the_space_of_the_page_about_searches_can_be_read() {
        let page = include_str!("../../../../docs/howto/find-a-worst-case.md");
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
    fn a_wrong_space_is_refused_with_file_line_key_value_and_what_is_allowed() {
        read(SMALL).unwrap();
        for (from, to, expected) in [
            ("stop   =", "stopp  =", "s.toml:2: stopp = \"2s\": allowed is one of stop, warmup, "),
            ("\"2s\"", "\"2h\"", "s.toml:2: stop = \"2h\": allowed is "),
            ("\"2s\"", "\"200s\"", "s.toml:2: stop = \"200s\": allowed is a duration from 500ms"),
            ("\"500ms\"", "\"2s\"", "s.toml:3: warmup = \"2s\": allowed is a duration below stop"),
            ("\"1Mbit/s\"", "1", "s.toml:4: rate.min = 1: allowed is a rate from 100kbit/s to "),
            (
                "\"1Mbit/s\"",
                "\"5Mbit/s\"",
                "s.toml:4: rate.max = \"4Mbit/s\": allowed is at least min",
            ),
            ("\"log\"", "\"cubic\"", "s.toml:4: rate.scale = \"cubic\": allowed is \"linear\" or "),
            (
                "max = \"40ms\"",
                "most = 1",
                "s.toml:5: rtt.most = 1: allowed is one of min, max, scale",
            ),
            ("min = 0.5, max", "max", "s.toml:6: buffer.min is missing: allowed is a number of "),
            (
                "loss   = { min = \"0%\", max = \"1%\" }",
                "loss   = { min = \"0%\", max = \"1%\", scale = \"log\" }",
                "s.toml:7: loss.min = \"0%\": allowed is more than 0 with scale = \"log\"",
            ),
            (
                "\"1%\" }",
                "\"11%\" }",
                "s.toml:7: loss.max = \"11%\": allowed is a share from 0 to 10%",
            ),
            (
                "\"300ms\" }",
                "\"500ms\" }",
                "s.toml:8: start = { max = \"500ms\", min = \"0s\" }: allowed is a time",
            ),
            (
                "\"reno\"",
                "\"rono\"",
                "s.toml:9: competitor = [\"none\", \"rono\"]: allowed is a list of ",
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
            (
                "buffer = [1]",
                "",
                "s.toml:20: plain.buffer is missing: allowed is a list; each is a ",
            ),
        ] {
            assert!(SMALL.contains(from), "{from}");
            let error = read(&SMALL.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(expected), "{error}\nis not\n{expected}");
        }
    }
}
