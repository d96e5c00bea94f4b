//! What every metric is: for `forebay list metrics`, the report and the summary.

/// How the runs of an arm become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Taken again over the requests of all runs together.
    Requests,
    /// Mean over the runs.
    Mean,
    /// Share of the time of all runs together: their mean, since runs of an arm are equally long.
    Time,
    /// Sum over the runs.
    Sum,
    /// Smallest of the runs.
    Min,
    /// Largest of the runs.
    Max,
}

impl Pooling {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "all requests together",
            Self::Mean => "mean of the runs",
            Self::Time => "time of all runs together",
            Self::Sum => "sum of the runs",
            Self::Min => "smallest of the runs",
            Self::Max => "largest of the runs",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name; `{class}` stands for small, medium and large, `{q}` for p25, p50, p75, p95 and p99.
    pub name: &'static str,
    /// Of what: `run`, `flow`, `link`, `bundle` or `arm`, several joined by a space.
    pub of: &'static str,
    /// Unit; empty: a pure number.
    pub unit: &'static str,
    /// How runs are pooled.
    pub pooling: Pooling,
    /// What it is.
    pub summary: &'static str,
}

/// An entry, in the order of its fields.
pub(super) const fn entry(
    name: &'static str,
    of: &'static str,
    unit: &'static str,
    pooling: Pooling,
    summary: &'static str,
) -> Entry {
    Entry { name, of, unit, pooling, summary }
}

use Pooling::{Max, Mean, Min, Requests, Sum, Time};

/// All metrics, in the order in which they are listed to people. In a run each may also appear as
/// `window.metric` for the plan's own windows, and for `attack`: an attack and the second after it.
#[rustfmt::skip]
pub static CATALOGUE: &[Entry] = &[
    entry("slowdown_{q}", "run flow arm", "", Requests,
        "completion time over that on an empty path: round trip + 8 size / rate, both nominal"),
    entry("slowdown_geomean", "run flow arm", "", Requests, "its geometric mean"),
    entry("slowdown_above_1_3", "run flow arm", "", Requests, "share of them above 1.3"),
    entry("slowdown_{class}_{q}", "run flow arm", "", Requests,
        "the same of one class: small up to 10 KB, medium up to 1 MB, large"),
    entry("slowdown_{class}_geomean", "run flow arm", "", Requests, "its geometric mean"),
    entry("slowdown_unqueued_{q}", "run flow arm", "", Requests,
        "the same without requests that waited behind another on their connection"),
    entry("slowdown_unqueued_geomean", "run flow arm", "", Requests, "its geometric mean"),
    entry("slowdown_first", "flow", "", Mean, "slowdown of the flow's first request"),
    entry("fct_p50_ms", "run flow arm", "ms", Requests,
        "completion time from scheduled arrival to last byte, median"),
    entry("fct_p95_ms", "run flow arm", "ms", Requests, "its 95th percentile"),
    entry("fct_p99_ms", "run flow arm", "ms", Requests, "its 99th percentile"),
    entry("requests_total", "run flow arm", "", Requests,
        "requests that arrived after the warm-up"),
    entry("requests_{class}", "run flow arm", "", Requests, "of them, those of a class"),
    entry("requests_unfinished", "run flow arm", "", Requests,
        "of them, those without a last byte; they count with their age"),
    entry("requests_unfinished_age_mean_ms", "run flow arm", "ms", Requests, "their mean age"),
    entry("requests_queued_behind", "run flow arm", "", Requests,
        "requests that found their connection busy"),
    entry("goodput_mbps", "run flow arm", "Mbit/s", Mean,
        "payload read by the receivers between warm-up and end of arrivals"),
    entry("payload_bytes", "run flow arm", "B", Mean, "the same as bytes"),
    entry("mean_throughput_l4", "run flow arm", "Mbit/s", Mean,
        "payload arriving at the receiving TCP; counted where it is read"),
    entry("mean_cwnd_l4", "flow", "segments", Mean,
        "window, mean over time; this and those below over the whole run, and of the simulator: of the \
         emulator cwnd, srtt and retransmissions of flows of at most ten connections"),
    entry("peak_cwnd_l4", "flow", "segments", Max, "largest window, looked at every 10 ms"),
    entry("half_bdp_after_ms", "flow", "ms", Mean,
        "from the flow's start until its window reached half a bandwidth-delay product"),
    entry("mean_in_flight_l4", "flow", "segments", Mean, "outstanding and not SACKed or lost"),
    entry("cov_in_flight_l4", "flow", "", Mean, "its standard deviation over its mean"),
    entry("mean_srtt_l4", "flow", "ms", Mean, "smoothed round trip"),
    entry("mean_idt_ewma_l4", "flow", "ms", Mean, "moving mean of the time between departures"),
    entry("mean_sending_rate_l4", "flow", "Mbit/s", Mean, "payload sent, repairs included"),
    entry("mean_sending_rate_l7", "flow", "Mbit/s", Mean,
        "payload written, a full send buffer included"),
    entry("mean_one_way_delay_l7", "flow", "ms", Mean,
        "from write to read, the wait in the send buffer included, mean over time"),
    entry("cov_throughput_l4", "flow", "", Mean,
        "standard deviation over mean of the payload that arrived in 50 ms"),
    entry("mean_network_power_l4", "flow", "Mbit/s^2", Mean,
        "throughput over smoothed round trip, mean over 50 ms"),
    entry("mean_utility_pf_l4", "flow", "", Mean, "ln of the throughput, mean over 50 ms"),
    entry("mean_recovery_time_l4", "flow", "ms", Mean, "length of a loss recovery"),
    entry("total_retransmissions_l4", "flow", "", Sum, "segments sent again"),
    entry("total_rtos_l4", "flow", "", Sum, "timeouts"),
    entry("mean_throughput_l7", "run flow arm", "Mbit/s", Mean, "payload read by the receiver"),
    entry("cov_throughput_l7", "run flow arm", "", Mean,
        "standard deviation over mean of the payload read in 100 ms"),
    entry("stall_max_s", "run flow arm", "s", Max,
        "longest time without a byte, in steps of 100 ms"),
    entry("boxes_died", "run arm", "", Sum,
        "runs that ended with a box, or the agent, that ended by itself or not when it was told to: they \
         have no other figure, and miss every bound"),
    entry("flows_failed", "run flow arm", "", Sum, "connections reset or failed"),
    entry("rtt_p50_ms", "run flow bundle arm", "ms", Mean,
        "round trip: of pings, or as the sendbox estimates it"),
    entry("rtt_p99_ms", "run flow arm", "ms", Mean, "99th percentile of pings"),
    entry("datagrams_lost", "run flow arm", "", Sum, "datagrams that never arrived"),
    entry("attack_sent", "run arm", "", Sum, "hostile messages sent; also by [kind]"),
    entry("attack_refused", "run arm", "", Sum, "of them, refused by the attacker's own socket"),
    entry("attack_received", "run arm", "", Sum,
        "datagrams that the attacked box read, its peer's among them"),
    entry("attack_rejected", "run arm", "", Sum,
        "of them, those that it rejected; also by [reason]"),
    entry("attack_counted", "run arm", "", Min,
        "by [kind]: those rejected for a reason of that kind over those that arrived, reckoned \
         by its share of what was sent"),
    entry("agent_reports", "run arm", "", Mean, "reports that the agent of the flows took"),
    entry("agent_missed", "run arm", "", Sum, "reports that found no room"),
    entry("agent_decisions", "run arm", "", Mean, "decisions that it handed to the kernel"),
    entry("agent_stale", "run arm", "", Sum, "decisions that it withheld as too late"),
    entry("agent_failed", "run arm", "", Sum, "connections whose algorithm failed"),
    entry("agent_fallbacks", "run arm", "", Sum,
        "times that the kernel's own law took a connection, since no answer came in time"),
    entry("agent_fell_back", "run arm", "", Min,
        "connections that it took after the first fault that hit the agent"),
    entry("agent_fallback_last_ms", "run arm", "ms", Max,
        "from that fault until it had the last of them, by the kernel's own records"),
    entry("agent_fallback_late_ms", "run arm", "ms", Max,
        "by how much that was more than four smoothed round trips of the connection, or 100 ms if that \
         is longer, where it was most; 0 where the peer was silent in between and no timer ran out"),
    entry("agent_resumed", "run arm", "", Min, "those among them that an agent decided for again"),
    entry("queue_total_mean_packets", "run arm", "packets", Mean,
        "queues of both links and all sendboxes, added, mean over time"),
    entry("queue_mean_packets", "link bundle", "packets", Mean, "packets waiting, mean over time"),
    entry("queue_p95_packets", "link bundle", "packets", Mean, "exceeded 5 % of the time"),
    entry("queue_max_packets", "link bundle", "packets", Max, "most packets waiting"),
    entry("mean_qdisc_length_l2", "link", "packets", Mean, "queue_mean_packets"),
    entry("mean_qdisc_delay_l2", "link", "ms", Mean, "time in queue and server, mean over packets"),
    entry("mean_held_qdisc_delay_l2", "link", "ms", Mean,
        "time in the queue of the packet that left it last, mean over time (simulator)"),
    entry("sojourn_p50_ms", "link", "ms", Mean, "its median"),
    entry("sojourn_p95_ms", "link", "ms", Mean, "its 95th percentile"),
    entry("sojourn_p99_ms", "link", "ms", Mean, "its 99th percentile"),
    entry("throughput_mbps", "link bundle", "Mbit/s", Mean, "frames that left the link"),
    entry("throughput_mbps[pair]", "link", "Mbit/s", Mean, "of them, those of a pair of sites"),
    entry("jain", "link", "", Mean, "Jain's index of the pairs' throughputs"),
    entry("mean_sending_rate_l1", "link", "Mbit/s", Mean, "throughput_mbps"),
    entry("utilisation", "link", "", Mean, "frames that left over what the rate allows"),
    entry("drops_queue_packets", "link bundle", "packets", Mean, "dropped by the queue"),
    entry("total_qdisc_drops_l2", "link", "packets", Mean, "drops_queue_packets of a link"),
    entry("marks_queue_packets", "link", "packets", Mean, "marked by the queue instead"),
    entry("drops_overlimit_packets", "link", "packets", Mean,
        "dropped because the queue was at its limit, whole run"),
    entry("drops_codel_packets", "link", "packets", Mean, "dropped by CoDel's law, whole run"),
    entry("drops_early_packets", "link", "packets", Mean,
        "dropped by PIE's or RED's draw, whole run"),
    entry("drops_forced_packets", "link", "packets", Mean,
        "dropped above RED's upper threshold, whole run"),
    entry("drops_policed_packets", "link", "packets", Mean,
        "dropped by a policer for want of tokens, whole run"),
    entry("marks_codel_packets", "link", "packets", Mean, "marked by CoDel's law, whole run"),
    entry("marks_early_packets", "link", "packets", Mean,
        "marked by PIE's or RED's draw, whole run"),
    entry("marks_forced_packets", "link", "packets", Mean,
        "marked above RED's upper threshold, whole run"),
    entry("drops_loss_packets", "link", "packets", Mean, "lost on purpose"),
    entry("passed_packets", "link", "packets", Mean, "packets that left"),
    entry("in_use_after_s", "link", "s", Max,
        "until the link first carried 90 % of its capacity for 100 ms, at most to the end"),
    entry("standing_queue_until_s", "link", "s", Max,
        "until the queue last exceeded 30 packets for 100 ms; 0: never"),
    entry("queue_back_after_s", "link", "s", Max,
        "until the queue, once above 30 packets, was first below for 200 ms, at most to the end"),
    entry("queue_back_after_use_s", "link", "s", Max,
        "the same from when the link first carried 90 %, see in_use_after_s"),
    entry("queue_share_at_sendbox", "bundle", "", Mean,
        "mean queue at the sendbox over the mean of both queues"),
    entry("rtt_within_1ms", "bundle", "", Mean,
        "share of matched boundaries whose RTT estimate is within 1 ms of the truth"),
    entry("rtt_error_abs_p50_ms", "bundle", "ms", Mean,
        "median distance of RTT estimate and truth"),
    entry("rtt_error_abs_p80_ms", "bundle", "ms", Mean, "its 80th percentile"),
    entry("rtt_error_p10_ms", "bundle", "ms", Mean, "RTT estimate less truth, 10th percentile"),
    entry("rtt_error_p50_ms", "bundle", "ms", Mean, "its median"),
    entry("rtt_error_p90_ms", "bundle", "ms", Mean, "its 90th percentile"),
    entry("rate_within_4pct", "bundle", "", Mean,
        "share of matched boundaries whose rate estimate is within 4 % of the truth"),
    entry("rate_within_2mbps", "bundle", "", Mean, "the same within 2 Mbit/s"),
    entry("rate_error_p50", "bundle", "", Mean, "median of rate estimate over truth, less 1"),
    entry("epochs_with_rate", "bundle", "", Mean,
        "share of matched boundaries with an estimate and a truth of the rate"),
    entry("samples_per_rtt", "bundle", "", Mean, "matched boundaries per true round trip"),
    entry("epochs_without_truth", "bundle", "", Sum,
        "matched boundaries that are not in the emulator's log"),
    entry("epoch_size_changes", "bundle", "", Mean, "changes of the epoch size"),
    entry("boundaries_sent", "bundle", "", Mean,
        "boundary packets sent while the peer was heard, at the epoch size that it reported last"),
    entry("boundaries_matched", "bundle", "", Mean, "share of them matched by a report"),
    entry("out_of_order_ratio", "bundle", "", Mean,
        "share of the matched boundaries that arrived behind one that left later and took 1 ms less"),
    entry("message_share", "bundle", "", Mean, "bytes of messages both ways over bytes sent"),
    entry("hand_backs", "bundle", "", Sum,
        "times that the sendbox left its traffic to the kernel, since it did not keep up"),
    entry("drops_ring_packets", "bundle", "packets", Sum,
        "lost by the boxes themselves, in their rings to and from the devices"),
    entry("boundaries_lost", "bundle", "", Sum, "boundaries lost by the receivebox itself"),
    entry("trace_rows_lost", "bundle", "", Sum,
        "estimates and decisions that the sendbox's trace lacks, and the metrics with it"),
    entry("min_rtt_ms", "bundle", "ms", Mean, "smallest base RTT since the bundle was first shaped"),
    entry("min_rtt_drift_ms", "bundle", "ms", Max, "largest less smallest of them"),
    entry("min_rtt_error_max_ms", "bundle", "ms", Max,
        "largest distance of them from the links' propagation delays"),
    entry("transitions", "bundle", "", Sum, "changes of the bundle's state"),
    entry("rate_min_mbps", "bundle", "Mbit/s", Min, "lowest rate of the shaper while it had one"),
    entry("rate_p5_mbps", "bundle", "Mbit/s", Mean, "not exceeded 5 % of the time"),
    entry("rate_p95_mbps", "bundle", "Mbit/s", Mean, "exceeded 5 % of the time"),
    entry("rate_max_mbps", "bundle", "Mbit/s", Max, "highest rate of the shaper"),
    entry("shaped_share", "bundle", "", Time, "share of the time with a rate in force, and decisions of the sendbox"),
    entry("competing_share", "bundle", "", Time,
        "share of the time in which the bundle competes with traffic outside it, tests included"),
    entry("slowdown_p50_over_status_quo", "arm", "", Mean,
        "median slowdown over that of status_quo"),
    entry("slowdown_p99_over_status_quo", "arm", "", Mean, "the same of the 99th percentile"),
    entry("fct_p50_over_status_quo", "arm", "", Mean, "the same of the median completion time"),
    entry("slowdown_p50_over_in_network_fq", "arm", "", Mean,
        "median slowdown over that of in_network_fq"),
    entry("gap_closed", "arm", "", Mean,
        "(status_quo - arm) / (status_quo - in_network_fq) of the median slowdown"),
    entry("large_paired_ratio_geomean", "arm", "", Mean,
        "geometric mean, over large requests, of slowdown over that of the same in status_quo"),
    entry("bytes_over_status_quo", "arm", "", Mean, "payload bytes over those of status_quo"),
    entry("queue_total_over_status_quo", "arm", "", Mean,
        "bottleneck and sendbox queues over those of status_quo"),
];

impl Entry {
    /// Whether parts of this kind have it.
    pub fn is_of(&self, part: &str) -> bool {
        self.of.split(' ').any(|of| of == part)
    }

    /// What an axis or a column of `metric`, which this is the entry of, is called: `fct p50 (ms)`.
    pub fn heading(&self, metric: &str) -> String {
        let known = ["_ms", "_s", "_mbps", "_packets", "_segments", "_bytes"];
        let bare = known.iter().find_map(|suffix| metric.strip_suffix(suffix));
        let words = bare.filter(|_| !self.unit.is_empty()).unwrap_or(metric).replace('_', " ");
        if self.unit.is_empty() { words } else { format!("{words} ({})", self.unit) }
    }
}

/// The entry of a metric as it appears in results, window prefix and all.
pub fn describe(metric: &str) -> Option<&'static Entry> {
    let name = metric.rsplit_once('.').map_or(metric, |(_, name)| name);
    CATALOGUE.iter().find(|entry| matches(entry.name, name))
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
