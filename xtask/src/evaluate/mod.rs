//! Runs every plan that carries a claim and says which claims hold.

mod claims;
mod wanted;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use claims::{Claims, Outcome, PlanClaims, Verdict};
use wanted::Wanted;

/// Every claim of `docs/evaluation.md`, as bounds on metrics.
const CLAIMS: &str = "docs/claims.toml";
/// Where results and the table go; runs of the same program that are there already are not
/// repeated.
const OUT: &str = "out/evaluate";
/// How often a plan is taken up again behind a run that failed.
const ATTEMPTS: usize = 3;

/// Runs the plans whose names contain one of `only` (all if it is empty). After each plan it writes
/// the table so far beside the results. Fails unless every claim holds.
pub fn evaluate(only: &[String]) -> Result<()> {
    let root = crate::repository();
    let claims = Claims::load(&root.join(CLAIMS))?;
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let plans: Vec<&PlanClaims> = claims.plan.iter().filter(|p| is_wanted(&p.name)).collect();
    ensure!(
        !plans.is_empty(),
        "no plan of {CLAIMS} is called like {}; there are {}",
        only.join(", "),
        claims.plan.iter().map(|plan| plan.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    let file = root.join(OUT).join("claims.md");
    std::fs::create_dir_all(root.join(OUT))?;
    // A plan that has not had its turn yet is one without results.
    let wanted =
        plans.iter().map(|plan| Wanted::of(&root, &plan.name)).collect::<Result<Vec<_>>>()?;
    let mut verdicts: Vec<Vec<Verdict>> =
        plans.iter().zip(&wanted).map(|(plan, wanted)| plan.judge(&Value::Null, wanted)).collect();
    for (place, (plan, wanted)) in plans.iter().zip(&wanted).enumerate() {
        eprintln!("== {}", plan.name);
        let document = run(&root, &plan.name)?;
        verdicts[place] = plan.judge(&document, wanted);
        std::fs::write(&file, table(verdicts.iter().flatten(), &head(&root)))?;
    }
    println!("{}", table(verdicts.iter().flatten(), &head(&root)));
    let counts = Counts::of(verdicts.iter().flatten());
    ensure!(counts.fail + counts.not_run == 0, "{counts}");
    Ok(())
}

/// What `forebay run` printed of a plan; `Null` if a run keeps failing.
fn run(root: &Path, plan: &str) -> Result<Value> {
    let out = format!("{OUT}/{}", plan.replace('/', "-"));
    for _ in 0..ATTEMPTS {
        let output = Command::new(root.join("target/release/forebay"))
            .current_dir(root)
            .args(["run", plan, "--json", "--out", &out])
            .stderr(Stdio::inherit())
            .output()
            .context("target/release/forebay (make build)")?;
        // With a run that was not valid it still prints the others, with one that failed nothing:
        // that run stays in the store as failed, and the next call goes on behind it.
        if let Ok(document) = serde_json::from_slice(&output.stdout) {
            return Ok(document);
        }
        eprintln!("{plan}: {}, no results", output.status);
    }
    Ok(Value::Null)
}

/// The commit of the repository as `forebay` names its own in its results.
fn head(root: &Path) -> String {
    let output = Command::new("git")
        .current_dir(root)
        .args(["describe", "--always", "--abbrev=12"])
        .output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().into())
}

/// How many claims came to what.
#[derive(Debug, Default)]
struct Counts {
    hold: usize,
    fail: usize,
    not_run: usize,
    reported: usize,
}

impl Counts {
    fn of<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Self {
        let mut counts = Self::default();
        for verdict in verdicts {
            *match verdict.outcome {
                Outcome::Holds => &mut counts.hold,
                Outcome::Fails => &mut counts.fail,
                Outcome::NotRun => &mut counts.not_run,
                Outcome::Reported => &mut counts.reported,
            } += 1;
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hold, fail, not_run, reported } = self;
        write!(f, "{hold} hold, {fail} fail, {not_run} were not run, {reported} only reported")
    }
}

/// The table for people; results of another commit than `head` are marked.
fn table<'a>(verdicts: impl Iterator<Item = &'a Verdict> + Clone, head: &str) -> String {
    let mut table =
        String::from("| plan | claim | where | bound | figure | verdict | runs | commit |\n");
    table.push_str("|---|---|---|---|---|---|---|---|\n");
    for verdict in verdicts.clone() {
        let Verdict { plan, text, place, value, bound, runs: (judged, wanted), .. } = verdict;
        let value = value.map_or_else(|| "missing".into(), |value| format!("{value:.4}"));
        let outcome = match verdict.outcome {
            Outcome::Holds => "holds",
            Outcome::Fails => "**fails**",
            Outcome::NotRun => "**not run**",
            Outcome::Reported => "reported",
        };
        let mark = match verdict.commit.as_str() {
            "" => "",
            commit if commit == head => "",
            _ => " (not HEAD)",
        };
        let commit = &verdict.commit;
        let _ = writeln!(
            table,
            "| {plan} | {text} | {place} | {bound} | {value} | {outcome} | {judged}/{wanted} | {commit}{mark} |"
        );
    }
    let _ = writeln!(table, "\n{}", Counts::of(verdicts));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_in_the_counts_and_marks_other_commits() {
        let verdict = |outcome, commit: &str| Verdict {
            plan: "p".into(),
            text: "t".into(),
            place: "copa_sfq".into(),
            value: Some(0.5),
            bound: "≤ 1".into(),
            runs: (2, 3),
            commit: commit.into(),
            outcome,
        };
        let verdicts = [verdict(Outcome::Holds, "new"), verdict(Outcome::NotRun, "old")];
        let table = table(verdicts.iter(), "new");
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[2], "| p | t | copa_sfq | ≤ 1 | 0.5000 | holds | 2/3 | new |");
        assert!(lines[3].ends_with("| **not run** | 2/3 | old (not HEAD) |"), "{}", lines[3]);
        assert_eq!(lines.last(), Some(&"1 hold, 0 fail, 1 were not run, 0 only reported"));
    }
}
