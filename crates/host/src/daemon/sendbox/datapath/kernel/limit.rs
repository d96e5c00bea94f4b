//! Limit of the queue of a bundle, for all its flows together.
//!
//! ```text
//! limit = 1.5 x rate x max(125 ms, least round trip), at least 120 KiB, at most 128 MiB
//! ```
//! The program in front of the queues drops the excess, from the flows that have the most waiting. A flow
//! alone may use two thirds of the limit. Each of n flows that send all they can may use 2 / (1 + 2 n)
//! (`ALPHA` in ebpf/bpf/limit.h).

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_core::units::{ByteCount, Rate, Timestamp};

/// Time at the rate that a flow alone may have waiting, at least the least round trip. The flow then fills
/// the path in spite of its drops. With half of it Cubic would lose throughput from 60 ms on. Twice the time
/// doubles the delay of bulk flows.
const ALONE: Duration = Duration::from_millis(125);
/// Ratio of the limit to the share that a flow alone may use.
const ALL: f64 = 1.5;
/// Bounds of a limit in bytes. The least lets 20 flows recover from losses without a timeout, with four
/// packets each. The most is a tenth of a second at 10 Gbit/s; from there on bundles are limited to their
/// shares as well.
const BYTES: RangeInclusive<f64> = 122_880.0..=134_217_728.0;
/// Time in which the limit falls by a factor of e at most. If the limit fell together with the rate, a rate
/// that halves would drop all new packets until half of the limit has left.
const FALLING: Duration = Duration::from_secs(1);

/// The limit of a bundle, which follows its rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limit {
    bytes: f64,
    at: Timestamp,
}

impl Limit {
    /// The limit at a rate, on a path with this least round trip, as far as they are known; `None`: there is
    /// no limit.
    pub fn follow(
        &mut self,
        now: Timestamp,
        rate: Option<Rate>,
        rtt: Option<Duration>,
    ) -> Option<ByteCount> {
        let Some(rate) = rate else {
            *self = Self::default();
            return None;
        };
        let held = rate.bytes_in(ALONE.max(rtt.unwrap_or_default())).as_f64();
        let wanted = (ALL * held).clamp(*BYTES.start(), *BYTES.end());
        let elapsed = now.saturating_since(self.at).as_secs_f64();
        self.bytes = wanted.max(self.bytes * (-elapsed / FALLING.as_secs_f64()).exp());
        self.at = now;
        Some(ByteCount::new(self.bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_rises_with_the_rate_and_falls_slowly() {
        let mut limit = Limit::default();
        let mut at = |ms: u64, mbit_per_s: u64| {
            let rate = Some(Rate::from_mbit_per_sec(mbit_per_s));
            limit.follow(Timestamp::from_nanos(ms * 1_000_000), rate, None).unwrap().as_u64()
        };
        assert_eq!(at(0, 20), 468_750);
        assert_eq!(at(5, 40), 937_500);
        let falling = [5, 10, 105, 1005, 9000].map(|ms| at(ms, 20));
        assert_eq!(falling, [937_500, 932_824, 848_285, 468_750, 468_750]);
        assert_eq!([9000, 90_000].map(|ms| at(ms, 1)), [468_750, 122_880]);
        assert_eq!(at(90_000, 100_000), 134_217_728);
    }

    #[test]
    fn limit_covers_one_flow_s_round_trip() {
        let rate = Some(Rate::from_mbit_per_sec(100));
        let of = |rtt_ms: u64| {
            let rtt = Some(Duration::from_millis(rtt_ms));
            Limit::default().follow(Timestamp::ZERO, rate, rtt).unwrap().as_u64()
        };
        assert_eq!([20, 125, 500].map(of), [2_343_750, 2_343_750, 9_375_000]);
        let mut limit = Limit { bytes: 1e7, at: Timestamp::ZERO };
        assert_eq!(limit.follow(Timestamp::ZERO, None, None), None);
        assert_eq!(limit.follow(Timestamp::ZERO, rate, None).unwrap().as_u64(), 2_343_750);
    }
}
