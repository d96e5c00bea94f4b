//! The routes that lead into a triangle, and the rules that have packets take them (ip-rule(8)).
//!
//! ```text
//!  PRIORITY      what came out of this triangle, and without `own` what the machine sends, and [`PLAIN_MARK`]: go on at PRIORITY + 2
//!  PRIORITY + 1  everything, or what comes in by `lan`: look into the triangle's table      <- the one rule that takes packets
//!  PRIORITY + 2  nothing: where those of the first go on
//! ```
//! The table has a route for each destination of a bundle. What the main table sends elsewhere than to the WAN, of the same
//! destinations, is thrown back to the rules that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;

use super::link::is_unsupported;
use super::{Names, Spec};
use crate::netlink::{
    self, Commands, HEADER, NLM_F_CREATE, NLM_F_REPLACE, attribute, attribute_of,
};

/// Where the rules stand: in front of the main table (32766) and of what most VPNs add just in front of that.
pub const PRIORITY: u32 = 26_100;
/// Who has made a rule or route (`FRA_PROTOCOL`, `RTA_PROTOCOL`): no routing daemon has this number.
pub const PROTOCOL: u8 = 102;
/// What is sent with this mark passes no triangle (`fwmark`): so the plain route of what the machine sends is asked for.
pub const PLAIN_MARK: u32 = 0x6662_0001;
/// Most routes of the main table that are thrown back: a machine with more of them routes like a backbone.
const THROWN_MAX: usize = 4096;
/// The next hop in the triangle, of the IPv4 service continuity prefix (RFC 7335): no host has it.
const NEXT_HOP_V4: [u8; 4] = [192, 0, 0, 7];
/// As [`NEXT_HOP_V4`]: fe80::1.
const NEXT_HOP_V6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

// include/uapi/linux/rtnetlink.h, fib_rules.h
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
const RTM_GETRULE: u16 = 34;
const NLM_F_EXCL: u16 = 0x200;
/// `struct rtmsg` and `struct fib_rule_hdr`, behind the header.
const ROUTE_HEADER: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_MARK: u16 = 16;
const RTN_UNICAST: u8 = 1;
const RTN_THROW: u8 = 9;
const RTNH_F_ONLINK: u32 = 4;
const RT_TABLE_COMPAT: u8 = 252;
const RT_TABLE_MAIN: u32 = 254;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_TABLE: u16 = 15;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_GOTO: u8 = 2;
const FR_ACT_NOP: u8 = 3;

const FAMILIES: [u8; 2] = [libc::AF_INET as u8, libc::AF_INET6 as u8];

/// What the table does with packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Into the triangle; what the machine sends has this source.
    In(Option<IpAddr>),
    /// On to the rules that follow.
    Back,
}

/// Gives the table the routes that it should have by now, and no others.
pub fn set(host: &Commands, spec: &Spec, names: &Names) -> io::Result<()> {
    let entrance = if_nametoindex(names.entrance.as_str())?;
    let wanted = wanted(spec)?;
    let present = present(host, names.table)?;
    for (net, way) in wanted.iter().filter(|(net, way)| present.get(*net) != Some(*way)) {
        let body = route(*net, *way, names.table, entrance);
        host.command(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body)?;
    }
    remove_routes(host, names.table, |net| wanted.contains_key(&net))
}

/// The routes of the table by now.
fn present(host: &Commands, table: u32) -> io::Result<BTreeMap<IpNet, Way>> {
    let mut present = BTreeMap::new();
    for family in FAMILIES {
        for message in host.dump(RTM_GETROUTE, &about(family))? {
            let Some(of) = Route::parse(&message).filter(|of| of.is_ours(table)) else { continue };
            let way = if of.kind == RTN_THROW { Way::Back } else { Way::In(of.source) };
            present.insert(of.net, way);
        }
    }
    Ok(present)
}

/// The ways of all destinations that the table has to know.
fn wanted(spec: &Spec) -> io::Result<BTreeMap<IpNet, Way>> {
    let mut wanted = elsewhere(spec)?;
    for net in &spec.to {
        let source = if spec.own { source_to(net.addr(), &spec.wan)? } else { None };
        wanted.insert(*net, Way::In(source));
    }
    Ok(wanted)
}

/// Networks within the destinations that the main table has routes to, but not through the WAN, and those that are never
/// routed.
fn elsewhere(spec: &Spec) -> io::Result<BTreeMap<IpNet, Way>> {
    let wan = if_nametoindex(spec.wan.as_str())?;
    let is_within = |net: &IpNet| {
        spec.to.iter().any(|to| to.contains(net) && to.prefix_len() < net.prefix_len())
    };
    let mut found: BTreeMap<IpNet, Way> = BTreeMap::new();
    for net in ["224.0.0.0/4", "255.255.255.255/32", "ff00::/8", "fe80::/10"] {
        found.insert(net.parse().expect("a network"), Way::Back);
    }
    for family in FAMILIES {
        for message in netlink::dump(RTM_GETROUTE, &about(family))? {
            let Some(of) = Route::parse(&message) else { continue };
            if of.table == RT_TABLE_MAIN && of.kind == RTN_UNICAST && !of.devices.contains(&wan) {
                found.insert(of.net, Way::Back);
            }
        }
    }
    found.retain(|net, _| is_within(net));
    if found.len() > THROWN_MAX {
        return Err(io::Error::other(format!(
            "the main table has more than {THROWN_MAX} routes within the bundles' destinations that do not leave through {}",
            spec.wan
        )));
    }
    Ok(found)
}

/// The source of what the machine sends there through the WAN; `None`: the kernel chooses as it likes.
fn source_to(address: IpAddr, wan: &str) -> io::Result<Option<IpAddr>> {
    let wan = if_nametoindex(wan)?;
    let (family, bits, bytes) = parts(IpNet::from(address));
    let mut body = about(family);
    body[1] = bits;
    body.extend(attribute_of(RTA_DST, &bytes));
    body.extend(number(RTA_OIF, wan));
    body.extend(number(RTA_MARK, PLAIN_MARK));
    let answer = netlink::ask(RTM_GETROUTE, &body)?;
    // No route now is a matter of the conditions.
    if netlink::refusal(&answer).is_err() {
        return Ok(None);
    }
    let source = attribute(answer.get(HEADER + ROUTE_HEADER..).unwrap_or_default(), RTA_PREFSRC);
    Ok(source.and_then(address_of))
}

/// A route.
struct Route {
    net: IpNet,
    table: u32,
    protocol: u8,
    kind: u8,
    source: Option<IpAddr>,
    devices: Vec<u32>,
}

impl Route {
    fn is_ours(&self, table: u32) -> bool {
        self.table == table && self.protocol == PROTOCOL
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let fixed = message.get(HEADER..HEADER + ROUTE_HEADER)?;
        let attributes = message.get(HEADER + ROUTE_HEADER..)?;
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
        let address = match attribute(attributes, RTA_DST) {
            Some(bytes) => address_of(bytes)?,
            None if fixed[0] == FAMILIES[0] => IpAddr::from([0; 4]),
            None => IpAddr::from([0; 16]),
        };
        let one = attribute(attributes, RTA_OIF).and_then(word);
        // `struct rtnexthop`: length, flags, hops, device.
        let mut hops = attribute(attributes, RTA_MULTIPATH).unwrap_or_default();
        let several = std::iter::from_fn(move || {
            let hop = hops.get(..8)?;
            let len = usize::from(u16::from_ne_bytes([hop[0], hop[1]])).max(8);
            hops = hops.get(len.next_multiple_of(4)..).unwrap_or_default();
            word(&hop[4..])
        });
        Some(Self {
            net: IpNet::new(address, fixed[1]).ok()?,
            table: attribute(attributes, RTA_TABLE).and_then(word).unwrap_or(fixed[4].into()),
            protocol: fixed[5],
            kind: fixed[7],
            source: attribute(attributes, RTA_PREFSRC).and_then(address_of),
            devices: one.into_iter().chain(several).collect(),
        })
    }
}

/// The message that adds or deletes a route.
fn route(net: IpNet, way: Way, table: u32, entrance: u32) -> Vec<u8> {
    let (family, bits, bytes) = parts(net);
    let kind = if way == Way::Back { RTN_THROW } else { RTN_UNICAST };
    let is_v4 = family == FAMILIES[0];
    let flags = if is_v4 && way != Way::Back { RTNH_F_ONLINK } else { 0 };
    let mut body = vec![family, bits, 0, 0, RT_TABLE_COMPAT, PROTOCOL, 0, kind];
    body.extend(flags.to_ne_bytes());
    body.extend(attribute_of(RTA_DST, &bytes));
    body.extend(number(RTA_TABLE, table));
    if let Way::In(source) = way {
        body.extend(number(RTA_OIF, entrance));
        let next: &[u8] = if is_v4 { &NEXT_HOP_V4 } else { &NEXT_HOP_V6 };
        body.extend(attribute_of(RTA_GATEWAY, next));
        if let Some(source) = source {
            body.extend(attribute_of(RTA_PREFSRC, &parts(source.into()).2));
        }
    }
    body
}

/// Removes the routes of the table that no one keeps.
fn remove_routes(host: &Commands, table: u32, keep: impl Fn(IpNet) -> bool) -> io::Result<()> {
    for family in FAMILIES {
        for message in host.dump(RTM_GETROUTE, &about(family))? {
            let Some(of) = Route::parse(&message) else { continue };
            if !of.is_ours(table) || keep(of.net) {
                continue;
            }
            let (family, bits, bytes) = parts(of.net);
            let mut body = vec![family, bits, 0, 0, RT_TABLE_COMPAT, PROTOCOL, 255, of.kind];
            body.extend(0_u32.to_ne_bytes());
            body.extend(attribute_of(RTA_DST, &bytes));
            body.extend(number(RTA_TABLE, table));
            gone_is_fine(host.command(RTM_DELROUTE, 0, &body))?;
        }
    }
    Ok(())
}

/// Puts the rules there in front of the one that takes packets, and the one behind it.
pub fn guard(host: &Commands, spec: &Spec, names: &Names) -> io::Result<()> {
    let own = (!spec.own).then_some("lo");
    for family in families(spec) {
        let behind = rule(family, FR_ACT_NOP, PRIORITY + 2, names.table);
        add(host, &behind)?;
        let devices = [names.entrance.as_str(), names.exit.as_str()].into_iter().chain(own);
        let from = |device| attribute_of(FRA_IIFNAME, format!("{device}\0").as_bytes());
        for selector in devices.map(from).chain([number(FRA_FWMARK, PLAIN_MARK)]) {
            let mut pass = rule(family, FR_ACT_GOTO, PRIORITY, names.table);
            pass.extend(selector);
            pass.extend(number(FRA_GOTO, PRIORITY + 2));
            add(host, &pass)?;
        }
    }
    Ok(())
}

/// Has packets take the triangle.
pub fn take(host: &Commands, spec: &Spec, names: &Names) -> io::Result<()> {
    let own = (spec.own && spec.lan.is_some()).then_some(Some("lo"));
    for family in families(spec) {
        for device in [spec.lan.as_deref()].into_iter().chain(own) {
            let mut take = rule(family, FR_ACT_TO_TBL, PRIORITY + 1, names.table);
            if let Some(device) = device {
                take.extend(attribute_of(FRA_IIFNAME, format!("{device}\0").as_bytes()));
            }
            add(host, &take)?;
        }
    }
    Ok(())
}

/// Has packets take the plain route.
pub fn leave(host: &Commands, names: &Names) -> io::Result<()> {
    remove_rules(host, |of| of.table == names.table && of.priority == PRIORITY + 1).map(drop)
}

/// Whether packets take the triangle: of each version of IP that the bundles have.
pub fn is_taken(host: &Commands, spec: &Spec, names: &Names) -> io::Result<bool> {
    let mut missing = families(spec);
    for family in FAMILIES {
        for message in rules(host, family)? {
            let Some(of) = Rule::parse(&message) else { continue };
            if of.table == names.table && of.priority == PRIORITY + 1 {
                missing.remove(&family);
            }
        }
    }
    Ok(missing.is_empty())
}

/// Removes all rules and routes of a table; answers how many rules there were.
pub fn remove(host: &Commands, table: u32) -> io::Result<usize> {
    // That which takes packets goes first.
    let mut removed = remove_rules(host, |of| of.table == table && of.priority == PRIORITY + 1)?;
    removed += remove_rules(host, |of| of.table == table)?;
    remove_routes(host, table, |_| false)?;
    Ok(removed)
}

/// The tables of all rules and routes that a box has made.
pub fn tables(host: &Commands) -> io::Result<BTreeSet<u32>> {
    let mut tables = BTreeSet::new();
    for family in FAMILIES {
        let rules = rules(host, family)?;
        let of_rules = rules.iter().filter_map(|message| Rule::parse(message));
        tables.extend(of_rules.map(|of| of.table));
        let routes = host.dump(RTM_GETROUTE, &about(family))?;
        let of_routes = routes.iter().filter_map(|message| Route::parse(message));
        tables.extend(of_routes.filter(|of| of.protocol == PROTOCOL).map(|of| of.table));
    }
    Ok(tables)
}

/// A rule that a box has made.
struct Rule {
    table: u32,
    priority: u32,
}

impl Rule {
    fn parse(message: &[u8]) -> Option<Self> {
        let attributes = message.get(HEADER + ROUTE_HEADER..)?;
        let word = |kind| Some(u32::from_ne_bytes(attribute(attributes, kind)?.try_into().ok()?));
        (attribute(attributes, FRA_PROTOCOL)? == [PROTOCOL]).then_some(())?;
        Some(Self { table: word(FRA_TABLE)?, priority: word(FRA_PRIORITY)? })
    }
}

/// All rules; none of a version of IP that the kernel does not have.
fn rules(host: &Commands, family: u8) -> io::Result<Vec<Vec<u8>>> {
    match host.dump(RTM_GETRULE, &about(family)) {
        Err(error) if is_unsupported(&error) => Ok(Vec::new()),
        found => found,
    }
}

fn remove_rules(host: &Commands, is_meant: impl Fn(&Rule) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for family in FAMILIES {
        for message in rules(host, family)? {
            if Rule::parse(&message).is_some_and(|of| is_meant(&of)) {
                gone_is_fine(host.command(RTM_DELRULE, 0, &message[HEADER..]))?;
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

fn add(host: &Commands, rule: &[u8]) -> io::Result<()> {
    match host.command(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, rule) {
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        added => added,
    }
}

/// `struct fib_rule_hdr` and what all rules have.
fn rule(family: u8, action: u8, priority: u32, table: u32) -> Vec<u8> {
    let mut body = vec![family, 0, 0, 0, RT_TABLE_COMPAT, 0, 0, action, 0, 0, 0, 0];
    body.extend(number(FRA_PRIORITY, priority));
    body.extend(number(FRA_TABLE, table));
    body.extend(attribute_of(FRA_PROTOCOL, &[PROTOCOL]));
    body
}

/// The versions of IP that the bundles have.
fn families(spec: &Spec) -> BTreeSet<u8> {
    spec.to.iter().map(|net| parts(*net).0).collect()
}

/// A question about routes or rules of a family.
fn about(family: u8) -> Vec<u8> {
    let mut body = vec![0; ROUTE_HEADER];
    body[0] = family;
    body
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute_of(kind, &value.to_ne_bytes())
}

/// Family, length and address of a network.
fn parts(net: IpNet) -> (u8, u8, Vec<u8>) {
    match net.network() {
        IpAddr::V4(v4) => (FAMILIES[0], net.prefix_len(), v4.octets().to_vec()),
        IpAddr::V6(v6) => (FAMILIES[1], net.prefix_len(), v6.octets().to_vec()),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}
