//! Laws of core as BPF against the same laws as this machine's code: the same calls give the same answers.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use forebay_core::cc::algorithms::newreno::NewReno;
use forebay_core::cc::algorithms::vegas::Vegas;
use forebay_core::cc::algorithms::westwood::Westwood;
use forebay_core::cc::native::{self, Call, Limits, Native, SSTHRESH_INFINITE};
use forebay_core::cc::window::WindowLaw;
use forebay_core::cc::{self, CongestionControl, CongestionEvent};
use forebay_core::spec::Spec;
use forebay_core::units::{ByteCount, Timestamp};
use forebay_skips::{Need, skip_without};

use super::super::CoreLaw;
use super::native::MSS;
use super::recorded::{self, connection};
use super::{Random, run};
use crate::skel::Plain;

/// `struct told` of `bpf/tcp_algorithm.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Told {
    call: Call,
    limits: u64,
}

// SAFETY: numbers alone, and no padding: of the 72 bytes 64 are the call's.
unsafe impl Plain for Told {}

type Host = Box<dyn FnMut(&Call) -> Limits>;

/// All algorithms with a function in `algorithms/src/lib.rs`.
const LAWS: [&str; 3] = ["newreno", "vegas", "westwood"];

/// The law as this machine's code.
fn on_host(law: &str) -> Host {
    fn host<L: WindowLaw>(law: fn() -> L) -> Host {
        let mut connection = None;
        Box::new(move |call| {
            if call.kind == native::BEGIN {
                connection = Some(Native::new(law(), call));
            }
            connection.as_mut().expect("it has begun").take(call)
        })
    }
    match law {
        "newreno" => host(|| NewReno),
        "vegas" => host(Vegas::default),
        "westwood" => host(Westwood::default),
        name => panic!("unknown algorithm {name}"),
    }
}

fn packed(limits: Limits) -> u64 {
    u64::from(limits.ssthresh) << 32 | u64::from(limits.cwnd)
}

/// The law as simulator and agent run it.
fn in_simulator(law: &str) -> Box<dyn CongestionControl> {
    let spec: Spec = law.parse().expect("a specification");
    let mut control = cc::build(&spec, &[cc::Field::Rtt]).expect("an algorithm");
    let mss = ByteCount::new(MSS.into());
    control.init(Timestamp::ZERO, mss, mss * 10);
    control
}

/// Reports the event of `call` to `control`. With `is_timeout`, a loss is reported as a timeout.
fn tell(control: &mut dyn CongestionControl, call: &Call, is_timeout: bool) {
    let now = Timestamp::from_nanos(call.now_us * 1000);
    let event = match call.kind {
        native::ACK => {
            let measurement = call.measurement(ByteCount::new(MSS.into()));
            return control.on_measurement(now, &measurement);
        }
        native::LOSS if !is_timeout => CongestionEvent::Loss,
        native::TIMEOUT => CongestionEvent::Rto,
        native::REPAIRED => CongestionEvent::RecoveryEnd,
        native::UNDO => CongestionEvent::Spurious,
        native::RESUME => CongestionEvent::Resume(Duration::from_micros(call.idle_us)),
        _ => return,
    };
    control.on_event(now, event);
}

/// The calls of a recording in the repository, without the windows of its algorithm.
fn calls_of(text: &str) -> Vec<Call> {
    let mut call = Call { mss: MSS, ..Call::default() };
    let (mut calls, mut state) = (vec![call], 0);
    for step in recorded::steps_of(text) {
        call.kind = match (step.call, step.value) {
            (recorded::CONG_AVOID, _) => native::ACK,
            (recorded::SSTHRESH, _) => native::LOSS,
            (recorded::SET_STATE, recorded::CWR) => native::MARK,
            (recorded::SET_STATE, recorded::LOSS) => native::TIMEOUT,
            (recorded::SET_STATE, ..=recorded::DISORDER) if state > recorded::CWR => {
                native::REPAIRED
            }
            (recorded::SET_STATE, _) => native::BEGIN,
            (recorded::UNDO_CWND, _) => native::UNDO,
            (recorded::PAUSE, _) => native::RESUME,
            _ => panic!("{step:?}"),
        };
        if step.call == recorded::SET_STATE {
            state = step.value;
        }
        if call.kind == native::BEGIN {
            // A change of state that calls no algorithm.
            continue;
        }
        call.now_us = step.at_us;
        call.idle_us = step.value;
        call.rtt_us = step.rtt_us;
        call.is_filled = u32::from(step.flags & recorded::FILLED != 0);
        if call.kind == native::ACK {
            call.acked = step.value as u32;
            call.delivered = call.acked;
            call.acked_bytes += u64::from(call.acked * MSS);
            call.sent_bytes = call.acked_bytes + u64::from(step.cwnd * MSS);
        }
        calls.push(call);
    }
    calls
}

/// Replays `calls` as a kernel does. Its window is the answer, and one segment after a timeout until the next
/// answer, which a change of state or a leaving segment does not give.
fn replay(calls: &[Call], mut answer: impl FnMut(&Call) -> Limits) {
    let mut limits = Limits { cwnd: 10, ssthresh: SSTHRESH_INFINITE };
    for call in calls {
        let Limits { cwnd, ssthresh } = limits;
        let told = answer(&Call { cwnd, ssthresh, ..*call });
        match call.kind {
            native::TIMEOUT => limits.cwnd = 1,
            native::MARK | native::REPAIRED | native::RESUME => {}
            _ => limits = told,
        }
    }
}

/// A law as BPF, ready for one connection at a time.
fn in_bpf(program: BorrowedFd<'_>) -> impl FnMut(&Call) -> u64 {
    move |call| {
        let mut told = Told { call: *call, limits: 0 };
        run(program, &mut told);
        told.limits
    }
}

/// A connection of random calls, whose kernel mostly follows the law; returns counts of both answers.
fn walk(seed: u64, mut answers: impl FnMut(&Call) -> (Limits, u64)) -> [u32; 8] {
    let mut random = Random(seed);
    let (cwnd, ssthresh) = (10, SSTHRESH_INFINITE);
    let mut call = Call { mss: 1448, cwnd, ssthresh, rtt_us: 40_000, ..Call::default() };
    let mut seen = [0; 8];
    for _ in 0..50_000 {
        let (limits, of_program) = answers(&call);
        assert_eq!(packed(limits), of_program, "{call:?}");
        seen[call.kind as usize] += 1;
        (call.cwnd, call.ssthresh) = (limits.cwnd, limits.ssthresh);
        if random.below(64) == 0 {
            // Less than the law's answer, as in a recovery or by the limit of a route.
            call.cwnd -= random.below(call.cwnd);
        }
        call.kind = match (call.kind, random.below(4_096)) {
            (native::LOSS, 0..=1_023) => native::UNDO,
            (native::LOSS, 1_024..=2_047) => native::MARK,
            (native::LOSS, 2_048..=3_071) => native::TIMEOUT,
            (native::LOSS | native::TIMEOUT, _) => native::REPAIRED,
            (_, 0..=3) => native::LOSS,
            (_, 4) => native::RESUME,
            _ => native::ACK,
        };
        let late = if random.below(1_024) == 0 { random.of_bits(24) } else { 0 };
        call.now_us += u64::from(random.below(2 * call.rtt_us / call.cwnd + 2) + late);
        call.idle_us = random.of_bits(23).into();
        call.acked = (random.below(3) + 1).min(call.cwnd);
        call.delivered = call.acked + if random.below(16) == 0 { random.of_bits(6) } else { 0 };
        call.rtt_us = 20_000 + random.of_bits(17);
        call.is_filled = u32::from(random.below(16) > 0);
        call.acked_bytes += u64::from(call.acked) * 1448;
        call.sent_bytes = call.acked_bytes + u64::from(call.cwnd) * 1448;
    }
    seen
}

#[test]
fn recorded_acks_give_same_window_in_kernel() {
    for law in LAWS {
        for calls in recorded::RECORDINGS.map(calls_of) {
            let (mut host, mut control) = (on_host(law), in_simulator(law));
            let (mut index, mut losses) = (0, 0);
            replay(&calls, |call| {
                index += 1;
                losses += u32::from(call.kind == native::LOSS);
                let is_next = |next: &Call| next.kind == native::TIMEOUT;
                tell(&mut *control, call, calls.get(index).is_some_and(is_next));
                let limits = host(call);
                if call.kind == native::ACK {
                    let of = |bytes: ByteCount| (bytes.as_u64() / u64::from(MSS)) as u32;
                    let told = control.send_limits();
                    let ssthresh = told.ssthresh.map_or(SSTHRESH_INFINITE, of);
                    let told = Limits { cwnd: told.cwnd.map_or(0, of), ssthresh };
                    assert_eq!(limits, told, "{law} {index}: {call:?}");
                }
                limits
            });
            assert!(index > 1_000 && losses > 2, "{law}: {index} calls, {losses} losses");
        }
    }
}

#[test]
fn bpf_algorithm_answers_calls_like_native_code() {
    for law in CoreLaw::all().filter(|law| !law.is_paced()) {
        let Some(object) = crate::program::tests::loaded(law.check()) else { return };
        let program = object.progs().find(|program| program.name() == "check_algorithm");
        let program = program.expect("the program of tests");
        for seed in 1..=4 {
            let (mut host, mut bpf) = (on_host(law.name()), in_bpf(program.as_fd()));
            let seen = walk(seed, |call| (host(call), bpf(call)));
            assert!(seen.iter().all(|count| *count > 0), "{}: {seen:?}", law.name());
        }
        for text in recorded::RECORDINGS {
            let (mut host, mut bpf) = (on_host(law.name()), in_bpf(program.as_fd()));
            replay(&calls_of(text), |call| {
                let limits = host(call);
                assert_eq!(packed(limits), bpf(call), "{}: {call:?}", law.name());
                limits
            });
        }
    }
}

#[test]
fn core_reproduces_kernel_connections_to_the_segment() {
    if [Need::Root, Need::StructOpsLinks, Need::Tun].into_iter().any(skip_without) {
        return;
    }
    for law in CoreLaw::all().filter(|law| !law.is_paced()) {
        let told: Vec<Told> = connection(move |name| law.record(name));
        let mut host = on_host(law.name());
        for (number, Told { call, limits }) in told.iter().enumerate() {
            assert_eq!(packed(host(call)), *limits, "{} {number}: {call:?}", law.name());
        }
        let count = |kind| told.iter().filter(|told| told.call.kind == kind).count();
        let counts = [native::ACK, native::LOSS, native::TIMEOUT].map(count);
        println!("{}: acknowledgements, losses, timeouts {counts:?}", law.name());
        assert!(counts[0] > 100 && counts[1] > 0 && counts[2] > 0, "{}: {counts:?}", law.name());
    }
}
