//! PCC Proteus as a primary sender: Vivace's control with less noise in it (Meng et al., SIGCOMM 2020).
//!
//! ```text
//! u(x) = x^0.9 - 900 x max(0, dRTT/dT) - 11.35 x L
//! slope    without noise ([`super::pcc::Noise`]; section 5)
//! probing  3 pairs of intervals: up if two agree on it, down if all three do (PCC-Uspace, CanMakeDecision)
//! ```
//! States and rate control as in [`super::pcc`].
//!
//! Departures, with reasons:
//! - All departures of [`super::pcc`].
//! - No filter by the distance between acknowledgements: a host may report several at once, without their distances.
//!
//! It computes in floating point, so it runs in the simulator, in sendboxes and in the agent, but not as BPF.

use super::pcc::{Goal, MIN_WINDOW_MSS, Noise, Outcome, RateControl, utility};
use super::{Algorithm, Field};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "proteus_p",
    summary: "PCC Proteus, primary: Vivace's control, tolerant of noise",
    sources: &["Meng et al.: PCC Proteus, SIGCOMM 2020", "PCCproject/PCC-Uspace"],
    params: &[],
    needs: &[Field::Rtt, Field::Lost],
    min_window_mss: MIN_WINDOW_MSS,
    // As with Vivace, the random order of probes moves the mean window.
    batch_tolerance: 0.2,
    build: &|_| Ok(RateControl::boxed(Primary::default())),
};

#[derive(Default)]
struct Primary {
    noise: Noise,
}

impl Goal for Primary {
    /// Three pairs, so that a majority can decide under noise.
    const PAIRS: usize = 3;
    /// Two of three pairs suffice for a higher rate.
    const RISING: usize = 2;
    /// The rate falls only if all three pairs agree.
    const FALLING: usize = 3;

    fn utility(&mut self, outcome: &Outcome) -> f64 {
        let outcome = self.noise.filtered(*outcome);
        utility(&outcome, outcome.slope.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rising_round_trips_count() {
        let of = |slope| {
            let outcome = Outcome { sent_mbit_per_s: 10.0, slope, rtt_s: 0.03, ..<_>::default() };
            Primary::default().utility(&outcome)
        };
        assert_eq!(of(-0.02), of(0.0));
        assert!(of(0.02) < of(0.0));
    }
}
