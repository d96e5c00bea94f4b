use serde_json::{Value, json};

use super::*;
use crate::metrics::{Metrics, Part};
use crate::store::{Run, RunKey};
use crate::summary::ArmSummary;

/// The judged metric of most tests.
const QUEUE: &str = "links/forward/queue_mean_packets";

fn claim(json: Value) -> Claim {
    serde_json::from_value(json).unwrap()
}

/// A bound on the queue of `copa_sfq`.
fn at_most(most: f64) -> Claim {
    claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": most }))
}

fn metrics(numbers: &[(&str, f64)]) -> Metrics {
    Metrics(numbers.iter().map(|(name, value)| (name.to_string(), *value)).collect())
}

fn summary(arm: &str, cell: &str, queue: f64) -> ArmSummary {
    let numbers = metrics(&[
        ("queue_mean_packets", queue),
        ("queue_max_packets", 2.0 * queue),
        ("passing_share", 1e-3 * queue),
    ]);
    ArmSummary {
        arm: arm.into(),
        cell: cell.into(),
        metrics: metrics(&[("goodput_mbps", 90.0)]),
        links: vec![Part { name: "forward".into(), metrics: numbers }],
        ..ArmSummary::default()
    }
}

fn run(arm: &str, cell: &str, seed: u64) -> Run {
    let key = RunKey { arm: arm.into(), cell: cell.into(), seed, ..RunKey::default() };
    Run { key, commit: "abc".into(), host: json!({}), ..Run::default() }
}

impl ClaimResults {
    /// Adds a run of an arm in a cell with its mean queue; the pooled figure is the mean.
    fn add(mut self, arm: &str, cell: &str, seed: u64, queue: f64) -> Self {
        self.runs.push(run(arm, cell, seed));
        let arms = self.by_seed.entry(seed).or_default();
        arms.push(summary(arm, cell, queue));
        let queues: Vec<f64> = self
            .by_seed
            .values()
            .flatten()
            .filter(|it| it.arm == arm && it.cell == cell)
            .map(|it| it.links[0].metrics.get("queue_mean_packets").unwrap())
            .collect();
        let mean = queues.iter().sum::<f64>() / queues.len() as f64;
        self.pooled.retain(|it| it.arm != arm || it.cell != cell);
        self.pooled.push(summary(arm, cell, mean));
        self
    }

    /// A box dies in the run.
    fn die(mut self, arm: &str, seed: u64) -> Self {
        self.runs.push(Run { host: json!({ "died": "sendbox-0 ended" }), ..run(arm, "", seed) });
        self
    }

    /// The harness disturbs the run.
    fn reject(mut self, arm: &str, seed: u64) -> Self {
        self.runs.push(Run { invalid: vec!["late".into()], ..run(arm, "", seed) });
        self
    }
}

fn wanted(seeds: &[u64], cells: &[&str]) -> ClaimResults {
    let cells = cells.iter().map(|cell| cell.to_string()).collect();
    ClaimResults { seeds: seeds.to_vec(), cells, ..ClaimResults::default() }
}

/// Runs of `copa_sfq` with these queues, each paired with a run of the status quo with a hundred times the queue.
fn queues(queues: &[f64]) -> ClaimResults {
    let seeds: Vec<u64> = (1..=queues.len() as u64).collect();
    queues.iter().zip(&seeds).fold(wanted(&seeds, &[""]), |results, (queue, seed)| {
        results.add("copa_sfq", "", *seed, *queue).add("status_quo", "", *seed, 100.0 * queue)
    })
}

fn judge(claim: &Claim, here: &ClaimResults) -> Vec<Judged> {
    claim.judge("p", Sides { here, there: None, void: &[] })
}

fn verdicts(judged: &[Judged]) -> Vec<Verdict> {
    judged.iter().map(|judged| judged.verdict).collect()
}

/// Verdict of a claim whose runs are missing.
const NOT_RUN: Verdict = Verdict::NotShown(Why::NotRun);

#[test]
fn median_is_judged_and_pooled_verdict_kept() {
    for (figures, expected, before) in [
        (&[9.0, 10.0, 14.0][..], Verdict::Met, None),
        // Two of three seeds are below, but the mean is not.
        (&[9.0, 10.0, 40.0], Verdict::Met, Some("pooled 19.7 failed")),
        (&[9.0, 16.0, 17.0], Verdict::Open, Some("pooled 14 met")),
        (&[9.0, 30.0, 31.0], Verdict::Open, Some("pooled 23.3 failed")),
        (&[16.0, 17.0, 18.0], Verdict::Failed, None),
    ] {
        let judged = &judge(&at_most(15.0), &queues(figures))[0];
        assert_eq!((judged.verdict, judged.before.as_deref()), (expected, before), "{figures:?}");
        assert_eq!((judged.figure, judged.behind.values), (Some(figures[1]), 3));
        assert_eq!((judged.commit.as_str(), judged.place.as_str()), ("abc", "copa_sfq"));
    }
}

#[test]
fn ratios_are_of_runs_of_one_seed() {
    // The seeds differ by far more than the arms.
    let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                              "over": "status_quo", "at_most": 0.01 }));
    let judged = &judge(&ratio, &queues(&[1.0, 50.0, 1000.0]))[0];
    assert_eq!((judged.figure, judged.verdict), (Some(0.01), Verdict::Met));
    assert_eq!(judged.behind.to_string(), "3/3, made copa_sfq 3, status_quo 3");
    let missing = wanted(&[1, 2], &[""])
        .add("copa_sfq", "", 1, 9.0)
        .add("copa_sfq", "", 2, 9.0)
        .add("status_quo", "", 1, 900.0);
    let judged = &judge(&ratio, &missing)[0];
    assert_eq!((judged.verdict, judged.behind.values), (NOT_RUN, 1));
}

#[test]
fn run_ended_by_box_misses_every_bound() {
    let (here, bound) = (wanted(&[1, 2, 3], &[""]), at_most(15.0));
    let died = here.add("copa_sfq", "", 1, 9.0).die("copa_sfq", 2).die("copa_sfq", 3);
    let judged = &judge(&bound, &died)[0];
    assert_eq!((judged.figure, judged.verdict), (Some(f64::INFINITY), Verdict::Open));
    assert_eq!(judged.behind.to_string(), "3/3, made copa_sfq 3");
    let two_of_three = wanted(&[1, 2, 3], &[""])
        .add("copa_sfq", "", 1, 9.0)
        .add("copa_sfq", "", 2, 9.0)
        .die("copa_sfq", 3);
    assert_eq!(judge(&bound, &two_of_three)[0].verdict, Verdict::Met);
    // The median does not hide the worst run.
    let worst = claim(json!({ "text": "t", "arms": ["copa_sfq"], "at_most": 30.0,
                              "value": ["links/forward/queue_max_packets"] }));
    assert_eq!(judge(&worst, &two_of_three)[0].verdict, Verdict::Failed);
    let each = Claim { each_run: true, ..at_most(15.0) };
    let expected = [Verdict::Met, Verdict::Met, Verdict::Failed];
    assert_eq!(verdicts(&judge(&each, &two_of_three)), expected);
}

#[test]
fn worst_run_metrics_ignore_the_median() {
    let worst = claim(json!({ "text": "t", "arms": ["copa_sfq"], "at_most": 30.0,
                              "value": ["links/forward/queue_max_packets"] }));
    // The pooled figure of these results is the mean's, 40.
    let judged = &judge(&worst, &queues(&[9.0, 10.0, 41.0]))[0];
    assert_eq!((judged.figure, judged.verdict), (Some(40.0), Verdict::Failed));
    assert_eq!((judged.interval, judged.before.clone()), (None, None));
}

#[test]
fn time_share_is_judged_over_pooled_runs() {
    let share = claim(json!({ "text": "t", "arms": ["copa_sfq"], "at_most": 0.01,
                              "value": ["links/forward/passing_share"] }));
    let judged = |found: &[f64]| judge(&share, &queues(found)).remove(0);
    // One run of three passes for 6 % of its time: 2 % of all.
    let bad = judged(&[0.0, 0.0, 60.0]);
    assert_eq!((bad.figure, bad.verdict), (Some(0.02), Verdict::Failed));
    assert_eq!(judged(&[0.0, 0.0, 24.0]).verdict, Verdict::Met);
}

#[test]
fn rejected_run_is_counted_but_has_no_value() {
    let results = queues(&[9.0, 9.0]).reject("copa_sfq", 1).reject("copa_sfq", 2);
    let judged = &judge(&at_most(15.0), &results)[0];
    assert_eq!(judged.verdict, Verdict::Met);
    assert_eq!(judged.behind.to_string(), "2/2, made copa_sfq 4 (2 rejected)");
    let results = wanted(&[1, 2], &[""]).add("copa_sfq", "", 1, 9.0).reject("copa_sfq", 2);
    let judged = judge(&at_most(15.0), &results);
    assert_eq!((judged[0].verdict, judged[0].figure), (NOT_RUN, Some(9.0)));
    assert_eq!(judged[0].behind.to_string(), "1/2, made copa_sfq 2 (1 rejected)");
    let each = Claim { each_run: true, ..at_most(15.0) };
    assert_eq!(verdicts(&judge(&each, &results)), [Verdict::Met, NOT_RUN]);
}

#[test]
fn tiny_gap_is_judged_by_distance_to_end() {
    let gap = |figures: [f64; 3]| {
        let claim = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                                  "gap": { "from": "status_quo", "to": "oracle", "least": 0.1 },
                                  "at_least": 0.9 }));
        let arms = ["status_quo", "oracle", "copa_sfq"];
        let results = arms
            .iter()
            .zip(figures)
            .fold(wanted(&[1], &[""]), |results, (arm, figure)| results.add(arm, "", 1, figure));
        let judged = judge(&claim, &results).remove(0);
        (judged.figure.unwrap(), judged.verdict)
    };
    assert_eq!(gap([900.0, 100.0, 300.0]), (0.75, Verdict::Failed));
    assert_eq!(gap([900.0, 100.0, 100.0]), (1.0, Verdict::Met));
    assert_eq!(gap([100.0, 99.0, 99.5]), (0.95, Verdict::Met));
    assert_eq!(gap([100.0, 104.0, 109.0]), (0.5, Verdict::Failed));
}

#[test]
fn claim_is_judged_per_back_end_or_named() {
    let claim = |backend: Value| {
        json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0,
                "backend": backend })
    };
    let beside = json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                         "within": { "share": 0.1 } });
    let plan = json!({ "name": "p", "seeds": { "emu": "1", "sim": "1..3" },
                       "claim": [claim(json!(null)), claim(json!("sim")), beside] });
    let plan: PlanClaims = serde_json::from_value(plan).unwrap();
    let (few, many) = (queues(&[9.0]), queues(&[9.0, 10.0, 16.0]));
    let figures = |judged: Vec<Judged>| -> Vec<(String, usize, Option<f64>)> {
        judged.into_iter().map(|it| (it.of, it.behind.wanted, it.figure)).collect()
    };
    let row = |of: &str, seeds, figure| (of.to_string(), seeds, Some(figure));
    // Only the seeds on both sides are compared.
    let expected = [row("p@emu", 1, 9.0), row("p@emu", 1, 0.0)];
    assert_eq!(figures(plan.judge("emu", &few, Some(&many))), expected);
    let expected = [row("p@sim", 3, 10.0), row("p@sim", 3, 10.0)];
    assert_eq!(figures(plan.judge("sim", &many, None)), expected);
}

#[test]
fn one_sided_intervals_need_no_more_seeds() {
    let plan = |claims: Value| -> PlanClaims {
        serde_json::from_value(json!({ "name": "p", "seeds": { "sim": "1..9" }, "claim": claims }))
            .unwrap()
    };
    let claim = |kind: Value| {
        let mut claim = json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE] });
        claim.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        claim
    };
    let most =
        plan(json!([claim(json!({ "at_most": 15.0 })), claim(json!({ "report_only": true }))]));
    let is_decided = |plan: &PlanClaims, results| plan.is_decided("sim", &results);
    for figures in [[9.0, 10.0, 11.0, 12.0, 13.0, 14.0], [16.0, 17.0, 18.0, 19.0, 20.0, 21.0]] {
        assert!(is_decided(&most, queues(&figures)), "{figures:?}");
        assert!(!is_decided(&most, queues(&figures[..5])), "too few");
        let disturbed = ClaimResults { seeds: (1..=7).collect(), ..queues(&figures) };
        assert!(!is_decided(&most, disturbed), "a run is missing");
    }
    let open = [9.0, 10.0, 11.0, 16.0, 17.0, 18.0];
    assert!(!is_decided(&most, queues(&open)));
    // A bound on each run has no interval that could decide: the next run may miss it.
    let each = plan(json!([claim(json!({ "at_most": 15.0, "each_run": true }))]));
    assert!(!is_decided(&each, queues(&open)));
}

#[test]
fn seeds_are_paired_across_back_ends() {
    let within = |share: f64, least: f64| {
        let within = json!({ "share": share, "least": least });
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "within": within }))
    };
    let here = queues(&[9.0, 900.0]);
    let judge = |claim: &Claim, there: Option<&ClaimResults>| {
        claim.judge("p", Sides { here: &here, there, void: &[] }).remove(0)
    };
    for (there, share, least, expected) in [
        ([10.0, 1000.0], 0.15, 0.0, Verdict::Met),
        ([11.0, 1100.0], 0.15, 0.0, Verdict::Failed),
        ([11.0, 902.0], 0.001, 2.0, Verdict::Met),
        ([6.9, 896.0], 0.001, 2.0, Verdict::Failed),
    ] {
        let judged = judge(&within(share, least), Some(&queues(&there)));
        assert_eq!(judged.verdict, expected, "{there:?} {judged:?}");
    }
    let beside = queues(&[10.0, 1000.0]);
    let judged = judge(&within(0.15, 2.0), Some(&beside));
    assert_eq!(judged.bound, "≥ -1, ≤ 1 times 15 % or 2");
    assert_eq!(judged.behind.to_string(), "2/2, made copa_sfq 2, copa_sfq beside 2");
    let half = wanted(&[1, 2], &[""]).add("copa_sfq", "", 1, 10.0);
    for there in [None, Some(&half)] {
        assert_eq!(judge(&within(0.15, 2.0), there).verdict, NOT_RUN);
    }
}

/// Three arms with these queues, each with a run for each seed.
fn three(queues: [f64; 3], seeds: &[u64]) -> ClaimResults {
    let arms = ["status_quo", "copa_sfq", "copa_fifo"];
    let runs = seeds.iter().flat_map(|seed| arms.iter().zip(queues).map(move |it| (*seed, it)));
    runs.fold(wanted(&[1, 2], &[""]), |results, (seed, (arm, queue))| {
        results.add(arm, "", seed, queue)
    })
}

fn order_of(arms: &[&str], value: &str) -> PlanClaims {
    let claim = json!({ "text": "t", "arms": arms, "value": [value],
                        "same_order": { "apart": 0.05 } });
    let seeds = json!({ "emu": "1..2", "sim": "1..2" });
    serde_json::from_value(json!({ "name": "p", "seeds": seeds, "claim": [claim] })).unwrap()
}

#[test]
fn distinct_arms_must_keep_order_across_back_ends() {
    let plan = order_of(&["status_quo", "copa_sfq", "copa_fifo"], QUEUE);
    let arms = "status_quo, copa_sfq, copa_fifo";
    let here = three([100.0, 50.0, 80.0], &[1, 2]);
    for (there, turned, expected, words) in [
        ([90.0, 40.0, 60.0], 0.0, Verdict::Met, ""),
        // Apart by 25 % here, by 4 % there, whichever is ahead.
        ([96.0, 40.0, 100.0], 0.0, Verdict::Met, "; tied: status_quo and copa_fifo"),
        ([94.0, 40.0, 100.0], 1.0, Verdict::Failed, "; turned round: status_quo and copa_fifo"),
        (
            [40.0, 90.0, 91.0],
            2.0,
            Verdict::Failed,
            "; turned round: status_quo and copa_sfq, status_quo and copa_fifo; \
             tied: copa_sfq and copa_fifo",
        ),
    ] {
        let [this, other] = [&here, &three(there, &[1, 2])];
        for (this, other) in [(this, other), (other, this)] {
            let judged = plan.judge("emu", this, Some(other));
            let [judged] = judged.as_slice() else { panic!("{judged:?}") };
            assert_eq!((judged.verdict, judged.figure), (expected, Some(turned)), "{there:?}");
            assert_eq!(judged.place, format!("{arms}{words}"));
            assert_eq!((judged.bound.as_str(), judged.commit.as_str()), ("≤ 0", "abc"));
        }
    }
}

#[test]
fn incomplete_order_is_not_judged() {
    let arms = ["status_quo", "copa_sfq", "copa_fifo"];
    let all = three([100.0, 50.0, 80.0], &[1, 2]);
    let not_run = |plan: &PlanClaims, here: &ClaimResults, there: Option<&ClaimResults>| {
        let judged = plan.judge("emu", here, there).remove(0);
        assert_eq!(judged.verdict, NOT_RUN, "{judged:?}");
        (judged.figure, judged.behind.values)
    };
    let plan = order_of(&arms, QUEUE);
    assert_eq!(plan.judge("emu", &all, Some(&all))[0].verdict, Verdict::Met);
    let none = wanted(&[1, 2], &[""]);
    for (here, there) in [(&all, None), (&none, Some(&all))] {
        assert_eq!(not_run(&plan, here, there), (None, 0));
    }
    let one_seed = three([100.0, 50.0, 80.0], &[1]);
    for (here, there) in [(&all, &one_seed), (&one_seed, &all)] {
        assert_eq!(not_run(&plan, here, Some(there)), (Some(0.0), 1));
    }
    let more = order_of(&["status_quo", "no_such_arm"], QUEUE);
    assert_eq!(not_run(&more, &all, Some(&all)), (None, 0));
    not_run(&order_of(&arms, "no_such_metric"), &all, Some(&all));
}

#[test]
fn ratio_may_have_own_denominator_or_no_bound() {
    let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "over": "status_quo",
                              "value": [QUEUE, QUEUE], "over_value": [QUEUE],
                              "report_only": true }));
    let judged = &judge(&ratio, &queues(&[9.0]))[0];
    assert_eq!((judged.figure, judged.verdict), (Some(0.02), Verdict::Reported));
}

#[test]
fn missing_figure_meets_no_claim() {
    for (arm, value) in [("copa_sfq", "no_such_metric"), ("no_such_arm", "goodput_mbps")] {
        let claim = claim(json!({ "text": "t", "arms": [arm], "value": [value],
                                  "at_least": 0.0 }));
        for results in [queues(&[9.0]), wanted(&[1], &[""])] {
            assert_eq!(verdicts(&judge(&claim, &results)), [NOT_RUN]);
        }
    }
}

#[test]
fn comparison_needs_its_reference_arms() {
    let of = |metric: &str| {
        let claim = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [metric],
                                  "at_most": 1.0 }));
        judge(&claim, &queues(&[9.0]))[0].behind.to_string()
    };
    assert_eq!(of("slowdown_p50_over_status_quo"), "0/1, made copa_sfq 1, status_quo 1");
    assert_eq!(of("gap_closed"), "0/1, made copa_sfq 1, status_quo 1, in_network_fq 0");
    let claim = |metric: &str, backend: &str| {
        json!({ "text": "t", "arms": ["copa_sfq"], "value": [metric], "at_most": 1.0,
                "backend": backend })
    };
    let beside = json!({ "text": "t", "arms": ["copa_fifo"], "value": [QUEUE],
                         "within": { "share": 0.1 } });
    let seeds = json!({ "emu": "1", "sim": "1" });
    let claims = [claim("gap_closed", "sim"), claim(QUEUE, "emu"), beside];
    let plan = json!({ "name": "p", "seeds": seeds, "claim": claims });
    let plan: PlanClaims = serde_json::from_value(plan).unwrap();
    assert_eq!(plan.arms("emu"), BTreeSet::from(["copa_fifo", "copa_sfq"]));
    let all = BTreeSet::from(["copa_fifo", "copa_sfq", "in_network_fq", "status_quo"]);
    assert_eq!(plan.arms("sim"), all);
}

#[test]
fn seed_without_arm_has_no_comparison() {
    let worse = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": ["sites_worse"],
                              "at_most": 0.1 }));
    let mut results = queues(&[9.0, 9.0]).add("status_quo_again", "", 1, 900.0);
    for arm in results.by_seed.values_mut().flatten() {
        arm.metrics.put("sites_worse", Some(0.0));
    }
    let judged = |results: &ClaimResults| {
        let judged = judge(&worse, results).remove(0);
        (judged.verdict, judged.behind.values)
    };
    assert_eq!(judged(&results), (Verdict::Met, 2));
    results.arms = vec!["status_quo_again".into()];
    assert_eq!(judged(&results), (NOT_RUN, 1));
}

#[test]
fn a_cell_that_is_missing_is_seen() {
    let results = wanted(&[1], &["rate=1", "rate=2"]).add("copa_sfq", "rate=1", 1, 9.0);
    assert_eq!(verdicts(&judge(&at_most(15.0), &results)), [Verdict::Met, NOT_RUN]);
}

#[test]
fn figures_of_a_host_are_of_each_run() {
    let mut results = queues(&[9.0, 9.0]);
    for run in &mut results.runs {
        run.host = json!({ "cpu_cores": { "emulator": 0.25 * run.key.seed as f64 } });
    }
    let cores = claim(json!({ "text": "t", "arms": ["copa_sfq"], "each_run": true, "at_most": 0.3,
                              "value": ["host/cpu_cores/emulator"] }));
    let judged = judge(&cores, &results);
    assert_eq!(verdicts(&judged), [Verdict::Met, Verdict::Failed]);
    assert_eq!(judged[1].place, "copa_sfq seed 2");
}

#[test]
fn pooled_claims_are_judged_by_all_runs_together() {
    let pooled = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                               "pooled": true, "at_most": 15.0 }));
    // The median is 10, the pooled figure of these results is the mean.
    let judged = &judge(&pooled, &queues(&[9.0, 10.0, 41.0]))[0];
    assert_eq!((judged.figure, judged.verdict), (Some(20.0), Verdict::Failed));
    assert_eq!(judged.interval, None);
}

#[test]
fn chance_widens_a_bound() {
    let bounded = |pooled: bool| {
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "over": "status_quo",
                      "chance": "again", "pooled": pooled, "at_most": 1.1 }))
    };
    let results = |again: f64| {
        let arms = [("status_quo", 100.0), ("again", again), ("copa_sfq", 115.0)];
        arms.iter().fold(wanted(&[1], &[""]), |all, (arm, queue)| all.add(arm, "", 1, *queue))
    };
    for pooled in [false, true] {
        let judged = |again| judge(&bounded(pooled), &results(again)).remove(0);
        let narrow = judged(96.0);
        assert_eq!((narrow.bound.as_str(), narrow.verdict), ("≤ 1.1", Verdict::Failed));
        let wide = judged(94.0);
        assert_eq!(
            (wide.bound.as_str(), wide.verdict),
            ("≤ 1.16 (chance; else ≤ 1.1)", Verdict::Met)
        );
        assert_eq!(wide.behind.to_string(), "1/1, made copa_sfq 1, status_quo 1, again 1");
    }
    let least = claim(json!({ "text": "t", "arms": ["a"], "value": [QUEUE], "over": "b",
                              "chance": "c", "at_least": 0.95 }));
    let low = |chance| least.widened(chance, None).at_least.unwrap();
    assert!((low(Some(1.03)) - 0.92).abs() < 1e-9);
    assert_eq!([low(Some(1.02)), low(None)], [0.95, 0.95]);
}

#[test]
fn reported_figures_may_be_absent() {
    let value = "links/forward/sojourn_mean_ms";
    let reported = |report_only: bool| {
        let bound = (!report_only).then_some(1.0);
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [value],
                      "report_only": report_only, "at_most": bound }))
    };
    let verdict = |report_only, of: ClaimResults| judge(&reported(report_only), &of)[0].verdict;
    assert_eq!(verdict(true, queues(&[9.0])), Verdict::Reported);
    assert_eq!(verdict(false, queues(&[9.0])), NOT_RUN);
    assert_eq!(verdict(true, wanted(&[1], &[""])), NOT_RUN);
}

/// A bound of 5 on the queue of `native`, compared with `kernel`; `again` is a second run of `kernel`.
fn compared() -> Claim {
    let mut claim = claim(
        json!({ "text": "t", "arms": ["native"], "value": [QUEUE], "baseline": "kernel",
                                  "noise": { "arm": "again", "times": 2.0 }, "pooled": true, "at_most": 5.0 }),
    );
    let steady = json!({ "arm": "again", "value": [QUEUE], "at_most": 6.0 });
    claim.steady = serde_json::from_value(steady).unwrap();
    claim
}

#[test]
fn bound_is_at_least_multiple_of_noise() {
    let found = |again: f64| {
        let results = wanted(&[1], &[""]).add("kernel", "", 1, 0.0).add("again", "", 1, again);
        judge(&compared(), &results.add("native", "", 1, 9.0)).remove(0)
    };
    assert_eq!((found(2.0).verdict, found(2.0).bound.as_str()), (Verdict::Failed, "≤ 5"));
    assert_eq!(found(5.0).verdict, Verdict::Met);
    assert_eq!(found(5.0).bound, "≤ 10 (chance; else ≤ 5)");
    assert_eq!(found(7.0).verdict, Verdict::NotShown(Why::Unsteady));
}

#[test]
fn a_comparison_needs_its_baseline_and_its_noise() {
    let mut results = wanted(&[1], &[""]).add("kernel", "", 1, 0.0).add("native", "", 1, 1.0);
    results.arms = ["kernel", "again", "native"].map(String::from).to_vec();
    let judged = judge(&compared(), &results).remove(0);
    assert_eq!((judged.verdict, judged.behind.values), (NOT_RUN, 0));
    let judged = judge(&compared(), &results.add("again", "", 1, 0.0)).remove(0);
    assert_eq!(judged.verdict, Verdict::Met);
    assert_eq!(judged.behind.to_string(), "1/1, made native 1, kernel 1, again 1");
}
