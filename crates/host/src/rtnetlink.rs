//! Links, neighbours, routes and rules of the current network namespace, over rtnetlink(7).
//!
//! Messages use the types of netlink-packet-route. Qdiscs, classes and filters stay bytes ([`crate::netlink`]): that
//! crate knows the options of few kinds, and a sendbox restores options exactly as the kernel wrote them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{Emitable, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkExtentMask, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::rule::RuleMessage;

use crate::netlink::{self, Commands, HEADER};

/// The versions of IP.
pub const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// A reference to the value of the first `$kind` in `$attributes`.
macro_rules! first {
    ($attributes:expr, $kind:path) => {
        $attributes.iter().find_map(|it| if let $kind(value) = it { Some(value) } else { None })
    };
}
pub(crate) use first;

impl Commands {
    /// Sends a message of this `kind` (`RTM_*`) as a command, with the `flags` that belong to it.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn execute(&self, kind: u16, flags: u16, message: &impl Emitable) -> io::Result<()> {
        self.command(kind, flags, &encode(message))
    }

    /// All objects that the kernel lists, without unreadable messages.
    fn list<T: Parseable<[u8]>>(&self, kind: u16, question: &impl Emitable) -> io::Result<Vec<T>> {
        let messages = self.dump(kind, &encode(question))?;
        Ok(messages.iter().filter_map(|message| decode(message).ok()).collect())
    }

    fn links(&self, question: &LinkMessage) -> io::Result<Vec<LinkMessage>> {
        let messages = self.dump(libc::RTM_GETLINK, &encode(question))?;
        Ok(messages.iter().filter_map(|message| link_of(message).ok()).collect())
    }

    /// All routes of an IP version, in any table.
    pub fn routes(&self, family: AddressFamily) -> io::Result<Vec<RouteMessage>> {
        self.list(libc::RTM_GETROUTE, &routes_of(family))
    }

    /// All rules of an IP version.
    pub fn rules(&self, family: AddressFamily) -> io::Result<Vec<RuleMessage>> {
        let mut question = RuleMessage::default();
        question.header.family = family;
        self.list(libc::RTM_GETRULE, &question)
    }

    /// The link that `question` selects by index or name.
    pub fn link(&self, question: &LinkMessage) -> io::Result<LinkMessage> {
        link_of(&self.ask(libc::RTM_GETLINK, &encode(question))?)
    }
}

/// All links.
pub fn links() -> io::Result<Vec<LinkMessage>> {
    Commands::open()?.links(&LinkMessage::default())
}

/// The ports of all bridges, each with its VLANs as ranges: single VLANs would not fit into a message.
pub fn bridge_ports() -> io::Result<Vec<LinkMessage>> {
    Commands::open()?.links(&about_bridge_ports())
}

fn about_bridge_ports() -> LinkMessage {
    let vlans = LinkAttribute::ExtMask(vec![LinkExtentMask::BrvlanCompressed]);
    let mut question = about_link(0, vec![vlans]);
    question.header.interface_family = AddressFamily::Bridge;
    question
}

/// The link with this index.
pub fn link(index: u32) -> io::Result<LinkMessage> {
    Commands::open()?.link(&about_link(index, Vec::new()))
}

/// All neighbours of an IP version, or of bridges.
pub fn neighbours(family: AddressFamily) -> io::Result<Vec<NeighbourMessage>> {
    let mut question = NeighbourMessage::default();
    question.header.family = family;
    Commands::open()?.list(libc::RTM_GETNEIGH, &question)
}

/// The route that `question` requests.
pub fn route(question: &RouteMessage) -> io::Result<RouteMessage> {
    decode(&netlink::ask(libc::RTM_GETROUTE, &encode(question))?)
}

/// Applies `wanted` to the routes until it returns a value, and requests no more then.
pub fn find_route<T>(
    family: AddressFamily,
    mut wanted: impl FnMut(&RouteMessage) -> Option<T>,
) -> io::Result<Option<T>> {
    let question = encode(&routes_of(family));
    netlink::find(libc::RTM_GETROUTE, &question, |message| wanted(&decode(message).ok()?))
}

/// A message about a link.
pub fn about_link(index: u32, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    message
}

/// A request for the route to `address`.
pub fn about_route(address: IpAddr, more: &[RouteAttribute]) -> RouteMessage {
    let prefix = IpNet::from(address);
    let mut question = routes_of(family_of(&prefix));
    question.header.destination_prefix_length = prefix.prefix_len();
    question.attributes = [&[RouteAttribute::Destination(address.into())], more].concat();
    question
}

/// The IP version of a prefix.
pub const fn family_of(prefix: &IpNet) -> AddressFamily {
    match prefix {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    }
}

/// The attributes about the kind of a link, and about its role as a port.
pub fn info(link: &LinkMessage) -> &[LinkInfo] {
    first!(link.attributes, LinkAttribute::LinkInfo).map_or(&[], Vec::as_slice)
}

/// The kind of a link as ip(8) names it; `None`: the kernel names no kind, as for hardware.
pub fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    first!(info(link), LinkInfo::Kind)
}

/// The prefix of a route.
pub fn prefix(route: &RouteMessage) -> Option<IpNet> {
    let all: IpAddr = match route.header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let address = first!(route.attributes, RouteAttribute::Destination).map_or(Some(all), address);
    IpNet::new(address?, route.header.destination_prefix_length).ok()
}

/// The devices of a route, one for each next hop.
pub fn devices(route: &RouteMessage) -> Vec<u32> {
    let one = first!(route.attributes, RouteAttribute::Oif).copied();
    let several = first!(route.attributes, RouteAttribute::MultiPath).into_iter().flatten();
    one.into_iter().chain(several.map(|hop| hop.interface_index)).collect()
}

/// The IP address in an attribute of a route.
pub const fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

fn routes_of(family: AddressFamily) -> RouteMessage {
    let mut question = RouteMessage::default();
    question.header.address_family = family;
    question
}

fn encode(message: &impl Emitable) -> Vec<u8> {
    let mut body = vec![0; message.buffer_len()];
    message.emit(&mut body);
    body
}

/// Reads a message of the kernel, which may be a refusal.
fn decode<T: Parseable<[u8]>>(message: &[u8]) -> io::Result<T> {
    netlink::refusal(message)?;
    T::parse(&message[HEADER..]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads a link. In a name or alias that is not UTF-8, `?` replaces each byte beyond ASCII.
fn link_of(message: &[u8]) -> io::Result<LinkMessage> {
    decode(message).or_else(|_| decode(&in_ascii(message)))
}

/// The message of a link with names and aliases in ASCII.
fn in_ascii(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let mut at = HEADER + size_of::<libc::ifinfomsg>();
    while let Some(&[l0, l1, k0, k1]) = message.get(at..).and_then(|rest| rest.first_chunk()) {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let kind = u16::from_ne_bytes([k0, k1]);
        let Some(value) = message.get_mut(at + 4..at + len) else { break };
        if [libc::IFLA_IFNAME, libc::IFLA_IFALIAS].contains(&kind) {
            value.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        }
        at += len.max(4).next_multiple_of(4);
    }
    message
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    /// Reads all objects of a kind from the kernel, complete and cut at each length.
    fn read_cut<T: Parseable<[u8]>>(kind: u16, question: &impl Emitable) {
        let messages = netlink::dump(kind, &encode(question)).unwrap();
        assert!(!messages.is_empty());
        for message in messages {
            assert!(decode::<T>(&message).is_ok(), "{message:?}");
            for len in 0..message.len() {
                let _ = decode::<T>(&message[..len]);
            }
        }
    }

    #[test]
    fn cut_messages_panic_nowhere() {
        on_a_veth_pair(|| {
            for command in [
                "ip link add br0 type bridge",
                "ip link set dev left master br0 up",
                "ip address add 192.0.2.1/24 dev right",
                "ip route add 10.0.0.0/8 dev right",
                "ip neigh add 192.0.2.7 lladdr 02:00:00:00:00:01 dev right",
            ] {
                run(command);
            }
            read_cut::<LinkMessage>(libc::RTM_GETLINK, &LinkMessage::default());
            read_cut::<LinkMessage>(libc::RTM_GETLINK, &about_bridge_ports());
            read_cut::<RouteMessage>(libc::RTM_GETROUTE, &routes_of(AddressFamily::Inet));
            read_cut::<RuleMessage>(libc::RTM_GETRULE, &RuleMessage::default());
            read_cut::<NeighbourMessage>(libc::RTM_GETNEIGH, &NeighbourMessage::default());
        });
    }

    #[test]
    fn links_may_have_names_in_any_encoding() {
        on_a_veth_pair(|| {
            let mut command = Command::new("ip");
            let alias = OsStr::from_bytes(b"B\xfcro");
            command.args(["link", "set", "dev", "left", "alias"]).arg(alias);
            assert!(command.status().unwrap().success());
            let left = nix::net::if_::if_nametoindex("left").unwrap();
            let all = links().unwrap();
            let link = all.iter().find(|link| link.header.index == left).unwrap();
            assert_eq!(first!(link.attributes, LinkAttribute::IfAlias).unwrap(), "B?ro");
            assert_eq!(first!(link.attributes, LinkAttribute::IfName).unwrap(), "left");
        });
    }

    #[test]
    fn rules_are_written_as_read() {
        on_a_veth_pair(|| {
            run("ip rule add from 10.1.0.0/16 iif left fwmark 7 table 100 priority 90");
            let question = RuleMessage::default();
            for message in netlink::dump(libc::RTM_GETRULE, &encode(&question)).unwrap() {
                let rule: RuleMessage = decode(&message).unwrap();
                assert_eq!(encode(&rule), message[HEADER..], "{rule:?}");
            }
        });
    }
}
