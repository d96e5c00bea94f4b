//! Clients that play a video: each segment is a stream of the client's connection.

use std::time::Instant;

use quinn_proto::{Connection, Event, StreamEvent};

use super::super::endpoint::Window;
use super::super::reactor::Reactor;
use super::super::video::Watching;
use super::super::{GeneratorError, HostsOutput, SiteEnd};
use super::host::Host;
use super::{App, read, requests};
use forebay_core::traffic::video::Video;
use forebay_core::units::Timestamp;

/// The clients of one workload.
pub(super) struct Client {
    flow: usize,
    clients: u32,
    video: Video,
    /// By connection, once the run has started.
    watching: Vec<Watching>,
    window: Window,
}

impl Client {
    pub fn new(site: &SiteEnd, clients: u32, video: &Video) -> Self {
        let (flow, window) = (site.flow, site.window);
        Self { flow, clients, video: video.clone(), watching: Vec::new(), window }
    }
}

impl App for Client {
    fn begin(&mut self, started_ns: u64) {
        self.window = self.window.from(started_ns);
        let start = Timestamp::from_nanos(self.window.start_ns);
        let client = |_| Watching::new(&self.video, started_ns, start);
        self.watching = (0..self.clients).map(client).collect();
    }

    fn on_event(&mut self, number: usize, connection: &mut Connection, event: Event, _: Instant) {
        let Some(watching) = self.watching.get_mut(number) else { return };
        match event {
            Event::Stream(StreamEvent::Readable { id }) => {
                let bytes = read(connection, id, |_| ());
                watching.failed |= watching.take(bytes, self.window.stop_ns).is_err();
            }
            Event::ConnectionLost { .. } => watching.failed = true,
            _ => {}
        }
    }

    fn next_timer(&self) -> Option<u64> {
        let stop_ns = self.window.stop_ns;
        self.watching.iter().filter_map(|watching| watching.due_ns(stop_ns)).min()
    }

    fn on_timer(
        &mut self,
        _: &Reactor,
        host: &mut Host,
        now: u64,
    ) -> Result<Vec<usize>, GeneratorError> {
        let mut touched = Vec::new();
        for (number, watching) in self.watching.iter_mut().enumerate() {
            if watching.due_ns(self.window.stop_ns).is_some_and(|due| due <= now) {
                let (index, bytes) = watching.choose();
                let connection = host.connection(number);
                let asked = connection.and_then(|it| requests::ask(it, number, index, bytes));
                watching.failed |= asked.is_none();
                touched.push(number);
            }
        }
        Ok(touched)
    }

    fn is_drained(&self, now: u64) -> bool {
        now >= self.window.end_ns
    }

    fn finish(&mut self, _: &mut Host, output: &mut HostsOutput) {
        let stop = Timestamp::from_nanos(self.window.stop_ns);
        for (index, watching) in (0..).zip(&mut self.watching) {
            output.flows.push(watching.record(self.flow, index, stop));
        }
    }
}
