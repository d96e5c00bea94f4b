//! Tests of the loop over a datapath in memory, with a receivebox that answers it.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use forebay_core::bundle::receivebox::Receivebox;
use forebay_core::bundle::uplink::{Member, UplinkConfig};
use forebay_core::units::Rate;

use super::datapath::Health;
use super::datapath::stub::{Kernel, PATH, Stub};
use super::*;
use crate::daemon::reload::difference::BundleOrigin;
use crate::daemon::status::{ShapingStatus, ShareStatus};
use crate::daemon::{config as file, keys, unguessable};
use crate::service::supervisor::Handle;

/// A configuration with a trace. Its bundle has a rate before anything is known of its peer.
pub fn config(folder: &Path) -> Config {
    keys::generate(&folder.join("bundle.key")).unwrap();
    let text = r#"
[box]
role = "sendbox"
lan = "s0"
wan = "s1"
listen = "10.1.3.1"

[trace]
file = "trace"

[[bundle]]
name = "b"
id = 1
peer = "10.1.3.2"
to = ["10.1.2.0/24"]
key_file = "bundle.key"
cc = "copa"
qdisc = { kind = "sfq", limit = "1200p" }
max_rate = "10Mbit/s"
"#;
    let file = folder.join("box.toml");
    fs::write(&file, text).unwrap();
    Config::load(&file).unwrap()
}

/// A worker over the kernel of `stub`, before its first round.
fn open(config: &Config, keys: &KeyRing, stub: &Stub) -> SendboxWorker<Stub> {
    let (keys, confinement) = (std::slice::from_ref(keys), Confinement::default());
    let datapath = |_: &Observation, _| Ok(stub.clone());
    SendboxWorker::open(config, keys, &confinement, false, observed(), datapath).unwrap()
}

/// A sendbox that runs, and its receivebox.
struct Running {
    stub: Stub,
    config: Config,
    keys: KeyRing,
    handle: Handle<SendboxWorker<Stub>>,
    peer: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
}

impl Running {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(edit: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        edit(&mut config);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        config.trace = None;
        config.realtime = false;
        // A configuration file may not ask for a free port.
        config.listen = vec!["127.0.0.1:0".parse().unwrap()];
        config.bundles[0].peer = socket.local_addr().unwrap().into();
        let keys = keys::load(&config.bundles[0].key_file).unwrap();
        let (stub, is_over) = (Stub::default(), Arc::<AtomicBool>::default());
        let worker = open(&config, &keys, &stub);
        let peer = {
            let (stub, is_over) = (stub.clone(), is_over.clone());
            let receivebox = Receivebox::new(
                config.bundles[0].id,
                &keys,
                unguessable(),
                unguessable(),
                clock::now(),
            );
            thread::spawn(move || answer(&socket, receivebox, &stub, &is_over))
        };
        let handle = Handle::start(worker).unwrap();
        Self { stub, config, keys, handle, peer, is_over, _folder: folder }
    }

    /// Waits until the kernel and the state of the bundle are as wanted.
    fn wait_for(&self, what: &str, is_so: impl Fn(&Kernel, &ShapingStatus) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let status = self.handle.status().unwrap();
            let shaping = status.bundles[0].shaping.as_ref().unwrap();
            if is_so(&self.stub.kernel(), shaping) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {status:#?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has the worker switch to a configuration that keeps the bundle.
    fn change(&self, edit: impl FnOnce(&mut Config)) -> Result<(), String> {
        let mut config = self.config.clone();
        edit(&mut config);
        let origins = vec![BundleOrigin::Kept { place: 0, has_other_keys: false }];
        let keys = vec![self.keys.clone()];
        self.handle.change(reload::ReloadChange { config, keys, origins })
    }

    fn stop(self) -> Status {
        let status = self.handle.stop(Duration::from_secs(30)).unwrap();
        self.is_over.store(true, Ordering::Relaxed);
        self.peer.join().unwrap();
        status
    }
}

/// An observer that finds nothing and stays alive.
fn observed() -> (Observer, Observation) {
    let mut program = Program::new("sh");
    let nothing = serde_json::to_string(&Observation::default()).unwrap();
    program.args(["-c", "echo \"$0\"; while sleep 1; do echo; done", &nothing]);
    Observer::start_as(program).unwrap()
}

/// A receivebox at the end of the path behind the datapath.
fn answer(socket: &UdpSocket, mut receivebox: Receivebox, stub: &Stub, is_over: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    let (mut sendbox, mut buffer, mut out) = (None, [0; 2048], Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            sendbox = Some(from);
            // The receivebox answers no rejected datagram, and the test waits in vain.
            let _ = receivebox.on_datagram(clock::now(), &buffer[..len], &mut unguessable);
        }
        let now = clock::now();
        while let Some(seen) = stub.kernel().arrive(now) {
            receivebox.on_boundary(now, &seen);
        }
        let Some(sendbox) = sendbox else { continue };
        while receivebox.poll(now, &mut out) {
            socket.send_to(&out, sendbox).unwrap();
        }
    }
}

fn rate_bps(kernel: &Kernel) -> Option<u64> {
    kernel.steering?.rate.map(Rate::as_bits_per_sec)
}

#[test]
fn departure_within_a_quantum_needs_no_wakeup() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path());
    config.trace = None;
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let (keys, stub) = (keys::load(&config.bundles[0].key_file).unwrap(), Stub::default());
    let mut worker = open(&config, &keys, &stub);
    worker.round().unwrap();
    let now = clock::now();
    let mut pacing = |queued, due| {
        stub.kernel().queued = queued;
        worker.schedule.pop(Timestamp::MAX);
        worker.schedule.set(0, now + due);
        worker.pacing(now)
    };
    // 1500 bytes take 1.2 ms at 10 Mbit/s.
    assert_eq!(pacing(1, QUANTUM), Some(QUANTUM));
    assert_eq!(pacing(0, QUANTUM), None, "nothing waits, and new packets may leave at once");
    assert_eq!(pacing(1, 2 * QUANTUM), None, "a slow bundle has time for a wake-up");
}

#[test]
fn datapath_reporting_only_boundaries_is_shaped() {
    let running = Running::start();
    running.stub.kernel().queued = 1_000_000;
    // Half of the rate that the bundle may use, and all of the path's rate.
    running.wait_for("shaped to the path's rate", |kernel, shaping| {
        let path = PATH.as_bits_per_sec();
        rate_bps(kernel).is_some_and(|rate| rate < path * 5 / 4)
            && shaping.decision.state == "shaping"
    });
    running.wait_for("a second of it measured", |_, shaping| {
        let last = shaping.last_second;
        let sent = last.sent_bps.min(last.delivered_bps);
        sent > PATH.as_bits_per_sec() / 2 && last.queue_delay_ns.is_some_and(|ns| ns > 0)
    });
    running.stub.kernel().queued = 0;
    let status = running.stop();
    let (bundle, shaping) = (&status.bundles[0], status.bundles[0].shaping.as_ref().unwrap());
    assert_eq!(bundle.peer.state, "alive");
    assert_eq!(shaping.reports_unmatched, 0);
    assert_eq!(bundle.bytes, 1500 * bundle.packets);
}

#[test]
fn bundle_keeps_its_uplink_share_shown_in_status() {
    let (rate, bundles) = (Rate::from_mbit_per_sec(3), vec![Member::default()]);
    let running = Running::start_with(|config| {
        let shares = UplinkConfig { rate, groups: Vec::new(), bundles };
        config.uplink = Some(file::Uplink { shares, groups: Vec::new() });
    });
    running.stub.kernel().queued = 1_000_000;
    let share = ShareStatus {
        rate_bps: rate.as_bits_per_sec(),
        share: 1.0,
        weight: 1,
        guarantee_bps: None,
        is_short: true,
    };
    running.wait_for("held to the line's rate", |kernel, shaping| {
        rate_bps(kernel) == Some(share.rate_bps) && shaping.share == Some(share)
    });
    running.stub.kernel().queued = 0;
    assert_eq!(running.stop().uplink_bps, Some(share.rate_bps));
}

#[test]
fn running_bundle_takes_bounds_and_shares_without_restart() {
    let running = Running::start();
    running.stub.kernel().queued = 1_000_000;
    running.wait_for("measured", |_, shaping| shaping.counters.boundaries_matched > 20);
    let before = running.handle.status().unwrap();
    let max_rate = Rate::from_mbit_per_sec(2);
    let bound = |config: &mut Config| {
        config.bundles[0].shaping.as_mut().unwrap().max_rate = Some(max_rate);
    };
    running.change(bound).unwrap();
    running.wait_for("held to the new bound", |kernel, shaping| {
        rate_bps(kernel) == Some(2_000_000) && shaping.max_rate_bps == Some(2_000_000)
    });
    let (rate, bundles) = (Rate::from_mbit_per_sec(1), vec![Member::default()]);
    let share = |config: &mut Config| {
        bound(config);
        let shares = UplinkConfig { rate, groups: Vec::new(), bundles };
        config.uplink = Some(file::Uplink { shares, groups: Vec::new() });
    };
    running.change(share).unwrap();
    running.wait_for("held to its share", |kernel, _| rate_bps(kernel) == Some(1_000_000));
    running.change(bound).unwrap();
    running.wait_for("held to the bound alone", |kernel, shaping| {
        rate_bps(kernel) == Some(2_000_000) && shaping.share.is_none()
    });
    assert_eq!(running.stub.kernel().rearranged, 3);
    running.wait_for("more sent", |_, shaping| shaping.counters.boundaries_matched > 60);
    running.stub.kernel().queued = 0;
    let after = running.stop();
    let [before, after] = [&before, &after].map(|status| &status.bundles[0]);
    assert!(after.packets > before.packets && after.peer.state == "alive", "{after:?}");
    let [before, after] = [before, after].map(|it| it.shaping.as_ref().unwrap());
    assert!(after.counters.boundaries_matched > before.counters.boundaries_matched);
    assert_eq!(after.reports_unmatched, 0);
    assert_eq!(after.decision.min_rtt_ns.is_some(), before.decision.min_rtt_ns.is_some());
}

#[test]
fn what_the_datapath_cannot_take_changes_nothing() {
    let running = Running::start();
    running.wait_for("carried", |kernel, _| kernel.is_carrying && rate_bps(kernel).is_some());
    running.stub.kernel().is_full = true;
    let edit = |config: &mut Config| {
        config.bundles[0].shaping.as_mut().unwrap().max_rate = Some(Rate::from_mbit_per_sec(2));
    };
    assert_eq!(running.change(edit), Err("the table is full".into()));
    let status = running.handle.status().unwrap();
    assert_eq!(status.bundles[0].shaping.as_ref().unwrap().max_rate_bps, Some(10_000_000));
    assert_eq!(rate_bps(&running.stub.kernel()), Some(10_000_000));
    running.stop();
}

#[test]
fn bundles_may_begin_and_end_while_handed_back() {
    let running = Running::start();
    running.stub.kernel().health = Health { is_overrun: true, ..Health::default() };
    running.wait_for("handed back", |_, shaping| shaping.decision.state == "handed_back");
    let mut config = running.config.clone();
    config.bundles[0].name = "c".into();
    let (keys, origins) = (vec![running.keys.clone()], vec![BundleOrigin::New]);
    running.handle.change(reload::ReloadChange { config, keys, origins }).unwrap();
    let status = running.stop();
    let names: Vec<&str> = status.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
    assert_eq!(names, ["c"]);
    assert_eq!(status.bundles[0].shaping.as_ref().unwrap().decision.state, "handed_back");
}

#[test]
fn bad_health_hands_back_and_flushes_queues() {
    let running = Running::start();
    running.wait_for("carried", |kernel, _| kernel.is_carrying && rate_bps(kernel).is_some());
    running.stub.kernel().health = Health { is_overrun: true, ..Health::default() };
    running.wait_for("handed back", |kernel, shaping| {
        !kernel.is_carrying && rate_bps(kernel).is_none() && shaping.decision.state == "handed_back"
    });
    let status = running.stop();
    let reason = &status.bundles[0].shaping.as_ref().unwrap().decision.reason;
    assert_eq!(reason, "packets arrive faster than the box can handle");
    assert_eq!(status.ports[0].counters, [("handed_back".into(), 1)]);
}

#[test]
fn unmet_condition_hands_back_until_met() {
    let running = Running::start();
    running.wait_for("carried", |kernel, _| kernel.is_carrying);
    let error = io::Error::other("no socket is left");
    running.stub.kernel().failed_conditions = vec![FailedCondition::made_again("s1", &error)];
    running.wait_for("handed back", |kernel, _| !kernel.is_carrying);
    let status = running.handle.status().unwrap();
    assert_eq!(status.failed_conditions[0].condition, "device");
    running.stub.kernel().failed_conditions.clear();
    running.wait_for("carried again", |kernel, _| kernel.is_carrying && rate_bps(kernel).is_some());
    running.stop();
}

#[test]
fn stop_paces_queued_packets_then_hands_back() {
    let running = Running::start();
    running.wait_for("carried", |kernel, _| kernel.is_carrying && rate_bps(kernel).is_some());
    running.stub.kernel().queued = 100;
    let (stub, started) = (running.stub.clone(), Instant::now());
    let status = running.stop();
    // 100 packets of 1500 bytes at no more than 10 Mbit/s.
    assert!(started.elapsed() >= Duration::from_millis(100), "{:?}", started.elapsed());
    assert_eq!(status.bundles[0].packets, 100);
    assert_eq!(stub.kernel().queued_at_hand_back, Some(0));
    assert!(!stub.kernel().is_carrying);
}
