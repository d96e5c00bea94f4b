//! Bundles: the traffic of one site towards another, measured and paced as one.
//!
//! The sendbox remembers when boundary packets left and how many bytes had been sent. The receivebox reports
//! when they arrived and how many bytes it had received. From both the sendbox computes the RTT and rates. A
//! congestion-control algorithm derives a window from them, and the window becomes the rate of the shaper.
//!
//! ```text
//! protocol   messages between the boxes: keys, sessions, agreements, and whether the peer is alive
//! path       observations: boundary packets and their reports
//! control    decisions: rate, epoch size, whether to shape at all, shares of an uplink
//! ```
//! The endpoints combine the three: [`sendbox`] and [`receivebox`].

pub(crate) mod control;
pub(crate) mod path;
pub(crate) mod protocol;
pub mod receivebox;
pub mod sendbox;
pub mod table;
pub mod tuning;
pub mod waits;

pub use self::control::{decision, uplink};
pub use self::path::sample::nat::Nat;
pub use self::path::sample::{BlockVersion, BlockVersions, SampleBlock, SamplingKey};
pub use self::path::{sample, segments, spans};
pub use self::protocol::{endpoint, keys, mtu, paths, peer, scope, wire};

use crate::units::{ByteCount, Timestamp};

/// Longest name of a bundle (characters): names appear in tables, rows and log lines.
pub const NAME_MAX: usize = 32;

/// The bundle that a message between two boxes is about.
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

/// Report of the receivebox about one boundary packet.
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
    /// Packets among these that were marked congestion experienced.
    pub received_ce: u64,
    /// Epoch size in force at the receivebox.
    pub epoch_size: EpochSize,
}

/// Bytes of each packet on the path that neither box counts: headers that are added after the sendbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes per packet.
    pub bytes: u16,
}

impl Overhead {
    /// Bytes on the path of `packets` packets. The boxes count `bytes` for them.
    pub const fn on(self, packets: u64, bytes: ByteCount) -> ByteCount {
        ByteCount::new(bytes.as_u64().saturating_add(self.of(packets)))
    }

    /// Bytes that the boxes count of `packets` packets that take `bytes` on the path.
    pub const fn off(self, packets: u64, bytes: ByteCount) -> ByteCount {
        ByteCount::new(bytes.as_u64().saturating_sub(self.of(packets)))
    }

    const fn of(self, packets: u64) -> u64 {
        packets.saturating_mul(self.bytes as u64)
    }
}

/// Counters of the packets that have left a sendbox after its shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departures {
    /// When the last packet left.
    pub at: Timestamp,
    /// When the last packet left.
    pub packets: u64,
    /// Bytes of these packets as the receivebox counts them ([`unpadded_len`](crate::packet::unpadded_len)).
    pub bytes: ByteCount,
    /// Identifies the last packet if it is a boundary.
    pub boundary: Option<BoundaryMark>,
}

/// Identifies a boundary packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundaryMark {
    /// Keyed sampling hash of the packet.
    pub hash: u64,
    /// The host's own identifier of the packet; comes back in [`Epoch`](sendbox::Epoch).
    pub identity: u64,
}

/// Counts departures, for a host that sees every packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DepartureCounters {
    packets: u64,
    bytes: ByteCount,
}

impl DepartureCounters {
    /// Counts a departing packet of `len` bytes.
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
