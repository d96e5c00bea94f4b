//! Time that a byte takes from the writing application to the reading application.
//!
//! ```text
//! written   where the send buffer has room: byte k once SND.UNA is beyond k - buffer, the first ones
//!           when the connection opens
//! delay     of the byte read last, held until more is read; its mean is one over time
//! ```
//! This is for applications that always have more to send. It is mean_one_way_delay_l7 of ccperf; most of it
//! is the wait in the send buffer.

use std::collections::VecDeque;

use forebay_core::units::Timestamp;

use crate::event::nanos_between;
use crate::metrics::Integral;

/// Write times of the data not read yet. All numbers count segments.
#[derive(Debug)]
pub(crate) struct WriteLog {
    buffered: u32,
    opened: Option<Timestamp>,
    /// Values of SND.UNA and the times since when they hold; entries that reading no longer needs are
    /// dropped.
    acked: VecDeque<(u32, Timestamp)>,
    delay_ns: Integral,
}

impl WriteLog {
    /// A log for a connection with a send buffer of `buffered` segments.
    pub fn new(buffered: u32) -> Self {
        Self { buffered, opened: None, acked: VecDeque::new(), delay_ns: Integral::NONE }
    }

    /// The sender's SND.UNA is now `una`; the connection is open.
    pub fn on_ack(&mut self, now: Timestamp, una: u32) {
        self.opened.get_or_insert(now);
        if self.acked.back().is_none_or(|(last, _)| *last < una) {
            self.acked.push_back((una, now));
        }
    }

    /// The receiver has read all segments before `next`.
    pub fn on_read(&mut self, now: Timestamp, next: u32) {
        let needed = next.saturating_sub(self.buffered);
        while self.acked.front().is_some_and(|(una, _)| *una < needed) {
            self.acked.pop_front();
        }
        let written = match self.acked.front() {
            Some((_, at)) if needed > 0 => Some(*at),
            _ => self.opened,
        };
        if let Some(at) = written {
            self.delay_ns.set(now, nanos_between(at, now));
        }
    }

    /// Mean delay up to `now` in milliseconds.
    pub fn mean_ms(&self, now: Timestamp) -> f64 {
        self.delay_ns.mean(now) * 1e-6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn segment_wait_starts_when_buffer_has_room() {
        let mut log = WriteLog::new(10);
        log.on_ack(at(0), 0);
        // The first ten were written at once, the eleventh when the first was acknowledged.
        for (read_ms, next, delay_ms) in [(30, 1, 30.0), (40, 10, 40.0)] {
            log.on_read(at(read_ms), next);
            assert_eq!(log.delay_ns.at(), delay_ms * 1e6);
        }
        log.on_ack(at(60), 1);
        log.on_ack(at(70), 5);
        log.on_read(at(100), 11);
        assert_eq!(log.delay_ns.at(), 40e6);
        log.on_read(at(110), 12);
        assert_eq!(log.delay_ns.at(), 40e6, "12 needed 2 acknowledged: 70 ms");
        // 10 ms of 30, 60 ms of 40, 100 ms of 40.
        assert_eq!(log.mean_ms(at(200)), (10.0 * 30.0 + 160.0 * 40.0) / 170.0);
    }
}
