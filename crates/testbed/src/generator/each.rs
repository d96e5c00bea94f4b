//! The asking side of requests that have a connection each: it opens one when a request is due, whatever the
//! others do, asks over it, reads the answer, and closes it first.

use std::fs::File;
use std::io;
use std::net::SocketAddrV4;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::epoll::EpollFlags;
use socket2::Socket;

use super::asked::Asked;
use super::endpoint::Endpoint;
use super::greedy::CHUNK;
use super::reactor::{Key, Reactor};
use super::requests::encode;
use super::sockets::{discard, tcp, would_block};
use super::{GeneratorError, HostsOutput, SiteEnd};
use crate::scenario::{Connections, Request, Workload, WorkloadKind};
use forebay_host::clock;

/// The asking side.
pub(super) struct Client {
    key: u32,
    /// What sockets are made by; without the schedule.
    workload: Workload,
    /// Where they are made.
    namespace: File,
    remote: SocketAddrV4,
    asked: Asked,
    /// Connections by their number; that of one that has ended serves a later one.
    asking: Vec<Option<Asking>>,
    free: Vec<u32>,
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
        let request = encode(self.index as u32, 0, self.missing);
        // The send buffer of a new connection has room for it.
        if self.socket.send(&request)? < request.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_open = true;
        Ok(())
    }

    /// Serves one event; gives how many bytes of the answer were read.
    fn serve(&mut self, reactor: &Reactor, key: Key) -> io::Result<u64> {
        if !self.is_open {
            self.ask()?;
            reactor.change(&self.socket, key, EpollFlags::EPOLLIN)?;
            return Ok(0);
        }
        match discard(&self.socket, CHUNK) {
            Err(error) if would_block(&error) => Ok(0),
            Err(error) => Err(error),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            // More than was asked for: the other end is not our server.
            Ok(length) if length as u64 > self.missing => Err(io::ErrorKind::InvalidData.into()),
            Ok(length) => {
                self.missing -= length as u64;
                Ok(length as u64)
            }
        }
    }
}

impl Client {
    pub fn open(
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        namespace: File,
        schedule: Vec<Request>,
    ) -> Result<Self, GeneratorError> {
        let kind = WorkloadKind::Requests { connections: Connections::Each, schedule: Vec::new() };
        Ok(Self {
            key,
            workload: Workload { kind, ..workload.clone() },
            namespace,
            remote: site.sender(),
            asked: Asked::new(workload, site, 1, schedule)?,
            asking: Vec::new(),
            free: Vec::new(),
        })
    }

    /// Opens a connection for the next request of the schedule.
    fn open_next(&mut self, reactor: &Reactor, scheduled_ns: u64) -> Result<(), GeneratorError> {
        let Request { size_bytes, .. } = self.asked.due();
        let index = self.asked.take(scheduled_ns, false);
        // The namespace of the thread is that of the pair whose client opened a connection last.
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
        let connection = self.free.pop().unwrap_or_else(|| {
            self.asking.push(None);
            (self.asking.len() - 1) as u32
        });
        let key = Key { endpoint: self.key, connection };
        reactor.watch(&socket, key, EpollFlags::EPOLLOUT)?;
        let asking = Asking { socket, index, missing: size_bytes, is_open: false };
        self.asking[connection as usize] = Some(asking);
        Ok(())
    }

    /// Closes `connection`.
    fn close(&mut self, connection: u32) {
        self.asking[connection as usize] = None;
        self.free.push(connection);
    }
}

impl Endpoint for Client {
    fn is_ready(&self) -> bool {
        true
    }

    fn begin(&mut self, started_ns: u64) {
        self.asked.begin(started_ns);
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        _flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        let Some(Some(asking)) = self.asking.get_mut(connection as usize) else { return Ok(()) };
        let served = asking.serve(reactor, Key { endpoint: self.key, connection });
        let now = clock::now().as_nanos();
        match served {
            Ok(bytes) => {
                self.asked.read(now, bytes);
                if asking.missing == 0 {
                    self.asked.finished(asking.index, now);
                    self.close(connection);
                }
            }
            Err(_) => {
                self.asked.give_up(1);
                self.close(connection);
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
