//! Periodic work of a discipline that has no timer: its next call makes up for the due instants.

use crate::units::{Duration, Timestamp};

/// Most instants that are made up for at once (61 s of PIE's default). The state from before a pause as
/// long has been forgotten, and the work of one call must be bounded.
const INSTANTS_MAX: u64 = 4096;

/// Instants a period apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    /// Above 0.
    period: Duration,
    /// `None` until the first call brings the time.
    next: Option<Timestamp>,
}

impl Periods {
    /// `period` apart, which is above 0.
    pub fn new(period: Duration) -> Self {
        Self { period, next: None }
    }

    /// The instants up to `now` that were not given before, but only the last [`INSTANTS_MAX`] instants.
    /// The first of all is `first`.
    pub fn due(
        &mut self,
        now: Timestamp,
        first: Timestamp,
    ) -> impl Iterator<Item = Timestamp> + use<> {
        let period = self.period.as_nanos() as u64;
        let next = self.next.unwrap_or(first).as_nanos();
        let count = now.as_nanos().checked_sub(next).map_or(0, |late| late / period + 1);
        let at = move |place: u64| {
            Timestamp::from_nanos(next.saturating_add(place.saturating_mul(period)))
        };
        self.next = Some(at(count));
        (count.saturating_sub(INSTANTS_MAX)..count).map(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn each_instant_is_given_once_however_late() {
        let mut periods = Periods::new(Duration::from_millis(10));
        let mut due = |now| periods.due(at(now), at(15)).collect::<Vec<_>>();
        assert_eq!(due(14), []);
        assert_eq!(due(15), [at(15)]);
        assert_eq!(due(24), []);
        assert_eq!(due(47), [at(25), at(35), at(45)]);
    }

    #[test]
    fn long_pause_gives_only_the_last_instants() {
        let mut periods = Periods::new(Duration::from_millis(1));
        let due: Vec<Timestamp> = periods.due(at(1_000_000), at(1)).collect();
        assert_eq!(due.len() as u64, INSTANTS_MAX);
        assert_eq!(due.last(), Some(&at(1_000_000)));
        assert_eq!(periods.due(at(1_000_001), at(1)).count(), 1);
        assert!(periods.due(Timestamp::MAX, at(1)).count() > 0);
    }
}
