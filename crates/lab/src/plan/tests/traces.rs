//! Links that follow traces of rate, delay and loss.

use std::path::PathBuf;

use forebay_core::link::{DrawnPath, PathModel};
use forebay_core::units::{Rate, Ratio};
use forebay_scenario::Change;

use super::*;

/// A plan whose bottleneck follows a trace.
const TRACED: &str = r#"
name = "traced"
stop = "5s"
drain = "0s"
[bottleneck]
trace = "path.csv"
rtt = "50ms"
qdisc = { kind = "fifo", limit = "1bdp" }
[[flow]]
name = "bulk"
traffic = { kind = "greedy" }
[[arm]]
name = "alone"
"#;

/// `plan` with `trace` as `path.csv` beside it.
fn traced(plan: &str, trace: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("path.csv"), trace).unwrap();
    let folder = Some(PathBuf::from(folder.path()));
    let source = Source { file: "p.toml".into(), folder, text: plan.into() };
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    Plan::from_source(source, &sets)
}

/// A trace with all columns.
const WHOLE: &str = "time_s,rate_mbps,rtt_ms,loss\n0,30,40,0\n1,10,60,0.01\n2,,,\n";

#[test]
fn trace_sets_rate_delay_and_loss() {
    let plan = traced(TRACED, WHOLE, &[]).unwrap();
    let run = experiment(&plan, 0);
    // The mean rate is the nominal one: 20 Mbit/s x 50 ms are 83 packets.
    assert_eq!(run.forward.rate(), Some(Rate::from_mbit_per_sec(20)));
    assert_eq!(run.forward.qdisc.to_string(), "fifo(limit=83p)");
    let seconds = |change: &Change| change.at.as_secs();
    let times: Vec<u64> = run.forward.changes.iter().map(seconds).collect();
    assert_eq!(times, [0, 1, 2, 3, 4]);
    assert_eq!(run.forward.changes[1].loss, Ratio::new(0.01));
    // Both directions have half of the round trip.
    for link in [&run.forward, &run.reverse] {
        let delays = [0, 1, 4].map(|at| link.delay_at(std::time::Duration::from_secs(at)));
        assert_eq!(delays.map(|delay| delay.as_millis()), [20, 30, 20]);
        assert_eq!(link.overtakes, Some(false));
    }
    assert!(run.reverse.changes.iter().all(|it| it.rate.is_none() && it.loss.is_none()));
    let lines = plan.traces().into_iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(
        lines[0].ends_with(
            "path.csv: CSV, rows: 2, 2 s, mean rate 20.000 Mbit/s, one-way delay 20 \
                                to 30 ms, loss 0 to 0.01, longest gap 1 s"
        ),
        "{lines:?}"
    );
}

#[test]
fn one_way_delay_is_of_one_link() {
    let text = "time_s,delay_ms\n0,5\n2,9\n";
    let sets = ["bottleneck.rate=8Mbit/s", "bottleneck.trace_end=hold", "bottleneck.reorder=1%"];
    let run = experiment(&traced(TRACED, text, &sets).unwrap(), 0);
    assert!(run.reverse.changes.is_empty() && run.reverse.overtakes.is_none());
    assert_eq!((run.forward.changes.len(), run.forward.overtakes), (2, Some(true)));
    assert_eq!(run.forward.rate(), Some(Rate::from_mbit_per_sec(8)));
    // The way back has its own trace, whose delay is instead of that of the way there.
    let text = "time_s,rtt_ms\n0,8\n2,12\n";
    let sets =
        ["bottleneck.rate=8Mbit/s", "reverse={ trace = \"path.csv\", trace_end = \"hold\" }"];
    let run = experiment(&traced(TRACED, text, &sets).unwrap(), 0);
    assert_eq!([run.forward.changes.len(), run.reverse.changes.len()], [3, 2]);
}

#[test]
fn links_in_a_row_have_the_delay_once() {
    let run = experiment(&traced(TRACED, WHOLE, &["bottleneck.hops=2"]).unwrap(), 0);
    let hop = run.link("hop-2");
    assert_eq!(hop.changes.len(), run.forward.changes.len());
    assert!(hop.changes.iter().all(|it| it.delay.is_none() && it.rate.is_some()));
}

#[test]
fn mahimahi_traces_stay_and_are_warned_of() {
    let plan = traced(TRACED, "\u{feff}1000\n2000\n3000\n", &[]).unwrap();
    let warnings = plan.warnings();
    assert!(
        warnings[0].contains("mean rate 0.012 Mbit/s, longest gap 1s, over 3s"),
        "{warnings:?}"
    );
    assert!(traced(TRACED, "1\n", &[]).unwrap().warnings().is_empty());
}

#[test]
fn mistakes_in_traces_name_file_and_place() {
    let loss = "time_s,rate_mbps,loss\n0,8,0\n1,8,0\n";
    let rate = "time_s,rate_mbps\n0,8\n1,9\n";
    let delay = "time_s,delay_ms\n0,8\n1,9\n";
    let rtt = "time_s,rtt_ms,rate_mbps\n0,8,9\n1,9,9\n";
    let change = "bottleneck.change=[{ at = \"1s\", rtt = \"9ms\" }]";
    let walk = "reverse.walk=[{ of = \"delay\", every = \"1s\", deviation = \"1ms\", min = \"0s\", \
                max = \"1s\" }]";
    for (trace, set, expected) in [
        (
            "time_s,loss\n0,0\n1,2\n",
            "seeds=1",
            "path.csv:3:3: \"2\": allowed is a share of the packets",
        ),
        (
            rate,
            "bottleneck.rate=1Mbit/s",
            "bottleneck.trace = \"path.csv\": allowed is either a rate",
        ),
        (loss, "bottleneck.loss=0.1", "bottleneck.loss = 0.1: allowed is either a loss or a trace"),
        (
            delay,
            "seeds=1",
            "bottleneck.rate is missing: allowed is a rate, or a trace with rate_mbps",
        ),
        (rtt, change, "bottleneck.trace = \"path.csv\": allowed is a trace without delay values"),
        (rtt, walk, "bottleneck.trace = \"path.csv\": allowed is a trace without delay values"),
        (rate, "bottleneck.paths=2", "bottleneck.paths = 2: allowed is"),
        (rate, "bottleneck.trace_end=stop", "trace_end = \"stop\": allowed is \"repeat\""),
        ("1\n", "bottleneck.trace_end=hold", "trace_end = \"hold\": allowed is \"repeat\""),
        (
            rate,
            "reverse.trace_end=hold",
            "reverse.trace_end = \"hold\": allowed is no trace_end without a trace",
        ),
        ("time_s,rate_mbps\n0,0\n1,0\n", "seeds=1", "allowed is a trace with a rate above 0"),
        (
            "time_ms,rate_mbps\n0,1\n0.01,2\n",
            "stop=30s",
            "at most 2000000 changes until the plan's",
        ),
    ] {
        let error = traced(TRACED, trace, &[set]).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn plans_draw_paths_by_name() {
    let drawn = |name: &str| traced(TRACED, "", &[&format!("bottleneck.trace={name}")]);
    let plan = drawn("lte(seed=3, seconds=5)").unwrap();
    let run = experiment(&plan, 0);
    let path = DrawnPath { model: PathModel::Lte, seed: 3, seconds: 5 };
    let trace = path.trace().unwrap();
    assert_eq!(run.forward.rate(), trace.mean_rate());
    assert_eq!(run.forward.changes.len(), trace.rows().len());
    assert_eq!(plan.traces()[0].file, "lte(seed=3, seconds=5)");
    assert_ne!(run.forward.changes, experiment(&drawn("lte(seed=4)").unwrap(), 0).forward.changes);
    for (name, expected) in [
        ("lte(sed=3)", "sed = 3: allowed is one of seed, seconds"),
        ("lte(seconds=0)", "seconds = 0: allowed is a whole number, 1 to 3600"),
        ("lte(seed=3", "lte(seed=3"),
        ("gprs(seed=3)", "bottleneck.trace"),
    ] {
        let error = drawn(name).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
