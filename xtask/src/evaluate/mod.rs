//! Runs what the claims are about, part by part, and says which claims hold: `lab::judge` does.

mod part;
mod plan;
mod platforms;

use std::iter;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use forebay_lab::backend;
use forebay_lab::judge::{Claims, Judged, PlanClaims, table};
use forebay_lab::output::text_table;
use serde_json::Value;

use part::{Left, Part};
use plan::PlanPart;
use platforms::PlatformsPart;

/// Every claim of `docs/evaluation.md`, as bounds on metrics.
const CLAIMS: &str = "docs/claims.toml";
/// Where results go; runs of the same sources that are there already are not repeated.
const OUT: &str = "out/evaluate";
/// What came of it, for readers.
const TABLE: &str = "docs/evaluation-table.md";
const FOREBAY: &str = "target/release/forebay";
/// How often a plan is taken up again behind a run that failed.
const ATTEMPTS: usize = 3;
/// A week.
const MINUTES_MAX: f64 = 10_080.0;
/// The exit code where something is left to run.
const LEFT: u8 = 3;

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    /// Only parts that are called so; all if it is empty.
    only: Vec<String>,
    /// Say what there is to do instead of doing it.
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
                    let value = rest.next().context("--minutes: allowed is a number behind it")?;
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

/// How long work may go on. What would not end in time is not begun, unless it is the first.
struct Clock {
    until: Option<Instant>,
    has_begun: bool,
}

impl Clock {
    fn of(minutes: Option<f64>) -> Self {
        let until = minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes));
        Self { until, has_begun: false }
    }

    /// Whether work of so many minutes may begin.
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

/// Runs what `arguments` ask for, and writes the table of all claims after each part. Exit code 1 unless every claim
/// that was asked for is met, 2 where it cannot be asked for, 3 if something is left: another call goes on.
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
        let names = || parts.iter().map(Part::name).collect::<Vec<_>>().join(", ");
        if !parts.iter().any(|part| part.is_called(name)) {
            return Ok(refused(&format!("no part {name}: there are {}", names())));
        }
    }
    std::fs::create_dir_all(OUT)?;
    for part in &mut parts {
        part.advance(&mut |_| false)?;
    }
    let is_wanted = |part: &Part<'_>| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| part.is_called(name))
    };
    if arguments.list {
        println!("{}", listed(parts.iter().filter(|part| is_wanted(part))));
        return Ok(ExitCode::SUCCESS);
    }
    let mut clock = Clock::of(arguments.minutes);
    let mut judged: Vec<Vec<Judged>> = parts.iter().map(|part| part.judge(&parts)).collect();
    write_table(&judged)?;
    for place in 0..parts.len() {
        if is_wanted(&parts[place]) && parts[place].left().runs > 0 {
            eprintln!("== {}", parts[place].name());
            parts[place].advance(&mut |minutes| clock.allows(minutes))?;
            // On the plan's other back end, too, there may be claims about these runs.
            for (part, judged) in parts.iter().zip(&mut judged) {
                if part.is_called(parts[place].subject()) {
                    *judged = part.judge(&parts);
                }
            }
            write_table(&judged)?;
        }
    }
    let wanted = || parts.iter().zip(&judged).filter(|(part, _)| is_wanted(part));
    let found = || wanted().flat_map(|(_, judged)| judged);
    found().filter_map(Judged::complaint).for_each(|complaint| println!("{complaint}"));
    println!("{} ({TABLE})", table::counts(found()));
    if wanted().any(|(part, _)| part.left().runs > 0) {
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

/// Plans in the order of the claims, each in the simulator first, beside which the testbed is judged.
fn all_parts(plans: &[PlanClaims]) -> Result<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    for plan in plans {
        for backend in backend::NAMES {
            if let Some(seeds) = plan.seeds.get(backend) {
                parts.push(Part::Plan(Box::new(PlanPart::new(plan, backend, *seeds)?)));
            }
        }
    }
    parts.extend(PlatformsPart::all()?.map(Part::Platforms));
    Ok(parts)
}

/// What is left of some parts, with all of it together.
fn listed<'a>(parts: impl Iterator<Item = &'a Part<'a>>) -> String {
    let (mut rows, mut all) = (Vec::new(), Left::default());
    let row = |name: String, left: &Left| {
        vec![name, left.runs.to_string(), format!("{:.1}", left.minutes)]
    };
    for part in parts {
        let left = part.left();
        rows.push(row(part.name(), left));
        all.runs += left.runs;
        all.minutes += left.minutes;
    }
    rows.push(row("all".into(), &all));
    text_table(&["part", "runs left at most", "minutes"].map(String::from), &rows)
}

fn write_table(judged: &[Vec<Judged>]) -> Result<()> {
    let date = Command::new("date").args(["-u", "+%F"]).output()?.stdout;
    let text = format!(
        "# What `make evaluate` found\n\n\
         Written by `cargo xtask evaluate` on {} from runs of the sources {} (simulator) and {} (testbed). \
         [evaluation.md](evaluation.md) says how claims are judged. Under *runs* stand the seeds that count of those \
         that were wanted, how often each arm was run, and how many of these runs were rejected.\n\n{}",
        String::from_utf8_lossy(&date).trim(),
        sources("sim")?,
        sources("emu")?,
        table::markdown(judged.iter().flatten())
    );
    std::fs::write(TABLE, text).context(TABLE)
}

/// The digest that results of `backend` have where the program is of these sources.
fn sources(backend: &str) -> Result<String> {
    forebay_sources::digest(&crate::repository(), backend).context("the sources")
}

/// The document that `forebay` printed for `name`; `Null` if it refuses this or keeps printing none.
fn printed(name: &str, arguments: &[&str], out: &Path) -> Result<Value> {
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
    fn what_is_asked_for_is_read_and_what_cannot_be_is_refused() {
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
    fn work_that_would_not_end_in_time_is_not_begun_unless_it_is_the_first() {
        let mut clock = Clock::of(Some(10.0));
        assert!(clock.allows(30.0), "else it never would be");
        assert!(clock.allows(9.0));
        assert!(!clock.allows(11.0));
        assert!(!Clock::of(Some(0.0)).allows(0.1), "no time at all");
        assert!(Clock::of(None).allows(1e6));
    }
}
