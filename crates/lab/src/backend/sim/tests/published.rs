//! ccperf's published figures, and the plans of its benchmark.

use super::*;
use crate::plan::library;

/// The published step in the simulator: a run by the names of its figures.
fn rate_step_down(plan: &Plan, seed: u64) -> impl Fn(&str) -> f64 + use<> {
    let cell = plan.cells.iter().find(|it| it.name == "rate-down").unwrap();
    let experiment = plan.experiment(&plan.arms[0], cell, seed).unwrap();
    let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
    move |name: &str| {
        let forward = evaluation.links.iter().find(|link| link.name == "forward").unwrap();
        let found = evaluation.flows[0].metrics.get(name).or_else(|| forward.metrics.get(name));
        found.unwrap_or_else(|| panic!("{name} is missing"))
    }
}

/// ccperf's experiment 60: figure, its value, and how far a median may deviate, as a share of the value and
/// in addition in its unit.
const PUBLISHED_STEP: [(&str, f64, f64, f64); 24] = [
    ("mean_throughput_l4", 27.72, 0.005, 0.0),
    ("mean_throughput_l7", 27.72, 0.005, 0.0),
    ("mean_delivery_rate_l4", 27.71, 0.01, 0.0),
    ("mean_sending_rate_l4", 27.80, 0.005, 0.0),
    ("mean_sending_rate_l7", 29.85, 0.005, 0.0),
    ("mean_sending_rate_l1", 28.76, 0.005, 0.0),
    ("mean_cwnd_l4", 46.95, 0.015, 0.0),
    ("mean_in_flight_l4", 46.46, 0.015, 0.0),
    ("mean_srtt_l4", 21.81, 0.015, 0.0),
    ("mean_est_qdelay_l4", 6.81, 0.06, 0.0),
    ("mean_network_power_l4", 1518.17, 0.015, 0.0),
    ("mean_utility_mpdf_l4", -0.05, 0.0, 0.003),
    ("mean_utilization_bw_l4", 0.92, 0.0, 0.01),
    ("mean_utilization_bdp_l4", 1.46, 0.05, 0.0),
    ("flow_completion_time_l4", 15.0, 0.0, 0.015),
    ("mean_one_way_delay_l7", 1457.08, 0.015, 0.0),
    ("mean_idt_ewma_l4", 0.58, 0.03, 0.0),
    ("mean_qdisc_length_l2", 8.62, 0.06, 0.0),
    ("mean_qdisc_delay_l2", 5.7, 0.0, 0.4),
    ("total_qdisc_drops_l2", 74.0, 0.0, 8.0),
    ("total_retransmissions_l4", 74.0, 0.0, 8.0),
    ("mean_recovery_time_l4", 28.64, 0.1, 0.0),
    ("cov_throughput_l4", 0.67, 0.0, 0.02),
    ("total_rtos_l4", 0.0, 0.0, 0.0),
];

#[test]
fn rate_step_reproduces_published_ccperf_figures() {
    let mut wrong = Vec::new();
    // The single run meets the medians' bounds too, though it could differ by more.
    for sets in [&["start_jitter=1rtt", "seeds=1..9"][..], &[]] {
        let parsed = sets.iter().map(|it| crate::plan::Override::parse(it).unwrap());
        let parsed: Vec<_> = parsed.collect();
        let plan = Plan::load_as_published("ccperf/responsiveness_step", &parsed).unwrap();
        let runs: Vec<_> = plan.seeds.iter().map(|seed| rate_step_down(&plan, seed)).collect();
        for (name, published, share, margin) in PUBLISHED_STEP {
            let mut found: Vec<f64> = runs.iter().map(|figure| figure(name)).collect();
            found.sort_by(f64::total_cmp);
            let median = found[found.len() / 2];
            if (median - published).abs() > share * published + margin {
                wrong.push(format!("{sets:?} {name}: {median}, ccperf {published}"));
            }
        }
        for figure in &runs {
            assert_eq!(figure("total_retransmissions_l4"), figure("total_qdisc_drops_l2"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_benchmark_plan_simulates_its_algorithm_under_test() {
    let sets = [crate::plan::Override::parse("aut=[\"newreno\", \"bbr\"]").unwrap()];
    for name in library::benchmark() {
        for plan in [Plan::load(name, &sets), Plan::load_as_published(name, &sets)] {
            for experiment in plan.unwrap().experiments() {
                let experiment = experiment.unwrap();
                Sim::default().check(&experiment).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        // The runs as published are the short ones.
        let plan = Plan::load_as_published(name, &[]).unwrap();
        let experiment = plan.experiments().next().unwrap().unwrap();
        let evaluation = evaluate(&experiment, &rows_of(&experiment)).unwrap();
        assert!(evaluation.invalid.is_empty(), "{name}: {:?}", evaluation.invalid);
        let aut = evaluation.flows.iter().find(|flow| flow.name == "aut").unwrap();
        assert!(aut.metrics.get("mean_throughput_l4") > Some(0.1), "{name}");
    }
}
