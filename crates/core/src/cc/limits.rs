//! Limits that a host derives where an algorithm sets only a window, or only a rate.
//!
//! ```text
//! rate     gain x cwnd / RTT     gain 2 while cwnd < ssthresh / 2, 1.2 from there on
//! cwnd     2 x rate x RTT
//! ```
//! Sources: `tcp_update_pacing_rate` (net/ipv4/tcp_input.c) with the defaults of
//! `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`; draft-cardwell-iccrg-bbr-congestion-control-00,
//! section 4.2.3.2, for the room that delayed and aggregated acknowledgements need.

use super::SendLimits;
use crate::units::{ByteCount, Duration, Rate};

/// Pacing over cwnd / RTT in percent: room to double in a round trip.
const SLOW_START_PERCENT: u64 = 200;
/// Pacing once the window no longer doubles, in percent: a window that grows must not wait for the pace.
const AVOIDANCE_PERCENT: u64 = 120;
/// Windows that a rate alone leaves outstanding.
const WINDOWS_OF_RATE: u64 = 2;

impl SendLimits {
    /// The window: `cwnd`, or two round trips of `pacing_rate`. `None` where neither is set, or only a
    /// rate and no round trip is known: the host's buffers bound it. `rtt` is the smoothed one.
    pub fn window(&self, rtt: Option<Duration>) -> Option<ByteCount> {
        let derived = || Some(self.pacing_rate?.bytes_in(rtt?) * WINDOWS_OF_RATE);
        self.cwnd.or_else(derived)
    }

    /// The rate of packets: `pacing_rate`, or derived from `cwnd`. `None` where neither is set, or only
    /// a window and no round trip is known: nothing is paced. `rtt` is the smoothed one.
    pub fn rate(&self, rtt: Option<Duration>) -> Option<Rate> {
        self.pacing_rate.or_else(|| {
            let cwnd = self.cwnd?;
            let doubles =
                self.ssthresh.is_none_or(|ssthresh| cwnd.as_u64() < ssthresh.as_u64() / 2);
            let percent = if doubles { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
            let bits = u128::from(cwnd.per(rtt?)?.as_bits_per_sec()) * u128::from(percent) / 100;
            Some(Rate::from_bits_per_sec(u64::try_from(bits).unwrap_or(u64::MAX)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Option<Duration> = Some(Duration::from_millis(50));

    fn limits(cwnd: Option<u64>, ssthresh: Option<u64>, mbit: Option<u64>) -> SendLimits {
        SendLimits {
            cwnd: cwnd.map(ByteCount::new),
            ssthresh: ssthresh.map(ByteCount::new),
            pacing_rate: mbit.map(Rate::from_mbit_per_sec),
            ..SendLimits::default()
        }
    }

    #[test]
    fn what_is_set_stays() {
        let both = limits(Some(600_000), None, Some(7));
        assert_eq!(both.window(RTT), Some(ByteCount::new(600_000)));
        assert_eq!(both.rate(RTT), Some(Rate::from_mbit_per_sec(7)));
        assert_eq!(both.rate(None), Some(Rate::from_mbit_per_sec(7)));
    }

    #[test]
    fn window_pacing_is_twofold_then_a_fifth_above() {
        for (ssthresh, kbit) in [
            (None, 192_000),
            (Some(1_300_000), 192_000),
            (Some(1_200_000), 115_200),
            (Some(300_000), 115_200),
        ] {
            let rate = limits(Some(600_000), ssthresh, None).rate(RTT).unwrap();
            assert_eq!(rate.as_bits_per_sec(), kbit * 1000, "{ssthresh:?}");
        }
    }

    #[test]
    fn a_rate_leaves_two_round_trips_outstanding() {
        assert_eq!(limits(None, None, Some(96)).window(RTT), Some(ByteCount::new(1_200_000)));
    }

    #[test]
    fn what_cannot_be_known_is_not_invented() {
        let none = SendLimits::default();
        assert_eq!((none.window(RTT), none.rate(RTT)), (None, None));
        assert_eq!(limits(None, None, Some(96)).window(None), None);
        assert_eq!(limits(Some(600_000), None, None).rate(None), None);
        assert_eq!(limits(Some(600_000), None, None).rate(Some(Duration::ZERO)), None);
    }

    #[test]
    fn extremes_saturate() {
        let largest = limits(Some(u64::MAX), None, None);
        assert_eq!(largest.rate(Some(Duration::from_nanos(1))), Some(Rate::MAX));
        let fastest = SendLimits { pacing_rate: Some(Rate::MAX), ..SendLimits::default() };
        let long = Duration::from_secs(1 << 30);
        assert_eq!(fastest.window(Some(long)), Some(ByteCount::new(u64::MAX)));
    }
}
