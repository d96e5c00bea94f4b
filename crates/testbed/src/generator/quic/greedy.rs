//! Greedy flows: each connection has one stream of the sending side, which always has data.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{Connection, Dir, Event, StreamEvent, StreamId, VarInt};

use super::super::endpoint::Window;
use super::super::meter::Meter;
use super::super::reactor::Reactor;
use super::super::sockets::ZEROS;
use super::super::watch::Watch;
use super::super::{GeneratorError, HostsOutput, SiteEnd};
use super::host::Host;
use super::{App, config, read};
use forebay_core::record::{FlowRecord, TcpSample};
use forebay_host::clock;

/// Interval between writes (ns). The window of a stream holds more data than are sent meanwhile. To write at
/// each acknowledgement would cut the data into pieces of a datagram, which quinn searches one by one.
const REFILL_NS: u64 = 10_000_000;

/// The sending side.
pub(super) struct Source {
    flow: usize,
    flows: u32,
    streams: Vec<Option<StreamId>>,
    window: Window,
    next_ns: Option<u64>,
    watch: Watch,
    failed: u64,
}

impl Source {
    pub fn new(site: &SiteEnd, flows: u32) -> Self {
        Self {
            flow: site.flow,
            flows,
            streams: Vec::new(),
            window: site.window,
            next_ns: None,
            watch: Watch::default(),
            failed: 0,
        }
    }
}

/// Hands data to stream `id` until it takes no more.
fn fill(connection: &mut Connection, id: StreamId) {
    let mut stream = connection.send_stream(id);
    while stream.write_chunks(&mut [Bytes::from_static(&ZEROS)]).is_ok_and(|it| it.bytes > 0) {}
}

fn sample(connection: &Connection, now: u64) -> TcpSample {
    let path = connection.stats().path;
    TcpSample {
        at_ns: now,
        cwnd_segments: path.cwnd as f64 / f64::from(path.current_mtu),
        srtt_ms: Some(path.rtt.as_secs_f64() * 1e3),
        retransmissions: path.lost_packets,
        ..TcpSample::default()
    }
}

impl App for Source {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.next_ns = Some(self.window.start_ns);
        self.watch.begin(started_ns, self.window, self.flows as usize);
    }

    fn on_event(&mut self, _: usize, _: &mut Connection, event: Event, _: Instant) {
        self.failed += u64::from(matches!(event, Event::ConnectionLost { .. }));
    }

    fn next_timer(&self) -> Option<u64> {
        self.next_ns.into_iter().chain(self.watch.next_timer()).min()
    }

    fn on_timer(
        &mut self,
        _: &Reactor,
        host: &mut Host,
        now: u64,
    ) -> Result<Vec<usize>, GeneratorError> {
        let mut touched = Vec::new();
        if self.next_ns.is_some_and(|at| at <= now) {
            let is_running = now < self.window.stop_ns;
            for (number, connection) in host.connections().enumerate() {
                let Some(connection) = connection else { continue };
                if number >= self.streams.len() {
                    self.streams.resize(number, None);
                    self.streams.push(connection.streams().open(Dir::Uni));
                }
                match self.streams[number] {
                    Some(id) if is_running => fill(connection, id),
                    // Waiting data are dropped; only those under way follow the end of the flow.
                    Some(id) => {
                        let _ = connection.send_stream(id).reset(VarInt::from_u32(0));
                    }
                    None => {}
                }
                touched.push(number);
            }
            self.next_ns = is_running.then(|| self.window.stop_ns.min(now + REFILL_NS));
        }
        self.watch.take(now, host.connections().map(|it| Some(sample(it?, now))));
        Ok(touched)
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, host: &mut Host, output: &mut HostsOutput) {
        output.failures.push((self.flow, self.failed));
        let end = |connection: Option<&mut Connection>| {
            let connection = connection?;
            Some((connection.remote_address().port(), config::algorithm(connection)?.into()))
        };
        output.senders.extend(self.watch.senders(self.flow, host.connections().map(end)));
    }
}

/// The receiving side.
pub(super) struct Sink {
    flow: usize,
    meters: Vec<Meter>,
    failed: Vec<bool>,
    window: Window,
}

impl Sink {
    pub fn new(site: &SiteEnd, flows: u32) -> Self {
        Self {
            flow: site.flow,
            meters: (0..flows).map(|_| Meter::default()).collect(),
            failed: vec![false; flows as usize],
            window: site.window,
        }
    }
}

impl App for Sink {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        self.meters.iter_mut().for_each(|meter| meter.begin(started_ns));
    }

    fn on_event(&mut self, number: usize, connection: &mut Connection, event: Event, _: Instant) {
        let id = match event {
            Event::Stream(StreamEvent::Opened { dir }) => connection.streams().accept(dir),
            Event::Stream(StreamEvent::Readable { id }) => Some(id),
            Event::ConnectionLost { .. } => {
                self.failed[number] = true;
                None
            }
            _ => None,
        };
        let bytes = id.map_or(0, |id| read(connection, id, |_| ()));
        if bytes > 0 {
            self.meters[number].add(clock::now().as_nanos(), bytes);
        }
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, host: &mut Host, output: &mut HostsOutput) {
        for (number, meter) in self.meters.iter_mut().enumerate() {
            let index = number as u32;
            output.receivers.extend(host.port(number).map(|port| (self.flow, index, port)));
            let record = meter.take_record(self.flow, index);
            output.flows.push(FlowRecord { failed: self.failed[number], ..record });
        }
    }
}
