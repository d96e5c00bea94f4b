//! How a space is read from its file.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Case, Number, Patterns, Range, Space, check_algorithm};
use crate::plan::PlanError;
use crate::plan::library::Source;
use crate::plan::reader::Reader;
use crate::plan::schema::{Section, key};
use crate::plan::tree::{Node, Value, parse_document};

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

/// Reads a space.
///
/// # Errors
/// It is wrong: file, line, key, value and what is allowed.
pub fn space(source: &Source) -> Result<Space, PlanError> {
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
        let allowed = "a time before the warm-up ends, so that the flow runs while figures count";
        return Err(reader.wrong_because("start", allowed));
    }
    let mut space = Space {
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
