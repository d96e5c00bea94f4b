//! A receivebox whose clock differs from its sendbox's, for tests only, since all programs of a testbed read
//! the clock of one machine. No option of a daemon leads here, only `forebay role receivebox`.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use forebay_core::clock::Clock;
use forebay_core::units::Timestamp;
use forebay_host::daemon::receivebox::{self, BoxClock};
use forebay_host::daemon::{Config, DaemonError};
use serde::{Deserialize, Serialize};

use crate::orders::{Heard, Order, Orders};

/// Specification of a receivebox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReceiveboxSpec {
    /// Configuration file of the receivebox.
    pub config: PathBuf,
    /// The clock that the receivebox reads.
    pub clock: Clock,
}

/// Runs the daemon with the machine's clock until the run starts; orders come on stdin.
pub fn run(spec: &ReceiveboxSpec) -> Result<(), DaemonError> {
    let config = Config::load(&spec.config)?;
    let clock = ForeignClock::new(&spec.clock, &io::stdin()).map_err(DaemonError::SetUp)?;
    receivebox::run_by(clock, &config).map(drop)
}

struct ForeignClock {
    clock: Clock,
    timers: Clock,
    orders: Orders,
    /// Until then it equals the machine's clock.
    start: Timestamp,
}

impl ForeignClock {
    /// Differs from the machine's clock by `clock` from the start of the run on, which an order from `orders`
    /// gives.
    fn new(clock: &Clock, orders: &impl AsFd) -> io::Result<Self> {
        let (timers, orders) = (clock.without_steps(), Orders::from(orders)?);
        Ok(Self { clock: clock.clone(), timers, orders, start: Timestamp::MAX })
    }

    fn read(&self, clock: &Clock, now: Timestamp) -> Timestamp {
        if now < self.start {
            return now;
        }
        clock.read(Timestamp::ZERO + now.saturating_since(self.start), self.start)
    }
}

impl BoxClock for ForeignClock {
    /// Reads the start of the run, which comes half a second after the order.
    fn listen(&mut self) {
        if self.start == Timestamp::MAX
            && let Heard::Order(Order::Start(at_ns)) = self.orders.hear()
        {
            self.start = Timestamp::from_nanos(at_ns);
        }
    }

    fn time(&self, now: Timestamp) -> Timestamp {
        self.read(&self.timers, now)
    }

    fn stamp(&self, at: Timestamp) -> Timestamp {
        self.read(&self.clock, at)
    }

    fn wait(&self, now: Timestamp, reading: Duration) -> Duration {
        self.timers.wait(Timestamp::ZERO + now.saturating_since(self.start), reading)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write, pipe};

    use super::*;

    /// A second.
    const SECOND: Duration = Duration::from_secs(1);

    fn clock(text: &str) -> (ForeignClock, PipeWriter) {
        let (orders, told) = pipe().unwrap();
        (ForeignClock::new(&text.parse().unwrap(), &orders).unwrap(), told)
    }

    #[test]
    fn clock_agrees_until_start_and_time_never_steps() {
        let (mut clock, mut told) = clock("0s +10%, 1s -5s");
        let at = |tenths: u32| Timestamp::from_nanos(1 << 40) + SECOND * tenths / 10;
        let ahead_ms = |read: Timestamp, tenths| read.signed_nanos_since(at(tenths)) / 1_000_000;
        clock.listen();
        assert_eq!((clock.time(at(5)), clock.stamp(at(5))), (at(5), at(5)));
        writeln!(told, "start {}", at(0).as_nanos()).unwrap();
        clock.listen();
        assert_eq!((clock.time(at(0)), clock.wait(at(5), 11 * SECOND)), (at(0), 10 * SECOND));
        assert_eq!((ahead_ms(clock.stamp(at(5)), 5), ahead_ms(clock.time(at(5)), 5)), (50, 50));
        assert_eq!(
            (ahead_ms(clock.stamp(at(20)), 20), ahead_ms(clock.time(at(20)), 20)),
            (-4800, 200)
        );
    }

    #[test]
    fn clock_is_unchanged_without_testbed() {
        let (mut clock, told) = clock("0s +10%");
        drop(told);
        let now = Timestamp::from_nanos(7);
        clock.listen();
        assert_eq!(clock.time(now), now);
    }
}
