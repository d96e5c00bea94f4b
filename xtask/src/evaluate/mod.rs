//! Runs every plan that carries a claim, measures the platforms, and says which claims hold.

mod claims;
mod platforms;
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

/// Runs the plans, and the parts of `forebay platforms`, whose names contain one of `only` (all if it
/// is empty). After each it writes the table so far beside the results. Fails unless every claim holds.
pub fn evaluate(only: &[String]) -> Result<()> {
    let root = crate::repository();
    let claims = Claims::load(&root.join(CLAIMS))?;
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let plans: Vec<&PlanClaims> = claims.plan.iter().filter(|p| is_wanted(&p.name)).collect();
    let parts: Vec<&str> = platforms::PARTS.into_iter().filter(|name| is_wanted(name)).collect();
    let names = || claims.plan.iter().map(|plan| plan.name.as_str()).chain(platforms::PARTS);
    ensure!(
        !plans.is_empty() || !parts.is_empty(),
        "no plan of {CLAIMS} and no part of the platforms is called like {}; there are {}",
        only.join(", "),
        names().collect::<Vec<_>>().join(", ")
    );
    let file = root.join(OUT).join("claims.md");
    std::fs::create_dir_all(root.join(OUT))?;
    // A plan that has not had its turn yet is one without results.
    let wanted =
        plans.iter().map(|plan| Wanted::of(&root, &plan.name)).collect::<Result<Vec<_>>>()?;
    let unrun =
        |(plan, wanted): (&&PlanClaims, &Wanted)| plan.judge(&Value::Null, &Value::Null, wanted);
    let mut verdicts: Vec<Vec<Verdict>> = plans.iter().zip(&wanted).map(unrun).collect();
    verdicts.extend(parts.iter().map(|part| platforms::verdicts(part, &Value::Null)));
    let save = |verdicts: &[Vec<Verdict>]| {
        std::fs::write(&file, table(verdicts.iter().flatten(), &head(&root)))
    };
    for (place, (plan, wanted)) in plans.iter().zip(&wanted).enumerate() {
        eprintln!("== {}", plan.name);
        let document = run(&root, &plan.name, plan.backend.as_deref())?;
        let beside = match &plan.beside {
            Some(backend) => run(&root, &plan.name, Some(backend))?,
            None => Value::Null,
        };
        verdicts[place] = plan.judge(&document, &beside, wanted);
        save(&verdicts)?;
    }
    for (place, part) in parts.iter().enumerate() {
        eprintln!("== {part}");
        verdicts[plans.len() + place] = platforms::verdicts(part, &platforms::run(&root, part)?);
        save(&verdicts)?;
    }
    println!("{}", table(verdicts.iter().flatten(), &head(&root)));
    let counts = Counts::of(verdicts.iter().flatten());
    ensure!(counts.fail + counts.not_run + counts.open == 0, "{counts}");
    Ok(())
}

/// What `forebay run` printed of a plan, on its own backend or on another; `Null` if a run keeps
/// failing.
fn run(root: &Path, plan: &str, backend: Option<&str>) -> Result<Value> {
    let mut out = format!("{OUT}/{}", plan.replace('/', "-"));
    let mut arguments = vec!["run", plan];
    let jobs = std::thread::available_parallelism()?.to_string();
    if let Some(backend) = backend {
        out = format!("{out}-{backend}");
        arguments.extend(["--backend", backend]);
        // An emulation needs the machine for itself.
        if backend == "sim" {
            arguments.extend(["--jobs", &jobs]);
        }
    }
    // With a run that was not valid it still prints the others, with one that failed nothing: that
    // run stays in the store as failed, and the next call goes on behind it.
    printed(root, plan, &arguments, &out)
}

/// The document that `forebay` printed for `name`; `Null` if it keeps printing none.
fn printed(root: &Path, name: &str, arguments: &[&str], out: &str) -> Result<Value> {
    for _ in 0..ATTEMPTS {
        let output = Command::new(root.join("target/release/forebay"))
            .current_dir(root)
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
    open: usize,
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
                Outcome::Open => &mut counts.open,
                Outcome::Reported => &mut counts.reported,
            } += 1;
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { hold, fail, not_run, open, reported } = self;
        write!(f, "{hold} hold, {fail} fail, {not_run} were not run, {open} are open, ")?;
        write!(f, "{reported} only reported")
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
            Outcome::Open => "**open**",
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
        assert_eq!(
            lines.last(),
            Some(&"1 hold, 0 fail, 1 were not run, 0 are open, 0 only reported")
        );
    }
}
