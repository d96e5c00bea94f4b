use forebay_core::record::{
    BundleCounters, DecisionRecord, EpochRecord, LinkRecord, PacketRecord, QueueSample,
};

use super::*;
use crate::metrics::links;
use crate::metrics::testing::{experiment, packet};
use crate::metrics::{PacketLog, RunRows};

/// One millisecond (ns).
const MS: u64 = 1_000_000;

/// The whole record.
fn window() -> Window {
    Window { name: String::new(), from: Duration::ZERO, to: Duration::from_millis(100) }
}

fn bundle_row() -> BundleRecord {
    let epoch = |at, identity, previous_identity, rtt_ns, delivery_rate_bps| EpochRecord {
        at_ns: at * MS,
        identity,
        previous_identity,
        rtt_ns,
        delivery_rate_bps,
        epoch_packets: 4,
        ..EpochRecord::default()
    };
    let decision = |at, rate_bps, min_rtt, state: &str| DecisionRecord {
        at_ns: at * MS,
        rate_bps,
        min_rtt_ns: Some(min_rtt),
        state: state.into(),
        ..DecisionRecord::default()
    };
    BundleRecord {
        name: "a".into(),
        // True round trips are 50 + 2 + 3 ms and 50 + 4 + 0 ms; the third is unknown.
        epochs: vec![
            epoch(70, 11, 10, 55_400_000, 12_300_000),
            epoch(80, 12, 11, 56_000_000, 0),
            epoch(90, 99, 12, 50_000_000, 1_000_000),
        ],
        queue: vec![
            QueueSample { at_ns: 0, packets: 10, bytes: 0 },
            QueueSample { at_ns: 50 * MS, packets: 30, bytes: 0 },
        ],
        decisions: vec![
            decision(0, None, 58_000_000, "measuring"),
            decision(25, Some(5_000_000), 50_200_000, "shaping"),
            decision(90, Some(9_000_000), 50_400_000, "shaping"),
            decision(98, Some(7_000_000), 50_200_000, "shaping"),
        ],
        counters: BundleCounters {
            boundaries_sent: 4,
            boundaries_unexpected: 1,
            boundaries_matched: 3,
            boundaries_in_order: 2,
            boundaries_late: 1,
            ..BundleCounters::default()
        },
        ..BundleRecord::default()
    }
}

fn judged() -> (Experiment, LinkTruth, Vec<JudgedEpoch>) {
    let experiment = experiment();
    let at = |identity, arrived, departed| PacketRecord {
        identity,
        ..packet(identity, arrived * MS, departed * MS)
    };
    let there = vec![at(10, 10, 11), at(11, 12, 14), at(12, 12, 16), at(50, 14, 15)];
    // The report about 11 leaves at 39 ms and waits 3 ms; the one about 12 does not wait.
    let back = vec![at(71, 20, 29), at(70, 40, 43)];
    let packets = [there, back].map(PacketLog::Rows).to_vec();
    let names = ["forward", "reverse"].map(String::from);
    let links = names.map(|name| LinkRecord { name, ..LinkRecord::default() }).to_vec();
    let run = RunRecord { links, bundles: vec![bundle_row()], ..RunRecord::default() };
    let rows = RunRows { run, packets };
    let there =
        links::read(&experiment, &rows.run, &rows.packets, &[window()]).unwrap().swap_remove(0);
    let row = &rows.run.bundles[0];
    let judged = judge_epochs(&experiment, &experiment.bundles[0], row, &there);
    (experiment, there, judged)
}

#[test]
fn true_rtt_is_propagation_sojourn_and_return() {
    let (_, _, judged) = judged();
    let rtts: Vec<Option<f64>> = judged.iter().map(|epoch| epoch.rtt_ms).collect();
    assert_eq!(rtts, [Some(55.0), Some(54.0), None]);
}

#[test]
fn true_rate_counts_bytes_between_boundaries() {
    let (_, _, judged) = judged();
    // One packet of 1500 bytes in 3 ms; two in 2 ms; the third boundary is unknown.
    let rates: Vec<Option<f64>> = judged.iter().map(|epoch| epoch.rate_mbps).collect();
    assert_eq!(rates, [Some(4.0), Some(12.0), None]);
}

#[test]
fn state_change_at_window_start_counts() {
    let mut metrics = Metrics::default();
    control(&bundle_row(), 25 * MS, 100 * MS, &mut metrics);
    assert_eq!(metrics.get("transitions"), Some(1.0));
}

#[test]
fn handed_back_time_is_not_shaped() {
    let mut row = bundle_row();
    let handed_back =
        DecisionRecord { at_ns: 50 * MS, state: "handed_back".into(), ..DecisionRecord::default() };
    row.decisions.insert(2, handed_back);
    let mut metrics = Metrics::default();
    control(&row, 0, 100 * MS, &mut metrics);
    // From 25 to 50 and from 90 to 100 ms.
    assert_eq!(metrics.get("shaped_share"), Some(0.35));
    assert_eq!(metrics.get("transitions"), Some(3.0));
}

#[test]
fn waits_of_sparse_flows_are_pooled_over_seconds() {
    let second = |at_s: u64, counts: &[(u64, u32)]| WaitRecord {
        at_ns: at_s * 1000 * MS,
        counts: counts.iter().map(|(wait_ms, count)| (wait_ms * MS, *count)).collect(),
        ..WaitRecord::default()
    };
    let waits = vec![
        second(1, &[(1, 50)]),
        second(2, &[(2, 60), (30, 1)]),
        second(3, &[(4, 38), (50, 1)]),
        second(4, &[(90, 9)]),
    ];
    let row = BundleRecord { waits, ..BundleRecord::default() };
    let found = |from_s: u64, to_s: u64| {
        let mut metrics = Metrics::default();
        super::waits(&row, from_s * 1000 * MS, to_s * 1000 * MS, &mut metrics);
        ["sparse_wait_p50_ms", "sparse_wait_p99_ms"].map(|name| metrics.get(name))
    };
    // The first second and the last are left out.
    assert_eq!(found(1, 3), [Some(2.0), Some(30.0)]);
    assert_eq!(found(3, 4), [Some(90.0); 2]);
    assert_eq!(found(10, 20), [None; 2]);
}

#[test]
fn states_of_the_supervisor() {
    let decision = |at, state: &str| DecisionRecord {
        at_ns: at * MS,
        state: state.into(),
        ..DecisionRecord::default()
    };
    let times = [
        (0, "no_peer"),
        (50, "passing"),
        (150, "trying"),
        (200, "passing"),
        (250, "trying"),
        (300, "trying"),
        (325, "app_limited"),
        (350, "shaping"),
    ];
    let decisions = times.map(|(at, state)| decision(at, state)).to_vec();
    let row = BundleRecord { decisions, ..BundleRecord::default() };
    let get = |from, to, name: &str| {
        let mut metrics = Metrics::default();
        control(&row, from * MS, to * MS, &mut metrics);
        metrics.get(name)
    };
    assert_eq!(get(0, 400, "passing_share"), Some(0.375));
    assert_eq!(get(0, 400, "trying_share"), Some(0.3125));
    assert_eq!(get(0, 400, "trials"), Some(2.0));
    assert_eq!(get(150, 200, "trying_share"), Some(1.0));
    assert_eq!(get(160, 400, "trials"), Some(1.0));
    assert_eq!(get(330, 400, "passing_share"), Some(0.0));
    assert_eq!(first_shape_s(&row), Some(0.325));
    let all = transitions(&row);
    assert_eq!(
        all.iter().map(Transition::is_unlimited).collect::<Vec<_>>(),
        [false, true, true, true, true, false, false]
    );
    assert_eq!((all[1].at_s, all[1].state.as_str()), (0.05, "passing"));
}

#[test]
fn never_shaped() {
    let decision = DecisionRecord { state: "passing".into(), ..DecisionRecord::default() };
    let row = BundleRecord { decisions: vec![decision], ..BundleRecord::default() };
    assert_eq!(first_shape_s(&row), None);
}

#[test]
fn a_sendbox_that_says_nothing_does_not_shape() {
    let decision = |at, rate_bps| DecisionRecord { at_ns: at * MS, rate_bps, ..<_>::default() };
    let shaped = Some(9_000_000);
    // Rows as they come, then 650 ms without any, and nothing after 1.2 s.
    let times = [0, 100, 205, 855, 955, 1200];
    let decisions = times.map(|at| decision(at, shaped)).to_vec();
    let mut row = BundleRecord { decisions, ..BundleRecord::default() };
    let share = |row: &BundleRecord, from, to| {
        let mut metrics = Metrics::default();
        control(row, from * MS, to * MS, &mut metrics);
        metrics.get("shaped_share").unwrap()
    };
    assert_eq!(share(&row, 0, 455), 1.0);
    assert_eq!(share(&row, 455, 855), 0.0);
    assert_eq!(share(&row, 0, 1000), 0.6);
    assert_eq!(share(&row, 1200, 1700), 0.5);
    row.decisions.clear();
    assert_eq!(share(&row, 0, 1000), 0.0);
}

#[test]
fn estimates_are_counted_against_the_truth() {
    let (experiment, there, judged) = judged();
    let row = bundle_row();
    let bundle = &experiment.bundles[0];
    let metrics = metrics(&experiment, bundle, &row, &there, &judged, &window());
    let get = |name: &str| metrics.get(name).unwrap();
    // Errors are 0.4 and 2.0 ms; the third is unknown.
    assert_eq!(get("rtt_within_1ms"), 1.0 / 3.0);
    // Five boundaries were sent; no report could be expected about one.
    assert_eq!(get("rtt_within_1ms_of_all"), 0.2);
    assert!((get("rtt_error_abs_p50_ms") - 2.0).abs() < 1e-9);
    assert_eq!(metrics.get("rtt_error_abs_p80_ms"), None);
    assert_eq!(get("epochs_without_truth"), 1.0);
    // Only the first has both rates: 12.3 against 4.
    assert_eq!(get("epochs_with_rate"), 1.0 / 3.0);
    assert_eq!([get("rate_within_4pct"), get("rate_within_4pct_of_all")], [0.0, 0.0]);
    assert!((get("rate_error_p50") - 2.075).abs() < 1e-9);
    // Two samples in 100 ms of round trips of 54.5 ms.
    assert!((get("samples_per_rtt") - 2.0 * 54.5 / 100.0).abs() < 1e-9);
    assert_eq!([get("boundaries_matched"), get("boundaries_matched_of_all")], [0.75, 0.6]);
    assert_eq!(get("out_of_order_ratio"), 1.0 / 3.0);
    assert_eq!(get("queue_mean_packets"), 20.0);
    assert!(get("queue_share_at_sendbox") > 0.99);
    assert_eq!(get("shaped_share"), 0.75);
    assert_eq!(get("transitions"), 1.0);
    // 5 for 65 ms, 9 for 8 ms, 7 for 2 ms.
    assert_eq!([get("rate_min_mbps"), get("rate_p5_mbps")], [5.0, 5.0]);
    assert_eq!([get("rate_p95_mbps"), get("rate_max_mbps")], [9.0, 9.0]);
    // 50.2, 50.4 and 50.2 ms with a path of 50 ms, since the bundle was first shaped at 25 ms.
    assert!((get("min_rtt_ms") - 50.2).abs() < 1e-9);
    assert!((get("min_rtt_drift_ms") - 0.2).abs() < 1e-9);
    assert!((get("min_rtt_error_max_ms") - 0.4).abs() < 1e-9);
}
