//! Array maps shared with the kernel through memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::skel::Plain;

/// A `BPF_F_MMAPABLE` array of 64-bit words, mapped readable and writable.
#[derive(Debug)]
pub(crate) struct MappedWords {
    start: NonNull<AtomicU64>,
    words: usize,
}

impl MappedWords {
    /// Maps the array behind `map`, whose values make up at least `words` words together.
    pub(crate) fn new(map: impl AsFd, words: usize) -> io::Result<Self> {
        let len = words * size_of::<AtomicU64>();
        // SAFETY: a fresh mapping at an address of the kernel's choice; the result is checked.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { start, words })
    }

    /// The words, in the order of the map's keys.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `words` long and lives as long as self; kernel and
        // user space access the words atomically.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// The structure that all words make up together, each read by itself.
    pub(crate) fn load<T: Plain>(&self) -> T {
        let words = self.words().iter().map(|word| word.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        T::from_bytes(&bytes).expect("a mapping of one such structure")
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and its words are atomic.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and no reference to it outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}
