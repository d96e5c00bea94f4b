//! Packets: 32 bytes by value, without payload. Data that few acknowledgements carry, such as SACK blocks, is
//! in a side array.

use forebay_core::packet::{Ecn, Packet as QueuedPacket};
use forebay_core::units::{ByteCount, Timestamp};

/// Kind of a packet. It is one byte of a packet's word, and therefore a number instead of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Kind(u8);

#[expect(non_upper_case_globals, reason = "used like enum variants")]
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
    /// A datagram that the far end answers.
    pub const Ping: Self = Self(6);
    /// The answer to a ping.
    pub const Pong: Self = Self(7);
    /// The receiving end of a short connection opens it.
    pub const PeerSyn: Self = Self(8);
    /// The sending end's answer to [`Kind::PeerSyn`].
    pub const PeerSynAck: Self = Self(9);
    /// The receiving end asks for data.
    pub const Ask: Self = Self(10);
    /// The receiving end closes; its number is an acknowledgement number.
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
    /// TCP flag ECE: the receiver has seen a mark (RFC 3168 section 6.1).
    const ECE: u8 = 4;
    /// TCP flag CWR: the sender has reduced its window (RFC 3168 section 6.1).
    const CWR: u8 = 8;

    /// These marks with congestion experienced.
    pub const fn with_ce(self) -> Self {
        Self(self.0 | Ecn::Ce as u8)
    }

    /// These marks with CWR.
    pub const fn with_cwr(self) -> Self {
        Self(self.0 | Self::CWR)
    }

    /// The marks of an acknowledgement, which is not ECN-capable.
    pub const fn of_ack(is_ece: bool) -> Self {
        Self(if is_ece { Self::ECE } else { 0 })
    }

    /// Whether the packet experienced congestion.
    pub fn is_ce(self) -> bool {
        Ecn::from_bits(self.0) == Ecn::Ce
    }

    /// Whether it is a packet of L4S without a mark.
    pub fn is_ect1(self) -> bool {
        Ecn::from_bits(self.0) == Ecn::Ect1
    }

    /// Whether ECE is set.
    pub const fn is_ece(self) -> bool {
        self.0 & Self::ECE != 0
    }

    /// Whether CWR is set.
    pub const fn is_cwr(self) -> bool {
        self.0 & Self::CWR != 0
    }

    /// These marks for a packet that is not ECN-capable; the TCP flags stay.
    pub const fn without_ecn(self) -> Self {
        Self(self.0 & (Self::ECE | Self::CWR))
    }
}

/// A packet on its way: four words, each built before it is written. If code wrote parts of a word and then
/// read the whole word, the read would stall until all earlier writes are done. That costs 3 to 30 % of a
/// run, depending on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Send time; in an acknowledgement, the send time that it echoes (RFC 7323 section 4).
    pub sent: Timestamp,
    /// Arrival time at its current queue, in nanoseconds. On a link with a log, its row there; on a delay
    /// line, the time at which it comes out.
    pub queued: u64,
    /// Number, bytes, kind, marks and class, from the lowest bits up.
    head: u64,
    /// Flow, and place of the SACK blocks.
    tail: u64,
}

/// Half a cache line of 64 bytes.
const _: () = assert!(size_of::<Packet>() == 32);
/// Without a niche, a copy of an `Option<Packet>` moves whole words.
const _: () = assert!(size_of::<Option<Packet>>() > 32, "a niche would split copies");

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

    /// This packet with another number.
    pub fn with_number(self, number: u32) -> Self {
        Self { head: self.head & !u64::from(u32::MAX) | u64::from(number), ..self }
    }

    /// This packet as another kind.
    #[inline]
    pub fn turned(self, kind: Kind) -> Self {
        Self { head: self.head & !(0xff << 48) | u64::from(kind.0) << 48, ..self }
    }

    /// This packet with arrival at a queue at `queued`, see [`Packet::queued`].
    #[inline]
    pub fn queued_at(self, queued: u64) -> Self {
        Self { queued, ..self }
    }

    /// Number of the segment; in an acknowledgement, the number of the next segment expected.
    #[inline]
    pub fn number(&self) -> u32 {
        self.head as u32
    }

    /// Bytes on the wire.
    #[inline]
    pub fn bytes(&self) -> u16 {
        (self.head >> 32) as u16
    }

    /// Kind of the packet.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind((self.head >> 48) as u8)
    }

    /// ECN field and TCP flags of the packet.
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

    /// Whether this acknowledgement makes `earlier`, one before it, needless. An acknowledgement with SACK
    /// blocks, counts or a different ECE flag is kept (Linux, cake_ack_filter).
    pub fn supersedes(&self, earlier: &Self) -> bool {
        let are_acks = self.kind() == Kind::Ack && earlier.kind() == Kind::Ack;
        let is_same = self.flow() == earlier.flow() && self.marks() == earlier.marks();
        let is_bare = earlier.sack() == SackHandle::NONE;
        are_acks && is_same && is_bare && self.number() > earlier.number()
    }

    /// A number of its flow: connections, datagrams, messages and pings are numbered separately.
    fn owner(&self) -> u64 {
        let space = match self.kind() {
            Kind::Datagram => 1,
            Kind::Message => 2,
            Kind::Ping | Kind::Pong => 3,
            _ => 0,
        };
        u64::from(self.flow()) | space << 32
    }

    /// A hash that stays the same along the route and differs between packets. A segment sent again has
    /// another send time, and acknowledgements of the same number have other SACK blocks.
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
    /// The first segment.
    pub start: u32,
    /// The segment after the last.
    pub end: u32,
}

/// Blocks that fit next to a timestamp: 4 + 8 n bytes in the remaining 28 (RFC 2018 section 3).
pub(crate) const SACK_BLOCKS: usize = 3;

/// Segments that a receiver has got since the connection began, including repeated ones, as accurate ECN
/// feedback reports them. RFC 9768 section 3.2 names them r.cep and r.e1b; here both count segments from
/// zero, where section 3.2.1 begins at 5 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MarkCounts {
    /// Segments with congestion experienced.
    pub ce: u32,
    /// Segments with ECT(1).
    pub ect1: u32,
}

/// Options of one acknowledgement: the SACK option, most recent block first (RFC 2018 section 4), and the
/// counts of accurate feedback. A timestamp may also give a one-way delay, and the window may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SackBlocks {
    blocks: [Range; SACK_BLOCKS],
    /// One-way delay in milliseconds; [`u32::MAX`] if the sender does not use it.
    one_way_ms: u32,
    /// Zeros if the sender does not use them.
    counts: MarkCounts,
    /// Window in segments; [`NO_WINDOW`] for a receiver whose window never changes.
    window: u16,
    len: u8,
}

/// Window of a receiver whose window never changes.
const NO_WINDOW: u16 = u16::MAX;

/// Blocks are stored in a table, one entry per acknowledgement under way.
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

    /// Adds a block, unless there are [`SACK_BLOCKS`] already.
    pub fn push(&mut self, block: Range) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// Sets the time that the echoed segment was on its way.
    pub fn tell_one_way(&mut self, millis: u32) {
        self.one_way_ms = millis;
    }

    /// Time that the echoed segment was on its way, in milliseconds; `None` if the sender does not use it.
    pub fn one_way_ms(&self) -> Option<u32> {
        Some(self.one_way_ms).filter(|millis| *millis != u32::MAX)
    }

    /// Sets the counts of segments that the receiver has got.
    pub fn tell_counts(&mut self, counts: MarkCounts) {
        self.counts = counts;
    }

    /// Counts of segments that the receiver has got; zeros if the sender does not use them.
    pub fn counts(&self) -> MarkCounts {
        self.counts
    }

    /// Sets the window: room for this many segments from the number of the acknowledgement on. More than
    /// 65,534 count as 65,534.
    pub fn tell_window(&mut self, segments: u32) {
        self.window =
            u16::try_from(segments).map_or(NO_WINDOW - 1, |window| window.min(NO_WINDOW - 1));
    }

    /// The receiver's window in segments; `None` if it never changes.
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

/// The options of all acknowledgements on their way.
#[derive(Debug, Default)]
pub(crate) struct SackTable {
    entries: Vec<SackBlocks>,
    free: Vec<u32>,
}

impl SackTable {
    /// Returns a new place and its empty options. The caller fills them in place: a copy would be read back
    /// before its writes are done.
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

    /// Whether the next options need new memory.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Frees the place of a packet that was lost or dropped.
    pub fn reclaim(&mut self, handle: SackHandle) {
        self.free.push(handle.0);
    }

    /// The options at `handle`, which stays valid until it is freed.
    #[inline]
    pub fn get(&self, handle: SackHandle) -> &SackBlocks {
        if handle == SackHandle::NONE {
            &SackBlocks::NONE
        } else {
            &self.entries[handle.0 as usize]
        }
    }

    /// Frees the place of an acknowledgement that the sender has read.
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

    /// Takes the message at `place`, which becomes free with [`MessageTable::give_back`].
    pub fn take(&mut self, place: u32) -> Vec<u8> {
        std::mem::take(&mut self.entries[place as usize])
    }

    /// Frees `place` and keeps the memory of the message that was taken from it.
    pub fn give_back(&mut self, place: u32, message: Vec<u8>) {
        self.entries[place as usize] = message;
        self.free.push(place);
    }

    /// Frees the place of a packet that was lost or dropped.
    pub fn reclaim(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Whether the next message needs new memory.
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
    fn ack_supersedes_earlier_ones_without_news() {
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
    fn oversized_window_is_announced_as_maximum() {
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
