//! Finishes transport checksums that the sender left to a device, but that no device has finished.
//!
//! A veth or virtio device passes on a packet of a local sender with an unfinished checksum. The field holds
//! only the sum of the pseudo-header, or zero for SCTP. A note next to the packet says that the rest is to be
//! done (`CHECKSUM_PARTIAL`). AF_XDP does not carry this note. If the box sent the packet on unchanged, its
//! receiver would drop it. The box cannot query the device, which is in another machine or namespace. So it
//! checks each packet and finishes the checksum here.
//!
//! A packet counts as unfinished only if its field holds the value that the kernel leaves there and the
//! segment does not verify. A correct packet has the sum of the pseudo-header in its field once in 65,536,
//! and it verifies. Only then does the code read the whole segment. A packet damaged on its way is forwarded
//! damaged, except for one in 65,536.
//!
//! If the sender is itself the end of a tunnel, the note applies to the packet inside. The tunnel's own
//! checksum is already valid for the finished packet (Documentation/networking/checksum-offloads.rst: LCO).
//! So the code also checks the packet inside VXLAN, Geneve, GRE and IP tunnels, unless the outer packet
//! verifies unchanged.
//!
//! Packets whose state cannot be determined stay unchanged. These are fragments, other tunnels or tunnel
//! ports, and packets whose pseudo-header has other addresses than their IP header. The last kind has an IPv4
//! source route or IPv6 extension headers other than hop-by-hop options.

use std::ops::Range;

use forebay_core::packet::behind_tags;

#[cfg(test)]
mod tests;

/// Finishes the checksum of a whole TCP, UDP, GRE or SCTP packet, or of a packet inside it, if it is
/// unfinished. Returns whether it was. Sources: RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1, RFC
/// 2784, RFC 9260 section 6.8.
pub fn finish(frame: &mut [u8]) -> bool {
    let missing = Missing::of(ETHERNET, frame, TUNNELS_MAX);
    if let Some(missing) = missing {
        missing.write(frame);
    }
    missing.is_some()
}

/// EtherType of an Ethernet frame inside a tunnel (transparent Ethernet bridging).
const ETHERNET: u16 = 0x6558;
/// EtherType of IPv4.
const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
const IPV6: u16 = 0x86dd;
/// IP protocol number of the hop-by-hop options of IPv6 (RFC 8200).
const HOP_BY_HOP: u8 = 0;
/// IP protocol number of IPv4 in IP (RFC 2003).
const IN_IPV4: u8 = 4;
/// IP protocol number of TCP.
const TCP: u8 = 6;
/// IP protocol number of UDP.
const UDP: u8 = 17;
/// IP protocol number of IPv6 in IP (RFC 2473).
const IN_IPV6: u8 = 41;
/// IP protocol number of GRE (RFC 2784).
const GRE: u8 = 47;
/// IP protocol number of the destination options of IPv6 (RFC 8200).
const DESTINATION_OPTIONS: u8 = 60;
/// IP protocol number of SCTP (RFC 9260).
const SCTP: u8 = 132;
/// VXLAN ports: RFC 7348, and the default of Linux.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
/// RFC 8926.
const GENEVE_PORT: u16 = 6081;
/// Most nested tunnels that a sender is expected to use.
const TUNNELS_MAX: u32 = 3;

/// A missing checksum, with the offset of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Sum(usize, u16),
    Crc(usize, u32),
}

impl Missing {
    /// The missing checksum of a packet of this EtherType, within at most `tunnels` tunnels.
    fn of(ethertype: u16, bytes: &[u8], tunnels: u32) -> Option<Self> {
        let (addresses, protocol, payload) = match ethertype {
            ETHERNET => {
                let (ethertype, at) = behind_tags(bytes)?;
                // Plain Ethernet has no frame as its payload.
                let inner = (ethertype != ETHERNET).then_some(&bytes[at..])?;
                return Some(Self::of(ethertype, inner, tunnels)?.behind(at));
            }
            IPV4 => in_ipv4(bytes)?,
            IPV6 => in_ipv6(bytes)?,
            _ => return None,
        };
        let start = payload.start;
        let pseudo_header = sum(addresses) + u64::from(protocol);
        Some(Self::in_ip(protocol, pseudo_header, bytes.get(payload)?, tunnels)?.behind(start))
    }

    /// The missing checksum of the payload of an IP packet. `pseudo_header` is the sum of addresses and
    /// protocol.
    fn in_ip(protocol: u8, pseudo_header: u64, bytes: &[u8], tunnels: u32) -> Option<Self> {
        match protocol {
            TCP if bytes.len() >= 20 => sum_at(16, bytes, pseudo_header + bytes.len() as u64),
            SCTP if bytes.len() >= 12 => crc_at(8, bytes),
            UDP if bytes.len() >= 8 => {
                // Data may follow a UDP packet. The length of a jumbogram is zero.
                let length = usize::from(word(bytes, 4));
                let bytes = bytes.get(..length).filter(|_| length >= 8)?;
                let pseudo_header = pseudo_header + length as u64;
                sum_at(6, bytes, pseudo_header).or_else(|| {
                    let has_sum = word(bytes, 6) != 0;
                    Self::inside(in_udp(bytes)?, bytes, has_sum.then_some(pseudo_header), tunnels)
                })
            }
            GRE if bytes.len() >= 4 => {
                let has_sum = word(bytes, 0) & GRE_CHECKSUM != 0 && bytes.len() >= 8;
                let own = if has_sum { sum_at(4, bytes, 0) } else { None };
                own.or_else(|| Self::inside(in_gre(bytes)?, bytes, has_sum.then_some(0), tunnels))
            }
            // In a tunnel over IPv6 these options say how many more tunnels may enclose it (RFC 2473).
            DESTINATION_OPTIONS => {
                let options = 8 + usize::from(*bytes.get(1)?) * 8;
                let is_tunnel = [IN_IPV4, IN_IPV6, GRE].contains(&bytes[0]);
                let inner = bytes.get(options..).filter(|_| is_tunnel)?;
                Some(Self::in_ip(bytes[0], 0, inner, tunnels)?.behind(options))
            }
            IN_IPV4 => Self::inside((IPV4, 0), bytes, None, tunnels),
            IN_IPV6 => Self::inside((IPV6, 0), bytes, None, tunnels),
            _ => None,
        }
    }

    /// The missing checksum of the packet that begins at `start` in a tunnel's packet. That packet's sum
    /// includes `pseudo_header`.
    fn inside(
        (ethertype, start): (u16, usize),
        tunnel: &[u8],
        pseudo_header: Option<u64>,
        tunnels: u32,
    ) -> Option<Self> {
        let missing = Self::of(ethertype, tunnel.get(start..)?, tunnels.checked_sub(1)?)?;
        let is_finished = pseudo_header.is_some_and(|header| fold(header + sum(tunnel)) == 0xffff);
        (!is_finished).then_some(missing.behind(start))
    }

    /// This checksum, with offsets that count from `len` bytes earlier.
    fn behind(self, len: usize) -> Self {
        match self {
            Self::Sum(at, checksum) => Self::Sum(at + len, checksum),
            Self::Crc(at, checksum) => Self::Crc(at + len, checksum),
        }
    }

    fn write(self, frame: &mut [u8]) {
        match self {
            Self::Sum(at, sum) => frame[at..at + 2].copy_from_slice(&sum.to_be_bytes()),
            // In the opposite byte order to all other fields (RFC 9260 appendix A).
            Self::Crc(at, crc) => frame[at..at + 4].copy_from_slice(&crc.to_le_bytes()),
        }
    }
}

/// The ones' complement checksum that a field in `bytes` lacks. The field holds the sum of the pseudo-header.
fn sum_at(field: usize, bytes: &[u8], pseudo_header: u64) -> Option<Missing> {
    if fold(pseudo_header) != word(bytes, field) {
        return None;
    }
    let total = pseudo_header + sum(bytes);
    // Over a segment with the right checksum this is all ones.
    if fold(total) == 0xffff {
        return None;
    }
    // Without the contents of the field. In UDP, zero means "no checksum", and all ones is the same number
    // (RFC 768). Receivers of other protocols accept either.
    let checksum = match !fold(total + u64::from(!word(bytes, field))) {
        0 => 0xffff,
        checksum => checksum,
    };
    Some(Missing::Sum(field, checksum))
}

/// The CRC32c that a field of an SCTP packet lacks. The kernel leaves the field at zero. If zero is intended
/// (RFC 9653), the right CRC is valid as well.
fn crc_at(field: usize, bytes: &[u8]) -> Option<Missing> {
    if bytes[field..field + 4] != [0; 4] {
        return None;
    }
    match crc32c(bytes) {
        0 => None,
        crc => Some(Missing::Crc(field, crc)),
    }
}

/// Addresses, protocol and range of the payload of an unfragmented packet.
fn in_ipv4(ip: &[u8]) -> Option<(&[u8], u8, Range<usize>)> {
    let fixed = ip.get(..20)?;
    let header = usize::from(fixed[0] & 0x0f) * 4;
    let is_fragment = word(fixed, 6) & 0x3fff != 0;
    let total = usize::from(word(fixed, 2));
    if fixed[0] >> 4 != 4 || header < 20 || is_fragment || total < header {
        return None;
    }
    if is_source_routed(ip.get(20..header)?) {
        return None;
    }
    Some((&fixed[12..20], fixed[9], header..total))
}

/// Addresses, protocol and range of the payload of an IPv6 packet, behind its hop-by-hop options, if any.
fn in_ipv6(ip: &[u8]) -> Option<(&[u8], u8, Range<usize>)> {
    let fixed = ip.get(..40)?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let total = 40 + usize::from(word(fixed, 4));
    if fixed[6] != HOP_BY_HOP {
        return Some((&fixed[8..40], fixed[6], 40..total));
    }
    let options = ip.get(40..42)?;
    let payload = 40 + 8 + usize::from(options[1]) * 8;
    (payload <= total).then_some((&fixed[8..40], options[0], payload..total))
}

/// EtherType and offset of the packet in a UDP packet of a tunnel.
fn in_udp(udp: &[u8]) -> Option<(u16, usize)> {
    let header = udp.get(8..16)?;
    match word(udp, 2) {
        // Without the flags that change the format of the rest.
        port if VXLAN_PORTS.contains(&port) && header[0] == 0x08 => Some((ETHERNET, 16)),
        GENEVE_PORT if header[0] >> 6 == 0 => {
            Some((word(header, 2), 16 + usize::from(header[0] & 0x3f) * 4))
        }
        _ => None,
    }
}

/// Flag of GRE: the header has a checksum (RFC 2784).
const GRE_CHECKSUM: u16 = 0x8000;
/// Flag of GRE: the header has a key (RFC 2890).
const GRE_KEY: u16 = 0x2000;
/// Flag of GRE: the header has a sequence number (RFC 2890).
const GRE_SEQUENCE: u16 = 0x1000;
/// Bits of GRE that must be zero: routing (RFC 1701) and another version. Packets that set these
/// are left alone.
const GRE_OTHER: u16 = 0x4fff;

/// EtherType and offset of the packet in GRE.
fn in_gre(gre: &[u8]) -> Option<(u16, usize)> {
    let flags = word(gre, 0);
    let options = flags & (GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE);
    (flags & GRE_OTHER == 0).then_some((word(gre, 2), 4 + options.count_ones() as usize * 4))
}

/// Whether IPv4 options (RFC 791 section 3.1) contain a source route, so that the header's destination may
/// differ from the packet's. Inconsistent options count as a source route.
fn is_source_routed(mut options: &[u8]) -> bool {
    /// IPv4 option: end of the list (RFC 791).
    const END: u8 = 0;
    /// IPv4 option of one byte: padding (RFC 791).
    const NO_OPERATION: u8 = 1;
    /// IPv4 option: loose source route (RFC 791).
    const LOOSE_ROUTE: u8 = 131;
    /// IPv4 option: strict source route (RFC 791).
    const STRICT_ROUTE: u8 = 137;
    loop {
        options = match *options {
            [] | [END, ..] => return false,
            [NO_OPERATION, ..] => &options[1..],
            [LOOSE_ROUTE | STRICT_ROUTE, ..] => return true,
            [_, len, ..] if len >= 2 && usize::from(len) <= options.len() => {
                &options[usize::from(len)..]
            }
            _ => return true,
        }
    }
}

/// Sum of the 16-bit words of `bytes`, with a last byte padded by zeros (RFC 1071), not folded. 65,535 bytes
/// do not overflow it.
fn sum(bytes: &[u8]) -> u64 {
    let (quads, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    quads.iter().chain([&last]).map(|quad| u64::from(u32::from_be_bytes(*quad))).sum()
}

/// The ones' complement sum of 16 bits; zero only for zero.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The CRC of SCTP and iSCSI (Castagnoli; RFC 9260 appendix A): it starts as all ones and is inverted at the
/// end.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ CRC32C[usize::from(crc as u8 ^ byte)])
}

/// The CRC of each byte, by the reflected polynomial.
const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
