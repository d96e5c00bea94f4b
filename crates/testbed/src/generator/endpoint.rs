//! One side of one workload, as the event loop sees it.

use nix::sys::epoll::EpollFlags;

use super::reactor::Reactor;
use super::{GeneratorError, HostsOutput};

/// One side of one workload. All times are `CLOCK_MONOTONIC` in ns.
pub(super) trait Endpoint {
    /// The other side listens: open the connections, from the next timer on.
    fn connect(&mut self) {}

    /// All connections are open.
    fn is_ready(&self) -> bool;

    /// The run starts at `started_ns`.
    fn begin(&mut self, started_ns: u64);

    /// Something happened on `connection`.
    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError>;

    /// When [`Self::on_timer`] wants to be called.
    fn next_timer(&self) -> Option<u64> {
        None
    }

    /// The time of [`Self::next_timer`] has come.
    fn on_timer(&mut self, _reactor: &Reactor, _now: u64) -> Result<(), GeneratorError> {
        Ok(())
    }

    /// Nothing is left to wait for.
    fn is_drained(&self, now: u64) -> bool;

    /// The run is over: hand over what was seen.
    fn finish(&mut self, output: &mut HostsOutput);
}

/// When a workload runs, relative to the start of the run (ns).
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// First byte.
    pub start_ns: u64,
    /// Last byte.
    pub stop_ns: u64,
    /// End of all arrivals.
    pub end_ns: u64,
    /// Longest wait after it.
    pub drain_ns: u64,
}

impl Window {
    /// This window on the clock, for a run that starts at `started_ns`.
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
