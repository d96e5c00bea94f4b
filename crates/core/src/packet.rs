//! What the boxes read of a packet: the header fields that classify, hash and sample it.

use core::net::IpAddr;

use crate::units::ByteCount;

/// The ECN field of the IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0,
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

/// A packet as the queueing disciplines see it.
pub trait Packet {
    /// Bytes on the wire that the packet is charged for: the Ethernet frame without FCS.
    fn len(&self) -> ByteCount;
    /// A hash of the flow's addresses, protocol and ports under `key`; equal for all packets of a flow.
    fn flow_hash(&self, key: u64) -> u64;
    /// The class that the host's classifier gave the packet; 0 is served first.
    fn class(&self) -> u8;
    /// The ECN field.
    fn ecn(&self) -> Ecn;
    /// Sets congestion experienced; called only on ECN-capable packets.
    fn set_ce(&mut self);
}

/// The header fields of one IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IP protocol or last IPv6 next header: 6 TCP, 17 UDP, 50 ESP.
    pub protocol: u8,
    /// Source port, 0 where the protocol has none or the packet is a later fragment.
    pub source_port: u16,
    /// Destination port, 0 as above.
    pub destination_port: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// ECN field.
    pub ecn: Ecn,
}
