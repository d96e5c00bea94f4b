//! Commands of the laboratory: `forebay` lists them, has the other program run them, or says which package has it.
#![cfg(feature = "host")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Stands in for the laboratory's program: prints its caller and its arguments, and ends with 7.
const STAND_IN: &str = "#!/bin/sh\necho \"$FOREBAY_CALLER\"\nprintf '%s\\n' \"$@\"\nexit 7\n";

/// Puts a program there by a process of its own. A file that this one holds open for writing cannot be run,
/// and a test that starts a program meanwhile would inherit it.
fn put(file: &Path, program: &Path) {
    let mut install = Command::new("install");
    assert!(install.args(["-m", "755"]).args([file, program]).status().unwrap().success());
}

/// `forebay` alone in `FOLDER/bin`.
fn installed(folder: &Path) -> PathBuf {
    let program = folder.join("bin/forebay");
    fs::create_dir(folder.join("bin")).unwrap();
    put(env!("CARGO_BIN_EXE_forebay").as_ref(), &program);
    program
}

fn add_laboratory(place: &Path) {
    fs::create_dir_all(place).unwrap();
    let script = place.join("stand-in");
    fs::write(&script, STAND_IN).unwrap();
    put(&script, &place.join("forebay-experiments"));
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn without_the_laboratory_its_package_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let forebay = installed(folder.path());
    for (arguments, named) in [
        (&["run", "bundler/main"][..], "`forebay run`"),
        (&["demo"], "`forebay demo`"),
        (&["run", "--help"], "`forebay run`"),
        (&["help", "chaos"], "`forebay help chaos`"),
        (&["man", "trace", "poisson"], "`forebay man trace`"),
        (&["list", "plans"], "`forebay list plans`"),
        (&["plan", "check", "bundler/main"], "`forebay plan check`"),
    ] {
        let refused = run(&forebay, arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = text(&refused.stderr);
        assert!(
            said.starts_with(&format!("error: {named} needs the package forebay-experiments")),
            "{said}"
        );
        assert!(said.contains(": install the same version"), "{said}");
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn finds_laboratory_next_to_forebay_and_in_libexec() {
    for place in ["bin", "libexec/forebay"] {
        let folder = tempfile::tempdir().unwrap();
        let forebay = installed(folder.path());
        add_laboratory(&folder.path().join(place));
        let ran = run(&forebay, &["run", "a plan", "--set", "x=1"]);
        assert_eq!(ran.status.code(), Some(7), "{ran:?}");
        let lines: Vec<&str> = text(&ran.stdout).lines().collect();
        assert_eq!(lines[1..], ["run", "a plan", "--set", "x=1"], "{place}");
        assert!(!lines[0].is_empty(), "the commit of forebay");
        let scripted = run(&forebay, &["completions", "bash"]);
        assert_eq!(text(&scripted.stdout).lines().nth(1), Some("completions"));
    }
}

#[test]
fn commands_of_the_boxes_need_no_laboratory() {
    let folder = tempfile::tempdir().unwrap();
    let forebay = installed(folder.path());
    for arguments in [
        &["--help"][..],
        &["help", "status"],
        &["man", "status"],
        &["list", "algorithms"],
        &["list", "qdiscs", "--json"],
        &["status", "--schema"],
    ] {
        let ran = run(&forebay, arguments);
        assert!(ran.status.success() && ran.stderr.is_empty(), "{arguments:?}: {ran:?}");
    }
    let mistyped = run(&forebay, &["reprodcue", "bundler"]);
    assert_eq!(mistyped.status.code(), Some(2));
    assert!(text(&mistyped.stderr).contains("'reproduce'"), "{mistyped:?}");
}

#[test]
fn help_pages_and_completion_have_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let forebay = installed(folder.path());
    let [help, page, script] =
        [&["--help"][..], &["man"], &["completions", "fish"]].map(|it| run(&forebay, it).stdout);
    for name in ["status", "sendbox", "reproduce", "platforms"] {
        for told in [&help, &page, &script] {
            assert!(text(told).contains(name), "{name}: {}", text(told));
        }
    }
    let note = "Commands for researchers need the package forebay-experiments.";
    assert!(text(&help).contains(note), "{help:?}");
}
