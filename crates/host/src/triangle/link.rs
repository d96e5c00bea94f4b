//! The devices of a triangle, over rtnetlink(7).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::net::if_::if_nametoindex;

use crate::netlink::{self, Commands, HEADER, NLM_F_CREATE, attribute, attribute_of};

// include/uapi/linux/rtnetlink.h, if_link.h, if.h, veth.h, in6.h
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RT_SCOPE_HOST: u8 = 254;
/// Only if there is none.
const NLM_F_EXCL: u16 = 0x200;
/// `struct ifinfomsg`, behind the header.
const LINK_HEADER: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_TARGET_NETNSID: u16 = 46;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFLA_BRPORT_LEARNING: u16 = 8;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
pub const IFF_UP: u32 = 1;
const IFF_NOARP: u32 = 1 << 7;
pub const IFF_LOWER_UP: u32 = 1 << 16;

/// The IPv4 address of both outer ends, the dummy address of RFC 7600: without any, the kernel takes nothing from a device
/// where it filters by the way back, however loosely (`fib_validate_source`). With this scope nothing is sent from it.
const ADDRESS: [u8; 4] = [192, 0, 0, 8];
/// Name of the bridge in its namespace.
const BRIDGE: &str = "bridge";

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    flags: u32,
    pub mtu: u32,
    /// The device that it is a port of.
    pub master: Option<u32>,
    pub alias: String,
    /// The other end of a veth, and the number of its network namespace where that is another.
    peer: Option<(u32, Option<u32>)>,
}

impl Link {
    /// The device of the current network namespace with this name; `None`: there is none.
    pub fn named(name: &str) -> io::Result<Option<Self>> {
        let body = [header(0, 0, 0), text(IFLA_IFNAME, name)].concat();
        match netlink::ask(RTM_GETLINK, &body).and_then(|answer| Self::parse(&answer)) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The other end, in another network namespace; `None`: it has none there.
    pub fn other_end(&self) -> io::Result<Option<Self>> {
        let Some((index, Some(namespace))) = self.peer else { return Ok(None) };
        let body = [header(index, 0, 0), number(IFLA_TARGET_NETNSID, namespace)].concat();
        let answer = netlink::ask(RTM_GETLINK, &body)?;
        Self::parse(&answer).map(Some)
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn parse(message: &[u8]) -> io::Result<Self> {
        netlink::refusal(message)?;
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let fixed = message.get(HEADER..HEADER + LINK_HEADER).ok_or_else(malformed)?;
        let attributes = &message[HEADER + LINK_HEADER..];
        let number = |kind| attribute(attributes, kind).and_then(word);
        let alias = attribute(attributes, IFLA_IFALIAS).unwrap_or_default();
        let alias = String::from_utf8_lossy(alias).trim_end_matches('\0').to_string();
        Ok(Self {
            index: word(&fixed[4..8]).ok_or_else(malformed)?,
            flags: word(&fixed[8..12]).ok_or_else(malformed)?,
            mtu: number(IFLA_MTU).unwrap_or(0),
            master: number(IFLA_MASTER),
            alias,
            peer: number(IFLA_LINK).map(|index| (index, number(IFLA_LINK_NETNSID))),
        })
    }
}

/// The aliases of all devices of the current network namespace that have one.
pub fn aliases() -> io::Result<Vec<String>> {
    let messages = netlink::dump(RTM_GETLINK, &[0; LINK_HEADER])?;
    let links = messages.iter().filter_map(|message| Link::parse(message).ok());
    Ok(links.map(|link| link.alias).filter(|alias| !alias.is_empty()).collect())
}

/// A pair of veths.
pub struct Pair<'a> {
    /// The end in the current network namespace.
    pub outer: &'a str,
    /// The end in the other one.
    pub inner: &'a str,
    pub mtu: u32,
    /// Ethernet address of the outer end.
    pub address: [u8; 6],
    /// Of the outer end.
    pub transmit_queues: u32,
}

/// Makes a pair of veths, which are down, with an end in `namespace`.
pub fn make_pair(host: &Commands, pair: &Pair<'_>, namespace: &File) -> io::Result<()> {
    let queues = |transmit: u32| {
        [number(IFLA_NUM_TX_QUEUES, transmit), number(IFLA_NUM_RX_QUEUES, 1)].concat()
    };
    let peer = [
        header(0, 0, 0),
        text(IFLA_IFNAME, pair.inner),
        number(IFLA_MTU, pair.mtu),
        number(IFLA_NET_NS_FD, namespace.as_raw_fd().cast_unsigned()),
        queues(1),
    ];
    let body = [
        header(0, 0, 0),
        text(IFLA_IFNAME, pair.outer),
        number(IFLA_MTU, pair.mtu),
        attribute_of(IFLA_ADDRESS, &pair.address),
        queues(pair.transmit_queues),
        of_kind("veth", &attribute_of(VETH_INFO_PEER, &peer.concat())),
    ];
    host.command(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body.concat())
}

/// Joins the two ends in a namespace, over a socket of that namespace, by a bridge that learns no addresses: those of both
/// outer ends are the same.
pub fn bridge(inside: &Commands, ports: [&str; 2]) -> io::Result<()> {
    let data = attribute_of(IFLA_BR_MCAST_SNOOPING, &[0]);
    let body = [header(0, 0, 0), text(IFLA_IFNAME, BRIDGE), of_kind("bridge", &data)].concat();
    inside.command(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body)?;
    let index = |name: &str| {
        let body = [header(0, 0, 0), text(IFLA_IFNAME, name)].concat();
        Link::parse(&inside.ask(RTM_GETLINK, &body)?).map(|link| link.index)
    };
    let bridge = index(BRIDGE)?;
    let port = [
        attribute_of(IFLA_INFO_SLAVE_KIND, b"bridge\0"),
        attribute_of(IFLA_INFO_SLAVE_DATA, &attribute_of(IFLA_BRPORT_LEARNING, &[0])),
    ];
    let port = attribute_of(IFLA_LINKINFO, &port.concat());
    for name in ports {
        let at = index(name)?;
        let join = [header(at, 0, 0), number(IFLA_MASTER, bridge)].concat();
        inside.command(RTM_SETLINK, 0, &join)?;
        inside.command(RTM_NEWLINK, 0, &[header(at, 0, 0), port.clone()].concat())?;
        inside.command(RTM_SETLINK, 0, &header(at, IFF_UP, IFF_UP))?;
    }
    inside.command(RTM_SETLINK, 0, &header(bridge, IFF_UP, IFF_UP))
}

/// Puts an outer end up, without neighbours.
pub fn put_up(host: &Commands, device: &str, alias: &str) -> io::Result<()> {
    let index = if_nametoindex(device)?;
    // The text without an end.
    let alias = attribute_of(IFLA_IFALIAS, alias.as_bytes());
    host.command(RTM_SETLINK, 0, &[header(index, 0, 0), alias].concat())?;
    let mode = attribute_of(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    let of_family = attribute_of(libc::AF_INET6 as u16, &mode);
    let quiet = [header(index, 0, 0), attribute_of(IFLA_AF_SPEC, &of_family)].concat();
    // A kernel without IPv6 makes no such addresses.
    match host.command(RTM_SETLINK, 0, &quiet) {
        Err(error) if is_unsupported(&error) => {}
        done => done?,
    }
    let mut address = vec![libc::AF_INET as u8, 32, 0, RT_SCOPE_HOST];
    address.extend(index.to_ne_bytes());
    address.extend([IFA_LOCAL, IFA_ADDRESS].map(|kind| attribute_of(kind, &ADDRESS)).concat());
    host.command(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &address)?;
    let flags = IFF_UP | IFF_NOARP;
    host.command(RTM_SETLINK, 0, &header(index, flags, flags))
}

/// Whether the kernel does not know what it was asked about.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL))
}

/// Gives an outer end this MTU. The inner one keeps that of the start, which is no smaller. It could not be changed from
/// here: with IFLA_TARGET_NETNSID the kernel would move a device of this namespace, and it takes any that has the index.
pub fn set_mtu(host: &Commands, link: &Link, mtu: u32) -> io::Result<()> {
    host.command(RTM_SETLINK, 0, &[header(link.index, 0, 0), number(IFLA_MTU, mtu)].concat())
}

/// Deletes a device; one that is gone is no error.
pub fn delete(host: &Commands, device: &str) -> io::Result<()> {
    let body = [header(0, 0, 0), text(IFLA_IFNAME, device)].concat();
    match host.command(RTM_DELLINK, 0, &body) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        done => done,
    }
}

/// `struct ifinfomsg`: a device, and those of its flags that are to be so.
fn header(index: u32, flags: u32, changed: u32) -> Vec<u8> {
    let words = [0, index, flags, changed];
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute_of(kind, &value.to_ne_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute_of(kind, format!("{value}\0").as_bytes())
}

fn of_kind(kind: &str, data: &[u8]) -> Vec<u8> {
    let parts = [text(IFLA_INFO_KIND, kind), attribute_of(IFLA_INFO_DATA, data)];
    attribute_of(IFLA_LINKINFO, &parts.concat())
}
