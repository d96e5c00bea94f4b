//! BBRv3 as BPF against the same code of this machine: the same calls give the same answers.

use std::os::fd::AsFd;

use forebay_core::cc::CongestionControl;
use forebay_core::cc::algorithms::bbr3::Bbr3;
use forebay_core::cc::algorithms::bbr3::paced::{self, PacedCall};
use forebay_skips::{Need, skip_without};

use super::super::CoreLaw;
use super::recorded::connection;
use super::{Random, run};
use crate::skel::Plain;

// SAFETY: numbers alone, and no padding.
unsafe impl Plain for PacedCall {}

fn law() -> CoreLaw {
    CoreLaw::all().find(|law| law.is_paced()).expect("an object")
}

/// The algorithm as this machine's code.
#[derive(Default)]
struct Host(Option<Bbr3>);

impl Host {
    fn answer(&mut self, call: &PacedCall) -> PacedCall {
        let mut answered = *call;
        let bbr = self.0.get_or_insert_with(|| Bbr3::begun(call));
        match call.kind {
            paced::BEGIN => {}
            paced::ACK => bbr.on_measurement(call.now(), &call.measurement()),
            _ => bbr.take_event(call),
        }
        bbr.answer(&mut answered);
        answered
    }
}

/// A connection of random calls; returns counts of them, and of different windows.
fn walk(seed: u64, mut answers: impl FnMut(&PacedCall) -> PacedCall) -> ([u32; 8], u32) {
    let mut random = Random(seed);
    let mut call = PacedCall { mss: 1448, cwnd: 10, seed, ..PacedCall::default() };
    let (mut seen, mut windows) = ([0; 8], 0);
    let mut sent = 10 * 1448;
    for _ in 0..50_000 {
        let answered = answers(&call);
        seen[call.kind as usize] += 1;
        windows += u32::from(answered.window != call.window);
        (call.window, call.rate) = (answered.window, answered.rate);
        call.kind = match random.below(4_096) {
            0..=5 => paced::LOSS,
            6 => paced::MARK,
            7 => paced::TIMEOUT,
            8..=15 => paced::REPAIRED,
            16 => paced::UNDO,
            17 => paced::RESTART,
            _ => paced::ACK,
        };
        call.now_us += u64::from(random.below(400));
        if random.below(2_048) == 0 {
            call.now_us += u64::from(random.of_bits(24));
        }
        if call.kind != paced::ACK {
            continue;
        }
        call.acked = random.below(4);
        call.lost = if random.below(512) == 0 { random.of_bits(4) } else { 0 };
        call.delivered += u64::from(call.acked) * 1448;
        sent = call.delivered.max(sent) + u64::from(random.below(4)) * 1448;
        call.in_flight = (call.window.min(sent - call.delivered) / 1448) as u32;
        call.prior_delivered = call.delivered.saturating_sub(call.window);
        call.rtt_us = 20_000 + random.of_bits(14);
        call.interval_us = call.rtt_us.into();
        call.sampled = if random.below(32) > 0 { call.delivered - call.prior_delivered } else { 0 };
        call.flags = u32::from(random.below(64) == 0) | u32::from(random.below(16) > 0) << 1;
    }
    (seen, windows)
}

#[test]
fn bpf_bbr3_answers_calls_like_native_code() {
    let Some(object) = crate::program::tests::loaded(law().check()) else { return };
    let program = object.progs().find(|program| program.name() == "check_algorithm");
    let program = program.expect("the program of tests");
    for seed in 1..=4 {
        let mut host = Host::default();
        let (seen, windows) = walk(seed, |call| {
            let (of_host, mut of_program) = (host.answer(call), *call);
            run(program.as_fd(), &mut of_program);
            assert_eq!(of_host, of_program, "{call:?}");
            of_host
        });
        assert!(seen.iter().all(|count| *count > 0) && windows > 1_000, "{seen:?} {windows}");
    }
}

#[test]
fn core_reproduces_bbr3_connection_of_the_kernel() {
    if [Need::Root, Need::StructOpsLinks, Need::Tun].into_iter().any(skip_without) {
        return;
    }
    let calls: Vec<PacedCall> = connection(|name| law().record(name));
    let mut host = Host::default();
    for (number, call) in calls.iter().enumerate() {
        assert_eq!(host.answer(call), *call, "{number}");
    }
    let count = |kind| calls.iter().filter(|call| call.kind == kind).count();
    let counts = [paced::ACK, paced::LOSS, paced::TIMEOUT].map(count);
    println!("acknowledgements, losses, timeouts {counts:?}");
    assert!(counts[0] > 100 && counts[1] > 0 && counts[2] > 0, "{counts:?}");
}

#[test]
fn verifier_needs_few_instructions_for_bbr3() {
    if [Need::Root, Need::StructOpsLinks].into_iter().any(skip_without) {
        return;
    }
    let native = law().register(&super::loopback::fresh_name()).expect("registered");
    println!("{:?}", native.instructions());
    assert!(native.instructions().iter().all(|(_, count)| *count < 500_000));
}
