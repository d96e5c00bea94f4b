//! A packet-level plant for control: bundles through one FIFO bottleneck, with real epochs.
//!
//! ```text
//!  hosts ─► qdisc ─► shaper ─► RTT/4 ─► bottleneck FIFO ─► RTT/4 ─► receivebox
//!            sendbox ◄───────── RTT/2 + noise + extra delay ◄───────── reports
//! ```
//! Deterministic: one seed. Boundaries are drawn by real 64-bit hashes, so gaps between them are
//! geometric; notices of epoch sizes wait in the same queue as packets; the clocks of the boxes
//! differ by an arbitrary offset and drift. What the hosts do is in [`host`].

mod event;
pub mod host;
mod path;
mod plan;
mod site;
mod trace;

use std::collections::VecDeque;

use self::event::{Event, Events, InFlight};
use self::host::Host;
pub use self::plan::{Bundle, Change, Flow, Outage, Plan, Source, WayBack};
pub use self::trace::{BIN, Bin, BundleBin, Trace};
use super::qdisc::TestPacket;
use crate::bundle::control::{Control, Peer, SUPPLIED};
use crate::bundle::sendbox::SendboxConfig;
use crate::bundle::{DepartureCounters, EpochSize};
use crate::cc;
use crate::qdisc::{self, DropReason, DropSink, Qdisc, Shaper, ShaperParams};
use crate::random::{Stream, Streams};
use crate::spec::Spec;
use crate::units::{ByteCount, Duration, Rate, Timestamp};

/// Bytes of every data packet.
pub const PACKET: ByteCount = ByteCount::new(1514);

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
    sendbox: Control,
    departed: DepartureCounters,
    shaper: SendboxQueue,
    hosts: Vec<Host>,
    is_endless: bool,
    /// The access line is busy until then.
    line_free_at: Timestamp,
    wakes_at: Option<Timestamp>,
    notified: EpochSize,
    is_sendbox_down: bool,
    is_receivebox_down: bool,
    is_suspended: bool,
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
    events: Events,
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

/// A host's monitor calls a box silent after this.
const SILENCE: Duration = Duration::from_millis(500);

impl<'a> Plant<'a> {
    fn new(plan: &'a Plan) -> Self {
        let streams = Streams::new(plan.seed);
        let mut plant = Self {
            plan,
            now: Timestamp::ZERO,
            events: Events::default(),
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
        let config = SendboxConfig { seed, dry_run: self.plan.dry_run, ..<_>::default() };
        let limit = self.plan.buffer_packets().max(1200);
        let sfq = Spec::named("sfq").with("limit", crate::spec::Value::Text(format!("{limit}p")));
        let inner = qdisc::build(&sfq).expect("sfq is registered");
        let sendbox = Control::new(config, cc);
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
            departed: DepartureCounters::default(),
            shaper: Shaper::new(inner, ShaperParams::default()),
            hosts: flows.iter().map(Host::new).collect(),
            is_sendbox_down: false,
            is_receivebox_down: false,
            is_suspended: false,
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
        self.events.add(self.now + delay, event);
    }

    fn uniform(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.noise.unit())
    }

    fn run(mut self) -> Trace {
        let end = Timestamp::ZERO + self.plan.stop;
        while let Some((at, event)) = self.events.pop() {
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
            Outage::Suspended => (site.is_receivebox_down, site.is_suspended) = (true, true),
            Outage::Reports => site.are_reports_lost = true,
            Outage::Sendbox => {
                site.is_sendbox_down = true;
                site.shaper.set_rate(self.now, None);
                self.wake(0);
            }
        }
    }

    fn up(&mut self) {
        let Some((outage, down, up)) = self.plan.outage else { return };
        let site = &mut self.sites[0];
        match outage {
            Outage::Receivebox => {
                site.is_receivebox_down = false;
                site.received_bytes = ByteCount::ZERO;
                site.received_packets = 0;
                site.clock_origin = Duration::from_secs(5);
                site.sendbox.on_peer(self.now, Peer::Restarted);
            }
            Outage::Suspended => {
                (site.is_receivebox_down, site.is_suspended) = (false, false);
                site.clock_origin = site.clock_origin.saturating_sub(up.saturating_sub(down));
                site.sendbox.on_peer(self.now, Peer::Alive);
            }
            Outage::Sendbox => {
                site.is_sendbox_down = false;
                let cc = cc::build(&self.plan.bundles[0].cc, SUPPLIED).expect("built before");
                site.sendbox = Control::new(SendboxConfig::default(), cc);
                site.departed = DepartureCounters::default();
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
}
