//! Exit codes of every command: 0 done, 1 failed, 2 arguments or files are wrong.
#![cfg(feature = "host")]

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use clap::{CommandFactory, Subcommand};
use forebay::{Cli, laboratory};

/// A configuration without mistakes, but for its key file.
const CONFIG: &str = include_str!("../../receivebox/tests/box.toml");

/// Command lines that end with 0.
const DONE: [&str; 22] = [
    "--help",
    "apply --help",
    "bench --list",
    "capture ccperf/deep_buffers --set stop=1s --qlog done.qlog",
    "check-config box.toml",
    "check-config box.toml --json",
    "completions bash",
    "explain --help",
    "keygen new.key",
    "list algorithms",
    "list plans bundler/main",
    "man status",
    "new-algorithm done_cc --source SOURCES",
    "plan check bundler/main",
    "plan schema",
    "regret --seeds 1 --plan",
    "reproduce bundler --list",
    "search --list",
    "sensitivity --list",
    "status --schema",
    "trace constant --rate 24Mbit/s",
    "trace lte --seconds 1",
];

/// Command lines that end with 1: no box runs, a device is missing, or the peer does not answer. A box waits for a
/// missing device.
const FAILED: [&str; 12] = [
    "apply box.toml --socket none.sock",
    "apply --dry-run box.toml",
    "confirm --socket none.sock",
    "doctor nonesuch0",
    "explain b --socket none.sock",
    "plan box.toml",
    "probe 127.0.0.1:1",
    "record --socket none.sock",
    "reload --socket none.sock",
    "revert --socket none.sock",
    "status --socket none.sock",
    "top --once --socket none.sock",
];

/// Command lines that end with 1 for a user other than root.
const WITHOUT_ROOT: [&str; 9] = [
    "agent --algorithm highspeed --control agent.sock",
    "bench cubic --backend emu --only deep_buffers --out out",
    "capture bundler/main --backend emu --pcapng no.pcapng",
    "demo --quick",
    "link -- true",
    "native --algorithm cubic",
    "platforms --what cpu",
    "run bundler/main --backend emu",
    "search cubic --backend emu",
];

/// Command lines that end with 2. Each command also ends so with an unknown option.
const WRONG: [&str; 41] = [
    "agent --algorithm nonesuch",
    "apply box.toml --confirm 1s",
    "apply none.toml",
    "bench nonesuch",
    "bench cubic --only nonesuch",
    "capture bundler/main --arm nonesuch --qlog q",
    "chaos --backend nonesuch",
    "check-config none.toml",
    "check-config none.toml --json",
    "compare none none",
    "compare-ns3 --file none",
    "completions nonesuch",
    "confirm nonesuch",
    "doctor --config none.toml",
    "explain",
    "export none",
    "init sendbox --peer nonsense --to nonsense",
    "keygen bundle.key",
    "link --rate 10 -- true",
    "list nonesuch",
    "list plans nonesuch",
    "man nonesuch",
    "native --algorithm nonesuch",
    "new-algorithm 0",
    "plan",
    "plan check nonesuch",
    "platforms --algorithm nonesuch",
    "probe 224.0.0.1",
    "receivebox --config none.toml",
    "regret --seeds 5..1",
    "replay none",
    "report none",
    "reproduce nonesuch",
    "run bundler/main --arms nonesuch --backend sim",
    "run bundler/main --set flow.web.transport=quic --backend sim",
    "run nonesuch",
    "search nonesuch",
    "sendbox --config box.toml",
    "sensitivity nonesuch",
    "top --sort nonesuch --once",
    "trace show none",
];

/// Runs a command line in `folder`, as this user or as `nobody`.
fn ended(folder: &Path, line: &str, as_nobody: bool) -> Output {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let words = line.split(' ').map(|word| word.replace("SOURCES", sources));
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).args(words).stdin(Stdio::null());
    if as_nobody && nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().unwrap()
}

fn all_end_with(code: i32, lines: &[&str], as_nobody: bool) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("box.toml"), CONFIG).unwrap();
    let made = ended(folder.path(), "keygen bundle.key", false);
    assert!(made.status.success(), "{made:?}");
    let mut wrong = Vec::new();
    for line in lines {
        let output = ended(folder.path(), line, as_nobody);
        if output.status.code() != Some(code) {
            wrong.push(format!("{line}: {output:?}"));
        }
    }
    assert!(wrong.is_empty(), "expected exit code {code}:\n{}", wrong.join("\n"));
}

/// The visible commands.
fn commands() -> BTreeSet<String> {
    fn names<C: Subcommand>() -> Vec<String> {
        let cli = Cli::<C>::command();
        let visible = cli.get_subcommands().filter(|it| !it.is_hide_set());
        visible.map(|it| it.get_name().to_string()).collect()
    }
    let of_laboratory = laboratory::COMMANDS.map(|(name, _)| name.to_string());
    names::<forebay::Command>().into_iter().chain(of_laboratory).collect()
}

#[test]
fn each_command_exits_as_documented() {
    all_end_with(0, &DONE, false);
    all_end_with(1, &FAILED, false);
    all_end_with(2, &WRONG, false);
}

#[test]
fn missing_root_exits_with_1() {
    all_end_with(1, &WITHOUT_ROOT, true);
}

#[test]
fn unknown_option_of_each_command_exits_with_2() {
    let commands = commands();
    assert!(commands.len() > 35, "{commands:?}");
    let lines: Vec<String> = commands.iter().map(|name| format!("{name} --nonesuch")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    all_end_with(2, &lines, false);
    let tabled = DONE.iter().chain(&FAILED).chain(&WITHOUT_ROOT).chain(&WRONG);
    let tabled: BTreeSet<&str> = tabled.filter_map(|line| line.split(' ').next()).collect();
    // It needs a device that the machine may have.
    let missing =
        commands.iter().filter(|name| !tabled.contains(name.as_str()) && *name != "triangle");
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "commands without a row");
}
