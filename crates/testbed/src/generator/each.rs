//! The client of requests with a connection each. When a request is due, it opens a connection, whatever the
//! state of other requests. It sends the request, reads the answer, and closes the connection first.

use std::fs::File;
use std::io;
use std::net::SocketAddrV4;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::epoll::EpollFlags;
use slab::Slab;
use socket2::Socket;

use super::asked::Asked;
use super::endpoint::Endpoint;
use super::reactor::{Key, Reactor};
use super::sockets::tcp;
use super::workload::{Request, Workload};
use super::{GeneratorError, HostsOutput, SiteEnd, requests};
use forebay_host::clock;

/// The client side.
pub(super) struct Client {
    key: u32,
    /// The workload that sockets are made for, without its schedule.
    workload: Workload,
    /// Network namespace of the sockets.
    namespace: File,
    remote: SocketAddrV4,
    asked: Asked,
    /// Connections by their number.
    asking: Slab<Asking>,
}

/// One connection.
struct Asking {
    socket: Socket,
    /// Place of its request in the schedule.
    index: usize,
    /// Bytes of the answer that are still to come.
    missing: u64,
    is_open: bool,
}

impl Asking {
    /// Sends the request once the connection is open.
    fn ask(&mut self) -> io::Result<()> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        requests::ask(&self.socket, self.index as u32, 0, self.missing)?;
        self.is_open = true;
        Ok(())
    }

    /// Serves one event; returns the number of answer bytes read.
    fn serve(&mut self, reactor: &Reactor, key: Key) -> io::Result<u64> {
        if !self.is_open {
            self.ask()?;
            reactor.change(&self.socket, key, EpollFlags::EPOLLIN)?;
            return Ok(0);
        }
        requests::take(&self.socket, &mut self.missing)
    }
}

impl Client {
    pub fn open(
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        namespace: File,
    ) -> Result<Self, GeneratorError> {
        let mut workload = workload.clone();
        let requests = std::mem::take(&mut workload.requests);
        Ok(Self {
            key,
            namespace,
            remote: site.sender(),
            asked: Asked::new(&workload, site, 1, requests)?,
            workload,
            asking: Slab::new(),
        })
    }

    /// Opens a connection for the next request of the schedule.
    fn open_next(&mut self, reactor: &Reactor, scheduled_ns: u64) -> Result<(), GeneratorError> {
        let Request { size_bytes, .. } = self.asked.due();
        let index = self.asked.take(scheduled_ns, false);
        // The thread is in the namespace of the pair whose client last opened a connection.
        setns(&self.namespace, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
        let socket = tcp(&self.workload)?;
        let now = clock::now().as_nanos();
        match socket.connect(&self.remote.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => {
                self.asked.give_up(1);
                return Ok(());
            }
            _ => self.asked.sent(index, now),
        }
        let entry = self.asking.vacant_entry();
        let key = Key { endpoint: self.key, connection: entry.key() as u32 };
        reactor.watch(&socket, key, EpollFlags::EPOLLOUT)?;
        entry.insert(Asking { socket, index, missing: size_bytes, is_open: false });
        Ok(())
    }
}

impl Endpoint for Client {
    fn begin(&mut self, started_ns: u64) {
        self.asked.begin(started_ns);
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        _flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        let number = connection as usize;
        let Some(asking) = self.asking.get_mut(number) else { return Ok(()) };
        let served = asking.serve(reactor, Key { endpoint: self.key, connection });
        let now = clock::now().as_nanos();
        match served {
            Ok(bytes) => {
                self.asked.read(now, bytes);
                if asking.missing == 0 {
                    self.asked.finished(asking.index, now);
                    drop(self.asking.remove(number));
                }
            }
            Err(_) => {
                self.asked.give_up(1);
                drop(self.asking.remove(number));
            }
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        self.asked.due_ns()
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        while let Some(due) = self.asked.due_ns().filter(|&due| due <= now) {
            self.open_next(reactor, due)?;
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        self.asked.is_drained(now)
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        self.asked.finish(output);
    }
}
