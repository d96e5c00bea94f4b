//! Changes of the configuration of running boxes: no packet is lost, and there is a way back.

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::reload::start::{self as on_trial, Left};
use forebay_host::daemon::status::Status;
use forebay_host::service::control::{self, Answer, Request};
use forebay_host::service::outcome::{Fate, Outcome};
use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{Site, Topology};
use nix::sys::signal::Signal;

use crate::by_hand::{await_status, await_that, connect_the_sites, signal, start};
use crate::forebay;
use crate::turns::{alone, together};
use crate::two_bundles::{await_both, give_ipv6, write_configs};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];
/// Reloads of each box under traffic.
const ROUNDS: u32 = 20;
/// Bundles that one reload adds: with the two existing ones nearly as many as a box can have.
const MANY: usize = 250;

/// Two connected boxes, and their files.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    configs: [PathBuf; 2],
    sockets: [PathBuf; 2],
    boxes: [Child; 2],
}

impl Scene {
    fn set_up() -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        give_ipv6(&topology.pairs[0]);
        let folder = tempfile::tempdir().unwrap();
        let configs = write_configs(folder.path());
        let sockets = ROLES.map(|role| folder.path().join(format!("{role}.sock")));
        let sites = &topology.pairs[0];
        let boxes = [
            start(&sites.right_box, ROLES[0], &configs[0]),
            start(&sites.left_box, ROLES[1], &configs[1]),
        ];
        let scene = Self { topology, folder, configs, sockets, boxes };
        await_both(&scene.sockets, are_alive);
        Some(scene)
    }

    fn reload(&self, index: usize) -> Outcome {
        match control::ask::<Status>(&self.sockets[index], Request::Reload).unwrap() {
            Answer::Changed(outcome) => *outcome,
            other => panic!("{other:?}"),
        }
    }

    fn max_rate_bps(&self) -> Option<u64> {
        await_status(&self.sockets[1]).bundles[0].shaping.as_ref().unwrap().max_rate_bps
    }

    /// Runs `forebay` with these arguments and the sendbox's socket.
    fn forebay(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(forebay());
        command.args(arguments).arg("--socket").arg(&self.sockets[1]);
        if ["apply", "confirm"].contains(&arguments[0]) {
            command.arg("--config").arg(&self.configs[1]);
        }
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// A copy of the sendbox's file with another bound of the first bundle.
    fn candidate(&self, max_rate: &str) -> PathBuf {
        let text = fs::read_to_string(&self.configs[1]).unwrap();
        let edited = text.replace("max_rate = \"8Mbit/s\"", &format!("max_rate = \"{max_rate}\""));
        assert_ne!(edited, text);
        let file = self.folder.path().join("other.toml");
        fs::write(&file, edited).unwrap();
        file
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for one in &mut self.boxes {
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}

fn are_alive(both: &[Status; 2]) -> bool {
    both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn fates(outcome: &Outcome) -> Vec<(&str, Fate)> {
    outcome.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle.fate)).collect()
}

/// Sends numbered datagrams until `is_over`, one a millisecond; returns the sent and the received
/// numbers.
fn numbered(scene: &Scene, is_over: &AtomicBool) -> [BTreeSet<u64>; 2] {
    let sites = &scene.topology.pairs[0];
    let bind = |namespace: &forebay_testbed::namespace::Namespace, site: Site| {
        namespace.within(|| UdpSocket::bind((site.address(0), PORT))).unwrap()
    };
    let sender = bind(&sites.left_hosts, Site::LeftHosts);
    let receiver = bind(&sites.right_hosts, Site::RightHosts);
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    sender.connect((Site::RightHosts.address(0), PORT)).unwrap();
    thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let mut sent = BTreeSet::new();
            for number in 0_u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                if sender.send(&[number.to_be_bytes(); 50].concat()).is_ok() {
                    sent.insert(number);
                }
                thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        let received = scope.spawn(|| {
            let (mut received, mut buffer) = (BTreeSet::new(), [0; 2048]);
            while let Ok(len) = receiver.recv(&mut buffer) {
                assert_eq!(len, 400);
                received.insert(u64::from_be_bytes(buffer[..8].try_into().unwrap()));
            }
            received
        });
        [sent.join().unwrap(), received.join().unwrap()]
    })
}

/// The file of a box with a third bundle, other values of the second and another queue of the first.
fn edited(text: &str, round: u32) -> String {
    let is_odd = round % 2 == 1;
    let mut edited = text.replace("max_rate = \"4Mbit/s\"", "max_rate = \"3Mbit/s\"");
    if is_odd {
        edited = edited.replacen("limit = \"400p\"", "limit = \"500p\"", 1);
        let bundle = &text[text.rfind("[[bundle]]").unwrap()..];
        let bundle = bundle.replace("\"six\"", "\"third\"").replace("id = 2", "id = 3");
        edited += &bundle.replace("fd00:0:2::/48", "fd00:0:3::/48");
    }
    edited
}

#[test]
fn reloads_under_traffic_keep_packets_and_sessions() {
    let _turn = alone();
    let Some(scene) = Scene::set_up() else { return };
    let files = scene.configs.each_ref().map(|file| fs::read_to_string(file).unwrap());
    carry_whole(&scene, || {
        let begun = await_both(&scene.sockets, |both| measured(&both[1]).0 > 5);
        for round in 0..ROUNDS {
            for index in [0, 1] {
                fs::write(&scene.configs[index], edited(&files[index], round)).unwrap();
                let outcome = scene.reload(index);
                assert!(outcome.refused.is_empty(), "{outcome}");
                let third = if round % 2 == 1 { Fate::Added } else { Fate::Removed };
                assert_eq!(fates(&outcome).contains(&("third", third)), round > 0, "{outcome}");
            }
            thread::sleep(Duration::from_millis(100));
        }
        let ended = await_both(&scene.sockets, |both| {
            are_alive(both) && measured(&both[1]).0 > measured(&begun[1]).0 + 20
        });
        // A new session would forget its rejects, and a new control loop its boundaries.
        assert_eq!(measured(&ended[1]).1, measured(&begun[1]).1, "{ended:#?}");
        assert_eq!(ended.each_ref().map(|one| one.bundles.len()), [3, 3]);
    });
}

#[test]
fn reload_of_hundreds_of_bundles_loses_no_packet() {
    let _turn = alone();
    let Some(scene) = Scene::set_up() else { return };
    let files = scene.configs.each_ref().map(|file| fs::read_to_string(file).unwrap());
    carry_whole(&scene, || {
        await_both(&scene.sockets, |both| measured(&both[1]).0 > 5);
        for (fate, texts) in
            [(Fate::Added, files.each_ref().map(|text| many(text))), (Fate::Removed, files.clone())]
        {
            for index in [0, 1] {
                fs::write(&scene.configs[index], &texts[index]).unwrap();
                let began = Instant::now();
                let outcome = scene.reload(index);
                println!("{}: {} in {:?}", ROLES[index], outcome.summary(), began.elapsed());
                let count = outcome.bundles.iter().filter(|bundle| bundle.fate == fate).count();
                assert_eq!(count, MANY, "{outcome}");
            }
            await_both(&scene.sockets, are_alive);
        }
    });
}

/// The file of a box with hundreds of bundles more, which are like its second one.
fn many(text: &str) -> String {
    let bundle = &text[text.rfind("[[bundle]]").unwrap()..];
    let more = (0..MANY).map(|number| {
        let bundle = bundle.replace("\"six\"", &format!("\"more{number}\""));
        let bundle = bundle.replace("id = 2", &format!("id = {}", 100 + number));
        bundle.replace("fd00:0:2::/48", &format!("fd00:1:{number:x}::/48"))
    });
    text.to_string() + &more.collect::<String>()
}

/// The first bundle's matched boundaries, and its reports that matched none.
fn measured(status: &Status) -> (u64, u64) {
    let shaping = status.bundles[0].shaping.as_ref().unwrap();
    (shaping.counters.boundaries_matched, shaping.reports_unmatched)
}

/// Does `work` while a flow runs in the first bundle; the flow must lose nothing.
fn carry_whole(scene: &Scene, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let [sent, received] = thread::scope(|scope| {
        let traffic = scope.spawn(|| numbered(scene, &is_over));
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        let traffic = traffic.join().unwrap();
        worked.unwrap();
        traffic
    });
    let lost: Vec<&u64> = sent.difference(&received).collect();
    assert!(lost.is_empty() && sent.len() > 100, "of {} sent these are lost: {lost:?}", sent.len());
}

#[test]
fn reload_keeps_unchanged_and_refuses_fixed_values() {
    let _turn = together();
    let Some(scene) = Scene::set_up() else { return };
    let outcome = scene.reload(1);
    assert!(outcome.is_nothing() && outcome.refused.is_empty(), "{outcome}");
    let before = fs::read_to_string(&scene.configs[1]).unwrap();
    let wrong = before.replace("wan = \"wan\"", "wan = \"wan2\"").replace("8Mbit/s", "7Mbit/s");
    fs::write(&scene.configs[1], wrong).unwrap();
    let refused = scene.forebay(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let told = text(&refused.stderr);
    assert!(told.contains("refused; nothing has changed\n  box.wan wan -> wan2: "), "{told}");
    assert_eq!(scene.max_rate_bps(), Some(8_000_000));
    let document = scene.forebay(&["reload", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["boxes"][0]["bundles"][0]["fate"], "changed", "{document}");
    assert_eq!(document["boxes"][0]["refused"].as_array().unwrap().len(), 1, "{document}");
    fs::write(&scene.configs[1], before.replace("8Mbit/s", "7Mbit/s")).unwrap();
    let done = scene.forebay(&["reload"]);
    assert!(done.status.success(), "{done:?}");
    let told = text(&done.stdout);
    assert!(told.contains("  bundle four changed: max_rate 8Mbit/s -> 7Mbit/s\n"), "{told}");
    assert!(told.contains("  unchanged: six\n"), "{told}");
    assert_eq!(scene.max_rate_bps(), Some(7_000_000));
    let explained = scene.forebay(&["explain", "four"]);
    assert!(text(&explained.stdout).starts_with("Packets of four leave "), "{explained:?}");
    let unknown = scene.forebay(&["explain", "five"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("allowed is one of four, six"), "{unknown:?}");
}

/// Starts `forebay apply` at a terminal of its own, which ends with the returned process.
fn at_a_terminal(scene: &Scene, file: &Path, within: &str) -> Child {
    let (socket, own) = (scene.sockets[1].display(), scene.configs[1].display());
    let line = format!(
        "{} apply {} --confirm {within} --socket {socket} --config {own}",
        forebay().display(),
        file.display()
    );
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::null());
    script.spawn().unwrap()
}

#[test]
fn trial_reverts_when_its_terminal_is_killed() {
    let _turn = together();
    let Some(scene) = Scene::set_up() else { return };
    let before = fs::read_to_string(&scene.configs[1]).unwrap();
    let candidate = scene.candidate("5Mbit/s");
    let began = Instant::now();
    let mut terminal = at_a_terminal(&scene, &candidate, "6s");
    await_that("the change is on trial", || {
        await_status(&scene.sockets[1]).trial.is_some() && scene.max_rate_bps() == Some(5_000_000)
    });
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    // Meanwhile no other change is accepted, and the file does not change.
    let refused = scene.reload(1).refused.join("");
    assert!(refused.contains("is on trial for") && refused.contains("forebay revert"), "{refused}");
    assert_eq!(fs::read_to_string(&scene.configs[1]).unwrap(), before);
    await_that("it has gone back", || scene.max_rate_bps() == Some(8_000_000));
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(await_status(&scene.sockets[1]).trial, None);
    assert_eq!(scene.forebay(&["confirm"]).status.code(), Some(1), "too late");
    await_both(&scene.sockets, are_alive);
}

#[test]
fn start_on_trial_outlives_crash_and_ends_unconfirmed() {
    let _turn = together();
    let Some(mut scene) = Scene::set_up() else { return };
    let socket = scene.sockets[1].clone();
    // The service manager restarts a box that crashed.
    let crash = |scene: &mut Scene| {
        scene.boxes[1].kill().unwrap();
        scene.boxes[1].wait().unwrap();
        let namespace = &scene.topology.pairs[0].left_box;
        scene.boxes[1] = start(namespace, ROLES[1], &scene.configs[1]);
        await_status(&scene.sockets[1]).trial
    };
    on_trial::put(&socket, 60).unwrap();
    for _ in 0..2 {
        let trial = crash(&mut scene);
        assert!(
            trial.as_ref().is_some_and(|trial| trial.is_start && trial.left_s <= 60),
            "{trial:?}"
        );
    }
    signal(&scene.boxes[1], Signal::SIGTERM);
    assert!(scene.boxes[1].wait().unwrap().success());
    assert!(crash(&mut scene).is_some(), "stopped by hand, and started again");
    assert!(scene.forebay(&["confirm"]).status.success());
    assert_eq!(await_status(&socket).trial, None);
    assert_eq!(crash(&mut scene), None);
    on_trial::put(&socket, 5).unwrap();
    assert!(crash(&mut scene).is_some());
    await_that("it ends", || scene.boxes[1].try_wait().unwrap().is_some());
    let ended = scene.boxes[1].wait().unwrap();
    assert!(ended.success() && on_trial::left(&socket).unwrap() == Left::NoTrial, "{ended}");
}

#[test]
fn confirmed_change_stays_and_is_written() {
    let _turn = together();
    let Some(scene) = Scene::set_up() else { return };
    let before = fs::read_to_string(&scene.configs[1]).unwrap();
    let apply = |file: &Path| scene.forebay(&["apply", file.to_str().unwrap(), "--confirm", "30s"]);
    let own = apply(&scene.configs[1]);
    assert_eq!(own.status.code(), Some(2));
    assert!(text(&own.stderr).contains("a copy with your changes"), "{own:?}");
    let candidate = scene.candidate("5Mbit/s");
    let planned =
        Command::new(forebay()).args(["apply", "--dry-run"]).arg(&candidate).output().unwrap();
    let planned = text(&planned.stdout);
    assert!(planned.contains("bundle four changed: max_rate 8Mbit/s -> 5Mbit/s"), "{planned}");
    let applied = apply(&candidate);
    assert!(applied.status.success(), "{applied:?}");
    assert!(text(&applied.stdout).contains("reverts in 30 s, unless"), "{applied:?}");
    assert!(scene.forebay(&["revert"]).status.success());
    await_that("it has gone back", || scene.max_rate_bps() == Some(8_000_000));
    let mut terminal = at_a_terminal(&scene, &candidate, "30s");
    // Otherwise the end of its stdin would close the terminal.
    let stdin = terminal.stdin.take();
    await_that("the change is on trial", || await_status(&scene.sockets[1]).trial.is_some());
    assert_eq!(apply(&candidate).status.code(), Some(2), "another is on trial");
    let confirmed = scene.forebay(&["confirm"]);
    assert!(confirmed.status.success(), "{confirmed:?}");
    let began = Instant::now();
    assert!(terminal.wait().unwrap().success(), "another has confirmed it");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    drop(stdin);
    assert_eq!(await_status(&scene.sockets[1]).trial, None);
    assert_eq!(scene.max_rate_bps(), Some(5_000_000));
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    assert_eq!(read(&scene.configs[1]), read(&candidate));
    assert_eq!(read(&scene.folder.path().join("sendbox.toml.before")), before);
    assert!(!scene.folder.path().join("sendbox.toml.candidate").exists());
    let again = scene.reload(1);
    assert!(again.is_nothing(), "{again}");
}
