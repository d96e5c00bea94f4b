use super::super::keys::{Direction, PresharedKey};
use super::super::scope::Scope;
use super::*;
use crate::bundle::BlockVersion;
use alloc::format;
use alloc::string::String;
use core::net::IpAddr;
use core::slice;
use ipnet::IpNet;
use proptest::prelude::*;

const GOLDEN: &str = include_str!("../../../../tests/data/wire_vectors.txt");
const HEADER: Header =
    Header { bundle: BundleId(0x0102), session: 0x1112_1314_1516_1718, sequence: 0x2122 };

fn key(direction: Direction) -> MessageKey {
    PresharedKey::new(core::array::from_fn(|at| at as u8)).message_key(HEADER.bundle, direction)
}

fn report(n: u64) -> Report {
    Report {
        hash: 0x3132_3334_3536_3700 + n,
        received_at: Timestamp::from_nanos(0x4142_4344 + n),
        received_bytes: ByteCount::new(0x5152_5354 + n),
        received_packets: 0x6162 + n,
        received_ce: n,
        epoch_size: EpochSize::from_log2(6).unwrap(),
    }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A scope with a prefix in each list.
fn scope() -> ToldScope {
    let to = nets(&["2001:db8:2::/48", "10.1.2.128/25", "10.1.2.0/25"]);
    let from = nets(&["10.1.0.0/24", "10.1.1.0/24"]);
    let [left_out, own]: [IpAddr; 2] = [[10, 1, 2, 1].into(), [10, 1, 1, 254].into()];
    ToldScope::new(&Scope::new(to, from, [left_out, own], [left_out, own]))
}

/// More single addresses than fit in a datagram.
fn long_scope() -> ToldScope {
    let to = (0..200).map(|n| IpNet::from(IpAddr::from([10, 0, n, 0])));
    ToldScope::new(&Scope::new(to, [], [], []))
}

fn messages() -> [(&'static str, Direction, Message); 17] {
    use Direction::{ToReceivebox, ToSendbox};
    let (nonce, session, size) = (0x7172_7374_7576_7778, 0x8182, EpochSize::from_log2(8));
    let reports = |count| Reports::new(&(0..count).map(report).collect::<Vec<_>>()).unwrap();
    let keepalive = |state, epoch_size| Message::Keepalive(Keepalive { state, epoch_size });
    let scoped = |held, asks, told| Message::Scope(ScopeMessage { held, asks, told });
    let offer = |versions, rests| Offer { versions, rests, counts_boxes: false, probes: false };
    let versions = |held, asks, offered| Message::Versions(VersionsMessage { held, asks, offered });
    let [v1, v2] = [BlockVersion::V1, BlockVersion::V2].map(BlockVersions::of);
    let response = |challenge| Message::Response { nonce, session, challenge };
    [
        ("challenge", ToReceivebox, Message::Challenge { nonce }),
        ("response", ToSendbox, response(None)),
        ("response_and_challenge", ToSendbox, response(Some(0x9192))),
        ("keepalive", ToReceivebox, keepalive(BoxState::Shaping, size)),
        ("keepalive_without_epoch_size", ToSendbox, keepalive(BoxState::Watching, None)),
        ("epoch_notice", ToReceivebox, Message::EpochNotice(size.unwrap())),
        ("one_report", ToSendbox, Message::Reports(reports(1))),
        ("eight_reports", ToSendbox, Message::Reports(reports(8))),
        ("scope", ToReceivebox, scoped(0xa1a2, true, scope())),
        ("scope_without_lists", ToSendbox, scoped(0, false, long_scope())),
        ("versions", ToReceivebox, versions(None, true, offer(v1, false))),
        (
            "versions_held",
            ToSendbox,
            versions(Some(offer(BlockVersions::ALL, false)), false, offer(v2, false)),
        ),
        (
            "versions_of_a_box_that_rests",
            ToReceivebox,
            versions(Some(offer(v1, true)), false, offer(BlockVersions::ALL, true)),
        ),
        ("keepalive_at_rest", ToReceivebox, keepalive(BoxState::Resting, size)),
        (
            "versions_of_a_box_that_counts_boxes_and_probes",
            ToReceivebox,
            versions(None, true, Offer { counts_boxes: true, probes: true, ..offer(v1, true) }),
        ),
        ("probe", ToReceivebox, Message::Probe(42)),
        ("probed", ToSendbox, Message::Probed(1472)),
    ]
}

fn sealed(message: &Message, direction: Direction) -> Vec<u8> {
    let mut out = Vec::new();
    message.seal(HEADER, &key(direction), &mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_vectors_hold() {
    let mut lines = GOLDEN.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for (name, direction, message) in messages() {
        let expected = format!("{name} {}", hex(&sealed(&message, direction)));
        assert_eq!(lines.next(), Some(expected.as_str()));
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn every_message_survives_the_way() {
    for (name, direction, message) in messages() {
        let datagram = sealed(&message, direction);
        let opened = Sealed::parse(&datagram).and_then(|sealed| sealed.open(&[key(direction)]));
        assert_eq!(opened, Ok((HEADER, message, 0)), "{name}");
        assert!(datagram.len() <= MAX_DATAGRAM);
    }
}

#[test]
fn scope_is_listed_until_the_datagram_is_full() {
    let len = |ipv4: u8, ipv6: u8| {
        let v4 = (0..ipv4).map(|n| IpNet::from(IpAddr::from([10, 0, 2 * n, 0])));
        let v6 = (0..ipv6).map(|n| IpNet::from(IpAddr::from([u16::from(2 * n); 8])));
        let told = ToldScope::new(&Scope::new(v4.chain(v6), [], [], []));
        let message = Message::Scope(ScopeMessage { held: 1, asks: true, told });
        let is_listed = told.scope().is_some();
        assert_eq!(Sealed::parse(&sealed(&message, Direction::ToSendbox)).err(), None);
        (is_listed, sealed(&message, Direction::ToSendbox).len())
    };
    assert_eq!(len(95, 0), (true, 545));
    assert_eq!(len(96, 0), (false, 66));
    assert_eq!(len(0, 28), (true, 546));
    assert_eq!(len(0, 29), (false, 66));
    assert_eq!(len(92, 1), (true, 547));
}

#[test]
fn every_wrong_length_is_refused_by_name() {
    for (name, direction, message) in messages() {
        let mut datagram = sealed(&message, direction);
        for len in 0..datagram.len() {
            let reject = Sealed::parse(&datagram[..len]).unwrap_err();
            assert_eq!(reject, Reject::Truncated, "{name} of {len} bytes");
        }
        while datagram.len() < 70_000 {
            datagram.resize(datagram.len() * 3 / 2 + 1, 0);
            assert_eq!(Sealed::parse(&datagram).unwrap_err(), Reject::Oversized, "{name}");
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (name, direction, message) in messages() {
        let datagram = sealed(&message, direction);
        for bit in 0..datagram.len() * 8 {
            let mut forged = datagram.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            let opened = Sealed::parse(&forged).and_then(|sealed| sealed.open(&[key(direction)]));
            assert!(opened.is_err(), "{name}, bit {bit}");
        }
    }
}

#[test]
fn refuses_message_of_other_direction_bundle_or_version() {
    let (_, direction, message) = messages()[3];
    let datagram = sealed(&message, direction);
    let parsed = Sealed::parse(&datagram).unwrap();
    assert_eq!(parsed.open(&[key(Direction::ToSendbox)]).unwrap_err(), Reject::Forged);
    let other = PresharedKey::new([1; 32]).message_key(HEADER.bundle, direction);
    assert_eq!(parsed.open(slice::from_ref(&other)).unwrap_err(), Reject::Forged);
    assert_eq!(parsed.open(&[other, key(direction)]).map(|(_, _, index)| index), Ok(1));
    for (at, reject) in [(0, Reject::NotOurs), (4, Reject::Version), (5, Reject::UnknownType)] {
        let mut changed = datagram.clone();
        changed[at] ^= 0x80;
        assert_eq!(Sealed::parse(&changed).unwrap_err(), reject);
    }
}

#[test]
fn keepalives_share_a_datagram_and_nothing_else_does() {
    let [resting, reports] = [13, 6].map(|index: usize| {
        let (_, direction, message) = messages()[index];
        sealed(&message, direction)
    });
    assert!(may_share(&resting) && !may_share(&reports));
    assert!(!may_share(&sealed(&messages()[3].2, Direction::ToReceivebox)), "a bundle is shaped");
    let shared = resting.repeat(SHARED);
    assert!(shared.len() <= MAX_DATAGRAM && shared.len() + resting.len() > MAX_DATAGRAM);
    let (mut rest, mut count) = (&shared[..], 0);
    while !rest.is_empty() {
        let (first, left) = split(rest);
        assert_eq!(first, resting);
        (rest, count) = (left, count + 1);
    }
    assert_eq!(count, SHARED);
    // A longer datagram than any message is refused as one message, and so is anything after another message.
    let long = resting.repeat(SHARED + 1);
    let [mixed, cut] = [[&reports[..], &resting].concat(), resting[..20].to_vec()];
    let tailed = [&resting[..], &resting, &[1, 2]].concat();
    for datagram in [&long[..], &reports, &mixed, &cut, &tailed, &[]] {
        assert_eq!(split(datagram), (datagram, &[][..]));
    }
    assert_eq!(Sealed::parse(&tailed).unwrap_err(), Reject::Oversized);
}

#[test]
fn authentic_values_out_of_range_are_malformed() {
    let changes = [
        // Flag and nonce of a response without a challenge; state; epoch sizes.
        (1, 24 + 16, 2),
        (1, 24 + 17, 1),
        (3, 24, 0),
        (3, 24, 7),
        (3, 25, 21),
        (5, 24, 255),
        (6, 24 + 1 + 8, 21),
        // A varint that is not in its shortest form.
        (6, 24 + 1 + 9 + 5 + 5 + 2, 0),
        // In a scope: the request for an answer; lengths of prefixes, and a bit after one.
        (8, 24 + 8, 2),
        (8, 24 + 9 + 17 + 1, 33),
        (8, 24 + 9 + 17 + 1 + 4, 1),
        (8, 24 + 9 + 17 + 1 + 5, 64 + 129),
        (9, 24 + 8, 2),
        (8, 24 + 9 + 16, 2),
        // In versions: the request for an answer, and an empty offer.
        (10, 24 + 1, 2),
        (10, 24 + 2, 0),
    ];
    for (index, at, value) in changes {
        let (name, direction, message) = messages()[index];
        let mut datagram = sealed(&message, direction);
        datagram[at] = value;
        let body = datagram.len() - TAG_LEN;
        let tag = key(direction).tag(&datagram[..body]);
        datagram[body..].copy_from_slice(&tag);
        let opened = Sealed::parse(&datagram).unwrap().open(&[key(direction)]);
        assert_eq!(opened.unwrap_err(), Reject::Malformed, "{name}, byte {at}");
    }
}

#[test]
fn varints_take_minimal_bytes_and_the_longest_fit() {
    let len = |number: u64| {
        let report = Report {
            received_at: Timestamp::from_nanos(number),
            received_bytes: ByteCount::new(number),
            received_packets: number,
            received_ce: number,
            ..report(0)
        };
        let message = Message::Reports(Reports::new(&[report; MAX_REPORTS]).unwrap());
        let datagram = sealed(&message, Direction::ToSendbox);
        let opened = Sealed::parse(&datagram)
            .and_then(|sealed| sealed.open(&[key(Direction::ToSendbox)]))
            .map(|(_, message, _)| message);
        assert_eq!(opened, Ok(message));
        datagram.len() - reports_len(0)
    };
    assert_eq!([0, 0x7f, 0x80, u64::MAX].map(len), [8 * 13, 8 * 13, 8 * 17, 8 * 49]);
    assert!(reports_len(0) + len(u64::MAX) <= MAX_DATAGRAM);
}

#[test]
fn a_batch_holds_one_to_eight_reports() {
    assert_eq!(Reports::new(&[]), None);
    assert_eq!(Reports::new(&[report(0); 9]), None);
    assert_eq!(Reports::new(&[report(1), report(2)]).unwrap().as_slice().len(), 2);
}

proptest! {
    #[test]
    fn opened_message_seals_to_the_same_bytes(
        kind in 1..=7_u8,
        mut payload in prop::collection::vec(0..4_u8, 0..90),
    ) {
        let key = key(Direction::ToSendbox);
        let mut datagram = b"FBAY".to_vec();
        datagram.extend_from_slice(&[VERSION, kind]);
        datagram.extend_from_slice(&[0; 18]);
        if let Ok(len) = payload_len(kind, &payload) {
            payload.resize(len, 1);
        }
        datagram.extend_from_slice(&payload);
        datagram.extend_from_slice(&key.tag(&datagram));
        let opened = Sealed::parse(&datagram).and_then(|sealed| sealed.open(slice::from_ref(&key)));
        if let Ok((header, message, _)) = opened {
            let mut again = Vec::new();
            message.seal(header, &key, &mut again);
            prop_assert_eq!(again, datagram);
        }
    }
}

#[test]
fn probe_length_is_exact_and_zeros_no_message() {
    for len in [42, 548, 549, 1472, MAX_PROBE as u16] {
        let probe = sealed(&Message::Probe(len), Direction::ToReceivebox);
        assert_eq!(probe.len(), usize::from(len));
        let opened = |datagram: &[u8]| {
            Sealed::parse(datagram).and_then(|it| it.open(&[key(Direction::ToReceivebox)]))
        };
        assert_eq!(opened(&probe), Ok((HEADER, Message::Probe(len), 0)));
        assert!(split(&probe).1.is_empty() && !may_share(&probe));
        // A probe that was lengthened or cut is refused.
        let longer = [&probe[..], &[0]].concat();
        assert_eq!(opened(&longer), Err(Reject::Oversized));
        assert_eq!(opened(&probe[..probe.len() - 1]), Err(Reject::Truncated));
        let mut other = probe.clone();
        other[24] ^= 1;
        assert!(opened(&other).is_err());
    }
    // A probe that states less than the shortest length still has its own length.
    let probe = sealed(&Message::Probe(7), Direction::ToReceivebox);
    assert_eq!(Sealed::parse(&probe).unwrap_err(), Reject::Oversized);
}
