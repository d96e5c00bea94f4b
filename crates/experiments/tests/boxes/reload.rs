//! One box reads its keys again while the other one restarts.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_testbed::topology::Site;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::by_hand::{bridged, start};
use crate::turns::together;
use crate::two_bundles::{await_both, give_ipv6, write_configs};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];
/// Time from the start of one box to the reload at the other: before the started box runs, when it first
/// sends, and during its first session.
const OFFSETS_MS: [u64; 5] = [0, 60, 120, 250, 1000];

#[test]
fn reload_during_peer_restart_keeps_measuring() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    give_ipv6(sites);
    let folder = tempfile::tempdir().unwrap();
    let configs = write_configs(folder.path());
    give_second_keys(folder.path());
    let namespaces = [&sites.right_box, &sites.left_box];
    let start = |index: usize| start(namespaces[index], ROLES[index], &configs[index]);
    let mut boxes = [start(0), start(1)];
    let sockets = ROLES.map(|role| folder.path().join(format!("{role}.sock")));

    let socket = |namespace: &forebay_testbed::namespace::Namespace, site: Site| {
        namespace.within(|| UdpSocket::bind((site.address(0), PORT))).unwrap()
    };
    let sender = socket(&sites.left_hosts, Site::LeftHosts);
    let _receiver = socket(&sites.right_hosts, Site::RightHosts);
    sender.connect((Site::RightHosts.address(0), PORT)).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0_u64.. {
                let _ = sender.send(&[number.to_be_bytes(); 64].concat());
                thread::sleep(Duration::from_millis(2));
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            await_both(&sockets, is_measured(0));
            for restarted in [0, 1] {
                for offset in OFFSETS_MS {
                    boxes[restarted].kill().unwrap();
                    boxes[restarted].wait().unwrap();
                    let began = Instant::now();
                    boxes[restarted] = start(restarted);
                    thread::sleep(Duration::from_millis(offset));
                    turn_keys(folder.path());
                    let reloaded = boxes[1 - restarted].id() as i32;
                    kill(Pid::from_raw(reloaded), Signal::SIGHUP).unwrap();
                    // Messages of earlier sessions have arrived by now.
                    thread::sleep(Duration::from_millis(1000));
                    let [_, sendbox] = await_both(&sockets, |_| true);
                    let matched =
                        sendbox.bundles[0].shaping.as_ref().unwrap().counters.boundaries_matched;
                    await_both(&sockets, is_measured(matched));
                    let (role, took) = (ROLES[restarted], began.elapsed());
                    println!("{role} restarted, reload {offset} ms later: measured after {took:?}");
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        work.unwrap();
    });
    for one in &mut boxes {
        one.kill().unwrap();
        one.wait().unwrap();
    }
}

/// Configures a second key of each bundle at both boxes.
fn give_second_keys(folder: &Path) {
    let more = folder.join("more.key");
    keys::generate(&more).unwrap();
    for name in ["four.key", "six.key"] {
        let both = [folder.join(name), more.clone()].map(|file| fs::read_to_string(file).unwrap());
        fs::write(folder.join(name), both.concat()).unwrap();
    }
}

/// Makes boxes that read their keys from now on send with the other key. The file is replaced as a whole,
/// because the restarted box may be reading it.
fn turn_keys(folder: &Path) {
    for name in ["four.key", "six.key"] {
        let (file, turned) = (folder.join(name), folder.join("turned.key"));
        fs::copy(&file, &turned).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().rev().collect();
        fs::write(&turned, lines.join("\n")).unwrap();
        fs::rename(&turned, &file).unwrap();
    }
}

/// Whether both boxes receive each other's messages in all bundles. The bundle with traffic must also have
/// more than `matched` matched boundaries.
fn is_measured(matched: u64) -> impl Fn(&[Status; 2]) -> bool {
    move |both| {
        let mut bundles = both.iter().flat_map(|one| &one.bundles);
        let shaping = both[1].bundles[0].shaping.as_ref().unwrap();
        bundles.all(|bundle| bundle.peer.state == "alive")
            && shaping.counters.boundaries_matched > matched + 5
            && !["no_peer", "no_reports", "unsteady"].contains(&shaping.decision.state.as_str())
    }
}
