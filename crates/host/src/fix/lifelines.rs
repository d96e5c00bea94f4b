//! Devices that a remote operator, and the boxes themselves, depend on.
//!
//! The routes come from the kernel over rtnetlink(7), in the current network namespace. Devices below a lifeline, such
//! as the ports of a bridge, are lifelines too.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_indextoname;

use crate::lower;
use crate::netlink::Commands;
use crate::{route, rtnetlink};

/// Devices that must not be cut off, with the reason for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifelines(BTreeMap<String, String>);

/// Most ancestors of this process whose environment is searched for an SSH connection.
const ANCESTORS_MAX: usize = 32;

impl Lifelines {
    /// The lifelines of the current network namespace. A lifeline has a default route, a route to one of `peers`, or
    /// the address of the SSH connection that started this process. Routes that the kernel does not report are left
    /// out.
    pub fn here(peers: &[IpAddr]) -> Self {
        Self::with_ssh(peers, ssh_connection().as_deref())
    }

    /// As [`Lifelines::here`], with this value of `SSH_CONNECTION` (ssh(1)).
    pub fn with_ssh(peers: &[IpAddr], ssh_connection: Option<&str>) -> Self {
        let mut lifelines = Self::default();
        for index in default_routes().unwrap_or_default() {
            lifelines.add_index(index, "carries the default route");
        }
        for peer in peers {
            for index in route_to(*peer).unwrap_or_default() {
                lifelines.add_index(index, &format!("carries the route to the peer {peer}"));
            }
        }
        if let Some((client, own)) = ssh_connection.and_then(ends_of) {
            for device in devices_with(own) {
                lifelines.add(&device, &format!("has the address {own} of this SSH connection"));
            }
            for index in route_to(client).unwrap_or_default() {
                lifelines.add_index(index, "carries the route back of this SSH connection");
            }
        }
        lifelines
    }

    /// One device, for this reason.
    #[cfg(test)]
    pub fn holding(device: &str, why: &str) -> Self {
        Self([(device.into(), why.into())].into())
    }

    /// Why `device` must not be cut off; `None`: cutting it off is harmless.
    pub fn of(&self, device: &str) -> Option<&str> {
        self.0.get(device).map(String::as_str)
    }

    fn add_index(&mut self, index: u32, why: &str) {
        // The loopback device, index 1, never becomes a port.
        if let Some(name) = if_indextoname(index).ok().and_then(|name| name.into_string().ok()) {
            self.add(&name, why);
        }
    }

    fn add(&mut self, device: &str, why: &str) {
        for lower in lower::below(device).unwrap_or_default() {
            self.0.entry(lower).or_insert_with(|| format!("is below {device}, which {why}"));
        }
        self.0.entry(device.into()).or_insert_with(|| why.into());
    }
}

/// Devices of all default routes, in any table.
fn default_routes() -> io::Result<Vec<u32>> {
    let kernel = Commands::open()?;
    let mut devices = Vec::new();
    for family in rtnetlink::FAMILIES {
        let routes = kernel.routes(family)?.into_iter();
        let to_everywhere = routes.filter(|route| route.header.destination_prefix_length == 0);
        devices.extend(to_everywhere.flat_map(|route| rtnetlink::devices(&route)));
    }
    Ok(devices)
}

/// The devices that packets to `address` leave through.
fn route_to(address: IpAddr) -> io::Result<Vec<u32>> {
    Ok(route::to(address)?.map_or_else(Vec::new, |route| route.devices))
}

/// Names of the devices with this address.
fn devices_with(address: IpAddr) -> Vec<String> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let has_it = |of: &nix::ifaddrs::InterfaceAddress| {
        let of = of.address.as_ref()?;
        let v4 = of.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let own = v4.or(of.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
        Some(own == address)
    };
    let found = interfaces.filter(|of| has_it(of) == Some(true));
    found.map(|of| of.interface_name).collect()
}

/// Client and server address of an `SSH_CONNECTION`: client, its port, server, its port.
fn ends_of(connection: &str) -> Option<(IpAddr, IpAddr)> {
    let mut words = connection.split_whitespace();
    // A link-local address has its link after a `%`; IPv4 may come as IPv6.
    let address = |word: &str| {
        let address: IpAddr = word.split('%').next()?.parse().ok()?;
        Some(address.to_canonical())
    };
    let client = address(words.next()?)?;
    Some((client, address(words.nth(1)?)?))
}

/// The `SSH_CONNECTION` of this process or of one of its ancestors: sudo(8) removes it from the environment.
fn ssh_connection() -> Option<String> {
    /// Variable in which sshd(8) names both ends of a connection.
    const NAME: &str = "SSH_CONNECTION";
    if let Ok(own) = std::env::var(NAME) {
        return Some(own);
    }
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..ANCESTORS_MAX {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        let found = variables.find_map(|it| it.strip_prefix(b"SSH_CONNECTION="));
        if let Some(found) = found {
            return String::from_utf8(found.to_vec()).ok();
        }
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        process = parent.trim().parse().ok().filter(|parent| *parent != 0)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn devices_with_routes_or_ssh_are_lifelines() {
        on_a_veth_pair(|| {
            let peer = ["198.51.100.2".parse().unwrap()];
            let ssh = Some("203.0.113.7 50000 192.0.2.2 22");
            assert_eq!(Lifelines::with_ssh(&peer, ssh), Lifelines::default());
            run("ip address add 192.0.2.2/24 dev left");
            run("ip address add 2001:db8::2/64 dev right nodad");
            let of = |peers: &[IpAddr], ssh: Option<&str>, device: &str| {
                Lifelines::with_ssh(peers, ssh).of(device).map(String::from)
            };
            let has = |found: Option<String>, what: &str| found.is_some_and(|it| it.contains(what));
            assert_eq!(of(&peer, None, "left"), None);
            assert!(has(of(&[], ssh, "left"), "192.0.2.2 of this SSH connection"));
            assert!(has(of(&[], Some("fe80::1%x 5 2001:db8::2 22"), "right"), "SSH"));
            assert_eq!(of(&[], Some("no address"), "left"), None);
            run("ip route add 198.51.100.0/24 via 192.0.2.1");
            assert!(has(of(&peer, None, "left"), "the route to the peer 198.51.100.2"));
            assert_eq!(of(&[], None, "left"), None);
            run("ip route add default nexthop via 192.0.2.1 nexthop via 192.0.2.3");
            assert!(has(of(&[], None, "left"), "the default route"));
            run("ip -6 route add default dev right table 77");
            assert!(has(of(&[], None, "right"), "the default route"));
        });
    }

    #[test]
    fn ports_below_a_lifeline_are_lifelines() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            run("ip link set dev br0 up");
            run("ip route add default dev br0");
            let lifelines = Lifelines::with_ssh(&[], None);
            assert_eq!(lifelines.of("br0"), Some("carries the default route"));
            assert_eq!(lifelines.of("left"), Some("is below br0, which carries the default route"));
            assert_eq!(lifelines.of("right"), None);
        });
    }
}
