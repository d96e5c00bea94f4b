//! A static library over `forebay-core` with its own panic handler and allocator.
//!
//! If anything below core's default features depended on std, std's panic handler would conflict
//! with this one and the build would fail. Built with the profile `purity`, which aborts on panic;
//! under any other profile this crate is empty.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(panic = "abort")]
mod proof {
    extern crate alloc;
    #[cfg(feature = "leak")]
    extern crate std;

    use alloc::alloc::{GlobalAlloc, Layout};
    // The crate must be linked, not only compiled.
    use forebay_core as _;

    struct NoMemory;

    // SAFETY: returning null is an allowed answer to every request, so nothing is ever freed.
    unsafe impl GlobalAlloc for NoMemory {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            core::ptr::null_mut()
        }
        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[global_allocator]
    /// The global allocator, which a library with `alloc` must name.
    static ALLOCATOR: NoMemory = NoMemory;

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }
}
