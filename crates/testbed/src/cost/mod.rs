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

use forebay_core::units::Rate;
pub use forebay_ebpf::tcp::NativeKind;
use forebay_ebpf::tcp::{Cadence, ProgramTime};
use serde::{Deserialize, Serialize};

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

/// How the scheduler ranks the counting process below the other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterScheduling {
    /// Under SCHED_IDLE: a process that wakes gets the processor at once.
    Idle,
    /// At nice 19, as in the study. Since Linux 6.6 (EEVDF) such a process keeps the processor for a slice
    /// of its own, whichever process wakes meanwhile. The sender would be late by milliseconds and catch
    /// up. Next to an agent this happens less, because its wake-ups end slices.
    Nice19,
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

/// Results of a control: sums and means of its slices. All have the same start and end, apart from their lateness.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Steps of the counting process per second.
    pub counted_per_s: f64,
    /// CPU time of the counting process (ns).
    pub counter_cpu_ns: u64,
    /// Time between the looks at the processes that begin and end the counted part of slices (ns).
    pub window_ns: u64,
    /// Largest lateness of these looks (ns).
    pub lateness_ns: [u64; 2],
    /// Time in which the control sent, counted or not (ns).
    pub sending_ns: u64,
    /// Bytes acknowledged per second.
    pub bytes_per_s: f64,
    /// Acknowledgements that the sender received, per second.
    pub acks_per_s: f64,
    /// Segments with data sent per second.
    pub segments_per_s: f64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// CPU time of the sending process (ns), with the packet work in its context.
    pub sender_cpu_ns: u64,
    /// CPU time of the receiving process (ns).
    pub receiver_cpu_ns: u64,
    /// CPU time of the agent (ns); 0 without one.
    pub agent_cpu_ns: u64,
    /// CPU time of the kernel's thread for packet work on this processor (ns). The thread takes over
    /// packets that arrive faster than the contexts above can process them.
    pub ksoftirqd_cpu_ns: u64,
    /// Packet and timer work of the kernel on this processor (ns), by ticks; it is part of the times above.
    pub softirq_ns: u64,
    /// Idle time of the processor (ns), by ticks: the counting process leaves none.
    pub idle_ns: u64,
    /// Time stolen by the hypervisor (ns), by ticks.
    pub steal_ns: u64,
    /// CPU time of other processes on this processor (ns): the remainder of the window.
    pub foreign_ns: u64,
    /// Load average over one minute at the end.
    pub load: f64,
    /// Counters of the agent; `None` without one.
    pub agent: Option<AgentOutcome>,
    /// BPF programs of the platform, if they were timed: over the whole life of the connections.
    pub programs: Vec<ProgramCost>,
}

impl Outcome {
    /// CPU time of all that carries the traffic (ns): both ends, the agent, and the kernel's thread for
    /// packet work, which has no other traffic here.
    pub fn traffic_cpu_ns(&self) -> u64 {
        self.sender_cpu_ns + self.receiver_cpu_ns + self.agent_cpu_ns + self.ksoftirqd_cpu_ns
    }

    /// CPU seconds per gigabyte (10^9 bytes) delivered; `None` if nothing was delivered.
    pub fn cpu_s_per_gb(&self) -> Option<f64> {
        let gigabytes = self.bytes_per_s * self.window_ns as f64 / 1e9 / 1e9;
        (gigabytes > 0.0).then(|| self.traffic_cpu_ns() as f64 / 1e9 / gigabytes)
    }

    /// A share of the window.
    pub fn share(&self, time_ns: u64) -> f64 {
        time_ns as f64 / self.window_ns.max(1) as f64
    }
}

/// Counters of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentOutcome {
    /// Reports taken per second.
    pub reports_per_s: f64,
    /// Reports lost for lack of room, since the first connection.
    pub reports_lost: u64,
    /// Decisions handed to the kernel per second.
    pub decisions_per_s: f64,
    /// Decisions withheld because they came too late, since the first connection.
    pub stale: u64,
    /// How often a connection fell back to the kernel's controller, since the first connection.
    pub fallbacks: u64,
    /// Time from the kernel's stamp of a report to its decision in the shared memory (ns): p50, p90, p99
    /// and the maximum, since the first connection.
    pub latency_ns: [u64; 4],
}

/// The cost of a BPF program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramCost {
    /// Name, at most 15 bytes of it.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Mean time of a call (ns), including the cost of timing it.
    pub call_ns: f64,
    /// Instructions that the verifier examined.
    pub instructions: u32,
}

impl From<ProgramTime> for ProgramCost {
    fn from(program: ProgramTime) -> Self {
        let ProgramTime { name, calls, time_ns, instructions, .. } = program;
        Self { name, calls, call_ns: time_ns as f64 / calls.max(1) as f64, instructions }
    }
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
    /// Whether the request is at fault: exit code 2.
    pub const fn is_bad_input(&self) -> bool {
        matches!(self, Self::Algorithm { .. })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_seconds_are_counted_by_the_gigabyte() {
        let outcome = Outcome {
            window_ns: 2_000_000_000,
            bytes_per_s: 250e6,
            sender_cpu_ns: 600_000_000,
            receiver_cpu_ns: 300_000_000,
            agent_cpu_ns: 50_000_000,
            ksoftirqd_cpu_ns: 50_000_000,
            ..Outcome::default()
        };
        // One second per half gigabyte.
        assert!((outcome.cpu_s_per_gb().unwrap() - 2.0).abs() < 1e-9);
        assert!((outcome.share(outcome.agent_cpu_ns) - 0.025).abs() < 1e-9);
        assert_eq!(Outcome::default().cpu_s_per_gb(), None);
    }
}
