//! What the agent of flows counted.

use super::Metrics;
use crate::rows::AgentRow;

/// The metrics of an agent.
pub fn metrics(row: &AgentRow) -> Metrics {
    let AgentRow { reports, missed, decisions, stale, failed, fallbacks } = *row;
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
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::describe;

    #[test]
    fn every_count_has_a_name_that_is_described() {
        let row =
            AgentRow { reports: 1, missed: 2, decisions: 3, stale: 4, failed: 5, fallbacks: 6 };
        let metrics = metrics(&row);
        let mut counts: Vec<f64> = metrics.0.values().copied().collect();
        counts.sort_by(f64::total_cmp);
        assert_eq!(counts, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(metrics.0.keys().all(|name| describe(name).is_some()));
    }
}
