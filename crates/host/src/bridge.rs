//! The bridge that a network device belongs to, and whether that bridge forwards.
//!
//! The state comes over rtnetlink(7). sysfs would show the devices of the network namespace in which it
//! was mounted, which may be another one.

mod vlans;

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    BridgePortState, InfoBridge, InfoBridgePort, InfoData, InfoPortData, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, VlanProtocol,
};
use netlink_packet_route::neighbour::NeighbourAttribute;
use nix::net::if_::{if_indextoname, if_nametoindex};

pub use self::vlans::Vlans;
use crate::fix::Fix;
use crate::fix::lifelines::Lifelines;
use crate::rtnetlink::{self, first};

/// Why the kernel alone would not forward frames between two devices.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The devices are not ports of one bridge.
    #[error(
        "{}: both must be ports of one bridge, which forwards the traffic while the sendbox does \
         not; run `{}`",
        .0.found(),
        .0.fix().offered(&Lifelines::here(&[]))
    )]
    Apart(SeparatePorts),
    /// Their bridge does not forward between them.
    #[error(
        "{}: the bridge could not forward the traffic while the sendbox does not; {}",
        .0.found(),
        .0.fix()
    )]
    Idle(IdleReason),
    /// The kernel refused the request.
    #[error("reading the bridge of {device}: {source}")]
    Os {
        /// The device.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Two devices that are not ports of one bridge, each with its bridge, if any.
#[derive(Debug)]
pub struct SeparatePorts([(String, Option<String>); 2]);

impl SeparatePorts {
    /// A text that names the bridge of each device.
    pub fn found(&self) -> String {
        let [(lan, lan_bridge), (wan, wan_bridge)] = &self.0;
        let name = |bridge: &Option<String>| bridge.clone().unwrap_or("no bridge".into());
        format!("{lan} is a port of {}, {wan} of {}", name(lan_bridge), name(wan_bridge))
    }

    /// The commands that make both devices ports of one bridge, of an existing one if possible.
    pub fn fix(&self) -> Fix {
        let existing = self.0.iter().find_map(|(_, bridge)| bridge.as_deref());
        let bridge = existing.unwrap_or("br0");
        let made = match existing {
            Some(_) => Fix::default(),
            None => Fix::default()
                .then(format!("ip link add {bridge} type bridge"))
                .then(format!("ip link set dev {bridge} up")),
        };
        let strays = self.0.iter().filter(|(_, at)| at.as_deref() != Some(bridge));
        strays.fold(made, |fix, (device, _)| fix.then_join(device, bridge))
    }
}

/// Why a bridge does not forward between two of its ports.
#[derive(Debug, PartialEq, Eq)]
pub enum IdleReason {
    /// The devices, bridge or ports, that are switched off.
    Down(Vec<String>),
    /// Nothing is connected to this port.
    NoCarrier(String),
    /// The bridge holds this port in a state other than forwarding.
    Held(String, BridgePortState),
}

impl IdleReason {
    /// A text that says why the bridge does not forward.
    pub fn found(&self) -> String {
        match self {
            Self::Down(devices) if devices.len() == 1 => format!("{} is down", devices[0]),
            Self::Down(devices) => format!("{} are down", devices.join(" and ")),
            Self::NoCarrier(port) => format!("{port} has no carrier"),
            Self::Held(port, state) => {
                format!("the bridge holds its port {port} in the state {state}")
            }
        }
    }

    /// The remedy, as text for the operator.
    pub fn fix(&self) -> String {
        match self {
            Self::Down(devices) => {
                let up = devices.iter().map(|device| format!("ip link set dev {device} up"));
                format!("run `{}`", up.collect::<Vec<_>>().join(" && "))
            }
            Self::NoCarrier(port) => format!("plug {port} in, or set its other end up"),
            Self::Held(port, _) => {
                format!("wait for its spanning tree, or look at `bridge link show dev {port}`")
            }
        }
    }
}

/// Returns the bridge of two devices of the current network namespace. Both must be ports of the same
/// bridge, and forwarding.
pub fn check(lan: &str, wan: &str) -> Result<String, BridgeError> {
    let os = |device: &str| {
        let device = device.to_string();
        move |source| BridgeError::Os { device, source }
    };
    let links = [BridgeLink::of(lan).map_err(os(lan))?, BridgeLink::of(wan).map_err(os(wan))?];
    let [lan_bridge, wan_bridge] = [links[0].bridge, links[1].bridge];
    let name = |device: &str, bridge: Option<u32>| {
        bridge.map(|index| bridge_name(index).map_err(os(device))).transpose()
    };
    let names = [name(lan, lan_bridge)?, name(wan, wan_bridge)?];
    let bridge = match names {
        [Some(bridge), Some(other)] if bridge == other => bridge,
        [at_lan, at_wan] => {
            return Err(BridgeError::Apart(SeparatePorts([
                (lan.into(), at_lan),
                (wan.into(), at_wan),
            ])));
        }
    };
    let own = BridgeLink::of(&bridge).map_err(os(&bridge))?;
    let [lan_link, wan_link] = links;
    match idle([(&bridge, own), (lan, lan_link), (wan, wan_link)]) {
        Some(idle) => Err(BridgeError::Idle(idle)),
        None => Ok(bridge),
    }
}

/// Time for a bridge that was just put up: the kernel notices the carrier of its ports up to a second
/// later (net/core/link_watch.c).
const PATIENCE: Duration = Duration::from_secs(2);

/// As [`check`], but waits up to 2 s until the bridge forwards.
pub fn await_forwarding(lan: &str, wan: &str) -> Result<String, BridgeError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match check(lan, wan) {
            Err(BridgeError::Idle(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            checked => return checked,
        }
    }
}

/// Why a bridge, named first, does not forward between two of its ports.
fn idle(links: [(&str, BridgeLink); 3]) -> Option<IdleReason> {
    let down = links.iter().filter(|(_, link)| !link.flags.contains(LinkFlags::Up));
    let down: Vec<String> = down.map(|(device, _)| (*device).to_string()).collect();
    if !down.is_empty() {
        return Some(IdleReason::Down(down));
    }
    let [_, ports @ ..] = links;
    if let Some((port, _)) = ports.iter().find(|(_, link)| !link.flags.contains(LinkFlags::LowerUp))
    {
        return Some(IdleReason::NoCarrier((*port).to_string()));
    }
    let held = ports.iter().find_map(|(port, link)| Some((*port, link.held()?)));
    held.map(|(port, state)| IdleReason::Held(port.to_string(), state))
}

fn bridge_name(index: u32) -> io::Result<String> {
    Ok(if_indextoname(index)?.to_string_lossy().into_owned())
}

/// The properties of a link that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BridgeLink {
    flags: LinkFlags,
    /// Index of the bridge, if this link is a port of one.
    bridge: Option<u32>,
    /// State of the port in that bridge.
    state: Option<BridgePortState>,
    /// No other isolated port exchanges frames with this port.
    is_isolated: bool,
    /// The port accepts frames of known stations only (802.1X).
    is_locked: bool,
    /// If this is a bridge with VLAN filtering: the kind of tags that it filters by.
    heeds_vlans: Option<VlanProtocol>,
    /// If this is a bridge: whether iptables sees the forwarded frames.
    calls_iptables: bool,
}

impl BridgeLink {
    fn of(device: &str) -> io::Result<Self> {
        Self::at(if_nametoindex(device)?)
    }

    fn at(index: u32) -> io::Result<Self> {
        rtnetlink::link(index).map(|link| Self::read(&link))
    }

    /// State of the port, unless the port forwards or the kernel reports no state.
    fn held(&self) -> Option<BridgePortState> {
        self.state.filter(|state| *state != BridgePortState::Forwarding)
    }

    fn read(link: &LinkMessage) -> Self {
        let info = rtnetlink::info(link);
        let own = match first!(info, LinkInfo::Data) {
            Some(InfoData::Bridge(own)) => own.as_slice(),
            _ => &[],
        };
        // Bonds and similar devices are masters too.
        let port = match first!(info, LinkInfo::PortData) {
            Some(InfoPortData::BridgePort(port)) => Some(port.as_slice()),
            _ => None,
        };
        let says = |wanted| port.is_some_and(|port| port.contains(&wanted));
        let protocol = first!(own, InfoBridge::VlanProtocol).copied().unwrap_or_default();
        Self {
            flags: link.header.flags,
            bridge: port.and_then(|_| first!(link.attributes, LinkAttribute::Controller).copied()),
            state: port.and_then(|port| first!(port, InfoBridgePort::State).copied()),
            is_isolated: says(InfoBridgePort::Isolated(true)),
            is_locked: says(InfoBridgePort::Locked(true)),
            heeds_vlans: own.contains(&InfoBridge::VlanFiltering(true)).then_some(protocol),
            calls_iptables: own.contains(&InfoBridge::NfCallIpTables(true))
                || own.contains(&InfoBridge::NfCallIp6Tables(true)),
        }
    }
}

/// Rules of a bridge for frames between two of its ports, besides the states of the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Both ports are isolated: nothing passes between them.
    pub is_isolated: bool,
    /// The first port accepts frames of known stations only (802.1X).
    pub is_locked: bool,
    /// Frames without a tag would leave with the tag of this VLAN, or not at all.
    pub other_vlan: Option<u16>,
    /// Treatment of tags; `None`: all tags leave as they came.
    pub vlans: Option<Vlans>,
    /// The bridge filters by tags of this kind (an EtherType) and not by tags of IEEE 802.1Q.
    pub other_tags: Option<u16>,
    /// iptables may see the forwarded frames.
    pub calls_iptables: bool,
}

/// The passage from `lan` to `wan`, ports of one bridge.
pub fn passage(lan: &str, wan: &str) -> io::Result<Passage> {
    let (lan_index, wan_index) = (if_nametoindex(lan)?, if_nametoindex(wan)?);
    let links = [BridgeLink::at(lan_index)?, BridgeLink::at(wan_index)?];
    let bridge = links[0].bridge.ok_or(io::ErrorKind::NotFound)?;
    let bridge = BridgeLink::at(bridge)?;
    let (mut other_vlan, mut vlans) = (None, None);
    if bridge.heeds_vlans.is_some() {
        let [of_lan, of_wan] = [vlans::of(lan_index)?, vlans::of(wan_index)?];
        let found = Vlans::between(&of_lan, &of_wan);
        other_vlan = vlans::untagged(&of_lan).filter(|_| !found.kept.contains(&0));
        vlans = Some(found);
    }
    Ok(Passage {
        is_isolated: links.iter().all(|link| link.is_isolated),
        is_locked: links[0].is_locked,
        other_vlan,
        vlans,
        other_tags: bridge
            .heeds_vlans
            .filter(|kind| *kind != VlanProtocol::Ieee8021Q)
            .map(u16::from),
        calls_iptables: bridge.calls_iptables,
    })
}

/// The Ethernet addresses of at most `limit` stations that the bridge of `lan` and `wan` has learned on
/// its other ports.
pub fn stations_elsewhere(lan: &str, wan: &str, limit: usize) -> io::Result<BTreeSet<[u8; 6]>> {
    let own = [if_nametoindex(lan)?, if_nametoindex(wan)?];
    let Some(bridge) = BridgeLink::at(own[0])?.bridge else { return Ok(BTreeSet::new()) };
    let mut stations = BTreeSet::new();
    for entry in rtnetlink::neighbours(AddressFamily::Bridge)? {
        let is_ours = entry.attributes.contains(&NeighbourAttribute::Controller(bridge));
        let address = first!(entry.attributes, NeighbourAttribute::LinkLayerAddress);
        let address = address.and_then(|address| <[u8; 6]>::try_from(&address[..]).ok());
        if is_ours && !own.contains(&entry.header.ifindex) && stations.len() < limit {
            stations.extend(address);
        }
    }
    Ok(stations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn unbridged_devices_are_refused_with_the_joining_command() {
        on_a_veth_pair(|| {
            let mend = || {
                let error = check("left", "right").unwrap_err().to_string();
                let (_, line) = error.split_once('`').unwrap();
                for command in line.trim_end_matches('`').split(" && ") {
                    run(command);
                }
                error
            };
            let error = mend();
            assert!(
                error.starts_with("left is a port of no bridge, right of no bridge"),
                "{error}"
            );
            assert_eq!(check("left", "right").unwrap(), "br0");
            run("ip link set dev left nomaster");
            let error = mend();
            assert!(error.contains("right of br0") && !error.contains("link add"), "{error}");
            assert_eq!(check("left", "right").unwrap(), "br0");
            run("ip link add br1 type bridge");
            run("ip link set dev right master br1");
            assert!(mend().contains("left is a port of br0, right of br1"));
            assert_eq!(check("left", "right").unwrap(), "br0");
        });
    }

    #[test]
    fn only_stations_at_further_bridge_ports_are_reported() {
        on_a_veth_pair(|| {
            run("ip link add more type veth peer name less");
            assert_eq!(stations_elsewhere("left", "right", 9).unwrap(), [].into());
            for bridge in ["br0", "br1"] {
                run(&format!("ip link add {bridge} type bridge"));
            }
            for (port, bridge) in
                [("left", "br0"), ("right", "br0"), ("more", "br0"), ("less", "br1")]
            {
                run(&format!("ip link set dev {port} master {bridge} address 02:00:00:00:01:00"));
                run(&format!(
                    "bridge fdb add 02:00:00:00:00:{:02x} dev {port} master static",
                    port.as_bytes()[0]
                ));
            }
            run("bridge fdb add 02:00:00:00:00:01 dev more master static");
            let found = stations_elsewhere("left", "right", 9).unwrap();
            assert_eq!(found, [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, b'm']].into());
            assert_eq!(stations_elsewhere("left", "right", 1).unwrap().len(), 1);
        });
    }

    #[test]
    fn nonforwarding_bridge_is_refused_with_its_cause() {
        on_a_veth_pair(|| {
            for command in [
                "ip link add br0 type bridge",
                "ip link set dev left master br0",
                "ip link add more type veth peer name less",
                "ip link set dev more master br0",
            ] {
                run(command);
            }
            let error = check("left", "more").unwrap_err().to_string();
            assert!(error.starts_with("br0 and more are down"), "{error}");
            let (_, line) = error.split_once('`').unwrap();
            line.trim_end_matches('`').split(" && ").for_each(run);
            let error = check("left", "more").unwrap_err().to_string();
            assert!(error.starts_with("more has no carrier"), "{error}");
            run("ip link set dev less up");
            assert_eq!(await_forwarding("left", "more").unwrap(), "br0");
            run("ip link set dev left type bridge_slave state 2");
            let error = check("left", "more").unwrap_err().to_string();
            assert!(error.contains("port left in the state learning"), "{error}");
            run("ip link set dev left type bridge_slave state 3");
            assert_eq!(check("left", "more").unwrap(), "br0");
        });
    }

    #[test]
    fn master_other_than_a_bridge_is_ignored() {
        let bridge_of = |data| {
            let info = LinkAttribute::LinkInfo(vec![LinkInfo::PortData(data)]);
            let link = rtnetlink::about_link(1, vec![LinkAttribute::Controller(7), info]);
            BridgeLink::read(&link).bridge
        };
        assert_eq!(bridge_of(InfoPortData::BridgePort(Vec::new())), Some(7));
        assert_eq!(bridge_of(InfoPortData::BondPort(Vec::new())), None);
        assert_eq!(BridgeLink::read(&rtnetlink::about_link(1, Vec::new())).bridge, None);
        assert!(matches!(check("no-such-left", "lo"), Err(BridgeError::Os { .. })));
    }
}
