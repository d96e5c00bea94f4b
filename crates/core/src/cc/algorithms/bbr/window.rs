//! How much BBR keeps outstanding: the window, with and without losses (draft, section 4.2.3).

use super::{Bbr, BbrPhase, Recovery, UNIT, scale};
use crate::cc::Measurement;
use crate::units::{ByteCount, Duration};

/// Segments outstanding in probe_rtt, and the smallest target (draft, section 4.2.3.3).
const MIN_PIPE_SEGMENTS: u64 = 4;
/// Bytes that a bundle keeps outstanding in probe_rtt instead, over B T.
const BUNDLE_PROBE_RTT_GAIN: u64 = UNIT / 2;
/// Segments more for aggregated ACKs in ns-3.
const NS3_EXTRA_ACKED: u64 = 2;

impl Bbr {
    /// Bytes handed over at once (draft, section 4.2.2): 1 ms at the pacing rate, at most 64 KiB.
    fn send_quantum(&self) -> ByteCount {
        let bits = self.pacing_rate.as_bits_per_sec();
        if self.is_ns3 || bits < 1_200_000 {
            self.mss
        } else if bits < 24_000_000 {
            self.mss * 2
        } else {
            self.pacing_rate.bytes_in(Duration::from_millis(1)).min(ByteCount::new(64 * 1024))
        }
    }

    /// Bytes that keep the path full at `gain` (draft, section 4.2.3.2).
    pub(super) fn inflight_at(&self, gain: u64) -> ByteCount {
        let Some(min_rtt) = self.min_rtt else {
            return self.initial_cwnd;
        };
        let product = self.bandwidth.value().bytes_in(min_rtt);
        let mut bytes = ByteCount::new(scale(product.as_u64(), gain, UNIT));
        bytes += self.send_quantum() * 3;
        if self.phase == BbrPhase::ProbeBw && self.cycle_index == 0 {
            bytes += self.mss * 2;
        }
        bytes
    }

    /// Bytes in flight before the newest acknowledgement. One acknowledgement covers no more than one
    /// burst. The bytes of earlier acknowledgements in the measurement have been replaced in flight
    /// by then. Losses count whole: nothing says how many the newest acknowledgement reported.
    pub(super) fn in_flight_before(&self, measurement: &Measurement) -> ByteCount {
        let newest = measurement.acked.min(self.send_quantum().max(self.mss * 2));
        self.in_flight + newest + measurement.lost.unwrap_or_default()
    }

    pub(super) fn save_cwnd(&mut self) {
        let is_whole = self.recovery == Recovery::Open && self.phase != BbrPhase::ProbeRtt;
        self.prior_cwnd = if is_whole { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    pub(super) fn set_cwnd(&mut self, measurement: &Measurement) {
        let delivered = core::mem::replace(&mut self.delivered, measurement.delivered);
        let acked = if self.is_ns3 {
            measurement.delivered.saturating_sub(delivered)
        } else {
            measurement.acked
        };
        let lost = measurement.lost.unwrap_or_default();
        match self.recovery {
            Recovery::Entering if self.is_ns3 => self.enter_as_ns3(acked, lost),
            Recovery::Entering => {
                self.cwnd = self.in_flight + acked.max(self.mss);
                self.recovery = Recovery::Conserving(measurement.delivered);
                self.rounds.restart(measurement);
            }
            Recovery::Open => {}
            Recovery::Conserving(_) | Recovery::Recovering => {
                self.cwnd = self.cwnd.saturating_sub(lost).max(self.mss);
            }
        }
        if let Recovery::Conserving(_) = self.recovery {
            self.cwnd = self.cwnd.max(self.in_flight + acked);
        } else if acked > ByteCount::ZERO {
            let mut target = self.inflight_at(self.cwnd_gain());
            if self.is_pipe_full {
                if self.is_ns3 {
                    target += self.mss * NS3_EXTRA_ACKED;
                    self.cwnd = self.grown_as_ns3(acked).min(target);
                } else {
                    self.cwnd = (self.cwnd + acked).min(target);
                }
            } else if self.cwnd < target || measurement.delivered < self.initial_cwnd {
                self.cwnd += acked;
            }
            self.cwnd = self.cwnd.max(self.mss * MIN_PIPE_SEGMENTS);
        }
        if self.phase == BbrPhase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
    }

    /// Bytes that may be outstanding in probe_rtt.
    pub(super) fn probe_rtt_cwnd(&self) -> ByteCount {
        let least = self.mss * MIN_PIPE_SEGMENTS;
        if self.is_bundle { least.max(self.inflight_at(BUNDLE_PROBE_RTT_GAIN)) } else { least }
    }
}
