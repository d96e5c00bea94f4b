//! Boxes with different configurations report the differences, and stop when these are gone.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};

use crate::by_hand::{command, connect_the_sites, ip};
use crate::turns::{Turn, together};
use crate::two_bundles::await_both;

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Prefixes of the right site.
const BOTH: [&str; 2] = ["10.1.2.0/24", "10.1.5.0/24"];
/// An address of the left box in the right site's hosts' network, which no box should have.
const AMONG_THEIRS: &str = "10.1.2.200";
/// An address of the left box in its own hosts' network, as for a box that is their router or resolver.
const AMONG_OURS: &str = "10.1.1.254";

#[test]
fn both_boxes_name_prefix_that_one_lacks() {
    let Some(mut scene) = Scene::set_up(&BOTH, &BOTH[..1]) else { return };
    let unseen = "does not count packets to 10.1.5.0/24, which";
    let [watched, sent] = scene.await_differences(1);
    assert!(
        said(&watched)[0].starts_with(&format!("this receivebox {unseen} the sendbox assigns"))
    );
    assert!(said(&sent)[0].starts_with(&format!("the receivebox {unseen} this sendbox assigns")));
    assert!(sent.table().contains(&said(&sent)[0]), "{}", sent.table());
    for role in ROLES {
        let log = scene.log(role);
        let warned = log.lines().filter(|line| line.contains("WARN") && line.contains(unseen));
        assert_eq!(warned.count(), 1, "{log}");
    }
    // The sendbox keeps running, and learns of it from the new receivebox.
    scene.restart_receivebox(&BOTH);
    scene.await_differences(0);
    assert!(scene.log("sendbox").contains("both boxes assign the same"));
    // The same for a prefix that only the receivebox counts.
    scene.restart_receivebox(&[BOTH[0], BOTH[1], "10.1.8.0/22"]);
    let [_, sent] = scene.await_differences(1);
    let untaken = "counts packets to 10.1.8.0/22, which this sendbox does not assign";
    assert!(said(&sent)[0].contains(untaken), "{sent:?}");
}

#[test]
fn new_addresses_are_logged_and_own_packets_uncounted() {
    let Some(scene) = Scene::set_up(&BOTH, &BOTH) else { return };
    let sites = &scene.topology.pairs[0];
    scene.await_differences(0);
    ip(&sites.left_box, &format!("address add {AMONG_THEIRS}/32 dev br0\n"));
    let [watched, sent] = scene.await_differences(1);
    for status in [&watched, &sent] {
        assert!(said(status)[0].contains(&format!("counts packets to {AMONG_THEIRS}, which")));
    }
    ip(&sites.left_box, &format!("address delete {AMONG_THEIRS}/32 dev br0\n"));
    scene.await_differences(0);

    ip(&sites.left_box, &format!("address add {AMONG_OURS}/32 dev br0\n"));
    // A changed own address must not change the receivebox's status. The wait allows for a round trip and the
    // observer's second.
    thread::sleep(Duration::from_secs(3));
    let target = (Site::RightHosts.address(0), PORT);
    let [receiver, ours, theirs] = [
        (&sites.right_hosts, Site::RightHosts.address(0).to_string(), PORT),
        (&sites.left_box, AMONG_OURS.to_string(), 0),
        (&sites.left_hosts, Site::LeftHosts.address(0).to_string(), 0),
    ]
    .map(|(namespace, address, port)| bind(namespace, &address, port));
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let before = scene.await_differences(0).map(|status| status.bundles[0].packets);
    for sender in [&ours, &theirs] {
        sender.send_to(b"packet", target).unwrap();
        receiver.recv(&mut [0; 10]).unwrap();
    }
    // Only the host's datagram counts.
    let expected = before.map(|packets| packets + 1);
    await_both(&scene.sockets(), |both| packets(both) == expected);
}

/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];

/// Both boxes on a bridge between the sites.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    boxes: [Child; 2],
    _turn: Turn,
}

impl Scene {
    /// Starts both boxes, with these prefixes of the right site at each. `None` without the privilege.
    fn set_up(sendbox: &[&str], receivebox: &[&str]) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = together();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        let folder = tempfile::tempdir().unwrap();
        keys::generate(&folder.path().join("bundle.key")).unwrap();
        let to = [receivebox, sendbox];
        let sites = &topology.pairs[0];
        let boxes = [0, 1].map(|index| start(sites, folder.path(), index, to[index]));
        Some(Self { topology, folder, boxes, _turn: turn })
    }

    fn restart_receivebox(&mut self, to: &[&str]) {
        self.boxes[0].kill().unwrap();
        self.boxes[0].wait().unwrap();
        self.boxes[0] = start(&self.topology.pairs[0], self.folder.path(), 0, to);
    }

    fn sockets(&self) -> [PathBuf; 2] {
        ROLES.map(|role| self.folder.path().join(format!("{role}.sock")))
    }

    /// Status of both boxes, as soon as both report this number of differences.
    fn await_differences(&self, count: usize) -> [Status; 2] {
        let has = |status: &Status| {
            status.bundles[0].differences.as_ref().is_some_and(|told| told.len() == count)
        };
        await_both(&self.sockets(), |both| both.iter().all(has))
    }

    fn log(&self, role: &str) -> String {
        fs::read_to_string(self.folder.path().join(format!("{role}.log"))).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.boxes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(sites: &PairSites, folder: &Path, index: usize, to: &[&str]) -> Child {
    let role = ROLES[index];
    let (namespace, [own, peer], lan, shaping) = match role {
        "receivebox" => (&sites.right_box, [Site::RightBox, Site::LeftBox], "", ""),
        _ => {
            (&sites.left_box, [Site::LeftBox, Site::RightBox], "lan = \"lan\"\n", "cc = \"copa\"\n")
        }
    };
    let text = format!(
        "[box]\nrole = \"{role}\"\n{lan}wan = \"wan\"\nlisten = \"{}\"\ncontrol = \"{role}.sock\"\n[[bundle]]\n\
         name = \"b\"\nid = 1\npeer = \"{}\"\nto = {to:?}\nfrom = [\"{}\"]\nkey_file = \"bundle.key\"\n{shaping}",
        own.address(0),
        peer.address(0),
        Site::LeftHosts.host_prefix(0),
    );
    let file = folder.join(format!("{role}.toml"));
    fs::write(&file, text).unwrap();
    let mut log = fs::File::options();
    let log = log.create(true).append(true).open(folder.join(format!("{role}.log"))).unwrap();
    command(namespace, role, &file).stderr(Stdio::from(log)).spawn().unwrap()
}

fn bind(namespace: &Namespace, address: &str, port: u16) -> UdpSocket {
    namespace.within(|| UdpSocket::bind((address, port))).unwrap()
}

fn said(status: &Status) -> &[String] {
    status.bundles[0].differences.as_deref().unwrap()
}

fn packets(both: &[Status; 2]) -> [u64; 2] {
    both.each_ref().map(|status| status.bundles[0].packets)
}
