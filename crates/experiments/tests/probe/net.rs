//! A path between two hosts with a router at its beginning. The namespaces end with the test.
//!
//! ```text
//!  hosts ── [site link] ── router ══ way 0 ══ peer 10.77.9.1
//!                                 ══ way 1 ══            (flows by their ports)
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forebay_core::record::LinkRecord;
use forebay_host::{clock, offload};
use forebay_scenario::Link;
use forebay_testbed::emulator::{DevicePair, EmulatorSpec, LINKS_FILE};
use forebay_testbed::namespace::Namespace;
use serde_json::Value;
use tempfile::TempDir;

/// Address of the peer, the same by both ways.
const PEER: &str = "10.77.9.1:61477";

/// Buffers that hold every path and queue of the tests; no connection learns from another.
const HOST_SETTINGS: [(&str, &str); 3] = [
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/tcp_rmem", "4096\t131072\t33554432"),
    ("net/ipv4/tcp_wmem", "4096\t131072\t33554432"),
];
/// Settings of routers: they forward, and spread flows over paths by ports.
const ROUTER_SETTINGS: [(&str, &str); 2] =
    [("net/ipv4/ip_forward", "1"), ("net/ipv4/fib_multipath_hash_policy", "1")];

/// Behaviour of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Answers probes.
    Answers,
    /// Reads all bytes that arrive over TCP.
    Reads,
}

/// A path; dropping it removes everything.
pub struct Net {
    hosts: Namespace,
    links: Vec<Emulator>,
    /// The answering side, if there is one.
    _server: Option<Killed>,
    _router: Namespace,
    _peer: Namespace,
    _folder: TempDir,
}

impl Net {
    /// A path over `ways`, with a link in the site, too, if one is given.
    pub fn new(site: Option<&Link>, ways: &[Link], peer: Peer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hosts = namespace(&HOST_SETTINGS);
        let router = namespace(&ROUTER_SETTINGS);
        let far = namespace(&HOST_SETTINGS);
        let mut links = Vec::new();
        links.extend(lay(1, [(&hosts, "eth0"), (&router, "lan")], site, folder.path()));
        let mut next_hops = String::new();
        for (index, way) in ways.iter().enumerate() {
            let (number, wan) = (index + 2, format!("wan{index}"));
            links.extend(lay(number, [(&router, &wan), (&far, &wan)], Some(way), folder.path()));
            next_hops += &format!(" nexthop via 10.77.{number}.2");
        }
        ip(&hosts, "route add default via 10.77.1.2");
        ip(&router, &format!("route add 10.77.9.1{next_hops}"));
        ip(&far, "address add 10.77.9.1/32 dev lo");
        ip(&far, "route add default via 10.77.2.1");
        let server = match peer {
            Peer::Answers => Some(serve(&far)),
            Peer::Reads => {
                read_all(&far);
                None
            }
        };
        Self { hosts, links, _server: server, _router: router, _peer: far, _folder: folder }
    }

    /// Runs a command among the hosts.
    pub fn at_hosts(&self, line: &str) {
        run(&self.hosts, line);
    }

    /// Probes the peer and answers with stdout.
    pub fn probe(&self, arguments: &[&str]) -> String {
        let mut command = forebay();
        command.args(["probe", PEER]).args(arguments);
        self.hosts.host(&mut command).unwrap();
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Probes the peer and answers with the document.
    pub fn probe_json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.probe(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Record of each link in the direction to the peer, the site's link first if there is one.
    pub fn finish(self) -> Vec<LinkRecord> {
        self.links.into_iter().map(Emulator::finish).collect()
    }
}

fn forebay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_forebay-experiments"))
}

/// A process that ends with this.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A link between two devices of a namespace of its own.
struct Emulator {
    process: Killed,
    out: std::path::PathBuf,
    _middle: Namespace,
}

impl Emulator {
    fn start(middle: Namespace, link: &Link, out: std::path::PathBuf) -> Self {
        std::fs::create_dir(&out).unwrap();
        let spec = EmulatorSpec {
            seed: 1,
            pairs: vec![DevicePair { left: "left".into(), right: "right".into(), beside: None }],
            forward: link.clone(),
            reverse: Link::delay("reverse", link.delay),
            own: Vec::new(),
            out: Some(out.clone()),
            keeps_headers: false,
            cpu: None,
            routed: false,
        };
        let file = out.join("spec.json");
        std::fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
        let mut command = forebay();
        command.args(["role", "emulator", "--spec"]).arg(&file);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        middle.host(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let start = format!("start {}\n", clock::now().as_nanos());
        child.stdin.as_mut().unwrap().write_all(start.as_bytes()).unwrap();
        Self { process: Killed(child), out, _middle: middle }
    }

    fn finish(mut self) -> LinkRecord {
        drop(self.process.0.stdin.take());
        assert!(self.process.0.wait().unwrap().success());
        let links = std::fs::read(self.out.join(LINKS_FILE)).unwrap();
        let [forward, _]: [LinkRecord; 2] = serde_json::from_slice(&links).unwrap();
        forward
    }
}

/// The network 10.77.`number`.0/24 from one end (.1) to the other (.2), by a link or else by a cable.
fn lay(
    number: usize,
    ends: [(&Namespace, &str); 2],
    link: Option<&Link>,
    folder: &Path,
) -> Option<Emulator> {
    let mac = |end: usize| format!("02:00:00:00:{number:02x}:{end:02x}");
    let [(near, near_device), (far, far_device)] = ends;
    let middle = link.map(|_| namespace(&[]));
    match &middle {
        None => {
            let (own, other, far) = (mac(1), mac(2), far.path());
            let far = far.display();
            let peer = format!("peer name {far_device} address {other} netns {far}");
            ip(near, &format!("link add {near_device} address {own} type veth {peer}"));
        }
        Some(middle) => {
            let path = middle.path();
            let sides = [(near, near_device, "left"), (far, far_device, "right")];
            for (end, (namespace, device, port)) in sides.into_iter().enumerate() {
                let (own, path) = (mac(end + 1), path.display());
                let peer = format!("peer name {port} netns {path}");
                ip(namespace, &format!("link add {device} address {own} type veth {peer}"));
                up(middle, port);
            }
        }
    }
    for (end, (namespace, device)) in ends.into_iter().enumerate() {
        up(namespace, device);
        ip(namespace, &format!("address add 10.77.{number}.{}/24 dev {device}", end + 1));
        let other = 2 - end;
        let (neighbour, mac) = (format!("10.77.{number}.{other}"), mac(other));
        ip(
            namespace,
            &format!("neighbour add {neighbour} lladdr {mac} dev {device} nud permanent"),
        );
    }
    let out = folder.join(number.to_string());
    middle.zip(link).map(|(middle, link)| Emulator::start(middle, link, out))
}

/// Brings a device up with offloads off, so its frames are those on the wire.
fn up(namespace: &Namespace, device: &str) {
    let off = namespace.within(|| offload::disable_all(device).map_err(std::io::Error::other));
    off.unwrap();
    ip(namespace, &format!("link set dev {device} up"));
}

fn namespace(settings: &[(&str, &str)]) -> Namespace {
    let namespace = Namespace::new().unwrap();
    let written = namespace.within(|| {
        // A kernel without IPv6 has nothing to switch off.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        // Answers to packets of the second way leave by the first.
        let any_way = ["all", "default"].map(|which| format!("net/ipv4/conf/{which}/rp_filter"));
        let any_way = any_way.iter().map(|key| (key.as_str(), "0"));
        settings
            .iter()
            .copied()
            .chain(any_way)
            .try_for_each(|(key, value)| std::fs::write(format!("/proc/sys/{key}"), value))
    });
    written.unwrap();
    ip(&namespace, "link set dev lo up");
    namespace
}

fn ip(namespace: &Namespace, line: &str) {
    run(namespace, &format!("ip {line}"));
}

fn run(namespace: &Namespace, line: &str) {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    namespace.host(&mut command).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The answering side of a probe.
fn serve(peer: &Namespace) -> Killed {
    let mut command = forebay();
    command.args(["probe", "--serve", PEER]).stderr(Stdio::piped());
    peer.host(&mut command).unwrap();
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("answering probes"), "{said}");
    Killed(child)
}

/// A server that reads all bytes that arrive, and does no more.
fn read_all(peer: &Namespace) {
    let listener = peer.within(|| TcpListener::bind(PEER)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut chunk = vec![0; 1 << 18];
                while stream.read(&mut chunk).is_ok_and(|len| len > 0) {}
            });
        }
    });
}
