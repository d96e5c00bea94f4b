//! Reading the parameters that several disciplines share. The spec has its defaults filled in
//! ([`Spec::with_defaults`]), so a missing value means that it has no default.

use alloc::format;
use alloc::string::ToString;
use core::ops::RangeInclusive;

use crate::qdisc::limit::BYTES_MAX;
use crate::spec::{Param, Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Ratio, format_duration};

/// An Ethernet frame of 1500 bytes of IP, without FCS.
pub(super) const MTU: u64 = 1514;
/// 1.5 GB in full-sized packets, 120 ms at 100 Gbit/s: more than any box here can forward.
const PACKETS_MAX: u64 = 1_000_000;
/// Flow tables: as many as Linux' sch_sfq and sch_fq_codel allow.
pub(super) const FLOWS_MAX: u64 = 65_536;
/// Below 256 bytes (the floor of Linux' sch_fq_codel) a round is mostly bookkeeping; above 1 MB
/// it is no round.
const QUANTUM: RangeInclusive<u64> = 256..=1_000_000;

/// The parameter of every discipline that hashes flows.
pub(super) const SEED: Param = Param {
    name: "seed",
    summary: "seed of the flow hash; the host draws it from the seed of the run",
    default: "0",
    allowed: "a whole number",
};

/// The parameter of every discipline that drops at random.
pub(super) const RANDOM_SEED: Param =
    Param { summary: "seed of the draws; the host draws it from the seed of the run", ..SEED };

/// The parameter of every discipline that serves flows in turn.
pub(super) const QUANTUM_PARAM: Param = Param {
    name: "quantum",
    summary: "bytes that a flow may send a round; the default is one full-sized packet",
    default: "1514B",
    allowed: "a size, 256B to 1MB",
};

/// What `limit` accepts.
pub(super) const LIMIT_ALLOWED: &str =
    "1p to 1000000p, 1514B to 1GB, or 1ms to 10s of the rate (at least 10 packets)";
/// What a threshold accepts.
pub(super) const THRESHOLD_ALLOWED: &str = "1p to 1000000p, or 1514B to 1GB";
/// A millisecond is finer than the floor below 120 Mbit/s; above 10 s nobody waits any more.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// The parameter `limit`.
pub(super) fn limit(spec: &Spec) -> Result<Limit, SpecError> {
    let limit = given(spec, "limit", spec.limit("limit"))?;
    let is_allowed = match limit {
        Limit::Time(time) => TIMES.contains(&time),
        amount => is_amount(amount),
    };
    if is_allowed { Ok(limit) } else { Err(refused(spec, "limit", LIMIT_ALLOWED)) }
}

/// A threshold, which no rate moves.
pub(super) fn threshold(spec: &Spec, name: &str) -> Result<Limit, SpecError> {
    let threshold = given(spec, name, spec.limit(name))?;
    if is_amount(threshold) { Ok(threshold) } else { Err(refused(spec, name, THRESHOLD_ALLOWED)) }
}

fn is_amount(limit: Limit) -> bool {
    match limit {
        Limit::Packets(packets) => (1..=PACKETS_MAX).contains(&packets),
        Limit::Bytes(bytes) => (MTU..=BYTES_MAX).contains(&bytes.as_u64()),
        Limit::Time(_) => false,
    }
}

pub(super) fn quantum(spec: &Spec) -> Result<ByteCount, SpecError> {
    let quantum = given(spec, "quantum", spec.bytes("quantum"))?;
    if QUANTUM.contains(&quantum.as_u64()) {
        Ok(quantum)
    } else {
        Err(refused(spec, "quantum", QUANTUM_PARAM.allowed))
    }
}

pub(super) fn memory(spec: &Spec) -> Result<ByteCount, SpecError> {
    let memory = given(spec, "memory", spec.bytes("memory"))?;
    if (MTU..=BYTES_MAX).contains(&memory.as_u64()) {
        Ok(memory)
    } else {
        Err(refused(spec, "memory", "a size, 1514B to 1GB"))
    }
}

pub(super) fn count(spec: &Spec, name: &str, range: RangeInclusive<u64>) -> Result<u64, SpecError> {
    let count = given(spec, name, spec.count(name))?;
    if range.contains(&count) {
        Ok(count)
    } else {
        let allowed = format!("a whole number, {} to {}", range.start(), range.end());
        Err(refused(spec, name, &allowed))
    }
}

pub(super) fn duration(
    spec: &Spec,
    name: &str,
    range: RangeInclusive<Duration>,
) -> Result<Duration, SpecError> {
    let duration = given(spec, name, spec.duration(name))?;
    if range.contains(&duration) {
        Ok(duration)
    } else {
        let [low, high] = [*range.start(), *range.end()].map(format_duration);
        Err(refused(spec, name, &format!("a duration, {low} to {high}")))
    }
}

pub(super) fn ratio(spec: &Spec, name: &str) -> Result<Ratio, SpecError> {
    given(spec, name, spec.ratio(name))
}

pub(super) fn switch(spec: &Spec, name: &str) -> Result<bool, SpecError> {
    given(spec, name, spec.switch(name))
}

/// Any text or number that identifies a stream of random numbers.
pub(super) fn seed(spec: &Spec) -> Result<u64, SpecError> {
    given(spec, "seed", spec.count("seed"))
}

/// Refuses a missing value.
pub(super) fn given<T>(
    spec: &Spec,
    name: &str,
    found: Result<Option<T>, SpecError>,
) -> Result<T, SpecError> {
    let missing = || SpecError::new(name, "(absent)", &format!("a value: {} needs it", spec.kind));
    found?.ok_or_else(missing)
}

/// The parameter `name` as written is not `allowed`.
pub(super) fn refused(spec: &Spec, name: &str, allowed: &str) -> SpecError {
    let value = spec.params.get(name).map(ToString::to_string);
    SpecError::new(name, &value.unwrap_or_default(), allowed)
}
