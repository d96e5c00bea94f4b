//! Processor cores that the runs of one call share: a run of a network that is cut uses those that are idle.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

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
    /// `all` cores, at least one.
    pub fn new(all: usize) -> Self {
        Self { all, runs: AtomicUsize::new(0) }
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

impl Share<'_> {
    /// Does `work` on each of `items`, on as many threads as this run has cores now. The first items are begun
    /// first. If `work` panics, the panic continues here once all threads have ended.
    pub fn for_each<T: Send>(&self, items: &mut [T], work: impl Fn(&mut T) + Sync) {
        let threads = self.0.all / self.0.runs.load(Ordering::Relaxed).max(1);
        let next = AtomicUsize::new(0);
        let places: Vec<Mutex<&mut T>> = items.iter_mut().map(Mutex::new).collect();
        let work_on = || {
            while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(&mut place.lock().unwrap_or_else(PoisonError::into_inner));
            }
        };
        thread::scope(|scope| {
            let helpers = 1..threads.min(places.len());
            let helpers: Vec<_> = helpers.map(|_| scope.spawn(work_on)).collect();
            work_on();
            let ended = helpers.into_iter().map(thread::ScopedJoinHandle::join);
            ended.filter_map(Result::err).for_each(|panic| resume_unwind(panic));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        for (all, runs) in [(1, 1), (2, 1), (7, 2), (64, 1)] {
            let cores = Cores::new(all);
            let shares: Vec<Share<'_>> = (0..runs).map(|_| cores.begin()).collect();
            let mut items: Vec<u32> = (0..20).collect();
            shares[0].for_each(&mut items, |item| *item += 100);
            assert_eq!(items, (100..120).collect::<Vec<_>>());
        }
    }

    #[test]
    fn panic_in_a_thread_ends_the_work() {
        let work = || Cores::new(2).begin().for_each(&mut [0, 1, 2], |_| panic!("no"));
        let panic = std::panic::catch_unwind(work).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"no"));
    }
}
