//! What the kernel says of this machine's network, as far as a configuration depends on it: devices, routes, the
//! networks that are connected, and where a bridge last saw the next hop. Nothing is sent and nothing is changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::Serialize;

use super::Wanted;
use crate::daemon::observer::names::look_up;
use crate::egress;
use crate::kernel;
use crate::netlink::{self, HEADER, attribute};
use crate::offload::{self, Offload};
use crate::route;

/// What was found. Whatever could not be asked is absent, never a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Release of the kernel, such as `6.18.44`.
    pub release: String,
    /// Whether the machine forwards IPv4, and IPv6.
    pub forwards: [bool; 2],
    /// All devices.
    pub links: Vec<Link>,
    /// Networks that are connected to a device, without those of one address and link-local ones.
    pub networks: Vec<(String, IpNet)>,
    /// The way to the other box.
    pub peer: Option<Way>,
    /// Why there is no way to the other box.
    pub peer_problem: String,
    /// Prefixes at the other site, and the way to each.
    pub far: Vec<(IpNet, Option<Way>)>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Device name.
    pub name: String,
    /// Kind as ip(8) names it, such as `bridge` or `wireguard`; empty: hardware, or one without a kind.
    pub kind: String,
    /// Whether its packets have Ethernet headers.
    pub is_ethernet: bool,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// The bridge that it is a port of.
    pub bridge: Option<String>,
    /// The qdisc at its root that somebody put there.
    pub foreign_qdisc: Option<String>,
    /// Offloads that are on, of those that change packets on their way up or down.
    pub offloads: Vec<String>,
}

/// A way to another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The device that packets leave through.
    pub device: String,
    /// The address of this machine that packets have by default.
    pub source: Option<IpAddr>,
    /// The address is this machine's own.
    pub is_local: bool,
    /// The port of a bridge behind which the bridge last saw the next hop.
    pub port: Option<String>,
}

impl Survey {
    /// Asks the kernel, in the current network namespace.
    pub fn of(wanted: &Wanted) -> Self {
        let mut links = links().unwrap_or_default();
        for (_, link) in &mut links {
            look_at(link);
        }
        let address = match wanted.peer.address() {
            Some(address) => Ok(address.ip()),
            None => resolved(wanted.peer.name().unwrap_or_default()),
        };
        let peer = address.and_then(|address| {
            way_to(address, &links).ok_or_else(|| format!("the kernel has no route to {address}"))
        });
        let far = wanted.far().iter().map(|prefix| (*prefix, way_of(*prefix, &links)));
        let far = far.collect();
        let networks = networks(&links).unwrap_or_default();
        Self {
            release: kernel::release(),
            forwards: [true, false].map(|is_v4| route::forwards(is_v4, None).unwrap_or(false)),
            networks,
            far,
            peer_problem: peer.as_ref().err().cloned().unwrap_or_default(),
            peer: peer.ok(),
            links: links.into_iter().map(|(_, link)| link).collect(),
        }
    }

    /// The device of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The ports of a bridge.
    pub fn ports(&self, bridge: &str) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |link| link.bridge.as_deref() == Some(bridge))
    }
}

/// The first address of a name.
fn resolved(name: &str) -> Result<IpAddr, String> {
    let found = look_up(name);
    let problem = found.problem.unwrap_or_else(|| "it has no address".into());
    found.addresses.first().copied().ok_or_else(|| format!("{name}: {problem}"))
}

/// The host of a network that the kernel is asked the way to: the first one, or of all addresses one that is nowhere
/// (RFC 5737, RFC 3849), so that the default route is found.
fn host_in(prefix: &IpNet) -> IpAddr {
    match prefix {
        IpNet::V4(all) if all.prefix_len() == 0 => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpNet::V6(all) if all.prefix_len() == 0 => {
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1).into()
        }
        prefix => prefix.hosts().next().unwrap_or(prefix.addr()),
    }
}

/// Adds what is not in the kernel's message about a link.
fn look_at(link: &mut Link) {
    let root = egress::root_qdisc(&link.name).ok().flatten();
    link.foreign_qdisc = root.filter(egress::RootQdisc::is_foreign).map(|qdisc| qdisc.kind);
    let is_on = |offload: &Offload| offload::is_on(&link.name, *offload).unwrap_or(false);
    let on = Offload::ALL.into_iter().filter(is_on);
    link.offloads = on.map(|offload| offload.name().to_string()).collect();
}

// include/uapi/linux/rtnetlink.h, if_link.h, neighbour.h
const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNEIGH: u16 = 30;
/// `struct ifinfomsg`: family and padding, type, index, flags, change.
const LINK_HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const ARPHRD_ETHER: u16 = 1;
/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
const ROUTE_HEADER: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RT_TABLE_MAIN: u8 = 254;
const RT_SCOPE_LINK: u8 = 253;
const RTPROT_KERNEL: u8 = 2;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
/// `struct ndmsg`: family and padding, index, state, flags, type.
const NEIGHBOUR_HEADER: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;
const AF_BRIDGE: u8 = libc::AF_BRIDGE as u8;

/// All devices, each behind its index.
fn links() -> io::Result<Vec<(u32, Link)>> {
    let messages = netlink::dump(RTM_GETLINK, &[0; LINK_HEADER])?;
    let parsed: Vec<_> = messages.iter().filter_map(|message| parse_link(message)).collect();
    let name = |index: u32| {
        let found = parsed.iter().find(|(own, ..)| *own == index);
        found.map(|(_, link, _)| link.name.clone())
    };
    let links = parsed.iter().map(|(index, link, master)| {
        let bridge = master.and_then(name).filter(|bridge| {
            parsed.iter().any(|(_, it, _)| it.name == *bridge && it.kind == "bridge")
        });
        (*index, Link { bridge, ..link.clone() })
    });
    Ok(links.collect())
}

/// Index, link and index of its master.
fn parse_link(message: &[u8]) -> Option<(u32, Link, Option<u32>)> {
    let header = message.get(HEADER..HEADER + LINK_HEADER)?;
    let hardware_type = u16::from_ne_bytes([header[2], header[3]]);
    let attributes = &message[HEADER + LINK_HEADER..];
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
    let number = |kind| word(attribute(attributes, kind)?);
    let info = attribute(attributes, IFLA_LINKINFO).unwrap_or_default();
    let link = Link {
        name: text(attribute(attributes, IFLA_IFNAME)?),
        kind: attribute(info, IFLA_INFO_KIND).map(text).unwrap_or_default(),
        is_ethernet: hardware_type == ARPHRD_ETHER,
        mtu: number(IFLA_MTU)?,
        ..Link::default()
    };
    Some((word(header.get(4..8)?)?, link, number(IFLA_MASTER)))
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn bytes_of(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(|it| IpAddr::V4(Ipv4Addr::from(it)));
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(|it| IpAddr::V6(Ipv6Addr::from(it))))
}

/// The way that packets of this machine to `address` take; `None`: the kernel has none.
fn way_to(address: IpAddr, links: &[(u32, Link)]) -> Option<Way> {
    let (family, octets) = bytes_of(address);
    let mut body = vec![0; ROUTE_HEADER];
    body[0] = family;
    body[1] = (octets.len() * 8) as u8;
    body.extend(netlink::attribute_of(RTA_DST, &octets));
    let message = netlink::ask(RTM_GETROUTE, &body).ok()?;
    netlink::refusal(&message).ok()?;
    let kind = *message.get(HEADER + 7)?;
    let attributes = message.get(HEADER + ROUTE_HEADER..)?;
    let index = word(attribute(attributes, RTA_OIF)?)?;
    let device = links.iter().find(|(own, _)| *own == index)?.1.name.clone();
    let inner = |kind| attribute(attributes, kind).and_then(address_of);
    if ![RTN_UNICAST, RTN_LOCAL].contains(&kind) {
        return None;
    }
    Some(Way {
        device,
        source: inner(RTA_PREFSRC),
        is_local: kind == RTN_LOCAL,
        port: port_to(inner(RTA_GATEWAY).unwrap_or(address), index, links),
    })
}

/// The way that packets to a network take, but for parts of it that have routes of their own.
fn way_of(prefix: IpNet, links: &[(u32, Link)]) -> Option<Way> {
    let way = way_to(host_in(&prefix), links)?;
    let whole = route::whole(prefix).ok().flatten();
    let index = whole.and_then(|route| route.devices.first().copied());
    match index.and_then(|index| links.iter().find(|(own, _)| *own == index)) {
        Some((_, link)) if link.name != way.device => {
            Some(Way { device: link.name.clone(), port: None, is_local: false, ..way })
        }
        _ => Some(way),
    }
}

/// The port of the bridge with this index behind which the bridge last saw a neighbour.
fn port_to(neighbour: IpAddr, bridge: u32, links: &[(u32, Link)]) -> Option<String> {
    let (family, octets) = bytes_of(neighbour);
    let mut body = [0; NEIGHBOUR_HEADER];
    body[0] = family;
    let station = neighbours(&body)?.into_iter().find_map(|message| {
        let (index, attributes) = neighbour_of(&message)?;
        let is_it = index == bridge && attribute(attributes, NDA_DST)? == octets;
        is_it.then(|| attribute(attributes, NDA_LLADDR).map(<[u8]>::to_vec))?
    })?;
    body[0] = AF_BRIDGE;
    let (_, bridge) = links.iter().find(|(index, _)| *index == bridge)?;
    neighbours(&body)?.into_iter().find_map(|message| {
        let (index, attributes) = neighbour_of(&message)?;
        let port = &links.iter().find(|(own, _)| *own == index)?.1;
        let is_it = port.bridge.as_ref() == Some(&bridge.name)
            && attribute(attributes, NDA_LLADDR)? == station;
        is_it.then(|| port.name.clone())
    })
}

fn neighbours(body: &[u8]) -> Option<Vec<Vec<u8>>> {
    netlink::dump(RTM_GETNEIGH, body).ok()
}

fn neighbour_of(message: &[u8]) -> Option<(u32, &[u8])> {
    let index = word(message.get(HEADER + 4..HEADER + 8)?)?;
    Some((index, message.get(HEADER + NEIGHBOUR_HEADER..)?))
}

/// The networks that the kernel routes straight to a device because an address of that device lies in them.
fn networks(links: &[(u32, Link)]) -> io::Result<Vec<(String, IpNet)>> {
    let mut networks = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut body = [0; ROUTE_HEADER];
        body[0] = family;
        for message in netlink::dump(RTM_GETROUTE, &body)? {
            networks.extend(network_of(&message, links));
        }
    }
    networks.sort();
    networks.dedup();
    Ok(networks)
}

fn network_of(message: &[u8], links: &[(u32, Link)]) -> Option<(String, IpNet)> {
    let header = message.get(HEADER..HEADER + ROUTE_HEADER)?;
    let (length, table, protocol, scope, kind) =
        (header[1], header[4], header[5], header[6], header[7]);
    // Scopes are IPv4's: routes of IPv6 have that of the universe.
    let is_direct = scope == RT_SCOPE_LINK || header[0] == AF_INET6;
    let is_connected = table == RT_TABLE_MAIN && protocol == RTPROT_KERNEL && kind == RTN_UNICAST;
    let attributes = &message[HEADER + ROUTE_HEADER..];
    let address = address_of(attribute(attributes, RTA_DST)?)?;
    let index = word(attribute(attributes, RTA_OIF)?)?;
    let device = &links.iter().find(|(own, _)| *own == index)?.1;
    let prefix = IpNet::new(address, length).ok()?;
    let is_network = prefix.prefix_len() < prefix.max_prefix_len();
    let is_wider = match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_multicast(),
    };
    let is_it = is_direct && is_connected && is_network && is_wider;
    is_it.then(|| (device.name.clone(), prefix.trunc()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    fn links_here() -> Vec<(u32, Link)> {
        links().unwrap()
    }

    #[test]
    fn ways_name_device_source_and_port() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            run("ip link set dev br0 up");
            run("ip address add 10.9.1.2/24 dev br0");
            run("ip route add default via 10.9.1.254");
            run("ip neigh add 10.9.1.254 lladdr 02:00:00:00:00:77 dev br0 nud permanent");
            let far = "203.0.113.9".parse().unwrap();
            let way = way_to(far, &links_here()).unwrap();
            assert_eq!((way.device.as_str(), way.source), ("br0", "10.9.1.2".parse().ok()));
            assert_eq!((way.is_local, way.port), (false, None), "the bridge has not seen it yet");
            run("bridge fdb add 02:00:00:00:00:77 dev left master static");
            let way = way_to(far, &links_here()).unwrap();
            assert_eq!(way.port.as_deref(), Some("left"));
            assert!(way_to("10.9.1.2".parse().unwrap(), &links_here()).unwrap().is_local);
            let network = ("br0".to_string(), "10.9.1.0/24".parse().unwrap());
            assert_eq!(networks(&links_here()).unwrap(), [network]);
            run("ip route add unreachable 203.0.113.0/24");
            assert_eq!(way_to(far, &links_here()), None);
            // A part of a network may lie elsewhere: it is not the way of the whole.
            run("ip route add 10.2.0.0/24 dev right");
            let whole = way_of("10.2.0.0/16".parse().unwrap(), &links_here()).unwrap();
            assert_eq!(whole.device, "br0");
        });
    }

    #[test]
    fn links_name_kind_and_bridge() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            run("ip link set dev right mtu 1460");
            run("ip tuntap add dev tun0 mode tun");
            run("tc qdisc add dev right root pfifo limit 100");
            let mut links = links_here();
            links.iter_mut().for_each(|(_, link)| look_at(link));
            let link = |name: &str| links.iter().find(|(_, it)| it.name == name).unwrap().1.clone();
            assert_eq!((link("left").kind.as_str(), link("br0").kind.as_str()), ("veth", "bridge"));
            assert_eq!(link("left").bridge.as_deref(), Some("br0"));
            assert_eq!((link("right").mtu, link("right").bridge), (1460, None));
            assert_eq!(link("right").foreign_qdisc.as_deref(), Some("pfifo"));
            assert_eq!((link("tun0").kind.as_str(), link("tun0").is_ethernet), ("tun", false));
        });
    }

    #[test]
    fn cut_messages_are_skipped() {
        on_a_veth_pair(|| {
            let links = links_here();
            for message in netlink::dump(RTM_GETLINK, &[0; LINK_HEADER]).unwrap() {
                for len in 0..message.len() {
                    let _ = parse_link(&message[..len]);
                }
            }
            for message in netlink::dump(RTM_GETROUTE, &[0; ROUTE_HEADER]).unwrap() {
                for len in 0..message.len() {
                    let _ = network_of(&message[..len], &links);
                }
            }
            assert_eq!(neighbour_of(&[0; HEADER + NEIGHBOUR_HEADER - 1]), None);
        });
    }
}
