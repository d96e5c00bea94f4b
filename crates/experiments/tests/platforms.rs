//! `forebay platforms`: refusals of bad input, and, as root, trials on every platform. Function only: no
//! figure is judged here.
#![cfg(feature = "host")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay_core::units::Rate;
use forebay_host::agent::Cadence;
use forebay_skips::{Need, skip_without};
use forebay_testbed::cost::bench::{Bench, Turn};
use forebay_testbed::cost::{
    AgentTerms, Control, CounterScheduling, Load, NativeKind, Trial, TrialRecord,
};

/// One millisecond.
const MS: Duration = Duration::from_millis(1);

fn platforms(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.current_dir(folder).arg("platforms").args(arguments);
    command
}

fn refusal(output: &Output, code: i32) -> &str {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty());
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn wrong_option_is_refused_with_allowed_values() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["--algorithm", "nonesuch"][..], "allowed is one of cubic, reno, newreno, bbr"),
        (&["--duration", "1ms"], "--duration 1ms: allowed is 100ms to 10min"),
        (&["--what", "behavior"], "cpu, latency, scale, behaviour, all"),
        (&["--what", "behaviour", "--duration", "1s"], "allowed is 4s to 10min"),
        (&["--what", "all", "--duration", "3s"], "allowed is 4s to 10min for the behaviour"),
        (&["--counter", "nice"], "idle, nice19, both"),
        (&["--rate", "0Mbit/s"], "--rate"),
        (&["--trials", "0"], "1..=1000"),
        (&["--interval", "150ms"], "--interval 150ms: allowed is 100ms to 1s in steps of 100ms"),
    ] {
        let output = platforms(folder.path(), arguments).output().unwrap();
        assert!(refusal(&output, 2).contains(expected), "{output:?}");
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was written");
}

#[test]
fn platforms_without_root_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    for what in ["all", "behaviour"] {
        let mut command = platforms(folder.path(), &["--algorithm", "reno", "--what", what]);
        if nix::unistd::geteuid().is_root() {
            // The user `nobody`.
            command.uid(65_534).gid(65_534);
        }
        let output = command.output().unwrap();
        let stderr = refusal(&output, 1);
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains("root"), "{stderr}");
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing was written");
}

#[test]
fn trial_of_each_platform_moves_bytes() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bench =
        Bench::open(Path::new(env!("CARGO_BIN_EXE_forebay-experiments")), folder.path()).unwrap();
    let _turn = Turn::take(&mut |_| ()).unwrap();
    let agent = |cadence, burden| {
        let algorithm = "newreno".into();
        Control::Agent(AgentTerms { algorithm, cadence, period: MS, burden })
    };
    let rate = Rate::from_mbit_per_sec(200);
    let load = Load { rate: Some(rate), flows: 1, gso_segments: Some(2) };
    let terms = |load, times_programs| {
        let slice = 50 * MS;
        let counter = CounterScheduling::Idle;
        Trial { load, counter, warm_up: 200 * MS, duration: 300 * MS, slice, times_programs }
    };
    let trial =
        |control, load, times_programs| bench.run(&terms(load, times_programs), &control).unwrap();
    let per_ack = Cadence::Every(Duration::ZERO);
    for (control, is_agent) in [
        (Control::Kernel("reno".into()), false),
        (Control::Native(NativeKind::Reno), false),
        (agent(per_ack, Duration::ZERO), true),
    ] {
        let outcome = trial(control.clone(), load, is_agent);
        assert!(outcome.counted_per_s > 0.0 && outcome.sender_cpu_ns > 0, "{outcome:?}");
        let sent = outcome.bytes_per_s * 8.0 / rate.as_bits_per_sec() as f64;
        // Traffic that a loaded machine delays beyond the warm-up is sent in the rest of the window.
        assert!((0.3..5.0).contains(&sent), "{control:?}: {outcome:?}");
        // Two segments each, acknowledged one by one unless a loaded machine merges acknowledgements.
        let per_ack = outcome.segments_per_s / outcome.acks_per_s;
        assert!((1.5..4.0).contains(&per_ack), "{control:?}: {per_ack} segments an ACK");
        assert_eq!(outcome.agent.is_some(), is_agent);
        let Some(agent) = &outcome.agent else { continue };
        assert!(agent.reports_per_s > 0.0 && agent.latency_ns.is_sorted(), "{agent:?}");
        assert!(agent.latency_ns[0] > 0 && outcome.agent_cpu_ns > 0);
        assert_eq!(agent.reports_lost, 0);
        let control = outcome.programs.iter().find(|it| it.name.starts_with("cong_control"));
        let control = control.unwrap();
        assert!(control.calls > 0 && control.call_ns > 0.0 && control.instructions > 0);
        // Hardly any acknowledgements are merged. The program's calls are counted for half a second.
        let seen = control.calls as f64 / 0.5 / outcome.acks_per_s;
        assert!(seen > 0.5, "{seen} calls an ACK: {outcome:?}");
    }
    // Without a slot it measures all the same, and no agent gets reports.
    let outcome = trial(Control::Unled, load, true);
    let control = outcome.programs.iter().find(|it| it.name.starts_with("cong_control")).unwrap();
    assert!(control.calls > 0 && outcome.agent.is_none() && outcome.bytes_per_s > 0.0);
    // The controls take turns; each has the outcome of a trial of its own.
    let controls = [Control::Kernel("reno".into()), agent(per_ack, Duration::ZERO), Control::Empty];
    let outcomes = bench.run_in_turns(&terms(load, true), &controls).unwrap();
    assert_eq!(outcomes.len(), 3);
    for (outcome, prefix) in outcomes.iter().zip(["", "cong_control", "empty_control"]) {
        let sent = outcome.bytes_per_s * 8.0 / rate.as_bits_per_sec() as f64;
        assert!((0.1..5.0).contains(&sent) && outcome.counted_per_s > 0.0, "{outcome:?}");
        assert!(outcome.sender_cpu_ns > 0 && outcome.window_ns > 100_000_000, "{outcome:?}");
        // Warm-up: three slots of 75 ms. Six slices of 75 ms, of which 50 count.
        assert_eq!(outcome.sending_ns, (3 + 6) * 75_000_000);
        let names: Vec<&str> = outcome.programs.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names.iter().any(|it| it.starts_with(prefix)), !prefix.is_empty(), "{names:?}");
    }
    let told = outcomes[1].agent.as_ref().unwrap();
    assert!(told.reports_per_s > 0.5 * outcomes[1].acks_per_s && told.fallbacks == 0, "{told:?}");
    let many = Load { rate: None, flows: 20, gso_segments: None };
    let outcome = trial(agent(Cadence::Every(10 * MS), Duration::ZERO), many, false);
    assert!(outcome.bytes_per_s > 0.0 && outcome.programs.is_empty(), "{outcome:?}");
    // As in the study: the counting process is nice, and traffic goes as fast as it can.
    let counter = CounterScheduling::Nice19;
    let fast = Load { flows: 1, ..many };
    let outcomes = bench.run_in_turns(&Trial { counter, ..terms(fast, false) }, &controls[..2]);
    let does = |it: &TrialRecord| it.bytes_per_s > 0.0 && it.counted_per_s > 0.0;
    assert!(outcomes.unwrap().iter().all(does));
    assert!(bench.idle_count(100 * MS, counter).unwrap() > 0.0);
}

#[test]
fn killed_measurement_leaves_nothing() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scratch = folder.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let mut child = platforms(folder.path(), &["--what", "latency", "--rate", "50Mbit/s"])
        .env("TMPDIR", &scratch)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Another test may hold the machine's lock.
    let deadline = Instant::now() + Duration::from_secs(300);
    // One process more removes the folder.
    while parts(&scratch) < 2 && Instant::now() < deadline {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before its first part");
        std::thread::sleep(5 * MS);
    }
    assert!(parts(&scratch) > 1, "no part was ever started");
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while parts(&scratch) > 0 {
        assert!(Instant::now() < deadline, "parts outlive their bench");
        std::thread::sleep(5 * MS);
    }
}

/// Processes whose specification is in `scratch`.
fn parts(scratch: &Path) -> usize {
    let scratch = scratch.to_str().unwrap().as_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(scratch.len()).any(|part| part == scratch)).count()
}
