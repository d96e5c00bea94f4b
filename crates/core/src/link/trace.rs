//! Mahimahi link traces: the times at which a link of varying rate may send.

use alloc::vec::Vec;
use core::fmt;

use crate::text::{Line, TextError, data_lines};
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Bytes that one delivery opportunity carries: an IP packet of 1500 bytes and its Ethernet header. So one
/// line of a trace lets one full-size packet pass, as in mahimahi itself. Its slots are 1504 bytes: 1500 and
/// the 4-byte header of its TUN device.
pub const OPPORTUNITY: ByteCount = ByteCount::new(1514);

/// Bytes of IP packet in an opportunity; the rates of traces count these.
pub(super) const OPPORTUNITY_IP: ByteCount = ByteCount::new(1500);

/// Nanoseconds in a millisecond, the unit of a trace.
const NANOS_PER_MS: i128 = 1_000_000;

/// A trace: delivery opportunities at whole milliseconds, repeated for ever.
///
/// The text has one line per opportunity with its time in milliseconds, never decreasing; several lines with
/// one time are several opportunities. The last time is the period. Blank lines and `#` comments are allowed.
/// The unused part of an opportunity is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Bursts of one period: the millisecond and the number of opportunities.
    bursts: Vec<Burst>,
    period_ms: u64,
    opportunities: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    at_ms: u32,
    count: u32,
}

impl Trace {
    /// Name and text of the built-in traces. There are paths with Poisson service at the mean rates of
    /// ccperf's traces, two cellular links of varying rate, and a [`PathTrace`](super::PathTrace) of
    /// satellites.
    pub const BUILTIN: [(&str, &str); 6] = [
        ("0.57mbps-poisson", include_str!("../../../../traces/0.57mbps-poisson.trace")),
        ("2.64mbps-poisson", include_str!("../../../../traces/2.64mbps-poisson.trace")),
        ("3.04mbps-poisson", include_str!("../../../../traces/3.04mbps-poisson.trace")),
        ("leo_handovers", include_str!("../../../../traces/leo_handovers.csv")),
        ("lte_outages", include_str!("../../../../traces/lte_outages.trace")),
        ("lte_poor", include_str!("../../../../traces/lte_poor.trace")),
    ];

    /// Reads a trace; `file` only appears in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, TextError> {
        let allowed = "a time in whole milliseconds, 0 to 4294967295, not below the line before";
        let mut bursts: Vec<Burst> = Vec::new();
        let mut last = Line::FIRST;
        for line in data_lines(text) {
            let value = line.text;
            let error = || TextError::new(file, line, value, allowed);
            // `u32::from_str` would also accept a leading plus sign.
            if !value.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(error());
            }
            let at_ms: u32 = value.parse().map_err(|_| error())?;
            append(&mut bursts, at_ms).ok_or_else(error)?;
            last = line;
        }
        let allowed = "at least one time above 0 ms: the last line is the period of the trace";
        Self::of_bursts(bursts).ok_or_else(|| TextError::new(file, last, last.text, allowed))
    }

    /// A trace with opportunities at `times_ms`, which must not decrease and must end above 0.
    pub(super) fn from_times(times_ms: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut bursts = Vec::new();
        times_ms.into_iter().try_for_each(|at_ms| append(&mut bursts, at_ms))?;
        Self::of_bursts(bursts)
    }

    /// `None` if the period would be 0.
    fn of_bursts(bursts: Vec<Burst>) -> Option<Self> {
        let period_ms = bursts.last().map(|burst| u64::from(burst.at_ms)).filter(|ms| *ms > 0)?;
        let opportunities = bursts.iter().map(|burst| u64::from(burst.count)).sum();
        Some(Self { bursts, period_ms, opportunities })
    }

    /// Time after which the trace repeats.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms)
    }

    /// Opportunities in a period.
    pub fn opportunities(&self) -> u64 {
        self.opportunities
    }

    /// Opportunities in order of time: each time and the number of opportunities.
    pub fn bursts(&self) -> impl Iterator<Item = (Duration, u32)> {
        self.bursts.iter().map(|burst| (Duration::from_millis(burst.at_ms.into()), burst.count))
    }

    /// Longest time without an opportunity.
    pub fn longest_gap(&self) -> Duration {
        let mut last = Duration::ZERO;
        let gaps = self.bursts().map(|(at, _)| at - core::mem::replace(&mut last, at));
        gaps.max().unwrap_or_default()
    }

    /// Mean rate in bytes of IP packets, 1500 per opportunity.
    pub fn mean_rate(&self) -> Rate {
        (OPPORTUNITY_IP * self.opportunities).per(self.period()).unwrap_or(Rate::ZERO)
    }

    /// The first opportunities after `after` on a link that started at `start`: their time, and the bytes
    /// that they carry together. The trace also extends periodically to before the start.
    pub(super) fn next_after(&self, start: Timestamp, after: Timestamp) -> (Timestamp, ByteCount) {
        // Signed and wide: before the first whole period the start of the current one is negative.
        let period = i128::from(self.period_ms) * NANOS_PER_MS;
        let into = (i128::from(after.as_nanos()) - i128::from(start.as_nanos())).rem_euclid(period);
        let into_ms = (into / NANOS_PER_MS) as u32;
        // In range: the last burst lies at the end of the period, `into_ms` before it.
        let index = self.bursts.partition_point(|burst| burst.at_ms <= into_ms);
        let burst = self.bursts[index];
        let mut count = u64::from(burst.count);
        // The end of a period is time 0 of the next one.
        if u64::from(burst.at_ms) == self.period_ms && self.bursts[0].at_ms == 0 {
            count += u64::from(self.bursts[0].count);
        }
        let at = i128::from(after.as_nanos()) - into + i128::from(burst.at_ms) * NANOS_PER_MS;
        let at = Timestamp::from_nanos(u64::try_from(at).unwrap_or(u64::MAX));
        (at, OPPORTUNITY * count)
    }
}

/// Adds an opportunity; `None` if it comes before the last one.
fn append(bursts: &mut Vec<Burst>, at_ms: u32) -> Option<()> {
    match bursts.last_mut() {
        Some(burst) if burst.at_ms > at_ms => return None,
        Some(burst) if burst.at_ms == at_ms => burst.count = burst.count.checked_add(1)?,
        _ => bursts.push(Burst { at_ms, count: 1 }),
    }
    Some(())
}

/// The form that [`Trace::parse`] and mahimahi read: one line per opportunity, no comments.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for burst in &self.bursts {
            for _ in 0..burst.count {
                writeln!(f, "{}", burst.at_ms)?;
            }
        }
        Ok(())
    }
}

/// A trace as the text that [`Trace::parse`] reads.
#[cfg(feature = "serde")]
pub(super) mod as_text {
    use alloc::string::String;
    use alloc::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Trace;

    pub fn serialize<S: Serializer>(trace: &Arc<Trace>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(trace)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Trace>, D::Error> {
        let text = String::deserialize(deserializer)?;
        Trace::parse("trace", &text).map(Arc::new).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(trace: &Trace, start_ms: u64, from_ms: u64, n: usize) -> Vec<(u64, u64)> {
        let start = Timestamp::from_nanos(start_ms * 1_000_000);
        let mut at = Timestamp::from_nanos(from_ms * 1_000_000);
        (0..n)
            .map(|_| {
                let (next, bytes) = trace.next_after(start, at);
                at = next;
                (next.as_nanos() / 1_000_000, bytes.as_u64() / OPPORTUNITY.as_u64())
            })
            .collect()
    }

    #[test]
    fn trace_repeats_with_its_last_time_as_period() {
        let trace = Trace::parse("t", "# source: none\n2\n2\n5\n\n10\n").unwrap();
        assert_eq!(trace.opportunities(), 4);
        assert_eq!(trace.longest_gap(), Duration::from_millis(5));
        assert_eq!(trace.mean_rate(), Rate::from_bits_per_sec(4_800_000));
        assert_eq!(
            times(&trace, 100, 100, 6),
            [(102, 2), (105, 1), (110, 1), (112, 2), (115, 1), (120, 1)]
        );
        // Before the start as well, and from the middle of a period.
        assert_eq!(times(&trace, 100, 87, 3), [(90, 1), (92, 2), (95, 1)]);
    }

    #[test]
    fn time_zero_coincides_with_the_previous_period_end() {
        let trace = Trace::parse("t", "0\n1\n").unwrap();
        assert_eq!(times(&trace, 0, 0, 3), [(1, 2), (2, 2), (3, 2)]);
    }

    #[test]
    fn one_line_a_millisecond_is_12_mbit() {
        assert_eq!(Trace::parse("t", "1").unwrap().mean_rate(), Rate::from_mbit_per_sec(12));
    }

    #[test]
    fn bad_traces_are_refused_with_their_line() {
        let cases = [
            ("", 1),
            ("0\n0\n", 2),
            ("1\nx\n", 2),
            ("5\n4\n", 2),
            ("1\n-2\n", 2),
            ("+3\n", 1),
            ("1.5\n", 1),
            ("1 2\n", 1),
            ("# c\n\n4294967296\n", 3),
        ];
        for (text, line) in cases {
            let error = Trace::parse("bad.trace", text).unwrap_err();
            assert_eq!((error.file.as_str(), error.line), ("bad.trace", line), "{text:?}");
            assert!(!error.allowed.is_empty());
        }
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        let trace = Trace::parse("t", "4294967295\n").unwrap();
        let (at, _) = trace.next_after(Timestamp::MAX, Timestamp::MAX);
        assert!(at >= Timestamp::from_nanos(u64::MAX - 1));
    }
}
