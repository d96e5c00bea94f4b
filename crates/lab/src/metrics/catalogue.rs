//! What every metric is: for `forebay list metrics`, the report and the summary.

use super::entry::Entry;
use super::{agent, arms, attack, bundles, fairness, flows, links, requests, video};

/// All metrics, each beside what works it out, in the order in which they are listed to people. In a run each
/// may also appear as `window.metric` for the plan's own windows, and for `attack`: an attack and the second
/// after it.
pub fn catalogue() -> impl Iterator<Item = &'static Entry> {
    let all = [
        requests::METRICS,
        flows::METRICS,
        fairness::METRICS,
        video::METRICS,
        attack::METRICS,
        agent::METRICS,
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

fn matches(pattern: &str, name: &str) -> bool {
    let alternatives = |hole: &str, words: &[&str]| {
        words.iter().any(|word| matches(&pattern.replacen(hole, word, 1), name))
    };
    if pattern.contains("{class}") {
        alternatives("{class}", &["small", "medium", "large"])
    } else if pattern.contains("{q}") {
        alternatives("{q}", &["p25", "p50", "p75", "p95", "p99"])
    } else {
        pattern == name.split('[').next().unwrap_or(name)
            || pattern == "throughput_mbps[pair]" && name.starts_with("throughput_mbps[")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_windows_are_seen_through() {
        for (metric, pattern) in [
            ("slowdown_small_p75", "slowdown_{class}_{q}"),
            ("slowdown_p99", "slowdown_{q}"),
            ("late.queue_mean_packets", "queue_mean_packets"),
            ("requests_large", "requests_{class}"),
        ] {
            assert_eq!(describe(metric).map(|entry| entry.name), Some(pattern), "{metric}");
        }
        assert!(describe("slowdown_tiny_p50").is_none());
    }
}
