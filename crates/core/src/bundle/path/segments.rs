//! The packets of a super-packet on the wire.
//!
//! Linux carries TCP and UDP in super-packets of up to 64 KiB. The sending host made them, or GRO merged
//! received packets. The kernel or the device segments each (GSO) behind the last qdisc. Each packet has
//! `gso_size` bytes of data, the last one the rest. Its headers are the super-packet's, except for lengths,
//! sequence number, identification, flags and checksums (net/ipv4/tcp_offload.c, udp_offload.c and
//! af_inet.c, net/ipv6/ip6_offload.c). So a box that sees super-packets counts and samples the same packets
//! as a box that sees the packets on the wire. Merging on the way makes no difference.
//!
//! The BPF programs do the same in C (`crates/ebpf/bpf/segments.h`) and are tested against this module.

use super::sample::{
    SAMPLED, SampleBlock, TCP, TCP_HEADER, UDP, UDP_HEADER, sampled_of_tcp, sampled_of_udp,
};
use crate::packet::Headers;
use crate::units::ByteCount;

/// Bytes of the longest TCP header (RFC 9293 section 3.1).
const TCP_HEADER_MAX: usize = 60;

/// An Ethernet frame that is segmented before it is on the wire.
#[derive(Clone, Copy, Debug)]
pub struct SuperPacket<'a> {
    /// Bytes before the transport header, without VLAN tags.
    payload_at: usize,
    /// The part of the block that all packets share.
    common: SampleBlock,
    header: &'a [u8],
    data: &'a [u8],
    gso_size: usize,
    keeps_identification: bool,
}

/// A packet of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sampling block, of version 2.
    pub block: SampleBlock,
    /// Bytes of the Ethernet frame, without FCS, padding and VLAN tags.
    pub len: ByteCount,
}

impl<'a> SuperPacket<'a> {
    /// A frame whose packets on the wire have `gso_size` bytes of TCP or UDP data each; the last may have
    /// fewer. With `keeps_identification` all packets have the IPv4 identification of the first
    /// (`SKB_GSO_TCP_FIXEDID`), otherwise each has the next one.
    ///
    /// `None`: the frame holds no whole TCP segment or UDP datagram right behind an IPv4 header or a fixed
    /// IPv6 header, or the packets would have no data.
    pub fn new(frame: &'a [u8], gso_size: u16, keeps_identification: bool) -> Option<Self> {
        let headers = Headers::parse(frame).ok()?;
        let common = SampleBlock::of_network(&headers, frame);
        let payload = headers.payload(frame);
        let header_len = match common.transport() {
            TCP => Some(usize::from(payload.get(12)? >> 4) * 4).filter(|len| *len >= TCP_HEADER)?,
            UDP => UDP_HEADER,
            _ => return None,
        };
        if gso_size == 0 {
            return None;
        }
        let (header, data) = payload.split_at_checked(header_len)?;
        // IPv6 has no identification.
        let keeps_identification = keeps_identification || headers.source.is_ipv6();
        let (payload_at, gso_size) = (headers.header_len(), gso_size.into());
        Some(Self { payload_at, common, header, data, gso_size, keeps_identification })
    }

    /// The packets, in their order on the wire.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        let this = *self;
        this.data.chunks(this.gso_size).enumerate().map(move |(at, data)| this.segment(at, data))
    }

    fn segment(&self, at: usize, data: &[u8]) -> Segment {
        let mut block = self.common;
        if !self.keeps_identification {
            block.advance_identification(at as u16);
        }
        let payload_len = self.header.len() + data.len();
        block.set_payload(payload_len as u16, &self.sampled(at, data));
        Segment { block, len: ByteCount::new((self.payload_at + payload_len) as u64) }
    }

    fn sampled(&self, at: usize, data: &[u8]) -> [u8; SAMPLED] {
        if self.common.transport() == UDP {
            let mut header = [0; UDP_HEADER];
            header.copy_from_slice(self.header);
            header[4..6].copy_from_slice(&((UDP_HEADER + data.len()) as u16).to_be_bytes());
            return sampled_of_udp(&header, data);
        }
        let mut header = [0; TCP_HEADER_MAX];
        let header = &mut header[..self.header.len()];
        header.copy_from_slice(self.header);
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let sequence = sequence.wrapping_add((at * self.gso_size) as u32);
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        sampled_of_tcp(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::BlockVersion;
    use crate::packet::frames::{V4, tagged, v6};
    use crate::packet::unpadded_len;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A flow whose packets carry the given data.
    #[derive(Clone, Copy, Debug)]
    struct Flow {
        is_v6: bool,
        is_tcp: bool,
        keeps_identification: bool,
    }

    impl Flow {
        /// The packet `number` of the flow, whose data begins `sent` bytes behind the flow's first.
        fn frame(self, number: u16, sent: u32, data: &[u8]) -> Vec<u8> {
            let mut payload = if self.is_tcp {
                // A header of 32 bytes with timestamps; flags and checksum are arbitrary.
                let flags = 0x10 | data[data.len() - 1] & 0x09;
                let mut header =
                    vec![1, 187, 0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0, 9, 0x80, flags, 1, 2];
                header[4..8].copy_from_slice(&0xffff_0000_u32.wrapping_add(sent).to_be_bytes());
                header.extend_from_slice(&[data[0], data[data.len() - 1], 0, 0]);
                header.extend_from_slice(&[1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4]);
                header
            } else {
                let len = ((UDP_HEADER + data.len()) as u16).to_be_bytes();
                vec![0, 53, 0x9c, 0x40, len[0], len[1], data[0], 7]
            };
            payload.extend_from_slice(data);
            let protocol = if self.is_tcp { TCP } else { UDP };
            if self.is_v6 {
                return v6(0, protocol, &payload);
            }
            let id = 0xfff0_u16.wrapping_add(if self.keeps_identification { 0 } else { number });
            V4 { id, protocol, options: &[], payload: &payload, ..V4::default() }.frame()
        }
    }

    /// Data of packets that may all be merged into one: `count` packets of `size` bytes, and a last one of
    /// `rest`.
    #[derive(Clone, Debug)]
    struct Train {
        size: usize,
        count: usize,
        rest: usize,
    }

    fn trains() -> impl Strategy<Value = Vec<Train>> {
        let train = (1..1448_usize, 0..40_usize)
            .prop_flat_map(|(size, count)| (Just(size), Just(count), 1..=size))
            .prop_map(|(size, count, rest)| Train { size, count, rest });
        prop::collection::vec(train, 1..4)
    }

    /// The view of a box that finds the packets of trains merged up to each of `cuts`: frames, each with
    /// its `gso_size`. A frame without merged packets has the size of its data as `gso_size`.
    fn seen(flow: Flow, trains: &[Train], cuts: &[bool]) -> Vec<(Vec<u8>, usize)> {
        let mut cuts = cuts.iter().cycle();
        let (mut number, mut sent, mut frames) = (0_u16, 0_u32, Vec::new());
        for train in trains {
            let sizes = vec![train.size; train.count].into_iter().chain([train.rest]);
            let (mut first, mut merged, mut count) = (sent, Vec::new(), 0_u16);
            for (at, size) in sizes.enumerate() {
                merged.extend((0..size).map(|n| (sent as usize + n * 7) as u8));
                sent = sent.wrapping_add(size as u32);
                count += 1;
                let is_last = at == train.count;
                if is_last || *cuts.next().unwrap() || merged.len() + train.size > 60_000 {
                    let gso_size = if count == 1 { merged.len() } else { train.size };
                    frames.push((flow.frame(number, first, &merged), gso_size));
                    number = number.wrapping_add(count);
                    (first, count) = (sent, 0);
                    merged.clear();
                }
            }
        }
        frames
    }

    fn segments(flow: Flow, frames: &[(Vec<u8>, usize)]) -> Vec<Segment> {
        let all = frames.iter().flat_map(|(frame, gso_size)| {
            let packet = SuperPacket::new(frame, *gso_size as u16, flow.keeps_identification);
            packet.unwrap().segments().collect::<Vec<_>>()
        });
        all.collect()
    }

    proptest! {
        #[test]
        fn merged_packets_are_counted_and_sampled_as_sent(
            (is_v6, is_tcp, keeps_identification) in any::<(bool, bool, bool)>(),
            trains in trains(),
            cuts in prop::collection::vec(any::<bool>(), 1..50),
            other_cuts in prop::collection::vec(any::<bool>(), 1..50),
        ) {
            let flow = Flow { is_v6, is_tcp, keeps_identification };
            let on_the_wire: Vec<Segment> = seen(flow, &trains, &[true])
                .iter()
                .map(|(frame, _)| Segment {
                    block: SampleBlock::from_frame(BlockVersion::V2, frame).unwrap(),
                    len: unpadded_len(Headers::parse(frame).ok().as_ref(), frame),
                })
                .collect();
            prop_assert_eq!(&segments(flow, &seen(flow, &trains, &cuts)), &on_the_wire);
            prop_assert_eq!(&segments(flow, &seen(flow, &trains, &other_cuts)), &on_the_wire);
            prop_assert_eq!(&segments(flow, &seen(flow, &trains, &[false])), &on_the_wire);
        }
    }

    #[test]
    fn vlan_tags_are_neither_counted_nor_sampled() {
        let flow = Flow { is_v6: false, is_tcp: true, keeps_identification: false };
        let whole = flow.frame(0, 0, &[1; 3000]);
        let segments = |frame: &[u8]| -> Vec<Segment> {
            SuperPacket::new(frame, 1448, false).unwrap().segments().collect()
        };
        for tags in [&[0x8100][..], &[0x88a8, 0x8100]] {
            assert_eq!(segments(&tagged(&whole, tags)), segments(&whole));
        }
    }

    #[test]
    fn invalid_segments_behind_an_ip_header_are_rejected() {
        let flow = Flow { is_v6: false, is_tcp: true, keeps_identification: false };
        let whole = flow.frame(0, 0, &[1; 3000]);
        assert_eq!(SuperPacket::new(&whole, 1448, false).unwrap().segments().count(), 3);
        assert!(SuperPacket::new(&whole, 0, false).is_none());
        assert!(SuperPacket::new(&whole[..2000], 1448, false).is_none());
        for header_len in [0, 4, 15] {
            let mut frame = V4 { payload: &[0; 40], ..V4::default() }.frame();
            frame[14 + 20 + 12] = header_len << 4;
            assert!(SuperPacket::new(&frame, 10, false).is_none(), "{header_len} words");
        }
        let payload = [0; 3000];
        assert!(SuperPacket::new(&v6(0, 44, &payload), 1000, false).is_none());
        let esp = V4 { protocol: 50, payload: &payload, ..V4::default() };
        assert!(SuperPacket::new(&esp.frame(), 1000, false).is_none());
    }
}
