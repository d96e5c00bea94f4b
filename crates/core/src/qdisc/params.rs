//! Parameters that several disciplines share.

use alloc::string::String;
use core::ops::RangeInclusive;

use crate::qdisc::limit::BYTES_MAX;
use crate::spec::{Param, Quantity};
use crate::units::{ByteCount, Duration, Limit};

/// An Ethernet frame of 1500 bytes of IP, without FCS.
pub(crate) const MTU: u64 = 1514;
/// 1.5 GB in full-sized packets, 120 ms at 100 Gbit/s: more than any box here can forward.
const PACKETS_MAX: u64 = 1_000_000;
/// Flow tables: the maximum of Linux' sch_sfq and sch_fq_codel.
pub(super) const FLOWS_MAX: u64 = 65_536;

/// The parameter of every discipline that hashes flows.
pub(super) const SEED: Param<u64> =
    Param::new("seed", "seed of the flow hash; the host draws it from the seed of the run").or(0);

/// The parameter of every discipline that drops at random.
pub(super) const RANDOM_SEED: Param<u64> =
    Param::new("seed", "seed of the draws; the host draws it from the seed of the run").or(0);

/// The parameter of every discipline that serves flows in turn.
pub(super) const QUANTUM: Param<ByteCount> =
    quantum("bytes that a flow may send in a round; the default is one full-sized packet");

/// The parameter `quantum` of disciplines that take turns. Below 256 bytes (the floor of Linux' sch_fq_codel)
/// a round is mostly bookkeeping; above 1 MB it is no round.
pub(super) const fn quantum(summary: &'static str) -> Param<ByteCount> {
    Param::new("quantum", summary)
        .or(ByteCount::new(MTU))
        .within(ByteCount::new(256)..=ByteCount::new(1_000_000))
}

/// The parameter of every discipline that can mark: off by default.
pub(super) const ECN: Param<bool> =
    Param::switch("ecn", "mark ECN-capable packets instead of dropping them");

/// Allowed times. A millisecond is finer than the floor below 120 Mbit/s; no user waits longer than 10 s.
pub(super) const TIMES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(10);

/// Type of the parameter `limit`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Holding(pub Limit);

impl Quantity for Holding {
    /// The values of the type.
    const WHAT: &'static str =
        "1p to 1000000p, 1514B to 1GB, or 1ms to 10s of the rate (at least 10 packets)";
    fn read(text: &str) -> Option<Self> {
        let is_allowed = |limit: &Limit| match limit {
            Limit::Time(time) => TIMES.contains(time),
            amount => is_amount(*amount),
        };
        Limit::read(text).filter(is_allowed).map(Self)
    }
    fn written(&self) -> String {
        self.0.written()
    }
}

/// Type of a threshold, which no rate moves.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Threshold(pub Limit);

impl Quantity for Threshold {
    /// The values of the type.
    const WHAT: &'static str = "1p to 1000000p, or 1514B to 1GB";
    fn read(text: &str) -> Option<Self> {
        Limit::read(text).filter(|limit| is_amount(*limit)).map(Self)
    }
    fn written(&self) -> String {
        self.0.written()
    }
}

fn is_amount(limit: Limit) -> bool {
    match limit {
        Limit::Packets(packets) => (1..=PACKETS_MAX).contains(&packets),
        Limit::Bytes(bytes) => (MTU..=BYTES_MAX).contains(&bytes.as_u64()),
        Limit::Time(_) => false,
    }
}
