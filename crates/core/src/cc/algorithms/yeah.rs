//! YeAH-TCP: Scalable TCP while the queue is short, Reno while it is not.
//!
//! ```text
//! Q = cwnd (r - base) / r     r: least round trip of the round; once a round:
//! fast    Q <= 80 mss and r - base <= base / 8      growth max(1 mss, cwnd / 100) a window
//! slow    otherwise                                 growth 1 mss a window
//!         Q > 80 mss and cwnd > R: cwnd -= min(Q, cwnd / 2), at least R; ssthresh = cwnd
//! R       the window that Reno would have: cwnd / 2 at the first slow round, 1 mss more each
//! loss    fewer than 16 slow rounds in a row: cwnd -= max(Q, cwnd / 8), at most half; else half
//!         R = R / 2
//! ```
//! States: fast and slow within the states of [`super::window`]. After 50 fast rounds without a loss
//! R is forgotten: no greedy flow competes.
//!
//! Departures from the paper: no intended ones; r of a round needs no three samples, as one
//! measurement may cover many packets.
//!
//! Ranges: round trips 1 ns to 584 years, windows as in [`super::window`]; R 2 segments to the
//! largest window.

use alloc::vec::Vec;

use super::rounds::{Round, RoundTrips, queued};
use super::window::{CWND_MAX, MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "yeah",
    summary: "YeAH-TCP: Scalable TCP below a queue of 80 segments, Reno above",
    sources: &[
        "Baiocchi, Castellani, Vacirca: YeAH-TCP, PFLDnet 2007",
        "linux/net/ipv4/tcp_yeah.c",
    ],
    params: &[],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|_| Ok(WindowControl::boxed(Yeah::new())),
};

/// Longest queue of fast rounds in segments (paper, Q max).
const ALPHA: u64 = 80;
/// Longest delay of fast rounds as a part of the base (paper, 1 / phi).
const PHI: u64 = 8;
/// Least part of the window that a loss takes, 1 / 2^delta.
const DELTA: u32 = 3;
/// Largest part of the window that an early reduction takes, 1 / 2^epsilon.
const EPSILON: u32 = 1;
/// Slow rounds in a row from which Reno flows are taken to compete.
const RHO: u32 = 16;
/// Fast rounds after which R is forgotten.
const ZETA: u32 = 50;
/// Growth of fast rounds: a hundredth of the window (Scalable TCP).
pub(super) const SCALABLE: u64 = 100;
/// Least R in segments.
const RENO_SEGMENTS_MIN: u64 = 2;

#[derive(Clone, Debug)]
pub(super) struct Yeah {
    /// Longest delay of fast rounds as a part of the base.
    pub(super) phi: u64,
    /// Q of a base and a round trip in nanoseconds.
    pub(super) queue: fn(&Window, u64, u64) -> u64,
    /// Maps a part of the window and the segment size to the bytes that count.
    pub(super) part: fn(u64, u64) -> u64,
    pub(super) trips: RoundTrips,
    /// Queue of the last round in bytes.
    queued: u64,
    /// R in bytes, the least while unknown.
    reno: u64,
    pub(super) slow_rounds: u32,
    fast_rounds: u32,
    reason: &'static str,
}

impl Yeah {
    pub(super) fn new() -> Self {
        Self {
            phi: PHI,
            queue: |window, base, rtt| queued(window.cwnd(), base, rtt),
            part: |bytes, _| bytes,
            trips: RoundTrips::default(),
            queued: 0,
            reno: 0,
            slow_rounds: 0,
            fast_rounds: 0,
            reason: "no round yet",
        }
    }

    fn decide(&mut self, rtt: u64, base: u64, window: &mut Window) {
        self.queued = (self.queue)(window, base, rtt);
        let is_long = self.queued > ALPHA * window.mss();
        if is_long || rtt - base > base / self.phi {
            self.slow_round(is_long, window);
        } else {
            self.reason = "fast";
            self.slow_rounds = 0;
            self.fast_rounds += 1;
            if self.fast_rounds > ZETA {
                self.reno = RENO_SEGMENTS_MIN * window.mss();
                self.fast_rounds = 0;
            }
        }
    }

    fn slow_round(&mut self, is_long: bool, window: &mut Window) {
        self.reason = "slow";
        let (mss, least) = (window.mss(), RENO_SEGMENTS_MIN * window.mss());
        let part = self.part;
        let part = |bytes| part(bytes, mss);
        let mut cwnd = part(window.cwnd());
        if is_long && cwnd > self.reno {
            self.reason = "slow: draining its own queue";
            cwnd = (cwnd - self.queued.min(part(cwnd >> EPSILON))).max(self.reno);
            window.set_cwnd(cwnd);
            window.set_ssthresh(cwnd);
        }
        self.reno = if self.reno <= least {
            part(cwnd / 2).max(least)
        } else {
            (self.reno + window.mss()).min(CWND_MAX)
        };
        self.slow_rounds = self.slow_rounds.saturating_add(1);
    }
}

impl WindowLaw for Yeah {
    fn start(&mut self, _now: Timestamp, window: &Window) {
        self.reno = RENO_SEGMENTS_MIN * window.mss();
    }

    fn observe(&mut self, _now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let round = self.trips.on_measurement(measurement);
        if let (Round::Over(rtt), Some(base)) = (round, self.trips.base()) {
            self.decide(rtt, base, window);
        }
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        let mss = window.mss();
        let is_fast = self.slow_rounds == 0;
        window.grow(acked, |cwnd| if is_fast { mss.max(cwnd / SCALABLE) } else { mss });
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        self.trips.pause();
        self.fast_rounds = 0;
        let (bytes, mss) = (window.at_loss(), window.mss());
        let part = self.part;
        let part = |bytes| part(bytes, mss);
        let most = part(part(bytes) / 2).max(RENO_SEGMENTS_MIN * mss);
        let taken = if self.slow_rounds >= RHO {
            most
        } else {
            self.queued.max(part(part(bytes) >> DELTA)).min(most)
        };
        self.reno = part(self.reno / 2).max(RENO_SEGMENTS_MIN * mss);
        bytes.saturating_sub(taken)
    }

    fn on_mark(&mut self) {
        self.trips.unpause();
    }

    fn on_recovery_end(&mut self, _now: Timestamp, _window: &mut Window) {
        self.trips.resume();
    }

    fn shift_rtt(&mut self, nanos: i64) {
        self.trips.shift(nanos);
    }

    fn reason(&self) -> &'static str {
        self.reason
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("queued_bytes", self.queued as f64), ("reno_bytes", self.reno as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};

    /// 640 segments of slow start, base 40 ms.
    fn grown(law: Yeah) -> RoundSender {
        let mut sender = RoundSender::new(Ok(WindowControl::boxed(law)));
        for _ in 0..6 {
            sender.round(40_000);
        }
        assert_eq!(sender.cwnd(), 640 * MSS);
        sender
    }

    #[test]
    fn queue_above_80_segments_is_drained_at_once() {
        let mut sender = grown(Yeah::new());
        // 640 segments for 50 ms: 128 stand in the queue. Growth of the round follows: a segment.
        let cwnd = sender.round(50_000);
        assert!((512 * MSS..=514 * MSS).contains(&cwnd), "{cwnd}");
        assert_eq!(sender.ssthresh(), Some(512 * MSS));
    }

    #[test]
    fn growth_is_scalable_when_fast_reno_when_slow() {
        let mut sender = grown(Yeah::new());
        sender.round(50_000);
        let before = sender.cwnd();
        let fast = sender.round(40_000) - before;
        assert!((before / 102..=before / 98).contains(&fast), "{fast}");
        let before = sender.cwnd();
        // 5.5 ms of delay, above an eighth of the base, and 62 segments: slow, but not too long.
        let slow = sender.round(45_500) - before;
        assert!((MSS * 9 / 10..=MSS).contains(&slow), "{slow}");
    }

    #[test]
    fn loss_takes_eighth_or_half_against_reno() {
        let mut alone = grown(Yeah::new());
        assert_eq!(alone.event(CongestionEvent::Loss), 560 * MSS);
        let mut competing = grown(Yeah::new());
        competing.round(50_000);
        for _ in 0..RHO {
            competing.round(45_500);
        }
        let before = competing.cwnd();
        assert_eq!(competing.event(CongestionEvent::Loss), before / 2);
    }

    #[test]
    fn ns3_fast_rounds_and_losses_move_whole_segments() {
        let mut sender = RoundSender::as_ns3("yeah");
        assert_eq!(sender.event(CongestionEvent::Loss), 9 * MSS, "1 of 10, not 1.25");
        sender.event(CongestionEvent::RecoveryEnd);
        assert_eq!([sender.round(40_000), sender.round(40_000)], [10 * MSS, 11 * MSS]);
    }

    #[test]
    fn without_a_least_delay_a_millisecond_is_slow() {
        let mut sender = grown(Yeah { phi: u64::MAX, ..Yeah::new() });
        sender.round(50_000);
        let before = sender.cwnd();
        let slow = sender.round(41_000) - before;
        assert!((MSS * 9 / 10..=MSS).contains(&slow), "{slow}");
    }
}
