//! Algorithms of a user's own: `forebay new-algorithm` writes them, forebay builds them in, and their sources
//! distinguish them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn forebay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    // All crates but forebay itself have been built before.
    command.env("CARGO_NET_OFFLINE", "true");
    command.current_dir(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must refuse its input; gives its stderr.
fn refusal_of(folder: &Path, arguments: &[&str]) -> String {
    let output = forebay(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    assert!(output.stdout.is_empty(), "{output:?}");
    stderr(&output)
}

#[test]
fn refuses_folders_without_algorithm_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["bench", "./nonesuch", "cubic"][..],
        &["search", "agent:./nonesuch(x=1)"],
        &["run", "ccperf/deep_buffers", "--set", "aut=[\"cubic\", \"./nonesuch\"]"],
        &["plan", "check", "ccperf/deep_buffers", "--with", "nonesuch"],
        &["agent", "--algorithm", "mine=./nonesuch"],
        &["replay", "flows.recording", "--with", "nonesuch"],
    ] {
        let error = refusal_of(folder.path(), arguments);
        assert!(error.starts_with("error: ./nonesuch: No such file"), "{arguments:?}: {error}");
    }
    let error = refusal_of(folder.path(), &["bench", "."]);
    assert!(error.contains("./Cargo.toml: ") && error.contains("forebay new-algorithm"), "{error}");
    // A file that is no algorithm.
    let trace = ["plan", "check", "ccperf/deep_buffers", "--set", "bottleneck.trace=./nonesuch"];
    let error = refusal_of(folder.path(), &trace);
    assert!(error.contains("bottleneck.trace"), "{error}");
}

/// Runs cargo's tests of a crate that was written.
fn cargo_test(folder: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline"]).env("CARGO_TARGET_DIR", target("tests-of-own"));
    let output = cargo.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// A folder that is kept, so that the next run has little to build.
fn target(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Benchmarks both crates and cubic in a short experiment.
fn bench(folder: &Path) -> Output {
    let algorithms = ["./in_rust", "in_c/", "cubic"];
    let settings = ["--only", "deep_buffers", "--seeds", "1", "--json", "--out", "out"];
    let sets = ["--set", "stop=2s", "--set", "warmup=500ms"];
    forebay(folder, &[&["bench"], &algorithms[..], &settings, &sets].concat())
}

/// Crates of this program: cargo has built these before, and must not build them again for an algorithm. `forebay`, the
/// last one, is built again: the crate in C asks for other features of a crate that its build script uses.
const OF_PROGRAM: [&str; 8] = [
    "forebay-ebpf",
    "forebay-host",
    "forebay-lab",
    "forebay-policy",
    "forebay-reader",
    "forebay-sim",
    "forebay-studies",
    "forebay-testbed",
];

/// The benchmark's output, and the number of its runs for each of the three algorithms.
fn benched(folder: &Path) -> (Value, [usize; 3]) {
    let output = bench(folder);
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stderr(&output);
    let compiled = told.lines().filter_map(|line| line.trim().strip_prefix("Compiling "));
    let names = compiled.filter_map(|rest| rest.split(' ').next());
    let again: Vec<&str> = names.filter(|name| OF_PROGRAM.contains(name)).collect();
    assert!(again.is_empty(), "built a second time: {again:?}");
    let made = ["in_rust", "in_c", "cubic"].map(|name| {
        let of = format!("deep_buffers {name} ");
        told.lines().filter(|line| line.contains(&of) && !line.ends_with("in the store")).count()
    });
    (serde_json::from_slice(&output.stdout).unwrap(), made)
}

#[test]
#[ignore = "builds forebay again, for minutes: make test-own"]
fn rust_and_c_algorithms_rerun_after_a_change() {
    let folder = &target("own");
    // The crates have the same paths each time, so that cargo builds the same program again.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap();
    for arguments in [&["new-algorithm", "in_rust"][..], &["new-algorithm", "in_c", "--c"]] {
        let output = forebay(folder, arguments);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    ["in_rust", "in_c"].iter().for_each(|name| cargo_test(&folder.join(name)));

    let (first, made) = benched(folder);
    assert_eq!(made, [5; 3]);
    assert_eq!(first["scorecard"]["algorithms"], serde_json::json!(["in_rust", "in_c", "cubic"]));
    for score in first["scorecard"]["scores"].as_array().unwrap() {
        let answers = &score["answers"];
        assert_eq!(answers["in_rust"], answers["in_c"], "what both templates do is the same");
    }
    assert_eq!(benched(folder).1, [0; 3], "nothing is run twice");

    let file = folder.join("in_rust/src/lib.rs");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(".or(0.5)", ".or(0.8)")).unwrap();
    let (second, made) = benched(folder);
    assert_eq!(made, [5, 0, 0], "what changed is run again");
    assert_eq!(second["experiments"][0]["runs"], 15, "results of the old sources no longer count");
    assert_ne!(second["scorecard"], first["scorecard"]);

    let head = "fn on_measurement(&mut self, _now: Timestamp, measurement: &Measurement) {\n";
    let body = "println!(\"measured\"); assert!(_now.as_nanos() < 1_500_000_000, \"no idea\");\n";
    assert!(text.contains(head));
    fs::write(&file, text.replace(head, &format!("{head}{body}"))).unwrap();
    let output = bench(folder);
    let told = stderr(&output);
    let document: Value =
        serde_json::from_slice(&output.stdout).expect("nothing else is on stdout");
    assert_eq!(document["scorecard"]["algorithms"], serde_json::json!(["in_c", "cubic"]), "{told}");
    assert_ne!(output.status.code(), Some(101), "{told}");
    assert!(told.contains("measured"), "{told}");
    let is_named = |line: &str| line.contains("in_rust") && line.contains("seed 1");
    let broken = |line: &&str| line.contains("panicked: no idea") && is_named(line);
    assert!(told.lines().any(|line| broken(&line)), "{told}");

    fs::write(&file, text.replace("name: \"in_rust\"", "name: \"in_c\"")).unwrap();
    let refused = bench(folder);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("ALGORITHM: name = in_c: allowed is a name"), "{refused:?}");
    fs::write(&file, text.replace("pub const ALGORITHM", "const ALGORITHM")).unwrap();
    let refused = bench(folder);
    assert_eq!(refused.status.code(), Some(2));
    let told = stderr(&refused);
    assert!(
        told.contains("error[E0603]") && told.contains("export `pub const ALGORITHM"),
        "{told}"
    );
}
