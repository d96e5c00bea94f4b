//! Any plan is refused with its place, or every run of it can be resolved.

use forebay_lab::plan::library::Source;
use forebay_lab::plan::{Plan, PlanError};
use forebay_reader::PROBLEMS_MAX;

/// The bytes are a plan.
pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let lines = text.lines().count().max(1) + 1;
    let source = Source { file: "bundler/fuzz.toml".into(), folder: None, text };
    match Plan::from_source(source, &[]) {
        Ok(plan) => check(&plan),
        Err(error) => check_place(&error, lines),
    }
}

/// Checks that each problem has a line that names its place.
fn check_place(error: &PlanError, lines: usize) {
    let message = error.to_string();
    let count = error.problems.len();
    assert!((1..=PROBLEMS_MAX).contains(&count), "{message}");
    assert_eq!(message.lines().count(), count + usize::from(count > 1), "{message}");
    for problem in error.problems.iter().filter(|problem| problem.file == "bundler/fuzz.toml") {
        assert!(problem.line.is_none_or(|line| (1..=lines).contains(&line)), "{message}");
    }
}

/// Conditions that the back ends rely on.
fn check(plan: &Plan) {
    assert!(!plan.arms.is_empty() && !plan.cells.is_empty());
    for arm in &plan.arms {
        for cell in &plan.cells {
            let experiment = plan.experiment(arm, cell, plan.seeds.last).expect("as the first");
            assert!(experiment.warmup < experiment.stop);
            assert!(experiment.flows.iter().all(|flow| flow.start < flow.stop));
            let pairs = &experiment.pairs;
            assert!(experiment.flows.iter().all(|flow| pairs.contains(&flow.pair)));
            assert!(experiment.bundles.iter().all(|bundle| pairs.contains(&bundle.pair)));
        }
    }
}
