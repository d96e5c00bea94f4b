//! Measures the cost of a congestion control on one processor that only carries traffic and counts.
//!
//! ```text
//!  one processor   sender ──► veth ──► receiver        (two namespaces, MTU 1500)
//!                  agent, if the platform has one
//!                  counter, SCHED_IDLE or nice 19: the remaining time
//! ```
//! The counting process is the measure of the study of eBPF as a platform for congestion control
//! (`cpu_bench.py` of claby2/ebpfcca): it counts in the time that all other processes leave. At a fixed
//! byte rate, two platforms differ in the time that they leave to it. The bench also reads the CPU seconds
//! of each process, which need no idle processor.
//!
//! Compared controls take turns ([`turns`]), each with its own processes. Every trial ([`mod@bench`])
//! starts new processes, which are roles of this binary ([`part`]). They run in namespaces that end with
//! this process, however it ends.

pub mod bench;
mod counter;
mod pair;
pub mod part;
mod platform;
mod tcp_info;
mod traffic;
pub mod turns;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use forebay_core::record::{ProgramRecord, TrialAgentRecord, TrialRecord};
use forebay_core::units::Rate;
pub use forebay_ebpf::tcp::NativeKind;
use forebay_ebpf::tcp::{Cadence, ProgramTime};
pub use forebay_scenario::Counter as CounterScheduling;

use crate::TestbedError;
use forebay_host::agent::AgentError;
use forebay_host::agent::features::Missing;

/// The decider for the connections of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// A congestion control of the kernel, by its name.
    Kernel(String),
    /// One of our controls in BPF alone.
    Native(NativeKind),
    /// A program in BPF that does nothing: the cost of a call.
    Empty,
    /// The datapath of an agent, for a connection that found no slot. It measures, follows the kernel
    /// side's controller, and neither reports nor looks for decisions.
    Unled,
    /// An agent.
    Agent(AgentTerms),
}

/// An agent, as `forebay agent` starts it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTerms {
    /// Algorithm with its parameters.
    pub algorithm: String,
    /// How often the kernel reports.
    pub cadence: Cadence,
    /// Time between two looks at the reports, see `agent::Config::period`.
    pub period: Duration,
    /// CPU time that the agent wastes per acknowledgement reported to it: a cost that a measurement must be
    /// able to detect. Zero in normal use.
    pub burden: Duration,
}

/// Description of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes are handed to the kernel at this rate, however fast it sends them; `None`: as fast as it takes them.
    pub rate: Option<Rate>,
    /// Connections, 1 to 10,000; at a fixed rate they take turns.
    pub flows: u32,
    /// Most segments that the kernel hands to the device in one piece (`gso_max_segs`); `None`: no limit.
    /// At a fixed rate every piece is a separate write and gets its own acknowledgement, so that few
    /// segments cause many acknowledgements.
    pub gso_segments: Option<u32>,
}

/// A trial, of one control or of several that take turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The traffic.
    pub load: Load,
    /// The counting process.
    pub counter: CounterScheduling,
    /// Traffic of each control before the measurement.
    pub warm_up: Duration,
    /// Measured time of each control.
    pub duration: Duration,
    /// Measured time per turn of a control; with a single control it is `duration`.
    pub slice: Duration,
    /// Makes the kernel time the BPF programs. This costs CPU time itself, so not in a trial whose CPU time
    /// is compared.
    pub times_programs: bool,
}

/// The cost of the program in `time`.
fn program_record(time: ProgramTime) -> ProgramRecord {
    let ProgramTime { name, calls, time_ns, instructions, .. } = time;
    ProgramRecord { name, calls, call_ns: time_ns as f64 / calls.max(1) as f64, instructions }
}

/// Reason why costs cannot be measured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CostError {
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    #[error("{0}")]
    Unsupported(#[from] Missing),
    #[error(transparent)]
    Ebpf(#[from] forebay_ebpf::Error),
    #[error("run times of BPF programs: {0}")]
    RunTimes(io::Error),
    #[error("algorithm {name}: {reason}")]
    Algorithm { name: String, reason: String },
    #[error("the agent does not answer at {}: {reason}", path.display())]
    Agent { path: PathBuf, reason: String },
    #[error("a connection that holds the only slot: {0}")]
    Holder(io::Error),
    #[error("this thread may run on no processor")]
    NoProcessor,
}

impl CostError {
    /// Whether costs cannot be measured here, independent of the kernel.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Testbed(TestbedError::NotRoot)
                | Self::Unsupported(_)
                | Self::Algorithm { .. }
                | Self::Ebpf(forebay_ebpf::Error::Privilege)
        )
    }
}

/// A role that failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PartError {
    #[error("processor {0}: this process may not run there")]
    Processor(usize),
    #[error("congestion control {name:?}: {source}; this kernel has {available}")]
    CongestionControl { name: String, source: io::Error, available: String },
    #[error("{action}: {source}")]
    Socket { action: &'static str, source: io::Error },
    #[error("algorithm {0}")]
    Algorithm(String),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("{0}")]
    Io(#[from] io::Error),
}
