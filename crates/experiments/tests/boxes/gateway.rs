//! A sendbox on a machine that routes: with one network card, behind its own NAT, with traffic that it sends itself,
//! and through a device without Ethernet.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::{BundleStatus, Status};
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::PairSites;
use nix::libc;
use nix::sys::signal::Signal;

use crate::alone;
use crate::by_hand::{await_status, await_that, end, feed, ip, signal, start, switch};
use crate::kernel_queues::counter;
use crate::two_bundles::{await_both, flow};

/// Rate of the sendbox, less than the rate of the link behind the fabric.
const RATE_BPS: f64 = 16e6;

/// A small model of a cloud: each machine has one network card and one address, and a fabric routes between these.
/// The fabric hands traffic from host A to site B to the gateway first.
///
/// ```text
///   host A ──┐
///            fabric ── 20 Mbit/s ── site B (receivebox in front of its host)
///  gateway ──┘
/// ```
struct Cloud {
    fabric: Namespace,
    /// Left: host A and the gateway. Right: site B, box and host in one namespace.
    sites: PairSites,
}

/// Settings of all machines, for a fabric that accepts packets from any address.
const SETTINGS: [&str; 4] = [
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/default/rp_filter",
    "net/ipv4/conf/all/send_redirects",
    "net/ipv4/conf/default/send_redirects",
];

impl Cloud {
    /// `None`: this machine lacks a need of the test.
    fn build() -> Option<Self> {
        if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
            return None;
        }
        let new = || {
            let namespace = Namespace::new().unwrap();
            let set = |path: &&str| fs::write(Path::new("/proc/sys").join(path), "0");
            namespace.within(|| SETTINGS.iter().try_for_each(set)).unwrap();
            ip(&namespace, "link set dev lo up\n");
            namespace
        };
        let [fabric, host, gateway, b] = [(); 4].map(|()| new());
        for (machine, port, addresses) in [
            (&host, "a0", &["10.1.1.10"][..]),
            (&gateway, "g0", &["10.1.1.2"]),
            (&b, "b0", &["10.1.2.10", "10.1.2.2"]),
        ] {
            let fabric_path = fabric.path();
            let peer = format!("peer name {port} netns {}", fabric_path.display());
            let mut lines = format!("link add eth0 type veth {peer}\nlink set dev eth0 up\n");
            for address in addresses {
                lines += &format!("address add {address}/32 dev eth0\n");
            }
            lines += "route add 10.0.0.1 dev eth0\nroute add default via 10.0.0.1 dev eth0\n";
            ip(machine, &lines);
            let mut lines = format!("link set dev {port} up\n");
            for address in addresses {
                lines += &format!("route add {address} dev {port}\n");
            }
            ip(&fabric, &lines);
        }
        ip(
            &fabric,
            "address add 10.0.0.1/32 dev lo\n\
             route add 10.1.2.0/24 via 10.1.1.2 dev g0 onlink table 100\n\
             rule add iif a0 to 10.1.2.0/24 lookup 100\n",
        );
        for machine in [&fabric, &gateway] {
            machine.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
        }
        run(&fabric, "tc qdisc add dev b0 root tbf rate 20mbit burst 5kb limit 500kb");
        let right_box = b.try_clone().unwrap();
        let sites = PairSites { left_hosts: host, left_box: gateway, right_box, right_hosts: b };
        Some(Self { fabric, sites })
    }

    fn gateway(&self) -> &Namespace {
        &self.sites.left_box
    }

    /// Bytes that wait in front of the slow link.
    fn backlog(&self) -> u64 {
        let shown = run(&self.fabric, "tc -s qdisc show dev b0");
        let (_, rest) = shown.split_once("backlog ").unwrap();
        let (bytes, _) = rest.split_once('b').unwrap();
        bytes.replace('K', "000").parse().unwrap()
    }
}

/// Output of a command in a namespace.
fn run(namespace: &Namespace, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    namespace.host(&mut command).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The two boxes of a bundle from the gateway to site B, which end with it.
struct Boxes {
    children: [Child; 2],
    /// Of the receivebox and the sendbox.
    sockets: [PathBuf; 2],
    folder: tempfile::TempDir,
}

impl Boxes {
    /// `from`: the sources of the bundle. `more`: further lines of the sendbox's `[box]`.
    fn start(cloud: &Cloud, wans: [&str; 2], from: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        keys::generate(&folder.path().join("b.key")).unwrap();
        let write = |role: &str, wan: &str, of_box: &str, peer: &str, of_bundle: &str| {
            let text = format!(
                "[box]\nrole = \"{role}\"\nwan = \"{wan}\"\ncontrol = \"{role}.sock\"\n{of_box}\n[[bundle]]\n\
                 name = \"b\"\nid = 1\npeer = \"{peer}\"\nto = [\"10.1.2.0/24\"]\nfrom = [\"{from}\"]\n\
                 key_file = \"b.key\"\n{of_bundle}"
            );
            let file = folder.path().join(format!("{role}.toml"));
            fs::write(&file, text).unwrap();
            file
        };
        let [receives, sends] = wans;
        let receivebox = write("receivebox", receives, "listen = \"10.1.2.2\"", "10.1.1.2", "");
        let sendbox = write(
            "sendbox",
            sends,
            &format!("listen = \"10.1.1.2\"\n{more}"),
            "10.1.2.2",
            "cc = \"copa\"\nmax_rate = \"16Mbit/s\"\n",
        );
        switch(&cloud.sites.right_box, receives, &["rxvlan"], "off");
        let children = [
            start(&cloud.sites.right_box, "receivebox", &receivebox),
            start(cloud.gateway(), "sendbox", &sendbox),
        ];
        let sockets = ["receivebox.sock", "sendbox.sock"].map(|it| folder.path().join(it));
        let boxes = Self { children, sockets, folder };
        boxes.await_alive();
        boxes
    }

    fn await_alive(&self) {
        await_both(&self.sockets, |both| {
            let is_alive = |one: &Status| one.bundles.iter().all(|it| it.peer.state == "alive");
            both.iter().all(|one| {
                is_alive(one) && one.failed_conditions.is_empty() && !one.bundles.is_empty()
            })
        });
    }

    fn sent(&self) -> Status {
        await_status(&self.sockets[1])
    }

    /// Status of the sendbox's bundle, once the receivebox has counted all of its packets and bytes. In a virtual
    /// machine the kernel shows some departing packets to no program; these few may be missing.
    fn settled(&self) -> BundleStatus {
        let [_, mut sent] = await_both(&self.sockets, |[watched, sent]| {
            let [came, left] = [watched, sent].map(|one| &one.bundles[0]);
            let unseen = came.packets.checked_sub(left.packets);
            unseen.is_some_and(|unseen| {
                let is_few = unseen <= counter(sent, "missed") + 10 && 20 * unseen < came.packets;
                is_few && came.bytes - left.bytes <= 1514 * unseen
            })
        });
        sent.bundles.remove(0)
    }

    /// Packets put into classes so far.
    fn classified(&self) -> u64 {
        let status = self.sent();
        let mut counters = status.ports[0].counters.iter();
        counters.find(|(name, _)| name == "classified").unwrap().1
    }
}

impl Drop for Boxes {
    fn drop(&mut self) {
        end(&mut self.children);
    }
}

/// The rate (bit/s) of a flow from host A to site B, and the largest backlog at the slow link after the first second.
fn carry(cloud: &Cloud, sites: &PairSites) -> (f64, u64) {
    let began = Instant::now();
    let (sender, receiver) = flow(sites, SocketAddr::from(([10, 1, 2, 10], 7000)));
    let mut backlog = 0;
    while !sender.is_finished() {
        thread::sleep(Duration::from_millis(100));
        if began.elapsed() > Duration::from_secs(1) {
            backlog = backlog.max(cloud.backlog());
        }
    }
    let sent = sender.join().unwrap();
    let elapsed = began.elapsed();
    assert_eq!(receiver.join().unwrap(), sent);
    (8.0 * sent as f64 / elapsed.as_secs_f64(), backlog)
}

#[test]
fn router_with_one_card_queues_and_fails_open() {
    let Some(cloud) = Cloud::build() else { return };
    let _alone = alone();
    let qdiscs = || run(cloud.gateway(), "tc qdisc show dev eth0");
    let before = qdiscs();
    let mut boxes = Boxes::start(&cloud, ["eth0", "eth0"], "10.1.1.0/24", "");
    let status = boxes.sent();
    let datapath = status.datapath.unwrap();
    assert_eq!(datapath, "\"kernel\": packets stay in the kernel");
    let modes: Vec<&str> = status.ports.iter().map(|port| &*port.mode).collect();
    assert_eq!((modes[0], &modes[1][..3]), ("route", "htb"));

    let (shaped, backlog) = carry(&cloud, &cloud.sites);
    assert!((0.8 * RATE_BPS..1.05 * RATE_BPS).contains(&shaped), "{shaped} bit/s");
    assert!(backlog < 15 * 1514, "{backlog} bytes wait in front of the slow link");
    let sent = boxes.settled();
    let state = sent.shaping.as_ref().unwrap();
    assert!(state.counters.boundaries_matched > 10, "{state:?}");
    assert!(10 * state.counters.boundaries_matched > 9 * state.counters.boundaries_sent);
    assert_eq!(sent.differences.as_deref(), Some(&[][..]));

    // Once the box is killed, the plain route carries more than the box's rate.
    signal(&boxes.children[1], Signal::SIGKILL);
    boxes.children[1].wait().unwrap();
    let (plain, _) = carry(&cloud, &cloud.sites);
    assert!(plain > 1.05 * RATE_BPS, "{plain} bit/s");

    boxes.children[1] =
        start(cloud.gateway(), "sendbox", &boxes.folder.path().join("sendbox.toml"));
    boxes.await_alive();
    signal(&boxes.children[1], Signal::SIGTERM);
    assert!(boxes.children[1].wait().unwrap().success());
    assert_eq!(qdiscs(), before);
}

#[test]
fn route_that_changes_hands_traffic_back() {
    let Some(cloud) = Cloud::build() else { return };
    let _alone = alone();
    let gateway = cloud.gateway();
    ip(gateway, "link add spare type veth peer name eraps\nlink set dev spare up\n");
    let boxes = Boxes::start(&cloud, ["eth0", "eth0"], "10.1.1.0/24", "");
    let ping = || {
        let before = boxes.classified();
        let send = || UdpSocket::bind("10.1.1.10:0")?.send_to(b"a request", "10.1.2.10:9");
        cloud.sites.left_hosts.within(send).unwrap();
        thread::sleep(Duration::from_millis(100));
        boxes.classified() > before
    };
    assert!(ping());
    let changes: [(&str, &str, &str, &str); 4] = [
        (
            "ip route add 10.1.2.0/25 dev spare",
            "ip route del 10.1.2.0/25 dev spare",
            "",
            "10.1.2.0/25 of 10.1.2.0/24 leaves through spare",
        ),
        (
            "ip route add 10.1.2.0/24 dev spare",
            "ip route del 10.1.2.0/24 dev spare",
            "routes",
            "10.1.2.0/24 leaves through spare",
        ),
        (
            "ip rule add to 10.1.2.0/24 blackhole priority 90",
            "ip rule del priority 90",
            "routes",
            "10.1.2.0/24 has no route",
        ),
        (
            "sysctl -qw net.ipv4.ip_forward=0",
            "sysctl -qw net.ipv4.ip_forward=1",
            "IP forwarding",
            "this machine does not forward IPv4",
        ),
    ];
    for (make, undo, condition, found) in changes {
        run(gateway, make);
        await_that(make, || {
            let status = boxes.sent();
            let is_named = |it: &String| it.contains(found);
            let has_failed = status
                .failed_conditions
                .iter()
                .any(|failed| failed.condition == condition && is_named(&failed.fault.found));
            has_failed || condition.is_empty() && status.routing.iter().any(is_named)
        });
        run(gateway, undo);
        await_that(undo, || {
            let status = boxes.sent();
            status.failed_conditions.is_empty() && status.routing.is_empty()
        });
        await_that("packets are taken again", ping);
    }
}

#[test]
fn own_and_masqueraded_packets_are_in_the_bundle() {
    let Some(cloud) = Cloud::build() else { return };
    let _alone = alone();
    feed(
        cloud.gateway(),
        &["nft", "-f", "-"],
        "table ip nat {\n chain post {\n  type nat hook postrouting priority 100;\n\
         ip saddr 10.1.1.10 masquerade\n }\n}\n",
    );
    let boxes = Boxes::start(&cloud, ["eth0", "eth0"], "10.1.1.2/32", "own = true\n");
    // Packets of host A leave with the gateway's address.
    let (shaped, _) = carry(&cloud, &cloud.sites);
    assert!((0.8 * RATE_BPS..1.05 * RATE_BPS).contains(&shaped), "{shaped} bit/s");
    let masqueraded = boxes.settled();
    assert!(masqueraded.shaping.unwrap().counters.boundaries_matched > 10);
    // Packets of the gateway itself: its socket is throttled and loses nothing.
    let PairSites { left_box, right_box, right_hosts, .. } = &cloud.sites;
    let clone = |it: &Namespace| it.try_clone().unwrap();
    let of_gateway = PairSites {
        left_hosts: clone(left_box),
        left_box: clone(left_box),
        right_box: clone(right_box),
        right_hosts: clone(right_hosts),
    };
    let (shaped, backlog) = carry(&cloud, &of_gateway);
    assert!((0.8 * RATE_BPS..1.05 * RATE_BPS).contains(&shaped), "{shaped} bit/s");
    assert!(backlog < 15 * 1514, "{backlog} bytes wait in front of the slow link");
    let own = boxes.settled();
    assert!(own.packets > masqueraded.packets + 1000, "{own:?}");
    assert_eq!(own.differences.as_deref(), Some(&[][..]));
}

/// A device without Ethernet headers, which is up.
fn open_tun(namespace: &Namespace) -> File {
    let open = || {
        let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        // struct ifreq: the name, and the flags IFF_TUN and IFF_NO_PI.
        let mut request = [0_u8; 40];
        request[..4].copy_from_slice(b"tun0");
        request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes());
        // SAFETY: the request is as long as the kernel reads and writes.
        let status =
            unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
        if status < 0 { Err(std::io::Error::last_os_error()) } else { Ok(device) }
    };
    let device = namespace.within(open).unwrap();
    ip(namespace, "link set dev tun0 up\n");
    device
}

/// Hands packets from one device to the other until a device is removed.
fn hand_over(mut from: File, mut to: File) {
    thread::spawn(move || {
        let mut packet = [0; 1 << 16];
        while let Ok(len) = from.read(&mut packet) {
            if to.write_all(&packet[..len]).is_err() {
                return;
            }
        }
    });
}

#[test]
fn tunnel_without_ethernet_carries_the_bundle() {
    let Some(cloud) = Cloud::build() else { return };
    let _alone = alone();
    let [gateway, b] = [cloud.gateway(), &cloud.sites.right_box];
    let [near, far] = [gateway, b].map(open_tun);
    hand_over(near.try_clone().unwrap(), far.try_clone().unwrap());
    hand_over(far, near);
    // A veth in site B carries the tunnel's packets on, so the receivebox there sees Ethernet frames.
    let inner = Namespace::new().unwrap();
    let peer = format!("peer name eth0 netns {}", inner.path().display());
    ip(
        b,
        &format!(
            "address flush dev eth0\naddress add 10.0.0.2/32 dev lo\nroute add 10.1.1.0/24 dev tun0\n\
             link add in0 type veth {peer}\nlink set dev in0 up\n\
             route add 10.1.2.10 dev in0\nroute add 10.1.2.2 dev in0\n"
        ),
    );
    b.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    ip(
        &inner,
        "link set dev lo up\nlink set dev eth0 up\n\
         address add 10.1.2.10/32 dev eth0\naddress add 10.1.2.2/32 dev eth0\n\
         route add 10.0.0.2 dev eth0\nroute add default via 10.0.0.2 dev eth0\n",
    );
    ip(gateway, "route add 10.1.2.0/24 dev tun0\n");
    let Cloud { fabric, sites: PairSites { left_hosts, left_box, .. } } = cloud;
    let right_box = inner.try_clone().unwrap();
    let sites = PairSites { left_hosts, left_box, right_box, right_hosts: inner };
    let cloud = Cloud { fabric, sites };
    let boxes = Boxes::start(&cloud, ["eth0", "tun0"], "10.1.1.0/24", "");
    let (shaped, _) = carry(&cloud, &cloud.sites);
    // Bytes count Ethernet frames, which the tunnel does not send.
    assert!((0.8 * RATE_BPS..RATE_BPS).contains(&shaped), "{shaped} bit/s");
    let sent = boxes.settled();
    assert!(sent.shaping.unwrap().counters.boundaries_matched > 10);
    let status = boxes.sent();
    let at_wan = |name: &str| counter(&status, name);
    assert!(at_wan("sampled") > 1000, "{:?}", status.ports);
    assert_eq!(["unsampled", "unread"].map(at_wan), [0; 2], "{:?}", status.ports);
}
