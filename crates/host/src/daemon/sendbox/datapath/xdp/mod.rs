//! Datapath that takes the packets of bundles through AF_XDP sockets and this process.
//!
//! ```text
//!  lan ──► XDP program ──► AF_XDP ring ──► bundle by prefix ──► qdisc ──► shaper ──► wan
//!              │ else, and whenever there is no fresh beat
//!              └──────────────► the kernel's bridge ─────────────────────────────► wan
//! ```
//! A link holds the program, so it goes with the process. Unlike the link emulator, the datapath does not
//! fall back to AF_PACKET: such a socket sees copies, and the bridge would forward the packets, too.
//!
//! Frames that the box could not carry pass the program. These are frames to the machine itself or to a
//! station at another port of the bridge, and frames longer than the box's buffers.
//!
//! If a device is created again, the datapath makes system calls in addition to the loop's. These are
//! setsockopt(2), getsockopt(2) and bind(2) of AF_XDP sockets, mmap(2), munmap(2), close(2) and bpf(2) (a
//! link).

mod attaching;
mod checksum;
mod frame;
mod lan;
mod queue;
mod readers;

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use forebay_core::bundle::table::BundleTable;
use forebay_core::bundle::{BlockVersions, Departures, Overhead};
use forebay_core::qdisc::{self, Backlog};
use forebay_core::random::Streams;
use forebay_core::spec::Spec;
use forebay_core::units::Timestamp;
use ipnet::IpNet;
use nix::poll::{PollFd, PollFlags};

use self::attaching::Attaching;
use self::frame::{Found, Frame, Pool, vlan_of};
use self::lan::Lan;
use self::queue::Queue;
use super::{BATCH, Datapath, Health, Listener, QueueCounters, Steering, WAIT_MAX};
use crate::clock;
use crate::daemon::apart::Apart;
use crate::daemon::conditions::FailedCondition;
use crate::daemon::config::{Config, Forward};
use crate::daemon::observer::Observation;
use crate::daemon::reload::difference::BundleOrigin;
use crate::daemon::schedule::{Next, Schedule};
use crate::daemon::sendbox::{Start, serve};
use crate::daemon::status::{PortStatus, Status};
use crate::daemon::{DaemonError, overhead_of, routed};
use crate::port::{Direction, Port, XdpOptions, XdpPort};
use crate::service::privileges::Confinement;
use crate::service::privileges::seccomp::Task;
use crate::triangle::Names;
use crate::triangle::keeper::Keeper;

/// The ports, and all stages between them.
pub struct Xdp {
    lan: Lan,
    wan: XdpPort,
    names: [String; 2],
    attaching: Attaching,
    /// VLANs whose tags a bridge removes on the way.
    untagged_vlans: BTreeSet<u16>,
    pool: Pool,
    table: BundleTable,
    queues: Vec<Queue>,
    /// Queues of removed bundles, until they are empty.
    leaving: Vec<Queue>,
    /// Seed of the queues' random choices.
    seed: u64,
    overhead: Overhead,
    found: Found,
    unclaimed: u64,
    /// Unclaimed frames for which the WAN's ring had no room.
    unclaimed_lost: u64,
    /// Frames dropped because they had waited for longer than [`WAIT_MAX`].
    expired: u64,
    /// Routes packets through the ports on a machine that routes.
    keeper: Option<Keeper>,
}

/// Runs a sendbox that takes packets through its process.
pub fn run(mut start: Start) -> Result<Status, DaemonError> {
    let Config { lan, wan, forward, .. } = &start.loaded.config;
    let ports = match forward {
        Forward::Bridge => {
            let lan = lan.clone().expect("a bridge has one, as checked");
            Ports { names: [lan, wan.clone()], keeper: None }
        }
        Forward::Route => triangle(&mut start)?,
    };
    let confinement = start.prepared.confinement.clone();
    serve(start, |config, room_bytes, seen, seed| {
        Xdp::open(config, ports, room_bytes, seen, seed, &confinement)
    })
}

/// Creates the triangle of a box whose machine routes; returns its ports, which are both its exit.
fn triangle(start: &mut Start) -> Result<Ports, DaemonError> {
    let spec = routed::triangle_of(&start.loaded.config);
    let Names { entrance, exit, namespace, .. } = spec.names();
    let keeper = Keeper::start(&spec).map_err(DaemonError::SetUp)?;
    let by = format!(
        "by a triangle of veths ({entrance}, {exit}) with the bridge of the network namespace {namespace}"
    );
    tracing::info!(target: "datapath", "packets of bundles pass the process {by}");
    start.devices.triangle = Some(spec);
    let settled = start.settled.take();
    let why = settled.unwrap_or_else(|| "\"user\": packets pass the process".into());
    start.settled = Some(format!("{why}, {by}"));
    Ok(Ports { names: [exit.clone(), exit], keeper: Some(keeper) })
}

/// Ports that packets come from and go to.
struct Ports {
    /// Names of the devices, LAN first; both are the exit of a triangle.
    names: [String; 2],
    /// Keeper of a triangle.
    keeper: Option<Keeper>,
}

impl Xdp {
    /// Opens the ports, with all privileges, for frames of up to `frame_bytes`. `seen` has the devices and
    /// the machine's addresses before a program is attached. `seed` is random; a seed in the specification of
    /// a qdisc has precedence. `confinement` applies to the datapath's own threads.
    fn open(
        config: &Config,
        Ports { names, keeper }: Ports,
        frame_bytes: usize,
        seen: &Observation,
        seed: u64,
        confinement: &Confinement,
    ) -> Result<Self, DaemonError> {
        let overhead = overhead_of(config);
        let wan = if names[0] == names[1] {
            XdpPort::open_beside(&names[1])?
        } else {
            XdpPort::open(&names[1], Direction::Transmit)?
        };
        let lan = Lan::open(config, &names[0], frame_bytes, seen, confinement)?;
        let ports = [(lan.queues, config.xdp), (1, XdpOptions::default())];
        let attaching = Attaching::prepare(ports).map_err(DaemonError::SetUp)?;
        Ok(Self {
            queues: qdiscs(config, seed)
                .map(|qdisc| new_queue(qdisc, overhead))
                .collect::<Result<_, _>>()?,
            leaving: Vec::new(),
            seed,
            overhead,
            table: bundle_table(config)?,
            lan,
            wan,
            names,
            attaching,
            untagged_vlans: untagged_vlans(seen),
            pool: Pool::new(frame_bytes, BATCH),
            found: Found::default(),
            unclaimed: 0,
            unclaimed_lost: 0,
            expired: 0,
            keeper,
        })
    }

    fn set_own(&mut self, seen: &Observation) {
        self.untagged_vlans = untagged_vlans(seen);
        warn_of_own(self.lan.set_own(seen));
    }

    /// Sends the remaining packets of removed bundles, as far as the WAN has room.
    fn let_go(&mut self, now: Timestamp) {
        let Self { leaving, wan, pool, .. } = self;
        leaving.retain_mut(|queue| {
            let mut left = u64::MAX;
            // A discipline may hold packets back for a while.
            while wan.has_room() && queue.backlog().packets < left {
                left = queue.backlog().packets;
                queue.serve(now, wan, pool, &mut Nobody);
            }
            queue.backlog().packets > 0
        });
    }
}

/// Warns of more addresses than the program holds: packets to the rest are captured, as before those
/// addresses came.
fn warn_of_own(set: Result<(), forebay_ebpf::Error>) {
    if let Err(error) = set {
        tracing::warn!(
            target: "device",
            %error,
            "too many addresses of this machine and of other boxes: the sendbox treats packets to \
             some as packets to hosts"
        );
    }
}

/// Listener of a removed bundle.
struct Nobody;

impl Listener for Nobody {
    fn on_departures(&mut self, _sent: &Departures) {}

    fn on_queue(&mut self, _now: Timestamp, _backlog: Backlog) {}

    fn on_wait(&mut self, _wait: Duration) {}
}

impl Datapath for Xdp {
    /// All versions: the port sees single packets.
    const VERSIONS: BlockVersions = BlockVersions::ALL;
    /// Carries packets in user space.
    const TASK: Task = Task::Packets;

    fn steer(&mut self, now: Timestamp, bundle: usize, steering: &Steering) {
        self.queues[bundle].steer(now, steering);
    }

    fn receive(
        &mut self,
        now: Timestamp,
        listeners: &mut [impl Listener],
        schedule: &mut Schedule,
    ) -> io::Result<usize> {
        let Self { lan, wan, pool, table, queues, untagged_vlans, found, expired, .. } = self;
        let (unclaimed, unclaimed_lost) = (&mut self.unclaimed, &mut self.unclaimed_lost);
        lan.tell_of_passing(now);
        let finished_before = found.finished_checksums;
        let received = lan.receive(pool, found, &mut |mut frame, pool| {
            if now.saturating_since(frame.arrived()) > WAIT_MAX {
                *expired += 1;
                pool.give_back(frame);
                return;
            }
            if vlan_of(frame.bytes()).is_some_and(|vlan| untagged_vlans.contains(&vlan)) {
                frame.untag();
            }
            let Some(bundle) = bundle_of(table, &frame) else {
                // The program checks only destinations: a packet from another source is sent on at once.
                *unclaimed += 1;
                // A flush may make room: the kernel may have sent earlier frames by now.
                let is_taken =
                    wan.send(frame.bytes()) || wan.flush().is_ok() && wan.send(frame.bytes());
                *unclaimed_lost += u64::from(!is_taken);
                pool.give_back(frame);
                return;
            };
            let queue = &mut queues[bundle];
            queue.enqueue(now, frame, pool, &mut listeners[bundle]);
            // A bundle that is long overdue is served after the bundles that have waited for the WAN.
            schedule.set(bundle, queue.next_departure().max(now));
        });
        if finished_before == 0 && found.finished_checksums > 0 {
            tell_of_finished_checksums();
        }
        received
    }

    fn expire(&mut self, now: Timestamp, listeners: &mut [impl Listener]) -> Option<u64> {
        let Self { queues, leaving, pool, .. } = self;
        let all = queues.iter_mut().zip(listeners);
        let of_bundles: u64 = all.map(|(queue, listener)| queue.expire(now, pool, listener)).sum();
        let left = leaving.iter_mut().map(|queue| queue.expire(now, pool, &mut Nobody));
        let expired = of_bundles + left.sum::<u64>();
        self.expired += expired;
        Some(expired)
    }

    fn serve(&mut self, now: Timestamp, bundle: usize, listener: &mut impl Listener) -> Next {
        self.queues[bundle].serve(now, &mut self.wan, &mut self.pool, listener)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.leaving.is_empty() {
            self.let_go(clock::now());
        }
        match self.wan.flush() {
            // The device is gone, and so are its waiting frames.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
            flushed => flushed,
        }
    }

    fn backlog(&self, bundle: usize) -> Backlog {
        self.queues[bundle].backlog()
    }

    fn queue(&self, bundle: usize) -> QueueCounters {
        self.queues[bundle].counters()
    }

    fn pending(&mut self) -> u64 {
        let leaving = self.leaving.iter().map(|queue| queue.backlog().packets);
        u64::from(self.wan.pending()) + leaving.sum::<u64>()
    }

    fn health(&mut self) -> Health {
        Health {
            is_blocked: !self.wan.has_room(),
            is_overrun: self.lan.is_overrun(),
            overdue: self.lan.overdue(),
        }
    }

    fn beat(&mut self) {
        self.lan.beat();
        if let Some(keeper) = &mut self.keeper {
            keeper.set_taking(true);
        }
    }

    fn hand_back(&mut self) {
        // The plain route comes first. The bridge of a triangle forwards packets that are still on their way.
        if let Some(keeper) = &mut self.keeper {
            keeper.set_taking(false);
        }
        self.lan.stop_beating();
    }

    fn rearrange(
        &mut self,
        now: Timestamp,
        config: &Config,
        origins: &[BundleOrigin],
        seen: &Observation,
    ) -> Result<(), DaemonError> {
        // Steps that can fail come first: the queues of new bundles, and of bundles with another discipline.
        let table = bundle_table(config)?;
        let is_kept = |origin: &BundleOrigin, qdisc: &Spec| {
            origin.place().is_some_and(|place| self.queues[place].qdisc() == qdisc)
        };
        let fresh = qdiscs(config, self.seed).zip(origins).map(|(qdisc, origin)| {
            (!is_kept(origin, &qdisc.1)).then(|| new_queue(qdisc, self.overhead)).transpose()
        });
        let fresh = fresh.collect::<Result<Vec<Option<Queue>>, DaemonError>>()?;
        self.lan.check_rates(config, &self.names[0])?;
        self.lan.set_bundles(config)?;
        if let Some(keeper) = &mut self.keeper {
            let to: BTreeSet<IpNet> =
                config.bundles.iter().flat_map(|bundle| &bundle.to).copied().collect();
            let to: Vec<IpNet> = to.into_iter().collect();
            keeper.set_destinations(&to).map_err(DaemonError::SetUp)?;
        }
        self.table = table;
        let mut before: Vec<Option<Queue>> = self.queues.drain(..).map(Some).collect();
        for (fresh, origin) in fresh.into_iter().zip(origins) {
            let earlier = origin.place().and_then(|place| before[place].take());
            self.queues.extend(match (fresh, earlier) {
                (Some(fresh), Some(earlier)) => Some(fresh.succeed(now, earlier, &mut self.pool)),
                (fresh, earlier) => fresh.or(earlier),
            });
        }
        for mut queue in before.into_iter().flatten() {
            queue.release(now);
            self.leaving.push(queue);
        }
        self.set_own(seen);
        Ok(())
    }

    fn follow(&mut self, seen: &Observation) {
        self.attaching.follow(seen, [&mut self.lan.port, &mut self.wan], &self.names);
        self.lan.hand_over();
        self.set_own(seen);
    }

    fn leave_out(&mut self, apart: &Apart) {
        warn_of_own(self.lan.leave_out(apart));
    }

    fn failed_conditions(&self) -> &[FailedCondition] {
        self.attaching.failed()
    }

    fn busy_poll(&mut self, until: Timestamp) -> bool {
        self.lan.busy_poll(until)
    }

    fn wake_for<'a>(&'a mut self, fds: &mut Vec<PollFd<'a>>) {
        let waits_for_wan = !self.wan.has_room() && self.wan.is_worth_polling();
        self.lan.wake_for(fds);
        if waits_for_wan {
            fds.push(PollFd::new(self.wan.as_fd(), PollFlags::POLLOUT));
        }
    }

    fn ports(&self, hand_backs: u64) -> Vec<PortStatus> {
        let counts = [
            ("unclaimed", self.unclaimed),
            ("unclaimed_lost", self.unclaimed_lost),
            ("oversized", self.found.oversized),
            ("expired", self.expired),
            ("finished_checksums", self.found.finished_checksums),
        ];
        let [lan, wan] = self.names.clone();
        vec![
            PortStatus {
                device: lan,
                mode: self.lan.mode(),
                counters: self.lan.counters(counts, hand_backs),
            },
            PortStatus {
                device: wan,
                mode: "xdp transmit".into(),
                counters: vec![("ring_drops".into(), self.wan.ring_drops())],
            },
        ]
    }
}

/// Logged once: a device treats all its packets alike.
fn tell_of_finished_checksums() {
    tracing::warn!(
        target: "device",
        "packets arrive with unfinished checksums, which the sendbox completes; `ethtool -K DEVICE \
         tx off` at the sending end of the link costs less CPU"
    );
}

fn untagged_vlans(seen: &Observation) -> BTreeSet<u16> {
    seen.vlans.as_ref().map(|vlans| vlans.untagged.clone()).unwrap_or_default()
}

fn bundle_of(table: &BundleTable, frame: &Frame) -> Option<usize> {
    let headers = frame.headers()?;
    table.find(headers.source, headers.destination)
}

/// Name and discipline of each bundle.
fn qdiscs(config: &Config, seed: u64) -> impl Iterator<Item = (&str, Spec)> {
    config.bundles.iter().map(move |bundle| {
        let shaping = bundle.shaping.as_ref().expect("a sendbox's bundles are shaped");
        let chance = Streams::new(seed).part(&bundle.name).stream("qdisc").bits();
        (bundle.name.as_str(), qdisc::seeded(&shaping.qdisc, chance))
    })
}

fn new_queue((bundle, qdisc): (&str, Spec), overhead: Overhead) -> Result<Queue, DaemonError> {
    let queue = Queue::new(&qdisc).map_err(|error| DaemonError::Spec(bundle.into(), error))?;
    Ok(queue.with(overhead))
}

fn bundle_table(config: &Config) -> Result<BundleTable, DaemonError> {
    let bundles = config.bundles.iter().map(|bundle| (&bundle.from[..], &bundle.to[..]));
    BundleTable::new(bundles).map_err(|error| DaemonError::SetUp(io::Error::other(error)))
}
