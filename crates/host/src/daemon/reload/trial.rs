//! A change that reverts unless it is confirmed in time. The daemon keeps the time, and not the command that
//! requested the change: its terminal may be lost through the change.

use std::time::{Duration, Instant};

/// Allowed durations (s): enough to log in again, up to a day.
pub const WITHIN: std::ops::RangeInclusive<u32> = 5..=86_400;

/// A change on trial.
#[derive(Debug)]
pub struct Trial<T> {
    /// State before the change.
    pub before: T,
    /// The change on trial, for people.
    pub what: String,
    end: Instant,
}

impl<T> Trial<T> {
    /// A trial that begins at `now` and is over `within_s` seconds later.
    ///
    /// # Errors
    ///
    /// `within_s` is outside [`WITHIN`].
    pub fn new(before: T, what: String, now: Instant, within_s: u32) -> Result<Self, String> {
        check(within_s)?;
        Ok(Self::until(now + Duration::from_secs(within_s.into()), before, what))
    }

    /// A trial that has begun, and is over at `end`.
    pub const fn until(end: Instant, before: T, what: String) -> Self {
        Self { before, what, end }
    }

    /// When the trial is over.
    pub const fn over_at(&self) -> Instant {
        self.end
    }

    /// Seconds until the trial is over, rounded up.
    pub fn left_s(&self, now: Instant) -> u64 {
        self.end.saturating_duration_since(now).as_millis().div_ceil(1000) as u64
    }

    /// Ends the trial at `now`, if it was not over before.
    pub fn end(&mut self, now: Instant) {
        self.end = self.end.min(now);
    }

    /// Whether the trial is over.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }
}

/// Checks the duration of a trial.
pub fn check(within_s: u32) -> Result<(), String> {
    if WITHIN.contains(&within_s) {
        return Ok(());
    }
    let (least, most) = (WITHIN.start(), WITHIN.end());
    Err(format!("to be confirmed within {within_s} s: allowed are {least} to {most} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_ends_exactly_at_its_time() {
        let start = Instant::now();
        let mut trial = Trial::new("before", "one changed".into(), start, 60).unwrap();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(
            [0, 1, 59_000, 59_999, 60_000].map(|ms| trial.left_s(after(ms))),
            [60, 60, 1, 1, 0]
        );
        assert!(!trial.is_over(after(59_999)) && trial.is_over(after(60_000)));
        assert_eq!(trial.over_at(), after(60_000));
        assert_eq!(trial.left_s(after(90_000)), 0);
        trial.end(after(90_000));
        assert_eq!(trial.over_at(), after(60_000));
        trial.end(after(7));
        assert!(trial.is_over(after(7)));
    }

    #[test]
    fn trial_must_have_a_finite_positive_length() {
        for within_s in [0, 4, 86_401, u32::MAX] {
            let error = Trial::new((), String::new(), Instant::now(), within_s).unwrap_err();
            assert!(error.ends_with("allowed are 5 to 86400 s"), "{error}");
        }
        assert!(Trial::new((), String::new(), Instant::now(), 86_400).is_ok());
    }
}
