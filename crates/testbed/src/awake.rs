//! Keeps the processors of a virtual machine from halting during a measurement.
//!
//! An idle processor halts, which hands it back to the hypervisor. If other machines want it too,
//! it returns milliseconds after the timer that woke it. A thread under `SCHED_IDLE` (sched(7))
//! runs only when the processor has nothing else to do, and so uses only that pause.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::process::{self, try_idle_priority, try_keep_to};

/// Divisions between two looks at the stop flag: some 50 us.
const TURN: u32 = 10_000;

/// Spinning threads; they end when this is dropped.
pub(super) struct Awake {
    stop: Arc<AtomicBool>,
}

impl Awake {
    /// Starts on every processor on which this thread may run; `None` on a physical machine.
    pub fn start() -> io::Result<Option<Self>> {
        if !process::is_virtual_machine()? {
            return Ok(None);
        }
        let stop = Arc::new(AtomicBool::new(false));
        for cpu in process::processors()? {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                // At an ordinary priority it would take time from the measured programs.
                if try_idle_priority() && try_keep_to(cpu) {
                    spin(&stop);
                }
            });
        }
        Ok(Some(Self { stop }))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Each division depends on the one before. So a processor that shares its core with this one has
/// nearly all of the core. A pause instruction would end in the hypervisor.
fn spin(stop: &AtomicBool) {
    let mut value = u64::MAX;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..TURN {
            value = value / black_box(3) + (1 << 63);
        }
        // Other threads of the same class may have work.
        thread::yield_now();
    }
    black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn spinning_ends_when_it_is_told_to() {
        let stop = Arc::new(AtomicBool::new(false));
        let spinner = thread::spawn({
            let stop = Arc::clone(&stop);
            move || spin(&stop)
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!spinner.is_finished());
        stop.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        while !spinner.is_finished() {
            assert!(begin.elapsed() < Duration::from_secs(10), "still spinning");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn it_begins_in_a_virtual_machine_only() {
        let virtual_machine = process::is_virtual_machine().unwrap();
        assert_eq!(Awake::start().unwrap().is_some(), virtual_machine);
    }
}
