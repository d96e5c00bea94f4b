//! Operations on disciplines under test: drawn by property tests, decoded from bytes by fuzzing.

use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::LEN_MAX;
use crate::packet::Ecn;
use crate::qdisc::DISCIPLINES;
use crate::spec::{Spec, Value};
use crate::units::{Duration, Rate};

/// One step of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A packet arrives.
    Enqueue {
        /// Flow of the packet.
        flow: u32,
        /// Bytes of the packet, 1 to [`LEN_MAX`].
        len: u64,
        /// Class of the packet.
        class: u8,
        /// ECN field of the packet.
        ecn: Ecn,
    },
    /// The host dequeues a packet.
    Dequeue,
    /// Time passes.
    Advance(Duration),
    /// Time passes up to the timer, if there is one ahead.
    AwaitTimer,
    /// The rate of a shaper changes, or the rate at which another discipline is served.
    SetRate(Option<Rate>),
}

/// Disciplines with small limits, so that short tests reach them: at least one of each kind. A kind that
/// is not named here is there with a limit in packets and one in time.
pub fn specs() -> Vec<Spec> {
    let text = |text: &str| Value::Text(text.to_string());
    let named = Spec::named;
    let sfq = named("sfq").with("limit", text("20p")).with("perturb", text("100ms"));
    let mut specs = alloc::vec![
        named("fifo").with("limit", text("10p")),
        named("fifo").with("limit", text("20KB")),
        sfq.clone(),
        sfq.clone().with("headdrop", Value::Bool(true)).with("limit", text("70KB")),
        sfq.clone().with("divisor", Value::Integer(2)).with("quantum", text("300B")),
        sfq.clone().with("depth", Value::Integer(3)).with("headdrop", Value::Bool(true)),
        sfq.clone().with("depth", Value::Integer(3)).with("seed", Value::Integer(1)),
    ];
    let drr = named("drr").with("limit", text("20p"));
    let codel = named("codel").with("limit", text("30p")).with("target", text("1ms"));
    let codel = codel.with("interval", text("10ms"));
    let fq_codel = Spec { kind: "fq_codel".to_string(), ..codel.clone() };
    specs.extend([
        drr.clone(),
        drr.clone().with("limit", text("100KB")).with("quantum", text("500B")),
        drr.clone().with("flows", Value::Integer(1)),
        codel.clone(),
        codel.clone().with("ecn", Value::Bool(true)).with("limit", text("100KB")),
        fq_codel.clone(),
        fq_codel.clone().with("memory", text("70KB")).with("ecn", Value::Bool(false)),
        fq_codel.clone().with("flows", Value::Integer(2)).with("quantum", text("300B")),
    ]);
    let bands = |bands: &[&Spec]| {
        Value::List(bands.iter().map(|band| Value::Spec((*band).clone())).collect())
    };
    let shaper = named("shaper").with("rate", text("10Mbit/s"));
    specs.extend([
        shaper.clone().with("inner", Value::Spec(sfq.clone())),
        shaper.clone().with("burst", text("0s")).with("bucket", text("1514B")),
        shaper.clone().with("inner", Value::Spec(codel.clone())),
        named("prio").with("bands", bands(&[&sfq, &drr, &named("fifo")])),
        named("prio").with("bands", bands(&[&codel, &fq_codel])),
        named("prio").with("bands", bands(&[&shaper, &sfq])),
        shaper.clone().with("burst", text("64KB")).with("inner", Value::Spec(shaper.clone())),
    ]);
    // Last in the list, since the corpus of fuzzing names disciplines by their places.
    let pie = named("pie").with("limit", text("30p")).with("burst", text("0s"));
    let pie = pie.with("target", text("1ms")).with("tupdate", text("5ms"));
    let red = named("red").with("limit", text("30p")).with("weight", text("0.5"));
    let step = named("red").with("weight", text("1")).with("ecn", Value::Bool(true));
    let step = step.with("min_th", text("8KB")).with("max_th", text("8KB"));
    let pie_ecn = pie.clone().with("ecn", Value::Bool(true)).with("ecn_threshold", text("50%"));
    specs.extend([
        pie.clone().with("derandomize", Value::Bool(false)).with("limit", text("100KB")),
        pie_ecn.clone(),
        red.clone(),
        red.clone().with("gentle", Value::Bool(true)).with("ecn", Value::Bool(true)),
        step.with("limit", text("20KB")),
        shaper.clone().with("inner", Value::Spec(pie_ecn)),
        named("prio").with("bands", bands(&[&pie, &red])),
    ]);
    for kind in ["fifo", "sfq", "drr", "codel", "fq_codel", "pie", "red"] {
        let in_time = named(kind).with("limit", text("20ms"));
        specs.push(in_time.clone());
        specs.push(
            named("shaper").with("rate", text("1Mbit/s")).with("inner", Value::Spec(in_time)),
        );
    }
    let headdrop = named("sfq").with("headdrop", Value::Bool(true)).with("limit", text("20ms"));
    specs.push(named("prio").with("bands", bands(&[&headdrop, &named("fifo")])));
    let policer = named("policer").with("rate", text("10Mbit/s"));
    // A small inner queue, as for the rest: one of the default length fills too slowly to be warm in short
    // tests.
    let short = named("fifo").with("limit", text("10p"));
    specs.extend([
        policer.clone().with("burst", text("10KB")).with("inner", Value::Spec(short)),
        policer.with("burst", text("2ms")).with("inner", Value::Spec(codel.clone())),
    ]);
    let number = Value::Integer;
    let numbers = |numbers: &[i64]| Value::List(numbers.iter().copied().map(number).collect());
    let weighted = |spec: &Spec, weights: &[i64]| {
        spec.clone().with("classes", Value::List(Vec::new())).with("weights", numbers(weights))
    };
    let las = named("las").with("limit", text("20p")).with("first", text("3KB"));
    let las = las.with("factor", number(2)).with("idle", text("5ms")).with("starved", number(3));
    // Fewer queues than flows, so that there are guests.
    let ways = |spec: &Spec| spec.clone().with("ways", number(4));
    specs.extend([
        weighted(&sfq, &[4, 1]),
        weighted(&ways(&sfq), &[1, 64, 2]).with("divisor", number(8)),
        weighted(&drr, &[1, 3]).with("flows", number(2)).with("quantum", text("500B")),
        ways(&sfq).with("divisor", number(4)),
        ways(&drr).with("flows", number(4)),
        ways(&fq_codel).with("flows", number(4)),
        las.clone(),
        las.clone().with("limit", text("20ms")).with("levels", number(2)),
        ways(&las).with("flows", number(4)),
    ]);
    for spec in [&named("fifo").with("limit", text("20p")), &sfq, &drr, &las] {
        let ecn = spec.clone().with("ecn", Value::Bool(true));
        specs.extend([
            ecn.clone().with("mark", text("3p")),
            spec.clone().with("l4s", text("1ms")),
            ecn.with("mark", text("5ms")).with("l4s", text("500us")).with("limit", text("70KB")),
        ]);
    }
    let l4s = named("fifo").with("limit", text("20p")).with("l4s", text("1ms"));
    let ets = |list: &[&Spec]| named("ets").with("bands", bands(list));
    specs.extend([
        ets(&[&sfq, &drr, &l4s]).with("strict", number(1)),
        ets(&[&codel, &fq_codel]).with("weights", numbers(&[2, 1])).with("quantum", text("300B")),
        ets(&[&shaper, &las]),
        named("prio").with("bands", bands(&[&las, &l4s, &sfq])),
        shaper.clone().with("inner", Value::Spec(ets(&[&l4s, &las]))),
    ]);
    let dualpi2 = named("dualpi2").with("limit", text("30p")).with("target", text("1ms"));
    // Gains at which a few packets are an overload.
    let dualpi2 = dualpi2.with("tupdate", text("1ms")).with("alpha", number(10));
    let spares = dualpi2.clone().with("drop_on_overload", Value::Bool(false));
    specs.extend([
        spares.with("limit", text("20KB")).with("classic_protection", text("50%")),
        shaper.with("inner", Value::Spec(dualpi2.clone().with("limit", text("20ms")))),
        named("prio").with("bands", bands(&[&dualpi2, &sfq])),
        dualpi2,
    ]);
    for entry in DISCIPLINES {
        if !specs.iter().any(|spec| spec.kind == entry.name) {
            let limits = ["10p", "20ms"];
            specs.extend(limits.map(|limit| named(entry.name).with("limit", text(limit))));
        }
    }
    specs
}

/// Arbitrary operations, with few flows so that they meet.
pub fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let ecn = prop_oneof![Just(Ecn::NotEct), Just(Ecn::Ect0), Just(Ecn::Ect1), Just(Ecn::Ce)];
    let len = prop_oneof![4 => 1u64..=1514, 1 => 1..=LEN_MAX];
    let enqueue = (0u32..6, len, 0u8..4, ecn)
        .prop_map(|(flow, len, class, ecn)| Operation::Enqueue { flow, len, class, ecn });
    // Up to 20 ms, beyond CoDel's target and a shaper's burst, and rarely seconds.
    let advance = prop_oneof![4 => 0u64..20_000_000, 1 => 0u64..3_000_000_000];
    let rate = prop_oneof![Just(0u64), 1u64..=1_000_000_000_000, 100_000u64..=50_000_000];
    let operation = prop_oneof![
        6 => enqueue,
        4 => Just(Operation::Dequeue),
        3 => advance.prop_map(|nanos| Operation::Advance(Duration::from_nanos(nanos))),
        1 => Just(Operation::AwaitTimer),
        1 => proptest::option::of(rate)
            .prop_map(|rate| Operation::SetRate(rate.map(Rate::from_bits_per_sec))),
    ];
    proptest::collection::vec(operation, 1..300)
}

/// Reads a spec and operations from arbitrary bytes, for fuzzing: the first byte picks one of
/// [`specs`], then each operation takes one byte for its kind and up to four for its values.
pub fn decode(bytes: &[u8]) -> Option<(Spec, Vec<Operation>)> {
    let (&choice, mut rest) = bytes.split_first()?;
    let specs = specs();
    let spec = specs[usize::from(choice) % specs.len()].clone();
    let mut operations = Vec::new();
    while let Some((&kind, values)) = rest.split_first() {
        let (operation, taken) = decode_operation(kind, values);
        rest = &values[taken.min(values.len())..];
        operations.push(operation);
    }
    Some((spec, operations))
}

/// The operation and how many of `values` it took; missing values read as zero.
fn decode_operation(kind: u8, values: &[u8]) -> (Operation, usize) {
    let value = |index: usize| u64::from(values.get(index).copied().unwrap_or(0));
    // A mantissa of 8 bits and an exponent reach 1 ns to minutes, and 1 bit/s to Tbit/s.
    let scaled = || value(0) << (value(1) % 34);
    match kind % 8 {
        0..=3 => {
            let ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(kind >> 6)];
            let class = (kind >> 3) & 7;
            let len = value(1) << 8 | value(2);
            (Operation::Enqueue { flow: value(0) as u32 % 16, len, class, ecn }, 3)
        }
        4 | 5 => (Operation::Dequeue, 0),
        6 if kind & 8 == 0 => (Operation::Advance(Duration::from_nanos(scaled())), 2),
        6 => (Operation::AwaitTimer, 0),
        _ if kind & 8 == 0 => (Operation::SetRate(Some(Rate::from_bits_per_sec(scaled()))), 2),
        _ => (Operation::SetRate(None), 0),
    }
}
