//! BBR's least round trip, and the phase that measures it again (draft, sections 4.1.2, 4.3.5).

use super::{Bbr, BbrPhase};
use crate::cc::Measurement;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// A least round trip not seen again for this long is measured again (draft, section 4.1.2.2).
const MIN_RTT_LIFE: Duration = Duration::from_secs(10);
/// Shortest stay in probe_rtt (draft, section 4.3.5).
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

impl Bbr {
    pub(super) fn update_min_rtt(&mut self, now: Timestamp, measurement: &Measurement) {
        self.is_min_rtt_expired =
            self.min_rtt.is_some() && now.saturating_since(self.min_rtt_at) > MIN_RTT_LIFE;
        let Some(rtt) = measurement.rtt.map(|rtt| rtt.min).filter(|rtt| !rtt.is_zero()) else {
            return;
        };
        if self.min_rtt.is_none() {
            let nominal = self.cwnd.per(rtt).unwrap_or(Rate::MAX);
            self.pacing_rate = self.paced(nominal);
        }
        if self.is_min_rtt_expired || self.min_rtt.is_none_or(|least| rtt <= least) {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = now;
        }
    }

    pub(super) fn check_probe_rtt(&mut self, now: Timestamp, measurement: &Measurement) {
        if self.phase != BbrPhase::ProbeRtt && self.is_min_rtt_expired && !self.is_idle_restart {
            // In ns-3 the phase begins before the window is saved, so that one saved earlier stays if it is larger.
            if !self.is_ns3 {
                self.save_cwnd();
            }
            self.phase = BbrPhase::ProbeRtt;
            if self.is_ns3 {
                self.save_cwnd();
            }
            self.reason = "least round trip is out of date";
            self.probe_rtt_until = None;
        }
        if self.phase == BbrPhase::ProbeRtt {
            self.probe_rtt(now, measurement);
        }
        if measurement.acked > ByteCount::ZERO {
            self.is_idle_restart = false;
        }
    }

    fn probe_rtt(&mut self, now: Timestamp, measurement: &Measurement) {
        self.held_back_until = Some(measurement.delivered + self.in_flight);
        let Some(until) = self.probe_rtt_until else {
            if self.in_flight <= self.probe_rtt_cwnd() {
                self.probe_rtt_until = Some(now + PROBE_RTT_TIME);
                self.is_probe_rtt_round_done = false;
                self.rounds.restart(measurement);
            }
            return;
        };
        self.is_probe_rtt_round_done |= self.is_round_start;
        if self.is_probe_rtt_round_done && now > until {
            self.min_rtt_at = now;
            self.restore_cwnd();
            if self.is_pipe_full {
                self.enter_probe_bw(now);
            } else {
                self.phase = BbrPhase::Startup;
            }
        }
    }
}
