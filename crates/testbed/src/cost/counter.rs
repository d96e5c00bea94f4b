//! The counting process: it has the lowest priority, so that it counts in the time that all other processes leave.

use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::part::{finish, ready};
use super::turns::Times;
use super::{CounterScheduling, PartError};
use crate::process;
use forebay_host::clock;

/// Steps between two looks at the clock: a few microseconds.
const STEPS: u64 = 1000;

/// The count of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counted {
    /// Steps that were counted.
    pub steps: u64,
    /// From the first to the last look at the clock (ns).
    pub time_ns: u64,
    /// CPU time meanwhile (ns).
    pub cpu_ns: u64,
}

impl Counted {
    pub fn per_s(self) -> f64 {
        self.steps as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// Count per second of an otherwise idle processor.
    pub fn per_cpu_s(self) -> f64 {
        self.steps as f64 * 1e9 / self.cpu_ns.max(1) as f64
    }
}

/// Counts in the remaining time of each turn. The process runs from the start, so that nothing changes when
/// a turn begins.
pub(super) fn run(
    times: Times,
    scheduling: CounterScheduling,
    output: &Path,
) -> Result<(), PartError> {
    let (is_allowed, name) = match scheduling {
        CounterScheduling::Idle => (process::try_idle_priority(), "SCHED_IDLE"),
        CounterScheduling::Nice19 => (process::try_nice(19), "nice 19"),
    };
    if !is_allowed {
        return Err(io::Error::other(format!("{name} is refused")).into());
    }
    let Some(started_ns) = ready()? else { return Ok(()) };
    let counted = count(times.turns, &times.counted(started_ns))?;
    Ok(finish(output, &counted)?)
}

/// Counts in the ranges of each of `turns` turns.
fn count(turns: u32, ranges: &[(usize, Range<u64>)]) -> io::Result<Vec<Counted>> {
    let cpu_ns = || process::cpu_clock_ns(std::process::id());
    let mut counted = vec![Counted::default(); turns as usize];
    let mut state = 1;
    for (turn, Range { start, end }) in ranges.iter().cloned() {
        let mut began = clock::now().as_nanos();
        while began < start {
            state = step(state);
            began = clock::now().as_nanos();
        }
        let used_before = cpu_ns()?;
        let (mut steps, mut now) = (0, began);
        // At least once: a process that is too late for a turn still gets a rate.
        while steps == 0 || now < end {
            state = step(state);
            steps += STEPS;
            now = clock::now().as_nanos();
        }
        let sum = &mut counted[turn];
        sum.steps += steps;
        sum.time_ns += now - began;
        sum.cpu_ns += cpu_ns()? - used_before;
    }
    black_box(state);
    Ok(counted)
}

/// Steps of a linear congruential generator (Knuth's MMIX): each needs the previous result.
fn step(state: u64) -> u64 {
    let next =
        |state: u64, _| black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    (0..STEPS).fold(state, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_over_its_turns_is_a_rate() {
        let now = clock::now().as_nanos();
        let ranges = [(0, 1..3), (1, 3..4), (0, 4..6)];
        let ranges =
            ranges.map(|(turn, ms)| (turn, now + ms.start * 1_000_000..now + ms.end * 1_000_000));
        let counted = count(2, &ranges).unwrap();
        assert!(counted.iter().all(|it| it.steps >= STEPS && it.cpu_ns > 0), "{counted:?}");
        let late = count(1, &[(0, 1..2)]).unwrap();
        assert!(late[0].steps == STEPS && late[0].per_s() > 0.0, "{late:?}");
        let counted = Counted { steps: 500, time_ns: 2_000_000_000, cpu_ns: 500_000_000 };
        assert!((counted.per_s() - 250.0).abs() < 1e-9);
        assert!((counted.per_cpu_s() - 1000.0).abs() < 1e-9);
    }
}
