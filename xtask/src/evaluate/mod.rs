//! Runs every plan that carries a claim and says which claims hold.

mod claims;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use claims::{Claims, Verdict};

/// Every claim of `docs/evaluation.md`, as bounds on metrics.
const CLAIMS: &str = "docs/claims.toml";
/// Where results and the table go; runs that are there already are not repeated.
const OUT: &str = "out/evaluate";

/// Runs the plans whose names contain one of `only` (all if it is empty), prints the table and
/// writes it beside the results. Fails if a claim does not hold.
pub fn evaluate(only: &[String]) -> Result<()> {
    let root = crate::repository();
    let claims = Claims::load(&root.join(CLAIMS))?;
    let mut verdicts = Vec::new();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    for plan in claims.plan.iter().filter(|plan| wanted(&plan.name)) {
        eprintln!("== {}", plan.name);
        let document = run(&root, &plan.name)?;
        verdicts.extend(plan.judge(&document));
    }
    let table = table(&verdicts);
    println!("{table}");
    std::fs::write(root.join(OUT).join("claims.md"), &table)?;
    let failed = verdicts.iter().filter(|verdict| !verdict.holds).count();
    ensure!(failed == 0, "{failed} of {} figures miss their bound", verdicts.len());
    Ok(())
}

fn run(root: &Path, plan: &str) -> Result<serde_json::Value> {
    let out = format!("{OUT}/{}", plan.replace('/', "-"));
    let output = Command::new(root.join("target/release/forebay"))
        .current_dir(root)
        .args(["run", plan, "--json", "--out", &out])
        .stderr(Stdio::inherit())
        .output()
        .context("target/release/forebay (make build)")?;
    // A run that failed still printed what it had; missing figures then miss their claims.
    serde_json::from_slice(&output.stdout).with_context(|| format!("{plan}: {}", output.status))
}

fn table(verdicts: &[Verdict]) -> String {
    let mut table = String::from("| plan | claim | where | bound | figure | holds |\n");
    table.push_str("|---|---|---|---|---|---|\n");
    for Verdict { plan, text, place, value, bound, holds } in verdicts {
        let value = value.map_or_else(|| "missing".into(), |value| format!("{value:.4}"));
        let holds = if *holds { "yes" } else { "**no**" };
        let _ = writeln!(table, "| {plan} | {text} | {place} | {bound} | {value} | {holds} |");
    }
    table
}
