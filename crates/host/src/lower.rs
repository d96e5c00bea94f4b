//! Devices that frames come up through before they come to another: the kernel merges (GRO) where they
//! come in, whatever the device above has switched off.

use std::io;

use nix::net::if_::if_nametoindex;

use crate::netlink::{self, HEADER, attribute};
use crate::offload::{self, Offload, OffloadError};

// include/uapi/linux/rtnetlink.h, if_link.h
const RTM_GETLINK: u16 = 18;
/// `struct ifinfomsg`, behind the header.
const LINK_HEADER: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;
/// Kinds that stand on one other device. What a veth names is its other end.
const UPON: [&[u8]; 3] = [b"vlan\0", b"macvlan\0", b"macvtap\0"];

/// What a device is (IFLA_INFO_KIND), such as `wireguard`; `None`: the kernel names no kind, as of hardware.
pub fn kind(device: &str) -> io::Result<Option<String>> {
    let index = if_nametoindex(device).map_err(|_| io::ErrorKind::NotFound)?;
    for message in netlink::dump(RTM_GETLINK, &[0; LINK_HEADER])? {
        let is_it = message.get(HEADER + 4..HEADER + 8) == Some(&index.to_ne_bytes()[..]);
        let Some(link) = message.get(HEADER + LINK_HEADER..).filter(|_| is_it) else { continue };
        let info = attribute(link, IFLA_LINKINFO).unwrap_or_default();
        let kind = attribute(info, IFLA_INFO_KIND).map(String::from_utf8_lossy);
        return Ok(kind.map(|kind| kind.trim_end_matches('\0').to_string()));
    }
    Err(io::ErrorKind::NotFound.into())
}

/// A link, as far as it matters here.
struct Link {
    index: u32,
    name: String,
    /// Bridge, bond or the like that it is a port of.
    master: Option<u32>,
    /// What it stands on, in this network namespace.
    upon: Option<u32>,
}

impl Link {
    /// Reads the kernel's message about a link.
    fn parse(message: &[u8]) -> Option<Self> {
        let index = u32::from_ne_bytes(message.get(HEADER + 4..HEADER + 8)?.try_into().ok()?);
        let link = message.get(HEADER + LINK_HEADER..)?;
        let number = |kind| Some(u32::from_ne_bytes(attribute(link, kind)?.try_into().ok()?));
        let kind = attribute(attribute(link, IFLA_LINKINFO).unwrap_or_default(), IFLA_INFO_KIND);
        let is_upon = kind.is_some_and(|kind| UPON.contains(&kind))
            && attribute(link, IFLA_LINK_NETNSID).is_none();
        let name = String::from_utf8_lossy(attribute(link, IFLA_IFNAME)?);
        Some(Self {
            index,
            name: name.trim_end_matches('\0').to_string(),
            master: number(IFLA_MASTER),
            upon: number(IFLA_LINK).filter(|_| is_upon),
        })
    }
}

/// The names of all devices below `device`, of the current network namespace: its ports, what it stands
/// on, and theirs.
pub fn below(device: &str) -> io::Result<Vec<String>> {
    let messages = netlink::dump(RTM_GETLINK, &[0; LINK_HEADER])?;
    let links: Vec<Link> = messages.iter().filter_map(|message| Link::parse(message)).collect();
    let mut found = vec![if_nametoindex(device)?];
    let mut at = 0;
    while let Some(&index) = found.get(at) {
        let upon = links.iter().find(|link| link.index == index).and_then(|link| link.upon);
        let ports = links.iter().filter(|link| link.master == Some(index)).map(|link| link.index);
        let lower: Vec<u32> = ports.chain(upon).filter(|lower| !found.contains(lower)).collect();
        found.extend(lower);
        at += 1;
    }
    let name = |index| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
    Ok(found.into_iter().skip(1).filter_map(name).collect())
}

/// One below `device` that merges packets on their way up, if any does.
pub fn merging_below(device: &str) -> Result<Option<String>, OffloadError> {
    let os = |source| OffloadError::Os { device: device.into(), offload: Offload::Gro, source };
    for lower in below(device).map_err(os)? {
        if offload::is_on(&lower, Offload::Gro)? || offload::is_on(&lower, Offload::Lro)? {
            return Ok(Some(lower));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn ports_and_what_a_device_stands_on_are_below_it_and_the_other_end_of_a_veth_is_not() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            run("ip link add link br0 name mac0 type macvlan mode bridge");
            assert_eq!(below("mac0").unwrap(), ["br0", "left"]);
            assert_eq!(below("br0").unwrap(), ["left"]);
            assert_eq!(below("left").unwrap(), [""; 0]);
            assert!(below("nowhere").is_err());
            for device in ["br0", "left"] {
                let before = merging_below("mac0").unwrap();
                run(&format!("ethtool -K {device} gro on"));
                assert_eq!(
                    merging_below("mac0").unwrap().as_deref(),
                    before.as_deref().or(Some(device))
                );
                run(&format!("ethtool -K {device} gro off"));
            }
            assert_eq!(merging_below("mac0").unwrap(), None);
        });
    }

    #[test]
    fn a_message_that_ends_early_names_no_other_device() {
        on_a_veth_pair(|| {
            run("ip link add link left name mac0 type macvlan");
            let messages = netlink::dump(RTM_GETLINK, &[0; LINK_HEADER]).unwrap();
            let whole =
                messages.iter().find(|message| Link::parse(message).unwrap().name == "mac0");
            let left = if_nametoindex("left").unwrap();
            let whole = whole.unwrap();
            assert_eq!(Link::parse(whole).unwrap().upon, Some(left));
            for len in 0..whole.len() {
                let Some(link) = Link::parse(&whole[..len]) else { continue };
                assert_eq!(link.name, "mac0", "cut at {len}");
                assert!(link.upon.is_none_or(|upon| upon == left), "cut at {len}");
            }
        });
    }
}
