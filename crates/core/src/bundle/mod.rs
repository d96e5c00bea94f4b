//! Bundles: the traffic of one site towards another, measured and paced as one.
//!
//! The sendbox remembers when boundary packets left and how many bytes had been sent; the
//! receivebox reports when they arrived and how many bytes it had received. From both the sendbox
//! knows RTT and rates, a congestion-control algorithm gives a window, and the window becomes the
//! rate of the shaper.

pub(crate) mod arrivals;
pub(crate) mod boundary;
pub(crate) mod clock;
pub(crate) mod control;
pub mod decision;
pub(crate) mod epoch;
pub(crate) mod exchange;
pub(crate) mod feedback;
pub mod keys;
pub(crate) mod monitor;
pub mod mtu;
pub(crate) mod negotiation;
pub(crate) mod order;
pub mod paths;
pub mod peer;
pub(crate) mod rate;
pub mod receivebox;
pub(crate) mod replay;
pub mod sample;
pub mod scope;
pub mod segments;
pub mod sendbox;
pub(crate) mod session;
pub mod table;
pub(crate) mod telling;
pub mod uplink;
pub(crate) mod visibility;
pub mod waits;
pub mod wire;

pub use sample::nat::Nat;
pub use sample::{BlockVersion, BlockVersions, SampleBlock, SamplingKey};

use crate::units::{ByteCount, Timestamp};

/// Longest name of a bundle: names stand in tables, rows and log lines.
pub const NAME_MAX: usize = 32;

/// Which bundle of a pair of boxes a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub u16);

/// Packets per epoch: a power of two, so that the boundary sets of any two sizes are nested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochSize {
    log2: u8,
}

impl EpochSize {
    /// Largest: 2^20 packets.
    pub const MAX: Self = Self { log2: 20 };

    /// 2^`log2` packets; `None` above [`EpochSize::MAX`].
    pub const fn from_log2(log2: u8) -> Option<Self> {
        if log2 <= Self::MAX.log2 { Some(Self { log2 }) } else { None }
    }

    /// The exponent, as sent in messages.
    pub const fn log2(self) -> u8 {
        self.log2
    }

    /// The size in packets.
    pub const fn packets(self) -> u32 {
        1 << self.log2
    }

    /// Whether the packet with this sampling hash closes an epoch of this size.
    pub const fn is_boundary(self, hash: u64) -> bool {
        hash & (self.packets() as u64 - 1) == 0
    }
}

/// What the receivebox says of one boundary packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The packet's sampling hash, which is its identity.
    pub hash: u64,
    /// When it was seen, on the receivebox's clock.
    pub received_at: Timestamp,
    /// Bytes of the bundle seen since the receivebox's start, this packet included: frames without
    /// FCS and padding.
    pub received_bytes: ByteCount,
    /// Packets of the bundle seen since the receivebox's start, this one included.
    pub received_packets: u64,
    /// Packets among them that were marked congestion experienced.
    pub received_ce: u64,
    /// Epoch size in force at the receivebox.
    pub epoch_size: EpochSize,
}

/// What each packet of a bundle takes on the path beside the bytes that both boxes count: headers that are put in front of
/// it behind the sendbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes of a packet.
    pub bytes: u16,
}

impl Overhead {
    /// So many packets with all that they take, of which the boxes count `bytes`.
    pub const fn on(self, packets: u64, bytes: ByteCount) -> ByteCount {
        ByteCount::new(bytes.as_u64().saturating_add(self.of(packets)))
    }

    /// What the boxes count of so many packets that take `bytes`.
    pub const fn off(self, packets: u64, bytes: ByteCount) -> ByteCount {
        ByteCount::new(bytes.as_u64().saturating_sub(self.of(packets)))
    }

    const fn of(self, packets: u64) -> u64 {
        packets.saturating_mul(self.bytes as u64)
    }
}

/// What has left a sendbox after its shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departures {
    /// When the last of it left.
    pub at: Timestamp,
    /// Packets since the start.
    pub packets: u64,
    /// Bytes of these packets as the receivebox counts them ([`unpadded_len`](crate::packet::unpadded_len)).
    pub bytes: ByteCount,
    /// What tells the last packet from others, if it is a boundary.
    pub boundary: Option<BoundaryMark>,
}

/// What tells a boundary packet from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundaryMark {
    /// Keyed sampling hash of the packet.
    pub hash: u64,
    /// What the host knows the packet by; comes back in [`Epoch`](control::Epoch).
    pub identity: u64,
}

/// Counts departures, for a host that sees every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepartureCounters {
    packets: u64,
    bytes: ByteCount,
}

impl DepartureCounters {
    /// A packet of `len` bytes leaves.
    pub fn count(
        &mut self,
        at: Timestamp,
        len: ByteCount,
        boundary: Option<BoundaryMark>,
    ) -> Departures {
        self.packets += 1;
        self.bytes += len;
        Departures { at, packets: self.packets, bytes: self.bytes, boundary }
    }
}
