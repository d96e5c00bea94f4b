//! Laws of core as BPF beside the very same as this machine's code: told of the same, both say the same.

use std::os::fd::AsFd;

use forebay_core::cc::cubic::Linux;
use forebay_core::cc::native::{self, Call, Limits, Native, SSTHRESH_INFINITE};
use forebay_core::cc::newreno::NewReno;
use forebay_core::cc::vegas::Vegas;
use forebay_core::cc::westwood::Westwood;
use forebay_core::cc::window::WindowLaw;
use forebay_skips::{Need, skip_without};

use super::super::CoreLaw;
use super::recorded::connection;
use super::{Random, run};
use crate::skel::Plain;

/// struct told of `bpf/tcp_algorithm.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Told {
    call: Call,
    limits: u64,
}

// SAFETY: numbers alone, and no padding: of the 72 bytes 64 are the call's.
unsafe impl Plain for Told {}

/// struct check of `bpf/tcp_algorithm.bpf.c`.
#[repr(C)]
struct Check {
    told: Told,
    law: [u64; 128],
}

type Host = Box<dyn FnMut(&Call) -> Limits>;

/// As this machine's code.
fn on_host(law: CoreLaw) -> Host {
    fn host<L: WindowLaw>(law: fn() -> L) -> Host {
        let mut connection = None;
        Box::new(move |call| {
            if call.kind == native::BEGIN {
                connection = Some(Native::new(law(), call));
            }
            connection.as_mut().expect("it has begun").take(call)
        })
    }
    match law.name() {
        "cubic" => host(Linux::throughout),
        "newreno" => host(|| NewReno),
        "vegas" => host(Vegas::default),
        "westwood" => host(Westwood::default),
        name => panic!("what is {name}?"),
    }
}

fn packed(limits: Limits) -> u64 {
    u64::from(limits.ssthresh) << 32 | u64::from(limits.cwnd)
}

/// A connection of random calls, whose kernel mostly does what the law says; what both answer.
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
            // Less than the law says, as in a recovery or by the limit of a route.
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
fn a_law_as_bpf_answers_each_call_as_on_this_machine() {
    for law in CoreLaw::all() {
        let Some(object) = crate::program::tests::loaded(law.check()) else { return };
        let program = object.progs().find(|program| program.name() == "check_algorithm");
        let program = program.expect("the program of tests");
        for seed in 1..=4 {
            let mut host = on_host(law);
            let told = Told { call: Call::default(), limits: 0 };
            let mut check = Check { told, law: [0; 128] };
            let seen = walk(seed, |call| {
                check.told.call = *call;
                run(program.as_fd(), &mut check);
                (host(call), check.told.limits)
            });
            assert!(seen.iter().all(|count| *count > 0), "{}: {seen:?}", law.name());
        }
    }
}

#[test]
fn connections_of_the_kernel_are_repeated_by_core_to_the_segment() {
    if [Need::Root, Need::StructOpsLinks, Need::Tun].into_iter().any(skip_without) {
        return;
    }
    for law in CoreLaw::all() {
        let told: Vec<Told> = connection(move |name| law.record(name));
        let mut host = on_host(law);
        for (number, Told { call, limits }) in told.iter().enumerate() {
            assert_eq!(packed(host(call)), *limits, "{} {number}: {call:?}", law.name());
        }
        let count = |kind| told.iter().filter(|told| told.call.kind == kind).count();
        let counts = [native::ACK, native::LOSS, native::TIMEOUT].map(count);
        println!("{}: acknowledgements, losses, timeouts {counts:?}", law.name());
        assert!(counts[0] > 100 && counts[1] > 0 && counts[2] > 0, "{}: {counts:?}", law.name());
    }
}
