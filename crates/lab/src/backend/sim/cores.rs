//! Processor cores that the runs of one call share: a run of a network that is cut uses those that are idle.

use std::any::Any;
use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// How often a thread looks for work before it sleeps. That takes some 100 us, as long as the threads of a window
/// wait for one another. Sleeping costs as much: the kernel has to wake an idle core.
const LOOKS: u32 = 5_000;

/// Bound of the helpers of a run, above the most parts of a network.
const HELPERS_MAX: usize = 1 << 10;

/// The cores of a call.
#[derive(Debug)]
pub(super) struct Cores {
    all: usize,
    /// Runs under way.
    runs: AtomicUsize,
}

/// A run under way.
pub(super) struct Share<'a>(&'a Cores);

impl Cores {
    /// `all` cores; 0 means 1.
    pub fn new(all: usize) -> Self {
        Self { all: all.max(1), runs: AtomicUsize::new(0) }
    }

    /// A run begins; it ends when the value is dropped.
    pub fn begin(&self) -> Share<'_> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Share(self)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Threads that work in rounds.
struct Team {
    /// Number of the round, times [`HELPERS_MAX`], and the helpers that take part in it: read in one look, so that a
    /// late helper joins no round twice.
    round: AtomicUsize,
    /// Helpers that still work in this round.
    busy: AtomicUsize,
    /// Place of the next item.
    next: AtomicUsize,
    is_over: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    leader: Thread,
}

/// Ends the helpers' loops, also after a panic of the leader.
struct Ending<'a>(&'a Team, Vec<Thread>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.1.iter().for_each(Thread::unpark);
    }
}

/// The value in `mutex`. After a panic the round ends with that panic, so a poisoned value is read by nothing.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `is_met`. A thread that sleeps must be unparked.
fn wait(is_met: impl Fn() -> bool) {
    let mut looks = 0;
    while !is_met() {
        looks += 1;
        if looks < LOOKS { hint::spin_loop() } else { thread::park() }
    }
}

impl Team {
    fn work<T>(&self, items: &[Mutex<T>], work: &impl Fn(&mut T)) {
        while let Some(item) = items.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut lock(item));
        }
    }

    /// The loop of helper `number`.
    fn help<T>(&self, number: usize, items: &[Mutex<T>], work: &impl Fn(&mut T)) {
        let mut known = 0;
        loop {
            let is_over = || self.is_over.load(Ordering::Acquire);
            wait(|| is_over() || self.round.load(Ordering::Acquire) != known);
            if is_over() {
                return;
            }
            known = self.round.load(Ordering::Acquire);
            if number >= known % HELPERS_MAX {
                continue;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(items, work))) {
                *lock(&self.panic) = Some(panic);
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.leader.unpark();
            }
        }
    }

    /// Does `work` on all items, with this thread and `helpers`.
    fn lead<T>(&self, helpers: &[Thread], items: &[Mutex<T>], work: &impl Fn(&mut T)) {
        self.next.store(0, Ordering::Relaxed);
        self.busy.store(helpers.len(), Ordering::Relaxed);
        let rounds = self.round.load(Ordering::Relaxed) / HELPERS_MAX;
        self.round.store((rounds + 1) * HELPERS_MAX + helpers.len(), Ordering::Release);
        helpers.iter().for_each(Thread::unpark);
        self.work(items, work);
        wait(|| self.busy.load(Ordering::Acquire) == 0);
        if let Some(panic) = lock(&self.panic).take() {
            resume_unwind(panic);
        }
    }
}

impl Share<'_> {
    /// Calls `lead`, which calls its argument for each round: `work` on each of `items`, the first begun first, on as
    /// many threads as this run has cores then. A panic of `work` ends the round and continues in `lead`.
    pub fn in_rounds<T: Send, R>(
        &self,
        items: &[Mutex<T>],
        work: impl Fn(&mut T) + Sync,
        lead: impl FnOnce(&mut dyn FnMut()) -> R,
    ) -> R {
        let Cores { all, runs } = self.0;
        let team = Team {
            round: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            panic: Mutex::new(None),
            leader: thread::current(),
        };
        thread::scope(|scope| {
            let helpers = 1..(*all).min(items.len()).min(HELPERS_MAX);
            let (team, work) = (&team, &work);
            let helper = |number| scope.spawn(move || team.help(number - 1, items, work));
            // First, so that helpers end if another cannot be started.
            let mut ending = Ending(team, Vec::new());
            helpers.for_each(|number| ending.1.push(helper(number).thread().clone()));
            lead(&mut || {
                let threads = all / runs.load(Ordering::Relaxed).max(1);
                let helpers = threads.clamp(1, ending.1.len() + 1) - 1;
                team.lead(&ending.1[..helpers], items, work);
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_works_on_each_item_once() {
        for (all, runs) in [(0, 1), (1, 1), (2, 1), (7, 2), (64, 1)] {
            let cores = Cores::new(all);
            let shares: Vec<Share<'_>> = (0..runs).map(|_| cores.begin()).collect();
            let items: Vec<Mutex<u32>> = (0..20).map(Mutex::new).collect();
            let work = |item: &mut u32| *item += 100;
            shares[0].in_rounds(&items, work, |round| (0..50).for_each(|_| round()));
            let items: Vec<u32> = items.iter().map(|item| *lock(item)).collect();
            assert_eq!(items, (5000..5020).collect::<Vec<_>>());
        }
    }

    #[test]
    fn panic_in_any_thread_ends_the_rounds() {
        for place in 0..3 {
            let items = [0, 1, 2].map(Mutex::new);
            let work = |item: &mut usize| assert!(*item != place, "no");
            let rounds = || Cores::new(3).begin().in_rounds(&items, work, |round| round());
            let panic = catch_unwind(AssertUnwindSafe(rounds)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"no"));
        }
    }
}
