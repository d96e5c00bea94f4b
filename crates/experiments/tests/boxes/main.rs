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
#[path = "../../../app/tests/outputs/mod.rs"]
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
use std::time::Duration;

use forebay_core::record::{QueueSample, RunRecord};
use forebay_core::spec::{Spec, Value};
use forebay_core::traffic::Timing;
use forebay_core::units::Rate;
use forebay_scenario::{
    BoxEnd, Bundle, Fault, FaultAction, FaultProgram, Flow, Link, Scenario, Traffic,
};
use forebay_skips::{Need, skip_without};

use crate::turns::alone;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

#[test]
fn bundle_is_measured_and_queue_moves_to_sendbox() {
    measured_with_its_queue_at_the_sendbox(bundle("copa", "sfq"));
}

#[test]
fn queue_of_kernel_datapath_moves_to_sendbox() {
    if skip_without(Need::QueueSampling) {
        return;
    }
    let bundle = Bundle { in_kernel: true, ..bundle("copa", "sfq") };
    measured_with_its_queue_at_the_sendbox(bundle);
}

fn measured_with_its_queue_at_the_sendbox(bundle: Bundle) {
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
fn both_directions_can_have_bundles() {
    let reverse =
        Bundle { name: "back".into(), supervised: false, ..bundle("setpoint", "fq_codel") };
    let mut scenario = scenario(8, bundle("copa", "sfq"), Some(reverse));
    let up = Flow { name: "up".into(), reversed: true, ..scenario.flows[0].clone() };
    scenario.flows.push(up);
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
fn equal_datagrams_are_measured_beyond_65_536() {
    let seconds = 9;
    let mut scenario = scenario(seconds, bundle("copa", "sfq"), None);
    // The packets have no payload to number, so only the IP identification distinguishes packets,
    // for 3.3 s.
    let rate = Rate::from_bits_per_sec(6_720_000);
    let traffic = Traffic::Datagrams { flows: 1, rate, packet_bytes: 42, timing: Timing::Even };
    scenario.flows[0] = Flow { name: "cbr".into(), traffic, ..scenario.flows[0].clone() };
    let Some(record) = run(&scenario) else { return };
    let bundle = &record.bundles[0];
    assert!(bundle.counters.packets_sent > 2 * 65_536, "{}", bundle.counters.packets_sent);
    assert!(
        4 * bundle.counters.boundaries_matched > 3 * bundle.counters.boundaries_sent,
        "{bundle:?}"
    );
}

#[test]
fn traffic_outlives_death_and_freeze_of_boxes() {
    let fault = |seconds, end, action| Fault {
        at: Duration::from_secs(seconds),
        program: FaultProgram::Box { bundle: "b".into(), end },
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
    // Both boxes run again, so the run ends in the initial state.
    let last = record.bundles[0].decisions.last().unwrap();
    assert!(last.rate_bps.is_some(), "shaped again: {last:?}");
}

/// Mean packets of the samples from `from_ns` on.
fn mean_queue(samples: &[QueueSample], from_ns: u64) -> f64 {
    let late: Vec<u64> = samples.iter().filter(|s| s.at_ns >= from_ns).map(|s| s.packets).collect();
    late.iter().sum::<u64>() as f64 / late.len().max(1) as f64
}

fn bundle(cc: &str, qdisc: &str) -> Bundle {
    Bundle::new("b", Spec::named(cc), Spec::named(qdisc).with("limit", Value::Text("400p".into())))
}

fn scenario(seconds: u64, forward: Bundle, reverse: Option<Bundle>) -> Scenario {
    let stop = Duration::from_secs(seconds);
    let greedy = Flow::new("bulk", Spec::named("cubic"), stop, Traffic::Greedy { flows: 4 });
    let reverse = reverse.map(|bundle| Bundle { reversed: true, ..bundle });
    let bundles = [Some(forward), reverse].into_iter().flatten();
    Scenario {
        pairs: vec!["site".into()],
        bundles: bundles.map(|it| Bundle { pair: "site".into(), ..it }).collect(),
        flows: vec![Flow { pair: "site".into(), ..greedy }],
        ..Scenario::new(link("forward"), link("reverse"), stop)
    }
}

fn link(name: &str) -> Link {
    let qdisc = Spec::named("fifo").with("limit", Value::Text("240p".into()));
    Link::at_rate(name, Rate::from_mbit_per_sec(24), Duration::from_millis(20), qdisc)
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
    env!("CARGO_BIN_EXE_forebay-experiments").into()
}
