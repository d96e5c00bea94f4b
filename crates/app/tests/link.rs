//! `forebay link` as people call it, on real traffic.
#![cfg(feature = "host")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use forebay_skips::{Need, skip_without};

fn link(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("link").args(arguments).output().expect("forebay starts")
}

#[test]
fn a_download_gets_the_rate_of_the_link_and_the_command_its_status() {
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
    let echo = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    let port = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut line = [0; 100];
        while let Ok((_, from)) = echo.recv_from(&mut line) {
            // One byte: bash reads no more of a datagram.
            echo.send_to(b"\n", from).unwrap();
        }
    });
    // What was answered has passed both links.
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

#[test]
fn bad_input_is_refused_with_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
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
        (&["--", "/no/such/command"], "/no/such/command: No such file"),
        (&["--rate", "1Mbit/s"], "<CMD>"),
    ] {
        let output = link(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let needs_root = stderr.contains("need root: run it with sudo");
        assert!(stderr.contains(expected) || needs_root, "{stderr}");
    }
}

/// The role is started as a testbed does, in a namespace with two devices.
fn emulator(dir: &std::path::Path) -> std::process::Child {
    let link = r#"{"rate_bps":1000000,"trace":null,"delay_ns":0,"loss":0.0,"reorder":0.0,
        "reorder_packets":0,"qdisc":"fifo","changes":[]}"#;
    let out = dir.display();
    let spec = format!(
        r#"{{"seed":1,"pairs":[{{"left":"left","right":"right"}}],"forward":{link},"reverse":{link},
        "out":"{out}"}}"#
    );
    std::fs::write(dir.join("spec.json"), spec).unwrap();
    let script = "ip link add left type veth peer name far0 && \
        ip link add right type veth peer name far1 && \
        exec \"$0\" role emulator --spec \"$1\"";
    let binary = env!("CARGO_BIN_EXE_forebay");
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", script, binary]).arg(dir.join("spec.json"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    child
}

#[test]
fn the_emulator_leaves_whole_results_at_sigterm_and_at_the_end_of_its_orders() {
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
