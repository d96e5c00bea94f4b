//! Clients that play a video: each requests segments from a [`super::requests::Server`] over its own
//! connection.

use std::io;

use nix::sys::epoll::EpollFlags;
use socket2::Socket;

use super::endpoint::{Endpoint, Window};
use super::meter::Meter;
use super::reactor::Reactor;
use super::sockets::{CHUNK, Dialer, discard};
use super::workload::Workload;
use super::{GeneratorError, HostsOutput, SiteEnd, requests};
use forebay_core::record::FlowRecord;
use forebay_core::traffic::video::{Player, Video};
use forebay_core::units::Timestamp;
use forebay_host::clock;

/// The clients of one workload.
pub(super) struct Client {
    flow: usize,
    dialer: Dialer,
    clients: u32,
    video: Video,
    /// By connection, once the run has started.
    watching: Vec<Watching>,
    window: Window,
}

/// One client, over any transport.
pub(super) struct Watching {
    player: Player,
    /// Segments requested so far.
    asked: u32,
    /// Missing bytes of the current segment.
    missing: u64,
    meter: Meter,
    pub failed: bool,
}

impl Watching {
    pub fn new(video: &Video, started_ns: u64, start: Timestamp) -> Self {
        let mut meter = Meter::default();
        meter.begin(started_ns);
        let player = Player::new(video.clone(), start);
        Self { player, asked: 0, missing: 0, meter, failed: false }
    }

    /// Time of the next request (ns), if it is before `stop_ns`.
    pub fn due_ns(&self, stop_ns: u64) -> Option<u64> {
        let due = self.player.due().filter(|_| !self.failed);
        due.map(Timestamp::as_nanos).filter(|due| *due < stop_ns)
    }

    /// Chooses the next segment; returns its number and its bytes.
    pub fn choose(&mut self) -> (u32, u64) {
        self.missing = self.player.ask(clock::now()).as_u64();
        self.asked += 1;
        (self.asked - 1, self.missing)
    }

    /// Requests the next segment.
    fn ask(&mut self, socket: &Socket, connection: u32) -> io::Result<()> {
        let (number, bytes) = self.choose();
        requests::ask(socket, number, connection, bytes)
    }

    /// Notes `length` bytes that arrived; the last segment counts if it is complete before `stop_ns`.
    pub fn take(&mut self, length: u64, stop_ns: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        // More bytes than requested: the other end is not our server.
        self.missing = self.missing.checked_sub(length).ok_or(io::ErrorKind::InvalidData)?;
        let now = clock::now();
        self.meter.add(now.as_nanos(), length);
        if self.missing == 0 && now.as_nanos() < stop_ns {
            self.player.on_segment(now);
        }
        Ok(())
    }

    /// The record of connection `index` of `flow`, which ended at `stop`.
    pub fn record(&mut self, flow: usize, index: u32, stop: Timestamp) -> FlowRecord {
        FlowRecord {
            failed: self.failed,
            video: Some(self.player.record(stop)),
            ..self.meter.take_record(flow, index)
        }
    }
}

impl Client {
    pub fn open(
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        clients: u32,
        video: &Video,
    ) -> Result<Self, GeneratorError> {
        Ok(Self {
            flow: site.flow,
            dialer: Dialer::new(key, workload, site, clients)?,
            clients,
            video: video.clone(),
            watching: Vec::new(),
            window: site.window,
        })
    }
}

impl Endpoint for Client {
    fn dialer(&mut self) -> Option<&mut Dialer> {
        Some(&mut self.dialer)
    }

    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        let start = Timestamp::from_nanos(self.window.start_ns);
        let client = |_| Watching::new(&self.video, started_ns, start);
        self.watching = (0..self.clients).map(client).collect();
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        _flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        let Some(watching) = self.watching.get_mut(connection as usize) else { return Ok(()) };
        let socket = self.dialer.socket(connection);
        let read = discard(socket, CHUNK);
        if read.and_then(|length| watching.take(length, self.window.stop_ns)).is_err() {
            watching.failed = true;
            reactor.forget(socket)?;
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        let stop_ns = self.window.stop_ns;
        self.watching.iter().filter_map(|watching| watching.due_ns(stop_ns)).min()
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        for (connection, watching) in (0..).zip(&mut self.watching) {
            let socket = self.dialer.socket(connection);
            if watching.due_ns(self.window.stop_ns).is_some_and(|due| due <= now)
                && watching.ask(socket, connection).is_err()
            {
                watching.failed = true;
                reactor.forget(socket)?;
            }
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        let stop = Timestamp::from_nanos(self.window.stop_ns);
        for (index, watching) in (0..).zip(&mut self.watching) {
            output.flows.push(watching.record(self.flow, index, stop));
        }
    }
}
