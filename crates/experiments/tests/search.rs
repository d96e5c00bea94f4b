//! `forebay search`: running the plan that it writes gives the figures that it prints.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

#[cfg(feature = "host")]
use forebay_skips::{Need, skip_without};
use serde_json::Value;

/// Runs of milliseconds.
const SPACE: &str = r#"
stop   = "2s"
warmup = "500ms"
rate   = { min = "1Mbit/s", max = "3Mbit/s" }
rtt    = { min = "10ms", max = "40ms" }
buffer = 1
loss   = { min = "0%", max = "1%" }
[service]
events  = 2
longest = "300ms"
rate    = { min = "0%", max = "80%" }
share   = "20%"
[plain]
rate   = ["2Mbit/s"]
rtt    = ["20ms"]
buffer = [1]
"#;

fn forebay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn written_plan_runs_to_reported_figures() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("space.toml"), SPACE).unwrap();
    let search = [
        "search",
        "cubic",
        "--metric",
        "queueing",
        "--space",
        "space.toml",
        "--runs",
        "48",
        "--json",
    ];
    let found = document(&forebay(folder.path(), &search));
    assert_eq!(found["plain"].as_array().unwrap().len(), 1);
    assert!(found["simple"]["times_worse"].as_f64().unwrap() > 1.0, "{found:#}");
    let plan = found["plan"].as_str().unwrap();
    assert_eq!(plan, "out/search/cubic-queueing.toml");
    let run = ["run", plan, "--backend", "sim", "--json"];
    let runs = document(&forebay(folder.path(), &run));
    let delay = |run: &Value| {
        let links = run["links"].as_array().unwrap().iter();
        let forward = links.clone().find(|link| link["name"] == "forward").unwrap();
        forward["metrics"]["sojourn_mean_ms"].as_f64().unwrap()
    };
    let delays: Vec<f64> = runs["runs"].as_array().unwrap().iter().map(delay).collect();
    let told: Vec<f64> = found["simple"]["by_seed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_f64().unwrap())
        .collect();
    assert_eq!((delays.len(), told.len()), (3, 3));
    // The score is rounded to 12 digits.
    assert!(delays.iter().zip(&told).all(|(delay, told)| (delay / told - 1.0).abs() < 1e-11));
    let again = forebay(folder.path(), &search[..search.len() - 1]);
    let said = text(&again.stdout);
    assert!(said.contains("\n0 cases run, ") && said.contains("simplified"), "{said}");
}

#[test]
fn refuses_impossible_searches_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    fs::write(folder.path().join("wrong.toml"), SPACE.replace("\"20%\"", "\"70%\"")).unwrap();
    for (arguments, expected) in [
        (&["cubik"][..], "ALGORITHM \"cubik\": kind = cubik: allowed is one of "),
        (&["cubic", "--metric", "speed"], "--metric: no metric \"speed\": allowed is one of util"),
        (&["cubic", "--space", "none.toml"], "none.toml: no such file, and no space with"),
        (
            &["cubic", "--space", "wrong.toml"],
            "wrong.toml:12: service.share = \"70%\": allowed is a",
        ),
        (&["cubic", "--budget", "soon"], "is not a duration"),
        (&["cubic", "--runs", "9", "--budget", "10m"], "cannot be used with"),
        (&["cubic", "--out", "file/deeper"], "--out file/deeper: "),
        (&["linux:cubik"], "ALGORITHM \"cubik\": kind = cubik: allowed is one of "),
        (&["cubic", "--backend", "ns3"], "--backend ns3: allowed is one of sim, emu"),
        (&["cubic", "--docs", "docs"], "--docs: allowed with --backend emu"),
        (&["cubic", "--docs", "docs", "--self-test", "2"], "cannot be used with"),
        (&[], "<ALGORITHM>"),
    ] {
        let output = forebay(folder.path(), &[&["search"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{error}");
    }
    let listing = forebay(folder.path(), &["search", "--list"]);
    let listing = text(&listing.stdout);
    assert!(listing.contains("queueing (ms)") && listing.contains("The space alone,"), "{listing}");
}

#[test]
fn case_next_to_itself_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("space.toml"), SPACE).unwrap();
    let test = ["search", "kernel:cubic", "--space", "space.toml", "--self-test", "2"];
    let shown = forebay(folder.path(), &test);
    let shown = text(&shown.stdout);
    assert!(shown.ends_with(" of 2 comparisons called a finding, 0 not judged\n"), "{shown}");
    let json = document(&forebay(folder.path(), &[&test[..], &["--json"]].concat()));
    assert!(json["findings"].as_u64().unwrap() <= 1, "{json}");
    assert_eq!(json["comparisons"][1]["plain"][0]["by_seed"].as_array().unwrap().len(), 5);
}

#[cfg(feature = "host")]
#[test]
fn kernel_search_needs_root_and_known_algorithm() {
    use std::os::unix::process::CommandExt;

    let folder = tempfile::tempdir().unwrap();
    let mut search = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    search.current_dir(&folder).args(["search", "linux:cubic", "--backend", "emu"]);
    if nix::unistd::geteuid().is_root() {
        // The user ID of `nobody` on Debian.
        search.uid(65534).gid(65534);
    }
    let refused = search.output().unwrap();
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    assert!(
        error.ends_with("or simulate:\n  forebay search linux:cubic --backend sim\n"),
        "{error}"
    );
    assert!(!folder.path().join("out").exists());
    if skip_without(Need::Root) {
        return;
    }
    for (arguments, expected) in [
        (
            &["linux:cubik"][..],
            "flow.tested.cc = kernel:cubik: allowed is an algorithm of this kernel",
        ),
        (&["cubic(hystart=off)"], "flow.tested.cc = kernel:cubic(hystart=off): allowed is a name"),
        (&["linux:cubic", "--jobs", "2"], "--jobs 2: allowed is 1 with --backend emu"),
    ] {
        let all = [&["search", "--backend", "emu"], arguments].concat();
        let refused = forebay(folder.path(), &all);
        let error = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!folder.path().join("out").exists());
    }
}
