//! The pulse: the rate moves above and below the base rate, so that an answer of cross traffic can be
//! seen.
//!
//! ```text
//! first quarter of the period     + A sin(pi t / (T/4))
//! the other three                 - A/3 sin(pi (t - T/4) / (3 T/4))        A = mu / 4
//! ```
//! Both lobes have an area of A T / (2 pi), so a period adds nothing. The rest of the period gives back the
//! bytes that the first quarter takes from the sendbox's queue. The short lobe is the high one because
//! the base rate bounds the bytes withheld and nothing bounds the bytes added.

use core::f64::consts::PI;

/// Height of the short lobe over the bottleneck rate.
const AMPLITUDE: f64 = 0.25;
/// Share of the period that it takes.
const UP_SHARE: f64 = 0.25;

/// Change of the rate by a pulse, as a share of the bottleneck rate, `phase` periods after the pulse
/// began. Between -1/12 and 1/4.
pub(super) fn pulse(phase: f64) -> f64 {
    let phase = phase - libm::floor(phase);
    if phase < UP_SHARE {
        AMPLITUDE * libm::sin(PI * phase / UP_SHARE)
    } else {
        let down = (phase - UP_SHARE) / (1.0 - UP_SHARE);
        -AMPLITUDE * UP_SHARE / (1.0 - UP_SHARE) * libm::sin(PI * down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integral(from: f64, to: f64) -> f64 {
        let steps = 100_000;
        let width = (to - from) / f64::from(steps);
        (0..steps).map(|step| pulse(from + (f64::from(step) + 0.5) * width) * width).sum()
    }

    #[test]
    fn a_period_adds_nothing() {
        assert!(integral(0.0, 1.0).abs() < 1e-9);
        assert!(integral(7.0, 10.0).abs() < 1e-8);
    }

    #[test]
    fn high_lobe_takes_8_ms_of_bottleneck() {
        let seconds = integral(0.0, 0.25) * 0.2;
        assert!((seconds - 0.2 / (8.0 * PI)).abs() < 1e-9, "{seconds}");
        assert!((seconds - 0.008).abs() < 1e-4, "{seconds}");
    }

    #[test]
    fn it_stays_within_its_amplitudes() {
        let values: alloc::vec::Vec<f64> = (0..1000).map(|at| pulse(f64::from(at) / 1e3)).collect();
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        assert!((most - 0.25).abs() < 1e-4 && (least + 0.25 / 3.0).abs() < 1e-4, "{least} {most}");
    }
}
