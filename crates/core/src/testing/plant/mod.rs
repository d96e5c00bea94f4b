//! A packet-level plant for control: bundles through one FIFO bottleneck, with real epochs.
//!
//! ```text
//!  hosts ─► qdisc ─► shaper ─► RTT/4 ─► bottleneck FIFO ─► RTT/4 ─► receivebox
//!            sendbox ◄───────── RTT/2 + noise + extra delay ◄───────── reports
//! ```
//! Deterministic: one seed. Boundaries are drawn by real 64-bit hashes, so gaps between them are
//! geometric; notices of epoch sizes wait in the same queue as packets; the clocks of the boxes
//! differ by an arbitrary offset and drift. What the hosts do is in [`host`].

pub mod host;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use self::host::Host;
use super::qdisc::TestPacket;
use crate::bundle::sendbox::{Counters, Decision, Peer, SUPPLIED, Sendbox, SendboxConfig};
use crate::bundle::{EpochSize, Report};
use crate::cc;
use crate::qdisc::{self, Backlog, DropReason, DropSink, Qdisc, Shaper, ShaperParams};
use crate::random::{Stream, Streams};
use crate::spec::Spec;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Bytes of every data packet.
pub const PACKET: ByteCount = ByteCount::new(1514);
/// Width of the bins of a [`Trace`].
pub const BIN: Duration = Duration::from_millis(10);

/// What the way back of reports adds to half a round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WayBack {
    /// Nothing.
    Clear,
    /// A queue that rises and falls as a sine: largest delay and period.
    Sine(Duration, Duration),
    /// Uniform from zero to this, drawn for each report.
    Random(Duration),
}

/// A change of the bottleneck during the run.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// Rate from then on.
    pub rate: Rate,
    /// Two-way propagation delay from then on.
    pub rtt: Duration,
}

/// A box of the first bundle that dies and comes back.
#[derive(Clone, Copy, Debug)]
pub enum Outage {
    /// The sendbox forgets everything; meanwhile packets pass unshaped and unsampled.
    Sendbox,
    /// The receivebox forgets its counters and comes back with another clock.
    Receivebox,
    /// Not the receivebox, which stays alive to the sendbox, but all of its reports.
    Reports,
}

/// What feeds a bundle.
#[derive(Clone, Debug)]
pub enum Source {
    /// Endless backlog, on an access line of four times the first bottleneck rate.
    Backlog,
    /// Hosts with TCP flows and constant streams.
    Flows(Vec<Flow>),
}

/// One flow of a host.
#[derive(Clone, Copy, Debug)]
pub enum Flow {
    /// Cubic: start and packets, `None` for endless.
    Tcp(Duration, Option<u64>),
    /// A constant stream from start to end.
    Cbr(Rate, Duration, Duration),
}

/// One bundle.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Algorithm; `const` for the status quo.
    pub cc: Spec,
    /// Traffic.
    pub source: Source,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bottleneck rate at the start.
    pub rate: Rate,
    /// Two-way propagation delay at the start.
    pub rtt: Duration,
    /// Packets that fit into the bottleneck's queue; `None`: max(60, 3 BDP).
    pub buffer: Option<usize>,
    /// Changes in order of time.
    pub changes: Vec<Change>,
    /// Additional delay of each report.
    pub report_delay: Duration,
    /// Reports are delayed by a further 0 to this.
    pub report_noise: Duration,
    /// Receive stamps are late by 0 to this.
    pub stamp_noise: Duration,
    /// The way back.
    pub way_back: WayBack,
    /// Probability that a report is lost.
    pub report_loss: f64,
    /// Probability that a packet is lost before the bottleneck.
    pub data_loss: f64,
    /// From when on packets are lost.
    pub data_loss_from: Duration,
    /// The sendbox wakes up late by an exponential time of this mean, and one time in 10,000 by
    /// fifty times as much: a process in user space.
    pub wake_delay: Duration,
    /// A box that dies at the first time and is back at the second.
    pub outage: Option<(Outage, Duration, Duration)>,
    /// The bundles.
    pub bundles: Vec<Bundle>,
    /// Length of the run.
    pub stop: Duration,
    /// Seed.
    pub seed: u64,
}

impl Plan {
    /// An endless backlog under the algorithm `cc`, with noise of +-1 ms.
    pub fn new(cc: &str, rate_mbit: u64, rtt_ms: u64) -> Self {
        Self {
            rate: Rate::from_mbit_per_sec(rate_mbit),
            rtt: Duration::from_millis(rtt_ms),
            buffer: None,
            changes: Vec::new(),
            report_delay: Duration::ZERO,
            report_noise: Duration::from_millis(2),
            stamp_noise: Duration::from_micros(200),
            way_back: WayBack::Clear,
            report_loss: 0.0,
            data_loss: 0.0,
            data_loss_from: Duration::ZERO,
            wake_delay: Duration::ZERO,
            outage: None,
            bundles: vec![Bundle { cc: Spec::named(cc), source: Source::Backlog }],
            stop: Duration::from_secs(40),
            seed: 1,
        }
    }

    /// The same with `flows` instead of the backlog.
    pub fn flows(mut self, flows: Vec<Flow>) -> Self {
        self.bundles[0].source = Source::Flows(flows);
        self
    }

    /// The same with `count` equal bundles.
    pub fn bundles(mut self, count: usize) -> Self {
        self.bundles = vec![self.bundles[0].clone(); count];
        self
    }

    /// The same with a change of the bottleneck.
    pub fn change(mut self, at_s: u64, rate_mbit: u64, rtt_ms: u64) -> Self {
        self.changes.push(Change {
            at: Duration::from_secs(at_s),
            rate: Rate::from_mbit_per_sec(rate_mbit),
            rtt: Duration::from_millis(rtt_ms),
        });
        self
    }

    /// The same for `seconds`.
    pub fn stop(mut self, seconds: u64) -> Self {
        self.stop = Duration::from_secs(seconds);
        self
    }

    /// The same with another seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    fn buffer_packets(&self) -> usize {
        let content = self.rate.bytes_in(self.rtt).as_u64() / PACKET.as_u64();
        self.buffer.unwrap_or_else(|| (3 * content as usize).max(60))
    }

    /// Runs the plan.
    pub fn run(&self) -> Trace {
        Plant::new(self).run()
    }
}

/// One interval of [`BIN`].
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// Packets in the bottleneck's queue at the beginning.
    pub queue_packets: usize,
    /// Bytes that the bottleneck could have sent.
    pub capacity_bytes: f64,
    /// Packets dropped by the bottleneck's queue.
    pub drops: u64,
    /// Per bundle.
    pub bundles: Vec<BundleBin>,
}

/// One bundle in one interval.
#[derive(Clone, Debug, Default)]
pub struct BundleBin {
    /// Bytes that left the bottleneck.
    pub bytes: u64,
    /// Packets in the sendbox's queue at the beginning.
    pub sendbox_packets: u64,
    /// Rate of the shaper at the beginning (bits per second).
    pub rate_bps: Option<u64>,
    /// What the sendbox had decided at the beginning.
    pub decision: Option<Decision>,
}

/// What a run leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In order of time.
    pub bins: Vec<Bin>,
    /// Completion of each finite flow, per bundle and flow.
    pub completions: Vec<Vec<Option<Duration>>>,
    /// Reports that arrived, over all bundles.
    pub reports: u64,
    /// The state at the end, per bundle.
    pub decisions: Vec<Decision>,
    /// What the sendboxes have counted, per bundle.
    pub counters: Vec<Counters>,
}

impl Trace {
    fn between(&self, from_s: f64, to_s: f64) -> &[Bin] {
        let index = |seconds: f64| (seconds / BIN.as_secs_f64()).round() as usize;
        let end = index(to_s).min(self.bins.len());
        &self.bins[index(from_s).min(end)..end]
    }

    /// Share of the capacity that was used (0 to 1).
    pub fn utilisation(&self, from_s: f64, to_s: f64) -> f64 {
        let bins = self.between(from_s, to_s);
        let bytes: u64 = bins.iter().flat_map(|bin| &bin.bundles).map(|bundle| bundle.bytes).sum();
        bytes as f64 / bins.iter().map(|bin| bin.capacity_bytes).sum::<f64>()
    }

    /// Mean queue at the bottleneck (packets).
    pub fn mean_queue(&self, from_s: f64, to_s: f64) -> f64 {
        let bins = self.between(from_s, to_s);
        bins.iter().map(|bin| bin.queue_packets as f64).sum::<f64>() / bins.len() as f64
    }

    /// Mean queue at the sendbox of the first bundle (packets).
    pub fn mean_sendbox_queue(&self, from_s: f64, to_s: f64) -> f64 {
        let bins = self.between(from_s, to_s);
        let packets = bins.iter().map(|bin| bin.bundles[0].sendbox_packets as f64);
        packets.sum::<f64>() / bins.len() as f64
    }

    /// 95th percentile of the queue at the bottleneck (packets).
    pub fn p95_queue(&self, from_s: f64, to_s: f64) -> usize {
        let bins = self.between(from_s, to_s);
        let mut packets: Vec<usize> = bins.iter().map(|bin| bin.queue_packets).collect();
        packets.sort_unstable();
        packets[packets.len() * 95 / 100]
    }

    /// Longest queue at the bottleneck (packets).
    pub fn peak_queue(&self, from_s: f64, to_s: f64) -> usize {
        self.between(from_s, to_s).iter().map(|bin| bin.queue_packets).max().unwrap_or(0)
    }

    /// Packets dropped by the bottleneck's queue.
    pub fn drops(&self, from_s: f64, to_s: f64) -> u64 {
        self.between(from_s, to_s).iter().map(|bin| bin.drops).sum()
    }

    /// Throughput of one bundle (Mbit/s).
    pub fn throughput_mbit(&self, bundle: usize, from_s: f64, to_s: f64) -> f64 {
        let bytes: u64 =
            self.between(from_s, to_s).iter().map(|bin| bin.bundles[bundle].bytes).sum();
        bytes as f64 * 8e-6 / (to_s - from_s)
    }

    /// First time after `from_s` at which `holds` is true of the interval of `width_s` before it.
    pub fn first(
        &self,
        from_s: f64,
        width_s: f64,
        holds: impl Fn(&Self, f64, f64) -> bool,
    ) -> Option<f64> {
        let end_s = self.bins.len() as f64 * BIN.as_secs_f64();
        let mut at_s = from_s + width_s;
        while at_s <= end_s {
            if holds(self, at_s - width_s, at_s) {
                return Some(at_s - from_s);
            }
            at_s += BIN.as_secs_f64();
        }
        None
    }
}

#[derive(Clone, Debug)]
struct InFlight {
    bundle: usize,
    packet: TestPacket,
    hash: u64,
}

#[derive(Clone, Debug)]
enum Event {
    Start(usize, usize),
    Cbr(usize, usize),
    Rto(usize, usize, u64),
    Ack(usize, usize, u64),
    Wake(usize, Timestamp),
    Tick(usize),
    AtBottleneck(InFlight),
    Served,
    AtReceivebox(InFlight),
    AtSendbox(usize, Report),
    NoticeAtBottleneck(usize, EpochSize),
    Notice(usize, EpochSize),
    Change(usize),
    Down,
    Silent,
    Up,
    Bin,
}

/// An event in the order of (time, insertion).
struct Scheduled(Timestamp, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Collects what a sendbox's queue drops, for the hosts to notice.
#[derive(Default)]
struct Drops(Vec<TestPacket>);

impl DropSink<TestPacket> for Drops {
    fn dropped(&mut self, packet: TestPacket, _reason: DropReason) {
        self.0.push(packet);
    }
}

type SendboxQueue = Shaper<TestPacket, Box<dyn Qdisc<TestPacket> + Send>>;

struct Site {
    sendbox: Sendbox,
    shaper: SendboxQueue,
    hosts: Vec<Host>,
    is_endless: bool,
    /// The access line is busy until then.
    line_free_at: Timestamp,
    wakes_at: Option<Timestamp>,
    notified: EpochSize,
    is_sendbox_down: bool,
    is_receivebox_down: bool,
    are_reports_lost: bool,
    clock_origin: Duration,
    // The receivebox.
    epoch_size: EpochSize,
    received_bytes: ByteCount,
    received_packets: u64,
    bin_bytes: u64,
}

struct Plant<'a> {
    plan: &'a Plan,
    now: Timestamp,
    events: BinaryHeap<Reverse<Scheduled>>,
    inserted: u64,
    sites: Vec<Site>,
    rate: Rate,
    rtt: Duration,
    buffer_packets: usize,
    queue: VecDeque<InFlight>,
    is_serving: bool,
    /// When the packet in service leaves.
    served_at: Timestamp,
    noise: Stream,
    hashes: Stream,
    trace: Trace,
}

/// The receivebox's clock: another origin, and fast by 50 ppm.
fn receivebox_clock(now: Timestamp, origin: Duration) -> Timestamp {
    now + origin + Duration::from_nanos(now.as_nanos() / 20_000)
}

/// A host's monitor calls a box silent after this.
const SILENCE: Duration = Duration::from_millis(500);

impl<'a> Plant<'a> {
    fn new(plan: &'a Plan) -> Self {
        let streams = Streams::new(plan.seed);
        let mut plant = Self {
            plan,
            now: Timestamp::ZERO,
            events: BinaryHeap::new(),
            inserted: 0,
            sites: Vec::new(),
            rate: plan.rate,
            rtt: plan.rtt,
            buffer_packets: plan.buffer_packets(),
            queue: VecDeque::new(),
            is_serving: false,
            served_at: Timestamp::ZERO,
            noise: streams.stream("noise"),
            hashes: streams.stream("hashes"),
            trace: Trace::default(),
        };
        for (index, bundle) in plan.bundles.iter().enumerate() {
            plant.add_site(index, bundle);
        }
        for (index, change) in plan.changes.iter().enumerate() {
            plant.after(change.at, Event::Change(index));
        }
        if let Some((_, down, up)) = plan.outage {
            plant.after(down, Event::Down);
            plant.after(down + SILENCE, Event::Silent);
            plant.after(up, Event::Up);
        }
        plant.after(Duration::ZERO, Event::Bin);
        plant
    }

    fn add_site(&mut self, index: usize, bundle: &Bundle) {
        let seed = self.plan.seed.wrapping_mul(31).wrapping_add(index as u64);
        let cc = cc::build(&bundle.cc, SUPPLIED).expect("the plan names a known algorithm");
        let config = SendboxConfig { seed, ..SendboxConfig::default() };
        let limit = self.plan.buffer_packets().max(1200);
        let sfq = Spec::named("sfq").with("limit", crate::spec::Value::Text(format!("{limit}p")));
        let inner = qdisc::build(&sfq).expect("sfq is registered");
        let sendbox = Sendbox::new(config, cc);
        let flows = match &bundle.source {
            Source::Backlog => &[][..],
            Source::Flows(flows) => flows,
        };
        for (flow, kind) in flows.iter().enumerate() {
            match kind {
                Flow::Tcp(at, _) => self.after(*at, Event::Start(index, flow)),
                Flow::Cbr(_, at, _) => self.after(*at, Event::Cbr(index, flow)),
            }
        }
        self.trace.completions.push(vec![None; flows.len()]);
        self.sites.push(Site {
            notified: sendbox.epoch_size(),
            epoch_size: sendbox.epoch_size(),
            sendbox,
            shaper: Shaper::new(inner, ShaperParams::default()),
            hosts: flows.iter().map(Host::new).collect(),
            is_sendbox_down: false,
            is_receivebox_down: false,
            are_reports_lost: false,
            clock_origin: Duration::from_secs(77_000),
            is_endless: matches!(bundle.source, Source::Backlog),
            line_free_at: Timestamp::ZERO,
            wakes_at: None,
            received_bytes: ByteCount::ZERO,
            received_packets: 0,
            bin_bytes: 0,
        });
        self.after(Duration::ZERO, Event::Tick(index));
        self.wake(index);
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.inserted += 1;
        self.events.push(Reverse(Scheduled(self.now + delay, self.inserted, event)));
    }

    fn uniform(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.noise.unit())
    }

    fn run(mut self) -> Trace {
        let end = Timestamp::ZERO + self.plan.stop;
        while let Some(Reverse(Scheduled(at, _, event))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        self.trace.counters = self.sites.iter().map(|site| site.sendbox.counters()).collect();
        self.trace.decisions = self.sites.iter().map(|site| site.sendbox.decision()).collect();
        self.trace
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start(site, flow) => self.host_sends(site, flow),
            Event::Cbr(site, flow) => self.stream(site, flow),
            Event::Ack(site, flow, id) => self.acknowledged(site, flow, id),
            Event::Rto(site, flow, generation) => {
                if self.sites[site].hosts[flow].on_rto(self.now, generation) {
                    self.host_sends(site, flow);
                }
            }
            Event::Wake(site, at) => {
                if self.sites[site].wakes_at == Some(at) {
                    self.sites[site].wakes_at = None;
                    self.depart(site);
                }
            }
            Event::Tick(site) => self.tick(site),
            Event::AtBottleneck(packet) => self.arrive(packet),
            Event::Served => self.served(),
            Event::AtReceivebox(packet) => self.received(packet),
            Event::AtSendbox(site, report) => {
                self.trace.reports += 1;
                if !self.sites[site].is_sendbox_down {
                    self.sites[site].sendbox.on_report(self.now, &report);
                }
                self.apply(site);
            }
            Event::NoticeAtBottleneck(site, size) => {
                // It is short, but overtakes neither packets nor earlier notices.
                let service = PACKET.time_at(self.rate).expect("a positive rate");
                let behind = self.queue.len().saturating_sub(1) as u32;
                let wait = self.served_at.saturating_since(self.now) + service * behind;
                // Right after the packet ahead of it, which leaves at that very time.
                let wait = wait + Duration::from_nanos(1);
                self.after(wait + self.rtt / 4, Event::Notice(site, size));
            }
            Event::Notice(site, size) => self.sites[site].epoch_size = size,
            Event::Change(index) => {
                let change = &self.plan.changes[index];
                (self.rate, self.rtt) = (change.rate, change.rtt);
            }
            Event::Down => self.down(),
            Event::Silent => {
                let site = &mut self.sites[0];
                if site.is_receivebox_down {
                    site.sendbox.on_peer(self.now, Peer::Silent);
                    self.apply(0);
                }
            }
            Event::Up => self.up(),
            Event::Bin => self.bin(),
        }
    }

    fn down(&mut self) {
        let Some((outage, ..)) = self.plan.outage else { return };
        let site = &mut self.sites[0];
        match outage {
            Outage::Receivebox => site.is_receivebox_down = true,
            Outage::Reports => site.are_reports_lost = true,
            Outage::Sendbox => {
                site.is_sendbox_down = true;
                site.shaper.set_rate(self.now, None);
                self.wake(0);
            }
        }
    }

    fn up(&mut self) {
        let Some((outage, ..)) = self.plan.outage else { return };
        let site = &mut self.sites[0];
        match outage {
            Outage::Receivebox => {
                site.is_receivebox_down = false;
                site.received_bytes = ByteCount::ZERO;
                site.received_packets = 0;
                site.clock_origin = Duration::from_secs(5);
                site.sendbox.on_peer(self.now, Peer::Restarted);
            }
            Outage::Sendbox => {
                site.is_sendbox_down = false;
                let cc = cc::build(&self.plan.bundles[0].cc, SUPPLIED).expect("built before");
                site.sendbox = Sendbox::new(SendboxConfig::default(), cc);
            }
            Outage::Reports => {
                site.are_reports_lost = false;
                return;
            }
        }
        // Keepalives repeat the epoch size to a peer that has come back.
        let size = site.sendbox.epoch_size();
        site.notified = size;
        self.after(self.rtt / 4, Event::NoticeAtBottleneck(0, size));
        self.apply(0);
    }

    fn bin(&mut self) {
        let bundles = self.sites.iter().map(|site| BundleBin {
            bytes: 0,
            sendbox_packets: site.shaper.backlog().packets,
            rate_bps: site.sendbox.rate().map(Rate::as_bits_per_sec),
            decision: Some(site.sendbox.decision()),
        });
        let bin = Bin {
            queue_packets: self.queue.len(),
            capacity_bytes: self.rate.as_bytes_per_sec_f64() * BIN.as_secs_f64(),
            drops: 0,
            bundles: bundles.collect(),
        };
        if let Some(last) = self.trace.bins.last_mut() {
            for (bundle, site) in last.bundles.iter_mut().zip(&mut self.sites) {
                bundle.bytes = std::mem::take(&mut site.bin_bytes);
            }
        }
        self.trace.bins.push(bin);
        self.after(BIN, Event::Bin);
    }

    // The hosts.

    fn host_sends(&mut self, site: usize, flow: usize) {
        while let Some(id) = self.sites[site].hosts[flow].poll(self.now) {
            self.enqueue(site, flow, id);
        }
        if let Some((at, generation)) = self.sites[site].hosts[flow].take_timer() {
            let delay = at.saturating_since(self.now);
            self.after(delay, Event::Rto(site, flow, generation));
        }
        self.wake(site);
    }

    fn stream(&mut self, site: usize, flow: usize) {
        let Source::Flows(flows) = &self.plan.bundles[site].source else { return };
        let Flow::Cbr(rate, _, stop) = flows[flow] else { return };
        if self.now >= Timestamp::ZERO + stop {
            return;
        }
        self.enqueue(site, flow, u64::MAX);
        self.after(PACKET.time_at(rate).expect("a positive rate"), Event::Cbr(site, flow));
        self.wake(site);
    }

    fn enqueue(&mut self, site: usize, flow: usize, id: u64) {
        let packet = TestPacket { flow: flow as u32, sequence: id, len: PACKET, ..<_>::default() };
        let site = &mut self.sites[site];
        let was_empty = site.shaper.backlog().packets == 0;
        // A dropped packet is noticed by its host from later acknowledgements.
        site.shaper.enqueue(self.now, packet, &mut Drops::default());
        if was_empty {
            site.sendbox.on_queue(self.now, site.shaper.backlog());
        }
    }

    fn acknowledged(&mut self, site: usize, flow: usize, id: u64) {
        self.sites[site].hosts[flow].on_ack(self.now, id);
        if self.sites[site].hosts[flow].is_done() {
            let completion = &mut self.trace.completions[site][flow];
            completion.get_or_insert(self.now.saturating_since(Timestamp::ZERO));
        }
        self.host_sends(site, flow);
    }

    // The sendbox.

    /// Schedules the next departure of a site's shaper.
    fn wake(&mut self, index: usize) {
        let delay = self.plan.wake_delay;
        if self.sites[index].is_endless && self.sites[index].shaper.backlog().packets == 0 {
            for flow in 0..4 {
                self.enqueue(index, flow, 0);
            }
        }
        let site = &self.sites[index];
        let Some(due) = site.shaper.next_timer() else { return };
        let at = due.max(self.now).max(site.line_free_at);
        if site.wakes_at.is_some_and(|wake| wake <= at) {
            return;
        }
        let mut late = delay.mul_f64(self.noise.exponential());
        if !delay.is_zero() && self.noise.chance(1e-4) {
            late += delay * 50;
        }
        let at = at + late;
        self.sites[index].wakes_at = Some(at);
        self.after(at.saturating_since(self.now), Event::Wake(index, at));
    }

    fn depart(&mut self, index: usize) {
        let site = &mut self.sites[index];
        if site.is_endless && site.shaper.backlog().packets < 4 {
            for flow in 0..4 {
                self.enqueue(index, flow, 0);
            }
        }
        let line = Rate::from_bits_per_sec(self.plan.rate.as_bits_per_sec() * 4);
        let site = &mut self.sites[index];
        while let Some(packet) = site.shaper.dequeue(self.now, &mut Drops::default()) {
            let hash = self.hashes.bits();
            if !site.is_sendbox_down {
                site.sendbox.on_departure(self.now, Some(hash), hash, packet.len);
            }
            let backlog = site.shaper.backlog();
            if backlog.packets == 0 {
                site.sendbox.on_queue(self.now, backlog);
            }
            let packet = InFlight { bundle: index, packet, hash };
            self.inserted += 1;
            let at = self.now + self.rtt / 4;
            let event = Event::AtBottleneck(packet);
            self.events.push(Reverse(Scheduled(at, self.inserted, event)));
            if site.is_endless {
                let time = PACKET.time_at(line).expect("a positive rate");
                site.line_free_at = self.now + time;
                break;
            }
        }
        self.apply(index);
    }

    fn tick(&mut self, index: usize) {
        let site = &mut self.sites[index];
        let backlog: Backlog = site.shaper.backlog();
        site.sendbox.on_tick(self.now, backlog);
        let next = site.sendbox.next_timer().saturating_since(self.now);
        self.after(next, Event::Tick(index));
        self.apply(index);
    }

    /// Hands the sendbox's decisions to the shaper and the receivebox.
    fn apply(&mut self, index: usize) {
        let site = &mut self.sites[index];
        if site.is_sendbox_down {
            return self.wake(index);
        }
        if site.shaper.rate() != site.sendbox.rate() {
            site.shaper.set_rate(self.now, site.sendbox.rate());
        }
        let size = site.sendbox.epoch_size();
        if size != site.notified {
            site.notified = size;
            self.after(self.rtt / 4, Event::NoticeAtBottleneck(index, size));
        }
        self.wake(index);
    }

    // The bottleneck and the receivebox.

    fn arrive(&mut self, packet: InFlight) {
        let is_lossy = self.now >= Timestamp::ZERO + self.plan.data_loss_from;
        if self.noise.chance(if is_lossy { self.plan.data_loss } else { 0.0 }) {
            return;
        }
        if self.queue.len() >= self.buffer_packets {
            if let Some(bin) = self.trace.bins.last_mut() {
                bin.drops += 1;
            }
            return;
        }
        self.queue.push_back(packet);
        if !self.is_serving {
            self.serve();
        }
    }

    fn serve(&mut self) {
        self.is_serving = true;
        let service = PACKET.time_at(self.rate).expect("a positive rate");
        self.served_at = self.now + service;
        self.after(service, Event::Served);
    }

    fn served(&mut self) {
        let packet = self.queue.pop_front().expect("served packets come from the queue");
        self.sites[packet.bundle].bin_bytes += packet.packet.len.as_u64();
        self.after(self.rtt / 4, Event::AtReceivebox(packet));
        self.is_serving = false;
        if !self.queue.is_empty() {
            self.serve();
        }
    }

    fn received(&mut self, packet: InFlight) {
        let InFlight { bundle, packet, hash } = packet;
        let site = &mut self.sites[bundle];
        site.received_bytes += packet.len;
        site.received_packets += 1;
        if site.epoch_size.is_boundary(hash) && !site.is_receivebox_down {
            self.report(bundle, hash);
        }
        if packet.sequence != u64::MAX && !self.sites[bundle].is_endless {
            let flow = packet.flow as usize;
            self.after(self.rtt / 2, Event::Ack(bundle, flow, packet.sequence));
        }
    }

    fn report(&mut self, bundle: usize, hash: u64) {
        let stamp = self.now + self.uniform(self.plan.stamp_noise);
        let way_back = match self.plan.way_back {
            WayBack::Clear => Duration::ZERO,
            WayBack::Sine(max, period) => {
                let phase = self.now.as_secs_f64() / period.as_secs_f64();
                max.mul_f64(0.5 - 0.5 * libm::cos(phase * core::f64::consts::TAU))
            }
            WayBack::Random(max) => self.uniform(max),
        };
        let noise = self.uniform(self.plan.report_noise);
        if self.noise.chance(self.plan.report_loss) {
            return;
        }
        let site = &self.sites[bundle];
        if site.are_reports_lost {
            return;
        }
        let report = Report {
            hash,
            received_at: receivebox_clock(stamp, site.clock_origin),
            received_bytes: site.received_bytes,
            received_packets: site.received_packets,
            received_ce: 0,
            epoch_size: site.epoch_size,
        };
        let delay = self.rtt / 2 + self.plan.report_delay + noise + way_back;
        self.after(delay, Event::AtSendbox(bundle, report));
    }
}
