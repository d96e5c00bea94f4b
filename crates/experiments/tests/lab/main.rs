//! The commands around experiments: their output, exit codes and JSON.

#[cfg(feature = "host")]
mod killed;

use std::process::{Command, Output, Stdio};

#[cfg(feature = "host")]
use forebay_skips::{Need, skip_without};

fn forebay(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    forebay(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; gives its stdout.
fn stdout_of(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must refuse its input; gives its stderr.
fn refusal_of(arguments: &[&str]) -> String {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn lists_name_what_can_be_asked_for() {
    for (what, expected) in [
        ("plans", "bundler/queue_shift"),
        ("paths", "rate 100.42Mbit/s, rtt 54ms"),
        ("algorithms", "setpoint"),
        ("qdiscs", "fq_codel"),
        ("receivers", "pieces [10]: pieces of each"),
        ("metrics", "slowdown_{class}_{q}"),
    ] {
        let list = stdout_of(&["list", what]);
        assert!(list.contains(expected), "{list}");
    }
    assert!(refusal_of(&["list", "nothing"]).contains("algorithms"));
    let metrics = stdout_of(&["list", "metrics"]);
    let jain =
        "    = sum(x_i)^2 / (n sum(x_i^2))\n    source: Jain, Chiu and Hawe, DEC-TR-301, 1984\n";
    assert!(metrics.contains(jain), "{metrics}");
    for what in ["plans", "algorithms", "qdiscs", "receivers", "metrics", "series"] {
        let json = stdout_of(&["list", what, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json.as_array().unwrap().iter().all(|it| it["name"].is_string()), "{json:#}");
        if what == "metrics" {
            let named = |it: &&serde_json::Value| it["name"] == "mean_qdisc_delay_l2";
            let entry = json.as_array().unwrap().iter().find(named).unwrap();
            assert_eq!((&entry["unit"], &entry["of"][0]), (&"ms".into(), &"link".into()));
            for key in ["definition", "formula", "source", "pooling"] {
                assert!(entry[key].is_string(), "{entry:#}");
            }
        }
    }
}

#[test]
fn plans_are_listed_in_a_line_each() {
    let list = stdout_of(&["list", "plans"]);
    assert!(list.lines().count() > 100 && list.lines().all(|line| line.contains("  ")), "{list}");
    assert!(list.lines().any(|line| line.starts_with("bundler/main ")), "{list}");
    let by_name = stdout_of(&["list", "plans", "QUEUE_SHIFT"]);
    let names: Vec<&str> = by_name.lines().filter_map(|it| it.split(' ').next()).collect();
    assert_eq!(names, ["bundler/queue_shift", "bundler/queue_shift_both"]);
    let title = list.lines().find_map(|it| it.strip_prefix("bundler/queue_shift ")).unwrap();
    let by_title = stdout_of(&["list", "plans", title.trim()]);
    assert!(by_title.contains("bundler/queue_shift "), "{by_title}");
    let json = stdout_of(&["list", "plans", "queue_shift", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2, "{json}");
    assert!(
        refusal_of(&["list", "plans", "queue_shfit"]).contains("; nearest is bundler/queue_shift")
    );
    assert!(refusal_of(&["list", "metrics", "x"]).contains("PATTERN x: allowed with"));
}

#[test]
fn misspelt_names_get_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for (arguments, nearest) in [
        (&["run", "bundler/mian"][..], "`forebay list plans`; nearest is bundler/main"),
        (&["plan", "check", "bundler/mian"], "; nearest is bundler/main"),
        (&["run", "bundler/main", "--arms", "status_qou"], "; nearest is status_quo"),
        (&["capture", "bundler/main", "--qlog", "q", "--arm", "status_qou"], "status_quo\n"),
        (&["bench", "cubic", "--only", "parkinglot", "--out", out], "; nearest is parking_lot"),
        (&["reproduce", "bundler", "--only", "mian"], "; nearest is main"),
        (&["reproduce", "bundlr"], "; nearest is bundler"),
        (&["man", "statsu"], "; nearest is status"),
        (&["search", "cubci"], "; nearest is cubic"),
        (&["search", "cubic", "--metric", "utilisation"], "; nearest is utilization"),
        (&["run", "bundler/main", "--set", "bottleneck.qdisc=fqcodel"], "; nearest is fq_codel"),
        (&["run", "bundler/main", "--backend", "sims"], "; nearest is sim"),
    ] {
        let error = refusal_of(arguments);
        assert!(error.contains(nearest), "{arguments:?}: {error}");
    }
}

#[test]
fn quiet_run_prints_results_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let run = ["run", "ccperf/deep_buffers", "--backend", "sim", "--seed", "1", "--set", "stop=9s"];
    let output = output(&[&run[..], &["--set", "aut=cubic", "--quiet", "--out", out]].concat());
    let error = text(&output.stderr);
    assert!(!error.contains("after") && !error.contains("[1/"), "{error}");
    assert!(text(&output.stdout).contains("report: "), "{}", text(&output.stdout));
}

#[cfg(feature = "host")]
#[test]
fn interrupted_run_exits_130_and_resumes() {
    use std::io::{BufRead, BufReader};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let arguments = ["run", "bundler/main", "--backend", "sim", "--set", "stop=600s", "--out", out];
    let mut run = forebay(&arguments);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("[1/")), "the first run has begun");
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).unwrap();
    let said: Vec<String> = lines.collect();
    assert_eq!(run.wait().unwrap().code(), Some(130), "{said:?}");
    let again = format!("  forebay {}", arguments.join(" "));
    assert!(said.iter().any(|line| line.contains("complete results are kept")), "{said:?}");
    assert_eq!(said.last(), Some(&again), "{said:?}");
}

#[cfg(feature = "host")]
#[test]
fn run_without_root_writes_nothing() {
    use std::os::unix::process::CommandExt;

    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut run = forebay(&["run", "bundler/main", "--seeds", "1..3", "--set", "stop=30s"]);
    run.args(["--backend", "emu", "--out"]).arg(&out);
    if nix::unistd::geteuid().is_root() {
        // User `nobody` on every Debian.
        run.uid(65534).gid(65534);
    }
    let refused = run.output().unwrap();
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{error}");
    let expected = format!(
        "needs root for network namespaces: run it with sudo, or simulate:\n  forebay run bundler/main \
         --seeds 1..3 --set stop=30s --out {} --backend sim\n",
        out.display()
    );
    assert!(error.ends_with(&expected), "{error}");
    assert!(refused.stdout.is_empty() && !out.exists());
}

#[test]
fn study_is_listed_reproduced_and_unknown_names_refused() {
    let listing = stdout_of(&["reproduce", "bundler", "--list"]);
    assert!(listing.contains("competing_bundles") && listing.contains("figure 11"), "{listing}");
    let json = stdout_of(&["reproduce", "bundler", "--list", "--only", "main", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let only = &json["experiments"][0];
    assert!(only["plan"] == "bundler/main" && only["seeds"]["sim"] == "1..10", "{json}");
    for (arguments, reason) in [
        (&["nonesuch"][..], "allowed is one of bundler"),
        (&["bundler", "--only", "nonesuch"], "allowed is main, "),
        (&["bundler", "--backend", "ns2"], "allowed is one of sim, emu"),
        (&["bundler", "--only", "low_load", "--backend", "emu"], "none runs with"),
        (&["deployment", "--backend", "emu"], "experiments of deployment: none runs"),
    ] {
        let error = refusal_of(&[&["reproduce"], arguments].concat());
        assert!(error.contains(reason), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let seeds = ["--seeds", "1", "--out", out, "--json"];
    let whole = [&["reproduce", "bundler", "--only", "dynamics/start"], &seeds[..]].concat();
    let found = output(&whole);
    let json: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let claims = json["experiments"][0]["claims"].as_array().unwrap();
    let is_fine =
        |claim: &serde_json::Value| claim["verdict"] == "met" || claim["verdict"] == "reported";
    assert_eq!(found.status.success(), claims.iter().all(is_fine), "{json:#}");
    assert!(claims.iter().all(|claim| claim["figure"].is_number()), "{json:#}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("At a glance") && page.contains("dynamics-start/report.html"));
}

#[test]
fn closed_pipe_is_no_failure() {
    for arguments in [
        &["list", "algorithms"][..],
        &["plan", "schema"],
        &["plan", "schema", "--json"],
        &["plan", "check", "bundler/main"],
        &["completions", "bash"],
        &["man"],
        &["trace", "constant", "--rate", "12Mbit/s"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = forebay(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn plan_schema_and_check_need_no_root() {
    assert!(stdout_of(&["plan", "schema"]).contains("[[bottleneck.change]]"));
    let check = stdout_of(&["plan", "check", "bundler/main"]);
    assert!(check.contains("6 arms, 1 cells, 10 seeds: 60 runs"), "{check}");
    let other = stdout_of(&["plan", "check", "bundler/main", "--set", "bottleneck.rate=48Mbit/s"]);
    assert!(other.contains("rate 48Mbit/s, rtt 50ms") && !other.contains("96Mbit/s"), "{other}");
}

#[test]
fn wrong_plan_is_refused_with_place_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    let plan = "name = \"wrong\"\nstop = \"5s\"\n\
                [bottleneck]\nrate = 96\nrtt = \"50ms\"\nqdisc = \"fifo\"\n";
    std::fs::write(&file, plan).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [&["plan", "check", file][..], &["run", file]] {
        let error = refusal_of(arguments);
        let expected = format!("{file}:4: bottleneck.rate = 96: allowed is a rate such as");
        assert!(error.contains(&expected), "{error}");
        assert!(
            error.contains(&format!("{file}:1: flow is missing: allowed is a list")),
            "{error}"
        );
    }
    let error = refusal_of(&["plan", "check", "bundler/main", "--set", "stop=1"]);
    assert!(error.contains("--set: stop = 1: allowed is a duration"), "{error}");
    let error = refusal_of(&["run", "bundler/main", "--arms", "nobody"]);
    assert!(error.contains("no arm nobody: allowed is one of status_quo"), "{error}");
    let error = refusal_of(&["run", "bundler/mian"]);
    assert!(error.contains("bundler/mian") && error.contains("bundler/main"), "{error}");
}

/// A plan whose one flow, written in line 8, has this congestion control.
fn plan_with(folder: &std::path::Path, cc: &str) -> String {
    let file = folder.join("cc.toml");
    let plan = "name = \"cc\"\nstop = \"5s\"\n[bottleneck]\nrate = \"9Mbit/s\"\nrtt = \"50ms\"\n\
                qdisc = \"fifo\"\n[[flow]]\n";
    let flow = format!("cc = \"{cc}\"\nname = \"bulk\"\ntraffic = {{ kind = \"greedy\" }}\n");
    std::fs::write(&file, format!("{plan}{flow}")).unwrap();
    file.to_str().unwrap().into()
}

#[test]
fn unknown_congestion_control_is_refused_with_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = plan_with(folder.path(), "nonesuch");
    for arguments in [&["plan", "check", &file][..], &["run", &file]] {
        let error = refusal_of(arguments);
        let expected = format!("{file}:8: flow.bulk.cc = \"nonesuch\": allowed is a congestion");
        assert!(error.contains(&expected), "{error}");
    }
    let mistyped = refusal_of(&["run", &plan_with(folder.path(), "cubci")]);
    assert!(mistyped.contains("; nearest is cubic"), "{mistyped}");
    let file = plan_with(folder.path(), "kernel:nonesuch");
    let error = refusal_of(&["run", &file, "--backend", "sim"]);
    let expected = format!("{file}:8: flow.bulk.cc.kind = nonesuch: allowed is one of ");
    assert!(error.contains(&expected), "{error}");
}

#[cfg(feature = "host")]
#[test]
fn run_refuses_missing_kernel_algorithm_and_check_warns() {
    let folder = tempfile::tempdir().unwrap();
    let file = plan_with(folder.path(), "kernel:nonesuch");
    let check = output(&["plan", "check", &file]);
    assert!(check.status.success(), "{check:?}");
    let expected = format!("warning: {file}:8: flow.bulk.cc = kernel:nonesuch: this kernel has ");
    assert!(text(&check.stderr).starts_with(&expected), "{check:?}");
    assert_eq!(text(&check.stderr).lines().count(), 1, "{check:?}");
    let known = output(&["plan", "check", &plan_with(folder.path(), "kernel:reno")]);
    assert!(known.status.success() && known.stderr.is_empty(), "{known:?}");
    if !skip_without(Need::Root) {
        let file = plan_with(folder.path(), "kernel:nonesuch");
        let error = refusal_of(&["run", &file, "--backend", "emu"]);
        let expected =
            format!("{file}:8: flow.bulk.cc = kernel:nonesuch: allowed is an algorithm of");
        assert!(error.contains(&expected), "{error}");
        let set = ["--backend", "emu", "--set", "flow.bulk.cc=copa"];
        let error = refusal_of(&[&["run", &file], &set[..]].concat());
        assert!(error.contains("--set: flow.bulk.cc = copa: allowed is an algorithm"), "{error}");
    }
}

#[test]
fn unwritable_folder_is_refused_once_with_option() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let inside = file.join("out");
    let database = folder.path().join("out");
    std::fs::create_dir(&database).unwrap();
    std::fs::write(database.join("results.sqlite"), [b'?'; 4096]).unwrap();
    for (out, reason) in [
        (&file, "File exists (os error 17)"),
        (&inside, "Not a directory (os error 20)"),
        (&database, "results.sqlite: file is not a database"),
    ] {
        let out = out.to_str().unwrap();
        let error = refusal_of(&["run", "bundler/queue_shift", "--backend", "sim", "--out", out]);
        assert!(error.contains(&format!("error: --out {out}: {reason}: allowed is ")), "{error}");
        assert_eq!(error.matches(reason).count(), 1, "{error}");
    }
}

#[test]
fn refuses_wrong_traces_and_cdfs_with_line() {
    let folder = tempfile::tempdir().unwrap();
    let plan_of = |bottleneck: &str, qdisc: &str, traffic: &str| {
        let file = folder.path().join("plan.toml");
        let text = format!(
            "name = \"p\"\nstop = \"5s\"\n[bottleneck]\n{bottleneck}\nrtt = \"50ms\"\nqdisc = \
             {qdisc}\n[[flow]]\ntraffic = {traffic}\n"
        );
        std::fs::write(&file, text).unwrap();
        refusal_of(&["plan", "check", file.to_str().unwrap()])
    };
    let plan = |bottleneck: &str, traffic: &str| plan_of(bottleneck, "\"fifo\"", traffic);
    std::fs::write(folder.path().join("bad.cdf"), "0 0\n100 0.5\n50 1\n").unwrap();
    std::fs::write(folder.path().join("bad.trace"), "1\n2\nx\n").unwrap();
    let error = plan(
        "rate = \"10Mbit/s\"",
        "{ kind = \"requests\", sizes = \"bad.cdf\", load = \"1Mbit/s\" }",
    );
    assert!(error.contains("bad.cdf:3:1: \"50\": allowed is bytes"), "{error}");
    let error = plan("trace = \"bad.trace\"", "{ kind = \"greedy\" }");
    assert!(error.contains("bad.trace:3:1: \"x\""), "{error}");
    std::fs::write(folder.path().join("good.trace"), "1\n2\n").unwrap();
    let in_time = "{ kind = \"sfq\", limit = \"150ms\" }";
    let error = plan_of("trace = \"good.trace\"", in_time, "{ kind = \"greedy\" }");
    let expected = "plan.toml:6: bottleneck.qdisc.limit = 150ms: allowed is packets or bytes, such as \
                    \"1200p\" or \"1800KB\": no constant rate, no limit in time";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn folders_without_results_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for arguments in [&["report", path][..], &["export", path], &["compare", path, path]] {
        assert!(refusal_of(arguments).contains("contains no results.sqlite"));
    }
}

#[test]
fn run_is_captured_and_arguments_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (packets, connections) = (path("run.pcapng"), path("run.qlog"));
    let files = ["--pcapng", &packets, "--qlog", &connections, "--limit", "1MB"];
    let plan = ["capture", "bundler/queue_shift", "--set", "stop=2s", "--set", "warmup=1s"];
    let output = output(&[&plan[..], &files].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("run.pcapng: ") && said.contains(" packets, "), "{said}");
    assert!(std::fs::metadata(&packets).unwrap().len() <= 1_000_000);
    assert!(text(&output.stderr).contains("run.pcapng: reached "), "{}", text(&output.stderr));
    for (arguments, reason) in [
        (&["--arm", "none"][..], "--arm none: allowed is one of status_quo, "),
        (&["--cell", "none"], "--cell none: allowed is one of"),
        (&["--at", "none"], "--at none: allowed is sender, receiver, forward-in, "),
        (&["--backend", "none"], "--backend none: allowed is one of sim, emu"),
    ] {
        let error = refusal_of(&[&plan[..], &files, arguments].concat());
        assert!(error.contains(reason), "{error}");
    }
    assert!(refusal_of(&plan).contains("--pcapng"));
    let without_unit = [&plan[..], &["--qlog", &connections, "--limit", "1"]].concat();
    assert!(refusal_of(&without_unit).contains("a size such as"));
}

/// Requests that compete with a bulk transfer, over a FIFO and over fair queueing, for two seconds.
const SIMULATED: &str = r#"
name = "simulated"
stop = "2s"
warmup = "500ms"
drain = "2s"
seeds = "1..2"
[bottleneck]
rate = "20Mbit/s"
rtt = "20ms"
qdisc = { kind = "fifo", limit = "3bdp" }
[[flow]]
name = "web"
traffic = { kind = "requests", sizes = "10KB", load = "20%", connections = 20 }
[[flow]]
name = "bulk"
cc = "newreno"
traffic = { kind = "greedy" }
[[flow]]
name = "voice"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "200B" }
[[flow]]
name = "probe"
traffic = { kind = "ping" }
[[arm]]
name = "fifo"
[[arm]]
name = "fq"
set = { "bottleneck.qdisc" = "sfq" }
"#;

/// Runs [`SIMULATED`] into a folder; gives the document and the log.
fn simulate(folder: &std::path::Path, arguments: &[&str]) -> (serde_json::Value, String) {
    let plan = folder.join("simulated.toml");
    std::fs::write(&plan, SIMULATED).unwrap();
    let out = folder.join("out");
    let mut command = forebay(&["run", plan.to_str().unwrap(), "--backend", "sim", "--json"]);
    let output = command.args(["--out", out.to_str().unwrap()]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), text(&output.stderr))
}

#[test]
fn simulated_runs_ignore_jobs_and_are_not_repeated() {
    let documents = ["1", "2"].map(|jobs| {
        let folder = tempfile::tempdir().unwrap();
        let (mut document, _) = simulate(folder.path(), &["--jobs", jobs]);
        let (again, log) = simulate(folder.path(), &["--jobs", jobs]);
        assert_eq!(again["runs"], document["runs"]);
        assert_eq!(log.matches("in the store").count(), 4, "{log}");
        for run in document["runs"].as_array_mut().unwrap() {
            let host = run.as_object_mut().unwrap().remove("host").unwrap();
            assert!(host["attempt"] == 1 && host["kernel"] == "", "{host}");
        }
        stdout_of(&["export", folder.path().join("out").to_str().unwrap()]);
        let csv =
            |name: &str| std::fs::read_to_string(folder.path().join("out/csv").join(name)).unwrap();
        (
            document,
            ["flows", "links", "metrics", "requests", "samples"]
                .map(|it| csv(&format!("{it}.csv"))),
        )
    });
    assert_eq!(documents[0], documents[1]);
    let runs = documents[0].0["runs"].as_array().unwrap();
    let arms: Vec<&str> = runs.iter().map(|run| run["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["fifo", "fq", "fq", "fifo"]);
    for run in runs {
        assert!(run["backend"] == "sim" && run["valid"] == true, "{run}");
        let metric = |of: &serde_json::Value, name: &str| of["metrics"][name].as_f64().unwrap();
        assert_eq!(metric(run, "requests_unfinished"), 0.0);
        assert!(metric(run, "slowdown_p50") >= 1.0);
        let forward = &run["links"][0];
        // A packet more than the rate allows may end within the interval.
        assert!((0.5..=1.001).contains(&metric(forward, "utilisation")), "{forward}");
        let flows = run["flows"].as_array().unwrap();
        let ping = flows.iter().find(|flow| flow["name"] == "probe").unwrap();
        assert!(metric(ping, "rtt_p50_ms") >= 20.0, "{ping}");
    }
    let fq = &documents[0].0["summary"][1];
    let spread = &fq["spread"]["slowdown_p50"];
    assert!(fq["arm"] == "fq" && spread["runs"] == 2 && spread["least"] != spread["greatest"]);
}

#[test]
fn overrides_are_reported_on_stderr_and_in_report() {
    let folder = tempfile::tempdir().unwrap();
    let set = ["--seed", "1", "--set", "bottleneck.qdisc=codel"];
    let (_, log) = simulate(folder.path(), &set);
    let kept = "; arm fq keeps its own bottleneck.qdisc";
    let start = "note: simulated: bottleneck.qdisc = codel in place of { kind = \"fifo\", limit";
    assert!(log.contains(start) && log.contains(kept), "{log}");
    let report = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(report.contains("With bottleneck.qdisc = codel in place of") && report.contains(kept));
    assert!(
        report.contains("qdisc codel or sfq; flow.bulk: traffic greedy, cc newreno; flow.probe")
    );
}

#[test]
fn connection_per_request_is_independent_of_jobs() {
    let documents = ["1", "2"].map(|jobs| {
        let folder = tempfile::tempdir().unwrap();
        let set = "flow.web.traffic.connections=\"each\"";
        let (mut document, _) = simulate(folder.path(), &["--jobs", jobs, "--set", set]);
        let runs = document["runs"].as_array_mut().unwrap();
        for run in runs {
            run.as_object_mut().unwrap().remove("host").unwrap();
            let metric = |name: &str| run["metrics"][name].as_f64().unwrap();
            assert_eq!(metric("requests_unfinished"), 0.0);
            // The handshake is a round trip, the ideal a round trip and the time of 10 kB.
            assert!(metric("slowdown_p50") > 1.8, "{run}");
        }
        document
    });
    assert_eq!(documents[0], documents[1]);
}

#[cfg(unix)]
#[test]
fn a_simulated_run_needs_no_root() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let plan = folder.path().join("simulated.toml");
    std::fs::write(&plan, SIMULATED).unwrap();
    let out = folder.path().join("out");
    let mut command = forebay(&["run", plan.to_str().unwrap(), "--backend", "sim", "--seed", "1"]);
    command.args(["--arms", "fq", "--out", out.to_str().unwrap()]);
    // User `nobody` on every Debian. Without root, the test cannot change its user.
    let output = command.uid(65534).gid(65534).output();
    let output = output.or_else(|_| forebay(&[]).args(command.get_args()).output()).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("slowdown p50"), "{}", text(&output.stdout));
    assert!(out.join("report.html").is_file());
}

#[test]
fn back_end_refuses_before_it_creates_folders() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("simulated.toml");
    std::fs::write(&plan, SIMULATED).unwrap();
    let plan = plan.to_str().unwrap();
    let out = folder.path().join("out");
    let refused = |plan: &str, arguments: &[&str], expected: &str| {
        let mut all = vec!["run", plan, "--out", out.to_str().unwrap(), "--backend"];
        all.extend(arguments);
        let error = refusal_of(&all);
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
        assert!(!out.exists());
    };
    refused(plan, &["ns2"], "--backend ns2: allowed is one of sim, emu, ns3");
    let attack = "[attack]: the back end sim does not support this, allowed with emu";
    refused("bundler/hostile_messages", &["sim"], attack);
    refused(plan, &["sim", "--keep-logs", "x"], "--keep-logs: the back end sim writes no files");
    refused(plan, &["sim", "--engine", "dask"], "allowed is threads, ray or ray://HOST:PORT");
    let engine = "--engine ray: allowed is --backend sim, without --force, --keep-logs";
    refused(plan, &["sim", "--engine", "ray", "--force"], engine);
    refused(plan, &["ns3", "--engine", "ray"], engine);
    let unknown = ["sim", "--set", "flow.bulk.cc=nonesuch"];
    refused(plan, &unknown, "--set: flow.bulk.cc = \"nonesuch\": allowed is a congestion control");
    let parameter = ["sim", "--set", "flow.bulk.cc={ kind = \"cubic\", beta = 2 }"];
    refused(plan, &parameter, "flow.bulk.cc.beta = 2: allowed is ");
    #[cfg(feature = "host")]
    {
        refused(plan, &["emu", "--jobs", "2"], "--jobs 2: allowed is 1 with --backend emu");
        refused(
            plan,
            &["emu", "--set", "bottleneck.paths=2"],
            "bottleneck.paths: the back end emu has one path, allowed with sim",
        );
        refused(
            plan,
            &["emu", "--set", "stack=ns3"],
            "stack = ns3: the back end emu runs the kernel",
        );
    }
}

#[test]
fn missing_ns3_is_refused_with_package() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut command =
        forebay(&["run", "ccperf/deep_buffers", "--as-published", "--backend", "ns3"]);
    let output = command.arg("--out").arg(&out).env("PATH", "").output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("apt-get install libns3-dev g++ pkg-config"), "{error}");
    assert!(!out.exists());
}

#[test]
fn runs_of_ns3_are_compared_by_name() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/ns3/ground_truth.json");
    let told = stdout_of(&["compare-ns3", "--file", file, "var_delack2"]);
    assert!(told.starts_with("var_delack2 (Tight)\n  mean_throughput_l4 "), "{told}");
    let lines = ["Tight        7 of    7 pairs hold  100.0 %", "Loss         0 of    0 pairs hold"];
    assert!(lines.iter().all(|line| told.contains(line)), "{told}");
    assert!(told.contains("\nwithin the bounds\n"), "{told}");
    let error = refusal_of(&["compare-ns3", "--file", file, "nonesuch"]);
    assert!(error.contains("nonesuch: allowed is a part of the name of a run in "), "{error}");
    let error = refusal_of(&["compare-ns3", "--file", "/nonesuch.json"]);
    assert!(error.contains("--file /nonesuch.json: No such file"), "{error}");
}

#[cfg(feature = "host")]
#[test]
fn demo_without_root_names_missing_requirements() {
    use std::os::unix::process::CommandExt;

    if skip_without(Need::Root) {
        return;
    }
    // User `nobody` on every Debian.
    let output = forebay(&["demo", "--quick"]).uid(65534).gid(65534).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("need root") && error.contains("make demo"), "{error}");
}

#[cfg(feature = "host")]
#[test]
fn emulated_run_counts_ecn_marks() {
    if skip_without(Need::Root) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let settings = [
        "stop=3s",
        "warmup=0s",
        "ecn=classic",
        "bottleneck.rate=24Mbit/s",
        "bottleneck.qdisc={ kind = \"codel\", ecn = true }",
    ];
    let mut command = forebay(&["run", "bundler/queue_shift", "--arms", "status_quo", "--json"]);
    command.args(["--backend", "emu", "--seed", "1", "--out", out.to_str().unwrap()]);
    let output = command.args(settings.iter().flat_map(|it| ["--set", it])).output().unwrap();
    // A disturbed machine makes the run invalid, which is exit code 1 and no less a document.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics = &document["runs"][0]["links"][0]["metrics"];
    for name in ["marks_queue_packets", "marks_codel_packets"] {
        assert!(metrics[name].as_f64().is_some_and(|marks| marks > 0.0), "{name}: {metrics}");
    }
    assert_eq!(metrics["drops_codel_packets"], 0.0, "{metrics}");
}

#[cfg(feature = "host")]
#[test]
fn run_prints_one_json_document_and_runs_once() {
    if skip_without(Need::Root) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = || {
        let output = output(&[
            "run",
            "bundler/queue_shift",
            "--arms",
            "status_quo",
            "--seed",
            "1",
            "--json",
            "--set",
            "stop=3s",
            "--set",
            "warmup=1s",
            "--out",
            out.to_str().unwrap(),
        ]);
        // A disturbed machine makes the run invalid, which is exit code 1 and no less a document.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (document, text(&output.stderr))
    };
    let (document, _) = run();
    let first = &document["runs"][0];
    for key in [
        "plan", "arm", "seed", "backend", "sources", "commit", "valid", "metrics", "flows",
        "links", "bundles", "host",
    ] {
        assert!(!first[key].is_null(), "{key} is missing in {first}");
    }
    assert_eq!(first["flows"][0]["name"], "bulk");
    assert_eq!(first["flows"][0]["cc"], "cubic");
    // The flow's goodput in these two seconds is not judged.
    let goodput_mbps = first["metrics"]["goodput_mbps"].as_f64().unwrap();
    assert!((1.0..96.0).contains(&goodput_mbps), "{first}");
    let queue_packets = first["links"][0]["metrics"]["queue_mean_packets"].as_f64().unwrap();
    assert!((0.0..=1200.0).contains(&queue_packets), "{first}");
    assert!(out.join("report.html").is_file());
    let (again, log) = run();
    // Runs that a disturbed machine spoilt are tried again.
    let valid = |document: &serde_json::Value| {
        let runs = document["runs"].as_array().unwrap();
        runs.iter().filter(|run| run["valid"] == true).cloned().collect::<Vec<_>>()
    };
    if !valid(&document).is_empty() {
        assert_eq!(valid(&again), valid(&document));
    }
    assert!(!log.contains("attempt 2") || document["runs"][0]["valid"] == false, "{log}");
    let files = stdout_of(&["export", out.to_str().unwrap()]);
    assert!(files.contains("requests.csv"), "{files}");
    let head = std::fs::read_to_string(out.join("csv/runs.csv")).unwrap();
    assert!(head.lines().nth(1).unwrap().contains("queue_shift,status_quo"));
}

#[cfg(feature = "host")]
#[test]
fn an_emulated_run_is_captured_with_its_headers() {
    if skip_without(Need::Root) || skip_without(Need::Tshark) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let packets = folder.path().join("run.pcapng");
    let packets = packets.to_str().unwrap();
    let sets = ["stop=2s", "warmup=1s", "bottleneck.rate=10Mbit/s"];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let capture = ["capture", "bundler/queue_shift", "--backend", "emu", "--arm", "status_quo"];
    let files = ["--at", "sender,forward-out", "--pcapng", packets];
    let arguments: Vec<&str> = capture.into_iter().chain(files).chain(sets).collect();
    let said = stdout_of(&arguments);
    assert!(said.contains(" packets, "), "{said}");
    let count = |filter: &str| {
        let mut tshark = Command::new("tshark");
        tshark.args(["-r", packets, "-T", "fields", "-e", "frame.number", "-Y", filter]);
        text(&tshark.output().unwrap().stdout).lines().count()
    };
    assert_eq!(count("_ws.malformed"), 0);
    assert!(count("frame.interface_name == \"forward-out\" && tcp.len > 0") > 300);
    assert!(count("frame.interface_name == \"sender\" && tcp.flags.syn == 1") >= 2);
    assert!(count("tcp.options.timestamp.tsval") > 300);
    let qlog = [&arguments[..], &["--qlog", packets]].concat();
    assert!(refusal_of(&qlog).contains("allowed with sim"));
}
