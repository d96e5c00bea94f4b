//! H-TCP (Leith and Shorten, PFLDnet 2004; draft-leith-tcp-htcp-06): growth by the time since the
//! last loss, reduction by the share of the round trip that is queue.
//!
//! ```text
//! D      time since the last loss
//! a(D)   1 for D <= 1 s, else 1 + 10 (D - 1 s) + (D - 1 s)^2 / 4         segments, D in s
//! growth 2 (1 - b) a(D) segments a window
//! b      min_rtt / max_rtt, within 0.5 to 0.8, if the greatest rates before the last two losses
//!        differ by at most a fifth; else 0.5
//! loss   ssthresh = b cwnd
//! ```
//! States as in [`super::window`]. The rate of a round trip counts the bytes acknowledged over at
//! least one min_rtt, smoothed by 1/4. Without round trips known b is 0.5.
//!
//! Departures, with reasons:
//! - After a loss max_rtt fades by 5 % of its excess over min_rtt: a path that changed is
//!   forgotten.
//! - No scaling of a(D) by the round trip (an option of the draft): it makes a path below 50 ms
//!   Reno.
//!
//! Ranges: D up to 10^6 ms, a(D) in 1/1000, b in 1/1024. All in integers.

use alloc::vec::Vec;

use super::window::{MIN_WINDOW_MSS, MinRtt, Window, WindowControl, WindowLaw};
use super::{Algorithm, Measurement};
use crate::units::{ByteCount, Duration, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "htcp",
    summary: "growth by the time since the last loss, reduction by the share of queue",
    sources: &["Leith, Shorten: H-TCP, PFLDnet 2004", "draft-leith-tcp-htcp-06"],
    params: &[],
    needs: &[],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(HTcp::new())),
};

/// Time after a loss in which H-TCP is Reno (draft, Delta_L).
const RENO_FOR: Duration = Duration::from_secs(1);
/// Beyond this a(D) stays: 2.6 * 10^5 segments.
const MS_MAX: u64 = 1_000_000;
/// One, of b.
const ONE: u64 = 1024;
/// Smallest b in units of 1/[`ONE`]: a loss leaves half of the window (H-TCP paper).
pub(super) const BACKOFF_MIN: u64 = ONE / 2;
/// Largest b in units of 1/[`ONE`]: a loss leaves 0.8 of the window (H-TCP paper).
const BACKOFF_MAX: u64 = ONE * 4 / 5;

#[derive(Clone)]
pub(super) struct HTcp {
    pub(super) lost_at: Timestamp,
    /// b in 1/1024.
    pub(super) backoff: u64,
    pub(super) min_rtt: MinRtt,
    pub(super) max_rtt: Duration,
    pub(super) rates: Rates,
}

/// Whether losses are being repaired.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Repair {
    #[default]
    None,
    Lasts,
    /// The next measurement is of the acknowledgement that ends it.
    Ends,
}

/// Rates of delivery in bit/s.
#[derive(Clone, Default)]
pub(super) struct Rates {
    repair: Repair,
    began_at: Timestamp,
    acked: ByteCount,
    /// Outside of recoveries.
    pub(super) acked_since_loss: ByteCount,
    smoothed: u64,
    greatest: u64,
    /// The rate compared at the loss before.
    pub(super) before: u64,
}

impl Rates {
    fn observe(&mut self, now: Timestamp, acked: ByteCount, min_rtt: Option<Duration>) {
        self.acked += acked;
        match self.repair {
            Repair::None => self.acked_since_loss += acked,
            Repair::Lasts => {}
            Repair::Ends => self.repair = Repair::None,
        }
        let elapsed = now.saturating_since(self.began_at);
        if min_rtt.is_none_or(|min_rtt| elapsed < min_rtt) {
            return;
        }
        let rate = self.acked.per(elapsed).map_or(0, |rate| rate.as_bits_per_sec());
        // The first round trip is not smoothed: there is no earlier one.
        self.smoothed = match self.smoothed {
            0 => rate,
            smoothed => smoothed - smoothed / 4 + rate / 4,
        };
        self.greatest = self.greatest.max(self.smoothed);
        self.acked = ByteCount::ZERO;
        self.began_at = now;
    }

    /// The greatest rates before this loss and the last: within a fifth?
    fn is_steady(&self) -> bool {
        self.before > 0 && self.greatest.abs_diff(self.before) <= self.before / 5
    }

    pub(super) fn on_loss(&mut self, now: Timestamp, compared: u64) {
        *self = Self { repair: Repair::Lasts, began_at: now, before: compared, ..Self::default() };
    }
}

impl HTcp {
    pub(super) fn new() -> Self {
        Self {
            lost_at: Timestamp::ZERO,
            backoff: BACKOFF_MIN,
            min_rtt: MinRtt::default(),
            max_rtt: Duration::ZERO,
            rates: Rates::default(),
        }
    }

    /// 2 (1 - b) a(D) in 1/1000 segments, at most 5.3 * 10^8.
    pub(super) fn growth(&self, now: Timestamp) -> u64 {
        let beyond = now.saturating_since(self.lost_at).saturating_sub(RENO_FOR);
        let ms = u64::try_from(beyond.as_millis()).unwrap_or(MS_MAX).min(MS_MAX);
        2 * (ONE - self.backoff) * (1000 + 10 * ms + ms * ms / 4000) / ONE
    }

    /// min_rtt / max_rtt in 1/1024, if there are any.
    pub(super) fn rtt_ratio(&self) -> Option<u64> {
        let min_rtt = self.min_rtt.get().filter(|least| *least <= self.max_rtt)?;
        let ratio = min_rtt.as_nanos() * u128::from(ONE) / self.max_rtt.as_nanos();
        u64::try_from(ratio).ok()
    }

    fn update_backoff(&mut self, now: Timestamp) {
        let ratio = self.rtt_ratio().filter(|_| self.rates.is_steady());
        self.backoff = ratio.map_or(BACKOFF_MIN, |ratio| ratio.clamp(BACKOFF_MIN, BACKOFF_MAX));
        if let Some(min_rtt) = self.min_rtt.get() {
            let queue = self.max_rtt.saturating_sub(min_rtt);
            self.max_rtt = min_rtt + queue - queue / 20;
        }
        self.rates.on_loss(now, self.rates.greatest);
    }

    /// The window after the loss of `now`.
    pub(super) fn reduced(&mut self, now: Timestamp, window: &Window) -> u64 {
        self.lost_at = now;
        window.at_loss() * self.backoff / ONE
    }
}

impl WindowLaw for HTcp {
    fn start(&mut self, now: Timestamp, _window: &Window) {
        *self = Self::new();
        self.lost_at = now;
        self.rates.began_at = now;
    }

    fn observe(&mut self, now: Timestamp, measurement: &Measurement, _window: &mut Window) {
        self.min_rtt.observe(measurement);
        if let Some(rtt) = measurement.rtt {
            self.max_rtt = self.max_rtt.max(rtt.latest);
        }
        self.rates.observe(now, measurement.acked, self.min_rtt.get());
    }

    fn avoid(&mut self, now: Timestamp, acked: u64, window: &mut Window) {
        let (mss, growth) = (window.mss(), self.growth(now));
        window.grow(acked, |_| mss * growth / 1000);
    }

    fn on_loss(&mut self, now: Timestamp, window: &Window) -> u64 {
        self.update_backoff(now);
        self.reduced(now, window)
    }

    fn on_mark(&mut self) {
        self.rates.repair = Repair::None;
    }

    fn on_recovery_end(&mut self, _now: Timestamp, _window: &mut Window) {
        self.rates.repair = Repair::Ends;
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.min_rtt.shift(nanos);
    }

    fn reason(&self) -> &'static str {
        "growth depends on the time since the last loss"
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("backoff", self.backoff as f64 / ONE as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::window::tests::{Fed, MSS};
    use crate::cc::{CongestionEvent, RttSample};

    #[test]
    fn growth_follows_the_time_since_the_last_loss() {
        let law = HTcp::new();
        let at = |ms: u64| law.growth(Timestamp::from_nanos(ms * 1_000_000)) as f64 / 1000.0;
        assert_eq!(at(1000), 1.0);
        assert_eq!(at(2000), 1.0 + 10.0 + 0.25);
        assert_eq!(at(5000), 1.0 + 40.0 + 4.0);
        assert_eq!(at(u64::MAX / 1_000_000), law.growth(Timestamp::MAX) as f64 / 1000.0);
    }

    /// A path with round trips of 50 to `most_ms`, at one rate, with a loss every 500 ms.
    fn backoff_after_losses(most_ms: u64) -> f64 {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.gap = Duration::from_millis(1);
        for _ in 0..10 {
            for ms in 0..500 {
                let rtt = Duration::from_millis(50 + (most_ms - 50) * ms / 499);
                fed.rtt = Some(RttSample { latest: rtt, min: rtt });
                fed.measure(MSS);
            }
            fed.lose();
        }
        fed.number("backoff")
    }

    #[test]
    fn steady_rate_reduces_by_queue_share_within_bounds() {
        let backoff = backoff_after_losses(75);
        assert!((0.65..0.70).contains(&backoff), "{backoff}"); // 50 / 75, max_rtt fading a little
        assert!((backoff_after_losses(51) - 0.8).abs() < 0.001);
        assert_eq!(backoff_after_losses(200), 0.5);
    }

    #[test]
    fn ns3_excludes_repair_acknowledgements_from_its_rate() {
        // A segment a millisecond throughout, the first third of an epoch within a repair or not.
        let backoff = |repaired| {
            let mut fed = Fed::as_ns3("htcp", &[]);
            fed.gap = Duration::from_millis(1);
            fed.event(CongestionEvent::Loss);
            fed.ack(repaired);
            fed.event(CongestionEvent::RecoveryEnd);
            fed.ack(150 - repaired);
            fed.lose();
            for rtt_ms in [40, 50] {
                let rtt = Duration::from_millis(rtt_ms);
                fed.rtt = Some(RttSample { latest: rtt, min: rtt });
                fed.ack(75);
            }
            fed.lose();
            fed.number("backoff")
        };
        assert_eq!(backoff(0), 0.5, "the rate has not risen");
        assert!((backoff(50) - 0.8).abs() < 0.001, "{}", backoff(50));
    }

    #[test]
    fn without_round_trips_a_loss_halves() {
        let mut fed = Fed::new(&ALGORITHM, &[]);
        fed.gap = Duration::from_millis(1);
        fed.ack(30);
        fed.lose();
        assert_eq!(fed.cwnd(), 20 * MSS);
        fed.ack(100);
        fed.lose();
        assert_eq!(fed.number("backoff"), 0.5);
    }
}
