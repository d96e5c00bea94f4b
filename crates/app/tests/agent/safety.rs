//! Connections whose agent is killed or stopped, and very many connections.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};

use super::running::{Bpffs, Running};
use super::select;

/// Connections that lose their agent at the same time.
const CONNECTIONS: usize = 100;
/// Bit of `events` in a recording: the connection fell back to the kernel's algorithm.
const FALLBACK: u64 = 1 << 14;
/// Bit of `events` in a recording: the agent controls the connection again.
const RESUMED: u64 = 1 << 15;

/// Connections over the loopback device, each sending a little all the time.
struct Crowd {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Crowd {
    fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            select(&client, name);
            client.set_nonblocking(true).unwrap();
            server.set_nonblocking(true).unwrap();
            (client, server)
        };
        let mut pairs: Vec<_> = (0..CONNECTIONS).map(|_| pair()).collect();
        let ends = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1 << 14];
            while !stop.load(Ordering::Relaxed) {
                for (client, server) in &mut pairs {
                    for done in [client.write(&[7; 2048]), server.read(&mut buffer)] {
                        let waits = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
                        assert!(done.is_ok() || done.as_ref().is_err_and(waits), "{done:?}");
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { ends, thread }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Whether the agent decides for each of the crowd.
fn all_are_led(status: &serde_json::Value) -> bool {
    let flows = status["flows"].as_array().unwrap();
    flows.len() == CONNECTIONS && flows.iter().all(|flow| flow["decides"] == "agent")
}

fn none_is_left(status: &serde_json::Value) -> bool {
    status["flows"].as_array().is_some_and(Vec::is_empty)
}

fn now_ns() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    now.as_nanos() as u64
}

/// When each connection fell back first after `from_ns`, and how many resumed then, by the kernel's
/// own records.
fn fallbacks(recording: &Path, from_ns: u64) -> (BTreeMap<u64, u64>, usize) {
    let (mut fell, mut resumed) = (BTreeMap::new(), BTreeMap::new());
    for line in fs::read_to_string(recording).unwrap().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let (flow, head) = match (row.get("open"), row.get("report")) {
            (Some(open), _) => (&open["flow"], &open["head"]),
            (_, Some(report)) => (&report["flow"], report),
            _ => continue,
        };
        let flow = flow.as_u64().unwrap();
        let (at_ns, events) = (head["at_ns"].as_u64().unwrap(), head["events"].as_u64().unwrap());
        if at_ns > from_ns && events & FALLBACK != 0 {
            fell.entry(flow).or_insert(at_ns);
        }
        if events & RESUMED != 0 && fell.contains_key(&flow) {
            resumed.insert(flow, at_ns);
        }
    }
    (fell, resumed.len())
}

/// All fell back soon after `from_ns` and resumed.
fn assert_none_was_left_alone(recording: &Path, from_ns: u64) {
    let (fell, resumed) = fallbacks(recording, from_ns);
    assert_eq!((fell.len(), resumed), (CONNECTIONS, CONNECTIONS));
    let latest = Duration::from_nanos(fell.values().max().unwrap() - from_ns);
    println!("the last of {CONNECTIONS} connections fell back after {latest:?}");
    // 100 ms from the first report without an answer, which comes after a delayed acknowledgement
    // at most; and a loaded machine's pauses.
    assert!(latest < Duration::from_secs(2), "{latest:?}");
}

#[test]
fn successor_takes_over_hundred_connections_of_killed_agent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(pins) = Bpffs::mount(folder.path()) else { return };
    let pin = ["--pin", pins.0.to_str().unwrap(), "--record", "recording"];
    let Some(mut first) = Running::start(folder.path(), "ledbat", &pin[..2]) else { return };
    let crowd = Crowd::start("fb_ledbat");
    first.status(all_are_led);
    let killed_ns = now_ns();
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let second = Running::start(folder.path(), "ledbat", &pin).unwrap();
    let status = second.status(all_are_led);
    assert_eq!(Running::counter(&status, "opened"), CONNECTIONS as u64);
    crowd.end();
    second.status(none_is_left);
    fs::remove_dir_all(pins.0.join("fb_ledbat")).unwrap();
    second.stop();
    assert_none_was_left_alone(&folder.path().join("recording"), killed_ns);
}

#[test]
fn hundred_connections_of_stopped_agent_resume() {
    let folder = tempfile::tempdir().unwrap();
    let record = ["--record", "recording"];
    let Some(agent) = Running::start(folder.path(), "vegas", &record) else { return };
    let crowd = Crowd::start("fb_vegas");
    agent.status(all_are_led);
    let stopped_ns = now_ns();
    agent.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(1));
    agent.signal(Signal::SIGCONT);
    let resumed = |status: &serde_json::Value| Running::counter(status, "resumed");
    agent.status(|status| all_are_led(status) && resumed(status) >= CONNECTIONS as u64);
    crowd.end();
    agent.status(none_is_left);
    agent.stop();
    assert_none_was_left_alone(&folder.path().join("recording"), stopped_ns);
}

/// Connections that end as soon as they have begun, one after the other.
fn come_and_go(name: &str, count: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for _ in 0..count {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        select(&client, name);
        // It ends at once and leaves no port in TIME-WAIT.
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        setsockopt(&client, sockopt::Linger, &linger).unwrap();
        drop((client, server));
    }
}

#[test]
fn connection_with_lost_end_record_disappears() {
    let folder = tempfile::tempdir().unwrap();
    let Some(agent) = Running::start(folder.path(), "dctcp", &[]) else { return };
    let crowd = Crowd::start("fb_dctcp");
    agent.status(all_are_led);
    agent.signal(Signal::SIGSTOP);
    // Two records each, and 30,000 may wait.
    come_and_go("fb_dctcp", 16_000);
    crowd.end();
    agent.signal(Signal::SIGCONT);
    let status = agent.status(none_is_left);
    assert!(Running::counter(&status, "dropped") >= CONNECTIONS as u64, "{status}");
    assert!(status["totals"]["missed"].as_u64().unwrap() >= CONNECTIONS as u64, "{status}");
    agent.stop();
}

#[test]
fn agent_forgets_ten_thousand_closed_connections() {
    /// Connections that open and close.
    const MANY: u64 = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let Some(agent) = Running::start(folder.path(), "newreno", &[]) else { return };
    come_and_go("fb_newreno", MANY);
    let status = agent.status(|status| status["totals"]["closed"] == MANY);
    assert_eq!(status["totals"]["opened"], MANY, "{status}");
    assert_eq!(status["totals"]["missed"], 0, "{status}");
    assert!(none_is_left(&status));
    for (name, count) in [("opened", MANY), ("closed", MANY), ("refused", 0), ("dropped", 0)] {
        assert_eq!(Running::counter(&status, name), count, "{name}: {status}");
    }
    agent.stop();
}
