//! Runs the experiments behind the claims, part by part, and shows which claims hold; `lab::judge` decides that.

mod plan;

use std::iter;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
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

/// Runs the parts that `arguments` select, and writes the results of all claims after each part. Exit code 1 unless
/// every selected claim is met, 2 if the arguments are wrong, 3 if work is left: another call continues it.
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
    if arguments.list {
        println!("{}", listed(parts.iter().filter(|part| is_wanted(part))));
        return Ok(ExitCode::SUCCESS);
    }
    let mut clock = Clock::of(arguments.minutes);
    let mut judged: Vec<Vec<Judged>> = parts.iter().map(|part| part.judge(parts.iter())).collect();
    write_results(&judged)?;
    for place in 0..parts.len() {
        if is_wanted(&parts[place]) && parts[place].left.runs > 0 {
            eprintln!("== {}", parts[place].name());
            parts[place].advance(&mut |minutes| clock.allows(minutes))?;
            // Claims about these runs may also exist on the plan's other back end.
            for (part, judged) in parts.iter().zip(&mut judged) {
                if part.is_called(parts[place].subject()) {
                    *judged = part.judge(parts.iter());
                }
            }
            write_results(&judged)?;
        }
    }
    figures::draw()?;
    let wanted = || parts.iter().zip(&judged).filter(|(part, _)| is_wanted(part));
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

fn write_results(judged: &[Vec<Judged>]) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output()?.stdout;
    let (date, claims) = (String::from_utf8_lossy(&date), judged.iter().flatten());
    let page = TEMPLATE
        .replace("{date}", date.trim())
        .replace("{sim}", &sources("sim")?)
        .replace("{emu}", &sources("emu")?)
        .replace("{counts}", &table::counts_by_folder(claims.clone()));
    std::fs::write(RESULTS, table::csv(claims)).context(RESULTS)?;
    std::fs::write(PAGE, page).context(PAGE)
}

/// The digest in results of `backend` from a program with these sources.
fn sources(backend: &str) -> Result<String> {
    forebay_sources::digest(&crate::repository(), backend).context("the sources")
}

/// The document that `forebay` printed for `name`; `Null` if it refuses the arguments or keeps printing none.
pub fn printed(name: &str, arguments: &[&str], out: &Path) -> Result<Value> {
    for _ in 0..ATTEMPTS {
        let output = Command::new(FOREBAY)
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
        let words = [",met,", ",failed,", ",open,", ",not shown: ", ",reported,"];
        // The first verdict in a row counts; a verdict from an earlier run may follow.
        let of =
            |row: &str| (0..words.len()).min_by_key(|it| row.find(words[*it]).unwrap_or(row.len()));
        let verdicts =
            [0, 1, 2, 3, 4].map(|it| rows.lines().filter(|row| of(row) == Some(it)).count());
        let all = rows.lines().count();
        assert!(all > 0 && verdicts.iter().sum::<usize>() == all, "{verdicts:?} of {all}");
        let counts = verdicts.map(|count| count.to_string()).join(" | ");
        let (_, counted) = TEMPLATE.split_once("{counts}").unwrap();
        let end = format!("| all | {counts} | {all} |\n{counted}");
        assert!(page.ends_with(&end), "make evaluate writes {PAGE}: {end}");
    }
}
