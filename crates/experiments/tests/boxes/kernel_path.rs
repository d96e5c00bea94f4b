//! Packets that a sendbox cannot carry, or not unchanged, get through all the same.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::Child;
use std::time::Duration;

use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{Site, Topology};

use crate::by_hand::{
    await_status, await_that, connect_the_sites, ip, start, switch_on, write_sendbox,
};
use crate::turns::{Turn, together};
use crate::two_bundles::flow;

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Ethernet address of the left box's bridge.
const BRIDGE_MAC: &str = "02:00:00:00:00:01";
/// Ethernet address of the left box's LAN device.
const LAN_MAC: &str = "02:00:00:00:00:02";
/// Datagrams sent at a time.
const DATAGRAMS: u8 = 50;

#[test]
fn box_as_router_routes_bundle_packets() {
    let Some(scene) = Scene::set_up() else { return };
    let sites = &scene.topology.pairs[0];
    let settings =
        [("ip_forward", "1"), ("conf/all/send_redirects", "0"), ("conf/br0/send_redirects", "0")];
    let route = || {
        let mut settings = settings.into_iter();
        settings.try_for_each(|(key, value)| fs::write(format!("/proc/sys/net/ipv4/{key}"), value))
    };
    sites.left_box.within(route).unwrap();
    let (router, beyond) = (Site::LeftBox.address(0), Site::RightHosts.host_prefix(0));
    ip(&sites.left_hosts, &format!("route add {beyond} via {router} dev eth0\n"));
    let mut passed = 0;
    for mac in [BRIDGE_MAC, LAN_MAC] {
        let neighbour = format!("{router} lladdr {mac} dev eth0 nud permanent");
        ip(&sites.left_hosts, &format!("neighbour replace {neighbour}\n"));
        assert_eq!(scene.exchange(1000), DATAGRAMS, "by way of {mac}");
        passed += u64::from(DATAGRAMS);
        assert_eq!(scene.counter("passed_own_mac"), passed);
    }
    assert_eq!(scene.counter("captured"), 0);
}

#[test]
fn longer_frames_than_at_start_pass() {
    let Some(scene) = Scene::set_up() else { return };
    let counted = |name: &str| scene.counter(name);
    let set_mtu = |mtu: u16| set_mtu(&scene.topology, mtu);
    assert_eq!(scene.exchange(1472), DATAGRAMS, "as long as before");
    assert_eq!(counted("captured"), u64::from(DATAGRAMS));
    set_mtu(3000);
    await_that("packets are handed back", || counted("handed_back") == 1);
    // Short datagrams, too: these must not be overtaken by long ones.
    for payload in [1472, 1600, 2972] {
        assert_eq!(scene.exchange(payload), DATAGRAMS, "{payload} bytes");
    }
    assert_eq!(counted("captured"), u64::from(DATAGRAMS));
    let status = await_status(&scene.folder.path().join("box.sock"));
    assert_eq!(
        status.failed_conditions[0].condition, "frame size",
        "{:?}",
        status.failed_conditions
    );
    assert!(status.table().contains("started for 1500"), "{}", status.table());
    set_mtu(1500);
    await_that("packets are taken again", || {
        scene.exchange(1472) == DATAGRAMS && counted("captured") > u64::from(DATAGRAMS)
    });
    assert_eq!((counted("oversized"), counted("handed_back")), (0, 1));
}

#[test]
fn jumbo_frames_pass_with_threaded_receive_queue() {
    if skip_without(Need::FramesInPieces) {
        return;
    }
    let Some(scene) = Scene::set_up_with(9000, "[xdp]\nthreads = true\n") else { return };
    for payload in [100, 1472, 3800, 8972] {
        assert_eq!(scene.exchange(payload), DATAGRAMS, "{payload} bytes");
    }
    let names = ["captured", "ring_drops", "oversized", "handed_back"];
    assert_eq!(names.map(|it| scene.counter(it)), [4 * u64::from(DATAGRAMS), 0, 0, 0]);
    let status = await_status(&scene.folder.path().join("box.sock"));
    assert!(status.ports[0].mode.ends_with(", reader threads"), "{}", status.ports[0].mode);
}

#[test]
fn tunnelled_connections_with_unfinished_checksums_pass() {
    let Some(scene) = Scene::set_up() else { return };
    let sites = &scene.topology.pairs[0];
    switch_on(&sites.left_hosts, "eth0", &["tx"]);
    let hosts = [(&sites.left_hosts, Site::LeftHosts), (&sites.right_hosts, Site::RightHosts)];
    for (own, other) in [(0, 1), (1, 0)] {
        let (namespace, [local, remote]) =
            (hosts[own].0, [own, other].map(|at| hosts[at].1.address(0)));
        for (id, port, sums) in [(1, 4789, "noudpcsum"), (2, 8472, "udpcsum")] {
            ip(
                namespace,
                &format!(
                    "link add vx{id} mtu 1450 type vxlan id {id} local {local} remote {remote} \
                     dev eth0 dstport {port} {sums}\n\
                     address add 10.9.{id}.{own}/31 dev vx{id}\nlink set dev vx{id} up\n"
                ),
            );
        }
    }
    let flows = [1, 2].map(|id| flow(sites, SocketAddr::from(([10, 9, id, 1], PORT))));
    let bytes = flows.map(|(sender, receiver)| {
        let sent = sender.join().unwrap();
        assert_eq!(receiver.join().unwrap(), sent);
        sent
    });
    assert!(bytes.iter().all(|sent| *sent > 1 << 20), "{bytes:?}");
    let packets = bytes.iter().sum::<u64>() / 1450;
    let (finished, captured) = (scene.counter("finished_checksums"), scene.counter("captured"));
    assert!(packets < finished && finished <= captured, "{packets} {finished} {captured}");
}

/// Gives all devices between the hosts this MTU.
fn set_mtu(topology: &Topology, mtu: u16) {
    let sites = &topology.pairs[0];
    let devices: [(&Namespace, &[&str]); 5] = [
        (&topology.emulator, &["left0", "right0"]),
        (&sites.left_box, &["lan", "wan"]),
        (&sites.right_box, &["lan", "wan"]),
        (&sites.left_hosts, &["eth0"]),
        (&sites.right_hosts, &["eth0"]),
    ];
    for (namespace, names) in devices {
        for name in names {
            ip(namespace, &format!("link set dev {name} mtu {mtu}\n"));
        }
    }
}

/// A sendbox without a receivebox between two hosts.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    _sendbox: Child,
    sender: UdpSocket,
    receiver: UdpSocket,
    _turn: Turn,
}

impl Scene {
    /// `None` without the privilege to do so.
    fn set_up() -> Option<Self> {
        Self::set_up_with(1500, "")
    }

    /// As [`Scene::set_up`], with this MTU, and `more` in the box's file.
    fn set_up_with(mtu: u16, more: &str) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = together();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        let sites = &topology.pairs[0];
        for (device, mac) in [("br0", BRIDGE_MAC), ("lan", LAN_MAC)] {
            ip(&sites.left_box, &format!("link set dev {device} address {mac}\n"));
        }
        set_mtu(&topology, mtu);
        let folder = tempfile::tempdir().unwrap();
        let config = write_sendbox(folder.path(), "100Mbit/s");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text + more).unwrap();
        let sendbox = start(&sites.left_box, "sendbox", &config);
        let bind = |namespace: &Namespace, site: Site| {
            namespace.within(|| UdpSocket::bind((site.address(0), PORT))).unwrap()
        };
        let sender = bind(&sites.left_hosts, Site::LeftHosts);
        let receiver = bind(&sites.right_hosts, Site::RightHosts);
        // The buffer holds all datagrams.
        nix::sys::socket::setsockopt(&receiver, nix::sys::socket::sockopt::RcvBufForce, &(4 << 20))
            .unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let scene = Self { topology, folder, _sendbox: sendbox, sender, receiver, _turn: turn };
        scene.counter("captured");
        Some(scene)
    }

    /// Sends datagrams with this payload in bytes; returns how many arrived.
    fn exchange(&self, payload: usize) -> u8 {
        for number in 0..DATAGRAMS {
            self.sender.send(&vec![number; payload]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut datagram = vec![0; payload + 1];
        let mut count = 0;
        while count < DATAGRAMS {
            let Ok(len) = self.receiver.recv(&mut datagram) else { break };
            assert_eq!(datagram[..len], vec![datagram[0]; payload]);
            count += 1;
        }
        count
    }

    /// A counter of the LAN port.
    fn counter(&self, name: &str) -> u64 {
        let status = await_status(&self.folder.path().join("box.sock"));
        let mut counters = status.ports[0].counters.iter();
        counters.find(|(key, _)| key == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}
