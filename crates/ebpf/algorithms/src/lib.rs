//! Laws of `forebay_core::cc` as functions that `bpf/tcp_algorithm.bpf.c` calls.
//!
//! `cargo xtask bpf-algorithms` compiles these to BPF; nothing else links this crate.
#![no_std]

use forebay_core::cc::algorithms::newreno::NewReno;
use forebay_core::cc::algorithms::vegas::Vegas;
use forebay_core::cc::algorithms::westwood::Westwood;
use forebay_core::cc::native::{BEGIN, Call, Native};

/// Bytes for the law of a connection (`LAW_BYTES` of `bpf/tcp_algorithm.bpf.c`).
const LAW_BYTES: usize = 1024;

macro_rules! laws {
    ($($(#[$attribute:meta])* $name:ident: $law:ty = $new:expr;)*) => {$(
        $(#[$attribute])*
        ///
        /// Answers the limits from now on: ssthresh in the upper half, the window in the lower, in segments.
        /// Zero: it is to be called again with the kind `GROW`.
        ///
        /// # Safety
        ///
        /// `call` is valid. `law` has room for a law, and unless this call is the beginning, the last one
        /// was of this function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(law: *mut Native<$law>, call: *const Call) -> u64 {
            const { assert!(size_of::<Native<$law>>() <= LAW_BYTES) };
            // SAFETY: the caller says that it is valid.
            let call = unsafe { &*call };
            if call.kind == BEGIN {
                // SAFETY: there is room for it.
                unsafe { law.write(Native::new($new, call)) };
            }
            // SAFETY: it has begun, now or by an earlier call.
            let limits = unsafe { (*law).step(call) };
            limits.map_or(0, |it| u64::from(it.ssthresh) << 32 | u64::from(it.cwnd))
        }
    )*};
}

laws! {
    /// `newreno`
    forebay_newreno: NewReno = NewReno;
    /// `vegas`
    forebay_vegas: Vegas = Vegas::default();
    /// `westwood`
    forebay_westwood: Westwood = Westwood::default();
}
