//! Runs every test, and lists the skipped ones.

use std::collections::VecDeque;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use forebay_skips::{Need, RECORD, skipped_without};
use serde::Deserialize;

use crate::Misuse;

/// Tests of traffic in real time: one program of these runs at a time. Tests that only need a processor use the time
/// that these leave, two at a time.
const OF_TRAFFIC: [&str; 11] = [
    "agent",
    "boxes",
    "datapath",
    "forebay_ebpf",
    "forebay_host",
    "forebay_testbed",
    "link",
    "platforms",
    "probe",
    "testbed",
    "watching",
];

/// The test programs without traffic that take longest. These start first, so that none runs alone at the end.
const LONG: [&str; 8] =
    ["forebay_lab", "forebay_studies", "bundles", "lab", "chaos", "howto", "house", "forebay_core"];

/// A program whose tests take turns (`crates/experiments/tests/boxes/turns.rs`), with a thread for each test: tests
/// that wait run together.
const IN_TURNS: (&str, &str) = ("boxes", "200");

/// Runs every test. With `--beside`, also runs a shell command while tests without traffic run. Lists at the end, also
/// after a failure, the skipped tests and the reasons. For root a skip is a failure unless the machine itself lacks
/// what the test needs.
pub fn test(arguments: &[String]) -> Result<()> {
    let beside = match arguments {
        [] => None,
        [option, command] if option == "--beside" => Some(command),
        _ => return Err(Misuse::of(anyhow!("{arguments:?}: allowed is --beside COMMAND"))),
    };
    let record = tempfile::NamedTempFile::new()?;
    let tested = run_all(record.path(), beside);
    let text = std::fs::read_to_string(record.path())?;
    print!("{}", list(&text));
    tested?;
    judge(&text, Need::Root.is_met())
}

fn run_all(record: &Path, beside: Option<&String>) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--locked", "--no-run"]);
    cargo.arg("--message-format=json-render-diagnostics").current_dir(crate::repository());
    let built = cargo.stderr(Stdio::inherit()).output()?;
    ensure!(built.status.success(), "the tests could not be built");
    let programs = programs(std::str::from_utf8(&built.stdout)?)?;
    for name in OF_TRAFFIC.into_iter().chain(LONG) {
        ensure!(programs.iter().any(|it| it.name == name), "no test program has the name {name}");
    }
    let (of_traffic, mut others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|it| OF_TRAFFIC.contains(&it.name.as_str()));
    others.sort_by_key(|it| LONG.iter().position(|name| *name == it.name).unwrap_or(LONG.len()));

    // The longest job comes first.
    let beside = beside.map(|command| Job {
        what: command.into(),
        command: command.into(),
        folder: crate::repository(),
        threads: None,
    });
    let rest = beside.into_iter().chain(others.iter().map(Program::job));
    let traffic = of_traffic.iter().map(Program::job);
    let (rest, traffic) = (Queue::new(rest, AT_IDLE), Queue::new(traffic, AT_ONCE));
    let output = &Mutex::new(());
    let failed = thread::scope(|scope| {
        let queues = [&traffic, &rest, &rest];
        let threads = queues.map(|queue| scope.spawn(|| run_jobs(queue, record, output)));
        let failed = threads.map(|it| it.join().expect("a job that fails is an error"));
        anyhow::Ok(failed.into_iter().collect::<Result<Vec<_>>>()?.concat())
    })?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Message of cargo about something that it has built.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    profile: Option<Profile>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
}

/// A program of tests, which runs in the folder of its package as cargo runs it.
struct Program {
    name: String,
    source: PathBuf,
    executable: PathBuf,
    package: PathBuf,
}

fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if let Message {
            executable: Some(executable),
            manifest_path: Some(manifest),
            profile: Some(Profile { test: true }),
            target: Some(target),
        } = message
        {
            let package = manifest.parent().context("a manifest lies in a folder")?.into();
            programs.push(Program {
                name: target.name,
                source: target.src_path,
                executable,
                package,
            });
        }
    }
    Ok(programs)
}

impl Program {
    fn job(&self) -> Job {
        let source = self.source.strip_prefix(crate::repository()).unwrap_or(&self.source);
        Job {
            what: source.display().to_string(),
            command: format!("{:?}", self.executable),
            folder: self.package.clone(),
            threads: (self.name == IN_TURNS.0).then_some(IN_TURNS.1),
        }
    }
}

/// Runs the jobs of a queue one after the other until there are none; returns the failed jobs.
fn run_jobs(queue: &Queue, record: &Path, output: &Mutex<()>) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    while let Some(job) = queue.next() {
        if !job.run(queue.before, record, output)? {
            failed.push(job.what);
        }
    }
    Ok(failed)
}

/// Prefix of a command that runs only on idle processors (SCHED_IDLE).
const AT_IDLE: &[&str] = &["chrt", "--idle", "0"];
/// No prefix: the command runs with normal priority.
const AT_ONCE: &[&str] = &[];

/// Jobs that several threads may take, and the prefix with which each is run.
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    before: &'static [&'static str],
}

impl Queue {
    fn new(jobs: impl Iterator<Item = Job>, before: &'static [&'static str]) -> Self {
        Self { jobs: Mutex::new(jobs.collect()), before }
    }

    fn next(&self) -> Option<Job> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

struct Job {
    what: String,
    command: String,
    folder: PathBuf,
    /// Threads of its tests; `None`: one for each processor.
    threads: Option<&'static str>,
}

impl Job {
    /// Runs the command to its end, then prints all its output; false if it fails.
    fn run(&self, before: &[&str], record: &Path, output: &Mutex<()>) -> Result<bool> {
        let mut said = tempfile::tempfile()?;
        // `env` replaces itself with the given command.
        let mut shell = Command::new("env");
        shell.args(before).args(["sh", "-c", &self.command]).current_dir(&self.folder);
        shell.env("CARGO_MANIFEST_DIR", &self.folder).env(RECORD, record);
        shell.envs(self.threads.map(|count| ("RUST_TEST_THREADS", count)));
        // Some tests compile outside the repository, where rustup would install and use its default toolchain.
        shell.env("RUSTUP_TOOLCHAIN", toolchain());
        shell.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?);
        println!("     Running {}", self.what);
        let begun = Instant::now();
        let status = shell.status().with_context(|| format!("cannot start {shell:?}"))?;
        let mut text = Vec::new();
        said.rewind()?;
        said.read_to_end(&mut text)?;
        let _one_at_a_time = output.lock();
        println!("     Ran {} ({:.0} s)", self.what, begun.elapsed().as_secs_f64());
        println!("{}", String::from_utf8_lossy(&text));
        Ok(status.success())
    }
}

/// The folder of the toolchain that has built this; it contains `bin/cargo`.
fn toolchain() -> &'static Path {
    let cargo = Path::new(env!("CARGO"));
    cargo.ancestors().nth(2).unwrap_or(cargo)
}

/// The skipped tests below their reasons.
fn list(record: &str) -> String {
    let mut text = String::new();
    for need in Need::ALL {
        let tests = skipped_without(need, record);
        if !tests.is_empty() {
            text += &format!("skipped {}: {}\n", tests.len(), need.reason());
            text.extend(tests.iter().map(|test| format!("    {test}\n")));
        }
    }
    if text.is_empty() { "no test was skipped\n".into() } else { text }
}

fn judge(record: &str, is_root: bool) -> Result<()> {
    for need in Need::ALL {
        let is_allowed = !is_root || need.may_be_missing_for_root();
        let tests = skipped_without(need, record);
        ensure!(
            is_allowed || tests.is_empty(),
            "as root, no test may be skipped for this reason: {} ({} tests)",
            need.reason(),
            tests.len()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_test_programs_from_other_builds() {
        let built = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/r/a/Cargo.toml\",\
                 \"target\":{{\"name\":\"boxes\",\"src_path\":\"/r/a/tests/boxes.rs\"}},\
                 \"profile\":{{\"test\":{test}}},\"executable\":{executable}}}\n"
            )
        };
        let messages = built(true, "\"/t/boxes\"")
            + &built(true, "null")
            + &built(false, "\"/t/boxes\"")
            + "{\"reason\":\"build-finished\",\"success\":true}\n";
        let found = programs(&messages).unwrap();
        assert_eq!(found.len(), 1);
        let job = found[0].job();
        let told = (job.what.as_str(), job.command.as_str(), job.folder.as_path());
        let expected = ("/r/a/tests/boxes.rs", "\"/t/boxes\"", Path::new("/r/a"));
        assert_eq!(told, expected);
    }

    #[test]
    fn root_skips_only_unsupported_tests() {
        let row = |need: Need| format!("{}\tboxes a\n{0}\tebpf b\n", need.reason());
        let tun = row(Need::Tun);
        let both = tun.clone() + &row(Need::Chromium);
        assert!(
            judge(&tun, true).is_ok() && judge(&both, false).is_ok() && judge("", true).is_ok()
        );
        let error = judge(&both, true).unwrap_err().to_string();
        assert!(error.contains("no chromium") && error.contains("(2 tests)"), "{error}");
        assert!(judge(&row(Need::Root), true).is_err() && judge(&row(Need::Root), false).is_ok());
    }

    #[test]
    fn each_skipped_test_is_listed_below_its_reason() {
        let record = format!("{0}\tb x\n{0}\ta y\n{0}\tb x\n", Need::Tun.reason());
        assert_eq!(list(&record), "skipped 2: no /dev/net/tun\n    a y\n    b x\n");
        assert_eq!(list(""), "no test was skipped\n");
    }
}
