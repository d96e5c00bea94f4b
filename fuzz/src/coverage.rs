//! Branches that an input reached: the counters that `-C instrument-coverage` compiles in, read and
//! cleared in the running process. Stable Rust has no sanitizer coverage; these counters work on
//! stable Rust, and guide the fuzzer just as well.

/// Branches reached so far, by how often (in powers of two, as in AFL).
#[derive(Default)]
pub struct Coverage {
    seen: Vec<u8>,
}

impl Coverage {
    /// Adds the counts since [`clear`] and returns whether any branch count is new.
    pub fn absorb(&mut self) -> bool {
        let counters = Counters::get();
        self.seen.resize(counters.len, 0);
        let mut is_new = false;
        for (index, seen) in self.seen.iter_mut().enumerate() {
            let count = counters.read(index);
            if count != 0 {
                // 1, 2, 3, 4-7, 8-15, 16-31, 32-127, 128 and more times.
                let class = match count {
                    1..=3 => count - 1,
                    4..=31 => u64::from(count.ilog2()) + 1,
                    32..=127 => 6,
                    _ => 7,
                };
                is_new |= *seen & (1 << class) == 0;
                *seen |= 1 << class;
            }
        }
        is_new
    }

    /// Number of branches reached.
    pub fn branches(&self) -> usize {
        self.seen.iter().filter(|seen| **seen != 0).count()
    }
}

/// Sets all counters to 0.
pub fn clear() {
    let counters = Counters::get();
    (0..counters.len).for_each(|index| counters.clear(index));
}

/// The array of the LLVM runtime. All code here counts into it at any time, so it is never
/// borrowed as a slice.
struct Counters {
    first: *mut u64,
    len: usize,
}

impl Counters {
    #[cfg(coverage_counters)]
    fn get() -> Self {
        unsafe extern "C" {
            safe fn __llvm_profile_begin_counters() -> *mut u64;
            safe fn __llvm_profile_end_counters() -> *mut u64;
        }
        let first = __llvm_profile_begin_counters();
        let bytes = __llvm_profile_end_counters().addr() - first.addr();
        Self { first, len: bytes / size_of::<u64>() }
    }

    #[cfg(not(coverage_counters))]
    fn get() -> Self {
        Self { first: core::ptr::null_mut(), len: 0 }
    }

    fn read(&self, index: usize) -> u64 {
        assert!(index < self.len);
        // SAFETY: `first` points to a static array of `len` counters.
        unsafe { self.first.add(index).read_volatile() }
    }

    fn clear(&self, index: usize) {
        assert!(index < self.len);
        // SAFETY: as above; a count lost to a concurrent increment does no harm.
        unsafe { self.first.add(index).write_volatile(0) }
    }
}
