//! Queries the kernel for the network of this machine, as far as a configuration depends on it. This covers
//! devices, routes, connected networks, and the bridge port at which the next hop was last seen. Nothing is
//! sent or changed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use serde::Serialize;

use super::Wanted;
use crate::daemon::observer::names::look_up;
use crate::egress;
use crate::filters;
use crate::kernel;
use crate::netlink::Commands;
use crate::offload::{self, Offload};
use crate::route;
use crate::rtnetlink::{self, first};

/// The results. If a query fails, its result is absent; the survey never fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Release of the kernel, such as `6.18.44`.
    pub release: String,
    /// Whether the machine forwards IPv4, and IPv6.
    pub forwards: [bool; 2],
    /// All devices.
    pub links: Vec<SurveyedLink>,
    /// Networks that are connected to a device, without link-local networks and networks of one address.
    pub networks: Vec<(String, IpNet)>,
    /// The way to the other box.
    pub peer: Option<Way>,
    /// The reason why there is no way to the other box.
    pub peer_problem: String,
    /// Prefixes at the other site, and the way to each.
    pub far: Vec<(IpNet, Option<Way>)>,
    /// A cause for changed sources of routed packets, such as a chain of nftables.
    pub source_nat: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SurveyedLink {
    /// Device name.
    pub name: String,
    /// Kind as in ip(8), such as `bridge` or `wireguard`; empty: hardware, or a device without a kind.
    pub kind: String,
    /// Whether its packets have Ethernet headers.
    pub is_ethernet: bool,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// The bridge that has it as a port.
    pub bridge: Option<String>,
    /// The qdisc at its root that is not the kernel's default.
    pub foreign_qdisc: Option<String>,
    /// Active offloads that change packets on their way up or down.
    pub offloads: Vec<String>,
}

/// A way to another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The device that packets leave through.
    pub device: String,
    /// The default source address of packets from this machine.
    pub source: Option<IpAddr>,
    /// The destination is this machine's own address.
    pub is_local: bool,
    /// The port of a bridge at which the bridge last saw the next hop.
    pub port: Option<String>,
}

impl Survey {
    /// Queries the kernel, in the current network namespace.
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
            source_nat: filters::of_source_nat().ok().flatten(),
        }
    }

    /// The device of this name.
    pub fn link(&self, name: &str) -> Option<&SurveyedLink> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The ports of a bridge.
    pub fn ports(&self, bridge: &str) -> impl Iterator<Item = &SurveyedLink> {
        self.links.iter().filter(move |link| link.bridge.as_deref() == Some(bridge))
    }
}

/// The first address of a name.
fn resolved(name: &str) -> Result<IpAddr, String> {
    let found = look_up(name);
    let problem = found.problem.unwrap_or_else(|| "it has no address".into());
    found.addresses.first().copied().ok_or_else(|| format!("{name}: {problem}"))
}

/// A host in a network, for a route query: the first one. For a prefix of all addresses it is a documentation
/// address (RFC 5737, RFC 3849), so that the query finds the default route.
fn host_in(prefix: &IpNet) -> IpAddr {
    match prefix {
        IpNet::V4(all) if all.prefix_len() == 0 => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpNet::V6(all) if all.prefix_len() == 0 => {
            Ipv6Addr::from_bits(0x2001_0db8 << 96 | 1).into()
        }
        prefix => prefix.hosts().next().unwrap_or(prefix.addr()),
    }
}

/// Adds data that the kernel's message about a link does not contain.
fn look_at(link: &mut SurveyedLink) {
    let root = egress::root_qdisc(&link.name).ok().flatten();
    link.foreign_qdisc = root.filter(egress::RootQdisc::is_foreign).map(|qdisc| qdisc.kind);
    let is_on = |offload: &Offload| offload::is_on(&link.name, *offload).unwrap_or(false);
    let on = Offload::ALL.into_iter().filter(is_on);
    link.offloads = on.map(|offload| offload.name().to_string()).collect();
}

/// All devices, with their indices.
fn links() -> io::Result<Vec<(u32, SurveyedLink)>> {
    let links = rtnetlink::links()?;
    let is_bridge = |link: &&LinkMessage| rtnetlink::kind(link) == Some(&InfoKind::Bridge);
    let surveyed = |link: &LinkMessage| {
        let master = first!(link.attributes, LinkAttribute::Controller);
        let master = links.iter().find(|it| Some(&it.header.index) == master);
        let bridge = master.filter(is_bridge).and_then(name);
        let kind = rtnetlink::kind(link).map(ToString::to_string).unwrap_or_default();
        let surveyed = SurveyedLink {
            name: name(link)?,
            kind,
            is_ethernet: link.header.link_layer_type == LinkLayerType::Ether,
            mtu: *first!(link.attributes, LinkAttribute::Mtu)?,
            bridge,
            ..SurveyedLink::default()
        };
        Some((link.header.index, surveyed))
    };
    Ok(links.iter().filter_map(surveyed).collect())
}

fn name(link: &LinkMessage) -> Option<String> {
    first!(link.attributes, LinkAttribute::IfName).cloned()
}

/// The way that packets of this machine to `address` take; `None`: there is no route.
fn way_to(address: IpAddr, links: &[(u32, SurveyedLink)]) -> Option<Way> {
    let route = rtnetlink::route(&rtnetlink::about_route(address, &[])).ok()?;
    let index = *first!(route.attributes, RouteAttribute::Oif)?;
    let device = links.iter().find(|(own, _)| *own == index)?.1.name.clone();
    let kind = route.header.kind;
    if ![RouteType::Unicast, RouteType::Local].contains(&kind) {
        return None;
    }
    let gateway = first!(route.attributes, RouteAttribute::Gateway).and_then(rtnetlink::address);
    Some(Way {
        device,
        source: first!(route.attributes, RouteAttribute::PrefSource).and_then(rtnetlink::address),
        is_local: kind == RouteType::Local,
        port: port_to(gateway.unwrap_or(address), index, links),
    })
}

/// The way that packets to a network take, except for parts of the network with their own routes.
fn way_of(prefix: IpNet, links: &[(u32, SurveyedLink)]) -> Option<Way> {
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

/// The port at which the bridge with this index last saw a neighbour.
fn port_to(neighbour: IpAddr, bridge: u32, links: &[(u32, SurveyedLink)]) -> Option<String> {
    let is_it = |entry: &NeighbourMessage| {
        let destination = NeighbourAttribute::Destination(neighbour.into());
        entry.header.ifindex == bridge && entry.attributes.contains(&destination)
    };
    let neighbours = rtnetlink::neighbours(rtnetlink::family_of(&neighbour.into())).ok()?;
    let neighbour = neighbours.into_iter().find(is_it)?;
    let station = first!(neighbour.attributes, NeighbourAttribute::LinkLayerAddress)?;
    let station = NeighbourAttribute::LinkLayerAddress(station.clone());
    let (_, bridge) = links.iter().find(|(index, _)| *index == bridge)?;
    rtnetlink::neighbours(AddressFamily::Bridge).ok()?.into_iter().find_map(|entry| {
        let port = &links.iter().find(|(own, _)| *own == entry.header.ifindex)?.1;
        let is_it =
            port.bridge.as_ref() == Some(&bridge.name) && entry.attributes.contains(&station);
        is_it.then(|| port.name.clone())
    })
}

/// The networks that the kernel routes directly to a device, because the device has an address in them.
fn networks(links: &[(u32, SurveyedLink)]) -> io::Result<Vec<(String, IpNet)>> {
    let kernel = Commands::open()?;
    let mut networks = Vec::new();
    for family in rtnetlink::FAMILIES {
        let routes = kernel.routes(family)?;
        networks.extend(routes.iter().filter_map(|route| network_of(route, links)));
    }
    networks.sort();
    networks.dedup();
    Ok(networks)
}

fn network_of(route: &RouteMessage, links: &[(u32, SurveyedLink)]) -> Option<(String, IpNet)> {
    let header = &route.header;
    // Only IPv4 has scopes: IPv6 routes have the scope "universe".
    let is_direct =
        header.scope == RouteScope::Link || header.address_family == AddressFamily::Inet6;
    let is_connected = header.table == RouteHeader::RT_TABLE_MAIN
        && header.protocol == RouteProtocol::Kernel
        && header.kind == RouteType::Unicast;
    let index = *first!(route.attributes, RouteAttribute::Oif)?;
    let device = &links.iter().find(|(own, _)| *own == index)?.1;
    let prefix = rtnetlink::prefix(route)?;
    let is_network = prefix.prefix_len() < prefix.max_prefix_len();
    let is_wider = match prefix.addr() {
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

    fn links_here() -> Vec<(u32, SurveyedLink)> {
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
            // A part of a network may have another route, which is not the way of the whole.
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
}
