//! The program accepts the configuration files of `forebay`, and refuses the same mistakes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use forebay_host::daemon::Config;

/// A valid configuration file.
const FILE: &str = include_str!("box.toml");

fn run(arguments: &[&str], folder: &Path) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_forebay-receivebox"));
    program.args(arguments).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn files_of_receiveboxes_are_checked_with_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("box.toml"), FILE).unwrap();
    let missing = run(&["check-config", "box.toml"], folder);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("bundle.key"), "{missing:?}");
    assert!(run(&["keygen", "bundle.key"], folder).status.success());
    let again = run(&["keygen", "bundle.key"], folder);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    let checked = run(&["check-config", "box.toml"], folder);
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(text(&checked.stdout), "box.toml: receivebox watches wan0 for b\n");
}

#[test]
fn refusals_are_those_of_forebay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (key, value) in [
        ("id = 1", "id = 70000"),
        ("role = \"receivebox\"", "role = \"sendbox\""),
        ("wan = ", "wlan = "),
        ("10.1.1.0/24", "10.1.1.0/33"),
    ] {
        let file = folder.join("box.toml");
        fs::write(&file, FILE.replace(key, value)).unwrap();
        let path = file.to_str().unwrap();
        let expected = Config::load_all(&file).unwrap_err().to_string();
        for command in [&["check-config", path][..], &["receivebox", "--config", path]] {
            let refused = run(command, folder);
            assert_eq!(refused.status.code(), Some(2), "{value}: {refused:?}");
            assert_eq!(text(&refused.stderr), format!("error: {expected}\n"), "{command:?}");
        }
    }
}

#[test]
fn sendboxes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sendbox = FILE
        .replace("role = \"receivebox\"", "role = \"sendbox\"\nlan = \"lan0\"")
        .replace("from = [\"10.1.1.0/24\"]", "cc = \"copa\"");
    fs::write(folder.join("box.toml"), sendbox).unwrap();
    for command in [&["check-config", "box.toml"][..], &["receivebox", "--config", "box.toml"]] {
        let refused = run(command, folder);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains("receivebox"), "{refused:?}");
    }
}

#[test]
fn status_fails_without_a_running_box() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["status", "reload"] {
        let failed = run(&[command, "--socket", "none.sock"], folder.path());
        assert_eq!(failed.status.code(), Some(1));
        assert!(text(&failed.stderr).starts_with("error: none.sock: "), "{failed:?}");
    }
}
