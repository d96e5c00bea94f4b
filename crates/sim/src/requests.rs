//! Requests over TCP connections. The client at B sends requests at scheduled times and never waits for
//! earlier answers (open loop). The server at A answers each request with the requested number of bytes.
//! Connections are persistent, or each request opens its own.
//!
//! ```text
//!  client ── 16 bytes, half connection B to A ──► server
//!     └◄──────── the answer, half connection A to B ───┘
//! ```
//! The server answers the requests on one connection in order, each as soon as it has arrived. An answer
//! behind another one waits in the send buffer. Each half is a flow of [`Traffic::Written`] with its own
//! sender and receiver, and keeps its state between requests.
//!
//! With a connection for each request, no request waits for another one, but each begins with a handshake.
//! All these connections are one flow of [`Traffic::Messages`].
//!
//! A client that plays a video asks in the same way whenever its buffer has room. A live encoder writes without
//! requests.
//!
//! This module drives the network from outside: its next action follows from the data that were read.
//!
//! [`Traffic::Written`]: crate::network::Traffic::Written
//! [`Traffic::Messages`]: crate::network::Traffic::Messages

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;
use std::sync::Arc;

use forebay_core::record::MediaRecord;
use forebay_core::record::VideoRecord;
use forebay_core::traffic::Request;
use forebay_core::traffic::video::Video;
use forebay_core::units::{Duration, Timestamp};

use crate::media::Streaming;
use crate::parts::Parts;
use crate::simulation::{REQUEST_BYTES, Read, Simulation};
use crate::video::Watching;

/// Length of the intervals in which answered bytes are counted, in nanoseconds.
pub const INTERVAL_NS: u64 = 100_000_000;

/// The two flows of a network that form one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// From the client to the server.
    pub asks: usize,
    /// From the server to the client.
    pub answers: usize,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time at which the client wrote the request; `None`: not yet.
    pub sent: Option<Timestamp>,
    /// Whether another request on its connection was unfinished at that time.
    pub queued_behind: bool,
    /// Time at which the client read the last byte of the answer.
    pub finished: Option<Timestamp>,
}

/// The requests of one schedule.
#[derive(Debug)]
struct Workload {
    start: Timestamp,
    schedule: Arc<[Request]>,
    /// Place of the next request.
    asked: usize,
    /// Number of requests of the clients here.
    wanted: usize,
    /// The persistent connections.
    connections: Vec<Connection>,
    /// The flow of messages that carries the answers, if each request has its own connection.
    messages: Option<usize>,
    outcomes: Vec<Outcome>,
    finished: usize,
    /// Bytes of answers read in each [`INTERVAL_NS`] since the start of the run.
    intervals: Vec<u64>,
}

#[derive(Debug)]
struct Connection {
    halves: Halves,
    /// Whether its client is in this part of the network.
    is_asked_here: bool,
    /// Number of requests whose answers are not read yet.
    unfinished: usize,
    /// Requests on their way to the server, in order.
    asked: VecDeque<Message>,
    /// Requests that the server is answering, with their answers.
    answering: VecDeque<Message>,
    /// Segment number at the end of the answer before the first in `answering`.
    answered: u32,
    /// Bytes of the first answer that the client has read.
    read: u64,
}

/// A request or an answer on its way.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// Place of the request in the schedule.
    place: u32,
    /// Segments of its half read once it is read whole.
    end: u32,
}

impl Connection {
    fn new(halves: Halves) -> Self {
        let (asked, answering) = (VecDeque::new(), VecDeque::new());
        let (is_asked_here, unfinished) = (true, 0);
        Self { halves, is_asked_here, unfinished, asked, answering, answered: 0, read: 0 }
    }
}

impl Workload {
    /// Goes on to the next request of a client here.
    fn skip(&mut self) {
        let is_elsewhere = |it: &Request| {
            self.connections.get(it.connection as usize).is_some_and(|it| !it.is_asked_here)
        };
        let elsewhere = self.schedule[self.asked..].iter().take_while(|it| is_elsewhere(it));
        self.asked += elsewhere.count();
    }

    fn due(&self) -> Option<Timestamp> {
        self.schedule.get(self.asked).map(|request| self.start + request.at)
    }

    /// Writes the next request with `write`, which takes a flow and bytes and returns the segment number at
    /// their end.
    fn ask(&mut self, now: Timestamp, write: impl FnOnce(usize, u64) -> u32) {
        let place = self.asked;
        let connection = &mut self.connections[self.schedule[place].connection as usize];
        let outcome = &mut self.outcomes[place];
        (outcome.sent, outcome.queued_behind) = (Some(now), connection.unfinished > 0);
        connection.unfinished += 1;
        let end = write(connection.halves.asks, REQUEST_BYTES);
        connection.asked.push_back(Message { place: place as u32, end });
        self.asked += 1;
        self.skip();
    }

    /// Opens a connection for the next request with `open`, which takes a flow and bytes. Messages and
    /// requests have the same numbers.
    fn open(&mut self, now: Timestamp, flow: usize, open: impl FnOnce(usize, u64) -> Option<u32>) {
        let place = self.asked;
        let number = open(flow, self.schedule[place].size.as_u64());
        debug_assert_eq!(number, Some(place as u32), "another user of this flow of messages");
        self.outcomes[place].sent = Some(now);
        self.asked += 1;
    }

    fn finish(&mut self, now: Timestamp, place: usize) {
        self.outcomes[place].finished = Some(now);
        self.finished += 1;
    }

    /// The server has read `segments` of requests on connection `number`, and answers with `write`.
    fn hear(&mut self, number: usize, segments: u32, mut write: impl FnMut(usize, u64) -> u32) {
        let connection = &mut self.connections[number];
        while let Some(request) = connection.asked.pop_front_if(|it| it.end <= segments) {
            let size = self.schedule[request.place as usize].size.as_u64();
            let end = write(connection.halves.answers, size);
            connection.answering.push_back(Message { end, ..request });
        }
    }

    /// The client has read `segments` of answers on connection `number`.
    fn read(&mut self, now: Timestamp, number: usize, segments: u32) {
        let connection = &mut self.connections[number];
        let interval = (now.as_nanos() / INTERVAL_NS) as usize;
        if self.intervals.len() <= interval {
            self.intervals.resize(interval + 1, 0);
        }
        while let Some(Message { place, end }) = connection.answering.front().copied() {
            let size = self.schedule[place as usize].size.as_u64();
            let (whole, part) = (end - connection.answered, segments - connection.answered);
            // An answer on its way counts with its share of segments; a whole answer counts exactly.
            let read = if part >= whole { size } else { size * u64::from(part) / u64::from(whole) };
            self.intervals[interval] += read - connection.read;
            connection.read = read;
            if end > segments {
                return;
            }
            self.outcomes[place as usize].finished = Some(now);
            self.finished += 1;
            connection.unfinished -= 1;
            (connection.answered, connection.read) = (end, 0);
            connection.answering.pop_front();
        }
    }
}

/// A request or an answer that one end of a connection has written, for its other end in another part of the
/// network. It arrives before the first byte of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    workload: usize,
    connection: usize,
    is_answer: bool,
    message: Message,
}

/// The share that clients and servers have in a network that is cut.
#[derive(Debug)]
struct Share {
    parts: Arc<Parts>,
    here: usize,
    /// Notes for each part.
    notes: Vec<Vec<Note>>,
}

/// The client that sends the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asker {
    Workload(usize),
    Video(usize),
    Media(usize),
}

/// Role of a flow of the network, with the number of its workload or video.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// The half of a persistent connection that carries requests.
    Asks { workload: usize, connection: usize },
    /// The half of a persistent connection that carries answers.
    Answers { workload: usize, connection: usize },
    /// All answers of the workload with this number, each over a connection of its own.
    Messages(usize),
    /// The half that carries requests for segments.
    VideoAsks(usize),
    /// The half that carries segments.
    VideoAnswers(usize),
    /// The frames of a live encoder.
    Media(usize),
}

/// All workloads of a network.
#[derive(Debug, Default)]
pub struct Requests {
    workloads: Vec<Workload>,
    videos: Vec<Watching>,
    media: Vec<Streaming>,
    /// When each of `media` captures its next frame: a run may have thousands of them.
    captures: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// Role of each flow of the network.
    roles: Vec<Option<Role>>,
    /// `None`: the network is not cut.
    share: Option<Share>,
}

impl Requests {
    /// Adds requests at the times of `schedule`, in order and counted from `start`; each names one of
    /// `connections`. Returns the number of the workload. Panics on a connection that does not exist.
    pub fn add(
        &mut self,
        start: Duration,
        schedule: Vec<Request>,
        connections: &[Halves],
    ) -> usize {
        let exists = |request: &Request| (request.connection as usize) < connections.len();
        assert!(schedule.iter().all(exists), "a request on a connection that does not exist");
        let workload = self.workloads.len();
        for (connection, halves) in connections.iter().enumerate() {
            self.take(halves.asks, Role::Asks { workload, connection });
            self.take(halves.answers, Role::Answers { workload, connection });
        }
        let connections = connections.iter().copied().map(Connection::new).collect();
        self.add_workload(start, schedule, connections, None)
    }

    /// Adds requests at the times of `schedule`, in order and counted from `start`, each over its own
    /// connection. The answers are the messages of flow `flow`, which no other caller may open. Returns the
    /// number of the workload.
    pub fn add_messages(&mut self, start: Duration, schedule: Vec<Request>, flow: usize) -> usize {
        self.take(flow, Role::Messages(self.workloads.len()));
        self.add_workload(start, schedule, Vec::new(), Some(flow))
    }

    /// Adds a client that plays `video` over `connection` from the first of `times` to the second. The video
    /// must pass its own `check`.
    pub fn add_video(&mut self, times: [Duration; 2], video: Video, connection: Halves) {
        self.take(connection.asks, Role::VideoAsks(self.videos.len()));
        self.take(connection.answers, Role::VideoAnswers(self.videos.len()));
        self.videos.push(Watching::new(video, times, connection));
    }

    /// Adds a live encoder.
    pub(crate) fn add_media(&mut self, media: Streaming) {
        self.take(media.flow, Role::Media(self.media.len()));
        self.media.push(media);
        self.plan_capture(self.media.len() - 1);
    }

    /// Plans the next frame of a live encoder.
    fn plan_capture(&mut self, media: usize) {
        self.captures.extend(self.media[media].due().map(|due| Reverse((due, media))));
    }

    /// Gives `flow` its role.
    fn take(&mut self, flow: usize, role: Role) {
        if self.roles.len() <= flow {
            self.roles.resize(flow + 1, None);
        }
        self.roles[flow] = Some(role);
    }

    fn add_workload(
        &mut self,
        start: Duration,
        schedule: Vec<Request>,
        connections: Vec<Connection>,
        messages: Option<usize>,
    ) -> usize {
        debug_assert!(schedule.is_sorted_by_key(|request| request.at));
        self.workloads.push(Workload {
            start: Timestamp::ZERO + start,
            asked: 0,
            wanted: schedule.len(),
            connections,
            messages,
            outcomes: vec![Outcome::default(); schedule.len()],
            finished: 0,
            intervals: Vec::new(),
            schedule: schedule.into(),
        });
        self.workloads.len() - 1
    }

    /// The clients and servers in part `here`, before the run.
    pub(crate) fn of_part(&self, parts: &Arc<Parts>, here: usize) -> Self {
        let of_workload = |of: &Workload| {
            let connection = |it: &Connection| Connection {
                is_asked_here: parts.flows[it.halves.asks][0] == here,
                ..Connection::new(it.halves)
            };
            let mut workload = Workload {
                schedule: of.schedule.clone(),
                connections: of.connections.iter().map(connection).collect(),
                outcomes: of.outcomes.clone(),
                intervals: Vec::new(),
                ..*of
            };
            let connections = &workload.connections;
            let is_here = |it: &&Request| connections[it.connection as usize].is_asked_here;
            workload.wanted = workload.schedule.iter().filter(is_here).count();
            workload.skip();
            workload
        };
        Self {
            workloads: self.workloads.iter().map(of_workload).collect(),
            videos: Vec::new(),
            media: Vec::new(),
            captures: BinaryHeap::new(),
            roles: self.roles.clone(),
            share: Some(Share { parts: parts.clone(), here, notes: vec![Vec::new(); parts.count] }),
        }
    }

    /// The outcomes of all parts, in order, in the first.
    pub(crate) fn join(mut all: Vec<Self>) -> Self {
        let mut first = all.remove(0);
        for other in all {
            for (ours, theirs) in first.workloads.iter_mut().zip(other.workloads) {
                ours.finished += theirs.finished;
                ours.wanted += theirs.wanted;
                let places =
                    ours.schedule.iter().zip(ours.outcomes.iter_mut().zip(theirs.outcomes));
                for (request, (outcome, theirs)) in places {
                    if theirs.sent.is_some() {
                        debug_assert!(!ours.connections[request.connection as usize].is_asked_here);
                        *outcome = theirs;
                    }
                }
                let longest = ours.intervals.len().max(theirs.intervals.len());
                ours.intervals.resize(longest, 0);
                ours.intervals.iter_mut().zip(theirs.intervals).for_each(|(it, more)| *it += more);
            }
        }
        first
    }

    /// Exchanges the notes for part `to` with `notes`, which is empty.
    pub(crate) fn swap_notes(&mut self, to: usize, notes: &mut Vec<Note>) {
        self.share.iter_mut().for_each(|share| mem::swap(&mut share.notes[to], notes));
    }

    /// Takes a note from another part.
    pub(crate) fn learn(&mut self, note: Note) {
        let connection = &mut self.workloads[note.workload].connections[note.connection];
        let messages =
            if note.is_answer { &mut connection.answering } else { &mut connection.asked };
        messages.push_back(note.message);
    }

    /// Notes the new messages of a connection for its other end if that is in another part: requests for the
    /// server, or answers for the client.
    fn note(&mut self, workload: usize, connection: usize, is_answer: bool) {
        let Some(Share { parts, here, notes }) = &mut self.share else { return };
        let ends = &mut self.workloads[workload].connections[connection];
        let flow = if is_answer { ends.halves.answers } else { ends.halves.asks };
        let to = parts.flows[flow][1];
        if to != *here {
            let messages = if is_answer { &mut ends.answering } else { &mut ends.asked };
            let note = |message| Note { workload, connection, is_answer, message };
            notes[to].extend(messages.drain(..).map(note));
        }
    }

    /// Runs `simulation` to `until`, at most to its end, and sends the requests due until then.
    pub fn run_until(&mut self, simulation: &mut Simulation, until: Timestamp) {
        loop {
            let workloads = self.workloads.iter().enumerate();
            let due = workloads.filter_map(|(n, it)| Some((it.due()?, Asker::Workload(n))));
            let videos = self.videos.iter().enumerate();
            let videos = videos.filter_map(|(n, it)| Some((it.due()?, Asker::Video(n))));
            let media = self.captures.peek().map(|Reverse((due, n))| (*due, Asker::Media(*n)));
            let next = due.chain(videos).chain(media).min().filter(|(due, _)| *due <= until);
            let pause = next.map_or(until, |(due, _)| due);
            match (simulation.run_until_read(pause), next) {
                (Some(read), _) => self.on_read(simulation, read),
                (None, Some((due, asker))) if simulation.now() >= due => {
                    self.ask(simulation, due, asker);
                }
                (None, _) => return,
            }
        }
    }

    fn ask(&mut self, simulation: &mut Simulation, due: Timestamp, asker: Asker) {
        match asker {
            Asker::Video(video) => self.videos[video].ask(due, writer(simulation)),
            Asker::Media(media) => {
                let state = simulation.source_state(self.media[media].flow);
                self.media[media].capture(due, state, writer(simulation));
                self.captures.pop();
                self.plan_capture(media);
            }
            Asker::Workload(number) => {
                let workload = &mut self.workloads[number];
                match workload.messages {
                    None => {
                        let connection = workload.schedule[workload.asked].connection as usize;
                        workload.ask(due, writer(simulation));
                        self.note(number, connection, false);
                    }
                    Some(flow) => {
                        workload.open(due, flow, |flow, bytes| simulation.open(flow, bytes));
                    }
                }
            }
        }
    }

    fn on_read(&mut self, simulation: &mut Simulation, read: Read) {
        let Some(role) = self.roles.get(read.flow).copied().flatten() else { return };
        let (now, number) = (simulation.now(), read.number);
        match role {
            Role::Asks { workload, connection } => {
                self.workloads[workload].hear(connection, number, writer(simulation));
                self.note(workload, connection, true);
            }
            Role::Answers { workload, connection } => {
                self.workloads[workload].read(now, connection, number);
            }
            Role::Messages(workload) => self.workloads[workload].finish(now, number as usize),
            Role::VideoAsks(video) => self.videos[video].hear(number, writer(simulation)),
            Role::VideoAnswers(video) => self.videos[video].read(now, number),
            Role::Media(media) => self.media[media].read(now, number),
        }
    }

    /// Record of the video client on flow `flow`, until the client stopped; `None` if the flow carries no
    /// video.
    pub fn video(&self, flow: usize) -> Option<VideoRecord> {
        match self.roles.get(flow).copied().flatten()? {
            Role::VideoAnswers(video) => Some(self.videos[video].record()),
            _ => None,
        }
    }

    /// The frames of the live encoder on flow `flow`; `None` if the flow carries none.
    pub fn media(&self, flow: usize) -> Option<&MediaRecord> {
        match self.roles.get(flow).copied().flatten()? {
            Role::Media(media) => Some(self.media[media].record()),
            _ => None,
        }
    }

    /// Number of scheduled requests that are not finished.
    pub fn unfinished(&self) -> usize {
        self.workloads.iter().map(|it| it.wanted - it.finished).sum()
    }

    /// Outcomes of the requests of `workload`, in the order of its schedule. Panics if there is no such
    /// workload.
    pub fn outcomes(&self, workload: usize) -> &[Outcome] {
        &self.workloads[workload].outcomes
    }

    /// Bytes of answers that the clients of `workload` read in each [`INTERVAL_NS`] since the start of the
    /// run. Empty if each request has its own connection, see [`Simulation::flow_bins`]. Panics if there is
    /// no such workload.
    pub fn intervals(&self, workload: usize) -> &[u64] {
        &self.workloads[workload].intervals
    }
}

/// Writes to the flows of a simulation.
fn writer(simulation: &mut Simulation) -> impl FnMut(usize, u64) -> u32 {
    |flow, bytes| simulation.write(flow, bytes).expect("a half of a connection can be written to")
}

#[cfg(test)]
mod tests {
    use forebay_core::units::ByteCount;

    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * MS)
    }

    fn workload(requests: &[(u64, u64, u32)]) -> Requests {
        let request = |(ms, size, connection): &(u64, u64, u32)| Request {
            at: Duration::from_millis(*ms),
            size: ByteCount::new(*size),
            connection: *connection,
        };
        let mut all = Requests::default();
        let halves = [Halves { asks: 0, answers: 1 }, Halves { asks: 2, answers: 3 }];
        all.add(Duration::ZERO, requests.iter().map(request).collect(), &halves);
        all
    }

    /// Streams of segments of 1000 bytes that are sent as soon as they are written.
    #[derive(Default)]
    struct Streams([u32; 4]);

    impl Streams {
        fn writer(&mut self) -> impl FnMut(usize, u64) -> u32 {
            |flow, bytes| {
                self.0[flow] += bytes.div_ceil(1000) as u32;
                self.0[flow]
            }
        }
    }

    #[test]
    fn answers_are_ordered_and_end_with_their_segments() {
        let mut all = workload(&[(0, 100, 0), (1, 3000, 0), (2, 50, 1)]);
        let (it, mut streams) = (&mut all.workloads[0], Streams::default());
        (0..3).for_each(|ms| it.ask(at(ms), streams.writer()));
        assert_eq!((it.due(), streams.0), (None, [2, 0, 1, 0]));
        it.hear(0, 0, streams.writer());
        assert_eq!(streams.0[1], 0);
        // Both requests arrive together: answers of one segment and of three.
        it.hear(0, 2, streams.writer());
        assert_eq!(streams.0[1], 4);
        it.read(at(61), 0, 2);
        it.read(at(163), 0, 4);
        let finished = it.outcomes.iter().map(|outcome| outcome.finished);
        assert_eq!(finished.collect::<Vec<_>>(), [Some(at(61)), Some(at(163)), None]);
        let behind: Vec<bool> = it.outcomes.iter().map(|outcome| outcome.queued_behind).collect();
        assert_eq!(behind, [false, true, false]);
        assert_eq!(it.intervals, [1100, 2000]);
        assert_eq!(all.unfinished(), 1);
    }

    #[test]
    fn answers_may_share_a_segment() {
        let mut all = workload(&[(0, 100, 0), (0, 100, 0)]);
        let it = &mut all.workloads[0];
        (0..2).for_each(|_| it.ask(at(0), |_, _| 1));
        it.hear(0, 1, |_, _| 1);
        it.read(at(50), 0, 1);
        assert_eq!((it.intervals.as_slice(), it.finished), (&[200][..], 2));
    }

    #[test]
    fn connection_is_free_after_its_last_answer() {
        let mut all = workload(&[(0, 100, 0), (70, 100, 0)]);
        let (it, mut streams) = (&mut all.workloads[0], Streams::default());
        it.ask(at(0), streams.writer());
        it.hear(0, 1, streams.writer());
        it.read(at(50), 0, 1);
        it.ask(at(70), streams.writer());
        assert!(!it.outcomes[1].queued_behind);
    }

    #[test]
    #[should_panic(expected = "a connection that does not exist")]
    fn a_request_on_no_connection_is_refused() {
        workload(&[(0, 100, 2)]);
    }
}
