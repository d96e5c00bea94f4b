//! `forebay trace`: what it writes, where, and what it refuses.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use forebay_core::link::Trace;

fn trace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).arg("trace").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_constant_rate_goes_to_stdout_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let output = trace(folder.path(), &["constant", "--rate", "24Mbit/s", "--duration", "2ms"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "1\n1\n2\n2\n");
    assert!(output.stderr.is_empty() && files(folder.path()).is_empty());
}

#[test]
fn the_same_seed_writes_the_same_file_and_leaves_nothing_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let poisson = ["poisson", "--rate", "2.64Mbit/s", "--cold-start", "1s", "--seed"];
    let written = |seed: &str, name: &str| {
        fs::write(folder.path().join(name), "an older trace").unwrap();
        let arguments = [&poisson[..], &[seed, "--force", "--out", name]].concat();
        let output = trace(folder.path(), &arguments);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        fs::read_to_string(folder.path().join(name)).unwrap()
    };
    let first = written("1", "1.trace");
    assert_eq!(first, written("1", "1.trace"));
    assert_ne!(first, written("2", "2.trace"));
    let mut found = files(folder.path());
    found.sort_unstable();
    assert_eq!(found, ["1.trace", "2.trace"]);
    let parsed = Trace::parse("1.trace", &first).unwrap();
    let mbit_per_sec = parsed.mean_rate().as_mbit_per_sec_f64();
    // Less a cold start of a sixtieth, 2.604 Mbit/s; five standard errors of 13,000 packets.
    assert!((2.49..2.72).contains(&mbit_per_sec), "{mbit_per_sec}");
}

#[test]
fn refusals_name_the_option_the_value_and_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["constant"][..], "--rate <RATE>"),
        (&["constant", "--rate", "10"], "\"10\" is not a rate such as"),
        (&["constant", "--rate", "1Mbit/s", "--duration", "0s"], "--duration 0ns: allowed is 1ms"),
        (
            &["constant", "--rate", "100Gbit/s", "--out", "a.trace"],
            "--rate 100Gbit/s: allowed is at most 10Gbit/s",
        ),
        (
            &["poisson", "--rate", "1Mbit/s", "--cold-start", "2min", "--out", "a.trace"],
            "--cold-start 120s: allowed is at most the duration, 60s",
        ),
        (&["poisson", "--rate", "1Mbit/s", "--seed=-1"], "'-1' for '--seed"),
    ] {
        let output = trace(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{stderr}");
        assert!(output.stdout.is_empty());
    }
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_file_that_is_there_stays_as_it_is_unless_it_is_to_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    fs::write(&path, "a trace").unwrap();
    let arguments = ["constant", "--rate", "12Mbit/s", "--duration", "1ms", "--out", "a.trace"];
    let refused = trace(folder.path(), &arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        text(&refused.stderr).contains("--out a.trace: a file is there already"),
        "{refused:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "a trace");
    let forced = trace(folder.path(), &[&arguments[..], &["--force"]].concat());
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    assert_eq!(
        trace(folder.path(), &["constant", "--rate", "1Mbit/s", "--force"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_file_that_cannot_be_written_is_a_failure_that_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for out in ["missing/a.trace", "."] {
        let output = trace(folder.path(), &["constant", "--rate", "12Mbit/s", "--out", out]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(&format!("cannot write {out}")), "{output:?}");
    }
    assert!(files(folder.path()).is_empty());
}
