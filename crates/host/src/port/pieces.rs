//! Frames longer than a chunk of a port's memory: the number of their chunks, and their assembly.
//!
//! The kernel describes a frame by one descriptor per chunk. All but the last one carry `XDP_PKT_CONTD`
//! (Documentation/networking/af_xdp.rst: multi-buffer support; Linux 6.6).

use std::fmt;

use forebay_core::units::Timestamp;

use super::{ETHERNET_HEADER_LEN, PortError, os_error};
use crate::kernel;
use crate::offload::mtu;

/// Bytes that the kernel leaves free at the start of each chunk that it receives into (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Length of a VLAN tag (802.1Q), which comes on top of the MTU and the Ethernet header.
const VLAN_TAG_LEN: u32 = 4;
/// Bytes of a frame beyond the MTU.
const OVERHEAD: u32 = ETHERNET_HEADER_LEN as u32 + VLAN_TAG_LEN;
/// Bytes of a chunk for frames of common MTUs. The kernel accepts powers of two up to a page.
const SMALL_CHUNK: u32 = 2048;
/// Bytes of a chunk for longer frames: a page, the most that the kernel accepts.
const LARGE_CHUNK: u32 = 4096;
/// Chunks of the longest frame. Jumbo frames of 9000 bytes take three; network cards go up to 16 KB.
const CHUNKS_MAX: u32 = 4;
/// First Linux whose sockets take frames of several chunks (XDP_USE_SG).
const KERNEL_MIN: (u32, u32) = (6, 6);

/// The layout of frames in the memory of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a chunk, with the headroom of received frames.
    pub chunk_bytes: u32,
    /// Chunks of the longest frame.
    pub chunks: u32,
}

impl Layout {
    /// The layout for a device of the current network namespace.
    pub(crate) fn of(device: &str) -> Result<Self, PortError> {
        let mtu = mtu(device).map_err(os_error(device, "reading the MTU"))?;
        let max = MtuMax::here();
        if mtu > max.bytes {
            return Err(PortError::Mtu { device: device.to_string(), mtu, max });
        }
        Ok(Self::for_mtu(mtu))
    }

    /// The layout for a device with this MTU (bytes): one small chunk per frame, or else as many large chunks as the
    /// longest frame needs.
    pub fn for_mtu(mtu: u32) -> Self {
        let bytes = mtu.saturating_add(OVERHEAD);
        let is_short = bytes <= SMALL_CHUNK - HEADROOM;
        let chunk_bytes = if is_short { SMALL_CHUNK } else { LARGE_CHUNK };
        Self { chunk_bytes, chunks: bytes.div_ceil(chunk_bytes - HEADROOM) }
    }

    /// Bytes of the longest frame that can be received.
    pub fn longest_received(self) -> usize {
        (self.chunks * (self.chunk_bytes - HEADROOM)) as usize
    }

    /// Bytes of the longest frame that can be sent. Sent frames have no headroom.
    pub fn longest_sent(self) -> usize {
        (self.chunks * self.chunk_bytes) as usize
    }

    /// Whether a frame may take several chunks.
    pub fn is_in_pieces(self) -> bool {
        self.chunks > 1
    }
}

/// The largest MTU of a device that AF_XDP carries on a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MtuMax {
    /// In bytes.
    pub bytes: u32,
    /// Release of a kernel that carries less than a newer one.
    old_kernel: Option<String>,
}

impl MtuMax {
    /// The largest MTU on the running kernel.
    pub fn here() -> Self {
        Self::of(&kernel::release())
    }

    fn of(release: &str) -> Self {
        let is_old = kernel::version(release) < KERNEL_MIN;
        let chunks = if is_old { 1 } else { CHUNKS_MAX };
        let bytes = chunks * (LARGE_CHUNK - HEADROOM) - OVERHEAD;
        Self { bytes, old_kernel: is_old.then(|| release.into()) }
    }
}

/// For people: the bytes, and the kernel that carries more.
impl fmt::Display for MtuMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes)?;
        match &self.old_kernel {
            Some(release) => write!(f, " on Linux {release} (more from Linux 6.6 on)"),
            None => Ok(()),
        }
    }
}

/// A frame whose last piece has not come yet.
pub(super) struct Pieces {
    /// The pieces that had room.
    bytes: Vec<u8>,
    longest: usize,
    /// Length of all pieces so far, including pieces that had no room.
    len: usize,
    arrived: Timestamp,
    /// Frames longer than the longest allowed one.
    pub too_long: u64,
}

impl Pieces {
    /// Makes room for the longest frame of a layout.
    pub fn new(layout: Layout) -> Self {
        let longest = if layout.is_in_pieces() { layout.longest_received() } else { 0 };
        let bytes = Vec::with_capacity(longest);
        Self { bytes, longest, len: 0, arrived: Timestamp::ZERO, too_long: 0 }
    }

    /// Whether the next piece is the first of a frame.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece. The arrival of the first piece counts for the frame.
    pub fn push(&mut self, piece: &[u8], arrived: Timestamp) {
        if self.is_empty() {
            self.arrived = arrived;
        }
        self.len += piece.len();
        if self.len <= self.longest {
            self.bytes.extend_from_slice(piece);
        }
    }

    /// Passes the complete frame to `f`, unless it is too long.
    pub fn finish(&mut self, f: &mut dyn FnMut(&[u8], Timestamp)) {
        if self.len <= self.longest {
            f(&self.bytes, self.arrived);
        } else {
            self.too_long += 1;
        }
        self.bytes.clear();
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_use_the_fewest_and_smallest_chunks() {
        let layout = |mtu| {
            let Layout { chunk_bytes, chunks } = Layout::for_mtu(mtu);
            (chunk_bytes, chunks)
        };
        assert_eq!([layout(1500), layout(1774)], [(2048, 1); 2]);
        assert_eq!([layout(1775), layout(3822)], [(4096, 1); 2]);
        assert_eq!([layout(3823), layout(7662)], [(4096, 2); 2]);
        assert_eq!([layout(9000), layout(11_502)], [(4096, 3); 2]);
        assert_eq!(layout(15_342), (4096, CHUNKS_MAX));
        for mtu in [68, 1500, 1774, 1775, 3822, 3823, 9000, 15_342] {
            let layout = Layout::for_mtu(mtu);
            assert!(layout.longest_received() >= mtu as usize + 18, "{mtu}");
            assert_eq!(layout.is_in_pieces(), mtu > 3822, "{mtu}");
        }
    }

    #[test]
    fn kernel_without_multi_buffer_is_named() {
        let of = |release: &str| (MtuMax::of(release).bytes, MtuMax::of(release).to_string());
        assert_eq!(of("6.6.0"), (15_342, "15342".into()));
        let old = "3822 on Linux 6.1.0-37-amd64 (more from Linux 6.6 on)";
        assert_eq!(of("6.1.0-37-amd64"), (3822, old.into()));
    }

    #[test]
    fn pieces_join_in_order_and_oversized_is_counted() {
        let mut pieces = Pieces::new(Layout { chunk_bytes: 4096, chunks: 2 });
        let at = Timestamp::from_nanos;
        let mut seen = Vec::new();
        let frames = [(1, vec![3840, 3840]), (2, vec![3840, 3840, 1]), (3, vec![3840, 5])];
        for (frame, lens) in frames {
            assert!(pieces.is_empty());
            for (piece, len) in (0..).zip(lens) {
                pieces.push(&vec![frame + 10 * piece; len], at(u64::from(frame + piece)));
            }
            pieces.finish(&mut |bytes, arrived| seen.push((bytes.to_vec(), arrived)));
        }
        let whole = |frame: u8, last: usize| [vec![frame; 3840], vec![frame + 10; last]].concat();
        assert_eq!(seen, [(whole(1, 3840), at(1)), (whole(3, 5), at(3))]);
        assert_eq!(pieces.too_long, 1);
    }

    #[test]
    fn single_chunk_layout_takes_no_second_chunk() {
        let mut pieces = Pieces::new(Layout::for_mtu(1500));
        pieces.push(&[1; 60], Timestamp::ZERO);
        pieces.finish(&mut |_, _| panic!("a frame"));
        assert_eq!(pieces.too_long, 1);
    }
}
