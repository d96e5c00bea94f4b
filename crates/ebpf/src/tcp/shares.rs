//! Who holds the slots of a datapath, in memory shared with the kernel (`bpf/tcp_share.h`).
//!
//! A slot is counted in a cell of 64 bits, uid and count, where it is taken, and given back in the same cell,
//! which `owners` keeps for each slot. Both sides add and subtract atomically. A uid finds its set of cells
//! by a secret odd number, so that no user can choose uids that fill the set of another.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapped::MappedWords;
use crate::skel::tcp_datapath::types;
use crate::skel::word_of;

/// Words of a set, one for each cell.
const SET_WORDS: usize = size_of::<types::holder_set>() / 8;
/// Place of `used`: taken slots, and slots that are being decided on.
const USED_WORD: usize = word_of!(types::shares, used);
/// Place of `slots`: the number of all slots.
const SLOTS_WORD: usize = word_of!(types::shares, slots);
/// Place of `reserve`: slots for root alone.
const RESERVE_WORD: usize = word_of!(types::shares, reserve);
/// Place of `hash`: the secret odd number that maps uids to their sets.
const HASH_WORD: usize = word_of!(types::shares, hash);
/// Place of `shift`: 64 less the bits of a set's number.
const SHIFT_WORD: usize = word_of!(types::shares, shift);
/// A uid gets another slot while it holds at most this many times the free slots (`bpf/tcp_share.h`): alone
/// it has three quarters at most.
pub const SHARE_OF_FREE: u32 = 3;
/// Slots for each set, so that at most half of the cells are in use.
const SLOTS_OF_SET: u32 = 8;
/// Divides the slots: one part is root's alone.
const RESERVE_PARTS: u32 = 16;
/// In the low half of an owner: its slot is counted in no cell. Otherwise the low half is the cell's number
/// plus one, or 0 while the slot has not been taken.
const UNCOUNTED: u32 = u32::MAX;

/// A user and how many slots its connections hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// As the initial user namespace numbers it.
    pub uid: u32,
    /// How many.
    pub slots: u32,
}

/// The shares of a datapath.
#[derive(Debug)]
pub(super) struct Shares {
    holders: MappedWords,
    owners: MappedWords,
}

/// Sets for `flows` slots, a power of two of at least two.
const fn sets(flows: u32) -> u32 {
    let sets = flows.div_ceil(SLOTS_OF_SET);
    if sets < 2 { 2 } else { sets.next_power_of_two() }
}

/// Entries of `holders` for `flows` slots.
pub(super) const fn entries(flows: u32) -> u32 {
    1 + sets(flows)
}

impl Shares {
    /// The shares behind the maps `holders` and `owners`, of `flows` slots.
    pub(super) fn new(holders: impl AsFd, owners: impl AsFd, flows: u32) -> io::Result<Self> {
        Ok(Self {
            holders: MappedWords::new(holders, entries(flows) as usize * SET_WORDS)?,
            owners: MappedWords::new(owners, flows as usize)?,
        })
    }

    /// Makes new maps ready: no slot is taken.
    pub(super) fn prepare(&self, flows: u32) -> io::Result<()> {
        let mut number = [0; 8];
        // SAFETY: as many bytes as there are, which outlive the call.
        let len = unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) };
        if len != number.len() as isize {
            return Err(io::Error::last_os_error());
        }
        for (word, value) in [
            (SLOTS_WORD, flows.into()),
            (RESERVE_WORD, (flows / RESERVE_PARTS).into()),
            (HASH_WORD, u64::from_ne_bytes(number) | 1),
            (SHIFT_WORD, u64::from(u64::BITS - sets(flows).ilog2())),
        ] {
            self.word(word).store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        &self.holders.words()[word]
    }

    fn cells(&self) -> &[AtomicU64] {
        &self.holders.words()[SET_WORDS..]
    }

    /// Slots that are root's alone.
    pub(super) fn reserve(&self) -> u32 {
        self.word(RESERVE_WORD).load(Ordering::Relaxed) as u32
    }

    /// The owner that took a slot last; to be read before another can take it.
    pub(super) fn owner(&self, slot: u32) -> u64 {
        self.owners.words().get(slot as usize).map_or(0, |owner| owner.load(Ordering::Relaxed))
    }

    /// The uid that took a slot last.
    pub(super) fn uid(&self, slot: u32) -> u32 {
        (self.owner(slot) >> 32) as u32
    }

    /// Counts a slot of `owner` no more (`free_share` of the datapath).
    pub(super) fn release(&self, owner: u64) {
        let cell = owner as u32;
        if cell == 0 {
            return;
        }
        self.word(USED_WORD).fetch_sub(1, Ordering::Relaxed);
        if cell != UNCOUNTED
            && let Some(cell) = self.cells().get(cell as usize - 1)
        {
            cell.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The users that hold slots, the largest holder first.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
        for word in self.cells().iter().map(|cell| cell.load(Ordering::Relaxed)) {
            if word as u32 != 0 {
                *slots.entry((word >> 32) as u32).or_default() += word as u32;
            }
        }
        let mut holders: Vec<_> =
            slots.into_iter().map(|(uid, slots)| Holder { uid, slots }).collect();
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.slots));
        holders
    }

    /// For tests: the cells of all uids, and the number of all taken slots.
    #[cfg(test)]
    pub(super) fn all(&self) -> (&[AtomicU64], &AtomicU64) {
        (self.cells(), self.word(USED_WORD))
    }
}
