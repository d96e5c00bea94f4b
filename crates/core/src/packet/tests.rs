use super::frames::{V4, ethernet, tagged, tcp, v6};
use super::*;
use alloc::vec::Vec;

#[test]
fn the_fields_of_a_tcp_packet_are_read() {
    let frame = V4 { tos: 0xb8 | 2, payload: &tcp(1), ..V4::default() }.frame();
    let expected = Headers {
        source: Ipv4Addr::new(10, 0, 1, 2).into(),
        destination: Ipv4Addr::new(10, 0, 2, 3).into(),
        protocol: 6,
        source_port: 443,
        destination_port: 50000,
        dscp: 46,
        ecn: Ecn::Ect0,
        tags_len: 0,
        payload_at: 34,
        payload_len: tcp(1).len() as u16,
    };
    assert_eq!(Headers::parse(&frame), Ok(expected));
    let frame = v6(0xb8 | 2, 6, &tcp(1));
    let expected = Headers {
        source: "2001:db8:1::2".parse().unwrap(),
        destination: "2001:db8:2::3".parse().unwrap(),
        payload_at: 54,
        ..expected
    };
    assert_eq!(Headers::parse(&frame), Ok(expected));
}

#[test]
fn ports_are_found_behind_options_and_extension_headers() {
    let frame = V4 { options: &[1; 8], payload: &tcp(1), ..V4::default() }.frame();
    assert_eq!(Headers::parse(&frame).unwrap().destination_port, 50000);
    // Hop-by-hop of 8 bytes, AH of 12, destination options of 16, atomic fragment of 8.
    let mut payload = alloc::vec![51, 0, 1, 4, 0, 0, 0, 0];
    payload.extend_from_slice(&[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    payload.extend_from_slice(&[44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    payload.extend_from_slice(&[6, 0, 0, 0, 1, 2, 3, 4]);
    payload.extend_from_slice(&tcp(1));
    let headers = Headers::parse(&v6(0, 0, &payload)).unwrap();
    assert_eq!((headers.protocol, headers.destination_port), (6, 50000));
}

#[test]
fn all_fragments_of_a_datagram_share_a_hash() {
    let headers = |fragment_field| {
        Headers::parse(&V4 { fragment_field, payload: &tcp(1), ..V4::default() }.frame())
    };
    let (first, later, last) = (headers(0x2000), headers(0x20b9), headers(0x0172));
    assert_eq!(first.unwrap().source_port, 0);
    assert_eq!((first, later), (later, last));
    let fragment = |offset_and_more: [u8; 2]| {
        let mut payload = alloc::vec![17, 0, offset_and_more[0], offset_and_more[1], 0, 0, 0, 9];
        payload.extend_from_slice(&tcp(1));
        Headers::parse(&v6(0, 44, &payload)).unwrap().flow_hash(3)
    };
    assert_eq!(fragment([0, 1]), fragment([5, 0xa8]));
}

#[test]
fn endless_or_cut_extension_headers_leave_the_addresses() {
    let endless: Vec<u8> = [0, 0, 0, 0, 0, 0, 0, 0].repeat(100);
    let headers = Headers::parse(&v6(0, 0, &endless)).unwrap();
    assert_eq!((headers.protocol, headers.source_port), (0, 0));
    let cut = [6, 200, 0, 0, 0, 0, 0, 0];
    assert_eq!(Headers::parse(&v6(0, 60, &cut)).unwrap().protocol, 60);
}

#[test]
fn invalid_frames_are_refused_by_name() {
    let good = V4 { payload: &tcp(1), ..V4::default() }.frame();
    assert_eq!(Headers::parse(&tagged(&good, &[0x88a8, 0x8100, 0x8100])), Err(Unparsed::Vlan));
    let arp = ethernet(0x0806, &[0; 28]);
    for frame in [&arp, &tagged(&arp, &[0x8100])] {
        assert_eq!(Headers::parse(frame), Err(Unparsed::NotIp { ethertype: 0x0806 }));
    }
    for whole in [&good, &tagged(&good, &[0x8100]), &tagged(&good, &[0x88a8, 0x8100])] {
        for len in 0..whole.len() {
            assert_eq!(Headers::parse(&whole[..len]), Err(Unparsed::Truncated));
        }
    }
    // Version, header length, total length.
    for (at, value) in [(0, 0x65), (0, 0x44), (3, 19)] {
        let mut bad = good.clone();
        bad[ETHERNET_HEADER + at] = value;
        assert_eq!(Headers::parse(&bad), Err(Unparsed::Malformed));
    }
}

#[test]
fn tags_change_nothing_but_where_the_packet_stands() {
    for untagged in [V4 { tos: 2, payload: &tcp(1), ..V4::default() }.frame(), v6(2, 6, &tcp(1))] {
        let (bare, len) = (Headers::parse(&untagged).unwrap(), untagged.len());
        for tags in [&[0x8100][..], &[0x88a8, 0x8100], &[0x9100, 0x8100], &[0x8100, 0x8100]] {
            let mut frame = tagged(&untagged, tags);
            let headers = Headers::parse(&frame).unwrap();
            let tags_len = (tags.len() * VLAN_TAG) as u8;
            let payload_at = bare.payload_at + tags_len;
            assert_eq!(headers, Headers { tags_len, payload_at, ..bare });
            assert_eq!(headers.payload(&frame), bare.payload(&untagged));
            frame.extend_from_slice(&[0; 6]);
            assert_eq!(unpadded_len(Some(&headers), &frame).as_u64(), len as u64);
            assert!(set_ce(&mut frame));
            let mut marked = untagged.clone();
            set_ce(&mut marked);
            assert_eq!(frame[ETHERNET_HEADER + usize::from(tags_len)..][..len - 14], marked[14..]);
        }
    }
}

#[test]
fn padding_behind_the_ip_packet_is_not_read() {
    let mut frame = V4 { protocol: 17, payload: &[1, 2], ..V4::default() }.frame();
    frame.resize(60, 0xff);
    assert_eq!(Headers::parse(&frame).unwrap().source_port, 0);
}

#[test]
fn padding_is_not_counted() {
    let len =
        |frame: &[u8]| unpadded_len(Headers::parse(frame).ok().as_ref(), frame).as_u64() as usize;
    let options = V4 { options: &[1; 8], ..V4::default() }.frame();
    let empty = v6(0, 59, &[]);
    for frame in [V4::default().frame(), options, v6(0, 6, &tcp(1)), empty] {
        let mut padded = frame.clone();
        padded.resize(frame.len() + 6, 0);
        assert_eq!((len(&frame), len(&padded)), (frame.len(), frame.len()));
    }
    // Jumbogram, other protocols, cut off.
    let whole = V4 { payload: &tcp(1), ..V4::default() }.frame();
    let mut jumbo = v6(0, HOP_BY_HOP, &[]);
    jumbo.resize(80_000, 0);
    for frame in [&jumbo[..], &ethernet(0x0806, &[0; 46]), &whole[..50], &whole[..7], &[]] {
        assert_eq!(len(frame), frame.len());
    }
    assert_eq!(len(&tagged(&jumbo, &[0x8100])), jumbo.len());
}

#[test]
fn a_mark_keeps_the_header_checksum_right() {
    // The values of `id` make both the old and the new checksum pass through 0 and 0xffff.
    for id in 0..=u16::MAX {
        let mut marked = V4 { id, tos: 2, ..V4::default() }.frame();
        assert!(set_ce(&mut marked));
        assert_eq!(ecn(&marked), Ecn::Ce);
        let header = &marked[ETHERNET_HEADER..];
        assert_eq!(frames::checksum(header), 0, "id {id}");
    }
    let mut marked = v6(0xb8 | 1, 6, &[]);
    assert!(set_ce(&mut marked));
    assert_eq!(marked, v6(0xb8 | 3, 6, &[]));
}

#[test]
fn not_ecn_capable_packet_is_never_marked() {
    for frame in [V4::default().frame(), v6(0, 6, &[]), ethernet(0x0806, &[0xff; 28])] {
        let mut marked = frame.clone();
        assert!(!set_ce(&mut marked));
        assert_eq!(marked, frame);
    }
    let short = V4 { tos: 2, ..V4::default() }.frame();
    for len in 0..ETHERNET_HEADER + IPV4_HEADER {
        assert!(!set_ce(&mut short[..len].to_vec()));
    }
}

#[test]
fn flows_hash_apart_and_keys_reshuffle_them() {
    let headers = |port: u16| {
        let frame = V4 { payload: &tcp(1), ..V4::default() }.frame();
        Headers { source_port: port, ..Headers::parse(&frame).unwrap() }
    };
    let mut buckets = [0_u32; 64];
    for port in 0..6400 {
        buckets[(headers(port).flow_hash(1) % 64) as usize] += 1;
    }
    // 100 expected in each, standard deviation 10: six deviations on either side.
    assert!(buckets.iter().all(|count| (40..160).contains(count)), "{buckets:?}");
    assert_ne!(headers(1).flow_hash(1), headers(1).flow_hash(2));
}
