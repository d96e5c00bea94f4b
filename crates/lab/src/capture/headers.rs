//! Headers as on the wire: Ethernet or PPP, IPv4, and TCP or UDP. There is no payload. The checksums of TCP
//! and UDP cover it, so they are left 0.

use std::net::Ipv4Addr;

/// Bytes of an IPv4 header without options (RFC 791).
const IPV4_BYTES: usize = 20;
/// Bytes of a TCP header without options (RFC 9293).
const TCP_BYTES: usize = 20;
/// Bytes of a UDP header (RFC 768).
const UDP_BYTES: usize = 8;
/// Congestion experienced, in the byte that holds DSCP and ECN (RFC 3168).
const CE: u8 = 3;

/// The layer below IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet II without FCS.
    Ethernet,
    /// PPP without address and control fields, as in ns-3.
    Ppp,
}

impl LinkLayer {
    /// Number of the link type in captures (LINKTYPE_ETHERNET, LINKTYPE_PPP).
    pub const fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Ppp => 9,
        }
    }

    /// Bytes before the IP header.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Ppp => 2,
        }
    }
}

/// An end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Port of TCP or UDP.
    pub port: u16,
}

impl Host {
    /// A locally administered layer-2 address that a reader of the capture can recognise.
    fn mac(self) -> [u8; 6] {
        let [first, second, third, fourth] = self.address.octets();
        [0x02, 0, first, second, third, fourth]
    }
}

/// The fields common to all transports.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// Link layer of the whole capture.
    pub link: LinkLayer,
    /// Sender of the packet.
    pub from: Host,
    /// Receiver of the packet.
    pub to: Host,
    /// DSCP (six bits) and ECN (two).
    pub tos: u8,
}

/// The header of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// Flags, as in [`forebay_sim::flags`].
    pub flags: u16,
    /// Window, scaled.
    pub window: u16,
    /// Options of the segment.
    pub options: TcpOptions,
    /// Bytes of payload.
    pub payload: u16,
}

/// Options of TCP, padded to whole words of 32 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions(Vec<u8>);

impl TcpOptions {
    /// Options of a SYN: segments of `mss` bytes (RFC 9293), SACK (RFC 2018), timestamps and a window scale
    /// of `shift` (RFC 7323).
    pub fn of_syn(mss: u16, shift: u8, times: [u32; 2]) -> Self {
        let [high, low] = mss.to_be_bytes();
        let mut bytes = vec![2, 4, high, low, 4, 2, 8, 10];
        times.iter().for_each(|time| bytes.extend(time.to_be_bytes()));
        bytes.extend([1, 3, 3, shift]);
        Self(bytes)
    }

    /// Timestamps (the sender's and the echoed one) and SACK blocks, each from the first byte to the one
    /// after the last.
    pub fn of_segment(times: [u32; 2], blocks: &[[u32; 2]]) -> Self {
        let mut bytes = vec![1, 1, 8, 10];
        times.iter().for_each(|time| bytes.extend(time.to_be_bytes()));
        if !blocks.is_empty() {
            bytes.extend([1, 1, 5, (2 + 8 * blocks.len()) as u8]);
            blocks.iter().flatten().for_each(|edge| bytes.extend(edge.to_be_bytes()));
        }
        Self(bytes)
    }
}

/// Appends the headers of a segment to `out`; returns the bytes of the whole packet on the wire.
pub fn write_tcp(envelope: &Envelope, tcp: &Tcp, out: &mut Vec<u8>) -> usize {
    let header = TCP_BYTES + tcp.options.0.len();
    let bytes = envelope.link.bytes() + IPV4_BYTES + header + usize::from(tcp.payload);
    write_network(envelope, 6, bytes, out);
    out.extend(envelope.from.port.to_be_bytes());
    out.extend(envelope.to.port.to_be_bytes());
    out.extend(tcp.sequence.to_be_bytes());
    out.extend(tcp.acknowledgement.to_be_bytes());
    let words = (header / 4) as u16;
    out.extend((words << 12 | tcp.flags).to_be_bytes());
    out.extend(tcp.window.to_be_bytes());
    // Checksum and urgent pointer.
    out.extend([0; 4]);
    out.extend(&tcp.options.0);
    bytes
}

/// Appends the headers of a datagram with `bytes` on the wire, or as many as the headers have if that is
/// more.
pub fn write_udp(envelope: &Envelope, bytes: usize, out: &mut Vec<u8>) -> usize {
    let headers = envelope.link.bytes() + IPV4_BYTES + UDP_BYTES;
    let bytes = bytes.max(headers);
    write_network(envelope, 17, bytes, out);
    out.extend(envelope.from.port.to_be_bytes());
    out.extend(envelope.to.port.to_be_bytes());
    out.extend(((bytes - headers + UDP_BYTES) as u16).to_be_bytes());
    out.extend([0; 2]);
    bytes
}

fn write_network(envelope: &Envelope, protocol: u8, bytes: usize, out: &mut Vec<u8>) {
    match envelope.link {
        LinkLayer::Ethernet => {
            out.extend(envelope.to.mac());
            out.extend(envelope.from.mac());
            out.extend(0x0800_u16.to_be_bytes());
        }
        LinkLayer::Ppp => out.extend(0x0021_u16.to_be_bytes()),
    }
    let start = out.len();
    out.extend([0x45, envelope.tos]);
    out.extend(((bytes - envelope.link.bytes()) as u16).to_be_bytes());
    // No identification, don't fragment, TTL 64, checksum to follow.
    out.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    out.extend(envelope.from.address.octets());
    out.extend(envelope.to.address.octets());
    seal(&mut out[start..]);
}

/// Sets congestion experienced in the IPv4 header of `frame`, headers of [`write_tcp`] or a frame of a link.
pub fn set_ce(link: LinkLayer, frame: &mut [u8]) {
    if let Some(header) = frame.get_mut(link.bytes()..link.bytes() + IPV4_BYTES)
        && header[0] == 0x45
    {
        header[1] |= CE;
        seal(header);
    }
}

/// Writes the checksum of an IPv4 header without options (RFC 1071).
fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let words = header.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use forebay_core::packet::{Ecn, Headers};
    use forebay_sim::flags;

    use super::*;

    fn envelope(link: LinkLayer) -> Envelope {
        let host = |last, port| Host { address: Ipv4Addr::new(10, 1, last, 1), port };
        Envelope { link, from: host(1, 5000), to: host(2, 32768), tos: 46 << 2 | 2 }
    }

    #[test]
    fn segment_headers_are_read_back() {
        let options = TcpOptions::of_segment([7, 8], &[[100, 200], [300, 400]]);
        let tcp = Tcp {
            sequence: 1,
            acknowledgement: 2,
            flags: flags::ACK,
            window: 9,
            options,
            payload: 1448,
        };
        let mut frame = Vec::new();
        let bytes = write_tcp(&envelope(LinkLayer::Ethernet), &tcp, &mut frame);
        assert_eq!((frame.len(), bytes), (14 + 20 + 20 + 12 + 20, 14 + 20 + 20 + 12 + 20 + 1448));
        frame.resize(bytes, 0);
        let headers = Headers::parse(&frame).unwrap();
        assert_eq!((headers.protocol, headers.dscp, headers.ecn), (6, 46, Ecn::Ect0));
        assert_eq!((headers.source_port, headers.destination_port), (5000, 32768));
        assert_eq!(headers.source.to_string(), "10.1.1.1");
        set_ce(LinkLayer::Ethernet, &mut frame);
        assert_eq!(Headers::parse(&frame).unwrap().ecn, Ecn::Ce);
        // With its own checksum a header sums up to all ones.
        let words = frame[14..34].as_chunks::<2>().0.iter();
        let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn wire_sizes_match_the_simulator() {
        for (link, full, ack) in [(LinkLayer::Ethernet, 1514, 66), (LinkLayer::Ppp, 1502, 54)] {
            let size = |payload, blocks: &[[u32; 2]]| {
                let tcp = Tcp {
                    payload,
                    options: TcpOptions::of_segment([0; 2], blocks),
                    ..<_>::default()
                };
                write_tcp(&envelope(link), &tcp, &mut Vec::new())
            };
            assert_eq!([size(1448, &[]), size(0, &[])], [full, ack]);
            assert_eq!(size(0, &[[1, 2]; 3]), ack + 4 + 8 * 3);
            assert_eq!(write_udp(&envelope(link), 200, &mut Vec::new()), 200);
        }
        let options = TcpOptions::of_syn(1448, 8, [1, 0]);
        assert_eq!(options.0.len(), 20);
    }
}
