//! Sendbox and receivebox as processes on real traffic. Function only: no figure is judged here.
#![cfg(feature = "host")]

mod bare;
mod blind;
mod by_hand;
mod clean_stop;
mod clocks;
mod conditions;
mod confirm_killed;
mod destination;
mod fixes;
mod flood;
mod gateway;
mod init;
mod kernel_path;
mod kernel_queues;
mod kernel_throughput;
mod late;
mod least_privilege;
mod many;
mod metrics;
mod networks;
#[path = "../outputs/mod.rs"]
mod outputs;
mod overhead;
mod pages;
mod python;
mod quickstart;
mod reload;
mod routed;
mod scope;
mod small;
mod soak;
mod sparse;
mod starved;
mod status_group;
mod triangle;
mod turns;
mod two_bundles;
mod unwritable_log;
mod way_back;

use std::path::PathBuf;

use forebay_core::clock::Clock;
use forebay_core::record::{QueueSample, RunRecord};
use forebay_core::spec::{Spec, Value};
use forebay_host::daemon::config::DatapathKind;
use forebay_skips::{Need, skip_without};
use forebay_testbed::scenario::{
    AgentSpec, BoxEnd, BundleSpec, Fault, FaultAction, FaultProgram, FaultTarget, LinkSpec,
    PairSpec, Reading, Scenario, Timing, Workload, WorkloadKind,
};

use crate::turns::alone;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_bundle_is_measured_and_its_queue_moves_to_the_sendbox() {
    measured_with_its_queue_at_the_sendbox(bundle("copa", "sfq"));
}

#[test]
fn the_queue_of_packets_that_stay_in_the_kernel_moves_to_the_sendbox() {
    if skip_without(Need::QueueSampling) {
        return;
    }
    let bundle = BundleSpec { datapath: DatapathKind::Kernel, ..bundle("copa", "sfq") };
    measured_with_its_queue_at_the_sendbox(bundle);
}

fn measured_with_its_queue_at_the_sendbox(bundle: BundleSpec) {
    let Some(record) = run(&scenario(6, bundle, None)) else { return };
    let bundle = &record.bundles[0];
    assert!(record.flows.iter().all(|flow| !flow.failed && flow.bytes > 0), "{:?}", record.flows);
    let bytes: u64 = record.flows.iter().map(|flow| flow.bytes).sum();
    assert!(bytes > 6 * 24_000_000 / 8 / 2, "half of the capacity: {bytes}");
    assert!(2 * bundle.counters.boundaries_matched > bundle.counters.boundaries_sent, "{bundle:?}");
    assert_eq!(bundle.drops_ring, 0);
    let from = record.started_ns + 2 * SECOND;
    let at_sendbox = mean_queue(&bundle.queue, from);
    let at_bottleneck = mean_queue(&record.links[0].queue, from);
    assert!(at_sendbox > at_bottleneck, "{at_sendbox} at the sendbox, {at_bottleneck} beyond");
}

#[test]
fn both_directions_can_be_bundled_by_daemons_side_by_side() {
    let reverse =
        BundleSpec { name: "back".into(), supervised: false, ..bundle("setpoint", "fq_codel") };
    let mut scenario = scenario(8, bundle("copa", "sfq"), Some(reverse));
    let up =
        Workload { name: "up".into(), reversed: true, ..scenario.pairs[0].workloads[0].clone() };
    scenario.pairs[0].workloads.push(up);
    let Some(record) = run(&scenario) else { return };
    assert_eq!(record.bundles.len(), 2);
    for bundle in &record.bundles {
        assert!(
            2 * bundle.counters.boundaries_matched > bundle.counters.boundaries_sent,
            "{}",
            bundle.name
        );
        assert!(bundle.decisions.iter().any(|decision| decision.rate_bps.is_some()));
    }
}

#[test]
fn a_flow_of_equal_datagrams_is_measured_beyond_65_536_of_them() {
    let seconds = 9;
    let mut scenario = scenario(seconds, bundle("copa", "sfq"), None);
    // No payload to number: the identification alone tells them apart, for 3.3 s.
    let kind = WorkloadKind::Datagrams {
        rate_bps: 6_720_000,
        packet_bytes: 42,
        timing: Timing::Even,
        seed: 1,
    };
    let cbr = Workload { name: "cbr".into(), kind, ..scenario.pairs[0].workloads[0].clone() };
    scenario.pairs[0].workloads = vec![cbr];
    let Some(record) = run(&scenario) else { return };
    let bundle = &record.bundles[0];
    assert!(bundle.counters.packets_sent > 2 * 65_536, "{}", bundle.counters.packets_sent);
    assert!(
        4 * bundle.counters.boundaries_matched > 3 * bundle.counters.boundaries_sent,
        "{bundle:?}"
    );
}

#[test]
fn traffic_outlives_the_death_and_the_freeze_of_either_box() {
    let at = |seconds: u64| seconds * SECOND;
    let fault = |seconds, end, action| Fault {
        at_ns: at(seconds),
        program: FaultProgram::Box(FaultTarget { pair: 0, reverse: false, end }),
        action,
    };
    let mut scenario = scenario(18, bundle("copa", "sfq"), None);
    scenario.faults = vec![
        fault(2, BoxEnd::Sendbox, FaultAction::Stop),
        fault(4, BoxEnd::Sendbox, FaultAction::Continue),
        fault(6, BoxEnd::Sendbox, FaultAction::Kill),
        fault(8, BoxEnd::Sendbox, FaultAction::Restart),
        fault(10, BoxEnd::Receivebox, FaultAction::Stop),
        fault(12, BoxEnd::Receivebox, FaultAction::Continue),
        fault(14, BoxEnd::Receivebox, FaultAction::Kill),
        fault(15, BoxEnd::Receivebox, FaultAction::Restart),
    ];
    let Some(record) = run(&scenario) else { return };
    assert!(record.flows.iter().all(|flow| !flow.failed), "no connection was reset");
    let bins = record.flows.iter().map(|flow| flow.bytes_per_100ms.len()).max().unwrap();
    let delivered: Vec<u64> = (0..bins)
        .map(|bin| record.flows.iter().filter_map(|flow| flow.bytes_per_100ms.get(bin)).sum())
        .collect();
    let longest_gap =
        delivered[..170].split(|bytes| *bytes > 0).map(<[u64]>::len).max().unwrap_or(0);
    assert!(longest_gap <= 10, "nothing arrived for {longest_gap} x 100 ms: {delivered:?}");
    // Both boxes run again: it ends as it began.
    let last = record.bundles[0].decisions.last().unwrap();
    assert!(last.rate_bps.is_some(), "shaped again: {last:?}");
}

/// Mean packets of the samples from `from_ns` on.
fn mean_queue(samples: &[QueueSample], from_ns: u64) -> f64 {
    let late: Vec<u64> = samples.iter().filter(|s| s.at_ns >= from_ns).map(|s| s.packets).collect();
    late.iter().sum::<u64>() as f64 / late.len().max(1) as f64
}

fn bundle(cc: &str, qdisc: &str) -> BundleSpec {
    BundleSpec {
        name: "b".into(),
        cc: Spec::named(cc),
        qdisc: Spec::named(qdisc).with("limit", Value::Text("400p".into())),
        datapath: DatapathKind::User,
        supervised: true,
        min_rate_bps: None,
        max_rate_bps: None,
        unseen: 0.0,
        clock: Clock::default(),
    }
}

fn scenario(seconds: u64, forward: BundleSpec, reverse: Option<BundleSpec>) -> Scenario {
    let greedy = Workload {
        name: "bulk".into(),
        cc: "cubic".into(),
        reversed: false,
        start_ns: 0,
        stop_ns: seconds * SECOND,
        dscp: 0,
        ttl: None,
        reading: Reading::default(),
        kind: WorkloadKind::Greedy { flows: 4 },
    };
    Scenario {
        seed: 1,
        stop_ns: seconds * SECOND,
        drain_ns: SECOND,
        ecn: false,
        forward: link(),
        reverse: link(),
        own_links: Vec::new(),
        routed: false,
        pairs: vec![PairSpec {
            name: "site".into(),
            forward_bundle: Some(forward),
            reverse_bundle: reverse,
            initial_windows: [None; 2],
            workloads: vec![greedy],
        }],
        algorithms: Vec::new(),
        agent: AgentSpec::default(),
        faults: Vec::new(),
        upsets: Vec::new(),
        attack: None,
        keeps_headers: false,
    }
}

fn link() -> LinkSpec {
    LinkSpec {
        rate_bps: Some(24_000_000),
        trace: None,
        delay_ns: 20_000_000,
        jitter_ns: 0,
        batch_ns: 0,
        loss: 0.0,
        message_loss: 0.0,
        reorder: 0.0,
        reorder_packets: 0,
        qdisc: Spec::named("fifo").with("limit", Value::Text("240p".into())),
        changes: Vec::new(),
    }
}

fn run(scenario: &Scenario) -> Option<RunRecord> {
    if skip_without(Need::Root) {
        return None;
    }
    let _turn = alone();
    let dir = tempfile::tempdir().unwrap();
    Some(forebay_testbed::run_with(&forebay(), scenario, dir.path(), &mut |_| {}).unwrap())
}

fn forebay() -> PathBuf {
    env!("CARGO_BIN_EXE_forebay").into()
}
