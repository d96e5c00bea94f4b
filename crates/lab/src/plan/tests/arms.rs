//! Arms, cells and the algorithms under test.

use std::time::Duration;

use forebay_scenario::Traffic;

use super::*;

#[test]
fn arms_differ_only_in_overrides() {
    let plan = load(PLAN, &[]).unwrap();
    let [without, with] = [experiment(&plan, 0), experiment(&plan, 1)];
    assert!(without.bundles.is_empty());
    assert_eq!(with.bundles[0].qdisc.to_string(), "sfq(limit=600p)");
    assert_eq!(without.pairs, with.pairs);
    assert_eq!(with.forward.qdisc.to_string(), "fifo(limit=1200p)");
    let only = |one: &Experiment, other: &Experiment| -> Vec<String> {
        let other = &other.parameters;
        one.parameters
            .iter()
            .filter(|(k, v)| other.get(*k) != Some(v))
            .map(|(k, _)| k.clone())
            .collect()
    };
    assert_eq!(only(&without, &with), ["bundle.a.enabled", "bundle.a.qdisc"]);
    assert_ne!(without.sha256, with.sha256);
    assert_eq!(with.sha256, experiment(&plan, 1).sha256);
}

#[test]
fn window_changes_experiment_but_not_arm_differences() {
    let windowed = |to: &str| {
        let text = format!("{PLAN}\n[[window]]\nname = \"w\"\nfrom = \"1s\"\nto = \"{to}\"\n");
        experiment(&load(&text, &[]).unwrap(), 1)
    };
    let (short, long) = (windowed("2s"), windowed("3s"));
    assert_ne!(short.sha256, long.sha256);
    assert_eq!(short.sha256, windowed("2s").sha256);
    assert_eq!(short.parameters, long.parameters);
}

#[test]
fn a_grid_is_the_product_of_its_lists() {
    let text = format!(
        "{PLAN}\n[cells]\nbottleneck.rtt = [\"20ms\", \"50ms\"]\n\"flow.bulk.count\" = [1, 2]\n"
    );
    let plan = load(&text, &[]).unwrap();
    let names: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(
        names,
        ["rtt=20ms count=1", "rtt=20ms count=2", "rtt=50ms count=1", "rtt=50ms count=2"]
    );
    let last = plan.experiment(&plan.arms[0], &plan.cells[3], 1).unwrap();
    assert_eq!(last.rtt, Duration::from_millis(50));
    assert!(matches!(last.flows[0].traffic, Traffic::Greedy { flows: 2 }));
}

#[test]
fn named_cells_combine_with_whole_grid() {
    let cells = "[[cell]]\nname = \"near\"\n[[cell]]\nname = \"far\"\n\
                 set = { bottleneck.rtt = \"100ms\" }\n";
    let plan = load(&format!("{PLAN}\n{cells}"), &[]).unwrap();
    let rtt = |cell: &Cell| plan.experiment(&plan.arms[0], cell, 1).unwrap().rtt.as_millis();
    let all: Vec<_> = plan.cells.iter().map(|cell| (cell.name.as_str(), rtt(cell))).collect();
    assert_eq!(all, [("near", 50), ("far", 100)]);
    let grid = "[cells]\nbottleneck.rate = [\"1Mbit/s\", \"2Mbit/s\"]\n";
    let plan = load(&format!("{PLAN}\n{cells}{grid}"), &[]).unwrap();
    let names: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(
        names,
        ["near rate=1Mbit/s", "near rate=2Mbit/s", "far rate=1Mbit/s", "far rate=2Mbit/s"]
    );
    let twice = format!("{PLAN}\n{}", cells.replace("far", "near"));
    assert!(load(&twice, &[]).unwrap_err().to_string().contains("a name that no other cell has"));
}

/// A plan with an algorithm under test; a second flow uses the same algorithm, a third one another.
const AUT: &str = r#"
name = "p"
aut = "vegas"
stop = "10s"
as_published = { stop = "15s", bottleneck.rate = "8Mbit/s" }
[bottleneck]
rate = "96Mbit/s"
rtt = "50ms"
qdisc = "fifo"
[[flow]]
name = "aut"
cc = "aut"
traffic = { kind = "greedy" }
[[flow]]
name = "other"
cc = "newreno"
traffic = { kind = "greedy" }
[[figure]]
kind = "bars"
metric = "goodput_mbps"
published = [{ arm = "vegas", value = 1, source = "s" }]
"#;

#[test]
fn each_tested_algorithm_becomes_an_arm() {
    let of = |sets: &[&str]| {
        let plan = load(AUT, sets)?;
        let arms = plan.arms.iter().map(|arm| {
            let run = plan.experiment(arm, &plan.cells[0], 1).unwrap();
            let ccs = run.flows.iter().map(|flow| flow.cc_name()).collect::<Vec<_>>().join(" ");
            format!("{}: {ccs}", arm.name)
        });
        Ok::<_, PlanError>(arms.collect::<Vec<_>>())
    };
    assert_eq!(of(&[]).unwrap(), ["vegas: vegas newreno"]);
    assert_eq!(of(&["aut=bbr"]).unwrap(), ["bbr: bbr newreno"]);
    let several = r#"aut=["cubic(hystart=off)", "agent:copa", { kind = "vegas", alpha = 3 }]"#;
    assert_eq!(
        of(&[several]).unwrap(),
        [
            "cubic-hystart-off: cubic(hystart=off) newreno",
            "agent-copa: agent:copa newreno",
            "vegas-alpha-3: vegas(alpha=3) newreno",
        ]
    );
    for (set, expected) in [
        ("aut=vegsa", "--set: aut = \"vegsa\": allowed is a congestion control: "),
        ("aut=3", "--set: aut = 3: allowed is the algorithm under test"),
        ("aut=[]", "--set: aut = []: allowed is the algorithm under test"),
        ("aut=[\"bbr\", \"bbr\"]", "--set: aut = \"bbr\": allowed is each algorithm once"),
        ("aut=cubic(hystart=3)", "--set: aut.hystart = 3: allowed is off"),
        (
            "flow.other.rtt=49ms",
            "--set: flow.other.rtt = \"49ms\": allowed is a duration such as \"50ms\", 0s to 86400s, not below",
        ),
    ] {
        let error = of(&[set]).expect_err(set).to_string();
        assert!(error.starts_with(expected), "{error}\nis not\n{expected}");
    }
    assert!(of(&["aut=vegsa"]).unwrap_err().to_string().ends_with("; nearest is vegas"));
    let arms = load(&format!("{AUT}[[arm]]\nname = \"a\"\n"), &[]).unwrap_err().to_string();
    assert!(arms.contains("allowed is no arms together with `aut`"), "{arms}");
    let without = load(&AUT.replace("aut = \"vegas\"", ""), &[]).unwrap_err().to_string();
    let expected =
        "p.toml:12: flow.aut.cc = \"aut\": allowed is an algorithm: the plan has no `aut`";
    assert!(without.starts_with(expected), "{without}");
}

#[test]
fn as_published_applies_its_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.toml");
    std::fs::write(&file, AUT).unwrap();
    let file = file.to_str().unwrap();
    let facts = |plan: Plan| {
        let run = experiment(&plan, 0);
        (
            run.stop.as_secs(),
            run.forward.rate().unwrap().to_string(),
            plan.figures[0].published.len(),
        )
    };
    let faster = [Override::parse("bottleneck.rate=9Mbit/s").unwrap()];
    let other = [Override::parse("aut=bbr").unwrap()];
    let (fast, slow, set) = ("96Mbit/s".to_string(), "8Mbit/s".to_string(), "9Mbit/s".to_string());
    assert_eq!(facts(Plan::load(file, &[]).unwrap()), (10, fast, 0));
    assert_eq!(facts(Plan::load_as_published(file, &[]).unwrap()), (15, slow.clone(), 1));
    assert_eq!(facts(Plan::load_as_published(file, &faster).unwrap()), (15, set, 0));
    // A report draws the published value if any call ran its algorithm.
    assert_eq!(facts(Plan::load_as_published(file, &other).unwrap()), (15, slow, 1));
    let error = Plan::load_as_published("bundler/main", &[]).unwrap_err().to_string();
    assert!(error.starts_with("bundler/main:1: as_published is missing"), "{error}");
}

#[test]
fn reference_arms_are_named_or_default() {
    let plan = load(PLAN, &[]).unwrap();
    let names = |plan: &Plan| {
        [plan.references.baseline(), plan.references.ideal(), plan.references.alone()]
            .map(String::from)
    };
    assert_eq!(names(&plan), ["status_quo", "in_network_fq", "solo"]);
    let named = load(PLAN, &["baseline=without", "ideal=with"]).unwrap();
    assert_eq!(names(&named), ["without", "with", "solo"]);
    let [one, other] = [&plan, &named].map(|plan| experiment(plan, 1));
    assert_eq!((one.sha256, one.parameters), (other.sha256, other.parameters), "the same run");
    let error = load(PLAN, &["alone=none"]).unwrap_err().to_string();
    let expected = "--set: alone = \"none\": allowed is one of the plan's arms: without, with";
    assert_eq!(error, expected);
}

#[test]
fn unnamed_reference_arms_cause_warnings() {
    let warnings = |text: &str, sets: &[&str]| load(text, sets).unwrap().warnings();
    let of = |key: &str, arm: &str| {
        format!("{key} is missing: set {key} = \"{arm}\" to compare the other arms with that arm")
    };
    assert_eq!(warnings(PLAN, &[]), [of("baseline", "without")]);
    assert!(warnings(PLAN, &["baseline=with"]).is_empty());
    assert!(warnings(&PLAN.replace("\"without\"", "\"status_quo\""), &[]).is_empty());
    let more = format!(
        "{PLAN}[[arm]]\nname = \"best\"\nset = {{ bundle.a.enabled = false, bottleneck.qdisc = \"sfq\" }}\n\
         [[arm]]\nname = \"short\"\nset = {{ flow.bulk.stop = \"1s\" }}\n"
    );
    let all = [of("baseline", "without"), of("ideal", "best"), of("alone", "short")];
    assert_eq!(warnings(&more, &[]), all);
    for name in library::runnable_plans() {
        assert_eq!(Plan::load(name, &[]).unwrap().warnings(), [""; 0], "{name}");
    }
}
