//! Turns of the tests of this program. Where traffic is judged by figures, a test runs alone; those that wait for what a
//! box does, for most of their time, run together, and first.
//!
//! It takes as many threads as there are tests (`RUST_TEST_THREADS`) to have those that wait find each other: `cargo
//! xtask test` sets it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most tests that run together: nearly all keep less than a tenth of a processor busy.
const TOGETHER: usize = 8;

/// Who runs, and who would.
struct Turns {
    is_alone: bool,
    together: usize,
    /// Tests that wait for a turn together.
    waiting: usize,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { is_alone: false, together: 0, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

/// The turn of a test, until it is dropped.
pub struct Turn {
    is_alone: bool,
}

/// A turn without any other test: traffic of two at once would disturb the times of both. The lock of the testbed is for
/// its own runs only.
pub fn alone() -> Turn {
    take(|turns| {
        let is_free = !turns.is_alone && turns.together + turns.waiting == 0;
        turns.is_alone |= is_free;
        is_free
    });
    Turn { is_alone: true }
}

/// A turn next to other tests that wait, for one that holds a box to nothing that a busy machine would change.
pub fn together() -> Turn {
    turns().waiting += 1;
    take(|turns| {
        let is_free = !turns.is_alone && turns.together < TOGETHER;
        if is_free {
            turns.together += 1;
            turns.waiting -= 1;
        }
        is_free
    });
    Turn { is_alone: false }
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `is_taken` has taken what it wants.
fn take(mut is_taken: impl FnMut(&mut Turns) -> bool) {
    let waited = CHANGED.wait_while(turns(), |turns| !is_taken(turns));
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = turns();
        match self.is_alone {
            true => turns.is_alone = false,
            false => turns.together -= 1,
        }
        CHANGED.notify_all();
    }
}
