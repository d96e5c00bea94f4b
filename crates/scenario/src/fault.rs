//! Deliberate faults of boxes and devices in a run: plain values that plans name and that the simulator and
//! the testbed carry out.

use forebay_core::units::{Duration, Rate, Ratio};
use serde::{Deserialize, Serialize};

/// A signal to a box or to the agent of the flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When it happens, since the start of the run.
    pub at: Duration,
    /// The program that the action is for.
    pub program: FaultProgram,
    /// The signal or start.
    pub action: FaultAction,
}

/// The program that a [`Fault`] hits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultProgram {
    /// A box.
    Box {
        /// Bundle of the box.
        bundle: String,
        /// Which end.
        end: BoxEnd,
    },
    /// The agent.
    Agent,
}

/// Forged, replayed, truncated and oversized messages to a box in the name of its peer, sent over a real socket as
/// fast as one process can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attack {
    /// When it begins, since the start of the run.
    pub at: Duration,
    /// The bundle whose box is attacked.
    pub bundle: String,
    /// Which end.
    pub end: BoxEnd,
    /// How many messages.
    pub messages: u64,
}

/// A change of a device of a bundle's sites, or of the packets that come to its receivebox. It takes place in
/// arms without boxes, too, since it hits no box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upset {
    /// When it happens, since the start of the run.
    pub at: Duration,
    /// The bundle, which the arm need not have.
    pub bundle: String,
    /// Pair of sites that it happens at.
    pub pair: String,
    /// At site B instead of site A.
    pub at_b: bool,
    /// The change.
    pub kind: UpsetKind,
}

/// One of the two ends of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoxEnd {
    /// Where the traffic enters the bundle.
    Sendbox,
    /// Where the traffic leaves the bundle.
    Receivebox,
}

/// A fault of a program: a signal, or a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultAction {
    /// `SIGKILL`: the program dies.
    Kill,
    /// `SIGSTOP`: the program stops running.
    Stop,
    /// `SIGSTOP` and `SIGCONT` in turn, until it is continued: the program has a processor for 50 ms of every 500 ms.
    Starve,
    /// `SIGCONT`: the program goes on.
    Continue,
    /// Start the program again with the same configuration, after a kill.
    Restart,
    /// Start a box again with a key that its peer has not.
    RestartOtherKey,
    /// Start a box again with its log on a full disk.
    RestartFullLog,
    /// Start a box again with a log that is a full pipe without a reader.
    RestartBlockedLog,
}

impl FaultAction {
    /// All actions, as plans name them.
    pub const ALL: [(&str, Self); 8] = [
        ("kill", Self::Kill),
        ("stop", Self::Stop),
        ("starve", Self::Starve),
        ("continue", Self::Continue),
        ("restart", Self::Restart),
        ("restart_other_key", Self::RestartOtherKey),
        ("restart_full_log", Self::RestartFullLog),
        ("restart_blocked_log", Self::RestartBlockedLog),
    ];

    /// The program runs after it.
    pub const fn starts(self) -> bool {
        !matches!(self, Self::Kill | Self::Stop | Self::Starve | Self::Continue)
    }
}

/// A change of a device of a site, of the packets that come to its receivebox, or of the clients of its
/// boxes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum UpsetKind {
    /// The WAN device of the site's box goes down.
    Down,
    /// The WAN device goes up again.
    Up,
    /// The WAN device leaves the box's bridge.
    LeaveBridge,
    /// The WAN device comes back to the box's bridge.
    JoinBridge,
    /// The MTU of both ports of the box (bytes).
    Mtu(u32),
    /// The bridge gets one more address among the site's hosts.
    Address,
    /// The bridge loses that address.
    NoAddress,
    /// All offloads of the box's ports that can be are switched on.
    OffloadsOn,
    /// Offloads are switched off.
    OffloadsOff,
    /// From now on this share of the packets passes the receivebox by.
    Unseen(Ratio),
    /// From now on packets that no sendbox has sent come to the receivebox in the bundle's name, at this
    /// rate.
    Forged(Rate),
    /// The LAN device of the site's box is removed.
    RemoveLan,
    /// The LAN device is made again, under the same name.
    MakeLan,
    /// Another program sets every token bucket below the root of the box's WAN device to this rate (tc-tbf(8)).
    ForeignTc(Rate),
    /// From now on this many clients hold connections to the control socket of each of the site's boxes, and
    /// send nothing.
    StatusClients(u32),
    /// From now on this many clients hold connections to the metrics port of each of the site's boxes, and
    /// send nothing.
    MetricsClients(u32),
    /// The receivebox's machine falls asleep; in a simulator only.
    Suspend,
    /// The receivebox's machine wakes up.
    Resume,
}
