//! Finishes transport checksums that were left to a device that never comes.
//!
//! A veth or virtio device hands a packet of a local sender over with only the pseudo-header summed
//! up in its checksum field, and a note beside the packet that the rest is to be done
//! (`CHECKSUM_PARTIAL`). AF_XDP knows no such note: sent on as it is, the packet would be dropped
//! by its receiver. The device at fault stands in another machine or namespace, where it cannot be
//! asked; so each packet is looked at, and what the note asked for is done here.
//!
//! A packet is taken for unfinished only if its field holds the sum of the pseudo-header and the
//! segment does not verify. The field of a right packet holds that sum once in 65,536, and such a
//! packet verifies; only then is the whole segment read. A packet that was broken on its way is
//! forwarded broken, but for one in 65,536.
//!
//! Left alone is what cannot be told: fragments, VLAN tags (the capture program takes none), packets
//! inside tunnels, and those whose pseudo-header holds other addresses than their IP header: behind
//! IPv4 source routes and IPv6 extension headers other than hop-by-hop options.

use std::ops::Range;

/// Finishes the checksum of a whole TCP or UDP packet (RFC 9293 section 3.1, RFC 768, RFC 8200
/// section 8.1) if it is unfinished; whether it was.
pub fn finish(frame: &mut [u8]) -> bool {
    let Some(Segment { bytes, field, pseudo_header }) = Segment::of(frame) else { return false };
    if fold(pseudo_header) != word(frame, field) {
        return false;
    }
    // Over a segment that holds the right checksum this is all ones.
    if fold(pseudo_header + sum(&frame[bytes.clone()])) == 0xffff {
        return false;
    }
    frame[field..field + 2].fill(0);
    // A zero says that a UDP packet has none, and all ones are the same number (RFC 768); of TCP
    // receivers take either.
    let checksum = match !fold(pseudo_header + sum(&frame[bytes])) {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What a transport checksum is over.
struct Segment {
    /// Where the segment lies in its frame, without Ethernet padding.
    bytes: Range<usize>,
    /// Where its checksum begins in the frame.
    field: usize,
    /// Sum of addresses, protocol and length.
    pseudo_header: u64,
}

impl Segment {
    /// That of an untagged frame which holds one whole TCP or UDP packet.
    fn of(frame: &[u8]) -> Option<Self> {
        let ethertype = word(frame.get(..ETHERNET)?, 12);
        let (addresses, protocol, payload) = match ethertype {
            IPV4 => Self::in_ipv4(&frame[ETHERNET..])?,
            IPV6 => Self::in_ipv6(&frame[ETHERNET..])?,
            _ => return None,
        };
        let payload = payload.start + ETHERNET..payload.end + ETHERNET;
        let bytes = frame.get(payload.clone())?;
        let (length, field) = match protocol {
            TCP if bytes.len() >= 20 => (bytes.len(), 16),
            // Data may follow behind a UDP packet; a jumbogram's length is zero.
            UDP if bytes.len() >= 8 => (usize::from(word(bytes, 4)), 6),
            _ => return None,
        };
        if !(8..=bytes.len()).contains(&length) {
            return None;
        }
        Some(Self {
            bytes: payload.start..payload.start + length,
            field: payload.start + field,
            pseudo_header: sum(addresses) + u64::from(protocol) + length as u64,
        })
    }

    /// Addresses, protocol and place of the payload of an unfragmented packet.
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

    /// The same of an IPv6 packet, behind the hop-by-hop options that it may have.
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
}

/// Whether IPv4 options (RFC 791 section 3.1) name a route, so that the header's destination may be
/// another than the packet's. Options that contradict themselves count as such.
fn is_source_routed(mut options: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_ROUTE: u8 = 131;
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

/// Sum of the 16-bit words of `bytes`, a last byte filled up with zeros (RFC 1071), not folded.
/// 65,535 bytes do not overflow it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of one protocol between two fixed addresses, with the sum of the pseudo-header in its
    /// checksum field.
    #[derive(Clone)]
    struct Unfinished {
        is_v6: bool,
        protocol: u8,
        /// IPv4 options, or a hop-by-hop header.
        options: Vec<u8>,
        data: Vec<u8>,
        padding: usize,
    }

    impl Unfinished {
        fn new(is_v6: bool, protocol: u8, data: &[u8]) -> Self {
            Self { is_v6, protocol, options: Vec::new(), data: data.to_vec(), padding: 0 }
        }

        fn segment(&self) -> Vec<u8> {
            let header = if self.protocol == TCP { 20 } else { 8 };
            let mut segment = vec![0x21; header];
            let length = (header + self.data.len()) as u16;
            if self.protocol == UDP {
                segment[4..6].copy_from_slice(&length.to_be_bytes());
            }
            let at = if self.protocol == TCP { 16 } else { 6 };
            segment[at..at + 2].copy_from_slice(&fold(self.pseudo_header()).to_be_bytes());
            segment.extend(&self.data);
            segment
        }

        fn addresses(&self) -> Vec<u8> {
            if self.is_v6 { (100..132).collect() } else { vec![10, 0, 0, 1, 10, 0, 0, 2] }
        }

        /// Written apart from the code under test, word by word.
        fn pseudo_header(&self) -> u64 {
            let header = if self.protocol == TCP { 20 } else { 8 };
            let words = |pair: &[u8]| u64::from(pair[0]) * 256 + u64::from(pair[1]);
            let addresses: u64 = self.addresses().chunks(2).map(words).sum();
            addresses + u64::from(self.protocol) + (header + self.data.len()) as u64
        }

        fn frame(&self) -> Vec<u8> {
            let (segment, options) = (self.segment(), &self.options);
            let mut frame = vec![2; 12];
            if self.is_v6 {
                let length = (options.len() + segment.len()) as u16;
                let next = if options.is_empty() { self.protocol } else { HOP_BY_HOP };
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(length.to_be_bytes());
                frame.extend([next, 64]);
                frame.extend(self.addresses());
            } else {
                let total = (20 + options.len() + segment.len()) as u16;
                frame.extend([8, 0, 0x45 + (options.len() / 4) as u8, 0]);
                frame.extend(total.to_be_bytes());
                frame.extend([0, 0, 0x40, 0, 64, self.protocol, 0, 0]);
                frame.extend(self.addresses());
            }
            frame.extend(options);
            frame.extend(segment);
            frame.extend(vec![0xee; self.padding]);
            frame
        }

        /// Where the checksum is from the end of the frame.
        fn field(&self, frame: &[u8]) -> usize {
            let header = if self.protocol == TCP { 20 } else { 8 };
            let segment = frame.len() - self.padding - self.data.len() - header;
            segment + if self.protocol == TCP { 16 } else { 6 }
        }

        /// As a receiver does it (RFC 1071 section 1), word by word.
        fn verifies(&self, frame: &[u8]) -> bool {
            let field = self.field(frame);
            let start = field - if self.protocol == TCP { 16 } else { 6 };
            let mut segment = frame[start..frame.len() - self.padding].to_vec();
            segment.resize(segment.len().next_multiple_of(2), 0);
            let words = |pair: &[u8]| u64::from(pair[0]) * 256 + u64::from(pair[1]);
            let total: u64 = self.pseudo_header() + segment.chunks(2).map(words).sum::<u64>();
            total.is_multiple_of(0xffff)
        }

        fn finished(&self) -> Vec<u8> {
            let mut frame = self.frame();
            assert!(!self.verifies(&frame));
            assert!(finish(&mut frame), "{frame:?}");
            frame
        }
    }

    /// One of each: both IP versions, both protocols, odd and even lengths, with options and padding.
    fn all() -> Vec<Unfinished> {
        let mut all = Vec::new();
        for (is_v6, protocol) in [(false, TCP), (false, UDP), (true, TCP), (true, UDP)] {
            for len in [0, 1, 2, 3, 4, 5, 18, 1447, 1448] {
                let data: Vec<u8> = (0..len).map(|at| (at * 7 + 1) as u8).collect();
                let plain = Unfinished::new(is_v6, protocol, &data);
                // Router alert (RFC 2113, RFC 2711), and what fills up to a multiple.
                let options = if is_v6 {
                    vec![protocol, 0, 5, 2, 0, 0, 1, 0]
                } else {
                    vec![1, 148, 4, 0, 0, 0, 0, 0]
                };
                all.push(Unfinished { padding: 7, ..plain.clone() });
                all.push(Unfinished { options, ..plain.clone() });
                all.push(plain);
            }
        }
        all
    }

    #[test]
    fn an_unfinished_checksum_is_finished_as_its_receiver_wants_it_and_nothing_else_is_changed() {
        for packet in all() {
            let (before, after) = (packet.frame(), packet.finished());
            assert!(packet.verifies(&after), "{after:?}");
            let field = packet.field(&before);
            assert_eq!(before[..field], after[..field]);
            assert_eq!(before[field + 2..], after[field + 2..]);
            let mut again = after.clone();
            assert!(!finish(&mut again), "finished once");
            assert_eq!(again, after);
        }
    }

    #[test]
    fn a_broken_packet_stays_as_it_is() {
        for packet in all() {
            let mut frame = packet.finished();
            let field = packet.field(&frame);
            // Of the segment's other bytes, and of the checksum itself.
            for at in [field + 1, field - 5] {
                frame[at] ^= 0x40;
                let broken = frame.clone();
                assert!(!finish(&mut frame));
                assert_eq!(frame, broken);
                frame[at] ^= 0x40;
            }
        }
    }

    #[test]
    fn a_right_checksum_that_equals_the_sum_of_the_pseudo_header_is_right() {
        // The segment's other words must add up to all ones less twice the pseudo-header.
        let packet = Unfinished::new(false, UDP, &[0, 0]);
        let mut frame = packet.frame();
        let rest = fold(sum(&frame[34..40]) + 2 * packet.pseudo_header());
        frame[42..44].copy_from_slice(&(!rest).to_be_bytes());
        assert!(packet.verifies(&frame));
        let right = frame.clone();
        assert!(!finish(&mut frame));
        assert_eq!(frame, right);
    }

    #[test]
    fn a_udp_checksum_that_comes_out_as_zero_is_sent_as_all_ones() {
        let packet = Unfinished::new(false, UDP, &[0, 0]);
        let mut frame = packet.frame();
        let rest = fold(sum(&frame[34..40]) + packet.pseudo_header());
        frame[42..44].copy_from_slice(&(!rest).to_be_bytes());
        assert!(finish(&mut frame));
        assert_eq!(frame[40..42], [0xff, 0xff]);
        assert!(packet.verifies(&frame));
    }

    #[test]
    fn a_udp_packet_without_a_checksum_stays_without() {
        let mut frame = Unfinished::new(false, UDP, b"data").frame();
        frame[40..42].fill(0);
        assert!(!finish(&mut frame));
        assert_eq!(frame[40..42], [0, 0]);
    }

    #[test]
    fn data_behind_a_udp_packet_is_no_part_of_it() {
        let mut packet = Unfinished::new(false, UDP, b"data");
        packet.padding = 6;
        let mut frame = packet.frame();
        // The IP packet holds what would otherwise be padding.
        frame[17] += 6;
        assert!(finish(&mut frame));
        assert!(packet.verifies(&frame));
        // Lengths that cannot be.
        for length in [0, 7, 19] {
            let mut frame = packet.frame();
            frame[17] += 6;
            frame[39] = length;
            assert!(!finish(&mut frame), "{length}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_left_alone() {
        let v4 = Unfinished::new(false, TCP, b"data").frame();
        let v6 = Unfinished::new(true, TCP, b"data").frame();
        let changed = |frame: &[u8], at: usize, value: u8| {
            let mut frame = frame.to_vec();
            frame[at] = value;
            frame
        };
        let mut tagged = v4.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let route = |kind| Unfinished {
            options: vec![kind, 7, 4, 10, 0, 0, 3, 0],
            ..Unfinished::new(false, TCP, b"data")
        };
        let routing = Unfinished {
            options: vec![TCP, 0, 0, 1, 0, 0, 0, 0],
            ..Unfinished::new(true, TCP, b"data")
        };
        for mut frame in [
            tagged,
            changed(&v4, 20, 0x20), // the first fragment
            changed(&v4, 21, 1),    // a later one
            changed(&v4, 23, 1),    // ICMP
            changed(&v4, 14, 0x44),
            changed(&v4, 14, 0x65),
            changed(&v6, 14, 0x40),
            changed(&v6, 20, 44),
            route(131).frame(),
            route(137).frame(),
            changed(&route(7).frame(), 35, 99), // an option longer than the options
            changed(&route(7).frame(), 35, 1),  // and one shorter than itself
            changed(&routing.frame(), 20, 43),
            changed(&routing.frame(), 55, 200), // hop-by-hop options longer than the packet
        ] {
            let before = frame.clone();
            assert!(!finish(&mut frame), "{frame:?}");
            assert_eq!(frame, before);
        }
        assert!(finish(&mut route(7).frame()), "the record of a route is none");
    }

    #[test]
    fn a_frame_that_ends_early_is_left_alone() {
        for packet in all() {
            let whole = packet.frame();
            for len in 0..whole.len() - packet.padding {
                let mut cut = whole[..len].to_vec();
                assert!(!finish(&mut cut), "cut at {len}");
            }
        }
    }

    #[test]
    fn only_a_field_that_equals_the_pseudo_header_costs_a_look_at_the_whole() {
        let (mut candidates, mut frame) = (0, Unfinished::new(false, TCP, b"data").finished());
        for field in 0..=u16::MAX {
            frame[50..52].copy_from_slice(&field.to_be_bytes());
            let segment = Segment::of(&frame).unwrap();
            candidates += u32::from(fold(segment.pseudo_header) == word(&frame, segment.field));
        }
        assert_eq!(candidates, 1);
    }
}
