//! The devices of a triangle, over rtnetlink(7).

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoBridge, InfoBridgePort, InfoData, InfoKind,
    InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use nix::net::if_::if_nametoindex;

use crate::netlink::{Commands, NLM_F_CREATE, NLM_F_EXCL};
use crate::rtnetlink::{self, about_link, first};

/// The IPv4 address of both outer ends, the dummy address of RFC 7600. Without an address, the kernel drops all packets
/// from a device with reverse path filtering, even loose (`fib_validate_source`). With host scope it never becomes a
/// source address.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// Name of the bridge in its namespace.
const BRIDGE: &str = "bridge";

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriangleLink {
    pub index: u32,
    flags: LinkFlags,
    pub mtu: u32,
    /// The device that has this one as a port.
    pub master: Option<u32>,
    pub alias: String,
    /// The other end of a veth, and the number of its network namespace if that differs.
    peer: Option<(u32, Option<i32>)>,
}

impl TriangleLink {
    /// The device of the current network namespace with this name; `None`: there is none.
    pub fn named(name: &str) -> io::Result<Option<Self>> {
        match Commands::open()?.link(&by_name(name)) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            found => found.map(|link| Some(Self::read(&link))),
        }
    }

    /// The other end, if it is in another network namespace.
    pub fn other_end(&self) -> io::Result<Option<Self>> {
        let Some((index, Some(namespace))) = self.peer else { return Ok(None) };
        let there = about_link(index, vec![LinkAttribute::IfNetnsId(namespace)]);
        Commands::open()?.link(&there).map(|link| Some(Self::read(&link)))
    }

    pub fn has(&self, flag: LinkFlags) -> bool {
        self.flags.contains(flag)
    }

    fn read(link: &LinkMessage) -> Self {
        let attributes = &link.attributes;
        let namespace = first!(attributes, LinkAttribute::LinkNetNsId).copied();
        Self {
            index: link.header.index,
            flags: link.header.flags,
            mtu: first!(attributes, LinkAttribute::Mtu).copied().unwrap_or(0),
            master: first!(attributes, LinkAttribute::Controller).copied(),
            alias: first!(attributes, LinkAttribute::IfAlias).cloned().unwrap_or_default(),
            peer: first!(attributes, LinkAttribute::Link).map(|index| (*index, namespace)),
        }
    }
}

/// The aliases of all devices of the current network namespace that have one.
pub fn aliases() -> io::Result<Vec<String>> {
    let alias = |link: &LinkMessage| first!(link.attributes, LinkAttribute::IfAlias).cloned();
    Ok(rtnetlink::links()?.iter().filter_map(alias).filter(|alias| !alias.is_empty()).collect())
}

/// A pair of veths.
pub struct Pair<'a> {
    /// The end in the current network namespace.
    pub outer: &'a str,
    /// The end in the other namespace.
    pub inner: &'a str,
    pub mtu: u32,
    /// Ethernet address of the outer end.
    pub address: [u8; 6],
    /// Transmit queues of the outer end.
    pub transmit_queues: u32,
}

/// Makes a pair of veths, both down, with one end in `namespace`.
pub fn make_pair(host: &Commands, pair: &Pair<'_>, namespace: &File) -> io::Result<()> {
    let end = |name: &str, transmit_queues: u32| {
        [
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Mtu(pair.mtu),
            LinkAttribute::NumTxQueues(transmit_queues),
            LinkAttribute::NumRxQueues(1),
        ]
    };
    let mut inner = about_link(0, end(pair.inner, 1).into());
    inner.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
    let mut outer = about_link(0, end(pair.outer, pair.transmit_queues).into());
    outer.attributes.push(LinkAttribute::Address(pair.address.into()));
    let data = InfoData::Veth(InfoVeth::Peer(inner));
    outer.attributes.push(of_kind(InfoKind::Veth, data));
    host.execute(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &outer)
}

/// Connects the two ends in a namespace, over a socket of that namespace, by a bridge that learns no addresses: both
/// outer ends have the same address.
pub fn bridge(inside: &Commands, ports: [&str; 2]) -> io::Result<()> {
    let data = InfoData::Bridge(vec![InfoBridge::MulticastSnooping(false)]);
    let mut bridge = by_name(BRIDGE);
    bridge.attributes.push(of_kind(InfoKind::Bridge, data));
    inside.execute(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &bridge)?;
    let index = |name: &str| inside.link(&by_name(name)).map(|link| link.header.index);
    let bridge = index(BRIDGE)?;
    let port = LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::Learning(false)])),
    ]);
    for name in ports {
        let at = index(name)?;
        let join = about_link(at, vec![LinkAttribute::Controller(bridge)]);
        inside.execute(libc::RTM_SETLINK, 0, &join)?;
        inside.execute(libc::RTM_NEWLINK, 0, &about_link(at, vec![port.clone()]))?;
        inside.execute(libc::RTM_SETLINK, 0, &with_flags(at, LinkFlags::Up))?;
    }
    inside.execute(libc::RTM_SETLINK, 0, &with_flags(bridge, LinkFlags::Up))
}

/// Sets an outer end up, without neighbours.
pub fn put_up(host: &Commands, device: &str, alias: &str) -> io::Result<()> {
    let index = if_nametoindex(device)?;
    let alias = LinkAttribute::IfAlias(alias.into());
    host.execute(libc::RTM_SETLINK, 0, &about_link(index, vec![alias]))?;
    let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let quiet = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
    // A kernel without IPv6 creates no such addresses.
    match host.execute(libc::RTM_SETLINK, 0, &about_link(index, vec![quiet])) {
        Err(error) if is_unsupported(&error) => {}
        done => done?,
    }
    let mut address = AddressMessage::default();
    address.header.family = AddressFamily::Inet;
    address.header.prefix_len = 32;
    address.header.scope = AddressScope::Host;
    address.header.index = index;
    let both = [AddressAttribute::Local, AddressAttribute::Address];
    address.attributes = both.map(|kind| kind(ADDRESS.into())).into();
    host.execute(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &address)?;
    host.execute(libc::RTM_SETLINK, 0, &with_flags(index, LinkFlags::Up | LinkFlags::Noarp))
}

/// Whether the kernel does not support the requested feature.
pub fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::EINVAL))
}

/// Sets the MTU of an outer end. The inner end keeps its initial MTU, which is no smaller, and cannot be changed from
/// here. With IFLA_TARGET_NETNSID the kernel would move a device of this namespace, whichever one has that index.
pub fn set_mtu(host: &Commands, link: &TriangleLink, mtu: u32) -> io::Result<()> {
    host.execute(libc::RTM_SETLINK, 0, &about_link(link.index, vec![LinkAttribute::Mtu(mtu)]))
}

/// Deletes a device; one that is gone is no error.
pub fn delete(host: &Commands, device: &str) -> io::Result<()> {
    match host.execute(libc::RTM_DELLINK, 0, &by_name(device)) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        done => done,
    }
}

/// A message that sets these flags of a device, in addition to its present ones.
fn with_flags(index: u32, flags: LinkFlags) -> LinkMessage {
    let mut message = about_link(index, Vec::new());
    (message.header.flags, message.header.change_mask) = (flags, flags);
    message
}

fn by_name(name: &str) -> LinkMessage {
    about_link(0, vec![LinkAttribute::IfName(name.into())])
}

fn of_kind(kind: InfoKind, data: InfoData) -> LinkAttribute {
    LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)])
}
