//! One side of one workload: its interface to the event loop.

use nix::sys::epoll::EpollFlags;

use super::reactor::Reactor;
use super::sockets::Dialer;
use super::{GeneratorError, HostsOutput};

/// One side of one workload. All times are `CLOCK_MONOTONIC` in ns.
pub(super) trait Endpoint {
    /// The part that opens connections before the run; `None` if this side opens none.
    fn dialer(&mut self) -> Option<&mut Dialer> {
        None
    }

    /// Begins to open the connections that have no dialer; [`Self::is_ready`] waits for them.
    fn dial(&mut self) {}

    /// Whether all connections that the dialer does not open are open.
    fn is_ready(&self) -> bool {
        true
    }

    /// The run starts at `started_ns`.
    fn begin(&mut self, started_ns: u64);

    /// Handles an event on `connection`, which is open if [`Self::dialer`] opened it.
    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError>;

    /// Time of the next call of [`Self::on_timer`], once the connections are open.
    fn next_timer(&self) -> Option<u64> {
        None
    }

    /// The time of [`Self::next_timer`] has come.
    fn on_timer(&mut self, _reactor: &Reactor, _now: u64) -> Result<(), GeneratorError> {
        Ok(())
    }

    /// Whether the run need not wait for this endpoint any longer.
    fn is_drained(&self, now: u64) -> bool;

    /// Hands over the results at the end of the run.
    fn finish(&mut self, output: &mut HostsOutput);
}

/// Interface of the event loop: first it opens the connections, then it passes events on to the endpoint.
impl dyn Endpoint {
    /// Opens the connections from the next timer on; the other side listens already.
    pub fn connect(&mut self) {
        self.dial();
        if let Some(dialer) = self.dialer() {
            dialer.start();
        }
    }

    /// Whether all connections are open.
    pub fn is_connected(&mut self) -> bool {
        self.dialer().is_none_or(|dialer| dialer.is_complete()) && self.is_ready()
    }

    /// Handles an event on `connection`.
    pub fn handle_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        if let Some(dialer) = self.dialer()
            && dialer.on_event(reactor, connection)?
        {
            return Ok(());
        }
        self.on_event(reactor, connection, flags)
    }

    /// Time of the next call of [`Self::handle_timer`].
    pub fn deadline(&mut self) -> Option<u64> {
        let next = self.dialer().and_then(|dialer| dialer.next_timer());
        next.or_else(|| self.next_timer())
    }

    /// The time of [`Self::deadline`] has come.
    pub fn handle_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        if let Some(dialer) = self.dialer()
            && dialer.next_timer().is_some()
        {
            return dialer.on_timer(reactor, now);
        }
        self.on_timer(reactor, now)
    }
}

/// Times of a workload, relative to the start of the run (ns).
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Time of the first byte.
    pub start_ns: u64,
    /// Time of the last byte.
    pub stop_ns: u64,
    /// End of all arrivals.
    pub end_ns: u64,
    /// Longest wait after `end_ns`.
    pub drain_ns: u64,
}

impl Window {
    /// This window as times of the clock, for a run that starts at `started_ns`.
    pub fn from(self, started_ns: u64) -> Self {
        let at = |relative: u64| started_ns.saturating_add(relative);
        Self {
            start_ns: at(self.start_ns),
            stop_ns: at(self.stop_ns),
            end_ns: at(self.end_ns),
            drain_ns: self.drain_ns,
        }
    }

    /// The end of the longest drain.
    pub fn deadline_ns(self) -> u64 {
        self.end_ns.saturating_add(self.drain_ns)
    }
}
