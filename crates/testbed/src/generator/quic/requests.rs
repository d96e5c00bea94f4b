//! Requests and their answers: each has a stream of its own, which the client opens.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{Connection, ConnectionError, Dir, Event, StreamEvent, StreamId, VarInt};

use super::super::asked::Asked;
use super::super::endpoint::Window;
use super::super::reactor::Reactor;
use super::super::requests::{REQUEST_BYTES, decode, encode};
use super::super::sockets::{CHUNK, ZEROS};
use super::super::{GeneratorError, HostsOutput, SiteEnd};
use super::host::Host;
use super::{App, read};
use forebay_host::clock;

/// The server, also of videos.
pub(super) struct Server {
    flow: usize,
    /// Unfinished answers by connection and stream: the request so far, and the bytes still to be written.
    answers: HashMap<(usize, StreamId), (Vec<u8>, Option<u64>)>,
    window: Window,
    failed: u64,
}

impl Server {
    pub fn new(site: &SiteEnd) -> Self {
        Self { flow: site.flow, answers: HashMap::new(), window: site.window, failed: 0 }
    }

    /// Reads a request, and writes as much of its answer as the stream takes.
    fn serve(&mut self, number: usize, connection: &mut Connection, id: StreamId) {
        let Some((request, pending)) = self.answers.get_mut(&(number, id)) else {
            read(connection, id, |_| ());
            return;
        };
        read(connection, id, |bytes| request.extend_from_slice(bytes));
        if pending.is_none() && request.len() == REQUEST_BYTES {
            *pending = decode(request).ok();
            self.failed += u64::from(pending.is_none());
        }
        let Some(pending) = pending else { return };
        let mut stream = connection.send_stream(id);
        while *pending > 0 {
            let chunk = Bytes::from_static(&ZEROS[..(*pending).min(CHUNK as u64) as usize]);
            match stream.write_chunks(&mut [chunk]) {
                Ok(written) => *pending -= written.bytes as u64,
                // It becomes writable later, or its connection is over.
                Err(_) => return,
            }
        }
        let _ = stream.finish();
        self.answers.remove(&(number, id));
    }
}

impl App for Server {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
    }

    fn on_event(&mut self, number: usize, connection: &mut Connection, event: Event, _: Instant) {
        match event {
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = connection.streams().accept(dir) {
                    self.answers.insert((number, id), (Vec::new(), None));
                    self.serve(number, connection, id);
                }
            }
            Event::Stream(StreamEvent::Readable { id } | StreamEvent::Writable { id }) => {
                self.serve(number, connection, id);
            }
            Event::ConnectionLost { reason } => {
                // The client closes.
                self.failed += u64::from(!matches!(reason, ConnectionError::ApplicationClosed(_)));
                self.answers.retain(|(of, _), _| *of != number);
            }
            _ => {}
        }
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, _: &mut Host, output: &mut HostsOutput) {
        output.failures.push((self.flow, self.failed));
    }
}

/// Opens a stream for a request; `None`: the server allows no more streams now.
pub(super) fn ask(
    connection: &mut Connection,
    number: usize,
    index: u32,
    size_bytes: u64,
) -> Option<StreamId> {
    let id = connection.streams().open(Dir::Bi)?;
    let mut stream = connection.send_stream(id);
    // A new stream has room for it. If the connection is over, an event says so.
    let _ = stream.write(&encode(index, number as u32, size_bytes));
    let _ = stream.finish();
    Some(id)
}

/// The client.
pub(super) struct Client {
    asked: Asked,
    /// Each request has a connection of its own.
    is_each: bool,
    /// By number of the connection.
    lines: Vec<Line>,
    /// Unfinished answers by connection and stream: place in the schedule, bytes missing.
    answers: HashMap<(usize, StreamId), (usize, u64)>,
}

/// One connection of the client.
#[derive(Clone, Default)]
struct Line {
    /// Requests without a stream yet, by place in the schedule.
    waiting: VecDeque<usize>,
    unfinished: usize,
    has_failed: bool,
}

impl Client {
    pub fn new(asked: Asked, connections: u32, is_each: bool) -> Self {
        let lines = vec![Line::default(); connections as usize];
        Self { asked, is_each, lines, answers: HashMap::new() }
    }

    /// Sends the requests of connection `number` that wait, as far as streams are allowed.
    fn send(&mut self, number: usize, connection: &mut Connection) {
        while let Some(&index) = self.lines[number].waiting.front() {
            let size_bytes = self.asked.request(index).size_bytes;
            let Some(id) = ask(connection, number, index as u32, size_bytes) else { return };
            self.lines[number].waiting.pop_front();
            self.answers.insert((number, id), (index, size_bytes));
            if !self.is_each {
                self.asked.sent(index, clock::now().as_nanos());
            }
        }
    }

    /// Reads the bytes of an answer that arrived.
    fn read(&mut self, number: usize, connection: &mut Connection, id: StreamId, at: Instant) {
        let bytes = read(connection, id, |_| ());
        if bytes == 0 {
            return;
        }
        let now = clock::now().as_nanos();
        self.asked.read(now, bytes);
        let Some((index, missing)) = self.answers.get_mut(&(number, id)) else { return };
        *missing = missing.saturating_sub(bytes);
        if *missing == 0 {
            self.asked.finished(*index, now);
            self.answers.remove(&(number, id));
            self.lines[number].unfinished -= 1;
            if self.is_each {
                connection.close(at, VarInt::from_u32(0), Bytes::new());
            }
        }
    }
}

impl App for Client {
    fn begin(&mut self, started_ns: u64) {
        self.asked.begin(started_ns);
    }

    fn on_event(&mut self, number: usize, connection: &mut Connection, event: Event, at: Instant) {
        match event {
            Event::Connected | Event::Stream(StreamEvent::Available { .. }) => {
                self.send(number, connection);
            }
            Event::Stream(StreamEvent::Readable { id }) => self.read(number, connection, id, at),
            Event::ConnectionLost { .. } => {
                let line = &mut self.lines[number];
                self.asked.give_up(line.unfinished);
                *line = Line { has_failed: true, ..Line::default() };
                self.answers.retain(|(of, _), _| *of != number);
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<u64> {
        self.asked.due_ns()
    }

    fn on_timer(
        &mut self,
        reactor: &Reactor,
        host: &mut Host,
        now: u64,
    ) -> Result<Vec<usize>, GeneratorError> {
        let mut touched = Vec::new();
        while let Some(due) = self.asked.due_ns().filter(|&due| due <= now) {
            let number = match self.is_each {
                true => host.connect(reactor, now)?,
                false => self.asked.due().connection as usize,
            };
            if self.is_each {
                let lines = self.lines.len().max(number + 1);
                self.lines.resize(lines, Line::default());
                self.lines[number] = Line::default();
            }
            let line = &mut self.lines[number];
            let index = self.asked.take(due, line.unfinished > 0);
            if line.has_failed {
                self.asked.give_up(1);
                continue;
            }
            line.unfinished += 1;
            line.waiting.push_back(index);
            if self.is_each {
                self.asked.sent(index, now);
            } else if let Some(connection) = host.connection(number) {
                self.send(number, connection);
            }
            touched.push(number);
        }
        Ok(touched)
    }

    fn is_drained(&self, now: u64) -> bool {
        self.asked.is_drained(now)
    }

    fn finish(&mut self, _: &mut Host, output: &mut HostsOutput) {
        self.asked.finish(output);
    }
}
