use super::*;
use crate::packet::Ecn;
use crate::testing::qdisc::{Dropped, TestPacket};
use alloc::vec::Vec;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + ms(millis)
}

fn params() -> PieParams {
    PieParams::from_spec(&Spec::named("pie").with_defaults(DISCIPLINE.params)).unwrap()
}

fn of_one(probability: f64) -> u64 {
    (probability * ONE as f64) as u64
}

/// A controller at `probability` that sees delays of `delay_ms` now and `old_ms` before.
fn law(probability: f64, delay_ms: u64, old_ms: u64) -> Law {
    Law {
        probability: of_one(probability),
        delay: ms(delay_ms),
        delay_old: ms(old_ms),
        allowance: Duration::ZERO,
        calm: Duration::ZERO,
        accumulated: 0,
    }
}

/// The probability after an update.
fn updated(mut law: Law) -> f64 {
    law.update(&params());
    law.probability as f64 / ONE as f64
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
}

#[test]
fn step_is_the_scaled_formula_of_rfc_8033() {
    // 0.125 Hz x (35 - 15) ms + 1.25 Hz x (35 - 25) ms = 0.015.
    for (probability, scale) in [
        (0.2, 1.0),
        (0.1001, 1.0),
        (0.0999, 2.0),
        (0.01001, 2.0),
        (0.00999, 8.0),
        (0.000_999, 32.0),
        (0.000_099_9, 128.0),
        (0.000_009_99, 512.0),
        (0.000_000_999, 2048.0),
        (0.0, 2048.0),
    ] {
        assert_near(updated(law(probability, 35, 25)), probability + 0.015 / scale);
    }
    // Falling, though above the target: 0.125 x 5 ms - 1.25 x 20 ms = -0.024375.
    assert_near(updated(law(0.5, 20, 40)), 0.5 - 0.024_375);
}

#[test]
fn step_adds_at_most_2_percent_from_10() {
    // 0.125 x 185 ms + 1.25 x 200 ms = 0.273125.
    assert_near(updated(law(0.1, 200, 0)), 0.12);
    assert_near(updated(law(0.05, 200, 0)), 0.05 + 0.273_125 / 2.0);
    assert_near(updated(law(0.99, 200, 0)), 1.0);
}

#[test]
fn probability_decays_by_a_64th_to_zero() {
    assert_near(updated(law(0.5, 0, 0)), (0.5 - 0.125 * 0.015) * 63.0 / 64.0);
    let still = PieParams { alpha: 0, beta: 0, ..params() };
    let mut law = law(1.0, 0, 0);
    for _ in 0..3000 {
        law.update(&still);
    }
    assert_eq!(law.probability, 0);
    assert_eq!(law.allowance, still.burst);
}

/// Feeds `pie` a packet every `arrival_us` and dequeues one every `departure_us`. Calls `each`
/// after every arrival with the time and whether it was dropped.
fn load(
    pie: &mut Pie<TestPacket>,
    arrival_us: u64,
    departure_us: u64,
    secs: u64,
    mut each: impl FnMut(&Pie<TestPacket>, Timestamp, bool),
) {
    let mut next_departure = departure_us;
    for now_us in (0..secs * 1_000_000).step_by(arrival_us as usize) {
        let at = |us: u64| Timestamp::from_nanos(us * 1000);
        while next_departure <= now_us {
            pie.dequeue(at(next_departure), &mut Dropped::default());
            next_departure += departure_us;
        }
        let mut drops = Dropped::default();
        pie.enqueue(at(now_us), TestPacket::default(), &mut drops);
        each(pie, at(now_us), !drops.packets.is_empty());
    }
}

#[test]
fn constant_overload_is_held_at_target_by_drops() {
    for derandomize in [false, true] {
        let mut pie = Pie::new(PieParams { derandomize, seed: 1, ..params() });
        let (mut arrivals, mut dropped, mut delay, mut probability) = (0, 0, 0.0, 0.0);
        // Three arrivals for two departures: a third is too much.
        load(&mut pie, 80, 120, 40, |pie, now, is_dropped| {
            if now >= at(10_000) {
                arrivals += 1;
                dropped += u32::from(is_dropped);
                delay += pie.law.delay.as_secs_f64();
                probability += pie.law.probability as f64 / ONE as f64;
            }
        });
        let mean = |sum: f64| sum / f64::from(arrivals);
        let share = mean(f64::from(dropped));
        assert!((share - 1.0 / 3.0).abs() < 0.005, "{share}");
        let delay = mean(delay);
        assert!((0.0135..0.0165).contains(&delay), "{delay}");
        // Derandomised, every other arrival is safe: 1 + 1 / p = 3 arrivals for a drop.
        let expected = if derandomize { 0.5 } else { 1.0 / 3.0 };
        let probability = mean(probability);
        assert!((probability - expected).abs() < 0.05, "{probability}");
    }
}

#[test]
fn burst_passes_and_longer_overload_is_dropped() {
    let first_drop = |burst| {
        let limit = Limit::Packets(100_000);
        let mut pie = Pie::new(PieParams { limit, burst, derandomize: false, ..params() });
        let mut first = None;
        load(&mut pie, 100, 1000, 5, |_, now, is_dropped| {
            first = first.or(is_dropped.then_some(now));
        });
        first.expect("a tenfold overload")
    };
    assert!(first_drop(ms(0)) < at(150));
    assert!(first_drop(ms(150)) >= at(150));
    assert!(first_drop(ms(1000)) >= at(1000));
}

#[test]
fn a_link_that_keeps_up_loses_nothing() {
    let mut pie = Pie::new(PieParams { burst: Duration::ZERO, ..params() });
    load(&mut pie, 1000, 999, 30, |_, now, is_dropped| assert!(!is_dropped, "{now:?}"));
    assert_eq!(pie.law.probability, 0);
}

/// A queue of 10 packets under a controller at `probability` and 20 ms.
fn standing(params: PieParams, probability: f64) -> Pie<TestPacket> {
    let mut pie = Pie::new(params);
    for _ in 0..10 {
        pie.enqueue(at(0), TestPacket::default(), &mut Dropped::default());
    }
    pie.law = law(probability, 20, 20);
    pie
}

/// Which of `arrivals` packets with the field `ecn` were marked or dropped.
fn given_up(pie: &mut Pie<TestPacket>, ecn: Ecn, arrivals: u64) -> (Vec<u64>, Dropped) {
    let (mut chosen, mut drops) = (Vec::new(), Dropped::default());
    for sequence in 0..arrivals {
        let before = drops.packets.len() + drops.marks.len();
        pie.enqueue(at(0), TestPacket { sequence, ecn, ..TestPacket::default() }, &mut drops);
        if drops.packets.len() + drops.marks.len() > before {
            chosen.push(sequence);
        }
    }
    (chosen, drops)
}

#[test]
fn derandomised_drops_are_neither_close_nor_far_apart() {
    let limit = Limit::Packets(1_000_000);
    let gaps = |derandomize| {
        let params = PieParams { derandomize, limit, ..params() };
        let (chosen, _) = given_up(&mut standing(params, 0.1), Ecn::NotEct, 50_000);
        let gaps: Vec<u64> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        (*gaps.iter().min().unwrap(), *gaps.iter().max().unwrap())
    };
    let (closest, farthest) = gaps(true);
    // Nine tenths are the first sum of 0.85 or more, 85 tenths the first of 8.5.
    assert_eq!(closest, 9);
    assert!(farthest <= 85, "{farthest}");
    let (closest, farthest) = gaps(false);
    assert!(closest == 1 && farthest > 60, "{closest} to {farthest}");
}

#[test]
fn packets_are_marked_below_threshold_and_dropped_above() {
    let params = PieParams { ecn: true, ..params() };
    for (probability, ecn, is_marked) in [
        (0.05, Ecn::Ect0, true),
        (0.05, Ecn::Ect1, true),
        (0.05, Ecn::NotEct, false),
        (0.11, Ecn::Ect0, false),
    ] {
        let (chosen, drops) = given_up(&mut standing(params, probability), ecn, 900);
        let (marks, dropped) = (drops.marks.len(), drops.packets.len());
        assert!(chosen.len() > 10 && (marks == 0) != (dropped == 0));
        assert_eq!(marks > 0, is_marked, "{probability} {ecn:?}");
        let mut reasons = drops.reasons().into_iter().chain(drops.marks);
        assert!(reasons.all(|reason| reason == DropReason::Early));
    }
    let (_, drops) =
        given_up(&mut standing(PieParams { ecn: false, ..params }, 0.05), Ecn::Ect0, 900);
    assert!(drops.marks.is_empty() && !drops.packets.is_empty());
}

#[test]
fn small_delay_or_short_queue_protects_arrivals() {
    let random = || Streams::new(1).stream("pie");
    let params = PieParams { derandomize: false, ..params() };
    let of = |bytes, packets| Backlog { bytes: ByteCount::new(bytes), packets };
    let full = of(2 * MTU, 2);
    let gives_up = |mut law: Law, waiting| {
        let mut random = random();
        (0..200).any(|_| law.gives_up(&params, waiting, || random.bits()))
    };
    assert!(gives_up(law(0.19, 8, 8), full));
    assert!(!gives_up(law(0.19, 7, 7), full));
    assert!(gives_up(law(0.21, 7, 7), full));
    assert!(!gives_up(law(1.0, 20, 20), of(2 * MTU - 1, 2)));
    assert!(!gives_up(Law { allowance: ms(1), ..law(1.0, 20, 20) }, full));
}

#[test]
fn ns3_last_update_and_two_packets_decide_safety() {
    let params = PieParams { derandomize: false, as_ns3: true, ..params() };
    let gives_up = |mut law: Law, packets| {
        let mut random = Streams::new(1).stream("pie");
        let waiting = Backlog { bytes: ByteCount::new(100), packets };
        (0..200).any(|_| law.gives_up(&params, waiting, || random.bits()))
    };
    assert!(gives_up(law(0.19, 7, 8), 3));
    assert!(!gives_up(law(0.19, 8, 7), 3));
    assert!(!gives_up(law(1.0, 20, 20), 2));
}

#[test]
fn ns3_burst_keeps_probability_zero_until_calm() {
    let params = PieParams { as_ns3: true, ..params() };
    let mut law = Law { delay: ms(40), delay_old: ms(40), ..Law::new(&params) };
    (0..10).for_each(|_| law.update(&params));
    assert_eq!((law.probability, law.allowance), (0, Duration::ZERO));
    law.update(&params);
    assert!(law.probability > 0);
    law = Law { delay: ms(0), delay_old: ms(0), probability: 0, ..law };
    (0..100).for_each(|_| law.update(&params));
    assert_eq!(law.allowance, Duration::ZERO);
    law.update(&params);
    assert_eq!(law.allowance, params.burst);
    let mut decaying = Law { probability: ONE / 2, allowance: ms(0), ..law };
    decaying.update(&PieParams { alpha: 0, ..params });
    assert_eq!(decaying.probability, ONE / 2 - ONE / 100);
}

#[test]
fn idle_updates_catch_up_with_a_timer() {
    for (probability, delay) in [(0.7, 0), (0.7, 40), (0.000_01, 16)] {
        let [mut often, mut once] = [(); 2].map(|()| standing(params(), probability));
        often.law.delay = ms(delay);
        once.law.delay = ms(delay);
        (0..2000).for_each(|step| often.update(at(step * 15)));
        once.update(at(1999 * 15));
        assert_eq!((often.law, often.updates), (once.law, once.updates));
    }
}

#[test]
fn a_call_after_ages_takes_no_ages() {
    let mut pie = standing(params(), 0.5);
    assert!(pie.dequeue(Timestamp::MAX, &mut Dropped::default()).is_some());
    assert!(pie.dequeue(Timestamp::MAX, &mut Dropped::default()).is_some());
    assert_eq!(pie.law.probability, ONE);
}

#[test]
fn the_seed_decides_which_packets_go() {
    let chosen =
        |seed| given_up(&mut standing(PieParams { seed, ..params() }, 0.1), Ecn::NotEct, 900).0;
    assert_eq!(chosen(1), chosen(1));
    assert_ne!(chosen(1), chosen(2));
}

#[test]
fn only_ns3_sets_up_its_draws() {
    let draws = |as_ns3| Pie::<TestPacket>::new(PieParams { as_ns3, ..params() }).ns3;
    assert!(draws(true).is_some() && draws(false).is_none());
}
