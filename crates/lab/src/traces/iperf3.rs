//! The intervals of `iperf3 --json` as rates.

use std::time::Duration;

use forebay_core::link::{Change, PathTrace};
use forebay_core::text::{TextError, of_parser, quoted};
use forebay_core::units::{LINK_RATES, Rate, seconds};
use serde::Deserialize;

/// The part of the output that is read.
#[derive(Deserialize)]
struct Output {
    intervals: Vec<Interval>,
}

#[derive(Deserialize)]
struct Interval {
    sum: Sum,
}

/// Sum over all streams in an interval.
#[derive(Deserialize)]
struct Sum {
    start: f64,
    end: f64,
    bits_per_second: f64,
    /// The interval lies before the test proper (`--omit`).
    #[serde(default)]
    omitted: bool,
}

/// Reads the rates of the intervals; `file` is only named in errors. The rates count payload and stay unchanged.
pub fn parse(file: &str, text: &str) -> Result<PathTrace, TextError> {
    let text = text.trim_start_matches('\u{feff}');
    let output: Output = serde_json::from_str(text).map_err(|error| TextError {
        file: file.into(),
        line: error.line().max(1),
        column: error.column().max(1),
        value: quoted(text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default().trim()),
        allowed: format!(
            "the output of iperf3 --json, with start, end and bits_per_second in each \
             intervals[].sum ({})",
            of_parser(&error.to_string())
        ),
    })?;
    let wrong = |place: usize, value: f64, allowed: &str| TextError {
        file: file.into(),
        line: 1,
        column: 1,
        value: value.to_string(),
        allowed: format!("{allowed} (intervals[{place}].sum)"),
    };
    let mut rows: Vec<Change> = Vec::new();
    let mut end = Duration::ZERO;
    for (place, Interval { sum }) in output.intervals.iter().enumerate() {
        if sum.omitted {
            continue;
        }
        let most = LINK_RATES.end().as_bits_per_sec() as f64;
        if !(0.0..=most).contains(&sum.bits_per_second) {
            return Err(wrong(place, sum.bits_per_second, "bits_per_second of 0 to 4e11"));
        }
        let (at, until) = (seconds(sum.start), seconds(sum.end));
        if rows.last().is_some_and(|last| at <= last.at) || until <= at {
            return Err(wrong(
                place,
                sum.start,
                "a start after the previous interval's start, and an end after its own start",
            ));
        }
        if until > PathTrace::LENGTH_MAX {
            return Err(wrong(place, sum.end, "an end of at most 4294967 s"));
        }
        let rate = Some(Rate::from_bits_per_sec(sum.bits_per_second.round() as u64));
        rows.push(Change { at, rate, ..Change::default() });
        end = until;
    }
    let none = || wrong(0, 0.0, "at least one interval that is not omitted");
    PathTrace::from_rows(rows, end).ok_or_else(none)
}
