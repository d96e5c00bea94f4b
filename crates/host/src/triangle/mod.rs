//! A way through a sendbox's process for what a machine routes, where the kernel has no better one.
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
//! The policy rule alone takes packets off their plain route, by a table with a route for each destination of a bundle. Two
//! pairs of veths and the bridge bring them back at `fbout-NAME`, where the sendbox captures those of bundles; what the
//! sendbox lets go crosses the bridge the other way. If the sendbox dies, the bridge still forwards. Rules in front of that
//! one let packets pass that came out of a triangle, and, without `own`, the machine's own: nothing goes round in circles.
//!
//! Both outer ends have one Ethernet address and no neighbours (`IFF_NOARP`), and the bridge learns none, so a frame is for
//! the machine at whichever end it comes out. A packet is routed twice: its TTL falls by 2, and filters see it twice.
//!
//! [`make`] needs `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`, as has the unit `forebay-triangle@NAME` and a box that is started by
//! hand. The rule is kept by a process of the box ([`keeper`]) with `CAP_NET_ADMIN` alone.

pub mod keeper;
mod link;
mod namespace;
mod routes;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use self::link::{IFF_LOWER_UP, IFF_UP, Link};
pub use self::routes::{PLAIN_MARK, PRIORITY, PROTOCOL};
use crate::netlink::Commands;
use crate::offload;
use crate::port::MtuMax;

/// A triangle as a sendbox needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Name of the box, from which all other names follow.
    pub name: String,
    /// The device that the packets leave through, whose MTU the triangle has.
    pub wan: String,
    /// The only device whose packets are taken; `None`: those of all.
    pub lan: Option<String>,
    /// Destinations of the bundles.
    pub to: Vec<IpNet>,
    /// What the machine itself sends is taken, too.
    pub own: bool,
}

impl Spec {
    /// Names of its parts.
    pub fn names(&self) -> Names {
        Names::of(&self.name)
    }
}

/// What the parts of a triangle are called: always the same of one box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The network namespace with the bridge.
    pub namespace: String,
    /// The device that the routes lead to.
    pub entrance: String,
    /// The device that packets come back through, where the sendbox captures and sends.
    pub exit: String,
    /// The table with the routes.
    pub table: u32,
}

/// What names of namespaces begin with.
const NAMESPACE_PREFIX: &str = "forebay-";
/// Longest name of a box that stands in names of devices as it is: those have at most 15 bytes.
const PLAIN_MAX: usize = 9;
/// What numbers of tables begin with: `fb` in ASCII. The lower half follows from the box's name.
const TABLES: u32 = 0x6662_0000;
/// What an alias of a device (ip-link(8)) begins with; name and WAN of the box follow.
const ALIAS: &str = "forebay triangle ";
/// What the ends in the namespace are called.
const INNER: [&str; 2] = ["lan", "wan"];

impl Names {
    /// Names of the parts of the triangle of the box called `name`.
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

    /// The outer ends, and what they reach in the namespace.
    fn ends(&self) -> [(&str, &str); 2] {
        [(&self.entrance, INNER[0]), (&self.exit, INNER[1])]
    }

    /// The Ethernet address of both outer ends, locally administered.
    fn address(&self) -> [u8; 6] {
        let [_, _, three, four] = self.table.to_be_bytes();
        [0x02, b'f', b'b', 0, three, four]
    }
}

/// FNV-1a (draft-eastlake-fnv), which is the same in every version.
fn hash_of(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Makes a triangle, and removes what an earlier one of this name has left. No packet takes it before a [`keeper`] has put
/// its rule there.
///
/// # Errors
///
/// Which step failed; then nothing is left. A triangle of another WAN and a device of somebody else stay.
pub fn make(spec: &Spec) -> io::Result<()> {
    let names = spec.names();
    for (device, _) in names.ends() {
        refuse_foreign(device, spec)?;
    }
    remove(&names)?;
    let made = build(spec, &names);
    if made.is_err() {
        // The first error says more.
        let _ = remove(&names);
    }
    made
}

/// Refuses to replace a device that no triangle of this box and WAN has left.
fn refuse_foreign(device: &str, spec: &Spec) -> io::Result<()> {
    let Some(link) = Link::named(device)? else { return Ok(()) };
    if link.alias == alias(spec) {
        return Ok(());
    }
    let (name, alias) = (&spec.name, link.alias);
    let what = if alias.is_empty() { "not a triangle's".into() } else { format!("{alias:?}") };
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!(
            "{device} is there and {what}: a box called {name:?} needs the name, so call one of the two otherwise, or \
             have `forebay doctor --clean` remove what a box has left"
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

/// How the machine treats what comes out of an outer end.
fn set_up(device: &str, spec: &Spec) -> io::Result<()> {
    let own = if spec.own { "1" } else { "0" };
    for (key, value) in [
        // Loose (RFC 3704): the way back to the hosts is through another device.
        ("rp_filter", "2"),
        ("forwarding", "1"),
        ("send_redirects", "0"),
        ("accept_local", own),
    ] {
        fs::write(format!("/proc/sys/net/ipv4/conf/{device}/{key}"), value)
            .map_err(|error| io::Error::new(error.kind(), format!("{key}: {error}")))?;
    }
    for (key, value) in [("accept_ra", "0"), ("forwarding", "1")] {
        // A kernel without IPv6 has none of its packets.
        match fs::write(format!("/proc/sys/net/ipv6/conf/{device}/{key}"), value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written?,
        }
    }
    Ok(())
}

/// The MTU of a triangle: that of the WAN, as far as AF_XDP carries it.
fn mtu_of(wan: &str) -> io::Result<u32> {
    Ok(offload::mtu(wan)?.min(MtuMax::here().bytes))
}

/// Removes a triangle: the rules first, so that packets take the plain route. What is not there is no error.
pub fn remove(names: &Names) -> io::Result<()> {
    let host = Commands::open()?;
    routes::remove(&host, names.table)?;
    for (device, _) in names.ends() {
        if Link::named(device)?.is_some_and(|link| link.alias.starts_with(ALIAS)) {
            link::delete(&host, device)?;
        }
    }
    namespace::remove(&names.namespace)
}

/// Whether packets get through a triangle.
///
/// # Errors
///
/// What is missing. Needs `CAP_NET_ADMIN` in the initial user namespace.
pub fn check(names: &Names) -> Result<(), String> {
    let mut bridges = BTreeSet::new();
    for (device, _) in names.ends() {
        let said = |error: io::Error| format!("{device}: {error}");
        let link = Link::named(device).map_err(said)?;
        let link = link.ok_or_else(|| format!("{device} of the triangle is gone"))?;
        if !link.has(IFF_UP) || !link.has(IFF_LOWER_UP) {
            return Err(format!("{device} of the triangle is down"));
        }
        let inner = link.other_end().map_err(said)?;
        let bridge = inner.and_then(|inner| inner.master.filter(|_| inner.has(IFF_UP)));
        bridges.insert(bridge.ok_or_else(|| format!("{device} leads to no bridge"))?);
    }
    match bridges.len() {
        1 => Ok(()),
        _ => Err(format!("{} and {} lead to different bridges", names.entrance, names.exit)),
    }
}

/// Gives the outer ends the MTU that the WAN has by now, if it is another: at most `most`.
fn follow_mtu(host: &Commands, spec: &Spec, names: &Names, most: u32) -> io::Result<()> {
    let mtu = mtu_of(&spec.wan)?.min(most);
    for (device, _) in names.ends() {
        let Some(link) = Link::named(device)?.filter(|link| link.mtu != mtu) else { continue };
        link::set_mtu(host, &link, mtu)?;
    }
    Ok(())
}

/// A triangle, or parts of one, that may be left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name of its box.
    pub name: String,
    /// The WAN of that box, where a device still says so.
    pub wan: Option<String>,
}

/// The triangles of the current network namespace, and namespaces of triangles whose other ends are gone.
pub fn found() -> io::Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    for alias in link::aliases()? {
        let Some((name, wan)) = alias.strip_prefix(ALIAS).and_then(|it| it.rsplit_once(" for "))
        else {
            continue;
        };
        let one = Found { name: name.into(), wan: Some(wan.into()) };
        if !found.contains(&one) {
            found.push(one);
        }
    }
    for name in namespace::names(NAMESPACE_PREFIX)? {
        let is_known = found.iter().any(|one| one.name == name);
        let file = format!("{NAMESPACE_PREFIX}{name}");
        if !is_known && !namespace::has_device(&file, INNER[0])? {
            found.push(Found { name, wan: None });
        }
    }
    Ok(found)
}

/// Removes rules and routes of tables that none of `kept` has; answers how many rules.
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

/// The file that the namespace of a triangle is mounted on.
pub fn path_of(names: &Names) -> PathBuf {
    Path::new(namespace::FOLDER).join(&names.namespace)
}

#[cfg(test)]
mod tests;
