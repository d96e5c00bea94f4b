//! Properties of real sites: tags, tunnels, NAT, IPv6 alone, names, and both roles in one file.

use std::cell::RefCell;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::daemon::explain::explain;
use forebay_host::daemon::keys;
use forebay_host::daemon::status::{BundleStatus, Status};
use forebay_host::port::{Direction, PacketPort, Port};
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};

use crate::by_hand::{await_status, await_that, bridged, command, feed, ip, start};
use crate::turns::together;
use crate::two_bundles::{await_both, flow};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Packets of a test that sends frames itself: several epochs at the least rate.
const FRAMES: u16 = 6000;

/// Contents of the files of a bundle's two boxes; the first of each pair is the sendbox's.
struct Files<'a> {
    listen: [&'a str; 2],
    peer: [&'a str; 2],
    to: [&'a str; 2],
    from: [&'a str; 2],
    /// Further lines for the bundle, in both files.
    more: &'a str,
}

/// Files with the testbed's own addresses.
const PLAIN: Files<'_> = Files {
    listen: ["\"10.1.3.1\"", "\"10.1.3.2\""],
    peer: ["10.1.3.2", "10.1.3.1"],
    to: ["10.1.2.0/24"; 2],
    from: ["10.1.1.0/24"; 2],
    more: "",
};

impl Files<'_> {
    /// Writes the files; returns the receivebox's path and the sendbox's.
    fn write(&self, folder: &Path) -> [PathBuf; 2] {
        keys::generate(&folder.join("b.key")).unwrap();
        let write = |at: usize, role: &str, ports: &str, law: &str| {
            let Self { listen, peer, to, from, more } = self;
            let text = format!(
                "[box]\nrole = \"{role}\"\n{ports}listen = {}\ncontrol = \"{role}.sock\"\n\
                 [[bundle]]\nname = \"b\"\nid = 1\npeer = \"{}\"\nto = [\"{}\"]\nfrom = [\"{}\"]\n\
                 key_file = \"b.key\"\n{more}{law}",
                listen[at], peer[at], to[at], from[at],
            );
            let file = folder.join(format!("{role}.toml"));
            fs::write(&file, text).unwrap();
            file
        };
        let law = "cc = \"copa\"\nqdisc = { kind = \"sfq\", limit = \"400p\" }\nmax_rate = \"20Mbit/s\"\n";
        [
            write(1, "receivebox", "wan = \"wan\"\n", ""),
            write(0, "sendbox", "lan = \"lan\"\nwan = \"wan\"\n", law),
        ]
    }
}

/// The two boxes of a bundle, which end with it.
struct Boxes {
    children: [Child; 2],
    /// Of the receivebox and the sendbox.
    sockets: [PathBuf; 2],
    _folder: tempfile::TempDir,
}

impl Boxes {
    /// Starts both boxes, and waits until they are connected.
    fn start(sites: &PairSites, files: &Files<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [receivebox, sendbox] = files.write(folder.path());
        let children = [
            start(&sites.right_box, "receivebox", &receivebox),
            start(&sites.left_box, "sendbox", &sendbox),
        ];
        let sockets = ["receivebox.sock", "sendbox.sock"].map(|it| folder.path().join(it));
        await_alive(&sockets);
        Self { children, sockets, _folder: folder }
    }

    /// Carries a connection to `target` while the boxes measure; returns the status of the bundle at both boxes.
    fn carry(&self, sites: &PairSites, target: SocketAddr) -> [BundleStatus; 2] {
        let (sender, receiver) = flow(sites, target);
        await_both(&self.sockets, |[_, sent]| matched(sent) > 10);
        assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
        self.settled()
    }

    /// Status of the bundle at both boxes, once the receivebox has counted all packets that the sendbox sent.
    fn settled(&self) -> [BundleStatus; 2] {
        let counts = |status: &Status| (status.bundles[0].packets, status.bundles[0].bytes);
        let both = await_both(&self.sockets, |[watched, sent]| counts(watched) == counts(sent));
        both.map(|mut status| status.bundles.remove(0))
    }

    fn counter(&self, name: &str) -> u64 {
        let status = await_status(&self.sockets[1]);
        let mut counters = status.ports[0].counters.iter();
        counters.find(|(key, _)| key == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

impl Drop for Boxes {
    fn drop(&mut self) {
        for child in &mut self.children {
            // If a child ended early, the assertions have shown it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn await_alive(sockets: &[PathBuf; 2]) {
    await_both(sockets, |both| {
        both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
    });
}

fn matched(sent: &Status) -> u64 {
    sent.bundles[0].shaping.as_ref().unwrap().counters.boundaries_matched
}

/// A UDP packet with this number from the left hosts to the right ones, with these tags.
fn frame(tags: &[u8], dscp: u8, number: u16) -> Vec<u8> {
    let (from, to) = (Site::LeftHosts, Site::RightHosts);
    let mut frame = [&to.mac_bytes(0)[..], &from.mac_bytes(0), tags, &[8, 0]].concat();
    let ip_at = frame.len();
    let payload = [number.to_be_bytes().as_slice(), &[7; 200]].concat();
    let udp_len = (8 + payload.len()) as u16;
    frame.extend([0x45, dscp << 2]);
    frame.extend((20 + udp_len).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.address(0).octets());
    frame.extend(to.address(0).octets());
    let words = frame[ip_at..].as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[ip_at + 10..ip_at + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend([PORT.to_be_bytes(), PORT.to_be_bytes(), udp_len.to_be_bytes(), [0, 0]].concat());
    frame.extend(payload);
    frame
}

/// Sends frames from the left hosts, some 3,000 a second.
fn send(sites: &PairSites, frames: impl Iterator<Item = Vec<u8>>) {
    let open = || PacketPort::open("eth0", Direction::Transmit).map_err(std::io::Error::other);
    let mut port = sites.left_hosts.within(open).unwrap();
    for frame in frames {
        while !port.send(&frame) {
            port.flush().unwrap();
        }
        port.flush().unwrap();
        thread::sleep(Duration::from_micros(300));
    }
}

/// Copies frames between the ports of the emulator. The kernel has removed the outermost tag of these frames, as a
/// switch does at a port without tags.
struct Untagging {
    is_over: Arc<AtomicBool>,
    copying: Option<JoinHandle<()>>,
}

impl Untagging {
    fn start(emulator: &Namespace) -> Self {
        let open =
            |device| PacketPort::open(device, Direction::Both).map_err(std::io::Error::other);
        let mut ports = emulator.within(|| Ok([open("left0")?, open("right0")?])).unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let over = is_over.clone();
        let copying = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for (from, to) in [(0, 1), (1, 0)] {
                    let mut frames = Vec::new();
                    ports[from].receive(64, &mut |frame, _| frames.push(frame.to_vec())).unwrap();
                    for frame in frames {
                        ports[to].send(&frame);
                    }
                    ports[to].flush().unwrap();
                }
                thread::sleep(Duration::from_micros(100));
            }
        });
        Self { is_over, copying: Some(copying) }
    }
}

impl Drop for Untagging {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // If the thread panicked, missing packets show it.
        let _ = self.copying.take().map(JoinHandle::join);
    }
}

#[test]
fn vlan_packets_are_measured_with_any_tag() {
    if skip_without(Need::Root) {
        return;
    }
    let _turn = together();
    let topology = Topology::build(1, None).unwrap();
    let sites = &topology.pairs[0];
    let _untagging = Untagging::start(&topology.emulator);
    let boxes = Boxes::start(sites, &PLAIN);
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]];
    send(sites, (0..FRAMES).map(|number| frame(tags[usize::from(number % 3)], 0, number)));
    let [_, sent] = boxes.settled();
    assert!(sent.packets > u64::from(FRAMES) / 2, "{sent:?}");
    let counters = sent.shaping.unwrap().counters;
    assert!(counters.boundaries_matched > 10, "{counters:?}");
    assert!(2 * counters.boundaries_matched > counters.boundaries_sent, "{counters:?}");
    assert!(boxes.counter("captured") >= u64::from(FRAMES));
    assert_eq!(boxes.counter("passed_vlan"), 0);
}

#[test]
fn untagged_by_bridge_packets_stay_in_bundle() {
    if skip_without(Need::VlanBridges) {
        return;
    }
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    ip(&sites.left_box, "link set dev br0 type bridge vlan_filtering 1\n");
    let boxes = Boxes::start(sites, &PLAIN);
    // Untagged frames, frames of the port's own VLAN, and frames whose tag carries only a priority.
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0, 1], &[0x81, 0, 0xe0, 0]];
    send(sites, (0..FRAMES).map(|number| frame(tags[usize::from(number % 3)], 0, number)));
    let [_, sent] = boxes.settled();
    assert!(sent.packets > u64::from(FRAMES) / 2, "{sent:?}");
    assert!(boxes.counter("captured") >= u64::from(FRAMES));
    assert_eq!(boxes.counter("passed_vlan"), 0);
}

#[test]
fn pppoe_and_mpls_pass_and_dscp_is_kept() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    let open = || PacketPort::open("eth0", Direction::Receive).map_err(std::io::Error::other);
    let mut port = sites.right_hosts.within(open).unwrap();
    let boxes = Boxes::start(sites, &PLAIN);
    let other = |ethertype: [u8; 2], number| {
        let mut frame = frame(&[], 0, number);
        frame[12..14].copy_from_slice(&ethertype);
        frame
    };
    let [mut urgent, mut pppoe, mut mpls] = [0; 3];
    send(
        sites,
        (0..100).flat_map(|number| {
            [frame(&[], 46, number), other([0x88, 0x64], number), other([0x88, 0x47], number)]
        }),
    );
    await_that("all frames have come", || {
        let count = &mut |frame: &[u8], _| match frame[12..14] {
            [8, 0] if frame[23] == 17 && frame[15] == 46 << 2 => urgent += 1,
            [0x88, 0x64] => pppoe += 1,
            [0x88, 0x47] => mpls += 1,
            _ => {}
        };
        port.receive(1000, count).unwrap();
        (urgent, pppoe, mpls) == (100, 100, 100)
    });
    assert_eq!((boxes.counter("passed_pppoe"), boxes.counter("passed_mpls")), (100, 100));
    assert!(boxes.counter("captured") >= 100);
}

#[test]
fn sites_with_ipv6_alone_are_bundled() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    for (namespace, device, address) in [
        (&sites.left_hosts, "eth0", "fd00:1::1/16"),
        (&sites.left_box, "br0", "fd00:3::1/16"),
        (&sites.right_box, "br0", "fd00:3::2/16"),
        (&sites.right_hosts, "eth0", "fd00:2::1/16"),
    ] {
        let switch_on = || fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "0");
        namespace.within(switch_on).unwrap();
        let lines =
            format!("address flush dev {device}\naddress add {address} dev {device} nodad\n");
        ip(namespace, &lines);
    }
    let files = Files {
        listen: ["\"fd00:3::1\"", "\"fd00:3::2\""],
        peer: ["fd00:3::2", "fd00:3::1"],
        to: ["fd00:2::/32"; 2],
        from: ["fd00:1::/32"; 2],
        more: "",
    };
    // Also neighbours are found through the boxes alone.
    let boxes = Boxes::start(sites, &files);
    let [_, sent] = boxes.carry(sites, "[fd00:2::1]:7000".parse().unwrap());
    assert_eq!(sent.differences.as_deref(), Some(&[][..]));
}

/// Two sites and their boxes. The network of one site is behind NAT, and its boxes are configured with the public
/// addresses. `None` without the privilege to make them.
fn behind_nat(public: &str) -> Option<(Topology, Boxes)> {
    if skip_without(Need::Root) {
        return None;
    }
    let topology = Topology::build(1, None).unwrap();
    masquerade(&topology);
    let files = Files {
        listen: ["\"10.1.1.2\"", "\"10.1.2.2\""],
        peer: ["10.1.2.2", "10.1.2.254"],
        to: ["10.1.2.0/24"; 2],
        from: ["10.1.1.0/24", public],
        more: "nat = \"source\"\n",
    };
    let boxes = Boxes::start(&topology.pairs[0], &files);
    Some((topology, boxes))
}

#[test]
fn bundle_is_measured_through_source_nat() {
    let _turn = together();
    let Some((topology, boxes)) = behind_nat("10.1.2.254/32") else { return };
    let sites = &topology.pairs[0];
    let [watched, sent] = boxes.carry(sites, SocketAddr::from(([10, 1, 2, 1], PORT)));
    let counters = sent.shaping.unwrap().counters;
    assert!(2 * counters.boundaries_matched > counters.boundaries_sent, "{counters:?}");
    assert_eq!((sent.differences, watched.differences), (None, None));
    let heard = &watched.peer.address;
    assert!(heard.starts_with("10.1.2.254:61475 (heard from 10.1.2.254:2"), "{heard}");
}

/// Has the emulator route between the sites, and translate all of site A to one address with different ports.
fn masquerade(topology: &Topology) {
    crate::routed::route(topology);
    // Site B has only a route to the router.
    feed(
        &topology.emulator,
        &["nft", "-f", "-"],
        "add table ip nat\n\
         add chain ip nat out { type nat hook postrouting priority 100 ; }\n\
         add rule ip nat out oifname right0 meta l4proto { tcp, udp } masquerade to :20000-30000\n\
         add rule ip nat out oifname right0 masquerade\n",
    );
}

#[test]
fn bundle_follows_a_new_public_address_of_nat() {
    let _turn = together();
    // The addresses that the site may get.
    let Some((topology, boxes)) = behind_nat("10.1.2.252/30") else { return };
    let sites = &topology.pairs[0];
    let target = SocketAddr::from(([10, 1, 2, 1], PORT));
    let [_, before] = boxes.carry(sites, target);
    let matched_before = before.shaping.unwrap().counters.boundaries_matched;

    ip(
        &topology.emulator,
        "address del 10.1.2.254/24 dev right0\naddress add 10.1.2.253/24 dev right0\n",
    );
    let both = await_both(&boxes.sockets, |[watched, _]| watched.bundles[0].peer.moved.is_some());
    let moved = both[0].bundles[0].peer.moved.clone().unwrap();
    let names = [&moved.from, &moved.to].map(|it| it.split(':').next().unwrap().to_string());
    assert_eq!(names, ["10.1.2.254", "10.1.2.253"], "{moved:?}");
    // New connections are measured and shaped as before, once there is a queue that shaping can move.
    let line = "qdisc add dev right0 root tbf rate 10mbit burst 5kb limit 250kb\n";
    feed(&topology.emulator, &["tc", "-batch", "-"], line);
    await_alive(&boxes.sockets);
    let flows = RefCell::new(vec![flow(sites, target)]);
    let both = await_both(&boxes.sockets, |[_, sent]| {
        if flows.borrow().last().is_some_and(|(sender, _)| sender.is_finished()) {
            flows.borrow_mut().push(flow(sites, target));
        }
        let decision = &sent.bundles[0].shaping.as_ref().unwrap().decision;
        let is_shaped = ["shaping", "trying"].contains(&&decision.state[..]);
        matched(sent) > matched_before + 10 && is_shaped
    });
    for (sender, receiver) in flows.into_inner() {
        assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
    }
    assert_eq!(both[1].bundles[0].peer.state, "alive");
    let sentences = explain(&both[0], &both[0].bundles[0]).sentences.join(" ");
    let named = format!("has moved from {} to {}", moved.from, moved.to);
    assert!(sentences.contains(&named), "{sentences}");
}

#[test]
fn box_next_to_router_bundles_routed_packets() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let PairSites { left_hosts, left_box: machine, right_box, right_hosts } = &topology.pairs[0];
    // The machine has only the bridge of the page, and a different network behind each port.
    ip(machine, "link del br0\naddress add 10.1.2.254/24 dev wan\nlink set dev wan up\n");
    machine.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    for (namespace, device, own, router) in [
        (left_hosts, "eth0", "10.1.1.1", "10.1.1.254"),
        (right_box, "br0", "10.1.2.2", "10.1.2.254"),
        (right_hosts, "eth0", "10.1.2.1", "10.1.2.254"),
    ] {
        let lines = format!(
            "address flush dev {device}\naddress add {own}/24 dev {device}\nroute add default via {router}\n"
        );
        ip(namespace, &lines);
    }
    let folder = tempfile::tempdir().unwrap();
    let [receivebox, sendbox] = crate::routed::files(folder.path());
    let text = fs::read_to_string(&sendbox).unwrap();
    fs::write(&sendbox, text.replace("\"wan\"", "\"wan0\"")).unwrap();
    let page = include_str!("../../../../docs/operate/networks.md");
    let (_, block) = page.split_once("```sh\nip netns add box\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let started = "ip netns exec box forebay sendbox --config sendbox.toml";
    assert!(block.contains(started), "{block}");
    let exec = format!(
        "exec ip netns exec box {} sendbox --config {}",
        env!("CARGO_BIN_EXE_forebay-experiments"),
        sendbox.display()
    );
    let block = block.replace(started, &exec).replace("lan0", "lan");
    // The shell has its own mounts, and the namespace is in them only.
    let script = format!("set -e\nmount -t tmpfs none /run\nip netns add box\n{block}");
    let mut beside = std::process::Command::new("unshare");
    beside.args(["-m", "sh", "-c", &script]);
    machine.host(&mut beside).unwrap();
    let mut children = [start(right_box, "receivebox", &receivebox), beside.spawn().unwrap()];
    let sockets = ["receivebox.sock", "sendbox.sock"].map(|it| folder.path().join(it));
    await_alive(&sockets);
    let (sender, receiver) = flow(&topology.pairs[0], SocketAddr::from(([10, 1, 2, 1], PORT)));
    await_both(&sockets, |[_, sent]| matched(sent) > 10);
    assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn both_roles_at_each_site_share_one_file() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    let folder = tempfile::tempdir().unwrap();
    keys::generate(&folder.path().join("there.key")).unwrap();
    keys::generate(&folder.path().join("back.key")).unwrap();
    let bundle = |name: &str, id: u8, peer: Site, [from, to]: [Site; 2]| {
        format!(
            "[[box.bundle]]\nname = \"{name}\"\nid = {id}\npeer = \"{}\"\nto = [\"{}\"]\nfrom = [\"{}\"]\n\
             key_file = \"{name}.key\"\n",
            peer.address(0),
            to.host_prefix(0),
            from.host_prefix(0),
        )
    };
    let (there, back) = ([Site::LeftHosts, Site::RightHosts], [Site::RightHosts, Site::LeftHosts]);
    let mut children = Vec::new();
    let mut sockets = Vec::new();
    for (site, namespace, own, peer, [sends, receives]) in [
        (
            "a",
            &sites.left_box,
            Site::LeftBox,
            Site::RightBox,
            [("there", 1, there), ("back", 2, back)],
        ),
        (
            "b",
            &sites.right_box,
            Site::RightBox,
            Site::LeftBox,
            [("back", 2, back), ("there", 1, there)],
        ),
    ] {
        let node = |role: &str, lan: &str| {
            format!(
                "[[box]]\nrole = \"{role}\"\n{lan}wan = \"wan\"\nlisten = \"{}\"\ncontrol = \"{site}-{role}\"\n",
                own.address(0)
            )
        };
        let text = [
            node("sendbox", "lan = \"lan\"\n"),
            bundle(sends.0, sends.1, peer, sends.2),
            "cc = \"copa\"\n".into(),
            node("receivebox", ""),
            bundle(receives.0, receives.1, peer, receives.2),
        ];
        let file = folder.path().join(format!("{site}.toml"));
        fs::write(&file, text.concat()).unwrap();
        for role in ["receivebox", "sendbox"] {
            children.push(start(namespace, role, &file));
            sockets.push(folder.path().join(format!("{site}-{role}")));
        }
    }
    for pair in [[&sockets[2], &sockets[1]], [&sockets[0], &sockets[3]]] {
        await_alive(&pair.map(Clone::clone));
    }
    let both = [sockets[2].clone(), sockets[1].clone()];
    let (sender, receiver) = flow(sites, SocketAddr::from((Site::RightHosts.address(0), PORT)));
    await_both(&both, |[_, sent]| matched(sent) > 10);
    assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn named_peer_is_found_at_answering_address() {
    let _turn = together();
    let Some(topology) = bridged() else { return };
    let sites = &topology.pairs[0];
    let folder = tempfile::tempdir().unwrap();
    let files = Files { peer: ["b.example", "10.1.3.1"], to: ["10.1.3.2/31"; 2], ..PLAIN };
    let [receivebox, sendbox] = files.write(folder.path());
    // No host has the first address.
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, "10.1.3.99 b.example\n10.1.3.2 b.example\n").unwrap();
    let mut watching = start(&sites.right_box, "receivebox", &receivebox);
    let plain = command(&sites.left_box, "sendbox", &sendbox);
    let line = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
    let mut sending = std::process::Command::new("unshare");
    sending.args(["-m", "sh", "-c", &line, "sh"]).arg(plain.get_program()).args(plain.get_args());
    sites.left_box.host(&mut sending).unwrap();
    let mut sending = sending.spawn().unwrap();
    let sockets = ["receivebox.sock", "sendbox.sock"].map(|it| folder.path().join(it));
    await_alive(&sockets);
    let address = await_status(&sockets[1]).bundles[0].peer.address.clone();
    assert_eq!(address, "b.example:61476 (10.1.3.2:61476)");
    // A message to the box is in no bundle, even though the file does not give the box's address: the sendbox looks the
    // name up, and may have received from the receivebox before.
    let to_the_box = sites.left_hosts.within(|| UdpSocket::bind("10.1.1.1:0")).unwrap();
    let count = |name: &str| {
        let status = await_status(&sockets[1]);
        status.ports[0].counters.iter().find(|(key, _)| key == name).unwrap().1
    };
    let say = || {
        to_the_box.send_to(b"hello", "10.1.3.2:61476").unwrap();
        thread::sleep(Duration::from_millis(100));
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while count("passed_own") == 0 {
        assert!(Instant::now() < deadline, "every message is captured");
        say();
    }
    let before = (count("captured"), count("passed_own"));
    say();
    assert_eq!((count("captured"), count("passed_own")), (before.0, before.1 + 1));
    for child in [&mut watching, &mut sending] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
