use super::*;
use crate::packet::Ecn;
use crate::testing::qdisc::{Dropped, TestPacket};
use alloc::vec::Vec;

fn params() -> RedParams {
    RedParams::from_spec(&Spec::named("red").with_defaults(DISCIPLINE.params)).unwrap()
}

fn ratio(share: f64) -> Ratio {
    Ratio::new(share).unwrap()
}

fn real(fixed: u64) -> f64 {
    fixed as f64 / ONE as f64
}

/// One arrival with the field `ecn`; returns the drops and marks.
fn arrive(red: &mut Red<TestPacket>, ecn: Ecn) -> Dropped {
    let mut drops = Dropped::default();
    red.enqueue(Timestamp::ZERO, TestPacket { ecn, ..TestPacket::default() }, &mut drops);
    drops
}

#[test]
fn burst_of_100_raises_average_to_4_88() {
    // Section 6, equation 3: avg = L + 1 + ((1 - w)^(L + 1) - 1) / w.
    let mut law = Law::new(&RedParams { weight: ratio(0.001), ..params() });
    (0..=100).for_each(|length| law.sample(Timestamp::ZERO, length));
    assert!((real(law.average) - 4.88).abs() < 0.01, "{}", real(law.average));
}

#[test]
fn idle_link_decays_as_if_sending_small_packets() {
    // 1000 bytes at 8 Mbit/s are 1 ms.
    let mut law = Law::new(&RedParams { bandwidth: Rate::from_mbit_per_sec(8), ..params() });
    law.average = 10 << FRACTION_BITS;
    law.idle_since = Some(Timestamp::ZERO);
    law.sample(Timestamp::ZERO + Duration::from_millis(100), 0);
    let expected = 10.0 * libm::pow(0.998, 101.0);
    assert!((real(law.average) - expected).abs() < 1e-4, "{}", real(law.average));
    law.sample(Timestamp::MAX, 0);
    assert_eq!(law.average, 0);
}

#[test]
fn probability_is_linear_between_thresholds_and_gentle_above() {
    let params = RedParams { max_p: ratio(0.1), ..params() };
    let at = |gentle, average: f64| {
        let mut law = Law::new(&RedParams { gentle, ..params });
        law.average = (average * ONE as f64) as u64;
        law
    };
    for (average, expected) in
        [(5.0, 0.0), (6.0, 0.01), (10.0, 0.05), (14.0, 0.09), (15.0, 0.1), (22.5, 0.55)]
    {
        let found = real(at(true, average).probability());
        assert!((found - expected).abs() < 1e-6, "{found} at {average}");
    }
    assert_eq!(at(false, 4.99).judge(), None);
    assert_eq!(at(false, 15.0).judge(), Some(DropReason::Forced));
    assert_eq!(at(true, 30.0).judge(), Some(DropReason::Forced));
    assert_ne!(at(true, 29.9).judge(), Some(DropReason::Forced));
}

#[test]
fn drop_distances_are_uniform_up_to_inverse_probability() {
    // No average: 10 packets stand, so that p = 0.1 x 5 / 10 = 1 / 20.
    let mut red =
        Red::new(RedParams { weight: Ratio::ONE, max_p: ratio(0.1), seed: 1, ..params() });
    while red.backlog().packets < 10 {
        arrive(&mut red, Ecn::NotEct);
    }
    let (mut distance, mut counts) = (0, [0_u32; 20]);
    for _ in 0..100_000 {
        distance += 1;
        let drops = arrive(&mut red, Ecn::NotEct);
        if drops.reasons() == [DropReason::Early] {
            counts[distance] += 1;
            distance = 0;
        } else {
            red.dequeue(Timestamp::ZERO, &mut Dropped::default());
        }
    }
    // 1 to 19, ten on average: 10,000 drops, 526 at each distance within 5 standard errors.
    assert!((9_700..10_300).contains(&counts.iter().sum::<u32>()), "{counts:?}");
    assert!(counts[1..].iter().all(|count| (411..641).contains(count)), "{counts:?}");
}

#[test]
fn overload_settles_where_the_average_drops_its_share() {
    let thresholds = RedParams {
        min_th: Limit::Packets(20),
        max_th: Limit::Packets(60),
        max_p: ratio(0.5),
        ..params()
    };
    let mut red = Red::new(thresholds);
    let (mut dropped, mut average) = (0, 0.0);
    for arrival in 0..100_000 {
        // Five arrivals for four departures: a fifth is too much.
        if arrival % 5 != 0 {
            red.dequeue(Timestamp::ZERO, &mut Dropped::default());
        }
        let drops = arrive(&mut red, Ecn::NotEct);
        if arrival >= 20_000 {
            dropped += drops.packets.len();
            average += real(red.law.average) / 80_000.0;
        }
    }
    assert!((15_800..16_200).contains(&dropped), "{dropped}");
    // A fifth is 2 p, so p = 0.1 = 0.5 x (avg - 20) / 40.
    assert!((average - 28.0).abs() < 1.0, "{average}");
}

/// The step of DCTCP at 20 packets.
fn step() -> RedParams {
    let threshold = Limit::Packets(20);
    let limit = Limit::Packets(30);
    RedParams {
        limit,
        min_th: threshold,
        max_th: threshold,
        weight: Ratio::ONE,
        ecn: true,
        ..params()
    }
}

#[test]
fn step_marks_every_arrival_above_it_without_drops() {
    let mut red = Red::new(step());
    let told: Vec<Dropped> = (0..31).map(|_| arrive(&mut red, Ecn::Ect0)).collect();
    for (found, drops) in told.iter().enumerate() {
        let marks: &[DropReason] =
            if (20..30).contains(&found) { &[DropReason::Forced] } else { &[] };
        assert_eq!(drops.marks, marks, "{found} waited");
        let dropped: &[DropReason] = if found < 30 { &[] } else { &[DropReason::Overlimit] };
        assert_eq!(drops.reasons(), dropped, "{found} waited");
    }
    let sent = || red.dequeue(Timestamp::ZERO, &mut Dropped::default());
    let fields: Vec<Ecn> = core::iter::from_fn(sent).map(|packet| packet.ecn).collect();
    assert_eq!(fields, [[Ecn::Ect0; 10], [Ecn::Ect0; 10], [Ecn::Ce; 10]].concat());
    // The average is the queue: an empty queue has no average left.
    assert!(arrive(&mut red, Ecn::Ect0).marks.is_empty());
}

#[test]
fn unmarkable_packets_are_dropped() {
    let filled = |params| {
        let mut red = Red::new(params);
        (0..20).for_each(|_| assert!(arrive(&mut red, Ecn::NotEct).packets.is_empty()));
        red
    };
    let forced = [DropReason::Forced];
    assert_eq!(arrive(&mut filled(step()), Ecn::NotEct).reasons(), forced);
    let hard = RedParams { harddrop: true, ..step() };
    assert_eq!(arrive(&mut filled(hard), Ecn::Ect0).reasons(), forced);
    let deaf = RedParams { ecn: false, ..step() };
    assert_eq!(arrive(&mut filled(deaf), Ecn::Ect0).reasons(), forced);
}

#[test]
fn lengths_are_bytes_where_the_thresholds_are() {
    let threshold = Limit::Bytes(ByteCount::new(3000));
    let mut red = Red::new(RedParams { min_th: threshold, max_th: threshold, ..step() });
    let marks = |red: &mut Red<TestPacket>| arrive(red, Ecn::Ect0).marks.len();
    // Packets of 1514 bytes: the third finds 3028.
    assert_eq!([marks(&mut red), marks(&mut red), marks(&mut red)], [0, 0, 1]);
}

#[test]
fn thresholds_of_mixed_units_or_order_are_refused() {
    for (min_th, max_th) in [("5p", "4p"), ("5p", "15KB"), ("15KB", "20p")] {
        let spec = alloc::format!("red(min_th={min_th}, max_th={max_th})").parse();
        let spec: Spec = spec.unwrap();
        let error = RedParams::from_spec(&spec.with_defaults(DISCIPLINE.params)).unwrap_err();
        assert_eq!(error.key, "max_th");
    }
}

#[test]
fn only_ns3_sets_up_its_draws() {
    let draws = |as_ns3| Red::<TestPacket>::new(RedParams { as_ns3, ..params() }).law.ns3;
    assert!(draws(true).is_some() && draws(false).is_none());
}
