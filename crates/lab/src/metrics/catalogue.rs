//! The definitions of all metrics: for `forebay list metrics`, the report and the summary.

use super::entry::{Entry, HOLES};
use super::{
    agent, arms, attack, bundles, convergence, cost, fairness, flows, links, network, requests,
    sites, video,
};

/// All metrics in the order of listings; each is defined next to its computation. In a run each may also
/// appear as `window.metric`, for the plan's own windows and for `attack`: an attack and the second after it.
pub fn catalogue() -> impl Iterator<Item = &'static Entry> {
    let all = [
        requests::METRICS,
        sites::METRICS,
        flows::METRICS,
        network::METRICS,
        fairness::METRICS,
        convergence::METRICS,
        video::METRICS,
        attack::METRICS,
        agent::METRICS,
        cost::METRICS,
        links::METRICS,
        bundles::METRICS,
        arms::METRICS,
    ];
    all.into_iter().flatten()
}

/// The entry of a metric as it appears in results, window prefix and all.
pub fn describe(metric: &str) -> Option<&'static Entry> {
    let name = metric.rsplit_once('.').map_or(metric, |(_, name)| name);
    catalogue().find(|entry| matches(entry.name, name))
}

/// Heading of an axis or a column of a metric, including a window prefix.
pub fn heading(metric: &str) -> String {
    describe(metric).map_or_else(|| metric.replace('_', " "), |entry| entry.heading(metric))
}

/// The unit of a metric at this address, such as `flows/web/goodput_mbps`; empty: a pure number, or unknown.
pub fn unit(address: &str) -> &'static str {
    let quantity = address.rsplit('/').next().unwrap_or(address);
    describe(quantity).map_or("", |entry| entry.unit)
}

/// A name followed by its unit, such as `queue (packets)`.
pub fn with_unit(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.into() } else { format!("{name} ({unit})") }
}

fn matches(pattern: &str, name: &str) -> bool {
    match HOLES.iter().find(|(hole, _)| pattern.contains(hole)) {
        Some((hole, words)) => {
            words.iter().any(|word| matches(&pattern.replacen(hole, word, 1), name))
        }
        None => {
            pattern == name.split('[').next().unwrap_or(name)
                || pattern == "throughput_mbps[pair]" && name.starts_with("throughput_mbps[")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OF_REQUESTS, SERIES};
    use super::*;

    #[test]
    fn patterns_and_windows_are_seen_through() {
        for (metric, pattern) in [
            ("slowdown_small_p75", "slowdown_{class}_{q}"),
            ("slowdown_p99", "slowdown_{q}"),
            ("late.queue_mean_packets", "queue_mean_packets"),
            ("requests_large", "requests_{class}"),
            ("queueing_p5_ms", "queueing_{p}_ms"),
        ] {
            assert_eq!(describe(metric).map(|entry| entry.name), Some(pattern), "{metric}");
        }
        assert!(describe("slowdown_tiny_p50").is_none());
        assert!(describe("queueing_p25_ms").is_none());
    }

    #[test]
    fn every_entry_is_whole_and_described_once() {
        for entry in catalogue().chain(SERIES).chain(OF_REQUESTS) {
            let texts = [entry.name, entry.of, entry.summary, entry.formula, entry.source];
            assert!(texts.iter().all(|text| !text.trim().is_empty()), "{entry:?}");
            let parts = ["run", "flow", "link", "bundle", "arm"];
            assert!(entry.of.split(' ').all(|part| parts.contains(&part)), "{entry:?}");
            // Each text is a cell of a table.
            assert!(texts.iter().all(|text| !text.contains(['|', '`', '\n'])), "{entry:?}");
        }
        for entry in catalogue() {
            let same = |other: &&Entry| other.name == entry.name;
            assert_eq!(catalogue().filter(same).count(), 1, "{}", entry.name);
        }
    }
}
