//! A box that a test plays: no root, no traffic.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_core::record::{DecisionRecord, PathRecord};
use forebay_host::daemon::Role;
use forebay_host::daemon::status::{BundleStatus, LastSecond, PeerStatus, ShapingStatus, Status};
use forebay_host::service::control::{Answer, ControlSocket};
use forebay_host::service::privileges::Confinement;

/// A box that answers on a socket until it is dropped.
pub struct Played {
    program: &'static str,
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Played {
    /// Begins to answer. The test runs `program` to watch it.
    pub fn start(program: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut control =
            ControlSocket::bind(&folder.path().join("box.sock"), &Confinement::default()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, began) = (stop.clone(), Instant::now());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                control.serve(|_| Some(Answer::Status(Box::new(status(began.elapsed())))));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { program, folder, stop, thread: Some(thread) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.program);
        command.current_dir(self.folder.path()).args(arguments).output().unwrap()
    }

    /// Records it for three seconds as `a.tar.gz`, with these further arguments.
    pub fn record(&self, arguments: &[&str]) -> Output {
        let record = ["record", "--socket", "box.sock", "--minutes", "0.05", "--out", "a.tar.gz"];
        self.run(&[&record, arguments].concat())
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The path in the last 3.2 s: 12 Mbit/s, 20 ms, and a queue of 2 ms.
fn spans(up_ns: u64) -> Vec<PathRecord> {
    let newest = up_ns / 100_000_000;
    let span = |number: u64| PathRecord {
        at_ns: number * 100_000_000,
        took_ns: 100_000_000,
        received_bytes: 150_000,
        least_rtt_ns: 20_000_000,
        median_rtt_ns: 22_000_000,
        least_raw_rtt_ns: 20_000_000,
        ..PathRecord::default()
    };
    (newest - 31..=newest).map(span).collect()
}

/// A bundle that is shaped, and after a second unshaped.
pub fn status(up: Duration) -> Status {
    let up_ns = up.as_nanos() as u64 + 100_000_000_000;
    let is_shaped = up < Duration::from_secs(1);
    let decision = DecisionRecord {
        at_ns: up_ns,
        rate_bps: is_shaped.then_some(11_000_000),
        min_rtt_ns: Some(20_000_000),
        queue_delay_ns: Some(1_000_000),
        bottleneck_bps: Some(12_000_000),
        state: if is_shaped { "shaping" } else { "competing" }.into(),
        reason: "as the test has it".into(),
        ..DecisionRecord::default()
    };
    let mut shaping = ShapingStatus {
        cc: "copa".into(),
        qdisc: "fq_codel(limit=150ms)".into(),
        decision: decision.clone(),
        decisions: vec![decision],
        last_second: LastSecond {
            sent_bps: 11_000_000,
            delivered_bps: 10_900_000,
            queue_delay_ns: Some(30_000_000),
        },
        flows: Some(3),
        path: spans(up_ns),
        ..ShapingStatus::default()
    };
    shaping.queue.packets = 20;
    let peer = PeerStatus { state: "alive".into(), ..PeerStatus::default() };
    let bundle = BundleStatus {
        name: "berlin".into(),
        id: 1,
        peer,
        shaping: Some(shaping),
        ..BundleStatus::default()
    };
    Status {
        at_ns: up_ns,
        uptime_ns: up_ns,
        bundles: vec![bundle],
        ..Status::new(Role::Sendbox, false)
    }
}
