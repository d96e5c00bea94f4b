//! The rules of the house that a compiler does not check.

mod circles;
mod constants;
mod events;
mod idioms;
mod lines;
mod names;
mod pipeline;
mod prose;
mod sources;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(repository()).args(arguments).args(["--locked", "--offline"]);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The packages of the workspace.
fn packages() -> Vec<Value> {
    let output = cargo(&["metadata", "--format-version", "1", "--no-deps"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Allowed dependencies between crates: `docs/internals/architecture.md`. Development dependencies are free.
const ARROWS: [(&str, &[&str]); 22] = [
    ("forebay-core", &[]),
    ("forebay-capi", &["forebay-core"]),
    ("forebay-bpf-algorithms", &["forebay-core"]),
    ("forebay-ebpf", &["forebay-core"]),
    ("forebay-scenario", &["forebay-core"]),
    ("forebay-sim", &["forebay-core", "forebay-scenario"]),
    ("forebay-policy", &["forebay-core"]),
    ("forebay-reader", &["forebay-core"]),
    ("forebay-host", &["forebay-core", "forebay-ebpf", "forebay-policy", "forebay-reader"]),
    ("forebay-receivebox", &["forebay-host"]),
    (
        "forebay-testbed",
        &["forebay-core", "forebay-ebpf", "forebay-host", "forebay-policy", "forebay-scenario"],
    ),
    (
        "forebay-lab",
        &[
            "forebay-core",
            "forebay-host",
            "forebay-policy",
            "forebay-reader",
            "forebay-scenario",
            "forebay-sim",
            "forebay-testbed",
        ],
    ),
    (
        "forebay-studies",
        &[
            "forebay-core",
            "forebay-lab",
            "forebay-policy",
            "forebay-reader",
            "forebay-scenario",
            "forebay-sim",
        ],
    ),
    ("forebay", &["forebay-core", "forebay-host", "forebay-policy", "forebay-sources"]),
    (
        "forebay-experiments",
        &[
            "forebay",
            "forebay-core",
            "forebay-host",
            "forebay-lab",
            "forebay-policy",
            "forebay-scenario",
            "forebay-sources",
            "forebay-studies",
            "forebay-testbed",
        ],
    ),
    (
        "forebay-python",
        &["forebay-core", "forebay-lab", "forebay-policy", "forebay-sources", "forebay-studies"],
    ),
    (
        "forebay-fuzz",
        &[
            "forebay-core",
            "forebay-ebpf",
            "forebay-host",
            "forebay-lab",
            "forebay-policy",
            "forebay-reader",
        ],
    ),
    ("forebay-purity", &["forebay-core"]),
    ("forebay-package", &[]),
    ("forebay-skips", &[]),
    ("forebay-sources", &[]),
    (
        "xtask",
        &[
            "forebay-core",
            "forebay-host",
            "forebay-lab",
            "forebay-package",
            "forebay-policy",
            "forebay-reader",
            "forebay-scenario",
            "forebay-skips",
            "forebay-sources",
        ],
    ),
];

#[test]
fn crates_know_only_whom_they_may() {
    let packages = packages();
    let members: BTreeSet<&str> = packages.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let planned: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(members, planned, "a crate without arrows: list its allowed dependencies in ARROWS");
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let (_, allowed) = ARROWS.iter().find(|(planned, _)| *planned == name).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let known = dependency["name"].as_str().unwrap();
            if dependency["kind"] == "dev" || !members.contains(known) {
                continue;
            }
            assert!(allowed.contains(&known), "{name} must not depend on {known}");
        }
    }
}

/// Crates that no daemon contains: the laboratory and its parts.
const OF_THE_LABORATORY: [&str; 8] = [
    "forebay-experiments",
    "forebay-lab",
    "forebay-sim",
    "forebay-studies",
    "forebay-testbed",
    "libsqlite3-sys",
    "parquet",
    "rusqlite",
];

#[test]
fn the_daemon_carries_no_laboratory() {
    let tree = |package: &str| {
        let cargo = cargo(&["tree", "-p", package, "-e", "normal,build", "--prefix", "none"]);
        let output = { cargo }.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text.lines().filter_map(|line| line.split(' ').next());
        names.map(String::from).collect::<BTreeSet<String>>()
    };
    let (forebay, experiments) = (tree("forebay"), tree("forebay-experiments"));
    assert!(forebay.contains("forebay-host") && forebay.contains("libbpf-rs"), "{forebay:?}");
    for name in OF_THE_LABORATORY {
        assert!(!forebay.contains(name), "forebay is built with {name}");
        assert!(experiments.contains(name), "the laboratory has no {name}: has it a new name?");
    }
    // Its charts are drawn by Vega, which is a script and no crate.
    let assets = ["-rlE", "include_(str|bytes)!\\(.*(vega|assets)", "crates/app", "crates/host"];
    let found = Command::new("grep").current_dir(repository()).args(assets).output().unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
}

/// Items of `core::bundle` that other crates may name: its endpoints, and the plain types of their inputs and
/// outputs.
const OF_A_BUNDLE: [&str; 10] = [
    "mod receivebox",
    "mod sendbox",
    "mod table",
    "mod tuning",
    "mod waits",
    "use self::control::{decision, uplink}",
    "use self::path::sample::nat::Nat",
    "use self::path::sample::{BlockVersion, BlockVersions, SampleBlock, SamplingKey}",
    "use self::path::{sample, segments, spans}",
    "use self::protocol::{endpoint, keys, mtu, paths, peer, scope, wire}",
];

/// Crates that run the conformance suites: fuzz targets, and the package for Python on classes.
const ASK_THE_RULES: [&str; 2] = ["forebay-fuzz", "forebay-python"];

/// Prevents simulators and daemons from building their own box out of the parts.
#[test]
fn a_bundle_is_driven_through_its_endpoints_alone() {
    let text = std::fs::read_to_string(repository().join("crates/core/src/bundle/mod.rs")).unwrap();
    let public = text.lines().filter_map(|line| line.strip_prefix("pub ")?.strip_suffix(';'));
    let named = public.filter(|it| it.starts_with("mod ") || it.starts_with("use "));
    assert_eq!(named.collect::<Vec<_>>(), OF_A_BUNDLE);
    for package in packages() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let features = dependency["features"].as_array().unwrap();
            let has_parts =
                dependency["name"] == "forebay-core" && features.contains(&Value::from("testing"));
            let name = package["name"].as_str().unwrap();
            let is_of_tests = dependency["kind"] == "dev" || ASK_THE_RULES.contains(&name);
            assert!(!has_parts || is_of_tests, "{name} uses core's parts");
        }
    }
}

#[test]
fn core_is_pure() {
    let build = |extra: &[&str]| {
        let mut command =
            cargo(&["build", "--quiet", "-p", "forebay-purity", "--profile", "purity"]);
        command.args(extra).output().unwrap()
    };
    let pure = build(&[]);
    assert!(pure.status.success(), "something below core needs std:\n{}", stderr(&pure));
    let leaking = build(&["--features", "leak"]);
    assert!(!leaking.status.success(), "the proof does not notice std");
    assert!(stderr(&leaking).contains("panic_impl"), "{}", stderr(&leaking));
}

/// Tools that a Rust build without C needs in addition to cargo: a linker and an archiver. The bundled SQLite wants
/// a C compiler, but not clang.
const TOOLS: [&str; 6] = ["cc", "gcc", "ld", "ar", "as", "git"];

#[test]
fn the_simulator_side_builds_without_clang() {
    let tools = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in TOOLS {
        let found =
            std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|it| it.exists());
        let found = found.unwrap_or_else(|| panic!("{tool} is not installed"));
        std::os::unix::fs::symlink(found, tools.path().join(tool)).unwrap();
    }
    let rust = Path::new(env!("CARGO")).parent().unwrap();
    let narrow = std::env::join_paths([tools.path(), rust]).unwrap();
    // A separate folder: other tests expect the binary with `host`, and other builds use clang.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without-host");
    let without_host = [
        "build",
        "--quiet",
        "-p",
        "forebay-experiments",
        "--no-default-features",
        "--profile",
        "purity",
    ];
    let output = cargo(&without_host)
        .env("PATH", &narrow)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!tools.path().join("clang").exists());
    for arguments in [
        &["demo", "--quick"][..],
        &["run", "bundler/main", "--backend", "emu"],
        &["sendbox", "--config", "any.toml"],
        &["agent", "--algorithm", "cubic"],
        &["platforms"],
    ] {
        let output = Command::new(target.join("purity/forebay-experiments"))
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("--no-default-features"), "{}", stderr(&output));
    }
    let tree = cargo(&[
        "tree",
        "-p",
        "forebay-experiments",
        "--no-default-features",
        "-e",
        "normal,build",
    ])
    .output()
    .unwrap();
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    assert!(tree.contains("forebay-lab"), "{tree}");
    for needs_clang in ["libbpf", "forebay-ebpf", "forebay-host", "forebay-testbed"] {
        assert!(!tree.contains(needs_clang), "{needs_clang} is in a build without `host`:\n{tree}");
    }
}

/// Documentation tests would cost minutes of rustdoc for a few examples. Each example is a test in a file
/// instead, which the documentation includes.
#[test]
fn no_library_has_tests_in_its_documentation() {
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let is_library = target["kind"].as_array().unwrap().contains(&Value::from("lib"));
            assert!(
                !is_library || target["doctest"] == false,
                "{}: doctest = false",
                package["name"]
            );
        }
    }
    let search = ["-rnE", "--include=*.rs", r"^\s*//[/!] ```(.+)?$", "crates", "xtask", "fuzz"];
    let found = Command::new("grep").current_dir(repository()).args(search).output().unwrap();
    assert!(found.status.success(), "{}", stderr(&found));
    // Opening and closing fences alternate.
    for opening in String::from_utf8_lossy(&found.stdout).lines().step_by(2) {
        assert!(
            !opening.ends_with("```"),
            "no test runs this example; mark text that is no Rust: {opening}"
        );
    }
}

/// Else `make test` does not list it.
#[test]
fn every_test_that_is_skipped_is_recorded() {
    let search = ["-rlF", "--include=*.rs", "\"skipped: ", "crates"];
    let found = Command::new("grep").current_dir(repository()).args(search).output().unwrap();
    let files = String::from_utf8_lossy(&found.stdout);
    // 1: nowhere.
    assert_eq!(found.status.code(), Some(1), "print it by `forebay_skips::skip_without`: {files}");
}
