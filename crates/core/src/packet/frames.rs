//! Frames to test with: lengths and IPv4 header checksums are right, the rest as given.

use super::*;
use alloc::vec::Vec;

/// An Ethernet frame with `ethertype` around `payload`.
pub fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = alloc::vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// `frame` with tags of these EtherTypes, the outermost first, and of the VLANs 5, 6, ..
pub fn tagged(frame: &[u8], ethertypes: &[u16]) -> Vec<u8> {
    let mut with_tags = frame[..12].to_vec();
    for (ethertype, vlan) in ethertypes.iter().zip(5_u16..) {
        with_tags.extend_from_slice(&ethertype.to_be_bytes());
        with_tags.extend_from_slice(&vlan.to_be_bytes());
    }
    with_tags.extend_from_slice(&frame[12..]);
    with_tags
}

/// An IPv4 packet from 10.0.1.2 to 10.0.2.3.
pub struct V4<'a> {
    pub id: u16,
    pub fragment_field: u16,
    pub tos: u8,
    pub ttl: u8,
    pub protocol: u8,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

impl Default for V4<'_> {
    fn default() -> Self {
        let (options, payload) = (&[][..], &[][..]);
        Self { id: 0, fragment_field: 0x4000, tos: 0, ttl: 64, protocol: 6, options, payload }
    }
}

impl V4<'_> {
    pub fn frame(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let total_len = (header_len + self.payload.len()) as u16;
        let mut ip = alloc::vec![0x40 | (header_len / 4) as u8, self.tos];
        ip.extend_from_slice(&total_len.to_be_bytes());
        ip.extend_from_slice(&self.id.to_be_bytes());
        ip.extend_from_slice(&self.fragment_field.to_be_bytes());
        ip.extend_from_slice(&[self.ttl, self.protocol, 0, 0, 10, 0, 1, 2, 10, 0, 2, 3]);
        ip.extend_from_slice(self.options);
        let checksum = checksum(&ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        ip.extend_from_slice(self.payload);
        ethernet(ETHERTYPE_IPV4, &ip)
    }
}

/// The Internet checksum of `header`, with its checksum field zero (RFC 1071).
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = (0..header.len()).step_by(2).map(|at| u32::from(be16(header, at))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv6 packet from 2001:db8:1::2 to 2001:db8:2::3.
pub fn v6(traffic_class: u8, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = alloc::vec![0x60 | traffic_class >> 4, traffic_class << 4, 0, 0];
    ip.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    ip.extend_from_slice(&[next_header, 64]);
    ip.extend_from_slice(&"2001:db8:1::2".parse::<Ipv6Addr>().unwrap().octets());
    ip.extend_from_slice(&"2001:db8:2::3".parse::<Ipv6Addr>().unwrap().octets());
    ip.extend_from_slice(payload);
    ethernet(ETHERTYPE_IPV6, &ip)
}

/// A TCP header without options from port 443 to port 50000, and one byte of data.
pub fn tcp(sequence: u32) -> Vec<u8> {
    let mut tcp = alloc::vec![0x01, 0xbb, 0xc3, 0x50];
    tcp.extend_from_slice(&sequence.to_be_bytes());
    tcp.extend_from_slice(&[0, 0, 0, 1, 0x50, 0x10, 1, 0xf6, 0xab, 0xcd, 0, 0, 7]);
    tcp
}
