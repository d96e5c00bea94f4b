use super::*;
use crate::qdisc::{Fifo, discipline};
use crate::testing::qdisc::{Dropped, TestPacket};
use crate::units::Limit;
use alloc::vec::Vec;
use proptest::prelude::*;

const MBIT_96: Rate = Rate::from_mbit_per_sec(96);

type Subject = Shaper<TestPacket, Fifo<TestPacket>>;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros * 1000)
}

/// A shaper with `packets` waiting since time 0.
fn filled(rate: Option<Rate>, packets: u64) -> Subject {
    let mut shaper = Shaper::new(Fifo::new(Limit::Packets(packets)), ShaperParams::default());
    shaper.set_rate(Timestamp::ZERO, rate);
    for sequence in 0..packets {
        let packet = TestPacket { sequence, ..TestPacket::default() };
        shaper.enqueue(Timestamp::ZERO, packet, &mut Dropped::default());
    }
    shaper
}

/// All packets that may leave at `now`; their number.
fn drain(shaper: &mut Subject, now: Timestamp) -> u64 {
    core::iter::from_fn(|| shaper.dequeue(now, &mut Dropped::default())).count() as u64
}

#[test]
fn departures_are_paced_to_absolute_times_without_drift() {
    let mut shaper = filled(Some(MBIT_96), 100_000);
    let mut departures = 0;
    let mut now = Timestamp::ZERO;
    while let Some(timer) = shaper.next_timer() {
        now = now.max(timer);
        assert!(shaper.dequeue(now, &mut Dropped::default()).is_some());
        departures += 1;
    }
    assert_eq!(departures, 100_000);
    // 99,999 packets of 1514 bytes lie between the first departure and the last: 126166.67 ns
    // each, and each instant rounded up on its own.
    assert_eq!(now, Timestamp::from_nanos((99_999_u64 * 1514 * 8 * 1000).div_ceil(96)));
}

#[test]
fn each_packet_is_charged_with_its_overhead() {
    let mut shaper = filled(Some(MBIT_96), 1000);
    shaper.set_overhead(ByteCount::new(60));
    let mut now = Timestamp::ZERO;
    while let Some(timer) = shaper.next_timer() {
        now = now.max(timer);
        assert!(shaper.dequeue(now, &mut Dropped::default()).is_some());
    }
    assert_eq!(now, Timestamp::from_nanos((999_u64 * (1514 + 60) * 8 * 1000).div_ceil(96)));
}

#[test]
fn thousand_rate_changes_per_second_send_their_sum() {
    // Where Linux' TBF sends 105 and 152 Mbit/s at 850 and 4750 changes a second.
    for changes_per_sec in [100, 850, 4750, 50_000] {
        let mut shaper = filled(Some(MBIT_96), 10_000);
        let (mut packets, mut changes) = (0, 0);
        // The host looks every 20 us, and sends and changes the due packets and rates.
        for now in (0..1_000_000).step_by(20) {
            while changes * 1_000_000 <= now * changes_per_sec {
                shaper.set_rate(at(now), Some(MBIT_96));
                changes += 1;
            }
            packets += drain(&mut shaper, at(now));
        }
        let sent = ByteCount::new(packets * 1514).per(Duration::from_secs(1)).unwrap();
        // One packet more or less is 0.012 Mbit/s.
        assert!((95.98..=96.02).contains(&sent.as_mbit_per_sec_f64()), "{sent}");
    }
}

proptest! {
    #[test]
    fn any_rates_send_their_time_weighted_mean(
        steps in prop::collection::vec((0u64..400_000_000, 1u64..300_000), 500..1000)
    ) {
        let mut shaper = filled(Some(Rate::ZERO), 100_000);
        let (mut now, mut packets, mut bits) = (Timestamp::ZERO, 0, 0.0);
        for (rate, nanos) in steps {
            shaper.set_rate(now, Some(Rate::from_bits_per_sec(rate)));
            let end = now + Duration::from_nanos(nanos);
            while let Some(timer) = shaper.next_timer().filter(|timer| *timer <= end) {
                now = now.max(timer);
                packets += shaper.dequeue(now, &mut Dropped::default()).map_or(0, |_| 1);
            }
            now = end;
            bits += rate as f64 * nanos as f64 / 1e9;
        }
        let ahead = packets as f64 * 1514.0 * 8.0 - bits;
        // A punctual host leaves at most the packet under way.
        prop_assert!((-1.0..=1514.0 * 8.0).contains(&ahead), "{ahead} bits ahead");
    }
}

#[test]
fn new_rate_moves_the_next_departure_at_once() {
    let mut shaper = filled(Some(Rate::from_mbit_per_sec(1)), 10);
    assert_eq!(drain(&mut shaper, Timestamp::ZERO), 1);
    assert_eq!(shaper.next_timer(), Some(at(12_112)));
    // Half of the packet is paid for after 6056 us, the other half takes a tenth of that.
    shaper.set_rate(at(6056), Some(Rate::from_mbit_per_sec(10)));
    assert_eq!(shaper.next_timer(), Some(Timestamp::from_nanos(6_661_600)));
    shaper.set_rate(at(6056), Some(Rate::ZERO));
    assert_eq!(shaper.next_timer(), None);
    assert_eq!(drain(&mut shaper, at(1_000_000)), 0);
    shaper.set_rate(at(1_000_000), Some(Rate::from_mbit_per_sec(1)));
    assert_eq!(shaper.next_timer(), Some(at(1_006_056)));
}

#[test]
fn a_host_that_comes_late_loses_no_throughput() {
    let mut shaper = filled(Some(MBIT_96), 20_000);
    let packets: u64 = (0..=333).map(|wake| drain(&mut shaper, at(wake * 3000))).sum();
    // 999 ms at 96 Mbit/s and the packet at time 0.
    assert_eq!(packets, 999_000 * 12 / 1514 + 1);
}

#[test]
fn stalled_host_catches_up_one_burst_only() {
    let mut shaper = filled(Some(MBIT_96), 20_000);
    assert_eq!(drain(&mut shaper, Timestamp::ZERO), 1);
    // 5 ms at 96 Mbit/s, and the packet that credit 0 lets through.
    assert_eq!(drain(&mut shaper, at(1_000_000)), 60_000 / 1514 + 1);
}

#[test]
fn idle_time_earns_two_packets_whatever_its_length() {
    let mut shaper = filled(Some(MBIT_96), 1);
    assert_eq!(drain(&mut shaper, Timestamp::ZERO), 1);
    let now = at(60_000_000);
    let mut sent = 0;
    for _ in 0..5 {
        shaper.enqueue(now, TestPacket::default(), &mut Dropped::default());
        sent += drain(&mut shaper, now);
    }
    assert_eq!(sent, 2);
}

#[test]
fn each_departure_says_how_late_it_was() {
    let mut shaper = filled(Some(Rate::from_mbit_per_sec(1)), 10);
    drain(&mut shaper, Timestamp::ZERO);
    let mut lateness = |now| {
        let packet = shaper.dequeue(at(now), &mut Dropped::default());
        packet.map(|_| shaper.lateness().as_micros())
    };
    assert_eq!(lateness(12_112), Some(0));
    assert_eq!(lateness(24_223), None);
    assert_eq!(lateness(24_224 + 77), Some(77));
    // Late for two packets: the bucket holds the credit for the second.
    assert_eq!(lateness(36_336 + 13_112), Some(13_112));
    assert_eq!(lateness(36_336 + 13_112), Some(1000));
    assert_eq!(lateness(36_336 + 13_112), None);
}

#[test]
fn late_packets_are_measured_against_their_own_times() {
    let mut shaper = filled(Some(MBIT_96), 10);
    drain(&mut shaper, Timestamp::ZERO);
    let lateness: Vec<u128> = core::iter::from_fn(|| {
        shaper.dequeue(at(500), &mut Dropped::default())?;
        Some(shaper.lateness().as_micros())
    })
    .collect();
    // Due at 126.2, 252.3 and 378.5 us.
    assert_eq!(lateness, [373, 247, 121]);
}

#[test]
fn unshaped_packets_leave_at_once_without_credit() {
    let mut shaper = filled(None, 10);
    assert_eq!(shaper.next_timer(), Some(Timestamp::ZERO));
    for _ in 0..5 {
        shaper.dequeue(at(10), &mut Dropped::default()).unwrap();
    }
    assert_eq!(shaper.lateness(), Duration::ZERO);
    shaper.set_rate(at(1_000_000), Some(MBIT_96));
    assert_eq!(drain(&mut shaper, at(1_000_000)), 1);
    assert_eq!(shaper.backlog().packets, 4);
}

#[test]
fn the_largest_rates_and_times_overflow_nothing() {
    let params = ShaperParams { burst: Burst::Time(Duration::MAX), ..Default::default() };
    let mut shaper = Shaper::new(Fifo::new(Limit::Packets(9)), params);
    let mut drops = Dropped::default();
    for (now, rate) in [(0, u64::MAX), (u64::MAX, u64::MAX), (5, 1), (u64::MAX, 0)] {
        shaper.set_rate(Timestamp::from_nanos(now), Some(Rate::from_bits_per_sec(rate)));
        shaper.enqueue(Timestamp::from_nanos(now), TestPacket::default(), &mut drops);
        let _ = shaper.dequeue(Timestamp::MAX, &mut drops);
        let _ = shaper.next_timer();
    }
}

#[test]
fn the_default_is_that_of_the_registry() {
    let spec = Spec::named("shaper");
    let spec = spec.with_defaults(discipline(&spec).unwrap().params);
    assert_eq!(ShaperParams::from_spec(&spec), Ok(ShaperParams::default()));
}

#[test]
fn rates_and_bursts_out_of_range_are_refused() {
    for (key, value) in [
        ("rate", "0bit/s"),
        ("rate", "2Tbit/s"),
        ("burst", "2s"),
        ("burst", "1GB"),
        ("burst", "5"),
        ("bucket", "100B"),
    ] {
        let spec = Spec::named("shaper")
            .with("rate", crate::spec::Value::Text("1Mbit/s".into()))
            .with(key, crate::spec::Value::Text(value.into()));
        let error = crate::qdisc::build::<TestPacket>(&spec).err().expect("refused");
        assert_eq!((error.key.as_str(), error.value.trim_matches('"')), (key, value));
    }
}

/// Packets that a queue of 100 ms under a shaper takes before it drops one, at `now`.
fn room(shaper: &mut Subject, now: Timestamp) -> u64 {
    let mut drops = Dropped::default();
    while drops.packets.is_empty() {
        shaper.enqueue(now, TestPacket::default(), &mut drops);
    }
    shaper.backlog().packets
}

fn of_100_ms(rate: Option<Rate>) -> Subject {
    let limit = Limit::Time(Duration::from_millis(100));
    let mut shaper = Shaper::new(Fifo::new(limit), ShaperParams::default());
    shaper.set_rate(Timestamp::ZERO, rate);
    shaper
}

#[test]
fn time_limit_follows_shaper_rate_not_its_swings() {
    // 792 packets in 100 ms at 96 Mbit/s. A tenth of the rate for 10 ms takes 4.5 %.
    let mut shaper = of_100_ms(Some(MBIT_96));
    shaper.set_rate(at(1_000_000), Some(Rate::from_bits_per_sec(9_600_000)));
    shaper.set_rate(at(1_010_000), Some(MBIT_96));
    assert_eq!(room(&mut shaper, at(1_010_000)), 756);
    // A rate that stays: 79 packets, whether or not it is set again and again.
    for times in [1, 100] {
        let mut shaper = of_100_ms(Some(MBIT_96));
        for step in 0..times {
            shaper.set_rate(at(step * 10_000), Some(Rate::from_bits_per_sec(9_600_000)));
        }
        assert!((79..=84).contains(&room(&mut shaper, at(1_000_000))), "{times}");
    }
}

#[test]
fn time_limit_uses_lowest_nested_rate_from_start() {
    let mut shaper = of_100_ms(None);
    assert_eq!(room(&mut shaper, at(0)), 1000);
    let mut shaper = of_100_ms(None);
    shaper.set_rate(at(1_000_000), Some(MBIT_96));
    shaper.set_service_rate(Some(Rate::from_mbit_per_sec(48)));
    assert_eq!(room(&mut shaper, at(1_000_000)), 396);
    let mut shaper = of_100_ms(None);
    shaper.set_rate(at(1_000_000), Some(MBIT_96));
    assert_eq!(room(&mut shaper, at(1_000_000)), 792);
}
