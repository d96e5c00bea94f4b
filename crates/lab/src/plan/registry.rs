//! Checks of algorithms and qdiscs against core's registries, before anything is run.

use forebay_core::bundle::control::SUPPLIED;
use forebay_core::packet::{Ecn, Packet};
use forebay_core::qdisc;
use forebay_core::spec::{Spec, SpecError};
use forebay_core::units::ByteCount;

/// A packet that never exists: qdiscs are built to be checked, not to be used.
enum NoPacket {}

impl Packet for NoPacket {
    fn len(&self) -> ByteCount {
        match *self {}
    }
    fn flow_hash(&self, _key: u64) -> u64 {
        match *self {}
    }
    fn class(&self) -> u8 {
        match *self {}
    }
    fn ecn(&self) -> Ecn {
        match *self {}
    }
    fn set_ce(&mut self) {
        match *self {}
    }
}

/// Refuses a qdisc that cannot be built.
pub fn check_qdisc(spec: &Spec) -> Result<(), SpecError> {
    qdisc::build::<NoPacket>(spec).map(drop)
}

/// Refuses an algorithm that cannot be built, or that a sendbox cannot serve.
pub fn check_cc(spec: &Spec) -> Result<(), SpecError> {
    forebay_core::cc::build(spec, SUPPLIED).map(drop)
}

/// Refuses an algorithm that cannot be built, or that the sender of a flow cannot serve.
pub fn check_flow_cc(spec: &Spec) -> Result<(), SpecError> {
    forebay_core::cc::build(spec, forebay_sim::SUPPLIED).map(drop)
}

/// Whether `forebay list algorithms` has it.
pub fn is_algorithm(name: &str) -> bool {
    forebay_core::cc::ALGORITHMS.iter().any(|algorithm| algorithm.name == name)
}

/// Congestion controls of Linux (net/ipv4/tcp_*.c) that are no algorithms of ours.
pub const LINUX_ONLY: [&str; 2] = ["cdg", "nv"];
