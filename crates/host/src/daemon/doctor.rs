//! Checks of `forebay doctor`: whether this machine and these devices can carry a box, and the kernel
//! an agent, with remedies if they cannot.
//!
//! If a feature can be tried, it is tried, in a network namespace or under a name of its own; nothing
//! that exists is changed.

mod neighbour;
mod offloads;

use std::fs;
use std::io;
use std::process::Command;

use forebay_ebpf::tcp::{Datapath, Options};
use forebay_ebpf::{CLASSIFY, Capture, CaptureOptions};
use ipnet::IpNet;
use serde::Serialize;

use super::attempt;
use super::conditions::{Condition, Devices, Fault, dropped_at};
use super::config::{Config, DatapathKind, Forward, Role};
use super::keys::{self, KeyFileError};
use super::observer::names::look_up;
use crate::agent::features;
use crate::egress;
use crate::ethernet;
use crate::filters::{self, Filter};
use crate::kernel;
use crate::offload;
use crate::port::{Direction, MtuMax, QUEUES_MAX, XdpPort};
use crate::service::privileges;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// A box runs, but worse or with a surprise.
    Warn,
    /// A box does not run.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The checked property.
    pub name: String,
    /// Result of the check.
    pub verdict: Verdict,
    /// The state that was found.
    pub found: String,
    /// Remedy; empty if none is needed.
    pub fix: String,
}

impl Check {
    fn ok(name: &str, found: impl Into<String>) -> Self {
        let (found, fix) = (found.into(), String::new());
        Self { name: name.into(), verdict: Verdict::Ok, found, fix }
    }

    fn warn(name: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        let (found, fix) = (found.into(), fix.into());
        Self { name: name.into(), verdict: Verdict::Warn, found, fix }
    }

    fn fail(name: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, ..Self::warn(name, found, fix) }
    }
}

/// Examines the machine, and the devices and files that boxes would use.
pub fn examine(devices: &[String], boxes: &[Config]) -> Vec<Check> {
    let settled: Vec<_> = boxes.iter().map(attempt::settled).collect();
    let boxes = boxes.iter().zip(&settled);
    let boxes =
        boxes.map(|(config, (datapath, _))| Config { datapath: *datapath, ..config.clone() });
    let boxes: &[Config] = &boxes.collect::<Vec<_>>();
    let mut checks = vec![
        kernel(),
        privilege(),
        datapath(),
        realtime(),
        clock_source(),
        jit(),
        bridge_filter(),
        tcp_algorithms(),
        agent(),
        tool("ip", "iproute2", "-V"),
    ];
    // Without privileges nothing can be tried, as the check of the capabilities says already.
    let whys =
        settled.into_iter().filter_map(|(_, why)| why.filter(|_| privileges::check().is_ok()));
    checks.extend(whys.map(|why| Check::ok("box.datapath", format!("\"auto\" is {why}"))));
    let configured = boxes.iter().flat_map(|config| {
        checks.extend(config.bundles.iter().map(key_file));
        checks.extend(config.bundles.iter().filter_map(peer_name));
        config.lan.iter().chain([&config.wan])
    });
    let mut names: Vec<String> = devices.iter().chain(configured).cloned().collect();
    names.sort();
    names.dedup();
    for device in &names {
        let place = boxes.iter().find_map(|config| place_of(device, config));
        checks.extend(examine_device(device, place.unwrap_or(DeviceUse::Unknown)));
    }
    let in_kernel = boxes.iter().filter(|config| config.datapath == DatapathKind::Kernel);
    checks.extend(in_kernel.flat_map(|config| [classes(config), way_out(&config.wan)]));
    for config in boxes {
        let devices = Devices::of(config);
        checks.extend(conditions_of(&devices));
        checks.extend(routing(&devices));
        checks.extend(reverse_path(config));
    }
    checks
}

/// Notes about routes that packets of bundles may take. A box runs in spite of them.
fn routing(devices: &Devices) -> Vec<Check> {
    let found = devices.routing().unwrap_or_default();
    let fix = "packets through other devices belong to no bundle: see `ip route`, `ip rule`, or narrow \
         `to`";
    found.into_iter().map(|it| Check::warn("routing", it, fix)).collect()
}

/// Packets of bundles that the kernel drops before a box sees them.
fn reverse_path(config: &Config) -> Vec<Check> {
    let lan = config.lan.as_deref().filter(|_| config.forward == Forward::Route);
    let Some(lan) = lan else { return Vec::new() };
    let from: Vec<IpNet> = config.bundles.iter().flat_map(|bundle| bundle.from.clone()).collect();
    let fix = format!(
        "sysctl -w net.ipv4.conf.{lan}.rp_filter=2, or add a route back through \
                       {lan}"
    );
    let found = dropped_at(lan, &from).unwrap_or_default().into_iter();
    let found = found.map(|it| {
        format!(
            "{lan} drops packets whose route back uses another device \
                                (rp_filter = 1): {it}"
        )
    });
    found.map(|it| Check::warn("reverse path", it, fix.clone())).collect()
}

/// Use of the device by a box; `None`: the box does not use it.
fn place_of(device: &str, config: &Config) -> Option<DeviceUse> {
    if config.lan.as_deref() == Some(device) {
        return Some(match (config.datapath.is_in_kernel(), config.forward) {
            (true, Forward::Bridge) => DeviceUse::Bridged,
            (_, Forward::Route) => DeviceUse::Routed,
            (false, Forward::Bridge) => DeviceUse::Lan,
        });
    }
    let place = match config.role {
        Role::Sendbox if config.forward == Forward::Route => DeviceUse::Routed,
        Role::Sendbox if config.datapath.is_in_kernel() => DeviceUse::Bridged,
        Role::Sendbox => DeviceUse::Wan,
        Role::Receivebox => DeviceUse::Watched,
    };
    (config.wan == device).then_some(place)
}

/// All conditions of a box on its devices, at the start and while it runs.
fn conditions_of(devices: &Devices) -> Vec<Check> {
    let check = |(condition, held): (&Condition, Result<String, Fault>)| {
        let name = format!("{}: {}", devices.role, condition.name);
        match held {
            Ok(found) => Check::ok(&name, found),
            Err(Fault { found, fix }) => {
                Check::fail(&name, format!("{found}: {}", condition.reason), fix)
            }
        }
    };
    devices.examine().into_iter().map(check).collect()
}

/// Whether a box can run: no check failed.
pub fn is_fit(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.verdict != Verdict::Fail)
}

/// The oldest kernel with the BPF features of the datapath.
const KERNEL_MIN: (u32, u32) = (5, 15);

fn kernel() -> Check {
    let release = kernel::release();
    let found = format!("Linux {release}");
    if kernel::version(&release) >= KERNEL_MIN {
        return Check::ok("kernel", found);
    }
    let (major, minor) = KERNEL_MIN;
    Check::fail("kernel", found, format!("install Linux {major}.{minor} or later"))
}

fn privilege() -> Check {
    match privileges::check() {
        Ok(()) => Check::ok("capabilities", format!("held: {}", privileges::needed())),
        Err(error) => Check::fail("capabilities", error.to_string(), "run it with sudo"),
    }
}

/// Loads the capture program, attaches it and binds an AF_XDP socket.
fn datapath() -> Check {
    /// Name of the check.
    const NAME: &str = "XDP and AF_XDP";
    let outcome = attempt::apart(|| {
        // The loopback's frames are longer than AF_XDP can carry.
        run("ip", &["link", "set", "dev", "lo", "mtu", "1500", "up"])?;
        let mut port = XdpPort::open("lo", Direction::Both)?;
        let capture = Capture::attach(port.ifindex(), CaptureOptions::All, port.is_in_pieces())?;
        port.take_from(&capture)?;
        port.hold(capture);
        Ok(())
    });
    match outcome {
        Ok(()) => Check::ok(NAME, "a program was attached and a socket bound on a trial device"),
        Err(error) => Check::fail(
            NAME,
            error,
            "a sendbox needs root, CONFIG_XDP_SOCKETS and bpf(2); a container may forbid them",
        ),
    }
}

/// Requirements of a sendbox that keeps packets in the kernel.
fn classes(config: &Config) -> Check {
    /// Name of the check.
    const NAME: &str = "HTB and tcx";
    match attempt::classes(config.kernel_qdisc) {
        Ok(()) => Check::ok(NAME, "the programs could be attached, and the qdiscs exist"),
        Err(error) => {
            let fix = "box.datapath = \"kernel\" needs root, Linux 6.12, sch_htb, sch_tbf and the \
                       qdisc of box.kernel_qdisc; or use \"user\"";
            Check::fail(NAME, error.to_string(), fix)
        }
    }
}

/// Whether a box that keeps packets in the kernel sees all its packets, if it runs.
fn way_out(wan: &str) -> Check {
    let name = format!("{wan}: tcx");
    match filters::ahead_of_classes(wan) {
        Ok(None) => Check::ok(&name, format!("no programs in front of {CLASSIFY}")),
        Ok(Some(Filter { found, fix })) => Check::warn(&name, found, fix),
        Err(error) => Check::warn(
            &name,
            error.to_string(),
            format!("look at `bpftool net show dev {wan}`, as root"),
        ),
    }
}

fn realtime() -> Check {
    let is_allowed = std::thread::spawn(privileges::go_realtime).join().unwrap_or(false);
    if is_allowed {
        return Check::ok("SCHED_FIFO", "allowed");
    }
    let fix = "grant CAP_SYS_NICE, and set sched_rt_runtime_us if cgroups limit it";
    Check::warn("SCHED_FIFO", "not allowed: packets may leave some ms late under load", fix)
}

fn clock_source() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = read(path).unwrap_or_default();
    // The kernel reads these through a device, at about a microsecond each.
    if ["hpet", "acpi_pm"].contains(&source.as_str()) {
        let fix = "boot with a stable TSC, or give the virtual machine a paravirtual clock";
        return Check::warn("clock", format!("{source}: slow to read"), fix);
    }
    Check::ok("clock", source)
}

fn jit() -> Check {
    match read("/proc/sys/net/core/bpf_jit_enable").as_deref() {
        Some("0") => Check::warn(
            "BPF JIT",
            "off: each packet costs more",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(_) => Check::ok("BPF JIT", "on"),
        None => Check::ok("BPF JIT", "this kernel does not report it"),
    }
}

/// Bridged packets that the sendbox does not take must not pass a packet filter meant for routing.
fn bridge_filter() -> Check {
    let value = read("/proc/sys/net/bridge/bridge-nf-call-iptables");
    if value.as_deref() == Some("1") {
        return Check::warn(
            "bridge filter",
            "iptables sees bridged packets, but not packets of bundles",
            "sysctl -w net.bridge.bridge-nf-call-iptables=0, unless you want it",
        );
    }
    Check::ok("bridge filter", "iptables does not see bridged packets")
}

fn tcp_algorithms() -> Check {
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    if available.split_whitespace().any(|name| name == "cubic") {
        return Check::ok("TCP algorithms", available);
    }
    let fix = "modprobe tcp_cubic; only demo and experiments need it";
    Check::warn("TCP algorithms", format!("{available}: no cubic"), fix)
}

/// Registers a congestion control under a name of its own, and removes it. No box needs that, so an
/// error is no failure.
fn agent() -> Check {
    /// Name of the check.
    const NAME: &str = "agent";
    if let Err(missing) = features::check() {
        let fix = "only forebay agent needs it: docs/operate/agent.md lists the kernels";
        return Check::warn(NAME, missing.to_string(), fix);
    }
    if let Err(error) = privileges::check_agent() {
        return Check::warn(
            NAME,
            error.to_string(),
            "run it with sudo; only forebay agent needs it",
        );
    }
    // Two doctors at the same time must not use the same name.
    let name = format!("fb_doc{}", std::process::id());
    match Datapath::register(&Options { flows: 16, ..Options::named(&name) }) {
        Ok(_) => Check::ok(NAME, "a congestion control could be registered"),
        Err(error) => {
            let fix = "only forebay agent needs it; a container or lockdown may forbid it";
            Check::warn(NAME, error.to_string(), fix)
        }
    }
}

fn tool(name: &str, package: &str, version: &str) -> Check {
    match run(name, &[version]) {
        Ok(text) => Check::ok(name, text.lines().next().unwrap_or_default()),
        Err(_) => Check::warn(
            name,
            "not found: demo and experiments need it",
            format!("apt install {package}"),
        ),
    }
}

/// Whether the name of a bundle's peer resolves here; `None`: the file gives an address.
fn peer_name(bundle: &super::BundleConfig) -> Option<Check> {
    let name = bundle.peer.name()?;
    let (label, found) = (format!("peer of bundle {}", bundle.name), look_up(name));
    let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
    Some(match found.problem {
        None => Check::ok(&label, format!("{name} is at {}", addresses.join(", "))),
        Some(problem) => {
            let fix =
                format!("`getent ahosts {name}` must print its addresses: see /etc/resolv.conf");
            Check::warn(&label, format!("{name}: {problem}"), fix)
        }
    })
}

fn key_file(bundle: &super::BundleConfig) -> Check {
    let name = format!("key of bundle {}", bundle.name);
    let path = bundle.key_file.display();
    match keys::load(&bundle.key_file) {
        Ok(keys) => Check::ok(&name, format!("{path}: {} valid", keys.keys().count())),
        Err(KeyFileError::Absent { .. }) => {
            let fix = format!(
                "run `forebay keygen {path}` at one of the two boxes, and copy the file to \
                         the other"
            );
            Check::fail(&name, format!("{path} does not exist yet"), fix)
        }
        Err(error) => Check::fail(
            &name,
            error.to_string(),
            "repair the file, or make a new key for both \
                                                   boxes",
        ),
    }
}

/// Use of a device by a box.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceUse {
    /// Receive from it.
    Lan,
    /// Send through it.
    Wan,
    /// Watch incoming packets, as a receivebox does.
    Watched,
    /// Have the kernel forward between it and another device.
    Bridged,
    /// Have the kernel route through it.
    Routed,
    /// No use, or no configuration says which.
    Unknown,
}

fn examine_device(device: &str, place: DeviceUse) -> Vec<Check> {
    let name = |what: &str| format!("{device}: {what}");
    let link = match ip_json(&["link", "show", "dev", device]) {
        Ok(link) => link,
        Err(_) => {
            let fix = "`ip link` lists the devices of this network namespace";
            return vec![Check::fail(&name("device"), "there is no such device", fix)];
        }
    };
    let may_be_bare = matches!(place, DeviceUse::Routed | DeviceUse::Watched);
    let check = if may_be_bare { ethernet::check_or_bare } else { ethernet::check };
    if let Err(error) = check(device) {
        return vec![Check::fail(&name("kind"), error.found(), ethernet::fix())];
    }
    let is_bare = ethernet::is_bare(device).unwrap_or_default();
    let mut checks = vec![offloads::examine(&name("offloads"), device, place)];
    if !is_bare && !matches!(place, DeviceUse::Bridged | DeviceUse::Routed) {
        checks.extend(of_sockets(device, place, &link));
    }
    // For tunnels the kernel knows no more.
    let up = if may_be_bare { &["UP", "UNKNOWN"][..] } else { &["UP"] };
    let is_up = link.get("operstate").and_then(|it| it.as_str()).is_some_and(|it| up.contains(&it));
    checks.push(if is_up {
        Check::ok(&name("carrier"), "up")
    } else {
        Check::warn(&name("carrier"), "not up", format!("ip link set dev {device} up"))
    });
    checks
}

/// Checks that only matter if packets leave the kernel, or are seen before it has them.
fn of_sockets(device: &str, place: DeviceUse, link: &serde_json::Value) -> Vec<Check> {
    let name = |what: &str| format!("{device}: {what}");
    let mut checks = vec![frame_size(&name("MTU"), device)];
    checks.extend(offloads::below(&name("offloads below"), device, place));
    checks.extend(neighbour::checksums(&name("neighbour"), device, place, link));
    checks.push(program(&name("XDP"), device, link));
    checks.push(queues(&name("receive queues"), device, place));
    checks.push(qdisc(&name("qdisc"), device, place));
    checks
}

/// Names of a sendbox's and a receivebox's program in the kernel.
const PROGRAMS: [&str; 2] = ["capture", "sampler"];

fn program(name: &str, device: &str, link: &serde_json::Value) -> Check {
    let Some(program) = link.pointer("/xdp/prog") else {
        return Check::ok(name, "no program attached");
    };
    let text = |key: &str| program.get(key).map_or_else(|| "?".into(), ToString::to_string);
    let found = format!("a program with id {} is attached", text("id"));
    let called = program.get("name").and_then(|name| name.as_str());
    if called.is_some_and(|called| PROGRAMS.contains(&called)) {
        return Check::ok(name, format!("{found}, as a running box has it"));
    }
    Check::fail(name, found, format!("stop its owner, or `ip link set dev {device} xdp off`"))
}

/// A sendbox reads at most [`QUEUES_MAX`] queues of its LAN: frames in further queues would bypass it.
fn queues(name: &str, device: &str, place: DeviceUse) -> Check {
    /// Most receive queues that a sendbox reads.
    const MAX: u32 = QUEUES_MAX;
    match offload::receive_queues(device) {
        Ok(count) if count <= MAX || place == DeviceUse::Wan => Check::ok(name, count.to_string()),
        Ok(count) => {
            let fix = format!("ethtool -L {device} combined {MAX}, or `rx {MAX}`: see ethtool -l");
            if place == DeviceUse::Lan {
                return Check::fail(name, count.to_string(), fix);
            }
            Check::warn(name, count.to_string(), format!("as the LAN of a sendbox: {fix}"))
        }
        Err(error) => Check::warn(name, error.to_string(), "look at `ethtool -l`"),
    }
}

/// A foreign qdisc is an obstacle on the WAN of a sendbox, and matters on no other device.
fn qdisc(name: &str, device: &str, place: DeviceUse) -> Check {
    match egress::root_qdisc(device) {
        Ok(None) => Check::ok(name, "none"),
        Ok(Some(qdisc)) if !qdisc.is_foreign() => Check::ok(name, qdisc.kind),
        Ok(Some(qdisc)) => {
            let found = format!("{} was configured by another program or user", qdisc.kind);
            let fix = format!("{}, or shape elsewhere", egress::fix(device));
            if place == DeviceUse::Wan {
                return Check::fail(name, found, fix);
            }
            Check::warn(name, found, format!("where it is the WAN of a sendbox: {fix}"))
        }
        Err(error) => Check::fail(name, error.to_string(), "look at `tc qdisc`"),
    }
}

fn frame_size(name: &str, device: &str) -> Check {
    let max = MtuMax::here();
    match offload::mtu(device) {
        Ok(mtu) if mtu <= max.bytes => Check::ok(name, mtu.to_string()),
        Ok(mtu) => Check::fail(
            name,
            format!("{mtu}: AF_XDP carries at most {max}"),
            format!("ip link set dev {device} mtu {}", max.bytes),
        ),
        Err(error) => Check::fail(name, error.to_string(), "look at `ip link`"),
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn run(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{program}: {}", message.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The first object that `ip -json` prints.
fn ip_json(arguments: &[&str]) -> io::Result<serde_json::Value> {
    let text = run("ip", &[&["-json"], arguments].concat())?;
    let mut list: Vec<serde_json::Value> = serde_json::from_str(&text)?;
    list.pop().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use forebay_skips::{Need, skip_without};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn missing_device_fails_the_whole_check() {
        let checks = examine(&["no-such-device".into()], &[]);
        let last = checks.last().unwrap();
        assert_eq!((last.name.as_str(), last.verdict), ("no-such-device: device", Verdict::Fail));
        assert!(!is_fit(&checks));
    }

    #[test]
    fn each_device_fault_comes_with_its_fix() {
        if skip_without(Need::Root) {
            return;
        }
        let checks = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
            ip("link add left numrxqueues 17 numtxqueues 17 type veth peer name right");
            ip("link set dev left mtu 16000");
            run("tc", &["qdisc", "add", "dev", "left", "root", "pfifo"]).unwrap();
            let mut checks = examine_device("left", DeviceUse::Wan);
            let devices = Devices::bridged("left", "right", DatapathKind::User);
            checks.extend(conditions_of(&devices));
            checks.push(queues("LAN", "left", DeviceUse::Lan));
            checks.push(queues("none", "left", DeviceUse::Unknown));
            checks.push(offloads::examine("watched", "left", DeviceUse::Watched));
            ip("link add br0 type bridge");
            checks.push(offloads::examine("merged", "br0", DeviceUse::Watched));
            ip("link set dev left master br0");
            ip("link set dev right master br0");
            checks.extend(conditions_of(&devices));
            run("ethtool", &["-K", "left", "rxvlan", "off"]).unwrap();
            checks.push(offloads::examine("quiet", "left", DeviceUse::Watched));
            run("ethtool", &["-K", "left", "gro", "on"]).unwrap();
            checks.extend(examine_device("br0", DeviceUse::Watched));
            checks.extend(offloads::below("sent", "br0", DeviceUse::Wan));
            checks.extend(offloads::below("whole", "right", DeviceUse::Watched));
            ip("tuntap add dev tun0 mode tun");
            checks.extend(examine_device("tun0", DeviceUse::Wan));
            checks
        });
        let checks = checks.join().unwrap();
        let check = |what: &str| checks.iter().find(|check| check.name.ends_with(what)).unwrap();
        let most = format!("mtu {}", MtuMax::here().bytes);
        assert!(check("left: MTU").fix.ends_with(&most), "{checks:?}");
        assert_eq!(check("sendbox: MTU").fix, "ip link set dev left mtu 1500");
        assert_eq!(check("receive queues").verdict, Verdict::Ok, "{checks:?}");
        assert_eq!(check("LAN").verdict, Verdict::Fail, "{checks:?}");
        assert!(check("LAN").fix.starts_with("ethtool -L left combined 16"), "{checks:?}");
        assert_eq!(check("none").verdict, Verdict::Warn, "{checks:?}");
        assert!(check("offloads").fix.starts_with("ethtool -K left tso off"), "{checks:?}");
        assert_eq!(check("watched").fix, "ethtool -K left rxvlan off", "{checks:?}");
        assert_eq!(check("merged").verdict, Verdict::Warn, "{checks:?}");
        assert!(check("merged").fix.contains("ethtool -K br0 gro off"), "{checks:?}");
        assert_eq!(check("quiet").verdict, Verdict::Ok, "{checks:?}");
        let below = check("br0: offloads below");
        assert_eq!(below.verdict, Verdict::Warn, "{checks:?}");
        assert!(below.fix.starts_with("ethtool -K left gro off lro off"), "{checks:?}");
        assert!(!checks.iter().any(|check| ["sent", "whole"].contains(&&check.name[..])));
        assert!(check("tun0: kind").found.contains("not Ethernet frames"), "{checks:?}");
        assert_eq!(check("XDP").verdict, Verdict::Ok);
        assert_eq!(check("qdisc").verdict, Verdict::Fail, "{checks:?}");
        assert!(check("qdisc").fix.starts_with("tc qdisc del dev left root"), "{checks:?}");
        assert!(check("sendbox: bridge").fix.ends_with("dev right master br0"), "{checks:?}");
        assert!(check("carrier").fix.contains("dev left up"), "{checks:?}");
    }

    #[test]
    fn one_nic_machines_are_offered_no_bridge() {
        if skip_without(Need::Root) {
            return;
        }
        let outcome = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
            ip("link add eth0 type veth peer name fabric");
            ip("link set dev eth0 up");
            ip("link set dev fabric up");
            ip("address add 10.1.1.2/32 dev eth0");
            let bridge = |peers: &[&str]| {
                let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
                let devices = Devices::bridged("fabric", "eth0", DatapathKind::User);
                let devices = Devices { peers, ..devices };
                let checks = conditions_of(&devices);
                let check = checks.into_iter().find(|check| check.name.ends_with("bridge"));
                check.unwrap().fix
            };
            let is_withheld = |fix: &str| !fix.contains("ip link") && !fix.contains("master");
            let joins = bridge(&["10.1.2.2"]);
            assert!(joins.contains("ip link set dev eth0 master br0"), "{joins}");
            ip("route add 10.0.0.1 dev eth0");
            ip("route add 10.1.2.0/24 via 10.0.0.1");
            let peer = bridge(&["10.1.2.2"]);
            assert!(is_withheld(&peer) && peer.contains("to the peer 10.1.2.2"), "{peer}");
            ip("route add default via 10.0.0.1");
            let default = bridge(&[]);
            assert!(is_withheld(&default) && default.contains("default route"), "{default}");
            assert!(default.contains("box.forward = \"route\""), "{default}");
        });
        outcome.join().unwrap();
    }

    #[test]
    fn devices_of_a_router_need_no_ethernet() {
        if skip_without(Need::Root) {
            return;
        }
        let checks = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let ip = |line: &str| run("ip", &line.split(' ').collect::<Vec<_>>()).unwrap();
            ip("tuntap add dev tun0 mode tun");
            [DeviceUse::Routed, DeviceUse::Bridged].map(|place| examine_device("tun0", place))
        });
        let [routed, bridged] = checks.join().unwrap();
        assert!(is_fit(&routed) && !is_fit(&bridged), "{routed:?} {bridged:?}");
    }

    #[test]
    fn program_of_a_running_box_is_recognised() {
        let link = |name: &str| serde_json::json!({"xdp": {"prog": {"id": 7, "name": name}}});
        assert_eq!(program("XDP", "eth0", &link("capture")).verdict, Verdict::Ok);
        let other = program("XDP", "eth0", &link("xdp_dispatcher"));
        assert_eq!((other.verdict, other.found.contains("id 7")), (Verdict::Fail, true));
        assert_eq!(program("XDP", "eth0", &serde_json::json!({})).verdict, Verdict::Ok);
    }

    #[test]
    fn an_agent_is_tried_and_leaves_no_name() {
        if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
            return;
        }
        assert_eq!(agent().verdict, Verdict::Ok, "{:?}", agent());
        let name = format!("fb_doc{}", std::process::id());
        let names = || read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        // A child that another test starts holds the link's descriptor until it executes its program.
        let end = Instant::now() + Duration::from_secs(5);
        while names().contains(&name) && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(!names().contains(&name), "{}", names());
    }

    #[test]
    fn the_datapath_is_tried_and_works_here() {
        if skip_without(Need::Root) {
            return;
        }
        assert_eq!(datapath().verdict, Verdict::Ok, "{:?}", datapath());
    }
}
