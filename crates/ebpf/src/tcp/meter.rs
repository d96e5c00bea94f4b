//! Measurements from the records of a connection.

use forebay_core::cc::{Measurement, RttSample};
use forebay_core::units::{ByteCount, Duration};

use super::report::{Head, Report};

/// Makes measurements from a connection's records. Their counters run on, so a measurement also
/// covers lost records in front of it.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    last: Head,
    delivered: u64,
}

impl Meter {
    /// Begins with the first record that is known of the connection.
    pub fn new(first: &Head) -> Self {
        Self { last: *first, delivered: u64::from(first.delivered) * u64::from(first.mss) }
    }

    /// Measures the path since the record before: segments count as of full size. `app_limited` is
    /// the kernel's (`rate_sample.is_app_limited`), and so is `cwnd_limited` (`tcp_is_cwnd_limited`):
    /// an acknowledgement of the interval found the window filled.
    pub fn measure(&mut self, report: &Report) -> Measurement {
        let (head, last, mss) = (&report.head, &self.last, u64::from(report.head.mss));
        let bytes = |segments: u32| ByteCount::new(u64::from(segments) * mss);
        let acked = bytes(head.delivered.wrapping_sub(last.delivered));
        self.delivered = self.delivered.saturating_add(acked.as_u64());
        let sampled = bytes(report.rate_delivered);
        let rate = |us: u32| sampled.per(Duration::from_micros(u64::from(us)));
        let has_sample = report.rate_delivered > 0;
        let rtt = report.rtt_min_us.map(|least| RttSample {
            latest: Duration::from_micros(u64::from(report.rtt_us.unwrap_or(least))),
            min: Duration::from_micros(u64::from(least)),
        });
        let since_sent = if has_sample {
            bytes(head.delivered.wrapping_sub(report.prior_delivered)).as_u64()
        } else {
            // Without a sample nothing shows the end of a round.
            self.delivered
        };
        let measurement = Measurement {
            interval: head.at.saturating_since(last.at),
            acked,
            lost: Some(bytes(head.lost.wrapping_sub(last.lost))),
            ecn_ce: Some(bytes(head.delivered_ce.wrapping_sub(last.delivered_ce))),
            rtt,
            send_rate: rate(report.send_interval_us).filter(|_| has_sample),
            delivery_rate: rate(report.rate_interval_us).filter(|_| has_sample),
            in_flight: Some(bytes(head.in_flight)),
            delivered: ByteCount::new(self.delivered),
            prior_delivered: ByteCount::new(self.delivered.saturating_sub(since_sent)),
            app_limited: report.app_limited,
            cwnd_limited: Some(report.cwnd_limited),
            ..Measurement::default()
        };
        self.last = *head;
        measurement
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Events;
    use super::super::report::tests::{blank, parsed};
    use super::*;
    use crate::skel::tcp_datapath::types;

    fn report(at_us: u64, delivered: u32, lost: u32) -> types::report {
        let mut record = blank(Events::ROUND);
        let head = &mut record.head;
        (head.at_us, head.delivered, head.lost) = (at_us, delivered, lost);
        record
    }

    #[test]
    fn measurements_bridge_lost_records_and_counter_wrap() {
        let first = parsed(&report(1_000, u32::MAX - 4, 2));
        let mut meter = Meter::new(&first.head);
        let later = parsed(&report(41_000, 5, 5));
        let measured = meter.measure(&later);
        assert_eq!(measured.interval, Duration::from_millis(40));
        assert_eq!(measured.acked, ByteCount::new(10 * 1448));
        assert_eq!(measured.lost, Some(ByteCount::new(3 * 1448)));
        assert_eq!((measured.rtt, measured.delivery_rate), (None, None));
        assert_eq!(measured.prior_delivered, ByteCount::ZERO);
        let sampled = parsed(&types::report {
            rtt_min_us: 40_000,
            rate_delivered: 20,
            rate_interval_us: 40_000,
            prior_delivered: 5,
            flags: 1 << 1,
            ..report(81_000, 25, 5)
        });
        assert_eq!(measured.cwnd_limited, Some(false));
        let next = meter.measure(&sampled);
        assert_eq!((next.app_limited, next.cwnd_limited), (false, Some(true)));
        assert_eq!(next.delivery_rate.unwrap().as_bits_per_sec(), 20 * 1448 * 8 * 25);
        assert_eq!(next.send_rate, None);
        assert_eq!(next.prior_delivered, measured.delivered);
        assert_eq!(next.rtt.unwrap().latest, Duration::from_millis(40));
    }
}
