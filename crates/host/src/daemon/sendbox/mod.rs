//! The sendbox daemon: a bump in the wire that queues, schedules and paces the packets of bundles.
//!
//! ```text
//!  lan ──► XDP program ──► AF_XDP ring ──► bundle by prefix ──► qdisc ──► shaper ──► wan
//!              │ else, and whenever this process does not make progress
//!              └──────────────► the kernel's bridge ─────────────────────────────► wan
//! ```
//! One thread does all of it, driven by the ports, the message socket, the next departure and what
//! the [`observer`](super::observer) tells. It never touches a disk and never waits for another thread.
//!
//! **Failing open.** The bridge forwards whatever the box does not take, and the box takes a packet only while
//! its heartbeat is fresh (`STALE_AFTER`). The program is held by a link and goes with the process. The box does
//! not beat while packets do not get on (`progress`) or a condition of its devices does not hold
//! ([`conditions`]), at a clean stop only until its queues are empty; what is queued at a hand-back leaves at
//! once. Frames that the box could not carry pass the program: those to the machine itself or to a station at
//! another port of the bridge, whose addresses the observer tells, and longer ones than the box's buffers. Where
//! the MTU allows such long frames all traffic is handed back, since those that pass would overtake short ones
//! that queue. There is no fallback to AF_PACKET, as the link emulator has: such a socket sees copies, and the
//! bridge would forward the packets too.
//!
//! A peer that is silent ([`forebay_core::bundle::monitor`]), or that lives and reports nothing, leaves the bundle
//! unshaped, never slower.
//!
//! Once it runs it calls ppoll(2), clock_gettime(2), sendto(2), recvfrom(2), read(2), futex(2) and bpf(2)
//! (maps); where a device was made again also setsockopt(2), getsockopt(2) and bind(2) of AF_XDP sockets,
//! mmap(2), munmap(2), close(2) and bpf(2) (a link).

mod attaching;
mod bundle;
mod checksum;
mod decisions;
mod frame;
mod progress;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use forebay_core::bundle::keys::KeyRing;
use forebay_core::bundle::table::BundleTable;
use forebay_core::units::Timestamp;
use forebay_ebpf::{Capture, CaptureOptions, XdpMode};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use self::attaching::Attaching;
use self::bundle::{Bundle, Mode, Outside, Stopping};
pub use self::frame::Frame;
use self::frame::Pool;
use self::progress::{Cause, Change, Progress};
use super::conditions::{self, Devices};
use super::config::{Config, Role};
use super::messages::Messages;
use super::observer::Observation;
use super::schedule::Schedule;
use super::starting::{Prepared, prepare, supervise};
use super::status::{PortStatus, Status};
use super::trace::{self, Tracer};
use super::{DaemonError, message_addresses, scope};
use crate::port::{Direction, Port, XdpPort};
use crate::service::privileges;
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;
use crate::service::supervisor::{Command, Mailbox, Worker};
use crate::{clock, log, offload};

/// Age of the heartbeat from which the kernel takes the traffic back.
const STALE_AFTER: Duration = Duration::from_millis(500);
/// Frames taken from the ring in a row: less than 100 us of work.
const RECEIVE_BATCH: usize = 64;
/// Packets due within this time of a wake-up leave together: at high rates a wake-up for each one
/// would cost a core (`timer` floor of 16 to 20 us each).
const COALESCE: Duration = Duration::from_micros(50);
/// Longest sleep: a small part of the heartbeat's patience.
const IDLE: Duration = Duration::from_millis(20);
/// Retry of a WAN port without room, should poll(2) not tell: its ring is not empty after this
/// time below 24 Gbit/s of full frames.
const WAN_RETRY: Duration = Duration::from_millis(1);
/// At a clean stop the queues are paced for this long, ...
const DRAIN: Duration = Duration::from_secs(1);
/// ... then sent at once for this long, as is what was captured by then.
const RUSH: Duration = Duration::from_millis(500);

/// Runs the daemon until it is told to stop; answers its last state.
pub fn run(config: &Config, dry_run: bool) -> Result<Status, DaemonError> {
    config.expect_role(Role::Sendbox)?;
    privileges::check().map_err(DaemonError::SetUp)?;
    let prepared = prepare(config)?;
    let worker = SendboxWorker::open(config, &prepared, dry_run)?;
    supervise(config, prepared, worker).map_err(DaemonError::Failed)
}

/// Everything the packet thread owns.
struct SendboxWorker {
    lan: XdpPort,
    messages: Messages,
    path: Path,
    attaching: Attaching,
    /// Addresses of the boxes' messages, which are in no bundle.
    message_addresses: BTreeSet<IpAddr>,
    progress: Progress,
    names: [String; 2],
    realtime: bool,
    dry_run: bool,
    started: Timestamp,
    trace_writer: trace::Writer,
    confinement: Confinement,
}

/// What a packet passes on its way, apart from the port it comes from.
struct Path {
    wan: XdpPort,
    pool: Pool,
    tracer: Tracer,
    bundles: Vec<Bundle>,
    schedule: Schedule,
    table: BundleTable,
    /// Checksums that some device of the LAN had left unfinished.
    finished_checksums: u64,
    unclaimed: u64,
    /// Those of them that the WAN's ring had no room for.
    unclaimed_lost: u64,
    oversized: u64,
}

impl SendboxWorker {
    fn open(config: &Config, prepared: &Prepared, dry_run: bool) -> Result<Self, DaemonError> {
        let keys = prepared.keys.load()?;
        let [lan, wan] = devices(config);
        let devices = Devices::of(config);
        devices.require()?;
        let seed = getrandom::u64().map_err(|error| DaemonError::SetUp(io::Error::other(error)))?;
        let mode = Mode { dry_run, is_traced: config.trace.is_some() };
        let mut bundles = Vec::with_capacity(config.bundles.len());
        for (index, (bundle, keys)) in config.bundles.iter().zip(&keys).enumerate() {
            let shaping = bundle.shaping.as_ref().expect("a sendbox's bundles are shaped");
            let built = Bundle::new(index, bundle, shaping, keys, seed, mode);
            bundles.push(built.map_err(|error| DaemonError::Spec(bundle.name.clone(), error))?);
        }
        let messages = Messages::bind(config).map_err(DaemonError::SetUp)?;
        let frame_bytes = conditions::frame_bytes(&lan).map_err(DaemonError::SetUp)?;
        let attaching = Attaching::start(&Devices { room_bytes: Some(frame_bytes), ..devices })?;
        let message_addresses = message_addresses(config);
        let wan_port = XdpPort::open(&wan, Direction::Transmit)?;
        let lan_port = open_lan(config, &lan, frame_bytes)?;
        let capture = lan_port.capture().expect("set up by open_lan");
        set_own(capture, attaching.seen(), &message_addresses)?;
        let (tracer, trace_writer) =
            trace::start(config, &prepared.confinement).map_err(DaemonError::Trace)?;
        let mut worker = Self {
            lan: lan_port,
            messages,
            path: Path {
                wan: wan_port,
                pool: Pool::new(frame_bytes, RECEIVE_BATCH),
                tracer,
                schedule: Schedule::new(bundles.len()),
                table: bundle_table(config)?,
                bundles,
                finished_checksums: 0,
                unclaimed: 0,
                unclaimed_lost: 0,
                oversized: 0,
            },
            attaching,
            message_addresses,
            progress: Progress::new(STALE_AFTER),
            names: [lan, wan],
            realtime: config.realtime,
            dry_run,
            confinement: prepared.confinement.clone(),
            started: clock::now(),
            trace_writer,
        };
        worker.set_scopes(worker.started);
        Ok(worker)
    }

    /// Tells the bundles what the box takes into them and leaves out.
    fn set_scopes(&mut self, now: Timestamp) {
        let own = &self.attaching.seen().addresses;
        let left_out = own | &self.message_addresses;
        let bundles = &mut self.path.bundles;
        let scopes = scope::scopes(bundles.iter().map(Bundle::config), &left_out, own);
        for (index, (bundle, scope)) in bundles.iter_mut().zip(scopes).enumerate() {
            bundle.set_scope(now, scope);
            self.path.schedule.set(index, now);
        }
    }

    fn capture(&self) -> &Capture {
        self.lan.capture().expect("set up by open_lan")
    }

    /// One round of the loop, and proof of life.
    fn round(&mut self) -> io::Result<usize> {
        let now = clock::now();
        self.follow_devices(now)?;
        self.judge_progress(now);
        let received = self.work(now)?;
        if self.progress.is_made() {
            self.capture().beat();
        }
        Ok(received)
    }

    /// Does what changes of the devices ask for.
    fn follow_devices(&mut self, now: Timestamp) -> io::Result<()> {
        let Some(is_other_addresses) = self.attaching.latest()? else { return Ok(()) };
        self.attaching.follow([&mut self.lan, &mut self.path.wan], &self.names);
        // More addresses than the program holds: what is to the others is captured, as before they came.
        if let Err(error) = set_own(self.capture(), self.attaching.seen(), &self.message_addresses)
        {
            tracing::warn!(%error, "addresses of this machine");
        }
        if is_other_addresses {
            self.set_scopes(now);
        }
        Ok(())
    }

    /// Leaves the traffic to the kernel while packets do not get on, or something does not hold.
    fn judge_progress(&mut self, now: Timestamp) {
        let (is_blocked, is_overrun) = (!self.path.wan.has_room(), self.lan.is_overrun());
        let void = self.attaching.reason(now);
        match self.progress.judge(now, is_blocked, is_overrun, void) {
            Some(Change::HandBack(cause)) => {
                self.capture().stop_beating();
                self.say_handed_back(cause);
                self.path.set_handed_back(now, Some(cause));
            }
            Some(Change::TakeAgain) => {
                tracing::info!("packets of bundles are taken again");
                self.path.set_handed_back(now, None);
            }
            None => {}
        }
    }

    fn say_handed_back(&self, cause: Cause) {
        match cause {
            Cause::Stall(stall) => {
                let (reason, least) = (stall.reason(), self.progress.recovery().as_secs());
                tracing::warn!(
                    "{reason}: new ones are left to the kernel, unshaped, for {least} s"
                );
            }
            Cause::Void(reason) => {
                let all: Vec<String> = self.attaching.void().map(ToString::to_string).collect();
                let all = if all.is_empty() { reason.into() } else { all.join("; ") };
                tracing::warn!("{all}: until then packets are left to the kernel, unshaped");
            }
        }
    }

    /// What has come in, and what is due; answers the number of packets received.
    fn work(&mut self, now: Timestamp) -> io::Result<usize> {
        let path = &mut self.path;
        let received = self.lan.receive(RECEIVE_BATCH, &mut |bytes, _| path.take(now, bytes))?;
        self.messages.receive(|index, datagram| path.on_datagram(now, index, datagram));
        path.serve_due(&mut self.messages);
        match path.wan.flush() {
            // Its device is gone: what waits is lost with it.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
            flushed => flushed?,
        }
        Ok(received)
    }

    fn sleep(&mut self, mailbox: &Mailbox<Status>) -> io::Result<()> {
        let now = clock::now();
        let due = self.path.schedule.next().map_or(IDLE, |at| at.saturating_since(now));
        // Then whoever is due waits for the WAN, and the loop must not spin meanwhile.
        let is_blocked = !self.path.wan.has_room();
        if due.is_zero() && !is_blocked {
            return Ok(());
        }
        let shortest = if is_blocked { WAN_RETRY } else { COALESCE };
        let timeout = TimeSpec::from(due.clamp(shortest, IDLE));
        let polled = if is_blocked && self.path.wan.is_worth_polling() { 5 } else { 4 };
        let mut fds = [
            PollFd::new(self.lan.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.messages.as_fd(), PollFlags::POLLIN),
            PollFd::new(mailbox.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.attaching.observer().as_fd(), PollFlags::POLLIN),
            PollFd::new(self.path.wan.as_fd(), PollFlags::POLLOUT),
        ];
        match ppoll(&mut fds[..polled], Some(timeout), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// False: stop.
    fn obey(&mut self, mailbox: &Mailbox<Status>) -> bool {
        while let Some(command) = mailbox.take() {
            match command {
                // Whoever asked may have lost patience.
                Command::Status(reply) => drop(reply.try_send(self.status())),
                Command::Keys(keys) => self.path.set_keys(&keys),
                Command::Stop => return false,
            }
        }
        true
    }

    /// Leaves the traffic to the kernel without losing what was captured, and nearly in order.
    ///
    /// Until the queues are empty everything goes on as usual: what comes is captured and leaves
    /// behind what is queued. Under lasting load they never are; then the rest leaves at once.
    /// Only after that the kernel forwards, past the packets that stand in the LAN's ring in this
    /// moment: those of one round, mostly less than 100 us, and of the receive poll (NAPI, at most
    /// 64 packets) that is under way. More than this is overtaken only if the WAN did not take
    /// the queues in [`RUSH`].
    fn drain(&mut self, mailbox: &Mailbox<Status>) -> io::Result<()> {
        for (how, patience) in [(Stopping::Paced, DRAIN), (Stopping::AtOnce, RUSH)] {
            self.path.stop(how);
            self.run_until_empty(mailbox, patience)?;
        }
        self.capture().stop_beating();
        self.send_the_rest(mailbox)
    }

    fn run_until_empty(&mut self, mailbox: &Mailbox<Status>, patience: Duration) -> io::Result<()> {
        let deadline = clock::now() + patience;
        while clock::now() < deadline {
            // Less than a batch: the LAN's ring is empty too.
            if self.round()? < RECEIVE_BATCH && self.path.backlog() == 0 {
                break;
            }
            // To be told to stop a second time changes nothing.
            self.obey(mailbox);
            self.sleep(mailbox)?;
        }
        Ok(())
    }

    /// Sends what was captured up to the last beat. It has all come in when nothing came for
    /// [`IDLE`]: no receive poll of the kernel takes that long.
    fn send_the_rest(&mut self, mailbox: &Mailbox<Status>) -> io::Result<()> {
        let started = clock::now();
        let mut busy_at = started;
        loop {
            let now = clock::now();
            let received = self.work(now)?;
            let left = self.path.backlog() + u64::from(self.path.wan.pending());
            if received > 0 || left > 0 {
                busy_at = now;
            }
            if now.saturating_since(busy_at) >= IDLE {
                return Ok(());
            }
            if now.saturating_since(started) >= RUSH {
                tracing::warn!(packets = left, "stopped before the WAN port took all packets");
                return Ok(());
            }
            self.obey(mailbox);
            self.sleep(mailbox)?;
        }
    }

    fn status(&self) -> Status {
        let now = clock::now();
        let path = &self.path;
        Status {
            at_ns: now.as_nanos(),
            uptime_ns: now.saturating_since(self.started).as_nanos() as u64,
            realtime: self.realtime,
            void: self.attaching.void().cloned().collect(),
            ports: self.ports(),
            messages: self.messages.counters(path.bundles.iter().map(Bundle::rejects)),
            trace_rows_lost: path.tracer.lost(),
            log_lines_lost: log::lost(),
            bundles: path.bundles.iter().map(|bundle| bundle.status(now)).collect(),
            ..Status::new(Role::Sendbox, self.dry_run)
        }
    }

    fn ports(&self) -> Vec<PortStatus> {
        let capture = self.capture();
        let mode = match capture.mode() {
            Some(XdpMode::Native) => "xdp native",
            Some(XdpMode::Generic) => "xdp generic",
            None => "detached",
        };
        // Reading a map fails only where the kernel took the privilege away.
        let fates = capture.counters().unwrap_or_default();
        let lan = vec![
            ("captured".into(), fates.redirected),
            ("ring_drops".into(), self.lan.ring_drops()),
            ("unclaimed".into(), self.path.unclaimed),
            ("unclaimed_lost".into(), self.path.unclaimed_lost),
            ("oversized".into(), self.path.oversized),
            ("finished_checksums".into(), self.path.finished_checksums),
            ("passed_not_ip".into(), fates.not_ip),
            ("passed_malformed".into(), fates.malformed),
            ("passed_discovery".into(), fates.discovery),
            ("passed_own".into(), fates.own),
            ("passed_own_mac".into(), fates.own_mac),
            ("passed_outside".into(), fates.outside),
            ("passed_long".into(), fates.long),
            ("passed_stale".into(), fates.stale),
            ("handed_back".into(), self.progress.hand_backs()),
            ("passed_no_socket".into(), fates.no_socket),
        ];
        let wan = vec![("ring_drops".into(), self.path.wan.ring_drops())];
        let [lan_name, wan_name] = self.names.clone();
        vec![
            PortStatus { device: lan_name, mode: mode.into(), counters: lan },
            PortStatus { device: wan_name, mode: "xdp transmit".into(), counters: wan },
        ]
    }
}

impl Worker for SendboxWorker {
    type Status = Status;
    fn run(mut self, mailbox: Mailbox<Status>) -> io::Result<Status> {
        privileges::cut_timer_slack();
        self.realtime = self.realtime && privileges::go_realtime();
        self.confinement.confine(Task::Packets)?;
        while self.obey(&mailbox) {
            self.round()?;
            self.sleep(&mailbox)?;
        }
        self.drain(&mailbox)?;
        let status = self.status();
        self.path.bundles.iter().for_each(|bundle| bundle.put_counters(&self.path.tracer));
        drop(std::mem::take(&mut self.path.tracer));
        self.trace_writer.finish()?;
        Ok(status)
    }
}

impl Path {
    /// Takes a captured frame.
    fn take(&mut self, now: Timestamp, bytes: &[u8]) {
        let Some(mut frame) = self.pool.copy(bytes) else {
            self.oversized += 1;
            return;
        };
        // Before it is sampled: the checksum is part of what both boxes hash.
        if frame.finish_checksum() {
            self.count_finished_checksum();
        }
        let Some(index) = self.bundle_of(&frame) else {
            // The program knows destinations only: another source goes its way at once.
            self.unclaimed += 1;
            // What the kernel has sent by now makes room.
            let is_taken = self.wan.send(frame.bytes())
                || self.wan.flush().is_ok() && self.wan.send(frame.bytes());
            self.unclaimed_lost += u64::from(!is_taken);
            self.pool.give_back(frame);
            return;
        };
        let bundle = &mut self.bundles[index];
        bundle.enqueue(now, frame, &mut self.pool);
        // What has long been due comes behind those that have waited for the WAN.
        self.schedule.set(index, bundle.next_departure().max(now));
    }

    /// Told once: what a device does it does to all its packets.
    fn count_finished_checksum(&mut self) {
        if self.finished_checksums == 0 {
            tracing::warn!(
                "packets come in with unfinished checksums, which are finished here; \
                 `ethtool -K DEVICE tx off` at the sending end of the link costs less CPU"
            );
        }
        self.finished_checksums += 1;
    }

    fn bundle_of(&self, frame: &Frame) -> Option<usize> {
        let headers = frame.headers()?;
        self.table.find(headers.source, headers.destination)
    }

    /// Takes a datagram about a bundle; whether its session accepted it.
    fn on_datagram(&mut self, now: Timestamp, index: usize, datagram: &[u8]) -> bool {
        let is_accepted = self.bundles[index].on_datagram(now, datagram, &self.tracer);
        if is_accepted {
            self.schedule.set(index, now);
        }
        is_accepted
    }

    fn serve_due(&mut self, messages: &mut Messages) {
        let now = clock::now();
        let Self { bundles, schedule, wan, pool, tracer, .. } = self;
        schedule.round(now, |index| {
            let mut outside = Outside { wan, pool, messages, tracer };
            bundles[index].serve(now, &mut outside)
        });
    }

    fn set_keys(&mut self, keys: &[KeyRing]) {
        let now = clock::now();
        for (index, (bundle, keys)) in self.bundles.iter_mut().zip(keys).enumerate() {
            bundle.set_keys(now, keys);
            self.schedule.set(index, now);
        }
    }

    /// The kernel forwards what comes, for this reason; `None`: the bundles do again.
    fn set_handed_back(&mut self, now: Timestamp, cause: Option<Cause>) {
        for (index, bundle) in self.bundles.iter_mut().enumerate() {
            bundle.set_handed_back(now, cause.map(Cause::reason));
            self.schedule.set(index, now);
        }
    }

    /// Packets in all queues.
    fn backlog(&self) -> u64 {
        self.bundles.iter().map(Bundle::backlog).sum()
    }

    fn stop(&mut self, how: Stopping) {
        let now = clock::now();
        for (index, bundle) in self.bundles.iter_mut().enumerate() {
            bundle.stop(now, how);
            self.schedule.set(index, now);
        }
    }
}

fn devices(config: &Config) -> [String; 2] {
    let lan = config.lan.clone().expect("a sendbox has one, as checked");
    [lan, config.wan.clone()]
}

fn bundle_table(config: &Config) -> Result<BundleTable, DaemonError> {
    let bundles = config.bundles.iter().map(|bundle| (&bundle.from[..], &bundle.to[..]));
    BundleTable::new(bundles).map_err(|error| DaemonError::SetUp(io::Error::other(error)))
}

/// Lets what is to the machine itself pass.
fn set_own(
    capture: &Capture,
    seen: &Observation,
    message_addresses: &BTreeSet<IpAddr>,
) -> Result<(), forebay_ebpf::Error> {
    capture.set_own_addresses(&(&seen.addresses | message_addresses))?;
    capture.set_own_macs(&seen.macs)
}

/// Attaches the capture program to the LAN port, for frames of up to `frame_bytes`. Nothing is
/// captured before the first heartbeat.
fn open_lan(config: &Config, device: &str, frame_bytes: usize) -> Result<XdpPort, DaemonError> {
    let mut port = XdpPort::open(device, Direction::Receive)?;
    let options = CaptureOptions::Bundles { stale_after: STALE_AFTER };
    let capture = Capture::attach(port.ifindex(), options)?;
    capture.set_longest_frame(frame_bytes.min(port.longest_frame()));
    for prefix in config.bundles.iter().flat_map(|bundle| &bundle.to) {
        capture.add_prefix(*prefix)?;
    }
    capture.set_socket(port.queue(), port.as_fd())?;
    port.hold(capture);
    // The kernel switches GRO on where a program is attached to a veth (veth_enable_xdp): packets
    // that pass would be merged from then on.
    offload::disable_all(device)?;
    Ok(port)
}
