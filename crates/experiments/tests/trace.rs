//! `forebay trace`: its output, the target of the output, and refusals of bad input.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use forebay_core::link::Trace;

fn trace(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).arg("trace").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn only_the_trace_goes_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let output = trace(folder.path(), &["constant", "--rate", "24Mbit/s", "--duration", "2ms"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "1\n1\n2\n2\n");
    assert!(output.stderr.is_empty() && files(folder.path()).is_empty());
}

#[test]
fn same_seed_writes_same_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let poisson = ["poisson", "--rate", "2.64Mbit/s", "--cold-start", "1s", "--seed"];
    let written = |seed: &str, name: &str| {
        fs::write(folder.path().join(name), "an older trace").unwrap();
        let arguments = [&poisson[..], &[seed, "--force", "--out", name]].concat();
        let output = trace(folder.path(), &arguments);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        fs::read_to_string(folder.path().join(name)).unwrap()
    };
    let first = written("1", "1.trace");
    assert_eq!(first, written("1", "1.trace"));
    assert_ne!(first, written("2", "2.trace"));
    let mut found = files(folder.path());
    found.sort_unstable();
    assert_eq!(found, ["1.trace", "2.trace"]);
    let parsed = Trace::parse("1.trace", &first).unwrap();
    let mbit_per_sec = parsed.mean_rate().as_mbit_per_sec_f64();
    // Less a cold start of a sixtieth, 2.604 Mbit/s; five standard errors of 13,000 packets.
    assert!((2.49..2.72).contains(&mbit_per_sec), "{mbit_per_sec}");
}

#[test]
fn refusals_name_option_value_and_allowed_values() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["constant"][..], "--rate <RATE>"),
        (&["constant", "--rate", "10"], "\"10\" is not a rate such as"),
        (&["constant", "--rate", "1Mbit/s", "--duration", "0s"], "--duration 0ns: allowed is 1ms"),
        (
            &["constant", "--rate", "100Gbit/s", "--out", "a.trace"],
            "--rate 100Gbit/s: allowed is at most 10Gbit/s",
        ),
        (
            &["poisson", "--rate", "1Mbit/s", "--cold-start", "2min", "--out", "a.trace"],
            "--cold-start 120s: allowed is at most the duration, 60s",
        ),
        (&["poisson", "--rate", "1Mbit/s", "--seed=-1"], "'-1' for '--seed"),
    ] {
        let output = trace(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected), "{stderr}");
        assert!(output.stdout.is_empty());
    }
    assert!(files(folder.path()).is_empty());
}

#[test]
fn existing_file_stays_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    fs::write(&path, "a trace").unwrap();
    let arguments = ["constant", "--rate", "12Mbit/s", "--duration", "1ms", "--out", "a.trace"];
    let refused = trace(folder.path(), &arguments);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--out a.trace: the file exists"), "{refused:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a trace");
    let forced = trace(folder.path(), &[&arguments[..], &["--force"]].concat());
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    assert_eq!(
        trace(folder.path(), &["constant", "--rate", "1Mbit/s", "--force"]).status.code(),
        Some(2)
    );
}

#[test]
fn failed_write_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for out in ["missing/a.trace", "."] {
        let output = trace(folder.path(), &["constant", "--rate", "12Mbit/s", "--out", out]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(&format!("cannot write {out}")), "{output:?}");
    }
    assert!(files(folder.path()).is_empty());
}

#[test]
fn show_says_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.csv"), "\u{feff}time_s,rate_mbps,delay_ms\n0,10,5\n2,20,9\n")
        .unwrap();
    fs::write(folder.path().join("slow.trace"), "1000\n2000\n").unwrap();
    let shown = trace(folder.path(), &["show", "a.csv"]);
    let line = "a.csv: CSV, rows: 2, 4 s, mean rate 15.000 Mbit/s, one-way delay 5 to 9 ms, longest gap 2 s\n";
    assert_eq!(text(&shown.stdout), line);
    assert!(shown.stderr.is_empty());
    let shown = trace(folder.path(), &["show", "slow.trace"]);
    let warning = "warning: slow.trace: read as times in ms: mean rate 0.012 Mbit/s, longest gap 1s, over 2s;";
    assert!(text(&shown.stderr).starts_with(warning), "{shown:?}");
    let json = trace(folder.path(), &["show", "--json", "slow.trace"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["format"], &json["unit"]), (&"mahimahi".into(), &"ms".into()));
    assert_eq!(
        (json["duration_s"].as_f64(), json["longest_gap_s"].as_f64()),
        (Some(2.0), Some(1.0))
    );
    assert_eq!(json["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn convert_writes_our_forms() {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in [
        ("bw.txt", "10\n20\n30\n"),
        ("delay.txt", "24\n18\n"),
        (
            "iperf.json",
            "{\"intervals\":[{\"sum\":{\"start\":0,\"end\":2,\"bits_per_second\":5e6}}]}",
        ),
        ("sizes.csv", "4000,0\n5000,1\n"),
        ("sizes.txt", "0 0\n10000 15\n30000 100\n"),
        ("bad.csv", "time_s,loss\n0,0\n1,x\n"),
    ] {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    for (arguments, expected) in [
        (&["bw.txt", "--every", "30ms"][..], "time_ms,rate_mbps\n0,1.2112\n30,\n"),
        (
            &["bw.txt", "--every", "30ms", "--delays", "delay.txt"],
            "time_ms,rate_mbps,delay_ms\n0,1.2112,24\n10,1.2112,18\n20,1.2112,24\n30,,\n",
        ),
        (&["iperf.json"], "time_ms,rate_mbps\n0,5\n2000,\n"),
        (&["sizes.csv"], "4000 0\n5000 1\n"),
        (&["sizes.txt"], "0 0\n10000 0.15\n30000 1\n"),
    ] {
        let output = trace(folder.path(), &[&["convert"], arguments].concat());
        assert_eq!(text(&output.stdout), expected, "{output:?}");
    }
    let output = trace(folder.path(), &["convert", "iperf.json", "-o", "out.csv"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let again = trace(folder.path(), &["convert", "out.csv"]);
    assert_eq!(again.stdout, fs::read(folder.path().join("out.csv")).unwrap());
    for (arguments, expected) in [
        (&["bad.csv"][..], "bad.csv:3:3: \"x\": allowed is a share of the packets, 0 to 1"),
        (&["none.csv"], "none.csv: No such file"),
        (&["bw.txt", "--every", "1us"], "--every 1us: allowed is 1ms or more"),
    ] {
        let output = trace(folder.path(), &[&["convert"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}

#[test]
fn drawn_paths_repeat_and_are_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    for model in ["lte", "lte_att", "lte_tmobile", "lte_verizon", "leo", "wifi", "docsis", "adsl"] {
        let drawn = trace(folder.path(), &[model, "--seed", "3", "--seconds", "5"]);
        assert!(drawn.status.success() && drawn.stderr.is_empty(), "{drawn:?}");
        assert!(text(&drawn.stdout).starts_with("time_ms,rate_mbps,delay_ms,loss\n0,"), "{model}");
        assert!(text(&drawn.stdout).ends_with("\n5000,,,\n"), "{model}");
        let file = format!("{model}.csv");
        let arguments = [model, "--seed", "3", "--seconds", "5", "--json", "--out", &file];
        let json = trace(folder.path(), &arguments);
        assert_eq!(fs::read(folder.path().join(&file)).unwrap(), drawn.stdout);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["file"], format!("{model}(seconds=5, seed=3)"));
        assert_eq!(json["duration_s"], 5.0);
    }
    for (arguments, expected) in [
        (["lte", "--seconds", "0"], "--seconds"),
        (["lte", "--seconds", "3601"], "1..=3600"),
        (["lte", "--seed", "x"], "--seed"),
    ] {
        let output = trace(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}
