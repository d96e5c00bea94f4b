//! Times at which bundles need service, in order, so that a box with thousands of bundles looks
//! only at the due ones.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_core::units::Timestamp;

/// The next time of every bundle.
#[derive(Debug)]
pub struct Schedule {
    order: BTreeSet<(Timestamp, usize)>,
    due: Vec<Timestamp>,
    /// Empty between rounds; kept to reuse its memory.
    served: Vec<(Timestamp, usize)>,
}

/// Time at which a bundle needs service again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time.
    At(Timestamp),
    /// First of all, because earlier bundles used up the room that it needed.
    InTurn,
}

impl Schedule {
    /// Has every bundle served at once.
    pub fn new(bundles: usize) -> Self {
        Self {
            order: (0..bundles).map(|bundle| (Timestamp::ZERO, bundle)).collect(),
            due: vec![Timestamp::ZERO; bundles],
            served: Vec::with_capacity(bundles),
        }
    }

    /// The next time at which a bundle needs service.
    pub fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The bundles that need service at `until` or before, in the order of their times.
    pub fn due_by(&self, until: Timestamp) -> impl Iterator<Item = usize> + '_ {
        self.order.range(..=(until, usize::MAX)).map(|(_, bundle)| *bundle)
    }

    /// A bundle that is due at `now`. The caller serves it and then calls [`Schedule::set`].
    pub fn pop(&mut self, now: Timestamp) -> Option<usize> {
        self.pop_due(now).map(|(_, bundle)| bundle)
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, usize)> {
        let (at, bundle) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.order.pop_first();
        self.due[bundle] = Timestamp::MAX;
        Some((at, bundle))
    }

    /// Serves every bundle that is due at `now` once, so that a busy bundle leaves the other
    /// bundles their turn. A bundle that got nothing keeps its place before bundles that got
    /// something, however small each round is.
    pub fn round(&mut self, now: Timestamp, mut serve: impl FnMut(usize) -> Next) {
        let mut served = std::mem::take(&mut self.served);
        while let Some((wanted, bundle)) = self.pop_due(now) {
            let again = match serve(bundle) {
                Next::At(at) => at.max(now + Duration::from_nanos(1)),
                Next::InTurn => wanted,
            };
            served.push((again, bundle));
        }
        for (again, bundle) in served.drain(..) {
            self.set(bundle, again);
        }
        self.served = served;
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
    fn due_bundles_come_in_time_order() {
        let mut schedule = Schedule::new(3);
        for (bundle, ns) in [(0, 30), (1, 10), (2, 20)] {
            assert_eq!(schedule.pop(at(0)), Some(bundle));
            schedule.set(bundle, at(ns));
        }
        assert_eq!(schedule.next(), Some(at(10)));
        let due_by = |ns| schedule.due_by(at(ns)).collect::<Vec<_>>();
        assert_eq!([due_by(9), due_by(20), due_by(30)], [vec![], vec![1, 2], vec![1, 2, 0]]);
        assert_eq!(schedule.pop(at(9)), None);
        assert_eq!(schedule.pop(at(20)), Some(1));
        assert_eq!(schedule.pop(at(20)), Some(2));
        assert_eq!(schedule.pop(at(20)), None);
    }

    #[test]
    fn earlier_time_replaces_the_later_one() {
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
    fn single_place_rotates_among_busy_bundles() {
        let (mut schedule, mut sent) = (Schedule::new(3), [0; 3]);
        for now in (1..=300).map(|round| at(round * 1000)) {
            let mut room = 1;
            schedule.round(now, |bundle| {
                if room == 0 {
                    return Next::InTurn;
                }
                (room, sent[bundle]) = (0, sent[bundle] + 1);
                Next::At(now)
            });
        }
        assert_eq!(sent, [100; 3]);
    }

    #[test]
    fn round_serves_each_bundle_at_most_once() {
        let mut schedule = Schedule::new(3);
        for next in [Next::InTurn, Next::At(at(7)), Next::At(Timestamp::ZERO), Next::At(at(20))] {
            let mut served = Vec::new();
            schedule.round(at(10), |bundle| {
                served.push(bundle);
                next
            });
            assert_eq!(served, [0, 1, 2]);
            schedule = Schedule::new(3);
        }
        schedule.round(at(10), |_| Next::At(at(20)));
        assert_eq!(schedule.next(), Some(at(20)));
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
