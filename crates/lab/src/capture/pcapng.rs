//! Captures in the format of Wireshark: a section, its interfaces, packets with comments.
//!
//! Source: draft-ietf-opsawg-pcapng, sections 4.1 (Section Header), 4.2 (Interface Description) and 4.3 (Enhanced
//! Packet). All numbers are little-endian.

use std::io::{self, Write};

/// Most captured bytes of a packet: the headers of a segment with all options that fit.
pub const SNAP_BYTES: u32 = 128;

/// Block type of a Section Header (pcapng draft, section 4.1).
const SECTION: u32 = 0x0a0d_0d0a;
/// Block type of an Interface Description (pcapng draft, section 4.2).
const INTERFACE: u32 = 1;
/// Block type of an Enhanced Packet (pcapng draft, section 4.3).
const PACKET: u32 = 6;

/// Option code: end of options.
const END: u16 = 0;
/// Option code: comment, allowed in every block.
const COMMENT: u16 = 1;
/// Option code of an interface: its name (`if_name`).
const NAME: u16 = 2;
/// Option code of an interface: resolution of its times (`if_tsresol`).
const RESOLUTION: u16 = 9;
/// Option code of a section: the program that wrote it (`shb_userappl`).
const PROGRAM: u16 = 4;
/// Times are nanoseconds: ten to the power of minus this.
const NANOSECONDS: u8 = 9;

/// A capture under way.
pub struct Pcapng<W> {
    out: W,
    written: u64,
    limit: u64,
}

/// A packet at one point.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Number of its interface, in the order of the interfaces' descriptions.
    pub interface: u32,
    /// When the packet passed, in nanoseconds.
    pub at_ns: u64,
    /// The captured bytes, at most [`SNAP_BYTES`].
    pub captured: &'a [u8],
    /// Bytes on the wire.
    pub bytes: u32,
    /// Comment; empty: none.
    pub comment: &'a str,
}

impl<W: Write> Pcapng<W> {
    /// Begins a capture of at most `limit` bytes with its comment and its interfaces, which share one link
    /// type.
    pub fn new(
        out: W,
        limit: u64,
        comment: &str,
        link_type: u16,
        interfaces: &[String],
    ) -> io::Result<Self> {
        let mut it = Self { out, written: 0, limit };
        // Byte order, version 1.0, length of the section unknown.
        let mut head = [0x1a2b_3c4d_u32.to_le_bytes(), [1, 0, 0, 0]].concat();
        head.extend([0xff; 8]);
        let program = concat!("forebay ", env!("CARGO_PKG_VERSION"));
        head.extend(options(&[(COMMENT, comment.as_bytes()), (PROGRAM, program.as_bytes())]));
        it.block(SECTION, &head)?;
        for name in interfaces {
            let mut body = [link_type.to_le_bytes(), [0, 0]].concat();
            body.extend(SNAP_BYTES.to_le_bytes());
            body.extend(options(&[(NAME, name.as_bytes()), (RESOLUTION, &[NANOSECONDS])]));
            it.block(INTERFACE, &body)?;
        }
        Ok(it)
    }

    /// Appends a packet; false if the capture has no room for it.
    pub fn write(&mut self, frame: &Frame<'_>) -> io::Result<bool> {
        let captured = frame.captured.len() as u32;
        let words = [frame.interface, (frame.at_ns >> 32) as u32, frame.at_ns as u32];
        let words = words.into_iter().chain([captured, frame.bytes.max(captured)]);
        let mut body: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        body.extend(frame.captured);
        pad(&mut body);
        if !frame.comment.is_empty() {
            body.extend(options(&[(COMMENT, frame.comment.as_bytes())]));
        }
        if self.written + block_bytes(&body) > self.limit {
            return Ok(false);
        }
        self.block(PACKET, &body)?;
        Ok(true)
    }

    /// Writes buffered bytes; returns the bytes of the capture.
    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.written)
    }

    /// Type, length, body, length again.
    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let bytes = block_bytes(body);
        let length = (bytes as u32).to_le_bytes();
        for part in [&kind.to_le_bytes()[..], &length, body, &length] {
            self.out.write_all(part)?;
        }
        self.written += bytes;
        Ok(())
    }
}

/// Bytes of a packet block without a comment and with `captured` captured bytes.
pub fn packet_bytes(captured: usize) -> u64 {
    (12 + 20 + captured.next_multiple_of(4)) as u64
}

fn block_bytes(body: &[u8]) -> u64 {
    12 + body.len() as u64
}

/// Options of a block, each of at most 65535 bytes, and their end.
fn options(options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (code, value) in options {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        bytes.extend(code.to_le_bytes());
        bytes.extend((value.len() as u16).to_le_bytes());
        bytes.extend(value);
        pad(&mut bytes);
    }
    bytes.extend(END.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// Pads to whole words of 32 bits.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Types and bodies of the blocks of a capture; panics where lengths disagree.
#[cfg(test)]
pub fn blocks(mut capture: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut blocks = Vec::new();
    while !capture.is_empty() {
        let (kind, length) = (word(capture, 0), word(capture, 4) as usize);
        assert!(length % 4 == 0 && word(capture, length - 4) as usize == length);
        blocks.push((kind, capture[8..length - 4].to_vec()));
        capture = &capture[length..];
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_declared_length_and_given_content() {
        let mut out = Vec::new();
        let names = ["sender".to_string(), "forward-in".into()];
        let mut capture = Pcapng::new(&mut out, 10_000, "a plan", 1, &names).unwrap();
        let frame = Frame {
            interface: 1,
            at_ns: 3 << 32 | 7,
            captured: &[9; 5],
            bytes: 1514,
            comment: "lost",
        };
        assert!(capture.write(&frame).unwrap());
        let bytes = capture.finish().unwrap();
        assert_eq!(bytes, out.len() as u64);
        let blocks = blocks(&out);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, INTERFACE, PACKET]);
        assert!(blocks[1].1.windows(6).any(|part| part == b"sender"));
        let packet = &blocks[3].1;
        let words: Vec<u8> =
            [1_u32, 3, 7, 5, 1514].into_iter().flat_map(u32::to_le_bytes).collect();
        assert_eq!(packet[..20], words);
        assert_eq!(packet[20..28], [9, 9, 9, 9, 9, 0, 0, 0]);
        assert_eq!(packet[28..36], [1, 0, 4, 0, b'l', b'o', b's', b't']);
        assert_eq!(packet.len() as u64 + 12, packet_bytes(5) + 8 + 4);
    }

    #[test]
    fn a_capture_ends_before_its_limit() {
        let mut out = Vec::new();
        let mut capture = Pcapng::new(&mut out, 500, "", 1, &["sender".into()]).unwrap();
        let frame = Frame { interface: 0, at_ns: 0, captured: &[0; 66], bytes: 66, comment: "" };
        let mut packets = 0;
        while capture.write(&frame).unwrap() {
            packets += 1;
        }
        let bytes = capture.finish().unwrap();
        assert!(packets > 0 && bytes <= 500 && bytes + packet_bytes(66) > 500);
        assert_eq!(bytes, out.len() as u64);
    }
}
