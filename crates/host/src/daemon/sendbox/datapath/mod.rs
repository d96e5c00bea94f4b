//! Datapaths of a sendbox. A datapath takes in the packets of the bundles, queues, paces and sends them, or
//! has the kernel do so.
//!
//! ```text
//!                  steer, serve, beat, hand_back
//!   worker's loop ──────────────────────────────► datapath ── packets
//!                 ◄──────────────────────────────
//!                  departures, queues, health
//! ```
//! The loop decides at which rate packets leave, when to leave the traffic to the kernel, and when to stop. A
//! datapath carries out these decisions and reports the fate of packets. Each folder here is one datapath;
//! `docs/internals/add-a-datapath.md` explains how to add one.

use std::io;
use std::time::Duration;

use forebay_core::bundle::{BlockVersion, BlockVersions, Departures, EpochSize, SamplingKey};
use forebay_core::qdisc::Backlog;
use forebay_core::units::{Rate, Timestamp};
use nix::poll::PollFd;

use super::super::apart::Apart;
use super::super::conditions::FailedCondition;
use super::super::config::{Config, DatapathKind, datapaths};
use super::super::observer::Observation;
use super::super::reload::difference::BundleOrigin;
use super::super::schedule::{Next, Schedule};
use super::super::status::{PortStatus, Status};
use super::Start;
use crate::daemon::DaemonError;
use crate::service::privileges::seccomp::Task;

macro_rules! modules {
    ($($(#[$cfg:meta])? $kind:ident, $name:literal, $folder:ident, $in_kernel:literal;)*) => {
        $($(#[$cfg])? pub mod $folder;)*

        /// Runs a box with the datapath that its configuration names, or that its machine supports.
        pub fn run(start: Start) -> Result<Status, DaemonError> {
            match start.loaded.config.datapath {
                $($(#[$cfg])? DatapathKind::$kind => $folder::run(start),)*
                DatapathKind::Auto => unreachable!("a box that starts has settled it"),
            }
        }
    };
}
datapaths!(modules);

/// Age of the last beat at which the kernel begins to forward all traffic itself, even if this process has
/// died.
pub const STALE_AFTER: Duration = Duration::from_millis(500);

/// Longest wait of a packet before it is taken in, or in a queue of a process that did not run. The datapath
/// drops a packet that waited longer: its sender has long sent it again or has given up. A TCP that misses
/// acknowledgements sends again after about a second (RFC 6298).
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// Most packets that the datapath takes in, or that leave a bundle, in a row: less than 100 us of work.
pub const BATCH: usize = 64;

/// The packets of all bundles of a sendbox. A bundle is named by its index in the configuration.
///
/// Only [`Datapath::busy_poll`] waits, and no call touches a disk: one thread makes all calls. All times are
/// of [`crate::clock`]. All byte counts are of Ethernet frames without FCS.
///
/// Until the first [`Datapath::beat`] the kernel forwards everything. Bundles are unshaped until the first
/// [`Datapath::steer`].
pub trait Datapath: Send + 'static {
    /// Versions of the sampling block that it can build. A datapath that sees super-packets builds version 2
    /// only.
    const VERSIONS: BlockVersions;

    /// Task of the calling thread, which decides the system calls that it may make.
    const TASK: Task;

    /// The discipline closest to its own queues; `None`: its queues follow the discipline that a bundle
    /// names.
    fn discipline(&self) -> Option<&'static str> {
        None
    }

    /// Applies `steering` to a bundle from `now` on, also to queued packets. The loop calls it only when
    /// something changes.
    fn steer(&mut self, now: Timestamp, bundle: usize, steering: &Steering);

    /// Takes in the packets that came since the last call, and reports them to `listeners` (one per bundle).
    /// It sets two kinds of bundle in `schedule`, at a time not before `now`: a bundle that needs
    /// [`Datapath::serve`] earlier than it said, and a bundle with a reported departure. Otherwise a bundle
    /// at rest would not be served for a second.
    ///
    /// Returns the number of packets taken in, at most [`BATCH`]. A smaller number means that no more packets
    /// wait. A datapath in the kernel takes in none: it reports departures, for any bundle.
    ///
    /// # Errors
    ///
    /// An error ends this process, and the kernel must forward from then on.
    fn receive(
        &mut self,
        now: Timestamp,
        listeners: &mut [impl Listener],
        schedule: &mut Schedule,
    ) -> io::Result<usize>;

    /// Empties the queues of this process after it did not run for longer than [`WAIT_MAX`], and reports the
    /// drops to `listeners` (one per bundle). Returns the number of packets. `None`: the kernel holds the
    /// queues and empties them.
    fn expire(&mut self, _now: Timestamp, _listeners: &mut [impl Listener]) -> Option<u64> {
        None
    }

    /// Sends the due packets of a bundle, at most [`BATCH`], and reports departures to `listener`. Returns
    /// when to call again: [`Timestamp::MAX`] if the packets of the bundle need no call, for example because
    /// the kernel paces them. Calls come at least as often as the bundle's control loop ticks.
    fn serve(&mut self, now: Timestamp, bundle: usize, listener: &mut impl Listener) -> Next;

    /// Ends a round: hands the packets sent during the round over to the device.
    ///
    /// # Errors
    ///
    /// As for [`Datapath::receive`]. A device that is down or gone is no error: [`Datapath::health`] reports
    /// it.
    fn flush(&mut self) -> io::Result<()>;

    /// Packets and bytes now in a bundle's queue.
    fn backlog(&self, bundle: usize) -> Backlog;

    /// Counters of a bundle's queue since the start.
    fn queue(&self, bundle: usize) -> QueueCounters;

    /// Packets that have left their queues, but that are lost if this process ends now.
    fn pending(&mut self) -> u64;

    /// Health of the packet path at this moment. The loop judges it over time to decide whether to hand back.
    fn health(&mut self) -> Health;

    /// Reports that the loop runs and packets move: the bundles are carried for the next [`STALE_AFTER`],
    /// also after a [`Datapath::hand_back`].
    fn beat(&mut self);

    /// Has the kernel forward new packets from now on, until the next beat. Queued packets still leave.
    fn hand_back(&mut self);

    /// Switches to the bundles of another configuration, on the same devices, from `now` on. `origins` names
    /// the earlier bundle that each one continues, with its queued packets. The queued packets of a removed
    /// bundle leave at once, and the kernel forwards its new packets. A new bundle is unshaped until it is
    /// steered. `seen` is the last observation.
    ///
    /// # Errors
    ///
    /// The reason why the switch failed; the earlier bundles stay in force.
    fn rearrange(
        &mut self,
        now: Timestamp,
        config: &Config,
        origins: &[BundleOrigin],
        seen: &Observation,
    ) -> Result<(), DaemonError>;

    /// Adapts to changes of the devices and of the machine's addresses. Packets to the machine itself are in
    /// no bundle, and the datapath attaches to a device that was created again.
    fn follow(&mut self, seen: &Observation);

    /// Leaves the traffic to and from boxes out of the bundles. `apart` replaces the set of the call before.
    /// Until the first call only the packets that [`Datapath::follow`] excludes are left out.
    fn leave_out(&mut self, apart: &Apart);

    /// Failed conditions of the devices that are not in the observation passed to [`Datapath::follow`], for
    /// example a failure to attach to a device again. The traffic stays handed back while there is any.
    fn failed_conditions(&self) -> &[FailedCondition];

    /// Polls for packets at their source, at most until `until` and for as long as the configuration allows.
    /// Returns whether some have come. A datapath that is woken for packets returns false at once.
    fn busy_poll(&mut self, _until: Timestamp) -> bool {
        false
    }

    /// Time that new packets may wait, so that the loop handles more packets together.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Adds descriptors to wake for, in addition to timers. A due bundle waits for them while
    /// [`Health::is_blocked`].
    fn wake_for<'a>(&'a mut self, fds: &mut Vec<PollFd<'a>>);

    /// Status of the devices, LAN first, with counters since the start. `hand_backs` is how often the loop
    /// has handed the traffic back; it is one of the counters.
    fn ports(&self, hand_backs: u64) -> Vec<PortStatus>;
}

/// Receiver of reports about a bundle's packets.
pub trait Listener {
    /// Total departures so far. Each boundary of the current epoch size has a call of its own, in the order
    /// of departure. Other packets may share a call, at the latest in the next [`Datapath::serve`].
    fn on_departures(&mut self, sent: &Departures);

    /// The queue became empty or non-empty.
    fn on_queue(&mut self, now: Timestamp, backlog: Backlog);

    /// A packet has left after this wait; its flow had nothing else in the queue when the packet came. A
    /// datapath may skip some packets, but not because of the length of their wait.
    fn on_wait(&mut self, wait: Duration);
}

/// How a bundle's packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// `None`: new packets leave as they come, and queued packets at once.
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

/// Counters of a bundle's queue since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets marked congestion experienced instead of being dropped.
    pub marked: u64,
    /// Flows now in the queue; `None`: the queue does not distinguish flows.
    pub flows: Option<u32>,
    /// How late packets left after their due time (ns): p50, p99, p99.9, max.
    pub lateness_ns: [u64; 4],
}

/// Health of the packet path at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Nothing more can leave until earlier packets have left.
    pub is_blocked: bool,
    /// More packets come than are taken in, so some may be lost.
    pub is_overrun: bool,
    /// Largest delay of a due turn among the datapath's own threads.
    pub overdue: Duration,
}
