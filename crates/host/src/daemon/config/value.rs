//! Single values of a configuration file. Where a text is refused the error says what is allowed.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use forebay_core::bundle::sendbox::RATES;
use forebay_core::bundle::{NAME_MAX, Nat};
use forebay_core::units::{self, ByteCount, Duration, Rate};
use ipnet::IpNet;

use super::{DatapathKind, Forward, KernelQdisc, Peer, Role};
use crate::prefix;

/// More than tunnels in tunnels add.
const OVERHEAD_MAX: ByteCount = ByteCount::new(500);
/// Least limit of a trace.
const TRACE_MIN: ByteCount = ByteCount::new(1_000_000);
/// A longer look would keep packets that are due waiting.
const BUSY_POLL: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_millis(1);

fn otherwise<T>(value: Option<T>, allowed: impl Display) -> Result<T, String> {
    value.ok_or_else(|| allowed.to_string())
}

pub(super) fn role(text: &str) -> Result<Role, String> {
    otherwise(text.parse().ok(), "\"sendbox\" or \"receivebox\"")
}

pub(super) fn forward(text: &str) -> Result<Forward, String> {
    otherwise(Forward::of_name(text), "\"bridge\" or \"route\"")
}

pub(super) fn datapath(text: &str) -> Result<DatapathKind, String> {
    otherwise(DatapathKind::of_name(text), "\"user\", \"kernel\" or \"auto\"")
}

pub(super) fn kernel_qdisc(text: &str) -> Result<KernelQdisc, String> {
    let allowed = "\"fifo\", \"fq_codel\", \"cake\", \"fq\" or \"sfq\"";
    otherwise(KernelQdisc::of_name(text), allowed)
}

pub(in crate::daemon) fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = (1..=NAME_MAX).contains(&text.len()) && text.chars().all(is_plain);
    let allowed = format!("a text of 1 to {NAME_MAX} letters, digits, \".\", \"_\" or \"-\"");
    otherwise(is_name.then(|| text.to_string()), allowed)
}

/// A name the kernel accepts for a device (`dev_valid_name`, net/core/dev.c).
pub(in crate::daemon) fn device(text: &str) -> Result<String, String> {
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    let is_name = (1..libc::IFNAMSIZ).contains(&text.len())
        && ![".", ".."].contains(&text)
        && !text.contains(is_bad);
    let allowed = "a network device's name of 1 to 15 characters, such as \"eth0\"";
    otherwise(is_name.then(|| text.to_string()), allowed)
}

/// An address of a box of this role, whose port may be left out.
pub(super) fn address(role: Role, text: &str) -> Result<SocketAddr, String> {
    host(role.default_port(), text)
}

/// Where the other box is, which has this role: an address or a name, whose port may be left out.
pub(in crate::daemon) fn peer(role: Role, text: &str) -> Result<Peer, String> {
    let port = role.default_port();
    host(port, text).map(Peer::At).or_else(|allowed| {
        let allowed = format!("{allowed}, or a name with a dot, such as \"site-b.example.org\"");
        otherwise(Peer::named(port, text), allowed)
    })
}

/// What NAT between the boxes changes.
pub(super) fn nat(text: &str) -> Result<Nat, String> {
    let nat = Nat::ALL.into_iter().find(|nat| nat.name() == text);
    otherwise(nat, "\"source\", \"destination\" or \"both\", of the packets from the sendbox on")
}

/// An address of one host; without a port, with or without the brackets that a port would need, it has this one.
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
    let allowed = "one host's IP address, such as \"10.1.3.1\", \"10.1.3.1:7000\" or \
                   \"[2001:db8::1]:7000\"";
    otherwise(host, allowed)
}

pub(in crate::daemon) fn prefix(text: &str) -> Result<IpNet, String> {
    let allowed = "a prefix such as \"10.1.2.0/24\" or \"2001:db8:2::/48\"";
    let prefix = otherwise(prefix::parse(text), allowed)?;
    if let Some(meant) = prefix::of_mapped(prefix) {
        return Err(format!("the IPv4 prefix itself, \"{meant}\""));
    }
    let allowed = format!("a prefix without host bits: \"{}\"", prefix.trunc());
    otherwise(Some(prefix).filter(|prefix| *prefix == prefix.trunc()), allowed)
}

/// A path, relative to the `folder` of the configuration file.
pub(super) fn path(folder: &Path, text: &str) -> Result<PathBuf, String> {
    let is_path = !text.is_empty() && !text.contains('\0');
    otherwise(is_path.then(|| folder.join(text)), "a path, as a text")
}

/// The path of a socket: sockaddr_un.sun_path holds 108 bytes with its terminator.
pub(super) fn socket_path(folder: &Path, text: &str) -> Result<PathBuf, String> {
    let fits = |path: &PathBuf| path.as_os_str().len() <= 107;
    otherwise(path(folder, text).ok().filter(fits), "a path of at most 107 bytes")
}

pub(super) fn rate(text: &str) -> Result<Rate, String> {
    let rate = text.parse().ok().filter(|rate: &Rate| RATES.contains(rate));
    let allowed = format!("a rate from {} to {}, such as \"96Mbit/s\"", RATES.start(), RATES.end());
    otherwise(rate, allowed)
}

/// How long the packet thread may look for packets before it sleeps.
pub(super) fn busy_poll(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).ok().filter(|time| BUSY_POLL.contains(time));
    otherwise(time, "a time from 1us to 1ms, such as \"50us\"")
}

/// What a packet gains below a device.
pub(super) fn overhead(text: &str) -> Result<u16, String> {
    let bytes = text.parse().ok().filter(|bytes: &ByteCount| *bytes <= OVERHEAD_MAX);
    otherwise(
        bytes.map(|bytes| bytes.as_u64() as u16),
        format!("a size from 0B to {OVERHEAD_MAX}, such as \"60B\""),
    )
}

pub(super) fn trace_size(text: &str) -> Result<ByteCount, String> {
    let size = text.parse().ok().filter(|size: &ByteCount| *size >= TRACE_MIN);
    otherwise(size, "a size of at least 1MB such as \"256MB\"")
}
