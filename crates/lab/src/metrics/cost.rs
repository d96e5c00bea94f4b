//! What a congestion control costs, of trials of `forebay platforms`.

use super::entry::Pooling::{Max, Mean, Sum};
use super::entry::{Entry, OWN, entry};

/// The source of the score.
const STUDY: &str = "study of eBPFCCP (claby2/ebpfcca)";

/// What is known of a trial.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("cpu_score", "run", "", Mean,
        "CPU left for other work: count of a counting process divided by its count for the \
         baseline in the same block; 0 if an agent neglected its work",
        "n / n_base", STUDY),
    entry("processor_share", "run", "", Mean,
        "share of the processor that the kernel's own algorithm takes from the counting process",
        "1 - n / n_idle", OWN),
    entry("ack_over_empty_ns", "run", "ns", Mean,
        "run time of the BPF program called for each acknowledgement, minus the run time of an \
         empty program in the same block",
        "t - t_empty", OWN),
    entry("decision_p50_us", "run", "us", Mean,
        "median time from a report to the decision that answers it", "Q50(decision - report)", OWN),
    entry("decision_p90_us", "run", "us", Mean,
        "90th percentile of the time from a report to its decision",
        "Q90(decision - report)", OWN),
    entry("decision_p99_us", "run", "us", Mean,
        "99th percentile of the time from a report to its decision",
        "Q99(decision - report)", OWN),
    entry("decision_max_us", "run", "us", Mean, "longest time from a report to its decision",
        "max(decision - report)", OWN),
    entry("reports_per_s", "run", "1/s", Mean, "reports that the agent reads per second",
        "#{reports} / time", OWN),
    entry("reports_lost", "run", "", Sum,
        "reports dropped because the buffer to the agent was full",
        "#{reports}", OWN),
    entry("fallbacks", "run", "", Sum, "times a connection fell back to the kernel's own algorithm",
        "#{fallbacks}", OWN),
    entry("acked_mbps", "run", "Mbit/s", Mean, "payload acknowledged", "8 bytes / time", OWN),
    entry("cpu_s_per_gb", "run", "s/GB", Mean,
        "CPU time per 10^9 bytes, summed over both ends, the agent and the kernel's packet thread",
        "CPU time / bytes", OWN),
    entry("agent_core_percent", "run", "%", Max, "share of a processor that the agent uses",
        "100 CPU time / time", OWN),
];
