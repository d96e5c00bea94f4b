//! Distributions of sizes, read from files.

use alloc::vec::Vec;

use crate::text::{Line, TextError, data_lines};
use crate::units::ByteCount;

/// Largest size in a file: 1 TB, 10^4 times the largest of the published distributions. Far below
/// 2^53, so sizes are exact as floats.
const MAX_BYTES: f64 = 1e12;

/// A cumulative distribution of sizes, linear between its points.
///
/// In a file, one point a line: bytes and cumulative probability, neither ever decreasing, from
/// probability 0 to 1. Blank lines and `#` comments are allowed.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct SizeCdf {
    /// At least two; the first probability is 0, the last is 1.
    points: Vec<Point>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
struct Point {
    bytes: f64,
    probability: f64,
}

impl SizeCdf {
    /// The distributions that come with the program, by name: the two of the Bundler evaluation, and one
    /// without large sizes.
    pub const BUILTIN: [(&str, &str); 3] = [
        ("caida", include_str!("../../../../traces/caida.cdf")),
        ("caida_1mb", include_str!("../../../../traces/caida_1mb.cdf")),
        ("mixed", include_str!("../../../../traces/mixed.cdf")),
    ];

    /// The distribution `name` among [`SizeCdf::BUILTIN`].
    pub fn builtin(name: &str) -> Option<Self> {
        let (name, text) = Self::BUILTIN.into_iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text).ok()
    }

    /// Reads a distribution; `file` is only named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TextError> {
        let mut points: Vec<Point> = Vec::new();
        let mut last = Line::FIRST;
        for line in data_lines(text) {
            points.push(Point::parse(file, line, points.last().copied())?);
            last = line;
        }
        let end = points.last().copied().unwrap_or(Point { bytes: 0.0, probability: 0.0 });
        let error = |allowed| Err(TextError::new(file, last, last.text, allowed));
        if end.probability != 1.0 {
            return error("cumulative probability 1 in the last line");
        }
        if end.bytes == 0.0 {
            return error("more than 0 bytes in the last line");
        }
        Ok(Self { points })
    }

    /// The size that a share `probability` (0 to 1) of all sizes does not exceed, rounded up to a
    /// whole byte and at least 1.
    pub fn quantile(&self, probability: f64) -> ByteCount {
        let above = self.points.partition_point(|point| point.probability < probability);
        self.interpolated(above, probability)
    }

    /// The quantiles at the midpoints of `count` strata of equal probability, in ascending order.
    pub fn midpoints(&self, count: u64) -> impl Iterator<Item = ByteCount> {
        let mut above = 0;
        (0..count).map(move |stratum| {
            let probability = (stratum as f64 + 0.5) / count as f64;
            while self.points.get(above).is_some_and(|point| point.probability < probability) {
                above += 1;
            }
            self.interpolated(above, probability)
        })
    }

    /// The quantile of `probability`, where the points before `above` have a smaller one.
    fn interpolated(&self, above: usize, probability: f64) -> ByteCount {
        let above = above.clamp(1, self.points.len() - 1);
        let [from, to] = [self.points[above - 1], self.points[above]];
        let width = to.probability - from.probability;
        let share = if width > 0.0 { (probability - from.probability) / width } else { 1.0 };
        let bytes = from.bytes + (to.bytes - from.bytes) * share.clamp(0.0, 1.0);
        // Rounded up: at most `MAX_BYTES`, a float has all whole numbers.
        let whole = bytes as u64;
        ByteCount::new((whole + u64::from((whole as f64) < bytes)).max(1))
    }

    /// Mean size in bytes, before rounding.
    pub fn mean_bytes(&self) -> f64 {
        let segment = |pair: &[Point]| {
            let width = pair[1].probability - pair[0].probability;
            width * (pair[0].bytes + pair[1].bytes) / 2.0
        };
        self.points.windows(2).map(segment).sum()
    }
}

impl Point {
    fn parse(file: &str, line: Line<'_>, last: Option<Self>) -> Result<Self, TextError> {
        let value = line.text;
        let error = |value: &str, allowed| Err(TextError::new(file, line, value, allowed));
        let mut columns = value.split_whitespace();
        let (Some(bytes), Some(probability), None) =
            (columns.next(), columns.next(), columns.next())
        else {
            let allowed = "two numbers: bytes and cumulative probability; `forebay trace convert` reads commas and three columns";
            return error(value, allowed);
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let floor = last.map_or(0.0, |point| point.bytes);
        let size = match number(bytes) {
            Some(size) if (floor..=MAX_BYTES).contains(&size) => size,
            _ => return error(bytes, "bytes, 0 to 1e12, not below the line before"),
        };
        let floor = last.map_or(0.0, |point| point.probability);
        let share = match number(probability) {
            Some(share) if last.is_none() && share != 0.0 => {
                return error(probability, "cumulative probability 0 in the first line");
            }
            Some(share) if (floor..=1.0).contains(&share) => share,
            _ => {
                let allowed = "a cumulative probability, 0 to 1, not below the line before; `forebay trace convert` reads per cent";
                return error(probability, allowed);
            }
        };
        Ok(Self { bytes: size, probability: share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_distributions_have_their_means() {
        let mean = |name| SizeCdf::builtin(name).unwrap().mean_bytes();
        assert!((mean("caida") - 21_025.0).abs() < 1e-6);
        assert!((mean("caida_1mb") - 9_125.0).abs() < 1e-6);
        assert!((mean("mixed") - 52_500.0).abs() < 1e-6);
        assert_eq!(SizeCdf::builtin("other"), None);
    }

    #[test]
    fn midpoints_of_strata_are_quantiles() {
        let steps = SizeCdf::parse("t", "0 0\n10 0.5\n10 0.7\n1000 0.7\n2000 1\n").unwrap();
        for cdf in [SizeCdf::builtin("caida").unwrap(), steps] {
            for count in [0, 1, 2, 10, 999] {
                let quantile = |it: u64| cdf.quantile((it as f64 + 0.5) / count as f64);
                assert!(cdf.midpoints(count).eq((0..count).map(quantile)), "{count}");
            }
        }
    }

    #[test]
    fn sizes_are_interpolated_and_rounded_up() {
        let cdf = SizeCdf::parse("t", "0 0\n10 0.5 # half\n10 0.7\n\n1000 0.7\n2000 1\n").unwrap();
        let size = |probability| cdf.quantile(probability).as_u64();
        assert_eq!(size(0.0), 1);
        assert_eq!(size(0.21), 5);
        assert_eq!(size(0.5), 10);
        assert_eq!(size(0.6), 10);
        assert_eq!(size(0.7), 10);
        assert_eq!(size(0.85), 1500);
        assert_eq!(size(1.0), 2000);
    }

    #[test]
    fn bad_files_are_refused_with_their_line() {
        let cases = [
            ("", 1),
            ("0 0\n", 1),
            ("0 0\n0 1\n", 2),
            ("0 0.1\n5 1\n", 1),
            ("0 0\n5 0.9\n", 2),
            ("0 0\n5 1.1\n", 2),
            ("0 0\n\n5 x\n", 3),
            ("0 0\n5 nan\n", 2),
            ("0 0\ninf 1\n", 2),
            ("0 0\n-5 1\n", 2),
            ("0 0\n5 0.5\n4 1\n", 3),
            ("0 0\n5 0.5\n6 0.4\n", 3),
            ("0 0\n5 1 7\n", 2),
            ("0 0\n5\n", 2),
            ("0 0\n1e13 1\n", 2),
            ("\u{feff}0 0\n5 100\n", 2),
            ("0,0\n5,1\n", 1),
        ];
        for (text, line) in cases {
            let error = SizeCdf::parse("bad.cdf", text).unwrap_err();
            assert_eq!((error.file.as_str(), error.line), ("bad.cdf", line), "{text:?}");
        }
    }
}
