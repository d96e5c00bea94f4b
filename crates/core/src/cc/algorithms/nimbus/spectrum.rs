//! The spectrum of the last 512 samples of a series, at the few frequencies that the detector asks for.
//!
//! ```text
//! X(k) = sum over j of x(j) exp(-2 pi i k j / 512)         bin k is k / 5.12 Hz at 10 ms a sample
//! ```
//! The samples lie in a ring, and j is the place in it: the place of the oldest sample turns the phase of
//! X(k) and leaves its magnitude. So a new sample changes one term of the sum, and nothing is transformed
//! again. A mean adds nothing to any bin but 0, which is left out: it need not be taken off first.

use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;
use core::ops::RangeInclusive;

/// Samples of the window: 5.12 s.
pub(super) const SAMPLES: usize = 512;
/// The bins that are kept: 4.7 to 11.3 Hz.
const BINS: RangeInclusive<usize> = 24..=58;

/// Cosine and sine of each of the 512 parts of a turn, for all spectra.
#[derive(Clone, Debug)]
pub(super) struct Turns(Vec<(f64, f64)>);

impl Turns {
    pub(super) fn new() -> Self {
        let angle = |part: usize| 2.0 * PI * part as f64 / SAMPLES as f64;
        Self((0..SAMPLES).map(|part| (libm::cos(angle(part)), -libm::sin(angle(part)))).collect())
    }
}

/// The window of one series.
#[derive(Clone, Debug)]
pub(super) struct Spectrum {
    samples: Vec<f64>,
    /// Where the next sample goes: the oldest, once the ring is full.
    next: usize,
    sums: Vec<(f64, f64)>,
}

impl Spectrum {
    /// 512 samples of zero.
    pub(super) fn new() -> Self {
        Self { samples: vec![0.0; SAMPLES], next: 0, sums: vec![(0.0, 0.0); BINS.count()] }
    }

    /// Replaces the oldest sample; `value` is finite.
    pub(super) fn push(&mut self, value: f64, turns: &Turns) {
        let change = value - self.samples[self.next];
        self.samples[self.next] = value;
        for (bin, sum) in BINS.zip(&mut self.sums) {
            let (cosine, sine) = turns.0[bin * self.next % SAMPLES];
            sum.0 += change * cosine;
            sum.1 += change * sine;
        }
        self.next = (self.next + 1) % SAMPLES;
    }

    /// The oldest sample.
    pub(super) fn oldest(&self) -> f64 {
        self.samples[self.next]
    }

    /// Mean of the `count` newest samples, 1 to 512.
    pub(super) fn recent_mean(&self, count: usize) -> f64 {
        let start = self.next + SAMPLES - count;
        let newest = (start..start + count).map(|at| self.samples[at % SAMPLES]);
        newest.sum::<f64>() / count as f64
    }

    /// The largest magnitude among `bins`. A bin that is not kept counts as 0.
    pub(super) fn peak(&self, bins: RangeInclusive<usize>) -> f64 {
        let kept = BINS.zip(&self.sums).filter(|(bin, _)| bins.contains(bin));
        kept.map(|(_, sum)| libm::hypot(sum.0, sum.1)).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cosine of `hertz` and height 3 on a mean of 1000, after more than a window of something else.
    fn tone(hertz: f64) -> Spectrum {
        let turns = Turns::new();
        let mut spectrum = Spectrum::new();
        for at in 0..700 {
            spectrum.push(f64::from(at), &turns);
        }
        for at in 0..SAMPLES {
            let angle = 2.0 * PI * hertz * at as f64 / 100.0;
            spectrum.push(1000.0 + 3.0 * libm::cos(angle), &turns);
        }
        spectrum
    }

    #[test]
    fn tone_fills_its_bin_alone_and_mean_none() {
        // Bin 26 is 26 / 5.12 = 5.08 Hz.
        let spectrum = tone(26.0 / 5.12);
        assert!((spectrum.peak(26..=26) - 3.0 * 256.0).abs() < 1e-6, "{}", spectrum.peak(26..=26));
        assert!(spectrum.peak(24..=25) < 1e-6 && spectrum.peak(27..=58) < 1e-6);
        assert!((spectrum.recent_mean(SAMPLES) - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn equals_the_transform_of_samples_after_any_history() {
        let spectrum = tone(7.3);
        for bin in BINS {
            let parts = (0..SAMPLES).map(|j| {
                let sample = spectrum.samples[(spectrum.next + j) % SAMPLES] - 1000.0;
                let angle = 2.0 * PI * (bin * j) as f64 / SAMPLES as f64;
                (sample * libm::cos(angle), sample * libm::sin(angle))
            });
            let (re, im) = parts.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            let whole = libm::hypot(re, im);
            assert!((spectrum.peak(bin..=bin) - whole).abs() < 1e-6, "bin {bin}: {whole}");
        }
    }

    #[test]
    fn oldest_and_newest_are_found_across_the_wrap() {
        let turns = Turns::new();
        let mut spectrum = Spectrum::new();
        for at in 0..600 {
            spectrum.push(f64::from(at), &turns);
        }
        assert_eq!(spectrum.oldest(), 88.0);
        assert_eq!(spectrum.recent_mean(100), 549.5);
    }
}
