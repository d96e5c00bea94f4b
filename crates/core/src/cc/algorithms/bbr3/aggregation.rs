//! Bytes acknowledged at once beyond those expected at the rate (draft, section 5.5.9).

use crate::cc::rounds::RoundMax;
use crate::units::{ByteCount, Rate, Timestamp};

/// Rounds over which the excess is a maximum, once the pipe has been full (BBR.ExtraAckedFilterLen).
const ROUNDS: u64 = 10;

/// The acknowledgements of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub bytes: ByteCount,
    /// Bounds the excess.
    pub cwnd: ByteCount,
    pub round: u64,
    /// In startup only the current round counts, since the rate that explains the acknowledgements
    /// still grows.
    pub is_startup: bool,
}

/// The largest excess of the last rounds (BBR.extra_acked).
#[derive(Clone, Debug)]
pub(super) struct Aggregation {
    since: Timestamp,
    delivered: ByteCount,
    excess: RoundMax<ByteCount>,
    round: u64,
}

impl Aggregation {
    /// Counts from `now` on.
    pub fn new(now: Timestamp) -> Self {
        Self { since: now, delivered: ByteCount::ZERO, excess: RoundMax::new(ROUNDS), round: 0 }
    }

    /// Sending resumes: during the pause no acknowledgements were awaited.
    pub fn resume(&mut self, now: Timestamp) {
        self.since = now;
    }

    /// Takes the acknowledged bytes; `rate` is the rate of the path.
    pub fn on_ack(&mut self, now: Timestamp, rate: Rate, acked: Acked) {
        let mut expected = rate.bytes_in(now.saturating_since(self.since));
        if self.delivered <= expected {
            (self.since, self.delivered, expected) = (now, ByteCount::ZERO, ByteCount::ZERO);
        }
        self.delivered += acked.bytes;
        if acked.is_startup && acked.round != self.round {
            self.excess.clear();
        }
        self.round = acked.round;
        let excess = self.delivered.saturating_sub(expected).min(acked.cwnd);
        self.excess.push(acked.round, excess);
    }

    /// Bytes that the window needs in addition to the bytes that fill the path.
    pub fn excess(&self) -> ByteCount {
        self.excess.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Duration;

    const RATE: Rate = Rate::from_mbit_per_sec(8);
    const KB: ByteCount = ByteCount::new(1000);

    fn acked(bytes: ByteCount, round: u64) -> Acked {
        Acked { bytes, cwnd: KB * 100, round, is_startup: false }
    }

    /// Acknowledgements of 1 kB each come in groups, as fast on average as the path carries 1 kB a
    /// millisecond.
    fn grouped(group: u64) -> ByteCount {
        let mut aggregation = Aggregation::new(Timestamp::ZERO);
        for number in 0..200 {
            let now = Timestamp::ZERO + Duration::from_millis(number / group * group);
            aggregation.on_ack(now, RATE, acked(KB, number / 40));
        }
        aggregation.excess()
    }

    #[test]
    fn what_comes_at_once_is_the_excess() {
        assert_eq!(grouped(1), KB);
        assert_eq!(grouped(20), KB * 20);
    }

    #[test]
    fn excess_lasts_ten_rounds_or_one_in_startup() {
        for (is_startup, kept) in [(false, 9), (true, 0)] {
            let mut aggregation = Aggregation::new(Timestamp::ZERO);
            let mut now = Timestamp::ZERO + Duration::from_millis(1);
            let many = Acked { is_startup, ..acked(KB * 30, 1) };
            aggregation.on_ack(now, RATE, many);
            for round in 2..20 {
                now += Duration::from_millis(40);
                aggregation.on_ack(now, RATE, Acked { is_startup, ..acked(KB, round) });
                let expected = if round - 1 <= kept { KB * 30 } else { KB };
                assert_eq!(aggregation.excess(), expected, "round {round}, startup {is_startup}");
            }
        }
    }

    #[test]
    fn burst_is_bounded_by_the_window() {
        let mut aggregation = Aggregation::new(Timestamp::ZERO);
        let all = Acked { cwnd: KB * 5, ..acked(KB * 30, 1) };
        aggregation.on_ack(Timestamp::ZERO, RATE, all);
        assert_eq!(aggregation.excess(), KB * 5);
    }
}
