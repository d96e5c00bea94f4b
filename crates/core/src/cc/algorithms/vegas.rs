//! TCP Vegas: holds between two and four segments in the queue.
//!
//! ```text
//! N = cwnd (r - base) / r                     r: least round trip of the round; once a round:
//! slow start    doubles each round; N > 1 mss: cwnd -= N, ssthresh = cwnd - 1 mss
//! avoidance     N < 2 mss: cwnd += 1 mss      N > 4 mss: cwnd -= 1 mss      else as it is
//! always        ssthresh = max(ssthresh, 3/4 cwnd)
//! ```
//! States as in [`super::window`]; from a loss or timeout to its repair the rounds decide nothing and
//! growth is Reno's.
//!
//! Departures from the paper, with reasons:
//! - The window doubles every round and not every other one: with ten segments to begin with, a check
//!   once a round is enough.
//! - A loss halves the window (RFC 5681); the paper's earlier retransmission is the host's.
//! - N = cwnd - cwnd base / r takes cwnd for the bytes sent in the round.
//! - A window that the sender did not fill is not raised: it says nothing about the queue.
//!
//! Ranges: round trips 1 ns to 584 years, windows as in [`super::window`]; least window 2 segments
//! while it is the rounds that decide.

use alloc::vec::Vec;

use super::ns3;
use super::rounds::{Round, RoundTrips, queued};
use super::window::{MIN_WINDOW_MSS, Window, WindowControl, WindowLaw};
use super::{Algorithm, Field, Measurement};
use crate::spec::{Param, Spec, SpecError};
use crate::units::Timestamp;

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "vegas",
    summary: "TCP Vegas: two to four segments in the queue",
    sources: &["Brakmo, Peterson: TCP Vegas, IEEE JSAC 13(8), 1995", "linux/net/ipv4/tcp_vegas.c"],
    params: &[&ALPHA, &BETA, &GAMMA],
    needs: &[Field::Rtt],
    min_window_mss: MIN_WINDOW_MSS,
    batch_tolerance: 0.05,
    build: &|spec| Ok(WindowControl::boxed(Vegas::read(spec)?)),
};

/// Paper's alpha (Linux: 2).
const ALPHA: Param<u64> = Param::new("alpha", "segments in the queue below which the window grows")
    .or(2)
    .within(1..=THRESHOLD_MAX)
    .also(", at most beta");
/// Paper's beta (Linux: 4). A larger one keeps a longer queue.
const BETA: Param<u64> = Param::new("beta", "segments in the queue above which the window shrinks")
    .or(4)
    .within(1..=THRESHOLD_MAX);
/// Paper's gamma (Linux: 1). A larger one leaves slow start later, with a longer queue.
const GAMMA: Param<u64> = Param::new("gamma", "segments in the queue above which slow start ends")
    .or(1)
    .within(1..=THRESHOLD_MAX);

/// Least window of the rounds in segments.
const LEAST_SEGMENTS: u64 = 2;
/// Largest threshold in segments.
const THRESHOLD_MAX: u64 = 1000;

/// Vegas as a [`WindowLaw`].
#[derive(Clone, Debug)]
pub struct Vegas {
    /// Thresholds in segments.
    alpha: u64,
    beta: u64,
    gamma: u64,
    /// The queue is rounded up to whole segments before it is compared. The window that slow start
    /// leaves without the queue is rounded up, too, with a segment more.
    pub(super) is_in_segments: bool,
    pub(super) trips: RoundTrips,
    /// A round has ended that was too short to decide by.
    is_too_short: bool,
    queued: u64,
    reason: Reason,
}

/// Reason for the window. No text: an algorithm in the kernel has no place for pointers.
#[derive(Clone, Copy, Debug)]
enum Reason {
    NoRound,
    NoQueue,
    HasQueue,
    AboveBeta,
    BelowAlpha,
    AsWanted,
    Loss,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            alpha: 2,
            beta: 4,
            gamma: 1,
            is_in_segments: false,
            trips: RoundTrips::default(),
            is_too_short: false,
            queued: 0,
            reason: Reason::NoRound,
        }
    }
}

impl Vegas {
    pub(super) fn read(spec: &Spec) -> Result<Self, SpecError> {
        let (alpha, beta) = (ALPHA.of(spec)?, BETA.of(spec)?);
        if alpha > beta {
            return Err(ALPHA.refused(spec));
        }
        Ok(Self { alpha, beta, gamma: GAMMA.of(spec)?, ..Self::default() })
    }

    fn lower(&mut self, bytes: u64, window: &mut Window) {
        window.set_cwnd(bytes.max(LEAST_SEGMENTS * window.mss()));
        window.set_ssthresh(window.ssthresh().min(window.cwnd() - window.mss()));
    }

    fn decide(&mut self, rtt: u64, base: u64, is_idle: bool, window: &mut Window) {
        let (cwnd, mss) = (window.cwnd(), window.mss());
        self.queued = queued(cwnd, base, rtt);
        let mut compared = self.queued;
        let mut kept = cwnd - self.queued.min(cwnd);
        if self.is_in_segments {
            compared = ns3::whole_segments(compared, mss);
            kept = (kept / mss + 1) * mss;
        }
        if window.in_slow_start() {
            self.reason = Reason::NoQueue;
            if compared > self.gamma * mss {
                self.reason = Reason::HasQueue;
                self.lower(kept, window);
            }
        } else if compared > self.beta * mss {
            self.reason = Reason::AboveBeta;
            self.lower(cwnd - mss.min(cwnd), window);
        } else if compared < self.alpha * mss && !is_idle {
            self.reason = Reason::BelowAlpha;
            window.set_cwnd(cwnd + mss);
        } else {
            self.reason = Reason::AsWanted;
        }
        window.set_ssthresh(window.ssthresh().max(window.cwnd() / 4 * 3));
    }
}

impl WindowLaw for Vegas {
    fn observe(&mut self, _now: Timestamp, measurement: &Measurement, window: &mut Window) {
        let round = self.trips.on_measurement(measurement);
        self.is_too_short = round == Round::TooShort;
        if let (Round::Over(rtt), Some(base)) = (round, self.trips.base()) {
            self.decide(rtt, base, measurement.app_limited, window);
        }
    }

    fn avoid(&mut self, _now: Timestamp, acked: u64, window: &mut Window) {
        if self.trips.is_paused() || self.is_too_short {
            let mss = window.mss();
            window.grow(acked, |_| mss);
        }
    }

    fn on_loss(&mut self, _now: Timestamp, window: &Window) -> u64 {
        self.trips.pause();
        self.reason = Reason::Loss;
        window.cwnd() / 2
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
        match self.reason {
            Reason::NoRound => "no round yet",
            Reason::NoQueue => "slow start without a queue",
            Reason::HasQueue => "slow start has built a queue",
            Reason::AboveBeta => "queue above beta",
            Reason::BelowAlpha => "queue below alpha",
            Reason::AsWanted => "queue between alpha and beta",
            Reason::Loss => "loss",
        }
    }

    fn numbers(&self) -> Vec<(&'static str, f64)> {
        alloc::vec![("queued_bytes", self.queued as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::CongestionEvent;
    use crate::cc::rounds::{MSS, RoundSender};
    use crate::spec::Value;

    #[test]
    fn slow_start_doubles_until_a_segment_is_queued() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("vegas")));
        assert_eq!([sender.round(40_000), sender.round(40_000)], [20_000, 40_000]);
        // 40 segments for 44 ms: 3.6 stand in the queue.
        assert_eq!(sender.round(44_000), 40_000 - 3_636);
        assert_eq!(sender.ssthresh(), Some(36_364 - MSS));
    }

    #[test]
    fn avoidance_holds_two_to_four_queued_segments() {
        let mut sender = RoundSender::new(ALGORITHM.build(&Spec::named("vegas")));
        [40_000, 40_000, 44_000].iter().for_each(|rtt| _ = sender.round(*rtt));
        let cwnd = sender.cwnd();
        let with_queue = |segments: u64, cwnd: u64| 40_000 * cwnd / (cwnd - segments * MSS);
        assert_eq!(sender.round(with_queue(1, cwnd)), cwnd + MSS);
        assert_eq!(sender.round(with_queue(3, cwnd)), cwnd + MSS);
        assert_eq!(sender.round(with_queue(5, cwnd)), cwnd);
    }

    #[test]
    fn loss_halves_and_takes_one_segment_in_ns3() {
        let mut plain = RoundSender::new(ALGORITHM.build(&Spec::named("vegas")));
        plain.cc.on_event(Timestamp::ZERO, CongestionEvent::Loss);
        assert_eq!(plain.cwnd(), 5 * MSS);
        let mut ns3 = RoundSender::as_ns3("vegas");
        ns3.cc.on_event(Timestamp::ZERO, CongestionEvent::Loss);
        assert_eq!(ns3.cwnd(), 9 * MSS);
    }

    #[test]
    fn queue_of_1_5_segments_rounds_to_two() {
        let law = Vegas { is_in_segments: true, ..Vegas::default() };
        let mut sender = RoundSender::new(Ok(WindowControl::boxed(law)));
        [40_000, 40_000, 44_000].iter().for_each(|rtt| _ = sender.round(*rtt));
        let cwnd = sender.cwnd();
        assert_eq!(sender.round(40_000 * cwnd / (cwnd - MSS - MSS / 2)), cwnd);
    }

    #[test]
    fn thresholds_out_of_order_are_refused() {
        let spec = Spec::named("vegas").with("alpha", Value::Integer(5));
        assert_eq!(ALGORITHM.build(&spec).err().unwrap().key, "alpha");
    }
}
