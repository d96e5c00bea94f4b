//! Many bundles between two boxes: idle ones rest, busy ones share the line, and a reload changes only bundles
//! that differ. `make bench-bundles` measures the cost compared with one bundle that has the same traffic.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::service::control::{Answer, Request, ask};
use forebay_host::service::outcome::{Fate, Outcome};
use forebay_skips::{Need, skip_without};
use forebay_testbed::topology::{PairSites, Site, Topology};
use nix::unistd::gettid;

use crate::by_hand::{await_status, command, connect_the_sites, end, ip};
use crate::turns::{Turn, alone};
use crate::two_bundles::await_both;

/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];
/// Destination port of flows.
const PORT: u16 = 7000;
/// One in this many bundles is busy.
const BUSY_EVERY: usize = 20;

#[test]
fn idle_bundles_rest_and_wake_during_reloads() {
    let Some(scene) =
        Scene::start(&Layout { bundles: 300, rate_mbit: 24, weight: 1, datapath: "user" })
    else {
        return;
    };
    let doing = |status: &Status, bundle: usize| status.bundles[bundle].peer.doing.clone();
    let at_rest = scene.await_both("all at rest", |both| {
        let mut all = both.iter().flat_map(|one| &one.bundles);
        all.all(|it| it.peer.doing.as_deref() == Some("resting"))
    });

    // A flow wakes only its own bundle.
    let flows = scene.send(&[7]);
    let woken = scene.await_both("one awake", |[_, sent]| {
        doing(sent, 7).as_deref() == Some("watching") && sent.bundles[7].packets > 200
    });
    assert!((0..300).all(|it| it == 7 || doing(&woken[1], it).as_deref() == Some("resting")));
    assert!(woken[1].bundles.iter().all(|bundle| bundle.peer.state == "alive"));
    let share = woken[1].bundles[7].shaping.as_ref().unwrap().share.unwrap();
    assert!(share.share > 0.9, "{share:?}");

    // Bundles at rest send ten messages and then one a second, and share datagrams.
    thread::sleep(Duration::from_millis(1500));
    let (before, began) = (scene.status(), scene.datagrams());
    thread::sleep(Duration::from_secs(2));
    let (datagrams, later) = (scene.datagrams() - began, scene.status());
    let messages = later[0].messages.received - before[0].messages.received;
    // Without rest, ten times as many would arrive.
    assert!((300..2500).contains(&messages), "{messages} messages in two seconds");
    assert!(4 * datagrams < messages, "{messages} messages in {datagrams} datagrams");

    let outcome = scene
        .reload(&Layout { bundles: 300, rate_mbit: 24, weight: 1, datapath: "user" }, |text| {
            text.replace("weight = 1 # 299", "weight = 2 # 299")
        });
    let touched = outcome.bundles.iter().filter(|it| it.fate != Fate::Unchanged);
    assert_eq!(touched.map(|it| it.name.as_str()).collect::<Vec<_>>(), ["site-299"]);
    let reloaded = scene.await_both("traffic goes on", |[_, sent]| {
        sent.bundles[7].packets > later[1].bundles[7].packets + 200
    });
    assert_eq!(reloaded[1].bundles[299].shaping.as_ref().unwrap().share.unwrap().weight, 2);
    let rejected = reloaded[1].messages.rejected_since(&at_rest[1].messages);
    assert!(rejected.iter().all(|(_, count)| *count == 0), "{rejected:?}");
    flows.stop();
}

#[test]
#[ignore = "a minute of traffic on a quiet machine: make bench-bundles"]
fn thousand_bundles_cost_at_most_twice_one() {
    let rate_mbit = std::env::var("RATE_MBIT").map_or(500, |rate| rate.parse().unwrap());
    let datapath = std::env::var("DATAPATH").unwrap_or_else(|_| "kernel".into());
    let layout = |bundles| Layout { bundles, rate_mbit, weight: 3, datapath: &datapath };
    println!("datapath = \"{datapath}\"");
    if skip_without(Need::Root) {
        return;
    }
    let _backlog = Backlog::lengthened();
    let Some(one) = Cost::measure(&layout(1)) else { return };
    println!("1 bundle:      {one}");
    let many = Cost::measure(&layout(1000)).unwrap();
    println!("1,000 bundles: {many}");
    println!(
        "CPU time of the sendbox: {:.2} times the time with one bundle",
        many.cores / one.cores
    );
    println!("shares: {:.2} % off at most", 100.0 * many.share_error);
    assert!(many.share_error <= 0.02 && many.memory_mb <= 200.0);
    assert!(many.cores <= 2.0 * one.cores);

    let Some(scene) = Scene::start(&layout(500)) else { return };
    // Bundles that are added or removed are idle: traffic outside all bundles would have the line to itself.
    let flows = scene.send(&busy()[..25]);
    let stream = Stream::start(&scene, 1);
    let dropped = backlog_drops();
    for (what, layout) in [
        ("500 that come", layout(1000)),
        ("1,000, most with another weight", Layout { weight: 4, ..layout(1000) }),
        ("500 that go", Layout { weight: 4, ..layout(500) }),
    ] {
        thread::sleep(Duration::from_secs(1));
        let before = ring_drops(&scene.status()[1]);
        let began = Instant::now();
        let outcome = scene.reload(&layout, |text| text);
        let took = began.elapsed();
        assert!(!outcome.is_nothing(), "{what}");
        thread::sleep(Duration::from_millis(500));
        let lost = ring_drops(&scene.status()[1]) - before;
        println!("reload of {what}: {took:?}, {lost} packets lost in the rings");
        assert!(took < Duration::from_secs(1) && lost == 0);
    }
    let (sent, received) = stream.stop();
    let dropped = backlog_drops() - dropped;
    println!("a stream of datagrams meanwhile: {received} of {sent} arrived");
    println!("packets that the machine dropped between its network namespaces: {dropped}");
    assert_eq!(received, sent);
    flows.stop();
}

/// Longer queues for packets that wait for a processor on the way between namespaces. On real networks each host and
/// box has its own processor. Here all share two. If neither is free for 24 ms, the default queue overflows, and flows
/// stall whose shares the test measures.
struct Backlog {
    /// The machine's setting before the change.
    before: String,
}

impl Backlog {
    /// Setting of the longest backlog of received packets.
    const PATH: &str = "/proc/sys/net/core/netdev_max_backlog";

    /// Lengthens the queue until this value is dropped.
    fn lengthened() -> Self {
        let before = fs::read_to_string(Self::PATH).unwrap();
        fs::write(Self::PATH, "20000").unwrap();
        Self { before }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        fs::write(Self::PATH, &self.before).unwrap();
    }
}

/// Packets that veth dropped because a processor's backlog was full, since the machine started: the second column of
/// each processor's line (`softnet_seq_show`, net/core/net-procfs.c).
fn backlog_drops() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let drops = text.lines().map(|line| line.split_whitespace().nth(1).unwrap());
    drops.map(|drops| u64::from_str_radix(drops, 16).unwrap()).sum()
}

/// Contents of the files of two boxes.
pub struct Layout<'a> {
    pub bundles: usize,
    pub rate_mbit: u64,
    /// The largest weight. Busy bundles get the weights up to this in turn.
    pub weight: usize,
    /// Of the sendbox.
    pub datapath: &'a str,
}

/// The busy bundles out of a thousand.
fn busy() -> Vec<usize> {
    (0..1000).step_by(BUSY_EVERY).collect()
}

/// Host of a bundle's destinations: the second of four addresses.
fn host(bundle: usize) -> Ipv4Addr {
    let [high, low] = [64 + bundle / 64, bundle % 64 * 4 + 1].map(|octet| octet as u8);
    Ipv4Addr::new(10, 1, high, low)
}

impl Layout<'_> {
    fn weight(&self, bundle: usize) -> usize {
        if self.bundles == 1 { 1 } else { 1 + bundle / BUSY_EVERY % self.weight }
    }

    /// The files of the receivebox and of the sendbox.
    fn write(&self, folder: &Path, edit: impl Fn(String) -> String) -> [PathBuf; 2] {
        let sites = [[Site::RightBox, Site::LeftBox], [Site::LeftBox, Site::RightBox]];
        [0, 1].map(|place| {
            let ([own, peer], role) = (sites[place].map(|site| site.address(0)), ROLES[place]);
            let lan = ["", "lan = \"lan\"\n"][place];
            let mut text = format!(
                "[box]\nrole = \"{role}\"\n{lan}wan = \"wan\"\nlisten = \"{own}\"\ncontrol = \"{role}.sock\"\n"
            );
            if role == "sendbox" {
                writeln!(text, "datapath = \"{}\"", self.datapath).unwrap();
                write!(text, "[uplink]\nrate = \"{}Mbit/s\"\n", self.rate_mbit).unwrap();
            }
            for bundle in 0..self.bundles {
                let to = match self.bundles {
                    1 => "10.1.64.0/18".into(),
                    _ => format!("{}/30", Ipv4Addr::from_bits(host(bundle).to_bits() - 1)),
                };
                write!(
                    text,
                    "[[bundle]]\nname = \"site-{bundle}\"\nid = {bundle}\npeer = \"{peer}\"\nto = [\"{to}\"]\n\
                     from = [\"{}\"]\nkey_file = \"bundle.key\"\n",
                    Site::LeftHosts.host_prefix(0)
                )
                .unwrap();
                if role == "sendbox" {
                    let weight = self.weight(bundle);
                    let law = "cc = \"const\"";
                    write!(text, "{law}\nweight = {weight} # {bundle}\n").unwrap();
                }
            }
            let file = folder.join(format!("{role}.toml"));
            fs::write(&file, edit(text)).unwrap();
            file
        })
    }
}

/// Two boxes that are connected in all bundles, and a host behind each.
pub struct Scene {
    topology: Topology,
    pub folder: tempfile::TempDir,
    /// Receivebox and sendbox.
    pub boxes: [Child; 2],
    _turn: Turn,
}

impl Scene {
    fn start(layout: &Layout<'_>) -> Option<Self> {
        Self::start_as(alone, layout, |text| text, |_| {})
    }

    /// Starts boxes in a turn, after `edit` has changed their files and `prepare` their commands.
    pub fn start_as(
        turn: fn() -> Turn,
        layout: &Layout<'_>,
        edit: impl Fn(String) -> String,
        mut prepare: impl FnMut(&mut Command),
    ) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = turn();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        let sites = &topology.pairs[0];
        give_hosts(sites);
        let folder = tempfile::tempdir().unwrap();
        keys::generate(&folder.path().join("bundle.key")).unwrap();
        let configs = layout.write(folder.path(), edit);
        let namespaces = [&sites.right_box, &sites.left_box];
        let boxes = [0, 1].map(|place| {
            let mut command = command(namespaces[place], ROLES[place], &configs[place]);
            prepare(&mut command);
            command.spawn().unwrap()
        });
        let scene = Self { topology, folder, boxes, _turn: turn };
        scene.await_both("all alive", |both| {
            both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
        });
        Some(scene)
    }

    pub fn sockets(&self) -> [PathBuf; 2] {
        ROLES.map(|role| self.folder.path().join(format!("{role}.sock")))
    }

    fn status(&self) -> [Status; 2] {
        self.sockets().map(|socket| await_status(&socket))
    }

    /// Datagrams that the receivebox has received.
    fn datagrams(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/snmp");
        let text = self.topology.pairs[0].right_box.within(read).unwrap();
        let values = text.lines().filter(|line| line.starts_with("Udp: ")).nth(1).unwrap();
        values.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn await_both(&self, what: &str, is_it: impl Fn(&[Status; 2]) -> bool) -> [Status; 2] {
        println!("waiting for: {what}");
        await_both(&self.sockets(), is_it)
    }

    /// Reloads both boxes with this layout; returns the sendbox's outcome.
    fn reload(&self, layout: &Layout<'_>, edit: impl Fn(String) -> String) -> Outcome {
        layout.write(self.folder.path(), edit);
        let outcomes = self.sockets().map(|socket| match ask::<Status>(&socket, Request::Reload) {
            Ok(Answer::Changed(outcome)) => *outcome,
            other => panic!("{other:?}"),
        });
        let [receivebox, sendbox] = outcomes;
        for outcome in [&receivebox, &sendbox] {
            assert_eq!(outcome.refused, [""; 0]);
        }
        sendbox
    }

    /// Begins a greedy flow to the host of each of these bundles.
    fn send(&self, bundles: &[usize]) -> Flows {
        let sites = &self.topology.pairs[0];
        let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT));
        let listener = sites.right_hosts.within(listen).unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let mut threads = Vec::new();
        for bundle in bundles {
            let target = SocketAddr::new(IpAddr::V4(host(*bundle)), PORT);
            let connect = || TcpStream::connect_timeout(&target, Duration::from_secs(20));
            let mut sender = sites.left_hosts.within(connect).unwrap();
            let mut receiver = listener.accept().unwrap().0;
            let is_over = is_over.clone();
            threads.push(thread::spawn(move || {
                let chunk = [7; 16_384];
                give_way();
                while !is_over.load(Ordering::Relaxed) && sender.write_all(&chunk).is_ok() {}
            }));
            threads.push(thread::spawn(move || {
                give_way();
                drop(io::copy(&mut receiver, &mut io::sink()));
            }));
        }
        Flows { is_over, threads }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        end(&mut self.boxes);
    }
}

/// Gives the right site a host for each bundle that may be busy, and for the second bundle.
fn give_hosts(sites: &PairSites) {
    let mac = Site::RightHosts.mac_bytes(0).map(|byte| format!("{byte:02x}")).join(":");
    let (mut addresses, mut neighbours) = (String::new(), String::new());
    for bundle in busy().into_iter().chain([1, 7]) {
        let address = host(bundle);
        writeln!(addresses, "address add {address}/32 dev eth0").unwrap();
        writeln!(neighbours, "neighbour add {address} lladdr {mac} dev eth0 nud permanent")
            .unwrap();
    }
    ip(&sites.right_hosts, &addresses);
    ip(&sites.left_hosts, &neighbours);
    // A machine's default algorithm may pace its own packets.
    let law = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
    sites.left_hosts.within(law).unwrap();
}

/// Lets this thread run only when no other thread wants to. On real networks hosts have their own processors, not those
/// of the boxes and their clients.
fn give_way() {
    let mut chrt = Command::new("chrt");
    chrt.args(["--idle", "--pid", "0", &gettid().to_string()]);
    assert!(chrt.status().unwrap().success());
}

/// Flows that go on until they are stopped.
struct Flows {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Datagrams at an even pace to the host of a bundle.
struct Stream {
    is_over: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<u64>,
}

impl Stream {
    fn start(scene: &Scene, bundle: usize) -> Self {
        let sites = &scene.topology.pairs[0];
        let target = SocketAddr::new(IpAddr::V4(host(bundle)), PORT);
        let receiver = sites.right_hosts.within(|| UdpSocket::bind(target)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let local = (Site::LeftHosts.address(0), 0);
        let sender = sites.left_hosts.within(|| UdpSocket::bind(local)).unwrap();
        let is_over = Arc::<AtomicBool>::default();
        let over = is_over.clone();
        let send = move || {
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                sent += u64::from(sender.send_to(&[7; 200], target).is_ok());
                thread::sleep(Duration::from_millis(5));
            }
            sent
        };
        // Ends when no datagram has arrived for a second.
        let receive = move || {
            let mut buffer = [0; 300];
            std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).count() as u64
        };
        Self { is_over, sender: thread::spawn(send), receiver: thread::spawn(receive) }
    }

    /// Datagrams sent and received.
    fn stop(self) -> (u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        (self.sender.join().unwrap(), self.receiver.join().unwrap())
    }
}

/// Packets that were dropped because the rings of a box's ports were full.
fn ring_drops(status: &Status) -> u64 {
    let counters = status.ports.iter().flat_map(|port| &port.counters);
    counters.filter(|(name, _)| name == "ring_drops").map(|(_, count)| count).sum()
}

/// Resources that a sendbox used for its traffic.
struct Cost {
    /// CPU time divided by elapsed time.
    cores: f64,
    memory_mb: f64,
    carried_mbit: f64,
    /// Largest deviation of a busy bundle's rate from its share, as a part of the share.
    share_error: f64,
    backlog_drops: u64,
}

impl Cost {
    /// Time before the measurement, in which rates settle.
    const WARM_UP: Duration = Duration::from_secs(8);
    /// Length of the measurement.
    const SPAN: Duration = Duration::from_secs(10);

    fn measure(layout: &Layout<'_>) -> Option<Self> {
        let scene = Scene::start(layout)?;
        let flows = scene.send(&busy());
        thread::sleep(Self::WARM_UP);
        let pid = scene.boxes[1].id();
        let (before, cpu, began) = (scene.status(), cpu_time(pid), Instant::now());
        let dropped = backlog_drops();
        thread::sleep(Self::SPAN);
        let (span, cpu) = (began.elapsed(), cpu_time(pid) - cpu);
        let after = scene.status();
        let pages = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        let pages: f64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        let backlog_drops = backlog_drops() - dropped;
        flows.stop();
        let sent = |bundle: usize| {
            (after[1].bundles[bundle].bytes - before[1].bundles[bundle].bytes) as f64
        };
        let all: f64 = (0..layout.bundles).map(sent).sum();
        let busy: Vec<usize> = busy().into_iter().filter(|it| *it < layout.bundles).collect();
        let weights: usize = busy.iter().map(|bundle| layout.weight(*bundle)).sum();
        let error = |bundle: &usize| {
            let share = layout.weight(*bundle) as f64 / weights as f64;
            (sent(*bundle) / all / share - 1.0).abs()
        };
        Some(Self {
            cores: cpu.as_secs_f64() / span.as_secs_f64(),
            memory_mb: pages * 4096.0 / 1e6,
            carried_mbit: all * 8e3 / (after[1].at_ns - before[1].at_ns) as f64,
            share_error: busy.iter().map(error).fold(0.0, f64::max),
            backlog_drops,
        })
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, memory_mb, carried_mbit, backlog_drops, .. } = self;
        write!(
            f,
            "{carried_mbit:.0} Mbit/s, {cores:.3} cores, {memory_mb:.0} MB, {backlog_drops} packets dropped between \
             namespaces"
        )
    }
}

/// CPU time of a process, in user space and kernel (proc_pid_stat(5), in ticks of 10 ms).
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}
