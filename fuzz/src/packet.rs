//! Any frame is parsed, sampled and marked within its bounds, and alike before and after a mark.

use forebay_core::bundle::{BlockVersion, SampleBlock};
use forebay_core::packet::{self, ETHERNET_HEADER, Ecn, Headers};

/// The bytes are a frame.
pub fn run(frame: &[u8]) {
    let headers = Headers::parse(frame);
    let blocks =
        |frame: &[u8]| BlockVersion::ALL.map(|version| SampleBlock::from_frame(version, frame));
    let mut marked = frame.to_vec();
    let is_marked = packet::set_ce(&mut marked);
    assert_eq!(blocks(&marked), blocks(frame));
    match (headers, Headers::parse(&marked)) {
        (Ok(before), Ok(after)) => {
            assert_eq!(before.ecn, packet::ecn(frame));
            assert_eq!(before.flow_hash(1), after.flow_hash(1));
            assert_eq!(is_marked, before.ecn != Ecn::NotEct);
            assert_eq!(Headers { ecn: before.ecn, ..after }, before);
            let at = ETHERNET_HEADER + usize::from(before.tags_len);
            let is_v4 = frame[at] >> 4 == 4;
            if is_v4 && sum(&frame[at..]) == 0xffff {
                assert_eq!(sum(&marked[at..]), 0xffff);
            }
        }
        (before, after) => assert_eq!(before, after),
    }
}

/// The ones' complement sum of the header of an IPv4 packet: 0xffff where its checksum is right (RFC 1071).
fn sum(packet: &[u8]) -> u32 {
    let header = &packet[..usize::from(packet[0] & 0x0f) * 4];
    let words = header.chunks_exact(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    words.map(u32::from).fold(0, |sum, word| (sum + word) % 0x10000 + (sum + word) / 0x10000)
}
