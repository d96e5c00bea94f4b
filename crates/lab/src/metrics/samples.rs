//! Numbers over time, for the figures.

use std::time::Duration;

use forebay_core::record::{BundleRecord, DecisionRecord, FlowRecord, RunRecord, TcpSample};
use forebay_scenario::Link;

use super::bundles::JudgedEpoch;
use super::entry::Pooling::{Mean, Sum};
use super::entry::{CCPERF, Entry, JAIN, OWN, entry};
use super::flows::total_bins;
use super::links::{BIN_NS, LinkTruth, QUEUE_BIN_NS};
use crate::experiment::Experiment;

/// One quantity over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// `run`, `link`, `bundle` or `flow`.
    pub part: &'static str,
    /// Name of the part; empty for the run.
    pub name: String,
    /// The quantity, ending in its unit.
    pub quantity: &'static str,
    /// Seconds since the start, and the value.
    pub points: Vec<(f64, f64)>,
}

/// Every quantity over time.
#[rustfmt::skip]
pub static SERIES: &[Entry] = &[
    entry("queue_packets", "link bundle", "packets", Mean, "packets waiting",
        "packets; of a link <packets> of 10 ms", OWN),
    entry("throughput_mbps", "link flow", "Mbit/s", Mean, "throughput",
        "8 bytes in 100 ms / 100 ms", OWN),
    entry("capacity_mbps", "link", "Mbit/s", Mean, "capacity",
        "bits that the current rate allows in 100 ms / 100 ms", OWN),
    entry("cwnd_segments", "flow", "segments", Mean, "window",
        "cwnd / MSS, every 10 ms", OWN),
    entry("in_flight_segments", "flow", "segments", Mean, "segments in flight",
        "in flight / MSS, every 10 ms", CCPERF),
    entry("srtt_ms", "flow", "ms", Mean, "smoothed round trip",
        "sRTT, every 10 ms", "RFC 6298 section 2"),
    entry("retransmissions", "flow", "", Sum, "segments retransmitted",
        "#{segments retransmitted}, every 10 ms", OWN),
    entry("jain", "run", "", Mean, "Jain's index of greedy connections",
        "sum(x)^2 / (n sum(x^2)), x bytes in each 1 s", JAIN),
    entry("rtt_ms", "bundle", "ms", Mean, "round trip, estimate",
        "RTT of each matched boundary", OWN),
    entry("rtt_true_ms", "bundle", "ms", Mean, "round trip, truth",
        "D + time at both links, of each matched boundary", OWN),
    entry("min_rtt_ms", "bundle", "ms", Mean, "base RTT",
        "base RTT at each decision", OWN),
    entry("delivery_mbps", "bundle", "Mbit/s", Mean, "delivery rate, estimate",
        "8 bytes between boundaries / time, as reported", OWN),
    entry("delivery_true_mbps", "bundle", "Mbit/s", Mean, "delivery rate, truth",
        "8 bytes between boundaries / time, at the bottleneck", OWN),
    entry("bottleneck_mbps", "bundle", "Mbit/s", Mean, "bottleneck rate, estimate",
        "rate at each decision", OWN),
    entry("rate_mbps", "bundle", "Mbit/s", Mean, "rate of the shaper",
        "rate at each decision", OWN),
];

/// The series of links and flows.
pub fn of_run(experiment: &Experiment, rows: &RunRecord, truths: &[&LinkTruth]) -> Vec<Series> {
    let mut series = Vec::new();
    for truth in truths {
        let at = |bin: usize, width: u64| (bin as u64 * width) as f64 / 1e9;
        let queue = truth.queue_over_time().enumerate();
        let queue = queue.map(|(bin, mean)| (at(bin, QUEUE_BIN_NS), mean));
        let rate = truth.bytes_over_time().iter().enumerate();
        let rate = rate.map(|(bin, bytes)| (at(bin, BIN_NS), *bytes as f64 * 8e3 / BIN_NS as f64));
        for (quantity, points) in
            [("queue_packets", queue.collect()), ("throughput_mbps", rate.collect::<Vec<_>>())]
        {
            series.push(Series { part: "link", name: truth.name.clone(), quantity, points });
        }
    }
    for link in experiment.links() {
        let points = capacity(link, experiment.stop);
        let name = link.name.clone();
        series.push(Series { part: "link", name, quantity: "capacity_mbps", points });
    }
    for (place, flow) in experiment.flows.iter().enumerate() {
        let of_flow: Vec<&FlowRecord> = rows.flows.iter().filter(|row| row.flow == place).collect();
        let points = rates(&total_bins(&of_flow), experiment.stop.as_secs_f64());
        let quantity = "throughput_mbps";
        series.push(Series { part: "flow", name: flow.name.clone(), quantity, points });
        for row in of_flow.iter().filter(|row| !row.samples.is_empty()) {
            let name = connection_name(&flow.name, row.index, of_flow.len());
            series.extend(of_connection(&name, row));
            if name != flow.name {
                let points = rates(&row.bytes_per_100ms, experiment.stop.as_secs_f64());
                series.push(Series { part: "flow", name, quantity, points });
            }
        }
    }
    series
}

/// Name of a connection of `flow`: the flow's own if it has one connection, else with `#` and its number from
/// 0.
fn connection_name(flow: &str, index: u32, connections: usize) -> String {
    if connections == 1 { flow.to_string() } else { format!("{flow}#{index}") }
}

/// The state of a sender over time.
fn of_connection(name: &str, row: &FlowRecord) -> Vec<Series> {
    let series = |quantity, value: fn(&TcpSample) -> Option<f64>| Series {
        part: "flow",
        name: name.to_string(),
        quantity,
        points: {
            let points = row.samples.iter();
            points.filter_map(|it| Some((it.at_ns as f64 / 1e9, value(it)?))).collect()
        },
    };
    let all = [
        series("cwnd_segments", |it| Some(it.cwnd_segments)),
        series("in_flight_segments", |it| it.in_flight_segments),
        series("srtt_ms", |it| it.srtt_ms),
        series("retransmissions", |it| Some(it.retransmissions as f64)),
    ];
    all.into_iter().filter(|it| !it.points.is_empty()).collect()
}

/// Capacity of a link with a rate until `stop`, in the bins of rates: a point at each change and at both
/// ends.
fn capacity(link: &Link, stop: Duration) -> Vec<(f64, f64)> {
    let bins = stop.as_nanos().div_ceil(u128::from(BIN_NS)) as u64;
    let of_bin = |bin: u64| {
        let [from, to] = [bin, bin + 1].map(|bin| Duration::from_nanos(bin * BIN_NS));
        let mbps = link.capacity_bits(from, to)? * 1e3 / BIN_NS as f64;
        Some((from.as_secs_f64(), mbps))
    };
    let all: Vec<(f64, f64)> = (0..bins).map_while(of_bin).collect();
    let last = all.len().saturating_sub(1);
    let is_kept = |place: usize| place == 0 || place == last || all[place].1 != all[place - 1].1;
    (0..all.len()).filter(|place| is_kept(*place)).map(|place| all[place]).collect()
}

/// Rates in the bins that begin before `stop_s`.
fn rates(bins: &[u64], stop_s: f64) -> Vec<(f64, f64)> {
    let points = bins.iter().enumerate().map(|(bin, bytes)| {
        (bin as f64 * BIN_NS as f64 / 1e9, *bytes as f64 * 8e3 / BIN_NS as f64)
    });
    points.take_while(|(at, _)| *at < stop_s).collect()
}

/// The series of a bundle: queue, rate, estimates and the truth.
pub fn of_bundle(row: &BundleRecord, judged: &[JudgedEpoch]) -> Vec<Series> {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let series =
        |quantity, points| Series { part: "bundle", name: row.name.clone(), quantity, points };
    let queue = row.queue.iter().map(|sample| (seconds(sample.at_ns), sample.packets as f64));
    let decided = |value: fn(&DecisionRecord) -> Option<f64>| {
        let points = row.decisions.iter();
        points.filter_map(move |d| Some((seconds(d.at_ns), value(d)?))).collect()
    };
    let epochs = |value: fn(&JudgedEpoch) -> Option<f64>| {
        let points = judged.iter();
        points.filter_map(move |e| Some((seconds(e.estimate.at_ns), value(e)?))).collect()
    };
    vec![
        series("queue_packets", queue.collect()),
        series("rate_mbps", decided(|d| Some(d.rate_bps? as f64 / 1e6))),
        series("bottleneck_mbps", decided(|d| Some(d.bottleneck_bps? as f64 / 1e6))),
        series("min_rtt_ms", decided(|d| Some(d.min_rtt_ns? as f64 / 1e6))),
        series("rtt_ms", epochs(|e| Some(e.estimate.rtt_ns as f64 / 1e6))),
        series("rtt_true_ms", epochs(|e| e.rtt_ms)),
        series("delivery_mbps", epochs(|e| e.estimated_mbps())),
        series("delivery_true_mbps", epochs(|e| e.rate_mbps)),
    ]
}

#[cfg(test)]
mod tests {
    use forebay_core::link::Service;

    use super::*;
    use crate::metrics::testing::experiment;
    use forebay_scenario::Change;

    #[test]
    fn capacity_is_told_where_it_changes() {
        let mut link = experiment().scenario.forward;
        let at = Duration::from_millis(250);
        let rate = "48Mbit/s".parse().ok();
        link.changes.push(Change { at, rate, ..Change::default() });
        let found = capacity(&link, Duration::from_secs(1));
        assert_eq!(found, [(0.0, 96.0), (0.2, 72.0), (0.3, 48.0), (0.9, 48.0)]);
        link.service = Service::Unlimited;
        assert!(capacity(&link, Duration::from_secs(1)).is_empty());
    }
}
