//! Skeletons of the BPF programs that build.rs generates, and the structures that are shared with the
//! programs.
//!
//! A structure that C and Rust share is declared in C alone. The skeleton has it if BTF does: as the key or
//! the value of a map, as part of a global, or as the argument of a function that is not inlined. BTF has
//! no enumerators and macros, so Rust repeats the few that it needs.

macro_rules! skeletons {
    ($($(#[$attribute:meta])* $program:ident)*) => {$(
        $(#[$attribute])*
        #[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
        pub(crate) mod $program {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($program), ".skel.rs"));
        }
    )*};
}

skeletons! {
    capture
    classes
    merged
    sampler
    #[cfg(test)]
    tcp_check
    tcp_datapath
    tcp_empty
    tcp_native
}

/// A structure as bytes and words in the machine's order.
///
/// # Safety
///
/// It is numbers alone, which any bytes make, and has no padding between or behind them.
pub(crate) unsafe trait Plain: Copy {
    /// `None` if there are more or fewer bytes than it has.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: as many bytes as the structure has, which any bytes make.
        (bytes.len() == size_of::<Self>())
            .then(|| unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: all bytes of the structure are numbers'.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// The 64-bit words of a structure that is made up of whole ones.
    fn words(&self) -> impl Iterator<Item = u64> {
        self.as_bytes().as_chunks().0.iter().copied().map(u64::from_ne_bytes)
    }
}

macro_rules! plain {
    ($($program:ident: $($structure:ident),*;)*) => {$($(
        // SAFETY: C declares it of numbers, and as `unused` what would be padding.
        unsafe impl Plain for $program::types::$structure {}

        impl PartialEq for $program::types::$structure {
            fn eq(&self, other: &Self) -> bool {
                self.as_bytes() == other.as_bytes()
            }
        }
    )*)*};
}

plain! {
    capture: mac;
    classes: ports, standing, wait;
    sampler: address, boundary, bundle, counters, destination, left_out, message_end, pair, prefix;
    tcp_datapath: counters, law, opened, report, slot;
}

#[cfg(test)]
plain! {
    tcp_check: decision_case, fall_case, law, law_case;
    tcp_native: step;
}

/// The place of a field among the 64-bit words of a structure.
macro_rules! word_of {
    ($structure:ty, $field:ident) => {
        std::mem::offset_of!($structure, $field) / 8
    };
}
pub(crate) use word_of;
