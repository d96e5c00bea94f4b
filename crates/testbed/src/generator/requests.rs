//! Requests: a server, which answers in order, and a client of persistent connections. The client sends at
//! scheduled times, whatever the state of its connections (open loop).
//!
//! A request is 16 little-endian bytes: index (`u32`), connection (`u32`), answer size in bytes (`u64`). The
//! answer is exactly that many bytes. The side that opened a connection closes it.

use std::collections::VecDeque;
use std::io;

use nix::sys::epoll::EpollFlags;
use slab::Slab;
use socket2::Socket;

use super::asked::Asked;
use super::endpoint::{Endpoint, Window};
use super::reactor::{Key, Reactor};
use super::sockets::{Acceptor, CHUNK, Dialer, ZEROS, discard, would_block};
use super::workload::{Request, Workload};
use super::{GeneratorError, HostsOutput, SiteEnd};
use forebay_host::clock;

/// Bytes of a request.
pub(super) const REQUEST_BYTES: usize = 16;

/// Largest answer (bytes): a gigabyte takes 80 s at 100 Mbit/s, longer than a run.
pub(super) const SIZE_BYTES_MAX: u64 = 1_000_000_000;

/// The server side.
pub(super) struct Server {
    key: u32,
    flow: usize,
    acceptor: Acceptor,
    /// Connections by their number.
    connections: Slab<Answering>,
    window: Window,
    failed: u64,
}

/// One connection of the server.
struct Answering {
    socket: Socket,
    /// Start of a request whose other bytes have not arrived.
    partial: Vec<u8>,
    /// Answer bytes still to be written.
    pending: u64,
    /// The kernel must report room for more bytes.
    blocked: bool,
}

impl Server {
    /// Expects `connections` connections before the run, and accepts more during it.
    pub fn open(
        reactor: &Reactor,
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        connections: u32,
    ) -> Result<Self, GeneratorError> {
        Ok(Self {
            key,
            flow: site.flow,
            acceptor: Acceptor::open(reactor, key, workload, site, connections)?,
            connections: Slab::new(),
            window: site.window,
            failed: 0,
        })
    }
}

impl Answering {
    /// Reads requests; false once the client has closed.
    fn read(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 64 * REQUEST_BYTES];
        let length = match nix::unistd::read(&self.socket, &mut chunk) {
            Ok(length) => length,
            Err(errno) => {
                let error = io::Error::from(errno);
                return if would_block(&error) { Ok(true) } else { Err(error) };
            }
        };
        self.partial.extend_from_slice(&chunk[..length]);
        let whole = self.partial.len() / REQUEST_BYTES * REQUEST_BYTES;
        for request in self.partial.drain(..whole).as_slice().chunks_exact(REQUEST_BYTES) {
            self.pending = self.pending.saturating_add(decode(request)?);
        }
        Ok(length > 0)
    }

    /// Writes as many bytes as the kernel takes.
    fn write(&mut self) -> io::Result<()> {
        while self.pending > 0 {
            let length = self.pending.min(CHUNK as u64) as usize;
            match self.socket.send(&ZEROS[..length]) {
                Ok(written) => self.pending -= written as u64,
                Err(error) if would_block(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Serves one event; false once the connection is over.
    fn serve(&mut self, reactor: &Reactor, key: Key, flags: EpollFlags) -> io::Result<bool> {
        let open = !flags.contains(EpollFlags::EPOLLIN) || self.read()?;
        self.write()?;
        let blocked = self.pending > 0;
        if blocked != self.blocked {
            let room = if blocked { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
            reactor.change(&self.socket, key, EpollFlags::EPOLLIN | room)?;
            self.blocked = blocked;
        }
        Ok(open)
    }
}

impl Endpoint for Server {
    fn is_ready(&self) -> bool {
        self.acceptor.is_complete(self.connections.len())
    }

    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        let key = |connection| Key { endpoint: self.key, connection };
        if connection == Acceptor::CONNECTION {
            for socket in self.acceptor.accept()? {
                let entry = self.connections.vacant_entry();
                reactor.watch(&socket, key(entry.key() as u32), EpollFlags::EPOLLIN)?;
                let partial = Vec::new();
                entry.insert(Answering { socket, partial, pending: 0, blocked: false });
            }
            return Ok(());
        }
        let number = connection as usize;
        let Some(answering) = self.connections.get_mut(number) else { return Ok(()) };
        let served = answering.serve(reactor, key(connection), flags);
        self.failed += u64::from(served.is_err());
        if !served.unwrap_or(false) {
            drop(self.connections.remove(number));
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        output.failures.push((self.flow, self.failed));
    }
}

/// The client side of persistent connections.
pub(super) struct Client {
    key: u32,
    dialer: Dialer,
    asking: Vec<Asking>,
    asked: Asked,
}

/// One connection of the client.
#[derive(Default)]
struct Asking {
    /// Unfinished requests in the order of their answers: place in the schedule, bytes missing.
    outstanding: VecDeque<(usize, u64)>,
    /// Requests that the kernel has not taken yet, by place in the schedule.
    unsent: VecDeque<usize>,
    /// Bytes of the first unsent request that the kernel took.
    unsent_offset: usize,
    failed: bool,
}

impl Client {
    pub fn open(
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        connections: u32,
    ) -> Result<Self, GeneratorError> {
        Ok(Self {
            key,
            asked: Asked::new(workload, site, connections, workload.requests.clone())?,
            dialer: Dialer::new(key, workload, site, connections)?,
            asking: (0..connections).map(|_| Asking::default()).collect(),
        })
    }

    /// Sends the next request of the schedule.
    fn ask(&mut self, reactor: &Reactor, scheduled_ns: u64) -> io::Result<()> {
        let Request { connection, size_bytes, .. } = self.asked.due();
        let asking = &mut self.asking[connection as usize];
        let index = self.asked.take(scheduled_ns, !asking.outstanding.is_empty());
        if asking.failed {
            self.asked.give_up(1);
            return Ok(());
        }
        asking.outstanding.push_back((index, size_bytes));
        asking.unsent.push_back(index);
        if asking.unsent.len() == 1 { self.write(reactor, connection) } else { Ok(()) }
    }

    /// Writes the unsent requests of `connection`, as far as the kernel takes them.
    fn write(&mut self, reactor: &Reactor, connection: u32) -> io::Result<()> {
        let asking = &mut self.asking[connection as usize];
        let socket = self.dialer.socket(connection);
        let key = Key { endpoint: self.key, connection };
        while let Some(&index) = asking.unsent.front() {
            let request = self.asked.request(index);
            let bytes = encode(index as u32, connection, request.size_bytes);
            let now = clock::now().as_nanos();
            match socket.send(&bytes[asking.unsent_offset..]) {
                Ok(written) if asking.unsent_offset + written == REQUEST_BYTES => {
                    self.asked.sent(index, now);
                    asking.unsent.pop_front();
                    asking.unsent_offset = 0;
                }
                Ok(written) => asking.unsent_offset += written,
                Err(error) if would_block(&error) => {
                    return reactor.change(socket, key, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
                }
                Err(_) => {
                    self.fail(reactor, connection)?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the bytes that arrived on `connection`.
    fn read(&mut self, reactor: &Reactor, connection: u32) -> io::Result<()> {
        let mut arrived = match discard(self.dialer.socket(connection), CHUNK) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(_) => return self.fail(reactor, connection),
        };
        let now = clock::now().as_nanos();
        self.asked.read(now, arrived);
        let asking = &mut self.asking[connection as usize];
        while let Some((index, missing)) = asking.outstanding.front_mut() {
            let taken = arrived.min(*missing);
            *missing -= taken;
            arrived -= taken;
            if *missing > 0 {
                break;
            }
            self.asked.finished(*index, now);
            asking.outstanding.pop_front();
        }
        // More bytes than requested: the other end is not our server.
        if arrived > 0 { self.fail(reactor, connection) } else { Ok(()) }
    }

    /// Gives up `connection`: its requests stay unfinished, and the run does not wait for them.
    fn fail(&mut self, reactor: &Reactor, connection: u32) -> io::Result<()> {
        let asking = &mut self.asking[connection as usize];
        if std::mem::replace(&mut asking.failed, true) {
            return Ok(());
        }
        self.asked.give_up(asking.outstanding.len());
        reactor.forget(self.dialer.socket(connection))
    }
}

impl Endpoint for Client {
    fn dialer(&mut self) -> Option<&mut Dialer> {
        Some(&mut self.dialer)
    }

    fn begin(&mut self, started_ns: u64) {
        self.asked.begin(started_ns);
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        if flags.contains(EpollFlags::EPOLLOUT) {
            let key = Key { endpoint: self.key, connection };
            reactor.change(self.dialer.socket(connection), key, EpollFlags::EPOLLIN)?;
            self.write(reactor, connection)?;
        }
        if flags.intersects(!EpollFlags::EPOLLOUT) && !self.asking[connection as usize].failed {
            self.read(reactor, connection)?;
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        self.asked.due_ns()
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        while let Some(due) = self.asked.due_ns().filter(|&due| due <= now) {
            self.ask(reactor, due)?;
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

/// Sends a request over an idle `socket`, whose send buffer therefore has room for it.
pub(super) fn ask(socket: &Socket, index: u32, connection: u32, size_bytes: u64) -> io::Result<()> {
    let request = encode(index, connection, size_bytes);
    let is_whole = socket.send(&request)? == request.len();
    if is_whole { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Reads the current answer from `socket`; `missing` counts its bytes that are still due.
/// Returns the number of bytes read.
pub(super) fn take(socket: &Socket, missing: &mut u64) -> io::Result<u64> {
    let length = discard(socket, CHUNK)?;
    // More bytes than requested: the other end is not our server.
    *missing = missing.checked_sub(length).ok_or(io::ErrorKind::InvalidData)?;
    Ok(length)
}

/// Bytes of the answer to `request`, which is whole.
pub(super) fn decode(request: &[u8]) -> io::Result<u64> {
    let size = u64::from_le_bytes(request[8..].try_into().expect("eight of sixteen"));
    if size > SIZE_BYTES_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(size) }
}

/// A request in wire format.
pub(super) fn encode(index: u32, connection: u32, size_bytes: u64) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&index.to_le_bytes());
    bytes[4..8].copy_from_slice(&connection.to_le_bytes());
    bytes[8..].copy_from_slice(&size_bytes.to_le_bytes());
    bytes
}
