//! A sendbox that gets too little processor time. Within two seconds the kernel carries its traffic, and packets that
//! are too old are not sent. The test stops the process again and again to take its time.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::clock;
use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{Site, Topology};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::by_hand::{await_status, await_that, command, connect_the_sites, write_sendbox};
use crate::turns::{Turn, together};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Bytes of a datagram: with its headers 1242 on the wire.
const DATAGRAM: usize = 1200;
/// Interval of datagrams, 4 Mbit/s: less than the box's rate.
const GAP: Duration = Duration::from_micros(2484);
/// Longest time for which a busy machine was seen to keep a thread waiting, and the time that it runs then.
const BUSY: [Duration; 2] = [Duration::from_millis(30), Duration::from_millis(20)];
/// Two starvations take less than a minute.
const RECOVERY: Duration = Duration::from_secs(5);

#[test]
fn a_starved_sendbox_hands_its_traffic_back() {
    let Some(scene) = Scene::set_up() else { return };
    let sender = Sender::start(&scene, GAP);
    await_that("packets are taken", || scene.counter("captured") > 100);
    for pause_s in [5, 10] {
        let began = clock::now().as_nanos();
        let starving =
            Duty::start(&scene.sendbox, [Duration::from_millis(450), Duration::from_millis(50)]);
        // Two seconds, and the time in which the box's queue drains.
        thread::sleep(Duration::from_secs(8));
        starving.end();
        let arrivals = scene.arrivals.lock().unwrap().clone();
        let sent = |from_s: u64, to_s: u64| {
            let (from, to) = (began + from_s * 1_000_000_000, began + to_s * 1_000_000_000);
            let of_them = arrivals.iter().filter(move |it| (from..to).contains(&it.sent_ns));
            of_them.map(|it| it.age()).collect::<Vec<_>>()
        };
        let (ages, expected) = (sent(3, 7), Duration::from_secs(4).as_nanos() / GAP.as_nanos());
        let oldest = ages.iter().max().copied().unwrap_or_default();
        println!("{} of {expected} arrived, the oldest after {oldest:?}", ages.len());
        assert!(ages.len() as u128 > expected * 19 / 20, "{} of {expected}", ages.len());
        assert!(oldest < Duration::from_millis(500), "{oldest:?}");
        let line = format!("the kernel forwards new packets, unshaped, for {pause_s} s");
        await_that(&line, || scene.log().contains(&line));
        assert!(scene.log().contains("FB0305") && scene.log().contains("too little processor"));
        let before = scene.counter("captured");
        await_that("packets are taken again", || scene.counter("captured") > before);
        // A second starvation soon after has the same result.
        thread::sleep(RECOVERY);
    }
    assert_eq!(scene.counter("handed_back"), 2);
    sender.end();
}

#[test]
fn packets_that_waited_two_seconds_are_dropped() {
    let Some(scene) = Scene::set_up() else { return };
    // More than the box's rate: some datagrams wait in its queue.
    let sender = Sender::start(&scene, GAP / 2);
    await_that("packets wait", || {
        scene.status().bundles[0].shaping.as_ref().is_some_and(|it| it.queue.packets > 100)
    });
    signal(&scene.sendbox, Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(6));
    let stopped_until = clock::now().as_nanos();
    signal(&scene.sendbox, Signal::SIGCONT);
    thread::sleep(Duration::from_secs(3));
    let arrivals = scene.arrivals.lock().unwrap().clone();
    let late = arrivals.iter().filter(|it| it.arrived_ns >= stopped_until);
    let old = late.filter(|it| it.age() > Duration::from_millis(2500)).count();
    let expired = scene.find("expired");
    println!("{old} packets arrived more than 2.5 s old, {expired:?} were dropped");
    assert_eq!(old, 0);
    // Expired are the packets of the half second with a fresh heartbeat, and those in the queue.
    assert!(expired.is_some_and(|count| count > 200), "{expired:?}");
    await_that("the log reports it", || scene.log().contains("FB0311"));
    sender.end();
}

#[test]
fn thirty_milliseconds_of_lateness_hand_nothing_back() {
    stays_with_the_box_while_busy(Duration::from_secs(20));
}

#[test]
#[ignore = "ten minutes of traffic: make soak"]
fn soak_of_a_busy_machine_hands_nothing_back() {
    stays_with_the_box_while_busy(Duration::from_secs(600));
}

/// Asserts that a box carries packets for this time on a machine that keeps it waiting again and again.
fn stays_with_the_box_while_busy(time: Duration) {
    let Some(scene) = Scene::set_up() else { return };
    let sender = Sender::start(&scene, GAP);
    await_that("packets are taken", || scene.counter("captured") > 100);
    let before = scene.counter("captured");
    let busy = Duty::start(&scene.sendbox, BUSY);
    thread::sleep(time);
    let longest = busy.end();
    let captured = scene.counter("captured") - before;
    let expected = time.as_nanos() / GAP.as_nanos();
    println!("{captured} of {expected} carried; the longest stop took {longest:?}");
    assert_eq!(scene.counter("handed_back"), 0, "longest stop {longest:?}: {}", scene.log());
    assert!(u128::from(captured) > expected * 9 / 10, "{captured} of {expected}");
    sender.end();
}

/// A datagram that has arrived (ns of `CLOCK_MONOTONIC`).
#[derive(Clone, Copy)]
struct Arrival {
    sent_ns: u64,
    arrived_ns: u64,
}

impl Arrival {
    fn age(self) -> Duration {
        Duration::from_nanos(self.arrived_ns.saturating_sub(self.sent_ns))
    }
}

/// Two sites, a sendbox with 5 Mbit/s and its log in a file, and a receiver.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    sendbox: Child,
    arrivals: Arc<std::sync::Mutex<Vec<Arrival>>>,
    _turn: Turn,
}

impl Scene {
    /// `None` without the privilege to do so.
    fn set_up() -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = together();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        let folder = tempfile::tempdir().unwrap();
        let config = write_sendbox(folder.path(), "5Mbit/s");
        let log = File::create(folder.path().join("log")).unwrap();
        let sites = &topology.pairs[0];
        let sendbox = command(&sites.left_box, "sendbox", &config).stderr(log).spawn().unwrap();
        let bind = || UdpSocket::bind((Site::RightHosts.address(0), PORT));
        let receiver = sites.right_hosts.within(bind).unwrap();
        let arrivals = Arc::<std::sync::Mutex<Vec<Arrival>>>::default();
        let into = arrivals.clone();
        // It ends with the process.
        thread::spawn(move || {
            let mut datagram = [0; 2 * DATAGRAM];
            while receiver.recv(&mut datagram).is_ok() {
                let sent_ns = u64::from_be_bytes(datagram[..8].try_into().unwrap());
                let arrived_ns = clock::now().as_nanos();
                into.lock().unwrap().push(Arrival { sent_ns, arrived_ns });
            }
        });
        let scene = Self { topology, folder, sendbox, arrivals, _turn: turn };
        scene.status();
        Some(scene)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn status(&self) -> Status {
        await_status(&self.folder.path().join("box.sock"))
    }

    /// A counter of the LAN port, if there is one of this name.
    fn find(&self, name: &str) -> Option<u64> {
        let status = self.status();
        status.ports[0].counters.iter().find(|(key, _)| key == name).map(|(_, count)| *count)
    }

    fn counter(&self, name: &str) -> u64 {
        self.find(name).unwrap_or_else(|| panic!("no {name}"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.sendbox.kill();
        let _ = self.sendbox.wait();
    }
}

/// Sends datagrams with their sending times, one each `gap`.
struct Sender {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Sender {
    fn start(scene: &Scene, gap: Duration) -> Self {
        let bind = || UdpSocket::bind((Site::LeftHosts.address(0), PORT));
        let socket = scene.topology.pairs[0].left_hosts.within(bind).unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let over = is_over.clone();
        let thread = thread::spawn(move || {
            let mut due = Instant::now();
            while !over.load(Ordering::Relaxed) {
                let mut datagram = [0; DATAGRAM];
                datagram[..8].copy_from_slice(&clock::now().as_nanos().to_be_bytes());
                // The receiver notices lost datagrams.
                let _ = socket.send_to(&datagram, (Site::RightHosts.address(0), PORT));
                due += gap;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        Self { is_over, thread }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Stops a process and lets it run, in turn.
struct Duty {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Duty {
    fn start(process: &Child, [stopped, running]: [Duration; 2]) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (over, pid) = (is_over.clone(), process.id());
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                send(pid, Signal::SIGSTOP);
                thread::sleep(stopped);
                send(pid, Signal::SIGCONT);
                longest = longest.max(began.elapsed());
                thread::sleep(running);
            }
            longest
        });
        Self { is_over, thread }
    }

    /// Has the process run again; answers the longest stop.
    fn end(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn signal(process: &Child, signal: Signal) {
    send(process.id(), signal);
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}
