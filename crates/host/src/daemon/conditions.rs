//! Conditions that the devices of a box must meet. `forebay doctor`, the start of a box, and the
//! [`observer`](super::observer) of a running box all check the same list.
//!
//! Packets that a sendbox takes bypass everything in the way of the bridge. So it refuses filters and qdiscs
//! there, and never replaces them. Packets that stay in the kernel pass them all. If a condition fails while
//! a box runs, a sendbox hands the traffic back. A receivebox reports nothing, so that its sendbox stops
//! shaping. Both go on once the condition holds again.

mod routing;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;

use forebay_core::packet::ETHERNET_HEADER;
use forebay_ebpf::QDISC;
use ipnet::IpNet;
use nix::net::if_::if_nametoindex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::routing::dropped_at;
use super::config::{Config, DatapathKind, Forward, Role};
use crate::bridge::{self, BridgeError, Vlans};
use crate::egress::{self, EgressError};
use crate::ethernet::{self, EthernetError};
use crate::filters::{self, Filter};
use crate::fix::lifelines::Lifelines;
use crate::htb;
use crate::lower;
use crate::offload::{self, Offload, OffloadError};
use crate::port::{Layout, PortError, QUEUES_MAX, xdp_program};
use crate::triangle::{self, Spec};

/// The devices of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// Role of the box that uses the devices.
    pub role: Role,
    /// Device towards the site's hosts; always there in a sendbox of a bridge.
    pub lan: Option<String>,
    /// Device towards the Internet.
    pub wan: String,
    /// Forwarder of the packets of a sendbox: the bridge or the routes.
    pub forward: Forward,
    /// The bundles also carry packets that the machine itself sends.
    pub own: bool,
    /// Destinations of the bundles of a sendbox whose machine routes.
    pub to: Vec<IpNet>,
    /// Datapath of a sendbox.
    pub datapath: DatapathKind,
    /// Bytes of the longest frame that fits a running box's buffers.
    pub room_bytes: Option<usize>,
    /// Receive queues of the port towards the site's hosts that a running box reads.
    pub queues: Option<u32>,
    /// Addresses of the other boxes: no fix may cut off the route to them.
    #[serde(default)]
    pub peers: Vec<IpAddr>,
    /// Takes the packets of a machine that routes to the process of a running sendbox.
    #[serde(default)]
    pub triangle: Option<Spec>,
    /// As [`Config::by_socket`].
    pub by_socket: bool,
}

impl Devices {
    /// The devices that a configuration names, before a box runs.
    pub fn of(config: &Config) -> Self {
        let &Config { role, datapath, forward, own, .. } = config;
        let (lan, wan) = (config.lan.clone(), config.wan.clone());
        let is_routed = role == Role::Sendbox && forward == Forward::Route;
        let to = if is_routed { destinations(config) } else { Vec::new() };
        let peers = config.bundles.iter().filter_map(|bundle| bundle.peer.address());
        let peers = peers.map(|address| address.ip()).collect();
        let (room_bytes, queues, triangle) = (None, None, None);
        let by_socket = config.by_socket;
        Self {
            role,
            lan,
            wan,
            forward,
            own,
            to,
            datapath,
            room_bytes,
            queues,
            peers,
            triangle,
            by_socket,
        }
    }

    /// Devices of a sendbox whose ports belong to one bridge.
    #[cfg(test)]
    pub fn bridged(lan: &str, wan: &str, datapath: DatapathKind) -> Self {
        Self {
            role: Role::Sendbox,
            lan: Some(lan.into()),
            wan: wan.into(),
            forward: Forward::Bridge,
            own: false,
            to: Vec::new(),
            datapath,
            room_bytes: None,
            queues: None,
            peers: Vec::new(),
            triangle: None,
            by_socket: false,
        }
    }

    fn lan(&self) -> &str {
        self.lan.as_deref().expect("a bridge has one, as checked")
    }

    /// The ports of the datapath: towards the hosts, if there is one, and towards the Internet. Both are the
    /// exit of a triangle.
    pub(super) fn ports(&self) -> (Option<String>, String) {
        match &self.triangle {
            Some(triangle) => {
                let exit = triangle.names().exit;
                (Some(exit.clone()), exit)
            }
            None => (self.lan.clone(), self.wan.clone()),
        }
    }

    /// The devices that a program of the box may be attached to.
    pub(super) fn watched(&self) -> Vec<String> {
        let (lan, wan) = self.ports();
        let one = lan.filter(|lan| *lan != wan);
        one.into_iter().chain([wan]).collect()
    }

    /// The port that sets the frame size: the box takes frames in there, or cuts super-packets into its
    /// frames.
    fn frame_port(&self) -> String {
        if self.triangle.is_some() {
            return self.ports().1;
        }
        self.frame_port_of_file().into()
    }

    fn frame_port_of_file(&self) -> &str {
        match (self.forward, self.datapath.is_in_kernel()) {
            (Forward::Bridge, false) => self.lan(),
            (Forward::Bridge, true) | (Forward::Route, _) => &self.wan,
        }
    }

    /// Bytes of the longest frame that a sendbox must have room for.
    pub fn frame_bytes(&self) -> io::Result<usize> {
        Ok(offload::mtu(&self.frame_port())? as usize + FRAME_OVERHEAD)
    }

    /// LAN, if there is one, and WAN.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.lan.iter().chain([&self.wan]).map(String::as_str)
    }

    /// Checks all conditions of a box of this role. If one fails on which the rest depends, it stops there.
    pub fn examine(&self) -> Vec<(&'static Condition, Result<String, Fault>)> {
        let conditions = match (self.role, self.forward, self.datapath.is_in_kernel()) {
            (Role::Sendbox, Forward::Bridge, true) => &KERNEL[..],
            (Role::Sendbox, Forward::Bridge, false) => &SENDBOX,
            (Role::Sendbox, Forward::Route, true) => &ROUTE,
            (Role::Sendbox, Forward::Route, false) => &ROUTE_USER,
            (Role::Receivebox, ..) if self.by_socket => &BY_SOCKET,
            (Role::Receivebox, ..) => &RECEIVEBOX,
        };
        let mut found = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let held = (condition.look)(self);
            let ends = held.is_err() && condition.is_ground;
            found.push((condition, held));
            if ends {
                break;
            }
        }
        found
    }

    /// Conditions that fail now.
    pub fn failed_conditions(&self) -> Vec<FailedCondition> {
        let failed = |(condition, held): (&Condition, Result<String, Fault>)| {
            Some(FailedCondition { condition: condition.name.into(), fault: held.err()? })
        };
        self.examine().into_iter().filter_map(failed).collect()
    }

    /// Conditions that fail now and may come to hold without a change by the operator.
    ///
    /// # Errors
    ///
    /// The first failed condition that needs a change.
    pub fn awaited(&self) -> Result<Vec<FailedCondition>, FailedCondition> {
        let (awaited, refused): (Vec<FailedCondition>, _) =
            self.failed_conditions().into_iter().partition(|failed| failed.is_awaited());
        refused.into_iter().next().map_or(Ok(awaited), Err)
    }

    /// Refuses devices that fail a condition.
    pub fn require(&self) -> Result<(), FailedCondition> {
        self.failed_conditions().into_iter().next().map_or(Ok(()), Err)
    }
}

/// Destinations of all bundles, each once.
fn destinations(config: &Config) -> Vec<IpNet> {
    let all: BTreeSet<IpNet> = config.bundles.iter().flat_map(|it| &it.to).copied().collect();
    all.into_iter().collect()
}

/// A condition that must hold.
#[derive(Debug)]
pub struct Condition {
    /// Short name of the checked property.
    pub name: &'static str,
    /// Consequence of a failure.
    pub reason: &'static str,
    /// If it fails, no further condition can be checked.
    is_ground: bool,
    /// The condition may come to hold while the machine starts or is being set up: a starting box waits for
    /// it.
    is_awaited: bool,
    look: fn(&Devices) -> Result<String, Fault>,
}

/// Reason why a condition fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The state that was found.
    pub found: String,
    /// Command or change that repairs it.
    pub fix: String,
}

impl Fault {
    fn new(found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { found: found.into(), fix: fix.into() }
    }
}

/// A failed condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedCondition {
    /// Name of the condition.
    pub condition: String,
    /// The state that was found instead.
    #[serde(flatten)]
    pub fault: Fault,
}

impl FailedCondition {
    /// A running box could not attach to a device that was deleted and created again.
    pub fn made_again(device: &str, error: &dyn std::error::Error) -> Self {
        tracing::warn!(target: "device", "{device} was made again: {error}");
        let fault = Fault::new(format!("{device} was made again: {error}"), "start the box again");
        Self { condition: DEVICE.name.into(), fault }
    }

    /// A running box reads fewer receive queues of the port towards the hosts than the port has by now.
    pub fn unread_queues(lan: &str, queues: u32, read: u32) -> Self {
        Self { condition: RECEIVE_QUEUES.into(), fault: too_many_queues(lan, queues, read, true) }
    }

    /// The consequence, for people.
    pub fn reason(&self) -> &'static str {
        let reason = self.of().map(|condition| condition.reason);
        reason.unwrap_or("the devices have changed")
    }

    /// The state that was found and how to repair it, without the consequence.
    pub fn sentence(&self) -> String {
        format!("{}; fix: {}", self.fault.found, self.fault.fix)
    }

    fn is_awaited(&self) -> bool {
        self.of().is_some_and(|condition| condition.is_awaited)
    }

    /// The failed condition.
    fn of(&self) -> Option<&'static Condition> {
        let mut all =
            [&SENDBOX[..], &KERNEL, &ROUTE, &ROUTE_USER, &RECEIVEBOX].into_iter().flatten();
        all.find(|condition| condition.name == self.condition)
    }
}

impl std::fmt::Display for FailedCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fault { found, fix } = &self.fault;
        write!(f, "{found}: {}; fix: {fix}", self.reason())
    }
}

impl std::error::Error for FailedCondition {}

/// Prefix of the state that was found if the kernel did not answer.
pub(super) const NOT_SAID: &str = "the kernel does not say";

/// Why a box refuses devices that merge packets or leave checksums unfinished.
const OFFLOADS_REASON: &str = "a box needs packets one by one, and as they are on the wire";

/// Name of the condition that the bridge forwards between both ports.
const FORWARDING: &str = "forwarding";
/// Name of the conditions about the size of frames.
const MTU: &str = "MTU";
/// Condition of a sendbox that keeps packets in the kernel.
pub const ROOT_QDISC: &str = "root qdisc";

/// Why frames longer than the MTU are a problem.
const LOST: &str = "longer frames would be lost";

/// Name of the condition about the receive queues of the LAN.
const RECEIVE_QUEUES: &str = "receive queues";

/// Conditions of a sendbox that carries packets in user space.
const SENDBOX: [Condition; 13] = [
    DEVICE,
    KIND,
    BRIDGE,
    BRIDGE_FORWARDS,
    Condition {
        name: "isolation",
        reason: "packets of bundles would bypass the isolation of the ports",
        is_ground: false,
        is_awaited: false,
        look: isolation,
    },
    Condition {
        name: "VLANs",
        reason: "packets of bundles would leave with different VLAN tags than through the bridge",
        is_ground: false,
        is_awaited: false,
        look: vlans,
    },
    Condition {
        name: "tc filters",
        reason: "packets of bundles would not pass them",
        is_ground: false,
        is_awaited: false,
        look: tc_filters,
    },
    Condition {
        name: "packet filter",
        reason: "packets of bundles would not pass it",
        is_ground: false,
        is_awaited: false,
        look: packet_filter,
    },
    Condition {
        name: "qdisc",
        reason: "packets of bundles would not pass it",
        is_ground: false,
        is_awaited: false,
        look: qdisc,
    },
    Condition {
        name: "offloads",
        reason: OFFLOADS_REASON,
        is_ground: false,
        is_awaited: true,
        look: |devices| {
            devices.names().try_for_each(offload::check).map_err(Fault::from)?;
            not_merged(devices.lan())?;
            Ok("off".into())
        },
    },
    Condition {
        name: RECEIVE_QUEUES,
        reason: "a sendbox reads only some queues: packets in further queues would bypass it",
        is_ground: false,
        is_awaited: true,
        look: receive_queues,
    },
    Condition { name: MTU, reason: LOST, is_ground: false, is_awaited: true, look: mtu },
    Condition {
        name: "frame size",
        reason: "longer frames would overtake shorter ones",
        is_ground: false,
        is_awaited: true,
        look: frame_size,
    },
];

/// Conditions of a sendbox that keeps packets in the kernel, where filters between the ports still apply.
const KERNEL: [Condition; 6] = [DEVICE, KIND, BRIDGE, BRIDGE_FORWARDS, OWN_QDISC, ROOM];

/// Conditions of a sendbox that keeps packets in the kernel, on a machine that routes.
const ROUTE: [Condition; 6] =
    [DEVICE, routing::LINK, routing::FORWARDS, routing::ROUTES, OWN_QDISC, ROOM];

/// Conditions of a sendbox that takes packets into its process, on a machine that routes: by a triangle, once
/// it runs.
const ROUTE_USER: [Condition; 8] = [
    DEVICE,
    routing::FORWARDS,
    routing::ROUTES,
    Condition {
        name: "source NAT",
        reason: "packets through the triangle would leave without source NAT",
        is_ground: false,
        is_awaited: false,
        look: source_nat,
    },
    Condition {
        name: "forward policy",
        reason: "the packet filter would drop packets through the triangle",
        is_ground: false,
        is_awaited: false,
        look: forward_policy,
    },
    Condition {
        name: "reverse path",
        reason: "the kernel would drop packets back to this machine",
        is_ground: false,
        is_awaited: false,
        look: reverse_path,
    },
    Condition {
        name: "triangle",
        reason: "packets of bundles would not return from the triangle",
        is_ground: true,
        is_awaited: false,
        look: triangle,
    },
    ROOM,
];

/// Condition of a sendbox that keeps packets in the kernel: the WAN has only a default root qdisc.
const OWN_QDISC: Condition = Condition {
    name: ROOT_QDISC,
    reason: "a sendbox queues packets of bundles there",
    is_ground: false,
    is_awaited: false,
    look: root_qdisc,
};

/// Condition of a running sendbox: the MTU still fits the frames of its sockets.
const ROOM: Condition =
    Condition { name: MTU, reason: LOST, is_ground: false, is_awaited: true, look: within_room };

/// Condition: both ports are in one bridge.
const BRIDGE: Condition = Condition {
    name: "bridge",
    reason: "both ports must be in one bridge, which forwards the traffic while the sendbox does \
             not",
    is_ground: true,
    is_awaited: true,
    look: one_bridge,
};

/// Condition: the bridge forwards between both ports.
const BRIDGE_FORWARDS: Condition = Condition {
    name: FORWARDING,
    reason: "the bridge could not forward the traffic while the sendbox does not",
    is_ground: false,
    is_awaited: true,
    look: forwarding,
};

/// Conditions of a receivebox.
const RECEIVEBOX: [Condition; 3] = [
    DEVICE,
    Condition {
        name: KIND.name,
        reason: "a box reads Ethernet frames and IP packets",
        is_ground: true,
        is_awaited: false,
        look: |devices| {
            ethernet::check_or_bare(&devices.wan).map_err(Fault::from)?;
            let is_bare = ethernet::is_bare(&devices.wan)?;
            Ok(if is_bare { "IP packets without Ethernet headers" } else { "Ethernet" }.into())
        },
    },
    Condition {
        name: "offloads",
        reason: OFFLOADS_REASON,
        is_ground: false,
        is_awaited: true,
        look: watched_offloads,
    },
];

/// Conditions of a receivebox that reads a packet socket. It takes packets of any device, with or without a
/// tag, and merged by the kernel or not.
const BY_SOCKET: [Condition; 2] = [
    DEVICE,
    Condition {
        name: "offloads",
        reason: OFFLOADS_REASON,
        is_ground: false,
        is_awaited: true,
        look: |devices| {
            offload::check_by_socket(&devices.wan)?;
            Ok("off, as far as needed".into())
        },
    },
];

/// Condition: the devices exist.
const DEVICE: Condition = Condition {
    name: "device",
    reason: "the box waits until it can use its devices",
    is_ground: true,
    is_awaited: true,
    look: |devices| match devices.names().find(|name| if_nametoindex(*name).is_err()) {
        Some(name) => Err(Fault::new(
            format!("there is no device {name} in this network namespace"),
            "`ip link` lists the devices",
        )),
        None => Ok(devices.names().collect::<Vec<_>>().join(", ")),
    },
};

/// Condition: the devices carry Ethernet frames.
const KIND: Condition = Condition {
    name: "kind",
    reason: "a box reads Ethernet frames",
    is_ground: true,
    is_awaited: false,
    look: |devices| {
        devices.names().try_for_each(ethernet::check).map_err(Fault::from)?;
        Ok("Ethernet".into())
    },
};

fn one_bridge(devices: &Devices) -> Result<String, Fault> {
    match bridge::check(devices.lan(), &devices.wan) {
        Err(BridgeError::Idle(_)) => Ok("the same".into()),
        Err(BridgeError::Apart(apart)) => {
            let (found, fix) = (apart.found(), apart.fix());
            let lifelines = Lifelines::here(&devices.peers);
            let offered = fix.offered(&lifelines);
            if !routes() {
                return Err(Fault::new(found, offered));
            }
            let or = match fix.withheld(&lifelines) {
                Some(_) => "",
                None => "; if it is to route between them, set box.forward = \"route\"",
            };
            Err(Fault::new(format!("{found}, and this machine routes"), format!("{offered}{or}")))
        }
        checked => Ok(checked?),
    }
}

/// Whether the kernel says that it routes packets of at least one IP version.
fn routes() -> bool {
    let is_on = |file: &str| fs::read_to_string(file).is_ok_and(|value| value.trim() == "1");
    is_on("/proc/sys/net/ipv4/ip_forward") || is_on("/proc/sys/net/ipv6/conf/all/forwarding")
}

fn forwarding(devices: &Devices) -> Result<String, Fault> {
    bridge::check(devices.lan(), &devices.wan)?;
    Ok("up".into())
}

fn isolation(devices: &Devices) -> Result<String, Fault> {
    let (lan, wan) = (devices.lan(), &devices.wan);
    let passage = bridge::passage(lan, wan)?;
    if passage.is_isolated {
        return Err(Fault::new(
            format!("{lan} and {wan} are isolated ports"),
            format!("bridge link set dev {wan} isolated off"),
        ));
    }
    if passage.is_locked {
        return Err(Fault::new(
            format!("{lan} is a locked port"),
            format!("bridge link set dev {lan} locked off"),
        ));
    }
    Ok("none".into())
}

fn vlans(devices: &Devices) -> Result<String, Fault> {
    let (lan, wan) = (devices.lan(), &devices.wan);
    let passage = bridge::passage(lan, wan)?;
    if let Some(kind) = passage.other_tags {
        return Err(Fault::new(
            format!("the bridge filters VLANs by tags of EtherType {kind:#06x}"),
            "ip link set dev BRIDGE type bridge vlan_protocol 802.1Q",
        ));
    }
    if let Some(vid) = passage.other_vlan {
        return Err(Fault::new(
            format!(
                "untagged frames belong to VLAN {vid} at {lan}, and {wan} does not send that VLAN \
                 untagged"
            ),
            format!("bridge vlan add dev {wan} vid {vid} untagged"),
        ));
    }
    Ok(match passage.vlans {
        None => "frames keep their tags".into(),
        Some(Vlans { kept, untagged }) => format!(
            "frames of {} VLANs leave unchanged, and the bridge removes the tags of {}",
            kept.len(),
            untagged.len()
        ),
    })
}

fn tc_filters(devices: &Devices) -> Result<String, Fault> {
    none_of(filters::of_tc(devices.lan(), &devices.wan)?)
}

fn packet_filter(devices: &Devices) -> Result<String, Fault> {
    let (lan, wan) = (devices.lan(), &devices.wan);
    let calls_iptables =
        filters::bridges_call_iptables() || bridge::passage(lan, wan)?.calls_iptables;
    none_of(filters::of_netfilter(lan, wan, calls_iptables)?)
}

fn none_of(filter: Option<Filter>) -> Result<String, Fault> {
    match filter {
        None => Ok("none".into()),
        Some(Filter { found, fix }) => Err(Fault::new(found, fix)),
    }
}

fn qdisc(devices: &Devices) -> Result<String, Fault> {
    egress::check(&devices.wan)?;
    Ok("the kernel's own, or none".into())
}

fn root_qdisc(devices: &Devices) -> Result<String, Fault> {
    let wan = devices.wan.as_str();
    let ifindex = if_nametoindex(wan).map_err(io::Error::from)?;
    if htb::is_left_behind(ifindex, QDISC)? {
        return Ok("a sendbox's".into());
    }
    egress::check(wan)?;
    Ok("the kernel's own, or none".into())
}

fn receive_queues(devices: &Devices) -> Result<String, Fault> {
    let lan = devices.lan();
    let (queues, most) = (offload::receive_queues(lan)?, QUEUES_MAX);
    let allowed = devices.queues.unwrap_or(most);
    if queues <= allowed {
        return Ok(queues.to_string());
    }
    let is_running = devices.queues.is_some();
    Err(too_many_queues(lan, queues, allowed, is_running))
}

/// Fault of a port with more receive queues than allowed: a running box reads no more, or no box does.
fn too_many_queues(lan: &str, queues: u32, allowed: u32, is_running: bool) -> Fault {
    let whose =
        if is_running { format!(", and the running box reads {allowed}") } else { String::new() };
    let fix = format!("ethtool -L {lan} combined {allowed}, or `rx {allowed}`: see ethtool -l");
    Fault::new(format!("{lan} has {queues} receive queues{whose}"), fix)
}

fn mtu(devices: &Devices) -> Result<String, Fault> {
    let lan = devices.lan();
    let (of_lan, of_wan) = (offload::mtu(lan)?, offload::mtu(&devices.wan)?);
    if of_lan <= of_wan {
        return Ok(format!("{of_lan} and {of_wan}"));
    }
    Err(Fault::new(
        format!("{lan} has an MTU of {of_lan} bytes, {} of {of_wan}", devices.wan),
        format!("ip link set dev {lan} mtu {of_wan}"),
    ))
}

fn frame_size(devices: &Devices) -> Result<String, Fault> {
    for device in devices.names() {
        if let Err(PortError::Mtu { mtu, max, .. }) = Layout::of(device) {
            return Err(Fault::new(
                format!("{device} has an MTU of {mtu}; AF_XDP carries at most {max}"),
                format!("ip link set dev {device} mtu {}", max.bytes),
            ));
        }
    }
    within_room(devices)
}

/// Refuses a router that changes sources. It decides about a connection when a packet leaves for the
/// triangle, and does not change it when the packet leaves through the WAN.
fn source_nat(_: &Devices) -> Result<String, Fault> {
    match filters::of_source_nat()? {
        None => Ok("none".into()),
        Some(what) => Err(Fault::new(
            format!("{what} changes the source addresses of leaving packets"),
            "Linux 6.12 or later with box.datapath = \"kernel\", or NAT on another machine",
        )),
    }
}

/// Refuses a packet filter that accepts forwarded packets by device name and does not name the triangle.
fn forward_policy(devices: &Devices) -> Result<String, Fault> {
    let names = devices.triangle.as_ref().map(Spec::names);
    let ends = names.as_ref().map(|names| [names.entrance.as_str(), &names.exit]);
    match filters::of_forward_policy(ends.as_ref().map_or(&[], |ends| &ends[..]))? {
        None => Ok("lets packets pass".into()),
        Some(Filter { found, fix }) => Err(Fault::new(found, fix)),
    }
}

/// Refuses strict reverse-path filtering (RFC 3704) if packets that the machine itself sends take the
/// triangle.
fn reverse_path(devices: &Devices) -> Result<String, Fault> {
    let wan = devices.wan.as_str();
    if devices.own && routing::is_strict(wan) {
        return Err(Fault::new(
            format!("{wan} accepts packets only from its own routes (rp_filter = 1)"),
            format!("sysctl -w net.ipv4.conf.{wan}.rp_filter=2"),
        ));
    }
    Ok("not required".into())
}

fn triangle(devices: &Devices) -> Result<String, Fault> {
    let Some(spec) = &devices.triangle else {
        return Ok("made when the box starts".into());
    };
    let names = spec.names();
    match triangle::check(&names) {
        Ok(()) => {
            offload::check(&names.exit)?;
            not_merged(&names.exit)?;
            Ok(format!("{} and {}", names.entrance, names.exit))
        }
        Err(found) => Err(Fault::new(found, "start the box again")),
    }
}

/// Refuses frames longer than the box was started for.
fn within_room(devices: &Devices) -> Result<String, Fault> {
    let port = devices.frame_port();
    let (mtu, needed) = (offload::mtu(&port)?, devices.frame_bytes()?);
    match devices.room_bytes {
        Some(room) if needed > room => {
            let room = room - FRAME_OVERHEAD;
            Err(Fault::new(
                format!("{port} has an MTU of {mtu} bytes; the box was started for {room}"),
                format!("start the box again, or ip link set dev {port} mtu {room}"),
            ))
        }
        _ => Ok(format!("up to {needed} bytes")),
    }
}

fn watched_offloads(devices: &Devices) -> Result<String, Fault> {
    offload::check_watched(&devices.wan)?;
    not_merged(&devices.wan)?;
    Ok("off, as far as needed".into())
}

/// Refuses a device that merges packets before a program in generic mode sees them.
fn not_merged(device: &str) -> Result<(), Fault> {
    // Checked again once the box's own program runs.
    if !xdp_program(device)?.is_some_and(|program| program.is_generic) {
        return Ok(());
    }
    if offload::is_on(device, Offload::Gro)? {
        return Err(OffloadError::Merged { device: device.into() }.into());
    }
    match lower::merging_below(device)? {
        Some(lower) => Err(OffloadError::MergedBelow { device: device.into(), lower }.into()),
        None => Ok(()),
    }
}

/// An Ethernet header and a VLAN tag.
const FRAME_OVERHEAD: usize = ETHERNET_HEADER + 4;

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::PermissionDenied => "run it with sudo",
            _ => "look at `ip link`",
        };
        Self::new(format!("{NOT_SAID}: {error}"), fix)
    }
}

impl From<BridgeError> for Fault {
    fn from(error: BridgeError) -> Self {
        match error {
            BridgeError::Apart(apart) => {
                Self::new(apart.found(), apart.fix().offered(&Lifelines::here(&[])))
            }
            BridgeError::Idle(idle) => Self::new(idle.found(), idle.fix()),
            BridgeError::Os { .. } => Self::new(error.to_string(), "look at `ip link`"),
        }
    }
}

impl From<EthernetError> for Fault {
    fn from(error: EthernetError) -> Self {
        Self::new(error.found(), ethernet::fix())
    }
}

impl From<EgressError> for Fault {
    fn from(error: EgressError) -> Self {
        let fix = match &error {
            EgressError::Foreign { device, .. } => {
                format!("{}, or shape elsewhere", egress::fix(device))
            }
            EgressError::Os { .. } => "look at `tc qdisc`".into(),
        };
        Self::new(error.found(), fix)
    }
}

impl From<OffloadError> for Fault {
    fn from(error: OffloadError) -> Self {
        let (found, fix) = error.found_and_fix();
        Self::new(found, fix)
    }
}
