//! Packets: 32 bytes by value, payload never exists. What few acknowledgements carry, SACK blocks,
//! stands in a side array.

use forebay_core::packet::{Ecn, Packet as QueuedPacket};
use forebay_core::units::{ByteCount, Timestamp};

/// What a packet is: a byte of one of its words, and so a number and no enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Kind(u8);

#[expect(non_upper_case_globals, reason = "used like the variants that they would be")]
impl Kind {
    /// A connection request.
    pub const Syn: Self = Self(0);
    /// Answer to the packet that opens a connection.
    pub const SynAck: Self = Self(1);
    /// A segment.
    pub const Data: Self = Self(2);
    /// An acknowledgement.
    pub const Ack: Self = Self(3);
    /// A datagram of a source without a transport.
    pub const Datagram: Self = Self(4);
    /// A message between the boxes of a bundle; its number is its place in a [`MessageTable`].
    pub const Message: Self = Self(5);
    /// A datagram that is answered.
    pub const Ping: Self = Self(6);
    /// The answer.
    pub const Pong: Self = Self(7);
    /// Of a short connection: the receiving end asks for it.
    pub const PeerSyn: Self = Self(8);
    /// The answer of the sending end.
    pub const PeerSynAck: Self = Self(9);
    /// The receiving end asks for data.
    pub const Ask: Self = Self(10);
    /// The end of the receiving end; its number is that of an acknowledgement.
    pub const Fin: Self = Self(11);
    /// The sending end confirms a handshake or, with number 1, an end.
    pub const Confirm: Self = Self(12);
    /// The receiving end confirms a handshake.
    pub const PeerConfirm: Self = Self(13);
    /// A sender asks whether the receiver's window is still shut.
    pub const WindowProbe: Self = Self(14);
}

/// The ECN field of the IP header, and the flags ECE and CWR of TCP (RFC 3168 sections 5 and 6.1): four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    /// Not ECN-capable.
    pub const NONE: Self = Self(0);
    /// ECN-capable transport, ECT(0).
    pub const ECT: Self = Self(Ecn::Ect0 as u8);
    /// ECN-capable transport of L4S, ECT(1).
    pub const ECT1: Self = Self(Ecn::Ect1 as u8);
    const ECE: u8 = 4;
    const CWR: u8 = 8;

    /// With congestion experienced.
    pub const fn with_ce(self) -> Self {
        Self(self.0 | Ecn::Ce as u8)
    }

    /// With CWR.
    pub const fn with_cwr(self) -> Self {
        Self(self.0 | Self::CWR)
    }

    /// Of an acknowledgement, which is not ECN-capable.
    pub const fn of_ack(is_ece: bool) -> Self {
        Self(if is_ece { Self::ECE } else { 0 })
    }

    /// Congestion was experienced.
    pub fn is_ce(self) -> bool {
        Ecn::from_bits(self.0) == Ecn::Ce
    }

    /// A packet of L4S without a mark.
    pub fn is_ect1(self) -> bool {
        Ecn::from_bits(self.0) == Ecn::Ect1
    }

    /// ECE is set.
    pub const fn is_ece(self) -> bool {
        self.0 & Self::ECE != 0
    }

    /// CWR is set.
    pub const fn is_cwr(self) -> bool {
        self.0 & Self::CWR != 0
    }

    /// These marks in a packet that is not ECN-capable; the flags of TCP stay.
    pub const fn without_ecn(self) -> Self {
        Self(self.0 & (Self::ECE | Self::CWR))
    }
}

/// A packet on its way: four words, each made before it is written. Parts of a word written one by one
/// and then read as a whole would stall that read until all earlier writes are done: 3 to 30 % of a
/// run, as fast as the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// When it was sent; in an acknowledgement the send time that it echoes (RFC 7323 section 4).
    pub sent: Timestamp,
    /// When it came to the queue it stands in, in nanoseconds; on a link with a log its row there; on
    /// a delay line when it comes out.
    pub queued: u64,
    /// Number, bytes, kind, marks and class, the lowest bits first.
    head: u64,
    /// Flow and place of SACK blocks.
    tail: u64,
}

const _: () = assert!(size_of::<Packet>() == 32);
const _: () = assert!(size_of::<Option<Packet>>() > 32, "a niche: copies would be cut around it");

impl Packet {
    /// Packet `number` of `flow` with `bytes` on the wire, sent at `sent`, without marks or SACK blocks.
    #[inline]
    pub fn new(kind: Kind, flow: u32, number: u32, bytes: u16, sent: Timestamp) -> Self {
        let head = u64::from(number) | u64::from(bytes) << 32 | u64::from(kind.0) << 48;
        Self { sent, queued: 0, head, tail: u64::from(flow) | u64::from(SackHandle::NONE.0) << 32 }
    }

    /// This packet with `marks`.
    #[inline]
    pub fn with_marks(self, marks: Marks) -> Self {
        Self { head: self.head & !(0xf << 56) | u64::from(marks.0) << 56, ..self }
    }

    /// This packet with the class that the next queue gives it, 0 to 15.
    #[inline]
    pub fn with_class(self, class: u8) -> Self {
        debug_assert!(class < 16);
        Self { head: self.head & !(0xf << 60) | u64::from(class) << 60, ..self }
    }

    /// This packet with these SACK blocks.
    #[inline]
    pub fn with_sack(self, sack: SackHandle) -> Self {
        Self { tail: u64::from(self.flow()) | u64::from(sack.0) << 32, ..self }
    }

    /// This packet as another kind.
    #[inline]
    pub fn turned(self, kind: Kind) -> Self {
        Self { head: self.head & !(0xff << 48) | u64::from(kind.0) << 48, ..self }
    }

    /// This packet, come to a queue at `queued`, see [`Packet::queued`].
    #[inline]
    pub fn queued_at(self, queued: u64) -> Self {
        Self { queued, ..self }
    }

    /// Number of the segment; in an acknowledgement of the next one expected.
    #[inline]
    pub fn number(&self) -> u32 {
        self.head as u32
    }

    /// Bytes on the wire.
    #[inline]
    pub fn bytes(&self) -> u16 {
        (self.head >> 32) as u16
    }

    /// What it is.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind((self.head >> 48) as u8)
    }

    /// Marks of the packet.
    #[inline]
    pub fn marks(&self) -> Marks {
        Marks((self.head >> 56) as u8 & 0xf)
    }

    /// The flow that it belongs to.
    #[inline]
    pub fn flow(&self) -> u32 {
        self.tail as u32
    }

    /// SACK blocks of the packet in [`SackTable`].
    #[inline]
    pub fn sack(&self) -> SackHandle {
        SackHandle((self.tail >> 32) as u32)
    }

    /// Whether this acknowledgement tells all that `earlier`, one before it, does. What carries SACK blocks,
    /// counts or another ECE is not given up (Linux, cake_ack_filter).
    pub fn supersedes(&self, earlier: &Self) -> bool {
        let are_acks = self.kind() == Kind::Ack && earlier.kind() == Kind::Ack;
        let is_same = self.flow() == earlier.flow() && self.marks() == earlier.marks();
        let is_bare = earlier.sack() == SackHandle::NONE;
        are_acks && is_same && is_bare && self.number() > earlier.number()
    }

    /// A number of its flow: connections, datagrams, messages and pings are counted apart.
    fn owner(&self) -> u64 {
        let space = match self.kind() {
            Kind::Datagram => 1,
            Kind::Message => 2,
            Kind::Ping | Kind::Pong => 3,
            _ => 0,
        };
        u64::from(self.flow()) | space << 32
    }

    /// A hash of what is the same all along the route and differs between packets: a segment that is
    /// sent again has another send time, and acknowledgements of the same number other SACK blocks.
    pub fn identity(&self) -> u64 {
        let number = u64::from(self.number()) << 32 | u64::from(self.sack().0);
        mix(self.sent.as_nanos()
            ^ mix(number ^ mix(self.owner() | (u64::from(self.kind().0)) << 40)))
    }
}

impl QueuedPacket for Packet {
    fn len(&self) -> ByteCount {
        ByteCount::new(u64::from(self.bytes()))
    }
    fn flow_hash(&self, key: u64) -> u64 {
        mix(key ^ mix(self.owner()))
    }
    fn class(&self) -> u8 {
        (self.head >> 60) as u8
    }
    fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.marks().0)
    }
    fn set_ce(&mut self) {
        *self = self.with_marks(self.marks().with_ce());
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): every bit depends on every other.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Segments `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first.
    pub start: u32,
    /// Behind the last.
    pub end: u32,
}

/// Blocks that fit beside a timestamp: 4 + 8 n bytes in the 28 that are left (RFC 2018 section 3).
pub(crate) const SACK_BLOCKS: usize = 3;

/// Segments that a receiver has got since the connection began, repeated ones too, as accurate feedback tells
/// them (RFC 9768 section 3.2: r.cep, and r.e1b in segments, both from zero, where section 3.2.1 begins at 5 and 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MarkCounts {
    /// With congestion experienced.
    pub ce: u32,
    /// With ECT(1).
    pub ect1: u32,
}

/// The SACK option of one acknowledgement, most recent block first (RFC 2018 section 4), what its
/// timestamp tells beside the echo, the counts of accurate feedback, and a window that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SackBlocks {
    blocks: [Range; SACK_BLOCKS],
    /// [`u32::MAX`] where nobody asks.
    one_way_ms: u32,
    /// Zeros where nobody asks.
    counts: MarkCounts,
    /// Segments; [`NO_WINDOW`] of a receiver whose window never changes.
    window: u16,
    len: u8,
}

const NO_WINDOW: u16 = u16::MAX;

const _: () = assert!(size_of::<SackBlocks>() == 40);

impl SackBlocks {
    /// No blocks.
    pub const NONE: Self = Self {
        blocks: [Range { start: 0, end: 0 }; SACK_BLOCKS],
        one_way_ms: u32::MAX,
        counts: MarkCounts { ce: 0, ect1: 0 },
        window: NO_WINDOW,
        len: 0,
    };

    /// Adds a block; more than [`SACK_BLOCKS`] are left out.
    pub fn push(&mut self, block: Range) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// The echoed segment was on its way for this long.
    pub fn tell_one_way(&mut self, millis: u32) {
        self.one_way_ms = millis;
    }

    /// How long the echoed segment was on its way, in milliseconds; `None` where nobody asks.
    pub fn one_way_ms(&self) -> Option<u32> {
        Some(self.one_way_ms).filter(|millis| *millis != u32::MAX)
    }

    /// The receiver has got so much.
    pub fn tell_counts(&mut self, counts: MarkCounts) {
        self.counts = counts;
    }

    /// What the receiver has got; zeros where nobody asks.
    pub fn counts(&self) -> MarkCounts {
        self.counts
    }

    /// The receiver has room for so many segments from the number of the acknowledgement on; more than 65,534
    /// count as that.
    pub fn tell_window(&mut self, segments: u32) {
        self.window =
            u16::try_from(segments).map_or(NO_WINDOW - 1, |window| window.min(NO_WINDOW - 1));
    }

    /// The receiver's window in segments; `None` of one whose window never changes.
    #[inline]
    pub fn window(&self) -> Option<u32> {
        (self.window != NO_WINDOW).then_some(self.window.into())
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[Range] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// Place of SACK blocks in a [`SackTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SackHandle(u32);

impl SackHandle {
    /// No blocks.
    pub const NONE: Self = Self(u32::MAX);
}

/// The SACK blocks of all acknowledgements on their way.
#[derive(Debug, Default)]
pub(crate) struct SackTable {
    entries: Vec<SackBlocks>,
    free: Vec<u32>,
}

impl SackTable {
    /// A place for what an acknowledgement carries, and that, which is nothing yet: it is written where
    /// it stands, a copy would be read before all of it is there.
    pub fn add(&mut self) -> (SackHandle, &mut SackBlocks) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(SackBlocks::NONE);
            (self.entries.len() - 1) as u32
        });
        let blocks = &mut self.entries[index as usize];
        (blocks.len, blocks.window, blocks.one_way_ms) = (0, NO_WINDOW, u32::MAX);
        blocks.counts = MarkCounts::default();
        (SackHandle(index), blocks)
    }

    /// The next blocks need a new place.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Frees the place of a packet that will not come.
    pub fn reclaim(&mut self, handle: SackHandle) {
        self.free.push(handle.0);
    }

    /// What stands at `handle`, which is good until it is freed.
    #[inline]
    pub fn get(&self, handle: SackHandle) -> &SackBlocks {
        if handle == SackHandle::NONE {
            &SackBlocks::NONE
        } else {
            &self.entries[handle.0 as usize]
        }
    }

    /// Frees the place of an acknowledgement that has been read.
    #[inline]
    pub fn free(&mut self, handle: SackHandle) {
        if handle != SackHandle::NONE {
            self.free.push(handle.0);
        }
    }
}

/// The messages on their way.
#[derive(Debug, Default)]
pub(crate) struct MessageTable {
    entries: Vec<Vec<u8>>,
    free: Vec<u32>,
}

impl MessageTable {
    /// Stores a copy of `message`; returns its place.
    pub fn put(&mut self, message: &[u8]) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Vec::new());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[place as usize];
        entry.clear();
        entry.extend_from_slice(message);
        place
    }

    /// Takes the message at `place`, which is free once it comes back by [`MessageTable::give_back`].
    pub fn take(&mut self, place: u32) -> Vec<u8> {
        std::mem::take(&mut self.entries[place as usize])
    }

    /// Frees `place` and keeps the memory of the message that was taken from it.
    pub fn give_back(&mut self, place: u32, message: Vec<u8>) {
        self.entries[place as usize] = message;
        self.free.push(place);
    }

    /// Frees the place of a packet that will not come.
    pub fn reclaim(&mut self, place: u32) {
        self.free.push(place);
    }

    /// The next message needs a new place.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_marks_are_apart() {
        let packet = Packet::new(Kind::Data, 0, 0, 100, Timestamp::ZERO).with_class(15);
        assert_eq!((packet.class(), packet.marks(), packet.ecn()), (15, Marks::NONE, Ecn::NotEct));
        let mut packet = packet.with_marks(Marks::ECT.with_cwr()).with_class(3);
        packet.set_ce();
        assert_eq!((packet.class(), packet.marks()), (3, Marks::ECT.with_ce().with_cwr()));
        assert_eq!((packet.kind(), packet.bytes()), (Kind::Data, 100));
    }

    #[test]
    fn an_acknowledgement_supersedes_earlier_ones_of_its_connection_that_tell_no_more() {
        let ack = |flow, number| Packet::new(Kind::Ack, flow, number, 66, Timestamp::ZERO);
        assert!(ack(1, 8).supersedes(&ack(1, 6)));
        let marked = ack(1, 6).with_marks(Marks::of_ack(true));
        let telling = ack(1, 6).with_sack(SackHandle(0));
        for kept in [ack(1, 8), ack(2, 6), marked, telling, ack(1, 6).turned(Kind::Fin)] {
            assert!(!ack(1, 8).supersedes(&kept), "{kept:?}");
        }
        assert_eq!(Marks::ECT1.with_ce().with_cwr().without_ecn(), Marks::NONE.with_cwr());
    }

    #[test]
    fn places_of_sack_blocks_are_used_again() {
        let mut table = SackTable::default();
        let block = Range { start: 3, end: 5 };
        for _ in 0..10 {
            let (handle, blocks) = table.add();
            assert_eq!((blocks.as_slice(), blocks.one_way_ms()), (&[][..], None));
            assert_eq!((blocks.counts(), blocks.window()), (MarkCounts::default(), None));
            blocks.push(block);
            blocks.tell_window(5);
            blocks.tell_one_way(7);
            blocks.tell_counts(MarkCounts { ce: 1, ect1: 9 });
            let blocks = table.get(handle);
            assert_eq!((blocks.as_slice(), blocks.one_way_ms()), (&[block][..], Some(7)));
            assert_eq!(
                (blocks.counts(), blocks.window()),
                (MarkCounts { ce: 1, ect1: 9 }, Some(5))
            );
            table.free(handle);
        }
        assert_eq!(table.entries.len(), 1);
        table.free(SackHandle::NONE);
        assert_eq!(table.free.len(), 1);
        assert_eq!(*table.get(SackHandle::NONE), SackBlocks::NONE);
    }

    #[test]
    fn a_window_that_is_larger_than_its_field_is_told_as_the_largest() {
        let mut blocks = SackBlocks::NONE;
        for (window, told) in [(0, 0), (65_534, 65_534), (65_535, 65_534), (u32::MAX, 65_534)] {
            blocks.tell_window(window);
            assert_eq!(blocks.window(), Some(told));
        }
    }

    #[test]
    fn a_fourth_block_does_not_fit() {
        let mut blocks = SackBlocks::NONE;
        for start in 0..4 {
            blocks.push(Range { start, end: start + 1 });
        }
        assert_eq!(blocks.as_slice().len(), 3);
    }
}
