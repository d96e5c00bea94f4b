use forebay_core::bundle::segments::SuperPacket;
use forebay_core::bundle::table::BundleTable;
use forebay_core::bundle::{SampleBlock, SamplingKey};
use forebay_core::packet::{Headers, unpadded_len};
use forebay_core::random::Streams;
use forebay_skips::{Need, skip_without};

use super::*;
use crate::membership::MAX_PREFIXES;
use crate::program::tests::{Buffer, GSO_SEGS, GSO_SIZE, loaded, run, run_at_tc};

/// Test vectors that core's sampling uses too.
const VECTORS: &str = include_str!("../../../core/tests/data/sample_vectors.txt");
/// Sampling key of the test vectors.
pub(crate) const KEY: SamplingKey =
    SamplingKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
/// Epoch size that makes each packet a boundary.
const EVERY_PACKET: EpochSize = EpochSize::from_log2(0).unwrap();

fn sampler() -> Option<Sampler> {
    loaded(Sampler::load())
}

fn sampler_at_tc() -> Option<Sampler> {
    if skip_without(Need::Root) || skip_without(Need::Tcx) {
        return None;
    }
    Some(Sampler::load_at_tc().unwrap())
}

/// Hash, bytes and packets with each packet of a buffer, whose data is to be cut up by `gso_size`.
fn segments(sampler: &mut Sampler, frame: &[u8], gso_size: u16) -> Vec<(u64, u64, u64)> {
    let mut buffer: Buffer = [0; 48];
    buffer[GSO_SIZE] = gso_size.into();
    buffer[GSO_SEGS] = u32::from(gso_size != 0);
    /// Verdict that leaves the packet to the next program (enum tcx_action_base,
    /// include/uapi/linux/bpf.h).
    const TCX_NEXT: u32 = u32::MAX;
    assert_eq!(run_at_tc(sampler.program.as_fd(), frame, 1, &mut buffer).action, TCX_NEXT);
    let mut seen = Vec::new();
    let take = &mut |Boundary { report, .. }: Boundary| {
        seen.push((report.hash, report.received_bytes.as_u64(), report.received_packets));
    };
    sampler.consume(take).unwrap();
    seen
}

fn bundle(source: &str, destination: &str) -> SamplerBundle {
    let prefixes = |text: &str| text.split(' ').map(|prefix| prefix.parse().unwrap()).collect();
    SamplerBundle {
        source: prefixes(source),
        destination: prefixes(destination),
        key: KEY,
        epoch_size: EVERY_PACKET,
        version: BlockVersion::V1,
    }
}

/// Bytes of a frame as the sendbox counts them.
fn counted(frame: &[u8]) -> ByteCount {
    unpadded_len(Headers::parse(frame).ok().as_ref(), frame)
}

fn boundaries(sampler: &mut Sampler, frame: &[u8]) -> Vec<Boundary> {
    assert_eq!(run(sampler.program.as_fd(), frame, 1).action, 2, "XDP_PASS");
    let mut seen = Vec::new();
    sampler.consume(&mut |boundary| seen.push(boundary)).unwrap();
    seen
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Frames of the golden vectors with their hash of a version, `None` where the frame is not sampled.
fn vectors(version: BlockVersion) -> Vec<(Vec<u8>, Option<u64>)> {
    let wanted = match version {
        BlockVersion::V1 => "hash",
        _ => "hash2",
    };
    let mut vectors: Vec<(Vec<u8>, Option<u64>)> = Vec::new();
    for line in VECTORS.lines() {
        match line.split_once(' ') {
            Some(("frame", frame)) => vectors.push((unhex(frame), None)),
            Some((name, hash)) if name == wanted => {
                vectors.last_mut().unwrap().1 = Some(u64::from_str_radix(hash, 16).unwrap());
            }
            _ => {}
        }
    }
    vectors
}

/// An IPv4 UDP frame of `len` bytes.
fn udp(source: [u8; 4], destination: [u8; 4], tos: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, tos]);
    frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    frame[23] = 17;
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&destination);
    frame
}

#[test]
fn hashes_are_those_of_the_golden_vectors() {
    for version in [BlockVersion::V1, BlockVersion::V2] {
        let Some(mut sampler) = sampler() else { return };
        let all = "0.0.0.0/0 ::/0";
        let bundle = SamplerBundle { version, ..bundle(all, all) };
        sampler.set_bundle(BundleId(7), bundle).unwrap();
        let (mut packets, mut bytes) = (0, 0);
        for (frame, hash) in vectors(version) {
            if frame.len() < 14 {
                continue; // BPF_PROG_TEST_RUN takes no frame without an Ethernet header.
            }
            let seen = boundaries(&mut sampler, &frame);
            let hashes: Vec<u64> = seen.iter().map(|boundary| boundary.report.hash).collect();
            assert_eq!(hashes, Vec::from_iter(hash), "{frame:02x?}");
            if let [boundary] = seen[..] {
                packets += 1;
                bytes += counted(&frame).as_u64();
                assert_eq!(boundary.bundle, BundleId(7));
                assert_eq!(boundary.report.received_packets, packets);
                assert_eq!(boundary.report.received_bytes, ByteCount::new(bytes));
            }
        }
        assert!(packets >= 8);
    }
}

#[test]
fn sample_blocks_match_core_for_all_versions() {
    let Some(mut sampler) = sampler() else { return };
    for version in BlockVersion::ALL {
        let bundle = SamplerBundle { version, ..bundle("0.0.0.0/0", "0.0.0.0/0") };
        sampler.set_bundle(BundleId(1), bundle).unwrap();
        for (protocol, fragment) in
            [(6, 0), (17, 0), (50, 0), (6, 0x20), (17, 1), (1, 0), (58, 0), (44, 0), (132, 0)]
        {
            for payload in 0..70 {
                let mut frame = udp([10, 0, 0, 1], [10, 1, 0, 1], 0, 34 + payload);
                (frame[18], frame[20], frame[23]) = (9, fragment, protocol);
                (34..34 + payload).for_each(|at| frame[at] = (at * 37) as u8 | 0x80);
                let hash = SampleBlock::from_frame(version, &frame).unwrap().hash(&KEY);
                let seen = boundaries(&mut sampler, &frame)[0].report.hash;
                assert_eq!(seen, hash, "{version:?}, protocol {protocol}, {payload} bytes");
            }
        }
    }
}

/// `frame` behind a customer's VLAN tag, or a provider's and a customer's.
pub(crate) fn tagged(frame: &[u8], is_twice: bool) -> Vec<u8> {
    let tags = [&[0x88, 0xa8, 0, 9][..], &[0x81, 0, 0, 5]].concat();
    [&frame[..12], &tags[if is_twice { 0 } else { 4 }..], &frame[12..]].concat()
}

#[test]
fn vlan_packets_are_sampled_like_untagged_ones() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("0.0.0.0/0 ::/0", "0.0.0.0/0 ::/0")).unwrap();
    let mut bytes = ByteCount::ZERO;
    for bare in [transport(false, 6, 100), transport(true, 17, 100), transport(false, 50, 3)] {
        let frames = [bare.clone(), tagged(&bare, false), tagged(&bare, true)];
        let seen = frames.each_ref().map(|frame| boundaries(&mut sampler, frame)[0].report);
        for report in seen {
            bytes += ByteCount::new(bare.len() as u64);
            assert_eq!((report.hash, report.received_bytes), (seen[0].hash, bytes));
        }
    }
    let thrice = tagged(&tagged(&transport(false, 17, 30), false), true);
    assert_eq!(boundaries(&mut sampler, &thrice), []);
}

#[test]
fn tc_segments_vlan_and_nat_packets_like_core() {
    let Some(mut sampler) = sampler_at_tc() else { return };
    let all = "0.0.0.0/0 ::/0";
    for version in &BlockVersion::ALL[1..] {
        let bundle = SamplerBundle { version: *version, ..bundle(all, all) };
        sampler.set_bundle(BundleId(1), bundle).unwrap();
        for (is_v6, protocol) in [(false, 6), (true, 6), (false, 17), (true, 17)] {
            let bare = transport(is_v6, protocol, 3000);
            let expected: Vec<u64> = SuperPacket::new(&bare, 1448, false)
                .unwrap()
                .segments()
                .map(|segment| {
                    let block = segment.block;
                    version.nat().map_or(block, |nat| block.through(nat)).hash(&KEY)
                })
                .collect();
            for frame in [bare.clone(), tagged(&bare, false), tagged(&bare, true)] {
                let before = sampler.counters(BundleId(1)).unwrap().unwrap().bytes;
                let seen = segments(&mut sampler, &frame, 1448);
                let hashes: Vec<u64> = seen.iter().map(|(hash, ..)| *hash).collect();
                assert_eq!(hashes, expected, "{version:?}, v6: {is_v6}, protocol {protocol}");
                let after = sampler.counters(BundleId(1)).unwrap().unwrap().bytes;
                let headers = bare.len() - 3000;
                assert_eq!((after - before).as_u64() as usize, 3 * headers + 3000);
            }
        }
    }
}

#[test]
fn frame_padding_changes_neither_hash_nor_bytes() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("0.0.0.0/0", "0.0.0.0/0")).unwrap();
    let mut bytes = ByteCount::ZERO;
    for payload in 0..40 {
        let mut frame = udp([10, 0, 0, 1], [10, 1, 0, 1], 0, 34 + payload);
        frame[34..].fill(0xa5);
        let bare = boundaries(&mut sampler, &frame)[0].report;
        frame.resize(100, 0x5a);
        let padded = boundaries(&mut sampler, &frame)[0].report;
        assert_eq!(padded.hash, bare.hash, "{payload} bytes");
        for report in [bare, padded] {
            bytes += ByteCount::new(34 + payload as u64);
            assert_eq!(report.received_bytes, bytes, "{payload} bytes");
        }
    }
}

#[test]
fn both_boxes_count_the_same_bytes_of_ipv6() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("::/0", "::/0")).unwrap();
    let mut bytes = ByteCount::ZERO;
    // Payload length and next header: TCP, nothing, options, a jumbogram.
    for (payload, next_header) in [(20, 6), (0, 59), (8, 0), (0, 0)] {
        let mut frame = vec![0; 90];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        (frame[19], frame[20]) = (payload, next_header);
        bytes += counted(&frame);
        let report = boundaries(&mut sampler, &frame)[0].report;
        assert_eq!(report.received_bytes, bytes, "{payload} {next_header}");
    }
    assert_eq!(bytes, ByteCount::new(74 + 54 + 62 + 90));
}

#[test]
fn neighbour_discovery_is_no_part_of_a_bundle() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("::/0", "::/0")).unwrap();
    // ICMPv6: an echo request, then router solicitation to redirect.
    for (kind, counted) in [(128, 1), (133, 0), (135, 0), (136, 0), (137, 0), (138, 1)] {
        let mut frame = vec![0; 78];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        (frame[19], frame[20], frame[54]) = (24, 58, kind);
        assert_eq!(boundaries(&mut sampler, &frame).len(), counted, "type {kind}");
    }
}

#[test]
fn boundary_hashes_are_multiples_of_epoch_size() {
    let Some(mut sampler) = sampler() else { return };
    let eight = EpochSize::from_log2(3).unwrap();
    sampler.set_bundle(BundleId(2), bundle("10.0.0.0/8", "10.0.0.0/8")).unwrap();
    let frames: Vec<Vec<u8>> = (0..=255)
        .flat_map(|low| [(1, low), (2, low)])
        .map(|(high, low)| udp([10, 0, high, low], [10, 1, 0, 1], 0, 60))
        .collect();
    let all: Vec<u64> =
        frames.iter().map(|frame| boundaries(&mut sampler, frame)[0].report.hash).collect();
    assert!(sampler.set_epoch_size(BundleId(2), eight));
    let some: Vec<Boundary> =
        frames.iter().flat_map(|frame| boundaries(&mut sampler, frame)).collect();
    let expected: Vec<u64> = all.into_iter().filter(|hash| eight.is_boundary(*hash)).collect();
    assert!(!expected.is_empty());
    assert_eq!(some.iter().map(|it| it.report.hash).collect::<Vec<_>>(), expected);
    assert!(some.iter().all(|it| it.report.epoch_size == eight));
    let counted = sampler.counters(BundleId(2)).unwrap().unwrap();
    assert_eq!((counted.packets, counted.bytes), (1024, ByteCount::new(1024 * 60)));
    assert!(!sampler.set_epoch_size(BundleId(3), eight));
}

#[test]
fn the_longest_destination_decides_then_the_source() {
    let Some(mut sampler) = sampler() else { return };
    for (id, source, destination) in [
        (1, "10.1.0.0/16", "10.2.0.0/16"),
        (2, "10.1.0.0/16", "10.2.7.0/24"),
        (300, "10.9.0.0/16", "10.2.7.0/25"),
        (4, "0.0.0.0/0 ::/0", "0.0.0.0/0 ::/0"),
        (5, "10.1.128.0/17", "10.3.0.0/16"),
        (6, "10.1.0.0/17", "10.3.0.0/16"),
    ] {
        sampler.set_bundle(BundleId(id), bundle(source, destination)).unwrap();
    }
    let mut bundle_of = |source, destination| {
        let seen = boundaries(&mut sampler, &udp(source, destination, 0, 60));
        seen.first().map(|boundary| boundary.bundle.0)
    };
    assert_eq!(bundle_of([10, 1, 0, 1], [10, 2, 0, 1]), Some(1));
    assert_eq!(bundle_of([10, 1, 0, 1], [10, 2, 7, 200]), Some(2));
    assert_eq!(bundle_of([10, 1, 0, 1], [10, 2, 7, 1]), Some(2));
    assert_eq!(bundle_of([10, 9, 0, 1], [10, 2, 7, 1]), Some(300));
    assert_eq!(bundle_of([10, 9, 0, 1], [10, 2, 7, 200]), Some(4));
    assert_eq!(bundle_of([10, 1, 200, 1], [10, 3, 0, 1]), Some(5));
    assert_eq!(bundle_of([10, 1, 2, 1], [10, 3, 0, 1]), Some(6));
    sampler.change(&[BundleId(4)], Vec::new()).unwrap();
    sampler.change(&[BundleId(2)], Vec::new()).unwrap();
    let mut bundle_of = |source, destination| {
        let seen = boundaries(&mut sampler, &udp(source, destination, 0, 60));
        seen.first().map(|boundary| boundary.bundle.0)
    };
    assert_eq!(bundle_of([10, 1, 0, 1], [10, 2, 7, 200]), Some(1));
    assert_eq!(bundle_of([192, 0, 2, 1], [192, 0, 2, 2]), None);
}

#[test]
fn prefix_moves_between_bundles_in_one_change() {
    let Some(mut sampler) = sampler() else { return };
    let (site, [one, other]) = ("10.1.0.0/16", ["10.2.0.0/16", "10.3.0.0/16"]);
    let of = |id, destination| (BundleId(id), bundle(site, destination));
    sampler.change(&[], vec![of(1, one), of(2, other)]).unwrap();
    let bundle_of = |sampler: &mut Sampler, part| {
        let seen = boundaries(sampler, &udp([10, 1, 0, 1], [10, part, 0, 1], 0, 60));
        seen.first().map(|boundary| boundary.bundle.0)
    };
    assert_eq!([2, 3].map(|part| bundle_of(&mut sampler, part)), [Some(1), Some(2)]);
    let twice = sampler.change(&[], vec![of(1, other)]).unwrap_err();
    assert!(matches!(twice, Error::Overlap { first: 2, second: 1, .. }), "{twice}");
    sampler.change(&[], vec![of(1, other), of(2, one)]).unwrap();
    assert_eq!([2, 3].map(|part| bundle_of(&mut sampler, part)), [Some(2), Some(1)]);
    assert_eq!(sampler.counters(BundleId(1)).unwrap().unwrap().packets, 2, "counting continues");
    sampler.change(&[BundleId(1), BundleId(2)], vec![of(1, one), of(7, other)]).unwrap();
    assert_eq!([2, 3].map(|part| bundle_of(&mut sampler, part)), [Some(1), Some(7)]);
    assert_eq!(sampler.counters(BundleId(1)).unwrap().unwrap().packets, 1, "counting restarts");
}

#[test]
fn entries_without_room_follow_with_next_change() {
    let Some(mut sampler) = sampler() else { return };
    let filler = |number: usize| {
        let [_, rest @ ..] = (number as u32).to_be_bytes();
        let [second, third, fourth] = rest;
        prefix_key(IpNet::from(IpAddr::from([100, second, third, fourth]))).unwrap()
    };
    let nowhere = types::destination { length: 0, number: 0 };
    let destinations = &sampler.maps.destinations;
    // Fills the map with destinations of no bundle.
    for number in 0..2 * MAX_PREFIXES {
        let (key, value) = (filler(number), nowhere.as_bytes());
        destinations.update(key.as_bytes(), value, MapFlags::ANY).unwrap();
    }
    let (id, packet) = (BundleId(1), udp([10, 1, 0, 1], [10, 2, 0, 1], 0, 100));
    let refused = sampler.set_bundle(id, bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap_err();
    assert!(refused.to_string().contains("destinations"), "{refused}");
    assert!(boundaries(&mut sampler, &packet).is_empty());
    sampler.maps.destinations.delete(filler(0).as_bytes()).unwrap();
    sampler.set_bundle(id, bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
    assert_eq!(boundaries(&mut sampler, &packet).len(), 1);
    sampler.change(&[id], Vec::new()).unwrap();
    assert!(boundaries(&mut sampler, &packet).is_empty());
    assert!(sampler.installed.destinations.is_empty() && sampler.installed.pairs.is_empty());
}

#[test]
fn both_boxes_agree_on_bundles_of_nested_prefixes() {
    let destinations = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32"];
    let sources = ["192.0.2.0/24", "192.0.2.0/25", "192.0.2.128/25", "198.51.100.0/24"];
    let mut random = Streams::new(1).stream("bundles");
    for _ in 0..50 {
        let Some(mut sampler) = sampler() else { return };
        let mut pick = || sources[random.below(sources.len() as u64) as usize];
        let bundles = destinations.map(|to| bundle(&[pick(), pick()].join(" "), to));
        for (id, bundle) in (0..).zip(&bundles) {
            sampler.set_bundle(BundleId(id), bundle.clone()).unwrap();
        }
        let sites = bundles.iter().map(|bundle| (&bundle.source[..], &bundle.destination[..]));
        let table = BundleTable::new(sites).unwrap();
        for source in [[192, 0, 2, 1], [192, 0, 2, 200], [198, 51, 100, 1], [203, 0, 113, 1]] {
            for destination in [[10, 2, 0, 1], [10, 1, 0, 1], [10, 1, 2, 1], [10, 1, 2, 3]] {
                let seen = boundaries(&mut sampler, &udp(source, destination, 0, 60));
                let sampled = seen.first().map(|boundary| usize::from(boundary.bundle.0));
                let found = table.find(source.into(), destination.into());
                assert_eq!(sampled, found, "{source:?} to {destination:?} of {bundles:?}");
            }
        }
    }
}

#[test]
fn bundles_claiming_the_same_packet_are_refused() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
    let error = sampler.set_bundle(BundleId(2), bundle("10.1.2.0/24", "10.2.0.0/16")).unwrap_err();
    assert!(matches!(error, Error::Overlap { first: 1, second: 2, .. }), "{error}");
    sampler.set_bundle(BundleId(1), bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
    let others = (0..1023).map(|id: u16| {
        let destination = format!("198.18.{}.{}/32", id / 256, id % 256);
        (BundleId(10 + id), bundle("0.0.0.0/0", &destination))
    });
    sampler.change(&[], others.collect()).unwrap();
    let error = sampler.set_bundle(BundleId(5000), bundle("::/0", "::/0")).unwrap_err();
    assert!(matches!(error, Error::TooManyBundles { max: 1024 }), "{error}");
    for length in [8, 12, 14] {
        let outer = bundle("172.16.0.0/12", &format!("10.0.0.0/{length}"));
        sampler.change(&[BundleId(10 + length)], Vec::new()).unwrap();
        sampler.set_bundle(BundleId(5000 + length), outer).unwrap();
    }
    sampler.change(&[BundleId(10)], Vec::new()).unwrap();
    let error = sampler.set_bundle(BundleId(6000), bundle("::/0", "10.0.0.0/10")).unwrap_err();
    assert!(matches!(error, Error::Nesting { max: 4 }), "{error}");
}

#[test]
fn hub_tables_hold_and_find_all_bundles() {
    let Some(mut sampler) = sampler() else { return };
    // Each site sends to 16 networks of the hub, and four of its own may be the source.
    let to: Vec<String> = (0..16).map(|net| format!("10.2.{net}.0/24")).collect();
    let site = |site: u16| {
        let from = (0..4).map(|net| format!("10.{}.{}.0/24", 16 + site / 64, site % 64 * 4 + net));
        bundle(&from.collect::<Vec<_>>().join(" "), &to.join(" "))
    };
    let all = |shift: u16| (0..1024).map(|id| (BundleId(id), site((id + shift) % 1024))).collect();
    sampler.change(&[], all(0)).unwrap();
    let frame = |site: u16, net: u8| {
        let source = [10, 16 + (site / 64) as u8, (site % 64 * 4) as u8 + 3, 1];
        udp(source, [10, 2, net, 1], 0, 60)
    };
    for (shift, expected) in [(0, [0, 777, 1023]), (1, [1023, 776, 1022])] {
        // Every prefix goes from one bundle to another at once.
        sampler.change(&[], all(shift)).unwrap();
        for (site, id) in [0, 777, 1023].into_iter().zip(expected) {
            for net in [0, 15] {
                let seen = boundaries(&mut sampler, &frame(site, net));
                assert_eq!(seen[0].bundle, BundleId(id), "site {site}, net {net}");
            }
        }
    }
    assert_eq!(boundaries(&mut sampler, &frame(0, 16)), []);
}

#[test]
fn marks_are_counted_and_own_addresses_are_not() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("10.0.0.0/8", "10.2.0.0/16")).unwrap();
    sampler.set_left_out(BundleId(1), &["10.2.0.9".parse().unwrap()]).unwrap();
    let frame = |tos, host| udp([10, 1, 0, 1], [10, 2, 0, host], tos, 60);
    for (frame, ce) in [(frame(3, 1), 1), (frame(2, 1), 1), (frame(0xb8 | 3, 1), 2)] {
        assert_eq!(boundaries(&mut sampler, &frame)[0].report.received_ce, ce);
    }
    assert_eq!(boundaries(&mut sampler, &frame(3, 9)), []);
    assert_eq!(sampler.counters(BundleId(1)).unwrap().unwrap().packets, 3);
}

#[test]
fn sendbox_packets_skip_only_their_own_bundle() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
    sampler.set_bundle(BundleId(2), bundle("10.1.0.0/16", "10.3.0.0/16")).unwrap();
    let is_counted = |sampler: &mut Sampler, site, host| {
        boundaries(sampler, &udp([10, 1, 0, host], [10, site, 0, 1], 0, 60)).len() == 1
    };
    let addresses: [IpAddr; 2] = ["10.1.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
    sampler.set_senders(BundleId(1), &addresses).unwrap();
    assert!(!is_counted(&mut sampler, 2, 7) && is_counted(&mut sampler, 2, 8));
    assert!(is_counted(&mut sampler, 3, 7), "another bundle");
    // They stay with a change of the bundle, and go with the addresses or the bundle.
    sampler.set_bundle(BundleId(1), bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
    assert!(!is_counted(&mut sampler, 2, 7));
    sampler.set_senders(BundleId(1), &["10.1.0.8".parse().unwrap()]).unwrap();
    assert!(is_counted(&mut sampler, 2, 7) && !is_counted(&mut sampler, 2, 8));
    sampler.change(&[BundleId(1)], Vec::new()).unwrap();
    sampler.set_bundle(BundleId(1), bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
    assert!(is_counted(&mut sampler, 2, 8));
}

/// An end of the boxes' messages at 10.`site`.0.9.
pub(crate) fn message_end(site: u8, port: u16, is_source: bool) -> MessageEnd {
    MessageEnd { address: [10, site, 0, 9].into(), port, is_source }
}

/// A packet of 100 bytes with these ports, or the like, from 10.1.0.`from` to 10.2.0.`to`.
pub(crate) fn between(protocol: u8, from: (u8, u16), to: (u8, u16)) -> Vec<u8> {
    let mut frame = udp([10, 1, 0, from.0], [10, 2, 0, to.0], 0, 100);
    frame[23] = protocol;
    frame[34..36].copy_from_slice(&from.1.to_be_bytes());
    frame[36..38].copy_from_slice(&to.1.to_be_bytes());
    frame[38..40].copy_from_slice(&66_u16.to_be_bytes());
    frame
}

#[test]
fn only_messages_to_a_box_are_left_out() {
    for mut sampler in [sampler(), sampler_at_tc()].into_iter().flatten() {
        sampler.set_bundle(BundleId(1), bundle("10.1.0.0/16", "10.2.0.0/16")).unwrap();
        let is_counted = |sampler: &mut Sampler, frame: &[u8]| {
            let packets = |it: &Sampler| it.counters(BundleId(1)).unwrap().unwrap().packets;
            let before = packets(sampler);
            if sampler.is_at_tc {
                segments(sampler, frame, 0);
            } else {
                boundaries(sampler, frame);
            }
            packets(sampler) > before
        };
        let ends = [message_end(2, 61476, false), message_end(1, 61475, true)];
        sampler.set_messages(&ends.into()).unwrap();
        let message = between(17, (1, 5000), (9, 61476));
        assert!(!is_counted(&mut sampler, &message));
        let mut fragment = message.clone();
        fragment[20] = 0x20;
        for frame in [
            between(17, (1, 5000), (9, 61477)),
            between(17, (1, 5000), (8, 61476)),
            between(17, (1, 61476), (9, 5000)),
            between(17, (9, 61475), (9, 5000)),
            between(6, (1, 5000), (9, 61476)),
            fragment,
        ] {
            assert!(is_counted(&mut sampler, &frame), "{frame:?}");
        }
        let tagged = tagged(&message, true);
        assert!(!is_counted(&mut sampler, &tagged));
        sampler.set_messages(&BTreeSet::new()).unwrap();
        assert!(is_counted(&mut sampler, &message));
    }
}

#[test]
fn boundaries_beyond_the_ring_are_counted_as_lost() {
    let Some(mut sampler) = sampler() else { return };
    sampler.set_bundle(BundleId(1), bundle("10.0.0.0/8", "10.2.0.0/16")).unwrap();
    let frame = udp([10, 1, 0, 1], [10, 2, 0, 1], 0, 60);
    let sent = 10_000;
    run(sampler.program.as_fd(), &frame, sent);
    let mut last = 0;
    let read = sampler.consume(&mut |boundary| last = boundary.report.received_packets);
    let lost = sampler.lost_boundaries().unwrap();
    assert!(lost > 0);
    assert_eq!(read.unwrap() as u64 + lost, u64::from(sent));
    assert_eq!(last, u64::from(sent) - lost, "the oldest are kept");
    assert_eq!(sampler.counters(BundleId(1)).unwrap().unwrap().packets, u64::from(sent));
}

#[test]
#[ignore = "a measurement, not a claim"]
fn cost_of_a_packet() {
    let Some(mut sampler) = sampler() else { return };
    let epoch_size = EpochSize::from_log2(8).unwrap();
    let bundle = SamplerBundle { epoch_size, ..bundle("10.0.0.0/8", "10.2.0.0/16") };
    sampler.set_bundle(BundleId(1), bundle).unwrap();
    for (name, destination) in [("outside", [10, 3, 0, 1]), ("counted", [10, 2, 0, 1])] {
        let frame = udp([10, 1, 0, 1], destination, 0, 1514);
        let costs = (0..9).map(|_| run(sampler.program.as_fd(), &frame, 100_000).duration_ns);
        println!("{name}: {} ns a packet, best of 9", costs.min().unwrap());
    }
}

/// A frame of this IP version and transport with a header of 32 bytes where it is TCP, and `data` bytes behind it.
pub(crate) fn transport(is_v6: bool, protocol: u8, data: usize) -> Vec<u8> {
    let header_len = if protocol == 6 { 32 } else { 8 };
    let payload = header_len + data;
    let (mut frame, at) = if is_v6 {
        let mut frame = vec![0; 14 + 40 + payload];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[18..20].copy_from_slice(&(payload as u16).to_be_bytes());
        frame[20] = protocol;
        (frame, 54)
    } else {
        let mut frame = udp([10, 1, 0, 1], [10, 2, 0, 1], 0, 34 + payload);
        frame[18..20].copy_from_slice(&[0xff, 0xfe]);
        frame[23] = protocol;
        (frame, 34)
    };
    (at..at + payload).for_each(|at| frame[at] = (at * 89 / 7) as u8);
    if protocol == 6 {
        // A sequence number about to wrap, and the header's length.
        frame[at + 4..at + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0xf0]);
        frame[at + 12] = 0x80;
    } else {
        frame[at + 4..at + 6].copy_from_slice(&(payload as u16).to_be_bytes());
    }
    frame
}

#[test]
fn tc_segments_super_packets_like_core() {
    let Some(mut sampler) = sampler_at_tc() else { return };
    let all = "0.0.0.0/0 ::/0";
    sampler.set_bundle(BundleId(1), bundle(all, all)).unwrap();
    let (mut bytes, mut packets) = (0, 0);
    for (is_v6, protocol) in [(false, 6), (true, 6), (false, 17), (true, 17)] {
        for (data, gso_size) in
            [(3000, 1448), (2896, 1448), (1400, 100), (100, 8), (17, 9), (20, 19)]
        {
            let frame = transport(is_v6, protocol, data);
            let expected: Vec<_> = SuperPacket::new(&frame, gso_size, false)
                .unwrap()
                .segments()
                .map(|segment| {
                    packets += 1;
                    bytes += segment.len.as_u64();
                    (segment.block.hash(&KEY), bytes, packets)
                })
                .collect();
            let seen = segments(&mut sampler, &frame, gso_size);
            assert_eq!(seen, expected, "v6: {is_v6}, protocol {protocol}, {data} by {gso_size}");
        }
    }
    assert_eq!(sampler.counters(BundleId(1)).unwrap().unwrap().packets, packets);
}

#[test]
fn unmerged_packets_at_tc_are_sampled_like_xdp() {
    let (Some(mut xdp), Some(mut at_tc)) = (sampler(), sampler_at_tc()) else { return };
    let all = "0.0.0.0/0 ::/0";
    let bundle = SamplerBundle { version: BlockVersion::V2, ..bundle(all, all) };
    xdp.set_bundle(BundleId(1), bundle.clone()).unwrap();
    at_tc.set_bundle(BundleId(1), bundle).unwrap();
    let lengths = (0..40).flat_map(|data| {
        [(false, 6), (true, 6), (false, 17), (true, 17), (false, 50)]
            .map(|(is_v6, protocol)| transport(is_v6, protocol, data))
    });
    let vectors = vectors(BlockVersion::V2).into_iter().map(|(frame, _)| frame);
    for frame in lengths.chain(vectors).filter(|frame| frame.len() > 14) {
        let by_xdp: Vec<_> = boundaries(&mut xdp, &frame)
            .iter()
            .map(|Boundary { report, .. }| {
                (report.hash, report.received_bytes.as_u64(), report.received_packets)
            })
            .collect();
        assert_eq!(segments(&mut at_tc, &frame, 0), by_xdp, "{frame:02x?}");
    }
}

#[test]
#[ignore = "a measurement, not a claim"]
fn cost_of_a_packet_at_tc() {
    let Some(mut sampler) = sampler_at_tc() else { return };
    let epoch_size = EpochSize::from_log2(8).unwrap();
    let bundle = SamplerBundle { epoch_size, ..bundle("10.0.0.0/8", "10.2.0.0/16") };
    sampler.set_bundle(BundleId(1), bundle).unwrap();
    let frame = transport(false, 6, 3000);
    for gso_size in [0, 1500, 300, 100, 50] {
        let mut buffer: Buffer = [0; 48];
        buffer[GSO_SIZE] = gso_size;
        buffer[GSO_SEGS] = u32::from(gso_size != 0);
        let costs = (0..9)
            .map(|_| run_at_tc(sampler.program.as_fd(), &frame, 100_000, &mut buffer).duration_ns);
        let packets = 3000_u32.checked_div(gso_size).unwrap_or(1);
        let cost = costs.min().unwrap();
        println!("{packets} packets: {} ns each, best of 9", cost / packets);
    }
}
