//! The congestion-control programs on the running kernel, over loopback.

mod algorithms;
mod arithmetic;
mod costs;
mod ecn;
mod kernels;
mod loopback;
mod loss;
mod native;
mod no_room;
mod paced;
mod recorded;
mod safety;
mod shares;
mod silence;
mod window;
mod wire;

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::Error;
use crate::skel::tcp_check as skel;

/// Random numbers that a seed repeats (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    /// A number with a random count of bits, at most `bits`.
    fn of_bits(&mut self, bits: u32) -> u32 {
        let count = self.below(bits + 1);
        (self.next() & ((1 << count) - 1)) as u32
    }
}

/// Runs a program on a structure, which it changes (BPF_PROG_TEST_RUN).
fn run<T>(program: BorrowedFd<'_>, it: &mut T) {
    // SAFETY: plain numbers and null pointers, for which zero is valid.
    let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of_val(&options) as _;
    // The kernel writes back where it has read from.
    options.ctx_in = (&raw mut *it).cast();
    options.ctx_size_in = size_of::<T>() as u32;
    // SAFETY: options and structure outlive the call, and nothing else refers to the structure.
    let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    assert_eq!(status, 0, "BPF_PROG_TEST_RUN");
}

/// Hands the programs of `tcp_check.bpf.c` to `body`; prints why not where the machine cannot load
/// any.
fn with_programs(body: impl FnOnce(&skel::TcpCheckProgs<'_>)) {
    crate::program::quiet_libbpf();
    let mut storage = MaybeUninit::uninit();
    let loaded = skel::TcpCheckSkelBuilder::default()
        .open(&mut storage)
        .and_then(|open| open.load())
        .map_err(Error::load("tcp_check"));
    if let Some(loaded) = crate::program::tests::loaded(loaded) {
        body(&loaded.progs);
    }
}

#[test]
fn names_that_the_kernel_cannot_hold_are_refused() {
    for name in ["", "sixteen_bytes_xx", "a b", "ü", "a/b"] {
        let error = super::load::check_name(name).unwrap_err().to_string();
        assert!(error.contains("1 to 15 letters"), "{error}");
    }
    assert!(super::load::check_name("fb_native_cubic").is_ok());
}
