//! How closely a greedy flow follows the baseline's flow over time.
//!
//! ```text
//! x(t)       mean over runs of the window, bitrate or round trip in the bin at t
//! NRMSE(x)   sqrt(mean over t of (x(t) - base(t))^2) / mean over t of base(t)
//! ```
//! The bins lie within `[curves]` of the plan. Without noise an arm with the same behaviour has no error.
//! A second arm like the baseline shows how much chance adds.

use std::ops::Range;
use std::time::Duration;

use super::ArmSummary;
use crate::metrics::Metrics;
use crate::metrics::statistics::mean;
use crate::plan::curves::{BINS, Curves};
use crate::store::{Bin, OverTime, Run, Store, StoreError};

/// Delay of a window that never reached half a BDP (ms): more than any run takes.
const NEVER_MS: f64 = 1e9;

/// A quantity of a bin, with the name of its curve's error in front.
type Quantity = (&'static str, fn(&Bin) -> f64);

/// Quantities that are compared over time.
const QUANTITIES: [Quantity; 3] = [
    ("nrmse_cwnd", |bin| bin.cwnd_segments),
    ("nrmse_bitrate", |bin| bin.throughput_mbps),
    ("nrmse_rtt", |bin| bin.srtt_ms),
];
/// The payload read, of [`QUANTITIES`].
const BITRATE: fn(&Bin) -> f64 = QUANTITIES[1].1;

/// One run of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
struct Trial {
    /// Bins from the start of the run.
    bins: Vec<Bin>,
    /// Segments retransmitted in slow start.
    resent: f64,
    /// Largest window in slow start (segments).
    peak: f64,
    /// From the start until the window reached half a BDP (ms).
    half_bdp_after_ms: Option<f64>,
}

impl Trial {
    /// A trial of a connection whose window was `windows` (s, segments).
    fn new(
        curves: &Curves,
        over_time: &OverTime,
        windows: &[(f64, f64)],
        half_bdp_after_ms: Option<f64>,
    ) -> Self {
        let end_s = curves.slow_start.as_secs_f64();
        let early = windows.iter().filter(|(at, _)| *at < end_s);
        let peak = early.map(|(_, segments)| *segments).fold(0.0, f64::max);
        // Times of bins are sums of tenths, which floats only approximate.
        let is_early = |bin: &&Bin| bin.at_s < end_s - BINS.start().as_secs_f64() / 2.0;
        let resent = over_time.bins.iter().filter(is_early).map(|bin| bin.retransmissions).sum();
        let bins = over_time.in_bins_of(curves.store_bins()).bins;
        Self { bins, resent, peak, half_bdp_after_ms }
    }
}

/// Adds comparison metrics to the flows of `arm`. The first runs are the arm's, the second the baseline's.
pub(super) fn compare(
    store: &Store,
    curves: &Curves,
    [own, base]: [&[&Run]; 2],
    arm: &mut ArmSummary,
) -> Result<(), StoreError> {
    for flow in &mut arm.flows {
        let own = trials(store, curves, own, &flow.name)?;
        let base = trials(store, curves, base, &flow.name)?;
        if !own.is_empty() && !base.is_empty() {
            differences(curves, &own, &base, &mut flow.metrics);
        }
    }
    Ok(())
}

/// The flow `name` of each of `runs` that has data until the end of the comparison.
fn trials(
    store: &Store,
    curves: &Curves,
    runs: &[&Run],
    name: &str,
) -> Result<Vec<Trial>, StoreError> {
    let mut trials = Vec::new();
    for run in runs {
        let over_time = store.connection_over_time(run.id, name)?;
        let windows = store.series(run.id, "flow", name, "cwnd_segments")?;
        let flow = run.flows.iter().find(|flow| flow.name == name);
        let half = flow.and_then(|flow| flow.metrics.get("half_bdp_after_ms"));
        trials.push(Trial::new(curves, &over_time, &windows, half));
    }
    trials.retain(|trial| trial.bins.len() >= bins(curves).end);
    Ok(trials)
}

/// The bins in which curves are compared.
fn bins(curves: &Curves) -> Range<usize> {
    let place = |at: Duration| (at.as_secs_f64() / curves.bin.as_secs_f64()).round() as usize;
    place(curves.from)..place(curves.to)
}

fn differences(curves: &Curves, own: &[Trial], base: &[Trial], out: &mut Metrics) {
    let bins = bins(curves);
    for (name, of) in QUANTITIES {
        let error = nrmse(&means(own, of, &bins), &means(base, of, &bins));
        out.put(name, error.map(|error| 100.0 * error));
    }
    let over = |trials: &[Trial], of: fn(&Trial) -> f64| mean(trials.iter().map(of));
    let percent = |both: [Option<f64>; 2]| {
        let [own, base] = [both[0]?, both[1]?];
        (base > 0.0).then(|| 100.0 * (own / base - 1.0))
    };
    let bitrate = |trials| mean(means(trials, BITRATE, &bins).into_iter());
    out.put("bitrate_off", percent([bitrate(own), bitrate(base)]));
    let resent = [own, base].map(|trials| over(trials, |trial| trial.resent));
    let peak = [own, base].map(|trials| over(trials, |trial| trial.peak));
    out.put("slow_start_resent", resent[0]);
    out.put("slow_start_peak", peak[0]);
    out.put("slow_start_peak_off", percent(peak));
    out.put(
        "slow_start_resent_beyond",
        resent[0].zip(resent[1]).map(|(own, base)| own - 2.0 * base),
    );
    // If one run never reached half a BDP, the runs have no mean.
    let half = |trials: &[Trial]| {
        let all = trials.iter().map(|trial| trial.half_bdp_after_ms);
        mean(all.collect::<Option<Vec<_>>>()?.into_iter())
    };
    let later = half(base).map(|base| half(own).map_or(NEVER_MS, |own| own - base));
    out.put("half_bdp_later_ms", later);
}

/// The mean over `trials` in each of `bins`.
fn means(trials: &[Trial], of: fn(&Bin) -> f64, bins: &Range<usize>) -> Vec<f64> {
    let at = |bin: usize| mean(trials.iter().map(|trial| of(&trial.bins[bin])));
    bins.clone().filter_map(at).collect()
}

/// The root mean square of the difference of two curves, over the mean of the second; `None` if that mean
/// is not above 0.
fn nrmse(seen: &[f64], reference: &[f64]) -> Option<f64> {
    let squares = seen.iter().zip(reference).map(|(seen, reference)| (seen - reference).powi(2));
    let level = mean(reference.iter().copied()).filter(|level| *level > 0.0)?;
    Some(mean(squares)?.sqrt() / level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Curves {
        let ms = Duration::from_millis;
        Curves { from: ms(1000), to: ms(14_500), bin: ms(100), slow_start: ms(2000) }
    }

    /// A sawtooth of 100 to 150 segments over 5 s at 40 Mbit/s, all values multiplied by `scale`. 12
    /// segments are retransmitted in slow start and 30 later.
    fn trial(scale: f64) -> Trial {
        let bin = |index: usize| Bin {
            at_s: index as f64 / 10.0,
            cwnd_segments: scale * (100.0 + (index % 50) as f64),
            srtt_ms: scale * 60.0,
            throughput_mbps: scale * 38.0,
            retransmissions: match index {
                4 | 19 => scale * 6.0,
                20 => 30.0,
                _ => 0.0,
            },
        };
        let windows = [(0.0, 10.0), (0.4, scale * 200.0), (1.99, 20.0), (2.0, 900.0)];
        let over_time = OverTime { bins: (0..150).map(bin).collect() };
        Trial::new(&curves(), &over_time, &windows, Some(100.0 * scale))
    }

    fn found(own: &[Trial], base: &[Trial]) -> impl Fn(&str) -> f64 + use<> {
        let mut metrics = Metrics::default();
        differences(&curves(), own, base, &mut metrics);
        move |name| metrics.get(name).unwrap()
    }

    #[test]
    fn an_error_is_relative_to_the_reference_mean() {
        assert_eq!(nrmse(&[3.0, 1.0], &[2.0, 2.0]), Some(0.5));
        assert_eq!(nrmse(&[2.0, 6.0], &[2.0, 2.0]), Some(8_f64.sqrt() / 2.0));
        assert_eq!(nrmse(&[1.0], &[0.0]), None);
        assert_eq!(nrmse(&[], &[]), None);
    }

    #[test]
    fn curves_are_means_over_runs_within_their_time() {
        // Runs are 0.9 and 1.1 times their arm's values: their mean is the arm's.
        let both = |scale: f64| [trial(scale * 0.9), trial(scale * 1.1)];
        let get = found(&both(1.2), &both(1.0));
        let near = |name: &str, expected: f64| {
            assert!((get(name) - expected).abs() < 1e-6, "{name} = {}", get(name));
        };
        near("nrmse_rtt", 20.0);
        near("nrmse_bitrate", 20.0);
        // The sawtooth's error exceeds its scale: sqrt(mean of squares) / mean.
        let saw: Vec<f64> = (10..145).map(|bin| 100.0 + f64::from(bin % 50)).collect();
        let square = saw.iter().map(|it| it * it).sum::<f64>() / 135.0;
        near("nrmse_cwnd", 20.0 * square.sqrt() / (saw.iter().sum::<f64>() / 135.0));
        near("bitrate_off", 20.0);
        near("slow_start_resent", 14.4);
        near("slow_start_resent_beyond", 14.4 - 24.0);
        near("slow_start_peak", 240.0);
        near("slow_start_peak_off", 20.0);
        near("half_bdp_later_ms", 20.0);
    }

    #[test]
    fn window_below_half_bdp_is_late() {
        let stuck = Trial { half_bdp_after_ms: None, ..trial(1.0) };
        let get = found(&[trial(1.0), stuck], &[trial(1.0)]);
        assert_eq!(get("half_bdp_later_ms"), NEVER_MS);
    }
}
