use forebay_core::record::{FlowRecord, RequestRecord};

use super::*;

fn experiment(text: &str) -> Experiment {
    let source = Source { file: "test".into(), folder: None, text: text.into() };
    let plan = Plan::from_source(source, &[]).unwrap();
    plan.experiment(&plan.arms[0], &plan.cells[0], 1).unwrap()
}

/// A plan with requests and a greedy flow; it stops after 2 s.
const PLAN: &str = r#"
name = "test"
stop = "2s"
[bottleneck]
rate = "10Mbit/s"
rtt = "20ms"
qdisc = { kind = "fifo", limit = "100p" }
[[flow]]
name = "web"
traffic = { kind = "requests", sizes = "10KB", load = "1Mbit/s" }
[[flow]]
name = "cross-1"
traffic = { kind = "greedy" }
"#;

#[test]
fn data_wait_from_arrival_to_finish() {
    let experiment = experiment(PLAN);
    let request = |scheduled_ms: u64, finished_ms: Option<u64>| RequestRecord {
        scheduled_ns: scheduled_ms * 1_000_000,
        finished_ns: finished_ms.map(|ms| ms * 1_000_000),
        ..RequestRecord::default()
    };
    let flow =
        |flow, bytes| FlowRecord { flow, bytes_per_100ms: vec![bytes; 3], ..FlowRecord::default() };
    let mut rows = RunRecord {
        requests: vec![request(150, Some(250)), request(410, Some(490)), request(500, Some(799))],
        flows: vec![flow(0, 5), flow(1, 7)],
        ..RunRecord::default()
    };
    let found = seen(&experiment, &rows);
    let waiting = |found: &SeenRun| -> Vec<usize> {
        found.waits.iter().enumerate().filter(|it| *it.1).map(|it| it.0).collect()
    };
    assert_eq!(waiting(&found), [1, 4, 5, 6]);
    assert_eq!(&found.bytes[..4], [5, 5, 5, 0]);
    rows.requests = vec![request(0, None)];
    assert_eq!(waiting(&seen(&experiment, &rows)).len(), 1_200);
}

#[test]
fn data_of_bulk_flows_always_wait() {
    let experiment = experiment(&PLAN.replace("cross-1", "bulk"));
    let found = seen(&experiment, &RunRecord::default());
    assert!(found.waits.iter().all(|waits| *waits));
}

#[test]
fn shaped_time_is_that_of_shaped_states() {
    let state =
        |at_s: f64, shaped| State { at_s, state: String::new(), reason: String::new(), shaped };
    let states = [state(2.0, true), state(5.0, false), state(14.0, true), state(15.0, true)];
    let shares = [0.0, 10.0, 20.0].map(|from_s| shaped(&states, from_s, from_s + 10.0));
    assert_eq!(shares, [0.3, 0.6, 1.0]);
    assert_eq!(shaped(&[], 0.0, 10.0), 0.0);
}
