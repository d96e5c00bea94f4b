//! Plans of trials of costs.

use std::time::Duration;

use forebay_scenario::{Cost, CostAlgorithm, CostPlatform, CostRate, Counter, Report};

use super::*;

/// Every key of `[cost]`.
pub const TRIALS: &str = r#"
name = "p"
stop = "2s"
warmup = "500ms"
baseline = "kernel"
[cost]
algorithm = "reno"
segments = 2
connections = 1
times_programs = false
[[arm]]
name = "kernel"
[[arm]]
name = "agent"
set = { cost.platform = "agent", cost.burden = "5us", agent.report = "ack" }
[[arm]]
name = "other"
set = { cost.over = "agent", cost.rate = "0bit/s", cost.counter = "nice19", cost.turn = "0s" }
"#;

#[test]
fn trials_have_no_links_and_a_compared_arm() {
    let plan = load(TRIALS, &[]).unwrap();
    let runs = [0, 1, 2].map(|arm| experiment(&plan, arm));
    let costs = [0, 1, 2].map(|arm: usize| runs[arm].cost.clone().unwrap());
    let kernel = Cost {
        platform: CostPlatform::Kernel,
        algorithm: CostAlgorithm::Reno,
        over: Some("kernel".into()),
        connections: 1,
        segments: Some(2),
        rate: CostRate::Searched,
        counter: Counter::Idle,
        turn: Duration::from_millis(100),
        times_programs: false,
        burden: Duration::ZERO,
    };
    assert_eq!(costs[0], kernel);
    let burden = Duration::from_micros(5);
    assert_eq!(costs[1], Cost { platform: CostPlatform::Agent, burden, ..kernel.clone() });
    let over = Some("agent".into());
    let (rate, counter, turn) = (CostRate::Unlimited, Counter::Nice19, Duration::ZERO);
    assert_eq!(costs[2], Cost { over, rate, counter, turn, ..kernel });
    assert_eq!(runs[1].agent.report, Report::Ack);
    assert!(runs[0].flows.is_empty() && runs[0].warmup == Duration::from_millis(500));
}

#[test]
fn compared_arm_is_part_of_a_run() {
    let sha256 = |sets: &[&str]| experiment(&load(TRIALS, sets).unwrap(), 0).sha256;
    assert_ne!(sha256(&[]), sha256(&["baseline=agent"]));
    let plan = load(TRIALS, &[]).unwrap();
    assert_eq!(experiment(&plan, 0).parameters["cost.over"], "kernel");
}

#[test]
fn wrong_keys_of_trials_are_refused() {
    for (from, to, expected) in [
        (
            "segments = 2",
            "segments = 45",
            "p.toml:8: cost.segments = 45: allowed is a whole number, 1 to 44",
        ),
        (
            "segments = 2",
            "segment = 2",
            "p.toml:8: cost.segment = 2: no such key: allowed is one of platform",
        ),
        (
            "\"reno\"",
            "\"copa\"",
            "p.toml:7: cost.algorithm = \"copa\": allowed is \"cubic\", \"reno\"",
        ),
        (
            "[cost]",
            "ecn = \"classic\"\n[cost]",
            "p.toml:6: ecn = \"classic\": allowed is nothing with [cost]",
        ),
        (
            "[cost]",
            "ideal = \"kernel\"\n[cost]",
            "p.toml:6: ideal = \"kernel\": allowed is nothing with [cost]",
        ),
        (
            "\"500ms\"",
            "\"2s\"",
            "p.toml:4: warmup = \"2s\": allowed is a duration below the plan's stop",
        ),
        (
            "segments = 2",
            "burden = \"5us\"",
            "p.toml:8: cost.burden = \"5us\": allowed is 0s without platform",
        ),
        ("stop = \"2s\"", "", "p.toml:1: stop is missing"),
    ] {
        let error = load(&TRIALS.replace(from, to), &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}\n{error}");
    }
}

#[test]
fn plans_without_trials_need_links_and_traffic() {
    let error = load("name = \"p\"\nstop = \"2s\"", &[]).unwrap_err().to_string();
    for key in ["bottleneck is missing", "flow is missing"] {
        assert!(error.contains(key), "{error}");
    }
}
