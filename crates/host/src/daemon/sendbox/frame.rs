//! Frames in the box's queues, in buffers that are used again and again.

use forebay_core::packet::{self, Ecn, Headers, Packet};
use forebay_core::units::ByteCount;

/// One Ethernet frame.
pub struct Frame {
    buffer: Box<[u8]>,
    len: usize,
    class: u8,
    /// `None`: not IP, or not whole. Such a frame is still forwarded.
    headers: Option<Headers>,
}

impl Frame {
    /// The frame from its Ethernet header to the end of its payload.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The headers, as far as the frame has any.
    pub fn headers(&self) -> Option<&Headers> {
        self.headers.as_ref()
    }

    /// Puts the frame into a class; 0 is served first.
    pub fn set_class(&mut self, class: u8) {
        self.class = class;
    }
}

impl Packet for Frame {
    fn len(&self) -> ByteCount {
        ByteCount::new(self.len as u64)
    }

    fn flow_hash(&self, key: u64) -> u64 {
        // All frames without headers are one flow.
        self.headers.as_ref().map_or(0, |headers| headers.flow_hash(key))
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        packet::ecn(self.bytes())
    }

    fn set_ce(&mut self) {
        packet::set_ce(&mut self.buffer[..self.len]);
    }
}

/// Buffers that are not in use. It grows to the most that were ever in use at once, which the
/// queues' limits bound.
pub struct Pool {
    free: Vec<Box<[u8]>>,
    frame_bytes: usize,
}

impl Pool {
    /// Buffers for frames of up to `frame_bytes`, `reserve` of them ready.
    pub fn new(frame_bytes: usize, reserve: usize) -> Self {
        let buffer = || vec![0; frame_bytes].into_boxed_slice();
        Self { free: std::iter::repeat_with(buffer).take(reserve).collect(), frame_bytes }
    }

    /// A copy of a received frame; `None` if it is longer than any that the devices may carry.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.frame_bytes {
            return None;
        }
        let mut buffer =
            self.free.pop().unwrap_or_else(|| vec![0; self.frame_bytes].into_boxed_slice());
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(Frame { buffer, len: bytes.len(), class: 0, headers: Headers::parse(bytes).ok() })
    }

    /// Takes back the buffer of a frame that left.
    pub fn give_back(&mut self, frame: Frame) {
        self.free.push(frame.buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_never_shows_old_bytes() {
        let mut pool = Pool::new(64, 1);
        let first = pool.copy(&[7; 60]).unwrap();
        let address = first.bytes().as_ptr();
        pool.give_back(first);
        let second = pool.copy(&[1, 2, 3]).unwrap();
        assert_eq!(second.bytes(), [1, 2, 3]);
        assert_eq!(second.bytes().as_ptr(), address);
        assert_eq!(Packet::len(&second), ByteCount::new(3));
        assert!(pool.copy(&[0; 65]).is_none());
    }
}
