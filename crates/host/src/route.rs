//! Where this machine routes packets, as the tables of the current network namespace say (rtnetlink(7)). Packets with a
//! mark, or of a source that a rule names, may take another way: [`policy_rules`] names the rules.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use nix::net::if_::if_indextoname;

use crate::netlink::{self, HEADER, all_attributes, attribute, attribute_of};
use crate::triangle::{PLAIN_MARK, PROTOCOL};

// include/uapi/linux/rtnetlink.h
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_GETRULE: u16 = 34;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
const RTA_MARK: u16 = 16;
/// The answer is the entry of the table, and not what a packet would make of it.
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTN_UNICAST: u8 = 1;
const RTPROT_KERNEL: u8 = 2;
/// Bytes of `struct rtmsg` and of `struct fib_rule_hdr`.
const ROUTE: usize = 12;
/// Bytes of `struct rtnexthop`.
const NEXT_HOP: usize = 8;
// include/uapi/linux/fib_rules.h
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
const FRA_PROTOCOL: u16 = 21;
/// Rules that every network namespace begins with, and the one of VRFs, by their priorities.
const DEFAULT_RULES: [u32; 4] = [0, 1000, 32_766, 32_767];

/// Routes that are looked through for longer prefixes: some 10 ms. A router with all of the Internet's has more, and
/// is asked for single addresses alone.
const ROUTES_MAX: usize = 1 << 14;

/// An entry of the routing tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Length of its prefix.
    pub prefix_len: u8,
    /// Devices of its next hops, one for each hop; empty: packets go no further, or to this machine.
    pub devices: Vec<u32>,
}

impl Route {
    /// `None`: the message is of no route, or is cut off.
    fn parse(message: &[u8]) -> Option<(Option<IpAddr>, Self)> {
        let is_route = message.get(4..6)? == RTM_NEWROUTE.to_ne_bytes();
        let body = message.get(HEADER..).filter(|_| is_route)?;
        let (head, attributes) = (body.get(..ROUTE)?, body.get(ROUTE..)?);
        let (prefix_len, kind) = (head[1], head[7]);
        let mut devices = Vec::new();
        if kind == RTN_UNICAST {
            devices.extend(attribute(attributes, RTA_OIF).and_then(index));
            devices.extend(attribute(attributes, RTA_MULTIPATH).into_iter().flat_map(hops));
        }
        let to = attribute(attributes, RTA_DST).and_then(address);
        Some((to, Self { prefix_len, devices }))
    }

    /// Whether all packets leave through the device, and there is one.
    pub fn is_through(&self, device: u32) -> bool {
        !self.devices.is_empty() && self.devices.iter().all(|hop| *hop == device)
    }

    /// Where packets go, for people.
    pub fn way(&self) -> String {
        let names: BTreeSet<String> = self.devices.iter().map(|index| name(*index)).collect();
        let names: Vec<String> = names.into_iter().collect();
        match (&names[..], self.devices.len()) {
            ([], _) => "nowhere".into(),
            (_, 1) => format!("through {}", names[0]),
            (_, hops) => format!("by {hops} next hops (multipath) through {}", names.join(", ")),
        }
    }
}

fn name(index: u32) -> String {
    if_indextoname(index)
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("device {index}"))
}

fn index(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(u32::from_ne_bytes)
}

fn address(payload: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(payload).ok().map(IpAddr::from);
    v4.or(<[u8; 16]>::try_from(payload).ok().map(IpAddr::from))
}

/// The devices of several next hops.
fn hops(mut rest: &[u8]) -> Vec<u32> {
    let mut devices = Vec::new();
    while let Some(hop) = rest.get(..NEXT_HOP) {
        let len = usize::from(u16::from_ne_bytes([hop[0], hop[1]]));
        devices.extend(index(&hop[4..]));
        rest = rest.get(len.max(NEXT_HOP).next_multiple_of(4)..).unwrap_or_default();
    }
    devices
}

/// The entry that packets of this machine to `to` take; `None`: there is none.
pub fn to(to: IpAddr) -> io::Result<Option<Route>> {
    let matched = ask(to, RTM_F_FIB_MATCH)?;
    match matched {
        // Next hops that are objects of their own are not told of where `nexthop_compat_mode` is off.
        Some(route) if route.devices.is_empty() => {
            Ok(ask(to, 0)?
                .map(|sent| Route { devices: sent.devices, prefix_len: route.prefix_len }))
        }
        matched => Ok(matched),
    }
}

fn ask(to: IpAddr, flags: u32) -> io::Result<Option<Route>> {
    let (family, octets) = match to {
        IpAddr::V4(to) => (libc::AF_INET, to.octets().to_vec()),
        IpAddr::V6(to) => (libc::AF_INET6, to.octets().to_vec()),
    };
    let mut request = vec![0; ROUTE];
    request[0] = family as u8;
    request[1] = 8 * octets.len() as u8;
    request[8..12].copy_from_slice(&flags.to_ne_bytes());
    request.extend(attribute_of(RTA_DST, &octets));
    // Past the triangle of a sendbox that takes what the machine itself sends.
    request.extend(attribute_of(RTA_MARK, &PLAIN_MARK.to_ne_bytes()));
    let answer = netlink::ask(RTM_GETROUTE, &request)?;
    match netlink::refusal(&answer) {
        Ok(()) => Ok(Route::parse(&answer).map(|(_, route)| route)),
        // No entry, or one that refuses (fib_props, net/ipv4/fib_semantics.c), and an address that is no host's.
        Err(error) => match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// The entry that packets to a prefix take but for parts of it that have entries of their own; `None`: there is none.
pub fn whole(prefix: IpNet) -> io::Result<Option<Route>> {
    let mut of_part = None;
    for sample in samples(prefix) {
        match to(sample)? {
            Some(route) if route.prefix_len > prefix.prefix_len() => of_part = Some(route),
            whole => return Ok(whole),
        }
    }
    let parts = parts(&[prefix])?;
    let behind = parts.iter().filter_map(|part| after(part.prefix.broadcast()));
    for sample in behind.filter(|it| prefix.contains(it)).take(PARTS_MAX) {
        // None is of a part that is refused, and that is no device's.
        if let Some(route) = to(sample)?.filter(|it| it.prefix_len <= prefix.prefix_len()) {
            return Ok(Some(route));
        }
    }
    // All of it is in parts, as of a tunnel that takes 0.0.0.0/1 and 128.0.0.0/1.
    Ok(of_part)
}

/// Parts of one prefix that are looked up, at the most.
const PARTS_MAX: usize = 64;
/// Addresses of [`samples`].
const SAMPLES: usize = 3;

/// Addresses of hosts that a prefix may have, from its start, its middle and its end.
fn samples(prefix: IpNet) -> impl Iterator<Item = IpAddr> {
    let (first, last) = (number(prefix.network()), number(prefix.broadcast()));
    let is_v4 = prefix.addr().is_ipv4();
    // What lies outside has no hosts: 0.0.0.0/8 and from 224.0.0.0 on, and all but 2000::/3 and fc00::/7.
    let (least, most) = match prefix.addr() {
        IpAddr::V4(_) => (0x0100_0000, 0xdfff_ffff),
        IpAddr::V6(_) if prefix.prefix_len() < 3 => (0x2000_u128 << 112, (0x4000_u128 << 112) - 1),
        IpAddr::V6(_) => (0, u128::MAX),
    };
    let (low, high) = (first.max(least), last.min(most));
    let is_wide = high.saturating_sub(low) > 2;
    let inner = if is_wide { [low + 1, low + (high - low) / 2 + 1, high - 1] } else { [low; 3] };
    let count = if low > high {
        0
    } else if is_wide {
        SAMPLES
    } else {
        1
    };
    inner.into_iter().take(count).map(move |number| of_number(number, is_v4))
}

/// The address after this one.
fn after(address: IpAddr) -> Option<IpAddr> {
    let next = number(address).checked_add(1)?;
    let is_v4 = address.is_ipv4();
    (!is_v4 || u32::try_from(next).is_ok()).then(|| of_number(next, is_v4))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn of_number(number: u128, is_v4: bool) -> IpAddr {
    if is_v4 { Ipv4Addr::from(number as u32).into() } else { Ipv6Addr::from(number).into() }
}

/// A part of a prefix that the tables have an entry for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The part.
    pub prefix: IpNet,
    /// What it is a part of.
    pub of: IpNet,
    /// The network of a device of this machine, and no route of an operator or a protocol.
    pub is_attached: bool,
}

/// Parts of these prefixes that the tables have entries for, in whichever table. More than `ROUTES_MAX` routes are not
/// looked through.
pub fn parts(prefixes: &[IpNet]) -> io::Result<Vec<Part>> {
    let known: BTreeSet<IpNet> = prefixes.iter().copied().collect();
    let lengths: BTreeSet<u8> = prefixes.iter().map(IpNet::prefix_len).collect();
    let mut parts = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let is_asked = |prefix: &IpNet| prefix.addr().is_ipv4() == (family == libc::AF_INET);
        if !prefixes.iter().any(is_asked) {
            continue;
        }
        let mut request = vec![0; ROUTE];
        request[0] = family as u8;
        let mut left = ROUTES_MAX;
        netlink::find(RTM_GETROUTE, &request, |message| {
            let (to, route) = Route::parse(message)?;
            let is_attached = message.get(HEADER + 5) == Some(&RTPROT_KERNEL);
            let to = to.filter(|_| !route.devices.is_empty());
            if let Some(prefix) = to.and_then(|to| IpNet::new(to, route.prefix_len).ok()) {
                let shorter = lengths.iter().filter(|length| **length < route.prefix_len);
                let around = shorter.filter_map(|length| IpNet::new(prefix.addr(), *length).ok());
                let around = around.map(|net| net.trunc()).filter(|net| known.contains(net));
                parts.extend(around.map(|of| Part { prefix, of, is_attached }));
            }
            left -= 1;
            (left == 0).then_some(())
        })?;
    }
    Ok(parts)
}

/// Rules beside those that every network namespace begins with, for people.
pub fn policy_rules() -> io::Result<Vec<String>> {
    let mut rules = BTreeSet::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = vec![0; ROUTE];
        request[0] = family as u8;
        let told = match netlink::dump(RTM_GETRULE, &request) {
            Ok(told) => told,
            // A kernel without policy routing, or without this IP version.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
            Err(error) => return Err(error),
        };
        rules.extend(told.iter().filter_map(|message| rule(message.get(HEADER..)?)));
    }
    Ok(rules.into_iter().map(|(_, rule)| rule).collect())
}

/// Priority and words of a rule; `None`: every network namespace begins with it.
fn rule(body: &[u8]) -> Option<(u32, String)> {
    let (head, attributes) = (body.get(..ROUTE)?, body.get(ROUTE..)?);
    let [_, to_len, from_len, _, table, ..] = *head else { return None };
    if attribute(attributes, FRA_PROTOCOL) == Some(&[PROTOCOL]) {
        // Of the triangle of a sendbox, which leads packets back.
        return None;
    }
    let word = |kind| attribute(attributes, kind).and_then(index);
    let priority = word(FRA_PRIORITY).unwrap_or(0);
    let table = word(FRA_TABLE).unwrap_or(table.into());
    if DEFAULT_RULES.contains(&priority) && all_attributes(attributes).all(|(it, _)| it != FRA_SRC)
    {
        return None;
    }
    let prefix = |kind, len| {
        attribute(attributes, kind).and_then(address).map(|address| format!("{address}/{len}"))
    };
    let text = |kind| {
        let bytes = attribute(attributes, kind)?;
        Some(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string())
    };
    let selectors = [
        prefix(FRA_SRC, from_len).map(|it| format!(" from {it}")),
        prefix(FRA_DST, to_len).map(|it| format!(" to {it}")),
        text(FRA_IIFNAME).map(|it| format!(" iif {it}")),
        text(FRA_OIFNAME).map(|it| format!(" oif {it}")),
        word(FRA_FWMARK).map(|it| format!(" fwmark {it:#x}")),
    ];
    let selectors: String = selectors.into_iter().flatten().collect();
    Some((priority, format!("{priority}:{selectors} table {table}")))
}

/// Whether the machine forwards packets of an IP version that come in through `from`, or, if that is not said, through
/// any device.
pub fn forwards(is_v4: bool, from: Option<&str>) -> io::Result<bool> {
    let is_set = |file: &str| Ok(fs::read_to_string(file)?.trim() != "0");
    if is_v4 {
        let device = from.unwrap_or("all");
        return is_set(&format!("/proc/sys/net/ipv4/conf/{device}/forwarding"));
    }
    // Since Linux 6.17 a device alone may be set to forward.
    let forced = format!("/proc/sys/net/ipv6/conf/{}/force_forwarding", from.unwrap_or("all"));
    Ok(is_set("/proc/sys/net/ipv6/conf/all/forwarding")? || is_set(&forced).unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn samples_of(text: &str) -> Vec<String> {
        samples(net(text)).map(|it| it.to_string()).collect()
    }

    #[test]
    fn samples_are_hosts_of_the_prefix() {
        assert_eq!(samples_of("10.2.0.0/16"), ["10.2.0.1", "10.2.128.0", "10.2.255.254"]);
        assert_eq!(samples_of("10.2.0.7/32"), ["10.2.0.7"]);
        assert_eq!(samples_of("0.0.0.0/0")[0], "1.0.0.1");
        assert_eq!(samples_of("0.0.0.0/0").len(), 3);
        assert_eq!(samples_of("2001:db8::/48")[0], "2001:db8::1");
        assert_eq!(samples_of("::/0")[0], "2000::1");
        assert!(samples_of("224.0.0.0/4").is_empty());
    }

    /// Two devices with addresses, of which both ends are here.
    fn on_two_devices(test: impl FnOnce() + Send + 'static) {
        on_a_veth_pair(|| {
            run("ip link add other type veth peer name rehto");
            for device in ["lo", "left", "right", "other", "rehto"] {
                run(&format!("ip link set dev {device} up"));
            }
            run("ip address add 192.0.2.1/24 dev left");
            run("ip address add 198.51.100.1/24 dev other");
            run("ip -6 address add 2001:db8:1::1/64 dev left nodad");
            test();
        });
    }

    fn way(prefix: &str) -> Option<String> {
        whole(net(prefix)).unwrap().map(|route| route.way())
    }

    #[test]
    fn prefixes_leave_where_the_tables_say() {
        on_two_devices(|| {
            let [left, other] = ["left", "other"].map(|it| Some(format!("through {it}")));
            assert_eq!(way("10.2.0.0/16"), None);
            run("ip route add default via 192.0.2.2");
            assert_eq!(way("10.2.0.0/16"), left);
            for part in ["10.2.0.0/24", "10.2.128.0/24", "10.2.255.0/24"] {
                run(&format!("ip route add {part} via 198.51.100.2"));
            }
            assert_eq!(way("10.2.0.0/16"), left, "all samples lie in parts");
            assert_eq!(way("10.2.128.0/24"), other);
            let found = parts(&[net("10.2.0.0/16"), net("198.51.0.0/16")]).unwrap();
            let part =
                |prefix, of, is_attached| Part { prefix: net(prefix), of: net(of), is_attached };
            assert!(found.contains(&part("10.2.128.0/24", "10.2.0.0/16", false)), "{found:?}");
            assert!(found.contains(&part("198.51.100.0/24", "198.51.0.0/16", true)), "{found:?}");
            assert_eq!(found.len(), 4, "{found:?}");
            run("ip route add 10.0.0.0/8 via 198.51.100.2");
            assert_eq!(way("10.2.0.0/16"), other);
            run("ip route del 10.0.0.0/8");
            run("ip route add blackhole 10.0.0.0/8");
            assert_eq!(way("10.3.0.0/16"), None);
            // A tunnel's way to have all without a default route of its own.
            run("ip route add 0.0.0.0/1 dev other");
            run("ip route add 128.0.0.0/1 dev other");
            assert_eq!(way("0.0.0.0/0"), other);
            assert_eq!(way("2001:db8:2::/48"), None);
            run("ip -6 route add 2001:db8:2::/48 via 2001:db8:1::2");
            assert_eq!(way("2001:db8:2::/48"), left);
        });
    }

    #[test]
    fn several_next_hops_are_named() {
        on_two_devices(|| {
            run("ip route add 10.2.0.0/16 nexthop via 192.0.2.2 nexthop via 198.51.100.2");
            let named = "by 2 next hops (multipath) through left, other";
            assert_eq!(way("10.2.0.0/16").unwrap(), named);
            run("ip route replace 10.2.0.0/16 nexthop via 192.0.2.2 nexthop via 192.0.2.3");
            let route = to("10.2.0.1".parse().unwrap()).unwrap().unwrap();
            assert_eq!(route.devices.len(), 2);
            assert!(route.is_through(nix::net::if_::if_nametoindex("left").unwrap()));
        });
    }

    #[test]
    fn rules_are_followed_and_named() {
        on_two_devices(|| {
            assert_eq!(policy_rules().unwrap(), [""; 0]);
            run("ip route add default via 192.0.2.2");
            run("ip route add default via 198.51.100.2 table 100");
            run("ip rule add from 10.1.0.0/16 fwmark 7 table 100 priority 90");
            assert_eq!(policy_rules().unwrap(), ["90: from 10.1.0.0/16 fwmark 0x7 table 100"]);
            assert_eq!(way("10.2.0.0/16"), Some("through left".into()));
            run("ip rule add to 10.2.0.0/16 table 100 priority 80");
            assert_eq!(way("10.2.0.0/16"), Some("through other".into()));
        });
    }

    #[test]
    fn forwarding_is_asked_by_ip_version() {
        on_two_devices(|| {
            run("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
            assert_eq!([true, false].map(|is_v4| forwards(is_v4, None).unwrap()), [false; 2]);
            run("sysctl -qw net.ipv4.ip_forward=1");
            assert_eq!([true, false].map(|it| forwards(it, None).unwrap()), [true, false]);
            run("sysctl -qw net.ipv4.conf.left.forwarding=0");
            assert!(!forwards(true, Some("left")).unwrap());
            run("sysctl -qw net.ipv6.conf.all.forwarding=1");
            assert!(forwards(false, Some("left")).unwrap());
        });
    }
}
