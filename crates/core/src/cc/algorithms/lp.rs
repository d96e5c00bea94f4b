//! TCP-LP: a background transport that takes a rise of the delay for congestion, before any loss.
//!
//! ```text
//! D          delay smoothed by 1/8 a packet           least, largest: of all delays seen
//! indication D > least + 0.15 (largest - least), at most one a round
//! on it      first: cwnd / 2, and an inference phase of 3 round trips without growth
//!            again within the phase: cwnd = 1 mss
//! else       Reno: a segment a window; a loss halves
//! ```
//! States as in [`super::window`], with or without inference.
//!
//! Departures from the paper, with reasons:
//! - The delay is the round trip, since no host here knows one-way delays at the sender.
//! - An indication counts once a round, and D starts over after it. The delay cannot follow the reduction
//!   any sooner. Otherwise every indication would lead to a window of one segment.
//! - Before the first loss there are no indications. The largest delay is unknown until slow start has
//!   filled the buffer, and the delay would stay above a threshold set during the first rise.
//! - An indication sets ssthresh, so that slow start after a timeout does not undo it.
//!
//! ns-3 (`Lp::as_ns3`) differs:
//! - The one-way delay comes from timestamps, in whole milliseconds. Delays of duplicate acknowledgements count,
//!   too, although they echo a time from before the gap.
//! - Indications begin with the first delay, as in Linux, and also occur during a repair.
//! - D and 2 D become the least and largest delay after each indication, instead of once a round.
//! - The inference phase is three times the age of the newest echo.
//! - At the end of a repair the window is ssthresh again. An indication leaves ssthresh, so slow start continues.
//!
//! Ranges: delays 1 ns to 9 years (longer ones count as that), windows as in [`super::window`].

use alloc::vec::Vec;

use super::interim::{Beta, Interim, SlowStart};
use super::rounds::Rounds;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::units::{Duration, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "lp",
    summary: "TCP-LP: halves when the delay rises, then falls to one segment if it stays high",
    sources: &["Kuzmanovic, Knightly: TCP-LP, IEEE/ACM ToN 14(4), 2006", "linux/net/ipv4/tcp_lp.c"],
    params: &[],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    // The window falls to a half or to one segment, and one round decides between the two. A delay seen a
    // round later therefore moves the mean by a part of a sawtooth.
    batch_tolerance: 0.2,
    build: &|_| Ok(WindowControl::boxed(Lp::new(false))),
};

/// Threshold between least and largest delay, in percent (paper, delta).
const THRESHOLD_PERCENT: u64 = 15;
/// Length of an inference phase in round trips (paper, itt).
const INFERENCE_ROUND_TRIPS: u32 = 3;
/// Smoothing of the delay is 1/8 (paper, gamma).
const SMOOTHING: u64 = 8;
/// Packets after which a smoothed value is as good as the newest.
const SMOOTHED_PACKETS_MAX: u64 = 64;
/// Longest delay, so that eight of it and one more fit in 64 bits.
const DELAY_MAX: u64 = u64::MAX / 64;
/// Nanoseconds in a millisecond: delays are taken in whole milliseconds.
const MILLISECOND: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(super) struct Lp {
    is_ns3: bool,
    rounds: Rounds,
    /// An indication has counted in this round.
    has_counted: bool,
    /// The buffer has been full once.
    has_lost: bool,
    /// Delays, in nanoseconds or in ms: smoothed, least, largest.
    smoothed: Option<u64>,
    least: u64,
    largest: u64,
    /// ns-3's candidate for the largest: one outlier alone does not become it.
    reserve: u64,
    indicated_at: Option<Timestamp>,
    inference_until: Option<Timestamp>,
    /// Not inferring before the newest acknowledgement was judged (ns-3).
    is_growing: bool,
    /// From a loss to its repair, and the window with which that ends (ns-3).
    is_repairing: bool,
    window_after: Option<u64>,
    reason: &'static str,
}

impl Lp {
    fn new(is_ns3: bool) -> Self {
        Self {
            is_ns3,
            rounds: Rounds::default(),
            has_counted: false,
            has_lost: false,
            smoothed: None,
            least: u64::MAX,
            largest: 0,
            reserve: 0,
            indicated_at: None,
            inference_until: None,
            is_growing: true,
            is_repairing: false,
            window_after: None,
            reason: "no delay yet",
        }
    }

    /// TCP-LP as in ns-3.37 (TcpLp).
    pub(super) fn as_ns3() -> Self {
        Self::new(true)
    }

    fn update_delays(&mut self, packets: u64, delay: u64) {
        self.least = self.least.min(delay);
        if delay > self.largest {
            if self.is_ns3 && delay > self.reserve {
                self.largest = if self.reserve == 0 { delay } else { self.reserve };
                self.reserve = delay;
            } else {
                self.largest = delay;
            }
        }
        // Eight times the smoothed value, so that a small difference is not rounded away.
        let first = delay.saturating_mul(SMOOTHING);
        let mut smoothed = self.smoothed.unwrap_or(first);
        for _ in 0..packets.clamp(1, SMOOTHED_PACKETS_MAX) {
            smoothed = smoothed - smoothed / SMOOTHING + delay;
        }
        self.smoothed = Some(smoothed);
    }

    fn is_above_threshold(&self) -> bool {
        let range = u128::from(self.largest.saturating_sub(self.least));
        let part = (range * u128::from(THRESHOLD_PERCENT) / 100) as u64;
        let smoothed = self.smoothed.unwrap_or(0) / SMOOTHING;
        smoothed > self.least.saturating_add(part)
    }

    fn is_inferring(&self, now: Timestamp) -> bool {
        self.inference_until.is_some_and(|until| now < until)
    }

    fn on_indication(&mut self, now: Timestamp, rtt: Duration, window: &mut Window) {
        if self.is_inferring(now) {
            self.reason = "delay still high: one segment";
            window.set_cwnd(window.mss());
        } else {
            self.reason = "delay has risen: half";
            window.set_cwnd(window.cwnd() / 2);
        }
        if !self.is_ns3 {
            window.set_ssthresh(window.cwnd());
        }
        self.indicated_at = Some(now);
        self.inference_until = Some(now + rtt * INFERENCE_ROUND_TRIPS);
    }

    /// ns-3's `TcpLp::PktsAcked`.
    fn observe_as_ns3(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let Some(one_way) = measurement.one_way.map(nanos) else { return };
        let delay = one_way / MILLISECOND;
        if delay > 0 {
            self.update_delays(1, delay);
        }
        let age = measurement.feedback_delay.unwrap_or_default();
        self.inference_until = self.indicated_at.map(|at| at + age * INFERENCE_ROUND_TRIPS);
        self.is_growing = !self.is_inferring(now);
        if self.is_above_threshold() {
            self.on_indication(now, age, window);
            let smoothed = self.smoothed.unwrap_or(0);
            self.least = smoothed / SMOOTHING;
            self.largest = 2 * smoothed / SMOOTHING;
            self.reserve = self.largest;
        }
        if let Some(bytes) = self.window_after.take() {
            window.set_cwnd(bytes);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(DELAY_MAX)
}

impl WindowLaw for Lp {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        if self.is_ns3 {
            return self.observe_as_ns3(now, measurement, window);
        }
        if self.rounds.on_measurement(measurement) && core::mem::take(&mut self.has_counted) {
            self.smoothed = None;
        }
        let Some(sample) = measurement.rtt.filter(|rtt| !rtt.latest.is_zero()) else {
            return;
        };
        let rtt = nanos(sample.latest);
        let packets = measurement.acked.as_u64() / window.mss();
        self.update_delays(packets, rtt);
        if self.has_lost && !self.has_counted && self.is_above_threshold() {
            self.has_counted = true;
            self.rounds.restart(measurement);
            self.on_indication(now, Duration::from_nanos(rtt), window);
        } else if !self.is_inferring(now) {
            self.reason = "growing";
        }
    }

    fn slow_start(&mut self, now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        if self.is_inferring(now) && !self.is_ns3 {
            return 0;
        }
        window.slow_start(acked)
    }

    fn avoid(&mut self, now: Timestamp, acked: u64, window: &mut Window) {
        let is_growing = if self.is_ns3 { self.is_growing } else { !self.is_inferring(now) };
        if is_growing {
            let mss = window.mss();
            window.grow(acked, |_| mss);
        }
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        (self.has_lost, self.is_repairing) = (true, true);
        window.at_loss() / 2
    }

    fn on_rto(&mut self, ssthresh: u64, _window: &Window) -> u64 {
        self.is_repairing = false;
        ssthresh
    }

    fn on_recovery_end(&mut self, _now: Timestamp, window: &mut Window) {
        if core::mem::take(&mut self.is_repairing) && self.is_ns3 {
            self.window_after = Some(window.ssthresh());
            window.set_cwnd(window.ssthresh());
        }
    }

    fn interim(&self, window: &Window) -> Interim {
        // Once it has inferred, it may hold the window in slow start, too.
        let doubles = window.in_slow_start() && self.inference_until.is_none();
        let slow_start = if doubles { SlowStart::Standard } else { SlowStart::Hold };
        Interim { slow_start, beta: Some(Beta::ONE), ..Interim::HOLD }
    }

    fn shift_rtt(&mut self, nanos: i64) {
        let shifted = |delay: u64| delay.saturating_add_signed(nanos).clamp(1, DELAY_MAX);
        self.smoothed = self.smoothed.map(|it| shifted(it / SMOOTHING).saturating_mul(SMOOTHING));
        if self.largest > 0 {
            (self.least, self.largest) = (shifted(self.least), shifted(self.largest));
        }
    }

    fn reason(&self) -> &'static str {
        self.reason
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let smoothed = self.smoothed.unwrap_or(0) / SMOOTHING;
        alloc::vec![("delay", smoothed as f64), ("largest_delay", self.largest as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};

    /// 80 segments; delays of 40 to 60 ms have been seen, the threshold is 43 ms.
    fn grown() -> RoundSender {
        let mut sender = RoundSender::new(Ok(WindowControl::boxed(Lp::new(false))));
        sender.round(60_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        while sender.cwnd() < 80 * MSS {
            sender.round(40_000);
        }
        sender
    }

    #[test]
    fn high_delay_halves_once_then_leaves_one_segment() {
        let mut sender = grown();
        let before = sender.cwnd();
        assert_eq!(sender.round(44_000), before / 2);
        assert_eq!(sender.round(44_000), MSS);
    }

    #[test]
    fn inference_phase_lasts_three_round_trips_without_growth() {
        let mut sender = grown();
        let halved = sender.round(44_000);
        assert_eq!([sender.round(40_000), sender.round(40_000), sender.round(40_000)], [halved; 3]);
        let grown = sender.round(40_000) - halved;
        assert!((MSS * 9 / 10..=MSS).contains(&grown), "{grown}");
    }

    #[test]
    fn a_delay_below_the_threshold_is_no_congestion() {
        let mut sender = grown();
        let before = sender.cwnd();
        assert!(sender.round(42_500) > before);
    }

    #[test]
    fn ns3_slow_start_continues_after_an_indication() {
        let mut sender = RoundSender::new(Ok(WindowControl::boxed(Lp::as_ns3())));
        sender.extra.one_way = Some(Duration::from_millis(20));
        sender.round(40_000);
        let before = sender.cwnd();
        let grown = before / 2 + before;
        sender.extra.one_way = Some(Duration::from_millis(60));
        assert_eq!(sender.round(80_000), grown, "halved, then grown by the acknowledged bytes");
        assert_eq!(sender.ssthresh(), None);
    }

    #[test]
    fn ns3_repair_ends_at_ssthresh_whatever_it_indicated() {
        let mut sender = RoundSender::new(Ok(WindowControl::boxed(Lp::as_ns3())));
        sender.extra.one_way = Some(Duration::from_millis(20));
        sender.round(40_000);
        assert_eq!(sender.event(CongestionEvent::Loss), 10 * MSS);
        // A duplicate echoes a time from before the gap: the delay seems to have risen.
        sender.extra.one_way = Some(Duration::from_millis(60));
        assert_eq!(sender.round(40_000), 5 * MSS);
        assert_eq!(sender.ssthresh(), Some(10 * MSS));
        assert_eq!(sender.event(CongestionEvent::RecoveryEnd), 10 * MSS);
        // One segment, then ssthresh again, and the growth that was due before the indication.
        assert_eq!(sender.round(40_000), 10 * MSS + 958);
    }
}
