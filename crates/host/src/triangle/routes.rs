//! The routes that lead into a triangle, and the rules that select these routes (ip-rule(8)).
//!
//! ```text
//!  PRIORITY      from this triangle, from the machine itself (without `own`), or marked [`PLAIN_MARK`]: go to PRIORITY + 2
//!  PRIORITY + 1  all packets, or packets from `lan`: look up the triangle's table      <- the one rule that takes packets
//!  PRIORITY + 2  no effect: the target of the first rules
//! ```
//! The table has a route for each destination of a bundle. If the main table routes a part of a destination elsewhere
//! than to the WAN, the table has a throw route for it: the rules that follow decide.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use nix::net::if_::if_nametoindex;

use super::link::is_unsupported;
use super::{Names, Spec};
use crate::netlink::{Commands, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use crate::rtnetlink::{self, FAMILIES, family_of, first};

/// Priority of the first rule: in front of the main table (32766), and of the rules that most VPNs add just in front of
/// that.
pub const PRIORITY: u32 = 26_100;
/// Origin of a rule or route (`FRA_PROTOCOL`, `RTA_PROTOCOL`): no routing daemon uses this number.
pub const PROTOCOL: u8 = 102;
/// Packets with this mark (`fwmark`) bypass all triangles. A lookup with the mark finds the plain route of the
/// machine's own packets.
pub const PLAIN_MARK: u32 = 0x6662_0001;
/// Most throw routes for parts that the main table routes elsewhere. Only backbone routers have more such routes.
const THROWN_MAX: usize = 4096;
/// The next hop in the triangle, from the IPv4 service continuity prefix (RFC 7335): no host has this address.
const NEXT_HOP_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 7);
/// As [`NEXT_HOP_V4`]: fe80::1.
const NEXT_HOP_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Table number of a message that has the table in an attribute.
const COMPAT_TABLE: u8 = 252;

/// The table's decision for packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Into the triangle; the machine's own packets get this source.
    In(Option<IpAddr>),
    /// Back to the rules that follow.
    Back,
}

/// Updates the table to exactly the routes that it must have now.
pub fn set(host: &Commands, spec: &Spec, names: &Names) -> io::Result<()> {
    let entrance = if_nametoindex(names.entrance.as_str())?;
    let wanted = wanted(spec)?;
    let present = present(host, names.table)?;
    for (net, way) in wanted.iter().filter(|(net, way)| present.get(*net) != Some(*way)) {
        let route = route(*net, *way, names.table, entrance);
        host.execute(libc::RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route)?;
    }
    remove_routes(host, names.table, |net| wanted.contains_key(&net))
}

/// The routes now in the table.
fn present(host: &Commands, table: u32) -> io::Result<BTreeMap<IpNet, Way>> {
    let mut present = BTreeMap::new();
    for family in FAMILIES {
        for route in host.routes(family)?.iter().filter(|route| is_ours(route, table)) {
            let Some(net) = rtnetlink::prefix(route) else { continue };
            let source = first!(route.attributes, RouteAttribute::PrefSource);
            let is_back = route.header.kind == RouteType::Throw;
            let way =
                if is_back { Way::Back } else { Way::In(source.and_then(rtnetlink::address)) };
            present.insert(net, way);
        }
    }
    Ok(present)
}

/// The decisions for all destinations that the table must have.
fn wanted(spec: &Spec) -> io::Result<BTreeMap<IpNet, Way>> {
    let mut wanted = elsewhere(spec)?;
    for net in &spec.to {
        let source = if spec.own { source_to(net.addr(), &spec.wan)? } else { None };
        wanted.insert(*net, Way::In(source));
    }
    Ok(wanted)
}

/// Networks within the destinations that the main table does not route through the WAN, and networks that are never
/// routed.
fn elsewhere(spec: &Spec) -> io::Result<BTreeMap<IpNet, Way>> {
    let kernel = Commands::open()?;
    let wan = if_nametoindex(spec.wan.as_str())?;
    let is_within = |net: &IpNet| {
        spec.to.iter().any(|to| to.contains(net) && to.prefix_len() < net.prefix_len())
    };
    let mut found: BTreeMap<IpNet, Way> = BTreeMap::new();
    for net in ["224.0.0.0/4", "255.255.255.255/32", "ff00::/8", "fe80::/10"] {
        found.insert(net.parse().expect("a network"), Way::Back);
    }
    for family in FAMILIES {
        for route in kernel.routes(family)? {
            let is_elsewhere = table_of(&route) == u32::from(RouteHeader::RT_TABLE_MAIN)
                && route.header.kind == RouteType::Unicast
                && !rtnetlink::devices(&route).contains(&wan);
            let net = rtnetlink::prefix(&route).filter(|_| is_elsewhere);
            found.extend(net.map(|net| (net, Way::Back)));
        }
    }
    found.retain(|net, _| is_within(net));
    if found.len() > THROWN_MAX {
        return Err(io::Error::other(format!(
            "the main table has more than {THROWN_MAX} routes within the bundles' destinations \
             through devices other than {}",
            spec.wan
        )));
    }
    Ok(found)
}

/// The source of the machine's packets to `address` through the WAN; `None`: the kernel chooses.
fn source_to(address: IpAddr, wan: &str) -> io::Result<Option<IpAddr>> {
    let wan = if_nametoindex(wan)?;
    let more = [RouteAttribute::Oif(wan), RouteAttribute::Mark(PLAIN_MARK)];
    match rtnetlink::route(&rtnetlink::about_route(address, &more)) {
        Ok(route) => {
            Ok(first!(route.attributes, RouteAttribute::PrefSource).and_then(rtnetlink::address))
        }
        // A missing route now is reported by the checks of conditions.
        Err(_) => Ok(None),
    }
}

fn table_of(route: &RouteMessage) -> u32 {
    let table = first!(route.attributes, RouteAttribute::Table).copied();
    table.unwrap_or(route.header.table.into())
}

fn is_ours(route: &RouteMessage, table: u32) -> bool {
    table_of(route) == table && route.header.protocol == PROTOCOL.into()
}

/// Makes the message that adds a route.
fn route(net: IpNet, way: Way, table: u32, entrance: u32) -> RouteMessage {
    let net = net.trunc();
    let mut route = RouteMessage::default();
    let header = &mut route.header;
    header.address_family = family_of(&net);
    header.destination_prefix_length = net.prefix_len();
    header.table = COMPAT_TABLE;
    header.protocol = PROTOCOL.into();
    header.kind = if way == Way::Back { RouteType::Throw } else { RouteType::Unicast };
    route.attributes =
        vec![RouteAttribute::Destination(net.addr().into()), RouteAttribute::Table(table)];
    if let Way::In(source) = way {
        let next: IpAddr = match net {
            IpNet::V4(_) => NEXT_HOP_V4.into(),
            IpNet::V6(_) => NEXT_HOP_V6.into(),
        };
        if next.is_ipv4() {
            header.flags = RouteFlags::Onlink;
        }
        route.attributes.push(RouteAttribute::Oif(entrance));
        route.attributes.push(RouteAttribute::Gateway(next.into()));
        route.attributes.extend(source.map(|source| RouteAttribute::PrefSource(source.into())));
    }
    route
}

/// Removes the routes of the table unless `keep` holds for their prefix.
fn remove_routes(host: &Commands, table: u32, keep: impl Fn(IpNet) -> bool) -> io::Result<()> {
    for family in FAMILIES {
        for mut route in host.routes(family)?.into_iter().filter(|route| is_ours(route, table)) {
            if rtnetlink::prefix(&route).is_none_or(&keep) {
                continue;
            }
            route.header.table = COMPAT_TABLE;
            route.header.scope = RouteScope::NoWhere;
            route.header.flags = RouteFlags::empty();
            route.attributes.retain(|it| {
                matches!(it, RouteAttribute::Destination(_) | RouteAttribute::Table(_))
            });
            gone_is_fine(host.execute(libc::RTM_DELROUTE, 0, &route))?;
        }
    }
    Ok(())
}

/// Adds the rules in front of the rule that takes packets, and the target rule behind it.
pub fn guard(host: &Commands, spec: &Spec, names: &Names) -> io::Result<()> {
    let own = (!spec.own).then_some("lo");
    for family in families(spec) {
        add(host, rule(family, RuleAction::Nop, PRIORITY + 2, names.table))?;
        let devices = [names.entrance.as_str(), names.exit.as_str()].into_iter().chain(own);
        let from = devices.map(|device| RuleAttribute::Iifname(device.into()));
        for selector in from.chain([RuleAttribute::FwMark(PLAIN_MARK)]) {
            let mut pass = rule(family, RuleAction::Goto, PRIORITY, names.table);
            pass.attributes.extend([selector, RuleAttribute::Goto(PRIORITY + 2)]);
            add(host, pass)?;
        }
    }
    Ok(())
}

/// Adds the rule that leads packets into the triangle.
pub fn take(host: &Commands, spec: &Spec, names: &Names) -> io::Result<()> {
    let own = (spec.own && spec.lan.is_some()).then_some(Some("lo"));
    for family in families(spec) {
        for device in [spec.lan.as_deref()].into_iter().chain(own) {
            let mut take = rule(family, RuleAction::ToTable, PRIORITY + 1, names.table);
            take.attributes.extend(device.map(|device| RuleAttribute::Iifname(device.into())));
            add(host, take)?;
        }
    }
    Ok(())
}

/// Removes the rule that leads packets into the triangle.
pub fn leave(host: &Commands, names: &Names) -> io::Result<()> {
    remove_rules(host, |of| of.table == names.table && of.priority == PRIORITY + 1).map(drop)
}

/// Whether packets are led into the triangle, for each IP version of the bundles.
pub fn is_taken(host: &Commands, spec: &Spec, names: &Names) -> io::Result<bool> {
    for family in families(spec) {
        let rules = rules(host, family)?;
        let mut rules = rules.iter().filter_map(Rule::read);
        if !rules.any(|of| of.table == names.table && of.priority == PRIORITY + 1) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes all rules and routes of a table, and returns the number of rules.
pub fn remove(host: &Commands, table: u32) -> io::Result<usize> {
    // The rule that takes packets must go first.
    let mut removed = remove_rules(host, |of| of.table == table && of.priority == PRIORITY + 1)?;
    removed += remove_rules(host, |of| of.table == table)?;
    remove_routes(host, table, |_| false)?;
    Ok(removed)
}

/// The tables of all rules and routes that a box has made.
pub fn tables(host: &Commands) -> io::Result<BTreeSet<u32>> {
    let mut tables = BTreeSet::new();
    for family in FAMILIES {
        let of_rules = rules(host, family)?;
        tables.extend(of_rules.iter().filter_map(Rule::read).map(|of| of.table));
        let routes = host.routes(family)?;
        let of_routes = routes.iter().filter(|of| of.header.protocol == PROTOCOL.into());
        tables.extend(of_routes.map(table_of));
    }
    Ok(tables)
}

/// A rule that a box has made.
struct Rule {
    table: u32,
    priority: u32,
}

impl Rule {
    fn read(rule: &RuleMessage) -> Option<Self> {
        let attributes = &rule.attributes;
        attributes.contains(&RuleAttribute::Protocol(PROTOCOL.into())).then_some(())?;
        let table = *first!(attributes, RuleAttribute::Table)?;
        Some(Self { table, priority: *first!(attributes, RuleAttribute::Priority)? })
    }
}

/// All rules; none if the kernel lacks this IP version.
fn rules(host: &Commands, family: AddressFamily) -> io::Result<Vec<RuleMessage>> {
    match host.rules(family) {
        Err(error) if is_unsupported(&error) => Ok(Vec::new()),
        found => found,
    }
}

fn remove_rules(host: &Commands, is_meant: impl Fn(&Rule) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for family in FAMILIES {
        for rule in rules(host, family)? {
            if Rule::read(&rule).is_some_and(|of| is_meant(&of)) {
                gone_is_fine(host.execute(libc::RTM_DELRULE, 0, &rule))?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(()),
        done => done,
    }
}

fn add(host: &Commands, rule: RuleMessage) -> io::Result<()> {
    match host.execute(libc::RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, &rule) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        added => added,
    }
}

/// The common part of all rules.
fn rule(family: AddressFamily, action: RuleAction, priority: u32, table: u32) -> RuleMessage {
    let mut rule = RuleMessage::default();
    (rule.header.family, rule.header.action) = (family, action);
    rule.header.table = COMPAT_TABLE;
    rule.attributes = vec![
        RuleAttribute::Priority(priority),
        RuleAttribute::Table(table),
        RuleAttribute::Protocol(PROTOCOL.into()),
    ];
    rule
}

/// The IP versions of the bundles.
fn families(spec: &Spec) -> Vec<AddressFamily> {
    let has = |family: &AddressFamily| spec.to.iter().any(|net| family_of(net) == *family);
    FAMILIES.into_iter().filter(has).collect()
}
