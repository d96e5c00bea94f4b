//! `forebay regret`: a site with boxes compared with the same site without them, on random paths.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn regret(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).arg("regret").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn rows_are_the_same_again_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let rows =
        |name: &str| fs::read_to_string(folder.path().join(name).join("regret.jsonl")).unwrap();
    // Slow paths: a seed takes a second.
    let whole =
        regret(folder.path(), &["--seeds", "2..3", "--jobs", "2", "--out", "whole", "--json"]);
    let document: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(document["sequences"].as_array().unwrap().len(), 2, "{document:#}");
    assert_eq!(document["summary"]["windows"], 24, "{document:#}");
    let second = regret(folder.path(), &["--seeds", "2", "--jobs", "1", "--out", "parts"]);
    assert!(text(&second.stdout).contains("seed 2: "), "{}", text(&second.stdout));
    let both =
        regret(folder.path(), &["--seeds", "2..3", "--jobs", "1", "--out", "parts", "--json"]);
    assert_eq!(text(&both.stdout), text(&whole.stdout));
    assert_eq!(rows("parts"), rows("whole"));
    assert_eq!(rows("parts").lines().count(), 2);
}

#[test]
fn the_plan_of_a_sequence_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let output = regret(folder.path(), &["--seeds", "17", "--plan"]);
    let plan = folder.path().join("17.toml");
    fs::write(&plan, &output.stdout).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    let check = command.arg("plan").arg("check").arg(&plan).output().unwrap();
    assert!(check.status.success(), "{}", text(&check.stderr));
    assert!(!folder.path().join("out").exists());
}

#[test]
fn bad_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (arguments, expected) in [
        (&["--seeds", "5..1"][..], "is no range"),
        (&["--jobs", "0"], "0 is not in 1..=1024"),
        (&["--out", "file/deeper"], "--out file/deeper: "),
    ] {
        let output = regret(folder.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{error}");
    }
}
