//! LEDBAT: a background transport that holds the queueing delay at a target and yields above it.
//!
//! ```text
//! base      least delay of the last ten minutes, kept by the minute
//! current   least delay of the last four measurements, as far as they are of the last round trip
//! off       (target - (current - base)) / target                    at most 1, negative above it
//! cwnd     += off x acked x mss / cwnd        at least 2 mss, at most in flight + acked + 1 mss
//! loss      cwnd / 2, at least 2 mss
//! ```
//! States as in [`super::window`]. There is no slow start: the RFC's algorithm is the same from the
//! first window on.
//!
//! Departures from RFC 6817, with reasons:
//! - The delay is the round trip, since no host here knows one-way delays at the sender: a queue on
//!   the way back makes it yield as well.
//! - Measurements older than a round trip leave the filter of the current delay, except the newest. If
//!   each covers a round trip, four measurements would otherwise cover four round trips.
//!
//! Ranges: delays 1 ns to 584 years, target 1 to 100 ms, windows as in [`super::window`].

pub(super) mod ns3;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::interim::{Beta, Interim};
use super::rounds::least;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{Duration, Timestamp};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "ledbat",
    summary: "LEDBAT: yields to a queueing delay above its target",
    sources: &["RFC 6817"],
    params: &[&TARGET],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|spec| Ok(WindowControl::boxed(Ledbat::read(spec)?)),
};

/// Queueing delay to hold; RFC 6817 allows at most 100 ms. A lower one yields to other traffic
/// earlier.
const TARGET: Param<Duration> = Param::new("target", "queueing delay to hold")
    .or(Duration::from_millis(100))
    .within(Duration::from_millis(1)..=Duration::from_millis(100));

/// Number of one-minute minima in the base delay (RFC 6817, BASE_HISTORY).
const BASE_MINUTES: usize = 10;
/// Time span of one minimum of the base delay.
const MINUTE: Duration = Duration::from_secs(60);
/// Measurements of the current delay (RFC 6817, CURRENT_FILTER).
const CURRENT_SAMPLES: usize = 4;
/// Least window in segments (RFC 6817, MIN_CWND).
const MIN_SEGMENTS: u64 = 2;
/// Segments by which the window may exceed the bytes in flight (RFC 6817, ALLOWED_INCREASE).
const ALLOWED_SEGMENTS: u64 = 1;

/// Base and current delay (RFC 6817, section 2.4.2), in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    /// Least delay of each minute, the newest last.
    bases: VecDeque<u64>,
    minute_began: Timestamp,
    /// Time and delay of the newest measurements.
    current: VecDeque<(Timestamp, u64)>,
}

impl Delays {
    /// Without any delay.
    pub const fn new() -> Self {
        Self { bases: VecDeque::new(), minute_began: Timestamp::ZERO, current: VecDeque::new() }
    }

    /// Takes a delay of `nanos`.
    pub fn push(&mut self, now: Timestamp, nanos: u64) {
        self.update_base(now, nanos);
        self.update_current(now, nanos);
    }

    fn update_base(&mut self, now: Timestamp, delay: u64) {
        let is_new = now.saturating_since(self.minute_began) >= MINUTE;
        match self.bases.back_mut() {
            Some(newest) if !is_new => *newest = delay.min(*newest),
            _ => {
                self.bases.push_back(delay);
                self.minute_began = now;
            }
        }
        if self.bases.len() > BASE_MINUTES {
            self.bases.pop_front();
        }
    }

    fn update_current(&mut self, now: Timestamp, delay: u64) {
        self.current.push_back((now, delay));
        let oldest = now - Duration::from_nanos(delay);
        let is_old = |(at, _): &(Timestamp, u64)| *at <= oldest;
        while self.current.len() > CURRENT_SAMPLES
            || self.current.len() > 1 && self.current.front().is_some_and(is_old)
        {
            self.current.pop_front();
        }
    }

    /// Base delay; `None` before the first delay.
    pub fn base(&self) -> Option<u64> {
        self.bases.iter().min().copied()
    }

    /// Queueing delay; `None` before the first delay.
    pub fn queueing(&self) -> Option<u64> {
        let current = self.current.iter().map(|(_, delay)| delay).min()?;
        Some(current.saturating_sub(self.base()?))
    }

    /// Delays seen before count as longer by `nanos`.
    pub fn shift(&mut self, nanos: i64) {
        let shifted = |delay: &mut u64| *delay = delay.saturating_add_signed(nanos).max(1);
        self.bases.iter_mut().for_each(shifted);
        self.current.iter_mut().map(|(_, delay)| delay).for_each(shifted);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Ledbat {
    /// In nanoseconds.
    target: u64,
    /// As in ns-3: delays are one-way if the host measures them.
    is_one_way: bool,
    /// In ns-3: slow start goes on.
    slow_starts: bool,
    delays: Delays,
    /// Shrinkage not yet a byte, in parts of 1/(target cwnd) byte.
    shrunk: u128,
}

impl Ledbat {
    fn read(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            target: TARGET.of(spec)?.as_nanos() as u64,
            is_one_way: false,
            slow_starts: false,
            delays: Delays::new(),
            shrunk: 0,
        })
    }

    fn shrink(&mut self, acked: u64, excess: u64, window: &mut Window) {
        let unit = u128::from(self.target) * u128::from(window.cwnd());
        // Products below 2^36 x 2^16 x 2^64: delays beyond that count as no longer.
        let bytes = u128::from(acked) * u128::from(window.mss()) * u128::from(excess) + self.shrunk;
        self.shrunk = bytes % unit;
        let least = MIN_SEGMENTS * window.mss();
        let bytes = u64::try_from(bytes / unit).unwrap_or(u64::MAX);
        window.set_cwnd(window.cwnd().saturating_sub(bytes).max(least));
    }

    fn steer(&mut self, acked: u64, window: &mut Window) {
        let (mss, before) = (window.mss(), window.cwnd());
        let queueing = self.delays.queueing().unwrap_or(0);
        if queueing <= self.target {
            let missing = self.target - queueing;
            let gain = u128::from(mss) * u128::from(missing) / u128::from(self.target);
            self.shrunk = 0;
            window.grow(acked, |_| gain as u64);
        } else {
            self.shrink(acked, queueing - self.target, window);
        }
        if let Some(in_flight) = window.in_flight() {
            let most = in_flight.saturating_add(acked + ALLOWED_SEGMENTS * mss);
            window.set_cwnd(window.cwnd().min(most.max(before)));
        }
        window.set_cwnd(window.cwnd().max(MIN_SEGMENTS * mss));
    }
}

impl WindowLaw for Ledbat {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, _window: &mut Window) {
        let one_way = measurement.one_way.filter(|_| self.is_one_way).map(|delay| delay.as_nanos());
        let one_way = one_way.and_then(|nanos| u64::try_from(nanos).ok());
        if let Some(delay) = one_way.or_else(|| least(measurement)) {
            self.delays.push(now, delay);
        }
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        self.steer(acked, window);
        0
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        self.steer(acked, window);
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        window.at_loss() / 2
    }

    fn interim(&self, _window: &Window) -> Interim {
        // Below ssthresh, too, it grows by the delay and not by doubling.
        Interim { beta: Some(Beta::ONE), ..Interim::HOLD }
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.delays.shift(nanos);
    }

    fn reason(&self) -> &'static str {
        match self.delays.queueing() {
            Some(queueing) if queueing > self.target => "delay above target",
            Some(_) => "delay below target",
            None => "no delay yet",
        }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("queueing_ns", self.delays.queueing().unwrap_or(0) as f64)]
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;
    use crate::cc::rounds::{MSS, RoundSender};
    use crate::cc::{CongestionControl, CongestionEvent};

    fn sender() -> RoundSender {
        RoundSender::new(ALGORITHM.build(&Spec::named("ledbat")))
    }

    #[test]
    fn window_growth_is_proportional_to_distance_below_target() {
        let mut sender = sender();
        let grown = sender.round(40_000) - 10 * MSS;
        assert!((MSS * 9 / 10..=MSS).contains(&grown), "{grown}");
        let before = sender.cwnd();
        let grown = sender.round(90_000) - before;
        assert!((MSS * 9 / 20..=MSS / 2).contains(&grown), "{grown}");
    }

    #[test]
    fn window_shrinks_above_target_down_to_two_segments() {
        let mut sender = sender();
        let before = sender.round(40_000);
        assert_eq!(before - sender.round(190_000), MSS / 2);
        for _ in 0..100 {
            sender.round(5_000_000);
        }
        assert_eq!(sender.cwnd(), 2 * MSS);
    }

    #[test]
    fn a_base_is_forgotten_after_ten_minutes() {
        let mut sender = sender();
        sender.round(40_000);
        let grows_at = |sender: &mut RoundSender, seconds: u64| {
            while sender.now < Timestamp::from_nanos(seconds * 1_000_000_000) {
                sender.round(1_000_000);
            }
            let before = sender.cwnd();
            sender.round(1_000_000) > before
        };
        assert!(!grows_at(&mut sender, 500), "1 s is 960 ms too long");
        assert!(grows_at(&mut sender, 700), "1 s is the base");
    }

    #[test]
    fn loss_halves_and_only_ns3_has_slow_start() {
        let mut plain = sender();
        assert_eq!(plain.event(CongestionEvent::Loss), 5 * MSS);
        let mut ns3 = RoundSender::as_ns3("ledbat");
        assert_eq!(ns3.round(40_000), 11 * MSS, "one acknowledgement, one segment");
        ns3.event(CongestionEvent::Loss);
        ns3.event(CongestionEvent::RecoveryEnd);
        let before = ns3.cwnd();
        assert!(ns3.round(40_000) < before + MSS * 11 / 10);
        ns3.event(CongestionEvent::Rto);
        ns3.event(CongestionEvent::RecoveryEnd);
        assert_eq!([ns3.round(40_000), ns3.round(40_000)], [2 * MSS, 3 * MSS]);
    }

    #[test]
    fn ns3_full_window_grows_only_when_repair_ends() {
        // Traced in ns-3.37: 29.5 segments, 63 acknowledged at 1 ms of queueing: 31.614.
        let mss = 1448;
        let mut cc = super::super::ns3::built("ledbat", &[]);
        cc.init(
            Timestamp::ZERO,
            crate::units::ByteCount::new(mss),
            crate::units::ByteCount::new(59 * mss),
        );
        let mut now = Timestamp::ZERO;
        let mut take =
            |cc: &mut Box<dyn CongestionControl>, acked: u64, in_flight: u64, ms: u64| {
                now += Duration::from_millis(ms);
                let rtt = Duration::from_millis(ms);
                let measurement = Measurement {
                    acked: crate::units::ByteCount::new(acked * mss),
                    in_flight: Some(crate::units::ByteCount::new(in_flight * mss)),
                    rtt: Some(crate::cc::RttSample { latest: rtt, min: rtt }),
                    ..Measurement::default()
                };
                cc.on_measurement(now, &measurement);
                cc.send_limits().cwnd.unwrap().as_u64()
            };
        take(&mut cc, 0, 59, 15);
        cc.on_event(Timestamp::ZERO, CongestionEvent::Loss);
        cc.on_event(Timestamp::ZERO, CongestionEvent::RecoveryEnd);
        assert_eq!(cc.send_limits().cwnd.unwrap().as_u64(), 59 * mss / 2);
        (0..3).for_each(|_| _ = take(&mut cc, 0, 30, 16));
        let grown = take(&mut cc, 63, 30, 16);
        assert_eq!(grown, 59 * mss / 2 + 63 * 99 * mss * 2 / (100 * 59));
        assert_eq!([take(&mut cc, 1, 30, 16), take(&mut cc, 1, 30, 16)], [31 * mss; 2]);
    }
}
