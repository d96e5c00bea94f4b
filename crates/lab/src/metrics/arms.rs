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
        "median slowdown over that of status_quo",
        "slowdown_p50 / slowdown_p50 of status_quo", BUNDLER),
    entry("slowdown_p99_over_status_quo", "arm", "", Mean,
        "99th percentile of the slowdown over that of status_quo",
        "slowdown_p99 / slowdown_p99 of status_quo", BUNDLER),
    entry("fct_p50_over_status_quo", "arm", "", Mean,
        "median completion time over that of status_quo",
        "fct_p50_ms / fct_p50_ms of status_quo", OWN),
    entry("slowdown_p50_over_in_network_fq", "arm", "", Mean,
        "median slowdown over that of in_network_fq",
        "slowdown_p50 / slowdown_p50 of in_network_fq", BUNDLER),
    entry("gap_closed", "arm", "", Mean,
        "(status_quo - arm) / (status_quo - in_network_fq) of the median slowdown",
        "(s_quo - s) / (s_quo - s_network), s = slowdown_p50", OWN),
    entry("large_paired_ratio_geomean", "arm", "", Mean,
        "geometric mean, over large requests, of slowdown over the request's slowdown in status_quo",
        "exp(mean(ln(slowdown / slowdown of the same request in status_quo)))", OWN),
    entry("bytes_over_status_quo", "arm", "", Mean, "payload bytes over those of status_quo",
        "goodput_mbps / goodput_mbps of status_quo", OWN),
    entry("queue_total_over_status_quo", "arm", "", Mean,
        "bottleneck and sendbox queues over those of status_quo",
        "queue_total_mean_packets / queue_total_mean_packets of status_quo", OWN),
    entry("sites_better", "flow", "", Mean,
        "share of the sites that send the flow whose geometric mean of slowdowns is below that in status_quo by more \
         than 5 % and than chance makes of it; with [topology]",
        "#{sites: s < s_quo / d} / #{sites}, d = max(1.05, 1 + sites_noise), s = site_slowdown", OWN),
    entry("sites_worse", "flow", "", Mean,
        "share of the sites that send the flow whose geometric mean of slowdowns is above that in status_quo by more \
         than 5 % and than chance makes of it; with [topology]",
        "#{sites: s > s_quo d} / #{sites}, d = max(1.05, 1 + sites_noise), s = site_slowdown", OWN),
    entry("sites_noise", "flow", "", Mean,
        "change of a site's geometric mean of slowdowns within which 95 % of the sites that send the flow stay from \
         status_quo to status_quo_again, an arm that does the same with packets that come at other times; with \
         [topology]",
        "exp(Q95(abs(ln(s_again / s_quo)))) - 1, s = site_slowdown", OWN),
    entry("harm_throughput", "flow", "", Mean,
        "share of the goodput that a flow has in the arm solo, where it runs alone, and not beside the others of this \
         arm, which live shorter there; below 0: it has more",
        "(x_solo - x) / x_solo, x = goodput_mbps", HARM),
    entry("harm_delay", "flow", "", Mean,
        "share of a flow's smoothed round trip that it does not have in the arm solo, where it runs alone",
        "(x - x_solo) / x, x = mean_srtt_l4", HARM),
    entry("harm_fct", "flow", "", Mean,
        "share of the median completion time of a flow's requests that they do not take in the arm solo, where the \
         flow runs alone",
        "(x - x_solo) / x, x = fct_p50_ms", HARM),
    entry("harm_loss", "flow", "", Mean,
        "share of the segments that a flow sends again for each byte that it does not send again in the arm solo, \
         where it runs alone",
        "(x - x_solo) / x, x = total_retransmissions_l4 / payload_bytes of a run", HARM),
    entry("nrmse_cwnd", "flow", "%", Mean,
        "error of the window's curve, a mean over runs, compared with the baseline's; with [curves], of a greedy \
         flow of one connection",
        "100 sqrt(mean((x - x_base)^2)) / mean(x_base), x window in a bin", CURVES),
    entry("nrmse_bitrate", "flow", "%", Mean,
        "error of the curve of the payload read, likewise",
        "100 sqrt(mean((x - x_base)^2)) / mean(x_base), x payload in a bin", CURVES),
    entry("nrmse_rtt", "flow", "%", Mean,
        "error of the curve of the smoothed round trip, likewise",
        "100 sqrt(mean((x - x_base)^2)) / mean(x_base), x sRTT in a bin", CURVES),
    entry("bitrate_off", "flow", "%", Mean,
        "by how much the payload read within [curves] differs from the baseline's",
        "100 (x / x_base - 1), x payload", OWN),
    entry("slow_start_resent", "flow", "segments", Mean,
        "segments sent again in slow start, which ends with the key slow_start of [curves]",
        "#{segments sent again}", OWN),
    entry("slow_start_resent_beyond", "flow", "segments", Mean,
        "segments sent again in slow start beyond twice the baseline's",
        "x - 2 x_base, x = slow_start_resent", OWN),
    entry("slow_start_peak", "flow", "segments", Mean, "largest window in slow start",
        "max(cwnd / MSS)", OWN),
    entry("slow_start_peak_off", "flow", "%", Mean,
        "by how much the largest window in slow start differs from the baseline's",
        "100 (x / x_base - 1), x = slow_start_peak", OWN),
    entry("half_bdp_later_ms", "flow", "ms", Mean,
        "by how much later than the baseline's the window reaches half a bandwidth-delay product; 10^9 if in some run \
         it does not",
        "x - x_base, x = half_bdp_after_ms", OWN),
];
