//! The native algorithms compared with core's: acknowledgements, losses, timeouts and pauses as they come.

use std::os::fd::{AsFd, BorrowedFd};

use forebay_core::cc::{self, CongestionControl, CongestionEvent, Measurement, RttSample};
use forebay_core::spec::{Spec, Value};
use forebay_core::units::{ByteCount, Duration, Timestamp};

use super::super::NativeKind;
use super::{Random, run, with_programs};
use crate::skel::tcp_check::types;

/// Payload bytes of a segment.
pub(super) const MSS: u32 = 1448;
/// `TCP_INFINITE_SSTHRESH` of include/net/tcp.h.
const SSTHRESH_INFINITE: u32 = 0x7fff_ffff;

/// Core's version of the algorithm, with slow start until a loss: a test of HyStart ends slow start
/// itself.
pub(super) fn in_core(kind: NativeKind) -> Box<dyn CongestionControl> {
    let spec = match kind {
        NativeKind::Reno => Spec::named("newreno"),
        NativeKind::Cubic => Spec::named("cubic").with("linux_growth", Value::Bool(true)),
    };
    cc::build(&spec, &[cc::Field::Rtt]).expect("an algorithm")
}

/// An acknowledgement as core gets it.
pub(super) fn measured(acked: u32, rtt_us: u32, is_filled: bool) -> Measurement {
    let rtt = Duration::from_micros(u64::from(rtt_us));
    Measurement {
        acked: ByteCount::new(u64::from(acked * MSS)),
        rtt: (rtt_us > 0).then_some(RttSample { latest: rtt, min: rtt }),
        cwnd_limited: Some(is_filled),
        ..Measurement::default()
    }
}

/// By default the union of curve and cubic has the length of a curve alone: the fields that only a cubic
/// has would be anything.
fn begun(kind: NativeKind) -> types::native_case {
    let mut case = types::native_case { kind: kind as u32, ..types::native_case::default() };
    case.native.__anon_native_1.cubic = types::cubic::default();
    case
}

/// The cubic of a case of that kind.
fn cubic_of(case: &types::native_case) -> &types::cubic {
    // SAFETY: curve and cubic are numbers alone, which any bytes make.
    unsafe { &case.native.__anon_native_1.cubic }
}

/// `NATIVE_ACK` of `bpf/tcp_check.bpf.c`.
const ACK: u32 = 0;
/// `NATIVE_LOSS` of `bpf/tcp_check.bpf.c`.
const LOSS: u32 = 1;
/// `NATIVE_RTO` of `bpf/tcp_check.bpf.c`.
const RTO: u32 = 2;
/// `NATIVE_RESUME` of `bpf/tcp_check.bpf.c`.
const RESUME: u32 = 3;

/// Both versions of an algorithm.
struct Pair<'a> {
    program: BorrowedFd<'a>,
    core: Box<dyn CongestionControl>,
    case: types::native_case,
    /// cwnd and ssthresh before the last reduction.
    prior: (u32, u32),
}

impl<'a> Pair<'a> {
    fn new(program: BorrowedFd<'a>, kind: NativeKind, segments: u32) -> Self {
        let mut core = in_core(kind);
        let cwnd = u64::from(segments * MSS);
        core.init(Timestamp::ZERO, ByteCount::new(u64::from(MSS)), ByteCount::new(cwnd));
        let case = types::native_case {
            mss: MSS,
            window: types::window { cwnd: segments, ssthresh: SSTHRESH_INFINITE, credit: 0 },
            now_us: 5_000_000,
            ..begun(kind)
        };
        Self { program, core, case, prior: (segments, SSTHRESH_INFINITE) }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.case.now_us * 1000)
    }

    fn run(&mut self, event: u32) {
        self.case.event = event;
        run(self.program, &mut self.case);
    }

    fn ack(&mut self, acked: u32, rtt_us: u32, is_filled: bool) {
        self.core.on_measurement(self.now(), &measured(acked, rtt_us, is_filled));
        let is_filled = u8::from(is_filled);
        self.case.ack = types::ack { acked, rtt_us, is_filled, ..types::ack::default() };
        self.run(ACK);
    }

    fn reduce(&mut self, event: u32, told: CongestionEvent) {
        self.prior = (self.case.window.cwnd, self.case.window.ssthresh);
        self.core.on_event(self.now(), told);
        self.core.on_event(self.now(), CongestionEvent::RecoveryEnd);
        self.run(event);
    }

    /// The last reduction was needless: in C it is the kernel that takes it back.
    fn undo(&mut self) {
        self.core.on_event(self.now(), CongestionEvent::Spurious);
        self.case.window.cwnd = self.case.window.cwnd.max(self.prior.0);
        self.case.window.ssthresh = self.prior.1;
    }

    fn pause(&mut self, idle_us: u32) {
        self.case.now_us += u64::from(idle_us);
        self.case.idle_us = u64::from(idle_us);
        let idle = Duration::from_micros(self.case.idle_us);
        self.core.on_event(self.now(), CongestionEvent::Resume(idle));
        self.run(RESUME);
    }

    /// The window of core, in segments and the bytes beyond them.
    fn in_core(&self) -> (u32, u64) {
        let bytes = self.core.send_limits().cwnd.expect("a window").as_u64();
        ((bytes / u64::from(MSS)) as u32, bytes % u64::from(MSS))
    }
}

/// Cases that a Cubic met in a walk; the walk is of use only if all are met.
#[derive(Debug, Default)]
struct Seen {
    /// Growth at 5 % a window; at half a window; along the function before and beyond K; by W_est.
    early: u32,
    fastest: u32,
    below: u32,
    above: u32,
    friendly: u32,
    pauses: u32,
    timeouts: u32,
}

impl Seen {
    fn see(&mut self, case: &types::native_case) {
        let cubic = cubic_of(case);
        if cubic.began_us == 0 {
            return;
        }
        let since = case.now_us.saturating_sub(cubic.began_us) * 1024 / 1_000_000;
        self.early += u32::from(cubic.w_max == 0 && cubic.count == 20);
        self.fastest += u32::from(cubic.count == 2);
        self.below += u32::from(cubic.k > 0 && since < u64::from(cubic.k));
        self.above += u32::from(cubic.k > 0 && since > u64::from(cubic.k));
        self.friendly += u32::from(cubic.estimate > case.window.cwnd);
    }
}

/// A connection of random acknowledgements over a path of `rtt_us`, `check`ed after each.
fn walk(
    pair: &mut Pair<'_>,
    rtt_us: u32,
    random: &mut Random,
    seen: &mut Seen,
    check: impl Fn(&Pair<'_>),
) {
    for _ in 0..40_000 {
        match random.below(16_384) {
            0..=2 => pair.reduce(LOSS, CongestionEvent::Loss),
            3 | 4 => {
                pair.reduce(RTO, CongestionEvent::Rto);
                seen.timeouts += 1;
            }
            5 if pair.case.kind == NativeKind::Cubic as u32 => {
                pair.reduce(LOSS, CongestionEvent::Loss);
                pair.undo();
            }
            6..=13 => {
                pair.pause(random.of_bits(23));
                seen.pauses += u32::from(cubic_of(&pair.case).began_us > 0);
            }
            _ => {
                let many = random.below(40).min(pair.case.window.cwnd);
                let acked = if random.below(16) == 0 { many } else { 1 };
                let apart = 2 * acked * rtt_us / pair.case.window.cwnd + 2;
                // Acknowledgements that are late are no pause.
                let late = if random.below(1_024) == 0 { random.of_bits(24) } else { 0 };
                pair.case.now_us += u64::from(random.below(apart) + late);
                let rtt = if random.below(8) > 0 { rtt_us + random.of_bits(14) } else { 0 };
                pair.ack(acked, rtt, random.below(16) > 0);
                seen.see(&pair.case);
            }
        }
        check(pair);
    }
}

#[test]
fn native_cubic_matches_core_with_linux_growth() {
    with_programs(|programs| {
        let mut random = Random(7);
        let mut seen = Seen::default();
        for (segments, rtt_us) in [(10, 40_000), (400, 100_000), (3, 700), (10, 8_000)] {
            let mut pair = Pair::new(programs.check_native.as_fd(), NativeKind::Cubic, segments);
            walk(&mut pair, rtt_us, &mut random, &mut seen, |pair| {
                assert_eq!((pair.case.window.cwnd, 0), pair.in_core(), "{:?}", pair.case);
                let ssthresh = pair.core.send_limits().ssthresh.map(ByteCount::as_u64);
                let in_c = u64::from(pair.case.window.ssthresh) * u64::from(MSS);
                let is_infinite = pair.case.window.ssthresh == SSTHRESH_INFINITE;
                assert_eq!(ssthresh, (!is_infinite).then_some(in_c));
            });
        }
        let Seen { early, fastest, below, above, friendly, pauses, timeouts } = seen;
        let often = [early, fastest, below, above, friendly];
        assert!(often.iter().all(|count| *count > 500) && pauses > 20 && timeouts > 4, "{seen:?}");
    });
}

#[test]
fn native_reno_matches_core_within_a_segment() {
    with_programs(|programs| {
        let mut random = Random(8);
        for (segments, rtt_us) in [(10, 40_000), (400, 100_000), (3, 700)] {
            let mut pair = Pair::new(programs.check_native.as_fd(), NativeKind::Reno, segments);
            let mut seen = Seen::default();
            walk(&mut pair, rtt_us, &mut random, &mut seen, |pair| {
                assert!(pair.case.window.cwnd.abs_diff(pair.in_core().0) <= 1, "{:?}", pair.case);
            });
            assert!(seen.timeouts > 0 && pair.case.window.cwnd > 1);
        }
    });
}

#[test]
fn pause_shifts_epoch_start_but_not_beyond_now() {
    with_programs(|programs| {
        // Began, pause and now in microseconds; the last case is a pause that was counted already.
        for (began_us, idle_us, now_us, expected) in
            [(0, 500, 9_000, 0), (1_000, 500, 9_000, 1_500), (8_700, 500, 9_000, 9_000)]
        {
            let (event, kind) = (RESUME, NativeKind::Cubic);
            let mut case = types::native_case { idle_us, now_us, event, ..begun(kind) };
            case.native.__anon_native_1.cubic.began_us = began_us;
            run(programs.check_native.as_fd(), &mut case);
            assert_eq!(cubic_of(&case).began_us, expected);
        }
    });
}
