//! The commands that watch boxes, asked of a box that the test plays: no root, no traffic.
#![cfg(feature = "host")]

mod played;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use forebay_host::daemon::record::{About, Look, Recording};
use forebay_host::daemon::status::BundleStatus;
use serde_json::Value;

use played::{Played, status};

fn forebay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn top_needs_once_without_terminal() {
    let played = Played::start(env!("CARGO_BIN_EXE_forebay"));
    let once = played.run(&["top", "--socket", "box.sock", "--once"]);
    let shown = text(&once.stdout);
    assert!(once.status.success() && !shown.contains('\x1b'), "{once:?}");
    assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
    assert!(
        shown.contains(" berlin         shaping ") || shown.contains(" berlin         competing"),
        "{shown}"
    );
    let refused = played.run(&["top", "--socket", "box.sock"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("allowed is --once"), "{refused:?}");
    let unknown = played.run(&["top", "--socket", "box.sock", "--sort", "x"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("--sort x: allowed is one of bundle, state"),
        "{unknown:?}"
    );
    let filtered = played.run(&["top", "--socket", "box.sock", "--once", "--filter", "paris"]);
    assert!(!text(&filtered.stdout).contains("berlin"));
}

#[test]
fn schema_is_printed_without_daemon() {
    let played = Played::start(env!("CARGO_BIN_EXE_forebay"));
    let schema = played.run(&["status", "--schema"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let document = played.run(&["status", "--json", "--socket", "box.sock"]);
    let document: Value = serde_json::from_slice(&document.stdout).unwrap();
    let described = &schema["$defs"]["ShapingStatus"]["properties"];
    for key in document["boxes"][0]["bundles"][0]["shaping"].as_object().unwrap().keys() {
        assert!(described[key].is_object(), "{key}");
    }
}

#[test]
fn what_is_recorded_is_explained_without_the_laboratory() {
    let played = Played::start(env!("CARGO_BIN_EXE_forebay"));
    let config = "[box]\nrole = \"sendbox\" # SECRET\n";
    fs::write(played.path("box.toml"), config).unwrap();
    fs::write(played.path("box.log"), "2026 WARN FB0202 peer: silent\n").unwrap();
    let recorded = played.record(&["--config", "box.toml", "--log", "box.log"]);
    assert!(recorded.status.success(), "{recorded:?}");
    assert_eq!(text(&recorded.stdout), "a.tar.gz\n");
    let again = played.run(&["record", "--socket", "box.sock", "--out", "a.tar.gz"]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(text(&again.stderr).contains("--out a.tar.gz: allowed is a new file"));

    let explained = played.run(&["replay", "a.tar.gz", "--explain"]);
    let told = text(&explained.stdout);
    assert!(explained.status.success(), "{explained:?}");
    for part in [
        "sendbox bundle berlin: shaping, shaped to 11.0 Mbit/s: as the test has it; 20.00 ms of round trip",
        "sendbox bundle berlin: competing, unshaped: as the test has it",
        "FB0202",
    ] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    assert!(!told.contains("In the simulator"), "{told}");

    let json = played.run(&["replay", "a.tar.gz", "--json", "--explain"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["about"]["format"], 1);
    // Without the laboratory's program next to it there is no simulator.
    fs::copy(env!("CARGO_BIN_EXE_forebay"), played.path("forebay")).unwrap();
    let mut alone = Command::new(played.path("forebay"));
    let refused = alone.arg("replay").arg(played.path("a.tar.gz")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        text(&refused.stderr)
            .contains("`forebay replay FILE` without `--explain` needs the package"),
        "{refused:?}"
    );
}

#[test]
fn replay_takes_less_memory_than_the_looks() {
    /// Size of the unpacked recording (bytes); a replay may use 16 MiB more.
    const UNPACKED: usize = 48 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(About { format: 1, ..About::default() });
    let mut looks = 0;
    let mut bytes = 0;
    while bytes < UNPACKED {
        let mut status = status(Duration::from_secs(looks));
        let bundle = status.bundles[0].clone();
        status.bundles = (0..100)
            .map(|id| BundleStatus { name: format!("site-{id}"), id, ..bundle.clone() })
            .collect();
        let look = Look { at_s: looks as f64, boxes: vec![status] };
        bytes += serde_json::to_vec(&look).unwrap().len();
        assert!(recording.add(look));
        looks += 1;
    }
    fs::write(folder.path().join("a.tar.gz"), recording.to_file().unwrap()).unwrap();
    // Memory of its own (RLIMIT_DATA), in KiB: little more than the text of the looks alone.
    let limited = format!(
        "ulimit -d {} && exec {} replay a.tar.gz --explain --json",
        (UNPACKED >> 10) + (16 << 10),
        env!("CARGO_BIN_EXE_forebay")
    );
    let mut command = Command::new("sh");
    let told = command.current_dir(folder.path()).args(["-c", &limited]).output().unwrap();
    assert!(told.status.success(), "{} bytes: {told:?}", bytes);
    let document: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(document["moments_left_out"], 0);
    assert!(document["story"].as_array().unwrap().len() > 100);
}

#[test]
fn refuses_file_that_only_begins_like_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x"), [0x1f, 0x8b, 8, 0, 1, 2, 3]).unwrap();
    let refused = forebay(folder.path(), &["replay", "x", "--explain"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("x: not an archive of `forebay record`"), "{refused:?}");
    assert!(refused.stdout.is_empty() && fs::read_dir(folder.path()).unwrap().count() == 1);
}

#[test]
fn log_format_is_text_or_json() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let refused =
        command.env("FOREBAY_LOG_FORMAT", "xml").args(["list", "qdiscs"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let told = text(&refused.stderr);
    assert_eq!(told, "error: FOREBAY_LOG_FORMAT=xml: allowed is text or json\n");
}
