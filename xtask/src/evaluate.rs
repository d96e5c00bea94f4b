//! Runs every plan that carries a claim, measures the platforms, and says which claims hold: `lab::judge` does.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use forebay_lab::backend;
use forebay_lab::judge::{Claims, Judged, PlanClaims, Results, table};
use forebay_lab::plan::Plan;
use forebay_lab::store::Store;
use serde_json::Value;

/// Every claim of `docs/evaluation.md`, as bounds on metrics.
const CLAIMS: &str = "docs/claims.toml";
/// Where results and the table go; runs of the same program that are there already are not
/// repeated.
const OUT: &str = "out/evaluate";
/// The parts of `forebay platforms`; behind the stroke stands what `--what` is told.
const PARTS: [&str; 4] =
    ["platforms/cpu", "platforms/latency", "platforms/scale", "platforms/behaviour"];
/// How often a plan is taken up again behind a run that failed.
const ATTEMPTS: usize = 3;

/// Runs the plans, and the parts of `forebay platforms`, whose names contain one of `only` (all if it
/// is empty). After each it writes the table so far beside the results. Fails unless every claim is met.
pub fn evaluate(only: &[String]) -> Result<()> {
    std::env::set_current_dir(crate::repository())?;
    let claims = Claims::load(Path::new(CLAIMS))?;
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let plans: Vec<&PlanClaims> = claims.plan.iter().filter(|p| is_wanted(&p.name)).collect();
    let parts: Vec<&str> = PARTS.into_iter().filter(|name| is_wanted(name)).collect();
    let names = || claims.plan.iter().map(|plan| plan.name.as_str()).chain(PARTS);
    ensure!(
        !plans.is_empty() || !parts.is_empty(),
        "no plan of {CLAIMS} and no part of the platforms is called like {}; there are {}",
        only.join(", "),
        names().collect::<Vec<_>>().join(", ")
    );
    std::fs::create_dir_all(OUT)?;
    let file = Path::new(OUT).join("claims.md");
    // A plan that has not had its turn yet is one without results.
    let mut judged = Vec::new();
    for plan in &plans {
        judged.push(plan.judge(&Results::none(&Plan::load(&plan.name, &[])?), None));
    }
    judged.extend(parts.iter().map(|part| of_part(part, &Value::Null)));
    let table = |judged: &[Vec<Judged>]| table::markdown(judged.iter().flatten(), &head());
    for (place, plan) in plans.iter().enumerate() {
        eprintln!("== {}", plan.name);
        let here = run(&plan.name, plan.backend.as_deref())?;
        let there = plan.beside.as_ref().map(|backend| run(&plan.name, Some(backend)));
        judged[place] = plan.judge(&here, there.transpose()?.as_ref());
        std::fs::write(&file, table(&judged))?;
    }
    for (place, part) in parts.iter().enumerate() {
        eprintln!("== {part}");
        // Trials of another commit are refused.
        let out = format!("{OUT}/platforms/{}", head());
        let what = part.rsplit('/').next().unwrap_or(part);
        let document = printed(part, &["platforms", "--what", what], &out)?;
        judged[plans.len() + place] = of_part(part, &document);
        std::fs::write(&file, table(&judged))?;
    }
    println!("{}", table(&judged));
    let all = || judged.iter().flatten();
    ensure!(all().all(|it| it.verdict.is_fine()), "{}", table::counts(all()));
    Ok(())
}

/// Runs a plan on its own back end or on another, and reads every attempt of that program.
fn run(name: &str, backend: Option<&str>) -> Result<Results> {
    let mut out = format!("{OUT}/{}", name.replace('/', "-"));
    let mut arguments = vec!["run", name];
    let jobs = std::thread::available_parallelism()?.to_string();
    if let Some(backend) = backend {
        out = format!("{out}-{backend}");
        arguments.extend(["--backend", backend]);
        // An emulation needs the machine for itself.
        if backend == "sim" {
            arguments.extend(["--jobs", &jobs]);
        }
    }
    // A run that failed stays in the store, and the next call goes on behind it.
    let document = printed(name, &arguments, &out)?;
    let plan = Plan::load(name, &[])?;
    // The program may be of another commit than the sources.
    let Some(commit) = document["runs"][0]["commit"].as_str() else {
        return Ok(Results::none(&plan));
    };
    let store = Store::open(Path::new(&out))?;
    Results::read(&store, &plan, backend.unwrap_or(backend::DEFAULT), commit)
}

/// The document that `forebay` printed for `name`; `Null` if it keeps printing none.
fn printed(name: &str, arguments: &[&str], out: &str) -> Result<Value> {
    for _ in 0..ATTEMPTS {
        let output = Command::new("target/release/forebay")
            .args(arguments)
            .args(["--json", "--out", out])
            .stderr(Stdio::inherit())
            .output()
            .context("target/release/forebay (make build)")?;
        if let Ok(document) = serde_json::from_slice(&output.stdout) {
            return Ok(document);
        }
        eprintln!("{name}: {}, no results", output.status);
    }
    Ok(Value::Null)
}

/// The claims of a part, which `forebay platforms` judges itself; one that was not run without a document.
fn of_part(part: &str, document: &Value) -> Vec<Judged> {
    let claims: Vec<Judged> =
        serde_json::from_value(document["claims"].clone()).unwrap_or_default();
    if !claims.is_empty() {
        return claims;
    }
    let claim = "all of `forebay platforms`".into();
    vec![Judged { of: part.into(), claim, ..Judged::default() }]
}

/// The commit of the repository as `forebay` names its own in its results.
fn head() -> String {
    let output = Command::new("git").args(["describe", "--always", "--abbrev=12"]).output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().into())
}

#[cfg(test)]
mod tests {
    use forebay_lab::judge::{Bound, Verdict};
    use serde_json::json;

    use super::*;

    #[test]
    fn each_claim_of_the_document_is_a_row_and_none_is_one_that_was_not_run() {
        let claim = Judged { of: "platforms/cpu".into(), ..Judged::default() };
        let met = claim.clone().by_values(Bound::at_least(0.98), &[0.99; 20], 20, 1);
        assert_eq!(met.verdict, Verdict::Met);
        let document = json!({ "claims": [met, claim] });
        assert_eq!(of_part("platforms/cpu", &document), [met, claim]);
        for nothing in [Value::Null, json!({ "claims": [] })] {
            let judged = of_part("platforms/scale", &nothing);
            assert!(judged.len() == 1 && matches!(judged[0].verdict, Verdict::NotShown(_)));
        }
    }
}
