//! Traces of a path: rate, delay and loss of a link over time, as CSV.
//!
//! ```text
//! time_s,rate_mbps,rtt_ms,loss
//! 0,80,44,0
//! 15,120,61,0.002
//! 30,,,
//! ```
//! The first line names the columns: `time_ms` or `time_s`, and any of `rate_mbps`, `delay_ms` (one way) or `rtt_ms`
//! (half of it one way), `loss`, and `measured`, which is checked and ignored. Times count from the first row. A row holds until the next one; an empty cell is
//! the value of the row before. The last row holds as long as the one before it, unless its cells are all empty: then
//! it says when the trace ends. Blank lines and `#` comments are allowed.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::text::{Line, TextError, data_lines};
use crate::units::{Duration, LINK_RATES, Rate, Ratio};

/// Latest time after the first row: the limit of the other traces, 2^32 - 1 ms.
const LENGTH_MAX: Duration = Duration::from_millis(u32::MAX as u64);
/// Longest delay and round trip in milliseconds: a day, as in plans.
const DELAY_MAX_MS: f64 = 86_400e3;
/// Shortest time that a row holds. Readers and links then visit at most 100,000 rows a second, however often a trace repeats.
const ROW_MIN: Duration = Duration::from_micros(10);
/// Allowed headers.
const HEADER: &str = "time_ms or time_s, then any of rate_mbps, delay_ms or rtt_ms, loss and measured, separated by commas, each at most once";
/// Allowed columns for the delay.
const TWO_DELAYS: &str = "either delay_ms (one way) or rtt_ms (two ways)";

/// A change of a link; `None` leaves the value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Change {
    /// Time since the start of the run.
    pub at: Duration,
    /// New rate, from the next packet on; not on a link with a trace of opportunities.
    pub rate: Option<Rate>,
    /// New propagation delay for packets that depart from then on. After a decrease, they wait for earlier
    /// packets, unless packets may overtake on the link.
    pub delay: Option<Duration>,
    /// New loss.
    pub loss: Option<Ratio>,
}

impl Change {
    /// This change without the values already in `before`.
    fn since(self, before: &Self) -> Self {
        Self {
            at: self.at,
            rate: self.rate.filter(|it| before.rate != Some(*it)),
            delay: self.delay.filter(|it| before.delay != Some(*it)),
            loss: self.loss.filter(|it| before.loss != Some(*it)),
        }
    }

    /// Whether it changes anything.
    fn is_any(&self) -> bool {
        self.rate.is_some() || self.delay.is_some() || self.loss.is_some()
    }
}

/// Behaviour of a link after the end of its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum AtEnd {
    /// The trace begins again.
    #[default]
    Repeat,
    /// The last row holds.
    Hold,
}

/// Values of rate, delay or loss, or any combination, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct PathTrace {
    /// Rows in order of time, the first at zero; all set the same properties.
    rows: Vec<Change>,
    /// End of the last row, above zero.
    length: Duration,
    /// Delays are halves of round trips.
    is_round_trip: bool,
}

impl PathTrace {
    /// Latest end of a trace after its first row, unless an empty last row says more.
    pub const LENGTH_MAX: Duration = LENGTH_MAX;

    /// Whether the first data line of `text` is meant as a header.
    pub fn has_header(text: &str) -> bool {
        data_lines(text).next().is_some_and(|line| line.text.contains(',') || is_time(line.text))
    }

    /// Reads a trace; `file` only appears in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TextError> {
        let mut lines = data_lines(text);
        let Some(header) = lines.next() else {
            return Err(TextError::new(file, Line::FIRST, "", HEADER));
        };
        let mut rows = Rows::of(Columns::parse(file, header)?, file);
        let mut last = header;
        for line in lines {
            rows.add(line)?;
            last = line;
        }
        let is_round_trip = rows.columns.0.contains(&Column::Rtt);
        let allowed = "at least two rows of different times";
        let whole = rows.finish().and_then(|(rows, end)| Self::of(rows, end, is_round_trip));
        whole.ok_or_else(|| TextError::new(file, last, last.text, allowed))
    }

    /// A trace of `rows` that ends at `end`. The rows must be in order of time, set the same properties, and
    /// give one-way delays. Returns `None` without rows, or without time between the first row and the end.
    pub fn from_rows(rows: impl IntoIterator<Item = Change>, end: Duration) -> Option<Self> {
        let mut all: Vec<Change> = Vec::new();
        rows.into_iter().for_each(|row| put(&mut all, row));
        let start = all.first()?.at;
        all.iter_mut().for_each(|row| row.at = row.at.saturating_sub(start));
        Self::of(all, end.saturating_sub(start), false)
    }

    fn of(rows: Vec<Change>, length: Duration, is_round_trip: bool) -> Option<Self> {
        let is_longer = rows.last().is_some_and(|last| length >= last.at + ROW_MIN);
        (is_longer && rows[0].is_any()).then_some(Self { rows, length, is_round_trip })
    }

    /// The values over time: each row holds until the next one, the last one until [`PathTrace::length`].
    pub fn rows(&self) -> &[Change] {
        &self.rows
    }

    /// End of the last row, since the first one.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Longest time that a row holds.
    pub fn longest_gap(&self) -> Duration {
        self.spans().map(|(_, time)| time).max().unwrap_or_default()
    }

    /// Whether the trace sets the rate.
    pub fn sets_rate(&self) -> bool {
        self.rows[0].rate.is_some()
    }

    /// Whether the trace sets the delay.
    pub fn sets_delay(&self) -> bool {
        self.rows[0].delay.is_some()
    }

    /// Whether the trace sets the loss.
    pub fn sets_loss(&self) -> bool {
        self.rows[0].loss.is_some()
    }

    /// Whether the delays are halves of round trips, and so hold in both directions.
    pub fn is_round_trip(&self) -> bool {
        self.is_round_trip
    }

    /// Mean rate over the whole trace; `None` if it sets no rate.
    pub fn mean_rate(&self) -> Option<Rate> {
        let bit_nanos: Option<u128> = self
            .spans()
            .map(|(row, time)| Some(u128::from(row.rate?.as_bits_per_sec()) * time.as_nanos()))
            .sum();
        let bps = bit_nanos? / self.length.as_nanos();
        Some(Rate::from_bits_per_sec(u64::try_from(bps).unwrap_or(u64::MAX)))
    }

    /// Highest rate; `None` if it sets no rate.
    pub fn highest_rate(&self) -> Option<Rate> {
        self.rows.iter().filter_map(|row| row.rate).max()
    }

    /// A trace with the values of each row that `keep` returns; `None` if none remain.
    pub fn only(&self, keep: impl Fn(Change) -> Change) -> Option<Self> {
        let rows = self.rows.iter().map(|row| keep(*row)).collect();
        Self::of(rows, self.length, self.is_round_trip)
    }

    /// Each row with the time that it holds.
    pub fn spans(&self) -> impl Iterator<Item = (&Change, Duration)> {
        let ends = self.rows[1..].iter().map(|row| row.at).chain([self.length]);
        self.rows.iter().zip(ends).map(|(row, end)| (row, end - row.at))
    }
}

/// Adds a row, which replaces one at the same time.
fn put(rows: &mut Vec<Change>, row: Change) {
    match rows.last_mut() {
        Some(last) if last.at == row.at => *last = row,
        _ => rows.push(row),
    }
}

/// The form that [`PathTrace::parse`] reads, without loss.
impl fmt::Display for PathTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delay = if self.is_round_trip { "rtt_ms" } else { "delay_ms" };
        let names = [
            ("rate_mbps", self.sets_rate()),
            (delay, self.sets_delay()),
            ("loss", self.sets_loss()),
        ];
        f.write_str("time_ms")?;
        let named = names.iter().filter(|(_, is_set)| *is_set);
        named.clone().try_for_each(|(name, _)| write!(f, ",{name}"))?;
        f.write_str("\n")?;
        for row in &self.rows {
            Millionths(row.at.as_nanos()).fmt(f)?;
            if let Some(rate) = row.rate {
                write!(f, ",{}", Millionths(rate.as_bits_per_sec().into()))?;
            }
            if let Some(delay) = row.delay {
                let ways = if self.is_round_trip { 2 } else { 1 };
                write!(f, ",{}", Millionths(delay.as_nanos() * ways))?;
            }
            if let Some(loss) = row.loss {
                write!(f, ",{}", loss.as_f64())?;
            }
            f.write_str("\n")?;
        }
        Millionths(self.length.as_nanos()).fmt(f)?;
        named.clone().try_for_each(|_| f.write_str(","))?;
        f.write_str("\n")
    }
}

/// A whole number of millionths as a decimal number.
struct Millionths(u128);

impl fmt::Display for Millionths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:06}").trim_end_matches('0'))
    }
}

/// A column of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    TimeMs,
    TimeS,
    Rate,
    Delay,
    Rtt,
    Loss,
    /// Whether a recorded row is measured: of no consequence for a link.
    Measured,
}

/// Names of the columns in a header.
const COLUMNS: [(&str, Column); 7] = [
    ("time_ms", Column::TimeMs),
    ("time_s", Column::TimeS),
    ("rate_mbps", Column::Rate),
    ("delay_ms", Column::Delay),
    ("rtt_ms", Column::Rtt),
    ("loss", Column::Loss),
    ("measured", Column::Measured),
];

fn is_time(name: &str) -> bool {
    name.starts_with("time")
}

/// The columns of a file, in their order.
struct Columns(Vec<Column>);

impl Columns {
    fn parse(file: &str, line: Line<'_>) -> Result<Self, TextError> {
        let error = |value: &str, allowed| Err(TextError::new(file, line, value, allowed));
        let mut columns: Vec<Column> = Vec::new();
        for name in cells(line.text) {
            let known = COLUMNS.iter().find(|(known, _)| *known == name);
            match known {
                Some((_, column)) if columns.contains(column) => return error(name, HEADER),
                Some((_, column)) => columns.push(*column),
                None => return error(name, HEADER),
            }
        }
        let times = columns.iter().filter(|it| matches!(it, Column::TimeMs | Column::TimeS));
        let set = columns.iter().filter(|it| **it != Column::Measured);
        if times.count() != 1 || set.count() < 2 {
            return error(line.text, HEADER);
        }
        if columns.contains(&Column::Delay) && columns.contains(&Column::Rtt) {
            return error(line.text, TWO_DELAYS);
        }
        Ok(Self(columns))
    }
}

/// The cells of a line, without the blanks around them.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(str::trim)
}

/// The rows read so far.
struct Rows<'a> {
    file: &'a str,
    columns: Columns,
    rows: Vec<Change>,
    /// Time of the first row in nanoseconds.
    start_ns: f64,
    /// Whether the last row had no values.
    is_ended: bool,
}

impl<'a> Rows<'a> {
    fn of(columns: Columns, file: &'a str) -> Self {
        Self { file, columns, rows: Vec::new(), start_ns: 0.0, is_ended: false }
    }

    fn add(&mut self, line: Line<'_>) -> Result<(), TextError> {
        let error =
            |value: &str, allowed: &str| Err(TextError::new(self.file, line, value, allowed));
        let count = cells(line.text).count();
        if count != self.columns.0.len() {
            let allowed = format!("{} cells, as in the header", self.columns.0.len());
            return error(line.text, &allowed);
        }
        let before = self.rows.last().copied();
        let mut row = before.unwrap_or_default();
        let mut is_ended = true;
        let mut time_ns = None;
        for (column, cell) in self.columns.0.iter().zip(cells(line.text)) {
            let is_time = matches!(column, Column::TimeMs | Column::TimeS);
            if cell.is_empty() && !is_time && before.is_some() {
                continue;
            }
            is_ended &= is_time;
            let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
            let allowed = match (column, number) {
                (Column::TimeMs, Some(ms)) if ms >= 0.0 => {
                    time_ns = Some((ms * 1e6, cell));
                    continue;
                }
                (Column::TimeS, Some(s)) if s >= 0.0 => {
                    time_ns = Some((s * 1e9, cell));
                    continue;
                }
                (_, Some(number)) if set(&mut row, *column, number) => continue,
                _ => allowed(*column),
            };
            return error(cell, allowed);
        }
        let Some((time_ns, cell)) = time_ns else { return error(line.text, HEADER) };
        if before.is_none() {
            self.start_ns = time_ns;
        }
        let since_ns = libm::round(time_ns - self.start_ns);
        let floor = before.map_or(Duration::ZERO, |row| row.at);
        let is_too_short = |at: Duration| at > floor && at < floor + ROW_MIN;
        // The last row may hold as long as all rows before it.
        let most = if is_ended { LENGTH_MAX * 2 } else { LENGTH_MAX };
        if since_ns < floor.as_nanos() as f64 || since_ns > most.as_nanos() as f64 {
            return error(cell, TIME);
        }
        row.at = Duration::from_nanos(since_ns as u64);
        if is_too_short(row.at) {
            return error(cell, TIME);
        }
        self.is_ended = is_ended;
        put(&mut self.rows, row);
        Ok(())
    }

    /// The rows and the end of the last one; `None` if the end is unknown.
    fn finish(mut self) -> Option<(Vec<Change>, Duration)> {
        if self.is_ended {
            let end = self.rows.pop()?;
            return Some((self.rows, end.at));
        }
        let [.., before, last] = self.rows[..] else { return None };
        let end = last.at + (last.at - before.at);
        Some((self.rows, end))
    }
}

/// Allowed cells of a time column.
const TIME: &str = "a time from 0, equal to the row before or at least 0.01 ms later, at most 4294967295 ms after the first row";

/// Allowed cells of a column.
fn allowed(column: Column) -> &'static str {
    match column {
        Column::TimeMs | Column::TimeS => TIME,
        Column::Rate => "a rate in Mbit/s, 0 to 400000; empty as in the row before",
        Column::Delay => "a one-way delay in ms, 0 to 86400000; empty as in the row before",
        Column::Rtt => "a round trip in ms, 0 to 86400000; empty as in the row before",
        Column::Loss => "a share of the packets, 0 to 1; empty as in the row before",
        Column::Measured => "1 or 0; empty as in the row before",
    }
}

/// Sets the property of a column; false if `number` is out of its range.
fn set(row: &mut Change, column: Column, number: f64) -> bool {
    let millis = (0.0..=DELAY_MAX_MS).contains(&number);
    let nanos = Duration::from_nanos(libm::round(number * 1e6) as u64);
    match column {
        Column::TimeMs | Column::TimeS => false,
        Column::Rate => {
            let rate = Rate::from_bits_per_sec(libm::round(number * 1e6) as u64);
            row.rate = Some(rate);
            number >= 0.0 && rate <= *LINK_RATES.end()
        }
        Column::Delay => {
            row.delay = Some(nanos);
            millis
        }
        Column::Rtt => {
            row.delay = Some(nanos / 2);
            millis
        }
        Column::Loss => {
            row.loss = Ratio::new(number);
            row.loss.is_some()
        }
        Column::Measured => number == 0.0 || number == 1.0,
    }
}

/// A trace on a link, and its end.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Replay {
    /// Values over time, from the start of the run on.
    #[cfg_attr(feature = "serde", serde(with = "as_text"))]
    pub trace: Arc<PathTrace>,
    /// Behaviour after the end of the trace.
    pub at_end: AtEnd,
}

impl Replay {
    /// All changes from the start on, in order of time. The iterator never ends if the trace repeats and
    /// changes anything.
    pub fn changes(&self) -> Changes {
        let (of, before) = (self.clone(), Change::default());
        Changes { of, next: 0, begun: Duration::ZERO, has_changed: false, before }
    }
}

/// Iterator of [`Replay::changes`].
#[derive(Clone, Debug)]
pub struct Changes {
    of: Replay,
    next: usize,
    /// Start of the current pass through the trace.
    begun: Duration,
    /// Whether this pass has changed anything.
    has_changed: bool,
    /// Current values.
    before: Change,
}

impl Iterator for Changes {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        loop {
            let Some(row) = self.of.trace.rows.get(self.next) else {
                // If one pass changes nothing, later passes change nothing either.
                if self.of.at_end == AtEnd::Hold || !self.has_changed {
                    return None;
                }
                self.begun = self.begun.checked_add(self.of.trace.length)?;
                (self.next, self.has_changed) = (0, false);
                continue;
            };
            self.next += 1;
            let change = row.since(&self.before);
            self.before = *row;
            if change.is_any() {
                self.has_changed = true;
                return Some(Change { at: self.begun.checked_add(row.at)?, ..change });
            }
        }
    }
}

/// A trace as the text that [`PathTrace::parse`] reads.
#[cfg(feature = "serde")]
mod as_text {
    use alloc::string::String;
    use alloc::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::PathTrace;

    pub fn serialize<S: Serializer>(
        trace: &Arc<PathTrace>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(trace)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<PathTrace>, D::Error> {
        let text = String::deserialize(deserializer)?;
        PathTrace::parse("trace", &text).map(Arc::new).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn trace(text: &str) -> PathTrace {
        PathTrace::parse("t.csv", text).unwrap()
    }

    /// The first changes as milliseconds, Mbit/s and delay in milliseconds.
    fn changes(text: &str, at_end: AtEnd, count: usize) -> Vec<(u128, Option<u64>, Option<u128>)> {
        let replay = Replay { trace: Arc::new(trace(text)), at_end };
        let mbps = |rate: Rate| rate.as_bits_per_sec() / 1_000_000;
        let plain = |it: Change| {
            (it.at.as_millis(), it.rate.map(mbps), it.delay.map(|delay| delay.as_millis()))
        };
        replay.changes().take(count).map(plain).collect()
    }

    #[test]
    fn rows_hold_until_the_next() {
        let text = "\u{feff}# a path\r\ntime_s, rate_mbps ,rtt_ms\r\n5,80,40\r\n\r\n5.5,,60\r\n6,20,60\r\n";
        let found = trace(text);
        assert_eq!(found.length(), Duration::from_millis(1_500));
        assert_eq!(found.longest_gap(), Duration::from_millis(500));
        assert_eq!(found.mean_rate(), Some(Rate::from_mbit_per_sec(60)));
        assert_eq!(found.highest_rate(), Some(Rate::from_mbit_per_sec(80)));
        assert!(found.is_round_trip() && found.sets_delay() && !found.sets_loss());
        let once = [(0, Some(80), Some(20)), (500, None, Some(30)), (1_000, Some(20), None)];
        assert_eq!(changes(text, AtEnd::Hold, 9), once);
        let again = [(1_500, Some(80), Some(20)), (2_000, None, Some(30))];
        assert_eq!(changes(text, AtEnd::Repeat, 5), [&once[..], &again].concat());
    }

    #[test]
    fn empty_row_ends_the_trace() {
        let text = "time_ms,rate_mbps\n0,1\n10,2\n70,\n";
        assert_eq!(trace(text).length(), Duration::from_millis(70));
        assert_eq!(trace(text).longest_gap(), Duration::from_millis(60));
        let all = changes(text, AtEnd::Repeat, 4);
        let times: Vec<u128> = all.iter().map(|(at, ..)| *at).collect();
        assert_eq!(times, [0, 10, 70, 80]);
        // Of two rows at one time the later one counts.
        let text = "time_ms,delay_ms\n0,1\n10,2\n10,3\n20,3\n";
        let expected = [(0, None, Some(1)), (10, None, Some(3))];
        assert_eq!(changes(text, AtEnd::Hold, 9), expected);
    }

    #[test]
    fn constant_trace_changes_once() {
        let text = "time_ms,rate_mbps\n0,1\n10,1\n";
        assert_eq!(changes(text, AtEnd::Repeat, 9), [(0, Some(1), None)]);
    }

    #[test]
    fn printed_traces_are_read_back() {
        for text in [
            "time_ms,rate_mbps,delay_ms,loss\n0.000001,0.000001,0.5,1e-9\n3.5,400000,1,1\n9,,,\n",
            "time_s,rtt_ms\n1700000000.25,0.000002\n1700000001,86400000\n",
            "loss,time_ms\n0.25,0\n0,4294967294\n0,4294967295\n",
        ] {
            let found = trace(text);
            assert_eq!(trace(&found.to_string()), found, "{found}");
        }
        let found = trace("time_s,rate_mbps,delay_ms\n0,1.5,2\n1,2,0.25\n");
        let printed = "time_ms,rate_mbps,delay_ms\n0,1.5,2\n1000,2,0.25\n2000,,\n";
        assert_eq!(found.to_string(), printed);
    }

    #[test]
    fn parts_of_a_trace_are_traces() {
        let whole = trace("time_ms,rate_mbps,rtt_ms\n0,1,8\n10,2,9\n");
        let delay = whole.only(|row| Change { rate: None, ..row }).unwrap();
        assert!(delay.is_round_trip() && !delay.sets_rate() && delay.sets_delay());
        assert_eq!(delay.only(|row| Change { delay: None, ..row }), None);
    }

    #[test]
    fn mistakes_are_refused_with_their_place() {
        for (text, line, column, allowed) in [
            ("", 1, 1, "time_ms or time_s"),
            ("rate_mbps,delay_ms\n", 1, 1, "time_ms or time_s"),
            ("time_ms\n0\n", 1, 1, "time_ms or time_s"),
            ("time_ms;rate_mbps\n", 1, 1, "separated by commas"),
            ("time_ms,rate\n0,1\n", 1, 9, "rate_mbps"),
            ("time_ms,loss,loss\n", 1, 14, "at most once"),
            ("time_ms,delay_ms,rtt_ms\n", 1, 1, "either delay_ms"),
            ("time_ms,measured\n", 1, 1, "time_ms or time_s"),
            ("time_ms,loss,measured\n0,0,2\n", 2, 5, "1 or 0"),
            ("time_ms,loss\n", 1, 1, "at least two rows"),
            ("time_ms,loss\n5,0\n", 2, 1, "at least two rows"),
            ("time_ms,loss\n5,0\n5,0\n", 3, 1, "at least two rows"),
            ("time_ms,loss\n5,\n", 2, 3, "a share of the packets"),
            ("time_ms,loss\n0,0\n1,1.5\n", 3, 3, "a share of the packets, 0 to 1"),
            ("time_ms,loss\n0,0\n1, x\n", 3, 4, "a share of the packets, 0 to 1"),
            ("time_ms,loss\n5,0\n4,0\n", 3, 1, "equal to the row before"),
            ("time_ms,loss\n0,0\n0.009,1\n", 3, 1, "at least 0.01 ms later"),
            ("time_ms,loss\n0,0\n0.009,\n", 3, 1, "at least 0.01 ms later"),
            ("time_ms,loss\n,0\n", 2, 1, "a time from 0"),
            ("time_s,loss\n0,0\n4294968,0\n", 3, 1, "at most 4294967295 ms"),
            ("time_ms,loss\n0,0,0\n", 2, 1, "2 cells"),
            ("time_ms,rate_mbps\n0,400001\n", 2, 3, "0 to 400000"),
            ("time_ms,rate_mbps\n0,nan\n", 2, 3, "0 to 400000"),
            ("time_ms,delay_ms\n0,-1\n", 2, 3, "a one-way delay in ms"),
            ("time_ms,rtt_ms\n0,1e9\n", 2, 3, "a round trip in ms"),
        ] {
            let error = PathTrace::parse("bad.csv", text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
            assert!(error.to_string().contains(allowed), "{text:?}: {error}");
        }
    }
}
