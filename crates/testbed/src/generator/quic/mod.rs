//! Traffic over QUIC: quinn's protocol core (`quinn-proto`), driven by this event loop.
//!
//! The sending side listens on one UDP port. Each connection has a port of its own at the receiving side, so
//! that queues see as many flows as over TCP. A request is the same 16 bytes as over TCP.

mod config;
mod greedy;
mod host;
mod requests;
mod video;

use std::fs::File;
use std::time::Instant;

use nix::sys::epoll::EpollFlags;
use quinn_proto::{Connection, Event, StreamId};

use super::asked::Asked;
use super::endpoint::Endpoint;
use super::reactor::Reactor;
use super::workload::Workload;
use super::{GeneratorError, HostsOutput, SiteEnd};
use forebay_core::traffic::Connections;
use forebay_scenario::Traffic;
use host::Host;

/// The data of one side of a workload. All times are `CLOCK_MONOTONIC` in ns.
trait App {
    /// The run starts at `started_ns`.
    fn begin(&mut self, started_ns: u64);

    /// Handles an event of connection `number` at `at`.
    fn on_event(&mut self, number: usize, connection: &mut Connection, event: Event, at: Instant);

    /// Time of the next call of [`Self::on_timer`].
    fn next_timer(&self) -> Option<u64> {
        None
    }

    /// The time of [`Self::next_timer`] has come. Returns the numbers of the connections to drive.
    fn on_timer(
        &mut self,
        _reactor: &Reactor,
        _host: &mut Host,
        _now: u64,
    ) -> Result<Vec<usize>, GeneratorError> {
        Ok(Vec::new())
    }

    /// As [`Endpoint::is_drained`].
    fn is_drained(&self, now: u64) -> bool;

    /// As [`Endpoint::finish`].
    fn finish(&mut self, host: &mut Host, output: &mut HostsOutput);
}

/// One side of a workload over QUIC.
struct Quic<A> {
    host: Host,
    app: A,
}

impl<A: App> Quic<A> {
    fn drive(&mut self, numbers: Vec<usize>) -> Result<(), GeneratorError> {
        numbers.into_iter().try_for_each(|number| self.host.drive(number, &mut self.app))
    }
}

impl<A: App> Endpoint for Quic<A> {
    fn dial(&mut self) {
        self.host.dial();
    }

    fn is_ready(&self) -> bool {
        self.host.is_ready()
    }

    fn begin(&mut self, started_ns: u64) {
        self.host.has_begun = true;
        self.app.begin(started_ns);
    }

    fn on_event(
        &mut self,
        _reactor: &Reactor,
        connection: u32,
        _flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        let touched = self.host.receive(connection);
        self.drive(touched)
    }

    fn next_timer(&self) -> Option<u64> {
        self.host.next_timer().into_iter().chain(self.app.next_timer()).min()
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        let touched = self.host.on_timer(reactor, now)?;
        self.drive(touched)?;
        if self.app.next_timer().is_some_and(|at| at <= now) {
            let touched = self.app.on_timer(reactor, &mut self.host, now)?;
            self.drive(touched)?;
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        self.app.is_drained(now)
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        self.app.finish(&mut self.host, output);
    }
}

/// One side of `workload`.
pub(super) fn open(
    reactor: &Reactor,
    key: u32,
    workload: &Workload,
    site: &SiteEnd,
    namespace: &File,
) -> Result<Box<dyn Endpoint>, GeneratorError> {
    let host = |expected| Host::open(reactor, key, workload, site, namespace, expected);
    Ok(match (&workload.traffic, site.sends) {
        (Traffic::Greedy { flows }, true) => {
            Box::new(Quic { host: host(*flows)?, app: greedy::Source::new(site, *flows) })
        }
        (Traffic::Greedy { flows }, false) => {
            Box::new(Quic { host: host(*flows)?, app: greedy::Sink::new(site, *flows) })
        }
        (Traffic::Requests(load), sends) => {
            let expected = match load.connections {
                Connections::Persistent(count) => count,
                Connections::Each => 0,
            };
            let host = host(expected)?;
            if sends {
                Box::new(Quic { host, app: requests::Server::new(site) })
            } else {
                let asked = Asked::new(workload, site, expected.max(1), workload.requests.clone())?;
                Box::new(Quic { host, app: requests::Client::new(asked, expected, expected == 0) })
            }
        }
        (Traffic::Video { flows, .. }, true) => {
            Box::new(Quic { host: host(*flows)?, app: requests::Server::new(site) })
        }
        (Traffic::Video { flows, video }, false) => {
            Box::new(Quic { host: host(*flows)?, app: video::Client::new(site, *flows, video) })
        }
        (Traffic::Datagrams { .. } | Traffic::Ping { .. } | Traffic::Media { .. }, _) => {
            unreachable!(
                "plans refuse a transport for single datagrams, and this back end live encoders"
            )
        }
    })
}

/// Reads the bytes that have arrived on stream `id`, in order; returns their number.
fn read(connection: &mut Connection, id: StreamId, mut visit: impl FnMut(&[u8])) -> u64 {
    let mut length = 0;
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return 0 };
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        length += chunk.bytes.len() as u64;
        visit(&chunk.bytes);
    }
    // Room for more is announced with the next datagram in any case.
    let _ = chunks.finalize();
    length
}
