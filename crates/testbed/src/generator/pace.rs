//! Connections that are read at a rate: unread bytes fill the receive buffer and close the window.

use forebay_core::units::{ByteCount, Duration, Rate};

/// Bytes of one read, as time at the rate: short compared with a round trip, long enough for few wake-ups.
const PORTION: Duration = Duration::from_millis(5);
/// Least bytes of one read: one full segment.
const PORTION_MIN_BYTES: u64 = 1448;

/// Times at which each connection of a workload may be read again.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    /// By connection, as time of the clock (ns): until then, the bytes read so far use up the rate.
    used_ns: Vec<u64>,
    /// By connection: it has been read and waits.
    waits: Vec<bool>,
}

impl Pace {
    /// Starts with connections that may be read immediately.
    pub fn new(rate: Rate, connections: u32) -> Self {
        let connections = connections as usize;
        Self { rate, used_ns: vec![0; connections], waits: vec![false; connections] }
    }

    /// Most bytes of one read.
    pub fn portion(&self) -> usize {
        self.rate.bytes_in(PORTION).as_u64().max(PORTION_MIN_BYTES) as usize
    }

    /// Notes that `bytes` of `connection` were read at `now`; the connection now waits.
    pub fn on_read(&mut self, connection: u32, now: u64, bytes: u64) {
        let time = ByteCount::new(bytes).time_at(self.rate).unwrap_or(Duration::MAX);
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let used = &mut self.used_ns[connection as usize];
        *used = (*used).max(now).saturating_add(time_ns);
        self.waits[connection as usize] = true;
    }

    /// Time at which the first waiting connection may be read.
    pub fn next_timer(&self) -> Option<u64> {
        let waiting = self.used_ns.iter().zip(&self.waits).filter(|(_, waits)| **waits);
        waiting.map(|(used, _)| *used).min()
    }

    /// Connections that may be read again at `now`; they stop waiting.
    pub fn release(&mut self, now: u64) -> Vec<u32> {
        let mut released = Vec::new();
        for (connection, (used, waits)) in (0..).zip(self.used_ns.iter().zip(&mut self.waits)) {
            if *waits && *used <= now {
                *waits = false;
                released.push(connection);
            }
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    #[test]
    fn pause_equals_read_bytes_at_the_rate() {
        let mut pace = Pace::new(Rate::from_mbit_per_sec(8), 2);
        assert_eq!((pace.portion(), pace.next_timer()), (5_000, None));
        pace.on_read(1, 100 * MS, 5_000);
        pace.on_read(0, 101 * MS, 1_000);
        assert_eq!(pace.next_timer(), Some(102 * MS));
        assert_eq!(pace.release(102 * MS), [0]);
        assert_eq!((pace.next_timer(), pace.release(104 * MS)), (Some(105 * MS), vec![]));
        assert_eq!(pace.release(110 * MS), [1]);
        // A late read does not earn extra bytes.
        pace.on_read(1, 110 * MS, 5_000);
        assert_eq!(pace.next_timer(), Some(115 * MS));
    }

    #[test]
    fn a_portion_is_at_least_a_segment() {
        assert_eq!(Pace::new(Rate::from_bits_per_sec(1_000), 1).portion(), 1448);
    }
}
