//! Counters of the agent of flows.

use forebay_core::record::{AgentFault, AgentRecord};

use super::Metrics;
use super::entry::Pooling::{Max, Mean, Min, Sum};
use super::entry::{Entry, OWN, entry};

/// Metrics of an agent.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("agent_reports", "run arm", "", Mean, "reports that the flows' agent read",
        "#{reports taken}", OWN),
    entry("agent_missed", "run arm", "", Sum,
        "reports dropped because the buffer to the agent was full",
        "#{reports lost}", OWN),
    entry("agent_decisions", "run arm", "", Mean, "decisions that the agent handed to the kernel",
        "#{decisions}", OWN),
    entry("agent_stale", "run arm", "", Sum, "decisions that the agent discarded as too late",
        "#{decisions withheld}", OWN),
    entry("agent_failed", "run arm", "", Sum, "connections whose algorithm failed",
        "#{connections}", OWN),
    entry("agent_fallbacks", "run arm", "", Sum,
        "times a connection fell back to the kernel's own algorithm because no decision arrived in \
         time",
        "#{times}", OWN),
    entry("agent_fell_back", "run arm", "", Min,
        "connections that fell back to the kernel's own algorithm after the agent's first fault",
        "#{connections}", OWN),
    entry("agent_fallback_last_ms", "run arm", "ms", Max,
        "time from the agent's first fault until its last connection had fallen back to the \
         kernel's own algorithm, by the kernel's records",
        "max(fallback - fault)", OWN),
    entry("agent_fallback_late_ms", "run arm", "ms", Max,
        "largest delay of a fallback beyond its limit: the longer of 100 ms and four smoothed \
         round trips of the connection. 0 if the peer was silent meanwhile and no timer expired",
        "max(0, fallback - fault - max(4 sRTT, 100 ms))", OWN),
    entry("agent_resumed", "run arm", "", Min,
        "connections counted in agent_fell_back that an agent controlled again later",
        "#{connections}", OWN),
];

/// The metrics of an agent.
pub fn metrics(row: &AgentRecord) -> Metrics {
    let AgentRecord { reports, missed, decisions, stale, failed, fallbacks, fault } = *row;
    let mut metrics = Metrics::default();
    for (name, count) in [
        ("agent_reports", reports),
        ("agent_missed", missed),
        ("agent_decisions", decisions),
        ("agent_stale", stale),
        ("agent_failed", failed),
        ("agent_fallbacks", fallbacks),
    ] {
        metrics.put(name, Some(count as f64));
    }
    if let Some(AgentFault { fell_back, last_ns, late_ns, resumed }) = fault {
        metrics.put("agent_fell_back", Some(fell_back as f64));
        metrics.put("agent_fallback_last_ms", Some(last_ns as f64 / 1e6));
        metrics.put("agent_fallback_late_ms", Some(late_ns as f64 / 1e6));
        metrics.put("agent_resumed", Some(resumed as f64));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::describe;

    #[test]
    fn every_count_has_a_name_that_is_described() {
        let fault =
            AgentFault { fell_back: 7, last_ns: 8_000_000, late_ns: 9_000_000, resumed: 10 };
        let row = AgentRecord {
            reports: 1,
            missed: 2,
            decisions: 3,
            stale: 4,
            failed: 5,
            fallbacks: 6,
            fault: Some(fault),
        };
        let metrics = metrics(&row);
        let mut counts: Vec<f64> = metrics.0.values().copied().collect();
        counts.sort_by(f64::total_cmp);
        assert_eq!(counts, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!(metrics.0.keys().all(|name| describe(name).is_some()));
    }
}
