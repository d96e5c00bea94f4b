//! Detects whether all processors ran all the time.
//!
//! A hypervisor may take a processor away for tens of milliseconds. A kernel may keep interrupts off
//! for as long as one millisecond, for instance while a program reads the statistics of many memory
//! cgroups. Packets that wait there then leave in one burst, which a shallow buffer drops. The
//! emulator's lateness does not show this: perhaps nothing was due, and a program on another
//! processor may have continued.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::process::{self, try_keep_to, try_realtime};
use forebay_host::clock;
use forebay_host::lateness::Lateness;

/// Interval of the reads of the clock.
const PERIOD: Duration = Duration::from_millis(2);
/// Above all programs of a run: their own work is no pause, and a read of the clock takes
/// microseconds.
const REALTIME_PRIORITY: i32 = 20;

/// Reads the clock on each processor repeatedly, until it is finished or dropped.
pub struct PauseWatch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Lateness>>,
}

impl PauseWatch {
    /// Watches the processors on which this thread may run.
    pub fn start() -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let watch = |cpu| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || lateness(cpu, &stop))
        };
        let threads = process::processors()?.into_iter().map(watch).collect();
        Ok(Self { stop, threads })
    }

    /// Lateness of due work on a processor (ns): p50, p99, p99.9 and the maximum, each the worst of
    /// all processors.
    pub fn finish(mut self) -> [u64; 4] {
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        let watched = threads.filter_map(|thread| thread.join().ok());
        watched.fold([0; 4], |worst, lateness| {
            let percentiles = lateness.percentiles();
            std::array::from_fn(|index| worst[index].max(percentiles[index]))
        })
    }
}

impl Drop for PauseWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn lateness(cpu: usize, stop: &AtomicBool) -> Lateness {
    // If neither is allowed, it measures the waits of an ordinary program, which are never shorter.
    let _ = (try_keep_to(cpu), try_realtime(REALTIME_PRIORITY));
    let mut lateness = Lateness::default();
    while !stop.load(Ordering::Relaxed) {
        let due = clock::now() + PERIOD;
        thread::sleep(PERIOD);
        lateness.record(clock::now().saturating_since(due));
    }
    lateness
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_returns_lateness_of_all_processors() {
        let watch = PauseWatch::start().unwrap();
        assert_eq!(watch.threads.len(), process::processors().unwrap().len());
        thread::sleep(10 * PERIOD);
        // A sleep never ends early, and no timer is exact to the nanosecond.
        let percentiles = watch.finish();
        assert!(percentiles[0] > 0 && percentiles.is_sorted(), "{percentiles:?}");
    }
}
