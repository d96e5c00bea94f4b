//! PCC Proteus as a scavenger: a primary sender that also takes varying round trips for a rival's, and yields (Meng et
//! al., SIGCOMM 2020).
//!
//! ```text
//! u(x) = x^0.9 - 900 x max(0, dRTT/dT) - 11.35 x L - 1500 x d         d: deviation of the round trip in an interval, s
//! slope, d   without noise ([`super::pcc::Noise`]; section 5)
//! probing    2 pairs of intervals, which must agree (PCC-Uspace, CanMakeDecision)
//! ```
//! States and rate control as in [`super::pcc`].
//!
//! Departures: the same as in [`super::proteus_p`].
//!
//! It computes in floating point, so it runs in the simulator, in sendboxes and in the agent, but not as BPF.

use super::pcc::{Goal, MIN_WINDOW_MSS, Noise, Outcome, RateControl, utility};
use super::{Algorithm, Field};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "proteus_s",
    summary: "PCC Proteus, scavenger: yields when other flows make the round trip vary",
    sources: &["Meng et al.: PCC Proteus, SIGCOMM 2020", "PCCproject/PCC-Uspace"],
    params: &[],
    needs: &[Field::Rtt, Field::Lost],
    min_window_mss: MIN_WINDOW_MSS,
    // As with Vivace, the random order of probes moves the mean window.
    batch_tolerance: 0.2,
    build: &|_| Ok(RateControl::boxed(Scavenger::default())),
};

/// Weight of the deviation of the round trip in seconds (PCC-Uspace, kRttDeviationCoefficient: 0.0015 a microsecond).
/// Half of it yields to half as many rivals.
const DEVIATION_WEIGHT: f64 = 1500.0;

#[derive(Default)]
struct Scavenger {
    noise: Noise,
}

impl Goal for Scavenger {
    /// Two pairs, as in Vivace.
    const PAIRS: usize = 2;
    /// The rate rises only if both pairs agree.
    const RISING: usize = 2;
    /// The rate falls only if both pairs agree.
    const FALLING: usize = 2;

    fn utility(&mut self, outcome: &Outcome) -> f64 {
        let outcome = self.noise.filtered(*outcome);
        let penalty = DEVIATION_WEIGHT * outcome.deviation_s * outcome.sent_mbit_per_s;
        utility(&outcome, outcome.slope.max(0.0)) - penalty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_round_trips_lower_utility() {
        let of = |deviation_s| {
            let (slope, slope_error, rtt_s) = (0.02, 0.01, 0.03);
            let outcome = Outcome {
                sent_mbit_per_s: 10.0,
                slope,
                slope_error,
                rtt_s,
                deviation_s,
                ..<_>::default()
            };
            Scavenger::default().utility(&outcome)
        };
        assert!((of(0.0) - of(1e-3) - 15.0).abs() < 1e-9);
    }
}
