//! A receivebox that misses some of the sendbox's packets: other traffic must lose nothing by it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use forebay_core::record::BundleCounters;
use forebay_core::spec::{Spec, Value};
use forebay_core::units::{Rate, Ratio};
use forebay_host::daemon::keys;
use forebay_host::daemon::status::{BundleStatus, ShapingStatus};
use forebay_scenario::{Link, Upset, UpsetKind};
use forebay_skips::{Need, skip_without};
use forebay_testbed::emulator::{DevicePair, EmulatorSpec};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{Site, Topology, left_port, right_port};
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

use crate::by_hand::{await_status, await_that, ip, start};
use crate::turns::{Turn, alone, together};
use crate::{bundle, run, scenario};

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Seconds over which goodput is judged. A reader gets the bytes after a lost packet only together with
/// that packet. Two seconds of 20 Mbit/s therefore read as 10 or as 29.
const EVEN: u64 = 12;
/// TCP flows of the bundle.
const FLOWS: u16 = 8;
/// An address of the right box in its hosts' network, as for a box that is their router or resolver.
const AMONG_HOSTS: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 254);
/// Ethernet address that the hosts use for AMONG_HOSTS.
const BOX_MAC: &str = "02:00:0a:01:03:02";
/// Sockets of the attack: with DATAGRAM and SPACING 8 Mbit/s in total.
const SOCKETS: usize = 8;
/// Payload of a datagram of the attack (bytes).
const DATAGRAM: usize = 1250;
/// Time between two datagrams.
const SPACING: Duration = Duration::from_micros(1250);

#[test]
fn both_boxes_count_packets_to_receivebox_addresses() {
    let Some(mut scene) = Scene::set_up(alone) else { return };
    let sites = &scene.topology.pairs[0];
    ip(&sites.right_box, &format!("address add {AMONG_HOSTS}/32 dev br0\n"));
    let neighbour = format!("{AMONG_HOSTS} lladdr {BOX_MAC} dev eth0 nud permanent");
    ip(&sites.left_hosts, &format!("neighbour add {neighbour}\n"));
    let hosts = Site::RightHosts.address(0);
    let flows = Flows::start(&[
        (&sites.left_hosts, &sites.right_hosts, hosts, FLOWS / 2),
        (&sites.left_hosts, &sites.right_box, AMONG_HOSTS, FLOWS / 2),
    ]);
    thread::sleep(Duration::from_secs(2));
    let without = flows.goodput(5);
    scene.start_boxes();
    thread::sleep(Duration::from_secs(4));
    let with = flows.goodput(EVEN);
    let said = scene.said();
    assert!(with >= 0.9 * without, "{without:.1} Mbit/s without boxes, {with:.1} with: {said:?}");
    assert!(said.unseen < 0.02 && said.alarm.is_none(), "{said:?}");
}

/// The plan `bundler/ttl_attack` judges the cost of these datagrams to the flows.
#[test]
fn expiring_datagrams_are_detected_and_flows_continue() {
    let Some(mut scene) = Scene::set_up(together) else { return };
    let sites = &scene.topology.pairs[0];
    let hosts = Site::RightHosts.address(0);
    let flows = Flows::start(&[(&sites.left_hosts, &sites.right_hosts, hosts, FLOWS)]);
    let attack = Attack::new(&sites.left_hosts, SocketAddr::from((hosts, PORT - 1)));
    scene.start_boxes();
    for ttl in [BEFORE_THE_LINK, BEHIND_THE_LINK] {
        attack.begin(ttl);
        await_that("an alarm for unseen packets", || {
            let said = scene.said();
            said.unseen > 0.1 && said.alarm.is_some()
        });
        let goodput = flows.goodput(3);
        assert!(goodput > 1.0, "{goodput:.2} Mbit/s next to datagrams of TTL {ttl}");
        attack.end();
        await_that("the end of the alarm", || scene.said().alarm.is_none());
    }
}

#[test]
fn detects_packets_that_bypass_receivebox_for_a_while() {
    let mut scenario = scenario(9, bundle("copa", "sfq"), None);
    let unseen = |seconds, share| Upset {
        at: Duration::from_secs(seconds),
        bundle: "b".into(),
        pair: "site".into(),
        at_b: true,
        kind: UpsetKind::Unseen(share),
    };
    scenario.upsets = vec![unseen(2, Ratio::new(0.5).unwrap()), unseen(7, Ratio::ZERO)];
    let Some(record) = run(&scenario) else { return };
    let BundleCounters { boundaries_sent, boundaries_matched, .. } = record.bundles[0].counters;
    let matched = boundaries_matched as f64 / boundaries_sent as f64;
    assert!((0.4..0.85).contains(&matched), "{boundaries_matched} of {boundaries_sent}");
    let bytes: u64 = record.flows.iter().map(|flow| flow.bytes).sum();
    assert!(bytes > 9 * 24_000_000 / 8 / 2, "half of the capacity: {bytes}");
}

/// Time to live that ends before the link.
const BEFORE_THE_LINK: u8 = 1;
/// Time to live that ends after the link.
const BEHIND_THE_LINK: u8 = 2;

/// Two sites over 20 Mbit/s and 40 ms with a buffer of 125 ms.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    emulator: Child,
    boxes: Vec<Child>,
    _turn: Turn,
}

impl Scene {
    /// `None` without the privilege to do so.
    fn set_up(turn: fn() -> Turn) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = turn();
        let topology = Topology::build(1, None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let qdisc = Spec::named("fifo").with("limit", Value::Text("208p".into()));
        let delay = Duration::from_millis(20);
        let forward = Link::at_rate("forward", Rate::from_mbit_per_sec(20), delay, qdisc);
        let spec = EmulatorSpec {
            seed: 1,
            pairs: vec![DevicePair { left: left_port(0), right: right_port(0), beside: None }],
            reverse: Link::delay("reverse", delay),
            forward,
            own: Vec::new(),
            out: None,
            keeps_headers: false,
            cpu: None,
            routed: true,
        };
        let file = folder.path().join("emulator.json");
        std::fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
        let mut command = Command::new(crate::forebay());
        command.args(["role", "emulator", "--spec"]).arg(&file);
        // The end of its stdin ends it.
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        topology.emulator.host(&mut command).unwrap();
        let emulator = command.spawn().unwrap();
        Some(Self { topology, folder, emulator, boxes: Vec::new(), _turn: turn })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_boxes(&mut self) {
        keys::generate(&self.file("bundle.key")).unwrap();
        let config = |role: &str, lan: &str, own: Site, peer: Site, shaping: &str| {
            let text = format!(
                "[box]\nrole = \"{role}\"\n{lan}wan = \"wan\"\nlisten = \"{}\"\ncontrol = \
                 \"{role}.sock\"\n[[bundle]]\nname = \"b\"\nid = 1\npeer = \"{}\"\nto = \
                 [\"{}\"]\nfrom = [\"{}\"]\nkey_file = \"bundle.key\"\n{shaping}",
                own.address(0),
                peer.address(0),
                Site::RightHosts.host_prefix(0),
                Site::LeftHosts.host_prefix(0),
            );
            let file = self.file(&format!("{role}.toml"));
            std::fs::write(&file, text).unwrap();
            file
        };
        let shaping = "cc = \"copa\"\nqdisc = { kind = \"sfq\", limit = \"1200p\" }\n";
        let (left, right) = (Site::LeftBox, Site::RightBox);
        let receivebox = config("receivebox", "", right, left, "");
        let sendbox = config("sendbox", "lan = \"lan\"\n", left, right, shaping);
        let sites = &self.topology.pairs[0];
        self.boxes.push(start(&sites.right_box, "receivebox", &receivebox));
        self.boxes.push(start(&sites.left_box, "sendbox", &sendbox));
        await_that("the bundle is shaped", || {
            self.bundle().shaping.is_some_and(|shaping| shaping.decision.rate_bps.is_some())
        });
    }

    fn bundle(&self) -> BundleStatus {
        await_status(&self.file("sendbox.sock")).bundles.remove(0)
    }

    /// The sendbox's shaping status now.
    fn said(&self) -> ShapingStatus {
        self.bundle().shaping.unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in self.boxes.iter_mut().chain([&mut self.emulator]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// TCP flows that always have data.
struct Flows {
    received: Arc<AtomicU64>,
    goes_on: Arc<AtomicBool>,
}

impl Flows {
    /// Starts flows: from one namespace to an address in another, with a count for each pair.
    fn start(ways: &[(&Namespace, &Namespace, Ipv4Addr, u16)]) -> Self {
        let flows = Self { received: Arc::default(), goes_on: Arc::new(AtomicBool::new(true)) };
        for (index, (from, to, address, count)) in (0..).zip(ways) {
            let target = SocketAddr::from((*address, PORT + index));
            let listener = to.within(|| TcpListener::bind(target)).unwrap();
            for _ in 0..*count {
                let patience = Duration::from_secs(20);
                let connect = || TcpStream::connect_timeout(&target, patience);
                let sender = from.within(connect).unwrap();
                flows.carry(sender, listener.accept().unwrap().0);
            }
        }
        flows
    }

    fn carry(&self, mut sender: TcpStream, mut receiver: TcpStream) {
        setsockopt(&sender, TcpCongestion, &"cubic".into()).unwrap();
        let goes_on = self.goes_on.clone();
        thread::spawn(move || {
            let chunk = [7; 16_384];
            while goes_on.load(Relaxed) && sender.write_all(&chunk).is_ok() {}
        });
        let received = self.received.clone();
        thread::spawn(move || {
            let mut chunk = [0; 65_536];
            while let Ok(len @ 1..) = receiver.read(&mut chunk) {
                received.fetch_add(len as u64, Relaxed);
            }
        });
    }

    /// Mbit/s of all flows during the next seconds.
    fn goodput(&self, seconds: u64) -> f64 {
        let (before, began) = (self.received.load(Relaxed), Instant::now());
        thread::sleep(Duration::from_secs(seconds));
        let bytes = self.received.load(Relaxed) - before;
        bytes as f64 * 8e-6 / began.elapsed().as_secs_f64()
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.goes_on.store(false, Relaxed);
    }
}

/// Datagrams whose time to live ends on the way. Any host of a site may send these.
struct Attack {
    /// 0: none is sent; 255: never again.
    ttl: Arc<AtomicU8>,
}

impl Attack {
    fn new(from: &Namespace, target: SocketAddr) -> Self {
        let bind = || (0..SOCKETS).map(|_| UdpSocket::bind("0.0.0.0:0")).collect();
        let sockets: Vec<UdpSocket> = from.within(bind).unwrap();
        let attack = Self { ttl: Arc::default() };
        let wanted = attack.ttl.clone();
        thread::spawn(move || {
            let (mut number, mut next) = (0u64, Instant::now());
            loop {
                let ttl = wanted.load(Relaxed);
                if ttl == 255 {
                    return;
                }
                let socket = &sockets[number as usize % SOCKETS];
                number += 1;
                if ttl > 0 {
                    let mut payload = [0; DATAGRAM];
                    payload[..8].copy_from_slice(&number.to_le_bytes());
                    socket.set_ttl(ttl.into()).unwrap();
                    let _ = socket.send_to(&payload, target);
                }
                next += SPACING;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        attack
    }

    fn begin(&self, ttl: u8) {
        self.ttl.store(ttl, Relaxed);
    }

    fn end(&self) {
        self.begin(0);
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.begin(255);
    }
}
