//! The one clock of all programs on a machine.

use forebay_core::units::Timestamp;
use nix::time::{ClockId, clock_gettime};

/// Now, on `CLOCK_MONOTONIC`: the clock of `bpf_ktime_get_ns`, shared by all processes.
pub fn now() -> Timestamp {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists on Linux");
    Timestamp::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
