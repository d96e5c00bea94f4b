//! A datapath in memory that behaves like one in the kernel: it paces by itself, takes no packet into the
//! process and reports counters and boundaries only.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_core::bundle::receivebox::Seen;
use forebay_core::bundle::{BlockVersions, BoundaryMark, DepartureCounters, Departures};
use forebay_core::qdisc::Backlog;
use forebay_core::random::Streams;
use forebay_core::units::{ByteCount, Rate, Timestamp};
use nix::poll::PollFd;

use super::{BATCH, Datapath, Health, Listener, QueueCounters, Steering};
use crate::daemon::DaemonError;
use crate::daemon::apart::Apart;
use crate::daemon::conditions::FailedCondition;
use crate::daemon::config::Config;
use crate::daemon::observer::Observation;
use crate::daemon::reload::difference::BundleOrigin;
use crate::daemon::schedule::{Next, Schedule};
use crate::daemon::sendbox::{Start, serve};
use crate::daemon::status::{PortStatus, Status};
use crate::service::privileges::seccomp::Task;

/// Bytes of each packet.
const PACKET: ByteCount = ByteCount::new(1500);
/// Rate of the path behind the datapath, which has a queue without a limit ...
pub const PATH: Rate = Rate::from_mbit_per_sec(5);
/// ... and this delay.
const DELAY: Duration = Duration::from_millis(10);
/// Hosts let the queue of the path grow no longer than this, as hosts with a window do.
const QUEUE: Duration = Duration::from_millis(100);

/// Kernel state of the one bundle, shared by the datapath and a test.
#[derive(Default)]
pub struct Kernel {
    /// Packets that wait to leave.
    pub queued: u64,
    /// The last steering from the loop.
    pub steering: Option<Steering>,
    /// Bundles are carried.
    pub is_carrying: bool,
    /// Packets that waited at the last hand-back.
    pub queued_at_hand_back: Option<u64>,
    /// Health of the packet path.
    pub health: Health,
    /// Conditions that fail.
    pub failed_conditions: Vec<FailedCondition>,
    /// The datapath refuses to rearrange bundles.
    pub is_full: bool,
    /// How often they were rearranged.
    pub rearranged: u64,
    /// Boundaries on the path, with their arrival times at its end.
    crossing: VecDeque<Seen>,
    path_free_at: Timestamp,
    counters: DepartureCounters,
    sent: u64,
    free_at: Timestamp,
}

impl Kernel {
    /// The next packet that has left by `now`.
    fn depart(&mut self, now: Timestamp) -> Option<Departures> {
        let Steering { rate, epoch_size, .. } = self.steering?;
        let at = if rate.is_some() { self.free_at } else { now };
        if self.queued == 0 || at > now || self.path_free_at > now + QUEUE {
            return None;
        }
        self.free_at = at + rate.and_then(|rate| PACKET.time_at(rate)).unwrap_or_default();
        self.queued -= 1;
        self.sent += 1;
        let hash = Streams::new(self.sent).stream("hash").bits();
        let boundary = BoundaryMark { hash, identity: hash };
        let boundary = epoch_size.is_boundary(hash).then_some(boundary);
        let left = self.counters.count(at, PACKET, boundary);
        let taken = self.path_free_at.max(at);
        self.path_free_at = taken + PACKET.time_at(PATH).unwrap_or_default();
        if boundary.is_some() {
            self.crossing.push_back(Seen {
                hash,
                received_at: self.path_free_at + DELAY,
                received_bytes: left.bytes,
                received_packets: left.packets,
                received_ce: 0,
            });
        }
        Some(left)
    }

    /// The next boundary that has arrived at the end of the path by `now`.
    pub fn arrive(&mut self, now: Timestamp) -> Option<Seen> {
        self.crossing.pop_front_if(|seen| seen.received_at <= now)
    }
}

/// The datapath.
#[derive(Clone, Default)]
pub struct Stub {
    kernel: Arc<Mutex<Kernel>>,
    failed_conditions: Vec<FailedCondition>,
}

impl Stub {
    /// The current state of the kernel.
    pub fn kernel(&self) -> MutexGuard<'_, Kernel> {
        // A test that failed while it held the lock has said why.
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a sendbox whose packets are in memory.
pub fn run(start: Start) -> Result<Status, DaemonError> {
    serve(start, |_, _, _, _| Ok(Stub::default()))
}

impl Datapath for Stub {
    /// All versions: tests decide.
    const VERSIONS: BlockVersions = BlockVersions::ALL;
    /// The task of a datapath in user space.
    const TASK: Task = Task::Packets;

    fn steer(&mut self, now: Timestamp, _bundle: usize, steering: &Steering) {
        let mut kernel = self.kernel();
        kernel.free_at = kernel.free_at.max(now);
        kernel.steering = Some(*steering);
    }

    fn receive(
        &mut self,
        now: Timestamp,
        listeners: &mut [impl Listener],
        schedule: &mut Schedule,
    ) -> io::Result<usize> {
        let mut told = None;
        for _ in 0..BATCH {
            let Some(left) = self.kernel().depart(now) else { break };
            schedule.set(0, now);
            // The counters report other packets, with the next boundary or the last packet.
            told = left.boundary.is_none().then_some(left);
            if told.is_none() {
                listeners[0].on_departures(&left);
            }
        }
        if let Some(left) = told {
            listeners[0].on_departures(&left);
        }
        listeners[0].on_queue(now, self.backlog(0));
        Ok(0)
    }

    fn serve(&mut self, _now: Timestamp, _bundle: usize, _listener: &mut impl Listener) -> Next {
        Next::At(Timestamp::MAX)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn backlog(&self, _bundle: usize) -> Backlog {
        let packets = self.kernel().queued;
        Backlog { packets, bytes: ByteCount::new(packets * PACKET.as_u64()) }
    }

    fn queue(&self, _bundle: usize) -> QueueCounters {
        QueueCounters::default()
    }

    fn pending(&mut self) -> u64 {
        0
    }

    fn health(&mut self) -> Health {
        let (health, failed_conditions) = {
            let kernel = self.kernel();
            (kernel.health, kernel.failed_conditions.clone())
        };
        self.failed_conditions = failed_conditions;
        health
    }

    fn beat(&mut self) {
        self.kernel().is_carrying = true;
    }

    fn hand_back(&mut self) {
        let mut kernel = self.kernel();
        kernel.is_carrying = false;
        kernel.queued_at_hand_back = Some(kernel.queued);
    }

    fn rearrange(
        &mut self,
        _now: Timestamp,
        _config: &Config,
        _origins: &[BundleOrigin],
        _seen: &Observation,
    ) -> Result<(), DaemonError> {
        let mut kernel = self.kernel();
        if kernel.is_full {
            return Err(DaemonError::SetUp(io::Error::other("the table is full")));
        }
        kernel.rearranged += 1;
        Ok(())
    }

    fn follow(&mut self, _seen: &Observation) {}

    fn leave_out(&mut self, _apart: &Apart) {}

    fn failed_conditions(&self) -> &[FailedCondition] {
        &self.failed_conditions
    }

    fn wake_for<'a>(&'a mut self, _fds: &mut Vec<PollFd<'a>>) {}

    fn ports(&self, hand_backs: u64) -> Vec<PortStatus> {
        let counters = vec![("handed_back".into(), hand_backs)];
        vec![PortStatus { device: "memory".into(), mode: "stub".into(), counters }]
    }
}
