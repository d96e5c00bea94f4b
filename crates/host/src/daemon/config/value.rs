//! Single values of a configuration file. The error for a refused text lists the allowed values.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use forebay_reader::tree::Value;
use ipnet::IpNet;

use super::schema::{ADDRESS, DEVICE, NAME, NAMED, PATH, PREFIX};
use super::{Peer, Role};
use crate::prefix;

fn otherwise<T>(value: Option<T>, allowed: impl Display) -> Result<T, String> {
    value.ok_or_else(|| allowed.to_string())
}

pub(in crate::daemon) fn name(text: &str) -> Result<String, String> {
    otherwise(NAME.name(&Value::Text(text.into())), NAME.allowed())
}

/// A name the kernel accepts for a device (`dev_valid_name`, net/core/dev.c).
pub(in crate::daemon) fn device(text: &str) -> Result<String, String> {
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    let is_name = (1..libc::IFNAMSIZ).contains(&text.len())
        && ![".", ".."].contains(&text)
        && !text.contains(is_bad);
    otherwise(is_name.then(|| text.to_string()), DEVICE)
}

/// An address of a box of this role, with or without a port.
pub(super) fn address(role: Role, text: &str) -> Result<SocketAddr, String> {
    host(role.default_port(), text)
}

/// Location of the other box, which has this role: an address or a name, with or without a port.
pub(in crate::daemon) fn peer(role: Role, text: &str) -> Result<Peer, String> {
    let port = role.default_port();
    host(port, text)
        .map(Peer::At)
        .or_else(|allowed| otherwise(Peer::named(port, text), format!("{allowed}, {NAMED}")))
}

/// An address of one host. Without a port it has this one, and the brackets that a port would need are
/// optional.
pub(in crate::daemon) fn host(port: u16, text: &str) -> Result<SocketAddr, String> {
    let in_brackets = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone = || match in_brackets {
        Some(text) => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse::<IpAddr>().ok(),
    };
    let parsed = text.parse::<SocketAddr>().ok().or_else(|| Some((alone()?, port).into()));
    let host = parsed.filter(|address| {
        let ip = address.ip();
        let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
    });
    if let Some(IpAddr::V6(mapped)) = host.map(|address| address.ip())
        && let Some(meant) = mapped.to_ipv4_mapped()
    {
        return Err(format!("the IPv4 address itself, \"{meant}\""));
    }
    otherwise(host, ADDRESS)
}

pub(in crate::daemon) fn prefix(text: &str) -> Result<IpNet, String> {
    let prefix = otherwise(prefix::parse(text), PREFIX)?;
    if let Some(meant) = prefix::of_mapped(prefix) {
        return Err(format!("the IPv4 prefix itself, \"{meant}\""));
    }
    let allowed = format!("a prefix without host bits: \"{}\"", prefix.trunc());
    otherwise(Some(prefix).filter(|prefix| *prefix == prefix.trunc()), allowed)
}

/// A path, relative to the `folder` of the configuration file.
pub(super) fn path(folder: &Path, text: &str) -> Result<PathBuf, String> {
    let is_path = !text.is_empty() && !text.contains('\0');
    otherwise(is_path.then(|| folder.join(text)), PATH)
}

/// The path of a socket: sockaddr_un.sun_path holds 108 bytes with its terminator.
pub(super) fn socket_path(folder: &Path, text: &str) -> Result<PathBuf, String> {
    let fits = |path: &PathBuf| path.as_os_str().len() <= 107;
    otherwise(path(folder, text).ok().filter(fits), "a path of at most 107 bytes")
}
