//! Notices packets whose transport checksum was left to a device that never comes.
//!
//! A veth or virtio device hands a packet of a local sender over with only the pseudo-header summed
//! up in its checksum field, and a note beside the packet that the rest is to be done
//! (`CHECKSUM_PARTIAL`). AF_XDP knows no such note: sent on as it is, the packet would be dropped
//! by its receiver. The device at fault stands in another machine or namespace, where it cannot be
//! asked; so the packets are looked at.

/// Packets looked at together.
const WINDOW: u32 = 1024;
/// That many of them tell a device at fault from chance: a right checksum equals the sum of the
/// pseudo-header once in 65,536 packets.
const AT_FAULT: u32 = 8;

/// Counts packets with an unfinished checksum.
#[derive(Debug, Default)]
pub struct ChecksumGuard {
    seen: u32,
    unfinished: u32,
}

impl ChecksumGuard {
    /// Looks at a frame; true once it is clear that some device leaves checksums unfinished.
    pub fn is_at_fault(&mut self, frame: &[u8]) -> bool {
        if self.seen == WINDOW {
            *self = Self::default();
        }
        self.seen += 1;
        self.unfinished += u32::from(is_unfinished(frame));
        self.unfinished >= AT_FAULT
    }
}

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Whether the checksum field of a TCP or UDP packet holds the sum of the pseudo-header alone
/// (RFC 9293 section 3.1, RFC 768, RFC 8200 section 8.1).
fn is_unfinished(frame: &[u8]) -> bool {
    let Some((addresses, protocol, segment)) = segment(frame) else { return false };
    let at = if protocol == TCP { 16 } else { 6 };
    let Some(field) = segment.get(at..at + 2) else { return false };
    let length = segment.len() as u32;
    let mut sum = u32::from(protocol) + (length >> 16) + (length & 0xffff);
    sum += addresses.chunks_exact(2).map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == word(field)
}

/// Addresses, protocol and segment of a whole, unfragmented TCP or UDP packet.
fn segment(frame: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let ip = frame.get(ETHERNET..)?;
    let (addresses, protocol, header, total) = match word(frame.get(12..14)?) {
        0x0800 if ip.len() >= 20 => {
            if word(&ip[6..8]) & 0x3fff != 0 {
                return None;
            }
            (&ip[12..20], ip[9], usize::from(ip[0] & 0x0f) * 4, word(&ip[2..4]) as usize)
        }
        0x86dd if ip.len() >= 40 => (&ip[8..40], ip[6], 40, 40 + word(&ip[4..6]) as usize),
        _ => return None,
    };
    let segment = ip.get(header..total)?;
    matches!(protocol, TCP | UDP).then_some((addresses, protocol, segment))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from(bytes[0]) << 8 | u32::from(bytes[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame from 10.0.0.1 to 10.0.0.2 with this checksum field.
    fn udp(checksum: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame
            .extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x13, 0x88, 0x13, 0x89, 0, 12]);
        frame.extend(checksum.to_be_bytes());
        frame.extend(*b"data");
        frame
    }

    /// 0x0a00 + 1 + 0x0a00 + 2 + 17 + 12.
    const PSEUDO_HEADER: u16 = 0x1420;

    #[test]
    fn the_sum_of_the_pseudo_header_alone_is_unfinished() {
        assert!(is_unfinished(&udp(PSEUDO_HEADER)));
        assert!(!is_unfinished(&udp(!PSEUDO_HEADER)));
        assert!(!is_unfinished(&udp(0)), "UDP without a checksum");
        let mut fragment = udp(PSEUDO_HEADER);
        fragment[20] = 0x20;
        assert!(!is_unfinished(&fragment));
        let whole = udp(PSEUDO_HEADER);
        for len in 0..whole.len() {
            assert!(!is_unfinished(&whole[..len]), "cut at {len}");
        }
    }

    #[test]
    fn ipv6_and_tcp_are_understood() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, TCP, 64]);
        frame.extend([0; 15].iter().chain(&[1]).chain(&[0; 15]).chain(&[2]));
        frame.extend([0; 16]);
        frame.extend([0, 1 + 2 + TCP + 20, 0, 0]);
        assert!(is_unfinished(&frame));
    }

    #[test]
    fn chance_is_no_fault_and_a_fault_shows_soon() {
        let mut guard = ChecksumGuard::default();
        let mut frames = (0..100_000).map(|i| if i % 1000 == 0 { PSEUDO_HEADER } else { 1 });
        assert!(!frames.any(|checksum| guard.is_at_fault(&udp(checksum))));
        let mut guard = ChecksumGuard::default();
        let bad = udp(PSEUDO_HEADER);
        assert_eq!((0..100).position(|_| guard.is_at_fault(&bad)), Some(AT_FAULT as usize - 1));
    }
}
