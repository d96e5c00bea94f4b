//! Recent activity of a bundle: bytes that left and arrived, and how long bytes waited in its own queue.

use std::time::Duration;

use forebay_core::units::{ByteCount, Timestamp};

use crate::daemon::status::LastSecond;

/// Averaging time: longer than the spacing of a slow bundle's reports.
const SPAN: Duration = Duration::from_secs(1);

/// Bytes that have left and arrived since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub sent: ByteCount,
    pub delivered: ByteCount,
}

/// Averages over successive seconds. By Little's law, the mean wait is the integral of the queue over time,
/// in byte seconds, divided by the bytes that left. So no packet has to be stamped, in any datapath.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    began: Option<(Timestamp, Totals)>,
    updated_at: Timestamp,
    queued_byte_s: f64,
    last: LastSecond,
}

impl Meter {
    /// Records the queue at `now`, and the bytes that have left and arrived by then.
    pub fn update(&mut self, now: Timestamp, queued: ByteCount, totals: Totals) {
        let Some((began, before)) = self.began else {
            *self = Self { began: Some((now, totals)), updated_at: now, ..Self::default() };
            return;
        };
        let since_update = now.saturating_since(self.updated_at);
        self.queued_byte_s += queued.as_f64() * since_update.as_secs_f64();
        self.updated_at = now;
        let span = now.saturating_since(began);
        if span < SPAN {
            return;
        }
        let sent = totals.sent.saturating_sub(before.sent).as_f64();
        let delivered = totals.delivered.saturating_sub(before.delivered).as_f64();
        let bps = |bytes: f64| (8.0 * bytes / span.as_secs_f64()) as u64;
        self.last = LastSecond {
            sent_bps: bps(sent),
            delivered_bps: bps(delivered),
            queue_delay_ns: (sent > 0.0).then(|| (1e9 * self.queued_byte_s / sent) as u64),
        };
        self.began = Some((now, totals));
        self.queued_byte_s = 0.0;
    }

    /// The averages of the last whole second.
    pub fn last(&self) -> LastSecond {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_delay_cover_the_last_whole_second() {
        let mut meter = Meter::default();
        let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
        let totals = |sent, delivered| Totals {
            sent: ByteCount::new(sent),
            delivered: ByteCount::new(delivered),
        };
        // 1 MB/s leaves, nine tenths of it arrive, and 20 kB wait all the time.
        for ms in (0..=1500).step_by(5) {
            meter.update(at(ms), ByteCount::new(20_000), totals(1000 * ms, 900 * ms));
        }
        let last = meter.last();
        assert_eq!((last.sent_bps, last.delivered_bps), (8_000_000, 7_200_000));
        let delay_ns = last.queue_delay_ns.unwrap();
        assert!((19_999_000..=20_001_000).contains(&delay_ns), "{delay_ns}");
        // Without departures there is no delay to report.
        for ms in (1500..=3600).step_by(100) {
            meter.update(at(ms), ByteCount::ZERO, totals(1_500_000, 1_350_000));
        }
        assert_eq!(meter.last(), LastSecond::default());
    }
}
