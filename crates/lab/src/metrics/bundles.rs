//! Metrics of a bundle, and its estimates against the truth.

mod accuracy;
mod states;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::record::{BundleRecord, RunRecord, WaitRecord};
use forebay_scenario::{Bundle, Link, Window};

use super::entry::Pooling::{Max, Mean, Min, Sum, Time};
use super::entry::{BUNDLER, Entry, OWN, entry};
use super::links::LinkTruth;
use super::statistics::{Sorted, Timeline, share};
use super::{Metrics, bounds_ns};
use crate::experiment::Experiment;

pub use self::accuracy::{JudgedEpoch, judge_epochs};
use self::accuracy::{figures, figures_of_all, links};
pub use self::states::{Transition, passing_share, transitions};
use self::states::{control, first_shape_s};

/// Metrics of bundles.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("queue_share_at_sendbox", "bundle", "", Mean,
        "sendbox's share of the total queue: its mean queue divided by the sum of both mean queues",
        "<q_sendbox> / (<q_sendbox> + <q_bottleneck>)", BUNDLER),
    entry("rtt_within_1ms", "bundle", "", Mean,
        "share of matched boundaries whose RTT estimate is within 1 ms of the truth",
        "#{abs(estimate - truth) <= 1 ms} / #{matched}", BUNDLER),
    entry("rtt_within_1ms_of_all", "bundle", "", Mean,
        "share of all boundaries of the run whose RTT estimate is within 1 ms of the truth; \
         unmatched ones count as wrong",
        "#{abs(estimate - truth) <= 1 ms} / #{sent}", OWN),
    entry("rtt_error_abs_p50_ms", "bundle", "ms", Mean,
        "median absolute error of the RTT estimate",
        "Q50(abs(estimate - truth))", BUNDLER),
    entry("rtt_error_abs_p80_ms", "bundle", "ms", Mean,
        "80th percentile of the absolute error of the RTT estimate",
        "Q80(abs(estimate - truth))", BUNDLER),
    entry("rtt_error_p10_ms", "bundle", "ms", Mean, "RTT estimate minus truth, 10th percentile",
        "Q10(estimate - truth)", OWN),
    entry("rtt_error_p50_ms", "bundle", "ms", Mean, "RTT estimate minus truth, median",
        "Q50(estimate - truth)", OWN),
    entry("rtt_error_p90_ms", "bundle", "ms", Mean, "RTT estimate minus truth, 90th percentile",
        "Q90(estimate - truth)", OWN),
    entry("rate_within_4pct", "bundle", "", Mean,
        "share of matched boundaries whose rate estimate is within 4 % of the truth",
        "#{abs(estimate / truth - 1) <= 0.04} / #{matched}", BUNDLER),
    entry("rate_within_4pct_of_all", "bundle", "", Mean,
        "share of all boundaries of the run whose rate estimate is within 4 % of the truth; \
         unmatched ones count as wrong",
        "#{abs(estimate / truth - 1) <= 0.04} / #{sent}", OWN),
    entry("rate_within_2mbps", "bundle", "", Mean,
        "share of matched boundaries whose rate estimate is within 2 Mbit/s of the truth",
        "#{abs(estimate - truth) <= 2 Mbit/s} / #{matched}", BUNDLER),
    entry("rate_within_2mbps_of_all", "bundle", "", Mean,
        "share of all boundaries of the run whose rate estimate is within 2 Mbit/s of the truth; \
         unmatched ones count as wrong",
        "#{abs(estimate - truth) <= 2 Mbit/s} / #{sent}", OWN),
    entry("rate_error_p50", "bundle", "", Mean,
        "median relative error of the rate estimate; above 0: estimated too high",
        "Q50(estimate / truth - 1)", OWN),
    entry("epochs_with_rate", "bundle", "", Mean,
        "share of matched boundaries for which both the rate estimate and the true rate are known",
        "#{matched, estimate and truth known} / #{matched}", OWN),
    entry("samples_per_rtt", "bundle", "", Mean, "matched boundaries per true round trip",
        "#{matched} mean(true RTT) / time", OWN),
    entry("epochs_without_truth", "bundle", "", Sum,
        "matched boundaries that are not in the emulator's log",
        "#{matched, not in the log}", OWN),
    entry("epoch_size_changes", "bundle", "", Mean, "changes of the epoch size",
        "#{matched, epoch size differs from the previous one}", OWN),
    entry("boundaries_sent", "bundle", "", Mean,
        "boundary packets sent at the epoch size that the peer reported last, while the peer sent \
         messages",
        "#{boundaries}", OWN),
    entry("boundaries_matched", "bundle", "", Mean,
        "share of boundaries_sent that a report matched",
        "#{matched} / #{sent}", OWN),
    entry("boundaries_matched_of_all", "bundle", "", Mean,
        "share of all boundary packets of the run that a report matched, including those for which \
         no report was due",
        "#{matched} / #{sent}, expected or not", OWN),
    entry("out_of_order_ratio", "bundle", "", Mean,
        "share of matched boundaries that arrived after a boundary that left later and took at \
         least 1 ms less",
        "#{matched out of order} / #{matched}", BUNDLER),
    entry("message_share", "bundle", "", Mean,
        "bytes of messages in both directions divided by bytes sent",
        "bytes of messages / bytes sent", OWN),
    entry("hand_backs", "bundle", "", Sum,
        "times the sendbox handed its traffic back to the kernel because it could not keep up",
        "#{times}", OWN),
    entry("drops_ring_packets", "bundle", "packets", Sum,
        "packets lost in the packet rings of the sendbox and the receivebox",
        "#{drops}", OWN),
    entry("boundaries_lost", "bundle", "", Sum, "boundaries that the receivebox failed to record",
        "#{boundaries}", OWN),
    entry("trace_rows_lost", "bundle", "", Sum,
        "estimates and decisions missing from the sendbox's trace, and so from the metrics",
        "#{rows}", OWN),
    entry("min_rtt_ms", "bundle", "ms", Mean, "smallest base RTT since the bundle was first shaped",
        "min(base RTT)", OWN),
    entry("min_rtt_drift_ms", "bundle", "ms", Max,
        "largest minus smallest base RTT since the bundle was first shaped",
        "max(base RTT) - min(base RTT)", OWN),
    entry("min_rtt_error_max_ms", "bundle", "ms", Max,
        "largest absolute error of the base RTT against the links' propagation delays",
        "max(abs(base RTT - D))", OWN),
    entry("transitions", "bundle", "", Sum, "changes of the bundle's state",
        "#{states that differ from the previous one}", OWN),
    entry("rate_min_mbps", "bundle", "Mbit/s", Min,
        "lowest rate of the shaper while a rate was in force",
        "min(rate)", OWN),
    entry("rate_p5_mbps", "bundle", "Mbit/s", Mean,
        "rate that the shaper stays at or below for 5 % of the time",
        "Q5<rate>", OWN),
    entry("rate_p95_mbps", "bundle", "Mbit/s", Mean,
        "rate that the shaper exceeds for 5 % of the time",
        "Q95<rate>", OWN),
    entry("rate_max_mbps", "bundle", "Mbit/s", Max, "highest rate of the shaper",
        "max(rate)", OWN),
    entry("shaped_share", "bundle", "", Time,
        "share of the time in which the sendbox decides and a rate is in force",
        "<1 with a rate, else 0>", OWN),
    entry("passing_share", "bundle", "", Time,
        "share of the time in which the sendbox does not limit the rate",
        "<1 while passing or competing, else 0>", OWN),
    entry("trying_share", "bundle", "", Time,
        "share of the time in which the supervisor tests whether limiting the rate helps",
        "<1 while trying, else 0>", OWN),
    entry("trials", "bundle", "", Mean, "tests of the supervisor that began",
        "#{trying, the state before is another}", OWN),
    entry("first_shape_s", "bundle", "s", Mean,
        "time from the start of the run until the rate was first limited, not counting tests; \
         absent: it never was",
        "min{t: state is none of passing, trying, no_peer, no_reports, unsteady, handed_back}", OWN),
    entry("sparse_wait_p50_ms", "bundle", "ms", Mean,
        "median wait at the sendbox of packets that found their flow's queue empty",
        "Q50(wait)", OWN),
    entry("sparse_wait_p99_ms", "bundle", "ms", Mean,
        "99th percentile of the wait at the sendbox of packets that found their flow's queue empty",
        "Q99(wait)", OWN),
];

/// Length of the interval that a row of waits covers.
const WAIT_SECOND_NS: u64 = 1_000_000_000;

/// The bundles that ran, with their configuration.
pub fn declared<'a>(
    experiment: &'a Experiment,
    rows: &'a RunRecord,
) -> impl Iterator<Item = (&'a Bundle, &'a BundleRecord)> {
    rows.bundles.iter().filter_map(|row| Some((experiment.bundle(&row.name)?, row)))
}

/// The queue of a sendbox over time.
fn queue(row: &BundleRecord) -> Timeline {
    let packets = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    Timeline::new(row.queue.iter().map(|sample| (sample.at_ns, packets(sample.packets))).collect())
}

/// Mean queue of a sendbox (packets).
pub fn mean_queue(row: &BundleRecord, window: &Window) -> Option<f64> {
    let (from, to) = bounds_ns(window);
    queue(row).mean(from, to)
}

/// The metrics of one interval.
pub fn metrics(
    experiment: &Experiment,
    bundle: &Bundle,
    row: &BundleRecord,
    there: &LinkTruth,
    judged: &[JudgedEpoch],
    window: &Window,
) -> Metrics {
    let (from, to) = bounds_ns(window);
    let mut metrics = Metrics::default();
    let queue = queue(row);
    let at_sendbox = queue.mean(from, to);
    metrics.put("queue_mean_packets", at_sendbox);
    metrics.put_quantiles("queue_{p}_packets", |share| queue.quantile(from, to, share));
    metrics.put("queue_max_packets", queue.max(from, to));
    if let (Some(here), Some(there)) = (at_sendbox, there.mean_queue(window)) {
        metrics.put("queue_share_at_sendbox", share(here, here + there));
    }
    let pair = experiment.pairs.iter().position(|name| *name == bundle.pair);
    let bytes = pair.map_or(0, |pair| there.bytes_of(pair as u16, window));
    metrics.put("throughput_mbps", share(bytes as f64 * 8e3, (to - from) as f64));
    let in_window: Vec<&JudgedEpoch> =
        judged.iter().filter(|epoch| (from..to).contains(&epoch.estimate.at_ns)).collect();
    figures(&in_window, (to - from) as f64 / 1e6, &mut metrics);
    control(row, from, to, &mut metrics);
    waits(row, from, to, &mut metrics);
    base(row, links(experiment, bundle), from, to, &mut metrics);
    if window.name.is_empty() {
        whole_run(row, judged, &mut metrics);
    }
    metrics
}

/// Waits of sparse flows' packets at the sendbox, in the seconds that lie mostly between `from` and `to`.
fn waits(row: &BundleRecord, from: u64, to: u64, metrics: &mut Metrics) {
    let is_inside = |it: &&WaitRecord| {
        let middle = it.at_ns.saturating_sub(WAIT_SECOND_NS / 2);
        (from..to).contains(&middle)
    };
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (wait_ns, count) in row.waits.iter().filter(is_inside).flat_map(|it| &it.counts) {
        *counts.entry(*wait_ns).or_default() += u64::from(*count);
    }
    let total: u64 = counts.values().sum();
    for (name, percent) in [("sparse_wait_p50_ms", 50), ("sparse_wait_p99_ms", 99)] {
        let rank = (total * percent).div_ceil(100);
        let mut seen = 0;
        let found = counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        metrics.put(name, found.map(|(wait_ns, _)| *wait_ns as f64 / 1e6));
    }
}

/// The sendbox's estimate of the round trip of an empty path, from its first shaping on.
fn base(row: &BundleRecord, links: (&Link, &Link), from: u64, to: u64, metrics: &mut Metrics) {
    let shaped = row.decisions.iter().skip_while(|decision| decision.rate_bps.is_none());
    let in_window = shaped.filter(|decision| (from..to).contains(&decision.at_ns));
    let bases: Vec<(u64, f64)> =
        in_window.filter_map(|d| Some((d.at_ns, d.min_rtt_ns? as f64 / 1e6))).collect();
    let sorted = Sorted::new(bases.iter().map(|(_, base)| *base));
    if let (Some(least), Some(most)) = (sorted.quantile(0.0), sorted.quantile(1.0)) {
        metrics.put("min_rtt_ms", Some(least));
        metrics.put("min_rtt_drift_ms", Some(most - least));
    }
    let error = |(at, base): &(u64, f64)| {
        let at = Duration::from_nanos(*at);
        let truth = links.0.delay_at(at) + links.1.delay_at(at);
        (base - truth.as_secs_f64() * 1e3).abs()
    };
    metrics.put("min_rtt_error_max_ms", bases.iter().map(error).reduce(f64::max));
}

fn whole_run(row: &BundleRecord, judged: &[JudgedEpoch], metrics: &mut Metrics) {
    let counters = &row.counters;
    let all = (counters.boundaries_sent + counters.boundaries_unexpected) as f64;
    metrics.put("boundaries_sent", Some(counters.boundaries_sent as f64));
    figures_of_all(judged, all, metrics);
    let matched = share(counters.boundaries_matched as f64, counters.boundaries_sent as f64);
    metrics.put("boundaries_matched", matched);
    metrics.put("boundaries_matched_of_all", share(counters.boundaries_matched as f64, all));
    let (in_order, late) = (counters.boundaries_in_order as f64, counters.boundaries_late as f64);
    metrics.put("out_of_order_ratio", share(late, in_order + late));
    metrics.put("drops_queue_packets", Some(row.counters.drops_queue as f64));
    metrics.put(
        "message_share",
        share(row.counters.message_bytes as f64, row.counters.bytes_sent as f64),
    );
    metrics.put("hand_backs", Some(row.hand_backs as f64));
    metrics.put("drops_ring_packets", Some(row.drops_ring as f64));
    metrics.put("boundaries_lost", Some(row.boundaries_lost as f64));
    metrics.put("trace_rows_lost", Some(row.rows_lost as f64));
    metrics.put("first_shape_s", first_shape_s(row));
}

#[cfg(test)]
mod tests;
