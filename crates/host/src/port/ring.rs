//! The four rings and the frame memory that an AF_XDP socket shares with the kernel.
//!
//! Each ring has one producer and one consumer, whose free-running 32-bit positions are in shared memory
//! (Documentation/networking/af_xdp.rst, net/xdp/xsk_queue.h). A side first accesses the entries and then
//! stores its position with release. The other side loads that position with acquire before it accesses the
//! entries.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory shared with the kernel.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Allocates zeroed memory, and touches it now so that no page fault hits the packet path.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Self::map(len, flags, -1, 0)
    }

    fn of_socket(len: usize, socket: BorrowedFd<'_>, offset: i64) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map(len, flags, socket.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the result is checked.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { start, len })
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A pointer to `size` bytes at `offset`, aligned for `align`; `None` if they are not inside the
    /// mapping.
    fn at(&self, offset: usize, size: usize, align: usize) -> Option<*mut u8> {
        let end = offset.checked_add(size)?;
        (end <= self.len && offset.is_multiple_of(align))
            // SAFETY: the range lies inside the mapping.
            .then(|| unsafe { self.start.as_ptr().add(offset) })
    }

    /// The bytes of a frame that user space owns; `None` if they are not inside the mapping.
    ///
    /// # Safety
    ///
    /// The kernel must not own the frame while the slice lives.
    pub(super) unsafe fn frame(&self, offset: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: `at` has checked the range. By the caller's promise no writer exists.
        self.at(offset, len, 1).map(|start| unsafe { std::slice::from_raw_parts(start, len) })
    }

    /// Makes the processor fetch the first two cache lines at `offset`: headers, and the start of the
    /// payload.
    pub(super) fn prefetch(&self, offset: usize) {
        /// Bytes of a cache line on x86-64 and most ARM processors.
        const LINE: usize = 64;
        for line in [offset, offset + LINE] {
            let Some(start) = self.at(line, 1, 1) else { continue };
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing; SSE is part of x86-64.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = start;
        }
    }

    /// Copies `frame` to `offset`; false if it does not fit inside the mapping.
    ///
    /// # Safety
    ///
    /// The kernel must not own the frame, and no slice of it may live.
    pub(super) unsafe fn write(&mut self, offset: usize, frame: &[u8]) -> bool {
        let Some(start) = self.at(offset, frame.len(), 1) else { return false };
        // SAFETY: `at` has checked the range, which is ours by the caller's promise. `frame` does not
        // overlap it, since no slice of it lives.
        unsafe { ptr::copy_nonoverlapping(frame.as_ptr(), start, frame.len()) };
        true
    }
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this range, and no reference to it outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The place of a ring in its socket's memory.
pub(super) struct RingLayout {
    /// Offset for mmap(2), which selects the ring.
    pub(super) page_offset: i64,
    /// Offsets inside the mapping, from `XDP_MMAP_OFFSETS`.
    pub(super) offsets: libc::xdp_ring_offset,
    /// Number of entries, a power of two.
    pub(super) entries: u32,
}

struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    /// Our own position, and the kernel's position at the last look.
    own: u32,
    seen: u32,
    _mapping: Mapping,
    _entry: PhantomData<T>,
}

// SAFETY: the pointers lead into `_mapping`, which moves with them.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(socket: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<Self> {
        let entries_size = layout.entries as usize * size_of::<T>();
        let len = layout.offsets.desc as usize + entries_size;
        let mapping = Mapping::of_socket(len, socket, layout.page_offset)?;
        let place = |offset: u64, size: usize, align: usize| {
            mapping
                .at(offset as usize, size, align)
                .and_then(NonNull::new)
                .ok_or_else(|| io::Error::other("the kernel placed a ring outside its mapping"))
        };
        let word = size_of::<AtomicU32>();
        Ok(Self {
            producer: place(layout.offsets.producer, word, word)?.cast(),
            consumer: place(layout.offsets.consumer, word, word)?.cast(),
            flags: place(layout.offsets.flags, word, word)?.cast(),
            entries: place(layout.offsets.desc, entries_size, align_of::<T>())?.cast(),
            mask: layout.entries - 1,
            own: 0,
            seen: 0,
            _mapping: mapping,
            _entry: PhantomData,
        })
    }

    fn word(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word lies aligned inside the mapping, which lives as
        // long as self; it is only ever accessed atomically.
        unsafe { word.as_ref() }
    }

    fn entry(&self, position: u32) -> *mut T {
        // SAFETY: the mask keeps the index below the number of entries, and all entries are in the mapping.
        unsafe { self.entries.as_ptr().add((position & self.mask) as usize) }
    }
}

/// A ring that user space fills: fill and tx.
pub(super) struct Producer<T>(Ring<T>);

impl<T: Copy> Producer<T> {
    pub(super) fn new(socket: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<Self> {
        Ring::new(socket, layout).map(Self)
    }

    /// Puts one entry into the ring, invisible to the kernel until [`Producer::publish`]. Returns false if
    /// the ring is full.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if !self.has_room_for(1) {
            return false;
        }
        let ring = &mut self.0;
        // SAFETY: the entry lies beyond the published position: the kernel does not read it yet.
        unsafe { ring.entry(ring.own).write(entry) };
        ring.own = ring.own.wrapping_add(1);
        true
    }

    /// Whether `entries` more entries fit, 1 or more.
    pub(super) fn has_room_for(&mut self, entries: u32) -> bool {
        let fits = |taken: u32, ring: &Ring<T>| taken + (entries - 1) <= ring.mask;
        let ring = &self.0;
        // Try the kernel's last known position first, and load it again only if needed.
        fits(ring.own.wrapping_sub(ring.seen), ring) || fits(self.pending(), &self.0)
    }

    /// Publishes all entries pushed so far to the kernel.
    pub(super) fn publish(&mut self) {
        self.0.word(self.0.producer).store(self.0.own, Ordering::Release);
    }

    /// Entries that the kernel has not taken yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.0.seen = self.0.word(self.0.consumer).load(Ordering::Acquire);
        self.0.own.wrapping_sub(self.0.seen)
    }

    /// Whether the kernel needs a system call before it looks at the ring again.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.word(self.0.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills: completion and rx.
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Copy> Consumer<T> {
    pub(super) fn new(socket: BorrowedFd<'_>, layout: &RingLayout) -> io::Result<Self> {
        Ring::new(socket, layout).map(Self)
    }

    /// Takes the oldest entry. Its place returns to the kernel at [`Consumer::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        let ring = &mut self.0;
        if ring.own == ring.seen {
            ring.seen = ring.word(ring.producer).load(Ordering::Acquire);
            if ring.own == ring.seen {
                return None;
            }
        }
        // SAFETY: the kernel has published this entry and does not touch it before the release.
        let entry = unsafe { ring.entry(ring.own).read() };
        ring.own = ring.own.wrapping_add(1);
        Some(entry)
    }

    /// The entry that [`Consumer::pop`] returns next, if it is already known.
    pub(super) fn peek(&self) -> Option<T> {
        let ring = &self.0;
        // SAFETY: as in `pop`.
        (ring.own != ring.seen).then(|| unsafe { ring.entry(ring.own).read() })
    }

    /// Most entries that the ring holds.
    pub(super) fn capacity(&self) -> u32 {
        self.0.mask + 1
    }

    /// Entries that the kernel has written and that were not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.0.word(self.0.producer).load(Ordering::Acquire).wrapping_sub(self.0.own)
    }

    /// Gives the places of all popped entries back to the kernel.
    pub(super) fn release(&mut self) {
        self.0.word(self.0.consumer).store(self.0.own, Ordering::Release);
    }
}
