//! Files of link traces: the formats that are read, the interpretation of a file, and our own form.
//!
//! | format | how it is recognised | content |
//! |---|---|---|
//! | mahimahi | numbers, one a line | opportunities to send; [`Trace`] |
//! | CSV | a header that begins with `time`, or a comma in the first line | rate, delay, loss; [`PathTrace`] |
//! | iperf3 | an object in JSON | rate |
//!
//! LeoReplayer, which replays Starlink (SpaceNetLab/LeoCC, `leoreplayer`), has two files: opportunities in
//! mahimahi's form, and one-way delays in milliseconds. Each line of delays holds for a time given as an
//! argument. [`leo_delays`] reads the delays, which look like a file of mahimahi.

mod iperf3;
pub mod sizes;
mod understood;

use std::time::Duration;

use forebay_core::link::{Change, OPPORTUNITY, PathTrace, Trace};
use forebay_core::text::{Line, TextError, data_lines};
use forebay_core::units::ByteCount;
use serde::Serialize;

pub use self::understood::Understood;

/// Most milliseconds of a delay: a day, as in plans.
const DELAY_MAX_MS: f64 = 86_400e3;

/// Most rows of a merged or binned trace: nearly three hours at one row per millisecond, about 300 MB of text.
pub const ROWS_MAX: u128 = 10_000_000;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// An opportunity per line.
    Mahimahi,
    /// Rows with a header.
    Csv,
    /// Output of `iperf3 --json`.
    Iperf3,
}

/// A trace that a link can follow.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkTrace {
    /// Opportunities to send.
    Opportunities(Trace),
    /// Rate, delay and loss over time.
    Path(PathTrace),
}

/// Reads a trace in any of the formats; `file` is only named in errors.
pub fn read(file: &str, text: &str) -> Result<(LinkTrace, Understood), TextError> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let (trace, format) = if start.starts_with('{') {
        (LinkTrace::Path(iperf3::parse(file, text)?), Format::Iperf3)
    } else if PathTrace::has_header(text) {
        (LinkTrace::Path(PathTrace::parse(file, text)?), Format::Csv)
    } else {
        (LinkTrace::Opportunities(Trace::parse(file, text)?), Format::Mahimahi)
    };
    let understood = Understood::of(file, format, &trace);
    Ok((trace, understood))
}

/// Opportunities as a rate: the mean over each `bin`, for frames of full size. A shorter last bin holds the
/// rest. `None` if there are more than [`ROWS_MAX`] bins.
pub fn binned(trace: &Trace, bin: Duration) -> Option<PathTrace> {
    let (period, bin_ns) = (trace.period(), bin.as_nanos().max(1));
    let count = Some(period.as_nanos().div_ceil(bin_ns)).filter(|it| *it <= ROWS_MAX)?;
    let mut chances = vec![0_u64; usize::try_from(count).ok()?];
    for (at, many) in trace.bursts() {
        // An opportunity at the end of a bin belongs to that bin: the first comes at its time, and not at zero.
        let place = (at.as_nanos().div_ceil(bin_ns).max(1) - 1) as usize;
        chances[place] += u64::from(many);
    }
    let rows = chances.iter().enumerate().map(|(place, chances)| {
        let at = bin * u32::try_from(place).unwrap_or(u32::MAX);
        let carried = ByteCount::new(OPPORTUNITY.as_u64() * chances);
        let rate = carried.per(bin.min(period - at));
        Change { at, rate, ..Change::default() }
    });
    PathTrace::from_rows(rows, period)
}

/// The delays of LeoReplayer: a line is a one-way delay in whole milliseconds, which holds for `every`.
pub fn leo_delays(file: &str, text: &str, every: Duration) -> Result<PathTrace, TextError> {
    let mut rows = Vec::new();
    let mut last = Line::FIRST;
    for line in data_lines(text) {
        let ms = line.text.parse::<f64>().ok().filter(|ms| (0.0..=DELAY_MAX_MS).contains(ms));
        let allowed = "a one-way delay in ms, 0 to 86400000, one a line";
        let ms = ms.ok_or_else(|| TextError::new(file, line, line.text, allowed))?;
        let at = every * u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let delay = Some(Duration::from_secs_f64(ms / 1e3));
        rows.push(Change { at, delay, ..Change::default() });
        last = line;
    }
    let end = every * u32::try_from(rows.len()).unwrap_or(u32::MAX);
    if end > PathTrace::LENGTH_MAX || rows.len() as u128 > ROWS_MAX {
        let allowed = format!("at most {ROWS_MAX} delays, over at most 4294967295 ms");
        return Err(TextError::new(file, last, last.text, &allowed));
    }
    let allowed = "at least one delay in ms";
    PathTrace::from_rows(rows, end).ok_or_else(|| TextError::new(file, last, last.text, allowed))
}

/// A trace with the values of `one` and `other`, and a row wherever either changes. The shorter trace
/// repeats until the longer one ends. `None` if there are more than [`ROWS_MAX`] rows.
pub fn merged(one: &PathTrace, other: &PathTrace) -> Option<PathTrace> {
    let end = one.length().max(other.length());
    let rows = |trace: &PathTrace| {
        let rounds = end.as_nanos().div_ceil(trace.length().as_nanos());
        rounds.saturating_mul(trace.rows().len() as u128)
    };
    if rows(one).saturating_add(rows(other)) > ROWS_MAX {
        return None;
    }
    let repeated = |trace: &PathTrace| {
        let length = trace.length();
        let rows = trace.rows().to_vec();
        let rounds = (0_u32..).map(move |round| length * round).take_while(move |at| *at < end);
        let rows = rounds.flat_map(move |begun| {
            rows.clone().into_iter().map(move |row| Change { at: begun + row.at, ..row })
        });
        rows.take_while(move |row| row.at < end).collect::<Vec<Change>>()
    };
    let mut all = repeated(one);
    all.extend(repeated(other));
    all.sort_by_key(|row| row.at);
    let mut held = Change::default();
    let rows = all.into_iter().map(|row| {
        held = Change {
            at: row.at,
            rate: row.rate.or(held.rate),
            delay: row.delay.or(held.delay),
            loss: row.loss.or(held.loss),
        };
        held
    });
    PathTrace::from_rows(rows.collect::<Vec<_>>(), end)
}

#[cfg(test)]
mod tests;
