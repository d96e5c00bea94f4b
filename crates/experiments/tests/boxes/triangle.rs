//! A gateway with one device in a network that routes, as in a cloud. A sendbox runs there, and packets pass its
//! process.
//!
//! ```text
//!  hosts .1.10 ── a0 ┐
//!                    fabric ── b0 (80 Mbit/s) ── beyond .2.10
//!  gateway .1.2 ─ g0 ┘
//! ```
//! The fabric sends packets from the hosts to `beyond` through the gateway first. There are three routers on that way,
//! and a fourth in the triangle: a datagram with a TTL of 4 arrives on the plain route alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::triangle::{Names, path_of};
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

use crate::by_hand::{await_status, await_that, command, feed, ip, signal, switch, switch_on};
use crate::{alone, forebay};

/// Limit on the time until traffic takes the plain route, after a part of the triangle is gone.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Port of the datagrams that show the way.
const PROBES: u16 = 7001;
/// IPv4 address of the host behind the receivebox.
const BEYOND: &str = "10.1.2.10";
/// IPv6 address of that host.
const BEYOND_V6: &str = "fd00:2::10";
/// The bound of the bundle (bit/s).
const MAX_BPS: u64 = 8_000_000;

struct Scene {
    hosts: Namespace,
    gateway: Namespace,
    beyond: Namespace,
    _fabric: Namespace,
    folder: tempfile::TempDir,
    names: Names,
    config: PathBuf,
    running: Option<Child>,
}

impl Scene {
    /// `what`: distinguishes the box from those in other tests.
    fn set_up(what: &str, keys_of_box: &str) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let [hosts, gateway, beyond, fabric] = [(); 4].map(|()| Namespace::new().unwrap());
        cable(&fabric, [("a0", &hosts), ("g0", &gateway), ("b0", &beyond)]);
        host(&hosts, "10.1.1.10", "fd00:1::10");
        host(&gateway, "10.1.1.2", "fd00:1::2");
        host(&beyond, BEYOND, BEYOND_V6);
        feed(&gateway, &["ip", "-6", "-batch", "-"], "address add fe80::2/64 dev eth0 nodad\n");
        route(&fabric);
        for (key, value) in [
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/send_redirects", "0"),
            ("ipv4/conf/eth0/send_redirects", "0"),
            // Strict, unless a device has a looser setting.
            ("ipv4/conf/all/rp_filter", "1"),
            ("ipv4/conf/eth0/rp_filter", "0"),
        ] {
            set(&gateway, key, value);
        }
        let folder = tempfile::tempdir().unwrap();
        keys::generate(&folder.path().join("bundle.key")).unwrap();
        let name = format!("t{}{what}", std::process::id());
        let config = write(folder.path(), &name, keys_of_box);
        let names = Names::of(&name);
        Some(Self { hosts, gateway, beyond, _fabric: fabric, folder, names, config, running: None })
    }

    fn start(&mut self) {
        let started = command(&self.gateway, "sendbox", &self.config).spawn().unwrap();
        self.running = Some(started);
        self.await_triangle(true);
    }

    /// Ends the box by a signal; returns whether it exited successfully.
    fn end(&mut self, by: Signal) -> bool {
        let mut running = self.running.take().unwrap();
        signal(&running, by);
        running.wait().unwrap().success()
    }

    fn keeper(&self) -> Pid {
        let pid = self.running.as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let is_keeper = |pid: &&str| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("keep-triangle")
        };
        let found = children.split_whitespace().find(is_keeper).expect("a keeper");
        Pid::from_raw(found.parse().unwrap())
    }

    /// Runs `forebay` on the gateway.
    fn forebay(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(forebay());
        command.args(arguments);
        self.gateway.within(move || command.output()).unwrap()
    }

    fn on_gateway(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let output = self.gateway.within(move || command.output()).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether a datagram with this TTL arrives at `beyond`.
    fn reaches(&self, from: &Namespace, to: &str, ttl: u8) -> bool {
        let to: IpAddr = to.parse().unwrap();
        let own: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let receiver = self.beyond.within(|| UdpSocket::bind((to, PROBES))).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
        let sender = from.within(|| UdpSocket::bind((own, 0))).unwrap();
        let hops = i32::from(ttl);
        match to {
            IpAddr::V4(_) => setsockopt(&sender, sockopt::Ipv4Ttl, &hops).unwrap(),
            IpAddr::V6(_) => setsockopt(&sender, sockopt::Ipv6Ttl, &hops).unwrap(),
        }
        sender.send_to(&[ttl], (to, PROBES)).unwrap();
        receiver.recv(&mut [0; 8]).is_ok()
    }

    fn is_in_triangle(&self, to: &str) -> bool {
        !self.reaches(&self.hosts, to, 4)
    }

    fn await_triangle(&self, is_there: bool) {
        for to in [BEYOND, BEYOND_V6] {
            await_that(&format!("in the triangle: {is_there}"), || {
                self.is_in_triangle(to) == is_there && self.reaches(&self.hosts, to, 5)
            });
        }
    }

    /// Traffic takes the plain route within [`AT_ONCE`] of `cause`.
    fn is_plain_at_once_after(&self, cause: impl FnOnce()) {
        let began = Instant::now();
        cause();
        while !self.reaches(&self.hosts, BEYOND, 4) {
            assert!(began.elapsed() < AT_ONCE, "not on the plain route");
        }
    }

    fn is_nothing_left(&self) -> bool {
        let rules = [self.on_gateway("ip rule"), self.on_gateway("ip -6 rule")].concat();
        let links = self.on_gateway("ip -o link");
        !rules.contains("261") && !links.contains("fbin-") && !path_of(&self.names).exists()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.kill();
            let _ = running.wait();
        }
        let _ = self.gateway.within(|| Ok(forebay_host::triangle::remove(&self.names)));
    }
}

fn cable(fabric: &Namespace, ports: [(&str, &Namespace); 3]) {
    let mut lines = String::from("link set dev lo up\naddress add 10.0.0.1/32 dev lo\n");
    for (port, namespace) in ports {
        let path = namespace.path();
        lines += &format!("link add {port} type veth peer name eth0 netns {}\n", path.display());
        lines += &format!("link set dev {port} up\n");
    }
    ip(fabric, &lines);
    for (key, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
        set(fabric, key, value);
    }
}

/// A virtual machine: one device, one address without a network, and all routes through the fabric.
fn host(namespace: &Namespace, v4: &str, v6: &str) {
    ip(
        namespace,
        &format!(
            "link set dev lo up\nlink set dev eth0 up\naddress add {v4}/32 dev eth0\n\
             route add 10.0.0.1 dev eth0\nroute add default via 10.0.0.1 dev eth0 onlink\n"
        ),
    );
    let lines =
        format!("address add {v6}/128 dev eth0 nodad\nroute add default via fe80::1 dev eth0\n");
    feed(namespace, &["ip", "-6", "-batch", "-"], &lines);
    set(namespace, "ipv4/conf/all/accept_redirects", "0");
}

/// The routes of the fabric: it sends packets from the hosts to `beyond` through the gateway first.
fn route(fabric: &Namespace) {
    let mut v4 = String::new();
    let mut v6 = String::new();
    for (port, last, net) in [("a0", "10", 1), ("g0", "2", 1), ("b0", "10", 2)] {
        set(fabric, &format!("ipv4/conf/{port}/proxy_arp"), "1");
        set(fabric, &format!("ipv4/conf/{port}/rp_filter"), "0");
        set(fabric, &format!("ipv4/conf/{port}/send_redirects"), "0");
        v4 += &format!("route add 10.1.{net}.{last}/32 dev {port}\n");
        v6 += &format!("address add fe80::1/64 dev {port} nodad\n");
        v6 += &format!("route add fd00:{net}::{last}/128 dev {port}\n");
    }
    for key in ["all", "default"] {
        set(fabric, &format!("ipv4/conf/{key}/rp_filter"), "0");
        set(fabric, &format!("ipv4/conf/{key}/send_redirects"), "0");
    }
    v4 += "route add 10.1.2.0/24 via 10.1.1.2 dev g0 onlink table 100\n";
    v4 += "rule add iif a0 to 10.1.2.0/24 lookup 100\n";
    v6 += "route add fd00:2::/64 via fe80::2 dev g0 table 100\n";
    v6 += "rule add iif a0 to fd00:2::/64 lookup 100\n";
    ip(fabric, &v4);
    feed(fabric, &["ip", "-6", "-batch", "-"], &v6);
    let queue = "qdisc add dev b0 root tbf rate 80mbit burst 20kb limit 500kb\n";
    feed(fabric, &["tc", "-batch", "-"], queue);
}

fn set(namespace: &Namespace, key: &str, value: &str) {
    let file = format!("/proc/sys/net/{key}");
    namespace.within(|| fs::write(&file, value)).unwrap_or_else(|error| panic!("{key}: {error}"));
}

/// The file of a sendbox without a receivebox, which shapes to a fixed rate.
fn write(folder: &Path, name: &str, keys_of_box: &str) -> PathBuf {
    let text = format!(
        r#"
[box]
role = "sendbox"
wan = "eth0"
forward = "route"
datapath = "user"
listen = "10.1.1.2"
control = "box.sock"
{keys_of_box}

[[bundle]]
name = "b"
id = 1
peer = "10.1.2.2"
to = ["10.1.2.0/24", "fd00:2::/64"]
key_file = "bundle.key"
cc = "copa"
qdisc = {{ kind = "sfq", limit = "400p" }}
max_rate = "{}Mbit/s"
"#,
        MAX_BPS / 1_000_000
    );
    let file = folder.join(format!("{name}.toml"));
    fs::write(&file, text).unwrap();
    file
}

/// A connection that always has something to send.
struct Flow {
    received: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<std::io::Result<()>>>,
}

impl Flow {
    fn start(scene: &Scene) -> Self {
        let at: SocketAddr = format!("{BEYOND}:7000").parse().unwrap();
        let listener = scene.beyond.within(|| TcpListener::bind(at)).unwrap();
        let mut sender = scene.hosts.within(|| TcpStream::connect(at)).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let (received, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, ends) = (received.clone(), is_over.clone());
        let receiving = thread::spawn(move || {
            let mut bytes = [0; 1 << 16];
            loop {
                match receiver.read(&mut bytes)? {
                    0 => return Ok(()),
                    len => count.fetch_add(len as u64, Ordering::Relaxed),
                };
            }
        });
        let sending = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                sender.write_all(&[0; 1 << 14])?;
            }
            Ok(())
        });
        Self { received, is_over, threads: vec![sending, receiving] }
    }

    /// Bits a second, over this time.
    fn rate(&self, over: Duration) -> u64 {
        let before = self.received.load(Ordering::Relaxed);
        thread::sleep(over);
        let bytes = self.received.load(Ordering::Relaxed) - before;
        (bytes as f64 * 8.0 / over.as_secs_f64()) as u64
    }

    fn await_shaped(&self) {
        await_that("the flow is shaped", || {
            let rate = self.rate(Duration::from_millis(500));
            rate < MAX_BPS * 11 / 10 && rate > MAX_BPS / 2
        });
    }

    /// Ends it; neither end has seen an error.
    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap().unwrap();
        }
    }
}

#[test]
fn routed_packets_pass_the_process_and_nothing_stays() {
    let _alone = alone();
    let Some(mut scene) = Scene::set_up("a", "") else { return };
    assert!(!scene.is_in_triangle(BEYOND) && !scene.is_in_triangle(BEYOND_V6));
    scene.start();
    let flow = Flow::start(&scene);
    flow.await_shaped();
    let status = await_status(&scene.folder.path().join("box.sock"));
    assert_eq!(status.ports[0].device, scene.names.exit);
    // The way back, and the machine's own packets, are on the plain route.
    assert!(scene.reaches(&scene.gateway, BEYOND, 2));
    flow.end();
    assert!(scene.end(Signal::SIGTERM));
    assert!(scene.is_nothing_left(), "{}", scene.on_gateway("ip rule"));
    assert!(!scene.is_in_triangle(BEYOND));
}

#[test]
fn killed_boxes_leave_routed_traffic_alone() {
    let _alone = alone();
    let Some(mut scene) = Scene::set_up("b", "") else { return };
    scene.start();
    let flow = Flow::start(&scene);
    flow.await_shaped();
    let pid = Pid::from_raw(scene.running.as_ref().unwrap().id() as i32);
    scene.is_plain_at_once_after(|| kill(pid, Signal::SIGKILL).unwrap());
    await_that("the flow is unshaped", || flow.rate(Duration::from_millis(200)) > 3 * MAX_BPS);
    assert!(!scene.end(Signal::SIGKILL));
    // Its keeper removes the triangle under the flow.
    await_that("nothing is left", || scene.is_nothing_left());
    assert!(flow.rate(Duration::from_millis(500)) > 3 * MAX_BPS);
    flow.end();
}

#[test]
fn hand_backs_and_missing_parts_use_plain_route() {
    let _alone = alone();
    let Some(mut scene) = Scene::set_up("c", "") else { return };
    scene.start();
    for mtu in [1400, 1500] {
        scene.on_gateway(&format!("ip link set dev eth0 mtu {mtu}"));
        await_that("the veths have the WAN's MTU", || {
            let links = scene.on_gateway("ip -o link show type veth");
            links.lines().filter(|link| link.contains(&format!("mtu {mtu} "))).count() == 3
        });
    }
    // GRO is on with the box's program until the observer has looked and switched it off. Until then the observer also
    // switches off GRO that is set here.
    await_that("on the plain route with GRO", || {
        switch_on(&scene.gateway, &scene.names.exit, &["gro"]);
        !scene.is_in_triangle(BEYOND)
    });
    scene.await_triangle(false);
    switch(&scene.gateway, &scene.names.exit, &["gro"], "off");
    scene.await_triangle(true);
    let exit = scene.names.exit.clone();
    scene.is_plain_at_once_after(|| drop(scene.on_gateway(&format!("ip link del {exit}"))));
    scene.end(Signal::SIGTERM);
    scene.start();
    let namespace = scene.names.namespace.clone();
    scene.is_plain_at_once_after(|| drop(scene.on_gateway(&format!("ip netns del {namespace}"))));
    scene.end(Signal::SIGTERM);
    assert!(scene.is_nothing_left());
}

#[test]
fn leftovers_are_removed_and_running_boxes_are_not() {
    let _alone = alone();
    let Some(mut scene) = Scene::set_up("d", "") else { return };
    let clean = |scene: &Scene| {
        let output = scene.forebay(&["doctor", "--clean"]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    scene.start();
    let said = clean(&scene);
    assert!(said.contains("stays: eth0 is in use by another sendbox"), "{said}");
    assert!(scene.is_in_triangle(BEYOND));
    // With its keeper: the rule stays, and the bridge forwards.
    kill(scene.keeper(), Signal::SIGKILL).unwrap();
    assert!(!scene.end(Signal::SIGKILL));
    assert!(scene.is_in_triangle(BEYOND) && scene.reaches(&scene.hosts, BEYOND, 5));
    let said = clean(&scene);
    assert!(said.contains(&scene.names.namespace), "{said}");
    assert!(scene.is_nothing_left());
    assert_eq!(clean(&scene), "nothing to remove\n");
    // The next start does as much.
    scene.start();
    kill(scene.keeper(), Signal::SIGKILL).unwrap();
    scene.end(Signal::SIGKILL);
    scene.start();
    assert!(scene.end(Signal::SIGTERM) && scene.is_nothing_left());
}

#[test]
fn units_make_triangle_for_unprivileged_boxes() {
    let _alone = alone();
    let Some(mut scene) = Scene::set_up("e", "own = true") else { return };
    let triangle = |scene: &Scene, what: &str| {
        let config = scene.config.to_str().unwrap();
        let output = scene.forebay(&["triangle", what, "--config", config]);
        assert!(output.status.success(), "{output:?}");
    };
    let start = |scene: &Scene| {
        let mut confined = Command::new("setpriv");
        confined.arg("--bounding-set=-sys_admin").arg(forebay());
        confined.args(["sendbox", "--config"]).arg(&scene.config);
        scene.gateway.host(&mut confined).unwrap();
        confined
    };
    let refused = start(&scene).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("conf.eth0.rp_filter=2"), "{said}");
    set(&scene.gateway, "ipv4/conf/eth0/rp_filter", "2");
    let refused = start(&scene).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("forebay-triangle@"), "{said}");
    triangle(&scene, "make");
    assert!(scene.reaches(&scene.gateway, BEYOND, 2) && !scene.is_in_triangle(BEYOND));
    scene.running = Some(start(&scene).spawn().unwrap());
    scene.await_triangle(true);
    // The machine's own packets pass one router more, too.
    assert!(!scene.reaches(&scene.gateway, BEYOND, 2) && scene.reaches(&scene.gateway, BEYOND, 3));
    assert!(scene.end(Signal::SIGTERM));
    assert!(!scene.is_in_triangle(BEYOND) && !scene.is_nothing_left());
    triangle(&scene, "remove");
    assert!(scene.is_nothing_left());
}
