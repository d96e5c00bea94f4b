//! One gateway with one NIC for all sites on the left, as in a cloud: the fabric passes their packets to
//! it.
//!
//! ```text
//!  left hosts 0 ── hosts0 ┐                    ┌ link0 ── emulator ── right box 0 ── right hosts 0
//!  left hosts 1 ── hosts1 ┤       fabric       ├ link1 ── emulator ── right box 1 ── right hosts 1
//!  left hosts n ── hostsn ┘  gateway (a port)  └ linkn ──    ..
//!                               │ one cable
//!                            gateway: eth0 with a /32, which forwards
//! ```
//! Returning packets go from the fabric to the hosts without the gateway. Neighbours are fixed as in
//! [`topology`](super::topology); the hosts reach all other addresses through the fabric.

use super::TestbedError;
use super::namespace::Namespace;
use super::processors::Processors;
use super::topology::{PairSites, STEERING, Site, ip, plain, second_byte, set, step};

/// The gateway's only NIC.
pub(crate) const NIC: &str = "eth0";
/// The fabric's port towards it.
pub(crate) const GATEWAY_PORT: &str = "gateway";
/// Next hop of all packets from the gateway.
const ROUTER: &str = "10.255.255.254";
/// Layer-2 address of the gateway's end of the cable to the fabric.
const GATEWAY_MAC: &str = "02:01:ff:00:00:01";
/// Layer-2 address of the fabric's end of that cable.
const ROUTER_MAC: &str = "02:01:ff:00:00:02";
/// Routing table for packets from hosts.
const TABLE: u32 = 100;

/// Settings of gateway and fabric: both forward and send no redirects.
const FORWARDING: [(&str, &str); 3] = [
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
];

/// The fabric's port towards the hosts of `pair`.
pub(crate) fn hosts_port(pair: usize) -> String {
    format!("hosts{pair}")
}

/// The fabric's port towards the emulator.
pub(crate) fn link_port(pair: usize) -> String {
    format!("link{pair}")
}

/// The site whose address the gateway has: the box of the first pair.
const GATEWAY: Site = Site::LeftBox;

/// Makes the gateway, which takes the place of the boxes on the left, and the fabric.
pub(crate) fn weave(
    pairs: &mut [PairSites],
    processors: Option<&Processors>,
) -> Result<Namespace, TestbedError> {
    let others = processors.map(|processors| (STEERING, processors.others.as_str()));
    let settings: Vec<_> = others.into_iter().chain(FORWARDING).collect();
    let (fabric, gateway) = (forwarding("fabric", &settings)?, forwarding("gateway", &settings)?);
    let address = GATEWAY.address(0);
    let lines = format!(
        "link add {GATEWAY_PORT} address {ROUTER_MAC} type veth peer name {NIC} address {GATEWAY_MAC} netns {}\n\
         link set dev {GATEWAY_PORT} up\n\
         route add {address}/32 dev {GATEWAY_PORT}\n\
         neighbour add {address} lladdr {GATEWAY_MAC} dev {GATEWAY_PORT} nud permanent\n\
         route add default via {address} dev {GATEWAY_PORT} onlink table {TABLE}\n",
        gateway.path().display()
    );
    ip("fabric", &fabric, &lines)?;
    let lines = format!(
        "link set dev {NIC} up\n\
         address add {address}/32 dev {NIC}\n\
         route add {ROUTER}/32 dev {NIC}\n\
         neighbour add {ROUTER} lladdr {ROUTER_MAC} dev {NIC} nud permanent\n\
         route add default via {ROUTER} dev {NIC} onlink\n"
    );
    ip("gateway", &gateway, &lines)?;
    for (pair, sites) in pairs.iter_mut().enumerate() {
        join(pair, sites, &fabric)?;
        sites.left_box = gateway.try_clone().map_err(step("share a namespace", "gateway"))?;
    }
    Ok(fabric)
}

fn forwarding(place: &'static str, settings: &[(&str, &str)]) -> Result<Namespace, TestbedError> {
    let namespace = plain(place, settings)?;
    let written = namespace.within(|| settings.iter().try_for_each(|(key, value)| set(key, value)));
    written.map_err(step("write settings", place))?;
    Ok(namespace)
}

/// Moves the cables of a box on the left into the fabric, and updates the neighbours at their other ends.
fn join(pair: usize, sites: &PairSites, fabric: &Namespace) -> Result<(), TestbedError> {
    let [hosts_mac, link_mac] =
        [1, 2].map(|port| format!("02:01:0a:{:02x}:00:{port:02x}", second_byte(pair)));
    let (hosts, link) = (hosts_port(pair), link_port(pair));
    let netns = fabric.path();
    let netns = netns.display();
    let lines = format!(
        "link del br0\n\
         link set dev lan down\n\
         link set dev wan down\n\
         link set dev lan netns {netns} name {hosts}\n\
         link set dev wan netns {netns} name {link}\n"
    );
    ip("left box", &sites.left_box, &lines)?;
    let mut lines = format!(
        "link set dev {hosts} address {hosts_mac}\n\
         link set dev {link} address {link_mac}\n\
         link set dev {hosts} up\n\
         link set dev {link} up\n\
         rule add iif {hosts} lookup {TABLE}\n"
    );
    let ports = [(Site::LeftHosts, &hosts), (Site::RightHosts, &link), (Site::RightBox, &link)];
    for (site, port) in ports {
        let (address, mac) = (site.address(pair), site.mac(pair));
        lines += &format!(
            "route add {address}/32 dev {port}\n\
             neighbour add {address} lladdr {mac} dev {port} nud permanent\n"
        );
    }
    ip("fabric", fabric, &lines)?;
    let is_at = |mac: &str, device: &str, others: &[Site]| -> String {
        let line = |site: &Site| {
            let address = site.address(pair);
            format!("neighbour replace {address} lladdr {mac} dev {device} nud permanent\n")
        };
        others.iter().map(line).collect()
    };
    let beyond = [Site::RightHosts, Site::RightBox];
    ip("left hosts", &sites.left_hosts, &is_at(&hosts_mac, "eth0", &beyond))?;
    let beyond = [Site::LeftHosts, Site::LeftBox];
    ip("right hosts", &sites.right_hosts, &is_at(&link_mac, "eth0", &beyond))?;
    let mut lines = is_at(&link_mac, "br0", &beyond);
    if pair > 0 {
        let gateway = GATEWAY.address(0);
        lines += &format!(
            "route add {gateway}/32 dev br0\n\
             neighbour add {gateway} lladdr {link_mac} dev br0 nud permanent\n"
        );
    }
    ip("right box", &sites.right_box, &lines)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::tests::skip_without_root;
    use crate::topology::{Topology, left_port, right_port};

    #[test]
    fn gateway_forwards_for_all_pairs() {
        if skip_without_root() {
            return;
        }
        let mut topology = Topology::build(2, None).unwrap();
        topology.route(None).unwrap();
        for pair in 0..2 {
            let lines = format!(
                "link add name br{pair} type bridge forward_delay 0\nlink set dev br{pair} up\n\
                 link set dev {} master br{pair}\nlink set dev {} master br{pair}\n",
                left_port(pair),
                right_port(pair),
            );
            ip("emulator", &topology.emulator, &lines).unwrap();
        }
        let forwarded = |topology: &Topology| {
            let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
            let table = topology.pairs[0].left_box.within(read).unwrap();
            let row = table.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap();
            row.split(' ').nth(6).unwrap().parse::<u64>().unwrap()
        };
        for pair in 0..2 {
            let sites = &topology.pairs[pair];
            let bind = |hosts: &Namespace, site: Site| {
                hosts.within(|| UdpSocket::bind((site.address(pair), 7000))).unwrap()
            };
            let from = bind(&sites.left_hosts, Site::LeftHosts);
            let to = bind(&sites.right_hosts, Site::RightHosts);
            for socket in [&from, &to] {
                socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            }
            let before = forwarded(&topology);
            from.send_to(b"there", (Site::RightHosts.address(pair), 7000)).unwrap();
            let mut bytes = [0; 8];
            let (_, source) = to.recv_from(&mut bytes).unwrap();
            to.send_to(b"back", source).unwrap();
            from.recv_from(&mut bytes).unwrap();
            assert_eq!(forwarded(&topology) - before, 1, "there, and not back");
            // The boxes reach each other, too.
            let right =
                sites.right_box.within(|| UdpSocket::bind((Site::RightBox.address(pair), 7001)));
            let right = right.unwrap();
            right.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let gateway =
                sites.left_box.within(|| UdpSocket::bind((GATEWAY.address(0), 0))).unwrap();
            gateway.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            gateway.send_to(b"there", right.local_addr().unwrap()).unwrap();
            let (_, source) = right.recv_from(&mut bytes).unwrap();
            right.send_to(b"back", source).unwrap();
            gateway.recv_from(&mut bytes).unwrap();
        }
    }
}
