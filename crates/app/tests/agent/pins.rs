//! Pins that stay, the users who may take them, and refusals.

use std::fs;
use std::path::Path;
use std::process::Output;

use nix::sys::signal::Signal;

use super::running::{Bpffs, Running};
use super::{Transfer, forebay, is_decided, registered, text};

#[test]
fn next_agent_takes_over_pinned_name() {
    let folder = tempfile::tempdir().unwrap();
    let Some(pins) = Bpffs::mount(folder.path()) else { return };
    let pin = ["--pin", pins.0.to_str().unwrap()];
    let Some(mut first) = Running::start(folder.path(), "bic", &pin) else { return };
    let mut transfer = Transfer::start("fb_bic");
    transfer.send(50);
    first.status(is_decided);
    first.signal(Signal::SIGTERM);
    assert!(first.child.wait().unwrap().success());
    assert!(registered().contains("fb_bic"));
    transfer.send(300);
    let second = Running::start(folder.path(), "bic", &pin).unwrap();
    let mut chunks = 350;
    while !is_decided(&second.status(|status| status.is_object())) {
        transfer.send(50);
        chunks += 50;
        assert!(chunks < 50_000);
    }
    assert_eq!(transfer.end(), chunks << 16);
    second.status(|status| status["flows"].as_array().is_some_and(Vec::is_empty));
    fs::remove_dir_all(pins.0.join("fb_bic")).unwrap();
    second.stop();
}

/// Ends with 1 and this sentence, which names `folder`.
fn assert_refused(output: &Output, folder: &Path, part: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = text(&output.stderr);
    assert!(stderr.contains(part) && stderr.contains(folder.to_str().unwrap()), "{stderr}");
    let sentences = stderr.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(sentences.count(), 1, "{stderr}");
}

#[test]
fn second_agent_is_refused_pins_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let Some(pins) = Bpffs::mount(folder.path()) else { return };
    let pin = ["--pin", pins.0.to_str().unwrap()];
    let Some(first) = Running::start(folder.path(), "westwood", &pin) else { return };
    let arguments = ["agent", "--algorithm", "westwood", "--control", "other.sock"];
    let second = forebay(folder.path(), &[&arguments[..], &pin].concat()).output().unwrap();
    assert_refused(&second, &pins.0.join("fb_westwood"), "another process uses the pins");
    let mut transfer = Transfer::start("fb_westwood");
    transfer.send(50);
    first.status(is_decided);
    assert_eq!(transfer.end(), 50 << 16);
    fs::remove_dir_all(pins.0.join("fb_westwood")).unwrap();
    first.stop();
}

#[test]
fn refuses_and_keeps_pins_of_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let Some(pins) = Bpffs::mount(folder.path()) else { return };
    let strange = pins.0.join("fb_yeah/00000000");
    fs::create_dir_all(&strange).unwrap();
    let arguments = ["agent", "--algorithm", "yeah", "--control", "agent.sock", "--pin"];
    let arguments = [&arguments[..], &[pins.0.to_str().unwrap()]].concat();
    let output = forebay(folder.path(), &arguments).output().unwrap();
    assert_refused(&output, &pins.0.join("fb_yeah"), "`rm -r ");
    assert!(strange.exists() && !registered().contains("fb_yeah"));
}

#[test]
fn agent_without_control_socket_pins_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(pins) = Bpffs::mount(folder.path()) else { return };
    let Some(first) = Running::start(folder.path(), "htcp", &[]) else { return };
    let arguments = ["agent", "--algorithm", "lp", "--control", "agent.sock", "--pin"];
    let arguments = [&arguments[..], &[pins.0.to_str().unwrap()]].concat();
    let second = forebay(folder.path(), &arguments).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(text(&second.stderr).contains("another daemon answers"), "{second:?}");
    assert!(!pins.0.join("fb_lp").exists());
    first.stop();
}
