//! Records of cost trials: the CPU time of a congestion control on one processor of the testbed.

use alloc::string::String;
use alloc::vec::Vec;

/// A trial of an arm, and the trial that it is compared with.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct CostRecord {
    /// The arm's trial.
    pub trial: TrialRecord,
    /// The trial of the arm that it is compared with, of the same time; `None`: there was none.
    pub compared: Option<TrialRecord>,
    /// Rate of the traffic (bit/s); `None`: as fast as possible.
    pub rate_bps: Option<u64>,
    /// Steps of the counting process per second of CPU time without traffic; `None`: not measured.
    pub idle_per_s: Option<f64>,
    /// Number of the processor.
    pub cpu: usize,
    /// Model of the processor.
    pub processor: String,
}

/// Results of a control: sums and means of its slices. All have the same start and end, apart from their lateness.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct TrialRecord {
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
    pub agent: Option<TrialAgentRecord>,
    /// BPF programs of the platform, if they were timed: over the whole life of the connections.
    pub programs: Vec<ProgramRecord>,
}

impl TrialRecord {
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
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct TrialAgentRecord {
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
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct ProgramRecord {
    /// Name, at most 15 bytes of it.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Mean time of a call (ns), including the cost of timing it.
    pub call_ns: f64,
    /// Instructions that the verifier examined.
    pub instructions: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_seconds_are_counted_by_the_gigabyte() {
        let trial = TrialRecord {
            window_ns: 2_000_000_000,
            bytes_per_s: 250e6,
            sender_cpu_ns: 600_000_000,
            receiver_cpu_ns: 300_000_000,
            agent_cpu_ns: 50_000_000,
            ksoftirqd_cpu_ns: 50_000_000,
            ..TrialRecord::default()
        };
        // One second per half gigabyte.
        assert!((trial.cpu_s_per_gb().unwrap() - 2.0).abs() < 1e-9);
        assert!((trial.share(trial.agent_cpu_ns) - 0.025).abs() < 1e-9);
        assert_eq!(TrialRecord::default().cpu_s_per_gb(), None);
    }
}
