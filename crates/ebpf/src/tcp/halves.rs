//! The records' way from the datapath to its reader: two halves in memory shared with the kernel. The
//! datapath writes one while the other is read (`records` of `bpf/tcp_maps.h`).
//!
//! ```text
//! position   1 bit: which half is written; 63 bits: records so far
//! starts     the records before each half's first
//! taken      the records that have been read
//! ```
//! The datapath adds one to the position and has the place of its record. The reader exchanges the
//! halves once it has read one whole. So the datapath never waits, and writes the same few lines of the
//! cache again as long as the reader keeps up. All state stands before the records (`struct halves`): a
//! reader that ends at any place leaves its successor all that it needs to go on.

use std::sync::atomic::{AtomicU64, Ordering};

use super::report::RECORD_LEN;
use crate::mapped::MappedWords;
use crate::skel::tcp_datapath::types;
use crate::skel::word_of;

/// Words of 8 bytes in a record. The words before the records (`struct halves`) are one entry too.
const RECORD_WORDS: usize = RECORD_LEN / 8;
/// The generation is the high half of a record's first word; 0 while the record is written.
const GENERATION_SHIFT: u32 = 32;
/// In the position: the second half is written.
const SECOND_HALF: u64 = 1 << 63;
/// Place of `position`: records so far, and [`SECOND_HALF`].
const POSITION_WORD: usize = word_of!(types::halves, position);
/// Place of `starts`: the records before each half.
const STARTS_WORD: usize = word_of!(types::halves, starts);
/// Place of `is_asleep`: set by a sleeping reader, cleared by the record that wakes it.
const ASLEEP_WORD: usize = word_of!(types::halves, is_asleep);
/// Place of `size`: records of a half.
const SIZE_WORD: usize = word_of!(types::halves, size);
/// Place of `taken`: records that the reader has taken.
const TAKEN_WORD: usize = word_of!(types::halves, taken);

/// Entries of the map whose halves have `size` records each.
pub(super) const fn entries(size: u32) -> u32 {
    1 + 2 * size
}

/// Records of a half of a map of `entries` entries.
pub(super) const fn size_of_half(entries: u32) -> u32 {
    entries.saturating_sub(1) / 2
}

/// Words of a map with `entries` entries.
pub(super) const fn words_of(entries: u32) -> usize {
    entries as usize * RECORD_WORDS
}

/// The reader of a datapath's records.
#[derive(Debug)]
pub(super) struct Halves {
    memory: MappedWords,
    /// Records of a half.
    size: u64,
}

/// The words before the records, at an instant.
#[derive(Clone, Copy, Debug)]
struct View {
    /// The half that is written: 0 or 1.
    written: usize,
    /// Records so far.
    count: u64,
    /// The records before the first of the other half, and before the first after that half.
    from: u64,
    to: u64,
}

impl Halves {
    /// Both halves of `size` records each.
    pub(super) fn new(memory: MappedWords, size: u32) -> Self {
        let halves = Self { memory, size: size.into() };
        halves.word(SIZE_WORD).store(size.into(), Ordering::Relaxed);
        // A reader that ended between taking a record and giving it back.
        let last = halves.word(TAKEN_WORD).load(Ordering::Relaxed).wrapping_sub(1);
        if let Some(record) = halves.record(halves.view(), last) {
            record[0].store(0, Ordering::Relaxed);
        }
        halves
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        &self.memory.words()[word]
    }

    fn view(&self) -> View {
        let position = self.word(POSITION_WORD).load(Ordering::Acquire);
        let written = usize::from(position & SECOND_HALF != 0);
        let start = |half: usize| self.word(STARTS_WORD + half).load(Ordering::Relaxed);
        let (from, to) = (start(1 - written), start(written));
        View { written, count: position & !SECOND_HALF, from, to }
    }

    /// The record of this number, if it has a place in the half that is not written.
    fn record(&self, view: View, number: u64) -> Option<&[AtomicU64]> {
        let place = number.wrapping_sub(view.from);
        // Between a new start and its exchange of halves, no record has a place.
        let places = view.to.saturating_sub(view.from).min(self.size);
        (place < places).then(|| {
            let index = 1 + (1 - view.written) * self.size as usize + place as usize;
            &self.memory.words()[index * RECORD_WORDS..][..RECORD_WORDS]
        })
    }

    /// Hands the records that have been written to `take`; a record that is being written holds back
    /// all after it.
    pub(super) fn drain(&self, take: &mut dyn FnMut(&[u8; RECORD_LEN])) {
        if self.read(take) && self.exchange() {
            self.read(take);
        }
    }

    /// Reads the half that is not written, from where it was left; true: to its end.
    fn read(&self, take: &mut dyn FnMut(&[u8; RECORD_LEN])) -> bool {
        let view = self.view();
        let taken = self.word(TAKEN_WORD);
        let mut number = taken.load(Ordering::Relaxed);
        while let Some(record) = self.record(view, number) {
            let first = record[0].load(Ordering::Acquire);
            if first >> GENERATION_SHIFT == 0 {
                return false;
            }
            let mut bytes = [0; RECORD_LEN];
            bytes[..8].copy_from_slice(&first.to_ne_bytes());
            for (to, from) in bytes.chunks_exact_mut(8).zip(record).skip(1) {
                to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
            }
            number += 1;
            taken.store(number, Ordering::Relaxed);
            record[0].store(0, Ordering::Release);
            take(&bytes);
        }
        // Past the records that found no place.
        taken.store(view.to, Ordering::Relaxed);
        true
    }

    /// Switches the writer to the other half, which has been read; false if nothing is in this one.
    fn exchange(&self) -> bool {
        loop {
            let View { written, count, to: start, .. } = self.view();
            if count == start {
                return false;
            }
            let half = |number: usize| if number == 0 { 0 } else { SECOND_HALF };
            self.word(STARTS_WORD + 1 - written).store(count, Ordering::Relaxed);
            let (now, next) = (count | half(written), count | half(1 - written));
            let position = self.word(POSITION_WORD);
            if position.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Whether there are records that have not been read: some that wait, or one that is being written.
    pub(super) fn has_records(&self) -> bool {
        self.count() != self.word(TAKEN_WORD).load(Ordering::Relaxed)
    }

    /// Records so far, including records that found no place.
    pub(super) fn count(&self) -> u64 {
        self.view().count
    }

    /// Has the next record wake its reader, or no longer.
    pub(super) fn set_asleep(&self, asleep: bool) {
        self.word(ASLEEP_WORD).store(asleep.into(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::FromRawFd;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Both sides' memory, without a kernel.
    struct Shared {
        file: File,
        memory: MappedWords,
        size: u32,
    }

    impl Shared {
        fn new(size: u32) -> Self {
            // SAFETY: a terminated name.
            let fd = unsafe { libc::memfd_create(c"halves".as_ptr(), libc::MFD_CLOEXEC) };
            assert!(fd >= 0);
            // SAFETY: the kernel just gave us this descriptor.
            let file = unsafe { File::from_raw_fd(fd) };
            let words = words_of(entries(size));
            file.set_len(words as u64 * 8).unwrap();
            Self { memory: MappedWords::new(&file, words).unwrap(), file, size }
        }

        fn reader(&self) -> Halves {
            let memory = MappedWords::new(&self.file, words_of(entries(self.size))).unwrap();
            Halves::new(memory, self.size)
        }

        fn word(&self, word: usize) -> &AtomicU64 {
            &self.memory.words()[word]
        }

        /// Does as `claim_record` of `bpf/tcp_record.h`: takes the place of a record; `None` if all
        /// places are taken.
        fn claim(&self) -> Option<usize> {
            let position = self.word(POSITION_WORD).fetch_add(1, Ordering::SeqCst);
            let half = usize::from(position & SECOND_HALF != 0);
            let start = self.word(STARTS_WORD + half).load(Ordering::Relaxed);
            let place = (position & !SECOND_HALF).wrapping_sub(start);
            let size = self.size as usize;
            (place < size as u64).then(|| 1 + half * size + place as usize)
        }

        fn publish(&self, index: usize, value: u64) {
            let record = &self.memory.words()[index * RECORD_WORDS..][..RECORD_WORDS];
            record[1..].iter().for_each(|word| word.store(value, Ordering::Relaxed));
            record[0].store(1 << GENERATION_SHIFT, Ordering::Release);
        }

        fn write(&self, value: u64) -> bool {
            self.claim().inspect(|index| self.publish(*index, value)).is_some()
        }

        /// The values that a reader finds now; every record must be whole.
        fn read(&self, reader: &Halves) -> Vec<u64> {
            let mut values = Vec::new();
            reader.drain(&mut |bytes| {
                let words = bytes.chunks_exact(8).skip(1);
                let all: Vec<u64> =
                    words.map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
                assert!(all.iter().all(|word| *word == all[0]), "{all:?}");
                values.push(all[0]);
            });
            values
        }
    }

    #[test]
    fn halves_are_read_fully_and_skip_discarded_records() {
        let shared = Shared::new(3);
        let reader = shared.reader();
        assert_eq!(size_of_half(entries(3)), 3);
        assert!(!reader.has_records() && shared.read(&reader).is_empty());
        for round in 0..4 {
            let taken: Vec<bool> = (0..5).map(|at| shared.write(round * 10 + at)).collect();
            assert_eq!(taken, [true, true, true, false, false]);
            assert!(reader.has_records());
            assert_eq!(shared.read(&reader), [0, 1, 2].map(|at| round * 10 + at));
            assert_eq!(reader.count(), (round + 1) * 5);
            assert!(!reader.has_records());
        }
    }

    #[test]
    fn unfinished_record_delays_later_ones_without_loss() {
        let shared = Shared::new(8);
        let reader = shared.reader();
        shared.write(1);
        let late = shared.claim().unwrap();
        shared.write(3);
        assert_eq!(shared.read(&reader), [1]);
        shared.write(4);
        assert!(shared.read(&reader).is_empty(), "the half is not exchanged before its end");
        assert!(reader.has_records());
        shared.publish(late, 2);
        assert_eq!(shared.read(&reader), [2, 3, 4]);
    }

    #[test]
    fn a_successor_goes_on_wherever_a_reader_ended() {
        let shared = Shared::new(8);
        (0..3).for_each(|value| assert!(shared.write(value)));
        assert!(shared.reader().exchange());
        // The first record was taken and not given back.
        shared.word(TAKEN_WORD).store(1, Ordering::Relaxed);
        assert_eq!(shared.read(&shared.reader()), [1, 2]);
        let first = |index: usize| shared.word(index * RECORD_WORDS).load(Ordering::Relaxed);
        assert!((1..=8).all(|index| first(index) == 0), "all are given back");
        // The next start was written, and the halves not exchanged.
        shared.write(3);
        shared.word(STARTS_WORD).store(4, Ordering::Relaxed);
        shared.write(4);
        assert_eq!(shared.read(&shared.reader()), [3, 4]);
    }

    #[test]
    fn concurrent_writers_records_stay_whole_and_ordered() {
        /// Threads that write at the same time.
        const WRITERS: u64 = 3;
        /// Records of each writer.
        const EACH: u64 = 30_000;
        let shared = Shared::new(64);
        let reader = shared.reader();
        let has_ended = AtomicBool::new(false);
        let mut found = Vec::new();
        let lost: u64 = thread::scope(|scope| {
            let shared = &shared;
            let write = move |writer| {
                let is_lost = |at: &u64| !shared.write(writer << 32 | at);
                (0..EACH).filter(is_lost).count() as u64
            };
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            let reading = scope.spawn(|| {
                let mut found = Vec::new();
                while !has_ended.load(Ordering::Relaxed) {
                    found.extend(shared.read(&reader));
                }
                found
            });
            let lost = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            has_ended.store(true, Ordering::Relaxed);
            found = reading.join().unwrap();
            lost
        });
        // The half that was read and the one that was written.
        (0..2).for_each(|_| found.extend(shared.read(&reader)));
        assert_eq!(found.len() as u64 + lost, WRITERS * EACH);
        for writer in 0..WRITERS {
            let own: Vec<u64> =
                found.iter().copied().filter(|value| value >> 32 == writer).collect();
            assert!(own.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
