//! `forebay link` as people call it, on real traffic.
#![cfg(feature = "host")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay_core::spec::Spec;
use forebay_core::units::Rate;
use forebay_scenario::Link;
use forebay_skips::{Need, skip_without};
use forebay_testbed::emulator::{DevicePair, EmulatorSpec};

fn link(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.arg("link").args(arguments).output().expect("forebay starts")
}

#[test]
fn download_gets_link_rate_and_exit_status_passes() {
    if skip_without(Need::Root) {
        return;
    }
    let listener = TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.write_all(&vec![0; 2_000_000]).unwrap();
    });
    let script = format!("exec 3</dev/tcp/$FOREBAY_LINK_OUTSIDE/{port}; wc -c <&3; exit 7");
    let started = Instant::now();
    let output = link(&["--rate", "10Mbit/s", "--delay", "20ms", "--", "bash", "-c", &script]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    server.join().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "2000000");
    // 16 Mbit of payload alone take 1.6 s.
    assert!(started.elapsed() > Duration::from_millis(1_600));
    let summary: Vec<&str> = stderr.lines().rev().take(2).collect();
    assert!(summary[1].starts_with("out "), "{stderr}");
    assert!(summary[0].starts_with("in  "), "{stderr}");
}

#[test]
fn the_callers_loopback_is_out_of_reach() {
    if skip_without(Need::Root) {
        return;
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3</dev/tcp/127.0.0.1/{port}");
    assert!(!link(&["--", "bash", "-c", &script]).status.success());
}

#[test]
fn every_packet_is_recorded_when_asked_for() {
    if skip_without(Need::Root) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let port = answering();
    // Answered datagrams have passed both links.
    let script = format!(
        "exec 3<>/dev/udp/$FOREBAY_LINK_OUTSIDE/{port}
        for n in 1 2 3; do echo $n >&3; read -r -t 60 <&3 || exit; done"
    );
    let output = link(&["--log", log.to_str().unwrap(), "--", "bash", "-c", &script]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let links = std::fs::read(log.join("links.json")).unwrap();
    let links: serde_json::Value = serde_json::from_slice(&links).unwrap();
    for (link, file) in [(0, "forward.packets"), (1, "reverse.packets")] {
        assert_eq!(links[link]["packets_in"], 3);
        assert_eq!(std::fs::metadata(log.join(file)).unwrap().len(), 3 * 48);
    }
}

/// Answers datagrams at this port of the caller.
fn answering() -> u16 {
    let echo = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    let port = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut line = [0; 100];
        while let Ok((_, from)) = echo.recv_from(&mut line) {
            // One byte: bash reads no more of a datagram.
            echo.send_to(b"\n", from).unwrap();
        }
    });
    port
}

#[test]
fn datagrams_see_a_step_of_the_trace() {
    if skip_without(Need::Root) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("path.csv");
    std::fs::write(&trace, "time_s,rtt_ms\n0,20\n1.5,240\n3,\n").unwrap();
    let trace = trace.to_str().unwrap();
    let script = format!(
        "exec 3<>/dev/udp/$FOREBAY_LINK_OUTSIDE/{}
        for n in {{1..13}}; do
            sent=$EPOCHREALTIME; echo $n >&3; read -r -t 60 <&3 || exit; answered=$EPOCHREALTIME
            echo $(((${{answered/./}} - ${{sent/./}}) / 1000)); sleep 0.25
        done",
        answering()
    );
    let given =
        ["--trace", trace, "--trace-end", "hold", "--batch", "5ms", "--", "bash", "-c", &script];
    let output = link(&given);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    let times: Vec<u64> = out.lines().map(|time| time.parse().unwrap()).collect();
    assert!(times.iter().all(|ms| *ms >= 20) && times.iter().any(|ms| *ms < 200), "{times:?}");
    assert!(times.last().is_some_and(|ms| *ms >= 240), "{times:?}");
    assert!(err.contains("path.csv: CSV, rows: 2, 3 s, one-way delay 10 to 120 ms"), "{err}");
}

#[test]
fn bad_input_is_refused_with_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let [lossy, fast] =
        [("lossy.csv", "time_s,loss\n0,0\n1,2\n"), ("fast.csv", "time_s,rate_mbps\n0,8\n1,9\n")]
            .map(|(name, text)| {
                let path = dir.path().join(name);
                std::fs::write(&path, text).unwrap();
                path.to_str().unwrap().to_string()
            });
    let (lossy, fast) = (lossy.as_str(), fast.as_str());
    let trace = dir.path().join("bad.trace");
    std::fs::write(&trace, "1\n0\n").unwrap();
    let trace = trace.to_str().unwrap();
    for (arguments, expected) in [
        (&["--rate", "10", "--", "true"][..], "'--rate <RATE>': allowed is a rate such as"),
        (&["--rate", "0bit/s", "--", "true"], "'--rate <RATE>': allowed is a rate such as"),
        (&["--reverse-rate", "999bit/s", "--", "true"], "\"96Mbit/s\", 1kbit/s to 400Gbit/s"),
        (&["--loss", "2", "--", "true"], "a share from 0 to 1"),
        (&["--qdisc", "cake", "--", "true"], "qdisc.kind = cake: allowed is one of"),
        (&["--trace", trace, "--", "true"], "bad.trace:2:1: \"0\": allowed is a time"),
        (&["--trace", lossy, "--", "true"], "lossy.csv:3:3: \"2\": allowed is a share of the"),
        (
            &["--trace", fast, "--rate", "1Mbit/s", "--", "true"],
            "--trace: sets the rate: allowed is",
        ),
        (
            &["--jitter", "2s", "--", "true"],
            "'--jitter <TIME>': allowed is a duration such as \"5ms\"",
        ),
        (
            &["--reverse-batch", "5", "--", "true"],
            "allowed is a duration such as \"5ms\", 0s to 1s",
        ),
        (&["--", "/no/such/command"], "/no/such/command: No such file"),
        (&["--rate", "1Mbit/s"], "<CMD>"),
    ] {
        let output = link(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let needs_root = stderr.contains("need root: run it with sudo");
        assert_eq!(output.status.code(), Some(if needs_root { 1 } else { 2 }), "{stderr}");
        assert!(stderr.contains(expected) || needs_root, "{stderr}");
    }
}

/// The role is started as a testbed does, in a namespace with two devices.
fn emulator(dir: &std::path::Path) -> std::process::Child {
    let rate = Rate::from_mbit_per_sec(1);
    let link = |name| Link::at_rate(name, rate, Duration::ZERO, Spec::named("fifo"));
    let spec = EmulatorSpec {
        seed: 1,
        pairs: vec![DevicePair { left: "left".into(), right: "right".into(), beside: None }],
        forward: link("forward"),
        reverse: link("reverse"),
        own: Vec::new(),
        out: Some(dir.into()),
        keeps_headers: false,
        cpu: None,
        routed: false,
    };
    std::fs::write(dir.join("spec.json"), serde_json::to_vec(&spec).unwrap()).unwrap();
    let script = "ip link add left type veth peer name far0 && \
        ip link add right type veth peer name far1 && \
        exec \"$0\" role emulator --spec \"$1\"";
    let binary = env!("CARGO_BIN_EXE_forebay-experiments");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", script, binary]).arg(dir.join("spec.json"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    child
}

#[test]
fn emulator_writes_whole_results_at_its_end() {
    if skip_without(Need::Root) {
        return;
    }
    for by_signal in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = emulator(dir.path());
        if by_signal {
            let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        } else {
            drop(child.stdin.take());
        }
        assert!(child.wait().unwrap().success());
        let links = std::fs::read(dir.path().join("links.json")).unwrap();
        let links: serde_json::Value = serde_json::from_slice(&links).unwrap();
        assert_eq!(links[1]["name"], "reverse");
    }
}
