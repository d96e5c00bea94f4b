//! Frames in the box's queues, in reusable buffers of about their size.

use forebay_core::packet::{self, Ecn, Headers, Packet};
use forebay_core::units::{ByteCount, Timestamp};

use super::checksum;

/// Bytes of the addresses at the start of a frame.
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag behind the addresses (IEEE 802.1Q).
const TAG: usize = 4;

/// The VLAN of a frame's outer tag, 0 if the tag names none; `None`: the frame has no tag of IEEE 802.1Q.
pub fn vlan_of(bytes: &[u8]) -> Option<u16> {
    match bytes.get(ADDRESSES..ADDRESSES + TAG)? {
        [0x81, 0x00, high, low] => Some(u16::from_be_bytes([*high, *low]) & 0xfff),
        _ => None,
    }
}

/// One Ethernet frame.
pub struct Frame {
    buffer: Box<[u8]>,
    len: usize,
    class: u8,
    arrived: Timestamp,
    /// `None`: the frame is not IP, or not complete. It is still forwarded.
    headers: Option<Headers>,
}

impl Frame {
    /// The frame from its Ethernet header to the end of its payload.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Best known time of arrival at the machine.
    pub fn arrived(&self) -> Timestamp {
        self.arrived
    }

    /// The parsed headers, if the frame has valid ones.
    pub fn headers(&self) -> Option<&Headers> {
        self.headers.as_ref()
    }

    /// Finishes a transport checksum that was left to a device; returns whether there was one.
    fn finish_checksum(&mut self) -> bool {
        checksum::finish(&mut self.buffer[..self.len])
    }

    /// Removes the outer tag, which the frame must have ([`vlan_of`]).
    pub fn untag(&mut self) {
        self.buffer.copy_within(ADDRESSES + TAG..self.len, ADDRESSES);
        self.len -= TAG;
        self.headers = Headers::parse(self.bytes()).ok();
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

/// Counts from frames that were taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Frames longer than the devices may carry; they are lost.
    pub oversized: u64,
    /// Checksums that a device of the LAN had left unfinished.
    pub finished_checksums: u64,
}

impl Found {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Self) {
        self.oversized += other.oversized;
        self.finished_checksums += other.finished_checksums;
    }
}

/// Smallest buffer, in bytes: packets such as acknowledgements fit. Each further size is twice the one
/// before, so that a queue of small frames takes no more than about twice its bytes.
const SMALLEST: usize = 128;

/// Unused buffers kept of each size. They cover the variation of a queue: a round takes and returns a few
/// hundred. Further buffers of a longer queue go back to the allocator.
const SPARE_MAX: usize = 1024;

/// Buffers that are not in use, by size.
pub struct Pool {
    /// Buffers of `SMALLEST << index` bytes each. The last size is exactly `frame_bytes`.
    spare: Vec<Vec<Box<[u8]>>>,
    frame_bytes: usize,
}

impl Pool {
    /// Buffers for frames of up to `frame_bytes`, with `reserve` of each size ready.
    pub fn new(frame_bytes: usize, reserve: usize) -> Self {
        let mut pool = Self { spare: Vec::new(), frame_bytes };
        for size in 0..=pool.size_for(frame_bytes) {
            let mut spare = Vec::with_capacity(SPARE_MAX);
            spare.extend(std::iter::repeat_with(|| pool.buffer(size)).take(reserve));
            pool.spare.push(spare);
        }
        pool
    }

    /// A copy of a frame with an unknown time of arrival; `None` if it is longer than the devices may carry.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.frame_bytes {
            return None;
        }
        let size = self.size_for(bytes.len());
        let mut buffer = self.spare[size].pop().unwrap_or_else(|| self.buffer(size));
        buffer[..bytes.len()].copy_from_slice(bytes);
        let (len, headers) = (bytes.len(), Headers::parse(bytes).ok());
        Some(Frame { buffer, len, class: 0, arrived: Timestamp::MAX, headers })
    }

    /// The received frame, ready to be sent on; `None` if it is too long.
    pub fn take_in(
        &mut self,
        bytes: &[u8],
        arrived: Timestamp,
        found: &mut Found,
    ) -> Option<Frame> {
        let Some(mut frame) = self.copy(bytes) else {
            found.oversized += 1;
            return None;
        };
        frame.arrived = arrived;
        // Before sampling: the checksum is part of the bytes that both boxes hash.
        found.finished_checksums += u64::from(frame.finish_checksum());
        Some(frame)
    }

    /// Takes back the buffer of a frame that left.
    pub fn give_back(&mut self, frame: Frame) {
        self.keep(frame.buffer);
    }

    /// Stores a buffer from a pool for frames of the same length.
    pub fn keep(&mut self, buffer: Box<[u8]>) {
        let size = self.size_for(buffer.len());
        if self.spare[size].len() < SPARE_MAX {
            self.spare[size].push(buffer);
        }
    }

    /// An unused buffer of the size of the frame's buffer, if there is one.
    pub fn spare_like(&mut self, frame: &Frame) -> Option<Box<[u8]>> {
        let size = self.size_for(frame.buffer.len());
        self.spare[size].pop()
    }

    /// Index of the smallest buffers that hold `len` bytes.
    fn size_for(&self, len: usize) -> usize {
        len.div_ceil(SMALLEST).next_power_of_two().ilog2() as usize
    }

    fn buffer(&self, size: usize) -> Box<[u8]> {
        vec![0; (SMALLEST << size).min(self.frame_bytes)].into_boxed_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES: usize = 1518;

    #[test]
    fn reused_buffer_never_shows_old_bytes() {
        let mut pool = Pool::new(FRAME_BYTES, 1);
        for (long, short) in [(60, 3), (1518, 1100)] {
            let first = pool.copy(&vec![7; long]).unwrap();
            let address = first.bytes().as_ptr();
            pool.give_back(first);
            let second = pool.copy(&vec![1; short]).unwrap();
            assert_eq!(second.bytes(), vec![1; short]);
            assert_eq!(second.bytes().as_ptr(), address);
            assert_eq!(Packet::len(&second), ByteCount::new(short as u64));
        }
    }

    #[test]
    fn frames_of_every_length_are_stored_compactly() {
        for frame_bytes in [64, 1518, 3840, 9018] {
            let mut pool = Pool::new(frame_bytes, 2);
            for len in 0..=frame_bytes {
                let frame = pool.copy(&vec![1; len]).unwrap();
                assert_eq!(frame.bytes().len(), len);
                let most = (2 * len).max(SMALLEST);
                assert!(frame.buffer.len() <= most, "{} for {len}", frame.buffer.len());
                pool.give_back(frame);
            }
            assert!(pool.copy(&vec![0; frame_bytes + 1]).is_none());
            assert!(pool.spare.iter().all(|spare| spare.len() == 2), "none changed its size");
        }
    }

    #[test]
    fn removing_a_tag_changes_nothing_else() {
        let mut pool = Pool::new(FRAME_BYTES, 1);
        let bare: Vec<u8> = (0..100).collect();
        let with = |tags: &[u8]| [&bare[..12], tags, &bare[12..]].concat();
        assert_eq!((vlan_of(&bare), vlan_of(&with(&[0x81])[..13])), (None, None));
        let provider = [0x88, 0xa8, 0, 9];
        for (tags, vlan) in [
            (&[0x81, 0, 0, 7][..], Some(7)),
            (&[0x81, 0, 0xef, 0xfe], Some(0xffe)),
            (&[0x81, 0, 0xe0, 0], Some(0)),
            (&provider, None),
        ] {
            assert_eq!(vlan_of(&with(tags)), vlan);
        }
        let inner = with(&provider);
        for frame in [bare.clone(), inner] {
            let tagged = [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat();
            let mut untagged = pool.copy(&tagged).unwrap();
            untagged.untag();
            assert_eq!(untagged.bytes(), frame);
        }
    }

    #[test]
    fn what_a_long_queue_held_is_let_go() {
        let mut pool = Pool::new(FRAME_BYTES, 0);
        let queue: Vec<Frame> = (0..2 * SPARE_MAX).map(|_| pool.copy(&[0; 60]).unwrap()).collect();
        queue.into_iter().for_each(|frame| pool.give_back(frame));
        assert_eq!(pool.spare[0].len(), SPARE_MAX);
        assert_eq!(pool.spare[0].capacity(), SPARE_MAX, "the list itself never grows");
    }
}
