//! Throughput and round trips of flows, from what their receivers read.

use std::collections::BTreeMap;

use forebay_core::record::{FlowRecord, RunRecord, TcpSample};

use super::entry::Pooling::{Max, Mean, Sum};
use super::entry::{Entry, entry};
use super::statistics::{Sorted, share};
use super::{Metrics, Pooling, bounds_ns, describe, nominal_rate, video, windows};
use crate::experiment::{Experiment, FULL_FRAME, Flow, Window};

/// Length of the bins in [`FlowRecord::bytes_per_100ms`].
const BIN_NS: u64 = 100_000_000;

/// What is known of flows.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("goodput_mbps", "run flow arm", "Mbit/s", Mean,
        "payload read by the receivers between warm-up and end of arrivals"),
    entry("payload_bytes", "run flow arm", "B", Mean,
        "payload read by the receivers between warm-up and end of arrivals, in bytes"),
    entry("mean_throughput_l4", "run flow arm", "Mbit/s", Mean,
        "payload arriving at the receiving TCP; counted where it is read"),
    entry("mean_cwnd_l4", "flow", "segments", Mean,
        "window, mean over time of the whole run; emulator: of flows of at most ten connections"),
    entry("peak_cwnd_l4", "flow", "segments", Max,
        "largest window of the whole run, looked at every 10 ms; emulator: of flows of at most \
         ten connections"),
    entry("half_bdp_after_ms", "flow", "ms", Mean,
        "from the flow's start until its window reached half a bandwidth-delay product"),
    entry("mean_in_flight_l4", "flow", "segments", Mean,
        "segments outstanding and not SACKed or lost, mean over time, whole run (simulator)"),
    entry("cov_in_flight_l4", "flow", "", Mean,
        "standard deviation over mean of the segments outstanding, whole run (simulator)"),
    entry("mean_srtt_l4", "flow", "ms", Mean,
        "smoothed round trip, mean over the whole run; emulator: of flows of at most ten connections"),
    entry("queueing_p50_ms", "flow", "ms", Mean,
        "smoothed round trip less the propagation delay, median over time between warm-up and the flow's end; \
         emulator: of flows of at most ten connections"),
    entry("queueing_p99_ms", "flow", "ms", Mean, "the 99th percentile of what queueing_p50_ms is the median of"),
    entry("mean_idt_ewma_l4", "flow", "ms", Mean,
        "moving mean of the time between departures, whole run (simulator)"),
    entry("mean_sending_rate_l4", "flow", "Mbit/s", Mean,
        "payload sent, repairs included, whole run (simulator)"),
    entry("mean_sending_rate_l7", "flow", "Mbit/s", Mean,
        "payload written, a full send buffer included, whole run (simulator)"),
    entry("mean_one_way_delay_l7", "flow", "ms", Mean,
        "from write to read, the wait in the send buffer included, mean over time, whole run \
         (simulator)"),
    entry("cov_throughput_l4", "flow", "", Mean,
        "standard deviation over mean of the payload that arrived in 50 ms, whole run (simulator)"),
    entry("mean_network_power_l4", "flow", "Mbit/s^2", Mean,
        "throughput over smoothed round trip, mean over 50 ms, whole run (simulator)"),
    entry("mean_utility_pf_l4", "flow", "", Mean,
        "ln of the throughput, mean over 50 ms, whole run (simulator)"),
    entry("mean_recovery_time_l4", "flow", "ms", Mean,
        "mean length of a loss recovery, whole run (simulator)"),
    entry("total_retransmissions_l4", "flow", "", Sum,
        "segments sent again in the whole run; emulator: of flows of at most ten connections"),
    entry("total_rtos_l4", "flow", "", Sum, "retransmission timeouts in the whole run (simulator)"),
    entry("mean_throughput_l7", "run flow arm", "Mbit/s", Mean, "payload read by the receiver"),
    entry("cov_throughput_l7", "run flow arm", "", Mean,
        "standard deviation over mean of the payload read in 100 ms"),
    entry("stall_max_s", "run flow arm", "s", Max,
        "longest time without a byte, in steps of 100 ms"),
    entry("boxes_died", "run arm", "", Sum,
        "runs that ended with a box, or the agent, that ended by itself or not when it was told to: they \
         have no other figure, and miss every bound"),
    entry("flows_failed", "run flow arm", "", Sum, "connections reset or failed"),
    entry("rtt_p50_ms", "run flow bundle arm", "ms", Mean,
        "round trip: of pings, or as the sendbox estimates it"),
    entry("rtt_p99_ms", "run flow arm", "ms", Mean, "99th percentile of pings"),
    entry("datagrams_lost", "run flow arm", "", Sum, "datagrams that never arrived"),
];

/// The metrics of the flow at place `flow` of the plan, all its connections together, or of all.
pub fn metrics(experiment: &Experiment, rows: &RunRecord, flow: Option<usize>) -> Metrics {
    let of_flow: Vec<&FlowRecord> =
        rows.flows.iter().filter(|row| flow.is_none_or(|flow| flow == row.flow)).collect();
    let mut metrics = Metrics::default();
    if of_flow.is_empty() {
        return metrics;
    }
    let bins = total_bins(&of_flow);
    for window in windows(experiment, rows.attack.as_ref()) {
        let active = match flow.map(|flow| &experiment.flows[flow]) {
            Some(flow) => Window {
                from: window.from.max(flow.first_start()),
                to: window.to.min(flow.stop),
                name: window.name,
            },
            None => window,
        };
        metrics.put_all(&active.name, throughput(&bins, &active));
    }
    if let Some(place) = flow {
        metrics.0.extend(sampled(experiment, &experiment.flows[place], &of_flow).0);
        let mut measured = measured(&of_flow);
        // Otherwise it is not of the counted interval, or not of all connections together.
        if of_flow.len() > 1 || !experiment.warmup.is_zero() {
            measured.0.remove("mean_throughput_l4");
        }
        metrics.0.extend(measured.0);
    }
    metrics.0.extend(video::metrics(&of_flow).0);
    let failed = of_flow.iter().filter(|row| row.failed).count();
    metrics.put("flows_failed", Some(failed as f64));
    let rtts = of_flow.iter().flat_map(|row| row.rtts_ns.iter());
    let rtts = Sorted::new(rtts.map(|rtt| *rtt as f64 / 1e6));
    metrics.put("rtt_p50_ms", rtts.quantile(0.5));
    metrics.put("rtt_p99_ms", rtts.quantile(0.99));
    if of_flow.iter().any(|row| row.lost > 0 || !row.rtts_ns.is_empty()) {
        let lost: u64 = of_flow.iter().map(|row| row.lost).sum();
        metrics.put("datagrams_lost", Some(lost as f64));
    }
    metrics
}

/// Of the samples of each connection while the flow runs, all together: means, the largest window, the
/// last to reach half of the bandwidth-delay product.
fn sampled(experiment: &Experiment, flow: &Flow, rows: &[&FlowRecord]) -> Metrics {
    let to = flow.stop.as_nanos() as u64;
    let of_row = |row: &FlowRecord| -> (u64, Vec<TcpSample>) {
        let from = flow.start_of(row.index).as_nanos() as u64;
        let lives = |it: &&TcpSample| (from..to).contains(&it.at_ns);
        (from, row.samples.iter().filter(lives).copied().collect())
    };
    let taken: Vec<(u64, Vec<TcpSample>)> = rows.iter().map(|row| of_row(row)).collect();
    let all = || taken.iter().flat_map(|(_, samples)| samples);
    let mut metrics = Metrics::default();
    let windows = all().map(|it| it.cwnd_segments);
    metrics.put("peak_cwnd_l4", windows.clone().reduce(f64::max));
    metrics.put("mean_cwnd_l4", share(windows.sum(), all().count() as f64));
    let srtts = all().filter_map(|it| it.srtt_ms);
    metrics.put("mean_srtt_l4", share(srtts.clone().sum(), srtts.count() as f64));
    let (warmup, rtt) = (experiment.warmup.as_nanos() as u64, experiment.rtt_of(flow));
    let counted = all().filter(|it| it.at_ns >= warmup);
    let queueing =
        Sorted::new(counted.filter_map(|it| Some(it.srtt_ms? - rtt.as_secs_f64() * 1e3)));
    metrics.put("queueing_p50_ms", queueing.quantile(0.5));
    metrics.put("queueing_p99_ms", queueing.quantile(0.99));
    let last = taken.iter().filter_map(|(_, samples)| samples.last());
    let resent = last.map(|it| it.retransmissions as f64).reduce(|sum, one| sum + one);
    metrics.put("total_retransmissions_l4", resent);
    let half = half_bdp_segments(experiment, flow).unwrap_or(f64::INFINITY);
    let reached = |(from, samples): &(u64, Vec<TcpSample>)| {
        let first = samples.iter().find(|it| it.cwnd_segments >= half)?;
        Some((first.at_ns - from) as f64 / 1e6)
    };
    let reached: Option<Vec<f64>> = taken.iter().map(reached).collect();
    metrics.put("half_bdp_after_ms", reached.and_then(|all| all.into_iter().reduce(f64::max)));
    metrics
}

/// Half of what the bottleneck holds of full frames in a round trip without queues.
fn half_bdp_segments(experiment: &Experiment, flow: &Flow) -> Option<f64> {
    let rate = nominal_rate(experiment, flow)?;
    let bytes = rate.as_bytes_per_sec_f64() * experiment.rtt_of(flow).as_secs_f64();
    Some(bytes / FULL_FRAME.as_u64() as f64 / 2.0)
}

/// What the back end measured of each connection, all together as the catalogue pools it over runs:
/// over the whole run, its warm-up included.
fn measured(flows: &[&FlowRecord]) -> Metrics {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in flows.iter().flat_map(|row| &row.measured) {
        values.entry(name).or_default().push(*value);
    }
    let mut metrics = Metrics::default();
    for (name, values) in values {
        let is_sum = describe(name).is_some_and(|entry| entry.pooling == Pooling::Sum);
        let sum: f64 = values.iter().sum();
        metrics.put(name, Some(if is_sum { sum } else { sum / values.len() as f64 }));
    }
    metrics
}

/// Bytes read in each 100 ms by all flows together.
pub fn total_bins(flows: &[&FlowRecord]) -> Vec<u64> {
    let length = flows.iter().map(|row| row.bytes_per_100ms.len()).max().unwrap_or(0);
    let mut bins = vec![0; length];
    for row in flows {
        row.bytes_per_100ms.iter().enumerate().for_each(|(bin, bytes)| bins[bin] += bytes);
    }
    bins
}

/// Payload is counted where the program reads it (`l7`). TCP hands it over in order at once, so
/// what arrived at the receiving TCP (`l4`) differs by no more than a receive buffer.
fn throughput(bins: &[u64], window: &Window) -> Metrics {
    let mut metrics = Metrics::default();
    let (from, to) = bounds_ns(window);
    let (first, end) = (from.div_ceil(BIN_NS), to / BIN_NS);
    if end <= first {
        return metrics;
    }
    // A bin beyond the record is one in which nothing was read.
    let in_window = (first..end).map(|bin| bins.get(bin as usize).copied().unwrap_or(0));
    let seconds = (end - first) as f64 * BIN_NS as f64 / 1e9;
    let bytes: u64 = in_window.clone().sum();
    let rate = share(bytes as f64 * 8.0 / 1e6, seconds);
    metrics.put("goodput_mbps", rate);
    metrics.put("mean_throughput_l7", rate);
    metrics.put("mean_throughput_l4", rate);
    metrics.put("payload_bytes", Some(bytes as f64));
    let mean = bytes as f64 / (end - first) as f64;
    let squares: f64 = in_window.clone().map(|bytes| (bytes as f64 - mean).powi(2)).sum();
    let deviation = (squares / (end - first) as f64).sqrt();
    metrics.put("cov_throughput_l7", share(deviation, mean));
    metrics.put("stall_max_s", longest_stall(in_window));
    metrics
}

/// The longest time without a byte, once the first has been read.
fn longest_stall(bins: impl Iterator<Item = u64>) -> Option<f64> {
    let (mut longest, mut current, mut begun) = (0_u64, 0_u64, false);
    for bytes in bins {
        begun |= bytes > 0;
        current = if bytes == 0 && begun { current + 1 } else { 0 };
        longest = longest.max(current);
    }
    begun.then_some((longest * BIN_NS) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::testing::experiment;

    #[test]
    fn only_the_counted_interval_is_counted() {
        let mut experiment = experiment();
        experiment.warmup = std::time::Duration::from_millis(200);
        experiment.stop = std::time::Duration::from_millis(1000);
        experiment.flows[0].stop = experiment.stop;
        // 2 bins of warm-up, then 4 of 125,000 bytes, a stall of 3 bins, one more; the drain.
        let bytes_per_100ms = [&[9, 9], &[125_000; 4][..], &[0; 3], &[125_000], &[9, 9]].concat();
        let row = FlowRecord { bytes_per_100ms, failed: true, ..FlowRecord::default() };
        let rows = RunRecord { flows: vec![row], ..RunRecord::default() };
        let metrics = metrics(&experiment, &rows, Some(0));
        let get = |name: &str| metrics.get(name).unwrap();
        assert_eq!(get("payload_bytes"), 625_000.0);
        assert_eq!(get("goodput_mbps"), 6.25);
        assert!((get("stall_max_s") - 0.3).abs() < 1e-9);
        assert_eq!(get("flows_failed"), 1.0);
        // Mean 78,125, five bins 46,875 above, three 78,125 below: sqrt(15/64) / (5/8).
        assert!((get("cov_throughput_l7") - 0.7746).abs() < 1e-4);
        assert_eq!(metrics.get("datagrams_lost"), None);
    }

    #[test]
    fn what_a_back_end_measured_is_averaged_or_added() {
        let row = |cwnd, rtos| FlowRecord {
            measured: vec![("mean_cwnd_l4", cwnd), ("total_rtos_l4", rtos)],
            ..FlowRecord::default()
        };
        let rows =
            RunRecord { flows: vec![row(10.0, 1.0), row(30.0, 2.0)], ..RunRecord::default() };
        let metrics = metrics(&experiment(), &rows, Some(0));
        assert_eq!(metrics.get("mean_cwnd_l4"), Some(20.0));
        assert_eq!(metrics.get("total_rtos_l4"), Some(3.0));
    }

    #[test]
    fn samples_give_means_the_peak_and_the_time_to_half_a_bdp() {
        let sample = |ms: u64, cwnd_segments, srtt_ms, retransmissions| TcpSample {
            at_ns: ms * 1_000_000,
            cwnd_segments,
            srtt_ms,
            retransmissions,
        };
        // 96 Mbit/s x 50 ms: 396 frames of 1514 bytes.
        let samples = vec![
            sample(0, 10.0, None, 0),
            sample(10, 190.0, Some(50.0), 0),
            sample(20, 200.0, Some(60.0), 0),
            sample(30, 600.0, Some(70.0), 5),
            sample(1_000, 9e9, Some(9e9), 99),
        ];
        let row = FlowRecord { samples, ..FlowRecord::default() };
        let rows = RunRecord { flows: vec![row], ..RunRecord::default() };
        let metrics = metrics(&experiment(), &rows, Some(0));
        for (name, value) in [
            ("peak_cwnd_l4", 600.0),
            ("mean_cwnd_l4", 250.0),
            ("mean_srtt_l4", 60.0),
            ("queueing_p50_ms", 10.0),
            ("total_retransmissions_l4", 5.0),
            ("half_bdp_after_ms", 20.0),
        ] {
            assert_eq!(metrics.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn round_trips_of_pings_are_in_ms() {
        let row =
            FlowRecord { rtts_ns: vec![50_000_000, 52_000_000], lost: 1, ..FlowRecord::default() };
        let rows = RunRecord { flows: vec![row], ..RunRecord::default() };
        let metrics = metrics(&experiment(), &rows, None);
        assert_eq!(metrics.get("rtt_p50_ms"), Some(51.0));
        assert_eq!(metrics.get("datagrams_lost"), Some(1.0));
    }
}
