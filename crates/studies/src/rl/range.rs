//! Values of a plan that differ from episode to episode.

use forebay_core::random::Streams;
use forebay_core::units::{Duration, Limit, Rate, Ratio, format_duration, parse_duration};

use super::RlError;
use forebay_lab::plan::Override;

/// Unit of both ends of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Rate,
    Time,
    Packets,
    Percent,
    Whole,
    Number,
}

impl Unit {
    /// All units, in the order in which a range tries these: the first that reads both ends is
    /// its unit.
    const ALL: [Self; 6] =
        [Self::Whole, Self::Number, Self::Rate, Self::Time, Self::Packets, Self::Percent];

    /// `text` in bit/s, ns, packets, percent or as it is.
    fn read(self, text: &str) -> Option<f64> {
        match self {
            Self::Rate => text.parse::<Rate>().ok().map(|rate| rate.as_bits_per_sec() as f64),
            Self::Time => parse_duration(text).ok().map(|time| time.as_nanos() as f64),
            Self::Packets => match text.parse() {
                Ok(Limit::Packets(packets)) => Some(packets as f64),
                _ => None,
            },
            Self::Percent if text.ends_with('%') => {
                text.parse::<Ratio>().ok().map(|share| share.as_f64() * 100.0)
            }
            Self::Percent => None,
            Self::Whole => text.parse::<i32>().ok().map(f64::from),
            Self::Number => text.parse().ok().filter(|number: &f64| number.is_finite()),
        }
    }

    /// Writes a value so that [`Unit::read`] and plans can read it.
    fn written(self, value: f64) -> String {
        match self {
            Self::Rate => Rate::from_bits_per_sec(value.round() as u64).to_string(),
            Self::Time => format_duration(Duration::from_nanos(value.round() as u64)),
            Self::Packets => format!("{}p", value.round() as u64),
            Self::Percent => format!("{value}%"),
            Self::Whole => format!("{}", value.floor() as i64),
            Self::Number => format!("{value:?}"),
        }
    }
}

/// A key of a plan whose value is drawn for each episode.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    key: String,
    unit: Unit,
    low: f64,
    high: f64,
    is_log: bool,
}

/// Allowed syntax of a range.
const ALLOWED: &str = "KEY=LOW..HIGH, or KEY=LOW..HIGH:log for even ratios: two rates, times, packets \
                       (\"100p\"), percentages or numbers";

impl Range {
    /// The value of this episode.
    pub(super) fn draw(&self, streams: &Streams) -> Result<Override, RlError> {
        let place = streams.stream(&format!("range {}", self.key)).unit();
        // Draws below the last whole number plus one, so the last number is as likely as each before it.
        let end = if self.unit == Unit::Whole { self.high + 1.0 } else { self.high };
        let value = if self.is_log {
            self.low * (end / self.low).powf(place)
        } else {
            self.low + (end - self.low) * place
        };
        let value = self.unit.written(value.clamp(self.low, self.high));
        Ok(Override::parse(&format!("{}={value}", self.key))?)
    }
}

impl std::str::FromStr for Range {
    type Err = RlError;

    /// Reads `bottleneck.rate=10Mbit/s..100Mbit/s:log`.
    fn from_str(text: &str) -> Result<Self, RlError> {
        let refused = || RlError::Wrong(format!("range {text:?}: allowed is {ALLOWED}"));
        let (key, range) = text.split_once('=').ok_or_else(refused)?;
        let (range, is_log) = match range.strip_suffix(":log") {
            Some(range) => (range, true),
            None => (range, false),
        };
        let (low, high) = range.split_once("..").ok_or_else(refused)?;
        let of = |unit: &Unit| unit.read(low.trim()).zip(unit.read(high.trim()));
        let found = Unit::ALL.iter().find_map(|unit| Some((*unit, of(unit)?)));
        let (unit, (low, high)) = found.ok_or_else(refused)?;
        let key = key.trim().to_string();
        if key.is_empty() || low > high || is_log && low <= 0.0 {
            return Err(refused());
        }
        Ok(Self { key, unit, low, high, is_log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, seed: u64) -> String {
        let range: Range = text.parse().unwrap();
        let place = Streams::new(seed).stream(&format!("range {}", range.key)).unit();
        assert!((0.0..1.0).contains(&place));
        format!("{:?}", range.draw(&Streams::new(seed)).unwrap())
    }

    #[test]
    fn a_seed_draws_a_value_between_the_ends() {
        for text in [
            "bottleneck.rate=10Mbit/s..100Mbit/s:log",
            "bottleneck.rtt=10ms..200ms",
            "bottleneck.qdisc.limit=10p..1000p",
            "bottleneck.loss=0%..2%",
            "x=1..5",
            "x=0.5..2:log",
        ] {
            assert_eq!(drawn(text, 1), drawn(text, 1), "{text}");
            let range: Range = text.parse().unwrap();
            for value in [range.low, range.high, (range.low + range.high) / 2.0] {
                let written = range.unit.written(value);
                let read = range.unit.read(&written).unwrap();
                assert!((read - value).abs() <= 0.5, "{text}: {written}");
            }
        }
        assert_ne!(drawn("x=0.5..2", 1), drawn("x=0.5..2", 2));
        assert!(drawn("bottleneck.rtt=20ms..20ms", 1).contains("20ms"));
    }

    #[test]
    fn whole_numbers_are_drawn_alike() {
        let mut counts = [0; 3];
        for seed in 0..3000 {
            let drawn = drawn("x=1..3", seed);
            let place = (1..=3).find(|number| drawn.contains(&format!("Integer({number})")));
            counts[place.unwrap_or_else(|| panic!("{drawn}")) - 1] += 1;
        }
        // A standard deviation is 26.
        assert!(counts.iter().all(|count| (870..=1130).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in ["", "x", "x=1", "x=1..", "x=2..1", "x=1ms..2p", "=1..2", "x=0..1:log"] {
            let error = text.parse::<Range>().unwrap_err().to_string();
            assert!(error.contains("KEY=LOW..HIGH"), "{text}: {error}");
        }
    }
}
