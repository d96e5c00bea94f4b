//! Effects of losses, timeouts and marks, and how they are undone.

use super::*;

/// Losses of one segment each in a round of startup, while the sender is app-limited.
fn lossy_startup(losses: u32, is_recovering: bool) -> Fed {
    let mut fed = Fed::new(RATE, RTT, 1);
    let tell = |it: &mut Measurement| (it.app_limited, it.in_flight) = (true, Some(BDP * 2));
    (0..30).for_each(|_| fed.part(10, tell));
    if is_recovering {
        fed.event(CongestionEvent::Loss);
    }
    for part in 0..12 {
        fed.part(10, |it| {
            tell(it);
            lose(it, u64::from(part < losses));
        });
    }
    fed
}

#[test]
fn six_losses_in_a_recovery_round_end_startup() {
    let mut fed = lossy_startup(7, true);
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Drain, BDP));
    assert!(fed.law.full_pipe.is_now && fed.law.full_pipe.has_been);
    fed.event(CongestionEvent::Spurious);
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Startup, UNBOUNDED));
    assert!(!fed.law.full_pipe.has_been);
    for (losses, is_recovering) in [(5, true), (7, false)] {
        assert_eq!(lossy_startup(losses, is_recovering).law.phase, Bbr3Phase::Startup);
    }
}

#[test]
fn loss_above_two_percent_ends_up_bounding_inflight() {
    let mut fed = probing();
    // 2 % of 61 kB, the next packet counted.
    fed.round(|it| lose(it, 1));
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Up, UNBOUNDED));
    let mut fed = probing();
    fed.round(|it| lose_of_60_kb(it, 2));
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Down, kb(61)));
    assert!(fed.law.cwnd <= kb(61));
    // The remaining losses of the probe give the same result.
    fed.round(|it| {
        it.in_flight = Some(kb(40));
        lose(it, 10);
    });
    assert_eq!(fed.law.inflight_longterm, kb(61));
}

#[test]
fn lost_packet_is_judged_by_inflight_when_sent() {
    let mut fed = probing();
    let left = fed.law.delivered - BDP;
    // Since then packets left with less in flight, including the packets whose acknowledgements show the loss.
    (0..12).for_each(|_| fed.part(10, |it| it.in_flight = Some(kb(20))));
    fed.part(10, |it| {
        it.in_flight = Some(kb(20));
        it.lost_prior_delivered = Some(left);
        lose(it, 2);
    });
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Cruise, kb(61)));
}

#[test]
fn loss_of_an_unknown_packet_bounds_nothing() {
    let mut fed = probing();
    fed.round(|it| {
        it.delivery_rate = None;
        lose_of_60_kb(it, 20);
    });
    assert_eq!(fed.law.inflight_longterm, UNBOUNDED);
}

#[test]
fn a_probe_takes_no_more_than_cubic_would() {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Up);
    fed.round(|it| it.in_flight = Some(kb(10)));
    fed.round(|it| {
        it.in_flight = Some(kb(10));
        lose(it, 1);
    });
    assert_eq!(fed.law.inflight_longterm, kb(35), "0.7 of the product");
}

#[test]
fn app_limited_loss_ends_up_without_a_bound() {
    let mut fed = probing();
    fed.round(|it| {
        it.app_limited = true;
        lose_of_60_kb(it, 2);
    });
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Down, UNBOUNDED));
}

/// A probe that lost too much at 61 kB, and the next one with the same bytes in flight.
fn cautious() -> Fed {
    let mut fed = probing();
    fed.round(|it| lose(it, 2));
    fed.until(Bbr3Phase::Up);
    fed.rounds(1);
    assert_eq!(fed.law.phase, Bbr3Phase::Up, "50 kB are less");
    fed.round(|it| it.in_flight = Some(kb(60)));
    assert_eq!(fed.law.phase, Bbr3Phase::Down);
    fed
}

#[test]
fn probe_after_a_lossy_one_ends_early() {
    let mut fed = cautious();
    // All of it arrives: the one after that begins at once, and stays.
    fed.rounds(1);
    assert_eq!(fed.law.phase, Bbr3Phase::Refill);
    fed.rounds(1);
    for _ in 0..2 {
        fed.round(|it| it.in_flight = Some(kb(60)));
        assert_eq!(fed.law.phase, Bbr3Phase::Up);
    }
}

#[test]
fn lossy_cautious_probe_is_followed_by_usual_wait() {
    let mut fed = cautious();
    let shorter = Duration::from_millis(39);
    fed.round(|it| {
        // This keeps probe_rtt away.
        it.rtt = Some(RttSample { latest: shorter, min: shorter });
        lose_of_60_kb(it, 3);
    });
    assert_eq!(fed.law.phase, Bbr3Phase::Down);
    assert!(fed.until(Bbr3Phase::Refill) > 20);
}

#[test]
fn lossless_inflight_raises_the_loss_bound() {
    let mut fed = Fed::cruising();
    fed.law.inflight_longterm = kb(55);
    fed.round(|it| it.in_flight = Some(kb(57)));
    assert_eq!(fed.law.inflight_longterm, kb(58), "the next packet counts");
}

/// Rates and volumes of a cruise with rounds of this rate, and with some losses.
fn cruise_with_losses(mbit: u64) -> (f64, ByteCount, ByteCount) {
    let mut fed = Fed::cruising();
    fed.rate = Rate::from_mbit_per_sec(mbit);
    fed.rounds(2);
    let before = fed.law.cwnd;
    fed.round(|it| lose(it, 1));
    assert_eq!(fed.law.congestion.bw_shortterm, Rate::MAX, "once a round, at its end");
    fed.rounds(1);
    let rate = fed.law.bw().as_mbit_per_sec_f64();
    (rate, fed.law.congestion.inflight_shortterm, before)
}

#[test]
fn lossy_round_lowers_rate_to_delivery_with_floor() {
    let (rate, inflight, before) = cruise_with_losses(8);
    assert_eq!((rate, inflight), (8.0, ByteCount::new(percent(before.as_u64(), 70))));
    let (rate, ..) = cruise_with_losses(5);
    assert_eq!(rate, 7.0);
}

#[test]
fn probe_losses_do_not_lower_the_cycle_rate() {
    let mut fed = probing();
    fed.round(|it| lose(it, 1));
    fed.rounds(1);
    assert_eq!(fed.law.bw(), RATE);
    assert_eq!(fed.law.congestion.inflight_shortterm, UNBOUNDED);
}

#[test]
fn timeout_leaves_one_segment_until_repaired() {
    let mut fed = Fed::cruising();
    let before = fed.law.cwnd;
    fed.event(CongestionEvent::Rto);
    assert_eq!(fed.law.cwnd, MSS);
    fed.event(CongestionEvent::RecoveryEnd);
    assert_eq!(fed.law.cwnd, before);
    fed.event(CongestionEvent::Rto);
    fed.part(50, |_| {});
    assert_eq!(fed.law.cwnd, MSS * 4);
}

#[test]
fn timeout_repair_restores_the_earlier_rate() {
    let mut fed = Fed::cruising();
    fed.rounds(1);
    let before = fed.law.cwnd;
    fed.event(CongestionEvent::Rto);
    fed.rate = kbit(200);
    fed.rounds(1);
    fed.event(CongestionEvent::RecoveryEnd);
    assert!(fed.law.cwnd.as_u64() >= percent(before.as_u64(), 70), "{}", fed.law.cwnd);
}

#[test]
fn spurious_losses_are_undone_and_restart_the_probe() {
    let mut fed = probing();
    let before = fed.law.cwnd;
    fed.event(CongestionEvent::Loss);
    fed.round(|it| lose_of_60_kb(it, 2));
    assert_eq!(fed.law.phase, Bbr3Phase::Down);
    fed.event(CongestionEvent::Spurious);
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Refill, UNBOUNDED));
    assert!(fed.law.cwnd >= before, "{} {before}", fed.law.cwnd);
    let mut fed = Fed::cruising();
    fed.rounds(1);
    let before = fed.law.cwnd;
    fed.event(CongestionEvent::Rto);
    assert_eq!((fed.law.cwnd, fed.law.congestion.inflight_shortterm), (MSS, before));
    fed.event(CongestionEvent::Spurious);
    assert_eq!((fed.law.cwnd, fed.law.congestion.inflight_shortterm), (before, UNBOUNDED));
}

#[test]
fn mark_is_answered_like_a_single_visible_loss() {
    let mut fed = Fed::new(RATE, RTT, 1);
    fed.rounds(2);
    fed.event(CongestionEvent::EcnCe);
    assert_eq!(fed.law.phase, Bbr3Phase::Drain);
    let mut fed = probing();
    fed.event(CongestionEvent::EcnCe);
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Down, kb(60)));
    fed.event(CongestionEvent::Spurious);
    assert_eq!(fed.law.phase, Bbr3Phase::Down, "a mark is never taken back");
    let mut fed = Fed::cruising();
    fed.rounds(2);
    let before = fed.law.cwnd;
    fed.event(CongestionEvent::EcnCe);
    assert_eq!(fed.law.cwnd, ByteCount::new(percent(before.as_u64(), 70)));
}
