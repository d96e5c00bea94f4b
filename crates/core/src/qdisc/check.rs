//! Checks of specifications before there are packets.

use super::build;
use crate::packet::{Ecn, Packet};
use crate::spec::{Spec, SpecError};
use crate::units::ByteCount;

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

/// Refuses the same specifications as [`build`].
pub fn check(spec: &Spec) -> Result<(), SpecError> {
    build::<NoPacket>(spec).map(drop)
}
