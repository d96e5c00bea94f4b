//! Packets with repeated sampled bytes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::*;
use crate::bundle::{BlockVersion, SampleBlock, SamplingKey};
use crate::packet::frames::{V4, v6};

const KEY: SamplingKey = SamplingKey([7; 16]);
const RTT: Duration = Duration::from_millis(50);
/// 96 Mbit/s of full frames: 400 packets a round trip, hence epochs of 64.
const GAP: Duration = Duration::from_micros(125);
const FULL: ByteCount = ByteCount::new(1514);

/// A bundle on a path without loss and queue, whose boundaries are all reported.
struct Path {
    control: Control,
    departed: DepartureCounters,
    now: Timestamp,
    ticked_at: Timestamp,
    left: u64,
    reports: VecDeque<(Timestamp, u64, Report)>,
    reported: u64,
    matched: u64,
}

impl Path {
    fn new() -> Self {
        let cc = crate::cc::build(&fixed("cwnd", "600000B"), SUPPLIED).unwrap();
        let control = Control::new(SendboxConfig::default(), cc);
        let now = Timestamp::from_nanos(1_000_000_000);
        let reports = VecDeque::new();
        let departed = DepartureCounters::default();
        Self { control, departed, now, ticked_at: now, left: 0, reports, reported: 0, matched: 0 }
    }

    /// Sends a packet with this hash, then processes all events before the next one.
    fn send(&mut self, hash: u64) {
        self.left += 1;
        let size = self.control.epoch_size();
        if self.control.on_departures(&self.departed.count(self.now, FULL, mark(hash, self.left))) {
            let report = Report {
                hash,
                received_at: self.now + RTT / 2,
                received_bytes: FULL * self.left,
                received_packets: self.left,
                received_ce: 0,
                epoch_size: size,
            };
            self.reports.push_back((self.now + RTT, self.left, report));
        }
        self.now += GAP;
        self.take_reports();
        if self.now.saturating_since(self.ticked_at) >= TICK {
            self.ticked_at = self.now;
            self.control.on_tick(self.now, Backlog { packets: 1, bytes: FULL });
        }
    }

    fn take_reports(&mut self) {
        while let Some((at, identity, report)) = self.reports.front().copied() {
            if at > self.now {
                break;
            }
            self.reports.pop_front();
            self.reported += 1;
            // One report in ten is lost.
            if self.reported.is_multiple_of(10) {
                continue;
            }
            if let Some(epoch) = self.control.on_report(self.now, &report) {
                assert_eq!(epoch.identity, identity, "the departure of another packet");
                assert_eq!(epoch.rtt, RTT);
                self.matched += 1;
            }
        }
    }

    fn send_for(&mut self, time: Duration, mut hash: impl FnMut(u64) -> u64) {
        let end = self.now + time;
        while self.now < end {
            self.send(hash(self.left));
        }
    }
}

/// UDP with a checksum, and always the same payload.
fn datagram() -> Vec<u8> {
    let mut payload = alloc::vec![0; 1480];
    payload[..8].copy_from_slice(&[0x82, 0x35, 0, 9, 0x05, 0xc8, 0xbe, 0xef]);
    payload
}

/// The hashes of a flow of equal datagrams that differ only in the IPv4 identification.
fn numbered_hashes() -> Vec<u64> {
    let payload = datagram();
    let hash = |id| {
        let frame = V4 { id, protocol: 17, payload: &payload, ..V4::default() }.frame();
        SampleBlock::from_frame(BlockVersion::V1, &frame).unwrap().hash(&KEY)
    };
    (0..=u16::MAX).map(hash).collect()
}

/// Hashes that never repeat.
fn unique(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(20)
}

#[test]
fn a_flow_whose_hashes_come_again_stays_matched() {
    let hashes = numbered_hashes();
    // Repeated in order, as identifications are, and at random, as checksums are.
    let in_turn = |number| number;
    let at_random = |number: usize| unique(number as u64) as usize;
    for choose in [in_turn, at_random] {
        let mut path = Path::new();
        for number in 0..200_000 {
            path.send(hashes[choose(number) % hashes.len()]);
        }
        assert_eq!(path.control.epoch_size().packets(), 64);
        let share = path.matched as f64 / (path.reported as f64 * 0.9);
        assert!(share >= 0.95, "{} of {} reports matched", path.matched, path.reported);
        assert!(path.control.rate().is_some());
    }
}

#[test]
fn control_is_given_up_over_indistinguishable_packets() {
    // The fewer boundaries a hash makes, the further the epoch size has to shrink.
    for zeros in [0, 1, 3, 6, 30] {
        let mut path = Path::new();
        path.send_for(Duration::from_secs(2), unique);
        assert!(path.control.rate().is_some());
        let equal = 0x5bd1_e995_0000_0000 | 1 << zeros;
        path.send_for(Duration::from_secs(1), |_| equal);
        assert!(path.control.rate().is_some(), "{zeros}: frozen");
        path.send_for(Duration::from_secs(4), |_| equal);
        let Decision { rate, state, reason, .. } = path.control.decision();
        assert_eq!((rate, state), (None, "no_reports"), "{zeros}");
        assert_eq!(reason, "packets are too similar to match reports to them", "{zeros}");
        path.send_for(Duration::from_secs(2), unique);
        assert_eq!(path.control.decision().state, "constant", "{zeros}");
        assert!(path.control.rate().is_some(), "{zeros}");
    }
}

#[test]
fn equal_packets_among_others_do_not_end_control() {
    let frame = v6(0, 17, &datagram());
    let equal = SampleBlock::from_frame(BlockVersion::V1, &frame).unwrap().hash(&KEY);
    let mut path = Path::new();
    path.send_for(Duration::from_secs(10), |number| {
        if number.is_multiple_of(2) { equal } else { unique(number) }
    });
    assert_eq!(path.control.decision().state, "constant");
    assert!(path.control.rate().is_some());
}
