//! Bytes that each packet gains below a device, such as the headers of a tunnel, by the kind of the device.

use std::io;

use crate::lower;

/// Kinds of devices as the kernel names them (IFLA_INFO_KIND), and bytes. The bytes say by how much the Ethernet frame
/// on the wire is longer than the packet with an Ethernet header at the device. If the outer packet may be IPv4 or
/// IPv6, the value is for IPv4. IPv6 adds 20 bytes, which `overhead` in the configuration can set.
const KINDS: [(&str, u16); 14] = [
    // IPv4 20, UDP 8, and 16 in front of the packet and behind it (Donenfeld, NDSS 2017, section V.D).
    ("wireguard", 60),
    ("ipip", 20),
    ("sit", 20),
    ("ip6tnl", 40),
    // GRE without key, sequence number and checksum (RFC 2784).
    ("gre", 24),
    ("ip6gre", 44),
    // Includes the Ethernet header that these tunnels carry.
    ("gretap", 38),
    ("ip6gretap", 58),
    // IPv4 20, UDP 8, VXLAN 8 (RFC 7348), Geneve without options 8 (RFC 8926), and the Ethernet header.
    ("vxlan", 50),
    ("geneve", 50),
    // PPPoE 6, PPP 2 (RFC 2516).
    ("ppp", 8),
    // ESP 8, vector 8, padding and trailer 4 on average, integrity 16 (RFC 4303, RFC 4106), IPv4 20.
    ("xfrm", 56),
    ("vti", 56),
    ("vti6", 76),
];

/// Bytes that each packet gains below a `device`, of the current network namespace, according to its kind. Returns 0
/// for any other kind, such as tun, where a program decides.
pub fn of(device: &str) -> io::Result<u16> {
    let kind = lower::kind(device)?;
    Ok(by_kind(kind.as_deref().unwrap_or_default()))
}

fn by_kind(kind: &str) -> u16 {
    KINDS.iter().find(|(known, _)| *known == kind).map_or(0, |(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn overhead_follows_from_the_kind_of_a_device() {
        assert_eq!(["wireguard", "gre", "ipip", "ppp", "veth"].map(by_kind), [60, 24, 20, 8, 0]);
        on_a_veth_pair(|| {
            run("ip link add br0 type bridge");
            run("ip tuntap add dev tun0 mode tun");
            assert_eq!(["left", "br0", "tun0", "lo"].map(|it| of(it).unwrap()), [0; 4]);
            assert_eq!(lower::kind("br0").unwrap().as_deref(), Some("bridge"));
            assert_eq!(of("nowhere").unwrap_err().kind(), io::ErrorKind::NotFound);
        });
    }
}
