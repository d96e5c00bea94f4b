//! A receivebox that watches a device without Ethernet headers: the end of a tunnel.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::alone;
use crate::by_hand::{end, ip, start};
use crate::two_bundles::{await_both, flow};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Devices of the tunnel, in the router between the sites and in the right box.
const ENDS: [&str; 2] = ["fbtest0", "fbtest1"];
/// MTU of both ends of the tunnel (bytes), smaller than the sendbox's.
const MTU: u16 = 1400;

#[test]
fn receivebox_measures_at_a_tun_device() {
    if !skip_without(Need::Root) && !skip_without(Need::Tun) {
        measured(|router, right_box| Box::new(Pump::start(router, right_box)));
    }
}

/// WireGuard as a process, which delivers merged packets.
#[test]
fn receivebox_measures_at_a_wireguard_device() {
    if !skip_without(Need::WireGuard) && !skip_without(Need::Root) && !skip_without(Need::Tun) {
        measured(|router, right_box| Box::new(Processes::start(router, right_box)));
    }
}

/// Runs both boxes on a bundle whose packets leave in Ethernet frames and arrive through a tunnel.
fn measured(tunnel: impl FnOnce(&Namespace, &Namespace) -> Box<dyn Send>) {
    if skip_without(Need::Tcx) {
        return;
    }
    let _alone = alone();
    let topology = Topology::build(1, None).unwrap();
    let sites = &topology.pairs[0];
    route(&topology);
    let _tunnel = tunnel(&topology.emulator, &sites.right_box);
    join(&topology);
    let folder = tempfile::tempdir().unwrap();
    let [receivebox, sendbox] = files(folder.path());
    let mut boxes = [
        start(&sites.right_box, "receivebox", &receivebox),
        start(&sites.left_box, "sendbox", &sendbox),
    ];
    let sockets = ["receivebox", "sendbox"].map(|it| folder.path().join(format!("{it}.sock")));
    await_both(&sockets, |both| both.iter().all(|one| one.bundles[0].peer.state == "alive"));
    let (sender, receiver) = flow(sites, SocketAddr::from((Site::RightHosts.address(0), PORT)));
    await_both(&sockets, |[_, sent]| {
        let shaping = sent.bundles[0].shaping.as_ref().unwrap();
        shaping.counters.boundaries_matched > 100
    });
    assert_eq!(receiver.join().unwrap(), sender.join().unwrap());
    // The path's MTU is smaller than the sendbox's.
    let found = |status: &Status| status.bundles[0].peer.path_mtu.map(|mtu| (mtu.bytes, mtu.tried));
    let counts = |status: &Status| (status.bundles[0].packets, status.bundles[0].bytes);
    let [watched, sent] = await_both(&sockets, |[watched, sent]| {
        counts(watched) == counts(sent) && found(sent) == Some((MTU, 1500))
    });
    assert_eq!(watched.ports[0].mode, "tcx");
    let counters = &sent.bundles[0].shaping.as_ref().unwrap().counters;
    assert!(2 * counters.boundaries_matched > counters.boundaries_sent, "{counters:?}");
    assert!(sent.table().contains("do not reach the receivebox"), "{}", sent.table());
    end(&mut boxes);
}

/// Makes a router of the emulator's namespace, and another of the right box. There is no route between
/// these yet.
fn route(topology: &Topology) {
    let PairSites { left_hosts, left_box, right_box, right_hosts } = &topology.pairs[0];
    for router in [&topology.emulator, right_box] {
        router.within(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap();
    }
    ip(right_box, "link set wan nomaster\n");
    for (namespace, device, address, gateway) in [
        (&topology.emulator, "left0", "10.1.1.254/24", None),
        (&topology.emulator, "right0", "10.9.0.1/24", None),
        (left_hosts, "eth0", "10.1.1.1/24", Some("10.1.1.254")),
        (left_box, "br0", "10.1.1.2/24", Some("10.1.1.254")),
        (right_box, "wan", "10.9.0.2/24", None),
        (right_box, "br0", "10.1.2.254/24", None),
        (right_hosts, "eth0", "10.1.2.1/24", Some("10.1.2.254")),
    ] {
        let to_gateway = |it: &str| format!("route add default via {it} mtu {MTU}\n");
        let route = gateway.map_or_else(String::new, to_gateway);
        let flush = format!("address flush dev {device}\naddress add {address} dev {device}\n");
        ip(namespace, &(flush + &route));
    }
}

/// Routes through the tunnel that is there now.
fn join(topology: &Topology) {
    let right_box = &topology.pairs[0].right_box;
    let of = [(&topology.emulator, "10.9.1.1/30"), (right_box, "10.9.1.2/30")];
    for ((namespace, address), device) in of.into_iter().zip(ENDS) {
        ip(
            namespace,
            &format!("address add {address} dev {device}\nlink set {device} mtu {MTU} up\n"),
        );
    }
    ip(&topology.emulator, &format!("route add 10.1.2.0/24 dev {}\n", ENDS[0]));
    ip(right_box, &format!("route add 10.1.1.0/24 dev {}\n", ENDS[1]));
}

fn files(folder: &Path) -> [std::path::PathBuf; 2] {
    keys::generate(&folder.join("bundle.key")).unwrap();
    let receivebox = (ENDS[1], "10.1.2.254", "10.1.1.2", "", "");
    // The rate stays below the tunnel's capacity, so nothing is lost.
    let shaping = "cc = \"copa\"\nmax_rate = \"20Mbit/s\"\n";
    let sendbox = ("wan", "10.1.1.2", "10.1.2.254", "lan = \"lan\"\n", shaping);
    [("receivebox", receivebox), ("sendbox", sendbox)].map(|(role, of)| {
        let (wan, listen, peer, lan, shaping) = of;
        let text = format!(
            "[box]\nrole = \"{role}\"\n{lan}wan = \"{wan}\"\nlisten = \"{listen}\"\ncontrol = \"{role}.sock\"\n\
             [[bundle]]\nname = \"b\"\nid = 1\npeer = \"{peer}\"\nto = [\"10.1.2.0/24\"]\nfrom = [\"10.1.1.0/24\"]\n\
             key_file = \"bundle.key\"\n{shaping}"
        );
        let file = folder.join(format!("{role}.toml"));
        fs::write(&file, text).unwrap();
        file
    })
}

/// Two tun devices, and threads that carry packets between them.
struct Pump {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pump {
    fn start(router: &Namespace, right_box: &Namespace) -> Self {
        let ends = [(router, ENDS[0]), (right_box, ENDS[1])]
            .map(|(namespace, name)| Arc::new(namespace.within(|| open_tun(name)).unwrap()));
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = [(0, 1), (1, 0)].map(|(from, to)| {
            let (from, to, is_over) = (ends[from].clone(), ends[to].clone(), is_over.clone());
            thread::spawn(move || carry(&from, &to, &is_over))
        });
        Self { is_over, threads: threads.into() }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Carries packets from one file to the other until `is_over` is set.
fn carry(mut from: &File, mut to: &File, is_over: &AtomicBool) {
    let mut packet = [0; 2048];
    while !is_over.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(100_u8)) != Ok(1) {
            continue;
        }
        // Reads and writes fail while a device is down.
        if let Ok(len) = from.read(&mut packet) {
            let _ = to.write(&packet[..len]);
        }
    }
}

fn open_tun(name: &str) -> io::Result<File> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    // struct ifreq: the name, and the flags IFF_TUN and IFF_NO_PI.
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&0x1001_u16.to_ne_bytes());
    // SAFETY: the request is as long as the kernel reads and writes.
    let status =
        unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr()) };
    if status == 0 { Ok(device) } else { Err(io::Error::last_os_error()) }
}

/// WireGuard in two processes.
struct Processes(Vec<Child>);

impl Processes {
    fn start(router: &Namespace, right_box: &Namespace) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ENDS.map(|end| folder.path().join(end));
        for file in [&ours, &theirs] {
            fs::write(file, said(Command::new("wg").arg("genkey"))).unwrap();
        }
        let public =
            |file: &Path| said(Command::new("wg").arg("pubkey").stdin(File::open(file).unwrap()));
        let mut all = Vec::new();
        for (namespace, name, own, other, at) in [
            (router, ENDS[0], &ours, &theirs, "10.9.0.2:51820"),
            (right_box, ENDS[1], &theirs, &ours, "10.9.0.1:51820"),
        ] {
            let mut process = Command::new("wireguard-go");
            process.args(["-f", name]).stdout(Stdio::null()).stderr(Stdio::null());
            namespace.host(&mut process).unwrap();
            all.push(process.spawn().unwrap());
            let own = own.to_str().unwrap();
            let mut set = Command::new("wg");
            set.args(["set", name, "listen-port", "51820", "private-key", own, "peer"]);
            set.args([&public(other), "endpoint", at, "allowed-ips", "0.0.0.0/0"]);
            namespace.host(&mut set).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            while !set.output().unwrap().status.success() {
                assert!(Instant::now() < deadline, "{name} does not come");
                thread::sleep(Duration::from_millis(50));
            }
        }
        Self(all)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        end(&mut self.0);
        // A process that is killed leaves its socket.
        for end in ENDS {
            let _ = fs::remove_file(format!("/var/run/wireguard/{end}.sock"));
        }
    }
}

/// Standard output of a program that must succeed.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}
