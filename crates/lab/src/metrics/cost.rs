//! What a congestion control costs, of trials of `forebay platforms`.

use super::entry::Pooling::{Max, Mean, Sum};
use super::entry::{Entry, OWN, entry};

/// The source of the score.
const STUDY: &str = "study of eBPFCCP (claby2/ebpfcca)";

/// What is known of a trial.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("cpu_score", "run", "", Mean,
        "count of the counting process over its count for the baseline in the same block; 0 where an agent \
         neglected its work",
        "n / n_base", STUDY),
    entry("processor_share", "run", "", Mean,
        "share of the processor that the kernel's own algorithm takes from the counting process",
        "1 - n / n_idle", OWN),
    entry("ack_over_empty_ns", "run", "ns", Mean,
        "time of a call of the BPF program that each acknowledgement meets, over the empty program in the same block",
        "t - t_empty", OWN),
    entry("decision_p50_us", "run", "us", Mean,
        "median of the time from a report to the decision that answers it", "Q50(decision - report)", OWN),
    entry("decision_p90_us", "run", "us", Mean, "90th percentile, likewise", "Q90(decision - report)", OWN),
    entry("decision_p99_us", "run", "us", Mean, "99th percentile, likewise", "Q99(decision - report)", OWN),
    entry("decision_max_us", "run", "us", Mean, "the longest, likewise", "max(decision - report)", OWN),
    entry("reports_per_s", "run", "1/s", Mean, "reports that the agent takes in a second", "#{reports} / time", OWN),
    entry("reports_lost", "run", "", Sum, "reports that found no room", "#{reports}", OWN),
    entry("fallbacks", "run", "", Sum, "times that a connection fell back to the kernel's own algorithm",
        "#{fallbacks}", OWN),
    entry("acked_mbps", "run", "Mbit/s", Mean, "payload acknowledged", "8 bytes / time", OWN),
    entry("cpu_s_per_gb", "run", "s/GB", Mean,
        "CPU time of both ends, the agent and the kernel's thread for packets, per 10^9 bytes", "CPU time / bytes", OWN),
    entry("agent_core_percent", "run", "%", Max, "share of a processor that the agent uses",
        "100 CPU time / time", OWN),
];
