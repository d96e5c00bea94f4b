//! Whether all processors ran all the time.
//!
//! A hypervisor may take one away for tens of milliseconds. Whatever stands there then leaves in one
//! burst, which a shallow buffer drops, and no lateness shows it: nothing may have been due, and a
//! program on another processor may have gone on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock;
use crate::process::{self, try_keep_to, try_realtime};

/// Time between two looks at the clock.
const PERIOD: Duration = Duration::from_millis(2);
/// Above all programs of a run: their own work is no pause, and a look takes microseconds.
const REALTIME_PRIORITY: i32 = 20;

/// A look at the clock of each processor, again and again, until it is finished or dropped.
pub struct PauseWatch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl PauseWatch {
    /// Watches the processors on which this thread may run.
    pub fn start() -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let watch = |cpu| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || longest_pause(cpu, &stop))
        };
        let threads = process::processors()?.into_iter().map(watch).collect();
        Ok(Self { stop, threads })
    }

    /// For how long a processor stood still, at most.
    pub fn finish(mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads).into_iter();
        threads.filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    }
}

impl Drop for PauseWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn longest_pause(cpu: usize, stop: &AtomicBool) -> Duration {
    // Where neither is allowed, it measures the waits of an ordinary program: never less.
    let _ = (try_keep_to(cpu), try_realtime(REALTIME_PRIORITY));
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let due = clock::now() + PERIOD;
        thread::sleep(PERIOD);
        longest = longest.max(clock::now().saturating_since(due));
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_ends_with_the_longest_pause_of_any_processor() {
        let watch = PauseWatch::start().unwrap();
        assert_eq!(watch.threads.len(), process::processors().unwrap().len());
        thread::sleep(10 * PERIOD);
        let longest = watch.finish();
        // A sleep never ends early, and timers are not that exact.
        assert!(longest > Duration::ZERO, "{longest:?}");
    }
}
