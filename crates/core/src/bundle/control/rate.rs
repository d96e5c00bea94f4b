//! Turns the window of an algorithm into a stable rate for the shaper.
//!
//! ```text
//! r = F + (W - I) / tau        tau = max(Tl / 2, 4 ms)
//! ```
//! W is the algorithm's window, I the bytes outstanding, Tl the loop time (departure of a boundary to arrival
//! of its report). F is the delivery rate. With a queue at the bottleneck, the delivery rate is the capacity
//! whatever r is, so I' = r - F = (W - I) / tau. This is first order without dead time, because I includes the
//! bytes that are sent but not yet reported. A rate of W / RTT lacks this damping: at the bottleneck it
//! integrates twice behind a delay of a round trip.

use crate::bundle::tuning::Tuning;
use crate::units::{ByteCount, Duration, Rate};

/// State of the control loop, as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopState {
    /// Rate at which the receivebox sees the bundle arrive, over about one round trip.
    pub delivery_rate: Rate,
    /// Recent maximum of the delivery rate.
    pub bottleneck_rate: Rate,
    /// Least time from the departure of a boundary to the arrival of its report.
    pub loop_time: Duration,
    /// Bytes outstanding.
    pub in_flight: ByteCount,
    /// The bundle's own queue was empty for part of the time.
    pub app_limited: bool,
}

/// The time constant with which a window is enforced.
pub fn tau(tuning: &Tuning, loop_time: Duration) -> Duration {
    tuning.rate_time_min.max(loop_time / 2)
}

/// The rate that brings the bytes outstanding to `cwnd`.
///
/// While the bundle is app-limited, the rate never binds below the recent maximum of the delivery rate. The
/// delivery rate then shows how much the hosts sent, and not the capacity of the path.
pub fn window_to_rate(tuning: &Tuning, cwnd: ByteCount, state: &LoopState) -> Rate {
    let bottleneck = state.bottleneck_rate.as_bytes_per_sec_f64();
    let delivery = state.delivery_rate.as_bytes_per_sec_f64();
    let (forward, floor) = if state.app_limited {
        (delivery.max(bottleneck), bottleneck)
    } else {
        (delivery, tuning.rate_floor * bottleneck)
    };
    let missing_bytes = cwnd.as_f64() - state.in_flight.as_f64();
    let rate = forward + missing_bytes / tau(tuning, state.loop_time).as_secs_f64();
    Rate::from_bytes_per_sec_f64(rate.max(floor).min(tuning.rate_ceiling * bottleneck))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: LoopState = LoopState {
        delivery_rate: Rate::from_mbit_per_sec(80),
        bottleneck_rate: Rate::from_mbit_per_sec(96),
        loop_time: Duration::from_millis(50),
        in_flight: ByteCount::new(500_000),
        app_limited: false,
    };

    #[test]
    fn full_window_is_sent_at_delivery_rate() {
        assert_eq!(window_to_rate(&Tuning::DEFAULT, STATE.in_flight, &STATE), STATE.delivery_rate);
    }

    #[test]
    fn missing_byte_is_recovered_in_half_a_loop() {
        let rate = window_to_rate(&Tuning::DEFAULT, ByteCount::new(525_000), &STATE);
        assert_eq!(rate, Rate::from_mbit_per_sec(80 + 8));
        assert_eq!(tau(&Tuning::DEFAULT, Duration::from_millis(2)), Tuning::DEFAULT.rate_time_min);
    }

    #[test]
    fn rate_stays_within_10_to_125_percent() {
        assert_eq!(
            window_to_rate(&Tuning::DEFAULT, ByteCount::ZERO, &STATE),
            Rate::from_bits_per_sec(9_600_000)
        );
        let wide = ByteCount::new(u64::MAX);
        assert_eq!(window_to_rate(&Tuning::DEFAULT, wide, &STATE), Rate::from_mbit_per_sec(120));
    }

    #[test]
    fn app_limited_bundle_keeps_at_least_recent_maximum() {
        let state = LoopState { app_limited: true, delivery_rate: Rate::ZERO, ..STATE };
        assert_eq!(
            window_to_rate(&Tuning::DEFAULT, ByteCount::ZERO, &state),
            Rate::from_mbit_per_sec(96)
        );
    }
}
