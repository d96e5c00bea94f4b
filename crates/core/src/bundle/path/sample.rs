//! Which packets close an epoch: a keyed hash over header bytes that both boxes see alike.
//!
//! The block that is hashed has a fixed layout, because the receivebox builds it in BPF C:
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | source address, IPv4 as `::ffff:a.b.c.d` |
//! | 16..32 | destination address, in the same form |
//! | 32..34 | IPv4 identification as on the wire; zeros for IPv6 |
//! | 34..36 | IPv4 flags and fragment offset as on the wire, masked with 0x3fff; zeros for IPv6 |
//! | 36 | IPv4 protocol, or the next header of the fixed IPv6 header |
//! | 37 | zero |
//! | 38..40 | IP payload length in bytes, big endian: IPv4 total length minus header length, IPv6 payload length |
//! | 40..64 | part of the IP payload, which begins after the IPv4 header with its options or after the fixed IPv6 header; see below |
//!
//! The last 24 bytes are the first 24 of the IP payload, zero padded if there are fewer (Ethernet padding
//! is not read). This holds in version 1 for any packet, and in version 2 for any packet but TCP and UDP:
//!
//! | bytes | version 2, TCP of 20 bytes and more | version 2, UDP of 8 bytes and more |
//! |---|---|---|
//! | 40..46 | ports, sequence number | ports, length |
//! | 46..48 | (sequence number) | zeros |
//! | 48..52 | acknowledgement number | the first 8 bytes of data, zero padded |
//! | 52..54 | zeros | (data) |
//! | 54..56 | window | (data) |
//! | 56..64 | bytes 24..32 of a header that has them, else zeros | the last 8 bytes of data, or zeros if there are fewer |
//!
//! Fragments are treated as in version 1. TTL, TOS, ECN and the IP checksum may change on the way and are
//! in no version. Packets of a flow differ by their identification, if they have one, and by the 24 bytes:
//! sequence number and checksum of TCP, length and checksum of UDP with the packet number of QUIC, SPI and
//! sequence number of ESP. A retransmission without identification (IPv6) differs by the TCP checksum,
//! which covers the timestamp option.
//!
//! Version 2 is for boxes that see super-packets (`segments`), where checksums and flags of single packets
//! are not known. There a retransmission differs by the timestamp option itself: bytes 24..32 are its
//! values if the option has the position that RFC 7323 appendix A advises. UDP's data differ at their end,
//! in the tag of encrypted data, if not at their beginning.
//!
//! Versions 3 to 5 are for boxes with NAT between them ([`nat`]).
//!
//! Packets that differ in none of these bytes have the same hash:
//!
//! - UDP with a constant payload: every 65,536th packet with an identification, and every packet without one.
//! - QUIC with connection ids of 15 bytes and more, in version 1: only the UDP checksum differs.
//! - TCP without identification and timestamps, in version 2: a retransmission has the hash of the original.
//!
//! `boundary` and [`sendbox`](crate::bundle::sendbox) describe the cost.

pub mod nat;

use siphasher::sip::SipHasher13;

use self::nat::Nat;
use crate::packet::{ETHERNET_HEADER, Headers, be16, v6_form};

/// The secret of a bundle's boundary choice: without it no host can target or avoid boundaries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SamplingKey(pub [u8; 16]);

impl SamplingKey {
    /// The all-zero key, for a packet's public identity in logs and tests ([`SampleBlock::identity`]).
    pub const IDENTITY: Self = Self([0; 16]);
}

/// Keeps the key out of logs.
impl core::fmt::Debug for SamplingKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SamplingKey(..)")
    }
}

/// The bytes of a packet that are hashed, see the module's tables. Both boxes of a bundle must use the same version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockVersion {
    /// With checksum and flags of the transport: distinguishes most packets.
    #[default]
    V1 = 1,
    /// Without checksum and flags: known for each packet of a super-packet, even if packets are merged on
    /// the way.
    V2 = 2,
    /// As [`Self::V2`], without the fields that NAT of sources changes.
    V3 = 3,
    /// As [`Self::V2`], without the fields that NAT of destinations changes.
    V4 = 4,
    /// As [`Self::V2`], without the fields that NAT of either changes.
    V5 = 5,
}

impl BlockVersion {
    /// Every version. The first distinguishes most packets.
    pub const ALL: [Self; 5] = [Self::V1, Self::V2, Self::V3, Self::V4, Self::V5];

    /// The NAT between the boxes that does not change the hash of a packet.
    pub const fn nat(self) -> Option<Nat> {
        match self {
            Self::V1 | Self::V2 => None,
            Self::V3 => Some(Nat::Source),
            Self::V4 => Some(Nat::Destination),
            Self::V5 => Some(Nat::Both),
        }
    }
}

/// Versions of the sampling block that a box builds; a bit each, the lowest for version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockVersions(u8);

impl BlockVersions {
    /// All versions for boxes without NAT between them.
    pub const ALL: Self = Self(Self::of(BlockVersion::V1).0 | Self::of(BlockVersion::V2).0);

    /// These versions, or only the version for boxes with this NAT between them.
    pub const fn with_nat(self, nat: Option<Nat>) -> Self {
        match nat {
            None => self,
            Some(nat) => Self::of(nat.version()),
        }
    }

    /// This version alone.
    pub const fn of(version: BlockVersion) -> Self {
        Self(1 << (version as u8 - 1))
    }

    /// The version to use between boxes that build these; `None`: there is no common one.
    pub fn common(self, other: Self) -> Option<BlockVersion> {
        let both = |version: &BlockVersion| self.0 & other.0 & Self::of(*version).0 != 0;
        BlockVersion::ALL.into_iter().find(both)
    }

    /// From the bits of a message. Bits of unknown versions are kept, and mean nothing.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }
}

/// The 64 bytes of a packet that are hashed; see the module's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleBlock([u8; 64]);

/// Bytes of the IP payload in a block.
pub(super) const SAMPLED: usize = 24;

/// IP protocol number of TCP (IANA).
pub(super) const TCP: u8 = 6;
/// IP protocol number of UDP (IANA).
pub(super) const UDP: u8 = 17;
/// Bytes of a TCP header without options (RFC 9293 section 3.1) ...
pub(super) const TCP_HEADER: usize = 20;
/// ... and of a UDP header (RFC 768).
pub(super) const UDP_HEADER: usize = 8;

/// RFC 8200 section 4.7.
const NO_NEXT_HEADER: u8 = 59;

/// More-fragments flag and fragment offset. Don't-fragment may be cleared on the way: RFC 791 only asks to
/// honour it, and some tunnels clear it. So it is left out together with the reserved bit.
const FRAGMENT_MASK: u16 = 0x3fff;

impl SampleBlock {
    /// The block of an Ethernet frame that holds one whole IP packet behind up to two VLAN tags; `None` for any
    /// other frame (more tags, not IP, truncated, malformed): such packets are not sampled.
    pub fn from_frame(version: BlockVersion, frame: &[u8]) -> Option<Self> {
        Headers::parse(frame).ok().map(|headers| Self::new(version, &headers, frame))
    }

    /// The block of a frame with these headers. A congestion mark may have been set since they were read.
    ///
    /// # Panics
    ///
    /// If the frame is too short to have them.
    pub fn new(version: BlockVersion, headers: &Headers, frame: &[u8]) -> Self {
        let mut block = Self::of_network(headers, frame);
        let payload = headers.payload(frame);
        let is_first = version == BlockVersion::V1;
        let sampled = match block.transport() {
            TCP if !is_first && payload.len() >= TCP_HEADER => sampled_of_tcp(payload),
            UDP if !is_first && payload.len() >= UDP_HEADER => {
                let (header, data) = payload.split_at(UDP_HEADER);
                sampled_of_udp(header, data)
            }
            _ => {
                let mut sampled = [0; SAMPLED];
                let len = payload.len().min(SAMPLED);
                sampled[..len].copy_from_slice(&payload[..len]);
                sampled
            }
        };
        block.set_payload(headers.payload_len, &sampled);
        version.nat().map_or(block, |nat| block.through(nat))
    }

    /// The bytes from the IP header: all but the payload's length and the last 24.
    pub(super) fn of_network(headers: &Headers, frame: &[u8]) -> Self {
        let mut block = [0; 64];
        block[..16].copy_from_slice(&v6_form(headers.source).octets());
        block[16..32].copy_from_slice(&v6_form(headers.destination).octets());
        let ip = &frame[ETHERNET_HEADER + usize::from(headers.tags_len)..];
        if headers.source.is_ipv4() {
            block[32..34].copy_from_slice(&ip[4..6]);
            block[34..36].copy_from_slice(&(be16(ip, 6) & FRAGMENT_MASK).to_be_bytes());
            block[36] = ip[9];
        } else {
            block[36] = ip[6];
        }
        Self(block)
    }

    /// The protocol whose header the payload begins with. For a fragment of IPv4, which may have no header,
    /// 59 (no next header).
    pub(super) const fn transport(&self) -> u8 {
        if self.is_fragment() { NO_NEXT_HEADER } else { self.0[36] }
    }

    const fn is_fragment(&self) -> bool {
        self.0[34] | self.0[35] != 0
    }

    /// Sets the packet's IP payload length (bytes) and the sampled bytes of the payload.
    pub(super) fn set_payload(&mut self, payload_len: u16, sampled: &[u8; SAMPLED]) {
        self.0[38..40].copy_from_slice(&payload_len.to_be_bytes());
        self.0[40..].copy_from_slice(sampled);
    }

    /// Turns the block into the one of the packet `packets` later in a row of identifications (IPv4).
    pub(super) fn advance_identification(&mut self, packets: u16) {
        let identification = be16(&self.0, 32).wrapping_add(packets);
        self.0[32..34].copy_from_slice(&identification.to_be_bytes());
    }

    /// The bytes that are hashed.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }

    /// SipHash-1-3 of the block under `key`: the sampling hash of
    /// [`EpochSize::is_boundary`](crate::bundle::EpochSize::is_boundary) and of reports.
    pub fn hash(&self, key: &SamplingKey) -> u64 {
        SipHasher13::new_with_key(&key.0).hash(&self.0)
    }

    /// The packet's identity without a key: the hash of all bytes behind the addresses, under the all-zero
    /// key. The sampler in the kernel has by then already hashed the addresses under the bundle's key.
    pub fn identity(&self) -> u64 {
        SipHasher13::new_with_key(&SamplingKey::IDENTITY.0).hash(&self.0[32..])
    }
}

/// The bytes that version 2 samples of a TCP header, which data may follow.
pub(super) fn sampled_of_tcp(header: &[u8]) -> [u8; SAMPLED] {
    const FLAGS: core::ops::Range<usize> = 12..14;
    const TIMESTAMPS: core::ops::Range<usize> = 24..32;
    let mut sampled = [0; SAMPLED];
    sampled[..16].copy_from_slice(&header[..16]);
    sampled[FLAGS].fill(0);
    let header_len = usize::from(header[12] >> 4) * 4;
    let timestamps = header.get(TIMESTAMPS).filter(|_| header_len >= TIMESTAMPS.end);
    if let Some(timestamps) = timestamps {
        sampled[16..].copy_from_slice(timestamps);
    }
    sampled
}

/// The bytes that version 2 samples of a UDP header and the data behind it.
pub(super) fn sampled_of_udp(header: &[u8], data: &[u8]) -> [u8; SAMPLED] {
    let mut sampled = [0; SAMPLED];
    sampled[..6].copy_from_slice(&header[..6]);
    let first = data.len().min(8);
    sampled[8..8 + first].copy_from_slice(&data[..first]);
    if let Some(last) = data.last_chunk::<8>() {
        sampled[16..].copy_from_slice(last);
    }
    sampled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::EpochSize;
    use crate::packet::frames::{V4, tcp, v6};
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    const GOLDEN: &str = include_str!("../../../tests/data/sample_vectors.txt");
    const KEY: SamplingKey = SamplingKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    fn unhex(text: &str) -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    const VERSIONS: [BlockVersion; 2] = [BlockVersion::V1, BlockVersion::V2];

    fn hash_of(version: BlockVersion, frame: &[u8]) -> u64 {
        SampleBlock::from_frame(version, frame).unwrap().hash(&KEY)
    }

    fn hash(frame: &[u8]) -> u64 {
        hash_of(BlockVersion::V1, frame)
    }

    /// The hashes of the packets with IP identification 0, 1, 2, .. of one TCP flow.
    fn hashes_of_a_flow(packets: u32) -> impl Iterator<Item = u64> {
        (0..packets).map(|n| {
            let payload = tcp(n.wrapping_mul(1448));
            hash(&V4 { id: n as u16, payload: &payload, ..V4::default() }.frame())
        })
    }

    #[test]
    fn golden_vectors_hold() {
        let mut frames = 0;
        let (mut block, mut block2) = (None, None);
        for line in GOLDEN.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once(' ').unwrap();
            match name {
                "frame" => {
                    [block, block2] =
                        VERSIONS.map(|version| SampleBlock::from_frame(version, &unhex(value)));
                    frames += 1;
                }
                "block" if value == "none" => {
                    assert_eq!((block, block2), (None, None), "frame {frames}");
                }
                "block" => assert_eq!(block.unwrap().as_bytes()[..], unhex(value)[..]),
                "block2" => assert_eq!(block2.unwrap().as_bytes()[..], unhex(value)[..]),
                "identity" => {
                    assert_eq!(alloc::format!("{:016x}", block2.unwrap().identity()), value)
                }
                "hash" => assert_eq!(alloc::format!("{:016x}", block.unwrap().hash(&KEY)), value),
                "hash2" => assert_eq!(alloc::format!("{:016x}", block2.unwrap().hash(&KEY)), value),
                other => panic!("unknown line {other}"),
            }
        }
        assert_eq!(frames, 20);
    }

    #[test]
    fn mutable_header_fields_do_not_change_the_hash() {
        let sent = V4 { id: 7, payload: &tcp(1), ..V4::default() };
        let seen = V4 { ttl: 3, tos: 0xff, fragment_field: 0, ..sent };
        for version in VERSIONS {
            let hash = |frame: &[u8]| hash_of(version, frame);
            assert_eq!(hash(&sent.frame()), hash(&seen.frame()));
            assert_eq!(hash(&v6(0, 6, &tcp(1))), hash(&v6(0xff, 6, &tcp(1))));
        }
    }

    /// A TCP header of 32 bytes with timestamps as RFC 7323 appendix A has them, and data.
    fn stamped(sequence: u32, tsval: u32, flags: u8) -> Vec<u8> {
        let mut header = tcp(sequence);
        header.truncate(20);
        header[12..14].copy_from_slice(&[0x80, flags]);
        header.extend_from_slice(&[1, 1, 8, 10]);
        header.extend_from_slice(&tsval.to_be_bytes());
        header.extend_from_slice(&[0; 104]);
        header
    }

    #[test]
    fn version_2_skips_mutable_fields_and_distinguishes_retransmissions() {
        let hash = |frame: &[u8]| hash_of(BlockVersion::V2, frame);
        let first = v6(0, 6, &stamped(1, 7, 0x10));
        let mut other_checksum = first.clone();
        other_checksum[14 + 40 + 16] ^= 0xff;
        assert_eq!(hash(&first), hash(&other_checksum));
        assert_eq!(hash(&first), hash(&v6(0, 6, &stamped(1, 7, 0x18))), "pushed");
        assert_ne!(hash(&first), hash(&v6(0, 6, &stamped(1, 8, 0x10))), "sent again");
        // Data is no option.
        let without = |data: u8| {
            let mut segment = tcp(1);
            segment.resize(60, data);
            hash(&v6(0, 6, &segment))
        };
        assert_eq!(without(1), without(2));
        let udp = |checksum: u8, first: u8, last: u8| {
            let mut datagram = alloc::vec![0, 1, 0, 2, 0, 40, checksum, 0, first];
            datagram.resize(39, 0);
            datagram.push(last);
            hash(&v6(0, 17, &datagram))
        };
        assert_eq!(udp(0, 0, 0), udp(9, 0, 0));
        assert!(udp(0, 0, 0) != udp(0, 1, 0) && udp(0, 0, 0) != udp(0, 0, 1));
    }

    #[test]
    fn fragments_and_other_protocols_ignore_block_version() {
        let payload: Vec<u8> = (0..60).collect();
        let fragment = |fragment_field, protocol| {
            V4 { fragment_field, protocol, payload: &payload, ..V4::default() }.frame()
        };
        let (first, later) = (fragment(0x2000, 6), fragment(0x2001, 17));
        let short = V4 { payload: &payload[..19], ..V4::default() }.frame();
        for frame in [first, later, fragment(0, 50), v6(0, 44, &payload), short] {
            let [one, two] = VERSIONS.map(|version| SampleBlock::from_frame(version, &frame));
            assert_eq!(one, two);
        }
    }

    #[test]
    fn successive_packets_and_retransmissions_differ() {
        let numbered = |prefix: &[u8], n: u32, suffix: &[u8]| {
            let mut payload = prefix.to_vec();
            payload.extend_from_slice(&n.to_be_bytes());
            payload.extend_from_slice(suffix);
            payload
        };
        // ESP: SPI, sequence number. UDP with QUIC: 8 bytes of UDP, flags, connection id, number.
        let esp = |n| numbered(&[0xc0, 0xff, 0xee, 1], n, &[0; 40]);
        let quic = |n| numbered(&[9; 17], n, &[0; 40]);
        let mut seen = BTreeSet::new();
        let mut frames = 0;
        let mut add = |frame: Vec<u8>| {
            frames += 1;
            seen.insert(hash(&frame));
        };
        for n in 0..1000 {
            // Without identification, as with DF on many systems (RFC 6864).
            add(V4 { payload: &tcp(n), ..V4::default() }.frame());
            add(V4 { protocol: 50, payload: &esp(n), ..V4::default() }.frame());
            add(V4 { protocol: 17, payload: &quic(n), ..V4::default() }.frame());
            add(v6(0, 6, &tcp(n)));
            add(v6(0, 50, &esp(n)));
            add(v6(0, 17, &quic(n)));
            // The same segment again, with a new identification.
            add(V4 { id: 1 + n as u16, payload: &tcp(0), ..V4::default() }.frame());
        }
        // A retransmission without identification: its timestamp shows in the TCP checksum.
        let mut again = tcp(0);
        again[16] ^= 1;
        add(v6(0, 6, &again));
        assert_eq!(seen.len(), frames);
    }

    /// Pearson's chi-square of boundary gaps against the geometric distribution, in 16 classes of
    /// equal probability as far as whole gaps allow.
    fn chi_square_of_gaps(gaps: &[u32], packets_per_epoch: u32) -> (f64, usize) {
        let p = 1.0 / f64::from(packets_per_epoch);
        let quantile = |q: f64| libm::ceil(libm::log(1.0 - q) / libm::log(1.0 - p)) as u32;
        let mut edges: Vec<u32> = (1..16).map(|class| quantile(f64::from(class) / 16.0)).collect();
        edges.dedup();
        edges.push(u32::MAX);
        let below = |gap: u32| 1.0 - libm::pow(1.0 - p, f64::from(gap));
        let mut low = 0;
        let mut chi_square = 0.0;
        for &high in &edges {
            let seen = gaps.iter().filter(|&&gap| gap > low && gap <= high).count() as f64;
            let expected = (below(high) - below(low)) * gaps.len() as f64;
            chi_square += (seen - expected) * (seen - expected) / expected;
            low = high;
        }
        (chi_square, edges.len() - 1)
    }

    #[test]
    fn gaps_between_boundaries_are_geometric_for_sequential_identifications() {
        let hashes: Vec<u64> = hashes_of_a_flow(400_000).collect();
        for log2 in 2..=10 {
            let size = EpochSize::from_log2(log2).unwrap();
            let boundaries: Vec<u32> = (0_u32..)
                .zip(&hashes)
                .filter_map(|(at, &hash)| size.is_boundary(hash).then_some(at))
                .collect();
            let expected = 400_000.0 / f64::from(size.packets());
            let deviation = (boundaries.len() as f64 - expected) / libm::sqrt(expected);
            assert!(deviation.abs() < 4.0, "N {}: {} boundaries", size.packets(), boundaries.len());
            let gaps: Vec<u32> = boundaries.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let (chi_square, freedom) = chi_square_of_gaps(&gaps, size.packets());
            // Mean = freedom, variance = 2 freedom; five deviations for nine sizes.
            let bound = freedom as f64 + 5.0 * libm::sqrt(2.0 * freedom as f64);
            assert!(chi_square < bound, "N {}: {chi_square} of {bound}", size.packets());
        }
    }

    #[test]
    fn boundary_sets_are_nested() {
        for hash in hashes_of_a_flow(100_000) {
            let is_boundary = |log2| EpochSize::from_log2(log2).unwrap().is_boundary(hash);
            assert!(is_boundary(0));
            for log2 in 1..=EpochSize::MAX.log2() {
                assert!(!is_boundary(log2) || is_boundary(log2 - 1));
            }
        }
    }

    #[test]
    fn another_key_chooses_other_boundaries() {
        let size = EpochSize::from_log2(4).unwrap();
        let blocks = (0..16_000).map(|id| {
            let frame = V4 { id, payload: &tcp(0), ..V4::default() }.frame();
            SampleBlock::from_frame(BlockVersion::V1, &frame).unwrap()
        });
        let both = blocks.filter(|block| {
            size.is_boundary(block.hash(&KEY)) && size.is_boundary(block.identity())
        });
        // Independent: 16,000 / 256 = 62, standard deviation 8.
        let both = both.count();
        assert!((22..103).contains(&both), "{both}");
    }
}
