//! Where a search looks: ranges of numbers, competitors, and how much may happen during a run.

mod read;

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
use crate::plan::tree::{Node, Value};

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
            return read::space(&Source {
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
        read::space(&Source::read(Path::new(reference))?)
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
        read::space(&Source { file: "s.toml".into(), folder: None, text: text.into() })
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
