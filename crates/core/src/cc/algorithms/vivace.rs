//! PCC Vivace: moves the rate along the gradient of a utility of rate, delay and loss (Dong et al., NSDI 2018).
//!
//! ```text
//! u(x) = x^0.9 - 900 x dRTT/dT - 11.35 x L            of x Mbit/s, dRTT/dT the slope of the round trip, L the share lost
//! slope    below 0.01 either way counts as none
//! probing  2 pairs of intervals, which must agree
//! ```
//! States and rate control as in [`super::pcc`].
//!
//! Departures: the same as in [`super::pcc`].
//!
//! It computes in floating point, so it runs in the simulator, in sendboxes and in the agent, but not as BPF.

use super::pcc::{Goal, MIN_WINDOW_MSS, Outcome, RateControl, utility};
use super::{Algorithm, Field};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "vivace",
    summary: "PCC Vivace: gradient ascent on a utility of rate, delay and loss",
    sources: &[
        "Dong et al.: PCC Vivace, NSDI 2018",
        "PCCproject/PCC-Uspace",
        "PCCproject/PCC-Kernel",
    ],
    params: &[],
    needs: &[Field::Rtt, Field::Lost],
    min_window_mss: MIN_WINDOW_MSS,
    // The window follows a rate that is probed in random order, which moves the mean.
    batch_tolerance: 0.2,
    build: &|_| Ok(RateControl::boxed(Vivace)),
};

/// Slope of the round trip that counts as none, in seconds a second (paper, section 5): clocks and bursts make as much.
const SLOPE_MIN: f64 = 0.01;

struct Vivace;

impl Goal for Vivace {
    /// Two pairs in a probe (Vivace paper).
    const PAIRS: usize = 2;
    /// The rate rises only if both pairs agree.
    const RISING: usize = 2;
    /// The rate falls only if both pairs agree.
    const FALLING: usize = 2;

    fn utility(&mut self, outcome: &Outcome) -> f64 {
        let is_noise = libm::fabs(outcome.slope) < SLOPE_MIN;
        utility(outcome, if is_noise { 0.0 } else { outcome.slope })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falling_round_trips_are_rewarded() {
        let of =
            |slope| Vivace.utility(&Outcome { sent_mbit_per_s: 10.0, slope, ..<_>::default() });
        assert!(of(-0.02) > of(0.0) && of(0.0) > of(0.02));
        assert_eq!([of(-0.009), of(0.009)], [of(0.0); 2]);
    }

    #[test]
    fn loss_of_five_percent_is_the_limit() {
        let of =
            |rate, loss| Vivace.utility(&Outcome { sent_mbit_per_s: rate, loss, ..<_>::default() });
        assert!(of(105.0, 0.045) > of(95.0, 0.045));
        assert!(of(105.0, 0.055) < of(95.0, 0.055));
    }
}
