mod departed;

use forebay_core::bundle::sample::SamplingKey;
use forebay_core::bundle::{BlockVersion, EpochSize};
use forebay_skips::{Need, skip_without};

use super::*;
use crate::attach::{tcx_ids, tcx_programs};
use crate::program::tests::{Buffer, INGRESS_IFINDEX, PRIORITY, run_at_tc};
use crate::sampler::tests::{between, message_end};
use crate::{CLASSIFY, SamplerBundle};

/// Index of a made-up device towards the LAN.
const LAN: u32 = 7;
/// No device: the packets of a trial run belong to a socket, and must not leave anywhere.
const WAN: u32 = i32::MAX as u32;
/// Longer than a loaded machine lets a test wait between a beat and its packet.
const STALE_AFTER: Duration = Duration::from_secs(2);
/// Verdict that leaves a packet to the next program (enum tcx_action_base,
/// include/uapi/linux/bpf.h).
const TCX_NEXT: i32 = -1;
/// Verdict that drops a packet (enum tcx_action_base, include/uapi/linux/bpf.h).
const TCX_DROP: i32 = 2;

fn none() -> ClassifiedCounters {
    ClassifiedCounters::default()
}

/// With bundles to 10.2.0.0/16 and 10.3.0.0/16.
fn classes(leaves: u32) -> Option<Classes> {
    classes_for(leaves, 1)
}

/// As [`classes`], with at most `most_packets` waiting: packets of trial runs find none before
/// them.
fn classes_for(leaves: u32, most_packets: u32) -> Option<Classes> {
    classes_of(ClassesOptions { leaves, most_packets, ..BRIDGED })
}

/// Options of a sendbox between two ports of a bridge.
const BRIDGED: ClassesOptions = ClassesOptions {
    lan: Some(LAN),
    takes_own: false,
    is_bare: false,
    wan: WAN,
    leaves: 0,
    most_packets: 1,
    most_bytes: 1,
    stale_after: STALE_AFTER,
};

fn classes_of(options: ClassesOptions) -> Option<Classes> {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return None;
    }
    let mut classes = Classes::load(options).unwrap();
    for (id, to) in [(5, "10.2.0.0/16"), (6, "10.3.0.0/16")] {
        let bundle = SamplerBundle {
            source: vec!["0.0.0.0/0".parse().unwrap()],
            destination: vec![to.parse().unwrap()],
            key: SamplingKey::IDENTITY,
            epoch_size: EpochSize::MAX,
            version: BlockVersion::V2,
        };
        classes.sampler.set_bundle(BundleId(id), bundle).unwrap();
    }
    classes.set_own_addresses(&["10.2.0.9".parse().unwrap()].into()).unwrap();
    Some(classes)
}

/// The priority of a UDP packet from 10.1.0.`host`, which came in at a device.
fn priority(classes: &Classes, host: u8, to: [u8; 4], ingress: u32) -> u32 {
    classified(classes, host, to, ingress).0
}

/// As [`priority`], with the answer to the kernel.
fn classified(classes: &Classes, host: u8, to: [u8; 4], ingress: u32) -> (u32, i32) {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[17] = 46;
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&[10, 1, 0, host]);
    frame[30..34].copy_from_slice(&to);
    let mut buffer: Buffer = [0; 48];
    buffer[INGRESS_IFINDEX] = ingress;
    let run = run_at_tc(classes.classify.as_fd(), &frame, 1, &mut buffer);
    (buffer[PRIORITY], run.action as i32)
}

#[test]
fn lan_packets_get_their_class_while_process_beats() {
    let Some(classes) = classes(0) else { return };
    let priority = |to, ingress| priority(&classes, 1, to, ingress);
    let class = |id| classes.at(classes.place(BundleId(id)).unwrap()).0;
    assert_eq!([5, 6].map(class), [0xfb_0001, 0xfb_0002]);
    assert_eq!(classes.place(BundleId(7)), None);
    assert_eq!(priority([10, 2, 0, 1], LAN), 0, "before the first beat");
    classes.beat();
    assert_eq!(priority([10, 2, 0, 1], LAN), class(5));
    assert_eq!(priority([10, 3, 0, 1], LAN), class(6));
    assert_eq!(priority([10, 4, 0, 1], LAN), 0, "outside");
    assert_eq!(priority([10, 2, 0, 9], LAN), 0, "the box's own");
    assert_eq!(priority([10, 2, 0, 1], 1), 0, "not from the LAN");
    classes.stop_beating();
    assert_eq!(priority([10, 2, 0, 1], LAN), 0, "after a clean stop");
    let expected = ClassifiedCounters { bundles: 2, own: 1, outside: 1, stale: 2, ..none() };
    assert_eq!(classes.classified().unwrap(), expected);
    assert_eq!(classes.departed().unwrap(), DepartedCounters::default());
    // Nothing takes them out again in a trial run.
    assert_eq!([0, 1, 2].map(|place| classes.ledger(place).waiting), [1, 1, 0]);
}

#[test]
fn messages_of_boxes_go_past_all_classes() {
    let Some(mut classes) = classes(0) else { return };
    let ends = [message_end(2, 61476, false), message_end(1, 61475, true)];
    classes.set_own_addresses(&BTreeSet::new()).unwrap();
    classes.sampler.set_messages(&ends.into()).unwrap();
    classes.beat();
    let is_bundled = |frame: Vec<u8>| {
        let mut buffer: Buffer = [0; 48];
        buffer[INGRESS_IFINDEX] = LAN;
        run_at_tc(classes.classify.as_fd(), &frame, 1, &mut buffer);
        buffer[PRIORITY] != 0
    };
    assert!(!is_bundled(between(17, (1, 5000), (9, 61476))));
    assert!(!is_bundled(between(17, (9, 61475), (1, 5000))));
    assert!(is_bundled(between(17, (1, 5000), (9, 443))));
    assert!(is_bundled(between(6, (1, 5000), (9, 61476))));
    assert_eq!(classes.classified().unwrap().own, 2);
}

#[test]
fn router_takes_packets_of_any_device() {
    for takes_own in [false, true] {
        let routed = ClassesOptions { lan: None, takes_own, ..BRIDGED };
        let Some(classes) = classes_of(routed) else { return };
        classes.beat();
        // From a host, from another one through the WAN port itself, and from this machine.
        let taken = [LAN, WAN, 0].map(|from| priority(&classes, 1, [10, 2, 0, 1], from) != 0);
        assert_eq!(taken, [true, true, takes_own]);
        assert_eq!(priority(&classes, 1, [10, 2, 0, 9], LAN), 0, "to a box");
    }
    let one_card = ClassesOptions { lan: Some(WAN), ..BRIDGED };
    let Some(classes) = classes_of(one_card) else { return };
    classes.beat();
    let taken = [LAN, WAN, 0].map(|from| priority(&classes, 1, [10, 2, 0, 1], from) != 0);
    assert_eq!(taken, [false, true, false]);
}

#[test]
fn full_qdisc_refuses_only_bundles_beyond_their_share() {
    let Some(classes) = classes_for(0, 0) else { return };
    let action = |to| classified(&classes, 1, to, LAN).1;
    assert_eq!(action([10, 2, 0, 1]), TCX_NEXT, "before the first beat");
    classes.beat();
    classes.set_share(3);
    // Nothing leaves in a trial run, and drops are not seen.
    let of_one: Vec<i32> = (0..5).map(|_| action([10, 2, 0, 1])).collect();
    assert_eq!(of_one, [TCX_NEXT, TCX_NEXT, TCX_NEXT, TCX_DROP, TCX_DROP]);
    assert_eq!([(); 3].map(|()| action([10, 3, 0, 1])), [TCX_NEXT; 3], "another bundle");
    assert_eq!([action([10, 4, 0, 1]), action([10, 2, 0, 9])], [TCX_NEXT; 2]);
    let expected =
        ClassifiedCounters { bundles: 6, full: 2, own: 1, outside: 1, stale: 1, ..none() };
    assert_eq!(classes.classified().unwrap(), expected);
}

#[test]
fn full_bundle_refuses_its_longest_flows() {
    let Some(classes) = classes_for(1024, u32::MAX) else { return };
    let [five, six] = [5, 6].map(|id| classes.place(BundleId(id)).unwrap());
    let admits = |host, to| {
        classes.beat();
        classified(&classes, host, to, LAN).1 == TCX_NEXT
    };
    // 60 bytes a packet; none leaves in a trial run.
    let fill = |host| (0..200).filter(|_| admits(host, [10, 2, 0, 1])).count();
    assert_eq!(fill(1), 200, "no limit yet");
    let limit = 18_000;
    classes.set_limit(five, Some(ByteCount::new(limit)));
    classes.set_limit(six, Some(ByteCount::new(limit)));
    let held: Vec<usize> = (2..42).map(fill).collect();
    // A few may share a leaf.
    assert!(held[0] > 30 && held.iter().filter(|it| **it > 0).count() > 30, "{held:?}");
    let all = 60 * (200 + held.iter().sum::<usize>());
    assert!(all <= limit as usize + 60 * held.len(), "{all} bytes, {held:?}");
    assert!(!admits(1, [10, 2, 0, 1]), "one that has more than its part");
    assert!((60..65).any(|host| admits(host, [10, 2, 0, 1])), "one that has nothing");
    assert!(admits(1, [10, 3, 0, 1]), "another bundle");
    let counters = classes.classified().unwrap();
    assert_eq!(counters.full, 0);
    assert_eq!(classes.ledger(five).waiting, counters.bundles - 1, "refused packets do not wait");
    // So low that more waits: an empty leaf takes one packet.
    classes.set_limit(five, Some(ByteCount::new(60)));
    let three = |host| [(); 3].map(|()| admits(host, [10, 2, 0, 1]));
    assert!((70..75).any(|host| three(host) == [true, false, false]));
    // A leaf that was refused for some seconds may have a wrong count.
    assert!(!admits(1, [10, 2, 0, 1]));
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!([(); 2].map(|()| admits(1, [10, 2, 0, 1])), [true, false]);
    classes.set_limit(five, None);
    assert!(admits(1, [10, 2, 0, 1]));
}

#[test]
fn attaches_before_existing_egress_programs() {
    if skip_without(Need::Root) || skip_without(Need::QueueSampling) {
        return;
    }
    let apart = std::thread::spawn(|| {
        // SAFETY: a plain number.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        // The loopback device is the first of a network namespace.
        let options = ClassesOptions {
            lan: Some(1),
            takes_own: false,
            is_bare: false,
            wan: 1,
            leaves: 0,
            most_packets: 1,
            most_bytes: 1,
            stale_after: STALE_AFTER,
        };
        let [before, it] = [options; 2].map(|options| Classes::attach(options).unwrap());
        let ids = [&it, &before].map(|of| program::info(of.classify.as_fd()).unwrap().id);
        assert_eq!(tcx_ids(1, true).unwrap(), ids);
        assert_eq!(tcx_programs(1, true).unwrap(), [CLASSIFY; 2]);
    });
    apart.join().unwrap();
}

#[test]
fn leaves_per_bundle_shrink_and_never_overlap() {
    let leaves = [0, 1, 4, 5, 62, 1000, MAX_BUNDLES].map(Classes::leaves);
    assert_eq!(leaves, [1024, 1024, 1024, 512, 64, 4, 4]);
    let Some(classes) = classes(Classes::leaves(1000)) else { return };
    assert_eq!(classes.room(), MAX_BUNDLES);
    let all: Vec<_> = (0..classes.room()).map(|place| classes.at(place)).collect();
    assert!(all.windows(2).all(|two| two[0].1.end == two[1].1.start && two[0].0 < two[1].0));
    assert!(all[0].1.start > all[MAX_BUNDLES - 1].0);
    assert!(all[MAX_BUNDLES - 1].1.end < QDISC + (1 << 16));
}

#[test]
fn flows_spread_over_leaves_of_their_bundle() {
    let Some(classes) = classes(64) else { return };
    classes.beat();
    let mut used = std::collections::BTreeSet::new();
    for (id, to) in [(5, [10, 2, 0, 1]), (6, [10, 3, 0, 1])] {
        let (_, leaves) = classes.at(classes.place(BundleId(id)).unwrap());
        assert_eq!(leaves.len(), 64);
        for host in 0..50 {
            let class = priority(&classes, host, to, LAN);
            assert!(leaves.contains(&class), "{class:#x} of {leaves:#x?}");
            assert_eq!(priority(&classes, host, to, LAN), class, "a flow keeps its leaf");
            used.insert(class);
        }
    }
    assert!(used.len() > 40, "{}", used.len());
}
