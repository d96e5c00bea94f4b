//! One bundle at the sendbox: its queue and shaper, its control loop and its session.

use std::time::Duration;

use forebay_core::bundle::keys::KeyRing;
use forebay_core::bundle::monitor::{Liveness, Monitor};
use forebay_core::bundle::sendbox::{Decision, Epoch, Peer, SUPPLIED, Sendbox, SendboxConfig};
use forebay_core::bundle::session::{Event, Role as SessionRole, Session};
use forebay_core::bundle::wire::{BoxState, Keepalive, Message};
use forebay_core::bundle::{EpochSize, Report, SampleBlock, SamplingKey};
use forebay_core::packet::unpadded_len;
use forebay_core::qdisc::{self, Classifier, DropReason, DropSink, Qdisc, Shaper, ShaperParams};
use forebay_core::spec::SpecError;
use forebay_core::units::{Rate, Timestamp};
use forebay_core::{cc, random::Streams};

use super::decisions::{DecisionLog, decision_record, nanos};
use super::frame::{Frame, Pool};
use super::progress::Stall;
use crate::clock;
use crate::daemon::config::{BundleConfig, Shaping};
use crate::daemon::lateness::Lateness;
use crate::daemon::messages::Messages;
use crate::daemon::schedule::Next;
use crate::daemon::status::{BundleStatus, PeerStatus, ShapingStatus};
use crate::daemon::trace::{self, Row, Tracer};
use crate::daemon::{peer, unguessable};
use crate::port::{Port, XdpPort};
use crate::record::{EpochRecord, QueueSample};

/// Packets sent in a row before the other bundles and the receive ring have their turn.
const BUDGET: usize = 64;
/// A bundle that has sent nothing for this long, and queues nothing, is ticked rarely.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Tick of a quiet bundle: as often as a keepalive is due.
const QUIET_TICK: Duration = Duration::from_millis(100);
/// Spacing of queue samples in the trace.
const QUEUE_SAMPLE: Duration = Duration::from_millis(10);
/// Spacing of counter rows in the trace.
const COUNTER_ROW: Duration = Duration::from_secs(1);
/// Shortest time between two repeated notices, while the receivebox works with another size.
const NOTICE_AGAIN: Duration = Duration::from_millis(50);
/// Bytes of headers around a message: Ethernet 14, IPv4 20, UDP 8.
const MESSAGE_HEADERS: u64 = 42;

/// What a bundle needs of the box while it is served.
pub struct Outside<'a> {
    /// The port towards the Internet.
    pub wan: &'a mut XdpPort,
    /// Buffers.
    pub pool: &'a mut Pool,
    /// The socket of the messages.
    pub messages: &'a mut Messages,
    /// Rows.
    pub tracer: &'a Tracer,
}

/// What holds for all bundles of a box.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Nothing is shaped.
    pub dry_run: bool,
    /// Rows are written.
    pub is_traced: bool,
}

/// How far a bundle is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopping {
    /// It is not.
    No,
    /// What is queued leaves at the rate in force.
    Paced,
    /// What is queued leaves at once.
    AtOnce,
}

/// What became of the packets that may leave.
enum Sent {
    /// All have left.
    AllDue,
    /// As many as fit a turn or the WAN.
    Some,
    /// None: the WAN has no room.
    NoRoom,
}

/// One bundle.
pub struct Bundle {
    index: usize,
    config: BundleConfig,
    shaping: Shaping,
    dry_run: bool,
    is_traced: bool,
    stopping: Stopping,
    /// Why the kernel forwards what comes, unshaped.
    handed_back: Option<Stall>,
    classifier: Classifier,
    shaper: Shaper<Frame>,
    control: Sendbox,
    session: Session,
    sampling_key: SamplingKey,
    monitor: Monitor,
    peer_state: Option<BoxState>,
    notified: (Option<EpochSize>, Timestamp),
    peer_size: Option<EpochSize>,
    /// The control loop has been asked something since its last decision was looked at.
    is_undecided: bool,
    departed_at: Timestamp,
    given_up: GivenUp,
    message_bytes: u64,
    lateness: Lateness,
    log: DecisionLog,
    next_queue_sample: Timestamp,
    next_counter_row: Timestamp,
    scratch: Vec<u8>,
}

impl Bundle {
    /// The bundle at `index` in the configuration. `seed` is random; what is written in the
    /// specifications goes before it.
    pub fn new(
        index: usize,
        config: &BundleConfig,
        shaping: &Shaping,
        keys: &KeyRing,
        seed: u64,
        mode: Mode,
    ) -> Result<Self, SpecError> {
        let now = clock::now();
        let streams = Streams::new(seed).part(&config.name);
        let qdisc = qdisc::seeded(&shaping.qdisc, streams.stream("qdisc").bits());
        let control = SendboxConfig {
            min_rate: Some(shaping.min_rate),
            max_rate: shaping.max_rate,
            dry_run: mode.dry_run,
            seed: streams.stream("control").bits(),
        };
        let (id, nonce) = (unguessable(), unguessable());
        let session = Session::new(SessionRole::Sendbox, config.id, keys, id, nonce, now);
        let mut bundle = Self {
            index,
            config: config.clone(),
            shaping: shaping.clone(),
            dry_run: mode.dry_run,
            is_traced: mode.is_traced,
            stopping: Stopping::No,
            handed_back: None,
            classifier: Classifier::from_spec(&qdisc)?,
            shaper: Shaper::new(qdisc::build(&qdisc)?, ShaperParams::default()),
            control: Sendbox::new(control, cc::build(&shaping.cc, SUPPLIED)?),
            sampling_key: session.sampling_key(),
            session,
            monitor: Monitor::new(now),
            peer_state: None,
            notified: (None, Timestamp::ZERO),
            peer_size: None,
            is_undecided: true,
            departed_at: Timestamp::ZERO,
            given_up: GivenUp::default(),
            message_bytes: 0,
            lateness: Lateness::default(),
            log: DecisionLog::new(mode.dry_run),
            next_queue_sample: now,
            next_counter_row: now + COUNTER_ROW,
            scratch: Vec::new(),
        };
        // Nothing is known of the peer before it answers.
        bundle.control.on_peer(now, Peer::Silent);
        Ok(bundle)
    }

    /// The session, for its counters.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Begins a new session under other keys.
    pub fn set_keys(&mut self, now: Timestamp, keys: &KeyRing) {
        self.session.restart(keys, unguessable(), unguessable(), now);
        self.notified.0 = None;
        self.sampling_key = self.session.sampling_key();
    }

    /// Takes a packet of the bundle into the queue.
    pub fn enqueue(&mut self, now: Timestamp, mut frame: Frame, pool: &mut Pool) {
        if let Some(headers) = frame.headers() {
            frame.set_class(self.classifier.classify(headers));
        }
        let was_empty = self.shaper.backlog().packets == 0;
        self.shaper.enqueue(now, frame, &mut Drops { pool, given_up: &mut self.given_up });
        if was_empty {
            self.control.on_queue(now, self.shaper.backlog());
        }
    }

    /// Takes a datagram that claims to come from the peer.
    pub fn on_datagram(&mut self, now: Timestamp, datagram: &[u8], tracer: &Tracer) -> bool {
        let opened = self.session.open(now, datagram, &mut unguessable);
        while let Some(event) = self.session.take_event() {
            self.on_session_event(now, event);
        }
        let is_accepted = opened.is_ok();
        match opened {
            Ok(Some(Message::Reports(reports))) => {
                for report in reports.as_slice() {
                    self.on_report(now, report, tracer);
                }
            }
            Ok(Some(Message::Keepalive(Keepalive { state, epoch_size }))) => {
                (self.peer_size, self.peer_state) = (epoch_size, Some(state));
            }
            Ok(Some(_) | None) | Err(_) => {}
        }
        if is_accepted {
            self.message_bytes += datagram.len() as u64 + MESSAGE_HEADERS;
        }
        // An answer to a stranger is no sign of life.
        if is_accepted && self.session.heard_at() == Some(now) {
            self.on_sign_of_life(now);
        }
        is_accepted
    }

    fn on_sign_of_life(&mut self, now: Timestamp) {
        match peer::hear(&mut self.monitor, now, self.peer_state) {
            Some(Liveness::Alive) => {
                tracing::info!(bundle = %self.config.name, "receivebox is there");
                self.tell_peer(now, Peer::Alive);
            }
            Some(_) => {
                tracing::info!(bundle = %self.config.name, "receivebox stops");
                self.tell_peer(now, Peer::Silent);
            }
            None => {}
        }
    }

    fn on_session_event(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::PeerAlive => {}
            Event::PeerRestarted => {
                tracing::info!(bundle = %self.config.name, "receivebox restarted");
                self.peer_state = None;
                self.monitor.heard(now);
                self.tell_peer(now, Peer::Restarted);
            }
            Event::SamplingKeyChanged => self.sampling_key = self.session.sampling_key(),
        }
        // A new session at the receivebox knows no epoch size.
        self.notified.0 = None;
    }

    fn on_report(&mut self, now: Timestamp, report: &Report, tracer: &Tracer) {
        self.peer_size = Some(report.epoch_size);
        self.is_undecided = true;
        if let Some(epoch) = self.control.on_report(now, report)
            && self.is_traced
        {
            tracer.put(self.index, Row::Epoch(epoch_record(now, &epoch)));
        }
    }

    /// Does what is due and answers when to come back.
    pub fn serve(&mut self, now: Timestamp, outside: &mut Outside<'_>) -> Next {
        self.judge_peer(now);
        if self.tick_at() <= now {
            self.control.on_tick(now, self.shaper.backlog());
            self.is_undecided = true;
        }
        self.apply_rate(now);
        let sent = self.send_packets(outside);
        self.send_messages(now, outside.messages);
        self.record(now, outside.tracer);
        match sent {
            Sent::AllDue => {}
            Sent::Some => return Next::At(now),
            Sent::NoRoom => return Next::InTurn,
        }
        let sample = if self.is_traced { self.next_queue_sample } else { Timestamp::MAX };
        let timers = self.tick_at().min(self.session.next_timer()).min(sample);
        Next::At(self.next_departure().min(timers))
    }

    /// When the queue wants to be served; [`Timestamp::MAX`] while it is empty.
    pub fn next_departure(&self) -> Timestamp {
        self.shaper.next_timer().unwrap_or(Timestamp::MAX)
    }

    /// Packets in the queue.
    pub fn backlog(&self) -> u64 {
        self.shaper.backlog().packets
    }

    /// The box stops: tells the peer, and empties the queue.
    pub fn stop(&mut self, now: Timestamp, how: Stopping) {
        self.stopping = how;
        self.session.set_keepalive(self.keepalive());
        self.apply_rate(now);
    }

    /// The kernel forwards what comes, for this reason; `None`: it passes the queue again.
    pub fn set_handed_back(&mut self, stall: Option<Stall>) {
        self.handed_back = stall;
        self.is_undecided = true;
    }

    /// What holds for the packets of the bundle, be it the control loop's decision or not.
    fn decision(&self) -> Decision {
        let decision = self.control.decision();
        match self.handed_back {
            Some(stall) => {
                Decision { rate: None, state: "handed_back", reason: stall.reason(), ..decision }
            }
            None => decision,
        }
    }

    fn judge_peer(&mut self, now: Timestamp) {
        if self.monitor.poll(now, self.log.min_rtt()) {
            tracing::warn!(bundle = %self.config.name, "receivebox is silent: not shaped");
            self.tell_peer(now, Peer::Silent);
        }
    }

    fn tell_peer(&mut self, now: Timestamp, peer: Peer) {
        self.control.on_peer(now, peer);
        self.is_undecided = true;
    }

    fn tick_at(&self) -> Timestamp {
        let at = self.control.next_timer();
        let is_quiet = !self.is_traced
            && self.shaper.backlog().packets == 0
            && at > self.departed_at + QUIET_AFTER;
        if is_quiet { at + QUIET_TICK } else { at }
    }

    fn apply_rate(&mut self, now: Timestamp) {
        let is_free = self.dry_run || self.stopping == Stopping::AtOnce;
        let rate = if is_free { None } else { self.control.rate() };
        if rate != self.shaper.rate() {
            self.shaper.set_rate(now, rate);
        }
    }

    /// Sends what may leave now. What the WAN has no room for stays in the queue, where the
    /// discipline still sees it.
    fn send_packets(&mut self, outside: &mut Outside<'_>) -> Sent {
        for sent in 0..BUDGET {
            let now = clock::now();
            if !outside.wan.has_room() {
                return match self.next_departure() {
                    at if at > now => Sent::AllDue,
                    _ if sent == 0 => Sent::NoRoom,
                    _ => Sent::Some,
                };
            }
            let mut drops = Drops { pool: outside.pool, given_up: &mut self.given_up };
            let Some(frame) = self.shaper.dequeue(now, &mut drops) else { return Sent::AllDue };
            self.send(now, &frame, outside.wan);
            outside.pool.give_back(frame);
            let backlog = self.shaper.backlog();
            if backlog.packets == 0 {
                self.control.on_queue(now, backlog);
                return Sent::AllDue;
            }
        }
        Sent::Some
    }

    fn send(&mut self, now: Timestamp, frame: &Frame, wan: &mut XdpPort) {
        if self.shaper.rate().is_some() {
            self.lateness.record(self.shaper.lateness());
        }
        let is_sent = wan.send(frame.bytes());
        debug_assert!(is_sent, "a packet leaves its queue only when the WAN has room");
        self.departed_at = now;
        let block = SampleBlock::from_frame(frame.bytes());
        let hash = block.map(|block| block.hash(&self.sampling_key));
        let is_boundary = hash.is_some_and(|hash| self.control.epoch_size().is_boundary(hash));
        // Only boundaries are asked for their identity.
        let identity = block.filter(|_| is_boundary).map_or(0, |block| block.identity());
        self.control.on_departure(now, hash, identity, unpadded_len(frame.bytes()));
    }

    fn send_messages(&mut self, now: Timestamp, messages: &mut Messages) {
        let size = self.control.epoch_size();
        let (told, told_at) = self.notified;
        let is_news = told != Some(size);
        // A lost notice shows in what the receivebox says it works with.
        let is_lost = self.peer_size.is_some_and(|peer| peer != size)
            && now.saturating_since(told_at) >= NOTICE_AGAIN;
        if self.session.is_established() && (is_news || is_lost) {
            let notice = Message::EpochNotice(size);
            self.session.seal(now, &notice, &mut self.scratch);
            self.dispatch(messages);
            self.notified = (Some(size), now);
        }
        if now < self.session.next_timer() {
            return;
        }
        self.session.set_keepalive(self.keepalive());
        while self.session.poll(now, &mut self.scratch) {
            self.dispatch(messages);
        }
    }

    fn keepalive(&self) -> Keepalive {
        let state = match self.shaper.rate() {
            _ if self.stopping != Stopping::No => BoxState::Stopping,
            _ if self.dry_run => BoxState::DryRun,
            Some(_) if self.handed_back.is_none() => BoxState::Shaping,
            _ => BoxState::Measuring,
        };
        Keepalive { state, epoch_size: Some(self.control.epoch_size()) }
    }

    fn dispatch(&mut self, messages: &mut Messages) {
        self.message_bytes += self.scratch.len() as u64 + MESSAGE_HEADERS;
        messages.send(self.config.peer, &self.scratch);
    }

    fn record(&mut self, now: Timestamp, tracer: &Tracer) {
        if std::mem::take(&mut self.is_undecided)
            && let Some(decision) = self.log.note(now, self.decision(), &self.config.name)
            && self.is_traced
        {
            tracer.put(self.index, Row::Decision(decision_record(now, &decision)));
        }
        if self.is_traced && now >= self.next_queue_sample {
            tracer.put(self.index, Row::Queue(self.queue_sample(now)));
            // Evenly spaced, unless the box was held up for longer.
            self.next_queue_sample = (self.next_queue_sample + QUEUE_SAMPLE).max(now);
        }
        if self.is_traced && now >= self.next_counter_row {
            self.put_counters(tracer);
            self.next_counter_row = now + COUNTER_ROW;
        }
    }

    /// Writes the counters as they are now.
    pub fn put_counters(&self, tracer: &Tracer) {
        let counters = self.control.counters();
        let row = trace::Counters {
            boundaries_sent: counters.boundaries_sent,
            boundaries_matched: counters.boundaries_matched,
            drops_queue: self.given_up.dropped,
            packets_sent: counters.packets_sent,
            bytes_sent: counters.bytes_sent.as_u64(),
            message_bytes: self.message_bytes,
            lateness_ns: self.lateness.percentiles(),
        };
        tracer.put(self.index, Row::Counters(row));
    }

    fn queue_sample(&self, now: Timestamp) -> QueueSample {
        let backlog = self.shaper.backlog();
        let (packets, bytes) = (backlog.packets, backlog.bytes.as_u64());
        QueueSample { at_ns: now.as_nanos(), packets, bytes }
    }

    /// The state of the bundle.
    pub fn status(&self, now: Timestamp) -> BundleStatus {
        let counters = self.control.counters();
        let heard = self.session.heard_at();
        BundleStatus {
            name: self.config.name.clone(),
            id: self.config.id.0,
            peer: PeerStatus {
                address: self.config.peer.to_string(),
                state: self.monitor.state().name().into(),
                doing: self.peer_state.map(|state| state.name().into()),
                heard_ns: heard.map(|at| now.saturating_since(at).as_nanos() as u64),
            },
            epoch_packets: self.control.epoch_size().packets(),
            packets: counters.packets_sent,
            bytes: counters.bytes_sent.as_u64(),
            shaping: Some(ShapingStatus {
                cc: self.shaping.cc.to_string(),
                qdisc: self.shaping.qdisc.to_string(),
                decision: decision_record(now, &self.decision()),
                queue: self.queue_sample(now),
                drops_queue: self.given_up.dropped,
                marks_queue: self.given_up.marked,
                boundaries_sent: counters.boundaries_sent,
                boundaries_matched: counters.boundaries_matched,
                reports_unmatched: counters.reports_unmatched,
                reports_ambiguous: counters.reports_ambiguous,
                lateness_ns: self.lateness.percentiles(),
                decisions: self.log.records(),
            }),
            watching: None,
        }
    }
}

/// Packets that the own queue gave up.
#[derive(Clone, Copy, Debug, Default)]
struct GivenUp {
    dropped: u64,
    marked: u64,
}

/// Takes the buffers of dropped packets back.
struct Drops<'a> {
    pool: &'a mut Pool,
    given_up: &'a mut GivenUp,
}

impl DropSink<Frame> for Drops<'_> {
    fn dropped(&mut self, frame: Frame, _reason: DropReason) {
        self.given_up.dropped += 1;
        self.pool.give_back(frame);
    }

    fn marked(&mut self, _reason: DropReason) {
        self.given_up.marked += 1;
    }
}

fn epoch_record(now: Timestamp, epoch: &Epoch) -> EpochRecord {
    EpochRecord {
        at_ns: now.as_nanos(),
        identity: epoch.identity,
        previous_identity: epoch.previous_identity.unwrap_or(0),
        sent_ns: epoch.sent_at.as_nanos(),
        rtt_ns: nanos(epoch.rtt),
        raw_rtt_ns: nanos(epoch.raw_rtt),
        delivery_rate_bps: epoch.delivery_rate.map_or(0, Rate::as_bits_per_sec),
        epoch_packets: epoch.epoch_size.packets(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::daemon::config::Config;
    use crate::daemon::keys;

    /// A configuration whose bundle has a rate before anything is known of its peer.
    fn config(folder: &Path) -> Config {
        keys::generate(&folder.join("bundle.key")).unwrap();
        let text = r#"
[box]
role = "sendbox"
lan = "s0"
wan = "s1"
listen = "10.1.3.1"

[trace]
file = "trace"

[[bundle]]
name = "b"
id = 1
peer = "10.1.3.2"
to = ["10.1.2.0/24"]
key_file = "bundle.key"
cc = "copa"
qdisc = { kind = "sfq", limit = "1200p" }
max_rate = "10Mbit/s"
"#;
        let file = folder.join("box.toml");
        fs::write(&file, text).unwrap();
        Config::load(&file).unwrap()
    }

    #[test]
    fn while_the_kernel_forwards_status_trace_and_peer_are_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let bundle = &config.bundles[0];
        let keys = keys::load(&bundle.key_file).unwrap();
        let mode = Mode { dry_run: false, is_traced: true };
        let shaping = bundle.shaping.as_ref().unwrap();
        let mut bundle = Bundle::new(0, bundle, shaping, &keys, 1, mode).unwrap();
        let (tracer, writer) = trace::start(&config).unwrap();
        let now = clock::now();
        bundle.apply_rate(now);
        let mut said = Vec::new();
        for stall in [None, Some(Stall::Wan), Some(Stall::Lan), None] {
            bundle.set_handed_back(stall);
            bundle.record(now, &tracer);
            let decision = bundle.status(now).shaping.unwrap().decision;
            let is_shaped = bundle.keepalive().state == BoxState::Shaping;
            assert_eq!(decision.rate_bps.is_some(), is_shaped, "{decision:?}");
            assert_eq!(stall.is_none(), is_shaped, "{decision:?}");
            said.push((decision.state, decision.reason));
        }
        assert_eq!(said[1], ("handed_back".into(), "the WAN port takes no packets".into()));
        drop(tracer);
        writer.finish().unwrap();
        let rows = &trace::read(&folder.path().join("trace")).unwrap()[0].decisions;
        let traced: Vec<_> =
            rows.iter().map(|row| (row.state.clone(), row.reason.clone())).collect();
        assert_eq!(traced, said);
        let shaped: Vec<bool> = rows.iter().map(|row| row.rate_bps.is_some()).collect();
        assert_eq!(shaped, [true, false, false, true]);
    }
}
