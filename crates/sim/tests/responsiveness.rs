//! ccperf's published experiment #60 (`responsiveness_step`): NewReno over 64 Mbit/s, 16 Mbit/s from 5
//! s on, 15 ms, 20 packets, 15 s. The figures are ccperf's. The bounds are ns-3's own differences when
//! immaterial settings change (start, access rate, place of the delay).

use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Source;
use forebay_core::units::{Duration, Rate, Ratio};
use forebay_sim::{Change, Dumbbell, Flow, FlowMetrics, LinkMetrics, Simulation, Stack};

/// Runs the step with a start delayed by `jitter` ninths of a round trip.
fn step(jitter: u32) -> (FlowMetrics, LinkMetrics) {
    let rtt = Duration::from_millis(15);
    let source = Source::Greedy { bytes: None };
    let plan = Dumbbell {
        stop: Duration::from_secs(15),
        seed: 42,
        stack: Stack::NS3,
        rate: Rate::from_mbit_per_sec(64),
        rtt,
        loss: Ratio::ZERO,
        qdisc: Spec::named("fifo").with("limit", Value::Text("20p".into())),
        changes: vec![Change {
            at: Duration::from_secs(5),
            rate: Some(Rate::from_mbit_per_sec(16)),
            ..Change::default()
        }],
        flows: vec![Flow {
            cc: Spec::named("newreno"),
            source,
            start: rtt * jitter / 9,
            rtt: None,
        }],
    };
    let mut simulation = Simulation::new(&plan).unwrap();
    simulation.watch_writing(0);
    simulation.run();
    (simulation.flow_metrics(0).unwrap(), simulation.link_metrics(0))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

type Metric = fn(&(FlowMetrics, LinkMetrics)) -> f64;

/// Name, ccperf's figure, relative bound, additional absolute bound, our figure.
const CHECKS: [(&str, f64, f64, f64, Metric); 16] = [
    ("mean_throughput_l4", 27.72, 0.005, 0.0, |run| run.0.mean_throughput_l4),
    ("mean_sending_rate_l4", 27.80, 0.005, 0.0, |run| run.0.mean_sending_rate_l4),
    ("mean_sending_rate_l7", 29.85, 0.005, 0.0, |run| run.0.mean_sending_rate_l7),
    ("mean_sending_rate_l1", 28.76, 0.005, 0.0, |run| run.1.mean_sending_rate_l1),
    ("mean_cwnd_l4", 46.95, 0.015, 0.0, |run| run.0.mean_cwnd_l4),
    ("mean_in_flight_l4", 46.46, 0.015, 0.0, |run| run.0.mean_in_flight_l4),
    ("mean_srtt_l4", 21.81, 0.015, 0.0, |run| run.0.mean_srtt_l4),
    ("mean_network_power_l4", 1518.17, 0.015, 0.0, |run| run.0.mean_network_power_l4),
    ("mean_one_way_delay_l7", 1457.08, 0.015, 0.0, |run| run.0.mean_one_way_delay_l7.unwrap()),
    ("mean_idt_ewma_l4", 0.58, 0.03, 0.0, |run| run.0.mean_idt_ewma_l4),
    ("mean_qdisc_length_l2", 8.62, 0.06, 0.0, |run| run.1.mean_qdisc_length_l2),
    ("mean_qdisc_delay_l2", 5.7, 0.0, 0.4, |run| run.1.mean_qdisc_delay_l2),
    ("total_qdisc_drops_l2", 74.0, 0.0, 8.0, |run| run.1.total_qdisc_drops_l2 as f64),
    ("mean_recovery_time_l4", 28.64, 0.1, 0.0, |run| run.0.mean_recovery_time_l4),
    ("cov_throughput_l4", 0.67, 0.0, 0.02, |run| run.0.cov_throughput_l4),
    ("total_rtos_l4", 0.0, 0.0, 0.0, |run| run.0.total_rtos_l4 as f64),
];

#[test]
fn step_response_matches_published_ns3_result() {
    let runs: Vec<(FlowMetrics, LinkMetrics)> = (0..9).map(step).collect();
    let mut wrong = Vec::new();
    for (name, published, share, margin, metric) in CHECKS {
        let found = median(runs.iter().map(metric).collect());
        let single = metric(&runs[0]);
        println!("{name:24} ccperf {published:9.3}  median {found:9.3}  single {single:9.3}");
        if (found - published).abs() > share * published + margin {
            wrong.push(format!("{name}: {found} instead of {published}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (flow, link) in &runs {
        assert_eq!(flow.total_retransmissions_l4, link.total_qdisc_drops_l2, "{flow:?}");
    }
}
