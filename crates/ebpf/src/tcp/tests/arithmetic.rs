//! The arithmetic in C compared with core's.

use std::os::fd::AsFd;

use forebay_core::cc::interim::hystart::HostHyStart;
use forebay_core::cc::interim::{self, SlowStart, Terms};
use forebay_core::cc::{
    self, ALGORITHMS, CongestionControl, CongestionEvent, Measurement, RttSample,
};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Duration, Timestamp};

use super::super::slot::{self, Reporting};
use super::native::MSS;
use super::{Random, run, with_programs};
use crate::skel::Plain;
use crate::skel::tcp_check::types;

/// Terms as `tcp_check.bpf.c` takes them: its skeleton has a `struct law` of its own.
fn law_of(terms: &Terms) -> types::law {
    let law = slot::law(terms, Reporting::default());
    types::law::from_bytes(law.as_bytes()).expect("both skeletons have struct law")
}

fn random_terms(random: &mut Random) -> Terms {
    let kinds =
        [SlowStart::Hold, SlowStart::Standard, SlowStart::HyStart, SlowStart::HyStartPlusPlus];
    Terms {
        growth: random.of_bits(30),
        cap: if random.below(4) == 0 { random.of_bits(12) } else { interim::SEGMENTS_MAX },
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

    fn ack(&mut self, random: &mut Random, cwnd: u32) -> interim::Ack {
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
        interim::Ack {
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
fn c_window_growth_matches_core_on_random_acks() {
    with_programs(|programs| {
        let mut random = Random(1);
        let (mut ended, mut conservative, mut grown, mut found) = (0, 0, 0, 0);
        for _ in 0..400 {
            let mut walk = Walk::new(&mut random);
            let mut terms = random_terms(&mut random);
            let mut window = interim::HostWindow::new(1 + random.of_bits(6), walk.una, walk.now_us);
            if random.below(4) == 0 {
                window.ssthresh = 2 + random.of_bits(12);
            }
            for step in 0..150 {
                if step == 100 {
                    terms = random_terms(&mut random);
                    window.hystart = HostHyStart::new(walk.una, walk.now_us);
                }
                let ack = walk.ack(&mut random, window.cwnd);
                let mut case = law_case(&terms, &window, &ack);
                run(programs.check_law.as_fd(), &mut case);
                let before = window.cwnd;
                let ends = window.on_ack(&terms, &ack);
                let ends = u32::from(ends);
                let expected = types::law_case { ends, ..law_case(&terms, &window, &ack) };
                assert_eq!(case, expected);
                ended += ends;
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

fn window_of(window: &interim::HostWindow) -> types::window {
    let interim::HostWindow { cwnd, ssthresh, credit, .. } = *window;
    types::window { cwnd, ssthresh, credit }
}

fn law_case(terms: &Terms, window: &interim::HostWindow, ack: &interim::Ack) -> types::law_case {
    let HostHyStart { round_end, round_min, base, mark, train_us, samples, conservative, is_found } =
        window.hystart;
    let interim::Ack { acked, una, nxt, rtt_us, now_us, ack_delay_us, .. } = *ack;
    types::law_case {
        law: law_of(terms),
        hystart: types::hystart {
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
        window: window_of(window),
        ack: types::ack {
            acked,
            una,
            nxt,
            rtt_us,
            now_us,
            ack_delay_us,
            has_advanced: u8::from(ack.has_advanced),
            is_filled: u8::from(ack.is_filled),
            is_paced: u8::from(ack.is_paced),
            unused: 0,
        },
        ends: 0,
    }
}

#[test]
fn c_decisions_and_recoveries_match_core() {
    with_programs(|programs| {
        let mut random = Random(2);
        let mut trips = [0; 3];
        for _ in 0..20_000 {
            let terms = random_terms(&mut random);
            let [cwnd, known, wanted] = [(); 3].map(|()| random.of_bits(21));
            let recovery = interim::Recovery {
                ssthresh: 2 + random.of_bits(12),
                prior_cwnd: random.of_bits(13),
                delivered: random.of_bits(13),
                sent: random.of_bits(13),
            };
            let interval = interim::Interval {
                samples: random.below(16),
                rtt_min_us: random.of_bits(20),
                lost: random.of_bits(16),
                ce: random.of_bits(16),
            };
            let interim::Recovery { ssthresh, prior_cwnd, delivered, sent } = recovery;
            let interim::Interval { samples, rtt_min_us, lost, ce } = interval;
            let mut case = types::decision_case {
                law: law_of(&terms),
                cwnd,
                known,
                wanted,
                recovery: types::recovery { ssthresh, prior_cwnd, delivered, sent },
                in_flight: random.of_bits(13),
                acked: 1 + random.of_bits(6),
                has_advanced: random.below(2),
                has_lost: random.below(2),
                interval: types::interval { samples, rtt_min_us, lost, ce },
                ..types::decision_case::default()
            };
            let tripped = terms.tripped(&interval);
            trips = std::array::from_fn(|wire| trips[wire] + u32::from(tripped[wire]));
            let (advanced, lost) = (case.has_advanced > 0, case.has_lost > 0);
            let expected = types::decision_case {
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
fn c_decay_of_unused_windows_matches_core() {
    with_programs(|programs| {
        let mut random = Random(4);
        for _ in 0..5_000 {
            let [mut idle, mut unused] = [(); 2].map(|()| {
                let (cwnd, ssthresh) = (random.of_bits(20), random.of_bits(31));
                let credit = random.of_bits(30);
                interim::HostWindow { ssthresh, credit, ..interim::HostWindow::new(cwnd, 0, 0) }
            });
            let mut case = types::fall_case {
                restarted: window_of(&idle),
                underused: window_of(&unused),
                timeouts: random.of_bits(8),
                used: random.of_bits(16),
                aggregate: random.of_bits(18),
                pacing_rate: random.next() >> random.below(64),
                ..types::fall_case::default()
            };
            let before = unused.cwnd;
            idle.restart(case.timeouts);
            unused.on_underused(case.used);
            let expected = types::fall_case {
                restarted: window_of(&idle),
                underused: window_of(&unused),
                falls: u32::from(unused.cwnd < before),
                ack_delay_us: interim::hystart::ack_delay_us(case.aggregate, case.pacing_rate),
                ..case
            };
            run(programs.check_fall.as_fd(), &mut case);
            assert_eq!(case, expected);
        }
    });
}

/// An algorithm of core and its curve in C, fed the same acknowledgements.
struct Pair {
    core: Box<dyn CongestionControl>,
    case: types::curve_case,
}

impl Pair {
    fn new(name: &str, kind: u32, segments: u64) -> Self {
        let fields = [cc::Field::Rtt];
        assert!(ALGORITHMS.iter().any(|algorithm| algorithm.name == name));
        let mut core = cc::build(&Spec::named(name), &fields).expect("an algorithm");
        let mss = u64::from(MSS);
        core.init(Timestamp::ZERO, ByteCount::new(mss), ByteCount::new(segments * mss));
        let curve = types::curve { cwnd: segments as u32 * MSS, kind, ..types::curve::default() };
        Self { core, case: types::curve_case { curve, mss: MSS, ..Default::default() } }
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
        let known = self.case.curve.min_rtt_us;
        self.case.curve.min_rtt_us = if known == 0 { rtt_us } else { known.min(rtt_us) };
        (self.case.now_us, self.case.acked, self.case.event) = (now_us, acked, 0);
        run(program, &mut self.case);
    }

    fn lose(&mut self, program: std::os::fd::BorrowedFd<'_>, now_us: u64) {
        let now = Timestamp::from_nanos(now_us * 1000);
        self.core.on_event(now, CongestionEvent::Loss);
        self.core.on_event(now, CongestionEvent::RecoveryEnd);
        self.case.event = 1;
        run(program, &mut self.case);
        assert_eq!(self.case.ssthresh, self.case.curve.cwnd);
    }
}

#[test]
fn c_curves_match_core_for_each_segment() {
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
                    assert_eq!(u64::from(pair.case.curve.cwnd), pair.cwnd(), "{name} step {step}");
                }
                assert!(pair.case.curve.cwnd > MSS, "{:?}", pair.case.curve);
            }
        }
    });
}

#[test]
fn large_ack_grows_window_like_its_segments() {
    with_programs(|programs| {
        let program = programs.check_curve.as_fd();
        for (name, kind) in [("newreno", 0), ("cubic", 1)] {
            let mut pair = Pair::new(name, kind, 400);
            pair.lose(program, 1_000_000);
            for step in 0..400_u32 {
                let eighth = pair.case.curve.cwnd / 8;
                pair.ack(program, 1_000_000 + 5_000 * u64::from(step), 40_000, eighth);
                let apart = u64::from(pair.case.curve.cwnd).abs_diff(pair.cwnd());
                assert!(apart < u64::from(MSS), "{name} step {step}: {apart} bytes apart");
            }
        }
    });
}
