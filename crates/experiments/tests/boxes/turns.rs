//! Turns of the tests in this program. A test runs alone if it judges traffic by figures. Tests that mostly wait for a
//! box run together, and first.
//!
//! It takes as many threads as there are tests (`RUST_TEST_THREADS`) so that waiting tests can run together: `cargo
//! xtask test` sets it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most tests that run together: nearly all keep less than a tenth of a processor busy.
const TOGETHER: usize = 8;

/// Tests that run, and tests that wait.
struct Turns {
    is_alone: bool,
    together: usize,
    /// Tests that wait for a turn together.
    waiting: usize,
}

/// Tests that run and wait now.
static TURNS: Mutex<Turns> = Mutex::new(Turns { is_alone: false, together: 0, waiting: 0 });
/// Notified when a test ends.
static CHANGED: Condvar = Condvar::new();

/// The turn of a test, until it is dropped.
pub struct Turn {
    is_alone: bool,
}

/// A turn without any other test: concurrent traffic would disturb the times of both tests. The lock of the testbed is
/// for its own runs only.
pub fn alone() -> Turn {
    take(|turns| {
        let is_free = !turns.is_alone && turns.together + turns.waiting == 0;
        turns.is_alone |= is_free;
        is_free
    });
    Turn { is_alone: true }
}

/// A turn next to other waiting tests, for a test whose conditions also hold on a busy machine.
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

/// Waits until `is_taken` accepts the turns and has changed them.
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
