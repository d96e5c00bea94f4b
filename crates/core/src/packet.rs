//! Parsing of packets for the boxes: the header fields that classify, hash and sample a packet.
//!
//! A frame is an Ethernet II frame without FCS, as packet sockets, AF_XDP and XDP programs see it.
//! Everything here is bounds-checked: a frame is hostile input.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use siphasher::sip::SipHasher13;

use crate::units::ByteCount;

/// Bytes of an untagged Ethernet II header.
pub const ETHERNET_HEADER: usize = 14;
/// Bytes of a VLAN tag (IEEE 802.1Q section 9.3).
const VLAN_TAG: usize = 4;
/// VLAN tags that are read past: a customer's and a provider's (IEEE 802.1ad, QinQ).
const MAX_VLAN_TAGS: usize = 2;

/// EtherType of IPv4 (IANA).
const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6 (IANA).
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q, 802.1ad and the pre-standard service tag that is still met.
const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Bytes of an IPv4 header without options (RFC 791 section 3.1).
const IPV4_HEADER: usize = 20;
/// Bytes of the fixed IPv6 header (RFC 8200 section 3).
const IPV6_HEADER: usize = 40;
/// Next header of hop-by-hop options (RFC 8200 section 4.3).
const HOP_BY_HOP: u8 = 0;
/// More extension headers than RFC 8200 section 4.1 lists for one packet: the rest is hostile.
const MAX_EXTENSION_HEADERS: usize = 8;

/// The ECN field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0,
    /// ECN-capable transport, ECT(1).
    Ect1 = 1,
    /// ECN-capable transport, ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// From the two low bits of a TOS or traffic-class byte.
    pub const fn from_bits(tos: u8) -> Self {
        match tos & 0b11 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// A packet as the queueing disciplines see it.
#[expect(clippy::len_without_is_empty, reason = "no packet is empty")]
pub trait Packet {
    /// Bytes on the wire that the packet is charged for: the Ethernet frame without FCS.
    fn len(&self) -> ByteCount;
    /// A hash of the flow's addresses, protocol and ports under `key`; equal for all packets of a flow.
    fn flow_hash(&self, key: u64) -> u64;
    /// The class that the host's classifier gave the packet; 0 is served first.
    fn class(&self) -> u8;
    /// The ECN field.
    fn ecn(&self) -> Ecn;
    /// Sets congestion experienced; called only on ECN-capable packets.
    fn set_ce(&mut self);
}

/// The header fields of one IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol or last IPv6 next header: 6 TCP, 17 UDP, 50 ESP.
    pub protocol: u8,
    /// Source port; 0 where the protocol has none and for every fragment, the first included. So all
    /// fragments of a datagram take the same way through a classifier and a hash.
    pub source_port: u16,
    /// Destination port, 0 as above.
    pub destination_port: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// Bytes of VLAN tags in front of the IP header: 0, 4 or 8.
    pub tags_len: u8,
    /// Where in the frame the IP payload begins (bytes): behind the IPv4 header with its options, or behind
    /// the fixed IPv6 header.
    pub payload_at: u8,
    /// Bytes of IP payload, all within the frame.
    pub payload_len: u16,
}

/// Why a frame is no IP packet that a box can handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unparsed {
    /// The frame carries more than two VLAN tags.
    #[error("the frame has more than two VLAN tags")]
    Vlan,
    /// The frame carries another protocol, such as ARP (0x0806).
    #[error("EtherType {ethertype:#06x} is not IP")]
    NotIp {
        /// The EtherType, or an IEEE 802.3 length.
        ethertype: u16,
    },
    /// The frame ends before the IP packet does.
    #[error("the frame ends before its IP packet does")]
    Truncated,
    /// Version or lengths of the IP header contradict each other.
    #[error("the IP header is inconsistent")]
    Malformed,
}

impl Headers {
    /// Reads the headers of an Ethernet frame that holds one whole IP packet, behind up to two VLAN tags.
    ///
    /// IPv4 options and up to 8 IPv6 extension headers are skipped. If the extension headers are cut short or
    /// too many, `protocol` is the header at which reading stopped and the ports are 0: the packet still
    /// belongs to its addresses. Checksums are not verified.
    pub fn parse(frame: &[u8]) -> Result<Self, Unparsed> {
        let Network { is_v6, tags_len, header, payload } = Network::parse(frame)?;
        let (source, destination, tos, transport) = if is_v6 {
            let transport = Transport::after_extensions(header[6], payload);
            let traffic_class = header[0] << 4 | header[1] >> 4;
            (ipv6_address(header, 8), ipv6_address(header, 24), traffic_class, transport)
        } else {
            let is_fragment = be16(header, 6) & 0x3fff != 0;
            let transport = Transport { protocol: header[9], is_fragment, payload };
            (ipv4_address(header, 12), ipv4_address(header, 16), header[1], transport)
        };
        let (source_port, destination_port) = transport.ports().unwrap_or((0, 0));
        let (dscp, ecn) = (tos >> 2, Ecn::from_bits(tos));
        Ok(Self {
            source,
            destination,
            protocol: transport.protocol,
            source_port,
            destination_port,
            dscp,
            ecn,
            // At most 8 and 82, and a field of 16 bits.
            tags_len: tags_len as u8,
            payload_at: (ETHERNET_HEADER + tags_len + header.len()) as u8,
            payload_len: payload.len() as u16,
        })
    }

    /// Bytes in front of the IP payload in a frame without VLAN tags.
    pub(crate) const fn header_len(&self) -> usize {
        (self.payload_at - self.tags_len) as usize
    }

    /// The IP payload of `frame`, which has these headers; empty where another frame is too short.
    pub(crate) fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let start = usize::from(self.payload_at);
        frame.get(start..start + usize::from(self.payload_len)).unwrap_or_default()
    }

    /// SipHash-1-3 of addresses, protocol and ports, keyed with `key`: for [`Packet::flow_hash`].
    pub fn flow_hash(&self, key: u64) -> u64 {
        let mut tuple = [0; 37];
        tuple[..16].copy_from_slice(&v6_form(self.source).octets());
        tuple[16..32].copy_from_slice(&v6_form(self.destination).octets());
        tuple[32] = self.protocol;
        tuple[33..35].copy_from_slice(&self.source_port.to_be_bytes());
        tuple[35..].copy_from_slice(&self.destination_port.to_be_bytes());
        SipHasher13::new_with_keys(key, 0).hash(&tuple)
    }
}

/// Bytes of a frame without the padding behind its IP packet, and without VLAN tags. Devices pad short frames
/// or do not, and switches add and remove tags. So two boxes that compare sent and arrived bytes must both
/// leave these out. The padding counts where the IP header does not say how long the packet is: no whole IP
/// packet, or an IPv6 jumbogram (RFC 2675). `headers` are the headers of the frame, if it has any.
pub fn unpadded_len(headers: Option<&Headers>, frame: &[u8]) -> ByteCount {
    let is_jumbogram = |headers: &Headers| {
        let is_empty = headers.source.is_ipv6() && headers.payload_len == 0;
        is_empty && headers.protocol == HOP_BY_HOP
    };
    let len = match headers {
        Some(headers) if !is_jumbogram(headers) => {
            headers.header_len() + usize::from(headers.payload_len)
        }
        headers => frame.len() - headers.map_or(0, |headers| usize::from(headers.tags_len)),
    };
    ByteCount::new(len as u64)
}

/// The ECN field of an IPv4 or IPv6 frame; [`Ecn::NotEct`] for any other.
pub fn ecn(frame: &[u8]) -> Ecn {
    let tos = match behind_tags(frame) {
        Some((ETHERTYPE_IPV4, at)) => frame.get(at + 1).copied(),
        Some((ETHERTYPE_IPV6, at)) => frame.get(at + 1).map(|byte| byte >> 4),
        _ => None,
    };
    tos.map_or(Ecn::NotEct, Ecn::from_bits)
}

/// Marks the packet congestion experienced and keeps the IPv4 header checksum right (RFC 1624
/// equation 3). Returns false, and changes nothing, unless the packet is ECN-capable IP
/// (RFC 3168 section 5: a packet that is not must not be marked).
pub fn set_ce(frame: &mut [u8]) -> bool {
    if ecn(frame) == Ecn::NotEct {
        return false;
    }
    let Some((ethertype, at)) = behind_tags(frame) else { return false };
    let ip = &mut frame[at..];
    if ethertype == ETHERTYPE_IPV6 {
        ip[1] |= (Ecn::Ce as u8) << 4;
        return true;
    }
    if ip.len() < IPV4_HEADER {
        return false;
    }
    let old_word = be16(ip, 0);
    ip[1] |= Ecn::Ce as u8;
    let mut sum = u32::from(!be16(ip, 10)) + u32::from(!old_word) + u32::from(be16(ip, 0));
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    true
}

/// The IPv6 form of an address: IPv4 as `::ffff:a.b.c.d` (RFC 4291 section 2.5.5.2).
pub(crate) fn v6_form(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The IP packet in a frame: header and payload, both inside the frame and inside the IP length.
struct Network<'a> {
    is_v6: bool,
    /// Bytes of VLAN tags in front of the header.
    tags_len: usize,
    /// Of IPv4 at least 20 bytes, options included; of IPv6 the fixed header of 40 bytes.
    header: &'a [u8],
    /// Extension headers of IPv6 included.
    payload: &'a [u8],
}

impl<'a> Network<'a> {
    fn parse(frame: &'a [u8]) -> Result<Self, Unparsed> {
        let (ethertype, at) = behind_tags(frame).ok_or(Unparsed::Truncated)?;
        let tags_len = at - ETHERNET_HEADER;
        match ethertype {
            ETHERTYPE_IPV4 => Self::parse_v4(tags_len, &frame[at..]),
            ETHERTYPE_IPV6 => Self::parse_v6(tags_len, &frame[at..]),
            tag if ETHERTYPES_VLAN.contains(&tag) => Err(Unparsed::Vlan),
            ethertype => Err(Unparsed::NotIp { ethertype }),
        }
    }

    fn parse_v4(tags_len: usize, ip: &'a [u8]) -> Result<Self, Unparsed> {
        if ip.len() < IPV4_HEADER {
            return Err(Unparsed::Truncated);
        }
        let header_len = usize::from(ip[0] & 0x0f) * 4;
        let total_len = usize::from(be16(ip, 2));
        if ip[0] >> 4 != 4 || header_len < IPV4_HEADER || total_len < header_len {
            return Err(Unparsed::Malformed);
        }
        let packet = ip.get(..total_len).ok_or(Unparsed::Truncated)?;
        let (header, payload) = packet.split_at(header_len);
        Ok(Self { is_v6: false, tags_len, header, payload })
    }

    fn parse_v6(tags_len: usize, ip: &'a [u8]) -> Result<Self, Unparsed> {
        if ip.len() < IPV6_HEADER {
            return Err(Unparsed::Truncated);
        }
        if ip[0] >> 4 != 6 {
            return Err(Unparsed::Malformed);
        }
        let total_len = IPV6_HEADER + usize::from(be16(ip, 4));
        let packet = ip.get(..total_len).ok_or(Unparsed::Truncated)?;
        let (header, payload) = packet.split_at(IPV6_HEADER);
        Ok(Self { is_v6: true, tags_len, header, payload })
    }
}

/// The data behind the network header.
struct Transport<'a> {
    protocol: u8,
    is_fragment: bool,
    payload: &'a [u8],
}

impl<'a> Transport<'a> {
    /// Walks the IPv6 extension headers (RFC 8200 section 4, RFC 4302 section 2.2 for AH).
    fn after_extensions(mut protocol: u8, mut payload: &'a [u8]) -> Self {
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const AUTHENTICATION: u8 = 51;
        const DESTINATION_OPTIONS: u8 = 60;
        let mut is_fragment = false;
        for _ in 0..MAX_EXTENSION_HEADERS {
            let &[next, len, ..] = payload else { break };
            let bytes = match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => usize::from(len) * 8 + 8,
                AUTHENTICATION => usize::from(len) * 4 + 8,
                FRAGMENT => 8,
                _ => break,
            };
            let Some(rest) = payload.get(bytes..) else { break };
            // An atomic fragment (offset 0, no more fragments; RFC 6946) is a whole packet.
            is_fragment = protocol == FRAGMENT && be16(payload, 2) & 0xfff9 != 0;
            (protocol, payload) = (next, rest);
            if is_fragment {
                break;
            }
        }
        Self { protocol, is_fragment, payload }
    }

    fn ports(&self) -> Option<(u16, u16)> {
        // TCP, UDP, DCCP, SCTP and UDP-Lite all begin with source and destination port.
        let has_ports = matches!(self.protocol, 6 | 17 | 33 | 132 | 136);
        if !has_ports || self.is_fragment || self.payload.len() < 4 {
            return None;
        }
        Some((be16(self.payload, 0), be16(self.payload, 2)))
    }
}

/// The EtherType behind up to two VLAN tags, and the place in the frame where its payload begins (bytes);
/// `None`: the frame ends before.
pub fn behind_tags(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ETHERNET_HEADER;
    for _ in 0..MAX_VLAN_TAGS {
        if !ETHERTYPES_VLAN.contains(&ethertype_before(frame, at)?) {
            break;
        }
        at += VLAN_TAG;
    }
    Some((ethertype_before(frame, at)?, at))
}

fn ethertype_before(frame: &[u8], at: usize) -> Option<u16> {
    (frame.len() >= at).then(|| be16(frame, at - 2))
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn ipv4_address(header: &[u8], at: usize) -> IpAddr {
    Ipv4Addr::from_octets(array(header, at)).into()
}

fn ipv6_address(header: &[u8], at: usize) -> IpAddr {
    Ipv6Addr::from_octets(array(header, at)).into()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
pub(crate) mod frames;
#[cfg(test)]
mod tests;
