//! `forebay agent` and `forebay replay`: refusals, the output for a recording, and, as root, an
//! agent at work on the loopback device.
#![cfg(feature = "host")]

mod native;
#[path = "../outputs/mod.rs"]
mod outputs;
mod pins;
mod running;
mod safety;
mod shares;
mod unread;

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use running::Running;

fn forebay(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.current_dir(folder).args(arguments);
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn replay(folder: &Path, arguments: &[&str]) -> Output {
    forebay(folder, &[&["replay"], arguments].concat()).output().unwrap()
}

/// The names that the kernel offers.
fn registered() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap()
}

#[test]
fn agent_without_privilege_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = forebay(folder.path(), &["agent", "--algorithm", "highspeed"]);
    if nix::unistd::geteuid().is_root() {
        // The user `nobody`.
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(output.stdout.is_empty());
    assert!(!registered().contains("fb_highspeed"));
}

#[test]
fn wrong_option_is_refused_before_registration() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&[][..], "--algorithm <NAME>"),
        (&["--algorithm", "nonesuch"], "allowed is one of"),
        (&["--algorithm", "cubic", "--rule", "x=bbr"], "a rule begins with PREFIX="),
        (&["--algorithm", "cubic", "--period", "1s"], "allowed is 500us to 10ms"),
    ] {
        let output = forebay(folder.path(), &[&["agent"], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
}

/// One connection of `const`, which keeps 29 segments with any reports.
const RECORDING: &str = r#"
{"start":{"schema":1,"version":"0.1.0","kernel":"6.18.0","pace":false}}
{"open":{"flow":0,"adopted":false,"cc":{"kind":"const","cwnd":"43000B"},"seed":7,"remote":"192.0.2.1:443","head":HEAD1}}
{"report":{"flow":0,HEAD2,"pacing_bps":0,"rtt_us":50000,"rtt_min_us":50000,"window_us":50000,"acks":5,"rate_delivered":10,"rate_interval_us":50000,"send_interval_us":50000,"prior_delivered":0,"snd_wnd":65535,"packets_out":10,"app_limited":false,"cwnd_limited":true,"idle_timeouts":0,"dropped":0}}
{"decision":{"flow":0,"seq":2,"cwnd":CWND,"ssthresh":null,"pacing_bps":null,"growth":0,"cap":1048576,"slow_start":0,"beta":0,"trip_rtt_us":0,"trip_lost":0,"trip_ce":0}}
{"close":{"flow":0}}
"#;

fn recording(cwnd: u32) -> String {
    let head = |seq: u32| {
        format!(
            "\"seq\":{seq},\"at_ns\":{at},\"events\":0,\"ca_state\":0,\"mode\":0,\
             \"bytes_acked\":0,\"delivered\":{delivered},\"delivered_ce\":0,\"lost\":0,\
             \"retransmitted\":0,\"in_flight\":10,\"cwnd\":10,\"ssthresh\":null,\"mss\":1448,\
             \"srtt_us\":50000,\"min_rtt_us\":50000",
            at = u64::from(seq) * 50_000_000,
            delivered = (seq - 1) * 10,
        )
    };
    RECORDING
        .trim_start()
        .replace("HEAD1", &format!("{{{}}}", head(1)))
        .replace("HEAD2", &head(2))
        .replace("CWND", &cwnd.to_string())
}

#[test]
fn replay_exits_with_1_at_different_decisions() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("same"), recording(29)).unwrap();
    let same = replay(folder.path(), &["same"]);
    assert!(same.status.success(), "{same:?}");
    assert!(text(&same.stdout).contains("1 connections, 1 reports, 1 decisions: 0 differ"));
    fs::write(folder.path().join("other"), recording(30)).unwrap();
    let other = replay(folder.path(), &["other"]);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    let stdout = text(&other.stdout);
    assert!(stdout.contains("line 4: connection 0 (const(cwnd=43000B)), record 2"), "{stdout}");
    assert!(stdout.contains("cwnd 30, now 29\n"), "{stdout}");
    let document = replay(folder.path(), &["other", "--json"]);
    assert_eq!(document.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["differences"][0]["recorded"]["cwnd"], 30);
    assert_eq!(document["differences"][0]["replayed"]["cwnd"], 29);
}

#[test]
fn decisions_are_printed_with_their_inputs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("same"), recording(29)).unwrap();
    let output = replay(folder.path(), &["same", "--decisions"]);
    assert!(output.status.success(), "{output:?}");
    let row = text(&output.stdout).lines().nth(1).unwrap();
    // 10 segments of 1448 bytes in 50 ms: 2.3168 Mbit/s.
    for part in ["0.100000", "14480", "50000", "2.317", " 29 ", "constant: configured"] {
        assert!(row.contains(part), "{part:?} is missing in {row}");
    }
}

#[test]
fn refuses_other_files_with_line() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recording(29);
    for (contents, expected) in [
        ("{\"close\":{\"flow\":0}}\n".to_string(), "file:1: a recording begins with a row `start`"),
        (String::new(), "file:1: a recording begins with a row `start`"),
        ("{\"start\":{\"sch".into(), "file:1: a recording begins with a row `start`"),
        ("nonsense\n".into(), "file:1: "),
        (whole.replace("\"schema\":1", "\"schema\":99"), "file:1: rows have schema 99"),
        (whole.replace("\"kind\":\"const\"", "\"kind\":\"nonesuch\""), "file:2: kind = nonesuch"),
        (
            whole.replace("\"ca_state\":0", "\"ca_state\":9"),
            "file:2: ca_state = 9: allowed is 0 to 4",
        ),
        (
            whole.replace("{\"close\":{\"flow\":0}}", "{\"close\":{\"flow\":5}}"),
            "file:5: connection 5",
        ),
    ] {
        fs::write(folder.path().join("file"), contents).unwrap();
        let output = replay(folder.path(), &["file"]);
        assert_eq!(output.status.code(), Some(2), "{expected}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
    assert_eq!(replay(folder.path(), &["missing"]).status.code(), Some(2));
}

/// Has a connection select a congestion control.
fn select(connection: &TcpStream, name: &str) {
    setsockopt(connection, sockopt::TcpCongestion, &OsString::from(name)).unwrap();
}

/// A connection over the loopback device that carries data until it is ended.
struct Transfer {
    client: TcpStream,
    reader: JoinHandle<u64>,
}

impl Transfer {
    fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        select(&client, name);
        let reader = std::thread::spawn(move || {
            let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
            loop {
                match server.read(&mut buffer).unwrap() {
                    0 => return bytes,
                    read => bytes += read as u64,
                }
            }
        });
        Self { client, reader }
    }

    /// Sends `chunks` chunks of 64 KiB, a millisecond apart.
    fn send(&mut self, chunks: usize) {
        for _ in 0..chunks {
            self.client.write_all(&[7; 1 << 16]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Bytes that arrived.
    fn end(self) -> u64 {
        drop(self.client);
        self.reader.join().unwrap()
    }
}

fn is_decided(status: &serde_json::Value) -> bool {
    let flow = &status["flows"][0];
    flow["decides"] == "agent" && flow["decisions"].as_u64().is_some_and(|count| count > 3)
}

#[test]
fn agent_controls_connection_and_recording_replays() {
    let folder = tempfile::tempdir().unwrap();
    let recording = ["--record", "recording", "--report", "2ms", "--period", "1ms"];
    let Some(agent) = Running::start(folder.path(), "scalable", &recording) else { return };
    let mut transfer = Transfer::start("fb_scalable");
    transfer.send(200);
    let status = agent.status(is_decided);
    let flow = &status["flows"][0];
    assert_eq!(flow["algorithm"], "scalable");
    assert_eq!(flow["remote"].as_str().unwrap().split(':').next(), Some("127.0.0.1"));
    assert!(flow["acked_bytes"].as_u64().unwrap() > 1 << 20, "{flow}");
    assert!(status["totals"]["missed"] == 0, "{status}");
    let table = forebay(folder.path(), &["status", "--socket", "agent.sock"]).output().unwrap();
    assert!(text(&table.stdout).contains("fb_scalable (scalable)"), "{table:?}");
    assert_eq!(transfer.end(), 200 << 16);
    agent.status(|status| status["flows"].as_array().is_some_and(Vec::is_empty));
    agent.stop();
    let replayed = replay(folder.path(), &["recording", "--json"]);
    assert!(replayed.status.success(), "{replayed:?}");
    let document: serde_json::Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!((&document["flows"], &document["end"]), (&1.into(), &serde_json::Value::Null));
    assert!(document["decisions"].as_u64().unwrap() > 3, "{document}");
}

#[test]
fn a_recording_of_another_day_is_not_emptied() {
    let folder = tempfile::tempdir().unwrap();
    let record = ["--record", "recording"];
    let Some(agent) = Running::start(folder.path(), "lp", &record) else { return };
    agent.stop();
    let before = fs::read(folder.path().join("recording")).unwrap();
    let arguments = ["agent", "--algorithm", "lp", "--control", "other.sock"];
    let second = forebay(folder.path(), &[&arguments[..], &record].concat()).output().unwrap();
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(text(&second.stderr).contains("recording: the file exists already"), "{second:?}");
    assert!(!registered().contains("fb_lp"));
    assert_eq!(fs::read(folder.path().join("recording")).unwrap(), before);
}

#[test]
fn second_agent_with_taken_name_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let record = ["--record", "recording"];
    let Some(agent) = Running::start(folder.path(), "hybla", &record) else { return };
    let arguments = ["agent", "--algorithm", "hybla", "--control", "other.sock"];
    let arguments = [&arguments[..], &record].concat();
    let second = forebay(folder.path(), &arguments).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(text(&second.stderr).contains("fb_hybla"), "{second:?}");
    assert!(!folder.path().join("other.sock").exists());
    assert!(registered().contains("fb_hybla"), "the first is unharmed");
    agent.stop();
    let replayed = replay(folder.path(), &["recording"]);
    assert!(
        text(&replayed.stdout).starts_with("recorded by"),
        "its recording is whole: {replayed:?}"
    );
}

/// Connects under `name` where both ends' congestion control is that; whether they agree on marks.
fn has_marks(name: &str) -> bool {
    fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _client = TcpStream::connect(address).unwrap();
    let _server = listener.accept().unwrap();
    let filter = format!("dport = :{}", address.port());
    let output = Command::new("ss").args(["-Htino", &filter]).output().expect("iproute2 is here");
    let shown = text(&output.stdout);
    assert!(shown.contains(&format!(" {name} ")), "{output:?}");
    shown.split_whitespace().any(|word| word == "ecn")
}

#[test]
fn only_algorithms_with_marks_negotiate_ecn() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--algorithm", "marks=dctcp"];
    let Some(agent) = Running::start(folder.path(), "yeah", &more) else { return };
    let seen = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success());
        // The default: the kernel agrees to marks, and does not ask for them.
        fs::write("/proc/sys/net/ipv4/tcp_ecn", "2").unwrap();
        ["marks", "fb_yeah"].map(has_marks)
    });
    assert_eq!(seen.join().unwrap(), [true, false]);
    agent.stop();
}

#[test]
fn killed_agent_leaves_no_name_and_connections_continue() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut agent) = Running::start(folder.path(), "veno", &[]) else { return };
    let mut transfer = Transfer::start("fb_veno");
    transfer.send(50);
    agent.status(is_decided);
    agent.child.kill().unwrap();
    agent.child.wait().unwrap();
    transfer.send(300);
    assert_eq!(transfer.end(), 350 << 16);
    // The kernel frees the objects of a dead process in its own time.
    let started = Instant::now();
    while registered().contains("fb_veno") {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn stopped_agent_resumes_control_when_continued() {
    let folder = tempfile::tempdir().unwrap();
    let Some(agent) = Running::start(folder.path(), "illinois", &[]) else { return };
    let mut transfer = Transfer::start("fb_illinois");
    transfer.send(50);
    agent.status(is_decided);
    agent.signal(Signal::SIGSTOP);
    transfer.send(500);
    agent.signal(Signal::SIGCONT);
    let mut chunks = 550;
    loop {
        transfer.send(50);
        chunks += 50;
        let status = agent.status(|status| status.is_object());
        let count = |name: &str| Running::counter(&status, name);
        if count("fallbacks") > 0 && count("resumed") > 0 && is_decided(&status) {
            break;
        }
        assert!(chunks < 50_000, "{status}");
    }
    assert_eq!(transfer.end(), chunks << 16);
    agent.stop();
}
