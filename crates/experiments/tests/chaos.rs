//! `forebay chaos`: under any fault, a bundle is never worse than no boxes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn chaos(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).arg("chaos").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn simulated_sequences_match_twins_and_run_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = chaos(folder.path(), &["--seeds", "1..12", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sequences = document["sequences"].as_array().unwrap();
    assert_eq!(sequences.len(), 12);
    for sequence in sequences {
        let (violations, rejected) = (&sequence["violations"], &sequence["rejected"]);
        assert!(violations.as_array().unwrap().is_empty(), "{sequence:#}");
        assert!(rejected.as_array().unwrap().is_empty(), "{sequence:#}");
        assert!(sequence["windows"].as_u64().unwrap() >= 20, "{sequence:#}");
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = folder.path().join("out/chaos/chaos.jsonl");
    let before = fs::read_to_string(&rows).unwrap();
    assert_eq!(before.lines().count(), 12);
    let again = chaos(folder.path(), &["--seeds", "12..13"]);
    let said = text(&again.stdout);
    assert!(again.status.success() && said.contains("2 sequences: 2 fine, 0 worse"), "{said}");
    assert!(said.contains("seed 12 on sim: ") && said.contains(" s: "), "{said}");
    let after = fs::read_to_string(&rows).unwrap();
    assert!(after.starts_with(&before) && after.lines().count() == 13, "{after}");
}

#[test]
fn a_seed_gives_the_same_figures_again() {
    let folder = tempfile::tempdir().unwrap();
    let figures = || {
        let output = chaos(folder.path(), &["--seeds", "5", "--force", "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = &document["sequences"][0];
        [&row["twin_mbit"], &row["least"], &row["shaped_after_s"], &row["events"]].map(Value::clone)
    };
    assert_eq!(figures(), figures());
}

#[test]
fn refuses_impossible_runs_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (arguments, expected) in [
        (&["--backend", "ns2"][..], "--backend ns2: allowed is one of sim, emu"),
        (&["--seeds", "5..1"], "is no range"),
        (&["--out", "file/deeper"], "--out file/deeper: "),
    ] {
        let output = chaos(folder.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{error}");
    }
}
