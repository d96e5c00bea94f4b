//! The arithmetic in C beside that of core.

use std::os::fd::AsFd;

use forebay_core::cc::law::hystart::HyStart;
use forebay_core::cc::law::{self, SlowStart, Terms};
use forebay_core::cc::{
    self, ALGORITHMS, CongestionControl, CongestionEvent, Measurement, RttSample,
};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Duration, Timestamp};

use super::super::slot::slot_start_law;
use super::native::MSS;
use super::{Random, run, with_programs};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Law {
    growth: u32,
    cap: u32,
    beta: u16,
    flags: u16,
    trip_lost: u16,
    trip_ce: u16,
    trip_rtt_us: u32,
    report_us: u32,
}

impl Law {
    fn new(terms: &Terms) -> Self {
        let slot = slot_start_law(terms);
        Self {
            growth: slot.growth,
            cap: slot.cap,
            beta: slot.beta,
            flags: slot.flags,
            trip_lost: terms.trip_lost,
            trip_ce: terms.trip_ce,
            trip_rtt_us: terms.trip_rtt_us,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Watch {
    round_end: u32,
    round_min: u32,
    base: u32,
    mark: u32,
    train_us: u32,
    samples: u8,
    conservative: u8,
    is_found: u8,
    unused: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct LawCase {
    law: Law,
    watch: Watch,
    /// cwnd, ssthresh, credit.
    window: [u32; 3],
    /// acked, una, nxt, rtt_us, now_us, ack_delay_us.
    ack: [u32; 6],
    has_advanced: u8,
    is_filled: u8,
    is_paced: u8,
    unused: u8,
    ends: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct DecisionCase {
    law: Law,
    cwnd: u32,
    known: u32,
    wanted: u32,
    /// ssthresh, prior_cwnd, delivered, sent.
    recovery: [u32; 4],
    in_flight: u32,
    acked: u32,
    has_advanced: u32,
    has_lost: u32,
    /// samples, rtt_min_us, lost, ce.
    interval: [u32; 4],
    decided: u32,
    reduced: u32,
    window: u32,
    tripped: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct FallCase {
    /// cwnd, ssthresh, credit.
    restarted: [u32; 3],
    underused: [u32; 3],
    timeouts: u32,
    used: u32,
    aggregate: u32,
    falls: u32,
    pacing_rate: u64,
    ack_delay_us: u32,
    unused: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct CurveCase {
    estimate: u64,
    began_us: u64,
    cwnd: u32,
    remainder: u32,
    w_max: u32,
    before_loss: u32,
    k: u32,
    origin: u32,
    min_rtt_us: u32,
    kind: u32,
    now_us: u64,
    event: u32,
    acked: u32,
    mss: u32,
    ssthresh: u32,
}

const _: () = assert!(size_of::<Law>() == 24 && size_of::<Watch>() == 24);

fn random_terms(random: &mut Random) -> Terms {
    let kinds =
        [SlowStart::Hold, SlowStart::Standard, SlowStart::HyStart, SlowStart::HyStartPlusPlus];
    Terms {
        growth: random.of_bits(30),
        cap: if random.below(4) == 0 { random.of_bits(12) } else { law::SEGMENTS_MAX },
        slow_start: kinds[random.below(4) as usize],
        beta: random.below(1025) as u16,
        trip_rtt_us: random.of_bits(20),
        trip_lost: random.of_bits(16) as u16,
        trip_ce: random.of_bits(16) as u16,
    }
}

/// A connection of random length with a path that gets slower and faster.
struct Walk {
    una: u32,
    now_us: u32,
    rtt_us: u32,
}

impl Walk {
    fn new(random: &mut Random) -> Self {
        let rtt_us = 20_000 + random.of_bits(17);
        Self { una: random.next() as u32, now_us: random.next() as u32, rtt_us }
    }

    fn ack(&mut self, random: &mut Random, cwnd: u32) -> law::Ack {
        let acked = random.below(4);
        let has_advanced = acked > 0 && random.below(8) > 0;
        self.una = self.una.wrapping_add(if has_advanced { acked } else { 0 });
        self.now_us = self.now_us.wrapping_add(random.of_bits(12));
        self.rtt_us = match random.below(64) {
            0..=2 => self.rtt_us + self.rtt_us / 3,
            3 => self.rtt_us - self.rtt_us / 8,
            _ => self.rtt_us,
        }
        .clamp(1, 1 << 24);
        let rtt_us = if random.below(8) > 0 { self.rtt_us + random.of_bits(8) } else { 0 };
        law::Ack {
            acked,
            una: self.una,
            nxt: self.una.wrapping_add(cwnd),
            has_advanced,
            is_filled: random.below(8) > 0,
            rtt_us,
            now_us: self.now_us,
            ack_delay_us: random.of_bits(10),
            is_paced: random.below(4) == 0,
        }
    }
}

#[test]
fn the_law_in_c_is_that_of_core_over_random_acknowledgements() {
    with_programs(|programs| {
        let mut random = Random(1);
        let (mut ended, mut conservative, mut grown, mut found) = (0, 0, 0, 0);
        for _ in 0..400 {
            let mut walk = Walk::new(&mut random);
            let mut terms = random_terms(&mut random);
            let mut window = law::Window::new(1 + random.of_bits(6), walk.una, walk.now_us);
            if random.below(4) == 0 {
                window.ssthresh = 2 + random.of_bits(12);
            }
            for step in 0..150 {
                if step == 100 {
                    terms = random_terms(&mut random);
                    window.hystart = HyStart::new(walk.una, walk.now_us);
                }
                let ack = walk.ack(&mut random, window.cwnd);
                let mut case = law_case(&terms, &window, &ack);
                run(programs.check_law.as_fd(), &mut case);
                let before = window.cwnd;
                let ends = window.on_ack(&terms, &ack);
                let expected = LawCase { ends: u32::from(ends), ..law_case(&terms, &window, &ack) };
                assert_eq!(case, expected);
                ended += u32::from(ends);
                conservative += u32::from(window.hystart.is_conservative());
                grown += u32::from(window.cwnd > before);
                found += u32::from(window.hystart.is_found);
            }
        }
        // The cases are of use only if everything happens.
        assert!(ended > 20 && conservative > 100, "{ended} {conservative}");
        assert!(grown > 1000 && found > 100, "{grown} {found}");
    });
}

fn law_case(terms: &Terms, window: &law::Window, ack: &law::Ack) -> LawCase {
    let HyStart { round_end, round_min, base, mark, train_us, samples, conservative, is_found } =
        window.hystart;
    LawCase {
        law: Law::new(terms),
        watch: Watch {
            round_end,
            round_min,
            base,
            mark,
            train_us,
            samples,
            conservative,
            is_found: u8::from(is_found),
            unused: 0,
        },
        window: [window.cwnd, window.ssthresh, window.credit],
        ack: [ack.acked, ack.una, ack.nxt, ack.rtt_us, ack.now_us, ack.ack_delay_us],
        has_advanced: u8::from(ack.has_advanced),
        is_filled: u8::from(ack.is_filled),
        is_paced: u8::from(ack.is_paced),
        ..LawCase::default()
    }
}

#[test]
fn decisions_reductions_and_recoveries_in_c_are_those_of_core() {
    with_programs(|programs| {
        let mut random = Random(2);
        let mut trips = [0; 3];
        for _ in 0..20_000 {
            let terms = random_terms(&mut random);
            let [cwnd, known, wanted] = [(); 3].map(|()| random.of_bits(21));
            let recovery = law::Recovery {
                ssthresh: 2 + random.of_bits(12),
                prior_cwnd: random.of_bits(13),
                delivered: random.of_bits(13),
                sent: random.of_bits(13),
            };
            let mut case = DecisionCase {
                law: Law::new(&terms),
                cwnd,
                known,
                wanted,
                recovery: [
                    recovery.ssthresh,
                    recovery.prior_cwnd,
                    recovery.delivered,
                    recovery.sent,
                ],
                in_flight: random.of_bits(13),
                acked: 1 + random.of_bits(6),
                has_advanced: random.below(2),
                has_lost: random.below(2),
                interval: [
                    random.below(16),
                    random.of_bits(20),
                    random.of_bits(16),
                    random.of_bits(16),
                ],
                ..DecisionCase::default()
            };
            let [samples, rtt_min_us, lost_count, ce] = case.interval;
            let interval = law::Interval { samples, rtt_min_us, lost: lost_count, ce };
            let tripped = terms.tripped(&interval);
            trips = std::array::from_fn(|wire| trips[wire] + u32::from(tripped[wire]));
            let (advanced, lost) = (case.has_advanced > 0, case.has_lost > 0);
            let expected = DecisionCase {
                decided: terms.decided(cwnd, known, wanted),
                reduced: terms.reduced(cwnd),
                window: recovery.window(case.in_flight, case.acked, advanced, lost),
                tripped: tripped.iter().rev().fold(0, |bits, trips| bits << 1 | u32::from(*trips)),
                ..case
            };
            run(programs.check_decision.as_fd(), &mut case);
            assert_eq!(case, expected);
        }
        assert!(trips.iter().all(|count| *count > 1000), "{trips:?}");
    });
}

#[test]
fn windows_that_are_not_used_fall_in_c_as_in_core() {
    with_programs(|programs| {
        let mut random = Random(4);
        for _ in 0..5_000 {
            let [restarted, underused] =
                [(); 2].map(|()| [random.of_bits(20), random.of_bits(31), random.of_bits(30)]);
            let mut case = FallCase {
                restarted,
                underused,
                timeouts: random.of_bits(8),
                used: random.of_bits(16),
                aggregate: random.of_bits(18),
                pacing_rate: random.next() >> random.below(64),
                ..FallCase::default()
            };
            let window = |[cwnd, ssthresh, credit]: [u32; 3]| law::Window {
                ssthresh,
                credit,
                ..law::Window::new(cwnd, 0, 0)
            };
            let (mut idle, mut unused) = (window(restarted), window(underused));
            idle.restart(case.timeouts);
            unused.on_underused(case.used);
            let words = |window: &law::Window| [window.cwnd, window.ssthresh, window.credit];
            let expected = FallCase {
                restarted: words(&idle),
                underused: words(&unused),
                falls: u32::from(unused.cwnd < underused[0]),
                ack_delay_us: law::hystart::ack_delay_us(case.aggregate, case.pacing_rate),
                ..case
            };
            run(programs.check_fall.as_fd(), &mut case);
            assert_eq!(case, expected);
        }
    });
}

/// An algorithm of core beside its curve in C, fed the same acknowledgements.
struct Pair {
    core: Box<dyn CongestionControl>,
    curve: CurveCase,
}

impl Pair {
    fn new(name: &str, kind: u32, segments: u64) -> Self {
        let fields = [cc::Field::Rtt];
        assert!(ALGORITHMS.iter().any(|algorithm| algorithm.name == name));
        let mut core = cc::build(&Spec::named(name), &fields).expect("an algorithm");
        let mss = u64::from(MSS);
        core.init(Timestamp::ZERO, ByteCount::new(mss), ByteCount::new(segments * mss));
        let cwnd = segments as u32 * MSS;
        Self { core, curve: CurveCase { cwnd, kind, mss: MSS, ..CurveCase::default() } }
    }

    fn cwnd(&self) -> u64 {
        self.core.send_limits().cwnd.expect("a window").as_u64()
    }

    fn ack(&mut self, program: std::os::fd::BorrowedFd<'_>, now_us: u64, rtt_us: u32, acked: u32) {
        let rtt = Duration::from_micros(u64::from(rtt_us));
        let measurement = Measurement {
            acked: ByteCount::new(u64::from(acked)),
            rtt: Some(RttSample { latest: rtt, min: rtt }),
            ..Measurement::default()
        };
        self.core.on_measurement(Timestamp::from_nanos(now_us * 1000), &measurement);
        let known = self.curve.min_rtt_us;
        self.curve.min_rtt_us = if known == 0 { rtt_us } else { known.min(rtt_us) };
        (self.curve.now_us, self.curve.acked, self.curve.event) = (now_us, acked, 0);
        run(program, &mut self.curve);
    }

    fn lose(&mut self, program: std::os::fd::BorrowedFd<'_>, now_us: u64) {
        let now = Timestamp::from_nanos(now_us * 1000);
        self.core.on_event(now, CongestionEvent::Loss);
        self.core.on_event(now, CongestionEvent::RecoveryEnd);
        self.curve.event = 1;
        run(program, &mut self.curve);
        assert_eq!(self.curve.ssthresh, self.curve.cwnd);
    }
}

#[test]
fn the_curves_in_c_are_those_of_core_segment_by_segment() {
    with_programs(|programs| {
        let program = programs.check_curve.as_fd();
        for (name, kind) in [("newreno", 0), ("cubic", 1)] {
            for (segments, rtt_us) in [(40, 40_000), (800, 100_000), (9, 700)] {
                let mut random = Random(3);
                let mut pair = Pair::new(name, kind, segments);
                let mut now_us = 5_000_000;
                for step in 0..6_000_u32 {
                    if step % 1_500 == 0 {
                        pair.lose(program, now_us);
                    }
                    now_us += u64::from(random.below(2 * rtt_us) / (pair.cwnd() / 1448) as u32);
                    pair.ack(program, now_us, rtt_us + random.of_bits(8), MSS);
                    assert_eq!(u64::from(pair.curve.cwnd), pair.cwnd(), "{name} step {step}");
                }
                assert!(pair.curve.cwnd > MSS, "{:?}", pair.curve);
            }
        }
    });
}

#[test]
fn an_acknowledgement_of_an_eighth_of_a_window_grows_it_as_its_segments_would_within_a_segment() {
    with_programs(|programs| {
        let program = programs.check_curve.as_fd();
        for (name, kind) in [("newreno", 0), ("cubic", 1)] {
            let mut pair = Pair::new(name, kind, 400);
            pair.lose(program, 1_000_000);
            for step in 0..400_u32 {
                let eighth = pair.curve.cwnd / 8;
                pair.ack(program, 1_000_000 + 5_000 * u64::from(step), 40_000, eighth);
                let apart = u64::from(pair.curve.cwnd).abs_diff(pair.cwnd());
                assert!(apart < u64::from(MSS), "{name} step {step}: {apart} bytes apart");
            }
        }
    });
}
