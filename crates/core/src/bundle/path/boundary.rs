//! The boundaries that have left the sendbox and whose reports are expected.
//!
//! A hash may leave again. Once the earlier boundary can no longer be reported, the hash is a new
//! boundary. Until then a report of the hash is ambiguous, since it may be of either boundary.

use alloc::vec::Vec;

use crate::units::{ByteCount, Duration, Timestamp};

/// Boundaries remembered, to bound the memory. At 8 boundaries per round trip this covers five hundred
/// round trips. With the first epoch size of 8 packets it still covers 32,768 packets in flight.
const CAPACITY: usize = 4096;
/// Newer boundaries after which a slot counts as soon to be overwritten.
const NEWER_MAX: usize = CAPACITY / 2;
/// Lists of the index; an average of one boundary each.
const BUCKETS: usize = CAPACITY;
/// No further boundary in the list.
const END: u16 = u16::MAX;

/// Sendbox state at the departure of a boundary packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Boundary {
    /// Sampling hash.
    pub hash: u64,
    /// Identity that the host asked to carry along.
    pub identity: u64,
    /// Departure, after the shaper.
    pub sent_at: Timestamp,
    /// Bytes sent since the start, this packet included.
    pub sent_bytes: ByteCount,
    /// The part of `sent_bytes` that a path with a full buffer would have accepted.
    pub accepted_bytes: f64,
    /// Time since the start in which the bundle had nothing to send.
    pub idle: Duration,
    /// Bytes known to be delivered at the departure.
    pub delivered: ByteCount,
    /// A report was expected at the departure, given the peer's state then.
    pub is_expected: bool,
}

impl Boundary {
    /// The boundary, unless it left before `at` and counts as unknown.
    pub fn left_since(self, at: Timestamp) -> Result<Self, Mismatch> {
        if self.sent_at < at { Err(Mismatch::Unknown) } else { Ok(self) }
    }
}

/// Why a report found no boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// No boundary has this hash, or it is too old to be remembered.
    Unknown,
    /// The boundary has been matched before.
    Duplicate,
    /// Several packets had this hash, so that its departure is not known.
    Ambiguous,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Expected,
    Matched,
    Ambiguous,
    /// Another slot holds the hash: this one is in no list.
    Replaced,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    boundary: Boundary,
    fate: Fate,
    next: u16,
}

/// Ring of boundaries with an index by hash. Memory is bounded and grows with the boundaries; time is constant.
#[derive(Clone, Debug, Default)]
pub struct BoundaryTable {
    slots: Vec<Slot>,
    buckets: Vec<u16>,
    /// Slot that is written next once the ring is full.
    oldest: usize,
    overwritten: u64,
}

/// The low bits of a boundary's hash are zero, so the index takes the high ones.
fn bucket(hash: u64) -> usize {
    (hash >> (u64::BITS - BUCKETS.ilog2())) as usize
}

impl BoundaryTable {
    fn find(&self, hash: u64) -> Option<usize> {
        let mut at = self.buckets.get(bucket(hash)).copied().unwrap_or(END);
        while at != END {
            let slot = &self.slots[usize::from(at)];
            if slot.boundary.hash == hash {
                return Some(usize::from(at));
            }
            at = slot.next;
        }
        None
    }

    fn unlink(&mut self, index: usize) {
        let Slot { boundary, next, .. } = self.slots[index];
        let head = bucket(boundary.hash);
        if usize::from(self.buckets[head]) == index {
            self.buckets[head] = next;
            return;
        }
        let mut at = usize::from(self.buckets[head]);
        while usize::from(self.slots[at].next) != index {
            at = usize::from(self.slots[at].next);
        }
        self.slots[at].next = next;
    }

    /// Remembers `boundary`; a full table overwrites its oldest. The hash may have left before, as with
    /// UDP of equal payloads once the 16-bit IP identification has wrapped. A boundary that left more
    /// than `report_age_max` ago, or has been matched, is not reported any more.
    pub fn insert(&mut self, boundary: Boundary, report_age_max: Duration) {
        let mut fate = Fate::Expected;
        if let Some(index) = self.find(boundary.hash) {
            let newer = self.newer_than(index);
            let old = &mut self.slots[index];
            let age = boundary.sent_at.saturating_since(old.boundary.sent_at);
            if old.fate == Fate::Matched || age > report_age_max {
                self.overwritten += u64::from(old.fate == Fate::Expected);
            } else {
                // A report could belong to either of two departures. It matches neither, so that it
                // cannot make the path look shorter than it is.
                fate = Fate::Ambiguous;
            }
            if fate == Fate::Ambiguous && newer <= NEWER_MAX {
                // In place: a flood of equal packets must not overwrite all other boundaries. The next
                // equal packet is compared with this one, the last that was seen to leave.
                (old.fate, old.boundary.sent_at) = (fate, boundary.sent_at);
                return;
            }
            old.fate = Fate::Replaced;
            self.unlink(index);
        }
        self.write(boundary, fate);
    }

    /// Slots that were written after this one.
    fn newer_than(&self, index: usize) -> usize {
        let next = if self.slots.len() < CAPACITY { self.slots.len() } else { self.oldest };
        (next + CAPACITY - 1 - index) % CAPACITY
    }

    fn write(&mut self, boundary: Boundary, fate: Fate) {
        // Nothing, or as many as there are.
        self.buckets.resize(BUCKETS, END);
        let head = bucket(boundary.hash);
        let slot = |next| Slot { boundary, fate, next };
        let index = if self.slots.len() < CAPACITY {
            self.slots.push(slot(self.buckets[head]));
            self.slots.len() - 1
        } else {
            let index = self.oldest;
            self.oldest = (self.oldest + 1) % CAPACITY;
            let old = self.slots[index].fate;
            self.overwritten += u64::from(old == Fate::Expected);
            if old != Fate::Replaced {
                self.unlink(index);
            }
            self.slots[index] = slot(self.buckets[head]);
            index
        };
        self.buckets[head] = index as u16;
    }

    /// The boundary with this hash, once.
    pub fn take(&mut self, hash: u64) -> Result<Boundary, Mismatch> {
        let index = self.find(hash).ok_or(Mismatch::Unknown)?;
        let slot = &mut self.slots[index];
        match slot.fate {
            Fate::Expected => {
                slot.fate = Fate::Matched;
                Ok(slot.boundary)
            }
            Fate::Matched => Err(Mismatch::Duplicate),
            Fate::Ambiguous | Fate::Replaced => Err(Mismatch::Ambiguous),
        }
    }

    /// Forgets all boundaries, as if newer ones had overwritten them, and frees their memory.
    pub fn clear(&mut self) {
        let expected = self.slots.iter().filter(|slot| slot.fate == Fate::Expected).count();
        *self = Self { overwritten: self.overwritten + expected as u64, ..Self::default() };
    }

    /// Boundaries that were overwritten before a report came.
    pub fn overwritten(&self) -> u64 {
        self.overwritten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(hash: u64) -> Boundary {
        Boundary { hash, sent_at: Timestamp::from_nanos(hash), ..Boundary::default() }
    }

    const AGE_MAX: Duration = Duration::from_millis(500);

    fn left_at(hash: u64, ms: u64) -> Boundary {
        Boundary { sent_at: Timestamp::from_nanos(ms * 1_000_000), ..boundary(hash) }
    }

    #[test]
    fn a_boundary_is_matched_once() {
        let mut table = BoundaryTable::default();
        table.insert(boundary(8), AGE_MAX);
        assert_eq!(table.take(8), Ok(boundary(8)));
        assert_eq!(table.take(8), Err(Mismatch::Duplicate));
        assert_eq!(table.take(16), Err(Mismatch::Unknown));
    }

    #[test]
    fn two_packets_with_one_hash_match_neither() {
        let mut table = BoundaryTable::default();
        table.insert(left_at(8, 0), AGE_MAX);
        table.insert(left_at(8, 500), AGE_MAX);
        assert_eq!(table.take(8), Err(Mismatch::Ambiguous));
        // Nor do more, as long as a report of the one before may be on its way.
        table.insert(left_at(8, 1000), AGE_MAX);
        assert_eq!(table.take(8), Err(Mismatch::Ambiguous));
        assert_eq!(table.overwritten(), 0);
    }

    #[test]
    fn repeated_hash_is_a_new_boundary() {
        let mut table = BoundaryTable::default();
        table.insert(left_at(8, 0), AGE_MAX);
        table.insert(left_at(8, 501), AGE_MAX);
        assert_eq!(table.take(8), Ok(left_at(8, 501)), "the first was not reported in time");
        assert_eq!(table.overwritten(), 1);
        table.insert(left_at(8, 502), AGE_MAX);
        assert_eq!(table.take(8), Ok(left_at(8, 502)), "the one before was matched");
        table.insert(left_at(8, 503), AGE_MAX);
        table.insert(left_at(8, 504), AGE_MAX);
        table.insert(left_at(8, 1005), AGE_MAX);
        assert_eq!(table.take(8), Ok(left_at(8, 1005)), "it was ambiguous once");
        assert_eq!(table.overwritten(), 1);
    }

    #[test]
    fn flood_of_equal_packets_evicts_nothing_and_stays() {
        let mut table = BoundaryTable::default();
        let other = |index: u64| (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        table.insert(left_at(8, 0), AGE_MAX);
        for index in 0..20_000 {
            table.insert(boundary(other(index)), AGE_MAX);
            table.insert(left_at(8, 0), AGE_MAX);
            assert_eq!(table.take(8), Err(Mismatch::Ambiguous), "{index}");
            if let Some(before) = index.checked_sub(4000) {
                assert_eq!(table.take(other(before)), Ok(boundary(other(before))));
            }
        }
        assert_eq!(table.overwritten(), 0);
    }

    #[test]
    fn forgotten_boundary_is_unknown_and_its_memory_freed() {
        let mut table = BoundaryTable::default();
        assert_eq!(table.take(8), Err(Mismatch::Unknown));
        (1..=3).for_each(|hash| table.insert(boundary(8 * hash), AGE_MAX));
        assert_eq!(table.take(8), Ok(boundary(8)));
        table.clear();
        assert_eq!(
            (table.overwritten(), table.slots.capacity(), table.buckets.capacity()),
            (2, 0, 0)
        );
        assert_eq!(table.take(16), Err(Mismatch::Unknown));
        table.insert(boundary(16), AGE_MAX);
        assert_eq!(table.take(16), Ok(boundary(16)));
    }

    #[test]
    fn the_newest_boundaries_are_found_however_many_came() {
        let mut table = BoundaryTable::default();
        let hash = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A few buckets hold many: chains must survive being unlinked in the middle.
        let crowded = |index: u64| if index.is_multiple_of(3) { index } else { hash(index) };
        for index in 1..=20_000 {
            table.insert(boundary(crowded(index)), AGE_MAX);
        }
        for index in 1..=20_000 {
            let expected = if index > 20_000 - CAPACITY as u64 {
                Ok(boundary(crowded(index)))
            } else {
                Err(Mismatch::Unknown)
            };
            assert_eq!(table.take(crowded(index)), expected, "{index}");
        }
        assert_eq!(table.overwritten(), 20_000 - CAPACITY as u64);
    }
}
