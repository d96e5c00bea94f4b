//! Which packets close an epoch: a keyed hash over header bytes that both boxes see alike.
//!
//! The block that is hashed has a fixed layout, because the receivebox builds it in BPF C:
//!
//! | bytes | content |
//! |---|---|
//! | 0..16 | source address, IPv4 as `::ffff:a.b.c.d` |
//! | 16..32 | destination address, likewise |
//! | 32..34 | IPv4 identification as on the wire; zeros for IPv6 |
//! | 34..36 | IPv4 flags and fragment offset as on the wire, masked with 0x3fff; zeros for IPv6 |
//! | 36 | IPv4 protocol, or the next header of the fixed IPv6 header |
//! | 37 | zero |
//! | 38..40 | IP payload length in bytes, big endian: IPv4 total length minus header length, IPv6 payload length |
//! | 40..64 | the first 24 bytes after the IPv4 header with its options, or after the fixed IPv6 header; zero padded where the IP payload is shorter (Ethernet padding is not read) |
//!
//! TTL, TOS, ECN and the IP checksum may change on the way and are not in it. What makes the
//! packets of a flow differ is the identification where there is one, and the 24 bytes: sequence
//! number and checksum of TCP, length and checksum of UDP with the packet number of QUIC, SPI and
//! sequence number of ESP. A retransmission without identification (IPv6) differs by the TCP
//! checksum, which covers the timestamp option.
//!
//! Packets that differ in none of these have one hash. Of UDP with a constant payload that is every
//! 65,536th packet with an identification and every packet without one; behind QUIC connection ids
//! of 15 bytes and more nothing but the UDP checksum differs besides. What that costs is in
//! `boundary` and [`sendbox`](super::sendbox).

use siphasher::sip::SipHasher13;

use crate::packet::{ETHERNET_HEADER, Headers, be16, v6_form};

/// The secret of a bundle's boundary choice: without it no host can aim at, or avoid, boundaries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SamplingKey(pub [u8; 16]);

impl SamplingKey {
    /// The all-zero key: the hash under it is a packet's public identity in logs and tests.
    pub const IDENTITY: Self = Self([0; 16]);
}

/// Keeps the key out of logs.
impl core::fmt::Debug for SamplingKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SamplingKey(..)")
    }
}

/// The 64 bytes of a packet that are hashed; see the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleBlock([u8; 64]);

/// More-fragments flag and fragment offset. Don't-fragment may be cleared on the way (RFC 791 only
/// asks that it be honoured; some tunnels do), so it is left out with the reserved bit.
const FRAGMENT_MASK: u16 = 0x3fff;

impl SampleBlock {
    /// The block of an untagged Ethernet frame that holds one whole IP packet; `None` for any
    /// other frame (VLAN-tagged, not IP, truncated, malformed): such packets are not sampled.
    pub fn from_frame(frame: &[u8]) -> Option<Self> {
        Headers::parse(frame).ok().map(|headers| Self::new(&headers, frame))
    }

    /// The block of a frame with these headers, of which a mark may have come since they were read.
    ///
    /// # Panics
    ///
    /// If the frame is too short to have them.
    pub fn new(headers: &Headers, frame: &[u8]) -> Self {
        let mut block = [0; 64];
        block[..16].copy_from_slice(&v6_form(headers.source).octets());
        block[16..32].copy_from_slice(&v6_form(headers.destination).octets());
        let ip = &frame[ETHERNET_HEADER..];
        if headers.source.is_ipv4() {
            block[32..34].copy_from_slice(&ip[4..6]);
            block[34..36].copy_from_slice(&(be16(ip, 6) & FRAGMENT_MASK).to_be_bytes());
            block[36] = ip[9];
        } else {
            block[36] = ip[6];
        }
        block[38..40].copy_from_slice(&headers.payload_len.to_be_bytes());
        let payload = headers.payload(frame);
        let sampled = payload.len().min(24);
        block[40..40 + sampled].copy_from_slice(&payload[..sampled]);
        Self(block)
    }

    /// The bytes that are hashed.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }

    /// SipHash-1-3 of the block under `key`: the sampling hash of
    /// [`EpochSize::is_boundary`](super::EpochSize::is_boundary) and of reports.
    pub fn hash(&self, key: &SamplingKey) -> u64 {
        SipHasher13::new_with_key(&key.0).hash(&self.0)
    }

    /// The packet's identity: the hash under the all-zero key.
    pub fn identity(&self) -> u64 {
        self.hash(&SamplingKey::IDENTITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::EpochSize;
    use crate::packet::frames::{V4, tcp, v6};
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    const GOLDEN: &str = include_str!("../../tests/data/sample_vectors.txt");
    const KEY: SamplingKey = SamplingKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    fn unhex(text: &str) -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    fn hash(frame: &[u8]) -> u64 {
        SampleBlock::from_frame(frame).unwrap().hash(&KEY)
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
        let mut block = None;
        for line in GOLDEN.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once(' ').unwrap();
            match name {
                "frame" => {
                    block = SampleBlock::from_frame(&unhex(value));
                    frames += 1;
                }
                "block" if value == "none" => assert_eq!(block, None, "frame {frames}"),
                "block" => assert_eq!(block.unwrap().as_bytes()[..], unhex(value)[..]),
                "identity" => {
                    assert_eq!(alloc::format!("{:016x}", block.unwrap().identity()), value)
                }
                "hash" => assert_eq!(alloc::format!("{:016x}", block.unwrap().hash(&KEY)), value),
                other => panic!("unknown line {other}"),
            }
        }
        assert_eq!(frames, 18);
    }

    #[test]
    fn what_changes_on_the_way_does_not_change_the_hash() {
        let sent = V4 { id: 7, payload: &tcp(1), ..V4::default() };
        let seen = V4 { ttl: 3, tos: 0xff, fragment_field: 0, ..sent };
        assert_eq!(hash(&sent.frame()), hash(&seen.frame()));
        assert_eq!(hash(&v6(0, 6, &tcp(1))), hash(&v6(0xff, 6, &tcp(1))));
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
            SampleBlock::from_frame(&V4 { id, payload: &tcp(0), ..V4::default() }.frame()).unwrap()
        });
        let both = blocks.filter(|block| {
            size.is_boundary(block.hash(&KEY)) && size.is_boundary(block.identity())
        });
        // Independent: 16,000 / 256 = 62, standard deviation 8.
        let both = both.count();
        assert!((22..103).contains(&both), "{both}");
    }
}
