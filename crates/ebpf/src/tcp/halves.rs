//! The records' way to their reader: two halves in memory shared with the kernel, of which the datapath
//! writes one while the other is read (`records` of `bpf/tcp_maps.h`).
//!
//! ```text
//! position   1 bit: which half is written; 63 bits: records so far
//! starts     the records before each half's first
//! taken      the records that have been read
//! ```
//! The datapath adds one to the position and has the place of its record. The reader exchanges the
//! halves once it has read one whole, so the datapath never waits and writes the same few lines of the
//! cache again as long as the reader keeps up. All that is known stands in the shared words: a reader
//! that ends at any place leaves what its successor goes on with.

use std::sync::atomic::{AtomicU64, Ordering};

use super::report::RECORD_LEN;
use crate::mapped::MappedWords;

/// Words of a record; the high half of the first is its generation, 0 while it is written.
const RECORD_WORDS: usize = RECORD_LEN / 8;
const GENERATION_SHIFT: u32 = 32;
/// In the position: the second half is written.
const SECOND_HALF: u64 = 1 << 63;
/// The shared words among those of `struct counters`.
const POSITION_WORD: usize = 0;
const STARTS_WORD: usize = 1;
const TAKEN_WORD: usize = 13;

/// The reader of a datapath's records.
#[derive(Debug)]
pub(super) struct Halves {
    records: MappedWords,
    /// Records of a half.
    size: u64,
}

/// What the shared words say.
#[derive(Clone, Copy, Debug)]
struct View {
    /// The half that is written: 0 or 1.
    written: usize,
    /// Records so far.
    count: u64,
    /// The records before the other half's first, and those before the first after it.
    from: u64,
    to: u64,
}

impl View {
    fn of(words: &[AtomicU64]) -> Self {
        let position = words[POSITION_WORD].load(Ordering::Acquire);
        let written = usize::from(position & SECOND_HALF != 0);
        let start = |half: usize| words[STARTS_WORD + half].load(Ordering::Relaxed);
        Self {
            written,
            count: position & !SECOND_HALF,
            from: start(1 - written),
            to: start(written),
        }
    }
}

impl Halves {
    /// `records` has two halves of `size` records; `words` are those of the counters.
    pub(super) fn new(records: MappedWords, size: u64, words: &[AtomicU64]) -> Self {
        let halves = Self { records, size };
        let view = View::of(words);
        // A reader that ended between taking a record and giving it back.
        let last = words[TAKEN_WORD].load(Ordering::Relaxed).wrapping_sub(1);
        if let Some(record) = halves.record(view, last) {
            record[0].store(0, Ordering::Relaxed);
        }
        halves
    }

    /// The record of this number, if it has a place in the half that is not written.
    fn record(&self, view: View, number: u64) -> Option<&[AtomicU64]> {
        let place = number.wrapping_sub(view.from);
        // Between a new start and the exchange that goes with it there is none.
        let places = view.to.saturating_sub(view.from).min(self.size);
        (place < places).then(|| {
            let index = (1 - view.written) * self.size as usize + place as usize;
            &self.records.words()[index * RECORD_WORDS..][..RECORD_WORDS]
        })
    }

    /// Hands the records that have been written to `take`; a record that is being written holds those
    /// after it back.
    pub(super) fn drain(&self, words: &[AtomicU64], take: &mut dyn FnMut(&[u8; RECORD_LEN])) {
        if self.read(words, take) && exchange(words) {
            self.read(words, take);
        }
    }

    /// Reads the half that is not written, from where it was left; true: to its end.
    fn read(&self, words: &[AtomicU64], take: &mut dyn FnMut(&[u8; RECORD_LEN])) -> bool {
        let view = View::of(words);
        let taken = &words[TAKEN_WORD];
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
        // Past those that found no place.
        taken.store(view.to, Ordering::Relaxed);
        true
    }
}

/// Whether there are records that have not been read: some that wait, or one that is being written.
pub(super) fn has_records(words: &[AtomicU64]) -> bool {
    View::of(words).count != words[TAKEN_WORD].load(Ordering::Relaxed)
}

/// Records so far, those that found no place included.
pub(super) fn count(words: &[AtomicU64]) -> u64 {
    View::of(words).count
}

/// Has the other half, which has been read, written from now on; false if nothing is in this one.
fn exchange(words: &[AtomicU64]) -> bool {
    loop {
        let View { written, count, to: start, .. } = View::of(words);
        if count == start {
            return false;
        }
        let half = |number: usize| if number == 0 { 0 } else { SECOND_HALF };
        words[STARTS_WORD + 1 - written].store(count, Ordering::Relaxed);
        let position = &words[POSITION_WORD];
        let (now, next) = (count | half(written), count | half(1 - written));
        if position.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return true;
        }
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
        records: File,
        words: MappedWords,
        size: u64,
    }

    fn memory(bytes: u64) -> File {
        // SAFETY: a terminated name.
        let fd = unsafe { libc::memfd_create(c"halves".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the kernel just gave us this descriptor.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes).unwrap();
        file
    }

    impl Shared {
        fn new(size: u64) -> Self {
            let records = memory(2 * size * RECORD_LEN as u64);
            let words = MappedWords::new(memory(4096), TAKEN_WORD + 1).unwrap();
            Self { records, words, size }
        }

        fn map(&self) -> MappedWords {
            MappedWords::new(&self.records, 2 * self.size as usize * RECORD_WORDS).unwrap()
        }

        fn reader(&self) -> Halves {
            Halves::new(self.map(), self.size, self.words.words())
        }

        /// What `claim_record` of `bpf/tcp_record.h` does: the place of a record, `None` if there is
        /// none.
        fn claim(&self) -> Option<usize> {
            let position = self.words.words()[POSITION_WORD].fetch_add(1, Ordering::SeqCst);
            let half = usize::from(position & SECOND_HALF != 0);
            let start = self.words.words()[STARTS_WORD + half].load(Ordering::Relaxed);
            let place = (position & !SECOND_HALF).wrapping_sub(start);
            (place < self.size).then(|| half * self.size as usize + place as usize)
        }

        fn publish(&self, records: &MappedWords, index: usize, value: u64) {
            let record = &records.words()[index * RECORD_WORDS..][..RECORD_WORDS];
            record[1..].iter().for_each(|word| word.store(value, Ordering::Relaxed));
            record[0].store(1 << GENERATION_SHIFT, Ordering::Release);
        }

        fn write(&self, records: &MappedWords, value: u64) -> bool {
            let index = self.claim();
            index.inspect(|index| self.publish(records, *index, value)).is_some()
        }

        /// What a reader finds now; every record must be whole.
        fn read(&self, reader: &Halves) -> Vec<u64> {
            let mut values = Vec::new();
            reader.drain(self.words.words(), &mut |bytes| {
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
    fn each_half_is_read_to_its_end_and_what_found_no_place_is_passed_over() {
        let shared = Shared::new(3);
        let (reader, records) = (shared.reader(), shared.map());
        assert!(!has_records(shared.words.words()) && shared.read(&reader).is_empty());
        for round in 0..4 {
            let taken: Vec<bool> =
                (0..5).map(|at| shared.write(&records, round * 10 + at)).collect();
            assert_eq!(taken, [true, true, true, false, false]);
            assert!(has_records(shared.words.words()));
            assert_eq!(shared.read(&reader), [0, 1, 2].map(|at| round * 10 + at));
            assert_eq!(count(shared.words.words()), (round + 1) * 5);
            assert!(!has_records(shared.words.words()));
        }
    }

    #[test]
    fn a_record_that_is_being_written_holds_back_those_after_it_and_no_other_is_lost() {
        let shared = Shared::new(8);
        let (reader, records) = (shared.reader(), shared.map());
        shared.write(&records, 1);
        let late = shared.claim().unwrap();
        shared.write(&records, 3);
        assert_eq!(shared.read(&reader), [1]);
        shared.write(&records, 4);
        assert!(shared.read(&reader).is_empty(), "the half is not exchanged before its end");
        assert!(has_records(shared.words.words()));
        shared.publish(&records, late, 2);
        assert_eq!(shared.read(&reader), [2, 3, 4]);
    }

    #[test]
    fn a_successor_goes_on_wherever_a_reader_ended() {
        let shared = Shared::new(8);
        let records = shared.map();
        let words = shared.words.words();
        (0..3).for_each(|value| assert!(shared.write(&records, value)));
        assert!(exchange(words));
        // The first record was taken and not given back.
        words[TAKEN_WORD].store(1, Ordering::Relaxed);
        assert_eq!(shared.read(&shared.reader()), [1, 2]);
        assert!(
            (0..8).all(|index| records.words()[index * RECORD_WORDS].load(Ordering::Relaxed) == 0)
        );
        // The next start was written, and the halves not exchanged.
        shared.write(&records, 3);
        words[STARTS_WORD].store(4, Ordering::Relaxed);
        shared.write(&records, 4);
        assert_eq!(shared.read(&shared.reader()), [3, 4]);
    }

    #[test]
    fn records_of_several_writers_come_whole_and_each_writers_in_order() {
        const WRITERS: u64 = 3;
        const EACH: u64 = 30_000;
        let shared = Shared::new(64);
        let has_ended = AtomicBool::new(false);
        let mut found = Vec::new();
        let reader = shared.reader();
        let lost: u64 = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let shared = &shared;
                    scope.spawn(move || {
                        let records = shared.map();
                        let is_lost = |at: &u64| !shared.write(&records, writer << 32 | at);
                        (0..EACH).filter(is_lost).count() as u64
                    })
                })
                .collect();
            let (has_ended, shared, reader) = (&has_ended, &shared, &reader);
            let reading = scope.spawn(move || {
                let mut found = Vec::new();
                while !has_ended.load(Ordering::Relaxed) {
                    found.extend(shared.read(reader));
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
