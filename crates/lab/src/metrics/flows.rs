//! Throughput and round trips of flows, from what their receivers read.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::record::{FlowRecord, RunRecord, TcpSample};
use forebay_scenario::{FULL_FRAME, Flow, Traffic, Window};

use super::entry::Pooling::{Max, Mean, Sum};
use super::entry::{CCPERF, Entry, OWN, entry};
use super::path::{Path, Steps, link_of};
use super::statistics::{Sorted, cov, mean, share, slope};
use super::{Metrics, Pooling, bounds_ns, describe, media, video, windows};
use crate::experiment::Experiment;

/// Length of the bins in [`FlowRecord::bytes_per_100ms`].
pub const BIN_NS: u64 = 100_000_000;
/// Fewest parts of a drift, seconds of a short run: with fewer there is no drift.
const DRIFT_MIN: usize = 5;
/// Most parts of a drift: the cost of the slope grows with the square of the parts.
const DRIFT_MAX: usize = 100;

/// Metrics of flows.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("goodput_mbps", "run flow arm", "Mbit/s", Mean,
        "payload read by the receivers between warm-up and end of arrivals",
        "8 bytes read / time", "RFC 2647 section 3.17"),
    entry("payload_bytes", "run flow arm", "B", Mean,
        "payload bytes read by the receivers between warm-up and end of arrivals",
        "bytes read", OWN),
    entry("throughput_{p}_mbps", "run flow arm", "Mbit/s", Mean,
        "percentile of the receivers' read rate over 100 ms intervals of the flow's lifetime after \
         the warm-up",
        "Qp(8 bytes read in 100 ms / 100 ms)", "RFC 5166 section 2.1"),
    entry("mean_throughput_l4", "run flow arm", "Mbit/s", Mean,
        "payload arriving at the receiving TCP; counted when the application reads it",
        "8 bytes / life", CCPERF),
    entry("mean_throughput_l7", "run flow arm", "Mbit/s", Mean,
        "payload read by the receiving application",
        "8 bytes read / life", CCPERF),
    entry("cov_throughput_l7", "run flow arm", "", Mean,
        "coefficient of variation (standard deviation divided by mean) of the payload read per 100 \
         ms",
        "sd(bytes in 100 ms) / mean(bytes in 100 ms)", CCPERF),
    entry("throughput_drift", "run flow arm", "", Mean,
        "trend of the read rate from warm-up to end, divided by its median; far from 0: the flow \
         was not in a steady state",
        "(length - 1 s) median((x_j - x_i) / (t_j - t_i)) / median(x), seconds i < j",
        "Theil-Sen slope, as in the convergence test of TriScale (Jacob et al., JSys 2021)"),
    entry("mean_cwnd_l4", "flow", "segments", Mean,
        "mean congestion window over the flow's lifetime; emulator: only flows with at most ten \
         connections", "<cwnd / MSS>", CCPERF),
    entry("peak_cwnd_l4", "flow", "segments", Max,
        "largest congestion window in the flow's lifetime, sampled every 10 ms; emulator: only \
         flows with at most ten connections",
        "max(cwnd / MSS)", OWN),
    entry("half_bdp_after_ms", "flow", "ms", Mean,
        "time from the flow's start until its congestion window reaches half a bandwidth-delay \
         product",
        "min{t: cwnd(t) >= C D / 2} - start", OWN),
    entry("mean_in_flight_l4", "flow", "segments", Mean,
        "mean segments in flight (sent, neither acknowledged, SACKed nor lost) over the flow's \
         lifetime; emulator: only flows with at most ten connections",
        "<in flight / MSS>", CCPERF),
    entry("cov_in_flight_l4", "flow", "", Mean,
        "coefficient of variation (standard deviation divided by mean) of the segments in flight \
         over the flow's lifetime; emulator: only flows with at most ten connections",
        "sqrt(<f^2> - <f>^2) / <f>, f in flight", CCPERF),
    entry("mean_srtt_l4", "run flow arm", "ms", Mean,
        "mean smoothed round trip over the flow's lifetime; for a run, mean over its greedy \
         connections; emulator: only flows with at most ten connections",
        "<sRTT>", CCPERF),
    entry("mean_est_qdelay_l4", "flow", "ms", Mean,
        "estimated queueing delay: smoothed round trip minus propagation delay, mean over the \
         flow's lifetime; emulator: only flows with at most ten connections",
        "<sRTT> - <D>", CCPERF),
    entry("srtt_{p}_ms", "flow", "ms", Mean,
        "percentile over time of the smoothed round trip between warm-up and the flow's end; only \
         flows with at most ten connections",
        "Qp<sRTT>", "RFC 5166 section 2.1"),
    entry("queueing_{p}_ms", "flow", "ms", Mean,
        "percentile over time of the queueing delay (smoothed round trip minus propagation delay) \
         between warm-up and the flow's end; only flows with at most ten connections",
        "Qp<sRTT - D>, D from the plan, before any change", "RFC 5166 section 2.1"),
    entry("mean_idt_ewma_l4", "flow", "ms", Mean,
        "moving average (EWMA) of the time between sent packets, mean over the flow's lifetime \
         (simulator)",
        "<g>, g = 7/8 g + 1/8 gap at each departure", CCPERF),
    entry("mean_sending_rate_l4", "flow", "Mbit/s", Mean,
        "payload sent, including retransmissions, over the flow's lifetime (simulator)",
        "8 bytes sent / life", CCPERF),
    entry("mean_sending_rate_l7", "flow", "Mbit/s", Mean,
        "payload written by the application, including a full send buffer, over the flow's \
         lifetime (simulator)",
        "8 bytes written / life", CCPERF),
    entry("mean_delivery_rate_l4", "flow", "Mbit/s", Mean,
        "mean delivery rate: payload delivered in the last smoothed round trip, sampled every 10 \
         ms of the flow's lifetime; only flows with at most ten connections",
        "<8 (d(t) - d(t - sRTT)) / sRTT>, d delivered bytes", CCPERF),
    entry("mean_one_way_delay_l7", "flow", "ms", Mean,
        "mean time from write to read, including the wait in the send buffer, over the flow's \
         lifetime (simulator)",
        "<time read - time written>", CCPERF),
    entry("cov_throughput_l4", "flow", "", Mean,
        "coefficient of variation (standard deviation divided by mean) of the payload arriving per \
         50 ms, over the flow's lifetime (simulator)",
        "sd(bytes in 50 ms) / mean(bytes in 50 ms)", CCPERF),
    entry("mean_network_power_l4", "flow", "Mbit/s^2", Mean,
        "network power: throughput divided by smoothed round trip, mean over the 50 ms intervals \
         of the flow's lifetime (simulator)",
        "mean(x / sRTT)", CCPERF),
    entry("mean_utility_pf_l4", "flow", "", Mean,
        "proportional-fairness utility: mean logarithm of the throughput per 50 ms of the flow's \
         lifetime; intervals without a byte are skipped (simulator)",
        "mean(ln x), x in Mbit/s", CCPERF),
    entry("mean_utility_mpdf_l4", "flow", "s/Mbit", Mean,
        "minimum-potential-delay utility: negative mean reciprocal of the throughput per 50 ms of \
         the flow's lifetime; intervals without a byte are skipped (simulator)",
        "mean(-1 / x), x in Mbit/s", CCPERF),
    entry("mean_utilization_bw_l4", "flow", "", Mean,
        "share of the link's rate that the payload read uses, mean over the 100 ms intervals of \
         the flow's lifetime after the warm-up; a trace counts with its mean rate",
        "mean(x / C)", CCPERF),
    entry("mean_utilization_bdp_l4", "flow", "", Mean,
        "segments in flight divided by the path's bandwidth-delay product in full frames, sampled \
         every 10 ms of the flow's lifetime; only flows with at most ten connections",
        "<in flight / floor(C D / (8 frame))>, frame 1514 B", CCPERF),
    entry("mean_recovery_time_l4", "flow", "ms", Mean,
        "mean duration of loss recovery over the flow's lifetime (simulator)",
        "mean(end of recovery - start of recovery)", CCPERF),
    entry("flow_completion_time_l4", "flow", "s", Mean,
        "lifetime of a greedy connection, which ends at its planned stop", "stop - start", CCPERF),
    entry("total_retransmissions_l4", "run flow arm", "", Sum,
        "segments retransmitted in the whole run; for a run, by its greedy connections; emulator: \
         only flows with at most ten connections",
        "#{segments retransmitted}", CCPERF),
    entry("total_spurious_retransmissions_l4", "run flow arm", "", Sum,
        "spurious retransmissions: segments whose original also arrived; for a run, of its greedy \
         connections; emulator: as D-SACK reports them, only flows with at most ten connections",
        "#{segments that arrived twice}", "RFC 3708 section 2, RFC 2883"),
    entry("total_rtos_l4", "run flow arm", "", Sum,
        "retransmission timeouts in the whole run; for a run, of its greedy connections \
         (simulator)",
        "#{timeouts}", CCPERF),
    entry("limits_clamped", "flow", "", Sum,
        "invalid limits (a window of 0, infinity, NaN) that a user-supplied algorithm returned and \
         the simulator clamped, in the whole run (simulator); absent if there were none",
        "#{answers}", OWN),
    entry("total_unreceived_l4", "flow", "", Sum,
        "segments that an optimistic receiver acknowledged but never received, not counting those \
         beyond the newest received segment, in the whole run (simulator)",
        "#{acknowledged, not received}", "Savage et al., CCR 29(5), 1999"),
    entry("rwnd_limited_l4", "flow", "", Mean,
        "share of the flow's lifetime in which only the receive window of a rate-limited reader \
         kept the sender from sending (simulator)",
        "time(SND.NXT at the window's edge) / life", "Linux, tcpi_rwnd_limited"),
    entry("total_window_probes_l4", "flow", "", Sum,
        "probes of a closed receive window in the whole run (simulator)",
        "#{probes}", "RFC 9293 section 3.8.6.1"),
    entry("stall_max_s", "run flow arm", "s", Max,
        "longest time without receiving a byte, in steps of 100 ms",
        "100 ms max(100 ms in a row with 0 bytes)", OWN),
    entry("boxes_died", "run arm", "", Sum,
        "runs that ended because a sendbox, a receivebox or the agent exited on its own or did not \
         stop on request; they have no other metrics and miss every bound",
        "#{runs}", OWN),
    entry("flows_failed", "run flow arm", "", Sum, "connections reset or failed", "#{connections}", OWN),
    entry("rtt_p50_ms", "run flow bundle arm", "ms", Mean,
        "median round trip: of pings, or for a bundle as the sendbox estimates it",
        "Q50(RTT)", "RFC 2681"),
    entry("rtt_p99_ms", "run flow arm", "ms", Mean, "99th percentile of the pings' round trip",
        "Q99(RTT)", "RFC 2681"),
    entry("ping_queueing_mean_ms", "flow", "ms", Mean,
        "queueing delay of a sparse flow: round trip of the pings minus propagation delay, both as \
         means over the flow's lifetime",
        "sum(RTT^2) / sum(RTT) - <D>", OWN),
    entry("datagrams_lost", "run flow arm", "", Sum, "datagrams that never arrived",
        "#{sent} - #{received}", "RFC 7680"),
];

/// Metrics of the flow at place `flow` of the plan, over all its connections; without `flow`, of all flows.
pub fn metrics(experiment: &Experiment, rows: &RunRecord, flow: Option<usize>) -> Metrics {
    let of_flow: Vec<&FlowRecord> =
        rows.flows.iter().filter(|row| flow.is_none_or(|flow| flow == row.flow)).collect();
    let mut metrics = Metrics::default();
    if of_flow.is_empty() {
        return metrics;
    }
    let bins = total_bins(&of_flow);
    let path = flow.map(|place| Path::of(experiment, &experiment.flows[place]));
    for window in windows(experiment, rows.attack.as_ref()) {
        let active = match flow.map(|flow| &experiment.flows[flow]) {
            Some(flow) => life_within(&window, flow.first_start(), flow.stop),
            None => window,
        };
        let mut throughput = throughput(&bins, &active);
        let rate = path.as_ref().and_then(|path| path.rate.as_ref());
        throughput
            .put("mean_utilization_bw_l4", rate.and_then(|it| utilization(&bins, &active, it)));
        metrics.put_all(&active.name, throughput);
        metrics.put_all(&active.name, media::metrics(&of_flow, &active, rows.finished_ns));
    }
    if let Some((place, path)) = flow.zip(path) {
        let flow = &experiment.flows[place];
        metrics.0.extend(sampled(experiment, flow, &path, &of_flow).0);
        let mut measured = measured(&of_flow);
        // The back end's value would cover the warm-up or a single connection.
        if of_flow.len() > 1 || !experiment.warmup.is_zero() {
            measured.0.remove("mean_throughput_l4");
        }
        metrics.0.extend(measured.0);
        let [from, to] = [flow.first_start(), flow.stop].map(|at| at.as_nanos() as u64);
        let srtt = metrics.get("mean_srtt_l4");
        metrics.put("mean_est_qdelay_l4", srtt.map(|srtt| srtt - path.mean_rtt_ms(from, to)));
        if is_greedy(flow) {
            let lives = of_flow.iter().map(|row| life_s(flow, row));
            metrics.put("flow_completion_time_l4", mean(lives));
        }
        // Each ping follows the previous one at once, so its weight is its duration.
        let rtts = of_flow.iter().flat_map(|row| row.rtts_ns.iter());
        let rtts: Vec<f64> = rtts.map(|rtt| *rtt as f64 / 1e6).collect();
        let rtt = share(rtts.iter().map(|rtt| rtt * rtt).sum(), rtts.iter().sum());
        metrics.put("ping_queueing_mean_ms", rtt.map(|rtt| rtt - path.mean_rtt_ms(from, to)));
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

/// Whether the connections of `flow` always have more to send.
pub fn is_greedy(flow: &Flow) -> bool {
    matches!(flow.traffic, Traffic::Greedy { .. })
}

/// How long the connection of `row`, one of `flow`, lives (s).
pub fn life_s(flow: &Flow, row: &FlowRecord) -> f64 {
    flow.stop.saturating_sub(flow.start_of(row.index)).as_secs_f64()
}

/// The part of `window` between `start` and `stop`.
fn life_within(window: &Window, start: Duration, stop: Duration) -> Window {
    Window { from: window.from.max(start), to: window.to.min(stop), name: window.name.clone() }
}

/// Payload that the connection of `row` read during its life, without the warm-up (Mbit/s).
pub fn rate_mbps(experiment: &Experiment, row: &FlowRecord) -> Option<f64> {
    let flow = &experiment.flows[row.flow];
    let life = life_within(&experiment.counted(), flow.start_of(row.index), flow.stop);
    let read = read_in(&row.bytes_per_100ms, &life);
    mean(read.map(|(_, bytes)| mbps(bytes)))
}

/// Metrics from the samples of all connections while the flow runs: means, the largest window, and the last
/// time at which a connection reached half of the bandwidth-delay product.
fn sampled<'a>(
    experiment: &Experiment,
    flow: &Flow,
    path: &Path,
    rows: &[&'a FlowRecord],
) -> Metrics {
    let to = flow.stop.as_nanos() as u64;
    let of_row = |row: &&'a FlowRecord| -> (u64, &'a [TcpSample]) {
        let from = flow.start_of(row.index).as_nanos() as u64;
        let begun = &row.samples[row.samples.partition_point(|it| it.at_ns < from)..];
        (from, &begun[..begun.partition_point(|it| it.at_ns < to)])
    };
    let taken: Vec<(u64, &[TcpSample])> = rows.iter().map(of_row).collect();
    let all = || taken.iter().flat_map(|(_, samples)| samples.iter());
    let mut metrics = Metrics::default();
    let windows = all().map(|it| it.cwnd_segments);
    metrics.put("peak_cwnd_l4", windows.clone().reduce(f64::max));
    metrics.put("mean_cwnd_l4", mean(windows));
    metrics.put("mean_srtt_l4", mean(all().filter_map(|it| it.srtt_ms)));
    let in_flight = all().filter_map(|it| it.in_flight_segments);
    metrics.put("mean_in_flight_l4", mean(in_flight.clone()));
    metrics.put("cov_in_flight_l4", cov(in_flight));
    let of_bdp = |it: &TcpSample| share(it.in_flight_segments?, path.bdp_packets(it.at_ns)?);
    metrics.put("mean_utilization_bdp_l4", mean(all().filter_map(of_bdp)));
    let rates = taken.iter().flat_map(|(_, samples)| delivery_rates(samples));
    metrics.put("mean_delivery_rate_l4", mean(rates));
    let (warmup, rtt) = (experiment.warmup.as_nanos() as u64, experiment.rtt_of(flow));
    let counted = || all().filter(|it| it.at_ns >= warmup).filter_map(|it| it.srtt_ms);
    let srtts = Sorted::new(counted());
    metrics.put_quantiles("srtt_{p}_ms", |share| srtts.quantile(share));
    let queueing = Sorted::new(counted().map(|srtt_ms| srtt_ms - rtt.as_secs_f64() * 1e3));
    metrics.put_quantiles("queueing_{p}_ms", |share| queueing.quantile(share));
    let last = || taken.iter().filter_map(|(_, samples)| samples.last());
    let sum = |counts: Vec<u64>| (!counts.is_empty()).then(|| counts.iter().sum::<u64>() as f64);
    let resent = sum(last().map(|it| it.retransmissions).collect());
    metrics.put("total_retransmissions_l4", resent);
    let twice = sum(last().filter_map(|it| it.duplicates).collect());
    metrics.put("total_spurious_retransmissions_l4", twice);
    let half = half_bdp_segments(experiment, flow).unwrap_or(f64::INFINITY);
    let reached = |(from, samples): &(u64, &[TcpSample])| {
        let first = samples.iter().find(|it| it.cwnd_segments >= half)?;
        Some((first.at_ns - from) as f64 / 1e6)
    };
    let reached: Option<Vec<f64>> = taken.iter().map(reached).collect();
    metrics.put("half_bdp_after_ms", reached.and_then(|all| all.into_iter().reduce(f64::max)));
    metrics
}

/// Rate of delivery over the smoothed round trip before each of `samples` (Mbit/s). Samples without an
/// earlier one that far back are left out.
fn delivery_rates(samples: &[TcpSample]) -> impl Iterator<Item = f64> {
    samples.iter().filter_map(move |it| {
        let since = it.at_ns.checked_sub((it.srtt_ms? * 1e6) as u64)?;
        let earlier = samples[..samples.partition_point(|it| it.at_ns <= since)].last()?;
        let bytes = it.delivered_bytes?.saturating_sub(earlier.delivered_bytes?);
        share(bytes as f64 * 8e3, (it.at_ns - earlier.at_ns) as f64)
    })
}

/// Half of the bandwidth-delay product of the path without queues, in full frames.
fn half_bdp_segments(experiment: &Experiment, flow: &Flow) -> Option<f64> {
    let rate = link_of(experiment, flow).nominal_rate()?;
    let bytes = rate.as_bytes_per_sec_f64() * experiment.rtt_of(flow).as_secs_f64();
    Some(bytes / FULL_FRAME.as_u64() as f64 / 2.0)
}

/// The back end's figures of the connections, pooled as the catalogue pools them over runs. They cover the
/// whole run, its warm-up included.
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

/// The 100 ms that lie in `window` by their numbers, with the bytes read in each.
fn read_in(bins: &[u64], window: &Window) -> impl Iterator<Item = (u64, u64)> + Clone {
    let (from, to) = bounds_ns(window);
    // Nothing was read in a bin beyond the record.
    let read = move |bin: u64| (bin, bins.get(bin as usize).copied().unwrap_or(0));
    (from.div_ceil(BIN_NS)..to / BIN_NS).map(read)
}

/// The rate of `bytes` in 100 ms.
fn mbps(bytes: u64) -> f64 {
    bytes as f64 * 8e3 / BIN_NS as f64
}

/// Payload is counted where the program reads it (`l7`). TCP delivers it in order and at once, so the
/// arrivals at the receiving TCP (`l4`) differ by no more than a receive buffer.
fn throughput(bins: &[u64], window: &Window) -> Metrics {
    let mut metrics = Metrics::default();
    let read = read_in(bins, window).map(|(_, bytes)| bytes);
    let count = read.clone().count();
    if count == 0 {
        return metrics;
    }
    let seconds = count as f64 * BIN_NS as f64 / 1e9;
    let bytes: u64 = read.clone().sum();
    let rate = share(bytes as f64 * 8.0 / 1e6, seconds);
    metrics.put("goodput_mbps", rate);
    metrics.put("mean_throughput_l7", rate);
    metrics.put("mean_throughput_l4", rate);
    metrics.put("payload_bytes", Some(bytes as f64));
    metrics.put("cov_throughput_l7", cov(read.clone().map(|bytes| bytes as f64)));
    let rates = Sorted::new(read.clone().map(mbps));
    metrics.put_quantiles("throughput_{p}_mbps", |share| rates.quantile(share));
    metrics.put("throughput_drift", drift(&read.clone().collect::<Vec<_>>()));
    metrics.put("stall_max_s", longest_stall(read));
    metrics
}

/// Change of the bytes read in a second from the first to the last of `bins`, over their median. `None` for
/// fewer than [`DRIFT_MIN`] seconds; a long time is cut into [`DRIFT_MAX`] equal parts instead of seconds.
fn drift(bins: &[u64]) -> Option<f64> {
    let part = (bins.len() / DRIFT_MAX).max((1_000_000_000 / BIN_NS) as usize);
    let sums: Vec<f64> =
        bins.chunks_exact(part).map(|bins| bins.iter().sum::<u64>() as f64).collect();
    if sums.len() < DRIFT_MIN {
        return None;
    }
    let median = Sorted::new(sums.iter().copied()).quantile(0.5)?;
    share(slope(&sums)? * (sums.len() - 1) as f64, median)
}

/// Mean over each 100 ms in `window`: the rate read over the mean of `rate`.
pub fn utilization(bins: &[u64], window: &Window, rate: &Steps) -> Option<f64> {
    let of_bin = |(bin, bytes): (u64, u64)| {
        share(mbps(bytes) * 1e6, rate.mean(bin * BIN_NS, (bin + 1) * BIN_NS))
    };
    mean(read_in(bins, window).filter_map(of_bin))
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
        assert_eq!((get("throughput_p5_mbps"), get("throughput_p50_mbps")), (0.0, 10.0));
        // 10 Mbit/s of 96 in five of eight bins.
        assert!((get("mean_utilization_bw_l4") - 5.0 / 8.0 / 9.6).abs() < 1e-9);
        // Mean 78,125, five bins 46,875 above, three 78,125 below: sqrt(15/64) / (5/8).
        assert!((get("cov_throughput_l7") - 0.7746).abs() < 1e-4);
        assert_eq!(metrics.get("datagrams_lost"), None);
    }

    #[test]
    fn back_end_measurements_are_averaged_or_added() {
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
    fn samples_give_means_peak_and_half_bdp_time() {
        let sample = |ms: u64, cwnd_segments, srtt_ms, retransmissions| TcpSample {
            at_ns: ms * 1_000_000,
            cwnd_segments,
            srtt_ms,
            in_flight_segments: Some(ms as f64),
            delivered_bytes: Some(ms * 1_000),
            retransmissions,
            duplicates: Some(retransmissions / 2),
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
            ("mean_est_qdelay_l4", 10.0),
            ("srtt_p50_ms", 60.0),
            ("queueing_p50_ms", 10.0),
            ("mean_in_flight_l4", 15.0),
            ("mean_utilization_bdp_l4", 15.0 / 396.0),
            ("total_retransmissions_l4", 5.0),
            ("total_spurious_retransmissions_l4", 2.0),
            ("half_bdp_after_ms", 20.0),
            ("flow_completion_time_l4", 1.0),
        ] {
            let found = metrics.get(name).unwrap();
            assert!((found - value).abs() < 1e-9, "{name}: {found}");
        }
    }

    #[test]
    fn delivery_rate_covers_the_last_round_trip() {
        let sample = |ms: u64, delivered_bytes| TcpSample {
            at_ns: ms * 1_000_000,
            srtt_ms: Some(20.0),
            delivered_bytes: Some(delivered_bytes),
            ..TcpSample::default()
        };
        let samples = [(0, 0), (10, 5_000), (20, 10_000), (30, 40_000)];
        let samples = samples.map(|(ms, bytes)| sample(ms, bytes));
        // 10,000 bytes in 20 ms, and 35,000.
        assert_eq!(delivery_rates(&samples).collect::<Vec<_>>(), [4.0, 14.0]);
    }

    #[test]
    fn growing_flow_drifts_sawtooth_does_not() {
        // 1, 2, .. 9 in the seconds: by 8 over a median of 5.
        let grows: Vec<u64> = (0..90).map(|bin| 1 + bin / 10).collect();
        assert!((drift(&grows).unwrap() - 8.0 / 5.0).abs() < 1e-9);
        let saw: Vec<u64> = (0..90).map(|bin| 50 + bin / 10 % 3).collect();
        assert!(drift(&saw).unwrap().abs() < 0.02);
        assert_eq!(drift(&grows[..49]), None);
        // An hour is cut into a hundred parts.
        assert!((drift(&(0..36_000).collect::<Vec<_>>()).unwrap() - 1.98).abs() < 1e-3);
    }

    #[test]
    fn a_flow_is_measured_over_its_life() {
        let mut experiment = experiment();
        let flow = &mut experiment.flows[0];
        (flow.start, flow.stop) = (Duration::from_millis(400), Duration::from_millis(800));
        let bytes_per_100ms = vec![0, 0, 0, 0, 125_000, 125_000, 125_000, 125_000, 9];
        let row = FlowRecord { bytes_per_100ms, ..FlowRecord::default() };
        assert_eq!(rate_mbps(&experiment, &row), Some(10.0));
        let rows = RunRecord { flows: vec![row], ..RunRecord::default() };
        let metrics = metrics(&experiment, &rows, Some(0));
        assert_eq!(metrics.get("mean_throughput_l4"), Some(10.0));
        assert_eq!(metrics.get("throughput_p5_mbps"), Some(10.0));
        assert_eq!(metrics.get("flow_completion_time_l4"), Some(0.4));
    }

    #[test]
    fn round_trips_of_pings_are_in_ms() {
        let row =
            FlowRecord { rtts_ns: vec![50_000_000, 52_000_000], lost: 1, ..FlowRecord::default() };
        let rows = RunRecord { flows: vec![row], ..RunRecord::default() };
        let of_run = metrics(&experiment(), &rows, None);
        assert_eq!(of_run.get("rtt_p50_ms"), Some(51.0));
        assert_eq!(of_run.get("datagrams_lost"), Some(1.0));
        // The path's own round trip is 50 ms.
        let of_flow = metrics(&experiment(), &rows, Some(0));
        let queueing = of_flow.get("ping_queueing_mean_ms").unwrap();
        assert!((queueing - (50.0 * 50.0 + 52.0 * 52.0) / 102.0 + 50.0).abs() < 1e-9);
    }
}
