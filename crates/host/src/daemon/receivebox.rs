//! The receivebox daemon: reports when boundary packets of bundles arrive.
//!
//! It only watches. The kernel forwards. An XDP program that passes everything counts and samples, and this
//! process turns the samples into reports. If it dies, no traffic is affected. On small machines a packet
//! socket replaces the program ([`run_by_socket`]).
//!
//! If the device's driver runs no XDP programs, the kernel merges packets before one sees them. Then a
//! program at tc counts and samples the packets that were merged. This needs a sendbox that builds version 2
//! of the sampling block.

mod change;
mod following;
mod packets;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::bundle::keys::KeyRing;
use forebay_core::bundle::receivebox::{Receivebox, Seen};
use forebay_core::bundle::scope::Scope;
use forebay_core::bundle::{BlockVersion, BlockVersions, BundleId, EpochSize, SamplingKey};
use forebay_core::record::BundleCounters;
use forebay_core::units::Timestamp;
#[cfg(feature = "bpf")]
use forebay_ebpf::Sampler;
use forebay_ebpf::{Boundary, SamplerBundle};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use self::following::{Apart, sampled_with};
use self::packets::PacketSampler;
use self::sampling::Sampling;
use super::conditions::{Devices, FailedCondition};
use super::config::{BundleConfig, Config, Role};
use super::keys::reader::Loaded;
use super::messages::{Admission, Messages, Taken};
use super::observer::{Observation, Observer};
use super::peer::News;
use super::reload::ReloadChange;
use super::schedule::Schedule;
use super::starting::{prepare, supervise};
use super::status::{BundleStatus, PeerStatus, PortStatus, Status, WatchingStatus};
use super::trace::{self, TraceRow, Tracer};
use super::waiting::{self, Begun};
use super::{DaemonError, apart, scope, unguessable};
use crate::offload::{self, Offload};
use crate::service::privileges;
use crate::service::privileges::Confinement;
use crate::service::supervisor::{Mailbox, Worker};
use crate::{clock, ethernet, log};

/// Longest sleep.
const IDLE: Duration = Duration::from_millis(100);
/// Spacing of counter rows in the trace.
const COUNTER_ROW: Duration = Duration::from_secs(1);

/// Clock of a receivebox, based on `CLOCK_MONOTONIC`. A testbed has clocks that disagree with the sendbox's.
pub trait BoxClock: Send + 'static {
    /// Called before every round.
    fn listen(&mut self) {}

    /// The time for timers at `now`.
    fn time(&self, now: Timestamp) -> Timestamp {
        now
    }

    /// The stamp of a packet that came at `at`.
    fn stamp(&self, at: Timestamp) -> Timestamp {
        at
    }

    /// Time from `now` until timers have advanced by `reading`.
    fn wait(&self, _now: Timestamp, reading: Duration) -> Duration {
        reading
    }
}

/// The machine's own clock.
struct Monotonic;

impl BoxClock for Monotonic {}

/// Runs the daemon until a signal stops it; returns its last state.
#[cfg(feature = "bpf")]
pub fn run(config: &Config) -> Result<Status, DaemonError> {
    run_by(Monotonic, config)
}

/// [`run`] with another clock, for a testbed: no option of the daemon leads here.
#[cfg(feature = "bpf")]
pub fn run_by(clock: impl BoxClock, config: &Config) -> Result<Status, DaemonError> {
    config.expect_role(Role::Receivebox)?;
    privileges::check().map_err(DaemonError::SetUp)?;
    run_with(clock, config, false, |devices, ifindex| Ok(Box::new(attach(devices, ifindex)?)))
}

/// Runs the daemon without a BPF program: it counts and samples packets from a packet socket.
pub fn run_by_socket(config: &Config) -> Result<Status, DaemonError> {
    config.expect_role(Role::Receivebox)?;
    privileges::check_by_socket().map_err(DaemonError::SetUp)?;
    run_with(Monotonic, config, true, |devices, _| Ok(Box::new(PacketSampler::open(&devices.wan)?)))
}

fn run_with(
    clock: impl BoxClock,
    config: &Config,
    by_socket: bool,
    watch: impl FnOnce(&Devices, u32) -> Result<Box<dyn Sampling>, DaemonError>,
) -> Result<Status, DaemonError> {
    let prepared = prepare(config)?;
    let loaded = match waiting::wait(&prepared, false, |config| config.by_socket = by_socket)? {
        Begun::With(loaded, _) => *loaded,
        Begun::Ended(status) => return Ok(*status),
    };
    let worker = ReceiveboxWorker::open(&loaded, &prepared.confinement, Box::new(clock), watch)?;
    supervise(loaded, prepared, worker).map_err(DaemonError::Failed)
}

/// One bundle.
struct Watch {
    config: BundleConfig,
    /// Name in rows.
    name: Arc<str>,
    receivebox: Receivebox,
    /// Current setting of the sampler.
    sampled_with: (SamplingKey, BlockVersion, EpochSize),
    /// Traffic that the sampler leaves out.
    apart: Apart,
    /// Log lines about the sendbox.
    news: News,
}

/// State that the worker thread owns.
struct ReceiveboxWorker {
    sampler: Box<dyn Sampling>,
    messages: Messages,
    /// Addresses that receive messages.
    own: Vec<IpAddr>,
    bundles: Vec<Watch>,
    by_id: BTreeMap<BundleId, usize>,
    schedule: Schedule,
    tracer: Tracer,
    trace_writer: trace::TraceWriter,
    confinement: Confinement,
    next_counter_row: Timestamp,
    observer: Observer,
    seen: Observation,
    /// The device that the sampler is attached to; none once it has gone, because a device that is created
    /// again may have its index.
    ifindex: Option<u32>,
    wan: String,
    realtime: bool,
    started: Timestamp,
    clock: Box<dyn BoxClock>,
    scratch: Vec<u8>,
}

impl ReceiveboxWorker {
    fn open(
        loaded: &Loaded,
        confinement: &Confinement,
        clock: Box<dyn BoxClock>,
        watch: impl FnOnce(&Devices, u32) -> Result<Box<dyn Sampling>, DaemonError>,
    ) -> Result<Self, DaemonError> {
        let Loaded { config, keys, .. } = loaded;
        let now = clock::now();
        let messages = Messages::bind(config).map_err(DaemonError::SetUp)?;
        let devices = Devices::of(config);
        devices.require()?;
        let observed = Observer::start(&devices, confinement.account.as_ref());
        let (observer, seen) = observed.map_err(DaemonError::SetUp)?;
        let ifindex = crate::port::ifindex(&config.wan)?;
        let mut sampler = watch(&devices, ifindex)?;
        sampler.set_messages(apart::of_receivebox(&config.listen))?;
        let versions = sampler.versions();
        let bundles: Vec<Watch> = config
            .bundles
            .iter()
            .zip(keys)
            .zip(scopes(config))
            .map(|((bundle, keys), scope)| Watch::new(bundle, keys, scope, versions, now))
            .collect();
        sampler.change(&[], bundles.iter().map(Watch::sampled).collect())?;
        let own: Vec<IpAddr> = config.listen.iter().map(SocketAddr::ip).collect();
        for bundle in &bundles {
            bundle.leave_out(sampler.as_mut(), &own, &seen.names)?;
        }
        let (tracer, trace_writer) =
            trace::start(config, confinement).map_err(DaemonError::Trace)?;
        Ok(Self {
            sampler,
            messages,
            own,
            by_id: by_id(&bundles),
            schedule: Schedule::new(bundles.len()),
            bundles,
            tracer,
            trace_writer,
            next_counter_row: now + COUNTER_ROW,
            observer,
            seen,
            ifindex: Some(ifindex),
            wan: config.wan.clone(),
            realtime: config.realtime,
            confinement: confinement.clone(),
            started: now,
            clock,
            scratch: Vec::new(),
        })
    }

    /// The time for the boxes' timers.
    fn now(&self) -> Timestamp {
        self.clock.time(clock::now())
    }

    fn round(&mut self) -> io::Result<()> {
        self.clock.listen();
        let now = self.now();
        self.follow_device()?;
        let Self { sampler, messages, bundles, by_id, schedule, seen, clock, .. } = self;
        sampler.consume(&mut |boundary| {
            // It may not be a sample of a packet as sent. The sendbox hears of no more packets and stops
            // shaping.
            if !seen.failed_conditions.is_empty() {
                return;
            }
            if let Some(&index) = by_id.get(&boundary.bundle) {
                bundles[index].on_boundary(now, clock.as_ref(), &boundary);
                schedule.set(index, now);
            }
        })?;
        messages.receive(|read_at, index, datagram, admission| {
            let taken = bundles[index].on_datagram(clock.time(read_at), datagram, admission);
            if taken != Taken::Rejected {
                schedule.set(index, now);
            }
            taken
        });
        let now = self.now();
        self.serve_due(now)?;
        if self.tracer.is_on() && now >= self.next_counter_row {
            self.next_counter_row = now + COUNTER_ROW;
            self.put_counters();
        }
        Ok(())
    }

    /// Adapts to changes of the device.
    fn follow_device(&mut self) -> io::Result<()> {
        self.observer.look_up(&self.messages.take_unknown());
        let Some(seen) = self.observer.latest()? else { return Ok(()) };
        if seen.names != self.seen.names {
            self.messages.set_names(&seen.names);
            for watch in &self.bundles {
                let left_out = watch.leave_out(self.sampler.as_mut(), &self.own, &seen.names);
                left_out.map_err(io::Error::other)?;
            }
        }
        match (&seen.failed_conditions[..], &self.seen.failed_conditions[..]) {
            (failed, before) if failed == before => {}
            ([], _) => tracing::info!(target: "traffic", "the receivebox reports packets again"),
            (failed, _) => {
                let all: Vec<String> = failed.iter().map(FailedCondition::to_string).collect();
                let all = all.join("; ");
                tracing::warn!(target: "traffic", "{all}: until then the receivebox reports no \
                                                   packets");
            }
        }
        self.seen = seen;
        let Some(ifindex) = self.seen.wan else {
            self.ifindex = None;
            return Ok(());
        };
        if self.ifindex == Some(ifindex) {
            return Ok(());
        }
        if !self.seen.failed_conditions.is_empty() {
            return Ok(());
        }
        match self.sampler.attach_anew(&self.wan, ifindex) {
            Ok(()) => {
                self.ifindex = Some(ifindex);
                tracing::info!(target: "device", "{} was made again: attached to it", self.wan);
            }
            Err(error) => self
                .seen
                .failed_conditions
                .push(FailedCondition::made_again(&self.wan, error.as_ref())),
        }
        Ok(())
    }

    fn serve_due(&mut self, now: Timestamp) -> io::Result<()> {
        while let Some(index) = self.schedule.pop(now) {
            let watch = &mut self.bundles[index];
            let followed = watch.follow_sendbox(self.sampler.as_mut(), &self.own, &self.seen.names);
            followed.map_err(io::Error::other)?;
            while watch.receivebox.poll(now, &mut self.scratch) {
                self.messages.send(index, &self.scratch);
            }
            while let Some((to, nonce)) = self.messages.challenge_due(index) {
                watch.receivebox.challenge_at(nonce, &mut self.scratch);
                self.messages.send_to(to, &self.scratch);
            }
            watch.say_news();
            // A timer in the past would make the loop spin: all due work was just done.
            let next = watch.receivebox.next_timer().max(now + Duration::from_nanos(1));
            self.schedule.set(index, next);
        }
        self.messages.flush();
        Ok(())
    }

    fn sleep(&self, mailbox: &Mailbox<Self>) -> io::Result<()> {
        let now = self.now();
        let due = self.schedule.next().map_or(IDLE, |at| at.saturating_since(now));
        let due = self.clock.wait(clock::now(), due);
        if due.is_zero() {
            return Ok(());
        }
        let rest = self.sampler.rest();
        let watched = Some(self.sampler.as_fd()).filter(|_| rest.is_zero());
        let due = if rest.is_zero() { due } else { due.min(rest) };
        let timeout = TimeSpec::from(due.min(IDLE));
        let own = watched.into_iter().chain([mailbox.as_fd(), self.observer.as_fd()]);
        let mut fds: Vec<_> = own.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        self.messages.wake_for(&mut fds);
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// False: stop.
    fn obey(&mut self, mailbox: &Mailbox<Self>) -> bool {
        mailbox.obey(self, |worker| worker.status(), Self::change)
    }

    /// Notifies the sendbox that this bundle ends.
    fn say_farewell(&mut self, now: Timestamp, place: usize) {
        let watch = &mut self.bundles[place];
        watch.receivebox.stop();
        while watch.receivebox.poll(now, &mut self.scratch) {
            self.messages.send(place, &self.scratch);
        }
    }

    fn put_counters(&self) {
        for watch in &self.bundles {
            let seen = self.sampler.counters(watch.config.id);
            let row = BundleCounters {
                packets_sent: seen.packets,
                bytes_sent: seen.bytes.as_u64(),
                message_bytes: watch.receivebox.message_bytes().as_u64(),
                ..BundleCounters::default()
            };
            self.tracer.put(&watch.name, TraceRow::Counters(row));
        }
    }

    fn status(&self) -> Status {
        let now = self.now();
        let (name, lost) = self.sampler.lost();
        let port = PortStatus {
            device: self.wan.clone(),
            mode: self.sampler.mode().into(),
            counters: vec![(name.into(), lost)],
        };
        Status {
            at_ns: clock::now().as_nanos(),
            uptime_ns: now.saturating_since(self.started).as_nanos() as u64,
            realtime: self.realtime,
            failed_conditions: self.seen.failed_conditions.clone(),
            ports: vec![port],
            messages: self
                .messages
                .counters(self.bundles.iter().map(|watch| watch.receivebox.rejects())),
            trace_rows_lost: self.tracer.lost(),
            log_lines_lost: log::lost(),
            bundles: (0..self.bundles.len()).map(|it| self.bundle_status(it, now)).collect(),
            ..Status::new(Role::Receivebox, false)
        }
    }

    fn bundle_status(&self, place: usize, now: Timestamp) -> BundleStatus {
        let watch = &self.bundles[place];
        let seen = self.sampler.counters(watch.config.id);
        let heard = watch.receivebox.heard_at();
        let counters = watch.receivebox.counters();
        let peer = watch.receivebox.peer();
        BundleStatus {
            name: watch.config.name.clone(),
            id: watch.config.id.0,
            peer: PeerStatus {
                state: peer.liveness().name().into(),
                doing: peer.state().map(|state| state.name().into()),
                heard_ns: heard.map(|at| now.saturating_since(at).as_nanos() as u64),
                ..self.messages.peer(place)
            },
            epoch_packets: watch.receivebox.epoch_size().map_or(0, EpochSize::packets),
            packets: seen.packets,
            bytes: seen.bytes.as_u64(),
            differences: watch
                .receivebox
                .differences()
                .map(|differences| scope::sentences(Role::Receivebox, differences)),
            shaping: None,
            watching: Some(WatchingStatus {
                alarm: watch.receivebox.alarm().map(Into::into),
                reports: counters.reports,
                datagrams: counters.report_datagrams,
                dropped: counters.dropped,
                without_sendbox: counters.without_sendbox,
            }),
        }
    }
}

impl Worker for ReceiveboxWorker {
    type Status = Status;
    type Change = ReloadChange;
    fn run(mut self, mailbox: Mailbox<Self>) -> io::Result<Status> {
        privileges::cut_timer_slack();
        self.realtime = self.realtime && privileges::go_realtime();
        self.confinement.confine(self.sampler.task())?;
        while self.obey(&mailbox) {
            self.round()?;
            self.sleep(&mailbox)?;
        }
        let now = self.now();
        (0..self.bundles.len()).for_each(|place| self.say_farewell(now, place));
        let status = self.status();
        self.put_counters();
        drop(std::mem::take(&mut self.tracer));
        self.trace_writer.finish()?;
        Ok(status)
    }
}

/// Packets that a receivebox counts to its bundles.
fn scopes(config: &Config) -> Vec<Scope> {
    let left_out = config.listen.iter().map(SocketAddr::ip).collect();
    scope::scopes(config.bundles.iter(), &left_out, &BTreeSet::new())
}

/// Indices of the bundles by their numbers.
fn by_id(bundles: &[Watch]) -> BTreeMap<BundleId, usize> {
    bundles.iter().enumerate().map(|(place, watch)| (watch.config.id, place)).collect()
}

/// Watches a device without changing whether it merges packets.
#[cfg(feature = "bpf")]
fn attach(devices: &Devices, ifindex: u32) -> Result<Sampler, DaemonError> {
    let wan = &devices.wan;
    if ethernet::is_bare(wan).map_err(DaemonError::SetUp)? {
        // An XDP program would expect Ethernet headers.
        return Ok(Sampler::attach_at_tc(ifindex)?);
    }
    let is_merging = offload::is_on(wan, Offload::Gro)?;
    let sampler = Sampler::attach(ifindex)?;
    // The kernel switches GRO on when a program is attached to a veth (veth_enable_xdp): merged packets would
    // reach the hosts in another form than they were sent.
    if !is_merging && offload::is_on(wan, Offload::Gro)? {
        offload::disable(wan, Offload::Gro)?;
    }
    // Only now can merging before a generic program be detected: nothing else has changed.
    let Err(failed) = devices.require() else { return Ok(sampler) };
    drop(sampler);
    // On a kernel without tcx the condition fails.
    Sampler::attach_at_tc(ifindex).map_err(|error| match error {
        forebay_ebpf::Error::Kernel { .. } | forebay_ebpf::Error::Attach { .. } => failed.into(),
        other => other.into(),
    })
}

impl Watch {
    fn new(
        config: &BundleConfig,
        keys: &KeyRing,
        scope: Scope,
        versions: BlockVersions,
        now: Timestamp,
    ) -> Self {
        let mut receivebox = Receivebox::new(config.id, keys, unguessable(), unguessable(), now);
        // Behind NAT packets have other addresses at the sendbox.
        if config.nat.is_none() {
            receivebox.set_scope(now, scope);
        }
        receivebox.set_versions(now, versions.with_nat(config.nat));
        receivebox.offer_rest(now);
        receivebox.offer_counting(now);
        receivebox.offer_probes(now);
        Self {
            config: config.clone(),
            name: config.name.as_str().into(),
            sampled_with: sampled_with(&receivebox),
            apart: Apart::default(),
            news: News::default(),
            receivebox,
        }
    }

    /// The bundle, as the sampler needs it.
    fn sampled(&self) -> (BundleId, SamplerBundle) {
        (self.config.id, self.sampling(&self.config))
    }

    /// Sampler settings for the bundle under this configuration.
    fn sampling(&self, config: &BundleConfig) -> SamplerBundle {
        let (key, version, epoch_size) = sampled_with(&self.receivebox);
        let (source, destination) = (config.from.clone(), config.to.clone());
        SamplerBundle { source, destination, key, epoch_size, version }
    }

    fn on_boundary(&mut self, now: Timestamp, clock: &dyn BoxClock, boundary: &Boundary) {
        let report = &boundary.report;
        let seen = Seen {
            hash: report.hash,
            received_at: clock.stamp(report.received_at),
            received_bytes: report.received_bytes,
            received_packets: report.received_packets,
            received_ce: report.received_ce,
        };
        self.receivebox.on_boundary(now, &seen);
    }

    /// Whether the datagram was accepted.
    fn on_datagram(&mut self, now: Timestamp, datagram: &[u8], admission: Admission) -> Taken {
        if admission == Admission::Verify {
            return Taken::verified(self.receivebox.verifies(datagram));
        }
        let opened = self.receivebox.on_datagram(now, datagram, &mut unguessable);
        self.say_news();
        let is_heard = self.receivebox.heard_at() == Some(now);
        Taken::of(opened, is_heard, self.receivebox.take_answered())
    }

    fn say_news(&mut self) {
        let now = clock::now();
        loop {
            let event = self.receivebox.take_event();
            let (name, differences) = (&self.config.name, self.receivebox.differences());
            self.news.say(now, event, Role::Receivebox, name, differences);
            if event.is_none() {
                return;
            }
        }
    }
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use forebay_core::bundle::BlockVersion;
    use forebay_ebpf::{SamplerPlace, XdpMode};

    use super::*;
    use crate::daemon::config::DatapathKind;
    use crate::port::tests::{on_a_veth_pair, run};

    fn watch(device: &str) -> Result<Sampler, DaemonError> {
        let devices = Devices::bridged("none", device, DatapathKind::User);
        let devices = Devices { role: Role::Receivebox, lan: None, ..devices };
        devices.require()?;
        attach(&devices, crate::port::ifindex(device)?)
    }

    #[test]
    fn watched_device_keeps_its_offloads() {
        on_a_veth_pair(|| {
            run("ethtool -K left rxvlan off");
            for gro in ["off", "on"] {
                run(&format!("ethtool -K left gro {gro}"));
                let before = offload::active("left").unwrap();
                assert!(before.contains(&Offload::Tso) && before.contains(&Offload::TxChecksum));
                let sampler = watch("left").unwrap();
                assert_eq!(sampler.place(), Some(SamplerPlace::Xdp(XdpMode::Native)));
                assert_eq!(offload::active("left").unwrap(), before, "gro {gro}");
                drop(sampler);
            }
        });
    }

    #[test]
    fn packet_changing_settings_are_refused_with_their_fix() {
        on_a_veth_pair(|| {
            let refused = |device: &str| watch(device).unwrap_err().to_string();
            let error = refused("left");
            assert!(error.ends_with("ethtool -K left rxvlan off"), "{error}");
        });
    }

    #[test]
    fn device_without_ethernet_headers_is_watched_at_tc() {
        if forebay_skips::skip_without(forebay_skips::Need::Tcx) {
            return;
        }
        on_a_veth_pair(|| {
            run("ip tuntap add dev tun0 mode tun");
            let sampler = watch("tun0").unwrap();
            assert_eq!(sampler.place(), Some(SamplerPlace::Tcx));
            assert_eq!(Sampling::versions(&sampler), BlockVersions::of(BlockVersion::V2));
        });
    }

    #[test]
    fn device_with_merged_packets_is_watched_at_tc() {
        on_a_veth_pair(|| {
            // The kernel itself runs an XDP program of this device.
            run("ip link add br0 type bridge");
            run("ethtool -K br0 gro off");
            let place = |device| watch(device).unwrap().place();
            assert_eq!(place("br0"), Some(SamplerPlace::Xdp(XdpMode::Generic)));
            run("ethtool -K br0 gro on");
            if !forebay_skips::Need::Tcx.is_met() {
                let error = watch("br0").unwrap_err().to_string();
                let line = "ethtool -K br0 gro off";
                assert!(error.contains("no XDP program") && error.contains(line), "{error}");
                return;
            }
            let sampler = watch("br0").unwrap();
            assert_eq!(sampler.place(), Some(SamplerPlace::Tcx));
            assert_eq!(Sampling::versions(&sampler), BlockVersions::of(BlockVersion::V2));
            // The program goes with its owner.
            drop(sampler);
            let ifindex = crate::port::ifindex("br0").unwrap();
            assert!(!forebay_ebpf::has_tcx(ifindex, false).unwrap());
        });
    }
}
