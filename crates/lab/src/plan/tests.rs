//! Whole plans: shared parts of their tests, seeds, times and plans that extend other plans.

mod arms;
mod built_in;
mod cost;
mod flows;
mod hits;
mod keys;
mod links;
mod refusals;
mod replacing;
mod topology;
mod traces;

use super::*;

/// A plan with two arms, most tests change one of its keys.
pub(super) const PLAN: &str = r#"
name = "p"
stop = "10s"
[bottleneck]
rate = "96Mbit/s"
rtt = "50ms"
qdisc = { kind = "fifo", limit = "3bdp" }
[[flow]]
name = "bulk"
bundle = "a"
traffic = { kind = "greedy" }
[[bundle]]
name = "a"
cc = "copa"
qdisc = "sfq"
[[arm]]
name = "without"
set = { "bundle.a.enabled" = false }
[[arm]]
name = "with"
set = { bundle.a.qdisc.limit = "600p" }
"#;

pub(super) fn load(text: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let source = Source { file: "p.toml".into(), folder: None, text: text.into() };
    let sets: Vec<Override> =
        sets.iter().map(|set| Override::parse(set)).collect::<Result<_, _>>()?;
    Plan::from_source(source, &sets)
}

fn experiment(plan: &Plan, arm: usize) -> Experiment {
    plan.experiment(&plan.arms[arm], &plan.cells[0], 1).unwrap()
}

#[test]
fn seeds_include_both_ends() {
    let seeds: Seeds = "1..3".parse().unwrap();
    assert_eq!(seeds.iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!("7".parse(), Ok(Seeds { first: 7, last: 7 }));
    assert_eq!(["1..3", "7"].map(|it| it.parse::<Seeds>().unwrap().to_string()), ["1..3", "7"]);
    for wrong in ["3..1", "", "a", "1..", "1..999999", "18446744073709551615"] {
        assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
    }
}

#[test]
fn durations_may_use_round_trips_and_max() {
    let stop = |text: &str, rtt: &str| {
        let sets = [&format!("stop={text}")[..], &format!("bottleneck.rtt={rtt}")];
        load(PLAN, &sets).map(|plan| experiment(&plan, 0).stop.as_millis())
    };
    for (text, rtt, millis) in [
        ("2s", "50ms", 2000),
        ("100rtt", "50ms", 5000),
        ("0.5 rtt", "50ms", 25),
        ("max(6s, 100rtt)", "50ms", 6000),
        ("max(6s, 100rtt)", "800ms", 80_000),
        ("max(1s,2s,3s)", "50ms", 3000),
    ] {
        assert_eq!(stop(text, rtt).unwrap(), millis, "{text}");
    }
    for text in ["100", "-1rtt", "max(6s", "max(6s, x)", "max()", "6s, 100rtt", "1e7rtt", "inf rtt"]
    {
        let error = stop(text, "50ms").expect_err(text).to_string();
        assert!(error.contains("allowed is a duration such as"), "{error}");
    }
    let other = load(PLAN, &["warmup=20rtt", "start_jitter=max(1ms, 2rtt)"]).unwrap();
    let other = experiment(&other, 0);
    assert_eq!((other.warmup.as_millis(), other.start_jitter.as_millis()), (1000, 100));
}

#[test]
fn plans_extend_one_another_and_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
    };
    let plan = |name: &str| {
        let path = folder.path().join(format!("{name}.toml"));
        Plan::load(path.to_str().unwrap(), &[])
    };
    put(
        "link",
        "bottleneck = { rate = \"10Mbit/s\", rtt = \"20ms\", qdisc = \"fifo\" }\nstop = \"3s\"\n",
    );
    put(
        "flow",
        "extends = \"link.toml\"\nstop = \"2s\"\nflow = [{ traffic = { kind = \"greedy\" } }]\n",
    );
    put("a", "extends = \"flow.toml\"\nname = \"a\"\n");
    let plan_a = plan("a").unwrap();
    let run = plan_a.experiment(&plan_a.arms[0], &plan_a.cells[0], 1).unwrap();
    assert_eq!((run.rtt.as_millis(), run.stop.as_secs(), run.flows.len()), (20, 2, 1));
    put("lost", "extends = \"lots.toml\"\nname = \"lost\"\n");
    let error = plan("lost").unwrap_err().to_string();
    let expected = "lost.toml:1: extends = \"lots.toml\": allowed is a readable plan (";
    assert!(error.contains(expected), "{error}");
    put("circle", "extends = \"circle.toml\"\nname = \"circle\"\n");
    let error = plan("circle").unwrap_err().to_string();
    assert!(error.contains("extends") && error.contains("at most 4 plans"), "{error}");
}
