//! The boundaries that have left the sendbox and whose reports are expected.

use alloc::vec::Vec;

use crate::units::{ByteCount, Duration, Timestamp};

/// Boundaries remembered: at 8 a round trip five hundred round trips, and with the first epoch
/// size of 8 packets still 32,768 packets in flight.
const CAPACITY: usize = 4096;
/// Lists of the index; an average of one boundary each.
const BUCKETS: usize = CAPACITY;
/// No further boundary in the list.
const END: u16 = u16::MAX;

/// What is known at the departure of a boundary packet.
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
    /// The part of them that a path with a full buffer would have accepted.
    pub accepted_bytes: f64,
    /// Time since the start in which the bundle had nothing to send.
    pub idle: Duration,
    /// Bytes known to be delivered at the departure.
    pub delivered: ByteCount,
    /// A report was expected at the departure, by what was known of the peer then.
    pub is_expected: bool,
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
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    boundary: Boundary,
    fate: Fate,
    next: u16,
}

/// A ring of boundaries with an index by hash: constant memory, constant time.
#[derive(Clone, Debug)]
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

impl Default for BoundaryTable {
    fn default() -> Self {
        Self {
            slots: Vec::with_capacity(CAPACITY),
            buckets: alloc::vec![END; BUCKETS],
            oldest: 0,
            overwritten: 0,
        }
    }
}

impl BoundaryTable {
    fn find(&self, hash: u64) -> Option<usize> {
        let mut at = self.buckets[bucket(hash)];
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

    /// Remembers `boundary`, at the cost of the oldest if the table is full.
    pub fn insert(&mut self, boundary: Boundary) {
        if let Some(index) = self.find(boundary.hash) {
            // A report would be matched with one of two departures: matched with neither, it
            // cannot make the path look shorter than it is.
            self.slots[index].fate = Fate::Ambiguous;
            return;
        }
        let head = bucket(boundary.hash);
        let slot = |next| Slot { boundary, fate: Fate::Expected, next };
        let index = if self.slots.len() < CAPACITY {
            self.slots.push(slot(self.buckets[head]));
            self.slots.len() - 1
        } else {
            let index = self.oldest;
            self.oldest = (self.oldest + 1) % CAPACITY;
            self.overwritten += u64::from(self.slots[index].fate == Fate::Expected);
            self.unlink(index);
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
            Fate::Ambiguous => Err(Mismatch::Ambiguous),
        }
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

    #[test]
    fn a_boundary_is_matched_once() {
        let mut table = BoundaryTable::default();
        table.insert(boundary(8));
        assert_eq!(table.take(8), Ok(boundary(8)));
        assert_eq!(table.take(8), Err(Mismatch::Duplicate));
        assert_eq!(table.take(16), Err(Mismatch::Unknown));
    }

    #[test]
    fn two_packets_with_one_hash_match_neither() {
        let mut table = BoundaryTable::default();
        table.insert(boundary(8));
        table.insert(boundary(8));
        assert_eq!(table.take(8), Err(Mismatch::Ambiguous));
    }

    #[test]
    fn the_newest_boundaries_are_found_however_many_came() {
        let mut table = BoundaryTable::default();
        let hash = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // A few buckets hold many: chains must survive being unlinked in the middle.
        let crowded = |index: u64| if index.is_multiple_of(3) { index } else { hash(index) };
        for index in 1..=20_000 {
            table.insert(boundary(crowded(index)));
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
