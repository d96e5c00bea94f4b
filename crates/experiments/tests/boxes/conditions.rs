//! Conditions on the devices of a box. A box does not start where one fails. If one fails while a box runs, the kernel
//! carries the packets until it holds again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forebay_host::daemon::status::Status;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::by_hand::{await_status, await_that, connect_the_sites, end, write_sendbox};
use crate::kernel_queues;
use crate::turns::{Turn, together};
use crate::two_bundles::write_configs;

/// Port of the test traffic.
const PORT: u16 = 7000;

/// A change that makes a condition of a sendbox fail in its namespace, and its reverse.
struct Change {
    condition: &'static str,
    make: &'static [&'static str],
    undo: &'static [&'static str],
    /// Part of the message in log and status.
    found: &'static str,
    /// Whether the kernel forwards meanwhile.
    passes: bool,
    /// Whether a starting box waits until the condition holds.
    is_awaited: bool,
}

/// Changes that break one condition of the box each.
const CHANGES: [Change; 8] = [
    Change {
        condition: "isolation",
        make: &["bridge link set dev lan isolated on", "bridge link set dev wan isolated on"],
        undo: &["bridge link set dev lan isolated off", "bridge link set dev wan isolated off"],
        found: "lan and wan are isolated ports",
        passes: false,
        is_awaited: false,
    },
    Change {
        condition: "tc filters",
        make: &[
            "tc qdisc add dev lan clsact",
            "tc filter add dev lan ingress protocol ip u32 match u32 0 0",
        ],
        undo: &["tc qdisc del dev lan clsact"],
        found: "lan has a tc filter at its ingress",
        passes: true,
        is_awaited: false,
    },
    Change {
        condition: "tc filters",
        make: &[
            "tc qdisc add dev wan clsact",
            "tc filter add dev wan egress protocol ip u32 match u32 0 0",
        ],
        undo: &["tc qdisc del dev wan clsact"],
        found: "wan has a tc filter at its egress",
        passes: true,
        is_awaited: false,
    },
    Change {
        condition: "packet filter",
        make: &[
            "nft add table bridge b",
            "nft add chain bridge b c { type filter hook forward priority 0; policy drop; }",
        ],
        undo: &["nft delete table bridge b"],
        found: "nftables filters in chain bridge b c",
        passes: false,
        is_awaited: false,
    },
    Change {
        condition: "qdisc",
        make: &["tc qdisc add dev wan root pfifo"],
        undo: &["tc qdisc del dev wan root"],
        found: "wan has the configured qdisc pfifo",
        passes: true,
        is_awaited: false,
    },
    Change {
        condition: "offloads",
        make: &["ethtool -K lan gro on"],
        undo: &["ethtool -K lan gro off"],
        found: "ethtool -K lan gro off",
        passes: true,
        is_awaited: true,
    },
    Change {
        condition: "bridge",
        make: &["ip link set dev wan nomaster"],
        undo: &["ip link set dev wan master br0"],
        found: "lan is a port of br0, wan of no bridge",
        passes: false,
        is_awaited: true,
    },
    Change {
        condition: "MTU",
        make: &["ip link set dev wan mtu 1400"],
        undo: &["ip link set dev wan mtu 1500"],
        found: "lan has an MTU of 1500 bytes, wan of 1400",
        passes: false,
        is_awaited: true,
    },
];

#[test]
fn unmet_conditions_are_refused_or_hand_back() {
    let Some(mut scene) = Scene::set_up() else { return };
    for change in &CHANGES {
        scene.run(change.make);
        if change.is_awaited {
            scene.start();
            scene.await_logged(change.found);
            assert!(scene.boxes[0].try_wait().unwrap().is_none(), "{}", scene.log());
            end(&mut scene.boxes);
            scene.boxes.clear();
            scene.forget_log();
        } else {
            let output = scene.forebay(&["sendbox", "--config"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{}: {said}", change.condition);
            assert!(said.contains(change.found), "{}: {said}", change.condition);
        }
        let doctor = scene.forebay(&["doctor", "--config"]).output().unwrap();
        let told = String::from_utf8_lossy(&doctor.stdout);
        let line = format!("sendbox: {}", change.condition);
        let mut failed = told.lines().filter(|line| line.to_lowercase().contains("fail"));
        assert!(failed.any(|row| row.contains(&line)), "{}: {told}", change.condition);
        scene.run(change.undo);
    }

    scene.start();
    let flow = Flow::start(scene.sites());
    for (number, change) in CHANGES.iter().enumerate() {
        let name = change.condition;
        await_that(&format!("packets are taken before {name}"), || scene.takes());
        scene.run(change.make);
        await_that(&format!("they are handed back at {name}"), || scene.state() == "handed_back");
        let status = scene.status();
        assert_eq!(status.failed_conditions[0].condition, name, "{:?}", status.failed_conditions);
        assert!(status.table().contains(change.found), "{name}: {}", status.table());
        scene.await_logged(change.found);
        // Packets that were queued or under way have arrived.
        thread::sleep(Duration::from_millis(100));
        let (captured, came) = (scene.counter("captured"), flow.received());
        thread::sleep(Duration::from_millis(500));
        assert_eq!(scene.counter("captured"), captured, "{name}");
        assert_eq!(flow.received() > came, change.passes, "{name}: packets that pass the kernel");
        scene.run(change.undo);
        await_that(&format!("they are taken again after {name}"), || scene.takes());
        await_that(&format!("the connection goes on after {name}"), || flow.is_going_on());
        let status = scene.status();
        assert_eq!(
            (status.failed_conditions, scene.counter("handed_back")),
            (vec![], number as u64 + 1)
        );
    }
    flow.finish();
}

#[test]
fn box_reattaches_to_recreated_devices() {
    let Some(mut scene) = Scene::set_up() else { return };
    scene.start();
    let flow = Flow::start(scene.sites());
    await_that("packets are taken", || scene.takes());
    for has_same_index in [false, true, false] {
        scene.is_followed(&flow, has_same_index);
    }
    scene.await_logged("wan was made again: attached to it");
    // Without its observer a box ends, and the kernel carries the packets.
    let box_pid = scene.boxes[0].id();
    let children = fs::read_to_string(format!("/proc/{box_pid}/task/{box_pid}/children")).unwrap();
    kill(Pid::from_raw(children.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    await_that("the box ends", || scene.boxes[0].try_wait().unwrap().is_some());
    scene.await_logged("the observer of the devices has ended");
    await_that("the connection goes on", || flow.is_going_on());
    flow.finish();
}

#[test]
fn kernel_datapath_follows_devices_and_undoes_changes() {
    if skip_without(Need::QueueSampling) {
        return;
    }
    let Some(mut scene) = Scene::set_up() else { return };
    kernel_queues::keep_in_kernel(&scene.config);
    scene.start();
    let flow = Flow::start(scene.sites());
    await_that("packets are taken", || scene.takes());
    for has_same_index in [false, true] {
        scene.is_followed(&flow, has_same_index);
    }
    scene.await_logged("wan was made again: attached to it");
    // Changes all queues, because one holds the connection.
    let of_queues = "tc qdisc show dev wan | grep -o 'tbf [0-9a-f]*: parent fb:[0-9a-f]*' | while read _ own _ of; \
                     do echo qdisc change dev wan handle $own parent $of tbf rate 64kbit burst 1600 limit 9000; \
                     done | tc -batch -";
    let mut changing = Command::new("sh");
    changing.args(["-c", of_queues]);
    scene.sites().left_box.host(&mut changing).unwrap();
    assert!(changing.status().unwrap().success());
    scene.await_logged("another program has changed qdisc tbf ");
    let log = scene.log();
    let line = log.lines().find(|line| line.contains("has changed qdisc")).unwrap();
    assert!(line.contains("FB0305"), "{line}");
    await_that("packets are taken again", || scene.takes());
    let began = flow.received();
    await_that("a megabyte more comes", || flow.received() > began + (1 << 20));
    let mut showing = Command::new("tc");
    scene.sites().left_box.host(showing.args(["qdisc", "show", "dev", "wan"])).unwrap();
    let shown = String::from_utf8(showing.output().unwrap().stdout).unwrap();
    assert!(!shown.contains("rate 64Kbit"), "{shown}");
    flow.finish();
}

#[test]
fn box_adopts_addresses_added_at_run_time() {
    let Some(mut scene) = Scene::set_up() else { return };
    scene.start();
    let sender = {
        let bind = || UdpSocket::bind((Site::LeftHosts.address(0), PORT));
        scene.sites().left_hosts.within(bind).unwrap()
    };
    let mac = "02:00:00:00:00:77";
    let hosts = &scene.sites().left_hosts;
    // The first becomes an address of the box. The second stays another machine's, but the bridge gets its Ethernet
    // address.
    for address in ["10.1.2.77", "10.1.2.78"] {
        run(hosts, &[&format!("ip neighbour add {address} lladdr {mac} dev eth0 nud permanent")]);
    }
    let count = |name: &str, address: &str| {
        let before = scene.counter(name);
        sender.send_to(b"to whom?", (address, PORT)).unwrap();
        thread::sleep(Duration::from_millis(50));
        scene.counter(name) - before
    };
    assert_eq!(count("captured", "10.1.2.77"), 1);
    scene.ip_in_box(&["address add 10.1.2.77/32 dev br0"]);
    await_that("an address that was added is the box's", || count("passed_own", "10.1.2.77") == 1);
    assert_eq!(count("captured", "10.1.2.78"), 1);
    scene.ip_in_box(&[&format!("link set dev br0 address {mac}")]);
    await_that("so is an Ethernet address", || count("passed_own_mac", "10.1.2.78") == 1);
    // So is a station at a third port of the bridge, as a router may be.
    scene.ip_in_box(&["link add side type veth peer name far", "link set dev side master br0"]);
    let station = "02:00:00:00:00:79";
    run(hosts, &[&format!("ip neighbour add 10.1.2.79 lladdr {station} dev eth0 nud permanent")]);
    assert_eq!(count("captured", "10.1.2.79"), 1);
    scene.run(&[&format!("bridge fdb add {station} dev side master static")]);
    await_that("so is a station elsewhere", || count("passed_own_mac", "10.1.2.79") == 1);
    scene.run(&[&format!("bridge fdb replace {station} dev wan master static")]);
    await_that("one that is at the WAN is not", || count("captured", "10.1.2.79") == 1);
    scene.ip_in_box(&["address del 10.1.2.77/32 dev br0"]);
    await_that("one that has gone is not", || count("passed_own", "10.1.2.77") == 0);
}

#[test]
fn receivebox_skips_changed_packets_and_reattaches() {
    let Some(mut scene) = Scene::set_up() else { return };
    let [receivebox, sendbox] = write_configs(scene.folder.path());
    scene.config = sendbox;
    scene.socket = scene.folder.path().join("receivebox.sock");
    scene.start();
    let mut receiving = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    receiving.args(["receivebox", "--config"]).arg(receivebox);
    scene.boxes.push(spawn(&scene.sites().right_box, &mut receiving, scene.log_file()));
    let flow = Flow::start(scene.sites());
    let reports = || scene.status().bundles[0].watching.clone().unwrap().reports;
    let is_reporting = || {
        let before = reports();
        thread::sleep(Duration::from_millis(300));
        reports() > before
    };
    await_that("packets are reported", is_reporting);
    let right_box = &scene.sites().right_box;
    for (make, undo, found) in [
        ("ethtool -K wan rxvlan on", "ethtool -K wan rxvlan off", "ethtool -K wan rxvlan off"),
        ("ip link del dev wan", "", "there is no device wan"),
        ("ip link del dev wan", "the same index", "there is no device wan"),
    ] {
        let index = index_words(right_box, "wan", undo == "the same index");
        run(right_box, &[make]);
        await_that(found, || scene.status().table().contains(found));
        thread::sleep(Duration::from_millis(200));
        assert!(!is_reporting(), "{found}");
        scene.await_logged("until then the receivebox reports no packets");
        if make.starts_with("ip link del") {
            scene.make_wan(right_box, "right0", &index);
        } else {
            run(right_box, &[undo]);
        }
        await_that("packets are reported again", is_reporting);
        assert_eq!(scene.status().failed_conditions, [], "{found}");
    }
    await_that("the connection goes on", || flow.is_going_on());
    flow.finish();
}

#[test]
fn merged_packets_are_watched_at_tc_or_refused() {
    let Some(mut scene) = Scene::set_up() else { return };
    let [receivebox, _] = write_configs(scene.folder.path());
    let text = fs::read_to_string(&receivebox).unwrap();
    fs::write(&receivebox, text.replace("wan = \"wan\"", "wan = \"mac0\"")).unwrap();
    scene.socket = scene.folder.path().join("receivebox.sock");
    let right_box = &scene.sites().right_box;
    let add = "ip link add link br0 name mac0 type macvlan mode bridge";
    run(right_box, &[add, "ip link set dev mac0 up", "ethtool -K mac0 gro off"]);
    run(right_box, &["ethtool -K wan gro on"]);
    let mut receiving = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    receiving.args(["receivebox", "--config"]).arg(receivebox);
    right_box.host(&mut receiving).unwrap();
    let fix = "ethtool -K wan gro off lro off";
    if Need::Tcx.is_met() {
        let child = spawn(right_box, &mut receiving, scene.log_file());
        scene.boxes.push(child);
        assert_eq!(scene.status().ports[0].mode, "tcx");
        let mut watching = scene.boxes.pop().unwrap();
        kill(Pid::from_raw(watching.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert!(watching.wait().unwrap().success());
    } else {
        let said = receiving.output().unwrap();
        let said = (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned());
        assert!(said.0 == Some(1) && said.1.contains(fix), "{said:?}");
    }
    run(&scene.sites().right_box, &["ethtool -K wan gro off"]);
    let child = spawn(&scene.sites().right_box, &mut receiving, scene.log_file());
    scene.boxes.push(child);
    let holds = || scene.status().failed_conditions.is_empty();
    assert!(holds(), "{:?}", scene.status().failed_conditions);
    for (gro, is_held) in [("on", false), ("off", true)] {
        run(&scene.sites().right_box, &[&format!("ethtool -K wan gro {gro}")]);
        await_that(&format!("gro {gro} below is seen"), || holds() == is_held);
        assert_eq!(scene.status().table().contains(fix), !is_held);
    }
}

/// Two sites, and boxes that log to a file.
pub struct Scene {
    topology: Topology,
    pub folder: tempfile::TempDir,
    pub config: PathBuf,
    pub socket: PathBuf,
    pub boxes: Vec<Child>,
    _turn: Turn,
}

impl Scene {
    /// `None` without the privilege to do so.
    pub fn set_up() -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = together();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        let folder = tempfile::tempdir().unwrap();
        let config = write_sendbox(folder.path(), "10Mbit/s");
        let socket = folder.path().join("box.sock");
        Some(Self { topology, folder, config, socket, boxes: Vec::new(), _turn: turn })
    }

    pub fn sites(&self) -> &PairSites {
        &self.topology.pairs[0]
    }

    /// A command with the configuration as its last argument.
    pub fn forebay(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.args(arguments).arg(&self.config);
        self.sites().left_box.host(&mut command).unwrap();
        command
    }

    pub fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.args(["sendbox", "--config"]).arg(&self.config);
        let child = spawn(&self.sites().left_box, &mut command, self.log_file());
        self.boxes.push(child);
    }

    pub fn log_file(&self) -> File {
        let path = self.folder.path().join("log");
        File::options().create(true).append(true).open(path).unwrap()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Later lines make a log of their own.
    fn forget_log(&self) {
        fs::remove_file(self.folder.path().join("log")).unwrap();
    }

    /// A thread of its own writes the log.
    pub fn await_logged(&self, text: &str) {
        await_that(&format!("the log says {text:?}"), || self.log().contains(text));
    }

    pub fn run(&self, commands: &[&str]) {
        run(&self.sites().left_box, commands);
    }

    pub fn ip_in_box(&self, lines: &[&str]) {
        let lines: Vec<String> = lines.iter().map(|line| format!("ip {line}")).collect();
        self.run(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Restores the cable and the device towards the hosts.
    pub fn make_lan_again(&self, index: &str) {
        let hosts = &self.sites().left_hosts;
        let line = format!(
            "link add lan{index} type veth peer name eth0 netns {}",
            hosts.path().display()
        );
        self.ip_in_box(&[&line]);
        // `eth0` first: the box attaches to `lan` as soon as the offloads of `lan` are off. With its program there,
        // one offload of `eth0` can no longer be set.
        quiet(hosts, "eth0");
        quiet(&self.sites().left_box, "lan");
        let [own, other] = [Site::LeftHosts, Site::RightHosts].map(|site| site.address(0));
        run(
            hosts,
            &[
                "ip link set dev eth0 address 02:00:0a:01:01:01",
                "ip link set dev eth0 up",
                &format!("ip address add {own}/16 dev eth0"),
                &format!(
                    "ip neighbour replace {other} lladdr 02:00:0a:01:02:01 dev eth0 nud permanent"
                ),
            ],
        );
        self.ip_in_box(&["link set dev lan master br0", "link set dev lan up"]);
    }

    fn make_wan_again(&self, index: &str) {
        self.make_wan(&self.sites().left_box, "left0", index);
    }

    pub fn make_wan(&self, of: &Namespace, port: &str, index: &str) {
        let emulator = &self.topology.emulator;
        let pair = format!("wan{index} type veth peer name {port}");
        run(of, &[&format!("ip link add {pair} netns {}", emulator.path().display())]);
        // As in `make_lan_again`.
        quiet(emulator, port);
        quiet(of, "wan");
        run(of, &["ip link set dev wan master br0", "ip link set dev wan up"]);
        run(
            emulator,
            &[&format!("ip link set dev {port} master br"), &format!("ip link set dev {port} up")],
        );
    }

    pub fn status(&self) -> Status {
        await_status(&self.socket)
    }

    pub fn state(&self) -> String {
        self.status().bundles[0].shaping.clone().unwrap().decision.state
    }

    /// Whether the sendbox takes packets now; packets must arrive all the time.
    pub fn takes(&self) -> bool {
        let before = self.taken();
        thread::sleep(Duration::from_millis(50));
        self.taken() > before && self.state() != "handed_back"
    }

    /// Packets that were taken, or put into classes.
    fn taken(&self) -> u64 {
        let status = self.status();
        let mut counters = status.ports[0].counters.iter();
        counters.find(|(key, _)| ["captured", "classified"].contains(&key.as_str())).unwrap().1
    }

    /// Deletes each device, and makes it again once the packets are handed back: then the box takes packets again.
    fn is_followed(&self, flow: &Flow, has_same_index: bool) {
        for (device, make_again) in
            [("lan", Self::make_lan_again as fn(&Self, &str)), ("wan", Self::make_wan_again)]
        {
            let index = index_words(&self.sites().left_box, device, has_same_index);
            self.ip_in_box(&["link del dev {}".replace("{}", device).as_str()]);
            await_that("packets are handed back", || self.state() == "handed_back");
            // The box may first see that its qdisc is missing.
            let mut status = self.status();
            await_that("the device is missed", || {
                status = self.status();
                status.failed_conditions.first().is_some_and(|it| it.condition == "device")
            });
            let table = status.table();
            assert!(table.contains(&format!("there is no device {device}")), "{table}");
            make_again(self, &index);
            await_that(&format!("packets are taken of the new {device}"), || self.takes());
            await_that("the connection goes on", || flow.is_going_on());
        }
    }

    /// A counter of the LAN port.
    pub fn counter(&self, name: &str) -> u64 {
        let status = self.status();
        let mut counters = status.ports[0].counters.iter();
        counters.find(|(key, _)| key == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// A TCP connection from left to right that offers some 30 Mbit/s.
pub struct Flow {
    is_over: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<()>,
}

impl Flow {
    pub fn start(sites: &PairSites) -> Self {
        let target = (Site::RightHosts.address(0), PORT);
        let listener = sites.right_hosts.within(|| TcpListener::bind(target)).unwrap();
        let mut sender = sites.left_hosts.within(|| TcpStream::connect(target)).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        let (is_over, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, bytes) = (is_over.clone(), received.clone());
        let sender = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                sender.write_all(&[7; 4096]).expect("not reset");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let receiver = thread::spawn(move || {
            let mut chunk = [0; 1 << 16];
            loop {
                match receiver.read(&mut chunk).expect("not reset") {
                    0 => return,
                    len => bytes.fetch_add(len as u64, Ordering::Relaxed),
                };
            }
        });
        Self { is_over, received, sender, receiver }
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn is_going_on(&self) -> bool {
        let before = self.received();
        thread::sleep(Duration::from_millis(20));
        self.received() > before
    }

    /// Ends the flow, which was never reset.
    pub fn finish(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
        self.receiver.join().unwrap();
    }
}

fn spawn(namespace: &Namespace, command: &mut Command, log: File) -> Child {
    namespace.host(command).unwrap();
    command.stderr(log).spawn().unwrap()
}

/// Runs commands whose words are separated by single spaces; text in braces is one word.
pub fn run(namespace: &Namespace, commands: &[&str]) {
    for line in commands {
        let (words, braced) = line
            .split_once(" {")
            .map_or((*line, None), |(words, rest)| (words, Some(format!("{{{rest}"))));
        let mut words = words.split(' ').map(str::to_string).chain(braced);
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        namespace.host(&mut command).unwrap();
        assert!(command.status().unwrap().success(), "{line}");
    }
}

/// Arguments that make a device again, with its present index if `is_same`.
fn index_words(namespace: &Namespace, device: &str, is_same: bool) -> String {
    let index = namespace.within(|| Ok(if_nametoindex(device)?)).unwrap();
    if is_same { format!(" index {index}") } else { String::new() }
}

/// Switches all offloads of a device off.
fn quiet(namespace: &Namespace, device: &str) {
    let work = || forebay_host::offload::disable_all(device).map_err(std::io::Error::other);
    namespace.within(work).unwrap();
}
