//! Runs the experiments behind the claims, part by part, and shows which claims hold; `lab::judge` decides that.

mod plan;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{iter, thread};

use anyhow::{Context, Result, anyhow, bail};
use forebay_lab::backend;
use forebay_lab::judge::{Claims, Judged, PlanClaims, table};
use forebay_lab::output::text_table;
use serde_json::Value;

pub use plan::jobs;

use crate::figures;
use plan::{Left, PlanPart};

/// The list of claims, as bounds on metrics.
const CLAIMS: &str = "docs/claims.toml";
/// Folder of results; runs of the same sources in it are not repeated.
const OUT: &str = "out/evaluate";
/// Results: a row for each claim at each place.
const RESULTS: &str = "docs/evidence/results.csv";
/// Page that counts the verdicts and filters the rows of [`RESULTS`].
const PAGE: &str = "docs/evidence/README.md";
/// Template of the page; the chore fills in the gaps.
const TEMPLATE: &str = include_str!("page.md");
/// The release build that makes the runs; `make build` makes it.
const FOREBAY: &str = "target/release/forebay";
/// Number of times that a plan continues after a failed run.
const ATTEMPTS: usize = 3;
/// Longest time limit (min): a week.
const MINUTES_MAX: f64 = 10_080.0;
/// Exit code if work is left.
const LEFT: u8 = 3;

/// Arguments of the chore.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    /// Only parts with these names; all if it is empty.
    only: Vec<String>,
    /// List the work instead of doing it.
    list: bool,
    /// How long it may take (min).
    minutes: Option<f64>,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--list" => parsed.list = true,
                "--minutes" => {
                    let value = rest.next().context("--minutes: no value: allowed is a number")?;
                    let minutes = value.parse().ok().filter(|it| (0.0..=MINUTES_MAX).contains(it));
                    let refusal = || format!("--minutes {value}: allowed is 0 to {MINUTES_MAX}");
                    parsed.minutes = Some(minutes.with_context(refusal)?);
                }
                flag if flag.starts_with('-') => bail!("{flag}: allowed is --list or --minutes N"),
                name => parsed.only.push(name.into()),
            }
        }
        Ok(parsed)
    }
}

/// Limits the time for work. Work that would not end in time does not begin, unless it is the first.
struct Clock {
    until: Option<Instant>,
    has_begun: bool,
}

impl Clock {
    fn of(minutes: Option<f64>) -> Self {
        let until = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes));
        Self { until, has_begun: false }
    }

    /// Whether work of this many minutes may begin.
    fn allows(&mut self, minutes: f64) -> bool {
        let ends = |until: Instant, work: Duration| Instant::now() + work <= until;
        let is_allowed = self.until.is_none_or(|until| match self.has_begun {
            true => ends(until, Duration::from_secs_f64(60.0 * minutes)),
            false => ends(until, Duration::ZERO),
        });
        self.has_begun |= is_allowed;
        is_allowed
    }
}

/// Runs the parts that `arguments` select, and writes the results of all claims at the end; `--minutes 0` writes the
/// results of a call that was stopped. Without names, parts keep the rows that the same sources gave on another machine.
/// Exit code 1 unless every claim judged here is met, 2 if the arguments are wrong, 3 if work is left: another call
/// continues it.
pub fn evaluate(arguments: &[String]) -> Result<ExitCode> {
    let arguments = match Arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(refusal) => return Ok(refused(&refusal.to_string())),
    };
    std::env::set_current_dir(crate::repository())?;
    let claims = Claims::load(Path::new(CLAIMS))?;
    let plans = claims.plan.iter().flat_map(|plan| iter::once(plan.clone()).chain(plan.variants()));
    let plans: Vec<PlanClaims> = plans.collect();
    let mut parts = all_parts(&plans)?;
    for name in &arguments.only {
        let names = || parts.iter().map(PlanPart::name).collect::<Vec<_>>().join(", ");
        if !parts.iter().any(|part| part.is_called(name)) {
            return Ok(refused(&format!("no part {name}: allowed is one of {}", names())));
        }
    }
    std::fs::create_dir_all(OUT)?;
    for part in &mut parts {
        part.advance(&mut |_| false)?;
    }
    let is_wanted = |part: &PlanPart<'_>| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| part.is_called(name))
    };
    let mut kept = Kept::read();
    // A named plan is run again. With runs here, its rows are made here.
    kept.leave_out(parts.iter().filter(|part| !part.is_empty()));
    if !arguments.only.is_empty() {
        kept.leave_out(parts.iter().filter(|part| is_wanted(part)));
    }
    parts.iter_mut().filter(|part| kept.has(part)).for_each(|part| part.left = Left::default());
    if arguments.list {
        println!("{}", listed(parts.iter().filter(|part| is_wanted(part))));
        return Ok(ExitCode::SUCCESS);
    }
    let clock = Mutex::new(Clock::of(arguments.minutes));
    let is_left = |part: &PlanPart<'_>| is_wanted(part) && part.left.runs > 0;
    // Simulations are the same on a busy machine. At idle priority they use the time that emulations leave.
    let (mut simulated, emulated): (Vec<_>, Vec<_>) =
        parts.iter_mut().filter(|part| is_left(part)).partition(|part| part.is_simulated());
    // Trials of cost need the whole machine.
    let (mut costs, mut emulated): (Vec<_>, Vec<_>) =
        emulated.into_iter().partition(|part| part.measures_cost());
    let mut done = thread::scope(|scope| {
        let simulations = scope.spawn(|| advance(&mut simulated, &clock));
        let emulations = advance(&mut emulated, &clock);
        emulations.and(simulations.join().unwrap_or_else(|_| Err(anyhow!("a simulation panicked"))))
    });
    if done.is_ok() {
        done = advance(&mut costs, &clock);
    }
    let judged: Vec<Vec<Judged>> = parts.iter().map(|part| part.judge(parts.iter())).collect();
    write_results(&parts, &judged, &kept)?;
    done?;
    let is_whole = arguments.only.is_empty() && parts.iter().all(|part| part.left.runs == 0);
    if is_whole {
        figures::figures(&["--measure".into()])?
    } else {
        figures::draw()?
    }
    let is_made = |part: &PlanPart<'_>| is_wanted(part) && !kept.has(part);
    let wanted = || parts.iter().zip(&judged).filter(|(part, _)| is_made(part));
    let found = || wanted().flat_map(|(_, judged)| judged);
    found().filter_map(Judged::complaint).for_each(|complaint| println!("{complaint}"));
    println!("{} ({RESULTS})", table::counts(found()));
    if wanted().any(|(part, _)| part.left.runs > 0) {
        println!("left is\n{}", listed(wanted().map(|(part, _)| part)));
        return Ok(ExitCode::from(LEFT));
    }
    let is_fine = found().all(|it| it.verdict.is_fine());
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn refused(refusal: &str) -> ExitCode {
    eprintln!("error: {refusal}");
    ExitCode::from(2)
}

/// Plans in the order of the claims. The simulator comes first, because the testbed is compared with it.
fn all_parts(plans: &[PlanClaims]) -> Result<Vec<PlanPart<'_>>> {
    let mut parts = Vec::new();
    for plan in plans {
        for backend in backend::NAMES {
            if let Some(seeds) = plan.seeds.get(backend) {
                parts.push(PlanPart::new(plan, backend, *seeds)?);
            }
        }
    }
    Ok(parts)
}

/// Remaining work of some parts, and the total.
fn listed<'a>(parts: impl Iterator<Item = &'a PlanPart<'a>>) -> String {
    let (mut rows, mut all) = (Vec::new(), Left::default());
    let row = |name: String, left: &Left| {
        vec![name, left.runs.to_string(), format!("{:.1}", left.minutes)]
    };
    for part in parts {
        let left = &part.left;
        rows.push(row(part.name(), left));
        all.runs += left.runs;
        all.minutes += left.minutes;
    }
    rows.push(row("all".into(), &all));
    text_table(&["part", "runs left at most", "minutes"].map(String::from), &rows)
}

/// Makes the missing runs of `parts` in turn. After an error no other seed begins.
fn advance(parts: &mut [&mut PlanPart<'_>], clock: &Mutex<Clock>) -> Result<()> {
    let clock = || clock.lock().unwrap_or_else(PoisonError::into_inner);
    let done = parts.iter_mut().try_for_each(|part| {
        eprintln!("== {}", part.name());
        part.advance(&mut |minutes| clock().allows(minutes)).with_context(|| part.name())
    });
    if done.is_err() {
        clock().until = Some(Instant::now());
    }
    done
}

/// Files that results depend on.
const MEASURED: [&str; 7] = [
    "crates",
    "plans",
    "traces",
    "docs/claims.toml",
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
];

/// Whether the files that results depend on are as in `commit`.
fn is_as_in(commit: &str) -> bool {
    let mut git = Command::new("git");
    git.args(["diff", "--quiet", commit, "--"]).args(MEASURED).stderr(Stdio::null());
    git.status().is_ok_and(|status| status.success())
}

/// The commit with these sources; `None`: they have uncommitted changes.
fn measured_commit() -> Option<String> {
    let head = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let head = String::from_utf8_lossy(&head.stdout).trim().to_string();
    Some(head).filter(|head| is_as_in(head))
}

/// Rows of [`RESULTS`] that an evaluation of the same sources, plans and claims wrote on another machine, by part.
#[derive(Debug, Default)]
struct Kept(BTreeMap<String, Vec<String>>);

impl Kept {
    fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let page = read(PAGE);
        let commit =
            page.split_once(BEFORE_COMMIT).and_then(|(_, rest)| rest.split_whitespace().next());
        if commit.is_some_and(is_as_in) { Self::of(&read(RESULTS)) } else { Self::default() }
    }

    /// The rows of plans that were run to their end.
    fn of(results: &str) -> Self {
        let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in results.lines().skip(1) {
            if let [plan, back_end, _] = row.splitn(3, ',').collect::<Vec<_>>()[..] {
                rows.entry(format!("{plan}@{back_end}")).or_default().push(row.into());
            }
        }
        let is_unfinished = |row: &String| row.contains(NOT_RUN);
        let unfinished = rows.iter().filter(|(_, rows)| rows.iter().any(is_unfinished));
        let unfinished: Vec<String> = unfinished.map(|(part, _)| part.clone()).collect();
        let mut kept = Self(rows);
        unfinished.iter().for_each(|part| kept.leave_out_plan(part));
        kept
    }

    /// Leaves out the rows of the plan of `part` on every back end: claims compare these.
    fn leave_out_plan(&mut self, part: &str) {
        let plan = |part: &str| part.split('@').next().unwrap_or(part).to_string();
        self.0.retain(|kept, _| plan(kept) != plan(part));
    }

    /// Leaves out the rows of the plans of `parts`.
    fn leave_out<'a>(&mut self, parts: impl Iterator<Item = &'a PlanPart<'a>>) {
        parts.for_each(|part| self.leave_out_plan(&part.name()));
    }

    fn has(&self, part: &PlanPart<'_>) -> bool {
        self.0.contains_key(&part.name())
    }
}

/// Words of the page in front of the commit.
const BEFORE_COMMIT: &str = "at commit ";
/// Words of a row without a run.
const NOT_RUN: &str = ",not shown: not run,";

/// The folder of the plan in a row, and the place of the verdict among met, failed, open, not shown and reported.
fn folder_and_verdict(row: &str) -> (&str, usize) {
    let words = [",met,", ",failed,", ",open,", ",not shown: ", ",reported,"];
    // The first verdict in a row counts; a verdict from an earlier run may follow.
    let at = |it: &usize| row.find(words[*it]).unwrap_or(row.len());
    (row.split('/').next().unwrap_or(row), (0..words.len()).min_by_key(at).unwrap_or(0))
}

fn write_results(parts: &[PlanPart<'_>], judged: &[Vec<Judged>], kept: &Kept) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output()?.stdout;
    let head = table::csv(iter::empty());
    let mut results = head.clone();
    for (part, judged) in parts.iter().zip(judged) {
        match kept.0.get(&part.name()) {
            Some(rows) => rows.iter().for_each(|row| results.extend([row.as_str(), "\n"])),
            None => results.push_str(&table::csv(judged.iter())[head.len()..]),
        }
    }
    let page = TEMPLATE
        .replace("{date}", String::from_utf8_lossy(&date).trim())
        .replace("{commit}", measured_commit().as_deref().unwrap_or("unknown"))
        .replace("{sim}", &sources("sim")?)
        .replace("{emu}", &sources("emu")?)
        .replace("{counts}", &counts_by_folder(results.lines().skip(1).map(folder_and_verdict)));
    std::fs::write(RESULTS, &results).context(RESULTS)?;
    std::fs::write(PAGE, page).context(PAGE)
}

/// Number of claims by verdict, in markdown: a row for each folder of plans, and one for all. `verdicts` are a folder and
/// the place of a verdict each.
fn counts_by_folder<'a>(verdicts: impl Iterator<Item = (&'a str, usize)>) -> String {
    let (mut folders, mut all): (Vec<(&str, [usize; 5])>, [usize; 5]) = (Vec::new(), [0; 5]);
    for (folder, verdict) in verdicts {
        let place = folders.iter().position(|(name, _)| *name == folder).unwrap_or_else(|| {
            folders.push((folder, [0; 5]));
            folders.len() - 1
        });
        folders[place].1[verdict] += 1;
        all[verdict] += 1;
    }
    folders.push(("all", all));
    let head = "| plans | met | failed | open | not shown | reported | all |\n|---|---|---|---|---|---|---|\n";
    let row = |(name, counts): &(&str, [usize; 5])| {
        let cells = counts.map(|count| count.to_string()).join(" | ");
        format!("| {name} | {cells} | {} |\n", counts.iter().sum::<usize>())
    };
    head.to_string() + &folders.iter().map(row).collect::<String>()
}

/// The digest in results of `backend` from a program with these sources.
fn sources(backend: &str) -> Result<String> {
    forebay_sources::digest(&crate::repository(), backend).context("the sources")
}

/// The document that `forebay` printed for `name`; `Null` if it refuses the arguments or keeps printing none.
/// Simulations run at idle priority.
pub fn printed(name: &str, arguments: &[&str], out: &Path) -> Result<Value> {
    let is_simulated = arguments.windows(2).any(|pair| pair == ["--backend", "sim"]);
    let idle: &[&str] = if is_simulated { &["chrt", "--idle", "0"] } else { &["env"] };
    for _ in 0..ATTEMPTS {
        let output = Command::new(idle[0])
            .args(&idle[1..])
            .arg(FOREBAY)
            .args(arguments)
            .arg("--json")
            .arg("--out")
            .arg(out)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("{FOREBAY} (make build)"))?;
        if output.status.code() == Some(2) {
            eprintln!("{name}: refused");
            break;
        }
        if let Ok(document) = serde_json::from_slice(&output.stdout) {
            return Ok(document);
        }
        eprintln!("{name}: {}, no results", output.status);
    }
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_arguments_and_refuses_wrong_ones() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(String::from).collect();
            Arguments::parse(&words)
        };
        let only = vec!["bundler/main@sim".to_string(), "platforms".into()];
        let expected = Arguments { only, list: true, minutes: Some(60.0) };
        assert_eq!(parse("--list bundler/main@sim --minutes 60 platforms").unwrap(), expected);
        for wrong in ["--minutes", "--minutes soon", "--minutes -1", "--minutes 1e300", "--seed 3"]
        {
            assert!(parse(wrong).unwrap_err().to_string().contains("allowed is"), "{wrong}");
        }
    }

    #[test]
    fn starts_late_work_only_as_first() {
        let mut clock = Clock::of(Some(10.0));
        assert!(clock.allows(30.0), "else it never would be");
        assert!(clock.allows(9.0));
        assert!(!clock.allows(11.0));
        assert!(!Clock::of(Some(0.0)).allows(0.1), "no time at all");
        assert!(Clock::of(None).allows(1e6));
    }

    #[test]
    fn page_counts_the_rows_of_results() {
        let read = |path| std::fs::read_to_string(crate::repository().join(path)).unwrap();
        let (results, page) = (read(RESULTS), read(PAGE));
        let rows = results.strip_prefix(&table::csv(iter::empty())).expect("the head of today");
        assert!(rows.lines().count() > 0);
        let (_, counted) = TEMPLATE.split_once("{counts}").unwrap();
        let end = format!("{}{counted}", counts_by_folder(rows.lines().map(folder_and_verdict)));
        assert!(page.ends_with(&end), "make evaluate writes {PAGE}: {end}");
    }

    #[test]
    fn verdicts_are_counted_by_folder() {
        let rows = [
            "bundler/p,sim,\"a, b\",,,1,,,met,pooled 1.2 failed,2/3,c",
            "bundler/q,emu,a,,,,,,not shown: not run,,,",
        ];
        let counts = counts_by_folder(rows.into_iter().map(folder_and_verdict));
        assert!(counts.ends_with(
            "|\n| bundler | 1 | 0 | 0 | 1 | 0 | 2 |\n| all | 1 | 0 | 0 | 1 | 0 | 2 |\n"
        ));
    }

    #[test]
    fn rows_of_unfinished_plans_are_not_kept() {
        let kept = Kept::of(
            "head\na/p,sim,x,,,1,,,met,,1/1,c\na/p,emu,y,,,,,,not shown: not run,,,\na/q,emu+k,z,,,1,,,met,,1/1,c\n",
        );
        assert_eq!(kept.0.keys().collect::<Vec<_>>(), ["a/q@emu+k"]);
    }
}
