//! Comparisons of an arm with the reference arms, computed by [`summary`](crate::summary). Here `status_quo`,
//! `in_network_fq` and `solo` stand for the arms that a plan names as its `baseline`, `ideal` and `alone`, if
//! it does.

use super::entry::Pooling::Mean;
use super::entry::{BUNDLER, Entry, OWN, entry};

/// The source of harm.
const HARM: &str = "Ware et al., HotNets 2019";
/// The source of errors of curves.
const CURVES: &str = "study of eBPFCCP (claby2/ebpfcca)";

/// The metrics of flows that `[curves]` adds, in the order of reports.
pub const OF_CURVES: [&str; 9] = [
    "nrmse_cwnd",
    "nrmse_bitrate",
    "nrmse_rtt",
    "bitrate_off",
    "slow_start_resent",
    "slow_start_resent_beyond",
    "slow_start_peak",
    "slow_start_peak_off",
    "half_bdp_later_ms",
];

/// Metrics of an arm that need all arms.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("slowdown_p50_over_status_quo", "arm", "", Mean,
        "median slowdown divided by the median slowdown in status_quo",
        "slowdown_p50 / slowdown_p50 of status_quo", BUNDLER),
    entry("slowdown_p99_over_status_quo", "arm", "", Mean,
        "99th percentile of the slowdown divided by its value in status_quo",
        "slowdown_p99 / slowdown_p99 of status_quo", BUNDLER),
    entry("fct_p50_over_status_quo", "arm", "", Mean,
        "median completion time divided by its value in status_quo",
        "fct_p50_ms / fct_p50_ms of status_quo", OWN),
    entry("slowdown_p50_over_in_network_fq", "arm", "", Mean,
        "median slowdown divided by the median slowdown in in_network_fq",
        "slowdown_p50 / slowdown_p50 of in_network_fq", BUNDLER),
    entry("gap_closed", "arm", "", Mean,
        "share of the gap in median slowdown between status_quo and in_network_fq that the arm \
         closes; 1: all of it",
        "(s_quo - s) / (s_quo - s_network), s = slowdown_p50", OWN),
    entry("large_paired_ratio_geomean", "arm", "", Mean,
        "geometric mean, over large requests, of a request's slowdown divided by the same \
         request's slowdown in status_quo",
        "exp(mean(ln(slowdown / slowdown of the same request in status_quo)))", OWN),
    entry("bytes_over_status_quo", "arm", "", Mean,
        "payload bytes divided by the payload bytes in status_quo",
        "goodput_mbps / goodput_mbps of status_quo", OWN),
    entry("queue_total_over_status_quo", "arm", "", Mean,
        "bottleneck and sendbox queues together, divided by their value in status_quo",
        "queue_total_mean_packets / queue_total_mean_packets of status_quo", OWN),
    entry("sites_better", "flow", "", Mean,
        "share of the sending sites that got faster: their geometric mean of slowdowns is below \
         status_quo by more than 5 % and more than sites_noise; with [topology]",
        "#{sites: s < s_quo / d} / #{sites}, d = max(1.05, 1 + sites_noise), s = site_slowdown", OWN),
    entry("sites_worse", "flow", "", Mean,
        "share of the sending sites that got slower: their geometric mean of slowdowns is above \
         status_quo by more than 5 % and more than sites_noise; with [topology]",
        "#{sites: s > s_quo d} / #{sites}, d = max(1.05, 1 + sites_noise), s = site_slowdown", OWN),
    entry("sites_noise", "flow", "", Mean,
        "change by chance of a site's geometric mean of slowdowns: 95 % of the sending sites \
         change less from status_quo to status_quo_again, the same arm with other packet times; \
         with [topology]",
        "exp(Q95(abs(ln(s_again / s_quo)))) - 1, s = site_slowdown", OWN),
    entry("harm_throughput", "flow", "", Mean,
        "share of its solo goodput that a flow loses to the competing flows of this arm; below 0: \
         it gains. In the arm solo, the flow runs alone for most of the time",
        "(x_solo - x) / x_solo, x = goodput_mbps", HARM),
    entry("harm_delay", "flow", "", Mean,
        "share of a flow's smoothed round trip that its competitors add: the increase over the arm \
         solo, where it runs alone",
        "(x - x_solo) / x, x = mean_srtt_l4", HARM),
    entry("harm_fct", "flow", "", Mean,
        "share of the median completion time of a flow's requests that its competitors add: the \
         increase over the arm solo, where the flow runs alone",
        "(x - x_solo) / x, x = fct_p50_ms", HARM),
    entry("harm_loss", "flow", "", Mean,
        "share of a flow's retransmissions per payload byte that its competitors cause: the \
         increase over the arm solo, where the flow runs alone",
        "(x - x_solo) / x, x = total_retransmissions_l4 / payload_bytes of a run", HARM),
    entry("nrmse_cwnd", "flow", "%", Mean,
        "normalised root mean square difference between the arm's congestion window over time and \
         the baseline's; both are means over runs. With [curves], for greedy flows with one \
         connection",
        "100 sqrt(mean((x - x_base)^2)) / mean(x_base), x window in a bin", CURVES),
    entry("nrmse_bitrate", "flow", "%", Mean,
        "like nrmse_cwnd, for the payload read over time",
        "100 sqrt(mean((x - x_base)^2)) / mean(x_base), x payload in a bin", CURVES),
    entry("nrmse_rtt", "flow", "%", Mean,
        "like nrmse_cwnd, for the smoothed round trip over time",
        "100 sqrt(mean((x - x_base)^2)) / mean(x_base), x sRTT in a bin", CURVES),
    entry("bitrate_off", "flow", "%", Mean,
        "difference from the baseline in payload read during the [curves] interval",
        "100 (x / x_base - 1), x payload", OWN),
    entry("slow_start_resent", "flow", "segments", Mean,
        "segments retransmitted in slow start, which ends at the time that the key slow_start of \
         [curves] gives",
        "#{segments retransmitted}", OWN),
    entry("slow_start_resent_beyond", "flow", "segments", Mean,
        "segments retransmitted in slow start, minus twice the baseline's number",
        "x - 2 x_base, x = slow_start_resent", OWN),
    entry("slow_start_peak", "flow", "segments", Mean, "largest window in slow start",
        "max(cwnd / MSS)", OWN),
    entry("slow_start_peak_off", "flow", "%", Mean,
        "difference from the baseline in the largest window of slow start",
        "100 (x / x_base - 1), x = slow_start_peak", OWN),
    entry("half_bdp_later_ms", "flow", "ms", Mean,
        "delay after the baseline until the window reaches half a bandwidth-delay product; 10^9 if \
         a run never reaches it",
        "x - x_base, x = half_bdp_after_ms", OWN),
];
