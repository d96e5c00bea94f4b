//! How much BBR keeps outstanding: the window, with and without losses (draft, section 4.2.3).

use super::{Bbr, Phase, Recovery, UNIT, scale};
use crate::cc::Measurement;
use crate::units::{ByteCount, Duration};

/// Segments outstanding in probe_rtt, and the smallest target (draft, section 4.2.3.3).
const MIN_PIPE_SEGMENTS: u64 = 4;
/// What a bundle keeps outstanding in probe_rtt instead, over B T.
const BUNDLE_PROBE_RTT_GAIN: u64 = UNIT / 2;
/// Segments of `ns3_extra_acked`.
const NS3_EXTRA_ACKED: u64 = 2;

impl Bbr {
    /// How much is handed over at once (draft, section 4.2.2): what 1 ms carries, at most 64 KiB.
    fn send_quantum(&self) -> ByteCount {
        let bits = self.pacing_rate.as_bits_per_sec();
        if self.config.ns3_quantum || bits < 1_200_000 {
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
        if self.phase == Phase::ProbeBw && self.cycle_index == 0 {
            bytes += self.mss * 2;
        }
        bytes
    }

    /// Bytes in flight before the newest acknowledgement. It tells of no more than leaves at once: of
    /// the rest that a measurement tells of, what was in flight has been replaced by then. Losses
    /// count whole: nothing says which of them the newest told of.
    pub(super) fn in_flight_before(&self, measurement: &Measurement) -> ByteCount {
        let newest = measurement.acked.min(self.send_quantum().max(self.mss * 2));
        self.in_flight + newest + measurement.lost.unwrap_or_default()
    }

    pub(super) fn save_cwnd(&mut self) {
        let is_whole = self.recovery == Recovery::Open && self.phase != Phase::ProbeRtt;
        self.prior_cwnd = if is_whole { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    pub(super) fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd);
    }

    pub(super) fn set_cwnd(&mut self, measurement: &Measurement) {
        let delivered = core::mem::replace(&mut self.delivered, measurement.delivered);
        let acked = if self.config.ns3_recovery {
            measurement.delivered.saturating_sub(delivered)
        } else {
            measurement.acked
        };
        let lost = measurement.lost.unwrap_or_default();
        match self.recovery {
            Recovery::Entering if self.config.ns3_recovery => self.enter_as_ns3(acked, lost),
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
                if self.config.ns3_extra_acked {
                    target += self.mss * NS3_EXTRA_ACKED;
                }
                let is_ns3 = self.config.ns3_recovery;
                let grown = if is_ns3 { self.grown_as_ns3(acked) } else { self.cwnd + acked };
                self.cwnd = grown.min(target);
            } else if self.cwnd < target || measurement.delivered < self.initial_cwnd {
                self.cwnd += acked;
            }
            self.cwnd = self.cwnd.max(self.mss * MIN_PIPE_SEGMENTS);
        }
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
    }

    /// What may be outstanding in probe_rtt.
    pub(super) fn probe_rtt_cwnd(&self) -> ByteCount {
        let least = self.mss * MIN_PIPE_SEGMENTS;
        if self.is_bundle { least.max(self.inflight_at(BUNDLE_PROBE_RTT_GAIN)) } else { least }
    }
}
