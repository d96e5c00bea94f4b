//! The criteria of the repository, invented runs that are judged, and known verdicts found by simulation.

use forebay_scenario::Traffic;

use super::*;
use crate::bench::{BenchRequest, Suite};
use forebay_lab::Options;
use forebay_lab::backend;
use forebay_lab::metrics::{Metrics, Part};

/// The sections of RFC 9743 that give evaluation criteria, from its table of contents. These are section 8 and all of
/// 5, 6 and 7 except introductory sections (5, 5.1, 5.3 and 7).
const SECTIONS: [&str; 28] = [
    "5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.1.5", "5.2", "5.2.1", "5.2.2", "5.2.3", "5.3.1",
    "5.3.2", "6", "6.1", "6.2", "6.3", "6.4", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7",
    "7.8", "7.9", "7.10", "7.11", "8",
];
/// Sections of the RFC whose strongest key word is MUST.
const MUST: [&str; 12] =
    ["5.1.5", "5.2", "5.2.1", "5.2.3", "5.3.1", "5.3.2", "6", "6.1", "6.2", "7.9", "7.10", "8"];
/// Sections of the RFC whose strongest key word is SHOULD.
const SHOULD: [&str; 6] = ["5.2.2", "7.1", "7.3", "7.6", "7.8", "7.11"];

/// A test of the deep buffer, with Cubic against itself as the reference.
fn test() -> Test {
    Test {
        text: "t".into(),
        plan: "rfc9743/competition".into(),
        cells: vec!["cubic".into()],
        value: vec!["flows/rival/goodput_mbps".into()],
        beside: Some("cubic-cubic".into()),
        at_least: Some(0.5),
        ..Test::default()
    }
}

/// Runs of `bbr` in the plan. `rival` gives the rival's goodput in a cell with a seed, if any.
fn experiment(rival: impl Fn(&str, u64) -> Option<f64>) -> (Plan, BenchedPlan) {
    let plan = Plan::load("rfc9743/competition", &[]).unwrap();
    let mut experiment = BenchedPlan::new("rfc9743/competition", &plan, "out".as_ref());
    for cell in &plan.cells {
        for seed in 1..=6 {
            let Some(goodput) = rival(&cell.name, seed) else { continue };
            let mut run = Run::default();
            (run.key.arm, run.key.cell, run.key.seed) = ("bbr".into(), cell.name.clone(), seed);
            let metrics = Metrics([("goodput_mbps".to_string(), goodput)].into_iter().collect());
            run.flows = vec![Part { name: "rival".into(), metrics }];
            experiment.valid.push(run);
        }
    }
    (plan, experiment)
}

fn answer(test: &Test, rival: impl Fn(&str, u64) -> Option<f64>) -> Answer {
    let (plan, experiment) = experiment(rival);
    Answer::of(test, "bbr", Some((&plan, &experiment)))
}

#[test]
fn criteria_cover_all_rfc_sections_and_plans() {
    let criteria = Criterion::builtin().unwrap();
    let sections: Vec<&str> = criteria.iter().map(|it| it.section.as_str()).collect();
    assert_eq!(sections, SECTIONS);
    let of_level = |level: Level| -> Vec<&str> {
        criteria.iter().filter(|it| it.level == level).map(|it| it.section.as_str()).collect()
    };
    assert_eq!(of_level(Level::Must), MUST);
    assert_eq!(of_level(Level::Should), SHOULD);
    let tests = || criteria.iter().flat_map(|it| &it.tests);
    for plan in Suite::Rfc9743.plans() {
        assert!(tests().any(|test| test.plan == plan), "{plan} answers nothing");
        let first_word = |cell: &str| cell.split(' ').next().unwrap_or_default().to_string();
        for cell in Plan::load(plan, &[]).unwrap().cells {
            let is_asked = |test: &Test| {
                let is_beside = test.beside.as_ref() == Some(&first_word(&cell.name));
                test.plan == plan && (test.is_of(&cell.name) || is_beside)
            };
            assert!(tests().any(is_asked), "{plan}: {} answers nothing", cell.name);
        }
    }
    let known: Vec<&Known> = tests().flat_map(|test| &test.known).collect();
    assert!(known.len() >= 12 && known.iter().all(|it| !it.source.is_empty()), "{known:?}");
    let texts: BTreeSet<(&str, &str)> = criteria
        .iter()
        .flat_map(|it| it.tests.iter().map(|test| (&*it.section, &*test.text)))
        .collect();
    assert_eq!(texts.len(), tests().count(), "two tests of a section are called the same");
}

#[test]
fn refuses_unjudgeable_criteria_by_name() {
    let refusal = |answer: &str| {
        let text = format!(
            "[[criterion]]\nsection = \"5.1.2\"\ntitle = \"t\"\nlevel = \"MUST\"\nasks = \"a\"\n{answer}"
        );
        format!("{:#}", document::read(&text).unwrap_err())
    };
    let test =
        |keys: &str| refusal(&format!("test = [{{ text = \"t\", {keys} }}]")).replace('\n', " ");
    let plan = "plan = \"rfc9743/buffers\"";
    let value = "value = [\"links/forward/utilisation\"]";
    for (error, reason) in [
        (refusal(""), "section 5.1.2: expected one of test, documentation and not_applicable"),
        (
            refusal("documentation = \"d\"\nnot_applicable = \"n\""),
            "expected one of test, documentation",
        ),
        (
            refusal("documentation = \"d\"\nleaves_open = \"l\""),
            "leaves_open: allowed only with tests",
        ),
        (refusal("lever = 1"), "unknown field `lever`"),
        (
            test(&format!("plan = \"rfc9743/bufers\", {value}")),
            "plan = \"rfc9743/bufers\": allowed is rfc9743/",
        ),
        (
            test(&format!("{plan}, {value}, cells = [\"two\"]")),
            "cells: \"two\": allowed is one limit=0.25bdp",
        ),
        (
            test(&format!("{plan}, {value}, cells = [\"one\"], beside = \"two\"")),
            "beside: \"two limit=0.25bdp\"",
        ),
        (
            test(&format!("{plan}, value = [\"links/forward/utilization\"]")),
            "links/forward/utilization: allowed is",
        ),
        (test(&format!("{plan}, value = [\"utilisation\"]")), "utilisation: allowed is a metric"),
        (test(&format!("{plan}, value = []")), "value: allowed is at least one metric"),
    ] {
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn judges_worst_ratio_to_compared_cell() {
    // Against itself Cubic gets 10; against BBR it gets 2 in the shallow buffer, and more elsewhere.
    let rival = |cell: &str, seed: u64| {
        let noise = 0.1 * seed as f64;
        Some(match cell.split_once(' ')? {
            ("cubic-cubic", _) => 10.0 + noise,
            (_, "limit=0.5bdp") => 2.0 + noise,
            _ => 8.0,
        })
    };
    let found = answer(&test(), rival);
    assert_eq!((found.worst.cell.as_str(), found.worst.seeds), ("cubic limit=0.5bdp", 6));
    assert_eq!((found.worst.verdict, found.cells.len()), (Verdict::Failed, 3));
    let median = found.worst.figure.unwrap().median;
    assert!((median - 2.35 / 10.35).abs() < 0.01, "{median}");
    assert!(found.to_string().starts_with("not met: 0.22"), "{found}");
    assert!(found.to_string().ends_with("], 6 seeds at cubic limit=0.5bdp"), "{found}");
    let deep = Test { cells: vec!["cubic limit=4bdp".into()], ..test() };
    let found = answer(&deep, rival);
    assert_eq!((found.worst.verdict, found.to_string().contains(" at ")), (Verdict::Met, false));
    let most = Test { at_least: None, at_most: Some(0.9), ..test() };
    assert_ne!(answer(&most, rival).worst.cell, "cubic limit=0.5bdp", "least is best there");
    let reported = Test { at_least: None, ..test() };
    assert_eq!(answer(&reported, rival).worst.verdict, Verdict::Reported);
}

#[test]
fn one_failed_test_fails_the_criterion() {
    let not_run = Verdict::NotShown(Why::NotRun);
    let none = answer(&test(), |_, _| None);
    assert_eq!((none.worst.verdict, none.cells.len()), (not_run, 3));
    let alone = answer(&test(), |cell, _| (!cell.starts_with("cubic-cubic")).then_some(8.0));
    assert_eq!(alone.worst.verdict, not_run, "there is nothing to compare with");
    let one = |cell: &str, _| (!cell.ends_with("=4bdp")).then_some(8.0);
    assert_eq!(answer(&test(), one).worst.cell, "cubic limit=4bdp");
    let known = |algorithm: &str, verdict| Known {
        algorithm: algorithm.into(),
        verdict,
        source: "s".into(),
    };
    let failed = Test {
        at_least: Some(1.5),
        known: vec![known("bbr", Verdict::Failed), known("copa", Verdict::Failed)],
        ..test()
    };
    let met = Test { known: vec![known("bbr", Verdict::Failed)], ..test() };
    let criterion = Criterion {
        section: "5.2.1".into(),
        title: "t".into(),
        level: Level::Must,
        asks: "a".into(),
        documentation: None,
        not_applicable: None,
        leaves_open: None,
        tests: vec![met, failed],
    };
    let text =
        Criterion { tests: Vec::new(), documentation: Some("d".into()), ..criterion.clone() };
    let (plan, experiment) = experiment(|_, _| Some(8.0));
    let found = Criteria::of(vec![criterion, text], &[plan], &[experiment], &[]);
    assert_eq!(found.algorithms, ["bbr"]);
    assert_eq!(found.findings[0].verdicts["bbr"], Verdict::Failed);
    let table = found.table();
    assert_eq!(table.columns, ["section", "criterion", "level", "bbr"]);
    let verdicts: Vec<&str> = table.rows.iter().map(|row| row[3].as_str()).collect();
    assert_eq!(verdicts, ["not met", "documentation"]);
    let unmet: Vec<String> = found.unmet().collect();
    assert_eq!(unmet.len(), 1);
    assert!(
        unmet[0].starts_with("5.2.1, bbr: t ≥ 1.5: not met: 1.000 [1.000, 1.000], 6 seeds at"),
        "{unmet:?}"
    );
    assert_eq!(found.known_table().caption, "1 of 2 published verdicts are reproduced here.");
    let contradictions: Vec<String> = found.contradictions().collect();
    assert_eq!(contradictions, ["5.2.1, bbr: t: met, published: not met (s)"]);
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["findings"][0]["tests"][1]["answers"]["bbr"]["verdict"], "failed");
    assert_eq!(json["findings"][1]["documentation"], "d");
}

#[test]
fn seed_without_figure_leaves_cell_not_shown() {
    let some = |cell: &str, seed: u64| (cell != "cubic limit=2bdp" || seed > 2).then_some(8.0);
    let found = answer(&test(), some);
    let AtCell { seeds, wanted, verdict, .. } = found.worst;
    assert_eq!((seeds, wanted, verdict), (4, 6, Verdict::NotShown(Why::NotRun)));
    assert!(found.to_string().ends_with("], 4 of 6 seeds at cubic limit=2bdp"), "{found}");
    let (mut plan, experiment) = experiment(|_, _| Some(8.0));
    plan.arms[0].name = "bbr".into();
    plan.seeds = "1..8".parse().unwrap();
    let found = Answer::of(&test(), "bbr", Some((&plan, &experiment)));
    assert_eq!((found.worst.seeds, found.worst.wanted), (6, 8), "two of the requested runs failed");
    assert_eq!(found.worst.verdict, Verdict::NotShown(Why::NotRun));
}

#[test]
fn ratio_to_zero_is_one_or_infinite() {
    let beside_nothing = |goodput: f64| {
        move |cell: &str, _| Some(if cell.starts_with("cubic-cubic") { 0.0 } else { goodput })
    };
    let most = Test { at_least: None, at_most: Some(2.0), ..test() };
    for (test, goodput, verdict) in [
        (test(), 8.0, Verdict::Met),
        (test(), 0.0, Verdict::Met),
        (most.clone(), 8.0, Verdict::Failed),
        (most, 0.0, Verdict::Met),
    ] {
        assert_eq!(answer(&test, beside_nothing(goodput)).worst.verdict, verdict, "{goodput}");
    }
    let share = Test { beside: None, over: test().value, ..test() };
    assert_eq!(answer(&share, |_, _| Some(0.0)).worst.verdict, Verdict::Failed, "of nothing");
}

#[test]
fn replaced_values_omit_published_figures() {
    let known = Known { algorithm: "bbr".into(), verdict: Verdict::Failed, source: "s".into() };
    let criterion = || Criterion {
        tests: vec![Test { known: vec![known.clone()], ..test() }],
        ..Criterion::builtin().unwrap().remove(0)
    };
    let (plan, experiment) = experiment(|_, _| Some(8.0));
    let (plans, experiments) = ([plan], [experiment]);
    let of = |sets: &[Override]| Criteria::of(vec![criterion()], &plans, &experiments, sets);
    assert_eq!((of(&[]).known.len(), of(&[]).replaced_words().as_str()), (1, ""));
    let found = of(&[Override::parse("bottleneck.rate=9Mbit/s").unwrap()]);
    assert!(found.known.is_empty());
    assert!(found.table().caption.contains("Replaced here: bottleneck.rate. The bounds"));
}

#[test]
fn bound_is_shown_with_its_unit() {
    let of = |test: Test| test.bound_words();
    assert_eq!(of(test()), "≥ 0.5");
    assert_eq!(of(Test { beside: None, ..test() }), "≥ 0.5 Mbit/s");
    assert_eq!(of(Test { at_least: None, ..test() }), "");
    let words = "flows/rival/goodput_mbps, over the same in cubic-cubic";
    assert_eq!(test().figure_words(), words);
    let over = vec!["a".to_string(), "b".into()];
    assert_eq!(
        Test { over, beside: None, ..test() }.figure_words(),
        "flows/rival/goodput_mbps / (a + b)"
    );
}

#[test]
fn suite_can_be_simulated_in_time() {
    let sim = backend::open("sim").unwrap();
    let mut packets = 0.0;
    for name in Suite::Rfc9743.plans() {
        let plan = Plan::load(name, &[]).unwrap();
        assert_eq!((plan.arms.len(), plan.seeds.to_string()), (1, "1..10".into()), "{name}");
        for run in plan.experiments() {
            let run = run.unwrap();
            sim.check(&run).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!run.start_jitter.is_zero(), "{name}");
            let greedy = run.flows.iter().filter(|it| matches!(it.traffic, Traffic::Greedy { .. }));
            assert!(greedy.count() > 0, "{name}");
            let bits = run
                .links()
                .filter_map(|link| link.capacity_bits(std::time::Duration::ZERO, run.stop));
            packets += bits.sum::<f64>() / (1514.0 * 8.0);
        }
    }
    assert!(packets < 7e6, "{packets} packets of one seed");
}

/// The suite's findings on `algorithms` in these cells of a plan, with two seeds.
fn simulated(name: &str, cells: &[&str], algorithms: &[&str], sets: &[&str]) -> Criteria {
    let folder = tempfile::tempdir().unwrap();
    let request = BenchRequest {
        suite: Suite::Rfc9743,
        algorithms: algorithms.iter().map(|it| it.to_string()).collect(),
        only: vec![name.into()],
        sets: sets.iter().map(|set| Override::parse(set).unwrap()).collect(),
        ..BenchRequest::default()
    };
    let mut plan = request.plans().unwrap().remove(0);
    plan.seeds = "1..2".parse().unwrap();
    plan.cells.retain(|cell| cells.contains(&cell.name.as_str()));
    assert_eq!(plan.cells.len(), cells.len(), "{name}");
    let options = Options {
        backend: "sim".into(),
        out: Some(folder.path().join(&plan.name)),
        jobs: 2,
        ..Options::default()
    };
    assert!(forebay_lab::run(&plan, &options, &mut |_| {}).unwrap().valid);
    let mut experiment = BenchedPlan::new(name, &plan, folder.path());
    experiment.read(&plan, &options).unwrap();
    Criteria::of(Criterion::builtin().unwrap(), &[plan], &[experiment], &[])
}

/// Asserts that these cells have this number of published verdicts on the algorithms, and that all are found.
fn reproduces(found: &Criteria, published: usize) {
    assert_eq!(found.known.len(), published, "{:#?}", found.known);
    let wrong: Vec<String> = found.contradictions().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn known_starvation_is_found() {
    let cells = ["newreno limit=4bdp", "cubic limit=4bdp"];
    let found =
        simulated("rfc9743/competition", &cells, &["copa", "vegas", "ledbat"], &["stop=25s"]);
    // Cubic starves Copa, NewReno starves Vegas, and both starve LEDBAT, which yields.
    reproduces(&found, 4);
}

#[test]
fn finds_bbr_harm_to_cubic_in_shallow_buffer() {
    let cells = ["cubic limit=0.5bdp", "cubic-cubic limit=0.5bdp"];
    reproduces(&simulated("rfc9743/competition", &cells, &["bbr"], &["stop=25s"]), 1);
}

#[test]
fn known_unfairness_to_a_long_way_is_found() {
    reproduces(&simulated("rfc9743/fairness", &["far"], &["newreno", "cubic"], &[]), 2);
}
