//! Routes of this machine in the tables of the current network namespace (rtnetlink(7)). Packets with a mark, or from a
//! source that a rule selects, may be routed differently: [`policy_rules`] lists the rules.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use nix::net::if_::if_indextoname;

use crate::netlink::Commands;
use crate::rtnetlink::{self, first};
use crate::triangle::{PLAIN_MARK, PROTOCOL};

/// Priorities of the rules that every network namespace starts with, and of the rule for VRFs.
const DEFAULT_RULES: [u32; 4] = [0, 1000, 32_766, 32_767];

/// Most routes searched for longer prefixes: some 10 ms. A router with a full Internet table has more, and is only
/// asked about single addresses.
const ROUTES_MAX: usize = 1 << 14;

/// An entry of the routing tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Length of the prefix.
    pub prefix_len: u8,
    /// Devices of the next hops, one for each hop; empty if packets are not forwarded.
    pub devices: Vec<u32>,
}

impl Route {
    fn read(route: &RouteMessage) -> Self {
        let is_unicast = route.header.kind == RouteType::Unicast;
        let devices = if is_unicast { rtnetlink::devices(route) } else { Vec::new() };
        Self { prefix_len: route.header.destination_prefix_length, devices }
    }

    /// Whether there is a device, and all packets leave through this one.
    pub fn is_through(&self, device: u32) -> bool {
        !self.devices.is_empty() && self.devices.iter().all(|hop| *hop == device)
    }

    /// A text with the devices or hops, for people.
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

/// The entry for packets of this machine to `to`; `None`: there is none.
pub fn to(to: IpAddr) -> io::Result<Option<Route>> {
    let matched = ask(to, RouteFlags::FibMatch)?;
    match matched {
        // With `nexthop_compat_mode` off, the kernel does not list the devices of nexthop objects here.
        Some(route) if route.devices.is_empty() => Ok(ask(to, RouteFlags::empty())?
            .map(|sent| Route { devices: sent.devices, prefix_len: route.prefix_len })),
        matched => Ok(matched),
    }
}

/// With [`RouteFlags::FibMatch`] the answer is the table entry, and not the route of one packet.
fn ask(to: IpAddr, flags: RouteFlags) -> io::Result<Option<Route>> {
    // The mark avoids the triangle of a sendbox that captures the machine's own packets.
    let mut question = rtnetlink::about_route(to, &[RouteAttribute::Mark(PLAIN_MARK)]);
    question.header.flags = flags;
    match rtnetlink::route(&question) {
        Ok(route) => Ok(Some(Route::read(&route))),
        // No entry, a refusing one (fib_props, net/ipv4/fib_semantics.c), or an address that cannot belong to a host.
        Err(error) => match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// The entry for packets to a prefix, apart from parts of it that have entries of their own; `None`: there is none.
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
        // Refused parts have no such address, and neither do networks of devices.
        if let Some(route) = to(sample)?.filter(|it| it.prefix_len <= prefix.prefix_len()) {
            return Ok(Some(route));
        }
    }
    // Parts cover the whole prefix, as with a tunnel that routes 0.0.0.0/1 and 128.0.0.0/1.
    Ok(of_part)
}

/// Most parts of one prefix that are looked up.
const PARTS_MAX: usize = 64;
/// Number of addresses from [`samples`].
const SAMPLES: usize = 3;

/// Possible host addresses of a prefix, from its start, its middle and its end.
fn samples(prefix: IpNet) -> impl Iterator<Item = IpAddr> {
    let (first, last) = (number(prefix.network()), number(prefix.broadcast()));
    let is_v4 = prefix.addr().is_ipv4();
    // Outside these bounds there are no hosts: 0.0.0.0/8 and from 224.0.0.0 on, and all but 2000::/3 and fc00::/7.
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

/// The next address.
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

/// A part of a prefix with a separate table entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Prefix of the part.
    pub prefix: IpNet,
    /// The prefix that contains it.
    pub of: IpNet,
    /// The part is the network of a device of this machine, not a route of an operator or a protocol.
    pub is_attached: bool,
}

/// Parts of these prefixes with table entries, in any table. Searches at most `ROUTES_MAX` routes.
pub fn parts(prefixes: &[IpNet]) -> io::Result<Vec<Part>> {
    let known: BTreeSet<IpNet> = prefixes.iter().copied().collect();
    let lengths: BTreeSet<u8> = prefixes.iter().map(IpNet::prefix_len).collect();
    let mut parts = Vec::new();
    for family in rtnetlink::FAMILIES {
        if !prefixes.iter().any(|prefix| rtnetlink::family_of(prefix) == family) {
            continue;
        }
        let mut left = ROUTES_MAX;
        rtnetlink::find_route(family, |message| {
            let is_attached = message.header.protocol == RouteProtocol::Kernel;
            let leads_on = !Route::read(message).devices.is_empty();
            if let Some(prefix) = rtnetlink::prefix(message).filter(|_| leads_on) {
                let shorter = lengths.iter().filter(|length| **length < prefix.prefix_len());
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

/// Rules besides the initial ones of every network namespace, as text for people.
pub fn policy_rules() -> io::Result<Vec<String>> {
    let kernel = Commands::open()?;
    let mut rules = BTreeSet::new();
    for family in rtnetlink::FAMILIES {
        match kernel.rules(family) {
            Ok(found) => rules.extend(found.iter().filter_map(rule)),
            // The kernel lacks policy routing, or this IP version.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(rules.into_iter().map(|(_, rule)| rule).collect())
}

/// Priority and text of a rule; `None` for an initial rule of every network namespace.
fn rule(rule: &RuleMessage) -> Option<(u32, String)> {
    let (header, attributes) = (&rule.header, &rule.attributes);
    if attributes.contains(&RuleAttribute::Protocol(PROTOCOL.into())) {
        // The rule belongs to the triangle of a sendbox, which leads packets back.
        return None;
    }
    let priority = first!(attributes, RuleAttribute::Priority).copied().unwrap_or(0);
    let table = first!(attributes, RuleAttribute::Table).copied().unwrap_or(header.table.into());
    let source = first!(attributes, RuleAttribute::Source);
    if DEFAULT_RULES.contains(&priority) && source.is_none() {
        return None;
    }
    let selectors = [
        source.map(|it| format!(" from {it}/{}", header.src_len)),
        first!(attributes, RuleAttribute::Destination)
            .map(|it| format!(" to {it}/{}", header.dst_len)),
        first!(attributes, RuleAttribute::Iifname).map(|it| format!(" iif {it}")),
        first!(attributes, RuleAttribute::Oifname).map(|it| format!(" oif {it}")),
        first!(attributes, RuleAttribute::FwMark).map(|it| format!(" fwmark {it:#x}")),
    ];
    let selectors: String = selectors.into_iter().flatten().collect();
    Some((priority, format!("{priority}:{selectors} table {table}")))
}

/// Whether the machine forwards packets of an IP version that come in through `from`, or through any device if `None`.
pub fn forwards(is_v4: bool, from: Option<&str>) -> io::Result<bool> {
    let is_set = |file: &str| Ok(fs::read_to_string(file)?.trim() != "0");
    if is_v4 {
        let device = from.unwrap_or("all");
        return is_set(&format!("/proc/sys/net/ipv4/conf/{device}/forwarding"));
    }
    // Since Linux 6.17 a single device may be set to forward.
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

    /// Two devices with addresses; both ends of each are in this namespace.
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
            // A tunnel may take all traffic this way, without a default route.
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
