//! The limit of a queue: packets, bytes, or the bytes that the present rate sends in a time.
//!
//! ```text
//! limit in time : bytes <= rate x time, or at most 10 packets
//! rate unknown  : at most 1000 packets
//! ```
//! A limit in packets is a limit in time only at one rate: 1200 packets wait 150 ms at 96 Mbit/s and 7.3 s at
//! 2 Mbit/s. If the rate falls, waiting packets stay until the next arrival. Queues that give up packets of
//! the longest flow then do so until the limit holds; other queues turn arrivals away.

use super::Backlog;
use crate::units::{ByteCount, Limit, Rate, stretched};

/// Packets that a limit in time allows at any rate: the first burst of a TCP connection (RFC 6928), 61 ms at
/// 2 Mbit/s. The floor counts packets, so that no packet is too long to be queued at all.
pub const FLOOR_PACKETS: u64 = 10;
/// Linux' default queue length of an Ethernet device.
pub(super) const PACKETS_WITHOUT_RATE: u64 = 1000;
/// As for limits in bytes: at 1 Tbit/s a second is more than memory can spare.
pub(super) const BYTES_MAX: u64 = 1_000_000_000;

/// A [`Limit`] at the present rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CurrentLimit {
    limit: Limit,
    /// Bytes that the rate sends in the time of a limit in time; `None`: the rate is not known.
    bytes: Option<ByteCount>,
}

impl CurrentLimit {
    /// While no rate is known.
    pub fn new(limit: Limit) -> Self {
        Self { limit, bytes: None }
    }

    /// The queue is served at `rate` from now on; `None`: not known.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        if let Limit::Time(time) = self.limit {
            let bytes = |rate: Rate| rate.bytes_in(time).min(ByteCount::new(BYTES_MAX));
            self.bytes = rate.map(bytes);
        }
    }

    /// From now on a limit in time is `limit` times `factor`, at the rate that is set next.
    pub fn scale(&mut self, limit: Limit, factor: f64) {
        if let Limit::Time(time) = limit {
            self.limit = Limit::Time(stretched(time, factor));
        }
    }

    /// Whether `backlog` is more.
    #[inline]
    pub fn is_exceeded(&self, backlog: Backlog) -> bool {
        match (self.limit, self.bytes) {
            (Limit::Packets(packets), _) => backlog.packets > packets,
            (Limit::Bytes(bytes), _) => backlog.bytes > bytes,
            (Limit::Time(_), Some(bytes)) => {
                backlog.bytes > bytes && backlog.packets > FLOOR_PACKETS
            }
            (Limit::Time(_), None) => backlog.packets > PACKETS_WITHOUT_RATE,
        }
    }

    /// Length of `backlog` in the unit of the limit: packets or bytes.
    pub fn length(&self, backlog: Backlog) -> u64 {
        match self.limit {
            Limit::Packets(_) => backlog.packets,
            Limit::Bytes(_) | Limit::Time(_) => backlog.bytes.as_u64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Duration;

    fn backlog(packets: u64, bytes: u64) -> Backlog {
        Backlog { packets, bytes: ByteCount::new(bytes) }
    }

    #[test]
    fn time_limit_follows_the_rate_to_ten_packets() {
        let mut limit = CurrentLimit::new(Limit::Time(Duration::from_millis(150)));
        assert!(!limit.is_exceeded(backlog(1000, 9_000_000)));
        assert!(limit.is_exceeded(backlog(1001, 60_060)));
        // 150 ms of 20 and of 2 Mbit/s, and a rate at which 150 ms are less than a packet.
        for (kbit_per_sec, bytes) in [(20_000, 375_000), (2_000, 37_500), (10, 187)] {
            limit.set_rate(Some(Rate::from_bits_per_sec(kbit_per_sec * 1000)));
            assert!(!limit.is_exceeded(backlog(11, bytes)));
            assert!(limit.is_exceeded(backlog(11, bytes + 1)));
            assert!(!limit.is_exceeded(backlog(10, 655_350)));
        }
        limit.set_rate(Some(Rate::from_bits_per_sec(u64::MAX)));
        assert!(limit.is_exceeded(backlog(1_000_000, BYTES_MAX + 1)));
    }

    #[test]
    fn other_limits_do_not_care_about_the_rate() {
        let mut limit = CurrentLimit::new(Limit::Packets(20));
        limit.set_rate(Some(Rate::ZERO));
        assert!(!limit.is_exceeded(backlog(20, 30_280)) && limit.is_exceeded(backlog(21, 1260)));
    }
}
