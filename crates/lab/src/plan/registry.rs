//! Checks of qdiscs, before anything is run, and what algorithms only kernels have.

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

/// Congestion controls of Linux (net/ipv4/tcp_*.c) that are no algorithms of ours.
pub const LINUX_ONLY: [&str; 2] = ["cdg", "nv"];
