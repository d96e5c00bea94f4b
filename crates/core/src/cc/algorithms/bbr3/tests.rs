mod flows;
mod losses;

use super::*;
use crate::cc::RttSample;

const MSS: ByteCount = ByteCount::new(1000);
/// Fills a path of 10 Mbit/s and 40 ms.
const RATE: Rate = Rate::from_mbit_per_sec(10);
const RTT: Duration = Duration::from_millis(40);
const BDP: ByteCount = ByteCount::new(50_000);

#[test]
fn percents_are_those_of_128_bits() {
    for value in [0, 1, 99, 100, 101, 1 << 40, u64::MAX / 277, u64::MAX / 2, u64::MAX] {
        for share in [2, 50, 99, 100, 125, 277] {
            let exact = u128::from(value) * u128::from(share) / 100;
            assert_eq!(percent(value, share), u64::try_from(exact).unwrap_or(u64::MAX));
        }
    }
}

/// The algorithm, fed with measurements of a round or of parts of one.
struct Fed {
    law: Bbr3,
    now: Timestamp,
    rate: Rate,
    rtt: Duration,
}

impl Fed {
    fn new(rate: Rate, rtt: Duration, seed: u64) -> Self {
        let mut law = Bbr3::new();
        law.set_seed(seed);
        law.init(Timestamp::ZERO, MSS, MSS * 10);
        Self { law, now: Timestamp::ZERO, rate, rtt }
    }

    /// Past startup and drain.
    fn cruising() -> Self {
        let mut fed = Self::new(RATE, RTT, 1);
        fed.rounds(4);
        assert_eq!(fed.law.phase, Bbr3Phase::Cruise);
        fed
    }

    /// Acknowledges a `parts`-th of the bytes that fill the path, in as much of a round trip. `change`
    /// alters the measurement.
    fn part(&mut self, parts: u32, change: impl FnOnce(&mut Measurement)) {
        let full = self.rate.bytes_in(self.rtt);
        let none = ByteCount::ZERO;
        let mut measurement = Measurement {
            interval: self.rtt / parts,
            acked: ByteCount::new(full.as_u64() / u64::from(parts)),
            lost: Some(none),
            rtt: Some(RttSample { latest: self.rtt, min: self.rtt }),
            delivery_rate: Some(self.rate),
            in_flight: Some(full),
            ..Measurement::default()
        };
        change(&mut measurement);
        measurement.delivered = self.law.delivered + measurement.acked;
        measurement.prior_delivered =
            measurement.delivered.saturating_sub(full.max(measurement.acked));
        self.now += measurement.interval;
        self.law.on_measurement(self.now, &measurement);
    }

    fn round(&mut self, change: impl FnOnce(&mut Measurement)) {
        self.part(1, change);
    }

    fn rounds(&mut self, count: u32) {
        (0..count).for_each(|_| self.round(|_| {}));
    }

    /// Rounds until a phase begins; how many.
    fn until(&mut self, phase: Bbr3Phase) -> u32 {
        for round in 0..1000 {
            if self.law.phase == phase {
                return round;
            }
            self.rounds(1);
        }
        panic!("no {phase:?} but {:?}", self.law.phase);
    }

    fn event(&mut self, event: CongestionEvent) {
        self.law.on_event(self.now, event);
    }
}

fn kb(count: u64) -> ByteCount {
    ByteCount::new(1000 * count)
}

fn kbit(count: u64) -> Rate {
    Rate::from_bits_per_sec(1000 * count)
}

fn lose(measurement: &mut Measurement, segments: u64) {
    measurement.lost = Some(MSS * segments);
}

/// With 60 kB in flight, which take a while to drain.
fn lose_of_60_kb(measurement: &mut Measurement, segments: u64) {
    measurement.in_flight = Some(kb(60));
    lose(measurement, segments);
}

/// In up, with 60 kB in flight before.
fn probing() -> Fed {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Up);
    fed.round(|it| it.in_flight = Some(kb(60)));
    assert_eq!(fed.law.phase, Bbr3Phase::Up);
    fed
}

#[test]
fn startup_ends_on_plateau_drain_at_full_path() {
    let mut fed = Fed::new(RATE, RTT, 1);
    for rate in [3, 6, 10, 10, 10] {
        fed.rate = Rate::from_mbit_per_sec(rate);
        fed.round(|it| it.in_flight = Some(BDP * 2));
        assert_eq!(fed.law.phase, Bbr3Phase::Startup);
    }
    fed.round(|it| it.in_flight = Some(BDP * 2));
    assert_eq!((fed.law.phase, fed.law.bw()), (Bbr3Phase::Drain, RATE));
    assert_eq!(fed.law.pacing_rate, kbit(4_950));
    fed.round(|it| it.in_flight = Some(BDP + MSS));
    assert_eq!(fed.law.phase, Bbr3Phase::Drain);
    fed.rounds(1);
    assert!(fed.law.phase.is_probe_bw(), "{:?}", fed.law.phase);
}

#[test]
fn drain_ends_after_three_rounds_whatever_is_inflight() {
    let mut fed = Fed::new(RATE, RTT, 1);
    (0..7).for_each(|_| fed.round(|it| it.in_flight = Some(BDP * 2)));
    assert_eq!(fed.law.phase, Bbr3Phase::Drain, "it began with the fourth");
    fed.round(|it| it.in_flight = Some(BDP * 2));
    assert_eq!(fed.law.phase, Bbr3Phase::Down);
}

#[test]
fn app_limited_rounds_show_no_plateau() {
    let too_little = |it: &mut Measurement| it.app_limited = true;
    let mut fed = Fed::new(RATE, RTT, 1);
    (0..100).for_each(|_| fed.round(too_little));
    assert_eq!(fed.law.phase, Bbr3Phase::Startup);
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Up);
    (0..20).for_each(|_| fed.round(too_little));
    assert_eq!(fed.law.phase, Bbr3Phase::Up);
}

#[test]
fn down_ends_at_full_path_and_leaves_headroom() {
    for (longterm, in_flight, phase) in [
        (UNBOUNDED, BDP, Bbr3Phase::Cruise),
        (UNBOUNDED, BDP + MSS, Bbr3Phase::Down),
        (kb(52), kb(44), Bbr3Phase::Cruise),
        (kb(52), kb(45), Bbr3Phase::Down),
    ] {
        let mut fed = Fed::cruising();
        fed.until(Bbr3Phase::Down);
        fed.law.inflight_longterm = longterm;
        fed.round(|it| it.in_flight = Some(in_flight));
        assert_eq!(fed.law.phase, phase, "{longterm} {in_flight}");
    }
}

#[test]
fn down_that_never_drains_leads_to_next_probe() {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Down);
    let mut rounds = 0;
    while fed.law.phase == Bbr3Phase::Down {
        fed.round(|it| it.in_flight = Some(BDP * 2));
        rounds += 1;
    }
    assert_eq!(fed.law.phase, Bbr3Phase::Refill);
    assert!((49..=50).contains(&rounds), "{rounds}");
}

/// Rounds from one probe's end to the next probe, for 20 seeds: least and most.
fn waits(mbit: u64, rtt_ms: u64) -> (u32, u32) {
    let waits = (0..20).map(|seed| {
        let rtt = Duration::from_millis(rtt_ms);
        let mut fed = Fed::new(Rate::from_mbit_per_sec(mbit), rtt, seed);
        fed.until(Bbr3Phase::Cruise);
        fed.until(Bbr3Phase::Refill)
    });
    waits.fold((u32::MAX, 0), |(least, most), wait| (least.min(wait), most.max(wait)))
}

#[test]
fn flow_probes_after_reno_rounds_or_two_seconds() {
    // 20 and 125 segments fill these paths.
    assert_eq!(waits(8, 20), (19, 20));
    assert_eq!(waits(50, 20), (62, 63));
    // 63 rounds are 6.3 s.
    let (least, most) = waits(10, 100);
    assert!((21..24).contains(&least) && (28..=31).contains(&most), "{least} {most}");
}

#[test]
fn refill_lasts_a_round_and_clears_loss_bounds() {
    let mut fed = Fed::cruising();
    fed.rounds(2);
    fed.round(|it| lose(it, 5));
    fed.rounds(1);
    assert!(fed.law.congestion.inflight_shortterm < UNBOUNDED);
    fed.until(Bbr3Phase::Refill);
    assert_eq!(fed.law.congestion.inflight_shortterm, UNBOUNDED);
    assert_eq!(fed.law.congestion.bw_shortterm, Rate::MAX);
    assert_eq!(fed.law.pacing_rate, kbit(9_900));
    (0..4).for_each(|_| fed.part(5, |_| {}));
    assert_eq!(fed.law.phase, Bbr3Phase::Refill);
    fed.part(5, |_| {});
    assert_eq!(fed.law.phase, Bbr3Phase::Up);
    assert_eq!(fed.law.pacing_rate, kbit(12_375));
}

#[test]
fn up_ends_after_three_rounds_of_small_growth() {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Up);
    fed.rounds(2);
    assert_eq!(fed.law.phase, Bbr3Phase::Up);
    fed.rate = Rate::from_mbit_per_sec(13);
    fed.rounds(3);
    assert_eq!(fed.law.phase, Bbr3Phase::Up, "it grew in the first round");
    fed.rounds(1);
    assert_eq!(fed.law.phase, Bbr3Phase::Down);
}

/// In up, with a bound and a window of 60 kB.
fn bounded() -> Fed {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Refill);
    (fed.law.inflight_longterm, fed.law.cwnd) = (kb(60), kb(60));
    fed.rounds(1);
    assert_eq!((fed.law.phase, fed.law.cwnd), (Bbr3Phase::Up, kb(60)));
    fed
}

#[test]
fn up_continues_while_the_loss_bound_limits_it() {
    let mut fed = bounded();
    for _ in 0..4 * 50 {
        let filled = Some(fed.law.cwnd - MSS);
        fed.part(50, |it| it.in_flight = filled);
        assert_eq!(fed.law.phase, Bbr3Phase::Up);
    }
}

#[test]
fn loss_bound_growth_doubles_each_round() {
    let mut fed = bounded();
    let mut grown = Vec::new();
    for mbit in [13, 17, 22, 28] {
        let (before, cwnd) = (fed.law.inflight_longterm, fed.law.cwnd);
        assert_eq!(cwnd, before, "the window follows");
        fed.round(|it| {
            (it.in_flight, it.acked) = (Some(cwnd - MSS), cwnd);
            it.delivery_rate = Some(Rate::from_mbit_per_sec(mbit));
        });
        grown.push((fed.law.inflight_longterm - before).as_u64() / MSS.as_u64());
    }
    assert_eq!(grown, [1, 2, 4, 8]);
}

#[test]
fn rate_expires_after_two_probe_cycles() {
    let mut fed = Fed::cruising();
    fed.rounds(1);
    fed.rate = Rate::from_mbit_per_sec(5);
    let mut found = Vec::new();
    for cycle in fed.law.cycle_count..fed.law.cycle_count + 2 {
        while fed.law.cycle_count == cycle {
            fed.rounds(1);
            found.push(fed.law.max_bw.value().as_mbit_per_sec_f64());
        }
        fed.rounds(1);
    }
    let lower = found.iter().position(|mbit| *mbit == 5.0).unwrap();
    assert!(found[..lower].iter().all(|mbit| *mbit == 10.0));
    // 50 rounds until the next probe, and that probe forgets the old rate in its first four rounds.
    assert!((52..58).contains(&lower), "{lower}");
}

#[test]
fn app_limited_samples_do_not_lower_the_rate() {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Refill);
    let cycle = fed.law.cycle_count;
    for _ in 0..60 {
        fed.round(|it| {
            (it.app_limited, it.delivery_rate) = (true, Some(Rate::from_mbit_per_sec(1)));
        });
    }
    assert_eq!((fed.law.max_bw.value(), fed.law.cycle_count), (RATE, cycle));
}

#[test]
fn stale_min_rtt_is_probed_with_half_inflight() {
    let mut fed = Fed::cruising();
    fed.rtt = Duration::from_millis(60);
    while fed.law.phase != Bbr3Phase::ProbeRtt {
        fed.rounds(1);
    }
    let began = fed.now;
    assert!((5.0..5.2).contains(&began.as_secs_f64()), "{began:?}");
    assert_eq!(fed.law.cwnd, kb(25));
    assert_eq!(fed.law.delay.min_rtt, Some(RTT), "the minimum of the last 10 s");
    // The rate measured meanwhile says nothing about the path.
    let slow = Some(Rate::from_mbit_per_sec(5));
    while fed.law.phase == Bbr3Phase::ProbeRtt {
        fed.round(|it| (it.in_flight, it.delivery_rate) = (Some(kb(25)), slow));
    }
    let lasted = fed.now.saturating_since(began);
    assert!((200..400).contains(&lasted.as_millis()), "{lasted:?}");
    assert_eq!((fed.law.phase, fed.law.max_bw.value()), (Bbr3Phase::Cruise, RATE));
    assert!(fed.law.cwnd > BDP);
    while fed.now.as_secs_f64() < 10.3 {
        fed.round(|it| it.in_flight = Some(kb(25)));
    }
    assert_eq!(fed.law.delay.min_rtt, Some(fed.rtt));
}

#[test]
fn probe_rtt_before_full_pipe_ends_in_startup() {
    let mut fed = Fed::new(RATE, RTT, 1);
    let too_little = |it: &mut Measurement| (it.app_limited, it.in_flight) = (true, Some(kb(5)));
    while fed.law.phase == Bbr3Phase::Startup {
        fed.round(too_little);
    }
    assert_eq!(fed.law.phase, Bbr3Phase::ProbeRtt);
    (0..10).for_each(|_| fed.round(too_little));
    assert_eq!(fed.law.phase, Bbr3Phase::Startup);
}

#[test]
fn pause_restarts_at_path_rate_skipping_probe_rtt() {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::Up);
    fed.now += Duration::from_secs(6);
    fed.event(CongestionEvent::IdleRestart(20));
    assert_eq!(fed.law.pacing_rate, kbit(9_900));
    fed.rounds(2);
    assert!(fed.law.phase.is_probe_bw(), "{:?}", fed.law.phase);
}

#[test]
fn pause_in_probe_rtt_completes_it() {
    let mut fed = Fed::cruising();
    fed.until(Bbr3Phase::ProbeRtt);
    fed.round(|it| it.in_flight = Some(kb(25)));
    fed.now += Duration::from_millis(300);
    fed.event(CongestionEvent::IdleRestart(1));
    assert_eq!(fed.law.phase, Bbr3Phase::Cruise);
}

#[test]
fn window_is_two_products_plus_aggregation() {
    for (parts, segments) in [(50, 1..=3), (5, 10..=12)] {
        let mut fed = Fed::cruising();
        // The filter forgets acknowledgements of whole rounds after ten rounds.
        fed.now += RTT;
        (0..15 * parts).for_each(|_| fed.part(parts, |_| {}));
        assert_eq!(fed.law.phase, Bbr3Phase::Cruise);
        let more = (fed.law.cwnd - BDP * 2).as_u64() / MSS.as_u64();
        assert!(segments.contains(&more), "{parts} parts: {more}");
    }
}

#[test]
fn path_below_one_packet_still_has_a_window() {
    let mut fed = Fed::new(Rate::from_bits_per_sec(200_000), Duration::from_millis(20), 1);
    fed.rounds(50);
    // Three quanta of two segments each, and up to two segments more in up.
    assert!((MSS * 6..=MSS * 8).contains(&fed.law.cwnd), "{}", fed.law.cwnd);
    fed.until(Bbr3Phase::ProbeRtt);
    assert_eq!(fed.law.cwnd, MSS * 4);
}

#[test]
fn lost_feedback_begins_everything_anew() {
    let mut fed = probing();
    fed.round(|it| lose(it, 2));
    fed.event(CongestionEvent::FeedbackLost);
    assert_eq!((fed.law.phase, fed.law.inflight_longterm), (Bbr3Phase::Startup, UNBOUNDED));
    assert!(!fed.law.full_pipe.has_been);
}
