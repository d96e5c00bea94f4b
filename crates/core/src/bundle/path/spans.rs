//! Bytes, losses and round trips of the path in spans of 100 ms, taken from reports.
//!
//! ```text
//! arrival of a boundary   departure + composed round trip: the sendbox's clock, later by the least way back
//! span                    from the last boundary of the span before to the first one that arrives 100 ms later
//! ```
//! A span without a report for a second is left out: nothing was sent, or nothing is known.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::units::{ByteCount, Duration, Timestamp};

/// Shortest span. Half of it doubles the rows; of twice the length, a rate lags behind by as much.
const SPAN: Duration = Duration::from_millis(100);
/// Longest time between two boundaries of a span. The slowest bundles have some ten reports a second.
const PAUSE: Duration = Duration::from_secs(1);
/// Spans that are kept: 3.2 s of a busy bundle, for readers that look once a second.
pub const KEPT: usize = 32;
/// Most round trips behind a median: 200 reports a second are 20 in a span.
const ROUND_TRIPS_MAX: usize = 256;

/// Bytes, losses and delays of the bundle on its path in one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSpan {
    /// When the last boundary of the span arrived, later by the least way back.
    pub arrived_at: Timestamp,
    /// How long the span is.
    pub took: Duration,
    /// Bytes that arrived.
    pub received: ByteCount,
    /// Bytes that left and did not arrive.
    pub lost: ByteCount,
    /// Least composed round trip.
    pub least_rtt: Duration,
    /// Median of the composed round trips, each weighted by the time since the boundary before.
    pub median_rtt: Duration,
    /// Least time from a departure to its report: a longer way back shows here at once, and in composed round trips
    /// after 10 s.
    pub least_raw_rtt: Duration,
}

/// A boundary that arrived behind all before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub sent_at: Timestamp,
    /// Composed round trip.
    pub rtt: Duration,
    /// Report arrival minus departure.
    pub raw_rtt: Duration,
    /// Bytes newly received and newly missing.
    pub received: ByteCount,
    pub lost: ByteCount,
    /// The composed round trips before are of another way back.
    pub is_shifted: bool,
}

/// Sums up arrivals span by span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    /// Arrival of the last boundary.
    last: Option<(Timestamp, Duration)>,
    began: Timestamp,
    received: ByteCount,
    lost: ByteCount,
    least_raw_rtt: Duration,
    /// Round trips in the open span, and for how long each counts.
    round_trips: Vec<(Duration, Duration)>,
    kept: VecDeque<PathSpan>,
}

impl Spans {
    /// Takes the next boundary.
    pub fn on_arrival(&mut self, arrival: &Arrival) {
        let at = arrival.sent_at + arrival.rtt;
        let Some((last_at, last_rtt)) = self.last.replace((at, arrival.rtt)) else {
            return self.begin(at);
        };
        let since = at.saturating_since(last_at);
        if since > PAUSE || arrival.is_shifted {
            return self.begin(at);
        }
        self.received += arrival.received;
        self.lost += arrival.lost;
        self.least_raw_rtt = self.least_raw_rtt.min(arrival.raw_rtt);
        if self.round_trips.len() < ROUND_TRIPS_MAX {
            // Between two boundaries the queue was at least once as short as at the shorter round trip.
            self.round_trips.push((arrival.rtt.min(last_rtt), since));
        }
        let took = at.saturating_since(self.began);
        if took < SPAN {
            return;
        }
        if let Some((least_rtt, median_rtt)) = self.summary() {
            if self.kept.len() == KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(PathSpan {
                arrived_at: at,
                took,
                received: self.received,
                lost: self.lost,
                least_rtt,
                median_rtt,
                least_raw_rtt: self.least_raw_rtt,
            });
        }
        self.begin(at);
    }

    /// Forgets the last boundary: the next arrival says nothing about the time before it.
    pub const fn pause(&mut self) {
        self.last = None;
    }

    fn begin(&mut self, at: Timestamp) {
        self.began = at;
        (self.received, self.lost) = (ByteCount::ZERO, ByteCount::ZERO);
        self.least_raw_rtt = Duration::MAX;
        self.round_trips.clear();
    }

    /// Least round trip, and the median over time.
    fn summary(&mut self) -> Option<(Duration, Duration)> {
        self.round_trips.sort_unstable();
        let half = self.round_trips.iter().map(|(_, time)| *time).sum::<Duration>() / 2;
        let mut passed = Duration::ZERO;
        let median = self.round_trips.iter().find(|(_, time)| {
            passed += *time;
            passed >= half
        });
        Some((self.round_trips.first()?.0, median?.0))
    }

    /// The newest spans, oldest first.
    pub const fn kept(&self) -> &VecDeque<PathSpan> {
        &self.kept
    }

    /// Drops all spans and gives their memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A boundary that left at so many milliseconds and took `rtt_ms`, with 1250 bytes since the one before.
    fn arrival(sent_ms: u32, rtt_ms: u32) -> Arrival {
        Arrival {
            sent_at: Timestamp::ZERO + MS * sent_ms,
            rtt: MS * rtt_ms,
            raw_rtt: MS * (rtt_ms + sent_ms % 3),
            received: ByteCount::new(1_250),
            lost: ByteCount::new(50),
            is_shifted: false,
        }
    }

    #[test]
    fn span_sums_bytes_between_arrivals() {
        let mut spans = Spans::default();
        for sent_ms in (0..=250).step_by(10) {
            spans.on_arrival(&arrival(sent_ms, if sent_ms < 30 { 20 } else { 25 }));
        }
        assert_eq!(spans.kept().len(), 2);
        // The first boundary begins the span; ten more arrive in it, the last ones 5 ms later.
        let expected = PathSpan {
            arrived_at: Timestamp::ZERO + MS * 125,
            took: MS * 105,
            received: ByteCount::new(12_500),
            lost: ByteCount::new(500),
            least_rtt: MS * 20,
            median_rtt: MS * 25,
            least_raw_rtt: MS * 21,
        };
        assert_eq!(spans.kept()[0], expected);
        assert_eq!((spans.kept()[1].took, spans.kept()[1].least_rtt), (MS * 100, MS * 25));
    }

    #[test]
    fn pauses_and_shifts_begin_another_span() {
        let mut spans = Spans::default();
        spans.on_arrival(&arrival(0, 20));
        spans.on_arrival(&arrival(90, 20));
        spans.on_arrival(&arrival(2_000, 20));
        assert!(spans.kept().is_empty());
        spans.on_arrival(&Arrival { is_shifted: true, ..arrival(2_150, 20) });
        assert!(spans.kept().is_empty());
        spans.on_arrival(&arrival(2_250, 20));
        assert_eq!(spans.kept().len(), 1);
        assert_eq!(spans.kept()[0].received, ByteCount::new(1_250));
    }

    #[test]
    fn memory_of_spans_is_bounded() {
        let mut spans = Spans::default();
        (0..100_000).for_each(|ms| spans.on_arrival(&arrival(ms, 20)));
        assert_eq!(spans.kept().len(), KEPT);
        // Boundaries of one instant end no span.
        (0..10_000).for_each(|_| spans.on_arrival(&arrival(100_000, 20)));
        assert!(spans.round_trips.len() <= ROUND_TRIPS_MAX);
        spans.clear();
        assert!(spans.kept().is_empty() && spans.last.is_none());
    }
}
