//! Which bridge a network device is a port of, and whether that bridge forwards.
//!
//! The kernel is asked over rtnetlink(7): sysfs shows the devices of the network namespace in which
//! it was mounted, which need not be ours.

mod vlans;

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use nix::net::if_::{if_indextoname, if_nametoindex};

pub use self::vlans::Vlans;
use crate::fix::Fix;
use crate::fix::lifelines::Lifelines;
use crate::netlink::{self, HEADER, attribute};

/// Why the kernel would not carry frames between two devices on its own.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The devices are not ports of one bridge.
    #[error(
        "{}: both must be ports of one bridge, which carries the traffic whenever the sendbox does \
         not; run `{}`",
        .0.found(),
        .0.fix().offered(&Lifelines::here(&[]))
    )]
    Apart(Apart),
    /// Their bridge does not forward between them.
    #[error(
        "{}: the bridge could not carry the traffic while the sendbox does not; {}",
        .0.found(),
        .0.fix()
    )]
    Idle(Idle),
    /// The kernel did not say.
    #[error("asking for the bridge of {device}: {source}")]
    Os {
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Two devices, each with the bridge that it is a port of, if any; not the same.
#[derive(Debug)]
pub struct Apart([(String, Option<String>); 2]);

impl Apart {
    /// What each is a port of.
    pub fn found(&self) -> String {
        let [(lan, lan_bridge), (wan, wan_bridge)] = &self.0;
        let name = |bridge: &Option<String>| bridge.clone().unwrap_or("no bridge".into());
        format!("{lan} is a port of {}, {wan} of {}", name(lan_bridge), name(wan_bridge))
    }

    /// The commands that make both ports of one bridge, of the one that is there if any is.
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
pub enum Idle {
    /// The devices, bridge or ports, that are switched off.
    Down(Vec<String>),
    /// Nothing is connected to this port.
    NoCarrier(String),
    /// This port is held in another state than forwarding.
    Held(String, PortState),
}

impl Idle {
    /// What keeps the bridge from forwarding.
    pub fn found(&self) -> String {
        match self {
            Self::Down(devices) if devices.len() == 1 => format!("{} is down", devices[0]),
            Self::Down(devices) => format!("{} are down", devices.join(" and ")),
            Self::NoCarrier(port) => format!("{port} has no carrier"),
            Self::Held(port, state) => {
                format!("the bridge holds its port {port} in the state {}", state.name())
            }
        }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::Down(devices) => {
                let up = devices.iter().map(|device| format!("ip link set dev {device} up"));
                format!("run `{}`", up.collect::<Vec<_>>().join(" && "))
            }
            Self::NoCarrier(port) => format!("plug {port} in, or put its other end up"),
            Self::Held(port, _) => {
                format!("wait for its spanning tree, or look at `bridge link show dev {port}`")
            }
        }
    }
}

/// State of a port of a bridge (`BR_STATE_*` in include/uapi/linux/if_bridge.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState(u8);

impl PortState {
    const FORWARDING: Self = Self(3);

    /// The name that bridge(8) shows.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0 => "disabled",
            1 => "listening",
            2 => "learning",
            3 => "forwarding",
            4 => "blocking",
            _ => "unknown",
        }
    }
}

/// The bridge of two devices of the current network namespace, which must be ports of the same and
/// forwarding.
pub fn check(lan: &str, wan: &str) -> Result<String, BridgeError> {
    let os = |device: &str| {
        let device = device.to_string();
        move |source| BridgeError::Os { device, source }
    };
    let links = [Link::of(lan).map_err(os(lan))?, Link::of(wan).map_err(os(wan))?];
    let [lan_bridge, wan_bridge] = [links[0].bridge, links[1].bridge];
    let name = |device: &str, bridge: Option<u32>| {
        bridge.map(|index| bridge_name(index).map_err(os(device))).transpose()
    };
    let names = [name(lan, lan_bridge)?, name(wan, wan_bridge)?];
    let bridge = match names {
        [Some(bridge), Some(other)] if bridge == other => bridge,
        [at_lan, at_wan] => {
            return Err(BridgeError::Apart(Apart([(lan.into(), at_lan), (wan.into(), at_wan)])));
        }
    };
    let own = Link::of(&bridge).map_err(os(&bridge))?;
    let [lan_link, wan_link] = links;
    match idle([(&bridge, own), (lan, lan_link), (wan, wan_link)]) {
        Some(idle) => Err(BridgeError::Idle(idle)),
        None => Ok(bridge),
    }
}

/// A bridge that was just put up forwards soon: the kernel tells it of its ports' carrier up to a
/// second later (net/core/link_watch.c).
const PATIENCE: Duration = Duration::from_secs(2);

/// As [`check`], but waits up to 2 s for a bridge that does not forward yet.
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

/// What keeps a bridge, named first, from forwarding between two of its ports.
fn idle(links: [(&str, Link); 3]) -> Option<Idle> {
    let down = links.iter().filter(|(_, link)| !link.has(IFF_UP));
    let down: Vec<String> = down.map(|(device, _)| (*device).to_string()).collect();
    if !down.is_empty() {
        return Some(Idle::Down(down));
    }
    let [_, ports @ ..] = links;
    if let Some((port, _)) = ports.iter().find(|(_, link)| !link.has(IFF_LOWER_UP)) {
        return Some(Idle::NoCarrier((*port).to_string()));
    }
    let held = ports.iter().find_map(|(port, link)| Some((*port, link.held()?)));
    held.map(|(port, state)| Idle::Held(port.to_string(), state))
}

fn bridge_name(index: u32) -> io::Result<String> {
    Ok(if_indextoname(index)?.to_string_lossy().into_owned())
}

// include/uapi/linux/rtnetlink.h, if.h, if_link.h
const RTM_GETLINK: u16 = 18;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BRPORT_STATE: u16 = 1;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BRPORT_LOCKED: u16 = 39;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_VLAN_PROTOCOL: u16 = 8;
const ETH_P_8021Q: u16 = 0x8100;
const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
/// `struct ifinfomsg`, behind the header.
const LINK_HEADER: usize = 16;

/// The kernel's message about a link.
fn ask(ifindex: u32) -> io::Result<Vec<u8>> {
    let mut link = [0; LINK_HEADER];
    link[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    netlink::ask(RTM_GETLINK, &link)
}

/// What matters here of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    /// Flags of the link (`IFF_*`).
    flags: u32,
    /// Index of the bridge that it is a port of.
    bridge: Option<u32>,
    /// State of the port in that bridge.
    state: Option<PortState>,
    /// No other isolated port may reach it, or it them.
    is_isolated: bool,
    /// The port takes frames of known stations only (802.1X).
    is_locked: bool,
    /// Itself a bridge: the kind of tags by which it heeds VLANs, if it does (an EtherType).
    heeds_vlans: Option<u16>,
    /// Itself a bridge: iptables sees what it forwards.
    calls_iptables: bool,
}

impl Link {
    fn of(device: &str) -> io::Result<Self> {
        Self::parse(&ask(if_nametoindex(device)?)?)
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// State of the port, unless it forwards or the kernel does not say.
    fn held(&self) -> Option<PortState> {
        self.state.filter(|state| *state != PortState::FORWARDING)
    }

    /// Reads the kernel's message about a link.
    fn parse(message: &[u8]) -> io::Result<Self> {
        netlink::refusal(message)?;
        // Behind family, type and index.
        let flags = message.get(HEADER + 8..HEADER + 12).and_then(|flags| flags.try_into().ok());
        let flags = u32::from_ne_bytes(flags.ok_or(io::ErrorKind::InvalidData)?);
        let link = message.get(HEADER + LINK_HEADER..).unwrap_or_default();
        let info = attribute(link, IFLA_LINKINFO).unwrap_or_default();
        let own = attribute(info, IFLA_INFO_DATA).unwrap_or_default();
        let is_set = |of: &[u8], kind| attribute(of, kind).is_some_and(|value| value == [1]);
        let is_bridge = attribute(info, IFLA_INFO_KIND).is_some_and(|kind| kind == b"bridge\0");
        let alone = Self {
            flags,
            bridge: None,
            state: None,
            is_isolated: false,
            is_locked: false,
            heeds_vlans: (is_bridge && is_set(own, IFLA_BR_VLAN_FILTERING)).then(|| {
                let protocol = attribute(own, IFLA_BR_VLAN_PROTOCOL);
                protocol.and_then(|it| it.try_into().ok()).map_or(ETH_P_8021Q, u16::from_be_bytes)
            }),
            calls_iptables: is_bridge
                && [IFLA_BR_NF_CALL_IPTABLES, IFLA_BR_NF_CALL_IP6TABLES]
                    .iter()
                    .any(|kind| is_set(own, *kind)),
        };
        // Bonds and the like are masters too.
        let kind = attribute(info, IFLA_INFO_SLAVE_KIND);
        if kind.is_none_or(|kind| !kind.starts_with(b"bridge\0")) {
            return Ok(alone);
        }
        let master = attribute(link, IFLA_MASTER).and_then(|index| index.try_into().ok());
        let port = attribute(info, IFLA_INFO_SLAVE_DATA).unwrap_or_default();
        let state = attribute(port, IFLA_BRPORT_STATE).and_then(|state| state.first().copied());
        Ok(Self {
            bridge: master.map(u32::from_ne_bytes),
            state: state.map(PortState),
            is_isolated: is_set(port, IFLA_BRPORT_ISOLATED),
            is_locked: is_set(port, IFLA_BRPORT_LOCKED),
            ..alone
        })
    }
}

/// What a bridge lets pass between two of its ports, beside their states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Both ports are isolated: nothing passes between them.
    pub is_isolated: bool,
    /// The first port takes frames of known stations only (802.1X).
    pub is_locked: bool,
    /// Frames without a tag would leave with that of this VLAN, or not at all.
    pub other_vlan: Option<u16>,
    /// What becomes of tags; `None`: all leave as they come.
    pub vlans: Option<Vlans>,
    /// The bridge heeds tags of this kind (an EtherType) and not those of IEEE 802.1Q.
    pub other_tags: Option<u16>,
    /// iptables may see what passes.
    pub calls_iptables: bool,
}

/// The passage from `lan` to `wan`, ports of one bridge.
pub fn passage(lan: &str, wan: &str) -> io::Result<Passage> {
    let (lan_index, wan_index) = (if_nametoindex(lan)?, if_nametoindex(wan)?);
    let links = [Link::parse(&ask(lan_index)?)?, Link::parse(&ask(wan_index)?)?];
    let bridge = links[0].bridge.ok_or(io::ErrorKind::NotFound)?;
    let bridge = Link::parse(&ask(bridge)?)?;
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
        other_tags: bridge.heeds_vlans.filter(|kind| *kind != ETH_P_8021Q),
        calls_iptables: bridge.calls_iptables,
    })
}

/// The Ethernet addresses of at most `limit` stations that the bridge of `lan` and `wan` knows at further
/// ports.
pub fn stations_elsewhere(lan: &str, wan: &str, limit: usize) -> io::Result<BTreeSet<[u8; 6]>> {
    let own = [if_nametoindex(lan)?, if_nametoindex(wan)?];
    let Some(bridge) = Link::parse(&ask(own[0])?)?.bridge else { return Ok(BTreeSet::new()) };
    let mut body = [0; NEIGHBOUR_HEADER];
    body[0] = libc::AF_BRIDGE as u8;
    let messages = netlink::dump(RTM_GETNEIGH, &body)?;
    let station = |message: &Vec<u8>| {
        let port = u32::from_ne_bytes(message.get(HEADER + 4..HEADER + 8)?.try_into().ok()?);
        let entry = message.get(HEADER + NEIGHBOUR_HEADER..)?;
        let is_ours = attribute(entry, NDA_MASTER)? == bridge.to_ne_bytes();
        let address = attribute(entry, NDA_LLADDR)?.try_into().ok()?;
        (is_ours && !own.contains(&port)).then_some(address)
    };
    Ok(messages.iter().filter_map(station).take(limit).collect())
}

// include/uapi/linux/rtnetlink.h, neighbour.h
const RTM_GETNEIGH: u16 = 30;
/// `struct ndmsg`, behind the header.
const NEIGHBOUR_HEADER: usize = 12;
const NDA_LLADDR: u16 = 2;
const NDA_MASTER: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute_of;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn devices_apart_are_refused_with_the_line_that_joins_them() {
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
    fn stations_at_further_ports_of_the_same_bridge_are_told_and_no_others() {
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
    fn a_bridge_that_does_not_forward_is_refused_with_what_is_down() {
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
    fn a_master_that_is_no_bridge_does_not_count() {
        let message = |kind: &[u8]| {
            let info = attribute_of(IFLA_INFO_SLAVE_KIND, kind);
            let link =
                [attribute_of(3, b"left\0"), attribute_of(IFLA_MASTER, &7_u32.to_ne_bytes())];
            [vec![0; HEADER + LINK_HEADER], link.concat(), attribute_of(IFLA_LINKINFO, &info)]
                .concat()
        };
        let bridge_index = |message: &[u8]| Link::parse(message).unwrap().bridge;
        assert_eq!(bridge_index(&message(b"bridge\0")), Some(7));
        for kind in [&b"bond\0"[..], b"bridge2\0", b""] {
            assert_eq!(bridge_index(&message(kind)), None);
        }
        let mut endless = message(b"bridge\0");
        endless[HEADER + LINK_HEADER..][..2].fill(0);
        assert_eq!(bridge_index(&endless), None, "an attribute of no length");
        assert!(matches!(check("no-such-left", "lo"), Err(BridgeError::Os { .. })));
    }

    #[test]
    fn a_message_that_ends_early_names_no_other_bridge() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            let answer = ask(if_nametoindex("left").unwrap()).unwrap();
            let bridge = if_nametoindex("br0").unwrap();
            let whole = Link::parse(&answer).unwrap();
            assert_eq!(
                (whole.bridge, whole.held().map(PortState::name)),
                (Some(bridge), Some("disabled"))
            );
            for len in 0..answer.len() {
                let Ok(found) = Link::parse(&answer[..len]) else { continue };
                assert!(found.bridge.is_none_or(|found| found == bridge), "cut at {len}");
                assert!(found.state.is_none() || found.state == whole.state, "cut at {len}");
            }
            assert!(Link::parse(&ask(9999).unwrap()).is_err(), "no such device");
        });
    }
}
