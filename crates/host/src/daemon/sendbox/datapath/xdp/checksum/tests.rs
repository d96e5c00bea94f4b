use super::*;

/// A packet of one protocol between two fixed addresses. Its checksum field holds the sum of the
/// pseudo-header.
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

    /// Sum of the pseudo-header, computed word by word and independently of the code under test.
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

    /// Offset of the checksum in the frame.
    fn field(&self, frame: &[u8]) -> usize {
        let header = if self.protocol == TCP { 20 } else { 8 };
        let segment = frame.len() - self.padding - self.data.len() - header;
        segment + if self.protocol == TCP { 16 } else { 6 }
    }

    /// Verifies the frame as a receiver does (RFC 1071 section 1), word by word.
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

/// All combinations of IP versions, protocols, odd and even lengths, options and padding.
fn all() -> Vec<Unfinished> {
    let mut all = Vec::new();
    for (is_v6, protocol) in [(false, TCP), (false, UDP), (true, TCP), (true, UDP)] {
        for len in [0, 1, 2, 3, 4, 5, 18, 1447, 1448] {
            let data: Vec<u8> = (0..len).map(|at| (at * 7 + 1) as u8).collect();
            let plain = Unfinished::new(is_v6, protocol, &data);
            // Router alert (RFC 2113, RFC 2711), with padding up to a multiple.
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
fn unfinished_checksum_is_finished_and_nothing_else_changes() {
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
fn behind_vlan_tags_it_is_finished_as_without() {
    for packet in all() {
        for tags in [&[0x81, 0, 0, 5][..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]] {
            let tagged = |mut frame: Vec<u8>| {
                frame.splice(12..12, tags.iter().copied());
                frame
            };
            let mut frame = tagged(packet.frame());
            assert!(finish(&mut frame));
            assert_eq!(frame, tagged(packet.finished()));
            assert!(!finish(&mut frame), "finished once");
        }
    }
}

#[test]
fn a_broken_packet_stays_as_it_is() {
    for packet in all() {
        let mut frame = packet.finished();
        let field = packet.field(&frame);
        // First another byte of the segment, then the checksum itself.
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
fn valid_checksum_equal_to_pseudo_header_sum_stays() {
    // The segment's other words must add up to all ones minus twice the pseudo-header.
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
fn zero_udp_checksum_is_sent_as_all_ones() {
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
fn data_after_udp_length_is_not_summed() {
    let mut packet = Unfinished::new(false, UDP, b"data");
    packet.padding = 6;
    let mut frame = packet.frame();
    // The IP packet contains bytes that would otherwise be padding.
    frame[17] += 6;
    assert!(finish(&mut frame));
    assert!(packet.verifies(&frame));
    // Impossible lengths.
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
    let mut thrice_tagged = v4.clone();
    thrice_tagged.splice(12..12, [0x81, 0, 0, 5].repeat(3));
    let route = |kind| Unfinished {
        options: vec![kind, 7, 4, 10, 0, 0, 3, 0],
        ..Unfinished::new(false, TCP, b"data")
    };
    let routing = Unfinished {
        options: vec![TCP, 0, 0, 1, 0, 0, 0, 0],
        ..Unfinished::new(true, TCP, b"data")
    };
    for mut frame in [
        thrice_tagged,
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
fn only_pseudo_header_sum_counts_as_unfinished() {
    let frame = Unfinished::new(false, TCP, b"data").finished();
    let finished = (0..=u16::MAX).filter(|field| {
        let mut frame = frame.clone();
        frame[50..52].copy_from_slice(&field.to_be_bytes());
        finish(&mut frame)
    });
    assert_eq!(finished.count(), 1);
}

/// A way to enclose a packet in another packet.
struct Tunnel {
    protocol: u8,
    /// All bytes between the outer IP header and the packet.
    header: Vec<u8>,
    /// The tunnel takes Ethernet frames; otherwise it takes IP packets of the version in its header.
    takes_frames: bool,
    /// Offset of the header's own checksum, if it has one.
    field: Option<usize>,
}

impl Tunnel {
    fn new(protocol: u8, header: &[u8], takes_frames: bool) -> Self {
        Self { protocol, header: header.to_vec(), takes_frames, field: None }
    }

    /// A UDP tunnel from some port to this one, with a header.
    fn udp(port: u16, header: &[u8], takes_frames: bool) -> Self {
        let udp = [&[0x77, 0x77][..], &port.to_be_bytes(), &[0; 4], header].concat();
        Self::new(UDP, &udp, takes_frames)
    }

    fn with_checksum(self, field: usize) -> Self {
        Self { field: Some(field), ..self }
    }

    /// A frame that encloses `inner`. The checksum of the header is right if `inner` is `summed`.
    fn around(&self, is_v6: bool, inner: &[u8], summed: &[u8]) -> Vec<u8> {
        let start = if self.takes_frames { 0 } else { 14 };
        let mut packet = Unfinished::new(is_v6, self.protocol, b"").frame();
        packet.truncate(if is_v6 { 54 } else { 34 });
        let mut header = self.header.clone();
        let length = header.len() + inner.len() - start;
        if self.protocol == UDP {
            header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        if let Some(field) = self.field {
            let addresses = &packet[if is_v6 { 22 } else { 26 }..];
            let pseudo_header = words(addresses) + u64::from(UDP) + length as u64;
            let pseudo_header = if self.protocol == UDP { pseudo_header } else { 0 };
            let total = pseudo_header + words(&header) + words(&summed[start..]);
            let checksum = 0xffff - (total % 0xffff) as u16;
            header[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let total = length + if is_v6 { 0 } else { 20 };
        let at = if is_v6 { 18 } else { 16 };
        packet[at..at + 2].copy_from_slice(&(total as u16).to_be_bytes());
        [&packet, &header, &inner[start..]].concat()
    }
}

/// Sum word by word, with a last byte padded.
fn words(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u64::from(*low)))
        .sum()
}

/// Tunnels that take packets of one IP version, or frames.
fn tunnels(is_v6: bool) -> Vec<Tunnel> {
    let [high, low] = if is_v6 { [0x86, 0xdd] } else { [8, 0] };
    let in_ip = if is_v6 { IN_IPV6 } else { IN_IPV4 };
    let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
    let options = [0; 8];
    let geneve = |kind: [u8; 2]| [&[2, 0][..], &kind, &[0, 0, 7, 0], &options].concat();
    // A limit of encapsulations (RFC 2473 section 4.1.1), with padding.
    let limited = [in_ip, 0, 4, 1, 4, 1, 1, 0];
    vec![
        Tunnel::udp(4789, &vxlan, true),
        Tunnel::udp(4789, &vxlan, true).with_checksum(6),
        Tunnel::udp(8472, &vxlan, true),
        Tunnel::udp(6081, &geneve([0x65, 0x58]), true).with_checksum(6),
        Tunnel::udp(6081, &geneve([high, low]), false),
        Tunnel::new(GRE, &[0, 0, 0x65, 0x58], true),
        Tunnel::new(GRE, &[0, 0, high, low], false),
        Tunnel::new(GRE, &[0x30, 0, high, low, 0, 0, 0, 7, 0, 0, 0, 8], false),
        Tunnel::new(GRE, &[0xb0, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8], false)
            .with_checksum(4),
        Tunnel::new(in_ip, &[], false),
        Tunnel::new(DESTINATION_OPTIONS, &limited, false),
    ]
}

#[test]
fn unfinished_inner_checksum_is_finished_valid_one_stays() {
    for packet in all() {
        let (inner, finished) = (packet.frame(), packet.finished());
        for tunnel in tunnels(packet.is_v6) {
            for is_v6 in [false, true] {
                let whole = tunnel.around(is_v6, &finished, &finished);
                let mut frame = tunnel.around(is_v6, &inner, &finished);
                assert!(finish(&mut frame), "{:?} {frame:?}", tunnel.header);
                assert_eq!(frame, whole, "{:?}", tunnel.header);
                assert!(!finish(&mut frame), "{:?}", tunnel.header);
                let mut meant = tunnel.around(is_v6, &inner, &inner);
                assert_eq!(finish(&mut meant), tunnel.field.is_none(), "{:?}", tunnel.header);
            }
        }
    }
}

#[test]
fn checksums_of_tunnels_themselves_are_finished() {
    let packet = Unfinished::new(false, TCP, b"data").finished();
    // VXLAN has the sum of the pseudo-header there, GRE has zero.
    let vxlan = Tunnel::udp(4789, &[8, 0, 0, 0, 0, 0, 7, 0], true).with_checksum(6);
    let gre = Tunnel::new(GRE, &[0x80, 0, 8, 0, 0, 0, 0, 0], false).with_checksum(4);
    for tunnel in [vxlan, gre] {
        let whole = tunnel.around(false, &packet, &packet);
        let field = 34 + tunnel.field.unwrap();
        let mut frame = whole.clone();
        let left = words(&whole[26..34]) + u64::from(UDP) + words(&whole[38..40]);
        let left = if tunnel.protocol == UDP { (left % 0xffff) as u16 } else { 0 };
        frame[field..field + 2].copy_from_slice(&left.to_be_bytes());
        assert!(finish(&mut frame));
        assert_eq!(frame, whole);
    }
}

#[test]
fn lookalike_or_too_deep_tunnels_are_left_alone() {
    let packet = Unfinished::new(false, TCP, b"data");
    let (inner, finished) = (packet.frame(), packet.finished());
    for tunnel in [
        Tunnel::udp(4790, &[8, 0, 0, 0, 0, 0, 7, 0], true),
        Tunnel::udp(4789, &[12, 0, 0, 0, 0, 0, 7, 0], true),
        Tunnel::udp(6081, &[0x40, 0, 0x65, 0x58, 0, 0, 7, 0], true),
        Tunnel::new(GRE, &[0, 1, 8, 0], false),
        Tunnel::new(GRE, &[0x40, 0, 8, 0, 0, 0, 0, 0], false),
        Tunnel::new(DESTINATION_OPTIONS, &[TCP, 0, 1, 4, 0, 0, 0, 0], false),
        Tunnel::new(50, &[], false),
    ] {
        let mut frame = tunnel.around(false, &inner, &finished);
        assert!(!finish(&mut frame), "{:?}", tunnel.header);
    }
    let tunnel = Tunnel::new(IN_IPV4, &[], false);
    let mut frame = inner;
    for deep in 1..6 {
        frame = tunnel.around(false, &frame, &frame);
        assert_eq!(finish(&mut frame.clone()), deep <= 3, "{deep}");
    }
}

#[test]
fn arbitrary_bytes_do_not_panic() {
    for packet in all().into_iter().step_by(7) {
        let inner = packet.frame();
        for tunnel in tunnels(packet.is_v6) {
            let whole = tunnel.around(packet.is_v6, &inner, &inner);
            for at in 0..whole.len().min(130) {
                for value in [0, 1, 0x40, 0x80, 0xff, whole[at].wrapping_add(1)] {
                    let mut frame = whole.clone();
                    frame[at] = value;
                    finish(&mut frame);
                }
                assert!(!finish(&mut whole[..at].to_vec()), "cut at {at}");
            }
        }
    }
}

#[test]
fn sctp_crc_matches_its_test_vectors() {
    // RFC 3720 section B.4, and the usual nine digits.
    let rising: Vec<u8> = (0..32).collect();
    for (bytes, crc) in [
        (&[0; 32][..], 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
        (&rising, 0x46dd_794e),
        (b"123456789", 0xe306_9283),
        (b"", 0),
    ] {
        assert_eq!(crc32c(bytes), crc, "{bytes:?}");
    }
}

#[test]
fn only_missing_sctp_crc_is_finished() {
    for is_v6 in [false, true] {
        // Ports, tag, CRC, and a chunk of HEARTBEAT.
        let sctp = [19, 136, 19, 137, 1, 2, 3, 4, 0, 0, 0, 0, 4, 0, 0, 12, 0, 1, 0, 8, 1, 2, 3, 4];
        let tunnel = Tunnel::new(SCTP, &sctp, true);
        let mut frame = tunnel.around(is_v6, b"", b"");
        let start = frame.len() - sctp.len();
        let before = frame.clone();
        frame.extend([0xee; 4]); // padding
        assert!(finish(&mut frame));
        let crc = u32::from_le_bytes(frame[start + 8..start + 12].try_into().unwrap());
        assert_eq!(crc, crc32c(&before[start..]));
        assert_eq!(frame[..start + 8], before[..start + 8]);
        assert_eq!(frame[start + 12..before.len()], before[start + 12..]);
        assert!(!finish(&mut frame), "finished once");
        let mut broken = frame.clone();
        broken[start + 8] ^= 1;
        assert!(!finish(&mut broken));
        let mut short = before[..before.len() - sctp.len() + 8].to_vec();
        assert!(!finish(&mut short));
    }
}
