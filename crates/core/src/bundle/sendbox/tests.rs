use alloc::collections::VecDeque;

use super::super::protocol::keys::PresharedKey;
use super::super::receivebox::{Receivebox, Seen};
use super::super::{BlockVersion, BlockVersions, BoundaryMark, DepartureCounters};
use super::*;
use crate::bundle::control::SUPPLIED;
use crate::bundle::protocol::peer::PeerEvent;
use crate::bundle::protocol::scope::{DifferenceKind, Scope};
use crate::cc;
use crate::spec::{Spec, Value};

const BUNDLE: BundleId = BundleId(7);
const LEN: ByteCount = ByteCount::new(1500);
const MS: Duration = Duration::from_millis(1);
/// One-way delay of the path.
const DELAY: Duration = Duration::from_millis(10);

fn ring(byte: u8) -> KeyRing {
    KeyRing::new(PresharedKey::new([byte; 32]), None)
}

/// How a datapath reports departures.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    /// Each packet.
    Packets,
    /// Boundaries, and the counters every 5 ms, as a datapath in the kernel does.
    Boundaries,
}

/// Both boxes on a path of 12 Mbit/s with a packet each millisecond.
struct Bench {
    now: Timestamp,
    told: Told,
    sendbox: Sendbox,
    receivebox: Receivebox,
    departed: DepartureCounters,
    /// Arrival times of packets (hashes) and of messages to either box.
    packets: VecDeque<(Timestamp, u64)>,
    to_receivebox: VecDeque<(Timestamp, Vec<u8>)>,
    to_sendbox: VecDeque<(Timestamp, Vec<u8>)>,
    received: u64,
    epochs: Vec<Epoch>,
    events: Vec<PeerEvent>,
    drawn: u64,
    are_messages_lost: bool,
    /// Nothing leaves, and nothing is queued.
    is_still: bool,
    /// The path drops longer datagrams to the receivebox.
    longest: usize,
    /// Emulates an older receivebox, which refuses this message type and later ones, and sends none.
    first_unknown: u8,
}

impl Bench {
    fn new(config: SendboxConfig, key: u8, told: Told) -> Self {
        let now = Timestamp::from_nanos(1_000_000_000);
        let spec = Spec::named("const").with("cwnd", Value::Text("30000B".into()));
        let cc = cc::build(&spec, SUPPLIED).unwrap();
        Self {
            now,
            told,
            sendbox: Sendbox::new(config, cc, BUNDLE, &ring(1), [1, 2], now),
            receivebox: Receivebox::new(BUNDLE, &ring(key), 3, 4, now),
            departed: DepartureCounters::default(),
            packets: VecDeque::new(),
            to_receivebox: VecDeque::new(),
            to_sendbox: VecDeque::new(),
            received: 0,
            epochs: Vec::new(),
            events: Vec::new(),
            drawn: 10,
            are_messages_lost: false,
            is_still: false,
            longest: usize::MAX,
            first_unknown: u8::MAX,
        }
    }

    fn run(&mut self, ms: u32) {
        for _ in 0..ms {
            self.now += MS;
            if !self.is_still {
                self.depart();
            }
            self.arrive();
            let backlog = Backlog { packets: 1, bytes: LEN };
            let backlog = if self.is_still { Backlog::default() } else { backlog };
            if self.sendbox.next_timer() <= self.now {
                self.sendbox.on_timer(self.now, backlog);
            }
            let mut datagram = Vec::new();
            while self.sendbox.poll(self.now, &mut datagram) {
                if datagram[5] >= self.first_unknown || datagram.len() > self.longest {
                    continue;
                }
                self.to_receivebox.push_back((self.now + DELAY, datagram.clone()));
            }
            while self.receivebox.poll(self.now, &mut datagram) {
                if !self.are_messages_lost {
                    self.to_sendbox.push_back((self.now + DELAY, datagram.clone()));
                }
            }
            self.events.extend(core::iter::from_fn(|| self.sendbox.take_event()));
        }
    }

    fn depart(&mut self) {
        let hash = (self.packets_sent() + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        let is_boundary = self.sendbox.epoch_size().is_boundary(hash);
        let mark = is_boundary.then_some(BoundaryMark { hash, identity: hash });
        let departures = self.departed.count(self.now, LEN, mark);
        let is_polled = self.now.as_nanos().is_multiple_of(5_000_000);
        if self.told == Told::Packets || is_boundary || is_polled {
            self.sendbox.on_departures(&departures);
        }
        self.packets.push_back((self.now + DELAY, hash));
    }

    fn packets_sent(&self) -> u64 {
        { self.departed }.count(self.now, LEN, None).packets - 1
    }

    fn arrive(&mut self) {
        let now = self.now;
        let mut draw = || {
            self.drawn += 1;
            self.drawn
        };
        while let Some((_, hash)) = self.packets.pop_front_if(|(at, _)| *at <= now) {
            self.received += 1;
            let seen = Seen {
                hash,
                received_at: now,
                received_bytes: LEN * self.received,
                received_packets: self.received,
                received_ce: 0,
            };
            if self.receivebox.epoch_size().is_some_and(|size| size.is_boundary(hash)) {
                self.receivebox.on_boundary(now, &seen);
            }
        }
        while let Some((_, datagram)) = self.to_receivebox.pop_front_if(|(at, _)| *at <= now) {
            let _ = self.receivebox.on_datagram(now, &datagram, &mut draw);
        }
        while let Some((_, datagram)) = self.to_sendbox.pop_front_if(|(at, _)| *at <= now) {
            let _ = self.sendbox.on_datagram(now, &datagram, &mut draw);
            self.epochs.extend(core::iter::from_fn(|| self.sendbox.take_epoch()));
        }
    }
}

#[test]
fn boxes_find_each_other_and_shape_the_bundle() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    assert_eq!(bench.sendbox.decision().reason, "no authentic message");
    bench.run(1000);
    assert_eq!(bench.events, [PeerEvent::Alive]);
    assert!(bench.sendbox.rate().is_some());
    assert_eq!(bench.receivebox.peer().state(), Some(BoxState::Shaping));
    assert!(bench.epochs.iter().all(|epoch| epoch.rtt == DELAY * 2));
    bench.sendbox.set_handed_back(Some("the WAN port takes no packets"));
    let decision = bench.sendbox.take_decision().unwrap();
    assert_eq!((decision.state, decision.rate), ("handed_back", None));
    assert_eq!(bench.sendbox.take_decision(), None, "nothing has happened since");
    bench.run(200);
    assert_eq!(bench.receivebox.peer().state(), Some(BoxState::Measuring));
}

#[test]
fn boundaries_and_counters_tell_what_every_packet_tells() {
    let [every, few] = [Told::Packets, Told::Boundaries].map(|told| {
        let mut bench = Bench::new(SendboxConfig::default(), 1, told);
        bench.run(5000);
        bench
    });
    assert_eq!(every.sendbox.counters().packets_sent, few.sendbox.counters().packets_sent);
    let [one, other] = [&every, &few].map(|bench| bench.epochs.len() as f64);
    assert!((one / other - 1.0).abs() < 0.05, "{one} and {other} epochs");
    let [one, other] =
        [&every, &few].map(|bench| bench.sendbox.rate().unwrap().as_mbit_per_sec_f64());
    assert!((one / other - 1.0).abs() < 0.05, "{one} and {other} Mbit/s");
    let rates = |bench: &Bench| -> Vec<_> {
        bench.epochs.iter().rev().take(20).map(|epoch| (epoch.rtt, epoch.delivery_rate)).collect()
    };
    assert_eq!(rates(&every), rates(&few));
}

#[test]
fn boundaries_are_expected_once_the_receivebox_samples() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    (bench.longest, bench.are_messages_lost) = (0, true);
    bench.run(50);
    // The receivebox starts later and answers before it asks. Its sendbox knows it first and names a size too early.
    bench.receivebox = Receivebox::new(BUNDLE, &ring(1), 5, 6, bench.now);
    bench.longest = usize::MAX;
    bench.run(30);
    bench.are_messages_lost = false;
    bench.run(3000);
    bench.is_still = true;
    bench.run(200);
    let counters = bench.sendbox.counters();
    assert!(counters.boundaries_matched > 100, "{counters:?}");
    assert_eq!(counters.boundaries_sent, counters.boundaries_matched);
    // 15 boundaries left before the sendbox heard the receivebox, and as many until the receivebox used the size.
    assert!(counters.boundaries_unexpected > 20, "{counters:?}");
}

#[test]
fn a_dry_run_measures_and_shapes_nothing() {
    let config = SendboxConfig { dry_run: true, ..SendboxConfig::default() };
    let mut bench = Bench::new(config, 1, Told::Packets);
    bench.run(1000);
    assert_eq!(bench.sendbox.rate(), None);
    assert!(bench.sendbox.decision().rate.is_some(), "the rate that would be");
    assert_eq!(bench.receivebox.peer().state(), Some(BoxState::DryRun));
}

#[test]
fn wrong_keys_at_the_peer_are_the_reason() {
    let mut bench = Bench::new(SendboxConfig::default(), 2, Told::Packets);
    bench.run(2000);
    assert_eq!(bench.sendbox.decision().reason, KEYS_DIFFER);
    assert_eq!(bench.events, [PeerEvent::Unverified]);
    assert_eq!(bench.receivebox.alarm(), Some(KEYS_DIFFER));
    bench.receivebox.restart(&ring(1), 5, 6, bench.now);
    bench.run(1000);
    assert_ne!(bench.sendbox.decision().reason, KEYS_DIFFER);
    assert!(bench.sendbox.rate().is_some());
}

#[test]
fn report_sent_with_farewell_does_not_replace_it() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.run(1000);
    bench.events.clear();
    let hash = 0;
    let received = bench.received + 1;
    let seen = Seen {
        hash,
        received_at: bench.now,
        received_bytes: LEN * received,
        received_packets: received,
        received_ce: 0,
    };
    bench.receivebox.on_boundary(bench.now, &seen);
    bench.receivebox.stop();
    let mut datagram = Vec::new();
    while bench.receivebox.poll(bench.now, &mut datagram) {
        bench.to_sendbox.push_back((bench.now + DELAY, datagram.clone()));
    }
    bench.are_messages_lost = true;
    bench.run(15);
    assert_eq!(bench.events, [PeerEvent::Stopping]);
    assert_eq!(bench.sendbox.rate(), None);
    assert_eq!(bench.sendbox.decision().reason, PEER_STOPPED);
}

#[test]
fn silence_timeout_grows_with_the_round_trip() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.run(1000);
    bench.events.clear();
    bench.are_messages_lost = true;
    bench.run(480);
    assert!(bench.events.is_empty());
    bench.run(150);
    assert_eq!(bench.events, [PeerEvent::Silent]);
    assert_eq!(bench.sendbox.rate(), None);
    bench.are_messages_lost = false;
    bench.run(200);
    assert_eq!(bench.events, [PeerEvent::Silent, PeerEvent::Alive]);
}

fn scope(to: &[&str]) -> Scope {
    let prefixes =
        |texts: &[&str]| -> Vec<_> { texts.iter().map(|text| text.parse().unwrap()).collect() };
    Scope::new(prefixes(to), prefixes(&["10.1.1.0/24"]), [], [])
}

/// Number of scope differences that each box knows.
fn differences(bench: &Bench) -> [Option<usize>; 2] {
    [bench.sendbox.differences(), bench.receivebox.differences()].map(|found| found.map(<[_]>::len))
}

#[test]
fn differing_boxes_report_it_until_one_is_fixed() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.sendbox.set_scope(bench.now, scope(&["10.1.2.0/24", "10.1.4.0/24"]));
    bench.receivebox.set_scope(bench.now, scope(&["10.1.2.0/24"]));
    assert_eq!(differences(&bench), [None, None]);
    bench.run(1000);
    assert_eq!(differences(&bench), [Some(1), Some(1)]);
    let found = &bench.sendbox.differences().unwrap()[0];
    assert!(matches!(found.kind, DifferenceKind::NotCounted(_)), "{found:?}");
    assert_eq!(found.prefixes, ["10.1.4.0/24".parse().unwrap()]);
    assert_eq!(bench.events, [PeerEvent::Alive, PeerEvent::Scope]);
    // New keys begin another session. Both boxes exchange their scopes again, with no new event about them.
    bench.events.clear();
    bench.receivebox.restart(&ring(1), 5, 6, bench.now);
    bench.run(1000);
    assert_eq!(differences(&bench), [Some(1), Some(1)]);
    assert_eq!(bench.events, [PeerEvent::Restarted]);
    bench.receivebox.set_scope(bench.now, scope(&["10.1.4.0/24", "10.1.2.0/24"]));
    bench.run(1000);
    assert_eq!(differences(&bench), [Some(0), Some(0)]);
    assert_eq!(bench.events, [PeerEvent::Restarted, PeerEvent::Scope]);
    assert!(bench.sendbox.rate().is_some());
}

#[test]
fn receivebox_without_scopes_works_as_before() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.first_unknown = 6;
    bench.sendbox.set_scope(bench.now, scope(&["10.1.2.0/24"]));
    bench.run(20_000);
    assert_eq!(bench.events, [PeerEvent::Alive]);
    assert_eq!(differences(&bench), [None, None]);
    assert!(bench.sendbox.rate().is_some());
}

#[test]
fn boxes_agree_on_block_version_and_survive_restart() {
    let (all, two) = (BlockVersions::ALL, BlockVersions::of(BlockVersion::V2));
    for (mine, theirs, version) in [
        (all, all, BlockVersion::V1),
        (all, two, BlockVersion::V2),
        (two, all, BlockVersion::V2),
        (two, two, BlockVersion::V2),
    ] {
        let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
        bench.sendbox.set_versions(bench.now, mine);
        bench.receivebox.set_versions(bench.now, theirs);
        for session in [50, 60] {
            bench.run(3000);
            let both = [bench.sendbox.block_version(), bench.receivebox.block_version()];
            assert_eq!(both, [Some(version); 2]);
            assert!(bench.sendbox.rate().is_some());
            bench.sendbox.restart(&ring(1), [session, session + 1], bench.now);
        }
    }
}

#[test]
fn older_receivebox_uses_version_1_or_gives_reason() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.first_unknown = 7;
    bench.sendbox.set_versions(bench.now, BlockVersions::ALL);
    bench.run(3000);
    assert_eq!(bench.sendbox.block_version(), Some(BlockVersion::V1));
    assert!(bench.sendbox.rate().is_some());
    bench.sendbox.set_versions(bench.now, BlockVersions::of(BlockVersion::V2));
    bench.run(3000);
    assert_eq!(bench.sendbox.block_version(), None);
    assert_eq!(bench.sendbox.decision().reason, NO_COMMON_VERSION);
}

#[test]
fn receivebox_sends_no_reports_to_older_sendbox() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.receivebox.set_versions(bench.now, BlockVersions::of(BlockVersion::V2));
    bench.run(3000);
    assert_eq!(bench.receivebox.counters().reports, 0);
    assert_eq!(bench.receivebox.alarm(), Some(NO_COMMON_VERSION));
    assert_eq!(bench.sendbox.rate(), None);
}

#[test]
fn idle_bundle_rests_and_wakes_with_a_packet() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.sendbox.offer_rest(bench.now);
    bench.receivebox.offer_rest(bench.now);
    bench.run(2000);
    let matched = bench.epochs.len();
    assert!(matched > 0);
    bench.is_still = true;
    bench.run(4900);
    assert!(!bench.sendbox.is_resting());
    bench.run(4000);
    assert!(bench.sendbox.is_resting());
    assert_eq!(bench.sendbox.peer().state(), Some(BoxState::Resting));
    assert_eq!(bench.receivebox.peer().state(), Some(BoxState::Resting));
    let before = bench.sendbox.message_bytes();
    bench.run(60_000);
    // Each box sends one message a second: 42 bytes and as many of headers.
    let messages = (bench.sendbox.message_bytes() - before).as_u64() / 84;
    assert!((118..=122).contains(&messages), "{messages} messages in a minute");
    bench.is_still = false;
    bench.run(30);
    assert!(!bench.sendbox.is_resting());
    assert_eq!(bench.sendbox.peer().state(), Some(BoxState::Watching));
    bench.run(2000);
    assert!(bench.epochs.len() > matched + 10, "{} epochs", bench.epochs.len());
    assert_eq!(bench.events, [PeerEvent::Alive], "no peer seemed silent");
    assert_eq!(bench.sendbox.counters().reports_unmatched, 0);
}

#[test]
fn bundle_rests_only_if_both_support_it() {
    for rests in [false, true] {
        let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
        bench.sendbox.offer_rest(bench.now);
        bench.receivebox.set_versions(bench.now, BlockVersions::ALL);
        if rests {
            bench.receivebox.offer_rest(bench.now);
        }
        bench.is_still = true;
        bench.run(10_000);
        assert_eq!(bench.sendbox.is_resting(), rests);
        bench.are_messages_lost = true;
        bench.run(if rests { 3900 } else { 390 });
        assert_eq!(bench.events, [PeerEvent::Alive], "{rests}");
        bench.run(if rests { 1200 } else { 210 });
        assert_eq!(bench.events, [PeerEvent::Alive, PeerEvent::Silent], "{rests}");
    }
}

#[test]
fn path_mtu_is_found_again_in_each_session() {
    let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
    bench.longest = 1420 - 28;
    bench.sendbox.look_for_mtu(bench.now, 1500, false);
    bench.run(5000);
    assert_eq!(bench.sendbox.path_mtu(), None, "a receivebox that answers no probes gets none");
    bench.receivebox.offer_probes(bench.now);
    bench.run(60_000);
    assert_eq!(bench.sendbox.path_mtu(), Some(PathMtu { bytes: 1420, tried: 1500 }));
    bench.longest = usize::MAX;
    bench.receivebox.restart(&ring(1), 5, 6, bench.now);
    bench.run(3000);
    assert_eq!(bench.sendbox.path_mtu(), Some(PathMtu { bytes: 1500, tried: 1500 }));
    assert_eq!(bench.events, [PeerEvent::Alive, PeerEvent::Restarted]);
}

#[test]
fn rates_include_overhead_and_counters_do_not() {
    let [bare, outer] = [0, 100].map(|bytes| {
        let mut bench = Bench::new(SendboxConfig::default(), 1, Told::Packets);
        bench.sendbox.set_overhead(Overhead { bytes });
        bench.run(3000);
        let load = bench.sendbox.load(Backlog { packets: 2, bytes: LEN * 2 });
        (bench.sendbox.sent(), bench.sendbox.delivered(), bench.sendbox.counters(), load.backlog)
    });
    let packets = bare.2.packets_sent;
    assert_eq!((packets, outer.2.packets_sent), (3000, 3000));
    assert_eq!([bare.2.bytes_sent, outer.2.bytes_sent], [LEN * packets; 2]);
    assert_eq!([bare.0, outer.0], [1500, 1600].map(|len| ByteCount::new(len * packets)));
    assert_eq!([bare.3, outer.3], [3000, 3200].map(ByteCount::new));
    // Both windows are full, and fewer packets fit if they are longer.
    let per_packet = |delivered: ByteCount, len| delivered.as_u64() / len;
    assert_eq!(per_packet(bare.1, 1500), per_packet(outer.1, 1600));
}
