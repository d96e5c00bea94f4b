//! Whether two builds of `forebay` write the same rows for every simulated plan.
//!
//! ```text
//! old, new ──► `forebay run PLAN --backend sim --seed 1 --set stop=..` each ──► two stores ──► rows that differ
//! ```
//! Build both programs alike: features of dependencies show in rows, such as the order of keys in JSON. Most plans
//! are cut: to `--seconds`, doubled until all that the plan schedules lies before the end. A run that is already in
//! the folder of a build is not repeated, so that an interrupted call continues where it stopped.

mod stores;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use forebay_lab::plan::library::runnable_plans;
use forebay_lab::plan::{Override, Plan, Seeds};
use forebay_lab::{Options, check};
use forebay_package::text_of;

use crate::{Misuse, repository};

/// Below it each build has a folder, so that its runs serve several comparisons.
const OUT: &str = "out/same-rows";
/// Seed of all runs: the comparison needs no spread.
const SEED: &str = "1";
/// Simulated time (s) after which plans are cut if they allow it: every control loop has started by then.
const SECONDS: u64 = 10;

/// Arguments of a call.
#[derive(Debug, PartialEq)]
struct Arguments {
    old: PathBuf,
    new: PathBuf,
    seconds: u64,
    plans: Vec<String>,
}

impl Arguments {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut seconds = SECONDS;
        let mut words = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--seconds" => {
                    let value = rest
                        .next()
                        .context("--seconds: no value: allowed is a whole number from 1")?;
                    let number = value.parse().ok().filter(|it| *it > 0);
                    let refusal = || format!("--seconds {value}: allowed is a whole number from 1");
                    seconds = number.with_context(refusal)?;
                }
                flag if flag.starts_with('-') => bail!("{flag}: allowed is --seconds N"),
                word => words.push(word),
            }
        }
        let [old, new, plans @ ..] = &words[..] else {
            bail!("expected two programs, OLD and NEW, then names of plans");
        };
        let mut plans: Vec<String> = plans.iter().map(|it| it.to_string()).collect();
        for plan in &plans {
            Plan::load(plan, &[])?;
        }
        if plans.is_empty() {
            plans.extend(runnable_plans().map(String::from));
        }
        Ok(Self { old: old.into(), new: new.into(), seconds, plans })
    }
}

/// A program, and the folder of its runs.
struct Build {
    program: PathBuf,
    folder: PathBuf,
}

/// Result of a plan.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Number of runs. All rows of each run are the same.
    Same(i64),
    Differs(Vec<String>),
    /// Why both builds refuse it.
    Refused(String),
}

/// Runs each plan with both builds, and prints for each the first row of each table that differs. Fails if any does.
pub fn compare(arguments: &[String]) -> Result<()> {
    let arguments = Arguments::parse(arguments).map_err(Misuse::of)?;
    let builds = [Build::of(&arguments.old)?, Build::of(&arguments.new)?];
    let (begun, plans) = (Instant::now(), &arguments.plans);
    let mut different = 0;
    for (number, plan) in (1..).zip(plans) {
        let started = Instant::now();
        let stop = stop(plan, arguments.seconds)?;
        let outcome = outcome(&builds, plan, stop).with_context(|| plan.clone())?;
        different += usize::from(matches!(outcome, Outcome::Differs(_)));
        let cut = stop.map_or_else(|| "whole".into(), |stop| format!("{stop} s"));
        let took = started.elapsed().as_secs_f64();
        println!("[{number}/{}] {plan} ({cut}, took {took:.1} s): {outcome}", plans.len());
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{different} of {} plans differ ({took:.0} s)", plans.len());
    ensure!(different == 0, "rows differ");
    Ok(())
}

/// Time at which to cut a plan (s): the first of `seconds` and its doubles that the plan allows. `None`: not at all.
fn stop(plan: &str, seconds: u64) -> Result<Option<u64>> {
    let mut longest = Duration::ZERO;
    for experiment in Plan::load(plan, &[])?.experiments() {
        longest = longest.max(experiment?.stop);
    }
    let seeds = SEED.parse::<Seeds>().expect("it is one");
    let options = Options { backend: "sim".into(), seeds: Some(seeds), ..Options::default() };
    let allows = |stop: u64| {
        let stop = Override::parse(&format!("stop={stop}s")).expect("a key and a value");
        Plan::load(plan, &[stop]).is_ok_and(|plan| check(&plan, &options).is_ok())
    };
    let doubles = std::iter::successors(Some(seconds), |stop| stop.checked_mul(2));
    let mut shorter = doubles.take_while(|stop| Duration::from_secs(*stop) < longest);
    Ok(shorter.find(|stop| allows(*stop)))
}

/// Runs a plan with both builds, and compares the stores.
fn outcome(builds: &[Build; 2], plan: &str, stop: Option<u64>) -> Result<Outcome> {
    let [old, new] = [builds[0].run(plan, stop)?, builds[1].run(plan, stop)?];
    match [old, new] {
        [Ok(old), Ok(new)] => Ok(match stores::differences(&old, &new)? {
            (runs, differences) if differences.is_empty() => Outcome::Same(runs),
            (_, differences) => Outcome::Differs(differences),
        }),
        [Err(old), Err(_)] => Ok(Outcome::Refused(old)),
        [Err(old), Ok(_)] => Ok(Outcome::Differs(vec![format!("only the old build: {old}")])),
        [Ok(_), Err(new)] => Ok(Outcome::Differs(vec![format!("only the new build: {new}")])),
    }
}

impl Build {
    fn of(program: &Path) -> Result<Self> {
        let program = program.canonicalize().with_context(|| program.display().to_string())?;
        let digest = text_of(Command::new("sha256sum").arg(&program))?;
        let digest = digest.get(..16).context("sha256sum prints a digest")?;
        let folder = repository().join(OUT).join(digest);
        Ok(Self { program, folder })
    }

    /// Makes the results of a plan, and returns their folder, or the reason why the plan is refused.
    fn run(&self, plan: &str, stop: Option<u64>) -> Result<Result<PathBuf, String>> {
        let cut = stop.map_or_else(|| "whole".into(), |stop| format!("{stop}s"));
        let folder = self.folder.join(format!("{}-{cut}", plan.replace('/', "-")));
        std::fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        // Another call may be making the same runs.
        lock.lock()?;
        let mut run = Command::new(&self.program);
        let jobs = thread::available_parallelism().map_or(1, usize::from).to_string();
        run.args(["run", plan, "--backend", "sim", "--seed", SEED, "--jobs", &jobs]);
        run.arg("--out").arg(&folder);
        run.args(stop.map(|stop| format!("--set=stop={stop}s")));
        let output = run.output().with_context(|| self.program.display().to_string())?;
        let told = String::from_utf8_lossy(&output.stderr);
        let error = told.lines().rfind(|line| line.starts_with("error: "));
        match output.status.code() {
            Some(2) => Ok(Err(error.unwrap_or(&told).to_string())),
            // Exit code 1 without an error: invalid runs, which their rows record.
            Some(0 | 1) if error.is_none() => Ok(Ok(folder)),
            _ => bail!("{}: {}: {told}", self.program.display(), output.status),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Same(runs) => write!(f, "{runs} runs: equal"),
            Self::Differs(tables) => write!(f, "DIFFERS\n    {}", tables.join("\n    ")),
            Self::Refused(why) => write!(f, "not simulated: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments> {
        let words: Vec<String> = text.split_whitespace().map(String::from).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn arguments_are_two_programs_and_plans() {
        let parsed = parse("a --seconds 5 b bundler/main").unwrap();
        let expected = Arguments {
            old: "a".into(),
            new: "b".into(),
            seconds: 5,
            plans: vec!["bundler/main".into()],
        };
        assert_eq!(parsed, expected);
        assert!(parse("a b").unwrap().plans.len() > 90, "every plan");
        for wrong in ["", "a", "a b none", "a b --seconds 0", "a b --seconds", "a b --jobs 2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn plans_are_cut_behind_their_last_event() {
        assert_eq!(stop("bundler/main", 10).unwrap(), Some(10));
        assert_eq!(stop("bundler/main", 65).unwrap(), None, "it stops there by itself");
        assert_eq!(stop("bundler/faults", 10).unwrap(), None, "its second fault is at 40 s");
        assert_eq!(stop("world/cross_bulk", 10).unwrap(), Some(40), "its flows begin at 20 s");
    }
}
