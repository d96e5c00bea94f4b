//! LEDBAT++: a background transport that yields to a queue, shares with later flows of its kind, and lets the queue drain
//! at intervals (draft-irtf-iccrg-ledbat-plus-plus).
//!
//! ```text
//! q            current less base delay, both as in LEDBAT (RFC 6817, 2.4.2), of round trips
//! F            min(16, ceil(2 target / base))                   GAIN = 1 / F
//! slow start   cwnd += acked / F                       first one: ends at q > 3/4 target
//! q <= target  cwnd += mss / F a window
//! q > target   cwnd += max(mss / F - cwnd (q / target - 1), -cwnd / 2) a window
//! loss         cwnd / 2, at least 2 mss
//! slowdown     ssthresh = cwnd; cwnd = 2 mss for 2 round trips; slow start up to ssthresh
//!              first: 2 round trips after the first slow start; the next one nine times as long after a slowdown as
//!              that took
//! ```
//! States as in [`super::window`]; within them steady, frozen (at 2 mss) and ramping (up to ssthresh).
//!
//! Departures from the draft, with reasons:
//! - The first window is 2 mss only where the host measures a round trip before it sends. Elsewhere the first flight is
//!   the host's, and leaves before the host calls the algorithm.
//! - A slowdown waits for the end of a repair, whose window the host governs.
//! - A loss while frozen halves the window to ramp up to. The draft leaves that open.
//!
//! Ranges: delays 1 ns to 584 years, target 1 to 100 ms, windows as in [`super::window`]; in integers.

use alloc::vec::Vec;

use super::interim::{Beta, Interim};
use super::ledbat::Delays;
use super::rounds::least;
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Timestamp, duration_nanos, mul_div};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "ledbatpp",
    summary: "LEDBAT++: yields to a queueing delay above its target, and drains the queue at intervals",
    sources: &["draft-irtf-iccrg-ledbat-plus-plus", "RFC 6817"],
    params: &[&TARGET],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|spec| Ok(WindowControl::boxed(LedbatPp::read(spec)?)),
};

/// Queueing delay to hold (LEDBAT++ draft: 60 ms). A lower one yields to other traffic earlier.
const TARGET: Param<Duration> = Param::new("target", "queueing delay to hold")
    .or(Duration::from_millis(60))
    .within(Duration::from_millis(1)..=Duration::from_millis(100));

/// Largest F: the least growth is a sixteenth of Reno's ("Slower than Reno increase"). Twice as large, a flow takes
/// twice as long to find free capacity on short paths.
const DIVISOR_MAX: u64 = 16;
/// Share of the target at which the first slow start ends, in quarters ("Modified slow start"). Larger, and the queue
/// passes the target before the growth stops.
const START_QUARTERS: u64 = 3;
/// Segments of the first window and of a slowdown: with fewer, delayed acknowledgements would lengthen the round trip.
const FROZEN_SEGMENTS: u64 = 2;
/// Round trips from the end of the first slow start to the first slowdown, and also of a freeze ("Initial and periodic
/// slowdown"). The first round trip of a freeze drains the queue, the next measures the base.
const FROZEN_ROUND_TRIPS: u32 = 2;
/// Time from a slowdown to the next over the time that it took: slowdowns cost a tenth of the capacity at most.
const SLOWDOWN_RATIO: u32 = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Until the first slow start has ended.
    Starting,
    /// The next slowdown is due at this time.
    Steady(Timestamp),
    /// At two segments from the first time until the second, then slow start up to this many bytes.
    Frozen(Timestamp, Timestamp, u64),
    /// In slow start, since a slowdown that began at this time.
    Ramping(Timestamp),
}

#[derive(Clone, Debug)]
struct LedbatPp {
    /// In nanoseconds.
    target: u64,
    delays: Delays,
    /// Newest round trip, in nanoseconds.
    rtt: u64,
    pace: Pace,
    is_repairing: bool,
    /// Of slow start and of shrinking: bytes not yet counted, over F and over the window.
    grown: u64,
    shrunk: u64,
}

impl LedbatPp {
    fn read(spec: &Spec) -> Result<Self, SpecError> {
        Ok(Self {
            target: duration_nanos(TARGET.of(spec)?),
            delays: Delays::new(),
            rtt: 0,
            pace: Pace::Starting,
            is_repairing: false,
            grown: 0,
            shrunk: 0,
        })
    }

    /// F: one over the gain.
    fn divisor(&self) -> u64 {
        let base = self.delays.base().unwrap_or(1).max(1);
        (2 * self.target).div_ceil(base).clamp(1, DIVISOR_MAX)
    }

    fn queueing(&self) -> u64 {
        self.delays.queueing().unwrap_or(0)
    }

    fn round_trips(&self, count: u32) -> Duration {
        Duration::from_nanos(self.rtt).saturating_mul(count)
    }

    /// Switches to the next pace if it is due.
    fn keep_pace(&mut self, now: Timestamp, window: &mut Window) {
        let frozen = FROZEN_SEGMENTS * window.mss();
        match self.pace {
            Pace::Starting if !window.in_slow_start() => {
                self.pace = Pace::Steady(now + self.round_trips(FROZEN_ROUND_TRIPS));
            }
            Pace::Steady(due) if now >= due && !self.is_repairing => {
                let until = now + self.round_trips(FROZEN_ROUND_TRIPS);
                self.pace = Pace::Frozen(now, until, window.cwnd());
                window.set_ssthresh(window.cwnd());
                window.set_cwnd(frozen);
            }
            Pace::Frozen(since, until, resumed) if now >= until && !self.is_repairing => {
                self.pace = Pace::Ramping(since);
                window.set_ssthresh(resumed);
                self.grown = 0;
            }
            Pace::Frozen(..) => window.set_cwnd(window.cwnd().min(frozen)),
            Pace::Ramping(since) if !window.in_slow_start() => {
                let took = now.saturating_since(since);
                self.pace = Pace::Steady(now + took.saturating_mul(SLOWDOWN_RATIO));
            }
            Pace::Starting | Pace::Steady(_) | Pace::Ramping(_) => {}
        }
    }

    /// Lowers the window by `per_window` bytes for each acknowledged window; a measurement counts at most one window.
    fn shrink(&mut self, acked: u64, per_window: u64, window: &mut Window) {
        let cwnd = window.cwnd();
        let shrunk = acked.min(cwnd) * per_window + self.shrunk.min(cwnd - 1);
        self.shrunk = shrunk % cwnd;
        let least = FROZEN_SEGMENTS * window.mss();
        window.set_cwnd((cwnd - shrunk / cwnd).max(least.min(cwnd)));
        // Otherwise slow start would grow it back.
        window.set_ssthresh(window.cwnd());
    }
}

impl WindowLaw for LedbatPp {
    fn observe(&mut self, now: Timestamp, measurement: &Measurement, window: &mut Window) {
        if let Some(rtt) = least(measurement) {
            self.delays.push(now, rtt);
            self.rtt = rtt;
        }
        if self.pace == Pace::Starting && measurement.delivered == ByteCount::ZERO {
            window.set_cwnd(window.cwnd().min(FROZEN_SEGMENTS * window.mss()));
        }
        if measurement.app_limited
            && let Pace::Ramping(since) = &mut self.pace
        {
            // The time without data to send is no part of the ramp.
            *since = now;
        }
        self.keep_pace(now, window);
    }

    fn slow_start(&mut self, _now: Timestamp, acked: u64, window: &mut Window) -> u64 {
        if matches!(self.pace, Pace::Frozen(..)) {
            return 0;
        }
        if self.pace == Pace::Starting && self.queueing() > self.target / 4 * START_QUARTERS {
            window.set_ssthresh(window.cwnd());
            return acked;
        }
        let (divisor, counted) = (self.divisor(), acked + self.grown);
        self.grown = counted % divisor;
        window.slow_start(counted / divisor) * divisor
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        if matches!(self.pace, Pace::Frozen(..)) {
            return;
        }
        let gain = window.mss() / self.divisor();
        let excess = self.queueing().saturating_sub(self.target);
        let decrease = mul_div(window.cwnd(), excess, self.target);
        if decrease <= gain {
            window.grow(acked, |_| gain - decrease);
        } else {
            self.shrink(acked, (decrease - gain).min(window.cwnd() / 2), window);
        }
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        self.is_repairing = true;
        if let Pace::Frozen(_, _, resumed) = &mut self.pace {
            *resumed /= 2;
            return window.cwnd();
        }
        window.at_loss() / 2
    }

    fn on_mark(&mut self) {
        self.is_repairing = false;
    }

    fn on_recovery_end(&mut self, _now: Timestamp, _window: &mut Window) {
        self.is_repairing = false;
    }

    fn interim(&self, _window: &Window) -> Interim {
        // Below ssthresh, too, the window grows by the gain and not by doubling.
        Interim { beta: Some(Beta::ONE), ..Interim::HOLD }
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.delays.shift(nanos);
        self.rtt = self.rtt.saturating_add_signed(nanos);
    }

    fn reason(&self) -> &'static str {
        match self.pace {
            Pace::Frozen(..) => "slowdown: lets the queue drain",
            Pace::Ramping(_) => "slowdown: returning to the earlier window",
            Pace::Starting | Pace::Steady(_) if self.queueing() > self.target => {
                "delay above target"
            }
            Pace::Starting | Pace::Steady(_) => "delay below target",
        }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let [queueing, divisor] = [self.queueing(), self.divisor()].map(|number| number as f64);
        alloc::vec![("queueing_ns", queueing), ("gain_divisor", divisor)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};

    fn sender() -> RoundSender {
        RoundSender::new(ALGORITHM.build(&Spec::named("ledbatpp")))
    }

    /// Out of the first slow start by a loss, at a base of 40 ms: F is 3.
    fn steady() -> RoundSender {
        let mut sender = sender();
        sender.round(40_000);
        sender.event(CongestionEvent::Loss);
        sender.event(CongestionEvent::RecoveryEnd);
        sender
    }

    #[test]
    fn short_base_delay_slows_growth() {
        for (base_us, divisor) in [(200_000, 1), (60_000, 2), (40_000, 3), (1_000, 16)] {
            let grown = sender().round(base_us) - 10 * MSS;
            assert!(grown.abs_diff(10 * MSS / divisor) <= 1, "{base_us}: {grown}");
        }
    }

    #[test]
    fn first_window_is_two_segments() {
        let mut sender = sender();
        let rtt = Duration::from_millis(40);
        let rtt = Some(crate::cc::RttSample { latest: rtt, min: rtt });
        sender.cc.on_measurement(sender.now, &Measurement { rtt, ..Measurement::default() });
        assert_eq!(sender.cwnd(), 2 * MSS);
    }

    #[test]
    fn first_slow_start_ends_below_target() {
        let mut sender = sender();
        sender.round(40_000);
        let before = sender.round(84_000);
        assert!(before > 16 * MSS, "44 ms of queue: {before}");
        let grown = sender.round(86_000) - before;
        assert!(grown <= MSS / 3, "46 ms of queue: {grown}");
    }

    #[test]
    fn decrease_is_proportional_and_bounded() {
        let mut sender = steady();
        let before = sender.cwnd();
        // 66 ms of queue: a tenth of the window less a third of a segment.
        let after = sender.round(106_000);
        assert!((before - after).abs_diff(before / 10 - MSS / 3) <= 2, "{before} {after}");
        let mut sender = steady();
        let before = sender.cwnd();
        assert_eq!(sender.round(2_000_000), before - before / 2);
    }

    #[test]
    fn lasting_queue_shrinks_window_to_two_segments() {
        let mut sender = steady();
        let mut before = sender.cwnd();
        while sender.cwnd() > 2 * MSS {
            before = sender.cwnd();
            sender.round(40_000);
        }
        while sender.cwnd() < before {
            sender.round(40_000);
        }
        // The next slowdown is nine times as far as the last one was long.
        sender.round(40_000);
        let mut before = sender.cwnd();
        assert!(before > 4 * MSS, "{before}");
        while sender.cwnd() > 2 * MSS {
            let after = sender.round(130_000);
            assert!(after < before, "{after} of {before}");
            before = after;
        }
    }

    #[test]
    fn slowdowns_freeze_ramp_and_wait() {
        let mut sender = steady();
        let (mut began, mut before) = (sender.now, sender.cwnd());
        while sender.cwnd() > 2 * MSS {
            before = sender.cwnd();
            sender.round(40_000);
            began = sender.now;
            assert!(began < Timestamp::ZERO + Duration::from_millis(200), "two round trips");
        }
        while sender.cwnd() < before {
            sender.round(40_000);
        }
        let (ended, took) = (sender.now, sender.now.saturating_since(began));
        while sender.cwnd() > 2 * MSS {
            sender.round(40_000);
        }
        let waited = sender.now.saturating_since(ended);
        // A round trip passes before the end of the ramp is seen, and one before the slowdown.
        let rtt = Duration::from_millis(40);
        assert!((took * 9..=(took + rtt) * 9 + rtt * 2).contains(&waited), "{waited:?}");
    }

    #[test]
    fn loss_while_frozen_halves_resumed_window() {
        let resumed = |loses: bool| {
            let mut sender = steady();
            while sender.cwnd() > 2 * MSS {
                sender.round(40_000);
            }
            if loses {
                assert_eq!(sender.event(CongestionEvent::Loss), 2 * MSS);
                sender.event(CongestionEvent::RecoveryEnd);
            }
            (0..3).for_each(|_| _ = sender.round(40_000));
            sender.ssthresh().unwrap()
        };
        assert_eq!(resumed(true), resumed(false) / 2);
    }
}
