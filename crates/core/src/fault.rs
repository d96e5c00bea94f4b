//! What happens to boxes and devices in a run on purpose: plain values that plans name and that the simulator
//! and the testbed carry out.

use crate::units::Rate;

/// One of the two ends of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum BoxEnd {
    /// Where the traffic enters the bundle.
    Sendbox,
    /// Where the traffic leaves the bundle.
    Receivebox,
}

/// What happens to a program: a signal, or a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum FaultAction {
    /// `SIGKILL`: the program dies.
    Kill,
    /// `SIGSTOP`: the program stands still.
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
    /// Start a box again with a log that is a full pipe and that nobody reads.
    RestartBlockedLog,
}

impl FaultAction {
    /// All of them, as plans name them.
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

/// A change of a device of a site, of what comes to its receivebox, or of who asks its boxes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
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
    /// From now on this share of the packets passes the receivebox by (0 to 1).
    Unseen(f64),
    /// From now on so much comes to the receivebox in the bundle's name that no sendbox has sent.
    Forged(Rate),
    /// The LAN device of the site's box is removed.
    RemoveLan,
    /// The LAN device is made again, under the same name.
    MakeLan,
    /// Another program sets every token bucket below the root of the box's WAN device to this rate (tc-tbf(8)).
    ForeignTc(Rate),
    /// From now on so many clients hold connections to the control socket of each of the site's boxes, and send nothing.
    StatusClients(u32),
    /// From now on so many clients hold connections to the metrics port of each of the site's boxes, and send nothing.
    MetricsClients(u32),
    /// The receivebox's machine falls asleep; in a simulator only.
    Suspend,
    /// The receivebox's machine wakes up.
    Resume,
}
