use super::*;
use serde_json::json;

const QUEUE: &str = "links/forward/queue_mean_packets";

fn claim(json: Value) -> Claim {
    serde_json::from_value(json).unwrap()
}

fn wanted(seeds: &[u64], cells: &[&str]) -> Wanted {
    Wanted { seeds: seeds.to_vec(), cells: cells.iter().map(|cell| cell.to_string()).collect() }
}

fn row(arm: &str, cell: &str, queue: f64) -> Value {
    json!({ "arm": arm, "cell": cell, "metrics": { "goodput_mbps": 90.0 },
            "links": [{ "name": "forward", "metrics": { "queue_mean_packets": queue } }] })
}

fn run(arm: &str, cell: &str, seed: u64, valid: bool) -> Value {
    let mut run = row(arm, cell, 9.0);
    run["seed"] = json!(seed);
    run["valid"] = json!(valid);
    run["commit"] = json!("abc");
    run
}

fn document() -> Value {
    let runs = ["status_quo", "copa_sfq"].map(|arm| run(arm, "", 1, true));
    json!({ "runs": runs, "summary": [row("status_quo", "", 900.0), row("copa_sfq", "", 9.0)] })
}

fn judge(claim: &Claim, document: &Value, wanted: &Wanted) -> Vec<Verdict> {
    let none = Results { document: &Value::Null, wanted };
    claim.judge("p", &Results { document, wanted }, &none)
}

#[test]
fn a_bound_is_judged_on_values_and_on_ratios() {
    let below =
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
    let verdict = &judge(&below, &document(), &wanted(&[1], &[""]))[0];
    assert_eq!((verdict.outcome, verdict.runs), (Outcome::Holds, (1, 1)));
    assert_eq!((verdict.commit.as_str(), verdict.place.as_str()), ("abc", "copa_sfq"));
    let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                              "over": "status_quo", "at_least": 0.02 }));
    let verdict = &judge(&ratio, &document(), &wanted(&[1], &[""]))[0];
    assert_eq!((verdict.value, verdict.outcome), (Some(0.01), Outcome::Fails));
}

#[test]
fn a_gap_is_closed_by_a_share_and_one_that_is_none_by_what_is_missing_of_its_end() {
    let gap = |figures: [f64; 3]| {
        let claim = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                                  "gap": { "from": "status_quo", "to": "oracle", "least": 0.1 },
                                  "at_least": 0.9 }));
        let arms = ["status_quo", "oracle", "copa_sfq"];
        let runs = arms.map(|arm| run(arm, "", 1, true));
        let rows: Vec<Value> =
            arms.iter().zip(figures).map(|(arm, figure)| row(arm, "", figure)).collect();
        let document = json!({ "runs": runs, "summary": rows });
        let verdict = judge(&claim, &document, &wanted(&[1], &[""])).remove(0);
        (verdict.value.unwrap(), verdict.outcome)
    };
    assert_eq!(gap([900.0, 100.0, 300.0]), (0.75, Outcome::Fails));
    assert_eq!(gap([900.0, 100.0, 100.0]), (1.0, Outcome::Holds));
    assert_eq!(gap([100.0, 99.0, 99.5]), (0.95, Outcome::Holds));
    assert_eq!(gap([100.0, 104.0, 109.0]), (0.5, Outcome::Fails));
}

#[test]
fn a_plan_with_claims_on_two_backends_is_told_apart() {
    let names = [json!(null), json!("sim")].map(|backend| {
        let claim = json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 });
        let plan = json!({ "name": "p", "backend": backend, "claim": [claim] });
        let plan: PlanClaims = serde_json::from_value(plan).unwrap();
        plan.judge(&document(), &Value::Null, &wanted(&[1], &[""])).remove(0).plan
    });
    assert_eq!(names, ["p", "p (sim)"]);
}

#[test]
fn a_figure_may_be_judged_beside_the_same_of_another_backend() {
    let beside = |queue: f64, seeds: &[u64]| {
        let runs = seeds.iter().map(|seed| run("copa_sfq", "", *seed, true));
        json!({ "runs": runs.collect::<Vec<_>>(), "summary": [row("copa_sfq", "", queue)] })
    };
    let plan = |share: f64, least: f64| -> PlanClaims {
        let within = json!({ "share": share, "least": least });
        let claim =
            json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "within": within });
        serde_json::from_value(json!({ "name": "p", "beside": "sim", "claim": [claim] })).unwrap()
    };
    let judge = |plan: &PlanClaims, beside: &Value| {
        plan.judge(&document(), beside, &wanted(&[1], &[""])).remove(0)
    };
    // 9 packets here.
    for (other, share, least, expected) in [
        (10.0, 0.15, 0.0, Outcome::Holds),
        (11.0, 0.15, 0.0, Outcome::Fails),
        (11.0, 0.15, 2.0, Outcome::Holds),
        (6.9, 0.15, 2.0, Outcome::Fails),
    ] {
        let verdict = judge(&plan(share, least), &beside(other, &[1]));
        assert_eq!((verdict.outcome, verdict.value), (expected, Some(9.0)), "{other}");
    }
    assert_eq!(judge(&plan(0.5, 2.0), &beside(10.0, &[1])).bound, "≥ 5, ≤ 15");
    let missing = judge(&plan(0.15, 2.0), &beside(9.0, &[]));
    assert_eq!((missing.outcome, missing.runs), (Outcome::NotRun, (0, 1)));
    assert_eq!(judge(&plan(0.15, 2.0), &Value::Null).outcome, Outcome::NotRun);
    let mut bare = beside(9.0, &[1]);
    bare["summary"][0]["links"] = json!([]);
    assert_eq!(judge(&plan(0.15, 2.0), &bare).outcome, Outcome::NotRun);
}

#[test]
fn a_share_may_be_judged_by_an_absolute_distance_alone() {
    let within: Within = serde_json::from_value(json!({ "least": 0.08 })).unwrap();
    let bounds = within.of(0.7);
    assert!(bounds.hold(0.775) && !bounds.hold(0.785) && !bounds.hold(0.615), "{bounds:?}");
}

/// Three arms with these queues, each with a valid run of these seeds.
fn queues(queues: [f64; 3], seeds: &[u64]) -> Value {
    let arms = ["status_quo", "copa_sfq", "copa_fifo"];
    let runs = arms.iter().flat_map(|arm| seeds.iter().map(|seed| run(arm, "", *seed, true)));
    let rows = arms.iter().zip(queues).map(|(arm, queue)| row(arm, "", queue));
    json!({ "runs": runs.collect::<Vec<_>>(), "summary": rows.collect::<Vec<_>>() })
}

fn order_of(arms: &[&str], value: &str) -> PlanClaims {
    let claim = json!({ "text": "t", "arms": arms, "value": [value],
                        "same_order": { "apart": 0.05 } });
    serde_json::from_value(json!({ "name": "p", "beside": "sim", "claim": [claim] })).unwrap()
}

#[test]
fn arms_that_are_apart_on_both_backends_must_stand_in_the_same_order() {
    let plan = order_of(&["status_quo", "copa_sfq", "copa_fifo"], QUEUE);
    let arms = "status_quo, copa_sfq, copa_fifo";
    let here = queues([100.0, 50.0, 80.0], &[1]);
    for (there, turned, expected, words) in [
        ([90.0, 40.0, 60.0], 0.0, Outcome::Holds, ""),
        // Apart by 25 % here, by 4 % there, whichever of them is ahead.
        ([96.0, 40.0, 100.0], 0.0, Outcome::Holds, "; tied: status_quo and copa_fifo"),
        ([94.0, 40.0, 100.0], 1.0, Outcome::Fails, "; turned round: status_quo and copa_fifo"),
        (
            [40.0, 90.0, 91.0],
            2.0,
            Outcome::Fails,
            "; turned round: status_quo and copa_sfq, status_quo and copa_fifo; \
             tied: copa_sfq and copa_fifo",
        ),
    ] {
        let [this, other] = [&here, &queues(there, &[1])];
        for (this, other) in [(this, other), (other, this)] {
            let verdicts = plan.judge(this, other, &wanted(&[1], &[""]));
            let [verdict] = verdicts.as_slice() else { panic!("{verdicts:?}") };
            assert_eq!((verdict.outcome, verdict.value), (expected, Some(turned)), "{there:?}");
            assert_eq!(verdict.place, format!("{arms}{words}"));
            assert_eq!((verdict.bound.as_str(), verdict.commit.as_str()), ("≤ 0", "abc"));
        }
    }
}

#[test]
fn an_order_with_an_arm_a_figure_or_a_seed_missing_is_not_judged() {
    let arms = ["status_quo", "copa_sfq", "copa_fifo"];
    let all = queues([100.0, 50.0, 80.0], &[1, 2]);
    let not_run = |plan: &PlanClaims, here: &Value, there: &Value| {
        let verdict = plan.judge(here, there, &wanted(&[1, 2], &[""])).remove(0);
        assert_eq!(verdict.outcome, Outcome::NotRun, "{verdict:?}");
        (verdict.value, verdict.runs)
    };
    let plan = order_of(&arms, QUEUE);
    assert_eq!(plan.judge(&all, &all, &wanted(&[1, 2], &[""]))[0].outcome, Outcome::Holds);
    for (here, there) in [(&all, &Value::Null), (&Value::Null, &all)] {
        assert_eq!(not_run(&plan, here, there), (None, (0, 2)));
    }
    let one_seed = queues([100.0, 50.0, 80.0], &[1]);
    for (here, there) in [(&all, &one_seed), (&one_seed, &all)] {
        assert_eq!(not_run(&plan, here, there), (Some(0.0), (1, 2)));
    }
    let more = order_of(&["status_quo", "no_such_arm"], QUEUE);
    assert_eq!(not_run(&more, &all, &all), (None, (0, 2)));
    not_run(&order_of(&arms, "no_such_metric"), &all, &all);
}

#[test]
fn a_claim_is_of_one_kind_that_its_plan_can_judge() {
    let check = |kind: Value, arms: &[&str], has_beside: bool| {
        let mut json = json!({ "text": "t", "arms": arms, "value": [QUEUE] });
        json.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
        claim(json).check(has_beside).is_ok()
    };
    let order = json!({ "same_order": { "apart": 0.05 } });
    let within = json!({ "within": { "least": 0.08 } });
    for kind in [&order, &within] {
        assert!(check(kind.clone(), &["copa_sfq", "copa_fifo"], true));
        assert!(!check(kind.clone(), &["copa_sfq", "copa_fifo"], false));
    }
    assert!(!check(order, &["copa_sfq"], true));
    assert!(check(json!({ "at_most": 1.0, "at_least": 0.0 }), &["copa_sfq"], false));
    for kind in [
        json!({}),
        json!({ "at_most": 1.0, "report_only": true }),
        json!({ "at_most": 1.0, "within": { "share": 0.1 } }),
        json!({ "same_order": { "apart": 0.05 }, "within": { "share": 0.1 } }),
        json!({ "within": {} }),
        json!({ "report_only": true, "over_value": [QUEUE] }),
    ] {
        assert!(!check(kind.clone(), &["copa_sfq", "copa_fifo"], true), "{kind}");
    }
}

#[test]
fn a_run_without_the_figure_is_not_behind_the_pooled_one() {
    let below =
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
    let mut document = document();
    let mut bare = run("copa_sfq", "", 2, true);
    bare["links"] = json!([]);
    let baseline = run("status_quo", "", 2, true);
    document["runs"].as_array_mut().unwrap().extend([bare, baseline]);
    let verdict = &judge(&below, &document, &wanted(&[1, 2], &[""]))[0];
    assert_eq!((verdict.outcome, verdict.runs), (Outcome::NotRun, (1, 2)));
}

#[test]
fn a_ratio_may_have_another_denominator_and_a_figure_no_bound() {
    let ratio = claim(json!({ "text": "t", "arms": ["copa_sfq"], "over": "status_quo",
                              "value": [QUEUE, QUEUE], "over_value": [QUEUE],
                              "report_only": true }));
    let verdict = &judge(&ratio, &document(), &wanted(&[1], &[""]))[0];
    assert_eq!((verdict.value, verdict.outcome), (Some(0.02), Outcome::Reported));
}

#[test]
fn a_figure_that_is_not_there_holds_no_claim() {
    for (arm, value) in [("copa_sfq", "no_such_metric"), ("no_such_arm", "goodput_mbps")] {
        let claim = claim(json!({ "text": "t", "arms": [arm], "value": [value],
                                  "at_least": 0.0 }));
        for document in [document(), Value::Null] {
            let verdicts = judge(&claim, &document, &wanted(&[1], &[""]));
            assert_eq!(verdicts.len(), 1);
            assert_eq!(verdicts[0].outcome, Outcome::NotRun);
        }
    }
}

#[test]
fn a_seed_without_a_valid_run_leaves_the_claim_open() {
    let mut document = document();
    let runs = document["runs"].as_array_mut().unwrap();
    runs.push(run("copa_sfq", "", 2, false));
    runs.push(run("status_quo", "", 2, true));
    let mut bound = claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE],
                                  "at_most": 15.0 }));
    let verdict = &judge(&bound, &document, &wanted(&[1, 2], &[""]))[0];
    assert_eq!((verdict.outcome, verdict.runs), (Outcome::NotRun, (1, 2)));
    bound.each_run = true;
    let verdicts = judge(&bound, &document, &wanted(&[1, 2], &[""]));
    let outcomes: Vec<Outcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
    assert_eq!(outcomes, [Outcome::Holds, Outcome::NotRun]);
}

#[test]
fn a_baseline_with_a_seed_missing_leaves_the_claim_open() {
    let mut document = document();
    document["runs"].as_array_mut().unwrap().push(run("copa_sfq", "", 2, true));
    let bound =
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
    assert_eq!(judge(&bound, &document, &wanted(&[1, 2], &[""]))[0].runs, (1, 2));
}

#[test]
fn a_cell_that_is_missing_is_seen() {
    let bound =
        claim(json!({ "text": "t", "arms": ["copa_sfq"], "value": [QUEUE], "at_most": 15.0 }));
    let document = json!({ "runs": [run("copa_sfq", "rate=1", 1, true)],
                           "summary": [row("copa_sfq", "rate=1", 9.0)] });
    let verdicts = judge(&bound, &document, &wanted(&[1], &["rate=1", "rate=2"]));
    let outcomes: Vec<Outcome> = verdicts.iter().map(|verdict| verdict.outcome).collect();
    assert_eq!(outcomes, [Outcome::Holds, Outcome::NotRun]);
}

#[test]
fn the_claims_of_the_repository_name_cells_that_their_plans_have() {
    let root = crate::repository();
    let claims = Claims::load(&root.join(super::super::CLAIMS)).unwrap();
    assert!(claims.plan.len() > 5);
    for plan in &claims.plan {
        let wanted = Wanted::of(&root, &plan.name).unwrap();
        for cell in plan.claim.iter().flat_map(|claim| &claim.cells) {
            assert!(wanted.cells.contains(cell), "{}: {cell}", plan.name);
        }
    }
}
