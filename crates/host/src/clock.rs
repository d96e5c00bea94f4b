//! The one clock of all programs on a machine.

use forebay_core::units::{Duration, Timestamp};
use nix::time::{ClockId, clock_gettime};

/// Now, on `CLOCK_MONOTONIC`: the clock of `bpf_ktime_get_ns`, shared by all processes.
pub fn now() -> Timestamp {
    Timestamp::from_nanos(nanos(ClockId::CLOCK_MONOTONIC))
}

/// The time of day, since 1970, at which [`now`] was 0. Returns 0 if the clock is set to before
/// that.
pub fn time_of_day() -> Duration {
    let since_zero = nanos(ClockId::CLOCK_REALTIME).saturating_sub(now().as_nanos());
    Duration::from_nanos(since_zero)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("this clock exists on Linux");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
