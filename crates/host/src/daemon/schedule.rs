//! When each bundle wants to be served next, in order, so that a box with thousands of them looks
//! only at those that are due.

use std::collections::BTreeSet;

use forebay_core::units::Timestamp;

/// The next time of every bundle.
#[derive(Debug)]
pub struct Schedule {
    order: BTreeSet<(Timestamp, usize)>,
    due: Vec<Timestamp>,
}

impl Schedule {
    /// Has every bundle served at once.
    pub fn new(bundles: usize) -> Self {
        Self {
            order: (0..bundles).map(|bundle| (Timestamp::ZERO, bundle)).collect(),
            due: vec![Timestamp::ZERO; bundles],
        }
    }

    /// The next time at which some bundle wants to be served.
    pub fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// A bundle that is due at `now`. The caller serves it and then calls [`Schedule::set`].
    pub fn pop(&mut self, now: Timestamp) -> Option<usize> {
        let (at, bundle) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.due[bundle] = Timestamp::MAX;
        Some(bundle)
    }

    /// Has `bundle` served at `at`, unless it is served earlier anyway.
    pub fn set(&mut self, bundle: usize, at: Timestamp) {
        if at < self.due[bundle] {
            self.order.remove(&(self.due[bundle], bundle));
            self.order.insert((at, bundle));
            self.due[bundle] = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    #[test]
    fn bundles_come_in_the_order_of_their_times_and_only_when_due() {
        let mut schedule = Schedule::new(3);
        for (bundle, ns) in [(0, 30), (1, 10), (2, 20)] {
            assert_eq!(schedule.pop(at(0)), Some(bundle));
            schedule.set(bundle, at(ns));
        }
        assert_eq!(schedule.next(), Some(at(10)));
        assert_eq!(schedule.pop(at(9)), None);
        assert_eq!(schedule.pop(at(20)), Some(1));
        assert_eq!(schedule.pop(at(20)), Some(2));
        assert_eq!(schedule.pop(at(20)), None);
    }

    #[test]
    fn an_earlier_time_wins_and_the_later_one_is_forgotten() {
        let mut schedule = Schedule::new(1);
        schedule.pop(at(0));
        schedule.set(0, at(100));
        schedule.set(0, at(50));
        schedule.set(0, at(70));
        assert_eq!(schedule.pop(at(60)), Some(0));
        assert_eq!(schedule.pop(at(1000)), None, "each bundle is served once");
        schedule.set(0, at(2000));
        assert_eq!(schedule.pop(at(2000)), Some(0));
    }

    #[test]
    fn a_bundle_stands_in_the_order_once() {
        let mut schedule = Schedule::new(2);
        for ns in 0..1000 {
            while let Some(bundle) = schedule.pop(at(ns)) {
                schedule.set(bundle, at(ns + 10_000_000));
                schedule.set(bundle, at(ns + 5));
            }
        }
        assert_eq!(schedule.order.len(), 2);
    }
}
