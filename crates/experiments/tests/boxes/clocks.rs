//! Receiveboxes whose clock does not agree with the sendbox's.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use forebay_core::clock::Clock;
use forebay_host::clock::now;
use forebay_skips::{Need, skip_without};
use forebay_testbed::receivebox::ReceiveboxSpec;
use forebay_testbed::topology::Topology;

use crate::by_hand::await_status;
use crate::turns::together;
use crate::two_bundles::write_configs;
use crate::{SECOND, bundle, forebay, run, scenario};

#[test]
fn wrong_receivebox_clock_is_corrected_or_survived() {
    let mut scenario = scenario(26, bundle("copa", "sfq"), None);
    let clock = &mut scenario.bundles[0].clock;
    *clock = "0s +1000ppm, 12s +1s, 18s -1s".parse().unwrap();
    let Some(record) = run(&scenario) else { return };
    assert!(record.flows.iter().all(|flow| !flow.failed), "{:?}", record.flows);
    let mbit = |from: usize, to: usize| {
        let bins = record.flows.iter().flat_map(|flow| flow.bytes_per_100ms.get(from..to));
        bins.flatten().sum::<u64>() as f64 * 8e-5 / (to - from) as f64
    };
    // Of 24, less headers.
    let (held, survived) = (mbit(40, 120), mbit(120, 250));
    assert!(held > 20.0 && survived > 19.0, "{held:.1} and then {survived:.1} Mbit/s");
    let decisions = &record.bundles[0].decisions;
    let shaped = decisions.iter().filter(|it| it.rate_bps.is_some());
    let base_ms = |at_s: u64| {
        let before = |at_ns: u64| at_ns <= record.started_ns + at_s * SECOND;
        let last = shaped.clone().rfind(|it| before(it.at_ns)).unwrap();
        last.min_rtt_ns.unwrap() as f64 * 1e-6
    };
    let bases = [5, 8, 12, 26].map(base_ms);
    assert!(bases.iter().all(|ms| (39.0..43.0).contains(ms)), "{bases:?} ms");
    assert!(decisions.last().unwrap().rate_bps.is_some(), "shaped at the end");
}

#[test]
fn testbed_receivebox_clock_drifts_from_start() {
    if skip_without(Need::Root) {
        return;
    }
    let _turn = together();
    let topology = Topology::build(1, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [config, _] = write_configs(folder.path());
    let clock: Clock = "0s +50%, 1s -20s".parse().unwrap();
    let spec = folder.path().join("receivebox.json");
    let text = serde_json::to_vec(&ReceiveboxSpec { config, clock }).unwrap();
    fs::write(&spec, text).unwrap();
    let mut command = Command::new(forebay());
    command.args(["role", "receivebox", "--spec"]).arg(spec).stdin(Stdio::piped());
    topology.pairs[0].right_box.host(&mut command).unwrap();
    let mut receivebox = command.spawn().unwrap();
    // Progress of the receivebox's own time divided by the machine's, between two queries.
    let status = || await_status(&folder.path().join("receivebox.sock"));
    let pace = |seconds| {
        let before = status();
        thread::sleep(Duration::from_secs(seconds));
        let after = status();
        (after.uptime_ns - before.uptime_ns) as f64 / (after.at_ns - before.at_ns) as f64
    };
    let agrees = pace(1);
    let mut orders = receivebox.stdin.take().unwrap();
    writeln!(orders, "start {}", now().as_nanos()).unwrap();
    thread::sleep(Duration::from_millis(200));
    let fast = pace(2);
    drop(orders);
    receivebox.kill().unwrap();
    receivebox.wait().unwrap();
    // One stamp may contain the step; no timer takes part.
    assert!((0.99..1.01).contains(&agrees) && (1.49..1.51).contains(&fast), "{agrees} {fast}");
}

#[test]
fn receivebox_has_no_option_for_clock() {
    let said = |arguments: &[&str]| {
        let output = Command::new(forebay()).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for arguments in [&["receivebox", "--help"][..], &["man"], &["completions", "bash"]] {
        let text = said(arguments);
        assert!(text.contains("receivebox") && !text.contains("clock"), "{arguments:?}: {text}");
    }
}
