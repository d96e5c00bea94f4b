//! The bundles that a receivebox watches, and the packets that it sees of each.

use std::net::IpAddr;

use forebay_core::bundle::sample::SamplingKey;
use forebay_core::bundle::{BlockVersion, BundleId, EpochSize, Report};
use forebay_core::units::ByteCount;
use ipnet::IpNet;

/// Most sources of a bundle, and most destinations, whose packets can be left out.
pub const MAX_LEFT_OUT: usize = 64;

/// A bundle to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerBundle {
    /// Prefixes of the sending site.
    pub source: Vec<IpNet>,
    /// Prefixes of the receiving site.
    pub destination: Vec<IpNet>,
    /// Key of the sampling hash.
    pub key: SamplingKey,
    /// Epoch size in force.
    pub epoch_size: EpochSize,
    /// Version of the sampling block.
    pub version: BlockVersion,
}

/// A packet that closed an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Bundle of the packet.
    pub bundle: BundleId,
    /// The packet, when it was seen (CLOCK_MONOTONIC), and the counts until then.
    pub report: Report,
    /// [`SampleBlock::identity`](forebay_core::bundle::SampleBlock::identity); 0 from XDP, where no reader
    /// needs it.
    pub identity: u64,
    /// Bytes on the wire in front of the packet in its super-packet, which is seen as a whole.
    pub ahead: ByteCount,
}

/// Packets of a bundle seen since it was set for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleCounters {
    /// Bytes of Ethernet frames without FCS and without padding
    /// ([`unpadded_len`](forebay_core::packet::unpadded_len)).
    pub bytes: ByteCount,
    /// Packets of the bundle.
    pub packets: u64,
    /// Packets marked congestion experienced.
    pub ce: u64,
}

/// Where the boxes' messages go, or come from: UDP packets that are in no bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageEnd {
    /// Address of a box.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Source of a packet, and not its destination. Only a sendbox heeds sources.
    pub is_source: bool,
}
