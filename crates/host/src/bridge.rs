//! Which bridge a network device is a port of.
//!
//! The kernel is asked over rtnetlink(7): sysfs shows the devices of the network namespace in which
//! it was mounted, which need not be ours.

use std::io;
use std::os::fd::AsRawFd;

use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Why the kernel would not carry frames between two devices on its own.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// They are not ports of the same bridge.
    #[error(
        "{}: both must be ports of one bridge, which carries the traffic whenever the sendbox does \
         not; run `{}`",
        .0.found(),
        .0.fix()
    )]
    Apart(Apart),
    /// The kernel did not say.
    #[error("asking for the bridge of {device}: {source}")]
    Os {
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Two devices, each with the bridge that it is a port of, if any; not the same.
#[derive(Debug)]
pub struct Apart([(String, Option<String>); 2]);

impl Apart {
    /// What each is a port of.
    pub fn found(&self) -> String {
        let [(lan, lan_bridge), (wan, wan_bridge)] = &self.0;
        let name = |bridge: &Option<String>| bridge.clone().unwrap_or("no bridge".into());
        format!("{lan} is a port of {}, {wan} of {}", name(lan_bridge), name(wan_bridge))
    }

    /// The commands that make both ports of one bridge, of the one that is there if any is.
    pub fn fix(&self) -> String {
        let existing = self.0.iter().find_map(|(_, bridge)| bridge.as_deref());
        let bridge = existing.unwrap_or("br0");
        let strays = self.0.iter().filter(|(_, at)| at.as_deref() != Some(bridge));
        let joins = strays.map(|(device, _)| format!("ip link set dev {device} master {bridge}"));
        let create = format!("ip link add {bridge} type bridge && ip link set dev {bridge} up");
        let creates = existing.is_none().then_some(create).into_iter();
        creates.chain(joins).collect::<Vec<_>>().join(" && ")
    }
}

/// The bridge of two devices of the current network namespace, which must be ports of the same.
pub fn check(lan: &str, wan: &str) -> Result<String, BridgeError> {
    let of = |device: &str| match bridge_of(device) {
        Ok(bridge) => Ok((device.to_string(), bridge)),
        Err(source) => Err(BridgeError::Os { device: device.to_string(), source }),
    };
    match [of(lan)?, of(wan)?] {
        [(_, Some(bridge)), (_, Some(other))] if bridge == other => Ok(bridge),
        ports => Err(BridgeError::Apart(Apart(ports))),
    }
}

/// Name of the bridge that `device` is a port of; `None`: of none.
fn bridge_of(device: &str) -> io::Result<Option<String>> {
    let answer = ask(if_nametoindex(device)?)?;
    let Some(master) = bridge_index(&answer)? else { return Ok(None) };
    let name = if_indextoname(master)?;
    Ok(Some(name.to_string_lossy().into_owned()))
}

// include/uapi/linux/netlink.h, rtnetlink.h and if_link.h
const NLMSG_ERROR: u16 = 2;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
/// `struct nlmsghdr`, and `struct ifinfomsg` behind it.
const HEADER: usize = 16;
const LINK_HEADER: usize = 16;

/// The kernel's message about a link.
fn ask(ifindex: u32) -> io::Result<Vec<u8>> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut request = [0; HEADER + LINK_HEADER];
    request[..4].copy_from_slice(&((HEADER + LINK_HEADER) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    request[HEADER + 4..HEADER + 8].copy_from_slice(&ifindex.to_ne_bytes());
    send(kernel.as_raw_fd(), &request, MsgFlags::empty())?;
    // One link without its virtual functions takes a few kilobytes.
    let mut answer = vec![0; 1 << 16];
    let len = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answer.truncate(len);
    Ok(answer)
}

/// Index of the bridge in a message about a link.
fn bridge_index(message: &[u8]) -> io::Result<Option<u32>> {
    let header = message.get(..HEADER).ok_or(io::ErrorKind::InvalidData)?;
    if u16::from_ne_bytes([header[4], header[5]]) == NLMSG_ERROR {
        let code = message.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok());
        let code = i32::from_ne_bytes(code.ok_or(io::ErrorKind::InvalidData)?);
        return Err(io::Error::from_raw_os_error(-code));
    }
    let link = message.get(HEADER + LINK_HEADER..).unwrap_or_default();
    // Bonds and the like are masters too.
    let kind =
        attribute(link, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_SLAVE_KIND));
    if kind.is_none_or(|kind| !kind.starts_with(b"bridge\0")) {
        return Ok(None);
    }
    let master = attribute(link, IFLA_MASTER).and_then(|index| index.try_into().ok());
    Ok(master.map(u32::from_ne_bytes))
}

/// The payload of the attribute `wanted` (`struct rtattr`: length, type, payload, padding to 4).
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [len0, len1, kind0, kind1, ..] = *attributes {
        let len = usize::from(u16::from_ne_bytes([len0, len1]));
        let payload = attributes.get(4..len)?;
        if u16::from_ne_bytes([kind0, kind1]) == wanted {
            return Some(payload);
        }
        attributes = attributes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn devices_apart_are_refused_with_the_line_that_joins_them() {
        on_a_veth_pair(|| {
            let mend = || {
                let error = check("left", "right").unwrap_err().to_string();
                let (_, line) = error.split_once('`').unwrap();
                for command in line.trim_end_matches('`').split(" && ") {
                    run(command);
                }
                error
            };
            let error = mend();
            assert!(
                error.starts_with("left is a port of no bridge, right of no bridge"),
                "{error}"
            );
            assert_eq!(check("left", "right").unwrap(), "br0");
            run("ip link set dev left nomaster");
            let error = mend();
            assert!(error.contains("right of br0") && !error.contains("link add"), "{error}");
            assert_eq!(check("left", "right").unwrap(), "br0");
            run("ip link add br1 type bridge");
            run("ip link set dev right master br1");
            assert!(mend().contains("left is a port of br0, right of br1"));
            assert_eq!(check("left", "right").unwrap(), "br0");
        });
    }

    fn attribute_of(kind: u16, payload: &[u8]) -> Vec<u8> {
        let header = [(payload.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
        let mut bytes = [&header[..], payload].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_master_that_is_no_bridge_does_not_count() {
        let message = |kind: &[u8]| {
            let info = attribute_of(IFLA_INFO_SLAVE_KIND, kind);
            let link =
                [attribute_of(3, b"left\0"), attribute_of(IFLA_MASTER, &7_u32.to_ne_bytes())];
            [vec![0; HEADER + LINK_HEADER], link.concat(), attribute_of(IFLA_LINKINFO, &info)]
                .concat()
        };
        assert_eq!(bridge_index(&message(b"bridge\0")).unwrap(), Some(7));
        for kind in [&b"bond\0"[..], b"bridge2\0", b""] {
            assert_eq!(bridge_index(&message(kind)).unwrap(), None);
        }
        let mut endless = message(b"bridge\0");
        endless[HEADER + LINK_HEADER..][..2].fill(0);
        assert_eq!(bridge_index(&endless).unwrap(), None, "an attribute of no length");
        assert!(matches!(check("no-such-left", "lo"), Err(BridgeError::Os { .. })));
    }

    #[test]
    fn a_message_that_ends_early_names_no_other_bridge() {
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip link set dev left master br0");
            let answer = ask(if_nametoindex("left").unwrap()).unwrap();
            let bridge = if_nametoindex("br0").unwrap();
            assert_eq!(bridge_index(&answer).unwrap(), Some(bridge));
            for len in 0..answer.len() {
                let found = bridge_index(&answer[..len]).ok().flatten();
                assert!(found.is_none_or(|found| found == bridge), "cut at {len}");
            }
            assert!(bridge_index(&ask(9999).unwrap()).is_err(), "no such device");
        });
    }
}
