//! The path as a bundle measured it: rows of 100 ms, and the trace for links that they make.
//!
//! ```text
//! base       the longer of two least round trips, of WINDOW before and of WINDOW after the row; if the queue emptied on
//!            one side, that side's; if on none, the last base holds
//! queue      median composed round trip of the row - base of the composed ones
//! rtt        base of the raw round trips, from departures to their reports
//! measured   queue >= QUEUE_MIN: the bundle filled the path, and the rate is the path's
//! ```
//! A round trip that is longer for less than `WINDOW` counts as queue, and one that stays longer as path if it is flat.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

use super::bundles::nanos;
use crate::bundle::spans::PathSpan;
use crate::units::Duration;

/// Time before and after a row in which a queue is empty at least once: a delay-based algorithm empties it every few
/// round trips. With half of it, queues of slow paths count as delay; with twice of it, shorter plateaus of the delay
/// count as queue.
const WINDOW: Duration = Duration::from_secs(5);
/// A queue emptied in a window if at least one in so many records came within [`QUEUE_MIN`] of the least round trip. On the
/// testbed, Copa did so in 10 to 30 of 47 records, and the sawtooth of eight Cubic flows in 1 to 3. With half of it, queues
/// that Copa empties are missed; with twice of it, sawteeth count as delay.
const EMPTIED_IN: usize = 10;
/// A shorter queue is noise, as for control (`delay_noise` of its tuning). With half of it, receive queues of busy
/// boxes count as queues of the path; with twice of it, short queues of fast paths are missed.
pub const QUEUE_MIN: Duration = Duration::from_millis(1);

/// What the path carried in a span, as the sendbox counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct PathRecord {
    /// When the last boundary of the span arrived, later by the least way back.
    pub at_ns: u64,
    /// Length of the span (ns), usually 100 ms.
    pub took_ns: u64,
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// Bytes that left and did not arrive.
    pub lost_bytes: u64,
    /// Least composed round trip (ns).
    pub least_rtt_ns: u64,
    /// Median of the composed round trips over time (ns).
    pub median_rtt_ns: u64,
    /// Least time from a departure to its report (ns).
    pub least_raw_rtt_ns: u64,
}

impl PathRecord {
    /// The record of a span.
    pub fn of(span: &PathSpan) -> Self {
        Self {
            at_ns: span.arrived_at.as_nanos(),
            took_ns: nanos(span.took),
            received_bytes: span.received.as_u64(),
            lost_bytes: span.lost.as_u64(),
            least_rtt_ns: nanos(span.least_rtt),
            median_rtt_ns: nanos(span.median_rtt),
            least_raw_rtt_ns: nanos(span.least_raw_rtt),
        }
    }
}

/// The path in a span.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct PathRow {
    /// End of the span (ns).
    pub at_ns: u64,
    /// Length of the span (ns).
    pub took_ns: u64,
    /// Rate at which the bundle's packets arrived (bits per second): the path's if it is measured, else a lower bound.
    pub rate_bps: u64,
    /// Round trip without the queue of the path, with the least way back (ns).
    pub rtt_ns: u64,
    /// Share of the bytes that left and did not arrive (0 to 1).
    pub loss: f64,
    /// The bundle filled the path: packets waited in it.
    pub is_measured: bool,
}

impl PathRow {
    fn begins_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.took_ns)
    }
}

/// The path in each of `records`, which are in order of time.
pub fn path_rows(records: &[PathRecord]) -> Vec<PathRow> {
    let least = bases_ns(records, |it| it.least_rtt_ns);
    let least_raw = bases_ns(records, |it| it.least_raw_rtt_ns);
    let row = |((record, least_ns), rtt_ns): ((&PathRecord, u64), u64)| {
        let sent_bytes = record.received_bytes.saturating_add(record.lost_bytes);
        let bits = 8e9 * record.received_bytes as f64;
        let queue_ns = record.median_rtt_ns.saturating_sub(least_ns);
        PathRow {
            at_ns: record.at_ns,
            took_ns: record.took_ns,
            rate_bps: (bits / record.took_ns.max(1) as f64) as u64,
            rtt_ns,
            loss: record.lost_bytes as f64 / sent_bytes.max(1) as f64,
            is_measured: queue_ns >= nanos(QUEUE_MIN),
        }
    };
    records.iter().zip(least).zip(least_raw).map(row).collect()
}

/// Least round trip on one side of a row, and whether a queue emptied there: enough records come near it.
fn floor<'a>(
    side: impl Iterator<Item = &'a PathRecord> + Clone,
    of: &impl Fn(&PathRecord) -> u64,
) -> (u64, bool) {
    let least = side.clone().map(of).min().unwrap_or(u64::MAX);
    let near = side.clone().filter(|it| of(it) <= least.saturating_add(nanos(QUEUE_MIN)));
    (least, near.count() * EMPTIED_IN >= side.count())
}

/// The round trip `of` the path without its queue, at each of the records.
fn bases_ns(records: &[PathRecord], of: impl Fn(&PathRecord) -> u64) -> Vec<u64> {
    let window_ns = nanos(WINDOW);
    let [first, last] = [records.first(), records.last()].map(|it| it.map_or(0, |it| it.at_ns));
    let mut known = None;
    let mut bases = Vec::with_capacity(records.len());
    for (place, record) in records.iter().enumerate() {
        let at_ns = record.at_ns;
        let is_near = |it: &&PathRecord| it.at_ns.abs_diff(at_ns) <= window_ns;
        let before = floor(records[..=place].iter().rev().take_while(is_near), &of);
        let after = floor(records[place..].iter().take_while(is_near), &of);
        // At either end of the records too little is known of one side.
        let is_whole = [first, last].map(|end_ns| end_ns.abs_diff(at_ns) >= window_ns);
        let (least, sides) = match is_whole {
            [true, true] => (before.0.max(after.0), [before, after]),
            [true, false] => (before.0, [before; 2]),
            [false, true] => (after.0, [after; 2]),
            [false, false] => (before.0.min(after.0), [before.min(after); 2]),
        };
        // If the queue stood on both sides, the last known round trip holds.
        let emptied = sides.into_iter().filter(|side| side.1).map(|side| side.0).max();
        if let (Some(base), None) = (emptied, known) {
            bases.iter_mut().for_each(|it: &mut u64| *it = base.min(*it));
        }
        known = emptied.or(known);
        bases.push(known.map_or(least, |base| base.min(least)));
    }
    bases
}

/// Time that rows last, and the part of it that is measured.
pub fn path_times(rows: &[PathRow]) -> [Duration; 2] {
    let measured = rows.iter().filter(|row| row.is_measured);
    let measured: Duration = measured.map(|row| Duration::from_nanos(row.took_ns)).sum();
    let whole = match rows {
        [first, .., last] => last.at_ns.saturating_sub(first.begins_ns()),
        [row] => row.took_ns,
        [] => 0,
    };
    [Duration::from_nanos(whole), measured]
}

/// A trace for links ([`PathTrace::parse`](crate::link::PathTrace::parse)) of rows in order of time, with a column
/// `measured`. Where the rate is not measured it is the last measured one, or what arrived if that is more. Between
/// rows nothing is known: rate and round trip hold, and the loss is 0.
pub fn path_csv(rows: &[PathRow]) -> String {
    let mut text = String::from("time_ms,rate_mbps,rtt_ms,loss,measured\n");
    let Some(first) = rows.first() else { return text };
    let start_ns = first.begins_ns();
    let first_measured = rows.iter().find(|row| row.is_measured);
    let mut known_bps = first_measured.map_or(0, |row| row.rate_bps);
    let mut end_ns = start_ns;
    let ms = |ns: u64| ns as f64 / 1e6;
    for row in rows {
        let begins_ns = row.begins_ns().max(end_ns);
        if begins_ns > end_ns {
            gap(&mut text, ms(end_ns - start_ns));
        }
        if row.is_measured {
            known_bps = row.rate_bps;
        }
        let cells = [
            format!("{:.3}", ms(begins_ns - start_ns)),
            format!("{:.3}", row.rate_bps.max(known_bps) as f64 / 1e6),
            format!("{:.3}", ms(row.rtt_ns)),
            format!("{:.6}", row.loss),
            u8::from(row.is_measured).to_string(),
        ];
        text += &cells.join(",");
        text.push('\n');
        end_ns = row.at_ns.max(end_ns);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:.3},,,,", ms(end_ns - start_ns));
    text
}

/// From so many milliseconds on nothing was sent.
fn gap(text: &mut String, at_ms: f64) {
    let _ = writeln!(text, "{at_ms:.3},,,0,0");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::PathTrace;

    const MS: u64 = 1_000_000;

    /// Spans of 100 ms: bytes, least and median round trip in milliseconds.
    fn records(spans: impl IntoIterator<Item = (u64, u64, u64)>) -> Vec<PathRecord> {
        let record = |(place, (received_bytes, least_ms, median_ms))| PathRecord {
            at_ns: (place as u64 + 8) * 100 * MS,
            took_ns: 100 * MS,
            received_bytes,
            lost_bytes: 0,
            least_rtt_ns: least_ms * MS,
            median_rtt_ns: median_ms * MS,
            least_raw_rtt_ns: least_ms * MS,
        };
        spans.into_iter().enumerate().map(record).collect()
    }

    #[test]
    fn round_trip_follows_steps_without_queues() {
        // A queue of 30 ms stands for 2 s at the beginning, one of 15 ms for 3 s after 10 s. At 20 s the path gets longer
        // by 20 ms, at 30 s shorter again.
        let span = |place: u64| {
            let path_ms = if (200..300).contains(&place) { 60 } else { 40 };
            let queue_ms = match place {
                0..20 => 30,
                100..130 => 15,
                _ => 0,
            };
            (1_000, path_ms + queue_ms, path_ms + queue_ms)
        };
        let rows = path_rows(&records((0..400).map(span)));
        for (place, row) in rows.iter().enumerate() {
            let path_ms = if (200..300).contains(&place) { 60 } else { 40 };
            assert_eq!(row.rtt_ns, path_ms * MS, "row {place}");
            assert_eq!(row.is_measured, place < 20 || (100..130).contains(&place), "row {place}");
        }
        let [whole, measured] = path_times(&rows);
        assert_eq!((whole, measured), (Duration::from_secs(40), Duration::from_secs(5)));
    }

    #[test]
    fn standing_sawtooth_counts_as_queue() {
        // After 10 s the queue moves between 60 and 100 ms for 20 s, and never empties.
        let span = |place: u64| {
            let queue_ms = if (100..300).contains(&place) { 60 + 2 * (place % 20) } else { 0 };
            (1_000, 40 + queue_ms, 40 + queue_ms)
        };
        let rows = path_rows(&records((0..400).map(span)));
        assert!(rows.iter().all(|row| row.rtt_ns == 40 * MS));
        assert_eq!(rows.iter().filter(|row| row.is_measured).count(), 200);
        // The same at the beginning.
        let rows = path_rows(&records((100..400).map(span)));
        assert!(rows.iter().all(|row| row.rtt_ns == 40 * MS));
    }

    #[test]
    fn rate_and_loss_are_shares_of_a_span() {
        let mut spans = records([(125_000, 40, 42)]);
        spans[0].lost_bytes = 125_000;
        let row = path_rows(&spans)[0];
        assert_eq!((row.rate_bps, row.rtt_ns), (10_000_000, 40 * MS));
        assert!((row.loss - 0.5).abs() < 1e-9 && row.is_measured);
    }

    #[test]
    fn unmeasured_rate_is_no_limit() {
        let mut spans =
            records([(10_000, 40, 40), (125_000, 40, 45), (10_000, 40, 40), (250_000, 40, 40)]);
        spans[3].at_ns += 400 * MS;
        let text = path_csv(&path_rows(&spans));
        let expected = "time_ms,rate_mbps,rtt_ms,loss,measured\n0.000,10.000,40.000,0.000000,0\n\
                        100.000,10.000,40.000,0.000000,1\n200.000,10.000,40.000,0.000000,0\n\
                        300.000,,,0,0\n700.000,20.000,40.000,0.000000,0\n800.000,,,,\n";
        assert_eq!(text, expected);
        let trace = PathTrace::parse("t.csv", &text).unwrap();
        assert_eq!((trace.rows().len(), trace.length()), (5, Duration::from_millis(800)));
        assert!(trace.is_round_trip());
    }

    #[test]
    fn extreme_records_make_rows() {
        let most = PathRecord {
            at_ns: u64::MAX,
            took_ns: 0,
            received_bytes: u64::MAX,
            lost_bytes: u64::MAX,
            least_rtt_ns: u64::MAX,
            median_rtt_ns: u64::MAX,
            least_raw_rtt_ns: u64::MAX,
        };
        let rows = path_rows(&[PathRecord::default(), most]);
        assert!(rows.iter().all(|row| (0.0..=1.0).contains(&row.loss)));
        assert!(path_csv(&rows).lines().count() >= 3);
        assert_eq!(path_times(&[]), [Duration::ZERO; 2]);
        assert_eq!(path_csv(&[]).lines().count(), 1);
    }
}
