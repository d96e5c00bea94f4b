//! The sendbox daemon: a bump in the wire, or in the path of a router. It queues, schedules and paces the
//! packets of bundles.
//!
//! One thread does all the work, except that each receive queue may have a thread of its own to take frames
//! in (`xdp.threads`). The thread drives a `datapath`, which carries the packets. It reacts to the message
//! socket, the next departure and the reports of the [`observer`](super::observer). It never touches a disk
//! and never waits for another thread.
//!
//! **Failing open.** The bridge, or the machine's route, forwards every packet that the box does not take.
//! The box takes a packet only while its heartbeat is fresh (`STALE_AFTER`). The box stops beating while
//! packets do not move, while it gets too little processor time (`progress`), or while a condition of its
//! devices fails ([`conditions`](super::conditions)). At a clean stop it beats only until its queues are
//! empty. At a hand-back, queued packets leave at once. If the MTU allows frames that the box could not
//! carry, the box hands all traffic back, since those frames would overtake short ones in its queues.
//!
//! If a peer is silent (`bundle::monitor` of core), or lives but reports nothing, the sendbox leaves the
//! bundle unshaped, never slower.
//!
//! Once it runs it calls ppoll(2), clock_nanosleep(2), clock_gettime(2), sendto(2), recvfrom(2), read(2),
//! futex(2) and bpf(2) (maps). Its datapath adds more.

mod bundle;
mod change;
mod datapath;
mod decisions;
mod meter;
mod progress;
mod starvation;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use forebay_core::bundle::Overhead;
use forebay_core::bundle::keys::KeyRing;
use forebay_core::bundle::uplink::Uplink;
use forebay_core::units::Timestamp;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use self::bundle::{Bundle, Mode, Stopping};
use self::datapath::{BATCH, Datapath, STALE_AFTER, WAIT_MAX};
use self::progress::{Cause, ForwarderChange, Progress};
use super::apart::Apart;
use super::conditions::{Devices, FailedCondition};
use super::config::{BundleConfig, Config, Role, Shaping};
use super::keys::reader::Loaded;
use super::messages::{Messages, Taken};
use super::observer::{Observation, Observer};
use super::reload;
use super::schedule::Schedule;
use super::starting::{Prepared, prepare, supervise};
use super::status::Status;
use super::trace::{self, Tracer};
use super::waiting::{self, Begun};
use super::{DaemonError, attempt, overhead_of, scope};
use crate::service::privileges;
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;
use crate::service::supervisor::{Mailbox, Worker};
use crate::{clock, foreign_python, log, offload};

/// Longest time between two rounds while packets leave at a rate. A wake-up costs more CPU time than a
/// packet, and at 96 Mbit/s each packet would need two: one when it comes and one when it leaves. Packets are
/// late by at most this time. The rate does not fall, since the shaper catches up (`qdisc/shaper.rs` of
/// core). 250 us are two full frames at 96 Mbit/s, a burst that a bottleneck hardly feels.
const QUANTUM: Duration = Duration::from_micros(250);
/// Shortest sleep otherwise: work that is due within this time is done together with the current work.
const COALESCE: Duration = Duration::from_micros(50);
/// Longest sleep: a small part of the patience of the heartbeat.
const IDLE: Duration = Duration::from_millis(20);
/// Retry interval of a blocked datapath if poll(2) reports nothing. Below 24 Gbit/s of full frames its ring
/// is not empty after this time.
const BLOCKED_RETRY: Duration = Duration::from_millis(1);
/// At a clean stop the queues are paced for this long, ...
const DRAIN: Duration = Duration::from_secs(1);
/// ... then they leave at once for this long, with all packets captured by then.
const RUSH: Duration = Duration::from_millis(500);
/// Effect of an observer that is silent.
const UNWATCHED: &str = "no process watches the devices: `forebay observe` is stopped or hangs";

/// Runs the daemon until a signal stops it, and returns its last state. If `python` names a file, its
/// algorithm controls all bundles and overrides the configuration, also after a reload.
pub fn run(config: &Config, dry_run: bool, python: Option<&Path>) -> Result<Status, DaemonError> {
    config.expect_role(Role::Sendbox)?;
    privileges::check().map_err(DaemonError::SetUp)?;
    let mut prepared = prepare(config)?;
    prepared.reader.steer_by(python);
    let settled = RefCell::new(None);
    let settle = |config: &mut Config| {
        let (datapath, why) = attempt::settled(config);
        if let Some(why) = &why {
            tracing::info!(target: "datapath", "box.datapath = \"auto\" is {why}");
        }
        config.datapath = datapath;
        *settled.borrow_mut() = why;
    };
    let (loaded, _claim) = match waiting::wait(&prepared, dry_run, settle)? {
        Begun::With(loaded, claim) => (*loaded, claim),
        Begun::Ended(status) => return Ok(*status),
    };
    let devices = Devices::of(&loaded.config);
    let settled = settled.into_inner();
    datapath::run(Start { loaded, prepared, devices, dry_run, settled })
}

/// A box that is about to open its datapath.
struct Start {
    loaded: Loaded,
    prepared: Prepared,
    devices: Devices,
    dry_run: bool,
    /// The settings that were left to the box, with the reason for each choice.
    settled: Option<String>,
}

/// Runs a worker with the datapath that `open` opens. `open` gets the most bytes of a frame, the first
/// observation of the devices and a random seed.
fn serve<D: Datapath>(
    Start { loaded, prepared, devices, dry_run, settled }: Start,
    open: impl FnOnce(&Config, usize, &Observation, u64) -> Result<D, DaemonError>,
) -> Result<Status, DaemonError> {
    let Loaded { config, keys, .. } = &loaded;
    // First of all: once privileges are dropped, no program can be started.
    for bundle in &config.bundles {
        let started = foreign_python::named::start(&shaping(bundle).cc);
        started.map_err(|error| DaemonError::Spec(bundle.name.clone(), error))?;
    }
    devices.require()?;
    let room_bytes = devices.frame_bytes().map_err(DaemonError::SetUp)?;
    let queues = devices.ports().0.as_deref().map(offload::receive_queues).transpose();
    let queues = queues.map_err(DaemonError::SetUp)?;
    // Before a program is attached, and with all privileges.
    let devices = Devices { room_bytes: Some(room_bytes), queues, ..devices };
    let confinement = &prepared.confinement;
    let observed =
        Observer::start(&devices, confinement.account.as_ref()).map_err(DaemonError::SetUp)?;
    let datapath = |seen: &Observation, seed| open(config, room_bytes, seen, seed);
    let mut worker = SendboxWorker::open(config, keys, confinement, dry_run, observed, datapath)?;
    worker.settled = settled;
    supervise(loaded, prepared, worker).map_err(DaemonError::Failed)
}

/// The shaping section of a sendbox's bundle.
fn shaping(bundle: &BundleConfig) -> &Shaping {
    bundle.shaping.as_ref().expect("a sendbox's bundles are shaped")
}

/// A new bundle at this index, with these keys.
fn new_bundle(
    index: usize,
    config: &BundleConfig,
    keys: &KeyRing,
    seed: u64,
    mode: Mode,
) -> Result<Bundle, DaemonError> {
    Bundle::new(index, config, shaping(config), keys, seed, mode)
        .map_err(|error| DaemonError::Spec(config.name.clone(), error))
}

/// State that the packet thread owns.
struct SendboxWorker<D> {
    datapath: D,
    /// The settings that the configuration left to the box, with the reason for each choice.
    settled: Option<String>,
    /// The bundles also carry packets that the machine itself sends.
    takes_own: bool,
    messages: Messages,
    bundles: Vec<Bundle>,
    /// The uplink that the bundles share, with its members in the order of the configuration.
    uplink: Option<Uplink>,
    schedule: Schedule,
    observer: Observer,
    /// The last observation of the devices.
    seen: Observation,
    /// Local addresses of the box's messages.
    listen: Vec<SocketAddr>,
    /// Traffic that the datapath leaves out of the bundles.
    apart: Apart,
    progress: Progress,
    realtime: bool,
    dry_run: bool,
    /// Bytes that each packet gains below the WAN port.
    overhead: Overhead,
    /// Seed of all random choices that need not be secret.
    seed: u64,
    started: Timestamp,
    tracer: Tracer,
    trace_writer: trace::TraceWriter,
    confinement: Confinement,
}

impl<D: Datapath> SendboxWorker<D> {
    /// A worker that has not begun. `datapath` opens its datapath, with the first observation of the devices
    /// and a random seed. It is called after all checks that touch no packets.
    fn open(
        config: &Config,
        keys: &[KeyRing],
        confinement: &Confinement,
        dry_run: bool,
        (observer, seen): (Observer, Observation),
        datapath: impl FnOnce(&Observation, u64) -> Result<D, DaemonError>,
    ) -> Result<Self, DaemonError> {
        let seed = getrandom::u64().map_err(|error| DaemonError::SetUp(io::Error::other(error)))?;
        let is_traced = config.trace.is_some();
        let overhead = overhead_of(config);
        let mode = Mode { dry_run, is_traced, versions: D::VERSIONS, overhead };
        let all = config.bundles.iter().zip(keys).enumerate();
        let bundles =
            all.map(|(place, (bundle, keys))| new_bundle(place, bundle, keys, seed, mode));
        let bundles = bundles.collect::<Result<Vec<Bundle>, DaemonError>>()?;
        let messages = Messages::bind(config).map_err(DaemonError::SetUp)?;
        let datapath = datapath(&seen, seed)?;
        let (tracer, trace_writer) =
            trace::start(config, confinement).map_err(DaemonError::Trace)?;
        let mut worker = Self {
            datapath,
            settled: None,
            takes_own: config.own,
            messages,
            schedule: Schedule::new(bundles.len()),
            bundles,
            uplink: config.uplink.as_ref().map(|uplink| {
                Uplink::new(&uplink.shares).expect("a configuration's shares are checked")
            }),
            observer,
            seen,
            listen: config.listen.clone(),
            apart: Apart::default(),
            progress: Progress::new(STALE_AFTER),
            realtime: config.realtime,
            dry_run,
            overhead,
            seed,
            started: clock::now(),
            tracer,
            trace_writer,
            confinement: confinement.clone(),
        };
        worker.leave_out(worker.started);
        worker.look_for_mtu(worker.started);
        worker.share_uplink(worker.started, false);
        Ok(worker)
    }

    /// Passes to each bundle the scope of packets that the box takes into it.
    fn set_scopes(&mut self, now: Timestamp) {
        let own = &self.seen.addresses;
        let left_out = own | &self.apart.addresses;
        let none = BTreeSet::new();
        let not_taken = if self.takes_own { &none } else { own };
        let scopes = scope::scopes(self.bundles.iter().map(Bundle::config), &left_out, not_taken);
        for (bundle, scope) in self.bundles.iter_mut().zip(scopes) {
            bundle.set_scope(now, scope);
        }
        self.serve_all(now);
    }

    /// Has the datapath leave the boxes' own traffic out of the bundles, where it belongs to none, and
    /// updates the scopes that the receiveboxes get.
    fn leave_out(&mut self, now: Timestamp) {
        let bundles = self.bundles.iter().enumerate().map(|(place, bundle)| {
            (bundle.config(), bundle.counts_boxes(), self.messages.heard_from(place))
        });
        self.apart = Apart::of(&self.listen, bundles, &self.seen.names);
        self.datapath.leave_out(&self.apart);
        self.set_scopes(now);
    }

    /// Has the bundles probe the path MTU, up to the length of packets that leave.
    fn look_for_mtu(&mut self, now: Timestamp) {
        let Some(mtu) = self.seen.mtu else { return };
        let packet_bytes = u16::try_from(mtu).unwrap_or(u16::MAX);
        for bundle in &mut self.bundles {
            bundle.look_for_mtu(now, packet_bytes, &self.seen.names);
        }
    }

    /// Schedules all bundles to be served next.
    fn serve_all(&mut self, now: Timestamp) {
        (0..self.bundles.len()).for_each(|bundle| self.schedule.set(bundle, now));
    }

    /// Runs one round of the loop, and beats if packets move.
    fn round(&mut self) -> io::Result<usize> {
        let now = clock::now();
        self.expire(now);
        self.follow_devices(now)?;
        self.judge_progress(now);
        let received = self.work(now)?;
        if self.progress.is_made() {
            self.datapath.beat();
        }
        Ok(received)
    }

    /// Drops the queued packets if this process did not run for longer than they may wait.
    fn expire(&mut self, now: Timestamp) {
        let pause = self.progress.since_turn(now);
        if pause <= WAIT_MAX {
            return;
        }
        let Self { datapath, bundles, messages, .. } = self;
        let Some(packets) = datapath.expire(now, bundles) else { return };
        messages.expire();
        let pause_s = pause.as_secs_f64();
        tracing::warn!(
            target: "expired",
            packets,
            "the box did not run for {pause_s:.1} s: it drops the packets in its queues and rings"
        );
        self.serve_all(now);
    }

    /// Adapts to changes of the devices.
    fn follow_devices(&mut self, now: Timestamp) -> io::Result<()> {
        self.observer.look_up(&self.messages.take_unknown());
        let Some(mut seen) = self.observer.latest()? else { return Ok(()) };
        seen.keep_names(self.bundles.iter().map(|bundle| &bundle.config().peer));
        let network = |of: &Observation| (of.addresses.clone(), of.names.clone(), of.mtu);
        let is_other_network = network(&seen) != network(&self.seen);
        self.seen = seen;
        self.messages.set_names(&self.seen.names);
        self.datapath.follow(&self.seen);
        if is_other_network {
            self.leave_out(now);
            self.look_for_mtu(now);
        }
        Ok(())
    }

    /// All failed conditions of the devices.
    fn failed_conditions(&self) -> impl Iterator<Item = &FailedCondition> {
        self.seen.failed_conditions.iter().chain(self.datapath.failed_conditions())
    }

    /// Leaves the traffic to the kernel while packets do not move, or while a condition fails.
    fn judge_progress(&mut self, now: Timestamp) {
        let health = self.datapath.health();
        let reason = self.failed_conditions().next().map(FailedCondition::reason);
        let reason = reason.or_else(|| self.observer.is_silent(now).then_some(UNWATCHED));
        if D::TASK == Task::Classes {
            // Packets in the kernel do not wait for this thread.
            self.progress.excuse(now);
        }
        match self.progress.judge(now, health, reason) {
            Some(ForwarderChange::HandBack(cause)) => {
                self.datapath.hand_back();
                self.say_handed_back(cause);
                self.set_handed_back(now, Some(cause));
            }
            Some(ForwarderChange::TakeAgain) => {
                tracing::info!(target: "traffic", "the sendbox takes packets of bundles again");
                self.set_handed_back(now, None);
            }
            None => {}
        }
    }

    fn say_handed_back(&self, cause: Cause) {
        match cause {
            Cause::Stall(stall) => {
                let (reason, least) = (stall.reason(), self.progress.recovery().as_secs());
                tracing::warn!(
                    target: "traffic",
                    "{reason}: the kernel forwards new packets, unshaped, for {least} s"
                );
            }
            Cause::FailedCondition(reason) => {
                let all: Vec<String> = self.failed_conditions().map(ToString::to_string).collect();
                let all = if all.is_empty() { reason.into() } else { all.join("; ") };
                tracing::warn!(
                    target: "traffic",
                    "{all}: until then the kernel forwards packets, unshaped"
                );
            }
        }
    }

    /// Records that the kernel forwards new packets, for this reason; `None`: the bundles carry them again.
    fn set_handed_back(&mut self, now: Timestamp, cause: Option<Cause>) {
        for bundle in &mut self.bundles {
            bundle.set_handed_back(now, cause.map(Cause::reason), &mut self.datapath);
        }
        self.serve_all(now);
    }

    /// Handles received packets, messages and due bundles; returns the number of packets received.
    fn work(&mut self, now: Timestamp) -> io::Result<usize> {
        let Self { datapath, messages, bundles, schedule, tracer, .. } = self;
        let received = datapath.receive(now, bundles, schedule)?;
        let mut counts_other = false;
        messages.receive(|read_at, index, datagram, admission| {
            let counted = bundles[index].counts_boxes();
            let taken = bundles[index].on_datagram(read_at, datagram, admission, tracer);
            counts_other |= bundles[index].counts_boxes() != counted;
            if taken != Taken::Rejected {
                schedule.set(index, now);
            }
            taken
        });
        if messages.take_moved() || counts_other {
            self.leave_out(now);
        }
        let Self { datapath, messages, bundles, uplink, schedule, tracer, .. } = self;
        let now = clock::now();
        let mut is_urgent = false;
        schedule.round(now, |index| {
            let bundle = &mut bundles[index];
            let share = uplink.as_ref().map(|uplink| uplink.ceiling(index));
            bundle.set_ceiling(now, share, datapath);
            let next = bundle.serve(now, datapath, messages, tracer);
            if let Some(uplink) = uplink {
                is_urgent |= uplink.on_queue(index, &bundle.load(datapath));
            }
            next
        });
        datapath.flush()?;
        messages.flush();
        self.share_uplink(now, is_urgent);
        Ok(received)
    }

    /// Divides the uplink among the bundles, if that is due or urgent, and enforces their shares.
    fn share_uplink(&mut self, now: Timestamp, is_urgent: bool) {
        let Self { datapath, bundles, uplink, schedule, .. } = self;
        let Some(uplink) = uplink else { return };
        if uplink.next_timer() <= now {
            uplink.on_tick(now, bundles.iter().map(|bundle| bundle.load(datapath)));
        } else if is_urgent {
            uplink.divide();
        } else {
            return;
        }
        for (index, bundle) in bundles.iter_mut().enumerate() {
            // A bundle with nothing to send gets its share when it is served next.
            if bundle.is_quiet(now, datapath.backlog(index)) {
                continue;
            }
            if bundle.set_ceiling(now, Some(uplink.ceiling(index)), datapath) {
                schedule.set(index, now);
            }
        }
    }

    /// How long queued packets leave one after the other, at most [`QUANTUM`]; `None`: no packet leaves that
    /// soon, or hardly any.
    fn pacing(&self, now: Timestamp) -> Option<Duration> {
        let waiting = |bundle: usize| {
            let rate = self.bundles[bundle].shaped_to()?;
            self.datapath.backlog(bundle).bytes.time_at(rate)
        };
        let longest = self.schedule.due_by(now + QUANTUM).filter_map(waiting).max()?;
        (longest >= COALESCE).then(|| longest.min(QUANTUM))
    }

    fn sleep(&mut self, mailbox: &Mailbox<Self>) -> io::Result<()> {
        let division = self.uplink.as_ref().map(Uplink::next_timer);
        let next = self.schedule.next().into_iter().chain(division).min();
        let due_at = |now: Timestamp| next.map_or(IDLE, |at| at.saturating_since(now));
        let now = clock::now();
        let due = due_at(now);
        // A blocked datapath: due bundles wait for it, and the loop must not spin meanwhile.
        let is_blocked = self.datapath.health().is_blocked;
        if due.is_zero() && !is_blocked {
            return Ok(());
        }
        if !is_blocked && self.datapath.busy_poll(now + due.min(IDLE)) {
            return Ok(());
        }
        // The busy poll took time.
        let now = clock::now();
        let due = due_at(now);
        if due.is_zero() && !is_blocked {
            return Ok(());
        }
        if let Some(time) = self.pacing(now).filter(|_| !is_blocked) {
            // New packets wait in the ring meanwhile and need no wake-up.
            std::thread::sleep(time);
            return Ok(());
        }
        let rest = self.datapath.rest().min(due);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        let shortest = if is_blocked { BLOCKED_RETRY } else { COALESCE };
        let timeout = TimeSpec::from((due - rest).clamp(shortest, IDLE));
        let own = [mailbox.as_fd(), self.observer.as_fd()];
        let mut fds = own.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).to_vec();
        self.messages.wake_for(&mut fds);
        self.datapath.wake_for(&mut fds);
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// False: stop.
    fn obey(&mut self, mailbox: &Mailbox<Self>) -> bool {
        mailbox.obey(self, |worker| worker.status(), Self::change)
    }

    /// Leaves the traffic to the kernel without losing captured packets, and nearly in order.
    ///
    /// Until the queues are empty the box works as usual: it captures new packets, and they leave behind
    /// queued ones. Under lasting load the queues never empty; then the rest leaves at once. Only afterwards
    /// does the kernel forward. Its packets then overtake captured packets that the box has not read yet. In
    /// the LAN's ring these are the packets of one round, mostly less than 100 us, and of the current receive
    /// poll (NAPI, at most 64 packets). More packets are overtaken only if the WAN did not take the queues in
    /// [`RUSH`].
    fn drain(&mut self, mailbox: &Mailbox<Self>) -> io::Result<()> {
        for (how, patience) in [(Stopping::Paced, DRAIN), (Stopping::AtOnce, RUSH)] {
            self.stop(how);
            self.run_until_empty(mailbox, patience)?;
        }
        self.datapath.hand_back();
        self.send_the_rest(mailbox)
    }

    fn stop(&mut self, how: Stopping) {
        let now = clock::now();
        for bundle in &mut self.bundles {
            bundle.stop(now, how, &mut self.datapath);
        }
        self.serve_all(now);
    }

    /// Number of packets in all queues.
    fn backlog(&self) -> u64 {
        (0..self.bundles.len()).map(|bundle| self.datapath.backlog(bundle).packets).sum()
    }

    fn run_until_empty(&mut self, mailbox: &Mailbox<Self>, patience: Duration) -> io::Result<()> {
        let deadline = clock::now() + patience;
        while clock::now() < deadline {
            // Less than a batch means that no packet waits to be taken in.
            let is_all = self.round()? < BATCH;
            if is_all && self.backlog() == 0 {
                break;
            }
            // A second request to stop changes nothing.
            self.obey(mailbox);
            if is_all {
                self.sleep(mailbox)?;
            }
        }
        Ok(())
    }

    /// Sends the packets captured up to the last beat. All have come in once nothing came for [`IDLE`]: no
    /// receive poll of the kernel takes that long.
    fn send_the_rest(&mut self, mailbox: &Mailbox<Self>) -> io::Result<()> {
        let started = clock::now();
        let mut busy_at = started;
        loop {
            let now = clock::now();
            let received = self.work(now)?;
            let left = self.backlog() + self.datapath.pending();
            if received > 0 || left > 0 {
                busy_at = now;
            }
            if now.saturating_since(busy_at) >= IDLE {
                return Ok(());
            }
            if now.saturating_since(started) >= RUSH {
                tracing::warn!(
                    target: "stopping",
                    packets = left,
                    "stopped before the WAN port took all packets"
                );
                return Ok(());
            }
            self.obey(mailbox);
            self.sleep(mailbox)?;
        }
    }

    fn status(&self) -> Status {
        let (now, uplink, count) = (clock::now(), self.uplink.as_ref(), self.bundles.len());
        let status = |(place, bundle): (usize, &Bundle)| {
            bundle.status(now, &self.datapath, uplink, count, self.messages.peer(place))
        };
        Status {
            at_ns: now.as_nanos(),
            uptime_ns: now.saturating_since(self.started).as_nanos() as u64,
            realtime: self.realtime,
            failed_conditions: self.failed_conditions().cloned().collect(),
            datapath: self.settled.clone(),
            overhead_bytes: self.overhead.bytes,
            routing: self.seen.routing.clone(),
            ports: self.datapath.ports(self.progress.hand_backs()),
            messages: self.messages.counters(self.bundles.iter().map(Bundle::rejects)),
            trace_rows_lost: self.tracer.lost(),
            log_lines_lost: log::lost(),
            uplink_bps: uplink.map(|uplink| uplink.rate().as_bits_per_sec()),
            bundles: self.bundles.iter().enumerate().map(status).collect(),
            ..Status::new(Role::Sendbox, self.dry_run)
        }
    }
}

impl<D: Datapath> Worker for SendboxWorker<D> {
    type Status = Status;
    type Change = reload::ReloadChange;
    fn run(mut self, mailbox: Mailbox<Self>) -> io::Result<Status> {
        privileges::cut_timer_slack();
        self.realtime = self.realtime && privileges::go_realtime();
        self.confinement.confine(D::TASK)?;
        while self.obey(&mailbox) {
            // A full batch means that packets are left in the ring.
            if self.round()? < BATCH {
                self.sleep(&mailbox)?;
            }
        }
        self.drain(&mailbox)?;
        let status = self.status();
        self.bundles.iter().for_each(|bundle| bundle.put_counters(&self.datapath, &self.tracer));
        drop(std::mem::take(&mut self.tracer));
        self.trace_writer.finish()?;
        Ok(status)
    }
}
