//! The definitions of all metrics: for `forebay list metrics`, the report and the summary.

use super::entry::{Entry, HOLES, Pooling};
use super::{
    agent, arms, attack, bundles, convergence, cost, fairness, flows, links, media, network,
    requests, sites, video,
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
        media::METRICS,
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

/// A metric's summary as a title with its unit, such as `95th percentile over time of the packets waiting
/// (packets)`. A qualification behind `;` or `:` is left out.
pub fn title(metric: &str) -> String {
    let Some(entry) = describe(metric) else { return metric.replace('_', " ") };
    let (window, name) = metric.rsplit_once('.').unwrap_or(("", metric));
    let mut title = entry.summary.split([';', ':']).next().unwrap_or_default().to_string();
    for (hole, words) in HOLES.iter().filter(|(hole, _)| entry.name.contains(hole)) {
        let Some(word) = words.iter().find(|word| name.split('_').any(|part| part == **word))
        else {
            continue;
        };
        title = match *word {
            class if *hole == "{class}" => CLASSES
                .iter()
                .fold(title, |it, words| it.replace(words, &format!("{class} requests"))),
            "p50" => format!("median of the {title}"),
            quantile => format!("{}th percentile of the {title}", &quantile[1..]),
        };
        title =
            title.replacen("of the percentile of", "of", 1).replacen("of the percentile ", "", 1);
    }
    let start: String = title.chars().take(1).flat_map(char::to_uppercase).collect();
    title = start + title.get(1..).unwrap_or_default();
    with_unit(&if window.is_empty() { title } else { format!("{window}: {title}") }, entry.unit)
}

/// Words of summaries that stand for the requests of any size class.
const CLASSES: [&str; 3] =
    ["requests of one size class", "requests of one class", "requests of a size class"];
/// Starts of the names of metrics where smaller numbers are better.
const LOWER: &str = "slowdown fct_ requests_unfinished requests_queued site_slowdown rtt_p ping_ srtt_ mean_srtt \
     queueing_ mean_est_qdelay mean_qdisc sojourn_ queue_mean queue_p queue_max queue_total queue_back \
     standing_queue drops_ total_ starved harm_ flows_failed datagrams_ video_startup video_rebuffer media_delay media_late media_frozen stall_max \
     unfairness fair_after converged_after in_use_after rtt_error_abs cov_ nrmse_ boxes_died message_share \
     large_paired cpu_ratio cpu_s_per_gb processor_share ack_over_empty decision_ decisions_stale reports_lost \
     fallbacks agent_core program_ns";
/// Starts of the names of metrics where greater numbers are better.
const HIGHER: &str = "goodput payload_bytes throughput_p throughput_mbps mean_throughput agg_throughput agg_network \
     agg_utility agg_utilization_bw jain mean_utilization_bw utilisation video_rate media_rate gap_closed bytes_over \
     rtt_within rate_within boundaries_matched queue_share sites_better cpu_score acked_mbps";

/// Whether greater numbers of the metric are better, in a `part` of a run; `None`: neither end is. A queue
/// is meant to wait at the sendbox.
pub fn higher_is_better(part: &str, metric: &str) -> Option<bool> {
    let name = metric.rsplit_once('.').map_or(metric, |(_, name)| name);
    let is_of = |starts: &str| starts.split_whitespace().any(|start| name.starts_with(start));
    let is_moved = part == "bundle" && name.starts_with("queue_");
    match is_of(LOWER) {
        true => (!is_moved).then_some(false),
        false => is_of(HIGHER).then_some(true),
    }
}

/// Whether the runs of an arm are added up in the metric, so that it grows with the number of seeds.
pub fn is_sum(metric: &str) -> bool {
    let counts = |formula: &str| formula.starts_with("#{") && !formula.contains('/');
    describe(metric).is_some_and(|it| {
        it.pooling == Pooling::Sum || it.pooling == Pooling::Requests && counts(it.formula)
    })
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
    fn titles_are_summaries_with_their_unit() {
        for (metric, expected) in [
            (
                "slowdown_p50",
                "Median of the completion time divided by the ideal time on an empty path",
            ),
            ("fct_large_p95_ms", "95th percentile of the completion time of large requests (ms)"),
            ("late.queue_mean_packets", "late: Packets waiting, mean over time (packets)"),
            ("requests_small", "Small requests that arrived after the warm-up"),
            ("unknown_thing", "unknown thing"),
        ] {
            assert_eq!(title(metric), expected);
        }
    }

    #[test]
    fn direction_and_pooling_of_chief_metrics() {
        let of_run = |metric| higher_is_better("run", metric);
        assert_eq!(["goodput_mbps", "fct_p50_ms"].map(of_run), [Some(true), Some(false)]);
        assert_eq!(["throughput_drift", "requests_total"].map(of_run), [None; 2]);
        let queue = |part| higher_is_better(part, "queue_mean_packets");
        assert_eq!(["link", "bundle"].map(queue), [Some(false), None]);
        let sums =
            ["total_retransmissions_l4", "requests_total", "slowdown_above_1_3", "fct_p50_ms"];
        assert_eq!(sums.map(is_sum), [true, true, false, false]);
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
