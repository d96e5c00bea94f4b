//! Packets and drop counters for tests of queueing disciplines.

use alloc::vec::Vec;

use crate::packet::{Ecn, Packet};
use crate::qdisc::{DropReason, DropSink};
use crate::units::ByteCount;

/// Longest packet of an operation: a super-packet of 64 KB.
pub const LEN_MAX: u64 = 65_535;

/// A packet that knows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPacket {
    /// Its flow.
    pub flow: u32,
    /// Its place in the flow, or in the test.
    pub sequence: u64,
    /// Bytes.
    pub len: ByteCount,
    /// Class, 0 is served first.
    pub class: u8,
    /// ECN field.
    pub ecn: Ecn,
}

impl Default for TestPacket {
    /// A full-sized packet of flow 0.
    fn default() -> Self {
        Self { flow: 0, sequence: 0, len: ByteCount::new(1514), class: 0, ecn: Ecn::NotEct }
    }
}

impl Packet for TestPacket {
    fn len(&self) -> ByteCount {
        self.len
    }

    /// The finaliser of MurmurHash3, which reaches every bit: flows spread as in real traffic.
    fn flow_hash(&self, key: u64) -> u64 {
        let mut hash = u64::from(self.flow) ^ key;
        for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
            hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
        }
        hash ^ (hash >> 33)
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn set_ce(&mut self) {
        assert_ne!(self.ecn, Ecn::NotEct, "marked a packet that is not ECN-capable");
        self.ecn = Ecn::Ce;
    }
}

/// Keeps what was dropped.
#[derive(Clone, Debug, Default)]
pub struct Dropped {
    /// In order.
    pub packets: Vec<(TestPacket, DropReason)>,
}

impl Dropped {
    /// The reasons, in order.
    pub fn reasons(&self) -> Vec<DropReason> {
        self.packets.iter().map(|(_, reason)| *reason).collect()
    }
}

impl DropSink<TestPacket> for Dropped {
    fn dropped(&mut self, packet: TestPacket, reason: DropReason) {
        self.packets.push((packet, reason));
    }
}
