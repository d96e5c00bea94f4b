//! The watchdog of the service manager (sd_watchdog_enabled(3)), which ends a daemon without signs of life. A
//! daemon gives these signs for its worker: the main thread carries no packets.

use std::env;
use std::time::{Duration, Instant};

/// Looks at the worker in each watchdog period, so that one late look does not end the daemon.
const LOOKS: u32 = 4;

/// The schedule for signs of life.
#[derive(Debug)]
pub struct Watchdog {
    every: Duration,
    next: Instant,
    /// Rounds of the worker at the previous look.
    rounds: u64,
}

impl Watchdog {
    /// Reads the watchdog settings from the environment; `None`: no signs of life needed.
    pub fn of_environment() -> Option<Self> {
        let period = env::var("WATCHDOG_USEC").ok()?;
        let watchdog = Self::of(&period, env::var("WATCHDOG_PID").ok().as_deref());
        watchdog.unwrap_or_else(|problem| {
            tracing::warn!(target: "systemd", "{problem}: the service manager gets no sign of \
                                               life");
            None
        })
    }

    /// `period` in microseconds. `pid`: the process that the settings are for; `None`: any.
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

    /// Looks at the worker's number of rounds. Returns whether it has begun a round since the previous look.
    pub fn look(&mut self, now: Instant, rounds: u64) -> bool {
        self.next = now + self.every;
        std::mem::replace(&mut self.rounds, rounds) != rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_is_alive_while_it_begins_rounds() {
        let mut watchdog = Watchdog::of("8000000", None).unwrap().unwrap();
        let mut now = watchdog.next();
        for (rounds, lives) in [(0, false), (1, true), (900, true), (900, false), (901, true)] {
            assert_eq!(watchdog.look(now, rounds), lives, "{rounds}");
            assert_eq!(watchdog.next() - now, Duration::from_secs(2));
            now = watchdog.next();
        }
    }

    #[test]
    fn watchdog_pings_only_the_requested_process() {
        let own = std::process::id().to_string();
        assert!(Watchdog::of("1000", Some(&own)).unwrap().is_some());
        assert!(Watchdog::of("1000", Some("1")).unwrap().is_none());
        for period in ["", "0", "10s", "-1"] {
            let problem = Watchdog::of(period, None).unwrap_err();
            assert!(problem.contains(&format!("WATCHDOG_USEC = {period:?}")), "{problem}");
        }
    }
}
