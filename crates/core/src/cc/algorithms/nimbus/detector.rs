//! Whether the traffic outside is elastic: it answers pulses at their own frequency, a round trip later.
//!
//! ```text
//! z     = mu S / R - S                               cross traffic, while a queue stands
//! eta   = peak |Z| in f +- 0.5 Hz / peak |Z| in (f + 1.5 Hz, 2 f - 0.5 Hz)
//! E    += 0.01 (eta - E)                             every 10 ms
//! ```
//! The acknowledged bytes left at the rate S and arrived at the rate R. Z is the spectrum of z over 5.12 s.
//! By the published code, not by the paper, eta is bounded:
//! - where |Z(f)| is below a quarter of |(mu - R)(f)|, at most 3, and less in proportion;
//! - where cross traffic is below 0.1 mu (mean of 1.28 s) E is 0;
//! - where it is above 0.9 mu, 6 is used instead: the own part is too small to measure;
//! - where S does not show the pulse (a ratio as eta's below 2), 3 is used instead.

use core::ops::RangeInclusive;

use super::spectrum::{SAMPLES, Spectrum, Turns};

/// Gain of the mean of eta: a second.
const GAIN: f64 = 0.01;
/// Samples before eta is looked at: 10 s.
const FIRST: u32 = 1000;
/// Share of the response of R that z must have.
const RESPONSE: f64 = 0.25;
/// eta where it has not.
const WEAK: f64 = 3.0;
/// Ratio from which S shows the sendbox's own pulse.
const VISIBLE: f64 = 2.0;
/// eta while S does not show the own pulse.
const INVISIBLE: f64 = 3.0;
/// Samples in the mean of z: a quarter of the window.
const MEAN_SAMPLES: usize = SAMPLES / 4;
/// Share of mu below which cross traffic is too small to be elastic: eta is 0.
const FEW: f64 = 0.1;
/// Share of mu above which cross traffic is nearly alone on the path: eta is [`NEARLY_ALONE`].
const MOST: f64 = 0.9;
/// eta above [`MOST`].
const NEARLY_ALONE: f64 = 6.0;
/// Where there is no noise at all eta would be infinite.
const ETA_MAX: f64 = 100.0;

/// A frequency of pulses with the bins of both peaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frequency {
    /// In hertz.
    pub(super) hertz: f64,
    first: usize,
    last: usize,
    beyond: usize,
    end: usize,
}

impl Frequency {
    /// While holding the delay: bins 29 to 33 (5.66 to 6.45 Hz) over 39 to 58 (7.6 to 11.3 Hz).
    pub(super) const DELAY: Self = Self { hertz: 6.0, first: 29, last: 33, beyond: 39, end: 58 };
    /// While competing: bins 24 to 28 (4.69 to 5.47 Hz) over 34 to 48 (6.6 to 9.4 Hz).
    pub(super) const COMPETE: Self = Self { hertz: 5.0, first: 24, last: 28, beyond: 34, end: 48 };

    fn peak(&self) -> RangeInclusive<usize> {
        self.first..=self.last
    }

    fn ratio(&self, spectrum: &Spectrum) -> f64 {
        let noise = spectrum.peak(self.beyond..=self.end);
        let ratio = spectrum.peak(self.peak()) / noise;
        if ratio.is_nan() { 0.0 } else { ratio.min(ETA_MAX) }
    }
}

/// Rate of the cross traffic in bytes per second: z, within the path's capacity. 0 where nothing arrives.
pub(super) fn cross_traffic(mu: f64, send: f64, delivery: f64) -> f64 {
    if delivery <= 0.0 {
        return 0.0;
    }
    (mu * send / delivery - send).clamp(-mu, mu)
}

/// The detector's state.
#[derive(Clone, Debug)]
pub(super) struct Detector {
    turns: Turns,
    cross: Spectrum,
    sent: Spectrum,
    delivered: Spectrum,
    count: u32,
    elasticity: f64,
}

impl Detector {
    pub(super) fn new() -> Self {
        let empty = Spectrum::new();
        Self {
            turns: Turns::new(),
            cross: empty.clone(),
            sent: empty.clone(),
            delivered: empty,
            count: 0,
            elasticity: 0.0,
        }
    }

    /// Takes the rates of the last 10 ms (bytes per second), `mu` above 0, while pulses have this frequency.
    pub(super) fn push(&mut self, mu: f64, send: f64, delivery: f64, pulses: &Frequency) {
        self.cross.push(cross_traffic(mu, send, delivery), &self.turns);
        self.sent.push(send, &self.turns);
        self.delivered.push(delivery, &self.turns);
        self.count = self.count.saturating_add(1);
        if self.count < FIRST {
            return;
        }
        let share = self.cross_share(mu);
        if share < FEW {
            self.elasticity = 0.0;
            return;
        }
        let eta = if share > MOST {
            NEARLY_ALONE
        } else if pulses.ratio(&self.sent) < VISIBLE {
            INVISIBLE
        } else {
            self.eta(pulses)
        };
        self.elasticity += GAIN * (eta - self.elasticity);
    }

    /// R stands for mu - R: a constant is in no bin.
    fn eta(&self, pulses: &Frequency) -> f64 {
        let eta = pulses.ratio(&self.cross);
        let needed = RESPONSE * self.delivered.peak(pulses.peak());
        let seen = self.cross.peak(pulses.peak());
        if seen < needed { eta.min(WEAK) * seen / needed } else { eta }
    }

    /// Rate of the cross traffic over `mu`, by the mean of the last quarter.
    pub(super) fn cross_share(&self, mu: f64) -> f64 {
        self.cross.recent_mean(MEAN_SAMPLES) / mu
    }

    /// The mean of eta, 0 before it is looked at.
    pub(super) fn elasticity(&self) -> f64 {
        self.elasticity
    }

    /// Delivery rate of 5.12 s ago, in bytes per second.
    pub(super) fn delivered_before(&self) -> f64 {
        self.delivered.oldest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::algorithms::nimbus::pulse::pulse;
    use crate::random::Streams;

    const MU: f64 = 12e6;

    /// Elasticity after 20 s of a full path. `others` gives the cross traffic for the own rate of five
    /// samples ago.
    fn after(mut others: impl FnMut(usize, f64) -> f64) -> f64 {
        let pulses = Frequency::DELAY;
        let mut detector = Detector::new();
        let mut own = [MU / 2.0; 6];
        for at in 0..2000 {
            own.rotate_right(1);
            own[0] = MU * (0.5 + pulse(pulses.hertz * at as f64 / 100.0));
            let cross = others(at, own[5]);
            // A queue stands, so the own arrivals are the own share of the bottleneck.
            detector.push(MU, own[0], MU * own[0] / (own[0] + cross), &pulses);
        }
        detector.elasticity()
    }

    #[test]
    fn answering_traffic_is_elastic_and_other_is_not() {
        let mut noise = Streams::new(1).stream("noise");
        let mut shaken = move || MU * 0.05 * (noise.unit() - 0.5);
        let answering = after(|_, own| MU - own + shaken());
        assert!(answering > 3.0, "{answering}");
        let mut noise = Streams::new(1).stream("noise");
        let open_loop = after(|_, _| MU * (0.5 + 0.3 * (noise.unit() - 0.5)));
        assert!(open_loop < 2.0, "{open_loop}");
    }

    #[test]
    fn nobody_outside_is_not_elastic() {
        assert_eq!(after(|_, _| 0.0), 0.0);
    }

    #[test]
    fn nothing_is_said_in_the_first_ten_seconds() {
        let mut detector = Detector::new();
        for _ in 1..FIRST {
            detector.push(MU, MU, 0.02 * MU, &Frequency::DELAY);
            assert_eq!(detector.elasticity(), 0.0);
        }
        detector.push(MU, MU, 0.02 * MU, &Frequency::DELAY);
        assert!(detector.elasticity() > 0.0);
    }

    #[test]
    fn z_is_what_is_missing_of_the_bottleneck() {
        assert_eq!(cross_traffic(12e6, 6e6, 6e6), 6e6);
        assert_eq!(cross_traffic(12e6, 6e6, 4e6), 12e6);
        assert_eq!(cross_traffic(12e6, 12e6, 12e6), 0.0);
        assert_eq!(cross_traffic(12e6, 6e6, 0.0), 0.0);
        assert_eq!(cross_traffic(12e6, 6e6, 1.0), 12e6, "no more than the path carries");
    }

    #[test]
    fn bins_are_those_of_the_frequencies() {
        let hertz = |bin: usize| bin as f64 / 5.12;
        for it in [Frequency::DELAY, Frequency::COMPETE] {
            let f = it.hertz;
            assert!(hertz(it.first) >= f - 0.5 && hertz(it.first - 1) < f - 0.5);
            assert!(hertz(it.last) <= f + 0.5 && hertz(it.last + 1) > f + 0.5);
            assert!(hertz(it.beyond) > f + 1.5 && hertz(it.beyond - 1) <= f + 1.5);
            assert!(hertz(it.end) < 2.0 * f - 0.5 && hertz(it.end + 1) >= 2.0 * f - 0.5);
        }
    }
}
