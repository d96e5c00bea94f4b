//! The controllers of delay mode: how fast, while no cross traffic fills the buffer.
//!
//! ```text
//! basic_delay   r = S + 0.8 (mu - z - S) - 0.5 mu (rtt - d base) / rtt           d = 1.25
//! copa          W += v mss acked / (W/2) where rtt mss > (rtt - 1.2 base) 0.95 W, else -=; r = W / rtt
//! ```
//! z is the rate of the cross traffic ([`super::detector`]). After competing d begins at rtt/base and
//! falls by 0.05 each 100 ms. So the queue left by the cross traffic is not drained at once. v doubles
//! with each round trip in one direction, up to 32, and is 1 after a change of it.

use alloc::string::String;

use super::Seen;
use super::detector::cross_traffic;
use crate::spec::{Param, Quantity};

/// The parameter for the controller of delay mode.
pub(super) const DELAY: Param<NimbusLaw> =
    Param::new("delay", "controller of delay mode").or(BASIC_DELAY);
/// Default value of [`DELAY`].
const BASIC_DELAY: NimbusLaw = NimbusLaw::BasicDelay { target: DELAY_TARGET };

/// basic_delay: share of the unused rate that one decision adds.
const TOWARDS_SPARE: f64 = 0.8;
/// basic_delay: gain on the excess delay, in units of mu. A larger one drains a queue faster.
const DELAY_GAIN: f64 = 0.5;
/// basic_delay: round trip to hold, over the base. A larger one keeps a longer queue.
pub(super) const DELAY_TARGET: f64 = 1.25;
/// basic_delay: decline of a raised target towards [`DELAY_TARGET`], in bases for each second.
const DECLINE_PER_S: f64 = 0.5;
/// copa: round trip over the base above which queueing counts.
const COPA_BASES: f64 = 1.2;
/// copa: share of the queueing delay beyond [`COPA_BASES`] that counts.
const COPA_SHARE: f64 = 0.95;
/// copa: largest velocity. It doubles each time while the window moves in one direction.
const VELOCITY_MAX: f64 = 32.0;
/// copa: least window in bytes.
const WINDOW_MIN: f64 = 15_000.0;
/// copa: largest window in bytes, beyond any path. A window without a queue would otherwise grow
/// for ever.
const WINDOW_MAX: f64 = 1e12;

/// A controller with its state.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum NimbusLaw {
    /// Holds a round trip of `target` bases.
    BasicDelay { target: f64 },
    /// Steers a window.
    Copa(Copa),
}

impl Quantity for NimbusLaw {
    /// The values of `delay`.
    const WHAT: &'static str = "basic_delay or copa";
    fn read(text: &str) -> Option<Self> {
        match text {
            "basic_delay" => Some(BASIC_DELAY),
            "copa" => Some(Self::Copa(Copa::default())),
            _ => None,
        }
    }
    fn written(&self) -> String {
        match self {
            Self::BasicDelay { .. } => "basic_delay".into(),
            Self::Copa(_) => "copa".into(),
        }
    }
}

impl NimbusLaw {
    /// Begins with the present queue.
    pub(super) fn restart(&mut self, now_s: f64, seen: &Seen) {
        match self {
            Self::BasicDelay { target } => *target = (seen.rtt_s / seen.base_s).max(DELAY_TARGET),
            Self::Copa(copa) => {
                let bytes = (seen.delivery * seen.rtt_s).clamp(WINDOW_MIN, WINDOW_MAX);
                *copa = Copa { bytes, compared_bytes: bytes, compared_s: now_s, ..Copa::default() };
            }
        }
    }

    /// `acked_bytes` more have arrived.
    pub(super) fn on_acked(&mut self, now_s: f64, seen: &Seen, acked_bytes: f64, mss_bytes: f64) {
        if let Self::Copa(copa) = self {
            copa.on_acked(now_s, seen, acked_bytes, mss_bytes);
        }
    }

    /// The rate in bytes per second, `dt_s` after the last call.
    pub(super) fn rate(&mut self, seen: &Seen, mu: f64, dt_s: f64) -> f64 {
        match self {
            Self::BasicDelay { target } => {
                let spare = mu - cross_traffic(mu, seen.send, seen.delivery) - seen.send;
                let excess = (seen.rtt_s - *target * seen.base_s) / seen.rtt_s;
                *target = (*target - DECLINE_PER_S * dt_s).max(DELAY_TARGET);
                seen.send + TOWARDS_SPARE * spare - DELAY_GAIN * mu * excess
            }
            Self::Copa(copa) => copa.bytes / seen.rtt_s,
        }
    }
}

/// State of copa.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Copa {
    bytes: f64,
    velocity: f64,
    is_growing: bool,
    /// Window and time of the last comparison, a round trip ago.
    compared_bytes: f64,
    compared_s: f64,
}

impl Default for Copa {
    fn default() -> Self {
        Self {
            bytes: WINDOW_MIN,
            velocity: 1.0,
            is_growing: true,
            compared_bytes: WINDOW_MIN,
            compared_s: 0.0,
        }
    }
}

impl Copa {
    fn on_acked(&mut self, now_s: f64, seen: &Seen, acked_bytes: f64, mss_bytes: f64) {
        if now_s - self.compared_s >= seen.rtt_s {
            let is_growing = self.bytes > self.compared_bytes;
            let kept = is_growing == self.is_growing;
            self.velocity = if kept { (2.0 * self.velocity).min(VELOCITY_MAX) } else { 1.0 };
            (self.is_growing, self.compared_bytes, self.compared_s) =
                (is_growing, self.bytes, now_s);
        }
        let queued_s = seen.rtt_s - COPA_BASES * seen.base_s;
        let is_below = seen.rtt_s * mss_bytes > queued_s * COPA_SHARE * self.bytes;
        let step = self.velocity * mss_bytes * acked_bytes / (self.bytes / 2.0);
        // Twice in a report is faster than any round trip allows.
        let step = step.min(self.bytes / 2.0);
        let bytes = self.bytes + if is_below { step } else { -step };
        self.bytes = bytes.clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Spec, Value};

    const SEEN: Seen = Seen { rtt_s: 0.05, base_s: 0.05, send: 6e6, delivery: 6e6 };
    const MU: f64 = 12e6;

    fn law(name: &str) -> NimbusLaw {
        NimbusLaw::read(name).unwrap()
    }

    #[test]
    fn basic_delay_rests_at_125_percent_of_base() {
        let mut law = law("basic_delay");
        let full = Seen { rtt_s: 0.0625, send: MU, delivery: MU, ..SEEN };
        assert_eq!(law.rate(&full, MU, 0.01), MU);
        // Without a queue it goes up by an eighth of mu, at twice the base down by 3/16 of it.
        assert_eq!(law.rate(&SEEN, MU, 0.01), 6e6 + MU / 8.0);
        let long = Seen { rtt_s: 0.1, send: MU, delivery: MU, ..SEEN };
        assert_eq!(law.rate(&long, MU, 0.01), MU - MU * 3.0 / 16.0);
    }

    #[test]
    fn back_from_competing_basic_delay_takes_its_time() {
        let mut law = law("basic_delay");
        let long = Seen { rtt_s: 0.1, send: MU, delivery: MU, ..SEEN };
        law.restart(0.0, &long);
        assert_eq!(law.rate(&long, MU, 0.1), MU);
        assert!((law.rate(&long, MU, 0.1) - (MU - MU * 0.5 * 0.025)).abs() < 1.0);
    }

    #[test]
    fn copa_grows_two_packets_per_round_and_accelerates() {
        let mut law = law("copa");
        law.restart(0.0, &Seen { delivery: MU, ..SEEN });
        let NimbusLaw::Copa(start) = law else { unreachable!() };
        assert_eq!(start.bytes, 600_000.0);
        let seen = Seen { rtt_s: 0.05, ..SEEN };
        law.on_acked(0.01, &seen, 600_000.0, 1500.0);
        let NimbusLaw::Copa(copa) = law else { unreachable!() };
        assert_eq!(copa.bytes, 603_000.0);
        law.on_acked(0.06, &seen, 603_000.0, 1500.0);
        let NimbusLaw::Copa(copa) = law else { unreachable!() };
        assert_eq!((copa.bytes, copa.velocity), (609_000.0, 2.0));
        let queued = Seen { rtt_s: 0.08, ..SEEN };
        law.on_acked(0.07, &queued, 609_000.0, 1500.0);
        let NimbusLaw::Copa(copa) = law else { unreachable!() };
        assert_eq!(copa.bytes, 603_000.0);
        assert_eq!(law.rate(&queued, MU, 0.01), 603_000.0 / 0.08);
    }

    #[test]
    fn another_law_is_refused() {
        let spec = Spec::named("nimbus").with("delay", Value::Text("vegas".into()));
        let error = DELAY.of(&spec).err().unwrap();
        assert_eq!(error.to_string(), "delay = \"vegas\": allowed is basic_delay or copa");
    }
}
