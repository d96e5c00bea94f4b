//! How fast BBR sends and how much it keeps in flight (draft, sections 5.5.8 and 5.6).

use super::{Bbr3, Bbr3Phase, UNBOUNDED, percent, times};
use crate::units::{ByteCount, Duration, Rate};

/// Segments in flight at least, for a receiver that acknowledges every other one (BBR.MinPipeCwnd).
const MIN_PIPE_SEGMENTS: u64 = 4;
/// Share of the rate that pacing uses, in percent, so that a queue empties (BBR.PacingMarginPercent).
const PACED_PERCENT: u64 = 99;
/// Share of the excessive volume that other flows may use, in percent (BBR.Headroom).
const HEADROOM_PERCENT: u64 = 15;
/// A send quantum holds the bytes paced in this time, at most [`QUANTUM_MAX`].
const QUANTUM_TIME: Duration = Duration::from_millis(1);
/// Largest send quantum: the largest segment that a device cuts into packets (64 KiB).
const QUANTUM_MAX: ByteCount = ByteCount::new(64 << 10);
/// Quanta that a sender, its device and a receiver hold (BBR.offload_budget).
const OFFLOAD_QUANTA: u64 = 3;
/// Segments more in flight in up, or else a path of few segments would not be probed.
const UP_SEGMENTS: u64 = 2;

impl Bbr3 {
    /// The rate that all signals allow (BBR.bw).
    pub(super) fn bw(&self) -> Rate {
        self.max_bw.value().min(self.congestion.bw_shortterm)
    }

    /// Bytes that `rate` keeps in flight, times `gain` in percent.
    fn product(&self, rate: Rate, gain: u64) -> ByteCount {
        match self.delay.min_rtt {
            Some(rtt) => ByteCount::new(percent(rate.bytes_in(rtt).as_u64(), gain)),
            None => self.initial_cwnd,
        }
    }

    /// The bandwidth-delay product (BBR.bdp).
    pub(super) fn bdp(&self) -> ByteCount {
        self.product(self.bw(), 100)
    }

    /// Bytes that fill the path, unless congestion has taken them from the window.
    pub(super) fn target_inflight(&self) -> ByteCount {
        self.bdp().min(self.cwnd)
    }

    /// Bytes that keep a path of `rate` full.
    pub(super) fn inflight(&self, rate: Rate) -> ByteCount {
        self.in_quanta(self.product(rate, 100))
    }

    /// Most that the path needs in flight, aggregation included.
    pub(super) fn max_inflight(&self) -> ByteCount {
        let product = self.product(self.bw(), self.phase.gains().1);
        self.in_quanta(product + self.aggregation.excess())
    }

    fn in_quanta(&self, bytes: ByteCount) -> ByteCount {
        let quantum =
            self.pacing_rate.bytes_in(QUANTUM_TIME).min(QUANTUM_MAX).max(times(self.mss, 2));
        let bytes = bytes.max(times(quantum, OFFLOAD_QUANTA)).max(self.min_pipe());
        if self.phase == Bbr3Phase::Up { bytes + times(self.mss, UP_SEGMENTS) } else { bytes }
    }

    fn min_pipe(&self) -> ByteCount {
        times(self.mss, MIN_PIPE_SEGMENTS)
    }

    /// Bytes in flight before the newest acknowledgement, which covers at most two segments. The bytes of
    /// earlier acknowledgements in the measurement have been replaced in flight by then.
    pub(super) fn in_flight_before(&self) -> ByteCount {
        let newest = self.sample.newly_acked.min(times(self.mss, 2));
        self.in_flight + newest + self.sample.newly_lost
    }

    /// The long-term bound without the headroom for other flows.
    pub(super) fn inflight_with_headroom(&self) -> ByteCount {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = percent(self.inflight_longterm.as_u64(), HEADROOM_PERCENT);
        let headroom = ByteCount::new(headroom).max(self.mss);
        self.inflight_longterm.saturating_sub(headroom).max(self.min_pipe())
    }

    pub(super) fn probe_rtt_cwnd(&self) -> ByteCount {
        self.product(self.bw(), Bbr3Phase::ProbeRtt.gains().1).max(self.min_pipe())
    }

    /// The first window in a round trip, as fast as startup is.
    pub(super) fn init_pacing_rate(&mut self, rtt: Duration) {
        let nominal = self.initial_cwnd.per(rtt).unwrap_or(Rate::MAX);
        let bits = percent(nominal.as_bits_per_sec(), Bbr3Phase::Startup.gains().0);
        self.pacing_rate = Rate::from_bits_per_sec(bits);
    }

    /// Paces at `gain`, in percent. Until the pipe has been full, never slower than before.
    pub(super) fn pace(&mut self, gain: u64) {
        let bits = percent(percent(self.bw().as_bits_per_sec(), gain), PACED_PERCENT);
        let rate = Rate::from_bits_per_sec(bits);
        if rate > Rate::ZERO && (self.full_pipe.has_been || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    pub(super) fn set_cwnd(&mut self) {
        let acked = self.sample.newly_acked;
        if acked > ByteCount::ZERO {
            let target = self.max_inflight();
            if self.full_pipe.has_been {
                self.cwnd = (self.cwnd + acked).min(target);
            } else if self.cwnd < target || self.delivered < self.initial_cwnd {
                self.cwnd += acked;
            }
            self.cwnd = self.cwnd.max(self.min_pipe());
        }
        self.bound_cwnd();
    }

    /// Bounds the window by the phase and by losses.
    pub(super) fn bound_cwnd(&mut self) {
        let longterm = match self.phase {
            Bbr3Phase::Startup | Bbr3Phase::Drain => UNBOUNDED,
            Bbr3Phase::Down | Bbr3Phase::Refill | Bbr3Phase::Up => self.inflight_longterm,
            Bbr3Phase::Cruise | Bbr3Phase::ProbeRtt => self.inflight_with_headroom(),
        };
        let cap = longterm.min(self.congestion.inflight_shortterm).max(self.min_pipe());
        self.cwnd = self.cwnd.min(cap);
        if self.phase == Bbr3Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
    }
}
