//! Namespaces, devices and addresses of all pairs of sites.
//!
//! ```text
//!  left hosts          left box           emulator           right box         right hosts
//!  ┌────────┐       ┌────────────┐      ┌───────────┐      ┌────────────┐       ┌────────┐
//!  │ eth0 ──┼───────┼─ lan   wan ┼──────┼─ left0    │      │ wan   lan ─┼───────┼── eth0 │
//!  │  .1.1  │       │  └ br0 ┘   │      │   right0 ─┼──────┼─ └ br0 ┘   │       │  .2.1  │
//!  └────────┘       │    .3.1    │      │  left1 .. │      │    .3.2    │       └────────┘
//!                   └────────────┘      └───────────┘      └────────────┘
//! ```
//! A pair is one layer-2 segment, `10.<pair + 1>.0.0/16`, with or without a bundle. The bridges carry the
//! traffic of every arm, so arms differ in their daemons only.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::TestbedError;
use super::fabric;
use super::namespace::Namespace;
use super::processors::Processors;
use forebay_core::record::SUPER_PACKETS;
use forebay_host::offload::{self, Offload, OffloadError};

/// Most pairs of sites: the second byte of their addresses runs from 1 to 254.
pub const PAIRS_MAX: usize = 254;

/// Prefix length of a pair's segment.
const SEGMENT_BITS: u8 = 16;

/// Settings of every namespace, as paths below `/proc/sys` and values.
const SETTINGS: [(&str, &str); 6] = [
    // No neighbour discovery or router solicitation on the links under test. The first line covers existing
    // devices, the second later ones.
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    // The bridges must not call the packet filter.
    ("net/bridge/bridge-nf-call-iptables", "0"),
    ("net/bridge/bridge-nf-call-arptables", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// Settings of the hosts.
pub(crate) const HOST_SETTINGS: [(&str, &str); 10] = [
    // A connection must not inherit path metrics from an earlier one.
    ("net/ipv4/tcp_no_metrics_save", "1"),
    // Persistent connections restart from the initial window, like new ones.
    ("net/ipv4/tcp_slow_start_after_idle", "1"),
    ("net/ipv4/tcp_ecn", "0"),
    // A connection meant to be ECN-capable stays so after a lost SYN (RFC 3168, 6.1.1.1).
    ("net/ipv4/tcp_ecn_fallback", "0"),
    ("net/ipv4/tcp_sack", "1"),
    ("net/ipv4/tcp_timestamps", "1"),
    ("net/ipv4/tcp_window_scaling", "1"),
    // Clients close first. The port of an ended connection serves the next one after a second instead of a
    // minute. Otherwise 470 connections a second would use up the 28,000 ephemeral ports.
    ("net/ipv4/tcp_tw_reuse", "1"),
    // Minimum, initial and maximum bytes. The maximum must hold the path and a queue of 1200 packets. At 2 to
    // 3 bytes of kernel memory per byte that queue takes 12 MB; 32 MB leave the rest to the path.
    ("net/ipv4/tcp_rmem", "4096\t131072\t33554432"),
    ("net/ipv4/tcp_wmem", "4096\t131072\t33554432"),
];

/// Connections request and accept ECN (RFC 3168); 3 would request the accurate counting of RFC 9768.
const CLASSIC_ECN: (&str, &str) = ("net/ipv4/tcp_ecn", "1");

/// Initial size of a receive buffer (bytes), as in [`HOST_SETTINGS`].
const RECEIVE_BYTES: u64 = 131_072;

/// A full Ethernet frame (bytes, without FCS).
const FRAME_BYTES: u64 = 1514;

/// Offloads of hosts that send super-packets, and of their box's port, in an order in which the kernel
/// accepts them.
const WHOLE: [Offload; 4] = [Offload::TxChecksum, Offload::Gso, Offload::Tso, Offload::Gro];

/// Mask (hexadecimal) of the processors that receive packets from devices made after it is set.
pub(crate) const STEERING: &str = "net/core/rps_default_mask";

/// One endpoint of a pair's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The sources of forward traffic.
    LeftHosts,
    /// The destinations of forward traffic.
    RightHosts,
    /// The box on the left.
    LeftBox,
    /// The box on the right.
    RightBox,
}

impl Site {
    /// All sites of a pair.
    const ALL: [Self; 4] = [Self::LeftHosts, Self::RightHosts, Self::LeftBox, Self::RightBox];

    /// Address of the site in pair `pair`.
    pub fn address(self, pair: usize) -> Ipv4Addr {
        let [third, fourth] = match self {
            Self::LeftHosts => [1, 1],
            Self::RightHosts => [2, 1],
            Self::LeftBox => [3, 1],
            Self::RightBox => [3, 2],
        };
        Ipv4Addr::new(10, second_byte(pair), third, fourth)
    }

    /// The site's layer-2 address: locally administered, readable in a capture.
    pub fn mac_bytes(self, pair: usize) -> [u8; 6] {
        let [first, second, third, fourth] = self.address(pair).octets();
        [0x02, 0, first, second, third, fourth]
    }

    pub(crate) fn mac(self, pair: usize) -> String {
        self.mac_bytes(pair).map(|byte| format!("{byte:02x}")).join(":")
    }

    /// The prefix of the hosts on this side.
    pub fn host_prefix(self, pair: usize) -> String {
        let third = if matches!(self, Self::LeftHosts | Self::LeftBox) { 1 } else { 2 };
        format!("10.{}.{third}.0/24", second_byte(pair))
    }
}

pub(crate) fn second_byte(pair: usize) -> u8 {
    u8::try_from(pair + 1).expect("pairs are checked against PAIRS_MAX")
}

/// The namespaces of one run.
#[derive(Debug)]
pub struct Topology {
    /// The emulator's, shared by all pairs.
    pub emulator: Namespace,
    /// Namespaces of each pair of sites.
    pub pairs: Vec<PairSites>,
    /// Pairs with a second way into the site on the right.
    beside: Vec<usize>,
    /// Hosts that send super-packets to their box.
    whole: Vec<(usize, Site)>,
    /// The namespace between hosts, gateway and emulator, if one gateway routes for all sites on the left.
    fabric: Option<Namespace>,
}

/// The namespaces of one pair of sites.
#[derive(Debug)]
pub struct PairSites {
    /// Hosts on the left.
    pub left_hosts: Namespace,
    /// Box on the left: `lan`, `wan`, `br0`.
    pub left_box: Namespace,
    /// Box on the right.
    pub right_box: Namespace,
    /// Hosts on the right.
    pub right_hosts: Namespace,
}

/// The emulator's port towards the left box of `pair`.
pub fn left_port(pair: usize) -> String {
    format!("left{pair}")
}

/// The emulator's port towards the right box of `pair`.
pub fn right_port(pair: usize) -> String {
    format!("right{pair}")
}

/// The emulator's second port towards the right box of `pair`, if the pair has one.
pub fn beside_port(pair: usize) -> String {
    format!("beside{pair}")
}

impl Topology {
    /// Builds everything for `pairs` pairs of sites; dropping it removes everything. With `processors`, each
    /// part of the work has its own processors.
    pub fn build(pairs: usize, processors: Option<&Processors>) -> Result<Self, TestbedError> {
        if pairs == 0 || pairs > PAIRS_MAX {
            return Err(TestbedError::Pairs { pairs });
        }
        let emulator = plain("emulator", &[])?;
        let mut built = Vec::new();
        for pair in 0..pairs {
            built.push(PairSites::build(pair, &emulator, processors)?);
        }
        let ports = (0..pairs).flat_map(|pair| [left_port(pair), right_port(pair)]);
        let up = ports.map(|port| format!("link set dev {port} up\n")).collect::<String>();
        ip("emulator", &emulator, &up)?;
        let (beside, whole) = (Vec::new(), Vec::new());
        let topology = Self { emulator, pairs: built, beside, whole, fabric: None };
        topology.set_offloads()?;
        Ok(topology)
    }

    /// Makes a second way from the emulator into the right site of `pair`: device `wan2`. Like `wan`, it is a
    /// port of the box's bridge, but the bridge sends nothing out through it.
    pub fn add_way_beside(&mut self, pair: usize) -> Result<(), TestbedError> {
        let port = beside_port(pair);
        let lines = format!(
            "link add wan2 type veth peer name {port} netns {}\n\
             link set dev wan2 master br0\n\
             link set dev wan2 type bridge_slave learning off flood off mcast_flood off \
             bcast_flood off\n\
             link set dev wan2 up\n",
            self.emulator.path().display()
        );
        ip("right box", &self.pairs[pair].right_box, &lines)?;
        ip("emulator", &self.emulator, &format!("link set dev {port} up\n"))?;
        self.beside.push(pair);
        self.set_offloads()
    }

    /// Lets the hosts of `pair` at `site` send super-packets to their box. The box segments them behind the
    /// queue of `wan`, so the emulator still sees single packets.
    pub fn hand_over_super_packets(&mut self, pair: usize, site: Site) -> Result<(), TestbedError> {
        self.whole.push((pair, site));
        self.set_offloads()
    }

    /// Makes one gateway with one NIC route the traffic of all sites on the left, instead of their boxes; see
    /// `fabric`.
    pub fn route(&mut self, processors: Option<&Processors>) -> Result<(), TestbedError> {
        self.fabric = Some(fabric::weave(&mut self.pairs, processors)?);
        self.set_offloads()
    }

    /// Makes new TCP connections ECN-capable; fails if this kernel cannot.
    pub fn use_ecn(&self) -> Result<(), TestbedError> {
        let (key, value) = CLASSIC_ECN;
        let hosts = self.pairs.iter().flat_map(|pair| {
            [("left hosts", &pair.left_hosts), ("right hosts", &pair.right_hosts)]
        });
        for (place, hosts) in hosts {
            let written = hosts.within(|| {
                set(key, value)?;
                // `set` ignores settings that a kernel does not have.
                get(key).map(drop)
            });
            written.map_err(step("switch ECN on", place))?;
        }
        Ok(())
    }

    /// Makes new TCP connections of `pair` start with `segments` in flight in the direction that sends at
    /// `from`. The route sets this (initcwnd of ip-route(8)), since no socket option exists. The buffers at
    /// `to` announce enough window from the start.
    pub fn set_initial_window(
        &self,
        pair: usize,
        [from, to]: [Site; 2],
        segments: u32,
    ) -> Result<(), TestbedError> {
        let (place, hosts) = self.pairs[pair].at(from);
        let route = format!("route add {}/32 dev eth0 initcwnd {segments}\n", to.address(pair));
        ip(place, hosts, &route)?;
        // The kernel announces half of a buffer (tcp_win_from_space in include/net/tcp.h).
        let bytes = (2 * FRAME_BYTES * u64::from(segments)).max(RECEIVE_BYTES);
        let (place, hosts) = self.pairs[pair].at(to);
        // The third value, the maximum, stays as it is.
        hosts
            .within(|| set("net/ipv4/tcp_rmem", &format!("4096\t{bytes}")))
            .map_err(step("widen receive buffers", place))
    }

    /// The settings of hosts and boxes, read back from the left side of the first pair: all pairs have the
    /// same.
    pub fn settings(&self) -> Result<Vec<String>, TestbedError> {
        let PairSites { left_hosts, left_box, .. } = &self.pairs[0];
        let hosts = || HOST_SETTINGS.iter().map(|(key, _)| get(key)).collect::<io::Result<_>>();
        let mut settings: Vec<String> =
            left_hosts.within(hosts).map_err(step("read settings", "left hosts"))?;
        // Kernels before 6.3 lack this setting.
        let steering = left_box.within(|| Ok(get(STEERING).ok()));
        settings.extend(steering.map_err(step("read settings", "left box"))?);
        Ok(settings)
    }

    /// Makes the removed cable between the hosts of `pair` and their box again: new devices with the same
    /// names.
    pub fn make_lan(&self, pair: usize, right: bool) -> Result<(), TestbedError> {
        let sites = &self.pairs[pair];
        let [place, hosts] = match right {
            false => [Site::LeftBox, Site::LeftHosts],
            true => [Site::RightBox, Site::RightHosts],
        };
        let (box_place, namespace) = sites.at(place);
        let (hosts_place, host_namespace) = sites.at(hosts);
        ip(box_place, namespace, &lan_batch(host_namespace))?;
        ip(hosts_place, host_namespace, &hosts_batch(pair, hosts))?;
        self.set_offloads()
    }

    /// Switches off all offloads except on devices that send super-packets. Call it again after programs were
    /// attached: attaching one to a veth may switch GRO on (`veth_enable_xdp` in drivers/net/veth.c).
    pub fn set_offloads(&self) -> Result<(), TestbedError> {
        self.devices().iter().try_for_each(Device::set_offloads)
    }

    /// Offloads of all devices, read back: `device: feature=off ..`. Fails if an offload is on at a device
    /// that must have none.
    pub fn offloads(&self) -> Result<Vec<String>, TestbedError> {
        self.devices().iter().map(Device::offloads).collect()
    }

    fn devices(&self) -> Vec<Device<'_>> {
        let mut devices = Vec::new();
        for (pair, sites) in self.pairs.iter().enumerate() {
            let mut add = |place, namespace, name: &str, is_whole| {
                devices.push(Device { pair, place, namespace, name: name.into(), is_whole });
            };
            let PairSites { left_hosts, left_box, right_box, right_hosts } = sites;
            let left = (Site::LeftHosts, ("left hosts", left_hosts), ("left box", left_box));
            let right = (Site::RightHosts, ("right hosts", right_hosts), ("right box", right_box));
            let mut bridged = vec![left, right];
            if let Some(fabric) = &self.fabric {
                bridged.remove(0);
                let is_whole = self.whole.contains(&(pair, Site::LeftHosts));
                add("left hosts", left_hosts, "eth0", is_whole);
                add("fabric", fabric, &fabric::hosts_port(pair), is_whole);
                add("fabric", fabric, &fabric::link_port(pair), false);
                if pair == 0 {
                    add("fabric", fabric, fabric::GATEWAY_PORT, is_whole);
                    add("gateway", left_box, fabric::NIC, is_whole);
                }
            }
            for (site, hosts, middlebox) in bridged {
                let is_whole = self.whole.contains(&(pair, site));
                add(hosts.0, hosts.1, "eth0", is_whole);
                add(middlebox.0, middlebox.1, "lan", is_whole);
                add(middlebox.0, middlebox.1, "wan", false);
                add(middlebox.0, middlebox.1, "br0", false);
            }
            add("emulator", &self.emulator, &left_port(pair), false);
            add("emulator", &self.emulator, &right_port(pair), false);
            if self.beside.contains(&pair) {
                add("right box", right_box, "wan2", false);
                add("emulator", &self.emulator, &beside_port(pair), false);
            }
        }
        devices
    }
}

/// One device of a run.
struct Device<'a> {
    pair: usize,
    place: &'static str,
    namespace: &'a Namespace,
    name: String,
    /// The device sends super-packets.
    is_whole: bool,
}

impl Device<'_> {
    fn set_offloads(&self) -> Result<(), TestbedError> {
        self.within(|| {
            if !self.is_whole {
                return offload::disable_all(&self.name);
            }
            WHOLE.iter().try_for_each(|offload| offload::enable(&self.name, *offload))
        })
    }

    fn offloads(&self) -> Result<String, TestbedError> {
        let Self { pair, place, name, is_whole, .. } = self;
        let mut active = Vec::new();
        self.within(|| {
            if *is_whole {
                active = offload::active(name)?;
                return Ok(());
            }
            offload::check(name)
        })?;
        let state = |offload| if active.contains(&offload) { "on" } else { "off" };
        let states = Offload::ALL.map(|offload| format!(" {offload}={}", state(offload))).concat();
        let what = if *is_whole { format!(", {SUPER_PACKETS}") } else { String::new() };
        Ok(format!("{place} {pair} {name}{what}:{states}"))
    }

    fn within(
        &self,
        work: impl FnOnce() -> Result<(), OffloadError> + Send,
    ) -> Result<(), TestbedError> {
        let done = self.namespace.within(|| Ok(work()));
        let place = self.place;
        done.map_err(step("offloads", place))?
            .map_err(|source| TestbedError::Offload { place, source })
    }
}

impl PairSites {
    /// The namespace of `site`, and its name in errors.
    fn at(&self, site: Site) -> (&'static str, &Namespace) {
        match site {
            Site::LeftHosts => ("left hosts", &self.left_hosts),
            Site::RightHosts => ("right hosts", &self.right_hosts),
            Site::LeftBox => ("left box", &self.left_box),
            Site::RightBox => ("right box", &self.right_box),
        }
    }

    fn build(
        pair: usize,
        emulator: &Namespace,
        processors: Option<&Processors>,
    ) -> Result<Self, TestbedError> {
        let others = processors.map(|processors| (STEERING, processors.others.as_str()));
        let sites = Self {
            left_hosts: plain("left hosts", &HOST_SETTINGS)?,
            left_box: plain("left box", others.as_slice())?,
            right_box: plain("right box", others.as_slice())?,
            right_hosts: plain("right hosts", &HOST_SETTINGS)?,
        };
        let left = (Site::LeftBox, "left box", &sites.left_box, left_port(pair));
        let right = (Site::RightBox, "right box", &sites.right_box, right_port(pair));
        for ((site, place, namespace, port), hosts) in
            [(left, &sites.left_hosts), (right, &sites.right_hosts)]
        {
            ip(place, namespace, &box_batch(pair, site, hosts, emulator, &port))?;
        }
        let left = (Site::LeftHosts, "left hosts", &sites.left_hosts);
        let right = (Site::RightHosts, "right hosts", &sites.right_hosts);
        for (site, place, namespace) in [left, right] {
            ip(place, namespace, &hosts_batch(pair, site))?;
        }
        Ok(sites)
    }
}

/// Lines for `ip -batch` in a box: both cables and the bridge between them.
fn box_batch(
    pair: usize,
    site: Site,
    hosts: &Namespace,
    emulator: &Namespace,
    port: &str,
) -> String {
    let emulator = emulator.path();
    let emulator = emulator.display();
    let (mac, address) = (site.mac(pair), site.address(pair));
    let neighbours = neighbours(pair, site, "br0");
    let lan = lan_batch(hosts);
    format!(
        "link add wan type veth peer name {port} netns {emulator}\n\
         link add br0 address {mac} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         {lan}\
         link set dev wan master br0\n\
         link set dev wan up\n\
         link set dev br0 up\n\
         address add {address}/{SEGMENT_BITS} dev br0\n\
         {neighbours}"
    )
}

/// Lines for `ip -batch` in a box: the cable to the hosts.
fn lan_batch(hosts: &Namespace) -> String {
    let hosts = hosts.path();
    let hosts = hosts.display();
    format!(
        "link add lan type veth peer name eth0 netns {hosts}\n\
         link set dev lan master br0\n\
         link set dev lan up\n"
    )
}

/// Lines for `ip -batch` among the hosts of one side.
fn hosts_batch(pair: usize, site: Site) -> String {
    let (mac, address) = (site.mac(pair), site.address(pair));
    let neighbours = neighbours(pair, site, "eth0");
    format!(
        "link set dev eth0 address {mac}\n\
         link set dev eth0 up\n\
         address add {address}/{SEGMENT_BITS} dev eth0\n\
         {neighbours}"
    )
}

/// Fixed neighbours, so that no address resolution crosses the link during a run.
fn neighbours(pair: usize, site: Site, device: &str) -> String {
    let others = Site::ALL.into_iter().filter(|other| *other != site);
    others
        .map(|other| {
            let (address, mac) = (other.address(pair), other.mac(pair));
            format!("neighbour add {address} lladdr {mac} dev {device} nud permanent\n")
        })
        .collect()
}

/// A namespace with its settings and loopback up.
pub(crate) fn plain(
    place: &'static str,
    settings: &[(&str, &str)],
) -> Result<Namespace, TestbedError> {
    let namespace = Namespace::new().map_err(step("make a namespace", place))?;
    namespace
        .within(|| {
            for (key, value) in SETTINGS.iter().chain(settings) {
                set(key, value)?;
            }
            Ok(())
        })
        .map_err(step("write settings", place))?;
    ip(place, &namespace, "link set dev lo up\n")?;
    Ok(namespace)
}

fn get(key: &str) -> io::Result<String> {
    let value = std::fs::read_to_string(format!("/proc/sys/{key}"))?;
    Ok(format!("{} = {}", key.replace('/', "."), value.trim()))
}

pub(crate) fn set(key: &str, value: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/{key}"), value) {
        // This kernel has no such feature: nothing to switch off.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{key}: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Runs `ip -batch` inside `namespace`.
pub(crate) fn ip(
    place: &'static str,
    namespace: &Namespace,
    batch: &str,
) -> Result<(), TestbedError> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    run(place, namespace, command, batch)
}

/// Runs a tool inside `namespace` with `input` on stdin.
pub(crate) fn run(
    place: &'static str,
    namespace: &Namespace,
    mut command: Command,
    input: &str,
) -> Result<(), TestbedError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = || -> io::Result<std::process::Output> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        namespace.host(&mut command)?;
        let mut child = command.spawn()?;
        // A tool that ends early reports why on stderr; the broken pipe would hide it.
        let mut stdin = child.stdin.take().expect("piped");
        let written = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output()?;
        if output.status.success() { written.map(|()| output) } else { Ok(output) }
    };
    let output =
        { start }().map_err(|source| TestbedError::Tool { tool: name.clone(), place, source })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(TestbedError::Refused { tool: name, place, message })
}

/// An error of `action` at `place`.
pub(super) fn step(
    action: &'static str,
    place: &'static str,
) -> impl FnOnce(io::Error) -> TestbedError {
    move |source| TestbedError::Setup { action, place, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::skip_without_root;

    #[test]
    fn super_packets_end_at_the_box() {
        if skip_without_root() {
            return;
        }
        let mut topology = Topology::build(1, None).unwrap();
        topology.hand_over_super_packets(0, Site::LeftHosts).unwrap();
        let (on, off): (Vec<_>, Vec<_>) =
            topology.offloads().unwrap().into_iter().partition(|it| it.contains(SUPER_PACKETS));
        let [hosts, port] = &on[..] else { panic!("{on:?}") };
        assert!(
            hosts.starts_with("left hosts 0 eth0, ") && port.starts_with("left box 0 lan, "),
            "{on:?}"
        );
        for offload in WHOLE {
            assert!(
                on.iter().all(|it| it.contains(&format!(" {offload}=on"))),
                "{offload}: {on:?}"
            );
        }
        assert!(off.len() == 8 && off.iter().all(|it| !it.contains("=on")), "{off:?}");
    }

    #[test]
    fn initial_window_sets_route_and_receive_buffer() {
        if skip_without_root() {
            return;
        }
        let topology = Topology::build(1, None).unwrap();
        topology.set_initial_window(0, [Site::LeftHosts, Site::RightHosts], 450).unwrap();
        let routes = |hosts: &Namespace| {
            let shown = hosts.within(|| Command::new("ip").arg("route").output()).unwrap();
            String::from_utf8(shown.stdout).unwrap()
        };
        let buffers = |hosts: &Namespace| hosts.within(|| get("net/ipv4/tcp_rmem")).unwrap();
        let PairSites { left_hosts, right_hosts, .. } = &topology.pairs[0];
        let there = routes(left_hosts);
        assert!(there.contains("10.1.2.1 dev eth0") && there.contains("initcwnd 450"), "{there}");
        assert!(!routes(right_hosts).contains("initcwnd"));
        assert_eq!(buffers(left_hosts), "net.ipv4.tcp_rmem = 4096\t131072\t33554432");
        assert_eq!(buffers(right_hosts), "net.ipv4.tcp_rmem = 4096\t1362600\t33554432");
    }

    #[test]
    fn box_receive_work_runs_on_other_processors() {
        if skip_without_root() || forebay_skips::skip_without(forebay_skips::Need::Steering) {
            return;
        }
        let processors = Processors { emulator: 1, others: "00000001".into() };
        let steering = |processors| {
            let settings = Topology::build(1, processors).unwrap().settings().unwrap();
            settings
                .into_iter()
                .find_map(|row| Some(row.split_once("rps_default_mask = ")?.1.into()))
        };
        let Some(nowhere) = steering(None) else {
            panic!("{STEERING} exists but the settings lack it");
        };
        let mask = |text: String| u32::from_str_radix(&text.replace(',', ""), 16).unwrap();
        assert_eq!((mask(nowhere), steering(Some(&processors)).map(mask)), (0, Some(1)));
    }
}
