//! The watchdog of the service manager (sd_watchdog_enabled(3)), which ends a daemon that gives no sign of life. A
//! daemon gives one for its worker, and not for its main thread, whose answers do not carry packets.

use std::env;
use std::time::{Duration, Instant};

/// Looks at the worker in each period: one that comes late is no reason to end a daemon.
const LOOKS: u32 = 4;

/// When the service manager is told that the worker lives.
#[derive(Debug)]
pub struct Watchdog {
    every: Duration,
    next: Instant,
    /// Rounds of the worker at the look before.
    rounds: u64,
}

impl Watchdog {
    /// What the service manager has asked of this process; `None`: no signs of life.
    pub fn of_environment() -> Option<Self> {
        let period = env::var("WATCHDOG_USEC").ok()?;
        let watchdog = Self::of(&period, env::var("WATCHDOG_PID").ok().as_deref());
        watchdog.unwrap_or_else(|problem| {
            tracing::warn!(target: "systemd", "{problem}: no sign of life is given");
            None
        })
    }

    /// `period` in microseconds; `pid`: the process that is meant, if not every.
    fn of(period: &str, pid: Option<&str>) -> Result<Option<Self>, String> {
        if pid.is_some_and(|pid| pid != std::process::id().to_string()) {
            return Ok(None);
        }
        let period_us = period.parse::<u64>().ok().filter(|period_us| *period_us > 0);
        let period_us = period_us.ok_or_else(|| {
            format!("WATCHDOG_USEC = {period:?}: allowed is a time in us above 0")
        })?;
        let every = Duration::from_micros(period_us) / LOOKS;
        Ok(Some(Self { every, next: Instant::now() + every, rounds: 0 }))
    }

    /// When the next look is due.
    pub const fn next(&self) -> Instant {
        self.next
    }

    /// Looks at a worker that has begun so many rounds; whether it has begun one since the look before.
    pub fn look(&mut self, now: Instant, rounds: u64) -> bool {
        self.next = now + self.every;
        std::mem::replace(&mut self.rounds, rounds) != rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_lives_as_long_as_it_begins_rounds() {
        let mut watchdog = Watchdog::of("8000000", None).unwrap().unwrap();
        let mut now = watchdog.next();
        for (rounds, lives) in [(0, false), (1, true), (900, true), (900, false), (901, true)] {
            assert_eq!(watchdog.look(now, rounds), lives, "{rounds}");
            assert_eq!(watchdog.next() - now, Duration::from_secs(2));
            now = watchdog.next();
        }
    }

    #[test]
    fn signs_of_life_are_given_where_this_process_is_asked_for_them() {
        let own = std::process::id().to_string();
        assert!(Watchdog::of("1000", Some(&own)).unwrap().is_some());
        assert!(Watchdog::of("1000", Some("1")).unwrap().is_none());
        for period in ["", "0", "10s", "-1"] {
            let problem = Watchdog::of(period, None).unwrap_err();
            assert!(problem.contains(&format!("WATCHDOG_USEC = {period:?}")), "{problem}");
        }
    }
}
