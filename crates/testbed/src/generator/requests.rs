//! Requests over persistent connections: the client asks at scheduled times whatever the state
//! of its connections (open loop), the server answers in order.
//!
//! A request is 16 little-endian bytes: index (`u32`), connection (`u32`), bytes wanted (`u64`).
//! The answer is that many bytes and nothing else.

use std::collections::VecDeque;
use std::io;

use nix::sys::epoll::EpollFlags;
use socket2::Socket;

use super::endpoint::{Endpoint, Window};
use super::greedy::{CHUNK, ZEROS};
use super::meter::Meter;
use super::reactor::{Key, Reactor};
use super::sockets::{Acceptor, Dialer, discard, would_block};
use super::{GeneratorError, HostsOutput, SiteEnd};
use crate::scenario::{Request, Workload};
use forebay_core::record::{FlowRecord, RequestRecord};
use forebay_host::clock;

/// Bytes of a request.
const REQUEST_BYTES: usize = 16;

/// The largest answer (bytes): a transfer of a gigabyte lasts 80 s at 100 Mbit/s, longer than a
/// run.
const SIZE_BYTES_MAX: u64 = 1_000_000_000;

/// The answering side.
pub(super) struct Server {
    key: u32,
    flow: usize,
    acceptor: Acceptor,
    connections: Vec<Option<Answering>>,
    window: Window,
    failed: u64,
}

/// One connection of the server.
struct Answering {
    socket: Socket,
    /// The beginning of a request whose rest has not arrived.
    partial: Vec<u8>,
    /// Bytes of all answers that are still to be written.
    pending: u64,
    /// The kernel is to report room for more.
    blocked: bool,
}

impl Server {
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
            connections: Vec::new(),
            window: site.window,
            failed: 0,
        })
    }
}

impl Answering {
    /// Reads what was asked; false once the client has closed.
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
            let size = u64::from_le_bytes(request[8..].try_into().expect("eight of sixteen"));
            if size > SIZE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.pending = self.pending.saturating_add(size);
        }
        Ok(length > 0)
    }

    /// Writes what the kernel takes.
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
                let number = self.connections.len() as u32;
                reactor.watch(&socket, key(number), EpollFlags::EPOLLIN)?;
                let partial = Vec::new();
                let answering = Answering { socket, partial, pending: 0, blocked: false };
                self.connections.push(Some(answering));
            }
            return Ok(());
        }
        let Some(slot) = self.connections.get_mut(connection as usize) else { return Ok(()) };
        let Some(answering) = slot else { return Ok(()) };
        match answering.serve(reactor, key(connection), flags) {
            Ok(true) => {}
            Ok(false) => *slot = None,
            Err(_) => {
                *slot = None;
                self.failed += 1;
            }
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

/// The asking side.
pub(super) struct Client {
    key: u32,
    flow: usize,
    dialer: Dialer,
    asking: Vec<Asking>,
    schedule: Vec<Request>,
    next: usize,
    records: Vec<RequestRecord>,
    unfinished: usize,
    lateness_ns: Vec<u64>,
    meter: Meter,
    window: Window,
    started_ns: Option<u64>,
    failed: bool,
}

/// One connection of the client.
#[derive(Default)]
struct Asking {
    /// Unfinished requests in the order of the answers: place in the schedule, bytes missing.
    outstanding: VecDeque<(usize, u64)>,
    /// Requests that the kernel did not take yet, by place in the schedule.
    unsent: VecDeque<usize>,
    /// Bytes of the first of them that it took.
    unsent_offset: usize,
    failed: bool,
}

impl Client {
    pub fn open(
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        connections: u32,
        schedule: Vec<Request>,
    ) -> Result<Self, GeneratorError> {
        check(workload, connections, &schedule)?;
        Ok(Self {
            key,
            flow: site.flow,
            dialer: Dialer::new(key, workload, site, connections)?,
            asking: (0..connections).map(|_| Asking::default()).collect(),
            next: 0,
            records: Vec::with_capacity(schedule.len()),
            unfinished: 0,
            lateness_ns: Vec::with_capacity(schedule.len()),
            schedule,
            meter: Meter::default(),
            window: site.window,
            started_ns: None,
            failed: false,
        })
    }

    /// When the next request is due.
    fn due_ns(&self) -> Option<u64> {
        let request = self.schedule.get(self.next)?;
        Some(self.started_ns?.saturating_add(request.at_ns))
    }

    /// Asks for the next request of the schedule.
    fn ask(&mut self, reactor: &Reactor, scheduled_ns: u64) -> io::Result<()> {
        let request = self.schedule[self.next];
        let asking = &mut self.asking[request.connection as usize];
        self.records.push(RequestRecord {
            flow: self.flow,
            index: self.next as u32,
            connection: request.connection,
            size_bytes: request.size_bytes,
            scheduled_ns,
            sent_ns: None,
            queued_behind: !asking.outstanding.is_empty(),
            finished_ns: None,
        });
        let index = self.next;
        self.next += 1;
        if asking.failed {
            return Ok(());
        }
        asking.outstanding.push_back((index, request.size_bytes));
        asking.unsent.push_back(index);
        self.unfinished += 1;
        if asking.unsent.len() == 1 { self.write(reactor, request.connection) } else { Ok(()) }
    }

    /// Writes the requests that wait on `connection`, as far as the kernel takes them.
    fn write(&mut self, reactor: &Reactor, connection: u32) -> io::Result<()> {
        let asking = &mut self.asking[connection as usize];
        let socket = self.dialer.socket(connection);
        let key = Key { endpoint: self.key, connection };
        while let Some(&index) = asking.unsent.front() {
            let bytes = encode(index, &self.schedule[index]);
            let record = &mut self.records[index];
            let now = clock::now().as_nanos();
            match socket.send(&bytes[asking.unsent_offset..]) {
                Ok(written) if asking.unsent_offset + written == REQUEST_BYTES => {
                    record.sent_ns = Some(now);
                    if !record.queued_behind {
                        self.lateness_ns.push(now.saturating_sub(record.scheduled_ns));
                    }
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

    /// Takes what arrived on `connection`.
    fn read(&mut self, reactor: &Reactor, connection: u32) -> io::Result<()> {
        let length = match discard(self.dialer.socket(connection), CHUNK) {
            Err(error) if would_block(&error) => return Ok(()),
            Ok(length) if length > 0 => length as u64,
            _ => return self.fail(reactor, connection),
        };
        let now = clock::now().as_nanos();
        self.meter.add(now, length);
        let asking = &mut self.asking[connection as usize];
        let mut arrived = length;
        while let Some((index, missing)) = asking.outstanding.front_mut() {
            let taken = arrived.min(*missing);
            *missing -= taken;
            arrived -= taken;
            if *missing > 0 {
                break;
            }
            self.records[*index].finished_ns = Some(now);
            self.unfinished -= 1;
            asking.outstanding.pop_front();
        }
        // More than was asked for: the other end is not our server.
        if arrived > 0 { self.fail(reactor, connection) } else { Ok(()) }
    }

    /// Gives up `connection`: its requests stay unfinished, and nobody waits for them.
    fn fail(&mut self, reactor: &Reactor, connection: u32) -> io::Result<()> {
        self.failed = true;
        let asking = &mut self.asking[connection as usize];
        if std::mem::replace(&mut asking.failed, true) {
            return Ok(());
        }
        self.unfinished -= asking.outstanding.len();
        reactor.forget(self.dialer.socket(connection))
    }
}

impl Endpoint for Client {
    fn connect(&mut self) {
        self.dialer.start();
    }

    fn is_ready(&self) -> bool {
        self.dialer.is_complete()
    }

    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.started_ns = Some(started_ns);
        self.meter.begin(started_ns);
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        if self.dialer.on_event(reactor, connection)? {
            return Ok(());
        }
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
        self.dialer.next_timer().or_else(|| self.due_ns())
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        if self.dialer.next_timer().is_some() {
            return self.dialer.on_timer(reactor, now);
        }
        while let Some(due) = self.due_ns().filter(|&due| due <= now) {
            self.ask(reactor, due)?;
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        let asked = self.next == self.schedule.len();
        let finished = asked && self.unfinished == 0;
        now >= self.window.end_ns && (finished || now >= self.window.deadline_ns())
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        output.requests.append(&mut self.records);
        output.lateness_ns.append(&mut self.lateness_ns);
        output.flows.push(FlowRecord {
            flow: self.flow,
            bytes: self.meter.bytes(),
            bytes_per_100ms: self.meter.take_intervals(),
            failed: self.failed,
            ..FlowRecord::default()
        });
    }
}

/// The request as it is written.
fn encode(index: usize, request: &Request) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&(index as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&request.connection.to_le_bytes());
    bytes[8..].copy_from_slice(&request.size_bytes.to_le_bytes());
    bytes
}

fn check(
    workload: &Workload,
    connections: u32,
    schedule: &[Request],
) -> Result<(), GeneratorError> {
    let wrong = |key, value, allowed| {
        let workload = workload.name.clone();
        Err(GeneratorError::Workload { workload, key, value, allowed })
    };
    for request in schedule {
        if request.connection >= connections {
            let value = u64::from(request.connection);
            return wrong("connection", value, "less than the number of connections");
        }
        if request.size_bytes == 0 || request.size_bytes > SIZE_BYTES_MAX {
            return wrong("size_bytes", request.size_bytes, "1 to 1000000000");
        }
    }
    if !schedule.is_sorted_by_key(|request| request.at_ns) {
        return wrong("schedule", schedule.len() as u64, "requests in order of time");
    }
    Ok(())
}
