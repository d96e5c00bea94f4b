//! ccperf's metrics of a network: sums and means over all greedy connections of a run.

use forebay_core::record::{FlowRecord, RunRecord};

use super::entry::Pooling::Mean;
use super::entry::{CCPERF, Entry, JAIN, entry};
use super::flows::{is_greedy, life_s, rate_mbps, total_bins, utilization};
use super::path::Path;
use super::statistics::{jain, share};
use super::{Metrics, Part};
use crate::experiment::Experiment;

/// Metrics of two or more greedy connections.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("agg_throughput_l4", "run arm", "Mbit/s", Mean,
        "sum of the greedy connections' read rates, each over its lifetime after the \
         warm-up", "sum(x_i)", CCPERF),
    entry("jain_throughput_l4", "run arm", "", Mean,
        "Jain's fairness index of the greedy connections' read rates over their lifetimes after \
         the warm-up",
        "sum(x_i)^2 / (n sum(x_i^2))", JAIN),
    entry("agg_utility_pf_l4", "run arm", "", Mean,
        "proportional-fairness utility: sum of the logarithms of the greedy connections' read \
         rates", "sum(ln x_i), x in Mbit/s", CCPERF),
    entry("prod_throughput_l4", "run arm", "(Mbit/s)^n", Mean,
        "proportional fairness as a product of the read rates of the n greedy connections",
        "product of x_i", CCPERF),
    entry("agg_utility_mpdf_l4", "run arm", "s/Mbit", Mean,
        "minimum-potential-delay utility: negative sum of the reciprocals of the greedy \
         connections' read rates",
        "sum(-1 / x_i), x in Mbit/s", CCPERF),
    entry("agg_network_power_l4", "run arm", "Mbit/s^2", Mean,
        "network power: sum of the greedy connections' read rates divided by the mean of their \
         smoothed round trips",
        "sum(x_i) / mean(<sRTT_i>)", CCPERF),
    entry("agg_utilization_bw_l4", "run arm", "", Mean,
        "share of the link's rate that the greedy connections' payload uses, mean over the 100 ms \
         intervals after the warm-up; only if all are on one link",
        "mean(sum(x_i) / C)", CCPERF),
    entry("agg_utilization_bdp_l4", "run arm", "", Mean,
        "sum of mean_utilization_bdp_l4 over the greedy connections, weighted by their share of \
         the run; only if all are on one link",
        "sum(life_i <in flight_i / BDP>) / length of the run", CCPERF),
];

/// Metrics of the connections of all greedy flows; `flows` holds the parts in the order of the experiment.
/// Empty if there is only one connection.
pub fn metrics(experiment: &Experiment, rows: &RunRecord, flows: &[Part]) -> Metrics {
    let greedy: Vec<&FlowRecord> =
        rows.flows.iter().filter(|row| is_greedy(&experiment.flows[row.flow])).collect();
    let mut metrics = Metrics::default();
    if greedy.len() < 2 {
        return metrics;
    }
    let rates: Vec<f64> = greedy.iter().filter_map(|row| rate_mbps(experiment, row)).collect();
    let sum: f64 = rates.iter().sum();
    metrics.put("agg_throughput_l4", Some(sum));
    metrics.put("jain_throughput_l4", jain(&rates));
    // A connection with a rate of 0 has an infinite utility, and so has the network.
    metrics.put("agg_utility_pf_l4", Some(rates.iter().map(|rate| rate.ln()).sum()));
    metrics.put("prod_throughput_l4", Some(rates.iter().product()));
    metrics.put("agg_utility_mpdf_l4", Some(rates.iter().map(|rate| -1.0 / rate).sum()));
    // A flow's metric is the mean over its connections, or the sum.
    let of_flow = |row: &FlowRecord, name: &str| flows[row.flow].metrics.get(name);
    let all = |weight: &dyn Fn(&FlowRecord) -> f64, name: &str| -> Option<f64> {
        greedy.iter().copied().map(|row| Some(of_flow(row, name)? * weight(row))).sum()
    };
    let count = greedy.len() as f64;
    let srtt_ms = all(&|_: &FlowRecord| 1.0, "mean_srtt_l4").map(|srtts| srtts / count);
    metrics.put("mean_srtt_l4", srtt_ms);
    metrics.put("agg_network_power_l4", srtt_ms.and_then(|ms| share(sum, ms / 1e3)));
    for name in ["total_retransmissions_l4", "total_spurious_retransmissions_l4", "total_rtos_l4"] {
        let of_flows = experiment.flows.iter().zip(flows).filter(|(flow, _)| is_greedy(flow));
        let totals: Option<f64> = of_flows.map(|(_, part)| part.metrics.get(name)).sum();
        metrics.put(name, totals);
    }
    let flows = experiment.flows.iter().filter(|flow| is_greedy(flow));
    let paths: Vec<Path> = flows.map(|flow| Path::of(experiment, flow)).collect();
    if paths.iter().all(|path| path.link == paths[0].link) {
        let (bins, counted) = (total_bins(&greedy), experiment.counted());
        let rate = paths[0].rate.as_ref();
        let of_rate = rate.and_then(|rate| utilization(&bins, &counted, rate));
        metrics.put("agg_utilization_bw_l4", of_rate);
        let life = |row: &FlowRecord| life_s(&experiment.flows[row.flow], row);
        let together = all(&life, "mean_utilization_bdp_l4");
        let length = experiment.stop.as_secs_f64();
        metrics.put("agg_utilization_bdp_l4", together.and_then(|sum| share(sum, length)));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::flows;
    use crate::metrics::testing::experiment;
    use forebay_scenario::Traffic;

    /// The metrics of two connections of one flow for 10 s; the second starts at 5 s. Rates in Mbit/s.
    fn of(rates: [u64; 2]) -> Metrics {
        let mut experiment = experiment();
        experiment.stop = Duration::from_secs(10);
        let flow = &mut experiment.scenario.flows[0];
        flow.traffic = Traffic::Greedy { flows: 2 };
        (flow.start, flow.stop) = (Duration::ZERO, experiment.scenario.stop);
        flow.other_starts = vec![Duration::from_secs(5)];
        let row = |index: u32| {
            let place = index as usize;
            let bytes = rates[place] * 12_500;
            FlowRecord {
                index,
                bytes_per_100ms: [vec![0; 50 * place], vec![bytes; 100 - 50 * place]].concat(),
                measured: vec![("mean_srtt_l4", 50.0), ("total_rtos_l4", 1.0)],
                ..FlowRecord::default()
            }
        };
        let rows = RunRecord { flows: vec![row(0), row(1)], ..RunRecord::default() };
        let metrics = flows::metrics(&experiment, &rows, Some(0));
        super::metrics(&experiment, &rows, &[Part { name: "bulk".into(), metrics }])
    }

    #[test]
    fn network_metrics_sum_over_connection_lifetimes() {
        let metrics = of([60, 20]);
        for (name, value) in [
            ("agg_throughput_l4", 80.0),
            ("jain_throughput_l4", 0.8),
            ("agg_utility_pf_l4", 1200_f64.ln()),
            ("prod_throughput_l4", 1200.0),
            ("agg_utility_mpdf_l4", -4.0 / 60.0),
            ("mean_srtt_l4", 50.0),
            ("agg_network_power_l4", 1600.0),
            ("total_rtos_l4", 2.0),
            ("agg_utilization_bw_l4", 70.0 / 96.0),
        ] {
            let found = metrics.get(name).unwrap();
            assert!((found - value).abs() < 1e-9, "{name}: {found}");
        }
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let metrics = of([60, 0]);
        assert_eq!(metrics.get("jain_throughput_l4"), Some(0.5));
        assert_eq!(metrics.get("agg_utility_pf_l4"), None);
        assert_eq!(metrics.get("agg_utility_mpdf_l4"), None);
    }
}
