//! Datapath that keeps the packets of bundles in the kernel, unchanged. A class of HTB at the WAN port queues
//! and paces each bundle. BPF programs put packets into the classes and report departures.
//!
//! ```text
//!  lan ──► the kernel's bridge ──► program (tcx) ──► HTB: class of the bundle ──► program ──► wan
//!                                      │ else, and whenever there is no fresh beat
//!                                      └──► HTB, past all classes ─────────────────────────► wan
//! ```
//! On a machine that routes, its routes take the place of the bridge, and packets may come in at any device.
//!
//! All rules between the ports still apply: filters, isolation and VLANs work as without a box. Super-packets
//! stay whole as far as the rate allows. They are counted and sampled as the packets that they become.
//!
//! Links hold the programs, so these go with the process. If a process is killed, its qdisc stays. New
//! packets then enter no class, packets in a class leave at the last rate, and the next start removes the qdisc.

mod limit;
mod rates;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_core::bundle::{
    BlockVersion, BlockVersions, BoundaryMark, BundleId, Departures, EpochSize, SamplingKey,
};
use forebay_core::packet::ETHERNET_HEADER;
use forebay_core::qdisc::Backlog;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use forebay_ebpf::{Boundary, Classes, ClassesOptions, Ledger, QDISC, SamplerBundle, Standing};
use nix::poll::{PollFd, PollFlags};

use self::limit::Limit;
use self::rates::{BundleClasses, Rates};
use super::{Datapath, Health, Listener, QueueCounters, STALE_AFTER, Steering};
use crate::daemon::apart::Apart;
use crate::daemon::conditions::{FailedCondition, Fault, ROOT_QDISC};
use crate::daemon::config::{BundleConfig, Config, Forward, KernelQdisc};
use crate::daemon::observer::Observation;
use crate::daemon::reload::difference::BundleOrigin;
use crate::daemon::schedule::{Next, Schedule};
use crate::daemon::sendbox::{Start, serve};
use crate::daemon::status::{HTB, PortStatus, Status};
use crate::daemon::{DaemonError, overhead_of};
use crate::ethernet;
use crate::htb::Htb;
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;

/// Departures of each bundle are counted once in this time times the number of bundles, within
/// [`COUNTED_WITHIN`]. If no boundary has reported them, the next count does: all boundaries of that time
/// have been read by then. Until the report, the control loop does not count these packets as outstanding.
/// After 5 ms, a tick, `setpoint` left 35 packets in a queue instead of 6.
const COUNT_SPACING: Duration = Duration::from_micros(20);
/// Shortest and longest time between two counts of a bundle, for any number of bundles.
const COUNTED_WITHIN: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(5);

/// Time between two looks at all bundles, for each bundle: with a thousand bundles, once a millisecond.
const LOOK_SPACING: Duration = Duration::from_micros(1);
/// Shortest rest that is worth a timer.
const REST_MIN: Duration = Duration::from_micros(100);

/// Packets at the WAN port above which each bundle is limited to its share, however many flows a host opens.
/// They take 300 MB of the kernel's memory if all are full. All shares together allow at most the same number
/// again. Half as many would drop bursts of small packets that the queues of a bundle have room for.
const MOST_PACKETS: u32 = 1 << 17;
/// Bytes above which bundles are limited to their shares, too, because of super-packets: 0.1 s at 10 Gbit/s.
/// All shares together allow the same again. With half of it, two bundles that send at 10 Gbit/s would lose
/// packets within 50 ms.
const MOST_BYTES: u32 = 1 << 27;

/// Runs a sendbox whose packets stay in the kernel.
pub fn run(start: Start) -> Result<Status, DaemonError> {
    let confinement = start.prepared.confinement.clone();
    serve(start, |config, room_bytes, seen, _| Kernel::open(config, room_bytes, seen, &confinement))
}

/// One bundle.
struct Bundle {
    id: BundleId,
    /// Place of the bundle's classes.
    place: usize,
    /// The bundle as the sampler knows it.
    sampled: SamplerBundle,
    rate: Option<Rate>,
    limit: Limit,
    /// Ledger and backlog at the last look.
    ledger: Ledger,
    backlog: Backlog,
    /// Packets that earlier bundles dropped at this place.
    dropped_before: u64,
    /// Packets reported so far.
    told: u64,
    told_at: Timestamp,
    /// Departures at the last count.
    counted: Option<Departures>,
}

/// The classes and their known state.
pub struct Kernel {
    // Dropped first: without classes, the packets that programs put into them would bypass shaping.
    classes: Classes,
    rates: Rates,
    qdisc: Option<KernelQdisc>,
    /// Indices of LAN and WAN, where programs and queues are attached. `None`: the device is gone, and a new device
    /// may get its index.
    indices: [Option<u32>; 2],
    /// `None`: packets may come in at any device.
    lan: Option<String>,
    wan: String,
    forward: Forward,
    /// Bytes of the longest frame.
    frame_bytes: usize,
    bundles: Vec<Bundle>,
    by_id: BTreeMap<BundleId, usize>,
    by_place: BTreeMap<usize, usize>,
    /// Contents of the qdisc at the last [`Datapath::receive`].
    standing: Standing,
    /// Time of the last look at all bundles, and its ledgers.
    looked_at: Timestamp,
    ledgers: Vec<Ledger>,
    failed_conditions: Vec<FailedCondition>,
}

impl Kernel {
    /// Puts qdisc and programs at the ports, with all privileges, for frames of up to `frame_bytes`. `seen`
    /// is the current state of the devices.
    pub fn open(
        config: &Config,
        frame_bytes: usize,
        seen: &Observation,
        confinement: &Confinement,
    ) -> Result<Self, DaemonError> {
        let &Config { forward, kernel_qdisc: qdisc, .. } = config;
        let (lan, wan) = (config.lan.clone(), config.wan.clone());
        let is_gone = seen.wan.is_none() || (lan.is_some() && seen.lan.is_none());
        let Some(wan_index) = seen.wan.filter(|_| !is_gone) else {
            let kind = io::ErrorKind::NotFound;
            return Err(DaemonError::SetUp(io::Error::new(kind, "a port has disappeared")));
        };
        let is_bare = ethernet::is_bare(&wan).map_err(DaemonError::SetUp)?;
        let leaves = match qdisc {
            None => Classes::leaves(config.bundles.len()),
            Some(_) => 0,
        };
        let options = ClassesOptions {
            lan: seen.lan,
            takes_own: config.own,
            is_bare,
            wan: wan_index,
            leaves,
            most_packets: MOST_PACKETS,
            most_bytes: MOST_BYTES,
            stale_after: STALE_AFTER,
        };
        let mut classes = Classes::attach(options)?;
        let mut bundles: Vec<Bundle> = config.bundles.iter().map(Bundle::new).collect();
        set_bundles(&mut classes, &[], &bundles)?;
        for bundle in &mut bundles {
            bundle.begin(&classes);
        }
        classes.set_share(share(bundles.len(), frame_bytes));
        let places = (0..classes.room()).map(|place| {
            let (class, leaves) = classes.at(place);
            let qdisc = qdisc.and_then(KernelQdisc::kind);
            BundleClasses { class, leaves, frame_bytes: frame_bytes as u32, qdisc }
        });
        let failed = |error: io::Error| {
            let kind = qdisc.and_then(KernelQdisc::kind);
            let more = kind.map_or_else(String::new, |kind| format!(", sch_{kind}"));
            let text = format!("queues at {wan}: {error} (sch_htb, sch_tbf{more})");
            DaemonError::SetUp(io::Error::new(error.kind(), text))
        };
        let mut htb = Htb::create(wan_index, QDISC).map_err(failed)?;
        // Bytes count as Ethernet frames everywhere. Rates apply to the bytes that leave below the port.
        let header = if is_bare { ETHERNET_HEADER as u16 } else { 0 };
        htb.set_overhead(header + overhead_of(config).bytes);
        // The bundles have the first places.
        let (places, count) = (places.collect(), bundles.len());
        let rates =
            Rates::start(htb, places, count, config.realtime, confinement).map_err(failed)?;
        Ok(Self {
            classes,
            rates,
            qdisc,
            indices: [seen.lan, seen.wan],
            lan,
            wan,
            forward,
            frame_bytes,
            by_id: bundles.iter().enumerate().map(|(at, bundle)| (bundle.id, at)).collect(),
            by_place: bundles.iter().enumerate().map(|(at, bundle)| (bundle.place, at)).collect(),
            bundles,
            standing: Standing::default(),
            looked_at: Timestamp::ZERO,
            ledgers: Vec::new(),
            failed_conditions: Vec::new(),
        })
    }

    /// Attaches programs and queues to devices that have replaced earlier ones.
    fn attach(&mut self, now: [Option<u32>; 2]) {
        let Some(wan) = now[1] else { return };
        if self.lan.is_some() && now[0].is_none() {
            return;
        }
        let names = [self.lan.as_ref(), Some(&self.wan)];
        let again: Vec<&String> = (names.into_iter().zip(self.indices).zip(now))
            .filter_map(|((name, before), now)| name.filter(|_| before != now))
            .collect();
        let Some(first) = again.first() else { return };
        if let Err(error) = self.classes.attach_anew(now[0], &self.wan, wan) {
            // The programs are attached nowhere now.
            self.indices = [None; 2];
            self.failed_conditions.push(FailedCondition::made_again(first, &error));
            return;
        }
        for name in again {
            tracing::info!(target: "device", "{name} was made again: attached to it");
        }
        if self.indices[1] != now[1] {
            self.rates.follow(wan);
        }
        self.indices = now;
    }

    fn look_spacing(&self) -> Duration {
        LOOK_SPACING * self.bundles.len() as u32
    }

    fn count_spacing(&self) -> Duration {
        let all = COUNT_SPACING * self.bundles.len() as u32;
        all.clamp(*COUNTED_WITHIN.start(), *COUNTED_WITHIN.end())
    }

    /// The qdisc and its queues, for people.
    fn mode(&self) -> String {
        match self.qdisc {
            None => format!("{HTB}{} queues a bundle", self.classes.at(0).1.len()),
            Some(qdisc) => format!("{HTB}{} a bundle", qdisc.name()),
        }
    }
}

/// Has these bundles carried from now on, and the `gone` ones no more.
fn set_bundles(
    classes: &mut Classes,
    gone: &[BundleId],
    bundles: &[Bundle],
) -> Result<(), forebay_ebpf::Error> {
    let set = bundles.iter().map(|bundle| (bundle.id, bundle.sampled.clone())).collect();
    classes.sampler.change(gone, set)
}

/// Packets of up to `frame_bytes` that each of this many bundles may always have waiting, even if the other bundles
/// fill their shares.
fn share(bundles: usize, frame_bytes: usize) -> u64 {
    let most = u64::from(MOST_PACKETS).min(u64::from(MOST_BYTES) / frame_bytes as u64);
    (most / bundles as u64).max(1)
}

/// A share of the qdisc's contents. The kernel knows the total of all bundles without error.
fn part(standing: &Standing, share: f64) -> Backlog {
    let of = |all: u64| (share * all as f64).ceil() as u64;
    Backlog { packets: of(standing.packets), bytes: ByteCount::new(of(standing.bytes.as_u64())) }
}

impl Bundle {
    fn new(config: &BundleConfig) -> Self {
        let any = ["0.0.0.0/0", "::/0"].map(|prefix| prefix.parse().expect("a prefix"));
        let source = if config.from.is_empty() { any.to_vec() } else { config.from.clone() };
        let sampled = SamplerBundle {
            source,
            destination: config.to.clone(),
            key: SamplingKey::IDENTITY,
            epoch_size: EpochSize::MAX,
            version: BlockVersion::V2,
        };
        Self {
            id: config.id,
            place: 0,
            sampled,
            rate: None,
            limit: Limit::default(),
            ledger: Ledger::default(),
            backlog: Backlog::default(),
            dropped_before: 0,
            told: 0,
            told_at: Timestamp::ZERO,
            counted: None,
        }
    }

    /// Starts at its assigned place.
    fn begin(&mut self, classes: &Classes) {
        self.place = classes.place(self.id).expect("it was just set");
        classes.set_limit(self.place, None);
        self.dropped_before = classes.ledger(self.place).dropped;
    }

    /// Continues `before` under another configuration.
    fn succeed(&mut self, before: &Self) {
        let SamplerBundle { key, epoch_size, version, .. } = before.sampled;
        (self.sampled.key, self.sampled.epoch_size) = (key, epoch_size);
        self.sampled.version = version;
        (self.place, self.rate, self.limit) = (before.place, before.rate, before.limit);
        (self.ledger, self.backlog) = (before.ledger, before.backlog);
        self.dropped_before = before.dropped_before;
        (self.told, self.told_at, self.counted) = (before.told, before.told_at, before.counted);
    }

    /// Time of the next count of departures, with one count per `every`.
    fn count_due(&self, every: Duration) -> Timestamp {
        self.counted.map_or(Timestamp::ZERO, |counted| counted.at + every)
    }

    /// Departures up to a boundary. The packets in front of it in its super-packet leave first, at the
    /// current rate.
    fn departures(&mut self, boundary: &Boundary) -> Departures {
        let report = &boundary.report;
        let after = self.rate.and_then(|rate| boundary.ahead.time_at(rate)).unwrap_or_default();
        self.told_at = self.told_at.max(report.received_at + after);
        self.told = report.received_packets;
        Departures {
            at: self.told_at,
            packets: report.received_packets,
            bytes: report.received_bytes,
            boundary: Some(BoundaryMark { hash: report.hash, identity: boundary.identity }),
        }
    }
}

impl Datapath for Kernel {
    /// Version 2 alone: the programs see super-packets.
    const VERSIONS: BlockVersions = BlockVersions::of(BlockVersion::V2);
    /// Sets qdiscs and classes, and carries no frames.
    const TASK: Task = Task::Classes;

    fn discipline(&self) -> Option<&'static str> {
        Some(self.qdisc.map_or("sfq", KernelQdisc::nearest))
    }

    fn steer(&mut self, now: Timestamp, bundle: usize, steering: &Steering) {
        let state = &mut self.bundles[bundle];
        let sampler = &mut self.classes.sampler;
        state.sampled.epoch_size = steering.epoch_size;
        // This datapath does not build version 1. It stands for "no version in common", and nothing is
        // matched.
        let version = steering.version.max(BlockVersion::V2);
        let sampled = (state.sampled.key, state.sampled.version);
        if sampled == (steering.sampling_key, version) {
            sampler.set_epoch_size(state.id, steering.epoch_size);
        } else {
            (state.sampled.key, state.sampled.version) = (steering.sampling_key, version);
            if let Err(error) = sampler.set_bundle(state.id, state.sampled.clone()) {
                tracing::warn!(target: "device", %error, "the key to sample with");
            }
        }
        state.rate = steering.rate;
        if self.qdisc.and_then(KernelQdisc::kind).is_none() {
            let limit = state.limit.follow(now, steering.rate, steering.path_rtt);
            self.classes.set_limit(state.place, limit);
        }
        self.rates.set(state.place, steering.rate, steering.path_rtt);
    }

    fn receive(
        &mut self,
        now: Timestamp,
        listeners: &mut [impl Listener],
        schedule: &mut Schedule,
    ) -> io::Result<usize> {
        self.standing = self.classes.standing();
        if self.rates.failed().is_some() {
            // Packets in a removed qdisc never leave, and the kernel updates the total only when a packet
            // leaves.
            (self.standing.packets, self.standing.bytes) = (0, ByteCount::ZERO);
        }
        let Self { classes, bundles, by_id, .. } = self;
        let told = classes.sampler.consume(&mut |boundary| {
            if let Some(&at) = by_id.get(&boundary.bundle) {
                listeners[at].on_departures(&bundles[at].departures(&boundary));
            }
        });
        told.map_err(io::Error::other)?;
        if now.saturating_since(self.looked_at) < self.look_spacing() {
            return Ok(0);
        }
        self.looked_at = now;
        let Self { classes, by_place, .. } = self;
        let told = classes.consume_waits(&mut |wait| {
            if let Some(&at) = by_place.get(&wait.place) {
                listeners[at].on_wait(wait.time);
            }
        });
        told.map_err(io::Error::other)?;
        let ledgers = self.bundles.iter().map(|bundle| self.classes.ledger(bundle.place));
        self.ledgers.clear();
        self.ledgers.extend(ledgers);
        let waiting: u64 = self.ledgers.iter().map(|ledger| ledger.waiting).sum();
        let (count, every) = (self.bundles.len(), self.count_spacing());
        let seen = self.bundles.iter_mut().zip(listeners).zip(&self.ledgers).enumerate();
        for (at, ((bundle, listener), &ledger)) in seen {
            if ledger.left != bundle.ledger.left {
                schedule.set(at, now.max(bundle.count_due(every)));
            }
            let share = match waiting {
                0 => 1.0 / count as f64,
                all => (ledger.waiting as f64 / all as f64).min(1.0),
            };
            let backlog = part(&self.standing, share);
            if (backlog.packets == 0) != (bundle.backlog.packets == 0) {
                listener.on_queue(now, backlog);
            }
            (bundle.ledger, bundle.backlog) = (ledger, backlog);
        }
        Ok(0)
    }

    fn serve(&mut self, now: Timestamp, bundle: usize, listener: &mut impl Listener) -> Next {
        let every = self.count_spacing();
        let state = &mut self.bundles[bundle];
        let due = state.count_due(every);
        if now < due {
            return Next::At(due);
        }
        if let Some(counted) = state.counted.take().filter(|it| it.packets > state.told) {
            state.told = counted.packets;
            state.told_at = state.told_at.max(counted.at);
            listener.on_departures(&Departures { at: state.told_at, ..counted });
        }
        // The status shows a map that cannot be read.
        let counters = self.classes.sampler.counters(state.id).ok().flatten();
        state.counted = counters.map(|counters| Departures {
            at: now,
            packets: counters.packets,
            bytes: counters.bytes,
            boundary: None,
        });
        let is_to_tell = state.counted.is_some_and(|counted| counted.packets > state.told);
        Next::At(if is_to_tell { now + every } else { Timestamp::MAX })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn backlog(&self, bundle: usize) -> Backlog {
        self.bundles[bundle].backlog
    }

    fn queue(&self, bundle: usize) -> QueueCounters {
        let Bundle { ledger, dropped_before, .. } = &self.bundles[bundle];
        let dropped = ledger.dropped.saturating_sub(*dropped_before);
        QueueCounters { dropped, ..QueueCounters::default() }
    }

    fn pending(&mut self) -> u64 {
        0
    }

    fn health(&mut self) -> Health {
        self.failed_conditions.retain(|failed| failed.condition != ROOT_QDISC);
        let wan = &self.wan;
        self.failed_conditions.extend(self.rates.failed().map(|error| {
            let found = format!("queues at {wan}: {error}");
            let fix = format!("`tc qdisc show dev {wan}`; the box tries again within 10 s");
            FailedCondition { condition: ROOT_QDISC.into(), fault: Fault { found, fix } }
        }));
        Health::default()
    }

    fn beat(&mut self) {
        self.classes.beat();
    }

    fn hand_back(&mut self) {
        self.classes.stop_beating();
    }

    fn rearrange(
        &mut self,
        _now: Timestamp,
        config: &Config,
        origins: &[BundleOrigin],
        _seen: &Observation,
    ) -> Result<(), DaemonError> {
        let room = self.classes.room();
        if config.bundles.len() > room {
            let text = format!("queues were made for up to {room} bundles: start the box again");
            return Err(DaemonError::SetUp(io::Error::other(text)));
        }
        let mut next: Vec<Bundle> = config.bundles.iter().map(Bundle::new).collect();
        for (bundle, origin) in next.iter_mut().zip(origins) {
            if let Some(earlier) = origin.place() {
                bundle.succeed(&self.bundles[earlier]);
            }
        }
        let kept: BTreeSet<usize> = origins.iter().filter_map(|origin| origin.place()).collect();
        let is_gone = |(at, bundle): (usize, &Bundle)| (!kept.contains(&at)).then_some(bundle.id);
        let gone: Vec<BundleId> = self.bundles.iter().enumerate().filter_map(is_gone).collect();
        set_bundles(&mut self.classes, &gone, &next)?;
        if !gone.is_empty() {
            // Boundaries of removed bundles: a new bundle may have the number of one.
            self.classes.sampler.consume(&mut |_| {})?;
        }
        // Their remaining packets leave unshaped, and so do the packets of a new bundle.
        for (at, bundle) in self.bundles.iter().enumerate() {
            if !kept.contains(&at) {
                self.rates.set(bundle.place, None, None);
            }
        }
        for (bundle, origin) in next.iter_mut().zip(origins) {
            if *origin == BundleOrigin::New {
                bundle.begin(&self.classes);
                self.rates.set(bundle.place, None, None);
            }
        }
        self.by_id = next.iter().enumerate().map(|(at, bundle)| (bundle.id, at)).collect();
        self.by_place = next.iter().enumerate().map(|(at, bundle)| (bundle.place, at)).collect();
        self.bundles = next;
        self.classes.set_share(share(self.bundles.len(), self.frame_bytes));
        Ok(())
    }

    fn leave_out(&mut self, apart: &Apart) {
        let Classes { sampler, .. } = &mut self.classes;
        let set = sampler.set_messages(&apart.messages);
        // With more addresses than the programs hold, messages to the rest are counted, as before those
        // addresses came.
        if let Err(error) = set.and_then(|()| self.classes.set_own_addresses(&apart.addresses)) {
            tracing::warn!(target: "device", %error, "addresses of the other boxes");
        }
    }

    fn follow(&mut self, seen: &Observation) {
        self.failed_conditions.retain(|failed| failed.condition == ROOT_QDISC);
        let now = [seen.lan, seen.wan];
        for (before, now) in self.indices.iter_mut().zip(now) {
            *before = before.filter(|_| now.is_some());
        }
        if seen.failed_conditions.is_empty() {
            self.attach(now);
        }
    }

    fn failed_conditions(&self) -> &[FailedCondition] {
        &self.failed_conditions
    }

    fn rest(&self) -> Duration {
        let spacing = self.look_spacing();
        if spacing < REST_MIN { Duration::ZERO } else { spacing }
    }

    fn wake_for<'a>(&'a mut self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::new(self.classes.sampler.as_fd(), PollFlags::POLLIN));
    }

    fn ports(&self, hand_backs: u64) -> Vec<PortStatus> {
        // Reading a map fails only if the kernel took the privilege away.
        let counts = self.classes.classified().unwrap_or_default();
        let departed = self.classes.departed().unwrap_or_default();
        let lost = self.classes.sampler.lost_boundaries().unwrap_or_default();
        let named = |counts: &[(&str, u64)]| {
            counts.iter().map(|(name, count)| ((*name).into(), *count)).collect()
        };
        let from_lan = [
            ("classified", counts.bundles),
            ("passed_not_ip", counts.not_ip),
            ("passed_own", counts.own),
            ("passed_outside", counts.outside),
            ("passed_stale", counts.stale),
            ("dropped_full", counts.full),
            ("dropped_overlimit", counts.overlimit),
            ("handed_back", hand_backs),
        ];
        let at_wan = [
            ("dropped", self.standing.drops),
            ("sampled", departed.sampled),
            ("unsampled", departed.unsampled),
            ("unread", departed.unread),
            ("outside", departed.outside),
            ("sent_again", departed.again),
            ("missed", departed.missed),
            ("sampling_ns", departed.sampling_ns),
            ("boundaries_lost", lost),
        ];
        // Without a named device, packets come in at any device.
        let lan = self.lan.clone().unwrap_or_else(|| "any".into());
        let (mode, wan) = (self.forward.name().into(), self.wan.clone());
        vec![
            PortStatus { device: lan, mode, counters: named(&from_lan) },
            PortStatus { device: wan, mode: self.mode(), counters: named(&at_wan) },
        ]
    }
}
