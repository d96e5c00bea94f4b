//! Westwood+ as in ns-3.37 (TcpWestwoodPlus). B begins at 0, each b is the mean of the last two (Tustin), and
//! ssthresh may exceed the window. b counts acknowledgements over one smoothed round trip from the first one
//! on. Those before the next first one do not count. A duplicate is a segment. Bytes that SND.UNA passes at
//! the end of a repair count once more.

use super::Westwood;
use crate::cc::Measurement;
use crate::cc::window::{Steps, Window, WindowLaw};
use crate::units::{ByteCount, Duration, Rate, Timestamp, mul_div};

pub(in crate::cc::algorithms) fn law() -> (Westwood, Steps<Westwood>) {
    fn on_loss(law: &mut Westwood, now: Timestamp, window: &Window) -> u64 {
        let least = law.on_loss(now, window);
        law.carried().unwrap_or(least)
    }
    let law = Westwood { interval: Some(Interval::default()), ..Westwood::default() };
    (law, Steps { on_loss: Some(on_loss), ..Steps::NONE })
}

/// Mean of two samples (Tustin).
pub(super) fn mean(before: Rate, sample: Rate) -> Rate {
    Rate::from_bits_per_sec(before.as_bits_per_sec() / 2 + sample.as_bits_per_sec() / 2)
}

/// The time over which acknowledgements are counted (TcpWestwoodPlus::PktsAcked, EstimateBW).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interval {
    /// End and length of the interval; `None` until an acknowledgement begins the next.
    running: Option<(Timestamp, Duration)>,
    segments: u64,
    /// Duplicates since SND.UNA moved or a repair began: counted already.
    duplicates: u64,
    delivered: ByteCount,
}

impl Interval {
    /// Takes an acknowledgement of segments of `mss`; the rate of the interval that has ended before it.
    pub fn on_measurement(
        &mut self,
        now: Timestamp,
        measurement: &Measurement,
        mss: u64,
    ) -> Option<Rate> {
        let over = self.running.filter(|(end, _)| *end <= now);
        let rate =
            over.and_then(|(_, length)| ByteCount::new(mul_div(self.segments, mss, 1)).per(length));
        if over.is_some() {
            (self.running, self.segments) = (None, 0);
        }
        // Without a round trip it is no acknowledgement.
        let Some(rtt) = measurement.rtt.map(|rtt| rtt.latest) else { return rate };
        let is_new = measurement.delivered > self.delivered;
        self.delivered = measurement.delivered;
        let acked = measurement.acked.as_u64() / mss;
        if acked > 0 {
            let uncounted = acked.saturating_sub(core::mem::take(&mut self.duplicates));
            self.segments = self.segments.saturating_add(uncounted);
        } else if is_new {
            self.segments = self.segments.saturating_add(1);
            self.duplicates += 1;
        } else {
            return rate;
        }
        self.running = self.running.or(Some((now + rtt, rtt)));
        rate
    }

    /// A repair begins: earlier duplicates no longer count.
    pub fn restart(&mut self) {
        self.duplicates = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::rounds::MSS;

    #[test]
    fn interval_counts_duplicates_once_and_starts_with_acknowledgement() {
        let mut interval = Interval::default();
        let mut delivered = 0;
        let mut take = |ms: u64, acked: u64, newly: u64| {
            delivered += newly;
            let rtt = Duration::from_millis(40);
            let measurement = Measurement {
                acked: ByteCount::new(acked * MSS),
                delivered: ByteCount::new(delivered * MSS),
                rtt: Some(crate::cc::RttSample { latest: rtt, min: rtt }),
                ..Measurement::default()
            };
            let now = Timestamp::from_nanos(ms * 1_000_000);
            interval.on_measurement(now, &measurement, MSS).map(|rate| rate.as_bits_per_sec())
        };
        assert_eq!([take(0, 1, 1), take(10, 1, 1), take(20, 0, 1)], [None; 3]);
        // The duplicate's segment is one of these two; nothing new is no duplicate.
        assert_eq!([take(30, 2, 1), take(39, 0, 0)], [None; 2]);
        // 4 segments in 40 ms. The pause before the next acknowledgement is in no interval.
        assert_eq!(take(60, 1, 1), Some(4 * MSS * 8 * 25));
        assert_eq!(take(99, 1, 1), None);
        assert_eq!(take(100, 1, 1), Some(2 * MSS * 8 * 25));
    }
}
