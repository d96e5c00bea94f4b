//! Laws of `forebay_core::cc` as functions that `bpf/tcp_algorithm.bpf.c` calls.
//!
//! `cargo xtask bpf-algorithms` compiles these to BPF; nothing else links this crate.
#![no_std]

use forebay_core::cc::algorithms::bbr3::paced::PacedCall;
use forebay_core::cc::algorithms::bbr3::{Bbr3, PARTS};
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

/// Bytes for BBRv3 of a connection (`STATE_BYTES` of `bpf/tcp_paced.bpf.c`).
const STATE_BYTES: usize = 7232;
const _: () = assert!(size_of::<Bbr3>() <= STATE_BYTES && PARTS == 9);

/// A connection under BBRv3 begins.
///
/// # Safety
///
/// `state` has room for it, and `call` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_bbr3_begin(state: *mut Bbr3, call: *mut PacedCall) {
    // SAFETY: the caller says that both are valid.
    unsafe {
        state.write(Bbr3::begun(&*call));
        (*state).answer(&mut *call);
    }
}

/// Something other than an acknowledgement happened.
///
/// # Safety
///
/// `call` is valid, and `state` has begun.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_bbr3_event(state: *mut Bbr3, call: *mut PacedCall) {
    // SAFETY: the caller says that both are valid.
    unsafe {
        (*state).take_event(&*call);
        (*state).answer(&mut *call);
    }
}

macro_rules! parts {
    ($($name:ident: $part:expr;)*) => {$(
        /// A part of an acknowledgement ([`Bbr3::take_part`]). The last one answers.
        ///
        /// # Safety
        ///
        /// `call` is valid, and `state` has begun.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(state: *mut Bbr3, call: *mut PacedCall) {
            // SAFETY: the caller says that both are valid.
            let (state, call) = unsafe { (&mut *state, &mut *call) };
            state.take_part($part, call.now(), &call.measurement());
            if $part == PARTS - 1 {
                state.answer(call);
            }
        }
    )*};
}

parts! {
    forebay_bbr3_part0: 0;
    forebay_bbr3_part1: 1;
    forebay_bbr3_part2: 2;
    forebay_bbr3_part3: 3;
    forebay_bbr3_part4: 4;
    forebay_bbr3_part5: 5;
    forebay_bbr3_part6: 6;
    forebay_bbr3_part7: 7;
    forebay_bbr3_part8: 8;
}
