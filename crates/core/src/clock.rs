//! A clock that differs from the clock of the run: a simulated or tested box reads it.
//!
//! ```text
//! "0s +1000ppm, 20s -30s, 40s +10%"      fast by 1000 ppm; after 20 s put back by 30 s; from 40 s on
//!                                        fast by 10 %
//! ```
//! Only the software under test corrects such a clock.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;

use crate::units::{Duration, Timestamp, seconds};

/// Largest difference from the true rate, as a share: chrony slews by up to 8.3 %.
const RATE_MAX: f64 = 0.5;

/// Change of a clock at a time of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// From then on the clock is fast by this share (0.001 is 1000 ppm), or slow if negative.
    Rate(f64),
    /// The clock jumps forward by this many nanoseconds, or backward if negative.
    Step(i64),
}

/// A clock's readings over a run.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Clock {
    /// For each stretch: its start (ns), how far the clock is ahead then (ns), and how fast it is from
    /// then on.
    stretches: Vec<(u64, f64, f64)>,
}

impl Clock {
    /// Fast by `ppm` from the start on.
    pub fn fast_by(ppm: f64) -> Self {
        Self::default().change(Duration::ZERO, Change::Rate(ppm * 1e-6))
    }

    /// This clock with a change at `at`, which is not before the last one.
    pub fn change(mut self, at: Duration, change: Change) -> Self {
        let at = Timestamp::ZERO + at;
        let (ahead, rate) = (self.ahead_ns(at), self.stretches.last().map_or(0.0, |last| last.2));
        self.stretches.push(match change {
            Change::Rate(rate) => (at.as_nanos(), ahead, rate),
            Change::Step(nanos) => (at.as_nanos(), ahead + nanos as f64, rate),
        });
        self
    }

    /// Reading at `now` of a clock that read `origin` at zero; not below zero.
    pub fn read(&self, now: Timestamp, origin: Timestamp) -> Timestamp {
        let ahead = i128::from(origin.as_nanos()) + self.ahead_ns(now) as i128;
        let read = i128::from(now.as_nanos()) + ahead;
        Timestamp::from_nanos(u64::try_from(read.max(0)).unwrap_or(u64::MAX))
    }

    /// This clock without its steps: the timers of a machine follow such a clock, which is never put back.
    pub fn without_steps(&self) -> Self {
        self.stretches.iter().fold(Self::default(), |clock, (since_ns, _, rate)| {
            clock.change(Duration::from_nanos(*since_ns), Change::Rate(*rate))
        })
    }

    /// Time from `now` on until the clock has advanced by `reading`, if its rate stays.
    pub fn wait(&self, now: Timestamp, reading: Duration) -> Duration {
        match self.stretch(now) {
            Some((.., rate)) if *rate != 0.0 => seconds(reading.as_secs_f64() / (1.0 + rate)),
            _ => reading,
        }
    }

    fn ahead_ns(&self, now: Timestamp) -> f64 {
        let elapsed_ns = |since: &u64| (now.as_nanos() - since) as f64;
        self.stretch(now).map_or(0.0, |(since, ahead, rate)| ahead + rate * elapsed_ns(since))
    }

    fn stretch(&self, now: Timestamp) -> Option<&(u64, f64, f64)> {
        self.stretches.iter().rev().find(|stretch| stretch.0 <= now.as_nanos())
    }
}

/// Text that is no [`Clock`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no clock: allowed are changes in order of time, such as \"0s +1000ppm, 20s -30s, 40s \
     +10%\" (fast or slow by up to 50%, or a step)"
)]
pub struct ParseClockError(String);

impl FromStr for Clock {
    type Err = ParseClockError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut clock = Self::default();
        let mut before = Duration::ZERO;
        for entry in text.split(',') {
            let (at, change) = parse_change(entry.trim())
                .filter(|(at, _)| *at >= before)
                .ok_or_else(|| ParseClockError(text.to_string()))?;
            clock = clock.change(at, change);
            before = at;
        }
        Ok(clock)
    }
}

fn parse_change(entry: &str) -> Option<(Duration, Change)> {
    let (at, change) = entry.split_once(' ')?;
    let at = crate::units::parse_duration(at).ok()?;
    let change = change.trim();
    let is_back = change.starts_with('-');
    let amount = change.strip_prefix(['+', '-'])?;
    let sign = if is_back { -1.0 } else { 1.0 };
    for (unit, scale) in [("ppm", 1e-6), ("%", 1e-2)] {
        if let Some(number) = amount.strip_suffix(unit) {
            let share = number.parse::<f64>().ok()? * scale;
            return (0.0..=RATE_MAX).contains(&share).then_some((at, Change::Rate(sign * share)));
        }
    }
    let step = i64::try_from(crate::units::parse_duration(amount).ok()?.as_nanos()).ok()?;
    Some((at, Change::Step(if is_back { -step } else { step })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_runs_fast_or_slow_and_steps() {
        let clock: Clock = "0s +1000ppm, 10s -2s, 20s -10%".parse().unwrap();
        let read_ms = |ms: u64| {
            let now = Timestamp::from_nanos(ms * 1_000_000);
            clock.read(now, Timestamp::ZERO).as_nanos() / 1000
        };
        assert_eq!(read_ms(1_000), 1_001_000);
        assert_eq!(read_ms(10_000), 8_010_000);
        assert_eq!(read_ms(20_000), 18_020_000);
        assert_eq!(read_ms(30_000), 27_020_000);
        assert_eq!(
            Clock::default().read(Timestamp::from_nanos(5), Timestamp::from_nanos(7)),
            Timestamp::from_nanos(12)
        );
        let back = Clock::default().change(Duration::ZERO, Change::Step(-5_000_000_000));
        assert_eq!(
            back.read(Timestamp::from_nanos(2_000_000_000), Timestamp::ZERO),
            Timestamp::ZERO
        );
    }

    #[test]
    fn timers_keep_the_rate_and_know_no_steps() {
        let clock: Clock = "0s +10%, 10s -2s, 20s -50%".parse().unwrap();
        let timers: Clock = "0s +10%, 20s -50%".parse().unwrap();
        for ms in [0, 9_999, 10_000, 19_000, 25_000] {
            let now = Timestamp::from_nanos(ms * 1_000_000);
            let readings = [clock.without_steps(), timers.clone()];
            let [steady, expected] = readings.map(|it| it.read(now, Timestamp::ZERO));
            assert_eq!(steady, expected);
        }
        let second = Duration::from_secs(1);
        assert_eq!(clock.wait(Timestamp::from_nanos(25_000_000_000), second), 2 * second);
        assert_eq!(Clock::default().wait(Timestamp::ZERO, second), second);
    }

    #[test]
    fn text_that_is_no_clock_is_refused() {
        for text in
            ["", "1000ppm", "0s 1000ppm", "5s +1ms, 4s +1ms", "0s +60%", "0s +xppm", "0s +1"]
        {
            let error = text.parse::<Clock>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{text}` is no clock")), "{error}");
        }
    }
}
