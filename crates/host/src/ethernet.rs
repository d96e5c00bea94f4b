//! Devices with Ethernet frames, and the Ethernet addresses of this machine.

use std::collections::BTreeSet;
use std::io;

use nix::ifaddrs::getifaddrs;

use crate::offload;

/// Why a box cannot use a device.
#[derive(Debug, thiserror::Error)]
pub enum EthernetError {
    /// Packets of the device have another header in front, or none.
    #[error("{}, which a box reads; {}", self.found(), fix())]
    Other {
        /// Device name.
        device: String,
        /// `ARPHRD_*` of include/uapi/linux/if_arp.h.
        hardware_type: u16,
    },
    /// The kernel refused the request.
    #[error("reading the kind of {device}: {source}")]
    Os {
        /// Device name.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl EthernetError {
    /// A text that says what is wrong with the device.
    pub fn found(&self) -> String {
        match self {
            Self::Other { device, hardware_type } => {
                format!("{device} carries {}, not Ethernet frames", kind(*hardware_type))
            }
            Self::Os { .. } => self.to_string(),
        }
    }
}

/// The remedy for a device without Ethernet frames, as text for the operator.
pub fn fix() -> &'static str {
    "name the Ethernet device through which its packets leave, and the tunnel's ends as the \
     bundle's `from` and `to`"
}

/// Hardware type of Ethernet (include/uapi/linux/if_arp.h, as the following types).
const ARPHRD_ETHER: u16 = 1;
/// Hardware type of PPP.
const ARPHRD_PPP: u16 = 512;
/// Hardware type of bare IP packets, as from mobile modems.
const ARPHRD_RAWIP: u16 = 519;
/// Hardware type of IPIP tunnels.
const ARPHRD_TUNNEL: u16 = 768;
/// Hardware type of IPv6 tunnels.
const ARPHRD_TUNNEL6: u16 = 769;
/// Hardware type of the loopback.
const ARPHRD_LOOPBACK: u16 = 772;
/// Hardware type of IPv6 in IPv4 tunnels (sit).
const ARPHRD_SIT: u16 = 776;
/// Hardware type of GRE over IPv4.
const ARPHRD_IPGRE: u16 = 778;
/// Hardware type of GRE over IPv6.
const ARPHRD_IP6GRE: u16 = 823;
/// Hardware type of devices without a link-layer header, such as TUN and WireGuard.
const ARPHRD_NONE: u16 = 0xfffe;

fn kind(hardware_type: u16) -> String {
    match hardware_type {
        ARPHRD_PPP => "PPP".into(),
        ARPHRD_NONE | ARPHRD_RAWIP => "bare IP packets, as tun and WireGuard devices do".into(),
        ARPHRD_TUNNEL | ARPHRD_TUNNEL6 | ARPHRD_SIT | ARPHRD_IPGRE | ARPHRD_IP6GRE => {
            "the packets of an IP tunnel".into()
        }
        other => format!("frames of hardware type {other}"),
    }
}

/// Refuses a `device`, of the current network namespace, without Ethernet frames. The loopback device has Ethernet
/// frames.
pub fn check(device: &str) -> Result<(), EthernetError> {
    let device = device.to_string();
    match offload::hardware_type(&device) {
        Ok(ARPHRD_ETHER | ARPHRD_LOOPBACK) => Ok(()),
        Ok(hardware_type) => Err(EthernetError::Other { device, hardware_type }),
        Err(source) => Err(EthernetError::Os { device, source }),
    }
}

/// Whether packets of a `device` have no link header, as with tun, WireGuard, PPP and IP tunnels. The kernel adds
/// the outer headers only behind the queues of the device.
pub fn is_bare(device: &str) -> io::Result<bool> {
    let bare = [
        ARPHRD_PPP,
        ARPHRD_RAWIP,
        ARPHRD_TUNNEL,
        ARPHRD_TUNNEL6,
        ARPHRD_SIT,
        ARPHRD_IPGRE,
        ARPHRD_IP6GRE,
        ARPHRD_NONE,
    ];
    Ok(bare.contains(&offload::hardware_type(device)?))
}

/// As [`check`], but also accepts a device with bare packets.
pub fn check_or_bare(device: &str) -> Result<(), EthernetError> {
    match is_bare(device) {
        Ok(true) => Ok(()),
        _ => check(device),
    }
}

/// The addresses of all Ethernet devices of the current network namespace. A bridge accepts frames to the address
/// of any port as its own, and a device above it (VLAN, macvlan) does so for its own address.
pub fn own_addresses() -> io::Result<BTreeSet<[u8; 6]>> {
    let interfaces = getifaddrs()?.filter_map(|interface| interface.address);
    let links = interfaces.filter_map(|address| {
        let link = address.as_link_addr()?;
        link.addr().filter(|_| link.hatype() == ARPHRD_ETHER)
    });
    Ok(links.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn devices_without_ethernet_are_refused_with_kind() {
        on_a_veth_pair(|| {
            check("left").unwrap();
            check("lo").unwrap();
            run("ip tuntap add dev tun0 mode tun");
            let error = check("tun0").unwrap_err().to_string();
            assert!(error.starts_with("tun0 carries bare IP packets"), "{error}");
            assert!(error.contains("name the Ethernet device"), "{error}");
            run("ip tuntap add dev tap0 mode tap");
            check("tap0").unwrap();
            let bare = ["left", "lo", "tap0", "tun0"].map(|it| is_bare(it).unwrap());
            assert_eq!(bare, [false, false, false, true]);
            for device in ["left", "tun0"] {
                check_or_bare(device).unwrap();
            }
            assert!(matches!(check("nowhere"), Err(EthernetError::Os { .. })));
            assert_eq!(kind(ARPHRD_PPP), "PPP");
        });
    }

    #[test]
    fn own_addresses_are_of_ethernet_devices_only() {
        on_a_veth_pair(|| {
            run("ip link set dev left address 02:00:00:00:00:01");
            run("ip link set dev right address 02:00:00:00:00:02");
            run("ip link add br0 address 02:00:00:00:00:03 type bridge");
            run("ip link add link br0 name vrrp0 address 00:00:5e:00:01:07 type macvlan");
            run("ip tuntap add dev tun0 mode tun");
            let own = own_addresses().unwrap();
            let expected = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
            let expected = expected.into_iter().chain([[0, 0, 0x5e, 0, 1, 7]]);
            assert_eq!(own, expected.collect());
        });
    }
}
