//! Extreme values of plans and traces: each runs for a second of simulated time, and none panics.

use std::path::Path;

use forebay_lab::plan::{Override, Plan};
use forebay_lab::{Event, Options, Progress, run};

/// A short plan; each test sets one key to an extreme value.
const PLAN: &str = r#"
name  = "extreme"
seeds = "1"
stop  = "1s"
drain = "1s"

[bottleneck]
rate  = "2Mbit/s"
rtt   = "40ms"
qdisc = { kind = "fifo", limit = "100p" }

[[bundle]]
name = "a"
cc   = "copa"

[[flow]]
name    = "web"
bundle  = "a"
traffic = { kind = "requests", sizes = "caida_1mb", load = "1Mbit/s", connections = 10, sampling = "iid" }

[[flow]]
name    = "bulk"
traffic = { kind = "greedy" }
"#;

/// Runs the plan with these values instead of its own; `false`: the plan is refused.
fn is_run(folder: &Path, text: &str, sets: &[String]) -> bool {
    let file = folder.join("extreme.toml");
    std::fs::write(&file, text).unwrap();
    let sets: Result<Vec<Override>, _> = sets.iter().map(|set| Override::parse(set)).collect();
    let Ok(sets) = sets else { return false };
    let Ok(plan) = Plan::load(file.to_str().unwrap(), &sets) else { return false };
    let options =
        Options { backend: "sim".into(), out: Some(folder.join("out")), ..Options::default() };
    let mut watch = |progress: Progress<'_>| {
        // A panic of the simulator ends its run alone.
        if let Event::Ended(ending) = progress.event {
            assert!(!ending.to_string().contains("panicked"), "{sets:?}: {ending}");
        }
    };
    run(&plan, &options, &mut watch).is_ok()
}

#[test]
fn traces_of_extreme_times_run() {
    let folder = tempfile::tempdir().unwrap();
    let text = PLAN.replace("rate  = \"2Mbit/s\"", "trace = \"extreme.trace\"");
    for (trace, is_accepted) in [
        // One packet in five days: less than a bit per second.
        ("7\n429496729\n", true),
        ("4294967295\n", true),
        ("0\n86400000\n", true),
        ("0\n4294967295\n", true),
        ("0\n0\n1\n", true),
        ("0\n", false),
        ("4294967296\n", false),
        ("18446744073709551615\n", false),
    ] {
        std::fs::write(folder.path().join("extreme.trace"), trace).unwrap();
        assert_eq!(is_run(folder.path(), &text, &[]), is_accepted, "{trace:?}");
    }
}

#[test]
fn plans_of_extreme_values_run() {
    let folder = tempfile::tempdir().unwrap();
    let day = "1440min";
    let sets = [
        ("bottleneck.rate", vec!["1kbit/s", "400Gbit/s"]),
        ("bottleneck.rtt", vec!["0s", "1ns", day]),
        ("bottleneck.jitter", vec!["1ns", "1s"]),
        ("bottleneck.loss", vec!["1", "0.0000001"]),
        ("bottleneck.reorder", vec!["1"]),
        ("reverse.rate", vec!["1kbit/s", "400Gbit/s"]),
        ("reverse.jitter", vec!["1s"]),
        ("warmup", vec!["1s", "999999999ns"]),
        ("start_jitter", vec![day]),
        ("bundle.a.min_rate", vec!["100kbit/s"]),
        ("bundle.a.max_rate", vec!["100kbit/s", "100Gbit/s"]),
        ("flow.bulk.start", vec!["999999999ns"]),
    ];
    let quoted = sets.into_iter().flat_map(|(key, values)| {
        values.into_iter().map(move |value| format!("{key}=\"{value}\""))
    });
    let tables = [
        format!("bottleneck.change=[{{ at = \"500ms\", rtt = \"{day}\", rate = \"1kbit/s\" }}]"),
        format!(
            "bottleneck.walk=[{{ of = \"delay\", every = \"1ms\", deviation = \"{day}\", min = \"0s\", max = \"{day}\" }}]"
        ),
        "bottleneck.qdisc={ kind = \"fifo\", limit = \"1p\" }".into(),
        format!("bottleneck.qdisc={{ kind = \"fifo\", limit = \"{day}\" }}"),
        "flow.bulk.traffic={ kind = \"cbr\", rate = \"1kbit/s\", packet = \"1500B\" }".into(),
        format!(
            "flow.bulk.traffic={{ kind = \"on_off\", rate = \"1kbit/s\", on = \"{day}\", off = \"{day}\" }}"
        ),
        format!("flow.bulk.traffic={{ kind = \"ping\", interval = \"{day}\" }}"),
        "flow.bulk.cc={ kind = \"const\", cwnd = \"1p\" }".into(),
    ];
    let all: Vec<String> = quoted.chain(tables).collect();
    let ran = all.iter().filter(|set| is_run(folder.path(), PLAN, &[(*set).clone()])).count();
    // Refused plans need no run; most are accepted.
    assert!(ran > all.len() / 2, "{ran} of {}", all.len());
}
