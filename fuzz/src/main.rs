//! `fuzz TARGET|all [--seconds N] [--seed N]` mutates the corpus; `fuzz TARGET FILE..` replays. `fuzz readers PROGRAM`
//! runs commands of a program on mutated files.

use std::fs;
use std::panic;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use forebay_fuzz::coverage::{self, Coverage};
use forebay_fuzz::mutate::Mutator;
use forebay_fuzz::readers::readers;
use forebay_fuzz::{TARGETS, Target, corpus};

/// Printed after an error in the arguments.
const USAGE: &str = "usage: fuzz TARGET|all [--seconds N] [--seed N]   mutate the corpus
       fuzz TARGET FILE..                        run these inputs
       fuzz readers PROGRAM [--seconds N] [--seed N]  run commands of the forebay PROGRAM on mutated files";
/// Name that selects the commands instead of a target.
const READERS: &str = "readers";
/// No target needs more than milliseconds for 8 KB. The rest allows for a loaded machine.
const HANG: Duration = Duration::from_secs(20);

struct Arguments {
    target: String,
    seconds: u64,
    seed: u64,
    files: Vec<String>,
}

/// The running input and its start time, for the watchdog to report a hang.
type Current = Mutex<Option<(Instant, Vec<u8>)>>;

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("{error}\n{USAGE}\ntargets: {}", names.join(", "));
            return ExitCode::from(2);
        }
    };
    let name = &arguments.target;
    let result = match TARGETS.iter().find(|(target, _)| target == name) {
        None if name == READERS => fuzz_readers(&arguments),
        None => fuzz_all(arguments.seconds, arguments.seed),
        Some((name, target)) if arguments.files.is_empty() => {
            fuzz(name, *target, Duration::from_secs(arguments.seconds), arguments.seed)
        }
        Some((_, target)) => replay(*target, &arguments.files),
    };
    if let Err(error) = result {
        eprintln!("{name}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let target = words.next().ok_or("no target given")?;
    if target != "all" && target != READERS && !TARGETS.iter().any(|(name, _)| *name == target) {
        return Err(format!("{target}: unknown target"));
    }
    let mut arguments = Arguments { target, seconds: 10, seed: 0, files: Vec::new() };
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().unwrap_or_default();
            text.parse().map_err(|_| format!("{word} {text}: allowed is a whole number"))
        };
        match word.as_str() {
            "--seconds" => arguments.seconds = number()?,
            "--seed" => arguments.seed = number()?,
            _ if word.starts_with('-') => return Err(format!("{word}: unknown option")),
            _ => arguments.files.push(word),
        }
    }
    match (&*arguments.target, arguments.files.len()) {
        ("all", 1..) => Err("expected one target before the files".into()),
        (READERS, 0 | 2..) => Err("readers: expected one program".into()),
        _ => Ok(arguments),
    }
}

/// Fuzzes every target in a process of its own, since coverage is counted by process. Runs as many at a time as there
/// are processors.
fn fuzz_all(seconds: u64, seed: u64) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = |name: &str| {
        let (seconds, seed) = (seconds.to_string(), seed.to_string());
        let arguments = [name, "--seconds", &seconds, "--seed", &seed];
        let status = Command::new(&program).args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((name, _)) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !run(name) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Runs the command of each format on mutated files, for this number of seconds each.
fn fuzz_readers(arguments: &Arguments) -> Result<(), String> {
    let program = fs::canonicalize(&arguments.files[0])
        .map_err(|error| format!("{}: {error}", arguments.files[0]))?;
    let mut failed = Vec::new();
    for reader in readers() {
        let format = &reader.format;
        match reader.fuzz(&program, Duration::from_secs(arguments.seconds), arguments.seed) {
            Ok(it) => eprintln!(
                "{format}: {} files taken, {} refused; at most {} ms of CPU time and {} MiB",
                it.taken,
                it.refused,
                it.longest.as_millis(),
                it.most_kib / 1024
            ),
            Err(finding) => failed.push(format!("{format}: {finding}")),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn replay(target: Target, files: &[String]) -> Result<(), String> {
    for file in files {
        let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        panic::catch_unwind(|| target(&bytes)).map_err(|_| format!("{file}: panicked"))?;
    }
    Ok(())
}

/// Runs mutated inputs for `time`. Mutates an input further if it reaches new branches.
fn fuzz(name: &'static str, target: Target, time: Duration, seed: u64) -> Result<(), String> {
    let committed = corpus(name).map_err(|error| format!("corpus: {error}"))?;
    let mut inputs: Vec<Vec<u8>> = committed.into_iter().map(|(_, bytes)| bytes).collect();
    inputs.push(Vec::new());
    let current = Arc::<Current>::default();
    let mut reached = Coverage::default();
    for input in &inputs {
        run(name, target, input, &current)?;
        reached.absorb();
    }
    watch(name, Arc::downgrade(&current));
    let (started, mut mutator, mut runs) = (Instant::now(), Mutator::new(seed), 0_u64);
    while started.elapsed() < time {
        let input = mutator.next(&inputs);
        run(name, target, &input, &current)?;
        runs += 1;
        if reached.absorb() {
            inputs.push(input);
        }
    }
    eprintln!(
        "{name}: {runs} runs in {} s, {} inputs reach {} branches",
        started.elapsed().as_secs(),
        inputs.len(),
        reached.branches()
    );
    Ok(())
}

/// Runs one input; saves it if it panics.
fn run(name: &str, target: Target, input: &[u8], current: &Current) -> Result<(), String> {
    let set = |value| *current.lock().unwrap_or_else(PoisonError::into_inner) = value;
    set(Some((Instant::now(), input.to_vec())));
    coverage::clear();
    let result = panic::catch_unwind(|| target(input));
    set(None);
    result.map_err(|_| format!("panicked; {}", save(name, input)))
}

/// Ends the process when one input runs longer than [`HANG`].
fn watch(name: &'static str, current: Weak<Current>) {
    thread::spawn(move || {
        while let Some(current) = current.upgrade() {
            let guard = current.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((since, input)) = &*guard
                && since.elapsed() > HANG
            {
                eprintln!("{name}: still running after {HANG:?}; {}", save(name, input));
                std::process::exit(1);
            }
            drop(guard);
            drop(current);
            thread::sleep(Duration::from_secs(1));
        }
    });
}

/// Saves a failing input and returns the command that runs it again.
fn save(name: &str, input: &[u8]) -> String {
    format!("again with: cargo run -- {name} {}", forebay_fuzz::save(name, input))
}
