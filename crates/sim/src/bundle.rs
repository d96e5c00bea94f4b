//! Both boxes of a bundle in the run: the host code around the logic of `core::bundle`.
//!
//! ```text
//!  packets ──► qdisc, shaper ──► path of the bundle ──► receivebox counts, samples ──►
//!                 ▲    control ◄── reports, keepalives ◄── way back ◄──┤
//!                 └──────┘  notices, keepalives ──► path of the bundle ┘
//! ```
//! As in the daemons, messages are sealed datagrams of a session that the boxes must open first. They bypass
//! the bundle's queue and are not sampled. Only time is ideal: unless configured otherwise, a box acts at the
//! instant at which something is due.

use std::sync::Arc;

use forebay_core::bundle::keys::{KeyRing, PresharedKey};
use forebay_core::bundle::receivebox::{self, Seen};
use forebay_core::bundle::sendbox::{self, BundleLoad, Ceiling, SUPPLIED, SendboxConfig};
use forebay_core::bundle::{BoundaryMark, BundleId, DepartureCounters, EpochSize, SamplingKey};
use forebay_core::cc::Registry;
use forebay_core::packet::{Ecn, Packet as _};
use forebay_core::qdisc::{self, DropReason, DropSink, Qdisc, Shaper, ShaperParams};
use forebay_core::random::{Stream, Streams};
use forebay_core::record::BundleCounters;
use forebay_core::spec::SpecError;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, Timestamp};

use crate::bundle_log::BundleLog;
use crate::ended::Ended;
use crate::event::{Event, Events, Timer};
use crate::machine::Machine;
use crate::metrics::Integral;
use crate::network;
use crate::packet::{Packet, mix};
use crate::process::{Process, Wakes};

/// The sendbox of a bundle.
pub(crate) struct Sendbox {
    index: u32,
    shaper: Shaper<Packet>,
    control: sendbox::Sendbox,
    departed: DepartureCounters,
    sampling: Sampling,
    random: Stream,
    timer: Timer,
    ended: Ended,
    length: Integral,
    max_length: u64,
    offered: u64,
    log: Option<Box<BundleLog>>,
    process: Process<Packet>,
    wakes: Wakes,
    /// Counts of earlier processes of this sendbox.
    past: BundleMetrics,
}

/// The receivebox of a bundle.
pub(crate) struct Receivebox {
    index: u32,
    control: receivebox::Receivebox,
    sampling: Sampling,
    epoch_size: EpochSize,
    random: Stream,
    timer: Timer,
    bytes: u64,
    packets: u64,
    ce: u64,
    /// Packets whose identity has a lower hash pass unseen.
    unseen_below: u64,
    is_unreported: bool,
    foreign: Rate,
    /// Time since which `foreign` has this rate, and the foreign bytes counted before.
    foreign_since: Timestamp,
    foreign_before: ByteCount,
    process: Process<Seen>,
    machine: Machine,
    /// Boundaries that earlier processes of this receivebox reported, and reports that they gave up.
    past: [u64; 2],
}

/// A sampling key, ready for the packets of the simulator, which have no header bytes to hash.
struct Sampling {
    key: SamplingKey,
    words: [u64; 2],
}

impl Sampling {
    fn new(key: SamplingKey) -> Self {
        let (low, high) = key.0.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self { key, words: [word(low), word(high)] }
    }

    fn follow(&mut self, key: SamplingKey) {
        if self.key != key {
            *self = Self::new(key);
        }
    }

    /// A uniform hash; both boxes compute the same.
    fn hash(&self, identity: u64) -> u64 {
        mix(self.words[0] ^ mix(identity ^ self.words[1]))
    }
}

/// Results of a bundle over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BundleMetrics {
    /// Mean number of packets in the sendbox's queue.
    pub mean_queue_packets: f64,
    /// Largest number of packets in that queue.
    pub max_queue_packets: u64,
    /// The counters that the sendbox's trace would have; nothing leaves late.
    pub counters: BundleCounters,
    /// Reports of boundaries unknown to the sendbox.
    pub reports_unmatched: u64,
    /// Boundaries that the receivebox reported.
    pub reports: u64,
    /// Reports that the receivebox gave up because too many waited.
    pub reports_dropped: u64,
}

/// The key drawn from `streams`.
pub(crate) fn key(streams: &Streams) -> PresharedKey {
    draw_key(&mut streams.stream("session"))
}

fn draw_key(random: &mut Stream) -> PresharedKey {
    let mut key = [0; 32];
    key.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.bits().to_le_bytes()));
    PresharedKey::new(key)
}

/// Both boxes of `bundle`, with no session open yet. Without `key` they draw one from `streams`. The
/// receivebox runs on `machine`. The sendbox's algorithm is one of `algorithms`.
pub(crate) fn boxes(
    index: u32,
    bundle: &network::RoutedBundle,
    streams: &Streams,
    key: Option<PresharedKey>,
    machine: Machine,
    algorithms: &Registry,
    now: Timestamp,
) -> Result<(Sendbox, Receivebox), SpecError> {
    let mut random = streams.stream("session");
    let drawn = draw_key(&mut random);
    let keys = KeyRing::new(key.unwrap_or(drawn), None);
    let id = BundleId(index as u16);
    let spec = qdisc::seeded(&bundle.of.qdisc, streams.stream("qdisc").bits() >> 1);
    let config = SendboxConfig {
        min_rate: bundle.of.min_rate,
        max_rate: bundle.of.max_rate,
        dry_run: bundle.dry_run,
        supervised: bundle.of.supervised,
        time_of_day: Duration::ZERO,
        seed: streams.stream("control").bits(),
        tuning: Arc::new(bundle.of.tuning),
    };
    let session = [random.bits(), random.bits()];
    let mut cc = algorithms.build(&bundle.of.cc, SUPPLIED)?;
    cc.set_owner(&format!("bundle {}", bundle.of.name));
    let control = sendbox::Sendbox::new(config, cc, id, &keys, session, now);
    let mut sendbox = Sendbox {
        index,
        shaper: Shaper::new(qdisc::build(&spec)?, ShaperParams::default()).watching(),
        sampling: Sampling::new(control.sampling_key()),
        control,
        departed: DepartureCounters::default(),
        random: streams.stream("sendbox"),
        timer: Timer::STOPPED,
        ended: Ended::default(),
        length: Integral::NONE,
        max_length: 0,
        offered: 0,
        log: bundle.log.then(Box::default),
        process: Process::default(),
        wakes: Wakes::new(bundle.wake_delay, streams.stream("wakes")),
        past: BundleMetrics::default(),
    };
    sendbox.length.set(now, 0);
    let (session, nonce) = (random.bits(), random.bits());
    let control = receivebox::Receivebox::new(id, &keys, session, nonce, machine.time(now));
    let receivebox = Receivebox {
        index,
        sampling: Sampling::new(control.sampling_key()),
        epoch_size: EpochSize::MAX,
        control,
        random: streams.stream("receivebox"),
        timer: Timer::STOPPED,
        bytes: 0,
        packets: 0,
        ce: 0,
        unseen_below: unseen_below(bundle.of.unseen),
        is_unreported: false,
        foreign: bundle.foreign,
        foreign_since: now,
        foreign_before: ByteCount::ZERO,
        process: Process::default(),
        machine,
        past: [0; 2],
    };
    Ok((sendbox, receivebox))
}

fn unseen_below(share: Ratio) -> u64 {
    (share.as_f64() * u64::MAX as f64) as u64
}

impl Sendbox {
    /// Takes a packet of the bundle; then call [`Sendbox::dequeue`]. Returns the packet if the kernel is to
    /// forward it.
    #[inline]
    pub fn take(&mut self, now: Timestamp, packet: Packet) -> Option<Packet> {
        if self.process.is_running() {
            self.enqueue(now, packet);
            return None;
        }
        self.leave(now, packet)
    }

    /// Handles a packet for a process that is not running.
    #[cold]
    fn leave(&mut self, now: Timestamp, packet: Packet) -> Option<Packet> {
        if !self.process.beats(now) {
            return Some(packet);
        }
        self.offered += 1;
        if let Some(packet) = self.process.leave(packet) {
            self.ended.dropped(packet, DropReason::Overlimit);
        }
        None
    }

    /// Takes a packet of the bundle into the queue.
    fn enqueue(&mut self, now: Timestamp, packet: Packet) {
        self.offered += 1;
        self.log_queue(now);
        let was_empty = self.shaper.backlog().packets == 0;
        self.shaper.enqueue(now, packet, &mut self.ended);
        let backlog = self.shaper.backlog();
        self.length.set(now, backlog.packets);
        self.max_length = self.max_length.max(backlog.packets);
        if was_empty {
            self.control.on_queue(now, backlog);
        }
    }

    /// The next packet that may leave. Call until it returns `None`, then call [`Sendbox::plan`].
    pub fn dequeue(&mut self, now: Timestamp) -> Option<Packet> {
        let is_due = self.shaper.next_timer().is_some_and(|at| at <= now);
        if !is_due || !self.wakes.is_awake(now) || !self.process.is_running() {
            return None;
        }
        self.log_queue(now);
        let packet = self.shaper.dequeue(now, &mut self.ended);
        let backlog = self.shaper.backlog();
        self.length.set(now, backlog.packets);
        let packet = packet?;
        if let Some(wait) = self.shaper.sparse_wait() {
            self.control.on_wait(wait);
        }
        let identity = packet.identity();
        let hash = self.sampling.hash(identity);
        let is_boundary = self.control.epoch_size().is_boundary(hash);
        let mark = is_boundary.then_some(BoundaryMark { hash, identity });
        self.control.on_departures(&self.departed.count(now, packet.len(), mark));
        if let Some(log) = self.log.as_mut().filter(|_| is_boundary) {
            log.on_boundary(identity);
        }
        if backlog.packets == 0 {
            self.control.on_queue(now, backlog);
        }
        Some(packet)
    }

    /// Plans the next [`Event::Sendbox`].
    pub fn plan(&mut self, now: Timestamp, events: &mut Events) {
        if !self.process.is_running() {
            return;
        }
        let departure = self.wakes.plan(now, self.shaper.next_timer());
        let at = departure.min(self.control.next_timer());
        self.timer.set(at.max(now));
        self.timer.plan(events, Event::Sendbox(self.index));
    }

    /// Handles the event. True if something was due; the caller then still moves packets and messages.
    pub fn on_timer(&mut self, now: Timestamp, events: &mut Events) -> bool {
        let is_due = self.timer.fired(now, events, Event::Sendbox(self.index));
        if !is_due || !self.process.is_running() {
            return false;
        }
        self.control.on_timer(now, self.shaper.backlog());
        self.decide(now);
        true
    }

    /// Applies the rate and the path RTT of the control loop to the shaper.
    fn decide(&mut self, now: Timestamp) {
        let rate = self.control.rate();
        if rate != self.shaper.rate() {
            self.shaper.set_rate(now, rate);
        }
        if let Some(rtt) = self.control.path_rtt() {
            self.shaper.set_path_rtt(rtt);
        }
        let Some(log) = &mut self.log else { return };
        if let Some(decision) = self.control.take_decision() {
            log.on_decision(now, &decision);
        }
        if let Some(second) = self.control.take_waits() {
            log.on_waits(second);
        }
    }

    /// Bytes that the bundle has sent and would send, for the uplink.
    pub fn load(&self) -> BundleLoad {
        self.control.load(self.shaper.backlog())
    }

    /// Sets the bundle's share of an uplink from now on; then call [`Sendbox::plan`].
    pub fn set_ceiling(&mut self, now: Timestamp, ceiling: Ceiling) {
        if self.process.is_running() {
            self.control.set_ceiling(now, Some(ceiling));
            self.decide(now);
        }
    }

    /// Takes a datagram from the peer; then call [`Sendbox::poll`] and [`Sendbox::dequeue`].
    pub fn on_datagram(&mut self, now: Timestamp, datagram: &[u8]) {
        if !self.process.is_running() {
            return self.process.leave_datagram(datagram);
        }
        let random = &mut self.random;
        // The control logic counts the datagrams that it rejects.
        let _ = self.control.on_datagram(now, datagram, &mut || random.bits());
        self.sampling.follow(self.control.sampling_key());
        while let Some(epoch) = self.control.take_epoch() {
            if let Some(log) = &mut self.log {
                log.on_epoch(now, epoch);
            }
        }
        if let Some(log) = &mut self.log {
            log.on_spans(self.control.path_spans());
        }
        self.decide(now);
    }

    /// Replaces `out` by the next datagram that is due; call until it returns false.
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        self.process.is_running() && self.control.poll(now, out)
    }

    /// Suspends the process.
    pub fn stop(&mut self, now: Timestamp) {
        self.process.stop(now);
    }

    /// Resumes the process; then call [`Sendbox::poll`] and [`Sendbox::dequeue`].
    pub fn go_on(&mut self, now: Timestamp) {
        let (ring, datagrams) = self.process.go_on();
        for packet in ring {
            // `leave` has counted the packet already.
            self.offered -= 1;
            self.enqueue(now, packet);
        }
        datagrams.iter().for_each(|datagram| self.on_datagram(now, datagram));
        self.control.on_timer(now, self.shaper.backlog());
        self.decide(now);
    }

    /// Ends the process; the packets that it holds are lost.
    pub fn kill(&mut self, now: Timestamp) {
        self.log_queue(now);
        for packet in self.process.kill() {
            self.ended.dropped(packet, DropReason::Overlimit);
        }
        self.shaper.set_rate(now, None);
        while let Some(packet) = self.shaper.dequeue(now, &mut self.ended) {
            self.ended.dropped(packet, DropReason::Overlimit);
        }
        self.length.set(now, 0);
    }

    /// Starts a new process after a kill, with the state of `fresh`; the counts go on.
    pub fn replace(&mut self, fresh: Self) {
        self.past = self.metrics(Timestamp::ZERO);
        let Self { shaper, control, departed, sampling, random, process, .. } = fresh;
        self.timer = self.timer.stopped();
        (self.shaper, self.control, self.departed) = (shaper, control, departed);
        (self.sampling, self.random, self.process) = (sampling, random, process);
    }

    fn log_queue(&mut self, now: Timestamp) {
        if let Some(log) = &mut self.log {
            log.close_samples(now, self.shaper.backlog());
        }
    }

    /// The log up to `now`, if there is one.
    pub fn log(&mut self, now: Timestamp) -> Option<&BundleLog> {
        self.log_queue(now);
        self.log.as_deref()
    }

    /// Packets that arrived, packets that the queue dropped, and packets inside.
    #[cfg(debug_assertions)]
    pub fn balance(&self) -> [u64; 3] {
        let inside = self.shaper.backlog().packets + self.process.waiting();
        [self.offered, self.ended.dropped.total(), inside]
    }

    /// Remains of dropped packets.
    pub fn ended(&mut self) -> &mut Ended {
        &mut self.ended
    }

    /// Results of the sendbox up to `now`.
    pub fn metrics(&self, now: Timestamp) -> BundleMetrics {
        let mut counters = BundleCounters::of(&self.control, 0);
        counters += self.past.counters;
        counters.drops_queue = self.ended.dropped.total();
        let unmatched = self.control.counters().reports_unmatched;
        BundleMetrics {
            mean_queue_packets: self.length.mean(now),
            max_queue_packets: self.max_length,
            counters,
            reports_unmatched: self.past.reports_unmatched + unmatched,
            ..BundleMetrics::default()
        }
    }
}

impl Receivebox {
    /// Sees a packet of the bundle. True if it is a boundary to report; then call [`Receivebox::poll`].
    pub fn on_packet(&mut self, now: Timestamp, packet: &Packet) -> bool {
        let is_blind = self.process.is_dead() || self.machine.is_asleep();
        if is_blind || mix(!packet.identity()) < self.unseen_below {
            return false;
        }
        self.bytes += u64::from(packet.bytes());
        self.packets += 1;
        self.ce += u64::from(packet.ecn() == Ecn::Ce);
        let hash = self.sampling.hash(packet.identity());
        if !self.epoch_size.is_boundary(hash) || self.is_unreported {
            return false;
        }
        let seen = Seen {
            hash,
            received_at: self.machine.stamp(now),
            received_bytes: ByteCount::new(self.bytes) + self.foreign_bytes(now),
            received_packets: self.packets,
            received_ce: self.ce,
        };
        if !self.process.is_running() {
            // The sampler works in the kernel; it loses a boundary if its ring is full.
            self.process.leave(seen);
            return false;
        }
        self.control.on_boundary(self.machine.time(now), &seen);
        true
    }

    fn foreign_bytes(&self, now: Timestamp) -> ByteCount {
        let elapsed_s = now.saturating_since(self.foreign_since).as_secs_f64();
        let since = ByteCount::new((self.foreign.as_bytes_per_sec_f64() * elapsed_s) as u64);
        self.foreign_before + since
    }

    /// Sets the rate of foreign traffic that carries the bundle's name from now on.
    pub fn set_foreign(&mut self, now: Timestamp, foreign: Rate) {
        self.foreign_before = self.foreign_bytes(now);
        (self.foreign, self.foreign_since) = (foreign, now);
    }

    /// Sets the share of packets that pass unseen from now on.
    pub fn set_unseen(&mut self, share: Ratio) {
        self.unseen_below = unseen_below(share);
    }

    /// From now on boundaries go unreported, or are reported again.
    pub fn set_unreported(&mut self, is_unreported: bool) {
        self.is_unreported = is_unreported;
    }

    /// Suspends the process.
    pub fn stop(&mut self, now: Timestamp) {
        self.process.stop(now);
    }

    /// Resumes the process; then call [`Receivebox::poll`].
    pub fn go_on(&mut self, now: Timestamp) {
        let (ring, datagrams) = self.process.go_on();
        let time = self.machine.time(now);
        ring.iter().for_each(|seen| self.control.on_boundary(time, seen));
        datagrams.iter().for_each(|datagram| self.on_datagram(now, datagram));
    }

    /// Ends the process and its sampler.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a new process after a kill, with the state of `fresh`. The totals go on, and the settings for
    /// unseen, foreign and unreported packets stay.
    pub fn replace(&mut self, now: Timestamp, fresh: Self) {
        let counters = self.control.counters();
        self.past = [self.past[0] + counters.reports, self.past[1] + counters.dropped];
        self.timer = self.timer.stopped();
        let Self { control, sampling, epoch_size, random, process, machine, .. } = fresh;
        (self.control, self.sampling, self.epoch_size) = (control, sampling, epoch_size);
        (self.random, self.process, self.machine) = (random, process, machine);
        (self.bytes, self.packets, self.ce) = (0, 0, 0);
        (self.foreign_since, self.foreign_before) = (now, ByteCount::ZERO);
    }

    /// The machine, for a new process on it.
    pub fn machine(&self) -> Machine {
        self.machine.renewed()
    }

    /// Suspends the machine, or wakes it; then call [`Receivebox::poll`].
    pub fn set_suspended(&mut self, now: Timestamp, is_suspended: bool) {
        match is_suspended {
            true => self.machine.sleep(now),
            false => self.machine.wake(now),
        }
    }

    fn is_active(&self) -> bool {
        self.process.is_running() && !self.machine.is_asleep()
    }

    /// Takes a datagram from the peer; then call [`Receivebox::poll`].
    pub fn on_datagram(&mut self, now: Timestamp, datagram: &[u8]) {
        if self.machine.is_asleep() {
            return;
        }
        if !self.process.is_running() {
            return self.process.leave_datagram(datagram);
        }
        let (time, random) = (self.machine.time(now), &mut self.random);
        if self.control.on_datagram(time, datagram, &mut || random.bits()).is_ok() {
            self.epoch_size = self.control.sampling_size();
            self.sampling.follow(self.control.sampling_key());
        }
    }

    /// Replaces `out` by the next datagram that is due. Call until it returns false, then call
    /// [`Receivebox::plan`].
    pub fn poll(&mut self, now: Timestamp, out: &mut Vec<u8>) -> bool {
        if !self.is_active() {
            return false;
        }
        let time = self.machine.time(now);
        if self.machine.is_prompt() {
            return self.control.poll(time, out);
        }
        while self.control.poll(time, out) {
            self.machine.delay(now, out);
        }
        self.machine.poll(now, out)
    }

    /// Plans the next [`Event::Receivebox`].
    pub fn plan(&mut self, now: Timestamp, events: &mut Events) {
        if !self.is_active() {
            return;
        }
        let at = self.machine.when(now, self.control.next_timer());
        self.timer.set(at.min(self.machine.next_message()).max(now));
        self.timer.plan(events, Event::Receivebox(self.index));
    }

    /// Handles the event; true if something is due.
    pub fn on_timer(&mut self, now: Timestamp, events: &mut Events) -> bool {
        let is_due = self.timer.fired(now, events, Event::Receivebox(self.index));
        is_due && self.is_active()
    }

    /// `metrics` with the receivebox's counts added.
    pub fn add_metrics(&self, metrics: BundleMetrics) -> BundleMetrics {
        let counters = self.control.counters();
        let [reports, dropped] = self.past;
        BundleMetrics {
            reports: reports + counters.reports,
            reports_dropped: dropped + counters.dropped,
            ..metrics
        }
    }
}
