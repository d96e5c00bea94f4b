//! Estimates of a bundle against the truth.
//!
//! The truth comes from the link emulator's own logs alone, matched by the identity of the boundary packet.
//! The true RTT is the sum of three parts: the propagation delay there and back, the packet's sojourn at the
//! bottleneck, and the wait of a packet that entered the return link at that moment. If a link has jitter,
//! the propagation there is the packet's own, and the propagation back is the least one. The true rate is the
//! bytes of the pair of sites that left the bottleneck between the two boundaries, over the time between
//! their departures.
//!
//! No estimate is corrected or left out. Shares are taken over all matched boundaries. A boundary without a
//! truth, or without a rate because it was overtaken, counts as wrong. In the shares that end with `_of_all`,
//! every other boundary that left counts as wrong, too. A report without a round trip above zero matches
//! nothing and counts against `boundaries_matched`.

use std::collections::HashMap;
use std::time::Duration;

use forebay_core::record::{BundleRecord, EpochRecord};
use forebay_scenario::{Bundle, Link};

use super::super::Metrics;
use super::super::links::{Boundary, LinkTruth};
use super::super::statistics::{Sorted, mean, share};
use crate::experiment::Experiment;

/// Largest error of an RTT estimate that counts as right (ms).
const RTT_CLOSE_MS: f64 = 1.0;
/// Largest relative error of a rate estimate that counts as right.
const RATE_CLOSE_SHARE: f64 = 0.04;
/// Largest absolute error of a rate estimate that counts as right (Mbit/s).
const RATE_CLOSE_MBPS: f64 = 2.0;
/// Whether an estimate is close.
type IsClose = fn(&JudgedEpoch) -> bool;

/// Shares of close estimates: name over matched boundaries, and name over all.
const CLOSE: [(&str, &str, IsClose); 3] = [
    ("rtt_within_1ms", "rtt_within_1ms_of_all", JudgedEpoch::has_close_rtt),
    ("rate_within_4pct", "rate_within_4pct_of_all", JudgedEpoch::has_close_rate),
    ("rate_within_2mbps", "rate_within_2mbps_of_all", JudgedEpoch::has_close_mbps),
];

/// A matched boundary with its estimate and the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JudgedEpoch {
    /// The sendbox's estimate.
    pub estimate: EpochRecord,
    /// The true round trip (ms); `None`: the packet is not in the log.
    pub rtt_ms: Option<f64>,
    /// The true rate (Mbit/s); `None`: a boundary is not in the log, or both left together.
    pub rate_mbps: Option<f64>,
}

impl JudgedEpoch {
    fn rtt_error_ms(&self) -> Option<f64> {
        Some(self.estimate.rtt_ns as f64 / 1e6 - self.rtt_ms?)
    }

    /// The estimated rate (Mbit/s), if one was made.
    pub fn estimated_mbps(&self) -> Option<f64> {
        let rate = self.estimate.delivery_rate_bps;
        (rate > 0).then_some(rate as f64 / 1e6)
    }

    /// Estimated and true rate, where both are known.
    fn rates(&self) -> Option<(f64, f64)> {
        Some((self.estimated_mbps()?, self.rate_mbps?))
    }

    fn has_close_rtt(&self) -> bool {
        self.rtt_error_ms().is_some_and(|error| error.abs() <= RTT_CLOSE_MS)
    }

    fn has_close_rate(&self) -> bool {
        let error = self.rates().map(|(estimate, truth)| estimate / truth - 1.0);
        error.is_some_and(|error| error.abs() <= RATE_CLOSE_SHARE)
    }

    fn has_close_mbps(&self) -> bool {
        self.rates().is_some_and(|(estimate, truth)| (estimate - truth).abs() <= RATE_CLOSE_MBPS)
    }
}

/// Finds the truth about every matched boundary.
pub fn judge_epochs(
    experiment: &Experiment,
    bundle: &Bundle,
    row: &BundleRecord,
    there: &LinkTruth,
) -> Vec<JudgedEpoch> {
    let Some(pair) = experiment.pairs.iter().position(|name| *name == bundle.pair) else {
        return Vec::new();
    };
    let mut boundaries: HashMap<u64, Vec<&Boundary>> = HashMap::new();
    for boundary in there.boundaries.iter().filter(|boundary| usize::from(boundary.pair) == pair) {
        boundaries.entry(boundary.identity).or_default().push(boundary);
    }
    let links = links(experiment, bundle);
    let find = |identity: u64, by: u64| {
        let found = boundaries.get(&identity)?;
        // The newest boundary with that identity that the report can have been about by then.
        found.iter().copied().rev().find(|boundary| boundary.released_ns <= by)
    };
    let judge = |epoch: &EpochRecord| {
        let this = find(epoch.identity, epoch.at_ns);
        let previous = find(epoch.previous_identity, epoch.at_ns);
        let rate_mbps = this.zip(previous).and_then(|(this, previous)| {
            let bytes = this.bytes.checked_sub(previous.bytes)?;
            let time_us = this.departed_ns.checked_sub(previous.departed_ns)? as f64 / 1e3;
            share(bytes as f64 * 8.0, time_us)
        });
        let rtt_ms = this.map(|this| true_rtt_ms(this, links));
        JudgedEpoch { estimate: *epoch, rtt_ms, rate_mbps }
    };
    row.epochs.iter().map(judge).collect()
}

/// The links there and back.
pub(super) fn links<'a>(experiment: &'a Experiment, bundle: &Bundle) -> (&'a Link, &'a Link) {
    let [there, back] = experiment.ways(&bundle.pair);
    if bundle.reversed { (back, there) } else { (there, back) }
}

fn true_rtt_ms(boundary: &Boundary, (there, back): (&Link, &Link)) -> f64 {
    let forth = match there.jitter.is_zero() {
        true => there.delay_at(Duration::from_nanos(boundary.departed_ns)),
        false => Duration::from_nanos(boundary.released_ns.saturating_sub(boundary.departed_ns)),
    };
    let delay = forth + back.delay_at(Duration::from_nanos(boundary.released_ns));
    delay.as_secs_f64() * 1e3 + (boundary.sojourn_ns + boundary.waited_ns) as f64 / 1e6
}

/// Metrics of the estimates in an interval.
pub(super) fn figures(epochs: &[&JudgedEpoch], window_ms: f64, metrics: &mut Metrics) {
    for (name, _, is_close) in CLOSE {
        let close = epochs.iter().filter(|epoch| is_close(epoch)).count();
        metrics.put(name, share(close as f64, epochs.len() as f64));
    }
    let errors: Vec<f64> = epochs.iter().filter_map(|epoch| epoch.rtt_error_ms()).collect();
    let distance = |epoch: &&JudgedEpoch| epoch.rtt_error_ms().map_or(f64::INFINITY, f64::abs);
    let absolute = Sorted::new(epochs.iter().map(distance));
    metrics.put("rtt_error_abs_p50_ms", absolute.quantile(0.5));
    metrics.put("rtt_error_abs_p80_ms", absolute.quantile(0.8));
    let signed = Sorted::new(errors.iter().copied());
    metrics.put("rtt_error_p10_ms", signed.quantile(0.1));
    metrics.put("rtt_error_p50_ms", signed.quantile(0.5));
    metrics.put("rtt_error_p90_ms", signed.quantile(0.9));
    let estimated = Sorted::new(epochs.iter().map(|epoch| epoch.estimate.rtt_ns as f64 / 1e6));
    metrics.put("rtt_p50_ms", estimated.quantile(0.5));
    let rates: Vec<(f64, f64)> = epochs.iter().filter_map(|epoch| epoch.rates()).collect();
    metrics.put("epochs_with_rate", share(rates.len() as f64, epochs.len() as f64));
    let relative = |(estimate, truth): &(f64, f64)| estimate / truth - 1.0;
    metrics.put("rate_error_p50", Sorted::new(rates.iter().map(relative)).quantile(0.5));
    let truths = epochs.iter().filter_map(|epoch| epoch.rtt_ms);
    let round_trips = mean(truths.clone()).map(|rtt| window_ms / rtt);
    let matched = truths.count() as f64;
    metrics.put("samples_per_rtt", round_trips.and_then(|rounds| share(matched, rounds)));
    let missing = epochs.iter().filter(|epoch| epoch.rtt_ms.is_none()).count();
    metrics.put("epochs_without_truth", Some(missing as f64));
    let sizes: Vec<u32> = epochs.iter().map(|epoch| epoch.estimate.epoch_packets).collect();
    let changes = sizes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    metrics.put("epoch_size_changes", Some(changes as f64));
}

/// Shares of close estimates over all boundaries, matched or not.
pub(super) fn figures_of_all(judged: &[JudgedEpoch], all: f64, metrics: &mut Metrics) {
    for (_, name, is_close) in CLOSE {
        let close = judged.iter().filter(|epoch| is_close(epoch)).count();
        metrics.put(name, share(close as f64, all));
    }
}
