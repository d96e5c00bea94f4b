//! `forebay sensitivity`: the effect of each number of a bundle's control, kept row by row.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn sensitivity(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).arg("sensitivity").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_call_without_time_says_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("docs")).unwrap();
    let arguments = ["supervisor_keep", "--minutes", "0", "--docs", "docs", "--json"];
    let output = sensitivity(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [half, double] = &table["numbers"].as_array().unwrap()[..] else { panic!("{table:#}") };
    assert_eq!((&half["value"], &half["clamped"]), (&"0.485".into(), &false.into()));
    assert_eq!((&double["value"], &double["clamped"]), (&"0.999".into(), &true.into()));
    assert_eq!((&double["runs"], &double["wanted"]), (&0.into(), &33.into()));
    let read = |name: &str| fs::read_to_string(folder.path().join("docs").join(name)).unwrap();
    assert_eq!(read("sensitivity.csv").lines().count(), 5);
    assert!(read("sensitivity.md").contains("| 0.999 (clamped): not measured |"));
}

#[test]
fn numbers_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = sensitivity(folder.path(), &["--list"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\nsupervisor_keep [0.97]: Share of "));
}

#[test]
fn bad_input_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (arguments, expected) in [
        (&["supervisor_kept"][..], "nearest is supervisor_keep"),
        (&["--seeds", "5..1"], "is no range"),
        (&["--minutes=-1"], "--minutes"),
        (&["--minutes", "0", "--out", "file/deeper"], "--out file/deeper: "),
    ] {
        let output = sensitivity(folder.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{error}");
    }
}
