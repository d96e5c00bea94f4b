//! Frames inside the emulator, in reused buffers.

use forebay_core::bundle::{BlockVersion, SampleBlock};
use forebay_core::packet::{self, Ecn, Headers, Packet};
use forebay_core::qdisc::Classifier;
use forebay_core::units::ByteCount;

use forebay_host::daemon::config::Role;

/// Bytes of a buffer: the largest frame of AF_XDP, where a chunk is at most a page.
pub(super) const FRAME_BYTES_MAX: usize = 4096;

/// Most frames inside the emulator, both directions together: 5 s of full frames at 150 Mbit/s, 256
/// MiB. Further frames are lost, and count as the emulator's own loss.
const FRAMES_MAX: usize = 1 << 16;

/// UDP ports of the boxes' messages.
const MESSAGE_PORTS: [u16; 2] = [Role::Sendbox.default_port(), Role::Receivebox.default_port()];

/// One Ethernet frame without FCS.
pub(super) struct Frame {
    buffer: Box<[u8]>,
    len: u32,
    /// The frame's pair of sites.
    pub pair: u16,
    headers: Option<Headers>,
    class: u8,
}

impl Frame {
    /// Puts the frame into the class that `classifier` gives it; a frame that is not IP stays in 0.
    pub fn classify(&mut self, classifier: &Classifier) {
        self.class = self.headers.map_or(0, |headers| classifier.classify(&headers));
    }

    /// Whether the frame carries a message between boxes.
    pub fn is_message(&self) -> bool {
        self.headers.is_some_and(|headers| {
            i32::from(headers.protocol) == libc::IPPROTO_UDP
                && MESSAGE_PORTS.contains(&headers.source_port)
                && MESSAGE_PORTS.contains(&headers.destination_port)
        })
    }

    /// [`SampleBlock::identity`]; 0 if the frame is not IP.
    pub fn identity(&self) -> u64 {
        self.headers.map_or(0, |headers| {
            SampleBlock::new(BlockVersion::V2, &headers, self.bytes()).identity()
        })
    }

    /// Remaining hops; `None` if the frame is not IP.
    pub fn hops_left(&self) -> Option<u8> {
        match self.bytes() {
            [_, _, _, _, _, _, _, _, _, _, _, _, 0x08, 0x00, rest @ ..] => rest.get(8).copied(),
            [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, rest @ ..] => rest.get(7).copied(),
            _ => None,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len as usize]
    }
}

impl Packet for Frame {
    fn len(&self) -> ByteCount {
        ByteCount::new(u64::from(self.len))
    }

    /// All frames that are not IP, such as ARP, are one flow.
    fn flow_hash(&self, key: u64) -> u64 {
        self.headers.map_or(0, |headers| headers.flow_hash(key))
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        packet::ecn(self.bytes())
    }

    fn set_ce(&mut self) {
        let len = self.len as usize;
        packet::set_ce(&mut self.buffer[..len]);
    }
}

/// A pool of free buffers.
#[derive(Default)]
pub(super) struct Pool {
    free: Vec<Box<[u8]>>,
    /// Number of buffers, free or in use.
    made: usize,
}

impl Pool {
    /// Copies a frame; `None` if it is larger than a buffer, empty, or all buffers are in use.
    pub fn frame(&mut self, bytes: &[u8], pair: u16) -> Option<Frame> {
        if bytes.is_empty() || bytes.len() > FRAME_BYTES_MAX {
            return None;
        }
        let mut buffer = match self.free.pop() {
            Some(buffer) => buffer,
            None if self.made == FRAMES_MAX => return None,
            None => {
                self.made += 1;
                vec![0; FRAME_BYTES_MAX].into_boxed_slice()
            }
        };
        buffer[..bytes.len()].copy_from_slice(bytes);
        let headers = Headers::parse(bytes).ok();
        Some(Frame { buffer, len: bytes.len() as u32, pair, headers, class: 0 })
    }

    /// Returns the buffer of a frame to the pool.
    pub fn recycle(&mut self, frame: Frame) {
        self.free.push(frame.buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_bounded() {
        let mut pool = Pool::default();
        for _ in 0..10 {
            let frame = pool.frame(&[7; 60], 3).unwrap();
            assert_eq!((frame.bytes(), frame.pair), (&[7; 60][..], 3));
            pool.recycle(frame);
        }
        assert_eq!(pool.made, 1);
        let inside: Vec<Frame> = (0..FRAMES_MAX).map_while(|_| pool.frame(&[1], 0)).collect();
        assert_eq!(inside.len(), FRAMES_MAX);
        assert!(pool.frame(&[1], 0).is_none());
        inside.into_iter().for_each(|frame| pool.recycle(frame));
        assert!(pool.frame(&[1], 0).is_some());
        assert!(pool.frame(&[], 0).is_none());
        assert!(pool.frame(&[1; FRAME_BYTES_MAX + 1], 0).is_none());
    }
}
