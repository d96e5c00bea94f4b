//! Parallel work on items; results do not depend on the number of threads.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` on each item, `threads` items at a time; the results are in the order of the items.
pub fn in_order<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let made: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let work_on = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else { return };
            let result = work(item);
            *made[place].lock().expect("taken by one thread alone") = Some(result);
        }
    };
    thread::scope(|scope| {
        let threads = 0..threads.clamp(1, items.len().max(1));
        let threads: Vec<_> = threads.map(|_| scope.spawn(work_on)).collect();
        // A scope would report a panic without its message.
        threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|it| resume_unwind(it)));
    });
    let result = |made: Mutex<Option<R>>| made.into_inner().ok().flatten();
    made.into_iter().map(|it| result(it).expect("every item was worked on")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_items() {
        let items: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 3, 200] {
            let squares = in_order(&items, threads, |item| item * item);
            assert!(squares.iter().zip(&items).all(|(square, item)| *square == item * item));
            assert_eq!(squares.len(), items.len());
        }
        assert!(in_order(&[], 2, |item: &u64| *item).is_empty());
    }

    #[test]
    fn panic_of_one_item_reaches_caller() {
        let work = |item: &u64| assert!(*item != 3, "three");
        let items: Vec<u64> = (0..10).collect();
        let panic = std::panic::catch_unwind(|| in_order(&items, 2, work)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"three"));
    }
}
