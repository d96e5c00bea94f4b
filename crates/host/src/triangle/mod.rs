//! A path through a sendbox's process for the packets that a machine routes, if the kernel offers no better one.
//!
//! ```text
//!   routing ── policy rule ──► fbin-NAME ═══ lan ┐ namespace forebay-NAME
//!      ▲                                  bridge │
//!      ├──────── unshaped ──── fbout-NAME ═══ wan ┘
//!      │                            │ XDP
//!      │                        the sendbox
//!      │                            │ AF_XDP, back into fbout-NAME
//!      └──────── shaped ─────── fbin-NAME
//! ```
//! Only the policy rule takes packets off their plain route, by a table with a route per destination of a bundle. Two
//! pairs of veths and the bridge return them at `fbout-NAME`. There the sendbox captures the packets of bundles; its
//! shaped packets cross the bridge the other way. If the sendbox dies, the bridge still forwards. Rules with higher
//! priority exempt packets that came out of a triangle and, without `own`, the machine's own packets, so nothing loops.
//!
//! Both outer ends have the same Ethernet address and no neighbours (`IFF_NOARP`), and the bridge learns no address. So
//! the machine accepts a frame at either end. A packet is routed twice: its TTL falls by 2, and filters see it twice.
//!
//! [`make`] needs `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`. The unit `forebay-triangle@NAME` has both, and so has a box that
//! is started by hand. A process of the box ([`keeper`]) maintains the rule with `CAP_NET_ADMIN` alone.

pub mod keeper;
mod link;
mod namespace;
mod routes;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use netlink_packet_route::link::LinkFlags;
use serde::{Deserialize, Serialize};

use self::link::TriangleLink;
pub use self::routes::{PLAIN_MARK, PRIORITY, PROTOCOL};
use crate::netlink::Commands;
use crate::offload;
use crate::port::MtuMax;

/// The parameters of a triangle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the box, from which all other names follow.
    pub name: String,
    /// The device that the packets leave through. The triangle has its MTU.
    pub wan: String,
    /// The only device whose packets are taken; `None`: packets from any device.
    pub lan: Option<String>,
    /// Destinations of the bundles.
    pub to: Vec<IpNet>,
    /// Whether the machine's own packets are taken, too.
    pub own: bool,
}

impl Spec {
    /// Names of its parts.
    pub fn names(&self) -> Names {
        Names::of(&self.name)
    }
}

/// The names of the parts of a triangle, which follow from the name of its box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The network namespace with the bridge.
    pub namespace: String,
    /// The device into which the routes lead.
    pub entrance: String,
    /// The device through which packets come back, and at which the sendbox captures and sends.
    pub exit: String,
    /// The table with the routes.
    pub table: u32,
}

/// Prefix of the names of namespaces.
const NAMESPACE_PREFIX: &str = "forebay-";
/// Longest box name that fits into names of devices, which have at most 15 bytes.
const PLAIN_MAX: usize = 9;
/// Upper half of the numbers of tables: `fb` in ASCII. The lower half is a hash of the box's name.
const TABLES: u32 = 0x6662_0000;
/// Prefix of the alias of a device (ip-link(8)); name and WAN of the box follow.
const ALIAS: &str = "forebay triangle ";
/// Names of the ends in the namespace.
const INNER: [&str; 2] = ["lan", "wan"];

impl Names {
    /// The names for the triangle of the box called `name`.
    pub fn of(name: &str) -> Self {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let hash = hash_of(name);
        let short = if !name.is_empty() && name.len() <= PLAIN_MAX && name.bytes().all(is_plain) {
            name.to_string()
        } else {
            format!("{:09x}", hash & 0xf_ffff_ffff)
        };
        let is_file = !name.is_empty() && !name.contains('/') && name.len() < 200;
        let long = if is_file { name } else { &short };
        Self {
            namespace: format!("{NAMESPACE_PREFIX}{long}"),
            entrance: format!("fbin-{short}"),
            exit: format!("fbout-{short}"),
            table: TABLES | (hash & 0xffff) as u32,
        }
    }

    /// The outer ends, each with its inner end.
    fn ends(&self) -> [(&str, &str); 2] {
        [(&self.entrance, INNER[0]), (&self.exit, INNER[1])]
    }

    /// The Ethernet address of both outer ends, locally administered.
    fn address(&self) -> [u8; 6] {
        let [_, _, three, four] = self.table.to_be_bytes();
        [0x02, b'f', b'b', 0, three, four]
    }
}

/// FNV-1a (draft-eastlake-fnv), whose result never changes between versions.
fn hash_of(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Makes a triangle, and removes the rest of an earlier one of this name. No packet enters it before a [`keeper`] has
/// installed its rule.
///
/// # Errors
///
/// The step that failed; nothing is left then. A triangle of another WAN, and a foreign device, stay.
pub fn make(spec: &Spec) -> io::Result<()> {
    let names = spec.names();
    for (device, _) in names.ends() {
        refuse_foreign(device, spec)?;
    }
    remove(&names)?;
    let made = build(spec, &names);
    if made.is_err() {
        // The first error is more useful.
        let _ = remove(&names);
    }
    made
}

/// Refuses to replace a device that does not belong to a triangle of this box and WAN.
fn refuse_foreign(device: &str, spec: &Spec) -> io::Result<()> {
    let Some(link) = TriangleLink::named(device)? else { return Ok(()) };
    if link.alias == alias(spec) {
        return Ok(());
    }
    let (name, alias) = (&spec.name, link.alias);
    let what = if alias.is_empty() { "not a triangle's".into() } else { format!("{alias:?}") };
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "{device} exists and {what}: a box with the name {name:?} needs that device name; \
             rename one of the two, or remove leftovers of a box with `forebay doctor --clean`"
        ),
    ))
}

fn alias(spec: &Spec) -> String {
    format!("{ALIAS}{} for {}", spec.name, spec.wan)
}

fn build(spec: &Spec, names: &Names) -> io::Result<()> {
    let mtu = mtu_of(&spec.wan).map_err(step(&format!("the MTU of {}", spec.wan)))?;
    let host = Commands::open()?;
    let namespace = namespace::make(&names.namespace)
        .map_err(step(&format!("the namespace {}", names.namespace)))?;
    for (outer, inner) in names.ends() {
        // The sendbox receives from the first queue of the exit, and sends through the second.
        let pair = link::Pair { outer, inner, mtu, address: names.address(), transmit_queues: 2 };
        link::make_pair(&host, &pair, &namespace.file)
            .map_err(step(&format!("the veth {outer}")))?;
    }
    link::bridge(&namespace.commands, INNER).map_err(step("the bridge"))?;
    for (outer, _) in names.ends() {
        offload::disable_all(outer).map_err(io::Error::other)?;
        set_up(outer, spec).map_err(step(outer))?;
        link::put_up(&host, outer, &alias(spec)).map_err(step(outer))?;
    }
    routes::set(&host, spec, names).map_err(step("the routes"))?;
    routes::guard(&host, spec, names).map_err(step("the rules"))
}

fn step(what: &str) -> impl FnOnce(io::Error) -> io::Error {
    let what = what.to_string();
    move |error| io::Error::new(error.kind(), format!("making a triangle: {what}: {error}"))
}

/// Configures how the machine treats packets that come out of an outer end.
fn set_up(device: &str, spec: &Spec) -> io::Result<()> {
    let own = if spec.own { "1" } else { "0" };
    for (key, value) in [
        // Loose (RFC 3704): the route back to the hosts leads through another device.
        ("rp_filter", "2"),
        ("forwarding", "1"),
        ("send_redirects", "0"),
        ("accept_local", own),
    ] {
        fs::write(format!("/proc/sys/net/ipv4/conf/{device}/{key}"), value)
            .map_err(|error| io::Error::new(error.kind(), format!("{key}: {error}")))?;
    }
    for (key, value) in [("accept_ra", "0"), ("forwarding", "1")] {
        // Without IPv6 there is nothing to configure.
        match fs::write(format!("/proc/sys/net/ipv6/conf/{device}/{key}"), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written?,
        }
    }
    Ok(())
}

/// The MTU of a triangle: the MTU of the WAN, limited to what AF_XDP supports.
fn mtu_of(wan: &str) -> io::Result<u32> {
    Ok(offload::mtu(wan)?.min(MtuMax::here().bytes))
}

/// Removes a triangle: the rules first, so that packets return to the plain route. Missing parts are no error.
pub fn remove(names: &Names) -> io::Result<()> {
    let host = Commands::open()?;
    routes::remove(&host, names.table)?;
    for (device, _) in names.ends() {
        if TriangleLink::named(device)?.is_some_and(|link| link.alias.starts_with(ALIAS)) {
            link::delete(&host, device)?;
        }
    }
    namespace::remove(&names.namespace)
}

/// Checks that packets pass a triangle.
///
/// # Errors
///
/// The missing part. The check needs `CAP_NET_ADMIN` in the initial user namespace.
pub fn check(names: &Names) -> Result<(), String> {
    let mut bridges = BTreeSet::new();
    for (device, _) in names.ends() {
        let said = |error: io::Error| format!("{device}: {error}");
        let link = TriangleLink::named(device).map_err(said)?;
        let link = link.ok_or_else(|| format!("{device} of the triangle is missing"))?;
        if !link.has(LinkFlags::Up | LinkFlags::LowerUp) {
            return Err(format!("{device} of the triangle is down"));
        }
        let inner = link.other_end().map_err(said)?;
        let bridge = inner.and_then(|inner| inner.master.filter(|_| inner.has(LinkFlags::Up)));
        bridges.insert(bridge.ok_or_else(|| format!("{device} leads to no bridge"))?);
    }
    match bridges.len() {
        1 => Ok(()),
        _ => Err(format!("{} and {} lead to different bridges", names.entrance, names.exit)),
    }
}

/// Sets the outer ends to the current MTU of the WAN, at most `most`.
fn follow_mtu(host: &Commands, spec: &Spec, names: &Names, most: u32) -> io::Result<()> {
    let mtu = mtu_of(&spec.wan)?.min(most);
    for (device, _) in names.ends() {
        let Some(link) = TriangleLink::named(device)?.filter(|link| link.mtu != mtu) else {
            continue;
        };
        link::set_mtu(host, &link, mtu)?;
    }
    Ok(())
}

/// A triangle, or a part of one, that may be left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundTriangle {
    /// Name of the box.
    pub name: String,
    /// The WAN of that box, if a device still names it.
    pub wan: Option<String>,
}

/// The triangles of the current network namespace, and namespaces of triangles whose outer ends are gone.
pub fn found() -> io::Result<Vec<FoundTriangle>> {
    let mut found: Vec<FoundTriangle> = Vec::new();
    for alias in link::aliases()? {
        let Some((name, wan)) = alias.strip_prefix(ALIAS).and_then(|it| it.rsplit_once(" for "))
        else {
            continue;
        };
        let one = FoundTriangle { name: name.into(), wan: Some(wan.into()) };
        if !found.contains(&one) {
            found.push(one);
        }
    }
    for name in namespace::names(NAMESPACE_PREFIX)? {
        let is_known = found.iter().any(|one| one.name == name);
        let file = format!("{NAMESPACE_PREFIX}{name}");
        if !is_known && !namespace::has_device(&file, INNER[0])? {
            found.push(FoundTriangle { name, wan: None });
        }
    }
    Ok(found)
}

/// Removes rules and routes of tables that no triangle of `kept` uses, and returns the number of rules.
pub fn remove_orphans(kept: &[Names]) -> io::Result<usize> {
    let host = Commands::open()?;
    let mut removed = 0;
    for table in routes::tables(&host)? {
        if table & 0xffff_0000 == TABLES && !kept.iter().any(|names| names.table == table) {
            removed += routes::remove(&host, table)?;
        }
    }
    Ok(removed)
}

/// The file on which the namespace of a triangle is mounted.
pub fn path_of(names: &Names) -> PathBuf {
    Path::new(namespace::FOLDER).join(&names.namespace)
}

#[cfg(test)]
mod tests;
