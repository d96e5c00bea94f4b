//! Flows that always have data to send.

use nix::sys::epoll::EpollFlags;
use socket2::Socket;

use super::endpoint::{Endpoint, Window};
use super::meter::Meter;
use super::pace::Pace;
use super::reactor::{Key, Reactor};
use super::sockets::{Acceptor, CHUNK, Dialer, ZEROS, discard, failed, would_block};
use super::watch::Watch;
use super::workload::Workload;
use super::{GeneratorError, HostsOutput, SiteEnd};
use forebay_core::record::FlowRecord;
use forebay_host::clock;

/// Most unsent bytes that the kernel takes from a greedy flow. At 1 Gbit/s they last 4 ms, a
/// scheduler's time slice, so the flow never runs dry. At most this much follows the end of the
/// flow. It does not limit the window.
const UNSENT_BYTES: u32 = 512 * 1024;

/// The sending side.
pub(super) struct Source {
    key: u32,
    flow: usize,
    acceptor: Acceptor,
    connections: Vec<Option<Socket>>,
    window: Window,
    timer: Option<u64>,
    watch: Watch,
    failed: u64,
}

impl Source {
    pub fn open(
        reactor: &Reactor,
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        flows: u32,
    ) -> Result<Self, GeneratorError> {
        Ok(Self {
            key,
            flow: site.flow,
            acceptor: Acceptor::open(reactor, key, workload, site, flows)?,
            connections: Vec::new(),
            window: site.window,
            timer: None,
            watch: Watch::default(),
            failed: 0,
        })
    }

    fn fail(&mut self, connection: usize) {
        if self.connections[connection].take().is_some() {
            self.failed += 1;
        }
    }

    /// Starts or stops writing.
    fn turn(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        let running = now < self.window.stop_ns;
        let interest = if running { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        for (index, socket) in self.connections.iter().enumerate() {
            let key = Key { endpoint: self.key, connection: index as u32 };
            if let Some(socket) = socket {
                reactor.change(socket, key, interest)?;
            }
        }
        self.timer = running.then_some(self.window.stop_ns);
        Ok(())
    }
}

impl Endpoint for Source {
    fn is_ready(&self) -> bool {
        self.acceptor.is_complete(self.connections.len())
    }

    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.timer = Some(self.window.start_ns);
        self.watch.begin(started_ns, self.window, self.connections.len());
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        if connection == Acceptor::CONNECTION {
            for socket in self.acceptor.accept()? {
                socket
                    .set_tcp_notsent_lowat(UNSENT_BYTES)
                    .map_err(failed(&self.acceptor.workload, "TCP_NOTSENT_LOWAT"))?;
                let key = Key { endpoint: self.key, connection: self.connections.len() as u32 };
                reactor.watch(&socket, key, EpollFlags::empty())?;
                self.connections.push(Some(socket));
            }
            return Ok(());
        }
        let index = connection as usize;
        let Some(Some(socket)) = self.connections.get(index) else { return Ok(()) };
        if flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            self.fail(index);
        } else if flags.contains(EpollFlags::EPOLLOUT) {
            match socket.send(&ZEROS) {
                Err(error) if !would_block(&error) => self.fail(index),
                _ => {}
            }
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        self.timer.into_iter().chain(self.watch.next_timer()).min()
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        if self.timer.is_some_and(|at| at <= now) {
            self.turn(reactor, now)?;
        }
        self.watch.on_timer(now, &self.connections);
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        output.failures.push((self.flow, self.failed));
        output.senders.extend(self.watch.finish(self.flow, &self.connections));
    }
}

/// The receiving side.
pub(super) struct Sink {
    key: u32,
    flow: usize,
    dialer: Dialer,
    meters: Vec<Meter>,
    failed: Vec<bool>,
    window: Window,
    /// Pace of receivers that read at a limited rate.
    pace: Option<Pace>,
}

impl Sink {
    pub fn open(
        key: u32,
        workload: &Workload,
        site: &SiteEnd,
        flows: u32,
    ) -> Result<Self, GeneratorError> {
        Ok(Self {
            key,
            flow: site.flow,
            dialer: Dialer::new(key, workload, site, flows)?,
            meters: (0..flows).map(|_| Meter::default()).collect(),
            failed: vec![false; flows as usize],
            window: site.window,
            pace: workload.receiving.read_rate.map(|rate| Pace::new(rate, flows)),
        })
    }
}

impl Endpoint for Sink {
    fn dialer(&mut self) -> Option<&mut Dialer> {
        Some(&mut self.dialer)
    }

    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        for meter in &mut self.meters {
            meter.begin(started_ns);
        }
    }

    fn on_event(
        &mut self,
        reactor: &Reactor,
        connection: u32,
        _flags: EpollFlags,
    ) -> Result<(), GeneratorError> {
        let socket = self.dialer.socket(connection);
        let most = self.pace.as_ref().map_or(CHUNK, Pace::portion);
        match discard(socket, most) {
            Ok(0) => {}
            Ok(length) => {
                let now = clock::now().as_nanos();
                self.meters[connection as usize].add(now, length);
                if let Some(pace) = &mut self.pace {
                    pace.on_read(connection, now, length);
                    let key = Key { endpoint: self.key, connection };
                    reactor.change(socket, key, EpollFlags::empty())?;
                }
            }
            Err(_) => {
                self.failed[connection as usize] = true;
                reactor.forget(socket)?;
            }
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<u64> {
        self.pace.as_ref()?.next_timer()
    }

    fn on_timer(&mut self, reactor: &Reactor, now: u64) -> Result<(), GeneratorError> {
        let Some(pace) = &mut self.pace else { return Ok(()) };
        for connection in pace.release(now) {
            if !self.failed[connection as usize] {
                let key = Key { endpoint: self.key, connection };
                reactor.change(self.dialer.socket(connection), key, EpollFlags::EPOLLIN)?;
            }
        }
        Ok(())
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, output: &mut HostsOutput) {
        for (index, meter) in self.meters.iter_mut().enumerate() {
            let own = self.dialer.socket(index as u32).local_addr().ok();
            if let Some(address) = own.and_then(|address| address.as_socket()) {
                output.receivers.push((self.flow, index as u32, address.port()));
            }
            let record = meter.take_record(self.flow, index as u32);
            output.flows.push(FlowRecord { failed: self.failed[index], ..record });
        }
    }
}
