//! What carries the packets of the bundles: takes them in, queues, paces and sends them, or has the kernel do so.
//!
//! ```text
//!                  steer, serve, beat, hand_back
//!   worker's loop ──────────────────────────────► datapath ── packets
//!                 ◄──────────────────────────────
//!                  departures, queues, health
//! ```
//! The loop decides: at what rate, when to leave the traffic to the kernel, when to stop. A datapath does what the
//! loop says and tells what became of packets. One folder here is one datapath; `docs/howto/add-a-datapath.md`
//! adds one.

pub mod kernel;
pub mod xdp;

#[cfg(test)]
pub mod stub;

use std::io;
use std::time::Duration;

use forebay_core::bundle::{BlockVersion, BlockVersions, Departures, EpochSize, SamplingKey};
use forebay_core::qdisc::Backlog;
use forebay_core::units::{Rate, Timestamp};
use nix::poll::PollFd;

use super::super::apart::Apart;
use super::super::conditions::Void;
use super::super::config::Config;
use super::super::observer::Observation;
use super::super::reload::difference::Origin;
use super::super::schedule::{Next, Schedule};
use super::super::status::PortStatus;
use crate::daemon::DaemonError;
use crate::service::privileges::seccomp::Task;

/// Age of the last beat from which the kernel forwards what comes, whatever became of this process.
pub const STALE_AFTER: Duration = Duration::from_millis(500);

/// A packet that has waited for longer to be taken in, or in a queue of a process that did not run, is dropped and no
/// longer sent: its sender has long sent it again, or has done without an answer (a TCP whose acknowledgements are
/// missing sends again after about a second, RFC 6298).
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// Most packets that are taken in, or that leave a bundle, in a row: less than 100 us of work.
pub const BATCH: usize = 64;

/// The packets of all bundles of a sendbox. A bundle is named by its place in the configuration.
///
/// No call but [`Datapath::busy_poll`] waits, and none touches a disk: one thread makes all of them. All times are of [`crate::clock`], and
/// bytes are those of Ethernet frames without FCS.
///
/// Until the first [`Datapath::beat`] the kernel forwards everything. Bundles are unshaped until the first
/// [`Datapath::steer`].
pub trait Datapath: Send + 'static {
    /// Versions of the sampling block that it can build: version 2 alone where it sees super-packets.
    const VERSIONS: BlockVersions;

    /// What the thread that makes the calls may do once it runs.
    const TASK: Task;

    /// The discipline that its queues come nearest to; `None`: they are of the one that a bundle names.
    fn discipline(&self) -> Option<&'static str> {
        None
    }

    /// From `now` on these hold for a bundle, for what is queued too. Called only where something differs.
    fn steer(&mut self, now: Timestamp, bundle: usize, steering: &Steering);

    /// Takes in what has come since the last call, and tells `listeners`, one a bundle. A bundle that wants
    /// [`Datapath::serve`] earlier than it has said is set in `schedule`, not before `now`, and so is one of which
    /// something is told to have left: a bundle at rest is not served for a second.
    ///
    /// Answers the number of packets taken in, at most [`BATCH`], and fewer only if no more wait. A datapath in
    /// the kernel takes none: it tells of what has left, for any bundle.
    ///
    /// # Errors
    ///
    /// What this process cannot go on after: it ends, and the kernel must forward then.
    fn receive(
        &mut self,
        now: Timestamp,
        listeners: &mut [impl Listener],
        schedule: &mut Schedule,
    ) -> io::Result<usize>;

    /// Drops what waits in queues of this process, which has not run for longer than [`WAIT_MAX`], and tells
    /// `listeners`, one a bundle; answers how many packets. `None`: the kernel has the queues, and empties them.
    fn expire(&mut self, _now: Timestamp, _listeners: &mut [impl Listener]) -> Option<u64> {
        None
    }

    /// Lets go what is due of a bundle, at most [`BATCH`] packets, tells `listener` what has left, and answers when
    /// to call again: [`Timestamp::MAX`] if the bundle needs no call for its packets, as where the kernel
    /// paces. Calls come at least as often as the bundle's control loop ticks.
    fn serve(&mut self, now: Timestamp, bundle: usize, listener: &mut impl Listener) -> Next;

    /// Ends a round: hands over what was sent during it.
    ///
    /// # Errors
    ///
    /// As for [`Datapath::receive`]. A device that is down or gone is no error: [`Datapath::health`] tells of it.
    fn flush(&mut self) -> io::Result<()>;

    /// What stands in a bundle's queue now.
    fn backlog(&self, bundle: usize) -> Backlog;

    /// What a bundle's queue did since the start.
    fn queue(&self, bundle: usize) -> QueueCounters;

    /// Packets that have left their queues, and that are lost if this process ends now.
    fn pending(&mut self) -> u64;

    /// How packets get on at this moment. The loop judges from it, with patience, whether to hand back.
    fn health(&mut self) -> Health;

    /// Says that the loop turns and packets get on: bundles are carried for the next [`STALE_AFTER`], also after a
    /// [`Datapath::hand_back`].
    fn beat(&mut self);

    /// Has the kernel forward what comes from now on, until the next beat. What is queued still leaves.
    fn hand_back(&mut self);

    /// From `now` on the bundles are those of another configuration, with the devices of the one before: each comes
    /// from where `origins` says, with what is queued. What is queued of a bundle that goes leaves at once, and
    /// what comes for it is forwarded by the kernel; a bundle that begins is unshaped until it is steered. `seen`
    /// is what was seen last.
    ///
    /// # Errors
    ///
    /// What keeps it from that; then all is as before.
    fn rearrange(
        &mut self,
        now: Timestamp,
        config: &Config,
        origins: &[Origin],
        seen: &Observation,
    ) -> Result<(), DaemonError>;

    /// Does what changes of the devices and of the machine's addresses ask for: packets to the machine itself
    /// are in no bundle, and a device that was made again is attached to.
    fn follow(&mut self, seen: &Observation);

    /// Leaves out of the bundles what goes to and from boxes, from now on this and nothing that was named before. Until the
    /// first call nothing is left out but what [`Datapath::follow`] says.
    fn leave_out(&mut self, apart: &Apart);

    /// What does not hold of the devices beside what [`Datapath::follow`] was told, such as a device that
    /// could not be attached to again. The traffic is handed back as long as there is any.
    fn void(&self) -> &[Void];

    /// Looks for packets where they come from, at most until `until` and for as long as the configuration allows;
    /// whether some have come. At once false of a datapath that is woken for them.
    fn busy_poll(&mut self, _until: Timestamp) -> bool {
        false
    }

    /// For how long what comes may wait, so that more of it is worked at together.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Adds what to wake for beside timers. Whoever is due waits for it where [`Health::is_blocked`].
    fn wake_for<'a>(&'a mut self, fds: &mut Vec<PollFd<'a>>);

    /// Devices for people, LAN first, with counters since the start. `hand_backs`: how often the loop has handed
    /// the traffic back, which is one of them.
    fn ports(&self, hand_backs: u64) -> Vec<PortStatus>;
}

/// Who is told what becomes of a bundle's packets.
pub trait Listener {
    /// So much has left by now. Every boundary of the size in force is told by a call of its own, in the
    /// order of departure; other packets may be told together, at the latest in the next
    /// [`Datapath::serve`].
    fn on_departures(&mut self, sent: &Departures);

    /// The queue became empty or non-empty.
    fn on_queue(&mut self, now: Timestamp, backlog: Backlog);

    /// A packet whose flow had nothing else in the queue when the packet came has left after this wait. A datapath may
    /// leave some out, but none because of its wait.
    fn on_wait(&mut self, wait: Duration);
}

/// What a bundle's packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// `None`: as they come, and what is queued at once.
    pub rate: Option<Rate>,
    /// Which packets are boundaries ([`EpochSize::is_boundary`]) ...
    pub epoch_size: EpochSize,
    /// ... of their hash under this key ...
    pub sampling_key: SamplingKey,
    /// ... of this version of the block ([`SampleBlock`](forebay_core::bundle::SampleBlock)).
    pub version: BlockVersion,
    /// Least round trip of the path, for parameters of the discipline that follow it; `None`: not known.
    pub path_rtt: Option<Duration>,
}

/// What the queue of a bundle did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked congestion experienced instead.
    pub marked: u64,
    /// Flows that stand in it now; `None`: it tells no flows apart.
    pub flows: Option<u32>,
    /// How late packets left after their due time (ns): p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
}

/// How packets get on at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Nothing more can leave before something that was sent has left.
    pub is_blocked: bool,
    /// More comes than is taken: what comes may be lost.
    pub is_overrun: bool,
    /// How late the latest of the datapath's own threads is with a turn that it should have taken.
    pub overdue: Duration,
}
