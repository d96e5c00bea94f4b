//! The sendbox daemon: a bump in the wire, or on the way of a router, that queues, schedules and paces the packets of
//! bundles.
//!
//! One thread does all of it, but for taking frames in where each receive queue has a thread of its own
//! (`xdp.threads`). It drives a `datapath`, which carries the packets, by the message socket, the next
//! departure and what the [`observer`](super::observer) tells. It never touches a disk and never waits for another
//! thread.
//!
//! **Failing open.** The bridge, or the machine's route, forwards whatever the box does not take, and the box takes a packet only while
//! its heartbeat is fresh (`STALE_AFTER`). The box does not beat while packets do not get on, or it gets too little
//! processor time for that (`progress`), or a condition of its devices does not hold
//! ([`conditions`](super::conditions)), at a clean stop only until its queues are empty; what is queued at a hand-back
//! leaves at once. Where the MTU allows frames that the box could not carry all traffic is handed back, since those that
//! pass would overtake short ones that queue.
//!
//! A peer that is silent (`bundle::monitor` of core), or that lives and reports nothing, leaves the bundle
//! unshaped, never slower.
//!
//! Once it runs it calls ppoll(2), clock_nanosleep(2), clock_gettime(2), sendto(2), recvfrom(2), read(2), futex(2)
//! and bpf(2) (maps), and what its datapath adds.

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
use self::datapath::kernel::Kernel;
use self::datapath::xdp::{Ports, Xdp};
use self::datapath::{BATCH, Datapath, STALE_AFTER, WAIT_MAX};
use self::progress::{Cause, Change, Progress};
use super::apart::Apart;
use super::conditions::{Devices, Void};
use super::config::{BundleConfig, Config, DatapathKind, Forward, Role, Shaping};
use super::keys::reader::Loaded;
use super::messages::{Messages, Taken};
use super::observer::{Observation, Observer};
use super::reload;
use super::schedule::Schedule;
use super::starting::{Prepared, prepare, supervise};
use super::status::Status;
use super::trace::{self, Tracer};
use super::waiting::{self, Begun};
use super::{DaemonError, attempt, overhead_of, routed, scope};
use crate::service::privileges;
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;
use crate::service::supervisor::{Mailbox, Worker};
use crate::triangle::keeper::Keeper;
use crate::{clock, live, log, offload};

/// Rounds are so far apart, at the most, while packets leave at a rate: a wake-up costs more CPU time than a packet,
/// and at 96 Mbit/s there would be two of them for each packet, one as it comes and one as it leaves. What waits, and
/// what comes meanwhile, is later by so much at the most, and no rate is lower for that: the shaper catches up
/// (`qdisc/shaper.rs` of core). 250 us are two full frames at 96 Mbit/s, a burst that a bottleneck hardly feels.
const QUANTUM: Duration = Duration::from_micros(250);
/// Shortest sleep otherwise: what is due so soon after something else is done with it.
const COALESCE: Duration = Duration::from_micros(50);
/// Longest sleep: a small part of the heartbeat's patience.
const IDLE: Duration = Duration::from_millis(20);
/// Retry of a blocked datapath, should poll(2) not tell: its ring is not empty after this time below
/// 24 Gbit/s of full frames.
const BLOCKED_RETRY: Duration = Duration::from_millis(1);
/// At a clean stop the queues are paced for this long, ...
const DRAIN: Duration = Duration::from_secs(1);
/// ... then sent at once for this long, as is what was captured by then.
const RUSH: Duration = Duration::from_millis(500);
/// What follows where nobody looks at the devices any more.
const UNWATCHED: &str = "nobody watches the devices: the process that does it is stopped or hangs";

/// Runs the daemon until it is told to stop; answers its last state. A file in Python that is given has the algorithm of
/// all bundles, whatever the configuration says, now or later.
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
    let (confinement, settled) = (prepared.confinement.clone(), settled.into_inner());
    let devices = Devices::of(&loaded.config);
    if loaded.config.datapath == DatapathKind::Kernel {
        return serve(
            loaded,
            prepared,
            devices,
            dry_run,
            settled,
            |config, room_bytes, seen, _| Kernel::open(config, room_bytes, seen, &confinement),
        );
    }
    let (ports, devices, settled) = match loaded.config.forward {
        Forward::Bridge => (Ports::of_bridge(&loaded.config), devices, settled),
        Forward::Route => {
            let (ports, devices, by) = in_triangle(&loaded.config, devices)?;
            let why = settled.unwrap_or_else(|| "\"user\": packets pass the process".into());
            (ports, devices, Some(format!("{why}, {by}")))
        }
    };
    serve(loaded, prepared, devices, dry_run, settled, |config, room_bytes, seen, seed| {
        Xdp::open(config, ports, room_bytes, seen, seed, &confinement)
    })
}

/// The ports of a box whose machine routes, in a triangle that is there from then on, what must hold with it, and a
/// description of it for people.
fn in_triangle(config: &Config, devices: Devices) -> Result<(Ports, Devices, String), DaemonError> {
    let spec = routed::triangle_of(config);
    let names = spec.names();
    let keeper = Keeper::start(&spec).map_err(DaemonError::SetUp)?;
    let by = format!(
        "by a triangle of veths ({}, {}) with the bridge of the network namespace {}",
        names.entrance, names.exit, names.namespace
    );
    tracing::info!(target: "datapath", "packets of bundles pass the process {by}");
    let ports = Ports::of_triangle(&names.exit, keeper);
    Ok((ports, Devices { triangle: Some(spec), ..devices }, by))
}

/// Runs a worker with the datapath that `open` opens: for frames of up to so many bytes, from what was seen of the
/// devices and a random seed. `settled`: what was left to the box, and why it is so.
fn serve<D: Datapath>(
    loaded: Loaded,
    prepared: Prepared,
    devices: Devices,
    dry_run: bool,
    settled: Option<String>,
    open: impl FnOnce(&Config, usize, &Observation, u64) -> Result<D, DaemonError>,
) -> Result<Status, DaemonError> {
    let Loaded { config, keys, .. } = &loaded;
    // Before anything is given up: later no program can be started.
    for bundle in &config.bundles {
        let started = live::named::start(&shaping(bundle).cc);
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

/// How a bundle of a sendbox is treated.
fn shaping(bundle: &BundleConfig) -> &Shaping {
    bundle.shaping.as_ref().expect("a sendbox's bundles are shaped")
}

/// A new bundle of this place, under these keys.
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

/// Everything the packet thread owns.
struct SendboxWorker<D> {
    datapath: D,
    /// What the configuration has left to the box, and why it is so.
    settled: Option<String>,
    /// Bundles have what the machine itself sends, too.
    takes_own: bool,
    messages: Messages,
    bundles: Vec<Bundle>,
    /// What the bundles share, in the order of the configuration.
    uplink: Option<Uplink>,
    schedule: Schedule,
    observer: Observer,
    /// What the observer saw last.
    seen: Observation,
    /// Where the box's messages come from.
    listen: Vec<SocketAddr>,
    /// What the datapath leaves out of the bundles.
    apart: Apart,
    progress: Progress,
    realtime: bool,
    dry_run: bool,
    /// What packets gain below the WAN port.
    overhead: Overhead,
    /// Of all that is random and may be known.
    seed: u64,
    started: Timestamp,
    tracer: Tracer,
    trace_writer: trace::Writer,
    confinement: Confinement,
}

impl<D: Datapath> SendboxWorker<D> {
    /// A worker that has not begun. `datapath` opens its datapath, from what was `observed` and a random
    /// seed, once all is well that touches no packets.
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

    /// Tells the bundles what the box takes into them and leaves out.
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

    /// Has the datapath leave out what is in no bundle of what the boxes send and get, and says so to the receiveboxes.
    fn leave_out(&mut self, now: Timestamp) {
        let bundles = self.bundles.iter().map(|bundle| (bundle.config(), bundle.counts_boxes()));
        self.apart = Apart::of(&self.listen, bundles, &self.seen.names);
        self.datapath.leave_out(&self.apart);
        self.set_scopes(now);
    }

    /// Has the bundles look for the path MTU, up to the length of packets that leave.
    fn look_for_mtu(&mut self, now: Timestamp) {
        let Some(mtu) = self.seen.mtu else { return };
        let packet_bytes = u16::try_from(mtu).unwrap_or(u16::MAX);
        for bundle in &mut self.bundles {
            bundle.look_for_mtu(now, packet_bytes, &self.seen.names);
        }
    }

    /// Has all bundles served next.
    fn serve_all(&mut self, now: Timestamp) {
        (0..self.bundles.len()).for_each(|bundle| self.schedule.set(bundle, now));
    }

    /// One round of the loop, and proof of life.
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

    /// Drops what waits in the queues if this process did not run for longer than it may wait.
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
            "the box did not run for {pause_s:.1} s: what waited in its queues is dropped, and so is what waits in its \
             rings"
        );
        self.serve_all(now);
    }

    /// Does what changes of the devices ask for.
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

    /// All that does not hold of the devices.
    fn void(&self) -> impl Iterator<Item = &Void> {
        self.seen.void.iter().chain(self.datapath.void())
    }

    /// Leaves the traffic to the kernel while packets do not get on, or something does not hold.
    fn judge_progress(&mut self, now: Timestamp) {
        let health = self.datapath.health();
        let reason = self.void().next().map(Void::reason);
        let reason = reason.or_else(|| self.observer.is_silent(now).then_some(UNWATCHED));
        if D::TASK == Task::Classes {
            // Packets that stay in the kernel wait for no turn of this thread.
            self.progress.excuse(now);
        }
        match self.progress.judge(now, health, reason) {
            Some(Change::HandBack(cause)) => {
                self.datapath.hand_back();
                self.say_handed_back(cause);
                self.set_handed_back(now, Some(cause));
            }
            Some(Change::TakeAgain) => {
                tracing::info!(target: "traffic", "packets of bundles are taken again");
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
                    "{reason}: new ones are left to the kernel, unshaped, for {least} s"
                );
            }
            Cause::Void(reason) => {
                let all: Vec<String> = self.void().map(ToString::to_string).collect();
                let all = if all.is_empty() { reason.into() } else { all.join("; ") };
                tracing::warn!(
                    target: "traffic",
                    "{all}: until then packets are left to the kernel, unshaped"
                );
            }
        }
    }

    /// The kernel forwards what comes, for this reason; `None`: the bundles do again.
    fn set_handed_back(&mut self, now: Timestamp, cause: Option<Cause>) {
        for bundle in &mut self.bundles {
            bundle.set_handed_back(now, cause.map(Cause::reason), &mut self.datapath);
        }
        self.serve_all(now);
    }

    /// What has come in, and what is due; answers the number of packets received.
    fn work(&mut self, now: Timestamp) -> io::Result<usize> {
        let Self { datapath, messages, bundles, schedule, tracer, .. } = self;
        let received = datapath.receive(now, bundles, schedule)?;
        let mut counts_other = false;
        messages.receive(|index, datagram, admission| {
            let counted = bundles[index].counts_boxes();
            let taken = bundles[index].on_datagram(now, datagram, admission, tracer);
            counts_other |= bundles[index].counts_boxes() != counted;
            if taken != Taken::Rejected {
                schedule.set(index, now);
            }
            taken
        });
        if counts_other {
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

    /// Divides the uplink among the bundles, where that is due or urgent, and has them keep to it.
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
            // What has nothing to send takes its share when it is served next.
            if bundle.is_quiet(now, datapath.backlog(index)) {
                continue;
            }
            if bundle.set_ceiling(now, Some(uplink.ceiling(index)), datapath) {
                schedule.set(index, now);
            }
        }
    }

    /// For how long packets that wait leave one after the other, at most for a [`QUANTUM`]; `None`: none leave so
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
        // Then whoever is due waits for the datapath, and the loop must not spin meanwhile.
        let is_blocked = self.datapath.health().is_blocked;
        if due.is_zero() && !is_blocked {
            return Ok(());
        }
        if !is_blocked && self.datapath.busy_poll(now + due.min(IDLE)) {
            return Ok(());
        }
        // A busy poll has taken its time.
        let now = clock::now();
        let due = due_at(now);
        if due.is_zero() && !is_blocked {
            return Ok(());
        }
        if let Some(time) = self.pacing(now).filter(|_| !is_blocked) {
            // What comes meanwhile waits in its ring, which nobody has to be woken for.
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

    /// Leaves the traffic to the kernel without losing what was captured, and nearly in order.
    ///
    /// Until the queues are empty everything goes on as usual: what comes is captured and leaves
    /// behind what is queued. Under lasting load they never are; then the rest leaves at once.
    /// Only after that the kernel forwards, past the packets that wait to be taken in in this moment:
    /// in the LAN's ring those of one round, mostly less than 100 us, and of the receive poll (NAPI,
    /// at most 64 packets) that is under way. More than this is overtaken only if the WAN did not take
    /// the queues in [`RUSH`].
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

    /// Packets in all queues.
    fn backlog(&self) -> u64 {
        (0..self.bundles.len()).map(|bundle| self.datapath.backlog(bundle).packets).sum()
    }

    fn run_until_empty(&mut self, mailbox: &Mailbox<Self>, patience: Duration) -> io::Result<()> {
        let deadline = clock::now() + patience;
        while clock::now() < deadline {
            // Less than a batch: no more waits to be taken in either.
            let is_all = self.round()? < BATCH;
            if is_all && self.backlog() == 0 {
                break;
            }
            // To be told to stop a second time changes nothing.
            self.obey(mailbox);
            if is_all {
                self.sleep(mailbox)?;
            }
        }
        Ok(())
    }

    /// Sends what was captured up to the last beat. It has all come in when nothing came for
    /// [`IDLE`]: no receive poll of the kernel takes that long.
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
            void: self.void().cloned().collect(),
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
    type Change = reload::Change;
    fn run(mut self, mailbox: Mailbox<Self>) -> io::Result<Status> {
        privileges::cut_timer_slack();
        self.realtime = self.realtime && privileges::go_realtime();
        self.confinement.confine(D::TASK)?;
        while self.obey(&mailbox) {
            // A full batch has left others in the ring.
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
