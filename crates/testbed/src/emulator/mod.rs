//! The link emulator: pairs of ports, and one link for each direction, shared by all pairs or a pair's own.
//!
//! ```text
//!  left 0 ──┐                                                     ┌── right 0
//!  left 1 ──┤──► loss ► queue ► virtual-time server ► delay ──────►├── right 1
//!  left n ──┘◄────────────────── the same, back ──────────────────└── right n
//! ```
//! A frame that enters at left i leaves at right i, or at a second device of the same site. Every frame
//! passes the link like any other, ARP and the boxes' messages included. All queueing happens in [`link`] in
//! virtual time. So a scheduling delay of this process delays frames but never lowers the rate; the emulator
//! records their lateness.
//!
//! A frame **arrives** when user space finds it in a port, at most [`QUANTUM`] and a wake-up after it was
//! sent: neither AF_XDP nor a batch shows the exact time. It is **released** when its batch has been handed
//! to the kernel. A packet counts as queued until its transmission begins; the packet being sent is not part
//! of the queue.

mod engine;
mod frame;
pub mod link;
mod log;
mod path;
pub mod shell;
mod truth;

use std::io;
use std::path::{Path, PathBuf};

use forebay_core::spec::SpecError;
use forebay_core::units::{Duration, Ratio};
use forebay_scenario::{Link, OwnLink};
use serde::{Deserialize, Serialize};

pub use self::engine::{Emulator, QUANTUM};
pub use self::log::{HEADER_BYTES, headers_file, packets_file, read_packets};
use crate::orders;
use forebay_core::record::LinkRecord;
use forebay_host::port::PortError;

/// Links and devices of the emulator. The start of the run comes later, as an order on stdin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmulatorSpec {
    /// The run's seed.
    pub seed: u64,
    /// The pairs of network devices, in the namespace in which the emulator runs.
    pub pairs: Vec<DevicePair>,
    /// Left to right.
    pub forward: Link,
    /// Right to left.
    pub reverse: Link,
    /// Own links of pairs that do not share the links above, with the places of the pairs.
    #[serde(default)]
    pub own: Vec<(usize, OwnLink)>,
    /// Directory for the [`packets_file`] of either link and, at the end, for [`LINKS_FILE`]. Without it, the
    /// emulator records no packets and does not sample the queue.
    pub out: Option<PathBuf>,
    /// Also keeps the first bytes of each frame, in the [`headers_file`] of its link in `out`.
    #[serde(default)]
    pub keeps_headers: bool,
    /// The emulator's processor; `None`: any.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// Emulates a router before and one behind either link. IP packets with a time to live of 1 end before
    /// the queue, packets with 2 end behind the link. The emulator does not decrement it.
    #[serde(default)]
    pub routed: bool,
}

/// The file of the [`LinkRecord`]s as a JSON list: forward, reverse, then each pair's own links.
pub const LINKS_FILE: &str = "links.json";

/// The two devices that connect one pair of sites.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePair {
    /// Frames received here leave at `right` over the forward link.
    pub left: String,
    /// Frames received here leave at `left` over the reverse link.
    pub right: String,
    /// A second way to the same site that bypasses its box.
    #[serde(default)]
    pub beside: Option<Beside>,
}

/// A second way of frames to the right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Device at which the frames leave; it receives none.
    pub device: String,
    /// Share of the frames that take this way.
    pub share: Ratio,
    /// Changes of the share, in order of time: time since the start, and the new share.
    pub changes: Vec<(Duration, Ratio)>,
}

/// Why the emulator could not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A link cannot be built as specified.
    #[error("{name}: {source}")]
    Link {
        /// `forward`, `reverse`, or the name of a pair's own link.
        name: String,
        /// The key, its value and the allowed values.
        source: SpecError,
    },
    /// No pair, or more pairs than a record can distinguish.
    #[error("pairs = {pairs}: allowed is 1 to 65535")]
    Pairs {
        /// Number of pairs.
        pairs: usize,
    },
    /// A device carries longer frames than the emulator.
    #[error("{device} has an MTU of {mtu} bytes: the emulator carries at most {max}")]
    Mtu {
        /// The device.
        device: String,
        /// MTU of the device in bytes.
        mtu: u32,
        /// The largest allowed.
        max: u32,
    },
    /// A port cannot be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The truth log cannot be written.
    #[error("packet records: {0}")]
    Log(io::Error),
    /// A system call failed.
    #[error("{operation}: {source}")]
    Os {
        /// The failed operation.
        operation: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl EmulatorError {
    /// Whether the specification is wrong, as opposed to an error of the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Link { .. } | Self::Pairs { .. })
    }

    fn os(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { operation, source }
    }
}

/// Runs as the role `emulator` of a testbed until stdin ends or `SIGTERM` comes; then writes [`LINKS_FILE`].
pub fn run(spec: &EmulatorSpec) -> Result<(), EmulatorError> {
    let sigterm = engine::block_sigterm()?;
    let mut emulator = Emulator::open(spec)?;
    emulator.stop_on(sigterm)?;
    emulator.obey(&io::stdin())?;
    orders::tell("ready");
    emulator.run()?;
    let links = emulator.finish_all()?;
    match &spec.out {
        Some(out) => write_links(out, &links).map_err(EmulatorError::os("writing the links")),
        None => Ok(()),
    }
}

/// Writes the file atomically: a reader never sees half of it.
fn write_links(out: &Path, links: &[LinkRecord]) -> io::Result<()> {
    let partial = out.join(LINKS_FILE).with_extension("partial");
    std::fs::write(&partial, serde_json::to_vec(links)?)?;
    std::fs::rename(&partial, out.join(LINKS_FILE))
}

#[cfg(test)]
mod tests;
