//! Whether all processors ran all the time.
//!
//! A hypervisor may take one away for tens of milliseconds, and a kernel may keep interrupts off for
//! one (as when somebody reads the statistics of many memory cgroups). Whatever stands there then
//! leaves in one burst, which a shallow buffer drops, and the emulator's lateness does not show it:
//! nothing may have been due, and a program on another processor may have gone on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::process::{self, try_keep_to, try_realtime};
use forebay_host::clock;
use forebay_host::lateness::Lateness;

/// Time between two looks at the clock.
const PERIOD: Duration = Duration::from_millis(2);
/// Above all programs of a run: their own work is no pause, and a look takes microseconds.
const REALTIME_PRIORITY: i32 = 20;

/// A look at the clock of each processor, again and again, until it is finished or dropped.
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

    /// How late a processor ran what was due (ns): p50, p99, p99.9 and the maximum, each the worst
    /// of all processors.
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
    // Where neither is allowed, it measures the waits of an ordinary program: never less.
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
    fn a_watch_ends_with_the_lateness_of_all_processors() {
        let watch = PauseWatch::start().unwrap();
        assert_eq!(watch.threads.len(), process::processors().unwrap().len());
        thread::sleep(10 * PERIOD);
        // A sleep never ends early, and timers are not that exact.
        let percentiles = watch.finish();
        assert!(percentiles[0] > 0 && percentiles.is_sorted(), "{percentiles:?}");
    }
}
