//! The interpretation of a trace, in numbers that reveal a wrong unit.

use std::fmt;
use std::time::Duration;

use forebay_core::link::PathTrace;
use forebay_core::units::{Rate, format_duration};
use serde::Serialize;

use super::{Format, LinkTrace};

/// A lower mean rate more likely means a trace in microseconds, or with one line per second. The slowest of
/// Pantheon's paths has 0.57 Mbit/s. Half the bound would miss traces of 100 Mbit/s in microseconds, double
/// would warn of slow modems.
const SLOW: Rate = Rate::from_bits_per_sec(200_000);
/// Traces of mahimahi last minutes. A trace of 4 s in microseconds, read as milliseconds, exceeds this bound.
const LONG: Duration = Duration::from_secs(3600);

/// The interpretation of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Understood {
    /// The file.
    pub file: String,
    /// Format of the file.
    pub format: Format,
    /// Unit of its times.
    pub unit: &'static str,
    /// Lines, rows or intervals.
    pub rows: u64,
    /// Duration of the trace.
    pub duration_s: f64,
    /// Mean rate: for opportunities in packets of 1500 bytes, otherwise in the bytes that the file counts.
    pub mean_rate_mbps: Option<f64>,
    /// Longest time between two rows or opportunities.
    pub longest_gap_s: f64,
    /// Least and greatest one-way delay.
    pub delay_ms: Option<[f64; 2]>,
    /// Least and greatest loss.
    pub loss: Option<[f64; 2]>,
    /// Warnings about a likely wrong unit.
    pub warnings: Vec<String>,
}

impl Understood {
    pub(super) fn of(file: &str, format: Format, trace: &LinkTrace) -> Self {
        let (rows, duration, mean, gap) = match trace {
            LinkTrace::Opportunities(it) => {
                (it.opportunities(), it.period(), Some(it.mean_rate()), it.longest_gap())
            }
            LinkTrace::Path(it) => {
                (it.rows().len() as u64, it.length(), it.mean_rate(), it.longest_gap())
            }
        };
        let path = match trace {
            LinkTrace::Opportunities(_) => None,
            LinkTrace::Path(path) => Some(path),
        };
        let range = |values: fn(&PathTrace) -> Vec<f64>| range_of(values(path?));
        let unit = match format {
            Format::Mahimahi => "ms",
            Format::Csv => "as the header says",
            Format::Iperf3 => "s",
        };
        let odd = mean.filter(|_| path.is_none()).and_then(|mean| odd(mean, duration, gap));
        Self {
            file: file.into(),
            format,
            unit,
            rows,
            duration_s: duration.as_secs_f64(),
            mean_rate_mbps: mean.map(Rate::as_mbit_per_sec_f64),
            longest_gap_s: gap.as_secs_f64(),
            delay_ms: range(|path| {
                path.rows().iter().filter_map(|row| Some(row.delay?.as_secs_f64() * 1e3)).collect()
            }),
            loss: range(|path| {
                path.rows().iter().filter_map(|row| Some(row.loss?.as_f64())).collect()
            }),
            warnings: odd.into_iter().collect(),
        }
    }
}

fn range_of(values: Vec<f64>) -> Option<[f64; 2]> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some([least, values.into_iter().fold(least, f64::max)])
}

/// A warning if opportunities in milliseconds look like another unit.
fn odd(mean: Rate, duration: Duration, gap: Duration) -> Option<String> {
    (mean < SLOW || duration > LONG).then(|| {
        format!(
            "read as times in ms: mean rate {:.3} Mbit/s, longest gap {}, over {}; check that the \
             times are in milliseconds, and that each line is one opportunity to send 1500 bytes",
            mean.as_mbit_per_sec_f64(),
            format_duration(gap),
            format_duration(duration),
        )
    })
}

impl fmt::Display for Understood {
    /// Writes one line, without the warnings.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, rows, duration_s, longest_gap_s, .. } = self;
        let what = match self.format {
            Format::Mahimahi => "mahimahi, opportunities to send 1500 bytes, times in ms",
            Format::Csv => "CSV, rows",
            Format::Iperf3 => "iperf3, intervals, payload",
        };
        write!(f, "{file}: {what}: {rows}, {duration_s} s")?;
        if let Some(mbps) = self.mean_rate_mbps {
            write!(f, ", mean rate {mbps:.3} Mbit/s")?;
        }
        if let Some([least, most]) = self.delay_ms {
            write!(f, ", one-way delay {least} to {most} ms")?;
        }
        if let Some([least, most]) = self.loss {
            write!(f, ", loss {least} to {most}")?;
        }
        write!(f, ", longest gap {longest_gap_s} s")
    }
}
