//! The link emulator: pairs of ports, and one link for each direction that all pairs share, or links of their own.
//!
//! ```text
//!  left 0 ──┐                                                     ┌── right 0
//!  left 1 ──┤──► loss ► queue ► virtual-time server ► delay ──────►├── right 1
//!  left n ──┘◄────────────────── the same, back ──────────────────└── right n
//! ```
//! A frame that enters at left i leaves at right i, or at a second device beside it. Every frame, ARP and the boxes' messages
//! included, passes the link like any other. All queueing happens in
//! [`link`] in virtual time, so a scheduling delay of this process delays frames but
//! never lowers the rate; how late they were is recorded.
//!
//! A frame **arrives** when user space finds it in a port, at most [`QUANTUM`] and a wake-up after
//! it was sent: neither AF_XDP nor a batch tells when it was. It is **released** when the batch
//! that it belongs to has been handed to the kernel. A packet counts as queued until its
//! transmission begins; the one being sent is not part of the queue.

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
use forebay_core::text::TextError;
use serde::{Deserialize, Serialize};

pub use self::engine::{Emulator, QUANTUM};
pub use self::log::{HEADER_BYTES, headers_file, packets_file, read_packets};
use crate::orders;
use crate::scenario::{LinkSpec, OwnLinks};
use forebay_core::record::LinkRecord;
use forebay_host::port::PortError;

/// What the emulator connects and how. The start of the run comes later, as an order on stdin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmulatorSpec {
    /// The run's seed.
    pub seed: u64,
    /// The pairs of network devices, in the namespace in which the emulator runs.
    pub pairs: Vec<DevicePair>,
    /// Left to right.
    pub forward: LinkSpec,
    /// Right to left.
    pub reverse: LinkSpec,
    /// The links of pairs that do not share these.
    #[serde(default)]
    pub own: Vec<OwnLinks>,
    /// Directory for the [`packets_file`] of either link and, at the end, for [`LINKS_FILE`]; without
    /// it no packet is recorded and the queue is not sampled.
    pub out: Option<PathBuf>,
    /// The first bytes of each frame are kept, too, in the [`headers_file`] of its link in `out`.
    #[serde(default)]
    pub keeps_headers: bool,
    /// The processor that it keeps to; `None`: any.
    #[serde(default)]
    pub cpu: Option<usize>,
    /// A router stands before either link and one behind it: IP packets whose time to live is 1 end
    /// before the queue, those with 2 behind the link. It is not counted down.
    #[serde(default)]
    pub routed: bool,
}

/// The file of the [`LinkRecord`]s as a JSON list: forward, reverse, then those of single pairs, two and two.
pub const LINKS_FILE: &str = "links.json";

/// The two devices that one pair of sites is connected by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DevicePair {
    /// Frames that come in here leave at `right` over the forward link.
    pub left: String,
    /// Frames that come in here leave at `left` over the reverse link.
    pub right: String,
    /// A second way to the same site, past the box there.
    #[serde(default)]
    pub beside: Option<Beside>,
}

/// A second way of frames to the right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Where they leave; nothing comes in here.
    pub device: String,
    /// Their share (0 to 1).
    pub share: f64,
    /// What that becomes, in order of time: when (ns since the start), and the new share.
    pub changes: Vec<(u64, f64)>,
}

/// Why the emulator could not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A link cannot be built as specified.
    #[error("{name}: {source}")]
    Link {
        /// `forward`, `reverse`, or the name of a pair's own link.
        name: String,
        /// The key, its value and what is allowed.
        source: SpecError,
    },
    /// A trace is malformed.
    #[error("{name}: {source}")]
    Trace {
        /// `forward`, `reverse`, or the name of a pair's own link.
        name: String,
        /// File, line, value and what is allowed.
        source: TextError,
    },
    /// A trace cannot be read.
    #[error("{name}: {}: {source}", path.display())]
    ReadTrace {
        /// `forward`, `reverse`, or the name of a pair's own link.
        name: String,
        /// The trace.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No pair, or more than a record can tell apart.
    #[error("pairs = {pairs}: allowed is 1 to 65535")]
    Pairs {
        /// How many were asked for.
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
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl EmulatorError {
    /// Whether the specification is at fault and not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Link { .. } | Self::Trace { .. } | Self::ReadTrace { .. } | Self::Pairs { .. }
        )
    }

    fn os(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { operation, source }
    }
}

/// Runs as the role `emulator` of a testbed, until stdin ends or `SIGTERM` comes, and then writes
/// [`LINKS_FILE`].
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

/// Whole or not at all: a reader never sees half of it.
fn write_links(out: &Path, links: &[LinkRecord]) -> io::Result<()> {
    let partial = out.join(LINKS_FILE).with_extension("partial");
    std::fs::write(&partial, serde_json::to_vec(links)?)?;
    std::fs::rename(&partial, out.join(LINKS_FILE))
}

#[cfg(test)]
mod tests;
