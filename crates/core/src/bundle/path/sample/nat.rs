//! NAT between the boxes (RFC 3022). Versions 3 to 5 of the sampling block are version 2 without the
//! changed fields.
//!
//! | version | NAT changes | zeros instead |
//! |---|---|---|
//! | 3 | sources | 0..16; for TCP and UDP 40..42 |
//! | 4 | destinations | 16..32; for TCP and UDP 42..44 |
//! | 5 | both | both |
//!
//! All three versions also have zeros for:
//!
//! - the identification of a packet that is no fragment, since NAT may replace it (RFC 6864 section 5.3.1)
//! - checksum and identifier of ICMP (42..46)
//! - the payload of fragments, since the first has the ports; an IPv6 fragment keeps its fragment header
//!
//! NAT changes further fields, such as the packet in an ICMP error, or the checksum of SCTP. A packet with
//! such a change has another hash at each box, and closes no epoch.

use super::{BlockVersion, SampleBlock, TCP, TCP_HEADER, UDP, UDP_HEADER};
use crate::packet::be16;

/// The addresses and ports that NAT replaces on the way from sendbox to receivebox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nat {
    /// Addresses and ports of senders, for example if many hosts share an address.
    Source,
    /// Addresses and ports of receivers, for example with a forwarded port.
    Destination,
    /// Addresses and ports at both ends.
    Both,
}

impl Nat {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Source, Self::Destination, Self::Both];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Both => "both",
        }
    }

    /// Whether the senders' addresses and ports change.
    pub const fn changes_source(self) -> bool {
        matches!(self, Self::Source | Self::Both)
    }

    /// Whether the receivers' addresses and ports change.
    pub const fn changes_destination(self) -> bool {
        matches!(self, Self::Destination | Self::Both)
    }

    pub(super) const fn version(self) -> BlockVersion {
        match self {
            Self::Source => BlockVersion::V3,
            Self::Destination => BlockVersion::V4,
            Self::Both => BlockVersion::V5,
        }
    }
}

impl SampleBlock {
    /// A block of version 2 without the fields that NAT changes.
    #[must_use]
    pub fn through(mut self, nat: Nat) -> Self {
        const ICMP: u8 = 1;
        const FRAGMENT: u8 = 44;
        const ICMPV6: u8 = 58;
        if self.is_fragment() {
            self.0[40..].fill(0);
        } else {
            self.0[32..34].fill(0);
        }
        match self.transport() {
            // A payload too short for the header has no ports that NAT could change.
            TCP if self.payload_len() >= TCP_HEADER => self.leave_out_ports(nat),
            UDP if self.payload_len() >= UDP_HEADER => self.leave_out_ports(nat),
            ICMP | ICMPV6 => self.0[42..46].fill(0),
            FRAGMENT => self.0[48..].fill(0),
            _ => {}
        }
        if nat.changes_source() {
            self.0[..16].fill(0);
        }
        if nat.changes_destination() {
            self.0[16..32].fill(0);
        }
        self
    }

    fn leave_out_ports(&mut self, nat: Nat) {
        if nat.changes_source() {
            self.0[40..42].fill(0);
        }
        if nat.changes_destination() {
            self.0[42..44].fill(0);
        }
    }

    fn payload_len(&self) -> usize {
        be16(&self.0, 38).into()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::packet::frames::{V4, tagged, tcp, v6};

    /// A frame after NAT: another source, another destination or both, with other ports (or another
    /// identifier), checksums and identification.
    fn translated(frame: &[u8], nat: Nat) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let is_v6 = frame[12] == 0x86;
        let (source, destination, payload) = if is_v6 { (22, 38, 54) } else { (26, 30, 34) };
        let protocol = if is_v6 { frame[20] } else { frame[23] };
        let is_fragment = !is_v6 && be16(&frame, 20) & 0x3fff != 0;
        let has_ports = !is_fragment && [TCP, UDP].contains(&protocol);
        if nat.changes_source() {
            frame[source + 3] ^= 0x55;
        }
        if nat.changes_destination() {
            frame[destination + 3] ^= 0x55;
        }
        if has_ports && nat.changes_source() {
            frame[payload + 1] ^= 0x55;
        }
        if has_ports && nat.changes_destination() {
            frame[payload + 3] ^= 0x55;
        }
        match protocol {
            TCP if !is_fragment => frame[payload + 16] ^= 0x55,
            UDP if !is_fragment => frame[payload + 6] ^= 0x55,
            UDP => frame[payload] ^= 0x55,
            1 | 58 => frame[payload + 2..payload + 6].fill(0x55),
            _ => {}
        }
        if !is_v6 && !is_fragment {
            frame[18] ^= 0x55;
        }
        frame
    }

    /// A packet of each kind: TCP, UDP, ICMP, ESP, the first fragment of a UDP packet.
    fn packets() -> Vec<Vec<u8>> {
        let bytes: Vec<u8> = (1..60).collect();
        let v4 = |protocol, fragment_field, payload: &[u8]| {
            V4 { id: 7, protocol, fragment_field, payload, ..V4::default() }.frame()
        };
        alloc::vec![
            v4(6, 0x4000, &tcp(1)),
            v4(17, 0x4000, &bytes),
            v4(1, 0x4000, &bytes),
            v4(50, 0x4000, &bytes),
            v4(17, 0x2000, &bytes),
            v6(0, 6, &tcp(1)),
            v6(0, 17, &bytes),
            v6(0, 58, &bytes),
        ]
    }

    fn block(nat: Nat, frame: &[u8]) -> SampleBlock {
        SampleBlock::from_frame(nat.version(), frame).unwrap()
    }

    #[test]
    fn block_ignores_nat_fields_and_nothing_else() {
        for nat in Nat::ALL {
            for frame in packets() {
                let before = block(nat, &frame);
                assert_eq!(before, block(nat, &translated(&frame, nat)), "{nat:?} {frame:02x?}");
                assert_eq!(before, block(nat, &tagged(&frame, &[0x8100])));
                if nat != Nat::Both {
                    let both = block(nat, &translated(&frame, Nat::Both));
                    assert_ne!(before, both, "{nat:?} {frame:02x?}");
                }
            }
            assert_eq!(
                BlockVersion::ALL.into_iter().find(|it| it.nat() == Some(nat)),
                Some(nat.version())
            );
        }
    }

    #[test]
    fn packets_and_fragments_of_a_flow_differ() {
        for nat in Nat::ALL {
            let of = |fragment_field, id, protocol, payload: &[u8]| {
                block(nat, &V4 { id, fragment_field, protocol, payload, ..V4::default() }.frame())
            };
            assert_ne!(of(0, 0, 6, &tcp(1)), of(0, 0, 6, &tcp(2)));
            let datagram = |last: u8| [&[0, 1, 0, 2, 0, 24, 9, 9][..], &[0; 15], &[last]].concat();
            assert_ne!(of(0, 0, 17, &datagram(1)), of(0, 0, 17, &datagram(2)));
            assert_ne!(of(0x2000, 1, 17, &[0; 24]), of(0x2000, 2, 17, &[0; 24]));
            assert_ne!(of(0x2000, 1, 17, &[0; 24]), of(0x2003, 1, 17, &[0; 24]));
        }
    }
}
